/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_microbatch.h"

#include "common/base/assert.h"

bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows)
{
    const uint32_t n = ready->n_rows / least_rows;
    bt_sched_microbatches_t lots = {.n = (n == 0)         ? 1
                                         : (n < n_stages) ? n
                                                          : n_stages};

    lots.n_generating = (ready->n_generating + lots.n - 1) / lots.n;
    if (lots.n_generating == 0) {
        lots.n_generating = 1;
    }
    return lots;
}

bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *lots,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows)
{
    if ((n_under_way >= lots->n) || (n_rows == 0)) {
        return false;
    }
    return (n_under_way == 0) || (n_rows >= least_rows);
}

static bool is_generating(const bt_sched_item_t *item)
{
    return item->last_chunk && (item->n_new == 1 + item->seq->n_drafts);
}

uint32_t bt_sched_microbatch_cut(bt_sched_item_t *items, uint32_t n_items,
                                 uint32_t n_generating)
{
    uint32_t n_first = 0; /* generating sequences come first */
    uint32_t n_over;

    while ((n_first < n_items) && is_generating(&items[n_first])) {
        n_first++;
    }
    if (n_first <= n_generating) {
        return n_items;
    }
    n_over = n_first - n_generating;
    for (uint32_t i = n_generating; i < n_items - n_over; i++) {
        const bt_sched_item_t item = items[i];

        items[i] = items[i + n_over];
        items[i + n_over] = item;
    }
    return n_items - n_over;
}
