/* SPDX-License-Identifier: Apache-2.0 */
/** @file backend.h  The CPU back end's object and its operations. */
#ifndef BT_KERNELS_CPU_BACKEND_H
#define BT_KERNELS_CPU_BACKEND_H

#include "kernels/cpu/cpu.h"

/** Most rows of a matmul that each thread prepares for itself; at most one
 *  tile. */
#define BT_CPU_OWN_ROWS BT_TILE_ROWS

/** Below this many elements (of cheap operations), waking a helper costs more
 *  than it saves. */
#define BT_CPU_MIN_ELEMS 8192u
/** Operations on arrays without rows are split into pieces of this many
 *  elements. */
#define BT_CPU_PIECE 4096u

typedef struct cpu_backend {
    bt_backend_t base; /* first: a bt_backend_t * is a cpu_backend_t * */
    const bt_cpu_isa_t *isa;
    bt_cpu_pool_t *pool;
    uint32_t max_rows;
    uint32_t dense_n_in; /* widest n_in that panels and tiles can take */
    uint32_t bf16_n_in;  /* widest n_in that bf16 can take */
    uint32_t q8_n_in;    /* widest n_in that q8 can take */
    size_t panel_floats; /* per thread */
    float *panels;       /* one dequantized panel per thread */
    size_t wide_bytes;   /* per thread */
    uint8_t *wide;       /* one widened panel per thread */
    /* Rows of one matmul. The max_rows (tiles: + BT_TILE_ROWS) rows common to
     * all threads are followed by BT_CPU_OWN_ROWS for each thread. */
    float *tiles;       /* rearranged */
    uint16_t *bf16;     /* n_in made even */
    bt_q8_group_t *q8;  /* quantized */
    size_t line_floats; /* per thread, a multiple of 64 bytes */
    float *lines;       /* one row per thread, before it is converted to the
                         * formats above */
    const bt_weight_t *ahead; /* read after the next matmul; NULL: unknown */
    size_t attn_floats;       /* per thread */
    float *attn;
} cpu_backend_t;

static inline cpu_backend_t *bt_cpu_of(bt_backend_t *be)
{
    return (cpu_backend_t *)(void *)be;
}

/** Returns the items of a chunk with at least @a min_work units of work. */
uint32_t bt_cpu_grain(const cpu_backend_t *cpu, uint32_t n_items,
                      uint64_t work_per_item, uint64_t min_work);
/** Runs items 0 to n_items - 1 on the thread pool, in chunks of
 *  bt_cpu_grain(). */
void bt_cpu_run(cpu_backend_t *cpu, uint32_t n_items, uint64_t work_per_item,
                uint64_t min_work, bt_cpu_job_fn fn, void *ctx);

/* See bt_kernels_ops_t in kernels/kernels.h. */
void bt_cpu_embed(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out);
void bt_cpu_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out);
void bt_cpu_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                        const float *norm, float eps, uint32_t n_rows,
                        float *out);
void bt_cpu_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                       uint32_t n_rows, float *x);
void bt_cpu_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                            const float *gate_up, uint32_t n_rows, float *x);
void bt_cpu_ahead(bt_backend_t *be, const bt_weight_t *w);
void bt_cpu_rmsnorm(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out);
void bt_cpu_rope_store(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer);
void bt_cpu_layer_norm(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out);
void bt_cpu_head_norm(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim);
void bt_cpu_add_positions(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x);
void bt_cpu_activate(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out);
void bt_cpu_add_bias(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim);
void bt_cpu_scale(bt_backend_t *be, float *x, float factor, size_t n);
void bt_cpu_soft_cap(bt_backend_t *be, float *x, float cap, size_t n);
void bt_cpu_clamp(bt_backend_t *be, float *x, float limit, size_t n);
void bt_cpu_scale_positions(bt_backend_t *be, float *x, const float *factors,
                            const bt_batch_t *batch, size_t row_floats,
                            uint32_t dim);
void bt_cpu_attention(bt_backend_t *be, const bt_attention_t *attention,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out);
void bt_cpu_add(bt_backend_t *be, float *x, const float *y, size_t n);
void bt_cpu_gather_rows(bt_backend_t *be, const float *x,
                        const bt_batch_t *batch, uint32_t dim, float *out);
void bt_cpu_copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at);
void bt_cpu_cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out);
void bt_cpu_argmax(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids);

#endif
