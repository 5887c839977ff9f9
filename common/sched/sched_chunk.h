/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_chunk.h
 *
 * How many prompt tokens the next iteration computes, tuned while running from
 * what steps take here (sched_cost.h).
 *
 *   - Nobody generates: as few as waste little. What an iteration costs
 *     whatever it computes is a fortieth of it, or up to a tenth where it would
 *     otherwise take longer than BT_SCHED_CHUNK_SLOW_US. Larger ones gain
 *     nothing, and a short prompt that comes waits for the end of one. Never
 *     less than what takes BT_SCHED_CHUNK_QUICK_US, for which nobody minds to
 *     wait.
 *   - Somebody does: as many as leave the iteration within the target of
 *     inter-token latency, or within twice what it takes without a chunk where
 *     that is more: prompts get on also where the target cannot be met. One
 *     block at least.
 *
 * The size is one of its own for both cases. It changes when a size that
 * differs by more than a fourth would have been right BT_SCHED_CHUNK_VOTES
 * times in a row, at once where the target would be missed by as much, and
 * where nobody generates at once in the first BT_SCHED_CHUNK_YOUNG chunks. One
 * in 32 chunks where nobody generates is half a one: of chunks that are all
 * alike nobody could tell what a token costs, and what an iteration.
 *
 * Activations need memory for max_tokens and what generates, whatever the
 * length of a prompt.
 *
 * Threads: pure; one thread owns it.
 * Source:  Agrawal et al., "Sarathi-Serve", OSDI 2024, section 4 (a token
 * budget from the target of time between tokens).
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
/** Of one that is tuned, where nobody generates: the least (below it tiles of
 * the kernels are not full, which no line tells), the first, before anything is
 *  measured, and the most. */
#define BT_SCHED_CHUNK_LEAST 64u
#define BT_SCHED_CHUNK_FIRST 256u
/** Fewer only where these would take longer than BT_SCHED_CHUNK_SLOW_US: of
 * small chunks alone a line learns that small ones cost nothing. */
#define BT_SCHED_CHUNK_FEW  128u
#define BT_SCHED_CHUNK_MOST 1024u

typedef struct bt_sched_chunk_size {
    uint32_t tokens;
    int32_t n_votes; /**< for a larger size in a row; below 0: for a smaller */
} bt_sched_chunk_size_t;

typedef struct bt_sched_chunk {
    bool is_fixed;
    uint32_t max_tokens, tokens_per_block;
    uint32_t itl_us;
    bt_sched_chunk_size_t alone, beside; /**< nobody generates, somebody does */
    uint32_t n_alone;                    /**< chunks so far, for the halves */
} bt_sched_chunk_t;

/** @param [in] is_fixed    It is max_tokens, always.
 *  @param [in] max_tokens  At least tokens_per_block.
 *  @param [in] itl_us      The target; not 0. */
void bt_sched_chunk_init(bt_sched_chunk_t *chunk, bool is_fixed,
                         uint32_t max_tokens, uint32_t tokens_per_block,
                         uint32_t itl_us);

/**
 * The budget of context tokens of the next iteration.
 *
 * @param [in] step      Its generations: n_seqs and reads; no tokens.
 * @param [in] position  Where the first chunk begins.
 * @return tokens_per_block to max_tokens.
 */
uint32_t bt_sched_chunk_tokens(bt_sched_chunk_t *chunk,
                               const bt_sched_cost_t *cost,
                               const bt_sched_step_t *step, uint32_t position);

#endif
