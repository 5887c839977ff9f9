/* SPDX-License-Identifier: Apache-2.0 */
/** @file page.h
 *
 * Files of the web page at "/", embedded in the program: index.html, and the
 * files that it loads below "/page/"; and the API's description for programs,
 * docs/openapi.json. So the page is served wherever the
 * program runs, and always matches the program's version.
 *
 *     index.html, *.css, *.js, *.svg, openapi.json ── embed.py ──▶ page_table.c
 *         name, type, bytes, compressed bytes, ETags
 *
 * The files are never modified: the page fetches the data that it shows, so
 * all files are equal for all users, and no text of others becomes a part of
 * them.
 *
 * Threads: constants and pure functions.
 */
#ifndef BT_ROUTER_PAGE_PAGE_H
#define BT_ROUTER_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/** Name of the file at "/". */
#define BT_PAGE_INDEX "index.html"
/** Name of the API's description, docs/openapi.json, which is no part of the
 *  page. */
#define BT_PAGE_OPENAPI "openapi.json"
/**
 * Content-Security-Policy of the page: scripts, styles and images are files of
 * this server, inline code in HTML does not run, and data goes to and comes
 * from this server alone. No text can become markup (trusted-types). The page
 * cannot be embedded in a frame.
 */
#define BT_PAGE_POLICY                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src "    \
    "'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "    \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-" \
    "types 'none'"

typedef struct bt_page_file {
    const char *name;             /**< such as "talk.js" */
    const char *type;             /**< value of Content-Type */
    const char *tag, *tag_packed; /**< ETag values, with their quotes */
    const unsigned char *plain;
    size_t plain_bytes;
    const unsigned char *packed; /**< compressed with gzip */
    size_t packed_bytes;
} bt_page_file_t;

extern const bt_page_file_t bt_page_files[]; /**< sorted by name */
extern const size_t bt_page_n_files;

/** Finds a file by name.
 *  @param [in] name  without a folder
 *  @return NULL: there is none */
const bt_page_file_t *bt_page_find(const char *name);

/** True when a tag is in an If-None-Match header. A weak tag ("W/") matches
 *  too, as RFC 9110, 13.1.2 specifies.
 *  @param [in] header  NULL: no header */
bool bt_page_is_known(const char *header, const char *tag);

#endif
