/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_chunk.h
 *
 * Chunk size: how many prompt tokens the next iteration computes, tuned at run
 * time from measured step times (sched_cost.h).
 *
 *   - No sequence generates: the smallest chunk with little overhead. The fixed
 *     cost of an iteration is a fortieth of its time, or up to a tenth where
 *     the iteration would otherwise take longer than BT_SCHED_CHUNK_SLOW_US.
 *     Larger chunks gain nothing, and a short prompt that arrives waits for the
 *     end of one. At least what takes BT_SCHED_CHUNK_QUICK_US, a wait that does
 *     not matter.
 *   - Sequences generate: the largest chunk that keeps the iteration within the
 *     inter-token latency target, or within twice its time without a chunk if
 *     that is more: prompts proceed even where the target cannot be met. At
 *     least one block.
 *
 * Each case has its own size. A size changes when the best size has differed by
 * more than a fourth BT_SCHED_CHUNK_VOTES times in a row; immediately, when the
 * target would be missed by as much; and, while no sequence generates,
 * immediately in the first BT_SCHED_CHUNK_YOUNG chunks. One in 32 chunks is
 * half as large when no sequence generates: chunks of one size could not
 * separate the cost of a token from that of an iteration.
 *
 * Activations need memory for max_tokens plus the generating sequences,
 * whatever the length of a prompt.
 *
 * Threads: pure; one thread owns it.
 * Source:  Agrawal et al., "Sarathi-Serve", OSDI 2024, section 4 (a token
 *          budget from the target of time between tokens).
 */
#ifndef BT_COMMON_SCHED_CHUNK_H
#define BT_COMMON_SCHED_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_cost.h"

#define BT_SCHED_CHUNK_QUICK_US 20000u
#define BT_SCHED_CHUNK_SLOW_US  70000u
#define BT_SCHED_CHUNK_VOTES    8
#define BT_SCHED_CHUNK_YOUNG    24
/** Limits of a tuned chunk when no sequence generates: smallest (kernel
 *  tiles are not full below it, which the cost model cannot see), first,
 *  before anything is measured, and largest. */
#define BT_SCHED_CHUNK_LEAST 64u
#define BT_SCHED_CHUNK_FIRST 256u
/** Lower limit unless a chunk this large takes longer than
 *  BT_SCHED_CHUNK_SLOW_US: from small chunks alone the cost model learns
 *  that small chunks cost nothing. */
#define BT_SCHED_CHUNK_FEW  128u
#define BT_SCHED_CHUNK_MOST 1024u

typedef struct bt_sched_chunk_size {
    uint32_t tokens;
    int32_t n_votes; /**< votes in a row for a larger size; below 0: for a
                          smaller one */
} bt_sched_chunk_size_t;

typedef struct bt_sched_chunk {
    bool is_fixed;
    uint32_t max_tokens, tokens_per_block;
    uint32_t itl_us;
    bt_sched_chunk_size_t alone, beside; /**< no sequence generates;
                                              sequences generate */
    uint32_t n_alone;                    /**< chunks so far, to halve one in
                                              32 */
} bt_sched_chunk_t;

/**
 * Initialises the chunk sizes.
 * @param [in] is_fixed    The size is always max_tokens.
 * @param [in] max_tokens  At least tokens_per_block.
 * @param [in] itl_us      Inter-token latency target; not 0.
 */
void bt_sched_chunk_init(bt_sched_chunk_t *chunk, bool is_fixed,
                         uint32_t max_tokens, uint32_t tokens_per_block,
                         uint32_t itl_us);

/**
 * Returns the budget of prompt tokens of the next iteration.
 *
 * @param [in] step      The iteration's generating sequences: n_seqs and reads;
 *     no tokens.
 * @param [in] position  Position where the first chunk begins.
 * @return tokens_per_block to max_tokens.
 */
uint32_t bt_sched_chunk_tokens(bt_sched_chunk_t *chunk,
                               const bt_sched_cost_t *cost,
                               const bt_sched_step_t *step, uint32_t position);

#endif
