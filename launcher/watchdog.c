/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/watchdog.h"

#define SHORTEST_MS 20u
#define LONGEST_MS  1000u

bool bt_watchdog_is_long_enough(uint32_t limit_ms)
{
    return (limit_ms == 0) || (limit_ms >= BT_WATCHDOG_LEAST_MS);
}

void bt_watchdog_init(bt_watchdog_t *watchdog, uint64_t now_ms)
{
    *watchdog = (bt_watchdog_t){.looked_ms = now_ms};
}

uint32_t bt_watchdog_period_ms(uint32_t limit_ms)
{
    const uint32_t tenth = limit_ms / 10;

    if (tenth < SHORTEST_MS) {
        return SHORTEST_MS;
    }
    return (tenth > LONGEST_MS) ? LONGEST_MS : tenth;
}

bool bt_watchdog_look(bt_watchdog_t *watchdog, uint64_t now_ms, bool has_beaten,
                      uint64_t waited_ms, uint32_t limit_ms)
{
    const uint64_t most_ms = 2u * bt_watchdog_period_ms(limit_ms);
    uint64_t passed_ms = now_ms - watchdog->looked_ms;

    watchdog->looked_ms = now_ms;
    if (has_beaten) {
        watchdog->is_watched = true;
        watchdog->silent_ms = watchdog->waited_ms = 0;
        return false;
    }
    if (!watchdog->is_watched) {
        return false;
    }
    if (passed_ms > most_ms) {
        passed_ms = most_ms; /* the launcher did not run either */
    }
    waited_ms = (waited_ms < passed_ms) ? waited_ms : passed_ms;
    watchdog->waited_ms += waited_ms;
    watchdog->silent_ms += passed_ms - waited_ms;
    if (watchdog->silent_ms < limit_ms) {
        return false;
    }
    watchdog->is_watched = false;
    return true;
}

bool bt_watchdog_is_starved(const bt_watchdog_t *watchdog, uint32_t limit_ms)
{
    return watchdog->is_watched &&
           (watchdog->waited_ms >= bt_watchdog_period_ms(limit_ms)) &&
           (watchdog->waited_ms >= watchdog->silent_ms);
}
