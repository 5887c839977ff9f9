/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a beam search: their defaults at each door, and what they do not go
 * with. */
#include "tests/unit/router/api/api_fixture.h"

static void assert_params(const char *body, bt_api_dialect_t dialect,
                          bt_sched_beam_params_t want)
{
    bt_api_request_t r = parsed(dialect, body);
    const bt_sched_beam_params_t *got = &r.beams.params;

    assert_int_equal(got->width, want.width);
    assert_int_equal(got->n_returned, want.n_returned);
    assert_true(got->length_penalty == want.length_penalty);
    assert_int_equal(got->early_stopping, want.early_stopping);
    if (want.width > 0) {
        assert_int_equal(r.n, want.n_returned);
        assert_true(r.sampling.temperature == 0.0f);
        assert_int_equal(r.max_drafts, 0);
    }
    bt_api_request_fini(&r);
}

/* TensorRT-LLM, executor.h: lengthPenalty 0, earlyStopping 1. */
static void generate_has_the_defaults_of_tensorrt_llm(void **state)
{
    (void)state;
    assert_params(
        GEN("'beam_width': 4"), G,
        (bt_sched_beam_params_t){4, 4, 0.0f, BT_SCHED_BEAM_STOP_FULL});
    assert_params(
        GEN("'beam_width': 4, 'num_return_sequences': 2, 'len_penalty': 1.5"),
        G, (bt_sched_beam_params_t){4, 2, 1.5f, BT_SCHED_BEAM_STOP_FULL});
    assert_params(
        GEN("'beam_width': [[3]], 'length_penalty': -1,"
            "'early_stopping': [false]"),
        G, (bt_sched_beam_params_t){3, 3, -1.0f, BT_SCHED_BEAM_STOP_HEURISTIC});
    assert_params(GEN("'beam_width': 1, 'len_penalty': 2"), G,
                  (bt_sched_beam_params_t){0});
    assert_params(
        GEN("'beam_width': 2, 'top_k': 1, 'top_p': 0,"
            "'temperature': 1, 'num_draft_tokens': 0"),
        G, (bt_sched_beam_params_t){2, 2, 0.0f, BT_SCHED_BEAM_STOP_FULL});
}

static void early_stopping_is_a_bool_a_word_or_a_number(void **state)
{
    static const struct {
        const char *value;
        bt_sched_beam_stop_t stop;
    } cases[] = {
        {"true", BT_SCHED_BEAM_STOP_FULL},
        {"false", BT_SCHED_BEAM_STOP_HEURISTIC},
        {"'never'", BT_SCHED_BEAM_STOP_NEVER},
        {"1", BT_SCHED_BEAM_STOP_FULL},
        {"0", BT_SCHED_BEAM_STOP_HEURISTIC},
        {"2", BT_SCHED_BEAM_STOP_NEVER},
        {"-1", BT_SCHED_BEAM_STOP_NEVER},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[128];

        snprintf(body, sizeof(body),
                 "{'text_input': 'x', 'beam_width': 2, 'early_stopping': %s}",
                 cases[i].value);
        assert_params(body, G,
                      (bt_sched_beam_params_t){2, 2, 0.0f, cases[i].stop});
    }
    refused(G, GEN("'beam_width': 2, 'early_stopping': 'sometimes'"),
            "early_stopping",
            "early_stopping must be true, false, \"never\" or an integer, got "
            "\"sometimes\"");
    refused(G, GEN("'beam_width': 2, 'early_stopping': 0.5"), "early_stopping",
            "early_stopping must be true, false, \"never\" or an integer, got "
            "0.5");
}

/* vLLM: beam_width is n, or best_of in its earlier versions; length_penalty 1.
 */
static void openai_searches_with_n_beams(void **state)
{
    bt_api_request_t r;

    (void)state;
    assert_params(
        CMP("'use_beam_search': true, 'n': 3"), C,
        (bt_sched_beam_params_t){3, 3, 1.0f, BT_SCHED_BEAM_STOP_HEURISTIC});
    assert_params(
        CMP("'use_beam_search': true, 'n': 2, 'best_of': 5,"
            "'early_stopping': 'never', 'length_penalty': 0"),
        C, (bt_sched_beam_params_t){5, 2, 0.0f, BT_SCHED_BEAM_STOP_NEVER});
    assert_params(
        CHT("'use_beam_search': true, 'n': 2"), H,
        (bt_sched_beam_params_t){2, 2, 1.0f, BT_SCHED_BEAM_STOP_HEURISTIC});
    assert_params(CMP("'use_beam_search': false, 'n': 3"), C,
                  (bt_sched_beam_params_t){0});
    r = parsed(C, CMP("'use_beam_search': true")); /* one beam: greedy */
    assert_int_equal(r.beams.params.width, 0);
    assert_true(r.sampling.temperature == 0.0f);
    assert_int_equal(r.n, 1);
    bt_api_request_fini(&r);
}

static void what_a_search_cannot_do_is_refused_by_name(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body, *field;
    } cases[] = {
        {C, CMP("'use_beam_search': true, 'n': 2, 'stream': true"), "stream"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'stop': 'a'"), "stop"},
        {G, GEN("'beam_width': 2, 'stop_words': ['a']"), "stop_words"},
        {H, CHT("'use_beam_search': true, 'n': 2, 'temperature': 0.5"),
         "temperature"},
        {G, GEN("'beam_width': 2, 'top_k': 4"), "top_k"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'top_p': 0.5"), "top_p"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'min_p': 0.5"), "min_p"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'typical_p': 0.5"),
         "typical_p"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'xtc_probability': 0.5"),
         "xtc_probability"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'thinking_token_budget': 5"),
         "thinking_token_budget"},
        {G, GEN("'beam_width': 2, 'draft_input_ids': [5]"), "draft_input_ids"},
        {G, GEN("'beam_width': 2, 'num_draft_tokens': 3"), "num_draft_tokens"},
        {C,
         CMP("'use_beam_search': true, 'n': 2, 'prediction': {'type': "
             "'content', 'content': 'x'}"),
         "prediction"},
        {G, GEN("'beam_width': 2, 'return_context_logits': true"),
         "return_context_logits"},
        {G, GEN("'beam_width': 2, 'return_generation_logits': true"),
         "return_generation_logits"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'logprobs': 1"), "logprobs"},
        {C, CMP("'use_beam_search': true, 'n': 2, 'logprobs': 0, 'echo': true"),
         "echo"},
        {H,
         CHT("'use_beam_search': true, 'n': 2, 'logprobs': true,"
             "'top_logprobs': 1"),
         "top_logprobs"},
        {C,
         CMP("'use_beam_search': true, 'n': 2, 'max_tokens': 0,"
             "'echo': true"),
         "max_tokens"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_request_t r;
        bt_api_error_t error = {0};
        char *body = quoted(cases[i].body);

        assert_int_equal(
            bt_api_parse(cases[i].dialect, body, strlen(body), &r, &error),
            BT_ERR_INVALID_PARAM);
        bt_free(body);
        assert_string_equal(error.param, cases[i].field);
        assert_non_null(strstr(error.message, "beam search"));
    }
    refused(G, GEN("'beam_width': 65"), "beam_width",
            "beam_width must be from 1 to 64, got 65");
    refused(G, GEN("'beam_width': 2, 'num_return_sequences': 3"),
            "num_return_sequences",
            "num_return_sequences 3 is above beam_width 2");
    refused(G, GEN("'num_return_sequences': 2"), "num_return_sequences",
            "num_return_sequences above 1 needs a beam_width, got 2");
    refused(G, GEN("'beam_width': 2, 'len_penalty': 17"), "len_penalty",
            "len_penalty must be from -16 to 16, got 17");
    refused(C,
            "{'model': 'm', 'prompt': ['a', 'b'], 'use_beam_search': true,"
            "'n': 40}",
            "n", "2 prompts times 40 beams are more than 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(generate_has_the_defaults_of_tensorrt_llm),
        BT_TEST(early_stopping_is_a_bool_a_word_or_a_number),
        BT_TEST(openai_searches_with_n_beams),
        BT_TEST(what_a_search_cannot_do_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
