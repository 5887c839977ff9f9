/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_pointer.h  Where a node of a JSON document is, for messages. */
#ifndef BT_COMMON_BASE_JSON_POINTER_H
#define BT_COMMON_BASE_JSON_POINTER_H

#include <stddef.h>

#include "common/base/json_doc.h"

/** Writes the JSON pointer of a node below a root, cut to cap bytes; of the
 *  root it is the empty text. A key has the pointer of its value. Controls are
 *  written as '?'. Source: RFC 6901. */
void bt_json_pointer(const bt_json_doc_t *doc, const bt_json_node_t *root,
                     const bt_json_node_t *node, char *pointer, size_t cap);

#endif
