/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/engine/engine_priv.h"
#include "inference/model/logits.h"

/* Turns rows of logits into tokens and reports them: for single sequences,
 * fan-outs, and drafts. */

void bt_engine_report(bt_report_t *report, bt_report_kind_t kind, bt_seq_t *seq,
                      uint32_t token, bt_finish_t finish)
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

void bt_engine_leave(bt_report_t *report, bt_seq_t *seq, bt_finish_t finish)
{
    bt_list_remove(&seq->sched.turn.link);
    if (seq->beams != NULL) {
        bt_engine_forget_beams(seq);
    }
    if ((seq->drafter.ended != NULL) && !seq->leave_after_first &&
        ((finish == BT_FINISH_STOP) || (finish == BT_FINISH_LENGTH))) {
        seq->drafter.ended(seq->drafter.ctx, seq->tokens, seq->sched.n_tokens);
    }
    if (seq->n_under_way > 0) {
        seq->is_gone = true;
        seq->gone_finish = finish;
        return;
    }
    bt_engine_report(report, BT_REPORT_LEFT, seq, 0, finish);
}

uint32_t bt_engine_draws_from(const bt_sched_item_t *item)
{
    const uint32_t end = item->seq->n_computed + item->n_new;

    return item->last_chunk ? end - 1 - item->seq->n_drafts : end;
}

uint32_t bt_engine_needs(const bt_seq_t *seq, uint32_t position)
{
    const bool all =
        (position + 1 < seq->n_prompt) || (seq->n_processors > 0) ||
        (seq->beams != NULL) || bt_seq_has_grammar(seq) ||
        !bt_list_empty(&seq->followers) || bt_engine_wants_row(seq, position);

    return all ? 0
               : bt_sampler_needs(&seq->sampling, seq->n_prompt,
                                  position + 1 - seq->n_prompt);
}

bool bt_engine_is_end_id(const bt_sampling_t *sampling, uint32_t id)
{
    for (uint32_t i = 0; i < sampling->n_end_ids; i++) {
        if (sampling->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* Returns the logit row of the pass. */
static uint32_t row_of(const bt_engine_t *engine, const float *logits)
{
    return (uint32_t)((size_t)(logits - engine->pass->logits) /
                      engine->n_vocab);
}

/* Assigns draws and scorings of a pass to a back end that supports them
 * (drawing.h), so that its logits stay there. A row of which all logits are
 * wanted, or whose processors are more than a bias, or whose sequence has a
 * grammar, is processed by the host, and so are all draws from it. */

/* Adds the scoring of this position's row, for the token that follows or for
 * the draw added last.
 * @return false: the back end cannot do it */
static bool tell_score(bt_pass_t *pass, const bt_seq_t *seq, uint32_t position,
                       bool draws)
{
    const bt_seq_rows_t *const rows = seq->rows;
    const bt_scoring_t scoring = {.logit_row = pass->n_logit_rows,
                                  .draw = draws ? pass->drawing->n_draws - 1
                                                : BT_SCORING_NO_DRAW,
                                  .id = draws ? 0 : seq->tokens[position + 1]};

    return (rows->logits == NULL) &&
           bt_drawing_score(pass->drawing, &scoring,
                            (rows->top_ids == NULL) ? 0 : rows->n_top);
}

static bool tell_draw(bt_pass_t *pass, const bt_seq_t *seq, uint32_t position)
{
    const bool is_biased = seq->n_processors > 0;
    const bt_drawn_from_t from = {.sampling = &seq->sampling,
                                  .is_biased = is_biased,
                                  .tokens = seq->tokens,
                                  .n_tokens = position + 1,
                                  .n_prompt = seq->n_prompt};

    if ((position + 1 < seq->n_prompt) || (seq->n_processors > 1) ||
        bt_seq_has_grammar(seq) ||
        (is_biased &&
         (bt_logit_biases_of(&seq->processors[0]) != &seq->sampling))) {
        return false;
    }
    return bt_drawing_add(pass->drawing, pass->n_logit_rows, &from) &&
           (!bt_engine_wants_row(seq, position) ||
            tell_score(pass, seq, position, true));
}

/* Adds the draws of a sequence and all its followers. */
static bool tell_draws(bt_pass_t *pass, bt_seq_t *seq, uint32_t position)
{
    bool told = tell_draw(pass, seq, position);

    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, follower, &seq->followers,
                           sched.turn.link) {
        told = told && tell_draw(pass, follower, position);
    }
    return told;
}

bool bt_engine_tell(bt_pass_t *pass, bt_seq_t *seq, uint32_t position,
                    bool draws)
{
    bt_drawing_t *const d = pass->drawing;
    bool told;

    if ((d == NULL) || (draws && (seq->beams != NULL))) {
        return false;
    }
    pass->draw_of[pass->n_logit_rows] = d->n_draws;
    pass->score_of[pass->n_logit_rows] = d->n_scorings;
    told = draws ? tell_draws(pass, seq, position)
                 : tell_score(pass, seq, position, false);
    if (!told) {
        bt_drawing_cut(d, pass->draw_of[pass->n_logit_rows],
                       pass->score_of[pass->n_logit_rows]);
    }
    return told;
}

static bool is_told(const bt_pass_t *pass, uint32_t row)
{
    return pass->needs[row] == BT_NEEDS_NOTHING;
}

/* The id of the back end's draw k from this row. */
static uint32_t told_id(const bt_pass_t *pass, uint32_t row, uint32_t k)
{
    return pass->drawing->ids[pass->draw_of[row] + k];
}

/* Returns the index of the scoring of the row for draw k from it, or for a
 * known token. */
static uint32_t scoring_of(const bt_pass_t *pass, uint32_t row, uint32_t k)
{
    const bt_scoring_t *const scorings = pass->drawing->scorings;
    uint32_t i = pass->score_of[row];

    while ((scorings[i].draw != BT_SCORING_NO_DRAW) &&
           (scorings[i].draw != pass->draw_of[row] + k)) {
        i++;
    }
    return i;
}

/* Stores what the owner wants of a row that the back end scored, for draw k or
 * for a known token. */
static void store_told(const bt_pass_t *pass, uint32_t row, uint32_t k,
                       const bt_seq_t *seq, uint32_t position, uint32_t n_vocab)
{
    const uint32_t s = scoring_of(pass, row, k);

    if (isfinite(pass->drawing->scored[s].sum)) {
        bt_engine_store_scored(seq, position, &pass->drawing->scored[s],
                               &pass->drawing->tops[s]);
    } else { /* the host has the logits then */
        bt_engine_store_row(seq, position, pass->logits + (size_t)row * n_vocab,
                            n_vocab);
    }
}

/* Draws the only token of a mask: the row has that one alone then. */
static uint32_t draw_only(const uint64_t *mask, float *logits, uint32_t n_vocab)
{
    const bt_processor_options_t none = {0};
    const uint32_t id = bt_processors_fallback(&none, mask, n_vocab);

    bt_processors_mask(mask, logits, n_vocab);
    return id;
}

uint32_t bt_seq_draw(bt_seq_t *seq, bt_sampler_t *sampler, uint32_t n_tokens,
                     float *logits, uint32_t n_vocab)
{
    const bt_history_t history = {
        .tokens = seq->tokens, .n = n_tokens, .n_prompt = seq->n_prompt};
    uint64_t *mask = NULL;
    uint32_t n = 0;

    if (bt_seq_has_grammar(seq)) {
        mask = bt_sampler_mask(sampler);
        n = bt_seq_mask(seq, n_tokens, mask);
        if (n < 2) {
            return (n == 0) ? BT_NO_TOKEN : draw_only(mask, logits, n_vocab);
        }
    }
    for (uint32_t i = 0; i < seq->n_processors; i++) {
        seq->processors[i].apply(seq->processors[i].ctx, seq->tokens, n_tokens,
                                 logits, n_vocab);
    }
    return bt_sampler_draw_masked(sampler, &seq->sampling, logits, &history,
                                  n_tokens, mask);
}

/* Chooses the next id from the available form of the row: the back end's draw
 * after k others, its best id, or its logits, which are overwritten. */
static uint32_t choose(bt_engine_t *engine, bt_seq_t *seq, uint32_t k,
                       float *logits)
{
    const bt_pass_t *pass = engine->pass;
    const uint32_t row = row_of(engine, logits);
    const uint32_t n = seq->sched.n_tokens;

    if (is_told(pass, row)) {
        return told_id(pass, row, k);
    }
    if (pass->needs[row] == 1) {
        return pass->best_ids[row];
    }
    return bt_seq_draw(seq, engine->sampler, n, logits, engine->n_vocab);
}

/* Chooses the next id, and stores what the owner wants of its row.
 * @return BT_NO_TOKEN: the grammar cannot be followed, and nothing is stored */
static uint32_t choose_and_store(bt_engine_t *engine, bt_seq_t *seq, uint32_t k,
                                 float *logits)
{
    const uint32_t n = seq->sched.n_tokens;
    const uint32_t row = row_of(engine, logits);
    const bool wants_row = bt_engine_wants_row(seq, n - 1);
    const bool told = is_told(engine->pass, row);
    uint32_t id;

    if (wants_row && !told) {
        memcpy(engine->row, logits, engine->n_vocab * sizeof(*logits));
    }
    id = choose(engine, seq, k, logits);
    if (id == BT_NO_TOKEN) {
        return id;
    }
    seq->tokens[n] = id;
    if (wants_row && told) {
        store_told(engine->pass, row, k, seq, n - 1, engine->n_vocab);
    } else if (wants_row) {
        bt_engine_store_row(seq, n - 1, engine->row, engine->n_vocab);
    }
    return id;
}

void bt_engine_draw(bt_engine_t *engine, bt_report_t *report, bt_seq_t *seq,
                    uint32_t k, float *logits)
{
    const uint32_t id = choose_and_store(engine, seq, k, logits);
    bt_finish_t finish = BT_FINISH_NONE;

    if (id == BT_NO_TOKEN) {
        seq->grammar.has_failed = true;
        bt_engine_leave(report, seq, BT_FINISH_ERROR);
        return;
    }
    seq->sched.n_tokens++;
    seq->n_drawn++;
    bt_engine_pace(seq);
    if (bt_engine_is_end_id(&seq->sampling, id)) {
        finish = BT_FINISH_STOP;
    } else if (seq->n_drawn == seq->max_new) {
        finish = BT_FINISH_LENGTH;
    }
    bt_engine_report(report, BT_REPORT_TOKEN, seq, id, finish);
    if ((finish != BT_FINISH_NONE) || seq->leave_after_first) {
        bt_engine_leave(report, seq, finish);
    }
}

/* Copies the block that a prompt of n tokens fills in part to the follower,
 * unless there is none or nothing will be written behind the prompt. */
static void copy_partial(bt_engine_t *engine, const bt_seq_t *from,
                         const bt_seq_t *to, uint32_t n_tokens)
{
    const bt_kv_view_t *kv = &engine->config.kv;
    const uint32_t *src = bt_engine_row_of(engine, from, n_tokens);
    const uint32_t *dst = bt_engine_row_of(engine, to, n_tokens);

    if ((n_tokens % kv->tokens_per_block != 0) && bt_engine_goes_on(to)) {
        for (uint32_t g = 0; g < bt_engine_n_groups(engine); g++) {
            BT_ASSERT(src[g] != dst[g]);
            bt_model_copy_block(engine->config.model, kv, src[g], dst[g]);
        }
    }
}

/* Draws for all sequences of a fan-out from one row, which each draw
 * overwrites. Followers become independent sequences. */
static void draw_all(bt_engine_t *engine, bt_report_t *report, bt_seq_t *seq,
                     float *logits)
{
    const uint32_t n_tokens = seq->sched.n_tokens;
    const bool copies = !is_told(engine->pass, row_of(engine, logits));
    const size_t bytes = engine->n_vocab * sizeof(*logits);

    if (copies) {
        memcpy(engine->row, logits, bytes);
    }
    bt_engine_draw(engine, report, seq, 0, logits);
    for (uint32_t k = 1; !bt_list_empty(&seq->followers); k++) {
        bt_seq_t *follower = bt_engine_seq_at(seq->followers.next);

        bt_list_remove(&follower->sched.turn.link);
        bt_sched_queue_insert(&engine->running, &follower->sched.turn);
        if (copies) {
            memcpy(logits, engine->row, bytes);
        }
        bt_engine_draw(engine, report, follower, k, logits);
        copy_partial(engine, seq, follower, n_tokens);
    }
}

/* Stores what the owner wants of a row whose next token is known. */
static void store_known(const bt_engine_t *engine, const bt_seq_t *seq,
                        uint32_t position, const float *logits)
{
    const uint32_t row = row_of(engine, logits);

    if (is_told(engine->pass, row)) {
        store_told(engine->pass, row, 0, seq, position, engine->n_vocab);
    } else {
        bt_engine_store_row(seq, position, logits, engine->n_vocab);
    }
}

float *bt_engine_use_logits(bt_engine_t *engine, bt_report_t *report,
                            const bt_sched_item_t *item, uint32_t first,
                            float *logits)
{
    bt_seq_t *seq = bt_engine_seq_of(item->seq);
    const uint32_t end =
        first + item->n_new - (item->last_chunk ? 1 + seq->sched.n_drafts : 0);

    for (uint32_t position = first; position < end; position++) {
        if (bt_engine_wants_row(seq, position)) {
            store_known(engine, seq, position, logits);
            logits += engine->n_vocab;
        }
    }
    if (item->last_chunk && (seq->beams != NULL)) {
        logits = bt_engine_step_beams(engine, report, seq, logits);
    } else if (item->last_chunk && !bt_list_empty(&seq->followers)) {
        draw_all(engine, report, seq, logits);
        logits += engine->n_vocab;
    } else if (item->last_chunk) {
        const size_t n_rows = 1 + (size_t)seq->sched.n_drafts;

        bt_engine_draw_drafts(engine, report, seq, logits);
        logits += n_rows * engine->n_vocab;
    }
    return logits;
}
