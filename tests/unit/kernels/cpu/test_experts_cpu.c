/* SPDX-License-Identifier: Apache-2.0 */
/* Routing, products and sums of experts, on numbers worked by hand; kcheck has
 * every tier, type and shape. */
#include "tests/support/testsupport.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "kernels/kernels.h"

#define MAX_SLOTS 64u

typedef struct tables {
    bt_expert_rows_t t;
    uint32_t ids[MAX_SLOTS];
    float weights[MAX_SLOTS];
    uint32_t slots[MAX_SLOTS];
    uint32_t first[BT_MAX_EXPERTS + 1];
    uint32_t rows[MAX_SLOTS];
} tables_t;

static tables_t *tables_of(tables_t *tables, uint32_t n_experts,
                           uint32_t n_used)
{
    *tables = (tables_t){.t = {.n_experts = n_experts, .n_used = n_used}};
    tables->t.ids = tables->ids;
    tables->t.weights = tables->weights;
    tables->t.slots = tables->slots;
    tables->t.first = tables->first;
    tables->t.rows = tables->rows;
    return tables;
}

static bt_backend_t *open_cpu(uint32_t max_rows)
{
    const bt_backend_config_t config = {.n_threads = 2, .max_rows = max_rows};
    bt_backend_t *be = NULL;

    assert_int_equal(bt_backend_open("cpu", &config, &be), BT_OK);
    return be;
}

static void route(const bt_routing_t *routing, const float *z, uint32_t n_rows,
                  tables_t *tables)
{
    bt_backend_t *const be = open_cpu(4);

    tables_of(tables, routing->n_experts, routing->n_used);
    be->ops->route(be, routing, z, n_rows, &tables->t);
    bt_backend_close(be);
}

/* Scores ln 1, ln 2, ln 3, ln 4: the softmax is 0.1, 0.2, 0.3, 0.4. */
static const float logs[] = {0.0f, 0.69314718f, 1.09861229f, 1.38629436f};

static void softmax_weights_are_kept_or_divided_by_their_sum(void **state)
{
    bt_routing_t routing = {.n_experts = 4, .n_used = 2, .scale = 1.0f};
    tables_t tables;

    (void)state;
    route(&routing, logs, 1, &tables);
    assert_int_equal(tables.ids[0], 2);
    assert_int_equal(tables.ids[1], 3);
    assert_float_equal(tables.weights[0], 0.3f, 1e-6f);
    assert_float_equal(tables.weights[1], 0.4f, 1e-6f);
    routing.normed = true;
    routing.scale = 7.0f;
    route(&routing, logs, 1, &tables);
    assert_float_equal(tables.weights[0], 3.0f, 1e-5f);
    assert_float_equal(tables.weights[1], 4.0f, 1e-5f);
    routing.gating = BT_GATING_CHOSEN; /* 3/7 and 4/7 */
    route(&routing, logs, 1, &tables);
    assert_float_equal(tables.weights[0], 3.0f, 1e-5f);
    assert_float_equal(tables.weights[1], 4.0f, 1e-5f);
}

/* sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4; the bias chooses and weighs not. */
static void bias_changes_the_choice_and_no_weight(void **state)
{
    static const float z[] = {0.0f, 1.09861229f, 0.0f};
    static const float bias[] = {0.0f, 0.0f, 0.5f};
    const bt_routing_t routing = {.n_experts = 3,
                                  .n_used = 1,
                                  .gating = BT_GATING_SIGMOID,
                                  .scale = 2.5f,
                                  .bias = bias};
    tables_t tables;

    (void)state;
    route(&routing, z, 1, &tables);
    assert_int_equal(tables.ids[0], 2); /* 1.0 against 0.75 and 0.5 */
    assert_float_equal(tables.weights[0], 1.25f, 1e-6f);
}

static void ties_go_to_the_lowest_number(void **state)
{
    static const float z[] = {1, 5, 1, 5, 5, 1};
    const bt_routing_t routing = {.n_experts = 6, .n_used = 4, .scale = 1.0f};
    tables_t tables;

    (void)state;
    route(&routing, z, 1, &tables);
    assert_int_equal(tables.ids[0], 0);
    assert_int_equal(tables.ids[1], 1);
    assert_int_equal(tables.ids[2], 3);
    assert_int_equal(tables.ids[3], 4);
}

/* A row with a NaN has experts, as tables need them, of the weight NaN; its
 * neighbours are as they are alone. */
static void row_with_a_nan_has_weights_of_nan_and_harms_no_other(void **state)
{
    static const float z[] = {0, 3, NAN, 1, 0, 3, 2, 1, NAN, NAN, NAN, NAN};

    (void)state;
    for (uint32_t gating = 0; gating < 3; gating++) {
        const bt_routing_t routing = {.n_experts = 4,
                                      .n_used = 2,
                                      .gating = (bt_gating_t)gating,
                                      .normed = true,
                                      .scale = 1.0f};
        tables_t tables;

        route(&routing, z, 3, &tables);
        for (uint32_t i = 0; i < 6; i++) {
            assert_true(tables.ids[i] < 4);
            assert_int_equal(isnan(tables.weights[i]) != 0, (i < 2) || (i > 3));
        }
        assert_int_equal(tables.ids[2], 1);
        assert_int_equal(tables.ids[3], 2);
        assert_int_equal(tables.first[4], 6);
    }
}

/* The picture in kernels.h: rows at experts 1 and 4, and 1 and 2. */
static void slots_are_numbered_by_expert_and_row(void **state)
{
    static const float z[] = {0, 9, 0, 0, 8, 0, 9, 8, 0, 0};
    static const uint32_t first[] = {0, 0, 2, 3, 3, 4};
    static const uint32_t rows[] = {0, 1, 1, 0};
    static const uint32_t slots[] = {0, 3, 1, 2};
    const bt_routing_t routing = {.n_experts = 5, .n_used = 2, .scale = 1.0f};
    tables_t tables;

    (void)state;
    route(&routing, z, 2, &tables);
    assert_memory_equal(tables.first, first, sizeof(first));
    assert_memory_equal(tables.rows, rows, sizeof(rows));
    assert_memory_equal(tables.slots, slots, sizeof(slots));
}

/* Expert e doubles, triples … its row: its matrix is (e + 2) times the unit.
 * The second weight is the first one's negative. Any scratch is enough. */
static void product_takes_each_slot_through_its_expert(void **state)
{
    static const float z[] = {5, 9, 0, 9, 5, 0, 0, 5, 9};
    const bt_routing_t routing = {.n_experts = 3, .n_used = 2, .scale = 1.0f};
    float data[2][3 * 32 * 32] = {{0}};
    float x[3 * 32];
    float out[6 * 64];

    (void)state;
    for (uint32_t i = 0; i < 3 * 32; i++) {
        x[i] = (float)i - 40.0f;
        data[0][i * 32 + i % 32] = (float)(i / 32) + 2.0f;
        data[1][i * 32 + i % 32] = -(float)(i / 32) - 2.0f;
    }
    for (uint32_t max_rows = 1; max_rows <= 8; max_rows += 7) {
        bt_backend_t *const be = open_cpu(max_rows);
        bt_weight_t *w[2] = {NULL, NULL};
        tables_t tables;

        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(
                be->ops->weight_pack(be, BT_KTYPE_F32, 96, 32, data[i], &w[i]),
                BT_OK);
        }
        tables_of(&tables, 3, 2);
        be->ops->route(be, &routing, z, 3, &tables.t);
        be->ops->matmul_experts(be, (const bt_weight_t *const *)w, 2, &tables.t,
                                3, x, true, out);
        for (uint32_t r = 0; r < 3; r++) {
            for (uint32_t j = 0; j < 2; j++) {
                const float factor = (float)tables.ids[2 * r + j] + 2.0f;
                const float *const got = out + 64u * tables.slots[2 * r + j];

                for (uint32_t o = 0; o < 32; o++) {
                    assert_true(got[o] == factor * x[32 * r + o]);
                    assert_true(got[32 + o] == -factor * x[32 * r + o]);
                }
            }
        }
        be->ops->weight_free(be, w[0]);
        be->ops->weight_free(be, w[1]);
        bt_backend_close(be);
    }
}

/* Scratch for 1104 rows as tiles takes 1116, padded: 39 of expert 0 (36 + 3),
 * one of each expert behind it, and of the 55 of the last one 48 + 6 and then
 * 1, for 7 are padded to 8. That would be a part more than there are experts.
 * Expert e multiplies its row by e + 1. */
static void slice_has_at_most_as_many_parts_as_there_are_experts(void **state)
{
    enum { E = BT_MAX_EXPERTS, MAX_ROWS = 1104, N = 39 + (E - 2) + 55, D = 32 };
    bt_backend_t *const be = open_cpu(MAX_ROWS);
    float *const data = bt_calloc((size_t)E * D * D, sizeof(float));
    float *const out = bt_calloc((size_t)N * D, sizeof(float));
    uint32_t *const first = bt_calloc(E + 1, sizeof(uint32_t));
    const bt_expert_rows_t rows = {.n_experts = E, .n_used = 1, .first = first};
    bt_weight_t *w = NULL;
    float *const x = bt_calloc((size_t)N * D, sizeof(float));

    (void)state;
    assert_true((data != NULL) && (out != NULL) && (first != NULL));
    assert_non_null(x);
    for (uint32_t i = 0; i < E * D; i++) {
        data[(size_t)i * D + i % D] = (float)(i / D) + 1.0f;
    }
    for (uint32_t i = 0; i < N * D; i++) {
        x[i] = (float)(i % 1000) - 500.0f;
    }
    for (uint32_t e = 1; e < E; e++) {
        first[e] = 38 + e;
    }
    first[E] = N;
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_F32, E * D, D, data, &w),
                     BT_OK);
    be->ops->matmul_experts(be, (const bt_weight_t *const *)&w, 1, &rows, N, x,
                            false, out);
    for (uint32_t e = 0; e < E; e++) {
        for (size_t i = (size_t)first[e] * D; i < (size_t)first[e + 1] * D;
             i++) {
            assert_true(out[i] == ((float)e + 1.0f) * x[i]);
        }
    }
    be->ops->weight_free(be, w);
    bt_backend_close(be);
    bt_free(first);
    bt_free(data);
    bt_free(out);
    bt_free(x);
}

/* In the leaves' order (1 + 2^24) + (-2^24) is 0, as 1 is lost; in the order of
 * scores, or of a plain sum from the last, it would be 1. Experts 0, 1 and 2 of
 * 16 are leaves 0, 1 and 2. */
static void sum_has_the_order_of_the_leaves(void **state)
{
    static const float z[16] = {1, 2, 3};
    static const float x[] = {1.0f, 16777216.0f, -16777216.0f};
    const bt_routing_t routing = {.n_experts = 16, .n_used = 3, .scale = 1.0f};
    bt_backend_t *const be = open_cpu(4);
    tables_t tables;
    float out = NAN;

    (void)state;
    tables_of(&tables, 16, 3);
    be->ops->route(be, &routing, z, 1, &tables.t);
    for (uint32_t j = 0; j < 3; j++) {
        tables.weights[j] = 1.0f;
    }
    be->ops->combine(be, &tables.t, 1, x, 1, &out);
    assert_true(out == 0.0f);
    /* Of 8 experts each second leaf is empty; the same tree. -0 + 0 is 0. */
    tables_of(&tables, 8, 1);
    be->ops->route(be, &(bt_routing_t){.n_experts = 8, .n_used = 1, .scale = 1},
                   z, 1, &tables.t);
    tables.weights[0] = 1.0f;
    be->ops->combine(be, &tables.t, 1, (const float[]){-0.0f}, 1, &out);
    assert_true((out == 0.0f) && !signbit(out));
    bt_backend_close(be);
}

/* Leaves 8 to 11 of 16 have expert 2 of 4: row 0 chooses experts 2 and 3, row 1
 * 0 and 1, row 2 1 and 2. So slots 0 and 1 are rows 0 and 2. Own expert 0 has
 * 5 times the unit as its matrix and a bias of 1. The sum of a row without an
 * own expert is 0. */
static void rank_computes_only_the_experts_of_its_leaves(void **state)
{
    static const float z[] = {0, 0, 8, 9, 9, 8, 0, 0, 0, 9, 8, 0};
    static const uint32_t slots[] = {0,          BT_NO_SLOT, BT_NO_SLOT,
                                     BT_NO_SLOT, BT_NO_SLOT, 1};
    const bt_routing_t routing = {.n_experts = 4, .n_used = 2, .scale = 1.0f};
    bt_backend_t *const be = open_cpu(8);
    float data[32 * 32] = {0};
    float x[3 * 32], bias[32], sums[3 * 32];
    float out[6 * 32];
    bt_weight_t *w = NULL;
    tables_t tables;

    (void)state;
    for (uint32_t i = 0; i < 3 * 32; i++) {
        x[i] = (float)i;
        bias[i % 32] = 1.0f;
        data[i % 32 * 33] = 5.0f;
    }
    for (uint32_t i = 0; i < 6 * 32; i++) {
        out[i] = -7.0f;
    }
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_F32, 32, 32, data, &w),
                     BT_OK);
    tables_of(&tables, 4, 2);
    tables.t.first_leaf = 8;
    tables.t.n_leaves = 4;
    be->ops->route(be, &routing, z, 3, &tables.t);
    assert_memory_equal(tables.slots, slots, sizeof(slots));
    assert_int_equal(tables.first[0], 0);
    assert_int_equal(tables.first[1], 2);
    assert_int_equal(tables.rows[0], 0);
    assert_int_equal(tables.rows[1], 2);
    be->ops->matmul_experts(be, (const bt_weight_t *const *)&w, 1, &tables.t, 3,
                            x, true, out);
    be->ops->add_expert_bias(be, &tables.t, 3, bias, 32, out);
    for (uint32_t i = 0; i < 32; i++) {
        assert_true(out[i] == 5.0f * x[i] + 1.0f);
        assert_true(out[32 + i] == 5.0f * x[64 + i] + 1.0f);
    }
    assert_true(out[64] == -7.0f);
    tables.weights[0] = 2.0f;
    tables.weights[5] = 4.0f;
    be->ops->combine(be, &tables.t, 3, out, 32, sums);
    for (uint32_t i = 0; i < 32; i++) {
        assert_true(sums[i] == 2.0f * out[i]);
        assert_true(sums[32 + i] == 0.0f);
        assert_true(sums[64 + i] == 4.0f * out[32 + i]);
    }
    be->ops->weight_free(be, w);
    bt_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(softmax_weights_are_kept_or_divided_by_their_sum),
        BT_TEST(bias_changes_the_choice_and_no_weight),
        BT_TEST(ties_go_to_the_lowest_number),
        BT_TEST(row_with_a_nan_has_weights_of_nan_and_harms_no_other),
        BT_TEST(slots_are_numbered_by_expert_and_row),
        BT_TEST(product_takes_each_slot_through_its_expert),
        BT_TEST(slice_has_at_most_as_many_parts_as_there_are_experts),
        BT_TEST(sum_has_the_order_of_the_leaves),
        BT_TEST(rank_computes_only_the_experts_of_its_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
