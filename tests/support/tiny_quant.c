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
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_BF16 = 30,
};

#define BLOCK   32  /* elements of the simple quantized types */
#define BLOCK_K 256 /* elements of the K-quants */

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

/* Scales 0 .. 63 (signed bytes for Q6_K) and quants are uniform, so the
 * spread follows from d alone: about 260 d for Q4_K, 530 d for Q5_K (with
 * dmin chosen so that the mean is zero), 1370 d for Q6_K. */
static void random_k_block(uint32_t type, float spread, size_t block_bytes,
                           uint64_t *random, uint8_t *out)
{
    for (size_t i = 0; i < block_bytes; i++) {
        out[i] = (uint8_t)(bt_tiny_random(random) >> 32);
    }
    if (type == TYPE_Q6_K) {
        put_u16(out + block_bytes - 2, bt_tiny_f16(spread / 1370.0f));
        return;
    }
    if (type == TYPE_Q4_K) {
        put_u16(out, bt_tiny_f16(spread / 260.0f));
        put_u16(out + 2, bt_tiny_f16(7.5f * spread / 260.0f));
        return;
    }
    put_u16(out, bt_tiny_f16(spread / 530.0f));
    put_u16(out + 2, bt_tiny_f16(15.5f * spread / 530.0f));
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
        case TYPE_Q4_K:
        case TYPE_Q5_K:
        case TYPE_Q6_K:
            random_k_block(type, spread_of(&x[i], BLOCK_K), block_bytes, random,
                           out);
            break;
        default:
            return BT_ERR_UNSUPPORTED;
        }
    }
    return BT_OK;
}
