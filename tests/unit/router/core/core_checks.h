/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_checks.h  What holds in the core between any two calls. */
#ifndef BT_TESTS_UNIT_ROUTER_CORE_CHECKS_H
#define BT_TESTS_UNIT_ROUTER_CORE_CHECKS_H

#include "tests/unit/router/core/core_fixture.h"

#include "router/core/core_priv.h"

static inline void assert_leg(const bt_leg_t *leg)
{
    assert_int_equal(leg->state == BT_LEG_IS_CLOSED, leg->worker == NULL);
    if (leg->part == BT_PART_DECODE) {
        assert_int_not_equal(leg->state, BT_LEG_IS_COMPUTING);
        assert_int_not_equal(leg->state, BT_LEG_IS_SAMPLED);
    }
}

static inline void assert_attempt(const bt_gen_t *gen)
{
    const bt_attempt_t *a = &gen->attempt;
    const bool has_token = gen->n_output > a->from;

    switch (a->state) {
    case BT_ATTEMPT_IS_OVER:
        assert_null(a->prefill);
        assert_null(a->decode);
        assert_int_equal(gen->n_early, 0);
        break;
    case BT_ATTEMPT_IS_SENT:
    case BT_ATTEMPT_IS_JOINED:
    case BT_ATTEMPT_IS_WITHDRAWN:
        assert_int_equal(a->prefill->part, BT_PART_PREFILL);
        assert_int_equal(a->decode->part, BT_PART_DECODE);
        assert_false(has_token);
        break;
    case BT_ATTEMPT_IS_TRANSFER:
    case BT_ATTEMPT_IS_WITHDRAWN_TOKEN:
        assert_int_equal(a->prefill->part, BT_PART_PREFILL);
        assert_int_equal(a->decode->part, BT_PART_DECODE);
        assert_true(has_token);
        break;
    case BT_ATTEMPT_IS_DECODE:
        assert_int_equal(a->prefill == NULL, a->decode->part == BT_PART_LOCAL);
        assert_true(has_token);
        break;
    case BT_ATTEMPT_IS_LOCAL:
        assert_null(a->prefill);
        assert_int_equal(a->decode->part, BT_PART_LOCAL);
        assert_false(has_token);
        break;
    case BT_ATTEMPT_IS_ONE_TOKEN:
        assert_int_equal(a->prefill->part, BT_PART_PREFILL);
        assert_null(a->decode);
        assert_false(has_token);
        break;
    case BT_ATTEMPT_IS_LOST: /* never left so */
    case BT_ATTEMPT_N_STATES:
        fail();
    }
}

static inline void assert_gen(const bt_gen_t *gen)
{
    uint32_t n_open = 0;

    for (uint32_t i = 0; i < gen->n_legs; i++) {
        assert_leg(&gen->legs[i]);
        n_open += (gen->legs[i].worker != NULL) ? 1 : 0;
    }
    assert_int_equal(gen->n_open_legs, n_open);
    assert_int_not_equal(gen->state, BT_GEN_IS_NEW);
    assert_int_equal(gen->state == BT_GEN_IS_RUNNING,
                     gen->attempt.state != BT_ATTEMPT_IS_OVER);
    assert_true(bt_gen_state_is_live(gen->state) ||
                (n_open > 0)); /* or freed */
    assert_attempt(gen);
}

static inline void assert_worker(const bt_instance_t *worker)
{
    uint64_t n = 0, blocks = 0, prefill_tokens = 0;

    for (bt_list_t *pos = worker->legs.next; pos != &worker->legs;
         pos = pos->next) {
        const bt_leg_t *leg = BT_CONTAINER_OF(pos, bt_leg_t, link);

        assert_ptr_equal(leg->worker, worker);
        n += leg->seats;
        blocks += leg->blocks;
        prefill_tokens +=
            (leg->state == BT_LEG_IS_COMPUTING) ? leg->prefill_tokens : 0;
    }
    assert_int_equal(worker->sched.seats, n);
    assert_int_equal(worker->sched.blocks, blocks);
    assert_int_equal(worker->sched.prefill_tokens, prefill_tokens);
}

/* @return how many of it wait */
static inline uint32_t assert_flow(bt_core_t *core, const bt_core_flow_t *flow)
{
    uint64_t prefill_us = 0, seats = 0, blocks = 0;
    uint32_t n_waiting = 0, n_gens = 0;
    bt_list_t *head, *pos, *tmp;

    for (unsigned i = 0; i < BT_NEED_N; i++) {
        for (pos = flow->waiting[i].next; pos != &flow->waiting[i];
             pos = pos->next) {
            const bt_gen_t *gen = BT_CONTAINER_OF(pos, bt_gen_t, turn.link);

            assert_ptr_equal(gen->flow, flow);
            assert_int_equal(gen->state, BT_GEN_IS_WAITING);
            assert_int_equal(i == BT_NEED_PREFILL,
                             (gen->n_output + 1 == gen->max_new) &&
                                 !bt_gen_has_beams(gen));
            n_waiting++;
        }
    }
    BT_HMAP_FOR_EACH_BUCKET(head, &core->gens_by_id)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            const bt_gen_t *gen = BT_CONTAINER_OF(pos, bt_gen_t, by_id);

            n_gens += (gen->flow == flow) ? 1 : 0;
            for (uint32_t i = 0; (gen->flow == flow) && (i < gen->n_legs);
                 i++) {
                const bt_leg_t *leg = &gen->legs[i];

                if (leg->worker == NULL) {
                    continue;
                }
                prefill_us +=
                    (leg->state == BT_LEG_IS_COMPUTING) ? leg->prefill_us : 0;
                if (leg->part != BT_PART_PREFILL) {
                    seats += leg->seats;
                    blocks += leg->blocks;
                }
            }
        }
    }
    assert_int_equal(flow->n_waiting, n_waiting);
    assert_int_equal(flow->n_gens, n_gens);
    assert_int_equal(flow->prefill_us, prefill_us);
    assert_int_equal(flow->seats, seats);
    assert_int_equal(flow->blocks, blocks);
    assert_int_equal(n_waiting > 0, !bt_list_empty(&flow->fair.link));
    return n_waiting;
}

static inline void assert_consistent(bt_core_t *core)
{
    uint32_t n_live = 0, n_waiting = 0, n_legs = 0, n_listed = 0;
    bt_list_t *head, *pos, *tmp;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->gens_by_id)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            const bt_gen_t *gen = BT_CONTAINER_OF(pos, bt_gen_t, by_id);

            assert_gen(gen);
            n_live += bt_gen_state_is_live(gen->state) ? 1 : 0;
            n_waiting += (gen->state == BT_GEN_IS_WAITING) ? 1 : 0;
            n_legs += gen->n_open_legs;
        }
    }
    BT_LIST_FOR_EACH(pos, tmp, &core->live)
    {
        n_listed++;
    }
    assert_int_equal(core->n_live, n_live);
    assert_int_equal(n_listed, n_live);
    assert_int_equal(core->n_waiting, n_waiting);
    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            n_waiting -=
                assert_flow(core, BT_CONTAINER_OF(pos, bt_core_flow_t, by_id));
        }
    }
    assert_int_equal(n_waiting, 0);
    assert_int_equal(core->n_legs, n_legs);
    BT_LIST_FOR_EACH(pos, tmp, &core->table.workers)
    {
        const bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

        assert_worker(worker);
        n_legs -= worker->sched.seats;
    }
    assert_int_equal(n_legs, 0);
}

static unsigned long n_lost; /* workers, in this test: it zeroes this */

/* Each loss is a warning. */
static inline void lose(world_t *w, bt_instance_t *worker)
{
    bt_test_expect_log_lines(++n_lost);
    bt_core_worker_down(w->core, worker, "killed", w->now);
}

#endif
