/* SPDX-License-Identifier: Apache-2.0 */
/* What peers of another age send, and what is made of it. */
#include <string.h>

#include "common/base/assert.h"
#include "tests/unit/wire/wire_fixture.h"

static void fields_of_a_newer_peer_are_passed_over(void **state)
{
    /* One of every format of the specification. */
    static const uint8_t extra[] = {
        0xc0, 0xc2, 0xc3, 0xc4, 1,    0,    0xc5, 0,    1,    0,    0xc6, 0,
        0,    0,    1,    0,    0xc7, 1,    5,    0,    0xc8, 0,    1,    5,
        0,    0xc9, 0,    0,    0,    1,    5,    0,    0xca, 0,    0,    0,
        0,    0xcb, 0,    0,    0,    0,    0,    0,    0,    0,    0xcc, 1,
        0xcd, 0,    1,    0xce, 0,    0,    0,    1,    0xcf, 0,    0,    0,
        0,    0,    0,    0,    1,    0xd0, 1,    0xd1, 0,    1,    0xd2, 0,
        0,    0,    1,    0xd3, 0,    0,    0,    0,    0,    0,    0,    1,
        0xd4, 5,    0,    0xd5, 5,    0,    0,    0xd6, 5,    0,    0,    0,
        0,    0xd7, 5,    0,    0,    0,    0,    0,    0,    0,    0,    0xd8,
        5,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0xd9, 1,    'a',  0xda, 0,    1,    'a',
        0xdb, 0,    0,    0,    1,    'a',  0xdc, 0,    1,    0xc0, 0xdd, 0,
        0,    0,    1,    0xc0, 0xde, 0,    1,    1,    2,    0xdf, 0,    0,
        0,    1,    1,    2,    0xe0, 0x7f, 0x81, 1,    0x91, 0x90, 0xa1, 'b'};
    const size_t n_extra = 35;
    bt_msg_t msgs[WIRE_N_SAMPLES];

    (void)state;
    memset(msgs, 0, sizeof(msgs));
    (void)wire_samples(msgs);
    for (size_t i = 0; i < WIRE_N_SAMPLES; i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);
        bt_strbuf_t longer;
        bt_msg_t got;
        size_t n;
        const size_t header = wire_array_header((const uint8_t *)buf.data, &n);

        memset(&got, 0, sizeof(got));
        bt_strbuf_init(&longer, WIRE_LIMIT);
        wire_put_array(&longer, n + n_extra);
        bt_strbuf_append(&longer, buf.data + header, buf.len - header);
        bt_strbuf_append(&longer, extra, sizeof(extra));
        assert_int_equal(wire_decode(longer.data, longer.len, &got), BT_OK);
        wire_assert_equal(&got, &msgs[i]);

        bt_strbuf_append(&longer, "", 1); /* outside of the array */
        assert_int_equal(wire_decode(longer.data, longer.len, &got),
                         BT_ERR_BAD_MESSAGE);
        bt_strbuf_fini(&longer);
        bt_strbuf_fini(&buf);
    }
}

/* Elements of each message of protocol 2 as it was when that landed, the type
 * among them: counted in tests/fuzz/make_wire_corpus.py, in its list WIRE. */
static const size_t n_first[] = {
    [BT_MSG_HELLO] = 17, [BT_MSG_REQUEST] = 11, [BT_MSG_GRANT] = 6,
    [BT_MSG_CANCEL] = 4, [BT_MSG_TOKENS] = 2,   [BT_MSG_PREFILLED] = 7,
    [BT_MSG_JOINED] = 9, [BT_MSG_FAILED] = 5,   [BT_MSG_ENDED] = 7,
    [BT_MSG_STATS] = 26, [BT_MSG_PEER] = 4,     [BT_MSG_PEER_GONE] = 2,
    [BT_MSG_DRAIN] = 1,
};

static void a_field_that_was_there_from_the_first_is_required(void **state)
{
    bt_msg_t msgs[WIRE_N_SAMPLES];

    (void)state;
    (void)wire_samples(msgs);
    for (size_t i = 0; i < WIRE_N_SAMPLES; i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);

        for (size_t keep = 0; keep <= n_first[msgs[i].type]; keep++) {
            bt_strbuf_t shorter = wire_cut_to(&buf, keep);
            bt_msg_t got;

            assert_int_equal(
                wire_decode(shorter.data, shorter.len, &got),
                (keep == n_first[msgs[i].type]) ? BT_OK : BT_ERR_BAD_MESSAGE);
            bt_strbuf_fini(&shorter);
        }
        bt_strbuf_fini(&buf);
    }
}

/* HELLO and STATS of the peers between the first and this one: each sends one
 * field more. */
static void a_later_field_that_was_not_sent_has_its_default(void **state)
{
    const bt_msg_t hello = wire_hello();
    const bt_msg_t stats = wire_stats();
    bt_strbuf_t buf = wire_encoded(&hello);
    bt_msg_t got;

    (void)state;
    for (size_t keep = 17; keep <= 20; keep++) {
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.hello.protocol, BT_WIRE_PROTOCOL);
        assert_int_equal(got.u.hello.protocol_min,
                         (keep > 17) ? 1 : BT_WIRE_PROTOCOL);
        assert_string_equal(got.u.hello.model_name,
                            (keep > 18) ? "smollm2-135m" : "");
        assert_string_equal(got.u.hello.version_text,
                            (keep > 19) ? "0.1.0" : "");
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
    buf = wire_encoded(&stats);
    for (size_t keep = 26; keep <= 33; keep++) {
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);
        const bt_msg_stats_t *s = &got.u.stats;

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(s->kv_checksum_failures, UINT64_MAX);
        assert_int_equal(s->tokens_generated, (keep > 26) ? 26 : 0);
        assert_int_equal(s->prompt_tokens, (keep > 27) ? 27 : 0);
        assert_int_equal(s->tokens_reused, (keep > 28) ? 28 : 0);
        assert_int_equal(s->process_cpu_ms, (keep > 29) ? 29 : 0);
        assert_int_equal(s->resident_bytes, (keep > 30) ? 30 : 0);
        assert_int_equal(s->start_unix_s, (keep > 31) ? 31 : 0);
        assert_int_equal(s->blocks_cached, (keep > 32) ? 32 : 0);
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
}

/* By hand: arrays of 1 or more elements, the first of which is the type. */
static void a_message_of_a_later_type_is_passed_over_and_counted(void **state)
{
    static const uint8_t types[][9] = {
        {0x91, 14},
        {0x93, 14, 0xc0, 0x81, 1, 2}, /* nil, {1: 2} */
        {0x92, 0xcd, 1, 0, 0xa1, 'x'},
        {0x91, 0xce, 0xff, 0xff, 0xff, 0xff},
    };
    static const size_t sizes[] = {2, 6, 6, 6};
    bt_wire_decoder_t *fresh;
    bt_msg_t got = {.type = BT_MSG_DRAIN};
    bt_wire_skip_t skip;

    (void)state;
    assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        assert_int_equal(bt_wire_decode(fresh, types[i], sizes[i], &got),
                         BT_ERR_UNSUPPORTED);
    }
    assert_int_equal(got.type, BT_MSG_DRAIN);
    skip = bt_wire_skipped(fresh);
    assert_int_equal(skip.type, UINT32_MAX);
    assert_int_equal(skip.n, 1);
    assert_true(skip.say);
    for (uint64_t n = 3; n <= 1000; n++) { /* type 14 came twice above */
        assert_int_equal(bt_wire_decode(fresh, types[0], sizes[0], &got),
                         BT_ERR_UNSUPPORTED);
        skip = bt_wire_skipped(fresh);
        assert_int_equal(skip.type, 14);
        assert_int_equal(skip.n, n);
        assert_int_equal(skip.say, (n == 10) || (n == 100) || (n == 1000));
    }
    /* Of many types only the first ones fill the log. */
    for (uint8_t type = 15, said = 0; type < 127; type++) {
        const uint8_t other[] = {0x91, type};

        assert_int_equal(bt_wire_decode(fresh, other, sizeof(other), &got),
                         BT_ERR_UNSUPPORTED);
        said = (uint8_t)(said + bt_wire_skipped(fresh).say);
        assert_true(said < 20);
    }
    bt_wire_decoder_destroy(fresh);
}

/* Inside of them as well. By hand: tokens of 7 elements where we know 5; those
 * of 4 have lost one. */
static void fields_of_a_newer_peer_inside_lists_are_passed_over(void **state)
{
    static const uint8_t longer[] = {0x92, 5, 0x92, 0x97, 42,   1,    0,
                                     5,    0, 0xc0, 0xa1, 'x',  0x97, 43,
                                     1,    1, 6,    2,    0x90, 0x80};
    static const uint8_t shorter[] = {0x92, 5, 0x91, 0x94, 42, 1, 0, 5};
    static const uint8_t extra[] = {0x81, 1, 2};
    const bt_msg_t request = wire_request();
    bt_strbuf_t buf = wire_encoded(&request);
    const uint8_t *sampling = (const uint8_t *)buf.data;
    bt_strbuf_t inner;
    bt_strbuf_t outer;
    bt_msg_t got;
    size_t n;

    (void)state;
    assert_int_equal(wire_decode(longer, sizeof(longer), &got), BT_OK);
    assert_int_equal(got.u.tokens.n, 2);
    assert_int_equal(got.u.tokens.tokens[0].id, 5);
    assert_int_equal(got.u.tokens.tokens[1].key.id, 43);
    assert_int_equal(got.u.tokens.tokens[1].finish, BT_FINISH_LENGTH);
    assert_int_equal(wire_decode(shorter, sizeof(shorter), &got),
                     BT_ERR_BAD_MESSAGE);

    sampling += wire_array_header(sampling, &n);
    for (size_t i = 0; i + 1 < n; i++) { /* it is the last element */
        sampling += wire_object_bytes(sampling);
    }
    for (size_t n_extra = 0; n_extra <= 2; n_extra++) {
        size_t n_inner;
        const size_t header = wire_array_header(sampling, &n_inner);

        bt_strbuf_init(&inner, WIRE_LIMIT);
        wire_put_array(&inner, n_inner + n_extra);
        bt_strbuf_append(&inner, sampling + header,
                         wire_object_bytes(sampling) - header);
        for (size_t i = 0; i < n_extra; i++) {
            bt_strbuf_append(&inner, extra, sizeof(extra));
        }
        outer = wire_with_element(&buf, n - 1, inner.data, inner.len);
        memset(&got, 0, sizeof(got));
        assert_int_equal(wire_decode(outer.data, outer.len, &got), BT_OK);
        wire_assert_equal(&got, &request);
        bt_strbuf_fini(&outer);
        bt_strbuf_fini(&inner);
    }
    bt_strbuf_fini(&buf);
}

/* docs/WIRE.md: a token may get 10 fields more. By hand: array 32 of tokens,
 * each an array 16 of 15 elements. */
static void the_fullest_message_of_a_newer_peer_is_taken(void **state)
{
    static const uint8_t head[] = {0x92, 5, 0xdd, 0, 0, 0x40, 0};
    static const uint8_t token[] = {0xdc, 0,    15,   42,   1,    0,
                                    5,    0,    0xc0, 0xc0, 0xc0, 0xc0,
                                    0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0};
    bt_strbuf_t buf;
    bt_msg_t got;

    (void)state;
    assert_int_equal(BT_WIRE_MAX_BATCH, 0x4000);
    bt_strbuf_init(&buf, WIRE_LIMIT);
    bt_strbuf_append(&buf, head, sizeof(head));
    for (uint32_t i = 0; i < BT_WIRE_MAX_BATCH; i++) {
        bt_strbuf_append(&buf, token, sizeof(token));
    }
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    assert_int_equal(got.u.tokens.n, BT_WIRE_MAX_BATCH);
    assert_int_equal(got.u.tokens.tokens[BT_WIRE_MAX_BATCH - 1].id, 5);
    bt_strbuf_fini(&buf);
}

static void a_link_speaks_the_newest_that_both_sides_know(void **state)
{
    static const struct {
        bt_wire_range_t mine, theirs;
        uint32_t common;
    } cases[] = {
        {{2, 2}, {2, 2}, 2},
        {{2, 3}, {2, 2}, 2},
        {{2, 5}, {3, 4}, 4},
        {{2, 3}, {3, 9}, 3},
        {{2, 2}, {3, 4}, 0},
        {{3, 5}, {1, 2}, 0},
        {{2, 2}, {0, 2}, 2},
        {{2, 2}, {0, 0}, 0}, /* says nothing of use */
        {{2, 4}, {5, 3}, 0}, /* a range without a version in it */
        {{2, UINT32_MAX}, {1, UINT32_MAX}, UINT32_MAX},
    };
    char text[BT_WIRE_RANGE_BYTES];
    bt_msg_hello_t hello = {.protocol = 9, .protocol_min = 7};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_wire_common(cases[i].mine, cases[i].theirs),
                         cases[i].common);
        assert_int_equal(bt_wire_common(cases[i].theirs, cases[i].mine),
                         cases[i].common);
    }
    assert_int_equal(bt_wire_common(bt_wire_range_ours(), bt_wire_range_ours()),
                     BT_WIRE_PROTOCOL);
    bt_wire_range_print(bt_wire_range_of(&hello), text);
    assert_string_equal(text, "7 to 9");
    hello.protocol_min = 9;
    bt_wire_range_print(bt_wire_range_of(&hello), text);
    assert_string_equal(text, "9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(fields_of_a_newer_peer_are_passed_over),
        BT_TEST(a_field_that_was_there_from_the_first_is_required),
        BT_TEST(a_later_field_that_was_not_sent_has_its_default),
        BT_TEST(a_message_of_a_later_type_is_passed_over_and_counted),
        BT_TEST(fields_of_a_newer_peer_inside_lists_are_passed_over),
        BT_TEST(the_fullest_message_of_a_newer_peer_is_taken),
        BT_TEST(a_link_speaks_the_newest_that_both_sides_know),
    };

    return cmocka_run_group_tests(tests, wire_setup, wire_teardown);
}
