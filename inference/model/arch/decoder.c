/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of a dense decoder: family.h. */
#include "inference/model/arch/decoder.h"

/* x += Wdown (silu(Wgate norm(x)) * Wup norm(x)); next is read after that. */
static void feed_forward(bt_model_t *model, const bt_forward_t *fwd,
                         const bt_layer_t *layer, float *x, uint32_t n_rows,
                         const bt_weight_t *next)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_norm_t norm = {layer->ffn_norm, hp->norm_eps, hp->dim};

    bt_step_norm_linear(model->be, &layer->gate_up, d->part, x, &norm, n_rows,
                        layer->ffn_down, d->a, d->b);
    bt_model_got_on(fwd);
    bt_step_ahead(model->be, next);
    bt_step_silu_matmul_add(model->be, layer->ffn_down, d->b, n_rows,
                            hp->ffn_dim, hp->dim, d->a, x);
    bt_model_got_on(fwd);
}

/* K and V of a layer's rows into the cache; their queries stay in d->b. */
static void store_kv(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_batch_t *batch, uint32_t i, const float *x)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_layer_t *const layer = &d->layers[i];
    const bt_norm_t norm = {layer->attn_norm, hp->norm_eps, hp->dim};
    const bt_rotation_t rotation = {.cos_sin = d->cos_sin,
                                    .dims = hp->rope.dims,
                                    .interleaved =
                                        !model->arch->family->pairs_apart};
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    bt_step_norm_linear(model->be, &layer->qkv, d->part, x, &norm,
                        batch->n_rows, layer->attn_output, d->a, d->b);
    bt_model_got_on(fwd);
    model->be->ops->rope_store(model->be, d->b, hp->n_heads, &rotation, batch,
                               &kv, index);
}

/* Heads (n_rows, n_heads * head_dim) of what store_kv() left: d->a. */
static void attend(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, uint32_t i)
{
    const bt_decoder_t *const d = model->state;
    bt_attention_t attention = bt_hparams_attention(&model->hp);
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    attention.sinks = d->layers[i].attn_sinks;
    model->be->ops->attention(model->be, &attention, d->b, batch, &kv, index,
                              d->a);
    bt_model_got_on(fwd);
}

/* x of a layer from its heads; tmp is d->a or b, whichever heads is not. */
static void finish_layer(bt_model_t *model, const bt_forward_t *fwd, uint32_t i,
                         const float *heads, uint32_t n_rows, float *tmp,
                         float *x)
{
    const bt_decoder_t *const d = model->state;
    const bt_layer_t *const layer = &d->layers[i];
    const bt_weight_t *const output =
        (d->output != NULL) ? d->output : d->embedding;

    bt_step_ahead(model->be, layer->gate_up.weights[0]);
    bt_step_matmul_add(model->be, layer->attn_output, heads, n_rows,
                       model->hp.dim, tmp, x);
    bt_model_got_on(fwd);
    feed_forward(model, fwd, layer, x, n_rows,
                 (i + 1 < d->n_layers) ? layer[1].qkv.weights[0] : output);
}

/* Rows that came in when n_layers were done, through these. */
static void catch_up(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_model_late_t *late, uint32_t n_layers)
{
    const bt_decoder_t *const d = model->state;
    float *const x = d->x + (size_t)late->row * model->hp.dim;

    model->be->ops->embed(model->be, d->embedding, &late->batch, x);
    for (uint32_t i = 0; i < n_layers; i++) {
        store_kv(model, fwd, &late->batch, i, x);
        attend(model, fwd, &late->batch, i);
        finish_layer(model, fwd, i, d->a, late->batch.n_rows, d->b, x);
    }
}

void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch, bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_norm_t out_norm = {d->output_norm, hp->norm_eps, hp->dim};
    const bt_weight_t *const output =
        (d->output != NULL) ? d->output : d->embedding;
    const uint32_t last = d->n_layers - 1;
    bt_backend_t *const be = model->be;
    bt_model_late_t late;

    ops->embed(be, d->embedding, batch, d->x);
    for (uint32_t i = 0; i < last; i++) {
        store_kv(model, fwd, batch, i, d->x);
        bt_model_layers_stored(model, fwd, i + 1);
        attend(model, fwd, batch, i);
        finish_layer(model, fwd, i, d->a, batch->n_rows, d->b, d->x);
        if (bt_model_take_late(model, fwd, i + 1, batch, &late)) {
            catch_up(model, fwd, &late, i + 1);
        }
    }
    store_kv(model, fwd, batch, last, d->x);
    bt_model_layers_stored(model, fwd, last + 1);
    if (batch->n_logit_rows == 0) {
        return; /* the cache is all that was asked for */
    }
    attend(model, fwd, batch, last);
    /* From here on only the rows with logits matter. */
    ops->gather_rows(be, d->x, batch, hp->dim, d->x_last);
    ops->gather_rows(be, d->a, batch, hp->n_heads * hp->head_dim, d->b);
    finish_layer(model, fwd, last, d->b, batch->n_logit_rows, d->a, d->x_last);
    bt_step_norm_matmul(be, output, d->x_last, &out_norm, batch->n_logit_rows,
                        d->a, model->logits);
}
