/* SPDX-License-Identifier: Apache-2.0 */
/* Automata of rules as a program:
 *
 *     lay out    states and edges of all rules (grammar.h)
 *     compress   `otherwise` for states that are like another but for some
 *                bytes: names that a key may not be
 *     write      the bytes
 */
#include <stdlib.h>
#include <string.h>

#include "common/grammar/builder_priv.h"

#define NONE      UINT32_MAX
#define MAX_EDGES (1u << 19) /* before they are compressed */

/* ---- lay out ---- */

typedef struct layout {
    bt_grammar_compiler_t *c;
    const bt_rules_t *rules;
    bt_grammar_t *g;
    uint32_t cap_edges;
} layout_t;

static void add_edge(layout_t *l, bt_grammar_edge_t edge)
{
    bt_grammar_t *const g = l->g;

    if (g->n_edges == MAX_EDGES) {
        bt_grammar_fail(l->c, BT_ERR_TOO_LARGE,
                        "the grammar has more than %u ways on", MAX_EDGES);
        return;
    }
    if (bt_grammar_grow(l->c, &g->edges, &l->cap_edges, g->n_edges + 1,
                        sizeof(*g->edges))) {
        g->edges[g->n_edges++] = edge;
    }
}

/* Adds the byte edges of a state, ascending: those that count have symbols of
 * their own. */
static void add_byte_edges(layout_t *l, const bt_dfa_t *dfa, uint32_t s,
                           uint32_t start)
{
    const bt_dfa_edge_t *plain = &dfa->edges[dfa->first[s]];
    const bt_dfa_edge_t *const end = &dfa->edges[dfa->first[s + 1]];
    const bt_dfa_edge_t *counting = plain;

    while ((counting < end) && (counting->lo < BT_SYMBOL_COUNTING)) {
        counting++;
    }
    for (;;) {
        const bool more = (plain < end) && (plain->lo < BT_SYMBOL_COUNTING);
        const bool counts =
            (counting < end) && (counting->lo < BT_SYMBOL_OTHER) &&
            (!more || (counting->lo - BT_SYMBOL_COUNTING < plain->lo));
        const bt_dfa_edge_t *const edge = counts ? counting : plain;

        if (!more && !counts) {
            return;
        }
        add_edge(l, (bt_grammar_edge_t){.kind = BT_GRAMMAR_READS,
                                        .lo = (uint8_t)edge->lo,
                                        .hi = (uint8_t)edge->hi,
                                        .counts = counts,
                                        .to = start + edge->to});
        plain += counts ? 0 : 1;
        counting += counts ? 1 : 0;
    }
}

static void add_other_edges(layout_t *l, const bt_dfa_t *dfa, uint32_t s,
                            uint32_t start)
{
    for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
        const bt_dfa_edge_t edge = dfa->edges[e];

        for (uint32_t y = edge.lo; (y >= BT_SYMBOL_OTHER) && (y <= edge.hi) &&
                                   bt_grammar_spend(l->c, 1);
             y++) {
            const bt_builder_symbol_t *const symbol =
                &l->rules->symbols[y - BT_SYMBOL_OTHER];
            const bool takes = symbol->is_token;

            add_edge(l, (bt_grammar_edge_t){
                            .kind = takes ? BT_GRAMMAR_TAKES : BT_GRAMMAR_CALLS,
                            .counts = symbol->counts,
                            .arg = takes ? symbol->arg
                                         : l->rules->number_of[symbol->arg],
                            .last = takes ? symbol->last : 0,
                            .to = start + edge.to});
        }
    }
}

static void lay_out_rule(layout_t *l, uint32_t rule)
{
    const bt_dfa_t *const dfa = l->rules->list[rule]->dfa;
    bt_grammar_t *const g = l->g;
    const uint32_t start = g->n_states;

    g->rules[rule] = (bt_grammar_rule_t){.start = start,
                                         .min = l->rules->list[rule]->min,
                                         .max = l->rules->list[rule]->max};
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        bt_grammar_state_t *const state = &g->states[g->n_states++];
        const uint32_t n_edges = g->n_edges;
        uint32_t n_byte_edges;

        if (!bt_grammar_spend(l->c, 1 + dfa->first[s + 1] - dfa->first[s])) {
            return;
        }
        add_byte_edges(l, dfa, s, start);
        n_byte_edges = g->n_edges - n_edges;
        add_other_edges(l, dfa, s, start);
        if (g->n_edges - n_edges > UINT16_MAX) {
            bt_grammar_fail(l->c, BT_ERR_TOO_LARGE,
                            "a state of the grammar has more than %u ways on",
                            UINT16_MAX);
            return;
        }
        *state =
            (bt_grammar_state_t){.first_edge = n_edges,
                                 .n_edges = (uint16_t)(g->n_edges - n_edges),
                                 .n_byte_edges = (uint16_t)n_byte_edges,
                                 .accepts = dfa->accepts[s],
                                 .otherwise = BT_GRAMMAR_NONE,
                                 .rule = rule};
    }
}

bt_grammar_t *bt_program_lay_out(bt_grammar_compiler_t *c,
                                 const bt_rules_t *rules)
{
    bt_grammar_t *g = bt_grammar_alloc(c, 1, sizeof(*g));
    layout_t l = {.c = c, .rules = rules, .g = g};
    uint64_t n_states = 0;

    for (uint32_t r = 0; r < rules->n; r++) {
        n_states += rules->list[r]->dfa->n_states;
    }
    if ((rules->n > BT_GRAMMAR_MAX_RULES) ||
        (n_states > BT_GRAMMAR_MAX_STATES)) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE,
                        "the grammar has more than %u rules or %u states",
                        BT_GRAMMAR_MAX_RULES, BT_GRAMMAR_MAX_STATES);
    }
    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    g->n_rules = rules->n;
    g->rules = bt_grammar_alloc(c, rules->n, sizeof(*g->rules));
    g->states = bt_grammar_alloc(c, n_states, sizeof(*g->states));
    for (uint32_t r = 0; (r < rules->n) && bt_grammar_ok(c); r++) {
        lay_out_rule(&l, r);
    }
    return bt_grammar_ok(c) ? g : NULL;
}

/* ---- compress ---- */

#define MIN_BYTE_EDGES 3u /* of states that are looked at */
#define MAX_BASES      4u /* of states with the same main target */

/* State with several byte edges. States with one main target may differ in few
 * bytes. */
typedef struct candidate {
    uint32_t state;
    uint32_t target; /* most bytes lead there */
    uint32_t n_in;   /* edges that lead to it */
} candidate_t;

typedef struct compression {
    bt_grammar_compiler_t *c; /* scratch */
    bt_grammar_t *g;
    uint32_t *n_in;    /* by state */
    uint32_t *n_bytes; /* by state: that lead there from one state */
    candidate_t *candidates;
    uint32_t n_candidates;
} compression_t;

/* Returns the state that most bytes lead to, the lowest of equal ones. */
static uint32_t main_target(compression_t *k, const bt_grammar_state_t *s)
{
    const bt_grammar_edge_t *const edges = &k->g->edges[s->first_edge];
    uint32_t best = edges[0].to;

    for (uint32_t i = 0; i < s->n_byte_edges; i++) {
        k->n_bytes[edges[i].to] += edges[i].hi - edges[i].lo + 1u;
    }
    for (uint32_t i = 0; i < s->n_byte_edges; i++) {
        const uint32_t to = edges[i].to;

        if ((k->n_bytes[to] > k->n_bytes[best]) ||
            ((k->n_bytes[to] == k->n_bytes[best]) && (to < best))) {
            best = to;
        }
    }
    for (uint32_t i = 0; i < s->n_byte_edges; i++) {
        k->n_bytes[edges[i].to] = 0;
    }
    return best;
}

static int compare_candidates(const void *a_ptr, const void *b_ptr)
{
    const candidate_t *a = a_ptr, *b = b_ptr;

    if (a->target != b->target) {
        return (a->target < b->target) ? -1 : 1;
    }
    if (a->n_in != b->n_in) {
        return (a->n_in > b->n_in) ? -1 : 1;
    }
    return (a->state > b->state) - (a->state < b->state);
}

static void find_candidates(compression_t *k)
{
    const bt_grammar_t *const g = k->g;

    k->n_in = bt_grammar_alloc(k->c, g->n_states, sizeof(*k->n_in));
    k->n_bytes = bt_grammar_alloc(k->c, g->n_states, sizeof(*k->n_bytes));
    k->candidates = bt_grammar_alloc(k->c, g->n_states, sizeof(candidate_t));
    if (!bt_grammar_spend(k->c, g->n_edges)) {
        return;
    }
    for (uint32_t e = 0; e < g->n_edges; e++) {
        k->n_in[g->edges[e].to]++;
    }
    for (uint32_t s = 0; s < g->n_states; s++) {
        if (g->states[s].n_byte_edges >= MIN_BYTE_EDGES) {
            k->candidates[k->n_candidates++] =
                (candidate_t){.state = s,
                              .target = main_target(k, &g->states[s]),
                              .n_in = k->n_in[s]};
        }
    }
    if (k->n_candidates > 1) {
        qsort(k->candidates, k->n_candidates, sizeof(candidate_t),
              compare_candidates);
    }
}

/* Returns the first byte behind `at` where an edge begins or has ended. */
static uint32_t next_bound(const bt_grammar_edge_t *edge,
                           const bt_grammar_edge_t *end, uint32_t at)
{
    if (edge == end) {
        return 256;
    }
    return (edge->lo <= at) ? edge->hi + 1u : edge->lo;
}

/* Makes the byte edges in which a state differs from a base.
 * @return their number; NONE: it has no edge for a byte of the base, or not
 *         fewer than `most` */
static uint32_t differences(const bt_grammar_t *g, uint32_t state,
                            uint32_t base_state, bt_grammar_edge_t *out,
                            uint32_t most)
{
    const bt_grammar_state_t *const s = &g->states[state];
    const bt_grammar_state_t *const b = &g->states[base_state];
    const bt_grammar_edge_t *own = &g->edges[s->first_edge];
    const bt_grammar_edge_t *base = &g->edges[b->first_edge];
    const bt_grammar_edge_t *const own_end = own + s->n_byte_edges;
    const bt_grammar_edge_t *const base_end = base + b->n_byte_edges;
    uint32_t n = 0;

    for (uint32_t at = 0, next; at < 256; at = next) {
        own += (own < own_end) && (own->hi < at);
        base += (base < base_end) && (base->hi < at);
        const bool in_own = (own < own_end) && (own->lo <= at);
        const bool in_base = (base < base_end) && (base->lo <= at);
        bt_grammar_edge_t *const last = (n > 0) ? &out[n - 1] : NULL;
        const uint32_t own_next = next_bound(own, own_end, at);
        const uint32_t base_next = next_bound(base, base_end, at);

        next = (own_next < base_next) ? own_next : base_next;
        if (!in_own && in_base) {
            return NONE;
        }
        if (!in_own || (in_base && (own->to == base->to) &&
                        (own->counts == base->counts))) {
            continue;
        }
        if ((last != NULL) && (last->to == own->to) &&
            (last->counts == own->counts) && (last->hi + 1u == at)) {
            last->hi = (uint8_t)(next - 1);
            continue;
        }
        if (n + 1 >= most) {
            return NONE;
        }
        out[n] = *own;
        out[n].lo = (uint8_t)at;
        out[n++].hi = (uint8_t)(next - 1);
    }
    return n;
}

/* Writes a state with the base that leaves it the fewest edges. */
static void compress_state(compression_t *k, uint32_t state,
                           const candidate_t *bases, uint32_t n_bases)
{
    bt_grammar_t *const g = k->g;
    bt_grammar_state_t *const s = &g->states[state];
    bt_grammar_edge_t *const edges = &g->edges[s->first_edge];
    bt_grammar_edge_t own[256], best[256];
    /* `otherwise` costs about as much as an edge. */
    uint32_t most = s->n_byte_edges - 1u, n_best = NONE;

    for (uint32_t i = 0; i < n_bases; i++) {
        const uint32_t base = bases[i].state;
        uint32_t n;

        if (!bt_grammar_spend(k->c,
                              s->n_byte_edges + g->states[base].n_byte_edges)) {
            return;
        }
        n = differences(g, state, base, own, most + 1);
        if ((n != NONE) && (n < most)) {
            memcpy(best, own, n * sizeof(*own));
            most = n_best = n;
            s->otherwise = base;
        }
    }
    if (n_best != NONE) {
        const uint32_t n_other = s->n_edges - s->n_byte_edges;

        memmove(edges + n_best, edges + s->n_byte_edges,
                n_other * sizeof(*edges));
        memcpy(edges, best, n_best * sizeof(*edges));
        s->n_byte_edges = (uint16_t)n_best;
        s->n_edges = (uint16_t)(n_best + n_other);
    }
}

void bt_program_compress(bt_grammar_compiler_t *c, bt_grammar_t *g)
{
    bt_grammar_compiler_t scratch;
    compression_t k = {.c = &scratch, .g = g};

    if (!bt_grammar_ok(c)) {
        return;
    }
    bt_grammar_scratch_init(&scratch, c);
    find_candidates(&k);
    for (uint32_t i = 0, end; i < k.n_candidates; i = end) {
        uint32_t n_bases;

        end = i + 1;
        while ((end < k.n_candidates) &&
               (k.candidates[end].target == k.candidates[i].target)) {
            end++;
        }
        /* Bases are not compressed: `otherwise` is one step. */
        n_bases = (end - i <= 2 * MAX_BASES) ? (end - i) / 2 : MAX_BASES;
        n_bases = (n_bases > 0) ? n_bases : 1;
        for (uint32_t j = i + n_bases; j < end; j++) {
            compress_state(&k, k.candidates[j].state, &k.candidates[i],
                           n_bases);
        }
    }
    bt_grammar_scratch_fini(&scratch, c);
}

/* ---- write ---- */

typedef struct writer {
    bt_grammar_compiler_t *c; /* scratch */
    const bt_grammar_t *g;
    uint8_t *bytes;
    size_t n;
    uint32_t *order;  /* states of the rule as they are written */
    uint32_t *number; /* by state, in its rule */
    bool *seen;       /* by state */
    bool *is_new;     /* by edge: it leads to a new state */
    uint32_t *stack;
} writer_t;

static void put_byte(writer_t *w, uint32_t byte)
{
    if (w->n == BT_GRAMMAR_MAX_BYTES) {
        bt_grammar_fail(w->c, BT_ERR_TOO_LARGE,
                        "the compiled grammar is larger than %u bytes",
                        BT_GRAMMAR_MAX_BYTES);
        return;
    }
    w->bytes[w->n++] = (uint8_t)byte;
}

static void put(writer_t *w, uint64_t number)
{
    while (number >= 0x80) {
        put_byte(w, (uint32_t)(number & 0x7F) | 0x80);
        number >>= 7;
    }
    put_byte(w, (uint32_t)number);
}

/* Numbers the states of a rule depth first. */
static uint32_t order_states(writer_t *w, uint32_t begin, uint32_t end)
{
    const bt_grammar_t *const g = w->g;
    uint32_t n = 0, n_stack = 0;

    for (uint32_t root = begin; root < end; root++) {
        if (!w->seen[root]) {
            w->seen[root] = true;
            w->stack[n_stack++] = root;
        }
        while (n_stack > 0) {
            const uint32_t s = w->stack[--n_stack];
            const bt_grammar_state_t *const state = &g->states[s];

            w->number[s] = n;
            w->order[n++] = s;
            for (uint32_t i = 0; i < state->n_edges; i++) {
                const uint32_t e = state->first_edge + i;

                w->is_new[e] = !w->seen[g->edges[e].to];
                w->seen[g->edges[e].to] = true;
            }
            for (uint32_t i = state->n_edges; i > 0; i--) {
                const uint32_t e = state->first_edge + i - 1;

                if (w->is_new[e]) {
                    w->stack[n_stack++] = g->edges[e].to;
                }
            }
        }
    }
    return n;
}

/* True for a state that only reads one byte, into a new state. */
static bool is_literal(const writer_t *w, uint32_t s)
{
    const bt_grammar_state_t *const state = &w->g->states[s];
    const bt_grammar_edge_t *const edge = &w->g->edges[state->first_edge];

    return (state->n_edges == 1) && (edge->kind == BT_GRAMMAR_READS) &&
           (edge->lo == edge->hi) && !edge->counts &&
           w->is_new[state->first_edge];
}

static void put_head(writer_t *w, uint32_t s, uint32_t n)
{
    const bt_grammar_state_t *const state = &w->g->states[s];
    const bool has = state->otherwise != BT_GRAMMAR_NONE;

    put(w, (uint64_t)n << 2 | (has ? 2u : 0) | (state->accepts ? 1u : 0));
    if (has) {
        put(w, w->number[state->otherwise]);
    }
}

/* Writes the states of a literal. @return their number; 0: there is none */
static uint32_t put_literal(writer_t *w, uint32_t at, uint32_t n_states)
{
    const bt_grammar_t *const g = w->g;
    const bt_grammar_state_t *const first = &g->states[w->order[at]];
    uint32_t n = 0;

    while ((at + n < n_states) && is_literal(w, w->order[at + n]) &&
           (g->states[w->order[at + n]].otherwise == first->otherwise) &&
           (g->states[w->order[at + n]].accepts == first->accepts)) {
        n++;
    }
    if (n == 0) {
        return 0;
    }
    put_head(w, w->order[at], 0);
    put(w, n);
    for (uint32_t i = 0; i < n; i++) {
        put_byte(w, g->edges[g->states[w->order[at + i]].first_edge].lo);
    }
    return n;
}

static void put_symbol(writer_t *w, const bt_grammar_edge_t *edge)
{
    const uint32_t head = 0x80u + (edge->counts ? 4u : 0);

    if (edge->kind == BT_GRAMMAR_CALLS) {
        put_byte(w, head + 2);
        put(w, edge->arg);
    } else if (edge->kind == BT_GRAMMAR_TAKES) {
        put_byte(w, head + 3);
        put(w, edge->arg);
        put(w, edge->last - edge->arg);
    } else if (edge->lo < edge->hi) {
        put_byte(w, head + 1);
        put_byte(w, edge->lo);
        put_byte(w, edge->hi);
    } else if (edge->counts || (edge->lo >= 0x80)) {
        put_byte(w, head);
        put_byte(w, edge->lo);
    } else {
        put_byte(w, edge->lo);
    }
}

static void put_state(writer_t *w, uint32_t s)
{
    const bt_grammar_state_t *const state = &w->g->states[s];

    put_head(w, s, state->n_edges + 1u);
    for (uint32_t i = 0; i < state->n_edges; i++) {
        const uint32_t e = state->first_edge + i;
        const bt_grammar_edge_t *const edge = &w->g->edges[e];

        put_symbol(w, edge);
        if (w->is_new[e]) {
            put(w, 0);
        } else if ((i > 0) && (edge[-1].to == edge->to)) {
            put(w, 1);
        } else {
            put(w, (uint64_t)w->number[edge->to] + 2);
        }
    }
}

static uint32_t end_of(const bt_grammar_t *g, uint32_t rule)
{
    return (rule + 1 < g->n_rules) ? g->rules[rule + 1].start : g->n_states;
}

static void write_program(writer_t *w)
{
    const bt_grammar_t *const g = w->g;

    for (const char *s = "BTG"; *s != '\0'; s++) {
        put_byte(w, (uint8_t)*s);
    }
    put(w, BT_GRAMMAR_VERSION);
    put(w, g->n_rules);
    put(w, g->n_states);
    for (uint32_t r = 0; r < g->n_rules; r++) {
        const bt_grammar_rule_t rule = g->rules[r];

        put(w, end_of(g, r) - rule.start);
        put(w, rule.min);
        put(w, (rule.max == BT_GRAMMAR_NO_LIMIT) ? 0 : (uint64_t)rule.max + 1);
    }
    for (uint32_t r = 0; (r < g->n_rules) && bt_grammar_ok(w->c); r++) {
        const uint32_t n = order_states(w, g->rules[r].start, end_of(g, r));
        uint32_t at = 0;

        while ((at < n) && bt_grammar_ok(w->c)) {
            const uint32_t n_literal = put_literal(w, at, n);

            if (n_literal == 0) {
                put_state(w, w->order[at]);
            }
            at += (n_literal > 0) ? n_literal : 1;
        }
    }
}

bt_status_t bt_program_write(bt_grammar_compiler_t *c, const bt_grammar_t *g,
                             const uint8_t **program_p, size_t *bytes_p)
{
    bt_grammar_compiler_t scratch;
    writer_t w = {.c = &scratch, .g = g};
    uint8_t *program = NULL;

    if (!bt_grammar_ok(c)) {
        return c->status;
    }
    bt_grammar_scratch_init(&scratch, c);
    w.bytes = bt_grammar_alloc(&scratch, BT_GRAMMAR_MAX_BYTES, 1);
    w.order = bt_grammar_alloc(&scratch, g->n_states, sizeof(*w.order));
    w.number = bt_grammar_alloc(&scratch, g->n_states, sizeof(*w.number));
    w.seen = bt_grammar_alloc(&scratch, g->n_states, sizeof(*w.seen));
    w.stack = bt_grammar_alloc(&scratch, g->n_states, sizeof(*w.stack));
    w.is_new = bt_grammar_alloc(&scratch, g->n_edges, sizeof(*w.is_new));
    if (bt_grammar_spend(&scratch, (uint64_t)g->n_states + g->n_edges)) {
        write_program(&w);
    }
    if (bt_grammar_ok(&scratch)) {
        program = bt_grammar_alloc(c, w.n, 1);
    }
    if (program != NULL) {
        memcpy(program, w.bytes, w.n);
        *program_p = program;
        *bytes_p = w.n;
    }
    bt_grammar_scratch_fini(&scratch, c);
    return c->status;
}
