/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and slices, as Python has them. */
#include <math.h>
#include <string.h>

#include "inference/template/exec.h"
#include "inference/template/parser.h"

static bt_tmpl_value_t wrong_kinds(bt_tmpl_run_t *run, const char *op,
                                   bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    return BT_TMPL_REFUSE(run, "'%s' is not possible between %s and %s", op,
                          bt_tmpl_v_kind_name(a), bt_tmpl_v_kind_name(b));
}

static bt_tmpl_value_t too_large(bt_tmpl_run_t *run)
{
    bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED, "an integer of over 64 bits");
    return bt_tmpl_v_failed();
}

static bt_tmpl_value_t by_zero(bt_tmpl_run_t *run)
{
    return BT_TMPL_REFUSE(run, "division by zero");
}

/* ---- integers ---- */

static bt_tmpl_value_t floor_divide(bt_tmpl_run_t *run, int64_t a, int64_t b,
                                    bool rest)
{
    int64_t quotient;
    int64_t remainder;

    if (b == 0) {
        return by_zero(run);
    }
    if (b == -1) {
        return (a == INT64_MIN) ? too_large(run) : bt_tmpl_v_int(rest ? 0 : -a);
    }
    quotient = a / b;
    remainder = a % b;
    if ((remainder != 0) && ((remainder < 0) != (b < 0))) {
        quotient--;
        remainder += b;
    }
    return bt_tmpl_v_int(rest ? remainder : quotient);
}

static bt_tmpl_value_t power(bt_tmpl_run_t *run, int64_t a, int64_t b)
{
    int64_t made = 1;

    if (b < 0) {
        return (a == 0) ? by_zero(run)
                        : bt_tmpl_v_float(pow((double)a, (double)b));
    }
    if ((a == 0) || (a == 1) || (a == -1)) {
        return bt_tmpl_v_int((b == 0)    ? 1
                             : (a == -1) ? ((b % 2 == 0) ? 1 : -1)
                                         : a);
    }
    for (int64_t i = 0; i < b; i++) { /* 63 times at most */
        if (__builtin_mul_overflow(made, a, &made)) {
            return too_large(run);
        }
    }
    return bt_tmpl_v_int(made);
}

static bt_tmpl_value_t on_integers(bt_tmpl_run_t *run, uint8_t op, int64_t a,
                                   int64_t b)
{
    int64_t made = 0;
    bool over = false;

    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &made);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &made);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &made);
        break;
    case '/':
        return (b == 0) ? by_zero(run) : bt_tmpl_v_float((double)a / (double)b);
    case BT_OP_FLOORDIV:
        return floor_divide(run, a, b, false);
    case '%':
        return floor_divide(run, a, b, true);
    default:
        return power(run, a, b);
    }
    return over ? too_large(run) : bt_tmpl_v_int(made);
}

/* ---- floats ---- */

static double float_rest(double a, double b)
{
    double rest = fmod(a, b);

    if (rest != 0.0) {
        return ((rest < 0) != (b < 0)) ? rest + b : rest;
    }
    return copysign(0.0, b);
}

/* Python's float_floor_div: from the remainder, so that both agree. */
static double float_floor(double a, double b)
{
    double quotient = (a - fmod(a, b)) / b;
    double floored;

    if ((fmod(a, b) != 0.0) && ((fmod(a, b) < 0) != (b < 0))) {
        quotient -= 1.0;
    }
    if (quotient == 0.0) {
        return copysign(0.0, a / b);
    }
    floored = floor(quotient);
    return (quotient - floored > 0.5) ? floored + 1.0 : floored;
}

static bt_tmpl_value_t on_floats(bt_tmpl_run_t *run, uint8_t op, double a,
                                 double b)
{
    double made;

    switch (op) {
    case '+':
        return bt_tmpl_v_float(a + b);
    case '-':
        return bt_tmpl_v_float(a - b);
    case '*':
        return bt_tmpl_v_float(a * b);
    case BT_OP_POW:
        made = pow(a, b);
        if (isnan(made) && !isnan(a) && !isnan(b)) {
            bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED, "a complex number");
        } else if ((a == 0.0) && (b < 0.0)) {
            return by_zero(run);
        } else if (isinf(made) && isfinite(a) && isfinite(b)) {
            bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "a number too large");
        }
        return bt_tmpl_v_float(made);
    default:
        break;
    }
    if (b == 0.0) {
        return by_zero(run);
    }
    return bt_tmpl_v_float((op == '/')              ? a / b
                           : (op == BT_OP_FLOORDIV) ? float_floor(a, b)
                                                    : float_rest(a, b));
}

/* ---- texts and lists ---- */

static bt_tmpl_value_t repeat_text(bt_tmpl_run_t *run,
                                   const bt_tmpl_text_t *text, int64_t n)
{
    bt_tmpl_build_t build;

    bt_tmpl_build_init(&build, run);
    for (int64_t i = 0; (i < n) && (text->len > 0) && bt_tmpl_run_step(run, 1);
         i++) {
        bt_tmpl_build_text(&build, text);
    }
    return bt_tmpl_build_value(&build);
}

static bt_tmpl_value_t add_seqs(bt_tmpl_run_t *run, bt_tmpl_value_t a,
                                bt_tmpl_value_t b, int64_t n)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, 0);
    const bt_tmpl_value_t from[2] = {a, b};

    if (seq == NULL) {
        return bt_tmpl_v_failed();
    }
    for (int k = 0; k < ((b.kind == BT_V_SEQ) ? 2 : 1); k++) {
        const bt_tmpl_seq_t *items = from[k].u.seq;

        for (int64_t i = 0; (i < n) && (items->n > 0); i++) {
            for (uint32_t at = 0; at < items->n; at++) {
                if (!bt_tmpl_seq_add(run, seq, items->items[at])) {
                    return bt_tmpl_v_failed();
                }
            }
        }
        seq->quoted |= items->quoted;
    }
    return bt_tmpl_v_seq((bt_tmpl_seq_kind_t)a.sub, seq);
}

static bool is_list(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_SEQ) && (value.sub <= BT_SEQ_TUPLE);
}

static const char *op_text(uint8_t op, char text[3])
{
    text[0] = (char)op;
    text[1] = '\0';
    if (op >= 128) {
        return (op == BT_OP_POW) ? "**" : "//";
    }
    return text;
}

static bt_tmpl_value_t on_numbers(bt_tmpl_run_t *run, uint8_t op,
                                  bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    bt_tmpl_value_t made =
        (bt_tmpl_v_is_integer(a) && bt_tmpl_v_is_integer(b))
            ? on_integers(run, op, bt_tmpl_v_as_int(a), bt_tmpl_v_as_int(b))
            : on_floats(run, op, bt_tmpl_v_as_float(a), bt_tmpl_v_as_float(b));

    made.quoted = a.quoted || b.quoted;
    return made;
}

/* text + text, list + list. */
static bt_tmpl_value_t join_two(bt_tmpl_run_t *run, bt_tmpl_value_t a,
                                bt_tmpl_value_t b)
{
    const bt_tmpl_text_t *left = bt_tmpl_v_as_text(a);
    const bt_tmpl_text_t *right = bt_tmpl_v_as_text(b);

    if ((left != NULL) && (right != NULL)) {
        return bt_tmpl_v_text(bt_tmpl_text_join(run, left, right));
    }
    if (is_list(a) && is_list(b) && (a.sub == b.sub)) {
        return add_seqs(run, a, b, 1);
    }
    return wrong_kinds(run, "+", a, b);
}

/* text * n, n * list. */
static bt_tmpl_value_t repeat(bt_tmpl_run_t *run, bt_tmpl_value_t a,
                              bt_tmpl_value_t b)
{
    const bt_tmpl_value_t what = bt_tmpl_v_is_integer(a) ? b : a;
    const bt_tmpl_value_t times = bt_tmpl_v_is_integer(a) ? a : b;

    if (bt_tmpl_v_is_integer(times) && (what.kind == BT_V_TEXT)) {
        return repeat_text(run, what.u.text, bt_tmpl_v_as_int(times));
    }
    if (bt_tmpl_v_is_integer(times) && is_list(what)) {
        return add_seqs(run, what, times, bt_tmpl_v_as_int(times));
    }
    return wrong_kinds(run, "*", a, b);
}

bt_tmpl_value_t bt_tmpl_op_binary(bt_tmpl_run_t *run, uint8_t op,
                                  bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    char text[3];

    if (bt_tmpl_v_is_number(a) && bt_tmpl_v_is_number(b)) {
        return on_numbers(run, op, a, b);
    }
    if ((op == '%') && (a.kind == BT_V_TEXT)) {
        bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED,
                         "formatting with %% is not supported");
        return bt_tmpl_v_failed();
    }
    if ((a.kind == BT_V_UNDEFINED) || (b.kind == BT_V_UNDEFINED)) {
        bt_tmpl_v_fail_undefined(run, (a.kind == BT_V_UNDEFINED) ? a : b);
        return bt_tmpl_v_failed();
    }
    if (op == '+') {
        return join_two(run, a, b);
    }
    return (op == '*') ? repeat(run, a, b)
                       : wrong_kinds(run, op_text(op, text), a, b);
}

bool bt_tmpl_op_holds(bt_tmpl_run_t *run, uint8_t op, bt_tmpl_value_t a,
                      bt_tmpl_value_t b)
{
    bool holds;

    switch (op) {
    case BT_OP_EQ:
        holds = bt_tmpl_v_equal(run, a, b);
        break;
    case BT_OP_NE:
        holds = !bt_tmpl_v_equal(run, a, b);
        break;
    case BT_CMP_IN:
        holds = bt_tmpl_v_contains(run, b, a);
        break;
    case BT_CMP_NOT_IN:
        holds = !bt_tmpl_v_contains(run, b, a);
        break;
    case '<':
        holds = bt_tmpl_v_compare(run, a, b, "<") < 0;
        break;
    case '>':
        holds = bt_tmpl_v_compare(run, a, b, ">") > 0;
        break;
    case BT_OP_LE:
        holds = bt_tmpl_v_compare(run, a, b, "<=") <= 0;
        break;
    default:
        holds = bt_tmpl_v_compare(run, a, b, ">=") >= 0;
    }
    return holds && bt_tmpl_run_ok(run);
}

bt_tmpl_value_t bt_tmpl_op_negate(bt_tmpl_run_t *run, bt_tmpl_value_t a)
{
    bt_tmpl_value_t made = a;

    if (a.kind == BT_V_FLOAT) {
        made.u.f = -a.u.f;
    } else if (bt_tmpl_v_is_integer(a)) {
        if (bt_tmpl_v_as_int(a) == INT64_MIN) {
            return too_large(run);
        }
        made = bt_tmpl_v_int(-bt_tmpl_v_as_int(a));
        made.quoted = a.quoted;
    } else if (a.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(run, a);
    } else {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "- is not possible for %s",
                         bt_tmpl_v_kind_name(a));
    }
    return made;
}

/* ---- slices ---- */

/* Python's PySlice_AdjustIndices(). @return how many items, from first on */
static int64_t adjust(int64_t n, int64_t step, const bt_tmpl_value_t part[3],
                      int64_t *first_p)
{
    int64_t ends[2];

    for (int i = 0; i < 2; i++) {
        const bool given = part[i].kind != BT_V_NONE;
        int64_t at = given ? bt_tmpl_v_as_int(part[i])
                           : ((i == 0) == (step > 0) ? 0 : n);

        if (!given && (step < 0)) {
            at = (i == 0) ? n - 1 : -1;
        } else if (at < 0) {
            at = (at < -n) ? -1 : at + n;
            at = (at < 0) ? ((step < 0) ? -1 : 0) : at;
        } else if (at >= n) {
            at = (step < 0) ? n - 1 : n;
        }
        ends[i] = at;
    }
    *first_p = ends[0];
    if (step < 0) {
        return (ends[1] < ends[0]) ? (ends[0] - ends[1] - 1) / -step + 1 : 0;
    }
    return (ends[0] < ends[1]) ? (ends[1] - ends[0] - 1) / step + 1 : 0;
}

static bt_tmpl_value_t slice_text(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text, int64_t first,
                                  int64_t n, int64_t step, bool is_ascii)
{
    bt_tmpl_build_t build;
    uint32_t *starts = NULL;
    uint32_t chars = 0;

    if (step == 1) {
        const uint32_t from = is_ascii
                                  ? (uint32_t)first
                                  : bt_tmpl_text_char_at(text, (uint32_t)first);
        const bt_tmpl_text_t rest = {.data = text->data + from,
                                     .len = text->len - from};
        const uint32_t to =
            from +
            (is_ascii ? (uint32_t)n : bt_tmpl_text_char_at(&rest, (uint32_t)n));

        return bt_tmpl_v_text((n > 0) ? bt_tmpl_text_slice(run, text, from, to)
                                      : &bt_tmpl_text_empty);
    }
    bt_tmpl_build_init(&build, run);
    starts = bt_tmpl_run_take(run, (size_t)text->len + 1, sizeof(*starts));
    if (starts == NULL) {
        return bt_tmpl_v_failed();
    }
    for (uint32_t at = 0; at < text->len; at++) {
        if (((uint8_t)text->data[at] & 0xC0) != 0x80) {
            starts[chars++] = at;
        }
    }
    starts[chars] = text->len;
    for (int64_t i = 0; (i < n) && bt_tmpl_run_step(run, 1); i++) {
        const int64_t at = first + i * step;

        bt_tmpl_build_slice(&build, text, starts[at], starts[at + 1]);
    }
    return bt_tmpl_build_value(&build);
}

static bt_tmpl_value_t slice_seq(bt_tmpl_run_t *run, bt_tmpl_value_t of,
                                 int64_t first, int64_t n, int64_t step)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, (uint32_t)n);

    for (int64_t i = 0; (seq != NULL) && (i < n); i++) {
        if (!bt_tmpl_seq_add(run, seq, of.u.seq->items[first + i * step])) {
            return bt_tmpl_v_failed();
        }
    }
    if (seq == NULL) {
        return bt_tmpl_v_failed();
    }
    seq->quoted = of.u.seq->quoted;
    return bt_tmpl_v_seq((bt_tmpl_seq_kind_t)of.sub, seq);
}

/* Python raises for all of these, where a missing element is undefined. */
static bool can_slice(bt_tmpl_run_t *run, bt_tmpl_value_t of,
                      const bt_tmpl_value_t part[3])
{
    if (of.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(run, of);
    } else if ((of.kind != BT_V_TEXT) &&
               !((of.kind == BT_V_SEQ) && (of.sub <= BT_SEQ_RANGE))) {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "%s cannot be sliced",
                         bt_tmpl_v_kind_name(of));
    }
    for (int i = 0; i < 3; i++) {
        if ((part[i].kind != BT_V_NONE) && !bt_tmpl_v_is_integer(part[i])) {
            bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                             "a slice needs integers, not %s",
                             bt_tmpl_v_kind_name(part[i]));
        }
    }
    if (bt_tmpl_v_is_integer(part[2]) && (bt_tmpl_v_as_int(part[2]) == 0)) {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "a slice's step is zero");
    }
    return bt_tmpl_run_ok(run);
}

bt_tmpl_value_t bt_tmpl_op_slice(bt_tmpl_run_t *run, bt_tmpl_value_t of,
                                 const bt_tmpl_value_t part[3])
{
    int64_t step = 1;
    int64_t first;
    int64_t n;

    if (!can_slice(run, of, part)) {
        return bt_tmpl_v_failed();
    }
    if (part[2].kind != BT_V_NONE) {
        step = bt_tmpl_v_as_int(part[2]);
        step = (step < -INT32_MAX)  ? -INT32_MAX
               : (step > INT32_MAX) ? INT32_MAX
                                    : step;
    }
    if (!bt_tmpl_v_length(run, of, &n)) {
        return bt_tmpl_v_failed();
    }
    if (of.kind == BT_V_TEXT) {
        const bool is_ascii = n == of.u.text->len;

        n = adjust(n, step, part, &first);
        return slice_text(run, of.u.text, first, n, step, is_ascii);
    }
    n = adjust(n, step, part, &first);
    return slice_seq(run, of, first, n, step);
}
