/* SPDX-License-Identifier: Apache-2.0 */
/** @file desk.h
 *
 * Where orders come in: the socket in the run directory and those who speak on
 * it. common/orders says what the lines are; who carries them out is the
 * caller.
 *
 *     IDLE ──a line──▶ BUSY ──bt_desk_answer()──▶ IDLE
 *     IDLE ──it says no more──▶ LEAVING ──all is sent──▶ closed
 *     any ──it is gone, or leaves too much unread──▶ closed
 *
 * A client's next line is read when its last one is answered and sent. Who
 * watches gets every change as well, also between the lines of an answer. Only
 * root and the launcher's own user are listened to (SO_PEERCRED). Nobody is
 * waited for: a watcher that does not read is dropped.
 *
 * One thread.
 */
#ifndef BT_LAUNCHER_DESK_H
#define BT_LAUNCHER_DESK_H

#include <poll.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/orders/orders.h"

#define BT_DESK_CLIENTS 32
#define BT_DESK_FDS     (1 + BT_DESK_CLIENTS)

typedef struct bt_desk bt_desk_t;

/** Somebody wants this; bt_desk_answer() it now or later.
 *  @param [in] client  Names the one who asks; never used twice. */
typedef void (*bt_desk_order_fn)(void *arg, uint64_t client,
                                 const bt_orders_request_t *request);

/**
 * Listen at BT_ORDERS_SOCKET in @a run_dir.
 *
 * @retval BT_ERR_IO  Logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_desk_create(const char *run_dir,
                                         bt_desk_order_fn on_order, void *arg,
                                         bt_desk_t **desk_p);

/** Where somebody removed the socket's name, make it again. Says so. */
void bt_desk_restore(bt_desk_t *desk);

/** NULL is allowed. The socket's file stays with its directory. */
void bt_desk_destroy(bt_desk_t *desk);

/** Say what to wait for. @return how many, at most BT_DESK_FDS. */
nfds_t bt_desk_poll_fds(const bt_desk_t *desk, struct pollfd *fds);

/** Take and send what goes without waiting; calls on_order. */
void bt_desk_run(bt_desk_t *desk);

/** The last line of an answer. @param [in] error  NULL = ok. A client that has
 *  left is ignored, here and below. */
void bt_desk_answer(bt_desk_t *desk, uint64_t client, const char *error);

/** One line of an answer. */
void bt_desk_say(bt_desk_t *desk, uint64_t client,
                 const bt_orders_event_t *event);

/** From now on the client gets what bt_desk_tell() tells. */
void bt_desk_watch(bt_desk_t *desk, uint64_t client);

/** Tell all who watch. */
void bt_desk_tell(bt_desk_t *desk, const bt_orders_event_t *event);

#endif
