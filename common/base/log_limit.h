/* SPDX-License-Identifier: Apache-2.0 */
/** @file log_limit.h
 *
 * How many lines of one kind go into the log: BT_LOG_LIMIT_LINES in a second,
 * which begins with the first. What one client or stranger can cause again and
 * again fills no disk, and hides nothing else. The others are counted and told
 * of when the second is over:
 *
 *     |─ 20 lines ─┬─ held ──────|─ "N more like …" ─ 20 lines ─┬─ held …
 *     0 ms                       1000 ms
 *
 * A kind is a call, known by the address of its format. When there are more of
 * them than BT_LOG_LIMIT_KINDS, the later ones are not limited.
 *
 * Pure: no clock, no lock; allocates nothing.
 */
#ifndef BT_COMMON_BASE_LOG_LIMIT_H
#define BT_COMMON_BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define BT_LOG_LIMIT_LINES 20u
#define BT_LOG_LIMIT_MS    1000u
/** A power of two; there are some 300 calls. */
#define BT_LOG_LIMIT_KINDS 512u

typedef struct bt_log_kind {
    const char *format; /**< NULL: free */
    uint64_t begin_ms;  /**< of its second */
    uint32_t n_lines;   /**< in it */
    uint32_t n_held;
    int level; /**< of the last held one */
} bt_log_kind_t;

/** Zero-initialise. */
typedef struct bt_log_limit {
    bt_log_kind_t kinds[BT_LOG_LIMIT_KINDS];
    uint32_t n_holding; /**< kinds with held lines */
    uint64_t due_ms;    /**< before that none of them has to be told of */
} bt_log_limit_t;

/** A line of this kind comes; where lines were held and their second is over,
 *  bt_log_limit_over() has to tell of them first.
 *  @param [in] format  lives as long as the limit
 *  @return false: it is held */
bool bt_log_limit_take(bt_log_limit_t *limit, const char *format, int level,
                       uint64_t now_ms);

/** The next kind whose second is over with lines held, and forget those. Costs
 *  nothing until that is so.
 *  @param [out] told_p  a copy
 *  @return false when there is none */
bool bt_log_limit_over(bt_log_limit_t *limit, uint64_t now_ms,
                       bt_log_kind_t *told_p);

#endif
