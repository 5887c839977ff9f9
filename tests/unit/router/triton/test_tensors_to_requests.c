/* SPDX-License-Identifier: Apache-2.0 */
/* From tensors to requests, row by row: each input, its limits, and what is
 * not there. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/infer_json.h"
#include "router/triton/tensors_to_requests.h"

/* Inputs as JSON: {"name": …, "datatype": …, "shape": …, "data": …}, … */
static bt_status_t lower(const char *model, const char *inputs,
                         bt_tensor_requests_t *lowered, bt_api_error_t *error)
{
    const bt_infer_http_t http = {0};
    bt_infer_request_t request;
    bt_strbuf_t body;
    bt_status_t status;

    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_printf(&body, "{\"inputs\":[%s]}", inputs);
    status = bt_infer_parse_json(&http, &body, &request, error);
    bt_strbuf_fini(&body);
    if (status != BT_OK) {
        fail_msg("%s: %s", inputs, error->message);
    }
    memcpy(request.model, model, strlen(model) + 1);
    status =
        bt_tensors_to_requests(bt_model_spec(model), &request, lowered, error);
    bt_infer_request_fini(&request);
    return status;
}

#define T(name, type, shape, data)                                      \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape \
    ",\"data\":" data "}"
#define TEXT T("text_input", "BYTES", "[1,1]", "[\"hi\"]")
#define IDS  T("input_ids", "INT32", "[1,3]", "[5,6,7]")

static bt_tensor_requests_t accepted(const char *model, const char *inputs)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(model, inputs, &lowered, &error) != BT_OK) {
        fail_msg("%s: %s", inputs, error.message);
    }
    return lowered;
}

static void refused(const char *model, const char *inputs, const char *part)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(model, inputs, &lowered, &error) == BT_OK) {
        fail_msg("%s is accepted", inputs);
    }
    assert_int_equal(error.http_status, 400);
    if (strstr(error.message, part) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", inputs, part, error.message);
    }
}

static void every_sampling_input_is_converted(void **state)
{
    bt_tensor_requests_t l = accepted(
        "ensemble",
        TEXT "," T("max_tokens", "INT32", "[1,1]", "[9]") "," T(
            "bad_words", "BYTES", "[1,2]",
            "[\"b\",\"\"]") "," T("stop_words", "BYTES", "[1,1]",
                                  "[\"s\"]") "," T("end_id", "INT32", "[1,1]",
                                                   "[3]") "," T("pad_id",
                                                                "INT32",
                                                                "[1,1]",
                                                                "[4]") "," T("top_k",
                                                                             "INT32",
                                                                             "[1,1]", "[7]") "," T("top_p", "FP32", "[1,1]", "[0.5]") "," T("repetition_penalty", "FP32", "[1,1]", "[1.5]") "," T("presence_penalty", "FP32", "[1,1]", "[0.25]") "," T("frequency_penalty", "FP32", "[1,1]", "[0.75]") "," T("min_length", "INT32", "[1,1]", "[2]") "," T("random_seed",
                                                                                                                                                                                                                                                                                                                                                          "UINT64", "[1,1]", "[18446744073709551615]") "," T("len_penalty",
                                                                                                                                                                                                                                                                                                                                                                                                             "FP32",
                                                                                                                                                                                                                                                                                                                                                                                                             "[1,1]",
                                                                                                                                                                                                                                                                                                                                                                                                             "[1.0]") "," T("beam_width",
                                                                                                                                                                                                                                                                                                                                                                                                                            "INT32",
                                                                                                                                                                                                                                                                                                                                                                                                                            "[1,1]",
                                                                                                                                                                                                                                                                                                                                                                                                                            "[1]") "," T("stream", "BOOL", "[1,1]", "[true]") "," T("exclude_input_in_output",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    "BOOL",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    "[1,1]", "[true]") "," T("embedding_bias_words",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                             "BYTES", "[1,1]",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                             "[\"w\"]") "," T("embedding_bias_weights",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "FP32",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "[1,1]",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "[-2.5]"));
    const bt_api_request_t *r = &l.rows[0];

    (void)state;
    assert_int_equal(l.n_rows, 1);
    assert_string_equal(r->prompts[0].text, "hi");
    assert_true(r->has_max_tokens);
    assert_int_equal(r->max_tokens, 9);
    assert_int_equal(r->n_bad_words, 1);
    assert_string_equal(r->bad_words[0], "b");
    assert_int_equal(r->n_stops, 1);
    assert_string_equal(r->stops[0], "s");
    assert_int_equal(r->sampling.n_end_ids, 1);
    assert_int_equal(r->sampling.end_ids[0], 3);
    assert_int_equal(l.end_id, 3);
    assert_int_equal(l.pad_id, 4);
    assert_int_equal(r->sampling.top_k, 7);
    assert_true(r->sampling.top_p == 0.5f);
    assert_true(r->sampling.temperature == 1.0f); /* it draws */
    assert_true(r->sampling.repetition_penalty == 1.5f);
    assert_true(r->sampling.presence_penalty == 0.25f);
    assert_true(r->sampling.frequency_penalty == 0.75f);
    assert_int_equal(r->sampling.min_tokens, 2);
    assert_true(r->has_seed && (r->sampling.seed == UINT64_MAX));
    assert_true(l.stream);
    assert_true(r->exclude_input_in_output);
    assert_int_equal(r->n_bias_words, 1);
    assert_string_equal(r->bias_words[0].text, "w");
    assert_true(r->bias_words[0].bias == -2.5f);
    bt_tensor_requests_fini(&l);
}

static void defaults_are_greedy_with_prompt_in_output(void **state)
{
    bt_tensor_requests_t l = accepted("ensemble", TEXT);

    (void)state;
    assert_true(l.rows[0].sampling.temperature == 0.0f);
    assert_false(l.rows[0].exclude_input_in_output);
    assert_false(l.rows[0].has_max_tokens || l.rows[0].has_seed || l.stream ||
                 l.stop);
    assert_int_equal(l.pad_id, -1);
    bt_tensor_requests_fini(&l);
}

static void options_apply_per_row_or_to_all_rows(void **state)
{
    bt_tensor_requests_t l = accepted(
        "tensorrt_llm_bls",
        T("text_input", "BYTES", "[2,1]", "[\"a\",\"b\"]") "," T(
            "max_tokens", "INT32", "[2,1]",
            "[[3],[4]]") "," T("stop_words", "BYTES", "[2,2]",
                               "[\"x\",\"y\",\"z\",\"\"]") "," T("temperature",
                                                                 "FP32",
                                                                 "[1,1]",
                                                                 "[0.5]") "," T("top_k",
                                                                                "INT32",
                                                                                "[2,1]",
                                                                                "[1,9]"));

    (void)state;
    assert_int_equal(l.n_rows, 2);
    assert_string_equal(l.rows[1].prompts[0].text, "b");
    assert_int_equal(l.rows[0].max_tokens, 3);
    assert_int_equal(l.rows[1].max_tokens, 4);
    assert_int_equal(l.rows[0].n_stops, 2);
    assert_int_equal(l.rows[1].n_stops, 1);
    assert_string_equal(l.rows[1].stops[0], "z");
    assert_true(l.rows[0].sampling.temperature == 0.0f); /* top_k 1 */
    assert_true(l.rows[1].sampling.temperature == 0.5f);
    bt_tensor_requests_fini(&l);
    refused("ensemble",
            T("text_input", "BYTES", "[3,1]", "[\"a\",\"b\",\"c\"]") "," T(
                "max_tokens", "INT32", "[2,1]", "[3,4]"),
            "'max_tokens' has a first dimension of 2, but the batch has 3");
    refused("ensemble", T("text_input", "BYTES", "[1,2]", "[\"a\",\"b\"]"),
            "one element for each row");
    refused("ensemble", T("text_input", "BYTES", "[0,1]", "[]"), "batch of 0");
}

static void input_lengths_limit_input_ids(void **state)
{
    bt_tensor_requests_t l = accepted(
        "tensorrt_llm",
        T("input_ids", "INT32", "[2,3]", "[5,6,7,8,9,0]") "," T(
            "input_lengths", "INT32", "[2,1]",
            "[3,2]") "," T("request_output_len", "INT32", "[2,1]", "[4,5]"));

    (void)state;
    assert_int_equal(l.rows[0].prompts[0].n_ids, 3);
    assert_int_equal(l.rows[1].prompts[0].n_ids, 2);
    assert_int_equal(l.rows[1].prompts[0].ids[1], 9);
    assert_int_equal(l.rows[1].max_tokens, 5);
    bt_tensor_requests_fini(&l);

    l = accepted("tensorrt_llm", T("input_ids", "INT32", "[3]", "[5,6,7]"));
    assert_int_equal(l.n_rows, 1);
    assert_int_equal(l.rows[0].prompts[0].n_ids, 3);
    bt_tensor_requests_fini(&l);
    refused("tensorrt_llm", IDS "," T("input_lengths", "INT32", "[1,1]", "[4]"),
            "fewer than the 4");
    refused("tensorrt_llm", T("input_ids", "INT32", "[1,1]", "[-1]"),
            "'input_ids' must be from 0");
    refused("tensorrt_llm", T("input_ids", "FP32", "[1,1]", "[0.5]"),
            "must be an integer");
}

static void word_id_lists_are_split_by_offsets(void **state)
{
    bt_tensor_requests_t l = accepted(
        "tensorrt_llm",
        IDS "," T("stop_words_list", "INT32", "[1,2,4]",
                  "[[[5,6,7,0],[2,3,-1,-1]]]") "," T("bad_words_list", "INT32",
                                                     "[2,1]", "[0,-1]"));

    (void)state;
    assert_int_equal(l.rows[0].n_stop_ids, 2);
    assert_int_equal(l.rows[0].stop_ids[0].n, 2);
    assert_int_equal(l.rows[0].stop_ids[0].ids[1], 6);
    assert_int_equal(l.rows[0].stop_ids[1].n, 1);
    assert_int_equal(l.rows[0].stop_ids[1].ids[0], 7);
    assert_int_equal(l.rows[0].n_bad_ids, 0);
    bt_tensor_requests_fini(&l);
    refused("tensorrt_llm",
            IDS "," T("stop_words_list", "INT32", "[1,3]", "[1,2,3]"),
            "shape [2, n]");
    refused("tensorrt_llm",
            IDS "," T("bad_words_list", "INT32", "[1,2,2]", "[5,6,2,1]"),
            "'bad_words_list' may have up to");
    refused("tensorrt_llm",
            IDS "," T("bad_words_list", "INT32", "[1,2,2]", "[5,6,3,-1]"),
            "from -1 to 2");
}

static void embedding_bias_keeps_nonzero_values(void **state)
{
    bt_tensor_requests_t l =
        accepted("tensorrt_llm",
                 IDS "," T("embedding_bias", "FP32", "[1,4]", "[0,1.5,0,-2]"));

    (void)state;
    assert_int_equal(l.rows[0].sampling.n_logit_biases, 2);
    assert_int_equal(l.rows[0].logit_biases[1].id, 3);
    assert_true(l.rows[0].logit_biases[1].bias == -2.0f);
    bt_tensor_requests_fini(&l);
    refused("ensemble",
            TEXT "," T("embedding_bias_words", "BYTES", "[1,1]", "[\"w\"]"),
            "needs a weight for each word");
    refused("ensemble",
            TEXT "," T("embedding_bias_weights", "FP32", "[1,1]", "[1]"),
            "needs a weight for each word");
    refused("tensorrt_llm",
            IDS "," T("embedding_bias", "FP32", "[1,1]", "[1000]"),
            "from -100 to 100");
}

static void draft_inputs_change_no_answer(void **state)
{
    bt_tensor_requests_t l =
        accepted("tensorrt_llm", IDS
                 "," T("draft_input_ids", "INT32", "[1,4]", "[7,0,-1,5]") "," T(
                     "draft_acceptance_threshold", "FP32", "[1,1]", "[1]"));

    (void)state;
    assert_int_equal(l.rows[0].n_draft_ids, 2);
    assert_int_equal(l.rows[0].draft_ids[0], 7);
    assert_int_equal(l.rows[0].draft_ids[1], 0);
    assert_int_equal(l.rows[0].max_drafts, UINT32_MAX);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble",
                 TEXT "," T("num_draft_tokens", "INT32", "[1,1]", "[3]") "," T(
                     "use_draft_logits", "BOOL", "[1,1]", "[true]"));
    assert_int_equal(l.rows[0].max_drafts, 3);
    bt_tensor_requests_fini(&l);
    l = accepted("tensorrt_llm",
                 IDS "," T("draft_input_ids", "INT32", "[1,0]", "[]"));
    assert_int_equal(l.rows[0].n_draft_ids, 0);
    bt_tensor_requests_fini(&l);
    refused("tensorrt_llm",
            IDS "," T("draft_acceptance_threshold", "FP32", "[1,1]", "[0.5]"),
            "below 1 would change the answer, got 0.5");
    refused("ensemble",
            TEXT "," T("num_draft_tokens", "INT32", "[1,1]", "[-1]"),
            "from 0 to 2147483647");
}

static void unsupported_inputs_are_refused_unless_neutral(void **state)
{
    static const char *const off[] = {
        T("decoder_text_input", "BYTES", "[1,1]", "[\"\"]"),
        T("image_input", "FP32", "[1,0]", "[]")};
    static const struct {
        const char *input, *name;
    } on[] = {{T("decoder_text_input", "BYTES", "[1,1]", "[\"x\"]"),
               "decoder_text_input"},
              {T("image_input", "FP32", "[1,1]", "[0.5]"), "image_input"}};
    char inputs[512];
    bt_tensor_requests_t l;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(off); i++) {
        snprintf(inputs, sizeof(inputs), "%s,%s", TEXT, off[i]);
        l = accepted("ensemble", inputs);
        bt_tensor_requests_fini(&l);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(on); i++) {
        snprintf(inputs, sizeof(inputs), "%s,%s", TEXT, on[i].input);
        refused("ensemble", inputs, on[i].name);
        refused("ensemble", inputs, "not supported");
    }
}

#define BEAMS(n) TEXT "," T("beam_width", "INT32", "[1,1]", n)
#define TWO_ROWS(widths, returned)                     \
    T("text_input", "BYTES", "[2,1]", "[\"a\",\"b\"]") \
    "," T("beam_width", "INT32", "[2,1]",              \
          widths) "," T("num_return_sequences", "INT32", "[2,1]", returned)

static void beams_of_all_rows_are_equally_many(void **state)
{
    bt_tensor_requests_t l = accepted("ensemble", TWO_ROWS("[3,3]", "[2,2]"));

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(l.rows[i].beams.params.width, 3);
        assert_int_equal(l.rows[i].beams.params.n_returned, 2);
    }
    assert_int_equal(l.n_beams, 2);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble",
                 BEAMS("[4]") "," T("len_penalty", "FP32", "[1,1]", "[0.5]"));
    assert_int_equal(l.n_beams, 4); /* all, where no number is given */
    assert_true(l.rows[0].beams.params.length_penalty == 0.5);
    /* TensorRT-LLM's default: the search ends with the last answer. */
    assert_int_equal(l.rows[0].beams.params.early_stopping, 1);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", BEAMS("[1]"));
    assert_int_equal(l.n_beams, 0);
    bt_tensor_requests_fini(&l);
    refused("ensemble", TWO_ROWS("[3,2]", "[2,2]"), "beam_width");
    refused("ensemble", TWO_ROWS("[3,3]", "[2,3]"), "num_return_sequences");
    refused("ensemble", BEAMS("[65]"),
            "'beam_width' must be from 0 to 64, got 65");
    refused("ensemble", BEAMS("[2]") "," T("stream", "BOOL", "[1,1]", "[true]"),
            "stream");
}

#define GUIDE_TYPE(text) T("guided_decoding_guide_type", "BYTES", "[1,1]", text)
#define GUIDE(text)      T("guided_decoding_guide", "BYTES", "[1,1]", text)

static void guide_describes_the_answer(void **state)
{
    bt_tensor_requests_t l =
        accepted("ensemble", TEXT
                 "," GUIDE_TYPE("[\"json_schema\"]") "," GUIDE("[\"{}\"]"));

    (void)state;
    assert_string_equal(l.rows[0].grammar.field, "guided_decoding_guide");
    assert_int_equal(l.rows[0].grammar.kind, BT_GRAMMAR_JSON_SCHEMA);
    assert_string_equal(l.rows[0].grammar.text, "{}");
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TEXT "," GUIDE_TYPE("[\"json\"]"));
    assert_int_equal(l.rows[0].grammar.kind, BT_GRAMMAR_JSON_OBJECT);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TEXT "," GUIDE_TYPE("[\"\"]") "," GUIDE("[\"\"]"));
    assert_null(l.rows[0].grammar.field);
    bt_tensor_requests_fini(&l);
    refused("ensemble", TEXT "," GUIDE("[\"{}\"]"),
            "guided_decoding_guide needs a guided_decoding_guide_type");
    refused("ensemble", TEXT "," GUIDE_TYPE("[\"xml\"]") "," GUIDE("[\"{}\"]"),
            "guided_decoding_guide_type must be json, json_schema, regex, "
            "ebnf_grammar or structural_tag");
    refused("ensemble",
            TEXT "," GUIDE_TYPE("[\"json\"]") "," T("beam_width", "INT32",
                                                    "[1,1]", "[2]"),
            "guided_decoding_guide_type does not go with a beam search");
}

#define TWO                                                                 \
    T("text_input", "BYTES", "[2,1]", "[\"a\",\"b\"]")                      \
    "," T("return_log_probs", "BOOL", "[2,1]",                              \
          "[false,true]") "," T("return_context_logits", "BOOL", "[1,1]",   \
                                "[true]") "," T("return_generation_logits", \
                                                "BOOL", "[1,1]", "[false]")
/* After what lower() writes: the request names outputs. */
#define NAMED(names) "],\"outputs\":[" names

static void logprobs_of_one_row_are_computed_for_all_rows(void **state)
{
    bt_tensor_requests_t l = accepted("ensemble", TWO);

    (void)state;
    assert_int_equal(l.n_rows, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(l.rows[i].wants.what,
                         BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGITS);
    }
    assert_int_equal(l.wants, BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGITS);
    bt_tensor_requests_fini(&l);
    l = accepted("tensorrt_llm", IDS
                 "," T("return_generation_logits", "BOOL", "[1]", "[true]"));
    assert_int_equal(l.rows[0].wants.what, BT_WANT_LOGITS);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TEXT);
    assert_int_equal(l.rows[0].wants.what, 0);
    assert_int_equal(l.wants, 0);
    bt_tensor_requests_fini(&l);
    refused("ensemble", TEXT "," T("return_log_probs", "FP32", "[1]", "[1]"),
            "'return_log_probs' must be BOOL");
}

static void only_named_and_enabled_outputs_are_computed(void **state)
{
    bt_tensor_requests_t l =
        accepted("ensemble", TWO NAMED("{\"name\":\"cum_log_probs\"}"));

    (void)state;
    assert_int_equal(l.rows[1].wants.what, BT_WANT_LOGPROBS);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TWO NAMED("{\"name\":\"text_output\"}"));
    assert_int_equal(l.wants, 0);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TEXT NAMED("{\"name\":\"output_log_probs\"}"));
    assert_int_equal(l.wants, 0);
    bt_tensor_requests_fini(&l);
    l = accepted("ensemble", TWO NAMED("{\"name\":\"generation_logtis\"}"));
    assert_int_equal(l.wants, 0);
    bt_tensor_requests_fini(&l);
    l = accepted("tensorrt_llm", IDS NAMED("{\"name\":\"context_logits\"}"));
    assert_int_equal(l.wants, 0);
    bt_tensor_requests_fini(&l);
}

static void limits_and_types_are_refused_by_name(void **state)
{
    (void)state;
    refused("ensemble", TEXT "," TEXT, "twice");
    refused("ensemble", TEXT "," T("x", "BOOL", "[1]", "[true]"),
            "unexpected inference input 'x' for model 'ensemble'");
    refused("ensemble", T("max_tokens", "INT32", "[1,1]", "[1]"),
            "expected inference input 'text_input'");
    refused("ensemble", T("text_input", "BYTES", "[1,1]", "[\"\"]"), "empty");
    refused("ensemble",
            TEXT "," T("stop_words", "BYTES", "[1,1]", "[\"a\\u0000b\"]"),
            "zero character");
    refused("ensemble", T("text_input", "INT32", "[1,1]", "[1]"),
            "must be BYTES");
    refused("ensemble", TEXT "," T("max_tokens", "INT32", "[1,1]", "[0]"),
            "'max_tokens' must be from 1");
    refused("ensemble", TEXT "," T("max_tokens", "BYTES", "[1,1]", "[\"1\"]"),
            "must be an integer");
    refused("ensemble", TEXT "," T("top_p", "FP32", "[1,1]", "[1.5]"),
            "'top_p' must be from 0 to 1");
    refused("ensemble", TEXT "," T("stream", "FP32", "[1,1]", "[1]"),
            "'stream' must be BOOL");
    refused("ensemble",
            TEXT "," T("max_tokens", "INT32", "[1,1]",
                       "[2]") "," T("min_length", "INT32", "[1,1]", "[3]"),
            "min_length");
}

static void stop_request_needs_no_other_inputs(void **state)
{
    bt_tensor_requests_t l =
        accepted("tensorrt_llm", T("stop", "BOOL", "[1,1]", "[true]"));

    (void)state;
    assert_true(l.stop);
    assert_int_equal(l.n_rows, 0);
    bt_tensor_requests_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sampling_input_is_converted),
        cmocka_unit_test(defaults_are_greedy_with_prompt_in_output),
        cmocka_unit_test(options_apply_per_row_or_to_all_rows),
        cmocka_unit_test(input_lengths_limit_input_ids),
        cmocka_unit_test(word_id_lists_are_split_by_offsets),
        cmocka_unit_test(embedding_bias_keeps_nonzero_values),
        cmocka_unit_test(draft_inputs_change_no_answer),
        cmocka_unit_test(unsupported_inputs_are_refused_unless_neutral),
        cmocka_unit_test(beams_of_all_rows_are_equally_many),
        cmocka_unit_test(guide_describes_the_answer),
        cmocka_unit_test(logprobs_of_one_row_are_computed_for_all_rows),
        cmocka_unit_test(only_named_and_enabled_outputs_are_computed),
        cmocka_unit_test(limits_and_types_are_refused_by_name),
        cmocka_unit_test(stop_request_needs_no_other_inputs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
