/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

/* Generations that are sent to workers together: one, or a fanout: the
 * choices of one prompt. */
typedef struct fanout {
    bt_gen_t *gens[BT_SCHED_MAX_FANOUT]; /* the leader first */
    uint32_t n;
    bt_core_held_t held; /* estimated cached prompt tokens */
} fanout_t;

/* ---- legs ---- */

/* Returns the most KV blocks that a generation may take, output included; the
 * blocks of the prompt count for a fanout's leader only. */
static uint64_t blocks_of(const bt_gen_t *gen, const bt_instance_t *worker,
                          bt_part_t part, bool is_first)
{
    const bt_kv_need_t need = bt_kv_need_of(&worker->hello);
    const uint32_t per_block = need.tokens_per_block;
    const uint64_t n_tokens = (uint64_t)gen->prompt->n + gen->max_new;
    const uint32_t n_whole = bt_gen_n_tokens(gen) / per_block * per_block;

    if (bt_gen_has_beams(gen) && (part != BT_PART_PREFILL)) {
        return bt_gen_blocks(gen, &need);
    }
    return bt_kv_need_blocks(&need, n_tokens) -
           (is_first ? 0 : bt_kv_need_blocks(&need, n_whole));
}

/* Opens a leg. The shared work of a fanout is counted at its leader's leg. */
static bt_leg_t *leg_open(bt_core_t *core, const fanout_t *fanout,
                          bt_gen_t *gen, bt_instance_t *worker, bt_part_t part)
{
    const bool is_first = gen == fanout->gens[0];
    const bool computes = is_first && (part != BT_PART_DECODE);
    const uint32_t n_held =
        (part == BT_PART_PREFILL) ? fanout->held.prefill : fanout->held.decode;
    bt_leg_t *leg = &gen->legs[gen->n_legs++];

    leg->gen = gen;
    leg->worker = worker;
    leg->state =
        (part != BT_PART_DECODE) ? BT_LEG_IS_COMPUTING : BT_LEG_IS_COMPUTED;
    leg->part = part;
    leg->attempt = gen->attempt.number;
    leg->leads = is_first && (fanout->n > 1);
    leg->prefill_tokens = computes ? bt_gen_n_tokens(gen) : 0;
    leg->n_held = is_first ? n_held : 0;
    leg->prefill_us =
        computes ? bt_core_prompt_us(core, worker,
                                     bt_gen_n_tokens(gen) - leg->n_held)
                 : 0;
    leg->blocks = blocks_of(gen, worker, part, is_first);
    leg->seats = (part != BT_PART_PREFILL) ? bt_gen_seats(gen) : 1;
    worker->sched.seats += leg->seats;
    worker->sched.blocks += leg->blocks;
    worker->sched.prefill_tokens += leg->prefill_tokens;
    worker->sched.prefill_us += leg->prefill_us;
    gen->flow->prefill_us += leg->prefill_us;
    if (part != BT_PART_PREFILL) {
        gen->flow->seats += leg->seats;
        core->n_seats += leg->seats;
        gen->flow->blocks += leg->blocks;
    }
    bt_list_push_back(&worker->legs, &leg->link);
    gen->n_open_legs++;
    core->n_legs++;
    return leg;
}

const char *bt_leg_part_name(const bt_leg_t *leg)
{
    return (leg->part == BT_PART_PREFILL) ? "prefill" : "decode";
}

/* True when the decode worker's last token has arrived ahead of the prefill
 * worker's token #1, which comes over another link. */
static bool last_is_here(const bt_gen_t *gen)
{
    if (gen->n_output > gen->attempt.from) {
        return false; /* only the decode worker's own tokens are missing */
    }
    for (uint32_t i = 0; i < gen->n_early; i++) {
        if (((gen->early[i].finish != BT_FINISH_NONE) ||
             (gen->early[i].index + 1 == gen->max_new)) &&
            ((gen->rows == NULL) ||
             bt_gen_rows_has_logits(gen->rows, gen->early[i].index))) {
            return true;
        }
    }
    return false;
}

bool bt_leg_is_current(const bt_leg_t *leg)
{
    const bt_attempt_t *attempt = &leg->gen->attempt;

    return (leg == attempt->prefill) || (leg == attempt->decode);
}

/* True when the outcome of the leg may matter. */
static bool matters(const bt_leg_t *leg)
{
    return bt_leg_is_current(leg) &&
           ((leg->part != BT_PART_DECODE) || !last_is_here(leg->gen));
}

static bt_attempt_input_t release_input(const bt_leg_t *leg, bool ended)
{
    if (leg->part != BT_PART_PREFILL) {
        return BT_ATTEMPT_ON_DECODE_LEFT;
    }
    return ended ? BT_ATTEMPT_ON_PREFILL_ENDED : BT_ATTEMPT_ON_PREFILL_LOST;
}

bool bt_leg_needed(const bt_leg_t *leg)
{
    bt_attempt_state_t next;

    return matters(leg) &&
           (bt_attempt_next(leg->gen->attempt.state, release_input(leg, false),
                            &next) == BT_OK) &&
           (next == BT_ATTEMPT_IS_LOST);
}

bool bt_leg_release(const bt_leg_t *leg, bool ended)
{
    return matters(leg) &&
           bt_attempt_move(leg->gen, release_input(leg, ended)) &&
           (leg->gen->attempt.state == BT_ATTEMPT_IS_LOST);
}

void bt_gen_cancel_legs(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                        const bt_leg_t *except)
{
    for (uint32_t i = 0; i < gen->n_legs; i++) {
        const bt_leg_t *leg = &gen->legs[i];
        bt_msg_t msg = {.type = BT_MSG_CANCEL};

        /* Legs of earlier attempts were canceled when those ended. */
        if ((leg->worker == NULL) || (leg == except) ||
            (leg->attempt != gen->attempt.number)) {
            continue;
        }
        msg.u.cancel.key.id = gen->id;
        msg.u.cancel.key.attempt = leg->attempt;
        msg.u.cancel.finish =
            (uint32_t)((why == BT_FINISH_REPETITION) ? BT_FINISH_STOP : why);
        core->ops.send(core->ops.send_ctx, leg->worker, &msg);
    }
}

/* ---- attempts ---- */

/* Returns the tokens that a worker computes first: for a retry including the
 * output so far. */
static const uint32_t *tokens_of(bt_core_t *core, const bt_gen_t *gen)
{
    const bt_prompt_t *prompt = gen->prompt;

    if (gen->n_output == 0) {
        return prompt->tokens;
    }
    BT_ASSERT_ALWAYS(bt_gen_n_tokens(gen) <= core->cap_joined);
    memcpy(core->joined, prompt->tokens, prompt->n * sizeof(uint32_t));
    memcpy(core->joined + prompt->n, gen->output,
           gen->n_output * sizeof(uint32_t));
    return core->joined;
}

/* Returns the time in ms left for the TTFT target; 0 for a generation that has
 * its first token, also in a retry. */
static uint32_t first_ms_of(const bt_gen_t *gen, uint64_t now_us)
{
    const uint64_t first_us =
        gen->turn.since_us + (uint64_t)gen->target.ttft_ms * 1000;

    if ((gen->target.ttft_ms == 0) || (gen->n_output > 0)) {
        return 0;
    }
    return (first_us > now_us) ? (uint32_t)((first_us - now_us + 999) / 1000)
                               : 1;
}

/* Of a generation with beams a prefill worker computes the KV alone: the search
 * begins at the decode worker. Its token does not count, and must not end the
 * request there. */
static void plain_prefill(bt_msg_request_t *request)
{
    request->sampling = bt_sampling_default();
    request->wants = (bt_wants_t){.what = 0};
    request->beams = (bt_sched_beam_params_t){.width = 0};
    request->grammar = NULL;
    request->grammar_bytes = 0;
    request->max_new = (request->max_new > 1) ? request->max_new : 2;
}

static void send_request(bt_core_t *core, const fanout_t *fanout,
                         const bt_leg_t *leg, bt_request_kind_t kind,
                         uint64_t peer, uint64_t now_us)
{
    const bool is_fanout = fanout->n > 1;
    const bt_gen_t *gen = leg->gen;
    /* The worker has the tokens and drafts of the leader. */
    const bool is_lent = is_fanout && (gen != fanout->gens[0]);
    const bool drafts =
        (kind != BT_REQUEST_PREFILL) && (gen->max_drafts > 0) && !is_lent;
    const uint64_t left_ms = (gen->deadline_us - now_us + 999) / 1000;
    bt_msg_t msg = {
        .type = BT_MSG_REQUEST,
        .u.request =
            {
                .key = {.id = gen->id, .attempt = leg->attempt},
                .kind = (uint32_t)kind,
                .peer = peer,
                .n_prompt = gen->prompt->n,
                .n_tokens = is_lent ? 0 : bt_gen_n_tokens(gen),
                .tokens = is_lent ? NULL : tokens_of(core, gen),
                .max_new = gen->max_new - gen->n_output,
                .deadline_ms = (uint32_t)left_ms,
                .priority = gen->level,
                .sampling = gen->sampling,
                .space = gen->space,
                .wants = (gen->rows != NULL) ? bt_gen_rows_missing(gen->rows)
                                             : (bt_wants_t){.what = 0},
                .first_ms = first_ms_of(gen, now_us),
                .itl_ms = gen->target.itl_ms,
                .draft_ids = drafts ? gen->prompt->draft_ids : NULL,
                .n_draft_ids = drafts ? gen->prompt->n_draft_ids : 0,
                .max_drafts = gen->max_drafts,
                .beams = gen->beams.params,
                .grammar = gen->prompt->grammar,
                .grammar_bytes = gen->prompt->grammar_bytes,
                .complete_within = gen->prompt->completes ? gen->max_new : 0,
                .table = (gen->prompt->table != NULL) ? gen->prompt->table->rows
                                                      : (bt_table_rows_t){0},
                .adapter = gen->adapter,
                .fanout = is_fanout ? fanout->gens[0]->id : 0,
                .fanout_size = is_fanout ? fanout->n : 0,
            },
    };

    if (bt_gen_has_beams(gen) && (kind == BT_REQUEST_PREFILL)) {
        plain_prefill(&msg.u.request);
    }
    core->ops.send(core->ops.send_ctx, leg->worker, &msg);
}

static uint32_t narrow(uint64_t value)
{
    return (value < UINT32_MAX) ? (uint32_t)value : UINT32_MAX;
}

static uint32_t larger(uint64_t a, uint64_t b)
{
    return narrow((a > b) ? a : b);
}

/* Returns the state of the workers as placement saw it: before the attempt is
 * counted. */
static bt_gen_knew_t known_at_placement(const bt_core_t *core,
                                        const bt_pick_t *pick,
                                        const bt_core_held_t *held)
{
    bt_gen_knew_t knew = {.prefill_held_tokens = held->prefill,
                          .decode_held_tokens = held->decode};

    BT_LIST_FOR_EACH_ENTRY(const bt_sched_worker_t, w, &core->table.candidates,
                           link) {
        const bool takes = w->health == BT_SCHED_UP;

        knew.n_prefill += (takes && (w->roles & BT_SCHED_PREFILL)) ? 1 : 0;
        knew.n_decode += (takes && (w->roles & BT_SCHED_DECODE)) ? 1 : 0;
    }
    if (pick->prefill != NULL) {
        const bt_sched_worker_t *p = &pick->prefill->sched;

        knew.ahead_requests = p->seats;
        knew.ahead_tokens = narrow(p->prefill_tokens);
        knew.ahead_us = p->prefill_us;
    }
    if (pick->decode != NULL) {
        const bt_sched_worker_t *d = &pick->decode->sched;

        knew.seats = d->max_seats;
        knew.seats_used = larger(d->seats, d->reported_seats);
        knew.blocks = d->n_blocks;
        knew.blocks_used = larger(d->blocks, d->reported_blocks);
    }
    return knew;
}

static void note_attempt(const bt_core_t *core, bt_gen_t *gen,
                         const bt_pick_t *pick, const bt_gen_knew_t *knew,
                         uint64_t now_us)
{
    bt_gen_attempt_t *a = &gen->attempts[gen->attempt.number - 1];

    a->at_us = now_us;
    a->knew = *knew;
    a->cause = bt_sched_cause_name(pick->placement.cause);
    if (pick->decode != NULL) {
        memcpy(a->decode, pick->decode->hello.name, sizeof(a->decode));
        a->decode_why = bt_sched_why_name(pick->placement.decode_why);
    }
    if (pick->prefill != NULL) {
        memcpy(a->prefill, pick->prefill->hello.name, sizeof(a->prefill));
        a->prefill_why = bt_sched_why_name(pick->placement.prefill_why);
    }
    core->ops.on_sent(core->ops.ctx, pick->placement.cause);
}

static bool is_instance(const bt_instance_t *worker, uint64_t instance)
{
    return (worker != NULL) && (worker->hello.instance == instance);
}

uint32_t bt_gen_capabilities(const bt_gen_t *gen)
{
    return (bt_sampling_has_processors(&gen->sampling) ? BT_SCHED_PROCESSORS
                                                       : 0) |
           (bt_gen_has_beams(gen) ? BT_SCHED_BEAMS : 0) |
           ((gen->prompt->grammar_bytes > 0) ? BT_SCHED_GRAMMARS : 0) |
           ((gen->prompt->table != NULL) ? BT_SCHED_TABLES : 0) |
           (bt_gen_has_adapter(gen) ? BT_SCHED_ADAPTERS : 0);
}

static bt_sched_request_t request_of(const bt_gen_t *gen)
{
    return (bt_sched_request_t){
        .n_tokens = bt_gen_n_tokens(gen),
        /* One token of beams comes from the decode worker, too. */
        .max_new = (bt_gen_has_beams(gen) && (gen->max_new == 1))
                       ? 2
                       : gen->max_new - gen->n_output,
        .priority = gen->turn.priority,
        .deadline_us = gen->deadline_us,
        .space = gen->space,
        .capabilities = bt_gen_capabilities(gen),
        .avoid = gen->avoid.instances,
        .n_avoid = gen->avoid.n,
    };
}

bool bt_core_has_workers(const bt_core_t *core, uint32_t capabilities)
{
    const bt_sched_request_t request = {
        .n_tokens = 1, .max_new = 2, .capabilities = capabilities};
    bt_pick_t pick;

    return bt_table_pick(&core->table, &request, &pick);
}

/* Collects the generation and the members of its fanout that wait directly
 * behind it. They were submitted together, so no other one is in between. */
static void collect_fanout(bt_gen_t *gen, const bt_sched_request_t *request,
                           const bt_pick_t *pick, fanout_t *fanout)
{
    const bt_instance_t *worker =
        (pick->prefill != NULL) ? pick->prefill : pick->decode;
    uint32_t most = BT_SCHED_MAX_FANOUT;

    fanout->gens[0] = gen;
    fanout->n = 1;
    if ((gen->fanout == 0) || (gen->attempt.number > 0)) {
        return;
    }
    most = bt_sched_fanout_size(&pick->placement, request, most,
                                worker->hello.tokens_per_block);
    while (fanout->n < most) {
        bt_gen_t *last = fanout->gens[fanout->n - 1];
        bt_gen_t *next =
            BT_CONTAINER_OF(last->turn.link.next, bt_gen_t, turn.link);

        if ((&next->turn.link == &gen->flow->waiting[BT_NEED_PAIR]) ||
            (&next->turn.link == &gen->flow->waiting[BT_NEED_PREFILL]) ||
            (next->fanout != gen->fanout) || (next->attempt.number > 0)) {
            return;
        }
        fanout->gens[fanout->n++] = next;
    }
}

/* Sends a new attempt of one generation: opens its legs and sends the REQUESTs.
 */
static void send_attempt(bt_core_t *core, const fanout_t *fanout, bt_gen_t *gen,
                         const bt_pick_t *pick, uint64_t now_us)
{
    bt_attempt_t *a = &gen->attempt;

    if (pick->prefill == NULL) {
        (void)bt_attempt_move(gen, BT_ATTEMPT_ON_SEND_LOCAL);
        a->decode = leg_open(core, fanout, gen, pick->decode, BT_PART_LOCAL);
        send_request(core, fanout, a->decode, BT_REQUEST_LOCAL, 0, now_us);
        return;
    }
    if (pick->decode == NULL) {
        (void)bt_attempt_move(gen, BT_ATTEMPT_ON_SEND_ONE_TOKEN);
        a->prefill =
            leg_open(core, fanout, gen, pick->prefill, BT_PART_PREFILL);
        /* The peer is the worker itself: workers refuse a request without a
         * peer, and this one ends before anything could be sent to the peer. */
        send_request(core, fanout, a->prefill, BT_REQUEST_PREFILL,
                     pick->prefill->hello.instance, now_us);
        return;
    }
    (void)bt_attempt_move(gen, BT_ATTEMPT_ON_SEND_PAIR);
    a->prefill = leg_open(core, fanout, gen, pick->prefill, BT_PART_PREFILL);
    a->decode = leg_open(core, fanout, gen, pick->decode, BT_PART_DECODE);
    send_request(core, fanout, a->prefill, BT_REQUEST_PREFILL,
                 pick->decode->hello.instance, now_us);
    send_request(core, fanout, a->decode, BT_REQUEST_GENERATE,
                 pick->prefill->hello.instance, now_us);
}

/* Sends a waiting generation to workers, if a usable pair exists, together with
 * as many as possible of the members of its fanout behind it.
 * @param [in,out] n_tokens_p  tokens encoded for each worker of an attempt */
static bool dispatch(bt_core_t *core, bt_gen_t *gen, uint64_t now_us,
                     uint64_t *n_tokens_p)
{
    const bt_sched_request_t request = request_of(gen);
    bt_pick_t pick;
    fanout_t fanout = {.n = 0};
    bt_gen_knew_t knew;
    uint32_t level;

    if ((now_us >= gen->deadline_us) ||
        !bt_table_pick(&core->table, &request, &pick)) {
        return false;
    }
    if (pick.weighed != NULL) {
        bt_core_weigh(core, gen, tokens_of(core, gen), now_us, &pick,
                      &fanout.held);
    }
    if ((now_us < gen->hold_until_us) &&
        (is_instance(pick.prefill, gen->lost) ||
         is_instance(pick.decode, gen->lost))) {
        return false;
    }
    /* A silent worker resumes or is soon declared lost; an attempt there would
     * be lost with it. A full worker has a free seat when a request ends there.
     */
    if (!bt_sched_placement_takes(&pick.placement)) {
        core->expected_us = now_us;
        return false;
    }
    bt_sched_take(&pick.placement, &core->table.n_taken);
    collect_fanout(gen, &request, &pick, &fanout);
    level = bt_flow_level(core, gen,
                          (pick.prefill != NULL) ? pick.prefill : pick.decode);
    *n_tokens_p += bt_gen_n_tokens(gen); /* the leader carries the prompt */
    knew = known_at_placement(core, &pick, &fanout.held);
    for (uint32_t i = 0; i < fanout.n; i++) {
        bt_flow_charge(core, fanout.gens[i], i == 0);
        fanout.gens[i]->level = level;
        bt_gen_bind_weights(core, fanout.gens[i]);
        bt_gen_move(core, fanout.gens[i], BT_GEN_ON_SENT, now_us);
        send_attempt(core, &fanout, fanout.gens[i], &pick, now_us);
        note_attempt(core, fanout.gens[i], &pick, &knew, now_us);
        if (fanout.gens[i]->attempt.number == 1) {
            core->ops.on_placed(core->ops.ctx, fanout.gens[i]->user);
        }
    }
    return true;
}

/* A pass over all waiting generations, tenant by tenant in fair order. */
typedef struct pass {
    bt_core_t *core;
    uint64_t now_us, n_tokens;
    bt_flow_capacity_t capacity;
    bool is_over[BT_NEED_N]; /* no worker takes one of those now */
    uint32_t capabilities;   /* that all workers have */
    /* … one that needs this set of capabilities beyond them */
    bool special_is_over[BT_NEED_N][BT_SCHED_N_CAPABILITY_SETS];
} pass_t;

/* Returns the set of capabilities of the generation that not every worker has;
 * 0: it can go to each. */
static uint32_t lacks(const pass_t *pass, const bt_gen_t *gen)
{
    return BT_SCHED_CAPABILITY_SET(bt_gen_capabilities(gen) &
                                   ~pass->capabilities);
}

/* Returns the next generation of both queues, at[*need_p]; NULL at their end.
 */
static bt_gen_t *next_waiting(const pass_t *pass, const bt_core_flow_t *flow,
                              bt_worker_need_t *need_p)
{
    bt_list_t *first = NULL;

    for (unsigned i = 0; i < BT_NEED_N; i++) {
        if (!pass->is_over[i] && (flow->at[i] != &flow->waiting[i]) &&
            ((first == NULL) ||
             bt_sched_turn_before(bt_sched_turn_of(flow->at[i]),
                                  bt_sched_turn_of(first)))) {
            first = flow->at[i];
            *need_p = (bt_worker_need_t)i;
        }
    }
    return (first == NULL) ? NULL : BT_CONTAINER_OF(first, bt_gen_t, turn.link);
}

/* Sends the first generation of a flow that can be sent. @return false: none
 * can */
static bool send_one(pass_t *pass, bt_core_flow_t *flow)
{
    bt_worker_need_t need = BT_NEED_PAIR;
    bt_gen_t *gen;

    while ((gen = next_waiting(pass, flow, &need)) != NULL) {
        bt_list_t *before = flow->at[need]->prev;

        if ((pass->now_us >= gen->deadline_us) || gen->is_held) {
            flow->at[need] = flow->at[need]->next;
        } else if (bt_flow_is_limited(pass->core, gen, &pass->capacity)) {
            flow->is_limited = true;
            pass->core->expected_us = pass->now_us; /* workers are present */
            return false;
        } else if (pass->special_is_over[need][lacks(pass, gen)]) {
            flow->at[need] = flow->at[need]->next;
        } else if (dispatch(pass->core, gen, pass->now_us, &pass->n_tokens)) {
            flow->at[need] = before->next; /* its fanout was sent, too */
            return true;
        } else if ((pass->now_us < gen->hold_until_us) || (gen->rows != NULL) ||
                   (lacks(pass, gen) != 0)) {
            /* Later ones may be allowed where this one is not. */
            pass->special_is_over[need][lacks(pass, gen)] |=
                lacks(pass, gen) != 0;
            flow->at[need] = flow->at[need]->next;
        } else { /* no worker for this one, nor for any later one */
            pass->is_over[need] = true;
        }
    }
    return false;
}

/* Sends one generation of the first flow in fair order that has one to send.
 * @return false: nothing more can be sent */
static bool send_next(pass_t *pass)
{
    bt_core_t *core = pass->core;
    bool sent = false;

    BT_LIST_FOR_EACH_ENTRY(bt_core_flow_t, flow, &core->fair.backlog,
                           fair.link) {
        if (flow->pass != core->n_passes) {
            flow->pass = core->n_passes;
            flow->is_done = false;
            flow->is_limited = false;
            for (unsigned i = 0; i < BT_NEED_N; i++) {
                flow->at[i] = flow->waiting[i].next;
            }
        }
        if (!flow->is_done) {
            sent = send_one(pass, flow);
            flow->is_done = !sent;
        }
        if (sent) {
            break;
        }
    }
    return sent;
}

/* A flow that was held by its own limit has no claim to what others got
 * meanwhile. */
static void pass_limited(bt_core_t *core)
{
    BT_LIST_FOR_EACH_ENTRY(bt_core_flow_t, flow, &core->fair.backlog,
                           fair.link) {
        if (flow->fair.time >= core->fair.now) {
            break;
        }
        if ((flow->pass == core->n_passes) && flow->is_limited) {
            bt_sched_fair_passed(&core->fair, &flow->fair);
        }
    }
}

void bt_gen_dispatch_waiting(bt_core_t *core, uint64_t now_us)
{
    pass_t pass = {.core = core, .now_us = now_us};

    core->has_eased = false;
    if (core->n_waiting == core->n_held) {
        return;
    }
    core->n_passes++;
    pass.capabilities = bt_table_common_capabilities(&core->table);
    if (core->config.has_tenants) {
        bt_flow_capacity_read(core, &pass.capacity);
    }
    while ((pass.n_tokens < BT_CORE_TURN_TOKENS) && send_next(&pass)) {
    }
    pass_limited(core);
}

void bt_gen_rerun(bt_core_t *core, bt_gen_t *gen, const bt_leg_t *leg,
                  uint64_t now_us)
{
    if (gen->attempt.number > 0) { /* without memory the reason is left out */
        char **ended_p = &gen->attempts[gen->attempt.number - 1].ended;

        bt_free(*ended_p);
        *ended_p = bt_strdup(gen->trouble);
    }
    gen->n_drafted = gen->n_accepted = 0;
    bt_gen_handover(core, gen, BT_HANDOVER_GIVEN_UP, NULL);
    /* Workers enforce the deadline, too, and their message may arrive before
     * the router checks its own clock. */
    if (now_us >= gen->deadline_us) {
        bt_gen_fail_for_deadline(core, gen, now_us);
        return;
    }
    if (gen->attempt.number >= BT_GEN_MAX_ATTEMPTS) {
        gen->is_exhausted = true;
        bt_gen_fail(core, gen, 503, now_us, "%s, and this was attempt %u of %u",
                    gen->trouble, gen->attempt.number, BT_GEN_MAX_ATTEMPTS);
        return;
    }
    if (bt_gen_fails_for_weights(core, gen, now_us)) {
        return;
    }
    bt_gen_cancel_legs(core, gen, BT_FINISH_ERROR, leg);
    BT_LOG_INFO("request %" PRIu64
                " attempt %u failed: %s; retrying after %u tokens",
                gen->id, gen->attempt.number, gen->trouble, gen->n_output);
    core->ops.on_rerun(core->ops.ctx, &gen->origin, gen->trouble);
    bt_gen_move(core, gen, BT_GEN_ON_LOST, now_us);
}
