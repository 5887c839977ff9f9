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

/** x = scale * code, low < 0 < high. */
bt_fit_t bt_fit_scale(const bt_fit_run_t *run);

/** x = scale * code + min, low = 0.
 *  @param min_below  min must be 0 or less */
bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below);

/** To F16 and back; too large becomes an infinity. */
float bt_fit_f16(float value);

#endif
