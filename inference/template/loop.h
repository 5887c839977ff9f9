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
void bt_loop_run(bt_exec_t *x, const bt_node_t *node, bt_value_t iterable,
                 bt_frame_t *scope, uint32_t depth0);
/** `loop.name`. */
bt_value_t bt_loop_attr(bt_exec_t *x, bt_loop_t *loop, const bt_text_t *name);
int64_t bt_loop_length(bt_run_t *run, bt_loop_t *loop);
/** `loop(items)` of a recursive one. */
bt_value_t bt_loop_recurse(bt_exec_t *x, bt_loop_t *loop,
                           const bt_args_t *args);
bt_value_t bt_loop_cycle(bt_exec_t *x, const bt_loop_t *loop,
                         const bt_args_t *args);
bt_value_t bt_loop_changed(bt_exec_t *x, bt_loop_t *loop,
                           const bt_args_t *args);

#endif
