/* SPDX-License-Identifier: Apache-2.0 */
/** @file stop_signals.h
 *
 * Signals that ask a process to stop. The first is the wish to finish what runs
 * and end; a later one means "at once". But one wish often comes as several
 * signals: `timeout`, systemd and terminals send one to the process and to its
 * group, and a launcher passes on to its processes what they may have had from
 * outside already. So what comes within BT_STOP_SAME_MS of the first, and the
 * first from the parent process, is the same wish.
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
    BT_STOP_BEGIN, /**< the first: finish what runs */
    BT_STOP_SAME,  /**< nothing new */
    BT_STOP_NOW,   /**< end at once */
} bt_stop_t;

/** Zero-initialise. */
typedef struct bt_stop_requests {
    bool came, came_from_parent;
    uint64_t first_ms;
} bt_stop_requests_t;

/** A signal came. @param from_parent  sent by the parent process */
bt_stop_t bt_stop_request(bt_stop_requests_t *wishes, uint64_t now_ms,
                          bool from_parent);

/** SIGTERM and SIGINT. */
void bt_stop_signals(sigset_t *set_p);
/** Blocks them in this thread and those that it makes from now
 *  on: bt_stop_open() has them. */
void bt_stop_block(void);
/** @return a descriptor (close(2) it) that is readable when one of them came;
 *  -1 with errno. */
int bt_stop_open(void);
/** The next that came. @param [out] from_parent_p  see above
 *  @return its number, 0: none */
int bt_stop_next(int fd, bool *from_parent_p);

#endif
