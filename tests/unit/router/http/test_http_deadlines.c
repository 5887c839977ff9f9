/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: slow and silent clients. */
#include "tests/unit/router/http/http_fixture.h"

/* ---- deadlines ---- */

static bt_http_config_t short_config(void)
{
    bt_http_config_t config = normal;

    config.header_timeout_ms = SHORT_MS;
    config.body_timeout_ms = SHORT_MS;
    config.idle_timeout_ms = SHORT_MS;
    return config;
}

/* Send one byte per millisecond until the server ends it. */
static uint64_t drip(fixture_t *f, client_t *c, char byte)
{
    const uint64_t start_ms = bt_now_ms();
    uint64_t now_ms = start_ms;

    while (!at_eof(c)) {
        assert_true(now_ms - start_ms < PATIENCE_MS);
        (void)!send(c->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        WAIT_FOR(f, bt_now_ms() > now_ms);
        now_ms = bt_now_ms();
    }
    return now_ms - start_ms;
}

static void slow_head_gets_408_at_deadline(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c;

    (void)state;
    config.header_timeout_ms = SHORT_MS;
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, "GET / HTTP/1.1" NL "X: ");
    assert_true(drip(&f, &c, 'x') >= SHORT_MS - 10);
    assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
    client_close(&c);

    client_open(&f, &c); /* the deadline of a later request is its own */
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, NL NL));
    bt_strbuf_reset(&c.got);
    client_puts(&f, &c, "G");
    WAIT_FOR(&f, at_eof(&c));
    assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
    client_close(&c);
    stop(&f);
}

static void slow_body_gets_408_at_deadline(void **state)
{
    static const char *const heads[] = {
        "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: 999999" NL NL,
        POST_CHUNKS "1;",
        POST_CHUNKS "fffff" NL,
        POST_CHUNKS "0" NL,
    };
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c;

    (void)state;
    config.body_timeout_ms = SHORT_MS;
    start(&f, &config);
    for (size_t i = 0; i < BT_ARRAY_LEN(heads); i++) {
        client_open(&f, &c);
        client_puts(&f, &c, heads[i]);
        assert_true(drip(&f, &c, 'x') >= SHORT_MS - 10);
        assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
        client_close(&c);
    }
    assert_int_equal(f.n_requests, 0);
    stop(&f);
}

static void silent_connections_are_closed_without_answer(void **state)
{
    const bt_http_config_t config = short_config();
    fixture_t f;
    client_t fresh;
    client_t idle;

    (void)state;
    start(&f, &config);
    client_open(&f, &fresh);
    client_open(&f, &idle);
    client_puts(&f, &idle, GET("/empty"));
    WAIT_FOR(&f, has(&idle, NL NL));
    bt_strbuf_reset(&idle.got);
    /* Empty lines are no request and move no deadline. */
    drip(&f, &idle, '\n');
    WAIT_FOR(&f, at_eof(&fresh));
    assert_int_equal(fresh.got.len, 0);
    assert_int_equal(idle.got.len, 0);
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 0);
    client_close(&fresh);
    client_close(&idle);
    stop(&f);
}

static void no_deadline_runs_during_handler(void **state)
{
    const bt_http_config_t config = short_config();
    fixture_t f;
    client_t c;
    uint64_t start_ms;

    (void)state;
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    start_ms = bt_now_ms();
    WAIT_FOR(&f, bt_now_ms() > start_ms + 3 * SHORT_MS);
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "late", 4);
    WAIT_FOR(&f, has(&c, "late"));
    assert_int_equal(f.n_gone, 0);
    client_close(&c);
    stop(&f);
}

static void reader_stalled_after_answer_is_closed(void **state)
{
    const size_t bytes = 32u << 20; /* more than the kernel's buffers take */
    const bt_http_config_t config = short_config();
    char *body = bt_calloc(bytes, 1);
    fixture_t f;
    client_t c;

    (void)state;
    assert_non_null(body);
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", body, bytes);
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 1);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    assert_int_equal(f.n_gone, 0); /* the answer had ended */
    client_close(&c);
    bt_free(body);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(slow_head_gets_408_at_deadline),
        BT_TEST(slow_body_gets_408_at_deadline),
        BT_TEST(silent_connections_are_closed_without_answer),
        BT_TEST(no_deadline_runs_during_handler),
        BT_TEST(reader_stalled_after_answer_is_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
