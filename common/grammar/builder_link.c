/* SPDX-License-Identifier: Apache-2.0 */
/* From automata of rules to a program:
 *
 *     reach      all rules that the root uses, and their automata
 *     order      rules before those that call them; left recursion
 *     share      equal rules are one
 *     merge      rules into their callers: small ones, those called once, and
 *                those whose first byte would leave it open which one is read
 *     write      program.c; without merging, where that is too large
 */
#include <string.h>

#include "common/base/hash.h"
#include "common/grammar/builder_priv.h"

#define NONE UINT32_MAX

#define MERGED_GROWTH   128u /* edges that a merged rule may add to a program */
#define MERGED_CONFLICT 1024u /* of a rule whose first byte leaves it open */
#define MERGED_ONCE     4096u /* of a rule that is called once */
#define MERGE_ROUNDS    6u

typedef struct byte_set {
    uint64_t bits[4];
} byte_set_t;

/* Facts of a rule. */
typedef struct fact {
    byte_set_t first; /* bytes with which its texts begin */
    uint32_t same;    /* rule that is used instead */
    uint32_t n_calls;
    uint32_t size;       /* with the small rules that it calls */
    uint32_t index, low; /* of the walk; 0: not met */
    bool on_stack;
    bool is_recursive;
    bool is_small; /* is merged into its callers */
    bool has_first;
} fact_t;

/* Calls of a rule that a walk is at. */
typedef struct visit {
    uint32_t rule;
    uint32_t at, end;
} visit_t;

typedef struct linker {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c;
    uint32_t root;
    uint32_t *rules; /* that the root uses, callees first */
    uint32_t n_rules, cap_rules;
    fact_t *facts; /* by rule */
    uint32_t cap_facts;
    visit_t *visits;
    uint32_t *stack;
    uint32_t n_stack, n_index;
    uint64_t merge_fuel;
} linker_t;

static const bt_dfa_t *dfa_of(const linker_t *k, uint32_t rule)
{
    return k->b->rules[rule].dfa;
}

/* Adds the calls of a range of edges to a rule's list. */
static void list_calls_of(linker_t *k, bt_builder_rule_t *r, uint32_t *cap_p,
                          uint32_t begin, uint32_t end)
{
    for (uint32_t e = begin; e < end; e++) {
        const bt_dfa_edge_t *const edge = &r->dfa->edges[e];

        for (uint32_t y = edge->lo; (y >= BT_SYMBOL_OTHER) && (y <= edge->hi);
             y++) {
            if (!bt_grammar_spend(k->c, 1) ||
                !bt_grammar_grow(k->c, &r->calls, cap_p, r->n_calls + 1,
                                 sizeof(*r->calls))) {
                return;
            }
            if (bt_symbol_is_call(k->b, y)) {
                r->calls[r->n_calls++] = k->b->symbols[y - BT_SYMBOL_OTHER].arg;
            }
        }
    }
}

/* Lists the calls of a rule's automaton, unless that is done. */
static void list_calls(linker_t *k, uint32_t rule)
{
    bt_builder_rule_t *const r = &k->b->rules[rule];
    const bt_dfa_t *const dfa = r->dfa;
    uint32_t cap = 0;

    if (!bt_grammar_ok(k->c) || (r->listed == dfa)) {
        return;
    }
    r->listed = dfa;
    r->calls = NULL;
    r->n_calls = 0;
    if (bt_grammar_spend(k->c, dfa->first[dfa->n_states])) {
        list_calls_of(k, r, &cap, 0, dfa->first[dfa->n_states > 0 ? 1 : 0]);
        r->n_first = r->n_calls;
        list_calls_of(k, r, &cap, dfa->first[dfa->n_states > 0 ? 1 : 0],
                      dfa->first[dfa->n_states]);
    }
}

/* Begins with the calls of a rule, or of its start. */
static visit_t visit(linker_t *k, uint32_t rule, bool of_start)
{
    const bt_builder_rule_t *const r = &k->b->rules[rule];

    list_calls(k, rule);
    return (visit_t){.rule = rule, .end = of_start ? r->n_first : r->n_calls};
}

/* Returns the next rule that is called; NONE: there is none, or the compilation
 * has failed. */
static uint32_t next_call(linker_t *k, visit_t *v)
{
    return ((v->at < v->end) && bt_grammar_spend(k->c, 1))
               ? k->b->rules[v->rule].calls[v->at++]
               : NONE;
}

/* ---- reach ---- */

/* Adds a rule to those that the root uses, and makes its automaton. */
static bool reach_rule(linker_t *k, uint32_t rule)
{
    bt_builder_compile(k->b, rule);
    if (!bt_grammar_ok(k->c) ||
        !bt_grammar_grow(k->c, &k->facts, &k->cap_facts, k->b->n_rules,
                         sizeof(*k->facts)) ||
        !bt_grammar_grow(k->c, &k->rules, &k->cap_rules, k->n_rules + 1,
                         sizeof(*k->rules))) {
        return false;
    }
    if (k->facts[rule].n_calls == 0) {
        k->facts[rule].n_calls = 1;
        k->rules[k->n_rules++] = rule;
    }
    return true;
}

static bool reach_all(linker_t *k)
{
    if (!reach_rule(k, k->root)) {
        return false;
    }
    for (uint32_t i = 0; i < k->n_rules; i++) {
        visit_t v = visit(k, k->rules[i], false);
        uint32_t callee;

        while ((callee = next_call(k, &v)) != NONE) {
            if (!reach_rule(k, callee)) {
                return false;
            }
        }
    }
    k->visits = bt_grammar_alloc(k->c, k->n_rules, sizeof(*k->visits));
    k->stack = bt_grammar_alloc(k->c, k->n_rules, sizeof(*k->stack));
    return bt_grammar_ok(k->c);
}

/* ---- left recursion ---- */

static void add_range(byte_set_t *set, uint32_t lo, uint32_t hi)
{
    for (uint32_t byte = lo; byte <= hi; byte++) {
        set->bits[byte / 64] |= 1ull << (byte % 64);
    }
}

/* Adds the bytes of a state's edges; those of its calls are not there. */
static void add_bytes(byte_set_t *set, const bt_dfa_t *dfa, uint32_t s)
{
    for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
        const bt_dfa_edge_t *const edge = &dfa->edges[e];

        if (edge->lo < BT_SYMBOL_OTHER) {
            add_range(set, edge->lo % BT_SYMBOL_COUNTING,
                      edge->hi % BT_SYMBOL_COUNTING);
        }
    }
}

static void fail_left_recursion(linker_t *k, uint32_t rule, uint32_t n_visits)
{
    const char *name = NULL;

    for (uint32_t i = n_visits; (i > 0) && (name == NULL); i--) {
        name = k->b->rules[k->visits[i - 1].rule].name;
        if (k->visits[i - 1].rule == rule) {
            break;
        }
    }
    bt_grammar_fail(k->c, BT_ERR_UNSUPPORTED,
                    "rule %s begins with itself (left recursion)",
                    (name != NULL) ? name : "of a repetition");
}

/* Finds the first bytes of a rule, and of those with which it begins. */
static bool find_first(linker_t *k, uint32_t root)
{
    uint32_t n = 0;

    if (k->facts[root].has_first) {
        return true;
    }
    k->visits[n++] = visit(k, root, true);
    k->facts[root].on_stack = true;
    while (n > 0) {
        const uint32_t rule = k->visits[n - 1].rule;
        fact_t *const fact = &k->facts[rule];
        const uint32_t callee = next_call(k, &k->visits[n - 1]);

        if (!bt_grammar_ok(k->c)) {
            return false;
        }
        if (callee == NONE) {
            add_bytes(&fact->first, dfa_of(k, rule), 0);
            fact->has_first = true;
            fact->on_stack = false;
            n--;
            if (n > 0) {
                for (uint32_t i = 0; i < 4; i++) {
                    k->facts[k->visits[n - 1].rule].first.bits[i] |=
                        fact->first.bits[i];
                }
            }
        } else if (k->facts[callee].has_first) {
            for (uint32_t i = 0; i < 4; i++) {
                fact->first.bits[i] |= k->facts[callee].first.bits[i];
            }
        } else if (k->facts[callee].on_stack) {
            fail_left_recursion(k, callee, n);
            return false;
        } else {
            k->facts[callee].on_stack = true;
            k->visits[n++] = visit(k, callee, true);
        }
    }
    return true;
}

/* ---- order ---- */

static void enter(linker_t *k, uint32_t rule, uint32_t n_visits)
{
    fact_t *const fact = &k->facts[rule];

    fact->index = fact->low = ++k->n_index;
    fact->on_stack = true;
    k->stack[k->n_stack++] = rule;
    k->visits[n_visits] = visit(k, rule, false);
}

/* Ends a component of rules that call one another, if a rule is the first one
 * of it that was met. */
static void leave(linker_t *k, uint32_t rule)
{
    bool is_recursive;

    if (k->facts[rule].low != k->facts[rule].index) {
        return;
    }
    is_recursive = k->stack[k->n_stack - 1] != rule;
    for (uint32_t member = NONE; member != rule;) {
        member = k->stack[--k->n_stack];
        k->facts[member].on_stack = false;
        k->facts[member].is_recursive =
            k->facts[member].is_recursive || is_recursive;
    }
}

/* Orders rules: callees first, but for those that call one another.
 * R. Tarjan, "Depth-first search and linear graph algorithms", 1972. */
static bool order_rules(linker_t *k)
{
    uint32_t n = 0, n_done = 0;

    enter(k, k->root, n++);
    while (n > 0) {
        const uint32_t rule = k->visits[n - 1].rule;
        const uint32_t callee = next_call(k, &k->visits[n - 1]);
        fact_t *const fact = &k->facts[rule];

        if (!bt_grammar_ok(k->c)) {
            return false;
        }
        if (callee == NONE) {
            k->rules[n_done++] = rule;
            leave(k, rule);
            n--;
            if ((n > 0) && (fact->low < k->facts[k->visits[n - 1].rule].low)) {
                k->facts[k->visits[n - 1].rule].low = fact->low;
            }
        } else if (callee == rule) {
            fact->is_recursive = true;
        } else if (k->facts[callee].index == 0) {
            enter(k, callee, n++);
        } else if (k->facts[callee].on_stack &&
                   (k->facts[callee].index < fact->low)) {
            fact->low = k->facts[callee].index;
        }
    }
    k->n_rules = n_done;
    return true;
}

/* Finds and orders the rules that the root uses, and what there is to know of
 * them. */
static bool look_at_rules(linker_t *k)
{
    k->n_rules = k->n_stack = k->n_index = 0;
    if (k->facts != NULL) {
        memset(k->facts, 0, k->cap_facts * sizeof(*k->facts));
    }
    if (!reach_all(k)) {
        return false;
    }
    for (uint32_t i = 0; i < k->n_rules; i++) {
        if (!find_first(k, k->rules[i])) {
            return false;
        }
    }
    if (!order_rules(k)) {
        return false;
    }
    for (uint32_t i = 0; i < k->n_rules; i++) {
        k->facts[k->rules[i]].n_calls = 0;
        k->facts[k->rules[i]].same = k->rules[i];
    }
    for (uint32_t i = 0; i < k->n_rules; i++) {
        visit_t v = visit(k, k->rules[i], false);
        uint32_t callee;

        while ((callee = next_call(k, &v)) != NONE) {
            k->facts[callee].n_calls++;
        }
    }
    return bt_grammar_ok(k->c);
}

/* ---- share ---- */

/* Returns a rule's automaton with the symbols of the rules that are used
 * instead; NULL: it took too much. */
static const bt_dfa_t *rename_calls(linker_t *k, const bt_dfa_t *dfa)
{
    bt_grammar_builder_t *b = k->b;
    bt_attempt_t attempt;
    bt_nfa_t *nfa;
    uint32_t end;

    bt_attempt_begin(&attempt, k->c, k->c->fuel / 4);
    nfa = bt_nfa_create(&attempt.c);
    for (uint32_t s = 0; s <= dfa->n_states; s++) {
        end = bt_nfa_state(nfa);
    }
    for (uint32_t s = 0; (s < dfa->n_states) && bt_grammar_ok(&attempt.c);
         s++) {
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            const bt_dfa_edge_t *const edge = &dfa->edges[e];

            if (edge->hi < BT_SYMBOL_OTHER) {
                bt_nfa_edge(nfa, s, edge->lo, edge->hi, edge->to);
                continue;
            }
            for (uint32_t y = edge->lo; y <= edge->hi; y++) {
                bt_builder_symbol_t symbol = b->symbols[y - BT_SYMBOL_OTHER];
                uint32_t renamed = y;

                if (!symbol.is_token) {
                    symbol.arg = k->facts[symbol.arg].same;
                    renamed = bt_builder_symbol(b, symbol);
                }
                bt_nfa_edge(nfa, s, renamed, renamed, edge->to);
            }
        }
        if (dfa->accepts[s]) {
            bt_nfa_epsilon(nfa, s, end);
        }
    }
    return bt_attempt_end(&attempt, k->c, bt_nfa_to_dfa(nfa, 0, end));
}

static bool calls_renamed(linker_t *k, uint32_t rule)
{
    visit_t v = visit(k, rule, false);
    uint32_t callee;

    while ((callee = next_call(k, &v)) != NONE) {
        if (k->facts[callee].same != callee) {
            return true;
        }
    }
    return false;
}

static bool same_rule(const bt_builder_rule_t *a, const bt_builder_rule_t *b)
{
    return (a->min == b->min) && (a->max == b->max) &&
           bt_dfa_equal(a->dfa, b->dfa);
}

static uint32_t hash_of(const bt_builder_rule_t *rule)
{
    const bt_dfa_t *const dfa = rule->dfa;
    const uint32_t n_edges = dfa->first[dfa->n_states];

    return (uint32_t)bt_hash64(dfa->edges, n_edges * sizeof(*dfa->edges),
                               (uint64_t)rule->min << 32 ^ rule->max);
}

/* Lets equal rules be one. Rules that call one another are taken as different:
 * their authors have named them. */
static bool share_rules(linker_t *k)
{
    const bt_builder_rule_t *const rules = k->b->rules;
    uint32_t n_table = 16;
    uint32_t *table; /* rule, + 1; 0: free */

    while (n_table < k->n_rules * 2) {
        n_table *= 2;
    }
    table = bt_grammar_alloc(k->c, n_table, sizeof(*table));
    for (uint32_t i = 0; (i < k->n_rules) && bt_grammar_ok(k->c); i++) {
        const uint32_t rule = k->rules[i];
        const bt_dfa_t *dfa;
        uint32_t slot;

        if (calls_renamed(k, rule)) {
            dfa = rename_calls(k, rules[rule].dfa);
            k->b->rules[rule].dfa = (dfa != NULL) ? dfa : rules[rule].dfa;
        }
        if (!bt_grammar_spend(k->c, rules[rule].dfa->n_states) ||
            (rule == k->root)) {
            continue;
        }
        slot = hash_of(&rules[rule]) & (n_table - 1);
        while ((table[slot] != 0) &&
               !same_rule(&rules[table[slot] - 1], &rules[rule])) {
            slot = (slot + 1) & (n_table - 1);
        }
        if (table[slot] == 0) {
            table[slot] = rule + 1;
        }
        k->facts[rule].same = table[slot] - 1;
    }
    return bt_grammar_ok(k->c);
}

/* ---- merge ---- */

static uint32_t size_of(const bt_dfa_t *dfa)
{
    return dfa->n_states + dfa->first[dfa->n_states];
}

/* True for a rule whose automaton may stand in the place of its calls. */
static bool can_merge(const linker_t *k, uint32_t rule)
{
    return !k->facts[rule].is_recursive &&
           !bt_rule_has_bounds(&k->b->rules[rule]);
}

/* Returns the rule that a symbol calls without counting; NONE: none. */
static uint32_t plain_call(const linker_t *k, uint32_t symbol)
{
    const bt_builder_symbol_t *const other =
        &k->b->symbols[symbol - BT_SYMBOL_OTHER];

    return (other->is_token || other->counts) ? NONE : other->arg;
}

/* Finds the rules that are merged into all their callers, and the sizes of all
 * with those merged into them. */
static bool find_small(linker_t *k)
{
    for (uint32_t i = 0; i < k->n_rules; i++) {
        const uint32_t rule = k->rules[i];
        fact_t *const fact = &k->facts[rule];
        visit_t v = visit(k, rule, false);
        uint64_t size = size_of(dfa_of(k, rule));
        uint32_t callee;

        while ((callee = next_call(k, &v)) != NONE) {
            size += k->facts[callee].is_small ? k->facts[callee].size : 0;
        }
        fact->size = (size < MERGED_ONCE) ? (uint32_t)size : MERGED_ONCE;
        fact->is_small =
            can_merge(k, rule) && (rule != k->root) &&
            ((fact->n_calls <= 1)
                 ? fact->size < MERGED_ONCE
                 : (fact->n_calls - 1) * (uint64_t)fact->size <= MERGED_GROWTH);
    }
    return bt_grammar_ok(k->c);
}

/* Automaton with others in the place of their calls, while it is made. */
typedef struct merge {
    linker_t *k;
    bt_grammar_compiler_t *c; /* scratch */
    bt_nfa_t *nfa;
    const bool *merged; /* by symbol; NULL: small rules */
    struct site *sites; /* automata that are to be added */
    uint32_t n_sites, cap_sites;
    uint64_t size; /* of those that were added */
} merge_t;

/* Call site: between two states. */
typedef struct site {
    uint32_t rule, from, to;
} site_t;

static void add_site(merge_t *m, uint32_t rule, uint32_t from, uint32_t to)
{
    if (bt_grammar_grow(m->c, &m->sites, &m->cap_sites, m->n_sites + 1,
                        sizeof(*m->sites))) {
        m->sites[m->n_sites++] = (site_t){.rule = rule, .from = from, .to = to};
    }
}

/* Adds edges of symbols that are calls or tokens. */
static void add_others(merge_t *m, const bt_dfa_edge_t *edge, uint32_t from,
                       uint32_t to, bool at_top)
{
    for (uint32_t y = edge->lo; y <= edge->hi; y++) {
        const uint32_t callee = plain_call(m->k, y);
        const bool is_merged =
            (callee != NONE) &&
            ((m->merged == NULL) ? m->k->facts[callee].is_small
                                 : at_top && m->merged[y - BT_SYMBOL_OTHER]);

        if (!bt_grammar_spend(m->c, 1)) {
            return;
        }
        if (is_merged) {
            add_site(m, callee, from, to);
        } else {
            bt_nfa_edge(m->nfa, from, y, y, to);
        }
    }
}

static void inline_site(merge_t *m, site_t site, bool at_top)
{
    const bt_dfa_t *const dfa = dfa_of(m->k, site.rule);
    uint32_t first = 0;

    m->size += size_of(dfa);
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        const uint32_t state = bt_nfa_state(m->nfa);

        first = (s == 0) ? state : first;
    }
    bt_nfa_epsilon(m->nfa, site.from, first);
    for (uint32_t s = 0; (s < dfa->n_states) && bt_grammar_ok(m->c); s++) {
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            const bt_dfa_edge_t *const edge = &dfa->edges[e];

            if (edge->hi < BT_SYMBOL_OTHER) {
                bt_nfa_edge(m->nfa, first + s, edge->lo, edge->hi,
                            first + edge->to);
            } else {
                add_others(m, edge, first + s, first + edge->to, at_top);
            }
        }
        if (dfa->accepts[s]) {
            bt_nfa_epsilon(m->nfa, first + s, site.to);
        }
    }
}

/* Merges rules into one: those of some symbols, or all that are small and those
 * in turn. Nothing changes where that would take too much.
 * @return false: nothing changed */
static bool merge_into(linker_t *k, uint32_t rule, const bool *merged)
{
    bt_builder_rule_t *const r = &k->b->rules[rule];
    bt_attempt_t attempt;
    merge_t m = {.k = k, .c = &attempt.c, .merged = merged};
    const bt_dfa_t *dfa;
    uint32_t start, end;

    bt_attempt_begin(&attempt, k->c, k->merge_fuel);
    m.nfa = bt_nfa_create(&attempt.c);
    start = bt_nfa_state(m.nfa);
    end = bt_nfa_state(m.nfa);
    add_site(&m, rule, start, end);
    for (uint32_t i = 0; (i < m.n_sites) && bt_grammar_ok(&attempt.c); i++) {
        inline_site(&m, m.sites[i], i == 0);
    }
    dfa = (m.n_sites > 1) ? bt_nfa_to_dfa(m.nfa, start, end) : NULL;
    k->merge_fuel -= attempt.fuel - attempt.c.fuel;
    dfa = bt_attempt_end(&attempt, k->c, dfa);
    if ((dfa == NULL) || (size_of(dfa) > 2 * m.size + MERGED_GROWTH) ||
        (bt_rule_has_bounds(r) && bt_dfa_reads_twice(dfa))) {
        return false;
    }
    r->dfa = dfa;
    return true;
}

/* Marks, by symbol, the calls of a state that may begin as something else of it
 * does. @return false: there are none */
static bool mark_conflicts(const linker_t *k, const bt_dfa_t *dfa, uint32_t s,
                           bool *marked)
{
    byte_set_t seen = {0}, twice = {0};
    bool any = false;

    add_bytes(&seen, dfa, s);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            for (uint32_t y = dfa->edges[e].lo;
                 (y >= BT_SYMBOL_OTHER) && (y <= dfa->edges[e].hi) &&
                 bt_grammar_spend(k->c, 1);
                 y++) {
                const uint32_t callee = plain_call(k, y);
                const byte_set_t *first;

                if (!bt_symbol_is_call(k->b, y)) {
                    continue;
                }
                first = &k->facts[k->b->symbols[y - BT_SYMBOL_OTHER].arg].first;
                for (uint32_t i = 0; i < 4; i++) {
                    if (pass == 0) {
                        twice.bits[i] |= seen.bits[i] & first->bits[i];
                        seen.bits[i] |= first->bits[i];
                    } else if (((twice.bits[i] & first->bits[i]) != 0) &&
                               (callee != NONE) && can_merge(k, callee) &&
                               (size_of(dfa_of(k, callee)) <=
                                MERGED_CONFLICT)) {
                        marked[y - BT_SYMBOL_OTHER] = any = true;
                    }
                }
            }
        }
    }
    return any;
}

/* Merges the calls of a rule that leave open at a first byte which one is read.
 * False: there are none, or they cannot be merged. */
static bool merge_conflicts(linker_t *k, uint32_t rule, bool *marked)
{
    const bt_dfa_t *const dfa = dfa_of(k, rule);
    bool any = false;

    memset(marked, 0, k->b->n_symbols * sizeof(*marked));
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        any = mark_conflicts(k, dfa, s, marked) || any;
    }
    return any && bt_grammar_ok(k->c) && merge_into(k, rule, marked);
}

/* Merges rules into their callers. */
static bool merge_rules(linker_t *k)
{
    bool *marked = bt_grammar_alloc(k->c, k->b->n_symbols, sizeof(*marked));

    if ((marked == NULL) || !find_small(k)) {
        return false;
    }
    k->merge_fuel = k->c->fuel / 3;
    for (uint32_t i = 0; (i < k->n_rules) && bt_grammar_ok(k->c); i++) {
        if (!k->facts[k->rules[i]].is_small) {
            (void)merge_into(k, k->rules[i], NULL);
        }
    }
    for (uint32_t i = 0; (i < k->n_rules) && bt_grammar_ok(k->c); i++) {
        /* Calls of those merged may be in conflict too. */
        for (uint32_t n = 0; n < MERGE_ROUNDS; n++) {
            if (!merge_conflicts(k, k->rules[i], marked)) {
                break;
            }
        }
    }
    return bt_grammar_ok(k->c);
}

/* ---- write ---- */

/* Writes the program of the rules as they are. */
static void write_rules(linker_t *k, bt_grammar_compiler_t *c,
                        const uint8_t **program_p, size_t *bytes_p)
{
    const bt_builder_rule_t **list =
        bt_grammar_alloc(c, k->n_rules, sizeof(*list));
    uint32_t *number_of =
        bt_grammar_alloc(c, k->b->n_rules, sizeof(*number_of));
    bt_rules_t rules = {.list = list,
                        .n = k->n_rules,
                        .number_of = number_of,
                        .symbols = k->b->symbols};
    bt_grammar_t *g;

    if (!bt_grammar_ok(c)) {
        return;
    }
    for (uint32_t i = 0; i < k->n_rules; i++) { /* the root is the last one */
        const uint32_t rule = k->rules[k->n_rules - 1 - i];

        list[i] = &k->b->rules[rule];
        number_of[rule] = i;
    }
    g = bt_program_lay_out(c, &rules);
    if (g != NULL) {
        bt_program_compress(c, g);
        (void)bt_program_write(c, g, program_p, bytes_p);
    }
}

/* Writes the program, into the arena of the compilation.
 * @return false: it is too large, which is no failure if it need not fit, or
 *         the compilation has failed */
static bool write_program(linker_t *k, bool must_fit, const uint8_t **program_p,
                          size_t *bytes_p)
{
    bt_grammar_compiler_t scratch;
    const uint8_t *program = NULL;
    uint8_t *copy = NULL;
    size_t bytes = 0;

    bt_grammar_scratch_init(&scratch, k->c);
    write_rules(k, &scratch, &program, &bytes);
    if (bt_grammar_ok(&scratch)) {
        copy = bt_grammar_alloc(k->c, bytes, 1);
    } else if (!must_fit && (scratch.status == BT_ERR_TOO_LARGE) &&
               (scratch.fuel > 0)) {
        scratch.status = BT_OK;
    }
    if (copy != NULL) {
        memcpy(copy, program, bytes);
        *program_p = copy;
        *bytes_p = bytes;
    }
    bt_grammar_scratch_fini(&scratch, k->c);
    return copy != NULL;
}

static void link_rules(linker_t *k, const uint8_t **program_p, size_t *bytes_p)
{
    const bt_dfa_t **before;
    uint32_t *rules, n_rules;

    if (!look_at_rules(k) || !share_rules(k) || !look_at_rules(k)) {
        return;
    }
    n_rules = k->n_rules;
    before = bt_grammar_alloc(k->c, n_rules, sizeof(*before));
    rules = bt_grammar_alloc(k->c, n_rules, sizeof(*rules));
    if (!bt_grammar_ok(k->c)) {
        return;
    }
    for (uint32_t i = 0; i < n_rules; i++) {
        rules[i] = k->rules[i];
        before[i] = dfa_of(k, rules[i]);
    }
    if (!merge_rules(k) || !look_at_rules(k) || !share_rules(k) ||
        !look_at_rules(k) || write_program(k, false, program_p, bytes_p) ||
        !bt_grammar_ok(k->c)) {
        return;
    }
    for (uint32_t i = 0; i < n_rules; i++) {
        k->b->rules[rules[i]].dfa = before[i];
    }
    if (look_at_rules(k)) {
        (void)write_program(k, true, program_p, bytes_p);
    }
}

/* ---- all ---- */

static bool check_defined(bt_grammar_builder_t *b, uint32_t root)
{
    if ((root >= b->n_rules) || (b->rules[root].expr == NULL)) {
        bt_grammar_fail(b->c, BT_ERR_INVALID_PARAM,
                        "the grammar has no root rule");
        return false;
    }
    for (uint32_t i = 0; i < b->n_exprs; i++) {
        const bt_expr_t *const x = b->exprs[i];

        if ((x->kind == BT_EXPR_RULE) && (b->rules[x->arg].expr == NULL)) {
            const char *const name = b->rules[x->arg].name;

            bt_grammar_fail(b->c, BT_ERR_INVALID_PARAM,
                            "rule %s is used and not defined",
                            (name != NULL) ? name : "without a name");
            return false;
        }
    }
    return true;
}

bt_status_t bt_builder_finish(bt_grammar_builder_t *b, uint32_t root,
                              const uint8_t **program_p, size_t *bytes_p)
{
    const bt_expr_t *x;
    linker_t k = {.b = b};

    if (b == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    k.c = b->c;
    if (!bt_grammar_ok(b->c) || !check_defined(b, root)) {
        return b->c->status;
    }
    bt_builder_find_texts(b);
    x = b->rules[root].expr;
    if (bt_grammar_ok(b->c) && (x->has == 0)) {
        bt_grammar_fail(b->c, BT_ERR_INVALID_PARAM,
                        "no text is in the grammar");
    }
    /* A rule of its own, that nothing calls: it may have the empty text. */
    k.root = bt_builder_rule(b, "root");
    if (bt_grammar_ok(b->c)) {
        b->rules[k.root].expr = x;
        b->rules[k.root].dfa = bt_builder_dfa(b, x);
    }
    if (bt_grammar_ok(b->c)) {
        link_rules(&k, program_p, bytes_p);
    }
    return b->c->status;
}
