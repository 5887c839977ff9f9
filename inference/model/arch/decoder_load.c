/* SPDX-License-Identifier: Apache-2.0 */
/* Loads tensors and buffers of a decoder. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/arch/decoder.h"
#include "inference/model/arch/experts.h"
#include "inference/model/head.h"
#include "inference/model/lora_pass.h"

#define NAME_BYTES 96

/* "blk.LAYER.NAME.KIND" */
static const char *layer_name(char *text, uint32_t layer, const char *name,
                              const char *kind)
{
    snprintf(text, NAME_BYTES, "blk.%u.%s.%s", layer, name, kind);
    return text;
}

/* ---- requirements on the back end ---- */

static void need(bt_loader_t *ld, bool there, const char *what)
{
    if (!there) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "the %s back end does not compute %s, which this %s "
                       "model has",
                       ld->be->caps->name, what, ld->family->name);
    }
}

static void check_operations(bt_loader_t *ld)
{
    const bt_kernels_ops_t *const ops = ld->be->ops;
    const bt_family_t *const family = ld->family;
    const bt_hparams_t *const hp = ld->hp;
    const struct {
        bool needed;
        bool there;
        const char *name;
    } operations[] = {
        {family->layer_norm, ops->layer_norm != NULL, "layer norms"},
        {family->qk_norm != BT_QK_NORM_NONE, ops->head_norm != NULL,
         "norms of queries and keys"},
        {family->plain_ffn || (family->act != BT_ACT_SILU) ||
             family->norms_after || (hp->residual_scale != 1.0f),
         ops->activate != NULL, "a feed-forward of this kind"},
        {hp->learned_positions, ops->add_positions != NULL,
         "learned positions"},
        {hp->temperature > 0.0f, ops->scale_positions != NULL,
         "a temperature that grows with the position"},
        {hp->clamp_qkv > 0.0f, ops->clamp != NULL,
         "limits of queries, keys and values"},
        {(hp->embedding_scale != 1.0f) || (hp->residual_scale != 1.0f) ||
             (hp->logit_scale != 1.0f),
         ops->scale != NULL, "scales"},
        {hp->logit_soft_cap > 0.0f, ops->soft_cap != NULL,
         "soft caps of logits"},
        {hp->experts.n > 0,
         (ops->add_expert_bias != NULL) && (ops->gate_rows != NULL) &&
             (ops->route != NULL) && (ops->matmul_experts != NULL) &&
             (ops->combine != NULL) && (ops->activate != NULL),
         "mixtures of experts"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(operations); i++) {
        need(ld, !operations[i].needed || operations[i].there,
             operations[i].name);
    }
}

/* ---- one layer ---- */

/* True where a bias must be, or may be and is. */
static bool has_bias(const bt_loader_t *ld, unsigned bias, const char *name)
{
    return ((ld->family->biases & bias) != 0) ||
           (((ld->family->maybe_biases & bias) != 0) &&
            bt_loader_has(ld, name));
}

/* Creates unit weights of a norm that has none. */
static void load_ones(bt_loader_t *ld, float **ptr_p)
{
    float *const ones = bt_calloc(ld->hp->dim, sizeof(*ones));

    for (uint32_t i = 0; (ones != NULL) && (i < ld->hp->dim); i++) {
        ones[i] = 1.0f;
    }
    bt_loader_table(ld, "a norm's weights", ones, ld->hp->dim, ptr_p);
}

/* Loads vector "NAME.weight", and its bias where the family has one. */
static void load_norm(bt_loader_t *ld, const char *name,
                      bt_norm_weights_t *norm)
{
    char text[NAME_BYTES];

    if (ld->family->bare_norms) {
        load_ones(ld, &norm->weight);
        return;
    }
    snprintf(text, sizeof(text), "%s.weight", name);
    bt_loader_vector(ld, text, ld->hp->dim, &norm->weight);
    snprintf(text, sizeof(text), "%s.bias", name);
    if (has_bias(ld, BT_BIAS_NORM, text)) {
        bt_loader_vector(ld, text, ld->hp->dim, &norm->bias);
    }
}

static void load_layer_norm(bt_loader_t *ld, uint32_t i, const char *name,
                            bt_norm_weights_t *norm)
{
    char text[NAME_BYTES];

    snprintf(text, sizeof(text), "blk.%u.%s", i, name);
    load_norm(ld, text, norm);
}

static void load_norms(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_family_t *const family = ld->family;
    char name[NAME_BYTES];
    const bool two =
        family->one_norm &&
        bt_loader_has(ld, layer_name(name, i, "attn_norm_2", "weight"));

    if (!family->no_norms_before) {
        load_layer_norm(ld, i, two ? "attn_norm_2" : "attn_norm",
                        &layer->attn_norm);
        load_layer_norm(ld, i,
                        (family->one_norm && ld->hp->parallel) ? "attn_norm"
                        : family->ffn_norm_behind_attention
                            ? "post_attention_norm"
                            : "ffn_norm",
                        &layer->ffn_norm);
    }
    if (family->norms_after) {
        load_layer_norm(ld, i, "post_attention_norm", &layer->attn_post_norm);
        load_layer_norm(ld, i, "post_ffw_norm", &layer->ffn_post_norm);
    }
}

/* Loads the biases of the pieces' matrices, all or none. */
static void load_biases(bt_loader_t *ld, uint32_t i, unsigned bias,
                        const bt_piece_t *pieces, uint32_t n_pieces,
                        float **ptr_p)
{
    bool any = false;
    char name[NAME_BYTES];

    for (uint32_t k = 0; k < n_pieces; k++) {
        any = any ||
              has_bias(ld, bias, layer_name(name, i, pieces[k].name, "bias"));
    }
    if (any) {
        need(ld,
             (ld->be->ops->add_bias != NULL) && (ld->be->ops->activate != NULL),
             "biases");
        bt_loader_biases(ld, i, pieces, n_pieces, ptr_p);
    }
}

/* Turns pieces into rows of one fused tensor that holds them in sequence.
 * @return number of pieces */
static uint32_t fuse(const char *fused, bt_piece_t *pieces, uint32_t n_pieces,
                     bool whole)
{
    uint32_t total = 0;

    for (uint32_t k = 0; k < n_pieces; k++) {
        pieces[k].name = fused;
        pieces[k].rows.first += total;
        total += pieces[k].n_out;
    }
    for (uint32_t k = 0; k < n_pieces; k++) {
        pieces[k].n_out = total;
    }
    if (whole) { /* in place */
        pieces[0].rows = (bt_share_t){0, total};
    }
    return whole ? 1 : n_pieces;
}

/* Loads matrices of one input and their biases; a file may have them as one
 * tensor, @a fused. */
static void load_linear(bt_loader_t *ld, uint32_t i, uint32_t n_in,
                        const char *fused, bt_piece_t *pieces,
                        uint32_t n_pieces, unsigned bias, bt_linear_t *linear,
                        float **bias_p)
{
    char name[NAME_BYTES];
    uint32_t n = n_pieces;

    /* If neither form is there, the separate tensors are reported as
     * missing. */
    if (!bt_loader_has(ld, layer_name(name, i, pieces[0].name, "weight")) &&
        bt_loader_has(ld, layer_name(name, i, fused, "weight"))) {
        n = fuse(fused, pieces, n_pieces, ld->shard.size == 1);
    }
    bt_loader_linear(ld, i, pieces, n, n_in, linear);
    load_biases(ld, i, bias, pieces, n, bias_p);
}

void bt_decoder_load_sum(bt_loader_t *ld, const char *name, uint32_t n_in,
                         const bt_share_t *columns, bt_sum_weight_t *w)
{
    if (ld->shard.n_parts > 1) {
        w->others = bt_calloc(ld->shard.n_parts - 1, sizeof(bt_weight_t *));
        if (w->others == NULL) {
            bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
            return;
        }
        w->n_others = ld->shard.n_parts - 1;
    }
    for (uint32_t p = 0; p < ld->shard.n_parts; p++) {
        bt_loader_matrix(ld, name, ld->hp->dim, n_in, columns[p], p,
                         (p == 0) ? &w->first : &w->others[p - 1]);
    }
}

/* Loads a matrix whose output is added to x. @param [in] columns  of each
 * part */
static void load_output(bt_loader_t *ld, uint32_t i, const char *part,
                        uint32_t n_in, const bt_share_t *columns, unsigned bias,
                        bt_sum_weight_t *w, float **bias_p)
{
    const bt_piece_t piece = {
        .name = part, .n_out = ld->hp->dim, .rows = {0, ld->hp->dim}};
    char name[NAME_BYTES];

    bt_decoder_load_sum(ld, layer_name(name, i, part, "weight"), n_in, columns,
                        w);
    load_biases(ld, i, bias, &piece, 1, bias_p);
}

static void load_qk_norms(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_hparams_t *const hp = ld->hp;
    const bool row = ld->family->qk_norm == BT_QK_NORM_ROW;
    char name[NAME_BYTES];

    if ((ld->family->qk_norm == BT_QK_NORM_NONE) ||
        (ld->family->maybe_qk_norm &&
         !bt_loader_has(ld, layer_name(name, i, "attn_q_norm", "weight")))) {
        return;
    }
    if (row && (ld->shard.size > 1)) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "tensor parallelism: a norm of this %s model goes over "
                       "the heads of all ranks",
                       ld->family->name);
    }
    bt_loader_vector(ld, layer_name(name, i, "attn_q_norm", "weight"),
                     (row ? hp->n_heads : 1) * hp->head_dim, &layer->q_norm);
    bt_loader_vector(ld, layer_name(name, i, "attn_k_norm", "weight"),
                     (row ? hp->n_kv_heads : 1) * hp->head_dim, &layer->k_norm);
}

/* Loads the attention sinks, which are optional. */
static void load_sinks(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(ld->hp, i);
    char name[NAME_BYTES];

    if (bt_loader_has(ld, layer_name(name, i, "attn_sinks", "weight"))) {
        attention.sinks = &there;
        bt_loader_check_attention(ld, &attention);
        bt_loader_vector_part(ld, name, ld->hp->n_heads, ld->shard.heads,
                              &layer->attn_sinks);
    }
}

/* Returns the rows, or columns, of a range of heads. */
static bt_share_t of_heads(bt_share_t heads, uint32_t head_dim)
{
    return (bt_share_t){.first = heads.first * head_dim,
                        .n = heads.n * head_dim};
}

static void load_qkv(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t kv_dim = hp->n_kv_heads * hp->head_dim;
    const bt_share_t kv = of_heads(ld->shard.kv_heads, hp->head_dim);
    bt_piece_t pieces[] = {
        {.name = "attn_q",
         .n_out = hp->n_heads * hp->head_dim,
         .rows = of_heads(ld->shard.heads, hp->head_dim)},
        {.name = "attn_k", .n_out = kv_dim, .rows = kv},
        {.name = "attn_v", .n_out = kv_dim, .rows = kv},
    };

    /* Those of an EAGLE-3 head read embedding and hidden state. */
    load_linear(ld, i, (ld->family->is_eagle3 ? 2 : 1) * hp->dim, "attn_qkv",
                pieces, 3, BT_BIAS_QKV, &layer->qkv, &layer->qkv_bias);
}

static void load_up(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bool plain = ld->family->plain_ffn;
    const uint32_t n_out = ld->hp->ffn_dim;
    const bt_share_t rows = ld->shard.ffn;
    bt_piece_t pieces[] = {
        {.name = "ffn_gate", .n_out = n_out, .rows = rows},
        {.name = "ffn_up", .n_out = n_out, .rows = rows},
    };

    load_linear(ld, i, ld->hp->dim, "ffn_up", plain ? &pieces[1] : pieces,
                plain ? 1 : 2, BT_BIAS_FFN_UP, &layer->up, &layer->up_bias);
}

static void load_layer(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_hparams_t *const hp = ld->hp;
    bt_share_t heads[BT_MAX_SUM_PARTS];

    for (uint32_t p = 0; p < ld->shard.n_parts; p++) {
        heads[p] = of_heads(ld->shard.part_heads[p], hp->head_dim);
    }
    load_norms(ld, i, layer);
    load_qkv(ld, i, layer);
    load_qk_norms(ld, i, layer);
    load_output(ld, i, "attn_output", hp->n_heads * hp->head_dim, heads,
                BT_BIAS_ATTN_OUTPUT, &layer->attn_output,
                &layer->attn_output_bias);
    load_sinks(ld, i, layer);
    if (bt_layer_in(&hp->sparse, i)) {
        bt_experts_load(ld, i, layer);
        return;
    }
    load_up(ld, i, layer);
    layer->ffn_down.cut_as = BT_SUM_FFN;
    load_output(ld, i, "ffn_down", hp->ffn_dim, ld->shard.part_ffn,
                BT_BIAS_FFN_DOWN, &layer->ffn_down, &layer->ffn_down_bias);
}

/* ---- before and behind the layers ---- */

static size_t widest(size_t a, size_t b, size_t c)
{
    const size_t ab = (a > b) ? a : b;

    return (ab > c) ? ab : c;
}

/* Allocates the buffers of sums of several parts. */
static void load_sums(bt_loader_t *ld, bt_decoder_t *d, size_t rows)
{
    const bt_shard_t *const shard = &ld->shard;
    size_t widest_part = 0;

    for (uint32_t p = 0; p < shard->n_parts; p++) {
        const size_t heads = (size_t)shard->part_heads[p].n * ld->hp->head_dim;

        widest_part = widest(widest_part, heads, shard->part_ffn[p].n);
        widest_part = widest(widest_part, shard->part_shared[p].n, 0);
    }
    if (shard->n_parts > 1) {
        bt_loader_buffer(ld, rows, widest_part, &d->cut);
    }
    for (uint32_t k = 0; (shard->n_parts - 1) >> k != 0; k++) {
        bt_loader_buffer(ld, rows, ld->hp->dim, &d->sums[k]);
    }
}

static void load_activations(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = &ld->own;
    const size_t units = hp->n_heads + 2 * (size_t)hp->n_kv_heads;
    const size_t q_dim = (size_t)hp->n_heads * hp->head_dim;
    const uint32_t ffn_dim = bt_experts_dense_dim(ld->hp, hp);
    const size_t up_dim = (size_t)(ld->family->plain_ffn ? 1 : 2) * ffn_dim;
    const size_t b_dim = widest(hp->dim, units * hp->head_dim, up_dim);
    const size_t a_dim = widest(hp->dim, q_dim, ffn_dim);
    const size_t rows = (ld->config->max_rows > ld->config->max_logit_rows)
                            ? ld->config->max_rows
                            : ld->config->max_logit_rows;
    bool in_parts = false;

    bt_loader_buffer(ld, rows, hp->dim, &d->x);
    bt_loader_buffer(ld, ld->config->max_logit_rows, hp->dim, &d->x_last);
    bt_loader_buffer(ld, rows, a_dim, &d->a);
    bt_loader_buffer(ld, rows, b_dim, &d->b);
    if (hp->parallel) {
        bt_loader_buffer(ld, rows, hp->dim, &d->c);
    }
    load_sums(ld, d, rows);
    for (uint32_t i = 0; i < d->n_layers; i++) {
        in_parts = in_parts || (d->layers[i].qkv.n_parts > 1) ||
                   (d->layers[i].up.n_parts > 1);
    }
    if (in_parts) {
        bt_loader_buffer(ld, rows, widest(q_dim, ffn_dim, 0), &d->part);
    }
    bt_experts_load_buffers(ld, rows, d);
}

/* Loads the embedding, which may also be the output. */
static void load_embedding(bt_loader_t *ld, bt_decoder_t *d)
{
    const bool is_tied = !bt_loader_has(ld, "output.weight");

    if (bt_shard_is_first(&ld->shard) ||
        (is_tied && bt_shard_is_last(&ld->shard))) {
        bt_loader_first_rows(ld, "token_embd.weight", ld->hp->n_vocab,
                             ld->hp->dim, ld->shard.words, &d->embedding);
    } else {
        bt_loader_leave(ld, "token_embd.weight");
    }
}

/* Loads the output norm and matrix. */
static void load_output_words(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;

    if (!bt_shard_is_last(&ld->shard)) {
        bt_loader_leave(ld, "output.weight");
        bt_loader_leave(ld, "output.bias");
        bt_loader_leave(ld, "output_norm.weight");
        bt_loader_leave(ld, "output_norm.bias");
        return;
    }
    if (bt_loader_has(ld, "output.weight")) {
        bt_loader_first_rows(ld, "output.weight", hp->n_vocab, hp->dim,
                             ld->shard.words, &d->output);
    }
    load_norm(ld, "output_norm", &d->output_norm);
    if (has_bias(ld, BT_BIAS_OUTPUT, "output.bias")) {
        bt_loader_vector_part(ld, "output.bias", hp->n_vocab, ld->shard.words,
                              &d->output_bias);
    }
}

static void load_embedding_norm(bt_loader_t *ld, bt_decoder_t *d)
{
    if (bt_shard_is_first(&ld->shard)) {
        load_norm(ld, "token_embd_norm", &d->embedding_norm);
    } else {
        bt_loader_leave(ld, "token_embd_norm.weight");
        bt_loader_leave(ld, "token_embd_norm.bias");
    }
}

void bt_decoder_load(bt_loader_t *ld, void **state_p)
{
    const bool is_head = ld->hp->head.kind != BT_HEAD_NONE;
    const bt_share_t layers = ld->shard.layers;
    bt_decoder_t *const d = bt_calloc(1, sizeof(*d));

    *state_p = d;
    if (d != NULL) {
        d->layers = bt_calloc(layers.n, sizeof(*d->layers));
        d->head = is_head ? bt_calloc(1, sizeof(*d->head)) : NULL;
    }
    if ((d == NULL) || (d->layers == NULL) || (is_head && (d->head == NULL))) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    d->n_layers = layers.n;
    check_operations(ld);
    if (!is_head) {
        load_embedding(ld, d);
    }
    for (uint32_t i = 0; (ld->status == BT_OK) && (i < layers.n); i++) {
        load_layer(ld, layers.first + i, &d->layers[i]);
    }
    if (is_head) {
        bt_head_load(ld, d);
    } else {
        load_output_words(ld, d);
        if (ld->family->embedding_norm) {
            load_embedding_norm(ld, d);
        }
    }
    bt_positions_load(ld, d);
    load_activations(ld, d);
    bt_lora_pass_load(ld, d);
}

static void free_buffers(bt_backend_t *be, float *const *buffers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bt_model_buffer_free(be, buffers[i]);
    }
}

static void free_sum(bt_backend_t *be, bt_sum_weight_t *w)
{
    bt_model_weight_free(be, w->first);
    for (uint32_t p = 0; p < w->n_others; p++) {
        bt_model_weight_free(be, w->others[p]);
    }
    bt_free(w->others);
}

static void free_layer(bt_backend_t *be, bt_layer_t *layer)
{
    float *const buffers[] = {
        layer->attn_norm.weight,
        layer->attn_norm.bias,
        layer->attn_post_norm.weight,
        layer->attn_post_norm.bias,
        layer->ffn_norm.weight,
        layer->ffn_norm.bias,
        layer->ffn_post_norm.weight,
        layer->ffn_post_norm.bias,
        layer->q_norm,
        layer->k_norm,
        layer->attn_sinks,
        layer->qkv_bias,
        layer->attn_output_bias,
        layer->up_bias,
        layer->ffn_down_bias,
    };

    bt_linear_free(be, &layer->qkv);
    free_sum(be, &layer->attn_output);
    bt_experts_free(be, layer->experts);
    bt_linear_free(be, &layer->up);
    free_sum(be, &layer->ffn_down);
    free_buffers(be, buffers, BT_ARRAY_LEN(buffers));
}

/* Frees what belongs to no layer. */
static void free_own(bt_backend_t *be, bt_decoder_t *d)
{
    float *const buffers[] = {
        d->embedding_norm.weight,
        d->embedding_norm.bias,
        d->output_norm.weight,
        d->output_norm.bias,
        d->output_bias,
        d->cos_sin,
        d->window_cos_sin,
        d->slopes,
        d->temperatures,
        d->x,
        d->x_last,
        d->a,
        d->b,
        d->c,
        d->part,
        d->cut,
    };

    bt_model_weight_free(be, d->embedding);
    bt_model_weight_free(be, d->positions);
    bt_model_weight_free(be, d->output);
    free_buffers(be, buffers, BT_ARRAY_LEN(buffers));
    free_buffers(be, d->sums, BT_SUM_DEPTH);
}

void bt_decoder_free(bt_backend_t *be, void *state)
{
    bt_decoder_t *const d = state;

    if (d == NULL) {
        return;
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        free_layer(be, &d->layers[i]);
    }
    bt_head_free(be, d);
    bt_lora_pass_free(be, d);
    bt_experts_free_buffers(be, d->experts);
    free_own(be, d);
    bt_free(d->layers);
    bt_free(d);
}
