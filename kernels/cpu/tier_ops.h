/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_ops.h
 *
 * Operations of a vector tier other than matmul and attention, and the tier's
 * function table. A tier's file includes this header once, after the tier's
 * header, TIER_ID, TIER_NAME and the functions declared first here. Operations
 * without a hand-written version are body.h compiled for the tier.
 */
#ifndef BT_KERNELS_CPU_TIER_OPS_H
#define BT_KERNELS_CPU_TIER_OPS_H

#include <string.h>

/** Converts VEC floats to f16, bf16 (bt_f32_to_bf16()), int8 (to nearest,
 *  values within its range) and E4M3 (bt_f32_to_e4m3()); defined by the
 *  tier. */
static inline void vec_store_f16(uint16_t *at, vec_t v);
static inline void vec_store_bf16(uint16_t *at, vec_t v);
static inline void vec_store_i8(int8_t *at, vec_t v);
static inline void vec_store_e4m3(uint8_t *at, vec_t v);
/** Returns the bits of the largest magnitude of n values, n a multiple of VEC;
 *  defined by the tier. */
static inline uint32_t amax_bits(const float *x, uint32_t n);

static void to_f16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec_store_f16(out + i, vec_loadu(x + i));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_f16(x[i]);
    }
}

static void to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec_store_bf16(out + i, vec_loadu(x + i));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_bf16(x[i]);
    }
}

/* body_amax_bits() */
static uint32_t largest_bits(const float *x, uint32_t n)
{
    const uint32_t n_whole = n / VEC * VEC;

    return body_amax_bits(x + n_whole, n - n_whole, amax_bits(x, n_whole));
}

static float to_i8(const float *x, uint32_t n, int8_t *out)
{
    const uint32_t n_whole = n / VEC * VEC;
    const float scale = bt_code_scale(largest_bits(x, n), I8_MAX);
    uint32_t i;

    if (!(scale > 0.0f)) {
        for (i = 0; i < n; i++) {
            out[i] = 0;
        }
        return scale;
    }
    for (i = 0; i < n_whole; i += VEC) {
        vec_store_i8(out + i, vec_div(vec_loadu(x + i), vec_all(scale)));
    }
    for (; i < n; i++) {
        out[i] = bt_i8_code(x[i], scale);
    }
    return scale;
}

static float to_e4m3(const float *x, uint32_t n, uint8_t *out)
{
    const uint32_t n_whole = n / VEC * VEC;
    const float scale = bt_code_scale(largest_bits(x, n), E4M3_MAX);
    uint32_t i;

    if (!(scale > 0.0f)) {
        memset(out, 0, n);
        return scale;
    }
    for (i = 0; i < n_whole; i += VEC) {
        vec_store_e4m3(out + i, vec_div(vec_loadu(x + i), vec_all(scale)));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_e4m3(x[i] / scale);
    }
    return scale;
}

/* bt_gelu_erf() */
static inline vec_t vec_gelu_erf(vec_t x)
{
    const vec_t one = vec_all(1.0f);
    const vec_t y = vec_abs(x);
    const vec_t t = vec_div(one, vec_fma(y, vec_all(PHI_P), one));
    const vec_t e = vec_exp(vec_mul(vec_mul(y, vec_all(-0.5f)), y));
    vec_t q = vec_fma(vec_all(PHI_Q8), t, vec_all(PHI_Q7));

    q = vec_fma(q, t, vec_all(PHI_Q6));
    q = vec_fma(q, t, vec_all(PHI_Q5));
    q = vec_fma(q, t, vec_all(PHI_Q4));
    q = vec_fma(q, t, vec_all(PHI_Q3));
    q = vec_fma(q, t, vec_all(PHI_Q2));
    q = vec_fma(q, t, vec_all(PHI_Q1));
    q = vec_fma(q, t, vec_all(PHI_Q0));
    return vec_sub(vec_max(x, vec_zero()),
                   vec_mul(y, vec_mul(vec_mul(t, q), e)));
}

static inline vec_t vec_sigmoid_of(vec_t x, vec_t k)
{
    return vec_div(x, vec_add(vec_all(1.0f), vec_exp(vec_negate(k))));
}

/* bt_activated() */
static inline vec_t vec_activated(bt_activation_t act, vec_t x)
{
    switch (act) {
    case BT_ACT_GELU_TANH:
        return vec_sigmoid_of(x,
                              vec_mul(x, vec_fma(vec_mul(x, x), vec_all(GELU_2),
                                                 vec_all(GELU_1))));
    case BT_ACT_GELU_ERF:
        return vec_gelu_erf(x);
    case BT_ACT_RELU2:
        x = vec_max(x, vec_zero());
        return vec_mul(x, x);
    case BT_ACT_SWIGLU_OAI:
        x = vec_min(vec_all(OAI_LIMIT), x);
        return vec_sigmoid_of(x, vec_mul(x, vec_all(OAI_ALPHA)));
    case BT_ACT_SILU:
    default:
        return vec_sigmoid_of(x, x);
    }
}

/* bt_gate_factor() */
static inline vec_t vec_gate_factor(bt_activation_t act, vec_t up)
{
    if (act == BT_ACT_SWIGLU_OAI) {
        up = vec_max(vec_all(-OAI_LIMIT), vec_min(vec_all(OAI_LIMIT), up));
        return vec_add(up, vec_all(1.0f));
    }
    return up;
}

SPECIALIZE void activate_by(bt_activation_t act, const float *x,
                            const float *up, uint32_t n, float *out)
{
    uint32_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        const vec_t y = vec_activated(act, vec_loadu(x + i));

        vec_storeu(out + i,
                   (up == NULL)
                       ? y
                       : vec_mul(y, vec_gate_factor(act, vec_loadu(up + i))));
    }
    body_activate(act, x + i, (up == NULL) ? NULL : up + i, n - i, out + i);
}

static void activate(bt_activation_t act, const float *x, const float *up,
                     uint32_t n, float *out)
{
    if (act == BT_ACT_SILU) { /* in every layer of most models */
        activate_by(BT_ACT_SILU, x, up, n, out);
    } else {
        activate_by(act, x, up, n, out);
    }
}

static void soft_cap(float *x, float cap, size_t n)
{
    const vec_t factor = vec_all(2.0f / cap);
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        const vec_t e = vec_exp(vec_mul(vec_loadu(x + i), factor));
        const vec_t below = vec_div(vec_all(2.0f), vec_add(e, vec_all(1.0f)));

        vec_storeu(x + i, vec_mul(vec_all(cap), vec_sub(vec_all(1.0f), below)));
    }
    body_soft_cap(x + i, cap, n - i);
}

/** Function table of a vector tier except .direct_kv. */
#define TIER_OPS                                                          \
    .tier = TIER_ID, .name = TIER_NAME, .uses_tiles = true,               \
    .matmul = TIER(matmul), .matmul_bf16 = TIER(matmul_bf16),             \
    .matmul_q8 = TIER(matmul_q8), .quantize = TIER(quantize),             \
    .rmsnorm = body_rmsnorm, .layer_norm = body_layer_norm,               \
    .activate = activate, .scale = body_scale, .soft_cap = soft_cap,      \
    .clamp = body_clamp, .rope = body_rope, .load_keys = TIER(load_keys), \
    .load_values = TIER(load_values), .attn_tile = TIER(attn_tile),       \
    .add = body_add, .argmax = body_argmax, .to_f16 = to_f16,             \
    .to_bf16 = to_bf16, .to_i8 = to_i8, .to_e4m3 = to_e4m3,               \
    .lora_down = lora_down, .lora_up = lora_up, .route = body_route,      \
    .combine = body_combine

#endif
