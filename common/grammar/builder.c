/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, rules and symbols. */
#include "common/grammar/builder.h"

#include <string.h>

#include "common/grammar/builder_priv.h"

#define MAX_RULES 32768u

bt_grammar_builder_t *bt_builder_create(bt_grammar_compiler_t *c)
{
    bt_grammar_builder_t *b = bt_grammar_alloc(c, 1, sizeof(*b));

    if (b != NULL) {
        b->c = c;
    }
    return b;
}

static bool is_ok(const bt_grammar_builder_t *b)
{
    return (b != NULL) && bt_grammar_ok(b->c);
}

/* ---- expressions ---- */

static uint32_t saturate(uint64_t n)
{
    return (n < UINT32_MAX) ? (uint32_t)n : UINT32_MAX;
}

bt_expr_t *bt_expr_create(bt_grammar_builder_t *b, bt_expr_kind_t kind)
{
    bt_expr_t *x;

    if (!is_ok(b) || !bt_grammar_spend(b->c, 1) ||
        !bt_grammar_grow(b->c, &b->exprs, &b->cap_exprs, b->n_exprs + 1,
                         sizeof(bt_expr_t *))) {
        return NULL;
    }
    x = bt_grammar_alloc(b->c, 1, sizeof(*x));
    if (x != NULL) {
        x->kind = kind;
        x->size = 1;
        x->index = b->n_exprs;
        b->exprs[b->n_exprs++] = x;
    }
    return x;
}

const bt_expr_t *bt_expr_nothing(bt_grammar_builder_t *b)
{
    return bt_expr_create(b, BT_EXPR_NOTHING);
}

const bt_expr_t *bt_expr_empty(bt_grammar_builder_t *b)
{
    return bt_expr_create(b, BT_EXPR_EMPTY);
}

void bt_builder_spell_json(bt_grammar_builder_t *b, bool spells)
{
    if (b != NULL) {
        b->spells_json = spells;
    }
}

const bt_expr_t *bt_expr_literal(bt_grammar_builder_t *b, const void *bytes,
                                 size_t n)
{
    const bool spells = (b != NULL) && b->spells_json && (n > 0);
    bt_expr_t *x;
    void *copy;

    if (spells) {
        const char *const text = bytes;

        return bt_expr_dfa(b, bt_dfa_of_texts(b->c, &text, &n, 1));
    }
    x = bt_expr_create(b, BT_EXPR_LITERAL);
    if ((x == NULL) || !bt_grammar_spend(b->c, n)) {
        return NULL;
    }
    copy = bt_grammar_alloc(b->c, n, 1);
    if (copy == NULL) {
        return NULL;
    }
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    x->bytes = copy;
    x->n = x->size = (uint32_t)n; /* below the budget */
    return x;
}

const bt_expr_t *bt_expr_bytes(bt_grammar_builder_t *b, uint8_t lo, uint8_t hi)
{
    bt_expr_t *x;

    if ((b != NULL) && b->spells_json) {
        bt_nfa_t *nfa = bt_nfa_create(b->c);
        const uint32_t from = bt_nfa_state(nfa), to = bt_nfa_state(nfa);

        bt_nfa_edge(nfa, from, lo, hi, to);
        return bt_expr_dfa(b, bt_nfa_to_dfa(nfa, from, to));
    }
    x = bt_expr_create(b, BT_EXPR_BYTES);
    if (x != NULL) {
        x->lo = lo;
        x->hi = hi;
    }
    return x;
}

const bt_expr_t *bt_expr_dfa(bt_grammar_builder_t *b, const bt_dfa_t *dfa)
{
    bt_expr_t *x;

    if ((b != NULL) && b->spells_json && (dfa != NULL)) {
        dfa = bt_builder_spelled(b, dfa);
    }
    x = (dfa != NULL) ? bt_expr_create(b, BT_EXPR_DFA) : NULL;
    if (x != NULL) {
        x->dfa = dfa;
        x->size = dfa->n_states;
    }
    return x;
}

/* Makes an expression of parts. */
static bt_expr_t *combine(bt_grammar_builder_t *b, bt_expr_kind_t kind,
                          const bt_expr_t *const *parts, uint32_t n)
{
    bt_expr_t *x = bt_expr_create(b, kind);
    const bt_expr_t **copy;
    uint64_t size = 1;

    if ((x == NULL) || !bt_grammar_spend(b->c, n)) {
        return NULL;
    }
    copy = bt_grammar_alloc(b->c, n, sizeof(*copy));
    for (uint32_t i = 0; (copy != NULL) && (i < n); i++) {
        if (parts[i] == NULL) {
            return NULL; /* the compiler has failed */
        }
        copy[i] = parts[i];
        b->exprs[parts[i]->index]->n_uses++;
        x->unrolls = x->unrolls || parts[i]->unrolls;
        size = saturate(size + parts[i]->size);
    }
    x->parts = copy;
    x->n = n;
    x->size = (uint32_t)size;
    return (copy != NULL) ? x : NULL;
}

const bt_expr_t *bt_expr_seq(bt_grammar_builder_t *b,
                             const bt_expr_t *const *parts, uint32_t n)
{
    return combine(b, BT_EXPR_SEQ, parts, n);
}

const bt_expr_t *bt_expr_alt(bt_grammar_builder_t *b,
                             const bt_expr_t *const *parts, uint32_t n)
{
    return combine(b, BT_EXPR_ALT, parts, n);
}

const bt_expr_t *bt_expr_repeat(bt_grammar_builder_t *b, const bt_expr_t *x,
                                uint32_t min, uint32_t max)
{
    const bool is_open = max == BT_REPEAT_NO_LIMIT;
    /* Copies beside the one in a loop. */
    const uint64_t copies = is_open ? (min > 0 ? min - 1u : 0) + 1u : max;
    bt_expr_t *repeat;

    if (min > max) {
        return bt_expr_nothing(b);
    }
    repeat = combine(b, BT_EXPR_REPEAT, &x, 1);
    if (repeat != NULL) {
        const uint32_t size = saturate(copies * x->size);

        repeat->min = min;
        repeat->max = max;
        /* Over the limit it is a call of a rule. */
        repeat->size = ((copies <= 1) || (size <= BT_UNROLL_STATES)) ? size : 1;
        repeat->unrolls =
            repeat->unrolls || ((copies > 1) && (size <= BT_UNROLL_STATES));
    }
    return repeat;
}

/* A node is one of its ways on: each a sequence of an expression and the node
 * behind it. */
const bt_expr_t *bt_expr_graph(bt_grammar_builder_t *b, uint32_t n_nodes,
                               const bt_expr_way_t *ways, uint32_t n_ways)
{
    bt_expr_t **nodes;
    const bt_expr_t **parts;
    uint32_t *n_parts;
    const bt_expr_t *empty = bt_expr_empty(b);
    uint64_t size = n_nodes;

    BT_ASSERT(n_nodes >= 2);
    if ((empty == NULL) ||
        !bt_grammar_spend(b->c, (uint64_t)n_nodes + n_ways)) {
        return NULL;
    }
    nodes = bt_grammar_alloc(b->c, n_nodes, sizeof(*nodes));
    n_parts = bt_grammar_alloc(b->c, n_nodes, sizeof(*n_parts));
    parts = bt_grammar_alloc(b->c, n_ways + 1u, sizeof(*parts));
    for (uint32_t i = 0; (i < n_nodes) && bt_grammar_ok(b->c); i++) {
        nodes[i] = bt_expr_create(b, BT_EXPR_ALT);
    }
    if (!bt_grammar_ok(b->c)) {
        return NULL;
    }
    for (uint32_t i = 0; i < n_ways; i++) {
        n_parts[ways[i].from]++;
    }
    n_parts[1]++; /* the end */
    for (uint32_t i = 0, at = 0; i < n_nodes; i++) {
        const uint32_t n = n_parts[i];

        nodes[i]->parts = &parts[at];
        nodes[i]->n_uses = 2; /* from any number of nodes */
        n_parts[i] = at;      /* that of its next part */
        at += n;
    }
    parts[n_parts[1]++] = empty;
    nodes[1]->n++;
    for (uint32_t i = 0; i < n_ways; i++) {
        bt_expr_t *const from = nodes[ways[i].from];
        const bt_expr_t *const way[] = {(ways[i].x != NULL) ? ways[i].x : empty,
                                        nodes[ways[i].to]};
        const bt_expr_t *const x = combine(b, BT_EXPR_SEQ, way, 2);

        if (x == NULL) {
            return NULL;
        }
        parts[n_parts[ways[i].from]++] = x;
        from->n++;
        nodes[0]->unrolls = nodes[0]->unrolls || way[0]->unrolls;
        size = saturate(size + way[0]->size);
    }
    nodes[0]->size = (uint32_t)size;
    return nodes[0];
}

const bt_expr_t *bt_expr_tokens(bt_grammar_builder_t *b, uint32_t first,
                                uint32_t last)
{
    bt_expr_t *x = bt_expr_create(b, BT_EXPR_TOKENS);

    if (x != NULL) {
        x->arg = first;
        x->last = last;
    }
    return x;
}

const bt_expr_t *bt_expr_token(bt_grammar_builder_t *b, uint32_t id)
{
    return bt_expr_tokens(b, id, id);
}

const bt_expr_t *bt_expr_rule(bt_grammar_builder_t *b, uint32_t rule)
{
    bt_expr_t *x = bt_expr_create(b, BT_EXPR_RULE);

    if (x != NULL) {
        x->arg = rule;
    }
    return x;
}

/* ---- rules ---- */

uint32_t bt_builder_rule(bt_grammar_builder_t *b, const char *name)
{
    if (!is_ok(b) || !bt_grammar_spend(b->c, 1)) {
        return 0;
    }
    if (b->n_rules == MAX_RULES) {
        bt_grammar_fail(b->c, BT_ERR_TOO_LARGE,
                        "the grammar has more than %u rules", MAX_RULES);
        return 0;
    }
    if (!bt_grammar_grow(b->c, &b->rules, &b->cap_rules, b->n_rules + 1,
                         sizeof(*b->rules))) {
        return 0;
    }
    b->rules[b->n_rules] =
        (bt_builder_rule_t){.name = name, .max = BT_REPEAT_NO_LIMIT};
    return b->n_rules++;
}

uint32_t bt_builder_counting_rule(bt_grammar_builder_t *b, uint32_t min,
                                  uint32_t max)
{
    const uint32_t rule = bt_builder_rule(b, NULL);

    if (bt_grammar_ok(b->c)) {
        b->rules[rule].min = min;
        b->rules[rule].max = max;
    }
    return rule;
}

void bt_builder_define(bt_grammar_builder_t *b, uint32_t rule,
                       const bt_expr_t *x)
{
    if (is_ok(b) && (x != NULL)) {
        BT_ASSERT(rule < b->n_rules);
        b->rules[rule].expr = x;
    }
}

/* ---- symbols ---- */

static bool same_symbol(const bt_builder_symbol_t *a,
                        const bt_builder_symbol_t *b)
{
    return (a->arg == b->arg) && (a->last == b->last) &&
           (a->is_token == b->is_token) && (a->counts == b->counts);
}

/* Returns where the table has a symbol, or would have it. */
static uint32_t slot_of(const bt_grammar_builder_t *b,
                        const bt_builder_symbol_t *symbol)
{
    const uint64_t key = (uint64_t)symbol->arg << 32 ^
                         (uint64_t)symbol->last << 2 ^
                         (symbol->is_token ? 2u : 0) ^ (symbol->counts ? 1 : 0);
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & b->table_mask;

    while ((b->table[slot] != 0) &&
           !same_symbol(&b->symbols[b->table[slot] - 1], symbol)) {
        slot = (slot + 1) & b->table_mask;
    }
    return slot;
}

/* Makes the table four times as large as the number of symbols. */
static bool grow_table(bt_grammar_builder_t *b)
{
    uint32_t n = 64;

    while (n < b->n_symbols * 4) {
        n *= 2;
    }
    b->table = bt_grammar_alloc(b->c, n, sizeof(*b->table));
    if (b->table == NULL) {
        return false;
    }
    b->table_mask = n - 1;
    for (uint32_t i = 0; i < b->n_symbols; i++) {
        b->table[slot_of(b, &b->symbols[i])] = i + 1;
    }
    return true;
}

uint32_t bt_builder_symbol(bt_grammar_builder_t *b, bt_builder_symbol_t symbol)
{
    uint32_t slot;

    if (!bt_grammar_spend(b->c, 1) ||
        ((b->n_symbols * 2 >= b->table_mask) && !grow_table(b)) ||
        !bt_grammar_grow(b->c, &b->symbols, &b->cap_symbols, b->n_symbols + 1,
                         sizeof(*b->symbols))) {
        return BT_SYMBOL_OTHER;
    }
    slot = slot_of(b, &symbol);
    if (b->table[slot] == 0) {
        b->symbols[b->n_symbols++] = symbol;
        b->table[slot] = b->n_symbols;
    }
    return BT_SYMBOL_OTHER + b->table[slot] - 1;
}

/* ---- automata ---- */

const bt_dfa_t *bt_builder_without_empty(bt_grammar_builder_t *b,
                                         const bt_dfa_t *dfa)
{
    if ((dfa == NULL) || bt_dfa_is_empty(dfa) || !dfa->accepts[0]) {
        return dfa;
    }
    if (b->empty == NULL) {
        static const char *const texts[] = {""};
        static const size_t lens[] = {0};

        b->empty = bt_dfa_of_texts(b->c, texts, lens, 1);
    }
    return (b->empty != NULL)
               ? bt_dfa_combine(b->c, BT_DFA_MINUS, dfa, b->empty)
               : NULL;
}
