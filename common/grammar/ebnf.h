/* SPDX-License-Identifier: Apache-2.0 */
/** @file ebnf.h
 *
 * Grammars in EBNF, as llama.cpp (GBNF) and XGrammar write them.
 *
 *     # comment
 *     root   ::= object | "[" (value ("," value)*)? "]"
 *     string ::= "\"" [^"\\\x00-\x1F]* "\""     hex ::= [0-9a-fA-F]{4}
 *
 * A rule goes on over any number of lines, until the next `name ::=`. Literals
 * and classes have the escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH
 * \UHHHHHHHH.
 * `.` is any character. Repetitions are * + ? {n} {n,} {,m} {n,m}. <[17]> is
 * the token with this id. The root is the rule `root`.
 *
 * Left recursion, tokens by their text (<think>), their negation (!<[17]>) and
 * look-ahead ((?=…)) are refused by name: BT_ERR_UNSUPPORTED.
 *
 * Source: llama.cpp, grammars/README.md; XGrammar, "Grammar syntax".
 */
#ifndef BT_COMMON_GRAMMAR_EBNF_H
#define BT_COMMON_GRAMMAR_EBNF_H

#include <stddef.h>

#include "common/grammar/builder.h"

/** Returns an expression of the texts of a grammar.
 *  @param [in] text  UTF-8, n bytes; borrowed until bt_builder_finish().
 *  @return NULL: the compiler has failed; its sentence has the line */
const bt_expr_t *bt_ebnf_expr(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const char *text, size_t n);

#endif
