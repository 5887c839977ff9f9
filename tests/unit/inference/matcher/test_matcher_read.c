/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of tokens: read from canonical states they lead where they do from the
 * state itself, byte by byte. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/random_grammars.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

/* Reads bytes by the rows of the states behind each. */
static uint32_t read_by_rows(bt_matcher_t *m, uint32_t state,
                             const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; (i < n) && bt_matcher_ready(m, &state); i++) {
        state = bt_matcher_row(m, state)[m->class_of[bytes[i]]];
    }
    return state;
}

typedef struct totals {
    uint64_t n_read, n_live;
    uint64_t n_from_canonical; /* where the canonical state is another one */
    uint32_t n_full;
} totals_t;

/* Compares each token behind each state of an answer, until tables are full. */
static void compare_answer(bt_matcher_t *m, const vocab_t *vocab, uint64_t *rng,
                           uint32_t n_tokens, totals_t *totals)
{
    uint32_t state = bt_matcher_begin(m).state;
    const uint32_t epoch = bt_matcher_epoch(m);

    for (uint32_t n = 0; (n < n_tokens) && (state > BT_MATCHER_FAILED); n++) {
        const uint32_t first = (uint32_t)draw_below(rng, vocab->n);
        uint32_t next = BT_MATCHER_DEAD;

        for (uint32_t i = 0; i < vocab->n; i++) {
            const uint32_t id = (first + i) % vocab->n;
            const uint8_t *bytes = vocab->bytes[id];
            const uint32_t behind =
                bt_matcher_read(m, state, bytes, vocab->lens[id]);
            const uint32_t by_rows =
                (bt_matcher_epoch(m) == epoch)
                    ? read_by_rows(m, state, bytes, vocab->lens[id])
                    : BT_MATCHER_FAILED;

            if (bt_matcher_epoch(m) != epoch) {
                totals->n_full++;
                return;
            }
            assert_int_equal(behind, by_rows);
            totals->n_read++;
            totals->n_live += (behind > BT_MATCHER_FAILED) ? 1 : 0;
            totals->n_from_canonical +=
                ((behind > BT_MATCHER_FAILED) && (m->sets[state].n == 1) &&
                 (bt_matcher_canonical(m, state) != state))
                    ? 1
                    : 0;
            if ((next == BT_MATCHER_DEAD) && (vocab->lens[id] > 0)) {
                next = behind;
            }
        }
        state = next;
    }
}

static void compare(hand_grammar_t *h, vocab_t *vocab, uint64_t *rng,
                    totals_t *totals)
{
    bt_token_trie_t *trie = vocab_trie(vocab, true);
    const bt_matcher_config_t config = {
        .grammar = &h->grammar, .trie = trie, .max_bytes = 8u << 20};
    bt_matcher_t *m = NULL;

    if (bt_matcher_create(&config, &m) == BT_OK) { /* else it has gaps */
        for (uint32_t i = 0; i < 4; i++) {
            compare_answer(m, vocab, rng, 40, totals);
        }
    }
    bt_matcher_destroy(m);
    bt_token_trie_destroy(trie);
    bt_free(vocab);
    bt_free(h);
}

static void tokens_lead_where_their_bytes_do(void **state)
{
    totals_t totals = {0};
    uint64_t rng = 31;

    (void)state;
    for (uint32_t i = 0; i < 500; i++) {
        const hand_random_t options = {
            .n_rules = 1 + (uint32_t)draw_below(&rng, 5),
            .n_states = 2 + (uint32_t)draw_below(&rng, 5),
            .n_letters = 1 + (uint32_t)draw_below(&rng, 3),
            .max_count = 1 + (uint32_t)draw_below(&rng, 90)};

        compare(hand_random(&rng, &options),
                letter_vocab(&rng, options.n_letters), &rng, &totals);
    }
    for (uint32_t i = 0; i < 200; i++) {
        compare(draw_nested(&rng), letter_vocab(&rng, 4), &rng, &totals);
        compare(draw_strings(&rng), string_vocab(&rng), &rng, &totals);
    }
    print_message("%lu tokens, %lu allowed, %lu of them from another state\n",
                  (unsigned long)totals.n_read, (unsigned long)totals.n_live,
                  (unsigned long)totals.n_from_canonical);
    assert_true(totals.n_full < 50);
    assert_true(totals.n_live > 100000);
    assert_true(totals.n_read - totals.n_live > 100000);
    assert_true(totals.n_from_canonical > 10000);
}

/* Lists of 2 to max_items elements in brackets, each of min to max letters. */
static hand_grammar_t *lists(uint32_t max_items, uint32_t min, uint32_t max)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t list = hand_rule(h, 2, max_items);
    const uint32_t item = hand_rule(h, min, max);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t open = hand_state(h, root, false);
    const uint32_t close = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t first = hand_state(h, list, false);
    const uint32_t behind = hand_state(h, list, true);
    const uint32_t letter = hand_state(h, item, false);
    const uint32_t letters = hand_state(h, item, true);

    hand_bytes(h, start, '[', '[', open, false);
    hand_call(h, open, list, close, false);
    hand_bytes(h, close, ']', ']', end, false);
    hand_call(h, first, item, behind, true);
    hand_bytes(h, behind, ',', ',', first, false);
    hand_bytes(h, letter, 'a', 'b', letters, true);
    hand_bytes(h, letters, 'a', 'b', letters, true);
    (void)hand_finish(h);
    return h;
}

static vocab_t *list_vocab(void)
{
    static const char *const texts[] = {"[",  "a",   "ab",    "bbbb", ",",
                                        ",a", "a,b", "bb,aa", "]",    "b]"};
    vocab_t *vocab = vocab_create();

    for (uint32_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        (void)vocab_add(vocab, texts[i], strlen(texts[i]));
    }
    (void)vocab_add(vocab, "", 0);
    return vocab;
}

typedef struct world {
    hand_grammar_t *h;
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
} world_t;

static world_t open_world(hand_grammar_t *h)
{
    world_t w = {.h = h, .vocab = list_vocab()};

    w.trie = vocab_trie(w.vocab, true);
    w.m = matcher_of(&h->grammar, w.trie);
    return w;
}

static void close_world(world_t *w)
{
    bt_matcher_destroy(w->m);
    bt_token_trie_destroy(w->trie);
    bt_free(w->vocab);
    bt_free(w->h);
}

static uint32_t read_text(bt_matcher_t *m, uint32_t state, const char *text)
{
    return bt_matcher_read(m, state, (const uint8_t *)text, strlen(text));
}

/* Count of a frame of a state's only stack, from the top. */
static uint32_t count_of(const bt_matcher_t *m, uint32_t state, uint32_t frame)
{
    uint32_t n;
    uint32_t node;

    assert_true(state > BT_MATCHER_FAILED);
    node = *bt_matcher_members(m, state, &n);
    assert_int_equal(n, 1);
    while (frame-- > 0) {
        node = m->nodes[node].below;
    }
    return m->nodes[node].count;
}

static void counts_far_from_bounds_make_no_rows(void **state)
{
    world_t w = open_world(lists(1u << 20, 1, 1u << 20));
    uint32_t at = read_text(w.m, bt_matcher_begin(w.m).state, "[");
    uint32_t n_rows = 0;

    (void)state;
    for (uint32_t i = 0; i < 100; i++) { /* elements */
        for (uint32_t k = 0; k < 20; k++) {
            at = read_text(w.m, at, "bbbb");
        }
        assert_int_equal(count_of(w.m, at, 0), (i == 0) ? 80 : 81);
        at = read_text(w.m, at, "ab");
        at = read_text(w.m, at, ",a");
        assert_int_equal(count_of(w.m, at, 0), 1);
        assert_int_equal(count_of(w.m, at, 1), i + 2);
        n_rows = (i == 20) ? w.m->n_rows : n_rows;
    }
    assert_int_equal(w.m->n_rows, n_rows);
    assert_int_equal(bt_matcher_stats(w.m)->resets, 0);
    assert_true(n_rows < 100);
    close_world(&w);
}

static void bytes_beyond_the_longest_token_are_read(void **state)
{
    world_t w = open_world(lists(300, 100, 900));
    const uint32_t at = read_text(w.m, bt_matcher_begin(w.m).state, "[a");
    uint8_t bytes[900];

    (void)state;
    memset(bytes, 'a', sizeof(bytes));
    assert_true(bt_matcher_canonical(w.m, at) != at);
    for (uint32_t n = 1; n < 900; n++) {
        const uint32_t next = bt_matcher_read(w.m, at, bytes, n);

        assert_int_equal(count_of(w.m, next, 0), 1 + n);
    }
    assert_int_equal(bt_matcher_read(w.m, at, bytes, 900), BT_MATCHER_DEAD);
    close_world(&w);
}

static void full_tables_change_no_state(void **state)
{
    world_t w = open_world(lists(300, 3, 900));
    bt_matcher_cursor_t cursor = bt_matcher_begin(w.m);
    uint32_t tokens[400] = {0};

    (void)state;
    w.m->cap_rows = 6; /* one token needs as many, and nodes too */
    w.m->cap_nodes = 20;
    w.m->cap_sets = 20;
    for (uint32_t n = 1; n <= 400; n++) { /* [bbbbbbbb…bb,aa */
        assert_true(bt_matcher_move(w.m, &cursor, tokens, n));
        assert_int_equal(count_of(w.m, cursor.state, (n == 1) ? 0 : 1),
                         (n == 1)    ? 0
                         : (n > 200) ? n - 199
                                     : 1);
        if (n < 400) {
            tokens[n] = (n < 200) ? 3 : 7;
        }
    }
    assert_true(bt_matcher_stats(w.m)->resets > 20);
    close_world(&w);
}

/* Elements of 0 to 1000 letters, one behind another without anything between
 * them: behind the canonical state of one letter, a second one of the element
 * looks as the first one of a new element does. */
static void ways_that_look_alike_are_kept_apart(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t item = hand_rule(h, 0, 1000);
    const uint32_t start = hand_state(h, root, true);
    const uint32_t first = hand_state(h, item, false);
    const uint32_t more = hand_state(h, item, true);
    uint32_t at, n;
    world_t w;

    (void)state;
    hand_call(h, start, item, start, false);
    hand_bytes(h, first, 'a', 'a', more, true);
    hand_bytes(h, more, 'a', 'a', more, true);
    (void)hand_finish(h);
    w = open_world(h);
    at = read_text(w.m, bt_matcher_begin(w.m).state, "a");
    assert_int_equal(count_of(w.m, at, 0), 1);
    assert_true(bt_matcher_canonical(w.m, at) != at);
    at = read_text(w.m, at, "a");
    (void)bt_matcher_members(w.m, at, &n);
    assert_int_equal(n, 2);
    close_world(&w);
}

/* Up to 2^20 letters a, and a b behind which another rule takes the frame's
 * place, of 1 to 2^20 letters b. */
static void frames_that_take_another_ones_place_begin_to_count(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t one = hand_rule(h, 0, 1u << 20);
    const uint32_t two = hand_rule(h, 0, 1u << 20);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t letters = hand_state(h, one, false);
    const uint32_t behind = hand_state(h, one, false);
    const uint32_t one_end = hand_state(h, one, true);
    const uint32_t first = hand_state(h, two, false);
    const uint32_t more = hand_state(h, two, true);
    uint32_t at;
    world_t w;

    (void)state;
    hand_call(h, start, one, end, false);
    hand_bytes(h, letters, 'a', 'a', letters, true);
    hand_bytes(h, letters, 'b', 'b', behind, true);
    hand_call(h, behind, two, one_end, true);
    hand_bytes(h, first, 'b', 'b', more, true);
    hand_bytes(h, more, 'b', 'b', more, true);
    (void)hand_finish(h);
    w = open_world(h);
    at = bt_matcher_begin(w.m).state;
    for (uint32_t i = 0; i < 50; i++) {
        at = read_text(w.m, at, "a");
    }
    assert_int_equal(count_of(w.m, at, 0), 50);
    assert_int_equal(count_of(w.m, read_text(w.m, at, "ab"), 0), 52);
    for (uint32_t n = 2; n <= 5; n++) {
        const uint32_t next = read_text(w.m, at, &"bbbbb"[5 - n]);

        assert_int_equal(count_of(w.m, next, 0), n - 1);
        assert_int_equal(
            next, read_by_rows(w.m, at, (const uint8_t *)&"bbbbb"[5 - n], n));
    }
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tokens_lead_where_their_bytes_do),
        BT_TEST(counts_far_from_bounds_make_no_rows),
        BT_TEST(bytes_beyond_the_longest_token_are_read),
        BT_TEST(full_tables_change_no_state),
        BT_TEST(ways_that_look_alike_are_kept_apart),
        BT_TEST(frames_that_take_another_ones_place_begin_to_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
