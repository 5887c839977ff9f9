/* SPDX-License-Identifier: Apache-2.0 */
/** @file attn_tensor.h
 *
 * Work of a warp of attention_tensor.cu on a tile of 32 positions. The warp has
 * 16 (row, head) pairs of one sequence and one KV head, which are the rows of
 * its matrices; lane 4 g + t has pairs g and g + 8.
 *
 * The cache is stored in tensor core order (kernels.h): a word has two adjacent
 * k of a product. The assignment of the columns of a product is free, so lanes
 * read four adjacent words at a time:
 *
 *     scores    column c of product i is position 4 c + i of the tile, so a
 *               lane has positions 8 t .. 8 t + 7
 *     values    column c of product i is dimension 4 c + i of 32, so a lane has
 *               dimensions 8 t .. 8 t + 7 of these
 *
 * and the weights of positions 8 t + i, 8 t + i + 1 are a word of the next
 * product's A: no data goes through shared memory.
 *
 * F16 caches are multiplied as f16, all others as bf16; f16 queries are scaled
 * by a power of two.
 */
#ifndef BT_KERNELS_CUDA_ATTN_TENSOR_H
#define BT_KERNELS_CUDA_ATTN_TENSOR_H

#include <cmath>
#include <type_traits>

#include "kernels/cuda/attn_item.h"

namespace bt_attn
{

const uint32_t kPairs = 16; /* (row, head) pairs of a warp */
const uint32_t kPart = 128; /* positions whose values are one sum */
const uint32_t kAll = 0xffffffffu;

/** Value dimensions per warp. Longer values are split between two warps, as
 *  their sums would not fit in registers; each of the two computes all
 *  scores. */
template <uint32_t D> constexpr uint32_t kWidth = (D > 128) ? 128 : D;

template <bt_kv_type_t T>
constexpr bool kHasScales = (T == BT_KV_INT8) || (T == BT_KV_FP8);

/** Two adjacent elements of the cache, as stored. */
template <bt_kv_type_t T>
using Elems = std::conditional_t<kHasScales<T>, uint16_t, uint32_t>;

/** Four adjacent words of elements; two. */
template <bt_kv_type_t T> struct alignas(4 * sizeof(Elems<T>)) Four {
    Elems<T> of[4];
};
template <bt_kv_type_t T> struct alignas(2 * sizeof(Elems<T>)) Pair {
    Elems<T> of[2];
};

/** One lane's view of a warp's part of an item. */
struct Rows {
    uint32_t lane, g, t;
    uint32_t d;          /* first dimension of its values */
    uint32_t begin, end; /* positions visible to some pair; begin is even */
    uint32_t inner_begin, inner_end; /* positions visible to all pairs */
    uint32_t pair[2];                /* g and g + 8, of the item */
    uint32_t from[2], to[2];         /* positions visible to each pair */
    float slope[2], power[2];        /* power: divisor of the query's scaling */
};

/** Online softmax state of a part, with V dimensions of its values. */
template <uint32_t V> struct State {
    float max[2];
    float sum[2];        /* over the lane's positions */
    float acc[V / 8][4]; /* by products of 8 dimensions */
};

/* ---- numbers ---- */

inline __device__ float int8_value(uint32_t byte)
{
    return __fadd_rn(bt_f32_from_bits(0x4b000000u | (byte ^ 0x80u)),
                     -8388736.0f); /* 2^23 + 128 */
}

inline __device__ float e4m3_value(uint32_t bits)
{
    const uint32_t mag = bits & 0x7fu;
    const float x = __fmul_rn(bt_f32_from_bits(mag << 20), 0x1p120f);

    return (mag == 0x7fu)
               ? bt_f32_from_bits(0x7fc00000u)
               : bt_f32_from_bits((bits & 0x80u) << 24 | bt_f32_bits(x));
}

/** Converts two elements to operands of a product, exactly. */
template <bt_kv_type_t T> __device__ uint32_t word_of(Elems<T> elems)
{
    const uint32_t bits = elems;

    if constexpr (T == BT_KV_INT8) {
        return __byte_perm(bt_f32_bits(int8_value(bits & 0xffu)),
                           bt_f32_bits(int8_value(bits >> 8)), 0x7632);
    } else if constexpr (T == BT_KV_FP8) {
        return __byte_perm(bt_f32_bits(e4m3_value(bits & 0xffu)),
                           bt_f32_bits(e4m3_value(bits >> 8)), 0x7632);
    }
    return bits;
}

template <bt_kv_type_t T> __device__ uint32_t word_of(float low, float high)
{
    if (T == BT_KV_F16) {
        return bt_f32_to_f16(low) | static_cast<uint32_t>(bt_f32_to_f16(high))
                                        << 16;
    }
    return bt_f32_to_bf16(low) | static_cast<uint32_t>(bt_f32_to_bf16(high))
                                     << 16;
}

/** True when one of the halves of a word is infinite or NaN. */
template <bt_kv_type_t T> __device__ bool is_odd(uint32_t word)
{
    const uint32_t exponent = (T == BT_KV_F16) ? 0x7c00u : 0x7f80u;

    return ((word & exponent) == exponent) ||
           ((word >> 16 & exponent) == exponent);
}

template <bt_kv_type_t T>
__device__ __forceinline__ void multiply_halves(float (&sums)[4],
                                                const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    if constexpr (T == BT_KV_F16) {
        bt_mma_f16(sums, a, b, sums);
    } else {
        bt_mma_bf16(sums, a, b, sums);
    }
}

/* ---- the cache ---- */

/** Block and slot of a position. */
struct Spot {
    uint32_t id, slot; /* kNowhere: no pair of the warp sees it */
};

const uint32_t kNowhere = 0xffffffffu;

/** Returns the spot of position @a at + the lane's number. */
inline __device__ Spot find_spot(const Job &job, const Item &item,
                                 const Rows &rows, uint32_t at)
{
    const uint32_t position = at + rows.lane;
    Spot spot = {kNowhere, 0};

    if ((position >= rows.begin) && (position < rows.end)) {
        const uint32_t number = position / job.t;

        spot.id = bt_load(
            item.ids + static_cast<size_t>(number) * job.n_groups + job.group);
        spot.slot = position - number * job.t;
    }
    return spot;
}

/** Returns the spot found by lane @a from. The spot of an even position covers
 *  the next position too. */
inline __device__ Spot spot_of(const Spot &mine, uint32_t from)
{
    Spot spot;

    spot.id = __shfl_sync(kAll, mine.id, static_cast<int>(from));
    spot.slot = __shfl_sync(kAll, mine.slot, static_cast<int>(from));
    return spot;
}

inline __device__ const uint8_t *block_of(const Job &job, const Spot &spot)
{
    return job.base + spot.id * job.block_bytes;
}

/** Loads four adjacent words as two pairs at @a low and @a high, with one load
 *  where the pairs are contiguous (@a beside). NULL: zeros. */
template <bt_kv_type_t T>
__device__ __forceinline__ Four<T> load_four(const uint8_t *low,
                                             const uint8_t *high, bool beside)
{
    Four<T> four = {{0, 0, 0, 0}};

    if (beside) {
        if (low != nullptr) {
            four = bt_load(reinterpret_cast<const Four<T> *>(low));
        }
        return four;
    }
    if (low != nullptr) {
        const Pair<T> pair = bt_load(reinterpret_cast<const Pair<T> *>(low));

        four.of[0] = pair.of[0];
        four.of[1] = pair.of[1];
    }
    if (high != nullptr) {
        const Pair<T> pair = bt_load(reinterpret_cast<const Pair<T> *>(high));

        four.of[2] = pair.of[0];
        four.of[3] = pair.of[1];
    }
    return four;
}

/* ---- queries ---- */

/** Returns the index of word @a i of pair @a p in a warp's queries, which are
 *  [pair][D / 2]. 16-byte pieces are swizzled so that the rows of eight pairs
 *  begin in different banks. */
template <uint32_t D> __device__ uint32_t query_at(uint32_t p, uint32_t i)
{
    return p * (D / 2) + ((i / 4 ^ p % 8) * 4 + i % 4);
}

inline __device__ float magnitude_of(const float *q, uint32_t dim,
                                     uint32_t lane)
{
    float most = 0.0f;

    for (uint32_t d = lane; d < dim; d += 32) {
        const float x = fabsf(bt_load(q + d));

        most = ((x > most) && (x < INFINITY)) ? x : most;
    }
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
        const float x = __shfl_xor_sync(kAll, most, lanes);

        most = (x > most) ? x : most;
    }
    return most;
}

/** Returns the power of two that scales a magnitude to 2^14 .. 2^15, at most
 *  2^126. */
inline __device__ float power_for(float most)
{
    const int32_t exponent =
        14 + 127 - static_cast<int32_t>(bt_f32_bits(most) >> 23);

    return bt_f32_from_bits(
        static_cast<uint32_t>(((exponent > 126) ? 126 : exponent) + 127) << 23);
}

inline __device__ const float *query_of(const Job &job, const Item &item,
                                        uint32_t pair)
{
    const size_t row = item.row + pair / item.group;
    const size_t head = item.head + pair % item.group;

    return job.q + row * job.row_floats + head * job.dim;
}

/** Loads a warp's queries, from pair @a first on. Missing pairs have zeros, and
 *  their results are ignored. */
template <bt_kv_type_t T, uint32_t D>
__device__ void load_queries(const Job &job, const Item &item, uint32_t first,
                             uint32_t last, Rows *rows,
                             const bt_shared<uint32_t> &queries, uint32_t base)
{
    rows->power[0] = rows->power[1] = 1.0f;
    for (uint32_t p = 0; p < kPairs; p++) {
        const bool is_there = first + p <= last;
        const float *q = query_of(job, item, is_there ? first + p : last);
        float power = 1.0f;

        if ((T == BT_KV_F16) && is_there) {
            power = power_for(magnitude_of(q, job.dim, rows->lane));
            if (p % 8 == rows->g) {
                rows->power[p / 8] = __fdiv_rn(1.0f, power);
            }
        }
        for (uint32_t i = rows->lane; i < D / 2; i += 32) {
            float2 two = {0.0f, 0.0f};

            if (is_there && (2 * i < job.dim)) {
                two = bt_load(reinterpret_cast<const float2 *>(q) + i);
            }
            queries.set(
                base + query_at<D>(p, i),
                word_of<T>(__fmul_rn(two.x, power), __fmul_rn(two.y, power)));
        }
    }
    __syncwarp();
}

/** Computes the visible positions of the lane's pairs and of the warp. */
inline __device__ Rows rows_of(const Job &job, const Item &item, uint32_t first,
                               uint32_t last, uint32_t d)
{
    Rows rows;

    rows.d = d;
    rows.lane = threadIdx.x % 32;
    rows.g = rows.lane / 4;
    rows.t = rows.lane % 4;
    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t pair = first + rows.g + 8 * r;
        uint32_t position;

        rows.pair[r] = (pair < last) ? pair : last;
        position = item.pos + rows.pair[r] / item.group;
        rows.from[r] = first_seen(job.window, position);
        rows.to[r] = position + 1;
        rows.slope[r] =
            (job.slopes == nullptr)
                ? 0.0f
                : bt_load(job.slopes + item.head + rows.pair[r] % item.group);
    }
    rows.begin = first_seen(job.window, item.pos + first / item.group) / 2 * 2;
    rows.end = item.pos + last / item.group + 1;
    rows.inner_begin = first_seen(job.window, rows.end - 1);
    rows.inner_end = item.pos + first / item.group + 1;
    return rows;
}

/* ---- scores ---- */

/** Multiplies all pairs' queries with the tile's keys: sums[i] of positions 4 c
 *  + i. */
template <bt_kv_type_t T, uint32_t D>
__device__ __forceinline__ void
multiply_keys(const Job &job, const Item &item, const Rows &rows,
              const Spot &mine, const bt_shared<uint32_t> &queries,
              uint32_t base, float (&sums)[4][4])
{
    const bool beside = job.t % 4 == 0;
    const Spot low = spot_of(mine, 4 * rows.g);
    const Spot high = spot_of(mine, 4 * rows.g + 2);
    const size_t head = job.keys + static_cast<size_t>(item.kv_head) * job.t *
                                       job.dim * sizeof(Elems<T>) / 2;
    const uint32_t line = (rows.lane / 8 % 2) * 8 + rows.lane % 8;
    /* The first two of four adjacent positions may be invisible. */
    const bool is_low = low.id != kNowhere;
    const bool is_high = high.id != kNowhere;
    const bool by_high = beside && !is_low;
    const uint8_t *low_keys =
        block_of(job, by_high ? high : low) + head +
        (by_high ? high.slot - 2 : low.slot) * sizeof(Elems<T>);
    const uint8_t *high_keys =
        block_of(job, high) + head + high.slot * sizeof(Elems<T>);

    BT_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        sums[i / 4][i % 4] = 0.0f;
    }
#pragma unroll 4
    for (uint32_t step = 0; step < (job.dim + 15) / 16; step++) {
        Four<T> keys[2];
        uint32_t a[4];

        BT_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t two = 8 * step + rows.t + 4 * h;
            const size_t from =
                static_cast<size_t>(two) * job.t * sizeof(Elems<T>);
            const bool is_there = 2 * two < job.dim;

            keys[h] = load_four<T>(
                (is_there && (is_low || (by_high && is_high))) ? low_keys + from
                                                               : nullptr,
                (is_there && is_high) ? high_keys + from : nullptr, beside);
        }
        bt_ldmatrix(
            a, queries.address(
                   base + query_at<D>(line, 4 * (2 * step + rows.lane / 16))));
        BT_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t b[2] = {word_of<T>(keys[0].of[i]),
                                   word_of<T>(keys[1].of[i])};

            multiply_halves<T>(sums[i], a, b);
        }
    }
}

/** Returns the position, in the tile, of the lane's sum @a j of product i. */
inline __device__ uint32_t position_at(const Rows &rows, uint32_t i, uint32_t j)
{
    return 8 * rows.t + 4 * (j % 2) + i;
}

inline __device__ float score_of(const Job &job, const Rows &rows, uint32_t r,
                                 uint32_t position, float s)
{
    s = __fmul_rn(s, job.scale);
    if (job.soft_cap > 0.0f) {
        s = bt_soft_capped(s, job.soft_cap, job.cap_factor);
    }
    if (job.slopes != nullptr) { /* the distance is exact: below 2^24 */
        s = fmaf(rows.slope[r],
                 __fadd_rn(static_cast<float>(position),
                           -static_cast<float>(rows.to[r] - 1)),
                 s);
    }
    return s;
}

/** Loads the scales of keys or of values for the lane's positions. */
template <bt_kv_type_t T>
__device__ __forceinline__ void load_scales(const Job &job, const Item &item,
                                            const Rows &rows, const Spot &mine,
                                            size_t scales, float (&of)[8])
{
    float scale = 0.0f;

    if (!kHasScales<T>) {
        return;
    }
    if (mine.id != kNowhere) {
        scale = bt_load(reinterpret_cast<const float *>(
            block_of(job, mine) + scales +
            (static_cast<size_t>(item.kv_head) * job.t + mine.slot) *
                sizeof(float)));
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        of[i] = __shfl_sync(kAll, scale, static_cast<int>(8 * rows.t + i));
    }
}

/** Converts scores to weights in @a sums and updates the state.
 *  @param inner  all pairs see all positions */
template <bt_kv_type_t T, uint32_t V>
__device__ __forceinline__ void
weigh(const Job &job, const Item &item, const Rows &rows, uint32_t at,
      bool inner, const Spot &mine, float (&sums)[4][4], State<V> *state)
{
    float scales[8] = {};
    float corr[2];

    load_scales<T>(job, item, rows, mine, job.key_scales, scales);
    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        float max = state->max[r];
        float base;

        BT_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            float &s = sums[i / 2][2 * r + i % 2];
            const uint32_t j = position_at(rows, i / 2, i % 2);

            s = (T == BT_KV_F16) ? __fmul_rn(s, rows.power[r]) : s;
            s = kHasScales<T> ? __fmul_rn(s, scales[j % 8]) : s;
            s = score_of(job, rows, r, at + j, s);
            if (!inner && ((at + j < rows.from[r]) || (at + j >= rows.to[r]))) {
                s = -INFINITY;
            }
            max = (s > max) ? s : max;
        }
        BT_UNROLL
        for (uint32_t lanes = 1; lanes < 4; lanes *= 2) {
            const float other = __shfl_xor_sync(kAll, max, lanes);

            max = (other > max) ? other : max;
        }
        base = (max == -INFINITY) ? 0.0f : max;
        corr[r] = bt_expf(__fadd_rn(state->max[r], -base));
        state->max[r] = max;
        state->sum[r] = __fmul_rn(state->sum[r], corr[r]);
        BT_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            float &s = sums[i / 2][2 * r + i % 2];

            s = bt_expf(__fadd_rn(s, -base));
            state->sum[r] = __fadd_rn(state->sum[r], s);
        }
    }
    BT_UNROLL
    for (uint32_t i = 0; i < V / 2; i++) {
        float &sum = state->acc[i / 4][i % 4];

        sum = __fmul_rn(sum, corr[i % 4 / 2]);
    }
    load_scales<T>(job, item, rows, mine, job.value_scales, scales);
    BT_UNROLL
    for (uint32_t i = 0; kHasScales<T> && (i < 16); i++) {
        const uint32_t j = position_at(rows, i / 4, i % 4);
        float &s = sums[i / 4][i % 4];

        /* The scale of an invisible position may be any value. */
        s = (inner || ((at + j >= rows.from[i % 4 / 2]) &&
                       (at + j < rows.to[i % 4 / 2])))
                ? __fmul_rn(s, scales[j % 8])
                : 0.0f;
    }
}

/* ---- values ---- */

/** Returns the halves of a word of positions @a position (even) and @a position
 *  + 1 that are in from .. to - 1; zeros for others. */
inline __device__ uint32_t seen_of(uint32_t word, uint32_t position,
                                   uint32_t from, uint32_t to)
{
    word = ((position >= from) && (position < to)) ? word : word & 0xffff0000u;
    return ((position + 1 >= from) && (position + 1 < to)) ? word
                                                           : word & 0xffffu;
}

/** Multiplies weights with 32 dimensions of the tile's values when a value is
 *  infinite or NaN and not all pairs see all positions: a zero weight would not
 *  mask it. So each pair has a separate product, in which its invisible values
 *  are 0. */
template <bt_kv_type_t T, uint32_t V>
__device__ __forceinline__ void
add_odd_values(const Item &item, const Rows &rows, uint32_t window,
               uint32_t first, uint32_t last, uint32_t at, uint32_t tile,
               const uint32_t (&weights)[2][4], const uint32_t (&words)[4][4],
               State<V> *state)
{
    BT_NO_UNROLL
    for (uint32_t p = 0; p < kPairs; p++) {
        const uint32_t pair = (first + p < last) ? first + p : last;
        const uint32_t position = item.pos + pair / item.group;
        const uint32_t from = first_seen(window, position);
        const uint32_t to = position + 1;

        BT_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            float(&acc)[4] = state->acc[tile + i];
            float sums[4] = {acc[0], acc[1], acc[2], acc[3]};

            BT_UNROLL
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t pos = at + 8 * rows.t + 2 * half;
                const uint32_t b[2] = {
                    seen_of(words[half][i], pos, from, to),
                    seen_of(words[2 + half][i], pos + 4, from, to)};

                multiply_halves<T>(sums, weights[half], b);
            }
            BT_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                acc[j] = (p == rows.g + 8 * (j / 2)) ? sums[j] : acc[j];
            }
        }
    }
}

/** Loads the lane's words of 32 dimensions from @a d on, for positions 8 t + 2
 *  i and 8 t + 2 i + 1. Invisible values may be anything: their weight is 0,
 *  and add_odd_values() handles the remaining cases. */
template <bt_kv_type_t T>
__device__ __forceinline__ void
load_values(const Job &job, const Item &item, const Rows &rows,
            const Spot (&spots)[4], uint32_t d, uint32_t (&words)[4][4])
{
    const size_t head = job.values + static_cast<size_t>(item.kv_head) * job.t *
                                         job.dim * sizeof(Elems<T>) / 2;
    const uint32_t first = d + 4 * rows.g;
    Four<T> fours[4];

    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *from =
            block_of(job, spots[i]) + head +
            (static_cast<size_t>(spots[i].slot / 2) * job.dim + first) *
                sizeof(Elems<T>);
        const bool is_there = spots[i].id != kNowhere;

        fours[i] = load_four<T>(
            (is_there && (first < job.dim)) ? from : nullptr,
            (is_there && (first + 2 < job.dim)) ? from + 2 * sizeof(Elems<T>)
                                                : nullptr,
            job.dim % 4 == 0);
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        words[i / 4][i % 4] = word_of<T>(fours[i / 4].of[i % 4]);
    }
}

/** Multiplies a tile's weights with its values. */
template <bt_kv_type_t T, uint32_t V>
__device__ __forceinline__ void
add_values(const Job &job, const Item &item, const Rows &rows, uint32_t first,
           uint32_t last, uint32_t at, bool inner, const Spot (&spots)[4],
           const float (&sums)[4][4], State<V> *state)
{
    uint32_t weights[2][4];

    BT_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t j = i % 4 / 2 + i % 2 * 2; /* 0, 2, 1, 3 */

        weights[i / 4][i % 4] =
            word_of<T>(sums[i / 4 * 2][j], sums[i / 4 * 2 + 1][j]);
    }
    BT_UNROLL
    for (uint32_t d = 0; d < V; d += 32) {
        uint32_t words[4][4];
        bool odd = false;

        if (rows.d + d >= job.dim) {
            break;
        }
        load_values<T>(job, item, rows, spots, rows.d + d, words);
        BT_UNROLL
        for (uint32_t i = 0; !inner && (T != BT_KV_INT8) && (i < 16); i++) {
            odd = odd || is_odd<T>(words[i / 4][i % 4]);
        }
        if (!inner && (T != BT_KV_INT8) && __any_sync(kAll, odd)) {
            add_odd_values<T>(item, rows, job.window, first, last, at, d / 8,
                              weights, words, state);
            continue;
        }
        BT_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t half = i / 4;
            const uint32_t b[2] = {words[half][i % 4], words[2 + half][i % 4]};

            multiply_halves<T>(state->acc[d / 8 + i % 4], weights[half], b);
        }
    }
}

/** Adds a tile of 32 positions to the state. */
template <bt_kv_type_t T, uint32_t D>
__device__ __forceinline__ void
add_tile(const Job &job, const Item &item, const Rows &rows, uint32_t first,
         uint32_t last, uint32_t at, const bt_shared<uint32_t> &queries,
         uint32_t base, State<kWidth<D>> *state)
{
    const bool inner =
        (at >= rows.inner_begin) && (at + kTile <= rows.inner_end);
    const Spot mine = find_spot(job, item, rows, at);
    float sums[4][4];
    Spot spots[4];

    multiply_keys<T, D>(job, item, rows, mine, queries, base, sums);
    weigh<T>(job, item, rows, at, inner, mine, sums, state);
    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        spots[i] = spot_of(mine, 8 * rows.t + 2 * i);
    }
    add_values<T>(job, item, rows, first, last, at, inner, spots, sums, state);
}

} // namespace bt_attn

#endif
