/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/value.h"

#include <stdio.h>
#include <string.h>

#include "common/base/hash.h"
#include "inference/template/exec.h"
#include "inference/template/text.h"

#define SMALL_DICT 8u /* entries that are looked through one by one */

/* ---- sequences ---- */

bt_tmpl_seq_t *bt_tmpl_seq_make(bt_tmpl_run_t *run, uint32_t cap)
{
    bt_tmpl_seq_t *seq = bt_tmpl_run_take(run, 1, sizeof(*seq));

    if ((seq != NULL) && (cap > 0)) {
        seq->items = bt_tmpl_run_take(run, cap, sizeof(*seq->items));
        seq->cap = cap;
        seq = (seq->items != NULL) ? seq : NULL;
    }
    return seq;
}

bool bt_tmpl_seq_add(bt_tmpl_run_t *run, bt_tmpl_seq_t *seq,
                     bt_tmpl_value_t item)
{
    bt_tmpl_value_t *items =
        bt_tmpl_run_grow(run, seq->items, seq->n, &seq->cap, 4, sizeof(item));

    if (items == NULL) {
        return false;
    }
    seq->items = items;
    seq->items[seq->n++] = item;
    return bt_tmpl_run_step(run, 1);
}

/* ---- mappings ---- */

/* Numbers that are equal hash alike, whatever their kind. Where the mapping
 * lies is the seed, which no client knows: keys that collide cannot be chosen.
 */
static bool hash_of(const bt_tmpl_dict_t *dict, bt_tmpl_value_t key,
                    uint64_t *hash_p)
{
    const uint64_t seed = (uint64_t)(uintptr_t)dict;
    double f;

    switch (key.kind) {
    case BT_V_TEXT:
    case BT_V_BIG_INT:
        *hash_p = bt_hash64(key.u.text->data, key.u.text->len, seed);
        return true;
    case BT_V_NONE:
        *hash_p = 1;
        return true;
    case BT_V_BOOL:
    case BT_V_INT:
    case BT_V_FLOAT:
        f = bt_tmpl_v_as_float(key);
        f = (f == 0.0) ? 0.0 : f; /* the negative one too */
        *hash_p = bt_hash64(&f, sizeof(f), seed);
        return true;
    default:
        return false;
    }
}

/* Compares keys, which needs no run. */
static bool same_key(bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    if ((a.kind == b.kind) &&
        ((a.kind == BT_V_TEXT) || (a.kind == BT_V_BIG_INT))) {
        return bt_tmpl_text_equal(a.u.text, b.u.text);
    }
    if (bt_tmpl_v_is_integer(a) && bt_tmpl_v_is_integer(b)) {
        return bt_tmpl_v_as_int(a) == bt_tmpl_v_as_int(b);
    }
    if (bt_tmpl_v_is_number(a) && bt_tmpl_v_is_number(b)) {
        return bt_tmpl_v_as_float(a) == bt_tmpl_v_as_float(b);
    }
    return (a.kind == BT_V_NONE) && (b.kind == BT_V_NONE);
}

static bt_tmpl_entry_t *find(const bt_tmpl_dict_t *dict, bt_tmpl_value_t key,
                             uint64_t hash)
{
    uint32_t at;

    if (dict->index == NULL) {
        for (uint32_t i = 0; i < dict->n; i++) {
            if ((dict->entries[i].hash == hash) &&
                same_key(dict->entries[i].key, key)) {
                return &dict->entries[i];
            }
        }
        return NULL;
    }
    at = (uint32_t)hash & (dict->n_index - 1);
    while (dict->index[at] != 0) {
        bt_tmpl_entry_t *entry = &dict->entries[dict->index[at] - 1];

        if ((entry->hash == hash) && same_key(entry->key, key)) {
            return entry;
        }
        at = (at + 1) & (dict->n_index - 1);
    }
    return NULL;
}

static void put_index(bt_tmpl_dict_t *dict, uint32_t i)
{
    uint32_t at = (uint32_t)dict->entries[i].hash & (dict->n_index - 1);

    while (dict->index[at] != 0) {
        at = (at + 1) & (dict->n_index - 1);
    }
    dict->index[at] = i + 1;
}

static bool grow_dict(bt_tmpl_run_t *run, bt_tmpl_dict_t *dict)
{
    bt_tmpl_entry_t *entries = bt_tmpl_run_grow(
        run, dict->entries, dict->n, &dict->cap, 4, sizeof(*entries));

    if (entries == NULL) {
        return false;
    }
    dict->entries = entries;
    if (dict->cap > SMALL_DICT) {
        dict->index =
            bt_tmpl_run_take(run, (size_t)dict->cap * 2, sizeof(*dict->index));
        if (dict->index == NULL) {
            return false;
        }
        dict->n_index = dict->cap * 2;
        for (uint32_t i = 0; i < dict->n; i++) {
            put_index(dict, i);
        }
    }
    return true;
}

bt_tmpl_dict_t *bt_tmpl_dict_make(bt_tmpl_run_t *run)
{
    return bt_tmpl_run_take(run, 1, sizeof(bt_tmpl_dict_t));
}

bool bt_tmpl_dict_put(bt_tmpl_run_t *run, bt_tmpl_dict_t *dict,
                      bt_tmpl_value_t key, bt_tmpl_value_t value)
{
    bt_tmpl_entry_t *entry;
    uint64_t hash;

    if (!hash_of(dict, key, &hash)) {
        return bt_tmpl_run_fail(run, BT_ERR_UNSUPPORTED, "%s cannot be a key",
                                bt_tmpl_v_kind_name(key));
    }
    entry = find(dict, key, hash);
    if (entry != NULL) {
        entry->value = value;
        return bt_tmpl_run_step(run, 1);
    }
    if ((dict->n == dict->cap) && !grow_dict(run, dict)) {
        return false;
    }
    dict->entries[dict->n] = (bt_tmpl_entry_t){key, value, hash};
    if (dict->index != NULL) {
        put_index(dict, dict->n);
    }
    dict->n++;
    return bt_tmpl_run_step(run, 1);
}

const bt_tmpl_value_t *bt_tmpl_dict_find(const bt_tmpl_dict_t *dict,
                                         bt_tmpl_value_t key)
{
    uint64_t hash;
    const bt_tmpl_entry_t *entry =
        hash_of(dict, key, &hash) ? find(dict, key, hash) : NULL;

    if (entry == NULL) {
        return NULL;
    }
    (void)bt_tmpl_entry_use(dict, (uint32_t)(entry - dict->entries));
    return &entry->value;
}

const bt_tmpl_value_t *bt_tmpl_dict_find_name(const bt_tmpl_dict_t *dict,
                                              const char *name)
{
    const bt_tmpl_text_t text = {.data = name, .len = (uint32_t)strlen(name)};

    return bt_tmpl_dict_find(dict, bt_tmpl_v_text(&text));
}

/* ---- asking ---- */

const char *bt_tmpl_v_kind_name(bt_tmpl_value_t value)
{
    static const char *const seqs[] = {"list",      "tuple",       "range",
                                       "dict_keys", "dict_values", "dict_items",
                                       "iterator"};

    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_UNDEFINED:
        return "undefined";
    case BT_V_NONE:
        return "None";
    case BT_V_BOOL:
        return "bool";
    case BT_V_INT:
    case BT_V_BIG_INT:
        return "int";
    case BT_V_FLOAT:
        return "float";
    case BT_V_TEXT:
        return "str";
    case BT_V_SEQ:
        return seqs[value.sub];
    case BT_V_DICT:
        return "dict";
    case BT_V_NAMESPACE:
        return "namespace";
    case BT_V_MACRO:
        return "macro";
    case BT_V_LOOP:
        return "loop";
    case BT_V_BUILTIN:
    case BT_V_METHOD:
    case BT_V_STATE:
        break;
    }
    return "function";
}

bool bt_tmpl_v_truth(bt_tmpl_value_t value)
{
    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_UNDEFINED:
    case BT_V_NONE:
        return false;
    case BT_V_BOOL:
        return value.u.truth;
    case BT_V_INT:
        return value.u.i != 0;
    case BT_V_FLOAT:
        return value.u.f != 0.0;
    case BT_V_TEXT:
        return value.u.text->len > 0;
    case BT_V_SEQ:
        return (value.sub == BT_SEQ_ITERATOR) || (value.u.seq->n > 0);
    case BT_V_DICT:
        return value.u.dict->n > 0;
    default:
        return true;
    }
}

static bool equal_seqs(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    const bt_tmpl_seq_t *x = a.u.seq;
    const bt_tmpl_seq_t *y = b.u.seq;

    if (x == y) {
        return true;
    }
    if ((a.sub != b.sub) || (x->n != y->n) || (a.sub > BT_SEQ_RANGE)) {
        return false;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (!bt_tmpl_v_equal(run, x->items[i], y->items[i])) {
            return false;
        }
    }
    return true;
}

static bool equal_dicts(bt_tmpl_run_t *run, const bt_tmpl_dict_t *a,
                        const bt_tmpl_dict_t *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        const bt_tmpl_value_t *other = bt_tmpl_dict_find(b, a->entries[i].key);

        if ((other == NULL) ||
            !bt_tmpl_v_equal(run, a->entries[i].value, *other)) {
            return false;
        }
    }
    return true;
}

bool bt_tmpl_v_equal(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    bool equal = false;

    if (bt_tmpl_v_is_number(a) || (a.kind == BT_V_NONE)) {
        return same_key(a, b);
    }
    if ((a.kind != b.kind) || !bt_tmpl_run_step(run, 1)) {
        return false;
    }
    switch ((bt_tmpl_kind_t)a.kind) {
    case BT_V_UNDEFINED:
        return true;
    case BT_V_TEXT:
    case BT_V_BIG_INT:
        return bt_tmpl_run_step_bytes(run, a.u.text->len) && same_key(a, b);
    case BT_V_SEQ:
    case BT_V_DICT:
        if (bt_tmpl_run_enter(run)) {
            equal = (a.kind == BT_V_SEQ) ? equal_seqs(run, a, b)
                                         : equal_dicts(run, a.u.dict, b.u.dict);
            bt_tmpl_run_leave(run);
        }
        return equal;
    case BT_V_BUILTIN:
        return a.sub == b.sub;
    default:
        return a.u.dict == b.u.dict; /* the same thing */
    }
}

static int compare_texts(const bt_tmpl_text_t *a, const bt_tmpl_text_t *b)
{
    const uint32_t n = (a->len < b->len) ? a->len : b->len;
    const int order = (n > 0) ? memcmp(a->data, b->data, n) : 0;

    return (order != 0) ? order : (a->len > b->len) - (a->len < b->len);
}

static bool is_negative(bt_tmpl_value_t big)
{
    return big.u.text->data[0] == '-';
}

/* Compares numbers, one of which at least is of over 64 bits. As JSON writes
 * them they have no zeros in front, so the longer one is the larger. Floats are
 * taken to be smaller, which those of 20 digits and more are not. */
static int compare_big(bt_tmpl_value_t a, bt_tmpl_value_t b)
{
    int order;

    if (b.kind != BT_V_BIG_INT) {
        return is_negative(a) ? -1 : 1;
    }
    if (a.kind != BT_V_BIG_INT) {
        return is_negative(b) ? 1 : -1;
    }
    if (is_negative(a) != is_negative(b)) {
        return is_negative(a) ? -1 : 1;
    }
    order = (a.u.text->len != b.u.text->len)
                ? ((a.u.text->len > b.u.text->len) ? 1 : -1)
                : compare_texts(a.u.text, b.u.text);
    return is_negative(a) ? -order : order;
}

static bool is_any_number(bt_tmpl_value_t value)
{
    return bt_tmpl_v_is_number(value) || (value.kind == BT_V_BIG_INT);
}

/* Lists, or tuples: the first items that differ decide. */
static int compare_seqs(bt_tmpl_run_t *run, const bt_tmpl_seq_t *a,
                        const bt_tmpl_seq_t *b, const char *op)
{
    int order = 0;

    if (!bt_tmpl_run_enter(run)) {
        return 0;
    }
    for (uint32_t i = 0;
         (i < a->n) && (i < b->n) && (order == 0) && bt_tmpl_run_step(run, 1);
         i++) {
        if (!bt_tmpl_v_equal(run, a->items[i], b->items[i])) {
            order = bt_tmpl_v_compare(run, a->items[i], b->items[i], op);
        }
    }
    bt_tmpl_run_leave(run);
    return (order != 0) ? order : (a->n > b->n) - (a->n < b->n);
}

int bt_tmpl_v_compare(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b,
                      const char *op)
{
    if (bt_tmpl_v_is_integer(a) && bt_tmpl_v_is_integer(b)) {
        return (bt_tmpl_v_as_int(a) > bt_tmpl_v_as_int(b)) -
               (bt_tmpl_v_as_int(a) < bt_tmpl_v_as_int(b));
    }
    if (bt_tmpl_v_is_number(a) && bt_tmpl_v_is_number(b)) {
        return (bt_tmpl_v_as_float(a) > bt_tmpl_v_as_float(b)) -
               (bt_tmpl_v_as_float(a) < bt_tmpl_v_as_float(b));
    }
    if (is_any_number(a) && is_any_number(b)) {
        return compare_big(a, b);
    }
    if ((a.kind == BT_V_TEXT) && (b.kind == BT_V_TEXT)) {
        (void)bt_tmpl_run_step_bytes(run, a.u.text->len);
        return compare_texts(a.u.text, b.u.text);
    }
    if ((a.kind == BT_V_SEQ) && (b.kind == BT_V_SEQ) && (a.sub == b.sub) &&
        (a.sub <= BT_SEQ_TUPLE)) {
        return compare_seqs(run, a.u.seq, b.u.seq, op);
    }
    if ((a.kind == BT_V_UNDEFINED) || (b.kind == BT_V_UNDEFINED)) {
        bt_tmpl_v_fail_undefined(run, (a.kind == BT_V_UNDEFINED) ? a : b);
    }
    bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                     "'%s' is not possible between %s and %s", op,
                     bt_tmpl_v_kind_name(a), bt_tmpl_v_kind_name(b));
    return 0;
}

bool bt_tmpl_v_quoted(bt_tmpl_value_t value)
{
    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_TEXT:
        return bt_tmpl_text_quoted(value.u.text);
    case BT_V_SEQ:
        return value.u.seq->quoted;
    case BT_V_DICT:
    case BT_V_NAMESPACE:
        return value.u.dict->quoted;
    default:
        return value.quoted;
    }
}

bool bt_tmpl_v_text_is(bt_tmpl_value_t value, const char *text)
{
    return (value.kind == BT_V_TEXT) && bt_tmpl_text_is(value.u.text, text);
}

void bt_tmpl_v_fail_undefined(bt_tmpl_run_t *run, bt_tmpl_value_t value)
{
    static const char *const texts[] = {
        [BT_UNDEF_NAME] = "'%.*s' is undefined",
        [BT_UNDEF_ATTRIBUTE] = "there is no attribute or element '%.*s'",
        [BT_UNDEF_UNSAFE] =
            "'%.*s' would change a value, which templates may not",
        [BT_UNDEF_PARAMETER] = "parameter '%.*s' was not provided",
        [BT_UNDEF_OTHER] = "%.*s",
    };
    const bt_tmpl_text_t *name =
        (value.u.text != NULL) ? value.u.text : &bt_tmpl_text_empty;
    const int n = (name->len < 200) ? (int)name->len : 200;
    char why[300];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(why, sizeof(why), texts[value.sub], n, name->data);
#pragma GCC diagnostic pop
    bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "%s", why);
}

/* ---- what has items ---- */

static bt_tmpl_seq_t *chars_of(bt_tmpl_run_t *run, const bt_tmpl_text_t *text)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, bt_tmpl_text_chars(text));
    uint32_t at = 0;

    while ((seq != NULL) && (at < text->len)) {
        uint32_t cp;
        const uint32_t n = bt_tmpl_text_decode(text, at, &cp);
        const bt_tmpl_text_t *one = bt_tmpl_text_slice(run, text, at, at + n);

        if ((one == NULL) || !bt_tmpl_seq_add(run, seq, bt_tmpl_v_text(one))) {
            return NULL;
        }
        at += n;
    }
    return seq;
}

static bt_tmpl_seq_t *keys_of(bt_tmpl_run_t *run, const bt_tmpl_dict_t *dict)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, dict->n);

    for (uint32_t i = 0; (seq != NULL) && (i < dict->n); i++) {
        if (!bt_tmpl_seq_add(run, seq, dict->entries[i].key)) {
            return NULL;
        }
    }
    return seq;
}

bool bt_tmpl_v_items(bt_tmpl_run_t *run, bt_tmpl_value_t value,
                     const bt_tmpl_seq_t **seq_p, uint32_t *first_p)
{
    static const bt_tmpl_seq_t none = {0};
    const bt_tmpl_seq_t *seq = NULL;
    uint32_t first = 0;

    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_UNDEFINED:
        if (value.sub == BT_UNDEF_UNSAFE) {
            bt_tmpl_v_fail_undefined(run, value);
            return false;
        }
        seq = &none;
        break;
    case BT_V_SEQ:
        seq = value.u.seq;
        if (value.sub == BT_SEQ_ITERATOR) {
            first = value.u.seq->taken;
            value.u.seq->taken = value.u.seq->n;
        }
        break;
    case BT_V_TEXT:
        seq = chars_of(run, value.u.text);
        break;
    case BT_V_DICT:
        seq = keys_of(run, value.u.dict);
        break;
    default:
        return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "%s is not iterable",
                                bt_tmpl_v_kind_name(value));
    }
    if (seq == NULL) {
        return false;
    }
    *seq_p = seq;
    *first_p = first;
    return bt_tmpl_run_ok(run);
}

bool bt_tmpl_v_length(bt_tmpl_run_t *run, bt_tmpl_value_t value, int64_t *n_p)
{
    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_UNDEFINED:
        *n_p = 0;
        return true;
    case BT_V_TEXT:
        *n_p = bt_tmpl_text_chars(value.u.text);
        return bt_tmpl_run_step_bytes(run, value.u.text->len);
    case BT_V_DICT:
        *n_p = value.u.dict->n;
        return true;
    case BT_V_LOOP:
        *n_p = bt_tmpl_loop_length(run, value.u.loop);
        return bt_tmpl_run_ok(run);
    case BT_V_SEQ:
        *n_p = value.u.seq->n;
        if (value.sub != BT_SEQ_ITERATOR) {
            return true;
        }
        break;
    default:
        break;
    }
    return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "%s has no length",
                            bt_tmpl_v_kind_name(value));
}

bool bt_tmpl_v_contains(bt_tmpl_run_t *run, bt_tmpl_value_t container,
                        bt_tmpl_value_t item)
{
    const bt_tmpl_seq_t *seq;
    uint32_t first;

    if (container.kind == BT_V_TEXT) {
        if (item.kind != BT_V_TEXT) {
            return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                    "only a str can be in a str, not %s",
                                    bt_tmpl_v_kind_name(item));
        }
        return bt_tmpl_run_step_bytes(run, container.u.text->len) &&
               (bt_tmpl_text_find(container.u.text, item.u.text, 0,
                                  container.u.text->len) != UINT32_MAX);
    }
    if (container.kind == BT_V_DICT) {
        if ((item.kind == BT_V_DICT) ||
            ((item.kind == BT_V_SEQ) && (item.sub == BT_SEQ_LIST))) {
            return bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM,
                                    "%s cannot be a key",
                                    bt_tmpl_v_kind_name(item));
        }
        if ((item.kind == BT_V_TEXT) &&
            !bt_tmpl_run_step_bytes(run, item.u.text->len)) {
            return false;
        }
        return bt_tmpl_dict_find(container.u.dict, item) != NULL;
    }
    if (!bt_tmpl_v_items(run, container, &seq, &first)) {
        return false;
    }
    for (uint32_t i = first; (i < seq->n) && bt_tmpl_run_step(run, 1); i++) {
        if (bt_tmpl_v_equal(run, seq->items[i], item)) {
            if ((container.kind == BT_V_SEQ) &&
                (container.sub == BT_SEQ_ITERATOR)) {
                container.u.seq->taken = i + 1;
            }
            return true;
        }
    }
    return false;
}
