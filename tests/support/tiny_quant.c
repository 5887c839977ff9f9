/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_quant.h"

#include <math.h>
#include <string.h>

#include "inference/gguf/gguf.h"

enum {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_IQ1_M = 29,
    TYPE_BF16 = 30,
    TYPE_MXFP4 = 39,
    TYPE_NVFP4 = 40,
};

#define BLOCK 32 /* elements of the simple quantized types */

uint64_t bt_tiny_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint16_t bt_tiny_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t bt_tiny_f16(float value)
{
    uint32_t bits;
    uint32_t sign;
    uint32_t mantissa;
    int exponent;
    uint32_t drop; /* bits that do not fit */
    uint32_t half;

    memcpy(&bits, &value, sizeof(bits));
    sign = (bits >> 16) & 0x8000u;
    exponent = (int)((bits >> 23) & 0xFFu) - 127 + 15;
    mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    if (exponent >= 31) {
        return (uint16_t)(sign | 0x7C00u);
    }
    if (exponent < -10) {
        return (uint16_t)sign;
    }
    drop = (exponent > 0) ? 13u : (uint32_t)(14 - exponent);
    half = mantissa >> drop;
    if (exponent > 0) {
        half += ((uint32_t)exponent - 1u) << 10;
    }
    mantissa &= (1u << drop) - 1u;
    if ((mantissa > (1u << (drop - 1u))) ||
        ((mantissa == (1u << (drop - 1u))) && ((half & 1u) != 0))) {
        half++;
    }
    return (uint16_t)(sign | half);
}

static void put_u16(uint8_t *out, uint16_t value)
{
    memcpy(out, &value, sizeof(value));
}

static uint32_t round_clamped(float value, float max)
{
    const float r = roundf(value);

    return (uint32_t)((r < 0.0f) ? 0.0f : (r > max) ? max : r);
}

/* Low nibbles hold elements 0 .. 15, high ones 16 .. 31; qh, if any, the
 * fifth bits, one per element. */
static void put_nibbles(const uint32_t *q, uint8_t *qs, uint8_t *qh)
{
    uint32_t high = 0;

    for (size_t i = 0; i < BLOCK / 2; i++) {
        qs[i] = (uint8_t)((q[i] & 15u) | ((q[i + BLOCK / 2] & 15u) << 4));
    }
    for (size_t i = 0; i < BLOCK; i++) {
        high |= ((q[i] >> 4) & 1u) << i;
    }
    if (qh != NULL) {
        memcpy(qh, &high, sizeof(high));
    }
}

/* d * (q - 2^(bits-1)): the element of largest magnitude sits at q = 0. */
static void quantize_0(const float *x, unsigned bits, uint8_t *out)
{
    const float middle = (float)(1u << (bits - 1u));
    uint32_t q[BLOCK];
    float peak = 0.0f;
    float d;

    for (size_t i = 0; i < BLOCK; i++) {
        if (fabsf(x[i]) > fabsf(peak)) {
            peak = x[i];
        }
    }
    d = peak / -middle;
    for (size_t i = 0; i < BLOCK; i++) {
        q[i] = (d == 0.0f)
                   ? (uint32_t)middle
                   : round_clamped(x[i] / d + middle, 2.0f * middle - 1.0f);
    }
    put_u16(out, bt_tiny_f16(d));
    if (bits == 5) {
        put_nibbles(q, out + 6, out + 2);
    } else {
        put_nibbles(q, out + 2, NULL);
    }
}

/* d * q + m with m the smallest element. */
static void quantize_1(const float *x, unsigned bits, uint8_t *out)
{
    const float top = (float)((1u << bits) - 1u);
    uint32_t q[BLOCK];
    float low = x[0];
    float high = x[0];
    float d;

    for (size_t i = 1; i < BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    d = (high - low) / top;
    for (size_t i = 0; i < BLOCK; i++) {
        q[i] = (d == 0.0f) ? 0 : round_clamped((x[i] - low) / d, top);
    }
    put_u16(out, bt_tiny_f16(d));
    put_u16(out + 2, bt_tiny_f16(low));
    if (bits == 5) {
        put_nibbles(q, out + 8, out + 4);
    } else {
        put_nibbles(q, out + 4, NULL);
    }
}

static void quantize_8(const float *x, uint8_t *out)
{
    float peak = 0.0f;
    float d;

    for (size_t i = 0; i < BLOCK; i++) {
        peak = fmaxf(peak, fabsf(x[i]));
    }
    d = peak / 127.0f;
    put_u16(out, bt_tiny_f16(d));
    for (size_t i = 0; i < BLOCK; i++) {
        const int8_t q = (int8_t)((d == 0.0f) ? 0.0f : roundf(x[i] / d));

        out[2 + i] = (uint8_t)q;
    }
}

/* Types whose blocks are made of random bytes, but for the f16 d, and dmin
 * where there is one: what d is to the spread of the values, and dmin to d, so
 * that their mean is zero. (Spreads: of random blocks by the gguf package.) */
typedef struct random_type {
    uint32_t type;
    uint16_t d_at;
    uint16_t dmin_at; /* 0: none */
    float spread;     /* of the values where d is 1 */
    float dmin;       /* where d is 1 */
} random_type_t;

static const random_type_t random_types[] = {
    {10, 80, 82, 13.9f, 1.5f},   /* Q2_K */
    {11, 108, 0, 43.5f, 0.0f},   /* Q3_K */
    {12, 0, 2, 260.0f, 7.5f},    /* Q4_K */
    {13, 0, 2, 530.0f, 15.5f},   /* Q5_K */
    {14, 208, 0, 1370.0f, 0.0f}, /* Q6_K */
    {16, 0, 0, 53.5f, 0.0f},     /* IQ2_XXS */
    {17, 0, 0, 55.8f, 0.0f},     /* IQ2_XS */
    {18, 0, 0, 142.0f, 0.0f},    /* IQ3_XXS */
    {19, 0, 0, 7.2f, 0.0f},      /* IQ1_S */
    {20, 0, 0, 67.4f, 0.0f},     /* IQ4_NL */
    {21, 0, 0, 141.0f, 0.0f},    /* IQ3_S */
    {22, 0, 0, 56.3f, 0.0f},     /* IQ2_S */
    {23, 0, 0, 1244.0f, 0.0f},   /* IQ4_XS */
    {34, 52, 0, 0.82f, 0.0f},    /* TQ1_0 */
    {35, 64, 0, 1.23f, 0.0f},    /* TQ2_0 */
};

static const random_type_t *random_type(uint32_t type)
{
    for (size_t i = 0; i < sizeof(random_types) / sizeof(*random_types); i++) {
        if (random_types[i].type == type) {
            return &random_types[i];
        }
    }
    return NULL;
}

static void random_block(uint32_t type, float spread, size_t block_bytes,
                         uint64_t *random, uint8_t *out)
{
    const random_type_t *const r = random_type(type);
    int exponent = 0;
    uint16_t d;

    for (size_t i = 0; i < block_bytes; i++) {
        out[i] = (uint8_t)(bt_tiny_random(random) >> 32);
    }
    if (r != NULL) {
        put_u16(out + r->d_at, bt_tiny_f16(spread / r->spread));
        if (r->dmin_at != 0) {
            put_u16(out + r->dmin_at,
                    bt_tiny_f16(r->dmin * spread / r->spread));
        }
    } else if (type == TYPE_IQ1_M) { /* d's nibbles are the highest of four */
        d = bt_tiny_f16(spread / 7.2f);
        for (size_t i = 0; i < 4; i++) {
            out[49 + 2 * i] =
                (uint8_t)((out[49 + 2 * i] & 15) | ((d >> (4 * i)) & 15) << 4);
        }
    } else if (type == TYPE_MXFP4) { /* spread 2.6 where the scale is 1 */
        (void)frexpf(spread / 2.6f, &exponent);
        out[0] = (uint8_t)(127 + exponent);
    } else { /* NVFP4: four scales with three bits of fraction */
        (void)frexpf(spread / 3.9f, &exponent);
        for (size_t i = 0; i < 4; i++) {
            out[i] = (uint8_t)((out[i] & 7) | (7 + exponent) << 3);
        }
    }
}

static float spread_of(const float *x, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return (float)sqrt(sum / (double)n);
}

bt_status_t bt_tiny_quantize(uint32_t type, const float *x, size_t n,
                             uint64_t *random, uint8_t *out)
{
    uint32_t block_elems;
    uint32_t block_bytes;
    const bt_status_t status =
        bt_gguf_type_block(type, &block_elems, &block_bytes);

    if (status != BT_OK) {
        return status;
    }
    for (size_t i = 0; i < n; i += block_elems, out += block_bytes) {
        switch (type) {
        case TYPE_F32:
            memcpy(out, &x[i], sizeof(x[i]));
            break;
        case TYPE_F16:
            put_u16(out, bt_tiny_f16(x[i]));
            break;
        case TYPE_BF16:
            put_u16(out, bt_tiny_bf16(x[i]));
            break;
        case TYPE_Q4_0:
            quantize_0(&x[i], 4, out);
            break;
        case TYPE_Q5_0:
            quantize_0(&x[i], 5, out);
            break;
        case TYPE_Q4_1:
            quantize_1(&x[i], 4, out);
            break;
        case TYPE_Q5_1:
            quantize_1(&x[i], 5, out);
            break;
        case TYPE_Q8_0:
            quantize_8(&x[i], out);
            break;
        default:
            random_block(type, spread_of(&x[i], block_elems), block_bytes,
                         random, out);
            break;
        }
    }
    return BT_OK;
}
