/* SPDX-License-Identifier: Apache-2.0 */
/* Minimization of a draft. States that are equal, as they have the same texts,
 * are one class. Strongly connected components are classified one after the
 * other, those that an edge leads to first:
 *
 *     state without a cycle   its class is told by the classes of its edges
 *     cycle                   members are told apart by hashes of what is a few
 *                             edges away, and refined (automaton_refine.c);
 *                             then either all of them have known classes, those
 *                             of one cycle, or all are new
 *
 * So all but the refinement is linear, and cycles are small: of 50 strings in a
 * row each loop is looked at on its own, and found to be as the first one.
 * States that cannot reach acceptance get no class.
 *
 * Sources: D. Revuz, "Minimisation of acyclic deterministic automata in linear
 * time", 1992; J. Almeida, M. Zeitoun, "Description and analysis of a bottom-up
 * DFA minimization algorithm", 2008. */
#include "common/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "common/grammar/automaton_priv.h"

#define NONE   BT_DFA_NONE
#define DONE   UINT32_MAX   /* index of a state whose component has ended */
#define INSIDE (1ull << 63) /* of a name of a member */
#define ROUNDS 3u           /* of hashing members */

/* Edges of a state, those that continue one another in one, so that equal
 * states have equal lists. */
typedef struct signature {
    uint64_t hash;
    uint32_t first, n; /* in `lists` */
    bool accepts;
} signature_t;

/* Classes of a cycle. */
typedef struct cycle {
    uint64_t hash;
    uint32_t first, n; /* classes */
    uint32_t older;    /* cycle of the same slot, + 1; 0: none */
    uint32_t tried_by; /* last component that was compared, + 1 */
} cycle_t;

/* Class of a cycle. */
typedef struct cycle_class {
    uint64_t hash;  /* of a member */
    uint32_t state; /* of it; any */
    uint32_t cycle; /* + 1; 0: it is of none */
} cycle_class_t;

/* State of the walk. */
typedef struct visit {
    uint32_t state, edge;
    uint32_t index; /* that it got when it was met */
} visit_t;

/* Pair of a block and the class that it is compared with. */
typedef struct pair {
    uint32_t block, class;
} pair_t;

typedef struct minimizer {
    const bt_dfa_draft_t *draft;
    bt_grammar_compiler_t *c; /* scratch */
    uint32_t n;               /* states of the draft */
    uint32_t *class; /* of a state; NONE: not known, or it reaches nothing */
    uint32_t n_classes;
    bt_dfa_edge_t *lists; /* of signatures */
    uint32_t n_lists, cap_lists;
    signature_t *signatures; /* by class */
    uint32_t cap_signatures;
    uint32_t *table; /* class, + 1; 0: free */
    uint32_t table_mask;

    /* the walk */
    uint32_t *index; /* by state; 0: not met. Least index that is reached */
    visit_t *visits;
    uint32_t *stack; /* states whose component has not ended */
    uint32_t n_stack, n_index;

    /* cycles */
    uint32_t *member; /* by state, of the component that is classified; NONE:
                         it is none of it */
    uint32_t cap_members;
    uint64_t *names;  /* by member, of the round before */
    uint64_t *hashes; /* by member */
    uint32_t *blocks; /* by member */
    uint32_t *block_table;
    uint32_t *of_block; /* the first member */
    uint32_t *match;    /* by block: class */
    pair_t *pairs;
    cycle_t *cycles;
    uint32_t n_cycles, cap_cycles;
    cycle_class_t *known; /* by class */
    uint32_t n_known, cap_known;
    uint32_t cycle_table[64];
    uint32_t n_tried;
} minimizer_t;

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

/* Makes the signature of a state whose edges lead to known classes, or nowhere.
 * @return false: the compilation has failed */
static bool sign(minimizer_t *m, uint32_t s, signature_t *signature_p)
{
    const bt_dfa_draft_t *const draft = m->draft;
    signature_t signature = {.first = m->n_lists, .accepts = draft->accepts[s]};
    uint64_t hash = signature.accepts ? 3 : 1;

    if (!bt_grammar_spend(m->c, draft->first[s + 1] - draft->first[s] + 1)) {
        return false;
    }
    for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
        const bt_dfa_edge_t *const edge = &draft->edges[e];
        const uint32_t to = m->class[edge->to];

        if ((to != NONE) &&
            !list_edge(m, signature.first, edge->lo, edge->hi, to)) {
            return false;
        }
    }
    signature.n = m->n_lists - signature.first;
    for (uint32_t i = signature.first; i < m->n_lists; i++) {
        const bt_dfa_edge_t *const edge = &m->lists[i];

        hash = bt_automaton_mix(hash, (uint64_t)edge->lo << 32 | edge->hi);
        hash = bt_automaton_mix(hash, edge->to);
    }
    signature.hash = hash;
    *signature_p = signature;
    return true;
}

static bool same_signature(const minimizer_t *m, const signature_t *a,
                           const signature_t *b)
{
    return (a->hash == b->hash) && (a->n == b->n) &&
           (a->accepts == b->accepts) &&
           ((a->n == 0) || (memcmp(&m->lists[a->first], &m->lists[b->first],
                                   a->n * sizeof(*m->lists)) == 0));
}

/* Returns the slot of a signature: that of an equal one, or a free one. */
static uint32_t slot_of(const minimizer_t *m, const signature_t *signature)
{
    uint32_t slot = (uint32_t)signature->hash & m->table_mask;

    while ((m->table[slot] != 0) &&
           !same_signature(m, &m->signatures[m->table[slot] - 1], signature)) {
        slot = (slot + 1) & m->table_mask;
    }
    return slot;
}

/* Makes a class of a signature that is new. */
static void add_class(minimizer_t *m, const signature_t *signature,
                      uint32_t slot)
{
    if (bt_grammar_grow(m->c, &m->signatures, &m->cap_signatures,
                        m->n_classes + 1, sizeof(*m->signatures))) {
        m->signatures[m->n_classes++] = *signature;
        m->table[slot] = m->n_classes;
    }
}

/* ---- states without a cycle ---- */

static void classify_state(minimizer_t *m, uint32_t s)
{
    signature_t signature;
    uint32_t slot;

    if (!sign(m, s, &signature)) {
        return;
    }
    if ((signature.n == 0) && !signature.accepts) {
        return; /* reaches nothing */
    }
    slot = slot_of(m, &signature);
    if (m->table[slot] == 0) {
        add_class(m, &signature, slot);
    } else {
        m->n_lists = signature.first;
    }
    m->class[s] = m->table[slot] - 1;
}

/* ---- cycles ---- */

/* Makes room for a component of n states. */
static bool reserve_members(minimizer_t *m, uint32_t n)
{
    uint32_t n_table = 1;

    if (m->member == NULL) {
        m->member = bt_grammar_alloc(m->c, m->n, sizeof(*m->member));
        if (m->member != NULL) {
            memset(m->member, 0xFF, m->n * sizeof(*m->member)); /* NONE */
        }
    }
    if (n <= m->cap_members) {
        return bt_grammar_ok(m->c);
    }
    n = (n > 2 * m->cap_members) ? n : 2 * m->cap_members;
    while (n_table < 2 * n) {
        n_table *= 2;
    }
    m->cap_members = n;
    m->names = bt_grammar_alloc(m->c, n, sizeof(*m->names));
    m->hashes = bt_grammar_alloc(m->c, n, sizeof(*m->hashes));
    m->blocks = bt_grammar_alloc(m->c, n, sizeof(*m->blocks));
    m->block_table = bt_grammar_alloc(m->c, n_table, sizeof(*m->block_table));
    m->of_block = bt_grammar_alloc(m->c, n, sizeof(*m->of_block));
    m->match = bt_grammar_alloc(m->c, n, sizeof(*m->match));
    m->pairs = bt_grammar_alloc(m->c, n, sizeof(*m->pairs));
    return bt_grammar_ok(m->c);
}

/* Returns the cycle of a class, + 1; 0: it is of none. */
static uint32_t cycle_of(const minimizer_t *m, uint32_t class)
{
    return (class < m->n_known) ? m->known[class].cycle : 0;
}

/* Edges of a state that lead to one name. */
typedef struct run {
    uint32_t lo, hi;
    uint64_t name;
} run_t;

/* Name of what an edge leads to: that of a member, or a class; NONE: nothing.
 */
static uint64_t name_of(const minimizer_t *m, uint32_t to)
{
    return (m->member[to] != NONE) ? m->names[m->member[to]] : m->class[to];
}

/* Reads the next edges that lead to one name, from edge *at_p on. */
static bool next_run(const minimizer_t *m, uint32_t *at_p, uint32_t end,
                     run_t *run_p)
{
    const bt_dfa_edge_t *const edges = m->draft->edges;
    uint32_t at = *at_p;
    run_t run;

    while ((at < end) && (name_of(m, edges[at].to) == NONE)) {
        at++;
    }
    if (at == end) {
        return false;
    }
    run = (run_t){edges[at].lo, edges[at].hi, name_of(m, edges[at].to)};
    for (at++; (at < end) && (edges[at].lo == run.hi + 1u) &&
               (name_of(m, edges[at].to) == run.name);
         at++) {
        run.hi = edges[at].hi;
    }
    *at_p = at;
    *run_p = run;
    return true;
}

/* Hashes members by what is up to ROUNDS edges away: equal ones are equal in
 * it. */
static void hash_members(minimizer_t *m, const uint32_t *states, uint32_t n)
{
    const bt_dfa_draft_t *const draft = m->draft;

    for (uint32_t i = 0; i < n; i++) {
        m->names[i] = INSIDE;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round > 0) {
            for (uint32_t i = 0; i < n; i++) {
                m->names[i] = m->hashes[i] | INSIDE;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t s = states[i], end = draft->first[s + 1];
            uint32_t at = draft->first[s];
            uint64_t hash = draft->accepts[s] ? 3 : 1;
            run_t run;

            while (next_run(m, &at, end, &run)) {
                hash = bt_automaton_mix(hash, (uint64_t)run.lo << 32 | run.hi);
                hash = bt_automaton_mix(hash, run.name);
            }
            m->hashes[i] = hash;
        }
    }
}

/* True when two states accept alike and their edges lead to the same names. */
static bool same_runs(const minimizer_t *m, uint32_t a, uint32_t b)
{
    const bt_dfa_draft_t *const draft = m->draft;
    uint32_t at_a = draft->first[a], at_b = draft->first[b];
    run_t x, y;
    bool more;

    if (draft->accepts[a] != draft->accepts[b]) {
        return false;
    }
    do {
        more = next_run(m, &at_a, draft->first[a + 1], &x);
        if (more != next_run(m, &at_b, draft->first[b + 1], &y)) {
            return false;
        }
        if (more && ((x.lo != y.lo) || (x.hi != y.hi) || (x.name != y.name))) {
            return false;
        }
    } while (more);
    return true;
}

/* Puts members that look alike into blocks. @return their number */
static uint32_t make_blocks(minimizer_t *m, const uint32_t *states, uint32_t n)
{
    uint32_t n_blocks = 0, mask = 1;

    while (mask < 2 * n) {
        mask *= 2;
    }
    memset(m->block_table, 0, mask * sizeof(*m->block_table));
    mask--;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)m->hashes[i] & mask;
        uint32_t other = 0;

        for (; m->block_table[slot] != 0; slot = (slot + 1) & mask) {
            other = m->of_block[m->block_table[slot] - 1];
            if ((m->hashes[i] == m->hashes[other]) &&
                same_runs(m, states[i], states[other])) {
                break;
            }
        }
        if (m->block_table[slot] == 0) {
            m->of_block[n_blocks++] = i;
            m->block_table[slot] = n_blocks;
        }
        m->blocks[i] = m->block_table[slot] - 1;
    }
    return n_blocks;
}

/* Edges of a state that are still to be read, from a symbol on. */
typedef struct reading {
    const bt_dfa_edge_t *edge, *end;
    uint32_t from;
} reading_t;

static reading_t reading_of(const minimizer_t *m, uint32_t s)
{
    const bt_dfa_draft_t *const draft = m->draft;

    return (reading_t){.edge = &draft->edges[draft->first[s]],
                       .end = &draft->edges[draft->first[s + 1]]};
}

/* Finds the next symbol that leads to something. False: there is none. */
static bool next_symbol(const minimizer_t *m, reading_t *r)
{
    while ((r->edge < r->end) && (m->member[r->edge->to] == NONE) &&
           (m->class[r->edge->to] == NONE)) {
        r->edge++;
    }
    if ((r->edge < r->end) && (r->from < r->edge->lo)) {
        r->from = r->edge->lo;
    }
    return r->edge < r->end;
}

/* Compares what edges of a block and of a class lead to. */
static bool same_target(minimizer_t *m, uint32_t to, uint32_t class,
                        uint32_t *n_pairs_p)
{
    uint32_t block;

    if (m->member[to] == NONE) {
        return m->class[to] == class;
    }
    block = m->blocks[m->member[to]];
    if (m->match[block] == NONE) {
        m->match[block] = class;
        m->pairs[(*n_pairs_p)++] = (pair_t){block, class};
    }
    return m->match[block] == class;
}

/* Follows the same symbols from a block and a class.
 * @return false: one of them reads what the other one does not, or leads
 *         elsewhere */
static bool same_edges(minimizer_t *m, const uint32_t *states, pair_t pair,
                       uint32_t *n_pairs_p)
{
    const uint32_t s = states[m->of_block[pair.block]];
    const uint32_t t = m->known[pair.class].state;
    reading_t a = reading_of(m, s), b = reading_of(m, t);

    if (m->draft->accepts[s] != m->draft->accepts[t]) {
        return false;
    }
    while (bt_grammar_spend(m->c, 1)) {
        const bool more = next_symbol(m, &a);
        uint32_t hi;

        if (more != next_symbol(m, &b)) {
            return false;
        }
        if (!more) {
            return true;
        }
        if ((a.from != b.from) ||
            !same_target(m, a.edge->to, m->class[b.edge->to], n_pairs_p)) {
            return false;
        }
        hi = (a.edge->hi < b.edge->hi) ? a.edge->hi : b.edge->hi;
        a.edge += (a.edge->hi == hi) ? 1 : 0;
        b.edge += (b.edge->hi == hi) ? 1 : 0;
        a.from = b.from = hi + 1;
    }
    return false;
}

/* True when a block is equal to a class, and then all others are equal to those
 * in m->match. */
static bool try_match(minimizer_t *m, const uint32_t *states, uint32_t block,
                      uint32_t class)
{
    uint32_t n_pairs = 1;
    bool same = cycle_of(m, class) != 0;

    m->match[block] = class;
    m->pairs[0] = (pair_t){block, class};
    for (uint32_t i = 0; same && (i < n_pairs); i++) {
        /* A class of no cycle is not equal to a state of one. */
        same = (cycle_of(m, m->pairs[i].class) != 0) &&
               same_edges(m, states, m->pairs[i], &n_pairs);
    }
    for (uint32_t i = 0; !same && (i < n_pairs); i++) {
        m->match[m->pairs[i].block] = NONE;
    }
    return same;
}

/* Compares the members with the classes of a cycle, from a block on. */
static bool match_cycle(minimizer_t *m, const uint32_t *states, uint32_t block,
                        bool by_hash, uint32_t cycle)
{
    const cycle_t *const of = &m->cycles[cycle];
    const uint64_t hash = m->hashes[m->of_block[block]];

    for (uint32_t class = of->first;
         (class < of->first + of->n) && bt_grammar_spend(m->c, 1); class ++) {
        if ((!by_hash || (m->known[class].hash == hash)) &&
            try_match(m, states, block, class)) {
            return true;
        }
    }
    return false;
}

/* Compares the members with cycles that edges lead to. */
static bool match_next(minimizer_t *m, const uint32_t *states, uint32_t n)
{
    const bt_dfa_draft_t *const draft = m->draft;

    m->n_tried++;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = draft->first[states[i]];
             e < draft->first[states[i] + 1]; e++) {
            const uint32_t class = m->class[draft->edges[e].to];
            uint32_t cycle;

            if ((class == NONE) || (cycle_of(m, class) == 0)) {
                continue;
            }
            cycle = cycle_of(m, class) - 1;
            if (m->cycles[cycle].tried_by != m->n_tried) {
                m->cycles[cycle].tried_by = m->n_tried;
                if (match_cycle(m, states, m->blocks[i], false, cycle)) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Makes classes of the blocks, which are a new cycle. */
static void add_cycle(minimizer_t *m, const uint32_t *states, uint32_t n,
                      uint32_t n_blocks, uint64_t hash)
{
    uint32_t *const slot = &m->cycle_table[hash % 64];
    const uint32_t first = m->n_classes;

    if (!bt_grammar_grow(m->c, &m->cycles, &m->cap_cycles, m->n_cycles + 1,
                         sizeof(*m->cycles)) ||
        !bt_grammar_grow(m->c, &m->known, &m->cap_known, first + n_blocks,
                         sizeof(*m->known))) {
        return;
    }
    m->n_known = first + n_blocks;
    m->cycles[m->n_cycles++] =
        (cycle_t){.hash = hash, .first = first, .n = n_blocks, .older = *slot};
    *slot = m->n_cycles;
    for (uint32_t i = 0; i < n; i++) {
        m->class[states[i]] = first + m->blocks[i];
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        const uint32_t member = m->of_block[b];
        signature_t signature;

        if (!sign(m, states[member], &signature)) {
            return;
        }
        add_class(m, &signature, slot_of(m, &signature));
        m->known[first + b] = (cycle_class_t){.hash = m->hashes[member],
                                              .state = states[member],
                                              .cycle = m->n_cycles};
    }
}

/* Finds the first member of each block. */
static void find_firsts(minimizer_t *m, uint32_t n, uint32_t n_blocks)
{
    memset(m->of_block, 0xFF, n_blocks * sizeof(*m->of_block)); /* NONE */
    for (uint32_t i = n; i > 0; i--) {
        m->of_block[m->blocks[i - 1]] = i - 1;
    }
}

/* Gives classes to the blocks: known ones, or new ones. */
static void classify_blocks(minimizer_t *m, const uint32_t *states, uint32_t n,
                            uint32_t n_blocks)
{
    uint64_t hash = n_blocks;
    uint32_t least = 0; /* block of the least hash */
    bool found;

    for (uint32_t b = 0; b < n_blocks; b++) {
        hash += bt_automaton_mix(2, m->hashes[m->of_block[b]]);
        if (m->hashes[m->of_block[b]] < m->hashes[m->of_block[least]]) {
            least = b;
        }
    }
    memset(m->match, 0xFF, n_blocks * sizeof(*m->match)); /* NONE */
    found = match_next(m, states, n);
    for (uint32_t k = m->cycle_table[hash % 64];
         !found && (k != 0) && bt_grammar_spend(m->c, 1);
         k = m->cycles[k - 1].older) {
        found = (m->cycles[k - 1].hash == hash) &&
                (m->cycles[k - 1].n == n_blocks) &&
                match_cycle(m, states, least, true, k - 1);
    }
    if (!bt_grammar_ok(m->c)) {
        return;
    }
    if (!found) {
        add_cycle(m, states, n, n_blocks, hash);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        m->class[states[i]] = m->match[m->blocks[i]];
    }
}

/* True when acceptance can be reached from a component. */
static bool is_live(const minimizer_t *m, const uint32_t *states, uint32_t n)
{
    const bt_dfa_draft_t *const draft = m->draft;

    for (uint32_t i = 0; i < n; i++) {
        if (draft->accepts[states[i]]) {
            return true;
        }
        for (uint32_t e = draft->first[states[i]];
             e < draft->first[states[i] + 1]; e++) {
            if (m->class[draft->edges[e].to] != NONE) {
                return true;
            }
        }
    }
    return false;
}

static void classify_cycle(minimizer_t *m, const uint32_t *states, uint32_t n)
{
    bt_component_t k = {.draft = m->draft, .states = states, .n = n};
    uint64_t n_edges = 0;

    for (uint32_t i = 0; i < n; i++) {
        n_edges +=
            m->draft->first[states[i] + 1] - m->draft->first[states[i]] + 1;
    }
    if (!bt_grammar_spend(m->c, 2 * n_edges) || !is_live(m, states, n) ||
        !reserve_members(m, n)) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        m->member[states[i]] = i;
    }
    hash_members(m, states, n);
    k.member = m->member;
    k.block = m->blocks;
    k.n_blocks = make_blocks(m, states, n);
    if (k.n_blocks < n) {
        if (!bt_component_refine(&k, m->c)) {
            return;
        }
        find_firsts(m, n, k.n_blocks);
    }
    classify_blocks(m, states, n, k.n_blocks);
    for (uint32_t i = 0; i < n; i++) {
        m->member[states[i]] = NONE;
    }
}

/* ---- the walk ---- */

static bool create_walk(minimizer_t *m)
{
    uint32_t n_table = 16;

    while (n_table < m->n * 2) {
        n_table *= 2;
    }
    m->table_mask = n_table - 1;
    m->table = bt_grammar_alloc(m->c, n_table, sizeof(*m->table));
    m->class = bt_grammar_alloc(m->c, m->n, sizeof(*m->class));
    m->index = bt_grammar_alloc(m->c, m->n, sizeof(*m->index));
    m->visits = bt_grammar_alloc(m->c, m->n, sizeof(*m->visits));
    m->stack = bt_grammar_alloc(m->c, m->n, sizeof(*m->stack));
    if (!bt_grammar_ok(m->c)) {
        return false;
    }
    memset(m->class, 0xFF, m->n * sizeof(*m->class)); /* NONE */
    return bt_grammar_spend(m->c, m->draft->n_edges);
}

/* Ends the component whose first state is `state`: those on the stack that were
 * met later are of it. */
static void end_component(minimizer_t *m, uint32_t state, uint32_t index)
{
    const uint32_t n_stack = m->n_stack;
    bool is_cycle = false;

    m->stack[m->n_stack] = state;
    while ((m->n_stack > 0) && (m->index[m->stack[m->n_stack - 1]] >= index)) {
        m->n_stack--;
        m->index[m->stack[m->n_stack]] = DONE;
    }
    m->index[state] = DONE;
    if (m->n_stack < n_stack) {
        classify_cycle(m, &m->stack[m->n_stack], n_stack - m->n_stack + 1);
        return;
    }
    for (uint32_t e = m->draft->first[state];
         (e < m->draft->first[state + 1]) && !is_cycle; e++) {
        is_cycle = m->draft->edges[e].to == state;
    }
    if (is_cycle) {
        classify_cycle(m, &state, 1);
    } else {
        classify_state(m, state);
    }
}

/* Walks the draft depth first. The stack has states that are left, and whose
 * component has not ended.
 * D. Pearce, "A space-efficient algorithm for finding strongly connected
 * components", 2016. */
static bool classify_all(minimizer_t *m)
{
    const bt_dfa_draft_t *const draft = m->draft;
    uint32_t n = 1;

    m->index[0] = m->n_index = 1;
    m->visits[0] = (visit_t){.edge = draft->first[0], .index = 1};
    while ((n > 0) && bt_grammar_ok(m->c)) {
        visit_t *const v = &m->visits[n - 1];
        const uint32_t s = v->state;

        if (v->edge < draft->first[s + 1]) {
            const uint32_t to = draft->edges[v->edge].to;

            if (m->index[to] == 0) {
                m->index[to] = ++m->n_index;
                m->visits[n++] = (visit_t){
                    .state = to, .edge = draft->first[to], .index = m->n_index};
                continue; /* the edge is looked at again */
            }
            m->index[s] =
                (m->index[to] < m->index[s]) ? m->index[to] : m->index[s];
            v->edge++;
            continue;
        }
        n--;
        if (m->index[s] == v->index) {
            end_component(m, s, v->index);
        } else {
            m->stack[m->n_stack++] = s;
        }
    }
    return bt_grammar_ok(m->c);
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
    if (m.n == 0) {
        return bt_dfa_copy(c, &(bt_dfa_t){.first = no_edges});
    }
    if (!create_walk(&m) || !classify_all(&m)) {
        return NULL;
    }
    if (m.class[0] == NONE) {
        return bt_dfa_copy(c, &(bt_dfa_t){.first = no_edges});
    }
    return write_classes(&m, c);
}
