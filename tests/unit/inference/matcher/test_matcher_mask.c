/* SPDX-License-Identifier: Apache-2.0 */
/* Masks: bounds of counts, limits, and the table of masks. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/vocab.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

/* Grammar: min to max letters a, then one b. Tokens: a^1 to a^4, the same with
 * b behind them, b, and the end id. */
typedef struct counted {
    hand_grammar_t *h;
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
} counted_t;

static counted_t open_counted(uint32_t min, uint32_t max)
{
    counted_t c = {.h = hand_grammar(), .vocab = vocab_create()};
    const uint32_t root = hand_rule(c.h, 0, NO_LIMIT);
    const uint32_t rule = hand_rule(c.h, min, max);
    const uint32_t start = hand_state(c.h, root, false);
    const uint32_t behind = hand_state(c.h, root, false);
    const uint32_t end = hand_state(c.h, root, true);
    const uint32_t first = hand_state(c.h, rule, false);
    const uint32_t more = hand_state(c.h, rule, true);

    hand_call(c.h, start, rule, behind, false);
    hand_bytes(c.h, behind, 'b', 'b', end, false);
    hand_bytes(c.h, first, 'a', 'a', more, true);
    hand_bytes(c.h, more, 'a', 'a', more, true);
    for (uint32_t i = 1; i <= 4; i++) {
        (void)vocab_add(c.vocab, "aaaa", i);
        (void)vocab_add(c.vocab, &"aaaab"[4 - i], i + 1);
    }
    (void)vocab_add(c.vocab, "b", 1);
    (void)vocab_add(c.vocab, "", 0);
    c.trie = vocab_trie(c.vocab, true);
    c.m = matcher_of(hand_finish(c.h), c.trie);
    return c;
}

static void close_counted(counted_t *c)
{
    bt_matcher_destroy(c->m);
    bt_token_trie_destroy(c->trie);
    bt_free(c->vocab);
    bt_free(c->h);
}

/* What may follow n letters a. */
static bool is_allowed(const counted_t *c, uint32_t id, uint32_t n,
                       uint32_t min, uint32_t max)
{
    const uint32_t size = c->vocab->lens[id];
    const bool b = (size > 0) && (c->vocab->bytes[id][size - 1] == 'b');
    const uint32_t total = n + size - (b ? 1 : 0);

    return (size > 0) && (total <= max) && (!b || (total >= min)) &&
           (total > 0);
}

static void masks_know_each_count_near_a_bound(void **state)
{
    (void)state;
    for (uint32_t min = 1; min < 16; min++) {
        for (uint32_t max = min; max < min + 20; max++) {
            counted_t c = open_counted(min, (max == min + 19) ? NO_LIMIT : max);
            const uint32_t last = (max == min + 19) ? min + 40 : max;
            bt_matcher_cursor_t cursor = bt_matcher_begin(c.m);
            uint32_t tokens[64] = {0};

            for (uint32_t n = 0; n <= last; n++) {
                uint32_t n_mask;
                const uint64_t *mask;

                assert_true(bt_matcher_move(c.m, &cursor, tokens, n));
                mask = bt_matcher_mask(c.m, &cursor, &n_mask);
                assert_non_null(mask);
                for (uint32_t id = 0; id < c.vocab->n; id++) {
                    assert_true(mask_has(mask, id) ==
                                is_allowed(&c, id, n, min,
                                           (max == min + 19) ? NO_LIMIT : max));
                }
            }
            close_counted(&c);
        }
    }
}

static void states_far_from_bounds_share_their_mask(void **state)
{
    const struct {
        uint32_t min, max, n_tokens, most_masks;
    } cases[] = {
        /* token of 4 letters: 7 counts before each bound, and the others */
        {1, 1000000, 500, 3},    {1, NO_LIMIT, 500, 3},
        {400, 1000000, 900, 13}, {1000000, 2000000, 500, 2},
        {400, 400, 400, 13},
    };

    (void)state;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        counted_t c = open_counted(cases[i].min, cases[i].max);
        bt_matcher_cursor_t cursor = bt_matcher_begin(c.m);
        static uint32_t tokens[1000];
        const bt_matcher_stats_t *stats = bt_matcher_stats(c.m);
        uint32_t n;

        for (uint32_t k = 0; k < cases[i].n_tokens; k++) {
            assert_true(bt_matcher_move(c.m, &cursor, tokens, k));
            assert_non_null(bt_matcher_mask(c.m, &cursor, &n));
        }
        assert_int_equal(stats->masks, cases[i].n_tokens);
        assert_true(stats->masks - stats->mask_hits <= cases[i].most_masks);
        close_counted(&c);
    }
}

/* Any letters, pairs of digits, and A with two letters. */
static hand_grammar_t *words(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t s = hand_state(h, rule, true);
    const uint32_t digit = hand_state(h, rule, false);
    const uint32_t two = hand_state(h, rule, false);
    const uint32_t one = hand_state(h, rule, false);

    hand_bytes(h, s, 'A', 'A', two, false);
    hand_bytes(h, two, 'a', 'z', one, false);
    hand_bytes(h, one, 'a', 'z', s, false);
    hand_bytes(h, s, 'a', 'z', s, false);
    hand_bytes(h, s, '0', '9', digit, false);
    hand_bytes(h, digit, '0', '9', s, false);
    return h;
}

static void long_tokens_are_tested_one_by_one(void **state)
{
    hand_grammar_t *h = words();
    vocab_t *vocab = vocab_create();
    bt_token_trie_t *trie;
    bt_matcher_t *m;
    bt_matcher_cursor_t cursor;
    uint8_t bytes[500];
    const uint64_t *mask;
    uint32_t n;

    (void)state;
    memset(bytes, 'a', sizeof(bytes));
    (void)vocab_add(vocab, bytes, 500);
    (void)vocab_add(vocab, bytes, 256);
    (void)vocab_add(vocab, bytes, 255);
    bytes[299] = '1';
    (void)vocab_add(vocab, bytes, 300);
    bytes[298] = '1';
    (void)vocab_add(vocab, bytes, 300);
    bytes[100] = '!';
    (void)vocab_add(vocab, bytes, 300);
    (void)vocab_add(vocab, "Aaaa", 4);
    (void)vocab_add(vocab, "", 0);
    trie = vocab_trie(vocab, true);
    (void)hand_finish(h);
    for (uint32_t round = 0; round < 2; round++) {
        m = matcher_of(&h->grammar, trie);
        /* The state inside of digits does not fit beside those of Aaaa. */
        m->cap_rows = (round == 0) ? m->cap_rows : 3;
        cursor = bt_matcher_begin(m);
        mask = bt_matcher_mask(m, &cursor, &n);
        assert_non_null(mask);
        assert_int_equal(n, 7); /* all but the one with ! */
        assert_int_equal(mask[0], 0xff & ~(1 << 5));
        /* The walk begins again with empty tables, which are full once more. */
        assert_int_equal(bt_matcher_stats(m)->resets, 2 * round);
        bt_matcher_destroy(m);
    }
    /* A table of two rows has no place for Aaaa alone. */
    m = matcher_of(&h->grammar, trie);
    m->cap_rows = 2;
    cursor = bt_matcher_begin(m);
    assert_null(bt_matcher_mask(m, &cursor, &n));
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

static void vocabulary_without_the_next_byte_has_no_mask(void **state)
{
    hand_grammar_t *h = words();
    vocab_t *vocab = vocab_create();
    bt_token_trie_t *trie;
    bt_matcher_t *m;
    bt_matcher_cursor_t cursor;
    const uint32_t token = 0;
    uint32_t n;

    (void)state;
    (void)vocab_add(vocab, "1", 1);
    (void)vocab_add(vocab, "2b", 2);
    (void)vocab_add(vocab, "b", 1);
    trie = vocab_trie(vocab, true); /* b is the end id */
    m = matcher_of(hand_finish(h), trie);
    cursor = bt_matcher_begin(m);
    assert_non_null(bt_matcher_mask(m, &cursor, &n));
    assert_int_equal(n, 2); /* 1, and the end */
    assert_true(bt_matcher_move(m, &cursor, &token, 1));
    assert_non_null(bt_matcher_mask(m, &cursor, &n));
    assert_int_equal(n, 2); /* 1 and 2b */
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);

    vocab->bytes[0][0] = 'x';
    vocab->n = 2;
    trie = vocab_trie(vocab, true); /* 2b is the end id: only x is left */
    m = matcher_of(&h->grammar, trie);
    cursor = bt_matcher_begin(m);
    cursor.state = bt_matcher_read(m, cursor.state, (const uint8_t *)"1", 1);
    assert_null(bt_matcher_mask(m, &cursor, &n));
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

/* A mask is made of nodes visited, so a limit does not depend on what the
 * tables have. */
static void limit_of_steps_is_the_same_at_any_time(void **state)
{
    hand_grammar_t *h = words();
    vocab_t *vocab = vocab_create();
    bt_token_trie_t *trie;
    uint64_t n_steps = 0;
    uint32_t n;

    (void)state;
    vocab_add_bytes(vocab);
    (void)vocab_add(vocab, "abc", 3);
    (void)vocab_add(vocab, "abd", 3);
    (void)vocab_add(vocab, "", 0);
    trie = vocab_trie(vocab, true);
    (void)hand_finish(h);
    for (uint32_t round = 0; round < 4; round++) {
        bt_matcher_config_t config = {.grammar = &h->grammar,
                                      .trie = trie,
                                      .max_bytes = BT_MATCHER_MIN_BYTES};
        bt_matcher_t *m = NULL;
        bt_matcher_cursor_t cursor;
        const uint64_t *mask;

        config.max_mask_steps =
            (uint32_t)((round == 0) ? 0 : n_steps - 1 + round % 2);
        assert_int_equal(bt_matcher_create(&config, &m), BT_OK);
        cursor = bt_matcher_begin(m);
        if (round >= 2) { /* all steps are known */
            cursor.state =
                bt_matcher_read(m, cursor.state, (const uint8_t *)"abc", 3);
        }
        mask = bt_matcher_mask(m, &cursor, &n);
        if (round == 0) {
            n_steps = bt_matcher_stats(m)->steps;
            /* First bytes that lead on, and b, c, d; the state has its frame
             * and the empty stack. */
            assert_int_equal(n_steps, 2 * (26 + 1 + 10 + 3));
        }
        if (round % 2 == 0 && round > 0) {
            assert_null(mask);
            assert_int_equal(cursor.state, BT_MATCHER_FAILED);
        } else {
            assert_non_null(mask);
            assert_int_equal(n, 26 + 1 + 10 + 2 + 1);
        }
        bt_matcher_destroy(m);
    }
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

/* Six rules that read the same letters, and need other letters for each of them
 * behind that: all texts lead to stacks of their own. */
static hand_grammar_t *many_stacks(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);

    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t rule = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
        const uint32_t first = hand_state(h, rule, false);
        const uint32_t last = hand_state(h, rule, true);

        hand_call(h, start, rule, end, false);
        hand_bytes(h, first, '.', '.', last, false);
        for (int c = 0; c < 52; c++) {
            const uint32_t inside = hand_state(h, rule, false);
            const uint32_t behind = hand_state(h, rule, false);
            const int other = '0' + (c + (int)i) % 75;

            hand_bytes(h, first, 'A' + c, 'A' + c, inside, false);
            hand_call(h, inside, rule, behind, false);
            hand_bytes(h, behind, other, other, last, false);
        }
    }
    (void)hand_finish(h);
    return h;
}

/* A mask that fills the tables again and again ends by its limit. */
static void rows_of_a_mask_are_bounded(void **state)
{
    static const char *const pieces[] = {"A", "B", "C", "D", "E", "F", "G",
                                         "a", "b", "c", "d", "e", "f", "g"};
    hand_grammar_t *h = many_stacks();
    vocab_t *vocab = vocab_create();
    uint64_t rng = 5;
    bt_matcher_config_t config = {.grammar = &h->grammar,
                                  .max_bytes = 4u << 20,
                                  .max_mask_steps = 400000};
    bt_token_trie_t *trie;
    bt_matcher_t *m = NULL;
    bt_matcher_cursor_t cursor;
    uint32_t n;

    (void)state;
    vocab_add_random(vocab, &rng, pieces, BT_ARRAY_LEN(pieces), 12, 1000);
    (void)vocab_add(vocab, "", 0);
    trie = vocab_trie(vocab, true);
    config.trie = trie;
    assert_int_equal(bt_matcher_create(&config, &m), BT_OK);
    cursor = bt_matcher_begin(m);
    assert_null(bt_matcher_mask(m, &cursor, &n));
    assert_int_equal(cursor.state, BT_MATCHER_FAILED);
    assert_true(bt_matcher_stats(m)->steps > config.max_mask_steps);
    assert_true(bt_matcher_stats(m)->steps <
                config.max_mask_steps + 5 * BT_MATCHER_MAX_WORK);
    assert_true(bt_matcher_stats(m)->resets <= 10);
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

/* A state with many edges for the same bytes fails by itself. */
static void edges_of_a_state_are_bounded(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    vocab_t *vocab = vocab_create();
    bt_token_trie_t *trie;
    bt_matcher_t *m;
    bt_matcher_cursor_t cursor;
    uint32_t n;

    (void)state;
    for (uint32_t i = 0; i < 63; i++) { /* all of them read the same bytes */
        const uint32_t rule = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
        const uint32_t first = hand_state(h, rule, false);
        const uint32_t inside = hand_state(h, rule, false);
        const uint32_t last = hand_state(h, rule, true);

        hand_call(h, start, rule, end, false);
        for (int b = 0; b < 120; b++) {
            hand_bytes(h, first, b, b, inside, false);
        }
        hand_bytes(h, inside, '.', '.', last, false);
    }
    vocab_add_bytes(vocab);
    (void)vocab_add(vocab, "", 0);
    trie = vocab_trie(vocab, true);
    m = matcher_of(hand_finish(h), trie);
    cursor = bt_matcher_begin(m);
    assert_null(bt_matcher_mask(m, &cursor, &n));
    assert_int_equal(cursor.state, BT_MATCHER_FAILED);
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

static void masks_that_are_used_stay(void **state)
{
    counted_t c = open_counted(30, 30);
    static const uint32_t tokens[40];
    bt_matcher_cursor_t cursor = bt_matcher_begin(c.m);
    bt_matcher_cursor_t first = cursor;
    const bt_matcher_stats_t *stats = bt_matcher_stats(c.m);
    uint64_t n_hits;
    uint32_t n;

    (void)state;
    c.m->n_slots = 3;
    assert_non_null(bt_matcher_mask(c.m, &first, &n));
    for (uint32_t k = 20; k <= 30; k++) {
        assert_true(bt_matcher_move(c.m, &cursor, tokens, k));
        assert_non_null(bt_matcher_mask(c.m, &cursor, &n));
        n_hits = stats->mask_hits;
        assert_non_null(bt_matcher_mask(c.m, &first, &n));
        assert_int_equal(n, 4);
        assert_int_equal(stats->mask_hits, n_hits + 1);
    }
    close_counted(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(masks_know_each_count_near_a_bound),
        BT_TEST(states_far_from_bounds_share_their_mask),
        BT_TEST(long_tokens_are_tested_one_by_one),
        BT_TEST(vocabulary_without_the_next_byte_has_no_mask),
        BT_TEST(limit_of_steps_is_the_same_at_any_time),
        BT_TEST(rows_of_a_mask_are_bounded),
        BT_TEST(edges_of_a_state_are_bounded),
        BT_TEST(masks_that_are_used_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
