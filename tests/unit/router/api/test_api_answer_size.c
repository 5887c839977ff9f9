/* SPDX-License-Identifier: Apache-2.0 */
/* How long an answer is; expected values are worked out by hand. */
#include <string.h>

#include "router/api/api.h"
#include "tests/support/testsupport.h"

static void texts_and_calls_count_their_bytes(void **state)
{
    char name[] = "get";
    bt_tool_call_t call = {.name = name};
    const uint32_t ids[3] = {1, 2, 3};
    const bt_api_choice_t choices[2] = {
        {.text = "abcde", .text_bytes = 5, .thought = "xy", .thought_bytes = 2},
        {.text = "",
         .token_ids = ids,
         .n_token_ids = 3,
         .calls = &call,
         .n_calls = 1},
    };
    const bt_api_answer_t answer = {.metadata = "{}", .tools = "[1]"};

    (void)state;
    /* 2 + 3 of the answer; 5 + 2; 3 ids of 4, and a name of 3. */
    assert_int_equal(bt_api_answer_bytes(&answer, choices, 2), 27);
    assert_int_equal(bt_api_answer_bytes(&answer, choices, 1), 12);
    assert_int_equal(bt_api_answer_bytes(&answer, choices, 0), 5);
}

/* A number takes about 24 bytes. */
static void logits_count_as_numbers(void **state)
{
    float logits[1] = {0};
    bt_gen_rows_t rows = {.n_prompt = 3, .n_output = 2, .n_vocab = 10};
    const bt_api_choice_t choice = {.rows = &rows};
    const bt_api_answer_t answer = {0};

    (void)state;
    assert_int_equal(bt_api_answer_bytes(&answer, &choice, 1), 0);
    rows.context_logits = logits;
    assert_int_equal(bt_api_answer_bytes(&answer, &choice, 1), 24 * 30);
    rows.generation_logits = logits;
    assert_int_equal(bt_api_answer_bytes(&answer, &choice, 1), 24 * 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(texts_and_calls_count_their_bytes),
        BT_TEST(logits_count_as_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
