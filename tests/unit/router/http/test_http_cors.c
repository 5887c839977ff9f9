/* SPDX-License-Identifier: Apache-2.0 */
/* Preflights, and headers that all answers to a page have, on real sockets. */
#include "router/http/cors.h"
#include "tests/unit/router/http/http_fixture.h"

#define PAGE     "Origin: https://a.test" NL
#define ASKS     "Access-Control-Request-Method: POST" NL
#define NAMED    NL "Access-Control-Allow-Origin: https://a.test" NL
#define OPTIONS  "OPTIONS /v1/models HTTP/1.1" NL "Host: h" NL
#define N_QUEUED 40

static const char list[] = "https://a.test";

static const char *check_head(void *ctx, const bt_http1_head_t *head)
{
    const char *const origin = bt_http1_find(head, "Origin");

    (void)ctx;
    return ((origin == NULL) || bt_cors_allows(list, origin)) ? NULL
                                                              : "a stranger";
}

static void add_headers(void *ctx, const bt_http1_head_t *head,
                        bt_strbuf_t *out)
{
    (void)ctx;
    bt_cors_add_headers(list, head, out);
}

static bool preflight(void *ctx, const bt_http1_head_t *head, bt_strbuf_t *out)
{
    (void)ctx;
    return bt_cors_preflight(list, head, out);
}

static void start_for_pages(fixture_t *f, client_t *c)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone,
                                         .ctx = f,
                                         .check_head = check_head,
                                         .add_headers = add_headers,
                                         .preflight = preflight};
    bt_http_config_t config = normal;
    char why[BT_NET_WHY_BYTES];

    config.max_body_bytes = 1024;
    start(f, &normal);
    bt_http_destroy(f->http);
    assert_int_equal(bt_http_create(f->base, &config, &handlers, &f->http),
                     BT_OK);
    assert_int_equal(
        bt_net_listen(bt_http_net(f->http), "127.0.0.1", 0, &f->port, why),
        BT_OK);
    client_open(f, c);
}

static uint32_t count_of(client_t *c, const char *text)
{
    uint32_t n = 0;
    const char *at;

    read_some(c);
    for (at = c->got.data; (at != NULL) && ((at = strstr(at, text)) != NULL);
         at++) {
        n++;
    }
    return n;
}

static void preflight_keeps_connection_open(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start_for_pages(&f, &c);
    client_puts(&f, &c, OPTIONS PAGE ASKS NL);
    WAIT_FOR(&f, has(&c, NL NL));
    assert_true(has(&c, "HTTP/1.1 204 No Content" NL));
    assert_true(has(&c, NAMED));
    assert_true(
        has(&c, NL "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE" NL));
    assert_false(has(&c, NL "Content-Length"));
    assert_int_equal(f.n_requests, 0);
    bt_strbuf_reset(&c.got);
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL PAGE
                "Content-Length: 2" NL NL "hi");
    WAIT_FOR(&f, has(&c, NL NL "hi"));
    assert_true(has(&c, "HTTP/1.1 200 OK" NL));
    assert_true(has(&c, NAMED));
    assert_int_equal(f.n_requests, 1);
    client_close(&c);
    stop(&f);
}

static void pipelined_preflights_are_answered_in_order(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start_for_pages(&f, &c);
    for (int i = 0; i < N_QUEUED; i++) {
        client_puts(&f, &c, OPTIONS PAGE ASKS NL);
    }
    client_puts(&f, &c, "GET /empty HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, count_of(&c, "HTTP/1.1 204") == N_QUEUED + 1);
    assert_int_equal(count_of(&c, NAMED), N_QUEUED);
    assert_int_equal(f.n_requests, 1);
    client_close(&c);
    stop(&f);
}

static void foreign_origin_gets_no_cors_header(void **state)
{
    static const char *const heads[] = {
        OPTIONS "Origin: https://b.test" NL ASKS NL,
        OPTIONS "Origin: null" NL ASKS NL,
        "POST /echo HTTP/1.1" NL "Host: h" NL "Origin: https://b.test" NL
        "Content-Length: 2" NL NL "hi",
    };
    fixture_t f;
    client_t c;

    (void)state;
    start_for_pages(&f, &c);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        client_close(&c);
        client_open(&f, &c);
        client_puts(&f, &c, heads[i]);
        WAIT_FOR(&f, at_eof(&c));
        assert_true(has(&c, "HTTP/1.1 403 Forbidden" NL));
        assert_true(has(&c, "a stranger"));
        assert_false(has(&c, "Access-Control"));
    }
    assert_int_equal(f.n_requests, 0);
    client_close(&c);
    stop(&f);
}

static void options_without_preflight_gets_405(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start_for_pages(&f, &c);
    client_puts(&f, &c, OPTIONS PAGE NL); /* asks for no method */
    WAIT_FOR(&f, at_eof(&c));
    assert_true(has(&c, "HTTP/1.1 405 "));
    client_close(&c);
    client_open(&f, &c);
    client_puts(&f, &c, OPTIONS NL); /* no page */
    WAIT_FOR(&f, at_eof(&c));
    assert_true(has(&c, "HTTP/1.1 405 "));
    assert_true(has(&c, NL "Allow: GET, HEAD, POST, DELETE" NL));
    client_close(&c);
    stop(&f);
}

static void server_errors_have_cors_headers(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start_for_pages(&f, &c);
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL PAGE
                "Content-Length: 1025" NL NL);
    WAIT_FOR(&f, at_eof(&c));
    assert_true(has(&c, "HTTP/1.1 413 "));
    assert_true(has(&c, NAMED));
    client_close(&c);
    client_open(&f, &c);
    /* The body of a preflight is not read: nothing follows it. */
    client_puts(&f, &c, OPTIONS PAGE ASKS "Content-Length: 4" NL NL "GET ");
    WAIT_FOR(&f, at_eof(&c));
    assert_true(has(&c, "HTTP/1.1 204 "));
    assert_true(has(&c, NL "Connection: close" NL));
    assert_int_equal(count_of(&c, "HTTP/1.1"), 1);
    client_close(&c);
    stop(&f);
}

static void preflight_survives_every_failed_allocation(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    for (int nth = 1;; nth++) {
        bool failed;

        start_for_pages(&f, &c);
        client_puts(&f, &c, OPTIONS PAGE);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 1);
        bt_alloc_fail_at(nth);
        client_puts(&f, &c, ASKS NL);
        WAIT_FOR(&f, at_eof(&c) || has(&c, NL NL));
        failed = !has(&c, "HTTP/1.1 204");
        bt_alloc_fail_at(0);
        client_close(&c);
        stop(&f);
        if (!failed) {
            break;
        }
        assert_true(nth < 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(preflight_keeps_connection_open),
        BT_TEST(pipelined_preflights_are_answered_in_order),
        BT_TEST(foreign_origin_gets_no_cors_header),
        BT_TEST(options_without_preflight_gets_405),
        BT_TEST(server_errors_have_cors_headers),
        BT_TEST(preflight_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
