/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/template/chat_priv.h"

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

/* Renders one of the Jinja texts of a template; forms are the message forms
 * that it can render. */
static bt_status_t
render_text(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
            const bt_tmpl_forms_t *forms, const bt_chat_request_t *request,
            bt_strbuf_t *out, bt_quotes_t *quotes, char *why, size_t why_bytes)
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

/* Detects which messages a template can render. Jinja texts differ in which
 * forms of a content they take: a template of a text-only model joins strings,
 * one of a multimodal model iterates over a list of parts, and most take both.
 * The form is detected from rendered output: words that no template contains
 * must appear, and of a list only its words. */

#define PROBE_BYTES 1024u
#define TEXT_LIMIT  ((size_t)1 << 20)
#define ONE         "BatonProbeOne"
#define TWO         "BatonProbeTwo"
#define REPR        "baton_probe" /* a member that only a printed list shows */
#define PART(word)  "{\"type\":\"text\",\"text\":\"" word "\",\"" REPR "\":1}"
#define USER        "{\"role\":\"user\",\"content\":\"u\"}"
#define CALL                                                       \
    "\"tool_calls\":[{\"id\":\"callprobe\",\"type\":\"function\"," \
    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]"
#define TOOLS                                                              \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\","                \
    "\"description\":\"d\",\"parameters\":{\"type\":\"object\","           \
    "\"properties\":{\"a\":{\"type\":\"integer\",\"description\":\"d\"}}," \
    "\"required\":[\"a\"]}}}]"

typedef struct probe {
    const bt_chat_template_t *tmpl;
    const bt_template_t *jinja;
    bt_tmpl_forms_t *forms;
    bt_strbuf_t text; /* of the last rendering that did not fail */
} probe_t;

/* Text before and behind a content of a conversation. */
typedef struct around {
    const char *before, *behind;
} around_t;

static const around_t roles[BT_N_ROLES] = {
    [BT_ROLE_SYSTEM] = {"[{\"role\":\"system\",\"content\":", "}," USER "]"},
    [BT_ROLE_USER] = {"[{\"role\":\"user\",\"content\":", "}]"},
    [BT_ROLE_ASSISTANT] = {"[" USER ",{\"role\":\"assistant\",\"content\":",
                           "}," USER "]"},
    [BT_ROLE_TOOL] = {"[" USER ",{\"role\":\"assistant\",\"content\":\"\"," CALL
                      "},{\"role\":\"tool\",\"name\":\"f\","
                      "\"tool_call_id\":\"callprobe\",\"content\":",
                      "}]"},
};

/*
 * Renders without tools; if the template raises then, with one.
 * @return false: it raises, or uses an unsupported feature
 */
static bool renders(probe_t *p, const bt_tmpl_forms_t *forms,
                    const around_t *around, const char *content)
{
    char messages[PROBE_BYTES];
    char why[BT_CHAT_WHY_BYTES];
    bt_chat_request_t request = {.messages_json = messages};
    bool rendered = false;

    snprintf(messages, sizeof(messages), "%s%s%s", around->before, content,
             around->behind);
    for (int i = 0; (i < 2) && !rendered; i++) {
        request.tools_json = (i == 0) ? NULL : TOOLS;
        bt_strbuf_reset(&p->text);
        rendered = render_text(p->tmpl, p->jinja, forms, &request, &p->text,
                               NULL, why, sizeof(why)) == BT_OK;
    }
    return rendered;
}

static size_t n_times(const probe_t *p, const char *word)
{
    const char *at = p->text.data;
    size_t n = 0;

    while ((at != NULL) && (p->text.len > 0)) {
        at = strstr(at, word);
        n += (at != NULL) ? 1 : 0;
        at = (at != NULL) ? at + strlen(word) : NULL;
    }
    return n;
}

/* ---- contents ---- */

static bool shows(probe_t *p, bt_tmpl_role_t role, const char *content,
                  size_t n_words)
{
    bt_tmpl_forms_t as_sent = *p->forms;

    as_sent.strings[role] = true;
    as_sent.parts[role] = BT_PARTS_ALL;
    return renders(p, &as_sent, &roles[role], content) &&
           (n_times(p, REPR) == 0) && (n_times(p, ONE) > 0) &&
           ((n_words == 1) || (n_times(p, TWO) > 0));
}

static void probe_role(probe_t *p, bt_tmpl_role_t role)
{
    bt_tmpl_forms_t *forms = p->forms;
    const bool strings = shows(p, role, "\"" ONE "\"", 1);
    bt_tmpl_parts_t parts = BT_PARTS_NONE;

    if (shows(p, role, "[" PART(ONE) "," PART(TWO) "]", 2)) {
        parts = BT_PARTS_ALL;
    } else if (shows(p, role, "[" PART(ONE) "]", 1)) {
        parts = BT_PARTS_ONE;
    }
    if (!strings && (parts == BT_PARTS_NONE)) { /* the role is unsupported */
        forms->strings[role] = forms->strings[BT_ROLE_USER];
        forms->parts[role] = forms->parts[BT_ROLE_USER];
        return;
    }
    forms->strings[role] = strings;
    forms->parts[role] = parts;
}

/* ---- null ---- */

/* True when null content is rendered like empty content. */
static bool shows_null(probe_t *p, const around_t *around)
{
    const bool null_renders = renders(p, p->forms, around, "null");
    const size_t n_none = null_renders ? n_times(p, "None") : 0;
    const bool empty_renders = renders(p, p->forms, around, "\"\"");

    return empty_renders ? null_renders && (n_none <= n_times(p, "None"))
                         : true;
}

static void probe_null(probe_t *p)
{
    static const around_t beside_calls = {
        "[" USER ",{\"role\":\"assistant\",\"content\":", "," CALL "}]"};
    bool calls;

    p->forms->null_calls = p->forms->null_alone = true; /* left as sent */
    calls = shows_null(p, &beside_calls);
    p->forms->null_alone = shows_null(p, &roles[BT_ROLE_ASSISTANT]);
    p->forms->null_calls = calls;
}

/* ---- names ---- */

static bool names(const char *source, size_t bytes, const char *word)
{
    return (bytes > 0) && (memmem(source, bytes, word, strlen(word)) != NULL);
}

static void find_names(const char *source, size_t bytes, bt_tmpl_forms_t *forms)
{
    static const char *const spellings[] = {
        ".reasoning ", ".reasoning}", ".reasoning|",
        ".reasoning)", ".reasoning-", ".reasoning%",
        ".reasoning.", "'reasoning'", "\"reasoning\""};

    forms->developer = names(source, bytes, "developer");
    forms->reasoning_content = names(source, bytes, "reasoning_content");
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        forms->reasoning =
            forms->reasoning || names(source, bytes, spellings[i]);
    }
}

/* Detects the message forms that a template can render, by rendering short
 * conversations with one of its texts. */
static void probe(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
                  const char *source, size_t bytes, bt_chat_content_t content,
                  bt_tmpl_forms_t *forms_p)
{
    static const bt_tmpl_role_t order[] = {BT_ROLE_USER, BT_ROLE_SYSTEM,
                                           BT_ROLE_ASSISTANT, BT_ROLE_TOOL};
    probe_t p = {.tmpl = tmpl, .jinja = jinja, .forms = forms_p};

    bt_strbuf_init(&p.text, TEXT_LIMIT);
    memset(forms_p, 0, sizeof(*forms_p));
    find_names(source, bytes, forms_p);
    forms_p->strings[BT_ROLE_USER] = true;
    forms_p->null_calls = forms_p->null_alone = true;
    for (size_t i = 0; i < BT_N_ROLES; i++) {
        if (content == BT_CHAT_CONTENT_AUTO) {
            probe_role(&p, order[i]);
        } else {
            const bool string = content == BT_CHAT_CONTENT_STRING;

            forms_p->strings[i] = string;
            forms_p->parts[i] = string ? BT_PARTS_NONE : BT_PARTS_ALL;
        }
    }
    probe_null(&p);
    bt_strbuf_fini(&p.text);
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
    probe(tmpl, tmpl->jinja, source->jinja, source->bytes, source->content,
          &tmpl->forms);
    if (tmpl->tools_jinja != NULL) {
        probe(tmpl, tmpl->tools_jinja, source->tools_jinja, source->tools_bytes,
              source->content, &tmpl->tools_forms);
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
    return render_text(tmpl, tools ? tmpl->tools_jinja : tmpl->jinja,
                       tools ? &tmpl->tools_forms : &tmpl->forms, request, out,
                       quotes, why, why_bytes);
}

const char *bt_chat_template_name(const bt_chat_template_t *tmpl)
{
    return tmpl->name;
}
