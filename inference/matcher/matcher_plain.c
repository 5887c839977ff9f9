/* SPDX-License-Identifier: Apache-2.0 */
/* Which states read plain text, whatever it is: open strings. Plain tokens of
 * so many characters are then in the mask without a walk.
 *
 * A state reads k + 1 plain characters when each character leads to a state
 * that reads k: the greatest solution over pairs of a state and a position in a
 * character. It is found in the loaded grammar, whatever the program said. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"

/* Edges looked at; beyond it no state is said to read plain text, and masks are
 * walks. */
#define MAX_WORK (1u << 21)

/* Position in a character of UTF-8: what may follow (RFC 3629, section 4). */
typedef enum position {
    BETWEEN,
    LAST,      /* one more byte */
    LAST_2,    /* two */
    LAST_3,    /* three */
    BEHIND_E0, /* not what would be shorter in another form */
    BEHIND_E2,
    BEHIND_E2_80, /* not U+2028 and U+2029, which are not plain */
    BEHIND_ED,    /* not surrogates */
    BEHIND_F0,    /* not what would be shorter in another form */
    BEHIND_F4,    /* not above U+10FFFF */
    N_POSITIONS,
} position_t;

typedef struct move {
    uint8_t from, lo, hi, to;
} move_t;

/* By `from`. */
static const move_t moves[] = {
    {BETWEEN, 0x20, 0x21, BETWEEN},      {BETWEEN, 0x23, 0x5b, BETWEEN},
    {BETWEEN, 0x5d, 0x7e, BETWEEN},      {BETWEEN, 0xc2, 0xdf, LAST},
    {BETWEEN, 0xe0, 0xe0, BEHIND_E0},    {BETWEEN, 0xe1, 0xe1, LAST_2},
    {BETWEEN, 0xe2, 0xe2, BEHIND_E2},    {BETWEEN, 0xe3, 0xec, LAST_2},
    {BETWEEN, 0xed, 0xed, BEHIND_ED},    {BETWEEN, 0xee, 0xef, LAST_2},
    {BETWEEN, 0xf0, 0xf0, BEHIND_F0},    {BETWEEN, 0xf1, 0xf3, LAST_3},
    {BETWEEN, 0xf4, 0xf4, BEHIND_F4},    {LAST, 0x80, 0xbf, BETWEEN},
    {LAST_2, 0x80, 0xbf, LAST},          {LAST_3, 0x80, 0xbf, LAST_2},
    {BEHIND_E0, 0xa0, 0xbf, LAST},       {BEHIND_E2, 0x80, 0x80, BEHIND_E2_80},
    {BEHIND_E2, 0x81, 0xbf, LAST},       {BEHIND_E2_80, 0x80, 0xa7, BETWEEN},
    {BEHIND_E2_80, 0xaa, 0xbf, BETWEEN}, {BEHIND_ED, 0x80, 0x9f, LAST},
    {BEHIND_F0, 0x90, 0xbf, LAST_2},     {BEHIND_F4, 0x80, 0x8f, LAST_2},
};

/* First move of each position. */
static const uint8_t first_move[N_POSITIONS + 1] = {
    0, 13, 14, 15, 16, 17, 19, 21, 22, 23, BT_ARRAY_LEN(moves)};

/* Positions where the character has counted already follow those where it has
 * not. */
#define N_COLUMNS (2u * N_POSITIONS)
#define ANY       UINT16_MAX /* characters: any number */

typedef struct search {
    const bt_matcher_t *m;
    bool counted;    /* each character counts once, up to the rule's max */
    uint16_t *chars; /* [n_states][N_COLUMNS]: plain characters that can be read
                        with the one begun, as far as is known */
    bool *even;      /* [n_states][N_POSITIONS]: and after them none */
    uint32_t work;
} search_t;

/* True when a state behind a character can end with each count that a stack may
 * have there, so that only the rule's max bounds what is read. States inside of
 * the character can then end as well: they lead to that state. */
static bool ends_whatever_counts(const search_t *s, uint32_t state)
{
    const bt_grammar_rule_t *rule =
        &s->m->grammar->rules[s->m->grammar->states[state].rule];
    const bt_count_range_t counts = s->m->bounds->states[state].counts;

    return (counts.least != BT_GRAMMAR_NONE) &&
           ((rule->min == 0) || (counts.most == BT_GRAMMAR_NO_LIMIT)) &&
           ((rule->max == BT_GRAMMAR_NO_LIMIT) || (counts.least == 0));
}

/* Characters that can be read along an edge, with the one begun. */
static uint16_t chars_along(const search_t *s, uint32_t state,
                            const bt_byte_edge_t *edge, position_t to,
                            bool counted)
{
    const bt_grammar_t *grammar = s->m->grammar;
    const uint16_t *chars = &s->chars[(size_t)edge->to * N_COLUMNS];

    if (s->counted) {
        if (edge->counts && counted) {
            return 0;
        }
        counted = counted || edge->counts;
    } else if (edge->counts &&
               (grammar->rules[grammar->states[state].rule].max !=
                BT_GRAMMAR_NO_LIMIT)) {
        return 0;
    }
    if (to != BETWEEN) {
        return chars[to + (counted ? N_POSITIONS : 0)];
    }
    if (!ends_whatever_counts(s, edge->to) || (counted != s->counted)) {
        return 0;
    }
    return (uint16_t)((chars[to] < ANY - 1) ? chars[to] + 1 : ANY);
}

/* Least number of characters along the edges for some bytes; 0: not all bytes
 * have an edge. */
static uint16_t chars_of_move(const search_t *s, uint32_t state,
                              const bt_byte_edge_t *edges, uint32_t n,
                              const move_t *move, bool counted)
{
    uint32_t at = move->lo;
    uint16_t least = ANY;

    for (uint32_t k = 0; (k < n) && (at <= move->hi); k++) {
        uint16_t chars;

        if (edges[k].hi < at) {
            continue;
        }
        if (edges[k].lo > at) {
            return 0;
        }
        chars = chars_along(s, state, &edges[k], move->to, counted);
        least = (chars < least) ? chars : least;
        at = edges[k].hi + 1u;
    }
    return (at > move->hi) ? least : 0;
}

/* Columns at which a state may read on, by what bytes it has edges for. */
static uint32_t first_columns(const search_t *s, uint32_t state)
{
    const bt_grammar_state_t *st = &s->m->grammar->states[state];
    const uint32_t others = (1u << N_POSITIONS) - 1 - (1u << BETWEEN);
    uint32_t columns = 0;
    uint32_t n_bytes = 0;

    if (s->counted &&
        ((s->m->grammar->rules[st->rule].max == BT_GRAMMAR_NO_LIMIT) ||
         (st->n_edges > st->n_byte_edges))) {
        return 0;
    }
    for (uint32_t i = 0; i < st->n_byte_edges; i++) {
        const bt_grammar_edge_t *edge =
            &s->m->grammar->edges[st->first_edge + i];

        n_bytes += edge->hi - edge->lo + 1u;
        columns |= ((edge->lo <= ' ') && (edge->hi >= ' ')) ? 1u << BETWEEN : 0;
        columns |= ((edge->lo <= 0xbf) && (edge->hi >= 0x80)) ? others : 0;
    }
    if (st->otherwise != BT_GRAMMAR_NONE) {
        columns = others | 1u << BETWEEN;
    } else if (n_bytes < 0x10) {
        return 0; /* no position has fewer */
    }
    return s->counted ? columns | (columns & others) << N_POSITIONS : columns;
}

/* Looks at the edges of a state again. @return true: it reads less than was
 * known */
static bool lower(search_t *s, uint32_t state)
{
    uint16_t *chars = &s->chars[(size_t)state * N_COLUMNS];
    bt_byte_edge_t edges[256];
    uint32_t n = 0;
    bool changed = false;

    for (uint32_t column = 0; column < N_COLUMNS; column++) {
        const uint32_t position = column % N_POSITIONS;
        uint16_t least = ANY;

        if (chars[column] == 0) {
            continue;
        }
        n = (n == 0) ? bt_grammar_byte_edges(s->m->grammar, state, edges) : n;
        for (uint32_t i = first_move[position];
             (i < first_move[position + 1]) && (least > 0); i++) {
            const uint16_t here = chars_of_move(s, state, edges, n, &moves[i],
                                                column >= N_POSITIONS);

            least = (here < least) ? here : least;
            s->work += n + 1;
        }
        /* Characters that count are as many as the rule's max says. */
        least = (s->counted && (least < ANY)) ? 0 : least;
        if (least < chars[column]) {
            chars[column] = least;
            changed = true;
        }
    }
    return changed;
}

/* States are looked at from the last one on: most edges lead forward.
 * @return false: too much work */
static bool search(search_t *s)
{
    const uint32_t n = s->m->grammar->n_states;
    bool changed = true;

    s->work = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t columns = first_columns(s, i);

        for (uint32_t column = 0; column < N_COLUMNS; column++) {
            s->chars[(size_t)i * N_COLUMNS + column] =
                ((columns >> column & 1) != 0) ? ANY : 0;
        }
    }
    while (changed && (s->work <= MAX_WORK)) {
        changed = false;
        for (uint32_t i = n; i > 0; i--) {
            changed = lower(s, i - 1) || changed;
        }
    }
    return !changed;
}

/* True when each plain character leads to a state that reads one fewer, and the
 * last of them reads none. */
static bool is_even(const search_t *s, uint32_t state, uint32_t position,
                    const bt_byte_edge_t *edges, uint32_t n)
{
    const uint16_t chars = s->chars[(size_t)state * N_COLUMNS + position];

    if (chars == 0) {
        return (position == BETWEEN) && !s->m->reads_plain[state];
    }
    for (uint32_t i = first_move[position]; i < first_move[position + 1]; i++) {
        const position_t to = moves[i].to;

        for (uint32_t k = 0; k < n; k++) {
            if ((edges[k].lo <= moves[i].hi) && (edges[k].hi >= moves[i].lo) &&
                ((chars_along(s, state, &edges[k], to, false) != chars) ||
                 !s->even[(size_t)edges[k].to * N_POSITIONS + to])) {
                return false;
            }
        }
    }
    return true;
}

/* Looks at a state again. @return true: some position of it is not even */
static bool find_uneven(search_t *s, uint32_t state)
{
    const uint16_t *chars = &s->chars[(size_t)state * N_COLUMNS];
    bool *even = &s->even[(size_t)state * N_POSITIONS];
    bt_byte_edge_t edges[256];
    uint32_t n = 0;
    bool changed = false;

    for (uint32_t position = 0; position < N_POSITIONS; position++) {
        if (!even[position]) {
            continue;
        }
        if ((n == 0) && (chars[position] > 0)) {
            n = bt_grammar_byte_edges(s->m->grammar, state, edges);
        }
        s->work += n + 1;
        if ((chars[position] == ANY) ||
            !is_even(s, state, position, edges, n)) {
            even[position] = false;
            changed = true;
        }
    }
    return changed;
}

static bool search_even(search_t *s)
{
    const uint32_t n = s->m->grammar->n_states;
    bool changed = true;

    memset(s->even, true, (size_t)n * N_POSITIONS);
    s->work = 0;
    while (changed && (s->work <= MAX_WORK)) {
        changed = false;
        for (uint32_t i = n; i > 0; i--) {
            changed = find_uneven(s, i - 1) || changed;
        }
    }
    return !changed;
}

static bool is_plain_edge(const bt_byte_edge_t *edge)
{
    for (uint32_t k = 0; k < BT_ARRAY_LEN(moves); k++) {
        if ((edge->lo <= moves[k].hi) && (edge->hi >= moves[k].lo)) {
            return true;
        }
    }
    return false;
}

/* Notes of a state that reads plain text, or is inside of a character, how high
 * it is, and whether its rule can end before more plain text. */
static void note_rule(bt_matcher_t *m, uint32_t state)
{
    const uint32_t rule = m->grammar->states[state].rule;
    bt_byte_edge_t edges[256];
    const uint32_t n = bt_grammar_byte_edges(m->grammar, state, edges);

    if (m->bounds->states[state].height > m->plain_height[rule]) {
        m->plain_height[rule] = m->bounds->states[state].height;
    }
    if (m->grammar->states[state].accepts) {
        m->plain_ends[rule] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t height = m->bounds->states[edges[i].to].height;

        if (is_plain_edge(&edges[i])) {
            m->plain_ends[rule] =
                m->plain_ends[rule] || m->grammar->states[edges[i].to].accepts;
            m->plain_height[rule] = (height > m->plain_height[rule])
                                        ? height
                                        : m->plain_height[rule];
        }
    }
}

static void note_plain(bt_matcher_t *m, const search_t *s, bool even)
{
    for (uint32_t i = 0; i < m->grammar->n_states; i++) {
        const uint16_t *chars = &s->chars[(size_t)i * N_COLUMNS];
        bool any = false;

        for (uint32_t column = 0; column < N_COLUMNS; column++) {
            any = any || (chars[column] > 0);
        }
        if (any) {
            note_rule(m, i);
        }
        if ((chars[BETWEEN] == 0) || (m->plain[i] != BT_PLAIN_NONE)) {
            continue;
        }
        m->plain_chars[i] = chars[BETWEEN];
        m->plain[i] = s->counted                ? BT_PLAIN_COUNTED
                      : (chars[BETWEEN] == ANY) ? BT_PLAIN_ANY
                      : (even && s->even[(size_t)i * N_POSITIONS])
                          ? BT_PLAIN_EXACT
                          : BT_PLAIN_AT_LEAST;
    }
}

bool bt_matcher_find_plain(bt_matcher_t *m)
{
    const size_t n_states = m->grammar->n_states;
    search_t s = {.m = m};

    s.chars = bt_calloc(n_states * N_COLUMNS, sizeof(uint16_t));
    s.even = bt_calloc(n_states * N_POSITIONS, sizeof(bool));
    if ((s.chars == NULL) || (s.even == NULL)) {
        bt_free(s.chars);
        bt_free(s.even);
        return false;
    }
    for (uint32_t i = 0; i < n_states; i++) {
        bt_byte_edge_t edges[256];
        const uint32_t n = bt_grammar_byte_edges(m->grammar, i, edges);

        for (uint32_t k = 0; (k < n) && !m->reads_plain[i]; k++) {
            m->reads_plain[i] = is_plain_edge(&edges[k]);
        }
    }
    s.counted = true;
    if (search(&s)) {
        note_plain(m, &s, false);
    }
    s.counted = false;
    if (search(&s)) {
        note_plain(m, &s, search_even(&s));
    }
    bt_free(s.chars);
    bt_free(s.even);
    return true;
}

/* Ways from a state to the end of its rule, whatever its count is, if that is
 * not below the rule's min. */
static void add_ways(bt_matcher_t *m, uint32_t state)
{
    const uint32_t rule = m->grammar->states[state].rule;
    const bt_way_t *ways[] = {&m->distances->shortest[state],
                              &m->distances->fewest[state]};
    const bool bounded = (m->grammar->rules[rule].min > 0) ||
                         (m->grammar->rules[rule].max != BT_GRAMMAR_NO_LIMIT);

    for (uint32_t i = 0; i < (bounded ? 2u : 1u); i++) {
        const uint32_t far = (ways[i]->bytes == BT_DISTANCE_NONE)
                                 ? BT_MATCHER_FAR
                                 : ways[i]->bytes;

        m->plain_far[state] =
            (far > m->plain_far[state]) ? far : m->plain_far[state];
        m->plain_near[state] =
            (far < m->plain_near[state]) ? far : m->plain_near[state];
        m->plain_ways[rule] = (ways[i]->height > m->plain_ways[rule])
                                  ? ways[i]->height
                                  : m->plain_ways[rule];
    }
}

/* Takes over what is known of states that plain text leads to.
 * @return true: something new */
static bool spread(bt_matcher_t *m, uint32_t state, uint32_t *work_p)
{
    const uint32_t near = m->plain_near[state];
    const uint32_t far = m->plain_far[state];
    bt_byte_edge_t edges[256];
    const uint32_t n = bt_grammar_byte_edges(m->grammar, state, edges);

    *work_p += n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t to = edges[i].to;

        if (!is_plain_edge(&edges[i])) {
            continue;
        }
        m->plain_far[state] = (m->plain_far[to] > m->plain_far[state])
                                  ? m->plain_far[to]
                                  : m->plain_far[state];
        m->plain_near[state] = (m->plain_near[to] < m->plain_near[state])
                                   ? m->plain_near[to]
                                   : m->plain_near[state];
    }
    return (near != m->plain_near[state]) || (far != m->plain_far[state]);
}

void bt_matcher_find_plain_distances(bt_matcher_t *m)
{
    const uint32_t n = m->grammar->n_states;
    uint32_t work = 0;
    bool changed = true;

    for (uint32_t i = 0; i < n; i++) {
        m->plain_near[i] = BT_MATCHER_FAR;
        m->plain_far[i] = 0;
        add_ways(m, i);
    }
    while (changed && (work <= MAX_WORK)) {
        changed = false;
        for (uint32_t i = n; i > 0; i--) {
            if (m->reads_plain[i - 1]) {
                changed = spread(m, i - 1, &work) || changed;
            }
        }
    }
    for (uint32_t i = 0; changed && (i < n); i++) { /* too much work */
        m->plain_near[i] = 0;
        m->plain_far[i] = BT_MATCHER_FAR;
    }
}
