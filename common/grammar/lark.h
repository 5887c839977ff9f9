/* SPDX-License-Identifier: Apache-2.0 */
/** @file lark.h
 *
 * Grammars of Lark, as vLLM, llguidance and OpenAI's custom tools take them.
 *
 *     start: "say" WORD ("," WORD)* -> list     // or # for a comment
 *          | sum
 *     ?sum: sum "+" NUM | NUM                   NUM.2: /[0-9]/~1..9
 *     HEX: "0x"i ("a".."f" | "0".."9")+
 *     tool: "call " %json {"type": "object"}
 *     %import common (WORD, WS_INLINE)          %ignore WS_INLINE
 *
 * The language is that of the grammar: a text belongs to it when there is any
 * derivation. Lark's lexers take the longest terminal at each place, and so
 * may not read some of these texts. The root is the rule `start`.
 *
 * - Operators are ? * + [x] ~n ~n..m, and llguidance's {n} {n,} {,m} {n,m}.
 * - Strings have the escapes \n \r \t \f \\ \" \xHH \uHHHH \UHHHHHHHH; `i`
 *   behind one: its ASCII letters in both cases; others are refused.
 * - Regular expressions are those of regex_syntax.h with BT_REGEX_LARK and the
 *   flags i, s, m, u; x where the expression has no white space and no #.
 * - An ignored terminal may stand behind each terminal of a rule and behind
 *   %json, any number of times. As with llguidance it does not begin a text.
 * - `?rule`, `!rule`, `_rule`, priorities and aliases do not change the
 *   language.
 * - Of left recursion, alternatives of a rule that begin with the rule itself
 *   are taken. Other left recursion is refused by name.
 * - %json has a schema, in the texts of json_schema.h.
 * - %import takes terminals of `common`, with Lark's definitions; a string or a
 *   comment of C ends at its first end.
 *
 * Refused by name, BT_ERR_UNSUPPORTED: templates, attributes of rules,
 * %declare, %override, %extend, other modules, special tokens, grammars by
 * @name, and what regex_syntax.h refuses.
 *
 * Source: Lark 1.3, "Grammar Reference" and grammars/common.lark; llguidance,
 * docs/syntax.md.
 */
#ifndef BT_COMMON_GRAMMAR_LARK_H
#define BT_COMMON_GRAMMAR_LARK_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/json_doc.h"
#include "common/grammar/builder.h"
#include "common/grammar/json_schema.h"

/** Documents of a grammar's %json. Zeroed: none. */
typedef struct bt_lark_docs {
    bt_json_doc_t **list; /**< in the compiler's arena */
    uint32_t n, cap;
} bt_lark_docs_t;

/** Returns an expression of the texts of a grammar.
 *  @param [in]  text     UTF-8, n bytes; borrowed until bt_builder_finish().
 *  @param [in]  options  How the schemas of %json are held; NULL: %json is
 *          refused.
 *  @param [out] docs     For bt_lark_docs_free(), after bt_builder_finish();
 *          also on failure. Zeroed before.
 *  @return NULL: the compiler has failed; its sentence has the line */
const bt_expr_t *bt_lark_expr(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const char *text, size_t n,
                              const bt_json_schema_options_t *options,
                              bt_lark_docs_t *docs);

/** Frees the documents, before the compiler's arena. */
void bt_lark_docs_free(bt_lark_docs_t *docs);

#endif
