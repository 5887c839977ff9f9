/* SPDX-License-Identifier: Apache-2.0 */
/** @file attn_item.h
 *
 * Work items of attention.cu: the work of a thread block, and its shared
 * memory.
 */
#ifndef BT_KERNELS_CUDA_ATTN_ITEM_H
#define BT_KERNELS_CUDA_ATTN_ITEM_H

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/formula.h"

namespace bt_attn
{

const uint32_t kTile = 32; /* positions of one softmax step, lanes of a warp */
const uint32_t kTilePairs = kTile / 2; /* of positions */
const uint32_t kMaxWarps = 8;
const uint32_t kMaxDim = 256;
const uint32_t kMaxPairs = 8; /* of a work item */
const uint32_t kAhead = 8; /* words of the cache that are prefetched together */
/* Row of a tile's scores: one word longer, so that threads that read a row each
 * access different banks. */
const uint32_t kRow = kTile + 1;

struct Job {
    const float *q;
    size_t row_floats; /* of a row of q */
    float *out;
    const uint32_t *row_seqs, *seqs, *ids; /* of the batch */
    const uint8_t *base;
    size_t block_bytes;
    size_t keys, values; /* in a block: the layer's first elements */
    size_t key_scales, value_scales;
    uint32_t n_rows, n_heads, n_kv_heads, dim, t;
    uint32_t n_groups, group;
    uint32_t items_per_row; /* at most, of a KV head */
    uint32_t window;
    float scale, soft_cap, cap_factor;
    const float *sinks, *slopes;
};

/* N adjacent words, loaded together. */
template <uint32_t N> struct alignas(N * sizeof(uint32_t)) Words {
    uint32_t w[N];
};

/* Number of adjacent words among P pairs. */
template <uint32_t P> constexpr uint32_t kBeside = (P < 4) ? P : 4;

/* ---- shared memory ---- */

/* [dim / 2][pairs]: two elements each, in bf16 without subnormal numbers */
template <uint32_t P> __device__ auto queries_of()
{
    BT_SHARED(Words<kBeside<P>>, queries, kMaxDim / 2 * (P / kBeside<P>));
    return queries;
}

/* (P): the first visible position of a pair, and the end */
template <uint32_t P> __device__ auto begins_of()
{
    BT_SHARED(uint32_t, begins, P);
    return begins;
}

template <uint32_t P> __device__ auto ends_of()
{
    BT_SHARED(uint32_t, ends, P);
    return ends;
}

/* [tile][pair][position] */
template <uint32_t P> __device__ auto scores_of()
{
    BT_SHARED(float, scores, kMaxWarps *P *kRow);
    return scores;
}

/* [tile][pair][position]: exp(score - largest so far). Separate from the
 * scores, because those of the next span are written while these are summed. */
template <uint32_t P> __device__ auto exps_of()
{
    BT_SHARED(float, exps, kMaxWarps *P *kRow);
    return exps;
}

/* [tile][pair]: the largest score; the largest of this tile and all before it;
 * the factor of acc and the sum; the tile's own sum */
template <uint32_t P> __device__ auto maxima_of()
{
    BT_SHARED(float, maxima, kMaxWarps *P);
    return maxima;
}

template <uint32_t P> __device__ auto tops_of()
{
    BT_SHARED(float, tops, kMaxWarps *P);
    return tops;
}

template <uint32_t P> __device__ auto corrs_of()
{
    BT_SHARED(float, corrs, kMaxWarps *P);
    return corrs;
}

template <uint32_t P> __device__ auto sums_of()
{
    BT_SHARED(float, sums, kMaxWarps *P);
    return sums;
}

/* [tile][pair of positions][pairs]: weights of two positions, in bf16 */
template <uint32_t P> __device__ auto weights_of()
{
    BT_SHARED(Words<kBeside<P>>, weights,
              kMaxWarps * kTilePairs * (P / kBeside<P>));
    return weights;
}

/* [tile][pair of positions]: offset of their values, from the base */
inline __device__ auto sources_of()
{
    BT_SHARED(size_t, sources, kMaxWarps * kTilePairs);
    return sources;
}

/* [tile][position], for types with scales */
inline __device__ auto value_scales_of()
{
    BT_SHARED(float, value_scales, kMaxWarps *kTile);
    return value_scales;
}

/* ---- items ---- */

struct Item {
    uint32_t row; /* first row of the sequence */
    uint32_t pos; /* position of that row */
    const uint32_t *ids;
    uint32_t kv_head, head;  /* first query head that reads it */
    uint32_t group;          /* query heads that do */
    uint32_t first, n_pairs; /* pair p: row p / group, head p % group */
    /* Positions visible to some pair, the first made even as values are stored
     * in pairs: nothing else of the cache may be read. */
    uint32_t begin, end;
    /* Whole pairs of positions that are visible to all pairs. */
    uint32_t inner_begin, inner_end;
};

inline __device__ uint32_t first_head(const Job &job, uint32_t kv_head)
{
    return (kv_head * job.n_heads + job.n_kv_heads - 1) / job.n_kv_heads;
}

/* First position visible from a position. */
inline __device__ uint32_t first_seen(uint32_t window, uint32_t position)
{
    return ((window == 0) || (position < window)) ? 0 : position + 1 - window;
}

/* Position of pair i of the item. */
inline __device__ uint32_t position_of(const Item &item, uint32_t i)
{
    return item.pos + (item.first + i) / item.group;
}

/* Pairs of a sequence and a KV head are split into items of P. There is a
 * thread block for each row, KV head and item that may begin in this row; the
 * last rows see the most positions and come first. (So the grid follows from
 * the number of rows alone, and its blocks need no table of their own.)
 * @return false: no item begins */
template <uint32_t P> __device__ bool find_item(const Job &job, Item *item)
{
    const uint32_t in_row = blockIdx.x % job.items_per_row;
    const uint32_t rest = blockIdx.x / job.items_per_row;
    const uint32_t row = job.n_rows - 1 - rest / job.n_kv_heads;
    const uint32_t *seq =
        job.seqs +
        static_cast<size_t>(bt_load(job.row_seqs + row)) * BT_BATCH_SEQ_WORDS;
    uint32_t i, last, inner;

    item->kv_head = rest % job.n_kv_heads;
    item->head = first_head(job, item->kv_head);
    item->group = first_head(job, item->kv_head + 1) - item->head;
    item->row = bt_load(seq);
    i = row - item->row;
    item->first = ((i * item->group + P - 1) / P + in_row) * P;
    if (item->first >= (i + 1) * item->group) {
        return false;
    }
    item->n_pairs = bt_load(seq + 1) * item->group - item->first;
    item->n_pairs = (item->n_pairs > P) ? P : item->n_pairs;
    item->pos = bt_load(seq + 2);
    item->ids = job.ids + bt_load(seq + 3);
    last = position_of(*item, item->n_pairs - 1);
    item->begin = first_seen(job.window, position_of(*item, 0)) / 2 * 2;
    item->end = last + 1;
    inner = first_seen(job.window, last);
    item->inner_begin = inner + inner % 2;
    item->inner_end = (position_of(*item, 0) + 1) / 2 * 2;
    return true;
}

inline __device__ uint32_t clean_bf16(float x)
{
    const float rounded = bt_bf16_to_f32(bt_f32_to_bf16(x));

    return bt_f32_bits(bt_or_zero(rounded)) >> 16;
}

/* Loads the queries and the visible range of each pair. Missing pairs repeat
 * the last one: ordinary numbers whose result is ignored. */
template <uint32_t P>
__device__ void load_item(const Job &job, const Item &item)
{
    const auto queries = queries_of<P>();

    for (uint32_t i = threadIdx.x; i < job.dim / 2 * (P / kBeside<P>);
         i += blockDim.x) {
        Words<kBeside<P>> words;

        for (uint32_t k = 0; k < kBeside<P>; k++) {
            uint32_t p = i % (P / kBeside<P>)*kBeside<P> + k;

            p = item.first + ((p < item.n_pairs) ? p : item.n_pairs - 1);

            const size_t row = item.row + p / item.group;
            const size_t head = item.head + p % item.group;
            const float *q = job.q + row * job.row_floats + head * job.dim +
                             i / (P / kBeside<P>)*2;

            words.w[k] = clean_bf16(bt_load(q)) | clean_bf16(bt_load(q + 1))
                                                      << 16;
        }
        queries.set(i, words);
    }
    if (threadIdx.x < item.n_pairs) {
        const uint32_t position = position_of(item, threadIdx.x);

        begins_of<P>().set(threadIdx.x, first_seen(job.window, position));
        ends_of<P>().set(threadIdx.x, position + 1);
    }
}

/* True when pair p sees a position of the tile at @a at. An unseen tile is no
 * step of its softmax. */
template <uint32_t P> __device__ bool is_seen(uint32_t p, uint32_t at)
{
    return (begins_of<P>().get(p) < at + kTile) && (ends_of<P>().get(p) > at);
}

} // namespace bt_attn

#endif
