/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: clients that leave, many clients, and the end. */
#include "tests/unit/router/http/http_fixture.h"

/* ---- clients that leave ---- */

static void client_disconnect_is_reported_once(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    f.write_in_gone = true;
    for (uint32_t i = 0; i < 8; i++) {
        client_open(&f, &c);
        client_puts(&f, &c, HOLD);
        WAIT_FOR(&f, f.n_open == 1);
        if ((i & 1) != 0) {
            f.write_in_gone = false; /* it has begun */
            bt_exchange_stream_begin(f.open[0], "text/plain");
            assert_true(bt_exchange_stream_write(f.open[0], "x", 1));
        }
        if ((i & 2) != 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        if ((i & 4) != 0) { /* noticed by writing instead of by the loop */
            const uint64_t until_ms = bt_now_ms() + PATIENCE_MS;

            if ((i & 1) == 0) {
                f.write_in_gone = false;
                bt_exchange_stream_begin(f.open[0], "text/plain");
            }
            while (bt_exchange_stream_write(f.open[0], "x", 1)) {
                assert_true(bt_now_ms() < until_ms);
            }
            assert_int_equal(f.n_gone, i + 1);
        }
        WAIT_FOR(&f, f.n_gone == i + 1);
        assert_int_equal(f.n_open, 0);
        assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 0);
        f.write_in_gone = true;
    }
    event_base_loop(f.base, EVLOOP_NONBLOCK);
    assert_int_equal(f.n_gone, 8);
    stop(&f);
    assert_int_equal(f.n_gone, 8);
}

static void client_disconnect_with_pipelined_requests_is_reported(void **state)
{
    static char junk[1024 * 1024];
    fixture_t f;
    client_t c;

    (void)state;
    memset(junk, 'j', sizeof(junk));
    start(&f, &normal);
    for (uint32_t i = 0; i < 2; i++) {
        client_open(&f, &c);
        client_puts(&f, &c, HOLD);
        WAIT_FOR(&f, f.n_open == 1);
        client_send(&f, &c, junk, sizeof(junk));
        assert_int_equal(f.n_gone, i);
        if (i == 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        WAIT_FOR(&f, f.n_gone == i + 1);
    }

    client_open(&f, &c); /* who stays gets the answer under way */
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    client_send(&f, &c, junk, sizeof(junk));
    for (int i = 0; i < 100; i++) { /* it is all there to be read */
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "last", 4);
    WAIT_FOR(&f, at_eof(&c));
    assert_null(strstr(c.got.data + 1, "HTTP/1.1"));
    assert_non_null(strstr(c.got.data, NL "Connection: close" NL));
    assert_non_null(strstr(c.got.data, "last"));
    client_close(&c);
    stop(&f);
}

static void stalled_reader_is_disconnected_at_buffer_limit(void **state)
{
    static char chunk[64 * 1024];
    fixture_t f;
    client_t c;
    uint32_t n = 0;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/plain");
    while (bt_exchange_stream_write(f.open[0], chunk, sizeof(chunk))) {
        assert_true(++n < 2000);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    assert_true(n > 4); /* the cap itself fits */
    assert_int_equal(f.n_gone, 1);
    assert_int_equal(f.n_open, 0);
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 0);
    client_close(&c);

    client_open(&f, &c); /* dropped while on_request() is on the stack */
    f.fill_at_once = true;
    client_puts(&f, &c, HOLD GET("/echo"));
    WAIT_FOR(&f, f.n_gone == 2);
    assert_int_equal(f.n_requests, 2);
    client_close(&c);
    stop(&f);
}

/* For who looks at what is unsent, and adds nothing to it: the cap is not his.
 */
static void
a_piece_over_the_cap_may_be_appended_and_a_reader_be_cut_off(void **state)
{
    static char piece[8 * 1024 * 1024]; /* more than cap and socket take */
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/plain");
    assert_true(bt_exchange_stream_append(f.open[0], piece, 100));
    WAIT_FOR(&f, bt_exchange_unsent(f.open[0]) == 0);
    assert_true(bt_exchange_stream_append(f.open[0], piece, sizeof(piece)));
    event_base_loop(f.base, EVLOOP_NONBLOCK);
    assert_true(bt_exchange_unsent(f.open[0]) > normal.client_buffer_bytes);
    assert_int_equal(f.n_gone, 0);
    bt_exchange_cut_off(f.open[0]);
    assert_int_equal(f.n_gone, 1);
    assert_int_equal(f.n_open, 0);
    client_close(&c);
    stop(&f);
}

static void client_disconnect_at_any_byte_is_safe(void **state)
{
    static const char text[] =
        POST_5 "hello" HOLD POST_CHUNKS "5" NL "hello" NL "0" NL NL HOLD;
    fixture_t f;
    client_t c;
    size_t files;

    (void)state;
    start(&f, &normal);
    files = n_files();
    for (size_t i = 0; i < 2 * sizeof(text); i++) {
        client_open(&f, &c);
        client_send(&f, &c, text, i / 2);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
        if ((i & 1) != 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        if (i % 7 == 0) {
            WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
        }
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    assert_int_equal(f.n_open, 0);
    assert_true(f.n_gone > 0);
    assert_int_equal(n_files(), files);
    stop(&f);
}

/* ---- many, too many, the end ---- */

static void five_hundred_connections_are_served_at_once(void **state)
{
    enum { N = 500 };
    static client_t clients[N];
    fixture_t f;
    size_t files;

    (void)state;
    start(&f, &normal);
    files = n_files();
    for (uint32_t i = 0; i < N; i++) {
        client_open(&f, &clients[i]);
        client_puts(&f, &clients[i], HOLD);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    WAIT_FOR(&f, f.n_open == N);
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), N);
    for (uint32_t i = 0; i < N; i++) {
        char text[32];

        snprintf(text, sizeof(text), "answer %u.", i);
        bt_exchange_stream_begin(f.open[i], "text/plain");
        assert_true(bt_exchange_stream_write(f.open[i], text, strlen(text)));
    }
    for (uint32_t i = 0; i < N; i++) {
        bt_exchange_stream_end(f.open[i], "end", 3);
    }
    f.n_open = 0;
    for (uint32_t i = 0; i < N; i++) {
        char text[32];

        /* Accepted in the order of connecting, so answered in it. */
        snprintf(text, sizeof(text), "answer %u.", i);
        WAIT_FOR(&f, has(&clients[i], "end" NL "0" NL NL));
        assert_non_null(strstr(clients[i].got.data, text));
        client_close(&clients[i]);
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    assert_int_equal(f.n_gone, 0);
    assert_int_equal(n_files(), files);
    stop(&f);
}

static void connection_over_limit_closes_longest_idle(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t a;
    client_t b;
    client_t c;
    client_t d;

    (void)state;
    config.max_connections = 2;
    start(&f, &config);
    client_open(&f, &a);
    client_puts(&f, &a, GET("/empty"));
    WAIT_FOR(&f, has(&a, NL NL));
    client_open(&f, &b);
    client_puts(&f, &b, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 2); /* at a's cost */
    WAIT_FOR(&f, at_eof(&a));

    client_open(&f, &d); /* nobody is idle */
    WAIT_FOR(&f, at_eof(&d));
    assert_string_equal(
        d.got.data, "HTTP/1.1 503 Service Unavailable" NL
                    "Content-Type: application/json" NL "Content-Length: 45" NL
                    "Retry-After: 1" NL "Connection: close" NL NL
                    "{\"error\":\"the server has no connection left\"}");
    assert_int_equal(f.n_gone, 0);
    client_close(&a);
    client_close(&b);
    client_close(&c);
    client_close(&d);
    stop(&f);
}

static void stop_listening_completes_open_exchanges(void **state)
{
    fixture_t f;
    client_t held;
    client_t idle;

    (void)state;
    start(&f, &normal);
    client_open(&f, &held);
    client_puts(&f, &held, HOLD);
    client_open(&f, &idle);
    client_puts(&f, &idle, GET("/empty"));
    WAIT_FOR(&f, has(&idle, NL NL) && (f.n_open == 1));
    bt_net_stop_listening(bt_http_net(f.http));
    WAIT_FOR(&f, at_eof(&idle));
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "done", 4);
    WAIT_FOR(&f, at_eof(&held));
    assert_non_null(strstr(held.got.data, NL "Connection: close" NL));
    assert_non_null(strstr(held.got.data, "done"));
    client_close(&held);
    client_close(&idle);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    stop(&f);
}

static void destroy_reports_open_exchanges(void **state)
{
    fixture_t f;
    client_t c[3];
    const size_t files = n_files();

    (void)state;
    start(&f, &normal);
    for (int i = 0; i < 3; i++) {
        client_open(&f, &c[i]);
        client_puts(&f, &c[i], (i == 2) ? POST_5 : HOLD);
    }
    WAIT_FOR(&f, (f.n_open == 2) &&
                     (bt_net_n_connections(bt_http_net(f.http)) == 3));
    bt_exchange_stream_begin(f.open[1], "text/plain");
    stop(&f);
    assert_int_equal(f.n_gone, 2);
    assert_int_equal(f.n_open, 0);
    for (int i = 0; i < 3; i++) {
        client_close(&c[i]);
    }
    assert_int_equal(n_files(), files);
}

static void address_in_use_is_reported(void **state)
{
    char why[BT_NET_WHY_BYTES];
    fixture_t f;
    uint16_t port = 0;

    (void)state;
    start(&f, &normal);
    assert_int_equal(
        bt_net_listen(bt_http_net(f.http), "127.0.0.1", f.port, &port, why),
        BT_ERR_EXISTS);
    assert_string_equal(why, "Address already in use");
    assert_int_equal(
        bt_net_listen(bt_http_net(f.http), "203.0.113.7", 0, &port, why),
        BT_ERR_NOT_FOUND); /* RFC 5737: nobody's address */
    assert_string_equal(why, "Cannot assign requested address");
    assert_int_equal(port, 0);
    assert_int_equal(
        bt_net_listen(bt_http_net(f.http), "127.0.0.2", 0, &port, why), BT_OK);
    assert_true(port > 0);
    stop(&f);
}

static void create_refuses_invalid_configuration(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone};
    const bt_http_handlers_t none = {.on_request = on_request};
    bt_http_config_t config = normal;
    bt_http_t *http = NULL;

    (void)state;
    assert_int_equal(bt_http_create(NULL, &config, &none, &http),
                     BT_ERR_INVALID_PARAM);
    config.idle_timeout_ms = 0;
    assert_int_equal(bt_http_create(NULL, &config, &handlers, &http),
                     BT_ERR_INVALID_PARAM);
    assert_null(http);
    bt_http_destroy(NULL);
}

static void create_survives_every_failed_allocation(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone};
    struct event_base *base = event_base_new();
    bt_http_t *http = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_http_create(base, &normal, &handlers, &http);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(http);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 5); /* the server, its net, scratch and table of
                               * clients, then success */
    bt_http_destroy(http);
    event_base_free(base);
}

/* Whatever allocation fails, one client loses at most its own request. */
static void serving_survives_every_failed_allocation(void **state)
{
    fixture_t f;
    client_t c;
    const size_t files = n_files();

    (void)state;
    start(&f, &normal);
    for (int nth = 1; nth < 24; nth++) {
        client_open(&f, &c);
        bt_alloc_fail_at(nth);
        client_puts(&f, &c, HOLD POST_CHUNKS "5" NL "hello" NL "0" NL NL);
        WAIT_FOR(&f, (f.n_open == 1) || at_eof(&c));
        if (f.n_open == 1) {
            bt_exchange_t *ex = f.open[0];

            bt_exchange_stream_begin(ex, "text/plain");
            if (bt_exchange_stream_write(ex, "hello", 5)) {
                f.n_open = 0;
                bt_exchange_stream_end(ex, "end", 3);
                WAIT_FOR(&f, has(&c, NL NL "hello") || at_eof(&c));
            }
        }
        bt_alloc_fail_at(0);
        assert_int_equal(f.n_open, 0);
        client_close(&c);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    }
    client_open(&f, &c);
    client_puts(&f, &c, POST_5 "hello");
    WAIT_FOR(&f, has(&c, NL NL "hello"));
    client_close(&c);
    stop(&f);
    assert_int_equal(n_files(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(client_disconnect_is_reported_once),
        BT_TEST(client_disconnect_with_pipelined_requests_is_reported),
        BT_TEST(stalled_reader_is_disconnected_at_buffer_limit),
        BT_TEST(a_piece_over_the_cap_may_be_appended_and_a_reader_be_cut_off),
        BT_TEST(client_disconnect_at_any_byte_is_safe),
        BT_TEST(five_hundred_connections_are_served_at_once),
        BT_TEST(connection_over_limit_closes_longest_idle),
        BT_TEST(stop_listening_completes_open_exchanges),
        BT_TEST(destroy_reports_open_exchanges),
        BT_TEST(address_in_use_is_reported),
        BT_TEST(create_refuses_invalid_configuration),
        BT_TEST(create_survives_every_failed_allocation),
        BT_TEST(serving_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
