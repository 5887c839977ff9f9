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
void bt_print_str(bt_build_t *out, bt_value_t value);
void bt_print_repr(bt_build_t *out, bt_value_t value);

/** str(). @return NULL: failed */
const bt_text_t *bt_v_str(bt_run_t *run, bt_value_t value);

typedef struct bt_json_style {
    const bt_text_t *indent; /**< of one level; NULL: all in one line */
    const bt_text_t *item;   /**< ", " and ": ", or what the template says */
    const bt_text_t *key;
    bool ascii; /**< \uXXXX for all else */
    bool sorted;
} bt_json_style_t;

void bt_print_json(bt_build_t *out, const bt_json_style_t *style,
                   bt_value_t value);

/**
 * The values of a JSON text, all marked as a client's. Of two members of one
 * name the later counts, as in Python.
 *
 * @return false: run->why says what is wrong
 */
bool bt_json_read(bt_run_t *run, const char *json, size_t bytes,
                  bt_value_t *value_p);

#endif
