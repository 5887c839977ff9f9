/* SPDX-License-Identifier: Apache-2.0 */
/** @file heartbeat.h
 *
 * The heartbeat of a program to whoever started it: while its loop turns it
 * adds to the counter behind the descriptor that BATON_BEAT_FD names (an
 * eventfd), some ten times a second. Whoever started it reads the counter now
 * and then; a process that adds nothing any more is stopped, blocked or
 * spinning.
 *
 * It must be called by the thread whose turns it stands for, and by no timer or
 * thread beside it. One thread.
 */
#ifndef BT_COMMON_BASE_HEARTBEAT_H
#define BT_COMMON_BASE_HEARTBEAT_H

#include <stdint.h>

#define BT_HEARTBEAT_EVERY_MS 100u

/** Zero-initialise, or open. */
typedef struct bt_heartbeat_tick {
    int fd; /**< owned; 0: nobody asks */
    uint64_t next_ms;
} bt_heartbeat_t;

/** The descriptor that the environment names, or none; a value that is no
 *  number from 3 on, or names no descriptor, is warned about. */
void bt_heartbeat_open(bt_heartbeat_t *beat);

/** The loop has come round once more. Costs a comparison, and a system call
 *  when the last one is BT_HEARTBEAT_EVERY_MS ago. */
void bt_heartbeat_tick(bt_heartbeat_t *beat, uint64_t now_ms);

/** Also when it was never opened. */
void bt_heartbeat_close(bt_heartbeat_t *beat);

#endif
