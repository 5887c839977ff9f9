/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of a dense decoder: family.h. */
#include "inference/model/arch/decoder.h"

static bt_norm_t norm_of(const bt_model_t *model,
                         const bt_norm_weights_t *weights)
{
    return (bt_norm_t){.weight = weights->weight,
                       .bias = weights->bias,
                       .eps = model->hp.norm_eps,
                       .dim = model->hp.dim,
                       .layer = model->arch->family->layer_norm};
}

/* What x begins with. */
static void embed(bt_model_t *model, const bt_batch_t *batch, float *x)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_hparams_t *const hp = &model->hp;
    const bt_norm_t norm = norm_of(model, &d->embedding_norm);

    ops->embed(model->be, d->embedding, batch, x);
    if (hp->embedding_scale != 1.0f) {
        ops->scale(model->be, x, hp->embedding_scale,
                   (size_t)batch->n_rows * hp->dim);
    }
    if (d->positions != NULL) {
        ops->add_positions(model->be, d->positions, batch, x);
    }
    if (norm.weight != NULL) {
        bt_step_norm(model->be, x, &norm, batch->n_rows, x);
    }
}

static void add_bias(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim)
{
    if (bias != NULL) {
        be->ops->add_bias(be, x, bias, n_rows, dim);
    }
}

/* Is all that becomes of a matrix's product that it is added to x? */
static bool only_adds(const bt_model_t *model, const float *bias,
                      const bt_norm_weights_t *after)
{
    return (bias == NULL) && (after->weight == NULL) &&
           (model->hp.residual_scale == 1.0f);
}

/* x += scale * norm(W in + bias); tmp (n_rows, dim). */
static void add_output(bt_model_t *model, const bt_weight_t *w,
                       const float *bias, const bt_norm_weights_t *after,
                       const float *in, uint32_t n_rows, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_norm_t norm = norm_of(model, after);
    const uint32_t dim = model->hp.dim;
    const size_t n = (size_t)n_rows * dim;

    if (only_adds(model, bias, after)) {
        bt_step_matmul_add(model->be, w, in, n_rows, dim, tmp, x);
        return;
    }
    ops->matmul(model->be, w, in, n_rows, tmp);
    add_bias(model->be, tmp, bias, n_rows, dim);
    if (norm.weight != NULL) {
        bt_step_norm(model->be, tmp, &norm, n_rows, tmp);
    }
    if (model->hp.residual_scale != 1.0f) {
        ops->scale(model->be, tmp, model->hp.residual_scale, n);
    }
    ops->add(model->be, x, tmp, n);
}

/* The product in d->b, activated, times the second matrix, to x. */
static void add_activated(bt_model_t *model, const bt_layer_t *layer,
                          uint32_t n_rows, float *x)
{
    const bt_family_t *const family = model->arch->family;
    const bt_decoder_t *const d = model->state;
    const uint32_t ffn_dim = model->hp.ffn_dim;

    if (!family->plain_ffn && (family->act == BT_ACT_SILU) &&
        only_adds(model, layer->ffn_down_bias, &layer->ffn_post_norm)) {
        bt_step_silu_matmul_add(model->be, layer->ffn_down, d->b, n_rows,
                                ffn_dim, model->hp.dim, d->a, x);
        return;
    }
    model->be->ops->activate(model->be, family->act, !family->plain_ffn, d->b,
                             n_rows, ffn_dim, d->a);
    add_output(model, layer->ffn_down, layer->ffn_down_bias,
               &layer->ffn_post_norm, d->a, n_rows, d->b, x);
}

/* x += feed-forward of x, or in parallel of what was kept in d->c; next is read
 * after that. */
static void feed_forward(bt_model_t *model, const bt_forward_t *fwd,
                         const bt_layer_t *layer, float *x, uint32_t n_rows,
                         const bt_weight_t *next)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_norm_weights_t nothing = {0};
    const bt_norm_t norm =
        norm_of(model, hp->parallel ? &nothing : &layer->ffn_norm);

    bt_step_norm_linear(model->be, &layer->up, d->part, hp->parallel ? d->c : x,
                        &norm, n_rows, layer->ffn_down, d->a, d->b);
    add_bias(model->be, d->b, layer->up_bias, n_rows,
             bt_decoder_up_dim(model->arch->family, hp));
    bt_model_got_on(fwd);
    bt_step_ahead(model->be, next);
    add_activated(model, layer, n_rows, x);
    bt_model_got_on(fwd);
}

/* Of queries and keys in d->b. */
static void norm_heads(bt_model_t *model, const bt_layer_t *layer,
                       uint32_t n_rows)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bool row = model->arch->family->qk_norm == BT_QK_NORM_ROW;
    const size_t units = hp->n_heads + 2 * (size_t)hp->n_kv_heads;
    const size_t row_floats = units * hp->head_dim;
    const uint32_t n_heads[] = {hp->n_heads, hp->n_kv_heads};
    const float *const weights[] = {layer->q_norm, layer->k_norm};
    size_t at = 0;

    for (uint32_t i = 0; (i < 2) && (layer->q_norm != NULL); i++) {
        model->be->ops->head_norm(model->be, d->b, weights[i], hp->norm_eps,
                                  n_rows, row_floats, at, row ? 1 : n_heads[i],
                                  (row ? n_heads[i] : 1) * hp->head_dim);
        at += (size_t)n_heads[i] * hp->head_dim;
    }
}

static bt_rotation_t rotation_of(const bt_model_t *model, uint32_t i)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bool own =
        bt_layer_in(&hp->windowed, i) && (d->window_cos_sin != NULL);

    if (!bt_layer_in(&hp->turned, i)) {
        return (bt_rotation_t){0};
    }
    return (bt_rotation_t){.cos_sin = own ? d->window_cos_sin : d->cos_sin,
                           .dims = hp->rope.dims,
                           .interleaved = !model->arch->family->pairs_apart};
}

/* K and V of a layer's rows into the cache; their queries stay in d->b. */
static void store_kv(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_batch_t *batch, uint32_t i, const float *x)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_layer_t *const layer = &d->layers[i];
    const bt_norm_t norm = norm_of(model, &layer->attn_norm);
    const bt_rotation_t rotation = rotation_of(model, i);
    const size_t row_floats =
        (hp->n_heads + 2 * (size_t)hp->n_kv_heads) * hp->head_dim;
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    bt_step_norm_linear(model->be, &layer->qkv, d->part, x, &norm,
                        batch->n_rows, layer->attn_output, d->a, d->b);
    add_bias(model->be, d->b, layer->qkv_bias, batch->n_rows,
             (uint32_t)row_floats);
    if (hp->clamp_qkv > 0.0f) {
        model->be->ops->clamp(model->be, d->b, hp->clamp_qkv,
                              batch->n_rows * row_floats);
    }
    norm_heads(model, layer, batch->n_rows);
    bt_model_got_on(fwd);
    model->be->ops->rope_store(model->be, d->b, hp->n_heads, &rotation, batch,
                               &kv, index);
    if (d->temperatures != NULL) {
        model->be->ops->scale_positions(model->be, d->b, d->temperatures, batch,
                                        row_floats, hp->n_heads * hp->head_dim);
    }
}

/* Heads (n_rows, n_heads * head_dim) of what store_kv() left: d->a. */
static void attend(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, uint32_t i)
{
    const bt_decoder_t *const d = model->state;
    bt_attention_t attention = bt_hparams_attention(&model->hp, i);
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    attention.sinks = d->layers[i].attn_sinks;
    attention.slopes = d->slopes;
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
    const bt_norm_t ffn_norm = norm_of(model, &layer->ffn_norm);
    const bt_weight_t *const output =
        (d->output != NULL) ? d->output : d->embedding;

    if (model->hp.parallel) {
        bt_step_norm(model->be, x, &ffn_norm, n_rows, d->c);
    }
    bt_step_ahead(model->be, layer->up.weights[0]);
    add_output(model, layer->attn_output, layer->attn_output_bias,
               &layer->attn_post_norm, heads, n_rows, tmp, x);
    bt_model_got_on(fwd);
    feed_forward(model, fwd, layer, x, n_rows,
                 (i + 1 < d->n_layers) ? layer[1].qkv.weights[0] : output);
}

/* Rows that came in when n_layers were done, through these. */
static void catch_up(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_model_late_t *late, uint32_t n_layers)
{
    const bt_decoder_t *const d = model->state;
    float *const x =
        d->x + ((size_t)fwd->first_row + late->row) * model->hp.dim;

    embed(model, &late->batch, x);
    for (uint32_t i = 0; i < n_layers; i++) {
        store_kv(model, fwd, &late->batch, i, x);
        attend(model, fwd, &late->batch, i);
        finish_layer(model, fwd, i, d->a, late->batch.n_rows, d->b, x);
    }
}

/* Of the rows in d->x_last. */
static void compute_logits(bt_model_t *model, uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const bt_norm_t norm = norm_of(model, &d->output_norm);
    const size_t n = (size_t)n_rows * hp->n_vocab;

    bt_step_norm_matmul(model->be,
                        (d->output != NULL) ? d->output : d->embedding,
                        d->x_last, &norm, n_rows, d->a, model->logits);
    add_bias(model->be, model->logits, d->output_bias, n_rows, hp->n_vocab);
    if (hp->logit_scale != 1.0f) {
        ops->scale(model->be, model->logits, hp->logit_scale, n);
    }
    if (hp->logit_soft_cap > 0.0f) {
        ops->soft_cap(model->be, model->logits, hp->logit_soft_cap, n);
    }
}

void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch, bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->hp;
    const bt_decoder_t *const d = model->state;
    const uint32_t last = d->n_layers - 1;
    float *const x = d->x + (size_t)fwd->first_row * hp->dim;
    bt_model_late_t late;

    embed(model, batch, x);
    for (uint32_t i = 0; i < last; i++) {
        store_kv(model, fwd, batch, i, x);
        bt_model_layers_stored(model, fwd, i + 1);
        attend(model, fwd, batch, i);
        finish_layer(model, fwd, i, d->a, batch->n_rows, d->b, x);
        if (bt_model_take_late(model, fwd, i + 1, batch, &late)) {
            catch_up(model, fwd, &late, i + 1);
        }
        bt_model_between_layers(model, fwd, i + 1);
    }
    store_kv(model, fwd, batch, last, x);
    bt_model_layers_stored(model, fwd, last + 1);
    if (batch->n_logit_rows == 0) {
        return; /* the cache is all that was asked for */
    }
    attend(model, fwd, batch, last);
    /* From here on only the rows with logits matter. */
    ops->gather_rows(model->be, x, batch, hp->dim, d->x_last);
    ops->gather_rows(model->be, d->a, batch, hp->n_heads * hp->head_dim, d->b);
    finish_layer(model, fwd, last, d->b, batch->n_logit_rows, d->a, d->x_last);
    compute_logits(model, batch->n_logit_rows);
}
