/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs, logits and echo as clients read them. Forms: OpenAI's API
 * reference (completions, chat completions), and the answer printed in the
 * documentation of Triton's TensorRT-LLM backend. The values are score_of()'s.
 */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define N_VOCAB_MAX 1024

static bt_msg_t rows_of(const world_t *w, uint32_t n, bt_rows_kind_t kind,
                        uint32_t from, const void *data, uint32_t bytes)
{
    const sent_t *s = request(w, n);

    return (bt_msg_t){.type = BT_MSG_ROWS,
                      .u.rows = {.key = s->key,
                                 .kind = (uint32_t)kind,
                                 .from = from,
                                 .n_top = s->wants.n_top,
                                 .data = data,
                                 .data_bytes = bytes}};
}

static void say(world_t *w, bt_instance_t *from, const bt_msg_t *msg)
{
    assert_int_equal(bt_core_message(w->core, from, msg, bt_now_us()), BT_OK);
}

/* Log-prob of token @a at of the prompt: -at - 1/2, and '!' a half above. */
static void say_prompt(world_t *w, uint32_t n, uint32_t at)
{
    uint8_t bytes[BT_SCORE_BYTES(1)];
    bt_score_t score = {.logprob = -(double)at - 0.5, .n_top = 1};
    bt_msg_t msg;

    score.top_ids[0] = 3;
    score.top_logprobs[0] = -(double)at;
    bt_score_put(&score, bytes);
    msg = rows_of(w, n, BT_ROWS_PROMPT_LOGPROBS, at, bytes,
                  BT_SCORE_BYTES(request(w, n)->wants.n_top));
    say(w, w->p, &msg);
}

static void completions_logprobs_list_tokens_top_and_offsets(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":3,\"logprobs\":1}");
    assert_int_equal(request(w, 0)->wants.what, BT_WANT_LOGPROBS);
    answer(w, 0, "y!\"", BT_FINISH_LENGTH);
    has(&ex, "\"text\":\"y!\\\"\",\"logprobs\":{\"text_offset\":[0,1,2],"
             "\"token_logprobs\":[-0.125,-0.25,-0.375],"
             "\"tokens\":[\"y\",\"!\",\"\\\"\"],\"top_logprobs\":["
             "{\"!\":-0.0625,\"y\":-0.125},{\"!\":-0.125},"
             "{\"!\":-0.1875,\"\\\"\":-0.375}]},\"finish_reason\"");
    /* None beside the tokens themselves. */
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":2,\"logprobs\":0}");
    answer(w, 1, "ab", BT_FINISH_LENGTH);
    has(&ex, "\"top_logprobs\":[{\"a\":-0.125},{\"b\":-0.25}]}");
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":2}");
    assert_int_equal(request(w, 2)->wants.what, 0);
    answer(w, 2, "ab", BT_FINISH_LENGTH);
    has(&ex, "\"logprobs\":null,");
    stop(w);
}

static void chat_logprobs_list_content_with_bytes(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
         "\"max_tokens\":2,\"logprobs\":true,\"top_logprobs\":1}");
    answer(w, 0, "y\"", BT_FINISH_LENGTH);
    has(&ex, "\"refusal\":null},\"logprobs\":{\"content\":["
             "{\"token\":\"y\",\"logprob\":-0.125,\"bytes\":[121],"
             "\"top_logprobs\":[{\"token\":\"!\",\"logprob\":-0.0625,"
             "\"bytes\":[33]}]},"
             "{\"token\":\"\\\"\",\"logprob\":-0.25,\"bytes\":[34],"
             "\"top_logprobs\":[{\"token\":\"!\",\"logprob\":-0.125,"
             "\"bytes\":[33]}]}],\"refusal\":null},\"finish_reason\"");
    stop(w);
}

/* Pieces of text carry the tokens that came since the last; so does the end,
 * with those whose text was held back for a stop word. */
static void streamed_logprobs_list_each_token_once(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":9,\"logprobs\":0,\"stream\":true,"
         "\"stop\":\"END\"}");
    answer(w, 0, "aENcEND", BT_FINISH_NONE);
    has(&ex, "\"text\":\"a\",\"logprobs\":{\"text_offset\":[0],"
             "\"token_logprobs\":[-0.125],\"tokens\":[\"a\"],");
    has(&ex, "\"text\":\"ENc\",\"logprobs\":{\"text_offset\":[1,2,3],"
             "\"token_logprobs\":[-0.25,-0.375,-0.5],"
             "\"tokens\":[\"E\",\"N\",\"c\"],");
    has(&ex, "\"text\":\"\",\"logprobs\":{\"text_offset\":[4,5,6],"
             "\"token_logprobs\":[-0.625,-0.75,-0.875],"
             "\"tokens\":[\"E\",\"N\",\"D\"],");
    has(&ex, "\"finish_reason\":\"stop\"");
    stop(w);
}

static void echo_includes_prompt_logprobs(void **state)
{
    static const char *const prompts[] = {"\"H#i\"", "[42,258,75]"};
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(prompts); i++) {
        char body[256];
        bt_exchange_t ex;

        w->n_sent = 0;
        snprintf(body, sizeof(body),
                 "{\"prompt\":%s,\"max_tokens\":1,\"echo\":true,"
                 "\"logprobs\":1}",
                 prompts[i]);
        post(w, &ex, COMPLETIONS, body);
        assert_int_equal(request(w, 0)->wants.what,
                         BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS);
        assert_int_equal(request(w, 0)->n_tokens, 3);
        say_prompt(w, 0, 1);
        say_prompt(w, 0, 2);
        tokens(w, w->p, 0, 0, "y", BT_FINISH_LENGTH);
        assert_int_equal(ex.status, 200);
        if (i == 0) {
            has(&ex, "\"text\":\"H#iy\",\"logprobs\":{"
                     "\"text_offset\":[0,1,2,3],\"token_logprobs\":[null,-1.5,"
                     "-2.5,-0.125],\"tokens\":[\"H\",\"#\",\"i\",\"y\"],"
                     "\"top_logprobs\":[null,{\"!\":-1,\"#\":-1.5},"
                     "{\"!\":-2,\"i\":-2.5},{\"!\":-0.0625,\"y\":-0.125}]}");
        } else { /* id 258 is half a character */
            has(&ex, "\"text_offset\":[0,1,2,3]");
            has(&ex, "\"tokens\":[\"H\",\"bytes:\\\\x");
        }
        has(&ex, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,");
        ended(w, 0);
    }
    stop(w);
}

/* No tokens are asked for: that which is drawn is not told. */
static void echo_with_zero_max_tokens_returns_prompt_only(void **state)
{
#define ECHO "{\"prompt\":\"Hi\",\"max_tokens\":0,\"echo\":true"
    static const char *const bodies[] = {
        ECHO "}", ECHO ",\"stream\":true}", ECHO ",\"logprobs\":0}",
        ECHO ",\"logprobs\":0,\"stream\":true}"};
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        bt_exchange_t ex;

        w->n_sent = 0;
        post(w, &ex, COMPLETIONS, bodies[i]);
        assert_int_equal(request(w, 0)->max_new, 1);
        if (request(w, 0)->wants.what != 0) {
            say_prompt(w, 0, 1);
        }
        tokens(w, w->p, 0, 0, "y", BT_FINISH_STOP);
        assert_int_equal(ex.status, 200);
        has(&ex, "\"text\":\"Hi\"");
        has(&ex, "\"finish_reason\":\"length\"");
        if (i % 2 == 0) {
            has(&ex, "\"completion_tokens\":0");
        }
        if (i >= 2) {
            has(&ex, "\"logprobs\":{\"text_offset\":[0,1],"
                     "\"token_logprobs\":[null,-1.5],\"tokens\":[\"H\",\"i\"],"
                     "\"top_logprobs\":[null,{\"i\":-1.5}]}");
        }
        ended(w, 0);
    }
    stop(w);
}

/* A BOS is no text; other special tokens are, as they are spelled. */
static void echo_of_ids_spells_special_tokens(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":[1,42,2,75],\"max_tokens\":0,\"echo\":true,"
         "\"logprobs\":0}");
    for (uint32_t at = 1; at < 4; at++) {
        say_prompt(w, 0, at);
    }
    tokens(w, w->p, 0, 0, "y", BT_FINISH_STOP);
    has(&ex, "\"text\":\"H<|im_end|>i\"");
    has(&ex, "\"text_offset\":[0,0,1,11]");
    has(&ex, "\"tokens\":[\"<|im_start|>\",\"H\",\"<|im_end|>\",\"i\"]");
    ended(w, 0);
    /* A BOS alone, which was answered as want of memory. */
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":[1],\"max_tokens\":1,\"echo\":true}");
    tokens(w, w->p, 1, 0, "y", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"text\":\"y\"");
    ended(w, 1);
    stop(w);
}

static void generate_logprobs_use_triton_names(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, GENERATE,
         "{\"text_input\":\"Hi\",\"max_tokens\":3,\"return_log_probs\":true}");
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    has(&ex, "\"text_output\":\"Hiyes\",\"cum_log_probs\":-0.75,"
             "\"output_log_probs\":[-0.125,-0.25,-0.375]}");
    post(w, &ex, STREAM,
         "{\"text_input\":\"Hi\",\"max_tokens\":3,\"return_log_probs\":true}");
    answer(w, 1, "yes", BT_FINISH_LENGTH);
    has(&ex, "\"text_output\":\"y\",\"cum_log_probs\":-0.125,"
             "\"output_log_probs\":[-0.125]}");
    has(&ex, "\"text_output\":\"s\",\"cum_log_probs\":-0.75,"
             "\"output_log_probs\":[-0.375]}");
    stop(w);
}

static void generate_lists_logits_in_row_order(void **state)
{
    world_t *w = &world;
    const char *at;
    bt_exchange_t ex;
    float floats[N_VOCAB_MAX];
    uint32_t n_vocab;
    bt_msg_t msg;

    (void)state;
    start(w, true);
    w->door.inline_bytes = SIZE_MAX; /* not by the pool */
    n_vocab = bt_tokenizer_n_vocab(w->served->tok);
    assert_true(n_vocab < N_VOCAB_MAX);
    post(w, &ex, GENERATE,
         "{\"text_input\":\"Hi\",\"max_tokens\":2,"
         "\"return_generation_logits\":true,\"return_context_logits\":true}");
    assert_int_equal(request(w, 0)->wants.what, BT_WANT_ANY_LOGITS);
    for (uint32_t row = 0; row < 2; row++) {
        for (uint32_t i = 0; i < n_vocab; i++) {
            floats[i] = (float)row + 0.5f;
        }
        msg = rows_of(w, 0, BT_ROWS_PROMPT_LOGITS, row, floats, 4 * n_vocab);
        say(w, w->p, &msg);
        for (uint32_t i = 0; i < n_vocab; i++) {
            floats[i] = -(float)row - 0.25f;
        }
        msg = rows_of(w, 0, BT_ROWS_LOGITS, row, floats, 4 * n_vocab);
        say(w, (row == 0) ? w->p : w->d, &msg);
    }
    answer(w, 0, "ye", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"text_output\":\"Hiye\",\"context_logits\":[0.5,0.5,");
    has(&ex, "0.5,1.5,");
    has(&ex, "1.5],\"generation_logits\":[-0.25,");
    has(&ex, "-0.25,-1.25,");
    at = strstr(ex.out, "generation_logits");
    for (uint32_t i = 1; i < 2 * n_vocab; i++) {
        at = strchr(at, ',');
        assert_non_null(at);
        at++;
    }
    assert_null(strchr(at, ','));
    stop(w);
}

static void logits_over_limit_are_refused_by_name(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    w->config.max_logits_bytes = 5000;
    refused(w, GENERATE,
            "{\"text_input\":\"Hi\",\"max_tokens\":40,"
            "\"return_generation_logits\":true}",
            400, "of the server's option max-logits-bytes");
    w->config.max_logits_bytes = 1u << 20;
    refused(w, STREAM,
            "{\"text_input\":\"Hi\",\"max_tokens\":40,"
            "\"return_generation_logits\":true}",
            400, "client-buffer-bytes");
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(completions_logprobs_list_tokens_top_and_offsets),
        BT_TEST(chat_logprobs_list_content_with_bytes),
        BT_TEST(streamed_logprobs_list_each_token_once),
        BT_TEST(echo_includes_prompt_logprobs),
        BT_TEST(echo_with_zero_max_tokens_returns_prompt_only),
        BT_TEST(echo_of_ids_spells_special_tokens),
        BT_TEST(generate_logprobs_use_triton_names),
        BT_TEST(generate_lists_logits_in_row_order),
        BT_TEST(logits_over_limit_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
