/* SPDX-License-Identifier: Apache-2.0 */
/* The lives of jobs: phases × events against the drawings in the headers, by
 * hand, and grants that come at a wrong time to real jobs. */
#include "tests/unit/worker/sim.h"

#include "common/base/status.h"
#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"
#include "worker/admin.h"

typedef struct arrow {
    unsigned from, event, to;
} arrow_t;

/* prefill_worker/prefill.h, arrow by arrow. */
static const arrow_t prefill_arrows[] = {
    {BT_PREFILL_QUEUED, BT_PREFILL_GRANT, BT_PREFILL_GRANTED},
    {BT_PREFILL_QUEUED, BT_PREFILL_START, BT_PREFILL_COMPUTING},
    {BT_PREFILL_GRANTED, BT_PREFILL_START, BT_PREFILL_STREAMING},
    {BT_PREFILL_COMPUTING, BT_PREFILL_GRANT, BT_PREFILL_STREAMING},
    {BT_PREFILL_COMPUTING, BT_PREFILL_COMPUTED, BT_PREFILL_WAITING},
    {BT_PREFILL_STREAMING, BT_PREFILL_COMPUTED, BT_PREFILL_SENDING},
    {BT_PREFILL_WAITING, BT_PREFILL_GRANT, BT_PREFILL_SENDING},
    {BT_PREFILL_WAITING, BT_PREFILL_DROP, BT_PREFILL_DROPPED},
    {BT_PREFILL_DROPPED, BT_PREFILL_GRANT, BT_PREFILL_RESUMING},
    {BT_PREFILL_RESUMING, BT_PREFILL_START, BT_PREFILL_STREAMING},
    {BT_PREFILL_SENDING, BT_PREFILL_SENT, BT_PREFILL_ENDED},
    {BT_PREFILL_QUEUED, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_GRANTED, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_COMPUTING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_STREAMING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_WAITING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_SENDING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_DROPPED, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_RESUMING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_FOLLOWING, BT_PREFILL_START, BT_PREFILL_DRAWING},
    {BT_PREFILL_DRAWING, BT_PREFILL_COMPUTED, BT_PREFILL_SHARING},
    {BT_PREFILL_SHARING, BT_PREFILL_SENT, BT_PREFILL_ENDED},
    {BT_PREFILL_FOLLOWING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_DRAWING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_SHARING, BT_PREFILL_ABORT, BT_PREFILL_ENDING},
    {BT_PREFILL_ENDING, BT_PREFILL_FREE, BT_PREFILL_ENDED},
};

/* decode_worker/decode.h, the same. */
static const arrow_t decode_arrows[] = {
    {BT_DECODE_QUEUED, BT_DECODE_OPEN, BT_DECODE_LEASED},
    {BT_DECODE_QUEUED, BT_DECODE_RUN, BT_DECODE_RUNNING},
    {BT_DECODE_QUEUED, BT_DECODE_ABORT, BT_DECODE_ENDING},
    {BT_DECODE_LEASED, BT_DECODE_PROVEN, BT_DECODE_JOINING},
    {BT_DECODE_LEASED, BT_DECODE_ABORT, BT_DECODE_QUARANTINED},
    {BT_DECODE_JOINING, BT_DECODE_RUN, BT_DECODE_RUNNING},
    {BT_DECODE_JOINING, BT_DECODE_ABORT, BT_DECODE_ENDING},
    {BT_DECODE_FOLLOWING, BT_DECODE_OPEN, BT_DECODE_SHARING},
    {BT_DECODE_FOLLOWING, BT_DECODE_RUN, BT_DECODE_RUNNING},
    {BT_DECODE_FOLLOWING, BT_DECODE_ABORT, BT_DECODE_ENDING},
    {BT_DECODE_SHARING, BT_DECODE_RUN, BT_DECODE_RUNNING},
    {BT_DECODE_SHARING, BT_DECODE_ABORT, BT_DECODE_ENDING},
    {BT_DECODE_RUNNING, BT_DECODE_LEFT, BT_DECODE_ENDING},
    {BT_DECODE_RUNNING, BT_DECODE_ABORT, BT_DECODE_STOPPING},
    {BT_DECODE_RUNNING, BT_DECODE_PAUSE, BT_DECODE_PAUSING},
    {BT_DECODE_PAUSING, BT_DECODE_LEFT, BT_DECODE_ENDING},
    {BT_DECODE_PAUSING, BT_DECODE_PARK, BT_DECODE_PAUSED},
    {BT_DECODE_PAUSING, BT_DECODE_ABORT, BT_DECODE_STOPPING},
    {BT_DECODE_PAUSED, BT_DECODE_RUN, BT_DECODE_RUNNING},
    {BT_DECODE_PAUSED, BT_DECODE_ABORT, BT_DECODE_ENDING},
    {BT_DECODE_STOPPING, BT_DECODE_LEFT, BT_DECODE_ENDING},
    {BT_DECODE_QUARANTINED, BT_DECODE_FREE, BT_DECODE_ENDED},
    {BT_DECODE_ENDING, BT_DECODE_FREE, BT_DECODE_ENDED},
};

static bool prefill_after(unsigned phase, unsigned event, unsigned *next_p)
{
    bt_prefill_phase_t next = (bt_prefill_phase_t)*next_p;
    const bool is_legal = bt_prefill_phase_after(
        (bt_prefill_phase_t)phase, (bt_prefill_event_t)event, &next);

    *next_p = next;
    return is_legal;
}

static bool decode_after(unsigned phase, unsigned event, unsigned *next_p)
{
    bt_decode_phase_t next = (bt_decode_phase_t)*next_p;
    const bool is_legal = bt_decode_phase_after(
        (bt_decode_phase_t)phase, (bt_decode_event_t)event, &next);

    *next_p = next;
    return is_legal;
}

static void check_life(bool (*after)(unsigned, unsigned, unsigned *),
                       unsigned n_phases, unsigned n_events,
                       const arrow_t *arrows, size_t n_arrows)
{
    size_t n_legal = 0;

    for (unsigned phase = 0; phase < n_phases; phase++) {
        for (unsigned event = 0; event < n_events; event++) {
            unsigned next = phase;
            unsigned want = phase;
            bool is_drawn = false;

            for (size_t i = 0; i < n_arrows; i++) {
                if ((arrows[i].from == phase) && (arrows[i].event == event)) {
                    is_drawn = true;
                    want = arrows[i].to;
                }
            }
            assert_int_equal(after(phase, event, &next), is_drawn);
            assert_int_equal(next, want); /* untouched where refused */
            n_legal += is_drawn;
        }
    }
    assert_int_equal(n_legal, n_arrows);
}

static void job_transitions_match_the_documented_table(void **state)
{
    (void)state;
    check_life(prefill_after, BT_PREFILL_PHASES, BT_PREFILL_EVENTS,
               prefill_arrows, BT_ARRAY_LEN(prefill_arrows));
    check_life(decode_after, BT_DECODE_PHASES, BT_DECODE_EVENTS, decode_arrows,
               BT_ARRAY_LEN(decode_arrows));
}

/* What an arrow cannot do: blocks and places are taken and given back by some
 * events alone. */
static void job_phase_invariants_hold_on_every_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(prefill_arrows); i++) {
        const arrow_t *a = &prefill_arrows[i];
        const unsigned had =
            bt_prefill_phase_facts((bt_prefill_phase_t)a->from);
        const unsigned has = bt_prefill_phase_facts((bt_prefill_phase_t)a->to);

        if ((has & BT_PREFILL_IS_OVER) != 0) {
            assert_int_equal(has, BT_PREFILL_IS_OVER); /* counts nowhere */
            continue;
        }
        assert_int_equal((had ^ has) & BT_PREFILL_IS_GRANTED,
                         (a->event == BT_PREFILL_GRANT) ? BT_PREFILL_IS_GRANTED
                                                        : 0);
        assert_int_equal(
            (had ^ has) & BT_PREFILL_HAS_BLOCKS,
            ((a->event == BT_PREFILL_START) || (a->event == BT_PREFILL_DROP) ||
             (a->to == BT_PREFILL_SHARING)) /* its leader's are enough */
                ? BT_PREFILL_HAS_BLOCKS
                : 0);
        assert_int_equal((had ^ has) & BT_PREFILL_IN_ENGINE,
                         ((a->event == BT_PREFILL_START) ||
                          (a->event == BT_PREFILL_COMPUTED))
                             ? BT_PREFILL_IN_ENGINE
                             : 0);
        /* Waiting KV is that which has blocks and no grant (I4). */
        assert_int_equal(
            (has & BT_PREFILL_IS_WAITING_KV) != 0,
            (has & (BT_PREFILL_HAS_BLOCKS | BT_PREFILL_IS_GRANTED)) ==
                BT_PREFILL_HAS_BLOCKS);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(decode_arrows); i++) {
        const arrow_t *a = &decode_arrows[i];
        const unsigned had = bt_decode_phase_facts((bt_decode_phase_t)a->from);
        const unsigned has = bt_decode_phase_facts((bt_decode_phase_t)a->to);

        /* A seat comes with the blocks, and is kept while it is of use; that
         * of a follower is in its leader's lease until it runs. */
        assert_int_equal((has & BT_DECODE_HAS_SEAT) != 0,
                         (a->to != BT_DECODE_QUARANTINED) &&
                             (a->to != BT_DECODE_SHARING) &&
                             ((has & BT_DECODE_HAS_BLOCKS) != 0));
        /* Once over it stays so. */
        assert_true(((had & BT_DECODE_IS_OVER) == 0) ||
                    ((has & BT_DECODE_IS_OVER) != 0));
        assert_int_equal((has & BT_DECODE_IN_ENGINE) != 0,
                         (a->to == BT_DECODE_RUNNING) ||
                             (a->to == BT_DECODE_PAUSING) ||
                             (a->to == BT_DECODE_STOPPING));
    }
}

static bool prefill_phase_of(const sim_req_t *req, bt_prefill_phase_t *phase_p)
{
    bt_worker_t *w = &sim.nodes[req->p].w;
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &w->jobs)
    {
        const bt_job_t *job = BT_CONTAINER_OF(pos, bt_job_t, link);

        if (job->key.id == req->key.id) {
            *phase_p = ((const bt_prefill_job_t *)job)->phase;
            return true;
        }
    }
    return false;
}

/* Prefill pool of 8 blocks. A's KV (4) is complete and waits for its grant,
 * until B, which has its grant, needs all 8. A's grant comes at every round of
 * that, and again at every round after it: one of them counts. */
static void grant_counts_once_in_any_phase(void **state)
{
    bool seen[BT_PREFILL_PHASES] = {false}; /* when a later one came */
    bool first[BT_PREFILL_PHASES] = {false};

    (void)state;
    sim_expect_failures();
    for (uint32_t at = 1; at < 24; at++) {
        bt_prefill_phase_t phase;
        sim_req_t *a;
        sim_req_t *b = NULL;

        sim_open(1, 8, 64, BT_KVT_PATH_AUTO);
        a = sim_request_of(0, 0, 1, 16, 6);
        a->hold_grant = true;
        for (uint32_t i = 0; i < 40; i++) {
            if (i == 8) {
                b = sim_request_of(0, 0, 1, 32, 6);
            }
            sim_round();
            if ((i >= at) && (a->grant != NULL) &&
                prefill_phase_of(a, &phase)) {
                ((i == at) ? first : seen)[phase] = true;
                sim_pass_grant(a);
            }
        }
        sim_settle();
        sim_check_answered(a);
        sim_check_answered(b);
        assert_int_equal(a->n_prefilled, 1);
        sim_check_empty();
        sim_close();
    }
    assert_true(first[BT_PREFILL_COMPUTING] && first[BT_PREFILL_WAITING] &&
                first[BT_PREFILL_DROPPED]);
    assert_true(seen[BT_PREFILL_STREAMING] && seen[BT_PREFILL_SENDING] &&
                seen[BT_PREFILL_RESUMING]);
    sim_expected();
}

/* The transfer is under way, or the engine has the sequence, when it is
 * canceled: nothing begins again. */
static void grant_after_the_end_is_ignored(void **state)
{
    bool seen[BT_PREFILL_PHASES] = {false};

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_NETWORK);
    for (uint32_t at = 3; at < 16; at++) {
        sim_req_t *req = sim_request_of(0, 0, 1, 30, 8);
        bt_prefill_phase_t phase;

        req->hold_grant = true;
        sim_rounds(at);
        assert_non_null(req->grant);
        if (at % 2 == 0) {
            sim_pass_grant(req);
        }
        sim_cancel(req);
        for (uint32_t i = 0; i < 10; i++) {
            sim_pass_grant(req);
            sim_round();
            if (prefill_phase_of(req, &phase)) {
                seen[phase] = true;
            }
        }
        sim_settle();
        assert_int_equal(req->legs[0].n_failed, 0);
        sim_check_empty();
    }
    assert_true(seen[BT_PREFILL_ENDING]);
    sim_close();
}

static bt_decode_phase_t decode_phase_of(const sim_req_t *req)
{
    bt_worker_t *w = &sim.nodes[req->d].w;

    BT_LIST_FOR_EACH_ENTRY(const bt_job_t, job, &w->jobs, link) {
        if (job->key.id == req->key.id) {
            return ((const bt_decode_job_t *)job)->phase;
        }
    }
    return BT_DECODE_ENDED;
}

/* B's KV is complete at the prefill worker while B waits for A's blocks at the
 * decode worker. Both caches are emptied then: B's KV is of before. */
static void kv_of_before_a_reset_enters_no_cache(void **state)
{
    const bt_msg_cache_reset_t order = {.number = 1};
    sim_req_t *a;
    sim_req_t *b;

    (void)state;
    sim_open(1, 64, 8, BT_KVT_PATH_AUTO);
    a = sim_request_of(0, 0, 1, 16, 12);
    sim_rounds(4);
    b = sim_request_of(0, 0, 1, 20, 8);
    sim_rounds(6);
    assert_int_equal(decode_phase_of(b), BT_DECODE_QUEUED);
    for (uint32_t i = 0; i < 2; i++) {
        bt_worker_t *w = &sim.nodes[i].w;

        bt_admin_cache_reset(w, w->links[0], &order);
    }
    sim_settle();
    sim_check_answered(a);
    sim_check_answered(b);
    sim_check_empty();
    assert_int_equal(bt_kv_prefix_clear(sim.nodes[0].w.prefix), 0);
    assert_int_equal(bt_kv_prefix_clear(sim.nodes[1].w.prefix), 0);

    (void)sim_request_of(0, 0, 1, 20, 8);
    sim_settle();
    assert_true(bt_kv_prefix_clear(sim.nodes[1].w.prefix) > 0); /* of after */
    sim_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(job_transitions_match_the_documented_table),
        BT_TEST(job_phase_invariants_hold_on_every_path),
        BT_TEST(grant_counts_once_in_any_phase),
        BT_TEST(grant_after_the_end_is_ignored),
        BT_TEST(kv_of_before_a_reset_enters_no_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
