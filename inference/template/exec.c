/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include <string.h>

#include "inference/template/loop.h"
#include "inference/template/macro.h"
#include "inference/template/print.h"

/* ---- scopes ---- */

bt_tmpl_frame_t *bt_tmpl_frame_make(bt_tmpl_run_t *run, bt_tmpl_frame_t *parent)
{
    bt_tmpl_frame_t *frame = bt_tmpl_run_take(run, 1, sizeof(*frame));

    if (frame != NULL) {
        frame->parent = parent;
    }
    return frame;
}

bool bt_tmpl_frame_set(bt_tmpl_run_t *run, bt_tmpl_frame_t *frame, uint32_t id,
                       bt_tmpl_value_t value)
{
    const bt_tmpl_slot_t slot = {.id = id, .is_set = true, .value = value};

    if (frame->parent == NULL) {
        frame->slots[id] = slot;
        return true;
    }
    for (uint32_t i = 0; i < frame->n; i++) {
        if (frame->slots[i].id == id) {
            frame->slots[i] = slot;
            return true;
        }
    }
    if (frame->n == frame->cap) {
        const uint32_t cap = (frame->cap == 0) ? 4 : frame->cap * 2;
        bt_tmpl_slot_t *slots = bt_tmpl_run_take(run, cap, sizeof(*slots));

        if (slots == NULL) {
            return false;
        }
        if (frame->n > 0) {
            memcpy(slots, frame->slots, frame->n * sizeof(*slots));
        }
        frame->slots = slots;
        frame->cap = cap;
    }
    frame->slots[frame->n++] = slot;
    return bt_tmpl_run_step(run, frame->n / 16);
}

const bt_tmpl_value_t *bt_tmpl_frame_find(const bt_tmpl_frame_t *frame,
                                          uint32_t id)
{
    for (; frame->parent != NULL; frame = frame->parent) {
        for (uint32_t i = 0; i < frame->n; i++) {
            if (frame->slots[i].id == id) {
                return &frame->slots[i].value;
            }
        }
    }
    return frame->slots[id].is_set ? &frame->slots[id].value : NULL;
}

/* ---- assigning ---- */

static bool assign_tuple(bt_tmpl_exec_t *x, const bt_tmpl_node_t *target,
                         bt_tmpl_value_t value)
{
    const bt_tmpl_node_t *item = target->a;
    const bt_tmpl_seq_t *seq;
    uint32_t at;

    if (value.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, value);
        return false;
    }
    if (!bt_tmpl_v_items(x->run, value, &seq, &at)) {
        return false;
    }
    for (; (item != NULL) && (at < seq->n); item = item->next, at++) {
        if (!bt_tmpl_exec_assign(x, item->a, seq->items[at])) {
            return false;
        }
    }
    if ((item != NULL) || (at < seq->n)) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "%s values to unpack than there are names",
                         (item != NULL) ? "fewer" : "more");
        return false;
    }
    return true;
}

bool bt_tmpl_exec_assign(bt_tmpl_exec_t *x, const bt_tmpl_node_t *target,
                         bt_tmpl_value_t value)
{
    const bt_tmpl_value_t *space;

    if (!bt_tmpl_run_ok(x->run)) {
        return false;
    }
    if (target->kind == BT_N_NAME) {
        return bt_tmpl_frame_set(x->run, x->frame, target->id, value);
    }
    if (target->kind == BT_N_TUPLE) {
        return assign_tuple(x, target, value);
    }
    space = bt_tmpl_frame_find(x->frame, target->id);
    if ((space == NULL) || (space->kind != BT_V_NAMESPACE)) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "cannot assign an attribute of '%.*s', which is no "
                         "namespace",
                         (int)target->text->len, target->text->data);
        return false;
    }
    return bt_tmpl_dict_put(x->run, space->u.dict, target->b->value, value);
}

/* ---- statements ---- */

bt_tmpl_value_t bt_tmpl_exec_capture(bt_tmpl_exec_t *x,
                                     const bt_tmpl_node_t *body,
                                     bt_tmpl_frame_t *frame)
{
    bt_tmpl_frame_t *outer_frame = x->frame;
    bt_tmpl_build_t *outer_out = x->out;
    bt_tmpl_build_t build;

    if (frame == NULL) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    x->out = &build;
    x->frame = frame;
    bt_tmpl_exec_body(x, body);
    x->out = outer_out;
    x->frame = outer_frame;
    return bt_tmpl_build_value(&build);
}

static void exec_if(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    for (const bt_tmpl_node_t *branch = node->a; branch != NULL;
         branch = branch->next) {
        bool taken = branch->a == NULL;

        if (!taken) {
            x->run->line = branch->line;
            taken = bt_tmpl_v_truth(bt_tmpl_eval(x, branch->a));
        }
        if (!bt_tmpl_run_ok(x->run)) {
            return;
        }
        if (taken) {
            bt_tmpl_exec_body(x, branch->b);
            return;
        }
    }
}

static void exec_set(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t value = bt_tmpl_eval(x, node->b);

    (void)bt_tmpl_exec_assign(x, node->a, value);
}

static void exec_set_block(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value =
        bt_tmpl_exec_capture(x, node->c, bt_tmpl_frame_make(x->run, x->frame));

    if (bt_tmpl_run_ok(x->run) && (node->b != NULL)) {
        value = bt_tmpl_eval_block_filter(x, node->b, value);
    }
    (void)bt_tmpl_exec_assign(x, node->a, value);
}

static void exec_filter_block(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value =
        bt_tmpl_exec_capture(x, node->c, bt_tmpl_frame_make(x->run, x->frame));

    if (bt_tmpl_run_ok(x->run)) {
        value = bt_tmpl_eval_block_filter(x, node->a, value);
        if (bt_tmpl_run_ok(x->run) && (value.kind != BT_V_TEXT)) {
            bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                             "a filter block gives %s, which is no text",
                             bt_tmpl_v_kind_name(value));
        }
        bt_tmpl_print_str(x->out, value);
    }
}

static void exec_call_block(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t callee = bt_tmpl_eval(x, node->a->a);
    bt_tmpl_value_t caller;
    bt_tmpl_args_t args;

    if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_args_eval(x, node->a->b, &args)) {
        return;
    }
    caller = bt_tmpl_macro_make(x->run, node->b, x->frame);
    if (!bt_tmpl_run_ok(x->run)) {
        return;
    }
    /* One more than bt_tmpl_args_eval() was asked for: it leaves room. */
    args.names[args.n_named] = node->b->text;
    args.named[args.n_named++] = caller;
    bt_tmpl_print_str(x->out, bt_tmpl_eval_call(x, callee, &args));
}

/* No value sees the names that are set beside it. */
static void exec_with(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_frame_t *outer = x->frame;
    bt_tmpl_frame_t *frame = bt_tmpl_frame_make(x->run, outer);

    if (frame == NULL) {
        return;
    }
    for (const bt_tmpl_node_t *set = node->a; set != NULL; set = set->next) {
        const bt_tmpl_value_t value = bt_tmpl_eval(x, set->b);

        x->frame = frame;
        if (!bt_tmpl_exec_assign(x, set->a, value)) {
            break;
        }
        x->frame = outer;
    }
    x->frame = frame;
    bt_tmpl_exec_body(x, node->c);
    x->frame = outer;
}

static void exec_scope(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_frame_t *outer = x->frame;

    x->frame = bt_tmpl_frame_make(x->run, outer);
    if (x->frame != NULL) {
        bt_tmpl_exec_body(x, node->c);
    }
    x->frame = outer;
}

static void exec_output(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    const bt_tmpl_value_t value = bt_tmpl_eval(x, node->a);

    if (bt_tmpl_run_ok(x->run)) {
        bt_tmpl_print_str(x->out, value);
    }
}

static void exec_one(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value;

    switch ((bt_tmpl_node_kind_t)node->kind) {
    case BT_N_TEXT:
        bt_tmpl_build_text(x->out, node->text);
        break;
    case BT_N_OUTPUT:
        exec_output(x, node);
        break;
    case BT_N_IF:
        exec_if(x, node);
        break;
    case BT_N_FOR:
        value = bt_tmpl_eval(x, node->b);
        if (bt_tmpl_run_ok(x->run)) {
            bt_tmpl_loop_run(x, node, value, x->frame, 0);
        }
        break;
    case BT_N_SET:
        exec_set(x, node);
        break;
    case BT_N_SET_BLOCK:
        exec_set_block(x, node);
        break;
    case BT_N_MACRO:
        value = bt_tmpl_macro_make(x->run, node, x->frame);
        if (bt_tmpl_run_ok(x->run)) {
            (void)bt_tmpl_frame_set(x->run, x->frame, node->id, value);
        }
        break;
    case BT_N_CALL_BLOCK:
        exec_call_block(x, node);
        break;
    case BT_N_FILTER_BLOCK:
        exec_filter_block(x, node);
        break;
    case BT_N_WITH:
        exec_with(x, node);
        break;
    case BT_N_SCOPE:
        exec_scope(x, node);
        break;
    case BT_N_BREAK:
        x->flow = BT_FLOW_BREAK;
        break;
    case BT_N_CONTINUE:
        x->flow = BT_FLOW_CONTINUE;
        break;
    default:
        bt_tmpl_run_fail(x->run, BT_ERR_INTERNAL, "an unknown statement");
    }
}

void bt_tmpl_exec_body(bt_tmpl_exec_t *x, const bt_tmpl_node_t *body)
{
    if ((body == NULL) || !bt_tmpl_run_enter(x->run)) {
        return;
    }
    for (const bt_tmpl_node_t *node = body;
         (node != NULL) && (x->flow == BT_FLOW_ON) &&
         bt_tmpl_run_step(x->run, 1);
         node = node->next) {
        x->run->line = node->line;
        exec_one(x, node);
    }
    bt_tmpl_run_leave(x->run);
}
