/* SPDX-License-Identifier: Apache-2.0 */
#include "common/coll/coll_tree.h"

#include <string.h>

#define TILE 512u /* floats that are added at once */

typedef struct sum {
    const float *const *parts;
    size_t at; /* of the tile */
    size_t n;
} sum_t;

static void sum_range(const sum_t *sum, uint32_t begin, uint32_t end,
                      float *out)
{
    float other[TILE];
    uint32_t middle;

    if (end - begin == 1) {
        memcpy(out, sum->parts[begin] + sum->at, sum->n * sizeof(*out));
        return;
    }
    middle = bt_coll_tree_middle(begin, end);
    sum_range(sum, begin, middle, out);
    sum_range(sum, middle, end, other);
    for (size_t i = 0; i < sum->n; i++) {
        out[i] += other[i];
    }
}

void bt_coll_tree_sum(const float *const *parts, uint32_t n_parts, size_t n,
                      float *out)
{
    float tile[TILE]; /* out may be one of the parts */

    for (size_t at = 0; at < n; at += TILE) {
        const sum_t sum = {
            .parts = parts, .at = at, .n = (n - at < TILE) ? n - at : TILE};

        sum_range(&sum, 0, n_parts, tile);
        memcpy(out + at, tile, sum.n * sizeof(*out));
    }
}

/* Is [from, to) the whole of a node below [begin, end)? */
static bool is_node(uint32_t begin, uint32_t end, uint32_t from, uint32_t to)
{
    while ((begin != from) || (end != to)) {
        const uint32_t middle = bt_coll_tree_middle(begin, end);

        if ((end - begin < 2) || ((from < middle) && (to > middle))) {
            return false;
        }
        begin = (from < middle) ? begin : middle;
        end = (from < middle) ? middle : end;
    }
    return true;
}

bool bt_coll_tree_divides(uint32_t n_parts, uint32_t size)
{
    const uint32_t each = (size > 0) ? n_parts / size : 0;

    if ((size == 0) || (each == 0) || (n_parts % size != 0)) {
        return false;
    }
    for (uint32_t r = 0; r < size; r++) {
        if (!is_node(0, n_parts, r * each, (r + 1) * each)) {
            return false;
        }
    }
    return true;
}
