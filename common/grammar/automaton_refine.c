/* SPDX-License-Identifier: Apache-2.0 */
/* Partition refinement of the states of one component, by J. Hopcroft's
 * algorithm. A block is a splitter at most log(n) times, since of the parts of
 * a block that was a splitter the largest need not be one again. A splitter
 * tells states apart by the set of symbols that lead into it.
 *
 * Source: A. Valmari, P. Lehtinen, "Efficient minimization of DFAs with partial
 * transition functions", STACS 2008. */
#include <stdlib.h>
#include <string.h>

#include "common/grammar/automaton_priv.h"

#define PLACED 0x80000000u /* of a count that has become a place */

/* Edge between two members. Edges are numbered by `from` and symbol. */
typedef struct inner_edge {
    uint32_t lo, hi;
    uint32_t from, to;
} inner_edge_t;

typedef struct range {
    uint32_t lo, hi;
} range_t;

/* Symbols of a member's edges into the splitter; ranges that continue one
 * another are one, so that equal members have equal lists. */
typedef struct signature {
    uint64_t hash;
    uint32_t first, n; /* in `ranges` */
    uint32_t member;
} signature_t;

typedef struct refinement {
    bt_grammar_compiler_t *c;
    bt_component_t *k;
    inner_edge_t *edges;
    uint32_t n_edges, cap_edges;
    uint32_t *into_first; /* n + 1; ranges of into */
    uint32_t *into;       /* edges by target */

    /* Members, ordered so that each block is a range. */
    uint32_t *members;
    uint32_t *at; /* of a member in `members` */
    uint32_t *begin, *end;
    uint32_t *splitters; /* blocks that are still to be used, a stack */
    uint32_t n_splitters;
    bool *is_splitter;

    /* Edges into a splitter, and the signatures that their members have by
     * them. */
    uint32_t *found;
    uint32_t n_found, cap_found;
    signature_t *signatures;
    uint32_t n_signatures, cap_signatures;
    range_t *ranges;
    uint32_t n_ranges, cap_ranges;
    uint32_t *order; /* signatures by block; before, edges while they are
                        sorted */
    uint32_t cap_order;
    uint32_t *place; /* by block: in `order`; all 0 between */
} refinement_t;

/* Lists the edges between members. */
static bool list_edges(refinement_t *r)
{
    const bt_component_t *const k = r->k;
    const bt_dfa_draft_t *const draft = k->draft;

    for (uint32_t i = 0; i < k->n; i++) {
        const uint32_t s = k->states[i];
        const uint32_t n = draft->first[s + 1] - draft->first[s];

        if (!bt_grammar_spend(r->c, n) ||
            !bt_grammar_grow(r->c, &r->edges, &r->cap_edges, r->n_edges + n,
                             sizeof(*r->edges))) {
            return false;
        }
        for (uint32_t e = draft->first[s]; e < draft->first[s + 1]; e++) {
            const bt_dfa_edge_t *const edge = &draft->edges[e];

            if (k->member[edge->to] != BT_DFA_NONE) {
                r->edges[r->n_edges++] =
                    (inner_edge_t){.lo = edge->lo,
                                   .hi = edge->hi,
                                   .from = i,
                                   .to = k->member[edge->to]};
            }
        }
    }
    r->into_first = bt_grammar_alloc(r->c, k->n + 2u, sizeof(uint32_t));
    r->into = bt_grammar_alloc(r->c, r->n_edges, sizeof(uint32_t));
    if (!bt_grammar_ok(r->c)) {
        return false;
    }
    /* into_first[t + 2] counts, then [t + 1] is where the next edge goes. */
    for (uint32_t e = 0; e < r->n_edges; e++) {
        r->into_first[r->edges[e].to + 2]++;
    }
    for (uint32_t t = 2; t < k->n + 2; t++) {
        r->into_first[t] += r->into_first[t - 1];
    }
    for (uint32_t e = 0; e < r->n_edges; e++) {
        r->into[r->into_first[r->edges[e].to + 1]++] = e;
    }
    return true;
}

/* ---- blocks ---- */

static void push_splitter(refinement_t *r, uint32_t block)
{
    r->is_splitter[block] = true;
    r->splitters[r->n_splitters++] = block;
}

static bool create_blocks(refinement_t *r)
{
    const bt_component_t *const k = r->k;
    uint32_t **const arrays[] = {&r->members, &r->at,        &r->begin,
                                 &r->end,     &r->splitters, &r->place};
    uint32_t n_members = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(arrays); i++) {
        *arrays[i] = bt_grammar_alloc(r->c, k->n, sizeof(uint32_t));
    }
    r->is_splitter = bt_grammar_alloc(r->c, k->n, sizeof(bool));
    if (!bt_grammar_ok(r->c)) {
        return false;
    }
    for (uint32_t i = 0; i < k->n; i++) {
        r->end[k->block[i]]++; /* counts */
    }
    for (uint32_t b = 0; b < k->n_blocks; b++) {
        r->begin[b] = n_members;
        n_members += r->end[b];
        r->end[b] = r->begin[b];
        push_splitter(r, b);
    }
    for (uint32_t i = 0; i < k->n; i++) {
        r->at[i] = r->end[k->block[i]]++;
        r->members[r->at[i]] = i;
    }
    return true;
}

static bool may_split(const refinement_t *r, uint32_t block)
{
    return r->end[block] - r->begin[block] > 1;
}

/* ---- edges into a splitter ---- */

/* Sorts the edges by number: a byte after the other, from the last one. */
static bool sort_edges(refinement_t *r)
{
    if (!bt_grammar_grow(r->c, &r->order, &r->cap_order, r->n_found,
                         sizeof(*r->order))) {
        return false;
    }
    for (uint32_t shift = 0;
         (shift < 32) && ((uint64_t)r->n_edges >> shift > 0); shift += 8) {
        uint32_t at[257] = {0};
        uint32_t *swap = r->found;
        uint32_t cap;

        for (uint32_t i = 0; i < r->n_found; i++) {
            at[(r->found[i] >> shift & 0xFF) + 1]++;
        }
        for (uint32_t i = 1; i < 256; i++) {
            at[i] += at[i - 1];
        }
        for (uint32_t i = 0; i < r->n_found; i++) {
            const uint32_t edge = r->found[i];

            r->order[at[edge >> shift & 0xFF]++] = edge;
        }
        r->found = r->order;
        r->order = swap;
        cap = r->cap_found;
        r->cap_found = r->cap_order;
        r->cap_order = cap;
    }
    return true;
}

/* Puts the edges in order. False: there are many, and they are not. */
static bool insert_edges(refinement_t *r)
{
    const bool few = r->n_found <= 48;

    for (uint32_t i = 1; i < r->n_found; i++) {
        const uint32_t edge = r->found[i];
        uint32_t at = i;

        if (!few && (r->found[at - 1] > edge)) {
            return false;
        }
        while ((at > 0) && (r->found[at - 1] > edge)) {
            r->found[at] = r->found[at - 1];
            at--;
        }
        r->found[at] = edge;
    }
    return true;
}

/* Lists the edges into a splitter from members of blocks that may be split, in
 * the order of member and symbol, which is that of their numbers. */
static bool gather_edges(refinement_t *r, uint32_t block)
{
    r->n_found = 0;
    for (uint32_t i = r->begin[block]; i < r->end[block]; i++) {
        const uint32_t to = r->members[i];
        const uint32_t n = r->into_first[to + 1] - r->into_first[to];

        if (!bt_grammar_spend(r->c, 2u * n + 1) ||
            !bt_grammar_grow(r->c, &r->found, &r->cap_found, r->n_found + n,
                             sizeof(*r->found))) {
            return false;
        }
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t edge = r->into[r->into_first[to] + j];

            if (may_split(r, r->k->block[r->edges[edge].from])) {
                r->found[r->n_found++] = edge;
            }
        }
    }
    return insert_edges(r) || sort_edges(r);
}

/* ---- signatures ---- */

static uint32_t block_of(const refinement_t *r, uint32_t signature)
{
    return r->k->block[r->signatures[signature].member];
}

/* Orders the signatures by block. */
static bool order_signatures(refinement_t *r)
{
    const uint32_t n = r->n_signatures;
    uint32_t n_before = 0;

    if (!bt_grammar_grow(r->c, &r->order, &r->cap_order, n,
                         sizeof(*r->order))) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        r->place[block_of(r, i)]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *place = &r->place[block_of(r, i)];

        if ((*place & PLACED) == 0) {
            const uint32_t n_here = *place;

            *place = n_before | PLACED;
            n_before += n_here;
        }
        r->order[*place & ~PLACED] = i;
        ++*place;
    }
    for (uint32_t i = 0; i < n; i++) {
        r->place[block_of(r, i)] = 0;
    }
    return true;
}

/* Makes a signature of each member that has edges into the splitter, and orders
 * them by block. */
static bool sign_members(refinement_t *r)
{
    uint32_t i = 0;

    if (!bt_grammar_grow(r->c, &r->ranges, &r->cap_ranges, r->n_found,
                         sizeof(*r->ranges)) ||
        !bt_grammar_grow(r->c, &r->signatures, &r->cap_signatures, r->n_found,
                         sizeof(*r->signatures))) {
        return false;
    }
    r->n_signatures = r->n_ranges = 0;
    while (i < r->n_found) {
        const uint32_t member = r->edges[r->found[i]].from;
        signature_t signature = {
            .hash = 1, .first = r->n_ranges, .member = member};

        while ((i < r->n_found) && (r->edges[r->found[i]].from == member)) {
            range_t *const range = &r->ranges[r->n_ranges++];

            *range =
                (range_t){r->edges[r->found[i]].lo, r->edges[r->found[i]].hi};
            for (i++;
                 (i < r->n_found) && (r->edges[r->found[i]].from == member) &&
                 (r->edges[r->found[i]].lo == range->hi + 1u);
                 i++) {
                range->hi = r->edges[r->found[i]].hi;
            }
            signature.hash = bt_automaton_mix(
                signature.hash, (uint64_t)range->lo << 32 | range->hi);
        }
        signature.n = r->n_ranges - signature.first;
        r->signatures[r->n_signatures++] = signature;
    }
    return order_signatures(r);
}

static int compare_at(const void *a_ptr, const void *b_ptr, void *ctx)
{
    const refinement_t *r = ctx;
    const signature_t *a = &r->signatures[*(const uint32_t *)a_ptr];
    const signature_t *b = &r->signatures[*(const uint32_t *)b_ptr];

    if (a->hash != b->hash) {
        return (a->hash < b->hash) ? -1 : 1;
    }
    if (a->n != b->n) {
        return (a->n < b->n) ? -1 : 1;
    }
    return memcmp(&r->ranges[a->first], &r->ranges[b->first],
                  a->n * sizeof(*r->ranges));
}

/* ---- splitting ---- */

/* Moves members of a block, the last ones of its range, into a new block. */
static void move_members(refinement_t *r, uint32_t block, const uint32_t *order,
                         uint32_t n)
{
    const uint32_t new = r->k->n_blocks++;

    r->end[new] = r->end[block];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t member = r->signatures[order[i]].member;
        const uint32_t from = r->at[member], to = --r->end[block];
        const uint32_t other = r->members[to];

        r->members[from] = other;
        r->at[other] = from;
        r->members[to] = member;
        r->at[member] = to;
        r->k->block[member] = new;
    }
    r->begin[new] = r->end[block];
}

/* Splits a block by the signatures of its members. Members without one, or else
 * those with the first one, stay. */
static void split_block(refinement_t *r, uint32_t block, uint32_t *order,
                        uint32_t n)
{
    const uint32_t n_before = r->k->n_blocks;
    bool stays = r->end[block] - r->begin[block] == n;
    uint32_t largest = block, begin = 0;

    for (uint32_t i = 1; i < n; i++) {
        if (compare_at(&order[0], &order[i], r) != 0) {
            qsort_r(order, n, sizeof(*order), compare_at, r);
            break;
        }
    }
    for (uint32_t i = 1; i <= n; i++) {
        if ((i < n) && (compare_at(&order[i - 1], &order[i], r) == 0)) {
            continue;
        }
        if (!stays) {
            move_members(r, block, &order[begin], i - begin);
        }
        stays = false;
        begin = i;
    }
    for (uint32_t b = n_before; b < r->k->n_blocks; b++) {
        if (r->end[b] - r->begin[b] > r->end[largest] - r->begin[largest]) {
            largest = b;
        }
    }
    if (r->is_splitter[block]) {
        largest = block; /* on the stack already */
    } else if (largest != block) {
        push_splitter(r, block);
    }
    for (uint32_t b = n_before; b < r->k->n_blocks; b++) {
        if (b != largest) {
            push_splitter(r, b);
        }
    }
}

bool bt_component_refine(bt_component_t *k, bt_grammar_compiler_t *c)
{
    refinement_t r = {.c = c, .k = k};

    if (!list_edges(&r) || !create_blocks(&r)) {
        return false;
    }
    while ((r.n_splitters > 0) && (k->n_blocks < k->n)) {
        const uint32_t splitter = r.splitters[--r.n_splitters];

        r.is_splitter[splitter] = false;
        if (!gather_edges(&r, splitter) || !sign_members(&r)) {
            return false;
        }
        for (uint32_t begin = 0, end; begin < r.n_signatures; begin = end) {
            const uint32_t block = block_of(&r, r.order[begin]);

            end = begin + 1;
            while ((end < r.n_signatures) &&
                   (block_of(&r, r.order[end]) == block)) {
                end++;
            }
            split_block(&r, block, &r.order[begin], end - begin);
        }
    }
    return true;
}
