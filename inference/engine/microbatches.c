/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches of a pipeline-parallel model: a pass begins while later stages
 * still compute the previous ones. Each pass has its own sequences, and a
 * sequence's next token is started when the previous one is drawn;
 * common/sched/sched_microbatch.h assigns sequences to passes. */
#include "common/sched/sched_microbatch.h"
#include "inference/engine/engine_priv.h"

/* Counts the rows of a sequence that has room: a token and drafts, or a
 * chunk. */
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

/* Counts the sequences that are in no pass. */
static bt_sched_ready_t count_free(bt_engine_t *engine)
{
    bt_sched_ready_t ready = {0};
    bt_list_t *pos;
    bt_list_t *tmp;

    (void)bt_engine_has_work(engine); /* updates the rooms */
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
        const bt_pass_t *pass = &bt_engine_flight(engine, i)->pass;

        for (uint32_t k = 0; k < pass->n_planned; k++) {
            count(engine, pass->plan[k].seq, &all);
        }
    }
    return all;
}

/* Drops the drafts of a sequence that is not in the pass after all. */
static void drop_drafts(bt_sched_seq_t *seq)
{
    seq->n_tokens -= seq->n_drafts;
    seq->n_drafts = 0;
}

/* Plans a microbatch, whose sequences leave the queue.
 * @return whether it has any */
static bool load(bt_engine_t *engine, bt_inflight_pass_t *flight,
                 uint32_t n_most)
{
    bt_pass_t *pass = &flight->pass;
    const uint32_t n = bt_engine_plan(engine, pass, &flight->n_context_tokens);

    pass->n_planned = bt_sched_microbatch_cut(pass->plan, n, n_most);
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

/* @return false: none begins now */
static bool begin(bt_engine_t *engine, bt_status_t *status_p)
{
    bt_inflight_pass_t *flight = bt_engine_flight(engine, engine->n_flights);
    const uint32_t least = bt_model_least_rows(engine->config.model);
    const bt_sched_ready_t free = count_free(engine);
    const bt_sched_ready_t all = count_all(engine, &free);
    const bt_sched_microbatches_t lots =
        bt_sched_microbatches(&all, engine->max_flights, least);

    if (!bt_sched_microbatch_begins(&lots, engine->n_flights, free.n_rows,
                                    least) ||
        !load(engine, flight, lots.n_generating)) {
        return false;
    }
    *status_p = bt_engine_take_off(engine);
    return true;
}

void bt_engine_run_lots(bt_engine_t *engine, bt_report_t *report)
{
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (engine->n_flights < engine->max_flights) &&
           begin(engine, &status)) {
        bt_engine_take_changes(engine, report);
    }
    if ((status == BT_OK) && (engine->n_flights > 0)) {
        bt_engine_land(engine, report);
        status = report->status;
    }
    if (status != BT_OK) {
        bt_engine_crash(engine, report, status);
    }
}
