/* SPDX-License-Identifier: Apache-2.0 */
/** @file lora.h
 *
 * LoRA adapters of a loaded model. Each sequence of a call may have one
 * (bt_forward_t.loras); sequences with different adapters, and without, are in
 * one batch:
 *
 *     x ──▶ W x (all rows) ─▶ + scale B (A x) (rows of each adapter) ─▶ bias …
 *
 * A row's results depend on its sequence and its adapter alone: rows without
 * one have the bits of a model without adapters, in any company.
 *
 * Threads: an adapter is loaded by any thread, while the model lives; copied,
 *          and then freed, by the one that runs the model. It must not be
 *          freed while a call may name it.
 * Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models".
 */
#ifndef BT_INFERENCE_MODEL_LORA_H
#define BT_INFERENCE_MODEL_LORA_H

#include "inference/gguf/adapter_parts.h"
#include "inference/model/model.h"

/**
 * Prepares an adapter for a model, in memory of the host. bt_lora_copy_in() has
 * to follow before a call names it.
 *
 * @param [in]  adapter  Borrowed for the call.
 * @param [out] why      On failure a sentence for the user.
 * @retval BT_ERR_UNSUPPORTED  The model computes no adapters, or none of this
 *         rank (bt_model_config_t.max_lora_rank).
 * @retval BT_ERR_MISMATCH     A matrix has not the model's shape.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_lora_load(bt_model_t *model,
                                       const bt_adapter_t *adapter, char *why,
                                       size_t why_bytes, bt_lora_t **lora_p);
/** Moves a prepared adapter to the memory of the back end, where that is not
 *  the host's; else, and the second time, it does nothing.
 *  @retval BT_ERR_NO_MEMORY  nothing changed, as with any other failure */
BT_MUST_CHECK bt_status_t bt_lora_copy_in(bt_model_t *model, bt_lora_t *lora);
/** Frees an adapter before its model. NULL is allowed. */
void bt_lora_free(bt_model_t *model, bt_lora_t *lora);
/** Returns the bytes that the adapter takes. */
size_t bt_lora_bytes(const bt_lora_t *lora);
/** Returns what bt_lora_bytes() will be, by the sizes alone
 *  (bt_adapter_open_sizes()). */
uint64_t bt_lora_bytes_of(const bt_adapter_t *adapter);

#endif
