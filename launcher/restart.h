/* SPDX-License-Identifier: Apache-2.0 */
/** @file restart.h
 *
 * When to start a process again that ended by itself. Pure: the time comes in
 * as a parameter.
 *
 * Pauses grow 0.5, 1, 2 ... 30 s. After a minute of health there is none, and
 * they begin anew. A process that never was ready is given up after its fifth
 * end, or the first one that says that the next would be the same.
 */
#ifndef BT_LAUNCHER_RESTART_H
#define BT_LAUNCHER_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define BT_RESTART_FIRST_PAUSE_MS   500
#define BT_RESTART_LONGEST_PAUSE_MS 30000
#define BT_RESTART_HEALTHY_MS       60000
#define BT_RESTART_EARLY_EXITS      5

typedef struct bt_restart {
    uint32_t next_pause_ms;
    uint32_t early_exits; /**< ends before it was ever ready */
    bool was_ever_ready;
    bool is_ready;
    uint64_t ready_ms; /**< since when, while is_ready */
} bt_restart_t;

void bt_restart_init(bt_restart_t *restart);

void bt_restart_ready(bt_restart_t *restart, uint64_t now_ms);

/** The process ended.
 *  @param [in] is_final  it would end the same way again, if it never was ready
 *  @return false: give up; true: start again after *pause_ms_p. */
bool bt_restart_exited(bt_restart_t *restart, uint64_t now_ms, bool is_final,
                       uint32_t *pause_ms_p);

#endif
