/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as the landed version of protocol 2 sends them, kept in
 * tests/golden/wire_v2. The expected values are those of GOLDEN in
 * tests/fuzz/make_wire_corpus.py, which knows nothing of our encoder. */
#include <string.h>

#include "common/base/status.h"
#include "tests/unit/common/wire/wire_fixture.h"

#define MAX_BYTES 512

/* By type. */
static const char *const names[] = {
    [BT_MSG_HELLO] = "hello",   [BT_MSG_REQUEST] = "request",
    [BT_MSG_GRANT] = "grant",   [BT_MSG_CANCEL] = "cancel",
    [BT_MSG_TOKENS] = "tokens", [BT_MSG_PREFILLED] = "prefilled",
    [BT_MSG_JOINED] = "joined", [BT_MSG_FAILED] = "failed",
    [BT_MSG_ENDED] = "ended",   [BT_MSG_STATS] = "stats",
    [BT_MSG_PEER] = "peer",     [BT_MSG_PEER_GONE] = "peer_gone",
    [BT_MSG_DRAIN] = "drain",
};

static const char *const files[] = {"golden/wire_v2/landed.txt",
                                    "golden/wire_v2/independent.txt"};

static void check_key(bt_req_key_t key)
{
    assert_int_equal(key.id, 42);
    assert_int_equal(key.attempt, 3);
}

static void check_hello(const bt_msg_t *m)
{
    const bt_msg_hello_t *h = &m->u.hello;

    assert_int_equal(h->protocol, 2);
    assert_int_equal(h->role, BT_ROLE_DECODE);
    assert_int_equal(h->instance, 0x1122334455667788u);
    assert_string_equal(h->name, "decode-0");
    assert_int_equal(h->model.lo, 101);
    assert_int_equal(h->model.hi, 102);
    assert_string_equal(h->profile, "cpu-avx2");
    assert_int_equal(h->kv_type, 1);
    assert_int_equal(h->tokens_per_block, 16);
    assert_int_equal(h->layout.lo, 103);
    assert_int_equal(h->layout.hi, 104);
    assert_int_equal(h->context_tokens, 8192);
    assert_int_equal(h->max_batch, 24);
    assert_int_equal(h->n_blocks, 1024);
    assert_int_equal(h->flags, BT_HELLO_LOCAL_PREFILL);
    assert_int_equal(h->n_ranks, 1);
    assert_int_equal(h->ranks[0].kvt_bytes, 3);
    assert_memory_equal(h->ranks[0].kvt, "\1\2\3", 3);
    /* later fields: what they are taken for */
    assert_int_equal(h->protocol_min, 2);
    assert_string_equal(h->model_name, "");
    assert_string_equal(h->version_text, "");
    assert_int_equal(h->tp, 1);
    assert_int_equal(h->pp, 1);
    assert_int_equal(h->ranks[0].block_bytes, 0);
}

static void check_sampling(const bt_sampling_t *s)
{
    assert_true(s->temperature == 0.5f);
    assert_int_equal(s->top_k, 40);
    assert_true(s->top_p == 0.75f);
    assert_true(s->repetition_penalty == 1.25f);
    assert_true(s->presence_penalty == 0.375f);
    assert_true(s->frequency_penalty == -0.5f);
    assert_int_equal(s->seed, 0x8000000000000009u);
    assert_int_equal(s->min_tokens, 3);
    assert_int_equal(s->n_end_ids, 2);
    assert_int_equal(s->end_ids[0], 2);
    assert_int_equal(s->end_ids[1], 49152);
    assert_int_equal(s->n_bad_words, 2);
    assert_int_equal(s->bad_words[0].n, 2);
    assert_int_equal(s->bad_words[0].ids[0], 11);
    assert_int_equal(s->bad_words[0].ids[1], 12);
    assert_int_equal(s->bad_words[1].n, 1);
    assert_int_equal(s->bad_words[1].ids[0], 13);
}

static void check_request(const bt_msg_t *m)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 49151};
    const bt_msg_request_t *r = &m->u.request;

    check_key(r->key);
    assert_int_equal(r->kind, BT_REQUEST_GENERATE);
    assert_int_equal(r->peer, 99);
    assert_int_equal(r->n_prompt, 4);
    assert_int_equal(r->n_tokens, 5);
    assert_memory_equal(r->tokens, tokens, sizeof(tokens));
    assert_int_equal(r->max_new, 128);
    assert_int_equal(r->deadline_ms, 60000);
    assert_int_equal(r->priority, 7);
    check_sampling(&r->sampling);
}

static void check_grant(const bt_msg_t *m)
{
    check_key(m->u.grant.key);
    assert_int_equal(m->u.grant.instance, 99);
    assert_int_equal(m->u.grant.n_cached, 64);
    assert_int_equal(m->u.grant.n_regions, 1);
    assert_int_equal(m->u.grant.regions[0].to, 0);
    assert_int_equal(m->u.grant.regions[0].from, 0);
    assert_int_equal(m->u.grant.regions[0].blob_bytes, 6);
    assert_memory_equal(m->u.grant.regions[0].blob, "window", 6);
}

static void check_cancel(const bt_msg_t *m)
{
    check_key(m->u.cancel.key);
    assert_int_equal(m->u.cancel.finish, BT_FINISH_STOP);
}

static void check_tokens(const bt_msg_t *m)
{
    const bt_token_t *t = m->u.tokens.tokens;

    assert_int_equal(m->u.tokens.n, 2);
    check_key(t[0].key);
    assert_int_equal(t[0].index, 0);
    assert_int_equal(t[0].id, 5);
    assert_int_equal(t[0].finish, BT_FINISH_NONE);
    assert_int_equal(t[1].key.id, 43);
    assert_int_equal(t[1].key.attempt, 0);
    assert_int_equal(t[1].index, 700);
    assert_int_equal(t[1].id, 49151);
    assert_int_equal(t[1].finish, BT_FINISH_LENGTH);
}

static void check_prefilled(const bt_msg_t *m)
{
    check_key(m->u.prefilled.key);
    assert_int_equal(m->u.prefilled.queue_us, 1000);
    assert_int_equal(m->u.prefilled.compute_us, 2000);
    assert_int_equal(m->u.prefilled.n_chunks, 5);
    assert_int_equal(m->u.prefilled.n_cached, 48);
}

static void check_joined(const bt_msg_t *m)
{
    check_key(m->u.joined.key);
    assert_int_equal(m->u.joined.grant_wait_us, 11);
    assert_int_equal(m->u.joined.transfer_us, 12);
    assert_int_equal(m->u.joined.transfer_bytes, 13);
    assert_int_equal(m->u.joined.n_descriptors, 14);
    assert_int_equal(m->u.joined.queue_us, 15);
    assert_int_equal(m->u.joined.handover_us, 16);
}

static void check_failed(const bt_msg_t *m)
{
    check_key(m->u.failed.key);
    assert_int_equal(m->u.failed.status, -65);
    assert_string_equal(m->u.failed.text, "prefill: out of blocks");
}

static void check_ended(const bt_msg_t *m)
{
    check_key(m->u.ended.key);
    assert_int_equal(m->u.ended.decode_us, 5000);
    assert_int_equal(m->u.ended.n_iterations, 12);
    assert_int_equal(m->u.ended.join_wait_us, 300);
    assert_int_equal(m->u.ended.transfer_tail_us, 900);
}

static void check_stats(const bt_msg_t *m)
{
    const bt_msg_stats_t *s = &m->u.stats;
    const uint64_t in_order[] = {
        s->active_requests,
        s->max_requests,
        s->scheduled_requests,
        s->context_requests,
        s->generation_requests,
        s->waiting_requests,
        s->paused_requests,
        s->blocks_max,
        s->blocks_free,
        s->blocks_used,
        s->blocks_reused,
        s->tokens_per_block,
        s->total_context_tokens,
        s->micro_batch_id,
        s->leases,
        s->quarantined_blocks,
        s->open_fds,
        s->iteration_counter,
        s->memory_cpu_bytes,
        s->memory_gpu_bytes,
        s->memory_pinned_bytes,
        s->kv_bytes_sent,
        s->kv_bytes_received,
        s->kv_stale_discarded,
        s->kv_checksum_failures,
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(in_order); i++) {
        assert_int_equal(in_order[i], 1001 + i);
    }
    assert_int_equal(s->tokens_generated, 0);
    assert_int_equal(s->prompt_tokens, 0);
    assert_int_equal(s->tokens_reused, 0);
    assert_int_equal(s->process_cpu_ms, 0);
    assert_int_equal(s->resident_bytes, 0);
    assert_int_equal(s->start_unix_s, 0);
    assert_int_equal(s->blocks_cached, 0);
    assert_int_equal(s->kv_bytes_staged, 0);
    assert_int_equal(s->kv_stage_waits, 0);
    assert_int_equal(s->rates.prefill_token_ns, 0);
}

static void check_peer(const bt_msg_t *m)
{
    assert_int_equal(m->u.peer.instance, 99);
    assert_string_equal(m->u.peer.name, "decode-1");
    assert_int_equal(m->u.peer.n_ranks, 1);
    assert_int_equal(m->u.peer.ranks[0].kvt_bytes, 4);
    assert_memory_equal(m->u.peer.ranks[0].kvt, "blob", 4);
    assert_int_equal(m->u.peer.ranks[0].block_bytes, 0);
    assert_int_equal(m->u.peer.tp, 1);
    assert_int_equal(m->u.peer.pp, 1);
    assert_int_equal(m->u.peer.layout.lo, 0);
    assert_int_equal(m->u.peer.layout.hi, 0);
}

static void check_peer_gone(const bt_msg_t *m)
{
    assert_int_equal(m->u.peer_gone.instance, 99);
}

static void check_drain(const bt_msg_t *m)
{
    assert_int_equal(m->type, BT_MSG_DRAIN);
}

static void golden_frames_are_read_field_by_field(void **state)
{
    static void (*const checks[])(const bt_msg_t *) = {
        [BT_MSG_HELLO] = check_hello,   [BT_MSG_REQUEST] = check_request,
        [BT_MSG_GRANT] = check_grant,   [BT_MSG_CANCEL] = check_cancel,
        [BT_MSG_TOKENS] = check_tokens, [BT_MSG_PREFILLED] = check_prefilled,
        [BT_MSG_JOINED] = check_joined, [BT_MSG_FAILED] = check_failed,
        [BT_MSG_ENDED] = check_ended,   [BT_MSG_STATS] = check_stats,
        [BT_MSG_PEER] = check_peer,     [BT_MSG_PEER_GONE] = check_peer_gone,
        [BT_MSG_DRAIN] = check_drain,
    };

    (void)state;
    for (size_t f = 0; f < BT_ARRAY_LEN(files); f++) {
        for (uint32_t type = 1; type < BT_ARRAY_LEN(names); type++) {
            uint8_t frame[MAX_BYTES];
            const size_t n =
                bt_test_read_hex(files[f], names[type], frame, sizeof(frame));
            bt_msg_t got;

            memset(&got, 0xA5, sizeof(got));
            assert_int_equal(wire_decode(frame, n, &got), BT_OK);
            assert_int_equal(got.type, type);
            checks[type](&got);
        }
    }
}

/* What we say to a peer of the landed version: to the byte what it would have
 * said itself, and after it fields that it passes over, as its decoder does
 * with all that it does not know. */
static void encoded_messages_begin_as_the_golden_frames(void **state)
{
    (void)state;
    for (uint32_t type = 1; type < BT_ARRAY_LEN(names); type++) {
        uint8_t frame[MAX_BYTES];
        const size_t n =
            bt_test_read_hex(files[0], names[type], frame, sizeof(frame));
        bt_strbuf_t ours;
        bt_strbuf_t cut;
        bt_msg_t got;
        size_t n_elements;
        size_t n_ours;
        const size_t header = wire_array_header(frame, &n_elements);

        assert_int_equal(wire_decode(frame, n, &got), BT_OK);
        ours = wire_encoded(&got);
        (void)wire_array_header((const uint8_t *)ours.data, &n_ours);
        assert_true(n_ours >= n_elements);
        cut = wire_cut_to(&ours, n_elements);
        assert_int_equal(cut.len - 3, n - header); /* cut has 3 before */
        assert_memory_equal(cut.data + 3, frame + header, n - header);
        bt_strbuf_fini(&cut);
        bt_strbuf_fini(&ours);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(golden_frames_are_read_field_by_field),
        BT_TEST(encoded_messages_begin_as_the_golden_frames),
    };

    return cmocka_run_group_tests(tests, wire_setup, wire_teardown);
}
