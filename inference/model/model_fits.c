/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a cache and a call fit a model. */
#include <stdio.h>

#include "inference/model/model.h"
#include "inference/model/model_priv.h"

/* Checks sequences: rows contiguous from 0, positions inside the table. */
static bool seqs_fit(const bt_model_t *model, const bt_forward_t *fwd)
{
    uint32_t row = 0;

    for (uint32_t i = 0; i < fwd->n_seqs; i++) {
        const bt_ragged_seq_t *const seq = &fwd->seqs[i];

        if ((seq->row != row) || (seq->n_rows == 0) ||
            (seq->n_rows > fwd->n_rows - row) ||
            (seq->pos > model->config.context_tokens) ||
            (seq->n_rows > model->config.context_tokens - seq->pos)) {
            return false;
        }
        row += seq->n_rows;
    }
    return row == fwd->n_rows;
}

/* The KV cache view of one layer group, over the pages of kv. */
static bt_kv_view_t group_view(const bt_kv_view_t *kv,
                               const bt_kv_groups_t *groups, uint32_t group)
{
    const bt_kv_shape_t *const shape = &groups->group[group].shape;
    bt_kv_view_t view = *kv;

    view.n_layers = shape->n_layers;
    view.n_kv_heads = shape->n_kv_heads;
    view.head_dim = shape->head_dim;
    view.tokens_per_block = shape->tokens_per_block;
    view.n_other_groups = groups->n - 1;
    view.group = group;
    return view;
}

/* Checks that the layer's group keeps all positions that the layer reads. */
static bt_status_t check_layer(const bt_hparams_t *hp, uint32_t layer,
                               const bt_kv_group_t *group, char *why,
                               size_t why_bytes)
{
    const uint32_t sees = bt_hparams_attention(hp, layer).window;
    const uint32_t kept = group->window_tokens;

    if ((kept != 0) && ((sees == 0) || (sees > kept))) {
        if (sees == 0) {
            snprintf(why, why_bytes,
                     "layer %u sees all tokens, and its KV group keeps %u",
                     layer, kept);
        } else {
            snprintf(why, why_bytes,
                     "layer %u sees %u tokens, and its KV group keeps %u",
                     layer, sees, kept);
        }
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

static bt_status_t check_group(const bt_hparams_t *hp,
                               const bt_kv_groups_t *groups, uint32_t g,
                               char *why, size_t why_bytes)
{
    const bt_kv_group_t *const group = &groups->group[g];

    if (group->kind != BT_KV_PAGED) {
        snprintf(why, why_bytes,
                 "KV group %u keeps a state of fixed size, which no "
                 "architecture here computes",
                 g);
        return BT_ERR_UNSUPPORTED;
    }
    if ((group->shape.n_kv_heads != hp->n_kv_heads) ||
        (group->shape.head_dim != hp->head_dim)) {
        snprintf(why, why_bytes,
                 "KV group %u has %u heads of %u dimensions, the model %u "
                 "of %u",
                 g, group->shape.n_kv_heads, group->shape.head_dim,
                 hp->n_kv_heads, hp->head_dim);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_model_check_groups(const bt_model_t *model,
                                  const bt_kv_groups_t *groups, char *why,
                                  size_t why_bytes)
{
    const bt_hparams_t *const hp = &model->own;
    bt_status_t status = BT_OK;

    if (groups->n_layers != hp->n_layers) {
        snprintf(why, why_bytes, "the model has %u layers and its KV %u",
                 hp->n_layers, groups->n_layers);
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t g = 0; (status == BT_OK) && (g < groups->n); g++) {
        status = check_group(&model->own, groups, g, why, why_bytes);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < hp->n_layers); i++) {
        status = check_layer(hp, i,
                             &groups->group[bt_kv_layer_slot(groups, i).group],
                             why, why_bytes);
    }
    return status;
}

/* True when this is a cache of this many of the model's layers. */
static bool view_fits(const bt_model_t *model, const bt_kv_view_t *kv,
                      uint32_t n_layers)
{
    const uint32_t t = model->config.tokens_per_block;
    char why[1];

    return (kv->n_layers == n_layers) &&
           (kv->n_kv_heads == model->own.n_kv_heads) &&
           (kv->head_dim == model->hp.head_dim) &&
           ((t == 0) || (kv->tokens_per_block == t)) &&
           (bt_kernels_check_kv(model->be->caps, kv, why, sizeof(why)) ==
            BT_OK);
}

static bool cache_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kv_groups_t *const groups = fwd->groups;
    char why[1];

    if (groups == NULL) {
        return view_fits(model, &fwd->kv, model->own.n_layers);
    }
    if ((groups->n - 1 > model->config.n_other_groups) ||
        (groups->page_bytes > fwd->kv.block_bytes) ||
        (bt_model_check_groups(model, groups, why, sizeof(why)) != BT_OK)) {
        return false;
    }
    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_view_t view = group_view(&fwd->kv, groups, g);

        if ((view.n_layers > 0) && /* else no layer of this stage is in it */
            !view_fits(model, &view, groups->group[g].shape.n_layers)) {
            return false;
        }
    }
    return true;
}

bt_kv_view_t bt_model_layer_view(const bt_forward_t *fwd, uint32_t layer,
                                 uint32_t *index_p)
{
    bt_kv_layer_slot_t slot;

    if (fwd->groups == NULL) {
        *index_p = layer;
        return fwd->kv;
    }
    slot = bt_kv_layer_slot(fwd->groups, layer);
    *index_p = slot.index;
    return group_view(&fwd->kv, fwd->groups, slot.group);
}

/* Checks hidden states that the call is given, and those that it gives. */
static bool hidden_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_taps_t *const taps = fwd->taps;
    const bool is_head = model->hp.head.kind != BT_HEAD_NONE;

    if ((fwd->hidden != NULL) != is_head) {
        return false;
    }
    if (taps == NULL) {
        return true;
    }
    if (!bt_model_taps(model) || (taps->hidden == NULL) ||
        (taps->n > BT_MODEL_MAX_TAPS)) {
        return false;
    }
    for (uint32_t i = 0; i < taps->n; i++) {
        if (taps->layers[i] > model->hp.n_layers) {
            return false;
        }
    }
    return true;
}

/* Checks the ids of rows of which only their logits are wanted. */
static bool ids_fit(const bt_model_t *model, const bt_forward_t *fwd)
{
    const uint32_t *const first = fwd->first_ids;
    bool any = false;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        any = any || bt_model_wants_ids(fwd, i);
    }
    if (!any) {
        return true;
    }
    if (!bt_model_computes_ids(model) || (first == NULL) ||
        (fwd->ids == NULL) || (first[0] != 0)) {
        return false;
    }
    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        const uint32_t most = bt_model_wants_ids(fwd, i) ? BT_MODEL_MAX_IDS : 0;

        if ((first[i + 1] < first[i]) || (first[i + 1] - first[i] > most)) {
            return false;
        }
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            if ((fwd->ids[k] >= model->hp.n_vocab) ||
                ((k > first[i]) && (fwd->ids[k] <= fwd->ids[k - 1]))) {
                return false;
            }
        }
    }
    return true;
}

/* Checks that each row has a token, or an embedding of the caller's, which
 * ranks other than the first are not given. */
static bool tokens_fit(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bool follows =
        (model->ranks != NULL) && (model->config.host_coll->rank != 0);
    const bool takes_rows =
        bt_model_takes_rows(model) && (follows || (fwd->embeddings != NULL));

    for (uint32_t i = 0; i < fwd->n_rows; i++) {
        const bool has_row =
            takes_rows && (follows || (fwd->embeddings[i] != NULL));

        if ((fwd->tokens[i] >= model->hp.n_words) &&
            ((fwd->tokens[i] != BT_NO_TOKEN) || !has_row)) {
            return false;
        }
    }
    return true;
}

bool bt_model_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_model_config_t *const c = &model->config;

    if ((fwd->n_rows == 0) || (fwd->first_row > c->max_rows) ||
        (fwd->n_rows > c->max_rows - fwd->first_row) ||
        (fwd->n_logit_rows > c->max_logit_rows) || (fwd->kv.base == NULL) ||
        ((c->max_seqs != 0) && (fwd->n_seqs > c->max_seqs)) ||
        !hidden_fits(model, fwd) || !cache_fits(model, fwd)) {
        return false;
    }
    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if ((fwd->logit_rows[i] >= fwd->n_rows) ||
            ((model->shard.n_stages > 1) && (i > 0) &&
             (fwd->logit_rows[i] < fwd->logit_rows[i - 1]))) {
            return false;
        }
    }
    return ids_fit(model, fwd) && bt_ahead_fits(model, fwd) &&
           tokens_fit(model, fwd) && seqs_fit(model, fwd) &&
           bt_drawn_fits(model, fwd);
}
