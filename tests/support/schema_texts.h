/* SPDX-License-Identifier: Apache-2.0 */
/** @file schema_texts.h  Which texts a JSON Schema, or another description that
 *  is JSON, has. They and their texts are written with ' for ", and compiled
 *  without white space. */
#ifndef BT_TESTS_SUPPORT_SCHEMA_TEXTS_H
#define BT_TESTS_SUPPORT_SCHEMA_TEXTS_H

#include "common/base/status.h"
#include "common/grammar/compile.h"

/** Copies a text with " for ', for bt_free(). */
char *schema_quoted_text(const char *text);

/** Checks that a schema has texts, up to a NULL, and has no others: those up to
 *  a second NULL. */
void schema_check(bt_grammar_kind_t kind, const char *schema,
                  const char *const *texts);

/** Checks that a schema is refused with a status, and a sentence that has a
 *  part. */
void schema_check_refused(bt_grammar_kind_t kind, const char *schema,
                          bt_status_t status, const char *part);

/* For the texts of HAS, then NULL, then those that are not in it. */
#define HAS_OF(kind, schema, ...) \
    schema_check(kind, schema, (const char *const[]){__VA_ARGS__, NULL})
#define HAS(schema, ...) HAS_OF(BT_GRAMMAR_JSON_SCHEMA, schema, __VA_ARGS__)

#define REFUSED(schema, part)                                                \
    schema_check_refused(BT_GRAMMAR_JSON_SCHEMA, schema, BT_ERR_UNSUPPORTED, \
                         part)
#define WRONG(schema, part)                                                    \
    schema_check_refused(BT_GRAMMAR_JSON_SCHEMA, schema, BT_ERR_INVALID_PARAM, \
                         part)

#endif
