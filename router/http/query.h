/* SPDX-License-Identifier: Apache-2.0 */
/** @file query.h
 *
 * Parses the query of a request, after the '?': NAME=VALUE&…, percent-decoded,
 * '+' is a space.
 *
 * Threads: pure functions.
 * Source:  WHATWG URL, application/x-www-form-urlencoded.
 */
#ifndef BT_ROUTER_HTTP_QUERY_H
#define BT_ROUTER_HTTP_QUERY_H

#include "common/base/status.h"

#define BT_QUERY_BYTES 256 /**< name or value, with zero byte */

typedef struct bt_query {
    const char *at; /**< remaining text, borrowed */
    char name[BT_QUERY_BYTES], value[BT_QUERY_BYTES];
} bt_query_t;

void bt_query_init(bt_query_t *query, const char *text);
/** Reads the next field; empty fields are skipped, a field without '=' has the
 *  value "".
 *  @retval BT_OK
 *  @retval BT_ERR_NOT_FOUND      no field is left
 *  @retval BT_ERR_INVALID_PARAM  an escape is not a byte, or is zero
 *  @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_query_next(bt_query_t *query);

#endif
