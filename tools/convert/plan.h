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

/*
 * Least-squares searches shared by all quantized types. A run has n numbers, n
 * a multiple of 8 and at most BT_FIT_MAX; codes are integers stored as floats.
 */

#define BT_FIT_MAX 32u

typedef struct bt_fit {
    float scale;
    float min;
    float error; /**< weighted squared error */
} bt_fit_t;

/** Numbers to fit, and the range of their codes. */
typedef struct bt_fit_run {
    const float *x; /**< (n) */
    const float *w; /**< (n) weights, at least 0 */
    uint32_t n;
    float low; /**< least code; `high`: largest code */
    float high;
    bool as_f16; /**< scale and minimum are stored as F16: search among F16
                      values */
} bt_fit_run_t;

/** Computes the codes (n) nearest to (x - min) / scale.
 *  @return their weighted squared error */
float bt_fit_codes(const bt_fit_run_t *run, float scale, float min,
                   float *codes);

/** Fits x = scale * code, low < 0 < high, by least squares. */
bt_fit_t bt_fit_scale(const bt_fit_run_t *run);

/** Fits x = scale * code + min, low = 0, by least squares.
 *  @param min_below  min must be 0 or less */
bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below);

/**
 * Removes the shrinkage of a least-squares fit. Fitted numbers are shorter than
 * x by as much as their error is long, so the outputs of a matrix become a
 * little too small, and the effect adds up over the layers. For unchanged codes
 * this function sets the scale (and minimum) whose error is orthogonal to x,
 * and to 1 where there is a minimum. The squared error grows by its part along
 * x, which is of second order. If the change would be large, or F16 has no
 * value nearby, @a fit stays unchanged.
 *
 *     sum w x (x - y) = 0    y = scale * code + min
 *
 * @param [in]      has_min  affine, any minimum
 * @param [in]      codes    (n) codes of @a fit
 * @param [in,out]  fit
 */
void bt_fit_lengthen(const bt_fit_run_t *run, bool has_min, const float *codes,
                     bt_fit_t *fit);

/** Returns the factor that removes the shrinkage of a block of several runs.
 *  @param xx, xy  sums over the block of w x x and of w x y
 *  @return 1 where the change would be large */
float bt_fit_length(double xx, double xy);

/** Rounds to F16 and back; overflow becomes an infinity. */
float bt_fit_f16(float value);

#endif
