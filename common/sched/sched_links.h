/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_links.h
 *
 * A set of small numbers: those of the decode workers that a prefill worker's
 * KV is proven to reach. A bit for each, so that all pairs of 1,000 workers
 * take 32 KiB.
 *
 * Threads: one thread owns a set.
 */
#ifndef BT_COMMON_SCHED_LINKS_H
#define BT_COMMON_SCHED_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/** All zero: empty. */
typedef struct bt_sched_links {
    uint64_t *words; /**< owned */
    uint32_t n_words;
    uint32_t n; /**< numbers in it */
} bt_sched_links_t;

/** @retval BT_ERR_NO_MEMORY  The set is as it was. */
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

/** The smallest number that is not in it. */
uint32_t bt_sched_links_free(const bt_sched_links_t *links);
/** Empty it, and free its memory. */
void bt_sched_links_fini(bt_sched_links_t *links);

#endif
