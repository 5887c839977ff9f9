/* SPDX-License-Identifier: Apache-2.0 */
/* Alternatives, sequences and items of Lark's grammars. */
#include <string.h>

#include "common/grammar/lark_priv.h"

#define MAX_NESTING 200u /* of parentheses and brackets */

bool lark_add(lark_parser_t *p, lark_list_t *list, const bt_expr_t *x)
{
    if ((x == NULL) || !bt_grammar_grow(p->c, &list->items, &list->cap,
                                        list->n + 1, sizeof(*list->items))) {
        return false;
    }
    list->items[list->n++] = x;
    return true;
}

/* Skips up to the next part of a rule. Outside of parentheses a line's end is
 * the end of the rule, unless the next thing is `|`. */
static void skip(lark_parser_t *p)
{
    size_t at;
    uint32_t line;

    lark_skip_space(p, p->depth > 0);
    if (lark_peek(p, 0) != '\n') {
        return;
    }
    at = p->at;
    line = p->line;
    lark_skip_space(p, true);
    if (lark_peek(p, 0) != '|') {
        p->at = at;
        p->line = line;
    }
}

/* ---- schemas ---- */

/* Returns the bytes of a JSON object that begins here; 0: it has no end. */
static size_t object_length(const lark_parser_t *p)
{
    uint32_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; p->at + i < p->n; i++) {
        const char byte = p->text[p->at + i];

        if (in_string) {
            i += (byte == '\\') ? 1 : 0;
            in_string = byte != '"';
        } else if (byte == '"') {
            in_string = true;
        } else if (byte == '{') {
            depth++;
        } else if ((byte == '}') && (--depth == 0)) {
            return i + 1;
        }
    }
    return 0;
}

/* Keeps a document until the grammar is written. */
static const bt_json_doc_t *parse_json(lark_parser_t *p, size_t n)
{
    bt_json_fault_t fault;
    bt_json_doc_t *doc = NULL;
    bt_status_t status;

    if (!bt_grammar_grow(p->c, &p->docs->list, &p->docs->cap, p->docs->n + 1,
                         sizeof(bt_json_doc_t *))) {
        return NULL;
    }
    status =
        bt_json_doc_parse_client(p->text + p->at, n, UINT32_MAX, &fault, &doc);
    if (status != BT_OK) {
        bt_grammar_fail(
            p->c, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "line %u: the schema of %%json is not JSON: %s at its byte %zu",
            p->line, fault.what, fault.at);
        return NULL;
    }
    p->docs->list[p->docs->n++] = doc;
    if (bt_json_doc_half(doc) != SIZE_MAX) {
        lark_fail(p, "the schema of %json has half of a surrogate pair");
        return NULL;
    }
    return doc;
}

/* Reads behind %json. */
static const bt_expr_t *read_json(lark_parser_t *p)
{
    const bt_json_doc_t *doc;
    const bt_expr_t *x;
    size_t n;

    if (p->options == NULL) {
        lark_refuse(p, "%json within a JSON string is");
        return NULL;
    }
    lark_skip_space(p, true);
    n = (lark_peek(p, 0) == '{') ? object_length(p) : 0;
    if (n == 0) {
        lark_fail(p, "a schema in braces is expected behind %json");
    }
    doc = bt_grammar_spend(p->c, n) ? parse_json(p, n) : NULL;
    if (doc == NULL) {
        return NULL;
    }
    x = bt_json_schema_expr(p->b, p->c, doc, bt_json_doc_root(doc), p->options);
    lark_add_line(p, p->line);
    for (size_t i = 0; i < n; i++) {
        p->line += (p->text[p->at + i] == '\n') ? 1 : 0;
    }
    p->at += n;
    return x;
}

/* ---- items ---- */

static const bt_expr_t *read_parens(lark_parser_t *p)
{
    const bool is_optional = lark_peek(p, 0) == '[';
    const bt_expr_t *x;

    p->at++;
    if (++p->depth > MAX_NESTING) {
        bt_grammar_fail(p->c, BT_ERR_TOO_LARGE,
                        "line %u: parentheses are nested deeper than %u",
                        p->line, MAX_NESTING);
        return NULL;
    }
    x = lark_read_alternatives(p, LARK_NO_SELF);
    p->depth--;
    p->plain = LARK_NO_SELF;
    if (!lark_take(p, is_optional ? "]" : ")")) {
        lark_fail(p, is_optional ? "a [ has no ]" : "a ( has no )");
        return NULL;
    }
    return is_optional ? bt_expr_repeat(p->b, x, 0, 1) : x;
}

/* In a rule, ignored terminals may stand behind a terminal. */
static const bt_expr_t *behind_terminal(lark_parser_t *p, const bt_expr_t *x)
{
    const bt_expr_t *const parts[] = {x, p->ignorable};

    return (p->in_terminal || (p->ignorable == NULL))
               ? x
               : bt_expr_seq(p->b, parts, 2);
}

static const bt_expr_t *read_reference(lark_parser_t *p)
{
    const uint32_t name = lark_read_name(p);
    const bt_expr_t *x;

    if (name == BT_RULE_NAMES_NONE) {
        return NULL;
    }
    if ((lark_peek(p, 0) == '{') && !lark_is_digit(lark_peek(p, 1)) &&
        (lark_peek(p, 1) != ',')) {
        lark_refuse(p, "a template is");
        return NULL;
    }
    p->plain = name;
    x = bt_expr_rule(p->b, p->names.list[name].rule);
    if (lark_is_terminal(&p->names.list[name])) {
        return behind_terminal(p, x);
    }
    if (p->in_terminal) {
        lark_fail(p, "a terminal has a rule in it");
    }
    return x;
}

static const bt_expr_t *read_item(lark_parser_t *p)
{
    switch (lark_peek(p, 0)) {
    case '"':
        return behind_terminal(p, lark_read_literal(p));
    case '/':
        return behind_terminal(p, lark_read_regex(p));
    case '(':
    case '[':
        return read_parens(p);
    case '%':
        if (lark_looking_at(p, "%json") &&
            !lark_is_name_byte(lark_peek(p, 5))) {
            if (p->in_terminal) {
                lark_refuse(p, "%json in a terminal is");
                return NULL;
            }
            p->at += 5;
            return behind_terminal(p, read_json(p));
        }
        lark_refuse(p, "a directive other than %json in a rule is");
        return NULL;
    case '<':
        lark_refuse(p, "a special token is");
        return NULL;
    case '@':
        lark_refuse(p, "a grammar by its name is");
        return NULL;
    case '&':
    case '~':
        lark_refuse(p, "an intersection or negation of terminals is");
        return NULL;
    default:
        return read_reference(p);
    }
}

/* Reads behind ~. */
static void read_count(lark_parser_t *p, uint32_t *min_p, uint32_t *max_p)
{
    lark_skip_space(p, false);
    *min_p = *max_p = lark_read_number(p);
    lark_skip_space(p, false);
    if (lark_take(p, "..")) {
        lark_skip_space(p, false);
        *max_p = lark_read_number(p);
    }
}

/* Reads behind {. */
static void read_braces(lark_parser_t *p, uint32_t *min_p, uint32_t *max_p)
{
    lark_skip_space(p, false);
    *min_p = (lark_peek(p, 0) == ',') ? 0 : lark_read_number(p);
    *max_p = *min_p;
    lark_skip_space(p, false);
    if (lark_take(p, ",")) {
        lark_skip_space(p, false);
        *max_p =
            (lark_peek(p, 0) == '}') ? BT_REPEAT_NO_LIMIT : lark_read_number(p);
        lark_skip_space(p, false);
    }
    if (!lark_take(p, "}")) {
        lark_fail(p, "a repetition has no end");
    }
}

/* Reads an operator. False: there is none. */
static bool read_operator(lark_parser_t *p, uint32_t *min_p, uint32_t *max_p)
{
    *min_p = 0;
    *max_p = BT_REPEAT_NO_LIMIT;
    skip(p);
    if (lark_take(p, "+")) {
        *min_p = 1;
    } else if (lark_take(p, "?")) {
        *max_p = 1;
    } else if (lark_take(p, "~")) {
        read_count(p, min_p, max_p);
    } else if (lark_take(p, "{")) {
        read_braces(p, min_p, max_p);
    } else if (!lark_take(p, "*")) {
        return false;
    }
    if (*min_p > *max_p) {
        lark_fail(p, "a repetition has its least number above its most");
    }
    return bt_grammar_ok(p->c);
}

static const bt_expr_t *read_repeated(lark_parser_t *p)
{
    const bt_expr_t *x;
    uint32_t min, max;

    p->plain = LARK_NO_SELF;
    x = read_item(p);
    if (!read_operator(p, &min, &max)) {
        return x;
    }
    p->plain = LARK_NO_SELF;
    x = bt_expr_repeat(p->b, x, min, max);
    if (read_operator(p, &min, &max)) {
        lark_fail(p, "an operator follows an operator");
    }
    return x;
}

/* ---- sequences ---- */

/* Reads the -> and its name, behind an alternative. */
static void read_alias(lark_parser_t *p)
{
    if (!lark_take(p, "->")) {
        return;
    }
    if (p->in_terminal || (p->depth > 0)) {
        lark_fail(p, "an alias stands behind an alternative of a rule");
    }
    lark_skip_space(p, false);
    if (!lark_is_name_byte(lark_peek(p, 0))) {
        lark_fail(p, "an alias has no name");
    }
    while (lark_is_name_byte(lark_peek(p, 0))) {
        p->at++;
    }
    skip(p);
}

/* Reads up to `|`, `)`, `]` or the end of the rule.
 * @param [out] is_left_p  It begins with the rule `self`; what is returned is
 *         behind that. */
static const bt_expr_t *read_sequence(lark_parser_t *p, uint32_t self,
                                      bool *is_left_p)
{
    lark_list_t list = {0};
    bool is_first = true;

    *is_left_p = false;
    for (;; is_first = false) {
        const bt_expr_t *x;

        skip(p);
        if ((p->at >= p->n) || (strchr("|)]\n", lark_peek(p, 0)) != NULL) ||
            lark_looking_at(p, "->")) {
            break;
        }
        x = bt_grammar_ok(p->c) ? read_repeated(p) : NULL;
        if (is_first && (self != LARK_NO_SELF) && (p->plain == self)) {
            *is_left_p = true;
        } else if (!lark_add(p, &list, x)) {
            return NULL;
        }
    }
    read_alias(p);
    return bt_expr_seq(p->b, list.items, list.n);
}

const bt_expr_t *lark_read_alternatives(lark_parser_t *p, uint32_t self)
{
    lark_list_t heads = {0}, tails = {0};
    const bt_expr_t *parts[2];

    do {
        bool is_left;
        const bt_expr_t *const x = read_sequence(p, self, &is_left);

        if (!lark_add(p, is_left ? &tails : &heads, x)) {
            return NULL;
        }
    } while (lark_take(p, "|"));
    parts[0] = (heads.n == 1) ? heads.items[0]
                              : bt_expr_alt(p->b, heads.items, heads.n);
    if (tails.n == 0) {
        return parts[0];
    }
    parts[1] = bt_expr_repeat(p->b, bt_expr_alt(p->b, tails.items, tails.n), 0,
                              BT_REPEAT_NO_LIMIT);
    return bt_expr_seq(p->b, parts, 2);
}
