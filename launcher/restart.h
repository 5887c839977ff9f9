/* SPDX-License-Identifier: Apache-2.0 */
/** @file restart.h
 *
 * Restart policy for a process that ended by itself. Pure: the caller passes
 * the time.
 *
 * Pauses grow 0.5, 1, 2 ... 30 s. After a healthy minute the restart is
 * immediate and the pauses begin anew. A process that was never ready is given
 * up after its fifth end, or after the first one that reports a retry to be
 * useless.
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
    uint32_t early_exits; /**< ends before the process was ever ready */
    bool was_ever_ready;
    bool is_ready;
    uint64_t ready_ms; /**< since when ready, while is_ready */
} bt_restart_t;

void bt_restart_init(bt_restart_t *restart);

void bt_restart_ready(bt_restart_t *restart, uint64_t now_ms);

/** Decides about a restart after the process ended.
 *  @param [in] is_final  a retry would end in an equal way, if the process was
 *                        never ready
 *  @return false: give up; true: start again after *pause_ms_p. */
bool bt_restart_exited(bt_restart_t *restart, uint64_t now_ms, bool is_final,
                       uint32_t *pause_ms_p);

#endif
