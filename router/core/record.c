/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of the core to others: the timing record of a generation, its record
 * at the end, and the state for the metrics. */
#include "router/core/core_priv.h"

#include <string.h>

#include "common/base/alloc.h"
#include "router/core/kv_links.h"

void bt_gen_handover(const bt_core_t *core, bt_gen_t *gen,
                     bt_handover_phase_t phase, const bt_msg_joined_t *joined)
{
    const bool begins = phase == BT_HANDOVER_BEGUN;

    if ((gen->hands_over == begins) || (gen->attempt.number == 0)) {
        return;
    }
    gen->hands_over = begins;
    core->ops.on_handover(core->ops.ctx, &gen->origin,
                          &gen->attempts[gen->attempt.number - 1], phase,
                          joined);
}

/* True when a lease is held whose KV has not arrived. */
static bool lease_waits(const bt_gen_t *gen)
{
    const bt_attempt_t *a = &gen->attempt;

    return ((a->state == BT_ATTEMPT_IS_SENT) ||
            (a->state == BT_ATTEMPT_IS_TRANSFER)) &&
           (a->decode != NULL) && a->decode->granted;
}

bt_gen_loss_t bt_gen_loss_of_deadline(const bt_gen_t *gen)
{
    return lease_waits(gen) ? BT_LOSS_LEASE_EXPIRED : BT_LOSS_DEADLINE;
}

bt_gen_loss_t bt_gen_loss_of(const bt_gen_t *gen, int32_t status)
{
    switch (status) {
    case BT_ERR_TIMED_OUT:
        return bt_gen_loss_of_deadline(gen);
    case BT_ERR_BUSY: /* with a lease: others need its blocks */
        return lease_waits(gen) ? BT_LOSS_LEASE_EXPIRED : BT_LOSS_REFUSED;
    case BT_ERR_PEER_LOST:
    case BT_ERR_CORRUPT:
    case BT_ERR_STALE:
    case BT_ERR_BAD_MESSAGE:
    case BT_ERR_CANCELED:
    case BT_ERR_MISMATCH:
    case BT_ERR_IO:
        return BT_LOSS_TRANSFER;
    case BT_ERR_TOO_LARGE:
    case BT_ERR_NO_BLOCKS:
    case BT_ERR_INVALID_PARAM:
    case BT_ERR_OVERFLOW:
    case BT_ERR_UNSUPPORTED:
    case BT_ERR_AMBIGUOUS:
        return BT_LOSS_REFUSED;
    default:
        return BT_LOSS_OTHER;
    }
}

void bt_gen_note_token(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    bt_ledger_t *l = &gen->ledger;

    if (gen->first_token_at_us == 0) {
        gen->first_token_at_us = now_us;
        bt_core_probe_over(core, gen, now_us);
        core->ops.on_time(core->ops.ctx, BT_TIME_FIRST_TOKEN,
                          l->parse_us + l->tokenize_us + now_us -
                              gen->arrived_us);
    } else {
        const uint64_t gap_us = now_us - gen->last_token_at_us;

        if (gen->second_token_at_us == 0) {
            gen->second_token_at_us = now_us;
        }
        l->max_gap_us = (gap_us > l->max_gap_us) ? gap_us : l->max_gap_us;
        core->ops.on_time(core->ops.ctx, BT_TIME_NEXT_TOKEN, gap_us);
    }
    gen->last_token_at_us = now_us;
}

/* Workers' durations are clamped where they exceed the measured time, so the
 * parts always sum to what the router measured. */
void bt_gen_close_ledger(bt_gen_t *gen)
{
    bt_ledger_t *l = &gen->ledger;
    const uint64_t before = l->parse_us + l->tokenize_us;
    const uint64_t first = (gen->first_token_at_us != 0)
                               ? gen->first_token_at_us - gen->arrived_us
                               : l->total_us - before;
    uint64_t left = (first > l->queue_us) ? first - l->queue_us : 0;

    l->prefill_queue_us =
        (l->prefill_queue_us < left) ? l->prefill_queue_us : left;
    left -= l->prefill_queue_us;
    l->prefill_us = (l->prefill_us < left) ? l->prefill_us : left;
    l->first_token_us = left - l->prefill_us;
    if (gen->first_token_at_us != 0) {
        l->ttft_us = before + first;
    }
    if (gen->second_token_at_us != 0) {
        l->handover_us = gen->second_token_at_us - gen->first_token_at_us;
        l->decode_us = l->total_us - before - first - l->handover_us;
    } else {
        l->handover_us = l->total_us - before - first;
    }
    l->n_prompt = gen->prompt->n;
    l->n_output = gen->n_output;
    l->n_attempts = gen->attempt.number;
}

void bt_gen_record(bt_core_t *core, bt_gen_t *gen)
{
    const bt_gen_record_t record = {
        .ledger = &gen->ledger,
        .origin = &gen->origin,
        .sampling = &gen->sampling,
        .max_new = gen->max_new,
        .arrived_us = gen->arrived_us,
        .finish = gen->finish,
        .http_status = gen->http_status,
        .trouble = gen->trouble,
        .n_attempts = gen->attempt.number,
        .attempts = gen->attempts,
        .prompt = gen->prompt->tokens,
        .output = gen->output,
    };

    core->ops.on_record(core->ops.ctx, &record);
}

void bt_core_record_rest(bt_core_t *core)
{
    bt_list_t *head;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->gens_by_id)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_gen_t, gen, head, by_id) {
            if (gen->state == BT_GEN_IS_ENDED) {
                bt_gen_move(core, gen, BT_GEN_ON_LEDGER, 0);
            }
            if (gen->state == BT_GEN_IS_SETTLED) {
                bt_gen_move(core, gen, BT_GEN_ON_RECORD, 0);
            }
        }
    }
}

/* True when the last attempt's PREFILLED is still to come. Earlier attempts do
 * not count in the timing record. */
static bool prefilled_is_due(const bt_gen_t *gen)
{
    for (uint32_t i = 0; i < gen->n_legs; i++) {
        const bt_leg_t *leg = &gen->legs[i];

        if ((leg->attempt == gen->attempt.number) &&
            ((leg->state == BT_LEG_IS_COMPUTING) ||
             (leg->state == BT_LEG_IS_SAMPLED))) {
            return true;
        }
    }
    return false;
}

void bt_gen_settle(bt_core_t *core, bt_gen_t *gen)
{
    if (bt_gen_state_is_live(gen->state)) {
        return;
    }
    if ((gen->state == BT_GEN_IS_ENDED) && !prefilled_is_due(gen)) {
        bt_gen_move(core, gen, BT_GEN_ON_LEDGER, 0);
        core->ops.on_ledger(core->ops.ctx, &gen->ledger);
    }
    if (gen->n_open_legs > 0) {
        return;
    }
    if (gen->state == BT_GEN_IS_SETTLED) {
        bt_gen_move(core, gen, BT_GEN_ON_RECORD, 0);
    }
    bt_list_remove(&gen->by_id);
    bt_gen_free(core, gen);
}

static uint32_t state_of(const bt_instance_t *worker)
{
    return ((worker->sched.health == BT_SCHED_SUSPECT) && worker->is_starved)
               ? BT_METRICS_STARVED
               : (uint32_t)worker->sched.health;
}

static void view_links(const bt_table_t *table, bt_metrics_view_t *view)
{
    const bt_kv_link_counts_t counts = bt_kv_links_count(table);

    view->n_links_proven = counts.n_proven;
    view->n_links_failed = counts.n_failed;
    view->n_links_unproven = counts.n_unproven;
    view->n_cuts = 0;
    BT_LIST_FOR_EACH_ENTRY(const bt_cut_t, cut, &table->cuts, link) {
        bt_metrics_cut_t *out = &view->cuts[view->n_cuts++];

        memcpy(out->prefill, cut->prefill->hello.name, sizeof(out->prefill));
        memcpy(out->decode, cut->decode->hello.name, sizeof(out->decode));
        memcpy(out->at, cut->at, sizeof(out->at));
        memcpy(out->why, cut->why, sizeof(out->why));
    }
}

bt_status_t bt_core_view(const bt_core_t *core, bt_metrics_view_t *view)
{
    const bt_list_t *head = &core->table.workers;
    bt_metrics_worker_t *workers;
    uint32_t n = 0;

    for (const bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        n++;
    }
    workers = bt_calloc((size_t)n + 1, sizeof(*workers));
    if (workers == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    view->cuts = bt_calloc((size_t)core->table.n_cuts + 1, sizeof(*view->cuts));
    if (view->cuts == NULL) {
        bt_free(workers);
        return BT_ERR_NO_MEMORY;
    }
    view_links(&core->table, view);
    n = 0;
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, head, link) {
        workers[n++] = (bt_metrics_worker_t){
            .hello = &worker->hello,
            .stats = worker->has_stats ? &worker->stats : NULL,
            .state = state_of(worker),
        };
    }
    view->workers = workers;
    view->n_workers = n;
    view->n_in_flight = core->n_live;
    view->n_waiting = core->n_waiting;
    view->n_legs = core->n_legs;
    return BT_OK;
}

void bt_core_view_fini(bt_metrics_view_t *view)
{
    bt_free(view->cuts);
    view->cuts = NULL;
    bt_free(view->workers);
    view->workers = NULL;
}
