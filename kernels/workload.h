/* SPDX-License-Identifier: Apache-2.0 */
/** @file workload.h
 *
 * The most that a back end with memory of its own will be asked for, and what
 * of memory it takes for that beside buffers and weights. So that it is known
 * before anything is taken, and taken before the first batch: operations take
 * none.
 */
#ifndef BT_KERNELS_WORKLOAD_H
#define BT_KERNELS_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

/** A model of one rank. */
typedef struct bt_workload {
    uint32_t max_rows;
    uint32_t max_seqs;
    uint32_t context_tokens; /**< of a sequence, at most */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t dense_n_in; /**< widest input of matrices of numbers, and of E4M3;
                              0: there are none */
    uint32_t quant_n_in; /**< of quantized ones */
    uint32_t n_ranks;    /**< of the largest table of collectives; 1: none */
    uint32_t n_tables;   /**< that are opened */
} bt_workload_t;

/** Bytes. */
typedef struct bt_workload_memory {
    size_t scratch; /**< own memory, that workload_reserve() takes */
    size_t later;   /**< own memory that is left for others: what libraries take
                         for collectives, graphs, the code of kernels. A stated
                         number, for nobody can be asked. */
    size_t pinned;  /**< of the host, for copies */
} bt_workload_memory_t;

#endif
