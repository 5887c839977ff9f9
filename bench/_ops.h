/* SPDX-License-Identifier: Apache-2.0 */
/** @file _ops.h  Single operations of a back end, with memory of their own:
 * what kernels-run and gpu-run have in common. Failures end the program. */
#ifndef BT_BENCH_OPS_H
#define BT_BENCH_OPS_H

#include "bench/_half.h"
#include "kernels/kernels.h"

#define BT_OPS_TOKENS_PER_BLOCK 16u
#define BT_OPS_MAX_COUNT        (1u << 20)
#define BT_OPS_MAX_COPIES       1024u
#define BT_OPS_DRAWS            16u /**< draws of experts, one for each call in turn */

typedef struct bt_ops_run bt_ops_run_t;
typedef void (*bt_ops_call_t)(bt_ops_run_t *r);

struct bt_ops_run {
    bt_backend_t *be;
    uint32_t max_rows;
    uint64_t random;
    /** Repeats a call as the rest of a command says, and prints the times. */
    void (*measure)(bt_ops_run_t *r, bt_ops_call_t call,
                    const char *const *words);

    bt_weight_t *weights[BT_OPS_MAX_COPIES];
    uint32_t n_copies;
    uint32_t at; /**< copy, or layer, of the next call */
    uint32_t n_out;
    uint32_t n_in;

    bt_expert_rows_t draws[BT_OPS_DRAWS]; /**< draws that `experts` made */

    bt_kv_view_t kv;
    uint32_t n_heads;
    uint32_t n_blocks;
    uint32_t n_seqs;
    bt_ragged_seq_t *seqs;
    uint32_t *ids;    /**< blocks of the sequences */
    uint32_t *tokens; /**< arbitrary token ids */

    float *x; /**< input and output of the current operation */
    float *out;
    uint32_t n_rows;
};

typedef struct bt_ops_command {
    const char *name;
    void (*run)(bt_ops_run_t *r, const char *const *words);
} bt_ops_command_t;

/** Runs the command of a table that @a words name. */
void bt_ops_obey(bt_ops_run_t *r, const bt_ops_command_t *commands, size_t n,
                 const char *const *words);
/** Frees weights, KV cache and sequences, and closes the back end. */
void bt_ops_fini(bt_ops_run_t *r);

/** Allocates random numbers in -2 … 2 in back-end memory. */
float *bt_ops_floats(bt_ops_run_t *r, size_t n);
/** Measures a call with @a n_x and @a n_out numbers of input and output. */
void bt_ops_measure(bt_ops_run_t *r, size_t n_x, size_t n_out,
                    bt_ops_call_t call, const char *const *words);

/** Runs the command `weight TYPE N_OUT N_IN COPIES`: random matrices, for the
 *  next matmuls. */
void bt_ops_weight(bt_ops_run_t *r, const char *const *words);
/** Runs the command `matmul ROWS …`: the copies one after the other. */
void bt_ops_matmul(bt_ops_run_t *r, const char *const *words);

/** Runs the command `experts E USED ROWS …`: the matrix as those of E experts,
 *  ROWS rows go through USED of them each, drawn at random, others in each
 *  call, so that they are read from memory. */
void bt_ops_experts(bt_ops_run_t *r, const char *const *words);

/** Runs the command `kv TYPE HEADS KV_HEADS DIM ROWS POS SEQS`: SEQS sequences
 *  with ROWS new tokens from position POS each. The cache is not filled. */
void bt_ops_kv(bt_ops_run_t *r, const char *const *words, uint32_t n_layers);
bt_batch_t bt_ops_batch(const bt_ops_run_t *r);
/** Measures a call over the KV cache, with queries, keys and values as input.
 */
void bt_ops_measure_kv(bt_ops_run_t *r, bt_ops_call_t call,
                       const char *const *words);
/** Runs the command `attention …`: a layer after the other. */
void bt_ops_attention(bt_ops_run_t *r, const char *const *words);

/** Allocates a KV cache of one rank and @a n_blocks blocks in back-end
 *  memory. */
bt_kv_view_t bt_ops_kv_view(bt_backend_t *be, bt_kv_type_t type,
                            uint32_t n_layers, uint32_t n_kv_heads,
                            uint32_t head_dim, uint32_t tokens_per_block,
                            uint32_t n_blocks);

#endif
