/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "inference/template/exec.h"
#include "inference/template/parser.h"

static bt_tmpl_node_t *parse_unary(bt_tmpl_parser_t *p, bool with_filters);
static bt_tmpl_node_t *parse_or(bt_tmpl_parser_t *p);

static bt_tmpl_node_t *pair(bt_tmpl_parser_t *p, bt_tmpl_node_kind_t kind,
                            uint32_t line, const bt_tmpl_node_t *a,
                            const bt_tmpl_node_t *b)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, kind, line);

    node->a = a;
    node->b = b;
    return node;
}

static bt_tmpl_node_t *constant(bt_tmpl_parser_t *p, uint32_t line,
                                bt_tmpl_value_t value)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_CONST, line);

    node->value = value;
    return node;
}

/* ---- what stands alone ---- */

static bool is_constant(const bt_tmpl_text_t *name, bt_tmpl_value_t *value_p)
{
    if (bt_tmpl_text_is(name, "none") || bt_tmpl_text_is(name, "None")) {
        *value_p = bt_tmpl_v_none();
        return true;
    }
    *value_p = bt_tmpl_v_bool(bt_tmpl_text_is(name, "true") ||
                              bt_tmpl_text_is(name, "True"));
    return value_p->u.truth || bt_tmpl_text_is(name, "false") ||
           bt_tmpl_text_is(name, "False");
}

static bt_tmpl_node_t *parse_name(bt_tmpl_parser_t *p)
{
    const uint32_t line = p->at->line;
    const bt_tmpl_text_t *name = p->at->text;
    bt_tmpl_value_t value;
    bt_tmpl_node_t *node;

    p->at++;
    if (is_constant(name, &value)) {
        return constant(p, line, value);
    }
    node = bt_tmpl_node_make(p, BT_N_NAME, line);
    node->text = name;
    node->id = bt_tmpl_parse_name_id(p, name);
    return node;
}

static bt_tmpl_node_t *parse_string(bt_tmpl_parser_t *p)
{
    const uint32_t line = p->at->line;
    const bt_tmpl_text_t *text = p->at->text;

    p->at++;
    while ((p->at->kind == BT_T_STRING) && (text != NULL)) {
        text = bt_tmpl_text_join(p->run, text, p->at->text);
        p->at++;
    }
    return constant(p, line, bt_tmpl_v_text(text));
}

/* Appends an item to a list, in a node of its own: the item's `next` may be in
 * use. */
static bt_tmpl_node_t *append(bt_tmpl_parser_t *p,
                              const bt_tmpl_node_t ***last_p,
                              const bt_tmpl_node_t *item)
{
    bt_tmpl_node_t *arg = pair(p, BT_N_ARG, item->line, item, item);

    **last_p = arg;
    *last_p = &arg->next;
    return arg;
}

/* Items until `close`; pairs: "key: value". */
static bt_tmpl_node_t *parse_items(bt_tmpl_parser_t *p,
                                   bt_tmpl_node_kind_t kind, uint8_t close)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, kind, p->at->line);
    const bt_tmpl_node_t **last = &node->a;

    p->at++;
    while (bt_tmpl_run_ok(p->run) && !bt_tmpl_parse_skip_op(p, close)) {
        bt_tmpl_node_t *item;

        if (node->a != NULL) {
            (void)bt_tmpl_parse_expect_op(p, ',');
        }
        if (bt_tmpl_parse_skip_op(p, close)) {
            break;
        }
        item = append(p, &last, bt_tmpl_parse_expr(p));
        (void)bt_tmpl_run_step(p->run, 1);
        if (kind == BT_N_DICT) {
            (void)bt_tmpl_parse_expect_op(p, ':');
            item->b = bt_tmpl_parse_expr(p);
        }
    }
    return node;
}

static bt_tmpl_node_t *parse_primary(bt_tmpl_parser_t *p)
{
    const bt_tmpl_token_t *token = p->at;
    bt_tmpl_node_t *node;

    switch (token->kind) {
    case BT_T_NAME:
        return parse_name(p);
    case BT_T_STRING:
        return parse_string(p);
    case BT_T_INT:
        p->at++;
        return constant(p, token->line, bt_tmpl_v_int(token->u.i));
    case BT_T_FLOAT:
        p->at++;
        return constant(p, token->line, bt_tmpl_v_float(token->u.f));
    case BT_T_OP:
        if (token->op == '(') {
            p->at++;
            node = bt_tmpl_parse_tuple(p, true, NULL, true);
            (void)bt_tmpl_parse_expect_op(p, ')');
            return node;
        }
        if (token->op == '[') {
            return parse_items(p, BT_N_LIST, ']');
        }
        if (token->op == '{') {
            return parse_items(p, BT_N_DICT, '}');
        }
        break;
    default:
        break;
    }
    return bt_tmpl_parse_unexpected(p, "an expression");
}

/* ---- calls, attributes, items ---- */

static bt_tmpl_node_t *parse_arg(bt_tmpl_parser_t *p, uint8_t *order)
{
    bt_tmpl_node_t *arg = bt_tmpl_node_make(p, BT_N_ARG, p->at->line);

    arg->op = BT_ARG_POSITIONAL;
    if (bt_tmpl_parse_skip_op(p, '*')) {
        arg->op = BT_ARG_STAR;
    } else if (bt_tmpl_parse_skip_op(p, BT_OP_POW)) {
        arg->op = BT_ARG_STARS;
    } else if ((p->at->kind == BT_T_NAME) && (p->at[1].kind == BT_T_OP) &&
               (p->at[1].op == '=')) {
        arg->op = BT_ARG_NAME;
        arg->text = p->at->text;
        p->at += 2;
    }
    if ((arg->op < *order) || (*order == BT_ARG_STARS) ||
        ((arg->op == BT_ARG_STAR) && (*order == BT_ARG_STAR))) {
        /* jinja2 allows names behind a star */
        if (!((arg->op == BT_ARG_NAME) && (*order == BT_ARG_STAR))) {
            return bt_tmpl_parse_wrong(p,
                                       "arguments of a call are out of order");
        }
    }
    *order = (arg->op > *order) ? arg->op : *order;
    arg->a = bt_tmpl_parse_expr(p);
    return arg;
}

/* @return NULL: there are none */
static const bt_tmpl_node_t *parse_args(bt_tmpl_parser_t *p)
{
    const bt_tmpl_node_t *args = NULL;
    const bt_tmpl_node_t **last = &args;
    uint8_t order = BT_ARG_POSITIONAL;

    (void)bt_tmpl_parse_expect_op(p, '(');
    while (bt_tmpl_run_ok(p->run) && !bt_tmpl_parse_skip_op(p, ')')) {
        bt_tmpl_node_t *arg;

        if (args != NULL) {
            (void)bt_tmpl_parse_expect_op(p, ',');
            if (bt_tmpl_parse_skip_op(p, ')')) {
                break;
            }
        }
        arg = parse_arg(p, &order);
        *last = arg;
        last = &arg->next;
    }
    return args;
}

static bool at_item_end(const bt_tmpl_parser_t *p)
{
    return bt_tmpl_parse_sees_op(p, ']') || bt_tmpl_parse_sees_op(p, ',');
}

static bt_tmpl_node_t *parse_item(bt_tmpl_parser_t *p)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *first = NULL;
    bt_tmpl_node_t *slice;

    if (!bt_tmpl_parse_sees_op(p, ':')) {
        first = bt_tmpl_parse_expr(p);
        if (!bt_tmpl_parse_sees_op(p, ':')) {
            return first;
        }
    }
    p->at++;
    slice = bt_tmpl_node_make(p, BT_N_SLICE, line);
    slice->a = first;
    if (!bt_tmpl_parse_sees_op(p, ':') && !at_item_end(p)) {
        slice->b = bt_tmpl_parse_expr(p);
    }
    if (bt_tmpl_parse_skip_op(p, ':') && !at_item_end(p)) {
        slice->c = bt_tmpl_parse_expr(p);
    }
    return slice;
}

/* "a[b, c]": a tuple is the key. */
static bt_tmpl_node_t *parse_more_items(bt_tmpl_parser_t *p,
                                        bt_tmpl_node_t *item)
{
    bt_tmpl_node_t *tuple = bt_tmpl_node_make(p, BT_N_TUPLE, item->line);
    const bt_tmpl_node_t **last = &tuple->a;

    for (;;) {
        if (item->kind == BT_N_SLICE) {
            return bt_tmpl_parse_wrong(p, "a slice among several indices");
        }
        (void)append(p, &last, item);
        if (!bt_tmpl_parse_skip_op(p, ',')) {
            return tuple;
        }
        item = parse_item(p);
    }
}

static bt_tmpl_node_t *parse_subscript(bt_tmpl_parser_t *p, bt_tmpl_node_t *of)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *node;

    if (bt_tmpl_parse_skip_op(p, '.')) {
        if (p->at->kind == BT_T_INT) {
            const int64_t i = p->at->u.i;

            p->at++;
            return pair(p, BT_N_ITEM, line, of,
                        constant(p, line, bt_tmpl_v_int(i)));
        }
        node = bt_tmpl_node_make(p, BT_N_ATTR, line);
        node->a = of;
        node->text = bt_tmpl_parse_expect_name(p);
        return node;
    }
    p->at++; /* '[' */
    node = parse_item(p);
    if (bt_tmpl_parse_sees_op(p, ',')) {
        node = parse_more_items(p, node);
    }
    (void)bt_tmpl_parse_expect_op(p, ']');
    return pair(p, BT_N_ITEM, line, of, node);
}

static bt_tmpl_node_t *parse_call(bt_tmpl_parser_t *p, bt_tmpl_node_t *of)
{
    const uint32_t line = p->at->line;

    return pair(p, BT_N_CALL, line, of, parse_args(p));
}

static bt_tmpl_node_t *parse_postfix(bt_tmpl_parser_t *p, bt_tmpl_node_t *node)
{
    while (bt_tmpl_run_step(p->run, 1)) {
        if (bt_tmpl_parse_sees_op(p, '.') || bt_tmpl_parse_sees_op(p, '[')) {
            node = parse_subscript(p, node);
        } else if (bt_tmpl_parse_sees_op(p, '(')) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    return node;
}

/* ---- filters and tests ---- */

static bt_tmpl_node_t *parse_filter(bt_tmpl_parser_t *p, bt_tmpl_node_t *value)
{
    bt_tmpl_node_t *node = bt_tmpl_node_make(p, BT_N_FILTER, p->at->line);

    node->a = value;
    node->text = bt_tmpl_parse_expect_name(p);
    node->row = bt_tmpl_filter_find(node->text);
    if (node->row == NULL) {
        return bt_tmpl_parse_wrong(p, "filter '%.*s' is not known",
                                   (int)node->text->len, node->text->data);
    }
    if (bt_tmpl_parse_sees_op(p, '(')) {
        node->b = parse_args(p);
    }
    return node;
}

bt_tmpl_node_t *bt_tmpl_parse_filters(bt_tmpl_parser_t *p,
                                      bt_tmpl_node_t *value, bool first_bare)
{
    bt_tmpl_node_t *node = value;

    if (first_bare) {
        node = parse_filter(p, node);
    }
    while (bt_tmpl_run_step(p->run, 1) && bt_tmpl_parse_skip_op(p, '|')) {
        node = parse_filter(p, node);
    }
    return node;
}

/* "is divisibleby 3": one argument without brackets. */
static bool sees_bare_argument(const bt_tmpl_parser_t *p)
{
    switch (p->at->kind) {
    case BT_T_NAME:
        return !bt_tmpl_parse_sees_name(p, "else") &&
               !bt_tmpl_parse_sees_name(p, "or") &&
               !bt_tmpl_parse_sees_name(p, "and");
    case BT_T_STRING:
    case BT_T_INT:
    case BT_T_FLOAT:
        return true;
    default:
        return bt_tmpl_parse_sees_op(p, '[') || bt_tmpl_parse_sees_op(p, '{');
    }
}

static bt_tmpl_node_t *parse_test(bt_tmpl_parser_t *p, bt_tmpl_node_t *value)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *node;
    bt_tmpl_node_t *arg;
    bool negated;

    p->at++; /* "is" */
    negated = bt_tmpl_parse_skip_name(p, "not");
    node = bt_tmpl_node_make(p, BT_N_TEST, line);
    node->a = value;
    node->text = bt_tmpl_parse_expect_name(p);
    node->row = bt_tmpl_test_find(node->text);
    if (node->row == NULL) {
        return bt_tmpl_parse_wrong(p, "test '%.*s' is not known",
                                   (int)node->text->len, node->text->data);
    }
    if (bt_tmpl_parse_sees_op(p, '(')) {
        node->b = parse_args(p);
    } else if (sees_bare_argument(p)) {
        if (bt_tmpl_parse_sees_name(p, "is")) {
            return bt_tmpl_parse_wrong(p, "tests cannot be chained with is");
        }
        arg = bt_tmpl_node_make(p, BT_N_ARG, line);
        arg->a = parse_postfix(p, parse_primary(p));
        node->b = arg;
    }
    return negated ? pair(p, BT_N_NOT, line, node, node) : node;
}

static bt_tmpl_node_t *parse_filters_and_tests(bt_tmpl_parser_t *p,
                                               bt_tmpl_node_t *node)
{
    while (bt_tmpl_run_step(p->run, 1)) {
        if (bt_tmpl_parse_sees_op(p, '|')) {
            node = bt_tmpl_parse_filters(p, node, false);
        } else if (bt_tmpl_parse_sees_name(p, "is")) {
            node = parse_test(p, node);
        } else if (bt_tmpl_parse_sees_op(p, '(')) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    return node;
}

/* ---- operators ---- */

static bt_tmpl_node_t *parse_unary(bt_tmpl_parser_t *p, bool with_filters)
{
    const uint32_t line = p->at->line;
    const bool negates = bt_tmpl_parse_sees_op(p, '-');
    bt_tmpl_node_t *node;

    if (!bt_tmpl_run_enter(p->run)) {
        return &p->failed;
    }
    if (bt_tmpl_parse_skip_op(p, '-') || bt_tmpl_parse_skip_op(p, '+')) {
        node = parse_unary(p, false);
        node = pair(p, negates ? BT_N_NEGATE : BT_N_PLUS, line, node, node);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    if (with_filters) {
        node = parse_filters_and_tests(p, node);
    }
    bt_tmpl_run_leave(p->run);
    return node;
}

/* Left to right: the operators of one level, lowest first. */
static const uint8_t levels[][4] = {
    {'+', '-'}, {'~'}, {'*', '/', BT_OP_FLOORDIV, '%'}, {BT_OP_POW}};
#define N_LEVELS 4u

static bool sees_level(const bt_tmpl_parser_t *p, unsigned level)
{
    for (unsigned i = 0; (i < 4) && (levels[level][i] != 0); i++) {
        if (bt_tmpl_parse_sees_op(p, levels[level][i])) {
            return true;
        }
    }
    return false;
}

static bt_tmpl_node_t *parse_math(bt_tmpl_parser_t *p, unsigned level)
{
    bt_tmpl_node_t *left =
        (level == N_LEVELS) ? parse_unary(p, true) : parse_math(p, level + 1);

    while ((level < N_LEVELS) && sees_level(p, level) &&
           bt_tmpl_run_step(p->run, 1)) {
        const uint8_t op = p->at->op;
        const uint32_t line = p->at->line;
        bt_tmpl_node_t *right;

        p->at++;
        right = parse_math(p, level + 1);
        left =
            pair(p, (op == '~') ? BT_N_CONCAT : BT_N_BINARY, line, left, right);
        left->op = op;
    }
    return left;
}

/* @return 0: none is here */
static uint8_t take_comparison(bt_tmpl_parser_t *p)
{
    static const uint8_t ops[] = {BT_OP_EQ, BT_OP_NE, '<',
                                  '>',      BT_OP_LE, BT_OP_GE};

    for (size_t i = 0; i < sizeof(ops); i++) {
        if (bt_tmpl_parse_skip_op(p, ops[i])) {
            return ops[i];
        }
    }
    if (bt_tmpl_parse_skip_name(p, "in")) {
        return BT_CMP_IN;
    }
    if (bt_tmpl_parse_sees_name(p, "not") && (p->at[1].kind == BT_T_NAME) &&
        bt_tmpl_text_is(p->at[1].text, "in")) {
        p->at += 2;
        return BT_CMP_NOT_IN;
    }
    return 0;
}

static bt_tmpl_node_t *parse_compare(bt_tmpl_parser_t *p)
{
    bt_tmpl_node_t *first = parse_math(p, 0);
    bt_tmpl_node_t *compare = NULL;
    const bt_tmpl_node_t **last = NULL;
    uint8_t op;

    while ((op = take_comparison(p)) != 0) {
        bt_tmpl_node_t *operand =
            bt_tmpl_node_make(p, BT_N_OPERAND, p->at->line);

        operand->op = op;
        operand->a = parse_math(p, 0);
        if (compare == NULL) {
            compare = pair(p, BT_N_COMPARE, first->line, first, operand);
        } else {
            *last = operand;
        }
        last = &operand->next;
    }
    return (compare != NULL) ? compare : first;
}

static bt_tmpl_node_t *parse_not(bt_tmpl_parser_t *p)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *node;

    if (!bt_tmpl_parse_skip_name(p, "not")) {
        return parse_compare(p);
    }
    if (!bt_tmpl_run_enter(p->run)) {
        return &p->failed;
    }
    node = parse_not(p);
    bt_tmpl_run_leave(p->run);
    return pair(p, BT_N_NOT, line, node, node);
}

static bt_tmpl_node_t *parse_and(bt_tmpl_parser_t *p)
{
    bt_tmpl_node_t *left = parse_not(p);

    while (bt_tmpl_parse_sees_name(p, "and")) {
        const uint32_t line = p->at->line;

        p->at++;
        left = pair(p, BT_N_AND, line, left, parse_not(p));
    }
    return left;
}

static bt_tmpl_node_t *parse_or(bt_tmpl_parser_t *p)
{
    bt_tmpl_node_t *left = parse_and(p);

    while (bt_tmpl_parse_sees_name(p, "or")) {
        const uint32_t line = p->at->line;

        p->at++;
        left = pair(p, BT_N_OR, line, left, parse_and(p));
    }
    return left;
}

bt_tmpl_node_t *bt_tmpl_parse_expr(bt_tmpl_parser_t *p)
{
    bt_tmpl_node_t *node;

    if (!bt_tmpl_run_enter(p->run)) {
        return &p->failed;
    }
    node = parse_or(p);
    while (bt_tmpl_parse_sees_name(p, "if")) {
        const uint32_t line = p->at->line;

        p->at++;
        node = pair(p, BT_N_CHOICE, line, node, parse_or(p));
        if (bt_tmpl_parse_skip_name(p, "else")) {
            node->c = bt_tmpl_parse_expr(p);
        }
    }
    bt_tmpl_run_leave(p->run);
    return node;
}

static bool at_tuple_end(const bt_tmpl_parser_t *p, const char *end)
{
    return (p->at->kind == BT_T_VAR_END) || (p->at->kind == BT_T_BLOCK_END) ||
           bt_tmpl_parse_sees_op(p, ')') ||
           ((end != NULL) && bt_tmpl_parse_sees_name(p, end));
}

bt_tmpl_node_t *bt_tmpl_parse_tuple(bt_tmpl_parser_t *p, bool choice,
                                    const char *end, bool in_brackets)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *tuple = NULL;
    bt_tmpl_node_t *first = NULL;
    const bt_tmpl_node_t **last = NULL;

    if (!at_tuple_end(p, end)) {
        first = choice ? bt_tmpl_parse_expr(p) : parse_or(p);
        if (!bt_tmpl_parse_sees_op(p, ',')) {
            return first;
        }
    } else if (!in_brackets) {
        return bt_tmpl_parse_unexpected(p, "an expression");
    }
    tuple = bt_tmpl_node_make(p, BT_N_TUPLE, line);
    last = &tuple->a;
    while (first != NULL) {
        (void)append(p, &last, first);
        if (!bt_tmpl_parse_skip_op(p, ',') || at_tuple_end(p, end)) {
            break;
        }
        first = choice ? bt_tmpl_parse_expr(p) : parse_or(p);
    }
    return tuple;
}

/* ---- targets of assignments ---- */

static bt_tmpl_node_t *parse_one_target(bt_tmpl_parser_t *p, bool attributes)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *node;
    const bt_tmpl_text_t *name;
    bt_tmpl_value_t value;

    if (bt_tmpl_parse_skip_op(p, '(')) {
        if (!bt_tmpl_run_enter(p->run)) {
            return &p->failed;
        }
        node = bt_tmpl_parse_target(p, NULL, false);
        bt_tmpl_run_leave(p->run);
        (void)bt_tmpl_parse_expect_op(p, ')');
        return node;
    }
    name = bt_tmpl_parse_expect_name(p);
    if (is_constant(name, &value)) {
        return bt_tmpl_parse_wrong(p, "a constant cannot be assigned to");
    }
    node = bt_tmpl_node_make(
        p, bt_tmpl_parse_sees_op(p, '.') ? BT_N_ATTR_TARGET : BT_N_NAME, line);
    node->text = name;
    node->id = bt_tmpl_parse_name_id(p, name);
    if (bt_tmpl_parse_sees_op(p, '.')) {
        if (!attributes) {
            return bt_tmpl_parse_wrong(p,
                                       "only set can assign to an attribute");
        }
        p->at++;
        name = bt_tmpl_parse_expect_name(p);
        node->b = constant(p, line, bt_tmpl_v_text(name));
    }
    return node;
}

bt_tmpl_node_t *bt_tmpl_parse_target(bt_tmpl_parser_t *p, const char *end,
                                     bool attributes)
{
    const uint32_t line = p->at->line;
    bt_tmpl_node_t *first = parse_one_target(p, attributes);
    bt_tmpl_node_t *tuple;
    const bt_tmpl_node_t **last;

    if (!bt_tmpl_parse_sees_op(p, ',')) {
        return first;
    }
    tuple = bt_tmpl_node_make(p, BT_N_TUPLE, line);
    last = &tuple->a;
    for (;;) {
        (void)append(p, &last, first);
        if (!bt_tmpl_parse_skip_op(p, ',') || bt_tmpl_parse_sees_op(p, '=') ||
            at_tuple_end(p, end)) {
            return tuple;
        }
        first = parse_one_target(p, attributes);
    }
}
