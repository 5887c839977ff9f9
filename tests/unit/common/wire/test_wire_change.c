/* SPDX-License-Identifier: Apache-2.0 */
/* What peers of another age send, and what is made of it. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/unit/common/wire/wire_fixture.h"

#define SAMPLING_AT 10 /* of REQUEST's elements, the type being 0 */

static void unknown_fields_of_a_newer_peer_are_ignored(void **state)
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
    [BT_MSG_HELLO] = 17,
    [BT_MSG_REQUEST] = 11,
    [BT_MSG_GRANT] = 6,
    [BT_MSG_CANCEL] = 4,
    [BT_MSG_TOKENS] = 2,
    [BT_MSG_PREFILLED] = 7,
    [BT_MSG_JOINED] = 9,
    [BT_MSG_FAILED] = 5,
    [BT_MSG_ENDED] = 7,
    [BT_MSG_STATS] = 26,
    [BT_MSG_PEER] = 4,
    [BT_MSG_PEER_GONE] = 2,
    [BT_MSG_DRAIN] = 1,
    [BT_MSG_ROLE] = 2,
    [BT_MSG_ROWS] = 8,
    [BT_MSG_KV_LINK] = 5,
    [BT_MSG_BEAM] = 8,
    [BT_MSG_WEIGHTS] = 5,
    [BT_MSG_WEIGHTS_CHECKED] = 6,
    [BT_MSG_SLEEP] = 3,
    [BT_MSG_CACHE_RESET] = 2,
    [BT_MSG_CACHE_IS_EMPTY] = 3,
    [BT_MSG_ADAPTER] = 6,
    [BT_MSG_ADAPTER_READY] = 5,
    [BT_MSG_ADAPTER_WANT] = 4,
    [BT_MSG_ADAPTER_PART] = 5,
};

static void missing_required_field_is_refused(void **state)
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
static void missing_later_field_has_its_default(void **state)
{
    const bt_msg_t hello = wire_hello();
    const bt_msg_t stats = wire_stats();
    bt_strbuf_t buf = wire_encoded(&hello);
    bt_msg_t got;

    (void)state;
    for (size_t keep = 17; keep <= 32; keep++) {
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.hello.protocol, BT_WIRE_PROTOCOL);
        assert_int_equal(got.u.hello.protocol_min,
                         (keep > 17) ? 1 : BT_WIRE_PROTOCOL);
        assert_string_equal(got.u.hello.model_name,
                            (keep > 18) ? "smollm2-135m" : "");
        assert_string_equal(got.u.hello.version_text,
                            (keep > 19) ? "0.1.0" : "");
        assert_int_equal(got.u.hello.tp, 1);
        assert_int_equal(got.u.hello.pp, 1);
        assert_int_equal(got.u.hello.n_ranks, 1);
        assert_int_equal(got.u.hello.ranks[0].kvt_bytes, 6);
        assert_memory_equal(got.u.hello.ranks[0].kvt,
                            hello.u.hello.ranks[0].kvt, 6);
        assert_int_equal(got.u.hello.ranks[0].block_bytes,
                         (keep > 22) ? 368640 : 0);
        assert_int_equal(got.u.hello.span_blocks, (keep > 23) ? 2 : 1);
        assert_int_equal(got.u.hello.window_blocks, (keep > 24) ? 5 : 0);
        assert_int_equal(got.u.hello.window_spans, (keep > 25) ? 69 : 0);
        assert_int_equal(got.u.hello.weights.update, (keep > 26) ? 7 : 0);
        assert_string_equal(got.u.hello.weights.version,
                            (keep > 27) ? "step-7" : "");
        assert_string_equal(got.u.hello.weights.path,
                            (keep > 28) ? "/w/7" : "");
        assert_int_equal(got.u.hello.base.lo, (keep > 29) ? 8 : 0);
        assert_int_equal(got.u.hello.base.hi, (keep > 30) ? UINT64_MAX : 0);
        assert_int_equal(got.u.hello.sleep_order, (keep > 31) ? 10 : 0);
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
    buf = wire_encoded(&stats);
    for (size_t keep = 26; keep <= 95; keep++) {
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
        assert_int_equal(s->kv_bytes_staged, (keep > 33) ? 33 : 0);
        assert_int_equal(s->kv_stage_waits, (keep > 34) ? 34 : 0);
        assert_int_equal(s->roles, (keep > 35) ? 3 : 0);
        assert_int_equal(s->kv_foreign_pieces, (keep > 36) ? 36 : 0);
        assert_int_equal(s->log_lines_dropped, (keep > 37) ? 37 : 0);
        assert_int_equal(s->rates.prefill_step_ns, (keep > 38) ? 38 : 0);
        assert_int_equal(s->rates.prefill_token_ns, (keep > 39) ? 39 : 0);
        assert_int_equal(s->rates.prefill_kilopair_ns, (keep > 40) ? 40 : 0);
        assert_int_equal(s->rates.prefill_kiloread_ns, (keep > 41) ? 41 : 0);
        assert_int_equal(s->rates.decode_step_ns, (keep > 42) ? 42 : 0);
        assert_int_equal(s->rates.decode_seq_ns, (keep > 43) ? 43 : 0);
        assert_int_equal(s->rates.decode_kiloread_ns, (keep > 44) ? 44 : 0);
        assert_int_equal(s->rates.transfer_start_ns, (keep > 45) ? 45 : 0);
        assert_int_equal(s->rates.transfer_mib_ns, (keep > 46) ? 46 : 0);
        assert_int_equal(s->rates.prefill_error, (keep > 47) ? 47 : 0);
        assert_int_equal(s->rates.decode_error, (keep > 48) ? 48 : 0);
        assert_int_equal(s->rates.transfer_error, (keep > 49) ? 49 : 0);
        assert_int_equal(s->lent_pieces, (keep > 50) ? 50 : 0);
        assert_int_equal(s->lent_us, (keep > 51) ? 51 : 0);
        assert_int_equal(s->lent_again, (keep > 52) ? 52 : 0);
        assert_int_equal(s->pauses, (keep > 53) ? 53 : 0);
        assert_int_equal(s->resumes, (keep > 54) ? 54 : 0);
        assert_int_equal(s->tokens_recomputed, (keep > 55) ? 55 : 0);
        assert_int_equal(s->yielded_us, (keep > 56) ? 56 : 0);
        assert_int_equal(s->blocks_windowed, (keep > 57) ? 57 : 0);
        assert_int_equal(s->blocks_slid, (keep > 58) ? 58 : 0);
        assert_int_equal(s->still_ms, (keep > 59) ? 59 : 0);
        assert_int_equal(s->duty, (keep > 60) ? BT_ADMIN_STATE_OFF
                                              : BT_ADMIN_STATE_AS_IT_IS);
        assert_int_equal(s->kv_bytes_shared, (keep > 61) ? 61 : 0);
        assert_int_equal(s->overlapped_iterations, (keep > 62) ? 62 : 0);
        assert_int_equal(s->waiting_for_kv_requests, (keep > 63) ? 63 : 0);
        assert_int_equal(s->draft_steps, (keep > 64) ? 64 : 0);
        assert_int_equal(s->drafted[2], (keep > 85) ? 85 : 0);
        assert_int_equal(s->accepted[2], (keep > 86) ? 86 : 0);
        assert_int_equal(s->drafted[3], (keep > 87) ? 87 : 0);
        assert_int_equal(s->accepted[3], (keep > 88) ? 88 : 0);
        assert_int_equal(s->drafted[4], (keep > 93) ? 93 : 0);
        assert_int_equal(s->accepted[4], (keep > 94) ? 94 : 0);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(s->drafted[i], (keep > 65 + i) ? 65 + i : 0);
            assert_int_equal(s->accepted[i], (keep > 67 + i) ? 67 + i : 0);
        }
        for (unsigned i = 0; i < BT_WIRE_DRAFT_POSITIONS; i++) {
            assert_int_equal(s->accepted_at[i], (keep > 69 + i) ? 69 + i : 0);
        }
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
}

/* REQUEST of a build without spaces, biases or groups, and of none that ever
 * was with half of them. */
static void request_without_namespace_or_group_has_none(void **state)
{
    const bt_msg_t request = wire_request();
    bt_strbuf_t buf = wire_encoded(&request);
    bt_msg_t got;

    (void)state;
    for (size_t keep = 11; keep <= 36; keep++) {
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.request.space.lo, (keep > 11) ? 5 : 0);
        assert_true(got.u.request.space.hi == ((keep > 12) ? UINT64_MAX : 0));
        assert_int_equal(got.u.request.sampling.n_logit_biases,
                         (keep > 13) ? 2 : 0);
        assert_int_equal(got.u.request.fanout, (keep > 14) ? 41 : 0);
        assert_int_equal(got.u.request.fanout_size, (keep > 15) ? 4096 : 0);
        assert_int_equal(got.u.request.wants.what, (keep > 16) ? 5 : 0);
        assert_int_equal(got.u.request.wants.n_top, (keep > 17) ? 20 : 0);
        assert_true(got.u.request.sampling.min_p ==
                    ((keep > 18) ? 0.0625f : 0.0f));
        assert_int_equal(got.u.request.first_ms, (keep > 20) ? 1500 : 0);
        assert_int_equal(got.u.request.itl_ms, (keep > 21) ? 40 : 0);
        assert_int_equal(got.u.request.n_draft_ids, (keep > 22) ? 2 : 0);
        assert_int_equal(got.u.request.max_drafts,
                         (keep > 23) ? 6 : UINT32_MAX);
        assert_true(bt_sampling_has_processors(&got.u.request.sampling) ==
                    (keep > 24));
        assert_int_equal(got.u.request.beams.width, (keep > 25) ? 8 : 0);
        assert_int_equal(got.u.request.beams.n_returned, (keep > 26) ? 3 : 0);
        assert_true(got.u.request.beams.length_penalty ==
                    ((keep > 27) ? -0.5f : 0.0f));
        assert_int_equal(got.u.request.beams.early_stopping,
                         (keep > 28) ? 2 : 0);
        assert_int_equal(got.u.request.grammar_bytes, (keep > 29) ? 3 : 0);
        assert_int_equal(got.u.request.complete_within, (keep > 30) ? 77 : 0);
        assert_int_equal(bt_table_n_rows(&got.u.request.table),
                         (keep > 33) ? 3 : 0);
        assert_int_equal(got.u.request.adapter.lo, (keep > 34) ? 6 : 0);
        assert_true(got.u.request.adapter.hi == ((keep > 35) ? UINT64_MAX : 0));
        bt_strbuf_fini(&shorter);
    }
    bt_strbuf_fini(&buf);
}

/* A build that knows only the first eight takes those. */
static void further_end_ids_follow_the_first(void **state)
{
    bt_msg_t request = wire_request();
    bt_sampling_t *const s = &request.u.request.sampling;
    bt_strbuf_t buf;
    bt_msg_t got;

    (void)state;
    for (uint32_t i = 0; i < BT_MAX_END_IDS; i++) {
        s->end_ids[i] = 1000 + i;
    }
    for (uint32_t n = 0; n <= BT_MAX_END_IDS; n++) {
        const uint32_t first = (n < 8) ? n : 8;
        bt_strbuf_t shorter;

        s->n_end_ids = n;
        buf = wire_encoded(&request);
        assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
        assert_int_equal(got.u.request.sampling.n_end_ids, n);
        assert_memory_equal(got.u.request.sampling.end_ids, s->end_ids,
                            n * sizeof(s->end_ids[0]));
        shorter = wire_cut_to(&buf, 19);
        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.request.sampling.n_end_ids, first);
        assert_memory_equal(got.u.request.sampling.end_ids, s->end_ids,
                            first * sizeof(s->end_ids[0]));
        bt_strbuf_fini(&shorter);
        bt_strbuf_fini(&buf);
    }
    s->n_end_ids = BT_MAX_END_IDS + 1;
    bt_strbuf_init(&buf, 1 << 20);
    bt_wire_encode(&request, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
    bt_strbuf_fini(&buf);
}

/* TOKENS of a build that tells no log-probs, and one that has none to tell. */
static void tokens_without_log_probs_have_none(void **state)
{
    bt_msg_t msgs[WIRE_N_SAMPLES];
    bt_msg_t got;
    bt_strbuf_t shorter;
    bt_strbuf_t buf;

    (void)state;
    (void)wire_samples(msgs);
    buf = wire_encoded(&msgs[BT_MSG_TOKENS - 1]);
    shorter = wire_cut_to(&buf, 2);
    assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
    assert_int_equal(got.u.tokens.n, 2);
    assert_int_equal(got.u.tokens.n_scores, 0);
    bt_strbuf_fini(&shorter);
    bt_strbuf_fini(&buf);
    msgs[BT_MSG_TOKENS - 1].u.tokens.n_scores = 0;
    buf = wire_encoded(&msgs[BT_MSG_TOKENS - 1]);
    /* An empty list, and no counts of drafts (bin 8 of 0 bytes). */
    assert_memory_equal(buf.data + buf.len - 3, "\x90\xc4\x00", 3);
    bt_strbuf_fini(&buf);
}

static bt_status_t encode_scores(const bt_token_score_t *scores, uint32_t n)
{
    const bt_msg_t msg = {
        .type = BT_MSG_TOKENS,
        .u.tokens = {
            .n = 2, .tokens = wire_tokens, .n_scores = n, .scores = scores}};
    bt_status_t status;
    bt_strbuf_t buf;

    bt_strbuf_init(&buf, WIRE_LIMIT);
    bt_wire_encode(&msg, &buf);
    status = bt_strbuf_status(&buf);
    bt_strbuf_fini(&buf);
    return status;
}

static void each_token_of_a_message_has_at_most_one_score(void **state)
{
    bt_token_score_t scores[] = {{.token = 0}, {.token = 1}};

    (void)state;
    assert_int_equal(encode_scores(scores, 2), BT_OK);
    scores[1].token = 2; /* of two */
    assert_int_equal(encode_scores(scores, 2), BT_ERR_INVALID_PARAM);
    scores[1].token = 0;
    assert_int_equal(encode_scores(scores, 2), BT_ERR_INVALID_PARAM);
    scores[0].score.n_top = BT_MAX_TOP_LOGPROBS;
    assert_int_equal(encode_scores(scores, 1), BT_OK);
    scores[0].score.n_top++;
    assert_int_equal(encode_scores(scores, 1), BT_ERR_INVALID_PARAM);
}

/* PEER and GRANT of a build without lists: one each. */
static void single_blob_is_a_list_of_one(void **state)
{
    bt_msg_t msgs[WIRE_N_SAMPLES];
    bt_msg_t got;

    (void)state;
    (void)wire_samples(msgs); /* they are in the order of their types */
    for (size_t keep = 4; keep <= 10; keep++) {
        bt_strbuf_t buf = wire_encoded(&msgs[BT_MSG_PEER - 1]);
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.peer.tp, 1);
        assert_int_equal(got.u.peer.pp, 1);
        assert_int_equal(got.u.peer.n_ranks, 1);
        assert_int_equal(got.u.peer.ranks[0].kvt_bytes, 6);
        assert_int_equal(got.u.peer.ranks[0].block_bytes,
                         (keep > 6) ? 368640 : 0);
        assert_int_equal(got.u.peer.layout.lo, (keep > 7) ? 7 : 0);
        assert_true(got.u.peer.layout.hi == ((keep > 8) ? UINT64_MAX : 0));
        assert_int_equal(got.u.peer.sends, (keep > 9) ? 1 : 0);
        bt_strbuf_fini(&shorter);
        bt_strbuf_fini(&buf);
    }
    for (size_t keep = 6; keep <= 7; keep++) {
        bt_strbuf_t buf = wire_encoded(&msgs[BT_MSG_GRANT - 1]);
        bt_strbuf_t shorter = wire_cut_to(&buf, keep);

        assert_int_equal(wire_decode(shorter.data, shorter.len, &got), BT_OK);
        assert_int_equal(got.u.grant.n_regions, 1);
        assert_int_equal(got.u.grant.regions[0].to, 0);
        assert_int_equal(got.u.grant.regions[0].from, 0);
        assert_int_equal(got.u.grant.regions[0].blob_bytes, 6);
        bt_strbuf_fini(&shorter);
        bt_strbuf_fini(&buf);
    }
}

/* Of several ranks, or regions, who knows no lists finds none at all: it cannot
 * take the first for the whole. */
static void several_blobs_are_none_to_a_peer_without_lists(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3, 4, 5};
    const bt_wire_rank_t ranks[] = {
        {.block_bytes = UINT64_MAX, .kvt = bytes, .kvt_bytes = 1},
        {.kvt = bytes + 1, .kvt_bytes = 4}};
    const bt_wire_region_t regions[] = {
        {.to = 0, .from = 63, .blob = bytes, .blob_bytes = 5},
        {.to = 63, .from = 0, .blob = bytes + 2, .blob_bytes = 1}};
    bt_msg_t msgs[3];
    static const size_t n_before[] = {17, 4, 6};

    (void)state;
    memset(msgs, 0, sizeof(msgs));
    msgs[0] = wire_hello();
    msgs[0].u.hello.ranks = ranks;
    msgs[0].u.hello.n_ranks = 2;
    msgs[0].u.hello.pp = 2;
    msgs[1].type = BT_MSG_PEER;
    msgs[1].u.peer = (bt_msg_peer_t){
        .name = "decode-0", .ranks = ranks, .n_ranks = 2, .tp = 2, .pp = 1};
    msgs[2].type = BT_MSG_GRANT;
    msgs[2].u.grant = (bt_msg_grant_t){.regions = regions, .n_regions = 2};
    for (size_t i = 0; i < BT_ARRAY_LEN(msgs); i++) {
        bt_strbuf_t buf = wire_encoded(&msgs[i]);
        bt_strbuf_t before = wire_cut_to(&buf, n_before[i]);
        bt_msg_t got;

        memset(&got, 0, sizeof(got));
        assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
        wire_assert_equal(&got, &msgs[i]);
        assert_int_equal(wire_decode(before.data, before.len, &got), BT_OK);
        assert_int_equal((i == 0)   ? got.u.hello.n_ranks
                         : (i == 1) ? got.u.peer.n_ranks
                                    : got.u.grant.n_regions,
                         0);
        bt_strbuf_fini(&before);
        bt_strbuf_fini(&buf);
    }
}

static void wire_lists_are_bounded(void **state)
{
    static const uint8_t one[] = {1};
    static bt_wire_region_t regions[BT_WIRE_MAX_REGIONS + 1];
    static bt_wire_rank_t ranks[BT_WIRE_MAX_RANKS + 1];
    bt_msg_t msg = {.type = BT_MSG_GRANT};
    bt_msg_t got;
    bt_strbuf_t buf;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(regions); i++) {
        regions[i] = (bt_wire_region_t){.blob = one, .blob_bytes = 1};
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(ranks); i++) {
        ranks[i] = (bt_wire_rank_t){.kvt = one, .kvt_bytes = 1};
    }
    msg.u.grant.regions = regions;
    msg.u.grant.n_regions = BT_WIRE_MAX_REGIONS;
    buf = wire_encoded(&msg);
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_OK);
    assert_int_equal(got.u.grant.n_regions, BT_WIRE_MAX_REGIONS);
    /* The list of regions is an array 16 of this number; one more of the same
     * is refused. By hand: [0, 0, bin of 1 byte]. */
    bt_strbuf_append(&buf, "\x93\x00\x00\xc4\x01\x01", 6);
    for (size_t i = 0; i + 2 < buf.len; i++) {
        if (memcmp(buf.data + i, "\xdc\x10\x00", 3) == 0) {
            buf.data[i + 2] = 1;
            break;
        }
    }
    assert_int_equal(wire_decode(buf.data, buf.len, &got), BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&buf);

    bt_strbuf_init(&buf, WIRE_LIMIT);
    msg.u.grant.n_regions++;
    bt_wire_encode(&msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
    bt_strbuf_fini(&buf);
    bt_strbuf_init(&buf, WIRE_LIMIT);
    msg = wire_hello();
    msg.u.hello.ranks = ranks;
    msg.u.hello.n_ranks = 2; /* but 1 x 1 */
    bt_wire_encode(&msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
    bt_strbuf_fini(&buf);
    bt_strbuf_init(&buf, WIRE_LIMIT);
    msg.u.hello.tp = BT_WIRE_MAX_RANKS + 1;
    msg.u.hello.n_ranks = BT_WIRE_MAX_RANKS + 1;
    bt_wire_encode(&msg, &buf);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_INVALID_PARAM);
    bt_strbuf_fini(&buf);
}

/* A list outlives the message that it came in. */
static void copied_list_owns_its_memory(void **state)
{
    uint8_t bytes[] = {1, 2, 3};
    const bt_wire_rank_t ranks[] = {
        {.block_bytes = 7, .kvt = bytes, .kvt_bytes = 2},
        {.block_bytes = 8, .kvt = bytes + 2, .kvt_bytes = 1}};
    const bt_wire_region_t regions[] = {
        {.to = 3, .from = 4, .blob = bytes + 1, .blob_bytes = 2},
        {.to = 5, .from = 6}};
    bt_wire_region_t *w = NULL;
    bt_wire_rank_t *r = NULL;

    (void)state;
    assert_int_equal(bt_wire_ranks_copy(ranks, 2, &r), BT_OK);
    assert_int_equal(bt_wire_regions_copy(regions, 2, &w), BT_OK);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(r[0].block_bytes, 7);
    assert_int_equal(r[1].block_bytes, 8);
    assert_int_equal(r[0].kvt_bytes, 2);
    assert_memory_equal(r[0].kvt, "\1\2", 2);
    assert_memory_equal(r[1].kvt, "\3", 1);
    assert_int_equal(w[0].to, 3);
    assert_int_equal(w[1].from, 6);
    assert_memory_equal(w[0].blob, "\2\3", 2);
    assert_int_equal(w[1].blob_bytes, 0);
    bt_free(r);
    bt_free(w);
    assert_int_equal(bt_wire_ranks_copy(NULL, 0, &r), BT_OK);
    assert_null(r);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_wire_ranks_copy(ranks, 2, &r), BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_wire_regions_copy(regions, 2, &w), BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
}

/* By hand: arrays of 1 or more elements, the first of which is the type. */
static void unknown_message_type_is_counted_and_ignored(void **state)
{
    static const uint8_t types[][9] = {
        {0x91, 27},
        {0x93, 27, 0xc0, 0x81, 1, 2}, /* nil, {1: 2} */
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
    for (uint64_t n = 3; n <= 1000; n++) { /* type 27 came twice above */
        assert_int_equal(bt_wire_decode(fresh, types[0], sizes[0], &got),
                         BT_ERR_UNSUPPORTED);
        skip = bt_wire_skipped(fresh);
        assert_int_equal(skip.type, 27);
        assert_int_equal(skip.n, n);
        assert_int_equal(skip.say, (n == 10) || (n == 100) || (n == 1000));
    }
    /* Of many types only the first ones fill the log. */
    for (uint8_t type = 27, said = 0; type < 127; type++) {
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
static void unknown_fields_inside_lists_are_ignored(void **state)
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
    for (size_t i = 0; i < SAMPLING_AT; i++) {
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
        outer = wire_with_element(&buf, SAMPLING_AT, inner.data, inner.len);
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
static void largest_message_of_a_newer_peer_is_read(void **state)
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

static void link_uses_the_newest_common_version(void **state)
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
        BT_TEST(unknown_fields_of_a_newer_peer_are_ignored),
        BT_TEST(missing_required_field_is_refused),
        BT_TEST(missing_later_field_has_its_default),
        BT_TEST(tokens_without_log_probs_have_none),
        BT_TEST(each_token_of_a_message_has_at_most_one_score),
        BT_TEST(request_without_namespace_or_group_has_none),
        cmocka_unit_test(further_end_ids_follow_the_first),
        BT_TEST(single_blob_is_a_list_of_one),
        BT_TEST(several_blobs_are_none_to_a_peer_without_lists),
        BT_TEST(wire_lists_are_bounded),
        BT_TEST(copied_list_owns_its_memory),
        BT_TEST(unknown_message_type_is_counted_and_ignored),
        BT_TEST(unknown_fields_inside_lists_are_ignored),
        BT_TEST(largest_message_of_a_newer_peer_is_read),
        BT_TEST(link_uses_the_newest_common_version),
    };

    return cmocka_run_group_tests(tests, wire_setup, wire_teardown);
}
