/* SPDX-License-Identifier: Apache-2.0 */
/* Handles workers' messages about their parts of a generation. */
#include "router/core/core_priv.h"

#include <stdio.h>

#include "common/base/log.h"

/* Returns the open leg that a message of this worker is about, or NULL. */
static bt_leg_t *find_leg(bt_core_t *core, const bt_instance_t *worker,
                          bt_req_key_t key)
{
    bt_gen_t *gen = bt_gen_find(core, key.id);

    for (uint32_t i = 0; (gen != NULL) && (i < gen->n_legs); i++) {
        if ((gen->legs[i].worker == worker) &&
            (gen->legs[i].attempt == key.attempt)) {
            return &gen->legs[i];
        }
    }
    return NULL;
}

static void on_grant(bt_core_t *core, const bt_instance_t *worker,
                     const bt_msg_t *msg)
{
    bt_leg_t *leg = find_leg(core, worker, msg->u.grant.key);
    const bt_gen_t *gen;

    if ((leg == NULL) || (leg->part != BT_PART_DECODE) ||
        (!bt_leg_needed(leg) && !leg->leads)) {
        return;
    }
    leg->granted = true;
    bt_core_held_was(leg, msg->u.grant.n_cached);
    gen = leg->gen;
    if (bt_leg_is_current(leg)) {
        bt_gen_handover(core, leg->gen, BT_HANDOVER_BEGUN, NULL);
    }
    for (uint32_t i = 0; i < gen->n_legs; i++) {
        const bt_leg_t *sender = &gen->legs[i];

        if ((sender->part == BT_PART_PREFILL) && (sender->worker != NULL) &&
            (sender->attempt == leg->attempt)) {
            core->ops.send(core->ops.send_ctx, sender->worker, msg);
        }
    }
}

/* Handles an ERROR or CANCELED in place of a token. */
static void on_error_token(bt_core_t *core, const bt_leg_t *leg,
                           uint64_t now_us)
{
    bt_gen_t *gen = leg->gen;
    const char *phase = bt_gen_phase_name(gen);

    if (bt_leg_release(leg, false)) {
        snprintf(gen->trouble, sizeof(gen->trouble),
                 "worker %s gave the request up in phase %s",
                 leg->worker->hello.name, phase);
        core->ops.on_loss(core->ops.ctx, BT_LOSS_OTHER);
        bt_gen_rerun(core, gen, leg, now_us);
        bt_gen_dispatch_waiting(core, now_us);
    }
}

/* Stores the log-prob that came with token @a i, if requested.
 * @return false: the generation has failed */
static bool take_score(bt_core_t *core, const bt_leg_t *leg,
                       const bt_msg_tokens_t *tokens, uint32_t i,
                       uint64_t now_us)
{
    bt_gen_t *gen = leg->gen;
    const bt_token_score_t *score = NULL;
    uint32_t low = 0;
    uint32_t high = tokens->n_scores;

    if (((gen->rows->wants.what & BT_WANT_LOGPROBS) == 0) ||
        (tokens->tokens[i].index < gen->n_output)) {
        return true;
    }
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (tokens->scores[mid].token < i) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if ((low < tokens->n_scores) && (tokens->scores[low].token == i)) {
        score = &tokens->scores[low];
    }
    if ((score == NULL) ||
        (bt_gen_rows_score(gen->rows, tokens->tokens[i].index, &score->score) !=
         BT_OK)) {
        bt_gen_fail(core, gen, 500, now_us,
                    "worker %s sent token %u without the log-prob that is "
                    "wanted, or there is no memory for it",
                    leg->worker->hello.name, tokens->tokens[i].index);
        return false;
    }
    return true;
}

/* Stores the counts of drafts that came with token @a i.
 * @param [in,out] at_p  index into the counts of all tokens */
static void take_drafts(bt_gen_t *gen, const bt_msg_tokens_t *tokens,
                        uint32_t i, uint32_t *at_p)
{
    while ((tokens->n_drafts - *at_p >= 3) && (tokens->drafts[*at_p] < i)) {
        *at_p += 3;
    }
    if ((tokens->n_drafts - *at_p >= 3) && (tokens->drafts[*at_p] == i)) {
        gen->n_drafted = tokens->drafts[*at_p + 1];
        gen->n_accepted = tokens->drafts[*at_p + 2];
    }
}

static void on_tokens(bt_core_t *core, const bt_instance_t *worker,
                      const bt_msg_tokens_t *tokens, uint64_t now_us)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < tokens->n; i++) {
        const bt_token_t *token = &tokens->tokens[i];
        bt_leg_t *leg = find_leg(core, worker, token->key);
        bt_gen_t *gen;

        if (leg == NULL) {
            continue;
        }
        (void)bt_leg_move(core, leg, BT_LEG_ON_TOKEN);
        gen = leg->gen;
        if (!bt_leg_is_current(leg)) {
            continue;
        }
        take_drafts(gen, tokens, i, &at);
        if ((token->finish == BT_FINISH_ERROR) ||
            (token->finish == BT_FINISH_CANCELED)) {
            on_error_token(core, leg, now_us);
        } else if (bt_gen_has_beams(gen)) { /* its prompt alone is computed */
            (void)bt_attempt_move(gen, BT_ATTEMPT_ON_TOKEN);
        } else if (token->id >= core->config.n_vocab) {
            bt_gen_fail(core, gen, 500, now_us,
                        "worker %s sent token %u of a vocabulary of %u",
                        worker->hello.name, token->id, core->config.n_vocab);
        } else if ((gen->rows == NULL) ||
                   take_score(core, leg, tokens, i, now_us)) {
            bt_gen_token(core, gen, token, now_us);
        }
    }
}

/* Stores log-probs or logits, and processes tokens that waited for them. */
static void on_rows(bt_core_t *core, const bt_instance_t *worker,
                    const bt_msg_rows_t *m, uint64_t now_us)
{
    bt_leg_t *leg = find_leg(core, worker, m->key);
    bt_gen_t *gen;

    if ((leg == NULL) || !bt_leg_is_current(leg) || (leg->gen->rows == NULL)) {
        return;
    }
    gen = leg->gen;
    if (bt_gen_rows_take(gen->rows, m) != BT_OK) {
        bt_gen_fail(core, gen, 500, now_us,
                    "worker %s sent log-probs or logits that do not fit",
                    worker->hello.name);
        return;
    }
    bt_gen_take_early(core, gen, now_us);
}

static void on_beam(bt_core_t *core, const bt_instance_t *worker,
                    const bt_msg_beam_t *m, uint64_t now_us)
{
    const bt_leg_t *leg = find_leg(core, worker, m->key);

    if ((leg != NULL) && bt_leg_is_current(leg) &&
        (leg->part != BT_PART_PREFILL)) {
        bt_gen_take_beam(core, leg->gen, worker->hello.name, m, now_us);
    }
}

/* Returns how many prompt tokens are newly kept: whole blocks, minus cached
 * tokens. */
static uint32_t n_kept_of(const bt_gen_t *gen, const bt_instance_t *worker,
                          uint32_t n_cached)
{
    const uint32_t n_block = worker->hello.tokens_per_block;
    uint32_t n_whole;

    if (((worker->hello.flags & BT_HELLO_KEEPS_PROMPTS) == 0) ||
        (n_block == 0)) {
        return 0;
    }
    n_whole = gen->prompt->n - gen->prompt->n % n_block;
    return (n_whole > n_cached) ? n_whole - n_cached : 0;
}

static void on_prefilled(bt_core_t *core, const bt_instance_t *worker,
                         const bt_msg_prefilled_t *m)
{
    bt_leg_t *leg = find_leg(core, worker, m->key);
    bt_gen_t *gen;

    if ((leg == NULL) || !bt_leg_move(core, leg, BT_LEG_ON_PREFILLED)) {
        return;
    }
    gen = leg->gen;
    bt_core_held_was(leg, m->n_cached);
    bt_core_held_now(core, leg);
    if (leg->attempt != gen->attempt.number) {
        return;
    }
    /* Only the attempt that produced token #1 counts towards TTFT. */
    if ((bt_gen_state_is_live(gen->state) || (gen->state == BT_GEN_IS_ENDED)) &&
        (gen->attempt.from == 0)) {
        gen->ledger.prefill_queue_us = m->queue_us;
        gen->ledger.prefill_us = m->compute_us;
        gen->ledger.n_chunks = m->n_chunks;
        gen->ledger.n_cached = m->n_cached;
        gen->ledger.n_kept = n_kept_of(gen, worker, m->n_cached);
        core->ops.on_time(core->ops.ctx, BT_TIME_QUEUE,
                          gen->ledger.queue_us + m->queue_us);
    }
    bt_gen_settle(core, gen);
}

static void on_joined(bt_core_t *core, const bt_instance_t *worker,
                      const bt_msg_joined_t *m)
{
    bt_leg_t *leg = find_leg(core, worker, m->key);
    bt_ledger_t *l;
    bt_gen_t *gen;

    if ((leg == NULL) || (leg->part != BT_PART_DECODE)) {
        return;
    }
    gen = leg->gen;
    bt_core_held_now(core, leg);
    l = &gen->ledger;
    l->decode_queue_us += m->queue_us;
    if (m->n_descriptors >
        0) { /* else KV came with that of a fanout's leader */
        l->n_transfers++;
        l->grant_wait_us += m->grant_wait_us;
        l->transfer_us += m->transfer_us;
        l->transfer_bytes += m->transfer_bytes;
        l->transfer_pieces += m->n_descriptors;
        l->kv_verify_us += m->handover_us;
        core->ops.on_transfer(core->ops.ctx, m, l->n_transfers == 1);
        if (bt_leg_is_current(leg)) {
            bt_gen_handover(core, gen, BT_HANDOVER_ENDED, m);
        }
    }
    if (bt_leg_is_current(leg)) {
        (void)bt_attempt_move(gen, BT_ATTEMPT_ON_JOINED);
    }
}

/* Returns the HTTP status if a retry would fail in the same way, else 0. */
static int final_http_status(const bt_gen_t *gen, int32_t status)
{
    switch (status) {
    case BT_ERR_AMBIGUOUS:
        return (gen->prompt->grammar_bytes > 0) ? 400 : 500;
    case BT_ERR_TOO_LARGE:
    case BT_ERR_NO_BLOCKS: /* more blocks than the worker has: never fits */
        return 400;
    case BT_ERR_INVALID_PARAM:
    case BT_ERR_OVERFLOW:
    case BT_ERR_UNSUPPORTED:
        return 500;
    default:
        return 0;
    }
}

/* A prefill worker withdraws its transfer when token #1 is the last. The decode
 * worker may report that before the token arrives over another link: only the
 * prefill worker's own message decides. */
static bool sender_withdrew(const bt_leg_t *leg, const bt_msg_failed_t *m)
{
    return (m->status == BT_ERR_CANCELED) && (leg->part == BT_PART_DECODE) &&
           (leg->gen->attempt.prefill->worker != NULL) &&
           bt_attempt_move(leg->gen, BT_ATTEMPT_ON_WITHDREW);
}

static void avoid(bt_gen_t *gen, const bt_instance_t *worker)
{
    if (gen->avoid.n < BT_TABLE_MAX_AVOID) {
        gen->avoid.instances[gen->avoid.n++] = worker->hello.instance;
    }
}

/* Makes the next attempt avoid the worker if possible. When a worker reports
 * its peer lost, either may be at fault; the peer may be dead without the
 * router knowing. */
static void avoid_at_fault(bt_gen_t *gen, const bt_leg_t *leg, int32_t status,
                           uint64_t now_us)
{
    const bt_attempt_t *a = &gen->attempt;
    const bt_leg_t *peer = (leg == a->decode) ? a->prefill : a->decode;

    avoid(gen, leg->worker);
    if ((status == BT_ERR_PEER_LOST) && (peer != NULL) &&
        (peer->worker != NULL)) {
        avoid(gen, peer->worker);
        gen->lost = peer->worker->hello.instance;
        gen->hold_until_us = now_us + BT_CORE_HOLD_MS * 1000u;
    }
}

static void on_failed(bt_core_t *core, const bt_instance_t *worker,
                      const bt_msg_failed_t *m, uint64_t now_us)
{
    const bt_leg_t *leg = find_leg(core, worker, m->key);
    const char *phase;
    int http_status;
    bt_gen_t *gen;

    if ((leg == NULL) || !bt_leg_needed(leg) || sender_withdrew(leg, m)) {
        return;
    }
    gen = leg->gen;
    http_status = final_http_status(gen, m->status);
    phase = bt_gen_phase_name(gen);
    core->ops.on_loss(core->ops.ctx, bt_gen_loss_of(gen, m->status));
    (void)bt_leg_release(leg, false);
    snprintf(gen->trouble, sizeof(gen->trouble),
             "%s worker %s failed in phase %s: %.200s", bt_leg_part_name(leg),
             worker->hello.name, phase, m->text);
    if (http_status != 0) {
        gen->is_ambiguous =
            (m->status == BT_ERR_AMBIGUOUS) && (http_status == 400);
        bt_gen_fail(core, gen, http_status, now_us, "%s", gen->trouble);
        return;
    }
    avoid_at_fault(gen, leg, m->status, now_us);
    bt_gen_rerun(core, gen, leg, now_us);
}

static void note_ended(const bt_core_t *core, const bt_leg_t *leg,
                       const bt_msg_ended_t *m)
{
    bt_ledger_t *l = &leg->gen->ledger;

    l->n_pauses += m->n_pauses;
    l->paused_us += m->paused_us;
    l->n_drafted += m->n_drafted;
    l->n_accepted += m->n_accepted;
    switch (leg->part) {
    case BT_PART_LOCAL: /* no KV was handed over */
        l->worker_decode_us += m->decode_us;
        break;
    case BT_PART_DECODE:
        l->worker_decode_us += m->decode_us;
        l->join_wait_us += m->join_wait_us;
        if (m->n_iterations > 0) {
            core->ops.on_time(core->ops.ctx, BT_TIME_JOIN_WAIT,
                              m->join_wait_us);
        }
        break;
    case BT_PART_PREFILL:
        if (m->transfer_tail_us > 0) {
            l->transfer_tail_us += m->transfer_tail_us;
            core->ops.on_time(core->ops.ctx, BT_TIME_TAIL, m->transfer_tail_us);
        }
        break;
    }
}

static void on_ended(bt_core_t *core, const bt_instance_t *worker,
                     const bt_msg_ended_t *m, uint64_t now_us)
{
    bt_leg_t *leg = find_leg(core, worker, m->key);
    const char *phase;
    bt_gen_t *gen;
    bool lost;

    if (leg == NULL) {
        return;
    }
    gen = leg->gen;
    note_ended(core, leg, m);
    phase = bt_gen_phase_name(gen);
    /* A worker that ends without its last token would leave the client waiting.
     */
    lost = bt_leg_release(leg, true);
    (void)bt_leg_move(core, leg, BT_LEG_ON_CLOSE);
    if (lost) {
        snprintf(gen->trouble, sizeof(gen->trouble),
                 "%s worker %s ended the request early in phase %s",
                 bt_leg_part_name(leg), worker->hello.name, phase);
        core->ops.on_loss(core->ops.ctx, BT_LOSS_OTHER);
        bt_gen_rerun(core, gen, leg, now_us);
        return;
    }
    bt_gen_settle(core, gen);
}

/* After a computed prompt: a tenant with less work ahead may send its next one.
 */
static void send_more(bt_core_t *core, uint64_t now_us)
{
    if (core->config.has_tenants && core->has_eased && (core->n_waiting > 0)) {
        bt_gen_dispatch_waiting(core, now_us);
    }
    core->has_eased = false;
}

bt_status_t bt_core_message(bt_core_t *core, bt_instance_t *worker,
                            const bt_msg_t *msg, uint64_t now_us)
{
    switch (msg->type) {
    case BT_MSG_GRANT:
        on_grant(core, worker, msg);
        return BT_OK;
    case BT_MSG_TOKENS:
        on_tokens(core, worker, &msg->u.tokens, now_us);
        send_more(core, now_us);
        return BT_OK;
    case BT_MSG_ROWS:
        on_rows(core, worker, &msg->u.rows, now_us);
        return BT_OK;
    case BT_MSG_BEAM:
        on_beam(core, worker, &msg->u.beam, now_us);
        return BT_OK;
    case BT_MSG_PREFILLED:
        on_prefilled(core, worker, &msg->u.prefilled);
        send_more(core, now_us);
        return BT_OK;
    case BT_MSG_JOINED:
        on_joined(core, worker, &msg->u.joined);
        return BT_OK;
    case BT_MSG_FAILED:
        on_failed(core, worker, &msg->u.failed, now_us);
        bt_gen_dispatch_waiting(core, now_us);
        return BT_OK;
    case BT_MSG_ENDED:
        on_ended(core, worker, &msg->u.ended, now_us);
        bt_gen_dispatch_waiting(core, now_us); /* a seat is free */
        return BT_OK;
    case BT_MSG_STATS:
        bt_core_worker_stats(core, worker, &msg->u.stats, now_us);
        return BT_OK;
    case BT_MSG_KV_LINK:
        bt_core_kv_link(core, worker, &msg->u.kv_link, now_us);
        return BT_OK;
    case BT_MSG_WEIGHTS_CHECKED:
        bt_core_weights_checked(core, worker, &msg->u.weights_checked, now_us);
        return BT_OK;
    case BT_MSG_CACHE_IS_EMPTY:
        bt_core_cache_is_empty(worker, &msg->u.cache_is_empty);
        return BT_OK;
    case BT_MSG_ADAPTER_READY:
        bt_core_adapter_ready(core, worker, &msg->u.adapter_ready);
        bt_gen_dispatch_waiting(core, now_us);
        return BT_OK;
    case BT_MSG_ADAPTER_WANT:
        bt_core_adapter_want(core, worker, &msg->u.adapter_want);
        return BT_OK;
    case BT_MSG_DRAIN:
        BT_LOG_INFO("worker %s drains", worker->hello.name);
        bt_core_worker_drains(core, worker);
        return BT_OK;
    case BT_MSG_HELLO:
    case BT_MSG_REQUEST:
    case BT_MSG_CANCEL:
    case BT_MSG_PEER:
    case BT_MSG_PEER_GONE:
    case BT_MSG_ROLE:
    case BT_MSG_WEIGHTS:
    case BT_MSG_SLEEP:
    case BT_MSG_CACHE_RESET:
    case BT_MSG_ADAPTER:
    case BT_MSG_ADAPTER_PART:
        break;
    }
    return BT_ERR_BAD_MESSAGE;
}
