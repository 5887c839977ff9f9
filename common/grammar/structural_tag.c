/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/structural_tag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/json_pointer.h"
#include "common/grammar/ebnf.h"
#include "common/grammar/lark.h"
#include "common/grammar/regex_syntax.h"

#define MAX_NEST  32u /* formats within one another */
#define MAX_TEXTS 64u /* that do not occur in a free text */

/* Texts that do not occur in free text. */
typedef struct excluded {
    const char *texts[MAX_TEXTS];
    size_t lens[MAX_TEXTS];
    uint32_t n;
} excluded_t;

typedef struct tag_compiler {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c;
    const bt_json_doc_t *doc;
    const bt_json_schema_options_t *options;
    bt_json_schemas_t *schemas[2]; /* strict and lenient ones; NULL: none yet */
    const bt_json_node_t *last[2]; /* schema of them */
    uint32_t nest;
} tag_compiler_t;

static void fail(tag_compiler_t *t, bt_status_t status,
                 const bt_json_node_t *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void fail(tag_compiler_t *t, bt_status_t status,
                 const bt_json_node_t *node, const char *format, ...)
{
    char pointer[BT_GRAMMAR_WHY_BYTES / 2];
    char what[BT_GRAMMAR_WHY_BYTES / 2];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    bt_json_pointer(t->doc, bt_json_doc_root(t->doc), node, pointer,
                    sizeof(pointer));
    bt_grammar_fail(t->c, status, "%s: %s",
                    (pointer[0] == '\0') ? "the structural tag" : pointer,
                    what);
}

/* Puts the JSON pointer of a part before the sentence of its failure. */
static const bt_expr_t *located(tag_compiler_t *t, const bt_json_node_t *node,
                                const bt_expr_t *x)
{
    char pointer[BT_GRAMMAR_WHY_BYTES / 2];
    char what[BT_GRAMMAR_WHY_BYTES];

    if ((x == NULL) && ((t->c->status == BT_ERR_UNSUPPORTED) ||
                        (t->c->status == BT_ERR_INVALID_PARAM))) {
        bt_json_pointer(t->doc, bt_json_doc_root(t->doc), node, pointer,
                        sizeof(pointer));
        memcpy(what, t->c->why, sizeof(what));
        (void)snprintf(t->c->why, sizeof(t->c->why), "%s%s%.240s", pointer,
                       (what[0] == '/') ? "" : ": ", what);
    }
    return x;
}

/* Returns a member of a kind; fails where it is not there. */
static const bt_json_node_t *member(tag_compiler_t *t,
                                    const bt_json_node_t *format,
                                    const char *name, bt_json_kind_t kind)
{
    static const char *const words[] = {[BT_JSON_STRING] = "a string",
                                        [BT_JSON_ARRAY] = "a list",
                                        [BT_JSON_OBJECT] = "an object",
                                        [BT_JSON_NUMBER] = "a number"};
    const bt_json_node_t *const node = bt_json_get(t->doc, format, name);

    if (node == NULL) {
        fail(t, BT_ERR_INVALID_PARAM, format, "%s is missing", name);
    } else if (!bt_json_is_kind(node, kind)) {
        fail(t, BT_ERR_INVALID_PARAM, node, "must be %s", words[kind]);
    } else {
        return node;
    }
    return NULL;
}

/* Reads a boolean; without the member false. */
static bool flag(tag_compiler_t *t, const bt_json_node_t *format,
                 const char *name)
{
    const bt_json_node_t *const node = bt_json_get(t->doc, format, name);

    if ((node != NULL) && !bt_json_is_bool(node)) {
        fail(t, BT_ERR_INVALID_PARAM, node, "must be true or false");
    }
    return bt_json_is_kind(node, BT_JSON_TRUE);
}

/* Checks that all members are known. */
static void check_members(tag_compiler_t *t, const bt_json_node_t *format,
                          const char *const *known)
{
    const bt_json_node_t *key = (format->n > 0) ? bt_json_first(format) : NULL;

    for (uint32_t i = 0; (i < format->n) && bt_grammar_ok(t->c); i++) {
        bool is_known = bt_json_is(key, "type");

        for (uint32_t k = 0; !is_known && (known[k] != NULL); k++) {
            is_known = bt_json_is(key, known[k]);
        }
        if (!is_known) {
            fail(t, BT_ERR_UNSUPPORTED, key + 1,
                 "this member is not supported");
        }
        key = bt_json_next(t->doc, key + 1);
    }
}

/* ---- free text ---- */

const bt_dfa_t *bt_dfa_without(bt_grammar_compiler_t *c,
                               const char *const *texts, const size_t *lens,
                               uint32_t n)
{
    const bt_dfa_t *const any = bt_dfa_any_text(c);
    bt_nfa_t *nfa;
    uint32_t start, middle, behind, end;

    if ((n == 0) || !bt_grammar_ok(c)) {
        return any;
    }
    nfa = bt_nfa_create(c);
    start = bt_nfa_state(nfa);
    middle = bt_nfa_state(nfa);
    behind = bt_nfa_state(nfa);
    end = bt_nfa_state(nfa);
    bt_nfa_include(nfa, start, any, middle);
    bt_nfa_include(nfa, middle, bt_dfa_of_texts(c, texts, lens, n), behind);
    bt_nfa_include(nfa, behind, any, end);
    return bt_dfa_combine(c, BT_DFA_MINUS, any, bt_nfa_to_dfa(nfa, start, end));
}

static void exclude(tag_compiler_t *t, excluded_t *out,
                    const bt_json_node_t *text)
{
    if (!bt_json_is_kind(text, BT_JSON_STRING) || (text->len == 0)) {
        fail(t, BT_ERR_INVALID_PARAM, text, "must be a text");
    } else if (out->n == MAX_TEXTS) {
        fail(t, BT_ERR_TOO_LARGE, text,
             "more than %u texts are excluded from a free text", MAX_TEXTS);
    } else {
        out->texts[out->n] = text->text;
        out->lens[out->n++] = text->len;
    }
}

/* Excludes each of a list of texts; without the member none. */
static void exclude_list(tag_compiler_t *t, excluded_t *out,
                         const bt_json_node_t *format, const char *name)
{
    const bt_json_node_t *list = bt_json_get(t->doc, format, name);
    const bt_json_node_t *text;

    if (list == NULL) {
        return;
    }
    list = member(t, format, name, BT_JSON_ARRAY);
    text = (bt_json_size(list, BT_JSON_ARRAY) > 0) ? bt_json_first(list) : NULL;
    for (uint32_t i = 0; (text != NULL) && (i < list->n) && bt_grammar_ok(t->c);
         i++) {
        exclude(t, out, text);
        text = bt_json_next(t->doc, text);
    }
}

static const bt_expr_t *free_text(tag_compiler_t *t, const excluded_t *out)
{
    return bt_expr_dfa(t->b,
                       bt_dfa_without(t->c, out->texts, out->lens, out->n));
}

/* ---- formats ---- */

static const bt_expr_t *format_expr(tag_compiler_t *t,
                                    const bt_json_node_t *format,
                                    const excluded_t *ends);

static const bt_expr_t *on_const_string(tag_compiler_t *t,
                                        const bt_json_node_t *format,
                                        const excluded_t *ends)
{
    const bt_json_node_t *const value =
        member(t, format, "value", BT_JSON_STRING);

    (void)ends;
    return (value != NULL) ? bt_expr_literal(t->b, value->text, value->len)
                           : NULL;
}

/* Formats are visited in the order of the text, so schemas are, too, but for a
 * beginning that is behind its content. */
static const bt_expr_t *schema_expr(tag_compiler_t *t,
                                    const bt_json_node_t *schema,
                                    const bt_json_schema_options_t *options)
{
    bt_json_schemas_t **const schemas = &t->schemas[options->lenient ? 1 : 0];
    const bt_json_node_t **const last = &t->last[options->lenient ? 1 : 0];

    if ((*schemas == NULL) || (schema <= *last)) {
        *schemas = bt_json_schemas_create(t->b, t->c, t->doc, options);
    }
    *last = schema;
    return (*schemas != NULL)
               ? located(t, schema, bt_json_schemas_expr(*schemas, schema))
               : NULL;
}

static const bt_expr_t *on_json_schema(tag_compiler_t *t,
                                       const bt_json_node_t *format,
                                       const excluded_t *ends)
{
    const bt_json_node_t *const schema =
        bt_json_get(t->doc, format, "json_schema");
    const bt_json_node_t *const style = bt_json_get(t->doc, format, "style");
    bt_json_schema_options_t options = *t->options;

    (void)ends;
    if (schema == NULL) {
        fail(t, BT_ERR_INVALID_PARAM, format, "json_schema is missing");
        return NULL;
    }
    if ((style != NULL) && !bt_json_is(style, "json")) {
        fail(t, BT_ERR_UNSUPPORTED, style, "styles but json are not supported");
        return NULL;
    }
    if (bt_json_get(t->doc, format, "strict") != NULL) {
        options.lenient = !flag(t, format, "strict");
    }
    return schema_expr(t, schema, &options);
}

static const bt_expr_t *on_regex(tag_compiler_t *t,
                                 const bt_json_node_t *format,
                                 const excluded_t *ends)
{
    const bt_json_node_t *const pattern =
        member(t, format, "pattern", BT_JSON_STRING);

    (void)ends;
    if (pattern == NULL) {
        return NULL;
    }
    return located(t, pattern,
                   bt_regex_expr(t->b, t->c, pattern->text, pattern->len));
}

static const bt_expr_t *on_grammar(tag_compiler_t *t,
                                   const bt_json_node_t *format,
                                   const excluded_t *ends)
{
    const bt_json_node_t *const text =
        member(t, format, "grammar", BT_JSON_STRING);

    (void)ends;
    if (text == NULL) {
        return NULL;
    }
    return located(t, text, bt_ebnf_expr(t->b, t->c, text->text, text->len));
}

/* What the text of a JSON string follows. */
static const bt_expr_t *string_text(tag_compiler_t *t,
                                    const bt_json_node_t *lark,
                                    const bt_json_node_t *pattern)
{
    bt_lark_docs_t docs = {0};
    const bt_expr_t *x;

    bt_builder_spell_json(t->b, true);
    x = (lark != NULL)
            ? bt_lark_expr(t->b, t->c, lark->text, lark->len, NULL, &docs)
            : bt_regex_expr(t->b, t->c, pattern->text, pattern->len);
    bt_builder_spell_json(t->b, false);
    return located(t, (lark != NULL) ? lark : pattern, x);
}

static const bt_expr_t *on_json_string(tag_compiler_t *t,
                                       const bt_json_node_t *format,
                                       const excluded_t *ends)
{
    const bt_json_node_t *const lark =
        (bt_json_get(t->doc, format, "pattern") == NULL)
            ? member(t, format, "lark", BT_JSON_STRING)
            : NULL;
    const bt_json_node_t *const pattern =
        (bt_json_get(t->doc, format, "lark") == NULL)
            ? member(t, format, "pattern", BT_JSON_STRING)
            : NULL;
    const bt_expr_t *parts[3];

    (void)ends;
    if (!bt_grammar_ok(t->c)) {
        return NULL;
    }
    if ((lark == NULL) && (pattern == NULL)) {
        fail(t, BT_ERR_INVALID_PARAM, format,
             "a json_string has a lark or a pattern, not both");
        return NULL;
    }
    parts[0] = parts[2] = bt_expr_literal(t->b, "\"", 1);
    parts[1] = string_text(t, lark, pattern);
    return (parts[1] != NULL) ? bt_expr_seq(t->b, parts, 3) : NULL;
}

static const bt_expr_t *on_any_text(tag_compiler_t *t,
                                    const bt_json_node_t *format,
                                    const excluded_t *ends)
{
    excluded_t out = *ends;

    exclude_list(t, &out, format, "excludes");
    return free_text(t, &out);
}

static const bt_expr_t *on_token(tag_compiler_t *t,
                                 const bt_json_node_t *format,
                                 const excluded_t *ends)
{
    const bt_json_node_t *const token = bt_json_get(t->doc, format, "token");
    uint64_t id;

    (void)ends;
    if (bt_json_is_kind(token, BT_JSON_STRING)) {
        fail(t, BT_ERR_UNSUPPORTED, token,
             "tokens by their text are not supported: give the id");
    } else if ((token == NULL) || !bt_json_as_u64(token, &id) ||
               (id >= UINT32_MAX)) {
        fail(t, BT_ERR_INVALID_PARAM, (token != NULL) ? token : format,
             "token must be an id");
    } else {
        return bt_expr_token(t->b, (uint32_t)id);
    }
    return NULL;
}

/* Makes the expressions of a list of formats.
 * @return NULL: failed, or there is none, which is an error as well */
static const bt_expr_t **elements(tag_compiler_t *t,
                                  const bt_json_node_t *format,
                                  const excluded_t *ends, uint32_t *n_p)
{
    const bt_json_node_t *const list =
        member(t, format, "elements", BT_JSON_ARRAY);
    const bt_json_node_t *node;
    const bt_expr_t **parts;

    if (list == NULL) {
        return NULL;
    }
    if (list->n == 0) {
        fail(t, BT_ERR_INVALID_PARAM, list, "must have at least one format");
        return NULL;
    }
    parts = bt_grammar_alloc(t->c, list->n, sizeof(*parts));
    node = bt_json_first(list);
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(t->c); i++) {
        parts[i] = format_expr(t, node, ends);
        node = bt_json_next(t->doc, node);
    }
    *n_p = list->n;
    return bt_grammar_ok(t->c) ? parts : NULL;
}

static const bt_expr_t *on_sequence(tag_compiler_t *t,
                                    const bt_json_node_t *format,
                                    const excluded_t *ends)
{
    uint32_t n;
    const bt_expr_t **const parts = elements(t, format, ends, &n);

    return (parts != NULL) ? bt_expr_seq(t->b, parts, n) : NULL;
}

static const bt_expr_t *on_or(tag_compiler_t *t, const bt_json_node_t *format,
                              const excluded_t *ends)
{
    uint32_t n;
    const bt_expr_t **const parts = elements(t, format, ends, &n);

    return (parts != NULL) ? bt_expr_alt(t->b, parts, n) : NULL;
}

static const bt_expr_t *content_of(tag_compiler_t *t,
                                   const bt_json_node_t *format,
                                   const excluded_t *ends)
{
    const bt_json_node_t *const content =
        bt_json_get(t->doc, format, "content");

    if (content == NULL) {
        fail(t, BT_ERR_INVALID_PARAM, format, "content is missing");
        return NULL;
    }
    return format_expr(t, content, ends);
}

/* A bound of `repeat`: -1, and max without a value, are no limit. */
static uint32_t bound(tag_compiler_t *t, const bt_json_node_t *format,
                      const char *name, uint32_t missing)
{
    const bt_json_node_t *const node = bt_json_get(t->doc, format, name);
    int64_t value;

    if (node == NULL) {
        return missing;
    }
    if (!bt_json_as_i64(node, &value) || (value < -1) ||
        (value >= BT_REPEAT_NO_LIMIT) || ((value < 0) && (missing == 0))) {
        fail(t, BT_ERR_INVALID_PARAM, node, "must be a number of repetitions");
        return missing;
    }
    return (value < 0) ? BT_REPEAT_NO_LIMIT : (uint32_t)value;
}

static const bt_expr_t *on_repeat(tag_compiler_t *t,
                                  const bt_json_node_t *format,
                                  const excluded_t *ends)
{
    const bt_expr_t *const x = content_of(t, format, ends);
    uint32_t min = bound(t, format, "min", 0);
    uint32_t max = bound(t, format, "max", BT_REPEAT_NO_LIMIT);
    const bt_json_node_t *const type = bt_json_get(t->doc, format, "type");

    if (bt_json_is(type, "optional")) {
        max = 1;
    } else if (bt_json_is(type, "plus")) {
        min = 1;
    }
    if ((x != NULL) && (min > max)) {
        fail(t, BT_ERR_INVALID_PARAM, format, "min is above max");
    }
    return bt_grammar_ok(t->c) ? bt_expr_repeat(t->b, x, min, max) : NULL;
}

/* ---- tags ---- */

/* Returns the beginning or the end of a tag: a text, a token, or one of a list
 * of texts. */
static const bt_expr_t *
mark_expr(tag_compiler_t *t, const bt_json_node_t *format, const char *name)
{
    static const excluded_t none = {.n = 0};
    const bt_json_node_t *const mark = bt_json_get(t->doc, format, name);
    const bt_json_node_t *text;
    const bt_expr_t **parts;

    if (mark == NULL) {
        fail(t, BT_ERR_INVALID_PARAM, format, "%s is missing", name);
        return NULL;
    }
    if (bt_json_is_kind(mark, BT_JSON_STRING)) {
        return bt_expr_literal(t->b, mark->text, mark->len);
    }
    if (bt_json_is_kind(mark, BT_JSON_OBJECT)) {
        return format_expr(t, mark, &none);
    }
    if (bt_json_size(mark, BT_JSON_ARRAY) == 0) {
        fail(t, BT_ERR_INVALID_PARAM, mark,
             "must be a text, a token or a list of texts");
        return NULL;
    }
    parts = bt_grammar_alloc(t->c, mark->n, sizeof(*parts));
    text = bt_json_first(mark);
    for (uint32_t i = 0; (i < mark->n) && bt_grammar_ok(t->c); i++) {
        if (!bt_json_is_kind(text, BT_JSON_STRING)) {
            fail(t, BT_ERR_INVALID_PARAM, text, "must be a text");
            break;
        }
        parts[i] = bt_expr_literal(t->b, text->text, text->len);
        text = bt_json_next(t->doc, text);
    }
    return bt_grammar_ok(t->c) ? bt_expr_alt(t->b, parts, mark->n) : NULL;
}

/* Excludes the texts that end a tag from the free text in it. */
static void exclude_ends(tag_compiler_t *t, excluded_t *out,
                         const bt_json_node_t *end)
{
    const bt_json_node_t *text;

    if (bt_json_is_kind(end, BT_JSON_STRING) && (end->len > 0)) {
        exclude(t, out, end);
    }
    if (bt_json_size(end, BT_JSON_ARRAY) == 0) {
        return;
    }
    text = bt_json_first(end);
    for (uint32_t i = 0; (i < end->n) && bt_grammar_ok(t->c); i++) {
        if (bt_json_is_kind(text, BT_JSON_STRING) && (text->len > 0)) {
            exclude(t, out, text);
        }
        text = bt_json_next(t->doc, text);
    }
}

static const bt_expr_t *on_tag(tag_compiler_t *t, const bt_json_node_t *format,
                               const excluded_t *ends)
{
    const bt_json_node_t *const end = bt_json_get(t->doc, format, "end");
    excluded_t inner = {.n = 0};
    const bt_expr_t *parts[3];

    (void)ends; /* of a tag around this one: it cannot end within */
    exclude_ends(t, &inner, end);
    parts[0] = mark_expr(t, format, "begin");
    parts[1] = bt_grammar_ok(t->c) ? content_of(t, format, &inner) : NULL;
    parts[2] = bt_grammar_ok(t->c) ? mark_expr(t, format, "end") : NULL;
    return bt_grammar_ok(t->c) ? bt_expr_seq(t->b, parts, 3) : NULL;
}

/* One of the older form's structures. */
static const bt_expr_t *structure_expr(tag_compiler_t *t,
                                       const bt_json_node_t *structure)
{
    static const char *const known[] = {"begin", "schema", "end", NULL};
    const bt_json_node_t *schema;
    const bt_expr_t *parts[3];

    check_members(t, structure, known);
    schema = bt_json_get(t->doc, structure, "schema");
    parts[0] = mark_expr(t, structure, "begin");
    parts[2] = bt_grammar_ok(t->c) ? mark_expr(t, structure, "end") : NULL;
    if (!bt_grammar_ok(t->c)) {
        return NULL;
    }
    if (schema == NULL) {
        fail(t, BT_ERR_INVALID_PARAM, structure, "schema is missing");
        return NULL;
    }
    parts[1] = schema_expr(t, schema, t->options);
    return bt_grammar_ok(t->c) ? bt_expr_seq(t->b, parts, 3) : NULL;
}

/* Returns one tag of any of a list. */
static const bt_expr_t *any_tag(tag_compiler_t *t, const bt_json_node_t *list)
{
    static const excluded_t none = {.n = 0};
    const bt_json_node_t *tag;
    const bt_expr_t **parts;

    if (list == NULL) {
        return NULL;
    }
    if (list->n == 0) {
        fail(t, BT_ERR_INVALID_PARAM, list, "must have at least one tag");
        return NULL;
    }
    parts = bt_grammar_alloc(t->c, list->n, sizeof(*parts));
    tag = bt_json_first(list);
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(t->c); i++) {
        if (!bt_json_is_kind(tag, BT_JSON_OBJECT)) {
            fail(t, BT_ERR_INVALID_PARAM, tag, "must be a tag");
        } else if (bt_json_get(t->doc, tag, "schema") != NULL) {
            parts[i] = structure_expr(t, tag);
        } else if ((bt_json_get(t->doc, tag, "type") != NULL) &&
                   !bt_json_is(bt_json_get(t->doc, tag, "type"), "tag")) {
            fail(t, BT_ERR_INVALID_PARAM, tag, "must be of type tag");
        } else {
            parts[i] = on_tag(t, tag, &none);
        }
        tag = bt_json_next(t->doc, tag);
    }
    return bt_grammar_ok(t->c) ? bt_expr_alt(t->b, parts, list->n) : NULL;
}

/* Checks that the beginning of each tag begins with a trigger. */
static void check_triggers(tag_compiler_t *t, const bt_json_node_t *tags,
                           const excluded_t *triggers)
{
    const bt_json_node_t *tag =
        (bt_json_size(tags, BT_JSON_ARRAY) > 0) ? bt_json_first(tags) : NULL;

    for (uint32_t i = 0; (tag != NULL) && (i < tags->n) && bt_grammar_ok(t->c);
         i++) {
        const bt_json_node_t *const begin = bt_json_get(t->doc, tag, "begin");
        bool is_triggered = false;

        for (uint32_t k = 0; (k < triggers->n) && (begin != NULL); k++) {
            is_triggered =
                is_triggered || (bt_json_is_kind(begin, BT_JSON_STRING) &&
                                 (begin->len >= triggers->lens[k]) &&
                                 (memcmp(begin->text, triggers->texts[k],
                                         triggers->lens[k]) == 0));
        }
        if (!is_triggered) {
            fail(t, BT_ERR_INVALID_PARAM, tag,
                 "begin must be a text that begins with a trigger");
        }
        tag = bt_json_next(t->doc, tag);
    }
}

/* Returns free text and tags in turn.
 * @param [in] tags  name of the member that has them */
static const bt_expr_t *triggered(tag_compiler_t *t,
                                  const bt_json_node_t *format,
                                  const char *tags, const excluded_t *ends)
{
    const bool at_least_one = flag(t, format, "at_least_one");
    const bool stops = flag(t, format, "stop_after_first");
    const bt_json_node_t *const list = member(t, format, tags, BT_JSON_ARRAY);
    excluded_t triggers = {.n = 0};
    excluded_t out = *ends;
    const bt_expr_t *tag, *text, *pair[2], *parts[3];

    exclude_list(t, &triggers, format, "triggers");
    if (bt_grammar_ok(t->c) && (triggers.n == 0)) {
        fail(t, BT_ERR_INVALID_PARAM, format, "triggers are missing");
    }
    check_triggers(t, list, &triggers);
    exclude_list(t, &out, format, "triggers");
    exclude_list(t, &out, format, "excludes");
    tag = bt_grammar_ok(t->c) ? any_tag(t, list) : NULL;
    if (tag == NULL) {
        return NULL;
    }
    text = free_text(t, &out);
    if (stops) {
        pair[0] = text;
        pair[1] = bt_expr_repeat(t->b, tag, 0, 1);
        return at_least_one ? tag : bt_expr_seq(t->b, pair, 2);
    }
    pair[0] = text;
    pair[1] = tag;
    parts[0] = at_least_one ? tag : bt_expr_empty(t->b);
    parts[1] =
        bt_expr_repeat(t->b, bt_expr_seq(t->b, pair, 2), 0, BT_REPEAT_NO_LIMIT);
    parts[2] = text;
    return bt_expr_seq(t->b, parts, 3);
}

static const bt_expr_t *on_triggered_tags(tag_compiler_t *t,
                                          const bt_json_node_t *format,
                                          const excluded_t *ends)
{
    return triggered(t, format, "tags", ends);
}

static const bt_expr_t *on_tags_with_separator(tag_compiler_t *t,
                                               const bt_json_node_t *format,
                                               const excluded_t *ends)
{
    const bool at_least_one = flag(t, format, "at_least_one");
    const bool stops = flag(t, format, "stop_after_first");
    const bt_json_node_t *const separator =
        member(t, format, "separator", BT_JSON_STRING);
    const bt_json_node_t *const list = member(t, format, "tags", BT_JSON_ARRAY);
    const bt_expr_t *const tag = bt_grammar_ok(t->c) ? any_tag(t, list) : NULL;
    const bt_expr_t *more[2], *parts[2], *all;

    (void)ends;
    if (tag == NULL) {
        return NULL;
    }
    more[0] = bt_expr_literal(t->b, separator->text, separator->len);
    more[1] = tag;
    parts[0] = tag;
    parts[1] = bt_expr_repeat(t->b, bt_expr_seq(t->b, more, 2), 0,
                              stops ? 0 : BT_REPEAT_NO_LIMIT);
    all = bt_expr_seq(t->b, parts, 2);
    return at_least_one ? all : bt_expr_repeat(t->b, all, 0, 1);
}

/* ---- all formats ---- */

typedef const bt_expr_t *(*format_fn_t)(tag_compiler_t *t,
                                        const bt_json_node_t *format,
                                        const excluded_t *ends);

static const struct {
    const char *type;
    format_fn_t make;
    const char *known[6]; /* members, ended by NULL */
} formats[] = {
    {"const_string", on_const_string, {"value"}},
    {"json_schema", on_json_schema, {"json_schema", "style", "strict"}},
    {"regex", on_regex, {"pattern"}},
    {"grammar", on_grammar, {"grammar"}},
    {"json_string", on_json_string, {"lark", "pattern"}},
    {"any_text", on_any_text, {"excludes"}},
    {"token", on_token, {"token"}},
    {"sequence", on_sequence, {"elements"}},
    {"or", on_or, {"elements"}},
    {"optional", on_repeat, {"content"}},
    {"star", on_repeat, {"content"}},
    {"plus", on_repeat, {"content"}},
    {"repeat", on_repeat, {"content", "min", "max"}},
    {"tag", on_tag, {"begin", "content", "end"}},
    {"triggered_tags",
     on_triggered_tags,
     {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}},
    {"tags_with_separator",
     on_tags_with_separator,
     {"tags", "separator", "at_least_one", "stop_after_first"}},
};

static const bt_expr_t *format_expr(tag_compiler_t *t,
                                    const bt_json_node_t *format,
                                    const excluded_t *ends)
{
    const bt_json_node_t *type;
    const bt_expr_t *x;

    if (!bt_json_is_kind(format, BT_JSON_OBJECT)) {
        fail(t, BT_ERR_INVALID_PARAM, format, "must be a format");
        return NULL;
    }
    if ((t->nest == MAX_NEST) || !bt_grammar_spend(t->c, 1)) {
        fail(t, BT_ERR_TOO_LARGE, format, "formats are nested deeper than %u",
             MAX_NEST);
        return NULL;
    }
    type = member(t, format, "type", BT_JSON_STRING);
    for (size_t i = 0; (type != NULL) && (i < BT_ARRAY_LEN(formats)); i++) {
        if (bt_json_is(type, formats[i].type)) {
            check_members(t, format, formats[i].known);
            t->nest++;
            x = bt_grammar_ok(t->c) ? formats[i].make(t, format, ends) : NULL;
            t->nest--;
            return x;
        }
    }
    if (type != NULL) {
        fail(t, BT_ERR_UNSUPPORTED, type, "this format is not supported");
    }
    return NULL;
}

const bt_expr_t *bt_structural_tag_expr(bt_grammar_builder_t *b,
                                        bt_grammar_compiler_t *c,
                                        const bt_json_doc_t *doc,
                                        const bt_json_schema_options_t *options)
{
    static const char *const known[] = {"format", NULL};
    static const char *const older[] = {"structures", "triggers", NULL};
    static const excluded_t none = {.n = 0};
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    tag_compiler_t t = {.b = b, .c = c, .doc = doc, .options = options};
    const bt_json_node_t *type;

    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        fail(&t, BT_ERR_INVALID_PARAM, root, "must be an object");
        return NULL;
    }
    type = bt_json_get(doc, root, "type");
    if ((type != NULL) && !bt_json_is(type, "structural_tag")) {
        fail(&t, BT_ERR_INVALID_PARAM, type, "must be structural_tag");
        return NULL;
    }
    if (bt_json_get(doc, root, "structures") != NULL) {
        check_members(&t, root, older);
        return bt_grammar_ok(c) ? triggered(&t, root, "structures", &none)
                                : NULL;
    }
    check_members(&t, root, known);
    if (bt_json_get(doc, root, "format") == NULL) {
        fail(&t, BT_ERR_INVALID_PARAM, root, "format is missing");
    }
    return bt_grammar_ok(c)
               ? format_expr(&t, bt_json_get(doc, root, "format"), &none)
               : NULL;
}
