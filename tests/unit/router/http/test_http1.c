/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/http/http1.h"
#include "tests/support/testsupport.h"

#define NL "\r\n"

static bt_status_t parse(const char *text, bt_http1_head_t *head, char **copy_p,
                         bt_http1_fault_t *fault)
{
    const size_t n = strlen(text);
    size_t seen = 0;

    *copy_p = bt_memdup(text, n);
    assert_non_null(*copy_p);
    assert_int_equal(bt_http1_head_end(text, n, &seen), n);
    return bt_http1_parse_head(*copy_p, n, head, fault);
}

/* Expect this status for this text. */
static void refused(const char *text, int http_status)
{
    bt_http1_head_t head;
    bt_http1_fault_t fault = {0, NULL};
    char *copy;

    if (parse(text, &head, &copy, &fault) == BT_OK) {
        fail_msg("accepted: %s", text);
    }
    if (fault.http_status != http_status) {
        fail_msg("%d (%s) for: %s", fault.http_status, fault.why, text);
    }
    bt_free(copy);
}

static void accepted(const char *text, bt_http1_head_t *head, char **copy_p)
{
    bt_http1_fault_t fault = {0, "none"};

    if (parse(text, head, copy_p, &fault) != BT_OK) {
        fail_msg("%s: %s", fault.why, text);
    }
}

static void request_head_is_parsed(void **state)
{
    bt_http1_head_t head;
    char *copy;

    (void)state;
    accepted("POST /v2/models/m%2fx/generate?a=b%20c#f HTTP/1.1" NL "Host: h" NL
             "X-A:  two words \t" NL "content-length: 12" NL "x-a: again" NL
             "Empty:" NL NL,
             &head, &copy);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.path, "/v2/models/m/x/generate");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.length, 12);
    assert_false(head.chunked);
    assert_true(head.keep_alive);
    assert_false(head.expect_continue);
    assert_int_equal(head.n_headers, 5);
    assert_string_equal(bt_http1_find(&head, "x-A"), "two words");
    assert_string_equal(bt_http1_find(&head, "EMPTY"), "");
    assert_null(bt_http1_find(&head, "X"));
    bt_free(copy);
}

static void keep_alive_follows_http_version(void **state)
{
    static const struct {
        const char *text;
        bool keep_alive;
    } cases[] = {
        {"GET / HTTP/1.1" NL "Host: h" NL NL, true},
        {"GET / HTTP/1.1" NL "Host: h" NL "Connection: close" NL NL, false},
        {"GET / HTTP/1.1" NL "Host: h" NL "Connection: x, CLOSE" NL NL, false},
        {"GET / HTTP/1.1" NL "Host: h" NL "Connection: closed" NL NL, true},
        {"GET / HTTP/1.0" NL NL, false},
        {"GET / HTTP/1.0" NL "Connection: Keep-Alive" NL NL, true},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_http1_head_t head;
        char *copy;

        accepted(cases[i].text, &head, &copy);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
        bt_free(copy);
    }
}

static void request_target_becomes_decoded_path(void **state)
{
    static const struct {
        const char *target;
        const char *path;
    } cases[] = {
        {"/", "/"},
        {"/a?b", "/a"},
        {"/a%3Fb?c", "/a?b"},
        {"/%C3%A4", "/\xC3\xA4"},
        {"http://host:1/x/y?z", "/x/y"},
        {"HTTP://host", "/"},
        {"http://host?q", "/"},
        {"*", "*"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_http1_head_t head;
        char text[256];
        char *copy;

        snprintf(text, sizeof(text), "GET %s HTTP/1.1" NL "Host: h" NL NL,
                 cases[i].target);
        accepted(text, &head, &copy);
        assert_string_equal(head.path, cases[i].path);
        bt_free(copy);
    }
}

/* RFC 9112: 2.2 bare CR and LF, 3 request line, 3.2 Host, 5.1 white space
 * before the colon, 5.2 folding, 6.3 lengths. */
static void malformed_heads_are_refused(void **state)
{
    (void)state;
    refused(NL NL, 400);
    refused("GET /" NL NL, 400);
    refused("GET  HTTP/1.1" NL "Host: h" NL NL, 400);
    refused(" GET / HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("G(T / HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET / a HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET a HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET ?a HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET /\x01 HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET /%0 HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET /%zz HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET /%00 HTTP/1.1" NL "Host: h" NL NL, 400);
    refused("GET / HTTP/11" NL "Host: h" NL NL, 400);
    refused("GET / http/1.1" NL "Host: h" NL NL, 400);
    refused("GET / HTTP/1.1x" NL "Host: h" NL NL, 400);
    refused("PRI * HTTP/2.0" NL NL, 505);
    refused("GET / HTTP/1.1\nHost: h\n\n", 400);
    refused("GET / HTTP/1.1" NL "Host: h\n" NL, 400);
    refused("GET / HTTP/1.1" NL "Host : h" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL " folded" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL ": x" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL "nocolon" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL "A: b\rc" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL "A: \x7f" NL NL, 400);
    refused("GET / HTTP/1.1" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: a" NL "Host: a" NL NL, 400);
    refused("GET / HTTP/1.1" NL "Host: h" NL "Expect: tea" NL NL, 417);
}

static void ambiguous_lengths_are_refused(void **state)
{
#define HEAD "POST / HTTP/1.1" NL "Host: h" NL
    bt_http1_head_t head;
    char *copy;

    (void)state;
    refused(HEAD "Content-Length: " NL NL, 400);
    refused(HEAD "Content-Length: -1" NL NL, 400);
    refused(HEAD "Content-Length: +1" NL NL, 400);
    refused(HEAD "Content-Length: 0x1" NL NL, 400);
    refused(HEAD "Content-Length: 1, 1" NL NL, 400);
    refused(HEAD "Content-Length: 18446744073709551616" NL NL, 400);
    refused(HEAD "Content-Length: 1" NL "Content-Length: 2" NL NL, 400);
    refused(HEAD "Content-Length: 1" NL "Transfer-Encoding: chunked" NL NL,
            400);
    refused(HEAD "Transfer-Encoding: gzip, chunked" NL NL, 501);
    refused(HEAD "Transfer-Encoding: chunked" NL
                 "Transfer-Encoding: chunked" NL NL,
            501);
    refused("POST / HTTP/1.0" NL "Transfer-Encoding: chunked" NL NL, 400);
    refused(HEAD "Content-Encoding: br" NL "Content-Length: 1" NL NL, 415);
    refused(HEAD "Content-Encoding: gzip, gzip" NL "Content-Length: 1" NL NL,
            415);
    refused(HEAD "Content-Encoding: gzip" NL "Content-Encoding: gzip" NL
                 "Content-Length: 1" NL NL,
            415);
    accepted(HEAD "Content-Encoding: gzip" NL "Content-Length: 1" NL NL, &head,
             &copy);
    bt_free(copy);
    accepted(HEAD "Transfer-Encoding: chunked" NL
                  "Content-Encoding: deflate" NL NL,
             &head, &copy);
    bt_free(copy);
    accepted(HEAD "Content-Encoding: identity" NL "Content-Length: 1" NL NL,
             &head, &copy);
    bt_free(copy);
    accepted(HEAD "Content-Encoding: gzip" NL NL, &head, &copy); /* no body */
    bt_free(copy);

    accepted(HEAD "Content-Length: 18446744073709551615" NL NL, &head, &copy);
    assert_true(head.length == UINT64_MAX);
    bt_free(copy);
    accepted(HEAD "Content-Length: 7" NL "Content-Length: 7" NL NL, &head,
             &copy);
    assert_int_equal(head.length, 7);
    bt_free(copy);
#undef HEAD
}

static void headers_over_100_are_refused(void **state)
{
    char text[8192] = "GET / HTTP/1.1" NL "Host: h" NL;
    size_t n = strlen(text);
    bt_http1_head_t head;
    char *copy;

    (void)state;
    for (int i = 0; i < 99; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "A%d: b" NL, i);
    }
    snprintf(text + n, sizeof(text) - n, NL);
    accepted(text, &head, &copy);
    assert_int_equal(head.n_headers, 100);
    bt_free(copy);
    snprintf(text + n, sizeof(text) - n, "B: c" NL NL);
    refused(text, 431);
}

static void head_end_is_found_at_any_split(void **state)
{
    static const char text[] = "GET / HTTP/1.1" NL "Host: h" NL NL "body" NL NL;
    const size_t n_head = strlen("GET / HTTP/1.1" NL "Host: h" NL NL);

    (void)state;
    for (size_t cut = 0; cut < n_head; cut++) {
        size_t seen = 0;

        assert_int_equal(bt_http1_head_end(text, cut, &seen), 0);
        assert_int_equal(bt_http1_head_end(text, sizeof(text) - 1, &seen),
                         n_head);
    }
}

/* Decode in pieces of `step` bytes. */
static bt_status_t decode(const char *text, size_t bytes, size_t step,
                          char *body, size_t *n_body_p, size_t *used_p)
{
    bt_http1_chunked_t decoder;
    size_t at = 0;
    bool done = false;

    memset(&decoder, 0, sizeof(decoder));
    *n_body_p = 0;
    while (!done) {
        const size_t n = (bytes - at < step) ? bytes - at : step;
        const char *piece;
        size_t n_piece;
        size_t used;
        bt_status_t status;

        if (n == 0) {
            return BT_INPROGRESS;
        }
        status = bt_http1_chunked_feed(&decoder, text + at, n, &used, &piece,
                                       &n_piece, &done);
        if (status != BT_OK) {
            return status;
        }
        assert_true((used > 0) && (used <= n));
        assert_true((n_piece == 0) || ((piece >= text + at) &&
                                       (piece + n_piece <= text + at + n)));
        memcpy(body + *n_body_p, piece, n_piece);
        *n_body_p += n_piece;
        at += used;
    }
    *used_p = at;
    return BT_OK;
}

static void chunks_are_joined_at_any_split(void **state)
{
    static const char text[] = "5;x=y" NL "hello" NL "0A \t" NL "0123456789" NL
                               "000" NL "Trailer: x" NL "B: c" NL NL "NEXT";
    char body[64];
    size_t n_body;
    size_t used;

    (void)state;
    for (size_t step = 1; step < sizeof(text); step++) {
        assert_int_equal(
            decode(text, sizeof(text) - 1, step, body, &n_body, &used), BT_OK);
        assert_int_equal(n_body, 15);
        assert_memory_equal(body, "hello0123456789", 15);
        assert_string_equal(text + used, "NEXT");
    }
}

static void malformed_chunks_are_refused(void **state)
{
    static const char *const bad[] = {
        NL,
        "g" NL,
        "-1" NL,
        "0x1" NL,
        "1\n",
        "1;\n",
        "1" NL "ab",
        "1" NL "a\n",
        "1" NL "a" NL NL,
        "10000000000000000" NL,
        "0" NL "\n",
        "0" NL "a\n",
        "0" NL "\rx",
    };
    char body[64];
    size_t n_body;
    size_t used;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        if (decode(bad[i], strlen(bad[i]), 100, body, &n_body, &used) !=
            BT_ERR_BAD_MESSAGE) {
            fail_msg("not refused: %s", bad[i]);
        }
    }
}

static void endless_chunk_lines_are_refused(void **state)
{
    static char text[32 * 1024];
    char body[16];
    size_t n_body;
    size_t used;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[0] = '1';
    text[1] = ';';
    assert_int_equal(decode(text, sizeof(text), 7, body, &n_body, &used),
                     BT_ERR_TOO_LARGE);
    memset(text, '0', sizeof(text)); /* leading zeros are endless too */
    assert_int_equal(decode(text, sizeof(text), 7, body, &n_body, &used),
                     BT_ERR_TOO_LARGE);
    text[1] = '\r';
    text[2] = '\n';
    for (size_t i = 3; i + 5 <= sizeof(text); i += 5) {
        memcpy(text + i, "A: b\r", 5);
        text[i + 3] = '\r';
        text[i + 4] = '\n';
    }
    assert_int_equal(decode(text, sizeof(text) - 4, 7, body, &n_body, &used),
                     BT_ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_head_is_parsed),
        BT_TEST(keep_alive_follows_http_version),
        BT_TEST(request_target_becomes_decoded_path),
        BT_TEST(malformed_heads_are_refused),
        BT_TEST(ambiguous_lengths_are_refused),
        BT_TEST(headers_over_100_are_refused),
        BT_TEST(head_end_is_found_at_any_split),
        BT_TEST(chunks_are_joined_at_any_split),
        BT_TEST(malformed_chunks_are_refused),
        BT_TEST(endless_chunk_lines_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
