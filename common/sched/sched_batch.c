/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_batch.h"

#include <string.h>

#include "common/base/assert.h"

void bt_sched_batch_init(bt_sched_batch_t *batch, bool is_static)
{
    memset(batch, 0, sizeof(*batch));
    batch->is_static = is_static;
}

static bool is_empty(const bt_sched_batch_t *batch)
{
    uint32_t n = 0;

    for (uint32_t i = BT_SCHED_COMING; i < BT_SCHED_N_PARTS; i++) {
        n += batch->n[i];
    }
    return n == 0;
}

void bt_sched_batch_move(bt_sched_batch_t *batch, bt_sched_part_t *part_p,
                         bt_sched_part_t next)
{
    const bt_sched_part_t part = *part_p;

    if (next != BT_SCHED_OUTSIDE) {
        batch->n[next]++;
    }
    if (part != BT_SCHED_OUTSIDE) {
        BT_ASSERT(batch->n[part] > 0);
        batch->n[part]--;
    }
    *part_p = next;
    batch->is_closed = batch->is_closed && !is_empty(batch);
}

void bt_sched_batch_round(bt_sched_batch_t *batch)
{
    if (batch->is_static &&
        (batch->n[BT_SCHED_READY] + batch->n[BT_SCHED_INSIDE] +
             batch->n[BT_SCHED_PAUSED] >
         0)) {
        batch->is_closed = true;
    }
}
