/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/macro.h"

struct bt_tmpl_macro {
    const bt_tmpl_node_t *node; /* BT_N_MACRO */
    bt_tmpl_frame_t *scope;
};

bt_tmpl_value_t bt_tmpl_macro_make(bt_tmpl_run_t *run,
                                   const bt_tmpl_node_t *node,
                                   bt_tmpl_frame_t *scope)
{
    bt_tmpl_macro_t *macro = bt_tmpl_run_take(run, 1, sizeof(*macro));

    if (macro == NULL) {
        return bt_tmpl_v_failed();
    }
    macro->node = node;
    macro->scope = scope;
    return (bt_tmpl_value_t){.kind = BT_V_MACRO, .u.macro = macro};
}

const bt_tmpl_text_t *bt_tmpl_macro_name(const bt_tmpl_macro_t *macro)
{
    return macro->node->text;
}

static const bt_tmpl_value_t *named(const bt_tmpl_args_t *args,
                                    const bt_tmpl_text_t *name)
{
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (bt_tmpl_text_equal(args->names[i], name)) {
            return &args->named[i];
        }
    }
    return NULL;
}

static bool is_param(const bt_tmpl_node_t *macro, const bt_tmpl_text_t *name)
{
    for (const bt_tmpl_node_t *param = macro->a; param != NULL;
         param = param->next) {
        if (bt_tmpl_text_equal(param->text, name)) {
            return true;
        }
    }
    return false;
}

/* Parameters in order; a default may use those before it. */
static bool set_params(bt_tmpl_exec_t *x, const bt_tmpl_node_t *macro,
                       const bt_tmpl_args_t *args, uint32_t *used_p)
{
    uint32_t place = 0;

    for (const bt_tmpl_node_t *param = macro->a; param != NULL;
         param = param->next, place++) {
        const bt_tmpl_value_t *given = named(args, param->text);
        bt_tmpl_value_t value;

        if (place < args->n_places) {
            if (given != NULL) {
                bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                                 "macro '%.*s' is given '%.*s' twice",
                                 (int)macro->text->len, macro->text->data,
                                 (int)param->text->len, param->text->data);
                return false;
            }
            value = args->places[place];
        } else if (given != NULL) {
            value = *given;
        } else if (param->a != NULL) {
            value = bt_tmpl_eval(x, param->a);
        } else {
            value = bt_tmpl_v_undefined(BT_UNDEF_PARAMETER, param->text);
        }
        if (!bt_tmpl_run_ok(x->run) ||
            !bt_tmpl_frame_set(x->run, x->frame, param->id, value)) {
            return false;
        }
    }
    *used_p = place;
    return true;
}

static bool set_varargs(bt_tmpl_exec_t *x, const bt_tmpl_node_t *macro,
                        const bt_tmpl_args_t *args, uint32_t used)
{
    bt_tmpl_seq_t *rest;

    if ((macro->op & BT_MACRO_VARARGS) == 0) {
        if (args->n_places > used) {
            bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                             "macro '%.*s' takes not more than %u argument(s)",
                             (int)macro->text->len, macro->text->data, used);
        }
        return bt_tmpl_run_ok(x->run);
    }
    rest = bt_tmpl_seq_make(x->run, 0);
    for (uint32_t i = used; (rest != NULL) && (i < args->n_places); i++) {
        if (!bt_tmpl_seq_add(x->run, rest, args->places[i])) {
            return false;
        }
    }
    return (rest != NULL) &&
           bt_tmpl_frame_set(x->run, x->frame, BT_NAME_VARARGS,
                             bt_tmpl_v_seq(BT_SEQ_TUPLE, rest));
}

static bool set_kwargs(bt_tmpl_exec_t *x, const bt_tmpl_node_t *macro,
                       const bt_tmpl_args_t *args)
{
    static const bt_tmpl_text_t no_caller = {.data = "No caller defined",
                                             .len = 17};
    bt_tmpl_dict_t *rest = bt_tmpl_dict_make(x->run);
    bt_tmpl_value_t caller = bt_tmpl_v_undefined(BT_UNDEF_OTHER, &no_caller);

    for (uint32_t i = 0; (rest != NULL) && (i < args->n_named); i++) {
        const bt_tmpl_text_t *name = args->names[i];

        if (is_param(macro, name)) {
            continue;
        }
        if (bt_tmpl_text_is(name, "caller") &&
            ((macro->op & BT_MACRO_CALLER) != 0)) {
            caller = args->named[i];
        } else if ((macro->op & BT_MACRO_KWARGS) == 0) {
            bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                             "macro '%.*s' takes no keyword argument '%.*s'",
                             (int)macro->text->len, macro->text->data,
                             (int)name->len, name->data);
            return false;
        } else if (!bt_tmpl_dict_put(x->run, rest, bt_tmpl_v_text(name),
                                     args->named[i])) {
            return false;
        }
    }
    if (rest == NULL) {
        return false;
    }
    if (((macro->op & BT_MACRO_CALLER) != 0) &&
        !bt_tmpl_frame_set(x->run, x->frame, BT_NAME_CALLER, caller)) {
        return false;
    }
    return ((macro->op & BT_MACRO_KWARGS) == 0) ||
           bt_tmpl_frame_set(x->run, x->frame, BT_NAME_KWARGS,
                             bt_tmpl_v_dict(rest));
}

bt_tmpl_value_t bt_tmpl_macro_call(bt_tmpl_exec_t *x,
                                   const bt_tmpl_macro_t *macro,
                                   const bt_tmpl_args_t *args)
{
    bt_tmpl_frame_t *outer = x->frame;
    const bt_tmpl_node_t *node = macro->node;
    bt_tmpl_value_t value = bt_tmpl_v_failed();
    uint32_t used = 0;

    if (!bt_tmpl_run_enter(x->run)) {
        return value;
    }
    x->frame = bt_tmpl_frame_make(x->run, macro->scope);
    if ((x->frame != NULL) && set_params(x, node, args, &used) &&
        set_varargs(x, node, args, used) && set_kwargs(x, node, args)) {
        value = bt_tmpl_exec_capture(x, node->c, x->frame);
    }
    x->frame = outer;
    bt_tmpl_run_leave(x->run);
    return value;
}
