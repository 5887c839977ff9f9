/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs and logits of rows as tensors: what is lent, what is copied, what
 * there is no room for. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/outputs.h"

#define N_VOCAB 3

/* A generation of n_prompt and n_output tokens: logits 100 row + id, those of
 * the answer negative; log-probs -1, -2 … */
static bt_gen_rows_t *make_rows(uint32_t n_prompt, uint32_t n_output)
{
    const bt_wants_t wants = {.what = BT_WANT_LOGPROBS | BT_WANT_ANY_LOGITS};
    uint32_t *tokens = bt_calloc(n_prompt, sizeof(*tokens));
    bt_gen_rows_t *rows = NULL;
    bt_prompt_t *prompt = NULL;

    assert_int_equal(bt_prompt_create(tokens, n_prompt, &prompt), BT_OK);
    assert_int_equal(
        bt_gen_rows_create(&wants, prompt, n_output, N_VOCAB, &rows), BT_OK);
    bt_prompt_unref(prompt);
    for (uint32_t i = 0; i < n_prompt + n_output; i++) {
        const bool front = i < n_prompt;
        const uint32_t row = front ? i : i - n_prompt;
        const bt_score_t score = {.logprob = -(double)row - 1};
        float floats[N_VOCAB];
        bt_msg_rows_t msg = {.from = row,
                             .data = (const uint8_t *)floats,
                             .data_bytes = sizeof(floats)};

        msg.kind = front ? BT_ROWS_PROMPT_LOGITS : BT_ROWS_LOGITS;
        for (uint32_t k = 0; k < N_VOCAB; k++) {
            floats[k] = (front ? 1.0f : -1.0f) * (float)(100 * row + k);
        }
        assert_int_equal(bt_gen_rows_take(rows, &msg), BT_OK);
        if (!front) {
            assert_int_equal(bt_gen_rows_score(rows, row, &score), BT_OK);
            bt_gen_rows_append(rows, row, 7);
        }
    }
    return rows;
}

static bt_infer_result_t result_of(uint32_t row, bt_gen_rows_t *rows)
{
    return (bt_infer_result_t){.row = row,
                               .text = "",
                               .rows = rows,
                               .to = (rows != NULL) ? rows->scores.n : 0,
                               .cum_logprob = -1.5,
                               .ends = true};
}

static bt_infer_shape_t shape_of(const bt_infer_request_t *request, size_t n)
{
    return (bt_infer_shape_t){.spec = bt_model_spec("ensemble"),
                              .request = request,
                              .n_batch = n,
                              .wants = BT_WANT_LOGPROBS | BT_WANT_ANY_LOGITS,
                              .max_logits = 1u << 20};
}

static const bt_tensor_t *find(const bt_tensor_t *outputs, size_t n,
                               const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(outputs[i].name, name) == 0) {
            return &outputs[i];
        }
    }
    return NULL;
}

static void check(const bt_tensor_t *tensor, const uint64_t *dims,
                  uint32_t n_dims, const float *floats, size_t n)
{
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, BT_DTYPE_FP32);
    assert_int_equal(tensor->n_dims, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        assert_int_equal(tensor->dims[i], dims[i]);
    }
    assert_int_equal(tensor->bytes, n * sizeof(float));
    assert_memory_equal(tensor->data, floats, n * sizeof(float));
}
#define CHECK(tensor, dims, floats)                           \
    check(tensor, dims, (uint32_t)BT_ARRAY_LEN(dims), floats, \
          BT_ARRAY_LEN(floats))

static void free_all(bt_tensor_t *outputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bt_tensor_fini(&outputs[i]);
    }
}

static void logits_of_single_row_are_not_copied(void **state)
{
    static const uint64_t context_dims[] = {1, 2, N_VOCAB};
    static const uint64_t dims[] = {1, 1, 1, N_VOCAB};
    static const float context[] = {0, 1, 2, 100, 101, 102};
    static const float generation[] = {-0.0f, -1, -2};
    const bt_infer_request_t request = {0};
    const bt_infer_shape_t shape = shape_of(&request, 1);
    bt_gen_rows_t *rows = make_rows(2, 1);
    const bt_infer_result_t result = result_of(0, rows);
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n = 0;

    (void)state;
    assert_int_equal(bt_infer_outputs(&shape, &result, 1, outputs, &n), BT_OK);
    assert_ptr_equal(find(outputs, n, "context_logits")->data,
                     rows->context_logits);
    bt_gen_rows_unref(rows); /* the tensors have their parts of it */
    CHECK(find(outputs, n, "context_logits"), context_dims, context);
    CHECK(find(outputs, n, "generation_logits"), dims, generation);
    assert_null(find(outputs, n, "generation_logtis")); /* where it is named */
    free_all(outputs, n);
}

static void shorter_rows_are_padded_with_zeros(void **state)
{
    static const uint64_t cum_dims[] = {3, 1};
    static const uint64_t prob_dims[] = {3, 1, 2};
    static const uint64_t context_dims[] = {3, 2, N_VOCAB};
    static const uint64_t dims[] = {3, 1, 2, N_VOCAB};
    static const float cum[] = {-1.5f, -1.5f, -1.5f};
    static const float probs[] = {-1, 0, -1, -2, 0, 0};
    static const float context[] = {0, 1, 2, 100, 101, 102, 0, 1, 2,
                                    0, 0, 0, 0,   0,   0,   0, 0, 0};
    static const float generation[] = {-0.0f, -1, -2, 0,    0,    0,
                                       -0.0f, -1, -2, -100, -101, -102,
                                       0,     0,  0,  0,    0,    0};
    bt_infer_request_t request = {0};
    bt_infer_wanted_t alias = {.name = "generation_logtis"};
    const bt_infer_shape_t shape = shape_of(&request, 3);
    bt_gen_rows_t *a = make_rows(2, 1);
    bt_gen_rows_t *b = make_rows(1, 2);
    /* The third was stopped before it ran. */
    const bt_infer_result_t results[] = {result_of(0, a), result_of(1, b),
                                         result_of(2, NULL)};
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n = 0;

    (void)state;
    assert_int_equal(bt_infer_outputs(&shape, results, 3, outputs, &n), BT_OK);
    CHECK(find(outputs, n, "cum_log_probs"), cum_dims, cum);
    CHECK(find(outputs, n, "output_log_probs"), prob_dims, probs);
    CHECK(find(outputs, n, "context_logits"), context_dims, context);
    CHECK(find(outputs, n, "generation_logits"), dims, generation);
    free_all(outputs, n);
    request.wanted = &alias;
    request.n_wanted = 1;
    assert_int_equal(bt_infer_outputs(&shape, results, 3, outputs, &n), BT_OK);
    assert_int_equal(n, 1);
    CHECK(find(outputs, n, "generation_logtis"), dims, generation);
    free_all(outputs, n);
    bt_gen_rows_unref(a);
    bt_gen_rows_unref(b);
}

static void beams_are_second_dimension_except_of_texts(void **state)
{
    static const uint64_t cum_dims[] = {2, 2}, prob_dims[] = {2, 2, 2};
    static const float cum[] = {-1, -2, -3, -4};
    static const float probs[] = {-1, -2, -1, 0, -1, 0, -1, -2};
    const bt_infer_request_t request = {0};
    bt_infer_shape_t shape = shape_of(&request, 2);
    bt_gen_rows_t *rows[4];
    bt_infer_result_t results[4];
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n = 0;

    (void)state;
    shape.n_beams = 2;
    shape.wants = BT_WANT_LOGPROBS;
    for (uint32_t i = 0; i < 4; i++) {
        rows[i] = make_rows(1, ((i == 0) || (i == 3)) ? 2 : 1);
        results[i] = result_of(i / 2, rows[i]);
        results[i].cum_logprob = -(double)i - 1;
        results[i].text = (i < 2) ? "a" : "bc";
        results[i].text_bytes = (i < 2) ? 1 : 2;
    }
    assert_int_equal(bt_infer_outputs(&shape, results, 4, outputs, &n), BT_OK);
    CHECK(find(outputs, n, "cum_log_probs"), cum_dims, cum);
    CHECK(find(outputs, n, "output_log_probs"), prob_dims, probs);
    assert_int_equal(find(outputs, n, "text_output")->n_dims, 1);
    assert_int_equal(find(outputs, n, "text_output")->dims[0], 4);
    free_all(outputs, n);
    for (uint32_t i = 0; i < 4; i++) {
        bt_gen_rows_unref(rows[i]);
    }
}

static void piece_has_own_logprobs_without_logits(void **state)
{
    static const uint64_t dims[] = {1, 1, 1};
    static const float probs[] = {-2};
    const bt_infer_request_t request = {0};
    const bt_infer_shape_t shape = shape_of(&request, 1);
    bt_gen_rows_t *rows = make_rows(1, 3);
    bt_infer_result_t piece = result_of(0, rows);
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n = 0;

    (void)state;
    piece.from = 1;
    piece.to = 2;
    piece.ends = false;
    assert_int_equal(bt_infer_outputs(&shape, &piece, 1, outputs, &n), BT_OK);
    CHECK(find(outputs, n, "output_log_probs"), dims, probs);
    assert_null(find(outputs, n, "context_logits"));
    assert_null(find(outputs, n, "generation_logits"));
    free_all(outputs, n);
    bt_gen_rows_unref(rows);
}

/* Two rows of two and one more: 2 * (2 + 1) * N_VOCAB floats with what fills
 * up. */
static void logits_over_limit_are_not_copied(void **state)
{
    const bt_infer_request_t request = {0};
    bt_infer_shape_t shape = shape_of(&request, 2);
    bt_gen_rows_t *a = make_rows(2, 1);
    bt_gen_rows_t *b = make_rows(1, 1);
    const bt_infer_result_t results[] = {result_of(0, a), result_of(1, b)};
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n = 0;

    (void)state;
    shape.max_logits = 2 * 3 * N_VOCAB * sizeof(float) - 1;
    assert_int_equal(bt_infer_outputs(&shape, results, 2, outputs, &n),
                     BT_ERR_TOO_LARGE);
    shape.max_logits++;
    for (int nth = 1;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_infer_outputs(&shape, results, 2, outputs, &n);
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            assert_true(nth > 4);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    free_all(outputs, n);
    bt_gen_rows_unref(a);
    bt_gen_rows_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_single_row_are_not_copied),
        cmocka_unit_test(shorter_rows_are_padded_with_zeros),
        cmocka_unit_test(beams_are_second_dimension_except_of_texts),
        cmocka_unit_test(piece_has_own_logprobs_without_logits),
        cmocka_unit_test(logits_over_limit_are_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
