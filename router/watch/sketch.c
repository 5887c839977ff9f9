/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/sketch.h"

void bt_sketch_clear(bt_sketch_t *sketch)
{
    *sketch = (bt_sketch_t){0};
}

void bt_sketch_merge(bt_sketch_t *into, const bt_sketch_t *from)
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

uint64_t bt_sketch_percentile(const bt_sketch_t *sketch, uint32_t percent)
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
