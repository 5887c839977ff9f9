/* SPDX-License-Identifier: Apache-2.0 */
/** @file body.h
 *
 * Specification, in plain C, of every operation but matmul. Each tier compiles
 * this text with its own instruction set: all roundings are explicit (fmaf, and
 * no contraction elsewhere), so the bits are equal.
 *
 * A *lane sum* of n values: value i goes to lane i % 16, each lane sums in
 * ascending order, then lane j += lane j + 8, 4, 2, 1.
 */
#ifndef BT_KERNELS_CPU_BODY_H
#define BT_KERNELS_CPU_BODY_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/formula.h"
#include "kernels/half.h"

#define LANES 16u

static inline float lane_tree(float *lane)
{
    for (uint32_t half = LANES / 2; half > 0; half /= 2) {
        for (uint32_t i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* Lane sum of a[i] * b[i], each step one fused multiply-add. */
static inline float lane_dot(const float *a, const float *b, uint32_t n)
{
    float lane[LANES] = {0};
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            lane[j] = fmaf(a[i + j], b[i + j], lane[j]);
        }
    }
    for (uint32_t j = 0; i + j < n; j++) {
        lane[j] = fmaf(a[i + j], b[i + j], lane[j]);
    }
    return lane_tree(lane);
}

/* See bt_q8_group_t. The largest magnitude is found among bits, where NaN is
 * above infinity and infinity above all else. @return the sum of the codes */
static inline int32_t quantize_half(const float *x, int8_t *code, float *scale)
{
    uint32_t max_bits = 0;
    int32_t sum = 0;
    float max;
    float inverse;

    for (uint32_t i = 0; i < 16; i++) {
        uint32_t bits = bt_f32_bits(x[i]) & 0x7fffffffu;

        max_bits = (bits > max_bits) ? bits : max_bits;
    }
    max = bt_f32_from_bits(max_bits);
    inverse = 127.0f / max;
    if (!(max >= 0x1p-100f) || (max_bits >= 0x7f800000u)) {
        max = (max_bits >= 0x7f800000u) ? NAN : 0.0f;
        inverse = 0.0f;
    }
    for (uint32_t i = 0; i < 16; i++) {
        float v = x[i] * inverse; /* within 127 and a rounding of it */

        v = (v > -127.0f) ? v : -127.0f; /* NaN too */
        v = (v < 127.0f) ? v : 127.0f;
        code[i] = (int8_t)rintf(v);
        sum += code[i];
    }
    *scale = max / 127.0f;
    return sum;
}

/* Values derived from the sums of the halves' codes and their scales. */
static inline void finish_group(bt_q8_group_t *group, uint32_t bias,
                                int32_t low, int32_t high)
{
    group->sum =
        fmaf(group->scale[1], (float)high, group->scale[0] * (float)low);
    if (bias == 0) {
        group->sums[0] = group->scale[0] * (float)low;
        group->sums[1] = group->scale[1] * (float)high;
        return;
    }
    group->start[0] = -(int32_t)bias * low;
    group->start[1] = -(int32_t)bias * high;
}

static inline void quantize_group(const float *x, uint32_t bias,
                                  bt_q8_group_t *group)
{
    const int32_t low = quantize_half(x, group->code, &group->scale[0]);
    const int32_t high =
        quantize_half(x + 16, group->code + 16, &group->scale[1]);

    finish_group(group, bias, low, high);
}

static inline void body_quantize(const float *x, uint32_t n_in, uint32_t bias,
                                 bt_q8_group_t *groups)
{
    for (uint32_t g = 0; g < n_in / 32; g++) {
        quantize_group(x + (size_t)g * 32, bias, &groups[g]);
    }
}

static inline void body_rmsnorm(const float *x, const float *weight, float eps,
                                uint32_t dim, float *out)
{
    float mean = lane_dot(x, x, dim) / (float)dim;
    float factor = 1.0f / sqrtf(mean + eps);

    for (uint32_t i = 0; i < dim; i++) {
        out[i] = (x[i] * factor) * weight[i];
    }
}

/* Lane sum of x. */
static inline float lane_sum(const float *x, uint32_t n)
{
    float lane[LANES] = {0};
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (uint32_t j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    return lane_tree(lane);
}

/* out has the distances from the mean first. */
static inline void body_layer_norm(const float *x, const float *weight,
                                   const float *bias, float eps, uint32_t dim,
                                   float *out)
{
    const float mean = lane_sum(x, dim) / (float)dim;
    float factor;

    for (uint32_t i = 0; i < dim; i++) {
        out[i] = x[i] - mean;
    }
    factor = 1.0f / sqrtf(lane_dot(out, out, dim) / (float)dim + eps);
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = (out[i] * factor) * weight[i];
    }
    for (uint32_t i = 0; (bias != NULL) && (i < dim); i++) {
        out[i] += bias[i];
    }
}

static inline void body_rope(float *head, const float *cs, uint32_t dim,
                             bool interleaved)
{
    const uint32_t half = dim / 2;
    const uint32_t step = interleaved ? 2 : 1;
    const uint32_t other = interleaved ? 1 : half;

    for (uint32_t i = 0; i < half; i++) {
        float a = head[i * step];
        float b = head[i * step + other];
        float c = cs[2 * i];
        float s = cs[2 * i + 1];

        head[i * step] = fmaf(a, c, -(b * s));
        head[i * step + other] = fmaf(a, s, b * c);
    }
}

/* From scores from .. n - 1 to weights p and the new state:
 *     m' = max(m, all scores); p_j = exp(s_j - m')
 *     corr = exp(m - m'); sum' = fma(sum, corr, lane sum of p)
 * Returns corr. s and p are (32); all other p are set to 0. */
static inline float softmax_step(const float *s, uint32_t from, uint32_t n,
                                 bt_attn_state_t *state, float *p)
{
    float lane[LANES];
    float max = state->max;
    float corr;

    for (uint32_t j = from; j < n; j++) {
        max = (s[j] > max) ? s[j] : max;
    }
    for (uint32_t j = 0; j < BT_ATTN_TILE; j++) {
        float e = bt_expf(s[j] - max);

        p[j] = ((j >= from) && (j < n)) ? e : 0.0f;
    }
    for (uint32_t j = 0; j < LANES; j++) {
        lane[j] = p[j] + p[j + LANES];
    }
    corr = bt_expf(state->max - max);
    state->sum = fmaf(state->sum, corr, lane_tree(lane));
    state->max = max;
    return corr;
}

/* A cache element as bf16; for INT8 and FP8 the code. */
static inline uint16_t body_elem(bt_kv_type_t type, const void *elems, size_t i)
{
    switch (type) {
    case BT_KV_F16:
        return bt_f32_to_bf16(bt_f16_to_f32(((const uint16_t *)elems)[i]));
    case BT_KV_BF16:
        return ((const uint16_t *)elems)[i];
    case BT_KV_FP8:
        return bt_e4m3_to_bf16(((const uint8_t *)elems)[i]);
    default:
        return bt_f32_to_bf16((float)((const int8_t *)elems)[i]);
    }
}

static inline void body_load_keys(bt_kv_type_t type, const void *keys,
                                  size_t stride, uint32_t first, uint32_t n,
                                  uint32_t dim, uint16_t *out)
{
    for (uint32_t d = 0; d < dim; d += 2) {
        uint16_t *to = out + (size_t)d * BT_ATTN_TILE + 2 * (size_t)first;

        for (uint32_t i = 0; i < 2 * n; i++) {
            to[i] = body_elem(type, keys, d * stride + i);
        }
    }
}

static inline void body_load_values(bt_kv_type_t type, const void *values,
                                    uint32_t first, uint32_t n, uint32_t dim,
                                    uint16_t *out)
{
    const size_t whole = (size_t)(n + n % 2) * dim;

    out += (size_t)first * dim;
    for (size_t i = 0; i < whole; i++) {
        out[i] = body_elem(type, values, i);
    }
}

/* Two neighbouring bf16 as one word. */
static inline uint32_t bf16_pair(const uint16_t *p)
{
    return p[0] | (uint32_t)p[1] << 16;
}

/* One step of online softmax of pair i over its positions (a tile begins at a
 * multiple of 32, whatever the cache's block size): s_j = (sum of q_d k_jd by
 * bt_dot_bf16(), pairs of d ascending, from 0) (* the key's scale) * scale,
 * capped, less its slope times the distance, then softmax_step(), then acc =
 * acc * corr and, pairs of positions ascending, acc_d = bt_dot_bf16() of the
 * weights p_j (* the value's scale) and the values v_jd; a first or last
 * position without a partner has one of zeros.
 */
static inline void attn_pair(const bt_attn_tile_t *tile, uint32_t i)
{
    const uint32_t dim = tile->dim;
    const uint32_t from = tile->from[i];
    const uint32_t n = tile->n[i];
    const uint16_t *q = tile->q + (size_t)i * dim;
    const uint16_t *keys = tile->keys[0];
    const uint16_t *values = tile->values[0];
    const float *key_scales = tile->key_scales[0];
    const float *value_scales = tile->value_scales[0];
    float *acc = tile->acc + (size_t)i * dim;
    float s[BT_ATTN_TILE] = {0};
    float p[BT_ATTN_TILE];
    uint16_t weights[BT_ATTN_TILE] = {0};
    float corr;

    for (uint32_t d = 0; d < dim; d += 2) {
        for (uint32_t j = from; j < n; j++) {
            s[j] = bt_dot_bf16(
                bf16_pair(q + d),
                bf16_pair(keys + (size_t)d * BT_ATTN_TILE + 2 * j), s[j]);
        }
    }
    for (uint32_t j = from; j < n; j++) {
        s[j] *= (key_scales != NULL) ? key_scales[j] : 1.0f;
        s[j] *= tile->scale;
        if (tile->soft_cap > 0.0f) {
            s[j] = bt_soft_capped(s[j], tile->soft_cap, tile->cap_factor);
        }
        if (tile->sloped) { /* the distance is exact: below 2^24 */
            s[j] = fmaf(tile->slope[i], tile->before[i] + (float)j, s[j]);
        }
    }
    corr = softmax_step(s, from, n, &tile->state[i], p);
    for (uint32_t j = from; j < n; j++) {
        weights[j] = bt_f32_to_bf16(
            bt_or_zero((value_scales != NULL) ? p[j] * value_scales[j] : p[j]));
    }
    for (uint32_t d = 0; d < dim; d++) {
        acc[d] *= corr;
        for (uint32_t j = from / 2 * 2; j < n; j += 2) {
            const uint16_t *v = values + ((size_t)j / 2 * dim + d) * 2;
            const uint16_t pair[2] = {(j >= from) ? v[0] : 0,
                                      (j + 1 < n) ? v[1] : 0};

            acc[d] =
                bt_dot_bf16(bf16_pair(weights + j), bf16_pair(pair), acc[d]);
        }
    }
}

/* Always inlined: gcc drops calls of a function that only prefetches, as
 * without effect. */
__attribute__((always_inline)) static inline void
attn_ahead(const bt_attn_tile_t *tile, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; (i < end) && (i < tile->n_ahead); i++) {
        __builtin_prefetch(tile->ahead[i], 0, 2);
    }
}

static inline void body_attn_tile(const bt_attn_tile_t *tile)
{
    attn_ahead(tile, 0, BT_ATTN_AHEAD);
    for (uint32_t i = 0; i < tile->n_pairs; i++) {
        attn_pair(tile, i);
    }
}

static inline uint32_t body_amax_bits(const float *x, uint32_t n, uint32_t amax)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bt_f32_bits(x[i]) & 0x7fffffffu;

        amax = (bits > amax) ? bits : amax;
    }
    return amax;
}

/* One INT8 vector: see bt_kv_view_t. Returns the scale. */
static inline float body_to_i8(const float *x, uint32_t n, int8_t *out)
{
    float scale = bt_code_scale(body_amax_bits(x, n, 0), I8_MAX);

    for (uint32_t i = 0; i < n; i++) {
        out[i] = (scale > 0.0f) ? bt_i8_code(x[i], scale) : 0;
    }
    return scale;
}

/* One FP8 vector: see bt_kv_view_t. Returns the scale. */
static inline float body_to_e4m3(const float *x, uint32_t n, uint8_t *out)
{
    float scale = bt_code_scale(body_amax_bits(x, n, 0), E4M3_MAX);

    for (uint32_t i = 0; i < n; i++) {
        out[i] = (scale > 0.0f) ? bt_f32_to_e4m3(x[i] / scale) : 0;
    }
    return scale;
}

static inline void body_activate(bt_activation_t act, const float *x,
                                 const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float y = bt_activated(act, x[i]);

        out[i] = (up == NULL) ? y : y * bt_gate_factor(act, up[i]);
    }
}

static inline void body_scale(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static inline void body_soft_cap(float *x, float cap, size_t n)
{
    const float factor = 2.0f / cap;

    for (size_t i = 0; i < n; i++) {
        x[i] = bt_soft_capped(x[i], cap, factor);
    }
}

static inline void body_clamp(float *x, float limit, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (x[i] < -limit) ? -limit : x[i];
        x[i] = (x[i] > limit) ? limit : x[i];
    }
}

/* See argmax() in kernels.h. Several lanes, because a single running maximum is
 * a dependency chain; then the first index with the maximum. */
static inline uint32_t body_argmax(const float *x, uint32_t n)
{
    float best[4 * LANES];
    uint32_t i;
    uint32_t id = 0;

    for (uint32_t j = 0; j < 4 * LANES; j++) {
        best[j] = -INFINITY;
    }
    for (i = 0; n - i >= 4 * LANES; i += 4 * LANES) {
        for (uint32_t j = 0; j < 4 * LANES; j++) {
            best[j] = (x[i + j] > best[j]) ? x[i + j] : best[j];
        }
    }
    for (; i < n; i++) {
        best[0] = (x[i] > best[0]) ? x[i] : best[0];
    }
    for (uint32_t j = 1; j < 4 * LANES; j++) {
        best[0] = (best[j] > best[0]) ? best[j] : best[0];
    }
    while ((best[0] > -INFINITY) && (x[id] != best[0])) {
        id++;
    }
    return id;
}

static inline float lora_value(bt_ktype_t type, const void *matrix, size_t i)
{
    switch (type) {
    case BT_KTYPE_F16:
        return bt_f16_to_f32(((const uint16_t *)matrix)[i]);
    case BT_KTYPE_BF16:
        return bt_bf16_to_f32(((const uint16_t *)matrix)[i]);
    default:
        return ((const float *)matrix)[i];
    }
}

static inline void body_lora_down(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const group = tile->group;
    const bt_lora_step_t *const step = tile->step;
    const size_t lanes = bt_lora_rank_lanes(group->rank);

    for (size_t r = 0; r < tile->n_rows; r++) {
        for (size_t j = 0; j < group->rank; j++) {
            float s[BT_LORA_SUMS] = {0};

            for (size_t k = 0; k < bt_lora_rows_in(step->n_in); k++) {
                const float x =
                    (k < step->n_in) ? tile->x[r * step->n_in + k] : 0.0f;
                float *const sum = &s[k % BT_LORA_SUMS];

                *sum = fmaf(x, lora_value(group->type, group->a, k * lanes + j),
                            *sum);
            }
            tile->down[r * step->max_rank + j] = (s[0] + s[2]) + (s[1] + s[3]);
        }
    }
}

static inline void body_lora_up(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const group = tile->group;
    const bt_lora_step_t *const step = tile->step;
    const size_t lanes = bt_lora_lanes(step->n_out);

    for (size_t r = 0; r < tile->n_rows; r++) {
        float *const y = tile->y + r * step->row_floats + step->at;

        for (size_t o = tile->first; o < tile->end; o++) {
            float sum = 0.0f;

            for (size_t j = 0; j < group->rank; j++) {
                sum =
                    fmaf(tile->down[r * step->max_rank + j],
                         lora_value(group->type, group->b, j * lanes + o), sum);
            }
            y[o] = fmaf(group->scale, sum, y[o]);
        }
    }
}

static inline void body_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] += y[i];
    }
}

/* True when gate value a is chosen before b of a higher number. */
static inline bool body_is_better(float a, float b)
{
    return (a > b) || ((b != b) && (a == a));
}

/* Lane sum of x. */
static inline float body_lane_sum(const float *x, uint32_t n)
{
    float lane[LANES] = {0};

    for (uint32_t i = 0; i < n; i++) {
        lane[i % LANES] += x[i];
    }
    return lane_tree(lane);
}

/* Gate values g of scores z. */
static inline void body_gates(bt_gating_t gating, const float *z, uint32_t n,
                              float *g)
{
    float most = z[0];
    float sum;

    switch (gating) {
    case BT_GATING_CHOSEN:
        memcpy(g, z, n * sizeof(*g));
        return;
    case BT_GATING_SIGMOID:
        for (uint32_t e = 0; e < n; e++) {
            g[e] = 1.0f / (1.0f + bt_expf(-z[e]));
        }
        return;
    case BT_GATING_SOFTMAX:
        break;
    }
    for (uint32_t e = 1; e < n; e++) {
        most = (z[e] > most) ? z[e] : most;
    }
    for (uint32_t e = 0; e < n; e++) {
        g[e] = bt_expf(z[e] - most);
    }
    sum = body_lane_sum(g, n);
    for (uint32_t e = 0; e < n; e++) {
        g[e] = g[e] / sum;
    }
}

/* Ids of the k largest gate values with their bias, ascending. */
static inline void body_choose(const bt_routing_t *routing, const float *g,
                               uint32_t *ids)
{
    const float *const bias = routing->bias;
    bool chosen[BT_MAX_EXPERTS] = {false};
    uint32_t n = 0;

    for (uint32_t k = 0; k < routing->n_used; k++) {
        uint32_t best = UINT32_MAX;
        float most = 0.0f;

        for (uint32_t e = 0; e < routing->n_experts; e++) {
            const float value = (bias == NULL) ? g[e] : g[e] + bias[e];

            if (!chosen[e] &&
                ((best == UINT32_MAX) || body_is_better(value, most))) {
                best = e;
                most = value;
            }
        }
        chosen[best] = true;
    }
    for (uint32_t e = 0; n < routing->n_used; e++) {
        if (chosen[e]) {
            ids[n++] = e;
        }
    }
}

/* See route() in kernels.h. */
static inline void body_route(const bt_routing_t *routing, const float *z,
                              uint32_t *ids, float *weights)
{
    const uint32_t k = routing->n_used;
    float g[BT_MAX_EXPERTS];
    bool is_nan = false;
    float sum = 0.0f;

    for (uint32_t e = 0; e < routing->n_experts; e++) {
        is_nan = is_nan || (z[e] != z[e]);
    }
    body_gates(routing->gating, z, routing->n_experts, g);
    body_choose(routing, g, ids);
    for (uint32_t i = 0; i < k; i++) {
        weights[i] = g[ids[i]];
    }
    if (routing->gating == BT_GATING_CHOSEN) {
        float most = weights[0];

        for (uint32_t i = 1; i < k; i++) {
            most = (weights[i] > most) ? weights[i] : most;
        }
        for (uint32_t i = 0; i < k; i++) {
            weights[i] = bt_expf(weights[i] - most);
        }
    }
    for (uint32_t i = 0; i < k; i++) {
        sum += weights[i];
    }
    sum = (routing->gating == BT_GATING_CHOSEN) ? sum : sum + routing->least;
    for (uint32_t i = 0; i < k; i++) {
        if (routing->normed || (routing->gating == BT_GATING_CHOSEN)) {
            weights[i] = weights[i] / sum;
        }
        weights[i] = is_nan ? NAN : weights[i] * routing->scale;
    }
}

/* One piece of the lanes' width: leaves, then their tree. */
static inline void combine_lanes(const bt_expert_sum_t *sum, uint32_t n_leaves,
                                 size_t at, uint32_t n, float *out)
{
    float leaf[BT_EXPERT_LEAVES][LANES] = {{0}};

    for (uint32_t k = 0; k < sum->n; k++) {
        const float *const x = sum->x[k] + at;
        float *const acc = leaf[sum->leaf[k]];

        for (uint32_t j = 0; j < n; j++) {
            acc[j] = fmaf(sum->weight[k], x[j], acc[j]);
        }
    }
    for (uint32_t step = 1; step < n_leaves; step *= 2) {
        for (uint32_t p = 0; p < n_leaves; p += 2 * step) {
            for (uint32_t j = 0; j < LANES; j++) {
                leaf[p][j] += leaf[p + step][j];
            }
        }
    }
    memcpy(out, leaf[0], n * sizeof(*out));
}

static inline void combine_leaves(const bt_expert_sum_t *sum, uint32_t n_leaves,
                                  uint32_t dim, float *out)
{
    uint32_t i = 0;

    for (; i + LANES <= dim; i += LANES) {
        combine_lanes(sum, n_leaves, i, LANES, out + i);
    }
    if (i < dim) {
        combine_lanes(sum, n_leaves, i, dim - i, out + i);
    }
}

/* See combine() in kernels.h. */
static inline void body_combine(const bt_expert_sum_t *sum, uint32_t dim,
                                float *out)
{
    if (sum->n_leaves == BT_EXPERT_LEAVES) { /* a loop of known length */
        combine_leaves(sum, BT_EXPERT_LEAVES, dim, out);
    } else {
        combine_leaves(sum, sum->n_leaves, dim, out);
    }
}

#endif
