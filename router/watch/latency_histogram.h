/* SPDX-License-Identifier: Apache-2.0 */
/** @file latency_histogram.h
 *
 * Latency histogram for percentiles, with a relative error of at most 3.2 %:
 * the width of a cell is a sixteenth of a power of two. Below 16 us a cell is
 * a microsecond.
 *
 *     us     0 … 15 | 16 17 … 31 | 32 34 … 62 | 64 68 … | … | 9.5 h and more
 *     cell   0 … 15 | 16  …   31 | 32  …   47 | 48   …  | … | 511
 *
 * Threads: one owns a sketch.
 */
#ifndef BT_ROUTER_WATCH_LATENCY_HISTOGRAM_H
#define BT_ROUTER_WATCH_LATENCY_HISTOGRAM_H

#include <stdint.h>

#define BT_SKETCH_CELLS 512u

typedef struct bt_latency_histogram {
    uint64_t n;
    uint32_t cells[BT_SKETCH_CELLS];
} bt_latency_histogram_t;

/** Adds a value; O(1), called once for each token. */
static inline void bt_latency_histogram_add(bt_latency_histogram_t *sketch,
                                            uint64_t us)
{
    uint32_t cell = (uint32_t)us;

    if (us >= 16) {
        const uint32_t power = 63 - (uint32_t)__builtin_clzll(us);

        cell = (power - 3) * 16 + ((uint32_t)(us >> (power - 4)) & 15u);
        cell = (cell < BT_SKETCH_CELLS) ? cell : BT_SKETCH_CELLS - 1;
    }
    sketch->cells[cell]++;
    sketch->n++;
}

void bt_latency_histogram_clear(bt_latency_histogram_t *sketch);
void bt_latency_histogram_merge(bt_latency_histogram_t *into,
                                const bt_latency_histogram_t *from);
/** Returns the value of a percentile: the middle of its cell.
 *  @param percent  above 0, at most 100
 *  @return 0 for an empty sketch */
uint64_t bt_latency_histogram_percentile(const bt_latency_histogram_t *sketch,
                                         uint32_t percent);

#endif
