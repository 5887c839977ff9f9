/* SPDX-License-Identifier: Apache-2.0 */
/** @file print.h
 *
 * Values as text, byte for byte as Python writes them: str(), repr() and
 * json.dumps() with the settings of transformers' own tojson; and JSON read
 * into values.
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_PRINT_H
#define BT_INFERENCE_TEMPLATE_PRINT_H

#include "inference/template/text.h"

/** Errors are the run's. */
void bt_tmpl_print_str(bt_tmpl_build_t *out, bt_tmpl_value_t value);
void bt_tmpl_print_repr(bt_tmpl_build_t *out, bt_tmpl_value_t value);

/** str(). @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_v_str(bt_tmpl_run_t *run, bt_tmpl_value_t value);

typedef struct bt_tmpl_json_style {
    const bt_tmpl_text_t *indent; /**< of one level; NULL: all in one line */
    const bt_tmpl_text_t *item; /**< ", " and ": ", or what the template says */
    const bt_tmpl_text_t *key;
    bool ascii; /**< \uXXXX for all else */
    bool sorted;
} bt_tmpl_json_style_t;

void bt_tmpl_print_json(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                        bt_tmpl_value_t value);

/**
 * The values of a JSON text, all marked as a client's. Of two members of one
 * name the later counts, as in Python.
 *
 * @return false: run->why says what is wrong
 */
bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p);

#endif
