/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/unit/common/wire/wire_fixture.h"

static void every_message_round_trips(void **state)
{
    bt_msg_t msgs[WIRE_N_SAMPLES];

    (void)state;
    memset(msgs, 0, sizeof(msgs));
    assert_int_equal(wire_samples(msgs), WIRE_N_SAMPLES);
    for (size_t i = 0; i < WIRE_N_SAMPLES; i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);
        bt_msg_t got;

        memset(&got, 0xA5, sizeof(got));
        assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
        wire_assert_equal(&got, &msgs[i]);
        bt_strbuf_fini(&buf);
    }
}

/* Worked by hand from the msgpack specification: array of 4, fixint 4 (CANCEL),
 * uint 64, fixint, fixint. */
static void cancel_has_the_documented_bytes(void **state)
{
    static const uint8_t expected[] = {0x94, 4, 0xcf, 1, 2, 3, 4,
                                       5,    6, 7,    8, 3, 1};
    const bt_msg_t msg = {
        .type = BT_MSG_CANCEL,
        .u.cancel = {{0x0102030405060708u, 3}, BT_FINISH_STOP}};
    bt_strbuf_t buf = wire_encoded(&msg);

    (void)state;
    assert_int_equal(buf.len, sizeof(expected));
    assert_memory_equal(buf.data, expected, sizeof(expected));
    bt_strbuf_fini(&buf);
}

static void every_truncation_of_every_message_is_refused(void **state)
{
    bt_msg_t msgs[WIRE_N_SAMPLES];

    (void)state;
    (void)wire_samples(msgs);
    for (size_t i = 0; i < WIRE_N_SAMPLES; i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);

        for (size_t n = 0; n < buf.len; n++) {
            bt_msg_t got;

            assert_int_equal(wire_decode(buf.data, n, &got),
                             BT_ERR_BAD_MESSAGE);
        }
        bt_strbuf_fini(&buf);
    }
}

static void field_of_a_wrong_type_is_refused(void **state)
{
    /* nil, true, {}, [nil] of no message, ext, float 64 */
    static const struct {
        uint8_t bytes[9];
        size_t n;
    } others[] = {{{0xc0}, 1},        {{0xc3}, 1},       {{0x80}, 1},
                  {{0x91, 0xc0}, 2},  {{0xd4, 1, 0}, 3}, {{0xcb, 0x40}, 9},
                  {{0xc4, 1, 'x'}, 3}};
    bt_msg_t msgs[WIRE_N_SAMPLES];

    (void)state;
    (void)wire_samples(msgs);
    for (size_t i = 0; i < WIRE_N_SAMPLES; i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);
        size_t n_fields;

        (void)wire_array_header((const uint8_t *)buf.data, &n_fields);
        for (size_t at = 0; at < n_fields; at++) {
            for (size_t k = 0; k < BT_ARRAY_LEN(others); k++) {
                bt_strbuf_t bad =
                    wire_with_element(&buf, at, others[k].bytes, others[k].n);
                bt_msg_t got;
                const bt_status_t status = wire_decode(bad.data, bad.len, &got);

                /* a one-byte blob is a blob */
                if ((status == BT_OK) && (others[k].bytes[0] == 0xc4)) {
                    assert_true(
                        (msgs[i].type == BT_MSG_HELLO && at == 16) ||
                        (msgs[i].type == BT_MSG_REQUEST && at == 29) ||
                        (msgs[i].type == BT_MSG_GRANT && at == 5) ||
                        (msgs[i].type == BT_MSG_PEER && at == 3) ||
                        (msgs[i].type == BT_MSG_ROWS && at == 7) ||
                        (msgs[i].type == BT_MSG_ADAPTER_PART && at == 4) ||
                        (msgs[i].type == BT_MSG_BEAM && at == 7));
                } else {
                    assert_int_equal(status, BT_ERR_BAD_MESSAGE);
                }
                bt_strbuf_fini(&bad);
            }
        }
        bt_strbuf_fini(&buf);
    }
}

static void non_message_bytes_are_refused(void **state)
{
    static const struct {
        uint8_t bytes[8];
        size_t n;
    } cases[] = {
        {{0x91, 0}, 2},     /* type 0 */
        {{0x91, 0xff}, 2},  /* type -1 */
        {{0x92, 14}, 2},    /* a later type, cut off */
        {{0x91, 14, 0}, 3}, /* and with something after it */
        {{0x91, 0xcf, 0, 0, 0, 1, 0, 0}, 8},
        {{0x90}, 1},                         /* no type */
        {{0xc0}, 1},                         /* nil */
        {{0x81, 1, 2}, 3},                   /* a map */
        {{0xc1}, 1},                         /* never used */
        {{'{', '"', 'a', '"', ':', '1'}, 6}, /* JSON: fixint, then more */
        {{0x91, 0xc1}, 2},
    };
    bt_msg_t got;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(wire_decode(cases[i].bytes, cases[i].n, &got),
                         BT_ERR_BAD_MESSAGE);
    }
    assert_int_equal(wire_decode(NULL, 0, &got), BT_ERR_BAD_MESSAGE);
}

/* Sizes that are claimed, not sent: must be refused without memory. */
static void claimed_sizes_allocate_nothing(void **state)
{
    static const uint8_t cases[][6] = {
        {0xdd, 0xff, 0xff, 0xff, 0xff, 10}, {0xdf, 0xff, 0xff, 0xff, 0xff, 10},
        {0xdb, 0xff, 0xff, 0xff, 0xff, 10}, {0xc6, 0xff, 0xff, 0xff, 0xff, 10},
        {0xc9, 0xff, 0xff, 0xff, 0xff, 10}, {0xdd, 0x80, 0, 0, 0, 10},
    };
    bt_msg_t got;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(wire_decode(cases[i], sizeof(cases[i]), &got),
                         BT_ERR_BAD_MESSAGE);
    }
}

static void deep_nesting_and_a_flood_of_objects_are_refused(void **state)
{
    const size_t n = 1u << 20;
    uint8_t *bytes = bt_calloc(n, 1);
    bt_msg_t got;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 0x91, n); /* [[[[ … */
    bytes[n - 1] = 0xc0;
    assert_int_equal(wire_decode(bytes, n, &got), BT_ERR_BAD_MESSAGE);

    memset(bytes, 0xc0, n); /* [DRAIN, nil, nil, … ] */
    bytes[0] = 0xdd;
    bytes[1] = 0;
    bytes[2] = (uint8_t)((n - 5) >> 16);
    bytes[3] = (uint8_t)((n - 5) >> 8);
    bytes[4] = (uint8_t)(n - 5);
    bytes[5] = BT_MSG_DRAIN;
    assert_int_equal(wire_decode(bytes, n, &got), BT_ERR_BAD_MESSAGE);

    /* The same with 1000 of them is a newer peer. */
    bytes[1] = bytes[2] = 0;
    bytes[3] = 1000 >> 8;
    bytes[4] = 1000 & 255;
    assert_int_equal(wire_decode(bytes, 1005, &got), BT_OK);
    bt_free(bytes);
}

static void values_out_of_bounds_are_refused(void **state)
{
    bt_msg_t msg = wire_hello();
    bt_strbuf_t buf = wire_encoded(&msg);
    const uint8_t role3[] = {3};
    const uint8_t attempt[] = {0xcf, 0, 0, 0, 1, 0, 0, 0, 0};
    const uint8_t negative[] = {0xff};
    const uint8_t name[] = {0xa3, 'a', '\n', 'b'};
    const uint8_t nul[] = {0xa3, 'a', 0, 'b'};
    const uint8_t odd[] = {0xc4, 5, 1, 2, 3, 4, 5};
    uint8_t long_name[2 + BT_WIRE_MAX_NAME] = {0xd9, BT_WIRE_MAX_NAME};
    const struct {
        uint32_t type;
        size_t at;
        const uint8_t *bytes;
        size_t n;
    } cases[] = {
        {BT_MSG_HELLO, 2, role3, 1},      {BT_MSG_HELLO, 4, name, 4},
        {BT_MSG_HELLO, 4, nul, 4},        {BT_MSG_HELLO, 4, long_name, 66},
        {BT_MSG_REQUEST, 2, attempt, 9},  {BT_MSG_REQUEST, 3, role3, 1},
        {BT_MSG_REQUEST, 5, negative, 1}, {BT_MSG_REQUEST, 6, odd, 7},
        {BT_MSG_REQUEST, 6, odd + 1, 1},  {BT_MSG_CANCEL, 3, odd + 1, 1},
        {BT_MSG_FAILED, 3, attempt, 9},
    };

    (void)state;
    bt_strbuf_fini(&buf);
    memset(long_name + 2, 'n', BT_WIRE_MAX_NAME);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_msg_t msgs[WIRE_N_SAMPLES];
        bt_strbuf_t bad;
        bt_msg_t got;

        (void)wire_samples(msgs); /* they are in the order of their types */
        buf = wire_encoded(&msgs[cases[i].type - 1]);
        bad = wire_with_element(&buf, cases[i].at, cases[i].bytes, cases[i].n);
        assert_int_equal(wire_decode(bad.data, bad.len, &got),
                         BT_ERR_BAD_MESSAGE);
        bt_strbuf_fini(&bad);
        bt_strbuf_fini(&buf);
    }
}

static void grammar_longer_than_its_limit_is_refused(void **state)
{
    static uint8_t element[5 + BT_WIRE_MAX_GRAMMAR + 1] = {0xc6, 0, 1, 0, 1};
    uint8_t *const program = element + 5;
    bt_msg_t msg = wire_request();
    bt_strbuf_t buf;
    bt_strbuf_t bad;
    bt_msg_t got;

    (void)state;
    buf = wire_encoded(&msg);
    bad = wire_with_element(&buf, 29, element, sizeof(element));
    assert_int_equal(wire_decode(bad.data, bad.len, &got), BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&bad);
    bt_strbuf_fini(&buf);

    msg.u.request.grammar = program;
    msg.u.request.grammar_bytes = BT_WIRE_MAX_GRAMMAR;
    program[BT_WIRE_MAX_GRAMMAR - 1] = 7;
    buf = wire_encoded(&msg);
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    wire_assert_equal(&got, &msg);
    bt_strbuf_fini(&buf);

    msg.u.request.grammar_bytes++;
    bt_strbuf_init(&buf, WIRE_LIMIT);
    bt_wire_encode(&msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
    bt_strbuf_fini(&buf);
}

/* 7 MiB are 0x700000 bytes, here 1 more; then 5 bytes, which are not 3 rows of
 * halves. */
static void table_that_is_too_long_or_no_rows_is_refused(void **state)
{
    static uint8_t element[5 + BT_TABLE_MAX_BYTES + 1] = {0xc6, 0, 0x70, 0, 1};
    static const uint8_t odd[] = {0xc4, 5, 1, 2, 3, 4, 5};
    bt_msg_t msg = wire_request();
    bt_strbuf_t buf = wire_encoded(&msg);
    bt_strbuf_t bad;
    bt_msg_t got;

    (void)state;
    bad = wire_with_element(&buf, 33, element, sizeof(element));
    assert_int_equal(wire_decode(bad.data, bad.len, &got), BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&bad);
    bad = wire_with_element(&buf, 33, odd, sizeof(odd));
    assert_int_equal(wire_decode(bad.data, bad.len, &got), BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&bad);
    bt_strbuf_fini(&buf);
    msg.u.request.table =
        (bt_table_rows_t){element + 5, BT_TABLE_MAX_BYTES, BT_TABLE_F32, 7};
    buf = wire_encoded(&msg);
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    wire_assert_equal(&got, &msg);
    bt_strbuf_fini(&buf);
}

static void text_of_a_peer_cannot_forge_a_log_line(void **state)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED,
                    .u.failed = {{1, 2}, BT_ERR_INTERNAL, "a\nb\x7f\tc"}};
    bt_strbuf_t buf = wire_encoded(&msg);
    static const uint8_t raw[] = {0x95, 8, 1, 2, 0xff, 0xa3, 'x', '\n', 'y'};
    bt_msg_t got;

    (void)state;
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    assert_string_equal(got.u.failed.text, "a b  c");
    assert_int_equal(wire_decode(raw, sizeof(raw), &got), BT_OK);
    assert_string_equal(got.u.failed.text, "x y");
    assert_int_equal(got.u.failed.status, -1);
    bt_strbuf_fini(&buf);
}

/* What the decoder would refuse is not sent in the first place. */
static void encoder_refuses_invalid_messages(void **state)
{
    static const uint8_t none[1];
    static const bt_wire_rank_t long_rank = {.kvt = none,
                                             .kvt_bytes = BT_WIRE_MAX_BLOB + 1};
    bt_msg_t cases[14];
    size_t n = 0;

    (void)state;
    cases[n] = wire_request();
    cases[n++].u.request.n_prompt = 6; /* more than there are tokens */
    cases[n] = wire_request();         /* of a group's first */
    cases[n].u.request.fanout = cases[n].u.request.key.id;
    cases[n++].u.request.n_tokens = 0;
    cases[n] = wire_request(); /* of one by itself */
    cases[n].u.request.fanout = 0;
    cases[n++].u.request.n_tokens = 0;
    cases[n] = wire_request();
    cases[n].u.request.fanout_size = 1;
    cases[n++].u.request.n_tokens = 0;
    cases[n] = wire_request();
    cases[n++].u.request.max_new = 0;
    cases[n] = wire_request();
    cases[n++].u.request.tokens = NULL;
    cases[n] = wire_request();
    cases[n++].u.request.n_tokens = BT_WIRE_MAX_TOKENS + 1;
    cases[n] = wire_request();
    cases[n++].u.request.sampling.temperature = NAN;
    cases[n] = wire_request();
    cases[n++].u.request.sampling.n_bad_words = BT_MAX_BAD_WORDS + 1;
    cases[n] = wire_hello();
    cases[n++].u.hello.ranks = &long_rank;
    cases[n] = wire_hello();
    memset(cases[n++].u.hello.name, 'x', BT_WIRE_MAX_NAME);
    cases[n] = wire_hello();
    cases[n++].u.hello.name[0] = '\n';
    cases[n++] = (bt_msg_t){
        .type = BT_MSG_TOKENS,
        .u.tokens = {.n = BT_WIRE_MAX_BATCH + 1, .tokens = wire_tokens}};
    cases[n] = (bt_msg_t){.type = BT_MSG_DRAIN};
    cases[n++].type = (bt_msg_type_t)27;
    assert_int_equal(n, BT_ARRAY_LEN(cases));
    for (size_t i = 0; i < n; i++) {
        bt_strbuf_t buf;

        bt_strbuf_init(&buf, WIRE_LIMIT);
        bt_wire_encode(&cases[i], &buf);
        assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
        bt_strbuf_fini(&buf);
    }
}

/* It has those of the first of its group. */
static void request_of_a_group_may_have_no_tokens(void **state)
{
    bt_msg_t msg = wire_request();
    bt_wire_decoder_t *decoder;
    bt_strbuf_t buf;
    bt_msg_t got;

    (void)state;
    assert_int_equal(bt_wire_decoder_create(&decoder), BT_OK);
    msg.u.request.n_tokens = 0;
    bt_strbuf_init(&buf, WIRE_LIMIT);
    bt_wire_encode(&msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    assert_int_equal(bt_wire_decode(decoder, buf.data, buf.len, &got), BT_OK);
    assert_int_equal(got.u.request.n_tokens, 0);
    assert_int_equal(got.u.request.n_prompt, 4);
    assert_int_equal(got.u.request.max_new, 128);
    assert_int_equal(got.u.request.fanout, 41);
    bt_strbuf_fini(&buf);
    bt_wire_decoder_destroy(decoder);
}

static void largest_messages_pass(void **state)
{
    uint32_t *ids = bt_calloc(BT_WIRE_MAX_TOKENS, sizeof(*ids));
    bt_token_t *many = bt_calloc(BT_WIRE_MAX_BATCH, sizeof(*many));
    bt_msg_t msg = wire_request();
    bt_msg_t got;
    bt_strbuf_t buf;

    (void)state;
    assert_non_null(ids);
    assert_non_null(many);
    for (uint32_t i = 0; i < BT_WIRE_MAX_TOKENS; i++) {
        ids[i] = i;
    }
    msg.u.request.tokens = ids;
    msg.u.request.n_tokens = BT_WIRE_MAX_TOKENS;
    buf = wire_encoded(&msg);
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    assert_memory_equal(got.u.request.tokens, ids,
                        BT_WIRE_MAX_TOKENS * sizeof(*ids));
    bt_strbuf_fini(&buf);

    for (uint32_t i = 0; i < BT_WIRE_MAX_BATCH; i++) {
        many[i].key.id = UINT64_MAX - i;
        many[i].id = i;
    }
    msg = (bt_msg_t){.type = BT_MSG_TOKENS,
                     .u.tokens = {.n = BT_WIRE_MAX_BATCH, .tokens = many}};
    buf = wire_encoded(&msg);
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    assert_int_equal(got.u.tokens.n, BT_WIRE_MAX_BATCH);
    assert_int_equal(got.u.tokens.tokens[BT_WIRE_MAX_BATCH - 1].id,
                     BT_WIRE_MAX_BATCH - 1);
    bt_strbuf_fini(&buf);
    bt_free(many);
    bt_free(ids);
}

/* Written by another encoder: tests/fuzz/make_wire_corpus.py. */
static void messages_of_another_msgpack_encoder_are_read(void **state)
{
    const char *folder = bt_test_path("fuzz/corpus/wire");
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned n_taken = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        uint8_t data[16384];
        char path[4600];
        bt_msg_t got;
        FILE *file;
        size_t n;

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        file = fopen(path, "rb");
        assert_non_null(file);
        n = fread(data, 1, sizeof(data), file);
        fclose(file);
        if (strncmp(entry->d_name, "refused_", 8) == 0) {
            assert_int_equal(wire_decode(data, n, &got), BT_ERR_BAD_MESSAGE);
            continue;
        }
        if (strncmp(entry->d_name, "later_type", 10) == 0) {
            assert_int_equal(wire_decode(data, n, &got), BT_ERR_UNSUPPORTED);
            continue;
        }
        assert_int_equal(wire_decode(data, n, &got), BT_OK);
        n_taken++;
        if (strcmp(entry->d_name, "hello_ranks_future") == 0) {
            assert_int_equal(got.u.hello.tp, 2);
            assert_int_equal(got.u.hello.pp, 1);
            assert_int_equal(got.u.hello.n_ranks, 2);
            assert_int_equal(got.u.hello.ranks[0].block_bytes, 4096);
            assert_int_equal(got.u.hello.ranks[1].kvt_bytes, 3);
            assert_memory_equal(got.u.hello.ranks[0].kvt, "one", 3);
            assert_memory_equal(got.u.hello.ranks[1].kvt, "two", 3);
        }
        if (strcmp(entry->d_name, "hello_ranks_most") == 0) {
            assert_int_equal(got.u.hello.n_ranks, BT_WIRE_MAX_RANKS);
        }
        if (strcmp(entry->d_name, "peer_future") == 0) {
            assert_int_equal(got.u.peer.n_ranks, 1);
            assert_int_equal(got.u.peer.ranks[0].block_bytes, 368640);
            assert_memory_equal(got.u.peer.ranks[0].kvt, "blob", 4);
            assert_int_equal(got.u.peer.layout.hi, 104);
            assert_int_equal(got.u.peer.sends, 1);
        }
        if (strcmp(entry->d_name, "grant_windows") == 0) {
            assert_int_equal(got.u.grant.n_regions, 3);
            assert_int_equal(got.u.grant.regions[1].to, 1);
            assert_int_equal(got.u.grant.regions[2].from, 63);
            assert_int_equal(got.u.grant.regions[1].blob_bytes, 2);
            assert_memory_equal(got.u.grant.regions[1].blob, "bc", 2);
        }
        if (strcmp(entry->d_name, "request_future") == 0) {
            const bt_sampling_t *s = &got.u.request.sampling;

            assert_int_equal(got.u.request.space.hi, 5);
            assert_int_equal(s->n_logit_biases, 2);
            assert_int_equal(s->logit_biases[1].id, 49151);
            assert_true(s->logit_biases[1].bias == -2.5f);
            assert_int_equal(got.u.request.fanout, 41);
            assert_int_equal(got.u.request.fanout_size, 4);
            assert_int_equal(got.u.request.wants.what, 3);
            assert_int_equal(got.u.request.wants.n_top, 2);
            assert_true(s->min_p == 0.0625f);
            assert_int_equal(got.u.request.first_ms, 1500);
            assert_int_equal(got.u.request.itl_ms, 40);
            assert_int_equal(got.u.request.n_draft_ids, 2);
            assert_int_equal(got.u.request.draft_ids[1], 9);
            assert_int_equal(got.u.request.max_drafts, 6);
            assert_int_equal(s->processors.no_repeat_ngram_size, 3);
            assert_true(s->processors.dry_base == 1.75f);
            assert_int_equal(s->processors.n_think_close, 2);
            assert_int_equal(s->processors.n_ids, 6);
            assert_int_equal(s->processors.ids[5], 10);
            assert_int_equal(got.u.request.table.type, BT_TABLE_F16);
            assert_int_equal(bt_table_width(&got.u.request.table), 2);
            assert_int_equal(got.u.request.tokens[1], 2); /* not mixed up */
        }
        if (strcmp(entry->d_name, "tokens_future") == 0) {
            const bt_token_score_t *s = got.u.tokens.scores;

            assert_int_equal(got.u.tokens.n_scores, 1);
            assert_int_equal(s->token, 1);
            assert_true(s->score.logprob == -0.75);
            assert_int_equal(s->score.n_top, 2);
            assert_int_equal(s->score.top_ids[0], 49151);
            assert_true(s->score.top_logprobs[1] == -2.0);
        }
        if (strcmp(entry->d_name, "rows_logits") == 0) {
            static const float floats[] = {1.0f, -2.0f, 0.5f};

            assert_int_equal(got.u.rows.kind, BT_ROWS_LOGITS);
            assert_int_equal(got.u.rows.from, 700);
            assert_int_equal(got.u.rows.offset, 16384);
            assert_int_equal(got.u.rows.data_bytes, sizeof(floats));
            assert_memory_equal(got.u.rows.data, floats, sizeof(floats));
        }
        if (strcmp(entry->d_name, "role_duty") == 0) {
            assert_int_equal(got.u.role.roles, 0);
            assert_int_equal(got.u.role.duty, BT_ADMIN_STATE_END);
        }
        if (strcmp(entry->d_name, "role") == 0) { /* of an older build */
            assert_int_equal(got.u.role.duty, BT_ADMIN_STATE_AS_IT_IS);
        }
        if (strcmp(entry->d_name, "ended_future") == 0) {
            assert_int_equal(got.u.ended.n_pauses, 3001);
            assert_int_equal(got.u.ended.paused_us, 3002);
            assert_int_equal(got.u.ended.n_drafted, 3003);
            assert_int_equal(got.u.ended.n_accepted, 3004);
        }
        if (strcmp(entry->d_name, "stats_future") == 0) {
            assert_int_equal(got.u.stats.kv_checksum_failures, 1025);
            assert_int_equal(got.u.stats.tokens_generated, 2001);
            assert_int_equal(got.u.stats.start_unix_s, 2006);
            assert_int_equal(got.u.stats.blocks_cached, 2007);
            assert_int_equal(got.u.stats.kv_stage_waits, 2009);
            assert_int_equal(got.u.stats.roles, BT_ROLES_BOTH);
            assert_int_equal(got.u.stats.kv_foreign_pieces, 2010);
            assert_int_equal(got.u.stats.log_lines_dropped, 2011);
            assert_int_equal(got.u.stats.rates.prefill_step_ns, 2012);
            assert_int_equal(got.u.stats.rates.transfer_error, 2023);
            assert_int_equal(got.u.stats.lent_pieces, 2024);
            assert_int_equal(got.u.stats.lent_us, 2025);
            assert_int_equal(got.u.stats.lent_again, 2026);
            assert_int_equal(got.u.stats.pauses, 2027);
            assert_int_equal(got.u.stats.tokens_recomputed, 2029);
            assert_int_equal(got.u.stats.yielded_us, 2030);
            assert_int_equal(got.u.stats.blocks_windowed, 2031);
            assert_int_equal(got.u.stats.blocks_slid, 2032);
            assert_int_equal(got.u.stats.still_ms, 2033);
            assert_int_equal(got.u.stats.duty, BT_ADMIN_STATE_OFF);
            assert_int_equal(got.u.stats.kv_bytes_shared, 2035);
            assert_int_equal(got.u.stats.overlapped_iterations, 2036);
            assert_int_equal(got.u.stats.waiting_for_kv_requests, 2037);
            assert_int_equal(got.u.stats.draft_steps, 2038);
            assert_int_equal(got.u.stats.drafted[2], 2059);
            assert_int_equal(got.u.stats.accepted[2], 2060);
            assert_int_equal(got.u.stats.drafted[3], 2061);
            assert_int_equal(got.u.stats.accepted[3], 2062);
            assert_int_equal(got.u.stats.grammar_masks, 2063);
            assert_int_equal(got.u.stats.grammar_mask_hits, 2064);
            assert_int_equal(got.u.stats.grammar_mask_us, 2065);
            assert_int_equal(got.u.stats.grammars_loaded, 2066);
            assert_int_equal(got.u.stats.drafted[4], 2067);
            assert_int_equal(got.u.stats.accepted[4], 2068);
            for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(got.u.stats.drafted[i], 2039 + i);
                assert_int_equal(got.u.stats.accepted[i], 2041 + i);
            }
            for (unsigned i = 0; i < BT_WIRE_DRAFT_POSITIONS; i++) {
                assert_int_equal(got.u.stats.accepted_at[i], 2043 + i);
            }
        }
    }
    closedir(dir);
    /* GOLDEN and role, with and without FUTURE; fields of LATER; what has a
     * name of its own, of lists and others. */
    assert_int_equal(n_taken, 2 * (13 + 1) + (15 + 4 + 69 + 25 + 2 + 1 + 6) +
                                  9 + 4 + 6 + 1 + 2 + 2 + 1 + 3 + 1 + 3 + 6 +
                                  2 + 4 + 1 + 4);
}

static void wire_reports_failed_allocations(void **state)
{
    bt_wire_decoder_t *fresh = NULL;
    bt_msg_t msg = wire_request();
    bt_msg_t got = {.type = BT_MSG_DRAIN};
    bt_strbuf_t buf = wire_encoded(&msg);

    (void)state;
    bt_alloc_fail_at(1);
    assert_int_equal(bt_wire_decoder_create(&fresh), BT_ERR_NO_MEMORY);
    assert_null(fresh);
    assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
    for (int nth = 1; nth <= 2; nth++) { /* the ids, then the bad words */
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got),
                         BT_ERR_NO_MEMORY);
        assert_int_equal(got.type, BT_MSG_DRAIN);
        bt_alloc_fail_at(0);
        bt_wire_decoder_destroy(fresh);
        assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
    }
    assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got), BT_OK);
    wire_assert_equal(&got, &msg);
    bt_wire_decoder_destroy(fresh);
    bt_wire_decoder_destroy(NULL);
    bt_strbuf_fini(&buf);

    msg = wire_hello();
    buf = wire_encoded(&msg);
    for (int nth = 1; nth <= 2; nth++) { /* the list, then what it leads to */
        assert_int_equal(bt_wire_decoder_create(&fresh), BT_OK);
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_int_equal(bt_wire_decode(fresh, buf.data, buf.len, &got), BT_OK);
        wire_assert_equal(&got, &msg);
        bt_wire_decoder_destroy(fresh);
    }
    bt_strbuf_fini(&buf);
}

static void invalid_sampling_parameters_are_named(void **state)
{
    struct {
        bt_sampling_t s;
        const char *word; /* in the answer */
    } cases[] = {
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "temperature"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "top_p"},
        {bt_sampling_default(), "repetition_penalty"},
        {bt_sampling_default(), "presence_penalty"},
        {bt_sampling_default(), "frequency_penalty"},
        {bt_sampling_default(), "end ids"},
        {bt_sampling_default(), "bad words"},
        {bt_sampling_default(), "bad words"},
        {bt_sampling_default(), "bad word"},
        {bt_sampling_default(), "biases"},
        {bt_sampling_default(), "biases"},
        {bt_sampling_default(), "bias"},
        {bt_sampling_default(), "bias"},
        {bt_sampling_default(), "min_p"},
        {bt_sampling_default(), "min_p"},
        {bt_sampling_default(), "min_p"},
    };
    static const bt_logit_bias_t too_much = {5, -100.01f};
    static const bt_logit_bias_t no_number = {5, NAN};
    static const bt_bad_word_t empty = {.n = 0};
    const bt_sampling_t good = wire_sampling();
    const char *why = "untouched";

    (void)state;
    assert_int_equal(bt_sampling_check(&good, &why), BT_OK);
    assert_string_equal(why, "untouched");
    cases[0].s.temperature = NAN;
    cases[1].s.temperature = -0.001f;
    cases[2].s.temperature = INFINITY;
    cases[3].s.top_p = 0.0f;
    cases[4].s.top_p = 1.0001f;
    cases[5].s.top_p = NAN;
    cases[6].s.repetition_penalty = 0.0f;
    cases[7].s.presence_penalty = NAN;
    cases[8].s.frequency_penalty = -INFINITY;
    cases[9].s.n_end_ids = BT_MAX_END_IDS + 1;
    cases[10].s.n_bad_words = BT_MAX_BAD_WORDS + 1;
    cases[11].s.n_bad_words = 1;
    cases[12].s.n_bad_words = 1;
    cases[12].s.bad_words = &empty;
    cases[13].s.n_logit_biases = BT_MAX_DENSE_BIASES + 1;
    cases[14].s.n_logit_biases = 1;
    cases[15].s.n_logit_biases = 1;
    cases[15].s.logit_biases = &too_much;
    cases[16].s.n_logit_biases = 1;
    cases[16].s.logit_biases = &no_number;
    cases[17].s.min_p = 1.0001f;
    cases[18].s.min_p = -0.0001f;
    cases[19].s.min_p = NAN;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_sampling_check(&cases[i].s, &why),
                         BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(why, cases[i].word));
    }
}

static void roles_have_names(void **state)
{
    static const char *const names[] = {"prefill", "decode", "both"};
    static const char *const nobody[] = {"", "router", "unknown", "Both"};
    uint32_t roles = 0;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(bt_role_named(names[i], &roles));
        assert_int_equal(roles, i + 1);
        assert_string_equal(bt_role_name(roles), names[i]);
    }
    for (size_t i = 0; i < sizeof(nobody) / sizeof(nobody[0]); i++) {
        assert_false(bt_role_named(nobody[i], &roles));
        assert_int_equal(roles, BT_ROLES_BOTH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(roles_have_names),
        BT_TEST(every_message_round_trips),
        BT_TEST(cancel_has_the_documented_bytes),
        BT_TEST(every_truncation_of_every_message_is_refused),
        BT_TEST(field_of_a_wrong_type_is_refused),
        BT_TEST(non_message_bytes_are_refused),
        BT_TEST(claimed_sizes_allocate_nothing),
        BT_TEST(deep_nesting_and_a_flood_of_objects_are_refused),
        BT_TEST(values_out_of_bounds_are_refused),
        BT_TEST(grammar_longer_than_its_limit_is_refused),
        BT_TEST(table_that_is_too_long_or_no_rows_is_refused),
        BT_TEST(text_of_a_peer_cannot_forge_a_log_line),
        BT_TEST(encoder_refuses_invalid_messages),
        BT_TEST(request_of_a_group_may_have_no_tokens),
        BT_TEST(largest_messages_pass),
        BT_TEST(messages_of_another_msgpack_encoder_are_read),
        BT_TEST(wire_reports_failed_allocations),
        BT_TEST(invalid_sampling_parameters_are_named),
    };

    return cmocka_run_group_tests(tests, wire_setup, wire_teardown);
}
