/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/drawing.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/model_priv.h"
#include "inference/model/sampler.h"
#include "kernels/kernels.h"

bt_status_t bt_drawing_create(uint32_t n_vocab, uint32_t max_each,
                              bt_drawing_t **drawing_p)
{
    bt_drawing_t *d = bt_calloc(1, sizeof(*d));

    if (d == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    d->n_vocab = n_vocab;
    d->max_each = max_each;
    d->draws = bt_calloc(max_each, sizeof(*d->draws));
    d->edits = bt_calloc(BT_DRAWING_EDITS, sizeof(*d->edits));
    d->scorings = bt_calloc(max_each, sizeof(*d->scorings));
    d->slots = bt_calloc(n_vocab, sizeof(*d->slots));
    d->ids = bt_calloc(max_each, sizeof(*d->ids));
    d->scored = bt_calloc(max_each, sizeof(*d->scored));
    d->tops = bt_calloc(max_each, sizeof(*d->tops));
    if ((d->draws == NULL) || (d->edits == NULL) || (d->scorings == NULL) ||
        (d->slots == NULL) || (d->ids == NULL) || (d->scored == NULL) ||
        (d->tops == NULL)) {
        bt_drawing_destroy(d);
        return BT_ERR_NO_MEMORY;
    }
    *drawing_p = d;
    return BT_OK;
}

void bt_drawing_destroy(bt_drawing_t *d)
{
    if (d == NULL) {
        return;
    }
    bt_free(d->draws);
    bt_free(d->edits);
    bt_free(d->scorings);
    bt_free(d->slots);
    bt_free(d->ids);
    bt_free(d->scored);
    bt_free(d->tops);
    bt_free(d);
}

void bt_drawing_clear(bt_drawing_t *d)
{
    d->n_draws = d->n_edits = d->n_scorings = d->n_top = 0;
}

/* Returns the edit of an id, or NULL: there is no space. */
static bt_draw_edit_t *edit_of(bt_drawing_t *d, uint32_t id)
{
    if (d->slots[id] == 0) {
        if (d->n_edits == BT_DRAWING_EDITS) {
            return NULL;
        }
        d->edits[d->n_edits++] = (bt_draw_edit_t){.id = id};
        d->slots[id] = d->n_edits;
    }
    return &d->edits[d->slots[id] - 1];
}

/* @return false: as bt_drawing_add() */
static bool add_biases(bt_drawing_t *d, const bt_sampling_t *sampling)
{
    for (uint32_t i = 0; i < sampling->n_logit_biases; i++) {
        const bt_logit_bias_t *bias = &sampling->logit_biases[i];
        bt_draw_edit_t *edit;

        if (bias->id >= d->n_vocab) {
            continue;
        }
        edit = edit_of(d, bias->id);
        if ((edit == NULL) || ((edit->what & BT_EDIT_BIAS) != 0)) {
            return false; /* two edits would round twice */
        }
        edit->what |= BT_EDIT_BIAS;
        edit->bias = bias->bias;
    }
    return true;
}

static bool add_history(bt_drawing_t *d, const bt_drawn_from_t *from)
{
    const uint32_t first =
        bt_sampler_counts_from(from->sampling, from->n_prompt);

    for (uint32_t i = 0; i < from->n_tokens; i++) {
        bt_draw_edit_t *edit;

        if (from->tokens[i] >= d->n_vocab) {
            continue;
        }
        edit = edit_of(d, from->tokens[i]);
        if (edit == NULL) {
            return false;
        }
        edit->what |= BT_EDIT_SEEN;
        edit->what += (i >= first) ? 1 : 0;
    }
    return true;
}

typedef struct bans {
    bt_drawing_t *d;
    bool ok;
} bans_t;

static void add_ban(void *ctx, uint32_t id)
{
    bans_t *const bans = ctx;
    bt_draw_edit_t *const edit = edit_of(bans->d, id);

    if (edit == NULL) {
        bans->ok = false;
    } else {
        edit->what |= BT_EDIT_BAN;
    }
}

/* True when processors are more than bans and another top_p. */
static bool needs_host(const bt_processor_options_t *o)
{
    return (o->dry_multiplier > 0.0f) || (o->n_ids > 0) ||
           bt_processors_filter(o);
}

bool bt_drawing_add(bt_drawing_t *d, uint32_t logit_row,
                    const bt_drawn_from_t *from)
{
    const bt_sampling_t *const s = from->sampling;
    const bt_history_t history = {.tokens = from->tokens,
                                  .n = from->n_tokens,
                                  .n_prompt = from->n_prompt};
    const uint32_t first = d->n_edits;
    bans_t bans = {.d = d, .ok = d->n_draws < d->max_each};

    if (needs_host(&s->processors)) {
        return false;
    }

    if (from->is_biased) {
        bans.ok = bans.ok && add_biases(d, s);
    }
    if (bt_sampler_penalizes(s)) {
        bans.ok = bans.ok && add_history(d, from);
    }
    bt_sampler_bans(s, d->n_vocab, &history, add_ban, &bans);
    for (uint32_t i = first; i < d->n_edits; i++) {
        d->slots[d->edits[i].id] = 0;
    }
    if (!bans.ok) {
        d->n_edits = first;
        return false;
    }
    d->draws[d->n_draws++] = (bt_draw_t){
        .logit_row = logit_row,
        .first_edit = first,
        .n_edits = d->n_edits - first,
        .top_k = s->top_k,
        .temperature = s->temperature,
        .top_p = bt_processors_top_p(s, &history),
        .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .position = from->n_tokens,
        .seed_low = (uint32_t)s->seed,
        .seed_high = (uint32_t)(s->seed >> 32),
    };
    return true;
}

bool bt_drawing_score(bt_drawing_t *d, const bt_scoring_t *scoring,
                      uint32_t n_top)
{
    if ((d->n_scorings == d->max_each) || (n_top > BT_MAX_TOP_LOGPROBS)) {
        return false;
    }
    d->scorings[d->n_scorings++] = *scoring;
    d->n_top = (n_top > d->n_top) ? n_top : d->n_top;
    return true;
}

void bt_drawing_cut(bt_drawing_t *d, uint32_t n_draws, uint32_t n_scorings)
{
    if (n_draws < d->n_draws) {
        d->n_edits = d->draws[n_draws].first_edit;
    }
    d->n_draws = n_draws;
    d->n_scorings = n_scorings;
}

/* Draws and scores on a back end with memory of its own after a forward pass
 * (drawing.h), and their copy to the host: ids, at an even offset scores, and
 * the best of the scored rows are contiguous, and come in one copy. */

/* Most candidates of a scored row; a power of two. */
#define TOP_MAX 32u
_Static_assert((TOP_MAX >= BT_MAX_TOP_LOGPROBS) && (TOP_MAX <= BT_TOP_MAX),
               "what a score may need can be found");

#define SCORED_WORDS (sizeof(bt_scored_t) / sizeof(uint32_t))

bool bt_drawn_by(const bt_backend_t *be, bool is_shared)
{
    return bt_backend_owns_memory(be) && !is_shared &&
           (be->ops->draw != NULL) && (be->ops->score != NULL) &&
           (be->ops->top != NULL);
}

bool bt_model_draws(const bt_model_t *model)
{
    return bt_drawn_by(model->be, model->ranks != NULL);
}

size_t bt_drawn_words(size_t rows)
{
    return rows * (2 + SCORED_WORDS + (size_t)2 * TOP_MAX);
}

bt_batch_t bt_model_batch(const bt_forward_t *fwd)
{
    const bt_drawing_t *const drawing = fwd->drawing;
    bt_batch_t batch = {
        .tokens = fwd->tokens,
        .seqs = fwd->seqs,
        .logit_rows = fwd->logit_rows,
        .n_rows = fwd->n_rows,
        .n_seqs = fwd->n_seqs,
        .n_logit_rows = fwd->n_logit_rows,
        .tokens_per_block = (fwd->groups == NULL)
                                ? fwd->kv.tokens_per_block
                                : fwd->groups->tokens_per_block,
        .n_other_groups = (fwd->groups == NULL) ? 0 : fwd->groups->n - 1,
        .from_ids = fwd->from_ids,
    };

    if (drawing != NULL) {
        batch.draws = drawing->draws;
        batch.edits = drawing->edits;
        batch.scorings = drawing->scorings;
        batch.n_draws = drawing->n_draws;
        batch.n_edits = drawing->n_edits;
        batch.n_scorings = drawing->n_scorings;
    }
    return batch;
}

bool bt_drawn_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_drawing_t *const d = fwd->drawing;

    if ((d == NULL) || ((d->n_draws == 0) && (d->n_scorings == 0))) {
        return true;
    }
    if (!bt_model_draws(model)) {
        return false;
    }
    for (uint32_t i = 0; i < d->n_draws; i++) {
        if (d->draws[i].logit_row >= fwd->n_logit_rows) {
            return false;
        }
    }
    for (uint32_t i = 0; i < d->n_scorings; i++) {
        const bt_scoring_t *const s = &d->scorings[i];

        if ((s->logit_row >= fwd->n_logit_rows) ||
            ((s->draw == BT_SCORING_NO_DRAW) ? (s->id >= model->hp.n_vocab)
                                             : (s->draw >= d->n_draws))) {
            return false;
        }
    }
    return d->n_vocab == model->hp.n_vocab;
}

/* Layout of draws and scores, in words. */
typedef struct drawn_at {
    size_t scored;
    size_t top_ids;
    size_t top_logits;
    size_t end;
    uint32_t first_row; /* logit rows whose best candidates are found */
    uint32_t n_rows;
    uint32_t k; /* candidates of each row */
} drawn_at_t;

/* @a k is a power of two, so that steps that ask for nearly equal numbers make
 * identical calls, and a back end can reuse what it captured for them. */
static drawn_at_t lay_drawn(const bt_drawing_t *d)
{
    drawn_at_t at = {.scored = ((size_t)d->n_draws + 1) / 2 * 2};
    uint32_t end = 0;

    at.first_row = UINT32_MAX;
    for (uint32_t i = 0; (d->n_top > 0) && (i < d->n_scorings); i++) {
        const uint32_t row = d->scorings[i].logit_row;

        at.first_row = (row < at.first_row) ? row : at.first_row;
        end = (row >= end) ? row + 1 : end;
    }
    at.n_rows = (end > 0) ? end - at.first_row : 0;
    at.k = (d->n_top > 0) ? 1 : 0;
    while (at.k < d->n_top) {
        at.k *= 2;
    }
    at.top_ids = at.scored + SCORED_WORDS * d->n_scorings;
    at.top_logits = at.top_ids + (size_t)at.n_rows * at.k;
    at.end = at.top_logits + (size_t)at.n_rows * at.k;
    return at;
}

/* Queues the draws, and the scorings of the unedited rows. */
static void ask_at(bt_model_t *model, const bt_forward_t *fwd,
                   const drawn_at_t *at)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_batch_t batch = bt_model_batch(fwd);
    const uint32_t n_vocab = model->hp.n_vocab;
    uint32_t *const words = model->drawn;

    if (batch.n_draws > 0) {
        ops->draw(model->be, model->logits, &batch, n_vocab, words);
    }
    if (batch.n_scorings > 0) {
        ops->score(model->be, model->logits, &batch, n_vocab, words,
                   (bt_scored_t *)(void *)(words + at->scored));
    }
    if (at->n_rows > 0) {
        ops->top(model->be, model->logits + (size_t)at->first_row * n_vocab,
                 at->n_rows, n_vocab, at->k, words + at->top_ids,
                 (float *)(void *)(words + at->top_logits));
    }
}

void bt_drawn_ask(bt_model_t *model, const bt_forward_t *fwd)
{
    const drawn_at_t at = lay_drawn(fwd->drawing);

    ask_at(model, fwd, &at);
}

/* Copies all results at once; and rows whose sum says that a logit is NaN or
 * infinite. */
static bt_status_t take_drawn(bt_model_t *model, const bt_forward_t *fwd,
                              const drawn_at_t *at)
{
    const uint32_t *const words = model->host_drawn;
    bt_drawing_t *const d = fwd->drawing;
    bt_status_t status = model->be->ops->copy_out(
        model->be, model->host_drawn, model->drawn, at->end * sizeof(*words));

    if (status == BT_OK) {
        memcpy(d->ids, words, d->n_draws * sizeof(*words));
        memcpy(d->scored, words + at->scored,
               d->n_scorings * sizeof(*d->scored));
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < d->n_scorings); i++) {
        const uint32_t row = d->scorings[i].logit_row;

        if (at->n_rows > 0) {
            const size_t from = (size_t)(row - at->first_row) * at->k;

            d->tops[i] = (bt_first_t){
                .ids = words + at->top_ids + from,
                .logits =
                    (const float *)(const void *)(words + at->top_logits) +
                    from,
                .n = at->k};
        }
        if (!isfinite(d->scored[i].sum)) {
            status = bt_model_fetch_logits(model, row, 1);
        }
    }
    return status;
}

bt_status_t bt_drawn_results(bt_model_t *model, const bt_forward_t *fwd)
{
    const drawn_at_t at =
        (fwd->drawing != NULL) ? lay_drawn(fwd->drawing) : (drawn_at_t){0};

    if (at.end == 0) {
        return BT_OK;
    }
    ask_at(model, fwd, &at);
    return take_drawn(model, fwd, &at);
}
