/* SPDX-License-Identifier: Apache-2.0 */
/* Which states are open strings, and that their masks are exact where they
 * nearly are. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/vocab.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

/* A matcher of a grammar; tokens a to a^6, then x, xx, ", a newline, é, and the
 * end id. */
typedef struct world {
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
} world_t;

static world_t open_world(hand_grammar_t *h)
{
    world_t w = {.vocab = vocab_create()};

    for (uint32_t i = 1; i <= 6; i++) {
        (void)vocab_add(w.vocab, "aaaaaa", i);
    }
    (void)vocab_add(w.vocab, "x", 1);
    (void)vocab_add(w.vocab, "xx", 2);
    (void)vocab_add(w.vocab, "\"", 1);
    (void)vocab_add(w.vocab, "\n", 1);
    (void)vocab_add(w.vocab, "\xc3\xa9", 2);
    (void)vocab_add(w.vocab, "", 0);
    w.trie = vocab_trie(w.vocab, true);
    w.m = matcher_of(hand_finish(h), w.trie);
    return w;
}

static void close_world(world_t *w)
{
    bt_matcher_destroy(w->m);
    bt_token_trie_destroy(w->trie);
    bt_free(w->vocab);
}

/* The mask behind a text, of the 11 tokens as a number. */
static uint64_t mask_behind(world_t *w, const char *text)
{
    bt_matcher_cursor_t cursor = bt_matcher_begin(w->m);
    const uint64_t *mask;
    uint32_t n;

    cursor.state = bt_matcher_read(w->m, cursor.state, (const uint8_t *)text,
                                   strlen(text));
    cursor.epoch = bt_matcher_epoch(w->m);
    mask = bt_matcher_mask(w->m, &cursor, &n);
    return (mask == NULL) ? 0 : mask[0];
}

/* An edge of a character, without one byte. */
static void add_edge(hand_grammar_t *h, uint32_t from, int lo, int hi,
                     uint32_t to, const int hole[2])
{
    if (((int)from != hole[0]) || (hole[1] < lo) || (hole[1] > hi)) {
        hand_bytes(h, from, lo, hi, to, false);
        return;
    }
    if (hole[1] > lo) {
        hand_bytes(h, from, lo, hole[1] - 1, to, false);
    }
    if (hole[1] < hi) {
        hand_bytes(h, from, hole[1] + 1, hi, to, false);
    }
}

/* The bytes of plain characters, by the kinds of RFC 3629, section 4: state,
 * first, last, state. The first state is between characters. */
static const int char_edges[][4] = {
    {0, 0x20, 0x21, 0}, {0, 0x23, 0x5b, 0}, {0, 0x5d, 0x7e, 0},
    {0, 0xc2, 0xdf, 1}, {0, 0xe0, 0xe0, 4}, {0, 0xe1, 0xe1, 2},
    {0, 0xe2, 0xe2, 5}, {0, 0xe3, 0xec, 2}, {0, 0xed, 0xed, 7},
    {0, 0xee, 0xef, 2}, {0, 0xf0, 0xf0, 8}, {0, 0xf1, 0xf3, 3},
    {0, 0xf4, 0xf4, 9}, {1, 0x80, 0xbf, 0}, {2, 0x80, 0xbf, 1},
    {3, 0x80, 0xbf, 2}, {4, 0xa0, 0xbf, 1}, {5, 0x80, 0x80, 6},
    {5, 0x81, 0xbf, 1}, {6, 0x80, 0xa7, 0}, {6, 0xaa, 0xbf, 0},
    {7, 0x80, 0x9f, 1}, {8, 0x90, 0xbf, 2}, {9, 0x80, 0x8f, 2}};

/* Kind of a state that reads all plain characters but for one byte. */
static uint8_t kind_with_hole(int state, int byte)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const int hole[2] = {state, byte};
    uint8_t kind;
    world_t w;

    for (uint32_t s = 0; s < 10; s++) {
        (void)hand_state(h, rule, s == 0);
    }
    for (uint32_t i = 0; i < BT_ARRAY_LEN(char_edges); i++) {
        const int *e = char_edges[i];

        add_edge(h, (uint32_t)e[0], e[1], e[2], (uint32_t)e[3], hole);
    }
    w = open_world(h);
    kind = w.m->plain[0];
    close_world(&w);
    bt_free(h);
    return kind;
}

static void open_string_reads_every_plain_character(void **state)
{
    (void)state;
    assert_int_equal(kind_with_hole(-1, 0), BT_PLAIN_ANY);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(char_edges); i++) {
        const int *e = char_edges[i];

        assert_int_equal(kind_with_hole(e[0], e[1]), BT_PLAIN_NONE);
        assert_int_equal(kind_with_hole(e[0], e[2]), BT_PLAIN_NONE);
        assert_int_equal(kind_with_hole(e[0], (e[1] + e[2]) / 2),
                         BT_PLAIN_NONE);
    }
}

static void character_that_leads_elsewhere_is_followed(void **state)
{
    for (uint32_t i = 0; i < 4; i++) {
        hand_grammar_t *h = hand_grammar();
        const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
        const uint32_t s = hand_state(h, rule, true);
        const uint32_t other = hand_state(h, rule, true);
        world_t w;

        (void)state;
        hand_char(h, s, s, false);
        /* \n leads to a state that reads all that s does: by itself, but for
         * x, or but for what leads to a state with one letter. */
        hand_bytes(h, s, '\n', '\n', other, false);
        if (i == 1) {
            hand_char(h, other, s, false);
        } else if (i == 2) {
            hand_otherwise(h, other, s);
            hand_bytes(h, other, 'x', 'x', other, false);
        } else if (i == 3) {
            const uint32_t last = hand_state(h, rule, true);

            hand_otherwise(h, other, s);
            hand_bytes(h, other, 'x', 'x', last, false);
            hand_bytes(h, last, 'a', 'a', last, false);
        }
        w = open_world(h);
        assert_int_equal(w.m->plain[s], BT_PLAIN_ANY);
        assert_int_equal(w.m->plain[other], (i == 0)   ? BT_PLAIN_NONE
                                            : (i == 3) ? BT_PLAIN_AT_LEAST
                                                       : BT_PLAIN_ANY);
        /* Behind x only a may come where i is 3. */
        assert_int_equal(mask_behind(&w, "\nx") & 0x7f, (i == 0)   ? 0
                                                        : (i == 3) ? 0x3f
                                                                   : 0x7f);
        close_world(&w);
        bt_free(h);
    }
}

/* Up to 4 characters, then a quote or x. Where the string does not accept by
 * itself, it has a quote at its end. */
static hand_grammar_t *up_to_four(bool quote, bool accepts)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t string = hand_rule(h, 0, 4);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t behind = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t first = hand_state(h, string, false);
    const uint32_t inside = hand_state(h, string, accepts);

    hand_call(h, start, string, behind, false);
    hand_bytes(h, behind, quote ? '"' : 'x', quote ? '"' : 'x', end, false);
    hand_char(h, first, inside, true);
    hand_char(h, inside, inside, true);
    if (!accepts) {
        const uint32_t last = hand_state(h, string, true);

        hand_bytes(h, inside, '"', '"', last, false);
    }
    return h;
}

static void counted_string_has_plain_tokens_of_what_is_left(void **state)
{
    hand_grammar_t *h = up_to_four(true, true);
    world_t w = open_world(h);
    const uint32_t first = h->rules[1].start;

    (void)state;
    assert_int_equal(w.m->plain[first], BT_PLAIN_COUNTED);
    assert_int_equal(w.m->plain[first + 1], BT_PLAIN_COUNTED);
    /* a to aaaa, x, xx, é */
    assert_int_equal(mask_behind(&w, ""), 0xf | 3 << 6 | 1 << 10);
    /* Only the others are walked: nothing begins with a quote or newline. */
    assert_int_equal(bt_matcher_stats(w.m)->steps, 0);
    assert_int_equal(mask_behind(&w, "\xc3\xa9"),
                     0x7 | 3 << 6 | 1 << 8 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aaa"), 1 | 1 << 6 | 1 << 8 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aaaa"), 1 << 8);
    close_world(&w);
    bt_free(h);
}

/* What comes behind the string may be one of its characters. */
static void string_that_ends_before_plain_text_is_walked(void **state)
{
    hand_grammar_t *h = up_to_four(false, true);
    world_t w = open_world(h);

    (void)state;
    assert_int_equal(mask_behind(&w, "aaa"), 1 | 3 << 6 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aaaa"), 1 << 6);
    close_world(&w);
    bt_free(h);
    /* The string's own end is a quote: nothing plain is behind. */
    h = up_to_four(false, false);
    w = open_world(h);
    assert_int_equal(mask_behind(&w, "aaa"), 1 | 1 << 6 | 1 << 8 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aaaa"), 1 << 8);
    close_world(&w);
    bt_free(h);
}

/* From a state that can still reach the rule's min, a character may lead to one
 * that cannot. */
static void plain_text_that_leads_from_the_min_is_no_open_string(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 2, NO_LIMIT);
    const uint32_t s = hand_state(h, rule, false);
    const uint32_t t = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_bytes(h, s, '\n', '\n', s, true);
    hand_char(h, s, t, false);
    hand_char(h, t, t, false);
    hand_bytes(h, t, '"', '"', end, false);
    w = open_world(h);
    assert_int_equal(mask_behind(&w, "\n"), 1 << 9);
    assert_int_equal(mask_behind(&w, "\n\n"), 0xff | 1 << 9 | 1 << 10);
    assert_int_equal(mask_behind(&w, "\n\na"), 0xff | 1 << 8 | 1 << 10);
    close_world(&w);
    bt_free(h);
}

/* A character may lead to a state that needs one more count than is left. */
static void plain_text_that_leads_over_the_max_is_no_open_string(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, 3);
    const uint32_t s = hand_state(h, rule, true);
    const uint32_t t = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_char(h, s, t, true);
    hand_char(h, t, t, true);
    hand_bytes(h, t, '"', '"', end, true);
    hand_bytes(h, s, '\n', '\n', s, true);
    w = open_world(h);
    assert_int_equal(mask_behind(&w, ""),
                     3 | 3 << 6 | 1 << 9 | 1 << 10 | 1 << 11);
    assert_int_equal(mask_behind(&w, "\n"),
                     1 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11);
    assert_int_equal(mask_behind(&w, "\n\n"), 1 << 9 | 1 << 11);
    close_world(&w);
    bt_free(h);
}

/* A character may lead to a state that needs more frames than are left. */
static void plain_text_that_needs_more_depth_is_walked(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t other = hand_rule(h, 0, NO_LIMIT);
    const uint32_t s = hand_state(h, rule, true);
    const uint32_t t = hand_state(h, rule, false);
    const uint32_t behind = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    const uint32_t o = hand_state(h, other, false);
    const uint32_t o_end = hand_state(h, other, true);
    world_t w;

    (void)state;
    hand_char(h, s, t, false);
    hand_char(h, t, t, false);
    hand_call(h, t, other, behind, false);
    hand_bytes(h, behind, '"', '"', end, false);
    hand_bytes(h, o, '"', '"', o_end, false);
    w = open_world(h);
    assert_int_equal(w.m->plain[s], BT_PLAIN_ANY);
    assert_int_equal(mask_behind(&w, ""), 0xff | 1 << 10 | 1 << 11);
    close_world(&w);
    w = open_world(h);
    w.m->max_depth = 1;
    assert_int_equal(mask_behind(&w, ""), 1 << 11);
    close_world(&w);
    bt_free(h);
}

/* Three characters one after the other, then what there is. */
static void characters_one_by_one_are_counted(void **state)
{
    for (uint32_t i = 0; i < 4; i++) {
        hand_grammar_t *h = hand_grammar();
        const uint32_t root = hand_rule(h, 0, NO_LIMIT);
        const uint32_t string = hand_rule(h, 0, NO_LIMIT);
        const uint32_t start = hand_state(h, root, false);
        const uint32_t behind = hand_state(h, root, false);
        const uint32_t end = hand_state(h, root, true);
        uint32_t at = hand_state(h, string, false);
        world_t w;

        (void)state;
        hand_call(h, start, string, behind, false);
        hand_bytes(h, behind, (i == 3) ? 'x' : '"', (i == 3) ? 'x' : '"', end,
                   false);
        for (uint32_t k = 0; k < 3; k++) {
            const uint32_t next = hand_state(h, string, k == 2);

            hand_char(h, at, next, false);
            at = next;
        }
        if (i == 1) { /* one more may be x */
            hand_bytes(h, at, 'x', 'x', at, false);
        } else if (i == 2) { /* or \n, of which no plain token begins */
            hand_bytes(h, at, '\n', '\n', at, false);
        }
        w = open_world(h);
        at = h->rules[string].start;
        assert_int_equal(w.m->plain[at],
                         (i == 1) ? BT_PLAIN_AT_LEAST : BT_PLAIN_EXACT);
        assert_int_equal(w.m->plain_chars[at], 3);
        /* a to aaa, x, xx, é */
        assert_int_equal(mask_behind(&w, ""), 0x7 | 3 << 6 | 1 << 10);
        /* Where x may follow, a walk finds xx as well. */
        assert_int_equal(mask_behind(&w, "aa"),
                         1 | 1 << 6 | 1 << 10 |
                             (((i == 1) || (i == 3)) ? 1 << 7 : 0));
        assert_int_equal(mask_behind(&w, "aaa"), (i == 0)   ? 1 << 8
                                                 : (i == 1) ? 3 << 6 | 1 << 8
                                                 : (i == 2) ? 1 << 8 | 1 << 9
                                                            : 1 << 6);
        close_world(&w);
        bt_free(h);
    }
}

/* x, or two characters of which the first one is not x. */
static void strings_of_unlike_lengths_are_walked(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t any = hand_state(h, rule, false);
    const uint32_t second = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_otherwise(h, start, any);
    hand_bytes(h, start, 'x', 'x', end, false);
    hand_char(h, any, second, false);
    hand_char(h, second, end, false);
    w = open_world(h);
    assert_int_equal(w.m->plain[start], BT_PLAIN_AT_LEAST);
    assert_int_equal(w.m->plain_chars[start], 1);
    assert_int_equal(mask_behind(&w, ""), 3 | 1 << 6 | 1 << 10);
    assert_int_equal(mask_behind(&w, "a"), 1 | 1 << 6 | 1 << 10);
    close_world(&w);
    bt_free(h);
}

/* Two strings at once: the longer one counts. */
static void longer_of_two_strings_is_taken(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    world_t w;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t string = hand_rule(h, 0, 2 + i);
        const uint32_t behind = hand_state(h, root, false);
        const uint32_t first = hand_state(h, string, false);
        const uint32_t inside = hand_state(h, string, true);

        hand_call(h, start, string, behind, false);
        hand_bytes(h, behind, (i == 0) ? '"' : '\n', (i == 0) ? '"' : '\n', end,
                   false);
        hand_char(h, first, inside, true);
        hand_char(h, inside, inside, true);
    }
    w = open_world(h);
    assert_int_equal(mask_behind(&w, ""), 0x7 | 3 << 6 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aa"),
                     1 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 10);
    assert_int_equal(mask_behind(&w, "aaa"), 1 << 9);
    close_world(&w);
    bt_free(h);
}

static void very_long_plain_tokens_are_told_apart(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, 50);
    const uint32_t s = hand_state(h, rule, true);
    vocab_t *vocab = vocab_create();
    bt_token_trie_t *trie;
    bt_matcher_t *m;
    char text[64];

    (void)state;
    memset(text, '=', sizeof(text));
    for (uint32_t i = 30; i <= 51; i++) {
        (void)vocab_add(vocab, text, i);
    }
    (void)vocab_add(vocab, "", 0);
    hand_char(h, s, s, true);
    trie = vocab_trie(vocab, true);
    m = matcher_of(hand_finish(h), trie);
    for (uint32_t n = 0; n < 30; n++) {
        bt_matcher_cursor_t cursor = bt_matcher_begin(m);
        const uint64_t *mask;
        uint32_t n_mask;

        cursor.state = bt_matcher_read(m, cursor.state, (uint8_t *)text, n);
        mask = bt_matcher_mask(m, &cursor, &n_mask);
        for (uint32_t i = 30; i <= 51; i++) {
            assert_true(mask_has(mask, i - 30) == (n + i <= 50));
        }
        assert_true(mask_has(mask, vocab->n - 1));
        assert_int_equal(n_mask, (n <= 20) ? 22 - n : 1);
    }
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(open_string_reads_every_plain_character),
        BT_TEST(character_that_leads_elsewhere_is_followed),
        BT_TEST(counted_string_has_plain_tokens_of_what_is_left),
        BT_TEST(string_that_ends_before_plain_text_is_walked),
        BT_TEST(plain_text_that_leads_from_the_min_is_no_open_string),
        BT_TEST(plain_text_that_leads_over_the_max_is_no_open_string),
        BT_TEST(plain_text_that_needs_more_depth_is_walked),
        BT_TEST(characters_one_by_one_are_counted),
        BT_TEST(strings_of_unlike_lengths_are_walked),
        BT_TEST(longer_of_two_strings_is_taken),
        BT_TEST(very_long_plain_tokens_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
