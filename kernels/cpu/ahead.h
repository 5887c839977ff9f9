/* SPDX-License-Identifier: Apache-2.0 */
/** @file ahead.h
 *
 * The next panel of a matrix, asked for while one is multiplied with many rows.
 * A core that computes for long does not come to its next loads: without being
 * asked, memory waits while it works, and the other way round. With few rows it
 * does come to them, and more requests are in their way: each kernel knows how
 * many rows are few.
 */
#ifndef BT_KERNELS_CPU_AHEAD_H
#define BT_KERNELS_CPU_AHEAD_H

#include "kernels/cpu/cpu.h"

/** At most so much of it: the panel that is multiplied stays in the same cache,
 *  and in larger models either has some hundred KiB. */
#define BT_AHEAD_BYTES ((size_t)256 << 10)

typedef struct bt_ahead {
    const uint8_t *next;
    const uint8_t *end;
    uint32_t n_lines; /**< cache lines of one bt_ahead_ask() */
} bt_ahead_t;

/** What follows panel @a p, evenly in @a n_asks calls of bt_ahead_ask(), which
 *  the kernels leave out with few rows. Behind the last panel is nothing. */
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

/** Into the core's second cache: the first is full of the rows. */
static inline void bt_ahead_ask(bt_ahead_t *ahead)
{
    for (uint32_t i = 0; (i < ahead->n_lines) && (ahead->next < ahead->end);
         i++) {
        __builtin_prefetch(ahead->next, 0, 2);
        ahead->next += 64;
    }
}

#endif
