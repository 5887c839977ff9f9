/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_prefix_estimate.h"

#include <stdbool.h>

#include "common/base/assert.h"

/* Iterator over the prompt's blocks, each hashed with those before it. */
typedef struct walk {
    const uint32_t *tokens;
    uint32_t left, per_block;
    uint64_t hash;
} walk_t;

static walk_t walk_of(uint64_t whose, bt_hash128_t space,
                      const uint32_t *tokens, uint32_t n, uint32_t per_block)
{
    uint32_t blocks;

    BT_ASSERT(per_block > 0);
    blocks = n / per_block;
    return (walk_t){
        .tokens = tokens,
        .left = (blocks < BT_SCHED_PREFIX_MAX_BLOCKS)
                    ? blocks
                    : BT_SCHED_PREFIX_MAX_BLOCKS,
        .per_block = per_block,
        .hash = bt_hash64(&space, sizeof(space), whose),
    };
}

static bool walk_on(walk_t *walk)
{
    if (walk->left == 0) {
        return false;
    }
    walk->hash =
        bt_hash64(walk->tokens, walk->per_block * sizeof(uint32_t), walk->hash);
    walk->hash += (walk->hash == 0) ? 1 : 0; /* 0 is a free slot */
    walk->tokens += walk->per_block;
    walk->left--;
    return true;
}

void bt_sched_prefix_estimate_add(bt_sched_prefix_estimate_t *held,
                                  uint64_t whose, bt_hash128_t space,
                                  const uint32_t *tokens, uint32_t n,
                                  uint32_t tokens_per_block)
{
    walk_t walk = walk_of(whose, space, tokens, n, tokens_per_block);

    while (walk_on(&walk)) {
        held->slots[walk.hash % BT_SCHED_PREFIX_SLOTS] = walk.hash;
    }
}

uint32_t bt_sched_prefix_estimate_find(const bt_sched_prefix_estimate_t *held,
                                       uint64_t whose, bt_hash128_t space,
                                       const uint32_t *tokens, uint32_t n,
                                       uint32_t tokens_per_block)
{
    walk_t walk = walk_of(whose, space, tokens, n, tokens_per_block);
    uint32_t found = 0;

    while (walk_on(&walk) &&
           (held->slots[walk.hash % BT_SCHED_PREFIX_SLOTS] == walk.hash)) {
        found += tokens_per_block;
    }
    return found;
}
