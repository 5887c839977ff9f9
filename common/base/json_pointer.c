/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json_pointer.h"

#include <stdio.h>
#include <string.h>

/* Appends a part of a JSON pointer. */
static void add_part(char *pointer, size_t cap, const char *text, uint32_t len)
{
    size_t n = strlen(pointer);

    if (n + 1 < cap) {
        pointer[n++] = '/';
    }
    for (uint32_t i = 0; (i < len) && (n + 3 < cap); i++) {
        if ((text[i] == '~') || (text[i] == '/')) {
            pointer[n++] = '~';
            pointer[n++] = (text[i] == '~') ? '0' : '1';
        } else {
            pointer[n++] = ((uint8_t)text[i] < 0x20) ? '?' : text[i];
        }
    }
    pointer[n] = '\0';
}

/* Nodes are in the order of the text. */
void bt_json_pointer(const bt_json_doc_t *doc, const bt_json_node_t *root,
                     const bt_json_node_t *node, char *pointer, size_t cap)
{
    const bt_json_node_t *at = root;

    pointer[0] = '\0';
    while (at != node) {
        const bool is_object = bt_json_is_kind(at, BT_JSON_OBJECT);
        const bt_json_node_t *child;
        uint32_t i;

        if ((!is_object && !bt_json_is_kind(at, BT_JSON_ARRAY)) ||
            (at->n == 0)) {
            return;
        }
        child = bt_json_first(at);
        for (i = 0; i < at->n; i++) {
            const bt_json_node_t *const value = is_object ? child + 1 : child;
            const bt_json_node_t *const next = bt_json_next(doc, value);

            if ((node >= child) && (node < next)) {
                break;
            }
            child = next;
        }
        if (i == at->n) {
            return;
        }
        if (is_object) {
            add_part(pointer, cap, child->text, child->len);
            if (node == child) {
                return;
            }
            at = child + 1;
        } else {
            char index[16];

            (void)snprintf(index, sizeof(index), "%u", i);
            add_part(pointer, cap, index, (uint32_t)strlen(index));
            at = child;
        }
    }
}
