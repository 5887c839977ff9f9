/* SPDX-License-Identifier: Apache-2.0 */
/** @file fit.h
 *
 * Least-squares searches shared by all quantized types. A run has n numbers, n
 * a multiple of 8 and at most BT_FIT_MAX; codes are integers stored as floats.
 */
#ifndef BT_CONVERT_FIT_H
#define BT_CONVERT_FIT_H

#include <stdbool.h>
#include <stdint.h>

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
