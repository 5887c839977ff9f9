/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_age.h"

#include <math.h>

double bt_sched_age_left(uint64_t age_us, uint64_t half_us)
{
    return (half_us > 0) ? exp2(-(double)age_us / (double)half_us) : 0;
}

double bt_sched_age_share(double share, uint64_t age_us, uint64_t half_us)
{
    return fmax(share, 1 - bt_sched_age_left(age_us, half_us));
}

bool bt_sched_probe_is_due(const bt_sched_probe_t *probe, uint64_t now_us)
{
    return !probe->is_out && (now_us >= probe->rests_until_us);
}

void bt_sched_probe_sent(bt_sched_probe_t *probe)
{
    probe->is_out = true;
}

void bt_sched_probe_back(bt_sched_probe_t *probe, uint64_t now_us)
{
    probe->is_out = false;
    probe->rests_until_us = now_us + BT_SCHED_PROBE_EVERY_US;
}
