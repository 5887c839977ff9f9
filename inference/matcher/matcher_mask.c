/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "inference/matcher/matcher_priv.h"

#define MAX_CHARS UINT32_MAX /* of plain text: any number */

/*
 * Plain text
 */

static bt_plain_kind_t plain_kind(const bt_matcher_t *m, uint32_t node)
{
    const uint32_t state = m->nodes[node].state;
    const uint32_t rule = m->grammar->states[state].rule;

    /* Near the greatest depth some of them may not be entered. */
    return (m->nodes[node].depth + m->plain_height[rule] <= m->max_depth)
               ? m->plain[state]
               : BT_PLAIN_NONE;
}

/* Plain characters that a frame reads, as far as is known. */
static uint32_t chars_of_frame(const bt_matcher_t *m, uint32_t node,
                               bt_plain_kind_t kind)
{
    const bt_stack_node_t *top = &m->nodes[node];

    switch (kind) {
    case BT_PLAIN_ANY:
        return MAX_CHARS;
    case BT_PLAIN_COUNTED:
        return m->grammar->rules[m->grammar->states[top->state].rule].max -
               top->count;
    case BT_PLAIN_EXACT:
    case BT_PLAIN_AT_LEAST:
        return m->plain_chars[top->state];
    case BT_PLAIN_NONE:
        break;
    }
    return 0;
}

/* Tells whether stacks, where they go on, begin with no plain text.
 * @return 1; 0: they may; -1: full */
static int reads_no_plain(bt_matcher_t *m, const uint32_t *nodes, uint32_t n)
{
    if (n == 0) {
        return 1;
    }
    if (!bt_matcher_close(m, nodes, n)) {
        return -1;
    }
    for (uint32_t i = 0; i < m->n_frames; i++) {
        if ((m->frames[i] != BT_NODE_EMPTY) &&
            m->reads_plain[m->nodes[m->frames[i]].state]) {
            return 0;
        }
    }
    return m->overflow ? 0 : 1;
}

/* What there is to say of plain tokens. */
typedef struct plain {
    uint32_t chars; /* can be read */
    bool only;      /* and no more */
    /* Distances from the end behind them; the least of frames that read them is
     * the least there is where `only`. */
    uint32_t near, far;
} plain_t;

/* Adds the distances behind plain text that a frame reads. */
static void add_distances(bt_matcher_t *m, const bt_stack_node_t *top,
                          plain_t *plain)
{
    const uint32_t r = m->grammar->states[top->state].rule;
    const uint32_t below = bt_matcher_node_bytes(m, top->below);
    uint32_t near = m->plain_near[top->state];
    uint32_t far = m->plain_far[top->state];

    /* Fewer counts than the rule's min have other ways. */
    if ((top->count < m->grammar->rules[r].min) ||
        (top->depth + m->plain_ways[r] > m->max_depth)) {
        near = 0;
        far = BT_MATCHER_FAR;
    }
    near = (below == BT_MATCHER_FAR) ? below : near + below;
    far = ((below == BT_MATCHER_FAR) || (far == BT_MATCHER_FAR))
              ? BT_MATCHER_FAR
              : far + below;
    plain->near = (near < plain->near) ? near : plain->near;
    plain->far = (far > plain->far) ? far : plain->far;
}

/* Finds what there is to say of plain tokens: frames that read some characters,
 * and end only before what is not plain, say it all. @return false: full */
static bool find_plain(bt_matcher_t *m, uint32_t state, plain_t *plain)
{
    uint32_t below[BT_MATCHER_MAX_SET];
    uint32_t n_below = 0;
    uint32_t n;
    int no_more;
    const uint32_t *nodes = bt_matcher_members(m, state, &n);

    *plain = (plain_t){.only = true, .near = BT_MATCHER_FAR};
    if (!bt_matcher_close(m, nodes, n)) {
        return false;
    }
    for (uint32_t i = 0; i < m->n_frames; i++) {
        const uint32_t node = m->frames[i];
        const bt_stack_node_t *top = &m->nodes[node];
        bt_plain_kind_t kind;
        uint32_t chars;

        if (node == BT_NODE_EMPTY) {
            continue;
        }
        kind = plain_kind(m, node);
        chars = chars_of_frame(m, node, kind);
        plain->chars = (chars > plain->chars) ? chars : plain->chars;
        if ((kind != BT_PLAIN_NONE) && (m->distances != NULL)) {
            add_distances(m, top, plain);
        }
        if ((kind == BT_PLAIN_NONE) || (kind == BT_PLAIN_AT_LEAST)) {
            plain->only = plain->only && !m->reads_plain[top->state];
        } else if (m->plain_ends[m->grammar->states[top->state].rule]) {
            plain->only = plain->only && (n_below < BT_MATCHER_MAX_SET);
            if (plain->only) {
                below[n_below++] = top->below;
            }
        }
    }
    if (!plain->only) {
        return true;
    }
    no_more = reads_no_plain(m, below, n_below);
    plain->only = no_more > 0;
    return no_more >= 0;
}

/* Puts the plain tokens of up to n characters into the mask. */
static void set_plain(bt_walk_t *w, uint32_t n_chars)
{
    const bt_token_trie_t *trie = w->m->trie;
    const uint32_t n_long = trie->n_plain_long;
    const uint32_t i = (n_chars >= trie->max_plain)    ? BT_TRIE_MAX_PLAIN
                       : (n_chars < BT_TRIE_MAX_PLAIN) ? n_chars
                                                       : BT_TRIE_MAX_PLAIN - 1;

    memcpy(w->mask, &trie->plain[(size_t)i * trie->n_words],
           trie->n_words * sizeof(uint64_t));
    w->n_tokens = trie->n_plain[i];
    for (uint32_t k = 0; (i == BT_TRIE_MAX_PLAIN - 1) && (k < n_long) &&
                         (trie->plain_long[k].n_chars <= n_chars);
         k++) {
        bt_walk_set(w, trie->plain_long[k].id);
    }
}

/*
 * Masks
 */

/* Puts the tokens of an edge into the mask. */
static void set_tokens_of(bt_walk_t *w, const bt_grammar_edge_t *edge)
{
    const bt_token_trie_t *const trie = w->m->trie;

    for (uint32_t id = edge->arg; (id <= edge->last) && (id < trie->n_vocab);
         id++) {
        if (!bt_token_trie_is_end(trie, id)) {
            bt_walk_set(w, id);
        }
    }
}

/* Puts the tokens that an edge of a frame takes by their ids into the mask.
 * @return false: full */
static bool set_taken_by(bt_walk_t *w, uint32_t node,
                         const bt_grammar_edge_t *edge)
{
    bt_matcher_t *m = w->m;
    uint32_t next;

    if (edge->kind != BT_GRAMMAR_TAKES) {
        return true;
    }
    if (!bt_matcher_follow(m, node, edge->to, edge->counts, &next)) {
        return false;
    }
    if (next == BT_NODE_NONE) {
        return true;
    }
    if (m->distances != NULL) {
        const uint32_t bytes = bt_matcher_node_bytes(m, next);

        if (bytes > w->need) {
            return true;
        }
        w->farthest = (bytes > w->farthest) ? bytes : w->farthest;
    }
    set_tokens_of(w, edge);
    return true;
}

static bool set_taken(bt_walk_t *w)
{
    bt_matcher_t *m = w->m;
    uint32_t n;
    const uint32_t *nodes = bt_matcher_members(m, w->root, &n);

    if ((m->sets[w->root].flags & BT_SET_TAKES) == 0) {
        return true;
    }
    if (!bt_matcher_close(m, nodes, n)) {
        return false;
    }
    for (uint32_t i = 0; i < m->n_frames; i++) {
        const bt_grammar_state_t *s;

        if (m->frames[i] == BT_NODE_EMPTY) {
            continue;
        }
        s = &m->grammar->states[m->nodes[m->frames[i]].state];
        for (uint32_t k = s->n_byte_edges; k < s->n_edges; k++) {
            if (!set_taken_by(w, m->frames[i],
                              &m->grammar->edges[s->first_edge + k])) {
                return false;
            }
        }
    }
    return true;
}

/* Puts the plain tokens into the mask, if it is known which.
 * @return the trie of those that are left */
static const bt_trie_part_t *set_known(bt_walk_t *w, const plain_t *plain)
{
    const bt_token_trie_t *trie = w->m->trie;
    const bool measured = w->m->distances != NULL;

    if ((plain->only || (plain->chars >= trie->max_plain)) &&
        (!measured || (plain->chars == 0) || (plain->far <= w->need))) {
        set_plain(w, plain->chars);
        if (measured && (plain->chars > 0)) {
            w->farthest = (plain->far > w->farthest) ? plain->far : w->farthest;
        }
        return &trie->others;
    }
    memset(w->mask, 0, trie->n_words * sizeof(uint64_t));
    return (plain->only && (plain->near > w->need)) ? &trie->others
                                                    : &trie->all;
}

typedef enum outcome { DONE, LIMIT, FULL } outcome_t;

/* Fills the mask of a state. @return FULL: the tables, which are as they were
 * but for that */
static outcome_t fill(bt_walk_t *w, uint32_t state)
{
    bt_matcher_t *m = w->m;
    bool over = false;
    plain_t plain;

    if (!bt_walk_begin(w, state, &over)) {
        return FULL;
    }
    if (over) {
        return LIMIT;
    }
    if (!find_plain(m, state, &plain)) {
        return FULL;
    }
    if (!bt_walk_part(w, set_known(w, &plain)) || !bt_walk_long(w)) {
        return w->is_full ? FULL : LIMIT;
    }
    /* Behind the walk, which counts each token that it sets. */
    if (!set_taken(w)) {
        return FULL;
    }
    for (uint32_t i = 0;
         bt_matcher_accepts(m, w->root) && (i < m->trie->n_end_ids); i++) {
        bt_walk_set(w, m->trie->end_ids[i]);
    }
    return DONE;
}

/* Returns a free slot; the clock's hand frees one that was not asked for again
 * since it came by. */
static uint32_t free_slot(bt_matcher_t *m)
{
    for (;;) {
        bt_mask_slot_t *slot = &m->slots[m->hand];
        const uint32_t at = m->hand;

        m->hand = (m->hand + 1) % m->n_slots;
        if ((slot->owner == 0) || !slot->used) {
            if (slot->owner != 0) {
                m->sets[slot->owner].mask = 0;
            }
            slot->owner = 0;
            return at;
        }
        slot->used = false;
    }
}

/* Returns the state that a walk begins at, emptying the tables for it if need
 * be; BT_MATCHER_FAILED: it does not fit. */
static uint32_t first_state(bt_matcher_t *m, uint32_t *state_p, bool canonical)
{
    uint32_t state = canonical ? bt_matcher_canonical(m, *state_p) : *state_p;

    if (state == BT_NODE_NONE) {
        *state_p = bt_matcher_rebase(m, *state_p);
        state = (*state_p == BT_MATCHER_FAILED)
                    ? BT_NODE_NONE
                    : bt_matcher_canonical(m, *state_p);
    }
    return (state == BT_NODE_NONE) ? BT_MATCHER_FAILED : state;
}

/* Makes the mask of a state. @return false: a limit is reached */
static bool make_mask(bt_walk_t *w)
{
    bt_matcher_t *m = w->m;
    uint32_t state = first_state(m, w->state_p, w->canonical);
    outcome_t outcome;

    if (state == BT_MATCHER_FAILED) {
        return false;
    }
    w->max_steps = (m->max_mask_steps == 0) ? UINT64_MAX : m->max_mask_steps;
    w->begins_empty = false;
    outcome = fill(w, state);
    if (outcome == FULL) {
        *w->state_p = bt_matcher_rebase(m, *w->state_p);
        if (*w->state_p == BT_MATCHER_FAILED) {
            return false;
        }
        state = first_state(m, w->state_p, w->canonical);
        w->begins_empty = true;
        outcome = (state == BT_MATCHER_FAILED) ? LIMIT : fill(w, state);
    }
    m->stats.steps += w->steps;
    return outcome == DONE;
}

/* @return slot of a cursor's mask; BT_NODE_NONE: failed */
static uint32_t mask_slot(bt_matcher_t *m, bt_matcher_cursor_t *cursor)
{
    const uint32_t state = first_state(m, &cursor->state, true);
    bt_walk_t w;
    uint32_t at;

    if (state == BT_MATCHER_FAILED) {
        return BT_NODE_NONE;
    }
    if (m->sets[state].mask != 0) {
        at = m->sets[state].mask - 1;
        m->slots[at].used = true;
        m->stats.mask_hits++;
        return at;
    }
    at = free_slot(m);
    w.m = m;
    w.state_p = &cursor->state;
    w.canonical = true;
    w.mask = &m->masks[(size_t)at * m->mask_words];
    w.need = UINT32_MAX; /* all */
    if (!make_mask(&w)) {
        return BT_NODE_NONE;
    }
    m->sets[w.root].mask = at + 1;
    m->slots[at] = (bt_mask_slot_t){
        .owner = w.root, .n = w.n_tokens, .farthest = w.farthest};
    return at;
}

static bool may_have_mask(const bt_matcher_t *m,
                          const bt_matcher_cursor_t *cursor)
{
    BT_ASSERT(cursor->epoch == m->epoch);
    return (cursor->epoch == m->epoch) && (cursor->state > BT_MATCHER_FAILED);
}

const uint64_t *bt_matcher_mask(bt_matcher_t *m, bt_matcher_cursor_t *cursor,
                                uint32_t *n_p)
{
    uint32_t slot;

    m->stats.masks++;
    if (!may_have_mask(m, cursor)) {
        return NULL;
    }
    slot = mask_slot(m, cursor);
    cursor->epoch = m->epoch;
    if (slot == BT_NODE_NONE) {
        cursor->state = BT_MATCHER_FAILED;
        return NULL;
    }
    if (m->slots[slot].n == 0) {
        return NULL;
    }
    *n_p = m->slots[slot].n;
    return &m->masks[(size_t)slot * m->mask_words];
}

/* Returns the mask of a cursor, if it is kept and no token leads further from
 * the end than @a need. Not all states are as far from it as the canonical ones
 * that stand for them. @return false: failed */
static bool find_near(bt_matcher_t *m, bt_matcher_cursor_t *cursor,
                      uint32_t need, uint32_t *slot_p)
{
    const uint32_t state = first_state(m, &cursor->state, true);

    *slot_p = BT_NODE_NONE;
    if (state == BT_MATCHER_FAILED) {
        return false;
    }
    if (!bt_matcher_is_alike_far(m, cursor->state, state)) {
        return true;
    }
    *slot_p = mask_slot(m, cursor);
    if (*slot_p == BT_NODE_NONE) {
        return false;
    }
    if (m->slots[*slot_p].farthest > need) {
        *slot_p = BT_NODE_NONE;
    }
    return true;
}

const uint64_t *bt_matcher_mask_within(bt_matcher_t *m,
                                       bt_matcher_cursor_t *cursor,
                                       uint32_t n_left, uint32_t *n_p)
{
    bt_walk_t w = {.m = m,
                   .state_p = &cursor->state,
                   .mask = m->near_mask,
                   .need = n_left};
    uint32_t slot;
    bool made;

    BT_ASSERT(m->distances != NULL);
    m->stats.masks++;
    if (!may_have_mask(m, cursor) || (m->distances == NULL)) {
        return NULL;
    }
    w.need = (n_left < BT_MATCHER_FAR) ? n_left : BT_MATCHER_FAR - 1;
    made = find_near(m, cursor, w.need, &slot);
    if (made && (slot == BT_NODE_NONE)) {
        made = make_mask(&w);
    } else if (made) {
        w.mask = &m->masks[(size_t)slot * m->mask_words];
        w.n_tokens = m->slots[slot].n;
    }
    cursor->epoch = m->epoch;
    if (!made) {
        cursor->state = BT_MATCHER_FAILED;
    }
    if (!made || (w.n_tokens == 0)) {
        return NULL;
    }
    *n_p = w.n_tokens;
    return w.mask;
}
