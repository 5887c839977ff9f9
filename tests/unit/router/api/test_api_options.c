/* SPDX-License-Identifier: Apache-2.0 */
/* Options that users of other servers send to OpenAI's routes. */
#include "tests/unit/router/api/api_fixture.h"

static void options_of_vllm_are_parsed(void **state)
{
    bt_api_request_t r = parsed(
        C, "{'prompt': 'x', 'return_token_ids': true, 'stream': true,"
           "'include_stop_str_in_output': true, 'skip_special_tokens': false,"
           "'add_special_tokens': false, 'min_p': 0.25, 'user': 5,"
           "'spaces_between_special_tokens': false}");

    (void)state;
    assert_true(r.return_token_ids);
    assert_true(r.keeps_stop);
    assert_true(r.shows_special);
    assert_true(r.no_bos);
    assert_true(r.sampling.min_p == 0.25f);
    bt_api_request_fini(&r);
    r = parsed(C, "{'prompt': 'x', 'include_stop_str_in_output': false,"
                  "'skip_special_tokens': true, 'add_special_tokens': true,"
                  "'min_p': null}");
    assert_false(r.keeps_stop);
    assert_false(r.shows_special);
    assert_false(r.no_bos);
    assert_true(r.sampling.min_p == 0.0f);
    bt_api_request_fini(&r);
    r = parsed(H, "{'messages': [{'role': 'user', 'content': 'a'},"
                  "{'role': 'assistant', 'content': 'b'}],"
                  "'continue_final_message': true,"
                  "'add_generation_prompt': false}");
    assert_true(r.continues_final);
    assert_true(r.no_generation_prompt);
    bt_api_request_fini(&r);
    refused(H, CHT("'continue_final_message': true"), "continue_final_message",
            "continue_final_message needs a last message of the assistant, "
            "with content");
    refused(H,
            "{'messages': [{'role': 'assistant', 'content': 'b'}],"
            "'continue_final_message': true, 'add_generation_prompt': true}",
            "continue_final_message",
            "continue_final_message and add_generation_prompt cannot both be "
            "true");
    r = parsed(H, CHT("'chat_template_kwargs': {'think': false, 'x': [1.5]},"
                      "'documents': []"));
    assert_string_equal(r.kwargs_json, "{\"think\":false,\"x\":[1.5]}");
    assert_null(r.documents_json);
    bt_api_request_fini(&r);
    r = parsed(H, CHT("'chat_template_kwargs': null,"
                      "'documents': [{'title': 't'}]"));
    assert_null(r.kwargs_json);
    assert_string_equal(r.documents_json, "[{\"title\":\"t\"}]");
    bt_api_request_fini(&r);
    refused(H, CHT("'chat_template_kwargs': []"), "chat_template_kwargs",
            "chat_template_kwargs must be an object, got an array");
    refused(H, CHT("'documents': {}"), "documents",
            "documents must be a list, got an object");
    refused(C, CMP("'min_p': 1.5"), "min_p",
            "min_p must be from 0 to 1, got "
            "1.5");
    refused(C, CMP("'skip_special_tokens': 1"), "skip_special_tokens",
            "skip_special_tokens must be true or false, got 1");
}

static void unknown_fields_are_listed_by_path(void **state)
{
    bt_api_request_t r =
        parsed(C, CMP("'temprature': 1, 'a b,c\\u00e9\\r\\n': {'x': 1}, '': 5,"
                      "'my_own': null, 'stop': null, 'user': 'me'"));
    bt_api_error_t error = {0};
    char text[4096];
    size_t n;

    (void)state;
    assert_string_equal(r.ignored, "temprature, a?b?c????, my_own");
    assert_true(bt_api_refuse_ignored(&r, &error));
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.message,
                        "not known here: temprature (did you mean "
                        "temperature?), a?b?c????, my_own");
    bt_api_request_fini(&r);

    /* As many as there is room for, and no name as long as it likes. */
    n = (size_t)snprintf(text, sizeof(text), "{'prompt': 'x'");
    for (int i = 0; i < 30; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", '%0110d': %d", i,
                              i);
    }
    snprintf(text + n, sizeof(text) - n, "}");
    r = parsed(C, text);
    assert_true(strlen(r.ignored) < BT_API_IGNORED_BYTES);
    assert_int_equal(strlen(r.ignored), 10 * 96 + 10 * 2 + 3);
    assert_string_equal(r.ignored + 10 * 98, "...");
    assert_true(bt_api_refuse_ignored(&r, &error));
    bt_api_request_fini(&r);

    /* Fields of other dialects, and Triton's own. */
    r = parsed(G, GEN("'parameters': {'temprature': 1}, 'pad_id': 2,"
                      "'max_token': 4"));
    assert_string_equal(r.ignored, "parameters.temprature, max_token");
    bt_api_request_fini(&r);
    r = parsed(H, CHT("'top_logprob': 1, 'prompt': 'x'"));
    assert_true(bt_api_refuse_ignored(&r, &error));
    assert_string_equal(error.message,
                        "not known here: top_logprob (did you mean "
                        "top_logprobs?), prompt");
    bt_api_request_fini(&r);
    r = parsed(C, CMP("'user': 'me', 'n': null"));
    assert_false(bt_api_refuse_ignored(&r, &error));
    bt_api_request_fini(&r);
}

static void best_of_is_parsed_and_limited(void **state)
{
    bt_api_request_t r = parsed(C, CMP("'n': 2, 'best_of': 5"));

    (void)state;
    assert_int_equal(r.n, 5);
    assert_int_equal(r.n_returned, 2);
    assert_int_equal(r.wants.what, BT_WANT_LOGPROBS);
    assert_true(r.hides_logprobs);
    bt_api_request_fini(&r);
    r = parsed(C, CMP("'best_of': 2, 'logprobs': 3"));
    assert_int_equal(r.n, 2);
    assert_int_equal(r.n_returned, 1);
    assert_int_equal(r.wants.n_top, 3);
    assert_false(r.hides_logprobs);
    bt_api_request_fini(&r);
    r = parsed(C, CMP("'best_of': 2, 'n': 2, 'stream': true"));
    assert_int_equal(r.n, 2);
    assert_int_equal(r.wants.what, 0);
    bt_api_request_fini(&r);
    refused(C, CMP("'n': 3, 'best_of': 2"), "best_of",
            "best_of 2 is below n 3");
    refused(C, CMP("'best_of': 2, 'stream': true"), "best_of",
            "best_of above n cannot be streamed: which are the best is known "
            "at the end");
    refused(C, "{'prompt': ['a', 'b'], 'best_of': 33}", "best_of",
            "2 prompts times best_of 33 are more than 64 choices");
}

/* A zero character ends no name: the rest would be compared as one. */
static void key_with_zero_character_is_unknown(void **state)
{
    const size_t n = 1u << 16;
    char *body = bt_calloc(n + 64, 1);
    bt_api_request_t r;
    bt_api_error_t error = {0};
    size_t at;

    (void)state;
    assert_non_null(body);
    at = (size_t)snprintf(body, 64, "{\"prompt\":\"x\",\"n\\u0000");
    memset(body + at, 'a', n);
    (void)snprintf(body + at + n, 64 - at, "\":5}");
    assert_int_equal(bt_api_parse(C, body, strlen(body), &r, &error), BT_OK);
    assert_int_equal(r.n, 1);
    assert_int_equal(strncmp(r.ignored, "n?aaa", 5), 0);
    bt_api_request_fini(&r);
    bt_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(options_of_vllm_are_parsed),
        BT_TEST(unknown_fields_are_listed_by_path),
        BT_TEST(best_of_is_parsed_and_limited),
        BT_TEST(key_with_zero_character_is_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
