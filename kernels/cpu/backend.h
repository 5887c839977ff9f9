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

/** Scratch memory of rows; it grows with the matrices that are packed. */
typedef struct cpu_scratch {
    void *data; /* NULL: no rows yet */
    size_t row_bytes;
} cpu_scratch_t;

typedef struct cpu_backend {
    bt_backend_t base; /* first: a bt_backend_t * is a cpu_backend_t * */
    const bt_cpu_isa_t *isa;
    bt_cpu_pool_t *pool;
    uint32_t max_rows;
    /* A row for each thread: */
    cpu_scratch_t panels; /* float: one dequantized panel */
    cpu_scratch_t wide;   /* bytes: one widened panel */
    cpu_scratch_t lines;  /* float: one row of a matmul, before it is converted
                           * to the formats below */
    cpu_scratch_t attn;   /* float */
    /* Rows of one matmul. The max_rows (tiles: + BT_TILE_ROWS) rows common to
     * all threads are followed by BT_CPU_OWN_ROWS for each thread. */
    cpu_scratch_t tiles;      /* float: rearranged */
    cpu_scratch_t bf16;       /* uint16_t, an even number */
    cpu_scratch_t q8;         /* bt_q8_group_t: quantized */
    const bt_weight_t *ahead; /* read after the next matmul; NULL: unknown */
} cpu_backend_t;

static inline cpu_backend_t *bt_cpu_of(bt_backend_t *be)
{
    return (cpu_backend_t *)(void *)be;
}

/** Returns a row of scratch memory; NULL: it has none. */
static inline void *bt_cpu_scratch_row(const cpu_scratch_t *scratch, size_t row)
{
    return (scratch->data == NULL)
               ? NULL
               : (uint8_t *)scratch->data + row * scratch->row_bytes;
}

typedef struct bt_cpu_rows {
    uint32_t first, end;
} bt_cpu_rows_t;

/** Returns the rows of a sequence that are in [begin, end). */
static inline bt_cpu_rows_t bt_cpu_rows_in(const bt_ragged_seq_t *seq,
                                           uint32_t begin, uint32_t end)
{
    const uint32_t seq_end = seq->row + seq->n_rows;

    return (bt_cpu_rows_t){.first = (seq->row > begin) ? seq->row : begin,
                           .end = (seq_end < end) ? seq_end : end};
}

/** Returns the items of a chunk with at least @a min_work units of work. */
uint32_t bt_cpu_grain(const cpu_backend_t *cpu, uint32_t n_items,
                      uint64_t work_per_item, uint64_t min_work);
/** Runs items 0 to n_items - 1 on the thread pool, in chunks of
 *  bt_cpu_grain(). */
void bt_cpu_run(cpu_backend_t *cpu, uint32_t n_items, uint64_t work_per_item,
                uint64_t min_work, bt_cpu_job_fn fn, void *ctx);

/* Operations; bt_cpu_NAME() implements bt_kernels_ops_t.NAME. */
#define BT_CPU_OP(name) \
    __typeof__(*((bt_kernels_ops_t *)NULL)->name) bt_cpu_##name

BT_CPU_OP(embed);
BT_CPU_OP(matmul);
BT_CPU_OP(matmul_ids);
BT_CPU_OP(lora);
BT_CPU_OP(norm_matmul);
BT_CPU_OP(matmul_add);
BT_CPU_OP(silu_matmul_add);
BT_CPU_OP(ahead);
BT_CPU_OP(rmsnorm);
BT_CPU_OP(rope_store);
BT_CPU_OP(layer_norm);
BT_CPU_OP(head_norm);
BT_CPU_OP(add_positions);
BT_CPU_OP(activate);
BT_CPU_OP(add_bias);
BT_CPU_OP(scale);
BT_CPU_OP(soft_cap);
BT_CPU_OP(clamp);
BT_CPU_OP(scale_positions);
BT_CPU_OP(attention);
BT_CPU_OP(add);
BT_CPU_OP(gather_rows);
BT_CPU_OP(copy_columns);
BT_CPU_OP(cut_columns);
BT_CPU_OP(argmax);
BT_CPU_OP(route);
BT_CPU_OP(matmul_experts);
BT_CPU_OP(add_expert_bias);
BT_CPU_OP(gate_rows);
BT_CPU_OP(combine);
#undef BT_CPU_OP

#endif
