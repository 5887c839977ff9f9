/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/engine/engine_priv.h"

#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/thread.h"

#define ITL_US 50000u

uint32_t bt_engine_max_rows(uint32_t max_seqs, uint32_t token_budget,
                            uint32_t tokens_per_block, uint32_t max_drafts)
{
    return max_seqs + max_drafts + token_budget + tokens_per_block;
}

uint32_t bt_engine_max_logit_rows(uint32_t max_seqs, uint32_t max_drafts)
{
    return max_seqs + max_drafts + BT_ENGINE_EXTRA_ROWS;
}

static bt_report_t *wait_for_spare(bt_engine_t *engine)
{
    bt_report_t *report = bt_ring_pop(engine->spare);

    while ((report == NULL) && !atomic_load(&engine->stop)) {
        bt_ring_wait(engine->spare, 100);
        report = bt_ring_pop(engine->spare);
    }
    return report;
}

static void set_busy(bt_engine_t *engine, bool busy)
{
    bt_engine_mark(engine);
    atomic_store_explicit(&engine->busy, busy, memory_order_relaxed);
}

static void *compute_main(void *arg)
{
    bt_engine_t *engine = arg;

    bt_thread_works_long(engine->config.own_cores);
    while (!atomic_load(&engine->stop)) {
        bt_report_t *report = wait_for_spare(engine);

        if (report == NULL) {
            break;
        }
        bt_engine_reset_report(report);
        bt_engine_give_way(engine, report);
        set_busy(engine, true);
        bt_engine_take_changes(engine, report);
        bt_engine_want_cores(engine);
        while (!bt_engine_has_work(engine) && (engine->n_inflight == 0) &&
               (report->n_items == 0) && !atomic_load(&engine->stop)) {
            set_busy(engine, false);
            engine->landed_ns = 0; /* the next pass is not back to back */
            bt_ring_wait(engine->inbox, 100);
            set_busy(engine, true);
            bt_engine_take_changes(engine, report);
        }
        if (bt_model_chains(engine->config.model)) {
            bt_engine_run_overlapped(engine, report);
        } else if (engine->max_inflight > 1) {
            bt_engine_run_microbatches(engine, report);
        } else if (bt_engine_has_work(engine)) {
            bt_engine_iterate(engine, report);
        }
        bt_engine_push_report(engine, report);
    }
    bt_engine_drain(engine);
    return NULL;
}

void bt_engine_free_pass(bt_pass_t *pass)
{
    bt_free(pass->plan);
    bt_free(pass->seqs);
    bt_free(pass->loras);
    bt_free(pass->rows_tokens);
    bt_free(pass->embeddings);
    bt_free(pass->from_ids);
    bt_free(pass->logit_rows);
    bt_free(pass->needs);
    bt_free(pass->best_ids);
    bt_free(pass->first_ids);
    bt_free(pass->ids);
    bt_free(pass->draw_of);
    bt_free(pass->score_of);
    bt_drawing_destroy(pass->drawing);
}

bt_status_t bt_engine_alloc_pass(const bt_model_t *model, bt_pass_t *pass,
                                 uint32_t n_seqs, uint32_t max_drafts,
                                 uint32_t rows)
{
    const uint32_t logit_rows = bt_engine_max_logit_rows(n_seqs, max_drafts);

    pass->plan = bt_calloc(n_seqs, sizeof(*pass->plan));
    pass->seqs = bt_calloc(n_seqs, sizeof(*pass->seqs));
    pass->loras = bt_calloc(n_seqs, sizeof(*pass->loras));
    pass->rows_tokens = bt_calloc(rows, sizeof(*pass->rows_tokens));
    pass->from_ids = bt_calloc(rows, sizeof(*pass->from_ids));
    pass->logit_rows = bt_calloc(logit_rows, sizeof(*pass->logit_rows));
    pass->needs = bt_calloc(logit_rows, sizeof(*pass->needs));
    pass->best_ids = bt_calloc(logit_rows, sizeof(*pass->best_ids));
    if (bt_model_takes_rows(model)) {
        pass->embeddings = bt_calloc(rows, sizeof(*pass->embeddings));
    }
    if (bt_model_computes_ids(model)) {
        pass->first_ids =
            bt_calloc((size_t)logit_rows + 1, sizeof(*pass->first_ids));
        pass->ids = bt_calloc((size_t)logit_rows * BT_MODEL_MAX_IDS,
                              sizeof(*pass->ids));
    }
    pass->draw_of = bt_calloc(logit_rows, sizeof(*pass->draw_of));
    pass->score_of = bt_calloc(logit_rows, sizeof(*pass->score_of));
    if ((pass->plan == NULL) || (pass->seqs == NULL) || (pass->loras == NULL) ||
        (pass->rows_tokens == NULL) || (pass->from_ids == NULL) ||
        (pass->logit_rows == NULL) || (pass->needs == NULL) ||
        (pass->best_ids == NULL) || (pass->draw_of == NULL) ||
        (pass->score_of == NULL) ||
        (bt_model_takes_rows(model) && (pass->embeddings == NULL)) ||
        (bt_model_computes_ids(model) &&
         ((pass->first_ids == NULL) || (pass->ids == NULL)))) {
        return BT_ERR_NO_MEMORY;
    }
    return bt_model_draws(model)
               ? bt_drawing_create(bt_model_hparams(model)->n_vocab, logit_rows,
                                   &pass->drawing)
               : BT_OK;
}

static void free_arrays(bt_engine_t *engine)
{
    for (uint32_t i = 0; i < BT_ENGINE_N_REPORTS; i++) {
        bt_free(engine->report_store[i].items);
    }
    bt_engine_free_pass(&engine->whole);
    bt_engine_free_pass(&engine->preempting);
    bt_engine_free_inflight(engine);
    bt_engine_free_rounds(engine);
    bt_free(engine->row);
    bt_free(engine->offers);
}

static bt_status_t alloc_arrays(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t n = config->max_seqs;
    const uint32_t rows =
        bt_engine_max_rows(n, config->token_budget, config->kv.tokens_per_block,
                           config->max_drafts);
    bt_status_t status = bt_engine_alloc_pass(config->model, &engine->whole, n,
                                              config->max_drafts, rows);

    if (status == BT_OK) {
        status = bt_engine_alloc_pass(config->model, &engine->preempting, 1, 0,
                                      rows);
    }
    if (status == BT_OK) {
        status = bt_engine_alloc_inflight(engine);
    }
    if (status == BT_OK) {
        status = bt_engine_alloc_rounds(engine);
    }
    if (status != BT_OK) {
        return status;
    }
    engine->pass = &engine->whole;
    engine->n_vocab = bt_model_hparams(config->model)->n_vocab;
    engine->n_layers = bt_model_hparams(config->model)->n_layers;
    engine->row = bt_calloc(engine->n_vocab, sizeof(*engine->row));
    engine->offers = bt_calloc(n, sizeof(*engine->offers));
    if ((engine->row == NULL) || (engine->offers == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < BT_ENGINE_N_REPORTS; i++) {
        engine->report_store[i].items =
            bt_calloc((size_t)n * BT_ENGINE_SEQ_ITEMS + config->max_drafts,
                      sizeof(bt_report_item_t));
        if (engine->report_store[i].items == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    return BT_OK;
}

static uint32_t power_of_two_from(uint32_t n)
{
    uint32_t p = 2;

    while (p < n) {
        p *= 2;
    }
    return p;
}

static bt_status_t create_rings(bt_engine_t *engine)
{
    bt_status_t status;

    status = bt_ring_create(power_of_two_from(engine->config.max_seqs + 1),
                            &engine->inbox);
    if (status == BT_OK) {
        status = bt_ring_create(BT_ENGINE_N_REPORTS, &engine->reports);
    }
    if (status == BT_OK) {
        status = bt_ring_create(BT_ENGINE_N_REPORTS, &engine->spare);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < BT_ENGINE_N_REPORTS); i++) {
        status = bt_ring_push(engine->spare, &engine->report_store[i]);
    }
    return status;
}

static void destroy_parts(bt_engine_t *engine)
{
    bt_ring_destroy(engine->spare);
    bt_ring_destroy(engine->reports);
    bt_ring_destroy(engine->inbox);
    bt_sampler_destroy(engine->sampler);
    free_arrays(engine);
    bt_free(engine);
}

bt_status_t bt_engine_create(const bt_engine_config_t *config,
                             bt_engine_t **engine_p)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_engine_t *engine;

    if ((config->max_seqs == 0) ||
        (config->token_budget < config->kv.tokens_per_block)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((config->batch_drafter.draft != NULL) &&
        (((bt_model_max_started(config->model) > 1) &&
          !bt_model_chains(config->model)) ||
         ((config->batch_drafter.computed != NULL) &&
          !bt_model_taps(config->model)))) {
        return BT_ERR_UNSUPPORTED;
    }
    engine = bt_calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    engine->config = *config;
    bt_list_init(&engine->running);
    bt_sched_midstep_join_init(&engine->late,
                               bt_model_hparams(config->model)->n_layers);
    bt_sched_cost_init(&engine->cost);
    bt_sched_chunk_init(&engine->chunk, !config->tunes_chunks,
                        config->token_budget, config->kv.tokens_per_block,
                        (config->itl_us != 0) ? config->itl_us : ITL_US);

    status = alloc_arrays(engine);
    if (status != BT_OK) {
        goto err_parts;
    }
    status = bt_sampler_create(engine->n_vocab, &engine->sampler);
    if (status != BT_OK) {
        goto err_parts;
    }
    status = create_rings(engine);
    if (status != BT_OK) {
        goto err_parts;
    }
    if (pthread_create(&engine->thread, NULL, compute_main, engine) != 0) {
        status = BT_ERR_IO;
        goto err_parts;
    }
    *engine_p = engine;
    return BT_OK;

err_parts:
    destroy_parts(engine);
    return status;
}

bool bt_engine_stop(bt_engine_t *engine, uint32_t timeout_ms)
{
    struct timespec end;

    atomic_store(&engine->stop, true);
    if (!engine->joined && (clock_gettime(CLOCK_REALTIME, &end) == 0)) {
        end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        end.tv_sec += timeout_ms / 1000 + end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        engine->joined =
            (pthread_timedjoin_np(engine->thread, NULL, &end) == 0);
    }
    return engine->joined;
}

void bt_engine_destroy(bt_engine_t *engine)
{
    if (engine == NULL) {
        return;
    }
    atomic_store(&engine->stop, true);
    if (!engine->joined) {
        pthread_join(engine->thread, NULL); /* at most 100 ms when idle */
    }
    destroy_parts(engine);
}

/* Initializes the engine's part of a sequence. */
static void prepare(bt_seq_t *seq)
{
    const bt_seq_rows_t *rows = seq->rows;

    bt_list_init(&seq->sched.turn.link);
    bt_list_init(&seq->followers);
    seq->sched.n_drafts = 0;
    seq->draft.n = seq->aside.n = 0;
    seq->late_ns = 0;
    seq->n_under_way = 0;
    seq->from_id = UINT32_MAX;
    seq->is_gone = false;
    atomic_store_explicit(&seq->has_begun, false, memory_order_relaxed);
    seq->sched.rows_from = (rows == NULL)              ? 0
                           : (rows->done > rows->from) ? rows->done
                                                       : rows->from;
    seq->sched.rows_end = (rows == NULL) ? 0 : rows->from + rows->n;
}

bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq)
{
    return bt_engine_submit_fanout(engine, &seq, 1);
}

/* Seats of n sequences that are submitted together. */
static uint32_t seats_of(const bt_seq_t *first, uint32_t n)
{
    return (first->beams == NULL) ? n : bt_beams_width(first->beams);
}

bt_status_t bt_engine_submit_fanout(bt_engine_t *engine, bt_seq_t *const *seqs,
                                    uint32_t n)
{
    bt_seq_t *first = seqs[0];
    bt_status_t status;

    if (seats_of(seqs[0], n) > engine->config.max_seqs - engine->n_submitted) {
        return BT_ERR_BUSY;
    }
    for (uint32_t i = 0; i < n; i++) {
        prepare(seqs[i]);
    }
    BT_ASSERT((first->beams == NULL) || ((n == 1) && (first->rows == NULL)));
    for (uint32_t i = 1; i < n; i++) {
        BT_ASSERT((seqs[i]->sched.n_tokens == first->sched.n_tokens) &&
                  (seqs[i]->sched.n_computed == first->sched.n_computed));
        BT_ASSERT(
            (first->sched.n_computed % engine->config.kv.tokens_per_block ==
             0) &&
            !bt_kv_copy_is_due(seqs[i]->copy[0]));
        BT_ASSERT((seqs[i]->rows == NULL) ||
                  (seqs[i]->rows->from + 1 >= first->sched.n_tokens));
        bt_list_push_back(&first->followers, &seqs[i]->sched.turn.link);
    }
    status = bt_ring_push(engine->inbox, first);
    if (status == BT_OK) {
        engine->n_submitted += seats_of(first, n);
    }
    return status;
}

void bt_engine_cancel(bt_seq_t *seq)
{
    atomic_store_explicit(&seq->cancel, true, memory_order_release);
}

void bt_engine_wake(bt_engine_t *engine)
{
    /* One wake-up in the ring is enough: bt_engine_pop() clears the flag before
     * the compute thread looks. */
    if (!atomic_exchange(&engine->woken, true)) {
        BT_ASSERT_ALWAYS(bt_ring_push(engine->inbox, engine) == BT_OK);
    }
}

int bt_engine_fd(const bt_engine_t *engine)
{
    return bt_ring_fd(engine->reports);
}

bool bt_engine_sleep_prepare(bt_engine_t *engine)
{
    return bt_ring_sleep_prepare(engine->reports);
}

void bt_engine_sleep_done(bt_engine_t *engine)
{
    bt_ring_sleep_done(engine->reports);
}

bt_report_t *bt_engine_next(bt_engine_t *engine)
{
    bt_report_t *report = bt_ring_pop(engine->reports);

    if (report != NULL) {
        for (uint32_t i = 0; i < report->n_items; i++) {
            if (report->items[i].kind == BT_REPORT_LEFT) {
                engine->n_submitted -= seats_of(report->items[i].seq, 1);
            }
        }
    }
    return report;
}

void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report)
{
    BT_ASSERT_ALWAYS(bt_ring_push(engine->spare, report) == BT_OK);
}

bool bt_engine_progress(const bt_engine_t *engine, uint64_t *marks_p)
{
    *marks_p = atomic_load_explicit(&engine->progress, memory_order_relaxed);
    return atomic_load_explicit(&engine->busy, memory_order_relaxed);
}
