/* SPDX-License-Identifier: Apache-2.0 */
/** @file parser.h
 *
 * What statements (parser.c) and expressions (parse_expr.c) share. Precedence
 * is Jinja's, lowest first: if-else, or, and, not, comparisons, + -, ~, * / //
 * %,
 * **, signs, then filters and tests.
 *
 * Source: jinja2 3.1, parser.py.
 * Threads: as run.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_PARSER_H
#define BT_INFERENCE_TEMPLATE_PARSER_H

#include "inference/template/ast.h"
#include "inference/template/lexer.h"

typedef struct bt_tmpl_parser {
    bt_tmpl_run_t *run;
    const bt_tmpl_token_t *at;
    bt_tmpl_dict_t *names; /**< text → id */
    uint32_t loops;        /**< around, in this macro */
    uint8_t uses;          /**< BT_MACRO_… of the macro being parsed */
} bt_tmpl_parser_t;

/** NULL and failed, always: for `return`. */
bt_tmpl_node_t *bt_tmpl_parse_wrong(bt_tmpl_parser_t *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** What the next token is called in errors. */
bt_tmpl_node_t *bt_tmpl_parse_unexpected(bt_tmpl_parser_t *p,
                                         const char *wanted);
bt_tmpl_node_t *bt_tmpl_node_make(bt_tmpl_parser_t *p, bt_tmpl_node_kind_t kind,
                                  uint32_t line);

bool bt_tmpl_parse_sees_name(const bt_tmpl_parser_t *p, const char *name);
bool bt_tmpl_parse_sees_op(const bt_tmpl_parser_t *p, uint8_t op);
bool bt_tmpl_parse_skip_name(bt_tmpl_parser_t *p, const char *name);
bool bt_tmpl_parse_skip_op(bt_tmpl_parser_t *p, uint8_t op);
/** @return false: failed */
bool bt_tmpl_parse_expect_op(bt_tmpl_parser_t *p, uint8_t op);
/** The next token, which must be a name; NULL: failed. */
const bt_tmpl_text_t *bt_tmpl_parse_expect_name(bt_tmpl_parser_t *p);
/** Number of a variable's name. */
uint32_t bt_tmpl_parse_name_id(bt_tmpl_parser_t *p, const bt_tmpl_text_t *name);

/* All return NULL on failure. */
bt_tmpl_node_t *bt_tmpl_parse_expr(bt_tmpl_parser_t *p);
/** Expressions with commas between are a tuple. @param [in] end  a name that
 *  ends it, or NULL @param [in] choice  "a if b" is one expression */
bt_tmpl_node_t *bt_tmpl_parse_tuple(bt_tmpl_parser_t *p, bool choice,
                                    const char *end, bool in_brackets);
bt_tmpl_node_t *bt_tmpl_parse_target(bt_tmpl_parser_t *p, const char *end,
                                     bool attributes);
/** Filters: with their '|', or the first without; @a value NULL: of a block. */
bt_tmpl_node_t *bt_tmpl_parse_filters(bt_tmpl_parser_t *p,
                                      bt_tmpl_node_t *value, bool first_bare);

#endif
