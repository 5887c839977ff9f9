/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of a known line (µs): what a chunk of it should be follows by hand.
 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_chunk.h"
#include "common/sched/sched_queue.h"
#include "tests/support/draw.h"

#define T 16u /* tokens per block */

typedef struct machine {
    double step_us, token_us, pair_us, gen_us, seq_us;
} machine_t;

static bt_sched_cost_t cost;
static bt_sched_chunk_t chunk;
static uint64_t rng;

static double true_us(const machine_t *m, const bt_sched_step_t *step)
{
    return (step->n_tokens > 0)
               ? m->step_us + m->token_us * step->n_tokens +
                     m->pair_us * (double)step->pairs + m->seq_us * step->n_seqs
               : m->gen_us + m->seq_us * step->n_seqs;
}

/* A step of it; noise in percent. */
static void measure(const machine_t *m, const bt_sched_step_t *step,
                    unsigned noise)
{
    const double off = (double)draw_below(&rng, 2 * noise + 1) - noise;

    bt_sched_cost_learn(&cost, step,
                        (uint64_t)(1000 * true_us(m, step) * (1 + off / 100)));
}

static void begin(const machine_t *m, uint32_t max_tokens, uint32_t itl_us)
{
    rng = 1;
    bt_sched_cost_init(&cost);
    bt_sched_chunk_init(&chunk, false, max_tokens, T, itl_us);
    for (uint32_t i = 0; i < 300; i++) { /* prompts of any length came before */
        const uint32_t n = 1 + (uint32_t)draw_below(&rng, 200);
        const bt_sched_step_t prompt = {
            .n_tokens = n,
            .pairs = bt_sched_pairs((uint32_t)draw_below(&rng, 2000), n),
            .n_seqs = (uint32_t)draw_below(&rng, 8)};
        const bt_sched_step_t gen = {.n_seqs =
                                         1 + (uint32_t)draw_below(&rng, 16)};

        measure(m, &prompt, 0);
        measure(m, &gen, 0);
    }
}

/* After as many iterations as it takes to be sure. */
static uint32_t settled(const bt_sched_step_t *step, uint32_t position)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 17; i++) { /* the 32nd would be a half */
        n = bt_sched_chunk_tokens(&chunk, &cost, step, position);
    }
    return n;
}

/* 1.8 ms for an iteration and 0.2 ms for a token: 39 x 1.8 / 0.2 = 351 tokens,
 * in which 70 ms are left for 341: 21 blocks. */
static void lone_prefill_iteration_wastes_a_fortieth(void **state)
{
    const machine_t m = {1800, 200, 0, 9000, 300};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 50000);
    assert_int_equal(settled(&nobody, 0), 336);
    bt_sched_chunk_init(&chunk, false, 48, T, 50000); /* never more */
    assert_int_equal(settled(&nobody, 0), 48);
}

/* Of a worker that has just begun the first guess is not waited for; later a
 * size changes when it was wrong eight times in a row. */
static void first_chunk_sizes_adapt_at_once(void **state)
{
    const machine_t quick = {1800, 200, 0, 9000, 300};
    const machine_t slow = {1800, 1000, 0, 9000, 300}; /* 70 ms: 68 tokens */
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&quick, 1024, 50000);
    assert_int_equal(bt_sched_chunk_tokens(&chunk, &cost, &nobody, 0), 336);
    begin(&slow, 1024, 50000);
    assert_int_equal(bt_sched_chunk_tokens(&chunk, &cost, &nobody, 0), 64);
    for (uint32_t i = 0; i < BT_SCHED_CHUNK_YOUNG; i++) {
        (void)bt_sched_chunk_tokens(&chunk, &cost, &nobody, 0);
    }
    bt_sched_cost_init(&cost);
    for (uint32_t i = 0; i < 300; i++) {
        const bt_sched_step_t prompt = {.n_tokens = 16 + i};

        measure(&quick, &prompt, 0);
    }
    for (uint32_t i = 1; i < BT_SCHED_CHUNK_VOTES; i++) {
        assert_in_range(bt_sched_chunk_tokens(&chunk, &cost, &nobody, 0), 32,
                        64);
    }
    assert_int_equal(bt_sched_chunk_tokens(&chunk, &cost, &nobody, 0), 336);
}

/* 0.5 ms and 0.4 ms: 49 tokens would do, and 128 take 52 ms. */
static void prefill_chunk_alone_is_large_when_iterations_are_cheap(void **state)
{
    const machine_t m = {500, 400, 0, 9000, 300};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 50000);
    assert_int_equal(settled(&nobody, 0), 128);
}

/* 4 ms and 0.6 ms: 260 tokens would waste a fortieth, in 160 ms. 70 ms are
 * (70 - 4) / 0.6 = 110, 6 blocks. */
static void prefill_chunk_alone_is_bounded_by_time(void **state)
{
    const machine_t m = {4000, 600, 0, 9000, 300};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 50000);
    assert_int_equal(settled(&nobody, 0), 96);
}

/* 20 ms and 1 ms: 70 ms are 50 tokens, of which it would be two sevenths. 9 x
 * 20 / 1 = 180 tokens, 11 blocks. */
static void lone_prefill_iteration_wastes_at_most_a_tenth(void **state)
{
    const machine_t m = {20000, 1000, 0, 9000, 300};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 50000);
    assert_in_range(settled(&nobody, 0), 160, 176);
}

/* 0.08 ms and 0.005 ms: 20 ms are (20 - 0.08) / 0.005 tokens, more than there
 * is room for. */
static void fast_device_gets_large_chunks(void **state)
{
    const machine_t m = {80, 5, 0, 90, 3};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 50000);
    assert_int_equal(settled(&nobody, 0), 1024);
}

/* 50 ms, less 4 ms and 8 x 0.3 ms: 43.6 / 0.5 = 87 tokens, 5 blocks. */
static void mixed_iteration_keeps_the_itl_target(void **state)
{
    const machine_t m = {4000, 500, 0, 9000, 300};
    bt_sched_step_t step = {.n_seqs = 8};
    uint32_t n;

    (void)state;
    begin(&m, 1024, 50000);
    n = settled(&step, 0);
    assert_in_range(n, 64, 80);
    step.n_tokens = n;
    assert_true(true_us(&m, &step) <= 50000);
}

/* At position 3,000 of a model with 0.2 us a pair a token takes 1.1 ms:
 * (50 - 6.4) / 1.1 = 39. */
static void chunks_shrink_with_the_position_in_the_prompt(void **state)
{
    const machine_t m = {4000, 500, 0.2, 9000, 300};
    bt_sched_step_t step = {.n_seqs = 8};

    (void)state;
    begin(&m, 1024, 50000);
    assert_in_range(settled(&step, 3000), 32, 48);
}

/* Those who generate take 9 + 16 x 0.3 = 13.8 ms alone: the target of 5 ms
 * cannot be met, and 27.6 ms are (27.6 - 8.8) / 0.5 = 37 tokens. */
static void unreachable_itl_target_starves_no_prompt(void **state)
{
    const machine_t m = {4000, 500, 0, 9000, 300};
    const bt_sched_step_t step = {.n_seqs = 16};

    (void)state;
    begin(&m, 1024, 5000);
    assert_in_range(settled(&step, 0), 32, 48);
}

static void smallest_chunk_is_one_block(void **state)
{
    const machine_t m = {40000, 9000, 0, 100, 1};
    const bt_sched_step_t step = {.n_seqs = 1};

    (void)state;
    begin(&m, 1024, 1000);
    assert_int_equal(settled(&step, 0), T);
}

static void fixed_chunk_size_never_changes(void **state)
{
    const machine_t m = {4000, 500, 0, 9000, 300};
    const bt_sched_step_t step = {.n_seqs = 8};
    const bt_sched_step_t nobody = {0};

    (void)state;
    begin(&m, 1024, 1000);
    bt_sched_chunk_init(&chunk, true, 500, T, 1000);
    assert_int_equal(settled(&step, 0), 500);
    assert_int_equal(settled(&nobody, 4000), 500);
}

/* 5 % of noise, for 20,000 iterations: it settles and stays. */
static void chunk_size_is_stable_under_noise(void **state)
{
    const machine_t m = {8000, 500, 0, 9000, 300};
    bt_sched_step_t step = {0};
    uint32_t n_changes = 0;

    (void)state;
    begin(&m, 1024, 50000);
    (void)settled(&step, 0);
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t before = chunk.alone.tokens;

        step.n_tokens = 0;
        step.n_tokens = bt_sched_chunk_tokens(&chunk, &cost, &step, 0);
        measure(&m, &step, 5);
        n_changes += (chunk.alone.tokens != before);
        assert_in_range(chunk.alone.tokens, 96, 208);
    }
    print_message("%u changes\n", n_changes);
    assert_in_range(n_changes, 0, 40);
}

/* All prompts are whole chunks, so that without halves no iteration would tell
 * a token from an iteration; the machine gets a dear iteration: 9 x 24 / 0.5 =
 * 432. */
static void chunk_size_adapts_to_a_new_iteration_cost(void **state)
{
    const machine_t before = {4000, 500, 0, 9000, 300};
    const machine_t after = {24000, 500, 0, 9000, 300};
    bt_sched_step_t step = {0};

    (void)state;
    begin(&before, 1024, 50000);
    assert_in_range(settled(&step, 0), 112, 144);
    for (uint32_t i = 0; i < 3000; i++) {
        step.n_tokens = 0;
        step.n_tokens = bt_sched_chunk_tokens(&chunk, &cost, &step, 0);
        measure(&after, &step, 2);
    }
    assert_in_range(chunk.alone.tokens, 352, 512);
}

/* What activations need room for: as many context tokens as a chunk may have,
 * and one row for each who generates, for prompts of any length and number. */
static void chunk_rows_are_bounded_for_any_prompts(void **state)
{
    static bt_sched_seq_t seqs[64];
    bt_sched_item_t items[64];
    bt_list_t running;

    (void)state;
    rng = 3;
    for (uint32_t round = 0; round < 3000; round++) {
        const uint32_t n = 1 + (uint32_t)draw_below(&rng, 64);
        const uint32_t budget = T + (uint32_t)draw_below(&rng, 1000);
        bt_sched_step_t step = {0};
        uint32_t n_context = 0;
        uint32_t n_rows = 0;
        uint32_t n_items;
        uint32_t n_chunk;

        bt_sched_chunk_init(&chunk, draw_below(&rng, 2) == 0, budget, T,
                            1 + (uint32_t)draw_below(&rng, 100000));
        bt_list_init(&running);
        for (uint32_t i = 0; i < n; i++) {
            seqs[i] = (bt_sched_seq_t){.n_tokens = 1u << draw_below(&rng, 31)};
            seqs[i].n_computed =
                (draw_below(&rng, 2) == 0) ? seqs[i].n_tokens - 1 : 0;
            step.n_seqs += (seqs[i].n_tokens - seqs[i].n_computed == 1);
            bt_sched_turn_init(&seqs[i].turn, 0, i);
            bt_sched_queue_insert(&running, &seqs[i].turn);
        }
        n_chunk = bt_sched_chunk_tokens(&chunk, &cost, &step, 0);
        n_items = bt_sched_plan(&running, n_chunk + step.n_seqs, T, 64, items,
                                &n_context);
        for (uint32_t i = 0; i < n_items; i++) {
            n_rows += items[i].n_new;
        }
        assert_true(n_context <= budget);
        assert_true(n_rows <= budget + step.n_seqs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(lone_prefill_iteration_wastes_a_fortieth),
        BT_TEST(first_chunk_sizes_adapt_at_once),
        BT_TEST(prefill_chunk_alone_is_large_when_iterations_are_cheap),
        BT_TEST(prefill_chunk_alone_is_bounded_by_time),
        BT_TEST(lone_prefill_iteration_wastes_at_most_a_tenth),
        BT_TEST(fast_device_gets_large_chunks),
        BT_TEST(mixed_iteration_keeps_the_itl_target),
        BT_TEST(chunks_shrink_with_the_position_in_the_prompt),
        BT_TEST(unreachable_itl_target_starves_no_prompt),
        BT_TEST(smallest_chunk_is_one_block),
        BT_TEST(fixed_chunk_size_never_changes),
        BT_TEST(chunk_size_is_stable_under_noise),
        BT_TEST(chunk_size_adapts_to_a_new_iteration_cost),
        BT_TEST(chunk_rows_are_bounded_for_any_prompts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
