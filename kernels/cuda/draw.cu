/* SPDX-License-Identifier: Apache-2.0 */
/* draw() as specified in kernels/draw.h. A block handles all draws of a row,
 * one after the other: it edits the row, draws, and restores the row.
 *
 * Weights are integers, so sums may be computed in any order. The range that
 * top_k and top_p keep ends with the candidate at which the running sum reaches
 * a goal:
 *
 *     row ── sums over buckets of logits ──▶ the bucket where it is reached
 *              (atomics in shared memory)              │ its members
 *                     more than the list holds ◀───────┴──▶ few: sorted,
 *              buckets of that bucket's bits                running sums
 *
 * The draw itself goes by ids: sums over pieces of the row, then the piece in
 * which the goal is passed, then its ids. */
#include <cmath>
#include <cstring>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/order.h"
#include "kernels/draw.h"

namespace
{

/* The type that atomicAdd() takes. */
typedef unsigned long long Sum;

const uint32_t kThreads = 512;
const uint32_t kWarps = kThreads / 32;
const uint32_t kEach = 4;                /* values per thread and step */
const uint32_t kStep = kThreads * kEach; /* values per block and step */
const uint32_t kSums = kStep;            /* kEach per thread */
const uint32_t kPieces = 512;            /* pieces that ids are split into */
const uint32_t kWords = sizeof(bt_draw_t) / sizeof(uint32_t);
const unsigned kAll = 0xffffffffu;

/* Candidates 27.7 temperatures below the best have weight 0. */
const float kReach = 28.0f;

/* Shared memory, common to all steps of a row. */
struct Scratch {
    bt_shared<Sum> sums;       /* kSums */
    bt_shared<uint64_t> list;  /* kSums */
    bt_shared<uint64_t> parts; /* kWarps */
    bt_shared<Sum> need;       /* 1 */
    bt_shared<uint32_t> at;    /* 1 */
};

/* Candidates of a row that are still kept. */
struct Kept {
    const float *x;
    uint32_t dim;
    float best;
    float low; /* the lowest candidate */
    double temperature;
    uint64_t least; /* weight */
    uint64_t last;  /* rank */
};

__device__ uint64_t weigh(const Kept &kept, float x, uint32_t id)
{
    uint64_t weight;

    if (bt_rank_of(x, id) < kept.last) {
        return 0;
    }
    weight = bt_draw_weight(x, kept.best, kept.temperature);
    return (weight < kept.least) ? 0 : weight;
}

/* Calls @a visit (value, id) for all values of the row. By the block. */
template <typename Visit>
__device__ void each(const float *x, uint32_t dim, const Visit &visit)
{
    for (uint32_t at = 0; at < dim; at += kStep) {
        float values[kEach];

        BT_UNROLL
        for (uint32_t j = 0; j < kEach; j++) {
            const uint32_t left = j * kThreads + threadIdx.x;

            values[j] = (left < dim - at) ? bt_load(x + at + left) : -INFINITY;
        }
        BT_UNROLL
        for (uint32_t j = 0; j < kEach; j++) {
            visit(values[j], at + j * kThreads + threadIdx.x);
        }
    }
}

__device__ void clear(const bt_shared<Sum> &sums)
{
    BT_UNROLL
    for (uint32_t j = 0; j < kEach; j++) {
        sums.set(j * kThreads + threadIdx.x, 0);
    }
}

/* Finds the bucket where the running sum of scratch.sums reaches what is needed
 * of their total. The sums may be overwritten after it returns.
 * @param [in]  need_of  (total): at least 1, at most the total
 * @param [out] need_p   the remaining need at that bucket */
template <typename NeedOf>
__device__ uint32_t find(const Scratch &scratch, const NeedOf &need_of,
                         uint64_t *need_p)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t first = threadIdx.x * kEach;
    uint64_t own = 0;
    uint64_t total = 0;
    uint64_t before;
    uint64_t with_own;
    uint64_t need;

    BT_SYNC(); /* all sums are there */
    BT_UNROLL
    for (uint32_t j = 0; j < kEach; j++) {
        own += scratch.sums.get(first + j);
    }
    with_own = own;
    BT_NO_UNROLL
    for (uint32_t far = 1; far < 32; far *= 2) {
        const uint64_t other = __shfl_sync(kAll, with_own, (lane - far) % 32);

        with_own += (lane >= far) ? other : 0;
    }
    if (lane == 31) {
        scratch.parts.set(warp, with_own);
    }
    BT_SYNC();
    before = with_own - own;
    BT_NO_UNROLL
    for (uint32_t w = 0; w < kWarps; w++) {
        const uint64_t part = scratch.parts.get(w);

        before += (w < warp) ? part : 0;
        total += part;
    }
    need = need_of(total);
    if ((before < need) && (need - before <= own)) { /* one thread */
        uint32_t j = 0;

        need -= before;
        while (scratch.sums.get(first + j) < need) {
            need -= scratch.sums.get(first + j++);
        }
        scratch.at.set(0, first + j);
        scratch.need.set(0, need);
    }
    BT_SYNC();
    *need_p = scratch.need.get(0);
    return scratch.at.get(0);
}

/* Returns the id at which the running sum, by ascending ids, reaches what is
 * needed. @param [in] weight_of  (value, id) */
template <typename WeightOf, typename NeedOf>
__device__ uint32_t find_id(const Scratch &scratch, const Kept &kept,
                            const WeightOf &weight_of, const NeedOf &need_of)
{
    uint32_t begin = 0;
    uint32_t n = kept.dim;
    uint64_t need = 0;

    while (n > kSums) {
        const uint32_t size = ((n + kPieces - 1) / kPieces + 31) / 32 * 32;

        clear(scratch.sums);
        BT_SYNC();
        for (uint32_t p = threadIdx.x / 32; p * size < n; p += kWarps) {
            uint64_t sum = 0;

            for (uint32_t i = threadIdx.x % 32; i < size; i += 32) {
                const uint32_t at = p * size + i;

                if (at < n) {
                    sum += weight_of(bt_load(kept.x + begin + at), begin + at);
                }
            }
            BT_NO_UNROLL
            for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
                sum += __shfl_xor_sync(kAll, sum, lanes);
            }
            if (threadIdx.x % 32 == 0) {
                scratch.sums.set(p, sum);
            }
        }
        const uint32_t piece =
            (n == kept.dim)
                ? find(scratch, need_of, &need)
                : find(
                      scratch, [=](uint64_t) { return need; }, &need);

        begin += piece * size;
        n = (kept.dim - begin < size) ? kept.dim - begin : size;
    }
    clear(scratch.sums); /* each thread the ones that it sets */
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        scratch.sums.set(i, weight_of(bt_load(kept.x + begin + i), begin + i));
    }
    return begin + ((n == kept.dim)
                        ? find(scratch, need_of, &need)
                        : find(
                              scratch, [=](uint64_t) { return need; }, &need));
}

/* Appends the ranks of values for which @a is_member (value, id) holds to the
 * list, while it has space. @return their number */
template <typename IsMember>
__device__ uint32_t collect(const Scratch &scratch, const Kept &kept,
                            const IsMember &is_member)
{
    BT_SYNC(); /* scratch.at was read */
    if (threadIdx.x == 0) {
        scratch.at.set(0, 0);
    }
    BT_SYNC();
    each(kept.x, kept.dim, [&](float x, uint32_t id) {
        if (is_member(x, id)) {
            const uint32_t i = atomicAdd(scratch.at.address(0), 1u);

            if (i < kSums) {
                scratch.list.set(i, bt_rank_of(x, id));
            }
        }
    });
    BT_SYNC();
    return scratch.at.get(0);
}

/* Returns the rank at which the running sum over the list, in order, reaches
 * the remaining need. */
template <typename WeightOf>
__device__ uint64_t find_in_list(const Scratch &scratch, uint32_t n,
                                 uint64_t need, const WeightOf &weight_of)
{
    uint64_t left;
    uint64_t last;

    bt_put_in_order(scratch.list, n);
    clear(scratch.sums); /* each thread the ones that it sets */
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        const uint64_t rank = scratch.list.get(i);

        scratch.sums.set(i, weight_of(bt_rank_value(rank), bt_rank_id(rank)));
    }
    last = scratch.list.get(find(
        scratch, [=](uint64_t) { return need; }, &left));
    return last;
}

__device__ uint32_t key_of(float x, uint32_t id)
{
    return static_cast<uint32_t>(bt_rank_of(x, id) >> 32);
}

/* Too many for the list: refines the bucket by the bits of the values, which
 * are in [low, high], until few or equal ones are left. */
template <typename WeightOf>
__device__ uint64_t find_by_bits(const Scratch &scratch, const Kept &kept,
                                 uint32_t low, uint32_t high, uint64_t need,
                                 const WeightOf &weight_of)
{
    while (high > low) {
        uint32_t shift = 0;
        uint32_t n;

        while ((high - low) >> shift >= kSums) {
            shift++;
        }
        clear(scratch.sums);
        BT_SYNC();
        each(kept.x, kept.dim, [&](float x, uint32_t id) {
            const uint32_t key = key_of(x, id);

            if ((key >= low) && (key <= high)) {
                (void)atomicAdd(scratch.sums.address((high - key) >> shift),
                                static_cast<Sum>(weight_of(x, id)));
            }
        });
        high -= find(
                    scratch, [=](uint64_t) { return need; }, &need)
                << shift;
        low = (((high - low) >> shift) == 0) ? low : high - ((1u << shift) - 1);
        n = collect(scratch, kept, [&](float x, uint32_t id) {
            const uint32_t key = key_of(x, id);

            return (key >= low) && (key <= high) && (weight_of(x, id) > 0);
        });
        if (n <= kSums) {
            return find_in_list(scratch, n, need, weight_of);
        }
    }
    const uint32_t id = find_id(
        scratch, kept,
        [&](float x, uint32_t i) {
            return (key_of(x, i) == low) ? weight_of(x, i) : 0;
        },
        [=](uint64_t) { return need; });

    return (static_cast<uint64_t>(low) << 32) | (0xffffffffu - id);
}

/* Returns the rank of the candidate at which the running sum, in candidate
 * order, reaches what is needed.
 * @param [in] low  values below it have no weight, with few exceptions */
template <typename WeightOf, typename NeedOf>
__device__ uint64_t find_last(const Scratch &scratch, const Kept &kept,
                              float low, const WeightOf &weight_of,
                              const NeedOf &need_of)
{
    const float high = kept.best;
    const float per_unit = static_cast<float>(kSums - 1) / (high - low);
    /* Rises as values fall, for any rounding. */
    const auto bucket_of = [=](float x) {
        const float at = (high - x) * per_unit;

        return (at < static_cast<float>(kSums - 1)) ? static_cast<uint32_t>(at)
                                                    : kSums - 1;
    };
    uint64_t first = 0;
    uint64_t need;
    uint32_t bucket;
    uint32_t n;

    clear(scratch.sums);
    BT_SYNC();
    each(kept.x, kept.dim, [&](float x, uint32_t id) {
        const uint64_t weight = weight_of(x, id);

        if (weight > 0) {
            (void)atomicAdd(scratch.sums.address(bucket_of(x)),
                            static_cast<Sum>(weight));
        }
    });
    bucket = find(scratch, need_of, &need);
    n = collect(scratch, kept, [&](float x, uint32_t id) {
        return (bucket_of(x) == bucket) && (weight_of(x, id) > 0);
    });
    if (n <= kSums) {
        return find_in_list(scratch, n, need, weight_of);
    }
    /* Finds the bounds of the row's values, both as maxima. */
    uint64_t not_last = 0;

    each(kept.x, kept.dim, [&](float x, uint32_t id) {
        if ((bucket_of(x) == bucket) && (weight_of(x, id) > 0)) {
            const uint64_t key = key_of(x, id);

            first = (key > first) ? key : first;
            not_last = (kAll - key > not_last) ? kAll - key : not_last;
        }
    });
    first = bt_largest(scratch.parts, first);
    not_last = bt_largest(scratch.parts, not_last);
    return find_by_bits(scratch, kept, static_cast<uint32_t>(kAll - not_last),
                        static_cast<uint32_t>(first), need, weight_of);
}

/* Draws from an edited row, which no thread reads any more on return. The
 * result is at all threads. */
__device__ uint32_t draw_row(const Scratch &scratch, const bt_draw_t &draw,
                             const float *x, uint32_t dim)
{
    const uint64_t seed =
        (static_cast<uint64_t>(draw.seed_high) << 32) | draw.seed_low;
    Kept kept = {};
    uint64_t first = BT_RANK_NONE;
    uint64_t not_last = BT_RANK_NONE;

    each(x, dim, [&](float value, uint32_t id) {
        const uint64_t rank = bt_rank_of(value, id);

        first = (rank > first) ? rank : first;
        not_last =
            ((rank != BT_RANK_NONE) && (~rank > not_last)) ? ~rank : not_last;
    });
    first = bt_largest(scratch.parts, first);
    if (first == BT_RANK_NONE) {
        return 0;
    }
    kept.best = bt_rank_value(first);
    if ((draw.temperature == 0.0f) || (draw.top_k == 1) ||
        (kept.best == INFINITY)) {
        return bt_rank_id(first);
    }
    kept.low = bt_rank_value(~bt_largest(scratch.parts, not_last));
    kept.x = x;
    kept.dim = dim;
    kept.temperature = static_cast<double>(draw.temperature);
    kept.least = bt_draw_least(draw.min_p);
    kept.last = BT_RANK_NONE + 1;
    if ((draw.top_k > 0) && (draw.top_k < dim)) {
        kept.last = find_last(
            scratch, kept, kept.low,
            [](float value, uint32_t id) {
                return static_cast<uint64_t>(bt_rank_of(value, id) !=
                                             BT_RANK_NONE);
            },
            [&](uint64_t n) { return (draw.top_k < n) ? draw.top_k : n; });
    }

    const auto weight_of = [&](float value, uint32_t id) {
        return weigh(kept, value, id);
    };

    if (draw.top_p < 1.0f) {
        const float reach = kept.best - kReach * draw.temperature;

        kept.last = find_last(
            scratch, kept, (reach > kept.low) ? reach : kept.low, weight_of,
            [&](uint64_t mass) { return bt_draw_need(draw.top_p, mass); });
    }
    return find_id(scratch, kept, weight_of, [&](uint64_t mass) {
        return bt_draw_goal(bt_draw_bits(seed, draw.position), mass) + 1;
    });
}

__device__ bt_draw_t load_draw(const uint32_t *words)
{
    uint32_t copy[kWords];
    bt_draw_t draw;

    BT_UNROLL
    for (uint32_t i = 0; i < kWords; i++) {
        copy[i] = bt_load(words + i);
    }
    memcpy(&draw, copy, sizeof(draw));
    return draw;
}

/* Called by the whole block, which is synchronised before and after. */
__device__ void edit(const bt_draw_t &draw, uint32_t *words, float *x)
{
    bt_draw_edit_t *edits =
        reinterpret_cast<bt_draw_edit_t *>(words + draw.first_edit);

    for (uint32_t i = threadIdx.x; i < draw.n_edits; i += kThreads) {
        bt_draw_edit_t *edit = edits + i;
        float *at = x + bt_load(&edit->id);
        const float was = bt_load(at);

        bt_store(&edit->was, was);
        bt_store(at,
                 bt_draw_edited(was, bt_load(&edit->what), bt_load(&edit->bias),
                                draw.repetition_penalty, draw.presence_penalty,
                                draw.frequency_penalty));
    }
    BT_SYNC();
}

__device__ void put_back(const bt_draw_t &draw, const uint32_t *words, float *x)
{
    const bt_draw_edit_t *edits =
        reinterpret_cast<const bt_draw_edit_t *>(words + draw.first_edit);

    for (uint32_t i = threadIdx.x; i < draw.n_edits; i += kThreads) {
        bt_store(x + bt_load(&edits[i].id), bt_load(&edits[i].was));
    }
    BT_SYNC();
}

/* A block per draw; the block of a row's first draw handles all draws of that
 * row. */
__global__ void BT_BOUNDS(kThreads, 1)
    draw_kernel(float *logits, uint32_t dim, uint32_t *words, uint32_t draws,
                uint32_t n_draws, uint32_t *ids)
{
    BT_SHARED(Sum, sums, kSums);
    BT_SHARED(uint64_t, list, kSums);
    BT_SHARED(uint64_t, parts, kWarps);
    BT_SHARED(Sum, need, 1);
    BT_SHARED(uint32_t, at, 1);
    const Scratch scratch = {sums, list, parts, need, at};
    const uint32_t *first = words + draws;
    const uint32_t row = bt_load(first + blockIdx.x * kWords);
    float *x = logits + static_cast<size_t>(row) * dim;

    if ((blockIdx.x > 0) &&
        (bt_load(first + (blockIdx.x - 1) * kWords) == row)) {
        return;
    }
    for (uint32_t i = blockIdx.x;
         (i < n_draws) && (bt_load(first + i * kWords) == row); i++) {
        const bt_draw_t draw = load_draw(first + i * kWords);

        edit(draw, words, x);

        const uint32_t id = draw_row(scratch, draw, x, dim);

        if (threadIdx.x == 0) {
            bt_store(ids + i, id);
        }
        put_back(draw, words, x);
    }
}

void draw(bt_backend_t *be, float *logits, const bt_batch_t *batch,
          uint32_t dim, uint32_t *ids)
{
    if (batch->n_draws > 0) {
        BT_LAUNCH(draw_kernel, batch->n_draws, kThreads, be, logits, dim,
                  bt_cuda_words(be),
                  static_cast<uint32_t>(bt_batch_layout(batch).draw),
                  batch->n_draws, ids);
    }
}

} // namespace

extern "C" void bt_cuda_draw_ops(bt_kernels_ops_t *ops)
{
    ops->draw = draw;
}
