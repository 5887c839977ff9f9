/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and buffers of a dense decoder. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/arch/decoder.h"
#include "inference/model/arch/positions.h"

#define NAME_BYTES 96

/* "blk.LAYER.NAME.KIND" */
static const char *layer_name(char *text, uint32_t layer, const char *name,
                              const char *kind)
{
    snprintf(text, NAME_BYTES, "blk.%u.%s.%s", layer, name, kind);
    return text;
}

/* ---- what the back end must have ---- */

static bt_status_t need(const bt_loader_t *ld, bool there, const char *what)
{
    return there ? BT_OK
                 : bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                                  "the %s back end does not compute %s, which "
                                  "this %s model has",
                                  ld->be->caps->name, what, ld->arch->name);
}

static bt_status_t check_operations(const bt_loader_t *ld)
{
    const bt_kernels_ops_t *const ops = ld->be->ops;
    const bt_family_t *const family = ld->arch->family;
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
    };
    bt_status_t status = BT_OK;

    for (size_t i = 0;
         (status == BT_OK) && (i < sizeof(operations) / sizeof(operations[0]));
         i++) {
        status = need(ld, !operations[i].needed || operations[i].there,
                      operations[i].name);
    }
    return status;
}

/* ---- one layer ---- */

/* The weights of a norm that has none. */
static bt_status_t load_ones(bt_loader_t *ld, float **ptr_p)
{
    float *const ones = bt_calloc(ld->hp->dim, sizeof(*ones));

    for (uint32_t i = 0; (ones != NULL) && (i < ld->hp->dim); i++) {
        ones[i] = 1.0f;
    }
    return bt_loader_table(ld, "a norm's weights", ones, ld->hp->dim, ptr_p);
}

/* Vector "NAME.weight", and its bias where the family has such. */
static bt_status_t load_norm(bt_loader_t *ld, const char *name,
                             bt_norm_weights_t *norm)
{
    const bt_family_t *const family = ld->arch->family;
    char text[NAME_BYTES];
    bt_status_t status;

    if (family->bare_norms) {
        return load_ones(ld, &norm->weight);
    }
    snprintf(text, sizeof(text), "%s.weight", name);
    status = bt_loader_vector(ld, text, ld->hp->dim, &norm->weight);
    snprintf(text, sizeof(text), "%s.bias", name);
    if ((status == BT_OK) && (((family->biases & BT_BIAS_NORM) != 0) ||
                              (((family->maybe_biases & BT_BIAS_NORM) != 0) &&
                               bt_loader_has(ld, text)))) {
        status = bt_loader_vector(ld, text, ld->hp->dim, &norm->bias);
    }
    return status;
}

static bt_status_t load_layer_norm(bt_loader_t *ld, uint32_t i,
                                   const char *name, bt_norm_weights_t *norm)
{
    char text[NAME_BYTES];

    snprintf(text, sizeof(text), "blk.%u.%s", i, name);
    return load_norm(ld, text, norm);
}

static bt_status_t load_norms(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_family_t *const family = ld->arch->family;
    char name[NAME_BYTES];
    const bool two =
        family->one_norm &&
        bt_loader_has(ld, layer_name(name, i, "attn_norm_2", "weight"));
    bt_status_t status = BT_OK;

    if (!family->no_norms_before) {
        status = load_layer_norm(ld, i, two ? "attn_norm_2" : "attn_norm",
                                 &layer->attn_norm);
    }
    if ((status == BT_OK) && !family->no_norms_before) {
        status = load_layer_norm(
            ld, i,
            (family->one_norm && ld->hp->parallel) ? "attn_norm" : "ffn_norm",
            &layer->ffn_norm);
    }
    if ((status == BT_OK) && family->norms_after) {
        status = load_layer_norm(ld, i, "post_attention_norm",
                                 &layer->attn_post_norm);
    }
    if ((status == BT_OK) && family->norms_after) {
        status = load_layer_norm(ld, i, "post_ffw_norm", &layer->ffn_post_norm);
    }
    return status;
}

/* Biases of the matrices @a names, all of them or none. */
static bt_status_t load_biases(bt_loader_t *ld, uint32_t i, unsigned bias,
                               const char *const *names, const uint32_t *n,
                               uint32_t n_parts, float **ptr_p)
{
    const bt_family_t *const family = ld->arch->family;
    bool any = (family->biases & bias) != 0;
    char name[NAME_BYTES];
    bt_status_t status;

    for (uint32_t k = 0; k < n_parts; k++) {
        any = any || (((family->maybe_biases & bias) != 0) &&
                      bt_loader_has(ld, layer_name(name, i, names[k], "bias")));
    }
    if (!any) {
        return BT_OK;
    }
    status = need(
        ld, (ld->be->ops->add_bias != NULL) && (ld->be->ops->activate != NULL),
        "biases");
    return (status == BT_OK) ? bt_loader_biases(ld, i, names, n, n_parts, ptr_p)
                             : status;
}

/* Matrices of one input and their biases; a file may have them as one tensor,
 * @a fused. */
static bt_status_t load_linear(bt_loader_t *ld, uint32_t i, const char *fused,
                               const char *const *names, const uint32_t *n_out,
                               uint32_t n_parts, unsigned bias,
                               bt_linear_t *linear, float **bias_p)
{
    char name[NAME_BYTES];
    uint32_t total = 0;
    bt_status_t status;

    for (uint32_t k = 0; k < n_parts; k++) {
        total += n_out[k];
    }
    if (bt_loader_has(ld, layer_name(name, i, names[0], "weight"))) {
        status =
            bt_loader_linear(ld, i, names, n_out, n_parts, ld->hp->dim, linear);
        return (status == BT_OK)
                   ? load_biases(ld, i, bias, names, n_out, n_parts, bias_p)
                   : status;
    }
    /* Where neither is there, the parts are what is missing. */
    if (!bt_loader_has(ld, layer_name(name, i, fused, "weight"))) {
        return bt_loader_linear(ld, i, names, n_out, n_parts, ld->hp->dim,
                                linear);
    }
    status = bt_loader_linear(ld, i, &fused, &total, 1, ld->hp->dim, linear);
    return (status == BT_OK)
               ? load_biases(ld, i, bias, &fused, &total, 1, bias_p)
               : status;
}

/* A matrix whose output is added to x. */
static bt_status_t load_output(bt_loader_t *ld, uint32_t i, const char *part,
                               uint32_t n_in, unsigned bias, bt_weight_t **w_p,
                               float **bias_p)
{
    char name[NAME_BYTES];
    const bt_status_t status = bt_loader_matrix(
        ld, layer_name(name, i, part, "weight"), ld->hp->dim, n_in, w_p);

    return (status == BT_OK)
               ? load_biases(ld, i, bias, &part, &ld->hp->dim, 1, bias_p)
               : status;
}

static bt_status_t load_qk_norms(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_hparams_t *const hp = ld->hp;
    const bool row = ld->arch->family->qk_norm == BT_QK_NORM_ROW;
    char name[NAME_BYTES];
    bt_status_t status;

    if (ld->arch->family->qk_norm == BT_QK_NORM_NONE) {
        return BT_OK;
    }
    status = bt_loader_vector(ld, layer_name(name, i, "attn_q_norm", "weight"),
                              (row ? hp->n_heads : 1) * hp->head_dim,
                              &layer->q_norm);
    return (status == BT_OK)
               ? bt_loader_vector(
                     ld, layer_name(name, i, "attn_k_norm", "weight"),
                     (row ? hp->n_kv_heads : 1) * hp->head_dim, &layer->k_norm)
               : status;
}

/* Optional. */
static bt_status_t load_sinks(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(ld->hp, i);
    char name[NAME_BYTES];
    bt_status_t status;

    if (!bt_loader_has(ld, layer_name(name, i, "attn_sinks", "weight"))) {
        return BT_OK;
    }
    attention.sinks = &there;
    status = bt_kernels_check_attention(ld->be->caps, &attention, ld->why,
                                        ld->why_bytes);
    return (status == BT_OK)
               ? bt_loader_vector(ld, name, ld->hp->n_heads, &layer->attn_sinks)
               : status;
}

static bt_status_t load_layer(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    static const char *const qkv_names[] = {"attn_q", "attn_k", "attn_v"};
    static const char *const up_names[] = {"ffn_gate", "ffn_up"};
    const bt_hparams_t *const hp = ld->hp;
    const bool plain = ld->arch->family->plain_ffn;
    const uint32_t q_dim = hp->n_heads * hp->head_dim;
    const uint32_t kv_dim = hp->n_kv_heads * hp->head_dim;
    const uint32_t qkv_dims[] = {q_dim, kv_dim, kv_dim};
    const uint32_t up_dims[] = {hp->ffn_dim, hp->ffn_dim};
    bt_status_t status = load_norms(ld, i, layer);

    if (status == BT_OK) {
        status = load_linear(ld, i, "attn_qkv", qkv_names, qkv_dims, 3,
                             BT_BIAS_QKV, &layer->qkv, &layer->qkv_bias);
    }
    if (status == BT_OK) {
        status = load_qk_norms(ld, i, layer);
    }
    if (status == BT_OK) {
        status = load_output(ld, i, "attn_output", q_dim, BT_BIAS_ATTN_OUTPUT,
                             &layer->attn_output, &layer->attn_output_bias);
    }
    if (status == BT_OK) {
        status = load_sinks(ld, i, layer);
    }
    if (status == BT_OK) {
        status = load_linear(ld, i, "ffn_up", plain ? &up_names[1] : up_names,
                             up_dims, plain ? 1 : 2, BT_BIAS_FFN_UP, &layer->up,
                             &layer->up_bias);
    }
    if (status == BT_OK) {
        status = load_output(ld, i, "ffn_down", hp->ffn_dim, BT_BIAS_FFN_DOWN,
                             &layer->ffn_down, &layer->ffn_down_bias);
    }
    return status;
}

/* ---- what comes before and behind the layers ---- */

static size_t widest(size_t a, size_t b, size_t c)
{
    const size_t ab = (a > b) ? a : b;

    return (ab > c) ? ab : c;
}

static bt_status_t load_activations(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const size_t units = hp->n_heads + 2 * (size_t)hp->n_kv_heads;
    const size_t q_dim = (size_t)hp->n_heads * hp->head_dim;
    const size_t b_dim = widest(hp->dim, units * hp->head_dim,
                                bt_decoder_up_dim(ld->arch->family, hp));
    const size_t a_dim = widest(hp->dim, q_dim, hp->ffn_dim);
    const size_t rows = (ld->config->max_rows > ld->config->max_logit_rows)
                            ? ld->config->max_rows
                            : ld->config->max_logit_rows;
    bool in_parts = false;
    bt_status_t status = bt_loader_buffer(ld, rows, hp->dim, &d->x);

    if (status == BT_OK) {
        status = bt_loader_buffer(ld, ld->config->max_logit_rows, hp->dim,
                                  &d->x_last);
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(ld, rows, a_dim, &d->a);
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(ld, rows, b_dim, &d->b);
    }
    if ((status == BT_OK) && hp->parallel) {
        status = bt_loader_buffer(ld, rows, hp->dim, &d->c);
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        in_parts = in_parts || (d->layers[i].qkv.n_parts > 1) ||
                   (d->layers[i].up.n_parts > 1);
    }
    if ((status == BT_OK) && in_parts) {
        status =
            bt_loader_buffer(ld, rows, widest(q_dim, hp->ffn_dim, 0), &d->part);
    }
    return status;
}

/* The embedding, and the output, which may be the same. */
static bt_status_t load_words(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_family_t *const family = ld->arch->family;
    const bt_hparams_t *const hp = ld->hp;
    bt_status_t status = bt_loader_first_rows(
        ld, "token_embd.weight", hp->n_vocab, hp->dim, &d->embedding);

    if ((status == BT_OK) && bt_loader_has(ld, "output.weight")) {
        status = bt_loader_first_rows(ld, "output.weight", hp->n_vocab, hp->dim,
                                      &d->output);
    }
    if ((status == BT_OK) && (((family->biases & BT_BIAS_OUTPUT) != 0) ||
                              (((family->maybe_biases & BT_BIAS_OUTPUT) != 0) &&
                               bt_loader_has(ld, "output.bias")))) {
        status =
            bt_loader_vector(ld, "output.bias", hp->n_vocab, &d->output_bias);
    }
    return status;
}

bt_status_t bt_decoder_load(bt_loader_t *ld, void **state_p)
{
    const bt_hparams_t *const hp = ld->hp;
    bt_status_t status;
    bt_decoder_t *const d = bt_calloc(1, sizeof(*d));

    *state_p = d;
    if (d != NULL) {
        d->layers = bt_calloc(hp->n_layers, sizeof(*d->layers));
    }
    if ((d == NULL) || (d->layers == NULL)) {
        return bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
    }
    d->n_layers = hp->n_layers;
    status = check_operations(ld);
    if (status == BT_OK) {
        status = load_words(ld, d);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < hp->n_layers); i++) {
        status = load_layer(ld, i, &d->layers[i]);
    }
    if (status == BT_OK) {
        status = load_norm(ld, "output_norm", &d->output_norm);
    }
    if ((status == BT_OK) && ld->arch->family->embedding_norm) {
        status = load_norm(ld, "token_embd_norm", &d->embedding_norm);
    }
    if (status == BT_OK) {
        status = bt_positions_load(ld, d);
    }
    if (status == BT_OK) {
        status = load_activations(ld, d);
    }
    return status;
}

static void free_norm(bt_backend_t *be, bt_norm_weights_t *norm)
{
    bt_model_buffer_free(be, norm->weight);
    bt_model_buffer_free(be, norm->bias);
}

static void free_layer(bt_backend_t *be, bt_layer_t *layer)
{
    free_norm(be, &layer->attn_norm);
    free_norm(be, &layer->attn_post_norm);
    free_norm(be, &layer->ffn_norm);
    free_norm(be, &layer->ffn_post_norm);
    bt_linear_free(be, &layer->qkv);
    bt_model_buffer_free(be, layer->q_norm);
    bt_model_buffer_free(be, layer->k_norm);
    bt_model_buffer_free(be, layer->attn_sinks);
    bt_model_weight_free(be, layer->attn_output);
    bt_linear_free(be, &layer->up);
    bt_model_weight_free(be, layer->ffn_down);
    bt_model_buffer_free(be, layer->qkv_bias);
    bt_model_buffer_free(be, layer->attn_output_bias);
    bt_model_buffer_free(be, layer->up_bias);
    bt_model_buffer_free(be, layer->ffn_down_bias);
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
    free_norm(be, &d->embedding_norm);
    free_norm(be, &d->output_norm);
    bt_model_weight_free(be, d->embedding);
    bt_model_weight_free(be, d->positions);
    bt_model_weight_free(be, d->output);
    bt_model_buffer_free(be, d->output_bias);
    bt_model_buffer_free(be, d->cos_sin);
    bt_model_buffer_free(be, d->window_cos_sin);
    bt_model_buffer_free(be, d->slopes);
    bt_model_buffer_free(be, d->temperatures);
    bt_model_buffer_free(be, d->x);
    bt_model_buffer_free(be, d->x_last);
    bt_model_buffer_free(be, d->a);
    bt_model_buffer_free(be, d->b);
    bt_model_buffer_free(be, d->c);
    bt_model_buffer_free(be, d->part);
    bt_free(d->layers);
    bt_free(d);
}
