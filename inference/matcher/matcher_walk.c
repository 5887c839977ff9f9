/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of a vocabulary's trie from a state. */
#include "inference/matcher/matcher_priv.h"

#define WORK_STEPS 4u /* that an edge of a row counts for: it takes as long */

void bt_walk_set(bt_walk_t *w, uint32_t id)
{
    uint64_t *word = &w->mask[id / 64];
    const uint64_t bit = 1ull << (id % 64);

    w->n_tokens += ((*word & bit) == 0) ? 1 : 0;
    *word |= bit;
}

static void set_alias(bt_walk_t *w, uint32_t alias)
{
    const bt_token_trie_t *trie = w->m->trie;

    for (uint32_t i = trie->alias_first[alias];
         i < trie->alias_first[alias + 1]; i++) {
        bt_walk_set(w, trie->alias_ids[i]);
    }
}

static bool is_over(const bt_walk_t *w, uint32_t state)
{
    return (state == BT_MATCHER_FAILED) ||
           ((w->m->sets[state].flags & BT_SET_OVERFLOW) != 0);
}

/* Notes a state behind a token. @return false: it is too far from the end */
static inline bool is_near(bt_walk_t *w, uint32_t state)
{
    const uint32_t bytes = bt_matcher_set_bytes(w->m, state);

    if (bytes > w->need) {
        return false;
    }
    w->farthest = (bytes > w->farthest) ? bytes : w->farthest;
    return true;
}

/* Expands a state, if need be, and counts what that takes once in a walk, even
 * where its row was there before. @return false: full */
static bool visit(bt_walk_t *w, uint32_t state)
{
    bt_matcher_t *m = w->m;
    bt_row_ref_t *row = &m->row_of[state];

    if (!bt_matcher_is_expanded(m, state) && !bt_matcher_expand(m, state)) {
        return false;
    }
    if (row->walk != m->walk) {
        row->walk = m->walk;
        w->steps += (uint64_t)m->rows[row->at + m->n_classes + 1] * WORK_STEPS;
    }
    return true;
}

/* Puts a state at a depth of the walk. @return false: full */
static bool enter(bt_walk_t *w, uint32_t depth, uint32_t state)
{
    if (!visit(w, state)) {
        return false;
    }
    w->rows[depth] = bt_matcher_row(w->m, state);
    return true;
}

/* Empties the tables and walks again to a depth, whose states are known to be
 * no failures. @return false: that alone does not fit */
static bool walk_again(bt_walk_t *w, uint32_t depth)
{
    uint32_t state = bt_matcher_rebase(w->m, *w->state_p);

    *w->state_p = state;
    if (state == BT_MATCHER_FAILED) {
        return false;
    }
    state = w->canonical ? bt_matcher_canonical(w->m, state) : state;
    w->root = state;
    for (uint32_t d = 0; (state != BT_NODE_NONE) && enter(w, d, state); d++) {
        if (d == depth) {
            return true;
        }
        state = w->rows[d][w->m->class_of[w->path[d]]];
    }
    return false;
}

/* Empties the tables where they are full. @return false: the walk has to begin
 * again, or one path alone does not fit */
static bool empty_tables(bt_walk_t *w, uint32_t depth)
{
    w->is_full = !w->begins_empty;
    return w->begins_empty && (w->steps <= w->max_steps) &&
           walk_again(w, depth);
}

/* Makes the row behind the path and one byte more.
 * @return false: a limit is reached, or the walk has to begin again */
static bool make_row(bt_walk_t *w, uint32_t depth)
{
    const uint32_t class = w->m->class_of[w->path[depth]];

    if (!enter(w, depth + 1, w->rows[depth][class]) &&
        (!empty_tables(w, depth) ||
         !enter(w, depth + 1, w->rows[depth][class]))) {
        return false;
    }
    return !is_over(w, w->rows[depth][class]);
}

/* Walks some nodes with all below them. This is where the time of masks goes: a
 * node whose byte leads on costs no branch but that, the token of one that has
 * none is a bit behind the mask.
 * @param [in] measured  States behind tokens have distances.
 * @return false: a limit is reached */
static inline __attribute__((always_inline)) bool
walk_nodes(bt_walk_t *w, uint32_t begin, uint32_t end, bool measured)
{
    bt_matcher_t *m = w->m;
    const bt_trie_node_t *nodes = w->part->nodes;
    const uint32_t no_token = m->trie->no_token;
    uint64_t *mask = w->mask;
    uint64_t steps = 0;
    uint32_t n_tokens = 0;

    for (uint32_t i = begin; i < end;) {
        const bt_trie_node_t node = nodes[i];
        const uint32_t *row = w->rows[node.depth];
        const uint32_t next = row[m->class_of[node.byte]];
        uint32_t token = node.token;

        steps += row[0];
        if (next == BT_MATCHER_DEAD) {
            i += node.skip;
            continue;
        }
        w->path[node.depth] = (uint8_t)node.byte;
        w->rows[node.depth + 1] = &m->rows[m->row_of[next].at];
        if (measured && (token != no_token) && (next != BT_MATCHER_FAILED) &&
            !is_near(w, next)) {
            token = no_token;
        }
        if (token <= no_token) {
            mask[token / 64] |= 1ull << (token % 64);
            n_tokens += (token < no_token) ? 1 : 0;
        } else {
            set_alias(w, token - no_token - 1);
        }
        i++;
        if ((m->row_of[next].walk != m->walk) &&
            ((next == BT_MATCHER_FAILED) || (node.skip > 1))) {
            if ((next == BT_MATCHER_FAILED) ||
                (w->steps + steps > w->max_steps) || !make_row(w, node.depth)) {
                return false;
            }
        }
    }
    w->n_tokens += n_tokens;
    w->steps += steps;
    return w->steps <= w->max_steps;
}

static bool walk_measured(bt_walk_t *w, uint32_t begin, uint32_t end)
{
    return walk_nodes(w, begin, end, true);
}

static bool walk_plain(bt_walk_t *w, uint32_t begin, uint32_t end)
{
    return walk_nodes(w, begin, end, false);
}

/* Walks only the first bytes that lead on. */
bool bt_walk_part(bt_walk_t *w, const bt_trie_part_t *part)
{
    w->part = part;
    for (uint32_t b = 0; b < 256; b++) {
        const uint32_t begin = part->first[b];
        const uint32_t end = part->first[b + 1];

        if ((begin < end) &&
            (w->rows[0][w->m->class_of[b]] != BT_MATCHER_DEAD) &&
            !((w->m->distances != NULL) ? walk_measured(w, begin, end)
                                        : walk_plain(w, begin, end))) {
            return false;
        }
    }
    return true;
}

/* Reads a token that is in no trie.
 * @param [out] alive_p  It can be read.
 * @return 1; 0: full; -1: a limit is reached */
static int read_long(bt_walk_t *w, const uint8_t *bytes, size_t n,
                     bool *alive_p)
{
    bt_matcher_t *m = w->m;
    uint32_t state = w->root;
    uint64_t steps = 0;

    *alive_p = false;
    for (size_t i = 0; i < n; i++) {
        const uint32_t *row;

        if (!visit(w, state)) {
            return 0;
        }
        row = bt_matcher_row(m, state);
        steps += row[0];
        if (is_over(w, state) || (w->steps + steps > w->max_steps)) {
            return -1;
        }
        state = row[m->class_of[bytes[i]]];
        if (state <= BT_MATCHER_FAILED) {
            break;
        }
    }
    w->steps += steps;
    *alive_p = (state > BT_MATCHER_FAILED) &&
               ((w->m->distances == NULL) || is_near(w, state));
    return (state == BT_MATCHER_FAILED) ? -1 : 1;
}

bool bt_walk_long(bt_walk_t *w)
{
    const bt_token_trie_t *trie = w->m->trie;

    for (uint32_t i = 0; i < trie->n_long; i++) {
        size_t n;
        const uint8_t *bytes = bt_token_trie_bytes(trie, trie->long_ids[i], &n);
        bool alive;
        int read = read_long(w, bytes, n, &alive);

        if ((read == 0) && empty_tables(w, 0)) {
            read = read_long(w, bytes, n, &alive);
        }
        if (read != 1) {
            return false;
        }
        if (alive) {
            bt_walk_set(w, trie->long_ids[i]);
        }
    }
    return true;
}

bool bt_walk_begin(bt_walk_t *w, uint32_t state, bool *over_p)
{
    w->root = state;
    w->n_tokens = 0;
    w->farthest = 0;
    w->is_full = false;
    w->m->walk++;
    if (w->m->walk == 0) { /* no walk of another time may look like this one */
        for (uint32_t i = 0; i < w->m->n_sets; i++) {
            w->m->row_of[i].walk = 0;
        }
        w->m->walk = 1;
    }
    if (!enter(w, 0, state)) {
        return false;
    }
    w->steps = 0; /* the first state's row is there already or cheap */
    *over_p = is_over(w, state);
    return true;
}
