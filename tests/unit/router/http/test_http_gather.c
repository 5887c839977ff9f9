/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of streams that wait for the end of the loop's turn. */
#include "tests/unit/router/http/http_fixture.h"

static void open_stream(fixture_t *f, client_t *c)
{
    start_with(f, &normal, true);
    client_open(f, c);
    client_puts(f, c, HOLD);
    WAIT_FOR(f, f->n_open == 1);
    bt_exchange_stream_begin(f->open[0], "text/event-stream");
}

static void pieces_of_one_turn_are_gathered_in_one_write(void **state)
{
    char data[512] = "";
    fixture_t f;
    client_t c;

    (void)state;
    open_stream(&f, &c);
    assert_int_equal(f.n_gathered, 1); /* the head waits, too */
    for (int i = 0; i < 3; i++) {
        assert_true(bt_exchange_stream_write(f.open[0], "data: {}\n\n", 10));
    }
    assert_int_equal(f.n_gathered, 1); /* said once */
    assert_true(recv(c.fd, data, sizeof(data), MSG_DONTWAIT) < 0);
    bt_net_flush(bt_http_net(f.http));
    assert_true(recv(c.fd, data, sizeof(data) - 1, 0) > 3 * 15);
    assert_non_null(strstr(data,
                           NL NL "a" NL "data: {}\n\n" NL "a" NL
                                 "data: {}\n\n" NL "a" NL "data: {}\n\n" NL));
    assert_true(bt_exchange_stream_write(f.open[0], "x", 1));
    assert_int_equal(f.n_gathered, 2); /* of the next turn */
    bt_net_flush(bt_http_net(f.http));
    bt_net_flush(bt_http_net(f.http));
    memset(data, 0, sizeof(data));
    assert_int_equal(recv(c.fd, data, sizeof(data), 0), 6);
    assert_string_equal(data, "1" NL "x" NL);
    bt_exchange_stream_end(take_open(&f, 0), NULL, 0);
    client_close(&c);
    stop(&f);
}

/* The last piece takes with it what has gathered. */
static void stream_end_is_sent_at_once(void **state)
{
    char data[512] = "";
    fixture_t f;
    client_t c;

    (void)state;
    open_stream(&f, &c);
    assert_true(bt_exchange_stream_write(f.open[0], "one", 3));
    bt_exchange_stream_end(take_open(&f, 0), "two", 3);
    assert_true(recv(c.fd, data, sizeof(data) - 1, 0) > 0);
    assert_non_null(
        strstr(data, NL NL "3" NL "one" NL "3" NL "two" NL "0" NL NL));
    bt_net_flush(bt_http_net(f.http)); /* nothing is left of it */
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, "204 No Content"));
    client_close(&c);
    stop(&f);
}

static void client_disconnect_before_flush_is_safe(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    open_stream(&f, &c);
    assert_true(bt_exchange_stream_write(f.open[0], "one", 3));
    client_close(&c);
    WAIT_FOR(&f, f.n_gone == 1);
    bt_net_flush(bt_http_net(f.http));
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 0);
    stop(&f);
}

/* Gathered bytes count as unread beyond the limit. */
static void reader_over_buffer_limit_is_disconnected(void **state)
{
    static const char chunk[65536];
    fixture_t f;
    client_t c;

    (void)state;
    open_stream(&f, &c);
    for (int i = 0; f.n_gone == 0; i++) {
        assert_true(i < 10000);
        if (bt_exchange_stream_write(f.open[0], chunk, sizeof(chunk)) &&
            (i % 3 == 0)) {
            bt_net_flush(bt_http_net(f.http));
        }
    }
    client_close(&c);
    stop(&f);
}

/* Two servers at one port: each connection is one's of them. */
static void servers_share_port_with_reuse_option(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone};
    bt_http_config_t config = normal;
    char why[BT_NET_WHY_BYTES];
    bt_http_handlers_t mine;
    uint32_t n[2] = {0, 0};
    fixture_t f[2];
    uint16_t port;

    (void)state;
    start(&f[0], &normal); /* one that does not share keeps its port */
    config.shares_ports = true;
    start(&f[1], &config);
    port = f[0].port;
    assert_int_equal(
        bt_net_listen(bt_http_net(f[1].http), "127.0.0.1", port, &port, why),
        BT_ERR_EXISTS);
    stop(&f[0]);

    memset(&f[0], 0, sizeof(f[0]));
    f[0].base = f[1].base;
    mine = handlers;
    mine.ctx = &f[0];
    assert_int_equal(bt_http_create(f[1].base, &config, &mine, &f[0].http),
                     BT_OK);
    port = f[1].port;
    assert_int_equal(
        bt_net_listen(bt_http_net(f[0].http), "127.0.0.1", port, &port, why),
        BT_OK);
    while ((n[0] == 0) || (n[1] == 0)) {
        client_t c;

        assert_true(n[0] + n[1] < 1000); /* 2 to the power of -999 */
        client_open(&f[1], &c);
        client_puts(&f[1], &c, GET("/empty"));
        WAIT_FOR(&f[1], has(&c, "204 No Content"));
        client_close(&c);
        n[0] = f[0].n_requests;
        n[1] = f[1].n_requests;
    }
    bt_http_destroy(f[0].http);
    stop(&f[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pieces_of_one_turn_are_gathered_in_one_write),
        BT_TEST(stream_end_is_sent_at_once),
        BT_TEST(client_disconnect_before_flush_is_safe),
        BT_TEST(reader_over_buffer_limit_is_disconnected),
        BT_TEST(servers_share_port_with_reuse_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
