/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of texts, lists, mappings and loops. Those that would change a value
 * are known and refused, as in jinja2's immutable sandbox. */
#include <string.h>

#include "common/base/status.h"
#include "inference/template/exec.h"
#include "inference/template/text.h"

typedef struct bt_tmpl_method_row row_t;

struct bt_tmpl_method_row {
    const char *name;
    bt_tmpl_value_t (*fn)(bt_tmpl_exec_t *x, const row_t *row,
                          bt_tmpl_value_t self, const bt_tmpl_args_t *args);
    bt_tmpl_params_t params;
    uint8_t of;   /* bt_tmpl_kind_t */
    unsigned how; /* what rows that share a function differ in */
};

#define METHOD(name)                                                    \
    static bt_tmpl_value_t name(                                        \
        bt_tmpl_exec_t *x __attribute__((unused)),                      \
        const row_t *row __attribute__((unused)), bt_tmpl_value_t self, \
        const bt_tmpl_args_t *args __attribute__((unused)))

/* A text, or NULL: none was given, or it is no text and the run has failed. */
static const bt_tmpl_text_t *text_in(bt_tmpl_exec_t *x,
                                     const bt_tmpl_args_t *args, unsigned slot)
{
    const bt_tmpl_value_t *value = args->slot[slot];

    if ((value == NULL) || (value->kind == BT_V_NONE)) {
        return NULL;
    }
    if (value->kind != BT_V_TEXT) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "a text is needed, not %s",
                         bt_tmpl_v_kind_name(*value));
        return NULL;
    }
    return value->u.text;
}

static const bt_tmpl_text_t *
text_needed(bt_tmpl_exec_t *x, const bt_tmpl_args_t *args, unsigned slot)
{
    const bt_tmpl_text_t *text = text_in(x, args, slot);

    if (text == NULL) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM, "a text is needed");
    }
    return text;
}

/* ---- of texts ---- */

METHOD(strip)
{
    const bt_tmpl_text_t *chars = text_in(x, args, 0);

    return bt_tmpl_run_ok(x->run) ? bt_tmpl_v_text(bt_tmpl_text_strip(
                                        x->run, self.u.text, chars, row->how))
                                  : bt_tmpl_v_failed();
}

METHOD(change_case)
{
    return bt_tmpl_v_text(bt_tmpl_text_change(x->run, self.u.text, row->how));
}

METHOD(split)
{
    const bt_tmpl_text_t *separator = text_in(x, args, 0);
    const int64_t most = bt_tmpl_args_int(x->run, args, 1, -1);

    return bt_tmpl_run_ok(x->run)
               ? bt_tmpl_v_seq(BT_SEQ_LIST, bt_tmpl_text_split(
                                                x->run, self.u.text, separator,
                                                most, row->how != 0))
               : bt_tmpl_v_failed();
}

METHOD(splitlines)
{
    return bt_tmpl_v_seq(
        BT_SEQ_LIST, bt_tmpl_text_lines(x->run, self.u.text,
                                        bt_tmpl_args_truth(args, 0, false)));
}

METHOD(replace)
{
    const bt_tmpl_text_t *old = text_needed(x, args, 0);
    const bt_tmpl_text_t *new_text = text_needed(x, args, 1);
    const int64_t count = bt_tmpl_args_int(x->run, args, 2, -1);

    return bt_tmpl_run_ok(x->run)
               ? bt_tmpl_v_text(bt_tmpl_text_replace(x->run, self.u.text, old,
                                                     new_text, count))
               : bt_tmpl_v_failed();
}

/* [from, to) in bytes of what the arguments say in characters, as for slices.
 * @return false: failed, or nothing can be there */
static bool range_of(bt_tmpl_exec_t *x, const bt_tmpl_text_t *text,
                     const bt_tmpl_args_t *args, uint32_t *from_p,
                     uint32_t *to_p)
{
    const int64_t n = bt_tmpl_text_chars(text);
    int64_t ends[2] = {0, n};

    for (unsigned i = 0; i < 2; i++) {
        const bt_tmpl_value_t *given = args->slot[i + 1];

        if ((given != NULL) && (given->kind != BT_V_NONE)) {
            int64_t at = bt_tmpl_args_int(x->run, args, i + 1, 0);

            at += (at < 0) ? n : 0;
            at = (at < 0) ? 0 : at;
            if ((i == 0) && (at > n)) {
                return false;
            }
            ends[i] = (at > n) ? n : at;
        }
    }
    if (!bt_tmpl_run_step_bytes(x->run, text->len) || (ends[0] > ends[1])) {
        return false;
    }
    *from_p = bt_tmpl_text_char_at(text, (uint32_t)ends[0]);
    *to_p = bt_tmpl_text_char_at(text, (uint32_t)ends[1]);
    return true;
}

static bool has_end(const bt_tmpl_text_t *text, uint32_t from, uint32_t to,
                    const bt_tmpl_text_t *end, bool at_start)
{
    if (end->len > to - from) {
        return false;
    }
    return (end->len == 0) ||
           (memcmp(text->data + (at_start ? from : to - end->len), end->data,
                   end->len) == 0);
}

/* startswith, endswith: a text or a tuple of them. */
METHOD(check_end)
{
    const bt_tmpl_value_t *what = args->slot[0];
    uint32_t from;
    uint32_t to;
    bool found = false;

    if (!range_of(x, self.u.text, args, &from, &to)) {
        return bt_tmpl_v_bool(false);
    }
    if ((what->kind == BT_V_SEQ) && (what->sub == BT_SEQ_TUPLE)) {
        for (uint32_t i = 0; i < what->u.seq->n; i++) {
            const bt_tmpl_value_t item = what->u.seq->items[i];

            if (item.kind != BT_V_TEXT) {
                return BT_TMPL_REFUSE(
                    x->run, "%s needs a text or a tuple of texts", row->name);
            }
            found = found ||
                    has_end(self.u.text, from, to, item.u.text, row->how == 0);
        }
        return bt_tmpl_v_bool(found);
    }
    if (what->kind != BT_V_TEXT) {
        return BT_TMPL_REFUSE(x->run,
                              "%s needs a text or a tuple of texts, not %s",
                              row->name, bt_tmpl_v_kind_name(*what));
    }
    return bt_tmpl_v_bool(
        has_end(self.u.text, from, to, what->u.text, row->how == 0));
}

#define FIND_LAST  1u
#define FIND_RAISE 2u
METHOD(find)
{
    const bt_tmpl_text_t *needle = text_needed(x, args, 0);
    uint32_t at = UINT32_MAX;
    uint32_t from;
    uint32_t to;
    bt_tmpl_text_t before = *self.u.text;

    if ((needle != NULL) && range_of(x, self.u.text, args, &from, &to)) {
        (void)bt_tmpl_run_step_bytes(x->run, (uint64_t)(to - from) *
                                                 (needle->len / 64 + 1));
        at = ((row->how & FIND_LAST) != 0)
                 ? bt_tmpl_text_rfind(self.u.text, needle, from, to)
                 : bt_tmpl_text_find(self.u.text, needle, from, to);
    }
    if (at != UINT32_MAX) {
        before.len = at;
        return bt_tmpl_v_int(bt_tmpl_text_chars(&before));
    }
    if ((row->how & FIND_RAISE) != 0) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM, "substring not found");
    }
    return bt_tmpl_v_int(-1);
}

METHOD(count_text)
{
    const bt_tmpl_text_t *needle = text_needed(x, args, 0);
    int64_t n = 0;
    uint32_t from;
    uint32_t to;

    if ((needle == NULL) || !range_of(x, self.u.text, args, &from, &to)) {
        return bt_tmpl_v_int(0);
    }
    if (needle->len == 0) {
        const bt_tmpl_text_t part = {.data = self.u.text->data + from,
                                     .len = to - from};

        return bt_tmpl_v_int((int64_t)bt_tmpl_text_chars(&part) + 1);
    }
    while (bt_tmpl_run_step(x->run, 1) &&
           ((from = bt_tmpl_text_find(self.u.text, needle, from, to)) !=
            UINT32_MAX)) {
        from += needle->len;
        n++;
    }
    return bt_tmpl_v_int(n);
}

METHOD(join)
{
    const bt_tmpl_seq_t *seq;
    uint32_t first;
    bt_tmpl_build_t build;

    if (!bt_tmpl_v_items(x->run, *args->slot[0], &seq, &first)) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    for (uint32_t i = first; (i < seq->n) && bt_tmpl_run_step(x->run, 1); i++) {
        if (seq->items[i].kind != BT_V_TEXT) {
            return BT_TMPL_REFUSE(x->run, "join() needs texts, not %s",
                                  bt_tmpl_v_kind_name(seq->items[i]));
        }
        if (i > first) {
            bt_tmpl_build_text(&build, self.u.text);
        }
        bt_tmpl_build_text(&build, seq->items[i].u.text);
    }
    return bt_tmpl_build_value(&build);
}

/* Is every character so, and is there one? */
enum { ALPHA, DIGIT, DECIMAL, NUMERIC, ALNUM, SPACE, LOWER_CASE, UPPER_CASE };

static bool char_is(uint32_t cp, unsigned what, bool *counts)
{
    uint32_t made[3];

    switch (what) {
    case ALPHA:
        return bt_tmpl_cp_is_alpha(cp);
    case DIGIT:
        return bt_tmpl_cp_is_digit(cp);
    case DECIMAL:
        return bt_tmpl_cp_is_decimal(cp);
    case NUMERIC:
        return bt_tmpl_cp_is_numeric(cp);
    case ALNUM:
        return bt_tmpl_cp_is_alpha(cp) || bt_tmpl_cp_is_numeric(cp);
    case SPACE:
        return bt_tmpl_cp_is_space(cp);
    default:
        *counts = bt_tmpl_cp_is_cased(cp);
        return !*counts || ((bt_tmpl_cp_to_case(
                                 cp, (what == LOWER_CASE) ? BT_LOWER : BT_UPPER,
                                 made) == 1) &&
                            (made[0] == cp));
    }
}

METHOD(check_chars)
{
    const bt_tmpl_text_t *text = self.u.text;
    bool found = false;
    uint32_t at = 0;

    while ((at < text->len) && bt_tmpl_run_step_bytes(x->run, 8)) {
        uint32_t cp;
        bool counts = true;

        at += bt_tmpl_text_decode(text, at, &cp);
        if (!char_is(cp, row->how, &counts)) {
            return bt_tmpl_v_bool(false);
        }
        found = found || counts;
    }
    return bt_tmpl_v_bool(found);
}

METHOD(pad)
{
    static const bt_tmpl_text_t space = {.data = " ", .len = 1};
    const int64_t width = bt_tmpl_args_int(x->run, args, 0, 0);
    const bt_tmpl_text_t *fill = text_in(x, args, 1);

    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    return bt_tmpl_v_text(bt_tmpl_text_pad(x->run, self.u.text, width,
                                           (fill != NULL) ? fill : &space,
                                           (int)row->how - 1));
}

METHOD(zfill)
{
    static const bt_tmpl_text_t zero = {.data = "0", .len = 1};
    const bt_tmpl_text_t *text = self.u.text;
    const int64_t width = bt_tmpl_args_int(x->run, args, 0, 0);
    const bool sign =
        (text->len > 0) && ((text->data[0] == '-') || (text->data[0] == '+'));
    const bt_tmpl_text_t *rest =
        bt_tmpl_text_slice(x->run, text, sign ? 1 : 0, text->len);
    bt_tmpl_build_t build;

    if (rest != NULL) {
        rest =
            bt_tmpl_text_pad(x->run, rest, width - (sign ? 1 : 0), &zero, -1);
    }
    if (rest == NULL) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    bt_tmpl_build_slice(&build, text, 0, sign ? 1 : 0);
    bt_tmpl_build_text(&build, rest);
    return bt_tmpl_build_value(&build);
}

METHOD(partition)
{
    const bt_tmpl_text_t *text = self.u.text;
    const bt_tmpl_text_t *separator = text_needed(x, args, 0);
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 3);
    uint32_t at;

    if ((separator == NULL) || (seq == NULL) ||
        !bt_tmpl_run_step_bytes(x->run, text->len)) {
        return bt_tmpl_v_failed();
    }
    if (separator->len == 0) {
        return BT_TMPL_REFUSE(x->run, "%s at nothing", row->name);
    }
    at = (row->how == 0) ? bt_tmpl_text_find(text, separator, 0, text->len)
                         : bt_tmpl_text_rfind(text, separator, 0, text->len);
    for (unsigned i = 0; i < 3; i++) {
        const bt_tmpl_text_t *piece =
            (at == UINT32_MAX)
                ? ((i == ((row->how == 0) ? 0 : 2)) ? text
                                                    : &bt_tmpl_text_empty)
            : (i == 0) ? bt_tmpl_text_slice(x->run, text, 0, at)
            : (i == 1)
                ? bt_tmpl_text_slice(x->run, text, at, at + separator->len)
                : bt_tmpl_text_slice(x->run, text, at + separator->len,
                                     text->len);

        if ((piece == NULL) ||
            !bt_tmpl_seq_add(x->run, seq, bt_tmpl_v_text(piece))) {
            return bt_tmpl_v_failed();
        }
    }
    return bt_tmpl_v_seq(BT_SEQ_TUPLE, seq);
}

METHOD(remove_end)
{
    const bt_tmpl_text_t *text = self.u.text;
    const bt_tmpl_text_t *end = text_needed(x, args, 0);

    if (end == NULL) {
        return bt_tmpl_v_failed();
    }
    if (!has_end(text, 0, text->len, end, row->how == 0)) {
        return self;
    }
    return bt_tmpl_v_text(
        (row->how == 0)
            ? bt_tmpl_text_slice(x->run, text, end->len, text->len)
            : bt_tmpl_text_slice(x->run, text, 0, text->len - end->len));
}

/* ---- of mappings and lists ---- */

METHOD(get)
{
    const bt_tmpl_value_t *found =
        bt_tmpl_dict_find(self.u.dict, *args->slot[0]);

    return (found != NULL)           ? *found
           : (args->slot[1] != NULL) ? *args->slot[1]
                                     : bt_tmpl_v_none();
}

METHOD(view)
{
    const bt_tmpl_dict_t *dict = self.u.dict;
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, dict->n);

    for (uint32_t i = 0; (seq != NULL) && (i < dict->n); i++) {
        bt_tmpl_value_t item = (row->how == BT_SEQ_KEYS)
                                   ? dict->entries[i].key
                                   : bt_tmpl_entry_use(dict, i);

        if (row->how == BT_SEQ_ITEMS) {
            bt_tmpl_seq_t *pair = bt_tmpl_seq_make(x->run, 2);

            if ((pair == NULL) ||
                !bt_tmpl_seq_add(x->run, pair, dict->entries[i].key) ||
                !bt_tmpl_seq_add(x->run, pair, item)) {
                return bt_tmpl_v_failed();
            }
            item = bt_tmpl_v_seq(BT_SEQ_TUPLE, pair);
        }
        if (!bt_tmpl_seq_add(x->run, seq, item)) {
            return bt_tmpl_v_failed();
        }
    }
    if (seq != NULL) {
        seq->quoted = dict->quoted;
    }
    return bt_tmpl_v_seq((bt_tmpl_seq_kind_t)row->how, seq);
}

/* Nothing changes a value: a copy is as good as it. */
METHOD(same)
{
    if ((self.kind == BT_V_SEQ) && (self.sub != BT_SEQ_LIST)) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM, "%s has no %s",
                         bt_tmpl_v_kind_name(self), row->name);
    }
    return self;
}

METHOD(count_items)
{
    int64_t n = 0;

    for (uint32_t i = 0; (i < self.u.seq->n) && bt_tmpl_run_step(x->run, 1);
         i++) {
        if (bt_tmpl_v_equal(x->run, self.u.seq->items[i], *args->slot[0])) {
            if (row->how != 0) {
                return bt_tmpl_v_int(i);
            }
            n++;
        }
    }
    if (row->how != 0) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                         "the value is not in list");
    }
    return bt_tmpl_v_int(n);
}

METHOD(loop_call)
{
    return (row->how == 0) ? bt_tmpl_loop_cycle(x, self.u.loop, args)
                           : bt_tmpl_loop_changed(x, self.u.loop, args);
}

#define RANGE BT_TMPL_PARAMS(1, "sub", "start", "end")

static const row_t rows[] = {
    {"strip", strip, BT_TMPL_PARAMS(0, "chars"), BT_V_TEXT,
     BT_STRIP_LEFT | BT_STRIP_RIGHT},
    {"lstrip", strip, BT_TMPL_PARAMS(0, "chars"), BT_V_TEXT, BT_STRIP_LEFT},
    {"rstrip", strip, BT_TMPL_PARAMS(0, "chars"), BT_V_TEXT, BT_STRIP_RIGHT},
    {"lower", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT, BT_CASE_LOWER},
    {"casefold", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT, BT_CASE_LOWER},
    {"upper", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT, BT_CASE_UPPER},
    {"title", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT, BT_CASE_TITLE},
    {"capitalize", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT,
     BT_CASE_CAPITALIZE},
    {"swapcase", change_case, BT_TMPL_NO_PARAMS, BT_V_TEXT, BT_CASE_SWAP},
    {"split", split, BT_TMPL_PARAMS(0, "sep", "maxsplit"), BT_V_TEXT, 0},
    {"rsplit", split, BT_TMPL_PARAMS(0, "sep", "maxsplit"), BT_V_TEXT, 1},
    {"splitlines", splitlines, BT_TMPL_PARAMS(0, "keepends"), BT_V_TEXT, 0},
    {"replace", replace, BT_TMPL_PARAMS(2, "old", "new", "count"), BT_V_TEXT,
     0},
    {"startswith", check_end, RANGE, BT_V_TEXT, 0},
    {"endswith", check_end, RANGE, BT_V_TEXT, 1},
    {"find", find, RANGE, BT_V_TEXT, 0},
    {"rfind", find, RANGE, BT_V_TEXT, FIND_LAST},
    {"index", find, RANGE, BT_V_TEXT, FIND_RAISE},
    {"rindex", find, RANGE, BT_V_TEXT, FIND_LAST | FIND_RAISE},
    {"count", count_text, RANGE, BT_V_TEXT, 0},
    {"join", join, BT_TMPL_PARAMS(1, "iterable"), BT_V_TEXT, 0},
    {"isalpha", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, ALPHA},
    {"isdigit", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, DIGIT},
    {"isdecimal", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, DECIMAL},
    {"isnumeric", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, NUMERIC},
    {"isalnum", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, ALNUM},
    {"isspace", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, SPACE},
    {"islower", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, LOWER_CASE},
    {"isupper", check_chars, BT_TMPL_NO_PARAMS, BT_V_TEXT, UPPER_CASE},
    {"rjust", pad, BT_TMPL_PARAMS(1, "width", "fillchar"), BT_V_TEXT, 0},
    {"center", pad, BT_TMPL_PARAMS(1, "width", "fillchar"), BT_V_TEXT, 1},
    {"ljust", pad, BT_TMPL_PARAMS(1, "width", "fillchar"), BT_V_TEXT, 2},
    {"zfill", zfill, BT_TMPL_PARAMS(1, "width"), BT_V_TEXT, 0},
    {"partition", partition, BT_TMPL_PARAMS(1, "sep"), BT_V_TEXT, 0},
    {"rpartition", partition, BT_TMPL_PARAMS(1, "sep"), BT_V_TEXT, 1},
    {"removeprefix", remove_end, BT_TMPL_PARAMS(1, "prefix"), BT_V_TEXT, 0},
    {"removesuffix", remove_end, BT_TMPL_PARAMS(1, "suffix"), BT_V_TEXT, 1},
    {"get", get, BT_TMPL_PARAMS(1, "key", "default"), BT_V_DICT, 0},
    {"keys", view, BT_TMPL_NO_PARAMS, BT_V_DICT, BT_SEQ_KEYS},
    {"values", view, BT_TMPL_NO_PARAMS, BT_V_DICT, BT_SEQ_VALUES},
    {"items", view, BT_TMPL_NO_PARAMS, BT_V_DICT, BT_SEQ_ITEMS},
    {"copy", same, BT_TMPL_NO_PARAMS, BT_V_DICT, 0},
    {"copy", same, BT_TMPL_NO_PARAMS, BT_V_SEQ, 0},
    {"count", count_items, BT_TMPL_PARAMS(1, "value"), BT_V_SEQ, 0},
    {"index", count_items, BT_TMPL_PARAMS(1, "value"), BT_V_SEQ, 1},
    {"cycle", loop_call, {.any = true}, BT_V_LOOP, 0},
    {"changed", loop_call, {.any = true}, BT_V_LOOP, 1},
};

static const struct {
    uint8_t of;
    const char *name;
} refused[] = {
    {BT_V_SEQ, "append"},      {BT_V_SEQ, "clear"},    {BT_V_SEQ, "extend"},
    {BT_V_SEQ, "insert"},      {BT_V_SEQ, "pop"},      {BT_V_SEQ, "remove"},
    {BT_V_SEQ, "reverse"},     {BT_V_SEQ, "sort"},     {BT_V_DICT, "clear"},
    {BT_V_DICT, "pop"},        {BT_V_DICT, "popitem"}, {BT_V_DICT, "update"},
    {BT_V_DICT, "setdefault"},
};

bt_tmpl_value_t bt_tmpl_method_find(bt_tmpl_exec_t *x, bt_tmpl_value_t of,
                                    const bt_tmpl_text_t *name)
{
    bt_tmpl_method_t *method;

    if ((of.kind == BT_V_SEQ) && (of.sub > BT_SEQ_RANGE)) {
        return bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, name);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        if ((rows[i].of == of.kind) && bt_tmpl_text_is(name, rows[i].name)) {
            method = bt_tmpl_run_take(x->run, 1, sizeof(*method));
            if (method == NULL) {
                return bt_tmpl_v_failed();
            }
            method->self = of;
            method->row = &rows[i];
            return (bt_tmpl_value_t){.kind = BT_V_METHOD, .u.method = method};
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(refused); i++) {
        if ((refused[i].of == of.kind) &&
            bt_tmpl_text_is(name, refused[i].name)) {
            return bt_tmpl_v_undefined(BT_UNDEF_UNSAFE, name);
        }
    }
    return bt_tmpl_v_undefined(BT_UNDEF_ATTRIBUTE, name);
}

bt_tmpl_value_t bt_tmpl_method_call(bt_tmpl_exec_t *x,
                                    const bt_tmpl_method_t *method,
                                    bt_tmpl_args_t *args)
{
    const row_t *row = method->row;

    if (!bt_tmpl_args_bind(x->run, args, &row->params, row->name)) {
        return bt_tmpl_v_failed();
    }
    return row->fn(x, row, method->self, args);
}
