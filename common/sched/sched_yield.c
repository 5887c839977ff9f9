/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_yield.h"

bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us)
{
    const uint64_t waited_us =
        (now_us > work->since_us) ? now_us - work->since_us : 0;

    return (waited_us >= BT_SCHED_YIELD_LEAST_US) &&
           (waited_us / BT_SCHED_YIELD_STRETCH >= work->whole_us);
}

uint64_t bt_sched_yield_us(uint64_t step_us, uint64_t itl_us)
{
    if (step_us >= itl_us) {
        return 0;
    }
    return (step_us < itl_us - step_us) ? step_us : itl_us - step_us;
}
