/* SPDX-License-Identifier: Apache-2.0 */
/** @file client.h
 *
 * Client of the launcher's control socket. Never blocks except in
 * bt_orders_wait().
 *
 *     connect ─▶ send(request) ─┬─▶ wait ─▶ event …           blocking client
 *                               └─▶ step, next ─▶ event …     event loop
 *
 * A loop calls bt_orders_step() when the descriptor is readable, or writable
 * while bt_orders_wants_write(); then bt_orders_next() until it has no event.
 * When a step did not return BT_OK the connection is over, after those events.
 *
 * Threads: a client belongs to one.
 */
#ifndef BT_COMMON_ORDERS_CLIENT_H
#define BT_COMMON_ORDERS_CLIENT_H

#include "common/orders/orders.h"

typedef struct bt_orders_client bt_orders_client_t;

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
BT_MUST_CHECK bt_status_t bt_orders_connect(const char *path,
                                            bt_orders_client_t **client_p);

/** Closes a connection. NULL is allowed. */
void bt_orders_close(bt_orders_client_t *client);

int bt_orders_fd(const bt_orders_client_t *client);

/** True when bytes of a request are left to send. */
bool bt_orders_wants_write(const bt_orders_client_t *client);

/**
 * Queues a request and sends what can be sent without blocking.
 * @retval BT_ERR_TOO_LARGE  Too much is queued.
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE  As bt_orders_step().
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_orders_send(bt_orders_client_t *client,
                                         const bt_orders_request_t *request);

/**
 * Sends and receives without blocking. Events received before an error can
 * still be taken by bt_orders_next().
 * @retval BT_ERR_PEER_LOST    The launcher closed: it ended or dropped us.
 * @retval BT_ERR_BAD_MESSAGE  It does not speak this protocol.
 */
BT_MUST_CHECK bt_status_t bt_orders_step(bt_orders_client_t *client);

/** Takes the next event. @return true: *event_p is set */
bool bt_orders_next(bt_orders_client_t *client, bt_orders_event_t *event_p);

/**
 * Waits for the next event until bt_now_ms() is @a deadline_ms.
 * @retval BT_ERR_TIMED_OUT
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE  As bt_orders_step().
 */
BT_MUST_CHECK bt_status_t bt_orders_wait(bt_orders_client_t *client,
                                         uint64_t deadline_ms,
                                         bt_orders_event_t *event_p);

#endif
