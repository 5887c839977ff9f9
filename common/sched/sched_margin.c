/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_margin.h"

#define UP   0.1 /* at most, for a promise that was broken */
#define DOWN (UP / BT_SCHED_MARGIN_ONE_OF)
#define MOST ((double)BT_SCHED_MARGIN_MOST / 1000)

void bt_sched_margin_init(bt_sched_margin_t *margin, uint32_t least)
{
    *margin = (bt_sched_margin_t){.factor = 1, .least = (double)least / 1000};
}

void bt_sched_margin_learn(bt_sched_margin_t *margin, uint64_t forecast_us,
                           uint64_t us)
{
    double more;

    if (forecast_us == 0) {
        return;
    }
    more = (double)us / (double)forecast_us - margin->factor;
    if (more > 0) {
        margin->factor += (more < UP) ? more : UP;
    } else {
        margin->factor -= (more > -DOWN) ? -more : DOWN;
    }
    if (margin->factor > MOST) {
        margin->factor = MOST;
    } else if (margin->factor < margin->least) {
        margin->factor = margin->least;
    }
}

uint32_t bt_sched_margin_factor(const bt_sched_margin_t *margin)
{
    return (uint32_t)(margin->factor * 1000 + 0.5);
}
