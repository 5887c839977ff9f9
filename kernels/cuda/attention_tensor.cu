/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the paged cache by tensor cores, in the tensor profile
 * (docs/adr/0019-tensor-profile.md). Positions are split into parts of 128,
 * always at multiples of 128: each part of a row and head has a softmax of its
 * own, tile by tile of 32, and the parts are added in order. So a result
 * follows from its sequence alone, and there are two ways to compute it:
 *
 *     whole   a warp has 16 (row, head) pairs of a sequence and processes all
 *             their parts: prefill chunks
 *     split   a warp has one part of the pairs, and a second kernel combines
 *             the results: decode rows
 *
 * Warps share nothing: common cache reads meet in the hardware caches. */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attn_tensor.h"

using namespace bt_attn;

namespace
{

const uint32_t kThreads = 128; /* at most */

/* Warps of a block, as many as shared memory has space for; a slice is the
 * warps with equal pairs and different dimensions. */
template <uint32_t D> constexpr uint32_t kWarpsOf = (D > 128) ? 2 : 4;
template <uint32_t D> constexpr uint32_t kSlices = D / kWidth<D>;
template <uint32_t D> constexpr uint32_t kTeams = kWarpsOf<D> / kSlices<D>;

/* Parts of rows that are split: (sequence, KV head, pair, part). */
struct Parts {
    float *values;   /* [part][floats]; NULL: no sequence is split */
    float2 *heads;   /* [part]: the largest score, and the sum */
    uint32_t n;      /* per sequence, at most */
    uint32_t pairs;  /* per sequence, at most */
    uint32_t floats; /* of a part's values */
};

/* ---- parts ---- */

/* True when the rows of a sequence are split: all or none of its items. */
__device__ __forceinline__ bool is_split(const Job &job, const Parts &parts,
                                         uint32_t seq)
{
    const uint32_t n_rows =
        bt_load(job.seqs + static_cast<size_t>(seq) * BT_BATCH_SEQ_WORDS + 1);

    return (parts.values != nullptr) &&
           (n_rows * ((job.n_heads + job.n_kv_heads - 1) / job.n_kv_heads) <=
            kPairs);
}

/* Item with all pairs of a split sequence and KV head. */
__device__ __forceinline__ Item item_of(const Job &job, uint32_t number,
                                        uint32_t kv_head)
{
    const uint32_t *seq =
        job.seqs + static_cast<size_t>(number) * BT_BATCH_SEQ_WORDS;
    Item item = {};

    item.kv_head = kv_head;
    item.head = first_head(job, kv_head);
    item.group = first_head(job, kv_head + 1) - item.head;
    item.row = bt_load(seq);
    item.n_pairs = bt_load(seq + 1) * item.group;
    item.pos = bt_load(seq + 2);
    item.ids = job.ids + bt_load(seq + 3);
    item.begin = first_seen(job.window, item.pos) / 2 * 2;
    item.end = item.pos + bt_load(seq + 1);
    return item;
}

template <bt_kv_type_t T, uint32_t D>
__device__ __forceinline__ void
run_part(const Job &job, const Item &item, const Rows &rows, uint32_t first,
         uint32_t last, uint32_t part, const bt_shared<uint32_t> &queries,
         uint32_t base, State<kWidth<D>> *state)
{
    const uint32_t begin = part * kPart;
    const uint32_t from = rows.begin / kTile * kTile;
    const uint32_t end = (rows.end < begin + kPart) ? rows.end : begin + kPart;

    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        state->max[r] = -INFINITY;
        state->sum[r] = 0.0f;
    }
    BT_UNROLL
    for (uint32_t i = 0; i < kWidth<D> / 2; i++) {
        state->acc[i / 4][i % 4] = 0.0f;
    }
    for (uint32_t at = (from > begin) ? from : begin; at < end; at += kTile) {
        add_tile<T, D>(job, item, rows, first, last, at, queries, base, state);
    }
    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        float &sum = state->sum[r];

        sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, 1));
        sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, 2));
    }
}

/* True when a row that sees from .. to - 1 sees a position of a part. */
__device__ __forceinline__ bool sees(uint32_t from, uint32_t to, uint32_t part)
{
    return (from < (part + 1) * kPart) && (to > part * kPart);
}

/* Running total of all parts so far, of one pair. */
struct Total {
    float max, sum;
};

__device__ __forceinline__ Total total_of(const Job &job, uint32_t head)
{
    Total total = {-INFINITY, 0.0f};

    if (job.sinks != nullptr) {
        total.max = bt_load(job.sinks + head);
        total.sum = 1.0f;
    }
    return total;
}

/* Factors of the total and of a part when they are added. */
struct Factors {
    float total, part;
};

__device__ __forceinline__ Factors add_part(Total *total, float max, float sum)
{
    const float top = (max > total->max) ? max : total->max;
    const float base = (top == -INFINITY) ? 0.0f : top;
    const Factors factors = {bt_expf(__fadd_rn(total->max, -base)),
                             bt_expf(__fadd_rn(max, -base))};

    total->max = top;
    total->sum = fmaf(total->sum, factors.total, __fmul_rn(sum, factors.part));
    return factors;
}

__device__ __forceinline__ float add_value(float total, float value,
                                           const Factors &factors)
{
    return fmaf(total, factors.total, __fmul_rn(value, factors.part));
}

/* ---- results ---- */

/* Eight values of a pair from dimension d on. */
__device__ __forceinline__ void put_eight(float *row, uint32_t d, uint32_t dim,
                                          const float (&values)[8])
{
    BT_UNROLL
    for (uint32_t i = 0; i < 8; i += 4) {
        if ((dim % 4 == 0) && (d + i < dim)) {
            const float4 four = {values[i], values[i + 1], values[i + 2],
                                 values[i + 3]};

            bt_store(reinterpret_cast<float4 *>(row + d + i), four);
        }
        BT_UNROLL
        for (uint32_t j = i; (dim % 4 != 0) && (j < i + 4); j++) {
            if (d + j < dim) {
                bt_store(row + d + j, values[j]);
            }
        }
    }
}

/* The lane's values of pair r of 32 dimensions, in their order. */
__device__ __forceinline__ void in_order(const float4 (&acc)[4], uint32_t r,
                                         float factor, float (&values)[8])
{
    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        values[i] = __fmul_rn((r == 0) ? acc[i].x : acc[i].z, factor);
        values[4 + i] = __fmul_rn((r == 0) ? acc[i].y : acc[i].w, factor);
    }
}

__device__ __forceinline__ float *out_of(const Job &job, const Item &item,
                                         uint32_t pair)
{
    const size_t row = item.row + pair / item.group;
    const size_t head = item.head + pair % item.group;

    return job.out + (row * job.n_heads + head) * job.dim;
}

/* ---- whole ---- */

/* Totals of a warp are in shared memory, as a lane has them: [product of 8
 * dimensions][lane]. */
template <uint32_t V>
__device__ __forceinline__ void
add_whole(const State<V> &state, const Rows &rows, uint32_t part,
          Total (&totals)[2], const bt_shared<float4> &sums, uint32_t base)
{
    Factors factors[2];

    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        factors[r] = {1.0f, 0.0f};
        if (sees(rows.from[r], rows.to[r], part)) {
            factors[r] = add_part(&totals[r], state.max[r], state.sum[r]);
        }
    }
    BT_UNROLL
    for (uint32_t n = 0; n < V / 8; n++) {
        const float(&acc)[4] = state.acc[n];
        float4 sum = sums.get(base + n * 32 + rows.lane);

        if (sees(rows.from[0], rows.to[0], part)) {
            sum.x = add_value(sum.x, acc[0], factors[0]);
            sum.y = add_value(sum.y, acc[1], factors[0]);
        }
        if (sees(rows.from[1], rows.to[1], part)) {
            sum.z = add_value(sum.z, acc[2], factors[1]);
            sum.w = add_value(sum.w, acc[3], factors[1]);
        }
        sums.set(base + n * 32 + rows.lane, sum);
    }
}

template <uint32_t V>
__device__ __forceinline__ void
put_whole(const Job &job, const Item &item, const Rows &rows, uint32_t first,
          const Total (&totals)[2], const bt_shared<float4> &sums,
          uint32_t base)
{
    BT_UNROLL
    for (uint32_t d = 0; d < V; d += 32) {
        float4 acc[4];

        BT_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            acc[i] = sums.get(base + (d / 8 + i) * 32 + rows.lane);
        }
        BT_UNROLL
        for (uint32_t r = 0; r < 2; r++) {
            float values[8];

            /* Skips pairs that the item lacks, which repeat its last one. */
            if (rows.pair[r] == first + rows.g + 8 * r) {
                in_order(acc, r, __fdiv_rn(1.0f, totals[r].sum), values);
                put_eight(out_of(job, item, rows.pair[r]),
                          rows.d + d + 8 * rows.t, job.dim, values);
            }
        }
    }
}

template <bt_kv_type_t T, uint32_t D>
__global__ void BT_BOUNDS(32 * kWarpsOf<D>, 1)
    whole_kernel(Job job, Parts parts)
{
    constexpr uint32_t n_warps = kWarpsOf<D>, width = kWidth<D>;
    BT_SHARED(uint32_t, queries, n_warps * kPairs * D / 2);
    BT_SHARED(float4, sums, n_warps * width / 8 * 32);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t team = warp / kSlices<D>;
    const uint32_t query_base = warp * kPairs * D / 2;
    const uint32_t sums_base = warp * width / 8 * 32;
    Item item;
    Rows rows;
    State<width> state;
    Total totals[2];
    uint32_t first, last;

    if (!find_item<kTeams<D> * kPairs>(job, &item) ||
        (item.n_pairs <= team * kPairs) ||
        is_split(job, parts, bt_load(job.row_seqs + item.row))) {
        return;
    }
    first = item.first + team * kPairs;
    last = item.first + item.n_pairs - 1;
    last = (last < first + kPairs - 1) ? last : first + kPairs - 1;
    rows = rows_of(job, item, first, last, warp % kSlices<D> * width);
    load_queries<T, D>(job, item, first, last, &rows, queries, query_base);
    BT_UNROLL
    for (uint32_t n = 0; n < width / 8; n++) {
        const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};

        sums.set(sums_base + n * 32 + rows.lane, zeros);
    }
    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        totals[r] = total_of(job, item.head + rows.pair[r] % item.group);
    }
    for (uint32_t part = rows.begin / kPart; part * kPart < rows.end; part++) {
        run_part<T, D>(job, item, rows, first, last, part, queries, query_base,
                       &state);
        add_whole(state, rows, part, totals, sums, sums_base);
    }
    put_whole<width>(job, item, rows, first, totals, sums, sums_base);
}

/* ---- split ---- */

/* Number of the first part of a pair of a sequence. */
__device__ __forceinline__ size_t first_part(const Job &job, const Parts &parts,
                                             uint32_t seq, uint32_t kv_head,
                                             uint32_t pair)
{
    const size_t of_head = static_cast<size_t>(seq) * job.n_kv_heads + kv_head;

    return (of_head * parts.pairs + pair) * parts.n;
}

/* A block has one part of an item: the work of one warp, so that few sequences
 * spread over many multiprocessors. */
template <bt_kv_type_t T, uint32_t D>
__global__ void BT_BOUNDS(32 * kSlices<D>, 1) split_kernel(Job job, Parts parts)
{
    constexpr uint32_t width = kWidth<D>;
    BT_SHARED(uint32_t, queries, kSlices<D> * kPairs * D / 2);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t query_base = warp * kPairs * D / 2;
    const uint32_t number = blockIdx.x % parts.n;
    const uint32_t kv_head = blockIdx.x / parts.n % job.n_kv_heads;
    const uint32_t seq = blockIdx.x / parts.n / job.n_kv_heads;
    const Item item = item_of(job, seq, kv_head);
    const uint32_t part = item.begin / kPart + number;
    const uint32_t last = item.n_pairs - 1;
    Rows rows;
    State<width> state;

    if (!is_split(job, parts, seq) || (item.n_pairs == 0) ||
        (part * kPart >= item.end)) {
        return;
    }
    rows = rows_of(job, item, 0, last, warp * width);
    load_queries<T, D>(job, item, 0, last, &rows, queries, query_base);
    run_part<T, D>(job, item, rows, 0, last, part, queries, query_base, &state);
    BT_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        size_t at;

        if (rows.pair[r] != rows.g + 8 * r) {
            continue;
        }
        at = first_part(job, parts, seq, kv_head, rows.pair[r]) + number;
        if ((rows.t == 0) && (rows.d == 0)) {
            const float2 head = {state.max[r], state.sum[r]};

            bt_store(parts.heads + at, head);
        }
        BT_UNROLL
        for (uint32_t d = 0; d < width; d += 32) {
            float4 acc[4];
            float values[8];

            BT_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const float(&of)[4] = state.acc[d / 8 + i];

                acc[i] = {of[0], of[1], of[2], of[3]};
            }
            in_order(acc, r, 1.0f, values);
            put_eight(parts.values + at * parts.floats, rows.d + d + 8 * rows.t,
                      job.dim, values);
        }
    }
}

/* A block has a pair of a sequence and KV head, a thread some dimensions of it;
 * a warp reads the headers of 32 parts at once. */
__global__ void combine_kernel(Job job, Parts parts)
{
    const uint32_t pair = blockIdx.x % parts.pairs;
    const uint32_t kv_head = blockIdx.x / parts.pairs % job.n_kv_heads;
    const uint32_t seq = blockIdx.x / parts.pairs / job.n_kv_heads;
    const Item item = item_of(job, seq, kv_head);
    uint32_t position, from, to, first;
    size_t at;

    if (!is_split(job, parts, seq) || (pair >= item.n_pairs)) {
        return;
    }
    position = item.pos + pair / item.group;
    from = first_seen(job.window, position);
    to = position + 1;
    first = item.begin / kPart;
    at = first_part(job, parts, seq, kv_head, pair);
    for (uint32_t d = threadIdx.x; d / 32 * 32 < job.dim; d += blockDim.x) {
        Total total = total_of(job, item.head + pair % item.group);
        float2 heads = {0.0f, 0.0f};
        float sum = 0.0f;

        for (uint32_t part = from / kPart; part * kPart < to; part++) {
            const uint32_t i = part - from / kPart;
            Factors factors;

            if ((i % 32 == 0) && ((part + d % 32) * kPart < to)) {
                heads = bt_load(parts.heads + at + part - first + d % 32);
            }
            factors = add_part(&total, __shfl_sync(kAll, heads.x, i % 32),
                               __shfl_sync(kAll, heads.y, i % 32));
            if (d < job.dim) {
                sum = add_value(sum,
                                bt_load(parts.values +
                                        (at + part - first) * parts.floats + d),
                                factors);
            }
        }
        if (d < job.dim) {
            bt_store(out_of(job, item, pair) + d,
                     __fmul_rn(sum, __fdiv_rn(1.0f, total.sum)));
        }
    }
}

/* ---- host ---- */

uint32_t round_up(uint32_t n, uint32_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Sequences of a batch whose rows fit a warp and see more than a part. The
 * number of parts is rounded to a power of two, so that steps rarely record
 * different calls. */
Parts parts_of(const Job &job, const bt_batch_t *batch)
{
    const uint32_t group = (job.n_heads + job.n_kv_heads - 1) / job.n_kv_heads;
    Parts parts = {nullptr, nullptr, 1, 0, round_up(job.dim, 4)};
    uint32_t most = 0;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const bt_ragged_seq_t *seq = &batch->seqs[s];
        const uint32_t pairs = seq->n_rows * group;
        const uint32_t first = ((job.window == 0) || (seq->pos < job.window))
                                   ? 0
                                   : seq->pos + 1 - job.window;

        if ((seq->n_rows > 0) && (pairs <= kPairs)) {
            const uint32_t n =
                (seq->pos + seq->n_rows - 1) / kPart - first / kPart + 1;

            most = (n > most) ? n : most;
            parts.pairs = (pairs > parts.pairs) ? pairs : parts.pairs;
        }
    }
    while (parts.n < most) {
        parts.n *= 2;
    }
    return parts;
}

/* Bytes for a number of parts, values and headers. */
size_t bytes_of(size_t n_parts, uint32_t floats)
{
    return n_parts * (floats * sizeof(float) + sizeof(float2));
}

/* Reserved scratch is used if it is there. Without it nothing is split: slower,
 * with the same bits. */
void take_memory(bt_backend_t *be, const Job &job, uint32_t n_seqs,
                 Parts *parts)
{
    const size_t n =
        static_cast<size_t>(n_seqs) * job.n_kv_heads * parts->pairs * parts->n;

    if ((parts->n > 1) &&
        (bytes_of(n, parts->floats) <= bt_cuda_scratch_bytes(be))) {
        parts->values = static_cast<float *>(bt_cuda_scratch(be));
        parts->heads =
            reinterpret_cast<float2 *>(parts->values + n * parts->floats);
    }
}

template <bt_kv_type_t T, uint32_t D>
void launch_dim(bt_backend_t *be, Job job, const Parts &parts, uint32_t n_seqs)
{
    constexpr uint32_t n_warps = kWarpsOf<D>;
    const uint32_t group = (job.n_heads + job.n_kv_heads - 1) / job.n_kv_heads;
    const uint32_t n_heads = n_seqs * job.n_kv_heads;

    static_assert(32 * n_warps <= kThreads, "of the table of resources");
    job.items_per_row = (group + kTeams<D> * kPairs - 1) / (kTeams<D> * kPairs);
    BT_LAUNCH((whole_kernel<T, D>),
              job.n_rows * job.n_kv_heads * job.items_per_row, 32 * n_warps, be,
              job, parts);
    if (parts.values != nullptr) {
        BT_LAUNCH((split_kernel<T, D>), n_heads * parts.n, 32 * kSlices<D>, be,
                  job, parts);
        BT_LAUNCH(combine_kernel, n_heads * parts.pairs, kThreads, be, job,
                  parts);
    }
}

template <bt_kv_type_t T>
void launch(bt_backend_t *be, const Job &job, const Parts &parts,
            uint32_t n_seqs)
{
    if (job.dim <= 64) {
        launch_dim<T, 64>(be, job, parts, n_seqs);
    } else if (job.dim <= 128) {
        launch_dim<T, 128>(be, job, parts, n_seqs);
    } else {
        launch_dim<T, kMaxDim>(be, job, parts, n_seqs);
    }
}

} // namespace

size_t bt_cuda_attention_bytes(const bt_workload_t *w)
{
    const uint32_t group =
        (w->n_kv_heads == 0) ? 0
                             : (w->n_heads + w->n_kv_heads - 1) / w->n_kv_heads;
    const uint32_t most = (w->context_tokens + kPart - 1) / kPart;
    uint32_t n = 1;

    if ((group == 0) || (group > kPairs)) {
        return 0; /* a row is more than a warp can hold */
    }
    while (n < most) {
        n *= 2;
    }
    return bytes_of(static_cast<size_t>(w->max_seqs) * w->n_kv_heads *
                        (kPairs / group * group) * n,
                    round_up(w->head_dim, 4));
}

void bt_cuda_attention_tensor(bt_backend_t *be, const Job &job,
                              bt_kv_type_t type, const bt_batch_t *batch)
{
    Parts parts = parts_of(job, batch);

    take_memory(be, job, batch->n_seqs, &parts);
    switch (type) {
    case BT_KV_F16:
        launch<BT_KV_F16>(be, job, parts, batch->n_seqs);
        break;
    case BT_KV_BF16:
        launch<BT_KV_BF16>(be, job, parts, batch->n_seqs);
        break;
    case BT_KV_INT8:
        launch<BT_KV_INT8>(be, job, parts, batch->n_seqs);
        break;
    case BT_KV_FP8:
        launch<BT_KV_FP8>(be, job, parts, batch->n_seqs);
        break;
    }
}
