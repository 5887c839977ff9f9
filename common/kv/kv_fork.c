/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_fork.h"

#include "common/base/status.h"

bt_status_t bt_kv_fork_groups(bt_kv_pool_t *pool, uint32_t n_groups,
                              const uint32_t *table, uint32_t n_tokens,
                              uint32_t tokens_per_block, uint32_t n_spans,
                              uint32_t *fork_table, bt_kv_copy_t *copies)
{
    const uint32_t n_shared =
        bt_kv_fork_n_shared(n_tokens, tokens_per_block) * n_groups;
    bt_status_t status;

    BT_ASSERT_ALWAYS(bt_kv_blocks_for(n_tokens, tokens_per_block) <= n_spans);
    status = bt_kv_pool_acquire(pool, n_spans * n_groups - n_shared,
                                fork_table + n_shared);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n_shared; i++) {
        if (table[i] != BT_KV_NO_BLOCK) {
            bt_kv_pool_ref(pool, table[i]);
        }
        fork_table[i] = table[i];
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        copies[g] = (bt_kv_copy_t){0, 0};
        if (n_tokens % tokens_per_block != 0) {
            copies[g] =
                (bt_kv_copy_t){table[n_shared + g], fork_table[n_shared + g]};
        }
    }
    return BT_OK;
}

bt_status_t bt_kv_fork(bt_kv_pool_t *pool, const uint32_t *ids,
                       uint32_t n_tokens, uint32_t tokens_per_block,
                       uint32_t n_blocks, uint32_t *fork_ids,
                       bt_kv_copy_t *copy_p)
{
    return bt_kv_fork_groups(pool, 1, ids, n_tokens, tokens_per_block, n_blocks,
                             fork_ids, copy_p);
}
