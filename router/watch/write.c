/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/write.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

/* Prints 1234500 as "1234.5": without printf, since a page has thousands. */
void bt_write_ms(bt_json_t *json, const char *key, uint64_t us)
{
    char text[28];
    size_t at = sizeof(text);
    uint64_t whole = us / 1000;
    uint32_t rest = (uint32_t)(us % 1000);
    int digits = 3;

    text[--at] = '\0';
    while ((digits > 0) && (rest % 10 == 0)) {
        rest /= 10;
        digits--;
    }
    if (digits > 0) {
        for (; digits > 0; digits--) {
            text[--at] = (char)('0' + rest % 10);
            rest /= 10;
        }
        text[--at] = '.';
    }
    do {
        text[--at] = (char)('0' + whole % 10);
        whole /= 10;
    } while (whole > 0);
    bt_json_raw(json, key, text + at);
}

void bt_write_some_ms(bt_json_t *json, const char *key, uint64_t us)
{
    if (us == 0) {
        bt_json_null(json, key);
    } else {
        bt_write_ms(json, key, us);
    }
}

void bt_write_id(bt_json_t *json, const char *key, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, number);
    bt_json_str(json, key, (number != 0) ? text : NULL);
}

void bt_write_some_text(bt_json_t *json, const char *key, const char *text)
{
    bt_json_str(json, key, ((text != NULL) && (text[0] != '\0')) ? text : NULL);
}
