/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/grammar.h"

#include <string.h>

#include "common/base/alloc.h"

/* Target of an edge that is not known yet. */
#define AS_BEFORE UINT32_MAX

typedef struct loader {
    const uint8_t *at, *end;
    const char *why; /* first fault */
    bt_status_t status;
    bt_grammar_t *grammar;
    uint32_t cap_edges;
    uint32_t begin, behind; /* states of the rule that is read */
    uint32_t *waiting;      /* edges to new states; the last one is next */
    uint32_t n_waiting, cap_waiting;
} loader_t;

static void fail(loader_t *l, bt_status_t status, const char *why)
{
    if (l->status == BT_OK) {
        l->status = status;
        l->why = why;
    }
    l->at = l->end;
}

static uint32_t get_byte(loader_t *l)
{
    if (l->at == l->end) {
        fail(l, BT_ERR_BAD_MESSAGE, "the program is cut");
        return 0;
    }
    return *l->at++;
}

/* Reads a number below 2^35. */
static uint64_t get(loader_t *l)
{
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 35; shift += 7) {
        const uint32_t byte = get_byte(l);

        number |= (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) {
            return number;
        }
    }
    fail(l, BT_ERR_BAD_MESSAGE, "a number is too long");
    return 0;
}

/* Reads a number below a limit. */
static uint32_t get_below(loader_t *l, uint64_t limit)
{
    const uint64_t number = get(l);

    if (number >= limit) {
        fail(l, BT_ERR_BAD_MESSAGE, "a number is out of range");
        return 0;
    }
    return (uint32_t)number;
}

/* Returns the state of a number in the rule. */
static uint32_t get_state(loader_t *l)
{
    return l->begin + get_below(l, l->behind - l->begin);
}

static bool load_rules(loader_t *l)
{
    bt_grammar_t *g = l->grammar;
    uint32_t n_states = 0;

    for (uint32_t r = 0; (r < g->n_rules) && (l->status == BT_OK); r++) {
        const uint32_t n = get_below(l, (uint64_t)g->n_states - n_states + 1);
        const uint32_t min = get_below(l, UINT32_MAX);
        const uint32_t max = get_below(l, (uint64_t)UINT32_MAX + 1);

        g->rules[r] = (bt_grammar_rule_t){
            .start = n_states,
            .min = min,
            .max = (max == 0) ? BT_GRAMMAR_NO_LIMIT : max - 1};
        if (n == 0) {
            fail(l, BT_ERR_BAD_MESSAGE, "a rule has no state");
        }
        if (min > g->rules[r].max) {
            fail(l, BT_ERR_BAD_MESSAGE, "a rule's min is above its max");
        }
        for (uint32_t s = n_states; s < n_states + n; s++) {
            g->states[s].rule = r;
        }
        n_states += n;
    }
    if (n_states != g->n_states) {
        fail(l, BT_ERR_BAD_MESSAGE, "states are of no rule");
    }
    return l->status == BT_OK;
}

/* Begins the next state, to which the edge leads that waits for one. */
static bt_grammar_state_t *add_state(loader_t *l, uint32_t s, bool accepts,
                                     uint32_t otherwise)
{
    bt_grammar_state_t *const state = &l->grammar->states[s];

    if (l->n_waiting > 0) {
        l->grammar->edges[l->waiting[--l->n_waiting]].to = s;
    }
    state->first_edge = l->grammar->n_edges;
    state->accepts = accepts;
    state->otherwise = otherwise;
    return state;
}

static void add_edge(loader_t *l, bt_grammar_state_t *state,
                     const bt_grammar_edge_t *edge)
{
    bt_grammar_t *const g = l->grammar;

    if (!bt_array_grow(&g->edges, &l->cap_edges, g->n_edges + 1,
                       sizeof(*g->edges))) {
        fail(l, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    g->edges[g->n_edges++] = *edge;
    state->n_edges++;
    if (edge->kind == BT_GRAMMAR_READS) {
        state->n_byte_edges++;
    }
}

/* Lets the edge added last wait for a new state. */
static void await_state(loader_t *l)
{
    if (!bt_array_grow(&l->waiting, &l->cap_waiting, l->n_waiting + 1,
                       sizeof(*l->waiting))) {
        fail(l, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    l->waiting[l->n_waiting++] = l->grammar->n_edges - 1;
}

/* @return behind its states */
static uint32_t load_literal(loader_t *l, uint32_t s, bool accepts,
                             uint32_t otherwise)
{
    const uint32_t n = get_below(l, (uint64_t)l->behind - s + 1);

    if (n == 0) {
        fail(l, BT_ERR_BAD_MESSAGE, "a literal is empty");
    }
    for (uint32_t i = 0; (i < n) && (l->status == BT_OK); i++) {
        bt_grammar_state_t *const state =
            add_state(l, s + i, accepts, otherwise);
        const uint8_t byte = (uint8_t)get_byte(l);

        add_edge(l, state,
                 &(bt_grammar_edge_t){.kind = BT_GRAMMAR_READS,
                                      .lo = byte,
                                      .hi = byte,
                                      .to = AS_BEFORE});
        if (l->status == BT_OK) {
            await_state(l);
        }
    }
    return s + n;
}

/* Reads what an edge reads, calls or takes. */
static void load_symbol(loader_t *l, bt_grammar_edge_t *edge)
{
    const uint32_t head = get_byte(l);

    edge->counts = (head >= 0x80) && ((head & 4) != 0);
    if (head < 0x80) {
        edge->lo = edge->hi = (uint8_t)head;
    } else if (head >= 0x88) {
        fail(l, BT_ERR_BAD_MESSAGE, "an edge is of no kind");
    } else if ((head & 3) <= 1) {
        edge->lo = (uint8_t)get_byte(l);
        edge->hi = ((head & 3) == 1) ? (uint8_t)get_byte(l) : edge->lo;
        if (edge->lo > edge->hi) {
            fail(l, BT_ERR_BAD_MESSAGE, "a range of bytes is empty");
        }
    } else if ((head & 3) == 2) {
        edge->kind = BT_GRAMMAR_CALLS;
        edge->arg = get_below(l, l->grammar->n_rules);
        if (edge->arg == 0) {
            fail(l, BT_ERR_BAD_MESSAGE, "the root is called");
        }
    } else {
        edge->kind = BT_GRAMMAR_TAKES;
        edge->arg = get_below(l, UINT32_MAX);
        edge->last = edge->arg + get_below(l, UINT32_MAX - edge->arg);
    }
}

static void load_edge(loader_t *l, bt_grammar_state_t *state)
{
    bt_grammar_t *const g = l->grammar;
    const bt_grammar_edge_t *const before =
        (state->n_edges > 0) ? &g->edges[g->n_edges - 1] : NULL;
    bt_grammar_edge_t edge = {.to = AS_BEFORE};
    uint32_t to;

    load_symbol(l, &edge);
    if ((edge.kind == BT_GRAMMAR_READS) && (before != NULL) &&
        ((before->kind != BT_GRAMMAR_READS) || (before->hi >= edge.lo))) {
        fail(l, BT_ERR_BAD_MESSAGE, "bytes of a state are not in order");
    }
    to = get_below(l, (uint64_t)l->behind - l->begin + 2);
    if ((to == 1) && (before == NULL)) {
        fail(l, BT_ERR_BAD_MESSAGE, "an edge has none before it");
    }
    if (l->status != BT_OK) {
        return;
    }
    if (to > 1) {
        edge.to = l->begin + to - 2;
    }
    add_edge(l, state, &edge);
    if ((to == 0) && (l->status == BT_OK)) {
        await_state(l);
    }
}

/* Puts the edges that wait since `begin` in the order of their turns. */
static void reverse_waiting(loader_t *l, uint32_t begin)
{
    uint32_t end = l->n_waiting;

    while (begin + 1 < end) {
        const uint32_t edge = l->waiting[begin];

        l->waiting[begin++] = l->waiting[--end];
        l->waiting[end] = edge;
    }
}

/* Reads a state, or the states of a literal. @return behind them */
static uint32_t load_state(loader_t *l, uint32_t s)
{
    const uint64_t head = get(l);
    const bool accepts = (head & 1) != 0;
    const uint32_t otherwise =
        ((head & 2) != 0) ? get_state(l) : BT_GRAMMAR_NONE;
    const uint64_t n = head >> 2; /* edges, + 1 */
    bt_grammar_state_t *state;
    uint32_t n_waiting;

    if (n == 0) {
        return load_literal(l, s, accepts, otherwise);
    }
    if (n - 1 > UINT16_MAX) {
        fail(l, BT_ERR_BAD_MESSAGE, "a state has too many edges");
    }
    state = add_state(l, s, accepts, otherwise);
    n_waiting = l->n_waiting;
    for (uint64_t e = 1; (e < n) && (l->status == BT_OK); e++) {
        load_edge(l, state);
    }
    reverse_waiting(l, n_waiting);
    return s + 1;
}

static void load_states(loader_t *l)
{
    bt_grammar_t *const g = l->grammar;
    uint32_t s = 0;

    for (uint32_t r = 0; (r < g->n_rules) && (l->status == BT_OK); r++) {
        const uint32_t first_edge = g->n_edges;

        l->begin = s;
        l->behind = (r + 1 < g->n_rules) ? g->rules[r + 1].start : g->n_states;
        while ((s < l->behind) && (l->status == BT_OK)) {
            s = load_state(l, s);
        }
        if (l->n_waiting > 0) {
            fail(l, BT_ERR_BAD_MESSAGE, "an edge leads nowhere");
        }
        for (uint32_t e = first_edge; (l->status == BT_OK) && (e < g->n_edges);
             e++) {
            if (g->edges[e].to == AS_BEFORE) {
                g->edges[e].to = g->edges[e - 1].to;
            }
        }
    }
    if ((l->status == BT_OK) && (l->at != l->end)) {
        fail(l, BT_ERR_BAD_MESSAGE, "bytes are left behind the program");
    }
}

/* Walks rules that begin with one another depth first. @return false: no memory
 */
static bool check_left_recursion(loader_t *l)
{
    const bt_grammar_t *const g = l->grammar;
    uint32_t *next = bt_calloc(g->n_rules, sizeof(*next)); /* edge, + 1 */
    uint32_t *stack = bt_calloc(g->n_rules, sizeof(*stack));
    bool *done = bt_calloc(g->n_rules, sizeof(*done));
    const bool ok = (next != NULL) && (stack != NULL) && (done != NULL);

    for (uint32_t r = 0; ok && (r < g->n_rules) && (l->status == BT_OK); r++) {
        uint32_t n = 0;

        if (next[r] == 0) {
            stack[n++] = r;
            next[r] = 1;
        }
        while ((n > 0) && (l->status == BT_OK)) {
            const uint32_t rule = stack[n - 1];
            const bt_grammar_state_t *const s =
                &g->states[g->rules[rule].start];
            const uint32_t e = next[rule]++ - 1;
            const bt_grammar_edge_t *const edge = &g->edges[s->first_edge + e];

            if (e >= s->n_edges) {
                done[rule] = true;
                n--;
            } else if (edge->kind != BT_GRAMMAR_CALLS) {
                continue;
            } else if (next[edge->arg] == 0) {
                stack[n++] = edge->arg;
                next[edge->arg] = 1;
            } else if (!done[edge->arg]) {
                fail(l, BT_ERR_BAD_MESSAGE, "a rule begins with itself");
            }
        }
    }
    bt_free(next);
    bt_free(stack);
    bt_free(done);
    return ok;
}

static void check(loader_t *l)
{
    const bt_grammar_t *const g = l->grammar;

    for (uint32_t r = 1; (r < g->n_rules) && (l->status == BT_OK); r++) {
        if (g->states[g->rules[r].start].accepts && (g->rules[r].min == 0)) {
            fail(l, BT_ERR_BAD_MESSAGE, "a rule has the empty text");
        }
    }
    for (uint32_t s = 0; (s < g->n_states) && (l->status == BT_OK); s++) {
        const uint32_t other = g->states[s].otherwise;

        if ((other != BT_GRAMMAR_NONE) &&
            (g->states[other].otherwise != BT_GRAMMAR_NONE)) {
            fail(l, BT_ERR_BAD_MESSAGE, "an otherwise has one itself");
        }
    }
    if ((l->status == BT_OK) && !check_left_recursion(l)) {
        fail(l, BT_ERR_NO_MEMORY, "out of memory");
    }
}

static void load(loader_t *l)
{
    bt_grammar_t *g = l->grammar;

    for (const char *s = "BTG"; *s != '\0'; s++) {
        if (get_byte(l) != (uint8_t)*s) {
            fail(l, BT_ERR_BAD_MESSAGE, "no program of a grammar");
            return;
        }
    }
    if (get(l) != BT_GRAMMAR_VERSION) {
        fail(l, BT_ERR_UNSUPPORTED, "the program is of another version");
        return;
    }
    g->n_rules = get_below(l, BT_GRAMMAR_MAX_RULES + 1);
    g->n_states = get_below(l, BT_GRAMMAR_MAX_STATES + 1);
    if ((l->status == BT_OK) && (g->n_rules == 0)) {
        fail(l, BT_ERR_BAD_MESSAGE, "the program has no rule");
    }
    if (l->status != BT_OK) {
        return;
    }
    g->rules = bt_calloc(g->n_rules, sizeof(*g->rules));
    g->states = bt_calloc((size_t)g->n_states + 1, sizeof(*g->states));
    if ((g->rules == NULL) || (g->states == NULL)) {
        fail(l, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    if (load_rules(l)) {
        load_states(l);
    }
    if (l->status == BT_OK) {
        check(l);
    }
}

bt_status_t bt_grammar_load(const void *program, size_t bytes,
                            const char **why_p, bt_grammar_t **grammar_p)
{
    loader_t l = {.at = program};

    if (bytes > BT_GRAMMAR_MAX_BYTES) {
        *why_p = "the program is too large";
        return BT_ERR_TOO_LARGE;
    }
    l.end = l.at + bytes;
    l.grammar = bt_calloc(1, sizeof(*l.grammar));
    if (l.grammar == NULL) {
        *why_p = "out of memory";
        return BT_ERR_NO_MEMORY;
    }
    load(&l);
    bt_free(l.waiting);
    if (l.status != BT_OK) {
        bt_grammar_free(l.grammar);
        *why_p = l.why;
        return l.status;
    }
    *grammar_p = l.grammar;
    return BT_OK;
}

void bt_grammar_free(bt_grammar_t *grammar)
{
    if (grammar != NULL) {
        bt_free(grammar->rules);
        bt_free(grammar->states);
        bt_free(grammar->edges);
        bt_free(grammar);
    }
}

const bt_grammar_edge_t *bt_grammar_read(const bt_grammar_t *grammar,
                                         uint32_t state, uint8_t byte)
{
    while (state != BT_GRAMMAR_NONE) {
        const bt_grammar_state_t *const s = &grammar->states[state];
        uint32_t lo = s->first_edge;
        uint32_t hi = lo + s->n_byte_edges;

        while (lo < hi) {
            const uint32_t mid = lo + (hi - lo) / 2;

            if (grammar->edges[mid].hi < byte) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        if ((lo < s->first_edge + s->n_byte_edges) &&
            (grammar->edges[lo].lo <= byte)) {
            return &grammar->edges[lo];
        }
        state = s->otherwise;
    }
    return NULL;
}
