/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/tools_grammar.h"

#include <string.h>

#include "router/text/harmony_parser.h"
#include "router/text/tools_priv.h"

bool bt_tool_format_has_grammar(const bt_tool_format_t *format)
{
    return (format != NULL) && (format->call_end != NULL);
}

const char *bt_tool_format_mark(const bt_tool_format_t *format)
{
    return format->mark;
}

/* ---- parts of a format ---- */

static void begin(bt_json_t *json, const char *key, const char *type)
{
    bt_json_object(json, key);
    bt_json_str(json, "type", type);
}

static void begin_list(bt_json_t *json, const char *key, const char *type)
{
    begin(json, key, type);
    bt_json_array(json, "elements");
}

static void end_list(bt_json_t *json)
{
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void put_const(bt_json_t *json, const char *text)
{
    if (text[0] != '\0') {
        begin(json, NULL, "const_string");
        bt_json_str(json, "value", text);
        bt_json_end_object(json);
    }
}

static void put_regex(bt_json_t *json, const char *pattern)
{
    begin(json, NULL, "regex");
    bt_json_str(json, "pattern", pattern);
    bt_json_end_object(json);
}

/* The mark of a call: its text, or its token. */
static void put_mark(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin_list(json, NULL, "or");
    put_const(json, a->format->mark);
    if (a->mark != BT_TOOLS_NO_TOKEN) {
        begin(json, NULL, "token");
        bt_json_u64(json, "token", a->mark);
        bt_json_end_object(json);
    }
    end_list(json);
}

/* Text without a mark. The first character of a text that begins with a mark
 * may have been read before it. */
static void put_text(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin(json, NULL, "any_text");
    bt_json_array(json, "excludes");
    bt_json_str(json, NULL, a->format->mark);
    if (a->format->is_bare) {
        bt_json_str(json, NULL, a->format->mark + 1);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void put_arguments(const bt_tool_def_t *tool, bt_json_t *json,
                          const char *key)
{
    if (tool->format != NULL) {
        bt_json_raw(json, key, tool->format);
        return;
    }
    begin(json, key, "json_schema");
    if (tool->schema == NULL) {
        bt_json_raw(json, "json_schema", "{\"type\":\"object\"}");
    } else {
        bt_json_bool(json, "strict", tool->is_strict);
        bt_json_rawn(json, "json_schema", tool->schema, tool->schema_bytes);
    }
    bt_json_end_object(json);
}

/* ---- calls ---- */

/* Calls behind the text of bt_tool_format_open() without a name, up to the
 * list's end. */
static void put_calls(const bt_tools_answer_t *a, bool only_one,
                      bt_json_t *json)
{
    begin_list(json, NULL, "sequence");
    begin(json, NULL, "tags_with_separator");
    bt_json_str(json, "separator", a->format->next_call);
    bt_json_bool(json, "at_least_one", true);
    bt_json_bool(json, "stop_after_first", only_one);
    bt_json_array(json, "tags");
    for (size_t i = 0; i < a->n_tools; i++) {
        bt_json_object(json, NULL);
        begin_list(json, "begin", "sequence");
        begin(json, NULL, "const_string");
        bt_json_strn(json, "value", a->tools[i].name, a->tools[i].name_bytes);
        bt_json_end_object(json);
        put_const(json, a->format->open[1]);
        end_list(json);
        put_arguments(&a->tools[i], json, "content");
        bt_json_str(json, "end", a->format->call_end);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
    put_const(json, a->format->list_end);
    end_list(json);
}

/* A call, or a list of calls, with its mark. */
static void put_marked(const bt_tools_answer_t *a, bool only_one,
                       bt_json_t *json)
{
    const char *open = a->format->open[0];
    const size_t n = strlen(a->format->mark);

    if (strncmp(open, a->format->mark, n) == 0) {
        open += n;
    }
    begin_list(json, NULL, "sequence");
    put_mark(a, json);
    put_regex(json, "[ \\n]?"); /* as the model has learned it */
    put_const(json, (open[0] == '\n') ? open + 1 : open);
    put_calls(a, only_one, json);
    end_list(json);
}

/* Formats of which each call has a mark take several with text between. */
static bool marks_each_call(const bt_tools_answer_t *a)
{
    return strstr(a->format->next_call, a->format->mark) != NULL;
}

/* Text, and calls in it. */
static void put_calls_in_text(const bt_tools_answer_t *a, bt_json_t *json)
{
    const bool each = marks_each_call(a);

    begin_list(json, NULL, "sequence");
    put_text(a, json);
    begin(json, NULL, (each && !a->only_one) ? "star" : "optional");
    bt_json_object(json, "content");
    bt_json_str(json, "type", "sequence");
    bt_json_array(json, "elements");
    put_marked(a, each || a->only_one, json);
    if (each && !a->only_one) {
        put_text(a, json);
    }
    end_list(json);
    bt_json_end_object(json);
    end_list(json);
}

/* Calls without a mark, which begin the answer. */
static void put_bare(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin_list(json, NULL, "sequence");
    put_const(json, a->format->open[0]);
    put_calls(a, a->only_one, json);
    end_list(json);
}

/* An answer that begins with a call. */
static void put_calls_alone(const bt_tools_answer_t *a, bt_json_t *json)
{
    const bool each = marks_each_call(a);

    if (a->format->is_bare) {
        put_bare(a, json);
        return;
    }
    begin_list(json, NULL, "sequence");
    put_marked(a, each || a->only_one, json);
    if (each && !a->only_one) {
        begin(json, NULL, "star");
        bt_json_object(json, "content");
        bt_json_str(json, "type", "sequence");
        bt_json_array(json, "elements");
        put_regex(json, "\\n?");
        put_marked(a, true, json);
        end_list(json);
        bt_json_end_object(json);
    }
    end_list(json);
}

/* The rest of a call of a tool that was named. */
static void put_named(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin_list(json, NULL, "sequence");
    put_arguments(&a->tools[0], json, NULL);
    put_const(json, a->format->call_end);
    put_const(json, a->format->list_end);
    end_list(json);
}

/* ---- messages of the Harmony format ---- */

/* Returns the mark at a text, or NULL. */
static const bt_mark_token_t *mark_at(const bt_mark_token_t *marks, size_t n,
                                      const char *text)
{
    for (size_t i = 0; i < n; i++) {
        if ((marks[i].token != BT_TOOLS_NO_TOKEN) &&
            (strncmp(text, marks[i].mark, strlen(marks[i].mark)) == 0)) {
            return &marks[i];
        }
    }
    return NULL;
}

void bt_marked_text_write(const bt_mark_token_t *marks, size_t n,
                          const char *text, bt_json_t *json)
{
    while (*text != '\0') {
        const bt_mark_token_t *mark = mark_at(marks, n, text);
        size_t bytes = 0;

        if (mark != NULL) {
            begin(json, NULL, "token");
            bt_json_u64(json, "token", mark->token);
            bt_json_end_object(json);
            text += strlen(mark->mark);
            continue;
        }
        while ((text[bytes] != '\0') &&
               (mark_at(marks, n, text + bytes) == NULL)) {
            bytes++;
        }
        begin(json, NULL, "const_string");
        bt_json_strn(json, "value", text, bytes);
        bt_json_end_object(json);
        text += bytes;
    }
}

static void put_marked_text(const bt_tools_answer_t *a, const char *text,
                            bt_json_t *json)
{
    bt_marked_text_write(a->marks, a->n_marks, text, json);
}

void bt_harmony_body_write(bt_json_t *json)
{
    begin(json, NULL, "any_text");
    bt_json_array(json, "excludes");
    for (size_t i = 0; i < BT_HARMONY_N_ENDS; i++) {
        bt_json_str(json, NULL, bt_harmony_ends[i]);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

/* A call behind the text of bt_tool_format_open() without a name. */
static void put_recipients(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin_list(json, NULL, "or");
    for (size_t i = 0; i < a->n_tools; i++) {
        begin_list(json, NULL, "sequence");
        begin(json, NULL, "const_string");
        bt_json_strn(json, "value", a->tools[i].name, a->tools[i].name_bytes);
        bt_json_end_object(json);
        put_marked_text(a, a->format->open[1], json);
        put_arguments(&a->tools[i], json, NULL);
        end_list(json);
    }
    end_list(json);
}

/* A message to the user before the answer or the call, or none. */
static void put_preamble(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin(json, NULL, "optional");
    bt_json_object(json, "content");
    bt_json_str(json, "type", "sequence");
    bt_json_array(json, "elements");
    put_marked_text(a, BT_HARMONY_PREAMBLE, json);
    bt_harmony_body_write(json);
    put_marked_text(a, BT_HARMONY_END BT_HARMONY_ASSISTANT, json);
    end_list(json);
    bt_json_end_object(json);
}

/* A message of the model is a call of one tool, or the answer. */
static void put_messages(const bt_tools_answer_t *a, bt_json_t *json)
{
    begin_list(json, NULL, "sequence");
    if (a->text == NULL) {
        put_preamble(a, json);
    }
    begin_list(json, NULL, "or");
    begin_list(json, NULL, "sequence");
    put_marked_text(a, BT_HARMONY_FINAL, json);
    if (a->text != NULL) {
        bt_json_raw(json, NULL, a->text);
    } else {
        bt_harmony_body_write(json);
    }
    end_list(json);
    begin_list(json, NULL, "sequence");
    put_marked_text(a, a->format->open[0], json);
    put_recipients(a, json);
    end_list(json);
    end_list(json);
    end_list(json);
}

static void put_harmony(const bt_tools_answer_t *a, bt_json_t *json)
{
    if (a->is_opened && a->is_named) {
        put_arguments(&a->tools[0], json, NULL);
    } else if (a->is_opened) {
        put_recipients(a, json);
    } else {
        put_messages(a, json);
    }
}

void bt_tools_grammar_write(const bt_tools_answer_t *a, bt_json_t *json)
{
    if (a->format->kind == BT_TOOLS_HARMONY) {
        put_harmony(a, json);
        return;
    }
    if (a->is_opened && a->is_named) {
        put_named(a, json);
        return;
    }
    if (a->is_opened) {
        /* The mark of a further call would be in its text. */
        put_calls(a,
                  a->only_one ||
                      ((a->mark != BT_TOOLS_NO_TOKEN) && marks_each_call(a)),
                  json);
        return;
    }
    begin_list(json, NULL, "or");
    if (a->text != NULL) {
        bt_json_raw(json, NULL, a->text);
        put_calls_alone(a, json);
    } else if (!a->format->is_bare) {
        put_calls_in_text(a, json);
    } else {
        put_bare(a, json);
        put_marked(a, a->only_one, json);
        begin(json, NULL, "optional");
        bt_json_object(json,
                       "content"); /* text that does not begin as a call */
        bt_json_str(json, "type", "sequence");
        bt_json_array(json, "elements");
        put_regex(json, "[^{\\s]");
        put_calls_in_text(a, json);
        end_list(json);
        bt_json_end_object(json);
    }
    end_list(json);
}
