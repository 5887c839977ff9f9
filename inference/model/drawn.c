/* SPDX-License-Identifier: Apache-2.0 */
/* Draws and scores on a back end with memory of its own after a forward pass
 * (drawing.h), and their copy to the host: ids, at an even offset scores, and
 * the best of the scored rows are contiguous, and come in one copy. */
#include <math.h>
#include <string.h>

#include "inference/model/drawing.h"
#include "inference/model/model_priv.h"

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
