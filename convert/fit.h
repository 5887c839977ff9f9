/* SPDX-License-Identifier: Apache-2.0 */
/** @file fit.h
 *
 * The searches that all types share. Runs of n numbers, n a multiple of 8 and
 * at most BT_FIT_MAX; codes are whole numbers in floats.
 */
#ifndef BT_CONVERT_FIT_H
#define BT_CONVERT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#define BT_FIT_MAX 32u

typedef struct bt_fit {
    float scale;
    float min;
    float error; /**< weighted, squared */
} bt_fit_t;

/** A run and what its codes may be. */
typedef struct bt_fit_run {
    const float *x; /**< (n) */
    const float *w; /**< (n) weights, at least 0 */
    uint32_t n;
    float low; /**< least code and largest */
    float high;
    bool as_f16; /**< scale and minimum will be stored so: search among these */
} bt_fit_run_t;

/** Codes (n) nearest to (x - min) / scale. @return their weighted error */
float bt_fit_codes(const bt_fit_run_t *run, float scale, float min,
                   float *codes);

/** x = scale * code, low < 0 < high: least squares. */
bt_fit_t bt_fit_scale(const bt_fit_run_t *run);

/** x = scale * code + min, low = 0: least squares.
 *  @param min_below  min must be 0 or less */
bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below);

/**
 * What least squares found, without their shrinking: their numbers are shorter
 * than x by as much as their error is long, so that all that a matrix gives is
 * a little too small, layer upon layer in the same direction. For the same
 * codes this is the scale (and minimum) whose error stands upright on x, and on
 * 1 where there is a minimum; the squared error is larger by the part of x
 * that it is, which is second order. Where that is much, or F16 has nothing
 * near, @a fit stays.
 *
 *     sum w x (x - y) = 0    y = scale * code + min
 *
 * @param [in]      has_min  affine, any minimum
 * @param [in]      codes    (n) of @a fit
 * @param [in,out]  fit
 */
void bt_fit_lengthen(const bt_fit_run_t *run, bool has_min, const float *codes,
                     bt_fit_t *fit);

/** The factor by which a block of several runs is to be lengthened.
 *  @param xx, xy  sums over the block of w x x and of w x y
 *  @return 1 where it would be much */
float bt_fit_length(double xx, double xy);

/** To F16 and back; too large becomes an infinity. */
float bt_fit_f16(float value);

#endif
