/* SPDX-License-Identifier: Apache-2.0 */
/** @file attn_steps.h
 *
 * Steps of a thread block of attention.cu on a span of positions, each between
 * two barriers.
 */
#ifndef BT_KERNELS_CUDA_ATTN_STEPS_H
#define BT_KERNELS_CUDA_ATTN_STEPS_H

#include <cmath>
#include <type_traits>

#include "kernels/cuda/attn_item.h"

namespace bt_attn
{

/* ---- products ---- */

/* Two adjacent elements of the cache, as stored. */
template <bt_kv_type_t T>
using Raw = std::conditional_t<(T == BT_KV_F16) || (T == BT_KV_BF16), uint32_t,
                               uint16_t>;

/* The elements as bf16 (INT8 and FP8: the codes), without subnormal numbers. */
struct Two {
    float low, high;
};

/* A small float becomes binary32 by shifting its bits and multiplying by a
 * power of two, which is exact, for subnormal numbers too. */
inline __device__ float widened(uint32_t bits, uint32_t shift, float power)
{
    return __fmul_rn(bt_f32_from_bits(bits << shift), power);
}

/* bt_f16_to_f32() rounded to bf16; the result is never subnormal. */
inline __device__ float f16_elem(uint32_t bits)
{
    const uint32_t mag = bits & 0x7fffu;
    const float x = (mag < 0x7c00u) ? widened(mag, 13, 0x1p112f)
                                    : bt_f32_from_bits(0x7f800000u | mag << 13);

    return bt_bf16_to_f32(bt_f32_to_bf16(
        bt_f32_from_bits((bits & 0x8000u) << 16 | bt_f32_bits(x))));
}

/* bt_e4m3_to_bf16() */
inline __device__ float e4m3_elem(uint32_t bits)
{
    const uint32_t mag = bits & 0x7fu;
    const float x = widened(mag, 20, 0x1p120f);

    return (mag == 0x7fu)
               ? bt_f32_from_bits(0x7fc00000u)
               : bt_f32_from_bits((bits & 0x80u) << 24 | bt_f32_bits(x));
}

template <bt_kv_type_t T> __device__ float elem_of(uint32_t bits)
{
    switch (T) {
    case BT_KV_F16:
        return f16_elem(bits);
    case BT_KV_BF16:
        return bt_or_zero(bt_f32_from_bits(bits << 16));
    case BT_KV_FP8:
        return e4m3_elem(bits);
    case BT_KV_INT8:
    default:
        return static_cast<float>(static_cast<int8_t>(bits));
    }
}

template <bt_kv_type_t T> __device__ Two two_of(Raw<T> raw)
{
    const uint32_t bits = raw;
    const uint32_t width = 4 * sizeof(raw);

    return Two{elem_of<T>(bits & ((1u << width) - 1)),
               elem_of<T>(bits >> width)};
}

/* One step of a sum: bt_dot_bf16() of two words, without subnormal numbers. */
inline __device__ float add_exactly(uint32_t word, Two two, float sum)
{
    sum = bt_fma_flushed(bt_bf16_high(word), two.high, sum);
    return bt_fma_flushed(bt_bf16_low(word), two.low, sum);
}

/* N such sums at once, by plain products. Equal to add_exactly() unless a sum
 * is below 2^-126, which is rare. @return false: one was, and the sums are
 * invalid */
template <uint32_t N>
__device__ bool add_products(const Words<N> &words, Two two, float *sums)
{
    bool is_plain = true;

#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const float sum = fmaf(bt_bf16_high(words.w[i]), two.high, sums[i]);

        sums[i] = fmaf(bt_bf16_low(words.w[i]), two.low, sum);
        is_plain =
            is_plain & (fabsf(sum) > 0x1p-126f) & (fabsf(sums[i]) > 0x1p-126f);
    }
    return is_plain;
}

/* Replaces P sums by their new values if these are valid. */
template <uint32_t P>
__device__ bool take(bool is_plain, const float *next, float *sums)
{
#pragma unroll
    for (uint32_t i = 0; i < P; i++) {
        sums[i] = is_plain ? next[i] : sums[i];
    }
    return is_plain;
}

/* ---- a span ---- */

/* Lookup results for a thread's position, kept from the scores for later. */
struct Source {
    size_t values;
    float value_scale;
    bool is_seen; /* visible to some pair, or the neighbour is */
};

/* kAhead steps of all pairs' scores at once, from word i on. */
template <bt_kv_type_t T, uint32_t P>
__device__ bool multiply_ahead(const Raw<T> *keys, uint32_t stride, uint32_t i,
                               float *s)
{
    const uint32_t n_quads = P / kBeside<P>;
    const auto queries = queries_of<P>();
    Raw<T> raw[kAhead];
    float next[P];
    bool is_plain = take<P>(true, s, next);

#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
        raw[k] = bt_load(keys + static_cast<size_t>(i + k) * stride);
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
        const Two two = two_of<T>(raw[k]);

#pragma unroll
        for (uint32_t g = 0; g < n_quads; g++) {
            is_plain &= add_products(queries.get((i + k) * n_quads + g), two,
                                     next + g * kBeside<P>);
        }
    }
    return take<P>(is_plain, next, s);
}

/* Sums of the products of all queries and a key whose words are stride words
 * apart. */
template <bt_kv_type_t T, uint32_t P>
__device__ void multiply(const Raw<T> *keys, uint32_t stride, uint32_t n_words,
                         float *s)
{
    const uint32_t n_quads = P / kBeside<P>;
    const auto queries = queries_of<P>();

    for (uint32_t i = 0; i < n_words; i += kAhead) {
        if ((i + kAhead <= n_words) &&
            multiply_ahead<T, P>(keys, stride, i, s)) {
            continue;
        }
#pragma unroll 1
        for (uint32_t k = i; (k < i + kAhead) && (k < n_words); k++) {
            const Two two =
                two_of<T>(bt_load(keys + static_cast<size_t>(k) * stride));

#pragma unroll
            for (uint32_t p = 0; p < P; p++) {
                s[p] = add_exactly(
                    queries.get(k * n_quads + p / kBeside<P>).w[p % kBeside<P>],
                    two, s[p]);
            }
        }
    }
}

/* Score of pair p from its product. */
template <uint32_t P>
__device__ float score_of(const Job &job, const Item &item, uint32_t p,
                          uint32_t position, float s)
{
    s = __fmul_rn(s, job.scale);
    if (job.soft_cap > 0.0f) {
        s = bt_soft_capped(s, job.soft_cap, job.cap_factor);
    }
    if (job.slopes != nullptr) { /* the distance is exact: below 2^24 */
        const uint32_t head = item.head + (item.first + p) % item.group;
        const uint32_t last = ends_of<P>().get(p) - 1;

        s = fmaf(
            bt_load(job.slopes + head),
            __fadd_rn(static_cast<float>(position), -static_cast<float>(last)),
            s);
    }
    return s;
}

template <bt_kv_type_t T, uint32_t P>
__device__ Source score(const Job &job, const Item &item, uint32_t at)
{
    const bool has_scales = (T == BT_KV_INT8) || (T == BT_KV_FP8);
    const auto scores = scores_of<P>();
    const auto begins = begins_of<P>();
    const auto ends = ends_of<P>();
    const uint32_t position = at + threadIdx.x;
    const uint32_t row = threadIdx.x / kTile * P * kRow + threadIdx.x % kTile;
    Source source = {0, 1.0f,
                     (position >= item.begin) && (position < item.end)};
    float s[P] = {};

    if (position / kTile * kTile >= item.end) {
        return source;
    }
    if (source.is_seen) {
        const uint32_t id = bt_load(
            item.ids + static_cast<size_t>(position / job.t) * job.n_groups +
            job.group);
        const uint32_t slot = position % job.t;
        const size_t block = id * job.block_bytes;
        const size_t vectors = static_cast<size_t>(item.kv_head) * job.t;
        const size_t head = vectors * job.dim * sizeof(Raw<T>) / 2;
        float key_scale = 1.0f;

        source.values =
            block + job.values + head +
            static_cast<size_t>(slot / 2) * job.dim * sizeof(Raw<T>);
        if (has_scales) {
            const float *scale = reinterpret_cast<const float *>(
                job.base + block + job.key_scales);

            key_scale = bt_load(scale + vectors + slot);
            scale = reinterpret_cast<const float *>(job.base + block +
                                                    job.value_scales);
            source.value_scale = bt_load(scale + vectors + slot);
        }
        multiply<T, P>(reinterpret_cast<const Raw<T> *>(job.base + block +
                                                        job.keys + head) +
                           slot,
                       job.t, job.dim / 2, s);
#pragma unroll
        for (uint32_t p = 0; p < P; p++) {
            s[p] = has_scales ? __fmul_rn(s[p], key_scale) : s[p];
        }
    }
#pragma unroll
    for (uint32_t p = 0; p < P; p++) {
        if (p < item.n_pairs) {
            const bool seen =
                (position >= begins.get(p)) && (position < ends.get(p));

            scores.set(row + p * kRow,
                       seen ? score_of<P>(job, item, p, position, s[p])
                            : -INFINITY);
        }
    }
    return source;
}

/* For the threads that weigh and read the values. */
template <bt_kv_type_t T> __device__ void note_source(const Source &source)
{
    if (source.is_seen && (threadIdx.x % 2 == 0)) {
        sources_of().set(threadIdx.x / 2, source.values);
    }
    if (source.is_seen && ((T == BT_KV_INT8) || (T == BT_KV_FP8))) {
        value_scales_of().set(threadIdx.x, source.value_scale);
    }
}

/* Thread with a tile and a pair; all threads of a pair hold a copy of its
 * state. */
struct Keeper {
    bool is_one;
    uint32_t tile, pair;
    float max, sum; /* the sum: only in the thread of tile 0 */
};

template <uint32_t P>
__device__ Keeper keeper_of(const Job &job, const Item &item)
{
    Keeper k;

    k.tile = threadIdx.x / P;
    k.pair = threadIdx.x % P;
    k.is_one = (k.tile < blockDim.x / kTile) && (k.pair < item.n_pairs);
    k.max = -INFINITY;
    k.sum = 0.0f;
    if (k.is_one && (job.sinks != nullptr)) {
        k.max =
            bt_load(job.sinks + item.head + (item.first + k.pair) % item.group);
        k.sum = 1.0f;
    }
    return k;
}

/* Selects the tile of the span at a position that a thread keeps, if its pair
 * sees the tile. */
template <uint32_t P> __device__ bool keeps(const Keeper &k, uint32_t at)
{
    return k.is_one && is_seen<P>(k.pair, at + k.tile * kTile);
}

template <uint32_t P> __device__ void find_maximum(const Keeper &k, uint32_t at)
{
    const auto scores = scores_of<P>();
    const uint32_t row = threadIdx.x * kRow; /* tile and pair */
    float max = -INFINITY;

    if (keeps<P>(k, at)) {
#pragma unroll 8
        for (uint32_t j = 0; j < kTile; j++) {
            const float s = scores.get(row + j);

            max = (s > max) ? s : max;
        }
        maxima_of<P>().set(threadIdx.x, max);
    }
}

template <uint32_t P> __device__ void correct(Keeper *k, uint32_t at)
{
    const auto maxima = maxima_of<P>();

    for (uint32_t w = 0; k->is_one && (w < blockDim.x / kTile); w++) {
        if (is_seen<P>(k->pair, at + w * kTile)) {
            const float before = k->max;
            const float max = maxima.get(w * P + k->pair);

            k->max = (max > before) ? max : before;
            if (w == k->tile) {
                tops_of<P>().set(threadIdx.x, k->max);
                corrs_of<P>().set(threadIdx.x,
                                  bt_expf(__fadd_rn(before, -k->max)));
            }
        }
    }
}

/* Weights of two positions and of adjacent pairs. */
template <bt_kv_type_t T, uint32_t P>
__device__ void weigh(const Item &item, uint32_t at)
{
    const bool has_scales = (T == BT_KV_INT8) || (T == BT_KV_FP8);
    const uint32_t n_quads = P / kBeside<P>;
    const auto scores = scores_of<P>();
    const auto exps = exps_of<P>();
    const uint32_t tile = threadIdx.x / kTilePairs / n_quads;
    const uint32_t two = threadIdx.x % kTilePairs;
    const uint32_t quad = threadIdx.x / kTilePairs % n_quads;
    const uint32_t tile_at = at + tile * kTile;
    /* Odd positions first in one half of a warp, which would otherwise access
     * the other half's banks. */
    const uint32_t swap = (P == 1) ? 0 : threadIdx.x / kTilePairs % 2;
    Words<kBeside<P>> words = {};

    if ((tile >= blockDim.x / kTile) || (tile_at >= item.end)) {
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kBeside<P>; i++) {
        const uint32_t p = quad * kBeside<P> + i;

        if ((p >= item.n_pairs) || !is_seen<P>(p, tile_at)) {
            continue;
        }
        const float top = tops_of<P>().get(tile * P + p);
        const uint32_t begin = begins_of<P>().get(p);
        const uint32_t end = ends_of<P>().get(p);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t k = n ^ swap;
            const uint32_t j = 2 * two + k;
            const uint32_t from = (tile * P + p) * kRow + j;
            const bool seen = (tile_at + j >= begin) && (tile_at + j < end);
            float e = 0.0f;

            if (seen) {
                float weight;

                e = bt_expf(__fadd_rn(scores.get(from), -top));
                weight = e;
                if (has_scales) {
                    weight =
                        __fmul_rn(e, value_scales_of().get(tile * kTile + j));
                }
                words.w[i] |=
                    static_cast<uint32_t>(bt_f32_to_bf16(bt_or_zero(weight)))
                    << (16 * k);
            }
            exps.set(from, e);
        }
    }
    weights_of<P>().set((tile * kTilePairs + two) * n_quads + quad, words);
}

/* Lane sum of a tile: lane j has positions j and j + 16, then the tree 8, 4, 2,
 * 1. */
template <uint32_t P> __device__ void sum_tile(const Keeper &k, uint32_t at)
{
    const auto exps = exps_of<P>();
    const uint32_t row = threadIdx.x * kRow;
    float lane[kTile / 2];

    if (!keeps<P>(k, at)) {
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < kTile / 2; j++) {
        lane[j] = __fadd_rn(exps.get(row + j), exps.get(row + j + kTile / 2));
    }
#pragma unroll
    for (uint32_t level = 0; level < 4; level++) {
        const uint32_t half = 8u >> level;

        /* Always 8 iterations, so that the lanes are registers. */
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if (j < half) {
                lane[j] = __fadd_rn(lane[j], lane[j + half]);
            }
        }
    }
    sums_of<P>().set(threadIdx.x, lane[0]);
}

/* Adds the sums of the span at a position, after all spans before it. */
template <uint32_t P> __device__ void add_sums(Keeper *k, uint32_t at)
{
    if (!k->is_one || (k->tile != 0)) {
        return;
    }
    for (uint32_t w = 0; w < blockDim.x / kTile; w++) {
        if (is_seen<P>(k->pair, at + w * kTile)) {
            k->sum = fmaf(k->sum, corrs_of<P>().get(w * P + k->pair),
                          sums_of<P>().get(w * P + k->pair));
        }
    }
}

/* ---- values ---- */

/* Values that a thread sums: element d of the pairs of quads first, first +
 * step, … Threads beyond the number of elements share the quads as far as these
 * go; remaining threads have none. */
struct Column {
    uint32_t d;
    uint32_t first, step;
};

template <uint32_t P> __device__ Column column_of(uint32_t dim)
{
    const uint32_t width = (dim + kTile - 1) / kTile * kTile;
    const uint32_t step = blockDim.x / width;
    const uint32_t first = threadIdx.x / width;

    return Column{threadIdx.x % width, (first < step) ? first : P, step};
}

/* Pair of a thread's i-th sum. */
template <uint32_t P>
__device__ uint32_t pair_of(const Column &column, uint32_t i)
{
    const uint32_t quad = column.first + i / kBeside<P> * column.step;

    return quad * kBeside<P> + i % kBeside<P>;
}

/* The two values at an even position as visible to pair p. */
template <uint32_t P>
__device__ Two seen_of(uint32_t p, uint32_t position, Two two)
{
    const uint32_t begin = begins_of<P>().get(p);
    const uint32_t end = ends_of<P>().get(p);

    return Two{(position >= begin) ? two.low : 0.0f,
               (position + 1 < end) ? two.high : 0.0f};
}

/* One step. Pairs that see neither an even position nor the next one skip
 * it. */
template <uint32_t P>
__device__ void add_seen(const Item &item, const Column &column,
                         uint32_t weights_at, uint32_t position, Two two,
                         float *acc)
{
    const uint32_t n_quads = P / kBeside<P>;
    const auto weights = weights_of<P>();

#pragma unroll
    for (uint32_t i = 0; i < P; i++) {
        const uint32_t p = pair_of<P>(column, i);

        if ((p < item.n_pairs) && (begins_of<P>().get(p) < position + 2) &&
            (ends_of<P>().get(p) > position)) {
            acc[i] =
                add_exactly(weights.get(weights_at * n_quads + p / kBeside<P>)
                                .w[i % kBeside<P>],
                            seen_of<P>(p, position, two), acc[i]);
        }
    }
}

/* Address of a thread's value of two positions. */
template <bt_kv_type_t T>
__device__ const Raw<T> *value_at(const Job &job, const Column &column,
                                  uint32_t index)
{
    return reinterpret_cast<const Raw<T> *>(job.base +
                                            sources_of().get(index)) +
           column.d;
}

/* kAhead steps of a thread's pairs at once, all positions visible to all
 * pairs. */
template <bt_kv_type_t T, uint32_t P>
__device__ bool add_ahead(const Job &job, const Column &column, uint32_t index,
                          float *acc)
{
    const uint32_t n_quads = P / kBeside<P>;
    const auto weights = weights_of<P>();
    Raw<T> raw[kAhead];
    float next[P];
    bool is_plain = take<P>(true, acc, next);

#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
        raw[k] = bt_load(value_at<T>(job, column, index + k));
    }
#pragma unroll
    for (uint32_t g = 0; g < n_quads; g++) {
        const uint32_t quad = column.first + g * column.step;

        if (quad >= n_quads) {
            break;
        }
#pragma unroll
        for (uint32_t k = 0; k < kAhead; k++) {
            is_plain &= add_products(weights.get((index + k) * n_quads + quad),
                                     two_of<T>(raw[k]), next + g * kBeside<P>);
        }
    }
    return take<P>(is_plain, next, acc);
}

/* Adds the values of one tile at a position. */
template <bt_kv_type_t T, uint32_t P>
__device__ void add_tile(const Job &job, const Item &item, const Column &column,
                         uint32_t tile, uint32_t at, float *acc)
{
    const uint32_t from = (item.begin > at) ? item.begin - at : 0;
    const uint32_t to = (item.end - at < kTile) ? item.end - at : kTile;

    for (uint32_t j = from; j < to; j += 2 * kAhead) {
        const uint32_t index = tile * kTilePairs + j / 2;
        const uint32_t end = at + j + 2 * kAhead;

        if ((at + j >= item.inner_begin) && (end <= item.inner_end) &&
            (j + 2 * kAhead <= kTile) &&
            add_ahead<T, P>(job, column, index, acc)) {
            continue;
        }
#pragma unroll 1
        for (uint32_t k = 0; (k < kAhead) && (j + 2 * k < to); k++) {
            add_seen<P>(item, column, index + k, at + j + 2 * k,
                        two_of<T>(bt_load(value_at<T>(job, column, index + k))),
                        acc);
        }
    }
}

template <bt_kv_type_t T, uint32_t P>
__device__ void add_values(const Job &job, const Item &item,
                           const Column &column, uint32_t at, float *acc)
{
    const auto corrs = corrs_of<P>();

    for (uint32_t tile = 0; tile < blockDim.x / kTile; tile++) {
        const uint32_t tile_at = at + tile * kTile;

        if ((tile_at >= item.end) || (column.d >= job.dim) ||
            (column.first * kBeside<P> >= item.n_pairs)) {
            return;
        }
#pragma unroll
        for (uint32_t i = 0; i < P; i++) {
            const uint32_t p = pair_of<P>(column, i);

            if ((p < item.n_pairs) && is_seen<P>(p, tile_at)) {
                acc[i] = bt_or_zero(__fmul_rn(acc[i], corrs.get(tile * P + p)));
            }
        }
        add_tile<T, P>(job, item, column, tile, tile_at, acc);
    }
}

} // namespace bt_attn

#endif
