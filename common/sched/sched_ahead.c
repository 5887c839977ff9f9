/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_ahead.h"

#define OLD_SHARE 7u /* of 8 */

void bt_sched_ahead_learn_host(bt_sched_ahead_t *ahead, uint64_t host_ns)
{
    ahead->host_ns =
        (ahead->host_ns == 0)
            ? host_ns
            : (OLD_SHARE * ahead->host_ns + host_ns) / (OLD_SHARE + 1);
}

bool bt_sched_ahead_pays(const bt_sched_ahead_t *ahead,
                         bt_sched_ahead_mode_t mode)
{
    switch (mode) {
    case BT_SCHED_AHEAD_ON:
        return true;
    case BT_SCHED_AHEAD_AUTO:
        return (ahead->host_ns > 0) && (ahead->step_ns > 0) &&
               (ahead->host_ns >= ahead->step_ns / BT_SCHED_AHEAD_SHARE);
    case BT_SCHED_AHEAD_OFF:
    default:
        return false;
    }
}
