/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/experts.h"

#include <stdio.h>

#include "common/base/alloc.h"

#define NAME_BYTES 96
#define PANEL      32u /* outputs of an expert are a multiple: kernels.h */
#define MAX_WIDTH  (1u << 20)

/* In transformers, of routers by sigmoid: added to the sum that weights are
 * divided by. */
#define LEAST_SUM 1e-20f

/* ---- hyperparameters ---- */

/* expert_gating_func, as llama.cpp numbers it. */
static void read_gating(bt_keys_t *keys, bt_expert_hparams_t *experts)
{
    static const bt_gating_t gatings[] = {[1] = BT_GATING_SOFTMAX,
                                          [2] = BT_GATING_SIGMOID,
                                          [3] = BT_GATING_CHOSEN};
    char key[BT_KEY_BYTES];
    uint32_t number = 0;

    bt_keys_number_if(keys, "expert_gating_func", 0, UINT32_MAX, &number);
    if (number > 3) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "key %s is %u; 1 to 3 are supported",
                       bt_key_name(keys, "expert_gating_func", key), number);
    } else if (number != 0) {
        experts->gating = gatings[number];
    }
}

static void read_normed(bt_keys_t *keys, bt_expert_hparams_t *experts)
{
    char key[BT_KEY_BYTES];
    const bt_status_t status = bt_gguf_get_bool(
        keys->gguf, bt_key_name(keys, "expert_weights_norm", key),
        &experts->normed);

    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not a truth value",
                       key);
    }
}

static void read_shared(bt_keys_t *keys, const bt_family_t *family,
                        bt_expert_hparams_t *experts)
{
    uint32_t n = 0;

    if ((family->takes & BT_TAKES_SHARED_EXPERT) == 0) {
        return;
    }
    bt_keys_number_if(keys, "expert_shared_count", 0, 64, &n);
    experts->shared_dim = n * experts->dim;
    bt_keys_number_if(keys, "expert_shared_feed_forward_length", 0, MAX_WIDTH,
                      &experts->shared_dim);
}

/* Widths must be whole panels of packed weights. */
static void check_widths(bt_keys_t *keys, const bt_hparams_t *hp)
{
    if ((hp->experts.dim % PANEL != 0) || (hp->dim % PANEL != 0)) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "experts of width %u in a model of width %u are not "
                       "supported: both must be multiples of %u",
                       hp->experts.dim, hp->dim, PANEL);
    }
}

void bt_experts_read(bt_keys_t *keys, const bt_family_t *family,
                     bt_hparams_t *hp)
{
    bt_expert_hparams_t experts = {.dim = hp->ffn_dim,
                                   .gating = family->experts.gating,
                                   .normed = !family->experts.keeps_weights,
                                   .scale = 1.0f};

    if ((family->takes & BT_TAKES_EXPERTS) == 0) {
        return; /* refused already, where the file has some */
    }
    if (family->experts.always) {
        bt_keys_number(keys, "expert_count", 1, BT_MAX_EXPERTS, &experts.n);
    } else {
        bt_keys_number_if(keys, "expert_count", 0, BT_MAX_EXPERTS, &experts.n);
    }
    if ((keys->status != BT_OK) || (experts.n == 0)) {
        return;
    }
    bt_keys_number(keys, "expert_used_count", 1,
                   (experts.n < BT_MAX_EXPERTS_USED) ? experts.n
                                                     : BT_MAX_EXPERTS_USED,
                   &experts.n_used);
    bt_keys_number_if(keys, "expert_feed_forward_length", 1, MAX_WIDTH,
                      &experts.dim);
    bt_keys_number_if(keys, "leading_dense_block_count", 0, hp->n_layers,
                      &experts.n_dense);
    bt_keys_positive_if(keys, "expert_weights_scale", &experts.scale);
    read_shared(keys, family, &experts);
    read_gating(keys, &experts);
    read_normed(keys, &experts);
    hp->experts = experts;
    for (uint32_t i = experts.n_dense; i < hp->n_layers; i++) {
        bt_layer_add(&hp->sparse, i);
    }
    check_widths(keys, hp);
}

uint32_t bt_experts_dense_dim(const bt_hparams_t *hp, const bt_hparams_t *own)
{
    const uint32_t shared = hp->experts.shared_dim;
    const uint32_t dense =
        ((hp->experts.n > 0) && (hp->experts.n_dense == 0)) ? 0 : own->ffn_dim;

    return (dense > shared) ? dense : shared;
}

/* ---- load ---- */

static const char *name_of(char *text, uint32_t layer, const char *name)
{
    snprintf(text, NAME_BYTES, "blk.%u.%s.weight", layer, name);
    return text;
}

static const char *bias_of(char *text, uint32_t layer, const char *name)
{
    snprintf(text, NAME_BYTES, "blk.%u.%s.bias", layer, name);
    return text;
}

/* Refuses what an older converter wrote: a tensor for each expert. */
static void refuse_apart(bt_loader_t *ld, uint32_t i)
{
    char name[NAME_BYTES];

    if (bt_loader_has(ld, name_of(name, i, "ffn_gate.0"))) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "the file has each expert in tensors of its own (%s), "
                       "as converters wrote them until 2024: convert the model "
                       "anew",
                       name);
    }
}

/* Refuses gate and up in one tensor where they have biases: these are added to
 * each by itself (multiply_up). */
static void refuse_fused(bt_loader_t *ld, const char *name)
{
    if (ld->family->experts.biases) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "the file has gate and up of biased experts in one "
                       "tensor (%s): convert the model with a tensor for each",
                       name);
    }
}

static bool differ(const bt_loader_t *ld, uint32_t i)
{
    char name[NAME_BYTES];
    const bt_gguf_tensor_t *const gate =
        bt_gguf_tensor(ld->gguf, name_of(name, i, "ffn_gate_exps"));
    const bt_gguf_tensor_t *const up =
        bt_gguf_tensor(ld->gguf, name_of(name, i, "ffn_up_exps"));

    return (gate != NULL) && (up != NULL) && (gate->type != up->type);
}

static void load_biases(bt_loader_t *ld, uint32_t i, bt_experts_t *e)
{
    const bt_expert_hparams_t *const hp = &ld->hp->experts;
    char name[NAME_BYTES];

    if (bt_loader_has(ld, bias_of(name, i, "exp_probs_b"))) {
        bt_loader_vector(ld, name, hp->n, &e->choice_bias);
    }
    if (!ld->family->experts.biases) {
        return;
    }
    bt_loader_vector(ld, bias_of(name, i, "ffn_gate_inp"), hp->n,
                     &e->router_bias);
    bt_loader_rows(ld, bias_of(name, i, "ffn_gate_exps"), hp->n, hp->dim,
                   &e->up_bias[0]);
    bt_loader_rows(ld, bias_of(name, i, "ffn_up_exps"), hp->n, hp->dim,
                   &e->up_bias[1]);
    bt_loader_rows(ld, bias_of(name, i, "ffn_down_exps"), hp->n, ld->hp->dim,
                   &e->down_bias);
}

static void load_shared(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const uint32_t width = ld->hp->experts.shared_dim;
    const bt_piece_t pieces[] = {
        {.name = "ffn_gate_shexp", .n_out = width, .rows = {0, width}},
        {.name = "ffn_up_shexp", .n_out = width, .rows = {0, width}},
    };
    char name[NAME_BYTES];

    if (width == 0) {
        return;
    }
    bt_loader_linear(ld, i, pieces, 2, ld->hp->dim, &layer->up);
    bt_loader_matrix(ld, name_of(name, i, "ffn_down_shexp"), ld->hp->dim, width,
                     (bt_share_t){0, width}, 0, &layer->ffn_down.first);
    if (ld->family->experts.shared_gate) {
        bt_loader_matrix_f32(ld, name_of(name, i, "ffn_gate_inp_shexp"), 1,
                             ld->hp->dim, &layer->experts->shared_gate);
    }
}

void bt_experts_load(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const bt_expert_hparams_t *const hp = &ld->hp->experts;
    const uint32_t dim = ld->hp->dim;
    char name[NAME_BYTES];
    bt_experts_t *e;

    if ((ld->shard.size > 1) || (ld->shard.n_parts > 1)) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "tensor parallelism: this %s model has experts, which "
                       "ranks do not share yet",
                       ld->family->name);
        return;
    }
    refuse_apart(ld, i);
    e = bt_calloc(1, sizeof(*e));
    layer->experts = e;
    if (e == NULL) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    e->apart = differ(ld, i) || ld->family->experts.biases;
    bt_loader_matrix_f32(ld, name_of(name, i, "ffn_gate_inp"), hp->n, dim,
                         &e->router);
    if (bt_loader_has(ld, name_of(name, i, "ffn_gate_up_exps"))) {
        refuse_fused(ld, name);
        bt_loader_stacked(ld, name, hp->n, 2 * hp->dim, dim, &e->up[0]);
    } else {
        bt_loader_stacked(ld, name_of(name, i, "ffn_gate_exps"), hp->n, hp->dim,
                          dim, &e->up[0]);
        bt_loader_stacked(ld, name_of(name, i, "ffn_up_exps"), hp->n, hp->dim,
                          dim, &e->up[1]);
    }
    bt_loader_stacked(ld, name_of(name, i, "ffn_down_exps"), hp->n, dim,
                      hp->dim, &e->down);
    load_biases(ld, i, e);
    load_shared(ld, i, layer);
}

/* A table of 32-bit numbers. */
static void load_table(bt_loader_t *ld, size_t rows, size_t row_words,
                       uint32_t **ptr_p)
{
    float *ptr = NULL;

    bt_loader_buffer(ld, rows, row_words, &ptr);
    *ptr_p = (uint32_t *)(void *)ptr;
}

void bt_experts_load_buffers(bt_loader_t *ld, size_t rows, bt_decoder_t *d)
{
    const bt_expert_hparams_t *const hp = &ld->hp->experts;
    const size_t slots = rows * hp->n_used;
    bt_expert_buffers_t *b;
    bool apart = false;

    if (hp->n == 0) {
        return;
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        apart = apart ||
                ((d->layers[i].experts != NULL) && d->layers[i].experts->apart);
    }
    b = bt_calloc(1, sizeof(*b));
    d->experts = b;
    if (b == NULL) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    b->rows.n_experts = hp->n;
    b->rows.n_used = hp->n_used;
    bt_loader_buffer(ld, rows, ld->hp->dim, &b->normed);
    bt_loader_buffer(ld, rows, hp->n, &b->scores);
    bt_loader_buffer(ld, slots, 2 * (size_t)hp->dim, &b->up);
    if (apart) {
        bt_loader_buffer(ld, slots, hp->dim, &b->part);
    }
    bt_loader_buffer(ld, slots, hp->dim, &b->act);
    bt_loader_buffer(ld, slots, ld->hp->dim, &b->down);
    if (hp->shared_dim > 0) {
        bt_loader_buffer(ld, rows, ld->hp->dim, &b->shared);
        bt_loader_buffer(ld, rows, 1, &b->gate);
    }
    bt_loader_buffer(ld, rows, hp->n_used, &b->rows.weights);
    load_table(ld, rows, hp->n_used, &b->rows.ids);
    load_table(ld, rows, hp->n_used, &b->rows.slots);
    load_table(ld, slots, 1, &b->rows.rows);
    load_table(ld, 1, (size_t)hp->n + 1, &b->rows.first);
}

void bt_experts_free(bt_backend_t *be, bt_experts_t *experts)
{
    if (experts != NULL) {
        bt_model_buffer_free(be, experts->router_bias);
        bt_model_buffer_free(be, experts->choice_bias);
        bt_model_buffer_free(be, experts->up_bias[0]);
        bt_model_buffer_free(be, experts->up_bias[1]);
        bt_model_buffer_free(be, experts->down_bias);
        bt_model_weight_free(be, experts->shared_gate);
        bt_model_weight_free(be, experts->router);
        bt_model_weight_free(be, experts->up[0]);
        bt_model_weight_free(be, experts->up[1]);
        bt_model_weight_free(be, experts->down);
        bt_free(experts);
    }
}

void bt_experts_free_buffers(bt_backend_t *be, bt_expert_buffers_t *buffers)
{
    if (buffers != NULL) {
        void *const all[] = {
            buffers->normed,       buffers->scores,     buffers->up,
            buffers->part,         buffers->act,        buffers->down,
            buffers->shared,       buffers->gate,       buffers->rows.ids,
            buffers->rows.weights, buffers->rows.slots, buffers->rows.first,
            buffers->rows.rows};

        for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
            bt_model_buffer_free(be, all[i]);
        }
        bt_free(buffers);
    }
}

/* ---- forward ---- */

const bt_weight_t *bt_experts_first(const bt_layer_t *layer)
{
    return layer->experts->router;
}

/* Gate and up of all slots, side by side: b->up. */
static void multiply_up(bt_model_t *model, const bt_experts_t *e,
                        const bt_expert_buffers_t *b, uint32_t n_rows,
                        const float *in)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const uint32_t n_slots = n_rows * b->rows.n_used;
    const uint32_t dim = model->own.experts.dim;
    const bt_weight_t *const both[] = {e->up[0], e->up[1]};

    if (!e->apart) {
        ops->matmul_experts(model->be, both, (e->up[1] != NULL) ? 2 : 1,
                            &b->rows, n_rows, in, true, b->up);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        ops->matmul_experts(model->be, &both[i], 1, &b->rows, n_rows, in, true,
                            b->part);
        if (e->up_bias[i] != NULL) {
            ops->add_expert_bias(model->be, &b->rows, n_rows, e->up_bias[i],
                                 dim, b->part);
        }
        ops->copy_columns(model->be, b->part, n_slots, dim, b->up, 2 * dim,
                          i * dim);
    }
}

/* The shared expert of the rows in b->normed: b->shared. d->a and d->b are
 * overwritten. */
static void compute_shared(bt_model_t *model, const bt_layer_t *layer,
                           uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const bt_weight_t *const gate = layer->experts->shared_gate;
    const bt_norm_t nothing = {0};

    bt_step_norm_linear(model->be, &layer->up, d->part, b->normed, &nothing,
                        n_rows, layer->ffn_down.first, d->a, d->b);
    ops->activate(model->be, model->family->act, true, d->b, n_rows,
                  hp->experts.shared_dim, d->a);
    ops->matmul(model->be, layer->ffn_down.first, d->a, n_rows, b->shared);
    if (gate != NULL) {
        ops->matmul(model->be, gate, b->normed, n_rows, b->gate);
        ops->gate_rows(model->be, b->shared, b->gate, n_rows, hp->dim);
    }
}

void bt_experts_forward(bt_model_t *model, const bt_forward_t *fwd,
                        const bt_layer_t *layer, float *x, uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->own;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const bt_experts_t *const e = layer->experts;
    const bt_norm_t norm = bt_decoder_norm(model, &layer->ffn_norm);
    const bt_routing_t routing = {
        .n_experts = hp->experts.n,
        .n_used = hp->experts.n_used,
        .gating = hp->experts.gating,
        .normed = hp->experts.normed,
        .least = (hp->experts.gating == BT_GATING_SIGMOID) ? LEAST_SUM : 0.0f,
        .scale = hp->experts.scale,
        .bias = e->choice_bias};
    const bt_weight_t *const down = e->down;

    bt_step_norm(model->be, x, &norm, n_rows, b->normed);
    ops->matmul(model->be, e->router, b->normed, n_rows, b->scores);
    if (e->router_bias != NULL) {
        ops->add_bias(model->be, b->scores, e->router_bias, n_rows,
                      hp->experts.n);
    }
    ops->route(model->be, &routing, b->scores, n_rows, &b->rows);
    multiply_up(model, e, b, n_rows, b->normed);
    bt_model_got_on(fwd);
    ops->activate(model->be, model->family->act, true, b->up,
                  n_rows * hp->experts.n_used, hp->experts.dim, b->act);
    ops->matmul_experts(model->be, &down, 1, &b->rows, n_rows, b->act, false,
                        b->down);
    if (e->down_bias != NULL) {
        ops->add_expert_bias(model->be, &b->rows, n_rows, e->down_bias, hp->dim,
                             b->down);
    }
    if (hp->experts.shared_dim > 0) {
        compute_shared(model, layer, n_rows);
    }
    ops->combine(model->be, &b->rows, n_rows, b->down, hp->dim, d->b);
    if (hp->experts.shared_dim > 0) {
        ops->add(model->be, d->b, b->shared, (size_t)n_rows * hp->dim);
    }
    bt_decoder_add_result(model, &layer->ffn_post_norm, n_rows, d->b, x);
    bt_model_got_on(fwd);
}
