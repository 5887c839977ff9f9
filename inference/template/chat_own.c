/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "inference/template/chat_priv.h"

#define JSON_LIMIT ((size_t)64 << 20)

bt_status_t bt_chat_template_read(const bt_chat_source_t *source, char *why,
                                  size_t why_bytes,
                                  const bt_chat_template_t **tmpl_p)
{
    const bt_chat_tokens_t *tokens = &source->tokens;
    const char *const texts[BT_CHAT_N_TOKENS] = {tokens->bos, tokens->eos,
                                                 tokens->unk, tokens->pad};
    bt_chat_template_t *tmpl = bt_calloc(1, sizeof(*tmpl));
    bt_status_t status = BT_ERR_NO_MEMORY;

    snprintf(why, why_bytes, "out of memory");
    if (tmpl == NULL) {
        return status;
    }
    tmpl->name = "own";
    for (int i = 0; i < BT_CHAT_N_TOKENS; i++) {
        tmpl->tokens[i] = bt_strdup(texts[i]);
        if ((texts[i] != NULL) && (tmpl->tokens[i] == NULL)) {
            goto err_free;
        }
    }
    status = bt_template_parse(source->jinja, source->bytes, why, why_bytes,
                               &tmpl->jinja);
    if ((status == BT_OK) && (source->tools_jinja != NULL)) {
        status = bt_template_parse(source->tools_jinja, source->tools_bytes,
                                   why, why_bytes, &tmpl->tools_jinja);
    }
    if (status != BT_OK) {
        goto err_free;
    }
    *tmpl_p = tmpl;
    return BT_OK;

err_free:
    bt_chat_template_free(tmpl);
    return status;
}

void bt_chat_template_free(const bt_chat_template_t *tmpl)
{
    if ((tmpl == NULL) || (tmpl->render != NULL)) { /* a family */
        return;
    }
    bt_template_destroy(tmpl->jinja);
    bt_template_destroy(tmpl->tools_jinja);
    for (int i = 0; i < BT_CHAT_N_TOKENS; i++) {
        bt_free(tmpl->tokens[i]);
    }
    bt_free((void *)(uintptr_t)tmpl);
}

static void put_rest(const bt_chat_message_t *message, bt_json_t *json)
{
    if (message->name != NULL) {
        bt_json_str(json, "name", message->name);
    }
    if (message->call_id != NULL) {
        bt_json_str(json, "tool_call_id", message->call_id);
    }
    if (message->calls_json != NULL) {
        bt_json_raw(json, "tool_calls", message->calls_json);
    }
}

static void write_messages(const bt_chat_request_t *request, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_array(&json, NULL);
    for (size_t i = 0; i < request->n_messages; i++) {
        bt_json_object(&json, NULL);
        bt_json_str(&json, "role", request->messages[i].role);
        bt_json_str(&json, "content", request->messages[i].content);
        put_rest(&request->messages[i], &json);
        bt_json_end_object(&json);
    }
    bt_json_end_array(&json);
}

#define MAX_VARS (BT_CHAT_N_TOKENS + 5u)

static bt_template_var_t json_var(bt_template_var_kind_t kind, const char *name,
                                  const char *text)
{
    /* As transformers passes tools and documents that are not there. */
    text = (text != NULL) ? text : "null";
    return (bt_template_var_t){
        .kind = kind, .name = name, .text = text, .bytes = strlen(text)};
}

static size_t collect_vars(const bt_chat_template_t *tmpl,
                           const bt_chat_request_t *request,
                           const char *messages,
                           bt_template_var_t vars[MAX_VARS])
{
    static const char *const names[BT_CHAT_N_TOKENS] = {
        "bos_token", "eos_token", "unk_token", "pad_token"};
    size_t n = 0;

    for (int i = 0; i < BT_CHAT_N_TOKENS; i++) {
        if (tmpl->tokens[i] != NULL) {
            vars[n++] = (bt_template_var_t){.kind = BT_VAR_TEXT,
                                            .name = names[i],
                                            .text = tmpl->tokens[i],
                                            .bytes = strlen(tmpl->tokens[i])};
        }
    }
    vars[n++] = json_var(BT_VAR_MESSAGES, "messages", messages);
    vars[n++] = json_var(BT_VAR_JSON, "tools", request->tools_json);
    vars[n++] = json_var(BT_VAR_JSON, "documents", request->documents_json);
    vars[n++] = (bt_template_var_t){.kind = BT_VAR_TRUTH,
                                    .name = "add_generation_prompt",
                                    .truth = !request->no_generation_prompt};
    if (request->kwargs_json != NULL) { /* last: they replace none of ours */
        vars[n++] = json_var(BT_VAR_MEMBERS, NULL, request->kwargs_json);
    }
    return n;
}

bt_status_t bt_chat_render_own(const bt_chat_template_t *tmpl,
                               const bt_chat_request_t *request,
                               bt_strbuf_t *out, bt_quotes_t *quotes, char *why,
                               size_t why_bytes)
{
    const bt_template_t *jinja =
        ((request->tools_json != NULL) && (tmpl->tools_jinja != NULL))
            ? tmpl->tools_jinja
            : tmpl->jinja;
    bt_template_var_t vars[MAX_VARS];
    bt_strbuf_t messages;
    bt_status_t status;
    size_t n;

    bt_strbuf_init(&messages, JSON_LIMIT);
    if (request->messages_json == NULL) {
        write_messages(request, &messages);
    }
    status = bt_strbuf_status(&messages);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s", bt_status_str(status));
    } else {
        n = collect_vars(tmpl, request,
                         (request->messages_json != NULL)
                             ? request->messages_json
                             : messages.data,
                         vars);
        status = bt_template_render(jinja, vars, n, request->now_s, out, quotes,
                                    why, why_bytes);
    }
    bt_strbuf_fini(&messages);
    return status;
}
