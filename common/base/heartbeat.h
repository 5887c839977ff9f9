/* SPDX-License-Identifier: Apache-2.0 */
/** @file heartbeat.h
 *
 * Heartbeat of a program to the process that started it: while its loop runs it
 * adds to the counter behind the descriptor that BATON_BEAT_FD names (an
 * eventfd), some ten times a second. The parent reads the counter periodically;
 * a process that stops adding is stopped, blocked or spinning.
 *
 * Must be called by the thread whose loop it represents, not by a timer or
 * another thread. One thread.
 */
#ifndef BT_COMMON_BASE_HEARTBEAT_H
#define BT_COMMON_BASE_HEARTBEAT_H

#include <stdint.h>

#define BT_HEARTBEAT_EVERY_MS 100u

/** Heartbeat state. Zero-initialise, or open. */
typedef struct bt_heartbeat_tick {
    int fd; /**< owned; 0: no heartbeat requested */
    uint64_t next_ms;
} bt_heartbeat_t;

/** Opens the descriptor that the environment names, or none; warns about a
 *  value that is no number from 3 on, or names no descriptor. */
void bt_heartbeat_open(bt_heartbeat_t *beat);

/** Records one turn of the loop. Costs a comparison, and a system call if
 *  the last one was BT_HEARTBEAT_EVERY_MS ago. */
void bt_heartbeat_tick(bt_heartbeat_t *beat, uint64_t now_ms);

/** Closes the heartbeat, also if it was never opened. */
void bt_heartbeat_close(bt_heartbeat_t *beat);

#endif
