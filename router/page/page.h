/* SPDX-License-Identifier: Apache-2.0 */
/** @file page.h
 *
 * The files of the page that people see at "/", as they lie in this folder:
 * index.html, and what it asks for below "/page/". The program has them inside,
 * so it serves the page wherever it runs, and always the one it was built with.
 *
 *     index.html, *.css, *.js, *.svg ── embed.py ──▶ page_table.c
 *         name, type, bytes, the same packed, a tag of each
 *
 * Nothing is written into a file: what the page shows it asks for, so all of it
 * is the same for everybody, and no text of others becomes a part of it.
 *
 * Threads: constants and pure functions.
 */
#ifndef BT_ROUTER_PAGE_PAGE_H
#define BT_ROUTER_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/** The one at "/". */
#define BT_PAGE_INDEX "index.html"
/**
 * What browsers let the page do (Content-Security-Policy): scripts, styles and
 * pictures are files of this server, nothing that stands in HTML runs, and data
 * goes to and comes from this server alone. No text can become markup
 * (trusted-types). Nobody puts it into a frame.
 */
#define BT_PAGE_POLICY                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src "    \
    "'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "    \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-" \
    "types 'none'"

typedef struct bt_page_file {
    const char *name;             /**< "talk.js" */
    const char *type;             /**< of its content, for Content-Type */
    const char *tag, *tag_packed; /**< for ETag, with the quotes around them */
    const unsigned char *plain;
    size_t plain_bytes;
    const unsigned char *packed; /**< by gzip */
    size_t packed_bytes;
} bt_page_file_t;

extern const bt_page_file_t bt_page_files[]; /**< by name */
extern const size_t bt_page_n_files;

/** @param [in] name  without a folder @return NULL: there is none */
const bt_page_file_t *bt_page_find(const char *name);

/** Is this tag among those of a header If-None-Match? A weak one ("W/") is
 *  the same, as RFC 9110, 13.1.2 has it. @param [in] header  NULL: none is */
bool bt_page_is_known(const char *header, const char *tag);

#endif
