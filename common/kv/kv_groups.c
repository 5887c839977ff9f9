/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_groups.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

bt_status_t bt_kv_block_bytes(const bt_kv_shape_t *shape, size_t *bytes_p)
{
    const size_t dims[] = {2 /* key and value */, shape->n_layers,
                           shape->n_kv_heads, shape->tokens_per_block};
    size_t vectors = 1;
    size_t vector_bytes;
    size_t bytes;

    if ((shape->elem_bytes != 1) && (shape->elem_bytes != 2) &&
        (shape->elem_bytes != 4)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((shape->scale_bytes != 0) && (shape->scale_bytes != 2) &&
        (shape->scale_bytes != 4)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (shape->head_dim == 0) {
        return BT_ERR_INVALID_PARAM;
    }

    for (size_t i = 0; i < BT_ARRAY_LEN(dims); i++) {
        if (dims[i] == 0) {
            return BT_ERR_INVALID_PARAM;
        }
        if (__builtin_mul_overflow(vectors, dims[i], &vectors)) {
            return BT_ERR_OVERFLOW;
        }
    }
    /* Two 32-bit numbers and 4: no overflow in 64 bits. */
    vector_bytes =
        (size_t)shape->head_dim * shape->elem_bytes + shape->scale_bytes;
    if (__builtin_mul_overflow(vectors, vector_bytes, &bytes)) {
        return BT_ERR_OVERFLOW;
    }

    *bytes_p = bytes;
    return BT_OK;
}

bt_hash128_t bt_kv_layout_identity(const bt_kv_shape_t *shape, uint32_t kv_type,
                                   uint32_t order)
{
    const uint32_t fields[] = {
        order,
        kv_type,
        shape->n_layers,
        shape->n_kv_heads,
        shape->tokens_per_block,
        shape->head_dim,
        shape->elem_bytes,
        shape->scale_bytes,
    };

    return bt_hash128(fields, sizeof(fields), 0);
}

static bt_status_t block_bytes_of(const bt_kv_group_t *group, size_t *bytes_p)
{
    if (group->kind == BT_KV_PAGED) {
        return bt_kv_block_bytes(&group->shape, bytes_p);
    }
    if ((group->kind != BT_KV_STATE) || (group->window_tokens != 0) ||
        (group->shape.n_layers == 0) || (group->state_bytes == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    return __builtin_mul_overflow(group->state_bytes,
                                  (size_t)group->shape.n_layers, bytes_p)
               ? BT_ERR_OVERFLOW
               : BT_OK;
}

static bt_status_t take_sizes(bt_kv_groups_t *groups)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];
        bt_status_t status;

        if (group->shape.tokens_per_block != groups->tokens_per_block) {
            return BT_ERR_INVALID_PARAM;
        }
        status = block_bytes_of(group, &groups->block_bytes[g]);
        if (status != BT_OK) {
            return status;
        }
        if (groups->block_bytes[g] > groups->page_bytes) {
            groups->page_bytes = groups->block_bytes[g];
        }
    }
    return BT_OK;
}

static bt_status_t set_layer_slots(bt_kv_groups_t *groups,
                                   const uint8_t *group_of)
{
    uint32_t n_in[BT_KV_MAX_GROUPS] = {0};

    groups->layer_slots =
        bt_calloc(groups->n_layers, sizeof(*groups->layer_slots));
    if (groups->layer_slots == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < groups->n_layers; i++) {
        const uint32_t g = group_of[i];

        if (g >= groups->n) {
            return BT_ERR_INVALID_PARAM;
        }
        groups->layer_slots[i] =
            (bt_kv_layer_slot_t){.group = g, .index = n_in[g]++};
    }
    for (uint32_t g = 0; g < groups->n; g++) {
        if (n_in[g] != groups->group[g].shape.n_layers) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

bt_status_t bt_kv_groups_init(const bt_kv_group_t *list, uint32_t n,
                              const uint8_t *group_of, uint32_t n_layers,
                              bt_kv_groups_t *groups_p)
{
    bt_kv_groups_t groups = {.n = n, .n_layers = n_layers};
    bt_status_t status;

    if ((n == 0) || (n > BT_KV_MAX_GROUPS) ||
        (list[0].shape.tokens_per_block == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(groups.group, list, n * sizeof(*list));
    groups.tokens_per_block = list[0].shape.tokens_per_block;
    status = take_sizes(&groups);
    if ((status == BT_OK) && (n == 1) && (list[0].shape.n_layers != n_layers)) {
        status = BT_ERR_INVALID_PARAM;
    }
    if ((status == BT_OK) && (n > 1)) {
        status = set_layer_slots(&groups, group_of);
    }
    if (status != BT_OK) {
        bt_kv_groups_fini(&groups);
        return status;
    }
    *groups_p = groups;
    return BT_OK;
}

bt_status_t bt_kv_groups_share(const bt_kv_groups_t *whole,
                               uint32_t first_layer, uint32_t n_layers,
                               uint32_t n_kv_heads, bt_kv_groups_t *groups_p)
{
    bt_kv_groups_t own = *whole;
    bt_status_t status = BT_OK;

    if ((n_layers == 0) || (first_layer > whole->n_layers) ||
        (n_layers > whole->n_layers - first_layer)) {
        return BT_ERR_INVALID_PARAM;
    }
    own.n_layers = n_layers;
    own.first_layer = first_layer;
    own.layer_slots = NULL;
    own.page_bytes = 0;
    for (uint32_t g = 0; g < own.n; g++) {
        own.group[g].shape.n_layers = (own.n == 1) ? n_layers : 0;
        own.group[g].shape.n_kv_heads = n_kv_heads;
        own.block_bytes[g] = 0;
    }
    if (own.n > 1) {
        own.layer_slots = bt_calloc(n_layers, sizeof(*own.layer_slots));
        if (own.layer_slots == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    for (uint32_t i = 0; (own.n > 1) && (i < n_layers); i++) {
        const uint32_t g = whole->layer_slots[first_layer + i].group;

        own.layer_slots[i] = (bt_kv_layer_slot_t){
            .group = g, .index = own.group[g].shape.n_layers++};
    }
    for (uint32_t g = 0; (status == BT_OK) && (g < own.n); g++) {
        if (own.group[g].shape.n_layers > 0) {
            status = block_bytes_of(&own.group[g], &own.block_bytes[g]);
        }
        own.page_bytes = (own.block_bytes[g] > own.page_bytes)
                             ? own.block_bytes[g]
                             : own.page_bytes;
    }
    if (status != BT_OK) {
        bt_kv_groups_fini(&own);
        return status;
    }
    *groups_p = own;
    return BT_OK;
}

void bt_kv_groups_fini(bt_kv_groups_t *groups)
{
    bt_free(groups->layer_slots);
    memset(groups, 0, sizeof(*groups));
}

bt_hash128_t bt_kv_groups_identity(const bt_kv_groups_t *groups,
                                   uint32_t kv_type, uint32_t order)
{
    bt_hash128_t id =
        bt_kv_layout_identity(&groups->group[0].shape, kv_type, order);

    if ((groups->n == 1) && (groups->group[0].kind == BT_KV_PAGED) &&
        (groups->group[0].window_tokens == 0)) {
        return id;
    }
    /* Each step folds the previous hash into the next. */
    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];
        const bt_hash128_t shape =
            bt_kv_layout_identity(&group->shape, kv_type, order);
        const uint64_t fields[] = {id.lo,
                                   id.hi,
                                   shape.lo,
                                   shape.hi,
                                   (uint64_t)group->kind,
                                   group->window_tokens,
                                   group->state_bytes};

        id = bt_hash128(fields, sizeof(fields), 1);
    }
    for (uint32_t i = 0; i < groups->n_layers; i++) {
        const uint64_t fields[] = {id.lo, id.hi,
                                   bt_kv_layer_slot(groups, i).group};

        id = bt_hash128(fields, sizeof(fields), 2);
    }
    return id;
}

uint32_t bt_kv_group_first_span(const bt_kv_group_t *group, uint64_t n_tokens)
{
    const uint32_t t = group->shape.tokens_per_block;

    if (group->kind == BT_KV_STATE) {
        return (n_tokens == 0) ? 0 : (uint32_t)((n_tokens - 1) / t);
    }
    if ((group->window_tokens == 0) || (n_tokens + 1 <= group->window_tokens)) {
        return 0;
    }
    return (uint32_t)((n_tokens + 1 - group->window_tokens) / t);
}

uint32_t bt_kv_groups_n_whole(const bt_kv_groups_t *groups)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        n += !bt_kv_group_is_windowed(&groups->group[g]);
    }
    return n;
}

/* From the span of position n + 1 - W to that of n + ahead - 1, wherever n lies
 * in its span: W - 1 + ahead neighbours touch one span more than they fill. */
uint32_t bt_kv_group_most_spans(const bt_kv_group_t *group,
                                uint32_t ahead_tokens)
{
    /* A state after n tokens is in the span of the last of them. */
    const uint64_t before =
        (group->kind == BT_KV_STATE) ? 1 : (uint64_t)group->window_tokens - 1;

    return bt_kv_blocks_for(before + ahead_tokens,
                            group->shape.tokens_per_block) +
           1;
}

static size_t layer_bytes(const bt_kv_group_t *group)
{
    return (group->kind == BT_KV_STATE) ? group->state_bytes
                                        : bt_kv_layer_bytes(&group->shape);
}

size_t bt_kv_groups_layer_bytes(const bt_kv_groups_t *groups)
{
    size_t bytes = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        bytes +=
            groups->group[g].shape.n_layers * layer_bytes(&groups->group[g]);
    }
    return bytes / groups->n_layers;
}

size_t bt_kv_group_bytes_of(const bt_kv_groups_t *groups, uint32_t group,
                            uint32_t n_layers)
{
    const bt_kv_group_t *g = &groups->group[group];
    const uint32_t here =
        (n_layers > groups->first_layer) ? n_layers - groups->first_layer : 0;
    const uint32_t end = (here < groups->n_layers) ? here : groups->n_layers;
    uint32_t n = end;

    if (groups->layer_slots != NULL) {
        n = 0;
        for (uint32_t i = 0; i < end; i++) {
            n += (groups->layer_slots[i].group == group);
        }
    }
    if (n == g->shape.n_layers) {
        return groups->block_bytes[group];
    }
    return n * layer_bytes(g);
}

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
static uint32_t assign(kind_t *kind)
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
        const uint32_t g = assign(kind);

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
