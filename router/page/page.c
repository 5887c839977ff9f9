/* SPDX-License-Identifier: Apache-2.0 */
#include "router/page/page.h"

#include <string.h>

const bt_page_file_t *bt_page_find(const char *name)
{
    for (size_t i = 0; i < bt_page_n_files; i++) {
        if (strcmp(bt_page_files[i].name, name) == 0) {
            return &bt_page_files[i];
        }
    }
    return NULL;
}

bool bt_page_is_known(const char *header, const char *tag)
{
    const size_t n_tag = strlen(tag);
    const char *at = header;

    while (at != NULL) {
        at += strspn(at, ", \t");
        if (*at == '*') {
            return true;
        }
        if (strncmp(at, "W/", 2) == 0) {
            at += 2;
        }
        if (strncmp(at, tag, n_tag) == 0) {
            return true; /* it ends with a quote, which no tag has inside */
        }
        at = strchr(at, ',');
    }
    return false;
}
