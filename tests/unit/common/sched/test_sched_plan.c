/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_queue.h"
#include "tests/support/draw.h"

#define T        16u /* tokens per block */
#define MAX_SEQS 40u

static bt_list_t running;
static bt_sched_seq_t seqs[MAX_SEQS];
static bt_sched_item_t items[MAX_SEQS];

/* They come a millisecond after one another. */
static void add_with(uint32_t i, uint32_t n_tokens, uint32_t n_computed,
                     uint32_t priority)
{
    bt_sched_turn_init(&seqs[i].turn, priority, 1000u * i);
    seqs[i].n_tokens = n_tokens;
    seqs[i].n_computed = n_computed;
    bt_sched_queue_insert(&running, &seqs[i].turn);
}

static void add(uint32_t i, uint32_t n_tokens, uint32_t n_computed)
{
    add_with(i, n_tokens, n_computed, 0);
}

static void empty_queue_gives_an_empty_plan(void **state)
{
    uint32_t n_context = 99;

    (void)state;
    bt_list_init(&running);
    assert_int_equal(
        bt_sched_plan(&running, 64, T, MAX_SEQS, items, &n_context), 0);
    assert_int_equal(n_context, 0);
}

/* Budget 64; two generating sequences take 2, 62 are left. The first prompt of
 * 100 gets floor(62 / 16) * 16 = 48 tokens, 14 are left: less than a block of
 * the second prompt of 40, which waits. */
static void plan_puts_generation_first_and_ends_chunks_on_blocks(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 100, 0);
    add(1, 21, 20);
    add(2, 40, 0);
    add(3, 9, 8);
    assert_int_equal(
        bt_sched_plan(&running, 64, T, MAX_SEQS, items, &n_context), 3);
    assert_ptr_equal(items[0].seq, &seqs[1]);
    assert_int_equal(items[0].n_new, 1);
    assert_true(items[0].last_chunk);
    assert_ptr_equal(items[1].seq, &seqs[3]);
    assert_ptr_equal(items[2].seq, &seqs[0]);
    assert_int_equal(items[2].n_new, 48);
    assert_false(items[2].last_chunk);
    assert_int_equal(n_context, 48);
}

static void last_chunk_may_end_within_a_block(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 37, 32);  /* 5 left */
    add(1, 300, 64); /* 59 of the budget: 48 tokens, to position 112 */
    assert_int_equal(
        bt_sched_plan(&running, 64, T, MAX_SEQS, items, &n_context), 2);
    assert_int_equal(items[0].n_new, 5);
    assert_true(items[0].last_chunk);
    assert_int_equal(items[1].n_new, 48);
    assert_false(items[1].last_chunk);
    assert_int_equal(n_context, 53);
}

/* Budget 64. The prompt of priority 2 came last and is all in it: 40 tokens.
 * 24 are left: a block of the one that is half computed, 8 remain. */
static void chunk_budget_follows_priority_then_age(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 100, 32);
    add(1, 100, 0);
    add_with(2, 40, 0, 2);
    assert_int_equal(
        bt_sched_plan(&running, 64, T, MAX_SEQS, items, &n_context), 2);
    assert_ptr_equal(items[0].seq, &seqs[2]);
    assert_int_equal(items[0].n_new, 40);
    assert_ptr_equal(items[1].seq, &seqs[0]);
    assert_int_equal(items[1].n_new, 16);
    assert_int_equal(n_context, 56);
}

/* A first token of the top level does not wait for a chunk of level 0; where
 * its prompt is not complete with the iteration, nothing is kept back. */
static void top_priority_first_token_waits_for_no_chunk(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 64, 0);
    add_with(1, 32, 0, BT_SCHED_TOP_LEVEL);
    add_with(2, 32, 0, 1);
    assert_int_equal(
        bt_sched_plan(&running, 128, T, MAX_SEQS, items, &n_context), 2);
    assert_ptr_equal(items[0].seq, &seqs[1]);
    assert_ptr_equal(items[1].seq, &seqs[2]);
    assert_int_equal(n_context, 64);
    bt_list_init(&running);
    add(0, 64, 0);
    add_with(1, 100, 0, BT_SCHED_TOP_LEVEL);
    assert_int_equal(
        bt_sched_plan(&running, 98, T, MAX_SEQS, items, &n_context), 1);
    assert_int_equal(items[0].n_new, 96);
}

static void full_batch_does_not_starve_prefill(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    for (uint32_t i = 0; i < 30; i++) {
        add(i, 10, 9);
    }
    add(30, 100, 16);
    assert_int_equal(
        bt_sched_plan(&running, 16, T, MAX_SEQS, items, &n_context), 31);
    assert_ptr_equal(items[30].seq, &seqs[30]);
    assert_int_equal(items[30].n_new, 16);
}

/* Run 20,000 random workloads to their end: every token of every sequence is
 * computed exactly once and in order, budgets hold, and nothing stalls. */
static void every_token_is_computed_exactly_once(void **state)
{
    uint64_t rng = 1;

    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t n_left;
        uint32_t budget;

        bt_list_init(&running);
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        n_left = 1 + (uint32_t)(rng >> 33) % 8;
        budget = T + (uint32_t)(rng >> 40) % 100;
        for (uint32_t i = 0; i < n_left; i++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            add(i, 1 + (uint32_t)(rng >> 33) % 200, 0);
        }
        while (n_left > 0) {
            uint32_t n_context = 0;
            uint32_t rows = 0;
            const uint32_t n =
                bt_sched_plan(&running, budget, T, MAX_SEQS, items, &n_context);

            assert_true(n > 0);
            for (uint32_t i = 0; i < n; i++) {
                bt_sched_seq_t *seq = items[i].seq;

                rows += items[i].n_new;
                assert_true(items[i].n_new >= 1);
                seq->n_computed += items[i].n_new;
                assert_true(seq->n_computed <= seq->n_tokens);
                assert_int_equal(items[i].last_chunk,
                                 seq->n_computed == seq->n_tokens);
                if (items[i].last_chunk) {
                    bt_list_remove(&seq->turn.link);
                    n_left--;
                } else {
                    assert_int_equal(seq->n_computed % T, 0);
                }
            }
            assert_true(rows <= budget + T);
        }
    }
}

/* Drafts go with the step that they belong to, out of the same budget: of 40
 * tokens the two steps take 1 + 5 and 1, 33 are left, so the prompt gets 32. */
static void drafts_are_computed_with_their_step(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 100, 0);
    add(1, 26, 20);
    seqs[1].n_drafts = 5;
    add(2, 9, 8);
    assert_int_equal(
        bt_sched_plan(&running, 40, T, MAX_SEQS, items, &n_context), 3);
    assert_ptr_equal(items[0].seq, &seqs[1]);
    assert_int_equal(items[0].n_new, 6);
    assert_true(items[0].last_chunk);
    assert_int_equal(items[1].n_new, 1);
    assert_int_equal(items[2].n_new, 32);
    assert_int_equal(n_context, 32);
    seqs[1].n_drafts = 0;
}

/* By hand, 10 rows of room. The first has one position and draws from it, which
 * needs no room. The second wants positions 4 .. 11 of its 0 .. 15: 8 rows, 2
 * are left. The third wants all of its 20 and gets 2 of them. The fourth wants
 * none, and stays. The fifth wants all of its 3, the last one is drawn from,
 * and for the other two there is no room. */
static void plan_is_cut_to_the_available_rows(void **state)
{
    uint32_t n_context = 16 + 20 + 5 + 3;

    (void)state;
    bt_list_init(&running);
    for (uint32_t i = 0; i < 5; i++) {
        seqs[i] = (bt_sched_seq_t){0};
    }
    add(0, 12, 11);
    add(1, 100, 0);
    add(2, 20, 0);
    add(3, 5, 0);
    add(4, 3, 0);
    seqs[0].rows_end = 12;
    seqs[1].rows_from = 4;
    seqs[1].rows_end = 12;
    seqs[2].rows_end = 20;
    seqs[4].rows_end = 3;
    items[0] = (bt_sched_item_t){&seqs[0], 1, true};
    items[1] = (bt_sched_item_t){&seqs[1], 16, false};
    items[2] = (bt_sched_item_t){&seqs[2], 20, true};
    items[3] = (bt_sched_item_t){&seqs[3], 5, true};
    items[4] = (bt_sched_item_t){&seqs[4], 3, true};
    assert_int_equal(bt_sched_limit_rows(items, 5, 10, &n_context), 4);
    assert_ptr_equal(items[0].seq, &seqs[0]);
    assert_int_equal(items[0].n_new, 1);
    assert_true(items[0].last_chunk);
    assert_ptr_equal(items[1].seq, &seqs[1]);
    assert_int_equal(items[1].n_new, 16);
    assert_ptr_equal(items[2].seq, &seqs[2]);
    assert_int_equal(items[2].n_new, 2);
    assert_false(items[2].last_chunk);
    assert_ptr_equal(items[3].seq, &seqs[3]);
    assert_int_equal(items[3].n_new, 5);
    assert_true(items[3].last_chunk);
    assert_int_equal(n_context, 16 + 2 + 5);

    /* Exactly enough: 19 and the one to draw from. */
    items[0] = (bt_sched_item_t){&seqs[2], 20, true};
    n_context = 20;
    assert_int_equal(bt_sched_limit_rows(items, 1, 19, &n_context), 1);
    assert_int_equal(items[0].n_new, 20);
    assert_true(items[0].last_chunk);
    assert_int_equal(n_context, 20);
    for (uint32_t i = 0; i < 5; i++) {
        seqs[i] = (bt_sched_seq_t){0};
    }
}

/* Whatever is wanted, it is never more than there is room for, and the first
 * that wants some gets on. */
static void cut_plans_fit_and_progress(void **state)
{
    uint64_t rng = 5;

    (void)state;
    for (uint32_t round = 0; round < 10000; round++) {
        const uint32_t n = 1 + (uint32_t)draw_below(&rng, 8);
        const uint32_t room = 1 + (uint32_t)draw_below(&rng, 40);
        uint32_t n_context = 0;
        uint32_t n_items;
        uint32_t n_rows = 0;
        uint32_t n_new = 0;

        bt_list_init(&running);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t computed = (uint32_t)draw_below(&rng, 50);
            const uint32_t left = 1 + (uint32_t)draw_below(&rng, 60);

            seqs[i] = (bt_sched_seq_t){0};
            add(i, computed + left, computed);
            seqs[i].rows_from = (uint32_t)draw_below(&rng, 100);
            seqs[i].rows_end = (uint32_t)draw_below(&rng, 100);
        }
        n_items = bt_sched_plan(&running, 64, T, MAX_SEQS, items, &n_context);
        n_items = bt_sched_limit_rows(items, n_items, room, &n_context);
        assert_true(n_items > 0);
        for (uint32_t i = 0; i < n_items; i++) {
            const bt_sched_seq_t *seq = items[i].seq;

            n_new += (items[i].n_new > 1) || !items[i].last_chunk
                         ? items[i].n_new
                         : 0;
            assert_true(items[i].n_new > 0);
            assert_int_equal(items[i].last_chunk,
                             seq->n_computed + items[i].n_new == seq->n_tokens);
            for (uint32_t k = 0; k < items[i].n_new; k++) {
                const uint32_t at = seq->n_computed + k;

                n_rows += ((at >= seq->rows_from) && (at < seq->rows_end) &&
                           (at + 1 < seq->n_tokens))
                              ? 1
                              : 0;
            }
        }
        assert_true(n_rows <= room);
        assert_int_equal(n_new, n_context);
    }
    for (uint32_t i = 0; i < 8; i++) {
        seqs[i] = (bt_sched_seq_t){0};
    }
}

/* Budget 128. The first has blocks for positions below 48 of its 100 and 16 of
 * them to compute; the second none beyond what it has; the third, which
 * generates, none for the token that it has; the fourth gets what is left of
 * the budget. */
static void chunks_end_at_block_boundaries(void **state)
{
    uint32_t n_context = 0;

    (void)state;
    bt_list_init(&running);
    add(0, 100, 32);
    add(1, 100, 32);
    add(2, 49, 48);
    add(3, 300, 0);
    seqs[0].kv_limit = 48;
    seqs[1].kv_limit = 32;
    seqs[2].kv_limit = 48;
    assert_int_equal(
        bt_sched_plan(&running, 128, T, MAX_SEQS, items, &n_context), 2);
    assert_ptr_equal(items[0].seq, &seqs[0]);
    assert_int_equal(items[0].n_new, 16);
    assert_false(items[0].last_chunk);
    assert_ptr_equal(items[1].seq, &seqs[3]);
    assert_int_equal(items[1].n_new, 112);
    assert_int_equal(n_context, 128);
    for (uint32_t i = 0; i < 4; i++) {
        seqs[i].kv_limit = 0;
    }
}

/* Under way: a chunk of the prompt of 300. Budget 64. */
static void higher_ordered_prompt_is_planned_between_layers(void **state)
{
    bt_sched_item_t under_way[2] = {{&seqs[0], 64, false}};
    bt_sched_item_t item = {0};

    (void)state;
    bt_list_init(&running);
    add(0, 300, 64);
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    add(1, 40, 0); /* behind it */
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    add_with(2, 21, 20, 1); /* before it, but it has no chunk */
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    add_with(3, 40, 0, 1);
    seqs[3].kv_limit = 32; /* of 40: a chunk, down to there */
    assert_true(bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    assert_int_equal(item.n_new, 32);
    assert_false(item.last_chunk);
    seqs[3].n_computed = 32; /* it sits out */
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    seqs[3].n_computed = 0;
    seqs[3].kv_limit = 0;
    assert_true(bt_sched_plan_preempting(&running, under_way, 1, 64, T, &item));
    assert_ptr_equal(item.seq, &seqs[3]);
    assert_int_equal(item.n_new, 40);
    assert_true(item.last_chunk);
    assert_true(bt_sched_plan_preempting(&running, under_way, 1, 39, T, &item));
    assert_int_equal(item.n_new, 32); /* down to whole blocks */
    assert_false(item.last_chunk);
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 1, 15, T, &item));

    /* It is under way itself. */
    under_way[1] = (bt_sched_item_t){&seqs[3], 40, true};
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 2, 64, T, &item));
    /* Somebody generates. */
    under_way[1] = (bt_sched_item_t){&seqs[2], 1, true};
    assert_false(
        bt_sched_plan_preempting(&running, under_way, 2, 64, T, &item));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(empty_queue_gives_an_empty_plan),
        BT_TEST(plan_puts_generation_first_and_ends_chunks_on_blocks),
        BT_TEST(last_chunk_may_end_within_a_block),
        BT_TEST(chunk_budget_follows_priority_then_age),
        BT_TEST(top_priority_first_token_waits_for_no_chunk),
        BT_TEST(full_batch_does_not_starve_prefill),
        BT_TEST(every_token_is_computed_exactly_once),
        BT_TEST(drafts_are_computed_with_their_step),
        BT_TEST(chunks_end_at_block_boundaries),
        BT_TEST(higher_ordered_prompt_is_planned_between_layers),
        BT_TEST(plan_is_cut_to_the_available_rows),
        BT_TEST(cut_plans_fit_and_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
