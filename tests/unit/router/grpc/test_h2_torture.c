/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 as it must not be spoken: each case, whole and byte by byte, ends the
 * stream or the connection with the code that RFC 9113 names beside it, and
 * takes nothing along. */
#include "tests/unit/router/grpc/h2_fixture.h"

#include <stdio.h>

#include "common/base/status.h"

#define PATH "/a.B/C"

typedef void (*say_fn)(bt_strbuf_t *in);

typedef struct torture {
    const char *name;
    say_fn write;
    int goaway; /* code of the connection's end; -1: it goes on */
    int reset;  /* code with which stream 1 is reset; -1: it is not */
} torture_t;

/* ---- frames of a wrong form ---- */

static void open_and(bt_strbuf_t *in)
{
    put_opening(in);
}

static void headers_before_settings(bt_strbuf_t *in)
{
    bt_strbuf_puts(in, PREFACE);
    put_call(in, 1, PATH, NULL, END_STREAM);
}

static void data_on_stream_0(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_DATA, 0, 0, "abc", 3);
}

static void headers_on_stream_0(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 0, PATH, NULL, END_STREAM);
}

static void headers_on_an_even_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 2, PATH, NULL, END_STREAM);
}

static void headers_on_an_older_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 5, PATH, NULL, 0);
    put_call(in, 3, PATH, NULL, END_STREAM);
}

static void data_on_an_idle_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_DATA, 0, 1, "abc", 3);
}

static void a_frame_over_16_kib(bt_strbuf_t *in)
{
    static const char zeros[16385];

    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_DATA, 0, 1, zeros, sizeof(zeros));
}

static void headers_over_16_kib(bt_strbuf_t *in)
{
    static const char zeros[16385];

    open_and(in);
    put_frame(in, F_HEADERS, END_HEADERS, 1, zeros, sizeof(zeros));
}

static void settings_of_5_bytes(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_SETTINGS, 0, 0, "\0\1\0\0\0", 5);
}

static void settings_ack_with_a_body(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_SETTINGS, ACK, 0, "\0\1\0\0\0\0", 6);
}

static void settings_on_a_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_SETTINGS, 0, 1, "", 0);
}

static void settings_window_too_large(bt_strbuf_t *in)
{
    open_and(in);
    put_settings(in, 4, 0x80000000u);
}

static void settings_frame_size_too_small(bt_strbuf_t *in)
{
    open_and(in);
    put_settings(in, 5, 16383);
}

static void settings_frame_size_too_large(bt_strbuf_t *in)
{
    open_and(in);
    put_settings(in, 5, 1u << 24);
}

static void settings_push_of_2(bt_strbuf_t *in)
{
    open_and(in);
    put_settings(in, 2, 2);
}

static void settings_with_too_many_entries(bt_strbuf_t *in)
{
    static const char zeros[6 * 40];

    open_and(in);
    put_frame(in, F_SETTINGS, 0, 0, zeros, sizeof(zeros));
}

static void ping_of_7_bytes(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_PING, 0, 0, "1234567", 7);
}

static void ping_on_a_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_PING, 0, 1, "12345678", 8);
}

static void window_update_of_0(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_WINDOW_UPDATE, 0, 0, "\0\0\0\0", 4);
}

static void window_update_of_3_bytes(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_WINDOW_UPDATE, 0, 0, "\0\0\1", 3);
}

static void window_update_on_an_idle_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_WINDOW_UPDATE, 0, 1, "\0\0\0\1", 4);
}

static void window_of_the_connection_overflows(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff", 4);
}

static void window_update_of_0_on_a_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_WINDOW_UPDATE, 0, 1, "\0\0\0\0", 4);
}

static void window_of_a_stream_overflows(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_WINDOW_UPDATE, 0, 1, "\x7f\xff\xff\xff", 4);
}

static void reset_of_an_idle_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_RST_STREAM, 0, 1, "\0\0\0\0", 4);
}

static void reset_of_stream_0(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_RST_STREAM, 0, 0, "\0\0\0\0", 4);
}

static void reset_of_3_bytes(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_RST_STREAM, 0, 1, "\0\0\0", 3);
}

static void goaway_on_a_stream(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_GOAWAY, 0, 1, "\0\0\0\0\0\0\0\0", 8);
}

static void push_promise_of_a_client(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_PUSH_PROMISE, END_HEADERS, 1, "\0\0\0\2", 4);
}

static void padding_over_the_frame(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_DATA, PADDED, 1,
              "\x05"
              "abc",
              4);
}

/* ---- heads ---- */

static void garbage_for_hpack(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_HEADERS, END_HEADERS | END_STREAM, 1,
              "\xff\xff\xff\xff\xff\xff\xff", 7);
}

static void index_0_for_hpack(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_HEADERS, END_HEADERS | END_STREAM, 1, "\x80", 1);
}

static void dynamic_table_too_large(bt_strbuf_t *in)
{
    /* 001 11111, then 8192 - 31 */
    open_and(in);
    put_frame(in, F_HEADERS, END_HEADERS | END_STREAM, 1, "\x3f\xe1\x3f", 3);
}

static void bad_huffman(bt_strbuf_t *in)
{
    /* A literal whose name is 30 bits of ones: the end of Huffman's codes. */
    open_and(in);
    put_frame(in, F_HEADERS, END_HEADERS | END_STREAM, 1,
              "\x00\x84\xff\xff\xff\xff\x00", 7);
}

static void continuation_without_headers(bt_strbuf_t *in)
{
    open_and(in);
    put_frame(in, F_CONTINUATION, END_HEADERS, 1, "", 0);
}

static void begin_headers(bt_strbuf_t *in, int flags)
{
    bt_strbuf_t head;

    bt_strbuf_init(&head, 4096);
    put_call_head(&head, PATH, NULL);
    put_frame(in, F_HEADERS, flags, 1, head.data, head.len);
    bt_strbuf_fini(&head);
}

static void a_ping_between_headers(bt_strbuf_t *in)
{
    open_and(in);
    begin_headers(in, 0);
    put_frame(in, F_PING, 0, 0, "12345678", 8);
}

static void continuation_of_another_stream(bt_strbuf_t *in)
{
    open_and(in);
    begin_headers(in, 0);
    put_frame(in, F_CONTINUATION, END_HEADERS, 3, "", 0);
}

static void continuation_flood(bt_strbuf_t *in)
{
    open_and(in);
    begin_headers(in, END_STREAM);
    for (int i = 0; i < 20; i++) {
        put_frame(in, F_CONTINUATION, 0, 1, "", 0);
    }
}

static void head_of(bt_strbuf_t *in, const char *const *fields)
{
    bt_strbuf_t head;

    open_and(in);
    bt_strbuf_init(&head, 4096);
    for (; fields[0] != NULL; fields += 2) {
        put_field(&head, fields[0], fields[1]);
    }
    put_frame(in, F_HEADERS, END_HEADERS | END_STREAM, 1, head.data, head.len);
    bt_strbuf_fini(&head);
}

static void no_path(bt_strbuf_t *in)
{
    head_of(in,
            (const char *const[]){":method", "POST", ":scheme", "http", NULL});
}

static void two_methods(bt_strbuf_t *in)
{
    head_of(in, (const char *const[]){":method", "POST", ":method", "POST",
                                      ":scheme", "http", ":path", PATH, NULL});
}

static void pseudo_field_behind_others(bt_strbuf_t *in)
{
    head_of(in, (const char *const[]){":method", "POST", ":scheme", "http", "a",
                                      "b", ":path", PATH, NULL});
}

static void a_response_s_pseudo_field(bt_strbuf_t *in)
{
    head_of(in, (const char *const[]){":method", "POST", ":scheme", "http",
                                      ":path", PATH, ":status", "200", NULL});
}

static void a_name_in_upper_case(bt_strbuf_t *in)
{
    head_of(in, (const char *const[]){":method", "POST", ":scheme", "http",
                                      ":path", PATH, "Te", "trailers", NULL});
}

static void connection_field(bt_strbuf_t *in)
{
    head_of(in,
            (const char *const[]){":method", "POST", ":scheme", "http", ":path",
                                  PATH, "connection", "close", NULL});
}

static void te_of_gzip(bt_strbuf_t *in)
{
    head_of(in, (const char *const[]){":method", "POST", ":scheme", "http",
                                      ":path", PATH, "te", "gzip", NULL});
}

static void length_without_a_body(bt_strbuf_t *in)
{
    head_of(in,
            (const char *const[]){":method", "POST", ":scheme", "http", ":path",
                                  PATH, "content-length", "5", NULL});
}

static void a_head_over_its_limit(bt_strbuf_t *in)
{
    static char value[121];
    bt_strbuf_t head;

    memset(value, 'v', sizeof(value) - 1);
    open_and(in);
    bt_strbuf_init(&head, 65536);
    put_call_head(&head, PATH, NULL);
    while (head.len < 15000) {
        put_field(&head, "name", value);
    }
    put_frame(in, F_HEADERS, END_STREAM, 1, head.data, head.len);
    bt_strbuf_reset(&head);
    while (head.len < 4000) {
        put_field(&head, "name", value);
    }
    put_frame(in, F_CONTINUATION, END_HEADERS, 1, head.data, head.len);
    bt_strbuf_fini(&head);
}

/* ---- streams ---- */

static void headers_after_the_end(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, END_STREAM);
    put_call(in, 1, PATH, NULL, END_STREAM);
}

static void data_after_the_end(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, END_STREAM);
    put_frame(in, F_DATA, 0, 1, "abc", 3);
}

static void trailers_without_an_end(bt_strbuf_t *in)
{
    open_and(in);
    put_call(in, 1, PATH, NULL, 0);
    put_frame(in, F_HEADERS, END_HEADERS, 1,
              "\x00\x01"
              "a\x01"
              "b",
              5);
}

static const torture_t tortures[] = {
    {"headers before settings", headers_before_settings, PROTOCOL_ERROR, -1},
    {"data on stream 0", data_on_stream_0, PROTOCOL_ERROR, -1},
    {"headers on stream 0", headers_on_stream_0, PROTOCOL_ERROR, -1},
    {"headers on an even stream", headers_on_an_even_stream, PROTOCOL_ERROR,
     -1},
    /* An error for RFC 9113; nghttp2 cannot tell it from a stream that has
     * ended, and ignores it. */
    {"headers on an older stream", headers_on_an_older_stream, -1, -1},
    {"data on an idle stream", data_on_an_idle_stream, PROTOCOL_ERROR, -1},
    {"a frame over 16 KiB", a_frame_over_16_kib, FRAME_SIZE_ERROR, -1},
    {"headers over 16 KiB", headers_over_16_kib, FRAME_SIZE_ERROR, -1},
    {"settings of 5 bytes", settings_of_5_bytes, FRAME_SIZE_ERROR, -1},
    {"settings ack with a body", settings_ack_with_a_body, FRAME_SIZE_ERROR,
     -1},
    {"settings on a stream", settings_on_a_stream, PROTOCOL_ERROR, -1},
    {"settings: window too large", settings_window_too_large,
     FLOW_CONTROL_ERROR, -1},
    {"settings: frame size too small", settings_frame_size_too_small,
     PROTOCOL_ERROR, -1},
    {"settings: frame size too large", settings_frame_size_too_large,
     PROTOCOL_ERROR, -1},
    {"settings: push of 2", settings_push_of_2, PROTOCOL_ERROR, -1},
    {"settings: too many", settings_with_too_many_entries, -2, -1},
    {"ping of 7 bytes", ping_of_7_bytes, FRAME_SIZE_ERROR, -1},
    {"ping on a stream", ping_on_a_stream, PROTOCOL_ERROR, -1},
    {"window update of 0", window_update_of_0, PROTOCOL_ERROR, -1},
    {"window update of 3 bytes", window_update_of_3_bytes, FRAME_SIZE_ERROR,
     -1},
    {"window update on an idle stream", window_update_on_an_idle_stream,
     PROTOCOL_ERROR, -1},
    {"window of the connection overflows", window_of_the_connection_overflows,
     FLOW_CONTROL_ERROR, -1},
    {"window update of 0 on a stream", window_update_of_0_on_a_stream, -2, -2},
    {"window of a stream overflows", window_of_a_stream_overflows, -1,
     FLOW_CONTROL_ERROR},
    {"reset of an idle stream", reset_of_an_idle_stream, PROTOCOL_ERROR, -1},
    {"reset of stream 0", reset_of_stream_0, PROTOCOL_ERROR, -1},
    {"reset of 3 bytes", reset_of_3_bytes, FRAME_SIZE_ERROR, -1},
    {"goaway on a stream", goaway_on_a_stream, PROTOCOL_ERROR, -1},
    {"push promise of a client", push_promise_of_a_client, PROTOCOL_ERROR, -1},
    {"padding over the frame", padding_over_the_frame, PROTOCOL_ERROR, -1},
    {"garbage for HPACK", garbage_for_hpack, COMPRESSION_ERROR, -1},
    {"index 0 for HPACK", index_0_for_hpack, COMPRESSION_ERROR, -1},
    {"dynamic table too large", dynamic_table_too_large, COMPRESSION_ERROR, -1},
    {"bad Huffman", bad_huffman, COMPRESSION_ERROR, -1},
    {"continuation without headers", continuation_without_headers,
     PROTOCOL_ERROR, -1},
    {"a ping between headers", a_ping_between_headers, PROTOCOL_ERROR, -1},
    {"continuation of another stream", continuation_of_another_stream,
     PROTOCOL_ERROR, -1},
    {"continuation flood", continuation_flood, -2, -1},
    {"no path", no_path, -1, PROTOCOL_ERROR},
    {"two methods", two_methods, -1, PROTOCOL_ERROR},
    {"pseudo field behind others", pseudo_field_behind_others, -1,
     PROTOCOL_ERROR},
    {"a response's pseudo field", a_response_s_pseudo_field, -1,
     PROTOCOL_ERROR},
    {"a name in upper case", a_name_in_upper_case, -1, PROTOCOL_ERROR},
    {"connection field", connection_field, -1, PROTOCOL_ERROR},
    {"te of gzip", te_of_gzip, -1, PROTOCOL_ERROR},
    {"length without a body", length_without_a_body, -1, PROTOCOL_ERROR},
    {"a head over its limit", a_head_over_its_limit, -2, -2},
    {"headers after the end", headers_after_the_end, STREAM_CLOSED, -1},
    {"data after the end", data_after_the_end, STREAM_CLOSED, -1},
    {"trailers without an end", trailers_without_an_end, -2, -2},
};

/* -2: any code, on the connection or on the stream, or the feed fails. */
static void judge(const torture_t *t, const session_t *s, bt_status_t status)
{
    const int goaway = goaway_code(&s->out);
    const int reset = reset_code(&s->out, 1);

    if (t->goaway == -2) {
        if ((goaway <= 0) && (reset < 0) && (status == BT_OK)) {
            fail_msg("%s: nothing happened", t->name);
        }
        return;
    }
    if (goaway != t->goaway) {
        fail_msg("%s: goaway %d, not %d", t->name, goaway, t->goaway);
    }
    if ((t->goaway == -1) && (reset != t->reset)) {
        fail_msg("%s: reset %d, not %d", t->name, reset, t->reset);
    }
    if ((t->goaway >= 0) && (status == BT_OK) && !bt_h2_is_over(s->h2)) {
        fail_msg("%s: the connection goes on", t->name);
    }
}

static void protocol_errors_end_with_their_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(tortures); i++) {
        for (int slowly = 0; slowly < 2; slowly++) {
            session_t s;

            session_open(&s);
            s.answers = false;
            tortures[i].write(&s.in);
            judge(&tortures[i], &s, slowly ? say_slowly(&s, 1) : say(&s));
            session_close(&s);
        }
    }
}

static void bytes_that_are_no_http2_are_refused_at_once(void **state)
{
    static const char *const words[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a handshake of TLS",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        session_t s;

        session_open(&s);
        bt_strbuf_puts(&s.in, words[i]);
        assert_int_equal(say(&s), BT_ERR_BAD_MESSAGE);
        /* And once more: it stays so. */
        put_opening(&s.in);
        assert_int_equal(say(&s), BT_ERR_BAD_MESSAGE);
        session_close(&s);
    }
}

/* ---- floods ---- */

static void flood(bt_strbuf_t *in, int type, int flags, uint32_t stream,
                  const char *data, size_t bytes, int n)
{
    for (int i = 0; i < n; i++) {
        put_frame(in, type, flags, stream, data, bytes);
    }
}

static void frames_without_data_are_limited(void **state)
{
    static const struct {
        int type, flags;
        uint32_t stream;
        const char *data;
        size_t bytes;
    } floods[] = {
        {F_PING, 0, 0, "12345678", 8}, {F_PING, ACK, 0, "12345678", 8},
        {F_SETTINGS, 0, 0, "", 0},     {F_PRIORITY, 0, 1, "\0\0\0\0\x10", 5},
        {F_DATA, 0, 1, "", 0},         {F_WINDOW_UPDATE, 0, 1, "\0\0\0\1", 4},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(floods); i++) {
        session_t s;

        session_open(&s);
        put_opening(&s.in);
        put_call(&s.in, 1, PATH, NULL, 0);
        flood(&s.in, floods[i].type, floods[i].flags, floods[i].stream,
              floods[i].data, floods[i].bytes, BT_H2_IDLE_FRAMES - 10);
        assert_int_equal(say(&s), BT_OK);
        assert_int_equal(goaway_code(&s.out), -1);
        /* A second later there may be some more, then it is enough. */
        s.now_ms += 1000;
        flood(&s.in, floods[i].type, floods[i].flags, floods[i].stream,
              floods[i].data, floods[i].bytes, BT_H2_IDLE_FRAMES_S);
        assert_int_equal(say(&s), BT_OK);
        flood(&s.in, floods[i].type, floods[i].flags, floods[i].stream,
              floods[i].data, floods[i].bytes, 20);
        if (say(&s) != BT_ERR_BAD_MESSAGE) {
            fail_msg("a flood of type %d goes on", floods[i].type);
        }
        assert_int_equal(goaway_code(&s.out), ENHANCE_YOUR_CALM);
        session_close(&s);
    }
}

static void repeated_resets_end_the_connection(void **state)
{
    session_t s;
    uint32_t id = 1;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    for (; id < 2 * BT_H2_RESETS + 1; id += 2) {
        put_call(&s.in, id, PATH, NULL, 0);
        put_frame(&s.in, F_RST_STREAM, 0, id, "\0\0\0\x08", 4);
    }
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(goaway_code(&s.out), -1);
    for (int i = 0; i < 300; i++, id += 2) {
        put_call(&s.in, id, PATH, NULL, 0);
        put_frame(&s.in, F_RST_STREAM, 0, id, "\0\0\0\x08", 4);
    }
    (void)say(&s);
    assert_true(goaway_code(&s.out) > 0);
    assert_true(bt_h2_is_over(s.h2));
    session_close(&s);
}

static void streams_above_the_limit_are_refused(void **state)
{
    session_t s;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_frame(&s.in, F_SETTINGS, ACK, 0, "", 0); /* it knows the number */
    for (uint32_t id = 1; id <= 2 * MAX_STREAMS + 1; id += 2) {
        put_call(&s.in, id, PATH, NULL, 0);
    }
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.n_requests, MAX_STREAMS);
    assert_true((reset_code(&s.out, 2 * MAX_STREAMS + 1) == REFUSED_STREAM) ||
                (goaway_code(&s.out) == PROTOCOL_ERROR));
    session_close(&s);
}

/* The dynamic table of HPACK is 4096 bytes: what a client puts there over and
 * over takes no more. */
static void connection_memory_is_bounded(void **state)
{
    session_t s;
    size_t most = 0;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    for (uint32_t i = 0; i < 2000; i++) {
        bt_strbuf_t head;
        char value[100];

        snprintf(value, sizeof(value), "%090u", i);
        bt_strbuf_init(&head, 4096);
        put_call_head(&head, PATH, NULL);
        bt_strbuf_append(&head,
                         "\x40\x01"
                         "a\x5a",
                         4); /* to be indexed */
        bt_strbuf_append(&head, value, 90);
        put_frame(&s.in, F_HEADERS, END_HEADERS | END_STREAM, 2 * i + 1,
                  head.data, head.len);
        bt_strbuf_fini(&head);
        assert_int_equal(say(&s), BT_OK);
        most =
            (bt_h2_state(s.h2).bytes > most) ? bt_h2_state(s.h2).bytes : most;
    }
    assert_int_equal(s.n_closed, 2000);
    assert_true(most < 64 * 1024);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(protocol_errors_end_with_their_code),
        BT_TEST(bytes_that_are_no_http2_are_refused_at_once),
        BT_TEST(frames_without_data_are_limited),
        BT_TEST(repeated_resets_end_the_connection),
        BT_TEST(streams_above_the_limit_are_refused),
        BT_TEST(connection_memory_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
