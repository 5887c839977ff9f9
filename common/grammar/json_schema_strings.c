/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/code_set.h"
#include "common/grammar/json_schema_priv.h"
#include "common/grammar/regex_syntax.h"

/* Sets of strings: lists of automata with bounds of the length. */

#define MAX_TEXTS  64u   /* of a list */
#define BAKED      2048u /* states of an automaton that has its bounds in it */
#define MAX_LENGTH 1024u /* bounds of strings that must be one automaton */

const bt_dfa_t *schema_any_text(schema_t *s)
{
    if (s->any_text == NULL) {
        s->any_text = bt_dfa_any_text(s->c);
    }
    return s->any_text;
}

const bt_dfa_t *schema_pattern(schema_t *s, const bt_json_node_t *pattern)
{
    const bt_dfa_t *dfa;

    if (!bt_grammar_ok(s->c)) {
        return NULL;
    }
    dfa = bt_regex_dfa(s->c, pattern->text, pattern->len, BT_REGEX_SEARCH);
    if (dfa == NULL) {
        schema_locate(s, pattern);
    }
    return dfa;
}

/* ---- lengths ---- */

/* Lengths of an automaton's texts, in code points. */
typedef struct lengths {
    uint32_t shortest, longest; /* longest may be SCHEMA_NO_LIMIT */
} lengths_t;

static uint32_t code_points(const bt_dfa_edge_t *edge)
{
    return ((edge->lo < 0x80) || (edge->lo >= 0xC0)) ? 1 : 0;
}

/* States in an order in which edges lead forward.
 * @return their number; less than all: there are cycles */
static uint32_t sort_states(schema_t *s, const bt_dfa_t *dfa, uint32_t *order)
{
    uint32_t *n_in = bt_grammar_alloc(s->c, dfa->n_states, sizeof(*n_in));
    uint32_t n = 0;

    if ((n_in == NULL) || !bt_grammar_spend(s->c, dfa->first[dfa->n_states])) {
        return 0;
    }
    for (uint32_t e = 0; e < dfa->first[dfa->n_states]; e++) {
        n_in[dfa->edges[e].to]++;
    }
    if (n_in[0] == 0) {
        order[n++] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = dfa->first[order[i]]; e < dfa->first[order[i] + 1];
             e++) {
            if (--n_in[dfa->edges[e].to] == 0) {
                order[n++] = dfa->edges[e].to;
            }
        }
    }
    return n;
}

/* Finds the shortest text: states by their distance, those of the same
 * distance in the order in which they are found. */
static uint32_t shortest_of(schema_t *s, const bt_dfa_t *dfa)
{
    const uint32_t n = dfa->n_states;
    uint32_t *now = bt_grammar_alloc(s->c, n, sizeof(*now));
    uint32_t *then = bt_grammar_alloc(s->c, n, sizeof(*then));
    bool *seen = bt_grammar_alloc(s->c, n, sizeof(*seen));
    bool *queued = bt_grammar_alloc(s->c, n, sizeof(*queued));
    uint32_t n_now = 1;

    if ((now == NULL) || (then == NULL) || (seen == NULL) || (queued == NULL) ||
        !bt_grammar_spend(s->c, dfa->first[n])) {
        return 0;
    }
    now[0] = 0;
    seen[0] = true;
    for (uint32_t length = 0; n_now > 0; length++) {
        uint32_t n_then = 0;
        uint32_t *swap = now;

        for (uint32_t i = 0; i < n_now; i++) {
            if (dfa->accepts[now[i]]) {
                return length;
            }
            for (uint32_t e = dfa->first[now[i]]; e < dfa->first[now[i] + 1];
                 e++) {
                const uint32_t to = dfa->edges[e].to;

                if (seen[to]) {
                    continue;
                }
                if (code_points(&dfa->edges[e]) == 0) {
                    seen[to] = true;
                    now[n_now++] = to; /* each state once */
                } else if (!queued[to]) {
                    queued[to] = true;
                    then[n_then++] = to;
                }
            }
        }
        n_now = 0;
        for (uint32_t i = 0; i < n_then; i++) {
            if (!seen[then[i]]) {
                seen[then[i]] = true;
                then[n_now++] = then[i];
            }
            queued[then[i]] = false;
        }
        now = then;
        then = swap;
    }
    return 0;
}

static lengths_t lengths_of(schema_t *s, const bt_dfa_t *dfa)
{
    const uint32_t n = dfa->n_states;
    lengths_t lengths = {.shortest = shortest_of(s, dfa)};
    uint32_t *order = bt_grammar_alloc(s->c, n, sizeof(*order));
    uint32_t *longest = bt_grammar_alloc(s->c, n, sizeof(*longest));

    if ((order == NULL) || (longest == NULL)) {
        return lengths;
    }
    if (sort_states(s, dfa, order) < n) {
        lengths.longest = SCHEMA_NO_LIMIT;
        return lengths;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t state = order[i];

        if (dfa->accepts[state] && (longest[state] > lengths.longest)) {
            lengths.longest = longest[state];
        }
        for (uint32_t e = dfa->first[state]; e < dfa->first[state + 1]; e++) {
            const uint32_t then = longest[state] + code_points(&dfa->edges[e]);

            if (then > longest[dfa->edges[e].to]) {
                longest[dfa->edges[e].to] = then;
            }
        }
    }
    return lengths;
}

uint32_t schema_count_texts(schema_t *s, const bt_dfa_t *dfa, uint32_t limit)
{
    const uint32_t n = dfa->n_states;
    uint32_t *order = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*order));
    uint64_t *ways = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*ways));
    uint64_t total = 0;

    if ((n == 0) || (order == NULL) || (ways == NULL) ||
        (sort_states(s, dfa, order) < n)) {
        return (n == 0) ? 0 : limit;
    }
    ways[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t state = order[i];

        total += dfa->accepts[state] ? ways[state] : 0;
        if (total >= limit) {
            return limit;
        }
        for (uint32_t e = dfa->first[state]; e < dfa->first[state + 1]; e++) {
            const bt_dfa_edge_t *const edge = &dfa->edges[e];

            ways[edge->to] += ways[state] * (edge->hi - edge->lo + 1);
            ways[edge->to] = (ways[edge->to] < limit) ? ways[edge->to] : limit;
        }
    }
    return (uint32_t)total;
}

/* Returns the texts of an automaton that have min to max code points. */
static const bt_dfa_t *bounded(schema_t *s, const bt_dfa_t *dfa, uint32_t min,
                               uint32_t max)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);
    const uint32_t last = (max == SCHEMA_NO_LIMIT) ? min : max;
    uint32_t from = start;
    const bt_dfa_t *by_length;

    for (uint32_t i = 0; (i < last) && bt_grammar_ok(s->c); i++) {
        const uint32_t next = bt_nfa_state(nfa);

        if (i >= min) {
            bt_nfa_epsilon(nfa, from, end);
        }
        bt_nfa_code_points(nfa, from, 0, BT_CODE_POINT_MAX, next);
        from = next;
    }
    if (max == SCHEMA_NO_LIMIT) {
        bt_nfa_code_points(nfa, from, 0, 0x10FFFF, from);
    }
    bt_nfa_epsilon(nfa, from, end);
    by_length = bt_nfa_to_dfa(nfa, start, end);
    return (dfa == NULL) ? by_length
                         : bt_dfa_combine(s->c, BT_DFA_AND, dfa, by_length);
}

/* ---- lists ---- */

schema_strings_t schema_any_string(schema_t *s)
{
    return schema_strings_of(s, NULL, 0, SCHEMA_NO_LIMIT);
}

bool schema_strings_are_any(schema_strings_t a)
{
    return (a.n == 1) && (a.items[0].dfa == NULL) && (a.items[0].min == 0) &&
           (a.items[0].max == SCHEMA_NO_LIMIT);
}

/* Brings bounds into a form in which those without effect are none.
 * @return false: there is no text */
static bool normalize(schema_t *s, schema_texts_t *x)
{
    const uint32_t last = (x->max == SCHEMA_NO_LIMIT) ? x->min : x->max;
    lengths_t lengths;

    if ((x->min > x->max) || !bt_grammar_ok(s->c)) {
        return false;
    }
    if (x->dfa == NULL) {
        return true;
    }
    if (schema_dfa_is_empty(x->dfa)) {
        return false;
    }
    lengths = lengths_of(s, x->dfa);
    if ((lengths.shortest > x->max) || (lengths.longest < x->min)) {
        return false;
    }
    x->min = (x->min <= lengths.shortest) ? 0 : x->min;
    x->max = (x->max >= lengths.longest) ? SCHEMA_NO_LIMIT : x->max;
    if (((x->min > 0) || (x->max != SCHEMA_NO_LIMIT)) &&
        ((uint64_t)x->dfa->n_states * (last + 1ull) <= BAKED)) {
        x->dfa = bounded(s, x->dfa, x->min, x->max);
        x->min = 0;
        x->max = SCHEMA_NO_LIMIT;
        return (x->dfa != NULL) && !schema_dfa_is_empty(x->dfa);
    }
    if (schema_dfa_equal(x->dfa, schema_any_text(s))) {
        x->dfa = NULL;
    }
    return true;
}

static void append(schema_t *s, schema_strings_t *list, schema_texts_t x)
{
    schema_texts_t *items;

    if (list->n == MAX_TEXTS) {
        bt_grammar_fail(s->c, BT_ERR_TOO_LARGE,
                        "the schema has more than %u combinations of strings "
                        "for one value",
                        MAX_TEXTS);
        return;
    }
    items = bt_grammar_alloc(s->c, (size_t)list->n + 1, sizeof(*items));
    if (items == NULL) {
        return;
    }
    if (list->n > 0) {
        memcpy(items, list->items, list->n * sizeof(*items));
    }
    items[list->n++] = x;
    list->items = items;
}

static bool covers(const schema_texts_t *a, const schema_texts_t *b)
{
    return (a->dfa == NULL) && (a->min <= b->min) && (a->max >= b->max);
}

/* Adds texts to a list; those of the same bounds become one automaton. */
static void add(schema_t *s, schema_strings_t *list, schema_texts_t x)
{
    schema_strings_t out = {0};

    if (!normalize(s, &x)) {
        return;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const schema_texts_t have = list->items[i];

        if (covers(&have, &x)) {
            return;
        }
        if (covers(&x, &have)) {
            continue;
        }
        if ((have.min == x.min) && (have.max == x.max)) {
            x.dfa = bt_dfa_combine(s->c, BT_DFA_OR, have.dfa, x.dfa);
            if ((x.dfa == NULL) || !normalize(s, &x)) {
                return;
            }
            continue;
        }
        append(s, &out, have);
    }
    append(s, &out, x);
    *list = out;
}

schema_strings_t schema_strings_of(schema_t *s, const bt_dfa_t *dfa,
                                   uint32_t min, uint32_t max)
{
    schema_strings_t list = {0};

    add(s, &list, (schema_texts_t){.dfa = dfa, .min = min, .max = max});
    return list;
}

schema_strings_t schema_strings_or(schema_t *s, schema_strings_t a,
                                   schema_strings_t b)
{
    for (uint32_t i = 0; (i < b.n) && bt_grammar_ok(s->c); i++) {
        add(s, &a, b.items[i]);
    }
    return a;
}

schema_strings_t schema_strings_and(schema_t *s, schema_strings_t a,
                                    schema_strings_t b)
{
    schema_strings_t out = {0};

    if (schema_strings_are_any(a) || schema_strings_are_any(b)) {
        return schema_strings_are_any(a) ? b : a;
    }
    for (uint32_t i = 0; i < a.n; i++) {
        for (uint32_t k = 0; (k < b.n) && bt_grammar_spend(s->c, 1); k++) {
            const schema_texts_t *const p = &a.items[i];
            const schema_texts_t *const q = &b.items[k];
            schema_texts_t x = {.dfa = (p->dfa != NULL) ? p->dfa : q->dfa,
                                .min = (p->min > q->min) ? p->min : q->min,
                                .max = (p->max < q->max) ? p->max : q->max};

            if ((p->dfa != NULL) && (q->dfa != NULL)) {
                x.dfa = bt_dfa_combine(s->c, BT_DFA_AND, p->dfa, q->dfa);
            }
            add(s, &out, x);
        }
    }
    return out;
}

schema_strings_t schema_strings_not(schema_t *s, schema_strings_t a)
{
    schema_strings_t out = schema_any_string(s);

    for (uint32_t i = 0; (i < a.n) && bt_grammar_ok(s->c); i++) {
        const schema_texts_t *const x = &a.items[i];
        schema_strings_t others = {0};

        if (x->dfa != NULL) {
            others = schema_strings_of(
                s,
                bt_dfa_combine(s->c, BT_DFA_MINUS, schema_any_text(s), x->dfa),
                0, SCHEMA_NO_LIMIT);
        }
        if (x->min > 0) {
            add(s, &others, (schema_texts_t){.max = x->min - 1});
        }
        if (x->max != SCHEMA_NO_LIMIT) {
            add(s, &others,
                (schema_texts_t){.min = x->max + 1, .max = SCHEMA_NO_LIMIT});
        }
        out = schema_strings_and(s, out, others);
    }
    return out;
}

const bt_dfa_t *schema_strings_dfa(schema_t *s, schema_strings_t a,
                                   const bt_json_node_t *at,
                                   const schema_refusal_t **why_p)
{
    const bt_dfa_t *all = s->none->numbers; /* no text */

    for (uint32_t i = 0; (i < a.n) && bt_grammar_ok(s->c); i++) {
        const schema_texts_t *const x = &a.items[i];
        const uint32_t last = (x->max == SCHEMA_NO_LIMIT) ? x->min : x->max;
        const bt_dfa_t *dfa = x->dfa;

        if (last > MAX_LENGTH) {
            *why_p = schema_refusal(s, at,
                                    "lengths of names of more than %u are not "
                                    "supported",
                                    MAX_LENGTH, 0);
            return NULL;
        }
        if ((dfa == NULL) || (last > 0)) {
            dfa = bounded(s, dfa, x->min, x->max);
        }
        all = bt_dfa_combine(s->c, BT_DFA_OR, all, dfa);
    }
    return bt_grammar_ok(s->c) ? all : NULL;
}

/* ---- expressions ---- */

static void add_hex(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    bt_nfa_edge(nfa, from, '0', '9', to);
    bt_nfa_edge(nfa, from, 'a', 'f', to);
    bt_nfa_edge(nfa, from, 'A', 'F', to);
}

/* Adds two hexadecimal digits. */
static void add_two_hex(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    const uint32_t middle = bt_nfa_state(nfa);

    add_hex(nfa, from, middle);
    add_hex(nfa, middle, to);
}

/* Adds half of a surrogate pair behind `\u`: D8 to DB, or DC to DF. */
static void add_surrogate(bt_nfa_t *nfa, uint32_t from, bool is_low,
                          uint32_t to)
{
    const uint32_t d = bt_nfa_state(nfa);
    const uint32_t two = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, from, 'd', 'd', d);
    bt_nfa_edge(nfa, from, 'D', 'D', d);
    if (is_low) {
        bt_nfa_edge(nfa, d, 'c', 'f', two);
        bt_nfa_edge(nfa, d, 'C', 'F', two);
    } else {
        bt_nfa_edge(nfa, d, '8', '9', two);
        bt_nfa_edge(nfa, d, 'a', 'b', two);
        bt_nfa_edge(nfa, d, 'A', 'B', two);
    }
    add_two_hex(nfa, two, to);
}

/* Adds the four digits behind `\u`, and a second escape behind half of a
 * pair. */
static void add_unicode(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    const uint32_t one = bt_nfa_state(nfa);
    const uint32_t two = bt_nfa_state(nfa);
    const uint32_t d = bt_nfa_state(nfa);
    const uint32_t low[3] = {bt_nfa_state(nfa), bt_nfa_state(nfa),
                             bt_nfa_state(nfa)};

    bt_nfa_edge(nfa, from, '0', '9', one);
    bt_nfa_edge(nfa, from, 'a', 'c', one);
    bt_nfa_edge(nfa, from, 'A', 'C', one);
    bt_nfa_edge(nfa, from, 'e', 'f', one);
    bt_nfa_edge(nfa, from, 'E', 'F', one);
    bt_nfa_edge(nfa, from, 'd', 'd', d);
    bt_nfa_edge(nfa, from, 'D', 'D', d);
    add_hex(nfa, one, two);
    bt_nfa_edge(nfa, d, '0', '7', two);
    add_two_hex(nfa, two, to);
    add_surrogate(nfa, from, false, low[0]);
    bt_nfa_edge(nfa, low[0], '\\', '\\', low[1]);
    bt_nfa_edge(nfa, low[1], 'u', 'u', low[2]);
    add_surrogate(nfa, low[2], true, to);
}

/* Returns an expression of one character of a string, escaped or not. */
static const bt_expr_t *string_char(schema_t *s)
{
    static const char letters[] = "\"\\/bfnrt";

    if (s->string_char == NULL) {
        bt_nfa_t *nfa = bt_nfa_create(s->c);
        const uint32_t start = bt_nfa_state(nfa);
        const uint32_t end = bt_nfa_state(nfa);
        const uint32_t escape = bt_nfa_state(nfa);
        const uint32_t hex = bt_nfa_state(nfa);

        bt_nfa_code_points(nfa, start, 0x20, '"' - 1, end);
        bt_nfa_code_points(nfa, start, '"' + 1, '\\' - 1, end);
        bt_nfa_code_points(nfa, start, '\\' + 1, 0x10FFFF, end);
        bt_nfa_edge(nfa, start, '\\', '\\', escape);
        for (const char *at = letters; *at != '\0'; at++) {
            bt_nfa_edge(nfa, escape, (uint8_t)*at, (uint8_t)*at, end);
        }
        bt_nfa_edge(nfa, escape, 'u', 'u', hex);
        add_unicode(nfa, hex, end);
        s->string_char = bt_expr_dfa(s->b, bt_nfa_to_dfa(nfa, start, end));
    }
    return s->string_char;
}

const bt_expr_t *schema_strings_expr(schema_t *s, schema_strings_t a)
{
    const bt_expr_t *const quote = bt_expr_literal(s->b, "\"", 1);
    const bt_expr_t *all[3] = {quote, NULL, quote};
    const bt_expr_t **parts =
        bt_grammar_alloc(s->c, (size_t)a.n + 1, sizeof(*parts));

    if (parts == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < a.n; i++) {
        const schema_texts_t *const x = &a.items[i];

        parts[i] = (x->dfa != NULL)
                       ? bt_expr_text(s->b, x->dfa, x->min, x->max, true)
                       : bt_expr_repeat(s->b, string_char(s), x->min, x->max);
    }
    all[1] = bt_expr_alt(s->b, parts, a.n);
    return bt_expr_seq(s->b, all, 3);
}

const bt_expr_t *schema_quoted(schema_t *s, const char *text, uint32_t len)
{
    static const char digits[] = "0123456789abcdef";
    static const char from[] = "\b\f\n\r\t\"\\";
    static const char to[] = "bfnrt\"\\";
    char *out = bt_grammar_alloc(s->c, 6 * (size_t)len + 2, 1);
    size_t n = 0;

    if (out == NULL) {
        return NULL;
    }
    out[n++] = '"';
    for (uint32_t i = 0; i < len; i++) {
        const uint8_t byte = (uint8_t)text[i];
        const char *const letter = memchr(from, byte, sizeof(from) - 1);

        if (letter != NULL) {
            out[n++] = '\\';
            out[n++] = to[letter - from];
        } else if (byte < 0x20) {
            memcpy(out + n, "\\u00", 4);
            out[n + 4] = digits[byte >> 4];
            out[n + 5] = digits[byte & 15];
            n += 6;
        } else {
            out[n++] = text[i];
        }
    }
    out[n++] = '"';
    return bt_expr_literal(s->b, out, n);
}
