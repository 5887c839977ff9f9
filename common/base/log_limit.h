/* SPDX-License-Identifier: Apache-2.0 */
/** @file log_limit.h
 *
 * Rate limit of log lines: BT_LOG_LIMIT_LINES of one kind in a second, which
 * begins with the first. So what one client or stranger can cause repeatedly
 * fills no disk, and hides nothing else. The others are counted and reported
 * when the second is over:
 *
 *     |─ 20 lines ─┬─ held ──────|─ "N more like …" ─ 20 lines ─┬─ held …
 *     0 ms                       1000 ms
 *
 * A kind is a call site, identified by the address of its format. If there are
 * more of them than BT_LOG_LIMIT_KINDS, the later ones are not limited.
 *
 * Pure: no clock, no lock; allocates nothing.
 */
#ifndef BT_COMMON_BASE_LOG_LIMIT_H
#define BT_COMMON_BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define BT_LOG_LIMIT_LINES 20u
#define BT_LOG_LIMIT_MS    1000u
/** Capacity in kinds: a power of two; there are some 300 call sites. */
#define BT_LOG_LIMIT_KINDS 512u

/** State of one kind of line. */
typedef struct bt_log_kind {
    const char *format; /**< NULL: free */
    uint64_t begin_ms;  /**< begin of its current second */
    uint32_t n_lines;   /**< lines written in that second */
    uint32_t n_held;
    int level; /**< level of the last held line */
} bt_log_kind_t;

/** State of the rate limit. Zero-initialise. */
typedef struct bt_log_limit {
    bt_log_kind_t kinds[BT_LOG_LIMIT_KINDS];
    uint32_t n_holding; /**< kinds with held lines */
    uint64_t due_ms;    /**< no kind has to be reported before this time */
} bt_log_limit_t;

/**
 * Counts a line of a kind; if lines were held and their second is over, report
 * them with bt_log_limit_over() first.
 * @param [in] format  lives as long as the limit
 * @return false: the line is held
 */
bool bt_log_limit_take(bt_log_limit_t *limit, const char *format, int level,
                       uint64_t now_ms);

/**
 * Takes the next kind whose second is over with lines held, and clears those.
 * Costs nothing until there is one.
 * @param [out] told_p  a copy
 * @return false when there is none
 */
bool bt_log_limit_over(bt_log_limit_t *limit, uint64_t now_ms,
                       bt_log_kind_t *told_p);

#endif
