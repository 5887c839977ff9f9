/* SPDX-License-Identifier: Apache-2.0 */
/** @file ahead.h
 *
 * Prefetches the next panel of a matrix while the current one is multiplied
 * with many rows. A core that computes for a long time does not issue its next
 * loads: without prefetch, memory idles while the core works, and the other way
 * round. With few rows the core does issue them, and more requests would get in
 * their way: each kernel knows how many rows are few.
 */
#ifndef BT_KERNELS_CPU_AHEAD_H
#define BT_KERNELS_CPU_AHEAD_H

#include "kernels/cpu/cpu.h"

/** Maximum bytes prefetched of a panel: the panel in use stays in the same
 *  cache, and in larger models either has some hundred KiB. */
#define BT_AHEAD_BYTES ((size_t)256 << 10)

typedef struct bt_ahead {
    const uint8_t *next;
    const uint8_t *end;
    uint32_t n_lines; /**< cache lines of one bt_ahead_ask() */
} bt_ahead_t;

/** Prepares the prefetch of the panel after panel @a p, spread evenly over @a
 *  n_asks calls of bt_ahead_ask(), which kernels omit with few rows. Nothing is
 *  prefetched after the last panel. */
static inline bt_ahead_t bt_ahead_of(const bt_matmul_job_t *job, uint32_t p,
                                     uint32_t n_asks)
{
    const bt_weight_t *w = job->w;
    const uint8_t *next = w->data + (p + 1) * w->panel_bytes;
    const size_t bytes =
        (w->panel_bytes < BT_AHEAD_BYTES) ? w->panel_bytes : BT_AHEAD_BYTES;

    if (p + 1 >= w->n_panels) {
        return (bt_ahead_t){0};
    }
    return (bt_ahead_t){
        .next = next,
        .end = next + bytes,
        .n_lines = (uint32_t)((bytes / 64 + n_asks - 1) / n_asks),
    };
}

/** Prefetches the next lines into the L2 cache: the rows fill the L1 cache. */
static inline void bt_ahead_ask(bt_ahead_t *ahead)
{
    for (uint32_t i = 0; (i < ahead->n_lines) && (ahead->next < ahead->end);
         i++) {
        __builtin_prefetch(ahead->next, 0, 2);
        ahead->next += 64;
    }
}

#endif
