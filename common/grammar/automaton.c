/* SPDX-License-Identifier: Apache-2.0 */
/* Building and reading of automata, and operations that need no sets of
 * states: automaton_subset.c determinizes, automaton_minimize.c minimizes. */
#include "common/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "common/grammar/automaton_priv.h"

/* ---- nondeterministic automata ---- */

bt_nfa_t *bt_nfa_create(bt_grammar_compiler_t *c)
{
    bt_nfa_t *nfa = bt_grammar_alloc(c, 1, sizeof(*nfa));

    if (nfa != NULL) {
        nfa->c = c;
    }
    return nfa;
}

uint32_t bt_nfa_state(bt_nfa_t *nfa)
{
    if ((nfa == NULL) || !bt_grammar_spend(nfa->c, 1) ||
        !bt_grammar_grow(nfa->c, &nfa->states, &nfa->cap_states,
                         nfa->n_states + 1, sizeof(*nfa->states))) {
        return 0;
    }
    return nfa->n_states++;
}

/* Puts an edge in front of a list of its state. */
static void add_edge(bt_nfa_t *nfa, uint32_t *list_p, bt_nfa_edge_t edge)
{
    edge.next = *list_p;
    nfa->edges[nfa->n_edges] = edge;
    *list_p = ++nfa->n_edges;
}

static bool reserve_edge(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    if ((nfa == NULL) || !bt_grammar_spend(nfa->c, 1) ||
        !bt_grammar_grow(nfa->c, &nfa->edges, &nfa->cap_edges, nfa->n_edges + 1,
                         sizeof(*nfa->edges))) {
        return false;
    }
    BT_ASSERT((from < nfa->n_states) && (to < nfa->n_states));
    (void)from; /* used by the assertion only */
    (void)to;
    return true;
}

void bt_nfa_edge(bt_nfa_t *nfa, uint32_t from, uint32_t lo, uint32_t hi,
                 uint32_t to)
{
    if (reserve_edge(nfa, from, to)) {
        BT_ASSERT(lo <= hi);
        add_edge(nfa, &nfa->states[from].edges,
                 (bt_nfa_edge_t){.lo = lo, .hi = hi, .to = to});
    }
}

void bt_nfa_epsilon(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    if (reserve_edge(nfa, from, to)) {
        add_edge(nfa, &nfa->states[from].epsilons, (bt_nfa_edge_t){.to = to});
    }
}

void bt_nfa_include(bt_nfa_t *nfa, uint32_t from, const bt_dfa_t *dfa,
                    uint32_t to)
{
    uint32_t base;

    if ((nfa == NULL) || !bt_grammar_ok(nfa->c) || bt_dfa_is_empty(dfa)) {
        return;
    }
    base = nfa->n_states;
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        bt_nfa_state(nfa);
    }
    bt_nfa_epsilon(nfa, from, base);
    for (uint32_t s = 0; (s < dfa->n_states) && bt_grammar_ok(nfa->c); s++) {
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            bt_nfa_edge(nfa, base + s, dfa->edges[e].lo, dfa->edges[e].hi,
                        base + dfa->edges[e].to);
        }
        if (dfa->accepts[s]) {
            bt_nfa_epsilon(nfa, base + s, to);
        }
    }
}

/* ---- code points ---- */

#define MAX_CODE_POINT   0x10FFFFu
#define FIRST_SURROGATE  0xD800u
#define LAST_SURROGATE   0xDFFFu
#define FIRST_CONTINUING 0x80u /* second and later bytes */
#define LAST_CONTINUING  0xBFu

/* The UTF-8 of a code point of n bytes. */
static void spell(uint32_t code_point, uint32_t n, uint8_t bytes[4])
{
    static const uint8_t first_bits[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (uint32_t i = n - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(FIRST_CONTINUING | (code_point & 0x3F));
        code_point >>= 6;
    }
    bytes[0] = (uint8_t)(first_bits[n] | code_point);
}

static bool all_are(const uint8_t *bytes, uint32_t n, uint8_t byte)
{
    for (uint32_t i = 0; i < n; i++) {
        if (bytes[i] != byte) {
            return false;
        }
    }
    return true;
}

/* Adds edges for the sequences of n bytes from lo to hi, in which every byte
 * but the first is a continuing one. Recursion: up to n = 4. */
static void add_sequences(bt_nfa_t *nfa, uint32_t from, const uint8_t *lo,
                          const uint8_t *hi, uint32_t n, uint32_t to)
{
    static const uint8_t lowest[] = {FIRST_CONTINUING, FIRST_CONTINUING,
                                     FIRST_CONTINUING};
    static const uint8_t highest[] = {LAST_CONTINUING, LAST_CONTINUING,
                                      LAST_CONTINUING};
    uint32_t first = lo[0], last = hi[0]; /* of whole first bytes */
    uint32_t state;

    if (n == 1) {
        bt_nfa_edge(nfa, from, first, last, to);
        return;
    }
    if (first == last) {
        state = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, from, first, first, state);
        add_sequences(nfa, state, lo + 1, hi + 1, n - 1, to);
        return;
    }
    if (!all_are(lo + 1, n - 1, FIRST_CONTINUING)) {
        state = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, from, first, first, state);
        add_sequences(nfa, state, lo + 1, highest, n - 1, to);
        first++;
    }
    if (!all_are(hi + 1, n - 1, LAST_CONTINUING)) {
        state = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, from, last, last, state);
        add_sequences(nfa, state, lowest, hi + 1, n - 1, to);
        last--;
    }
    if (first <= last) {
        state = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, from, first, last, state);
        add_sequences(nfa, state, lowest, highest, n - 1, to);
    }
}

void bt_nfa_code_points(bt_nfa_t *nfa, uint32_t from, uint32_t lo, uint32_t hi,
                        uint32_t to)
{
    /* Ranges in which UTF-8 has one number of bytes; no surrogates. */
    static const struct {
        uint32_t lo, hi, n_bytes;
    } ranges[] = {{0, 0x7F, 1},
                  {0x80, 0x7FF, 2},
                  {0x800, FIRST_SURROGATE - 1, 3},
                  {LAST_SURROGATE + 1, 0xFFFF, 3},
                  {0x10000, MAX_CODE_POINT, 4}};

    for (size_t i = 0; (nfa != NULL) && (i < BT_ARRAY_LEN(ranges)); i++) {
        const uint32_t first = (lo > ranges[i].lo) ? lo : ranges[i].lo;
        const uint32_t last = (hi < ranges[i].hi) ? hi : ranges[i].hi;
        uint8_t low[4], high[4];

        if ((first <= last) && bt_grammar_ok(nfa->c)) {
            spell(first, ranges[i].n_bytes, low);
            spell(last, ranges[i].n_bytes, high);
            add_sequences(nfa, from, low, high, ranges[i].n_bytes, to);
        }
    }
}

/* ---- constructions without sets of states ---- */

bool bt_dfa_draft_state(bt_dfa_draft_t *draft, bool accepts)
{
    if (!bt_grammar_grow(draft->c, &draft->first, &draft->cap_first,
                         draft->n_states + 2, sizeof(*draft->first)) ||
        !bt_grammar_grow(draft->c, &draft->accepts, &draft->cap_accepts,
                         draft->n_states + 1, sizeof(*draft->accepts))) {
        return false;
    }
    draft->accepts[draft->n_states] = accepts;
    draft->first[draft->n_states] = draft->n_edges;
    draft->n_states++;
    draft->first[draft->n_states] = draft->n_edges;
    return true;
}

void bt_dfa_draft_edge(bt_dfa_draft_t *draft, uint32_t lo, uint32_t hi,
                       uint32_t to)
{
    if (bt_grammar_spend(draft->c, 1) &&
        bt_grammar_grow(draft->c, &draft->edges, &draft->cap_edges,
                        draft->n_edges + 1, sizeof(*draft->edges))) {
        draft->edges[draft->n_edges++] =
            (bt_dfa_edge_t){.lo = lo, .hi = hi, .to = to};
        draft->first[draft->n_states] = draft->n_edges;
    }
}

const bt_dfa_t *bt_dfa_any_text(bt_grammar_compiler_t *c)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t state = bt_nfa_state(nfa);

    bt_nfa_code_points(nfa, state, 0, MAX_CODE_POINT, state);
    return bt_nfa_to_dfa(nfa, state, state);
}

typedef struct text {
    const char *bytes;
    size_t n;
} text_t;

static int compare_texts(const void *a_ptr, const void *b_ptr)
{
    const text_t *a = a_ptr, *b = b_ptr;
    const size_t n = (a->n < b->n) ? a->n : b->n;
    const int order = (n > 0) ? memcmp(a->bytes, b->bytes, n) : 0;

    return (order != 0) ? order : (a->n > b->n) - (a->n < b->n);
}

/* State of the tree of texts: sorted texts that begin with the same bytes. */
typedef struct prefix {
    uint32_t begin, end; /* of the texts */
    size_t depth;        /* bytes that they share */
} prefix_t;

/* Writes the tree of sorted texts, breadth first. */
static void write_tree(bt_dfa_draft_t *draft, const text_t *texts, uint32_t n)
{
    prefix_t *prefixes = NULL;
    uint32_t cap = 0, n_prefixes = 1;

    if (!bt_grammar_grow(draft->c, &prefixes, &cap, 1, sizeof(*prefixes))) {
        return;
    }
    prefixes[0] = (prefix_t){.end = n};
    for (uint32_t p = 0; p < n_prefixes; p++) {
        const prefix_t prefix = prefixes[p];
        uint32_t i = prefix.begin;

        if (!bt_grammar_spend(draft->c, prefix.end - prefix.begin) ||
            !bt_dfa_draft_state(draft, texts[i].n == prefix.depth)) {
            return;
        }
        while ((i < prefix.end) && (texts[i].n == prefix.depth)) {
            i++;
        }
        while (i < prefix.end) {
            const char byte = texts[i].bytes[prefix.depth];
            const uint32_t begin = i;

            while ((i < prefix.end) && (texts[i].bytes[prefix.depth] == byte)) {
                i++;
            }
            if (!bt_grammar_grow(draft->c, &prefixes, &cap, n_prefixes + 1,
                                 sizeof(*prefixes))) {
                return;
            }
            bt_dfa_draft_edge(draft, (uint8_t)byte, (uint8_t)byte, n_prefixes);
            prefixes[n_prefixes++] =
                (prefix_t){.begin = begin, .end = i, .depth = prefix.depth + 1};
        }
    }
}

const bt_dfa_t *bt_dfa_of_texts(bt_grammar_compiler_t *c,
                                const char *const *texts, const size_t *lens,
                                uint32_t n)
{
    bt_grammar_compiler_t scratch;
    bt_dfa_draft_t draft = {.c = &scratch};
    const bt_dfa_t *dfa = NULL;
    text_t *sorted;

    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    bt_grammar_scratch_init(&scratch, c);
    sorted = bt_grammar_alloc(&scratch, n, sizeof(*sorted));
    if (sorted != NULL) {
        for (uint32_t i = 0; i < n; i++) {
            sorted[i] = (text_t){.bytes = texts[i], .n = lens[i]};
        }
        qsort(sorted, n, sizeof(*sorted), compare_texts);
        if (n > 0) {
            write_tree(&draft, sorted, n);
        }
        dfa = bt_dfa_draft_finish(&draft, c);
    }
    bt_grammar_scratch_fini(&scratch, c);
    return dfa;
}

/* ---- products ---- */

/* States of both automata, BT_DFA_NONE where one has stopped. */
typedef struct pair {
    uint32_t a, b;
} pair_t;

typedef struct product {
    bt_dfa_draft_t draft;
    bt_dfa_op_t op;
    const bt_dfa_t *a, *b;
    pair_t *pairs; /* by state of the draft */
    uint32_t n_pairs, cap_pairs;
    uint32_t *table; /* pair, + 1; 0: free */
    uint32_t table_mask;
} product_t;

/* True when no text of the result goes on from a pair. */
static bool is_dead(bt_dfa_op_t op, pair_t pair)
{
    switch (op) {
    case BT_DFA_AND:
        return (pair.a == BT_DFA_NONE) || (pair.b == BT_DFA_NONE);
    case BT_DFA_MINUS:
        return pair.a == BT_DFA_NONE;
    case BT_DFA_OR:
    default:
        return (pair.a == BT_DFA_NONE) && (pair.b == BT_DFA_NONE);
    }
}

static bool pair_accepts(const product_t *product, pair_t pair)
{
    const bool a = (pair.a != BT_DFA_NONE) && product->a->accepts[pair.a];
    const bool b = (pair.b != BT_DFA_NONE) && product->b->accepts[pair.b];

    switch (product->op) {
    case BT_DFA_AND:
        return a && b;
    case BT_DFA_MINUS:
        return a && !b;
    case BT_DFA_OR:
    default:
        return a || b;
    }
}

static uint32_t pair_slot(const product_t *product, pair_t pair)
{
    const uint64_t hash = bt_automaton_mix(pair.a, pair.b);
    uint32_t slot = (uint32_t)hash & product->table_mask;

    while (product->table[slot] != 0) {
        const pair_t *other = &product->pairs[product->table[slot] - 1];

        if ((other->a == pair.a) && (other->b == pair.b)) {
            break;
        }
        slot = (slot + 1) & product->table_mask;
    }
    return slot;
}

/* Makes the table four times as large as the number of pairs. */
static bool grow_pair_table(product_t *product)
{
    uint32_t n = 64;

    while (n < product->n_pairs * 4) {
        n *= 2;
    }
    product->table =
        bt_grammar_alloc(product->draft.c, n, sizeof(*product->table));
    if (product->table == NULL) {
        return false;
    }
    product->table_mask = n - 1;
    for (uint32_t i = 0; i < product->n_pairs; i++) {
        product->table[pair_slot(product, product->pairs[i])] = i + 1;
    }
    return true;
}

/* Returns the state of a pair; 0 on failure. */
static uint32_t state_of_pair(product_t *product, pair_t pair)
{
    uint32_t slot;

    if ((product->n_pairs * 2 >= product->table_mask) &&
        !grow_pair_table(product)) {
        return 0;
    }
    slot = pair_slot(product, pair);
    if (product->table[slot] == 0) {
        if (!bt_grammar_grow(product->draft.c, &product->pairs,
                             &product->cap_pairs, product->n_pairs + 1,
                             sizeof(*product->pairs))) {
            return 0;
        }
        product->pairs[product->n_pairs++] = pair;
        product->table[slot] = product->n_pairs;
    }
    return product->table[slot] - 1;
}

/* Edges of one side of a pair that are still to be read. */
typedef struct edges {
    const bt_dfa_edge_t *edge, *end;
} edges_t;

static edges_t edges_of(const bt_dfa_t *dfa, uint32_t state)
{
    if (state == BT_DFA_NONE) {
        return (edges_t){0};
    }
    return (edges_t){.edge = &dfa->edges[dfa->first[state]],
                     .end = &dfa->edges[dfa->first[state + 1]]};
}

/* Reads the next interval, from symbol `from` on, in which both sides have one
 * target. False: there is none. */
static bool next_interval(edges_t *a, edges_t *b, uint64_t from, uint64_t *lo_p,
                          uint64_t *hi_p, pair_t *to_p)
{
    edges_t *sides[] = {a, b};
    uint32_t to[] = {BT_DFA_NONE, BT_DFA_NONE};
    uint64_t lo = UINT64_MAX, hi = UINT64_MAX;

    for (size_t i = 0; i < 2; i++) {
        while ((sides[i]->edge < sides[i]->end) &&
               (sides[i]->edge->hi < from)) {
            sides[i]->edge++;
        }
        if (sides[i]->edge < sides[i]->end) {
            const uint64_t begin =
                (sides[i]->edge->lo > from) ? sides[i]->edge->lo : from;

            lo = (begin < lo) ? begin : lo;
        }
    }
    if (lo == UINT64_MAX) {
        return false;
    }
    for (size_t i = 0; i < 2; i++) {
        if (sides[i]->edge < sides[i]->end) {
            const bool inside = sides[i]->edge->lo <= lo;
            const uint64_t last =
                inside ? sides[i]->edge->hi : sides[i]->edge->lo - 1u;

            hi = (last < hi) ? last : hi;
            to[i] = inside ? sides[i]->edge->to : BT_DFA_NONE;
        }
    }
    *lo_p = lo;
    *hi_p = hi;
    *to_p = (pair_t){.a = to[0], .b = to[1]};
    return true;
}

static void write_product(product_t *product)
{
    const pair_t start = {
        .a = bt_dfa_is_empty(product->a) ? BT_DFA_NONE : 0,
        .b = bt_dfa_is_empty(product->b) ? BT_DFA_NONE : 0,
    };

    if (is_dead(product->op, start)) {
        return;
    }
    state_of_pair(product, start);
    for (uint32_t s = 0; s < product->n_pairs; s++) {
        const pair_t pair = product->pairs[s];
        edges_t a = edges_of(product->a, pair.a);
        edges_t b = edges_of(product->b, pair.b);
        uint64_t lo, hi = 0;
        pair_t to;

        if (!bt_grammar_spend(product->draft.c, 1) ||
            !bt_dfa_draft_state(&product->draft, pair_accepts(product, pair))) {
            return;
        }
        for (uint64_t from = 0; next_interval(&a, &b, from, &lo, &hi, &to);
             from = hi + 1) {
            if (!bt_grammar_spend(product->draft.c, 1)) {
                return;
            }
            if (!is_dead(product->op, to)) {
                bt_dfa_draft_edge(&product->draft, (uint32_t)lo, (uint32_t)hi,
                                  state_of_pair(product, to));
            }
        }
    }
}

const bt_dfa_t *bt_dfa_combine(bt_grammar_compiler_t *c, bt_dfa_op_t op,
                               const bt_dfa_t *a, const bt_dfa_t *b)
{
    bt_grammar_compiler_t scratch;
    product_t product = {.op = op, .a = a, .b = b};
    const bt_dfa_t *dfa;

    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    bt_grammar_scratch_init(&scratch, c);
    product.draft.c = &scratch;
    write_product(&product);
    dfa = bt_dfa_draft_finish(&product.draft, c);
    bt_grammar_scratch_fini(&scratch, c);
    return dfa;
}

/* ---- reading ---- */

bool bt_dfa_equal(const bt_dfa_t *a, const bt_dfa_t *b)
{
    const uint32_t n = a->n_states;

    if (n != b->n_states) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    return (memcmp(a->accepts, b->accepts, n * sizeof(*a->accepts)) == 0) &&
           (memcmp(a->first, b->first, (n + 1) * sizeof(*a->first)) == 0) &&
           ((a->first[n] == 0) ||
            (memcmp(a->edges, b->edges, a->first[n] * sizeof(*a->edges)) == 0));
}

uint32_t bt_dfa_next(const bt_dfa_t *dfa, uint32_t state, uint32_t symbol)
{
    uint32_t lo = dfa->first[state], hi = dfa->first[state + 1];

    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;

        if (dfa->edges[middle].hi < symbol) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    if ((lo == dfa->first[state + 1]) || (dfa->edges[lo].lo > symbol)) {
        return BT_DFA_NONE;
    }
    return dfa->edges[lo].to;
}

bool bt_dfa_accepts(const bt_dfa_t *dfa, const void *bytes, size_t n)
{
    const uint8_t *byte = bytes;
    uint32_t state = bt_dfa_is_empty(dfa) ? BT_DFA_NONE : 0;

    for (size_t i = 0; (i < n) && (state != BT_DFA_NONE); i++) {
        state = bt_dfa_next(dfa, state, byte[i]);
    }
    return (state != BT_DFA_NONE) && dfa->accepts[state];
}
