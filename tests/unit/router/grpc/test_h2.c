/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 as it should be spoken. */
#include "tests/unit/router/grpc/h2_fixture.h"

#include "common/base/alloc.h"

#define PATH "/a.B/C"

static void request_is_delivered_and_answered(void **state)
{
    session_t s;
    frame_t f = {0};

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, (const char *const[]){"x-a", "b", NULL}, 0);
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.n_requests, 1);
    assert_int_equal(s.n_ends, 0);
    assert_string_equal(bt_h2_field(s.last, ":path"), PATH);
    assert_string_equal(bt_h2_field(s.last, "x-a"), "b");
    assert_null(bt_h2_field(s.last, "x-b"));
    put_frame(&s.in, F_DATA, END_STREAM, 1, "body", 4);
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.data_bytes, 4);
    assert_int_equal(s.n_closed, 1);
    assert_int_equal(count_frames(&s.out, F_HEADERS, 1), 2);
    assert_true(find_frame(&s.out, F_DATA, 1, 0, &f));
    assert_int_equal(f.bytes, 6);
    assert_memory_equal(f.data, "answer", 6);
    assert_true(find_frame(&s.out, F_HEADERS, 1, 1, &f)); /* trailers */
    assert_int_equal(f.flags, END_HEADERS | END_STREAM);
    assert_int_equal(goaway_code(&s.out), -1);
    session_close(&s);
}

static void bytes_fed_one_by_one_give_equal_results(void **state)
{
    session_t s;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, 0);
    put_frame(&s.in, F_DATA, PADDED | END_STREAM, 1,
              "\x02"
              "body\0\0",
              7);
    put_frame(&s.in, F_PING, 0, 0, "12345678", 8);
    assert_int_equal(say_slowly(&s, 1), BT_OK);
    assert_int_equal(s.data_bytes, 4);
    assert_int_equal(s.n_closed, 1);
    session_close(&s);
}

static void settings_and_pings_are_acknowledged(void **state)
{
    session_t s;
    frame_t f = {0};

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_frame(&s.in, F_PING, 0, 0, "abcdefgh", 8);
    assert_int_equal(say(&s), BT_OK);
    assert_true(bt_h2_state(s.h2).is_open);
    assert_true(find_frame(&s.out, F_SETTINGS, 0, 0, &f));
    assert_int_equal(f.flags, 0);
    /* MAX_CONCURRENT_STREAMS comes first. */
    assert_memory_equal(f.data, "\0\3\0\0\0\4", 6);
    assert_true(find_frame(&s.out, F_SETTINGS, 0, 1, &f));
    assert_int_equal(f.flags, ACK);
    assert_true(find_frame(&s.out, F_PING, 0, 0, &f));
    assert_int_equal(f.flags, ACK);
    assert_memory_equal(f.data, "abcdefgh", 8);
    session_close(&s);
}

static void answer_waits_for_the_flow_control_window(void **state)
{
    session_t s;
    frame_t f = {0};

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_settings(&s.in, 4, 4); /* INITIAL_WINDOW_SIZE */
    put_call(&s.in, 1, PATH, NULL, END_STREAM);
    assert_int_equal(say(&s), BT_OK);
    assert_true(find_frame(&s.out, F_DATA, 1, 0, &f));
    assert_int_equal(f.bytes, 4);
    assert_false(find_frame(&s.out, F_DATA, 1, 1, &f));
    assert_int_equal(bt_h2_unsent(s.last), 2);
    assert_true(bt_h2_state(s.h2).out_bytes > 0);
    put_frame(&s.in, F_WINDOW_UPDATE, 0, 1, "\0\0\0\1", 4);
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(bt_h2_unsent(s.last), 1);
    put_frame(&s.in, F_WINDOW_UPDATE, 0, 1, "\0\0\0\1", 4);
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.n_closed, 1);
    assert_int_equal(bt_h2_state(s.h2).out_bytes, 0);
    session_close(&s);
}

static void reading_reopens_the_window(void **state)
{
    static const char piece[16384];
    session_t s;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, 0);
    for (int i = 0; i < 400; i++) { /* 6.5 MB through a window of 1 MiB */
        put_frame(&s.in, F_DATA, 0, 1, piece, sizeof(piece));
    }
    assert_int_equal(say_slowly(&s, 9 + sizeof(piece)), BT_OK);
    assert_int_equal(s.data_bytes, 400 * sizeof(piece));
    assert_true(count_frames(&s.out, F_WINDOW_UPDATE, 1) >= 6);
    assert_true(count_frames(&s.out, F_WINDOW_UPDATE, 0) >= 1);
    session_close(&s);
}

static void written_pieces_are_sent_at_once(void **state)
{
    const bt_h2_field_t head[] = {{":status", "200"}};
    const bt_h2_field_t trailers[] = {{"grpc-status", "0"},
                                      {"grpc-message", "x"}};
    session_t s;

    (void)state;
    session_open(&s);
    s.answers = false;
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, END_STREAM);
    assert_int_equal(say(&s), BT_OK);
    bt_h2_respond(s.last, head, 1, false);
    assert_int_equal(pull(&s), BT_OK);
    assert_int_equal(count_frames(&s.out, F_HEADERS, 1), 1);
    for (int i = 1; i <= 3; i++) {
        bt_h2_write(s.last, "piece", 5);
        assert_int_equal(pull(&s), BT_OK);
        assert_int_equal(count_frames(&s.out, F_DATA, 1), i);
    }
    bt_h2_finish(s.last, trailers, 2);
    assert_int_equal(pull(&s), BT_OK);
    assert_null(s.last);
    assert_int_equal(s.n_closed, 1);
    session_close(&s);
}

static void early_answer_stops_the_client(void **state)
{
    const bt_h2_field_t head[] = {{":status", "200"}};
    session_t s;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, 0);
    assert_int_equal(say(&s), BT_OK);
    bt_h2_respond(s.last, head, 1, true);
    assert_int_equal(pull(&s), BT_OK);
    assert_int_equal(reset_code(&s.out, 1), NO_ERROR);
    assert_int_equal(s.n_closed, 1);
    session_close(&s);
}

static void reset_from_either_side_closes_the_stream(void **state)
{
    session_t s;

    (void)state;
    session_open(&s);
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, 0);
    put_frame(&s.in, F_RST_STREAM, 0, 1, "\0\0\0\x08", 4);
    put_call(&s.in, 3, PATH, NULL, 0);
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.n_closed, 1);
    bt_h2_reset(s.last, BT_H2_ENHANCE_YOUR_CALM);
    assert_int_equal(pull(&s), BT_OK);
    assert_int_equal(s.n_closed, 2);
    assert_int_equal(reset_code(&s.out, 3), ENHANCE_YOUR_CALM);
    session_close(&s);
}

static void shutdown_takes_two_steps(void **state)
{
    session_t s;
    frame_t f = {0};

    (void)state;
    session_open(&s);
    s.answers = false;
    put_opening(&s.in);
    put_call(&s.in, 1, PATH, NULL, END_STREAM);
    assert_int_equal(say(&s), BT_OK);
    bt_h2_announce_end(s.h2);
    assert_int_equal(pull(&s), BT_OK);
    assert_true(find_frame(&s.out, F_GOAWAY, 0, 0, &f));
    assert_int_equal(get_u32(f.data), 0x7fffffff);
    put_call(&s.in, 3, PATH, NULL, END_STREAM); /* was on its way */
    assert_int_equal(say(&s), BT_OK);
    assert_int_equal(s.n_requests, 2);
    bt_h2_refuse_more(s.h2);
    assert_int_equal(pull(&s), BT_OK);
    assert_true(find_frame(&s.out, F_GOAWAY, 0, 1, &f));
    assert_int_equal(get_u32(f.data), 3);
    put_call(&s.in, 5, PATH, NULL, END_STREAM);
    (void)say(&s);
    assert_int_equal(s.n_requests, 2);
    assert_false(bt_h2_is_over(s.h2));
    bt_h2_reset(s.last, BT_H2_CANCEL);
    assert_int_equal(pull(&s), BT_OK);
    assert_false(bt_h2_is_over(s.h2)); /* the first one runs yet */
    session_close(&s);
}

/* A whole exchange in which one allocation fails, each in turn. */
static void short_memory_ends_streams_without_leaks(void **state)
{
    bool whole = false;

    (void)state;
    for (int nth = 1; !whole; nth++) {
        session_t s;
        bool opened;

        assert_true(nth < 2000);
        bt_alloc_fail_at(nth);
        opened = try_open(&s);
        if (opened) {
            put_opening(&s.in);
            put_call(&s.in, 1, PATH, NULL, 0);
            put_frame(&s.in, F_DATA, END_STREAM, 1, "body", 4);
            put_call(&s.in, 3, PATH, NULL, END_STREAM);
            if (bt_strbuf_status(&s.in) == BT_OK) {
                whole = (say_slowly(&s, 50) == BT_OK) && (s.n_closed == 2) &&
                        (count_frames(&s.out, F_DATA, 1) == 1) &&
                        (count_frames(&s.out, F_DATA, 3) == 1);
            }
        }
        bt_alloc_fail_at(0);
        if (opened) {
            bt_h2_destroy(s.h2);
            assert_int_equal(s.n_requests, s.n_closed);
        }
        bt_strbuf_fini(&s.in);
        bt_strbuf_fini(&s.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_is_delivered_and_answered),
        BT_TEST(bytes_fed_one_by_one_give_equal_results),
        BT_TEST(settings_and_pings_are_acknowledged),
        BT_TEST(answer_waits_for_the_flow_control_window),
        BT_TEST(reading_reopens_the_window),
        BT_TEST(written_pieces_are_sent_at_once),
        BT_TEST(early_answer_stops_the_client),
        BT_TEST(reset_from_either_side_closes_the_stream),
        BT_TEST(shutdown_takes_two_steps),
        BT_TEST(short_memory_ends_streams_without_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
