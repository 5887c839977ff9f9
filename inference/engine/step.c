/* SPDX-License-Identifier: Apache-2.0 */
/* One iteration of the compute thread: who comes and goes, the plan, the
 * forward pass, and a token for each that has all of its tokens computed. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "inference/engine/engine_priv.h"

static bt_seq_t *seq_of(bt_sched_seq_t *sched)
{
    return BT_CONTAINER_OF(sched, bt_seq_t, sched);
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

static bt_seq_t *seq_at(bt_list_t *link)
{
    return seq_of(BT_CONTAINER_OF(link, bt_sched_seq_t, turn.link));
}

static bool is_canceled(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->cancel, memory_order_acquire);
}

/* Its first follower computes from here on. Chunks before the last end with a
 * block, so all that is computed lies in whole blocks, and those are in every
 * table of the group. */
static void pass_lead(bt_engine_t *engine, bt_seq_t *seq)
{
    bt_seq_t *next;

    if (bt_list_empty(&seq->followers)) {
        return;
    }
    next = seq_at(seq->followers.next);
    bt_list_remove(&next->sched.turn.link);
    while (!bt_list_empty(&seq->followers)) {
        bt_list_t *link = seq->followers.next;

        bt_list_remove(link);
        bt_list_push_back(&next->followers, link);
    }
    bt_sched_queue_insert(&engine->running, &next->sched.turn);
}

/* Let the canceled ones of a group go. */
static void drop_canceled(bt_engine_t *engine, bt_report_t *report,
                          bt_seq_t *seq)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
    {
        if (is_canceled(seq_at(pos))) {
            leave(report, seq_at(pos), BT_FINISH_CANCELED);
        }
    }
    if (is_canceled(seq)) {
        pass_lead(engine, seq);
        leave(report, seq, BT_FINISH_CANCELED);
    }
}

void bt_engine_take_changes(bt_engine_t *engine, bt_report_t *report)
{
    bt_list_t *pos;
    bt_list_t *tmp;
    bt_seq_t *seq;

    while ((seq = bt_ring_pop(engine->inbox)) != NULL) {
        bt_sched_queue_insert(&engine->running, &seq->sched.turn);
        if (bt_kv_copy_is_due(seq->copy)) {
            bt_model_copy_block(engine->config.model, &engine->config.kv,
                                seq->copy.from, seq->copy.to);
        }
    }
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        drop_canceled(engine, report, seq_at(pos));
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

/* Is it, after draw(), still in the list? */
static bool goes_on(const bt_seq_t *seq)
{
    return !bt_list_empty(&seq->sched.turn.link);
}

/* The block that a prompt of n tokens fills in part becomes the follower's too,
 * unless there is none or nobody writes behind the prompt. */
static void copy_partial(bt_engine_t *engine, const bt_seq_t *from,
                         const bt_seq_t *to, uint32_t n_tokens)
{
    const bt_kv_view_t *kv = &engine->config.kv;
    const uint32_t i = n_tokens / kv->tokens_per_block;

    if ((n_tokens % kv->tokens_per_block != 0) && goes_on(to)) {
        BT_ASSERT(from->blocks[i] != to->blocks[i]);
        bt_model_copy_block(engine->config.model, kv, from->blocks[i],
                            to->blocks[i]);
    }
}

/* All of a group draw from one row, which a draw overwrites. Followers become
 * sequences of their own. */
static void draw_all(bt_engine_t *engine, bt_report_t *report, bt_seq_t *seq,
                     float *logits, uint32_t n_vocab)
{
    const uint32_t n_tokens = seq->sched.n_tokens;
    const size_t bytes = n_vocab * sizeof(*logits);

    if (!bt_list_empty(&seq->followers)) {
        memcpy(engine->row, logits, bytes);
    }
    draw(engine, report, seq, logits);
    while (!bt_list_empty(&seq->followers)) {
        bt_seq_t *follower = seq_at(seq->followers.next);

        bt_list_remove(&follower->sched.turn.link);
        bt_sched_queue_insert(&engine->running, &follower->sched.turn);
        memcpy(logits, engine->row, bytes);
        draw(engine, report, follower, logits);
        copy_partial(engine, seq, follower, n_tokens);
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
    } else {
        seq->generation_ns += ns;
    }
}

/* K and V of an item's tokens are there, for it and for all that it computes
 * for. */
static void advance(bt_report_t *report, const bt_sched_item_t *item)
{
    bt_seq_t *seq = seq_of(item->seq);
    const bool context =
        (item->n_new > 1) || (seq->sched.n_computed + 1 <= seq->n_prompt);
    bt_list_t *pos;
    bt_list_t *tmp;

    report->n_context_seqs += context ? 1 : 0;
    report->n_generation_seqs += context ? 0 : 1;
    seq->sched.n_computed += item->n_new;
    account(report, seq, context);
    if (context) {
        report_add(report, BT_REPORT_CHUNK, seq, 0, BT_FINISH_NONE);
    }
    BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
    {
        bt_seq_t *follower = seq_at(pos);

        follower->sched.n_computed = seq->sched.n_computed;
        account(report, follower, context);
        if (context) {
            report_add(report, BT_REPORT_CHUNK, follower, 0, BT_FINISH_NONE);
        }
    }
}

/* A device that failed serves nobody: every sequence leaves. */
static void fail_all(bt_engine_t *engine, bt_report_t *report)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        bt_seq_t *seq = seq_at(pos);

        while (!bt_list_empty(&seq->followers)) {
            leave(report, seq_at(seq->followers.next), BT_FINISH_ERROR);
        }
        leave(report, seq, BT_FINISH_ERROR);
    }
}

static void tell_layers(bt_seq_t *seq, uint32_t n_layers)
{
    if (seq->tell_layers) {
        atomic_store_explicit(&seq->n_layers, n_layers, memory_order_release);
    }
}

/* Called once per layer: what is ready of a last chunk can leave already. */
static void on_layers(void *ctx, uint32_t n_layers)
{
    const bt_engine_t *engine = ctx;
    bt_list_t *pos;
    bt_list_t *tmp;

    for (uint32_t i = 0; i < engine->n_planned; i++) {
        bt_seq_t *seq = seq_of(engine->plan[i].seq);

        if (!engine->plan[i].last_chunk) {
            continue;
        }
        tell_layers(seq, n_layers);
        BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
        {
            tell_layers(seq_at(pos), n_layers);
        }
    }
}

void bt_engine_iterate(bt_engine_t *engine, bt_report_t *report)
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

        advance(report, item);
        if (item->last_chunk) {
            draw_all(engine, report, seq_of(item->seq), logits, n_vocab);
            logits += n_vocab;
        }
    }
}
