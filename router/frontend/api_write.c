/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/json.h"
#include "router/frontend/api_priv.h"

/* ---- pieces: an event is written for each token, so no printf here ---- */

#define PUT(out, literal) \
    bt_strbuf_append((out), (literal), sizeof(literal) - 1)

static void put_int(bt_strbuf_t *out, int64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    uint64_t rest = (number < 0) ? 0 - (uint64_t)number : (uint64_t)number;

    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        PUT(out, "-");
    }
    bt_strbuf_append(out, digits + at, sizeof(digits) - at);
}

static void put_bool(bt_strbuf_t *out, bool value)
{
    if (value) {
        PUT(out, "true");
    } else {
        PUT(out, "false");
    }
}

static void put_text(bt_strbuf_t *out, const char *text, size_t bytes)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_strn(&json, NULL, text, bytes);
}

static void put_string(bt_strbuf_t *out, const char *text)
{
    if (text == NULL) {
        PUT(out, "null");
    } else {
        put_text(out, text, strlen(text));
    }
}

/* ---- generate ---- */

static void put_generate(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_strbuf_t *out)
{
    PUT(out, "{");
    if ((answer->id != NULL) && (answer->id[0] != '\0')) {
        PUT(out, "\"id\":");
        put_string(out, answer->id);
        PUT(out, ",");
    }
    PUT(out, "\"model_name\":");
    put_string(out, answer->model);
    PUT(out, ",\"model_version\":\"1\",\"sequence_end\":");
    put_bool(out, answer->sequence_end);
    PUT(out, ",\"sequence_id\":");
    put_int(out, answer->sequence_id);
    PUT(out, ",\"sequence_start\":");
    put_bool(out, answer->sequence_start);
    PUT(out, ",\"text_output\":");
    put_text(out, choice->text, choice->text_bytes);
    PUT(out, "}");
}

/* ---- OpenAI ---- */

static void put_openai_head(const bt_api_answer_t *answer, const char *object,
                            bt_strbuf_t *out)
{
    PUT(out, "{\"id\":");
    put_string(out, answer->id);
    PUT(out, ",\"object\":");
    put_string(out, object);
    PUT(out, ",\"created\":");
    put_int(out, answer->created);
    PUT(out, ",\"model\":");
    put_string(out, answer->model);
    PUT(out, ",\"system_fingerprint\":");
    put_string(out, answer->fingerprint);
    PUT(out, ",\"choices\":[");
}

static void put_usage(const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    PUT(out, ",\"usage\":{\"prompt_tokens\":");
    put_int(out, usage->prompt_tokens);
    PUT(out, ",\"completion_tokens\":");
    put_int(out, usage->completion_tokens);
    PUT(out, ",\"total_tokens\":");
    put_int(out, (int64_t)usage->prompt_tokens + usage->completion_tokens);
    PUT(out, "}");
}

static void put_finish(bt_finish_t finish, bt_strbuf_t *out)
{
    PUT(out, ",\"logprobs\":null,\"finish_reason\":");
    switch (finish) {
    case BT_FINISH_NONE:
        PUT(out, "null");
        break;
    case BT_FINISH_STOP:
        PUT(out, "\"stop\"");
        break;
    case BT_FINISH_LENGTH:
        PUT(out, "\"length\"");
        break;
    case BT_FINISH_CANCELED:
        PUT(out, "\"abort\"");
        break;
    default:
        PUT(out, "\"error\"");
        break;
    }
    PUT(out, "}");
}

static void put_token_ids(const bt_api_choice_t *choice, bt_strbuf_t *out)
{
    if (choice->token_ids == NULL) {
        return;
    }
    PUT(out, ",\"token_ids\":[");
    for (uint32_t i = 0; i < choice->n_token_ids; i++) {
        if (i > 0) {
            PUT(out, ",");
        }
        put_int(out, choice->token_ids[i]);
    }
    PUT(out, "]");
}

static void put_choice(bt_api_dialect_t dialect, const bt_api_choice_t *choice,
                       bt_strbuf_t *out)
{
    PUT(out, "{\"index\":");
    put_int(out, choice->index);
    if (dialect == BT_API_CHAT) {
        PUT(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
        put_text(out, choice->text, choice->text_bytes);
        PUT(out, ",\"refusal\":null}");
    } else {
        PUT(out, ",\"text\":");
        put_text(out, choice->text, choice->text_bytes);
    }
    put_token_ids(choice, out);
    put_finish(choice->finish, out);
}

static void put_choice_piece(bt_api_dialect_t dialect,
                             const bt_api_choice_t *choice, bool first,
                             bt_strbuf_t *out)
{
    PUT(out, "{\"index\":");
    put_int(out, choice->index);
    if (dialect == BT_API_CHAT) {
        PUT(out, ",\"delta\":{");
        if (first) {
            PUT(out, "\"role\":\"assistant\",");
        }
        if (first || (choice->text_bytes > 0)) {
            PUT(out, "\"content\":");
            put_text(out, choice->text, choice->text_bytes);
        }
        PUT(out, "}");
    } else {
        PUT(out, ",\"text\":");
        put_text(out, choice->text, choice->text_bytes);
    }
    put_finish(choice->finish, out);
}

void bt_api_write_answer(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choices, size_t n_choices,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, &choices[0], out);
        return;
    }
    put_openai_head(answer,
                    (answer->dialect == BT_API_CHAT) ? "chat.completion"
                                                     : "text_completion",
                    out);
    for (size_t i = 0; i < n_choices; i++) {
        if (i > 0) {
            PUT(out, ",");
        }
        put_choice(answer->dialect, &choices[i], out);
    }
    PUT(out, "]");
    put_usage(usage, out);
    PUT(out, "}");
}

static const char *event_object(bt_api_dialect_t dialect)
{
    return (dialect == BT_API_CHAT) ? "chat.completion.chunk"
                                    : "text_completion";
}

void bt_api_write_event(const bt_api_answer_t *answer,
                        const bt_api_choice_t *choice, bool first,
                        const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    PUT(out, "data: ");
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, choice, out);
        PUT(out, "\n\n");
        return;
    }
    put_openai_head(answer, event_object(answer->dialect), out);
    put_choice_piece(answer->dialect, choice, first, out);
    PUT(out, "]");
    if (answer->continuous_usage && (usage != NULL)) {
        put_usage(usage, out);
    } else if (answer->include_usage) {
        /* Every chunk but the last has the field, as null. */
        PUT(out, ",\"usage\":null");
    }
    PUT(out, "}\n\n");
}

void bt_api_write_end(const bt_api_answer_t *answer,
                      const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    if (answer->dialect == BT_API_GENERATE) {
        return;
    }
    if (answer->include_usage) {
        PUT(out, "data: ");
        put_openai_head(answer, event_object(answer->dialect), out);
        PUT(out, "]");
        put_usage(usage, out);
        PUT(out, "}\n\n");
    }
    PUT(out, "data: [DONE]\n\n");
}

/* ---- errors and the rest ---- */

static const char *error_code(const bt_api_error_t *error)
{
    const bool of_model =
        (error->param != NULL) && (strcmp(error->param, "model") == 0);

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
    if (dialect == BT_API_GENERATE) {
        PUT(out, "{\"error\":");
        put_string(out, error->message);
        PUT(out, "}");
        return;
    }
    PUT(out, "{\"error\":{\"message\":");
    put_string(out, error->message);
    PUT(out, ",\"type\":");
    put_string(out, error->type);
    PUT(out, ",\"param\":");
    put_string(out, error->param);
    PUT(out, ",\"code\":");
    put_string(out, error_code(error));
    PUT(out, "}}");
}

void bt_api_write_error_event(bt_api_dialect_t dialect,
                              const bt_api_error_t *error, bt_strbuf_t *out)
{
    PUT(out, "data: ");
    bt_api_write_error(dialect, error, out);
    PUT(out, "\n\n");
}

void bt_api_write_models(const char *name, int64_t created,
                         uint32_t context_tokens, bool list, bt_strbuf_t *out)
{
    if (list) {
        PUT(out, "{\"object\":\"list\",\"data\":[");
    }
    PUT(out, "{\"id\":");
    put_string(out, name);
    PUT(out, ",\"object\":\"model\",\"created\":");
    put_int(out, created);
    PUT(out, ",\"owned_by\":\"baton\",\"root\":");
    put_string(out, name);
    PUT(out, ",\"parent\":null,\"max_model_len\":");
    put_int(out, context_tokens);
    PUT(out, "}");
    if (list) {
        PUT(out, "]}");
    }
}

const char *bt_api_stream_content_type(bt_api_dialect_t dialect)
{
    (void)dialect; /* Triton's clients compare this text exactly */
    return "text/event-stream; charset=utf-8";
}
