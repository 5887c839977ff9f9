/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of streams that wait for the end of the loop's turn. */
#include "tests/unit/router/http_fixture.h"

static void open_stream(fixture_t *f, client_t *c)
{
    start_with(f, &normal, true);
    client_open(f, c);
    client_puts(f, c, HOLD);
    WAIT_FOR(f, f->n_open == 1);
    bt_exchange_stream_begin(f->open[0], "text/event-stream");
}

static void pieces_of_a_turn_leave_in_one_write(void **state)
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
    bt_http_flush(f.http);
    assert_true(recv(c.fd, data, sizeof(data) - 1, 0) > 3 * 15);
    assert_non_null(strstr(data,
                           NL NL "a" NL "data: {}\n\n" NL "a" NL
                                 "data: {}\n\n" NL "a" NL "data: {}\n\n" NL));
    assert_true(bt_exchange_stream_write(f.open[0], "x", 1));
    assert_int_equal(f.n_gathered, 2); /* of the next turn */
    bt_http_flush(f.http);
    bt_http_flush(f.http);
    memset(data, 0, sizeof(data));
    assert_int_equal(recv(c.fd, data, sizeof(data), 0), 6);
    assert_string_equal(data, "1" NL "x" NL);
    bt_exchange_stream_end(take_open(&f, 0), NULL, 0);
    client_close(&c);
    stop(&f);
}

/* The last piece takes with it what has gathered. */
static void an_end_does_not_wait(void **state)
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
    bt_http_flush(f.http); /* nothing is left of it */
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, "204 No Content"));
    client_close(&c);
    stop(&f);
}

static void who_leaves_before_the_end_of_the_turn_is_forgotten(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    open_stream(&f, &c);
    assert_true(bt_exchange_stream_write(f.open[0], "one", 3));
    client_close(&c);
    WAIT_FOR(&f, f.n_gone == 1);
    bt_http_flush(f.http);
    assert_int_equal(bt_http_n_connections(f.http), 0);
    stop(&f);
}

/* What has gathered counts as unread once it is too much. */
static void who_does_not_read_is_dropped(void **state)
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
            bt_http_flush(f.http);
        }
    }
    client_close(&c);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pieces_of_a_turn_leave_in_one_write),
        BT_TEST(an_end_does_not_wait),
        BT_TEST(who_leaves_before_the_end_of_the_turn_is_forgotten),
        BT_TEST(who_does_not_read_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
