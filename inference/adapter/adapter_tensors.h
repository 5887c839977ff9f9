/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapter_tensors.h
 *
 * LoRA adapter as two tensors, in the form of TensorRT-LLM:
 *
 *     lora_config  (rows, 3 or 4)  module id, layer, rank[, 1: DoRA]
 *     lora_weights (rows, width)   A (rank, n_in), B (n_out, rank), zeros
 *
 * B is scaled already. Rows of B are in the order of Hugging Face's files, as
 * hf_lora_convert.py leaves them; of a matrix that computes gate and up it has
 * exchanged the halves. The ids of modules do not say what they seem to:
 *
 *     gate_proj ── 5 mlp_h_to_4h      up_proj ── 7 mlp_gate
 *
 * Threads: pure functions.
 * Source:  TensorRT-LLM, docs/source/advanced/lora.md, hf_lora_convert.py,
 *          cpp/tensorrt_llm/runtime/loraUtils.cpp, for ids and error texts.
 */
#ifndef BT_INFERENCE_ADAPTER_ADAPTER_TENSORS_H
#define BT_INFERENCE_ADAPTER_ADAPTER_TENSORS_H

#include "inference/adapter/adapter.h"

#define BT_ADAPTER_MAX_TENSOR_ROWS 16384u

/** Both tensors, in one piece of memory: bt_free(). */
typedef struct bt_adapter_tensors {
    uint32_t type;          /**< BT_ADAPTER_F32 … */
    uint32_t n_rows;        /**< at most BT_ADAPTER_MAX_TENSOR_ROWS */
    uint32_t n_columns;     /**< 3 or 4; of config */
    uint64_t width;         /**< elements of a row of weights */
    size_t weights_bytes;   /**< n_rows x width elements */
    const int32_t *config;  /**< (n_rows, n_columns) */
    const uint8_t *weights; /**< (n_rows, width) of the type */
    bt_hash128_t hash;      /**< hash of both tensors and their shapes */
} bt_adapter_tensors_t;

/**
 * Copies both tensors.
 *
 * @param [in]  shape  All fields but the pointers and the hash are set.
 * @param [in]  config, weights  Borrowed, of any alignment; may change
 *              meanwhile.
 * @param [out] tensors_p  owned: bt_free()
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_adapter_tensors_create(
    const bt_adapter_tensors_t *shape, const void *config, const void *weights,
    bt_adapter_tensors_t **tensors_p);

/**
 * Reads both tensors from a folder as hf_lora_convert.py writes it:
 * model.lora_weights.npy and model.lora_config.npy.
 *
 * @param [out] why        On failure a sentence that names the file.
 * @param [out] tensors_p  owned: bt_free()
 * @retval BT_ERR_NOT_FOUND, BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE, BT_ERR_IO,
 *         BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_adapter_tensors_read(const char *folder, char *why, size_t why_bytes,
                        bt_adapter_tensors_t **tensors_p);

/**
 * Makes an adapter of tensors for a model of these sizes.
 *
 * @param [in]  max_rank  largest rank that is taken
 * @param [out] why       On failure a sentence for the user, in TensorRT-LLM's
 *                        words where it has some.
 * @retval BT_ERR_MISMATCH     It has a layer that the model has not.
 * @retval BT_ERR_UNSUPPORTED  Something in it is not computed, named.
 * @retval BT_ERR_BAD_FILE     Malformed or inconsistent.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_adapter_open_tensors(
    const bt_adapter_tensors_t *tensors, const bt_hf_modules_t *model,
    uint32_t max_rank, char *why, size_t why_bytes, bt_adapter_t **adapter_p);

/** Returns the bytes of bt_adapter_pack(). */
size_t bt_adapter_packed_bytes(const bt_adapter_t *adapter);
/**
 * Writes an adapter for bt_adapter_unpack() in another process:
 *
 *     number of parts, then for each: layer, product, rank, n_in, n_out, type,
 *     scale (32 bits each, little-endian), A, B
 *
 * @param [out] data  of bt_adapter_packed_bytes()
 */
void bt_adapter_pack(const bt_adapter_t *adapter, uint8_t *data);
/**
 * Reads what bt_adapter_pack() wrote; the digest is that of the content.
 *
 * @param [in]  data  Untrusted, of any alignment; borrowed for the call.
 * @param [out] why   On failure a sentence for the user.
 * @retval BT_ERR_BAD_FILE, BT_ERR_MISMATCH, BT_ERR_UNSUPPORTED,
 *         BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_adapter_unpack(const uint8_t *data, size_t bytes,
                                            const bt_hf_modules_t *model,
                                            char *why, size_t why_bytes,
                                            bt_adapter_t **adapter_p);

#endif
