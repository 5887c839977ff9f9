/* SPDX-License-Identifier: Apache-2.0 */
/** @file schema_texts.h  Which texts a JSON Schema has. Schemas and texts are
 *  written with ' for ", and compiled without white space. */
#ifndef BT_TESTS_SUPPORT_SCHEMA_TEXTS_H
#define BT_TESTS_SUPPORT_SCHEMA_TEXTS_H

#include "common/base/status.h"

/** Copies a text with " for ', for bt_free(). */
char *schema_quoted_text(const char *text);

/** Checks that a schema has texts, up to a NULL, and has no others: those up to
 *  a second NULL. */
void schema_check(const char *schema, const char *const *texts);

/** Checks that a schema is refused with a status, and a sentence that has a
 *  part. */
void schema_check_refused(const char *schema, bt_status_t status,
                          const char *part);

/* For the texts of HAS, then NULL, then those that are not in it. */
#define HAS(schema, ...) \
    schema_check(schema, (const char *const[]){__VA_ARGS__, NULL})

#define REFUSED(schema, part) \
    schema_check_refused(schema, BT_ERR_UNSUPPORTED, part)
#define WRONG(schema, part) \
    schema_check_refused(schema, BT_ERR_INVALID_PARAM, part)

#endif
