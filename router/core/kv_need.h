/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_need.h
 *
 * What sequences take of a worker's KV blocks, by what its HELLO says of them:
 * a span of tokens has several where layers are in groups (common/kv), and of
 * those that see only a window a sequence holds no more than the window.
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

/** Of a HELLO what says it. */
typedef struct bt_kv_need {
    uint32_t tokens_per_block;
    uint32_t span_blocks, window_blocks, window_spans;
} bt_kv_need_t;

bt_kv_need_t bt_kv_need_of(const bt_msg_hello_t *hello);

/** Blocks that a sequence of @a n_tokens takes at most. */
uint64_t bt_kv_need_blocks(const bt_kv_need_t *need, uint64_t n_tokens);

/** Tokens of the longest sequence that @a n_blocks hold. */
uint64_t bt_kv_need_longest(const bt_kv_need_t *need, uint64_t n_blocks);

#endif
