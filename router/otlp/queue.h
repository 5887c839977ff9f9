/* SPDX-License-Identifier: Apache-2.0 */
/** @file queue.h
 *
 * Spans that wait to be sent: a ring of bytes, made once, so that who adds
 * asks for no memory and what waits has a bound.
 *
 *     ┌────────────┬──────────┬──────────┬─────┐
 *     │ n, bytes   │ spans …  │ n, bytes │ …   │   wraps anywhere
 *     └────────────┴──────────┴──────────┴─────┘
 *
 * Threads: the caller's lock. What bt_otlp_queue_peek() found stays where it is
 * until bt_otlp_queue_drop(), so it may be copied without the lock.
 */
#ifndef BT_ROUTER_OTLP_QUEUE_H
#define BT_ROUTER_OTLP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

/** Zero-initialise. */
typedef struct bt_otlp_queue {
    char *bytes; /**< owned */
    size_t cap;
    size_t from, used; /**< the oldest item, and bytes of all */
    uint64_t n_spans;  /**< in it */
} bt_otlp_queue_t;

/** What one request to a receiver has. */
typedef struct bt_otlp_piece {
    size_t bytes;      /**< of the ring */
    size_t text_bytes; /**< of the spans, with commas between the items */
    uint64_t n_spans;
} bt_otlp_piece_t;

BT_MUST_CHECK bt_status_t bt_otlp_queue_init(bt_otlp_queue_t *queue,
                                             size_t bytes);
void bt_otlp_queue_fini(bt_otlp_queue_t *queue);

/** @return false: there is no room */
bool bt_otlp_queue_add(bt_otlp_queue_t *queue, const char *spans, size_t bytes,
                       uint32_t n_spans);
/** The oldest items with at most @a most_bytes together, at least one; all zero
 *  when there is none. */
void bt_otlp_queue_peek(const bt_otlp_queue_t *queue, size_t most_bytes,
                        bt_otlp_piece_t *piece);
/** Append their spans, with commas between. */
void bt_otlp_queue_copy(const bt_otlp_queue_t *queue, size_t from,
                        const bt_otlp_piece_t *piece, bt_strbuf_t *out);
void bt_otlp_queue_drop(bt_otlp_queue_t *queue, const bt_otlp_piece_t *piece);

#endif
