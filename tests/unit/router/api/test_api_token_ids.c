/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of vLLM's /inference/v1/generate, and prompt_logprobs of OpenAI's
 * dialects. Source: vLLM, GenerateRequest and SamplingParams. */
#include "tests/unit/router/api/api_fixture.h"

#define T               BT_API_GENERATE_TOKENS
#define IDS(options)    "{'token_ids': [5, 6, 7], " options "}"
#define PARAMS(options) IDS("'sampling_params': {" options "}")

static void ids_and_sampling_params_are_read(void **state)
{
    bt_api_request_t r = parsed(
        T, "{'token_ids': [5, 3e0, 0], 'model': 'm', 'request_id': 'mine', "
           "'stream': true, 'stream_options': {'include_usage': true}, "
           "'cache_salt': 's', 'priority': -3, 'features': null, "
           "'kv_transfer_params': null, 'assistant_tokens_mask': [1], "
           "'sampling_params': {'n': 2, 'max_tokens': 9, 'min_tokens': 4, "
           "'temperature': 0.5, 'top_p': 0.25, 'top_k': 7, 'min_p': 0.125, "
           "'seed': 11, 'presence_penalty': 1, 'frequency_penalty': -1, "
           "'repetition_penalty': 2, 'stop': ['a', 'b'], "
           "'stop_token_ids': [1, 2], 'ignore_eos': true, 'logprobs': 3, "
           "'logit_bias': {'5': 1.5}, 'bad_words': ['x'], 'detokenize': "
           "false, 'skip_special_tokens': false, "
           "'include_stop_str_in_output': true, 'flat_logprobs': true, "
           "'allowed_token_ids': [5, 6]}}");

    (void)state;
    assert_int_equal(r.dialect, BT_API_GENERATE_TOKENS);
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompts[0].n_ids, 3);
    assert_memory_equal(r.prompts[0].ids, ((const uint32_t[]){5, 3, 0}), 12);
    assert_string_equal(r.model, "m");
    assert_string_equal(r.id, "mine");
    assert_string_equal(r.cache_salt, "s");
    assert_int_equal(r.priority.integer, -3);
    assert_true(r.stream && r.include_usage && r.return_token_ids);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.sampling.min_tokens, 4);
    assert_float_equal(r.sampling.temperature, 0.5f, 0);
    assert_float_equal(r.sampling.top_p, 0.25f, 0);
    assert_int_equal(r.sampling.top_k, 7);
    assert_float_equal(r.sampling.min_p, 0.125f, 0);
    assert_int_equal(r.sampling.seed, 11);
    assert_float_equal(r.sampling.presence_penalty, 1.0f, 0);
    assert_float_equal(r.sampling.frequency_penalty, -1.0f, 0);
    assert_float_equal(r.sampling.repetition_penalty, 2.0f, 0);
    assert_int_equal(r.n_stops, 2);
    assert_int_equal(r.sampling.n_end_ids, 2);
    assert_true(r.ignore_eos && r.shows_special && r.keeps_stop);
    assert_int_equal(r.wants.what, BT_WANT_LOGPROBS);
    assert_int_equal(r.wants.n_top, 3);
    assert_int_equal(r.n_bad_words, 1);
    assert_int_equal(r.n_allowed_ids, 2);
    assert_string_equal(r.ignored, "");
    bt_api_request_fini(&r);
    r = parsed(T, IDS("'sampling_params': null"));
    assert_false(r.has_max_tokens || r.has_seed || r.stream);
    assert_float_equal(r.sampling.temperature, 1.0f, 0);
    bt_api_request_fini(&r);
}

/* Each of two levels has its own fields. */
static void unknown_fields_are_named_with_their_place(void **state)
{
    bt_api_request_t r =
        parsed(T, IDS("'temperature': 1, 'sampling_params': {'temprature': 1, "
                      "'stream': true, 'max_tokens': 1}, 'prompt': 'x'"));
    bt_api_error_t error;

    (void)state;
    assert_string_equal(r.ignored, "temperature, sampling_params.temprature, "
                                   "sampling_params.stream, prompt");
    assert_false(r.stream);
    assert_true(bt_api_refuse_ignored(&r, &error));
    assert_non_null(strstr(error.message, "sampling_params.temprature (did "
                                          "you mean temperature?)"));
    bt_api_request_fini(&r);
}

static void bad_bodies_are_refused_by_name(void **state)
{
    (void)state;
    refused(T, "{}", "token_ids", "token_ids is missing");
    refused(T, "{'token_ids': null}", "token_ids", "token_ids is missing");
    refused(T, "{'token_ids': []}", "token_ids", "token_ids is empty");
    refused(T, "{'token_ids': 'ab'}", "token_ids",
            "token_ids must be a list of token ids, got \"ab\"");
    refused(T, "{'token_ids': [1, -1]}", "token_ids",
            "token_ids: token ids must be integers from 0 to 2147483647, got "
            "-1");
    refused(T, "{'token_ids': [[1]]}", "token_ids",
            "token_ids: token ids must be integers from 0 to 2147483647, got "
            "an array");
    refused(T, IDS("'sampling_params': 5"), "sampling_params",
            "sampling_params must be an object, got 5");
    refused(T, IDS("'features': {'mm_hashes': {}}"), "features",
            "features is not supported yet, got an object");
    refused(T, IDS("'kv_transfer_params': {'a': 1}"), "kv_transfer_params",
            "kv_transfer_params is not supported yet, got an object");
    refused(T, PARAMS("'extra_args': {'a': 1}"), "extra_args",
            "extra_args is not supported yet, got an object");
    refused(T, PARAMS("'logprob_token_ids': [1]"), "logprob_token_ids",
            "logprob_token_ids is not supported yet, got an array");
    refused(T, PARAMS("'max_tokens': 0"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got 0");
    refused(T, PARAMS("'min_tokens': 3, 'max_tokens': 2"), "min_tokens",
            "min_tokens 3 is above max_tokens 2");
    refused(T, PARAMS("'n': 65"), "n", "n must be from 1 to 64, got 65");
}

static void prompt_logprobs_are_wanted_beside_others(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body;
        uint32_t what, n_top, n_prompt_top, n_hidden;
        bool hides;
    } cases[] = {
        {T, PARAMS("'prompt_logprobs': 0"), BT_WANT_PROMPT_LOGPROBS, 0, 0, 0,
         true},
        {T, PARAMS("'prompt_logprobs': 5, 'logprobs': 2"),
         BT_WANT_PROMPT_LOGPROBS | BT_WANT_LOGPROBS, 5, 5, 3, false},
        {C, CMP("'prompt_logprobs': 2, 'logprobs': 5"),
         BT_WANT_PROMPT_LOGPROBS | BT_WANT_LOGPROBS, 5, 2, 0, false},
        {C, CMP("'prompt_logprobs': 4, 'echo': true"), BT_WANT_PROMPT_LOGPROBS,
         4, 4, 4, true},
        {C, CMP("'prompt_logprobs': 1, 'best_of': 2"),
         BT_WANT_PROMPT_LOGPROBS | BT_WANT_LOGPROBS, 1, 1, 1, true},
        {H, CHT("'prompt_logprobs': 1, 'logprobs': true"),
         BT_WANT_PROMPT_LOGPROBS | BT_WANT_LOGPROBS, 1, 1, 1, false},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_request_t r = parsed(cases[i].dialect, cases[i].body);

        assert_true(r.has_prompt_logprobs);
        assert_int_equal(r.wants.what, cases[i].what);
        assert_int_equal(r.wants.n_top, cases[i].n_top);
        assert_int_equal(r.n_prompt_top, cases[i].n_prompt_top);
        assert_int_equal(r.n_hidden_top, cases[i].n_hidden);
        assert_int_equal(r.hides_logprobs, cases[i].hides);
        bt_api_request_fini(&r);
    }
}

static void prompt_logprobs_are_limited(void **state)
{
    static const char streamed[] = "prompt_logprobs cannot be streamed: no "
                                   "event of a stream has them";

    (void)state;
    refused(T, PARAMS("'prompt_logprobs': 21"), "prompt_logprobs",
            "prompt_logprobs must be from 0 to 20, got 21");
    refused(C, CMP("'prompt_logprobs': -1"), "prompt_logprobs",
            "prompt_logprobs must be from 0 to 20, got -1");
    refused(H, CHT("'prompt_logprobs': true"), "prompt_logprobs",
            "prompt_logprobs must be an integer, got true");
    refused(C, CMP("'prompt_logprobs': 0, 'stream': true"), "prompt_logprobs",
            streamed);
    refused(T, IDS("'sampling_params': {'prompt_logprobs': 1}, 'stream': true"),
            "prompt_logprobs", streamed);
    refused(C, CMP("'prompt_logprobs': 0, 'use_beam_search': true, 'n': 2"),
            "prompt_logprobs",
            "prompt_logprobs does not go with a beam search (use_beam_search): "
            "log-probs of the prompt are not there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ids_and_sampling_params_are_read),
        BT_TEST(unknown_fields_are_named_with_their_place),
        BT_TEST(bad_bodies_are_refused_by_name),
        BT_TEST(prompt_logprobs_are_wanted_beside_others),
        BT_TEST(prompt_logprobs_are_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
