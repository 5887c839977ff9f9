/* SPDX-License-Identifier: Apache-2.0 */
/** @file watchdog.h
 *
 * Detects hung processes by missing heartbeats (common/base/heartbeat.h).
 * Pure: the caller passes the time.
 *
 *     launcher looks:   ·     ·     ·     ·     ·     ·     ·
 *     heartbeats:       ||||  |||   ....stopped............
 *     silent for:       0     0     p    2p    3p  … limit: hung
 *
 * A process that waits for a core is starved, not hung: that time
 * (common/base/core_wait.h) does not count as silence.
 *
 * A process is watched from its first heartbeat on, so not while it loads a
 * model. Time in which the launcher itself did not run (the machine slept, the
 * launcher was stopped) counts at most two periods of silence.
 */
#ifndef BT_LAUNCHER_WATCHDOG_H
#define BT_LAUNCHER_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/heartbeat.h"

/** Least value of --watchdog-ms, other than 0: programs send a heartbeat every
 *  BT_HEARTBEAT_EVERY_MS. */
#define BT_WATCHDOG_LEAST_MS (5u * BT_HEARTBEAT_EVERY_MS)

typedef struct bt_watchdog {
    uint64_t looked_ms;
    uint64_t silent_ms;
    uint64_t waited_ms; /**< wait for a core, since the last heartbeat */
    bool is_watched;
} bt_watchdog_t;

/** True when --watchdog-ms may have this value. */
bool bt_watchdog_is_long_enough(uint32_t limit_ms);

/** Initialises the watchdog of a process that has started. */
void bt_watchdog_init(bt_watchdog_t *watchdog, uint64_t now_ms);

/** Returns the interval of checks: a tenth of @a limit_ms, 20 ms to 1 s. */
uint32_t bt_watchdog_period_ms(uint32_t limit_ms);

/** Checks a process; call once per period.
 *  @param [in] has_beaten  since the last look
 *  @param [in] waited_ms   wait for a core since then
 *  @return whether the process hangs: silent for @a limit_ms. True once per
 *          process. */
bool bt_watchdog_look(bt_watchdog_t *watchdog, uint64_t now_ms, bool has_beaten,
                      uint64_t waited_ms, uint32_t limit_ms);

/** True when the silence is a wait for a core: half of the time, and longer
 *  than one period. */
bool bt_watchdog_is_starved(const bt_watchdog_t *watchdog, uint32_t limit_ms);

#endif
