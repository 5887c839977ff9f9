/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_core_donation.h"

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
