/* SPDX-License-Identifier: Apache-2.0 */
/** @file tests.h
 *
 * What may stand behind `is`, by name.
 *
 * Source: jinja2 3.1, tests.py.
 * Threads: the table is constant.
 */
#ifndef BT_INFERENCE_TEMPLATE_TESTS_H
#define BT_INFERENCE_TEMPLATE_TESTS_H

#include "inference/template/exec.h"

typedef struct bt_tmpl_test bt_tmpl_test_t;

/** @return NULL: none is named so */
const bt_tmpl_test_t *bt_tmpl_test_find(const bt_tmpl_text_t *name);
/** @return false also when it failed, which the run tells */
bool bt_tmpl_test_call(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
                       bt_tmpl_value_t value, bt_tmpl_args_t *args);

#endif
