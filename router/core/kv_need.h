/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_need.h
 *
 * Computes how many of a worker's KV blocks sequences need, from its HELLO. A
 * span is the tokens of one block. A span takes several blocks where layers are
 * in groups (common/kv); in groups with an attention window a sequence holds no
 * more than the window.
 *
 *     blocks
 *       │            ╱ ◀ span_blocks for each span more
 *       │        ╱
 *       │    ╱
 *       │   ╱ ◀ and window_blocks, up to window_spans
 *       │  ╱
 *       └──────────── spans
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_CORE_KV_NEED_H
#define BT_ROUTER_CORE_KV_NEED_H

#include <stdint.h>

#include "common/wire/wire.h"

/** KV block need of a worker's sequences, from its HELLO. */
typedef struct bt_kv_need {
    uint32_t tokens_per_block;
    uint32_t span_blocks, window_blocks, window_spans;
} bt_kv_need_t;

bt_kv_need_t bt_kv_need_of(const bt_msg_hello_t *hello);

/** Returns the most blocks that a sequence of @a n_tokens takes. */
uint64_t bt_kv_need_blocks(const bt_kv_need_t *need, uint64_t n_tokens);

/** Returns the length in tokens of the longest sequence that fits @a n_blocks.
 */
uint64_t bt_kv_need_longest(const bt_kv_need_t *need, uint64_t n_blocks);

#endif
