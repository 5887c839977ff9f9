/* SPDX-License-Identifier: Apache-2.0 */
/** @file stream.h
 *
 * Lines over a socket that nobody waits for: both ends of the launcher's socket
 * stand on it.
 *
 *     out ──send()──▶ socket ──receive()──▶ in ──line(), drop()──▶
 */
#ifndef BT_COMMON_ORDERS_STREAM_H
#define BT_COMMON_ORDERS_STREAM_H

#include "common/orders/orders.h"

typedef struct bt_orders_stream {
    int fd;          /**< owned; -1 = closed */
    bool is_at_end;  /**< nothing more comes */
    bt_strbuf_t out; /**< not sent yet */
    size_t n_in;
    char in[BT_ORDERS_LINE_BYTES]; /**< not taken yet */
} bt_orders_stream_t;

/** @param [in] fd         A socket; not blocking.
 *  @param [in] out_bytes  Most that may wait to be sent. */
void bt_orders_stream_init(bt_orders_stream_t *stream, int fd,
                           size_t out_bytes);
void bt_orders_stream_fini(bt_orders_stream_t *stream);

/** Send what goes without waiting. @return false: the other end is gone. */
bool bt_orders_stream_send(bt_orders_stream_t *stream);

/** Take in what there is and fits. */
void bt_orders_stream_receive(bt_orders_stream_t *stream);

/** The next whole line, of @a n_p bytes without its newline; NULL when none is
 *  there. It stays until bt_orders_stream_drop(). */
const char *bt_orders_stream_line(const bt_orders_stream_t *stream,
                                  size_t *n_p);

/** Take the line of @a n bytes, and its newline, away. */
void bt_orders_stream_drop(bt_orders_stream_t *stream, size_t n);

/** Is there so much of a line that it can never be whole? */
bool bt_orders_stream_is_clogged(const bt_orders_stream_t *stream);

#endif
