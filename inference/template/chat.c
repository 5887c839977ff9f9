/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/template/chat_priv.h"

#define MAX_VARS (BT_CHAT_N_TOKENS + 6u)

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
    vars[n].forms = forms;
    if (request->tools_as_text &&
        ((request->tools_json != NULL) || !forms->history)) {
        vars[n].writes_tools = true;
        vars[n].tools = request->tools_json;
        vars[n].tools_bytes =
            (request->tools_json != NULL) ? strlen(request->tools_json) : 0;
    }
    n++;
    vars[n++] = json_var(request, BT_VAR_JSON, "tools",
                         request->tools_as_text ? NULL : request->tools_json);
    vars[n++] =
        json_var(request, BT_VAR_JSON, "documents", request->documents_json);
    vars[n++] = (bt_template_var_t){.kind = BT_VAR_TRUTH,
                                    .name = "add_generation_prompt",
                                    .truth = !request->no_generation_prompt};
    if (request->kwargs_json != NULL) { /* last: they replace none of ours */
        vars[n++] = json_var(request, BT_VAR_MEMBERS, "chat_template_kwargs",
                             request->kwargs_json);
    }
    if (request->defaults_json != NULL) {
        vars[n] =
            json_var(request, BT_VAR_MEMBERS, NULL, request->defaults_json);
        vars[n++].unused = NULL;
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

/* Chat templates that --chat-template names, as Jinja texts. A conversation
 * that a published text would cut silently is refused. */

#define RAISE(text) "{{ raise_exception(\"" text "\") }}"

/* Refuses what no family can show. */
#define MESSAGES                                                                                                     \
    "{% if not messages %}" RAISE(                                                                                   \
        "there are no messages") "{% endif %}"                                                                       \
                                 "{% for m in messages %}"                                                           \
                                 "{% if m.role is not string or m.content is not string %}" RAISE(                   \
                                     "a message needs a role and content") "{% endif %}"                             \
                                                                           "{% if m.tool_calls is defined %}" RAISE( \
                                                                               BT_CHAT_NO_TOOLS) "{% endif %}"       \
                                                                                                 "{% endfor %}"

#define ROLES                                                           \
    "{% for m in messages %}"                                           \
    "{% if m.role not in ['system', 'user', 'assistant'] %}" RAISE(     \
        "this model's chat template knows only the roles system, user " \
        "and assistant") "{% endif %}{% endfor %}"

#define NO_SYSTEM                                               \
    "{% for m in messages %}{% if m.role == 'system' %}" RAISE( \
        "this model's chat template has no system role") "{% endif %}{% endfor %}"

/* turns: user and assistant in alternation, behind a system message. */
#define TURNS                                                                                                                                    \
    ROLES                                                                                                                                        \
    "{% set system = messages[0].content "                                                                                                       \
    "if messages[0].role == 'system' else none %}"                                                                                               \
    "{% set turns = messages if system is none else messages[1:] %}"                                                                             \
    "{% if not turns %}" RAISE(                                                                                                                  \
        "there is no user message") "{% endif %}"                                                                                                \
                                    "{% for m in turns %}{% if m.role == 'system' %}" RAISE(                                                     \
                                        "a system message can only be the first") "{% endif %}"                                                  \
                                                                                  "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" RAISE( \
                                                                                      "roles must alternate user, assistant, user ...") "{% endif %}{% endfor %}"

#define OPENS(text) "{% if add_generation_prompt %}" text "{% endif %}"

#define CHATML_TURNS                                    \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" \
    "{{ m.content }}<|im_end|>\n{% endfor %}" OPENS("<|im_start|>assistant\n")

/* system: for a conversation without a system message. */
#define CHATML(system)                                                 \
    MESSAGES                                                           \
    "{% if messages[0].role != 'system' %}<|im_start|>system\n" system \
    "<|im_end|>\n{% endif %}" CHATML_TURNS

/* The first user message is stripped together with the system text. */
#define LLAMA2                                                                   \
    MESSAGES TURNS                                                               \
        "{% for m in turns %}{% if m.role == 'user' %}<s>[INST] "                \
        "{% if loop.first and system is not none %}"                             \
        "{{ ('<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m.content) | trim }}" \
        "{% else %}{{ m.content | trim }}{% endif %} [/INST]"                    \
        "{% else %} {{ m.content | trim }} </s>{% endif %}{% endfor %}"

#define LLAMA3_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

#define LLAMA3(begin)                                                                                          \
    MESSAGES                                                                                                   \
    "{% set turns = messages %}<|begin_of_text|>" begin                                                        \
    "{% for m in turns %}" LLAMA3_HEADER("{{ m.role }}") "{{ m.content | trim }}<|eot_id|>{% endfor %}" OPENS( \
        LLAMA3_HEADER("assistant"))

/* There is always a system message, which begins with these lines. */
#define LLAMA3_1_SYSTEM                                                \
    LLAMA3_HEADER("system")                                            \
    "Cutting Knowledge Date: December 2023\n"                          \
    "Today Date: 26 Jul 2024\n\n{% if messages[0].role == 'system' %}" \
    "{{ messages[0].content | trim }}{% set turns = messages[1:] %}"   \
    "{% endif %}<|eot_id|>"

/* system: of the first user message. */
#define GEMMA(check, system)                                       \
    MESSAGES check TURNS                                           \
        "<bos>{% for m in turns %}<start_of_turn>"                 \
        "{{ 'user' if m.role == 'user' else 'model' }}\n" system   \
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}" OPENS( \
            "<start_of_turn>model\n")

#define SYSTEM_FIRST \
    "{% if loop.first and system is not none %}{{ system }}\n\n{% endif %}"

/* end: behind an answer. */
#define MISTRAL(end)                                              \
    MESSAGES NO_SYSTEM TURNS                                      \
        "<s>{% for m in turns %}"                                 \
        "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]" \
        "{% else %}{{ m.content }}</s>" end "{% endif %}{% endfor %}"

#define MISTRAL_V1                                                              \
    MESSAGES TURNS                                                              \
        "<s>{% for m in turns %}{% if m.role == 'user' %} [INST] " SYSTEM_FIRST \
        "{{ m.content }} [/INST]"                                               \
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"

#define TAGGED(end)                                            \
    MESSAGES ROLES "{% for m in messages %}<|{{ m.role }}|>\n" \
                   "{{ m.content }}" end                       \
                   "\n{% endfor %}" OPENS("<|assistant|>\n")

static const struct {
    const char *name, *jinja;
} families[] = {
    {"chatml", MESSAGES CHATML_TURNS},
    {"smollm", CHATML("You are a helpful AI assistant named SmolLM, trained "
                      "by Hugging Face")},
    {"qwen1.5", CHATML("You are a helpful assistant")},
    {"qwen2", CHATML("You are a helpful assistant.")},
    {"qwen2.5", CHATML("You are Qwen, created by Alibaba Cloud. You are a "
                       "helpful assistant.")},
    {"llama2", LLAMA2},
    {"llama3", LLAMA3("")},
    {"llama3.1", LLAMA3(LLAMA3_1_SYSTEM)},
    {"gemma", GEMMA(NO_SYSTEM, "")},
    {"gemma3", GEMMA("", SYSTEM_FIRST)},
    {"mistral", MISTRAL("")},
    {"mistral-v0.1", MISTRAL(" ")},
    {"mistral-v1", MISTRAL_V1},
    {"zephyr", TAGGED("</s>")},
    {"phi", TAGGED("<|end|>")},
};

const char *bt_chat_family_names(void)
{
    return "chatml, smollm, qwen1.5, qwen2, qwen2.5, llama2, llama3, "
           "llama3.1, gemma, gemma3, mistral, mistral-v0.1, mistral-v1, "
           "zephyr, phi";
}

/* The Jinja text of a family; NULL: unknown, and *name_p is unchanged. */
static const char *family_jinja(const char *name, const char **name_p)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strcmp(families[i].name, name) == 0) {
            *name_p = families[i].name;
            return families[i].jinja;
        }
    }
    return NULL;
}

bt_status_t bt_chat_template_of_family(const char *family,
                                       const bt_chat_template_t **tmpl_p)
{
    char why[BT_CHAT_WHY_BYTES];
    const char *name = NULL;
    const char *jinja = family_jinja(family, &name);
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
    bt_chat_probe(tmpl, tmpl->jinja, NULL, 0, BT_CHAT_CONTENT_STRING,
                  &tmpl->forms);
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

/* A family shows messages alone. */
static const char *refused_by_family(const bt_chat_request_t *request)
{
    if ((request->tools_json != NULL) && !request->tools_as_text) {
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
    const bool tools = (request->tools_json != NULL) &&
                       !request->tools_as_text && (tmpl->tools_jinja != NULL);
    const char *refused = tmpl->is_family ? refused_by_family(request) : NULL;

    if (refused != NULL) {
        snprintf(why, why_bytes, "%s", refused);
        return BT_ERR_UNSUPPORTED;
    }
    return bt_chat_render_text(tmpl, tools ? tmpl->tools_jinja : tmpl->jinja,
                               tools ? &tmpl->tools_forms : &tmpl->forms,
                               request, out, quotes, why, why_bytes);
}

bool bt_chat_template_shows_tools(const bt_chat_template_t *tmpl)
{
    return (tmpl->tools_jinja != NULL) ? tmpl->tools_forms.tools
                                       : tmpl->forms.tools;
}

bool bt_chat_template_has_name(const bt_chat_template_t *tmpl, bool tools,
                               const char *name)
{
    const bt_template_t *const jinja = (tools && (tmpl->tools_jinja != NULL))
                                           ? tmpl->tools_jinja
                                           : tmpl->jinja;

    return !tmpl->is_family && bt_template_has_name(jinja, name);
}

const char *bt_chat_template_name(const bt_chat_template_t *tmpl)
{
    return tmpl->name;
}
