/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_prefix_estimate.h
 *
 * Estimate of which prompt prefixes workers have the KV of, from what was sent
 * to them: hashes of the blocks that they computed or received, each with
 * everything before it. A worker may have evicted a block since, and if two
 * hashes collide in the table the later one stays. Used for forecasts only.
 *
 *     whose    number of the worker's process; its entries end with the process
 *     space    bt_msg_request_t.space: tenant, adapter, salt
 *
 * Bounded: one table for all workers, and of each prompt the first
 * BT_SCHED_PREFIX_MAX_BLOCKS blocks.
 *
 * Threads: one thread owns a table.
 */
#ifndef BT_COMMON_SCHED_PREFIX_ESTIMATE_H
#define BT_COMMON_SCHED_PREFIX_ESTIMATE_H

#include <stdint.h>

#include "common/base/hash.h"

#define BT_SCHED_PREFIX_SLOTS      16384u
#define BT_SCHED_PREFIX_MAX_BLOCKS (BT_SCHED_PREFIX_SLOTS / 8)

/** Hash table of prompt blocks. All zero: empty. */
typedef struct bt_sched_prefix_estimate {
    uint64_t slots[BT_SCHED_PREFIX_SLOTS]; /**< 0: free */
} bt_sched_prefix_estimate_t;

/** Records that a worker has the whole blocks of these tokens. */
void bt_sched_prefix_estimate_add(bt_sched_prefix_estimate_t *held,
                                  uint64_t whose, bt_hash128_t space,
                                  const uint32_t *tokens, uint32_t n,
                                  uint32_t tokens_per_block);
/** Returns how many of the first tokens a worker has: whole blocks. */
uint32_t bt_sched_prefix_estimate_find(const bt_sched_prefix_estimate_t *held,
                                       uint64_t whose, bt_hash128_t space,
                                       const uint32_t *tokens, uint32_t n,
                                       uint32_t tokens_per_block);

#endif
