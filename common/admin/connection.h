/* SPDX-License-Identifier: Apache-2.0 */
/** @file connection.h
 *
 * Both ends of the launcher's control socket: lines over a non-blocking socket,
 * and the client. Never blocks except in bt_admin_client_wait().
 *
 *     out ──send()──▶ socket ──receive()──▶ in ──line(), drop()──▶     stream
 *
 *     connect ─▶ send(command) ─┬─▶ wait ─▶ reply …           blocking client
 *                               └─▶ step, next ─▶ reply …     event loop
 *
 * A loop calls bt_admin_client_step() when the descriptor is readable, or
 * writable while bt_admin_client_wants_write(); then bt_admin_client_next()
 * until it has no reply, and bt_admin_client_status() whether the connection is
 * over.
 *
 * Threads: a stream or client belongs to one.
 */
#ifndef BT_COMMON_ADMIN_CONNECTION_H
#define BT_COMMON_ADMIN_CONNECTION_H

#include "common/admin/admin.h"

/** Buffers of a socket. */
typedef struct bt_admin_stream {
    int fd;          /**< owned; -1 = closed */
    bool is_at_end;  /**< nothing more will arrive */
    bt_strbuf_t out; /**< not sent yet */
    bt_strbuf_t in;  /**< not taken yet; its status: out of memory */
} bt_admin_stream_t;

/**
 * Initialises the buffers.
 * @param [in] fd         A socket; not blocking.
 * @param [in] out_bytes  Most bytes that may wait to be sent.
 * @param [in] in_bytes   Longest line, its newline included.
 */
void bt_admin_stream_init(bt_admin_stream_t *stream, int fd, size_t out_bytes,
                          size_t in_bytes);
void bt_admin_stream_fini(bt_admin_stream_t *stream);

/** Sends what can be sent without blocking. @return false: the peer is gone. */
bool bt_admin_stream_send(bt_admin_stream_t *stream);

/** Receives available bytes, as many as fit. */
void bt_admin_stream_receive(bt_admin_stream_t *stream);

/** Returns the next whole line, of @a n_p bytes without its newline; NULL
 *  when there is none. Valid until bt_admin_stream_drop(). */
const char *bt_admin_stream_line(const bt_admin_stream_t *stream, size_t *n_p);

/** Removes the line of @a n bytes, and its newline. */
void bt_admin_stream_drop(bt_admin_stream_t *stream, size_t n);

/** True when no line can come any more: the buffer is full without a whole one,
 *  or there is no memory for it. */
bool bt_admin_stream_is_clogged(const bt_admin_stream_t *stream);

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

/** True when bytes of a command are left to send. */
bool bt_admin_client_wants_write(const bt_admin_client_t *client);

/**
 * Queues a command and sends what can be sent without blocking.
 * @retval BT_ERR_TOO_LARGE  Too much is queued.
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE  As bt_admin_client_step().
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_admin_client_send(
    bt_admin_client_t *client, const bt_admin_command_t *command);

/** Sends and receives without blocking. Replies received before an error can
 *  still be taken by bt_admin_client_next(). */
void bt_admin_client_step(bt_admin_client_t *client);

/** Takes the next reply. @return true: *reply_p is set; free it with
 *  bt_admin_document_fini() of its document */
bool bt_admin_client_next(bt_admin_client_t *client, bt_admin_reply_t *reply_p);

/**
 * Returns why the connection is over, once all its replies are taken.
 * @retval BT_ERR_PEER_LOST    The launcher closed: it ended or dropped us.
 * @retval BT_ERR_BAD_MESSAGE  It does not speak this protocol.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_admin_client_status(const bt_admin_client_t *client);

/** Returns the line of the reply that bt_admin_client_next() took last, without
 *  its newline; valid until the next call for this client. */
const char *bt_admin_client_text(const bt_admin_client_t *client, size_t *n_p);

/**
 * Waits for the next reply until bt_now_ms() is @a deadline_ms.
 * @retval BT_ERR_TIMED_OUT
 * @retval BT_ERR_PEER_LOST, BT_ERR_BAD_MESSAGE, BT_ERR_NO_MEMORY  As
 *         bt_admin_client_status().
 */
BT_MUST_CHECK bt_status_t bt_admin_client_wait(bt_admin_client_t *client,
                                               uint64_t deadline_ms,
                                               bt_admin_reply_t *reply_p);

#endif
