/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/tests.h"

#include "common/base/assert.h"
#include "inference/template/filters.h"
#include "inference/template/lexer.h"
#include "inference/template/print.h"
#include "inference/template/textops.h"

struct bt_tmpl_test {
    const char *name;
    bool (*fn)(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
               bt_tmpl_value_t value, const bt_tmpl_args_t *args);
    unsigned how; /* what rows that share a function differ in */
    bool has_arg;
};

#define TEST(name)                                                  \
    static bool name(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test, \
                     bt_tmpl_value_t value, const bt_tmpl_args_t *args)

enum {
    NUMBER,
    INTEGER,
    SEQUENCE,
    ITERABLE,
    CALLABLE,
    TRUE_,
    FALSE_,
    MAPPING,
};

TEST(is_kind)
{
    (void)x;
    (void)args;
    return value.kind == test->how;
}

TEST(is_defined)
{
    (void)x;
    (void)test;
    (void)args;
    return value.kind != BT_V_UNDEFINED;
}

TEST(is_such)
{
    (void)x;
    (void)args;
    switch (test->how) {
    case NUMBER:
        return bt_tmpl_v_is_number(value) || (value.kind == BT_V_BIG_INT);
    case INTEGER:
        return (value.kind == BT_V_INT) || (value.kind == BT_V_BIG_INT);
    case SEQUENCE:
        return (value.kind == BT_V_TEXT) || (value.kind == BT_V_DICT) ||
               (value.kind == BT_V_UNDEFINED) ||
               ((value.kind == BT_V_SEQ) && (value.sub <= BT_SEQ_RANGE));
    case ITERABLE:
        return (value.kind == BT_V_TEXT) || (value.kind == BT_V_DICT) ||
               (value.kind == BT_V_UNDEFINED) || (value.kind == BT_V_SEQ) ||
               (value.kind == BT_V_LOOP);
    case CALLABLE:
        return (value.kind == BT_V_MACRO) || (value.kind == BT_V_BUILTIN) ||
               (value.kind == BT_V_METHOD) || (value.kind == BT_V_LOOP) ||
               (value.kind == BT_V_UNDEFINED) || (value.kind == BT_V_STATE);
    case TRUE_:
        return (value.kind == BT_V_BOOL) && value.u.truth;
    case FALSE_:
        return (value.kind == BT_V_BOOL) && !value.u.truth;
    default:
        return value.kind == BT_V_DICT;
    }
}

TEST(is_parity)
{
    bt_tmpl_value_t rest;

    (void)args;
    rest = bt_tmpl_op_binary(x->run, '%', value, bt_tmpl_v_int(2));
    return bt_tmpl_run_ok(x->run) &&
           (bt_tmpl_v_as_float(rest) == (double)test->how);
}

TEST(is_divisible)
{
    const bt_tmpl_value_t rest =
        bt_tmpl_op_binary(x->run, '%', value, *args->slot[0]);

    (void)test;
    return bt_tmpl_run_ok(x->run) && (bt_tmpl_v_as_float(rest) == 0.0);
}

TEST(is_compared)
{
    const bt_tmpl_value_t other = *args->slot[0];

    switch (test->how) {
    case BT_OP_EQ:
        return bt_tmpl_v_equal(x->run, value, other);
    case BT_OP_NE:
        return !bt_tmpl_v_equal(x->run, value, other);
    case '<':
        return bt_tmpl_v_compare(x->run, value, other, "<") < 0;
    case '>':
        return bt_tmpl_v_compare(x->run, value, other, ">") > 0;
    case BT_OP_LE:
        return bt_tmpl_v_compare(x->run, value, other, "<=") <= 0;
    default:
        return bt_tmpl_v_compare(x->run, value, other, ">=") >= 0;
    }
}

TEST(is_in)
{
    (void)test;
    return bt_tmpl_v_contains(x->run, *args->slot[0], value);
}

/* Of what has one copy in Python too. */
TEST(is_same)
{
    const bt_tmpl_value_t other = *args->slot[0];

    (void)test;
    if (value.kind != other.kind) {
        return false;
    }
    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_NONE:
    case BT_V_BOOL:
    case BT_V_INT:
    case BT_V_BIG_INT:
    case BT_V_TEXT:
        return bt_tmpl_v_equal(x->run, value, other);
    default:
        return value.u.dict == other.u.dict;
    }
}

TEST(is_case)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);
    const bt_tmpl_text_t *changed = (text == NULL) ? NULL
                                    : (test->how == 0)
                                        ? bt_tmpl_text_lower(x->run, text)
                                        : bt_tmpl_text_upper(x->run, text);
    bool cased = false;

    (void)args;
    for (uint32_t at = 0; (changed != NULL) && (at < text->len);) {
        uint32_t cp;

        at += bt_tmpl_text_decode(text, at, &cp);
        cased = cased || bt_tmpl_cp_is_cased(cp);
    }
    return (changed != NULL) && cased && bt_tmpl_text_equal(text, changed);
}

TEST(is_known)
{
    (void)x;
    (void)args;
    if (value.kind != BT_V_TEXT) {
        return false;
    }
    return (test->how == 0) ? bt_tmpl_filter_find(value.u.text) != NULL
                            : bt_tmpl_test_find(value.u.text) != NULL;
}

TEST(is_escaped)
{
    (void)x;
    (void)test;
    (void)value;
    (void)args;
    return false; /* nothing is, where nothing escapes by itself */
}

static const bt_tmpl_test_t tests[] = {
    {"defined", is_defined, 0, false},
    {"undefined", is_kind, BT_V_UNDEFINED, false},
    {"none", is_kind, BT_V_NONE, false},
    {"string", is_kind, BT_V_TEXT, false},
    {"float", is_kind, BT_V_FLOAT, false},
    {"boolean", is_kind, BT_V_BOOL, false},
    {"mapping", is_such, MAPPING, false},
    {"number", is_such, NUMBER, false},
    {"integer", is_such, INTEGER, false},
    {"sequence", is_such, SEQUENCE, false},
    {"iterable", is_such, ITERABLE, false},
    {"callable", is_such, CALLABLE, false},
    {"true", is_such, TRUE_, false},
    {"false", is_such, FALSE_, false},
    {"odd", is_parity, 1, false},
    {"even", is_parity, 0, false},
    {"divisibleby", is_divisible, 0, true},
    {"eq", is_compared, BT_OP_EQ, true},
    {"equalto", is_compared, BT_OP_EQ, true},
    {"==", is_compared, BT_OP_EQ, true},
    {"ne", is_compared, BT_OP_NE, true},
    {"!=", is_compared, BT_OP_NE, true},
    {"lt", is_compared, '<', true},
    {"lessthan", is_compared, '<', true},
    {"<", is_compared, '<', true},
    {"gt", is_compared, '>', true},
    {"greaterthan", is_compared, '>', true},
    {">", is_compared, '>', true},
    {"le", is_compared, BT_OP_LE, true},
    {"<=", is_compared, BT_OP_LE, true},
    {"ge", is_compared, BT_OP_GE, true},
    {">=", is_compared, BT_OP_GE, true},
    {"in", is_in, 0, true},
    {"sameas", is_same, 0, true},
    {"lower", is_case, 0, false},
    {"upper", is_case, 1, false},
    {"filter", is_known, 0, false},
    {"test", is_known, 1, false},
    {"escaped", is_escaped, 0, false},
};

const bt_tmpl_test_t *bt_tmpl_test_find(const bt_tmpl_text_t *name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(tests); i++) {
        if (bt_tmpl_text_is(name, tests[i].name)) {
            return &tests[i];
        }
    }
    return NULL;
}

bool bt_tmpl_test_call(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
                       bt_tmpl_value_t value, bt_tmpl_args_t *args)
{
    static const bt_tmpl_params_t one = {.names = {"other"}, .n_required = 1};
    static const bt_tmpl_params_t none = {.n_required = 0};

    return bt_tmpl_args_bind(x->run, args, test->has_arg ? &one : &none,
                             test->name) &&
           test->fn(x, test, value, args) && bt_tmpl_run_ok(x->run);
}
