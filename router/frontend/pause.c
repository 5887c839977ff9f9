/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/pause.h"

#include "common/base/log.h"
#include "router/frontend/frontend.h"

void bt_router_pause_init(bt_router_pause_t *pause)
{
    *pause = (bt_router_pause_t){.is_begun = false};
    bt_list_init(&pause->waiters);
}

void bt_router_pause_begin(bt_frontend_t *front, bool aborts,
                           bt_router_pause_waiter_t *waiter, uint64_t now_us)
{
    if (!front->pause.is_begun) {
        BT_LOG_INFO("paused by an admin command%s",
                    aborts ? ", requests in flight are aborted" : "");
    }
    front->pause.is_begun = true;
    bt_list_push_back(&front->pause.waiters, &waiter->link);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_core_hold(served->core, BT_CORE_HOLD_PAUSE);
        if (aborts) {
            bt_core_end_begun(served->core, "aborted by POST /pause", now_us);
        }
    }
}

/* A waiter may be freed by being told. */
static void tell_all(bt_router_pause_t *pause, bool is_paused)
{
    while (!bt_list_empty(&pause->waiters)) {
        bt_router_pause_waiter_t *waiter = BT_CONTAINER_OF(
            pause->waiters.next, bt_router_pause_waiter_t, link);

        bt_list_remove(&waiter->link);
        waiter->done(waiter->ctx, is_paused);
    }
}

void bt_router_pause_end(bt_frontend_t *front, uint64_t now_us)
{
    if (!front->pause.is_begun) {
        return;
    }
    BT_LOG_INFO("resumed by an admin command");
    front->pause.is_begun = false;
    tell_all(&front->pause, false);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_core_release(served->core, BT_CORE_HOLD_PAUSE, now_us);
    }
}

bool bt_router_pause_is_complete(const bt_frontend_t *front)
{
    if (!front->pause.is_begun) {
        return false;
    }
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (bt_core_n_begun(served->core) > 0) {
            return false;
        }
    }
    return true;
}

void bt_router_pause_tick(bt_frontend_t *front)
{
    if (!bt_list_empty(&front->pause.waiters) &&
        bt_router_pause_is_complete(front)) {
        tell_all(&front->pause, true);
    }
}

void bt_router_pause_forget(bt_router_pause_waiter_t *waiter)
{
    bt_list_remove(&waiter->link);
}
