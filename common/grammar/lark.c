/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of Lark's grammars. */
#include "common/grammar/lark.h"

#include <string.h>

#include "common/grammar/lark_priv.h"
#include "common/grammar/regex_syntax.h"

/* Checks that a statement ends with its line. */
static void end_statement(lark_parser_t *p)
{
    lark_skip_space(p, false);
    if ((p->at < p->n) && (lark_peek(p, 0) != '\n')) {
        lark_fail(p, ((lark_peek(p, 0) == ')') || (lark_peek(p, 0) == ']'))
                         ? "a parenthesis has no beginning"
                         : "the end of the line is expected");
    }
}

static void define(lark_parser_t *p, uint32_t name, const bt_expr_t *x)
{
    bt_rule_name_t *const list = p->names.list;

    if (!bt_grammar_ok(p->c)) {
        return;
    }
    if (list[name].is_defined) {
        bt_grammar_fail(p->c, BT_ERR_INVALID_PARAM,
                        "line %u: %s is defined twice", p->line,
                        list[name].text);
        return;
    }
    list[name].is_defined = true;
    bt_builder_define(p->b, list[name].rule, x);
}

static void read_definition(lark_parser_t *p)
{
    uint32_t name;
    const bt_expr_t *x;

    while ((lark_peek(p, 0) == '?') || (lark_peek(p, 0) == '!')) {
        p->at++;
    }
    name = lark_read_name(p);
    if (name == BT_RULE_NAMES_NONE) {
        return;
    }
    if ((lark_peek(p, 0) == '{') || (lark_peek(p, 0) == '[')) {
        lark_refuse(p, (lark_peek(p, 0) == '{') ? "a template is"
                                                : "an attribute of a rule is");
    }
    if (lark_take(p, ".")) { /* a priority */
        (void)(lark_take(p, "-") || lark_take(p, "+"));
        (void)lark_read_number(p);
    }
    lark_skip_space(p, false);
    if (!lark_take(p, ":")) {
        lark_fail(p, "a : is expected behind the name of a rule");
        return;
    }
    p->in_terminal = lark_is_terminal(&p->names.list[name]);
    x = lark_read_alternatives(p, p->in_terminal ? LARK_NO_SELF : name);
    end_statement(p);
    define(p, name, x);
}

/* Terminals of Lark's grammars/common.lark. */
static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"_EXP", "[eE][+\\-]?[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|"
              "([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+\\-]?([0-9]+[eE][+\\-]?[0-9]+|"
                     "([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER",
     "[+\\-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* Defines a name as a terminal of common. */
static void import(lark_parser_t *p, const bt_rule_name_t *from, uint32_t to)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(common); i++) {
        if (strcmp(common[i].name, from->text) == 0) {
            define(p, to,
                   bt_regex_expr_flags(p->b, p->c, common[i].pattern,
                                       strlen(common[i].pattern),
                                       BT_REGEX_LARK));
            return;
        }
    }
    bt_grammar_fail(p->c, BT_ERR_UNSUPPORTED,
                    "line %u: common.%s is not supported", p->line, from->text);
}

/* Reads a name of another grammar, which says nothing of this one's. */
static bool read_foreign_name(lark_parser_t *p, bt_rule_name_t *name,
                              char *text, size_t text_bytes)
{
    uint32_t n = 0;

    while (lark_is_name_byte(lark_peek(p, n))) {
        n++;
    }
    if ((n == 0) || (n >= text_bytes)) {
        lark_fail(p, "the name of a terminal to import is expected");
        return false;
    }
    memcpy(text, p->text + p->at, n);
    text[n] = '\0';
    *name = (bt_rule_name_t){.text = text, .n = n};
    p->at += n;
    return true;
}

/* Reads behind %import common. */
static void read_import(lark_parser_t *p)
{
    char text[LARK_MAX_NAME + 1];
    const bool is_list = lark_peek(p, 0) != '.';
    bt_rule_name_t from;

    if (is_list) {
        lark_skip_space(p, false);
    }
    if (!lark_take(p, is_list ? "(" : ".")) {
        lark_fail(p, "a . or ( is expected behind the module");
    }
    do {
        size_t at;
        uint32_t to;

        lark_skip_space(p, is_list);
        at = p->at;
        if (!read_foreign_name(p, &from, text, sizeof(text))) {
            return;
        }
        lark_skip_space(p, is_list);
        if (!is_list && lark_take(p, "->")) {
            lark_skip_space(p, false);
            to = lark_read_name(p);
            if ((to != BT_RULE_NAMES_NONE) &&
                !lark_is_terminal(&p->names.list[to])) {
                lark_fail(p, "a terminal has the name of a rule");
            }
        } else {
            const size_t behind = p->at;

            p->at = at;
            to = lark_read_name(p);
            p->at = behind;
        }
        if (to != BT_RULE_NAMES_NONE) {
            import(p, &from, to);
        }
    } while (is_list && lark_take(p, ","));
    if (is_list && !lark_take(p, ")")) {
        lark_fail(p, "a list of imports has no )");
    }
    end_statement(p);
}

static void read_ignore(lark_parser_t *p)
{
    p->in_terminal = true;
    if (lark_add(p, &p->ignored, lark_read_alternatives(p, LARK_NO_SELF))) {
        end_statement(p);
    }
}

/* llguidance: its options, of which none is known. */
static void read_options(lark_parser_t *p)
{
    lark_skip_space(p, false);
    if (lark_take(p, "{")) {
        lark_skip_space(p, true);
    }
    if (!lark_take(p, "}")) {
        lark_refuse(p, "an option of %llguidance is");
    }
    end_statement(p);
}

/* Takes a directive by its name. */
static bool take_directive(lark_parser_t *p, const char *name)
{
    const size_t n = strlen(name);

    return lark_looking_at(p, name) && !lark_is_name_byte(lark_peek(p, n)) &&
           lark_take(p, name);
}

static void read_directive(lark_parser_t *p)
{
    if (take_directive(p, "%ignore")) {
        read_ignore(p);
    } else if (take_directive(p, "%import")) {
        lark_skip_space(p, false);
        if (take_directive(p, "common")) {
            read_import(p);
        } else {
            lark_refuse(p, "an import of a module other than common is");
        }
    } else if (take_directive(p, "%llguidance")) {
        read_options(p);
    } else if (take_directive(p, "%declare")) {
        lark_refuse(p, "%declare is");
    } else if (take_directive(p, "%override")) {
        lark_refuse(p, "%override is");
    } else if (take_directive(p, "%extend")) {
        lark_refuse(p, "%extend is");
    } else {
        lark_fail(p, "a directive is not known");
    }
}

/* Gives the ignored terminals, which are known last, their rule. */
static void define_ignorable(lark_parser_t *p)
{
    if ((p->ignorable != NULL) && bt_grammar_ok(p->c)) {
        const bt_expr_t *const any =
            bt_expr_alt(p->b, p->ignored.items, p->ignored.n);

        bt_builder_define(p->b, p->ignore_rule,
                          bt_expr_repeat(p->b, any, 0, BT_REPEAT_NO_LIMIT));
    }
}

const bt_expr_t *bt_lark_expr(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const char *text, size_t n,
                              const bt_json_schema_options_t *options,
                              bt_lark_docs_t *docs)
{
    lark_parser_t p = {.b = b,
                       .c = c,
                       .text = text,
                       .n = n,
                       .line = 1,
                       .options = options,
                       .docs = docs};

    if ((n > 0) && (memmem(text, n, "%ignore", strlen("%ignore")) != NULL)) {
        p.ignore_rule = bt_builder_rule(b, "%ignore");
        p.ignorable = bt_expr_rule(b, p.ignore_rule);
    }
    lark_skip_space(&p, true);
    while ((p.at < n) && bt_grammar_ok(c)) {
        if (lark_peek(&p, 0) == '%') {
            read_directive(&p);
        } else {
            read_definition(&p);
        }
        lark_skip_space(&p, true);
    }
    define_ignorable(&p);
    return bt_rule_names_root(&p.names, b, c, "start");
}

void bt_lark_docs_free(bt_lark_docs_t *docs)
{
    for (uint32_t i = 0; i < docs->n; i++) {
        bt_json_doc_free(docs->list[i]);
    }
    *docs = (bt_lark_docs_t){0};
}
