/* SPDX-License-Identifier: Apache-2.0 */
/* Detects which messages a template can render. Jinja texts differ in which
 * forms of a content they take: a template of a text-only model joins strings,
 * one of a multimodal model iterates over a list of parts, and most take both.
 * The form is detected from rendered output: words that no template contains
 * must appear, and of a list only its words. */
#include <stdio.h>
#include <string.h>

#include "inference/template/chat_priv.h"

#define PROBE_BYTES 1024u
#define TEXT_LIMIT  ((size_t)1 << 20)
#define ONE         "BatonProbeOne"
#define TWO         "BatonProbeTwo"
#define REPR        "baton_probe" /* a member that only a printed list shows */
#define PART(word)  "{\"type\":\"text\",\"text\":\"" word "\",\"" REPR "\":1}"
#define USER        "{\"role\":\"user\",\"content\":\"u\"}"
#define CALL_OF(name)                                              \
    "\"tool_calls\":[{\"id\":\"callprobe\",\"type\":\"function\"," \
    "\"function\":{\"name\":\"" name "\",\"arguments\":\"{\\\"a\\\":1}\"}}]"
#define CALL CALL_OF("f")
#define TOOL_OF(word)                                                      \
    "{\"type\":\"function\",\"function\":{\"name\":\"" word                \
    "\",\"description\":\"" word "\",\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{\"a\":{\"type\":\"integer\",\"description\":\"" word  \
    "\"}},\"required\":[\"a\"]}}}"
#define TOOL_WORD "batonprobetool" /* templates may change its case */

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

/* @return false: it raises, or uses an unsupported feature */
static bool renders_with(probe_t *p, const bt_tmpl_forms_t *forms,
                         const char *messages, const char *tools)
{
    const bt_chat_request_t request = {.messages_json = messages,
                                       .tools_json = tools};
    char why[BT_CHAT_WHY_BYTES];

    bt_strbuf_reset(&p->text);
    return bt_chat_render_text(p->tmpl, p->jinja, forms, &request, &p->text,
                               NULL, why, sizeof(why)) == BT_OK;
}

/* Renders without tools; if the template raises then, with one. */
static bool renders(probe_t *p, const bt_tmpl_forms_t *forms,
                    const around_t *around, const char *content)
{
    char messages[PROBE_BYTES];

    snprintf(messages, sizeof(messages), "%s%s%s", around->before, content,
             around->behind);
    return renders_with(p, forms, messages, NULL) ||
           renders_with(p, forms, messages, "[" TOOL_OF("f") "]");
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
    forms->thinking = names(source, bytes, ".thinking");
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        forms->reasoning =
            forms->reasoning || names(source, bytes, spellings[i]);
    }
}

/* ---- tools ---- */

static bool shows_tools(probe_t *p, const char *messages)
{
    static const char tools[] =
        "[" TOOL_OF(TOOL_WORD) "," TOOL_OF(TOOL_WORD) "]";

    return renders_with(p, p->forms, messages, tools) && (p->text.len > 0) &&
           (strcasestr(p->text.data, TOOL_WORD) != NULL);
}

static void probe_tools(probe_t *p)
{
    static const char system[] =
        "[{\"role\":\"system\",\"content\":\"" ONE "\"}," USER "]";
    static const char history[] =
        "[" USER ",{\"role\":\"assistant\",\"content\":\"\"," CALL_OF(
            ONE) "},{\"role\":\"tool\",\"name\":\"f\","
                 "\"tool_call_id\":\"callprobe\",\"content\":\"" TWO "\"}]";
    static const char with_system[] =
        "[{\"role\":\"system\",\"content\":\"s\"}," USER "]";
    bt_tmpl_forms_t *const forms = p->forms;

    forms->system =
        renders_with(p, forms, system, NULL) && (n_times(p, ONE) > 0);
    forms->history = renders_with(p, forms, history, NULL) &&
                     (n_times(p, ONE) > 0) && (n_times(p, TWO) > 0);
    forms->alternates = renders_with(p, forms, "[" USER "]", NULL) &&
                        !renders_with(p, forms, "[" USER "," USER "]", NULL);
    forms->tools = shows_tools(p, "[" USER "]") || shows_tools(p, with_system);
}

/* ---- all of them ---- */

void bt_chat_probe(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
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
    forms_p->null_calls = forms_p->null_alone = source != NULL;
    for (size_t i = 0; i < BT_N_ROLES; i++) {
        if (content == BT_CHAT_CONTENT_AUTO) {
            probe_role(&p, order[i]);
        } else {
            const bool string = content == BT_CHAT_CONTENT_STRING;

            forms_p->strings[i] = string;
            forms_p->parts[i] = string ? BT_PARTS_NONE : BT_PARTS_ALL;
        }
    }
    if (source != NULL) {
        probe_null(&p);
    }
    probe_tools(&p);
    bt_strbuf_fini(&p.text);
}
