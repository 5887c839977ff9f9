/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/chat_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "inference/template/text.h"

/* Most bytes of a member's path; a longer one is cut. */
#define PATH_BYTES    256
#define MAX_ARGUMENTS (1u << 20) /* values of a call's arguments */

/* Role names that templates compare with, and some print inside of a token. */
static const bt_tmpl_text_t roles[] = {
    {.data = "system", .len = 6},    {.data = "user", .len = 4},
    {.data = "assistant", .len = 9}, {.data = "tool", .len = 4},
    {.data = "developer", .len = 9}, {.data = "function", .len = 8},
    {.data = "ipython", .len = 7},
};

static bt_tmpl_role_t role_of(const char *role, size_t bytes)
{
    static const bt_tmpl_role_t kinds[] = {BT_ROLE_SYSTEM, BT_ROLE_USER,
                                           BT_ROLE_ASSISTANT, BT_ROLE_TOOL,
                                           BT_ROLE_SYSTEM};

    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        if ((roles[i].len == bytes) &&
            (memcmp(roles[i].data, role, bytes) == 0)) {
            return kinds[i];
        }
    }
    return BT_ROLE_USER;
}

bt_tmpl_value_t *bt_tmpl_message_member(const bt_tmpl_dict_t *message,
                                        const char *name)
{
    for (uint32_t i = 0; i < message->n; i++) {
        if (bt_tmpl_v_text_is(message->entries[i].key, name)) {
            return &message->entries[i].value;
        }
    }
    return NULL;
}

void bt_tmpl_messages_trust(bt_tmpl_value_t messages)
{
    if (messages.kind != BT_V_SEQ) {
        return;
    }
    for (uint32_t i = 0; i < messages.u.seq->n; i++) {
        const bt_tmpl_value_t message = messages.u.seq->items[i];
        bt_tmpl_value_t *role =
            (message.kind == BT_V_DICT)
                ? bt_tmpl_message_member(message.u.dict, "role")
                : NULL;

        for (size_t r = 0; (role != NULL) && (r < BT_ARRAY_LEN(roles)); r++) {
            if (bt_tmpl_v_text_is(*role, roles[r].data)) {
                *role = bt_tmpl_v_text(&roles[r]);
            }
        }
    }
}

/* Depth is bounded by the run's. */
static bool make_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                       const bt_json_node_t *node, bt_tmpl_value_t *value_p);

/* ---- arguments of calls ---- */

static bt_tmpl_value_t *member_of(bt_tmpl_value_t of, const char *name)
{
    return (of.kind == BT_V_DICT) ? bt_tmpl_message_member(of.u.dict, name)
                                  : NULL;
}

/* Clients send a call's arguments as a JSON text; templates iterate over them
 * or join them as a text. The text of an object becomes a mapping that keeps
 * the text for where one is wanted. An empty one is a call without arguments.
 * Any other text is unchanged. */
static bool open_arguments(bt_tmpl_run_t *run, bt_tmpl_value_t *arguments)
{
    static const bt_tmpl_text_t none = {.data = "{}", .len = 2};
    const bt_tmpl_text_t *text = arguments->u.text;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_status_t status;
    bool read;

    if (arguments->kind != BT_V_TEXT) {
        return true;
    }
    text = (text->len > 0) ? text : &none;
    status = bt_json_doc_parse_client(text->data, text->len, MAX_ARGUMENTS,
                                      &fault, &doc);
    if (status == BT_ERR_NO_MEMORY) {
        return bt_tmpl_run_fail(run, status, "%s", fault.what);
    }
    if ((status != BT_OK) ||
        !bt_json_is_kind(bt_json_doc_root(doc), BT_JSON_OBJECT)) {
        bt_json_doc_free(doc);
        return true;
    }
    read = make_value(run, doc, bt_json_doc_root(doc), arguments);
    bt_json_doc_free(doc);
    if (read) {
        arguments->u.dict->text = text;
    }
    return read;
}

bool bt_tmpl_messages_open_arguments(bt_tmpl_run_t *run,
                                     bt_tmpl_value_t messages)
{
    for (uint32_t i = 0; (messages.kind == BT_V_SEQ) && (i < messages.u.seq->n);
         i++) {
        const bt_tmpl_value_t *calls =
            member_of(messages.u.seq->items[i], "tool_calls");

        for (uint32_t k = 0; (calls != NULL) && (calls->kind == BT_V_SEQ) &&
                             (k < calls->u.seq->n);
             k++) {
            const bt_tmpl_value_t *function =
                member_of(calls->u.seq->items[k], "function");
            bt_tmpl_value_t *arguments =
                (function != NULL) ? member_of(*function, "arguments") : NULL;

            if ((arguments != NULL) && !open_arguments(run, arguments)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- contents ---- */

/* Joins a list of parts with texts. */
static bool joined(bt_tmpl_run_t *run, const bt_tmpl_seq_t *parts,
                   bt_tmpl_value_t *content_p)
{
    bt_tmpl_build_t build;

    bt_tmpl_build_init(&build, run);
    for (uint32_t i = 0; i < parts->n; i++) {
        const bt_tmpl_value_t part = parts->items[i];
        bt_tmpl_value_t *text =
            (part.kind == BT_V_DICT)
                ? bt_tmpl_message_member(part.u.dict, "text")
                : NULL;

        if ((text == NULL) || (text->kind != BT_V_TEXT)) {
            continue;
        }
        text->used = true;
        bt_tmpl_build_bytes(&build, "\n", (i > 0) ? 1 : 0, true);
        bt_tmpl_build_text(&build, text->u.text);
    }
    *content_p = bt_tmpl_build_value(&build);
    return bt_tmpl_run_ok(run);
}

const bt_tmpl_text_t *bt_tmpl_content_text(bt_tmpl_run_t *run,
                                           bt_tmpl_value_t content)
{
    if (content.kind == BT_V_NONE) {
        return &bt_tmpl_text_empty;
    }
    if ((content.kind == BT_V_SEQ) && !joined(run, content.u.seq, &content)) {
        return NULL;
    }
    return bt_tmpl_v_str(run, content);
}

/* Makes a string a list of one part. */
static bool wrapped(bt_tmpl_run_t *run, bt_tmpl_value_t *content)
{
    static const bt_tmpl_text_t texts[] = {{.data = "type", .len = 4},
                                           {.data = "text", .len = 4}};
    bt_tmpl_seq_t *list = bt_tmpl_seq_make(run, 1);
    bt_tmpl_dict_t *part = bt_tmpl_dict_make(run);

    if ((list == NULL) || (part == NULL) ||
        !bt_tmpl_dict_put(run, part, bt_tmpl_v_text(&texts[0]),
                          bt_tmpl_v_text(&texts[1])) ||
        !bt_tmpl_dict_put(run, part, bt_tmpl_v_text(&texts[1]), *content) ||
        !bt_tmpl_seq_add(run, list, bt_tmpl_v_dict(part))) {
        return false;
    }
    list->quoted = part->quoted = true;
    *content = bt_tmpl_v_seq(BT_SEQ_LIST, list);
    return true;
}

static bool adapt_content(bt_tmpl_run_t *run, bt_tmpl_value_t *content,
                          bool strings, bt_tmpl_parts_t parts)
{
    if ((content->kind == BT_V_SEQ) && (parts != BT_PARTS_ALL) &&
        (strings || (content->u.seq->n > 1)) &&
        !joined(run, content->u.seq, content)) {
        return false;
    }
    return (content->kind != BT_V_TEXT) || strings ||
           (parts == BT_PARTS_NONE) || wrapped(run, content);
}

/* Copies the reasoning to its other name. */
static bool add_reasoning(bt_tmpl_run_t *run, bt_tmpl_dict_t *message,
                          const char *sent, const bt_tmpl_text_t *known)
{
    const bt_tmpl_value_t *thought = bt_tmpl_message_member(message, sent);

    return (thought == NULL) ||
           (bt_tmpl_message_member(message, known->data) != NULL) ||
           bt_tmpl_dict_put(run, message, bt_tmpl_v_text(known), *thought);
}

static bool has_text(bt_tmpl_dict_t *message, const char *name)
{
    const bt_tmpl_value_t *value = bt_tmpl_message_member(message, name);

    return (value != NULL) && bt_tmpl_v_truth(*value);
}

/* Copies the reasoning to `thinking`. Beside content and calls the template
 * of gpt-oss refuses it. */
static bool add_thinking(bt_tmpl_run_t *run, bt_tmpl_dict_t *message)
{
    static const bt_tmpl_text_t thinking = {.data = "thinking", .len = 8};

    if (has_text(message, "content") && has_text(message, "tool_calls")) {
        return true;
    }
    return add_reasoning(run, message, "reasoning", &thinking) &&
           add_reasoning(run, message, "reasoning_content", &thinking);
}

static bool adapt_reasoning(bt_tmpl_run_t *run, bt_tmpl_dict_t *message,
                            const bt_tmpl_forms_t *forms)
{
    static const bt_tmpl_text_t shorter = {.data = "reasoning", .len = 9};
    static const bt_tmpl_text_t longer = {.data = "reasoning_content",
                                          .len = 17};

    if (forms->reasoning == forms->reasoning_content) {
        return forms->reasoning || !forms->thinking ||
               add_thinking(run, message);
    }
    return forms->reasoning
               ? add_reasoning(run, message, longer.data, &shorter)
               : add_reasoning(run, message, shorter.data, &longer);
}

static bool adapt_message(bt_tmpl_run_t *run, bt_tmpl_dict_t *message,
                          const bt_tmpl_forms_t *forms, const char *path,
                          bt_strbuf_t *unused)
{
    bt_tmpl_value_t *role = bt_tmpl_message_member(message, "role");
    bt_tmpl_value_t *content = bt_tmpl_message_member(message, "content");
    bt_tmpl_value_t sent;
    bt_tmpl_role_t kind;

    if ((role == NULL) || (role->kind != BT_V_TEXT) || (content == NULL)) {
        return true;
    }
    kind = role_of(role->u.text->data, role->u.text->len);
    if (bt_tmpl_v_text_is(*role, "developer") && !forms->developer) {
        *role = bt_tmpl_v_text(&roles[0]);
    }
    if ((content->kind == BT_V_NONE) &&
        !((bt_tmpl_message_member(message, "tool_calls") != NULL)
              ? forms->null_calls
              : forms->null_alone)) {
        *content = bt_tmpl_v_text(&bt_tmpl_text_empty);
    }
    sent = *content;
    if (!adapt_content(run, content, forms->strings[kind],
                       forms->parts[kind])) {
        return false;
    }
    if ((sent.kind == BT_V_SEQ) && (unused != NULL) &&
        ((content->kind != BT_V_SEQ) || (content->u.seq != sent.u.seq))) {
        bt_tmpl_unused(sent, path, unused); /* what its texts leave behind */
    }
    return adapt_reasoning(run, message, forms);
}

bool bt_tmpl_messages_adapt(bt_tmpl_run_t *run, bt_tmpl_value_t messages,
                            const bt_tmpl_forms_t *forms, bt_strbuf_t *unused)
{
    char path[PATH_BYTES];

    if (messages.kind != BT_V_SEQ) {
        return true;
    }
    for (uint32_t i = 0; i < messages.u.seq->n; i++) {
        const bt_tmpl_value_t message = messages.u.seq->items[i];

        snprintf(path, sizeof(path), "messages[%u].content", i);
        if ((message.kind == BT_V_DICT) &&
            !adapt_message(run, message.u.dict, forms, path, unused)) {
            return false;
        }
    }
    return true;
}

/* ---- members that were not read ---- */

static bool is_used(const bt_tmpl_dict_t *dict, const char *name)
{
    const bt_tmpl_value_t *value = bt_tmpl_message_member(dict, name);

    return (value != NULL) && value->used;
}

static bool is_silent(const bt_tmpl_dict_t *dict, uint32_t i)
{
    static const char *const silent[] = {"role",  "type",         "id",
                                         "index", "tool_call_id", "strict"};
    static const char *const thoughts[] = {"reasoning", "reasoning_content",
                                           "thinking"};
    const bt_tmpl_value_t key = dict->entries[i].key;

    for (size_t s = 0; s < BT_ARRAY_LEN(silent); s++) {
        if (bt_tmpl_v_text_is(key, silent[s])) {
            return true;
        }
    }
    for (size_t t = 0; t < BT_ARRAY_LEN(thoughts); t++) {
        if (bt_tmpl_v_text_is(key, thoughts[t])) {
            return is_used(dict, thoughts[(t + 1) % 3]) ||
                   is_used(dict, thoughts[(t + 2) % 3]);
        }
    }
    return false;
}

static bool says_nothing(bt_tmpl_value_t value)
{
    return !bt_tmpl_v_is_number(value) && !bt_tmpl_v_truth(value);
}

/* @a path has PATH_BYTES, of which n are used. */
static void tell_unused(bt_tmpl_value_t value, char *path, size_t n,
                        bt_strbuf_t *out)
{
    if ((n + 1 >= PATH_BYTES) || (bt_strbuf_status(out) != BT_OK)) {
        return;
    }
    if (value.kind == BT_V_SEQ) {
        for (uint32_t i = 0; i < value.u.seq->n; i++) {
            const int more = snprintf(path + n, PATH_BYTES - n, "[%u]", i);

            tell_unused(value.u.seq->items[i], path, n + (size_t)more, out);
        }
        return;
    }
    if ((value.kind == BT_V_DICT) && (value.u.dict->text != NULL)) {
        return; /* a text is used as a whole */
    }
    for (uint32_t i = 0; (value.kind == BT_V_DICT) && (i < value.u.dict->n);
         i++) {
        const bt_tmpl_entry_t *entry = &value.u.dict->entries[i];
        const bt_tmpl_text_t *key = entry->key.u.text;
        const int more = snprintf(path + n, PATH_BYTES - n, ".%.*s",
                                  (int)key->len, key->data);

        if (entry->value.used) {
            tell_unused(entry->value, path, n + (size_t)more, out);
        } else if (!is_silent(value.u.dict, i) && !says_nothing(entry->value)) {
            for (char *c = path; *c != '\0'; c++) {
                *c = (*c == '\n') ? ' ' : *c; /* one a line */
            }
            bt_strbuf_printf(out, "%s\n", path);
        }
    }
}

void bt_tmpl_unused(bt_tmpl_value_t value, const char *path, bt_strbuf_t *out)
{
    char at[PATH_BYTES];

    snprintf(at, sizeof(at), "%s", path);
    tell_unused(value, at, strlen(at), out);
}

/* As Python's json has it: an integer has any size, a float may be infinite. */
static bool make_number(bt_tmpl_run_t *run, const bt_json_node_t *node,
                        bt_tmpl_value_t *value_p)
{
    char *const copy = bt_tmpl_run_take(run, (size_t)node->len + 1, 1);
    const bt_tmpl_text_t *big;
    bool whole;

    if (copy == NULL) {
        return false;
    }
    memcpy(copy, node->text, node->len);
    whole = strpbrk(copy, ".eE") == NULL;
    errno = 0;
    *value_p = whole ? bt_tmpl_v_int(strtoll(copy, NULL, 10))
                     : bt_tmpl_v_float(strtod(copy, NULL));
    if (whole && (errno == ERANGE)) {
        big = bt_tmpl_text_make(run, node->text, node->len, true);
        if (big == NULL) {
            return false;
        }
        *value_p = bt_tmpl_v_big_int(big);
    }
    value_p->quoted = true;
    return true;
}

static bool make_text(bt_tmpl_run_t *run, const bt_json_node_t *node,
                      bt_tmpl_value_t *value_p)
{
    const bt_tmpl_text_t *text =
        bt_tmpl_text_make(run, node->text, node->len, true);

    if (text == NULL) {
        return false;
    }
    *value_p = bt_tmpl_v_text(text);
    return true;
}

static bool make_list(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                      const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, node->n);
    const bt_json_node_t *item = bt_json_first(node);

    if (seq == NULL) {
        return false;
    }
    seq->quoted = true;
    for (uint32_t i = 0; i < node->n; i++, item = bt_json_next(doc, item)) {
        bt_tmpl_value_t value;

        if (!make_value(run, doc, item, &value) ||
            !bt_tmpl_seq_add(run, seq, value)) {
            return false;
        }
    }
    *value_p = bt_tmpl_v_seq(BT_SEQ_LIST, seq);
    return true;
}

/* The later one of equal keys replaces the value, in the position of the first.
 */
static bool make_dict(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                      const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bt_tmpl_dict_t *dict = bt_tmpl_dict_make(run);
    const bt_json_node_t *key = bt_json_first(node);

    if (dict == NULL) {
        return false;
    }
    dict->quoted = true;
    for (uint32_t i = 0; i < node->n; i++) {
        const bt_json_node_t *const member = key + 1;
        bt_tmpl_value_t name, value;

        if (!make_text(run, key, &name) ||
            !make_value(run, doc, member, &value) ||
            !bt_tmpl_dict_put(run, dict, name, value)) {
            return false;
        }
        key = bt_json_next(doc, member);
    }
    *value_p = bt_tmpl_v_dict(dict);
    return true;
}

static bool make_one(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                     const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    switch ((bt_json_kind_t)node->kind) {
    case BT_JSON_OBJECT:
        return make_dict(run, doc, node, value_p);
    case BT_JSON_ARRAY:
        return make_list(run, doc, node, value_p);
    case BT_JSON_STRING:
        return make_text(run, node, value_p);
    case BT_JSON_NUMBER:
        return make_number(run, node, value_p);
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        *value_p = bt_tmpl_v_bool(node->kind == BT_JSON_TRUE);
        break;
    case BT_JSON_NULL:
        *value_p = bt_tmpl_v_none();
        break;
    }
    value_p->quoted = true;
    return true;
}

static bool make_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                       const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bool made;

    if (!bt_tmpl_run_step(run, 1) || !bt_tmpl_run_enter(run)) {
        return false;
    }
    made = make_one(run, doc, node, value_p);
    bt_tmpl_run_leave(run);
    return made;
}

bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p)
{
    /* Every value has a byte at least. */
    const uint32_t max_values =
        (bytes < UINT32_MAX) ? (uint32_t)bytes + 1 : UINT32_MAX;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    const bt_status_t status =
        bt_json_doc_parse_client(json, bytes, max_values, &fault, &doc);
    bool read;

    if (status != BT_OK) {
        return bt_tmpl_run_fail(
            run, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "not valid JSON: %s", fault.what);
    }
    read = make_value(run, doc, bt_json_doc_root(doc), value_p);
    bt_json_doc_free(doc);
    return read;
}
