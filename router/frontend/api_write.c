/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/json.h"
#include "router/frontend/api_priv.h"

/* ---- generate ---- */

static void put_generate(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    if ((answer->id != NULL) && (answer->id[0] != '\0')) {
        bt_json_str(json, "id", answer->id);
    }
    bt_json_str(json, "model_name", answer->model);
    bt_json_str(json, "model_version", answer->version);
    bt_json_bool(json, "sequence_end", answer->sequence_end);
    bt_json_i64(json, "sequence_id", answer->sequence_id);
    bt_json_bool(json, "sequence_start", answer->sequence_start);
    bt_json_strn(json, "text_output", choice->text, choice->text_bytes);
    bt_api_put_rows(choice, json);
    bt_json_end_object(json);
}

/* ---- tokens ---- */

static void put_token_id(bt_json_t *json, const void *choice_p,
                         const void *none, size_t i)
{
    const bt_api_choice_t *choice = choice_p;

    (void)none;
    bt_json_u64(json, NULL, choice->token_ids[i]);
}

static void put_token_text(bt_json_t *json, const void *choice_p,
                           const void *tok, size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes =
        bt_token_bytes(tok, choice->token_ids[i], &n, &is_special);

    bt_json_strn(json, NULL, (const char *)bytes, n);
}

/* Writes the answers of tokenize and detokenize, as vLLM has them. */
static void put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    if (answer->dialect == BT_API_DETOKENIZE) {
        bt_json_strn(json, "prompt", choice->text, choice->text_bytes);
    } else {
        bt_json_u64(json, "count", choice->n_token_ids);
        bt_json_u64(json, "max_model_len", answer->context_tokens);
        bt_json_array_of(json, "tokens", 0, choice->n_token_ids, put_token_id,
                         choice, NULL);
        if (answer->token_texts) {
            bt_json_array_of(json, "token_strs", 0, choice->n_token_ids,
                             put_token_text, choice, answer->tok);
        } else {
            bt_json_null(json, "token_strs");
        }
    }
    bt_json_end_object(json);
}

/* ---- OpenAI ---- */

static void open_openai(const bt_api_answer_t *answer, const char *object,
                        bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "id", answer->id);
    bt_json_str(json, "object", object);
    bt_json_i64(json, "created", answer->created);
    bt_json_str(json, "model", answer->model);
    bt_json_str(json, "system_fingerprint", answer->fingerprint);
    bt_json_array(json, "choices");
}

static void put_usage(const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, "usage");
    bt_json_u64(json, "prompt_tokens", usage->prompt_tokens);
    bt_json_u64(json, "completion_tokens", usage->completion_tokens);
    bt_json_u64(json, "total_tokens",
                (uint64_t)usage->prompt_tokens + usage->completion_tokens);
    bt_json_object(json, "prompt_tokens_details");
    bt_json_u64(json, "cached_tokens", usage->cached_tokens);
    bt_json_u64(json, "cache_write_tokens", usage->kept_tokens);
    bt_json_end_object(json);
    bt_json_object(json, "completion_tokens_details");
    bt_json_u64(json, "reasoning_tokens", usage->thought_tokens);
    bt_json_end_object(json);
    bt_json_end_object(json);
}

/* NULL until the choice has ended. */
static const char *finish_reason(const bt_api_choice_t *choice)
{
    switch (choice->finish) {
    case BT_FINISH_NONE:
        return NULL;
    case BT_FINISH_STOP:
        return ((choice->n_calls > 0) && !choice->is_cut_call) ? "tool_calls"
                                                               : "stop";
    case BT_FINISH_LENGTH:
        return "length";
    case BT_FINISH_CANCELED:
        return "abort";
    default:
        return "error";
    }
}

static void close_choice(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_api_put_logprobs(answer, choice, json);
    bt_json_str(json, "finish_reason", finish_reason(choice));
    bt_json_end_object(json);
}

static void put_token_ids(const bt_api_choice_t *choice, bt_json_t *json)
{
    if (choice->token_ids == NULL) {
        return;
    }
    bt_json_array_of(json, "token_ids", 0, choice->n_token_ids, put_token_id,
                     choice, NULL);
}

static void put_thought(const bt_api_choice_t *choice, bt_json_t *json)
{
    if (choice->thought_bytes > 0) {
        bt_json_strn(json, "reasoning_content", choice->thought,
                     choice->thought_bytes);
    }
}

/* A message with calls and no text has null content. */
static void put_content(const bt_api_choice_t *choice, bt_json_t *json)
{
    if ((choice->n_calls > 0) && (choice->text_bytes == 0)) {
        bt_json_null(json, "content");
    } else {
        bt_json_strn(json, "content", choice->text, choice->text_bytes);
    }
}

static void put_choice(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_u64(json, "index", choice->index);
    if (answer->dialect == BT_API_CHAT) {
        bt_json_object(json, "message");
        bt_json_str(json, "role", "assistant");
        put_content(choice, json);
        put_thought(choice, json);
        bt_api_put_calls(answer, choice, false, json);
        bt_json_null(json, "refusal");
        bt_json_end_object(json);
    } else {
        bt_json_strn(json, "text", choice->text, choice->text_bytes);
    }
    put_token_ids(choice, json);
    close_choice(answer, choice, json);
}

void bt_api_put_answer(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json)
{
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, &choices[0], json);
        return;
    }
    if (answer->dialect == BT_API_RESPONSES) {
        bt_api_put_response(answer, &choices[0], usage, json);
        return;
    }
    if ((answer->dialect == BT_API_TOKENIZE) ||
        (answer->dialect == BT_API_DETOKENIZE)) {
        put_tokens(answer, &choices[0], json);
        return;
    }
    open_openai(answer,
                (answer->dialect == BT_API_CHAT) ? "chat.completion"
                                                 : "text_completion",
                json);
    for (size_t i = 0; i < n_choices; i++) {
        put_choice(answer, &choices[i], json);
    }
    bt_json_end_array(json);
    put_usage(usage, json);
    bt_json_end_object(json);
}

void bt_api_write_answer(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choices, size_t n_choices,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_api_put_answer(answer, choices, n_choices, usage, &json);
}

static const char *event_object(bt_api_dialect_t dialect)
{
    return (dialect == BT_API_CHAT) ? "chat.completion.chunk"
                                    : "text_completion";
}

void bt_api_write_opening(const bt_api_answer_t *answer, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    open_openai(answer, event_object(answer->dialect), &json);
}

/* ---- the events of a stream ---- */

/* The part of a piece that an event carries. */
typedef enum part {
    ROLE, /* chat: first event of a choice */
    SAID, /* its text, calls, ids and log-probs */
    END,  /* chat: finish reason */
    ALL,  /* other dialects: everything */
} part_t;

static void put_delta(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, part_t part,
                      bt_json_t *json)
{
    bt_json_object(json, "delta");
    if (part == ROLE) {
        bt_json_str(json, "role", "assistant");
        bt_json_str(json, "content", "");
    } else if (part == SAID) {
        if (choice->text_bytes > 0) {
            bt_json_strn(json, "content", choice->text, choice->text_bytes);
        }
        put_thought(choice, json);
        bt_api_put_calls(answer, choice, true, json);
    }
    bt_json_end_object(json);
}

static void put_choice_part(const bt_api_answer_t *answer,
                            const bt_api_choice_t *piece, part_t part,
                            bt_json_t *json)
{
    bt_api_choice_t choice = *piece;

    if ((part == ROLE) || (part == END)) { /* no content */
        choice.rows = NULL;
        choice.n_token_ids = 0;
    }
    if ((part == ROLE) || (part == SAID)) {
        choice.finish = BT_FINISH_NONE;
    }
    bt_json_object(json, NULL);
    bt_json_u64(json, "index", choice.index);
    if (part == ALL) {
        bt_json_strn(json, "text", choice.text, choice.text_bytes);
    } else {
        put_delta(answer, &choice, part, json);
    }
    put_token_ids(&choice, json);
    close_choice(answer, &choice, json);
}

static void put_chunk(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, part_t part,
                      const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_strbuf_puts(out, "data: ");
    bt_json_init(&json, out);
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, choice, &json);
    } else {
        if (answer->opening != NULL) {
            bt_strbuf_append(out, answer->opening, answer->opening_bytes);
        } else {
            open_openai(answer, event_object(answer->dialect), &json);
        }
        put_choice_part(answer, choice, part, &json);
        bt_json_end_array(&json);
        if (answer->continuous_usage && (usage != NULL)) {
            put_usage(usage, &json);
        } else if (answer->include_usage) {
            /* Every chunk but the last has the field, as null. */
            bt_json_null(&json, "usage");
        }
        bt_json_end_object(&json);
    }
    bt_strbuf_puts(out, "\n\n");
}

static bool says_something(const bt_api_choice_t *choice)
{
    return (choice->text_bytes > 0) || (choice->thought_bytes > 0) ||
           bt_api_has_new_calls(choice) ||
           ((choice->token_ids != NULL) && (choice->n_token_ids > 0)) ||
           ((choice->rows != NULL) && (choice->to > choice->from));
}

void bt_api_write_chunks(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    if (answer->dialect != BT_API_CHAT) {
        put_chunk(answer, choice, ALL, usage, out);
        return;
    }
    if (first) {
        put_chunk(answer, choice, ROLE, usage, out);
    }
    if (says_something(choice)) {
        put_chunk(answer, choice, SAID, usage, out);
    }
    if (choice->finish != BT_FINISH_NONE) {
        put_chunk(answer, choice, END, usage, out);
    }
}

void bt_api_write_usage(const bt_api_answer_t *answer,
                        const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    open_openai(answer, event_object(answer->dialect), &json);
    bt_json_end_array(&json);
    put_usage(usage, &json);
    bt_json_end_object(&json);
}

/* ---- errors and the rest ---- */

static const char *error_code(const bt_api_error_t *error)
{
    const bool of_model =
        (error->param != NULL) && (strcmp(error->param, "model") == 0);

    if (error->code != NULL) {
        return error->code;
    }
    switch (error->http_status) {
    case 401:
        return "invalid_api_key";
    case 404:
        return of_model ? "model_not_found" : NULL;
    case 429:
        return "rate_limit_exceeded";
    default:
        return NULL;
    }
}

void bt_api_write_error(bt_api_dialect_t dialect, const bt_api_error_t *error,
                        bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    if (dialect == BT_API_GENERATE) {
        bt_json_str(&json, "error", error->message);
    } else {
        bt_json_object(&json, "error");
        bt_json_str(&json, "message", error->message);
        bt_json_str(&json, "type", error->type);
        bt_json_str(&json, "param", error->param);
        bt_json_str(&json, "code", error_code(error));
        bt_json_end_object(&json);
    }
    bt_json_end_object(&json);
}

static void put_sampling(const bt_sampling_defaults_t *sampling,
                         bt_json_t *json)
{
    static const char *const sources[] = {
        [BT_SAMPLING_OF_SERVER] = "server",
        [BT_SAMPLING_OF_FILE] = "file",
        [BT_SAMPLING_OF_OPTION] = "option",
    };

    bt_json_object(json, "default_sampling");
    bt_json_str(json, "from", sources[sampling->source]);
    bt_json_float(json, "temperature", sampling->temperature);
    bt_json_float(json, "top_p", sampling->top_p);
    bt_json_u64(json, "top_k", sampling->top_k);
    bt_json_float(json, "min_p", sampling->min_p);
    bt_json_float(json, "repetition_penalty", sampling->repetition_penalty);
    bt_json_end_object(json);
}

static void put_model(const bt_api_model_t *model, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "id", model->name);
    bt_json_str(json, "object", "model");
    bt_json_i64(json, "created", model->created);
    bt_json_str(json, "owned_by", "baton");
    bt_json_str(json, "root", model->name);
    bt_json_null(json, "parent");
    bt_json_u64(json, "max_model_len", model->context_tokens);
    bt_json_str(json, "chat_template", model->chat_template);
    put_sampling(&model->sampling, json);
    bt_json_end_object(json);
}

void bt_api_write_model(const bt_api_model_t *model, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    put_model(model, &json);
}

void bt_api_write_models(const bt_api_model_t *models, size_t n,
                         bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "object", "list");
    bt_json_array(&json, "data");
    for (size_t i = 0; i < n; i++) {
        put_model(&models[i], &json);
    }
    bt_json_end_array(&json);
    bt_json_end_object(&json);
}
