/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding, and storing of keys and values into the paged
 * cache, with the bits of the reference.
 *
 * Slots 2 i and 2 i + 1 of a block share words (kernels.h): for keys where an
 * element has 8 bits, for values always. So one thread block stores both slots
 * by whole words where both come in this call: the block of the even slot's row
 * does it. An odd slot is stored alone where its neighbour came before. */
#include <cmath>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/formula.h"

namespace
{

const uint32_t kThreads = 128;

/* ---- positions ---- */

struct Rotation {
    const float *cos_sin;
    const uint32_t *positions;
    size_t row_floats;
    uint32_t n_heads; /* of queries and keys */
    uint32_t head_dim;
    uint32_t dims;
    uint32_t interleaved; /* a word, so that there is no padding */
};

/* One block per row, a thread for each pair in turn. */
__global__ void rotate_kernel(float *qkv, Rotation r)
{
    const uint32_t half = r.dims / 2;
    const size_t position = bt_load(r.positions + blockIdx.x);
    const float *table = r.cos_sin + position * r.dims;
    float *row = qkv + blockIdx.x * r.row_floats;

    for (uint32_t i = threadIdx.x; i < r.n_heads * half; i += blockDim.x) {
        const uint32_t pair = i % half;
        float *head = row + static_cast<size_t>(i / half) * r.head_dim;
        float *first = head + (r.interleaved ? 2 * pair : pair);
        float *second = first + (r.interleaved ? 1 : half);
        const float a = bt_load(first);
        const float b = bt_load(second);
        const float c = bt_load(table + 2 * pair);
        const float s = bt_load(table + 2 * pair + 1);

        bt_store(first, fmaf(a, c, -__fmul_rn(b, s)));
        bt_store(second, fmaf(a, s, __fmul_rn(b, c)));
    }
}

/* ---- the cache ---- */

struct Store {
    const float *qkv;
    size_t row_floats;
    uint32_t n_heads;
    const uint32_t *positions, *blocks, *row_seqs, *seqs; /* of the batch */
    uint8_t *base;
    size_t block_bytes;
    bt_kv_type_t type;
    uint32_t n_layers, layer;
    uint32_t n_kv_heads, dim, t;
    uint32_t n_groups, group;
};

/* Two neighbouring slots of a head, one or both of which are stored. */
struct Pair {
    const float *x[2]; /* vector of the even slot and of the odd one; NULL: not
                        * stored */
    uint8_t *block;
    size_t vectors; /* offset of this head in its block */
    uint32_t slot;  /* of the even one */
};

__device__ Pair pair_of(const Store &s, uint32_t row, uint32_t head,
                        uint32_t part, bool has_next)
{
    const uint32_t position = bt_load(s.positions + row);
    const uint32_t id =
        bt_load(s.blocks + static_cast<size_t>(row) * s.n_groups + s.group);
    const float *x =
        s.qkv + row * s.row_floats +
        (s.n_heads + static_cast<size_t>(part) * s.n_kv_heads + head) * s.dim;
    Pair p;

    p.x[0] = (position % 2 == 0) ? x : nullptr;
    p.x[1] = (position % 2 != 0) ? x : has_next ? x + s.row_floats : nullptr;
    p.block = s.base + id * s.block_bytes;
    p.vectors =
        ((static_cast<size_t>(s.layer) * 2 + part) * s.n_kv_heads + head) * s.t;
    p.slot = position % s.t / 2 * 2;
    return p;
}

__device__ uint16_t half_of(const Store &s, float x)
{
    return (s.type == BT_KV_F16) ? bt_f32_to_f16(x) : bt_f32_to_bf16(x);
}

__device__ void store_halves(const Store &s, const Pair &p, uint32_t part)
{
    uint16_t *elems = reinterpret_cast<uint16_t *>(p.block) + p.vectors * s.dim;

    for (uint32_t d = threadIdx.x; d < s.dim; d += blockDim.x) {
        for (uint32_t k = 0; (part == 0) && (d % 2 == 0) && (k < 2); k++) {
            uint16_t *at = elems + static_cast<size_t>(d) * s.t +
                           2 * (static_cast<size_t>(p.slot) + k);

            if (p.x[k] != nullptr) {
                const uint32_t low = half_of(s, bt_load(p.x[k] + d));
                const uint32_t high = half_of(s, bt_load(p.x[k] + d + 1));

                bt_store(reinterpret_cast<uint32_t *>(at), low | high << 16);
            }
        }
        if (part == 1) {
            uint16_t *at = elems + static_cast<size_t>(p.slot) * s.dim +
                           2 * static_cast<size_t>(d);

            if ((p.x[0] != nullptr) && (p.x[1] != nullptr)) {
                const uint32_t low = half_of(s, bt_load(p.x[0] + d));
                const uint32_t high = half_of(s, bt_load(p.x[1] + d));

                bt_store(reinterpret_cast<uint32_t *>(at), low | high << 16);
            } else {
                const uint32_t k = (p.x[0] != nullptr) ? 0 : 1;

                bt_store(at + k, half_of(s, bt_load(p.x[k] + d)));
            }
        }
    }
}

/* Returns the scale of a vector, at all threads. */
__device__ float scale_of(const Store &s, const float *x)
{
    BT_SHARED(uint32_t, largest, kThreads);
    const uint32_t t = threadIdx.x;
    uint32_t most = 0;
    float scale;

    for (uint32_t d = t; d < s.dim; d += kThreads) {
        const uint32_t bits = bt_f32_bits(bt_load(x + d)) & 0x7fffffffu;

        most = (bits > most) ? bits : most;
    }
    largest.set(t, most);
    BT_SYNC();
    for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
        if ((t < half) && (largest.get(t + half) > largest.get(t))) {
            largest.set(t, largest.get(t + half));
        }
        BT_SYNC();
    }
    scale = bt_code_scale(largest.get(0),
                          (s.type == BT_KV_INT8) ? I8_MAX : E4M3_MAX);
    BT_SYNC();
    return scale;
}

__device__ uint32_t code_of(const Store &s, float x, float scale)
{
    if (!(scale > 0.0f)) {
        return 0;
    }
    return (s.type == BT_KV_INT8) ? static_cast<uint8_t>(bt_i8_code(x, scale))
                                  : bt_f32_to_e4m3(__fdiv_rn(x, scale));
}

/* Two adjacent elements of both slots; zero for a slot that is not stored. */
__device__ void codes_of(const Store &s, const Pair &p, uint32_t d,
                         const float scales[2], uint32_t codes[2][2])
{
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; (p.x[k] != nullptr) && (i < 2); i++) {
            codes[k][i] = code_of(s, bt_load(p.x[k] + d + i), scales[k]);
        }
    }
}

__device__ void store_codes(const Store &s, const Pair &p, uint32_t part)
{
    const size_t n_vectors =
        static_cast<size_t>(s.n_layers) * 2 * s.n_kv_heads * s.t;
    float *scales_at =
        reinterpret_cast<float *>(p.block + n_vectors * s.dim) + p.vectors;
    const bool both = (p.x[0] != nullptr) && (p.x[1] != nullptr);
    uint8_t *elems = p.block + p.vectors * s.dim;
    float scales[2] = {0.0f, 0.0f};

    for (uint32_t k = 0; k < 2; k++) {
        if (p.x[k] != nullptr) { /* uniform over all threads */
            scales[k] = scale_of(s, p.x[k]);
            if (threadIdx.x == 0) {
                bt_store(scales_at + p.slot + k, scales[k]);
            }
        }
    }
    for (uint32_t d = 2 * threadIdx.x; d < s.dim; d += 2 * blockDim.x) {
        /* [slot][element] of keys, [element][slot] of values */
        uint8_t *at =
            elems + ((part == 0) ? static_cast<size_t>(d) * s.t +
                                       2 * static_cast<size_t>(p.slot)
                                 : static_cast<size_t>(p.slot) * s.dim +
                                       2 * static_cast<size_t>(d));
        uint32_t c[2][2];

        codes_of(s, p, d, scales, c);
        if (both) {
            const uint32_t second = (part == 0) ? c[0][1] : c[1][0];
            const uint32_t third = (part == 0) ? c[1][0] : c[0][1];

            bt_store(reinterpret_cast<uint32_t *>(at),
                     c[0][0] | second << 8 | third << 16 | c[1][1] << 24);
            continue;
        }
        const uint32_t k = (p.x[0] != nullptr) ? 0 : 1;

        if (part == 0) {
            bt_store(reinterpret_cast<uint16_t *>(at + 2 * k),
                     static_cast<uint16_t>(c[k][0] | c[k][1] << 8));
        } else {
            bt_store(at + k, static_cast<uint8_t>(c[k][0]));
            bt_store(at + 2 + k, static_cast<uint8_t>(c[k][1]));
        }
    }
}

/* One block per row and KV head. */
__global__ void store_kernel(Store s)
{
    const uint32_t row = blockIdx.x / s.n_kv_heads;
    const uint32_t head = blockIdx.x % s.n_kv_heads;
    const uint32_t *seq =
        s.seqs +
        static_cast<size_t>(bt_load(s.row_seqs + row)) * BT_BATCH_SEQ_WORDS;
    const uint32_t first = bt_load(seq);
    const uint32_t end = first + bt_load(seq + 1);
    const bool odd = bt_load(s.positions + row) % 2 != 0;

    if (odd && (row > first)) {
        return; /* the row before stores it */
    }
    for (uint32_t part = 0; part < 2; part++) {
        const Pair p = pair_of(s, row, head, part, !odd && (row + 1 < end));

        if ((s.type == BT_KV_F16) || (s.type == BT_KV_BF16)) {
            store_halves(s, p, part);
        } else {
            store_codes(s, p, part);
        }
    }
}

void rope_store(bt_backend_t *be, float *qkv, uint32_t n_heads,
                const bt_rotation_t *rotation, const bt_batch_t *batch,
                const bt_kv_view_t *kv, uint32_t layer)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);
    const uint32_t *words = bt_cuda_words(be);
    const size_t row_floats =
        (n_heads + 2 * static_cast<size_t>(kv->n_kv_heads)) * kv->head_dim;
    const Rotation r = {rotation->cos_sin,    words + at.position,
                        row_floats,           n_heads + kv->n_kv_heads,
                        kv->head_dim,         rotation->dims,
                        rotation->interleaved};
    Store s = {};

    if (batch->n_rows == 0) {
        return;
    }
    if (rotation->dims > 0) {
        BT_LAUNCH(rotate_kernel, batch->n_rows, kThreads, be, qkv, r);
    }
    s.qkv = qkv;
    s.row_floats = row_floats;
    s.n_heads = n_heads;
    s.positions = words + at.position;
    s.blocks = words + at.block;
    s.row_seqs = words + at.row_seq;
    s.seqs = words + at.seq;
    s.base = static_cast<uint8_t *>(kv->base);
    s.block_bytes = kv->block_bytes;
    s.type = kv->type;
    s.n_layers = kv->n_layers;
    s.layer = layer;
    s.n_kv_heads = kv->n_kv_heads;
    s.dim = kv->head_dim;
    s.t = kv->tokens_per_block;
    s.n_groups = 1 + kv->n_other_groups;
    s.group = kv->group;
    BT_LAUNCH(store_kernel, batch->n_rows * kv->n_kv_heads, kThreads, be, s);
}

} // namespace

extern "C" void bt_cuda_kv_ops(bt_kernels_ops_t *ops)
{
    ops->rope_store = rope_store;
}
