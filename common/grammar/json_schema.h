/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_schema.h
 *
 * JSON Schema as an expression of the JSON texts that a model may write.
 *
 * Written texts are valid, but not every valid text may be written:
 *
 * - members come in the order of `properties`, then those of
 *   patternProperties and additionalProperties;
 * - white space between tokens is nothing, one blank, or one or two newlines
 *   with at most 20 blanks behind them; with `compact` there is none;
 * - keys, and strings with a pattern, a format or a value that is given, have
 *   one spelling (bt_expr_text());
 * - numbers with a range or a multipleOf have no exponent; an integer has no
 *   fraction.
 *
 * Names that the schema does not have may be there twice in a text: as with
 * most readers, the last of them counts.
 *
 * Nothing is held in part: a schema of which some valid-looking text would be
 * invalid is refused with the JSON pointer of the keyword.
 *
 * Source: JSON Schema draft 2020-12, and drafts 4, 6, 7 and 2019-09 where
 * keywords differ.
 */
#ifndef BT_COMMON_GRAMMAR_JSON_SCHEMA_H
#define BT_COMMON_GRAMMAR_JSON_SCHEMA_H

#include <stdbool.h>

#include "common/base/json_doc.h"
#include "common/grammar/builder.h"

typedef struct bt_json_schema_options {
    bool compact;
    bool lenient; /**< keywords and formats that are not known are annotations;
                       false: they are refused */
} bt_json_schema_options_t;

/** Returns an expression of the values that a schema describes.
 *  @param [in] doc, schema  Outlive the compiler.
 *  @return NULL: the compiler has failed */
const bt_expr_t *bt_json_schema_expr(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c,
                                     const bt_json_doc_t *doc,
                                     const bt_json_node_t *schema,
                                     const bt_json_schema_options_t *options);

/** Schemas of one document that are compiled one after the other; what they
 *  have in common is compiled once. */
typedef struct bt_json_schemas bt_json_schemas_t;

/** @return NULL: the compiler has failed */
bt_json_schemas_t *
bt_json_schemas_create(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                       const bt_json_doc_t *doc,
                       const bt_json_schema_options_t *options);
/** Returns an expression of the values that a schema describes, as
 *  bt_json_schema_expr().
 *  @param [in] schema  Of the document, behind all before it. */
const bt_expr_t *bt_json_schemas_expr(bt_json_schemas_t *schemas,
                                      const bt_json_node_t *schema);

/** Returns an expression of any JSON object. */
const bt_expr_t *bt_json_object_expr(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c, bool compact);

#endif
