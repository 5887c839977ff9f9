/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/fit.h"

#include <math.h>

#include "kernels/half.h"

#define LANES 8u
/* Adding and subtracting it rounds to an integer, ties to even, for numbers
 * below 2^22, in vector code of any instruction set. */
#define ROUNDER 12582912.0f
#define TINY    1e-30f /* smaller ones are 0: no inverse may overflow */

/* Candidates: the range of the run over this many codes more or less. */
#define STEPS      9
#define STEP_CODES 0.1f

/* A larger factor is not explained by the rounding of codes. */
#define MOST_LENGTH 1.05f

float bt_fit_f16(float value)
{
    return bt_f16_to_f32(bt_f32_to_f16(value));
}

static float sum_lanes(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

float bt_fit_codes(const bt_fit_run_t *run, float scale, float min,
                   float *codes)
{
    const float inverse = (fabsf(scale) < TINY) ? 0.0f : 1.0f / scale;
    const float low = run->low;
    const float high = run->high;
    float lane[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        const float *const x = run->x + i;
        const float *const w = run->w + i;
        float *const out = codes + i;

        for (uint32_t j = 0; j < LANES; j++) {
            float code = (x[j] - min) * inverse;
            float off;

            code = (code < low) ? low : code;
            code = (code > high) ? high : code;
            code = (code + ROUNDER) - ROUNDER;
            off = x[j] - (scale * code + min);
            out[j] = code;
            lane[j] += w[j] * off * off;
        }
    }
    return sum_lanes(lane);
}

/* Sums for least squares: of w, w q, w q^2, w x, w x q, w x^2. */
typedef struct sums {
    float w, q, qq, x, xq, xx;
} sums_t;

static sums_t sum_up(const bt_fit_run_t *run, const float *codes)
{
    float w[LANES] = {0};
    float q[LANES] = {0};
    float qq[LANES] = {0};
    float x[LANES] = {0};
    float xq[LANES] = {0};
    float xx[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            const float weight = run->w[i + j];
            const float code = codes[i + j];
            const float value = weight * run->x[i + j];

            w[j] += weight;
            q[j] += weight * code;
            qq[j] += weight * code * code;
            x[j] += value;
            xq[j] += value * code;
            xx[j] += value * run->x[i + j];
        }
    }
    return (sums_t){sum_lanes(w), sum_lanes(q),  sum_lanes(qq),
                    sum_lanes(x), sum_lanes(xq), sum_lanes(xx)};
}

static float stored(const bt_fit_run_t *run, float value)
{
    return run->as_f16 ? bt_fit_f16(value) : value;
}

/* Keeps (scale, min) if better than the best so far. */
static void consider(const bt_fit_run_t *run, float scale, float min,
                     float *codes, bt_fit_t *best)
{
    const float s = stored(run, scale);
    const float m = stored(run, min);
    const float error = bt_fit_codes(run, s, m, codes);

    if (error < best->error) {
        *best = (bt_fit_t){.scale = s, .min = m, .error = error};
    }
}

/* Returns the value of largest magnitude, with its sign. */
static float furthest(const bt_fit_run_t *run)
{
    float most = 0.0f;

    for (uint32_t i = 0; i < run->n; i++) {
        most = (fabsf(run->x[i]) > fabsf(most)) ? run->x[i] : most;
    }
    return most;
}

bt_fit_t bt_fit_scale(const bt_fit_run_t *run)
{
    /* The value furthest from 0 gets the code furthest from 0; where both ends
     * are equally far the scale is positive. */
    const bool is_even = (-run->low == run->high);
    const float most = is_even ? fabsf(furthest(run)) : furthest(run);
    const float end = (-run->low > run->high) ? run->low : run->high;
    bt_fit_t best = {.scale = 0.0f, .error = INFINITY};
    float codes[BT_FIT_MAX];

    consider(run, 0.0f, 0.0f, codes, &best);
    if (fabsf(most) < TINY) {
        return best;
    }
    for (int k = -STEPS; k <= STEPS; k++) {
        const float reach = fabsf(end) + STEP_CODES * (float)k;
        sums_t s;

        consider(run, most / copysignf(reach, end), 0.0f, codes, &best);
        s = sum_up(run, codes);
        if (s.qq > 0.0f) {
            consider(run, s.xq / s.qq, 0.0f, codes, &best);
        }
    }
    return best;
}

/* Least squares of scale and minimum for given codes. */
static void solve(const sums_t *s, bool min_below, float *scale_p, float *min_p)
{
    const float det = s->w * s->qq - s->q * s->q;
    float scale = 0.0f;
    float min = 0.0f;

    if (det > 0.0f) {
        scale = (s->w * s->xq - s->x * s->q) / det;
        min = (s->qq * s->x - s->q * s->xq) / det;
    }
    if ((det <= 0.0f) || (min_below && (min > 0.0f))) {
        scale = (s->qq > 0.0f) ? s->xq / s->qq : 0.0f;
        min = 0.0f;
    }
    *scale_p = scale;
    *min_p = min;
}

bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below)
{
    bt_fit_t best = {.error = INFINITY};
    float codes[BT_FIT_MAX];
    float low = run->x[0];
    float high = run->x[0];

    for (uint32_t i = 1; i < run->n; i++) {
        low = (run->x[i] < low) ? run->x[i] : low;
        high = (run->x[i] > high) ? run->x[i] : high;
    }
    if (min_below && (low > 0.0f)) {
        low = 0.0f;
    }
    consider(run, 0.0f, (min_below && (high < 0.0f)) ? high : low, codes,
             &best);
    consider(run, 0.0f, low, codes, &best);
    if (high - low < TINY) {
        return best;
    }
    for (int k = -STEPS; k <= STEPS; k++) {
        const float range = run->high + STEP_CODES * (float)k;
        sums_t s;
        float scale;
        float min;

        consider(run, (high - low) / range, low, codes, &best);
        s = sum_up(run, codes);
        solve(&s, min_below, &scale, &min);
        if (scale > 0.0f) {
            consider(run, scale, min, codes, &best);
        }
    }
    return best;
}

/* Least squares for given codes. */
static float error_of(const bt_fit_run_t *run, float scale, float min,
                      const float *codes)
{
    float lane[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            const float off = run->x[i + j] - (scale * codes[i + j] + min);

            lane[j] += run->w[i + j] * off * off;
        }
    }
    return sum_lanes(lane);
}

void bt_fit_lengthen(const bt_fit_run_t *run, bool has_min, const float *codes,
                     bt_fit_t *fit)
{
    const sums_t s = sum_up(run, codes);
    float scale = fit->scale;
    float min = fit->min;
    float error;

    if (has_min && (s.w * s.xq - s.x * s.q > 0.0f)) {
        scale = (s.w * s.xx - s.x * s.x) / (s.w * s.xq - s.x * s.q);
        min = (s.x - scale * s.q) / s.w;
    } else if (!has_min && (fabsf(s.xq) > 0.0f)) {
        scale = s.xx / s.xq;
    }
    scale = stored(run, scale);
    min = stored(run, min);
    error = error_of(run, scale, min, codes);
    if (error <= fit->error * MOST_LENGTH) {
        *fit = (bt_fit_t){.scale = scale, .min = min, .error = error};
    }
}

float bt_fit_length(double xx, double xy)
{
    const bool is_little = (xy > 0.0) && (xx <= xy * (double)MOST_LENGTH) &&
                           (xy <= xx * (double)MOST_LENGTH);

    return is_little ? (float)(xx / xy) : 1.0f;
}
