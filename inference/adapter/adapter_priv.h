/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapter_priv.h  Shared by the readers of adapters. */
#ifndef BT_INFERENCE_ADAPTER_ADAPTER_PRIV_H
#define BT_INFERENCE_ADAPTER_ADAPTER_PRIV_H

#include <stdarg.h>

#include "inference/adapter/adapter.h"
#include "inference/hf/peft_modules.h"

/** State of one call of bt_adapter_open(). */
typedef struct bt_adapter_build {
    bt_hf_modules_t model;
    bt_adapter_t *adapter;
    uint32_t capacity; /**< size of adapter->parts */
    bool only_sizes;   /**< bt_adapter_open_sizes() */
    char *why;
    size_t why_bytes;
} bt_adapter_build_t;

/** Matrices of a file for one module. */
typedef struct bt_adapter_source {
    const char *name; /**< module or tensor, for messages; len bytes */
    size_t len;
    const uint8_t *a, *b;    /**< (rank, n_in), (n_out, rank), unaligned */
    uint32_t a_type, b_type; /**< BT_ADAPTER_F32 … */
    uint64_t rank, n_in, n_out;
    float scale;
} bt_adapter_source_t;

/** Writes a reason for the user. @return @a status */
bt_status_t bt_adapter_fail(bt_adapter_build_t *build, bt_status_t status,
                            const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** Adds what one module's matrices are for some rows of B; a product that GGUF
 *  may have fused ("attn_qkv", "ffn_up") is split. */
BT_MUST_CHECK bt_status_t bt_adapter_add(bt_adapter_build_t *build,
                                         const bt_adapter_source_t *source,
                                         const bt_hf_module_part_t *part);

/** Adds a module's matrices as one product, whatever the part names.
 *  @retval as bt_adapter_add() */
BT_MUST_CHECK bt_status_t bt_adapter_add_product(
    bt_adapter_build_t *build, const bt_adapter_source_t *source,
    const bt_hf_module_part_t *part, bt_adapter_product_t product);

/** Begins an adapter without parts.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_adapter_begin(bt_adapter_build_t *build);
/** Sorts and checks the parts, and sets the digest; or frees the adapter.
 *  @param [in] status  not BT_OK: how reading has ended
 *  @return @a status, or BT_ERR_BAD_FILE, BT_ERR_MISMATCH */
BT_MUST_CHECK bt_status_t bt_adapter_end(bt_adapter_build_t *build,
                                         bt_status_t status,
                                         bt_adapter_t **adapter_p);

/** Read the two kinds of files. */
BT_MUST_CHECK bt_status_t bt_adapter_read_peft(bt_adapter_build_t *build,
                                               const char *path);
BT_MUST_CHECK bt_status_t bt_adapter_read_gguf(bt_adapter_build_t *build,
                                               const char *path);

#endif
