/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's requests, turned into the conversation that chat templates get.
 *
 *     thinking of the assistant      reasoning_content
 *     arguments of a call            a string of JSON, as in OpenAI's API
 *     tool_name of a result          name
 *     prompt and system of generate  messages, unless it is raw
 *
 * Calls have no ids in Ollama's API, and some chat templates need them: they
 * are numbered, and a result without an id answers the first open call of its
 * tool_name.
 *
 * Source:  Ollama's API reference, and the types of its Python package. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

#define JSON_LIMIT ((size_t)1 << 31)

/* Call of the assistant that waits for its result. */
typedef struct pending {
    const bt_json_node_t *name;
    const bt_json_node_t *id; /* the client's; NULL: the number */
    uint32_t number;
    bool is_answered;
} pending_t;

/* A conversation being built. */
typedef struct writer {
    bt_api_parse_t *parse;
    bt_strbuf_t text;
    bt_json_t json;
    uint32_t at;      /* index of the client's message */
    uint32_t n_calls; /* of all messages so far */
    pending_t pending[BT_API_MAX_TOOLS];
    uint32_t n_pending;
} writer_t;

/* Refuses what a message has; printf style. */
#define REFUSE_AT(w, fmt, ...)                                         \
    bt_api_refuse((w)->parse, "messages", "messages[%u]" fmt, (w)->at, \
                  ##__VA_ARGS__)

/* ---- calls ---- */

/* Writes an id, of as many characters as Mistral's templates want. */
static void put_id(writer_t *w, const char *key, const pending_t *call)
{
    char text[16];

    if (call->id != NULL) {
        bt_api_put_value(&w->json, key, call->id);
        return;
    }
    snprintf(text, sizeof(text), "%09u", call->number);
    bt_json_str(&w->json, key, text);
}

static bool is_short(const bt_json_node_t *value)
{
    return bt_json_is_kind(value, BT_JSON_STRING) && (value->len > 0) &&
           (value->len <= BT_API_MAX_NAME_BYTES);
}

static bt_status_t put_call(writer_t *w, uint32_t index,
                            const bt_json_node_t *call)
{
    static const char *const known[] = {"id", "type", "function", NULL};
    static const char *const of_function[] = {"name", "arguments", "index",
                                              NULL};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *function = bt_json_get(doc, call, "function");
    const bt_json_node_t *name = bt_json_get(doc, function, "name");
    const bt_json_node_t *arguments = bt_json_get(doc, function, "arguments");
    const bt_json_node_t *id = bt_json_get(doc, call, "id");
    pending_t *pending = &w->pending[w->n_pending];
    char path[80];

    if (!is_short(name)) {
        return REFUSE_AT(w,
                         ".tool_calls[%u] needs a function with a name of 1 to "
                         "%d bytes, got %s",
                         index, BT_API_MAX_NAME_BYTES, BT_API_SHOW(name));
    }
    if (!bt_api_is_none(arguments) && (arguments->kind != BT_JSON_OBJECT)) {
        return REFUSE_AT(w,
                         ".tool_calls[%u].function.arguments must be an "
                         "object, got %s",
                         index, BT_API_SHOW(arguments));
    }
    if (!bt_api_is_none(id) && !bt_json_is(id, "") && !is_short(id)) {
        return REFUSE_AT(w,
                         ".tool_calls[%u].id must be a string of at most %d "
                         "bytes, got %s",
                         index, BT_API_MAX_NAME_BYTES, BT_API_SHOW(id));
    }
    snprintf(path, sizeof(path), "messages[%u].tool_calls[%u]", w->at, index);
    bt_api_note_members(w->parse, path, call, known);
    snprintf(path, sizeof(path), "messages[%u].tool_calls[%u].function", w->at,
             index);
    bt_api_note_members(w->parse, path, function, of_function);
    *pending = (pending_t){
        .name = name, .id = is_short(id) ? id : NULL, .number = ++w->n_calls};
    w->n_pending++;
    bt_json_object(&w->json, NULL);
    put_id(w, "id", pending);
    bt_json_str(&w->json, "type", "function");
    bt_json_object(&w->json, "function");
    bt_api_put_value(&w->json, "name", name);
    /* As text, as in OpenAI's API: equal histories become equal prompts. */
    if (bt_api_is_none(arguments)) {
        bt_json_str(&w->json, "arguments", "{}");
    } else {
        bt_json_strn(&w->json, "arguments", arguments->text, arguments->len);
    }
    bt_json_end_object(&w->json);
    bt_json_end_object(&w->json);
    return BT_OK;
}

static bt_status_t put_calls(writer_t *w, const bt_json_node_t *calls)
{
    const bt_json_node_t *call = bt_json_first(calls);
    bt_status_t status = BT_OK;

    if (calls->n > BT_API_MAX_TOOLS) {
        return REFUSE_AT(w,
                         ".tool_calls has %u entries, at most %d are allowed",
                         calls->n, BT_API_MAX_TOOLS);
    }
    w->n_pending = 0;
    bt_json_array(&w->json, "tool_calls");
    for (uint32_t i = 0; (i < calls->n) && (status == BT_OK); i++) {
        status = put_call(w, i, call);
        call = bt_json_next(w->parse->doc, call);
    }
    bt_json_end_array(&w->json);
    return status;
}

static bool is_of(const pending_t *call, const bt_json_node_t *name)
{
    return (call->name->len == name->len) &&
           (memcmp(call->name->text, name->text, name->len) == 0);
}

/* Writes the members by which a result names its call. */
static void put_answered(writer_t *w, const bt_json_node_t *id,
                         const bt_json_node_t *name)
{
    pending_t *found = NULL;

    for (uint32_t i = 0; (i < w->n_pending) && (found == NULL); i++) {
        pending_t *call = &w->pending[i];

        if (!call->is_answered && (!is_short(name) || is_of(call, name))) {
            found = call;
        }
    }
    if (is_short(id)) {
        bt_api_put_value(&w->json, "tool_call_id", id);
    } else if (found != NULL) {
        put_id(w, "tool_call_id", found);
    }
    if (found != NULL) {
        found->is_answered = true;
    }
    if (is_short(name)) {
        bt_api_put_value(&w->json, "name", name);
    }
}

/* ---- messages ---- */

/* Checks a member that must be a text, or absent. @param max bytes */
static bt_status_t check_text(writer_t *w, const bt_json_node_t *message,
                              const char *key, size_t max)
{
    const bt_json_node_t *value = bt_json_get(w->parse->doc, message, key);

    if (bt_api_is_none(value) ||
        (bt_json_is_kind(value, BT_JSON_STRING) && (value->len <= max))) {
        return BT_OK;
    }
    if (max == SIZE_MAX) {
        return REFUSE_AT(w, ".%s must be a string, got %s", key,
                         BT_API_SHOW(value));
    }
    return REFUSE_AT(w, ".%s must be a string of at most %zu bytes, got %s",
                     key, max, BT_API_SHOW(value));
}

static bt_status_t check_message(writer_t *w, const bt_json_node_t *message,
                                 const char **role_p)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *role = bt_json_get(doc, message, "role");
    const bt_json_node_t *images = bt_json_get(doc, message, "images");
    const bt_json_node_t *calls = bt_json_get(doc, message, "tool_calls");
    bt_status_t status;

    if (!bt_json_is_kind(message, BT_JSON_OBJECT)) {
        return REFUSE_AT(w, " must be an object, got %s", BT_API_SHOW(message));
    }
    *role_p = NULL;
    for (size_t i = 0; i < BT_ARRAY_LEN(roles); i++) {
        *role_p = bt_json_is(role, roles[i]) ? roles[i] : *role_p;
    }
    if (*role_p == NULL) {
        return REFUSE_AT(w,
                         ".role must be system, user, assistant or tool, got "
                         "%s",
                         BT_API_SHOW(role));
    }
    if (!bt_api_is_none(images) &&
        !(bt_json_is_kind(images, BT_JSON_ARRAY) && (images->n == 0))) {
        return REFUSE_AT(w, ".images is not supported yet, got %s",
                         BT_API_SHOW(images));
    }
    if (!bt_api_is_none(calls) && !bt_json_is_kind(calls, BT_JSON_ARRAY)) {
        return REFUSE_AT(w, ".tool_calls must be a list, got %s",
                         BT_API_SHOW(calls));
    }
    if ((bt_json_size(calls, BT_JSON_ARRAY) > 0) &&
        (strcmp(*role_p, "assistant") != 0)) {
        return REFUSE_AT(w, ".tool_calls is for messages of the assistant");
    }
    status = check_text(w, message, "content", SIZE_MAX);
    if (status == BT_OK) {
        status = check_text(w, message, "thinking", SIZE_MAX);
    }
    if (status == BT_OK) {
        status = check_text(w, message, "tool_name", BT_API_MAX_NAME_BYTES);
    }
    return (status == BT_OK)
               ? check_text(w, message, "tool_call_id", BT_API_MAX_NAME_BYTES)
               : status;
}

static bool has_text(const bt_json_node_t *value)
{
    return bt_json_is_kind(value, BT_JSON_STRING) && (value->len > 0);
}

static bt_status_t put_message(writer_t *w, const bt_json_node_t *message)
{
    static const char *const known[] = {
        "role",       "content",   "thinking",     "images",
        "tool_calls", "tool_name", "tool_call_id", NULL};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *content = bt_json_get(doc, message, "content");
    const bt_json_node_t *thinking = bt_json_get(doc, message, "thinking");
    const bt_json_node_t *calls = bt_json_get(doc, message, "tool_calls");
    const bool has_calls = bt_json_size(calls, BT_JSON_ARRAY) > 0;
    const char *role = NULL;
    bt_status_t status = check_message(w, message, &role);
    char path[32];

    if (status != BT_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "messages[%u]", w->at);
    bt_api_note_members(w->parse, path, message, known);
    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "role", role);
    if (strcmp(role, "tool") == 0) {
        put_answered(w, bt_json_get(doc, message, "tool_call_id"),
                     bt_json_get(doc, message, "tool_name"));
    }
    if (has_text(content)) {
        bt_api_put_value(&w->json, "content", content);
    } else {
        bt_json_str(&w->json, "content", has_calls ? NULL : "");
    }
    if (has_text(thinking)) {
        bt_api_put_value(&w->json, "reasoning_content", thinking);
    }
    if (has_calls) {
        status = put_calls(w, calls);
    }
    bt_json_end_object(&w->json);
    return status;
}

/* A last message of the assistant that is a text is the beginning of the
 * answer. */
static bt_status_t keep_final(writer_t *w, const bt_json_node_t *message)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *content = bt_json_get(doc, message, "content");
    const bt_json_node_t *calls = bt_json_get(doc, message, "tool_calls");
    bt_status_t status;
    bt_strbuf_t text;

    if (!bt_json_is(bt_json_get(doc, message, "role"), "assistant") ||
        !has_text(content) || (bt_json_size(calls, BT_JSON_ARRAY) > 0)) {
        return BT_OK;
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    bt_api_add_final(w->parse, content, &text);
    status = bt_api_keep_final(w->parse, &text);
    w->parse->request->continues_final = status == BT_OK;
    return status;
}

static bt_status_t put_all(writer_t *w, const bt_json_node_t *list)
{
    const bt_json_node_t *message = bt_json_first(list);
    bt_status_t status = BT_OK;

    bt_json_array(&w->json, NULL);
    for (w->at = 0; (w->at < list->n) && (status == BT_OK); w->at++) {
        status = put_message(w, message);
        if ((status == BT_OK) && (w->at + 1 == list->n)) {
            status = keep_final(w, message);
        }
        message = bt_json_next(w->parse->doc, message);
    }
    bt_json_end_array(&w->json);
    return status;
}

bt_status_t bt_api_read_ollama_messages(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    writer_t w = {.parse = parse};
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    if (n > BT_API_MAX_MESSAGES) {
        return bt_api_refuse(parse, field->name,
                             "%s must have at most %d entries, got %u",
                             field->name, BT_API_MAX_MESSAGES, n);
    }
    if (n == 0) {
        return BT_OK; /* the model is to be loaded */
    }
    bt_strbuf_init(&w.text, JSON_LIMIT);
    bt_json_init(&w.json, &w.text);
    status = put_all(&w, value);
    if (status == BT_OK) {
        status = bt_api_keep_messages(parse, &w.text);
    }
    if (status == BT_OK) {
        parse->request->messages.n = n;
    }
    bt_strbuf_fini(&w.text);
    return status;
}

bt_status_t bt_api_read_ollama_prompt(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *value)
{
    if (bt_json_is(value, "")) {
        return BT_OK; /* the model is to be loaded */
    }
    return bt_json_is_kind(value, BT_JSON_STRING)
               ? bt_api_read_prompt(parse, field, value)
               : bt_api_refuse_kind(parse, field->name, "a string", value);
}

/* ---- options ---- */

bt_status_t bt_api_read_think(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    bt_api_request_t *request = parse->request;
    bt_status_t status;

    if (bt_json_is_bool(value)) {
        request->thinking = (value->kind == BT_JSON_TRUE) ? BT_API_THINKING_ON
                                                          : BT_API_THINKING_OFF;
        return BT_OK;
    }
    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_refuse_kind(
            parse, field->name, "true, false or an effort, as \"low\"", value);
    }
    status = bt_api_read_effort(parse, field, value);
    if (status == BT_OK) {
        request->thinking = bt_json_is(value, "none") ? BT_API_THINKING_OFF
                                                      : BT_API_THINKING_ON;
    }
    return status;
}

bt_status_t bt_api_read_num_predict(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, -2, INT32_MAX, &number);

    if ((status == BT_OK) && (number > 0)) {
        parse->request->has_max_tokens = true;
        parse->request->max_tokens = (uint32_t)number;
    }
    return status;
}

bt_status_t bt_api_read_ollama_seed(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    uint64_t seed = 0;
    const bt_status_t status =
        bt_api_integer_mod_2_64(parse, field->name, value, &seed);

    if ((status == BT_OK) && (seed != UINT64_MAX)) {
        parse->request->sampling.seed = seed;
        parse->request->has_seed = true;
    }
    return status;
}

/* Penalties look at all tokens, which is -1. */
bt_status_t bt_api_read_repeat_last_n(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, -1, INT32_MAX, &number);

    if ((status == BT_OK) && (number != -1)) {
        bt_api_note_unknown(parse->request, field->name, strlen(field->name));
    }
    return status;
}

/* ---- the whole request ---- */

/* What a chat template would do is refused without one, or named. */
static bt_status_t check_raw(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;

    if ((request->instructions != NULL) && (request->instructions[0] != '\0')) {
        return bt_api_refuse(parse, "system",
                             "system needs the chat template, which raw leaves "
                             "out");
    }
    if (request->thinking != BT_API_THINKING_DEFAULT) {
        bt_api_note_unknown(request, "think", strlen("think"));
        request->thinking = BT_API_THINKING_DEFAULT;
        bt_free(request->effort);
        request->effort = NULL;
    }
    return BT_OK;
}

/* Makes the prompt a message of the user. */
static bt_status_t make_messages(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    char *text = request->prompts[0].text;
    const bt_json_node_t node = {.kind = BT_JSON_STRING,
                                 .text = text,
                                 .len =
                                     (uint32_t)request->prompts[0].text_bytes};
    bt_status_t status;

    request->prompts[0].text = NULL;
    bt_api_prompts_fini(request);
    status = bt_api_take_user(parse, &node);
    bt_free(text);
    if ((status == BT_OK) && (request->instructions != NULL) &&
        (request->instructions[0] != '\0')) {
        status = bt_api_prepend_system(parse, request->instructions);
    }
    return status;
}

/* A request without a prompt loads a model: it is found, and nothing is
 * generated. The prompt is any. */
static bt_status_t make_load(bt_api_request_t *request, bt_api_error_t *error)
{
    request->prompts = bt_calloc(1, sizeof(*request->prompts));
    if (request->prompts == NULL) {
        return bt_api_error_no_memory(error);
    }
    request->n_prompts = 1;
    request->prompts[0].text = bt_strdup(" ");
    request->prompts[0].text_bytes = 1;
    request->counts_only = true;
    return (request->prompts[0].text != NULL) ? BT_OK
                                              : bt_api_error_no_memory(error);
}

bt_status_t bt_api_check_ollama(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    bt_status_t status = BT_OK;

    if ((request->n_prompts == 0) && (request->messages.n == 0)) {
        status = make_load(request, parse->error);
    } else if (request->raw) {
        status = check_raw(parse);
    } else if (request->n_prompts > 0) {
        status = make_messages(parse);
    }
    bt_free(request->instructions);
    request->instructions = NULL;
    return status;
}
