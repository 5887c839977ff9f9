/* SPDX-License-Identifier: Apache-2.0 */
/** @file lark_priv.h
 *
 * Reading of Lark's grammars (lark.h), between
 *
 *     lark.c            statements
 *     lark_rules.c      alternatives and items
 *     lark_terminals.c  names, strings and regular expressions
 *
 * Failures have the line.
 */
#ifndef BT_COMMON_GRAMMAR_LARK_PRIV_H
#define BT_COMMON_GRAMMAR_LARK_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/builder.h"
#include "common/grammar/lark.h"
#include "common/grammar/rule_names.h"

#define LARK_MAX_NAME 256u
#define LARK_NO_SELF  BT_RULE_NAMES_NONE

/* A list of expressions that grows. */
typedef struct lark_list {
    const bt_expr_t **items;
    uint32_t n, cap;
} lark_list_t;

typedef struct lark_parser {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c;
    const char *text;
    size_t n, at;
    uint32_t line;
    uint32_t depth;
    bt_rule_names_t names;
    bool in_terminal; /* the definition that is read is of a terminal */
    uint32_t plain;   /* name that the last item is, without an operator */
    const bt_expr_t *ignorable; /* any number of ignored terminals */
    uint32_t ignore_rule;       /* of `ignorable` */
    lark_list_t ignored;
    const bt_json_schema_options_t *options;
    bt_lark_docs_t *docs;
} lark_parser_t;

static inline bool lark_is_digit(char byte)
{
    return (byte >= '0') && (byte <= '9');
}

static inline bool lark_is_lower(char byte)
{
    return (byte >= 'a') && (byte <= 'z');
}

static inline bool lark_is_upper(char byte)
{
    return (byte >= 'A') && (byte <= 'Z');
}

static inline bool lark_is_name_byte(char byte)
{
    return lark_is_lower(byte) || lark_is_upper(byte) || lark_is_digit(byte) ||
           (byte == '_');
}

/* Returns the byte `ahead` of the place; 0: the end, or a failure. */
static inline char lark_peek(const lark_parser_t *p, size_t ahead)
{
    return (bt_grammar_ok(p->c) && (p->at + ahead < p->n))
               ? p->text[p->at + ahead]
               : '\0';
}

/* lark_terminals.c */

void lark_fail(lark_parser_t *p, const char *what);
/* Fails for what is not supported. @param [in] what  With its verb: "x is" */
void lark_refuse(lark_parser_t *p, const char *what);
/* Puts the line before the sentence of another reader's failure. */
void lark_add_line(lark_parser_t *p, uint32_t line);
bool lark_looking_at(const lark_parser_t *p, const char *text);
bool lark_take(lark_parser_t *p, const char *text);
/* Skips white space and comments. */
void lark_skip_space(lark_parser_t *p, bool lines);
/* True when a name is a terminal's. */
bool lark_is_terminal(const bt_rule_name_t *name);
/* Reads a name. @return its index; BT_RULE_NAMES_NONE: failed */
uint32_t lark_read_name(lark_parser_t *p);
uint32_t lark_read_number(lark_parser_t *p);
/* Reads a string or a range of characters. */
const bt_expr_t *lark_read_literal(lark_parser_t *p);
const bt_expr_t *lark_read_regex(lark_parser_t *p);

/* lark_rules.c */

bool lark_add(lark_parser_t *p, lark_list_t *list, const bt_expr_t *x);
/* Reads the alternatives of a rule, of parentheses, or of a terminal. Those of
 * the rule `self` that begin with itself repeat what is behind that:
 * a: a x | y is y x*.
 * @param [in] self  Name; LARK_NO_SELF: no rule's */
const bt_expr_t *lark_read_alternatives(lark_parser_t *p, uint32_t self);

#endif
