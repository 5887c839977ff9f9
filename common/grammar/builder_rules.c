/* SPDX-License-Identifier: Apache-2.0 */
/* Automata of rules. A rule is built from its end to its beginning: a part and
 * the state behind it give the state before it. So a part that is used twice in
 * front of one state, as the rest of a list that may begin here or there, or
 * the node of a graph, is there once. Nothing recurses: the depth of an
 * expression is a client's. */
#include <string.h>

#include "common/grammar/builder_priv.h"

/* ---- which texts there are ---- */

/* Numbers of parts of a sequence. */
typedef struct part_counts {
    uint32_t with_text, with_empty;
    bool with_more;
} part_counts_t;

typedef struct texts {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c; /* scratch */
    uint32_t *first;          /* ranges of `into`, by expression */
    uint32_t *into;           /* expressions that have it as a part, or call it;
                                 once for each time */
    part_counts_t *counts;
    uint32_t *queue;
    uint8_t *known; /* by expression: what its users were told */
    bool *queued;
    uint32_t n_queue;
} texts_t;

/* Returns what an expression takes its texts from; NULL: from itself. */
static const bt_expr_t *const *inputs_of(const bt_grammar_builder_t *b,
                                         const bt_expr_t *x, uint32_t *n_p)
{
    *n_p = 0;
    if (x->kind == BT_EXPR_RULE) {
        *n_p = 1;
        return &b->rules[x->arg].expr;
    }
    if ((x->kind == BT_EXPR_SEQ) || (x->kind == BT_EXPR_ALT) ||
        (x->kind == BT_EXPR_REPEAT)) {
        *n_p = x->n;
        return x->parts;
    }
    return NULL;
}

static bool list_users(texts_t *t)
{
    const bt_grammar_builder_t *b = t->b;
    const uint32_t n = b->n_exprs;
    uint64_t n_inputs = 0;

    t->first = bt_grammar_alloc(t->c, n + 2u, sizeof(*t->first));
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; (i < n) && bt_grammar_ok(t->c); i++) {
            uint32_t n_parts;
            const bt_expr_t *const *parts = inputs_of(b, b->exprs[i], &n_parts);

            if (!bt_grammar_spend(t->c, 1u + n_parts)) {
                return false;
            }
            n_inputs += n_parts;
            for (uint32_t k = 0; k < n_parts; k++) {
                /* first[j + 2] counts, then [j + 1] is where one goes. */
                if (pass == 0) {
                    t->first[parts[k]->index + 2]++;
                } else {
                    t->into[t->first[parts[k]->index + 1]++] = i;
                }
            }
        }
        if (pass == 0) {
            t->into = bt_grammar_alloc(t->c, n_inputs, sizeof(*t->into));
            for (uint32_t i = 2; (t->into != NULL) && (i < n + 2u); i++) {
                t->first[i] += t->first[i - 1];
            }
        }
    }
    return bt_grammar_ok(t->c);
}

/* Returns the texts of an expression, as far as they are known. */
static uint8_t texts_of(const texts_t *t, const bt_expr_t *x)
{
    const part_counts_t *const counts = &t->counts[x->index];
    const bt_dfa_t *const dfa = x->dfa;
    uint8_t has = x->has;

    switch (x->kind) {
    case BT_EXPR_EMPTY:
        return BT_HAS_EMPTY;
    case BT_EXPR_LITERAL:
        return (x->n == 0) ? BT_HAS_EMPTY : BT_HAS_MORE;
    case BT_EXPR_BYTES:
        return (x->lo <= x->hi) ? BT_HAS_MORE : 0;
    case BT_EXPR_TOKENS:
        return (x->arg <= x->last) ? BT_HAS_MORE : 0;
    case BT_EXPR_DFA: /* is trimmed: an edge leads to acceptance */
        if (bt_dfa_is_empty(dfa)) {
            return 0;
        }
        return (uint8_t)((dfa->accepts[0] ? BT_HAS_EMPTY : 0) |
                         (dfa->first[1] > 0 ? BT_HAS_MORE : 0));
    case BT_EXPR_SEQ:
        has |= (counts->with_empty == x->n) ? BT_HAS_EMPTY : 0;
        has |= ((counts->with_text == x->n) && counts->with_more) ? BT_HAS_MORE
                                                                  : 0;
        return has;
    case BT_EXPR_REPEAT:
        has |= ((x->min == 0) || (counts->with_empty > 0)) ? BT_HAS_EMPTY : 0;
        has |= ((x->max > 0) && counts->with_more) ? BT_HAS_MORE : 0;
        return has;
    case BT_EXPR_ALT:
    case BT_EXPR_RULE:
        has |= (counts->with_empty > 0) ? BT_HAS_EMPTY : 0;
        has |= counts->with_more ? BT_HAS_MORE : 0;
        return has;
    case BT_EXPR_NOTHING:
    case BT_EXPR_COUNTED: /* known from the beginning */
        break;
    }
    return has;
}

static void enqueue(texts_t *t, bt_expr_t *x)
{
    x->has = texts_of(t, x);
    if ((x->has != t->known[x->index]) && !t->queued[x->index]) {
        t->queued[x->index] = true;
        t->queue[t->n_queue++] = x->index;
    }
}

/* Tells an expression's users which texts it has now. */
static void tell_users(texts_t *t, uint32_t index)
{
    bt_grammar_builder_t *b = t->b;
    const uint8_t has = b->exprs[index]->has, known = t->known[index];
    const uint8_t new = has &(uint8_t)~known;

    t->known[index] = has;
    for (uint32_t i = t->first[index]; i < t->first[index + 1]; i++) {
        part_counts_t *const counts = &t->counts[t->into[i]];

        counts->with_text += (known == 0) ? 1 : 0;
        counts->with_empty += ((new &BT_HAS_EMPTY) != 0) ? 1 : 0;
        counts->with_more = counts->with_more || ((new &BT_HAS_MORE) != 0);
    }
    for (uint32_t i = t->first[index]; i < t->first[index + 1]; i++) {
        enqueue(t, b->exprs[t->into[i]]);
    }
}

void bt_builder_find_texts(bt_grammar_builder_t *b)
{
    const uint32_t n = b->n_exprs;
    bt_grammar_compiler_t scratch;
    texts_t t = {.b = b, .c = &scratch};

    if (!bt_grammar_ok(b->c)) {
        return;
    }
    bt_grammar_scratch_init(&scratch, b->c);
    t.counts = bt_grammar_alloc(&scratch, n, sizeof(*t.counts));
    t.queue = bt_grammar_alloc(&scratch, n, sizeof(*t.queue));
    t.known = bt_grammar_alloc(&scratch, n, sizeof(*t.known));
    t.queued = bt_grammar_alloc(&scratch, n, sizeof(*t.queued));
    if (list_users(&t)) {
        for (uint32_t i = 0; i < n; i++) {
            enqueue(&t, b->exprs[i]);
        }
        /* An expression is told of at most twice. */
        while ((t.n_queue > 0) && bt_grammar_spend(&scratch, 1)) {
            const uint32_t index = t.queue[--t.n_queue];

            t.queued[index] = false;
            tell_users(&t, index);
        }
    }
    bt_grammar_scratch_fini(&scratch, b->c);
}

/* ---- attempts ---- */

void bt_attempt_begin(bt_attempt_t *attempt, bt_grammar_compiler_t *c,
                      uint64_t fuel)
{
    bt_grammar_scratch_init(&attempt->c, c);
    attempt->c.fuel = (fuel < c->fuel) ? fuel : c->fuel;
    attempt->fuel = attempt->c.fuel;
}

const bt_dfa_t *bt_attempt_end(bt_attempt_t *attempt, bt_grammar_compiler_t *c,
                               const bt_dfa_t *dfa)
{
    const bt_grammar_compiler_t *const scratch = &attempt->c;

    const uint64_t used = attempt->fuel - scratch->fuel;

    c->fuel -= (used < c->fuel) ? used : c->fuel;
    if (scratch->status == BT_ERR_NO_MEMORY) {
        bt_grammar_fail(c, scratch->status, "%s", scratch->why);
    }
    dfa =
        (bt_grammar_ok(scratch) && (dfa != NULL)) ? bt_dfa_copy(c, dfa) : NULL;
    bt_grammar_compiler_fini(&attempt->c);
    return dfa;
}

/* ---- from expressions to automata ---- */

/* Expression that is being built in front of a state. */
typedef struct task {
    const bt_expr_t *x;
    uint32_t to;
    uint32_t n_done; /* parts, or copies */
    uint32_t state;  /* in front of what is done */
    uint32_t loop;
} task_t;

/* Expression that was built in front of a state. */
typedef struct built {
    const bt_expr_t *x;
    uint32_t to, from;
} built_t;

typedef struct build {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c; /* scratch */
    bt_nfa_t *nfa;
    uint32_t unroll; /* states of a repetition that is written out */
    task_t *tasks;
    uint32_t n_tasks, cap_tasks;
    built_t *built;
    uint32_t n_built, cap_built;
    uint32_t *table; /* of built: index, + 1 */
    uint32_t table_mask;
    uint32_t result; /* state in front of the task done last */
} build_t;

static uint32_t slot_of(const build_t *k, const bt_expr_t *x, uint32_t to)
{
    const uint64_t key = (uint64_t)x->index << 32 | to;
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & k->table_mask;

    while ((k->table[slot] != 0) && ((k->built[k->table[slot] - 1].x != x) ||
                                     (k->built[k->table[slot] - 1].to != to))) {
        slot = (slot + 1) & k->table_mask;
    }
    return slot;
}

/* Keeps what was built, if it may be wanted again. */
static void keep(build_t *k, const bt_expr_t *x, uint32_t to, uint32_t from)
{
    if ((x->n_uses < 2) ||
        !bt_grammar_grow(k->c, &k->built, &k->cap_built, k->n_built + 1,
                         sizeof(*k->built))) {
        return;
    }
    if (k->n_built * 2 >= k->table_mask) {
        uint32_t n = 64;

        while (n < k->n_built * 4) {
            n *= 2;
        }
        k->table = bt_grammar_alloc(k->c, n, sizeof(*k->table));
        if (k->table == NULL) {
            return;
        }
        k->table_mask = n - 1;
        for (uint32_t i = 0; i < k->n_built; i++) {
            k->table[slot_of(k, k->built[i].x, k->built[i].to)] = i + 1;
        }
    }
    k->built[k->n_built] = (built_t){.x = x, .to = to, .from = from};
    k->table[slot_of(k, x, to)] = ++k->n_built;
}

/* Wants an expression in front of a state: as the result, perhaps after some
 * tasks. */
static void want(build_t *k, const bt_expr_t *x, uint32_t to)
{
    if (k->n_built > 0) {
        const uint32_t slot = slot_of(k, x, to);

        if (k->table[slot] != 0) {
            k->result = k->built[k->table[slot] - 1].from;
            return;
        }
    }
    if (bt_grammar_spend(k->c, 1) &&
        bt_grammar_grow(k->c, &k->tasks, &k->cap_tasks, k->n_tasks + 1,
                        sizeof(*k->tasks))) {
        k->tasks[k->n_tasks++] = (task_t){.x = x, .to = to, .state = to};
    }
}

static void finish(build_t *k, uint32_t from)
{
    const task_t task = k->tasks[--k->n_tasks];

    if (task.x->kind != BT_EXPR_ALT) {
        keep(k, task.x, task.to, from);
    }
    k->result = from;
}

/* Wants the next part of the last task in front of a state. */
static void want_part(build_t *k, const bt_expr_t *part, uint32_t to)
{
    k->tasks[k->n_tasks - 1].n_done++;
    want(k, part, to);
}

static void build_literal(build_t *k, const task_t *task)
{
    const uint8_t *const bytes = task->x->bytes;
    uint32_t to = task->to;

    for (uint32_t i = task->x->n; i > 0; i--) {
        const uint32_t from = bt_nfa_state(k->nfa);

        bt_nfa_edge(k->nfa, from, bytes[i - 1], bytes[i - 1], to);
        to = from;
    }
    finish(k, to);
}

/* Ends a task with an edge, if there is a text for it, beside nothing. */
static void build_edge(build_t *k, const task_t *task, uint32_t lo, uint32_t hi)
{
    const uint32_t from = bt_nfa_state(k->nfa);

    if ((task->x->has & BT_HAS_MORE) != 0) {
        bt_nfa_edge(k->nfa, from, lo, hi, task->to);
    }
    if ((task->x->has & BT_HAS_EMPTY) != 0) {
        bt_nfa_epsilon(k->nfa, from, task->to);
    }
    finish(k, from);
}

static void build_call(build_t *k, const task_t *task, uint32_t rule)
{
    const uint32_t symbol =
        bt_builder_symbol(k->b, (bt_builder_symbol_t){.arg = rule});

    build_edge(k, task, symbol, symbol);
}

static void build_seq(build_t *k, task_t *task)
{
    const bt_expr_t *const x = task->x;

    task->state = (task->n_done > 0) ? k->result : task->to;
    if (task->n_done == x->n) {
        finish(k, task->state);
    } else {
        want_part(k, x->parts[x->n - 1 - task->n_done], task->state);
    }
}

static void build_alt(build_t *k, task_t *task)
{
    if (task->n_done == 0) {
        task->state = bt_nfa_state(k->nfa);
        /* The node of a graph may be behind itself. */
        keep(k, task->x, task->to, task->state);
    } else {
        bt_nfa_epsilon(k->nfa, task->state, k->result);
    }
    if (task->n_done == task->x->n) {
        finish(k, task->state);
    } else {
        want_part(k, task->x->parts[task->n_done], task->to);
    }
}

/* Least number of texts of what is repeated that are not empty. */
static uint32_t least_of(const bt_expr_t *repeat)
{
    return ((repeat->parts[0]->has & BT_HAS_EMPTY) != 0) ? 0 : repeat->min;
}

/* Returns the rule that counts for a repetition or text. */
static uint32_t rule_of(bt_grammar_builder_t *b, const bt_expr_t *counting)
{
    bt_expr_t *const x = b->exprs[counting->index];

    if (x->rule == 0) {
        const bool repeats = x->kind == BT_EXPR_REPEAT;
        const uint32_t rule =
            bt_builder_counting_rule(b, repeats ? least_of(x) : x->min, x->max);

        if (!bt_grammar_ok(b->c)) {
            return 0;
        }
        b->rules[rule].expr = x;
        b->rules[rule].dfa = x->dfa;
        x->rule = rule + 1;
    }
    return x->rule - 1;
}

/* x{min,}: a loop, and in front of it copies. */
static void build_open_repeat(build_t *k, task_t *task)
{
    const bt_expr_t *const x = task->x;
    const uint32_t min = least_of(x);

    if (task->n_done == 0) {
        task->loop = bt_nfa_state(k->nfa);
        bt_nfa_epsilon(k->nfa, task->loop, task->to);
        want_part(k, x->parts[0], task->loop);
        return;
    }
    if (task->n_done == 1) {
        bt_nfa_epsilon(k->nfa, task->loop, k->result);
    }
    task->state = (min == 0) ? task->loop : k->result;
    if (task->n_done >= min) {
        finish(k, task->state);
    } else {
        want_part(k, x->parts[0], task->state);
    }
}

/* x{min,max}: copies; behind the first min each may be the end. */
static void build_closed_repeat(build_t *k, task_t *task)
{
    const bt_expr_t *const x = task->x;

    if (task->n_done > 0) {
        task->state = k->result;
        if (task->n_done <= x->max - least_of(x)) {
            task->state = bt_nfa_state(k->nfa);
            bt_nfa_epsilon(k->nfa, task->state, task->to);
            bt_nfa_epsilon(k->nfa, task->state, k->result);
        }
    }
    if (task->n_done == x->max) {
        finish(k, task->state);
    } else {
        want_part(k, x->parts[0], task->state);
    }
}

static void build_repeat(build_t *k, task_t *task)
{
    const bt_expr_t *const x = task->x;
    const uint32_t min = least_of(x);
    const bool is_open = x->max == BT_REPEAT_NO_LIMIT;
    const uint64_t copies = !is_open ? x->max : (min > 0) ? min : 1;

    if ((x->has & BT_HAS_MORE) == 0) { /* nothing to repeat */
        const uint32_t dead = bt_nfa_state(k->nfa);

        finish(k, ((x->has & BT_HAS_EMPTY) != 0) ? task->to : dead);
    } else if ((copies > 1) && (copies * x->parts[0]->size > k->unroll)) {
        build_call(k, task, rule_of(k->b, x));
    } else if (is_open) {
        build_open_repeat(k, task);
    } else {
        build_closed_repeat(k, task);
    }
}

/* Does one step of the last task. */
static void step(build_t *k)
{
    task_t *const task = &k->tasks[k->n_tasks - 1];
    const bt_expr_t *const x = task->x;
    uint32_t symbol, state;

    switch (x->kind) {
    case BT_EXPR_NOTHING:
        finish(k, bt_nfa_state(k->nfa));
        break;
    case BT_EXPR_EMPTY:
        finish(k, task->to);
        break;
    case BT_EXPR_LITERAL:
        build_literal(k, task);
        break;
    case BT_EXPR_BYTES:
        build_edge(k, task, x->lo, x->hi);
        break;
    case BT_EXPR_DFA:
        state = bt_nfa_state(k->nfa);
        bt_nfa_include(k->nfa, state, x->dfa, task->to);
        finish(k, state);
        break;
    case BT_EXPR_COUNTED:
        build_call(k, task, rule_of(k->b, x));
        break;
    case BT_EXPR_SEQ:
        build_seq(k, task);
        break;
    case BT_EXPR_ALT:
        build_alt(k, task);
        break;
    case BT_EXPR_REPEAT:
        build_repeat(k, task);
        break;
    case BT_EXPR_TOKENS:
        symbol = bt_builder_symbol(
            k->b, (bt_builder_symbol_t){
                      .arg = x->arg, .last = x->last, .is_token = true});
        build_edge(k, task, symbol, symbol);
        break;
    case BT_EXPR_RULE:
        build_call(k, task, x->arg);
        break;
    }
}

static const bt_dfa_t *build(bt_grammar_builder_t *b,
                             bt_grammar_compiler_t *scratch, const bt_expr_t *x,
                             uint32_t unroll)
{
    build_t k = {
        .b = b, .c = scratch, .nfa = bt_nfa_create(scratch), .unroll = unroll};
    const uint32_t end = bt_nfa_state(k.nfa);

    want(&k, x, end);
    while ((k.n_tasks > 0) && bt_grammar_ok(scratch) && bt_grammar_ok(b->c)) {
        step(&k);
    }
    return bt_nfa_to_dfa(k.nfa, k.result, end);
}

const bt_dfa_t *bt_builder_dfa(bt_grammar_builder_t *b, const bt_expr_t *x)
{
    bt_grammar_compiler_t scratch;
    const bt_dfa_t *dfa = NULL;

    if (bt_grammar_ok(b->c) && x->unrolls) {
        bt_attempt_t attempt;

        bt_attempt_begin(&attempt, b->c, b->c->fuel / 2);
        dfa = build(b, &attempt.c, x, BT_UNROLL_STATES);
        dfa = bt_attempt_end(&attempt, b->c, dfa);
    }
    if ((dfa != NULL) || !bt_grammar_ok(b->c)) {
        return dfa;
    }
    /* Copies of what may be read in several ways can give an automaton of
     * exponential size; a rule that counts cannot. */
    bt_grammar_scratch_init(&scratch, b->c);
    dfa = build(b, &scratch, x, x->unrolls ? 0 : BT_UNROLL_STATES);
    dfa = (dfa != NULL) ? bt_dfa_copy(b->c, dfa) : NULL;
    bt_grammar_scratch_fini(&scratch, b->c);
    return dfa;
}

/* ---- repetitions that count ---- */

bool bt_dfa_reads_twice(const bt_dfa_t *dfa)
{
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        uint32_t plain = dfa->first[s], counting = plain;
        const uint32_t end = dfa->first[s + 1];

        while ((counting < end) &&
               (dfa->edges[counting].lo < BT_SYMBOL_COUNTING)) {
            counting++;
        }
        while ((counting < end) &&
               (dfa->edges[counting].lo < BT_SYMBOL_OTHER) &&
               (dfa->edges[plain].lo < BT_SYMBOL_COUNTING)) {
            const bt_dfa_edge_t *const p = &dfa->edges[plain];
            const uint32_t lo = dfa->edges[counting].lo - BT_SYMBOL_COUNTING;
            const uint32_t hi = dfa->edges[counting].hi - BT_SYMBOL_COUNTING;

            if (p->hi < lo) {
                plain++;
            } else if (hi < p->lo) {
                counting++;
            } else {
                return true;
            }
        }
    }
    return false;
}

/* Adds an edge that counts. */
static void add_counting(bt_grammar_builder_t *b, bt_nfa_t *nfa, uint32_t from,
                         const bt_dfa_edge_t *edge, uint32_t to)
{
    if (edge->lo < BT_SYMBOL_OTHER) {
        bt_nfa_edge(nfa, from, edge->lo + BT_SYMBOL_COUNTING,
                    edge->hi + BT_SYMBOL_COUNTING, to);
        return;
    }
    for (uint32_t y = edge->lo; (y <= edge->hi) && bt_grammar_ok(b->c); y++) {
        bt_builder_symbol_t symbol = b->symbols[y - BT_SYMBOL_OTHER];
        uint32_t counting;

        symbol.counts = true;
        counting = bt_builder_symbol(b, symbol);
        bt_nfa_edge(nfa, from, counting, counting, to);
    }
}

/* Builds a loop of items, each of which counts with its first edge. */
static const bt_dfa_t *build_loop(bt_grammar_builder_t *b,
                                  bt_grammar_compiler_t *scratch,
                                  const bt_dfa_t *item)
{
    bt_nfa_t *nfa = bt_nfa_create(scratch);
    const uint32_t start = bt_nfa_state(nfa), loop = bt_nfa_state(nfa);
    const uint32_t first = loop + 1;

    for (uint32_t s = 0; s < item->n_states; s++) {
        (void)bt_nfa_state(nfa);
    }
    for (uint32_t s = 0; (s < item->n_states) && bt_grammar_ok(scratch); s++) {
        for (uint32_t e = item->first[s]; e < item->first[s + 1]; e++) {
            const bt_dfa_edge_t *const edge = &item->edges[e];

            bt_nfa_edge(nfa, first + s, edge->lo, edge->hi, first + edge->to);
            if (s == 0) {
                add_counting(b, nfa, start, edge, first + edge->to);
                add_counting(b, nfa, loop, edge, first + edge->to);
            }
        }
        if (item->accepts[s]) {
            bt_nfa_epsilon(nfa, first + s, loop);
        }
    }
    return bt_nfa_to_dfa(nfa, start, loop);
}

/* Returns a loop of an item's automaton; NULL: where one item ends and the next
 * begins, some byte would count and not count. */
static const bt_dfa_t *loop_of_bytes(bt_grammar_builder_t *b,
                                     const bt_dfa_t *item)
{
    bt_attempt_t attempt;
    const bt_dfa_t *dfa;

    bt_attempt_begin(&attempt, b->c, b->c->fuel / 4);
    dfa = bt_attempt_end(&attempt, b->c, build_loop(b, &attempt.c, item));
    return ((dfa != NULL) && !bt_dfa_reads_twice(dfa)) ? dfa : NULL;
}

/* Returns a loop of calls of a rule. */
static const bt_dfa_t *loop_of_calls(bt_grammar_builder_t *b,
                                     const bt_expr_t *x, const bt_dfa_t *item)
{
    const uint32_t rule = bt_builder_rule(b, NULL);
    bt_nfa_t *nfa = bt_nfa_create(b->c);
    const uint32_t start = bt_nfa_state(nfa), loop = bt_nfa_state(nfa);
    uint32_t call;

    if (!bt_grammar_ok(b->c)) {
        return NULL;
    }
    b->rules[rule].expr = x;
    b->rules[rule].dfa = item;
    call = bt_builder_symbol(
        b, (bt_builder_symbol_t){.arg = rule, .counts = true});
    bt_nfa_edge(nfa, start, call, call, loop);
    bt_nfa_edge(nfa, loop, call, call, loop);
    return bt_nfa_to_dfa(nfa, start, loop);
}

static const bt_dfa_t *loop_of(bt_grammar_builder_t *b, const bt_expr_t *repeat)
{
    const bt_expr_t *const x = repeat->parts[0];
    const bt_dfa_t *item = bt_builder_without_empty(b, bt_builder_dfa(b, x));
    const bt_dfa_t *dfa;

    if (item == NULL) {
        return NULL;
    }
    dfa = loop_of_bytes(b, item);
    return ((dfa != NULL) || !bt_grammar_ok(b->c)) ? dfa
                                                   : loop_of_calls(b, x, item);
}

/* ---- rules ---- */

void bt_builder_compile(bt_grammar_builder_t *b, uint32_t rule)
{
    const bt_expr_t *const x = b->rules[rule].expr;
    const bt_dfa_t *dfa;

    if (!bt_grammar_ok(b->c) || (b->rules[rule].dfa != NULL)) {
        return;
    }
    dfa = bt_rule_has_bounds(&b->rules[rule])
              ? loop_of(b, x)
              : bt_builder_without_empty(b, bt_builder_dfa(b, x));
    b->rules[rule].dfa = dfa; /* b->rules may have moved */
}
