/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with bounds for the number of their code points.
 *
 * Bytes that begin a code point count, so an automaton with bounds is a rule of
 * as many states as one without. Where a count between two others cannot be had
 * (pairs of characters, say), and there is both a least and a most, a matcher
 * could not say from a count whether the rule can still end (bounds.h): then
 * the automaton gets a state for each state and count. */
#include <string.h>

#include "common/grammar/bounds.h"
#include "common/grammar/builder_priv.h"

#define MAX_PRODUCT_STATES 4096u
#define MAX_PRODUCT_CELLS  (1u << 20)

/* ---- spelling ---- */

static bool begins_code_point(uint32_t byte)
{
    return (byte < 0x80) || (byte > 0xBF);
}

/* True for bytes that a JSON string has only as escapes. */
static bool is_escaped(uint32_t byte)
{
    return (byte < 0x20) || (byte == '"') || (byte == '\\');
}

/* Returns what follows the backslash; 'u': four digits follow. */
static uint32_t letter_of(uint32_t byte)
{
    switch (byte) {
    case '\b':
        return 'b';
    case '\t':
        return 't';
    case '\n':
        return 'n';
    case '\f':
        return 'f';
    case '\r':
        return 'r';
    case '"':
    case '\\':
        return byte;
    default:
        return 'u';
    }
}

/* Ways that spell escaped bytes, from one state to another. */
typedef struct escapes {
    bt_nfa_t *nfa;
    uint32_t to;
    uint32_t letter;   /* state behind the backslash */
    uint32_t digit[2]; /* before the last digit, behind 0 and 1; 0: none */
    uint32_t tens;     /* before the last but one; 0: none */
} escapes_t;

static void add_escape(escapes_t *escapes, uint32_t byte)
{
    static const char digits[] = "0123456789abcdef";
    bt_nfa_t *const nfa = escapes->nfa;
    const uint32_t letter = letter_of(byte);
    uint32_t *const digit = &escapes->digit[byte >> 4 & 1];

    if (letter != 'u') {
        bt_nfa_edge(nfa, escapes->letter, letter, letter, escapes->to);
        return;
    }
    if (escapes->tens == 0) {
        const uint32_t u = bt_nfa_state(nfa), zero = bt_nfa_state(nfa);

        escapes->tens = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, escapes->letter, 'u', 'u', u);
        bt_nfa_edge(nfa, u, '0', '0', zero);
        bt_nfa_edge(nfa, zero, '0', '0', escapes->tens);
    }
    if (*digit == 0) {
        const uint32_t ten = (uint8_t)digits[byte >> 4];

        *digit = bt_nfa_state(nfa);
        bt_nfa_edge(nfa, escapes->tens, ten, ten, *digit);
    }
    bt_nfa_edge(nfa, *digit, (uint8_t)digits[byte & 15],
                (uint8_t)digits[byte & 15], escapes->to);
}

/* Adds an edge of a text's automaton as it is spelled. */
static void add_edge(bt_nfa_t *nfa, uint32_t from, const bt_dfa_edge_t *edge,
                     uint32_t to, const bt_spelled_text_t *how)
{
    escapes_t escapes = {.nfa = nfa, .to = to};

    for (uint32_t lo = edge->lo, hi; lo <= edge->hi; lo = hi + 1) {
        const bool begins = begins_code_point(lo);
        const uint32_t base = (how->counts && begins) ? BT_SYMBOL_COUNTING : 0;

        hi = lo;
        if (how->spell_json && is_escaped(lo)) {
            if (escapes.letter == 0) {
                escapes.letter = bt_nfa_state(nfa);
                bt_nfa_edge(nfa, from, base + '\\', base + '\\',
                            escapes.letter);
            }
            add_escape(&escapes, lo);
            continue;
        }
        while ((hi < edge->hi) && (begins_code_point(hi + 1) == begins) &&
               !(how->spell_json && is_escaped(hi + 1))) {
            hi++;
        }
        bt_nfa_edge(nfa, from, base + lo, base + hi, to);
    }
}

static const bt_dfa_t *spell(bt_grammar_compiler_t *c,
                             const bt_spelled_text_t *how)
{
    const bt_dfa_t *const text = how->text;
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t end = bt_nfa_state(nfa); /* 0: no escape is there */
    const uint32_t first = 1;

    for (uint32_t s = 0; s < text->n_states; s++) {
        (void)bt_nfa_state(nfa);
    }
    for (uint32_t s = 0; (s < text->n_states) && bt_grammar_ok(c); s++) {
        for (uint32_t e = text->first[s]; e < text->first[s + 1]; e++) {
            add_edge(nfa, first + s, &text->edges[e], first + text->edges[e].to,
                     how);
        }
        if (text->accepts[s]) {
            bt_nfa_epsilon(nfa, first + s, end);
        }
    }
    return bt_nfa_to_dfa(nfa, first, end);
}

/* Returns the automaton of a text as it is spelled, the one made before where
 * there is one: many strings of a schema are of any text. */
static const bt_dfa_t *spelled(bt_grammar_builder_t *b, const bt_dfa_t *text,
                               bool spell_json, bool counts)
{
    bt_grammar_compiler_t scratch;
    bt_spelled_text_t how = {
        .text = text, .spell_json = spell_json, .counts = counts};

    if ((!spell_json && !counts) || bt_dfa_is_empty(text)) {
        return text;
    }
    for (uint32_t i = 0; i < b->n_texts; i++) {
        const bt_spelled_text_t *const have = &b->texts[i];

        if ((have->text == text) && (have->spell_json == spell_json) &&
            (have->counts == counts)) {
            return have->dfa;
        }
        if (!bt_grammar_spend(b->c, 1)) {
            return NULL;
        }
    }
    bt_grammar_scratch_init(&scratch, b->c);
    how.dfa = spell(&scratch, &how);
    if (how.dfa != NULL) {
        how.dfa = bt_dfa_copy(b->c, how.dfa);
    }
    bt_grammar_scratch_fini(&scratch, b->c);
    if ((how.dfa == NULL) ||
        !bt_grammar_grow(b->c, &b->texts, &b->cap_texts, b->n_texts + 1,
                         sizeof(*b->texts))) {
        return NULL;
    }
    b->texts[b->n_texts++] = how;
    return how.dfa;
}

/* ---- bounds ---- */

/* Lengths of an automaton's texts beside their bounds. */
typedef enum lengths {
    LENGTHS_OUTSIDE, /* all of them */
    LENGTHS_WITHIN,  /* all of them */
    LENGTHS_COUNTED, /* a rule that counts has those within */
    LENGTHS_WITH_GAPS,
} lengths_t;

/* Computes the bounds of the states of a rule that counts.
 * @return NULL: it has gaps, or the compilation has failed */
static bt_grammar_bounds_t *bounds_of(bt_grammar_builder_t *b,
                                      const bt_grammar_t *g)
{
    bt_grammar_bounds_t *bounds = NULL;
    const bt_status_t status = bt_grammar_bounds_create(g, &bounds);

    if ((status != BT_OK) && (status != BT_ERR_UNSUPPORTED)) {
        bt_grammar_fail(b->c, status, "a text with bounds: %s",
                        bt_status_str(status));
    }
    return bounds;
}

/* Compares lengths with bounds, in a grammar of one rule that counts.
 * @param [in,out] min_p, max_p  Left out where all texts keep them. */
static lengths_t compare(bt_grammar_builder_t *b, bt_grammar_t *g,
                         uint32_t *min_p, uint32_t *max_p)
{
    bt_grammar_bounds_t *bounds;
    bt_count_range_t counts;
    bool can_end;

    g->rules[0].min = 1; /* one bound: gaps do not matter */
    bounds = bounds_of(b, g);
    if (bounds == NULL) {
        return LENGTHS_OUTSIDE;
    }
    counts = bounds->states[0].counts;
    bt_grammar_bounds_destroy(bounds);
    *min_p = (counts.least >= *min_p) ? 0 : *min_p;
    *max_p = (counts.most <= *max_p) ? BT_REPEAT_NO_LIMIT : *max_p;
    if ((*min_p == 0) && (*max_p == BT_REPEAT_NO_LIMIT)) {
        return LENGTHS_WITHIN;
    }
    g->rules[0].min = *min_p;
    g->rules[0].max = *max_p;
    bounds = bounds_of(b, g);
    if (bounds == NULL) {
        return LENGTHS_WITH_GAPS;
    }
    can_end = bt_grammar_can_end(bounds, 0, 0, 0);
    bt_grammar_bounds_destroy(bounds);
    return can_end ? LENGTHS_COUNTED : LENGTHS_OUTSIDE;
}

/* Compares the lengths of an automaton that counts with bounds.
 * @return false: the compilation has failed */
static bool measure(bt_grammar_builder_t *b, const bt_dfa_t *dfa,
                    uint32_t *min_p, uint32_t *max_p, lengths_t *lengths_p)
{
    const bt_builder_rule_t rule = {.dfa = dfa, .max = BT_REPEAT_NO_LIMIT};
    const bt_builder_rule_t *const list[] = {&rule};
    const bt_rules_t rules = {.list = list, .n = 1};
    bt_grammar_compiler_t scratch;
    bt_grammar_t *g;

    bt_grammar_scratch_init(&scratch, b->c);
    g = bt_program_lay_out(&scratch, &rules);
    if (g != NULL) {
        *lengths_p = compare(b, g, min_p, max_p);
    }
    bt_grammar_scratch_fini(&scratch, b->c);
    return bt_grammar_ok(b->c);
}

/* States of a text's automaton, each with a number of code points. */
typedef struct product {
    const bt_dfa_t *text;
    bt_nfa_t *nfa;
    uint32_t min, max;
    uint32_t last;   /* greatest number that is told apart */
    uint32_t *cells; /* [state][number]: state of the product, + 1 */
    uint32_t *found; /* cells of the states of the product */
    uint32_t n;
} product_t;

/* Returns the state of a cell; UINT32_MAX: there are too many. */
static uint32_t state_of(product_t *p, uint32_t cell)
{
    if (p->cells[cell] == 0) {
        if (p->n == MAX_PRODUCT_STATES) {
            return UINT32_MAX;
        }
        p->found[p->n++] = cell;
        p->cells[cell] = bt_nfa_state(p->nfa) + 1;
    }
    return p->cells[cell] - 1;
}

/* Adds the edges of a state of the product. False: there are too many states */
static bool add_product_edges(product_t *p, uint32_t from, uint32_t cell)
{
    const uint32_t s = cell / (p->last + 1), count = cell % (p->last + 1);

    for (uint32_t e = p->text->first[s]; e < p->text->first[s + 1]; e++) {
        const bt_dfa_edge_t *const edge = &p->text->edges[e];

        for (uint32_t lo = edge->lo, hi; lo <= edge->hi; lo = hi + 1) {
            const bool begins = begins_code_point(lo);
            uint32_t next = count + (begins ? 1 : 0), to;

            hi = lo;
            while ((hi < edge->hi) && (begins_code_point(hi + 1) == begins)) {
                hi++;
            }
            if (next > p->max) {
                continue;
            }
            next = (next < p->last) ? next : p->last;
            to = state_of(p, edge->to * (p->last + 1) + next);
            if (to == UINT32_MAX) {
                return false;
            }
            bt_nfa_edge(p->nfa, from, lo, hi, to);
        }
    }
    return true;
}

/* Returns the texts of an automaton that are within bounds. */
static const bt_dfa_t *multiply(bt_grammar_compiler_t *c, const bt_dfa_t *text,
                                uint32_t min, uint32_t max)
{
    product_t p = {.text = text,
                   .nfa = bt_nfa_create(c),
                   .min = min,
                   .max = max,
                   .last = (max == BT_REPEAT_NO_LIMIT) ? min : max};
    const uint64_t n_cells = ((uint64_t)p.last + 1) * text->n_states;
    const uint32_t end = bt_nfa_state(p.nfa);
    bool fits = n_cells <= MAX_PRODUCT_CELLS;

    if (fits) {
        p.cells = bt_grammar_alloc(c, n_cells, sizeof(*p.cells));
        p.found = bt_grammar_alloc(c, MAX_PRODUCT_STATES, sizeof(*p.found));
    }
    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    fits = fits && (state_of(&p, 0) != UINT32_MAX);
    for (uint32_t i = 0; fits && (i < p.n) && bt_grammar_ok(c); i++) {
        const uint32_t cell = p.found[i];

        if (text->accepts[cell / (p.last + 1)] &&
            (cell % (p.last + 1) >= min)) {
            bt_nfa_epsilon(p.nfa, p.cells[cell] - 1, end);
        }
        fits = add_product_edges(&p, p.cells[cell] - 1, cell);
    }
    if (!fits) {
        bt_grammar_fail(c, BT_ERR_UNSUPPORTED,
                        "texts of %u to %u characters cannot be held: some "
                        "lengths in between do not match",
                        min, max);
    }
    return bt_grammar_ok(c) ? bt_nfa_to_dfa(p.nfa, 1, end) : NULL;
}

/* ---- expressions ---- */

const bt_dfa_t *bt_builder_spelled(bt_grammar_builder_t *b,
                                   const bt_dfa_t *text)
{
    return spelled(b, text, true, false);
}

/* Returns an expression of a text's automaton, without bounds. */
static const bt_expr_t *unbounded(bt_grammar_builder_t *b, const bt_dfa_t *text,
                                  bool spell_json)
{
    return bt_expr_dfa(b, spelled(b, text, spell_json, false));
}

static const bt_expr_t *counted(bt_grammar_builder_t *b, const bt_dfa_t *dfa,
                                uint32_t min, uint32_t max, bool has_empty)
{
    bt_expr_t *x = bt_expr_create(b, BT_EXPR_COUNTED);

    if (x != NULL) {
        x->has = BT_HAS_MORE | (has_empty ? BT_HAS_EMPTY : 0);
        x->min = min;
        x->max = max;
        x->dfa = dfa;
    }
    return x;
}

/* Returns an expression of the texts within bounds: by their product. */
static const bt_expr_t *multiplied(bt_grammar_builder_t *b,
                                   const bt_dfa_t *text, uint32_t min,
                                   uint32_t max, bool spell_json)
{
    bt_grammar_compiler_t scratch;
    const bt_dfa_t *dfa;

    bt_grammar_scratch_init(&scratch, b->c);
    dfa = multiply(&scratch, text, min, max);
    if (dfa != NULL) {
        dfa = bt_dfa_copy(b->c, dfa);
    }
    bt_grammar_scratch_fini(&scratch, b->c);
    return (dfa != NULL) ? unbounded(b, dfa, spell_json) : NULL;
}

const bt_expr_t *bt_expr_text(bt_grammar_builder_t *b, const bt_dfa_t *dfa,
                              uint32_t min, uint32_t max, bool spell_json)
{
    const bt_dfa_t *counting;
    lengths_t lengths = LENGTHS_OUTSIDE;
    bool has_empty;

    if ((b == NULL) || !bt_grammar_ok(b->c) || (dfa == NULL)) {
        return NULL;
    }
    if (bt_dfa_is_empty(dfa) || (min > max)) {
        return bt_expr_nothing(b);
    }
    if ((min == 0) && (max == BT_REPEAT_NO_LIMIT)) {
        return unbounded(b, dfa, spell_json);
    }
    has_empty = (min == 0) && dfa->accepts[0];
    counting = spelled(b, dfa, spell_json, true);
    if (has_empty) {
        counting = bt_builder_without_empty(b, counting);
    }
    if (counting == NULL) {
        return NULL;
    }
    if (!bt_dfa_is_empty(counting) &&
        !measure(b, counting, &min, &max, &lengths)) {
        return NULL;
    }
    switch (lengths) {
    case LENGTHS_OUTSIDE:
        return has_empty ? bt_expr_empty(b) : bt_expr_nothing(b);
    case LENGTHS_WITHIN:
        return unbounded(b, dfa, spell_json);
    case LENGTHS_COUNTED:
        return counted(b, counting, min, max, has_empty);
    case LENGTHS_WITH_GAPS:
        break;
    }
    return multiplied(b, dfa, min, max, spell_json);
}
