/* SPDX-License-Identifier: Apache-2.0 */
/* What a whole answer may be: thinking, calls of tools, and the description
 * that the request gives, as one structural tag. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/json_doc.h"
#include "router/frontend/prepare_priv.h"
#include "router/text/harmony_parser.h"
#include "router/text/tools_grammar.h"

static bool has_calls(const bt_served_t *served,
                      const bt_api_request_t *request)
{
    return (request->tools.json != NULL) &&
           bt_tool_format_has_grammar(served->tools);
}

bool bt_prepare_follows_tools(const bt_served_t *served,
                              const bt_api_request_t *request)
{
    return has_calls(served, request) && (request->beams.params.width == 0) &&
           (request->tools.required || request->tools.strict ||
            request->tools.held || (request->grammar.field != NULL));
}

bool bt_prepare_has_grammar(const bt_served_t *served,
                            const bt_api_request_t *request)
{
    return (request->grammar.field != NULL) ||
           bt_prepare_follows_tools(served, request);
}

/* ---- marks ---- */

/* Returns the special token of a mark; BT_TOOLS_NO_TOKEN: it is text. */
static uint32_t token_of(const bt_tokenizer_t *tok, const char *mark)
{
    uint32_t id = BT_TOOLS_NO_TOKEN;
    bt_token_vec_t tokens = {0};
    bool is_special = false;
    size_t n;

    if ((bt_tokenize(tok, mark, strlen(mark), BT_TOK_PARSE_SPECIAL, 64,
                     &tokens) == BT_OK) &&
        (tokens.n == 1) &&
        (bt_token_bytes(tok, tokens.ids[0], &n, &is_special) != NULL) &&
        is_special) {
        id = tokens.ids[0];
    }
    bt_free(tokens.ids);
    return id;
}

static void begin(bt_json_t *json, const char *key, const char *type)
{
    bt_json_object(json, key);
    bt_json_str(json, "type", type);
}

/* A mark, as text or as its token. */
static void put_mark(const bt_tokenizer_t *tok, const char *key,
                     const char *mark, bt_json_t *json)
{
    const uint32_t id = token_of(tok, mark);

    begin(json, key, "or");
    bt_json_array(json, "elements");
    begin(json, NULL, "const_string");
    bt_json_str(json, "value", mark);
    bt_json_end_object(json);
    if (id != BT_TOOLS_NO_TOKEN) {
        begin(json, NULL, "token");
        bt_json_u64(json, "token", id);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

/* Finds the tokens of the marks of the Harmony format. */
static void find_tokens(const bt_tokenizer_t *tok,
                        bt_mark_token_t marks[BT_HARMONY_N_MARKS])
{
    for (size_t i = 0; i < BT_HARMONY_N_MARKS; i++) {
        marks[i].mark = bt_harmony_mark(i);
        marks[i].token = token_of(tok, marks[i].mark);
    }
}

/* A message of reasoning, and the beginning of the next one. */
static void put_analysis(const bt_served_t *served, bool is_opened,
                         bt_json_t *json)
{
    bt_mark_token_t marks[BT_HARMONY_N_MARKS];

    find_tokens(served->tok, marks);
    if (!is_opened) {
        bt_marked_text_write(marks, BT_HARMONY_N_MARKS, served->reason->open,
                             json);
    }
    bt_harmony_body_write(json);
    bt_marked_text_write(marks, BT_HARMONY_N_MARKS,
                         BT_HARMONY_END BT_HARMONY_ASSISTANT, json);
}

/* Free text up to the closing mark; then up to two line breaks. */
static void put_thought(const bt_served_t *served, bool is_opened,
                        bt_json_t *json)
{
    if (served->reason->is_harmony) {
        put_analysis(served, is_opened, json);
        return;
    }
    begin(json, NULL, "tag");
    if (is_opened) {
        bt_json_str(json, "begin", "");
    } else {
        put_mark(served->tok, "begin", served->reason->open, json);
    }
    begin(json, "content", "any_text");
    bt_json_array(json, "excludes");
    bt_json_str(json, NULL, served->reason->close);
    bt_json_end_array(json);
    bt_json_end_object(json);
    put_mark(served->tok, "end", served->reason->close, json);
    bt_json_end_object(json);
    begin(json, NULL, "regex");
    bt_json_str(json, "pattern", "\\n{0,2}");
    bt_json_end_object(json);
}

/* ---- the request's description ---- */

/* Choices, as constant texts. */
static bt_status_t put_choices(const bt_json_doc_t *doc, bt_json_t *json)
{
    const bt_json_node_t *const list = bt_json_doc_root(doc);
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *text = (n > 0) ? bt_json_first(list) : NULL;

    begin(json, NULL, "or");
    bt_json_array(json, "elements");
    for (uint32_t i = 0; i < n; i++) {
        begin(json, NULL, "const_string");
        bt_json_strn(json, "value", text->text, text->len);
        bt_json_end_object(json);
        text = bt_json_next(doc, text);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
    return BT_OK;
}

static void put_raw(bt_json_t *json, const char *key,
                    const bt_json_node_t *value)
{
    bt_json_rawn(json, key, value->text, value->len);
}

/* The format of a structural tag, also of its older form. */
static void put_tag(const bt_json_doc_t *doc, bt_json_t *json)
{
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *const format = bt_json_get(doc, root, "format");

    if (format != NULL) {
        put_raw(json, NULL, format);
        return;
    }
    begin(json, NULL, "triggered_tags");
    put_raw(json, "triggers", bt_json_get(doc, root, "triggers"));
    put_raw(json, "tags", bt_json_get(doc, root, "structures"));
    bt_json_end_object(json);
}

static void put_text(bt_json_t *json, const char *type, const char *key,
                     const bt_api_grammar_t *g)
{
    begin(json, NULL, type);
    bt_json_strn(json, key, g->text, g->bytes);
    bt_json_end_object(json);
}

/* Writes the description, which compiles by itself. */
static bt_status_t put_description(const bt_api_grammar_t *g, bt_json_t *json)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_status_t status = BT_OK;

    switch (g->kind) {
    case BT_GRAMMAR_REGEX:
        put_text(json, "regex", "pattern", g);
        return BT_OK;
    case BT_GRAMMAR_EBNF:
        put_text(json, "grammar", "grammar", g);
        return BT_OK;
    case BT_GRAMMAR_JSON_OBJECT:
        bt_json_raw(json, NULL,
                    "{\"type\":\"json_schema\",\"json_schema\":"
                    "{\"type\":\"object\"}}");
        return BT_OK;
    case BT_GRAMMAR_JSON_SCHEMA:
        begin(json, NULL, "json_schema");
        bt_json_rawn(json, "json_schema", g->text, g->bytes);
        bt_json_end_object(json);
        return BT_OK;
    default:
        status = bt_json_doc_parse_client(g->text, g->bytes, UINT32_MAX, &fault,
                                          &doc);
        if (status == BT_OK) {
            if (g->kind == BT_GRAMMAR_CHOICE) {
                status = put_choices(doc, json);
            } else {
                put_tag(doc, json);
            }
        }
        bt_json_doc_free(doc);
        return status;
    }
}

/* ---- tools ---- */

/* True when a tool may be called: tool_choice may leave some. */
static bool is_allowed(const bt_api_tools_t *tools, const bt_json_node_t *name)
{
    return (tools->names == NULL) ||
           bt_tool_names_have(tools->names, tools->names_bytes, name->text,
                              name->len);
}

/* Lists the tools of a request; the named one alone if there is one.
 * @param [in] no_schemas  arguments of tools that are not strict are any object
 * @return tools, for bt_free(); NULL: no memory */
static bt_tool_def_t *list_tools(const bt_api_tools_t *tools,
                                 const bt_json_doc_t *doc, bool no_schemas,
                                 size_t *n_p)
{
    const bt_json_node_t *const list = bt_json_doc_root(doc);
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *tool = (n > 0) ? bt_json_first(list) : NULL;
    bt_tool_def_t *const defs = bt_calloc((size_t)n + 1, sizeof(*defs));
    bt_api_special_tool_t special;

    *n_p = 0;
    for (uint32_t i = 0; (defs != NULL) && (i < n); i++) {
        const bt_json_node_t *const function =
            bt_json_get(doc, tool, "function");
        const bt_json_node_t *const name = bt_json_get(doc, function, "name");
        const bt_json_node_t *const schema =
            bt_json_get(doc, function, "parameters");
        bt_tool_def_t def = {
            .name = name->text,
            .name_bytes = name->len,
            .is_strict = bt_json_is_kind(bt_json_get(doc, function, "strict"),
                                         BT_JSON_TRUE)};

        tool = bt_json_next(doc, tool);
        if ((tools->forced != NULL) ? !bt_json_is(name, tools->forced)
                                    : !is_allowed(tools, name)) {
            continue;
        }
        if (bt_json_is(bt_json_get(doc, schema, "type"), "object") &&
            (def.is_strict || !no_schemas)) {
            def.schema = schema->text;
            def.schema_bytes = schema->len;
        }
        if (bt_api_find_special_tool(tools->special, tools->special_bytes,
                                     name->text, name->len, &special) &&
            (special.format[0] != '\0')) {
            def.format = special.format;
        }
        defs[(*n_p)++] = def;
    }
    return defs;
}

/* Writes calls of tools, with the description or any text in their place. */
static bt_status_t put_tools(const bt_prepare_format_t *f, const char *text,
                             bt_json_t *json)
{
    const bt_api_tools_t *const tools = &f->request->tools;
    bt_mark_token_t marks[BT_HARMONY_N_MARKS];
    bt_tools_answer_t answer = {
        .format = f->served->tools,
        .is_opened = tools->required,
        .is_named = tools->forced != NULL,
        .only_one = tools->only_one,
        .mark = token_of(f->served->tok, bt_tool_format_mark(f->served->tools)),
        .text = text,
        .marks = marks,
        .n_marks = BT_HARMONY_N_MARKS,
    };
    bt_json_fault_t fault;
    bt_json_doc_t *doc = NULL;
    bt_tool_def_t *defs;
    bt_status_t status = bt_json_doc_parse_client(
        tools->json, strlen(tools->json), UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        return status;
    }
    find_tokens(f->served->tok, marks);
    defs = list_tools(tools, doc, f->no_schemas, &answer.n_tools);
    if (defs == NULL) {
        status = BT_ERR_NO_MEMORY;
    } else {
        answer.tools = defs;
        bt_tools_grammar_write(&answer, json);
    }
    bt_free(defs);
    bt_json_doc_free(doc);
    return status;
}

/* True when all of an answer is one message to the user, whose beginning is
 * not the prompt's. */
static bool begins_final(const bt_prepare_format_t *f)
{
    return f->served->is_harmony && bt_api_is_chat(f->request) &&
           !f->request->continues_final &&
           (!bt_prepare_follows_tools(f->served, f->request) ||
            (!bt_tool_format_is_harmony(f->served->tools) &&
             !f->request->tools.required));
}

/* The beginning of the answer to the user. */
static void put_final(const bt_prepare_format_t *f, bt_json_t *json)
{
    bt_mark_token_t marks[BT_HARMONY_N_MARKS];

    find_tokens(f->served->tok, marks);
    bt_marked_text_write(marks, BT_HARMONY_N_MARKS, BT_HARMONY_FINAL, json);
}

static bt_status_t put_answer(const bt_prepare_format_t *f, bt_json_t *json)
{
    const bt_api_grammar_t *const g = &f->request->grammar;
    bt_strbuf_t text;
    bt_json_t inner;
    bt_status_t status = BT_OK;

    if (begins_final(f)) {
        put_final(f, json);
    }
    if (!bt_prepare_follows_tools(f->served, f->request)) {
        return put_description(g, json);
    }
    bt_strbuf_init(&text, BT_GRAMMAR_TAG_BYTES);
    bt_json_init(&inner, &text);
    if ((g->field != NULL) && !f->request->tools.required) {
        status = put_description(g, &inner);
    }
    if (status == BT_OK) {
        status = bt_strbuf_status(&text);
    }
    if (status == BT_OK) {
        status = put_tools(f, (text.len > 0) ? text.data : NULL, json);
    }
    bt_strbuf_fini(&text);
    return status;
}

bt_status_t bt_prepare_format(const bt_prepare_format_t *f, bt_strbuf_t *out)
{
    bt_json_t json;
    bt_status_t status;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    begin(&json, "format", "sequence");
    bt_json_array(&json, "elements");
    if (f->opens_reasoning) {
        put_thought(f->served, true, &json);
    } else if (f->may_reason) {
        begin(&json, NULL, "optional");
        begin(&json, "content", "sequence");
        bt_json_array(&json, "elements");
        put_thought(f->served, false, &json);
        bt_json_end_array(&json);
        bt_json_end_object(&json);
        bt_json_end_object(&json);
    }
    status = put_answer(f, &json);
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_json_end_object(&json);
    return (status == BT_OK) ? bt_strbuf_status(out) : status;
}
