/* SPDX-License-Identifier: Apache-2.0 */
/* Layer-boundary preemption: passes computed while an iteration waits. */
#include "common/base/clock.h"
#include "inference/engine/engine_priv.h"

static void take_in_all(bt_engine_t *engine)
{
    bt_seq_t *seq;

    while ((seq = bt_engine_pop(engine)) != NULL) {
        bt_engine_take_in(engine, seq);
    }
}

/* Plans a chunk of one prompt that is ordered before everything in the running
 * iteration; no larger than a chunk of its own would be, nor than the free
 * rows. */
static bool plan_inside(bt_engine_t *engine, uint32_t *n_context_p)
{
    const bt_engine_config_t *config = &engine->config;
    const bt_pass_t *whole = &engine->whole;
    const uint32_t n_free =
        bt_engine_max_rows(config->max_seqs, config->token_budget,
                           config->kv.tokens_per_block) -
        whole->n_rows;
    const uint32_t chunk = engine->chunk.alone.tokens;
    bt_sched_item_t *item = engine->inside.plan;

    if (!bt_sched_plan_inside(&engine->running, whole->plan, whole->n_planned,
                              (chunk < n_free) ? chunk : n_free,
                              config->kv.tokens_per_block, item) ||
        bt_engine_is_canceled(bt_engine_seq_of(item->seq))) {
        return false;
    }
    *n_context_p = item->n_new;
    engine->inside.n_planned = bt_sched_limit_rows(
        item, 1, BT_ENGINE_EXTRA_ROWS - BT_ENGINE_MAX_DRAFTS, n_context_p);
    return engine->inside.n_planned > 0;
}

void bt_engine_look_inside(void *engine_p, uint32_t n_layers)
{
    bt_engine_t *engine = engine_p;
    uint32_t n_context;
    bt_report_t *report;

    bt_engine_rehearse(engine, n_layers);
    take_in_all(engine); /* late joins were taken in before this call */
    if ((engine->inside_status != BT_OK) || !plan_inside(engine, &n_context)) {
        return;
    }
    report = bt_ring_pop(engine->spare);
    if (report == NULL) {
        return; /* the owner has not recycled reports yet */
    }
    bt_engine_reset_report(report);
    report->n_context_tokens = n_context;
    engine->pass = &engine->inside;
    bt_engine_run_pass(engine, report);
    engine->pass = &engine->whole;
    engine->inside_ns += bt_now_ns() - report->start_ns;
    engine->inside_lent_ns += report->work.lent_ns;
    /* After a failure all sequences leave with the running iteration. */
    engine->inside_status = report->status;
    report->status = BT_OK;
    bt_engine_push_report(engine, report);
}
