/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/kv_need.h"

bt_kv_need_t bt_kv_need_of(const bt_msg_hello_t *hello)
{
    const bool says = (hello->span_blocks > 0) || (hello->window_blocks > 0);

    return (bt_kv_need_t){
        .tokens_per_block = hello->tokens_per_block,
        .span_blocks = says ? hello->span_blocks : 1,
        .window_blocks = hello->window_blocks,
        .window_spans = hello->window_spans,
    };
}

uint64_t bt_kv_need_blocks(const bt_kv_need_t *need, uint64_t n_tokens)
{
    const uint64_t t = need->tokens_per_block;
    const uint64_t n = n_tokens / t + (n_tokens % t != 0);
    const uint64_t in_window =
        (n < need->window_spans) ? n : need->window_spans;

    return need->span_blocks * n + need->window_blocks * in_window;
}

uint64_t bt_kv_need_longest(const bt_kv_need_t *need, uint64_t n_blocks)
{
    const uint64_t each = need->span_blocks;
    const uint64_t within = each + need->window_blocks;
    const uint64_t all_windows =
        (uint64_t)need->window_blocks * need->window_spans;
    uint64_t n = n_blocks / within; /* if no attention window is full */

    if (n >= need->window_spans) {
        if (each == 0) {
            return UINT64_MAX;
        }
        n = (n_blocks - all_windows) / each;
    }
    return n * need->tokens_per_block;
}
