/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that grow at a decode worker of 14 blocks of 4 tokens. Each of the
 * long ones here needs 12 in the end, so two of them meet, and the younger one
 * makes room. sim_engine.c proves every byte, sim_router.c every token. */
#include "tests/unit/worker/sim.h"

#include <string.h>

#include "common/base/log.h"
#include "decode_worker/decode.h"

#define D         1u /* the node */
#define D_BLOCKS  14u
#define N_PROMPT  9u
#define N_ANSWER  40u
#define ANY_ROUND 160u

static bt_worker_t *d_worker(void)
{
    return &sim.nodes[D].w;
}

static void open_small(void)
{
    sim_open(1, 64, D_BLOCKS, BT_KVT_PATH_AUTO);
    sim_let_grow();
}

static sim_req_t *long_one(bool is_local)
{
    sim_req_t *req = sim_request_of(0, is_local ? D : 0, D, N_PROMPT, N_ANSWER);

    sim_round();
    return req;
}

static bool phase_of(const sim_req_t *req, bt_decode_phase_t *phase_p)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &d_worker()->jobs)
    {
        const bt_job_t *job = BT_CONTAINER_OF(pos, bt_job_t, link);

        if (job->key.id == req->key.id) {
            *phase_p = ((const bt_decode_job_t *)job)->phase;
            return true;
        }
    }
    return false;
}

static void close_empty(void)
{
    sim_check_empty();
    assert_int_equal(d_worker()->preemption.n_paused, 0);
    assert_int_equal(d_worker()->preemption.sched.n_running, 0);
    sim_close();
}

static void younger_sequence_is_preempted_and_both_are_answered(void **state)
{
    (void)state;
    for (uint32_t local = 0; local < 4; local++) {
        bt_decode_phase_t phase = BT_DECODE_ENDED;
        bool was_paused = false;
        sim_req_t *a;
        sim_req_t *b;

        open_small();
        a = long_one((local & 1u) != 0);
        b = long_one((local & 2u) != 0);
        for (uint32_t i = 0; i < ANY_ROUND; i++) {
            sim_round();
            if (phase_of(b, &phase) && (phase == BT_DECODE_PAUSED)) {
                was_paused = true;
            }
            /* Never the older one. */
            assert_true(!phase_of(a, &phase) || ((phase != BT_DECODE_PAUSING) &&
                                                 (phase != BT_DECODE_PAUSED)));
        }
        sim_settle();
        sim_check_answered(a);
        sim_check_answered(b);
        assert_true(was_paused);
        assert_true(d_worker()->preemption.n_pauses > 0);
        assert_int_equal(d_worker()->preemption.n_resumes,
                         d_worker()->preemption.n_pauses);
        /* PREFILLED once, whatever was computed again. */
        assert_int_equal(b->n_prefilled, 1);
        close_empty();
    }
}

/* Alone it needs 12 blocks of 14, so it goes on from the first token to the
 * last and holds no more than what it has and a block ahead. */
static void single_sequence_is_never_preempted(void **state)
{
    sim_req_t *a;

    (void)state;
    open_small();
    a = long_one(true);
    for (uint32_t i = 0; i < N_ANSWER; i++) {
        bt_decode_phase_t phase;

        if (phase_of(a, &phase) && (phase == BT_DECODE_RUNNING)) {
            const bt_job_t *job =
                BT_CONTAINER_OF(d_worker()->jobs.next, bt_job_t, link);

            assert_in_range(job->grower.n_held, 1,
                            (job->grower.n_known + 2 * SIM_T - 1) / SIM_T);
        }
        sim_round();
    }
    sim_settle();
    sim_check_answered(a);
    assert_int_equal(d_worker()->preemption.n_pauses, 0);
    assert_int_equal(sim.nodes[D].engine.n_sat_out, 0);
    close_empty();
}

/* At each round of its life, and so in each phase. */
static void cancel_of_preempted_sequences_releases_everything(void **state)
{
    bool seen[BT_DECODE_PHASES] = {false};

    (void)state;
    for (uint32_t at = 0; at < ANY_ROUND; at++) {
        bt_decode_phase_t phase;
        sim_req_t *a;
        sim_req_t *b;

        open_small();
        a = long_one(true);
        b = long_one(at % 2 == 0);
        sim_rounds(at);
        if (phase_of(b, &phase)) {
            seen[phase] = true;
        }
        sim_cancel(b);
        sim_settle();
        sim_check_answered(a);
        close_empty();
    }
    assert_true(seen[BT_DECODE_RUNNING] && seen[BT_DECODE_PAUSING] &&
                seen[BT_DECODE_PAUSED]);
}

/* What is left of one that is canceled while it is computed again is what was
 * computed, no more: who begins with the same tokens finds it. */
static void canceled_preempted_sequence_leaves_correct_blocks(void **state)
{
    uint32_t n_reused = 0;

    (void)state;
    for (uint32_t at = 0; at < ANY_ROUND; at++) {
        sim_req_t *a;
        sim_req_t *b;
        sim_req_t *c;

        open_small();
        a = long_one(true);
        b = long_one(true);
        sim_rounds(at);
        sim_cancel(b);
        sim_settle();
        sim_check_answered(a);
        c = sim_req_new(0, D, D, N_PROMPT + 24, 8);
        memcpy(c->want, b->want, (N_PROMPT + 24) * sizeof(*c->want));
        sim_want(c);
        n_reused -= d_worker()->stats.n_blocks_reused;
        sim_send_leg(c, 1, BT_REQUEST_LOCAL, 0, 0);
        sim_settle();
        sim_check_answered(c);
        n_reused += d_worker()->stats.n_blocks_reused;
        close_empty();
    }
    assert_true(n_reused > ANY_ROUND);
}

static void lost_router_ends_preempted_sequences(void **state)
{
    bool seen = false;

    (void)state;
    for (uint32_t at = 0; at < ANY_ROUND; at += 3) {
        bt_decode_phase_t phase;
        sim_req_t *a;
        sim_req_t *b;

        open_small();
        a = sim_request_of(1, D, D, N_PROMPT, N_ANSWER);
        sim_round();
        b = long_one(true);
        sim_rounds(at);
        seen = seen || (phase_of(b, &phase) && (phase == BT_DECODE_PAUSED));
        bt_link_close(sim.nodes[D].links[0], "cut");
        sim_settle();
        sim_check_answered(a);
        close_empty();
    }
    assert_true(seen);
}

static void draining_worker_finishes_preempted_sequences_first(void **state)
{
    bt_decode_phase_t phase = BT_DECODE_ENDED;
    sim_req_t *a;
    sim_req_t *b;

    (void)state;
    open_small();
    a = long_one(true);
    b = long_one(true);
    while (!phase_of(b, &phase) || (phase != BT_DECODE_PAUSED)) {
        sim_round();
    }
    sim_terminate(&sim.nodes[D]);
    sim_settle();
    sim_check_answered(a);
    sim_check_answered(b);
    close_empty();
}

static void deadline_ends_a_preempted_sequence(void **state)
{
    sim_req_t *a;
    sim_req_t *b;

    (void)state;
    sim_expect_failures();
    open_small();
    a = long_one(true);
    b = sim_req_new(0, D, D, N_PROMPT, N_ANSWER);
    sim_send_leg(b, 1, BT_REQUEST_LOCAL, 30, 0);
    sim_settle();
    sim_check_answered(a);
    assert_int_equal(b->legs[1].n_failed, 1);
    assert_int_equal(b->legs[1].status, BT_ERR_TIMED_OUT);
    close_empty();
    sim_expected();
}

static void device_failure_ends_running_and_preempted_sequences(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t at = 0; at < ANY_ROUND / 2; at += 3) {
        open_small();
        (void)long_one(true);
        (void)long_one(true);
        sim_rounds(at);
        sim.nodes[D].engine.broken = true;
        sim_rounds(5);
        sim_close();
    }
    sim_expected();
}

/* Choices of one prompt, with all that may be asked for beside tokens, which
 * sim_router.c compares: rows that are there already are not lost, and not
 * told twice. */
static void groups_with_log_probs_complete_under_preemption(void **state)
{
    uint64_t n_pauses = 0;

    (void)state;
    for (uint32_t local = 0; local < 2; local++) {
        sim_req_t *first;
        sim_req_t *a;

        open_small();
        sim.wants =
            (bt_wants_t){.what = BT_WANT_LOGPROBS | BT_WANT_LOGITS, .n_top = 2};
        first = sim_group_of(0, (local != 0) ? D : 0, D, 3, N_PROMPT, 30);
        sim_rounds(2);
        sim.wants = (bt_wants_t){.what = BT_WANT_LOGPROBS | BT_WANT_LOGITS |
                                         BT_WANT_PROMPT_LOGPROBS |
                                         BT_WANT_PROMPT_LOGITS,
                                 .n_top = 2};
        a = long_one(true);
        sim_settle();
        for (uint32_t i = 0; i < 3; i++) {
            sim_check_answered(&first[i]);
            /* Its last 29 tokens at least are drawn here. */
            assert_in_range(first[i].n_scores, 29, 30);
        }
        sim_check_answered(a);
        assert_int_equal(a->n_scores, N_ANSWER);
        assert_int_equal(a->n_told, N_PROMPT - 1);
        n_pauses += d_worker()->preemption.n_pauses;
        close_empty();
    }
    assert_true(n_pauses > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(younger_sequence_is_preempted_and_both_are_answered),
        BT_TEST(single_sequence_is_never_preempted),
        BT_TEST(cancel_of_preempted_sequences_releases_everything),
        BT_TEST(canceled_preempted_sequence_leaves_correct_blocks),
        BT_TEST(lost_router_ends_preempted_sequences),
        BT_TEST(draining_worker_finishes_preempted_sequences_first),
        BT_TEST(deadline_ends_a_preempted_sequence),
        BT_TEST(device_failure_ends_running_and_preempted_sequences),
        BT_TEST(groups_with_log_probs_complete_under_preemption),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
