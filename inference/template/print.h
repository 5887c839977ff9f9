/* SPDX-License-Identifier: Apache-2.0 */
/** @file print.h
 *
 * Prints values byte for byte as Python does: str(), repr() and json.dumps()
 * with the settings of transformers' own tojson; and reads JSON into values.
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_PRINT_H
#define BT_INFERENCE_TEMPLATE_PRINT_H

#include "common/base/json_doc.h"
#include "inference/template/text.h"

/** Prints str() of a value. Errors are recorded in the run. */
void bt_tmpl_print_str(bt_tmpl_build_t *out, bt_tmpl_value_t value);
void bt_tmpl_print_repr(bt_tmpl_build_t *out, bt_tmpl_value_t value);

/** Returns str() of a value. @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_v_str(bt_tmpl_run_t *run, bt_tmpl_value_t value);

typedef struct bt_tmpl_json_style {
    const bt_tmpl_text_t *indent; /**< indentation of one level; NULL: all in
                                       one line */
    const bt_tmpl_text_t *item;   /**< ", " and ": ", or the separators of the
                                       template */
    const bt_tmpl_text_t *key;
    bool ascii; /**< \uXXXX for all other characters */
    bool sorted;
} bt_tmpl_json_style_t;

void bt_tmpl_print_json(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                        bt_tmpl_value_t value);

/** Makes values of a parsed document, all marked as a client's; see
 *  bt_tmpl_json_read(). */
bool bt_tmpl_json_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                        bt_tmpl_value_t *value_p);

/**
 * Reads a JSON text into values, all marked as a client's. Of two members of
 * one name the later counts, as in Python.
 *
 * @return false: the error is in run->why
 */
bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p);

#endif
