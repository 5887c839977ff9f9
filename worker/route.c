/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/route.h"

#include "common/base/alloc.h"
#include "common/base/list.h"

typedef struct route {
    bt_list_t link;
    bt_kv_end_t end;
    bt_kv_split_t theirs;
    bt_kv_route_t route;
} route_t;

void bt_routes_init(bt_worker_t *w)
{
    bt_list_init(&w->routes);
}

void bt_routes_fini(bt_worker_t *w)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &w->routes)
    {
        route_t *r = BT_CONTAINER_OF(pos, route_t, link);

        bt_list_remove(&r->link);
        bt_kv_route_fini(&r->route);
        bt_free(r);
    }
}

bt_status_t bt_route_find(bt_worker_t *w, bt_kv_end_t end, bt_kv_split_t theirs,
                          const bt_kv_route_t **route_p)
{
    bt_list_t *pos;
    bt_list_t *tmp;
    bt_status_t status;
    route_t *r;

    BT_LIST_FOR_EACH(pos, tmp, &w->routes)
    {
        r = BT_CONTAINER_OF(pos, route_t, link);
        if ((r->end == end) && (r->theirs.tp == theirs.tp) &&
            (r->theirs.pp == theirs.pp)) {
            *route_p = &r->route;
            return BT_OK;
        }
    }
    r = bt_calloc(1, sizeof(*r));
    if (r == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    r->end = end;
    r->theirs = theirs;
    status =
        bt_kv_route_make(&w->groups, end, &w->split, 0, &theirs, &r->route);
    if ((status == BT_OK) && (r->route.n_lanes > 1)) {
        bt_kv_route_fini(&r->route);
        status = BT_ERR_UNSUPPORTED;
    }
    if (status != BT_OK) {
        bt_free(r);
        return status;
    }
    bt_list_push_back(&w->routes, &r->link);
    *route_p = &r->route;
    return BT_OK;
}
