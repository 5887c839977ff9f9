/* SPDX-License-Identifier: Apache-2.0 */
/** @file answer.h
 *
 * What an OTLP receiver answers: an HTTP/1.1 response, whole, in memory, and
 * what its JSON says.
 *
 * Threads: pure functions.
 * Source:  RFC 9112; OTLP 1.x, ExportTraceServiceResponse and google.rpc.Status
 *          in proto3's JSON.
 */
#ifndef BT_ROUTER_OTLP_ANSWER_H
#define BT_ROUTER_OTLP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/printable.h"

#define BT_OTLP_ANSWER_BYTES ((size_t)64 << 10) /**< longer ones are cut */

typedef enum bt_otlp_reading {
    BT_OTLP_MORE, /**< is to come */
    BT_OTLP_WHOLE,
    BT_OTLP_GARBAGE, /**< it is no HTTP/1 response */
} bt_otlp_reading_t;

typedef struct bt_otlp_answer {
    int http_status;      /**< 0: its head is not there yet */
    bool keeps;           /**< the connection may be used again */
    char retry_after[64]; /**< the header's value, or "" */
    const char *body;     /**< in the data that was read; with no chunks */
    size_t body_bytes;
} bt_otlp_answer_t;

/**
 * Read what has come so far; once more with all of it when more has.
 *
 * @param [in,out] data   chunks of a whole body are put together in it
 * @param [in]     ended  no more will come
 * @param [out]    answer  with BT_OTLP_MORE what is known: its head, or nothing
 */
bt_otlp_reading_t bt_otlp_answer_read(char *data, size_t bytes, bool ended,
                                      bt_otlp_answer_t *answer);

/** What the JSON of a body says. */
typedef struct bt_otlp_told {
    uint64_t n_rejected;    /**< spans, of partialSuccess */
    bool is_partial;        /**< it has rejected some, or has a word for us */
    bt_printable_t message; /**< of partialSuccess or of an error; or "" */
} bt_otlp_told_t;

/** A body that is no such JSON says nothing. */
void bt_otlp_answer_tell(const bt_otlp_answer_t *answer, bt_otlp_told_t *told);

#endif
