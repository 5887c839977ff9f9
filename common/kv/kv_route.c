/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_route.h"

#include <string.h>

#include "common/base/alloc.h"

bt_status_t bt_kv_route_make(const bt_kv_shape_t *whole, bt_kv_end_t end,
                             const bt_kv_split_t *mine, uint32_t rank,
                             const bt_kv_split_t *theirs,
                             bt_kv_route_t *route_p)
{
    bt_kv_route_t route = {0};
    bt_kv_part_t here;
    uint64_t n_ranks;
    bt_status_t status = bt_kv_part_of(whole, mine, rank, &here);

    /* Stages and slices within the model's layers and heads: a small number. */
    if (status == BT_OK) {
        bt_kv_part_t there;

        status = bt_kv_part_of(whole, theirs, 0, &there);
    }
    if (status != BT_OK) {
        return status;
    }
    n_ranks = (uint64_t)theirs->tp * theirs->pp;
    route.lanes = bt_calloc(n_ranks, sizeof(*route.lanes));
    if (route.lanes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; (status == BT_OK) && (r < n_ranks); r++) {
        bt_kv_lane_t *lane = &route.lanes[route.n_lanes];
        bt_kv_part_t there;

        status = bt_kv_part_of(whole, theirs, r, &there);
        if (status == BT_OK) {
            status =
                (end == BT_KV_SRC)
                    ? bt_kv_reshard_plan(whole, &here, &there, &lane->plan)
                    : bt_kv_reshard_plan(whole, &there, &here, &lane->plan);
        }
        if ((status == BT_OK) && (lane->plan.n_moves > 0)) {
            lane->rank = r;
            route.n_lanes++;
        }
    }
    if (status != BT_OK) {
        bt_kv_route_fini(&route);
        return status;
    }
    *route_p = route;
    return BT_OK;
}

void bt_kv_route_fini(bt_kv_route_t *route)
{
    for (uint32_t i = 0; i < route->n_lanes; i++) {
        bt_kv_reshard_fini(&route->lanes[i].plan);
    }
    bt_free(route->lanes);
    memset(route, 0, sizeof(*route));
}
