/* SPDX-License-Identifier: Apache-2.0 */
/** @file peft_modules.h
 *
 * Names of the modules of Hugging Face models, as adapters have them, mapped to
 * the products of a GGUF model:
 *
 *     model.layers.3.self_attn.q_proj ─▶ layer 3, attn_q, order of its rows
 *
 * The tables are those by which a folder's tensors become GGUF's (families.h),
 * so that an adapter fits a model wherever the model's file came from.
 *
 * Threads: immutable once read.
 */
#ifndef BT_INFERENCE_HF_PEFT_MODULES_H
#define BT_INFERENCE_HF_PEFT_MODULES_H

#include "inference/gguf/gguf.h"
#include "inference/hf/quant_rows.h"

#define BT_HF_MODULE_PARTS 3u

/** Matrices of a dense feed-forward network before the last one. */
typedef enum bt_hf_ffn {
    BT_HF_FFN_NONE,  /**< none: experts, or nothing */
    BT_HF_FFN_PLAIN, /**< one */
    BT_HF_FFN_GATED, /**< gate and up */
    BT_HF_FFN_FUSED, /**< both in one matrix */
} bt_hf_ffn_t;

/** Sizes of a model that modules' rows depend on. */
typedef struct bt_hf_modules {
    char arch[64]; /**< general.architecture */
    uint32_t n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim;
    bt_hf_ffn_t ffn; /**< form of the first layer */
} bt_hf_modules_t;

/** Product of a module, or of one part of a module that computes several. */
typedef struct bt_hf_module_part {
    uint32_t layer;
    char product[16];        /**< GGUF's name without "blk.N.": "attn_q" */
    bt_recipe_order_t order; /**< rows of the product among the module's */
} bt_hf_module_part_t;

/**
 * Reads the sizes from a model.
 *
 * @param [out] why  On failure a sentence for the user.
 * @retval BT_ERR_BAD_FILE
 */
BT_MUST_CHECK bt_status_t bt_hf_modules_read(const bt_gguf_t *gguf, char *why,
                                             size_t why_bytes,
                                             bt_hf_modules_t *modules_p);

/** True when the halves of rotary pairs in query and key rows, as Hugging Face
 *  has them, are interleaved in GGUF. */
bool bt_hf_modules_turn(const bt_hf_modules_t *modules);

/**
 * Finds what a module computes.
 *
 * @param [in]  name   of `len` bytes: "model.layers.0.mlp.down_proj"
 * @param [out] parts  BT_HF_MODULE_PARTS
 * @return number of parts; 0: no family of this architecture has such a matrix
 */
uint32_t bt_hf_module_find(const bt_hf_modules_t *modules, const char *name,
                           size_t len, bt_hf_module_part_t *parts);

#endif
