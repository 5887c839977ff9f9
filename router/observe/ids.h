/* SPDX-License-Identifier: Apache-2.0 */
/** @file ids.h
 *
 * Generates unique ids of traces, spans and requests. The ids are not secret.
 *
 * Threads: one thread owns a source.
 */
#ifndef BT_ROUTER_OBSERVE_IDS_H
#define BT_ROUTER_OBSERVE_IDS_H

#include <stdint.h>

#include "common/base/status.h"

#define BT_REQUEST_ID_MAX   128 /**< characters that a client may choose */
#define BT_REQUEST_ID_BYTES (BT_REQUEST_ID_MAX + 1)

/** Source of ids. All zero: for tests, with reproducible ids. */
typedef struct bt_ids {
    uint64_t seed[2], n;
} bt_ids_t;

/** Seeds a source with random numbers.
 *  @retval BT_ERR_IO  no random numbers; logged */
BT_MUST_CHECK bt_status_t bt_ids_init(bt_ids_t *ids);
/** Generates an id, never all zero. */
void bt_ids_next8(bt_ids_t *ids, uint8_t id[8]);
void bt_ids_next16(bt_ids_t *ids, uint8_t id[16]);

/**
 * Returns the id of a request: the client's (X-Request-Id) if valid, else a
 * new one of 32 hexadecimal digits.
 *
 * @param [in] given  NULL = none. Valid: 1 to BT_REQUEST_ID_MAX printable
 *                    ASCII characters without spaces.
 */
void bt_request_id(bt_ids_t *ids, const char *given,
                   char id[BT_REQUEST_ID_BYTES]);

#define BT_TRACE_ID_BYTES      16
#define BT_TRACE_ID_TEXT_BYTES (2 * BT_TRACE_ID_BYTES + 1)

/** Prints a trace id as hexadecimal digits; "" for all zeros, which are no
 *  id. */
void bt_trace_id_print(const uint8_t id[BT_TRACE_ID_BYTES],
                       char text[BT_TRACE_ID_TEXT_BYTES]);

#endif
