/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_overlap.h"

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
