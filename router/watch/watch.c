/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/watch.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/alloc.h"

bt_status_t bt_watch_create(uint32_t life, uint64_t now_us, uint64_t unix_ms,
                            bt_watch_t **watch_p)
{
    bt_watch_t *watch = bt_calloc(1, sizeof(*watch));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (watch == NULL) {
        return status;
    }
    watch->events.life = life;
    watch->start_us = now_us;
    watch->start_unix_ms = unix_ms;
    status = bt_recent_requests_init(&watch->past);
    if (status == BT_OK) {
        status = bt_history_create(now_us, &watch->history);
    }
    if (status != BT_OK) {
        bt_watch_destroy(watch);
        return status;
    }
    *watch_p = watch;
    return BT_OK;
}

void bt_watch_destroy(bt_watch_t *watch)
{
    if (watch == NULL) {
        return;
    }
    bt_history_destroy(watch->history);
    bt_recent_requests_fini(&watch->past);
    bt_free(watch);
}

/* ---- JSON ---- */

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
