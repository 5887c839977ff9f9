/* SPDX-License-Identifier: Apache-2.0 */
/** @file family.h
 *
 * What a family of dense decoders differs in from the others. All of them are
 *
 *     x = embedding of the tokens
 *     each layer:  x += Wo attention(rope(Wqkv norm(x)))
 *                  x += Wdown (act(Wgate norm(x)) * Wup norm(x))
 *     logits = Wout norm(x)
 *
 * and share one reader of hyper-parameters (decoder_hparams.c), one loader
 * (decoder_load.c) and one forward pass (decoder.c). A family is a file of this
 * folder with a bt_arch_t, which arch.c lists: docs/ADDING_A_MODEL.md.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_FAMILY_H
#define BT_INFERENCE_MODEL_ARCH_FAMILY_H

#include "inference/model/model_priv.h"

/** What is 0 is as in llama. */
struct bt_family {
    bool pairs_apart; /**< rotary pairs are (i, i + D/2), not (2i, 2i + 1) */
};

bt_status_t bt_decoder_hparams(const bt_arch_t *arch, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes, bt_hparams_t *hp_p);
bt_status_t bt_decoder_load(bt_loader_t *loader, void **state_p);
void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch,
                        bt_forward_t *fwd);
void bt_decoder_free(bt_backend_t *be, void *state);

/** The functions of a bt_arch_t that is a family. */
#define BT_DECODER                                          \
    .hparams = bt_decoder_hparams, .load = bt_decoder_load, \
    .forward = bt_decoder_forward, .free_state = bt_decoder_free

#endif
