/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/latency_histogram.h"

void bt_latency_histogram_clear(bt_latency_histogram_t *sketch)
{
    *sketch = (bt_latency_histogram_t){0};
}

void bt_latency_histogram_merge(bt_latency_histogram_t *into,
                                const bt_latency_histogram_t *from)
{
    if (from->n == 0) {
        return;
    }
    for (uint32_t i = 0; i < BT_SKETCH_CELLS; i++) {
        into->cells[i] += from->cells[i];
    }
    into->n += from->n;
}

static uint64_t middle_of(uint32_t cell)
{
    if (cell < 16) {
        return cell;
    }
    const uint32_t shift = cell / 16 - 1;
    const uint64_t low = (uint64_t)(16 + cell % 16) << shift;

    return low + (((UINT64_C(1) << shift) - 1) / 2);
}

uint64_t bt_latency_histogram_percentile(const bt_latency_histogram_t *sketch,
                                         uint32_t percent)
{
    /* Nearest rank: the smallest value with at least that many values at or
     * below. */
    const uint64_t rank = (sketch->n * percent + 99) / 100;
    uint64_t below = 0;

    for (uint32_t i = 0; i < BT_SKETCH_CELLS; i++) {
        below += sketch->cells[i];
        if ((below >= rank) && (rank > 0)) {
            return middle_of(i);
        }
    }
    return 0;
}
