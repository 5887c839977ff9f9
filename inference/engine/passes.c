/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/alloc.h"

#include <errno.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sched/sched_pipeline.h"
#include "inference/engine/engine_priv.h"

/* In-flight passes, which run while others begin: microbatches of a
 * pipeline-parallel model, and overlapped passes on a device. */

/* The pass i behind the oldest one in flight. */
static bt_inflight_pass_t *inflight_at(bt_engine_t *engine, uint32_t i)
{
    return &engine
                ->inflight[(engine->first_inflight + i) % engine->max_inflight];
}

/* Returns the sequences of a pass to their state before it, and those that it
 * holds to the running queue, at their positions in its order. */
static void take_back(bt_engine_t *engine, bt_inflight_pass_t *inflight)
{
    for (uint32_t i = 0; i < inflight->pass.n_planned; i++) {
        const bt_sched_item_t *item = &inflight->pass.plan[i];
        bt_seq_t *seq = bt_engine_seq_of(item->seq);

        seq->n_under_way--;
        seq->from_id = UINT32_MAX;
        if (inflight->is_advanced) {
            seq->sched.n_computed -= item->n_new;
            seq->sched.n_tokens -= item->last_chunk ? 1 : 0;
        }
    }
    inflight->is_advanced = false;
    while (!bt_list_empty(&inflight->seqs)) {
        bt_seq_t *seq = bt_engine_seq_at(inflight->seqs.next);

        bt_list_remove(&seq->sched.turn.link);
        bt_sched_queue_insert(&engine->running, &seq->sched.turn);
    }
}

/* Starts the pass planned in the slot behind the last in-flight pass. The pass
 * counts as in flight then, after a failure too. */
static bt_status_t begin_pass(bt_engine_t *engine)
{
    bt_inflight_pass_t *inflight = inflight_at(engine, engine->n_inflight);
    bt_model_t *model = engine->config.model;
    bt_pass_t *pass = &inflight->pass;
    bt_status_t status;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        bt_engine_seq_of(pass->plan[i].seq)->n_under_way++;
    }
    engine->pass = pass;
    bt_engine_lay_rows(engine);
    inflight->fwd = bt_engine_forward_of(engine);
    pass->start_ns = bt_now_ns();
    bt_engine_mark(engine);
    pass->lent_ns = bt_model_lent_ns(model);
    status = bt_model_start(model, &inflight->fwd);
    pass->lent_ns = bt_model_lent_ns(model) - pass->lent_ns;
    if (status != BT_OK) {
        BT_LOG_ERROR("forward pass of %u rows failed: %s", pass->n_rows,
                     bt_status_str(status));
    }
    engine->pass = &engine->whole;
    engine->n_inflight++;
    return status;
}

/* Reports sequences of a failed pass that had left before. */
static void tell_gone(bt_report_t *report, const bt_inflight_pass_t *inflight)
{
    for (uint32_t i = 0; i < inflight->pass.n_planned; i++) {
        bt_seq_t *seq = bt_engine_seq_of(inflight->pass.plan[i].seq);

        if (seq->is_gone) {
            bt_engine_report(report, BT_REPORT_LEFT, seq, 0, seq->gone_finish);
        }
    }
}

/* Waits for the oldest in-flight pass and completes it; its sequences return to
 * the running queue. */
static void finish_oldest(bt_engine_t *engine, bt_report_t *report)
{
    bt_inflight_pass_t *inflight = inflight_at(engine, 0);
    float *logits = NULL;
    bt_status_t status;

    engine->pass = &inflight->pass;
    status = bt_model_finish(engine->config.model, &inflight->fwd, &logits);
    bt_engine_wait_for_latency(engine, engine->n_layers);
    take_back(engine, inflight);
    report->n_context_tokens = inflight->n_context_tokens;
    bt_engine_settle(engine, report, status, logits);
    if (status != BT_OK) {
        tell_gone(report, inflight);
    }
    engine->pass = &engine->whole;
    engine->first_inflight =
        (engine->first_inflight + 1) % engine->max_inflight;
    engine->n_inflight--;
}

/* After a lost rank or device: abandons all passes in flight. */
static void fail_passes(bt_engine_t *engine, bt_report_t *report,
                        bt_status_t status)
{
    for (; engine->n_inflight > 0; engine->n_inflight--) {
        bt_inflight_pass_t *inflight =
            inflight_at(engine, engine->n_inflight - 1);

        tell_gone(report, inflight);
        take_back(engine, inflight);
    }
    report->status = status;
    bt_engine_fail_all(engine, report);
}

void bt_engine_drain(bt_engine_t *engine)
{
    bt_status_t status = BT_OK;
    float *logits;

    for (; engine->n_inflight > 0; engine->n_inflight--) {
        bt_inflight_pass_t *inflight = inflight_at(engine, 0);

        if (status == BT_OK) {
            status =
                bt_model_finish(engine->config.model, &inflight->fwd, &logits);
        }
        take_back(engine, inflight);
        engine->first_inflight =
            (engine->first_inflight + 1) % engine->max_inflight;
    }
}

bt_status_t bt_engine_alloc_inflight(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const uint32_t rows =
        bt_engine_max_rows(config->max_seqs, config->token_budget,
                           config->kv.tokens_per_block, config->max_drafts);
    bt_status_t status = BT_OK;

    engine->max_inflight = bt_model_max_started(config->model);
    if (engine->max_inflight == 1) {
        return BT_OK;
    }
    engine->inflight =
        bt_calloc(engine->max_inflight, sizeof(*engine->inflight));
    if (engine->inflight == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < engine->max_inflight; i++) {
        bt_list_init(&engine->inflight[i].seqs);
        if (status == BT_OK) {
            status = bt_engine_alloc_pass(
                engine->config.model, &engine->inflight[i].pass,
                config->max_seqs, config->max_drafts, rows);
        }
    }
    return status;
}

void bt_engine_free_inflight(bt_engine_t *engine)
{
    for (uint32_t i = 0;
         (engine->inflight != NULL) && (i < engine->max_inflight); i++) {
        bt_engine_free_pass(&engine->inflight[i].pass);
    }
    bt_free(engine->inflight);
}

/* Layer-boundary preemption: passes computed while an iteration waits. */

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
static bool plan_preempting(bt_engine_t *engine, uint32_t *n_context_p)
{
    const bt_engine_config_t *config = &engine->config;
    const bt_pass_t *whole = &engine->whole;
    const uint32_t n_free =
        bt_engine_max_rows(config->max_seqs, config->token_budget,
                           config->kv.tokens_per_block, config->max_drafts) -
        whole->n_rows;
    const uint32_t chunk = engine->chunk.alone.tokens;
    bt_sched_item_t *item = engine->preempting.plan;

    if (!bt_sched_plan_preempting(&engine->running, whole->plan,
                                  whole->n_planned,
                                  (chunk < n_free) ? chunk : n_free,
                                  config->kv.tokens_per_block, item) ||
        bt_engine_is_canceled(bt_engine_seq_of(item->seq))) {
        return false;
    }
    *n_context_p = item->n_new;
    engine->preempting.n_planned =
        bt_sched_limit_rows(item, 1, BT_ENGINE_EXTRA_ROWS, n_context_p);
    return engine->preempting.n_planned > 0;
}

void bt_engine_preempt_at_layer(void *engine_p, uint32_t n_layers)
{
    bt_engine_t *engine = engine_p;
    uint32_t n_context;
    bt_report_t *report;

    bt_engine_wait_for_latency(engine, n_layers);
    take_in_all(engine); /* late joins were taken in before this call */
    if ((engine->preempting_status != BT_OK) ||
        !plan_preempting(engine, &n_context)) {
        return;
    }
    report = bt_ring_pop(engine->spare);
    if (report == NULL) {
        return; /* the owner has not recycled reports yet */
    }
    bt_engine_reset_report(report);
    report->n_context_tokens = n_context;
    engine->pass = &engine->preempting;
    bt_engine_run_pass(engine, report);
    engine->pass = &engine->whole;
    engine->preempting_ns += bt_now_ns() - report->start_ns;
    engine->preempting_lent_ns += report->work.lent_ns;
    /* After a failure all sequences leave with the running iteration. */
    engine->preempting_status = report->status;
    report->status = BT_OK;
    bt_engine_push_report(engine, report);
}

/* Microbatches of a pipeline-parallel model: a pass begins while later stages
 * still compute the previous ones. Each pass has its own sequences, and a
 * sequence's next token is started when the previous one is drawn;
 * common/sched/sched_pipeline.h assigns sequences to passes. */

/* Counts the rows of a sequence that may run: a token and drafts, or a
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

    (void)bt_engine_has_work(engine); /* updates the KV limits */
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        if (bt_sched_seq_may_run(&seq->sched)) {
            count(engine, &seq->sched, &ready);
        }
    }
    return ready;
}

static bt_sched_ready_t count_all(bt_engine_t *engine,
                                  const bt_sched_ready_t *free)
{
    bt_sched_ready_t all = *free;

    for (uint32_t i = 0; i < engine->n_inflight; i++) {
        const bt_pass_t *pass = &inflight_at(engine, i)->pass;

        for (uint32_t k = 0; k < pass->n_planned; k++) {
            count(engine, pass->plan[k].seq, &all);
        }
    }
    return all;
}

/* Plans a microbatch, whose sequences leave the queue. Those that it leaves out
 * have no drafts.
 * @return whether it has any */
static bool load(bt_engine_t *engine, bt_inflight_pass_t *inflight,
                 uint32_t n_most)
{
    bt_pass_t *pass = &inflight->pass;
    const uint32_t n =
        bt_engine_plan(engine, pass, n_most, &inflight->n_context_tokens);

    pass->n_planned = bt_sched_microbatch_cut(pass->plan, n, n_most);
    for (uint32_t i = 0; i < pass->n_planned; i++) {
        bt_list_t *link = &pass->plan[i].seq->turn.link;

        bt_list_remove(link);
        bt_list_push_back(&inflight->seqs, link);
    }
    return pass->n_planned > 0;
}

/* @return false: none begins now */
static bool begin_microbatch(bt_engine_t *engine, bt_status_t *status_p)
{
    bt_inflight_pass_t *inflight = inflight_at(engine, engine->n_inflight);
    const uint32_t least = bt_model_least_rows(engine->config.model);
    const bt_sched_ready_t free = count_free(engine);
    const bt_sched_ready_t all = count_all(engine, &free);
    const bt_sched_microbatches_t split =
        bt_sched_microbatches(&all, engine->max_inflight, least);

    if (!bt_sched_microbatch_begins(&split, engine->n_inflight, free.n_rows,
                                    least) ||
        !load(engine, inflight, split.n_generating)) {
        return false;
    }
    *status_p = begin_pass(engine);
    return true;
}

void bt_engine_run_microbatches(bt_engine_t *engine, bt_report_t *report)
{
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (engine->n_inflight < engine->max_inflight) &&
           begin_microbatch(engine, &status)) {
        bt_engine_take_changes(engine, report);
    }
    if ((status == BT_OK) && (engine->n_inflight > 0)) {
        finish_oldest(engine, report);
        status = report->status;
    }
    if (status != BT_OK) {
        fail_passes(engine, report, status);
    }
}

/* Mid-step joins: sequences that enter the running iteration. */

/* True for a sequence with one token to compute and no followers. Any other
 * sequence begins with the next iteration, or preempts this one. */
static bool is_ready(const bt_engine_t *engine, const bt_seq_t *seq)
{
    return (seq->sched.n_tokens - seq->sched.n_computed == 1) &&
           bt_list_empty(&seq->followers) && (seq->beams == NULL) &&
           !bt_engine_is_canceled(seq) && bt_sched_seq_may_run(&seq->sched) &&
           (engine->whole.n_planned < engine->config.max_seqs);
}

uint32_t bt_engine_take_late(void *engine_p, uint32_t n_layers)
{
    bt_engine_t *engine = engine_p;
    uint32_t n = 0;

    if (!bt_sched_midstep_join_may(&engine->late, n_layers)) {
        return 0;
    }
    while (n < BT_MODEL_MAX_LATE) {
        bt_seq_t *seq = bt_engine_pop(engine);

        if (seq == NULL) {
            break;
        }
        bt_engine_take_in(engine, seq);
        if (!is_ready(engine, seq)) {
            continue;
        }
        seq->late_ns = bt_now_ns();
        engine->whole.plan[engine->whole.n_planned] = (bt_sched_item_t){
            .seq = &seq->sched, .n_new = 1, .last_chunk = true};
        bt_engine_lay_item(engine, engine->whole.n_planned);
        engine->whole.n_planned++;
        n++;
    }
    if (n > 0) {
        bt_sched_midstep_join_spend(&engine->late, n_layers);
    }
    return n;
}

/*
 * Overlapped scheduling on a device: a pass begins while the previous one is
 * running (sched_pipeline.h). The second pass is planned as if the first were
 * finished: its sequences are advanced by the first pass's tokens,
 * and where it draws, by a token that is not known yet; the device inserts that
 * (bt_forward_t.from_ids). When the first is finished they are taken back to
 * the known state, and it is completed like any other.
 *
 * A sequence that then turns out to have ended is computed once more in the
 * second pass, and keeps its blocks until that is finished: only then it has
 * LEFT. A sequence that surely ends with the first pass, or is canceled, is not
 * in the second.
 */

static bool ends_with(const bt_sched_item_t *item)
{
    const bt_seq_t *seq = bt_engine_seq_of(item->seq);

    return item->last_chunk &&
           (seq->leave_after_first || (seq->n_drawn + 1 == seq->max_new));
}

static bool fanout_is_canceled(const bt_seq_t *seq)
{
    bool canceled = bt_engine_is_canceled(seq);

    BT_LIST_FOR_EACH_ENTRY(const bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        canceled = canceled || bt_engine_is_canceled(follower);
    }
    return canceled;
}

/* True when the position behind the next token can be planned before that token
 * is known. Not where drafts pay, nor where a draw depends on previous tokens.
 * Followers begin with that token. */
static bool needs_no_token(const bt_sched_item_t *item)
{
    const bt_seq_t *seq = bt_engine_seq_of(item->seq);

    return !item->last_chunk ||
           (bt_list_empty(&seq->followers) && (seq->beams == NULL) &&
            !bt_seq_has_grammar(seq) &&
            (ends_with(item) || (!seq->wants_drafts &&
                                 !bt_sampling_reads_tokens(&seq->sampling))));
}

/* True when the results of the pass are only ids, which the device has. */
static bool can_be_followed(const bt_inflight_pass_t *inflight)
{
    const bt_pass_t *pass = &inflight->pass;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        if ((pass->plan[i].seq->n_drafts > 0) ||
            !needs_no_token(&pass->plan[i])) {
            return false;
        }
    }
    return bt_model_is_followed(&inflight->fwd);
}

/* Advances the sequences of a pass to their state after it. Those that do not
 * continue are set aside until it ends. */
static void advance_past(bt_inflight_pass_t *inflight)
{
    bt_pass_t *pass = &inflight->pass;
    uint32_t row = 0;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        const bt_sched_item_t *item = &pass->plan[i];
        bt_seq_t *seq = bt_engine_seq_of(item->seq);

        seq->sched.n_computed += item->n_new;
        if (item->last_chunk) {
            seq->from_id = row++;
            seq->tokens[seq->sched.n_tokens++] = 0; /* any valid id */
            seq->draft.n = 0;                       /* which began there */
        }
        if (!seq->is_gone && (ends_with(item) || fanout_is_canceled(seq))) {
            bt_list_remove(&seq->sched.turn.link);
            bt_list_push_back(&inflight->seqs, &seq->sched.turn.link);
        }
    }
    inflight->is_advanced = true;
}

/* @return false: there is nothing to compute */
static bool begin_overlapped(bt_engine_t *engine, bt_status_t *status_p)
{
    bt_inflight_pass_t *inflight = inflight_at(engine, engine->n_inflight);

    inflight->pass.n_planned = bt_engine_plan(
        engine, &inflight->pass, UINT32_MAX, &inflight->n_context_tokens);
    if (inflight->pass.n_planned == 0) {
        return false;
    }
    inflight->is_overlapped = engine->n_inflight > 0;
    *status_p = begin_pass(engine);
    if (engine->landed_ns != 0) {
        bt_sched_overlap_learn_host(&engine->overlap,
                                    bt_now_ns() - engine->landed_ns);
        engine->landed_ns = 0;
    }
    return true;
}

/* Completes the oldest pass. Its time begins where that of the previous one
 * ended. */
static void finish_overlapped(bt_engine_t *engine, bt_report_t *report)
{
    bt_inflight_pass_t *inflight = inflight_at(engine, 0);
    bt_pass_t *pass = &inflight->pass;

    report->overlapped = inflight->is_overlapped;
    if (pass->start_ns < engine->ended_ns) {
        pass->start_ns = engine->ended_ns;
    }
    finish_oldest(engine, report);
    engine->ended_ns = engine->landed_ns = report->end_ns;
    engine->overlap.step_ns = report->end_ns - report->start_ns;
}

void bt_engine_run_overlapped(bt_engine_t *engine, bt_report_t *report)
{
    bt_status_t status = BT_OK;
    bt_inflight_pass_t *first;

    if ((engine->n_inflight == 0) && !begin_overlapped(engine, &status)) {
        return;
    }
    first = inflight_at(engine, 0);
    if ((status == BT_OK) &&
        bt_sched_overlap_pays(&engine->overlap, engine->config.overlap) &&
        (engine->postponed_rounds == 0) && can_be_followed(first)) {
        bt_engine_take_changes(engine, report);
        advance_past(first);
        (void)begin_overlapped(engine, &status);
    }
    if (status == BT_OK) {
        finish_overlapped(engine, report);
        status = report->status;
    }
    if (status != BT_OK) {
        fail_passes(engine, report, status);
    }
}

/* Simulates the duration of a pass of another model on another machine. */

static void wait_until(uint64_t ns)
{
    const struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u),
                                   .tv_nsec = (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
           EINTR) {
    }
}

void bt_engine_wait_for_latency(const bt_engine_t *engine, uint32_t n_layers)
{
    const bt_engine_min_latency_t *as = &engine->config.min_latency;
    const bt_pass_t *pass = engine->pass;
    const uint64_t whole_ns =
        1000 * (as->pass_us + (uint64_t)as->row_us * pass->n_rows);
    uint64_t due_ns;

    if (whole_ns == 0) {
        return;
    }
    due_ns = pass->start_ns + whole_ns * n_layers / engine->n_layers;
    if (pass == &engine->whole) {
        due_ns += engine->preempting_ns;
    }
    if (due_ns > bt_now_ns()) {
        wait_until(due_ns);
    }
}
