/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the paged cache, with the bits of the reference
 * (kernels/cpu/body.h, attn_pair()): each sum is one sequential chain in its
 * order, and independent chains run in parallel.
 *
 * A thread block has an *item*: up to P (row, head) pairs of one sequence and
 * one KV head, which share the cache reads. The block walks over the positions
 * by *spans*, a tile of 32 for each of its warps:
 *
 *     score         a thread per position: its scores of all pairs
 *     find_maximum  a thread per tile and pair: the tile's largest score
 *     correct       a thread per tile and pair: the largest so far, and the
 *                   factor of acc
 *     weigh         a thread per two positions of some pairs: exp and weights
 *     sum_tile      a thread per tile and pair: the tile's sum
 *     add_values    a thread per element of the values: acc of some pairs
 *
 * with a barrier between any two but the last, and none after a span: the
 * scores of the next span write nothing that sums and values read. The number
 * of warps of a block, and so the length of a span, changes no bit. */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attn_item.h"
#include "kernels/cuda/attn_steps.h"

using namespace bt_attn;

namespace
{

template <uint32_t P>
__device__ void store_values(const Job &job, const Item &item,
                             const Column &column, const float *acc)
{
    const auto factors = sums_of<P>();

#pragma unroll
    for (uint32_t i = 0; i < P; i++) {
        const uint32_t p = pair_of<P>(column, i);

        if ((p < item.n_pairs) && (column.d < job.dim)) {
            const size_t row = item.row + (item.first + p) / item.group;
            const size_t head = item.head + (item.first + p) % item.group;

            bt_store(job.out + (row * job.n_heads + head) * job.dim + column.d,
                     __fmul_rn(acc[i], factors.get(p)));
        }
    }
}

template <bt_kv_type_t T, uint32_t P> __global__ void attention_kernel(Job job)
{
    const uint32_t span = blockDim.x; /* a position per thread */
    Item item;

    if (!find_item<P>(job, &item)) {
        return;
    }
    const uint32_t start = item.begin / kTile * kTile;
    const Column column = column_of<P>(job.dim);
    Keeper keeper = keeper_of<P>(job, item);
    float acc[P];

#pragma unroll
    for (uint32_t i = 0; i < P; i++) {
        const uint32_t p = pair_of<P>(column, i);

        /* Nonzero for pairs that the item lacks: their weights are 0, and zero
         * sums would take the slow path (add_products()). */
        acc[i] = (p < item.n_pairs) ? 0.0f : 1.0f;
    }
    load_item<P>(job, item);
    BT_SYNC();
    for (uint32_t at = start; at < item.end; at += span) {
        const Source source = score<T, P>(job, item, at);

        BT_SYNC();
        if (at != start) {
            add_sums<P>(&keeper, at - span);
        }
        note_source<T>(source);
        find_maximum<P>(keeper, at);
        BT_SYNC();
        correct<P>(&keeper, at);
        BT_SYNC();
        weigh<T, P>(item, at);
        BT_SYNC();
        sum_tile<P>(keeper, at);
        add_values<T, P>(job, item, column, at, acc);
    }
    BT_SYNC();
    add_sums<P>(&keeper, start + (item.end - 1 - start) / span * span);
    if (keeper.is_one && (keeper.tile == 0)) {
        sums_of<P>().set(keeper.pair, __fdiv_rn(1.0f, keeper.sum));
    }
    BT_SYNC();
    store_values<P>(job, item, column, acc);
}

/* ---- host ---- */

/* Warps of a block: one per tile of the longest sequence, and a thread for each
 * element of a value. */
uint32_t threads_for(const bt_batch_t *batch, uint32_t window, uint32_t dim)
{
    uint32_t n_warps = (dim + kTile - 1) / kTile;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const bt_ragged_seq_t *seq = &batch->seqs[s];
        const uint32_t end = seq->pos + seq->n_rows;
        const uint32_t first =
            ((window == 0) || (seq->pos < window)) ? 0 : seq->pos + 1 - window;
        const uint32_t n = (end + kTile - 1) / kTile - first / kTile;

        n_warps = (n > n_warps) ? n : n_warps;
    }
    return kTile * ((n_warps > kMaxWarps) ? kMaxWarps : n_warps);
}

template <bt_kv_type_t T, uint32_t P>
void launch_pairs(bt_backend_t *be, Job job, uint32_t group, uint32_t n_threads)
{
    const auto attention_item = attention_kernel<T, P>;

    job.items_per_row = (group + P - 1) / P;
    BT_LAUNCH(attention_item, job.n_rows * job.n_kv_heads * job.items_per_row,
              n_threads, be, job);
}

/* Pairs per item: the pairs of a row and KV head where all sequences have one
 * row; otherwise rows share the cache reads. */
template <bt_kv_type_t T>
void launch(bt_backend_t *be, const Job &job, const bt_batch_t *batch)
{
    const uint32_t group = (job.n_heads + job.n_kv_heads - 1) / job.n_kv_heads;
    const uint32_t most = (batch->n_seqs == batch->n_rows) ? group : kMaxPairs;
    const uint32_t n = threads_for(batch, job.window, job.dim);

    if (most == 1) {
        launch_pairs<T, 1>(be, job, group, n);
    } else if (most <= 4) {
        launch_pairs<T, 4>(be, job, group, n);
    } else {
        launch_pairs<T, kMaxPairs>(be, job, group, n);
    }
}

/* Offsets of a layer's parts in a block (kernels.h). */
void set_layer(const bt_kv_view_t *kv, uint32_t layer, Job *job)
{
    const bool has_scales = (kv->type == BT_KV_INT8) || (kv->type == BT_KV_FP8);
    const size_t bytes = kv->head_dim * static_cast<size_t>(has_scales ? 1 : 2);
    const size_t part =
        static_cast<size_t>(kv->n_kv_heads) * kv->tokens_per_block;
    const size_t scales = kv->n_layers * 2 * part * bytes;

    job->base = static_cast<const uint8_t *>(kv->base);
    job->block_bytes = kv->block_bytes;
    job->keys = layer * 2 * part * bytes;
    job->values = job->keys + part * bytes;
    job->key_scales = scales + layer * 2 * part * sizeof(float);
    job->value_scales = job->key_scales + part * sizeof(float);
    job->n_kv_heads = kv->n_kv_heads;
    job->dim = kv->head_dim;
    job->t = kv->tokens_per_block;
    job->n_groups = 1 + kv->n_other_groups;
    job->group = kv->group;
}

void attention(bt_backend_t *be, const bt_attention_t *attention,
               const float *qkv, const bt_batch_t *batch,
               const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);
    const uint32_t *words = bt_cuda_words(be);
    Job job = {};

    if (batch->n_rows == 0) {
        return;
    }
    set_layer(kv, layer, &job);
    job.q = qkv;
    job.row_floats =
        (attention->n_heads + 2 * static_cast<size_t>(kv->n_kv_heads)) *
        kv->head_dim;
    job.out = out;
    job.row_seqs = words + at.row_seq;
    job.seqs = words + at.seq;
    job.ids = words + at.id;
    job.n_rows = batch->n_rows;
    job.n_heads = attention->n_heads;
    job.window = attention->window;
    job.scale = attention->scale;
    job.soft_cap = attention->soft_cap;
    job.cap_factor = (job.soft_cap > 0.0f) ? 2.0f / attention->soft_cap : 0.0f;
    job.sinks = attention->sinks;
    job.slopes = attention->slopes;
    if (bt_cuda_numerics(be) == BT_NUMERICS_TENSOR) {
        bt_cuda_attention_tensor(be, job, kv->type, batch);
        return;
    }
    switch (kv->type) {
    case BT_KV_F16:
        launch<BT_KV_F16>(be, job, batch);
        break;
    case BT_KV_BF16:
        launch<BT_KV_BF16>(be, job, batch);
        break;
    case BT_KV_INT8:
        launch<BT_KV_INT8>(be, job, batch);
        break;
    case BT_KV_FP8:
        launch<BT_KV_FP8>(be, job, batch);
        break;
    }
}

} // namespace

extern "C" void bt_cuda_attention_ops(bt_kernels_ops_t *ops)
{
    ops->attention = attention;
}
