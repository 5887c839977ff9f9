/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_plan.h
 *
 * Arithmetic on byte ranges, shared by both sides of a transfer. Pure.
 *
 * A *map* numbers the bytes of a region through its pool extents, adjacent
 * extents merged:
 *
 *     extents   [100,+16) [116,+16) [400,+8)
 *     map       region 0..31 → pool 100..131,  region 32..39 → pool 400..407
 *
 * A *range set* remembers which bytes were posted, given out, or verified.
 *
 * Threads: none of these functions lock.
 */
#ifndef BT_KVTRANSFER_KVT_PLAN_H
#define BT_KVTRANSFER_KVT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtransfer/kvt.h"

typedef struct bt_kvt_run {
    uint64_t start;  /**< in the region, bytes */
    uint64_t offset; /**< in the pool, bytes */
    uint64_t bytes;
} bt_kvt_run_t;

typedef struct bt_kvt_map {
    bt_kvt_run_t *runs; /**< owned; ordered by start, without gaps */
    uint32_t n_runs, cap;
    uint64_t bytes; /**< size of the whole region */
} bt_kvt_map_t;

/**
 * Builds a map.
 *
 * @param [in]  extents     Any values.
 * @param [in]  pool_bytes  Every extent must lie within.
 * @param [in,out] map      All zero, or an old map whose memory is reused;
 *                          empty after a failure. Free with bt_kvt_map_fini().
 * @retval BT_ERR_INVALID_PARAM  none, too many, an empty one, outside the pool,
 *                               or two overlap
 * @retval BT_ERR_NO_MEMORY Cost O(n log n).
 */
BT_MUST_CHECK bt_status_t bt_kvt_map_init(const bt_kvt_extent_t *extents,
                                          uint32_t n_extents,
                                          uint64_t pool_bytes,
                                          bt_kvt_map_t *map);
void bt_kvt_map_fini(bt_kvt_map_t *map);

/**
 * Finds the pool bytes at the beginning of a region range.
 *
 * @param [out] pool_offset_p  Pool offset of region byte @a offset.
 * @return how many of the @a bytes are contiguous there; 0 when the range is
 *         empty or leaves the region. Cost O(log n).
 */
uint64_t bt_kvt_map_find(const bt_kvt_map_t *map, uint64_t offset,
                         uint64_t bytes, uint64_t *pool_offset_p);

/**
 * Finds all pool runs of a region range.
 *
 * @param [out] runs  [max]; their start is in the region.
 * @return how many; 0 when the range is empty, leaves the region, or has more
 *         than
 * @a max. Cost O(log n).
 */
uint32_t bt_kvt_map_runs(const bt_kvt_map_t *map, uint64_t offset,
                         uint64_t bytes, bt_kvt_run_t *runs, uint32_t max);

typedef struct bt_kvt_range {
    uint64_t begin;
    uint64_t end; /**< exclusive */
} bt_kvt_range_t;

/** Set of byte ranges. All zero is an empty set. */
typedef struct bt_kvt_ranges {
    bt_kvt_range_t *ranges; /**< owned; ordered, no two touching */
    uint32_t n, cap;
    uint64_t bytes; /**< covered */
} bt_kvt_ranges_t;

/**
 * Adds @a bytes (at least 1) at @a offset; the sum must not overflow.
 * @retval BT_ERR_EXISTS     part of it is in the set; nothing changed
 * @retval BT_ERR_NO_MEMORY  nothing changed
 */
BT_MUST_CHECK bt_status_t bt_kvt_ranges_add(bt_kvt_ranges_t *set,
                                            uint64_t offset, uint64_t bytes);
/** @return true when all of the range is in the set. */
bool bt_kvt_ranges_have(const bt_kvt_ranges_t *set, uint64_t offset,
                        uint64_t bytes);
/** Empties a set, keeping its memory. */
void bt_kvt_ranges_clear(bt_kvt_ranges_t *set);
void bt_kvt_ranges_fini(bt_kvt_ranges_t *set);

#endif
