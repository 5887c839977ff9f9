/* SPDX-License-Identifier: Apache-2.0 */
/** @file stream.h
 *
 * Lines over a non-blocking socket: the base of both ends of the launcher's
 * control socket.
 *
 *     out ──send()──▶ socket ──receive()──▶ in ──line(), drop()──▶
 */
#ifndef BT_COMMON_ADMIN_STREAM_H
#define BT_COMMON_ADMIN_STREAM_H

#include "common/admin/admin.h"

/** Buffers of a socket. */
typedef struct bt_admin_stream {
    int fd;          /**< owned; -1 = closed */
    bool is_at_end;  /**< nothing more will arrive */
    bt_strbuf_t out; /**< not sent yet */
    size_t n_in;
    char in[BT_ADMIN_LINE_BYTES]; /**< not taken yet */
} bt_admin_stream_t;

/**
 * Initialises the buffers.
 * @param [in] fd         A socket; not blocking.
 * @param [in] out_bytes  Most bytes that may wait to be sent.
 */
void bt_admin_stream_init(bt_admin_stream_t *stream, int fd, size_t out_bytes);
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

/** True when the buffer is full without a whole line: the line is too long. */
bool bt_admin_stream_is_clogged(const bt_admin_stream_t *stream);

#endif
