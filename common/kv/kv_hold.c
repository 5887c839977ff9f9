/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_hold.h"

#include <string.h>

#include "common/base/status.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return (a < b) ? a : b;
}

/* Of a windowed group. */
static uint32_t most_of(const bt_kv_group_t *group, const bt_kv_reach_t *reach)
{
    return least(reach->n_most,
                 bt_kv_group_most_spans(group, reach->ahead_tokens));
}

uint64_t bt_kv_reach_blocks(const bt_kv_groups_t *groups,
                            const bt_kv_reach_t *reach)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];

        n += bt_kv_group_is_windowed(group) ? most_of(group, reach)
                                            : reach->n_spans;
    }
    return n;
}

uint32_t bt_kv_hold_blocks(const bt_kv_groups_t *groups,
                           const bt_kv_hold_t *hold)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        n += hold->end[g] - hold->first[g];
    }
    return n;
}

/* A window that lies wholly behind the held range begins there, empty. */
static void begin_at(bt_kv_hold_t *hold, uint32_t group, uint32_t first)
{
    hold->first[group] = first;
    if (hold->end[group] < first) {
        hold->end[group] = first;
    }
}

void bt_kv_hold_found(const bt_kv_groups_t *groups, bt_kv_hold_t *hold,
                      uint32_t n_spans, uint64_t n_known)
{
    const uint64_t n_found = (uint64_t)n_spans * groups->tokens_per_block;

    for (uint32_t g = 0; g < groups->n; g++) {
        hold->end[g] = n_spans;
        begin_at(hold, g,
                 bt_kv_group_first_span(&groups->group[g], (n_found > n_known)
                                                               ? n_found
                                                               : n_known));
    }
}

bool bt_kv_hold_passes(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       uint64_t n_tokens)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        if (bt_kv_group_first_span(&groups->group[g], n_tokens) >
            hold->first[g]) {
            return true;
        }
    }
    return false;
}

uint32_t bt_kv_hold_pass(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                         bt_kv_hold_t *hold, const uint32_t *table,
                         uint64_t n_tokens)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const uint32_t first =
            bt_kv_group_first_span(&groups->group[g], n_tokens);

        for (uint32_t i = hold->first[g]; i < least(first, hold->end[g]); i++) {
            bt_kv_pool_unref(pool, table[(size_t)i * groups->n + g]);
            n++;
        }
        if (first > hold->first[g]) {
            begin_at(hold, g, first);
        }
    }
    return n;
}

/* End of the held range with this reach: not before the current end, because
 * blocks acquired ahead stay even if fewer are needed than before. */
static uint32_t end_of(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       const bt_kv_reach_t *reach, uint32_t g)
{
    const bt_kv_group_t *group = &groups->group[g];
    uint32_t end = reach->n_spans;

    if (bt_kv_group_is_windowed(group)) {
        end = least(hold->first[g] + most_of(group, reach), reach->n_most);
    }
    return (end > hold->end[g]) ? end : hold->end[g];
}

uint32_t bt_kv_hold_lacks(const bt_kv_groups_t *groups,
                          const bt_kv_hold_t *hold, const bt_kv_reach_t *reach)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        n += end_of(groups, hold, reach, g) - hold->end[g];
    }
    return n;
}

void bt_kv_hold_fill(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                     bt_kv_hold_t *hold, const bt_kv_reach_t *reach,
                     const uint32_t *ids, uint32_t *table)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        const bool windowed = bt_kv_group_is_windowed(&groups->group[g]);
        const uint32_t end = end_of(groups, hold, reach, g);

        BT_ASSERT(end <= reach->n_most);
        for (; hold->end[g] < end; hold->end[g]++) {
            table[(size_t)hold->end[g] * groups->n + g] = *ids;
            if (windowed) {
                bt_kv_pool_set_windowed(pool, *ids);
            }
            ids++;
        }
    }
}

void bt_kv_hold_return(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                       bt_kv_hold_t *hold, const uint32_t *table)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        for (uint32_t i = hold->first[g]; i < hold->end[g]; i++) {
            bt_kv_pool_unref(pool, table[(size_t)i * groups->n + g]);
        }
    }
    memset(hold, 0, sizeof(*hold));
}

uint32_t bt_kv_hold_end(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold)
{
    uint32_t end = hold->end[0];

    for (uint32_t g = 1; g < groups->n; g++) {
        end = least(end, hold->end[g]);
    }
    return end;
}
