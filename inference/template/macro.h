/* SPDX-License-Identifier: Apache-2.0 */
/** @file macro.h
 *
 * Macros, and the bodies of call blocks, which are macros named caller.
 *
 * Threads: as exec.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_MACRO_H
#define BT_INFERENCE_TEMPLATE_MACRO_H

#include "inference/template/exec.h"

bt_tmpl_value_t bt_tmpl_macro_make(bt_tmpl_run_t *run,
                                   const bt_tmpl_node_t *node,
                                   bt_tmpl_frame_t *scope);
const bt_tmpl_text_t *bt_tmpl_macro_name(const bt_tmpl_macro_t *macro);
/** Calls a macro and returns its output. */
bt_tmpl_value_t bt_tmpl_macro_call(bt_tmpl_exec_t *x,
                                   const bt_tmpl_macro_t *macro,
                                   const bt_tmpl_args_t *args);

#endif
