/* SPDX-License-Identifier: Apache-2.0 */
/** @file headers.h
 *
 * The file of --otlp-headers: what a receiver wants to see with each request,
 * such as a key. A line is a header; lines that are empty or begin with # are
 * none.
 *
 *     Authorization: Bearer 0f8c…
 *     X-Scope-OrgID: baton
 *
 * Threads: pure, but for bt_otlp_headers_read().
 * Source:  RFC 9110, 5.1 and 5.5.
 */
#ifndef BT_ROUTER_OTLP_HEADERS_H
#define BT_ROUTER_OTLP_HEADERS_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

#define BT_OTLP_HEADERS_BYTES ((size_t)16 << 10) /**< of a file */
/** Of its headers as they are sent, at most: an end for each line. */
#define BT_OTLP_HEADERS_TEXT_BYTES (2 * BT_OTLP_HEADERS_BYTES)
#define BT_OTLP_HEADERS_WHY_BYTES  256

/**
 * @param [in,out] out  the headers as a request has them, each with its CRLF,
 *                      are appended; on failure it is as it was
 * @param [out]    why  on failure: line and cause, nothing of a value
 * @retval BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_otlp_headers_parse(const char *text, size_t bytes, bt_strbuf_t *out,
                      char why[BT_OTLP_HEADERS_WHY_BYTES]);
/** The same of a file, which only its owner may read (common/crypt/key.h).
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE,
 *          BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_otlp_headers_read(
    const char *path, bt_strbuf_t *out, char why[BT_OTLP_HEADERS_WHY_BYTES]);
/** The same of an option: what it fails on is logged.
 *  @param [in] path  "": there are none, which is no error
 *  @param [in] then  a phrase behind the cause: what becomes of it; or "" */
BT_MUST_CHECK bt_status_t bt_otlp_headers_load(const char *path,
                                               const char *then,
                                               bt_strbuf_t *out);
/** They are overwritten, for a key may be among them, and freed. */
void bt_otlp_headers_fini(bt_strbuf_t *headers);

#endif
