/* SPDX-License-Identifier: Apache-2.0 */
/* Checks requests to a back end against its capabilities. */
#include <stdarg.h>
#include <stdio.h>

#include "common/base/assert.h"
#include "kernels/kernels.h"

static bt_status_t refuse(char *why, size_t why_bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bt_status_t refuse(char *why, size_t why_bytes, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, why_bytes, fmt, args);
    va_end(args);
    return BT_ERR_UNSUPPORTED;
}

bt_status_t bt_kernels_check_kv(const bt_kernels_caps_t *caps,
                                const bt_kv_view_t *kv, char *why,
                                size_t why_bytes)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(kv->type);

    if ((info == NULL) || ((caps->kv_types >> kv->type & 1u) == 0)) {
        return refuse(why, why_bytes,
                      "the %s back end does not have kv-dtype %s", caps->name,
                      (info == NULL) ? "(unknown)" : info->name);
    }
    if (kv->head_dim > caps->max_head_dim) {
        return refuse(why, why_bytes,
                      "the %s back end supports heads of at most %u "
                      "dimensions; the model's have %u",
                      caps->name, caps->max_head_dim, kv->head_dim);
    }
    if ((kv->tokens_per_block == 0) ||
        (kv->tokens_per_block % caps->kv_block_tokens != 0)) {
        return refuse(why, why_bytes,
                      "tokens-per-block is %u; the %s back end needs a "
                      "multiple of %u",
                      kv->tokens_per_block, caps->name, caps->kv_block_tokens);
    }
    if ((caps->max_block_tokens != 0) &&
        (kv->tokens_per_block > caps->max_block_tokens)) {
        return refuse(why, why_bytes,
                      "tokens-per-block is %u; the %s back end takes at most "
                      "%u",
                      kv->tokens_per_block, caps->name, caps->max_block_tokens);
    }
    if (((uintptr_t)kv->base % caps->kv_align_bytes != 0) ||
        (kv->block_bytes % caps->kv_align_bytes != 0)) {
        return refuse(why, why_bytes,
                      "KV blocks of %zu bytes do not all begin on %u bytes, as "
                      "the %s back end needs",
                      kv->block_bytes, caps->kv_align_bytes, caps->name);
    }
    return BT_OK;
}

static uint32_t parts_of(const bt_attention_t *a)
{
    return ((a->window != 0) ? (uint32_t)BT_ATTENTION_WINDOW : 0) |
           ((a->soft_cap > 0.0f) ? (uint32_t)BT_ATTENTION_SOFT_CAP : 0) |
           ((a->sinks != NULL) ? (uint32_t)BT_ATTENTION_SINKS : 0) |
           ((a->value_dim != a->key_dim) ? (uint32_t)BT_ATTENTION_VALUE_DIM
                                         : 0) |
           ((a->slopes != NULL) ? (uint32_t)BT_ATTENTION_SLOPES : 0);
}

bt_status_t bt_kernels_check_attention(const bt_kernels_caps_t *caps,
                                       const bt_attention_t *attention,
                                       char *why, size_t why_bytes)
{
    static const struct {
        bt_attention_part_t part;
        const char *name;
    } parts[] = {
        {BT_ATTENTION_WINDOW, "a sliding window"},
        {BT_ATTENTION_SOFT_CAP, "a soft cap of its scores"},
        {BT_ATTENTION_SINKS, "sinks"},
        {BT_ATTENTION_VALUE_DIM, "values of another width than keys"},
        {BT_ATTENTION_SLOPES, "linear biases of its scores"},
    };
    const uint32_t missing = parts_of(attention) & ~caps->attention;

    for (size_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        if ((missing & (uint32_t)parts[i].part) != 0) {
            return refuse(why, why_bytes,
                          "the %s back end does not compute attention with %s",
                          caps->name, parts[i].name);
        }
    }
    return BT_OK;
}
