/* SPDX-License-Identifier: Apache-2.0 */
/** @file rope.h
 *
 * RoPE: parameters of the model file, and the table of rope_store().
 */
#ifndef BT_INFERENCE_MODEL_ARCH_ROPE_H
#define BT_INFERENCE_MODEL_ARCH_ROPE_H

#include "inference/model/arch/keys.h"
#include "inference/model/model_priv.h"

/**
 * Reads the keys "rope.*": dimensions, base, and scaling of the types none,
 * linear, yarn and longrope. (NTK-aware scaling is a larger base. The factors
 * of Llama 3 and LongRoPE are tensors: bt_rope_load().)
 *
 * @param head_dim, context_tokens  defaults where the file has no key
 * @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE
 */
BT_MUST_CHECK bt_status_t bt_rope_read(const bt_keys_t *keys, uint32_t head_dim,
                                       uint32_t context_tokens,
                                       bt_rope_t *rope_p);

/** Removes the position scaling; the base stays. */
void bt_rope_unscale(bt_rope_t *rope);

/**
 * Computes the rotation table (context_tokens, dims / 2, 2) of rope_store().
 *
 * Frequencies are divided by factors, if there are any: those of
 * rope_freqs.weight, or (LongRoPE) of rope_factors_long.weight where the
 * configured context is longer than the trained one, else of
 * rope_factors_short.weight. A sequence is computed with one of the two from
 * its first token to its last, since keys of both kinds do not match; so
 * workers of one model must have contexts on the same side of the trained one.
 *
 * Source: Su et al., RoFormer; Peng et al., "YaRN"; Ding et al., "LongRoPE".
 */
BT_MUST_CHECK bt_status_t bt_rope_load(bt_loader_t *loader,
                                       const bt_rope_t *rope, float **ptr_p);

#endif
