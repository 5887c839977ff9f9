/* SPDX-License-Identifier: Apache-2.0 */
/** @file exec.h
 *
 * Execution of a parsed template: statements, loops, macros, filters, builtins.
 */
#ifndef BT_INFERENCE_TEMPLATE_EXEC_H
#define BT_INFERENCE_TEMPLATE_EXEC_H

#include "inference/template/parser.h"
#include "inference/template/text.h"

/*
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
    bt_tmpl_value_t *positional;
    uint32_t n_positional;
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

/** Initializes parameters by their names, of which the first @a required must
 *  be given. */
#define BT_TMPL_PARAMS(required, ...)                     \
    {                                                     \
        .names = {__VA_ARGS__}, .n_required = (required), \
    }
#define BT_TMPL_NO_PARAMS BT_TMPL_PARAMS(0, NULL)

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

/** Returns a keyword argument. @return NULL: not given */
const bt_tmpl_value_t *bt_tmpl_args_named(const bt_tmpl_args_t *args,
                                          const char *name);

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
/** True when a op b, for the operators of comparisons; false also on
 *  failure. */
bool bt_tmpl_op_holds(bt_tmpl_run_t *run, uint8_t op, bt_tmpl_value_t a,
                      bt_tmpl_value_t b);
bt_tmpl_value_t bt_tmpl_op_negate(bt_tmpl_run_t *run, bt_tmpl_value_t a);
/** Computes Python's a[from:to:step]; each may be none. */
bt_tmpl_value_t bt_tmpl_op_slice(bt_tmpl_run_t *run, bt_tmpl_value_t of,
                                 const bt_tmpl_value_t part[3]);

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

/*
 * Iteration of one for loop, and its `loop` variable. A condition of the loop
 * is evaluated item by item, when the loop reaches the item or the template
 * looks ahead.
 */

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

/*
 * Macros, and the bodies of call blocks, which are macros named caller.
 */

bt_tmpl_value_t bt_tmpl_macro_make(bt_tmpl_run_t *run,
                                   const bt_tmpl_node_t *node,
                                   bt_tmpl_frame_t *scope);
const bt_tmpl_text_t *bt_tmpl_macro_name(const bt_tmpl_macro_t *macro);
/** Calls a macro and returns its output. */
bt_tmpl_value_t bt_tmpl_macro_call(bt_tmpl_exec_t *x,
                                   const bt_tmpl_macro_t *macro,
                                   const bt_tmpl_args_t *args);

/*
 * Filters, by name. filters.c has the table and the filters of one value,
 * filters_seq.c those that iterate.
 *
 * Source: jinja2 3.1, filters.py; tojson is transformers'.
 * Threads: the table is constant.
 */

/** Declares the function of a filter; @a how is that of its row. */
#define BT_TMPL_FILTER(name)                                                 \
    bt_tmpl_value_t name(bt_tmpl_exec_t *x __attribute__((unused)),          \
                         bt_tmpl_value_t value,                              \
                         const bt_tmpl_args_t *args __attribute__((unused)), \
                         int how __attribute__((unused)))

typedef struct bt_tmpl_filter {
    const char *name;
    BT_TMPL_FILTER((*fn));
    int how; /**< distinguishes rows that share a function */
    bt_tmpl_params_t params;
} bt_tmpl_filter_t;

/** Finds a filter by name. @return NULL: there is none */
const bt_tmpl_filter_t *bt_tmpl_filter_find(const bt_tmpl_text_t *name);
bt_tmpl_value_t bt_tmpl_filter_call(bt_tmpl_exec_t *x,
                                    const bt_tmpl_filter_t *filter,
                                    bt_tmpl_value_t value,
                                    bt_tmpl_args_t *args);

/* filters_seq.c */
#define BT_FILTER_LAST    1 /**< bt_tmpl_filter_end(): not the first */
#define BT_FILTER_MATCHES 1 /**< bt_tmpl_filter_select(): not the others */
#define BT_FILTER_BY_ATTR 2 /**< bt_tmpl_filter_select(): by an attribute */
BT_TMPL_FILTER(bt_tmpl_filter_batch);
BT_TMPL_FILTER(bt_tmpl_filter_dictsort);
BT_TMPL_FILTER(bt_tmpl_filter_end);
BT_TMPL_FILTER(bt_tmpl_filter_extreme); /**< @a how: -1 for the least, 1 */
BT_TMPL_FILTER(bt_tmpl_filter_items);
BT_TMPL_FILTER(bt_tmpl_filter_join);
BT_TMPL_FILTER(bt_tmpl_filter_list);
BT_TMPL_FILTER(bt_tmpl_filter_map);
BT_TMPL_FILTER(bt_tmpl_filter_reverse);
BT_TMPL_FILTER(bt_tmpl_filter_select);
BT_TMPL_FILTER(bt_tmpl_filter_slice);
BT_TMPL_FILTER(bt_tmpl_filter_sort);
BT_TMPL_FILTER(bt_tmpl_filter_sum);
BT_TMPL_FILTER(bt_tmpl_filter_unique);

/*
 * Jinja tests, the names that may follow `is`.
 *
 * Source: jinja2 3.1, tests.py.
 * Threads: the table is constant.
 */

typedef struct bt_tmpl_test bt_tmpl_test_t;

/** Finds a test by name. @return NULL: there is none */
const bt_tmpl_test_t *bt_tmpl_test_find(const bt_tmpl_text_t *name);
/** Evaluates a test.
 *  @return false also on failure, which is recorded in the run */
bool bt_tmpl_test_call(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
                       bt_tmpl_value_t value, bt_tmpl_args_t *args);

#endif
