/* SPDX-License-Identifier: Apache-2.0 */
/** @file _router_h2.h
 *
 * Minimal HTTP/2 and gRPC client for one request at a time on a connection:
 * streams of ModelStreamInfer. It is light, so that its own work is small
 * beside the server's; after the first request, headers are sent as HPACK table
 * indices, as real clients do.
 *
 * Threads: pure functions. Source: RFC 9113, RFC 7541, "gRPC over HTTP2".
 */
#ifndef BT_BENCH_ROUTER_H2_H
#define BT_BENCH_ROUTER_H2_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

#define BT_H2_FRAME_BYTES 16384u /**< maximum frame and request size */

/** State of a connection. Zero-initialise for each connection. */
typedef struct bt_h2_client {
    uint32_t stream;     /**< stream id of the current request */
    uint32_t unacked;    /**< response bytes not yet returned to the receive
                              window */
    uint32_t n_messages; /**< response messages begun; each response of the
                              stream is one */
    uint32_t n_start;    /**< bytes of `start` received of the current
                              message */
    uint32_t left;       /**< bytes left of the current message */
    uint8_t start[6];    /**< message prefix and first byte */
    bool over;           /**< the response is complete */
} bt_h2_client_t;

/** Appends the frames of a request.
 *  @param [in] body  a ModelInferRequest, shorter than a frame by 5 bytes */
void bt_h2_client_ask(bt_h2_client_t *h, const bt_strbuf_t *body,
                      bt_strbuf_t *out);
/** Processes whole received frames, and appends the frames to answer with.
 *  @return NULL, or the protocol error in the response */
const char *bt_h2_client_take(bt_h2_client_t *h, bt_strbuf_t *got,
                              bt_strbuf_t *out);

#endif
