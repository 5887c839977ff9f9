/* SPDX-License-Identifier: Apache-2.0 */
/* Forward pass of a decoder: family.h. */
#include "inference/model/arch/decoder.h"

#include <math.h>
#include <string.h>

#include "common/coll/coll_shm.h"
#include "inference/model/arch/experts.h"
#include "inference/model/head.h"
#include "inference/model/lora_pass.h"
#include "inference/model/ranks.h"

/* Finds the next run of rows that are tokens, behind those that are not.
 * @return its number of rows; 0: there is none */
static uint32_t next_words(const bt_batch_t *batch, uint32_t *at)
{
    uint32_t n = 0;

    while ((*at < batch->n_rows) && (batch->tokens[*at] == BT_NO_TOKEN)) {
        (*at)++;
    }
    while ((*at + n < batch->n_rows) &&
           (batch->tokens[*at + n] != BT_NO_TOKEN)) {
        n++;
    }
    return n;
}

/* Looks up the embeddings of tokens. */
static void embed_words(bt_model_t *model, const bt_batch_t *batch, float *x)
{
    const bt_decoder_t *const d = model->state;
    bt_batch_t run = *batch;
    uint32_t n;

    for (uint32_t at = 0; (n = next_words(batch, &at)) > 0; at += n) {
        run.tokens = batch->tokens + at;
        run.n_rows = n;
        model->be->ops->embed(model->be, d->embedding, &run,
                              x + (size_t)at * model->own.dim);
    }
}

static void scale_words(bt_model_t *model, const bt_batch_t *batch, float *x)
{
    const bt_hparams_t *const hp = &model->own;
    uint32_t n;

    for (uint32_t at = 0; (n = next_words(batch, &at)) > 0; at += n) {
        model->be->ops->scale(model->be, x + (size_t)at * hp->dim,
                              hp->embedding_scale, (size_t)n * hp->dim);
    }
}

/* Puts the caller's embeddings in the place of those of tokens; a rank that
 * does not have them leaves the rows zero for the sum over ranks. */
static void put_embeddings(const bt_model_t *model, const bt_forward_t *fwd,
                           const bt_batch_t *batch, float *x)
{
    const size_t dim = model->own.dim;
    const float *const *rows;

    if (fwd->embeddings == NULL) {
        return;
    }
    /* A batch that is a part of the call's has a part of its tokens. */
    rows = fwd->embeddings + (batch->tokens - fwd->tokens);
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        if (batch->tokens[r] == BT_NO_TOKEN) {
            memcpy(x + r * dim, rows[r], dim * sizeof(*x));
        }
    }
}

/* Computes the initial x. */
static void embed(bt_model_t *model, const bt_forward_t *fwd,
                  const bt_batch_t *batch, float *x)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_hparams_t *const hp = &model->own;
    const bt_norm_t norm = bt_decoder_norm(model, &d->embedding_norm);

    if (d->head != NULL) {
        bt_head_input(model, fwd, batch, x);
        return;
    }
    if (model->shard.size == 1) {
        embed_words(model, batch, x);
        put_embeddings(model, fwd, batch, x);
    } else { /* each rank has its own words */
        const bt_batch_t own =
            bt_ranks_own_words(model->ranks, &model->shard, batch);

        ops->embed(model->be, d->embedding, &own, x);
        bt_ranks_clear_others(&model->shard, batch, model->be, x, hp->dim);
        put_embeddings(model, fwd, batch, x);
        bt_ranks_sum(model->ranks, x, (size_t)batch->n_rows * hp->dim);
    }
    if (hp->embedding_scale != 1.0f) {
        scale_words(model, batch, x);
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

/* True when a matrix's product is only added to x. */
static bool only_adds(const bt_model_t *model, const float *bias,
                      const bt_norm_weights_t *after)
{
    return (model->shard.size == 1) && (model->shard.n_parts == 1) &&
           (bias == NULL) && (after->weight == NULL) &&
           (model->own.residual_scale == 1.0f);
}

/* Product of parts [begin, end) of W with in, the first of which begins at
 * column @a at of in. */
typedef struct product {
    bt_model_t *model;
    const bt_sum_weight_t *w;
    const float *in;
    uint32_t n_rows;
} product_t;

static uint32_t columns_of(const product_t *p, uint32_t part)
{
    const bt_shard_t *const shard = &p->model->shard;

    return (p->w->cut_as == BT_SUM_FFN) ? shard->part_ffn[part].n
           : (p->w->cut_as == BT_SUM_SHARED)
               ? shard->part_shared[part].n
               : shard->part_heads[part].n * p->model->own.head_dim;
}

static uint32_t width_of(const product_t *p)
{
    const bt_hparams_t *const own = &p->model->own;

    return (p->w->cut_as == BT_SUM_FFN)      ? own->ffn_dim
           : (p->w->cut_as == BT_SUM_SHARED) ? own->experts.shared_dim
                                             : own->n_heads * own->head_dim;
}

static void sum_parts(const product_t *p, uint32_t begin, uint32_t end,
                      uint32_t depth, uint32_t *at, float *out)
{
    const bt_kernels_ops_t *const ops = p->model->be->ops;
    const bt_decoder_t *const d = p->model->state;
    const size_t n = (size_t)p->n_rows * p->model->own.dim;
    uint32_t middle;

    if (end - begin > 1) {
        middle = bt_coll_tree_middle(begin, end);
        sum_parts(p, begin, middle, depth + 1, at, out);
        sum_parts(p, middle, end, depth + 1, at, d->sums[depth]);
        ops->add(p->model->be, out, d->sums[depth], n);
        return;
    }
    ops->cut_columns(p->model->be, p->in, p->n_rows, width_of(p), *at,
                     columns_of(p, begin), d->cut);
    *at += columns_of(p, begin);
    ops->matmul(p->model->be,
                (begin == 0) ? p->w->first : p->w->others[begin - 1], d->cut,
                p->n_rows, out);
}

void bt_decoder_sum_parts(bt_model_t *model, const bt_sum_weight_t *w,
                          const float *in, uint32_t n_rows, float *out)
{
    const product_t product = {
        .model = model, .w = w, .in = in, .n_rows = n_rows};
    uint32_t at = 0;

    if (w->n_others == 0) {
        model->be->ops->matmul(model->be, w->first, in, n_rows, out);
    } else {
        sum_parts(&product, 0, w->n_others + 1, 0, &at, out);
    }
}

/* Computes out = W in, over all ranks of the stage. */
static void multiply(bt_model_t *model, const bt_sum_weight_t *w,
                     const float *in, uint32_t n_rows, float *out)
{
    bt_decoder_sum_parts(model, w, in, n_rows, out);
    if (model->shard.size > 1) {
        bt_ranks_sum(model->ranks, out, (size_t)n_rows * model->own.dim);
    }
}

void bt_decoder_add_result(bt_model_t *model, const bt_norm_weights_t *after,
                           uint32_t n_rows, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_norm_t norm = bt_decoder_norm(model, after);
    const size_t n = (size_t)n_rows * model->own.dim;

    if (norm.weight != NULL) {
        bt_step_norm(model->be, tmp, &norm, n_rows, tmp);
    }
    if (model->own.residual_scale != 1.0f) {
        ops->scale(model->be, tmp, model->own.residual_scale, n);
    }
    ops->add(model->be, x, tmp, n);
}

/* Computes x += scale * norm(W in + bias); tmp (n_rows, dim). */
static void add_output(bt_model_t *model, const bt_sum_weight_t *w,
                       const float *bias, const bt_norm_weights_t *after,
                       const float *in, uint32_t n_rows, float *tmp, float *x)
{
    const uint32_t dim = model->own.dim;

    if (only_adds(model, bias, after) && !bt_lora_any(model)) {
        bt_step_matmul_add(model->be, w->first, in, n_rows, dim, tmp, x);
        return;
    }
    multiply(model, w, in, n_rows, tmp);
    bt_lora_add(model,
                (w->cut_as == BT_SUM_FFN) ? BT_ADAPTER_DOWN : BT_ADAPTER_OUTPUT,
                1, in, tmp);
    add_bias(model->be, tmp, bias, n_rows, dim);
    bt_decoder_add_result(model, after, n_rows, tmp, x);
}

/* Adds the product in d->b, activated, times the second matrix, to x. */
static void add_activated(bt_model_t *model, const bt_layer_t *layer,
                          uint32_t n_rows, float *x)
{
    const bt_family_t *const family = model->family;
    const bt_decoder_t *const d = model->state;
    const uint32_t ffn_dim = model->own.ffn_dim;

    if (!family->plain_ffn && (family->act == BT_ACT_SILU) &&
        !bt_lora_any(model) &&
        only_adds(model, layer->ffn_down_bias, &layer->ffn_post_norm)) {
        bt_step_silu_matmul_add(model->be, layer->ffn_down.first, d->b, n_rows,
                                ffn_dim, model->own.dim, d->a, x);
        return;
    }
    model->be->ops->activate(model->be, family->act, !family->plain_ffn, d->b,
                             n_rows, ffn_dim, d->a);
    add_output(model, &layer->ffn_down, layer->ffn_down_bias,
               &layer->ffn_post_norm, d->a, n_rows, d->b, x);
}

/* Adds the feed-forward of x, or in parallel that of the copy in d->c, to x;
 * next is the weight read afterwards. */
static void feed_forward(bt_model_t *model, const bt_forward_t *fwd,
                         const bt_layer_t *layer, float *x, uint32_t n_rows,
                         const bt_weight_t *next)
{
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bt_norm_weights_t nothing = {0};
    const bt_norm_t norm =
        bt_decoder_norm(model, hp->parallel ? &nothing : &layer->ffn_norm);

    if (layer->experts != NULL) {
        bt_experts_forward(model, fwd, layer, x, n_rows);
        return;
    }
    bt_lora_norm_linear(
        model, &layer->up,
        model->family->plain_ffn ? BT_ADAPTER_UP : BT_ADAPTER_GATE,
        model->family->plain_ffn ? 1 : 2, hp->parallel ? d->c : x, &norm,
        n_rows, layer->ffn_down.first, d->a, d->b);
    add_bias(model->be, d->b, layer->up_bias, n_rows,
             bt_decoder_up_dim(model->family, hp));
    bt_model_got_on(fwd);
    bt_step_ahead(model->be, next);
    add_activated(model, layer, n_rows, x);
    bt_model_got_on(fwd);
}

/* Normalizes queries and keys in d->b. */
static void norm_heads(bt_model_t *model, const bt_layer_t *layer,
                       uint32_t n_rows)
{
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bool row = model->family->qk_norm == BT_QK_NORM_ROW;
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
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bool own =
        bt_layer_in(&hp->windowed, i) && (d->window_cos_sin != NULL);

    if (!bt_layer_in(&hp->turned, i)) {
        return (bt_rotation_t){0};
    }
    return (bt_rotation_t){.cos_sin = own ? d->window_cos_sin : d->cos_sin,
                           .dims = hp->rope.dims,
                           .interleaved = !model->family->pairs_apart};
}

/* Stores K and V of a layer's rows in the cache; their queries stay in d->b. */
static void store_kv(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_batch_t *batch, uint32_t i, const float *x)
{
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bt_layer_t *const layer = &d->layers[i];
    const bt_norm_t norm = bt_decoder_norm(model, &layer->attn_norm);
    const bt_rotation_t rotation = rotation_of(model, i);
    const size_t row_floats =
        (hp->n_heads + 2 * (size_t)hp->n_kv_heads) * hp->head_dim;
    const float *const in = bt_head_is_wide(d) ? d->head->both : x;
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    bt_lora_layer(model, i);
    bt_lora_norm_linear(model, &layer->qkv, BT_ADAPTER_Q, 3, in, &norm,
                        batch->n_rows, layer->attn_output.first, d->a, d->b);
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

/* Computes heads (n_rows, n_heads * head_dim) from the result of store_kv():
 * d->a. */
static void attend(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, uint32_t i)
{
    const bt_decoder_t *const d = model->state;
    bt_attention_t attention = bt_hparams_attention(&model->own, i);
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    attention.sinks = d->layers[i].attn_sinks;
    attention.slopes = d->slopes;
    model->be->ops->attention(model->be, &attention, d->b, batch, &kv, index,
                              d->a);
    bt_model_got_on(fwd);
}

/* Returns the weight read after the last layer: the output, or in a stage
 * before the last one the first layer again, for other rows. */
static const bt_weight_t *behind_layers(const bt_model_t *model)
{
    const bt_decoder_t *const d = model->state;

    return !bt_shard_is_last(&model->shard) ? d->layers[0].qkv.weights[0]
           : (d->output != NULL)            ? d->output
                                            : d->embedding;
}

/* Computes x of a layer from its heads; tmp is the one of d->a and d->b that
 * does not hold them. */
static void finish_layer(bt_model_t *model, const bt_forward_t *fwd, uint32_t i,
                         const float *heads, uint32_t n_rows, float *tmp,
                         float *x)
{
    const bt_decoder_t *const d = model->state;
    const bt_layer_t *const layer = &d->layers[i];
    const bt_norm_t ffn_norm = bt_decoder_norm(model, &layer->ffn_norm);

    bt_lora_layer(model, i);
    if (model->own.parallel) {
        bt_step_norm(model->be, x, &ffn_norm, n_rows, d->c);
    }
    bt_step_ahead(model->be, (layer->experts != NULL) ? bt_experts_first(layer)
                                                      : layer->up.weights[0]);
    add_output(model, &layer->attn_output, layer->attn_output_bias,
               &layer->attn_post_norm, heads, n_rows, tmp, x);
    bt_model_got_on(fwd);
    feed_forward(model, fwd, layer, x, n_rows,
                 (i + 1 < d->n_layers) ? layer[1].qkv.weights[0]
                                       : behind_layers(model));
}

/* Copies rows beside the other hidden states of their logit rows, the first of
 * which is @a row. */
static void put_tap(bt_model_t *model, const bt_taps_t *taps, uint32_t row,
                    const float *rows, uint32_t n_rows, uint32_t tap)
{
    const uint32_t dim = model->own.dim;
    const uint32_t width = (taps->n + (taps->normed ? 1 : 0)) * dim;

    model->be->ops->copy_columns(model->be, rows, n_rows, dim,
                                 taps->hidden + (size_t)row * width, width,
                                 tap * dim);
}

/* Copies x before a layer out, of rows with logits; d->a is overwritten. */
static void tap(bt_model_t *model, const bt_forward_t *fwd,
                const bt_batch_t *batch, uint32_t layer, const float *x)
{
    const bt_decoder_t *const d = model->state;
    const bt_taps_t *const taps = fwd->taps;

    for (uint32_t t = 0; (taps != NULL) && (t < taps->n); t++) {
        if ((taps->layers[t] == layer) && (batch->n_logit_rows > 0)) {
            model->be->ops->gather_rows(model->be, x, batch, model->own.dim,
                                        d->a);
            put_tap(model, taps, 0, d->a, batch->n_logit_rows, t);
        }
    }
}

/* As tap(), of rows that joined: each has the logits of the last rows. */
static void tap_late(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_model_late_t *late, uint32_t layer,
                     const float *x)
{
    const bt_taps_t *const taps = fwd->taps;
    const uint32_t n = late->batch.n_rows;

    for (uint32_t t = 0; (taps != NULL) && (t < taps->n); t++) {
        if (taps->layers[t] == layer) {
            put_tap(model, taps, fwd->n_logit_rows - n, x, n, t);
        }
    }
}

/* Copies the hidden states behind the last layer out. */
static void tap_last(bt_model_t *model, const bt_forward_t *fwd,
                     uint32_t n_rows)
{
    const bt_decoder_t *const d = model->state;
    const bt_taps_t *const taps = fwd->taps;
    const bt_norm_t norm = bt_decoder_norm(model, &d->output_norm);

    for (uint32_t t = 0; (taps != NULL) && (t < taps->n); t++) {
        if (taps->layers[t] == d->n_layers) {
            put_tap(model, taps, 0, d->x_last, n_rows, t);
        }
    }
    if ((taps != NULL) && taps->normed) {
        bt_step_norm(model->be, d->x_last, &norm, n_rows, d->a);
        put_tap(model, taps, 0, d->a, n_rows, taps->n);
    }
}

/* Computes the missed layers of rows that joined when n_layers were done. */
static void catch_up(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_model_late_t *late, uint32_t n_layers)
{
    const bt_decoder_t *const d = model->state;
    float *const x =
        d->x + ((size_t)fwd->first_row + late->row) * model->own.dim;

    bt_lora_rows_late(model, fwd, late);
    embed(model, fwd, &late->batch, x);
    for (uint32_t i = 0; i < n_layers; i++) {
        tap_late(model, fwd, late, i, x);
        store_kv(model, fwd, &late->batch, i, x);
        attend(model, fwd, &late->batch, i);
        finish_layer(model, fwd, i, d->a, late->batch.n_rows, d->b, x);
    }
}

static const bt_weight_t *output_of(const bt_decoder_t *d)
{
    return (d->output != NULL) ? d->output : d->embedding;
}

static void scale_logits(const bt_model_t *model, float *logits, size_t n)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->own;

    if (hp->logit_scale != 1.0f) {
        ops->scale(model->be, logits, hp->logit_scale, n);
    }
    if (hp->logit_soft_cap > 0.0f) {
        ops->soft_cap(model->be, logits, hp->logit_soft_cap, n);
    }
}

/* Computes all logits of rows x, which may be d->a. */
static void compute_all(bt_model_t *model, const float *x, uint32_t n_rows)
{
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bt_norm_t norm = bt_decoder_norm(model, &d->output_norm);

    bt_step_norm_matmul(model->be, output_of(d), x, &norm, n_rows, d->a,
                        model->own_logits);
    add_bias(model->be, model->own_logits, d->output_bias, n_rows, hp->n_vocab);
    scale_logits(model, model->own_logits, (size_t)n_rows * hp->n_vocab);
}

/* Computes all logits of the n_full rows that want them, as one product. */
static void compute_full_rows(bt_model_t *model, const bt_forward_t *fwd,
                              uint32_t n_full)
{
    const bt_decoder_t *const d = model->state;
    const size_t dim = model->own.dim;
    const size_t n_vocab = model->own.n_vocab;
    uint32_t n = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if (!bt_model_wants_ids(fwd, i)) {
            memcpy(d->a + dim * n++, d->x_last + dim * i, dim * sizeof(*d->a));
        }
    }
    compute_all(model, d->a, n_full);
    for (uint32_t i = fwd->n_logit_rows; (i > 0) && (i > n); i--) {
        if (!bt_model_wants_ids(fwd, i - 1)) {
            memcpy(model->own_logits + n_vocab * (i - 1),
                   model->own_logits + n_vocab * --n,
                   n_vocab * sizeof(*model->own_logits));
        }
    }
}

/* Computes the logits of the ids of rows: each is a sum of its own, so all have
 * the bits that they have among others. */
static void compute_ids(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_decoder_t *const d = model->state;
    const bt_norm_t norm = bt_decoder_norm(model, &d->output_norm);
    const uint32_t *const first = fwd->first_ids;
    const uint32_t n = first[fwd->n_logit_rows];
    const size_t n_vocab = model->own.n_vocab;
    float *const some = model->some_logits;
    const float *x = d->x_last;

    if (n == 0) {
        return;
    }
    if (norm.weight != NULL) {
        bt_step_norm(model->be, x, &norm, fwd->n_logit_rows, d->a);
        x = d->a;
    }
    model->be->ops->matmul_ids(model->be, output_of(d), x, fwd->n_logit_rows,
                               first, fwd->ids, some);
    for (uint32_t k = 0; (d->output_bias != NULL) && (k < n); k++) {
        some[k] += d->output_bias[fwd->ids[k]];
    }
    scale_logits(model, some, n);
    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        float *const row = model->own_logits + n_vocab * i;

        for (size_t id = 0; (first[i] < first[i + 1]) && (id < n_vocab); id++) {
            row[id] = -INFINITY;
        }
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            row[fwd->ids[k]] = some[k];
        }
    }
}

/* Computes the logits of the rows in d->x_last. */
static void compute_logits(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_decoder_t *const d = model->state;
    uint32_t n_full = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        n_full += bt_model_wants_ids(fwd, i) ? 0 : 1;
    }
    if (n_full == fwd->n_logit_rows) {
        compute_all(model, d->x_last, n_full);
        return;
    }
    if (n_full > 0) {
        compute_full_rows(model, fwd, n_full);
    }
    compute_ids(model, fwd);
}

/* Computes the last layer: from the attention on, only rows with logits matter,
 * which go to x_last. */
static void compute_last_layer(bt_model_t *model, const bt_forward_t *fwd,
                               const bt_batch_t *batch, const float *x,
                               float *x_last)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const uint32_t last = d->n_layers - 1;

    attend(model, fwd, batch, last);
    ops->gather_rows(model->be, x, batch, hp->dim, x_last);
    ops->gather_rows(model->be, d->a, batch, hp->n_heads * hp->head_dim, d->b);
    bt_lora_rows_last(model, batch);
    finish_layer(model, fwd, last, d->b, batch->n_logit_rows, d->a, x_last);
}

/* Computes a microbatch through the layers of this stage. */
static void run_stage(bt_model_t *model, const bt_forward_t *fwd,
                      const bt_batch_t *batch, float *x_last)
{
    const bt_decoder_t *const d = model->state;
    const bool is_last = bt_shard_is_last(&model->shard);
    const size_t n = (size_t)batch->n_rows * model->own.dim;

    if (bt_shard_is_first(&model->shard)) {
        embed(model, fwd, batch, d->x);
    } else {
        bt_ranks_take_rows(model->ranks, d->x, n);
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        store_kv(model, fwd, batch, i, d->x);
        if (is_last && (i + 1 == d->n_layers)) {
            if (batch->n_logit_rows > 0) {
                compute_last_layer(model, fwd, batch, d->x, x_last);
            }
            return;
        }
        attend(model, fwd, batch, i);
        finish_layer(model, fwd, i, d->a, batch->n_rows, d->b, d->x);
    }
    bt_ranks_pass_rows(model->ranks, d->x, n);
    bt_model_got_on(fwd);
}

static void forward_stage(bt_model_t *model, const bt_batch_t *batch,
                          const bt_forward_t *fwd)
{
    const bt_decoder_t *const d = model->state;
    bt_micro_t micro = bt_ranks_micro(model->ranks, batch);
    bt_batch_t part;

    while (bt_micro_next(&micro, &part)) {
        if (bt_model_begin(model, &part) != BT_OK) {
            return; /* reported by bt_ranks_status() */
        }
        run_stage(model, fwd, &part,
                  d->x_last + (size_t)micro.first_logit * model->own.dim);
    }
    if (bt_shard_is_last(&model->shard) && (batch->n_logit_rows > 0)) {
        compute_logits(model, fwd);
    }
}

void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch, bt_forward_t *fwd)
{
    const bt_decoder_t *const d = model->state;
    const uint32_t last = d->n_layers - 1;
    float *const x = d->x + (size_t)fwd->first_row * model->own.dim;
    bt_model_late_t late;

    if (model->shard.n_stages > 1) {
        forward_stage(model, batch, fwd);
        return;
    }
    bt_lora_rows_of(model, fwd);
    embed(model, fwd, batch, x);
    for (uint32_t i = 0; i < last; i++) {
        tap(model, fwd, batch, i, x);
        store_kv(model, fwd, batch, i, x);
        bt_model_layers_stored(model, fwd, i + 1);
        attend(model, fwd, batch, i);
        finish_layer(model, fwd, i, d->a, batch->n_rows, d->b, x);
        if (bt_model_take_late(model, fwd, i + 1, batch, &late)) {
            catch_up(model, fwd, &late, i + 1);
        }
        bt_model_between_layers(model, fwd, i + 1);
        bt_lora_rows_of(model, fwd); /* others were computed meanwhile */
    }
    tap(model, fwd, batch, last, x);
    store_kv(model, fwd, batch, last, x);
    bt_model_layers_stored(model, fwd, last + 1);
    if (batch->n_logit_rows == 0) {
        return; /* only the KV cache was needed */
    }
    compute_last_layer(model, fwd, batch, x, d->x_last);
    tap_last(model, fwd, batch->n_logit_rows);
    compute_logits(model, fwd);
}
