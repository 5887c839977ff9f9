/* SPDX-License-Identifier: Apache-2.0 */
/** @file workload.h
 *
 * Maximum workload of a back end with memory of its own, and the memory it
 * takes besides buffers and weights. The sizes are known before anything is
 * allocated, and the memory is allocated before the first batch: operations
 * allocate none.
 */
#ifndef BT_KERNELS_WORKLOAD_H
#define BT_KERNELS_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

/** Maximum workload of one rank of a model. */
typedef struct bt_workload {
    uint32_t max_rows;
    uint32_t max_seqs;
    uint32_t context_tokens; /**< longest sequence, tokens */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t dense_n_in; /**< widest input of F32, F16, BF16 and E4M3 matrices;
                              0: none */
    uint32_t quant_n_in; /**< widest input of quantized matrices */
    uint32_t n_ranks;    /**< ranks of the largest table of collectives; 1:
                              none */
    uint32_t n_tables;   /**< tables of collectives to open */
} bt_workload_t;

/** Memory of a workload, in bytes. */
typedef struct bt_workload_memory {
    size_t scratch; /**< own memory that workload_reserve() allocates */
    size_t later;   /**< own memory left free for libraries: collectives,
                         graphs, kernel code. A fixed estimate, since it cannot
                         be queried. */
    size_t pinned;  /**< pinned host memory for copies */
} bt_workload_memory_t;

#endif
