/* SPDX-License-Identifier: Apache-2.0 */
/** @file accept.h
 *
 * Reads a client's content preferences: media types from the header Accept, and
 * compression from Accept-Encoding. Browsers list text/html first; programs
 * list application/json, or nothing, or accept anything.
 *
 * Threads: pure functions.
 * Source:  RFC 9110, 12.4.2 (weights), 12.5.1 (Accept), 12.5.3
 *          (Accept-Encoding).
 */
#ifndef BT_ROUTER_HTTP_ACCEPT_H
#define BT_ROUTER_HTTP_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#define BT_ACCEPT_MOST 1000u /**< weight "q=1" */

/** Returns the weight of @a type ("text/html") in thousandths if the header
 *  names it, 0 if not or with "q=0". Ranges with a star are ignored. An invalid
 *  weight counts as absent.
 *  @param [in] accept  NULL: there is no header */
uint32_t bt_accept_weight(const char *accept, const char *type);

/** True when the client accepts bodies of this coding ("gzip"); false without
 *  any listed coding. @param [in] accept_encoding  the header's list; NULL: no
 *  header */
bool bt_accept_has_coding(const char *accept_encoding, const char *coding);

/** True when the client is a person's browser. */
bool bt_accept_wants_html(const char *accept);

#endif
