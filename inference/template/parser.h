/* SPDX-License-Identifier: Apache-2.0 */
/** @file parser.h
 *
 * Shared parts of the parsers of statements (parser.c) and expressions
 * (parse_expr.c). Precedence is Jinja's, lowest first: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, signs, then filters and tests.
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
    uint32_t loops;        /**< number of enclosing loops in this macro */
    uint8_t uses;          /**< BT_MACRO_… of the macro being parsed */
} bt_tmpl_parser_t;

/** Records a parse error and always returns NULL, for `return`. */
bt_tmpl_node_t *bt_tmpl_parse_wrong(bt_tmpl_parser_t *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Reports that the next token is not the one @a wanted; returns NULL. */
bt_tmpl_node_t *bt_tmpl_parse_unexpected(bt_tmpl_parser_t *p,
                                         const char *wanted);
bt_tmpl_node_t *bt_tmpl_node_make(bt_tmpl_parser_t *p, bt_tmpl_node_kind_t kind,
                                  uint32_t line);

bool bt_tmpl_parse_sees_name(const bt_tmpl_parser_t *p, const char *name);
bool bt_tmpl_parse_sees_op(const bt_tmpl_parser_t *p, uint8_t op);
bool bt_tmpl_parse_skip_name(bt_tmpl_parser_t *p, const char *name);
bool bt_tmpl_parse_skip_op(bt_tmpl_parser_t *p, uint8_t op);
/** Consumes an operator. @return false: failed */
bool bt_tmpl_parse_expect_op(bt_tmpl_parser_t *p, uint8_t op);
/** Consumes a name, which must be the next token; NULL: failed. */
const bt_tmpl_text_t *bt_tmpl_parse_expect_name(bt_tmpl_parser_t *p);
/** Returns the id of a variable's name. */
uint32_t bt_tmpl_parse_name_id(bt_tmpl_parser_t *p, const bt_tmpl_text_t *name);

/* Parse functions return NULL on failure. */
bt_tmpl_node_t *bt_tmpl_parse_expr(bt_tmpl_parser_t *p);
/** Parses an expression, or several with commas between as a tuple.
 *  @param [in] end  a name that ends the tuple, or NULL
 *  @param [in] choice  "a if b" is one expression */
bt_tmpl_node_t *bt_tmpl_parse_tuple(bt_tmpl_parser_t *p, bool choice,
                                    const char *end, bool in_brackets);
bt_tmpl_node_t *bt_tmpl_parse_target(bt_tmpl_parser_t *p, const char *end,
                                     bool attributes);
/** Parses filters: with their '|', or the first without; @a value NULL: filters
 *  of a block. */
bt_tmpl_node_t *bt_tmpl_parse_filters(bt_tmpl_parser_t *p,
                                      bt_tmpl_node_t *value, bool first_bare);

#endif
