/* SPDX-License-Identifier: Apache-2.0 */
/** @file cors.h
 *
 * CORS: which web pages' scripts may use the server from a browser, and read
 * its answers. None by default: router/net/hosts.h blocks requests of foreign
 * pages, and this allows the origins that an operator names.
 *
 *     page ── OPTIONS, Origin, Access-Control-Request-Method ──▶ preflight: 204
 *          ── POST, Origin ──▶ an answer with Access-Control-Allow-Origin
 *
 * An origin is compared byte by byte, as browsers write it (RFC 6454, 6.2), but
 * ignoring case: no part of a name, no other port, no other scheme. There are
 * no cookies here, so none are allowed.
 *
 * Threads: pure functions.
 * Source:  the Fetch standard, 3.2 (CORS protocol); Private Network Access.
 */
#ifndef BT_ROUTER_HTTP_CORS_H
#define BT_ROUTER_HTTP_CORS_H

#include <stdbool.h>

#include "common/base/text.h"
#include "router/http/http1.h"

#define BT_CORS_ORIGIN_BYTES \
    272 /**< scheme, name and port, with the zero byte */
#define BT_CORS_HEADERS_BYTES \
    4096u /**< bytes of header names that a preflight may ask for */

/** True when this is a list (comma separated) of origins, or "*".
 *  @param [out] bad  the invalid entry, on failure */
bool bt_cors_are_valid(const char *origins, char bad[BT_CORS_ORIGIN_BYTES]);
/** True when scripts of this page may use the server. @param [in] origin  NULL:
 *  no page */
bool bt_cors_allows(const char *origins, const char *origin);
/** Appends the headers ("Name: value\r\n" each) that every answer to this head
 *  has; nothing where @a origins is "". */
void bt_cors_add_headers(const char *origins, const bt_http1_head_t *head,
                         bt_strbuf_t *out);
/** Appends the extra headers of a preflight's answer, beside those of
 *  bt_cors_add_headers().
 *  @return false: the head is no preflight of an allowed page */
bool bt_cors_preflight(const char *origins, const bt_http1_head_t *head,
                       bt_strbuf_t *out);

#endif
