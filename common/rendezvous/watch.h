/* SPDX-License-Identifier: Apache-2.0 */
/** @file watch.h
 *
 * Looks at a directory of routers again and again, from a thread of its own: a
 * file system that hangs (a server of NFS that is away) must not stop whoever
 * wants to know.
 *
 *     thread: scan ─▶ differs from the last? ─▶ kept ─▶ take (owner's thread)
 *                ▲ every BT_WATCH_MS
 *
 * A directory that cannot be read changes nothing of what was known; it is said
 * once, until it can be.
 */
#ifndef BT_COMMON_RENDEZVOUS_WATCH_H
#define BT_COMMON_RENDEZVOUS_WATCH_H

#include "common/rendezvous/rendezvous.h"

#define BT_WATCH_MS 500

typedef struct bt_rendezvous_watch bt_rendezvous_watch_t;

/** @param [in] dir  copied. @retval BT_ERR_NO_MEMORY  also for a thread */
BT_MUST_CHECK bt_status_t
bt_rendezvous_watch_open(const char *dir, bt_rendezvous_watch_t **watch_p);
/** Never waits. @return false: nothing else than last time, and @a list_p is
 *  as it was */
bool bt_rendezvous_watch_take(bt_rendezvous_watch_t *watch,
                              bt_rendezvous_list_t *list_p);
/** Does not wait for a file system either. NULL is allowed. */
void bt_rendezvous_watch_close(bt_rendezvous_watch_t *watch);

#endif
