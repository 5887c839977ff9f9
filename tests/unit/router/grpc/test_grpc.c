/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over real sockets. */
#include <errno.h>

#include "tests/unit/router/grpc/grpc_fixture.h"

static void begin(fixture_t *f)
{
    fixture_start(f, &usual);
    put_opening(&f->in);
}

static void unary_call_is_answered(void **state)
{
    fixture_t f;
    frame_t data = {0};

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Echo", NULL, 0);
    put_message(&f.in, 1, "hello", 5, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 1 && count_frames(&f.out, F_HEADERS, 1) == 2);
    assert_int_equal(f.code, BT_GRPC_OK);
    assert_true(find_frame(&f.out, F_DATA, 1, 0, &data));
    assert_int_equal(data.bytes, 10);
    assert_memory_equal(data.data, "\0\0\0\0\5hello", 10);
    fixture_stop(&f);
}

static void stream_answers_each_message(void **state)
{
    fixture_t f;

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Stream", NULL, 0);
    for (int i = 0; i < 100; i++) {
        put_message(&f.in, 1, "m", 1, 0);
    }
    WAIT_FOR(&f, f.out.len > 100 * 6);
    assert_int_equal(f.n_ended, 0);
    put_frame(&f.in, F_DATA, END_STREAM, 1, "", 0);
    WAIT_FOR(&f, f.n_ended == 1);
    assert_int_equal(f.code, BT_GRPC_OK);
    assert_int_equal(f.n_gone, 0);
    fixture_stop(&f);
}

/* One call for each way of being wrong; the connection goes on. */
static void malformed_calls_get_their_codes(void **state)
{
    static const char *const deflate[] = {"grpc-encoding", "deflate", NULL};
    static const char *const timeout[] = {"grpc-timeout", "soon", NULL};
    fixture_t f;
    int n = 0;
    uint32_t id = 1;

    (void)state;
    begin(&f);
#define EXPECT(expected)                      \
    do {                                      \
        n++;                                  \
        id += 2;                              \
        WAIT_FOR(&f, f.n_ended == n);         \
        assert_int_equal(f.code, (expected)); \
    } while (0)
    put_call(&f.in, id, "/t.S/None", NULL, END_STREAM);
    EXPECT(BT_GRPC_UNIMPLEMENTED);
    put_call(&f.in, id, "/t.S/Echo", deflate, END_STREAM);
    EXPECT(BT_GRPC_UNIMPLEMENTED);
    put_call(&f.in, id, "/t.S/Echo", timeout, END_STREAM);
    EXPECT(BT_GRPC_INVALID_ARGUMENT);
    put_call(&f.in, id, "/t.S/Echo", NULL, END_STREAM); /* no message */
    EXPECT(BT_GRPC_INVALID_ARGUMENT);
    put_call(&f.in, id, "/t.S/Echo", NULL, 0); /* two */
    put_message(&f.in, id, "a", 1, 0);
    put_message(&f.in, id, "b", 1, END_STREAM);
    EXPECT(BT_GRPC_INVALID_ARGUMENT);
    put_call(&f.in, id, "/t.S/Echo", NULL, 0); /* half of one */
    put_frame(&f.in, F_DATA, END_STREAM, id, "\0\0\0\0\5he", 7);
    EXPECT(BT_GRPC_INVALID_ARGUMENT);
    put_call(&f.in, id, "/t.S/Echo", NULL, 0); /* a prefix of 2 */
    put_frame(&f.in, F_DATA, END_STREAM, id, "\2\0\0\0\0", 5);
    EXPECT(BT_GRPC_INTERNAL);
    put_call(&f.in, id, "/t.S/Echo", NULL, 0); /* 1 MiB and a byte */
    put_frame(&f.in, F_DATA, 0, id, "\0\0\x10\0\1", 5);
    EXPECT(BT_GRPC_RESOURCE_EXHAUSTED);
    put_call(&f.in, id, "/t.S/Hold", NULL, 0); /* over the method's own */
    put_frame(&f.in, F_DATA, 0, id, "\0\0\0\0\x65", 5);
    EXPECT(BT_GRPC_RESOURCE_EXHAUSTED);
#undef EXPECT
    put_call(&f.in, id, "/t.S/Echo", NULL, 0);
    put_message(&f.in, id, "hello", 5, END_STREAM);
    WAIT_FOR(&f, came(&f, "hello", 5));
    fixture_stop(&f);
}

/* Also one of a method that there is not: who may not call learns nothing. */
static void denied_call_leaves_the_connection_open(void **state)
{
    static const char *const page[] = {"origin", "https://evil.example", NULL};
    static const char *const host[] = {"host", "evil.example", NULL};
    fixture_t f;

    (void)state;
    begin(&f);
    put_call_to(&f.in, 1, "evil.example", "/t.S/Echo", NULL, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 1);
    assert_int_equal(f.code, BT_GRPC_PERMISSION_DENIED);
    put_call_to(&f.in, 3, "evil.example", "/t.S/None", NULL, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 2);
    assert_int_equal(f.code, BT_GRPC_PERMISSION_DENIED);
    put_call(&f.in, 5, "/t.S/Echo", page, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 3);
    assert_int_equal(f.code, BT_GRPC_PERMISSION_DENIED);
    put_call_to(&f.in, 7, NULL, "/t.S/Echo", host, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 4);
    assert_int_equal(f.code, BT_GRPC_PERMISSION_DENIED);
    assert_int_equal(f.n_unnamed, 0);
    put_call(&f.in, 9, "/t.S/Echo", NULL, 0);
    put_message(&f.in, 9, "hello", 5, END_STREAM);
    WAIT_FOR(&f, came(&f, "hello", 5));
    fixture_stop(&f);
}

static void non_grpc_requests_get_an_http_status(void **state)
{
    bt_strbuf_t head;
    fixture_t f;
    frame_t first = {0};

    (void)state;
    begin(&f);
    bt_strbuf_init(&head, 1000);
    put_field(&head, ":method", "GET");
    put_field(&head, ":scheme", "http");
    put_field(&head, ":path", "/t.S/Echo");
    put_field(&head, ":authority", "localhost");
    put_frame(&f.in, F_HEADERS, END_HEADERS | END_STREAM, 1, head.data,
              head.len);
    bt_strbuf_fini(&head);
    WAIT_FOR(&f, find_frame(&f.out, F_HEADERS, 1, 0, &first));
    assert_int_equal(first.flags & END_STREAM, END_STREAM);
    assert_int_equal(f.n_ended, 0);
    fixture_stop(&f);
}

static void client_leaving_is_reported_to_the_method(void **state)
{
    fixture_t f;

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Hold", NULL, 0);
    put_message(&f.in, 1, "a", 1, END_STREAM);
    WAIT_FOR(&f, f.held != NULL);
    put_frame(&f.in, F_RST_STREAM, 0, 1, "\0\0\0\x08", 4);
    WAIT_FOR(&f, f.n_gone == 1);
    assert_int_equal(f.code, BT_GRPC_CANCELLED);
    put_call(&f.in, 3, "/t.S/Hold", NULL, 0);
    put_message(&f.in, 3, "a", 1, END_STREAM);
    WAIT_FOR(&f, f.held != NULL);
    shutdown(f.fd, SHUT_WR);
    WAIT_FOR(&f, f.n_gone == 2);
    WAIT_FOR(&f, bt_net_n_connections(bt_grpc_net(f.grpc)) == 0);
    fixture_stop(&f);
}

static void deadline_ends_the_call(void **state)
{
    static const char *const soon[] = {"grpc-timeout", "50m", NULL};
    fixture_t f;

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Hold", soon, 0);
    put_message(&f.in, 1, "a", 1, END_STREAM);
    WAIT_FOR(&f, f.n_ended == 1);
    assert_int_equal(f.code, BT_GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(f.n_gone, 1);
    fixture_stop(&f);
}

static void slow_client_is_timed_out(void **state)
{
    bt_grpc_config_t config = usual;
    fixture_t f;

    (void)state;
    config.header_timeout_ms = 100;
    fixture_start(&f, &config); /* says nothing */
    WAIT_FOR(&f, f.eof);
    close(f.fd);
    client_connect(&f); /* a head without an end */
    put_opening(&f.in);
    put_frame(&f.in, F_HEADERS, 0, 1, "\x83", 1);
    WAIT_FOR(&f, f.eof);
    assert_int_equal(goaway_code(&f.out), ENHANCE_YOUR_CALM);
    fixture_stop(&f);

    config = usual;
    config.body_timeout_ms = 100;
    fixture_start(&f, &config);
    put_opening(&f.in);
    put_call(&f.in, 1, "/t.S/Echo", NULL, 0);
    put_frame(&f.in, F_DATA, 0, 1, "\0\0", 2);
    WAIT_FOR(&f, f.n_ended == 1);
    assert_int_equal(f.code, BT_GRPC_DEADLINE_EXCEEDED);
    fixture_stop(&f);
}

static void idle_connection_gets_goaway(void **state)
{
    bt_grpc_config_t config = usual;
    fixture_t f;

    (void)state;
    config.idle_timeout_ms = 100;
    fixture_start(&f, &config);
    put_opening(&f.in);
    put_call(&f.in, 1, "/t.S/Echo", NULL, 0);
    put_message(&f.in, 1, "hello", 5, END_STREAM);
    WAIT_FOR(&f, f.eof);
    assert_int_equal(f.n_ended, 1);
    assert_int_equal(goaway_code(&f.out), NO_ERROR);
    fixture_stop(&f);
}

static void client_that_does_not_read_is_reset(void **state)
{
    static char large[4000];
    fixture_t f;

    (void)state;
    begin(&f);
    put_settings(&f.in, 4, 0); /* no window for our bodies */
    put_call(&f.in, 1, "/t.S/Stream", NULL, 0);
    for (int i = 0; i < 40; i++) {
        put_message(&f.in, 1, large, sizeof(large), 0);
    }
    WAIT_FOR(&f, reset_code(&f.out, 1) == ENHANCE_YOUR_CALM);
    assert_int_equal(f.n_gone, 1);
    assert_int_equal(f.code, BT_GRPC_RESOURCE_EXHAUSTED);
    put_call(&f.in, 3, "/t.S/Hold", NULL, 0); /* others go on */
    put_message(&f.in, 3, "a", 1, END_STREAM);
    WAIT_FOR(&f, f.held != NULL);
    fixture_stop(&f);
}

static void drain_lets_open_calls_end(void **state)
{
    fixture_t f;

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Hold", NULL, 0);
    put_message(&f.in, 1, "a", 1, END_STREAM);
    WAIT_FOR(&f, f.held != NULL);
    bt_net_stop_listening(bt_grpc_net(f.grpc));
    WAIT_FOR(&f, count_frames(&f.out, F_GOAWAY, 0) == 2);
    assert_false(f.eof);
    bt_gcall_end(f.held, BT_GRPC_OK, NULL);
    WAIT_FOR(&f, f.eof);
    assert_int_equal(count_frames(&f.out, F_HEADERS, 1), 1);
    fixture_stop(&f);
}

/* What was charged for requests is given back. */
static void no_memory_stays_charged(void **state)
{
    bt_net_use_t use = {0};
    fixture_t f;

    (void)state;
    begin(&f);
    put_call(&f.in, 1, "/t.S/Stream", NULL, 0);
    put_message(&f.in, 1, "abc", 3, 0);
    put_frame(&f.in, F_DATA, 0, 1, "\0\0\0\x10\0abc", 8);
    WAIT_FOR(&f, came(&f, "abc", 3));
    bt_net_use(bt_grpc_net(f.grpc), &use);
    assert_true(use.request_bytes > 0);
    close(f.fd);
    WAIT_FOR(&f, bt_net_n_connections(bt_grpc_net(f.grpc)) == 0);
    bt_net_use(bt_grpc_net(f.grpc), &use);
    assert_int_equal(use.request_bytes, 0);
    assert_int_equal(use.answer_bytes, 0);
    f.fd = -1;
    fixture_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unary_call_is_answered),
        BT_TEST(stream_answers_each_message),
        BT_TEST(malformed_calls_get_their_codes),
        BT_TEST(denied_call_leaves_the_connection_open),
        BT_TEST(non_grpc_requests_get_an_http_status),
        BT_TEST(client_leaving_is_reported_to_the_method),
        BT_TEST(deadline_ends_the_call),
        BT_TEST(slow_client_is_timed_out),
        BT_TEST(idle_connection_gets_goaway),
        BT_TEST(client_that_does_not_read_is_reset),
        BT_TEST(drain_lets_open_calls_end),
        BT_TEST(no_memory_stays_charged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
