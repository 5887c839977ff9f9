/* SPDX-License-Identifier: Apache-2.0 */
/** @file structural_tag.h
 *
 * Structural tags, XGrammar's description of an answer of which parts are
 * free text and parts follow a schema:
 *
 *     {"type": "structural_tag", "format": F}
 *
 * where F is an object with one of these types:
 *
 *     const_string         value
 *     json_schema          json_schema, perhaps strict
 *     regex                pattern
 *     grammar              grammar: EBNF (ebnf.h)
 *     json_string          lark: a grammar of Lark (lark.h), or pattern
 *     any_text             perhaps excludes: texts that do not occur
 *     token                token: its id
 *     sequence, or         elements
 *     optional, star, plus content
 *     repeat               content, min, max
 *     tag                  begin, content, end: a text or a list of texts;
 * begin and end may be a token, too triggered_tags       triggers, tags;
 * at_least_one, stop_after_first, excludes tags_with_separator  tags,
 * separator; at_least_one, stop_after_first
 *
 * and the older form, which is that of triggered_tags with schemas:
 *
 *     {"type": "structural_tag", "triggers": ["…"],
 *      "structures": [{"begin": "…", "schema": S, "end": "…"}]}
 *
 * Free text is any UTF-8 text in which no trigger, no text of `excludes`, and
 * no text that ends a tag around it occurs. Special tokens are no text. The
 * first of at_least_one tags begins the answer.
 *
 * `json_string` is Baton's: a JSON string, with its quotes, whose text is one
 * of the grammar or of the pattern; a grammar with %json is refused. `strict`
 * is Baton's: false takes keywords and formats that are not known as
 * annotations; left out, it is what the request says.
 *
 * Source: XGrammar, "Structural Tag"; vLLM, "Structured Outputs".
 */
#ifndef BT_COMMON_GRAMMAR_STRUCTURAL_TAG_H
#define BT_COMMON_GRAMMAR_STRUCTURAL_TAG_H

#include "common/base/json_doc.h"
#include "common/grammar/builder.h"
#include "common/grammar/json_schema.h"

/** Returns an expression of the texts of a structural tag.
 *  @param [in] doc  Outlives the builder.
 *  @return NULL: the compiler has failed; its sentence has the JSON pointer */
const bt_expr_t *
bt_structural_tag_expr(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                       const bt_json_doc_t *doc,
                       const bt_json_schema_options_t *options);

/** Returns an automaton of all UTF-8 texts in which none of n texts occurs.
 *  @param [in] texts, lens  n; none is empty */
const bt_dfa_t *bt_dfa_without(bt_grammar_compiler_t *c,
                               const char *const *texts, const size_t *lens,
                               uint32_t n);

#endif
