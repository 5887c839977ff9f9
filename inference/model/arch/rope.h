/* SPDX-License-Identifier: Apache-2.0 */
/** @file rope.h  Rotary positions: what the model file says of them, and the
 *  table of rope_store(). */
#ifndef BT_INFERENCE_MODEL_ARCH_ROPE_H
#define BT_INFERENCE_MODEL_ARCH_ROPE_H

#include "inference/model/arch/keys.h"
#include "inference/model/model_priv.h"

/** Fill hp->rope; hp->head_dim is known. @retval BT_ERR_UNSUPPORTED,
 *  BT_ERR_BAD_FILE */
BT_MUST_CHECK bt_status_t bt_rope_read(const bt_keys_t *keys, bt_hparams_t *hp);

/** The rotation table (context_tokens, rope.dims / 2, 2) of rope_store(); the
 *  factors of rope_freqs.weight divide the frequencies, if it is there. */
BT_MUST_CHECK bt_status_t bt_rope_load(bt_loader_t *loader, float **ptr_p);

#endif
