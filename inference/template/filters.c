/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/exec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/template/parser.h"
#include "inference/template/text.h"

#define FILTER(name) static BT_TMPL_FILTER(name)

static bt_tmpl_value_t wrong_kind(bt_tmpl_exec_t *x, const char *filter,
                                  bt_tmpl_value_t value)
{
    if (value.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, value);
    }
    return BT_TMPL_REFUSE(x->run, "%s is not possible for %s", filter,
                          bt_tmpl_v_kind_name(value));
}

/* ---- texts ---- */

FILTER(change_case)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);

    return bt_tmpl_v_text((text != NULL)
                              ? bt_tmpl_text_change(x->run, text, (unsigned)how)
                              : NULL);
}

FILTER(escape)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);

    return bt_tmpl_v_text((text != NULL) ? bt_tmpl_text_escape(x->run, text)
                                         : NULL);
}

FILTER(string)
{
    return bt_tmpl_v_text(bt_tmpl_v_str(x->run, value));
}

FILTER(trim)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);
    const bt_tmpl_text_t *chars = NULL;

    if ((args->slot[0] != NULL) && (args->slot[0]->kind == BT_V_TEXT)) {
        chars = args->slot[0]->u.text;
    } else if ((args->slot[0] != NULL) && (args->slot[0]->kind != BT_V_NONE)) {
        return wrong_kind(x, "trim", *args->slot[0]);
    }
    return (text != NULL)
               ? bt_tmpl_v_text(bt_tmpl_text_strip(
                     x->run, text, chars, BT_STRIP_LEFT | BT_STRIP_RIGHT))
               : bt_tmpl_v_failed();
}

FILTER(replace)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);
    const bt_tmpl_text_t *old = bt_tmpl_v_str(x->run, *args->slot[0]);
    const bt_tmpl_text_t *new_text = bt_tmpl_v_str(x->run, *args->slot[1]);
    const bool all =
        (args->slot[2] == NULL) || (args->slot[2]->kind == BT_V_NONE);
    const int64_t count = all ? -1 : bt_tmpl_args_int(x->run, args, 2, -1);

    if (!bt_tmpl_run_ok(x->run) || (text == NULL) || (old == NULL) ||
        (new_text == NULL)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_v_text(
        bt_tmpl_text_replace(x->run, text, old, new_text, count));
}

static const bt_tmpl_text_t *spaces(bt_tmpl_run_t *run, int64_t n)
{
    static const bt_tmpl_text_t space = {.data = " ", .len = 1};

    return bt_tmpl_text_pad(run, &bt_tmpl_text_empty, n, &space, 1);
}

FILTER(indent)
{
    const bt_tmpl_text_t *by = NULL;

    if (value.kind != BT_V_TEXT) {
        return wrong_kind(x, "indent", value);
    }
    if ((args->slot[0] != NULL) && (args->slot[0]->kind == BT_V_TEXT)) {
        by = args->slot[0]->u.text;
    } else {
        by = spaces(x->run, bt_tmpl_args_int(x->run, args, 0, 4));
    }
    return (by != NULL) ? bt_tmpl_v_text(bt_tmpl_text_indent(
                              x->run, value.u.text, by,
                              bt_tmpl_args_truth(args, 1, false),
                              bt_tmpl_args_truth(args, 2, false)))
                        : bt_tmpl_v_failed();
}

FILTER(center)
{
    static const bt_tmpl_text_t space = {.data = " ", .len = 1};
    const bt_tmpl_text_t *text = bt_tmpl_v_str(x->run, value);
    const int64_t width = bt_tmpl_args_int(x->run, args, 0, 80);

    return (bt_tmpl_run_ok(x->run) && (text != NULL))
               ? bt_tmpl_v_text(
                     bt_tmpl_text_pad(x->run, text, width, &space, 0))
               : bt_tmpl_v_failed();
}

FILTER(truncate)
{
    static const bt_tmpl_text_t dots = {.data = "...", .len = 3};
    static const bt_tmpl_text_t space = {.data = " ", .len = 1};
    const int64_t length = bt_tmpl_args_int(x->run, args, 0, 255);
    const bt_tmpl_text_t *end =
        ((args->slot[2] != NULL) && (args->slot[2]->kind == BT_V_TEXT))
            ? args->slot[2]->u.text
            : &dots;
    const int64_t leeway = bt_tmpl_args_int(x->run, args, 3, 5);
    const bt_tmpl_text_t *text = value.u.text;
    int64_t n = 0;
    uint32_t to;
    bt_tmpl_build_t build;

    if (!bt_tmpl_run_ok(x->run) || !bt_tmpl_v_length(x->run, value, &n)) {
        return bt_tmpl_v_failed();
    }
    if ((length < bt_tmpl_text_chars(end)) || (leeway < 0)) {
        return BT_TMPL_REFUSE(x->run,
                              "truncate: the length is less than the end's");
    }
    if (n <= length + leeway) {
        return value; /* also what is no text, but short */
    }
    if (value.kind != BT_V_TEXT) {
        return wrong_kind(x, "truncate", value);
    }
    to = bt_tmpl_text_char_at(text, (uint32_t)length - bt_tmpl_text_chars(end));
    if (!bt_tmpl_args_truth(args, 1, false)) {
        const uint32_t at = bt_tmpl_text_rfind(text, &space, 0, to);

        to = (at != UINT32_MAX) ? at : to;
    }
    bt_tmpl_build_init(&build, x->run);
    bt_tmpl_build_slice(&build, text, 0, to);
    bt_tmpl_build_text(&build, end);
    return bt_tmpl_build_value(&build);
}

/* ---- tojson ---- */

static const bt_tmpl_text_t *separator(bt_tmpl_exec_t *x,
                                       const bt_tmpl_args_t *args,
                                       unsigned which,
                                       const bt_tmpl_text_t *otherwise)
{
    const bt_tmpl_value_t *given = args->slot[2];
    const bt_tmpl_seq_t *seq;

    if ((given == NULL) || (given->kind == BT_V_NONE)) {
        return otherwise;
    }
    seq = (given->kind == BT_V_SEQ) ? given->u.seq : NULL;
    if ((seq == NULL) || (seq->n != 2) ||
        (seq->items[which].kind != BT_V_TEXT)) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "tojson: separators are two texts");
        return otherwise;
    }
    return seq->items[which].u.text;
}

FILTER(tojson)
{
    static const bt_tmpl_text_t comma_space = {.data = ", ", .len = 2};
    static const bt_tmpl_text_t comma = {.data = ",", .len = 1};
    static const bt_tmpl_text_t colon = {.data = ": ", .len = 2};
    const bt_tmpl_value_t *indent = args->slot[1];
    bt_tmpl_json_style_t style = {.ascii = bt_tmpl_args_truth(args, 0, false),
                                  .sorted = bt_tmpl_args_truth(args, 3, false)};
    bt_tmpl_build_t build;

    if ((indent != NULL) && (indent->kind == BT_V_TEXT)) {
        style.indent = indent->u.text;
    } else if ((indent != NULL) && (indent->kind != BT_V_NONE)) {
        style.indent = spaces(x->run, bt_tmpl_args_int(x->run, args, 1, 0));
    }
    style.item =
        separator(x, args, 0, (style.indent != NULL) ? &comma : &comma_space);
    style.key = separator(x, args, 1, &colon);
    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    bt_tmpl_print_json(&build, &style, value);
    return bt_tmpl_build_value(&build);
}

/* ---- numbers ---- */

/* A number in Python's spelling: white space around, '_' between digits.
 * @return bytes written, 0: it is none that fits */
static size_t number_text(const bt_tmpl_text_t *text, char *out,
                          size_t out_bytes)
{
    size_t n = 0;
    uint32_t from = 0;
    uint32_t to = text->len;
    uint32_t cp;
    uint32_t len;

    while ((from < to) && (len = bt_tmpl_text_decode(text, from, &cp),
                           bt_tmpl_cp_is_space(cp))) {
        from += len;
    }
    while ((from < to) && (len = bt_tmpl_text_before(text, to, &cp),
                           bt_tmpl_cp_is_space(cp))) {
        to -= len;
    }
    for (uint32_t i = from; i < to; i++) {
        const char c = text->data[i];

        if (c == '_') {
            if ((i == from) || (i + 1 == to) || (text->data[i - 1] < '0') ||
                (text->data[i - 1] > '9') || (text->data[i + 1] < '0') ||
                (text->data[i + 1] > '9')) {
                return 0;
            }
            continue;
        }
        if ((n + 1 == out_bytes) || (c == '\0') || (c < 0)) {
            return 0;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return n;
}

static bool text_to_float(const bt_tmpl_text_t *text, double *f_p)
{
    char copy[400];
    char *end;

    if ((number_text(text, copy, sizeof(copy)) == 0) ||
        (strpbrk(copy, " \t\n\r\v\f") != NULL) ||
        (strpbrk(copy, "xXpP(") != NULL)) {
        return false;
    }
    *f_p = strtod(copy, &end);
    return *end == '\0';
}

static bool text_to_int(const bt_tmpl_text_t *text, int base, int64_t *i_p)
{
    char copy[400];
    const char *digits = copy;
    char *end;

    if (number_text(text, copy, sizeof(copy)) == 0) {
        return false;
    }
    digits += ((copy[0] == '-') || (copy[0] == '+')) ? 1 : 0;
    if ((digits[0] == '0') && ((digits[1] | 0x20) == 'b') && (base == 2)) {
        digits += 2; /* strtoll() knows 0x alone */
    } else if ((digits[0] == '0') && ((digits[1] | 0x20) == 'o') &&
               (base == 8)) {
        digits += 2;
    } else if (digits[0] == '+' || digits[0] == '-') {
        return false;
    }
    if (strpbrk(digits, " \t\n\r\v\f+-") != NULL) {
        return false;
    }
    errno = 0;
    *i_p = strtoll(digits, &end, base);
    if ((*end != '\0') || (end == digits) || (errno == ERANGE)) {
        return false;
    }
    *i_p = (copy[0] == '-') ? -*i_p : *i_p;
    return true;
}

static bool float_to_int(double f, int64_t *i_p)
{
    if (!(f > -9.2e18) || !(f < 9.2e18)) {
        return false;
    }
    *i_p = (int64_t)f;
    return true;
}

static bool can_convert(bt_tmpl_exec_t *x, bt_tmpl_value_t value)
{
    if (value.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, value);
    }
    return (value.kind != BT_V_TEXT)
               ? bt_tmpl_run_ok(x->run)
               : bt_tmpl_run_step_bytes(x->run, value.u.text->len);
}

FILTER(to_int)
{
    const int64_t base = bt_tmpl_args_int(x->run, args, 1, 10);
    int64_t i = 0;
    double f;
    bt_tmpl_value_t made;

    if (!can_convert(x, value)) {
        return bt_tmpl_v_failed();
    }
    if ((base < 2) || (base > 36)) {
        return BT_TMPL_REFUSE(x->run, "int: base is 2 to 36");
    }
    if (value.kind == BT_V_BIG_INT) {
        return value;
    }
    if (bt_tmpl_v_is_integer(value)) {
        i = bt_tmpl_v_as_int(value);
    } else if (value.kind == BT_V_FLOAT) {
        if (!float_to_int(value.u.f, &i)) {
            return (args->slot[0] != NULL) ? *args->slot[0] : bt_tmpl_v_int(0);
        }
    } else if (!((value.kind == BT_V_TEXT) &&
                 (text_to_int(value.u.text, (int)base, &i) ||
                  (text_to_float(value.u.text, &f) && float_to_int(f, &i))))) {
        return (args->slot[0] != NULL) ? *args->slot[0] : bt_tmpl_v_int(0);
    }
    made = bt_tmpl_v_int(i);
    made.quoted = bt_tmpl_v_quoted(value);
    return made;
}

FILTER(to_float)
{
    double f = 0.0;
    bt_tmpl_value_t made;

    if (!can_convert(x, value)) {
        return bt_tmpl_v_failed();
    }
    if (bt_tmpl_v_is_number(value)) {
        f = bt_tmpl_v_as_float(value);
    } else if (!(((value.kind == BT_V_TEXT) || (value.kind == BT_V_BIG_INT)) &&
                 text_to_float(value.u.text, &f))) {
        return (args->slot[0] != NULL) ? *args->slot[0] : bt_tmpl_v_float(0.0);
    }
    made = bt_tmpl_v_float(f);
    made.quoted = bt_tmpl_v_quoted(value);
    return made;
}

FILTER(absolute)
{
    bt_tmpl_value_t zero = bt_tmpl_v_int(0);

    if (!bt_tmpl_v_is_number(value)) {
        return wrong_kind(x, "abs", value);
    }
    if (value.kind == BT_V_FLOAT) {
        value.u.f = fabs(value.u.f);
        return value;
    }
    zero.quoted = value.quoted;
    return bt_tmpl_op_binary(x->run, (bt_tmpl_v_as_int(value) < 0) ? '-' : '+',
                             zero, value);
}

/* round(): printf rounds the number itself, ties to even, as Python does. */
static double round_to(double f, int64_t precision)
{
    char text[400];

    if (!isfinite(f) || (precision > 300)) {
        return f;
    }
    if (precision < 0) {
        const double scale = pow(10.0, (double)-precision);

        return nearbyint(f / scale) * scale;
    }
    snprintf(text, sizeof(text), "%.*f", (precision > 60) ? 60 : (int)precision,
             f);
    return strtod(text, NULL);
}

FILTER(round_filter)
{
    const int64_t precision = bt_tmpl_args_int(x->run, args, 0, 0);
    const bt_tmpl_value_t *method = args->slot[1];
    const bool common =
        (method == NULL) || bt_tmpl_v_text_is(*method, "common");
    double scale;
    double f;
    bt_tmpl_value_t made;

    if (!bt_tmpl_v_is_number(value)) {
        return wrong_kind(x, "round", value);
    }
    if (common && bt_tmpl_v_is_integer(value) && (precision >= 0)) {
        made = bt_tmpl_v_int(bt_tmpl_v_as_int(value));
        made.quoted = value.quoted;
        return made;
    }
    f = bt_tmpl_v_as_float(value);
    scale = pow(10.0, (double)precision);
    if (common) {
        f = round_to(f, precision);
    } else if (bt_tmpl_v_text_is(*method, "ceil")) {
        f = ceil(f * scale) / scale;
    } else if (bt_tmpl_v_text_is(*method, "floor")) {
        f = floor(f * scale) / scale;
    } else {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "round: the method is common, ceil or floor");
    }
    made = (common && bt_tmpl_v_is_integer(value)) ? bt_tmpl_v_int((int64_t)f)
                                                   : bt_tmpl_v_float(f);
    made.quoted = value.quoted;
    return made;
}

/* ---- anything ---- */

FILTER(default_filter)
{
    static const bt_tmpl_value_t nothing = {.kind = BT_V_TEXT,
                                            .u.text = &bt_tmpl_text_empty};

    if ((value.kind == BT_V_UNDEFINED) ||
        (bt_tmpl_args_truth(args, 1, false) && !bt_tmpl_v_truth(value))) {
        return (args->slot[0] != NULL) ? *args->slot[0] : nothing;
    }
    return value;
}

FILTER(length)
{
    int64_t n = 0;

    return bt_tmpl_v_length(x->run, value, &n) ? bt_tmpl_v_int(n)
                                               : bt_tmpl_v_failed();
}

FILTER(attr)
{
    if (args->slot[0]->kind != BT_V_TEXT) {
        return wrong_kind(x, "attr", *args->slot[0]);
    }
    return (value.kind == BT_V_DICT) /* attributes are not its elements */
               ? bt_tmpl_method_find(x, value, args->slot[0]->u.text)
               : bt_tmpl_eval_attr(x, value, args->slot[0]->u.text);
}

static const bt_tmpl_filter_t filters[] = {
    {"abs", absolute, 0, BT_TMPL_NO_PARAMS},
    {"attr", attr, 0, BT_TMPL_PARAMS(1, "name")},
    {"batch", bt_tmpl_filter_batch, 0,
     BT_TMPL_PARAMS(1, "linecount", "fill_with")},
    {"capitalize", change_case, BT_CASE_CAPITALIZE, BT_TMPL_NO_PARAMS},
    {"center", center, 0, BT_TMPL_PARAMS(0, "width")},
    {"count", length, 0, BT_TMPL_NO_PARAMS},
    {"d", default_filter, 0, BT_TMPL_PARAMS(0, "default_value", "boolean")},
    {"default", default_filter, 0,
     BT_TMPL_PARAMS(0, "default_value", "boolean")},
    {"dictsort", bt_tmpl_filter_dictsort, 0,
     BT_TMPL_PARAMS(0, "case_sensitive", "by", "reverse")},
    {"e", escape, 0, BT_TMPL_NO_PARAMS},
    {"escape", escape, 0, BT_TMPL_NO_PARAMS},
    {"first", bt_tmpl_filter_end, 0, BT_TMPL_NO_PARAMS},
    {"float", to_float, 0, BT_TMPL_PARAMS(0, "default")},
    {"indent", indent, 0, BT_TMPL_PARAMS(0, "width", "first", "blank")},
    {"int", to_int, 0, BT_TMPL_PARAMS(0, "default", "base")},
    {"items", bt_tmpl_filter_items, 0, BT_TMPL_NO_PARAMS},
    {"join", bt_tmpl_filter_join, 0, BT_TMPL_PARAMS(0, "d", "attribute")},
    {"last", bt_tmpl_filter_end, BT_FILTER_LAST, BT_TMPL_NO_PARAMS},
    {"length", length, 0, BT_TMPL_NO_PARAMS},
    {"list", bt_tmpl_filter_list, 0, BT_TMPL_NO_PARAMS},
    {"lower", change_case, BT_CASE_LOWER, BT_TMPL_NO_PARAMS},
    {"map", bt_tmpl_filter_map, 0, {.any = true}},
    {"max", bt_tmpl_filter_extreme, 1,
     BT_TMPL_PARAMS(0, "case_sensitive", "attribute")},
    {"min", bt_tmpl_filter_extreme, -1,
     BT_TMPL_PARAMS(0, "case_sensitive", "attribute")},
    {"reject", bt_tmpl_filter_select, 0, {.any = true}},
    {"rejectattr", bt_tmpl_filter_select, BT_FILTER_BY_ATTR, {.any = true}},
    {"replace", replace, 0, BT_TMPL_PARAMS(2, "old", "new", "count")},
    {"reverse", bt_tmpl_filter_reverse, 0, BT_TMPL_NO_PARAMS},
    {"round", round_filter, 0, BT_TMPL_PARAMS(0, "precision", "method")},
    {"safe", string, 0, BT_TMPL_NO_PARAMS},
    {"select", bt_tmpl_filter_select, BT_FILTER_MATCHES, {.any = true}},
    {"selectattr",
     bt_tmpl_filter_select,
     BT_FILTER_MATCHES | BT_FILTER_BY_ATTR,
     {.any = true}},
    {"slice", bt_tmpl_filter_slice, 0,
     BT_TMPL_PARAMS(1, "slices", "fill_with")},
    {"sort", bt_tmpl_filter_sort, 0,
     BT_TMPL_PARAMS(0, "reverse", "case_sensitive", "attribute")},
    {"string", string, 0, BT_TMPL_NO_PARAMS},
    {"sum", bt_tmpl_filter_sum, 0, BT_TMPL_PARAMS(0, "attribute", "start")},
    {"title", change_case, BT_CASE_WORDS, BT_TMPL_NO_PARAMS},
    {"tojson", tojson, 0,
     BT_TMPL_PARAMS(0, "ensure_ascii", "indent", "separators", "sort_keys")},
    {"trim", trim, 0, BT_TMPL_PARAMS(0, "chars")},
    {"truncate", truncate, 0,
     BT_TMPL_PARAMS(0, "length", "killwords", "end", "leeway")},
    {"unique", bt_tmpl_filter_unique, 0,
     BT_TMPL_PARAMS(0, "case_sensitive", "attribute")},
    {"upper", change_case, BT_CASE_UPPER, BT_TMPL_NO_PARAMS},
};

const bt_tmpl_filter_t *bt_tmpl_filter_find(const bt_tmpl_text_t *name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(filters); i++) {
        if (bt_tmpl_text_is(name, filters[i].name)) {
            return &filters[i];
        }
    }
    return NULL;
}

bt_tmpl_value_t bt_tmpl_filter_call(bt_tmpl_exec_t *x,
                                    const bt_tmpl_filter_t *filter,
                                    bt_tmpl_value_t value, bt_tmpl_args_t *args)
{
    if ((value.kind == BT_V_UNDEFINED) && (value.sub == BT_UNDEF_UNSAFE)) {
        bt_tmpl_v_fail_undefined(x->run, value);
    }
    if (!bt_tmpl_run_ok(x->run) ||
        !bt_tmpl_args_bind(x->run, args, &filter->params, filter->name)) {
        return bt_tmpl_v_failed();
    }
    return filter->fn(x, value, args, filter->how);
}
