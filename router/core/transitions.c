/* SPDX-License-Identifier: Apache-2.0 */
/* Actions on every state change of a generation, its attempt or a leg. No other
 * file does them. */
#include "router/core/core_priv.h"

/* ---- a generation ---- */

uint64_t bt_core_slack_us(const bt_core_t *core, uint32_t n_tokens,
                          uint64_t since_us, uint64_t deadline_us,
                          const bt_sched_slo_t *target)
{
    const uint64_t whole_us = bt_core_prompt_us(core, NULL, n_tokens);
    const uint64_t ttft_us = (uint64_t)target->ttft_ms * 1000;
    const bt_sched_work_t work = {
        .since_us = since_us,
        .deadline_us = (ttft_us > 0) ? since_us + ttft_us : deadline_us,
        .whole_us = whole_us,
        .left_us = whole_us,
    };

    return bt_sched_slack_us(core->config.order, &work);
}

static void gen_leave(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    switch (gen->state) {
    case BT_GEN_IS_NEW:
        bt_list_push_back(&core->live, &gen->live_link);
        core->n_live++;
        break;
    case BT_GEN_IS_WAITING:
        bt_flow_dequeue(core, gen);
        core->n_waiting--;
        if (gen->first_token_at_us == 0) {
            gen->ledger.queue_us += now_us - gen->waiting_since_us;
        }
        break;
    case BT_GEN_IS_RUNNING:
        (void)bt_attempt_move(gen, BT_ATTEMPT_ON_CLOSE);
        break;
    case BT_GEN_IS_ENDED:
    case BT_GEN_IS_SETTLED:
    case BT_GEN_IS_RECORDED:
    case BT_GEN_N_STATES:
        break;
    }
}

static void gen_enter(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    switch (gen->state) {
    case BT_GEN_IS_WAITING:
        gen->waiting_since_us = now_us;
        gen->turn.slack_us =
            bt_core_slack_us(core, bt_gen_n_tokens(gen), gen->turn.since_us,
                             gen->deadline_us, &gen->target);
        bt_flow_enqueue(
            core, gen,
            ((gen->max_new - gen->n_output == 1) && !bt_gen_has_beams(gen))
                ? BT_NEED_PREFILL
                : BT_NEED_PAIR);
        core->n_waiting++;
        break;
    case BT_GEN_IS_ENDED:
        bt_list_remove(&gen->live_link);
        core->n_live--;
        core->n_held -= gen->is_held ? 1 : 0;
        bt_flow_settle(core, gen, now_us);
        bt_core_probe_over(core, gen, now_us);
        bt_gen_handover(core, gen, BT_HANDOVER_GIVEN_UP, NULL);
        gen->ledger.total_us = gen->ledger.parse_us + gen->ledger.tokenize_us +
                               now_us - gen->arrived_us;
        break;
    case BT_GEN_IS_SETTLED:
        bt_gen_close_ledger(gen);
        break;
    case BT_GEN_IS_RECORDED:
        bt_gen_record(core, gen);
        break;
    case BT_GEN_IS_NEW:
    case BT_GEN_IS_RUNNING: /* handled by the attempt's own states */
    case BT_GEN_N_STATES:
        break;
    }
}

void bt_gen_move(bt_core_t *core, bt_gen_t *gen, bt_gen_input_t input,
                 uint64_t now_us)
{
    bt_gen_state_t next = gen->state;
    const bt_status_t status = bt_gen_next(gen->state, input, &next);

    BT_ASSERT(status == BT_OK);
    if (status != BT_OK) {
        return;
    }
    gen_leave(core, gen, now_us);
    gen->state = next;
    gen_enter(core, gen, now_us);
}

/* ---- its attempt ---- */

static void attempt_enter(bt_gen_t *gen)
{
    switch (gen->attempt.state) {
    case BT_ATTEMPT_IS_SENT:
    case BT_ATTEMPT_IS_LOCAL:
    case BT_ATTEMPT_IS_ONE_TOKEN:
        BT_ASSERT(gen->attempt.number < BT_GEN_MAX_ATTEMPTS);
        gen->attempt.number++;
        gen->attempt.from = gen->n_output;
        break;
    case BT_ATTEMPT_IS_OVER:
        gen->attempt.prefill = NULL;
        gen->attempt.decode = NULL;
        gen->n_early = 0;
        break;
    case BT_ATTEMPT_IS_TRANSFER:
    case BT_ATTEMPT_IS_JOINED:
    case BT_ATTEMPT_IS_DECODE:
    case BT_ATTEMPT_IS_WITHDRAWN:
    case BT_ATTEMPT_IS_WITHDRAWN_TOKEN:
    case BT_ATTEMPT_IS_LOST:
    case BT_ATTEMPT_N_STATES:
        break;
    }
}

bool bt_attempt_move(bt_gen_t *gen, bt_attempt_input_t input)
{
    const bt_attempt_state_t before = gen->attempt.state;
    bt_attempt_state_t next = before;
    const bt_status_t status = bt_attempt_next(before, input, &next);

    BT_ASSERT((status == BT_OK) || (status == BT_ERR_STALE));
    if (status != BT_OK) {
        return false;
    }
    if (next != before) {
        gen->attempt.lost_in = before;
        gen->attempt.state = next;
        attempt_enter(gen);
    }
    return true;
}

/* ---- a leg ---- */

static void leg_leave(bt_core_t *core, bt_leg_t *leg)
{
    if (leg->state == BT_LEG_IS_COMPUTING) {
        leg->gen->flow->prefill_us -= leg->prefill_us;
        core->has_eased = true;
        leg->worker->sched.prefill_tokens -= leg->prefill_tokens;
        leg->worker->sched.prefill_us -= leg->prefill_us;
    }
}

static void leg_enter(bt_core_t *core, bt_leg_t *leg)
{
    if (leg->state == BT_LEG_IS_CLOSED) {
        leg->worker->sched.seats -= leg->seats;
        leg->worker->sched.blocks -= leg->blocks;
        if (leg->part != BT_PART_PREFILL) {
            leg->gen->flow->seats -= leg->seats;
            core->n_seats -= leg->seats;
            leg->gen->flow->blocks -= leg->blocks;
        }
        bt_list_remove(&leg->link);
        leg->worker = NULL;
        leg->gen->n_open_legs--;
        core->n_legs--;
    }
}

bool bt_leg_move(bt_core_t *core, bt_leg_t *leg, bt_leg_input_t input)
{
    const bt_leg_state_t before = leg->state;
    bt_leg_state_t next = before;
    const bt_status_t status = bt_leg_next(before, input, &next);

    BT_ASSERT((status == BT_OK) || (status == BT_ERR_STALE));
    if (status != BT_OK) {
        return false;
    }
    if (next != before) {
        leg_leave(core, leg);
        leg->state = next;
        leg_enter(core, leg);
    }
    return true;
}
