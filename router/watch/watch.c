/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/watch.h"

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
