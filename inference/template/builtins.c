/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include <string.h>
#include <time.h>

#include "common/base/status.h"
#include "inference/template/parser.h"
#include "inference/template/text.h"

/* Functions that every template has: Jinja's own, and the two of transformers.
 */

#define MAX_RANGE      100000 /* jinja2's sandbox has the same */
#define FORMAT_BYTES   256u
#define STRFTIME_BYTES 1024u

typedef enum call {
    RANGE,
    NAMESPACE,
    DICT,
    CYCLER,
    JOINER,
    RAISE,
    STRFTIME,
} call_t;

static const char *const names[] = {
    [RANGE] = "range",
    [NAMESPACE] = "namespace",
    [DICT] = "dict",
    [CYCLER] = "cycler",
    [JOINER] = "joiner",
    [RAISE] = "raise_exception",
    [STRFTIME] = "strftime_now",
};

struct bt_tmpl_state {
    bool is_joiner;
    bool used; /* joiner: it was called before */
    uint32_t at;
    bt_tmpl_seq_t *items; /* cycler: all; joiner: the one text */
};

bool bt_tmpl_globals_set(bt_tmpl_exec_t *x)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bt_tmpl_value_t *id =
            bt_tmpl_dict_find_name(x->ast->names, names[i]);
        const bt_tmpl_value_t fn = {.kind = BT_V_BUILTIN, .sub = (uint8_t)i};

        if ((id != NULL) &&
            !bt_tmpl_frame_set(x->run, x->frame, (uint32_t)id->u.i, fn)) {
            return false;
        }
    }
    return true;
}

static bt_tmpl_value_t make_range(bt_tmpl_exec_t *x, bt_tmpl_args_t *args)
{
    static const bt_tmpl_params_t params =
        BT_TMPL_PARAMS(1, "start", "stop", "step");
    int64_t begin;
    int64_t end;
    int64_t step;
    bt_tmpl_seq_t *seq;

    if (!bt_tmpl_args_bind(x->run, args, &params, "range")) {
        return bt_tmpl_v_failed();
    }
    begin = bt_tmpl_args_int(x->run, args, 0, 0);
    end = bt_tmpl_args_int(x->run, args, 1, 0);
    step = bt_tmpl_args_int(x->run, args, 2, 1);
    if (args->slot[1] == NULL) {
        end = begin;
        begin = 0;
    }
    if (step == 0) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "range: the step is zero");
    }
    seq = bt_tmpl_seq_make(x->run, 0);
    while (bt_tmpl_run_ok(x->run) && (seq != NULL) &&
           ((step > 0) ? begin < end : begin > end)) {
        if (seq->n == MAX_RANGE) {
            bt_tmpl_run_fail(x->run, BT_ERR_TOO_LARGE,
                             "range: more than %d numbers", MAX_RANGE);
            break;
        }
        if (!bt_tmpl_seq_add(x->run, seq, bt_tmpl_v_int(begin)) ||
            __builtin_add_overflow(begin, step, &begin)) {
            break;
        }
    }
    return bt_tmpl_run_ok(x->run) ? bt_tmpl_v_seq(BT_SEQ_RANGE, seq)
                                  : bt_tmpl_v_failed();
}

/* dict(other, a=1) and namespace(other, a=1). */
static bt_tmpl_value_t make_dict(bt_tmpl_exec_t *x, const bt_tmpl_args_t *args,
                                 bool is_space)
{
    bt_tmpl_dict_t *dict = bt_tmpl_dict_make(x->run);
    bt_tmpl_value_t made;

    if (dict == NULL) {
        return bt_tmpl_v_failed();
    }
    if ((args->n_positional > 1) || ((args->n_positional == 1) &&
                                     (args->positional[0].kind != BT_V_DICT))) {
        bt_tmpl_run_fail(x->run, BT_ERR_UNSUPPORTED,
                         "%s() takes one mapping and names",
                         is_space ? "namespace" : "dict");
        return bt_tmpl_v_failed();
    }
    for (uint32_t i = 0;
         (args->n_positional == 1) && (i < args->positional[0].u.dict->n);
         i++) {
        const bt_tmpl_dict_t *from = args->positional[0].u.dict;

        if (!bt_tmpl_dict_put(x->run, dict, from->entries[i].key,
                              bt_tmpl_entry_use(from, i))) {
            return bt_tmpl_v_failed();
        }
    }
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (!bt_tmpl_dict_put(x->run, dict, bt_tmpl_v_text(args->names[i]),
                              args->named[i])) {
            return bt_tmpl_v_failed();
        }
    }
    made = bt_tmpl_v_dict(dict);
    made.kind = is_space ? BT_V_NAMESPACE : BT_V_DICT;
    return made;
}

/* ---- cycler and joiner ---- */

static bt_tmpl_value_t make_state(bt_tmpl_exec_t *x, const bt_tmpl_args_t *args,
                                  bool is_joiner)
{
    static const bt_tmpl_text_t comma = {.data = ", ", .len = 2};
    bt_tmpl_state_t *state = bt_tmpl_run_take(x->run, 1, sizeof(*state));
    bt_tmpl_seq_t *items = bt_tmpl_seq_make(x->run, 0);

    if ((state == NULL) || (items == NULL)) {
        return bt_tmpl_v_failed();
    }
    if (is_joiner ? (args->n_positional > 1) || (args->n_named > 0)
                  : (args->n_positional == 0) || (args->n_named > 0)) {
        return BT_TMPL_REFUSE(x->run, is_joiner ? "joiner() takes one text"
                                                : "cycler() needs values");
    }
    if (args->n_positional == 0) {
        (void)bt_tmpl_seq_add(x->run, items, bt_tmpl_v_text(&comma));
    }
    for (uint32_t i = 0; i < args->n_positional; i++) {
        if (!bt_tmpl_seq_add(x->run, items, args->positional[i])) {
            return bt_tmpl_v_failed();
        }
    }
    state->is_joiner = is_joiner;
    state->items = items;
    return (bt_tmpl_value_t){.kind = BT_V_STATE, .u.state = state};
}

/* sub: what calling it does. */
enum { ITSELF, NEXT, RESET };

bt_tmpl_value_t bt_tmpl_state_attr(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                   const bt_tmpl_text_t *name)
{
    const bt_tmpl_state_t *state = of.u.state;

    (void)x;
    if (!state->is_joiner && (of.sub == ITSELF)) {
        if (bt_tmpl_text_is(name, "current")) {
            return state->items->items[state->at];
        }
        if (bt_tmpl_text_is(name, "next") || bt_tmpl_text_is(name, "reset")) {
            of.sub = bt_tmpl_text_is(name, "next") ? NEXT : RESET;
            return of;
        }
    }
    return bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, name);
}

bt_tmpl_value_t bt_tmpl_state_call(bt_tmpl_exec_t *x, bt_tmpl_value_t callee)
{
    bt_tmpl_state_t *state = callee.u.state;
    const uint32_t at = state->at;

    if (state->is_joiner) {
        const bool first = !state->used;

        state->used = true;
        return first ? bt_tmpl_v_text(&bt_tmpl_text_empty)
                     : state->items->items[0];
    }
    if (callee.sub == ITSELF) {
        return BT_TMPL_REFUSE(x->run, "a cycler cannot be called");
    }
    if (callee.sub == RESET) {
        state->at = 0;
        return bt_tmpl_v_none();
    }
    state->at = (at + 1) % state->items->n;
    return state->items->items[at];
}

/* ---- transformers' ---- */

static bt_tmpl_value_t raise(bt_tmpl_exec_t *x, const bt_tmpl_args_t *args)
{
    const bt_tmpl_text_t *text =
        ((args->n_positional == 1) && (args->n_named == 0))
            ? bt_tmpl_v_str(x->run, args->positional[0])
            : NULL;

    if (text == NULL) {
        return BT_TMPL_REFUSE(x->run, "raise_exception() takes one message");
    }
    x->run->raised = bt_tmpl_run_ok(x->run);
    return BT_TMPL_REFUSE(x->run, "%.*s",
                          (text->len < 400) ? (int)text->len : 400, text->data);
}

static bt_tmpl_value_t strftime_now(bt_tmpl_exec_t *x,
                                    const bt_tmpl_args_t *args)
{
    const time_t now = (time_t)x->now_s;
    char format[FORMAT_BYTES + 2];
    char made[STRFTIME_BYTES];
    const bt_tmpl_text_t *text;
    struct tm tm;
    size_t n;

    if ((args->n_positional != 1) || (args->n_named != 0) ||
        (args->positional[0].kind != BT_V_TEXT) ||
        (args->positional[0].u.text->len > FORMAT_BYTES) ||
        (gmtime_r(&now, &tm) == NULL)) {
        return BT_TMPL_REFUSE(
            x->run, "strftime_now() takes one format of at most %u bytes",
            FORMAT_BYTES);
    }
    text = args->positional[0].u.text;
    if (memchr(text->data, '\0', text->len) != NULL) {
        return BT_TMPL_REFUSE(x->run, "strftime_now(): a zero byte");
    }
    memcpy(format, text->data, text->len);
    format[text->len] = 'x'; /* so that nothing made means no space */
    format[text->len + 1] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = strftime(made, sizeof(made), format, &tm);
#pragma GCC diagnostic pop
    if ((n == 0) || !bt_utf8_valid((const uint8_t *)made, n)) {
        return BT_TMPL_REFUSE(
            x->run, "strftime_now(): the format makes too long a text");
    }
    text = bt_tmpl_text_make(x->run, made, n - 1, bt_tmpl_text_quoted(text));
    return bt_tmpl_v_text(text);
}

bt_tmpl_value_t bt_tmpl_globals_call(bt_tmpl_exec_t *x, uint8_t which,
                                     bt_tmpl_args_t *args)
{
    switch ((call_t)which) {
    case RANGE:
        return make_range(x, args);
    case NAMESPACE:
        return make_dict(x, args, true);
    case DICT:
        return make_dict(x, args, false);
    case CYCLER:
        return make_state(x, args, false);
    case JOINER:
        return make_state(x, args, true);
    case RAISE:
        return raise(x, args);
    case STRFTIME:
        break;
    }
    return strftime_now(x, args);
}

struct bt_tmpl_test {
    const char *name;
    bool (*fn)(bt_tmpl_exec_t *x, const bt_tmpl_test_t *test,
               bt_tmpl_value_t value, const bt_tmpl_args_t *args);
    unsigned how; /* what rows that share a function differ in; is_kind(): the
                     kinds, a bit each */
    bool has_arg;
};

#define TEST(name)                                                       \
    static bool name(bt_tmpl_exec_t *x __attribute__((unused)),          \
                     const bt_tmpl_test_t *test __attribute__((unused)), \
                     bt_tmpl_value_t value,                              \
                     const bt_tmpl_args_t *args __attribute__((unused)))

#define KIND(name) (1u << BT_V_##name)
#define WITH_ITEMS (KIND(TEXT) | KIND(DICT) | KIND(UNDEFINED))
#define INTEGERS   (KIND(INT) | KIND(BIG_INT))

TEST(is_kind)
{
    return ((test->how >> value.kind) & 1u) != 0;
}

TEST(is_sequence)
{
    return (value.kind == BT_V_SEQ) ? value.sub <= BT_SEQ_RANGE
                                    : is_kind(x, test, value, args);
}

TEST(is_truth)
{
    return (value.kind == BT_V_BOOL) && (value.u.truth == (test->how != 0));
}

TEST(is_parity)
{
    bt_tmpl_value_t rest;

    rest = bt_tmpl_op_binary(x->run, '%', value, bt_tmpl_v_int(2));
    return bt_tmpl_run_ok(x->run) &&
           (bt_tmpl_v_as_float(rest) == (double)test->how);
}

TEST(is_divisible)
{
    const bt_tmpl_value_t rest =
        bt_tmpl_op_binary(x->run, '%', value, *args->slot[0]);

    return bt_tmpl_run_ok(x->run) && (bt_tmpl_v_as_float(rest) == 0.0);
}

TEST(is_compared)
{
    return bt_tmpl_op_holds(x->run, (uint8_t)test->how, value, *args->slot[0]);
}

TEST(is_in)
{
    return bt_tmpl_v_contains(x->run, *args->slot[0], value);
}

/* True for values that have one copy in Python too. */
TEST(is_same)
{
    const bt_tmpl_value_t other = *args->slot[0];

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
    const bt_tmpl_text_t *changed =
        (text != NULL) ? bt_tmpl_text_change(x->run, text, test->how) : NULL;
    bool cased = false;

    for (uint32_t at = 0; (changed != NULL) && (at < text->len);) {
        uint32_t cp;

        at += bt_tmpl_text_decode(text, at, &cp);
        cased = cased || bt_tmpl_cp_is_cased(cp);
    }
    return (changed != NULL) && cased && bt_tmpl_text_equal(text, changed);
}

TEST(is_known)
{
    if (value.kind != BT_V_TEXT) {
        return false;
    }
    return (test->how == 0) ? bt_tmpl_filter_find(value.u.text) != NULL
                            : bt_tmpl_test_find(value.u.text) != NULL;
}

static const bt_tmpl_test_t tests[] = {
    {"defined", is_kind, ~KIND(UNDEFINED), false},
    {"undefined", is_kind, KIND(UNDEFINED), false},
    {"none", is_kind, KIND(NONE), false},
    {"string", is_kind, KIND(TEXT), false},
    {"float", is_kind, KIND(FLOAT), false},
    {"boolean", is_kind, KIND(BOOL), false},
    {"mapping", is_kind, KIND(DICT), false},
    {"number", is_kind, INTEGERS | KIND(BOOL) | KIND(FLOAT), false},
    {"integer", is_kind, INTEGERS, false},
    {"sequence", is_sequence, WITH_ITEMS, false},
    {"iterable", is_kind, WITH_ITEMS | KIND(SEQ) | KIND(LOOP), false},
    {"callable", is_kind,
     KIND(MACRO) | KIND(BUILTIN) | KIND(METHOD) | KIND(LOOP) | KIND(STATE) |
         KIND(UNDEFINED),
     false},
    {"true", is_truth, 1, false},
    {"false", is_truth, 0, false},
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
    {"lower", is_case, BT_CASE_LOWER, false},
    {"upper", is_case, BT_CASE_UPPER, false},
    {"filter", is_known, 0, false},
    {"test", is_known, 1, false},
    {"escaped", is_kind, 0, false}, /* nothing is: nothing escapes by itself */
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
    static const bt_tmpl_params_t one = BT_TMPL_PARAMS(1, "other");
    static const bt_tmpl_params_t none = BT_TMPL_NO_PARAMS;

    return bt_tmpl_args_bind(x->run, args, test->has_arg ? &one : &none,
                             test->name) &&
           test->fn(x, test, value, args) && bt_tmpl_run_ok(x->run);
}
