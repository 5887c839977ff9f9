/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/inference/matcher/random_grammars.h"

#include "tests/support/draw.h"

static const char *const letters[] = {"a", "b", "c", "d"};

vocab_t *letter_vocab(uint64_t *rng, uint32_t n_letters)
{
    vocab_t *vocab = vocab_create();

    for (uint32_t i = 0; i < n_letters; i++) {
        (void)vocab_add(vocab, letters[i], 1);
    }
    (void)vocab_add(vocab, "", 0);
    (void)vocab_add(vocab, "", 0);
    vocab_add_random(vocab, rng, letters, n_letters, 6,
                     20 + (uint32_t)draw_below(rng, 40));
    (void)vocab_add(vocab, "", 0);
    return vocab;
}

hand_grammar_t *draw_letters(uint64_t *rng, uint32_t i, uint32_t *n_letters_p)
{
    const hand_random_t options = {
        .n_rules = 1 + (uint32_t)draw_below(rng, 5),
        .n_states = 2 + (uint32_t)draw_below(rng, 5),
        .n_letters = 1 + (uint32_t)draw_below(rng, 4),
        .max_count = (uint32_t)draw_below(rng, (i % 4 == 0) ? 45 : 10),
        .n_token_ids = (uint32_t)draw_below(rng, 2) * 12,
    };

    *n_letters_p = options.n_letters;
    return hand_random(rng, &options);
}

hand_grammar_t *draw_nested(uint64_t *rng)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t n = 2 + (uint32_t)draw_below(rng, 4);

    for (uint32_t r = 0; r < n; r++) {
        const bool bounded = (r > 0) && (draw_below(rng, 3) == 0);
        const uint32_t min = bounded ? 1 + (uint32_t)draw_below(rng, 2) : 0;

        (void)hand_rule(h, min,
                        bounded ? min + (uint32_t)draw_below(rng, 2)
                                : BT_GRAMMAR_NO_LIMIT);
    }
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t start = hand_state(h, r, false);
        const uint32_t inside = hand_state(h, r, false);
        const uint32_t behind = hand_state(h, r, false);
        const uint32_t end = hand_state(h, r, true);

        if ((r + 1 < n) && (draw_below(rng, 4) != 0)) {
            hand_call(h, start, r + 1, (draw_below(rng, 2) == 0) ? behind : end,
                      true);
        }
        if ((r + 1 == n) || (draw_below(rng, 4) == 0)) {
            hand_bytes(h, start, 'a', 'a', end, draw_below(rng, 2) == 0);
        }
        hand_bytes(h, start, 'b', 'b', inside, false);
        hand_call(h, inside, 1 + (uint32_t)draw_below(rng, n - 1), behind,
                  true);
        hand_bytes(h, behind, 'c', 'c', end, false);
        hand_bytes(h, behind, 'd', 'd', inside, draw_below(rng, 2) == 0);
        if (draw_below(rng, 2) == 0) {
            hand_bytes(h, end, 'd', 'd', start, true);
        }
    }
    (void)hand_finish(h);
    return h;
}

/*
 * Strings
 */

/* When a character counts. */
typedef enum char_count { COUNTS_NOT, COUNTS_FIRST, COUNTS_LAST } char_count_t;

/* Adds edges that read a character of UTF-8.
 * @param [in] without  A letter that is left out, or 0x80: none */
static void add_char(hand_grammar_t *h, uint32_t from, uint32_t to,
                     char_count_t counts, int without)
{
    const bool first = counts == COUNTS_FIRST;
    const bool one = counts != COUNTS_NOT;
    const uint32_t rule = h->states[from].rule;
    const uint32_t last = hand_state(h, rule, false);
    const uint32_t last_2 = hand_state(h, rule, false);
    const uint32_t e0 = hand_state(h, rule, false);
    const uint32_t ed = hand_state(h, rule, false);
    const uint32_t f0 = hand_state(h, rule, false);
    const uint32_t f1 = hand_state(h, rule, false);
    const uint32_t f4 = hand_state(h, rule, false);

    hand_bytes(h, from, 0x20, 0x21, to, one);
    hand_bytes(h, from, 0x23, 0x5b, to, one);
    hand_bytes(h, from, 0x5d, without - 1, to, one);
    if (without < 0x7f) {
        hand_bytes(h, from, without + 1, 0x7f, to, one);
    }
    hand_bytes(h, from, 0xc2, 0xdf, last, first);
    hand_bytes(h, from, 0xe0, 0xe0, e0, first);
    hand_bytes(h, from, 0xe1, 0xec, last_2, first);
    hand_bytes(h, from, 0xed, 0xed, ed, first);
    hand_bytes(h, from, 0xee, 0xef, last_2, first);
    hand_bytes(h, from, 0xf0, 0xf0, f0, first);
    hand_bytes(h, from, 0xf1, 0xf3, f1, first);
    hand_bytes(h, from, 0xf4, 0xf4, f4, first);
    hand_bytes(h, e0, 0xa0, 0xbf, last, false);
    hand_bytes(h, ed, 0x80, 0x9f, last, false);
    hand_bytes(h, f0, 0x90, 0xbf, last_2, false);
    hand_bytes(h, f1, 0x80, 0xbf, last_2, false);
    hand_bytes(h, f4, 0x80, 0x8f, last_2, false);
    hand_bytes(h, last_2, 0x80, 0xbf, last, false);
    hand_bytes(h, last, 0x80, 0xbf, to, counts == COUNTS_LAST);
}

/* A string of min to max characters, or something like it. */
static void draw_string(hand_grammar_t *h, uint64_t *rng, uint32_t rule)
{
    const bool quoted = draw_below(rng, 3) == 0;
    const bool keys = draw_below(rng, 3) == 0;
    const char_count_t counts = (char_count_t)draw_below(rng, 3);
    const int without =
        (draw_below(rng, 5) == 0) ? 'b' : 0x7f + (int)draw_below(rng, 2);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t inside = hand_state(h, rule, !quoted);

    if (quoted) {
        const uint32_t end = hand_state(h, rule, true);

        hand_bytes(h, start, '"', '"', inside, false);
        hand_bytes(h, inside, '"', '"', end, false);
    } else {
        add_char(h, start, inside, counts, without);
    }
    add_char(h, inside, inside, counts, without);
    if (draw_below(rng, 2) == 0) {
        const uint32_t escape = hand_state(h, rule, false);

        hand_bytes(h, inside, '\\', '\\', escape, counts == COUNTS_FIRST);
        hand_bytes(h, escape, 'n', 'n', inside, counts == COUNTS_LAST);
        hand_bytes(h, escape, '"', '"', inside, counts == COUNTS_LAST);
    }
    if (keys) { /* behind , other states that read the same */
        uint32_t at = inside;

        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t next = hand_state(h, rule, !quoted);

            hand_bytes(h, at, (i == 0) ? 0x0a : 'a' + (int)draw_below(rng, 3),
                       (i == 0) ? 0x0a : 'c', next, counts != COUNTS_NOT);
            hand_otherwise(h, next, inside);
            at = next;
        }
    }
}

/* A string of some characters, each with its states; what follows the last of
 * them may be more letters. */
static void draw_chain(hand_grammar_t *h, uint64_t *rng, uint32_t rule)
{
    const uint32_t n = 1 + (uint32_t)draw_below(rng, 5);
    const uint32_t min = (uint32_t)draw_below(rng, n);
    const bool quoted = draw_below(rng, 2) == 0;
    const bool bounded = h->rules[rule].max != BT_GRAMMAR_NO_LIMIT;
    const char_count_t counts =
        bounded ? (char_count_t)draw_below(rng, 3) : COUNTS_NOT;
    uint32_t at = hand_state(h, rule, false);
    uint32_t end = 0;

    if (quoted) {
        end = hand_state(h, rule, true);
    }
    for (uint32_t i = 0; i < n; i++) {
        const bool last = i + 1 == n;
        const uint32_t next =
            hand_state(h, rule, !quoted && (last || (i >= min)));

        add_char(h, at, next, counts,
                 (draw_below(rng, 8) == 0) ? 'b' : 0x7f + (int)(i % 2));
        if (quoted && (last || (i >= min))) {
            hand_bytes(h, next, '"', '"', end, false);
        }
        at = next;
    }
    switch (draw_below(rng, 4)) {
    case 0:
        hand_bytes(h, at, 'a', 'b', at, false);
        break;
    case 1:
        add_char(h, at, at, COUNTS_NOT, 0x80);
        break;
    default:
        break;
    }
}

hand_grammar_t *draw_strings(uint64_t *rng)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t n = 1 + (uint32_t)draw_below(rng, 3);
    const uint32_t start = hand_state(h, root, false);
    uint32_t at = start;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t max = (uint32_t)draw_below(rng, 41);
        const uint32_t min = (uint32_t)draw_below(rng, (max < 3) ? max + 1 : 4);

        (void)hand_rule(h, (draw_below(rng, 2) == 0) ? 0 : min,
                        (draw_below(rng, 3) == 0) ? BT_GRAMMAR_NO_LIMIT : max);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t in = hand_state(h, root, false);
        const uint32_t out = hand_state(h, root, false);
        const uint32_t next = hand_state(h, root, i == 1);

        hand_bytes(h, at, '"', '"', in, false);
        hand_call(h, in, 1 + (uint32_t)draw_below(rng, n), out, false);
        if (draw_below(rng, 2) == 0) {
            hand_call(h, in, 1 + (uint32_t)draw_below(rng, n),
                      (draw_below(rng, 2) == 0) ? next : out, false);
        }
        hand_bytes(h, in, '"', '"', next, false);
        hand_bytes(h, out, '"', '"', next, false);
        if (draw_below(rng, 3) == 0) { /* what the string may have too */
            hand_bytes(h, out, 'a', 'b', next, false);
        }
        hand_bytes(h, next, ',', ',', (draw_below(rng, 2) == 0) ? start : next,
                   false);
        at = next;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (draw_below(rng, 3) == 0) {
            draw_chain(h, rng, i + 1);
        } else {
            draw_string(h, rng, i + 1);
        }
    }
    (void)hand_finish(h);
    return h;
}

static const char *const pieces[] = {
    "a",        "b",
    "c",        "\"",
    ",",        "\\",
    "n",        "\xc3\xa9",
    "\xc3",     "\xa9",
    " ",        "\x7f",
    "\x0a",     "\xe2\x80\xa8",
    "\xe2\x80", "\xf0\x9f\x98\x80",
    "\xf0\x9f", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

vocab_t *string_vocab(uint64_t *rng)
{
    vocab_t *vocab = vocab_create();

    vocab_add_random(vocab, rng, pieces, BT_ARRAY_LEN(pieces), 1, 40);
    vocab_add_random(vocab, rng, pieces, BT_ARRAY_LEN(pieces), 5, 60);
    (void)vocab_add(vocab, "", 0);
    return vocab;
}
