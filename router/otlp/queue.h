/* SPDX-License-Identifier: Apache-2.0 */
/** @file queue.h
 *
 * Queue of spans to be sent: a ring of bytes, allocated once, so that adding
 * never allocates and the queue's size is bounded.
 *
 *     ┌────────────┬──────────┬──────────┬─────┐
 *     │ n, bytes   │ spans …  │ n, bytes │ …   │   wraps anywhere
 *     └────────────┴──────────┴──────────┴─────┘
 *
 * Threads: protected by the caller's lock. Items found by bt_otlp_queue_peek()
 * stay in place until bt_otlp_queue_drop(), so they may be copied without the
 * lock.
 */
#ifndef BT_ROUTER_OTLP_QUEUE_H
#define BT_ROUTER_OTLP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

/** Queue of spans. Zero-initialise. */
typedef struct bt_otlp_queue {
    char *bytes; /**< owned */
    size_t cap;
    size_t from, used; /**< position of the oldest item, bytes of all */
    uint64_t n_spans;  /**< spans in the queue */
} bt_otlp_queue_t;

/** Items for one request to a receiver. */
typedef struct bt_otlp_piece {
    size_t bytes;      /**< bytes in the ring */
    size_t text_bytes; /**< bytes of spans, with commas between items */
    uint64_t n_spans;
} bt_otlp_piece_t;

BT_MUST_CHECK bt_status_t bt_otlp_queue_init(bt_otlp_queue_t *queue,
                                             size_t bytes);
void bt_otlp_queue_fini(bt_otlp_queue_t *queue);

/** Appends spans.
 *  @return false: the queue is full */
bool bt_otlp_queue_add(bt_otlp_queue_t *queue, const char *spans, size_t bytes,
                       uint32_t n_spans);
/** Finds the oldest items with at most @a most_bytes together, at least one;
 *  all zero when the queue is empty. */
void bt_otlp_queue_peek(const bt_otlp_queue_t *queue, size_t most_bytes,
                        bt_otlp_piece_t *piece);
/** Appends the spans of a piece to @a out, with commas between items. */
void bt_otlp_queue_copy(const bt_otlp_queue_t *queue, size_t from,
                        const bt_otlp_piece_t *piece, bt_strbuf_t *out);
void bt_otlp_queue_drop(bt_otlp_queue_t *queue, const bt_otlp_piece_t *piece);

#endif
