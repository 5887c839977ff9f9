/* SPDX-License-Identifier: Apache-2.0 */
/* Minimization of a draft, in three steps:
 *
 *     trim      drop states that cannot reach acceptance
 *     finite    states without a way into a cycle, from the last ones backward:
 *               states with equal edges are one class. Linear.
 *     refine    the others: partition refinement. A block is a splitter at
 *               most log(n) times, since of the parts of a block that was a
 *               splitter the largest need not be one again. A splitter tells
 *               states apart by the set of symbols that lead into it.
 *
 * A finite state and one of the others are never equal: the first has finitely
 * many texts.
 *
 * Source: A. Valmari, P. Lehtinen, "Efficient minimization of DFAs with partial
 * transition functions", STACS 2008; D. Revuz, "Minimisation of acyclic
 * deterministic automata in linear time", 1992. */
#include "common/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "common/grammar/automaton_priv.h"

#define NONE   BT_DFA_NONE
#define PLACED 0x80000000u /* of a count that has become a place */

/* Edges of a state, those that continue one another in one, so that equal
 * states have equal lists. */
typedef struct signature {
    uint64_t hash;
    uint32_t first, n; /* in `lists` */
    uint32_t kind;     /* signatures of several kinds are never equal */
    uint32_t state;    /* that it is of */
} signature_t;

/* States of the refinement, ordered so that each block is a range. */
typedef struct blocks {
    uint32_t *members; /* states */
    uint32_t *at;      /* of a state in members */
    uint32_t *of;      /* block of a state; NONE: not refined */
    uint32_t *begin, *end;
    uint32_t n;
    uint32_t *splitters; /* blocks that are still to be used, a stack */
    uint32_t n_splitters;
    bool *is_splitter;
} blocks_t;

typedef struct minimizer {
    const bt_dfa_draft_t *draft;
    bt_grammar_compiler_t *c; /* scratch */
    uint32_t n;               /* states of the draft */
    uint32_t *into_first;     /* n + 1; ranges of into */
    uint32_t *into;           /* edges by target */
    uint32_t *source;         /* state of an edge */
    bool *live;
    uint32_t *queue;
    uint32_t *class; /* of a state; NONE: not known */
    uint32_t n_classes;
    bt_dfa_edge_t *lists; /* of signatures */
    uint32_t n_lists, cap_lists;
    signature_t *signatures; /* by class */
    uint32_t cap_signatures;
    uint32_t *table; /* class, + 1; 0: free */
    uint32_t table_mask;
    blocks_t blocks;
} minimizer_t;

/* ---- trim ---- */

/* Lists the edges by target. */
static bool reverse_edges(minimizer_t *m)
{
    const bt_dfa_draft_t *draft = m->draft;

    m->into_first = bt_grammar_alloc(m->c, m->n + 2u, sizeof(*m->into_first));
    m->into = bt_grammar_alloc(m->c, draft->n_edges, sizeof(*m->into));
    m->source = bt_grammar_alloc(m->c, draft->n_edges, sizeof(*m->source));
    if (!bt_grammar_spend(m->c, draft->n_edges)) {
        return false;
    }
    /* into_first[t + 2] counts, then [t + 1] is where the next edge goes. */
    for (uint32_t e = 0; e < draft->n_edges; e++) {
        m->into_first[draft->edges[e].to + 2]++;
    }
    for (uint32_t t = 2; t < m->n + 2; t++) {
        m->into_first[t] += m->into_first[t - 1];
    }
    for (uint32_t s = 0; s < m->n; s++) {
        for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
            m->source[e] = s;
            m->into[m->into_first[draft->edges[e].to + 1]++] = e;
        }
    }
    return true;
}

/* Marks the states from which acceptance can be reached. */
static bool find_live(minimizer_t *m)
{
    uint32_t n_queue = 0;

    m->live = bt_grammar_alloc(m->c, m->n, sizeof(*m->live));
    m->queue = bt_grammar_alloc(m->c, m->n, sizeof(*m->queue));
    if (!bt_grammar_spend(m->c, m->draft->n_edges)) {
        return false;
    }
    for (uint32_t s = 0; s < m->n; s++) {
        if (m->draft->accepts[s]) {
            m->live[s] = true;
            m->queue[n_queue++] = s;
        }
    }
    for (uint32_t i = 0; i < n_queue; i++) {
        const uint32_t to = m->queue[i];

        for (uint32_t j = m->into_first[to]; j < m->into_first[to + 1]; j++) {
            const uint32_t from = m->source[m->into[j]];

            if (!m->live[from]) {
                m->live[from] = true;
                m->queue[n_queue++] = from;
            }
        }
    }
    return true;
}

/* ---- signatures ---- */

/* Appends an edge to a list; one with its neighbour where that continues it. */
static bool list_edge(minimizer_t *m, uint32_t first, uint32_t lo, uint32_t hi,
                      uint32_t to)
{
    if (m->n_lists > first) {
        bt_dfa_edge_t *last = &m->lists[m->n_lists - 1];

        if ((last->to == to) && (last->hi + 1u == lo)) {
            last->hi = hi;
            return true;
        }
    }
    if (!bt_grammar_grow(m->c, &m->lists, &m->cap_lists, m->n_lists + 1,
                         sizeof(*m->lists))) {
        return false;
    }
    m->lists[m->n_lists++] = (bt_dfa_edge_t){.lo = lo, .hi = hi, .to = to};
    return true;
}

static uint64_t hash_signature(const minimizer_t *m, const signature_t *s)
{
    uint64_t hash = bt_automaton_mix(1, s->kind);

    for (uint32_t i = s->first; i < s->first + s->n; i++) {
        const bt_dfa_edge_t *edge = &m->lists[i];

        hash = bt_automaton_mix(hash, (uint64_t)edge->lo << 32 | edge->hi);
        hash = bt_automaton_mix(hash, edge->to);
    }
    return hash;
}

/* Orders by kind; equal signatures are 0. */
static int compare_signatures(const void *a_ptr, const void *b_ptr, void *ctx)
{
    const signature_t *a = a_ptr, *b = b_ptr;
    const minimizer_t *m = ctx;

    if (a->kind != b->kind) {
        return (a->kind < b->kind) ? -1 : 1;
    }
    if (a->hash != b->hash) {
        return (a->hash < b->hash) ? -1 : 1;
    }
    if (a->n != b->n) {
        return (a->n < b->n) ? -1 : 1;
    }
    return (a->n == 0) ? 0
                       : memcmp(&m->lists[a->first], &m->lists[b->first],
                                a->n * sizeof(*m->lists));
}

/* Returns the class of the states that accept as s does, are finite as it is,
 * and have its edges into the classes that are known; NONE on failure. */
static uint32_t class_of(minimizer_t *m, uint32_t s, bool is_finite)
{
    const bt_dfa_draft_t *draft = m->draft;
    const uint32_t kind = (draft->accepts[s] ? 1u : 0) | (is_finite ? 2u : 0);
    signature_t signature = {.first = m->n_lists, .kind = kind};
    uint32_t slot;

    if (!bt_grammar_spend(m->c, draft->first[s + 1] - draft->first[s] + 1)) {
        return NONE;
    }
    for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
        const uint32_t to = m->class[draft->edges[e].to];

        if ((to != NONE) && !list_edge(m, signature.first, draft->edges[e].lo,
                                       draft->edges[e].hi, to)) {
            return NONE;
        }
    }
    signature.n = m->n_lists - signature.first;
    signature.hash = hash_signature(m, &signature);
    slot = (uint32_t)signature.hash & m->table_mask;
    while (m->table[slot] != 0) {
        const uint32_t class = m->table[slot] - 1;

        if (compare_signatures(&m->signatures[class], &signature, m) == 0) {
            m->n_lists = signature.first;
            return class;
        }
        slot = (slot + 1) & m->table_mask;
    }
    if (!bt_grammar_grow(m->c, &m->signatures, &m->cap_signatures,
                         m->n_classes + 1, sizeof(*m->signatures))) {
        return NONE;
    }
    m->signatures[m->n_classes++] = signature;
    m->table[slot] = m->n_classes;
    return m->n_classes - 1;
}

/* ---- finite ---- */

static bool create_classes(minimizer_t *m)
{
    uint32_t n_table = 16;

    while (n_table < m->n * 2) {
        n_table *= 2;
    }
    m->table_mask = n_table - 1;
    m->table = bt_grammar_alloc(m->c, n_table, sizeof(*m->table));
    m->class = bt_grammar_alloc(m->c, m->n, sizeof(*m->class));
    if (!bt_grammar_ok(m->c)) {
        return false;
    }
    memset(m->class, 0xFF, m->n * sizeof(*m->class)); /* NONE */
    return true;
}

/* Gives a class to each live state without a way into a cycle. */
static bool classify_finite(minimizer_t *m)
{
    const bt_dfa_draft_t *draft = m->draft;
    uint32_t *n_unknown = /* edges to live states without a class */
        bt_grammar_alloc(m->c, m->n, sizeof(*n_unknown));
    uint32_t n_queue = 0;

    if ((n_unknown == NULL) || !bt_grammar_spend(m->c, draft->n_edges)) {
        return false;
    }
    for (uint32_t s = 0; s < m->n; s++) {
        for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
            n_unknown[s] += m->live[draft->edges[e].to];
        }
        if (m->live[s] && (n_unknown[s] == 0)) {
            m->queue[n_queue++] = s;
        }
    }
    for (uint32_t i = 0; i < n_queue; i++) {
        const uint32_t to = m->queue[i];

        m->class[to] = class_of(m, to, true);
        if (m->class[to] == NONE) {
            return false;
        }
        for (uint32_t j = m->into_first[to]; j < m->into_first[to + 1]; j++) {
            const uint32_t from = m->source[m->into[j]];

            n_unknown[from]--;
            if (n_unknown[from] == 0) {
                m->queue[n_queue++] = from;
            }
        }
    }
    return true;
}

/* ---- refine ---- */

static void push_splitter(blocks_t *blocks, uint32_t block)
{
    blocks->is_splitter[block] = true;
    blocks->splitters[blocks->n_splitters++] = block;
}

/* Puts the live states without a class into blocks by what they accept and
 * their edges into finite states. */
static bool create_blocks(minimizer_t *m)
{
    const uint32_t n_finite = m->n_classes;
    blocks_t *blocks = &m->blocks;
    uint32_t n_members = 0;

    blocks->of = bt_grammar_alloc(m->c, m->n, sizeof(*blocks->of));
    blocks->at = bt_grammar_alloc(m->c, m->n, sizeof(*blocks->at));
    blocks->members = bt_grammar_alloc(m->c, m->n, sizeof(*blocks->members));
    blocks->begin = bt_grammar_alloc(m->c, m->n, sizeof(*blocks->begin));
    blocks->end = bt_grammar_alloc(m->c, m->n, sizeof(*blocks->end));
    blocks->splitters =
        bt_grammar_alloc(m->c, m->n, sizeof(*blocks->splitters));
    blocks->is_splitter =
        bt_grammar_alloc(m->c, m->n, sizeof(*blocks->is_splitter));
    if (!bt_grammar_ok(m->c)) {
        return false;
    }
    for (uint32_t s = 0; s < m->n; s++) {
        blocks->of[s] = NONE;
        if (m->live[s] && (m->class[s] == NONE)) {
            const uint32_t class = class_of(m, s, false);

            if (class == NONE) {
                return false;
            }
            blocks->of[s] = class - n_finite;
            blocks->end[class - n_finite]++; /* counts */
        }
    }
    blocks->n = m->n_classes - n_finite;
    for (uint32_t b = 0; b < blocks->n; b++) {
        blocks->begin[b] = n_members;
        n_members += blocks->end[b];
        blocks->end[b] = blocks->begin[b];
        push_splitter(blocks, b);
    }
    for (uint32_t s = 0; s < m->n; s++) {
        if (blocks->of[s] != NONE) {
            blocks->at[s] = blocks->end[blocks->of[s]]++;
            blocks->members[blocks->at[s]] = s;
        }
    }
    return true;
}

/* Edges into a splitter, and the signatures that their states have by them. */
typedef struct split {
    uint32_t *edges;
    uint32_t n_edges, cap_edges;
    signature_t *signatures; /* kind: block of the state */
    uint32_t n_signatures, cap_signatures;
    uint32_t *order; /* signatures by block; before, edges while they are
                        sorted */
    uint32_t cap_order;
    uint32_t *at; /* [states] of a block in `order`; all 0 between */
} split_t;

static bool may_split(const blocks_t *blocks, uint32_t block)
{
    return blocks->end[block] - blocks->begin[block] > 1;
}

/* Sorts the edges by number: a byte after the other, from the last one. */
static bool sort_edges(minimizer_t *m, split_t *split)
{
    if (!bt_grammar_grow(m->c, &split->order, &split->cap_order, split->n_edges,
                         sizeof(*split->order))) {
        return false;
    }
    for (uint32_t shift = 0;
         (shift < 32) && ((uint64_t)m->draft->n_edges >> shift > 0);
         shift += 8) {
        uint32_t at[257] = {0};
        uint32_t *swap = split->edges;
        uint32_t cap;

        for (uint32_t i = 0; i < split->n_edges; i++) {
            at[(split->edges[i] >> shift & 0xFF) + 1]++;
        }
        for (uint32_t i = 1; i < 256; i++) {
            at[i] += at[i - 1];
        }
        for (uint32_t i = 0; i < split->n_edges; i++) {
            const uint32_t edge = split->edges[i];

            split->order[at[edge >> shift & 0xFF]++] = edge;
        }
        split->edges = split->order;
        split->order = swap;
        cap = split->cap_edges;
        split->cap_edges = split->cap_order;
        split->cap_order = cap;
    }
    return true;
}

/* Puts the edges in order. False: there are many, and they are not. */
static bool insert_edges(split_t *split)
{
    const bool few = split->n_edges <= 48;

    for (uint32_t i = 1; i < split->n_edges; i++) {
        const uint32_t edge = split->edges[i];
        uint32_t at = i;

        if (!few && (split->edges[at - 1] > edge)) {
            return false;
        }
        while ((at > 0) && (split->edges[at - 1] > edge)) {
            split->edges[at] = split->edges[at - 1];
            at--;
        }
        split->edges[at] = edge;
    }
    return true;
}

/* Lists the edges into a splitter from states of blocks that may be split, in
 * the order of state and symbol, which is that of their numbers. */
static bool gather_edges(minimizer_t *m, split_t *split, uint32_t block)
{
    const blocks_t *blocks = &m->blocks;

    split->n_edges = 0;
    for (uint32_t i = blocks->begin[block]; i < blocks->end[block]; i++) {
        const uint32_t to = blocks->members[i];
        const uint32_t n = m->into_first[to + 1] - m->into_first[to];

        if (!bt_grammar_spend(m->c, 2u * n + 1) ||
            !bt_grammar_grow(m->c, &split->edges, &split->cap_edges,
                             split->n_edges + n, sizeof(*split->edges))) {
            return false;
        }
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t edge = m->into[m->into_first[to] + j];

            if (may_split(blocks, blocks->of[m->source[edge]])) {
                split->edges[split->n_edges++] = edge;
            }
        }
    }
    return insert_edges(split) || sort_edges(m, split);
}

/* Orders the signatures by block. */
static bool order_signatures(minimizer_t *m, split_t *split)
{
    const uint32_t n = split->n_signatures;
    uint32_t n_before = 0;

    if (!bt_grammar_grow(m->c, &split->order, &split->cap_order, n,
                         sizeof(*split->order))) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        split->at[split->signatures[i].kind]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *at = &split->at[split->signatures[i].kind];

        if ((*at & PLACED) == 0) {
            const uint32_t n_here = *at;

            *at = n_before | PLACED;
            n_before += n_here;
        }
        split->order[*at & ~PLACED] = i;
        ++*at;
    }
    for (uint32_t i = 0; i < n; i++) {
        split->at[split->signatures[i].kind] = 0;
    }
    return true;
}

/* Makes a signature of each state that has edges into the splitter: the symbols
 * of these edges. Orders them by block. */
static bool sign_states(minimizer_t *m, split_t *split)
{
    const bt_dfa_edge_t *edges = m->draft->edges;
    uint32_t i = 0;

    split->n_signatures = 0;
    while (i < split->n_edges) {
        const uint32_t state = m->source[split->edges[i]];
        signature_t signature = {
            .first = m->n_lists, .kind = m->blocks.of[state], .state = state};

        for (; (i < split->n_edges) && (m->source[split->edges[i]] == state);
             i++) {
            const bt_dfa_edge_t *edge = &edges[split->edges[i]];

            if (!list_edge(m, signature.first, edge->lo, edge->hi, 0)) {
                return false;
            }
        }
        signature.n = m->n_lists - signature.first;
        signature.hash = hash_signature(m, &signature);
        if (!bt_grammar_grow(m->c, &split->signatures, &split->cap_signatures,
                             split->n_signatures + 1,
                             sizeof(*split->signatures))) {
            return false;
        }
        split->signatures[split->n_signatures++] = signature;
    }
    return order_signatures(m, split);
}

typedef struct sorting {
    minimizer_t *m;
    const signature_t *signatures;
} sorting_t;

static int compare_at(const void *a_ptr, const void *b_ptr, void *ctx)
{
    const uint32_t *a = a_ptr, *b = b_ptr;
    const sorting_t *s = ctx;

    return compare_signatures(&s->signatures[*a], &s->signatures[*b], s->m);
}

/* Sorts the signatures of a block, if they are not all equal. */
static void sort_block(minimizer_t *m, const signature_t *signatures,
                       uint32_t *order, uint32_t n)
{
    sorting_t sorting = {.m = m, .signatures = signatures};

    for (uint32_t i = 1; i < n; i++) {
        if (compare_at(&order[0], &order[i], &sorting) != 0) {
            qsort_r(order, n, sizeof(*order), compare_at, &sorting);
            return;
        }
    }
}

/* Moves states of a block, the last ones of its range, into a new block. */
static void move_states(blocks_t *blocks, uint32_t block,
                        const signature_t *signatures, const uint32_t *order,
                        uint32_t n)
{
    const uint32_t new = blocks->n++;

    blocks->end[new] = blocks->end[block];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t state = signatures[order[i]].state;
        const uint32_t from = blocks->at[state], to = --blocks->end[block];
        const uint32_t other = blocks->members[to];

        blocks->members[from] = other;
        blocks->at[other] = from;
        blocks->members[to] = state;
        blocks->at[state] = to;
        blocks->of[state] = new;
    }
    blocks->begin[new] = blocks->end[block];
}

/* Splits a block by the signatures of its states. States without one, or else
 * those with the first one, stay. */
static void split_block(minimizer_t *m, const signature_t *signatures,
                        const uint32_t *order, uint32_t n)
{
    blocks_t *blocks = &m->blocks;
    const uint32_t block = signatures[order[0]].kind, n_before = blocks->n;
    bool stays = blocks->end[block] - blocks->begin[block] == n;
    uint32_t largest = block, begin = 0;

    for (uint32_t i = 1; i <= n; i++) {
        if ((i < n) && (compare_signatures(&signatures[order[i - 1]],
                                           &signatures[order[i]], m) == 0)) {
            continue;
        }
        if (!stays) {
            move_states(blocks, block, signatures, &order[begin], i - begin);
        }
        stays = false;
        begin = i;
    }
    for (uint32_t b = n_before; b < blocks->n; b++) {
        if (blocks->end[b] - blocks->begin[b] >
            blocks->end[largest] - blocks->begin[largest]) {
            largest = b;
        }
    }
    if (blocks->is_splitter[block]) {
        largest = block; /* on the stack already */
    } else if (largest != block) {
        push_splitter(blocks, block);
    }
    for (uint32_t b = n_before; b < blocks->n; b++) {
        if (b != largest) {
            push_splitter(blocks, b);
        }
    }
}

static bool refine(minimizer_t *m)
{
    const uint32_t n_finite = m->n_classes;
    blocks_t *blocks = &m->blocks;
    split_t split = {0};

    if (!create_blocks(m)) {
        return false;
    }
    split.at = m->queue; /* which is not used any more */
    memset(split.at, 0, m->n * sizeof(*split.at));
    while (blocks->n_splitters > 0) {
        const uint32_t splitter = blocks->splitters[--blocks->n_splitters];
        const uint32_t n_lists = m->n_lists;
        uint32_t begin = 0;

        blocks->is_splitter[splitter] = false;
        if (!gather_edges(m, &split, splitter) || !sign_states(m, &split)) {
            return false;
        }
        for (uint32_t i = 1; i <= split.n_signatures; i++) {
            if ((i == split.n_signatures) ||
                (split.signatures[split.order[i]].kind !=
                 split.signatures[split.order[begin]].kind)) {
                sort_block(m, split.signatures, &split.order[begin], i - begin);
                split_block(m, split.signatures, &split.order[begin],
                            i - begin);
                begin = i;
            }
        }
        m->n_lists = n_lists;
    }
    for (uint32_t s = 0; s < m->n; s++) {
        if (blocks->of[s] != NONE) {
            m->class[s] = n_finite + blocks->of[s];
        }
    }
    m->n_classes = n_finite + blocks->n;
    return true;
}

/* ---- result ---- */

const bt_dfa_t *bt_dfa_copy(bt_grammar_compiler_t *c, const bt_dfa_t *from)
{
    bt_dfa_t *dfa = bt_grammar_alloc(c, 1, sizeof(*dfa));
    const uint32_t n = from->n_states, n_edges = from->first[n];
    bt_dfa_edge_t *edges = bt_grammar_alloc(c, n_edges, sizeof(*edges));
    uint32_t *first = bt_grammar_alloc(c, n + 1u, sizeof(*first));
    bool *accepts = bt_grammar_alloc(c, n, sizeof(*accepts));

    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    if (n_edges > 0) {
        memcpy(edges, from->edges, n_edges * sizeof(*edges));
    }
    memcpy(first, from->first, (n + 1u) * sizeof(*first));
    if (n > 0) {
        memcpy(accepts, from->accepts, n * sizeof(*accepts));
    }
    *dfa = (bt_dfa_t){
        .n_states = n, .first = first, .edges = edges, .accepts = accepts};
    return dfa;
}

/* Writes the classes as states, numbered in the order in which a breadth-first
 * walk by ascending symbols meets them. */
static const bt_dfa_t *write_classes(minimizer_t *m, bt_grammar_compiler_t *c)
{
    const bt_dfa_draft_t *draft = m->draft;
    uint32_t *states = bt_grammar_alloc(m->c, m->n_classes, sizeof(*states));
    uint32_t *number = bt_grammar_alloc(m->c, m->n_classes, sizeof(*number));
    uint32_t *first = bt_grammar_alloc(m->c, m->n_classes + 1u, sizeof(*first));
    bool *accepts = bt_grammar_alloc(m->c, m->n_classes, sizeof(*accepts));
    uint32_t n_states = 1;

    if (!bt_grammar_ok(m->c)) {
        return NULL;
    }
    if (m->n_classes > BT_DFA_MAX_STATES) {
        bt_grammar_fail(m->c, BT_ERR_TOO_LARGE,
                        "the grammar needs an automaton of %u states, over %u",
                        m->n_classes, BT_DFA_MAX_STATES);
        return NULL;
    }
    memset(number, 0xFF, m->n_classes * sizeof(*number)); /* NONE */
    number[m->class[0]] = 0;
    m->n_lists = 0;
    for (uint32_t i = 0; i < n_states; i++) {
        const uint32_t s = states[i]; /* any of the class */

        first[i] = m->n_lists;
        accepts[i] = draft->accepts[s];
        if (!bt_grammar_spend(m->c, draft->first[s + 1] - draft->first[s])) {
            return NULL;
        }
        for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
            const bt_dfa_edge_t *edge = &draft->edges[e];
            const uint32_t class = m->class[edge->to];

            if (class == NONE) {
                continue;
            }
            if (number[class] == NONE) {
                states[n_states] = edge->to;
                number[class] = n_states++;
            }
            if (!list_edge(m, first[i], edge->lo, edge->hi, number[class])) {
                return NULL;
            }
        }
    }
    first[n_states] = m->n_lists;
    return bt_dfa_copy(c, &(bt_dfa_t){.n_states = n_states,
                                      .first = first,
                                      .edges = m->lists,
                                      .accepts = accepts});
}

const bt_dfa_t *bt_dfa_draft_finish(bt_dfa_draft_t *draft,
                                    bt_grammar_compiler_t *c)
{
    static const uint32_t no_edges[] = {0};
    minimizer_t m = {.draft = draft, .c = draft->c, .n = draft->n_states};

    if (!bt_grammar_ok(m.c) || !bt_grammar_ok(c)) {
        return NULL;
    }
    if ((m.n > 0) && (!reverse_edges(&m) || !find_live(&m))) {
        return NULL;
    }
    if ((m.n == 0) || !m.live[0]) {
        return bt_dfa_copy(c, &(bt_dfa_t){.first = no_edges});
    }
    if (!create_classes(&m) || !classify_finite(&m) || !refine(&m)) {
        return NULL;
    }
    return write_classes(&m, c);
}
