/* SPDX-License-Identifier: Apache-2.0 */
/** @file exec.h
 *
 * One rendering at work: scopes, where output goes, and what evaluates.
 *
 *     frames   root (variables of the request, set at the top)
 *                └─ body of a loop, macro, with … ─ …
 *
 * A name is looked for from the innermost frame outwards. A macro's frame hangs
 * below the one it was defined in.
 *
 * Threads: a rendering belongs to one.
 */
#ifndef BT_INFERENCE_TEMPLATE_EXEC_H
#define BT_INFERENCE_TEMPLATE_EXEC_H

#include "inference/template/ast.h"
#include "inference/template/text.h"

typedef struct bt_slot {
    uint32_t id;
    bool is_set;
    bt_value_t value;
} bt_slot_t;

typedef struct bt_frame {
    struct bt_frame *parent; /**< NULL: the root, whose slots are by id */
    bt_slot_t *slots;
    uint32_t n, cap;
} bt_frame_t;

typedef enum bt_flow {
    BT_FLOW_ON,
    BT_FLOW_BREAK,
    BT_FLOW_CONTINUE,
} bt_flow_t;

typedef struct bt_exec {
    bt_run_t *run;
    const bt_ast_t *ast;
    bt_frame_t *frame;
    bt_build_t *out;
    bt_flow_t flow;
    int64_t now_s; /**< what strftime_now() says, since 1970, in UTC */
} bt_exec_t;

/** Evaluated arguments of a call, and their places among its parameters. */
#define BT_MAX_PARAMS 6u
typedef struct bt_args {
    bt_value_t *places;
    uint32_t n_places;
    const bt_text_t **names;
    bt_value_t *named;
    uint32_t n_named;
    const bt_value_t
        *slot[BT_MAX_PARAMS]; /**< bt_args_bind(); NULL: not given */
} bt_args_t;

/** What a callee's parameters are called. */
typedef struct bt_params {
    const char *names[BT_MAX_PARAMS];
    uint8_t n_required;
    bool any; /**< takes what comes and looks itself */
} bt_params_t;

/** @param [in] node  list of BT_N_ARG @return false: failed */
bool bt_args_eval(bt_exec_t *x, const bt_node_t *node, bt_args_t *args_p);
/** Fill slot[]. @param [in] callee  for errors @return false: failed */
bool bt_args_bind(bt_run_t *run, bt_args_t *args, const bt_params_t *params,
                  const char *callee);
/** A slot's value, or what stands for it. */
static inline bool bt_args_truth(const bt_args_t *args, unsigned slot,
                                 bool otherwise)
{
    return (args->slot[slot] != NULL) ? bt_v_truth(*args->slot[slot])
                                      : otherwise;
}
/** An integer, or failed and 0. */
int64_t bt_args_int(bt_run_t *run, const bt_args_t *args, unsigned slot,
                    int64_t otherwise);

/* ---- scopes ---- */

bt_frame_t *bt_frame_make(bt_run_t *run, bt_frame_t *parent);
bool bt_frame_set(bt_run_t *run, bt_frame_t *frame, uint32_t id,
                  bt_value_t value);
/** @return NULL: not set anywhere */
const bt_value_t *bt_frame_find(const bt_frame_t *frame, uint32_t id);

/* ---- evaluating: a failure is the run's, the value then none ---- */

bt_value_t bt_eval(bt_exec_t *x, const bt_node_t *node);
bt_value_t bt_eval_attr(bt_exec_t *x, bt_value_t of, const bt_text_t *name);
bt_value_t bt_eval_item(bt_exec_t *x, bt_value_t of, bt_value_t key);
bt_value_t bt_eval_call(bt_exec_t *x, bt_value_t callee, bt_args_t *args);
/** BT_N_FILTER, or a chain of them, on a value that a block gives. */
bt_value_t bt_eval_block_filter(bt_exec_t *x, const bt_node_t *node,
                                bt_value_t value);
/** a op b. */
bt_value_t bt_op_binary(bt_run_t *run, uint8_t op, bt_value_t a, bt_value_t b);
bt_value_t bt_op_negate(bt_run_t *run, bt_value_t a);
/** Python's a[from:to:step]; each may be none. */
bt_value_t bt_op_slice(bt_run_t *run, bt_value_t of, const bt_value_t part[3]);

/** Assign to a name, an attribute of a namespace, or a tuple of them. */
bool bt_exec_assign(bt_exec_t *x, const bt_node_t *target, bt_value_t value);
void bt_exec_body(bt_exec_t *x, const bt_node_t *body);
/** What a body prints, in a new frame below @a scope. */
bt_value_t bt_exec_capture(bt_exec_t *x, const bt_node_t *body,
                           bt_frame_t *frame);
/** Names that a template uses and that every rendering has. */
bool bt_globals_set(bt_exec_t *x);
bt_value_t bt_globals_call(bt_exec_t *x, uint8_t which, bt_args_t *args);
bt_value_t bt_state_attr(bt_exec_t *x, bt_value_t of, const bt_text_t *name);
bt_value_t bt_state_call(bt_exec_t *x, bt_value_t callee);

/* ---- methods of texts, lists and mappings ---- */

struct bt_method {
    bt_value_t self;
    const struct bt_method_row *row;
};
/** @return undefined: there is no such method */
bt_value_t bt_method_find(bt_exec_t *x, bt_value_t of, const bt_text_t *name);
bt_value_t bt_method_call(bt_exec_t *x, const bt_method_t *method,
                          bt_args_t *args);

#endif
