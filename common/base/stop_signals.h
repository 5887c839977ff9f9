/* SPDX-License-Identifier: Apache-2.0 */
/** @file stop_signals.h
 *
 * Signals that ask a process to stop. The first asks to finish running work and
 * end; a later one means "at once". But one request often arrives as several
 * signals: `timeout`, systemd and terminals send one to the process and to its
 * group, and a launcher forwards to its processes signals that they may have
 * received already. So signals within BT_STOP_SAME_MS of the first, and the
 * first from the parent process, count as one request.
 *
 * Threads: the owner's.
 */
#ifndef BT_COMMON_BASE_STOP_SIGNALS_H
#define BT_COMMON_BASE_STOP_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define BT_STOP_SAME_MS 1000u

typedef enum bt_stop {
    BT_STOP_BEGIN, /**< first request: finish running work */
    BT_STOP_SAME,  /**< duplicate of the first request */
    BT_STOP_NOW,   /**< end at once */
} bt_stop_t;

/** Stop requests so far. Zero-initialise. */
typedef struct bt_stop_requests {
    bool came, came_from_parent;
    uint64_t first_ms;
} bt_stop_requests_t;

/**
 * Classifies a signal.
 * @param from_parent  sent by the parent process
 */
bt_stop_t bt_stop_request(bt_stop_requests_t *wishes, uint64_t now_ms,
                          bool from_parent);

/** Sets *set_p to SIGTERM and SIGINT. */
void bt_stop_signals(sigset_t *set_p);
/** Blocks the stop signals in this thread and those that it creates from now
 *  on: bt_stop_open() receives them. */
void bt_stop_block(void);
/** Returns a descriptor (close(2) it) that is readable when a stop signal
 *  was received; -1 with errno. */
int bt_stop_open(void);
/**
 * Reads the next signal.
 * @param [out] from_parent_p  sent by the parent process
 * @return signal number, 0: none
 */
int bt_stop_next(int fd, bool *from_parent_p);

#endif
