/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/quantize/quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/half.h"

#define F16_MOST  65504.0f
#define MAX_BLOCK 256u

static void put16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)(value & 255u);
    out[1] = (uint8_t)(value >> 8);
}

/* Codes of 0 to 15, or to 31 with the fifth bits in @a high: elements 0..15
 * are low nibbles, 16..31 high ones. */
static void put_nibbles(const float *codes, float bias, uint8_t *qs,
                        uint8_t *high)
{
    uint32_t fifth = 0;

    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t a = (uint32_t)(codes[i] + bias);
        const uint32_t b = (uint32_t)(codes[i + 16] + bias);

        qs[i] = (uint8_t)((a & 15u) | ((b & 15u) << 4));
        fifth |= (a >> 4) << i;
        fifth |= (b >> 4) << (i + 16);
    }
    if (high != NULL) {
        put16(high, (uint16_t)(fifth & 0xffffu));
        put16(high + 2, (uint16_t)(fifth >> 16));
    }
}

/* Q4_0, Q5_0, Q8_0: scale f16, codes. */
static void block_scaled(uint32_t type, const float *x, const float *w,
                         uint8_t *out)
{
    const float half = (type == BT_QTYPE_Q4_0)   ? 8.0f
                       : (type == BT_QTYPE_Q5_0) ? 16.0f
                                                 : 128.0f;
    const bt_fit_run_t run = {.x = x,
                              .w = w,
                              .n = 32,
                              /* -128 is left out, as readers expect */
                              .low = (half == 128.0f) ? -127.0f : -half,
                              .high = half - 1.0f,
                              .as_f16 = true};
    bt_fit_t fit = bt_fit_scale(&run);
    float codes[BT_FIT_MAX];

    (void)bt_fit_codes(&run, fit.scale, 0.0f, codes);
    bt_fit_lengthen(&run, false, codes, &fit);
    put16(out, bt_f32_to_f16(fit.scale));
    if (type == BT_QTYPE_Q8_0) {
        for (uint32_t i = 0; i < 32; i++) {
            out[2 + i] = (uint8_t)(int8_t)codes[i];
        }
    } else if (type == BT_QTYPE_Q5_0) {
        put_nibbles(codes, half, out + 6, out + 2);
    } else {
        put_nibbles(codes, half, out + 2, NULL);
    }
}

/* Q4_1, Q5_1: scale f16, minimum f16, codes. */
static void block_affine(uint32_t type, const float *x, const float *w,
                         uint8_t *out)
{
    const bt_fit_run_t run = {.x = x,
                              .w = w,
                              .n = 32,
                              .low = 0.0f,
                              .high = (type == BT_QTYPE_Q4_1) ? 15.0f : 31.0f,
                              .as_f16 = true};
    bt_fit_t fit = bt_fit_affine(&run, false);
    float codes[BT_FIT_MAX];

    (void)bt_fit_codes(&run, fit.scale, fit.min, codes);
    bt_fit_lengthen(&run, true, codes, &fit);
    put16(out, bt_f32_to_f16(fit.scale));
    put16(out + 2, bt_f32_to_f16(fit.min));
    if (type == BT_QTYPE_Q5_1) {
        put_nibbles(codes, 0.0f, out + 8, out + 4);
    } else {
        put_nibbles(codes, 0.0f, out + 4, NULL);
    }
}

/* The code of E2M1 whose magnitude, 0 0.5 1 1.5 2 3 4 6, is nearest. */
static uint32_t e2m1_code(float magnitude)
{
    static const float between[] = {0.25f, 0.75f, 1.25f, 1.75f,
                                    2.5f,  3.5f,  5.0f};
    uint32_t code = 0;

    while ((code < BT_ARRAY_LEN(between)) && (magnitude > between[code])) {
        code++;
    }
    return code;
}

static double e2m1_error(const float *x, const float *w, int exponent,
                         uint32_t *codes)
{
    static const float values[] = {0.0f, 0.5f, 1.0f, 1.5f,
                                   2.0f, 3.0f, 4.0f, 6.0f};
    double error = 0.0;

    for (uint32_t i = 0; i < 32; i++) {
        const float magnitude = ldexpf(fabsf(x[i]), -exponent);
        double off;

        codes[i] = e2m1_code(magnitude);
        off = ldexp((double)values[codes[i]], exponent) - (double)fabsf(x[i]);
        error += (double)w[i] * off * off;
        codes[i] |= (x[i] < 0.0f) ? 8u : 0u;
    }
    return error;
}

/* MXFP4: exponent of two with a bias of 127, then E2M1 in nibbles. */
static void block_mxfp4(uint32_t type, const float *x, const float *w,
                        uint8_t *out)
{
    uint32_t codes[32];
    double least = (double)INFINITY;
    float most = 0.0f;
    int top;
    int best = -127;

    (void)type;
    for (uint32_t i = 0; i < 32; i++) {
        most = fmaxf(most, fabsf(x[i]));
    }
    if (most > 0.0f) {
        top = ilogbf(most) - 2; /* with it the largest is 4 to 8 */
        for (int e = top - 1; e <= top + 2; e++) {
            const int exponent = (e < -127) ? -127 : (e > 127) ? 127 : e;
            const double error = e2m1_error(x, w, exponent, codes);

            if (error < least) {
                least = error;
                best = exponent;
            }
        }
    }
    (void)e2m1_error(x, w, best, codes);
    out[0] = (uint8_t)(best + 127);
    for (uint32_t i = 0; i < 16; i++) {
        out[1 + i] = (uint8_t)(codes[i] | (codes[i + 16] << 4));
    }
}

static void block_f32(uint32_t type, const float *x, const float *w,
                      uint8_t *out)
{
    (void)w;
    (void)type;
    memcpy(out, x, sizeof(*x));
}

static void block_16(uint32_t type, const float *x, const float *w,
                     uint8_t *out)
{
    (void)w;
    put16(out, (type == BT_QTYPE_F16) ? bt_f32_to_f16(*x) : bt_f32_to_bf16(*x));
}

/* Blocks of 256 in groups, whose scales are integers times one F16 number of
 * the block. The search starts with the groups' best scales, then the block's
 * number. Then, for some rounds, it finds for each group the best integers near
 * its own, and with these a better number for the block by least squares. At
 * last the shrinkage of the block is removed. */

#define BLOCK  256u
#define ROUNDS 3
/* Integers to either side that are tried. */
#define NEAR 1

/* ---- Q4_K, Q5_K: x = d * scale * code - dmin * min, scale and min of 6 bits
 */

#define K45_GROUPS 8u
#define K45_GROUP  32u
#define K45_STEPS  63.0f

typedef struct k45 {
    float d;
    float dmin;
    float scale[K45_GROUPS]; /* integers */
    float min[K45_GROUPS];
    float error;
    float codes[BLOCK];
} k45_t;

static float clamp(float value, float low, float high)
{
    return (value < low) ? low : (value > high) ? high : value;
}

/* Finds the best integers of a group near its current ones. */
static void k45_settle_group(const bt_fit_run_t *run, k45_t *k, uint32_t g)
{
    const float scale = k->scale[g];
    const float min = k->min[g];
    float codes[K45_GROUP];
    float least = INFINITY;

    for (int a = -NEAR; a <= NEAR; a++) {
        for (int b = -NEAR; b <= NEAR; b++) {
            const float s = clamp(scale + (float)a, 0.0f, K45_STEPS);
            const float m = clamp(min + (float)b, 0.0f, K45_STEPS);
            const float error =
                bt_fit_codes(run, k->d * s, -(k->dmin * m), codes);

            if (error < least) {
                least = error;
                k->scale[g] = s;
                k->min[g] = m;
                memcpy(k->codes + (size_t)g * K45_GROUP, codes, sizeof(codes));
            }
        }
    }
    k->error += least;
}

static void k45_settle(const float *x, const float *w, float high, k45_t *k)
{
    k->error = 0.0f;
    for (uint32_t g = 0; g < K45_GROUPS; g++) {
        const bt_fit_run_t run = {.x = x + (size_t)g * K45_GROUP,
                                  .w = w + (size_t)g * K45_GROUP,
                                  .n = K45_GROUP,
                                  .high = high};

        k45_settle_group(&run, k, g);
    }
}

/* d and dmin by least squares over the block: x = d u - dmin v. */
static void k45_refit(const float *x, const float *w, k45_t *k)
{
    double uu = 0.0;
    double uv = 0.0;
    double vv = 0.0;
    double xu = 0.0;
    double xv = 0.0;
    double det;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const double weight = (double)w[i];
        const double u = (double)(k->scale[i / K45_GROUP] * k->codes[i]);
        const double v = (double)-k->min[i / K45_GROUP];

        uu += weight * u * u;
        uv += weight * u * v;
        vv += weight * v * v;
        xu += weight * (double)x[i] * u;
        xv += weight * (double)x[i] * v;
    }
    det = uu * vv - uv * uv;
    if (det > 1e-12 * uu * vv) {
        k->d = bt_fit_f16((float)((xu * vv - xv * uv) / det));
        k->dmin = bt_fit_f16((float)((xv * uu - xu * uv) / det));
    } else if (uu > 0.0) {
        k->d = bt_fit_f16((float)((xu + (double)k->dmin * -uv) / uu));
    }
}

static void k45_lengthen(const float *x, const float *w, k45_t *k)
{
    double xx = 0.0;
    double xy = 0.0;
    float length;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t g = i / K45_GROUP;
        const float y = k->d * k->scale[g] * k->codes[i] - k->dmin * k->min[g];
        const double wx = (double)w[i] * (double)x[i];

        xx += wx * (double)x[i];
        xy += wx * (double)y;
    }
    length = bt_fit_length(xx, xy);
    k->d = bt_fit_f16(k->d * length);
    k->dmin = bt_fit_f16(k->dmin * length);
}

static void k45_put(uint32_t type, const k45_t *k, uint8_t *out)
{
    uint8_t *const packed = out + 4;
    uint8_t *const high = out + 16; /* Q5_K only */
    uint8_t *const qs = out + ((type == BT_QTYPE_Q5_K) ? 48 : 16);

    memset(out, 0, (type == BT_QTYPE_Q5_K) ? 176 : 144);
    put16(out, bt_f32_to_f16(k->d));
    put16(out + 2, bt_f32_to_f16(k->dmin));
    for (uint32_t g = 0; g < K45_GROUPS; g++) {
        const uint32_t s = (uint32_t)k->scale[g];
        const uint32_t m = (uint32_t)k->min[g];

        if (g < 4) {
            packed[g] |= (uint8_t)s;
            packed[g + 4] |= (uint8_t)m;
        } else {
            packed[g + 4] = (uint8_t)((s & 15u) | ((m & 15u) << 4));
            packed[g - 4] |= (uint8_t)((s >> 4) << 6);
            packed[g] |= (uint8_t)((m >> 4) << 6);
        }
    }
    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t g = i / K45_GROUP;
        const uint32_t at = i % K45_GROUP;
        const uint32_t code = (uint32_t)k->codes[i];

        qs[g / 2 * 32 + at] |= (uint8_t)((code & 15u) << ((g & 1u) * 4u));
        if (type == BT_QTYPE_Q5_K) {
            high[at] |= (uint8_t)((code >> 4) << g);
        }
    }
}

static void quantize_k45(uint32_t type, const float *x, const float *w,
                         uint8_t *out)
{
    const float high = (type == BT_QTYPE_Q5_K) ? 31.0f : 15.0f;
    float most_scale = 0.0f;
    float most_min = 0.0f;
    bt_fit_t fits[K45_GROUPS];
    k45_t k = {.d = 0.0f};
    k45_t better;

    for (uint32_t g = 0; g < K45_GROUPS; g++) {
        const float *const at = x + (size_t)g * K45_GROUP;
        const bt_fit_run_t run = {.x = at,
                                  .w = w + (size_t)g * K45_GROUP,
                                  .n = K45_GROUP,
                                  .high = high};

        fits[g] = bt_fit_affine(&run, true);
        most_scale = fmaxf(most_scale, fits[g].scale);
        most_min = fmaxf(most_min, -fits[g].min);
    }
    k.d = bt_fit_f16(most_scale / K45_STEPS);
    k.dmin = bt_fit_f16(most_min / K45_STEPS);
    for (uint32_t g = 0; g < K45_GROUPS; g++) {
        k.scale[g] = (k.d > 0.0f)
                         ? clamp(rintf(fits[g].scale / k.d), 0.0f, K45_STEPS)
                         : 0.0f;
        k.min[g] = (k.dmin > 0.0f)
                       ? clamp(rintf(-fits[g].min / k.dmin), 0.0f, K45_STEPS)
                       : 0.0f;
    }
    k45_settle(x, w, high, &k);
    for (int round = 0; round < ROUNDS; round++) {
        better = k;
        k45_refit(x, w, &better);
        k45_settle(x, w, high, &better);
        if (!(better.error < k.error)) {
            break;
        }
        k = better;
    }
    k45_lengthen(x, w, &k);
    k45_put(type, &k, out);
}

/* ---- Q6_K: x = d * scale * code, scale of 8 bits with sign, code -32..31 */

#define K6_GROUPS 16u
#define K6_GROUP  16u

typedef struct k6 {
    float d;
    float scale[K6_GROUPS];
    float error;
    float codes[BLOCK];
} k6_t;

static void k6_settle(const float *x, const float *w, k6_t *k)
{
    k->error = 0.0f;
    for (uint32_t g = 0; g < K6_GROUPS; g++) {
        const size_t at = (size_t)g * K6_GROUP;
        const bt_fit_run_t run = {
            .x = x + at, .w = w + at, .n = K6_GROUP, .low = -32, .high = 31};
        const float scale = k->scale[g];
        float codes[K6_GROUP];
        float least = INFINITY;

        for (int a = -NEAR; a <= NEAR; a++) {
            const float s = clamp(scale + (float)a, -128.0f, 127.0f);
            const float error = bt_fit_codes(&run, k->d * s, 0.0f, codes);

            if (error < least) {
                least = error;
                k->scale[g] = s;
                memcpy(k->codes + at, codes, sizeof(codes));
            }
        }
        k->error += least;
    }
}

static void k6_refit(const float *x, const float *w, k6_t *k)
{
    double uu = 0.0;
    double xu = 0.0;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const double u = (double)(k->scale[i / K6_GROUP] * k->codes[i]);

        uu += (double)w[i] * u * u;
        xu += (double)w[i] * (double)x[i] * u;
    }
    if (uu > 0.0) {
        k->d = bt_fit_f16((float)(xu / uu));
    }
}

static void k6_lengthen(const float *x, const float *w, k6_t *k)
{
    double xx = 0.0;
    double xy = 0.0;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const float y = k->d * k->scale[i / K6_GROUP] * k->codes[i];
        const double wx = (double)w[i] * (double)x[i];

        xx += wx * (double)x[i];
        xy += wx * (double)y;
    }
    k->d = bt_fit_f16(k->d * bt_fit_length(xx, xy));
}

/* Two halves of 128, each four groups of 32 that share bytes: group g of a half
 * takes nibble g / 2 of ql[32 * (g % 2)] and bit pair g of qh. */
static void k6_put(const k6_t *k, uint8_t *out)
{
    memset(out, 0, 210);
    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t half = i / 128;
        const uint32_t g = i % 128 / 32;
        const uint32_t code = (uint32_t)(k->codes[i] + 32.0f);

        out[half * 64 + (g & 1u) * 32 + i % 32] |=
            (uint8_t)((code & 15u) << (g / 2 * 4));
        out[128 + half * 32 + i % 32] |= (uint8_t)((code >> 4) << (g * 2));
    }
    for (uint32_t g = 0; g < K6_GROUPS; g++) {
        out[192 + g] = (uint8_t)(int8_t)k->scale[g];
    }
    put16(out + 208, bt_f32_to_f16(k->d));
}

static void quantize_k6(uint32_t type, const float *x, const float *w,
                        uint8_t *out)
{
    float scales[K6_GROUPS];
    float most = 0.0f;
    k6_t k = {.d = 0.0f};
    k6_t better;

    (void)type;
    for (uint32_t g = 0; g < K6_GROUPS; g++) {
        const size_t at = (size_t)g * K6_GROUP;
        const bt_fit_run_t run = {
            .x = x + at, .w = w + at, .n = K6_GROUP, .low = -32, .high = 31};

        scales[g] = bt_fit_scale(&run).scale;
        most = (fabsf(scales[g]) > fabsf(most)) ? scales[g] : most;
    }
    /* The largest scale gets the step furthest from 0, which is -128. */
    k.d = bt_fit_f16(most / -128.0f);
    for (uint32_t g = 0; g < K6_GROUPS; g++) {
        k.scale[g] = (k.d != 0.0f)
                         ? clamp(rintf(scales[g] / k.d), -128.0f, 127.0f)
                         : 0.0f;
    }
    k6_settle(x, w, &k);
    for (int round = 0; round < ROUNDS; round++) {
        better = k;
        k6_refit(x, w, &better);
        k6_settle(x, w, &better);
        if (!(better.error < k.error)) {
            break;
        }
        k = better;
    }
    k6_lengthen(x, w, &k);
    k6_put(&k, out);
}

static const struct {
    uint32_t type;
    uint16_t n_elems;
    uint16_t n_bytes;
    void (*block)(uint32_t type, const float *x, const float *w, uint8_t *out);
    float most; /* largest magnitude that it can hold */
} types[] = {
    {BT_QTYPE_F32, 1, 4, block_f32, FLT_MAX},
    {BT_QTYPE_F16, 1, 2, block_16, F16_MOST},
    {BT_QTYPE_BF16, 1, 2, block_16, 0x1.fep127f},
    {BT_QTYPE_Q4_0, 32, 18, block_scaled, F16_MOST},
    {BT_QTYPE_Q5_0, 32, 22, block_scaled, F16_MOST},
    {BT_QTYPE_Q8_0, 32, 34, block_scaled, F16_MOST},
    {BT_QTYPE_Q4_1, 32, 20, block_affine, F16_MOST},
    {BT_QTYPE_Q5_1, 32, 24, block_affine, F16_MOST},
    {BT_QTYPE_MXFP4, 32, 17, block_mxfp4, FLT_MAX},
    {BT_QTYPE_Q4_K, 256, 144, quantize_k45, F16_MOST},
    {BT_QTYPE_Q5_K, 256, 176, quantize_k45, F16_MOST},
    {BT_QTYPE_Q6_K, 256, 210, quantize_k6, F16_MOST},
};

static size_t find(uint32_t type)
{
    size_t i = 0;

    while ((i < BT_ARRAY_LEN(types)) && (types[i].type != type)) {
        i++;
    }
    return i;
}

bt_status_t bt_quantize_block(uint32_t type, uint32_t *n_elems_p,
                              uint32_t *n_bytes_p)
{
    const size_t i = find(type);

    if (i == BT_ARRAY_LEN(types)) {
        return BT_ERR_UNSUPPORTED;
    }
    *n_elems_p = types[i].n_elems;
    *n_bytes_p = types[i].n_bytes;
    return BT_OK;
}

bt_status_t bt_quantize(uint32_t type, const float *x, const float *importance,
                        size_t n, uint8_t *out)
{
    const size_t t = find(type);
    float alike[MAX_BLOCK];

    if ((t == BT_ARRAY_LEN(types)) || (n % types[t].n_elems != 0)) {
        return BT_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return BT_ERR_INVALID_PARAM;
        }
        if (fabsf(x[i]) > types[t].most) {
            return BT_ERR_TOO_LARGE;
        }
    }
    for (size_t i = 0; i < MAX_BLOCK; i++) {
        alike[i] = 1.0f;
    }
    for (size_t i = 0; i < n; i += types[t].n_elems) {
        types[t].block(type, x + i,
                       (importance != NULL) ? importance + i : alike, out);
        out += types[t].n_bytes;
    }
    return BT_OK;
}
