/* SPDX-License-Identifier: Apache-2.0 */
/* Batches cut into micro-batches; the cuts worked by hand. */
#include <string.h>

#include "common/base/status.h"
#include "inference/model/ahead.h"
#include "tests/support/testsupport.h"

static void microbatch_count_keeps_all_stages_busy(void **state)
{
    (void)state;
    assert_int_equal(bt_micro_count(1, 2, 0), 1);
    assert_int_equal(bt_micro_count(31, 2, 0), 1);
    assert_int_equal(bt_micro_count(32, 2, 0), 2);
    assert_int_equal(bt_micro_count(64, 2, 0), 4);
    assert_int_equal(bt_micro_count(4096, 2, 0), 4);
    assert_int_equal(bt_micro_count(4096, 4, 0), 8);
    assert_int_equal(bt_micro_count(3, 4, 1), 3);
    assert_int_equal(bt_micro_count(4096, 1, 0), 1);
}

/* 20 rows of 4 sequences in 3: rows 0 … 5, 6 … 12, 13 … 19. */
static void sequences_are_split_at_row_boundaries(void **state)
{
    static const uint32_t blocks[] = {7};
    uint32_t tokens[20];
    const bt_ragged_seq_t seqs[] = {
        {.row = 0, .n_rows = 10, .pos = 100, .blocks = blocks},
        {.row = 10, .n_rows = 1, .pos = 5, .blocks = blocks},
        {.row = 11, .n_rows = 1, .pos = 6, .blocks = blocks},
        {.row = 12, .n_rows = 8, .pos = 0, .blocks = blocks}};
    const uint32_t logit_rows[] = {9, 10, 11, 19};
    const bt_batch_t whole = {.tokens = tokens,
                              .seqs = seqs,
                              .logit_rows = logit_rows,
                              .n_rows = 20,
                              .n_seqs = 4,
                              .n_logit_rows = 4,
                              .tokens_per_block = 16};
    static const struct {
        uint32_t row, n_rows, n_seqs, first_logit, n_logits;
        bt_ragged_seq_t seqs[4];
        uint32_t logit_rows[3];
    } want[] = {
        {0, 6, 1, 0, 0, {{0, 6, 100, blocks}}, {0}},
        {6,
         7,
         4,
         0,
         3,
         {{0, 4, 106, blocks},
          {4, 1, 5, blocks},
          {5, 1, 6, blocks},
          {6, 1, 0, blocks}},
         {3, 4, 5}},
        {13, 7, 1, 3, 1, {{0, 7, 1, blocks}}, {6}},
    };
    bt_ragged_seq_t scratch[4];
    uint32_t rows[4];
    bt_micro_t micro = {
        .whole = &whole, .n = 3, .seqs = scratch, .logit_rows = rows};
    bt_batch_t part;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(want); i++) {
        assert_true(bt_micro_next(&micro, &part));
        assert_ptr_equal(part.tokens, tokens + want[i].row);
        assert_int_equal(part.n_rows, want[i].n_rows);
        assert_int_equal(part.n_seqs, want[i].n_seqs);
        assert_int_equal(micro.first_logit, want[i].first_logit);
        assert_int_equal(part.n_logit_rows, want[i].n_logits);
        assert_int_equal(part.tokens_per_block, 16);
        for (uint32_t k = 0; k < part.n_seqs; k++) {
            assert_int_equal(part.seqs[k].row, want[i].seqs[k].row);
            assert_int_equal(part.seqs[k].n_rows, want[i].seqs[k].n_rows);
            assert_int_equal(part.seqs[k].pos, want[i].seqs[k].pos);
            assert_ptr_equal(part.seqs[k].blocks, blocks);
        }
        for (uint32_t k = 0; k < part.n_logit_rows; k++) {
            assert_int_equal(part.logit_rows[k], want[i].logit_rows[k]);
        }
    }
    assert_false(bt_micro_next(&micro, &part));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(microbatch_count_keeps_all_stages_busy),
        BT_TEST(sequences_are_split_at_row_boundaries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
