/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of two tensors, as TensorRT-LLM has them; rows are worked by hand.
 */
#include "inference/adapter/adapter_tensors.h"
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

/* 4 heads of 2 and 2 KV heads, 8 wide, feed-forward 12. */
static bt_hf_modules_t model_of(const char *arch, bt_hf_ffn_t ffn)
{
    bt_hf_modules_t m = {.n_layers = 3,
                         .dim = 8,
                         .n_heads = 4,
                         .n_kv_heads = 2,
                         .head_dim = 2,
                         .ffn_dim = 12,
                         .ffn = ffn};

    snprintf(m.arch, sizeof(m.arch), "%s", arch);
    return m;
}

static char why[300];

/* Rows of lora_config; number i of a row of weights is i, the first n of them.
 */
typedef struct given {
    int32_t config[4][4];
    uint32_t n_rows, n_columns;
    uint32_t n[4]; /* numbers of a row that are not 0 */
    uint64_t width;
} given_t;

static bt_adapter_tensors_t *make(const given_t *g)
{
    const bt_adapter_tensors_t shape = {.type = BT_ADAPTER_F32,
                                        .n_rows = g->n_rows,
                                        .n_columns = g->n_columns,
                                        .width = g->width,
                                        .weights_bytes = g->n_rows * g->width *
                                                         sizeof(float)};
    int32_t *const config =
        calloc((size_t)g->n_rows * g->n_columns, sizeof(*config));
    float *const weights = calloc(g->n_rows * g->width, sizeof(*weights));
    bt_adapter_tensors_t *t = NULL;

    assert_true((config != NULL) && (weights != NULL));
    for (uint32_t r = 0; r < g->n_rows; r++) {
        memcpy(config + (size_t)r * g->n_columns, g->config[r],
               g->n_columns * sizeof(*config));
        for (uint32_t i = 0; i < g->n[r]; i++) {
            weights[r * g->width + i] = (float)i;
        }
    }
    assert_int_equal(bt_adapter_tensors_create(&shape, config, weights, &t),
                     BT_OK);
    free(config);
    free(weights);
    return t;
}

static bt_status_t open_given(const given_t *g, const bt_hf_modules_t *model,
                              bt_adapter_t **adapter_p)
{
    bt_adapter_tensors_t *const t = make(g);
    const bt_status_t status =
        bt_adapter_open_tensors(t, model, 4, why, sizeof(why), adapter_p);

    bt_free(t);
    return status;
}

static float a_of(const bt_adapter_part_t *part, uint32_t i)
{
    return ((const float *)part->a)[i];
}

/* First number of row r of B. */
static float b_of(const bt_adapter_part_t *part, uint32_t r)
{
    return ((const float *)part->b)[(size_t)r * part->rank];
}

static void modules_have_the_numbers_of_tensorrt_llm(void **state)
{
    static const struct {
        int32_t id;
        bt_adapter_product_t product;
        uint32_t n_in, n_out;
    } want[] = {{1, BT_ADAPTER_Q, 8, 8},     {2, BT_ADAPTER_K, 8, 4},
                {3, BT_ADAPTER_V, 8, 4},     {4, BT_ADAPTER_OUTPUT, 8, 8},
                {5, BT_ADAPTER_GATE, 8, 12}, {6, BT_ADAPTER_DOWN, 12, 8},
                {7, BT_ADAPTER_UP, 8, 12}};
    const bt_hf_modules_t model = model_of("qwen2", BT_HF_FFN_GATED);

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(want); i++) {
        const given_t g = {.config = {{want[i].id, 2, 3}},
                           .n_rows = 1,
                           .n_columns = 3,
                           .n = {3 * (want[i].n_in + want[i].n_out)},
                           .width = 64};
        bt_adapter_t *adapter = NULL;

        assert_int_equal(open_given(&g, &model, &adapter), BT_OK);
        assert_int_equal(adapter->n_parts, 1);
        assert_int_equal(adapter->max_rank, 3);
        assert_int_equal(adapter->parts[0].layer, 2);
        assert_int_equal(adapter->parts[0].product, want[i].product);
        assert_int_equal(adapter->parts[0].n_in, want[i].n_in);
        assert_int_equal(adapter->parts[0].n_out, want[i].n_out);
        assert_true(adapter->parts[0].scale == 1.0f);
        assert_true(a_of(&adapter->parts[0], 5) == 5.0f);
        for (uint32_t r = 0; r < want[i].n_out; r++) {
            assert_true(b_of(&adapter->parts[0], r) ==
                        (float)(3 * want[i].n_in + 3 * r));
        }
        bt_adapter_free(adapter);
    }
}

/* The model without a gate has one matrix before the last. */
static void first_matrix_of_a_plain_network_is_up(void **state)
{
    const bt_hf_modules_t model = model_of("gpt2", BT_HF_FFN_PLAIN);
    given_t g = {.config = {{5, 0, 1}},
                 .n_rows = 1,
                 .n_columns = 3,
                 .n = {20},
                 .width = 20};
    bt_adapter_t *adapter = NULL;

    (void)state;
    assert_int_equal(open_given(&g, &model, &adapter), BT_OK);
    assert_int_equal(adapter->parts[0].product, BT_ADAPTER_UP);
    bt_adapter_free(adapter);
    g.config[0][0] = 7;
    assert_int_equal(open_given(&g, &model, &adapter), BT_ERR_UNSUPPORTED);
    assert_string_equal(why, "lora module mlp_gate not enabled for this model");
}

/* Llama's GGUF interleaves the halves of a head: of 2 rows, nothing changes; of
 * heads of 4, rows 0 2 1 3. */
static void rows_of_query_and_key_have_the_order_of_gguf(void **state)
{
    static const uint32_t turned[] = {0, 2, 1, 3};
    bt_hf_modules_t model = model_of("llama", BT_HF_FFN_GATED);
    const given_t g = {.config = {{0, 1, 1}},
                       .n_rows = 1,
                       .n_columns = 3,
                       .n = {8 + 16},
                       .width = 24};
    bt_adapter_t *adapter = NULL;

    (void)state;
    model.n_heads = 2;
    model.n_kv_heads = 1;
    model.head_dim = 4;
    /* attn_qkv: A of 8, then 8 rows of q, 4 of k, 4 of v. */
    assert_int_equal(open_given(&g, &model, &adapter), BT_OK);
    assert_int_equal(adapter->n_parts, 3);
    for (uint32_t r = 0; r < 8; r++) {
        assert_true(b_of(&adapter->parts[0], r) ==
                    (float)(8 + r / 4 * 4 + turned[r % 4]));
    }
    for (uint32_t r = 0; r < 4; r++) {
        assert_true(b_of(&adapter->parts[1], r) == (float)(16 + turned[r]));
        assert_true(b_of(&adapter->parts[2], r) == (float)(20 + r));
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(adapter->parts[i].product, BT_ADAPTER_Q + i);
        assert_true(a_of(&adapter->parts[i], 7) == 7.0f);
    }
    bt_adapter_free(adapter);
}

/* Rows of up stand before those of gate: by 18, and by 5 where the model has
 * both in one matrix. */
static void halves_of_gate_and_up_are_exchanged(void **state)
{
    static const struct {
        int32_t id;
        bt_hf_ffn_t ffn;
    } cases[] = {
        {18, BT_HF_FFN_GATED}, {18, BT_HF_FFN_FUSED}, {5, BT_HF_FFN_FUSED}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const bt_hf_modules_t model = model_of("phi3", cases[i].ffn);
        const given_t g = {.config = {{cases[i].id, 0, 1}},
                           .n_rows = 1,
                           .n_columns = 3,
                           .n = {8 + 24},
                           .width = 40};
        bt_adapter_t *adapter = NULL;

        assert_int_equal(open_given(&g, &model, &adapter), BT_OK);
        assert_int_equal(adapter->n_parts, 2);
        assert_int_equal(adapter->parts[0].product, BT_ADAPTER_GATE);
        assert_int_equal(adapter->parts[1].product, BT_ADAPTER_UP);
        assert_true(b_of(&adapter->parts[0], 0) == (float)(8 + 12));
        assert_true(b_of(&adapter->parts[0], 11) == (float)(8 + 23));
        assert_true(b_of(&adapter->parts[1], 0) == 8.0f);
        bt_adapter_free(adapter);
    }
}

static void hostile_rows_are_refused(void **state)
{
    static const struct {
        int32_t row[4];
        bt_status_t status;
        const char *part;
    } cases[] = {
        {{26, 0, 1, 0}, BT_ERR_UNSUPPORTED, "26, which no module has"},
        {{-1, 0, 1, 0}, BT_ERR_UNSUPPORTED, "-1, which no module has"},
        {{INT32_MAX, 0, 1, 0}, BT_ERR_UNSUPPORTED, "which no module has"},
        {{INT32_MIN, 0, 1, 0}, BT_ERR_UNSUPPORTED, "which no module has"},
        {{13, 0, 1, 0}, BT_ERR_UNSUPPORTED, "moe_h_to_4h not enabled"},
        {{25, 0, 1, 0}, BT_ERR_UNSUPPORTED, "moe_latent_fc2 not enabled"},
        {{1, 3, 1, 0}, BT_ERR_MISMATCH, "layer 3, the model has 3 layers"},
        {{1, -1, 1, 0}, BT_ERR_MISMATCH, "layer -1"},
        {{1, INT32_MIN, 1, 0}, BT_ERR_MISMATCH, "numModelLayers)"},
        {{1, 0, 0, 0}, BT_ERR_BAD_FILE, "Expected adapterSize to be > 0"},
        {{1, 0, INT32_MIN, 0}, BT_ERR_BAD_FILE, "adapterSize to be > 0"},
        {{1, 0, 5, 0},
         BT_ERR_UNSUPPORTED,
         "Invalid low_rank (5). low_rank "
         "must be smaller than mMaxLowRank "
         "(4)"},
        {{1, 0, INT32_MAX, 0}, BT_ERR_UNSUPPORTED, "Invalid low_rank"},
        {{1, 0, 4, 0},
         BT_ERR_BAD_FILE,
         "to few values for attn_q: 48 a row, "
         "and rank 4 needs 64"},
        {{2, 0, 3, 0},
         BT_ERR_BAD_FILE,
         "behind both matrices of attn_k with "
         "rank 3"},
        {{1, 0, 3, 1}, BT_ERR_UNSUPPORTED, "is of DoRA"},
        {{1, 0, 3, -1}, BT_ERR_UNSUPPORTED, "is of DoRA"},
    };
    const bt_hf_modules_t model = model_of("llama", BT_HF_FFN_GATED);
    bt_adapter_t *adapter = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        given_t g = {.n_rows = 1, .n_columns = 4, .n = {48}, .width = 48};

        memcpy(g.config[0], cases[i].row, sizeof(g.config[0]));
        assert_int_equal(open_given(&g, &model, &adapter), cases[i].status);
        if (strstr(why, cases[i].part) == NULL) {
            fail_msg("%s is not in: %s", cases[i].part, why);
        }
        assert_null(adapter);
    }
}

static void product_that_comes_twice_is_refused(void **state)
{
    const bt_hf_modules_t model = model_of("qwen2", BT_HF_FFN_GATED);
    const given_t g = {.config = {{0, 1, 1}, {3, 1, 1}},
                       .n_rows = 2,
                       .n_columns = 3,
                       .n = {24, 12},
                       .width = 24};
    bt_adapter_t *adapter = NULL;

    (void)state;
    assert_int_equal(open_given(&g, &model, &adapter), BT_ERR_BAD_FILE);
    assert_string_equal(why, "it has attn_v of layer 1 twice");
}

static void number_that_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    static const size_t at[] = {0, 15}; /* of A and of B */
    const bt_hf_modules_t model = model_of("qwen2", BT_HF_FFN_GATED);
    const int32_t config[3] = {1, 0, 1};
    const bt_adapter_tensors_t shape = {.type = BT_ADAPTER_F32,
                                        .n_rows = 1,
                                        .n_columns = 3,
                                        .width = 16,
                                        .weights_bytes = 64};
    bt_adapter_t *adapter = NULL;

    (void)state;
    for (size_t i = 0; i < 2 * BT_ARRAY_LEN(bad); i++) {
        float weights[16] = {1.0f};
        bt_adapter_tensors_t *t = NULL;

        weights[at[i % 2]] = bad[i / 2];
        assert_int_equal(bt_adapter_tensors_create(&shape, config, weights, &t),
                         BT_OK);
        assert_int_equal(
            bt_adapter_open_tensors(t, &model, 4, why, sizeof(why), &adapter),
            BT_ERR_BAD_FILE);
        assert_string_equal(why, "attn_q has numbers that are not finite");
        bt_free(t);
    }
}

static bt_adapter_t *sample(const bt_hf_modules_t *model)
{
    const given_t g = {.config = {{1, 1, 2}, {6, 0, 1}},
                       .n_rows = 2,
                       .n_columns = 3,
                       .n = {32, 20},
                       .width = 32};
    bt_adapter_t *adapter = NULL;

    assert_int_equal(open_given(&g, model, &adapter), BT_OK);
    return adapter;
}

static void packed_adapter_is_the_same_elsewhere(void **state)
{
    const bt_hf_modules_t model = model_of("llama", BT_HF_FFN_GATED);
    bt_adapter_t *const adapter = sample(&model);
    /* Two parts of seven numbers, 20 and 2 x 16 numbers. */
    const size_t bytes = 4 + 2 * 28 + (20 + 32) * 4;
    uint8_t *const data = malloc(bytes);
    bt_adapter_t *there = NULL;

    (void)state;
    assert_non_null(data);
    assert_int_equal(bt_adapter_packed_bytes(adapter), bytes);
    bt_adapter_pack(adapter, data);
    assert_int_equal(
        bt_adapter_unpack(data, bytes, &model, why, sizeof(why), &there),
        BT_OK);
    assert_true(bt_hash128_equal(there->digest, adapter->digest));
    assert_int_equal(there->n_parts, 2);
    assert_int_equal(there->parts[0].product, BT_ADAPTER_DOWN);
    assert_int_equal(there->bytes, adapter->bytes);
    bt_adapter_free(there);
    bt_adapter_free(adapter);
    free(data);
}

/* Each length, and each byte changed: refused, or another adapter, without a
 * read beyond the data (AddressSanitizer). */
static void damaged_packed_adapter_harms_nobody(void **state)
{
    const bt_hf_modules_t model = model_of("llama", BT_HF_FFN_GATED);
    bt_adapter_t *const adapter = sample(&model);
    const size_t bytes = bt_adapter_packed_bytes(adapter);
    uint8_t *const whole = malloc(bytes);
    bt_adapter_t *there = NULL;

    (void)state;
    assert_non_null(whole);
    bt_adapter_pack(adapter, whole);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *const cut = malloc((n > 0) ? n : 1);

        assert_non_null(cut);
        memcpy(cut, whole, n);
        assert_int_equal(
            bt_adapter_unpack(cut, n, &model, why, sizeof(why), &there),
            BT_ERR_BAD_FILE);
        free(cut);
    }
    for (size_t i = 0; i < 8 * bytes; i++) {
        whole[i / 8] = (uint8_t)(whole[i / 8] ^ (1u << (i % 8)));
        if (bt_adapter_unpack(whole, bytes, &model, why, sizeof(why), &there) ==
            BT_OK) {
            assert_false(bt_hash128_equal(there->digest, adapter->digest));
            bt_adapter_free(there);
        }
        whole[i / 8] = (uint8_t)(whole[i / 8] ^ (1u << (i % 8)));
    }
    bt_adapter_free(adapter);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(modules_have_the_numbers_of_tensorrt_llm),
        BT_TEST(first_matrix_of_a_plain_network_is_up),
        BT_TEST(rows_of_query_and_key_have_the_order_of_gguf),
        BT_TEST(halves_of_gate_and_up_are_exchanged),
        BT_TEST(hostile_rows_are_refused),
        BT_TEST(product_that_comes_twice_is_refused),
        BT_TEST(number_that_is_not_finite_is_refused),
        BT_TEST(packed_adapter_is_the_same_elsewhere),
        BT_TEST(damaged_packed_adapter_harms_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
