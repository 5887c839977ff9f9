/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include <string.h>

typedef struct growing {
    bt_tmpl_args_t *args;
    uint32_t cap_positional, cap_named;
} growing_t;

static bool add_positional(bt_tmpl_run_t *run, growing_t *g,
                           bt_tmpl_value_t value)
{
    bt_tmpl_args_t *args = g->args;

    bt_tmpl_value_t *positional =
        bt_tmpl_run_grow(run, args->positional, args->n_positional,
                         &g->cap_positional, 4, sizeof(value));

    if (positional == NULL) {
        return false;
    }
    args->positional = positional;
    args->positional[args->n_positional++] = value;
    return true;
}

/* Always with space for one more: a call block's caller. */
static bool reserve_named(bt_tmpl_run_t *run, growing_t *g)
{
    bt_tmpl_args_t *args = g->args;
    const uint32_t cap = (g->cap_named == 0) ? 2 : g->cap_named * 2;
    const bt_tmpl_text_t **names;
    bt_tmpl_value_t *named;

    if (args->n_named + 2 <= g->cap_named) {
        return true;
    }
    names = bt_tmpl_run_take(run, (size_t)cap + 1, sizeof(*names));
    named = bt_tmpl_run_take(run, (size_t)cap + 1, sizeof(*named));
    if ((names == NULL) || (named == NULL)) {
        return false;
    }
    if (args->n_named > 0) {
        memcpy(names, args->names, args->n_named * sizeof(*names));
        memcpy(named, args->named, args->n_named * sizeof(*named));
    }
    args->names = names;
    args->named = named;
    g->cap_named = cap + 1;
    return true;
}

static bool add_named(bt_tmpl_run_t *run, growing_t *g,
                      const bt_tmpl_text_t *name, bt_tmpl_value_t value)
{
    bt_tmpl_args_t *args = g->args;

    for (uint32_t i = 0; i < args->n_named; i++) {
        if (bt_tmpl_text_equal(args->names[i], name)) {
            return bt_tmpl_run_fail(
                run, BT_ERR_INVALID_PARAM, "argument '%.*s' is given twice",
                (name->len < 100) ? (int)name->len : 100, name->data);
        }
    }
    if (!reserve_named(run, g) || !bt_tmpl_run_step(run, args->n_named)) {
        return false;
    }
    args->names[args->n_named] = name;
    args->named[args->n_named++] = value;
    return true;
}

static bool add_star(bt_tmpl_run_t *run, growing_t *g, bt_tmpl_value_t value)
{
    const bt_tmpl_seq_t *seq;
    uint32_t at;

    if (!bt_tmpl_v_items(run, value, &seq, &at)) {
        return false;
    }
    for (; at < seq->n; at++) {
        if (!bt_tmpl_run_step(run, 1) ||
            !add_positional(run, g, seq->items[at])) {
            return false;
        }
    }
    return true;
}

static bool add_stars(bt_tmpl_run_t *run, growing_t *g, bt_tmpl_value_t value)
{
    if (value.kind != BT_V_DICT) {
        return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                "** needs a mapping, not %s",
                                bt_tmpl_v_kind_name(value));
    }
    for (uint32_t i = 0; i < value.u.dict->n; i++) {
        const bt_tmpl_entry_t *entry = &value.u.dict->entries[i];

        if (entry->key.kind != BT_V_TEXT) {
            return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                    "** needs texts for names");
        }
        if (!add_named(run, g, entry->key.u.text,
                       bt_tmpl_entry_use(value.u.dict, i))) {
            return false;
        }
    }
    return true;
}

bool bt_tmpl_args_eval(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                       bt_tmpl_args_t *args_p)
{
    growing_t g = {.args = args_p};

    memset(args_p, 0, sizeof(*args_p));
    for (; node != NULL; node = node->next) {
        const bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);
        bool added;

        if (!bt_tmpl_run_ok(x->run)) {
            return false;
        }
        switch (node->op) {
        case BT_ARG_POSITIONAL:
            added = add_positional(x->run, &g, value);
            break;
        case BT_ARG_NAME:
            added = add_named(x->run, &g, node->text, value);
            break;
        case BT_ARG_STAR:
            added = add_star(x->run, &g, value);
            break;
        default:
            added = add_stars(x->run, &g, value);
        }
        if (!added) {
            return false;
        }
    }
    return (args_p->n_named > 0) || reserve_named(x->run, &g);
}

static bool bind_named(bt_tmpl_run_t *run, bt_tmpl_args_t *args,
                       const bt_tmpl_params_t *params, uint32_t i,
                       const char *callee)
{
    const bt_tmpl_text_t *name = args->names[i];

    for (unsigned k = 0; (k < BT_MAX_PARAMS) && (params->names[k] != NULL);
         k++) {
        if (!bt_tmpl_text_is(name, params->names[k])) {
            continue;
        }
        if (args->slot[k] != NULL) {
            return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                    "%s is given '%s' twice", callee,
                                    params->names[k]);
        }
        args->slot[k] = &args->named[i];
        return true;
    }
    return bt_tmpl_run_fail(
        run, BT_ERR_INVALID_PARAM, "%s has no argument '%.*s'", callee,
        (name->len < 100) ? (int)name->len : 100, name->data);
}

bool bt_tmpl_args_bind(bt_tmpl_run_t *run, bt_tmpl_args_t *args,
                       const bt_tmpl_params_t *params, const char *callee)
{
    uint32_t n = 0;

    if (params->any) {
        return true;
    }
    while ((n < BT_MAX_PARAMS) && (params->names[n] != NULL)) {
        n++;
    }
    if (args->n_positional > n) {
        return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                "%s takes not more than %u argument(s)", callee,
                                n);
    }
    for (uint32_t i = 0; i < n; i++) {
        args->slot[i] = (i < args->n_positional) ? &args->positional[i] : NULL;
    }
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (!bind_named(run, args, params, i, callee)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < params->n_required; i++) {
        if (args->slot[i] == NULL) {
            return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "%s needs '%s'",
                                    callee, params->names[i]);
        }
    }
    return true;
}

static const bt_tmpl_value_t *find_named(const bt_tmpl_args_t *args,
                                         const bt_tmpl_text_t *name)
{
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (bt_tmpl_text_equal(args->names[i], name)) {
            return &args->named[i];
        }
    }
    return NULL;
}

int64_t bt_tmpl_args_int(bt_tmpl_run_t *run, const bt_tmpl_args_t *args,
                         unsigned slot, int64_t otherwise)
{
    if (args->slot[slot] == NULL) {
        return otherwise;
    }
    if (!bt_tmpl_v_is_integer(*args->slot[slot])) {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                         "an integer is needed, not %s",
                         bt_tmpl_v_kind_name(*args->slot[slot]));
        return 0;
    }
    return bt_tmpl_v_as_int(*args->slot[slot]);
}

const bt_tmpl_value_t *bt_tmpl_args_named(const bt_tmpl_args_t *args,
                                          const char *name)
{
    const bt_tmpl_text_t text = {.data = name, .len = (uint32_t)strlen(name)};

    return find_named(args, &text);
}

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
    uint32_t at = 0;

    for (const bt_tmpl_node_t *param = macro->a; param != NULL;
         param = param->next, at++) {
        const bt_tmpl_value_t *given = find_named(args, param->text);
        bt_tmpl_value_t value;

        if (at < args->n_positional) {
            if (given != NULL) {
                return bt_tmpl_run_fail(
                    x->run, BT_ERR_INVALID_PARAM,
                    "macro '%.*s' is given '%.*s' twice", (int)macro->text->len,
                    macro->text->data, (int)param->text->len,
                    param->text->data);
            }
            value = args->positional[at];
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
    *used_p = at;
    return true;
}

static bool set_varargs(bt_tmpl_exec_t *x, const bt_tmpl_node_t *macro,
                        const bt_tmpl_args_t *args, uint32_t used)
{
    bt_tmpl_seq_t *rest;

    if ((macro->op & BT_MACRO_VARARGS) == 0) {
        if (args->n_positional > used) {
            bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                             "macro '%.*s' takes not more than %u argument(s)",
                             (int)macro->text->len, macro->text->data, used);
        }
        return bt_tmpl_run_ok(x->run);
    }
    rest = bt_tmpl_seq_make(x->run, 0);
    for (uint32_t i = used; (rest != NULL) && (i < args->n_positional); i++) {
        if (!bt_tmpl_seq_add(x->run, rest, args->positional[i])) {
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
            return bt_tmpl_run_fail(
                x->run, BT_ERR_INVALID_PARAM,
                "macro '%.*s' takes no keyword argument '%.*s'",
                (int)macro->text->len, macro->text->data, (int)name->len,
                name->data);
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
