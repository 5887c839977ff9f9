/* SPDX-License-Identifier: Apache-2.0 */
/** @file experts.h
 *
 * Mixture of experts in place of a layer's feed-forward:
 *
 *     h = norm(x); z = Wrouter h, in f32
 *     (experts e of a row, weights w_e) = route(z)
 *     x += norm(sum of w_e Wdown_e (act(Wgate_e h) * Wup_e h) + shared)
 *     shared = sigmoid(wgate h) Wdown (act(Wgate h) * Wup h), where the family
 *              has a shared expert, and the sigmoid where it has a gate
 *
 * in the order of bt_kernels_ops_t.combine(). Files have the experts of a layer
 * stacked: ffn_gate_exps, ffn_up_exps (or both as ffn_gate_up_exps) and
 * ffn_down_exps, of three dimensions.
 *
 * A rank has some experts, and of each some columns, in parts (shard.h). It
 * computes the first sum for each part by itself; an all-reduce adds them, and
 * the products of the shared expert, over all ranks:
 *
 *     part 0 │ part 1 │ … │ shared        (rows, dim) each, one call
 *     (part 0 + part 1) + …               on each rank, with its bits
 *
 * Threads: as decoder.h.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_EXPERTS_H
#define BT_INFERENCE_MODEL_ARCH_EXPERTS_H

#include "inference/model/arch/decoder.h"

/** Columns of the experts of one layer, bt_expert_shard_t.part_dim, and of the
 *  rank's own experts alone. */
typedef struct bt_expert_part {
    float *up_bias[2];  /**< (own experts, width) of gate and up; NULL: none */
    bt_weight_t *up[2]; /**< (own experts * width, dim) each: gate and up; one
                             of twice the width where the file has both as
                             one, and then NULL */
    bt_weight_t *down;  /**< (own experts * dim, width) */
} bt_expert_part_t;

/** Experts of one layer. */
struct bt_experts {
    bt_weight_t *router; /**< F32 (n, dim) */
    float *router_bias;  /**< (n); NULL: none */
    float *choice_bias;  /**< (n), bt_routing_t.bias; NULL: none */
    float *down_bias;    /**< (own experts, dim), added by the rank with the
                              first columns; NULL: none */
    /** F32 (1, dim): the score of the shared expert, whose matrices are
     *  bt_layer_t.up and ffn_down; NULL: it has no gate */
    bt_weight_t *shared_gate;
    bt_expert_part_t *parts; /**< owned: bt_expert_shard_t.n_parts */
    uint32_t n_parts;
    bool apart; /**< gate and up are multiplied one after the other: they
 have different types, or biases */
};

/** Activations of the experts of a step, reused by all layers. Back-end
 *  memory; a slot is a row at an expert (kernels.h). */
struct bt_expert_buffers {
    float *normed; /**< (rows, dim) */
    float *scores; /**< (rows, n) */
    float *up;     /**< (slots, 2 width): gate and up */
    float *part;   /**< (slots, width): one of both; NULL: none is apart */
    float *act;    /**< (slots, width) */
    float *down;   /**< (slots, dim) */
    float *sums;   /**< (rows, dim) for each part, then for the shared expert */
    float *gate;   /**< (rows): scores of the shared expert; NULL: none */
    bt_expert_rows_t rows;
};

/** Reads hp->experts and hp->sparse; hp's other sizes are filled in. */
void bt_experts_read(bt_keys_t *keys, const bt_family_t *family,
                     bt_hparams_t *hp);

/** Returns the width of the widest feed-forward that all rows go through: of
 *  layers without experts, or the shared expert's. 0: there is none.
 *  @param [in] own  hyperparameters of the shard */
uint32_t bt_experts_dense_dim(const bt_hparams_t *hp, const bt_hparams_t *own);

/** Loads the experts of layer @a i of the model. */
void bt_experts_load(bt_loader_t *ld, uint32_t i, bt_layer_t *layer);

/** Allocates d->experts, where a layer has some; all layers are loaded. */
void bt_experts_load_buffers(bt_loader_t *ld, size_t rows, bt_decoder_t *d);

/** Returns the weight of a layer with experts that is read first. */
const bt_weight_t *bt_experts_first(const bt_layer_t *layer);

/** Adds the feed-forward of a layer with experts to x (n_rows, dim). */
void bt_experts_forward(bt_model_t *model, const bt_forward_t *fwd,
                        const bt_layer_t *layer, float *x, uint32_t n_rows);

void bt_experts_free(bt_backend_t *be, bt_experts_t *experts);
void bt_experts_free_buffers(bt_backend_t *be, bt_expert_buffers_t *buffers);

#endif
