/* SPDX-License-Identifier: Apache-2.0 */
/** @file beat.h
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
#ifndef BT_COMMON_BASE_BEAT_H
#define BT_COMMON_BASE_BEAT_H

#include <stdint.h>

#define BT_BEAT_EVERY_MS 100u

/** Zero-initialise, or open. */
typedef struct bt_beat {
    int fd; /**< owned; 0: nobody asks */
    uint64_t next_ms;
} bt_beat_t;

/** The descriptor that the environment names, or none; a value that is no
 *  number from 3 on, or names no descriptor, is warned about. */
void bt_beat_open(bt_beat_t *beat);

/** The loop has come round once more. Costs a comparison, and a system call
 *  when the last one is BT_BEAT_EVERY_MS ago. */
void bt_beat(bt_beat_t *beat, uint64_t now_ms);

/** Also when it was never opened. */
void bt_beat_close(bt_beat_t *beat);

#endif
