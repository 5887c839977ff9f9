/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"

/* ---- legs ---- */

static bt_leg_t *leg_open(bt_core_t *core, bt_gen_t *gen, bt_instance_t *worker,
                          bt_part_t part)
{
    const bool prefills = part != BT_PART_DECODE;
    const uint32_t per_block = worker->hello.tokens_per_block;
    const uint64_t most_tokens =
        (uint64_t)gen->n_prompt + gen->max_new; /* output included */
    bt_leg_t *leg = &gen->legs[gen->n_legs++];

    leg->gen = gen;
    leg->worker = worker;
    leg->attempt = gen->attempt;
    leg->part = part;
    leg->prefill_tokens = prefills ? gen->n_tokens : 0;
    leg->blocks = (most_tokens + per_block - 1) / per_block;
    worker->sched.seats++;
    worker->sched.blocks += leg->blocks;
    worker->sched.prefill_tokens += leg->prefill_tokens;
    bt_list_push_back(&worker->legs, &leg->link);
    gen->n_open_legs++;
    core->n_legs++;
    return leg;
}

const char *bt_leg_part_name(const bt_leg_t *leg)
{
    return (leg->part == BT_PART_PREFILL) ? "prefill" : "decode";
}

void bt_leg_prefilled(bt_leg_t *leg)
{
    leg->worker->sched.prefill_tokens -= leg->prefill_tokens;
    leg->prefill_tokens = 0;
}

void bt_leg_close(bt_core_t *core, bt_leg_t *leg)
{
    bt_leg_prefilled(leg);
    leg->worker->sched.seats--;
    leg->worker->sched.blocks -= leg->blocks;
    bt_list_remove(&leg->link);
    leg->worker = NULL;
    leg->gen->n_open_legs--;
    core->n_legs--;
}

/* Is the last token of the decode worker here, ahead of the prefill worker's
 * token #1, which travels on another link? */
static bool last_is_here(const bt_gen_t *gen)
{
    for (uint32_t i = 0; i < gen->n_early; i++) {
        if ((gen->early[i].finish != BT_FINISH_NONE) ||
            (gen->early[i].index + 1 == gen->max_new)) {
            return true;
        }
    }
    return false;
}

bool bt_leg_needed(const bt_leg_t *leg)
{
    const bt_gen_t *gen = leg->gen;

    if ((gen->phase == BT_PHASE_ENDED) || (gen->phase == BT_PHASE_WAITING)) {
        return false;
    }
    if (leg == gen->decode) {
        return !gen->withdrawn && !last_is_here(gen);
    }
    return (leg == gen->prefill) && ((gen->phase != BT_PHASE_DECODE) ||
                                     (gen->n_output == gen->attempt_from));
}

void bt_gen_cancel_legs(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                        const bt_leg_t *except)
{
    for (uint32_t i = 0; i < gen->n_legs; i++) {
        const bt_leg_t *leg = &gen->legs[i];
        bt_msg_t msg = {.type = BT_MSG_CANCEL};

        /* Legs of earlier attempts were canceled when those ended. */
        if ((leg->worker == NULL) || (leg == except) ||
            (leg->attempt != gen->attempt)) {
            continue;
        }
        msg.u.cancel.key.id = gen->id;
        msg.u.cancel.key.attempt = leg->attempt;
        msg.u.cancel.finish = (uint32_t)why;
        core->ops.send(core->ops.send_ctx, leg->worker, &msg);
    }
}

/* ---- attempts ---- */

static void send_request(bt_core_t *core, const bt_gen_t *gen,
                         const bt_leg_t *leg, bt_request_kind_t kind,
                         uint64_t peer, uint64_t now_us)
{
    const uint64_t left_ms = (gen->deadline_us - now_us + 999) / 1000;
    const bt_msg_t msg = {
        .type = BT_MSG_REQUEST,
        .u.request =
            {
                .key = {.id = gen->id, .attempt = gen->attempt},
                .kind = (uint32_t)kind,
                .peer = peer,
                .n_prompt = gen->n_prompt,
                .n_tokens = gen->n_tokens,
                .tokens = gen->tokens,
                .max_new = gen->max_new - gen->n_output,
                .deadline_ms = (uint32_t)left_ms,
                .priority = gen->priority,
                .sampling = gen->sampling,
            },
    };

    core->ops.send(core->ops.send_ctx, leg->worker, &msg);
}

static void note_attempt(bt_gen_t *gen, const bt_pick_t *pick, uint64_t now_us)
{
    bt_gen_attempt_t *a = &gen->attempts[gen->attempt - 1];

    a->at_us = now_us;
    a->cause = bt_sched_cause_name(pick->placement.cause);
    if (pick->decode != NULL) {
        memcpy(a->decode, pick->decode->hello.name, sizeof(a->decode));
        a->decode_why = bt_sched_why_name(pick->placement.decode_why);
    }
    if (pick->prefill != NULL) {
        memcpy(a->prefill, pick->prefill->hello.name, sizeof(a->prefill));
        a->prefill_why = bt_sched_why_name(pick->placement.prefill_why);
    }
}

static bool is_instance(const bt_instance_t *worker, uint64_t instance)
{
    return (worker != NULL) && (worker->hello.instance == instance);
}

static bool picks(const bt_pick_t *pick, uint64_t instance)
{
    return is_instance(pick->prefill, instance) ||
           is_instance(pick->decode, instance);
}

static bool pick_workers(const bt_core_t *core, const bt_gen_t *gen,
                         bt_pick_t *pick_p)
{
    const bt_sched_request_t request = {
        .n_tokens = gen->n_tokens,
        .max_new = gen->max_new - gen->n_output,
        .priority = gen->priority,
        .deadline_us = gen->deadline_us,
        .avoid = gen->avoid.instances,
        .n_avoid = gen->avoid.n,
    };

    return bt_table_pick(&core->table, &request, pick_p);
}

/* Legs and REQUESTs of a new attempt. */
static void send_attempt(bt_core_t *core, bt_gen_t *gen, const bt_pick_t *pick,
                         uint64_t now_us)
{
    if (pick->prefill == NULL) {
        gen->decode = leg_open(core, gen, pick->decode, BT_PART_LOCAL);
        send_request(core, gen, gen->decode, BT_REQUEST_LOCAL, 0, now_us);
        return;
    }
    gen->prefill = leg_open(core, gen, pick->prefill, BT_PART_PREFILL);
    if (pick->decode == NULL) {
        /* Its peer is itself: no worker takes a request that names none, and
         * this one is over before anything could be sent to it. */
        send_request(core, gen, gen->prefill, BT_REQUEST_PREFILL,
                     pick->prefill->hello.instance, now_us);
        return;
    }
    gen->decode = leg_open(core, gen, pick->decode, BT_PART_DECODE);
    send_request(core, gen, gen->prefill, BT_REQUEST_PREFILL,
                 pick->decode->hello.instance, now_us);
    send_request(core, gen, gen->decode, BT_REQUEST_GENERATE,
                 pick->prefill->hello.instance, now_us);
}

bool bt_gen_dispatch(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    bt_pick_t pick;

    BT_ASSERT(gen->phase == BT_PHASE_WAITING);
    if ((now_us >= gen->deadline_us) || !pick_workers(core, gen, &pick) ||
        ((now_us < gen->hold_until_us) && picks(&pick, gen->lost))) {
        return false;
    }
    /* A silent worker speaks again or is given up soon; an attempt there would
     * be lost with it. */
    if (!bt_sched_placement_is_healthy(&pick.placement)) {
        core->hope_us = now_us;
        return false;
    }
    BT_ASSERT(gen->attempt < BT_CORE_MAX_ATTEMPTS);
    bt_table_take(&core->table, &pick);
    gen->attempt++;
    gen->phase = BT_PHASE_PREFILL;
    gen->prefilled = false;
    gen->withdrawn = false;
    gen->attempt_from = gen->n_output;
    note_attempt(gen, &pick, now_us);
    core->n_waiting--;
    if (gen->first_token_at_us == 0) {
        gen->ledger.wait_us += now_us - gen->waiting_since_us;
    }
    send_attempt(core, gen, &pick, now_us);
    return true;
}

void bt_gen_dispatch_waiting(bt_core_t *core, uint64_t now_us)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &core->live)
    {
        bt_gen_t *gen = BT_CONTAINER_OF(pos, bt_gen_t, live_link);

        if (core->n_waiting == 0) {
            return;
        }
        if ((gen->phase == BT_PHASE_WAITING) && (now_us < gen->deadline_us) &&
            !bt_gen_dispatch(core, gen, now_us) &&
            (now_us >= gen->hold_until_us)) {
            return; /* nobody is there for the others either */
        }
    }
}

void bt_gen_rerun(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    gen->prefill = NULL;
    gen->decode = NULL;
    gen->n_early = 0;
    if (gen->attempt >= BT_CORE_MAX_ATTEMPTS) {
        bt_gen_fail(core, gen, 503, now_us, "%s, and this was attempt %u of %u",
                    gen->trouble, gen->attempt, BT_CORE_MAX_ATTEMPTS);
        return;
    }
    BT_LOG_INFO("request %" PRIu64 " attempt %u given up: %s; runs again "
                "after %u tokens",
                gen->id, gen->attempt, gen->trouble, gen->n_output);
    gen->phase = BT_PHASE_WAITING;
    gen->waiting_since_us = now_us;
    core->n_waiting++;
    (void)bt_gen_dispatch(core, gen, now_us);
}
