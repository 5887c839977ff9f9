/* SPDX-License-Identifier: Apache-2.0 */
/** @file watch.h
 *
 * Polls a directory of routers, from its own thread: a file system that hangs
 * (an unreachable NFS server) must not block the caller.
 *
 *     thread: scan ─▶ differs from the last? ─▶ kept ─▶ take (owner's thread)
 *                ▲ every BT_WATCH_MS
 *
 * An unreadable directory leaves the known list unchanged; that is logged once,
 * until it is readable again.
 */
#ifndef BT_COMMON_RENDEZVOUS_WATCH_H
#define BT_COMMON_RENDEZVOUS_WATCH_H

#include "common/rendezvous/rendezvous.h"

#define BT_WATCH_MS 500

typedef struct bt_rendezvous_watch bt_rendezvous_watch_t;

/**
 * Starts polling a directory.
 * @param [in] dir  copied.
 * @retval BT_ERR_NO_MEMORY  also for a thread
 */
BT_MUST_CHECK bt_status_t
bt_rendezvous_watch_open(const char *dir, bt_rendezvous_watch_t **watch_p);
/**
 * Takes the list if it has changed. Never blocks. @return false: unchanged, and
 * @a list_p is untouched
 */
bool bt_rendezvous_watch_take(bt_rendezvous_watch_t *watch,
                              bt_rendezvous_list_t *list_p);
/** Stops polling. Waits a second at most for a file system that hangs. NULL
 *  is allowed. */
void bt_rendezvous_watch_close(bt_rendezvous_watch_t *watch);

#endif
