/* SPDX-License-Identifier: Apache-2.0 */
/** @file query.h
 *
 * What stands behind the '?' of a request: NAME=VALUE&…, percent-decoded, '+'
 * is a space.
 *
 * Pure. Source: WHATWG URL, application/x-www-form-urlencoded.
 */
#ifndef BT_ROUTER_HTTP_QUERY_H
#define BT_ROUTER_HTTP_QUERY_H

#include <stdbool.h>

#include "common/base/status.h"

#define BT_QUERY_BYTES 256 /**< of a name or a value, with its zero byte */

typedef struct bt_query {
    const char *at; /**< what is left, borrowed */
    char name[BT_QUERY_BYTES], value[BT_QUERY_BYTES];
} bt_query_t;

void bt_query_init(bt_query_t *query, const char *text);
/** The next field; empty ones are passed over, one without '=' has the value
 * "".
 *  @retval BT_OK
 *  @retval BT_ERR_NOT_FOUND      there is none
 *  @retval BT_ERR_INVALID_PARAM  an escape is no byte, or is zero
 *  @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_query_next(bt_query_t *query);

#endif
