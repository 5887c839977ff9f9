/* SPDX-License-Identifier: Apache-2.0 */
/* Passes that follow each other through the stages of a model: one begins while
 * the stages behind are at those before it. Each has sequences of its own, and
 * a sequence's next token is begun when the one before it is drawn; which they
 * are is common/sched/sched_lots.h. */
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sched/sched_lots.h"
#include "inference/engine/engine_priv.h"

static bt_flight_t *flight_at(bt_engine_t *engine, uint32_t i)
{
    return &engine->flights[(engine->first_flight + i) % engine->max_flights];
}

/* Of one that has room: a token and drafts, or a chunk. */
static void count(const bt_engine_t *engine, const bt_sched_seq_t *seq,
                  bt_sched_ready_t *ready)
{
    const uint32_t left = seq->n_tokens - seq->n_computed;
    const uint32_t chunk = engine->chunk.alone.tokens;

    if (bt_sched_seq_has_chunks(seq)) {
        ready->n_rows += (left < chunk) ? left : chunk;
    } else {
        ready->n_rows += left;
        ready->n_generating++;
    }
}

/* Of those that are in no pass. */
static bt_sched_ready_t count_free(bt_engine_t *engine)
{
    bt_sched_ready_t ready = {0};
    bt_list_t *pos;
    bt_list_t *tmp;

    (void)bt_engine_has_work(engine); /* rooms are looked at */
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        const bt_sched_seq_t *seq = &bt_engine_seq_at(pos)->sched;

        if (bt_sched_seq_has_room(seq)) {
            count(engine, seq, &ready);
        }
    }
    return ready;
}

static bt_sched_ready_t count_all(bt_engine_t *engine,
                                  const bt_sched_ready_t *free)
{
    bt_sched_ready_t all = *free;

    for (uint32_t i = 0; i < engine->n_flights; i++) {
        const bt_pass_t *pass = &flight_at(engine, i)->pass;

        for (uint32_t k = 0; k < pass->n_planned; k++) {
            count(engine, pass->plan[k].seq, &all);
        }
    }
    return all;
}

/* Guesses of one that is not in the pass after all. */
static void drop_drafts(bt_sched_seq_t *seq)
{
    seq->n_tokens -= seq->n_drafts;
    seq->n_drafts = 0;
}

/* Plan a lot, whose sequences leave the queue.
 * @return whether there is something in it */
static bool load(bt_engine_t *engine, bt_flight_t *flight, uint32_t n_most)
{
    bt_pass_t *pass = &flight->pass;
    const uint32_t n = bt_engine_plan(engine, pass, &flight->n_context_tokens);

    pass->n_planned = bt_sched_cut_lot(pass->plan, n, n_most);
    for (uint32_t i = pass->n_planned; i < n; i++) {
        drop_drafts(pass->plan[i].seq);
    }
    for (uint32_t i = 0; i < pass->n_planned; i++) {
        bt_list_t *link = &pass->plan[i].seq->turn.link;

        bt_list_remove(link);
        bt_list_push_back(&flight->seqs, link);
    }
    return pass->n_planned > 0;
}

/* Back to the queue, in their places. */
static void unload(bt_engine_t *engine, bt_flight_t *flight)
{
    while (!bt_list_empty(&flight->seqs)) {
        bt_seq_t *seq = bt_engine_seq_at(flight->seqs.next);

        bt_list_remove(&seq->sched.turn.link);
        bt_sched_queue_insert(&engine->running, &seq->sched.turn);
    }
}

/* A rank is lost, or its device: what is under way ends nowhere. */
static void crash(bt_engine_t *engine, bt_report_t *report, bt_status_t status)
{
    for (; engine->n_flights > 0; engine->n_flights--) {
        unload(engine, flight_at(engine, engine->n_flights - 1));
    }
    report->status = status;
    bt_engine_fail_all(engine, report);
}

/* @return false: none begins now */
static bool begin(bt_engine_t *engine, bt_status_t *status_p)
{
    bt_flight_t *flight = flight_at(engine, engine->n_flights);
    const uint32_t least = bt_model_least_rows(engine->config.model);
    const bt_sched_ready_t free = count_free(engine);
    const bt_sched_ready_t all = count_all(engine, &free);
    const bt_sched_lots_t lots =
        bt_sched_lots(&all, engine->max_flights, least);

    if (!bt_sched_lot_begins(&lots, engine->n_flights, free.n_rows, least) ||
        !load(engine, flight, lots.n_generating)) {
        return false;
    }
    engine->pass = &flight->pass;
    bt_engine_lay_rows(engine);
    flight->fwd = bt_engine_forward_of(engine);
    flight->pass.start_ns = bt_now_ns();
    bt_engine_mark(engine);
    flight->pass.lent_ns = bt_model_lent_ns(engine->config.model);
    *status_p = bt_model_start(engine->config.model, &flight->fwd);
    flight->pass.lent_ns =
        bt_model_lent_ns(engine->config.model) - flight->pass.lent_ns;
    if (*status_p != BT_OK) {
        BT_LOG_ERROR("forward pass of %u rows failed: %s", flight->pass.n_rows,
                     bt_status_str(*status_p));
    }
    engine->pass = &engine->whole;
    engine->n_flights++;
    return true;
}

/* The oldest; its sequences are in the queue again. */
static void end(bt_engine_t *engine, bt_report_t *report)
{
    bt_flight_t *flight = flight_at(engine, 0);
    float *logits = NULL;
    bt_status_t status;

    engine->pass = &flight->pass;
    status = bt_model_finish(engine->config.model, &flight->fwd, &logits);
    bt_engine_rehearse(engine, engine->n_layers);
    unload(engine, flight);
    report->n_context_tokens = flight->n_context_tokens;
    bt_engine_settle(engine, report, status, logits);
    engine->pass = &engine->whole;
    engine->first_flight = (engine->first_flight + 1) % engine->max_flights;
    engine->n_flights--;
}

void bt_engine_fly(bt_engine_t *engine, bt_report_t *report)
{
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (engine->n_flights < engine->max_flights) &&
           begin(engine, &status)) {
        bt_engine_take_changes(engine, report);
    }
    if ((status == BT_OK) && (engine->n_flights > 0)) {
        end(engine, report);
        status = report->status;
    }
    if (status != BT_OK) {
        crash(engine, report, status);
    }
}

void bt_engine_ground(bt_engine_t *engine)
{
    bt_status_t status = BT_OK;
    float *logits;

    for (; engine->n_flights > 0; engine->n_flights--) {
        bt_flight_t *flight = flight_at(engine, 0);

        if (status == BT_OK) {
            status =
                bt_model_finish(engine->config.model, &flight->fwd, &logits);
        }
        unload(engine, flight);
        engine->first_flight = (engine->first_flight + 1) % engine->max_flights;
    }
}

bt_status_t bt_engine_alloc_flights(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t rows = bt_engine_max_rows(
        config->max_seqs, config->token_budget, config->kv.tokens_per_block);
    bt_status_t status = BT_OK;

    /* Of calls that chain no two are of different sequences here. */
    engine->max_flights = bt_model_chains(config->model)
                              ? 1
                              : bt_model_max_started(config->model);
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
