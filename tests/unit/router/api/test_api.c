/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/router/api/api_fixture.h"

/* ---- generate ---- */

/* The example of Triton's TensorRT-LLM backend documentation. */
static void documented_generate_request_is_parsed(void **state)
{
    bt_api_request_t r =
        parsed(G, "{'text_input': 'What is machine learning?', "
                  "'max_tokens': 20, 'bad_words': '', 'stop_words': '', "
                  "'pad_id': 2, 'end_id': 2}");

    (void)state;
    assert_int_equal(r.dialect, BT_API_GENERATE);
    assert_null(r.model);
    assert_int_equal(r.n_prompts, 1);
    assert_string_equal(r.prompts[0].text, "What is machine learning?");
    assert_null(r.prompts[0].ids);
    assert_int_equal(r.n, 1);
    assert_true(r.has_max_tokens);
    assert_int_equal(r.max_tokens, 20);
    assert_int_equal(r.n_stops, 0);
    assert_int_equal(r.n_bad_words, 0);
    assert_false(r.stream);
    assert_int_equal(r.given & BT_GIVEN_EXCLUDE_INPUT, 0);
    assert_false(r.has_seed);
    assert_false(r.ignore_eos);
    assert_null(r.id);
    assert_int_equal(r.sequence_id, 0);
    assert_int_equal(r.sampling.n_end_ids, 1);
    assert_int_equal(r.sampling.end_ids[0], 2);
    assert_true(r.sampling.temperature == 0.0f); /* greedy */
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.sampling.top_p == 1.0f);
    assert_true(r.sampling.repetition_penalty == 1.0f);
    bt_api_request_fini(&r);
}

static void every_generate_option_is_parsed(void **state)
{
    bt_api_request_t r = parsed(
        G, "{'id': 'r-1', 'text_input': 'x', 'max_tokens': 7, 'min_length': 3,"
           "'stop_words': ['a', 'b'], 'bad_words': ['c', '', 'd'],"
           "'temperature': 0.5, 'top_k': 40, 'top_p': 0.25, 'random_seed': 99,"
           "'repetition_penalty': 1.5, 'presence_penalty': -0.5,"
           "'frequency_penalty': 3, 'beam_width': 1, 'num_return_sequences': 1,"
           "'stream': true, 'sequence_id': 9007199254740993, 'sequence_start': "
           "true,"
           "'sequence_end': true, 'exclude_input_in_output': false,"
           "'ignore_eos': true, 'priority': 5, 'timeout': 1500,"
           "'return_log_probs': false, 'num_draft_tokens': 0,"
           "'lora_task_id': null, 'len_penalty': 1.0,"
           "'embedding_bias_weights': [[0.5, -2]],"
           "'embedding_bias_words': ['w', 'v'],"
           "'unknown_parameter': {'a': [1, 2]}}");

    (void)state;
    assert_string_equal(r.id, "r-1");
    assert_int_equal(r.max_tokens, 7);
    assert_int_equal(r.sampling.min_tokens, 3);
    assert_int_equal(r.n_stops, 2);
    assert_string_equal(r.stops[0], "a");
    assert_string_equal(r.stops[1], "b");
    assert_int_equal(r.n_bad_words, 2);
    assert_string_equal(r.bad_words[0], "c");
    assert_string_equal(r.bad_words[1], "d");
    assert_int_equal(r.n_bias_words, 2);
    assert_string_equal(r.bias_words[1].text, "v");
    assert_true(r.bias_words[0].bias == 0.5f);
    assert_true(r.bias_words[1].bias == -2.0f);
    assert_true(r.sampling.temperature == 0.5f);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.sampling.top_p == 0.25f);
    assert_true(r.has_seed);
    assert_int_equal(r.sampling.seed, 99);
    assert_true(r.sampling.repetition_penalty == 1.5f);
    assert_true(r.sampling.presence_penalty == -0.5f);
    assert_true(r.sampling.frequency_penalty == 3.0f);
    assert_true(r.stream);
    assert_true(r.sequence_id == 9007199254740993); /* 2^53 + 1 */
    assert_true(r.sequence_start);
    assert_true(r.sequence_end);
    assert_false(r.exclude_input_in_output);
    assert_true(r.ignore_eos);
    assert_int_equal(r.priority.kind, BT_API_PRIORITY_INTEGER);
    assert_int_equal(r.priority.integer, 5);
    assert_int_equal(r.timeout_ms, 2); /* 1500 microseconds, rounded up */
    bt_api_request_fini(&r);
}

static void generate_accepts_scalars_as_arrays_of_one(void **state)
{
    bt_api_request_t r =
        parsed(G, "{'text_input': [['hello']], 'stream': [true],"
                  "'max_tokens': [8], 'temperature': [[0.5]], 'top_k': [[5]],"
                  "'stop_words': ['one'], 'bad_words': [['a', 'b']],"
                  "'end_id': [-1], 'random_seed': [16.0]}");

    (void)state;
    assert_string_equal(r.prompts[0].text, "hello");
    assert_true(r.stream);
    assert_int_equal(r.max_tokens, 8);
    assert_true(r.sampling.temperature == 0.5f);
    assert_int_equal(r.n_stops, 1);
    assert_string_equal(r.stops[0], "one");
    assert_int_equal(r.n_bad_words, 2);
    assert_int_equal(r.sampling.n_end_ids, 0);
    assert_int_equal(r.sampling.seed, 16);
    bt_api_request_fini(&r);
}

static void generate_fields_override_nested_parameters(void **state)
{
    bt_api_request_t r = parsed(
        G, "{'max_tokens': 5, 'text_input': 'outer', 'stop_words': ['o'],"
           "'parameters': {'max_tokens': 9, 'temperature': 0.5, 'id': 'in',"
           "'top_k': 5, 'text_input': 'inner', 'stop_words': ['i', 'j']}}");

    (void)state;
    assert_string_equal(r.prompts[0].text, "outer");
    assert_int_equal(r.max_tokens, 5);
    assert_true(r.sampling.temperature == 0.5f);
    assert_int_equal(r.n_stops, 1);
    assert_string_equal(r.stops[0], "o");
    assert_string_equal(r.id, "in");
    bt_api_request_fini(&r);
}

static void generate_is_greedy_without_sampling_options(void **state)
{
    static const struct {
        const char *options;
        float temperature;
    } cases[] = {
        {"", 0.0f},
        {", 'top_k': 1", 0.0f},
        {", 'top_p': 0", 0.0f},   /* Triton's off */
        {", 'top_p': 1.0", 1.0f}, /* of all tokens */
        {", 'temperature': 1.0", 0.0f},
        {", 'temperature': 1.5, 'top_k': 0, 'top_p': 0", 0.0f},
        {", 'temperature': 1.5, 'top_k': 0, 'top_p': 0.9", 1.5f},
        {", 'temperature': 1.5, 'top_k': -1, 'top_p': 1", 1.5f},
        {", 'temperature': 1.5, 'top_k': 1, 'top_p': 0.9", 0.0f},
        {", 'temperature': 1.5, 'top_k': 2, 'top_p': 0", 1.5f},
        {", 'temperature': 1.5, 'min_p': 0.1", 1.5f},
        {", 'temperature': 0", 0.0f},
        {", 'temperature': 1e-30", 0.0f},
        {", 'top_k': 2", 1.0f},
        {", 'top_p': 0.5", 1.0f},
        {", 'top_k': 2, 'temperature': 0", 0.0f},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char text[128];
        bt_api_request_t r;

        snprintf(text, sizeof(text), "{'text_input': 'x'%s}", cases[i].options);
        r = parsed(G, text);
        assert_true(r.sampling.temperature == cases[i].temperature);
        assert_false(r.has_max_tokens);
        bt_api_request_fini(&r);
    }
}

/* ---- OpenAI ---- */

static void prompts_are_parsed_in_four_shapes(void **state)
{
    bt_api_request_t r = parsed(C, "{'model': 'm', 'prompt': 'one'}");

    (void)state;
    assert_string_equal(r.model, "m");
    assert_int_equal(r.n_prompts, 1);
    assert_string_equal(r.prompts[0].text, "one");
    assert_true(r.sampling.temperature == 1.0f);
    bt_api_request_fini(&r);

    r = parsed(C, "{'prompt': ['one', 'two']}");
    assert_null(r.model);
    assert_int_equal(r.n_prompts, 2);
    assert_string_equal(r.prompts[1].text, "two");
    bt_api_request_fini(&r);

    r = parsed(C, "{'prompt': [5, 0, 49151]}");
    assert_int_equal(r.n_prompts, 1);
    assert_null(r.prompts[0].text);
    assert_int_equal(r.prompts[0].n_ids, 3);
    assert_int_equal(r.prompts[0].ids[0], 5);
    assert_int_equal(r.prompts[0].ids[2], 49151);
    bt_api_request_fini(&r);

    r = parsed(C, "{'prompt': [[1], [2, 3]], 'n': 32}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[1].n_ids, 2);
    assert_int_equal(r.prompts[1].ids[1], 3);
    assert_int_equal(r.n, 32);
    bt_api_request_fini(&r);
}

static void every_openai_option_is_parsed(void **state)
{
    bt_api_request_t r = parsed(
        H,
        "{'model': 'm', 'messages': [{'role': 'user', 'content': 'hi'}],"
        "'max_completion_tokens': 9, 'max_tokens': 5, 'min_tokens': 2,"
        "'temperature': 0, 'top_p': 0.5, 'top_k': -1, 'seed': -7,"
        "'stop': 'END', 'n': 3, 'stream': true, 'stream_options':"
        "{'include_usage': true, 'continuous_usage_stats': true, 'x': 1},"
        "'ignore_eos': true, 'repetition_penalty': 1.1, 'presence_penalty': 2,"
        "'frequency_penalty': -2, 'stop_token_ids': [3, 4], 'user': 'me',"
        "'logprobs': false, 'top_logprobs': 0, 'echo': false, 'tools': [],"
        "'tool_choice': 'auto', 'response_format': {'type': 'text'},"
        "'logit_bias': {'5': -100, '0': 0.5, '49151': 100},"
        "'modalities': ['text'], 'bad_words': ['no'],"
        "'parallel_tool_calls': true, 'timeout_ms': 250, 'metadata': null,"
        "'cache_salt': 'mine'}");

    (void)state;
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.sampling.min_tokens, 2);
    assert_true(r.sampling.temperature == 0.0f);
    assert_true(r.sampling.top_p == 0.5f);
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.has_seed);
    assert_true(r.sampling.seed == UINT64_MAX - 6);
    assert_int_equal(r.n_stops, 1);
    assert_string_equal(r.stops[0], "END");
    assert_int_equal(r.n, 3);
    assert_true(r.stream);
    assert_true(r.include_usage);
    assert_true(r.continuous_usage);
    assert_true(r.ignore_eos);
    assert_true(r.sampling.repetition_penalty == 1.1f);
    assert_true(r.sampling.presence_penalty == 2.0f);
    assert_true(r.sampling.frequency_penalty == -2.0f);
    assert_int_equal(r.sampling.n_end_ids, 2);
    assert_int_equal(r.sampling.end_ids[1], 4);
    assert_int_equal(r.n_bad_words, 1);
    assert_int_equal(r.timeout_ms, 250);
    assert_string_equal(r.cache_salt, "mine");
    assert_int_equal(r.sampling.n_logit_biases, 3);
    assert_ptr_equal(r.sampling.logit_biases, r.logit_biases);
    assert_int_equal(r.logit_biases[0].id, 5);
    assert_true(r.logit_biases[0].bias == -100.0f);
    assert_int_equal(r.logit_biases[1].id, 0);
    assert_true(r.logit_biases[1].bias == 0.5f);
    assert_int_equal(r.logit_biases[2].id, 49151);
    bt_api_request_fini(&r);
}

static void integers_are_accepted_in_any_json_notation(void **state)
{
    bt_api_request_t r = parsed(
        C, "{'prompt': [3.0, 4, 2147483647.0, 1e2], 'n': 2.0, 'top_p': 1e-60}");

    (void)state;
    assert_int_equal(r.n, 2);
    assert_int_equal(r.prompts[0].n_ids, 4);
    assert_int_equal(r.prompts[0].ids[0], 3);
    assert_int_equal(r.prompts[0].ids[2], INT32_MAX);
    assert_int_equal(r.prompts[0].ids[3], 100);
    /* Above 0, though a float has no place for it. */
    assert_true((r.sampling.top_p > 0.0f) && (r.sampling.top_p < 1e-30f));
    bt_api_request_fini(&r);
    refused(C, "{'prompt': [3.5]}", "prompt",
            "prompt: token ids must be integers from 0 to 2147483647, got 3.5");
}

static void messages_accept_text_or_parts(void **state)
{
    bt_api_request_t r = parsed(
        H, "{'messages': [{'role': 'developer', 'content': 'be brief'},"
           "{'role': 'user', 'name': 'x', 'content': ["
           "{'type': 'text', 'text': 'one'}, {'type': 'text', 'text': 'two'}]},"
           "{'role': 'assistant', 'content': null, 'tool_calls': []},"
           "{'role': 'user', 'content': ''}]}");

    (void)state;
    assert_int_equal(r.messages.n, 4);
    assert_string_equal(r.messages.json,
                        "[{\"role\":\"developer\",\"content\":\"be brief\"},"
                        "{\"role\":\"user\",\"name\":\"x\",\"content\":["
                        "{\"type\": \"text\", \"text\": \"one\"},"
                        "{\"type\": \"text\", \"text\": \"two\"}]},"
                        "{\"role\":\"assistant\",\"content\":null},"
                        "{\"role\":\"user\",\"content\":\"\"}]");
    assert_null(r.messages.final);
    assert_int_equal(r.n_prompts, 0);
    assert_false(r.has_max_tokens);
    bt_api_request_fini(&r);
}

static void null_is_absent_and_last_duplicate_key_counts(void **state)
{
    bt_api_request_t r =
        parsed(C, "{'prompt': 'x', 'max_tokens': null, 'stop': null,"
                  "'temperature': null, 'n': null, 'logprobs': null,"
                  "'echo': null, 'response_format': null, 'stream': null,"
                  "'stream_options': {'include_usage': null},"
                  "'top_k': 5, 'top_k': 6}");

    (void)state;
    assert_false(r.has_max_tokens);
    assert_int_equal(r.n, 1);
    assert_true(r.sampling.temperature == 1.0f);
    assert_int_equal(r.sampling.top_k, 6);
    assert_false(r.include_usage);
    bt_api_request_fini(&r);
}

static void prompt_text_is_decoded_unchanged(void **state)
{
    bt_api_request_t r =
        parsed(G, "{'text_input': 'a\\u00e4\\ud83d\\ude00\\n\\t\\\\ "
                  "\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80'}");

    (void)state;
    assert_string_equal(r.prompts[0].text,
                        "a\xC3\xA4\xF0\x9F\x98\x80\n\t\\ "
                        "\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80");
    bt_api_request_fini(&r);
}

/* ---- refusals ---- */

static void invalid_json_is_refused_with_position(void **state)
{
    (void)state;
    refused(G, "", NULL, "the body is empty");
    refused(G, "[1]", NULL, "the body must be a JSON object, got an array");
    refused(
        G, "{'a': }", NULL,
        "the body is not valid JSON at line 1 column 7 (byte 6): what is no "
        "value");
    refused(
        C, "{}\n\nx", NULL,
        "the body is not valid JSON at line 3 column 1 (byte 4): more behind "
        "the value");
    refused(G, "{'text_input': 'x', 'stop_words': ['a\\u0000b']}", "stop_words",
            "stop_words has a zero character (\\u0000), which is not supported "
            "here");
    refused(G, "{'temperature': 1e999}", "temperature",
            "temperature must be from 0 to 100, got 1e999");
    refused(
        G, "{'temperature': NaN}", NULL,
        "the body is not valid JSON at line 1 column 17 (byte 16): what is no "
        "value");
}

static void invalid_utf8_is_refused_with_position(void **state)
{
    /* The Unicode Standard, table 3-7: what no row allows. */
    static const char *const bad[] = {
        "\x80",         "\xC0\x80",     "\xC1\xBF",     "\xC3",
        "\xC3'",        "\xE0\x9F\xBF", "\xE4\xB8",     "\xED\xA0\x80",
        "\xEF\xBF\xC0", "\xF0\x8F\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80",
        "\xF5\x80\x80", "\xFF",         "\\\x80",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        char text[64];

        snprintf(text, sizeof(text), "{'text_input': '%s'}", bad[i]);
        refused(
            G, text, NULL,
            (bad[i][0] == '\\')
                ? "the body is not valid JSON at line 1 column 18 (byte 17): "
                  "it is not UTF-8"
                : "the body is not valid JSON at line 1 column 17 (byte 16): "
                  "it is not UTF-8");
    }
    refused(G, "\xFF\xFE{", NULL,
            "the body is not valid JSON at line 1 column 1 (byte 0): it is not "
            "UTF-8");
}

static void nesting_and_value_count_are_limited(void **state)
{
    enum { N = 3u << 20 };
    char *text = bt_calloc(N, 1);

    (void)state;
    assert_non_null(text);
    memset(text, '[', 65);
    refused(G, text, NULL,
            "arrays and objects nested too deeply at byte 64: a body may have "
            "1048576 values, nested 64 deep");
    text[64] = '\0';
    refused(G, text, NULL,
            "the body is not valid JSON at line 1 column 65 (byte 64): the end "
            "where a value is due");
    for (size_t i = 1; i + 1 < N; i += 2) {
        text[i] = '1';
        text[i + 1] = ',';
    }
    text[0] = '[';
    text[N - 1] = '\0';
    refused(C, text, NULL,
            "too many values at byte 2097151: a body may have 1048576 values, "
            "nested 64 deep");
    bt_free(text);
}

static void missing_and_empty_prompts_are_refused(void **state)
{
    (void)state;
    refused(G, "{}", "text_input", "text_input is missing");
    refused(G, "{'text_input': null}", "text_input", "text_input is missing");
    refused(G, "{'text_input': ''}", "text_input", "text_input is empty");
    refused(G, "{'text_input': []}", "text_input",
            "text_input must be one prompt, got 0");
    refused(G, "{'text_input': ['a', 'b']}", "text_input",
            "text_input must be one prompt, got 2");
    refused(G, "{'text_input': 5}", "text_input",
            "text_input must be a string, got 5");
    refused(C, "{}", "prompt", "prompt is missing");
    refused(C, "{'prompt': ''}", "prompt", "prompt is empty");
    refused(C, "{'prompt': []}", "prompt", "prompt is empty");
    refused(C, "{'prompt': ['a', '']}", "prompt", "prompt is empty");
    refused(C, "{'prompt': [[1], []]}", "prompt", "prompt is empty");
    refused(C, "{'prompt': ['a', 1]}", "prompt",
            "prompt must be a string, got 1");
    refused(
        C, "{'prompt': [1, 'a']}", "prompt",
        "prompt: token ids must be integers from 0 to 2147483647, got \"a\"");
    refused(C, "{'prompt': [1, -1]}", "prompt",
            "prompt: token ids must be integers from 0 to 2147483647, got -1");
    refused(C, "{'prompt': [4294967296]}", "prompt",
            "prompt: token ids must be integers from 0 to 2147483647, got "
            "4294967296");
    refused(C, "{'prompt': {}}", "prompt",
            "prompt must be a string, a list of strings, token ids or a list "
            "of token-id lists, got an object");
    refused(H, "{}", "messages", "messages is missing");
    refused(H, "{'messages': []}", "messages",
            "messages must have from 1 to 1024 entries, got 0");
    refused(H, "{'messages': 'x'}", "messages",
            "messages must be a list, got \"x\"");
    refused(H, "{'messages': ['x']}", "messages",
            "messages[0] must be an object, got \"x\"");
    refused(
        H, "{'messages': [{'role': 'user'}]}", "messages",
        "messages[0].content must be a string or a list of parts, got nothing");
    refused(H, "{'messages': [{'content': 'x'}]}", "messages",
            "messages[0].role must be a string of 1 to 256 bytes, got nothing");
    refused(H, "{'messages': [{'role': '', 'content': 'x'}]}", "messages",
            "messages[0].role must be a string of 1 to 256 bytes, got \"\"");
    refused(
        H,
        "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'user',"
        "'content': [{'type': 'image_url'}]}]}",
        "messages",
        "messages[1].content: parts of type \"image_url\" are not supported "
        "yet");
    refused(
        H, "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}",
        "messages", "messages[0].content: a text part needs text, got nothing");
    refused(
        H,
        "{'messages': [{'role': 'assistant', 'content': 'a',"
        "'tool_calls': [1]}]}",
        "messages",
        "messages[0].tool_calls[0] needs a function with a name, got nothing");
}

static void seed_is_taken_modulo_2_64(void **state)
{
    /* By Python: int(x) % 2**64. */
    static const struct {
        const char *written;
        uint64_t seed;
    } cases[] = {
        {"0", 0},
        {"-1", UINT64_MAX},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", UINT64_C(1) << 63},
        {"-9223372036854775808", UINT64_C(1) << 63},
        {"18446744073709551615", UINT64_MAX},
        {"18446744073709551616", 0},
        {"1180591620717411303424", 0}, /* 2^70 */
        {"1180591620717411303425", 1},
        {"123456789012345678901234567890", UINT64_C(14083847773837265618)},
        {"9223372036854775808.0", UINT64_C(1) << 63},
        {"1.5e1", 15},
        {"120e-1", 12},
        {"1e19", UINT64_C(10000000000000000000)},
        {"1e400", 0},
        {"-3e0", UINT64_MAX - 2},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[128];
        bt_api_request_t r;

        snprintf(body, sizeof(body), "{'prompt': 'x', 'seed': %s}",
                 cases[i].written);
        r = parsed(C, body);
        assert_true(r.has_seed);
        assert_int_equal(r.sampling.seed, cases[i].seed);
        bt_api_request_fini(&r);
    }
    refused(C, CMP("'seed': 1e-400"), "seed",
            "seed must be an integer, got 1e-400");
}

static void top_p_zero_is_greedy_for_openai_and_off_for_triton(void **state)
{
    bt_api_request_t r = parsed(C, CMP("'top_p': 0"));

    (void)state;
    assert_true(r.sampling.temperature == 0.0f);
    assert_true(r.sampling.top_p == 1.0f);
    bt_api_request_fini(&r);
    r = parsed(H, CHT("'top_p': 0.0, 'temperature': 1.5"));
    assert_true(r.sampling.temperature == 0.0f);
    bt_api_request_fini(&r);
    r = parsed(G, GEN("'top_p': 0, 'top_k': 5, 'temperature': 1.5"));
    assert_true(r.sampling.temperature == 1.5f);
    assert_true(r.sampling.top_p == 1.0f);
    bt_api_request_fini(&r);
}

static void unknown_fields_accept_any_json(void **state)
{
    static const char *const values[] = {
        "9223372036854775808",
        "-18446744073709551617",
        "1e400",
        "-1E-400",
        "'\\u0000'",
        "'\\ud800'",
        "{'\\udfff': [1, {'a': 1, 'a': 2}]}",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(values); i++) {
        char body[256];
        bt_api_request_t r;

        snprintf(body, sizeof(body),
                 "\xEF\xBB\xBF{'prompt': 'x', 'user': %s, 'other': %s}",
                 values[i], values[i]);
        r = parsed(C, body);
        assert_string_equal(r.ignored, "other");
        bt_api_request_fini(&r);
    }
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    refused(G, GEN("'embedding_bias_words': ['a', 'b']"),
            "embedding_bias_weights",
            "embedding_bias_words has 2 words and embedding_bias_weights 0 "
            "weights: each word needs one");
    refused(G,
            GEN("'embedding_bias_words': 'a',"
                "'embedding_bias_weights': 101"),
            "embedding_bias_weights",
            "embedding_bias_weights must be numbers from -100 to 100, got 101");
    refused(G, GEN("'embedding_bias_words': 3, 'embedding_bias_weights': 1"),
            "embedding_bias_words",
            "embedding_bias_words must be a string, got 3");
    refused(G, GEN("'max_tokens': 0"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got 0");
    refused(C, CMP("'max_tokens': -5"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got -5");
    refused(H, CHT("'max_completion_tokens': 0"), "max_completion_tokens",
            "max_completion_tokens must be from 1 to 2147483647, got 0");
    refused(G, GEN("'max_tokens': 2147483648"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got 2147483648");
    refused(G, GEN("'max_tokens': 1.5"), "max_tokens",
            "max_tokens must be an integer, got 1.5");
    refused(G, GEN("'max_tokens': '20'"), "max_tokens",
            "max_tokens must be an integer, got \"20\"");
    refused(G, GEN("'max_tokens': true"), "max_tokens",
            "max_tokens must be an integer, got true");
    refused(G, GEN("'max_tokens': [1, 2]"), "max_tokens",
            "max_tokens must be an integer, got an array");
    refused(C, CMP("'max_tokens': [1]"), "max_tokens",
            "max_tokens must be an integer, got an array");
    refused(G, GEN("'max_tokens': 2, 'min_tokens': 3"), "min_tokens",
            "min_tokens 3 is above max_tokens 2");
    refused(G, GEN("'temperature': -0.5"), "temperature",
            "temperature must be from 0 to 100, got -0.5");
    refused(C, CMP("'temperature': 1e300"), "temperature",
            "temperature must be from 0 to 100, got 1e300");
    refused(C, CMP("'temperature': '1'"), "temperature",
            "temperature must be a number, got \"1\"");
    refused(G, GEN("'top_p': 1.01"), "top_p",
            "top_p must be from 0 to 1, got 1.01");
    refused(G, GEN("'top_p': true"), "top_p",
            "top_p must be a number, got true");
    refused(G, GEN("'top_k': -2"), "top_k",
            "top_k must be from -1 to 2147483647, got -2");
    refused(G, GEN("'random_seed': 'x'"), "random_seed",
            "random_seed must be an integer, got \"x\"");
    refused(G, GEN("'seed': 1.5"), "seed", "seed must be an integer, got 1.5");
    refused(C, CMP("'repetition_penalty': 0"), "repetition_penalty",
            "repetition_penalty must be from 0.01 to 100, got 0");
    refused(C, CMP("'presence_penalty': 2.5"), "presence_penalty",
            "presence_penalty must be from -2 to 2, got 2.5");
    refused(C, CMP("'n': 0"), "n", "n must be from 1 to 64, got 0");
    refused(C, CMP("'n': 65"), "n", "n must be from 1 to 64, got 65");
    refused(C, "{'prompt': ['a', 'b'], 'n': 33}", "n",
            "2 prompts times n 33 are more than 64 choices");
    refused(G, GEN("'sequence_id': -1"), "sequence_id",
            "sequence_id must be from 0 to 9223372036854775807, got -1");
    refused(G, GEN("'stream': 1"), "stream",
            "stream must be true or false, got 1");
    refused(C, CMP("'stream_options': true"), "stream_options",
            "stream_options must be an object, got true");
}

static void word_lists_are_limited(void **state)
{
    char text[2048];
    size_t n;

    (void)state;
    refused(G, GEN("'stop_words': 5"), "stop_words",
            "stop_words must be a string or a list of strings, got 5");
    refused(C, CMP("'stop': ['a', 5]"), "stop", "stop must be a string, got 5");
    n = (size_t)snprintf(text, sizeof(text), "{'prompt': 'x', 'stop': ['a'");
    for (int i = 0; i < 63; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", 's%d'", i);
    }
    snprintf(text + n, sizeof(text) - n, "]}");
    {
        bt_api_request_t r = parsed(C, text);

        assert_int_equal(r.n_stops, 64);
        assert_string_equal(r.stops[63], "s62");
        bt_api_request_fini(&r);
    }
    snprintf(text + n, sizeof(text) - n, ", 'z']}");
    refused(C, text, "stop", "stop has more than 64 words");

    n = (size_t)snprintf(text, sizeof(text), "{'prompt': 'x', 'stop': '");
    memset(text + n, 's', 1025);
    snprintf(text + n + 1025, sizeof(text) - n - 1025, "'}");
    refused(C, text, "stop", "stop is longer than 1024 bytes: it has 1025");

    n = (size_t)snprintf(text, sizeof(text),
                         "{'text_input': 'x', 'bad_words': ['a'");
    for (int i = 0; i < 64; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", 'b'");
    }
    snprintf(text + n, sizeof(text) - n, "]}");
    refused(G, text, "bad_words", "bad_words has more than 64 words");

    refused(C, CMP("'cache_salt': ''"), "cache_salt", "cache_salt is empty");
    refused(G, GEN("'cache_salt': 5"), "cache_salt",
            "cache_salt must be a string, got 5");
    n = (size_t)snprintf(text, sizeof(text),
                         "{'prompt': 'x', 'stop_token_ids': [0");
    for (int i = 1; i < 65; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", %d", i);
    }
    snprintf(text + n, sizeof(text) - n, "]}");
    refused(C, text, "stop_token_ids", "stop_token_ids has more than 64 ids");
}

static void logit_bias_is_limited(void **state)
{
    static const char *const bad_keys[] = {
        "", "-1", "05", "5 ", "+5", "1e3", "the", "4294967296", "99999999999"};
    static char text[32768];
    char message[128];
    size_t n;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad_keys); i++) {
        snprintf(text, sizeof(text), CMP("'logit_bias': {'%s': 1}"),
                 bad_keys[i]);
        snprintf(message, sizeof(message),
                 "the keys of logit_bias must be token ids, as \"5\", got "
                 "\"%s\"",
                 bad_keys[i]);
        refused(C, text, "logit_bias", message);
    }
    refused(C, CMP("'logit_bias': {'5': 100.01}"), "logit_bias",
            "logit_bias of token 5 must be a number from -100 to 100, got "
            "100.01");
    refused(H, CHT("'logit_bias': {'4294967295': '1'}"), "logit_bias",
            "logit_bias of token 4294967295 must be a number from -100 to "
            "100, got \"1\"");
    refused(C, CMP("'logit_bias': [1]"), "logit_bias",
            "logit_bias must be an object, got an array");
    n = (size_t)snprintf(text, sizeof(text),
                         "{'prompt': 'x', 'logit_bias': {'0': 1");
    for (int i = 1; i <= 1024; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", '%d': 1", i);
    }
    snprintf(text + n, sizeof(text) - n, "}}");
    refused(C, text, "logit_bias",
            "logit_bias has 1025 tokens, at most 1024 are allowed");
}

/* Log-probs and logits beside the tokens, and alternatives of each. */
static void expect_wants(bt_api_dialect_t dialect, const char *text,
                         uint32_t what, uint32_t n_top)
{
    bt_api_request_t r = parsed(dialect, text);

    assert_int_equal(r.wants.what, what);
    assert_int_equal(r.wants.n_top, n_top);
    bt_api_request_fini(&r);
}

static void logprobs_and_logits_options_are_parsed(void **state)
{
    (void)state;
    expect_wants(C, CMP("'logprobs': null"), 0, 0);
    expect_wants(C, CMP("'logprobs': 0"), BT_WANT_LOGPROBS, 0);
    expect_wants(C, CMP("'logprobs': 20"), BT_WANT_LOGPROBS, 20);
    expect_wants(C, CMP("'logprobs': 1, 'echo': true"),
                 BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS, 1);
    expect_wants(C, CMP("'echo': true, 'max_tokens': 0"), 0, 0);
    expect_wants(H, CHT("'logprobs': true"), BT_WANT_LOGPROBS, 0);
    expect_wants(H, CHT("'top_logprobs': 20, 'logprobs': true"),
                 BT_WANT_LOGPROBS, 20);
    expect_wants(H, CHT("'top_logprobs': 0, 'logprobs': false"), 0, 0);
    expect_wants(G, GEN("'return_log_probs': [[true]]"), BT_WANT_LOGPROBS, 0);
    expect_wants(G, GEN("'return_context_logits': true"), BT_WANT_PROMPT_LOGITS,
                 0);
    expect_wants(G,
                 GEN("'return_generation_logits': true, "
                     "'return_context_logits': false"),
                 BT_WANT_LOGITS, 0);
    expect_wants(G,
                 "{'text_input': 'x', 'parameters': {'return_log_probs': "
                 "true}, 'return_log_probs': false}",
                 0, 0);
}

static void logprobs_and_echo_are_limited(void **state)
{
    (void)state;
    refused(C, CMP("'logprobs': 21"), "logprobs",
            "logprobs must be from 0 to 20, got 21");
    refused(C, CMP("'logprobs': -1"), "logprobs",
            "logprobs must be from 0 to 20, got -1");
    refused(H, CHT("'logprobs': 1"), "logprobs",
            "logprobs must be true or false, got 1");
    refused(H, CHT("'logprobs': true, 'top_logprobs': 21"), "top_logprobs",
            "top_logprobs must be from 0 to 20, got 21");
    refused(H, CHT("'top_logprobs': 3"), "top_logprobs",
            "top_logprobs needs logprobs to be true");
    refused(G, GEN("'return_log_probs': 'yes'"), "return_log_probs",
            "return_log_probs must be true or false, got \"yes\"");
    refused(C, CMP("'max_tokens': 0"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got 0 (0 is for a "
            "prompt with echo)");
    refused(G, GEN("'max_tokens': 0"), "max_tokens",
            "max_tokens must be from 1 to 2147483647, got 0");
    refused(C, CMP("'max_tokens': 0, 'echo': true, 'min_tokens': 1"),
            "min_tokens", "min_tokens 1 is above max_tokens 0");
}

static void unsupported_options_are_refused_by_name(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body;
        const char *param;
        const char *got;
    } cases[] = {
        {H, CHT("'echo': true"), "echo", "true"},
        {C, CMP("'suffix': 'x'"), "suffix", "\"x\""},
        {C, CMP("'prompt_embeds': 'gAJ'"), "prompt_embeds", "\"gAJ\""},
        {C, "{'prompt_embeds': ['gAJ']}", "prompt_embeds", "an array"},
        {H, CHT("'functions': [{}]"), "functions", "an array"},
        {H, CHT("'audio': {'voice': 'x'}"), "audio", "an object"},
        {H, CHT("'chat_template': 'x'"), "chat_template", "\"x\""},
        {G, GEN("'lora_weights': [1, 2]"), "lora_weights", "an array"},
        {G, GEN("'prompt_embedding_table': [1.5, 2]"), "prompt_embedding_table",
         "an array"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char message[128];

        snprintf(message, sizeof(message), "%s is not supported yet, got %s",
                 cases[i].param, cases[i].got);
        refused(cases[i].dialect, cases[i].body, cases[i].param, message);
    }
    refused(
        H, CHT("'modalities': ['text', 'audio']"), "modalities",
        "modalities other than [\"text\"] are not supported yet, got an array");
}

static void options_of_other_dialects_count_as_unknown(void **state)
{
    bt_api_request_t r =
        parsed(G, GEN("'messages': 5, 'n': 99, 'logprobs': 5, 'tools': [1]"));

    (void)state;
    assert_int_equal(r.n, 1);
    bt_api_request_fini(&r);
    r = parsed(C, CMP("'stop_words': ['a'], 'beam_width': 4, 'end_id': 3"));
    assert_int_equal(r.n_stops, 0);
    assert_int_equal(r.sampling.n_end_ids, 0);
    bt_api_request_fini(&r);
}

static void parsing_survives_every_failed_allocation(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body;
    } cases[] = {
        {G, GEN("'stop_words': ['a', 'b'], 'bad_words': 'c', 'id': 'i',"
                "'parameters': {'text_input': 'y', 'id': 'j'}")},
        {C, "{'model': 'm', 'prompt': ['a', 'b'], 'stop': 'x'}"},
        {C, "{'model': 'm', 'prompt': [[1, 2], [3]]}"},
        {H, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'user',"
            "'content': [{'type': 'text', 'text': 'y'}]}, {'role':"
            "'assistant'}]}"},
        {H, CHT("'prediction': {'type': 'content', 'content': 'a b c'},"
                "'draft_input_ids': [1, 2]")},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char *body = quoted(cases[i].body);
        bt_api_request_t request;
        bt_api_error_t error;
        bt_status_t status;
        int nth = 0;

        do {
            memset(&error, 0, sizeof(error));
            bt_alloc_fail_at(++nth);
            status = bt_api_parse(cases[i].dialect, body, strlen(body),
                                  &request, &error);
            if (status != BT_OK) {
                assert_int_equal(status, BT_ERR_NO_MEMORY);
                assert_int_equal(error.http_status, 503);
            }
        } while (status != BT_OK);
        bt_alloc_fail_at(0);
        assert_true(nth > 3);
        bt_api_request_fini(&request);
        bt_free(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(documented_generate_request_is_parsed),
        BT_TEST(every_generate_option_is_parsed),
        BT_TEST(generate_accepts_scalars_as_arrays_of_one),
        BT_TEST(generate_fields_override_nested_parameters),
        BT_TEST(generate_is_greedy_without_sampling_options),
        BT_TEST(prompts_are_parsed_in_four_shapes),
        BT_TEST(every_openai_option_is_parsed),
        BT_TEST(integers_are_accepted_in_any_json_notation),
        BT_TEST(messages_accept_text_or_parts),
        BT_TEST(null_is_absent_and_last_duplicate_key_counts),
        BT_TEST(prompt_text_is_decoded_unchanged),
        BT_TEST(invalid_json_is_refused_with_position),
        BT_TEST(invalid_utf8_is_refused_with_position),
        BT_TEST(nesting_and_value_count_are_limited),
        BT_TEST(missing_and_empty_prompts_are_refused),
        BT_TEST(seed_is_taken_modulo_2_64),
        BT_TEST(top_p_zero_is_greedy_for_openai_and_off_for_triton),
        BT_TEST(unknown_fields_accept_any_json),
        BT_TEST(numbers_out_of_range_are_refused),
        BT_TEST(word_lists_are_limited),
        BT_TEST(logit_bias_is_limited),
        BT_TEST(logprobs_and_logits_options_are_parsed),
        BT_TEST(logprobs_and_echo_are_limited),
        BT_TEST(unsupported_options_are_refused_by_name),
        BT_TEST(options_of_other_dialects_count_as_unknown),
        BT_TEST(parsing_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
