/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that walk over what they are given. Those that are generators in
 * jinja2 give iterators here as well: true, without a length, read once. */
#include <string.h>

#include "inference/template/exec.h"
#include "inference/template/text.h"

/* ---- what an attribute argument means ---- */

static bool all_digits(const char *text, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if ((text[i] < '0') || (text[i] > '9')) {
            return false;
        }
    }
    return (n > 0) && (n < 10);
}

/* "a.b.0" of an item; none: the item. */
static bt_tmpl_value_t get_attribute(bt_tmpl_exec_t *x, bt_tmpl_value_t item,
                                     const bt_tmpl_value_t *attribute)
{
    const bt_tmpl_text_t *path;
    uint32_t from = 0;

    if ((attribute == NULL) || (attribute->kind == BT_V_NONE)) {
        return item;
    }
    if (attribute->kind != BT_V_TEXT) {
        return bt_tmpl_eval_item(x, item, *attribute);
    }
    path = attribute->u.text;
    while (bt_tmpl_run_step(x->run, 1)) {
        const char *dot = memchr(path->data + from, '.', path->len - from);
        const uint32_t to =
            (dot != NULL) ? (uint32_t)(dot - path->data) : path->len;

        if (all_digits(path->data + from, to - from)) {
            int64_t i = 0;

            for (uint32_t k = from; k < to; k++) {
                i = i * 10 + (path->data[k] - '0');
            }
            item = bt_tmpl_eval_item(x, item, bt_tmpl_v_int(i));
        } else {
            const bt_tmpl_text_t *part =
                bt_tmpl_text_slice(x->run, path, from, to);

            if (part == NULL) {
                return bt_tmpl_v_failed();
            }
            item = bt_tmpl_eval_item(x, item, bt_tmpl_v_text(part));
        }
        if (dot == NULL) {
            return item;
        }
        from = to + 1;
    }
    return bt_tmpl_v_failed();
}

static bt_tmpl_value_t lowered(bt_tmpl_exec_t *x, bt_tmpl_value_t value,
                               bool case_sensitive)
{
    return (case_sensitive || (value.kind != BT_V_TEXT))
               ? value
               : bt_tmpl_v_text(
                     bt_tmpl_text_change(x->run, value.u.text, BT_CASE_LOWER));
}

static bt_tmpl_value_t end_seq(bt_tmpl_exec_t *x, bt_tmpl_seq_kind_t kind,
                               bt_tmpl_seq_t *seq)
{
    return bt_tmpl_v_seq(kind, bt_tmpl_run_ok(x->run) ? seq : NULL);
}

/* ---- simple walks ---- */

BT_TMPL_FILTER(bt_tmpl_filter_list)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if ((seq == NULL) || !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    seq->quoted = items->quoted;
    for (; (at < items->n) && bt_tmpl_seq_add(x->run, seq, items->items[at]);
         at++) {
    }
    return end_seq(x, BT_SEQ_LIST, seq);
}

BT_TMPL_FILTER(bt_tmpl_filter_items)
{
    static const bt_tmpl_text_t name = {.data = "items", .len = 5};
    bt_tmpl_args_t none = {0};
    bt_tmpl_value_t view;

    if (value.kind == BT_V_UNDEFINED) {
        return end_seq(x, BT_SEQ_ITERATOR, bt_tmpl_seq_make(x->run, 0));
    }
    if (value.kind != BT_V_DICT) {
        return BT_TMPL_REFUSE(x->run,
                              "items is possible for a mapping, not for %s",
                              bt_tmpl_v_kind_name(value));
    }
    view = bt_tmpl_method_find(x, value, &name);
    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    view = bt_tmpl_eval_call(x, view, &none);
    view.sub = BT_SEQ_ITERATOR;
    return view;
}

static bool is_iterator(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_SEQ) && (value.sub == BT_SEQ_ITERATOR);
}

BT_TMPL_FILTER(bt_tmpl_filter_end)
{
    static const bt_tmpl_text_t none[] = {
        {.data = "there is no first item, the sequence is empty", .len = 45},
        {.data = "there is no last item, the sequence is empty", .len = 44}};
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if ((how == BT_FILTER_LAST) && is_iterator(value)) {
        return BT_TMPL_REFUSE(x->run, "%s has no last item",
                              bt_tmpl_v_kind_name(value));
    }
    if (!bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    if (at >= items->n) {
        return bt_tmpl_v_undefined(BT_UNDEF_OTHER, &none[how]);
    }
    if (is_iterator(value)) {
        value.u.seq->taken = at + 1;
    }
    return items->items[(how == BT_FILTER_LAST) ? items->n - 1 : at];
}

BT_TMPL_FILTER(bt_tmpl_filter_reverse)
{
    const bt_tmpl_seq_t *items;
    bt_tmpl_seq_t *seq;
    uint32_t at;

    if (value.kind == BT_V_TEXT) {
        return bt_tmpl_v_text(bt_tmpl_text_reverse(x->run, value.u.text));
    }
    seq = bt_tmpl_seq_make(x->run, 0);
    if ((seq == NULL) || !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    for (uint32_t i = items->n; (i > at) && bt_tmpl_run_ok(x->run); i--) {
        (void)bt_tmpl_seq_add(x->run, seq, items->items[i - 1]);
    }
    return end_seq(x, is_iterator(value) ? BT_SEQ_LIST : BT_SEQ_ITERATOR, seq);
}

BT_TMPL_FILTER(bt_tmpl_filter_join)
{
    const bt_tmpl_text_t *between = &bt_tmpl_text_empty;
    const bt_tmpl_seq_t *items;
    uint32_t at;
    bt_tmpl_build_t build;

    if (args->slot[0] != NULL) {
        between = bt_tmpl_v_str(x->run, *args->slot[0]);
    }
    if ((between == NULL) || !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    bt_tmpl_build_init(&build, x->run);
    for (uint32_t i = at; (i < items->n) && bt_tmpl_run_step(x->run, 1); i++) {
        const bt_tmpl_value_t item =
            get_attribute(x, items->items[i], args->slot[1]);
        const bt_tmpl_text_t *text =
            bt_tmpl_run_ok(x->run) ? bt_tmpl_v_str(x->run, item) : NULL;

        if (text == NULL) {
            return bt_tmpl_v_failed();
        }
        bt_tmpl_build_text(&build, (i > at) ? between : &bt_tmpl_text_empty);
        bt_tmpl_build_text(&build, text);
    }
    return bt_tmpl_build_value(&build);
}

BT_TMPL_FILTER(bt_tmpl_filter_sum)
{
    bt_tmpl_value_t sum =
        (args->slot[1] != NULL) ? *args->slot[1] : bt_tmpl_v_int(0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if (!bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    for (; (at < items->n) && bt_tmpl_run_step(x->run, 1); at++) {
        const bt_tmpl_value_t item =
            get_attribute(x, items->items[at], args->slot[0]);

        if (bt_tmpl_run_ok(x->run)) {
            sum = bt_tmpl_op_binary(x->run, '+', sum, item);
        }
    }
    return sum;
}

/* ---- cutting ---- */

static bool add_piece(bt_tmpl_exec_t *x, bt_tmpl_seq_t *pieces,
                      const bt_tmpl_seq_t *items, uint32_t from, uint32_t to,
                      uint32_t fill, const bt_tmpl_value_t *fill_with)
{
    bt_tmpl_seq_t *piece = bt_tmpl_seq_make(x->run, 0);

    if (piece == NULL) {
        return false;
    }
    for (uint32_t i = from; i < to; i++) {
        if (!bt_tmpl_seq_add(x->run, piece, items->items[i])) {
            return false;
        }
    }
    if ((fill_with != NULL) && (fill_with->kind != BT_V_NONE)) {
        for (uint32_t i = 0; i < fill; i++) {
            if (!bt_tmpl_seq_add(x->run, piece, *fill_with)) {
                return false;
            }
        }
    }
    return bt_tmpl_seq_add(x->run, pieces, bt_tmpl_v_seq(BT_SEQ_LIST, piece));
}

BT_TMPL_FILTER(bt_tmpl_filter_batch)
{
    const int64_t n = bt_tmpl_args_int(x->run, args, 0, 0);
    bt_tmpl_seq_t *pieces = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if (n < 1) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM, "batch: at least 1");
    }
    if (!bt_tmpl_run_ok(x->run) || (pieces == NULL) ||
        !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    while (at < items->n) {
        const uint32_t left = items->n - at;
        const uint32_t take = (n < left) ? (uint32_t)n : left;
        const uint32_t fill =
            ((int64_t)take < n) && (n < UINT32_MAX) ? (uint32_t)n - take : 0;

        if (!add_piece(x, pieces, items, at, at + take, fill, args->slot[1])) {
            return bt_tmpl_v_failed();
        }
        at += take;
    }
    return end_seq(x, BT_SEQ_ITERATOR, pieces);
}

BT_TMPL_FILTER(bt_tmpl_filter_slice)
{
    const int64_t n = bt_tmpl_args_int(x->run, args, 0, 0);
    bt_tmpl_seq_t *pieces = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;
    uint32_t each;
    uint32_t extra;

    if (n < 1) {
        bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM, "slice: at least 1");
    }
    if (!bt_tmpl_run_ok(x->run) || (pieces == NULL) ||
        !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    each = (uint32_t)((int64_t)(items->n - at) / n);
    extra = (uint32_t)((int64_t)(items->n - at) % n);
    for (int64_t i = 0; (i < n) && bt_tmpl_run_step(x->run, 1); i++) {
        const uint32_t take = each + ((i < extra) ? 1 : 0);

        if (!add_piece(x, pieces, items, at, at + take, (i >= extra) ? 1 : 0,
                       args->slot[1])) {
            return bt_tmpl_v_failed();
        }
        at += take;
    }
    return end_seq(x, BT_SEQ_ITERATOR, pieces);
}

/* ---- sorting ---- */

typedef struct sorted {
    bt_tmpl_value_t key, value;
} sorted_t;

/* As Python compares what is in lists: what is equal needs no order. */
static int order_of(bt_tmpl_exec_t *x, bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    return bt_tmpl_v_equal(x->run, a, b) ? 0
                                         : bt_tmpl_v_compare(x->run, a, b, "<");
}

/* Merges, so equal ones keep their order, also backwards. */
static bool sort_all(bt_tmpl_exec_t *x, sorted_t *list, uint32_t n,
                     bool reverse)
{
    sorted_t *other = bt_tmpl_run_take(x->run, (size_t)n + 1, sizeof(*other));
    sorted_t *from = list;
    sorted_t *to = other;

    if (other == NULL) {
        return false;
    }
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t begin = 0; begin < n; begin += 2 * width) {
            uint64_t a = begin;
            const uint64_t mid = (begin + width < n) ? begin + width : n;
            uint64_t b = mid;
            const uint64_t end =
                (begin + 2 * width < n) ? begin + 2 * width : n;

            for (uint64_t i = begin; i < end; i++) {
                bool left = b == end;

                if (!left && (a < mid)) {
                    const int order = order_of(x, from[a].key, from[b].key);

                    left = reverse ? order >= 0 : order <= 0;
                }
                to[i] = left ? from[a++] : from[b++];
            }
            if (!bt_tmpl_run_step(x->run, end - begin)) {
                return false;
            }
        }
        from = to;
        to = (to == other) ? list : other;
    }
    if (from != list) {
        memcpy(list, from, n * sizeof(*list));
    }
    return bt_tmpl_run_ok(x->run);
}

/* "a,b": a list of keys. */
static bt_tmpl_value_t sort_key(bt_tmpl_exec_t *x, bt_tmpl_value_t item,
                                const bt_tmpl_value_t *attribute,
                                bool case_sensitive)
{
    static const bt_tmpl_text_t comma = {.data = ",", .len = 1};
    bt_tmpl_seq_t *paths;
    bt_tmpl_seq_t *keys;

    if ((attribute == NULL) || (attribute->kind != BT_V_TEXT) ||
        (memchr(attribute->u.text->data, ',', attribute->u.text->len) ==
         NULL)) {
        return lowered(x, get_attribute(x, item, attribute), case_sensitive);
    }
    paths = bt_tmpl_text_split(x->run, attribute->u.text, &comma, -1, false);
    keys = bt_tmpl_seq_make(x->run, 0);
    for (uint32_t i = 0; (paths != NULL) && (keys != NULL) && (i < paths->n);
         i++) {
        const bt_tmpl_value_t key = lowered(
            x, get_attribute(x, item, &paths->items[i]), case_sensitive);

        if (!bt_tmpl_seq_add(x->run, keys, key)) {
            break;
        }
    }
    return end_seq(x, BT_SEQ_LIST, keys);
}

static bt_tmpl_value_t sorted_seq(bt_tmpl_exec_t *x, sorted_t *list, uint32_t n,
                                  bool reverse)
{
    bt_tmpl_seq_t *seq;

    if (!bt_tmpl_run_ok(x->run) || !sort_all(x, list, n, reverse)) {
        return bt_tmpl_v_failed();
    }
    seq = bt_tmpl_seq_make(x->run, n);
    for (uint32_t i = 0; (seq != NULL) && (i < n); i++) {
        (void)bt_tmpl_seq_add(x->run, seq, list[i].value);
    }
    return end_seq(x, BT_SEQ_LIST, seq);
}

BT_TMPL_FILTER(bt_tmpl_filter_sort)
{
    const bt_tmpl_seq_t *items;
    sorted_t *list;
    uint32_t at;
    uint32_t n = 0;

    if (!bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    list = bt_tmpl_run_take(x->run, (size_t)items->n + 1, sizeof(*list));
    if (list == NULL) {
        return bt_tmpl_v_failed();
    }
    for (; (at < items->n) && bt_tmpl_run_step(x->run, 1); at++) {
        list[n++] = (sorted_t){sort_key(x, items->items[at], args->slot[2],
                                        bt_tmpl_args_truth(args, 1, false)),
                               items->items[at]};
    }
    return sorted_seq(x, list, n, bt_tmpl_args_truth(args, 0, false));
}

BT_TMPL_FILTER(bt_tmpl_filter_dictsort)
{
    const bool by_value =
        (args->slot[1] != NULL) && bt_tmpl_v_text_is(*args->slot[1], "value");
    bt_tmpl_value_t pairs;
    sorted_t *list;
    uint32_t n;

    if ((args->slot[1] != NULL) && !by_value &&
        !bt_tmpl_v_text_is(*args->slot[1], "key")) {
        return BT_TMPL_REFUSE(x->run, "dictsort: by is 'key' or 'value'");
    }
    if (value.kind == BT_V_UNDEFINED) {
        bt_tmpl_v_fail_undefined(x->run, value);
        return bt_tmpl_v_failed();
    }
    pairs = bt_tmpl_filter_items(x, value, args, 0);
    if (!bt_tmpl_run_ok(x->run)) {
        return bt_tmpl_v_failed();
    }
    n = pairs.u.seq->n;
    list = bt_tmpl_run_take(x->run, (size_t)n + 1, sizeof(*list));
    for (uint32_t i = 0; (list != NULL) && (i < n); i++) {
        const bt_tmpl_value_t pair = pairs.u.seq->items[i];

        list[i] = (sorted_t){lowered(x, pair.u.seq->items[by_value ? 1 : 0],
                                     bt_tmpl_args_truth(args, 0, false)),
                             pair};
    }
    return sorted_seq(x, list, n, bt_tmpl_args_truth(args, 2, false));
}

BT_TMPL_FILTER(bt_tmpl_filter_extreme)
{
    static const bt_tmpl_text_t none = {
        .data = "there is no such item, the sequence is empty", .len = 44};
    bt_tmpl_value_t best = bt_tmpl_v_undefined(BT_UNDEF_OTHER, &none);
    bt_tmpl_value_t best_key = bt_tmpl_v_none();
    const bt_tmpl_seq_t *items;
    uint32_t first;

    if (!bt_tmpl_v_items(x->run, value, &items, &first)) {
        return bt_tmpl_v_failed();
    }
    for (uint32_t i = first; (i < items->n) && bt_tmpl_run_step(x->run, 1);
         i++) {
        const bt_tmpl_value_t key =
            lowered(x, get_attribute(x, items->items[i], args->slot[1]),
                    bt_tmpl_args_truth(args, 0, false));

        if ((i == first) ||
            (bt_tmpl_v_compare(x->run, key, best_key, "<") * how > 0)) {
            best = items->items[i];
            best_key = key;
        }
    }
    return best;
}

BT_TMPL_FILTER(bt_tmpl_filter_unique)
{
    bt_tmpl_dict_t *seen = bt_tmpl_dict_make(x->run);
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if ((seen == NULL) || (seq == NULL) ||
        !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    for (; (at < items->n) && bt_tmpl_run_step(x->run, 1); at++) {
        const bt_tmpl_value_t key =
            lowered(x, get_attribute(x, items->items[at], args->slot[1]),
                    bt_tmpl_args_truth(args, 0, false));

        if (bt_tmpl_run_ok(x->run) && (bt_tmpl_dict_find(seen, key) == NULL) &&
            bt_tmpl_dict_put(x->run, seen, key, bt_tmpl_v_none())) {
            (void)bt_tmpl_seq_add(x->run, seq, items->items[at]);
        }
    }
    return end_seq(x, BT_SEQ_ITERATOR, seq);
}

/* ---- map, select, reject ---- */

/* The arguments behind the first n; the names with them. */
static bt_tmpl_args_t rest_of(const bt_tmpl_args_t *args, uint32_t n)
{
    bt_tmpl_args_t rest = *args;

    rest.positional = (args->n_positional > n) ? args->positional + n : NULL;
    rest.n_positional = args->n_positional - n;
    memset(rest.slot, 0, sizeof(rest.slot));
    return rest;
}

static bt_tmpl_value_t map_attribute(bt_tmpl_exec_t *x, bt_tmpl_value_t item,
                                     const bt_tmpl_args_t *args)
{
    const bt_tmpl_value_t *otherwise = bt_tmpl_args_named(args, "default");
    const bt_tmpl_value_t made =
        get_attribute(x, item, bt_tmpl_args_named(args, "attribute"));

    return ((made.kind == BT_V_UNDEFINED) && (otherwise != NULL)) ? *otherwise
                                                                  : made;
}

BT_TMPL_FILTER(bt_tmpl_filter_map)
{
    const bool attribute = (args->n_positional == 0) &&
                           (bt_tmpl_args_named(args, "attribute") != NULL);
    const bt_tmpl_filter_t *filter = NULL;
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if (!attribute) {
        if ((args->n_positional > 0) &&
            (args->positional[0].kind == BT_V_TEXT)) {
            filter = bt_tmpl_filter_find(args->positional[0].u.text);
        }
        if (filter == NULL) {
            return BT_TMPL_REFUSE(
                x->run, "map needs an attribute or the name of a filter");
        }
    } else if (args->n_named >
               ((bt_tmpl_args_named(args, "default") != NULL) ? 2u : 1u)) {
        return BT_TMPL_REFUSE(x->run, "map: an argument that it does not have");
    }
    if ((seq == NULL) || !bt_tmpl_run_enter(x->run)) {
        return bt_tmpl_v_failed();
    }
    if (!bt_tmpl_v_truth(value)) {
        items = seq;
        at = 0;
    } else if (!bt_tmpl_v_items(x->run, value, &items, &at)) {
        at = UINT32_MAX;
    }
    for (; bt_tmpl_run_step(x->run, 1) && (at < items->n); at++) {
        bt_tmpl_args_t rest = rest_of(args, (filter != NULL) ? 1 : 0);
        const bt_tmpl_value_t made =
            (filter != NULL)
                ? bt_tmpl_filter_call(x, filter, items->items[at], &rest)
                : map_attribute(x, items->items[at], args);

        if (bt_tmpl_run_ok(x->run)) {
            (void)bt_tmpl_seq_add(x->run, seq, made);
        }
    }
    bt_tmpl_run_leave(x->run);
    return end_seq(x, BT_SEQ_ITERATOR, seq);
}

BT_TMPL_FILTER(bt_tmpl_filter_select)
{
    const bool wanted = (how & BT_FILTER_MATCHES) != 0;
    const uint32_t n = ((how & BT_FILTER_BY_ATTR) != 0) ? 1 : 0;
    const bt_tmpl_test_t *test = NULL;
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(x->run, 0);
    const bt_tmpl_seq_t *items;
    uint32_t at;

    if (!bt_tmpl_v_truth(value)) { /* jinja2 looks no further either */
        return end_seq(x, BT_SEQ_ITERATOR, seq);
    }
    if (args->n_positional < n) {
        return BT_TMPL_REFUSE(x->run, "the name of an attribute is missing");
    }
    if (args->n_positional > n) {
        if (args->positional[n].kind == BT_V_TEXT) {
            test = bt_tmpl_test_find(args->positional[n].u.text);
        }
        if (test == NULL) {
            return BT_TMPL_REFUSE(x->run, "the name of a test is not known");
        }
    }
    if ((seq == NULL) || !bt_tmpl_v_items(x->run, value, &items, &at)) {
        return bt_tmpl_v_failed();
    }
    for (; (at < items->n) && bt_tmpl_run_step(x->run, 1); at++) {
        const bt_tmpl_value_t item = get_attribute(
            x, items->items[at], (n > 0) ? &args->positional[0] : NULL);
        bt_tmpl_args_t rest = rest_of(args, n + 1);
        bool chosen = false;

        if (bt_tmpl_run_ok(x->run)) {
            chosen = (test != NULL) ? bt_tmpl_test_call(x, test, item, &rest)
                                    : bt_tmpl_v_truth(item);
        }
        if (bt_tmpl_run_ok(x->run) && (chosen == wanted)) {
            (void)bt_tmpl_seq_add(x->run, seq, items->items[at]);
        }
    }
    return end_seq(x, BT_SEQ_ITERATOR, seq);
}
