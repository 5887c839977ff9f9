/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_fork.h"

#include "common/base/assert.h"
#include "common/kv/kv_layout.h"

bt_status_t bt_kv_fork(bt_kv_pool_t *pool, const uint32_t *ids,
                       uint32_t n_tokens, uint32_t tokens_per_block,
                       uint32_t n_blocks, uint32_t *fork_ids,
                       bt_kv_copy_t *copy_p)
{
    const uint32_t n_shared = bt_kv_fork_n_shared(n_tokens, tokens_per_block);
    bt_status_t status;

    BT_ASSERT_ALWAYS(bt_kv_blocks_for(n_tokens, tokens_per_block) <= n_blocks);
    status = bt_kv_pool_acquire(pool, n_blocks - n_shared, fork_ids + n_shared);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n_shared; i++) {
        bt_kv_pool_ref(pool, ids[i]);
        fork_ids[i] = ids[i];
    }
    *copy_p = (bt_kv_copy_t){0, 0};
    if (n_tokens % tokens_per_block != 0) {
        *copy_p = (bt_kv_copy_t){ids[n_shared], fork_ids[n_shared]};
    }
    return BT_OK;
}
