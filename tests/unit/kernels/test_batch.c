/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a batch as words, worked by hand. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "kernels/batch.h"

/* Blocks of 4 tokens. Sequence 0 has positions 0 .. 4 in blocks 7 and 2 and
 * brings the last 3 of them; sequence 1 its first token, in block 9; sequence 2
 * position 8, alone in its third block. */
static const uint32_t ids0[] = {7, 2};
static const uint32_t ids1[] = {9, 77}; /* more than it needs yet */
static const uint32_t ids2[] = {4, 5, 6};
static const bt_ragged_seq_t seqs[] = {
    {.row = 0, .n_rows = 3, .pos = 2, .blocks = ids0},
    {.row = 3, .n_rows = 1, .pos = 0, .blocks = ids1},
    {.row = 4, .n_rows = 1, .pos = 8, .blocks = ids2},
};
static const uint32_t tokens[] = {100, 101, 102, 200, 300};
static const uint32_t logit_rows[] = {2, 4};
static const bt_batch_t batch = {.tokens = tokens,
                                 .seqs = seqs,
                                 .logit_rows = logit_rows,
                                 .n_rows = 5,
                                 .n_seqs = 3,
                                 .n_logit_rows = 2,
                                 .tokens_per_block = 4};

static const uint32_t want[] = {
    100, 101, 102, 200, 300,    /* tokens */
    2,   3,   4,   0,   8,      /* positions */
    7,   7,   2,   9,   6,      /* blocks of the rows */
    0,   0,   0,   1,   2,      /* sequences of the rows */
    2,   4,                     /* rows with logits */
    0,   3,   2,   0,           /* sequence 0: row, rows, position, ids from */
    3,   1,   0,   2,           /* 1 */
    4,   1,   8,   3,           /* 2 */
    7,   2,   9,   4,   5,   6, /* ids */
};
#define N_WANT (sizeof(want) / sizeof(want[0]))

static void batch_tables_are_contiguous(void **state)
{
    const bt_batch_layout_t at = bt_batch_layout(&batch);
    uint32_t words[N_WANT + 1];

    (void)state;
    memset(words, 0xaa, sizeof(words));
    assert_int_equal(at.n_words, N_WANT);
    bt_batch_pack(&batch, words);
    assert_memory_equal(words, want, sizeof(want));
    assert_int_equal(words[N_WANT], 0xaaaaaaaa); /* nothing behind them */
    assert_int_equal(words[at.token], 100);
    assert_int_equal(words[at.position], 2);
    assert_int_equal(words[at.block + 2], 2);
    assert_int_equal(words[at.row_seq + 4], 2);
    assert_int_equal(words[at.logit_row + 1], 4);
    assert_int_equal(words[at.seq + BT_BATCH_SEQ_WORDS + 1], 1);
    assert_int_equal(words[at.id + 2], 9);
}

/* Rows 1 and 3 have tokens that an earlier step came to. */
static void batch_ids_of_the_earlier_step_come_first(void **state)
{
    static const uint32_t from_ids[] = {UINT32_MAX, 1, UINT32_MAX, 0,
                                        UINT32_MAX};
    bt_batch_t other = batch;
    uint32_t words[N_WANT + 5];
    bt_batch_layout_t at;

    (void)state;
    other.from_ids = from_ids;
    at = bt_batch_layout(&other);
    assert_int_equal(at.n_words, N_WANT + 5);
    bt_batch_pack(&other, words);
    assert_memory_equal(words, want, 22 * sizeof(*words));
    assert_memory_equal(words + at.from_id, from_ids, sizeof(from_ids));
    assert_int_equal(at.from_id, 22);
    assert_memory_equal(words + 27, want + 22, (N_WANT - 22) * sizeof(*words));
}

static void batch_without_logits_has_no_words_for_them(void **state)
{
    bt_batch_t other = batch;
    uint32_t words[N_WANT];

    (void)state;
    other.logit_rows = NULL;
    other.n_logit_rows = 0;
    assert_int_equal(bt_batch_layout(&other).n_words, N_WANT - 2);
    bt_batch_pack(&other, words);
    assert_memory_equal(words, want, 20 * sizeof(*words));
    assert_memory_equal(words + 20, want + 22, (N_WANT - 22) * sizeof(*words));
    memset(&other, 0, sizeof(other));
    other.tokens_per_block = 4;
    assert_int_equal(bt_batch_layout(&other).n_words, 0);
    bt_batch_pack(&other, NULL);
}

static void batch_limits_are_the_maximum_of_each_table(void **state)
{
    const bt_batch_limits_t exact = {
        .max_rows = 5, .max_seqs = 3, .max_logit_rows = 2, .max_blocks = 6};
    bt_batch_limits_t less;

    (void)state;
    assert_int_equal(bt_batch_max_words(&exact), N_WANT + 5); /* from_ids */
    assert_true(bt_batch_fits(&batch, &exact));
    less = exact;
    less.max_rows = 4;
    assert_false(bt_batch_fits(&batch, &less));
    less = exact;
    less.max_seqs = 2;
    assert_false(bt_batch_fits(&batch, &less));
    less = exact;
    less.max_logit_rows = 1;
    assert_false(bt_batch_fits(&batch, &less));
    less = exact;
    less.max_blocks = 5;
    assert_false(bt_batch_fits(&batch, &less));
}

/* The same sequences where layers are in two groups: an id of each for every
 * block. */
static void blocks_of_all_groups_are_adjacent(void **state)
{
    static const uint32_t two0[] = {7, 17, 2, 12};
    static const uint32_t two1[] = {9, 19, 77, 87};
    static const uint32_t two2[] = {4, 14, 5, 15, 6, 16};
    const bt_ragged_seq_t two[] = {
        {.row = 0, .n_rows = 3, .pos = 2, .blocks = two0},
        {.row = 3, .n_rows = 1, .pos = 0, .blocks = two1},
        {.row = 4, .n_rows = 1, .pos = 8, .blocks = two2},
    };
    static const uint32_t blocks[] = {7, 17, 7, 17, 2, 12, 9, 19, 6, 16};
    static const uint32_t heads[] = {0, 3, 2, 0, 3, 1, 0, 4, 4, 1, 8, 6};
    static const uint32_t ids[] = {7, 17, 2, 12, 9, 19, 4, 14, 5, 15, 6, 16};
    const bt_batch_limits_t exact = {.max_rows = 5,
                                     .max_seqs = 3,
                                     .max_logit_rows = 2,
                                     .max_other_groups = 1,
                                     .max_blocks = 12};
    bt_batch_limits_t less = exact;
    bt_batch_t other = batch;
    uint32_t words[N_WANT + 11];
    bt_batch_layout_t at;

    (void)state;
    other.seqs = two;
    other.n_other_groups = 1;
    at = bt_batch_layout(&other);
    assert_int_equal(at.n_words, N_WANT + 5 + 6);
    assert_int_equal(bt_batch_max_words(&exact), at.n_words + 5);
    assert_true(bt_batch_fits(&other, &exact));
    less.max_other_groups = 0;
    assert_false(bt_batch_fits(&other, &less));
    bt_batch_pack(&other, words);
    assert_memory_equal(words + at.block, blocks, sizeof(blocks));
    assert_memory_equal(words + at.row_seq, want + 15, 5 * sizeof(*words));
    assert_memory_equal(words + at.logit_row, want + 20, 2 * sizeof(*words));
    assert_memory_equal(words + at.seq, heads, sizeof(heads));
    assert_memory_equal(words + at.id, ids, sizeof(ids));
}

/* Draws and scorings before the ids, edits behind them; a draw knows its first
 * edit by the word. */
static void batch_words_include_draws_and_edits(void **state)
{
    static const bt_draw_t draws[] = {
        {.logit_row = 0, .first_edit = 0, .n_edits = 2, .top_k = 7},
        {.logit_row = 1, .first_edit = 2, .n_edits = 1, .seed_high = 5},
    };
    static bt_draw_edit_t edits[] = {
        {.id = 31}, {.id = 32}, {.id = 33, .what = BT_EDIT_BAN}};
    static const bt_scoring_t scorings[] = {{.logit_row = 1, .draw = 1}};
    const bt_batch_limits_t exact = {.max_rows = 5,
                                     .max_seqs = 3,
                                     .max_logit_rows = 2,
                                     .max_draws = 2,
                                     .max_edits = 3,
                                     .max_scorings = 1,
                                     .max_blocks = 6};
    bt_batch_t other = batch;
    uint32_t words[N_WANT + 26 + 3 + 12];
    bt_batch_limits_t less = exact;
    bt_batch_layout_t at;

    (void)state;
    other.draws = draws;
    other.n_draws = 2;
    other.edits = edits;
    other.n_edits = 3;
    other.scorings = scorings;
    other.n_scorings = 1;
    at = bt_batch_layout(&other);
    assert_int_equal(at.n_words, N_WANT + 26 + 3 + 12);
    assert_int_equal(bt_batch_max_words(&exact), at.n_words + 5);
    assert_true(bt_batch_fits(&other, &exact));
    less.max_draws = 1;
    assert_false(bt_batch_fits(&other, &less));
    less = exact;
    less.max_edits = 2;
    assert_false(bt_batch_fits(&other, &less));
    less = exact;
    less.max_scorings = 0;
    assert_false(bt_batch_fits(&other, &less));
    bt_batch_pack(&other, words);
    assert_memory_equal(words, want, (N_WANT - 6) * sizeof(*words));
    assert_memory_equal(words + at.id, want + N_WANT - 6, 6 * sizeof(*words));
    assert_int_equal(words[at.draw + 1], at.edit);
    assert_int_equal(words[at.draw + 3], 7);
    assert_int_equal(words[at.draw + 13], 1);
    assert_int_equal(words[at.draw + 13 + 1], at.edit + 8);
    assert_int_equal(words[at.draw + 13 + 12], 5);
    assert_memory_equal(words + at.scoring, scorings, sizeof(scorings));
    assert_memory_equal(words + at.edit, edits, sizeof(edits));
}

/* The last position of a block, and the first of the next. */
static void batch_blocks_cover_the_positions(void **state)
{
    bt_ragged_seq_t seq = {.n_rows = 1, .pos = 3, .blocks = ids2};

    (void)state;
    assert_int_equal(bt_batch_blocks(&seq, 4), 1);
    seq.pos = 4;
    assert_int_equal(bt_batch_blocks(&seq, 4), 2);
    seq.n_rows = 5;
    assert_int_equal(bt_batch_blocks(&seq, 4), 3);
    seq.pos = UINT32_MAX; /* no wrap */
    assert_true(bt_batch_blocks(&seq, 4) == (size_t)1073741825);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(batch_tables_are_contiguous),
        BT_TEST(batch_ids_of_the_earlier_step_come_first),
        BT_TEST(batch_without_logits_has_no_words_for_them),
        BT_TEST(batch_limits_are_the_maximum_of_each_table),
        BT_TEST(blocks_of_all_groups_are_adjacent),
        BT_TEST(batch_words_include_draws_and_edits),
        BT_TEST(batch_blocks_cover_the_positions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
