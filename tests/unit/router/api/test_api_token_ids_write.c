/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of vLLM's /inference/v1/generate, whole and as events, and log-probs
 * of prompts. Source: vLLM, GenerateResponse, GenerateStreamResponse, Logprob,
 * clamp_prompt_logprobs(). */
#include "router/api/api_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"

static bt_gguf_t *gguf;
static bt_tokenizer_t *tok;

static int load(void **state)
{
    char path[] = "/tmp/baton-test-XXXXXX";
    const bt_tiny_model_t model = bt_tiny_model_default();
    char why[256];
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(bt_tiny_model_write(&model, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_tokenizer_load(gguf, why, sizeof(why), &tok), BT_OK);
    (void)unlink(path);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    return 0;
}

/* The model's vocabulary: token b - 30 is the character b. */
#define ID(character) ((uint32_t)(character)-30u)

static const bt_api_usage_t usage = {.prompt_tokens = 3,
                                     .completion_tokens = 2};
#define USAGE                                                                 \
    "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\"" \
    ":5,\"prompt_tokens_details\":{\"cached_tokens\":0,\"cache_write_"        \
    "tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}"

/* A prompt "H#i" and an answer "yz", with two alternatives each. */
static uint32_t ids[] = {ID('H'), ID('#'), ID('i'), ID('y'), ID('z')};
static uint32_t top_ids[] = {0,       0,       ID('!'), ID('#'), ID('a'),
                             ID('b'), ID('y'), ID('a'), ID('b'), ID('z')};

typedef struct rig {
    bt_api_answer_t answer;
    bt_api_choice_t choice;
    bt_gen_rows_t rows;
    double logprobs[5], top_logprobs[10];
    bt_strbuf_t out;
} rig_t;

static void rig_init(rig_t *rig)
{
    static const double logprobs[] = {0, -1.5, -3.5, -0.125, -2.25};
    static const double tops[] = {0,  0,      -1,   -1.5, -0.5,
                                  -1, -0.125, -0.5, -0.5, -2.25};

    memset(rig, 0, sizeof(*rig));
    memcpy(rig->logprobs, logprobs, sizeof(logprobs));
    memcpy(rig->top_logprobs, tops, sizeof(tops));
    rig->logprobs[0] = NAN;
    rig->rows.wants.what = BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS;
    rig->rows.n_front = 3;
    rig->rows.scores = (bt_scores_t){.n = 5,
                                     .n_top = 2,
                                     .ids = ids,
                                     .logprobs = rig->logprobs,
                                     .top_ids = top_ids,
                                     .top_logprobs = rig->top_logprobs,
                                     .cap = 5};
    rig->answer = (bt_api_answer_t){.dialect = BT_API_GENERATE_TOKENS,
                                    .id = "r",
                                    .model = "m",
                                    .created = 17,
                                    .tok = tok};
    rig->choice = (bt_api_choice_t){.text = "yz",
                                    .text_bytes = 2,
                                    .finish = BT_FINISH_LENGTH,
                                    .token_ids = ids + 3,
                                    .n_token_ids = 2,
                                    .from = 3,
                                    .to = 5};
    bt_strbuf_init(&rig->out, 1u << 16);
}

/* The answer is this text. */
static void expect_answer(rig_t *rig, const char *text)
{
    bt_strbuf_reset(&rig->out);
    bt_api_write_answer(&rig->answer, &rig->choice, 1, &usage, &rig->out);
    assert_int_equal(bt_strbuf_status(&rig->out), BT_OK);
    assert_string_equal(rig->out.data, text);
}

static void ids_are_the_answer(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig);
    expect_answer(&rig,
                  "{\"request_id\":\"r\",\"model\":\"m\",\"created\":17,"
                  "\"choices\":[{\"index\":0,\"logprobs\":null,"
                  "\"finish_reason\":\"length\",\"token_ids\":[91,92]}]," USAGE
                  ",\"prompt_logprobs\":null,\"kv_transfer_params\":null}");
    bt_strbuf_fini(&rig.out);
}

#define TOKEN(id, logprob)                                \
    "{\"token\":\"token_id:" id "\",\"logprob\":" logprob \
    ",\"bytes\":null,\"top_logprobs\":["
#define TOP(id, logprob) \
    "{\"token\":\"token_id:" id "\",\"logprob\":" logprob ",\"bytes\":null}"

static void tokens_are_named_by_their_ids(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig);
    rig.choice.rows = &rig.rows;
    rig.choice.n_hidden_top = 1;
    expect_answer(
        &rig,
        "{\"request_id\":\"r\",\"model\":\"m\",\"created\":17,"
        "\"choices\":[{\"index\":0,\"logprobs\":{\"content\":[" TOKEN(
            "91", "-0.125") TOP("91", "-0.125") "]}," TOKEN("92", "-2.25")
            TOP("68",
                "-0.5") "]}]},\"finish_reason\":\"length\","
                        "\"token_ids\":[91,92]}]," USAGE
                        ",\"prompt_logprobs\":null,\"kv_transfer_params\":null}");
    bt_strbuf_fini(&rig.out);
}

#define ENTRY(id, logprob, rank, text)                   \
    "\"" id "\":{\"logprob\":" logprob ",\"rank\":" rank \
    ",\"decoded_token\":\"" text "\"}"

/* The token itself, then the others; its rank is known among the best. */
static void prompt_logprobs_are_lists_of_entries(void **state)
{
    static const char *const expected[] = {
        "[null,{" ENTRY("5", "-1.5", "2", "#") "},{" ENTRY("75", "-3.5", "null",
                                                           "i") "}]",
        "[null,{" ENTRY("5", "-1.5", "2", "#") "," ENTRY(
            "3", "-1", "1", "!") "},{" ENTRY("75", "-3.5", "null",
                                             "i") "," ENTRY("67", "-0.5", "1",
                                                            "a") "}]",
        "[null,{" ENTRY("5", "-1.5", "2", "#") "," ENTRY(
            "3", "-1", "1",
            "!") "},{" ENTRY("75", "-3.5", "null",
                             "i") "," ENTRY("67", "-0.5", "1",
                                            "a") "," ENTRY("68", "-1", "2",
                                                           "b") "}]",
    };
    bt_json_t json;
    rig_t rig;

    (void)state;
    rig_init(&rig);
    rig.choice.prompt_rows = &rig.rows;
    for (uint32_t n = 0; n < BT_ARRAY_LEN(expected); n++) {
        const size_t skipped = strlen("{\"prompt_logprobs\":");

        rig.choice.n_prompt_top = n;
        bt_strbuf_reset(&rig.out);
        bt_json_init(&json, &rig.out);
        bt_json_object(&json, NULL);
        bt_api_put_prompt_logprobs(tok, &rig.choice, &json);
        bt_json_end_object(&json);
        assert_true(rig.out.len > skipped + 1);
        rig.out.data[rig.out.len - 1] = '\0';
        assert_string_equal(rig.out.data + skipped, expected[n]);
    }
    /* vLLM's number for what JSON cannot say. */
    rig.logprobs[1] = -INFINITY;
    rig.choice.n_prompt_top = 0;
    bt_strbuf_reset(&rig.out);
    bt_api_write_answer(&rig.answer, &rig.choice, 1, &usage, &rig.out);
    assert_non_null(strstr(rig.out.data, "\"prompt_logprobs\":[null,{\"5\":{"
                                         "\"logprob\":-9999,\"rank\":2"));
    bt_strbuf_fini(&rig.out);
}

/* Of completions each choice has them, of chats the answer. */
static void other_dialects_have_prompt_logprobs(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *before;
    } cases[] = {
        {BT_API_COMPLETIONS, "\"text\":\"yz\",\"token_ids\":[91,92],"},
        {BT_API_CHAT, "\"finish_reason\":\"length\"}],"},
    };
    char expected[256];
    rig_t rig;

    (void)state;
    rig_init(&rig);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        rig.answer.dialect = cases[i].dialect;
        rig.choice.prompt_rows = NULL;
        bt_strbuf_reset(&rig.out);
        bt_api_write_answer(&rig.answer, &rig.choice, 1, &usage, &rig.out);
        assert_null(strstr(rig.out.data, "prompt_logprobs"));
        rig.choice.prompt_rows = &rig.rows;
        bt_strbuf_reset(&rig.out);
        bt_api_write_answer(&rig.answer, &rig.choice, 1, &usage, &rig.out);
        snprintf(expected, sizeof(expected),
                 "%s\"prompt_logprobs\":[null,{" ENTRY("5", "-1.5", "2", "#"),
                 cases[i].before);
        assert_non_null(strstr(rig.out.data, expected));
    }
    bt_strbuf_fini(&rig.out);
}

/* Alternatives for the prompt alone are not shown of the answer. */
static void hidden_alternatives_are_not_shown(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig);
    rig.choice.rows = &rig.rows;
    rig.choice.offsets = (const uint32_t[]){0, 0, 0, 0, 1};
    rig.choice.n_hidden_top = 1;
    rig.answer.dialect = BT_API_COMPLETIONS;
    bt_api_write_answer(&rig.answer, &rig.choice, 1, &usage, &rig.out);
    assert_non_null(strstr(rig.out.data,
                           "\"top_logprobs\":[{\"y\":-0.125},{\"b\":-0.5,"
                           "\"z\":-2.25}]"));
    rig.answer.dialect = BT_API_CHAT;
    bt_strbuf_reset(&rig.out);
    bt_api_write_answer(&rig.answer, &rig.choice, 1, &usage, &rig.out);
    assert_non_null(strstr(rig.out.data,
                           "\"top_logprobs\":[{\"token\":\"b\",\"logprob\":"
                           "-0.5,\"bytes\":[98]}]}"));
    bt_strbuf_fini(&rig.out);
}

static void events_have_ids_and_usage(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig);
    rig.choice.finish = BT_FINISH_NONE;
    rig.choice.n_token_ids = 1;
    rig.choice.index = 1;
    bt_api_write_chunks(&rig.answer, &rig.choice, true, &usage, &rig.out);
    assert_string_equal(
        rig.out.data,
        "data: {\"request_id\":\"r\",\"choices\":[{\"index\":1,"
        "\"logprobs\":null,\"finish_reason\":null,\"token_ids\":[91]}],"
        "\"usage\":null}\n\n");
    bt_strbuf_reset(&rig.out);
    rig.answer.include_usage = rig.answer.continuous_usage = true;
    rig.choice.n_token_ids = 0;
    rig.choice.finish = BT_FINISH_STOP;
    bt_api_write_chunks(&rig.answer, &rig.choice, false, &usage, &rig.out);
    assert_string_equal(
        rig.out.data,
        "data: {\"request_id\":\"r\",\"choices\":[{\"index\":1,"
        "\"logprobs\":null,\"finish_reason\":\"stop\",\"token_ids\":[]}]," USAGE
        "}\n\n");
    bt_strbuf_reset(&rig.out);
    bt_api_write_usage(&rig.answer, &usage, &rig.out);
    assert_string_equal(rig.out.data,
                        "{\"request_id\":\"r\",\"choices\":[]," USAGE "}");
    bt_strbuf_fini(&rig.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ids_are_the_answer),
        BT_TEST(tokens_are_named_by_their_ids),
        BT_TEST(prompt_logprobs_are_lists_of_entries),
        BT_TEST(other_dialects_have_prompt_logprobs),
        BT_TEST(hidden_alternatives_are_not_shown),
        BT_TEST(events_have_ids_and_usage),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
