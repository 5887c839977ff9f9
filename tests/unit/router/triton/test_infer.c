/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tensors: batches, ids, streams, packed bodies; over HTTP, and
 * through a written door that streams. */
#include "tests/unit/router/triton/infer_fixture.h"

#include "common/base/status.h"
#include "common/zip/zip.h"

/* ---- HTTP ---- */

static void batch_is_answered_once_in_any_end_order(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(
        w, &ex, INFER("ensemble"),
        "{\"id\":\"17\",\"inputs\":[" T(
            "text_input", "BYTES", "[3,1]",
            "[\"A\",\"BB\",\"C\"]") "," T("max_tokens", "INT32", "[3,1]",
                                          "[[2],[3],[4]]") "," T("exclude_input_in_output",
                                                                 "BOOL",
                                                                 "[1,1]",
                                                                 "[true]") "]}");
    assert_int_equal(request(w, 0)->max_new, 2);
    assert_int_equal(request(w, 1)->n_tokens, 2);
    assert_int_equal(request(w, 1)->max_new, 3);
    assert_int_equal(request(w, 2)->max_new, 4);
    answer(w, 2, "zzzz", BT_FINISH_LENGTH);
    answer(w, 0, "xx", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 0);
    answer(w, 1, "yyy", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 200);
    assert_string_equal(
        ex.out, "{\"id\":\"17\",\"model_name\":\"ensemble\",\"model_version\":"
                "\"1\",\"outputs\":[{\"name\":\"text_output\",\"datatype\":"
                "\"BYTES\",\"shape\":[3],\"data\":[\"xx\",\"yyy\",\"zzzz\"]},"
                "{\"name\":\"batch_index\",\"datatype\":\"INT32\",\"shape\":"
                "[3,1],\"data\":[0,1,2]}]}");
    stop(w);
}

static void text_output_includes_prompt_by_default(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("tiny") "/",
         BODY(T("text_input", "BYTES", "[1,1]", "[\"Hi\"]")));
    assert_int_equal(request(w, 0)->max_new, BT_DEFAULT_MAX_TOKENS);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    has(&ex, "\"model_name\":\"tiny\"");
    has(&ex, "\"shape\":[1],\"data\":[\"Hiyes\"]");
    stop(w);
}

static void output_ids_include_prompt_without_end_id(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("tensorrt_llm"),
         BODY(T("input_ids", "INT32", "[2,2]", "[5,6,7,0]") "," T(
             "input_lengths", "INT32", "[2,1]",
             "[2,1]") "," T("pad_id", "INT32", "[1,1]", "[99]")));
    assert_int_equal(request(w, 0)->tokens[1], 6);
    assert_int_equal(request(w, 1)->n_tokens, 1);
    answer(w, 0, "!\"#", BT_FINISH_STOP); /* ids 3 and 4; 5 ends it */
    answer(w, 1, "!#", BT_FINISH_LENGTH);
    has(&ex, "{\"name\":\"output_ids\",\"datatype\":\"INT32\",\"shape\":"
             "[2,1,4],\"data\":[5,6,3,4,7,3,5,99]}");
    has(&ex, "{\"name\":\"sequence_length\",\"datatype\":\"INT32\",\"shape\":"
             "[2,1],\"data\":[4,3]}");
    stop(w);
}

static void stop_word_ids_end_output_and_stay_in_it(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(
        w, &ex, INFER("tensorrt_llm"),
        BODY(T("input_ids", "INT32", "[1,1]", "[5]") "," T(
            "stop_words_list", "INT32", "[1,2,2]",
            "[[[4,5],[2,-1]]]") "," T("bad_words_list", "INT32", "[1,2,2]",
                                      "[[[8,9],[1,2]]]") "," T("exclude_input_in_output",
                                                               "BOOL", "[1,1]",
                                                               "[true]")));
    assert_int_equal(request(w, 0)->n_bad_words, 2);
    assert_int_equal(request(w, 0)->bad_words[1].ids[0], 9);
    tokens(w, w->p, 0, 0, "!", BT_FINISH_NONE);      /* 3 */
    tokens(w, w->d, 0, 1, "\"\"#$", BT_FINISH_NONE); /* 4 4 5 6 */
    ended(w, 0);
    has(&ex, "\"data\":[3,4,4,5]");
    stop(w);
}

static void embedding_bias_words_reach_workers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]") "," T(
             "embedding_bias_words", "BYTES", "[1,2]",
             "[\"B\",\"B\"]") "," T("embedding_bias_weights", "FP32", "[1,2]",
                                    "[1.5,2]")));
    assert_int_equal(request(w, 0)->n_logit_biases, 1);
    assert_int_equal(request(w, 0)->logit_biases[0].id, id_of('B'));
    assert_true(request(w, 0)->logit_biases[0].bias == 3.5f);
    answer(w, 0, "xy", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    refused(w, INFER("ensemble"),
            BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]") "," T(
                "embedding_bias_words", "BYTES", "[1,2]",
                "[\"B\",\"B\"]") "," T("embedding_bias_weights", "FP32",
                                       "[1,2]", "[60,60]")),
            400, "embedding_bias_words");
    stop(w);
}

static void preprocessing_and_postprocessing_run_alone(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("preprocessing"),
         BODY(T("QUERY", "BYTES", "[2,1]", "[\"!#\",\"$\"]") "," T(
             "REQUEST_OUTPUT_LEN", "INT32", "[2,1]",
             "[7,8]") "," T("STOP_WORDS_DICT", "BYTES", "[2,1]",
                            "[\"!#\",\"\"]") "," T("PAD_ID", "INT32", "[2,1]",
                                                   "[9,9]")));
    has(&ex, "\"name\":\"INPUT_ID\",\"datatype\":\"INT32\",\"shape\":[2,2],"
             "\"data\":[3,5,6,9]");
    has(&ex, "\"name\":\"REQUEST_INPUT_LEN\",\"datatype\":\"INT32\",\"shape\":"
             "[2,1],\"data\":[2,1]");
    has(&ex, "\"name\":\"STOP_WORDS_IDS\",\"datatype\":\"INT32\",\"shape\":"
             "[2,2,2],\"data\":[3,5,2,-1,0,0,-1,-1]");
    has(&ex, "\"name\":\"BAD_WORDS_IDS\",\"datatype\":\"INT32\",\"shape\":"
             "[2,2,1],\"data\":[0,-1,0,-1]");
    has(&ex, "\"name\":\"REQUEST_OUTPUT_LEN\",\"datatype\":\"INT32\",\"shape\":"
             "[2,1],\"data\":[7,8]");
    has(&ex, "\"name\":\"OUT_PAD_ID\",\"datatype\":\"INT32\",\"shape\":[2,1],"
             "\"data\":[9,9]");
    post(w, &ex, INFER("postprocessing"),
         BODY(T("TOKENS_BATCH", "INT32", "[2,1,2]", "[3,5,6,9]") "," T(
             "SEQUENCE_LENGTH", "INT32", "[2,1]", "[2,1]")));
    has(&ex, "\"name\":\"OUTPUT\",\"datatype\":\"BYTES\",\"shape\":[2],"
             "\"data\":[\"!#\",\"$\"]");
    refused(w, INFER("postprocessing"),
            BODY(T("TOKENS_BATCH", "INT32", "[1,1,1]", "[100000]")), 400,
            "TOKENS_BATCH");
    refused(w, INFER("postprocessing"),
            BODY(T("TOKENS_BATCH", "INT32", "[1,1,1]",
                   "[3]") "," T("SEQUENCE_LENGTH", "INT32", "[1,1]", "[2]")),
            400, "SEQUENCE_LENGTH");
    assert_int_equal(w->n_sent, 0);
    stop(w);
}

static void refusals_have_triton_error_form(void **state)
{
    static const char text[] =
        BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]"));
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    refused(w, INFER("ensemble"), "{", 400,
            "{\"error\":\"failed to parse the request JSON buffer");
    refused(w, INFER("other"), text, 404, "model 'other'");
    refused(w, "/v2/models/ensemble/versions/7/infer", text, 404, "version 1");
    refused(w, INFER("ensemble"),
            "{\"inputs\":[" T("text_input", "BYTES", "[1,1]",
                              "[\"A\"]") "],\"outputs\":[{\"name\":\"x\"}]}",
            400, "unexpected inference output 'x'");
    refused(w, INFER("ensemble"),
            BODY(T("text_input", "BYTES", "[9,1]",
                   "[\"A\",\"A\",\"A\",\"A\",\"A\",\"A\",\"A\",\"A\",\"A\"]")),
            429, "the limit is 8");
    refused(w, INFER("tensorrt_llm"),
            BODY(T("input_ids", "INT32", "[1,1]", "[100000]")), 400,
            "input_ids has token id 100000");
    refused(w, INFER("ensemble"),
            "{\"inputs\":[" T("text_input", "BYTES", "[1,1]",
                              "[\"A\"]") "],\"outputs\":[{\"name\":"
                                         "\"text_output\",\"parameters\":"
                                         "{\"shared_memory_region\":\"r\"}}]}",
            400, "text_output: shared_memory_region");
    refused(w, INFER("tensorrt_llm"),
            "{\"inputs\":[{\"name\":\"input_ids\",\"datatype\":\"INT32\","
            "\"shape\":[1,1],\"parameters\":{\"shared_memory_region\":\"r\","
            "\"shared_memory_byte_size\":4}}]}",
            400, "input_ids: shared_memory_region");
    /* Its first row runs before the second is refused. */
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[2,1]", "[\"A\",\"A\"]") "," T(
             "max_tokens", "INT32", "[2,1]", "[2,1000]")));
    assert_int_equal(ex.status, 400);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "1000 in the completion");
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop(w);
}

static void failed_row_cancels_whole_batch(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[3,1]", "[\"A\",\"B\",\"C\"]")));
    answer(w, 0, "xy", BT_FINISH_LENGTH);
    bt_frontend_end_all(&w->front, "the server is stopping", bt_now_us());
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 503);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    stop(w);
}

static void client_disconnect_cancels_all_rows(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    uint32_t n_canceled;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[3,1]", "[\"A\",\"B\",\"C\"]")));
    answer(w, 0, "xy", BT_FINISH_LENGTH);
    assert_int_equal(bt_core_n_in_flight(w->core), 2);
    n_canceled = count(w, BT_MSG_CANCEL);
    bt_door_gone(&w->door, &ex);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(count(w, BT_MSG_CANCEL), n_canceled + 4);
    assert_int_equal(ex.n_ends, 0);
    stop(w);
}

/* ---- packed ---- */

static void post_packed(world_t *w, bt_exchange_t *ex, const char *coding,
                        const void *body, size_t bytes)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = INFER("ensemble");
    ex->body = body;
    ex->body_bytes = bytes;
    ex->coding = coding;
    ex->accepted = "br;q=1, deflate;q=0, gzip";
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static void compressed_bodies_and_answers_are_supported(void **state)
{
    static const char text[] =
        BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]"));
    world_t *w = &world;
    bt_exchange_t ex;
    bt_strbuf_t packed;
    bt_strbuf_t back;

    (void)state;
    start(w, true);
    bt_strbuf_init(&packed, 4096);
    bt_strbuf_init(&back, 4096);
    assert_int_equal(bt_zip(BT_ZIP_DEFLATE, text, strlen(text), &packed),
                     BT_OK);
    post_packed(w, &ex, "deflate", packed.data, packed.len);
    drain_pool(w);
    answer(w, 0, "xy", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    assert_non_null(strstr(ex.headers, "Content-Encoding: gzip\n"));
    assert_int_equal(bt_unzip(BT_ZIP_GZIP, ex.out, ex.out_bytes, &back), BT_OK);
    assert_non_null(strstr(back.data, "[\"Axy\"]"));

    post_packed(w, &ex, "gzip", packed.data, packed.len);
    drain_pool(w);
    assert_int_equal(ex.status, 400);
    has(&ex, "Content-Encoding");
    post_packed(w, &ex, "deflate", packed.data, packed.len);
    bt_door_gone(&w->door, &ex); /* before it is unpacked */
    drain_pool(w);
    most_lent = 100;
    post_packed(w, &ex, "deflate", packed.data, packed.len);
    most_lent = SIZE_MAX;
    assert_int_equal(ex.status, 503);
    bt_strbuf_fini(&back);
    bt_strbuf_fini(&packed);
    stop(w);
}

static void body_over_limit_after_decompression_gets_413(void **state)
{
    const size_t bytes = (1u << 20) + 1; /* max_body_bytes and one more */
    world_t *w = &world;
    bt_exchange_t ex;
    bt_strbuf_t packed;
    char *blanks = bt_calloc(1, bytes);

    (void)state;
    start(w, true);
    memset(blanks, ' ', bytes);
    bt_strbuf_init(&packed, 65536);
    assert_int_equal(bt_zip(BT_ZIP_GZIP, blanks, bytes, &packed), BT_OK);
    post_packed(w, &ex, "gzip", packed.data, packed.len);
    drain_pool(w);
    assert_int_equal(ex.status, 413);
    bt_strbuf_fini(&packed);
    bt_free(blanks);
    stop(w);
}

static void long_answers_are_written_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    w->door.inline_bytes = 3;
    post(w, &ex, INFER("ensemble"),
         "{\"id\":\"5\",\"inputs\":[" T("text_input", "BYTES", "[1,1]",
                                        "[\"A\"]") "],\"outputs\":[{\"name\":"
                                                   "\"text_output\"}]}");
    answer(w, 0, "xy", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
    drain_pool(w);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "\"id\":\"5\"");
    has(&ex, "[\"Axy\"]");
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]")));
    answer(w, 1, "xy", BT_FINISH_LENGTH);
    bt_door_gone(&w->door, &ex);
    drain_pool(w);
    assert_int_equal(ex.n_ends, 0);
    stop(w);
}

/* ---- streams ---- */

static void text_stream_sends_new_text_only(void **state)
{
    world_t *w = &world;
    stream_t s = {0};

    (void)state;
    start(w, true);
    begin(w, &s, "ensemble", NULL,
          BODY(T("text_input", "BYTES", "[2,1]",
                 "[\"A\",\"B\"]") "," T("stream", "BOOL", "[1,1]", "[true]")));
    answer(w, 1, "xyE", BT_FINISH_STOP);
    tokens(w, w->p, 0, 0, "z", BT_FINISH_NONE);
    assert_int_equal(s.n_finished, 0);
    tokens(w, w->d, 0, 1, "w", BT_FINISH_LENGTH);
    assert_string_equal(s.text, "1:x;1:y;0:z;0:w;");
    assert_int_equal(s.n_finished, 1);
    assert_non_null(strstr(s.last, "\"outputs\":[]"));
    assert_int_equal(s.n_output, 5);
    stop(w);
}

static void ids_stream_sends_one_response_per_token(void **state)
{
    world_t *w = &world;
    stream_t s = {0};

    (void)state;
    start(w, true);
    begin(w, &s, "tensorrt_llm", NULL,
          BODY(T("input_ids", "INT32", "[1,2]",
                 "[5,6]") "," T("streaming", "BOOL", "[1,1]", "[true]")));
    tokens(w, w->p, 0, 0, "!", BT_FINISH_NONE);
    assert_non_null(strstr(s.last, "\"shape\":[1,1,1],\"data\":[3]"));
    assert_non_null(strstr(s.last, "\"shape\":[1,1],\"data\":[1]"));
    tokens(w, w->d, 0, 1, "\"", BT_FINISH_NONE);
    assert_non_null(strstr(s.last, "\"data\":[4]"));
    tokens(w, w->d, 0, 2, "#", BT_FINISH_STOP); /* the end id is none of it */
    ended(w, 0);
    assert_string_equal(s.text, "0:1;0:1;0:0;");
    assert_int_equal(s.n_final, 1);
    assert_int_equal(s.n_finished, 1);
    stop(w);
}

static void batch_on_stream_without_streaming_answers_row_by_row(void **state)
{
    world_t *w = &world;
    stream_t s = {0};

    (void)state;
    start(w, true);
    begin(w, &s, "ensemble", NULL,
          BODY(T("text_input", "BYTES", "[2,1]", "[\"A\",\"B\"]")));
    answer(w, 1, "xy", BT_FINISH_LENGTH);
    assert_string_equal(s.text, "1:Bxy;");
    assert_non_null(strstr(s.last, "batch_index"));
    assert_non_null(strstr(s.last, "\"data\":[1]"));
    answer(w, 0, "z!", BT_FINISH_LENGTH);
    assert_string_equal(s.text, "1:Bxy;0:Az!;");
    assert_int_equal(s.n_ends_of_rows, 2);
    assert_int_equal(s.n_finished, 1);

    /* One row alone is one response. */
    begin(w, &s, "ensemble", NULL,
          BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]")));
    answer(w, 2, "xy", BT_FINISH_LENGTH);
    assert_int_equal(s.n_pieces, 0);
    assert_non_null(strstr(s.last, "[\"Axy\"]"));
    stop(w);
}

static void client_disconnect_within_piece_is_safe(void **state)
{
    world_t *w = &world;
    stream_t s = {.leave_after = 1};

    (void)state;
    start(w, true);
    begin(w, &s, "ensemble", NULL,
          BODY(T("text_input", "BYTES", "[2,1]",
                 "[\"A\",\"B\"]") "," T("stream", "BOOL", "[1,1]", "[true]")));
    tokens(w, w->p, 0, 0, "x", BT_FINISH_NONE);
    assert_int_equal(s.n_pieces, 1);
    assert_int_equal(s.n_finished + s.n_errors, 0);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    stop(w);
}

/* ---- log-probs and logits ---- */

#define ON(name)    T(name, "BOOL", "[1,1]", "[true]")
#define N_VOCAB_MAX 1024

/* Row @a row of the prompt's logits is all row + 1/2, of the answer's all
 * -row - 1/4. */
static void say_logits(world_t *w, bt_instance_t *from, uint32_t n,
                       bt_rows_kind_t kind, uint32_t row)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);
    const float value =
        (kind == BT_ROWS_LOGITS) ? -(float)row - 0.25f : (float)row + 0.5f;
    float floats[N_VOCAB_MAX];
    bt_msg_t msg = {.type = BT_MSG_ROWS};

    assert_true(n_vocab <= N_VOCAB_MAX);
    for (uint32_t i = 0; i < n_vocab; i++) {
        floats[i] = value;
    }
    msg.u.rows = (bt_msg_rows_t){.key = request(w, n)->key,
                                 .kind = (uint32_t)kind,
                                 .from = row,
                                 .data = (const uint8_t *)floats,
                                 .data_bytes = 4 * n_vocab};
    assert_int_equal(bt_core_message(w->core, from, &msg, bt_now_us()), BT_OK);
}

static const char *shaped(const world_t *w, const char *name, const char *shape)
{
    static char text[256];

    snprintf(text, sizeof(text),
             "{\"name\":\"%s\",\"datatype\":\"FP32\",\"shape\":[%s,%u],"
             "\"data\":[",
             name, shape, bt_tokenizer_n_vocab(w->served->tok));
    return text;
}

static void lacks(const bt_exchange_t *ex, const char *part)
{
    if (strstr(ex->out, part) != NULL) {
        fail_msg("\"%s\" is in \"%s\"", part, ex->out);
    }
}

static void output_log_probs_tensor_has_row_per_prompt(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[2,1]",
                "[\"A\",\"B\"]") "," ON("return_log_probs")));
    assert_int_equal(request(w, 1)->wants.what, BT_WANT_LOGPROBS);
    answer(w, 1, "ab", BT_FINISH_LENGTH);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"name\":\"cum_log_probs\",\"datatype\":\"FP32\","
             "\"shape\":[2,1],\"data\":[-0.75,-0.375]}");
    has(&ex, "{\"name\":\"output_log_probs\",\"datatype\":\"FP32\","
             "\"shape\":[2,1,3],\"data\":[-0.125,-0.25,-0.375,"
             "-0.125,-0.25,0");
    lacks(&ex, "logits");
    post(w, &ex, INFER("ensemble"),
         BODY(T("text_input", "BYTES", "[1,1]", "[\"A\"]")));
    assert_int_equal(request(w, 2)->wants.what, 0);
    answer(w, 2, "ab", BT_FINISH_LENGTH);
    lacks(&ex, "log_probs");
    stop(w);
}

/* The second row is shorter, of prompt and of answer. */
static void batch_logits_are_copied_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(
        w, &ex, INFER("tensorrt_llm"),
        BODY(T("input_ids", "INT32", "[2,2]", "[5,6,7,0]") "," T(
            "input_lengths", "INT32", "[2,1]",
            "[2,1]") "," ON("return_context_logits") "," ON("return_generation_logits")));
    assert_int_equal(request(w, 0)->wants.what, BT_WANT_ANY_LOGITS);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t row = 0; row < 2 - i; row++) {
            say_logits(w, w->p, i, BT_ROWS_PROMPT_LOGITS, row);
        }
        say_logits(w, w->p, i, BT_ROWS_LOGITS, 0);
    }
    say_logits(w, w->d, 0, BT_ROWS_LOGITS, 1);
    answer(w, 0, "ye", BT_FINISH_LENGTH);
    tokens(w, w->p, 1, 0, "x", BT_FINISH_LENGTH);
    ended(w, 1);
    drain_pool(w);
    assert_int_equal(ex.status, 200);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    has(&ex, shaped(w, "context_logits", "2,2"));
    has(&ex, ",0.5,1.5,");
    has(&ex, ",1.5,0.5,");
    has(&ex, ",0.5,0");
    has(&ex, shaped(w, "generation_logits", "2,1,2"));
    has(&ex, ",-0.25,-1.25,");
    has(&ex, ",-1.25,-0.25,");
    lacks(&ex, "logtis");
    stop(w);
}

static void client_disconnect_while_logits_are_copied_is_safe(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, INFER("tensorrt_llm"),
         BODY(T("input_ids", "INT32", "[2,1]",
                "[5,6]") "," ON("return_generation_logits")));
    for (uint32_t i = 0; i < 2; i++) {
        say_logits(w, w->p, i, BT_ROWS_LOGITS, 0);
        tokens(w, w->p, i, 0, "x", BT_FINISH_LENGTH);
        ended(w, i);
    }
    bt_door_gone(&w->door, &ex);
    drain_pool(w);
    assert_int_equal(ex.n_ends, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop(w);
}

static void stream_has_logprobs_per_piece_and_logits_at_end(void **state)
{
    world_t *w = &world;
    stream_t s = {0};

    (void)state;
    start(w, true);
    begin(
        w, &s, "tensorrt_llm", NULL,
        "{\"inputs\":[" T("input_ids", "INT32", "[1,2]", "[5,6]") "," ON("streaming") "," ON(
            "return_log_probs") "," ON("return_generation_logits") "],\"outputs\":["
                                                                   "{\"name\":\"output_ids\"},{\"name\":\"cum_log_probs\"},"
                                                                   "{\"name\":\"output_log_probs\"},"
                                                                   "{\"name\":\"generation_logtis\"}]}");
    for (uint32_t i = 0; i < 2; i++) {
        say_logits(w, (i == 0) ? w->p : w->d, 0, BT_ROWS_LOGITS, i);
    }
    tokens(w, w->p, 0, 0, "!", BT_FINISH_NONE);
    assert_int_equal(s.n_pieces, 1);
    assert_non_null(strstr(s.last, "[1,1],\"data\":[-0.125]"));
    assert_non_null(strstr(s.last, "[1,1,1],\"data\":[-0.125]"));
    assert_null(strstr(s.last, "logtis"));
    /* An end id is no id of the answer, but was drawn. */
    tokens(w, w->d, 0, 1, "#", BT_FINISH_STOP);
    ended(w, 0);
    assert_string_equal(s.text, "0:1;0:0;");
    assert_int_equal(s.n_finished, 1);
    stop(w);
}

static void logits_over_limits_are_refused_by_name(void **state)
{
    static const char one[] =
        BODY(T("text_input", "BYTES", "[1,1]",
               "[\"A\"]") "," T("max_tokens", "INT32", "[1,1]",
                                "[40]") "," ON("return_generation_logits"));
    static const char two[] =
        BODY(T("text_input", "BYTES", "[2,1]", "[\"A\",\"B\"]") "," T(
            "max_tokens", "INT32", "[1,1]",
            "[40]") "," ON("return_generation_logits"));
    world_t *w = &world;
    stream_t s = {0};

    (void)state;
    start(w, true);
    w->config.max_logits_bytes = 5000;
    refused(w, INFER("ensemble"), one, 400,
            "of the server's option max-logits-bytes");
    w->config.max_logits_bytes = 1u << 20;
    /* Where rows are told by themselves their client must take them all. */
    w->config.client_buffer_bytes = 5000;
    begin(w, &s, "ensemble", NULL, two);
    assert_int_equal(s.n_errors, 1);
    assert_int_equal(s.status, 400);
    assert_non_null(strstr(s.last, "client-buffer-bytes (5000)"));
    begin(w, &s, "ensemble", NULL, one);
    assert_int_equal(s.n_errors, 0);
    leave_early(&s);
    stop(w);
}

/* ---- short memory ---- */

static void with_short_memory(const char *path, const char *body)
{
    world_t *w = &world;
    bool ok = false;

    for (int nth = 1; !ok; nth++) {
        bt_exchange_t ex;

        start(w, true);
        bt_alloc_fail_at(nth);
        post(w, &ex, path, body);
        for (uint32_t i = 0; (i < 2) && (ex.n_ends == 0); i++) {
            answer(w, i, "xy", BT_FINISH_LENGTH);
        }
        bt_alloc_fail_at(0);
        if (ex.n_ends != 1) {
            fail_msg("allocation %d: not answered", nth);
        }
        ok = ex.status == 200;
        assert_true(ok || (ex.status == 503));
        assert_true((nth < 300) || ok);
        stop(w);
    }
}

static void failed_allocation_answers_error_without_leak(void **state)
{
    (void)state;
    with_short_memory(INFER("ensemble"),
                      BODY(T("text_input", "BYTES", "[2,1]",
                             "[\"A\",\"B\"]") "," ON("return_log_probs")));
    with_short_memory(
        INFER("ensemble"),
        "{\"id\":\"1\",\"inputs\":[" T(
            "text_input", "BYTES", "[2,1]",
            "[\"A\",\"B\"]") "," T("embedding_bias_words", "BYTES", "[1,1]",
                                   "[\"w\"]") "," T("embedding_bias_weights",
                                                    "FP32", "[1,1]",
                                                    "[1]") "]}");
    with_short_memory(INFER("tensorrt_llm"),
                      BODY(T("input_ids", "INT32", "[2,1]", "[5,6]") "," T(
                          "stop_words_list", "INT32", "[1,2,1]", "[5,1]")));
    with_short_memory(
        INFER("preprocessing"),
        BODY(T("QUERY", "BYTES", "[1,1]", "[\"A\"]") "," T(
            "REQUEST_OUTPUT_LEN", "INT32", "[1,1]",
            "[1]") "," T("STOP_WORDS_DICT", "BYTES", "[1,1]", "[\"B\"]")));
    with_short_memory(INFER("postprocessing"),
                      BODY(T("TOKENS_BATCH", "INT32", "[1,1,1]", "[5]")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_is_answered_once_in_any_end_order),
        cmocka_unit_test(text_output_includes_prompt_by_default),
        cmocka_unit_test(output_ids_include_prompt_without_end_id),
        cmocka_unit_test(stop_word_ids_end_output_and_stay_in_it),
        cmocka_unit_test(embedding_bias_words_reach_workers),
        cmocka_unit_test(preprocessing_and_postprocessing_run_alone),
        cmocka_unit_test(refusals_have_triton_error_form),
        cmocka_unit_test(failed_row_cancels_whole_batch),
        cmocka_unit_test(client_disconnect_cancels_all_rows),
        cmocka_unit_test(compressed_bodies_and_answers_are_supported),
        cmocka_unit_test(body_over_limit_after_decompression_gets_413),
        cmocka_unit_test(long_answers_are_written_on_pool),
        cmocka_unit_test(text_stream_sends_new_text_only),
        cmocka_unit_test(ids_stream_sends_one_response_per_token),
        cmocka_unit_test(batch_on_stream_without_streaming_answers_row_by_row),
        cmocka_unit_test(client_disconnect_within_piece_is_safe),
        cmocka_unit_test(output_log_probs_tensor_has_row_per_prompt),
        cmocka_unit_test(batch_logits_are_copied_on_pool),
        cmocka_unit_test(client_disconnect_while_logits_are_copied_is_safe),
        cmocka_unit_test(stream_has_logprobs_per_piece_and_logits_at_end),
        cmocka_unit_test(logits_over_limits_are_refused_by_name),
        cmocka_unit_test(failed_allocation_answers_error_without_leak),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
