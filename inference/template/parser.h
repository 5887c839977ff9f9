/* SPDX-License-Identifier: Apache-2.0 */
/** @file parser.h
 *
 * Parsing of a template: tokens, syntax tree, parser.
 */
#ifndef BT_INFERENCE_TEMPLATE_PARSER_H
#define BT_INFERENCE_TEMPLATE_PARSER_H

#include "inference/template/text.h"
#include "inference/template/value.h"

/*
 * Syntax tree of a parsed template: nodes in one arena, never changed after
 * parsing.
 *
 * Threads: any number may read it.
 */

/** Kinds of nodes, each with the members that it uses. A list is linked by
 *  `next`. */
typedef enum bt_tmpl_node_kind {
    /* expressions */
    BT_N_CONST,       /**< value */
    BT_N_NAME,        /**< id, text */
    BT_N_LIST,        /**< a: list of expressions */
    BT_N_TUPLE,       /**< a: list of expressions, or of targets */
    BT_N_DICT,        /**< a: list of keys, each with its value in b */
    BT_N_NOT,         /**< a */
    BT_N_NEGATE,      /**< a */
    BT_N_PLUS,        /**< a */
    BT_N_AND,         /**< a, b */
    BT_N_OR,          /**< a, b */
    BT_N_CHOICE,      /**< a if b else c (or NULL) */
    BT_N_BINARY,      /**< a op b */
    BT_N_CONCAT,      /**< a: list of expressions */
    BT_N_COMPARE,     /**< a, b: list of BT_N_OPERAND */
    BT_N_OPERAND,     /**< op a */
    BT_N_ATTR,        /**< a . text */
    BT_N_ITEM,        /**< a [ b ] */
    BT_N_SLICE,       /**< a : b : c, each may be NULL; only as b of an item */
    BT_N_CALL,        /**< a ( b: list of BT_N_ARG ) */
    BT_N_FILTER,      /**< a | row ( b: list of BT_N_ARG ); a NULL: filter of
                           a block */
    BT_N_TEST,        /**< a is row ( b ) */
    BT_N_ARG,         /**< op: BT_ARG_…, text: keyword, a */
    BT_N_ATTR_TARGET, /**< id, text: namespace; b: const, its attribute */
    /* statements */
    BT_N_TEXT,      /**< text */
    BT_N_OUTPUT,    /**< a */
    BT_N_IF,        /**< a: list of BT_N_BRANCH */
    BT_N_BRANCH,    /**< a: condition or NULL, b: body */
    BT_N_FOR,       /**< a: target, b: iterable, c: body, d: else, e:
                         condition; op: recursive */
    BT_N_SET,       /**< a: target, b: expression */
    BT_N_SET_BLOCK, /**< a: target, b: filter or NULL, c: body */
    BT_N_MACRO, /**< id, text, a: list of BT_N_PARAM, c: body; op: BT_MACRO_… */
    BT_N_PARAM,        /**< id, text, a: default or NULL */
    BT_N_CALL_BLOCK,   /**< a: call, b: BT_N_MACRO that is caller */
    BT_N_FILTER_BLOCK, /**< a: filter, c: body */
    BT_N_WITH,         /**< a: list of BT_N_SET, c: body */
    BT_N_SCOPE,        /**< c: body */
    BT_N_BREAK,
    BT_N_CONTINUE,
} bt_tmpl_node_kind_t;

typedef enum bt_tmpl_arg_kind {
    BT_ARG_POSITIONAL,
    BT_ARG_NAME,
    BT_ARG_STAR,
    BT_ARG_STARS,
} bt_tmpl_arg_kind_t;

/** Names that a macro's body uses beyond its parameters. */
#define BT_MACRO_CALLER  1u
#define BT_MACRO_KWARGS  2u
#define BT_MACRO_VARARGS 4u

enum {
    BT_CMP_IN = 200, /**< operators of operands beside the tokens' */
    BT_CMP_NOT_IN,
};

typedef struct bt_tmpl_node bt_tmpl_node_t;
struct bt_tmpl_node {
    uint8_t kind;
    uint8_t op;
    uint32_t line;
    uint32_t id; /**< id of a name */
    const bt_tmpl_node_t *next;
    const bt_tmpl_node_t *a, *b, *c, *d, *e;
    const bt_tmpl_text_t *text;
    const void *row; /**< bt_tmpl_filter_t or bt_tmpl_test_t */
    bt_tmpl_value_t value;
};

typedef struct bt_tmpl_ast {
    const bt_tmpl_node_t *body;
    const bt_tmpl_dict_t *names; /**< name of every variable → id */
    uint32_t n_names;
} bt_tmpl_ast_t;

/** Names with a fixed id in every template. */
enum {
    BT_NAME_LOOP,
    BT_NAME_CALLER,
    BT_NAME_KWARGS,
    BT_NAME_VARARGS,
};

/** Parses a template. @return false: the error is in run->why and run->line */
bool bt_tmpl_ast_parse(bt_tmpl_run_t *run, const char *source, size_t bytes,
                       bt_tmpl_ast_t *ast_p);

/*
 * Splits a template's text into tokens, with Jinja's white space control: '-'
 * and '+' at the ends of tags, and trim_blocks and lstrip_blocks, which
 * transformers sets.
 *
 * Source: jinja2 3.1, lexer.py.
 * Threads: the tokens belong to the run that they were made in.
 */

typedef enum bt_tmpl_token_kind {
    BT_T_END,
    BT_T_DATA,
    BT_T_VAR_BEGIN,
    BT_T_VAR_END,
    BT_T_BLOCK_BEGIN,
    BT_T_BLOCK_END,
    BT_T_NAME,
    BT_T_STRING,
    BT_T_INT,
    BT_T_FLOAT,
    BT_T_OP, /**< op: one of the characters, or one of the operators below */
} bt_tmpl_token_kind_t;

enum {
    BT_OP_EQ = 128,
    BT_OP_NE,
    BT_OP_LE,
    BT_OP_GE,
    BT_OP_FLOORDIV,
    BT_OP_POW,
};

typedef struct bt_tmpl_token {
    uint8_t kind;
    uint8_t op;
    uint32_t line;
    const bt_tmpl_text_t *text; /**< text of data, names and strings */
    union {
        int64_t i;
        double f;
    } u;
} bt_tmpl_token_t;

typedef struct bt_tmpl_tokens {
    bt_tmpl_token_t *list; /**< the last is BT_T_END */
    uint32_t n, cap;
} bt_tmpl_tokens_t;

/** Splits a template into tokens.
 *  @param [in] source  without zero bytes
 *  @return false: the error is in run->why and run->line */
bool bt_tmpl_lex(bt_tmpl_run_t *run, const char *source, size_t bytes,
                 bt_tmpl_tokens_t *tokens_p);

/*
 * Shared parts of the parsers of statements (parser.c) and expressions
 * (parse_expr.c). Precedence is Jinja's, lowest first: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, signs, then filters and tests.
 *
 * Source: jinja2 3.1, parser.py.
 * Threads: a parser belongs to its run.
 */

typedef struct bt_tmpl_parser {
    bt_tmpl_run_t *run;
    const bt_tmpl_token_t *at;
    bt_tmpl_dict_t *names; /**< text → id */
    uint32_t loops;        /**< number of enclosing loops in this macro */
    uint8_t uses;          /**< BT_MACRO_… of the macro being parsed */
    bt_tmpl_node_t failed; /**< stands for every node after a failure */
} bt_tmpl_parser_t;

/** Records a parse error and returns p->failed, for `return`. As errors stick,
 *  callers go on: loops end, and the tree is dropped at the end. */
bt_tmpl_node_t *bt_tmpl_parse_wrong(bt_tmpl_parser_t *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Reports that the next token is not the one @a wanted; returns p->failed. */
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
/** Consumes a name, which must be the next token; "": failed. */
const bt_tmpl_text_t *bt_tmpl_parse_expect_name(bt_tmpl_parser_t *p);
/** Returns the id of a variable's name. */
uint32_t bt_tmpl_parse_name_id(bt_tmpl_parser_t *p, const bt_tmpl_text_t *name);

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
