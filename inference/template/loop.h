/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h
 *
 * The walk of one for loop, and its `loop` variable. A condition of the loop is
 * asked item by item, when the walk comes to it or the template looks ahead.
 *
 * Threads: as exec.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_LOOP_H
#define BT_INFERENCE_TEMPLATE_LOOP_H

#include "inference/template/exec.h"

/** The loop of @a node over @a iterable; its body's frame hangs below @a scope.
 *  @param [in] depth0  of recursive loops around */
void bt_tmpl_loop_run(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                      bt_tmpl_value_t iterable, bt_tmpl_frame_t *scope,
                      uint32_t depth0);
/** `loop.name`. */
bt_tmpl_value_t bt_tmpl_loop_attr(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                  const bt_tmpl_text_t *name);
int64_t bt_tmpl_loop_length(bt_tmpl_run_t *run, bt_tmpl_loop_t *loop);
/** `loop(items)` of a recursive one. */
bt_tmpl_value_t bt_tmpl_loop_recurse(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args);
bt_tmpl_value_t bt_tmpl_loop_cycle(bt_tmpl_exec_t *x,
                                   const bt_tmpl_loop_t *loop,
                                   const bt_tmpl_args_t *args);
bt_tmpl_value_t bt_tmpl_loop_changed(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args);

#endif
