/* SPDX-License-Identifier: Apache-2.0 */
/** @file peft.h
 *
 * Reader of an adapter's folder, as PEFT saves it:
 *
 *     adapter_config.json          settings; what changes the result and is not
 *                                  known here is refused by name
 *     adapter_model.safetensors    base_model.model.MODULE.lora_A.weight (r,
 * in) base_model.model.MODULE.lora_B.weight (out, r)
 *
 * The update of a module's weight W is scale B A.
 *
 * Threads: one at a time.
 * Source: huggingface/peft, tuners/lora (LoraConfig, LoraLayer.update_layer)
 *         and utils/save_and_load.py.
 */
#ifndef BT_INFERENCE_HF_PEFT_H
#define BT_INFERENCE_HF_PEFT_H

#include "common/base/status.h"
#include "inference/hf/hf.h"
#include "inference/hf/safetensors.h"

/** Adapter of one module. */
typedef struct bt_peft_module {
    bt_gguf_str_t name;      /**< "model.layers.0.self_attn.q_proj" */
    const bt_st_tensor_t *a; /**< (rank, n_in) of F32, F16 or BF16 */
    const bt_st_tensor_t *b; /**< (n_out, rank) of one of these */
    float scale; /**< lora_alpha / rank, or with use_rslora / sqrt(rank) */
} bt_peft_module_t;

typedef struct bt_peft bt_peft_t;

/**
 * Opens a folder.
 *
 * @param [out] why  On failure a sentence that names file and reason.
 * @retval BT_ERR_NOT_FOUND    There is no such folder, or a file is missing.
 * @retval BT_ERR_BAD_FILE     A file is malformed or inconsistent.
 * @retval BT_ERR_UNSUPPORTED  A setting or tensor, named, whose effect would be
 *         missing: DoRA, biases, whole modules, …
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_peft_open(const char *path, char *why,
                                       size_t why_bytes, bt_peft_t **peft_p);
/** Opens a folder whose files are in memory, borrowed until close. */
BT_MUST_CHECK bt_status_t bt_peft_open_memory(const bt_folder_entry_t *entries,
                                              uint32_t n, char *why,
                                              size_t why_bytes,
                                              bt_peft_t **peft_p);
void bt_peft_close(bt_peft_t *peft); /**< NULL is allowed. */

/** Returns the modules, in the file's order.
 *  @param [out] n_p  at least 1 */
const bt_peft_module_t *bt_peft_modules(const bt_peft_t *peft, uint32_t *n_p);

#endif
