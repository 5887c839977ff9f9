/* SPDX-License-Identifier: Apache-2.0 */
/** @file accept.h
 *
 * What a client would rather read, by its header Accept, and packed how, by
 * Accept-Encoding. Browsers name text/html first; programs name
 * application/json, or nothing, or take anything.
 *
 * Threads: pure functions.
 * Source: RFC 9110, 12.4.2 (weights), 12.5.1 (Accept), 12.5.3
 *         (Accept-Encoding).
 */
#ifndef BT_ROUTER_HTTP_ACCEPT_H
#define BT_ROUTER_HTTP_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#define BT_ACCEPT_MOST 1000u /**< the weight "q=1" */

/** @return the weight of @a type ("text/html") in thousandths where the header
 *  names it, 0 where it does not or says "q=0". Ranges with a star are not
 *  looked at. What is no weight counts as none that was given.
 *  @param [in] accept  NULL: there is no header */
uint32_t bt_accept_weight(const char *accept, const char *type);

/** Does the client take bodies of this coding ("gzip")? One that names no
 * coding takes none. @param [in] accept_encoding  the header's list; NULL:
 * there is none */
bool bt_accept_has_coding(const char *accept_encoding, const char *coding);

/** Is it a person's browser that asks? */
bool bt_accept_wants_html(const char *accept);

#endif
