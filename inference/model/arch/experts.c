/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/experts.h"

#include <stdio.h>

#include "common/base/alloc.h"
#include "common/coll/coll_shm.h"
#include "inference/model/ranks.h"

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
    const uint32_t shared = own->experts.shared_dim;
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

/* Loads biases of the own experts. */
static void load_bias(bt_loader_t *ld, const char *name, uint32_t n,
                      bt_share_t columns, float **ptr_p)
{
    const bt_cut_t cut = {.rows = ld->shard.experts.experts,
                          .columns = columns};

    bt_loader_rows(ld, name, ld->hp->experts.n, n, &cut, ptr_p);
}

static void load_biases(bt_loader_t *ld, uint32_t i, bt_experts_t *e)
{
    const bt_expert_hparams_t *const hp = &ld->hp->experts;
    const bt_expert_shard_t *const own = &ld->shard.experts;
    char name[NAME_BYTES];

    if (bt_loader_has(ld, bias_of(name, i, "exp_probs_b"))) {
        bt_loader_vector(ld, name, hp->n, &e->choice_bias);
    }
    if (!ld->family->experts.biases) {
        return;
    }
    bt_loader_vector(ld, bias_of(name, i, "ffn_gate_inp"), hp->n,
                     &e->router_bias);
    for (uint32_t p = 0; p < e->n_parts; p++) {
        load_bias(ld, bias_of(name, i, "ffn_gate_exps"), hp->dim,
                  own->part_dim[p], &e->parts[p].up_bias[0]);
        load_bias(ld, bias_of(name, i, "ffn_up_exps"), hp->dim,
                  own->part_dim[p], &e->parts[p].up_bias[1]);
    }
    if (own->part_dim[0].first == 0) {
        load_bias(ld, bias_of(name, i, "ffn_down_exps"), ld->hp->dim,
                  (bt_share_t){0, ld->hp->dim}, &e->down_bias);
    } else {
        bt_loader_leave(ld, bias_of(name, i, "ffn_down_exps"));
    }
}

static void load_shared(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const uint32_t width = ld->hp->experts.shared_dim;
    const bt_piece_t pieces[] = {
        {.name = "ffn_gate_shexp", .n_out = width, .rows = ld->shard.shared},
        {.name = "ffn_up_shexp", .n_out = width, .rows = ld->shard.shared},
    };
    char name[NAME_BYTES];

    if (width == 0) {
        return;
    }
    bt_loader_linear(ld, i, pieces, 2, ld->hp->dim, &layer->up);
    layer->ffn_down.cut_as = BT_SUM_SHARED;
    bt_decoder_load_sum(ld, name_of(name, i, "ffn_down_shexp"), width,
                        ld->shard.part_shared, &layer->ffn_down);
    if (ld->family->experts.shared_gate) {
        bt_loader_matrix_f32(ld, name_of(name, i, "ffn_gate_inp_shexp"), 1,
                             ld->hp->dim, &layer->experts->shared_gate);
    }
}

/* Loads the columns of part p of the own experts of layer i. */
static void load_part(bt_loader_t *ld, uint32_t i, uint32_t p,
                      bt_expert_part_t *part)
{
    const bt_expert_hparams_t *const hp = &ld->hp->experts;
    const bt_share_t width = ld->shard.experts.part_dim[p];
    const bt_stack_t up = {.n_mats = hp->n,
                           .n_out = hp->dim,
                           .n_in = ld->hp->dim,
                           .mats = ld->shard.experts.experts,
                           .rows = {width},
                           .columns = {0, ld->hp->dim}};
    const bt_stack_t down = {.n_mats = hp->n,
                             .n_out = ld->hp->dim,
                             .n_in = hp->dim,
                             .mats = up.mats,
                             .rows = {{0, ld->hp->dim}},
                             .columns = width};
    bt_stack_t both = up;
    char name[NAME_BYTES];

    if (bt_loader_has(ld, name_of(name, i, "ffn_gate_up_exps"))) {
        refuse_fused(ld, name);
        both.n_out = 2 * hp->dim;
        both.rows[1] = (bt_share_t){hp->dim + width.first, width.n};
        bt_loader_stacked(ld, name, &both, p, &part->up[0]);
    } else {
        bt_loader_stacked(ld, name_of(name, i, "ffn_gate_exps"), &up, p,
                          &part->up[0]);
        bt_loader_stacked(ld, name_of(name, i, "ffn_up_exps"), &up, p,
                          &part->up[1]);
    }
    bt_loader_stacked(ld, name_of(name, i, "ffn_down_exps"), &down, p,
                      &part->down);
}

void bt_experts_load(bt_loader_t *ld, uint32_t i, bt_layer_t *layer)
{
    const uint32_t n_parts = ld->shard.experts.n_parts;
    char name[NAME_BYTES];
    bt_experts_t *e;

    refuse_apart(ld, i);
    e = bt_calloc(1, sizeof(*e));
    layer->experts = e;
    if (e != NULL) {
        e->parts = bt_calloc(n_parts, sizeof(*e->parts));
    }
    if ((e == NULL) || (e->parts == NULL)) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    e->n_parts = n_parts;
    e->apart = differ(ld, i) || ld->family->experts.biases;
    bt_loader_matrix_f32(ld, name_of(name, i, "ffn_gate_inp"),
                         ld->hp->experts.n, ld->hp->dim, &e->router);
    for (uint32_t p = 0; p < n_parts; p++) {
        load_part(ld, i, p, &e->parts[p]);
    }
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
    const bt_expert_shard_t *const own = &ld->shard.experts;
    const size_t slots = rows * hp->n_used;
    const size_t n_sums = own->n_parts + ((hp->shared_dim > 0) ? 1 : 0);
    size_t width = 0;
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
    b->rows.first_leaf = own->first_leaf;
    b->rows.n_leaves = own->n_leaves;
    for (uint32_t p = 0; p < own->n_parts; p++) {
        width = (own->part_dim[p].n > width) ? own->part_dim[p].n : width;
    }
    bt_loader_buffer(ld, rows, ld->hp->dim, &b->normed);
    bt_loader_buffer(ld, rows, hp->n, &b->scores);
    bt_loader_buffer(ld, slots, 2 * width, &b->up);
    if (apart) {
        bt_loader_buffer(ld, slots, width, &b->part);
    }
    bt_loader_buffer(ld, slots, width, &b->act);
    bt_loader_buffer(ld, slots, ld->hp->dim, &b->down);
    bt_loader_buffer(ld, n_sums * rows, ld->hp->dim, &b->sums);
    if (hp->shared_dim > 0) {
        bt_loader_buffer(ld, rows, 1, &b->gate);
    }
    bt_loader_buffer(ld, rows, hp->n_used, &b->rows.weights);
    load_table(ld, rows, hp->n_used, &b->rows.ids);
    load_table(ld, rows, hp->n_used, &b->rows.slots);
    load_table(ld, slots, 1, &b->rows.rows);
    load_table(ld, 1, (size_t)own->experts.n + 1, &b->rows.first);
}

static void free_part(bt_backend_t *be, bt_expert_part_t *part)
{
    for (uint32_t i = 0; i < 2; i++) {
        bt_model_buffer_free(be, part->up_bias[i]);
        bt_model_weight_free(be, part->up[i]);
    }
    bt_model_weight_free(be, part->down);
}

void bt_experts_free(bt_backend_t *be, bt_experts_t *experts)
{
    if (experts != NULL) {
        bt_model_buffer_free(be, experts->router_bias);
        bt_model_buffer_free(be, experts->choice_bias);
        bt_model_buffer_free(be, experts->down_bias);
        bt_model_weight_free(be, experts->shared_gate);
        bt_model_weight_free(be, experts->router);
        for (uint32_t p = 0; p < experts->n_parts; p++) {
            free_part(be, &experts->parts[p]);
        }
        bt_free(experts->parts);
        bt_free(experts);
    }
}

void bt_experts_free_buffers(bt_backend_t *be, bt_expert_buffers_t *buffers)
{
    if (buffers != NULL) {
        void *const all[] = {
            buffers->normed,       buffers->scores,     buffers->up,
            buffers->part,         buffers->act,        buffers->down,
            buffers->sums,         buffers->gate,       buffers->rows.ids,
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
static void multiply_up(bt_model_t *model, const bt_expert_part_t *part,
                        bool apart, uint32_t width, uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const uint32_t n_slots = n_rows * b->rows.n_used;
    const bt_weight_t *const both[] = {part->up[0], part->up[1]};

    if (!apart) {
        ops->matmul_experts(model->be, both, (both[1] != NULL) ? 2 : 1,
                            &b->rows, n_rows, b->normed, true, b->up);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        ops->matmul_experts(model->be, &both[i], 1, &b->rows, n_rows, b->normed,
                            true, b->part);
        if (part->up_bias[i] != NULL) {
            ops->add_expert_bias(model->be, &b->rows, n_rows, part->up_bias[i],
                                 width, b->part);
        }
        ops->copy_columns(model->be, b->part, n_slots, width, b->up, 2 * width,
                          i * width);
    }
}

/* Part p of the experts of the rows in b->normed: out (n_rows, dim). */
static void compute_part(bt_model_t *model, const bt_forward_t *fwd,
                         const bt_experts_t *e, uint32_t p, uint32_t n_rows,
                         float *out)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const uint32_t dim = model->own.dim;
    const uint32_t width = model->shard.experts.part_dim[p].n;
    const bt_weight_t *const down = e->parts[p].down;

    multiply_up(model, &e->parts[p], e->apart, width, n_rows);
    bt_model_got_on(fwd);
    ops->activate(model->be, model->family->act, true, b->up,
                  n_rows * b->rows.n_used, width, b->act);
    ops->matmul_experts(model->be, &down, 1, &b->rows, n_rows, b->act, false,
                        b->down);
    if ((p == 0) && (e->down_bias != NULL)) {
        ops->add_expert_bias(model->be, &b->rows, n_rows, e->down_bias, dim,
                             b->down);
    }
    ops->combine(model->be, &b->rows, n_rows, b->down, dim, out);
}

/* The shared expert of the rows in b->normed, or this rank's part of it: out
 * (n_rows, dim). d->a and d->b are overwritten. */
static void compute_shared(bt_model_t *model, const bt_layer_t *layer,
                           uint32_t n_rows, float *out)
{
    const bt_decoder_t *const d = model->state;
    const bt_norm_t nothing = {0};

    bt_step_norm_linear(model->be, &layer->up, d->part, d->experts->normed,
                        &nothing, n_rows, layer->ffn_down.first, d->a, d->b);
    model->be->ops->activate(model->be, model->family->act, true, d->b, n_rows,
                             model->own.experts.shared_dim, d->a);
    bt_decoder_sum_parts(model, &layer->ffn_down, d->a, n_rows, out);
}

/* Adds the parts from begin to end, n values each, into the first of them. */
static void add_parts(bt_backend_t *be, float *parts, uint32_t begin,
                      uint32_t end, size_t n)
{
    uint32_t middle;

    if (end - begin > 1) {
        middle = bt_coll_tree_middle(begin, end);
        add_parts(be, parts, begin, middle, n);
        add_parts(be, parts, middle, end, n);
        be->ops->add(be, parts + begin * n, parts + middle * n, n);
    }
}

/* Adds what b->sums has over all ranks and parts, and the shared expert
 * behind them: the first rows of b->sums. */
static void add_sums(bt_model_t *model, const bt_experts_t *e, bool has_shared,
                     uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const uint32_t dim = model->own.dim;
    const size_t n = (size_t)n_rows * dim;
    float *const shared = b->sums + e->n_parts * n;

    if (model->shard.size > 1) {
        bt_ranks_sum(model->ranks, b->sums,
                     (e->n_parts + (has_shared ? 1 : 0)) * n);
    }
    add_parts(model->be, b->sums, 0, e->n_parts, n);
    if (!has_shared) {
        return;
    }
    if (e->shared_gate != NULL) {
        ops->matmul(model->be, e->shared_gate, b->normed, n_rows, b->gate);
        ops->gate_rows(model->be, shared, b->gate, n_rows, dim);
    }
    ops->add(model->be, b->sums, shared, n);
}

void bt_experts_forward(bt_model_t *model, const bt_forward_t *fwd,
                        const bt_layer_t *layer, float *x, uint32_t n_rows)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_expert_hparams_t *const hp = &model->hp.experts;
    const bt_decoder_t *const d = model->state;
    const bt_expert_buffers_t *const b = d->experts;
    const bt_experts_t *const e = layer->experts;
    const bt_norm_t norm = bt_decoder_norm(model, &layer->ffn_norm);
    const size_t n = (size_t)n_rows * model->own.dim;
    const bt_routing_t routing = {
        .n_experts = hp->n,
        .n_used = hp->n_used,
        .gating = hp->gating,
        .normed = hp->normed,
        .least = (hp->gating == BT_GATING_SIGMOID) ? LEAST_SUM : 0.0f,
        .scale = hp->scale,
        .bias = e->choice_bias};

    bt_step_norm(model->be, x, &norm, n_rows, b->normed);
    ops->matmul(model->be, e->router, b->normed, n_rows, b->scores);
    if (e->router_bias != NULL) {
        ops->add_bias(model->be, b->scores, e->router_bias, n_rows, hp->n);
    }
    ops->route(model->be, &routing, b->scores, n_rows, &b->rows);
    for (uint32_t p = 0; p < e->n_parts; p++) {
        compute_part(model, fwd, e, p, n_rows, b->sums + p * n);
    }
    if (hp->shared_dim > 0) {
        compute_shared(model, layer, n_rows, b->sums + e->n_parts * n);
    }
    add_sums(model, e, hp->shared_dim > 0, n_rows);
    bt_decoder_add_result(model, &layer->ffn_post_norm, n_rows, b->sums, x);
    bt_model_got_on(fwd);
}
