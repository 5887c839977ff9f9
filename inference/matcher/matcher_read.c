/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of answers.
 *
 * A count makes a state of its own of each position in a long string or list,
 * and to make its row takes longer than to find its mask. So tokens are read
 * from the canonical state (matcher_tables.c), whose rows are there already,
 * and only the state behind the token is made:
 *
 *     state       (S, 1000) below   ─────────────────────▶   (S, 1005) below
 *       │                             + (5 - 0)                   ▲
 *     canonical   (S, 0) below  ── the token's bytes ──▶  (S, 5) below
 *
 * Origins tell which frames of the stack behind the bytes are those of the
 * stack before them, and which one of them has counted. Where a byte leads to
 * several stacks, or to one by ways of several origins, which other counts may
 * keep apart, it is read from the state itself. */
#include "inference/matcher/matcher_priv.h"

/* Returns the stack that came of a stack as another one, `to`, came of its
 * canonical one.
 * @return BT_NODE_NONE: full */
static uint32_t move_back(bt_matcher_t *m, uint32_t node, uint32_t canonical,
                          uint32_t to, bt_origin_t origin)
{
    const uint32_t kept = origin / 2u;
    const bool has_moved = (origin & 1u) != 0;
    uint32_t path[BT_GRAMMAR_MAX_DEPTH];
    uint32_t n = 0;
    uint32_t more = 0; /* counts than the canonical one */

    while (m->nodes[node].depth > kept) {
        more = m->nodes[node].count - m->nodes[canonical].count;
        node = m->nodes[node].below;
        canonical = m->nodes[canonical].below;
    }
    while (m->nodes[to].depth > kept) {
        path[n++] = to;
        to = m->nodes[to].below;
    }
    more = has_moved ? more : 0;
    while ((n > 0) && (node != BT_NODE_NONE)) {
        const bt_stack_node_t *frame = &m->nodes[path[--n]];

        node = bt_matcher_node(m, frame->state, frame->count + more, node);
        more = 0;
    }
    return node;
}

/* Returns the origin of a stack behind two steps: `first` leads to a stack of
 * `depth` frames. */
static bt_origin_t compose(bt_origin_t first, uint32_t depth, uint8_t second)
{
    const uint32_t kept = first / 2u;
    const uint32_t kept_then = depth - (second >> 1);

    if (kept_then > kept) {
        return first;
    }
    return (kept_then < kept) ? (bt_origin_t)(2 * kept_then + (second & 1u))
                              : (bt_origin_t)(2 * kept + (first & second & 1u));
}

/* Reads bytes from a state's canonical one, up to the longest token's: that far
 * they are alike.
 * @param [out] next_p  written where the result is above 0
 * @return bytes read; 0: the first one has to be read from the state itself, or
 *         the tables are full */
static size_t leap(bt_matcher_t *m, uint32_t state, const uint8_t *bytes,
                   size_t n, uint32_t *next_p)
{
    const uint32_t canonical = bt_matcher_canonical(m, state);
    uint32_t at = canonical;
    bt_origin_t origin;
    uint32_t node;
    size_t i = 0;

    if ((canonical == state) || (canonical == BT_NODE_NONE)) {
        return 0;
    }
    n = (n < m->trie->max_bytes) ? n : m->trie->max_bytes;
    node = m->sets[canonical].first;
    origin = (bt_origin_t)(2 * m->nodes[node].depth);
    for (; i < n; i++) {
        const uint32_t class = m->class_of[bytes[i]];
        const uint32_t *row;
        uint8_t step;

        if (!bt_matcher_is_expanded(m, at) && !bt_matcher_expand(m, at)) {
            return 0;
        }
        if ((m->sets[at].flags & BT_SET_OVERFLOW) != 0) {
            break;
        }
        row = bt_matcher_row(m, at);
        if (row[class] == BT_MATCHER_DEAD) {
            *next_p = BT_MATCHER_DEAD;
            return i + 1;
        }
        step = bt_matcher_origins(m, row)[class];
        if (step == 0) {
            break;
        }
        origin = compose(origin, m->nodes[m->sets[at].first].depth, step);
        at = row[class];
    }
    if (i == 0) {
        return 0;
    }
    node = move_back(m, m->sets[state].first, node, m->sets[at].first, origin);
    at = (node == BT_NODE_NONE) ? node : bt_matcher_set(m, &node, 1);
    if (at == BT_NODE_NONE) {
        return 0;
    }
    *next_p = at;
    return i;
}

uint32_t bt_matcher_read(bt_matcher_t *m, uint32_t state, const uint8_t *bytes,
                         size_t n)
{
    bool may_leap = m->counts;
    size_t i = 0;

    while ((i < n) && (state > BT_MATCHER_FAILED)) {
        if (may_leap && (m->sets[state].n == 1)) {
            const size_t read = leap(m, state, &bytes[i], n - i, &state);

            i += read;
            may_leap = read > 0;
            if (may_leap) {
                continue;
            }
        }
        if (!bt_matcher_ready(m, &state)) {
            break;
        }
        state = bt_matcher_row(m, state)[m->class_of[bytes[i++]]];
    }
    return state;
}
