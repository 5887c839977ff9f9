/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/template/chat_priv.h"

bt_status_t bt_chat_template_of_family(const char *family,
                                       const bt_chat_template_t **tmpl_p)
{
    char why[BT_CHAT_WHY_BYTES];
    const char *name = NULL;
    const char *jinja = bt_chat_family_jinja(family, &name);
    bt_chat_template_t *tmpl;
    bt_status_t status;

    if (jinja == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    tmpl = bt_calloc(1, sizeof(*tmpl));
    if (tmpl == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status =
        bt_template_parse(jinja, strlen(jinja), why, sizeof(why), &tmpl->jinja);
    if (status != BT_OK) {
        bt_free(tmpl);
        return status;
    }
    tmpl->name = name;
    tmpl->is_family = true;
    tmpl->forms = bt_tmpl_forms_strings;
    *tmpl_p = tmpl;
    return BT_OK;
}

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
    bt_chat_probe(tmpl, tmpl->jinja, source->jinja, source->bytes,
                  source->content, &tmpl->forms);
    if (tmpl->tools_jinja != NULL) {
        bt_chat_probe(tmpl, tmpl->tools_jinja, source->tools_jinja,
                      source->tools_bytes, source->content, &tmpl->tools_forms);
    }
    *tmpl_p = tmpl;
    return BT_OK;

err_free:
    bt_chat_template_free(tmpl);
    return status;
}

void bt_chat_template_free(const bt_chat_template_t *tmpl)
{
    if (tmpl == NULL) {
        return;
    }
    bt_template_destroy(tmpl->jinja);
    bt_template_destroy(tmpl->tools_jinja);
    for (int i = 0; i < BT_CHAT_N_TOKENS; i++) {
        bt_free(tmpl->tokens[i]);
    }
    bt_free((void *)(uintptr_t)tmpl);
}

#define MAX_VARS (BT_CHAT_N_TOKENS + 5u)

static bt_template_var_t json_var(const bt_chat_request_t *request,
                                  bt_template_var_kind_t kind, const char *name,
                                  const char *text)
{
    /* As transformers passes tools and documents that are not there. */
    text = (text != NULL) ? text : "null";
    return (bt_template_var_t){.kind = kind,
                               .name = name,
                               .text = text,
                               .bytes = strlen(text),
                               .unused = request->unused,
                               .path = name};
}

static size_t collect_vars(const bt_chat_template_t *tmpl,
                           const bt_tmpl_forms_t *forms,
                           const bt_chat_request_t *request,
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
    vars[n] =
        json_var(request, BT_VAR_MESSAGES, "messages", request->messages_json);
    vars[n++].forms = forms;
    vars[n++] = json_var(request, BT_VAR_JSON, "tools", request->tools_json);
    vars[n++] =
        json_var(request, BT_VAR_JSON, "documents", request->documents_json);
    vars[n++] = (bt_template_var_t){.kind = BT_VAR_TRUTH,
                                    .name = "add_generation_prompt",
                                    .truth = !request->no_generation_prompt};
    if (request->kwargs_json != NULL) { /* last: they replace none of ours */
        vars[n++] = json_var(request, BT_VAR_MEMBERS, "chat_template_kwargs",
                             request->kwargs_json);
    }
    return n;
}

bt_status_t bt_chat_render_text(const bt_chat_template_t *tmpl,
                                const bt_template_t *jinja,
                                const bt_tmpl_forms_t *forms,
                                const bt_chat_request_t *request,
                                bt_strbuf_t *out, bt_quotes_t *quotes,
                                char *why, size_t why_bytes)
{
    bt_template_var_t vars[MAX_VARS];
    const size_t n = collect_vars(tmpl, forms, request, vars);

    return bt_template_render(jinja, vars, n, request->now_s, out, quotes, why,
                              why_bytes);
}

/* A family shows messages alone. */
static const char *refused_by_family(const bt_chat_request_t *request)
{
    if (request->tools_json != NULL) {
        return BT_CHAT_NO_TOOLS;
    }
    if ((request->documents_json != NULL) || (request->kwargs_json != NULL)) {
        return "documents and chat_template_kwargs need the model's own chat "
               "template; the server was started with --chat-template and the "
               "name of a family";
    }
    return NULL;
}

bt_status_t bt_chat_render(const bt_chat_template_t *tmpl,
                           const bt_chat_request_t *request, bt_strbuf_t *out,
                           bt_quotes_t *quotes, char *why, size_t why_bytes)
{
    const bool tools =
        (request->tools_json != NULL) && (tmpl->tools_jinja != NULL);
    const char *refused = tmpl->is_family ? refused_by_family(request) : NULL;

    if (refused != NULL) {
        snprintf(why, why_bytes, "%s", refused);
        return BT_ERR_UNSUPPORTED;
    }
    return bt_chat_render_text(tmpl, tools ? tmpl->tools_jinja : tmpl->jinja,
                               tools ? &tmpl->tools_forms : &tmpl->forms,
                               request, out, quotes, why, why_bytes);
}

const char *bt_chat_template_name(const bt_chat_template_t *tmpl)
{
    return tmpl->name;
}
