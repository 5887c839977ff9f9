/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt_rows.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/unit/inference/model/rig.h"

/* Bits by IEEE 754 binary16 and bfloat16. */
static void rows_of_every_type_become_floats(void **state)
{
    static const float want[4] = {1.0f, -2.5f, 0.0f, 65504.0f};
    static const uint16_t f16[4] = {0x3c00, 0xc100, 0x0000, 0x7bff};
    static const uint16_t bf16[4] = {0x3f80, 0xc020, 0x0000, 0x4780};
    const bt_table_rows_t tables[] = {
        {(const uint8_t *)want, 16, BT_TABLE_F32, 2},
        {(const uint8_t *)f16, 8, BT_TABLE_F16, 2},
        {(const uint8_t *)bf16, 8, BT_TABLE_BF16, 2},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(tables); i++) {
        float *rows = NULL;

        assert_int_equal(bt_prompt_rows_copy(&tables[i], &rows), BT_OK);
        assert_memory_equal(rows, want, 3 * sizeof(*want));
        /* 65504 rounds up in bfloat16's 8 bits. */
        assert_true(rows[3] == ((i == 2) ? 65536.0f : want[3]));
        bt_free(rows);
    }
}

static void table_that_the_model_cannot_compute_is_named(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *gguf = open_tiny(&tiny);
    bt_backend_t *be = open_backend(1);
    bt_model_t *model = NULL;
    float *data;
    bt_msg_request_t msg = {0};
    uint32_t dim;

    (void)state;
    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        BT_OK);
    bt_gguf_close(gguf);
    dim = bt_model_hparams(model)->dim;
    data = bt_calloc(2 * (size_t)dim, sizeof(*data));
    assert_non_null(data);
    msg.table =
        (bt_table_rows_t){(const uint8_t *)data,
                          2 * dim * (uint32_t)sizeof(*data), BT_TABLE_F32, 2};
    assert_null(bt_prompt_rows_refusal(model, &msg));
    msg.wants.what = BT_WANT_PROMPT_LOGPROBS;
    assert_non_null(strstr(bt_prompt_rows_refusal(model, &msg), "log-probs"));
    msg.wants.what = BT_WANT_PROMPT_LOGITS;
    assert_null(bt_prompt_rows_refusal(model, &msg));
    data[2 * dim - 1] = INFINITY;
    assert_non_null(strstr(bt_prompt_rows_refusal(model, &msg), "finite"));
    data[2 * dim - 1] = 0.0f;
    msg.table.n = 1; /* as wide as two */
    assert_non_null(strstr(bt_prompt_rows_refusal(model, &msg), "wide"));
    bt_free(data);
    bt_model_destroy(model);
    bt_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rows_of_every_type_become_floats),
        BT_TEST(table_that_the_model_cannot_compute_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
