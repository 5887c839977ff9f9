/* SPDX-License-Identifier: Apache-2.0 */
/** @file _router_h2.h
 *
 * As much of HTTP/2 and gRPC as a client needs that asks one thing at a time on
 * a connection: streams of ModelStreamInfer. Light, so that its own work is
 * little beside the server's; heads are sent from the table of HPACK after the
 * first, as real clients do.
 *
 * Threads: pure functions. Source: RFC 9113, RFC 7541, "gRPC over HTTP2".
 */
#ifndef BT_BENCH_ROUTER_H2_H
#define BT_BENCH_ROUTER_H2_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_H2_FRAME_BYTES 16384u /**< of a frame, and so of a request */

/** Zero-initialise it for each connection. */
typedef struct bt_h2_client {
    uint32_t stream;     /**< of the request that is under way */
    uint32_t unacked;    /**< bytes of answers whose room was not given back */
    uint32_t n_messages; /**< of its answer, that have begun; each response of
                              the stream is one */
    uint32_t n_start;    /**< of the message that is read: bytes of `start` */
    uint32_t left;       /**< of the message that is read */
    uint8_t start[6];    /**< prefix, and its first byte */
    bool over;           /**< the answer is whole */
} bt_h2_client_t;

/** Append what asks for it.
 *  @param [in] body  a ModelInferRequest, shorter than a frame by 5 bytes */
void bt_h2_client_ask(bt_h2_client_t *h, const bt_strbuf_t *body,
                      bt_strbuf_t *out);
/** Take whole frames, and append what they must be answered with.
 *  @return NULL, or what the answer is that it must not be */
const char *bt_h2_client_take(bt_h2_client_t *h, bt_strbuf_t *got,
                              bt_strbuf_t *out);

#endif
