/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/kv_need.h"

/* A worker that says nothing has one block a span. */
static uint64_t span_blocks(const bt_msg_hello_t *hello)
{
    return ((hello->span_blocks == 0) && (hello->window_blocks == 0))
               ? 1
               : hello->span_blocks;
}

uint64_t bt_kv_need_blocks(const bt_msg_hello_t *hello, uint64_t n_tokens)
{
    const uint64_t t = hello->tokens_per_block;
    const uint64_t n = n_tokens / t + (n_tokens % t != 0);
    const uint64_t in_window =
        (n < hello->window_spans) ? n : hello->window_spans;

    return span_blocks(hello) * n + hello->window_blocks * in_window;
}

uint64_t bt_kv_need_longest(const bt_msg_hello_t *hello)
{
    const uint64_t each = span_blocks(hello);
    const uint64_t within = each + hello->window_blocks;
    const uint64_t all_windows =
        (uint64_t)hello->window_blocks * hello->window_spans;
    uint64_t n = hello->n_blocks / within; /* if no window is full */

    if (n >= hello->window_spans) {
        if (each == 0) {
            return UINT64_MAX;
        }
        n = (hello->n_blocks - all_windows) / each;
    }
    return n * hello->tokens_per_block;
}
