/* SPDX-License-Identifier: Apache-2.0 */
/* States, steps and cursors of grammars made by hand. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/vocab.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

/* Grammar, vocabulary of all bytes, two special tokens and an end id, and the
 * matcher of both. */
typedef struct world {
    hand_grammar_t *h;
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
} world_t;

#define SPECIAL 256u
#define END_ID  258u

static world_t open_world(hand_grammar_t *h)
{
    world_t w = {.h = h, .vocab = vocab_create()};

    vocab_add_bytes(w.vocab);
    (void)vocab_add(w.vocab, "", 0);
    (void)vocab_add(w.vocab, "", 0);
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
    bt_free(w->h);
}

static uint32_t read_text(world_t *w, const char *text)
{
    return bt_matcher_read(w->m, bt_matcher_begin(w->m).state,
                           (const uint8_t *)text, strlen(text));
}

/* What a text is: 'w' a whole one, 'b' the beginning of one, '-' none, 'f'
 * failed. */
static char outcome(world_t *w, const char *text)
{
    const uint32_t state = read_text(w, text);

    return (state == BT_MATCHER_DEAD)        ? '-'
           : (state == BT_MATCHER_FAILED)    ? 'f'
           : bt_matcher_accepts(w->m, state) ? 'w'
                                             : 'b';
}

static void texts_and_alternatives_are_read(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    const uint32_t more = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_text(h, start, "true", end);
    hand_text(h, start, "false", more);
    hand_bytes(h, more, '!', '!', more, false);
    w = open_world(h);
    assert_int_equal(outcome(&w, ""), 'b');
    assert_int_equal(outcome(&w, "tru"), 'b');
    assert_int_equal(outcome(&w, "true"), 'w');
    assert_int_equal(outcome(&w, "true!"), '-');
    assert_int_equal(outcome(&w, "false!!!"), 'w');
    assert_int_equal(outcome(&w, "x"), '-');
    close_world(&w);
}

/* value: x, or [ value ] */
static hand_grammar_t *brackets(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t value = hand_rule(h, 0, NO_LIMIT);
    const uint32_t s = hand_state(h, root, false);
    const uint32_t s_end = hand_state(h, root, true);
    const uint32_t start = hand_state(h, value, false);
    const uint32_t inside = hand_state(h, value, false);
    const uint32_t behind = hand_state(h, value, false);
    const uint32_t end = hand_state(h, value, true);

    hand_call(h, s, value, s_end, false);
    hand_bytes(h, start, 'x', 'x', end, false);
    hand_bytes(h, start, '[', '[', inside, false);
    hand_call(h, inside, value, behind, false);
    hand_bytes(h, behind, ']', ']', end, false);
    return h;
}

static void brackets_nest_to_the_greatest_depth(void **state)
{
    char text[2 * BT_GRAMMAR_MAX_DEPTH + 2];
    world_t w = open_world(brackets());

    (void)state;
    assert_int_equal(outcome(&w, "[[x]]"), 'w');
    assert_int_equal(outcome(&w, "[[x]"), 'b');
    assert_int_equal(outcome(&w, "[x]]"), '-');
    /* The root's call is a tail call, so the first bracket's frame is the
     * first one; the value in the last brackets needs one more. */
    memset(text, '[', BT_GRAMMAR_MAX_DEPTH);
    text[BT_GRAMMAR_MAX_DEPTH] = '\0';
    assert_int_equal(outcome(&w, text), '-');
    text[BT_GRAMMAR_MAX_DEPTH - 1] = '\0';
    assert_int_equal(outcome(&w, text), 'b');
    text[BT_GRAMMAR_MAX_DEPTH - 1] = 'x';
    memset(&text[BT_GRAMMAR_MAX_DEPTH], ']', BT_GRAMMAR_MAX_DEPTH - 1);
    text[2 * BT_GRAMMAR_MAX_DEPTH - 1] = '\0';
    assert_int_equal(outcome(&w, text), 'w');
    close_world(&w);
}

/* list: a, or a list */
static void right_recursion_takes_no_depth(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t list = hand_rule(h, 0, NO_LIMIT);
    const uint32_t s = hand_state(h, root, false);
    const uint32_t s_end = hand_state(h, root, true);
    const uint32_t start = hand_state(h, list, false);
    const uint32_t next = hand_state(h, list, true);
    const uint32_t end = hand_state(h, list, true);
    char text[5001];
    world_t w;

    (void)state;
    hand_call(h, s, list, s_end, false);
    hand_bytes(h, start, 'a', 'a', next, false);
    hand_call(h, next, list, end, false);
    w = open_world(h);
    memset(text, 'a', 5000);
    text[5000] = '\0';
    assert_int_equal(outcome(&w, text), 'w');
    close_world(&w);
}

/* letters, of which min to max are digits; then . */
static world_t digits(uint32_t min, uint32_t max)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t rule = hand_rule(h, min, max);
    const uint32_t s = hand_state(h, root, false);
    const uint32_t s_behind = hand_state(h, root, false);
    const uint32_t s_end = hand_state(h, root, true);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t more = hand_state(h, rule, true);

    hand_call(h, s, rule, s_behind, false);
    hand_bytes(h, s_behind, '.', '.', s_end, false);
    hand_bytes(h, start, 'a', 'z', more, false);
    hand_bytes(h, start, '0', '9', more, true);
    hand_bytes(h, more, 'a', 'z', more, false);
    hand_bytes(h, more, '0', '9', more, true);
    return open_world(h);
}

static void counts_keep_both_bounds(void **state)
{
    world_t w = digits(2, 3);

    (void)state;
    assert_int_equal(outcome(&w, "a"), 'b');
    assert_int_equal(outcome(&w, "."), '-');
    assert_int_equal(outcome(&w, "1a."), '-');
    assert_int_equal(outcome(&w, "1a2."), 'w');
    assert_int_equal(outcome(&w, "a1b2c3d."), 'w');
    assert_int_equal(outcome(&w, "1234"), '-');
    assert_int_equal(outcome(&w, "123a"), 'b');
    close_world(&w);
}

static void counts_without_limit_keep_their_min(void **state)
{
    world_t w = digits(3, NO_LIMIT);
    char text[300];

    (void)state;
    assert_int_equal(outcome(&w, "12."), '-');
    assert_int_equal(outcome(&w, "123."), 'w');
    memset(text, '1', 298);
    text[298] = '.';
    text[299] = '\0';
    assert_int_equal(outcome(&w, text), 'w');
    /* From the min on, all counts are one state. */
    assert_int_equal(read_text(&w, "123"), read_text(&w, "12345678"));
    close_world(&w);
}

/* Rules that begin alike: a text is in all of them until it tells. */
static world_t alike(uint32_t n)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t s = hand_state(h, rule, false);
    const uint32_t s_end = hand_state(h, rule, true);

    hand_bytes(h, s, 'a', 'a', s_end, false);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t behind = hand_state(h, root, false);

        hand_call(h, start, rule, behind, false);
        hand_bytes(h, behind, (int)i, (int)i, end, false);
    }
    return open_world(h);
}

static void too_many_stacks_fail(void **state)
{
    world_t w = alike(BT_MATCHER_MAX_SET);
    uint32_t n;
    bt_matcher_cursor_t cursor;
    const uint32_t token = 'a';

    (void)state;
    assert_int_equal(outcome(&w, "a"), 'b');
    assert_int_equal(outcome(&w, "a\x07"), 'w');
    close_world(&w);

    w = alike(BT_MATCHER_MAX_SET + 1);
    assert_int_equal(outcome(&w, ""), 'b');
    assert_int_equal(outcome(&w, "b"), '-');
    assert_int_equal(outcome(&w, "a"), 'f');
    assert_int_equal(outcome(&w, "a\x07"), 'f');
    /* The mask of the state before fails too: no one could say what is behind
     * its only token. */
    cursor = bt_matcher_begin(w.m);
    assert_null(bt_matcher_mask(w.m, &cursor, &n));
    assert_int_equal(cursor.state, BT_MATCHER_FAILED);
    cursor = bt_matcher_begin(w.m);
    assert_false(bt_matcher_move(w.m, &cursor, &token, 1));
    assert_int_equal(cursor.state, BT_MATCHER_FAILED);
    close_world(&w);
}

static void too_many_calls_fail(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t middle = hand_rule(h, 0, NO_LIMIT);
    const uint32_t last = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t m_start = hand_state(h, middle, false);
    const uint32_t m_end = hand_state(h, middle, true);
    const uint32_t l_start = hand_state(h, last, false);
    const uint32_t l_end = hand_state(h, last, true);
    world_t w;

    (void)state;
    for (int i = 0; i < 30; i++) {
        const uint32_t behind = hand_state(h, root, false);
        const uint32_t m_behind = hand_state(h, middle, false);

        hand_call(h, start, middle, behind, false);
        hand_bytes(h, behind, i, i, end, false);
        hand_call(h, m_start, last, m_behind, false);
        hand_bytes(h, m_behind, i, i, m_end, false);
    }
    hand_bytes(h, start, 'b', 'b', end, false);
    hand_bytes(h, l_start, 'a', 'a', l_end, false);
    w = open_world(h);
    assert_int_equal(outcome(&w, "b"), 'f');
    close_world(&w);
}

static void cursor_goes_back_and_forks(void **state)
{
    world_t w = open_world(brackets());
    const uint32_t tokens[] = {'[', '[', 'x', ']', ']', END_ID};
    const uint32_t other[] = {'[', 'x', ']'};
    bt_matcher_cursor_t c = bt_matcher_begin(w.m);
    bt_matcher_cursor_t fork;

    (void)state;
    assert_true(bt_matcher_move(w.m, &c, tokens, 2));
    fork = c;
    assert_true(bt_matcher_move(w.m, &c, tokens, 5));
    assert_true(bt_matcher_accepts(w.m, c.state));
    assert_int_equal(c.n_tokens, 5);
    /* An end id moves nowhere. */
    assert_true(bt_matcher_move(w.m, &c, tokens, 6));
    assert_true(bt_matcher_accepts(w.m, c.state));
    /* A longer cursor begins again. */
    assert_true(bt_matcher_move(w.m, &c, other, 3));
    assert_true(bt_matcher_accepts(w.m, c.state));
    assert_int_equal(c.n_tokens, 3);
    assert_true(bt_matcher_move(w.m, &fork, tokens, 4));
    assert_false(bt_matcher_accepts(w.m, fork.state));
    assert_false(
        bt_matcher_move(w.m, &fork, (const uint32_t[]){1, 2, 3, 4, 'x'}, 5));
    assert_int_equal(fork.state, BT_MATCHER_DEAD);
    close_world(&w);
}

static void cursor_of_an_earlier_epoch_is_replayed(void **state)
{
    world_t w = open_world(brackets());
    const uint32_t tokens[] = {'[', '[', 'x', ']', ']'};
    bt_matcher_cursor_t c = bt_matcher_begin(w.m);
    const uint32_t epoch = bt_matcher_epoch(w.m);
    uint32_t n;

    (void)state;
    assert_true(bt_matcher_move(w.m, &c, tokens, 3));
    w.m->cap_rows = w.m->n_rows; /* the next row does not fit */
    assert_true(bt_matcher_read(w.m, c.state, (const uint8_t *)"]", 1) >
                BT_MATCHER_FAILED);
    assert_int_equal(bt_matcher_epoch(w.m), epoch + 1);
    assert_int_equal(bt_matcher_stats(w.m)->resets, 1);
    assert_true(bt_matcher_move(w.m, &c, tokens, 4));
    assert_int_equal(c.epoch, bt_matcher_epoch(w.m));
    assert_non_null(bt_matcher_mask(w.m, &c, &n));
    assert_int_equal(n, 1);
    assert_true(bt_matcher_move(w.m, &c, tokens, 5));
    assert_true(bt_matcher_accepts(w.m, c.state));
    close_world(&w);
}

/* A token by its id, one that is also text, and the end id. */
static world_t takes(void)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t behind = hand_state(h, rule, false);
    const uint32_t text = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);

    hand_token(h, start, SPECIAL, behind);
    hand_token(h, start, 'a', behind);
    hand_bytes(h, start, 'a', 'a', text, false);
    hand_token(h, behind, END_ID, behind);
    hand_token(h, behind, 70000, behind);
    hand_bytes(h, behind, 'b', 'b', end, false);
    hand_bytes(h, text, 'c', 'c', end, false);
    return open_world(h);
}

static void tokens_are_taken_by_id_and_by_bytes(void **state)
{
    world_t w = takes();
    bt_matcher_cursor_t c = bt_matcher_begin(w.m);
    const uint32_t special[] = {SPECIAL, 'b'};
    const uint32_t a_b[] = {'a', 'b'};
    const uint32_t a_c[] = {'a', 'c'};
    const uint32_t end[] = {SPECIAL, END_ID, 'b'};
    const uint32_t other[] = {SPECIAL + 1};
    uint8_t bytes[8];
    const uint64_t *mask;
    uint32_t n;

    (void)state;
    mask = bt_matcher_mask(w.m, &c, &n);
    assert_int_equal(n, 2);
    assert_true(mask_has(mask, 'a') && mask_has(mask, SPECIAL));
    assert_int_equal(bt_matcher_forced(w.m, c.state, bytes, sizeof(bytes)), 0);
    assert_true(bt_matcher_move(w.m, &c, special, 1));
    /* Neither the end id nor what is no token of the vocabulary. */
    mask = bt_matcher_mask(w.m, &c, &n);
    assert_int_equal(n, 1);
    assert_true(mask_has(mask, 'b'));
    assert_true(bt_matcher_move(w.m, &c, special, 2));
    assert_true(bt_matcher_accepts(w.m, c.state));
    assert_true(bt_matcher_move(w.m, &c, a_b, 1));
    assert_int_equal(w.m->sets[c.state].n, 2);
    assert_true(bt_matcher_move(w.m, &c, a_b, 2));
    assert_true(bt_matcher_accepts(w.m, c.state));
    c = bt_matcher_begin(w.m);
    assert_true(bt_matcher_move(w.m, &c, a_c, 2));
    assert_true(bt_matcher_accepts(w.m, c.state));
    c = bt_matcher_begin(w.m);
    assert_true(bt_matcher_move(w.m, &c, end, 3));
    assert_true(bt_matcher_accepts(w.m, c.state));
    c = bt_matcher_begin(w.m);
    assert_false(bt_matcher_move(w.m, &c, other, 1));
    assert_int_equal(c.state, BT_MATCHER_DEAD);
    close_world(&w);
}

static void only_bytes_without_choice_are_forced(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t choice = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;
    uint8_t bytes[32];
    uint32_t s;

    (void)state;
    hand_text(h, start, "{\"name\": \"", choice);
    hand_bytes(h, choice, 'a', 'b', choice, false);
    hand_text(h, choice, "\"}", end);
    hand_text(h, end, "!", end);
    w = open_world(h);
    s = bt_matcher_begin(w.m).state;
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, sizeof(bytes)), 10);
    assert_memory_equal(bytes, "{\"name\": \"", 10);
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, 3), 3);
    s = read_text(&w, "{\"na");
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, sizeof(bytes)), 6);
    s = read_text(&w, "{\"name\": \"a");
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, sizeof(bytes)), 0);
    s = read_text(&w, "{\"name\": \"a\"");
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, sizeof(bytes)), 1);
    s = read_text(&w, "{\"name\": \"a\"}");
    assert_int_equal(bt_matcher_forced(w.m, s, bytes, sizeof(bytes)), 0);
    assert_int_equal(
        bt_matcher_forced(w.m, BT_MATCHER_DEAD, bytes, sizeof(bytes)), 0);
    assert_false(bt_matcher_reads_bytes(w.m, BT_MATCHER_DEAD));
    assert_true(bt_matcher_reads_bytes(w.m, read_text(&w, "{\"name\": \"")));
    assert_true(bt_matcher_reads_bytes(w.m, read_text(&w, "{\"")));
    close_world(&w);
}

static void grammar_without_text_is_dead_at_once(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    world_t w;
    bt_matcher_cursor_t c;
    uint32_t n;

    (void)state;
    hand_bytes(h, start, 'a', 'a', start, false);
    w = open_world(h);
    c = bt_matcher_begin(w.m);
    assert_int_equal(c.state, BT_MATCHER_DEAD);
    assert_false(bt_matcher_move(w.m, &c, NULL, 0));
    assert_null(bt_matcher_mask(w.m, &c, &n));
    assert_int_equal(outcome(&w, "a"), '-');
    close_world(&w);
}

static void grammar_of_the_empty_text_ends_at_once(void **state)
{
    hand_grammar_t *h = hand_grammar();
    world_t w;
    bt_matcher_cursor_t c;
    const uint64_t *mask;
    uint32_t n;

    (void)state;
    (void)hand_state(h, hand_rule(h, 0, NO_LIMIT), true);
    w = open_world(h);
    assert_int_equal(outcome(&w, ""), 'w');
    assert_int_equal(outcome(&w, "a"), '-');
    c = bt_matcher_begin(w.m);
    mask = bt_matcher_mask(w.m, &c, &n);
    assert_int_equal(n, 1);
    assert_true(mask_has(mask, END_ID));
    close_world(&w);
}

static void wrong_configurations_are_refused(void **state)
{
    world_t w = open_world(brackets());
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 2, 4);
    const uint32_t even = hand_state(h, rule, true);
    const uint32_t odd = hand_state(h, rule, false);
    bt_matcher_config_t config = {.grammar = &w.h->grammar,
                                  .trie = w.trie,
                                  .max_bytes = BT_MATCHER_MIN_BYTES - 1};
    bt_matcher_t *m = NULL;

    (void)state;
    assert_int_equal(bt_matcher_create(&config, &m), BT_ERR_INVALID_PARAM);
    config.max_bytes = BT_MATCHER_MIN_BYTES;
    hand_bytes(h, even, 'a', 'a', odd, true);
    hand_bytes(h, odd, 'a', 'a', even, true);
    config.grammar = hand_finish(h);
    assert_int_equal(bt_matcher_create(&config, &m), BT_ERR_UNSUPPORTED);
    assert_null(m);
    bt_free(h);
    bt_matcher_destroy(NULL);
    close_world(&w);
}

static void every_failed_allocation_is_reported(void **state)
{
    world_t w = open_world(brackets());
    const bt_matcher_config_t config = {.grammar = &w.h->grammar,
                                        .trie = w.trie,
                                        .max_bytes = BT_MATCHER_MIN_BYTES};
    bt_matcher_t *m = NULL;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_matcher_create(&config, &m);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
        assert_null(m);
    }
    assert_true(nth > 20);
    bt_matcher_destroy(m);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(texts_and_alternatives_are_read),
        BT_TEST(brackets_nest_to_the_greatest_depth),
        BT_TEST(right_recursion_takes_no_depth),
        BT_TEST(counts_keep_both_bounds),
        BT_TEST(counts_without_limit_keep_their_min),
        BT_TEST(too_many_stacks_fail),
        BT_TEST(too_many_calls_fail),
        BT_TEST(cursor_goes_back_and_forks),
        BT_TEST(cursor_of_an_earlier_epoch_is_replayed),
        BT_TEST(tokens_are_taken_by_id_and_by_bytes),
        BT_TEST(only_bytes_without_choice_are_forced),
        BT_TEST(grammar_without_text_is_dead_at_once),
        BT_TEST(grammar_of_the_empty_text_ends_at_once),
        BT_TEST(wrong_configurations_are_refused),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
