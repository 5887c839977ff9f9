/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <math.h>

#include "common/base/status.h"
#include "inference/model/logits.h"
#include "tests/support/draw.h"

#define N 1000u

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-6);
}

/* By Python's decimal with 40 digits: ln of the sum of exp. */
static void log_sum_exp_equals_the_definition(void **state)
{
    static const float a[] = {1.0f, 2.0f, 3.0f, -4.0f, 2.0f};
    static const float b[] = {100.0f, 99.5f, -3000.0f};
    static const float one[] = {-7.25f};

    (void)state;
    assert_near(bt_logprob_sum(a, BT_ARRAY_LEN(a)),
                3.627010608576385077938818883113835754392);
    assert_near(bt_logprob_sum(b, BT_ARRAY_LEN(b)),
                100.4740769841801066808729973550811707498);
    assert_true(bt_logprob_sum(one, 1) == -7.25);
}

/* Lane by lane in plain C, as logits.h says it: the bits do not depend on the
 * machine's vectors. */
static float plain_exp(float x)
{
    const float shift = 0x1.8p23f;
    const float t = ((x > -87.0f) ? x : 0.0f) * 0x1.715476p0f + shift;
    const float n = t - shift;
    const float r =
        (((x > -87.0f) ? x : 0.0f) - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0.0f;

    for (int k = 7; k >= 0; k--) { /* 1 / k! */
        p = p * r + 1.0f / (float)tgamma(k + 1.0);
    }
    return (x > -87.0f) ? ldexpf(p, (int)n) : 0.0f;
}

static double plain_sum(const float *logits, uint32_t n)
{
    double lanes[16] = {0.0};
    float sums[16] = {0.0f};
    float best = logits[0];
    double sum = 0.0;

    for (uint32_t i = 1; i < n; i++) {
        best = (logits[i] > best) ? logits[i] : best;
    }
    for (uint32_t i = 0; i < n; i++) {
        sums[i % 16] += plain_exp(logits[i] - best);
        if ((i % 256 == 255) || (i + 1 == n - n % 16) || (i + 1 == n)) {
            for (uint32_t lane = 0; lane < 16; lane++) {
                lanes[lane] += (double)sums[lane];
                sums[lane] = 0.0f;
            }
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        sum += lanes[i];
    }
    return (double)best + log(sum);
}

static void vector_log_sum_exp_is_bit_equal_to_scalar_code(void **state)
{
    uint64_t rng = 3;
    float logits[N];

    (void)state;
    for (uint32_t n = 1; n <= N; n += (n < 40) ? 1 : 37) {
        double want;
        double got;

        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)draw_below(&rng, 200000) / 1000.0f - 100.0f;
        }
        want = plain_sum(logits, n);
        got = bt_logprob_sum(logits, n);
        assert_memory_equal(&got, &want, sizeof(got));
    }
}

static void probabilities_sum_to_one(void **state)
{
    uint64_t rng = 1;
    float logits[N];

    (void)state;
    for (uint32_t round = 0; round < 100; round++) {
        double total = 0.0;
        double sum;

        for (uint32_t i = 0; i < N; i++) {
            logits[i] = (float)draw_below(&rng, 60000) / 1000.0f - 30.0f;
        }
        sum = bt_logprob_sum(logits, N);
        for (uint32_t i = 0; i < N; i++) {
            total += exp((double)logits[i] - sum);
        }
        assert_true(fabs(total - 1.0) < 1e-6);
    }
}

static void row_without_finite_logits_is_reported(void **state)
{
    const float nan_row[] = {1.0f, NAN, 2.0f};
    const float inf_row[] = {1.0f, INFINITY, 2.0f};

    (void)state;
    assert_true(isnan(bt_logprob_sum(nan_row, 3)));
    assert_true(isnan(bt_logprob_sum(inf_row, 3)));
}

static void top_logprobs_are_descending_with_ties_by_lowest_id(void **state)
{
    static const float logits[] = {1.0f, 5.0f, 3.0f, 5.0f, -2.0f, 3.0f};
    static const uint32_t order[] = {1, 3, 2, 5, 0, 4}; /* by hand */
    uint32_t ids[6];

    (void)state;
    for (uint32_t k = 0; k <= 6; k++) {
        bt_logprob_top(logits, 6, k, ids);
        assert_memory_equal(ids, order, k * sizeof(ids[0]));
    }
}

/* Against a search through all of them, for each place. */
static void top_logprobs_equal_a_linear_search(void **state)
{
    uint64_t rng = 2;
    float logits[N];
    uint32_t ids[20];

    (void)state;
    for (uint32_t round = 0; round < 100; round++) {
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = (float)draw_below(&rng, 200);
        }
        bt_logprob_top(logits, N, 20, ids);
        for (uint32_t k = 0; k < 20; k++) {
            uint32_t best = 0;

            for (uint32_t i = 1; i < N; i++) {
                best = (logits[i] > logits[best]) ? i : best;
            }
            assert_int_equal(ids[k], best);
            logits[best] = -1.0f;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(log_sum_exp_equals_the_definition),
        BT_TEST(vector_log_sum_exp_is_bit_equal_to_scalar_code),
        BT_TEST(probabilities_sum_to_one),
        BT_TEST(row_without_finite_logits_is_reported),
        BT_TEST(top_logprobs_are_descending_with_ties_by_lowest_id),
        BT_TEST(top_logprobs_equal_a_linear_search),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
