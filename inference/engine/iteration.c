/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "inference/engine/engine_priv.h"
#include "inference/model/logits.h"

/* One iteration of the compute thread: changes to the running set, the plan,
 * the forward pass, and a token for each sequence whose tokens are all
 * computed. */

/* Makes the first follower compute from here on. Chunks before the last end
 * with a block, so everything computed lies in whole blocks, and those are in
 * every table of the fan-out. */
static void pass_lead(bt_engine_t *engine, bt_seq_t *seq)
{
    bt_seq_t *next;

    if (bt_list_empty(&seq->followers)) {
        return;
    }
    next = bt_engine_seq_at(seq->followers.next);
    bt_list_remove(&next->sched.turn.link);
    while (!bt_list_empty(&seq->followers)) {
        bt_list_t *link = seq->followers.next;

        bt_list_remove(link);
        bt_list_push_back(&next->followers, link);
    }
    next->sched.whole_us = seq->sched.whole_us;
    next->sched.turn.slack_us = seq->sched.turn.slack_us;
    bt_sched_queue_insert(&engine->running, &next->sched.turn);
}

/* Removes the canceled sequences of a fan-out, unless it is in flight. */
static void drop_canceled(bt_engine_t *engine, bt_report_t *report,
                          bt_seq_t *seq)
{
    if (seq->n_under_way > 0) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        if (bt_engine_is_canceled(follower)) {
            bt_engine_leave(report, follower, BT_FINISH_CANCELED);
        }
    }
    if (bt_engine_is_canceled(seq)) {
        pass_lead(engine, seq);
        bt_engine_leave(report, seq, BT_FINISH_CANCELED);
    }
}

/* Zeroes the block that the last tokens fill in part, so that data of an
 * earlier sequence is not sent with it. The whole block, since its free slots
 * are scattered over it, and nothing of it is computed before the pass with its
 * first position; before that pass it may not be in the table yet. */
static void clear_tail(const bt_engine_t *engine, const bt_seq_t *seq,
                       uint32_t n_new)
{
    const bt_kv_view_t *kv = &engine->config.kv;
    const uint32_t n_behind = seq->sched.n_tokens % kv->tokens_per_block;
    const uint32_t first = seq->sched.n_tokens - n_behind;
    const uint32_t *row = bt_engine_row_of(engine, seq, first);

    if (!seq->clear_tail || (n_behind == 0) ||
        (first < seq->sched.n_computed) ||
        (first >= seq->sched.n_computed + n_new)) {
        return;
    }
    for (uint32_t g = 0; g < bt_engine_n_groups(engine); g++) {
        bt_model_clear_block(engine->config.model, kv, row[g]);
    }
}

static void clear_tails(const bt_engine_t *engine, bt_seq_t *seq,
                        uint32_t n_new)
{
    clear_tail(engine, seq, n_new);
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        clear_tail(engine, follower, n_new);
    }
}

/* Computes the slack from what is left to compute. */
static uint64_t slack_of(const bt_engine_t *engine, const bt_sched_seq_t *seq,
                         uint64_t left_us)
{
    const bt_sched_work_t work = {
        .since_us = seq->turn.since_us,
        .deadline_us = (seq->deadline_us != 0) ? seq->deadline_us : UINT64_MAX,
        .whole_us = seq->whole_us,
        .left_us = left_us,
    };

    return bt_sched_slack_us(engine->config.order, &work);
}

static uint64_t left_us(const bt_engine_t *engine, const bt_sched_seq_t *seq)
{
    return bt_sched_cost_prompt_us(&engine->cost, seq->n_computed,
                                   seq->n_tokens, engine->chunk.alone.tokens);
}

static void look_at_kv_limit(bt_seq_t *seq)
{
    seq->sched.kv_limit =
        atomic_load_explicit(&seq->kv_limit, memory_order_acquire);
}

void bt_engine_take_in(bt_engine_t *engine, bt_seq_t *seq)
{
    look_at_kv_limit(seq);
    seq->sched.whole_us = left_us(engine, &seq->sched);
    seq->sched.turn.slack_us =
        slack_of(engine, &seq->sched, seq->sched.whole_us);
    bt_sched_queue_insert(&engine->running, &seq->sched.turn);
    for (uint32_t g = 0; g < bt_engine_n_groups(engine); g++) {
        if (bt_kv_copy_is_due(seq->copy[g])) {
            bt_model_copy_block(engine->config.model, &engine->config.kv,
                                seq->copy[g].from, seq->copy[g].to);
        }
    }
}

bt_seq_t *bt_engine_pop(bt_engine_t *engine)
{
    void *item;

    /* Once this is cleared the owner may push the next wake-up. */
    while ((item = bt_ring_pop(engine->inbox)) == engine) {
        (void)atomic_exchange(&engine->woken, false);
    }
    return item;
}

bool bt_engine_has_work(bt_engine_t *engine)
{
    bool has_work = false;

    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        look_at_kv_limit(seq);
        has_work = has_work || bt_sched_seq_may_run(&seq->sched);
    }
    return has_work;
}

void bt_engine_take_changes(bt_engine_t *engine, bt_report_t *report)
{
    bt_seq_t *new;

    while ((new = bt_engine_pop(engine)) != NULL) {
        bt_engine_take_in(engine, new);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        drop_canceled(engine, report, seq);
    }
}

/* Returns the token budget of the next iteration: the tokens of generating
 * sequences, and a chunk size that suits them. */
static uint32_t budget_of(bt_engine_t *engine)
{
    const bt_seq_t *first = NULL; /* with a chunk */
    bt_sched_step_t step = {0};
    uint32_t n_rows = 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_seq_t, seq, &engine->running,
                           sched.turn.link) {
        const uint32_t n = seq->sched.n_tokens - seq->sched.n_computed;

        if (!bt_sched_seq_may_run(&seq->sched)) {
            continue;
        }
        if (bt_sched_seq_has_chunks(&seq->sched)) {
            first = (first == NULL) ? seq : first;
            continue;
        }
        n_rows += n;
        if (!seq->leave_after_first) {
            step.n_seqs += (seq->beams != NULL) ? bt_engine_n_beams(seq) : 1;
            step.n_drafts += seq->sched.n_drafts;
            step.reads += seq->sched.n_tokens;
        }
    }
    if ((first == NULL) || engine->chunk.is_fixed) {
        return engine->config.token_budget;
    }
    n_rows += bt_sched_chunk_tokens(&engine->chunk, &engine->cost, &step,
                                    first->sched.n_computed);
    return (n_rows < engine->config.token_budget) ? n_rows
                                                  : engine->config.token_budget;
}

/* Sequences of the forward call that an item of the plan is: its beams. */
static uint32_t rows_of(const bt_pass_t *pass, uint32_t i)
{
    const bt_seq_t *seq = bt_engine_seq_of(pass->plan[i].seq);

    return bt_engine_has_beams(seq) ? bt_engine_n_beams(seq) : 1;
}

/* Computes the work of the pass, including sequences that joined it. */
static bt_sched_step_t work_of(const bt_pass_t *pass)
{
    bt_sched_step_t step = {0};

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        const bt_sched_item_t *item = &pass->plan[i];
        const uint64_t pairs =
            bt_sched_pairs(item->seq->n_computed, item->n_new);

        step.reads += item->seq->n_computed + item->n_new;
        if (item->n_new > 1 + item->seq->n_drafts) {
            step.n_tokens += item->n_new;
            step.pairs += pairs;
        } else {
            step.n_seqs += rows_of(pass, i);
            step.n_drafts += item->seq->n_drafts;
        }
    }
    return step;
}

uint32_t bt_engine_plan(bt_engine_t *engine, bt_pass_t *pass,
                        uint32_t n_drafting, uint32_t *n_context_p)
{
    const bt_engine_config_t *config = &engine->config;
    const uint64_t start_ns = bt_now_ns();
    const uint32_t n_drafts = bt_engine_add_drafts(engine, n_drafting);
    uint32_t n_items;

    pass->drafting_ns = bt_now_ns() - start_ns;
    n_items = bt_sched_plan(&engine->running, budget_of(engine),
                            config->kv.tokens_per_block, config->max_seqs,
                            pass->plan, n_context_p);
    return bt_sched_limit_rows(
        pass->plan, n_items,
        BT_ENGINE_EXTRA_ROWS + config->max_drafts - n_drafts, n_context_p);
}

/* Sets the flag of bt_seq_has_begun(). */
static void note_begun(bt_seq_t *seq)
{
    if (bt_seq_has_begun(seq)) {
        return;
    }
    atomic_store_explicit(&seq->has_begun, true, memory_order_relaxed);
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        atomic_store_explicit(&follower->has_begun, true, memory_order_relaxed);
    }
}

static void add_logit_row(bt_pass_t *pass, uint32_t row, uint32_t needs)
{
    const uint32_t i = pass->n_logit_rows++;

    pass->logit_rows[i] = row;
    pass->needs[i] = needs;
    if ((pass->first_ids != NULL) && (needs != BT_NEEDS_IDS)) {
        pass->first_ids[i + 1] = pass->first_ids[i];
    }
}

/* Returns bt_forward_t.needs of a row that is drawn from (@a draws), or that
 * the owner wants. */
static uint32_t needs_of(bt_engine_t *engine, bt_seq_t *seq, uint32_t position,
                         bool draws)
{
    if (bt_engine_tell(engine->pass, seq, position, draws)) {
        return BT_NEEDS_NOTHING;
    }
    if (draws && bt_engine_list_ids(engine, seq, position)) {
        return BT_NEEDS_IDS;
    }
    return draws ? bt_engine_needs(seq, position) : 0;
}

/* Appends a row for each beam of a sequence. The host needs all logits. */
static void lay_beams(bt_pass_t *pass, const bt_seq_t *seq)
{
    for (uint32_t beam = 0; beam < bt_engine_n_beams(seq); beam++) {
        const uint32_t row = pass->n_rows++;

        pass->loras[pass->n_ragged] = seq->lora;
        pass->seqs[pass->n_ragged++] = (bt_ragged_seq_t){
            .row = row,
            .n_rows = 1,
            .pos = seq->sched.n_computed,
            .blocks = bt_engine_beam_blocks(seq, beam),
        };
        pass->rows_tokens[row] = bt_engine_beam_token(seq, beam);
        pass->from_ids[row] = UINT32_MAX;
        add_logit_row(pass, row, 0);
    }
}

/* Appends n tokens that are not computed yet, with the rows of its prompt table
 * that some of them are. */
static void lay_tokens(const bt_engine_t *engine, const bt_seq_t *seq,
                       uint32_t row, uint32_t n)
{
    const bt_pass_t *pass = engine->pass;
    const size_t dim = bt_model_hparams(engine->config.model)->dim;

    memcpy(&pass->rows_tokens[row], &seq->tokens[seq->sched.n_computed],
           n * sizeof(uint32_t));
    for (uint32_t i = row; (pass->embeddings != NULL) && (i < row + n); i++) {
        const uint32_t number = pass->rows_tokens[i] - BT_TABLE_TOKEN;

        if (number < seq->n_table_rows) {
            pass->embeddings[i] = seq->table + number * dim;
            pass->rows_tokens[i] = BT_NO_TOKEN;
        }
    }
}

void bt_engine_lay_item(bt_engine_t *engine, uint32_t i)
{
    bt_pass_t *pass = engine->pass;
    const bt_sched_item_t *item = &pass->plan[i];
    bt_seq_t *seq = bt_engine_seq_of(item->seq);
    const uint32_t row = pass->n_rows;

    note_begun(seq);
    if (bt_engine_has_beams(seq)) {
        lay_beams(pass, seq);
        return;
    }
    clear_tails(engine, seq, item->n_new);
    pass->loras[pass->n_ragged] = seq->lora;
    pass->seqs[pass->n_ragged++] = (bt_ragged_seq_t){
        .row = row,
        .n_rows = item->n_new,
        .pos = seq->sched.n_computed,
        .blocks = seq->blocks,
    };
    lay_tokens(engine, seq, row, item->n_new);
    memset(&pass->from_ids[row], 0xff, item->n_new * sizeof(uint32_t));
    if (seq->from_id != UINT32_MAX) {
        pass->from_ids[row] = seq->from_id;
        pass->takes_ids = true;
    }
    for (uint32_t k = 0; k < item->n_new; k++) {
        const uint32_t position = seq->sched.n_computed + k;
        const bool draws = position >= bt_engine_draws_from(item);

        if (draws || bt_engine_wants_row(seq, position)) {
            add_logit_row(pass, row + k,
                          needs_of(engine, seq, position, draws));
        }
    }
    pass->n_rows += item->n_new;
}

/* Fills the arrays of one forward call from the plan. */
void bt_engine_lay_rows(bt_engine_t *engine)
{
    engine->pass->n_rows = engine->pass->n_logit_rows = 0;
    engine->pass->n_ragged = 0;
    engine->pass->takes_ids = false;
    if (engine->pass->drawing != NULL) {
        bt_drawing_clear(engine->pass->drawing);
    }
    for (uint32_t i = 0; i < engine->pass->n_planned; i++) {
        bt_engine_lay_item(engine, i);
    }
}

static void account(bt_report_t *report, bt_seq_t *seq, bool context)
{
    uint64_t start_ns = report->start_ns;
    uint64_t ns;

    if (seq->n_iterations == 0) {
        start_ns = (seq->late_ns != 0) ? seq->late_ns : start_ns;
        seq->first_start_ns = start_ns;
    }
    ns = report->end_ns - start_ns;
    if (start_ns == report->start_ns) {
        ns += report->drafting_ns;
        ns -= report->preempting_ns;
    }
    seq->n_iterations++;
    if (context) {
        seq->context_ns += ns;
        seq->n_chunks++;
    } else {
        seq->generation_ns += ns;
    }
}

/* Records that KV of an item's tokens is stored, for its sequence and
 * followers. */
static void advance(bt_engine_t *engine, bt_report_t *report,
                    const bt_sched_item_t *item)
{
    bt_seq_t *seq = bt_engine_seq_of(item->seq);
    const bool context = (item->n_new > 1 + seq->sched.n_drafts) ||
                         !item->last_chunk ||
                         (seq->sched.n_computed + 1 <= seq->n_prompt);

    report->n_context_seqs += context ? 1 : 0;
    report->n_generation_seqs += context ? 0 : 1;
    seq->sched.n_computed += item->n_new;
    if (!item->last_chunk) {
        bt_sched_queue_set_slack(
            &engine->running, &seq->sched.turn,
            slack_of(engine, &seq->sched, left_us(engine, &seq->sched)));
    }
    account(report, seq, context);
    if (context) {
        bt_engine_report(report, BT_REPORT_CHUNK, seq, 0, BT_FINISH_NONE);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        follower->sched.n_computed = seq->sched.n_computed;
        account(report, follower, context);
        if (context) {
            bt_engine_report(report, BT_REPORT_CHUNK, follower, 0,
                             BT_FINISH_NONE);
        }
    }
}

/* After a device failure every sequence leaves. */
void bt_engine_fail_all(bt_engine_t *engine, bt_report_t *report)
{
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        while (!bt_list_empty(&seq->followers)) {
            bt_engine_leave(report, bt_engine_seq_at(seq->followers.next),
                            BT_FINISH_ERROR);
        }
        bt_engine_drop_drafts(seq);
        bt_engine_leave(report, seq, BT_FINISH_ERROR);
    }
}

static void tell_layers(bt_seq_t *seq, uint32_t n_layers)
{
    if (seq->tell_layers) {
        atomic_store_explicit(&seq->n_layers, n_layers, memory_order_release);
    }
}

/* Called once per layer: finished layers of a last chunk can be sent
 * already. */
static void on_layers(void *ctx, uint32_t n_layers)
{
    const bt_pass_t *pass = ((const bt_engine_t *)ctx)->pass;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        bt_seq_t *seq = bt_engine_seq_of(pass->plan[i].seq);

        if (!pass->plan[i].last_chunk) {
            continue;
        }
        tell_layers(seq, n_layers);
        BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                               sched.turn.link) {
            tell_layers(follower, n_layers);
        }
    }
}

bt_forward_t bt_engine_forward_of(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    const bt_pass_t *pass = engine->pass;
    const bool is_whole = pass == &engine->whole;

    return (bt_forward_t){
        .seqs = pass->seqs,
        .n_seqs = pass->n_ragged,
        .loras = pass->loras,
        .tokens = pass->rows_tokens,
        .embeddings = pass->embeddings,
        .from_ids = pass->takes_ids ? pass->from_ids : NULL,
        .n_rows = pass->n_rows,
        .first_row = is_whole ? 0 : engine->whole.n_rows,
        .logit_rows = pass->logit_rows,
        .n_logit_rows = pass->n_logit_rows,
        .needs = pass->needs,
        .best_ids = pass->best_ids,
        .first_ids = pass->first_ids,
        .ids = pass->ids,
        .drawing = pass->drawing,
        .taps = is_whole ? bt_engine_taps(engine) : NULL,
        .kv = config->kv,
        .groups = config->groups,
        .on_layers = on_layers,
        .on_layers_ctx = engine,
        .take_late =
            (is_whole && config->late_join) ? bt_engine_take_late : NULL,
        .take_late_ctx = engine,
        .between_layers = is_whole ? bt_engine_preempt_at_layer : NULL,
        .between_layers_ctx = engine,
        .progress = &engine->progress,
    };
}

/* Measures the pass up to the drawn tokens, which the next one needs: with many
 * sequences and a large vocabulary drawing takes a third of an iteration.
 * Passes that preempted this one have their own reports. */
static void learn(bt_engine_t *engine, bt_report_t *report)
{
    const uint64_t now_ns = bt_now_ns();

    report->work_ns = now_ns - report->start_ns - report->preempting_ns;
    report->work.at_us = now_ns / 1000;
    engine->last_step_ns = report->work_ns + report->drafting_ns;
    bt_sched_cost_learn(&engine->cost, &report->work, report->work_ns);
    if (report->work.n_tokens == 0) {
        bt_sched_row_times_learn(
            &engine->row_times, report->work.n_seqs + report->work.n_drafts,
            (double)(report->work_ns + report->work.lent_ns) / 1000 -
                bt_sched_cost_reads_us(&engine->cost,
                                       (double)report->work.reads));
    }
}

void bt_engine_settle(bt_engine_t *engine, bt_report_t *report,
                      bt_status_t status, float *logits)
{
    bt_pass_t *pass = engine->pass;

    report->status = status;
    report->start_ns = pass->start_ns;
    report->drafting_ns = pass->drafting_ns;
    report->end_ns = bt_now_ns();
    report->iteration = ++engine->iteration;
    report->n_seqs = pass->n_planned;
    if (status != BT_OK) {
        BT_LOG_ERROR("forward pass of %u rows failed: %s", pass->n_rows,
                     bt_status_str(status));
        return;
    }

    pass->logits = logits;
    report->work = work_of(pass);
    report->work.lent_ns = pass->lent_ns;
    if (pass == &engine->whole) {
        report->preempting_ns = engine->preempting_ns;
        report->work.lent_ns -= engine->preempting_lent_ns;
    }
    for (uint32_t i = 0; i < pass->n_planned; i++) {
        const bt_sched_item_t *item = &pass->plan[i];
        const uint32_t first = item->seq->n_computed;
        bt_seq_t *seq = bt_engine_seq_of(item->seq);

        if (seq->is_gone) { /* its one row was computed in vain */
            bt_engine_report(report, BT_REPORT_LEFT, seq, 0, seq->gone_finish);
            logits += engine->n_vocab;
            continue;
        }
        advance(engine, report, item);
        logits = bt_engine_use_logits(engine, report, item, first, logits);
        bt_engine_mark(engine);
    }
    learn(engine, report);
}

void bt_engine_run_pass(bt_engine_t *engine, bt_report_t *report)
{
    bt_model_t *model = engine->config.model;
    bt_pass_t *pass = engine->pass;
    float *logits = NULL;
    bt_forward_t fwd;
    bt_status_t status;

    bt_engine_lay_rows(engine);
    fwd = bt_engine_forward_of(engine);
    pass->start_ns = bt_now_ns();
    bt_engine_mark(engine);
    pass->lent_ns = bt_model_lent_ns(model);
    status = bt_model_forward(model, &fwd, &logits);
    pass->lent_ns = bt_model_lent_ns(model) - pass->lent_ns;
    bt_engine_wait_for_latency(engine, engine->n_layers);
    bt_engine_settle(engine, report, status, logits);
}

void bt_engine_iterate(bt_engine_t *engine, bt_report_t *report)
{
    bt_pass_t *whole = &engine->whole;

    whole->n_planned =
        bt_engine_plan(engine, whole, UINT32_MAX, &report->n_context_tokens);
    engine->preempting_ns = engine->preempting_lent_ns = 0;
    engine->preempting_status = BT_OK;
    bt_sched_midstep_join_step(&engine->late);
    bt_engine_run_pass(engine, report);
    if (report->status == BT_OK) {
        report->status = engine->preempting_status;
    }
    if (report->status != BT_OK) {
        bt_engine_fail_all(engine, report);
    }
}

/* Stores logits of positions for their owner. */

bool bt_engine_wants_row(const bt_seq_t *seq, uint32_t position)
{
    const bt_seq_rows_t *rows = seq->rows;

    return (rows != NULL) && (position >= rows->from) &&
           (position >= rows->done) && (position - rows->from < rows->n);
}

void bt_engine_store_row(const bt_seq_t *seq, uint32_t position,
                         const float *logits, uint32_t n_vocab)
{
    const bt_seq_rows_t *rows = seq->rows;
    const size_t i = position - rows->from;
    uint32_t *ids =
        (rows->top_ids == NULL) ? NULL : rows->top_ids + i * rows->n_top;
    uint32_t next;
    double sum;

    if (rows->logits != NULL) {
        memcpy(rows->logits + i * n_vocab, logits, n_vocab * sizeof(*logits));
    }
    if (ids != NULL) {
        bt_logprob_top(logits, n_vocab, rows->n_top, ids);
    }
    if (rows->logprobs == NULL) {
        return;
    }
    sum = bt_logprob_sum(logits, n_vocab);
    next = seq->tokens[position + 1]; /* a row of a prompt table has none */
    rows->logprobs[i] = (next < n_vocab) ? (double)logits[next] - sum : NAN;
    for (uint32_t k = 0;
         (ids != NULL) && (rows->top_logprobs != NULL) && (k < rows->n_top);
         k++) {
        rows->top_logprobs[i * rows->n_top + k] = (double)logits[ids[k]] - sum;
    }
}

void bt_engine_store_scored(const bt_seq_t *seq, uint32_t position,
                            const bt_scored_t *scored, const bt_first_t *top)
{
    const bt_seq_rows_t *rows = seq->rows;
    const size_t i = position - rows->from;

    if (rows->logprobs != NULL) {
        rows->logprobs[i] = bt_logprob_of(scored);
    }
    for (uint32_t k = 0; (rows->top_ids != NULL) && (k < rows->n_top); k++) {
        const size_t at = i * rows->n_top + k;

        rows->top_ids[at] = top->ids[k];
        if ((rows->logprobs != NULL) && (rows->top_logprobs != NULL)) {
            rows->top_logprobs[at] =
                bt_logprob_of_logit(scored, top->logits[k]);
        }
    }
}
