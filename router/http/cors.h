/* SPDX-License-Identifier: Apache-2.0 */
/** @file cors.h
 *
 * Which web pages' scripts may use the server from a browser, and read what it
 * answers. None by default: what no page of somebody else's may do is decided
 * by router/net/hosts.h, and this opens it for those that an operator names.
 *
 *     page ── OPTIONS, Origin, Access-Control-Request-Method ──▶ preflight: 204
 *          ── POST, Origin ──▶ an answer with Access-Control-Allow-Origin
 *
 * An origin is compared byte by byte, as browsers write it (RFC 6454, 6.2), but
 * for the case of letters: no part of a name, no other port, no other scheme.
 * There are no cookies here, so none are allowed to come along.
 *
 * Threads: pure functions.
 * Source: the Fetch standard, 3.2 (CORS protocol); Private Network Access.
 */
#ifndef BT_ROUTER_HTTP_CORS_H
#define BT_ROUTER_HTTP_CORS_H

#include <stdbool.h>

#include "common/base/strbuf.h"
#include "router/http/http1.h"

#define BT_CORS_ORIGIN_BYTES \
    272 /**< scheme, name and port, with the zero byte */
#define BT_CORS_HEADERS_BYTES \
    4096u /**< of names that a preflight may ask for */

/** Is this a list (comma separated) of origins, or "*"?
 *  @param [out] bad  the entry that is none, on failure */
bool bt_cors_are_valid(const char *origins, char bad[BT_CORS_ORIGIN_BYTES]);
/** May scripts of this page use the server? @param [in] origin  NULL: no page
 */
bool bt_cors_allows(const char *origins, const char *origin);
/** Append the headers ("Name: value\r\n" each) that every answer to this head
 *  has; nothing where @a origins is "". */
void bt_cors_add_headers(const char *origins, const bt_http1_head_t *head,
                         bt_strbuf_t *out);
/** Append those of the answer to a preflight, beside the ones above.
 *  @return false: the head is no preflight of an allowed page */
bool bt_cors_preflight(const char *origins, const bt_http1_head_t *head,
                       bt_strbuf_t *out);

#endif
