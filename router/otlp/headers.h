/* SPDX-License-Identifier: Apache-2.0 */
/** @file headers.h
 *
 * Parses the file of --otlp-headers-file: HTTP headers that a receiver requires
 * in each request, such as a key. One header per line; empty lines and lines
 * that begin with # are ignored.
 *
 *     Authorization: Bearer 0f8c…
 *     X-Scope-OrgID: baton
 *
 * Threads: pure, except for bt_otlp_headers_read().
 * Source:  RFC 9110, 5.1 and 5.5.
 */
#ifndef BT_ROUTER_OTLP_HEADERS_H
#define BT_ROUTER_OTLP_HEADERS_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/base/text.h"

#define BT_OTLP_HEADERS_BYTES ((size_t)16 << 10) /**< limit per file */
/** Largest size of parsed headers: each line may gain a space and a NUL. */
#define BT_OTLP_HEADERS_TEXT_BYTES (2 * BT_OTLP_HEADERS_BYTES)
#define BT_OTLP_HEADERS_WHY_BYTES  256

/**
 * Parses headers.
 *
 * @param [in,out] out  the headers are appended as libcurl takes them, each
 *                      NUL-terminated: `Name: value`, or `Name;` if the value
 *                      is empty; unchanged on failure
 * @param [out]    why  on failure: line and cause, without any header value
 * @retval BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_otlp_headers_parse(const char *text, size_t bytes, bt_strbuf_t *out,
                      char why[BT_OTLP_HEADERS_WHY_BYTES]);
/** Reads and parses a file of headers, which only its owner may read
 *  (common/crypt/key.h). Parameters are those of bt_otlp_headers_parse().
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE,
 *          BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_otlp_headers_read(
    const char *path, bt_strbuf_t *out, char why[BT_OTLP_HEADERS_WHY_BYTES]);
/** Reads the file that an option names; logs a failure. Errors are those of
 *  bt_otlp_headers_read().
 *  @param [in] path  "": no headers, which is no error
 *  @param [in] then  a phrase logged after the cause: the consequence; or "" */
BT_MUST_CHECK bt_status_t bt_otlp_headers_load(const char *path,
                                               const char *then,
                                               bt_strbuf_t *out);
/** Overwrites the headers, which may hold a key, and frees them. */
void bt_otlp_headers_fini(bt_strbuf_t *headers);

#endif
