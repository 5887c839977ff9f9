/* SPDX-License-Identifier: Apache-2.0 */
/** @file exec.h
 *
 * Execution state of one rendering: scopes, output, and evaluation.
 *
 *     frames   root (variables of the request, set at the top)
 *                └─ body of a loop, macro, with … ─ …
 *
 * A name is looked up from the innermost frame outwards. A macro's frame is a
 * child of the one it was defined in.
 *
 * Threads: a rendering belongs to one thread.
 */
#ifndef BT_INFERENCE_TEMPLATE_EXEC_H
#define BT_INFERENCE_TEMPLATE_EXEC_H

#include "inference/template/ast.h"
#include "inference/template/text.h"

typedef struct bt_tmpl_slot {
    uint32_t id;
    bool is_set;
    bt_tmpl_value_t value;
} bt_tmpl_slot_t;

typedef struct bt_tmpl_frame {
    struct bt_tmpl_frame *parent; /**< NULL: this is the root, whose slots
                                       are indexed by id */
    bt_tmpl_slot_t *slots;
    uint32_t n, cap;
} bt_tmpl_frame_t;

typedef enum bt_tmpl_flow {
    BT_FLOW_ON,
    BT_FLOW_BREAK,
    BT_FLOW_CONTINUE,
} bt_tmpl_flow_t;

typedef struct bt_tmpl_exec {
    bt_tmpl_run_t *run;
    const bt_tmpl_ast_t *ast;
    bt_tmpl_frame_t *frame;
    bt_tmpl_build_t *out;
    bt_tmpl_flow_t flow;
    int64_t now_s; /**< time of strftime_now(), seconds since 1970, UTC */
} bt_tmpl_exec_t;

/** Evaluated arguments of a call, and the parameter that each belongs to. */
#define BT_MAX_PARAMS 6u
typedef struct bt_tmpl_args {
    bt_tmpl_value_t *places;
    uint32_t n_places;
    const bt_tmpl_text_t **names;
    bt_tmpl_value_t *named;
    uint32_t n_named;
    const bt_tmpl_value_t *slot[BT_MAX_PARAMS]; /**< set by bt_tmpl_args_bind();
                                                   NULL: not given */
} bt_tmpl_args_t;

/** Names of a callee's parameters. */
typedef struct bt_tmpl_params {
    const char *names[BT_MAX_PARAMS];
    uint8_t n_required;
    bool any; /**< accepts any arguments and checks them itself */
} bt_tmpl_params_t;

/** Evaluates the arguments of a call.
 *  @param [in] node  list of BT_N_ARG
 *  @return false: failed */
bool bt_tmpl_args_eval(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                       bt_tmpl_args_t *args_p);
/** Fills slot[] of the arguments.
 *  @param [in] callee  name for errors
 *  @return false: failed */
bool bt_tmpl_args_bind(bt_tmpl_run_t *run, bt_tmpl_args_t *args,
                       const bt_tmpl_params_t *params, const char *callee);
/** Returns a slot's value as a boolean, or @a otherwise if it is not given. */
static inline bool bt_tmpl_args_truth(const bt_tmpl_args_t *args, unsigned slot,
                                      bool otherwise)
{
    return (args->slot[slot] != NULL) ? bt_tmpl_v_truth(*args->slot[slot])
                                      : otherwise;
}
/** Returns a slot's value as an integer, or @a otherwise if it is not given; on
 *  failure 0. */
int64_t bt_tmpl_args_int(bt_tmpl_run_t *run, const bt_tmpl_args_t *args,
                         unsigned slot, int64_t otherwise);

/* ---- scopes ---- */

bt_tmpl_frame_t *bt_tmpl_frame_make(bt_tmpl_run_t *run,
                                    bt_tmpl_frame_t *parent);
bool bt_tmpl_frame_set(bt_tmpl_run_t *run, bt_tmpl_frame_t *frame, uint32_t id,
                       bt_tmpl_value_t value);
/** Finds a variable. @return NULL: not set anywhere */
const bt_tmpl_value_t *bt_tmpl_frame_find(const bt_tmpl_frame_t *frame,
                                          uint32_t id);

/* ---- evaluation: a failure is the run's; the value is none then ---- */

bt_tmpl_value_t bt_tmpl_eval(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node);
bt_tmpl_value_t bt_tmpl_eval_attr(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                  const bt_tmpl_text_t *name);
bt_tmpl_value_t bt_tmpl_eval_item(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                  bt_tmpl_value_t key);
bt_tmpl_value_t bt_tmpl_eval_call(bt_tmpl_exec_t *x, bt_tmpl_value_t callee,
                                  bt_tmpl_args_t *args);
/** Applies BT_N_FILTER, or a chain of filters, to the value of a block. */
bt_tmpl_value_t bt_tmpl_eval_block_filter(bt_tmpl_exec_t *x,
                                          const bt_tmpl_node_t *node,
                                          bt_tmpl_value_t value);
/** Computes a op b. */
bt_tmpl_value_t bt_tmpl_op_binary(bt_tmpl_run_t *run, uint8_t op,
                                  bt_tmpl_value_t a, bt_tmpl_value_t b);
bt_tmpl_value_t bt_tmpl_op_negate(bt_tmpl_run_t *run, bt_tmpl_value_t a);
/** Computes Python's a[from:to:step]; each may be none. */
bt_tmpl_value_t bt_tmpl_op_slice(bt_tmpl_run_t *run, bt_tmpl_value_t of,
                                 const bt_tmpl_value_t part[3]);

/** Assigns to a name, an attribute of a namespace, or a tuple of targets. */
bool bt_tmpl_exec_assign(bt_tmpl_exec_t *x, const bt_tmpl_node_t *target,
                         bt_tmpl_value_t value);
void bt_tmpl_exec_body(bt_tmpl_exec_t *x, const bt_tmpl_node_t *body);
/** Executes a body in @a frame, and returns its output. */
bt_tmpl_value_t bt_tmpl_exec_capture(bt_tmpl_exec_t *x,
                                     const bt_tmpl_node_t *body,
                                     bt_tmpl_frame_t *frame);
/** Sets the global names that a template uses and that every rendering has. */
bool bt_tmpl_globals_set(bt_tmpl_exec_t *x);
bt_tmpl_value_t bt_tmpl_globals_call(bt_tmpl_exec_t *x, uint8_t which,
                                     bt_tmpl_args_t *args);
bt_tmpl_value_t bt_tmpl_state_attr(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                   const bt_tmpl_text_t *name);
bt_tmpl_value_t bt_tmpl_state_call(bt_tmpl_exec_t *x, bt_tmpl_value_t callee);

/* ---- methods of strings, lists and mappings ---- */

struct bt_tmpl_method {
    bt_tmpl_value_t self;
    const struct bt_tmpl_method_row *row;
};
/** Finds a method. @return undefined: there is no such method */
bt_tmpl_value_t bt_tmpl_method_find(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                    const bt_tmpl_text_t *name);
bt_tmpl_value_t bt_tmpl_method_call(bt_tmpl_exec_t *x,
                                    const bt_tmpl_method_t *method,
                                    bt_tmpl_args_t *args);

#endif
