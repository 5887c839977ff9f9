/* SPDX-License-Identifier: Apache-2.0 */
/* Tools, calls and results as text of the messages, for templates that show
 * none. The form is that of Hermes 2 Pro in the words of Qwen 2.5's template,
 * and byte for byte what that one renders:
 *
 *     system      text \n\n # Tools … <tools>\n{…}\n{…}\n</tools> …
 *     assistant   text \n <tool_call>\n{"name": "f", "arguments": {…}}\n
 *                 </tool_call> \n <tool_call> …
 *     user        <tool_response>\n result \n</tool_response> \n …
 *
 * Where a client's JSON has one of these tags, its '<' is \u003c; a result
 * that is no JSON and has one becomes a JSON text. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/template/chat_priv.h"
#include "inference/template/text.h"

#define MAX_RESULT_VALUES (1u << 20)

#define BEFORE_TOOLS                                                         \
    "# Tools\n\nYou may call one or more functions to assist with the user " \
    "query.\n\nYou are provided with function signatures within "            \
    "<tools></tools> XML tags:\n<tools>"
#define BEHIND_TOOLS                                                   \
    "\n</tools>\n\nFor each function call, return a json object with " \
    "function name and arguments within <tool_call></tool_call> XML "  \
    "tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "  \
    "<args-json-object>}\n</tool_call>"

static const bt_tmpl_text_t role_system = {.data = "system", .len = 6};
static const bt_tmpl_text_t role_user = {.data = "user", .len = 4};
static const bt_tmpl_text_t key_role = {.data = "role", .len = 4};
static const bt_tmpl_text_t key_content = {.data = "content", .len = 7};

typedef struct writer {
    bt_tmpl_run_t *run;
    const bt_tmpl_forms_t *forms;
    const bt_tmpl_text_t *tools; /* NULL: none are to be shown */
    bt_tmpl_seq_t *out;          /* messages for the template */
    bt_tmpl_seq_t *made;         /* those of them that are made here */
    bt_tmpl_written_t *written;  /* what they are made of, the newest first */
    bt_tmpl_dict_t *last;        /* of out, if it is made here */
    bool joins;                  /* its content is that of `joined` */
    bt_tmpl_build_t joined;
} writer_t;

/* ---- JSON ---- */

/* Returns the bytes of the tag at the beginning of a text; 0: none is there. */
static uint32_t tag_at(const char *text, size_t n)
{
    static const char *const tags[] = {"<tools>",         "</tools>",
                                       "<tool_call>",     "</tool_call>",
                                       "<tool_response>", "</tool_response>"};

    for (size_t i = 0; i < BT_ARRAY_LEN(tags); i++) {
        const size_t len = strlen(tags[i]);

        if ((len <= n) && (memcmp(text, tags[i], len) == 0)) {
            return (uint32_t)len;
        }
    }
    return 0;
}

/* Returns the position of the next tag, or text->len. */
static uint32_t next_tag(const bt_tmpl_text_t *text, uint32_t from)
{
    while (from < text->len) {
        const char *at = memchr(text->data + from, '<', text->len - from);

        if (at == NULL) {
            break;
        }
        from = (uint32_t)(at - text->data);
        if (tag_at(at, text->len - from) > 0) {
            return from;
        }
        from++;
    }
    return text->len;
}

/* Appends a JSON text. '<' is in its strings alone, so it may be escaped. */
static void put_escaped(bt_tmpl_build_t *out, const bt_tmpl_text_t *text)
{
    static const char escape[] = "\\u003c";
    uint32_t from = 0;

    while ((from < text->len) && bt_tmpl_run_ok(out->run)) {
        const uint32_t at = next_tag(text, from);

        bt_tmpl_build_slice(out, text, from, at);
        from = at;
        if (at < text->len) {
            bt_tmpl_build_bytes(out, escape, strlen(escape), true);
            from++;
        }
    }
}

/* Appends a value as transformers' tojson prints it. */
static void put_json(bt_tmpl_build_t *out, bt_tmpl_value_t value)
{
    static const bt_tmpl_text_t item = {.data = ", ", .len = 2};
    static const bt_tmpl_text_t key = {.data = ": ", .len = 2};
    const bt_tmpl_json_style_t style = {.item = &item, .key = &key};
    const bt_tmpl_text_t *text;
    bt_tmpl_build_t json;

    bt_tmpl_build_init(&json, out->run);
    bt_tmpl_print_json(&json, &style, value);
    text = bt_tmpl_build_end(&json);
    if (text != NULL) {
        put_escaped(out, text);
    }
}

/* ---- calls and results ---- */

static bt_tmpl_value_t *member_of(bt_tmpl_value_t of, const char *name)
{
    return (of.kind == BT_V_DICT) ? bt_tmpl_message_member(of.u.dict, name)
                                  : NULL;
}

static const bt_tmpl_seq_t *calls_of(bt_tmpl_value_t message)
{
    const bt_tmpl_value_t *calls = member_of(message, "tool_calls");

    return ((calls != NULL) && (calls->kind == BT_V_SEQ) &&
            (calls->u.seq->n > 0))
               ? calls->u.seq
               : NULL;
}

/* Appends a call. Arguments are written anew, as templates' tojson does, since
 * of APIs some keep the model's text of them and some keep an object. */
static void put_call(writer_t *w, bt_tmpl_build_t *out, bt_tmpl_value_t call)
{
    bt_tmpl_value_t *const function = member_of(call, "function");
    bt_tmpl_value_t *const name =
        (function != NULL) ? member_of(*function, "name") : NULL;
    bt_tmpl_value_t *const arguments =
        (function != NULL) ? member_of(*function, "arguments") : NULL;

    if ((name == NULL) || (name->kind != BT_V_TEXT)) {
        bt_tmpl_run_fail(w->run, BT_ERR_INVALID_PARAM,
                         "a tool call needs a function with a name");
        return;
    }
    function->used = name->used = true;
    bt_tmpl_build_puts(out, (out->len > 0) ? "\n" : "");
    bt_tmpl_build_puts(out, "<tool_call>\n{\"name\": ");
    put_json(out, *name);
    bt_tmpl_build_puts(out, ", \"arguments\": ");
    if ((arguments == NULL) || (arguments->kind == BT_V_NONE)) {
        bt_tmpl_build_puts(out, "{}");
    } else {
        arguments->used = true;
        put_json(out, *arguments);
    }
    bt_tmpl_build_puts(out, "}\n</tool_call>");
}

static bool is_json(writer_t *w, const bt_tmpl_text_t *text)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    const bt_status_t status = bt_json_doc_parse_client(
        text->data, text->len, MAX_RESULT_VALUES, &fault, &doc);

    bt_json_doc_free(doc);
    if (status == BT_ERR_NO_MEMORY) {
        return bt_tmpl_run_fail(w->run, status, "%s", fault.what);
    }
    return status == BT_OK;
}

static void put_result(writer_t *w, bt_tmpl_build_t *out,
                       bt_tmpl_value_t message)
{
    bt_tmpl_value_t *const sent = member_of(message, "content");
    const bt_tmpl_text_t *text =
        (sent != NULL) ? bt_tmpl_content_text(w->run, *sent) : NULL;

    if (!bt_tmpl_run_ok(w->run)) {
        return;
    }
    text = (text != NULL) ? text : &bt_tmpl_text_empty;
    bt_tmpl_build_puts(out, (out->len > 0) ? "\n" : "");
    bt_tmpl_build_puts(out, "<tool_response>\n");
    if (next_tag(text, 0) == text->len) {
        bt_tmpl_build_text(out, text);
    } else if (is_json(w, text)) {
        put_escaped(out, text);
    } else {
        put_json(out, bt_tmpl_v_text(text));
    }
    bt_tmpl_build_puts(out, "\n</tool_response>");
}

/* True when a result answers this call. */
static bool answers(bt_tmpl_value_t result, bt_tmpl_value_t call)
{
    const bt_tmpl_value_t *of = member_of(result, "tool_call_id");
    const bt_tmpl_value_t *id = member_of(call, "id");

    return (of != NULL) && (id != NULL) && (of->kind == BT_V_TEXT) &&
           (id->kind == BT_V_TEXT) &&
           bt_tmpl_text_equal(of->u.text, id->u.text);
}

/* Appends results in the order of the calls that they answer, as they have
 * no other sign of it; those that answer none are last.
 * @param [in] calls  NULL: none */
static void put_results(writer_t *w, bt_tmpl_build_t *out,
                        const bt_tmpl_value_t *results, uint32_t n,
                        const bt_tmpl_seq_t *calls)
{
    const uint32_t n_calls = (calls != NULL) ? calls->n : 0;
    bool *const done = bt_tmpl_run_take(w->run, (size_t)n + 1, sizeof(*done));

    for (uint32_t k = 0; (done != NULL) && (k <= n_calls); k++) {
        if (!bt_tmpl_run_step(w->run, n)) {
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (!done[i] &&
                ((k == n_calls) || answers(results[i], calls->items[k]))) {
                done[i] = true;
                put_result(w, out, results[i]);
            }
        }
    }
}

/* ---- messages ---- */

static const bt_tmpl_text_t *role_of(bt_tmpl_value_t message)
{
    const bt_tmpl_value_t *role = member_of(message, "role");

    return ((role != NULL) && (role->kind == BT_V_TEXT)) ? role->u.text : NULL;
}

static bool has_role(bt_tmpl_value_t message, const char *name)
{
    const bt_tmpl_text_t *role = role_of(message);

    return (role != NULL) && bt_tmpl_text_is(role, name);
}

/* Records that a message is shown by way of another.
 * @param [in] sent  NULL: there is none */
static bool record(writer_t *w, bt_tmpl_dict_t *sent,
                   const bt_tmpl_dict_t *made)
{
    bt_tmpl_written_t *const one =
        (sent != NULL) ? bt_tmpl_run_take(w->run, 1, sizeof(*one)) : NULL;

    if (one == NULL) {
        return bt_tmpl_run_ok(w->run);
    }
    one->sent = sent;
    one->made = made;
    one->next = w->written;
    w->written = one;
    return true;
}

/* Makes a message with this content, and with all other members of a
 * message that was sent, but for its calls.
 * @param [in] like  NULL: none
 * @return NULL: failed */
static bt_tmpl_dict_t *make_message(writer_t *w, const bt_tmpl_text_t *role,
                                    const bt_tmpl_text_t *content,
                                    bt_tmpl_dict_t *like)
{
    bt_tmpl_dict_t *const made = bt_tmpl_dict_make(w->run);

    if ((made == NULL) || (content == NULL) || (role == NULL)) {
        return NULL;
    }
    made->quoted = true;
    if (!bt_tmpl_dict_put(w->run, made, bt_tmpl_v_text(&key_role),
                          bt_tmpl_v_text(role)) ||
        !bt_tmpl_dict_put(w->run, made, bt_tmpl_v_text(&key_content),
                          bt_tmpl_v_text(content))) {
        return NULL;
    }
    for (uint32_t i = 0; (like != NULL) && (i < like->n); i++) {
        const bt_tmpl_entry_t *const e = &like->entries[i];

        if (!bt_tmpl_v_text_is(e->key, "role") &&
            !bt_tmpl_v_text_is(e->key, "content") &&
            !bt_tmpl_v_text_is(e->key, "tool_calls") &&
            !bt_tmpl_dict_put(w->run, made, e->key, e->value)) {
            return NULL;
        }
    }
    return record(w, like, made) ? made : NULL;
}

/* Replaces or adds the last message. */
static bool put_made(writer_t *w, bt_tmpl_dict_t *made, bool replaces)
{
    const bt_tmpl_value_t value = bt_tmpl_v_dict(made);

    if (made == NULL) {
        return false;
    }
    w->last = made;
    if (replaces) {
        w->out->items[w->out->n - 1] = value;
    } else if (!bt_tmpl_seq_add(w->run, w->out, value)) {
        return false;
    }
    return bt_tmpl_seq_add(w->run, w->made, value);
}

/* Returns the text of a message's content; NULL: failed. */
static const bt_tmpl_text_t *text_of(writer_t *w, bt_tmpl_value_t message)
{
    const bt_tmpl_value_t *content = member_of(message, "content");

    return (content != NULL) ? bt_tmpl_content_text(w->run, *content)
                             : &bt_tmpl_text_empty;
}

/* Appends a text to the last message. The texts of many that follow each other
 * are one build, of which each content is a longer part.
 * @param [in] sent  message that the text is of; NULL: none */
static bool join(writer_t *w, const bt_tmpl_text_t *text, bt_tmpl_dict_t *sent)
{
    const bt_tmpl_value_t before = w->out->items[w->out->n - 1];
    const bt_tmpl_text_t *const begun = text_of(w, before);
    const bt_tmpl_text_t *all;

    if ((text == NULL) || (begun == NULL)) {
        return false;
    }
    if (!w->joins) {
        bt_tmpl_build_init(&w->joined, w->run);
        bt_tmpl_build_text(&w->joined, begun);
        w->joins = true;
    }
    bt_tmpl_build_puts(&w->joined, "\n");
    bt_tmpl_build_text(&w->joined, text);
    all = bt_tmpl_build_end(&w->joined);
    if (!bt_tmpl_run_ok(w->run)) {
        return false;
    }
    if (w->last != NULL) {
        *bt_tmpl_message_member(w->last, "content") = bt_tmpl_v_text(all);
    } else if (!put_made(w,
                         make_message(w, role_of(before), all, before.u.dict),
                         true)) {
        return false;
    }
    return record(w, sent, w->last);
}

/* Adds a message. It continues the one before where the template wants roles
 * in turns and one of the two is made here.
 * @param [in] text  content of a message that is made here; NULL: it goes
 *                   as it was sent */
static bool add(writer_t *w, bt_tmpl_value_t message,
                const bt_tmpl_text_t *role, const bt_tmpl_text_t *text,
                bt_tmpl_dict_t *like)
{
    const bt_tmpl_text_t *const before =
        (w->out->n > 0) ? role_of(w->out->items[w->out->n - 1]) : NULL;

    if (w->forms->alternates && ((w->last != NULL) || (text != NULL)) &&
        (role != NULL) && (before != NULL) &&
        bt_tmpl_text_equal(role, before) &&
        (bt_tmpl_text_is(role, "user") || bt_tmpl_text_is(role, "assistant"))) {
        return (text != NULL) ? join(w, text, like)
                              : join(w, text_of(w, message), message.u.dict);
    }
    w->joins = false;
    if (text == NULL) {
        w->last = NULL;
        return bt_tmpl_seq_add(w->run, w->out, message);
    }
    return put_made(w, make_message(w, role, text, like), false);
}

static bool add_calls(writer_t *w, bt_tmpl_value_t message,
                      const bt_tmpl_seq_t *calls)
{
    bt_tmpl_build_t build;

    bt_tmpl_build_init(&build, w->run);
    if (text_of(w, message) != NULL) {
        bt_tmpl_build_text(&build, text_of(w, message));
    }
    for (uint32_t i = 0; (i < calls->n) && bt_tmpl_run_ok(w->run); i++) {
        put_call(w, &build, calls->items[i]);
    }
    return bt_tmpl_run_ok(w->run) &&
           add(w, message, role_of(message), bt_tmpl_build_end(&build),
               message.u.dict);
}

static bool add_results(writer_t *w, const bt_tmpl_value_t *results, uint32_t n,
                        const bt_tmpl_seq_t *calls)
{
    const bt_tmpl_text_t *text;
    bt_tmpl_build_t build;

    bt_tmpl_build_init(&build, w->run);
    put_results(w, &build, results, n, calls);
    text = bt_tmpl_build_end(&build);
    if (!bt_tmpl_run_ok(w->run) ||
        !add(w, bt_tmpl_v_none(), &role_user, text, NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!record(w, results[i].u.dict, w->last)) {
            return false;
        }
    }
    return true;
}

/* Adds a message before or behind whose text the tools stand. */
static bool add_with_tools(writer_t *w, bt_tmpl_value_t message, bool behind)
{
    const bt_tmpl_text_t *const sent = text_of(w, message);
    bt_tmpl_build_t build;

    if (sent == NULL) {
        return false;
    }
    bt_tmpl_build_init(&build, w->run);
    bt_tmpl_build_text(&build, behind ? sent : w->tools);
    bt_tmpl_build_puts(&build, (sent->len > 0) ? "\n\n" : "");
    bt_tmpl_build_text(&build, behind ? w->tools : sent);
    w->tools = NULL;
    return add(w, message, role_of(message), bt_tmpl_build_end(&build),
               message.u.dict);
}

static bool is_system(bt_tmpl_value_t message)
{
    return has_role(message, "system") || has_role(message, "developer");
}

/* Adds the tools as a message of their own, unless one that follows takes
 * them: the first, if it is a system message and the template has such, or
 * the first of the user. */
static bool add_tools_alone(writer_t *w, const bt_tmpl_seq_t *sent)
{
    bool waits = false;

    if (w->forms->system) {
        waits = (sent->n > 0) && is_system(sent->items[0]);
    } else {
        for (uint32_t i = 0; i < sent->n; i++) {
            waits = waits || has_role(sent->items[i], "user");
        }
    }
    if (waits) {
        return true;
    }
    if (!add(w, bt_tmpl_v_none(), w->forms->system ? &role_system : &role_user,
             w->tools, NULL)) {
        return false;
    }
    w->tools = NULL;
    return true;
}

static bool add_all(writer_t *w, const bt_tmpl_seq_t *sent)
{
    const bt_tmpl_seq_t *calls = NULL; /* of the assistant's last message */
    uint32_t n;

    for (uint32_t i = 0; i < sent->n; i += n) {
        const bt_tmpl_value_t message = sent->items[i];
        bool ok;

        n = 1;
        if (has_role(message, "tool")) {
            while ((i + n < sent->n) && has_role(sent->items[i + n], "tool")) {
                n++;
            }
            ok = add_results(w, &sent->items[i], n, calls);
        } else if ((calls_of(message) != NULL) && (role_of(message) != NULL)) {
            calls = calls_of(message);
            ok = add_calls(w, message, calls);
        } else if ((w->tools != NULL) && w->forms->system) {
            ok = add_with_tools(w, message, true);
        } else if ((w->tools != NULL) && has_role(message, "user")) {
            ok = add_with_tools(w, message, false);
        } else {
            ok = add(w, message, role_of(message), NULL, NULL);
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* Writes the list of tools; NULL: failed. */
static const bt_tmpl_text_t *text_of_tools(bt_tmpl_run_t *run, const char *json,
                                           size_t bytes)
{
    bt_tmpl_value_t list;
    bt_tmpl_build_t build;

    if (!bt_tmpl_json_read(run, json, bytes, &list)) {
        return NULL;
    }
    if (list.kind != BT_V_SEQ) {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "the tools are no list");
        return NULL;
    }
    bt_tmpl_build_init(&build, run);
    bt_tmpl_build_puts(&build, BEFORE_TOOLS);
    for (uint32_t i = 0; i < list.u.seq->n; i++) {
        bt_tmpl_build_puts(&build, "\n");
        put_json(&build, list.u.seq->items[i]);
    }
    bt_tmpl_build_puts(&build, BEHIND_TOOLS);
    return bt_tmpl_run_ok(run) ? bt_tmpl_build_end(&build) : NULL;
}

bool bt_tmpl_messages_write_tools(bt_tmpl_run_t *run, bt_tmpl_value_t *messages,
                                  const bt_tmpl_forms_t *forms,
                                  const char *tools, size_t tools_bytes,
                                  bt_tmpl_written_t **written_p)
{
    writer_t w = {.run = run, .forms = forms};
    const bt_tmpl_seq_t *const sent = messages->u.seq;

    if (messages->kind != BT_V_SEQ) {
        return true;
    }
    w.out = bt_tmpl_seq_make(run, sent->n + 1);
    w.made = bt_tmpl_seq_make(run, 1);
    if ((w.out == NULL) || (w.made == NULL)) {
        return false;
    }
    w.out->quoted = w.made->quoted = true;
    if (tools != NULL) {
        w.tools = text_of_tools(run, tools, tools_bytes);
        if ((w.tools == NULL) || !add_tools_alone(&w, sent)) {
            return false;
        }
    }
    if (!add_all(&w, sent) ||
        !bt_tmpl_messages_adapt(run, bt_tmpl_v_seq(BT_SEQ_LIST, w.made), forms,
                                NULL)) {
        return false;
    }
    *messages = bt_tmpl_v_seq(BT_SEQ_LIST, w.out);
    *written_p = w.written;
    return true;
}

/* ---- what of it the template has read ---- */

static const bt_tmpl_value_t *same_member(const bt_tmpl_dict_t *made,
                                          const bt_tmpl_text_t *key)
{
    for (uint32_t i = 0; i < made->n; i++) {
        if (bt_tmpl_text_equal(made->entries[i].key.u.text, key)) {
            return &made->entries[i].value;
        }
    }
    return NULL;
}

void bt_tmpl_written_settle(const bt_tmpl_written_t *written)
{
    for (; written != NULL; written = written->next) {
        const bool is_result = has_role(bt_tmpl_v_dict(written->sent), "tool");

        for (uint32_t i = 0; i < written->sent->n; i++) {
            bt_tmpl_entry_t *const e = &written->sent->entries[i];
            const bool is_shown_by_content =
                bt_tmpl_v_text_is(e->key, "tool_calls") ||
                (is_result && bt_tmpl_v_text_is(e->key, "name"));
            const bt_tmpl_value_t *const made =
                same_member(written->made,
                            is_shown_by_content ? &key_content : e->key.u.text);

            if (made != NULL) {
                e->value.used = made->used;
            }
        }
    }
}
