/* SPDX-License-Identifier: Apache-2.0 */
/** @file lexer.h
 *
 * Splits a template's text into tokens, with Jinja's white space control: '-'
 * and '+' at the ends of tags, and trim_blocks and lstrip_blocks, which
 * transformers sets.
 *
 * Source: jinja2 3.1, lexer.py.
 * Threads: the tokens belong to the run that they were made in.
 */
#ifndef BT_INFERENCE_TEMPLATE_LEXER_H
#define BT_INFERENCE_TEMPLATE_LEXER_H

#include "inference/template/text.h"

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

#endif
