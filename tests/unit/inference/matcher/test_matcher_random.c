/* SPDX-License-Identifier: Apache-2.0 */
/* Matchers of random grammars, beside a search that has no tables and no short
 * cuts (tests/support/grammar_oracle.h): each state of random walks answers
 * alike for each token, in both directions. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"
#include "tests/support/draw.h"
#include "tests/support/grammar_oracle.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"
#include "tests/unit/inference/matcher/random_grammars.h"

#define MAX_TOKENS 24u

typedef struct totals {
    uint64_t n_tokens; /* decisions compared */
    uint64_t n_allowed;
    uint32_t n_plain[5]; /* states by bt_plain_kind_t */
    uint32_t n_masks, n_failed, n_refused, n_dead;
    uint64_t n_resets;
} totals_t;

typedef struct world {
    const bt_grammar_t *grammar;
    vocab_t *vocab;
    bt_token_trie_t *trie;
    bt_matcher_t *m;
    oracle_t *o;
    totals_t *totals;
    uint32_t n_over; /* stacks of a set behind some token, at most */
    oracle_set_t sets[MAX_TOKENS + 1];
    oracle_set_t scratch[2];
} world_t;

/* Reads a token by its bytes and by its id. @return false: too many stacks */
static bool oracle_token(world_t *w, const oracle_set_t *set, uint32_t id,
                         oracle_set_t *next)
{
    const uint8_t *bytes = w->vocab->bytes[id];
    const uint32_t n = w->vocab->lens[id];
    bool overflow = false;

    oracle_copy(set, next);
    for (uint32_t i = 0; i < n; i++) {
        oracle_read(w->o, next, bytes[i], &w->scratch[1]);
        overflow = overflow || w->scratch[1].overflow;
        oracle_copy(&w->scratch[1], next);
        if (oracle_n_live(w->o, next) > w->n_over) {
            w->n_over = oracle_n_live(w->o, next);
        }
    }
    if (n == 0) {
        next->n = 0;
    }
    oracle_take(w->o, set, id, &w->scratch[1]);
    for (uint32_t i = 0; i < w->scratch[1].n; i++) {
        if (next->n < ORACLE_MAX_STACKS) {
            next->stacks[next->n++] = w->scratch[1].stacks[i];
        }
    }
    return !overflow;
}

/* Compares a mask with the oracle's answer for each token.
 * @return false: the matcher has failed, as it should */
static bool compare_mask(world_t *w, bt_matcher_cursor_t *cursor,
                         const oracle_set_t *set)
{
    const uint32_t end_id = w->vocab->n - 1;
    uint32_t n = 0;
    uint32_t n_want = 0;
    const uint64_t *mask = bt_matcher_mask(w->m, cursor, &n);
    bool known = true;

    w->totals->n_masks++;
    w->n_over = oracle_n_live(w->o, set);
    for (uint32_t id = 0; id < w->vocab->n; id++) {
        bool want;

        if (id == end_id) {
            want = oracle_accepts(w->o, set);
        } else {
            known = oracle_token(w, set, id, &w->scratch[0]) && known;
            want = oracle_n_live(w->o, &w->scratch[0]) > 0;
        }
        n_want += want ? 1 : 0;
        if ((mask != NULL) && known) {
            assert_int_equal(mask_has(mask, id), want);
        }
    }
    w->totals->n_tokens += w->vocab->n;
    w->totals->n_allowed += n_want;
    if (mask == NULL) {
        assert_true((n_want == 0) || (w->n_over > BT_MATCHER_MAX_SET) ||
                    !known);
        w->totals->n_failed++;
        return false;
    }
    assert_int_equal(n, n_want);
    return true;
}

/* A token that is allowed, or any. */
static uint32_t draw_token(world_t *w, uint64_t *rng, const uint64_t *mask)
{
    uint32_t id = (uint32_t)draw_below(rng, w->vocab->n - 1);

    for (uint32_t i = 0; (i < w->vocab->n) && (draw_below(rng, 40) != 0); i++) {
        if ((id != w->vocab->n - 1) && mask_has(mask, id)) {
            break;
        }
        id = (id + 1) % w->vocab->n;
    }
    return (id == w->vocab->n - 1) ? 0 : id;
}

static void check_forced(world_t *w, uint32_t state, const oracle_set_t *set)
{
    uint8_t bytes[4];
    const size_t n = bt_matcher_forced(w->m, state, bytes, sizeof(bytes));
    oracle_set_t *now = &w->scratch[0];
    oracle_set_t *next = &w->scratch[1];

    oracle_copy(set, now);
    for (size_t i = 0; i < n; i++) {
        assert_false(oracle_accepts(w->o, now));
        for (uint32_t b = 0; b < 256; b++) {
            oracle_read(w->o, now, (uint8_t)b, next);
            assert_true((oracle_n_live(w->o, next) > 0) == (b == bytes[i]));
        }
        oracle_read(w->o, now, bytes[i], next);
        oracle_copy(next, now);
    }
}

/* One answer, with steps back to earlier tokens. */
static void walk(world_t *w, uint64_t *rng)
{
    bt_matcher_cursor_t cursors[MAX_TOKENS + 1];
    uint32_t tokens[MAX_TOKENS];
    uint32_t n = 0;

    oracle_start(w->o, &w->sets[0]);
    cursors[0] = bt_matcher_begin(w->m);
    while (n < MAX_TOKENS) {
        uint32_t n_mask = 0;
        const uint64_t *mask;
        uint64_t copy[(VOCAB_MAX_TOKENS + 63) / 64];

        if (!bt_matcher_move(w->m, &cursors[n], tokens, n)) {
            assert_true(
                (oracle_n_live(w->o, &w->sets[n]) == 0) ||
                (oracle_n_live(w->o, &w->sets[n]) > BT_MATCHER_MAX_SET) ||
                (w->n_over > BT_MATCHER_MAX_SET));
            w->totals->n_dead++;
            return;
        }
        assert_true(oracle_n_live(w->o, &w->sets[n]) > 0);
        assert_true(bt_matcher_accepts(w->m, cursors[n].state) ==
                    oracle_accepts(w->o, &w->sets[n]));
        if (!compare_mask(w, &cursors[n], &w->sets[n])) {
            return;
        }
        check_forced(w, cursors[n].state, &w->sets[n]);
        mask = bt_matcher_mask(w->m, &cursors[n], &n_mask);
        memcpy(copy, mask, w->trie->n_words * sizeof(uint64_t));
        if ((n > 0) && (draw_below(rng, 5) == 0)) {
            n -= 1 + (uint32_t)draw_below(rng, n);
            continue;
        }
        tokens[n] = draw_token(w, rng, copy);
        w->n_over = 0;
        if (!oracle_token(w, &w->sets[n], tokens[n], &w->sets[n + 1])) {
            return;
        }
        cursors[n + 1] = cursors[n];
        n++;
    }
}

static bool has_gaps(const oracle_t *o)
{
    for (uint32_t h = 0; h <= o->max_depth; h++) {
        if (oracle_has_gaps(o, h)) {
            return true;
        }
    }
    return false;
}

/* Compares some answers of a grammar. @param [in] small  Tables that fill up.
 */
static void compare(hand_grammar_t *h, vocab_t *vocab, uint64_t *rng,
                    uint32_t n_walks, uint32_t n_rows, totals_t *totals)
{
    world_t *w = bt_calloc(1, sizeof(*w));
    const uint32_t max_depth = 3 + (uint32_t)draw_below(rng, 7);

    w->grammar = &h->grammar;
    w->vocab = vocab;
    w->totals = totals;
    w->o = oracle_create(w->grammar, max_depth);
    w->trie = vocab_trie(vocab, true);
    if (has_gaps(w->o)) {
        totals->n_refused++;
    } else {
        w->m = matcher_of(w->grammar, w->trie);
        w->m->max_depth = max_depth;
        for (uint32_t s = 0; s < w->grammar->n_states; s++) {
            totals->n_plain[w->m->plain[s]]++;
        }
        if (n_rows > 0) {
            w->m->cap_rows = n_rows + (uint32_t)draw_below(rng, 10);
            w->m->cap_nodes = 1000;
            w->m->cap_sets = 600;
            w->m->cap_members = 3000;
            w->m->n_slots = 1 + (uint32_t)draw_below(rng, 3);
        }
        for (uint32_t i = 0; i < n_walks; i++) {
            walk(w, rng);
        }
        totals->n_resets += bt_matcher_stats(w->m)->resets;
    }
    bt_matcher_destroy(w->m);
    bt_token_trie_destroy(w->trie);
    bt_free(w->o);
    bt_free(w);
}

static void print_totals(const char *what, const totals_t *t)
{
    print_message("%s: %lu tokens of %u masks, %lu allowed, %u failed, %u "
                  "dead, %u refused, %lu resets\n",
                  what, (unsigned long)t->n_tokens, t->n_masks,
                  (unsigned long)t->n_allowed, t->n_failed, t->n_dead,
                  t->n_refused, (unsigned long)t->n_resets);
}

static void compare_letters(uint64_t seed, uint32_t n_grammars, bool small,
                            totals_t *totals)
{
    uint64_t rng = seed;

    for (uint32_t i = 0; i < n_grammars; i++) {
        uint32_t n_letters;
        hand_grammar_t *h = draw_letters(&rng, i, &n_letters);
        vocab_t *vocab = letter_vocab(&rng, n_letters);

        compare(h, vocab, &rng, 4, small ? 30 : 0, totals);
        bt_free(vocab);
        bt_free(h);
    }
}

static void masks_of_random_grammars_are_exact(void **state)
{
    totals_t totals = {0};

    (void)state;
    compare_letters(1, 600, false, &totals);
    print_totals("letters", &totals);
    assert_true(totals.n_tokens > 1000000);
    assert_true(totals.n_tokens - totals.n_allowed > 100000);
    assert_true(totals.n_failed < 100);
}

static void full_tables_change_no_answer(void **state)
{
    totals_t totals = {0};

    (void)state;
    compare_letters(2, 200, true, &totals);
    print_totals("small tables", &totals);
    assert_true(totals.n_resets > 300);
    assert_true(totals.n_failed < 100);
}

static void masks_near_the_greatest_depth_are_exact(void **state)
{
    totals_t totals = {0};
    uint64_t rng = 4;

    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        hand_grammar_t *h = draw_nested(&rng);
        vocab_t *vocab = letter_vocab(&rng, 4);

        compare(h, vocab, &rng, 4, 0, &totals);
        bt_free(vocab);
        bt_free(h);
    }
    print_totals("nested", &totals);
    assert_true(totals.n_tokens > 300000);
    assert_true(totals.n_allowed > 40000);
}

static void masks_of_strings_are_exact(void **state)
{
    totals_t totals = {0};
    uint64_t rng = 3;

    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        hand_grammar_t *h = draw_strings(&rng);
        vocab_t *vocab = string_vocab(&rng);

        compare(h, vocab, &rng, 3, ((i % 4) == 3) ? 170 : 0, &totals);
        bt_free(vocab);
        bt_free(h);
    }
    print_totals("strings", &totals);
    assert_true(totals.n_plain[BT_PLAIN_ANY] > 200);
    assert_true(totals.n_plain[BT_PLAIN_COUNTED] > 100);
    assert_true(totals.n_plain[BT_PLAIN_EXACT] > 50);
    assert_true(totals.n_plain[BT_PLAIN_AT_LEAST] > 50);
    assert_true(totals.n_tokens > 300000);
    assert_true(totals.n_allowed > 100000);
    assert_true(totals.n_resets > 0);
}

/* Whether the mask of an answer fails, for two matchers of which one has seen
 * many answers, and the other one none. */
static bool compare_limit(bt_matcher_t *seen, bt_matcher_t *fresh,
                          const uint32_t *tokens, uint32_t n)
{
    bt_matcher_cursor_t a = bt_matcher_begin(seen);
    bt_matcher_cursor_t b;
    const uint64_t *mask_a = NULL;
    const uint64_t *mask_b = NULL;
    uint32_t n_a = 0;
    uint32_t n_b = 0;

    bt_matcher_reset(fresh);
    b = bt_matcher_begin(fresh);
    if (bt_matcher_move(seen, &a, tokens, n)) {
        mask_a = bt_matcher_mask(seen, &a, &n_a);
    }
    if (bt_matcher_move(fresh, &b, tokens, n)) {
        mask_b = bt_matcher_mask(fresh, &b, &n_b);
    }
    assert_int_equal(n_a, n_b);
    assert_true((mask_a == NULL) == (mask_b == NULL));
    assert_true((a.state == BT_MATCHER_FAILED) ==
                (b.state == BT_MATCHER_FAILED));
    return a.state == BT_MATCHER_FAILED;
}

static void small_tables(bt_matcher_t *m, uint32_t n_rows)
{
    m->cap_rows = n_rows;
    m->cap_nodes = 1000;
    m->cap_sets = 600;
    m->cap_members = 3000;
    m->n_slots = 2;
    bt_matcher_reset(m);
}

static void limits_do_not_depend_on_what_was_seen(void **state)
{
    uint64_t rng = 21;
    uint32_t n_failed = 0;
    uint32_t n_all = 0;
    uint64_t n_resets = 0;

    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t n_letters;
        hand_grammar_t *h = draw_letters(&rng, i, &n_letters);
        vocab_t *vocab = letter_vocab(&rng, n_letters);
        bt_token_trie_t *trie = vocab_trie(vocab, true);
        const bt_matcher_config_t config = {.grammar = &h->grammar,
                                            .trie = trie,
                                            .max_bytes = 1u << 20,
                                            .max_mask_steps =
                                                30u << draw_below(&rng, 9)};
        bt_matcher_t *m[2] = {NULL, NULL};

        if (bt_matcher_create(&config, &m[0]) == BT_OK) {
            const uint32_t n_rows = 3 + (uint32_t)draw_below(&rng, 20);

            assert_int_equal(bt_matcher_create(&config, &m[1]), BT_OK);
            small_tables(m[0], n_rows);
            small_tables(m[1], n_rows);
            for (uint32_t k = 0; k < 40; k++) {
                uint32_t tokens[6];
                const uint32_t n = (uint32_t)draw_below(&rng, 7);

                for (uint32_t t = 0; t < n; t++) {
                    tokens[t] = (uint32_t)draw_below(&rng, n_letters);
                }
                n_failed += compare_limit(m[0], m[1], tokens, n) ? 1 : 0;
                n_all++;
            }
            n_resets += bt_matcher_stats(m[0])->resets;
        }
        bt_matcher_destroy(m[0]);
        bt_matcher_destroy(m[1]);
        bt_token_trie_destroy(trie);
        bt_free(vocab);
        bt_free(h);
    }
    print_message("%u of %u masks failed, %lu resets\n", n_failed, n_all,
                  (unsigned long)n_resets);
    assert_true(n_failed > 500);
    assert_true(n_failed < n_all / 2);
    assert_true(n_resets > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(masks_of_random_grammars_are_exact),
        BT_TEST(full_tables_change_no_answer),
        BT_TEST(masks_near_the_greatest_depth_are_exact),
        BT_TEST(masks_of_strings_are_exact),
        BT_TEST(limits_do_not_depend_on_what_was_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
