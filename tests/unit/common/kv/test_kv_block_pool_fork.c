/* SPDX-License-Identifier: Apache-2.0 */
/* Forks: what is shared, what is copied, and that no sequence ever sees what
 * another wrote. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/kv/kv_block_pool.h"
#include "tests/support/draw.h"

#define T 4u /* tokens per block */

static void unref_all(bt_kv_pool_t *pool, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_kv_pool_unref(pool, ids[i]);
    }
}

/* By hand: 10 tokens in blocks of 4 fill blocks 0 and 1 and half of block 2.
 * The pool gives 0, 1, 2 to the origin, so 3 and 4 are the fork's new ones. */
static void whole_blocks_are_shared_and_the_partial_one_is_copied(void **state)
{
    bt_kv_pool_t *pool = NULL;
    bt_kv_copy_t copy = {9, 9};
    uint32_t origin[3];
    uint32_t fork[4];

    (void)state;
    assert_int_equal(bt_kv_pool_create(6, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 3, origin), BT_OK);
    assert_int_equal(bt_kv_fork_n_shared(10, T), 2);
    assert_int_equal(bt_kv_fork_n_new(10, T, 4), 2);
    assert_int_equal(bt_kv_fork(pool, origin, 10, T, 4, fork, &copy), BT_OK);
    assert_int_equal(fork[0], 0);
    assert_int_equal(fork[1], 1);
    assert_int_equal(fork[2], 3);
    assert_int_equal(fork[3], 4);
    assert_true(bt_kv_copy_is_due(copy));
    assert_int_equal(copy.from, 2);
    assert_int_equal(copy.to, 3);

    /* The origin goes; what is shared stays the fork's. */
    unref_all(pool, origin, 3);
    assert_int_equal(bt_kv_pool_n_free(pool), 2);
    unref_all(pool, fork, 4);
    assert_int_equal(bt_kv_pool_n_free(pool), 6);
    bt_kv_pool_destroy(pool);
}

static void fork_at_a_block_boundary_copies_nothing(void **state)
{
    bt_kv_pool_t *pool = NULL;
    bt_kv_copy_t copy = {8, 9};
    uint32_t origin[2];
    uint32_t fork[3];

    (void)state;
    assert_int_equal(bt_kv_pool_create(3, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 2, origin), BT_OK);
    assert_int_equal(bt_kv_fork(pool, origin, 2 * T, T, 3, fork, &copy), BT_OK);
    assert_false(bt_kv_copy_is_due(copy));
    assert_memory_equal(fork, origin, sizeof(origin));
    assert_int_equal(fork[2], 2);
    unref_all(pool, fork, 3);
    unref_all(pool, origin, 2);
    bt_kv_pool_destroy(pool);
}

static void fork_without_free_blocks_changes_nothing(void **state)
{
    bt_kv_pool_t *pool = NULL;
    bt_kv_copy_t copy = {8, 9};
    uint32_t origin[2];
    uint32_t fork[4] = {77, 77, 77, 77};

    (void)state;
    assert_int_equal(bt_kv_pool_create(4, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 2, origin), BT_OK);
    assert_int_equal(bt_kv_fork(pool, origin, T + 1, T, 4, fork, &copy),
                     BT_ERR_NO_BLOCKS); /* 3 new ones, 2 are free */
    assert_int_equal(fork[0], 77);
    assert_int_equal(copy.from, 8);
    assert_int_equal(bt_kv_pool_n_free(pool), 2);
    unref_all(pool, origin, 2); /* no reference was left behind */
    assert_int_equal(bt_kv_pool_n_free(pool), 4);
    bt_kv_pool_destroy(pool);
}

/* ---- random lives ---- */

#define LIVES  100u
#define STEPS  2000u
#define BLOCKS 27u
#define MOST   6u /* spans of a sequence */
#define SEQS   8u

typedef struct life {
    bt_kv_pool_t *pool;
    uint32_t memory[BLOCKS][T]; /* the token in each place */
    uint64_t rng;
} life_t;

typedef struct sequence {
    bool lives;
    uint32_t n_tokens;
    uint32_t tokens[MOST * T]; /* what it must find in its blocks */
    uint32_t ids[MOST];        /* all of them, from the start */
} sequence_t;

static void write_token(life_t *life, sequence_t *seq)
{
    const uint32_t at = seq->n_tokens++;

    seq->tokens[at] = (uint32_t)draw_below(&life->rng, 1u << 30);
    life->memory[seq->ids[at / T]][at % T] = seq->tokens[at];
}

static void check(const life_t *life, const sequence_t *seq)
{
    for (uint32_t at = 0; at < seq->n_tokens; at++) {
        assert_int_equal(life->memory[seq->ids[at / T]][at % T],
                         seq->tokens[at]);
    }
}

static void begin(life_t *life, sequence_t *seq)
{
    if (bt_kv_pool_acquire(life->pool, MOST, seq->ids) == BT_OK) {
        seq->lives = true;
        seq->n_tokens = 0;
        write_token(life, seq);
    }
}

static void fork_one(life_t *life, const sequence_t *origin, sequence_t *seq)
{
    /* Anywhere in it, its whole length too. */
    const uint32_t n = 1 + (uint32_t)draw_below(&life->rng, origin->n_tokens);
    bt_kv_copy_t copy;

    if (bt_kv_fork(life->pool, origin->ids, n, T, MOST, seq->ids, &copy) !=
        BT_OK) {
        assert_true(bt_kv_pool_n_free(life->pool) <
                    bt_kv_fork_n_new(n, T, MOST));
        return;
    }
    if (bt_kv_copy_is_due(copy)) {
        memcpy(life->memory[copy.to], life->memory[copy.from],
               sizeof(life->memory[0]));
    }
    seq->lives = true;
    seq->n_tokens = n;
    memcpy(seq->tokens, origin->tokens, n * sizeof(n));
}

static void step(life_t *life, sequence_t *seqs)
{
    sequence_t *const seq = &seqs[draw_below(&life->rng, SEQS)];
    const sequence_t *const other = &seqs[draw_below(&life->rng, SEQS)];

    if (!seq->lives) {
        if (other->lives) {
            fork_one(life, other, seq);
        } else {
            begin(life, seq);
        }
    } else if ((seq->n_tokens == MOST * T) ||
               (draw_below(&life->rng, 16) == 0)) {
        unref_all(life->pool, seq->ids, MOST);
        seq->lives = false;
    } else {
        write_token(life, seq);
    }
}

static void random_forks_share_nothing_written_and_free_all_blocks(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= LIVES; i++) {
        sequence_t seqs[SEQS] = {0};
        life_t life = {.rng = i};

        assert_int_equal(bt_kv_pool_create(BLOCKS, &life.pool), BT_OK);
        for (uint32_t k = 0; k < STEPS; k++) {
            step(&life, seqs);
            for (uint32_t s = 0; s < SEQS; s++) {
                if (seqs[s].lives) {
                    check(&life, &seqs[s]);
                }
            }
        }
        for (uint32_t s = 0; s < SEQS; s++) {
            if (seqs[s].lives) {
                unref_all(life.pool, seqs[s].ids, MOST);
            }
        }
        assert_int_equal(bt_kv_pool_n_free(life.pool), BLOCKS);
        bt_kv_pool_destroy(life.pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(whole_blocks_are_shared_and_the_partial_one_is_copied),
        BT_TEST(fork_at_a_block_boundary_copies_nothing),
        BT_TEST(fork_without_free_blocks_changes_nothing),
        BT_TEST(random_forks_share_nothing_written_and_free_all_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
