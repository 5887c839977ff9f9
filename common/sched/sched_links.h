/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_links.h
 *
 * Set of small numbers: those of the decode workers that a prefill worker's KV
 * is proven to reach. One bit each, so that all pairs of 1,000 workers take 32
 * KiB.
 *
 * Threads: one thread owns a set.
 */
#ifndef BT_COMMON_SCHED_LINKS_H
#define BT_COMMON_SCHED_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/** Bit set. All zero: empty. */
typedef struct bt_sched_links {
    uint64_t *words; /**< owned */
    uint32_t n_words;
    uint32_t n; /**< numbers in the set */
} bt_sched_links_t;

/**
 * Adds a number.
 * @retval BT_ERR_NO_MEMORY  The set is unchanged.
 */
BT_MUST_CHECK bt_status_t bt_sched_links_add(bt_sched_links_t *links,
                                             uint32_t number);
void bt_sched_links_remove(bt_sched_links_t *links, uint32_t number);

static inline bool bt_sched_links_has(const bt_sched_links_t *links,
                                      uint32_t number)
{
    const uint32_t word = number / 64;

    return (word < links->n_words) &&
           (((links->words[word] >> (number % 64)) & 1u) != 0);
}

/** Returns the smallest number that is not in the set. */
uint32_t bt_sched_links_free(const bt_sched_links_t *links);
/** Empties the set and frees its memory. */
void bt_sched_links_fini(bt_sched_links_t *links);

#endif
