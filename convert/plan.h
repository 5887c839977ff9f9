/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h
 *
 * Which type every tensor of a model gets for a name of `--type`: one for most
 * matrices, finer ones where an error spreads furthest. The table and its rules
 * are in plan.c and docs/CONVERT.md.
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

/** @param name  as in --type, whatever its case. @return NULL: none */
const bt_convert_mix_t *bt_convert_mix_find(const char *name);
/** Names of all, for messages. @return NULL past the last */
const char *bt_convert_mix_name(uint32_t i);
#define BT_CONVERT_FILE_TYPE_STAYS UINT32_MAX

/** general.file_type of such a file (llama_ftype), or
 *  BT_CONVERT_FILE_TYPE_STAYS: every tensor has the type that it had. */
uint32_t bt_convert_mix_file_type(const bt_convert_mix_t *mix);

/** Has it blocks, in which errors are weighed? Else an importance matrix
 *  changes nothing. */
bool bt_convert_mix_weighs(const bt_convert_mix_t *mix);

/** One tensor's part of a plan. */
typedef struct bt_convert_step {
    const bt_gguf_tensor_t *tensor;
    uint32_t type;  /**< that it gets, one of quantize.h */
    bool is_narrow; /**< rows do not divide by the block of the type that the
                         mix asks for, which is: */
    uint32_t wanted;
    size_t bytes; /**< in the new file */
    uint64_t at;  /**< there, from the beginning of all tensors' data */
} bt_convert_step_t;

typedef struct bt_convert_plan {
    bt_convert_step_t *steps; /**< owned; in the order of the file */
    uint64_t n;
    uint64_t bytes; /**< of the data, with what is between */
} bt_convert_plan_t;

#define BT_CONVERT_ALIGNMENT 32u /**< bytes; what files have by default */

/**
 * @retval BT_ERR_OVERFLOW   sizes that no file can have
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_convert_plan_make(const bt_gguf_t *gguf,
                                               const bt_convert_mix_t *mix,
                                               bt_convert_plan_t *plan_p);
void bt_convert_plan_fini(bt_convert_plan_t *plan);

#endif
