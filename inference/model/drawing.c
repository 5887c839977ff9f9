/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/drawing.h"

#include "common/base/alloc.h"
#include "inference/model/sampler_steps.h"
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
    d->places = bt_calloc(n_vocab, sizeof(*d->places));
    d->ids = bt_calloc(max_each, sizeof(*d->ids));
    d->scored = bt_calloc(max_each, sizeof(*d->scored));
    d->tops = bt_calloc(max_each, sizeof(*d->tops));
    if ((d->draws == NULL) || (d->edits == NULL) || (d->scorings == NULL) ||
        (d->places == NULL) || (d->ids == NULL) || (d->scored == NULL) ||
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
    bt_free(d->places);
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
    if (d->places[id] == 0) {
        if (d->n_edits == BT_DRAWING_EDITS) {
            return NULL;
        }
        d->edits[d->n_edits++] = (bt_draw_edit_t){.id = id};
        d->places[id] = d->n_edits;
    }
    return &d->edits[d->places[id] - 1];
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
        edit->what += (i >= from->n_prompt) ? 1 : 0;
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

bool bt_drawing_add(bt_drawing_t *d, uint32_t logit_row,
                    const bt_drawn_from_t *from)
{
    const bt_sampling_t *const s = from->sampling;
    const uint32_t first = d->n_edits;
    bans_t bans = {.d = d, .ok = d->n_draws < d->max_each};

    if (from->is_biased) {
        bans.ok = bans.ok && add_biases(d, s);
    }
    if (bt_sampler_penalizes(s)) {
        bans.ok = bans.ok && add_history(d, from);
    }
    bt_sampler_bans(s, d->n_vocab, from->tokens, from->n_tokens, from->n_prompt,
                    add_ban, &bans);
    for (uint32_t i = first; i < d->n_edits; i++) {
        d->places[d->edits[i].id] = 0;
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
        .top_p = s->top_p,
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
