/* SPDX-License-Identifier: Apache-2.0 */
/** @file builtins.h
 *
 * Jinja tests, the names that may follow `is`.
 *
 * Source: jinja2 3.1, tests.py.
 * Threads: the table is constant.
 */
#ifndef BT_INFERENCE_TEMPLATE_BUILTINS_H
#define BT_INFERENCE_TEMPLATE_BUILTINS_H

#include "inference/template/exec.h"

typedef struct bt_tmpl_test bt_tmpl_test_t;

/** Finds a test by name. @return NULL: there is none */
const bt_tmpl_test_t *bt_tmpl_test_find(const bt_tmpl_text_t *name);
/** Evaluates a test.
 *  @return false also on failure, which is recorded in the run */
bool bt_tmpl_test_call(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
                       bt_tmpl_value_t value, bt_tmpl_args_t *args);

#endif
