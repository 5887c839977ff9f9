/* SPDX-License-Identifier: Apache-2.0 */
/** @file client.h
 *
 * Client of the launcher's control socket. Never blocks except in
 * bt_admin_client_wait().
 *
 *     connect ─▶ send(request) ─┬─▶ wait ─▶ event …           blocking client
 *                               └─▶ step, next ─▶ event …     event loop
 *
 * A loop calls bt_admin_client_step() when the descriptor is readable, or
 * writable while bt_admin_client_wants_write(); then bt_admin_client_next()
 * until it has no event. When a step did not return BT_OK the connection is
 * over, after those events.
 *
 * Threads: a client belongs to one.
 */
#ifndef BT_COMMON_ADMIN_CONNECTION_H
#define BT_COMMON_ADMIN_CONNECTION_H

#include "common/admin/admin.h"

typedef struct bt_admin_client bt_admin_client_t;

/**
 * Connects to a launcher.
 *
 * @param [in] path  Of the socket.
 * @retval BT_ERR_NOT_FOUND     Nothing listens there.
 * @retval BT_ERR_UNAUTHORIZED  It is another user's; only launchers of root and
 *                              of this user are accepted.
 * @retval BT_ERR_BUSY          Too many connections wait to be accepted.
 * @retval BT_ERR_TOO_LARGE     The path is too long for a socket.
 * @retval BT_ERR_IO            Anything else; errno has the reason.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_admin_client_connect(const char *path,
                                                  bt_admin_client_t **client_p);

/** Closes a connection. NULL is allowed. */
void bt_admin_client_close(bt_admin_client_t *client);

int bt_admin_client_fd(const bt_admin_client_t *client);

/** True when bytes of a request are left to send. */
bool bt_admin_client_wants_write(const bt_admin_client_t *client);

/**
 * Queues a request and sends what can be sent without blocking.
 * @retval BT_ERR_TOO_LARGE  Too much is queued.
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE  As bt_admin_client_step().
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_admin_client_send(
    bt_admin_client_t *client, const bt_admin_command_t *request);

/**
 * Sends and receives without blocking. Events received before an error can
 * still be taken by bt_admin_client_next().
 * @retval BT_ERR_PEER_LOST    The launcher closed: it ended or dropped us.
 * @retval BT_ERR_BAD_MESSAGE  It does not speak this protocol.
 */
BT_MUST_CHECK bt_status_t bt_admin_client_step(bt_admin_client_t *client);

/** Takes the next event. @return true: *event_p is set */
bool bt_admin_client_next(bt_admin_client_t *client, bt_admin_event_t *event_p);

/**
 * Waits for the next event until bt_now_ms() is @a deadline_ms.
 * @retval BT_ERR_TIMED_OUT
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE  As bt_admin_client_step().
 */
BT_MUST_CHECK bt_status_t bt_admin_client_wait(bt_admin_client_t *client,
                                               uint64_t deadline_ms,
                                               bt_admin_event_t *event_p);

#endif
