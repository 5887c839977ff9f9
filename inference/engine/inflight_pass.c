/* SPDX-License-Identifier: Apache-2.0 */
/* In-flight passes, which run while others begin: microbatches of a
 * pipeline-parallel model (microbatches.c), and overlapped passes on a device
 * (overlap.c). */
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "inference/engine/engine_priv.h"

bt_inflight_pass_t *bt_engine_flight(bt_engine_t *engine, uint32_t i)
{
    return &engine->flights[(engine->first_flight + i) % engine->max_flights];
}

void bt_engine_unload(bt_engine_t *engine, bt_inflight_pass_t *flight)
{
    while (!bt_list_empty(&flight->seqs)) {
        bt_seq_t *seq = bt_engine_seq_at(flight->seqs.next);

        bt_list_remove(&seq->sched.turn.link);
        bt_sched_queue_insert(&engine->running, &seq->sched.turn);
    }
}

/* Returns the sequences of a pass to their state before it. */
static void take_back(bt_inflight_pass_t *flight)
{
    for (uint32_t i = 0; i < flight->pass.n_planned; i++) {
        const bt_sched_item_t *item = &flight->pass.plan[i];
        bt_seq_t *seq = bt_engine_seq_of(item->seq);

        seq->n_under_way--;
        seq->from_id = UINT32_MAX;
        if (flight->is_ahead) {
            seq->sched.n_computed -= item->n_new;
            seq->sched.n_tokens -= item->last_chunk ? 1 : 0;
        }
    }
    flight->is_ahead = false;
}

bt_status_t bt_engine_take_off(bt_engine_t *engine)
{
    bt_inflight_pass_t *flight = bt_engine_flight(engine, engine->n_flights);
    bt_model_t *model = engine->config.model;
    bt_pass_t *pass = &flight->pass;
    bt_status_t status;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        bt_engine_seq_of(pass->plan[i].seq)->n_under_way++;
    }
    engine->pass = pass;
    bt_engine_lay_rows(engine);
    flight->fwd = bt_engine_forward_of(engine);
    pass->start_ns = bt_now_ns();
    bt_engine_mark(engine);
    pass->lent_ns = bt_model_lent_ns(model);
    status = bt_model_start(model, &flight->fwd);
    pass->lent_ns = bt_model_lent_ns(model) - pass->lent_ns;
    if (status != BT_OK) {
        BT_LOG_ERROR("forward pass of %u rows failed: %s", pass->n_rows,
                     bt_status_str(status));
    }
    engine->pass = &engine->whole;
    engine->n_flights++;
    return status;
}

/* Reports sequences of a failed pass that had left before. */
static void tell_gone(bt_report_t *report, const bt_inflight_pass_t *flight)
{
    for (uint32_t i = 0; i < flight->pass.n_planned; i++) {
        bt_seq_t *seq = bt_engine_seq_of(flight->pass.plan[i].seq);

        if (seq->is_gone) {
            bt_engine_report(report, BT_REPORT_LEFT, seq, 0, seq->gone_finish);
        }
    }
}

void bt_engine_land(bt_engine_t *engine, bt_report_t *report)
{
    bt_inflight_pass_t *flight = bt_engine_flight(engine, 0);
    float *logits = NULL;
    bt_status_t status;

    engine->pass = &flight->pass;
    status = bt_model_finish(engine->config.model, &flight->fwd, &logits);
    bt_engine_rehearse(engine, engine->n_layers);
    take_back(flight);
    bt_engine_unload(engine, flight);
    report->n_context_tokens = flight->n_context_tokens;
    bt_engine_settle(engine, report, status, logits);
    if (status != BT_OK) {
        tell_gone(report, flight);
    }
    engine->pass = &engine->whole;
    engine->first_flight = (engine->first_flight + 1) % engine->max_flights;
    engine->n_flights--;
}

void bt_engine_crash(bt_engine_t *engine, bt_report_t *report,
                     bt_status_t status)
{
    for (; engine->n_flights > 0; engine->n_flights--) {
        bt_inflight_pass_t *flight =
            bt_engine_flight(engine, engine->n_flights - 1);

        tell_gone(report, flight);
        take_back(flight);
        bt_engine_unload(engine, flight);
    }
    report->status = status;
    bt_engine_fail_all(engine, report);
}

void bt_engine_ground(bt_engine_t *engine)
{
    bt_status_t status = BT_OK;
    float *logits;

    for (; engine->n_flights > 0; engine->n_flights--) {
        bt_inflight_pass_t *flight = bt_engine_flight(engine, 0);

        if (status == BT_OK) {
            status =
                bt_model_finish(engine->config.model, &flight->fwd, &logits);
        }
        take_back(flight);
        bt_engine_unload(engine, flight);
        engine->first_flight = (engine->first_flight + 1) % engine->max_flights;
    }
}

bt_status_t bt_engine_alloc_flights(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t rows = bt_engine_max_rows(
        config->max_seqs, config->token_budget, config->kv.tokens_per_block);
    bt_status_t status = BT_OK;

    engine->max_flights = bt_model_max_started(config->model);
    if (engine->max_flights == 1) {
        return BT_OK;
    }
    engine->flights = bt_calloc(engine->max_flights, sizeof(*engine->flights));
    if (engine->flights == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < engine->max_flights; i++) {
        bt_list_init(&engine->flights[i].seqs);
        if (status == BT_OK) {
            status = bt_engine_alloc_pass(engine->config.model,
                                          &engine->flights[i].pass,
                                          config->max_seqs, rows);
        }
    }
    return status;
}

void bt_engine_free_flights(bt_engine_t *engine)
{
    for (uint32_t i = 0; (engine->flights != NULL) && (i < engine->max_flights);
         i++) {
        bt_engine_free_pass(&engine->flights[i].pass);
    }
    bt_free(engine->flights);
}
