/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of browsers: which page asks, and what it would read. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "router/http/accept.h"
#include "router/http/cors.h"

static void cors_origins_are_compared_whole(void **state)
{
    static const char list[] =
        "https://example.org, http://localhost:3000,http://[::1]:8080";
    static const char *const allowed[] = {
        "https://example.org", "http://localhost:3000", "HTTPS://Example.ORG",
        "http://[::1]:8080"};
    static const char *const hostile[] = {
        "http://example.org",      /* another scheme */
        "https://example.org:444", /* another port */
        "https://example.org:443", /* browsers leave it out */
        "https://example.org/",
        "https://example.org.evil.test",
        "https://evil-example.org",
        "https://sub.example.org",
        "https://example.or",
        "http://localhost",
        "http://localhost:30000",
        "null",
        "*",
        "https://example.org,",
        "https://example.org http://localhost:3000",
        "http://localhost:3000, https://example.org"};

    (void)state;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        assert_true(bt_cors_allows(list, allowed[i]));
        assert_false(bt_cors_allows("", allowed[i]));
    }
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        assert_false(bt_cors_allows(list, hostile[i]));
        assert_true(bt_cors_allows("https://a.test,*", hostile[i]));
    }
    assert_false(bt_cors_allows(list, NULL));
    assert_false(bt_cors_allows("*", NULL));
    assert_false(bt_cors_allows("*", ""));
}

static void invalid_cors_origin_is_refused_at_start(void **state)
{
    static const char *const good[] = {
        "",
        "*",
        "https://example.org",
        "http://localhost:3000,http://127.0.0.1:3000",
        "http://[::1]:80",
        "vscode-webview://abc",
        "chrome-extension://abcdef",
        " https://a.test ,\thttps://b.test "};
    static const char *const bad[] = {"example.org",
                                      "https://",
                                      "://a",
                                      "https://a/",
                                      "https://a/b",
                                      "https://a:",
                                      "https://a:b",
                                      "https://a:123456",
                                      "https://*.a",
                                      "https://[::1",
                                      "https://u:p@a",
                                      "https://a?b",
                                      "ht tp://a",
                                      "null",
                                      "https://a.test,*.b.c",
                                      "https://a\"b"};
    char entry[BT_CORS_ORIGIN_BYTES];
    char longest[400];

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(bt_cors_are_valid(good[i], entry));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(bt_cors_are_valid(bad[i], entry));
    }
    assert_false(bt_cors_are_valid("https://a.test, b.test/c", entry));
    assert_string_equal(entry, "b.test/c");
    memset(longest, 'a', sizeof(longest) - 1);
    memcpy(longest, "http://", 7);
    longest[sizeof(longest) - 1] = '\0';
    assert_false(bt_cors_are_valid(longest, entry));
}

/* The headers for a head of these lines; "" of none. */
static const char *headers_of(const char *origins, const char *lines,
                              bool preflight)
{
    static char text[8192];
    static char out[8192];
    bt_http1_fault_t fault;
    bt_http1_head_t head;
    bt_strbuf_t got;
    int n;

    n = snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: h\r\n%s\r\n",
                 preflight ? "OPTIONS" : "POST", lines);
    assert_int_equal(bt_http1_parse_head(text, (size_t)n, &head, &fault),
                     BT_OK);
    bt_strbuf_init(&got, sizeof(out) - 1);
    if (preflight) {
        if (!bt_cors_preflight(origins, &head, &got)) {
            assert_int_equal(got.len, 0);
            bt_strbuf_fini(&got);
            return "refused";
        }
    } else {
        bt_cors_add_headers(origins, &head, &got);
    }
    assert_int_equal(bt_strbuf_status(&got), BT_OK);
    snprintf(out, sizeof(out), "%s", (got.len > 0) ? got.data : "");
    bt_strbuf_fini(&got);
    return out;
}

static void allowed_origin_gets_allow_origin_header(void **state)
{
#define EXPOSED                                                      \
    "Access-Control-Expose-Headers: X-Request-Id, Retry-After, "     \
    "Inference-Header-Content-Length, X-Baton-Ignored-Fields, "      \
    "x-ratelimit-limit-requests, x-ratelimit-limit-tokens, "         \
    "x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, " \
    "x-ratelimit-reset-requests, x-ratelimit-reset-tokens\r\n"
    static const char list[] = "https://a.test,https://b.test";

    (void)state;
    assert_string_equal(headers_of("", "Origin: https://a.test\r\n", false),
                        "");
    assert_string_equal(headers_of(list, "", false), "Vary: Origin\r\n");
    assert_string_equal(headers_of(list, "Origin: https://c.test\r\n", false),
                        "Vary: Origin\r\n");
    assert_string_equal(
        headers_of(list, "Origin: https://b.test\r\n", false),
        "Vary: Origin\r\n"
        "Access-Control-Allow-Origin: https://b.test\r\n" EXPOSED);
    /* Nothing of theirs is told back where all may. */
    assert_string_equal(headers_of("*", "Origin: x\r\n", false),
                        "Access-Control-Allow-Origin: *\r\n" EXPOSED);
}

static void preflight_is_answered_for_allowed_origin_only(void **state)
{
#define METHODS "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\n"
#define AGE     "Access-Control-Max-Age: 600\r\n"
#define ASKS    "Access-Control-Request-Method: POST\r\n"
#define A       "Origin: https://a.test\r\n"
    static char names[5000];
    static char lines[6000];

    (void)state;
    assert_string_equal(headers_of("https://a.test", A ASKS, true),
                        METHODS AGE);
    assert_string_equal(
        headers_of("https://a.test",
                   A ASKS "Access-Control-Request-Headers: content-type, "
                          "authorization,x-stainless-os\r\n"
                          "Access-Control-Request-Private-Network: true\r\n",
                   true),
        METHODS "Access-Control-Allow-Headers: content-type, "
                "authorization,x-stainless-os\r\n"
                "Access-Control-Allow-Private-Network: true\r\n" AGE);
    assert_string_equal(headers_of("https://a.test", ASKS, true), "refused");
    assert_string_equal(headers_of("https://a.test", A, true), "refused");
    assert_string_equal(headers_of("", A ASKS, true), "refused");
    assert_string_equal(
        headers_of("https://a.test", "Origin: https://b.test\r\n" ASKS, true),
        "refused");
    /* Invalid or very long lists of names are not echoed. */
    assert_string_equal(
        headers_of("*", A ASKS "Access-Control-Request-Headers: a:b\r\n", true),
        METHODS AGE);
    memset(names, 'n', sizeof(names) - 1);
    snprintf(lines, sizeof(lines),
             A ASKS "Access-Control-Request-Headers: %s\r\n", names);
    assert_string_equal(headers_of("*", lines, true), METHODS AGE);
}

/* Weights by hand from RFC 9110, 12.4.2. */
static void accept_weights_are_compared(void **state)
{
    static const struct {
        const char *accept;
        uint32_t weight;
        bool html;
    } cases[] = {
        {NULL, 0, false},
        {"", 0, false},
        {"*/*", 0, false},
        {"text/*", 0, false},
        {"application/json", 0, false},
        {"text/html", 1000, true},
        {"TEXT/HTML", 1000, true},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
         1000, true},
        {"application/json, text/html;q=0.9", 900, false},
        {"application/json;q=0.5, text/html ; level=1 ; q=0.75", 750, true},
        {"text/html;q=0", 0, false},
        {"text/html;q=0.000", 0, false},
        {"text/html;q=0.001", 1, true},
        {"text/html;q=1.000", 1000, true},
        {"text/html;q=7", 1000, true},
        {"text/html;q=0.1234", 1000, true},
        {"text/html;q=", 1000, true},
        {"text/html;q=0.x", 1000, true},
        {"text/htmlx, text/htm", 0, false},
        {",, ,text/html", 1000, true},
        {"text/html;;;", 1000, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(bt_accept_weight(cases[i].accept, "text/html"),
                         cases[i].weight);
        assert_int_equal(bt_accept_wants_html(cases[i].accept), cases[i].html);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(cors_origins_are_compared_whole),
        BT_TEST(invalid_cors_origin_is_refused_at_start),
        BT_TEST(allowed_origin_gets_allow_origin_header),
        BT_TEST(preflight_is_answered_for_allowed_origin_only),
        BT_TEST(accept_weights_are_compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
