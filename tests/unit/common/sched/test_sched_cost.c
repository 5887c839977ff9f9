/* SPDX-License-Identifier: Apache-2.0 */
/* The expected times are those of the lines that the tests feed it with. */
#include "tests/support/testsupport.h"

#include <math.h>

#include "common/sched/sched_cost.h"
#include "tests/support/draw.h"

/* A worker: 4 ms for an iteration, 0.5 ms for a token, 2 us for 1,024 pairs. */
#define STEP_NS  4000000.0
#define TOKEN_NS 500000.0
#define PAIR_NS  2.0
/* As it generates: 9 ms, 0.3 ms for each, 5 us for 1,024 reads. */
#define GEN_NS      9000000.0
#define SEQ_NS      300000.0
#define SEQ_PAIR_NS 5.0

static bt_sched_step_t context_step(uint32_t from, uint32_t n)
{
    return (bt_sched_step_t){.n_tokens = n,
                             .pairs = bt_sched_pairs(from, n),
                             .reads = (uint64_t)from + n};
}

static double true_ns(const bt_sched_step_t *step, double slower)
{
    const double seqs =
        step->n_seqs * SEQ_NS + (double)step->reads * SEQ_PAIR_NS;

    return slower * ((step->n_tokens > 0)
                         ? STEP_NS + step->n_tokens * TOKEN_NS +
                               (double)step->pairs * PAIR_NS + seqs
                         : GEN_NS + seqs);
}

static bt_sched_step_t any_step(uint64_t *rng)
{
    bt_sched_step_t step = {0};

    if (draw_below(rng, 2) == 0) {
        const uint32_t n_tokens = 1 + (uint32_t)draw_below(rng, 256);
        const uint32_t n_before = (uint32_t)draw_below(rng, 4000);
        const uint32_t is_mixed = (uint32_t)draw_below(rng, 2);

        step = context_step(n_before, n_tokens);
        step.n_seqs = is_mixed * (uint32_t)draw_below(rng, 16);
    } else {
        step.n_seqs = 1 + (uint32_t)draw_below(rng, 32);
    }
    step.reads += step.n_seqs * draw_below(rng, 2000);
    return step;
}

/* @param noise  percent, to both sides @param outliers  percent of the steps,
 *               ten times as long */
static void teach(bt_sched_cost_t *cost, uint64_t *rng, unsigned n,
                  double slower, unsigned noise, unsigned outliers)
{
    for (unsigned i = 0; i < n; i++) {
        const bt_sched_step_t step = any_step(rng);
        double ns = true_ns(&step, slower);

        ns *= 1 + ((double)draw_below(rng, 2 * noise + 1) - noise) / 100;
        ns *= (draw_below(rng, 100) < outliers) ? 10 : 1;
        bt_sched_cost_learn(cost, &step, (uint64_t)ns);
    }
}

/* The largest relative error over steps of all kinds, in percent. */
static double worst(const bt_sched_cost_t *cost, double slower)
{
    uint64_t rng = 99;
    double most = 0;

    for (unsigned i = 0; i < 500; i++) {
        const bt_sched_step_t step = any_step(&rng);
        const double us = true_ns(&step, slower) / 1000;

        most = fmax(most, fabs(bt_sched_cost_step_us(cost, &step) - us) / us);
    }
    return 100 * most;
}

static void attention_pairs_are_the_sum_of_positions(void **state)
{
    (void)state;
    assert_int_equal(bt_sched_pairs(0, 1), 1);
    assert_int_equal(bt_sched_pairs(0, 4), 1 + 2 + 3 + 4);
    assert_int_equal(bt_sched_pairs(10, 3), 11 + 12 + 13);
    assert_int_equal(bt_sched_pairs(UINT32_MAX, 2), 2ull * UINT32_MAX + 3);
}

static void unmeasured_cost_is_a_millisecond_per_token(void **state)
{
    const bt_sched_step_t step = context_step(0, 64);
    bt_sched_rates_t rates;
    bt_sched_cost_t cost;

    (void)state;
    bt_sched_cost_init(&cost);
    assert_in_range((uint64_t)bt_sched_cost_step_us(&cost, &step), 64000,
                    66000);
    rates = bt_sched_cost_rates(&cost);
    assert_int_equal(rates.prefill_token_ns, 0);
    assert_int_equal(rates.decode_step_ns, 0);
    assert_int_equal(rates.transfer_mib_ns, 0);
}

static void cost_model_learns_a_linear_cost(void **state)
{
    bt_sched_rates_t rates;
    bt_sched_cost_t cost;
    uint64_t rng = 1;

    (void)state;
    bt_sched_cost_init(&cost);
    teach(&cost, &rng, 400, 1, 0, 0);
    assert_true(worst(&cost, 1) < 1);
    rates = bt_sched_cost_rates(&cost);
    assert_in_range(rates.prefill_token_ns, 495000, 505000);
    assert_in_range(rates.prefill_step_ns, 3800000, 4200000);
    assert_in_range(rates.prefill_kilopair_ns, 1950, 2150);
    assert_in_range(rates.prefill_kiloread_ns, 4500, 5700);
    assert_in_range(rates.decode_step_ns, 8900000, 9100000);
    assert_in_range(rates.decode_seq_ns, 290000, 310000);
    assert_in_range(rates.decode_kiloread_ns, 4900, 5300);
    assert_in_range(rates.prefill_error, 0, 20);

    /* 1,000 tokens from position 24 on, in chunks of 256: 4 iterations, 500 ms,
     * 1,000 x 24 + 500,500 pairs = 524,500 x 2 ns. */
    assert_in_range(bt_sched_cost_prompt_us(&cost, 24, 1024, 256), 510000,
                    524000);
    assert_int_equal(bt_sched_cost_prompt_us(&cost, 24, 24, 256), 0);
}

static void thousandfold_faster_device_is_learned(void **state)
{
    bt_sched_cost_t cost;
    uint64_t rng = 2;

    (void)state;
    bt_sched_cost_init(&cost);
    teach(&cost, &rng, 400, 0.001, 0, 0);
    assert_true(worst(&cost, 0.001) < 5);
}

/* Ten percent to both sides, and one in twenty is ten times as long. */
static void outliers_change_the_cost_model_little(void **state)
{
    bt_sched_cost_t cost;
    uint64_t rng = 3;

    (void)state;
    bt_sched_cost_init(&cost);
    teach(&cost, &rng, 2000, 1, 10, 5);
    assert_true(worst(&cost, 1) < 25);
}

/* Half as quick from now on: believed within 300 steps, and back again. */
static void lasting_slowdown_is_learned(void **state)
{
    bt_sched_cost_t cost;
    uint64_t rng = 4;

    (void)state;
    bt_sched_cost_init(&cost);
    teach(&cost, &rng, 500, 1, 5, 0);
    teach(&cost, &rng, 300, 2, 5, 0);
    assert_true(worst(&cost, 2) < 30);
    teach(&cost, &rng, 600, 1, 5, 0);
    assert_true(worst(&cost, 1) < 15);
}

/* The same step, again and again: nothing is left open to blow up, and what was
 * known of others stays near to what it was. */
static void samples_of_one_kind_keep_the_cost_model_stable(void **state)
{
    const bt_sched_step_t same = context_step(0, 128);
    const bt_sched_step_t other = context_step(3000, 32);
    bt_sched_cost_t cost;
    uint64_t rng = 5;
    double us;

    (void)state;
    bt_sched_cost_init(&cost);
    teach(&cost, &rng, 500, 1, 2, 0);
    for (unsigned i = 0; i < 100000; i++) {
        const double noise = 0.95 + (double)draw_below(&rng, 11) / 100;

        bt_sched_cost_learn(&cost, &same,
                            (uint64_t)(true_ns(&same, 1) * noise));
    }
    us = bt_sched_cost_step_us(&cost, &same);
    assert_true(fabs(us - true_ns(&same, 1) / 1000) < 0.05 * us);
    us = true_ns(&other, 1) / 1000;
    assert_true(fabs(bt_sched_cost_step_us(&cost, &other) - us) < 0.5 * us);
    for (unsigned i = 0; i < BT_SCHED_COST_TERMS; i++) {
        const double factor = cost.fits[BT_SCHED_COST_CONTEXT].factors[i];

        assert_true(isfinite(factor) && (factor >= 0));
    }
}

/* Nothing that could be measured makes a number that is none. */
static void invalid_cost_samples_are_ignored(void **state)
{
    static const uint64_t times[] = {
        0, 1, 1000, 1000000000ull, UINT64_MAX, 3600000000000ull};
    bt_sched_cost_t cost;
    uint64_t rng = 6;

    (void)state;
    bt_sched_cost_init(&cost);
    for (unsigned i = 0; i < 200000; i++) {
        bt_sched_step_t step = any_step(&rng);
        double us;

        if (draw_below(&rng, 4) == 0) {
            step.pairs = UINT64_MAX >> draw_below(&rng, 60);
        }
        if (draw_below(&rng, 4) == 0) {
            step = (bt_sched_step_t){.n_tokens = UINT32_MAX};
        }
        bt_sched_cost_learn(&cost, &step, times[draw_below(&rng, 6)]);
        bt_sched_cost_learn_transfer(&cost, UINT64_MAX >> draw_below(&rng, 64),
                                     times[draw_below(&rng, 6)], 0);
        us = bt_sched_cost_step_us(&cost, &step);
        assert_true(isfinite(us) && (us >= 1));
        us = bt_sched_cost_transfer_us(&cost, 1);
        assert_true(isfinite(us) && (us >= 1));
    }
    /* ...and it still learns. */
    teach(&cost, &rng, 3000, 1, 0, 0);
    assert_true(worst(&cost, 1) < 20);
}

/* 0.2 ms and 1 ms for a MiB. */
/* 6 ms for 4 sequences, which would have been 9 without help. What a prompt had
 * is not counted. */
static void borrowed_cores_do_not_lower_decode_cost(void **state)
{
    const bt_sched_step_t helped = {.n_seqs = 4, .lent_ns = 3000000};
    const bt_sched_step_t prompt = {
        .n_tokens = 100, .pairs = 5050, .reads = 100, .lent_ns = 3000000};
    const bt_sched_step_t nonsense = {.n_seqs = 4, .lent_ns = UINT64_MAX};
    bt_sched_cost_t cost;

    (void)state;
    bt_sched_cost_init(&cost);
    for (int i = 0; i < 200; i++) {
        bt_sched_cost_learn(&cost, &helped, 6000000);
        bt_sched_cost_learn(&cost, &prompt, 6000000);
        bt_sched_cost_learn(&cost, &nonsense, 6000000);
    }
    assert_in_range((uint64_t)bt_sched_cost_step_us(&cost, &helped), 8990,
                    9010);
    assert_in_range((uint64_t)bt_sched_cost_step_us(&cost, &prompt), 5990,
                    6010);
}

static void transfer_cost_is_learned(void **state)
{
    bt_sched_rates_t rates;
    bt_sched_cost_t cost;
    uint64_t rng = 7;

    (void)state;
    bt_sched_cost_init(&cost);
    for (unsigned i = 0; i < 200; i++) {
        const uint64_t bytes = 1 + draw_below(&rng, 64u << 20);

        bt_sched_cost_learn_transfer(&cost, bytes,
                                     200000 + bytes * 1000000 / (1u << 20), 0);
    }
    assert_in_range((uint64_t)bt_sched_cost_transfer_us(&cost, 8u << 20), 8150,
                    8250);
    rates = bt_sched_cost_rates(&cost);
    assert_in_range(rates.transfer_start_ns, 190000, 210000);
    assert_in_range(rates.transfer_mib_ns, 990000, 1010000);
    assert_int_equal(rates.prefill_token_ns, 0);
}

/* 2 chunks of 4 ms, 512 tokens of 0.5 ms, 131,328 pairs at 2 us for 1,024, and
 * 2 x 256 reads in the mean at 800 us for 1,024. */
static void reported_rates_predict_prompt_time(void **state)
{
    const bt_sched_rates_t rates = {.prefill_step_ns = 4000000,
                                    .prefill_token_ns = 500000,
                                    .prefill_kilopair_ns = 2000,
                                    .prefill_kiloread_ns = 800000};
    const bt_sched_rates_t nonsense = {.prefill_token_ns = UINT64_MAX};
    const bt_sched_rates_t none = {0};

    (void)state;
    assert_in_range(bt_sched_rates_prompt_us(&rates, 512, 256), 264600, 264720);
    assert_int_equal(bt_sched_rates_prompt_us(&nonsense, 512, 256), 0);
    assert_int_equal(bt_sched_rates_prompt_us(&none, 512, 256), 0);
}

/* Measurements with times of their own: prompts of three chunks, steps of
 * generation, transfers. */
typedef struct rested {
    bt_sched_cost_t cost;
    uint64_t now_us;
} rested_t;

static void measure(rested_t *r, bt_sched_step_t step, double slower)
{
    const double ns = true_ns(&step, slower);

    r->now_us += (uint64_t)(ns / 1000);
    step.at_us = r->now_us;
    bt_sched_cost_learn(&r->cost, &step, (uint64_t)ns);
}

static void measure_prompt(rested_t *r, double slower)
{
    for (uint32_t i = 0; i < 3; i++) {
        measure(r, context_step(200 * i, 200), slower);
    }
}

static const bt_sched_step_t four = {.n_seqs = 4, .reads = 4000};

static void measure_transfer(rested_t *r, double slower)
{
    const uint64_t ns = (uint64_t)(5000000 * slower);

    r->now_us += ns / 1000;
    bt_sched_cost_learn_transfer(&r->cost, 4u << 20, ns, r->now_us);
}

/* How many times too long a prediction is: of a chunk, a step, a transfer. */
static double too_long(const rested_t *r, bt_sched_cost_kind_t kind)
{
    const bt_sched_step_t chunk = context_step(200, 200);

    switch (kind) {
    case BT_SCHED_COST_CONTEXT:
        return bt_sched_cost_step_us(&r->cost, &chunk) * 1000 /
               true_ns(&chunk, 1);
    case BT_SCHED_COST_GENERATION:
        return bt_sched_cost_step_us(&r->cost, &four) * 1000 /
               true_ns(&four, 1);
    case BT_SCHED_COST_TRANSFER:
    case BT_SCHED_N_COSTS:
        break;
    }
    return bt_sched_cost_transfer_us(&r->cost, 4u << 20) / 5000;
}

/* All kinds were measured while something else had the cores, five times too
 * long. Then one request comes in two seconds. The same without rests is what
 * a busy worker does: what is slow once does not count there, nor what is
 * quick. */
static void few_samples_suffice_after_idle_time(void **state)
{
    rested_t r = {.now_us = 1000}, busy;

    (void)state;
    bt_sched_cost_init(&r.cost);
    for (int i = 0; i < 10; i++) {
        measure_prompt(&r, 5);
        measure(&r, four, 5);
        measure_transfer(&r, 5);
    }
    for (unsigned kind = 0; kind < BT_SCHED_N_COSTS; kind++) {
        assert_true(too_long(&r, kind) > 4.5);
    }
    busy = r;
    for (int i = 0; i < 3; i++) {
        r.now_us += 2000000;
        measure_prompt(&r, 1);
        measure(&r, four, 1);
        measure_transfer(&r, 1);
        measure(&busy, four, 1);
        measure_transfer(&busy, 1);
    }
    for (unsigned kind = 0; kind < BT_SCHED_N_COSTS; kind++) {
        assert_true(too_long(&r, kind) < 1.2);
        assert_true(too_long(&r, kind) > 0.9);
    }
    assert_true(too_long(&busy, BT_SCHED_COST_GENERATION) > 2);
    assert_true(too_long(&busy, BT_SCHED_COST_TRANSFER) > 2);
}

/* A step after a rest that was slow once counts no more than one at the edge.
 */
static void outlier_after_idle_time_changes_little(void **state)
{
    rested_t r = {.now_us = 1000};

    (void)state;
    bt_sched_cost_init(&r.cost);
    for (int i = 0; i < 10; i++) {
        measure_prompt(&r, 1);
    }
    r.now_us += 60000000;
    measure(&r, context_step(200, 200), 400);
    assert_true(too_long(&r, BT_SCHED_COST_CONTEXT) < 1.5);
    for (int i = 0; i < 3; i++) {
        r.now_us += 2000000;
        measure_prompt(&r, 1);
    }
    assert_true(too_long(&r, BT_SCHED_COST_CONTEXT) < 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(attention_pairs_are_the_sum_of_positions),
        BT_TEST(unmeasured_cost_is_a_millisecond_per_token),
        BT_TEST(cost_model_learns_a_linear_cost),
        BT_TEST(thousandfold_faster_device_is_learned),
        BT_TEST(outliers_change_the_cost_model_little),
        BT_TEST(lasting_slowdown_is_learned),
        BT_TEST(samples_of_one_kind_keep_the_cost_model_stable),
        BT_TEST(invalid_cost_samples_are_ignored),
        BT_TEST(borrowed_cores_do_not_lower_decode_cost),
        BT_TEST(transfer_cost_is_learned),
        BT_TEST(reported_rates_predict_prompt_time),
        BT_TEST(few_samples_suffice_after_idle_time),
        BT_TEST(outlier_after_idle_time_changes_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
