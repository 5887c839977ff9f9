/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapter.h
 *
 * LoRA adapter in one form, whatever file it comes from:
 *
 *     PEFT folder ─┐              ┌ layer, product, rank, scale
 *     GGUF file ───┴▶ adapter ──▶ │ A (rank, n_in)
 *                                 └ B (n_out, rank), rows in GGUF's order
 *
 * A product W x of the model becomes W x + scale * B (A x). The digest names
 * the content: two adapters with one digest give the same bytes, whatever their
 * names and files.
 *
 * Threads: immutable once open.
 * Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models";
 *         llama.cpp, convert_lora_to_gguf.py, for adapters in GGUF.
 */
#ifndef BT_INFERENCE_ADAPTER_ADAPTER_H
#define BT_INFERENCE_ADAPTER_ADAPTER_H

#include "common/base/status.h"
#include "inference/gguf/adapter_parts.h"
#include "inference/gguf/gguf.h"
#include "inference/hf/peft_modules.h"

/**
 * Opens an adapter: a folder as PEFT saves it, or a GGUF file.
 *
 * @param [in]  base  Model that the adapter is for.
 * @param [out] why   On failure a sentence for the user.
 * @retval BT_ERR_NOT_FOUND    There is no such file or folder.
 * @retval BT_ERR_MISMATCH     It is for another model.
 * @retval BT_ERR_UNSUPPORTED  Something in it is not computed, named.
 * @retval BT_ERR_BAD_FILE     Malformed or inconsistent.
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_adapter_open(const char *path,
                                          const bt_gguf_t *base, char *why,
                                          size_t why_bytes,
                                          bt_adapter_t **adapter_p);
/** Opens an adapter for a model of these sizes, as bt_adapter_open() does. */
BT_MUST_CHECK bt_status_t bt_adapter_open_for(const char *path,
                                              const bt_hf_modules_t *model,
                                              char *why, size_t why_bytes,
                                              bt_adapter_t **adapter_p);
/** Reads the sizes of an adapter's parts, as bt_adapter_open_for() does, but no
 *  matrix: neither these nor the digest are there, and numbers are not checked.
 *  Costs little memory, however large the file is. */
BT_MUST_CHECK bt_status_t bt_adapter_open_sizes(const char *path,
                                                const bt_hf_modules_t *model,
                                                char *why, size_t why_bytes,
                                                bt_adapter_t **adapter_p);
void bt_adapter_free(bt_adapter_t *adapter); /**< NULL is allowed. */

#endif
