/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hand_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/draw.h"

hand_grammar_t *hand_grammar(void)
{
    hand_grammar_t *h = bt_calloc(1, sizeof(*h));

    BT_ASSERT_ALWAYS(h != NULL);
    h->grammar.rules = h->rules;
    h->grammar.states = h->states;
    h->grammar.edges = h->edges;
    return h;
}

uint32_t hand_rule(hand_grammar_t *h, uint32_t min, uint32_t max)
{
    BT_ASSERT_ALWAYS(h->grammar.n_rules < HAND_MAX_RULES);
    h->rules[h->grammar.n_rules] =
        (bt_grammar_rule_t){.start = BT_GRAMMAR_NONE, .min = min, .max = max};
    return h->grammar.n_rules++;
}

uint32_t hand_state(hand_grammar_t *h, uint32_t rule, bool accepts)
{
    const uint32_t state = h->grammar.n_states++;

    BT_ASSERT_ALWAYS(state < HAND_MAX_STATES);
    h->states[state] = (bt_grammar_state_t){
        .accepts = accepts, .otherwise = BT_GRAMMAR_NONE, .rule = rule};
    if (h->rules[rule].start == BT_GRAMMAR_NONE) {
        h->rules[rule].start = state;
    }
    return state;
}

void hand_otherwise(hand_grammar_t *h, uint32_t state, uint32_t otherwise)
{
    h->states[state].otherwise = otherwise;
}

static void add(hand_grammar_t *h, uint32_t from, bt_grammar_edge_t edge)
{
    BT_ASSERT_ALWAYS(h->grammar.n_edges < HAND_MAX_EDGES);
    h->from[h->grammar.n_edges] = from;
    h->added[h->grammar.n_edges++] = edge;
}

void hand_bytes(hand_grammar_t *h, uint32_t from, int lo, int hi, uint32_t to,
                bool counts)
{
    add(h, from,
        (bt_grammar_edge_t){.kind = BT_GRAMMAR_READS,
                            .lo = (uint8_t)lo,
                            .hi = (uint8_t)hi,
                            .counts = counts,
                            .to = to});
}

void hand_call(hand_grammar_t *h, uint32_t from, uint32_t rule, uint32_t to,
               bool counts)
{
    add(h, from,
        (bt_grammar_edge_t){
            .kind = BT_GRAMMAR_CALLS, .counts = counts, .arg = rule, .to = to});
}

void hand_token(hand_grammar_t *h, uint32_t from, uint32_t id, uint32_t to)
{
    add(h, from,
        (bt_grammar_edge_t){
            .kind = BT_GRAMMAR_TAKES, .arg = id, .last = id, .to = to});
}

void hand_tokens(hand_grammar_t *h, uint32_t from, uint32_t first,
                 uint32_t last, uint32_t to)
{
    add(h, from,
        (bt_grammar_edge_t){
            .kind = BT_GRAMMAR_TAKES, .arg = first, .last = last, .to = to});
}

void hand_text(hand_grammar_t *h, uint32_t from, const char *text, uint32_t to)
{
    for (size_t i = 0; text[i] != '\0'; i++) {
        const uint32_t next = (text[i + 1] == '\0')
                                  ? to
                                  : hand_state(h, h->states[from].rule, false);

        hand_bytes(h, from, (uint8_t)text[i], (uint8_t)text[i], next, false);
        from = next;
    }
}

void hand_char(hand_grammar_t *h, uint32_t from, uint32_t to, bool counts)
{
    const uint32_t rule = h->states[from].rule;
    const uint32_t last = hand_state(h, rule, false);
    const uint32_t last_two = hand_state(h, rule, false);
    const uint32_t e0 = hand_state(h, rule, false);
    const uint32_t ed = hand_state(h, rule, false);
    const uint32_t f0 = hand_state(h, rule, false);
    const uint32_t f1 = hand_state(h, rule, false);
    const uint32_t f4 = hand_state(h, rule, false);

    hand_bytes(h, from, 0x20, 0x21, to, counts);
    hand_bytes(h, from, 0x23, 0x5b, to, counts);
    hand_bytes(h, from, 0x5d, 0x7f, to, counts);
    hand_bytes(h, from, 0xc2, 0xdf, last, false);
    hand_bytes(h, from, 0xe0, 0xe0, e0, false);
    hand_bytes(h, from, 0xe1, 0xec, last_two, false);
    hand_bytes(h, from, 0xed, 0xed, ed, false);
    hand_bytes(h, from, 0xee, 0xef, last_two, false);
    hand_bytes(h, from, 0xf0, 0xf0, f0, false);
    hand_bytes(h, from, 0xf1, 0xf3, f1, false);
    hand_bytes(h, from, 0xf4, 0xf4, f4, false);
    hand_bytes(h, e0, 0xa0, 0xbf, last, false);
    hand_bytes(h, ed, 0x80, 0x9f, last, false);
    hand_bytes(h, f0, 0x90, 0xbf, last_two, false);
    hand_bytes(h, f1, 0x80, 0xbf, last_two, false);
    hand_bytes(h, f4, 0x80, 0x8f, last_two, false);
    hand_bytes(h, last_two, 0x80, 0xbf, last, false);
    hand_bytes(h, last, 0x80, 0xbf, to, counts);
}

/* Order of the edges of one state: bytes first, ascending. */
static bool is_before(const bt_grammar_edge_t *a, const bt_grammar_edge_t *b)
{
    return (a->kind != b->kind)
               ? a->kind < b->kind
               : (a->kind == BT_GRAMMAR_READS) && (a->lo < b->lo);
}

const bt_grammar_t *hand_finish(hand_grammar_t *h)
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < h->grammar.n_states; s++) {
        bt_grammar_state_t *state = &h->states[s];

        state->first_edge = n;
        state->n_byte_edges = 0;
        for (uint32_t i = 0; i < h->grammar.n_edges; i++) {
            uint32_t k = n;

            if (h->from[i] != s) {
                continue;
            }
            while ((k > state->first_edge) &&
                   is_before(&h->added[i], &h->edges[k - 1])) {
                h->edges[k] = h->edges[k - 1];
                k--;
            }
            h->edges[k] = h->added[i];
            n++;
            state->n_byte_edges =
                (uint16_t)(state->n_byte_edges +
                           (h->added[i].kind == BT_GRAMMAR_READS));
        }
        state->n_edges = (uint16_t)(n - state->first_edge);
    }
    return &h->grammar;
}

/* Byte edges of a state that is drawn: for each letter none, one, or that of
 * the letter before. */
static void draw_bytes(hand_grammar_t *h, uint64_t *rng,
                       const hand_random_t *options, uint32_t from,
                       const uint32_t *states, uint32_t n_states, bool counted,
                       uint32_t density)
{
    for (uint32_t i = 0; i < options->n_letters; i++) {
        const uint32_t n = 1 + (uint32_t)draw_below(rng, 2);

        if (draw_below(rng, 4) < density) {
            const uint32_t last = (i + n < options->n_letters)
                                      ? i + n - 1
                                      : options->n_letters - 1;

            hand_bytes(h, from, 'a' + (int)i, 'a' + (int)last,
                       states[draw_below(rng, n_states)],
                       counted && (draw_below(rng, 2) == 0));
            i = last;
        }
    }
}

static void draw_rule(hand_grammar_t *h, uint64_t *rng,
                      const hand_random_t *options, uint32_t rule,
                      uint32_t n_rules, uint32_t density)
{
    const uint32_t n = 1 + (uint32_t)draw_below(rng, options->n_states);
    const bool counted =
        (h->rules[rule].max != BT_GRAMMAR_NO_LIMIT) || (h->rules[rule].min > 0);
    uint32_t states[64];

    for (uint32_t i = 0; i < n; i++) {
        /* Only the root may have the empty text. */
        const bool accepts =
            ((i > 0) && (i == n - 1)) ||
            (((i > 0) || (rule == 0)) && (draw_below(rng, 3) == 0));

        states[i] = hand_state(h, rule, accepts);
    }
    if (n == 1) { /* a second one, or there is no text */
        states[1] = hand_state(h, rule, true);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_targets = (n == 1) ? 2 : n;

        if ((i > 0) && (draw_below(rng, 8) == 0)) {
            continue; /* nothing leads on */
        }
        if ((i > 1) && (draw_below(rng, 4) == 0)) {
            const uint32_t base = states[draw_below(rng, i)];

            if (h->states[base].otherwise == BT_GRAMMAR_NONE) {
                hand_otherwise(h, states[i], base);
            }
        }
        draw_bytes(h, rng, options, states[i], states, n_targets, counted,
                   density);
        /* Nothing calls the root, and before it has read a byte a rule calls
         * only later ones. */
        if (draw_below(rng, 1 + density) == 0) {
            const uint32_t first = (i == 0) ? rule + 1 : 1;

            if (first < n_rules) {
                hand_call(h, states[i],
                          first + (uint32_t)draw_below(rng, n_rules - first),
                          states[draw_below(rng, n_targets)],
                          counted && (draw_below(rng, 2) == 0));
            }
        }
        if ((options->n_token_ids > 0) && (draw_below(rng, 4) == 0)) {
            const uint32_t id = (uint32_t)draw_below(rng, options->n_token_ids);

            hand_tokens(h, states[i], id,
                        id + (uint32_t)(draw_below(rng, 3) *
                                        draw_below(rng, options->n_token_ids)),
                        states[draw_below(rng, n_targets)]);
        }
    }
}

hand_grammar_t *hand_random(uint64_t *rng, const hand_random_t *options)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t n_rules = 1 + (uint32_t)draw_below(rng, options->n_rules);
    const uint32_t density = 1 + (uint32_t)draw_below(rng, 3);

    for (uint32_t r = 0; r < n_rules; r++) {
        uint32_t min = 0;
        uint32_t max = BT_GRAMMAR_NO_LIMIT;

        if ((options->max_count > 0) && (draw_below(rng, 2) == 0)) {
            min = (uint32_t)draw_below(rng, options->max_count + 1);
            max = min + (uint32_t)draw_below(rng, options->max_count - min + 1);
            max = (draw_below(rng, 4) == 0) ? BT_GRAMMAR_NO_LIMIT : max;
        }
        (void)hand_rule(h, min, max);
    }
    for (uint32_t r = 0; r < n_rules; r++) {
        draw_rule(h, rng, options, r, n_rules, density);
    }
    (void)hand_finish(h);
    return h;
}
