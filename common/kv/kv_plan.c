/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_plan.h"

#include <string.h>

#include "common/base/alloc.h"

/* Layers with one window. */
typedef struct kind {
    uint32_t window; /* 0: all */
    uint32_t n_layers;
    uint32_t first_group, n_groups;
    uint32_t n_placed; /* layers assigned to a group */
} kind_t;

typedef struct plan {
    uint32_t context_tokens;
    uint32_t n_kinds;
    kind_t kinds[BT_KV_MAX_GROUPS];
} plan_t;

static uint32_t window_of(const plan_t *plan, uint32_t window)
{
    return (window >= plan->context_tokens) ? 0 : window;
}

static kind_t *kind_of(plan_t *plan, uint32_t window)
{
    for (uint32_t k = 0; k < plan->n_kinds; k++) {
        if (plan->kinds[k].window == window) {
            return &plan->kinds[k];
        }
    }
    return NULL;
}

static bt_status_t sort_layers(plan_t *plan, const uint32_t *windows,
                               uint32_t n_layers)
{
    for (uint32_t i = 0; i < n_layers; i++) {
        const uint32_t window = window_of(plan, windows[i]);
        kind_t *kind = kind_of(plan, window);

        if (kind == NULL) {
            if (plan->n_kinds == BT_KV_MAX_GROUPS) {
                return BT_ERR_UNSUPPORTED;
            }
            kind = &plan->kinds[plan->n_kinds++];
            kind->window = window;
        }
        kind->n_layers++;
    }
    return BT_OK;
}

static uint32_t groups_for(const kind_t *kind, uint32_t page_layers)
{
    return (kind->n_layers + page_layers - 1) / page_layers;
}

/* Size of the longest sequence, in layers of a token, if a page has this
 * many layers; 0: that needs too many groups. */
static uint64_t cost_of(const plan_t *plan, uint32_t page_layers,
                        uint32_t *n_groups_p)
{
    uint64_t cost = 0;
    uint64_t n = 0;

    for (uint32_t k = 0; k < plan->n_kinds; k++) {
        const kind_t *kind = &plan->kinds[k];
        const uint64_t n_groups = groups_for(kind, page_layers);
        const uint64_t tokens =
            (kind->window == 0) ? plan->context_tokens : kind->window;

        n += n_groups;
        cost += n_groups * page_layers * tokens;
    }
    *n_groups_p = (uint32_t)n;
    return (n > BT_KV_MAX_GROUPS) ? 0 : cost;
}

static uint32_t best_page(const plan_t *plan, uint32_t n_layers)
{
    uint32_t best = n_layers;
    uint32_t best_groups = 0;
    uint64_t best_cost = cost_of(plan, n_layers, &best_groups);

    for (uint32_t page = n_layers - 1; page > 0; page--) {
        uint32_t n_groups = 0;
        const uint64_t cost = cost_of(plan, page, &n_groups);

        if ((cost != 0) && ((cost < best_cost) || ((cost == best_cost) &&
                                                   (n_groups < best_groups)))) {
            best = page;
            best_cost = cost;
            best_groups = n_groups;
        }
    }
    return best;
}

/* The layers of a kind in order, evenly spread over its groups; the first
 * ones may get one more. */
static uint32_t place(kind_t *kind)
{
    const uint32_t i = kind->n_placed++;
    const uint32_t each = kind->n_layers / kind->n_groups;
    const uint32_t n_larger = kind->n_layers % kind->n_groups;
    const uint32_t in_larger = n_larger * (each + 1);

    return kind->first_group + ((i < in_larger)
                                    ? i / (each + 1)
                                    : n_larger + (i - in_larger) / each);
}

bt_status_t bt_kv_groups_plan(const bt_kv_shape_t *shape,
                              const uint32_t *windows, uint32_t context_tokens,
                              bt_kv_groups_t *groups_p)
{
    bt_kv_group_t list[BT_KV_MAX_GROUPS] = {0};
    plan_t plan = {.context_tokens = context_tokens};
    uint32_t n_groups = 0;
    uint32_t page_layers;
    uint8_t *group_of;
    bt_status_t status;

    if (shape->n_layers == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    status = sort_layers(&plan, windows, shape->n_layers);
    if (status != BT_OK) {
        return status;
    }
    page_layers = best_page(&plan, shape->n_layers);
    for (uint32_t k = 0; k < plan.n_kinds; k++) {
        plan.kinds[k].first_group = n_groups;
        plan.kinds[k].n_groups = groups_for(&plan.kinds[k], page_layers);
        n_groups += plan.kinds[k].n_groups;
    }
    group_of = bt_calloc(shape->n_layers, sizeof(*group_of));
    if (group_of == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        kind_t *kind = kind_of(&plan, window_of(&plan, windows[i]));
        const uint32_t g = place(kind);

        group_of[i] = (uint8_t)g;
        list[g].shape.n_layers++;
        list[g].window_tokens = kind->window;
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t n = list[g].shape.n_layers;

        list[g].shape = *shape;
        list[g].shape.n_layers = n;
    }
    status =
        bt_kv_groups_init(list, n_groups, group_of, shape->n_layers, groups_p);
    bt_free(group_of);
    return status;
}
