/* SPDX-License-Identifier: Apache-2.0 */
/** @file control_socket.h
 *
 * Socket for admin commands, in the run directory, and its clients.
 * common/admin defines the lines; the caller carries the commands out.
 *
 *     IDLE ──a line──▶ BUSY ──bt_control_socket_answer()──▶ IDLE
 *     IDLE ──it closed its side──▶ LEAVING ──all is sent──▶ closed
 *     any ──it is gone, or leaves too much unread──▶ closed
 *
 * A client's next line is read when the last one is answered and the answer is
 * sent. A client that watches also gets every change, even between the lines
 * of an answer. Only root and the launcher's own user are accepted
 * (SO_PEERCRED). The launcher waits for no client: a watcher that does not
 * read is dropped.
 *
 * One thread.
 */
#ifndef BT_LAUNCHER_CONTROL_SOCKET_H
#define BT_LAUNCHER_CONTROL_SOCKET_H

#include <poll.h>
#include <stdint.h>

#include "common/admin/admin.h"
#include "common/base/status.h"

#define BT_DESK_CLIENTS 32
#define BT_DESK_FDS     (1 + BT_DESK_CLIENTS)

typedef struct bt_control_socket bt_control_socket_t;

/** Callback for an admin command; answer it with bt_control_socket_answer(),
 * now or later.
 *  @param [in] client  Id of the client; never used twice. */
typedef void (*bt_control_socket_order_fn)(void *arg, uint64_t client,
                                           const bt_admin_command_t *request);

/**
 * Listens at BT_ADMIN_SOCKET in @a run_dir.
 *
 * @retval BT_ERR_IO  Logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_control_socket_create(
    const char *run_dir, bt_control_socket_order_fn on_order, void *arg,
    bt_control_socket_t **desk_p);

/** Creates the socket's name again if it was removed, and logs that. */
void bt_control_socket_restore(bt_control_socket_t *desk);

/** Closes the socket and all clients. NULL is allowed. The socket's file stays
 *  with its directory. */
void bt_control_socket_destroy(bt_control_socket_t *desk);

/** Fills in the descriptors to poll. @return how many, at most BT_DESK_FDS. */
nfds_t bt_control_socket_poll_fds(const bt_control_socket_t *desk,
                                  struct pollfd *fds);

/** Reads and writes without blocking; calls on_order. */
void bt_control_socket_run(bt_control_socket_t *desk);

/** Sends the last line of an answer. @param [in] error NULL = ok. Does nothing
 *  for a client that has left, as do the functions below. */
void bt_control_socket_answer(bt_control_socket_t *desk, uint64_t client,
                              const char *error);

/** Sends one line of an answer. */
void bt_control_socket_say(bt_control_socket_t *desk, uint64_t client,
                           const bt_admin_event_t *event);

/** Subscribes a client to the events of bt_control_socket_tell(). */
void bt_control_socket_watch(bt_control_socket_t *desk, uint64_t client);

/** Sends an event to all subscribed clients. */
void bt_control_socket_tell(bt_control_socket_t *desk,
                            const bt_admin_event_t *event);

#endif
