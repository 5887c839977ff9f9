/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that end within so many tokens. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/random_grammars.h"

#define MAX_TOKENS 40u

typedef struct world {
    hand_grammar_t *h;
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
} world_t;

/* @return false: the grammar counts with gaps */
static bool open_world(world_t *w, hand_grammar_t *h, vocab_t *vocab)
{
    bt_matcher_config_t config = {.grammar = hand_finish(h),
                                  .max_bytes = 4u << 20};
    bt_status_t status;

    *w = (world_t){.h = h, .vocab = vocab, .trie = vocab_trie(vocab, true)};
    config.trie = w->trie;
    status = bt_matcher_create(&config, &w->m);
    if (status == BT_OK) {
        assert_int_equal(bt_matcher_know_distances(w->m), BT_OK);
    } else {
        assert_int_equal(status, BT_ERR_UNSUPPORTED);
    }
    return status == BT_OK;
}

static void close_world(world_t *w)
{
    bt_matcher_destroy(w->m);
    bt_token_trie_destroy(w->trie);
    bt_free(w->vocab);
    bt_free(w->h);
}

/* {"list": […, …]}, of at least two digits, and then any letters. */
static hand_grammar_t *object(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t items = hand_rule(h, 2, BT_GRAMMAR_NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t list = hand_state(h, root, false);
    const uint32_t behind = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t first = hand_state(h, items, false);
    const uint32_t item = hand_state(h, items, true);
    const uint32_t comma = hand_state(h, items, false);

    hand_text(h, start, "{\"list\": [", list);
    hand_call(h, list, items, behind, false);
    hand_text(h, behind, "]}", end);
    hand_bytes(h, end, 'a', 'z', end, false);
    hand_bytes(h, first, '0', '9', item, true);
    hand_bytes(h, item, ',', ',', comma, false);
    hand_bytes(h, comma, '0', '9', item, true);
    return h;
}

static void bytes_to_the_end_are_those_of_the_shortest_text(void **state)
{
    const struct {
        const char *text;
        uint32_t bytes;
    } cases[] = {{"", 15},
                 {"{\"li", 11},
                 {"{\"list\": [", 5},
                 {"{\"list\": [1", 4},
                 {"{\"list\": [1,", 3},
                 {"{\"list\": [1,2", 2},
                 {"{\"list\": [1,2,", 3},
                 {"{\"list\": [1,2,3]", 1},
                 {"{\"list\": [1,2,3]}", 0},
                 {"{\"list\": [1,2,3]}abc", 0}};
    vocab_t *vocab = vocab_create();
    world_t w;

    (void)state;
    vocab_add_bytes(vocab);
    assert_true(open_world(&w, object(), vocab));
    for (uint32_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const char *text = cases[i].text;
        const uint32_t s = bt_matcher_read(w.m, bt_matcher_begin(w.m).state,
                                           (const uint8_t *)text, strlen(text));

        assert_int_equal(bt_matcher_min_bytes(w.m, s), cases[i].bytes);
    }
    assert_int_equal(bt_matcher_min_bytes(w.m, BT_MATCHER_DEAD),
                     BT_DISTANCE_NONE);
    close_world(&w);
}

/* Draws answers of exactly as many tokens as are needed, or a few more: all of
 * them are whole. */
static void answers_end_within_their_tokens(void **state)
{
    static const char *const pieces[] = {"{\"", "list", "\": [", "1,", "2",
                                         ",3",  "]",    "}",     "abc"};
    vocab_t *vocab = vocab_create();
    uint64_t rng = 1;
    world_t w;

    (void)state;
    vocab_add_bytes(vocab);
    vocab_add_random(vocab, &rng, pieces, BT_ARRAY_LEN(pieces), 3, 100);
    (void)vocab_add(vocab, "", 0);
    assert_true(open_world(&w, object(), vocab));
    for (uint32_t round = 0; round < 500; round++) {
        const uint32_t n_tokens = 15 + round % 20;
        bt_matcher_cursor_t cursor = bt_matcher_begin(w.m);
        uint32_t tokens[MAX_TOKENS];
        uint32_t n = 0;

        for (; n < n_tokens; n++) {
            uint32_t n_mask;
            const uint64_t *mask;

            assert_true(bt_matcher_move(w.m, &cursor, tokens, n));
            mask =
                bt_matcher_mask_within(w.m, &cursor, n_tokens - n - 1, &n_mask);
            assert_non_null(mask);
            do {
                tokens[n] = (uint32_t)draw_below(&rng, vocab->n);
            } while (!mask_has(mask, tokens[n]));
            if (tokens[n] == vocab->n - 1) {
                break;
            }
        }
        assert_true(bt_matcher_move(w.m, &cursor, tokens, n));
        assert_true(bt_matcher_accepts(w.m, cursor.state));
    }
    close_world(&w);
}

/* Bits of the tokens a, aa, ", \n and the end id behind a text. */
static uint64_t bits_within(world_t *w, const char *text, uint32_t n_left)
{
    bt_matcher_cursor_t cursor = bt_matcher_begin(w->m);
    const uint64_t *mask;
    uint32_t n;

    cursor.state = bt_matcher_read(w->m, cursor.state, (const uint8_t *)text,
                                   strlen(text));
    mask = bt_matcher_mask_within(w->m, &cursor, n_left, &n);
    return (mask == NULL) ? 0 : mask[0];
}

static vocab_t *few_tokens(void)
{
    vocab_t *vocab = vocab_create();

    (void)vocab_add(vocab, "a", 1);
    (void)vocab_add(vocab, "aa", 2);
    (void)vocab_add(vocab, "\"", 1);
    (void)vocab_add(vocab, "\n", 1);
    (void)vocab_add(vocab, "", 0);
    return vocab;
}

/* A string that ends by one quote, or behind any character by three. */
static void plain_text_may_lead_further(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t inside = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_char(h, start, inside, false);
    hand_char(h, inside, inside, false);
    hand_text(h, start, "\"", end);
    hand_text(h, inside, "\"\"\"", end);
    assert_true(open_world(&w, h, few_tokens()));
    assert_int_equal(w.m->plain[start], BT_PLAIN_ANY);
    assert_int_equal(bits_within(&w, "", 9), 0x7);
    assert_int_equal(bits_within(&w, "", 3), 0x7);
    assert_int_equal(bits_within(&w, "", 2), 0x4);
    assert_int_equal(bits_within(&w, "a", 3), 0x7);
    assert_int_equal(bits_within(&w, "a", 2), 0x4);
    assert_int_equal(bits_within(&w, "a", 1), 0);
    close_world(&w);
}

/* A string whose short end needs a frame more than its long one. Where there is
 * none, the long one is not known until it has begun. */
static void short_ends_may_need_more_depth(void **state)
{
    (void)state;
    for (uint32_t max_depth = 2; max_depth > 0; max_depth--) {
        hand_grammar_t *h = hand_grammar();
        const uint32_t rule = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
        const uint32_t other = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
        const uint32_t inside = hand_state(h, rule, false);
        const uint32_t behind = hand_state(h, rule, false);
        const uint32_t end = hand_state(h, rule, true);
        const uint32_t o = hand_state(h, other, false);
        const uint32_t o_end = hand_state(h, other, true);
        world_t w;

        hand_char(h, inside, inside, false);
        hand_call(h, inside, other, behind, false);
        hand_bytes(h, behind, '"', '"', end, false);
        hand_bytes(h, o, '\n', '\n', o_end, false);
        hand_text(h, inside, "\"\"\"\"\"", end);
        assert_true(open_world(&w, h, few_tokens()));
        w.m->max_depth = max_depth;
        assert_int_equal(bits_within(&w, "a", 5), (max_depth == 2) ? 0xf : 0x4);
        assert_int_equal(bits_within(&w, "a", 4), (max_depth == 2) ? 0xf : 0x4);
        assert_int_equal(bits_within(&w, "a", 3), (max_depth == 2) ? 0xb : 0);
        close_world(&w);
    }
}

/* Masks of states far from a rule's min are one, and their distances differ. */
static void missing_counts_are_kept_apart(void **state)
{
    (void)state;
    for (uint32_t any = 0; any < 2; any++) {
        hand_grammar_t *h = hand_grammar();
        const uint32_t rule = hand_rule(h, 1000, BT_GRAMMAR_NO_LIMIT);
        const uint32_t s = hand_state(h, rule, true);
        world_t w;

        if (any == 0) {
            hand_bytes(h, s, 'a', 'a', s, true);
        } else {
            hand_char(h, s, s, true);
        }
        assert_true(open_world(&w, h, few_tokens()));
        assert_int_equal(bits_within(&w, "", 2000), 0x3);
        assert_int_equal(bits_within(&w, "", 999), 0x3);
        assert_int_equal(bits_within(&w, "", 998), 0x2);
        assert_int_equal(bits_within(&w, "", 997), 0);
        assert_int_equal(bits_within(&w, "aaaaa", 993), 0x2);
        assert_int_equal(bits_within(&w, "aaaaa", 992), 0);
        close_world(&w);
    }
}

/*
 * Random grammars
 */

typedef struct totals {
    uint64_t n_tokens, n_left_out;
    uint32_t n_masks, n_steps, n_kept;
} totals_t;

/* From a state that is not at the end, some byte or token leads nearer. */
static void check_step(const world_t *w, bt_matcher_cursor_t cursor,
                       const uint32_t *tokens, uint32_t n, totals_t *totals)
{
    const uint32_t bytes = bt_matcher_min_bytes(w->m, cursor.state);
    bool nearer = false;

    assert_true((bytes == 0) == bt_matcher_accepts(w->m, cursor.state));
    if ((bytes == 0) || (bytes == BT_DISTANCE_NONE)) {
        return;
    }
    for (uint32_t b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;

        nearer =
            nearer ||
            (bt_matcher_min_bytes(
                 w->m, bt_matcher_read(w->m, cursor.state, &byte, 1)) < bytes);
    }
    for (uint32_t i = 0; !nearer && (i < w->m->n_taken); i++) {
        for (uint32_t id = w->m->taken[i].first;
             !nearer && (id <= w->m->taken[i].last) && (id < w->trie->n_vocab);
             id++) {
            uint32_t more[MAX_TOKENS + 1];
            bt_matcher_cursor_t c = cursor;

            if (n > 0) {
                memcpy(more, tokens, n * sizeof(tokens[0]));
            }
            more[n] = id;
            nearer = bt_matcher_move(w->m, &c, more, n + 1) &&
                     (bt_matcher_min_bytes(w->m, c.state) < bytes);
        }
    }
    assert_true(nearer);
    totals->n_steps++;
}

/* Compares the mask of a number of tokens with what is behind each token. */
static void check_within(const world_t *w, bt_matcher_cursor_t cursor,
                         uint32_t n_left, uint32_t *tokens, uint32_t n,
                         totals_t *totals)
{
    uint64_t all[(VOCAB_MAX_TOKENS + 63) / 64];
    uint64_t near[(VOCAB_MAX_TOKENS + 63) / 64] = {0};
    const size_t bytes = w->trie->n_words * sizeof(uint64_t);
    uint32_t n_all = 0;
    uint32_t n_near = 0;
    uint32_t n_want = 0;
    const uint64_t *mask = bt_matcher_mask(w->m, &cursor, &n_all);

    if (mask == NULL) {
        return;
    }
    memcpy(all, mask, bytes);
    mask = bt_matcher_mask_within(w->m, &cursor, n_left, &n_near);
    if (mask != NULL) {
        memcpy(near, mask, bytes);
    }
    for (uint32_t id = 0; id < w->vocab->n; id++) {
        bt_matcher_cursor_t c = cursor;
        bool want = mask_has(all, id);

        if (want && (id != w->vocab->n - 1)) {
            tokens[n] = id;
            want = bt_matcher_move(w->m, &c, tokens, n + 1) &&
                   (bt_matcher_min_bytes(w->m, c.state) <= n_left);
        }
        assert_int_equal(mask_has(near, id), want);
        n_want += want ? 1 : 0;
    }
    assert_int_equal((mask == NULL) ? 0 : n_near, n_want);
    totals->n_masks++;
    totals->n_tokens += w->vocab->n;
    totals->n_left_out += n_all - n_want;
    totals->n_kept += ((n_all == n_want) && (mask != w->m->near_mask)) ? 1 : 0;
}

static void walk(const world_t *w, uint64_t *rng, totals_t *totals)
{
    bt_matcher_cursor_t cursor = bt_matcher_begin(w->m);
    uint32_t tokens[MAX_TOKENS + 1];
    uint32_t n = 0;

    for (; n < MAX_TOKENS; n++) {
        uint32_t bytes;
        uint32_t n_mask;
        const uint64_t *mask;

        if (!bt_matcher_move(w->m, &cursor, tokens, n)) {
            return;
        }
        bytes = bt_matcher_min_bytes(w->m, cursor.state);
        check_step(w, cursor, tokens, n, totals);
        check_within(w, cursor,
                     (uint32_t)draw_below(rng, ((bytes < 60) ? bytes : 60) + 3),
                     tokens, n, totals);
        check_within(w, cursor, (uint32_t)draw_below(rng, 30), tokens, n,
                     totals);
        mask = bt_matcher_mask(w->m, &cursor, &n_mask);
        if (mask == NULL) {
            return;
        }
        for (uint32_t i = 0; i < 200; i++) {
            tokens[n] = (uint32_t)draw_below(rng, w->vocab->n - 1);
            if (mask_has(mask, tokens[n])) {
                break;
            }
        }
    }
}

static void check_grammar(hand_grammar_t *h, vocab_t *vocab, uint64_t *rng,
                          totals_t *totals)
{
    world_t w;

    if (open_world(&w, h, vocab)) {
        w.m->max_depth = 3 + (uint32_t)draw_below(rng, 20);
        for (uint32_t i = 0; i < 2; i++) {
            walk(&w, rng, totals);
        }
    }
    close_world(&w);
}

static void masks_within_some_tokens_are_exact(void **state)
{
    totals_t totals = {0};
    uint64_t rng = 9;

    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t n_letters;
        hand_grammar_t *h;

        switch (i % 4) {
        case 0:
            h = draw_nested(&rng);
            check_grammar(h, letter_vocab(&rng, 4), &rng, &totals);
            break;
        case 1:
            h = draw_letters(&rng, i / 4, &n_letters);
            check_grammar(h, letter_vocab(&rng, n_letters), &rng, &totals);
            break;
        default:
            h = draw_strings(&rng);
            check_grammar(h, string_vocab(&rng), &rng, &totals);
            break;
        }
    }
    print_message("%lu tokens of %u masks, %lu left out; %u steps, %u masks "
                  "that were kept\n",
                  (unsigned long)totals.n_tokens, totals.n_masks,
                  (unsigned long)totals.n_left_out, totals.n_steps,
                  totals.n_kept);
    assert_true(totals.n_tokens > 500000);
    assert_true(totals.n_left_out > 20000);
    assert_true(totals.n_steps > 1000);
    assert_true(totals.n_kept > 1000);
}

/* Up to 60 letters, at least 20 of them, where five letters b end the text, or
 * nine others that do not count: near the greatest count only these are left.
 */
static hand_grammar_t *two_ends(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t letters = hand_rule(h, 20, 60);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t behind = hand_state(h, root, false);
    const uint32_t last = hand_state(h, root, true);
    const uint32_t at = hand_state(h, letters, false);
    const uint32_t end = hand_state(h, letters, true);
    uint32_t b = at;

    hand_call(h, start, letters, behind, false);
    hand_bytes(h, behind, '.', '.', last, false);
    hand_bytes(h, at, 'a', 'a', at, true);
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t next = (i == 4) ? end : hand_state(h, letters, false);

        hand_bytes(h, b, 'b', 'b', next, true);
        b = next;
    }
    hand_text(h, at, "ccccccccc", end);
    return h;
}

static void counts_far_from_bounds_share_their_masks(void **state)
{
    static const char *const texts[] = {"a",   "aa", "aaaa", "b",  "bb", "ab",
                                        "aab", "c",  "ac",   "cc", "."};
    vocab_t *vocab = vocab_create();
    totals_t totals = {0};
    uint32_t tokens[MAX_TOKENS + 1] = {0};
    uint64_t hits;
    world_t w;

    (void)state;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        (void)vocab_add(vocab, texts[i], strlen(texts[i]));
    }
    (void)vocab_add(vocab, "", 0);
    assert_true(open_world(&w, two_ends(), vocab));
    for (uint32_t count = 0; count <= 60; count++) {
        bt_matcher_cursor_t cursor = bt_matcher_begin(w.m);
        const uint32_t n = count / 4 + count % 4;

        for (uint32_t i = 0; i < n; i++) {
            tokens[i] = (i < count / 4) ? 2 : 0;
        }
        assert_true(bt_matcher_move(w.m, &cursor, tokens, n));
        for (uint32_t n_left = 0; n_left < 50; n_left++) {
            check_within(&w, cursor, n_left, tokens, n, &totals);
        }
        hits = bt_matcher_stats(w.m)->mask_hits;
        (void)bt_matcher_mask_within(w.m, &cursor, 40, &(uint32_t){0});
        if ((count >= 20) && (count < 50)) {
            assert_int_equal(bt_matcher_stats(w.m)->mask_hits, hits + 1);
        }
    }
    assert_int_equal(totals.n_masks, 61 * 50);
    assert_true(totals.n_left_out > 1000);
    close_world(&w);
}

static void distances_change_no_mask(void **state)
{
    uint64_t rng = 12;

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        hand_grammar_t *h = draw_strings(&rng);
        vocab_t *vocab = string_vocab(&rng);
        world_t w;
        bt_matcher_t *m;

        assert_true(open_world(&w, h, vocab));
        m = matcher_of(&h->grammar, w.trie);
        for (uint32_t id = 0; id < vocab->n - 1; id++) {
            bt_matcher_cursor_t a = bt_matcher_begin(w.m);
            bt_matcher_cursor_t b = bt_matcher_begin(m);
            uint32_t n_a = 0;
            uint32_t n_b = 0;

            if (bt_matcher_move(w.m, &a, &id, 1)) {
                const uint64_t *mask_a = bt_matcher_mask(w.m, &a, &n_a);
                const uint64_t *mask_b;

                assert_true(bt_matcher_move(m, &b, &id, 1));
                mask_b = bt_matcher_mask(m, &b, &n_b);
                assert_true((mask_a == NULL) == (mask_b == NULL));
                assert_int_equal(n_a, n_b);
                if (mask_a != NULL) {
                    assert_memory_equal(mask_a, mask_b,
                                        w.trie->n_words * sizeof(uint64_t));
                }
            }
        }
        bt_matcher_destroy(m);
        close_world(&w);
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    vocab_t *vocab = vocab_create();
    world_t w;
    bt_matcher_t *m;
    int nth = 1;

    (void)state;
    vocab_add_bytes(vocab);
    assert_true(open_world(&w, object(), vocab));
    m = matcher_of(&w.h->grammar, w.trie);
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_matcher_know_distances(m);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    assert_true(nth > 15);
    assert_int_equal(bt_matcher_know_distances(m), BT_OK);
    assert_int_equal(bt_matcher_min_bytes(m, bt_matcher_begin(m).state), 15);
    bt_matcher_destroy(m);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(bytes_to_the_end_are_those_of_the_shortest_text),
        BT_TEST(answers_end_within_their_tokens),
        BT_TEST(plain_text_may_lead_further),
        BT_TEST(short_ends_may_need_more_depth),
        BT_TEST(missing_counts_are_kept_apart),
        BT_TEST(masks_within_some_tokens_are_exact),
        BT_TEST(counts_far_from_bounds_share_their_masks),
        BT_TEST(distances_change_no_mask),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
