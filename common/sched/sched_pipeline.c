/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_pipeline.h"

#include "common/base/status.h"

bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows)
{
    const uint32_t n = ready->n_rows / least_rows;
    bt_sched_microbatches_t split = {.n = (n == 0)         ? 1
                                          : (n < n_stages) ? n
                                                           : n_stages};

    split.n_generating = (ready->n_generating + split.n - 1) / split.n;
    if (split.n_generating == 0) {
        split.n_generating = 1;
    }
    return split;
}

bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *split,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows)
{
    if ((n_under_way >= split->n) || (n_rows == 0)) {
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

#define OLD_SHARE 7u /* of 8 */

void bt_sched_overlap_learn_host(bt_sched_overlap_t *ahead, uint64_t host_ns)
{
    ahead->host_ns =
        (ahead->host_ns == 0)
            ? host_ns
            : (OLD_SHARE * ahead->host_ns + host_ns) / (OLD_SHARE + 1);
}

bool bt_sched_overlap_pays(const bt_sched_overlap_t *ahead,
                           bt_sched_overlap_mode_t mode)
{
    switch (mode) {
    case BT_SCHED_OVERLAP_ON:
        return true;
    case BT_SCHED_OVERLAP_AUTO:
        return (ahead->host_ns > 0) && (ahead->step_ns > 0) &&
               (ahead->host_ns >= ahead->step_ns / BT_SCHED_OVERLAP_SHARE);
    case BT_SCHED_OVERLAP_OFF:
    default:
        return false;
    }
}

/* Whole passes that may follow one another. */
#define MOST_PASSES 2u

static uint32_t most(const bt_sched_midstep_join_t *late)
{
    return MOST_PASSES * BT_SCHED_MIDSTEP_JOIN_SHARE * late->n_layers;
}

void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers)
{
    late->n_layers = n_layers;
    late->credit = most(late);
}

void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late)
{
    late->credit += late->n_layers;
    if (late->credit > most(late)) {
        late->credit = most(late);
    }
}

/* In the last eighth to wait for the next iteration is as good. */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done)
{
    return (n_done <= late->n_layers - late->n_layers / 8) &&
           (n_done < late->n_layers) &&
           (late->credit >= BT_SCHED_MIDSTEP_JOIN_SHARE * n_done);
}

void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late, uint32_t n_done)
{
    late->credit -= BT_SCHED_MIDSTEP_JOIN_SHARE * n_done;
}

#define SPARE_MOST 1e12 /* us: beyond all reason */

bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us)
{
    const uint64_t waited_us =
        (now_us > work->since_us) ? now_us - work->since_us : 0;

    return (waited_us >= BT_SCHED_DONATION_LEAST_US) &&
           (waited_us / BT_SCHED_DONATION_STRETCH >= work->whole_us);
}

uint64_t bt_sched_spare_us(const bt_sched_itl_progress_t *pace,
                           uint64_t step_us)
{
    const double each =
        (double)(pace->itl_us - pace->itl_us / BT_SCHED_DONATION_MARGIN);
    const double spare = each * ((double)pace->n_tokens + 1) -
                         (double)pace->spent_us - (double)step_us;

    if (spare <= 0) {
        return 0;
    }
    return (spare < SPARE_MOST) ? (uint64_t)spare : (uint64_t)SPARE_MOST;
}

uint64_t bt_sched_donation_us(uint64_t step_us, uint64_t spare_us)
{
    return (step_us < spare_us) ? step_us : spare_us;
}
