/* SPDX-License-Identifier: Apache-2.0 */
/* Options of OpenAI's calls that change what comes back: the best of several,
 * what ends a text, special tokens, usage, how a chat's prompt ends. Meanings:
 * OpenAI's API reference and vLLM's documentation of its OpenAI server.
 */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
/* Tokens 1 and 2 of the tiny model, as id_of() has them. */
#define START "\x1f"
#define END   " "

/* As tokens(), with log-probs of one value. */
static void scored(world_t *w, uint32_t n, const char *text, double logprob)
{
    const uint32_t len = (uint32_t)strlen(text);

    for (uint32_t i = 0; i < len; i++) {
        const bt_token_t token = {.key = request(w, n)->key,
                                  .index = i,
                                  .id = id_of(text[i]),
                                  .finish = (i + 1 == len) ? BT_FINISH_LENGTH
                                                           : BT_FINISH_NONE};
        const bt_token_score_t score = {.score = {.logprob = logprob}};
        const bt_msg_t msg = {
            .type = BT_MSG_TOKENS,
            .u.tokens = {
                .n = 1, .tokens = &token, .n_scores = 1, .scores = &score}};

        assert_int_equal(
            bt_core_message(w->core, (i == 0) ? w->p : w->d, &msg, bt_now_us()),
            BT_OK);
    }
    ended(w, n);
}

/* By the mean for a token: a longer one is not worse for it. */
static void best_of_returns_choices_best_first(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":4,\"n\":2,\"best_of\":3,"
         "\"seed\":5}");
    assert_int_equal(count(w, BT_MSG_REQUEST), 6);
    assert_int_equal(request(w, 2)->seed, 7);
    assert_int_equal(request(w, 0)->wants.what, BT_WANT_LOGPROBS);
    scored(w, 0, "worst", -3.0);
    scored(w, 1, "good", -1.0);
    assert_int_equal(ex.n_ends, 0);
    scored(w, 2, "best", -0.5);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"choices\":[{\"index\":0,\"text\":\"best\",\"logprobs\":null,"
             "\"finish_reason\":\"length\"},{\"index\":1,\"text\":\"good\","
             "\"logprobs\":null,\"finish_reason\":\"length\"}]");
    /* All that were computed are paid for. */
    has(&ex, "\"prompt_tokens\":2,\"completion_tokens\":12,");

    w->n_sent = 0;
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":[\"A\",\"B\"],\"max_tokens\":4,\"best_of\":2,"
         "\"logprobs\":0}");
    scored(w, 0, "no", -1.0);
    scored(w, 1, "long", -0.75);
    scored(w, 2, "same", -2.0);
    scored(w, 3, "as", -2.0);
    has(&ex, "{\"index\":0,\"text\":\"long\",\"logprobs\":{");
    has(&ex, "{\"index\":1,\"text\":\"same\",\"logprobs\":{");
    assert_null(strstr(ex.out, "\"index\":2"));
    has(&ex, "\"token_logprobs\":[-0.75,-0.75,-0.75,-0.75]");
    stop(w);
}

static void include_stop_str_in_output_keeps_stop_word(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":9,\"stop\":[\"ND\",\"END\"],"
         "\"include_stop_str_in_output\":true}");
    answer(w, 0, "aENcENDx", BT_FINISH_NONE);
    has(&ex, "\"text\":\"aENcEND\",");
    has(&ex, "\"finish_reason\":\"stop\"");
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":9,\"stop\":\"END\","
         "\"stream\":true,\"include_stop_str_in_output\":true}");
    answer(w, 1, "abEND", BT_FINISH_NONE);
    has(&ex, "\"text\":\"END\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    /* An end id is text where special tokens are, too. */
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":9,"
         "\"include_stop_str_in_output\":true,\"skip_special_tokens\":false}");
    answer(w, 2, "ab" END, BT_FINISH_STOP);
    has(&ex, "\"text\":\"ab<|im_end|>\",");
    stop(w);
}

static void skip_special_tokens_false_returns_special_tokens(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":4,\"skip_special_tokens\":false,"
         "\"logprobs\":0}");
    answer(w, 0, "a" START "b" END, BT_FINISH_STOP);
    has(&ex, "\"text\":\"a<|im_start|>b\",\"logprobs\":{\"text_offset\":"
             "[0,1,13,14]");
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":4}");
    answer(w, 1, "a" START "b" END, BT_FINISH_STOP);
    has(&ex, "\"text\":\"ab\",");
    stop(w);
}

static void prefilled(world_t *w, uint32_t n, uint32_t n_cached)
{
    const bt_msg_t msg = {
        .type = BT_MSG_PREFILLED,
        .u.prefilled = {.key = request(w, n)->key, .n_cached = n_cached}};

    assert_int_equal(bt_core_message(w->core, w->p, &msg, bt_now_us()), BT_OK);
}

/* The choices of one prompt have it computed once. */
static void usage_reports_cached_tokens(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":[\"ABCD\",\"EFGH\"],\"max_tokens\":2,\"n\":2}");
    prefilled(w, 0, 3);
    prefilled(w, 1, 3);
    prefilled(w, 2, 1);
    for (uint32_t i = 0; i < 4; i++) {
        answer(w, i, "ab", BT_FINISH_LENGTH);
    }
    has(&ex, "\"total_tokens\":16,\"prompt_tokens_details\":"
             "{\"cached_tokens\":4,\"cache_write_tokens\":0}");

    w->n_sent = 0;
    post(w, &ex, CHAT,
         "{" HI ",\"max_tokens\":2,\"stream\":true,\"stream_options\":"
         "{\"include_usage\":true,\"continuous_usage_stats\":true}}");
    prefilled(w, 0, 16);
    tokens(w, w->p, 0, 0, "a", BT_FINISH_NONE);
    has(&ex, "\"completion_tokens\":1,");
    has(&ex, "\"prompt_tokens_details\":{\"cached_tokens\":16,"
             "\"cache_write_tokens\":0},\"completion_tokens_details\":"
             "{\"reasoning_tokens\":0}}}\n\n");
    tokens(w, w->d, 0, 1, "b", BT_FINISH_LENGTH);
    ended(w, 0);
    has(&ex, "\"choices\":[],\"usage\":{");
    stop(w);
}

static void return_token_ids_lists_ids_of_each_piece(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, CHAT,
         "{" HI ",\"max_tokens\":3,\"stream\":true,"
         "\"return_token_ids\":true}");
    answer(w, 0, "a" START "b", BT_FINISH_LENGTH);
    has(&ex, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
             "\"token_ids\":[]");
    has(&ex, "\"delta\":{\"content\":\"a\"},\"token_ids\":[67]");
    has(&ex, "\"delta\":{},\"token_ids\":[1]");
    has(&ex, "\"delta\":{\"content\":\"b\"},\"token_ids\":[68]");
    has(&ex, "\"delta\":{},\"token_ids\":[],\"logprobs\":null,"
             "\"finish_reason\":\"length\"");
    stop(w);
}

/* "@" before special tokens. */
#define ASKED "@<|im_start|>user\nHi@<|im_end|>\n@<|im_start|>assistant\n"

static void continue_final_message_continues_last_message(void **state)
{
    static const struct {
        const char *how, *prompt;
    } cases[] = {
        {"\"add_generation_prompt\":true",
         ASKED "Well@<|im_end|>\n@<|im_start|>assistant\n"},
        {"\"add_generation_prompt\":false", ASKED "Well@<|im_end|>\n"},
        {"\"add_generation_prompt\":false,\"continue_final_message\":true",
         ASKED "Well"},
        {"\"continue_final_message\":true", ASKED "Well"},
    };
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[512];
        char text[256];

        w->n_sent = 0;
        snprintf(body, sizeof(body),
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
                 "{\"role\":\"assistant\",\"content\":\"Well\"}],"
                 "\"max_tokens\":2,%s}",
                 cases[i].how);
        post(w, &ex, CHAT, body);
        text_of(w, request(w, 0), text);
        assert_string_equal(text, cases[i].prompt);
        answer(w, 0, "ab", BT_FINISH_LENGTH);
    }
    stop(w);
}

static void unknown_fields_are_reported_or_refused(void **state)
{
    static const char body[] =
        "{\"prompt\":\"Hi\",\"max_tokens\":2,\"temprature\":1,\"x\":2%s}";
    static const char told[] = "X-Baton-Ignored-Fields: temprature, x\n";
    world_t *w = &world;
    bt_exchange_t ex;
    char text[256];

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), body, (i == 1) ? ",\"stream\":true" : "");
        post(w, &ex, COMPLETIONS, text);
        answer(w, i, "ab", BT_FINISH_LENGTH);
        assert_int_equal(ex.status, 200);
        assert_non_null(strstr(ex.headers, told));
    }
    snprintf(text, sizeof(text), body, ",\"model\":\"other\"");
    post(w, &ex, COMPLETIONS, text);
    assert_int_equal(ex.status, 404);
    assert_non_null(strstr(ex.headers, told));
    post(w, &ex, GENERATE, "{\"text_input\":\"Hi\",\"mine\":1}");
    answer(w, 2, "ab", BT_FINISH_LENGTH);
    assert_non_null(strstr(ex.headers, "X-Baton-Ignored-Fields: mine\n"));

    snprintf(text, sizeof(text), body, "");
    w->config.unknown_fields = "ignore";
    post(w, &ex, COMPLETIONS, text);
    answer(w, 3, "ab", BT_FINISH_LENGTH);
    assert_null(strstr(ex.headers, "Ignored"));
    w->config.unknown_fields = "error";
    refused(w, COMPLETIONS, text, 400,
            "temprature (did you mean temperature?), x");
    stop(w);
}

static bt_sampling_t drawn(world_t *w, const char *path, const char *options)
{
    const bool chat = strcmp(path, CHAT) == 0;
    bt_exchange_t ex;
    char body[512];

    w->n_sent = 0;
    snprintf(body, sizeof(body), "{%s,\"max_tokens\":2%s}",
             chat                             ? HI
             : strcmp(path, COMPLETIONS) == 0 ? "\"prompt\":\"Hi\""
                                              : "\"text_input\":\"Hi\"",
             options);
    post(w, &ex, path, body);
    answer(w, 0, "ab", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    return request(w, 0)->sampling;
}

static void draws(bt_sampling_t s, float temperature, float top_p,
                  uint32_t top_k, float min_p, float penalty)
{
    assert_true(s.temperature == temperature);
    assert_true(s.top_p == top_p);
    assert_int_equal(s.top_k, top_k);
    assert_true(s.min_p == min_p);
    assert_true(s.repetition_penalty == penalty);
}

/* A request is drawn as it says, or as nothing says. */
static void
without_a_word_the_server_draws_as_it_says_of_the_model(void **state)
{
    static const char *const some[] = {",\"temperature\":1", ",\"top_p\":1",
                                       ",\"top_k\":0", ",\"min_p\":0"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    get(w, &ex, "/v1/models/tiny");
    has(&ex, "\"max_model_len\":512,\"chat_template\":\"chatml\","
             "\"default_sampling\":{\"from\":\"server\","
             "\"temperature\":0.7,\"top_p\":0.95,\"top_k\":0,\"min_p\":0.1,"
             "\"repetition_penalty\":1}");
    draws(drawn(w, CHAT, ""), 0.7f, 0.95f, 0, 0.1f, 1.0f);
    draws(drawn(w, COMPLETIONS, ",\"top_p\":null,\"seed\":5"), 0.7f, 0.95f, 0,
          0.1f, 1.0f);
    draws(drawn(w, COMPLETIONS, ",\"repetition_penalty\":1.5"), 0.7f, 0.95f, 0,
          0.1f, 1.5f);
    for (size_t i = 0; i < BT_ARRAY_LEN(some); i++) {
        draws(drawn(w, COMPLETIONS, some[i]), 1.0f, 1.0f, 0, 0.0f, 1.0f);
    }
    draws(drawn(w, CHAT, ",\"top_k\":5"), 1.0f, 1.0f, 5, 0.0f, 1.0f);
    draws(drawn(w, GENERATE, ""), 0.0f, 1.0f, 0, 0.0f, 1.0f);
    draws(drawn(w, GENERATE, ",\"top_k\":5"), 1.0f, 1.0f, 5, 0.0f, 1.0f);
    stop(w);
}

static void model_file_sets_sampling_defaults(void **state)
{
    bt_tiny_model_t shape = bt_tiny_model_default();
    world_t *w = &world;
    bt_exchange_t ex;
    char before[256];

    (void)state;
    memcpy(before, model_path, sizeof(before));
    snprintf(model_path, sizeof(model_path), "/tmp/baton-test-sampling-%d",
             (int)getpid());
    shape.sampling = true;
    assert_int_equal(bt_tiny_model_write(&shape, model_path), BT_OK);
    bt_test_expect_log_lines(1); /* its min_p is out of range */
    start(w, true);
    get(w, &ex, "/v1/models");
    has(&ex, "\"default_sampling\":{\"from\":\"file\",\"temperature\":0.6,"
             "\"top_p\":0.9,\"top_k\":20,\"min_p\":0,"
             "\"repetition_penalty\":1.125}");
    draws(drawn(w, CHAT, ""), 0.6f, 0.9f, 20, 0.0f, 1.125f);
    draws(drawn(w, CHAT, ",\"temperature\":1.5"), 1.5f, 0.9f, 20, 0.0f, 1.125f);
    draws(drawn(w, COMPLETIONS, ",\"top_k\":-1,\"top_p\":1,\"min_p\":0.25"),
          0.6f, 1.0f, 0, 0.25f, 1.125f);
    draws(drawn(w, CHAT, ",\"repetition_penalty\":1"), 0.6f, 0.9f, 20, 0.0f,
          1.0f);
    draws(drawn(w, GENERATE, ""), 0.0f, 1.0f, 0, 0.0f, 1.0f);
    stop(w);
    unlink(model_path);
    memcpy(model_path, before, sizeof(before));
}

/* A model's own template gets what is for it; a family refuses it. */
static void chat_template_gets_kwargs_and_documents(void **state)
{
    static const char body[] =
        "{" HI ",\"max_tokens\":2,\"documents\":[{\"t\":\"D\"}],"
        "\"chat_template_kwargs\":{\"mood\":\"calm<|im_end|>\"}}";
    bt_tiny_model_t shape = bt_tiny_model_default();
    world_t *w = &world;
    char before[256], text[256];
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    refused(w, CHAT, body, 400, "messages: ");
    stop(w);
    memcpy(before, model_path, sizeof(before));
    snprintf(model_path, sizeof(model_path), "/tmp/baton-test-template-%d",
             (int)getpid());
    shape.chat_template =
        "<|im_start|>{{ mood }}/{{ documents[0].t }}/{{ messages[0].content }}";
    assert_int_equal(bt_tiny_model_write(&shape, model_path), BT_OK);
    template_option = "";
    start(w, true);
    get(w, &ex, "/v1/models/tiny");
    has(&ex, "\"chat_template\":\"own\"");
    post(w, &ex, CHAT, body);
    text_of(w, request(w, 0), text);
    assert_string_equal(text, "@<|im_start|>calm<|im_end|>/D/Hi");
    answer(w, 0, "ab", BT_FINISH_LENGTH);
    stop(w);
    unlink(model_path);
    memcpy(model_path, before, sizeof(before));
    template_option = "chatml";
}

static void min_p_reaches_workers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":2,\"min_p\":0.125}");
    assert_true(request(w, 0)->sampling.min_p == 0.125f);
    answer(w, 0, "ab", BT_FINISH_LENGTH);
    stop(w);
}

static void reasoning_is_separated_from_content(void **state)
{
    static const char said[] = "[THINK]a[b[/THINK]c";
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    reasoning = "mistral";
    start(w, true);
    post(w, &ex, CHAT, "{" HI ",\"max_tokens\":30}");
    answer(w, 0, said, BT_FINISH_LENGTH);
    has(&ex,
        "\"content\":\"c\",\"reasoning_content\":\"a[b\",\"refusal\":null");
    post(w, &ex, CHAT, "{" HI ",\"max_tokens\":30,\"stream\":true}");
    answer(w, 1, said, BT_FINISH_LENGTH);
    has(&ex, "\"delta\":{\"reasoning_content\":\"a\"}");
    has(&ex, "\"delta\":{\"reasoning_content\":\"[b\"}");
    has(&ex, "\"delta\":{\"content\":\"c\"},\"logprobs\":null,"
             "\"finish_reason\":null");
    has(&ex, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"");
    assert_int_equal(ex.n_writes, 3);
    /* Ids and log-probs of tokens whose text is held back come with it. */
    post(w, &ex, CHAT,
         "{" HI ",\"max_tokens\":30,\"stream\":true,\"logprobs\":true}");
    answer(w, 2, "[THINK]a", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_writes, 1);
    has(&ex, "{\"token\":\"T\",\"logprob\":-0.25,");
    /* Where nobody asks for it, and where no chat is. */
    post(w, &ex, CHAT,
         "{" HI ",\"max_tokens\":30,\"separate_reasoning\":false}");
    answer(w, 3, said, BT_FINISH_LENGTH);
    has(&ex, "\"content\":\"[THINK]a[b[/THINK]c\",\"refusal\"");
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":30}");
    answer(w, 4, said, BT_FINISH_LENGTH);
    has(&ex, "\"text\":\"[THINK]a[b[/THINK]c\"");
    /* A prompt that opens it. */
    post(w, &ex, CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
         "{\"role\":\"assistant\",\"content\":\"[THINK]\"}],"
         "\"max_tokens\":30,\"continue_final_message\":true}");
    answer(w, 5, "so[/THINK]c", BT_FINISH_LENGTH);
    has(&ex, "\"content\":\"c\",\"reasoning_content\":\"so\"");
    stop(w);
    reasoning = "auto";
}

#define TOKENIZE   "/tokenize"
#define DETOKENIZE "/detokenize"

static void tokenize_and_detokenize_are_inverse(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, TOKENIZE, "{\"model\":\"tiny\",\"prompt\":\"Hi<|im_end|>\"}");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.out, "{\"count\":3,\"max_model_len\":512,"
                                "\"tokens\":[42,75,2],\"token_strs\":null}");
    post(w, &ex, TOKENIZE,
         "{\"prompt\":\"Hi<|im_end|>\",\"return_token_strs\":true,"
         "\"add_special_tokens\":false}");
    has(&ex, "\"token_strs\":[\"H\",\"i\",\"<|im_end|>\"]");
    /* The prompt of a chat; without the model, the first. */
    post(w, &ex, TOKENIZE,
         "{" HI ",\"add_generation_prompt\":false,\"return_token_strs\":true}");
    has(&ex, "\"token_strs\":[\"<|im_start|>\",\"u\",\"s\",\"er\",\"\\n\","
             "\"H\",\"i\",\"<|im_end|>\",\"\\n\"]}");
    post(w, &ex, DETOKENIZE, "{\"tokens\":[1,42,75,2]}");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.out, "{\"prompt\":\"<|im_start|>Hi<|im_end|>\"}");

    refused(w, TOKENIZE, "{}", 400, "either prompt or messages");
    refused(w, TOKENIZE, "{\"prompt\":\"a\"," HI "}", 400,
            "either prompt or messages");
    refused(w, TOKENIZE, "{\"prompt\":[1,2]}", 400,
            "prompt must be one string");
    refused(w, TOKENIZE, "{\"prompt\":\"a\",\"model\":\"x\"}", 404,
            "model_not_found");
    refused(w, TOKENIZE, "{" HI ",\"add_special_tokens\":true}", 400,
            "\"param\":\"add_special_tokens\"");
    refused(w, DETOKENIZE, "{\"tokens\":\"a\"}", 400, "a list of token ids");
    refused(w, DETOKENIZE, "{\"prompt\":[5]}", 400, "a list of token ids");
    refused(w, DETOKENIZE, "{\"tokens\":[99999]}", 400,
            "tokens has token id 99999; this model has ids 0 to 287");
    refused(w, DETOKENIZE, "{\"tokens\":[[1],[2]]}", 400,
            "a list of token ids");
    assert_int_equal(w->n_sent, 0);
    get(w, &ex, TOKENIZE);
    assert_int_equal(ex.status, 405);
    has(&ex, "{\"error\":{\"message\":");
    get(w, &ex, "/version");
    has(&ex, "{\"version\":\"");
    get(w, &ex, "/tokenizer_info");
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"model\":\"tiny\",\"bos_token\":\"<|im_start|>\","
             "\"eos_token\":\"<|im_end|>\","
             "\"unk_token\":\"<|endoftext|>\","
             "\"pad_token\":\"<|im_end|>\",\"model_max_length\":512}");
    post(w, &ex, "/tokenizer_info", "{}");
    assert_int_equal(ex.status, 405);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop(w);
}

/* Longer than the context, and answered from the pool. */
static void tokenize_accepts_text_longer_than_context(void **state)
{
    static char body[8192];
    world_t *w = &world;
    bt_exchange_t ex, gone;
    size_t n;

    (void)state;
    start(w, true);
    n = (size_t)snprintf(body, sizeof(body), "{\"prompt\":\"");
    memset(body + n, 'z', 5000);
    snprintf(body + n + 5000, sizeof(body) - n - 5000, "\"}");
    post(w, &ex, TOKENIZE, body);
    post(w, &gone, TOKENIZE, body);
    bt_door_gone(&w->door, &gone);
    assert_int_equal(ex.n_ends, 0);
    drain_pool(w);
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"count\":5000,\"max_model_len\":512,\"tokens\":[92,92,");
    assert_int_equal(gone.n_ends, 0);
    stop(w);
}

/* With no time left on the event loop. */
static void
a_short_text_over_the_time_limit_is_tokenized_by_the_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    inline_us = 0;
    start(w, true);
    inline_us = UINT32_MAX;
    post(w, &ex, CHAT, "{" HI ",\"max_tokens\":2}");
    assert_int_equal(w->n_sent, 0);
    drain_pool(w);
    answer(w, 0, "ab", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"content\":\"ab\"");
    stop(w);
}

static void tokenize_survives_every_failed_allocation(void **state)
{
    static const char *const calls[][2] = {
        {TOKENIZE, "{\"prompt\":\"Hi\"}"},
        {TOKENIZE, "{" HI "}"},
        {DETOKENIZE, "{\"tokens\":[1,42,75,2]}"}};
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(calls); i++) {
        int nth = 0;
        bt_exchange_t ex;

        do {
            bt_alloc_fail_at(++nth);
            post(w, &ex, calls[i][0], calls[i][1]);
            bt_alloc_fail_at(0);
            drain_pool(w);
            assert_int_equal(ex.n_ends, 1);
            assert_true((ex.status == 200) || (ex.status == 503));
            assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
        } while (ex.status != 200);
        assert_true(nth > 4);
    }
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(best_of_returns_choices_best_first),
        BT_TEST(include_stop_str_in_output_keeps_stop_word),
        BT_TEST(skip_special_tokens_false_returns_special_tokens),
        BT_TEST(usage_reports_cached_tokens),
        BT_TEST(return_token_ids_lists_ids_of_each_piece),
        BT_TEST(continue_final_message_continues_last_message),
        BT_TEST(unknown_fields_are_reported_or_refused),
        BT_TEST(without_a_word_the_server_draws_as_it_says_of_the_model),
        BT_TEST(model_file_sets_sampling_defaults),
        BT_TEST(chat_template_gets_kwargs_and_documents),
        BT_TEST(min_p_reaches_workers),
        BT_TEST(reasoning_is_separated_from_content),
        BT_TEST(tokenize_and_detokenize_are_inverse),
        BT_TEST(tokenize_accepts_text_longer_than_context),
        BT_TEST(a_short_text_over_the_time_limit_is_tokenized_by_the_pool),
        BT_TEST(tokenize_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
