/* SPDX-License-Identifier: Apache-2.0 */
/** @file http1.h
 *
 * Parses HTTP/1.x messages from clients, without sockets: the head of a request
 * and the chunked coding of a body. Strict where leniency lets two servers
 * disagree about where a request ends (bare line feeds, folded lines, two
 * lengths, a length beside a coding).
 *
 *     GET /a%20b?q HTTP/1.1\r\n      method "GET", path "/a b"
 *     Host: x\r\n                    headers[0]
 *     \r\n                           <- bt_http1_head_end() is after this
 *
 * Threads: pure functions.
 * Source:  RFC 9110 (semantics), RFC 9112 (message syntax).
 */
#ifndef BT_ROUTER_HTTP_HTTP1_H
#define BT_ROUTER_HTTP_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_HTTP1_MAX_HEADERS       100
#define BT_HTTP1_MAX_HEAD_BYTES    ((size_t)64 * 1024)
#define BT_HTTP1_MAX_LINE_BYTES    4096u /**< a chunk's size and extensions */
#define BT_HTTP1_MAX_TRAILER_BYTES (16u * 1024u)

typedef struct bt_http1_header {
    const char *name;
    const char *value; /**< without the surrounding white space */
} bt_http1_header_t;

/** Parsed head; all pointers point into the parsed text. */
typedef struct bt_http1_head {
    const char *method;
    const char *path;  /**< percent-decoded, without query; starts with '/' */
    const char *query; /**< raw text after '?', or "" */
    int minor;         /**< HTTP/1.minor */
    bt_http1_header_t headers[BT_HTTP1_MAX_HEADERS];
    uint32_t n_headers;
    bool chunked;
    uint64_t length; /**< body length; 0 when none or chunked */
    bool keep_alive; /**< client allows a persistent connection */
    bool expect_continue;
} bt_http1_head_t;

/** Response to a malformed request. */
typedef struct bt_http1_fault {
    int http_status; /**< 400, 415, 417, 431, 501 or 505 */
    const char *why; /**< static text for the client */
} bt_http1_fault_t;

/**
 * Finds the end of a head.
 *
 * @param [in]     data    `bytes` received so far.
 * @param [in,out] seen_p  0 at first; bytes that were scanned already.
 * @return bytes of the head with its empty line, or 0: more is needed.
 */
size_t bt_http1_head_end(const char *data, size_t bytes, size_t *seen_p);

/**
 * Parses a head in place.
 *
 * @param [in,out] text  `bytes` as bt_http1_head_end() found them, followed by
 *   a zero byte; pieces get zero bytes, the path is decoded in place.
 * @retval BT_ERR_INVALID_PARAM  fault_p is filled.
 */
BT_MUST_CHECK bt_status_t bt_http1_parse_head(char *text, size_t bytes,
                                              bt_http1_head_t *head_p,
                                              bt_http1_fault_t *fault_p);

/** Returns the first header of this name, or NULL. */
const char *bt_http1_find(const bt_http1_head_t *head, const char *name);

/** Decoder of a chunked body; all zero at first. */
typedef struct bt_http1_chunked {
    int state;
    uint64_t left;       /**< bytes left of this chunk's data */
    uint32_t line_bytes; /**< bytes of this line (or of all trailers) */
} bt_http1_chunked_t;

/**
 * Decodes until there is a piece of body, or the input is used up, or the body
 * ended. Call again with the unused input.
 *
 * @param [out] used_p   number of data bytes used.
 * @param [out] body_p   body bytes inside data, body_bytes_p of them (may be
 *   0).
 * @param [out] done_p   the body and its trailers ended.
 * @retval BT_ERR_BAD_MESSAGE  not a chunked body.
 * @retval BT_ERR_TOO_LARGE    a line or the trailers are over their limit.
 */
BT_MUST_CHECK bt_status_t bt_http1_chunked_feed(
    bt_http1_chunked_t *decoder, const char *data, size_t bytes, size_t *used_p,
    const char **body_p, size_t *body_bytes_p, bool *done_p);

#endif
