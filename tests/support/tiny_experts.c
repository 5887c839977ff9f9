/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with experts of small models. */
#include <stdio.h>

#include "common/base/status.h"
#include "tests/support/tiny_writer.h"

void bt_tiny_put_experts(bt_tiny_writer_t *w)
{
    const bt_tiny_model_t *const m = w->model;
    const char *const names[] = {
        "expert_count", "expert_used_count", "expert_feed_forward_length",
        "leading_dense_block_count", "expert_shared_feed_forward_length"};
    const uint32_t values[] = {
        (m->experts_said > 0) ? m->experts_said : m->n_experts,
        m->n_experts_used, m->expert_dim, m->n_dense, m->shared_dim};
    char key[NAME_BYTES];

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if (values[i] > 0) {
            bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, names[i]), values[i]);
        }
    }
}

/* Matrices of all experts in one tensor. */
static void add_weights(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                        uint32_t type, uint64_t n_in, uint64_t n_out)
{
    const bt_tiny_model_t *const m = w->model;
    const uint32_t n = (m->n_stacked > 0) ? m->n_stacked : m->n_experts;
    bt_tiny_tensor_t *const t = bt_tiny_add_tensor(w, type, n_in, n_out * n);

    t->n_dims = 3;
    t->n_mats = n;
    bt_tiny_name_part(t, layer, name, "weight");
}

/* Their biases, where the family has some. */
static void add_biases(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                       uint64_t n_out)
{
    bt_tiny_tensor_t *t;

    if (w->family->expert_biases) {
        t = bt_tiny_add_tensor(w, 0 /* F32 */, n_out, w->model->n_experts);
        t->reach = 0.5f;
        bt_tiny_name_part(t, layer, name, "bias");
    }
}

static void add_stacked(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                        uint32_t type, uint64_t n_in, uint64_t n_out)
{
    add_weights(w, layer, name, type, n_in, n_out);
    add_biases(w, layer, name, n_out);
}

static void add_shared(bt_tiny_writer_t *w, uint32_t layer)
{
    const bt_tiny_model_t *const m = w->model;

    if (m->shared_dim == 0) {
        return;
    }
    bt_tiny_add_matrix(w, layer, "ffn_gate_shexp", m->type, m->dim,
                       m->shared_dim, false);
    bt_tiny_add_matrix(w, layer, "ffn_up_shexp", m->type, m->dim, m->shared_dim,
                       false);
    bt_tiny_add_matrix(w, layer, "ffn_down_shexp", m->type, m->shared_dim,
                       m->dim, false);
    if (w->family->shared_gate) {
        bt_tiny_name_part(bt_tiny_add_vector(w, m->dim, 0.0f, 0.3f), layer,
                          "ffn_gate_inp_shexp", "weight");
    }
}

void bt_tiny_add_experts(bt_tiny_writer_t *w, uint32_t layer, uint32_t mixed)
{
    const bt_tiny_model_t *const m = w->model;
    const uint64_t dim = (m->expert_dim != 0) ? m->expert_dim : m->ffn_dim;
    const char *const gate = m->experts_apart ? "ffn_gate.0" : "ffn_gate_exps";
    const uint32_t up =
        (m->up_type == BT_TINY_SAME_TYPE) ? m->type : m->up_type;

    bt_tiny_add_matrix(w, layer, "ffn_gate_inp", m->router_type, m->dim,
                       m->n_experts, w->family->expert_biases);
    if (m->gate_up) {
        add_weights(w, layer, "ffn_gate_up_exps", m->type, m->dim, 2 * dim);
        add_biases(w, layer, "ffn_gate_exps", dim);
        add_biases(w, layer, "ffn_up_exps", dim);
    } else {
        add_stacked(w, layer, gate, m->type, m->dim, dim);
        add_stacked(w, layer, "ffn_up_exps", up, m->dim, dim);
    }
    add_stacked(w, layer, "ffn_down_exps", mixed, dim, m->dim);
    if (w->family->choice_bias) {
        bt_tiny_name_part(bt_tiny_add_vector(w, m->n_experts, 0.0f, 0.3f),
                          layer, "exp_probs_b", "bias");
    }
    add_shared(w, layer);
}
