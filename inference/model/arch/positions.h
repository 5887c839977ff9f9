/* SPDX-License-Identifier: Apache-2.0 */
/** @file positions.h
 *
 * Position encodings of a decoder: RoPE of queries and keys (rope.h), learned
 * rows added to x, or a slope times the distance subtracted from scores (ALiBi:
 * Press et al., "Train Short, Test Long"). In addition, queries may be scaled
 * by position.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_POSITIONS_H
#define BT_INFERENCE_MODEL_ARCH_POSITIONS_H

#include "inference/model/arch/decoder.h"
#include "inference/model/arch/keys.h"

/** Fills rope, window_rope, turned, learned_positions, alibi, slope_scale and
 *  temperature of *hp, whose other sizes and attention are filled in.
 *  @retval BT_ERR_BAD_FILE
 *  @retval BT_ERR_UNSUPPORTED */
BT_MUST_CHECK bt_status_t bt_positions_read(const bt_keys_t *keys,
                                            const bt_family_t *family,
                                            bt_hparams_t *hp);

/** Loads or computes the position tables of @a d, which its free function
 *  frees. */
BT_MUST_CHECK bt_status_t bt_positions_load(bt_loader_t *ld, bt_decoder_t *d);

/** Computes the ALiBi slopes of @a n_heads heads, the steepest 2^(-max_bias /
 *  n) for n heads: for n = 2^k its powers 1 .. n; for another n those of the
 *  next smaller 2^k, then each second one of twice as many, as the paper's
 *  authors do.
 *  @param [out] slopes  (n_heads) */
void bt_positions_slopes(uint32_t n_heads, float max_bias, float scale,
                         float *slopes);

#endif
