/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include "inference/template/parser.h"
#include "inference/template/text.h"

static bt_tmpl_value_t fail(bt_tmpl_exec_t *x, const char *why)
{
    return BT_TMPL_REFUSE(x->run, "%s", why);
}

/* ---- names, attributes, items ---- */

static bt_tmpl_value_t eval_name(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t *found = bt_tmpl_frame_find(x->frame, node->id);

    return (found != NULL) ? *found
                           : bt_tmpl_v_undefined(BT_UNDEF_NAME, node->text);
}

static bt_tmpl_value_t or_undefined(const bt_tmpl_value_t *found,
                                    const bt_tmpl_text_t *name)
{
    return (found != NULL) ? *found
                           : bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, name);
}

bt_tmpl_value_t bt_tmpl_eval_attr(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                  const bt_tmpl_text_t *name)
{
    const bt_tmpl_value_t *found;
    bt_tmpl_value_t method;

    switch ((bt_tmpl_kind_t)of.kind) {
    case BT_V_UNDEFINED:
        bt_tmpl_v_fail_undefined(x->run, of);
        return bt_tmpl_v_failed();
    case BT_V_NAMESPACE:
        return or_undefined(bt_tmpl_dict_find(of.u.dict, bt_tmpl_v_text(name)),
                            name);
    case BT_V_LOOP:
        if (bt_tmpl_text_is(name, "cycle") ||
            bt_tmpl_text_is(name, "changed")) {
            break; /* methods */
        }
        return bt_tmpl_loop_attr(x, of.u.loop, name);
    case BT_V_STATE:
        return bt_tmpl_state_attr(x, of, name);
    default:
        break;
    }
    method = bt_tmpl_method_find(x, of, name);
    if ((method.kind != BT_V_UNDEFINED) || (of.kind != BT_V_DICT) ||
        (method.sub == BT_UNDEF_UNSAFE)) {
        return method;
    }
    found = bt_tmpl_dict_find(of.u.dict, bt_tmpl_v_text(name));
    return ((found == NULL) && (of.u.dict->text != NULL))
               ? bt_tmpl_method_find(x, bt_tmpl_v_text(of.u.dict->text), name)
               : or_undefined(found, name);
}

static bt_tmpl_value_t item_at(bt_tmpl_exec_t *x, bt_tmpl_value_t of, int64_t i)
{
    static const bt_tmpl_text_t here = {.data = "of this place", .len = 13};
    const bt_tmpl_value_t none = bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, &here);
    const bt_tmpl_text_t *text = of.u.text;
    uint32_t from;
    uint32_t to;
    int64_t n;

    if ((of.kind == BT_V_SEQ) && (of.sub <= BT_SEQ_RANGE)) {
        n = of.u.seq->n;
        i += (i < 0) ? n : 0;
        return ((i >= 0) && (i < n)) ? of.u.seq->items[i] : none;
    }
    if ((of.kind != BT_V_TEXT) || !bt_tmpl_v_length(x->run, of, &n)) {
        return none;
    }
    i += (i < 0) ? n : 0;
    if ((i < 0) || (i >= n)) {
        return none;
    }
    from = (n == text->len) ? (uint32_t)i
                            : bt_tmpl_text_char_at(text, (uint32_t)i);
    to = from + 1;
    while ((to < text->len) && (((uint8_t)text->data[to] & 0xC0) == 0x80)) {
        to++;
    }
    return bt_tmpl_v_text(bt_tmpl_text_slice(x->run, text, from, to));
}

bt_tmpl_value_t bt_tmpl_eval_item(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                  bt_tmpl_value_t key)
{
    if (of.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, of);
        return bt_tmpl_v_failed();
    }
    if ((key.kind == BT_V_TEXT) &&
        !bt_tmpl_run_step_bytes(x->run, key.u.text->len)) {
        return bt_tmpl_v_failed();
    }
    if (of.kind == BT_V_DICT) {
        const bt_tmpl_value_t *found = bt_tmpl_dict_find(of.u.dict, key);

        if (found != NULL) {
            return *found;
        }
    }
    if (key.kind == BT_V_TEXT) {
        return (of.kind == BT_V_DICT) ? bt_tmpl_method_find(x, of, key.u.text)
                                      : bt_tmpl_eval_attr(x, of, key.u.text);
    }
    if (bt_tmpl_v_is_integer(key)) {
        return item_at(x, of, bt_tmpl_v_as_int(key));
    }
    return bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, bt_tmpl_v_str(x->run, key));
}

static bt_tmpl_value_t eval_slice(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                  const bt_tmpl_node_t *slice)
{
    const bt_tmpl_node_t *nodes[3] = {slice->a, slice->b, slice->c};
    bt_tmpl_value_t parts[3];

    for (int i = 0; i < 3; i++) {
        parts[i] =
            (nodes[i] != NULL) ? bt_tmpl_eval(x, nodes[i]) : bt_tmpl_v_none();
    }
    return bt_tmpl_run_ok(x->run) ? bt_tmpl_op_slice(x->run, of, parts)
                                  : bt_tmpl_v_failed();
}

/* ---- operators ---- */

static bt_tmpl_value_t eval_compare(bt_tmpl_exec_t *x,
                                    const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t left = bt_tmpl_eval(x, node->a);

    for (const bt_tmpl_node_t *o = node->b; o != NULL; o = o->next) {
        const bt_tmpl_value_t right = bt_tmpl_eval(x, o->a);

        if (!bt_tmpl_run_ok(x->run)) {
            return bt_tmpl_v_failed();
        }
        if (!bt_tmpl_op_holds(x->run, o->op, left, right)) {
            return bt_tmpl_v_bool(false);
        }
        left = right;
    }
    return bt_tmpl_v_bool(true);
}

static bt_tmpl_value_t eval_concat(bt_tmpl_exec_t *x,
                                   const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t a = bt_tmpl_eval(x, node->a);
    const bt_tmpl_value_t b = bt_tmpl_eval(x, node->b);
    const bt_tmpl_text_t *left;
    const bt_tmpl_text_t *right;

    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    left = bt_tmpl_v_str(x->run, a);
    right = bt_tmpl_v_str(x->run, b);
    if ((left == NULL) || (right == NULL)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_v_text(bt_tmpl_text_join(x->run, left, right));
}

static bt_tmpl_value_t eval_binary(bt_tmpl_exec_t *x,
                                   const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t a = bt_tmpl_eval(x, node->a);
    const bt_tmpl_value_t b = bt_tmpl_eval(x, node->b);

    return bt_tmpl_run_ok(x->run) ? bt_tmpl_op_binary(x->run, node->op, a, b)
                                  : bt_tmpl_v_failed();
}

static bt_tmpl_value_t eval_plus(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);

    if (value.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, value);
    }
    if (!bt_tmpl_v_is_number(value)) {
        return fail(x, "+ needs a number");
    }
    if (value.kind == BT_V_BOOL) {
        value = bt_tmpl_v_int(value.u.truth);
    }
    return value;
}

static bt_tmpl_value_t eval_choice(bt_tmpl_exec_t *x,
                                   const bt_tmpl_node_t *node)
{
    static const bt_tmpl_text_t text = {
        .data = "the inline if-expression evaluated to false and no else "
                "section was defined",
        .len = 75};
    const bool taken = bt_tmpl_v_truth(bt_tmpl_eval(x, node->b));

    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    if (taken) {
        return bt_tmpl_eval(x, node->a);
    }
    return (node->c != NULL) ? bt_tmpl_eval(x, node->c)
                             : bt_tmpl_v_undefined(BT_UNDEF_OTHER, &text);
}

/* ---- lists and mappings ---- */

static bt_tmpl_value_t eval_seq(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);

    for (const bt_tmpl_node_t *item = node->a; (seq != NULL) && (item != NULL);
         item = item->next) {
        const bt_tmpl_value_t value = bt_tmpl_eval(x, item->a);

        if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_seq_add(x->run, seq, value)) {
            return bt_tmpl_v_failed();
        }
    }
    return bt_tmpl_v_seq((node->kind == BT_N_LIST) ? BT_SEQ_LIST : BT_SEQ_TUPLE,
                         seq);
}

static bt_tmpl_value_t eval_dict(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_dict_t *dict = bt_tmpl_dict_make(x->run);

    for (const bt_tmpl_node_t *item = node->a; (dict != NULL) && (item != NULL);
         item = item->next) {
        const bt_tmpl_value_t key = bt_tmpl_eval(x, item->a);
        const bt_tmpl_value_t value = bt_tmpl_eval(x, item->b);

        if (!bt_tmpl_run_ok(x->run) ||
            !bt_tmpl_dict_put(x->run, dict, key, value)) {
            return bt_tmpl_v_failed();
        }
    }
    return bt_tmpl_v_dict(dict);
}

/* ---- calls ---- */

bt_tmpl_value_t bt_tmpl_eval_call(bt_tmpl_exec_t *x, bt_tmpl_value_t callee,
                                  bt_tmpl_args_t *args)
{
    switch ((bt_tmpl_kind_t)callee.kind) {
    case BT_V_UNDEFINED:
        bt_tmpl_v_fail_undefined(x->run, callee);
        break;
    case BT_V_MACRO:
        return bt_tmpl_macro_call(x, callee.u.macro, args);
    case BT_V_BUILTIN:
        return bt_tmpl_globals_call(x, callee.sub, args);
    case BT_V_METHOD:
        return bt_tmpl_method_call(x, callee.u.method, args);
    case BT_V_LOOP:
        return bt_tmpl_loop_recurse(x, callee.u.loop, args);
    case BT_V_STATE:
        return bt_tmpl_state_call(x, callee);
    default:
        (void)BT_TMPL_REFUSE(x->run, "%s cannot be called",
                             bt_tmpl_v_kind_name(callee));
    }
    return bt_tmpl_v_failed();
}

static bt_tmpl_value_t eval_call(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t callee = bt_tmpl_eval(x, node->a);
    bt_tmpl_args_t args;

    if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_args_eval(x, node->b, &args)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_eval_call(x, callee, &args);
}

static bt_tmpl_value_t apply_filter(bt_tmpl_exec_t *x,
                                    const bt_tmpl_node_t *node,
                                    bt_tmpl_value_t value)
{
    bt_tmpl_args_t args;

    if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_args_eval(x, node->b, &args)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_filter_call(x, node->row, value, &args);
}

bt_tmpl_value_t bt_tmpl_eval_block_filter(bt_tmpl_exec_t *x,
                                          const bt_tmpl_node_t *node,
                                          bt_tmpl_value_t value)
{
    if ((node->a != NULL) && bt_tmpl_run_enter(x->run)) {
        value = bt_tmpl_eval_block_filter(x, node->a, value);
        bt_tmpl_run_leave(x->run);
    }
    return apply_filter(x, node, value);
}

static bt_tmpl_value_t eval_test(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);
    bt_tmpl_args_t args;

    if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_args_eval(x, node->b, &args)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_v_bool(bt_tmpl_test_call(x, node->row, value, &args));
}

/* ---- all ---- */

static bt_tmpl_value_t eval_item(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t of = bt_tmpl_eval(x, node->a);
    bt_tmpl_value_t key;

    if (bt_tmpl_run_ok(x->run) && (node->b->kind == BT_N_SLICE)) {
        return eval_slice(x, of, node->b);
    }
    key = bt_tmpl_eval(x, node->b);
    return bt_tmpl_run_ok(x->run) ? bt_tmpl_eval_item(x, of, key)
                                  : bt_tmpl_v_failed();
}

static bt_tmpl_value_t eval_attr(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t of = bt_tmpl_eval(x, node->a);

    return bt_tmpl_run_ok(x->run) ? bt_tmpl_eval_attr(x, of, node->text)
                                  : bt_tmpl_v_failed();
}

static bt_tmpl_value_t eval_negate(bt_tmpl_exec_t *x,
                                   const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);

    return bt_tmpl_run_ok(x->run) ? bt_tmpl_op_negate(x->run, value)
                                  : bt_tmpl_v_failed();
}

/* and, or: one of the two values. */
static bt_tmpl_value_t eval_either(bt_tmpl_exec_t *x,
                                   const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);

    if (!bt_tmpl_run_ok(x->run) ||
        (bt_tmpl_v_truth(value) == (node->kind == BT_N_OR))) {
        return value;
    }
    return bt_tmpl_eval(x, node->b);
}

static bt_tmpl_value_t eval(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    switch ((bt_tmpl_node_kind_t)node->kind) {
    case BT_N_CONST:
        return node->value;
    case BT_N_NAME:
        return eval_name(x, node);
    case BT_N_LIST:
    case BT_N_TUPLE:
        return eval_seq(x, node);
    case BT_N_DICT:
        return eval_dict(x, node);
    case BT_N_NOT:
        return bt_tmpl_v_bool(!bt_tmpl_v_truth(bt_tmpl_eval(x, node->a)));
    case BT_N_NEGATE:
        return eval_negate(x, node);
    case BT_N_PLUS:
        return eval_plus(x, node);
    case BT_N_AND:
    case BT_N_OR:
        return eval_either(x, node);
    case BT_N_CHOICE:
        return eval_choice(x, node);
    case BT_N_BINARY:
        return eval_binary(x, node);
    case BT_N_CONCAT:
        return eval_concat(x, node);
    case BT_N_COMPARE:
        return eval_compare(x, node);
    case BT_N_ATTR:
        return eval_attr(x, node);
    case BT_N_ITEM:
        return eval_item(x, node);
    case BT_N_CALL:
        return eval_call(x, node);
    case BT_N_FILTER:
        return apply_filter(x, node, bt_tmpl_eval(x, node->a));
    case BT_N_TEST:
        return eval_test(x, node);
    default:
        bt_tmpl_run_fail(x->run, BT_ERR_INTERNAL, "an unknown expression");
        return bt_tmpl_v_failed();
    }
}

bt_tmpl_value_t bt_tmpl_eval(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value;

    if (!bt_tmpl_run_step(x->run, 1) || !bt_tmpl_run_enter(x->run)) {
        return bt_tmpl_v_failed();
    }
    value = eval(x, node);
    bt_tmpl_run_leave(x->run);
    return value;
}
