/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_safety_factor.h"

#include "common/sched/sched_age.h"

#define UP          0.1 /* at most, for a promise that was broken */
#define DOWN        (UP / BT_SCHED_SAFETY_FACTOR_ONE_OF)
#define MOST        ((double)BT_SCHED_SAFETY_FACTOR_MOST / 1000)
#define PROBE_SHARE 0.25 /* of the way down */

void bt_sched_safety_factor_init(bt_sched_safety_factor_t *margin,
                                 uint32_t least)
{
    *margin =
        (bt_sched_safety_factor_t){.factor = 1, .least = (double)least / 1000};
}

static double aged(const bt_sched_safety_factor_t *margin, uint64_t now_us)
{
    const uint64_t age_us = bt_sched_age_us(margin->at_us, now_us);

    if (age_us <= BT_SCHED_SAFETY_FACTOR_REST_US) {
        return margin->factor;
    }
    return 1 + (margin->factor - 1) *
                   bt_sched_age_left(age_us - BT_SCHED_SAFETY_FACTOR_REST_US,
                                     BT_SCHED_SAFETY_FACTOR_HALF_US);
}

/* @param down  of a promise that was kept: so far at most */
static void move(bt_sched_safety_factor_t *margin, double to, double down,
                 uint64_t now_us)
{
    double factor = aged(margin, now_us);
    const double more = to - factor;

    if (more > 0) {
        factor += (more < UP) ? more : UP;
    } else {
        factor -= (more > -down) ? -more : down;
    }
    if (factor > MOST) {
        factor = MOST;
    } else if (factor < margin->least) {
        factor = margin->least;
    }
    margin->factor = factor;
    margin->at_us = now_us;
}

void bt_sched_safety_factor_learn(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us)
{
    if (forecast_us > 0) {
        move(margin, (double)us / (double)forecast_us, DOWN, now_us);
    }
}

void bt_sched_safety_factor_probe(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us)
{
    const double took =
        (forecast_us > 0) ? (double)us / (double)forecast_us : 0;
    const double way = aged(margin, now_us) - took;

    if (forecast_us > 0) {
        move(margin, took, (way > 0) ? PROBE_SHARE * way : 0, now_us);
    }
}

uint32_t bt_sched_safety_factor_now(const bt_sched_safety_factor_t *margin,
                                    uint64_t now_us)
{
    return (uint32_t)(aged(margin, now_us) * 1000 + 0.5);
}
