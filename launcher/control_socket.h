/* SPDX-License-Identifier: Apache-2.0 */
/** @file control_socket.h
 *
 * Socket for admin commands, in the run directory, and its clients.
 * common/admin/admin.h defines the lines; the caller carries the commands out.
 *
 *     IDLE ──a line──▶ BUSY ──bt_control_socket_answer()──▶ IDLE
 *     IDLE ──it closed its side──▶ LEAVING ──all is sent──▶ closed
 *     any ──it is gone, or leaves too much unread──▶ closed
 *
 * A client's next line is read when the last one is answered and the answer is
 * sent. A client that watches also gets every change. Only root and the
 * launcher's own user are accepted (SO_PEERCRED). The launcher waits for no
 * client: a watcher that does not read is dropped.
 *
 * One thread.
 */
#ifndef BT_LAUNCHER_CONTROL_SOCKET_H
#define BT_LAUNCHER_CONTROL_SOCKET_H

#include <poll.h>
#include <stdint.h>

#include "common/admin/admin.h"
#include "common/base/status.h"

#define BT_CONTROL_SOCKET_CLIENTS 32
#define BT_CONTROL_SOCKET_FDS     (1 + BT_CONTROL_SOCKET_CLIENTS)

typedef struct bt_control_socket bt_control_socket_t;

/** Callback for an admin command; answer it with bt_control_socket_answer(),
 * now or later.
 *  @param [in] client  Id of the client; never used twice. */
typedef void (*bt_control_socket_command_fn)(void *arg, uint64_t client,
                                             const bt_admin_command_t *command);

/**
 * Listens at BT_ADMIN_SOCKET in @a run_dir.
 *
 * @retval BT_ERR_IO  Logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_control_socket_create(
    const char *run_dir, bt_control_socket_command_fn on_command, void *arg,
    bt_control_socket_t **control_p);

/** Creates the socket's name again if it was removed, and logs that. */
void bt_control_socket_restore(bt_control_socket_t *control);

/** Closes the socket and all clients. NULL is allowed. The socket's file stays
 *  with its directory. */
void bt_control_socket_destroy(bt_control_socket_t *control);

/** Fills in the descriptors to poll. @return how many, at most
 * BT_CONTROL_SOCKET_FDS. */
nfds_t bt_control_socket_poll_fds(const bt_control_socket_t *control,
                                  struct pollfd *fds);

/** Reads and writes without blocking; calls on_command. */
void bt_control_socket_run(bt_control_socket_t *control);

/** Answers a client's command. Does nothing for a client that has left. */
void bt_control_socket_answer(bt_control_socket_t *control, uint64_t client,
                              const bt_admin_reply_t *reply);

/** Subscribes a client to the changes of bt_control_socket_publish(). Does
 *  nothing for a client that has left. */
void bt_control_socket_watch(bt_control_socket_t *control, uint64_t client);

/** Sends a change to all subscribed clients. */
void bt_control_socket_publish(bt_control_socket_t *control,
                               const bt_admin_reply_t *change);

#endif
