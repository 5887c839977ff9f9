/* SPDX-License-Identifier: Apache-2.0 */
/** @file watchdog.h
 *
 * Is a process hung that says by heartbeats (common/base/heartbeat.h) that it
 * is not? Pure: the time comes in as a parameter.
 *
 *     launcher looks:   ·     ·     ·     ·     ·     ·     ·
 *     heartbeats:       ||||  |||   ....stopped............
 *     silent for:       0     0     p    2p    3p  … limit: hung
 *
 * A process that waits for a core is starved, not hung: that time
 * (common/base/core_wait.h) is nobody's silence.
 *
 * A process is watched from its first heartbeat on: what loads a model is not.
 * Time in which the launcher itself did not run (the machine slept, it was
 * stopped) counts for nobody's silence beyond two periods.
 */
#ifndef BT_LAUNCHER_WATCHDOG_H
#define BT_LAUNCHER_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/heartbeat.h"

/** Of --watchdog-ms, where it is not 0: programs have a heartbeat every
 *  BT_HEARTBEAT_EVERY_MS. */
#define BT_WATCHDOG_LEAST_MS (5u * BT_HEARTBEAT_EVERY_MS)

typedef struct bt_watchdog {
    uint64_t looked_ms;
    uint64_t silent_ms;
    uint64_t waited_ms; /**< for a core, since the last heartbeat */
    bool is_watched;
} bt_watchdog_t;

/** May --watchdog-ms be that? */
bool bt_watchdog_is_long_enough(uint32_t limit_ms);

/** A process started. */
void bt_watchdog_init(bt_watchdog_t *watchdog, uint64_t now_ms);

/** How often to look: a tenth of @a limit_ms, 20 ms to 1 s. */
uint32_t bt_watchdog_period_ms(uint32_t limit_ms);

/** Once in a period.
 *  @param [in] has_beaten  since the last look
 *  @param [in] waited_ms   so long it waited for a core since then
 *  @return it is hung: silent for @a limit_ms. Said once for a process. */
bool bt_watchdog_look(bt_watchdog_t *watchdog, uint64_t now_ms, bool has_beaten,
                      uint64_t waited_ms, uint32_t limit_ms);

/** Is it silent for it waits for a core: half of the time, and longer than
 *  between two looks? */
bool bt_watchdog_is_starved(const bt_watchdog_t *watchdog, uint32_t limit_ms);

#endif
