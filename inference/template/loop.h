/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h
 *
 * Iteration of one for loop, and its `loop` variable. A condition of the loop
 * is evaluated item by item, when the loop reaches the item or the template
 * looks ahead.
 *
 * Threads: as exec.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_LOOP_H
#define BT_INFERENCE_TEMPLATE_LOOP_H

#include "inference/template/exec.h"

/** Runs the loop of @a node over @a iterable; the frame of its body is a child
 *  of @a scope.
 *  @param [in] depth0  depth of enclosing recursive loops */
void bt_tmpl_loop_run(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                      bt_tmpl_value_t iterable, bt_tmpl_frame_t *scope,
                      uint32_t depth0);
/** Returns `loop.name`. */
bt_tmpl_value_t bt_tmpl_loop_attr(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                  const bt_tmpl_text_t *name);
int64_t bt_tmpl_loop_length(bt_tmpl_run_t *run, bt_tmpl_loop_t *loop);
/** Runs `loop(items)` of a recursive loop. */
bt_tmpl_value_t bt_tmpl_loop_recurse(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args);
bt_tmpl_value_t bt_tmpl_loop_cycle(bt_tmpl_exec_t *x,
                                   const bt_tmpl_loop_t *loop,
                                   const bt_tmpl_args_t *args);
bt_tmpl_value_t bt_tmpl_loop_changed(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args);

#endif
