/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/model.h"

#include "common/base/status.h"
#include "inference/model/arch/family.h"
#include "inference/model/model_priv.h"
#include "inference/model/ranks.h"

const bt_hparams_t *bt_model_hparams(const bt_model_t *model)
{
    return &model->hp;
}

bt_weight_source_t bt_model_weight_source(const bt_model_t *model)
{
    return model->weight_source;
}

uint64_t bt_model_lent_ns(const bt_model_t *model)
{
    bt_lent_stats_t lent = {0};

    if (model->be->ops->lent_stats != NULL) {
        model->be->ops->lent_stats(model->be, &lent);
    }
    return lent.saved_ns;
}

bool bt_model_taps(const bt_model_t *model)
{
    return (model->ranks == NULL) && (model->shard.n_parts == 1) &&
           (model->be->ops->batch_begin == NULL);
}

bool bt_model_takes_rows(const bt_model_t *model)
{
    return (model->be->ops->batch_begin == NULL) &&
           (model->hp.head.kind == BT_HEAD_NONE);
}

bool bt_model_computes_ids(const bt_model_t *model)
{
    return model->some_logits != NULL;
}

void bt_model_layers_stored(const bt_model_t *model, const bt_forward_t *fwd,
                            uint32_t n_layers)
{
    /* Another rank may be behind by one layer, since the last sum. */
    const uint32_t n = (model->ranks == NULL) ? n_layers : n_layers - 1;

    if ((fwd->on_layers != NULL) && !model->be->caps->runs_ahead && (n > 0)) {
        fwd->on_layers(fwd->on_layers_ctx, n);
    }
}

/* True for the rank that sends orders to others. */
static bool leads(const bt_model_t *model)
{
    return (model->ranks != NULL) && (model->config.host_coll->rank == 0);
}

bool bt_model_take_late(const bt_model_t *model, bt_forward_t *fwd,
                        uint32_t n_layers, bt_batch_t *batch,
                        bt_model_late_t *late_p)
{
    uint32_t n;

    if ((fwd->take_late == NULL) || (model->be->ops->batch_begin != NULL)) {
        return false;
    }
    n = fwd->take_late(fwd->take_late_ctx, n_layers);
    if (n == 0) {
        return false;
    }
    if (leads(model)) {
        bt_ranks_tell_late(model->ranks, fwd, n);
    }
    late_p->row = fwd->n_rows;
    late_p->batch = *batch;
    late_p->batch.tokens = fwd->tokens + fwd->n_rows;
    late_p->batch.seqs = late_p->seqs;
    late_p->batch.n_rows = late_p->batch.n_seqs = n;
    late_p->batch.n_logit_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        late_p->seqs[i] = fwd->seqs[fwd->n_seqs + i];
        late_p->seqs[i].row = i;
    }
    fwd->n_rows += n;
    fwd->n_seqs += n;
    fwd->n_logit_rows += n;
    BT_ASSERT(bt_model_fits(model, fwd));
    batch->n_rows = fwd->n_rows;
    batch->n_seqs = fwd->n_seqs;
    batch->n_logit_rows = fwd->n_logit_rows;
    return true;
}

void bt_model_between_layers(const bt_model_t *model, const bt_forward_t *fwd,
                             uint32_t n_layers)
{
    if ((fwd->between_layers != NULL) && (fwd->first_row == 0) &&
        (model->be->ops->batch_begin == NULL)) {
        fwd->between_layers(fwd->between_layers_ctx, n_layers);
    }
    if (leads(model) && bt_ranks_talks_between(model->ranks, fwd)) {
        bt_ranks_tell_go_on(model->ranks);
    }
}

bt_status_t bt_model_begin(bt_model_t *model, const bt_batch_t *batch)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    bt_batch_t own = *batch;
    bt_status_t status;

    if (ops->batch_begin == NULL) {
        return BT_OK;
    }
    if (bt_shard_is_first(&model->shard) && (model->shard.size > 1)) {
        own = bt_ranks_own_words(model->ranks, &model->shard, batch);
    }
    status = ops->batch_begin(model->be, &own);
    if ((status == BT_OK) && (batch->from_ids != NULL)) {
        ops->take_tokens(model->be, batch, model->ahead.ids);
    }
    if ((status != BT_OK) && (model->ranks != NULL)) {
        bt_ranks_fail(model->ranks, status); /* others go on without us */
    }
    return status;
}

bt_status_t bt_model_run_layers(bt_model_t *model, const bt_forward_t *fwd,
                                bt_forward_t *whole)
{
    bt_batch_t batch = bt_model_batch(fwd);
    bt_status_t status = BT_OK;

    *whole = *fwd;
    if (!bt_model_fits(model, fwd)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (leads(model)) {
        /* Within a call of the draft model the ranks listen to it already. */
        if ((model->config.target != NULL) && (fwd->first_row == 0)) {
            bt_ranks_tell_draft(model->config.target->ranks);
        }
        bt_ranks_tell_step(model->ranks, fwd);
    }
    if (model->shard.n_stages == 1) { /* else each microbatch is one */
        status = bt_model_begin(model, &batch);
        if (status != BT_OK) {
            return status;
        }
    }
    bt_decoder_forward(model, &batch, whole);
    return BT_OK;
}

/* Completes a call whose results are in host memory. */
static float *done(const bt_model_t *model, const bt_forward_t *fwd,
                   uint32_t n_logit_rows)
{
    if ((model->ranks != NULL) && (fwd->on_layers != NULL)) {
        fwd->on_layers(fwd->on_layers_ctx, model->hp.n_layers);
    }
    return (n_logit_rows == 0)            ? NULL
           : (model->host_logits != NULL) ? model->host_logits
                                          : model->logits;
}

bt_status_t bt_model_forward(bt_model_t *model, const bt_forward_t *fwd,
                             float **logits_p)
{
    bt_forward_t whole;
    bt_status_t status;

    if (bt_model_takes_results(model)) {
        if (bt_ranks_n_started(model->ranks) > 0) {
            return BT_ERR_INVALID_PARAM;
        }
        status = bt_model_start(model, fwd);
        return (status == BT_OK) ? bt_model_finish(model, fwd, logits_p)
                                 : status;
    }
    if (model->ahead.n > 0) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_model_run_layers(model, fwd, &whole);
    if (status == BT_OK) {
        status = bt_model_results(model, &whole);
    }
    if (status == BT_OK) {
        *logits_p = done(model, fwd, whole.n_logit_rows);
    }
    return status;
}

/* ---- several calls in flight ---- */

bool bt_model_takes_results(const bt_model_t *model)
{
    return (model->ranks != NULL) && (bt_ranks_max_started(model->ranks) > 0);
}

uint32_t bt_model_max_started(const bt_model_t *model)
{
    /* A back end that takes its tables at the beginning has one set of them. */
    return bt_model_chains(model) ? BT_AHEAD_MAX
           : (bt_model_takes_results(model) &&
              (model->be->ops->batch_begin == NULL))
               ? bt_ranks_max_started(model->ranks)
               : 1;
}

uint32_t bt_model_least_rows(const bt_model_t *model)
{
    return bt_micro_least(model->config.micro_rows);
}

bt_status_t bt_model_start(bt_model_t *model, const bt_forward_t *fwd)
{
    bt_forward_t whole;
    bt_status_t status;

    if (bt_model_chains(model)) {
        return bt_ahead_start(model, fwd);
    }
    if (!bt_model_takes_results(model) ||
        (bt_ranks_n_started(model->ranks) == bt_model_max_started(model))) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_model_run_layers(model, fwd, &whole);
    if (status == BT_OK) {
        bt_ranks_expect(model->ranks, model, fwd);
        status = bt_ranks_status(model->ranks);
    }
    return status;
}

bt_status_t bt_model_finish(bt_model_t *model, const bt_forward_t *fwd,
                            float **logits_p)
{
    bt_status_t status;

    if ((model->ahead.n == 0) && (!bt_model_takes_results(model) ||
                                  (bt_ranks_n_started(model->ranks) == 0))) {
        return BT_ERR_INVALID_PARAM;
    }
    status = (model->ahead.n > 0) ? bt_ahead_finish(model, fwd)
                                  : bt_model_collect(model, fwd);
    if (status == BT_OK) {
        *logits_p = done(model, fwd, fwd->n_logit_rows);
    }
    return status;
}

void bt_model_copy_block(bt_model_t *model, const bt_kv_view_t *kv,
                         uint32_t from, uint32_t to)
{
    uint8_t *const dst = (uint8_t *)kv->base + to * kv->block_bytes;
    const void *const src = (uint8_t *)kv->base + from * kv->block_bytes;
    const uint32_t n = (uint32_t)(kv->block_bytes / sizeof(float));

    if (leads(model)) {
        bt_ranks_tell_copy(model->ranks, from, to);
    }
    /* A block is a whole number of floats: K and V, and an even number of
     * slots, each of a whole number of elements or scales. */
    model->be->ops->copy_columns(model->be, src, 1, n, (float *)(void *)dst, n,
                                 0);
}

void bt_model_clear_block(bt_model_t *model, const bt_kv_view_t *kv,
                          uint32_t id)
{
    if (leads(model)) {
        bt_ranks_tell_clear(model->ranks, id);
    }
    model->be->ops->clear(model->be, (uint8_t *)kv->base + id * kv->block_bytes,
                          kv->block_bytes);
}

bt_status_t bt_hparams_read(const bt_gguf_t *gguf, char *why, size_t why_bytes,
                            bt_hparams_t *hp_p)
{
    const bt_family_t *family;
    bt_gguf_str_t name;
    const bt_status_t status =
        bt_gguf_architecture(gguf, why, why_bytes, &name);

    if (status != BT_OK) {
        return status;
    }
    family = bt_family_find(name);
    BT_ASSERT(family != NULL); /* each architecture has one */
    return bt_decoder_hparams(family, gguf, why, why_bytes, hp_p);
}

bt_attention_t bt_hparams_attention(const bt_hparams_t *hp, uint32_t layer)
{
    return (bt_attention_t){
        .n_heads = hp->n_heads,
        .key_dim = hp->head_dim,
        .value_dim = hp->head_dim,
        .scale = hp->attn_scale,
        .window = bt_layer_in(&hp->windowed, layer) ? hp->attn_window : 0,
        .soft_cap = hp->attn_soft_cap,
    };
}
