/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/matcher/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"

/*
 * Create and destroy
 */

/* Bytes whose edges are the same in each state are one class; only ranges are
 * found, whatever their edges are. */
static void find_classes(bt_matcher_t *m)
{
    bool begins[257] = {true};

    for (uint32_t s = 0; s < m->grammar->n_states; s++) {
        const bt_grammar_state_t *state = &m->grammar->states[s];

        for (uint32_t k = 0; k < state->n_byte_edges; k++) {
            const bt_grammar_edge_t *edge =
                &m->grammar->edges[state->first_edge + k];

            begins[edge->lo] = true;
            begins[edge->hi + 1] = true;
        }
    }
    for (uint32_t b = 0; b < 256; b++) {
        m->n_classes += begins[b] ? 1 : 0;
        m->class_of[b] = (uint16_t)m->n_classes;
    }
    m->row_size = m->n_classes + 2;
    if (m->counts) {
        m->row_size += m->n_classes / 4 + 1; /* a byte each, from 0 on */
    }
}

/* Within the longest token, a frame counts at most once for each byte, and once
 * for a call that has just begun. */
static void find_clamps(bt_matcher_t *m)
{
    const int64_t reach = (int64_t)m->trie->max_bytes + 2;
    const bt_grammar_t *grammar = m->grammar;

    for (uint32_t s = 0; s < grammar->n_states; s++) {
        const uint32_t r = grammar->states[s].rule;
        const bt_rule_bounds_t *bounds = &m->bounds->rules[r];
        bt_rule_clamp_t *c = &m->clamps[r]; /* of the greatest ranges, first */

        for (uint32_t i = 0; i < bounds->n_levels; i++) {
            const bt_count_range_t range =
                bounds->levels[i].counts[m->bounds->states[s].at];

            if (range.least == BT_GRAMMAR_NONE) {
                continue;
            }
            if (range.least > c->high) {
                c->high = range.least;
            }
            if ((range.most != BT_GRAMMAR_NO_LIMIT) && (range.most > c->low)) {
                c->low = range.most;
            }
        }
    }
    for (uint32_t r = 0; r < grammar->n_rules; r++) {
        const bt_grammar_rule_t *rule = &grammar->rules[r];
        bt_rule_clamp_t *c = &m->clamps[r];

        m->counts =
            m->counts || (rule->min > 0) || (rule->max != BT_GRAMMAR_NO_LIMIT);
        c->low = (int64_t)rule->min - (reach + c->low);
        c->high = (rule->max == BT_GRAMMAR_NO_LIMIT)
                      ? INT64_MAX
                      : (int64_t)rule->max - (reach + c->high);
        c->low = (c->high < c->low) ? c->high : c->low;
    }
}

static int compare_ranges(const void *a_p, const void *b_p)
{
    const bt_token_range_t *a = a_p, *b = b_p;

    return (a->first > b->first) - (a->first < b->first);
}

/* Makes a list of disjoint ranges of all tokens that edges take. */
static bool find_taken(bt_matcher_t *m)
{
    const bt_grammar_t *const g = m->grammar;
    uint32_t n = 0, n_merged = 0;

    for (uint32_t i = 0; i < g->n_edges; i++) {
        n += (g->edges[i].kind == BT_GRAMMAR_TAKES) ? 1 : 0;
    }
    m->taken = bt_calloc((size_t)n + 1, sizeof(*m->taken));
    if (m->taken == NULL) {
        return false;
    }
    n = 0;
    for (uint32_t i = 0; i < g->n_edges; i++) {
        if (g->edges[i].kind == BT_GRAMMAR_TAKES) {
            m->taken[n++] =
                (bt_token_range_t){g->edges[i].arg, g->edges[i].last};
        }
    }
    qsort(m->taken, n, sizeof(*m->taken), compare_ranges);
    for (uint32_t i = 0; i < n; i++) {
        bt_token_range_t *const last =
            (n_merged > 0) ? &m->taken[n_merged - 1] : NULL;

        if ((last == NULL) || (m->taken[i].first > last->last)) {
            m->taken[n_merged++] = m->taken[i];
        } else if (m->taken[i].last > last->last) {
            last->last = m->taken[i].last;
        }
    }
    m->n_taken = n_merged;
    return true;
}

/* True when some edge takes a token. */
static bool is_taken(const bt_matcher_t *m, uint32_t id)
{
    uint32_t lo = 0, hi = m->n_taken;

    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;

        if (m->taken[middle].last < id) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return (lo < m->n_taken) && (m->taken[lo].first <= id);
}

static bt_status_t analyze(bt_matcher_t *m)
{
    const size_t n_states = m->grammar->n_states;
    const size_t n_rules = m->grammar->n_rules;
    bt_status_t status = bt_grammar_bounds_create(m->grammar, &m->bounds);

    if (status != BT_OK) {
        return status;
    }
    m->ends = bt_calloc(n_states, sizeof(bool));
    m->plain = bt_calloc(n_states, sizeof(uint8_t));
    m->plain_chars = bt_calloc(n_states, sizeof(uint16_t));
    m->reads_plain = bt_calloc(n_states, sizeof(bool));
    m->plain_height = bt_calloc(n_rules, sizeof(uint32_t));
    m->plain_ends = bt_calloc(n_rules, sizeof(bool));
    m->clamps = bt_calloc(n_rules, sizeof(bt_rule_clamp_t));
    m->saved.frames =
        bt_calloc((size_t)BT_MATCHER_MAX_SET * BT_GRAMMAR_MAX_DEPTH,
                  sizeof(bt_saved_frame_t));
    if ((m->ends == NULL) || (m->plain == NULL) || (m->plain_chars == NULL) ||
        (m->reads_plain == NULL) || (m->plain_height == NULL) ||
        (m->plain_ends == NULL) || (m->clamps == NULL) ||
        (m->saved.frames == NULL) || !find_taken(m) ||
        !bt_matcher_find_plain(m)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t s = 0; s < n_states; s++) {
        m->ends[s] = bt_grammar_ends(m->grammar, s);
    }
    find_clamps(m);
    find_classes(m);
    return BT_OK;
}

/* Cuts @a n elements from the area. */
static void *cut(uint8_t **at_p, size_t n, size_t size)
{
    void *part = *at_p;

    *at_p += (n * size + 63) / 64 * 64;
    return part;
}

static uint32_t power_of_two_below(size_t n)
{
    uint32_t power = 1;

    while ((size_t)power * 2 <= n) {
        power *= 2;
    }
    return power;
}

/* Half of the memory is for masks, a quarter for rows, and an eighth each for
 * nodes and sets with their hash tables. */
static bt_status_t allocate(bt_matcher_t *m, size_t max_bytes)
{
    const size_t mask_bytes = ((size_t)m->trie->n_words + 1) * sizeof(uint64_t);
    const size_t row_bytes = (size_t)m->row_size * sizeof(uint32_t);
    const size_t part = max_bytes / 8 - 256; /* less what cut() rounds up */
    const size_t n_slots = part * 4 / (mask_bytes + sizeof(bt_mask_slot_t));
    uint8_t *at;

    if ((max_bytes < BT_MATCHER_MIN_BYTES) || (n_slots == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    /* Not zeroed: nothing is read before it is written, and memory that is
     * used again would be zeroed at some cost. */
    m->area = bt_realloc_array(NULL, max_bytes, 1);
    if (m->area == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    at = m->area;
    m->n_slots = (n_slots < UINT16_MAX) ? (uint32_t)n_slots : UINT16_MAX;
    m->mask_words = m->trie->n_words + 1;
    m->masks =
        cut(&at, (size_t)m->n_slots * m->mask_words, sizeof(m->masks[0]));
    m->slots = cut(&at, m->n_slots, sizeof(m->slots[0]));
    m->cap_rows = (uint32_t)(part * 2 / row_bytes) - 1;
    m->rows =
        cut(&at, ((size_t)m->cap_rows + 1) * m->row_size, sizeof(m->rows[0]));
    m->node_table.cap = power_of_two_below(part / 4 / sizeof(uint32_t));
    m->node_table.slots =
        cut(&at, m->node_table.cap, sizeof(m->node_table.slots[0]));
    m->cap_nodes = (uint32_t)(part * 3 / 4 / sizeof(m->nodes[0]));
    m->nodes = cut(&at, m->cap_nodes, sizeof(m->nodes[0]));
    m->set_table.cap = power_of_two_below(part / 4 / sizeof(uint32_t));
    m->set_table.slots =
        cut(&at, m->set_table.cap, sizeof(m->set_table.slots[0]));
    m->cap_sets =
        (uint32_t)(part * 3 / 8 / (sizeof(m->sets[0]) + sizeof(m->row_of[0])));
    m->sets = cut(&at, m->cap_sets, sizeof(m->sets[0]));
    m->row_of = cut(&at, m->cap_sets, sizeof(m->row_of[0]));
    m->cap_members = (uint32_t)(part * 3 / 8 / sizeof(m->members[0]));
    m->members = cut(&at, m->cap_members, sizeof(m->members[0]));
    BT_ASSERT(at <= m->area + max_bytes);
    /* A hash table never fills up. */
    BT_ASSERT(m->cap_nodes < m->node_table.cap);
    BT_ASSERT(m->cap_sets < m->set_table.cap);
    return BT_OK;
}

bt_status_t bt_matcher_create(const bt_matcher_config_t *config,
                              bt_matcher_t **matcher_p)
{
    bt_matcher_t *m = bt_calloc(1, sizeof(*m));
    bt_status_t status;

    if (m == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    m->grammar = config->grammar;
    m->trie = config->trie;
    m->max_depth = BT_GRAMMAR_MAX_DEPTH;
    m->max_mask_steps = config->max_mask_steps;
    status = analyze(m);
    if (status == BT_OK) {
        status = allocate(m, config->max_bytes);
    }
    if (status != BT_OK) {
        bt_matcher_destroy(m);
        return status;
    }
    bt_matcher_reset(m);
    *matcher_p = m;
    return BT_OK;
}

void bt_matcher_destroy(bt_matcher_t *m)
{
    if (m == NULL) {
        return;
    }
    bt_grammar_bounds_destroy(m->bounds);
    bt_free(m->ends);
    bt_free(m->plain);
    bt_free(m->plain_chars);
    bt_free(m->reads_plain);
    bt_free(m->plain_height);
    bt_free(m->plain_ends);
    bt_free(m->clamps);
    bt_free(m->saved.frames);
    bt_free(m->taken);
    bt_grammar_distances_destroy(m->distances);
    bt_free(m->plain_near);
    bt_free(m->plain_far);
    bt_free(m->plain_ways);
    bt_free(m->alike_far);
    bt_free(m->near_mask);
    bt_free(m->area);
    bt_free(m);
}

/*
 * Positions
 */

/* @return BT_NODE_NONE: full */
static uint32_t start_state(bt_matcher_t *m)
{
    const uint32_t start = m->grammar->rules[0].start;
    uint32_t node = BT_NODE_EMPTY;

    if ((m->max_depth == 0) ||
        !bt_grammar_can_end(m->bounds, start, 0, m->max_depth - 1)) {
        return BT_MATCHER_DEAD;
    }
    if (!m->ends[start]) {
        node = bt_matcher_node(m, start, 0, BT_NODE_EMPTY);
    }
    return (node == BT_NODE_NONE) ? node : bt_matcher_set(m, &node, 1);
}

bt_matcher_cursor_t bt_matcher_begin(bt_matcher_t *m)
{
    uint32_t state = (m->start != 0) ? m->start : start_state(m);

    if (state == BT_NODE_NONE) {
        (void)bt_matcher_rebase(m, BT_MATCHER_DEAD);
        state = start_state(m);
    }
    m->start = state;
    return (bt_matcher_cursor_t){.epoch = m->epoch, .state = state};
}

/* Stacks behind a token, which are few enough for a set, or one more. */
typedef struct stacks {
    uint32_t nodes[BT_MATCHER_MAX_SET + 1];
    uint32_t n;
} stacks_t;

static void add_stack(stacks_t *stacks, uint32_t node)
{
    for (uint32_t i = 0; i < stacks->n; i++) {
        if (stacks->nodes[i] == node) {
            return;
        }
    }
    if (stacks->n <= BT_MATCHER_MAX_SET) {
        stacks->nodes[stacks->n++] = node;
    }
}

/* Adds what is behind the edges of a frame that take a token.
 * @return false: full */
static bool take(bt_matcher_t *m, uint32_t node, uint32_t id, stacks_t *stacks)
{
    const bt_grammar_state_t *s;

    if (node == BT_NODE_EMPTY) {
        return true;
    }
    s = &m->grammar->states[m->nodes[node].state];
    for (uint32_t k = s->n_byte_edges; k < s->n_edges; k++) {
        const bt_grammar_edge_t *edge = &m->grammar->edges[s->first_edge + k];
        uint32_t next;

        if ((edge->kind != BT_GRAMMAR_TAKES) || (id < edge->arg) ||
            (id > edge->last)) {
            continue;
        }
        if (!bt_matcher_follow(m, node, edge->to, edge->counts, &next)) {
            return false;
        }
        if (next != BT_NODE_NONE) {
            add_stack(stacks, next);
        }
    }
    return true;
}

/* Reads a token by its id and by its bytes.
 * @return the state; BT_NODE_NONE: full, and nothing is lost */
static uint32_t read_both(bt_matcher_t *m, uint32_t state, uint32_t id)
{
    size_t n_bytes;
    const uint8_t *bytes = bt_token_trie_bytes(m->trie, id, &n_bytes);
    stacks_t stacks = {.n = 0};
    uint32_t n;
    const uint32_t *members = bt_matcher_members(m, state, &n);

    if (!bt_matcher_close(m, members, n)) {
        return BT_NODE_NONE;
    }
    if (m->overflow) {
        return BT_MATCHER_FAILED;
    }
    for (uint32_t i = 0; i < m->n_frames; i++) {
        if (!take(m, m->frames[i], id, &stacks)) {
            return BT_NODE_NONE;
        }
    }
    state = (n_bytes == 0) ? BT_MATCHER_DEAD : state;
    for (size_t i = 0; (i < n_bytes) && (state > BT_MATCHER_FAILED); i++) {
        if (!bt_matcher_is_expanded(m, state) && !bt_matcher_expand(m, state)) {
            return BT_NODE_NONE;
        }
        if ((m->sets[state].flags & BT_SET_OVERFLOW) != 0) {
            return BT_MATCHER_FAILED;
        }
        state = bt_matcher_row(m, state)[m->class_of[bytes[i]]];
    }
    if (state == BT_MATCHER_FAILED) {
        return state;
    }
    members = bt_matcher_members(m, state, &n);
    for (uint32_t i = 0; (state != BT_MATCHER_DEAD) && (i < n); i++) {
        add_stack(&stacks, members[i]);
    }
    return bt_matcher_set(m, stacks.nodes, stacks.n);
}

static uint32_t read_token(bt_matcher_t *m, uint32_t state, uint32_t id)
{
    size_t n;
    const uint8_t *bytes = bt_token_trie_bytes(m->trie, id, &n);
    uint32_t next;

    if ((state <= BT_MATCHER_FAILED) || bt_token_trie_is_end(m->trie, id)) {
        return state;
    }
    if (!is_taken(m, id)) {
        return (n == 0) ? BT_MATCHER_DEAD : bt_matcher_read(m, state, bytes, n);
    }
    next = read_both(m, state, id);
    if (next == BT_NODE_NONE) {
        state = bt_matcher_rebase(m, state);
        next = (state == BT_MATCHER_FAILED) ? state : read_both(m, state, id);
    }
    return (next == BT_NODE_NONE) ? BT_MATCHER_FAILED : next;
}

bool bt_matcher_move(bt_matcher_t *m, bt_matcher_cursor_t *cursor,
                     const uint32_t *tokens, uint32_t n)
{
    if ((cursor->epoch != m->epoch) || (cursor->n_tokens > n)) {
        *cursor = bt_matcher_begin(m);
    }
    while (cursor->n_tokens < n) {
        cursor->state = read_token(m, cursor->state, tokens[cursor->n_tokens]);
        cursor->n_tokens++;
    }
    cursor->epoch = m->epoch;
    return cursor->state > BT_MATCHER_FAILED;
}

bool bt_matcher_accepts(bt_matcher_t *m, uint32_t state)
{
    uint32_t n;
    const uint32_t *nodes;

    if (state <= BT_MATCHER_FAILED) {
        return false;
    }
    /* Rules that are called read at least one byte, so only ends of frames
     * count. */
    nodes = bt_matcher_members(m, state, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = nodes[i];

        while (node != BT_NODE_EMPTY) {
            const bt_stack_node_t *top = &m->nodes[node];
            const bt_grammar_state_t *s = &m->grammar->states[top->state];
            const bt_grammar_rule_t *rule = &m->grammar->rules[s->rule];

            if (!s->accepts || (top->count < rule->min) ||
                (top->count > rule->max)) {
                break;
            }
            node = top->below;
        }
        if (node == BT_NODE_EMPTY) {
            return true;
        }
    }
    return false;
}

/* Returns a state's canonical one, which is alike for the next byte and has its
 * row more often; BT_MATCHER_DEAD: full, over a limit, or dead. */
static uint32_t canonical_with_row(bt_matcher_t *m, uint32_t state)
{
    const uint32_t canonical = (state <= BT_MATCHER_FAILED)
                                   ? BT_NODE_NONE
                                   : bt_matcher_canonical(m, state);

    return ((canonical != BT_NODE_NONE) &&
            (bt_matcher_is_expanded(m, canonical) ||
             bt_matcher_expand(m, canonical)) &&
            ((m->sets[canonical].flags & BT_SET_OVERFLOW) == 0))
               ? canonical
               : BT_MATCHER_DEAD;
}

/* Finds the only byte that leads on. @return false: none, or several */
static bool only_byte(const bt_matcher_t *m, uint32_t state, uint8_t *byte_p,
                      uint32_t *next_p)
{
    const uint32_t *row = bt_matcher_row(m, state);
    uint32_t n = 0;

    for (uint32_t b = 0; (b < 256) && (n < 2); b++) {
        if (row[m->class_of[b]] != BT_MATCHER_DEAD) {
            *byte_p = (uint8_t)b;
            *next_p = row[m->class_of[b]];
            n++;
        }
    }
    return n == 1;
}

size_t bt_matcher_forced(bt_matcher_t *m, uint32_t state, uint8_t *bytes,
                         size_t cap)
{
    size_t n = 0;

    while ((n < cap) && !bt_matcher_accepts(m, state)) {
        const uint32_t canonical = canonical_with_row(m, state);
        uint32_t next;

        if ((canonical == BT_MATCHER_DEAD) ||
            ((m->sets[canonical].flags & BT_SET_TAKES) != 0) ||
            !only_byte(m, canonical, &bytes[n], &next)) {
            break;
        }
        n++;
        if (canonical == state) {
            state = next;
        } else if (!bt_matcher_is_expanded(m, state) &&
                   !bt_matcher_expand(m, state)) {
            break;
        } else {
            state = ((m->sets[state].flags & BT_SET_OVERFLOW) != 0)
                        ? BT_MATCHER_FAILED
                        : bt_matcher_row(m, state)[m->class_of[bytes[n - 1]]];
        }
    }
    return n;
}

bool bt_matcher_reads_bytes(bt_matcher_t *m, uint32_t state)
{
    const uint32_t canonical = canonical_with_row(m, state);
    const uint32_t *row;

    if (canonical == BT_MATCHER_DEAD) {
        return false;
    }
    row = bt_matcher_row(m, canonical);
    for (uint32_t b = 0; b < 256; b++) {
        if (row[m->class_of[b]] != BT_MATCHER_DEAD) {
            return true;
        }
    }
    return false;
}

uint32_t bt_matcher_epoch(const bt_matcher_t *m)
{
    return m->epoch;
}

const bt_matcher_stats_t *bt_matcher_stats(const bt_matcher_t *m)
{
    return &m->stats;
}
