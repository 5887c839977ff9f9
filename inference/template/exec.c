/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include <string.h>

#include "common/base/status.h"
#include "inference/template/text.h"

/* ---- assigning ---- */

static bool assign(bt_tmpl_exec_t *x, const bt_tmpl_node_t *target,
                   bt_tmpl_value_t value);

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
        if (!assign(x, item->a, seq->items[at])) {
            return false;
        }
    }
    if ((item != NULL) || (at < seq->n)) {
        return bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                                "%s values to unpack than there are names",
                                (item != NULL) ? "fewer" : "more");
    }
    return true;
}

/* Assigns to a name, an attribute of a namespace, or a tuple of targets. */
static bool assign(bt_tmpl_exec_t *x, const bt_tmpl_node_t *target,
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
        return bt_tmpl_run_fail(
            x->run, BT_ERR_INVALID_PARAM,
            "cannot assign an attribute of '%.*s', which is no "
            "namespace",
            (int)target->text->len, target->text->data);
    }
    return bt_tmpl_dict_put(x->run, space->u.dict, target->b->value, value);
}

struct bt_tmpl_loop {
    bt_tmpl_exec_t *x;
    const bt_tmpl_node_t *node;
    bt_tmpl_frame_t *scope;
    bt_tmpl_frame_t *asked; /* where the condition sees the target */
    const bt_tmpl_seq_t *items;
    uint32_t at; /* next of items */
    bool filters;
    int64_t length; /* -1: not known yet */
    int64_t index0;
    uint32_t depth0;
    bt_tmpl_value_t current, before, after;
    bool has_after;
    bt_tmpl_value_t changed;
    bool has_changed;
};

/* The next item that the condition lets pass. */
static bool fetch(bt_tmpl_loop_t *loop, bt_tmpl_value_t *item_p)
{
    bt_tmpl_exec_t *x = loop->x;

    while ((loop->at < loop->items->n) && bt_tmpl_run_step(x->run, 1)) {
        const bt_tmpl_value_t item = loop->items->items[loop->at++];
        bt_tmpl_frame_t *frame = x->frame;
        bool passes = true;

        if (loop->filters) {
            loop->asked->n = 0;
            x->frame = loop->asked;
            passes = assign(x, loop->node->a, item) &&
                     bt_tmpl_v_truth(bt_tmpl_eval(x, loop->node->e));
            x->frame = frame;
        }
        if (!bt_tmpl_run_ok(x->run)) {
            return false;
        }
        if (passes) {
            *item_p = item;
            return true;
        }
    }
    return false;
}

static bool look_ahead(bt_tmpl_loop_t *loop)
{
    if (!loop->has_after) {
        loop->has_after = fetch(loop, &loop->after);
    }
    return loop->has_after;
}

static bool advance(bt_tmpl_loop_t *loop)
{
    bt_tmpl_value_t item;

    if (loop->has_after) {
        item = loop->after;
        loop->has_after = false;
    } else if (!fetch(loop, &item)) {
        return false;
    }
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    return true;
}

int64_t bt_tmpl_loop_length(bt_tmpl_run_t *run, bt_tmpl_loop_t *loop)
{
    bt_tmpl_seq_t *rest;
    bt_tmpl_value_t item;

    if (loop->length >= 0) {
        return loop->length;
    }
    rest = bt_tmpl_seq_make(run, 0);
    while ((rest != NULL) && fetch(loop, &item)) {
        if (!bt_tmpl_seq_add(run, rest, item)) {
            return 0;
        }
    }
    if ((rest == NULL) || !bt_tmpl_run_ok(run)) {
        return 0;
    }
    loop->items = rest;
    loop->at = 0;
    loop->filters = false;
    loop->length = rest->n + loop->index0 + 1 + (loop->has_after ? 1 : 0);
    return loop->length;
}

typedef enum attr {
    INDEX,
    FIRST,
    LAST,
    LENGTH,
    PREVITEM,
    NEXTITEM,
    REVINDEX,
    DEPTH,
} attr_t;

static bt_tmpl_value_t value_of(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                attr_t which, int64_t base)
{
    static const bt_tmpl_text_t before = {.data = "there is no previous item",
                                          .len = 25};
    static const bt_tmpl_text_t after = {.data = "there is no next item",
                                         .len = 21};

    switch (which) {
    case INDEX:
        return bt_tmpl_v_int(loop->index0 + base);
    case FIRST:
        return bt_tmpl_v_bool(loop->index0 == 0);
    case LAST:
        return bt_tmpl_v_bool(!look_ahead(loop));
    case LENGTH:
        return bt_tmpl_v_int(bt_tmpl_loop_length(x->run, loop));
    case PREVITEM:
        return (loop->index0 > 0)
                   ? loop->before
                   : bt_tmpl_v_undefined(BT_UNDEF_OTHER, &before);
    case NEXTITEM:
        return look_ahead(loop) ? loop->after
                                : bt_tmpl_v_undefined(BT_UNDEF_OTHER, &after);
    case REVINDEX:
        return bt_tmpl_v_int(bt_tmpl_loop_length(x->run, loop) - loop->index0 -
                             1 + base);
    case DEPTH:
        break;
    }
    return bt_tmpl_v_int(loop->depth0 + base);
}

bt_tmpl_value_t bt_tmpl_loop_attr(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                  const bt_tmpl_text_t *name)
{
    static const struct {
        const char *name;
        attr_t which;
        int64_t base; /* number of the first item */
    } attrs[] = {
        {"index", INDEX, 1},        {"index0", INDEX, 0},
        {"first", FIRST, 0},        {"last", LAST, 0},
        {"length", LENGTH, 0},      {"previtem", PREVITEM, 0},
        {"nextitem", NEXTITEM, 0},  {"revindex", REVINDEX, 1},
        {"revindex0", REVINDEX, 0}, {"depth", DEPTH, 1},
        {"depth0", DEPTH, 0},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(attrs); i++) {
        if (bt_tmpl_text_is(name, attrs[i].name)) {
            return value_of(x, loop, attrs[i].which, attrs[i].base);
        }
    }
    return bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, name);
}

/* ---- the walk ---- */

static bt_tmpl_loop_t *make_loop(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                                 bt_tmpl_value_t iterable,
                                 bt_tmpl_frame_t *scope, uint32_t depth0)
{
    bt_tmpl_loop_t *loop = bt_tmpl_run_take(x->run, 1, sizeof(*loop));

    if ((loop == NULL) ||
        !bt_tmpl_v_items(x->run, iterable, &loop->items, &loop->at)) {
        return NULL;
    }
    loop->x = x;
    loop->node = node;
    loop->scope = scope;
    loop->depth0 = depth0;
    loop->index0 = -1;
    loop->filters = node->e != NULL;
    loop->length = loop->filters ? -1 : (int64_t)loop->items->n - loop->at;
    if (loop->filters) {
        loop->asked = bt_tmpl_frame_make(x->run, scope);
        loop = (loop->asked != NULL) ? loop : NULL;
    }
    return loop;
}

static void run_loop(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node,
                     bt_tmpl_value_t iterable, bt_tmpl_frame_t *scope,
                     uint32_t depth0)
{
    bt_tmpl_loop_t *loop = make_loop(x, node, iterable, scope, depth0);
    bt_tmpl_frame_t *frame = bt_tmpl_frame_make(x->run, scope);
    bt_tmpl_frame_t *outer = x->frame;
    const bt_tmpl_value_t variable = {.kind = BT_V_LOOP, .u.loop = loop};

    if ((loop == NULL) || (frame == NULL)) {
        return;
    }
    while ((x->flow != BT_FLOW_BREAK) && advance(loop)) {
        x->frame = frame;
        frame->n = 0; /* what an iteration sets ends with it */
        x->flow = BT_FLOW_ON;
        if (bt_tmpl_frame_set(x->run, frame, BT_NAME_LOOP, variable) &&
            assign(x, node->a, loop->current)) {
            bt_tmpl_exec_body(x, node->c);
        }
        x->frame = outer;
    }
    x->flow = BT_FLOW_ON;
    if ((loop->index0 < 0) && bt_tmpl_run_ok(x->run)) {
        frame->n = 0;
        x->frame = frame;
        bt_tmpl_exec_body(x, node->d);
        x->frame = outer;
    }
}

bt_tmpl_value_t bt_tmpl_loop_recurse(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args)
{
    bt_tmpl_build_t *outer = x->out;
    bt_tmpl_build_t build;

    if (loop->node->op == 0) {
        return BT_TMPL_REFUSE(x->run, "a loop needs 'recursive' to be called");
    }
    if ((args->n_positional != 1) || (args->n_named != 0)) {
        return BT_TMPL_REFUSE(x->run, "loop() takes one argument");
    }
    if (!bt_tmpl_run_enter(x->run)) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    x->out = &build;
    run_loop(x, loop->node, args->positional[0], loop->scope, loop->depth0 + 1);
    x->out = outer;
    bt_tmpl_run_leave(x->run);
    return bt_tmpl_build_value(&build);
}

bt_tmpl_value_t bt_tmpl_loop_cycle(bt_tmpl_exec_t *x,
                                   const bt_tmpl_loop_t *loop,
                                   const bt_tmpl_args_t *args)
{
    if (args->n_positional == 0) {
        return BT_TMPL_REFUSE(x->run, "loop.cycle() needs values");
    }
    return args->positional[loop->index0 % args->n_positional];
}

bt_tmpl_value_t bt_tmpl_loop_changed(bt_tmpl_exec_t *x, bt_tmpl_loop_t *loop,
                                     const bt_tmpl_args_t *args)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);
    bt_tmpl_value_t now;
    bool same;

    for (uint32_t i = 0; (seq != NULL) && (i < args->n_positional); i++) {
        if (!bt_tmpl_seq_add(x->run, seq, args->positional[i])) {
            return bt_tmpl_v_failed();
        }
    }
    if (seq == NULL) {
        return bt_tmpl_v_failed();
    }
    now = bt_tmpl_v_seq(BT_SEQ_TUPLE, seq);
    same = loop->has_changed && bt_tmpl_v_equal(x->run, loop->changed, now);
    loop->changed = now;
    loop->has_changed = true;
    return bt_tmpl_v_bool(!same);
}

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
    bt_tmpl_slot_t *slots;

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
    slots = bt_tmpl_run_grow(run, frame->slots, frame->n, &frame->cap, 4,
                             sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    frame->slots = slots;
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

    (void)assign(x, node->a, value);
}

static void exec_set_block(bt_tmpl_exec_t *x, const bt_tmpl_node_t *node)
{
    bt_tmpl_value_t value =
        bt_tmpl_exec_capture(x, node->c, bt_tmpl_frame_make(x->run, x->frame));

    if (bt_tmpl_run_ok(x->run) && (node->b != NULL)) {
        value = bt_tmpl_eval_block_filter(x, node->b, value);
    }
    (void)assign(x, node->a, value);
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
    /* One more than bt_tmpl_args_eval() was asked for: it leaves space. */
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
        if (!assign(x, set->a, value)) {
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
            run_loop(x, node, value, x->frame, 0);
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
