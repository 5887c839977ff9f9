/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h
 *
 * Chooses the type of every tensor of a model for a `--type` name: one type for
 * most matrices, finer ones where an error spreads furthest. The table and its
 * rules are in plan.c and docs/CONVERT.md.
 *
 * Threads: pure functions.
 */
#ifndef BT_CONVERT_PLAN_H
#define BT_CONVERT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/gguf/gguf.h"

typedef struct bt_convert_mix bt_convert_mix_t;

/** Finds a mix by its --type name, ignoring case. @return NULL: none */
const bt_convert_mix_t *bt_convert_mix_find(const char *name);
/** Returns the name of mix @a i, for messages. @return NULL past the last */
const char *bt_convert_mix_name(uint32_t i);
#define BT_CONVERT_FILE_TYPE_STAYS UINT32_MAX

/** Returns the general.file_type of the converted file (llama_ftype), or
 *  BT_CONVERT_FILE_TYPE_STAYS: every tensor keeps its type. */
uint32_t bt_convert_mix_file_type(const bt_convert_mix_t *mix);

/** True when the mix has block types, whose errors are weighted. Otherwise an
 *  importance matrix changes nothing. */
bool bt_convert_mix_weighs(const bt_convert_mix_t *mix);

/** Conversion of one tensor. */
typedef struct bt_convert_step {
    const bt_gguf_tensor_t *tensor;
    uint32_t type;  /**< new type, one of quantize.h */
    bool is_narrow; /**< row length is not a multiple of the block of the type
                         wanted by the mix */
    uint32_t wanted;
    size_t bytes; /**< bytes in the new file */
    uint64_t at;  /**< offset in the new file's tensor data */
} bt_convert_step_t;

typedef struct bt_convert_plan {
    bt_convert_step_t *steps; /**< owned; in the order of the file */
    uint64_t n;
    uint64_t bytes; /**< bytes of the data, with padding */
} bt_convert_plan_t;

#define BT_CONVERT_ALIGNMENT 32u /**< bytes; the default alignment of GGUF */

/**
 * Plans the conversion of every tensor.
 *
 * @retval BT_ERR_OVERFLOW   impossible file sizes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_convert_plan_make(const bt_gguf_t *gguf,
                                               const bt_convert_mix_t *mix,
                                               bt_convert_plan_t *plan_p);
void bt_convert_plan_fini(bt_convert_plan_t *plan);

#endif
