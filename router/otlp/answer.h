/* SPDX-License-Identifier: Apache-2.0 */
/** @file answer.h
 *
 * Parses the answer of an OTLP receiver: a complete HTTP/1.1 response in
 * memory, and its JSON body.
 *
 * Threads: pure functions.
 * Source:  RFC 9112; OTLP 1.x, ExportTraceServiceResponse and
 *          google.rpc.Status in proto3's JSON.
 */
#ifndef BT_ROUTER_OTLP_ANSWER_H
#define BT_ROUTER_OTLP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/printable.h"

#define BT_OTLP_ANSWER_BYTES ((size_t)64 << 10) /**< truncated beyond */

typedef enum bt_otlp_reading {
    BT_OTLP_MORE, /**< incomplete */
    BT_OTLP_WHOLE,
    BT_OTLP_GARBAGE, /**< not an HTTP/1 response */
} bt_otlp_reading_t;

typedef struct bt_otlp_answer {
    int http_status;      /**< 0: the header is incomplete */
    bool keeps;           /**< keep-alive: the connection may be reused */
    char retry_after[64]; /**< value of Retry-After, or "" */
    const char *body;     /**< within the data that was read; not chunked */
    size_t body_bytes;
} bt_otlp_answer_t;

/**
 * Parses the bytes received so far; call again with all bytes when more have
 * arrived.
 *
 * @param [in,out] data   a complete chunked body is joined in place
 * @param [in]     ended  no more bytes will come
 * @param [out]    answer  with BT_OTLP_MORE: the header if complete, else
 *                         nothing
 */
bt_otlp_reading_t bt_otlp_answer_read(char *data, size_t bytes, bool ended,
                                      bt_otlp_answer_t *answer);

/** Result of parsing a JSON body. */
typedef struct bt_otlp_told {
    uint64_t n_rejected; /**< rejected spans, from partialSuccess */
    bool is_partial;     /**< partialSuccess has rejected spans or a message */
    bt_printable_t message; /**< from partialSuccess or an error; or "" */
} bt_otlp_told_t;

/** Parses the JSON body of an answer; a body of another form gives an empty
 *  result. */
void bt_otlp_answer_tell(const bt_otlp_answer_t *answer, bt_otlp_told_t *told);

#endif
