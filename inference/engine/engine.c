/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/engine/engine.h"

#include <pthread.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/base/thread.h"
#include "inference/model/sampler.h"

#define N_REPORTS     16 /* how far the compute thread may run ahead */
#define ITEMS_PER_SEQ 3  /* CHUNK, TOKEN, LEFT */

struct bt_engine {
    bt_engine_config_t config;
    bt_sampler_t *sampler;
    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t busy_since_ns;
    bt_ring_t *inbox;   /* bt_seq_t, owner → compute */
    bt_ring_t *reports; /* bt_report_t, compute → owner */
    bt_ring_t *spare;   /* bt_report_t, owner → compute */
    bt_report_t report_store[N_REPORTS];
    uint32_t n_inside; /* owner's count of submitted, not LEFT */

    /* compute thread only */
    bt_list_t running;
    uint64_t iteration;
    bt_sched_item_t *plan;
    uint32_t n_planned; /* items of plan, during forward */
    bt_ragged_seq_t *seqs;
    uint32_t *rows_tokens;
    uint32_t *logit_rows;
};

static bt_seq_t *seq_of(bt_sched_seq_t *sched)
{
    return BT_CONTAINER_OF(sched, bt_seq_t, sched);
}

uint32_t bt_engine_max_rows(uint32_t max_seqs, uint32_t token_budget,
                            uint32_t tokens_per_block)
{
    return max_seqs + token_budget + tokens_per_block;
}

static void report_add(bt_report_t *report, bt_report_kind_t kind,
                       bt_seq_t *seq, uint32_t token, bt_finish_t finish)
{
    report->items[report->n_items++] = (bt_report_item_t){
        .kind = kind,
        .seq = seq,
        .n_computed = seq->sched.n_computed,
        .token = token,
        .index =
            (kind == BT_REPORT_TOKEN) ? seq->first_index + seq->n_drawn - 1 : 0,
        .finish = finish,
    };
}

static void leave(bt_report_t *report, bt_seq_t *seq, bt_finish_t finish)
{
    bt_list_remove(&seq->sched.turn.link);
    report_add(report, BT_REPORT_LEFT, seq, 0, finish);
}

/* Take in what was submitted and let canceled sequences go. */
static void take_changes(bt_engine_t *engine, bt_report_t *report)
{
    bt_list_t *pos;
    bt_list_t *tmp;
    bt_seq_t *seq;

    while ((seq = bt_ring_pop(engine->inbox)) != NULL) {
        bt_sched_queue_insert(&engine->running, &seq->sched.turn);
    }
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        seq = seq_of(BT_CONTAINER_OF(pos, bt_sched_seq_t, turn.link));
        if (atomic_load_explicit(&seq->cancel, memory_order_acquire)) {
            leave(report, seq, BT_FINISH_CANCELED);
        }
    }
}

/* From the plan to the arrays of one forward call.
 * @return the number of rows */
static uint32_t lay_rows(bt_engine_t *engine, uint32_t n_items,
                         uint32_t *n_logits_p)
{
    uint32_t row = 0;
    uint32_t n_logits = 0;

    for (uint32_t i = 0; i < n_items; i++) {
        const bt_sched_item_t *item = &engine->plan[i];
        const bt_seq_t *seq = seq_of(item->seq);

        engine->seqs[i] = (bt_ragged_seq_t){
            .row = row,
            .n_rows = item->n_new,
            .pos = seq->sched.n_computed,
            .blocks = seq->blocks,
        };
        memcpy(&engine->rows_tokens[row], &seq->tokens[seq->sched.n_computed],
               item->n_new * sizeof(uint32_t));
        row += item->n_new;
        if (item->last_chunk) {
            engine->logit_rows[n_logits++] = row - 1;
        }
    }
    *n_logits_p = n_logits;
    return row;
}

static bool is_end_id(const bt_sampling_t *sampling, uint32_t id)
{
    for (uint32_t i = 0; i < sampling->n_end_ids; i++) {
        if (sampling->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* Draw the next token of a sequence whose known tokens are all computed. */
static void draw(bt_engine_t *engine, bt_report_t *report, bt_seq_t *seq,
                 float *logits)
{
    const uint32_t n = seq->sched.n_tokens;
    const uint32_t id = bt_sampler_draw(engine->sampler, &seq->sampling, logits,
                                        seq->tokens, n, seq->n_prompt, n);
    bt_finish_t finish = BT_FINISH_NONE;

    seq->tokens[n] = id;
    seq->sched.n_tokens = n + 1;
    seq->n_drawn++;
    if (is_end_id(&seq->sampling, id)) {
        finish = BT_FINISH_STOP;
    } else if (seq->n_drawn == seq->max_new) {
        finish = BT_FINISH_LENGTH;
    }
    report_add(report, BT_REPORT_TOKEN, seq, id, finish);
    if ((finish != BT_FINISH_NONE) || seq->leave_after_first) {
        leave(report, seq, finish);
    }
}

static void account(bt_report_t *report, bt_seq_t *seq, bool context)
{
    const uint64_t ns = report->end_ns - report->start_ns;

    if (seq->n_iterations == 0) {
        seq->first_start_ns = report->start_ns;
    }
    seq->n_iterations++;
    if (context) {
        seq->context_ns += ns;
        seq->n_chunks++;
        report->n_context_seqs++;
    } else {
        seq->generation_ns += ns;
        report->n_generation_seqs++;
    }
}

/* A device that failed serves nobody: every sequence leaves. */
static void fail_all(bt_engine_t *engine, bt_report_t *report)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        leave(report, seq_of(BT_CONTAINER_OF(pos, bt_sched_seq_t, turn.link)),
              BT_FINISH_ERROR);
    }
}

/* Called once per layer: what is ready of a last chunk can leave already. */
static void on_layers(void *ctx, uint32_t n_layers)
{
    const bt_engine_t *engine = ctx;

    for (uint32_t i = 0; i < engine->n_planned; i++) {
        bt_seq_t *seq = seq_of(engine->plan[i].seq);

        if (engine->plan[i].last_chunk && seq->tell_layers) {
            atomic_store_explicit(&seq->n_layers, n_layers,
                                  memory_order_release);
        }
    }
}

/* One iteration: plan, forward, sample. */
static void iterate(bt_engine_t *engine, bt_report_t *report)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t n_vocab = bt_model_hparams(config->model)->n_vocab;
    bt_forward_t fwd = {
        .kv = config->kv, .on_layers = on_layers, .on_layers_ctx = engine};
    float *logits = NULL;
    uint32_t n_items;

    n_items = bt_sched_plan(&engine->running, config->token_budget,
                            config->kv.tokens_per_block, config->max_seqs,
                            engine->plan, &report->n_context_tokens);
    engine->n_planned = n_items;
    fwd.n_rows = lay_rows(engine, n_items, &fwd.n_logit_rows);
    fwd.seqs = engine->seqs;
    fwd.n_seqs = n_items;
    fwd.tokens = engine->rows_tokens;
    fwd.logit_rows = engine->logit_rows;

    report->iteration = ++engine->iteration;
    report->n_seqs = n_items;
    report->start_ns = bt_now_ns();
    atomic_store_explicit(&engine->busy_since_ns, report->start_ns,
                          memory_order_relaxed);
    report->status = bt_model_forward(config->model, &fwd, &logits);
    report->end_ns = bt_now_ns();
    if (report->status != BT_OK) {
        BT_LOG_ERROR("forward pass of %u rows failed: %s", fwd.n_rows,
                     bt_status_str(report->status));
        fail_all(engine, report);
        return;
    }

    for (uint32_t i = 0; i < n_items; i++) {
        const bt_sched_item_t *item = &engine->plan[i];
        bt_seq_t *seq = seq_of(item->seq);
        const bool context =
            (item->n_new > 1) || (seq->sched.n_computed + 1 <= seq->n_prompt);

        account(report, seq, context);
        seq->sched.n_computed += item->n_new;
        if (context) {
            report_add(report, BT_REPORT_CHUNK, seq, 0, BT_FINISH_NONE);
        }
        if (item->last_chunk) {
            draw(engine, report, seq, logits);
            logits += n_vocab;
        }
    }
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

static void reset_report(bt_report_t *report)
{
    bt_report_item_t *items = report->items;

    memset(report, 0, sizeof(*report));
    report->items = items;
}

static void *compute_main(void *arg)
{
    bt_engine_t *engine = arg;

    bt_thread_works_long();
    while (!atomic_load(&engine->stop)) {
        bt_report_t *report = wait_for_spare(engine);

        if (report == NULL) {
            break;
        }
        reset_report(report);
        take_changes(engine, report);
        while (bt_list_empty(&engine->running) && (report->n_items == 0) &&
               !atomic_load(&engine->stop)) {
            atomic_store(&engine->busy_since_ns, 0);
            bt_ring_wait(engine->inbox, 100);
            take_changes(engine, report);
        }
        if (!bt_list_empty(&engine->running)) {
            iterate(engine, report);
        }
        /* There are as many slots as reports: never full. */
        BT_ASSERT_ALWAYS(bt_ring_push(engine->reports, report) == BT_OK);
    }
    return NULL;
}

static void free_arrays(bt_engine_t *engine)
{
    for (uint32_t i = 0; i < N_REPORTS; i++) {
        bt_free(engine->report_store[i].items);
    }
    bt_free(engine->plan);
    bt_free(engine->seqs);
    bt_free(engine->rows_tokens);
    bt_free(engine->logit_rows);
}

static bt_status_t alloc_arrays(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t n = config->max_seqs;
    const uint32_t rows = bt_engine_max_rows(n, config->token_budget,
                                             config->kv.tokens_per_block);

    engine->plan = bt_calloc(n, sizeof(*engine->plan));
    engine->seqs = bt_calloc(n, sizeof(*engine->seqs));
    engine->rows_tokens = bt_calloc(rows, sizeof(*engine->rows_tokens));
    engine->logit_rows = bt_calloc(n, sizeof(*engine->logit_rows));
    if ((engine->plan == NULL) || (engine->seqs == NULL) ||
        (engine->rows_tokens == NULL) || (engine->logit_rows == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < N_REPORTS; i++) {
        engine->report_store[i].items =
            bt_calloc((size_t)n * ITEMS_PER_SEQ, sizeof(bt_report_item_t));
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

    status = bt_ring_create(power_of_two_from(engine->config.max_seqs),
                            &engine->inbox);
    if (status == BT_OK) {
        status = bt_ring_create(N_REPORTS, &engine->reports);
    }
    if (status == BT_OK) {
        status = bt_ring_create(N_REPORTS, &engine->spare);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < N_REPORTS); i++) {
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
    engine = bt_calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    engine->config = *config;
    bt_list_init(&engine->running);

    status = alloc_arrays(engine);
    if (status != BT_OK) {
        goto err_parts;
    }
    status = bt_sampler_create(bt_model_hparams(config->model)->n_vocab,
                               &engine->sampler);
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

void bt_engine_destroy(bt_engine_t *engine)
{
    if (engine == NULL) {
        return;
    }
    atomic_store(&engine->stop, true);
    pthread_join(engine->thread, NULL); /* waits at most 100 ms when idle */
    destroy_parts(engine);
}

bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq)
{
    bt_status_t status;

    if (engine->n_inside == engine->config.max_seqs) {
        return BT_ERR_BUSY;
    }
    bt_list_init(&seq->sched.turn.link);
    status = bt_ring_push(engine->inbox, seq);
    if (status == BT_OK) {
        engine->n_inside++;
    }
    return status;
}

void bt_engine_cancel(bt_seq_t *seq)
{
    atomic_store_explicit(&seq->cancel, true, memory_order_release);
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
                engine->n_inside--;
            }
        }
    }
    return report;
}

void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report)
{
    BT_ASSERT_ALWAYS(bt_ring_push(engine->spare, report) == BT_OK);
}

uint64_t bt_engine_busy_since_ns(const bt_engine_t *engine)
{
    return atomic_load(&engine->busy_since_ns);
}
