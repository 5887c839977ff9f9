/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "convert/quantize_priv.h"
#include "kernels/half.h"

#define F16_MOST  65504.0f
#define MAX_BLOCK 256u

void bt_quantize_put16(uint8_t *out, uint16_t value)
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
        bt_quantize_put16(high, (uint16_t)(fifth & 0xffffu));
        bt_quantize_put16(high + 2, (uint16_t)(fifth >> 16));
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
    bt_quantize_put16(out, bt_f32_to_f16(fit.scale));
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
    bt_quantize_put16(out, bt_f32_to_f16(fit.scale));
    bt_quantize_put16(out + 2, bt_f32_to_f16(fit.min));
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
static void block_mxfp4(const float *x, const float *w, uint8_t *out)
{
    uint32_t codes[32];
    double least = (double)INFINITY;
    float most = 0.0f;
    int top;
    int best = -127;

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
    bt_quantize_put16(out, (type == BT_QTYPE_F16) ? bt_f32_to_f16(*x)
                                                  : bt_f32_to_bf16(*x));
}

static void block_fp4(uint32_t type, const float *x, const float *w,
                      uint8_t *out)
{
    (void)type;
    block_mxfp4(x, w, out);
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
    {BT_QTYPE_MXFP4, 32, 17, block_fp4, FLT_MAX},
    {BT_QTYPE_Q4_K, 256, 144, bt_quantize_k45, F16_MOST},
    {BT_QTYPE_Q5_K, 256, 176, bt_quantize_k45, F16_MOST},
    {BT_QTYPE_Q6_K, 256, 210, bt_quantize_k6, F16_MOST},
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
