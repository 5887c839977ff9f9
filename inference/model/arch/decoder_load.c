/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and buffers of a dense decoder. */
#include <stdio.h>

#include "common/base/alloc.h"
#include "inference/model/arch/decoder.h"
#include "inference/model/arch/rope.h"

#define NAME_BYTES 96

/* Optional. */
static bt_status_t load_sinks(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(ld->hp);
    char name[NAME_BYTES];
    bt_status_t status;

    snprintf(name, sizeof(name), "blk.%u.attn_sinks.weight", i);
    if (bt_gguf_tensor(ld->gguf, name) == NULL) {
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
    static const char *const gate_up_names[] = {"ffn_gate", "ffn_up"};
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t q_dim = hp->n_heads * hp->head_dim;
    const uint32_t kv_dim = hp->n_kv_heads * hp->head_dim;
    const uint32_t qkv_dims[] = {q_dim, kv_dim, kv_dim};
    const uint32_t gate_up_dims[] = {hp->ffn_dim, hp->ffn_dim};
    char name[NAME_BYTES];
    bt_status_t status;

    snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", i);
    status = bt_loader_vector(ld, name, hp->dim, &layer->attn_norm);
    if (status == BT_OK) {
        status = bt_loader_linear(ld, i, qkv_names, qkv_dims, 3, hp->dim,
                                  &layer->qkv);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.attn_output.weight", i);
        status =
            bt_loader_matrix(ld, name, hp->dim, q_dim, &layer->attn_output);
    }
    if (status == BT_OK) {
        status = load_sinks(ld, i, layer);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", i);
        status = bt_loader_vector(ld, name, hp->dim, &layer->ffn_norm);
    }
    if (status == BT_OK) {
        status = bt_loader_linear(ld, i, gate_up_names, gate_up_dims, 2,
                                  hp->dim, &layer->gate_up);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", i);
        status =
            bt_loader_matrix(ld, name, hp->dim, hp->ffn_dim, &layer->ffn_down);
    }
    return status;
}

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
    const size_t b_dim =
        widest(hp->dim, units * hp->head_dim, 2 * (size_t)hp->ffn_dim);
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
    for (uint32_t i = 0; i < d->n_layers; i++) {
        in_parts = in_parts || (d->layers[i].qkv.n_parts > 1) ||
                   (d->layers[i].gate_up.n_parts > 1);
    }
    if ((status == BT_OK) && in_parts) {
        status =
            bt_loader_buffer(ld, rows, widest(q_dim, hp->ffn_dim, 0), &d->part);
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
    status = bt_loader_first_rows(ld, "token_embd.weight", hp->n_vocab, hp->dim,
                                  &d->embedding);
    if ((status == BT_OK) &&
        (bt_gguf_tensor(ld->gguf, "output.weight") != NULL)) {
        status = bt_loader_first_rows(ld, "output.weight", hp->n_vocab, hp->dim,
                                      &d->output);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < hp->n_layers); i++) {
        status = load_layer(ld, i, &d->layers[i]);
    }
    if (status == BT_OK) {
        status = bt_loader_vector(ld, "output_norm.weight", hp->dim,
                                  &d->output_norm);
    }
    if (status == BT_OK) {
        status = bt_rope_load(ld, &d->cos_sin);
    }
    if (status == BT_OK) {
        status = load_activations(ld, d);
    }
    return status;
}

void bt_decoder_free(bt_backend_t *be, void *state)
{
    bt_decoder_t *const d = state;

    if (d == NULL) {
        return;
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        bt_layer_t *const layer = &d->layers[i];

        bt_model_buffer_free(be, layer->attn_norm);
        bt_model_buffer_free(be, layer->attn_sinks);
        bt_linear_free(be, &layer->qkv);
        bt_model_weight_free(be, layer->attn_output);
        bt_model_buffer_free(be, layer->ffn_norm);
        bt_linear_free(be, &layer->gate_up);
        bt_model_weight_free(be, layer->ffn_down);
    }
    bt_model_weight_free(be, d->embedding);
    bt_model_weight_free(be, d->output);
    bt_model_buffer_free(be, d->output_norm);
    bt_model_buffer_free(be, d->cos_sin);
    bt_model_buffer_free(be, d->x);
    bt_model_buffer_free(be, d->x_last);
    bt_model_buffer_free(be, d->a);
    bt_model_buffer_free(be, d->b);
    bt_model_buffer_free(be, d->part);
    bt_free(d->layers);
    bt_free(d);
}
