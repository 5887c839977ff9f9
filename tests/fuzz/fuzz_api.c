/* SPDX-License-Identifier: Apache-2.0 */
/* First byte: the dialect; the rest: a body. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "common/wire/wire.h"
#include "router/api/api.h"
#include "router/api/api_stored.h"

/* What was thought and said, at once and as all there is. */
static void write_events(const bt_api_answer_t *answer, const char *text,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    const bt_api_choice_t piece = {.text = text,
                                   .text_bytes = strlen(text),
                                   .thought = text,
                                   .thought_bytes = strlen(text),
                                   .whole = text,
                                   .whole_bytes = strlen(text),
                                   .whole_thought = text,
                                   .whole_thought_bytes = strlen(text),
                                   .finish = BT_FINISH_STOP};
    bt_api_events_t events = {0};

    bt_api_write_begin_events(answer, &events, out);
    BT_ASSERT_ALWAYS(events.sequence == 2);
    bt_api_write_events(answer, &piece, usage, &events, out);
    /* An item has six events, one without text five. */
    BT_ASSERT_ALWAYS(events.sequence == ((text[0] != '\0') ? 15u : 8u));
}

/* Thinking, a text and a call whose arguments are any text, whole and as
 * events: a line of JSON each. */
static void write_blocks(const bt_api_answer_t *answer, char *text,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_tool_call_t call = {.name = text};
    const bt_api_choice_t piece = {.text = text,
                                   .text_bytes = strlen(text),
                                   .thought = text,
                                   .thought_bytes = strlen(text),
                                   .calls = &call,
                                   .n_calls = 1,
                                   .finish = BT_FINISH_STOP};
    bt_api_blocks_t blocks = {0};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;

    bt_strbuf_init(&call.arguments, (size_t)64 << 20);
    bt_strbuf_puts(&call.arguments, text);
    bt_strbuf_reset(out);
    bt_api_write_answer(answer, &piece, 1, usage, out);
    BT_ASSERT_ALWAYS(bt_json_doc_parse_client(out->data, out->len, UINT32_MAX,
                                              &fault, &doc) == BT_OK);
    bt_json_doc_free(doc);
    bt_strbuf_reset(out);
    bt_api_write_anthropic_start(answer, &blocks, out);
    bt_api_write_anthropic_events(answer, &piece, usage, &blocks, out);
    BT_ASSERT_ALWAYS(blocks.n == ((text[0] != '\0') ? 3u : 1u));
    BT_ASSERT_ALWAYS(blocks.open == BT_API_BLOCK_NONE);
    bt_strbuf_fini(&call.arguments);
}

/* The same of Ollama: a whole answer is a line of JSON, and so is each part of
 * a stream, of which there are two. */
static void write_lines(const bt_api_answer_t *answer, char *text,
                        const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_tool_call_t call = {.name = text};
    const bt_api_choice_t piece = {.text = text,
                                   .text_bytes = strlen(text),
                                   .thought = text,
                                   .thought_bytes = strlen(text),
                                   .calls = &call,
                                   .n_calls = 1,
                                   .finish = BT_FINISH_STOP};
    size_t n_lines = 0;
    size_t from = 0;

    bt_strbuf_init(&call.arguments, (size_t)64 << 20);
    bt_strbuf_puts(&call.arguments, text);
    bt_strbuf_reset(out);
    bt_api_write_answer(answer, &piece, 1, usage, out);
    bt_strbuf_puts(out, "\n");
    bt_api_write_ollama_lines(answer, &piece, usage, out);
    for (size_t i = 0; i < out->len; i++) {
        if (out->data[i] == '\n') {
            bt_json_doc_t *doc = NULL;
            bt_json_fault_t fault;
            const bt_status_t status = bt_json_doc_parse_client(
                out->data + from, i - from, UINT32_MAX, &fault, &doc);

            /* Arguments may be nested as deep as a body. */
            BT_ASSERT_ALWAYS((status == BT_OK) || (status == BT_ERR_TOO_LARGE));
            bt_json_doc_free(doc);
            from = i + 1;
            n_lines++;
        }
    }
    BT_ASSERT_ALWAYS((n_lines == 3) && (from == out->len));
    bt_strbuf_fini(&call.arguments);
}

static void write_all(bt_api_dialect_t dialect, char *text)
{
    const bt_api_answer_t answer = {
        .dialect = dialect, .id = text, .model = text, .include_usage = true};
    const bt_api_choice_t choice = {
        .text = text, .text_bytes = strlen(text), .finish = BT_FINISH_STOP};
    const bt_api_usage_t usage = {1, 2, 1, 0, 0, 3, 1};
    bt_strbuf_t out;

    bt_strbuf_init(&out, (size_t)64 << 20);
    bt_api_write_answer(&answer, &choice, 1, &usage, &out);
    BT_ASSERT_ALWAYS(memchr(out.data, '\n', out.len) == NULL);
    bt_api_write_chunks(&answer, &choice, true, &usage, &out);
    bt_api_write_usage(&answer, &usage, &out);
    write_events(&answer, text, &usage, &out);
    if (dialect == BT_API_ANTHROPIC) {
        write_blocks(&answer, text, &usage, &out);
    }
    if (bt_api_is_ollama(dialect)) {
        write_lines(&answer, text, &usage, &out);
    }
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    bt_strbuf_fini(&out);
}

/* Ids as an answer of token ids: one line of JSON, whole and as events. */
static void write_ids(const bt_api_request_t *r)
{
    const bt_api_answer_t answer = {.dialect = BT_API_GENERATE_TOKENS,
                                    .id = (r->id != NULL) ? r->id : "",
                                    .model =
                                        (r->model != NULL) ? r->model : ""};
    const bt_api_choice_t choice = {.token_ids = r->prompts[0].ids,
                                    .n_token_ids =
                                        (uint32_t)r->prompts[0].n_ids,
                                    .finish = BT_FINISH_STOP};
    const bt_api_usage_t usage = {0};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_strbuf_t out;

    bt_strbuf_init(&out, (size_t)64 << 20);
    bt_api_write_answer(&answer, &choice, 1, &usage, &out);
    BT_ASSERT_ALWAYS(bt_json_doc_parse_client(out.data, out.len, UINT32_MAX,
                                              &fault, &doc) == BT_OK);
    bt_json_doc_free(doc);
    bt_strbuf_reset(&out);
    bt_api_write_chunks(&answer, &choice, true, &usage, &out);
    BT_ASSERT_ALWAYS(memchr(out.data, '\n', out.len) == out.data + out.len - 2);
    bt_strbuf_fini(&out);
}

/* JSON, whatever was sent. */
static void check_messages(const bt_api_messages_t *messages)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;

    BT_ASSERT_ALWAYS(
        bt_json_doc_parse_client(messages->json, strlen(messages->json),
                                 8 * BT_API_MAX_VALUES, &fault, &doc) == BT_OK);
    BT_ASSERT_ALWAYS(bt_json_size(bt_json_doc_root(doc), BT_JSON_ARRAY) ==
                     messages->n);
    bt_json_doc_free(doc);
    BT_ASSERT_ALWAYS((messages->final == NULL) || (messages->final_bytes > 0));
}

static void check(const bt_api_request_t *r)
{
    const bool tells_tokens =
        (r->dialect == BT_API_TOKENIZE) || (r->dialect == BT_API_DETOKENIZE);
    const char *why = NULL;

    BT_ASSERT_ALWAYS(bt_sampling_check(&r->sampling, &why) == BT_OK);
    BT_ASSERT_ALWAYS((r->n >= 1) && (r->n_stops <= BT_API_MAX_STOPS) &&
                     (r->n_bad_words <= BT_MAX_BAD_WORDS) &&
                     (!r->has_max_tokens || (r->max_tokens > 0) || r->echo));
    if (bt_api_is_chat(r)) {
        BT_ASSERT_ALWAYS((r->messages.n >= 1) && (r->n_prompts == 0));
    } else {
        BT_ASSERT_ALWAYS((r->n_prompts >= 1) && (r->messages.n == 0));
        BT_ASSERT_ALWAYS(r->n_prompts * r->n <= BT_API_MAX_PROMPTS);
    }
    BT_ASSERT_ALWAYS((r->cache_salt == NULL) || (r->cache_salt[0] != '\0'));
    BT_ASSERT_ALWAYS(r->logit_biases == r->sampling.logit_biases);
    for (uint32_t i = 1; i < r->sampling.n_logit_biases; i++) {
        BT_ASSERT_ALWAYS(r->logit_biases[i].id != r->logit_biases[i - 1].id);
    }
    for (size_t i = 0; i < r->n_prompts; i++) {
        const bt_api_prompt_t *p = &r->prompts[i];

        BT_ASSERT_ALWAYS((p->text != NULL)
                             ? ((p->text_bytes > 0) || tells_tokens) &&
                                   (p->text[p->text_bytes] == '\0')
                             : (p->n_ids > 0) || tells_tokens);
        if (p->text != NULL) {
            write_all(r->dialect, p->text);
        }
    }
    if (r->dialect == BT_API_GENERATE_TOKENS) {
        BT_ASSERT_ALWAYS((r->n_prompts == 1) && r->return_token_ids);
        write_ids(r);
    }
    BT_ASSERT_ALWAYS(!r->has_prompt_logprobs || !r->stream);
    BT_ASSERT_ALWAYS((r->n_hidden_top <= r->wants.n_top) &&
                     (r->n_prompt_top <= r->wants.n_top));
    if (r->messages.n > 0) {
        check_messages(&r->messages);
        write_all(r->dialect, r->messages.json);
    }
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const size_t n = strlen(r->stops[i]);

        BT_ASSERT_ALWAYS((n > 0) && (n <= BT_API_MAX_STOP_BYTES));
    }
}

/* A response that is stored, its input as a list, and as the history of the
 * same body. */
static void check_stored(const uint8_t *data, size_t size)
{
    const bt_api_items_page_t page = {.limit = 20};
    bt_api_request_t first, second;
    bt_api_stored_t stored = {0};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_api_error_t error;
    bt_strbuf_t out;

    if (bt_api_parse_stored(data, size, NULL, &first, &error) != BT_OK) {
        return;
    }
    check(&first);
    BT_ASSERT_ALWAYS(first.input_json != NULL);
    stored.items = first.input_json;
    stored.items_bytes = strlen(first.input_json);
    bt_strbuf_init(&out, (size_t)64 << 20);
    BT_ASSERT_ALWAYS(bt_api_stored_put_items(&stored, "resp_1", &page, &out) ==
                     BT_OK);
    BT_ASSERT_ALWAYS(bt_json_doc_parse_client(out.data, out.len, UINT32_MAX,
                                              &fault, &doc) == BT_OK);
    bt_json_doc_free(doc);
    bt_strbuf_reset(&out);
    bt_strbuf_puts(&out, first.input_json);
    if (bt_api_parse_stored(data, size, &out, &second, &error) == BT_OK) {
        check(&second);
        BT_ASSERT_ALWAYS(second.messages.n > first.messages.n / 2);
        BT_ASSERT_ALWAYS(strcmp(first.input_json, second.input_json) == 0);
        bt_api_request_fini(&second);
    } else {
        BT_ASSERT_ALWAYS(strcmp(error.param, "previous_response_id") == 0);
    }
    bt_strbuf_fini(&out);
    bt_api_request_fini(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bt_api_dialect_t dialect =
        (bt_api_dialect_t)((size == 0)        ? 0
                           : (data[0] < 0x80) ? data[0] % 3
                           : (data[0] < 0xC0) ? 3 + data[0] % 3
                           : (data[0] < 0xE0) ? 6 + data[0] % 2
                           : (data[0] < 0xF0)
                               ? BT_API_GENERATE_TOKENS
                               : BT_API_OLLAMA_CHAT + data[0] % 2);
    bt_api_request_t request;
    bt_api_error_t error;
    bt_status_t status;
    bt_strbuf_t out;

    memset(&error, 0, sizeof(error));
    if (dialect == BT_API_RESPONSES) {
        check_stored(data + (size > 0), size - (size > 0));
    }
    status = bt_api_parse(dialect, data + (size > 0), size - (size > 0),
                          &request, &error);
    if (status == BT_OK) {
        check(&request);
        bt_api_request_fini(&request);
        return 0;
    }
    BT_ASSERT_ALWAYS((error.http_status == 400) && (error.message[0] != '\0'));
    bt_strbuf_init(&out, 65536);
    bt_api_write_error(dialect, &error, &out);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    bt_strbuf_fini(&out);
    return 0;
}
