/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Operations of sets. */

#define MAX_PAIRS 4096u /* of alternatives that are compared for a oneOf */

/* Operations of the alternatives of arrays and of objects. */
static const struct {
    /* Returns NULL where both have no value in common, too. */
    const void *(*and)(schema_t *s, const void *one, const void *other);
    const schema_refusal_t *(*not )(schema_t *s, const void *one,
                                    const bt_json_node_t *at,
                                    schema_list_t *out);
    bool (*is_empty)(schema_t *s, const void *one);
} kinds[] = {
    {schema_array_and, schema_array_not, schema_array_is_empty},
    {schema_object_and, schema_object_not, schema_object_is_empty},
};

/* ---- making sets ---- */

schema_set_t *schema_set_new(schema_t *s)
{
    schema_set_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));

    if (x != NULL) {
        *x = *s->none;
    }
    return x;
}

schema_set_t *schema_set_new_all(schema_t *s)
{
    schema_set_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));

    if (x != NULL) {
        *x = *s->all;
    }
    return x;
}

void schema_list_add(schema_t *s, schema_list_t *list, const void *one)
{
    const void **items;

    if ((one == NULL) || !bt_grammar_spend(s->c, 1)) {
        return;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i] == one) {
            return;
        }
    }
    if (list->n == SCHEMA_MAX_ALTERNATIVES) {
        bt_grammar_fail(s->c, BT_ERR_TOO_LARGE,
                        "the schema has more than %u combinations of "
                        "alternatives for one value",
                        SCHEMA_MAX_ALTERNATIVES);
        return;
    }
    /* Lists share their items, but a longer one never those behind. */
    items = bt_grammar_alloc(s->c, (size_t)list->n + 1, sizeof(*items));
    if (items == NULL) {
        return;
    }
    if (list->n > 0) {
        memcpy(items, list->items, list->n * sizeof(*items));
    }
    items[list->n++] = one;
    list->items = items;
}

void schema_set_list(schema_t *s, schema_set_t *x, schema_type_t type,
                     const void *one)
{
    schema_list_t *const list = &x->lists[SCHEMA_LIST_OF(type)];

    *list = (schema_list_t){0};
    schema_list_add(s, list, one);
}

void schema_set_numbers(schema_set_t *x, const bt_dfa_t *dfa)
{
    x->numbers = dfa;
}

void schema_set_strings(schema_set_t *x, schema_strings_t strings)
{
    x->strings = x->widest = strings;
}

void schema_set_refuse(schema_set_t *x, schema_type_t type,
                       const schema_refusal_t *why)
{
    x->refused[type] = why;
}

void schema_sets_init(schema_t *s)
{
    static const bt_dfa_t empty = {0};
    schema_array_t *array = bt_grammar_alloc(s->c, 1, sizeof(*array));
    schema_object_t *object = bt_grammar_alloc(s->c, 1, sizeof(*object));
    schema_set_t *none = bt_grammar_alloc(s->c, 1, sizeof(*none));
    schema_set_t *all = bt_grammar_alloc(s->c, 1, sizeof(*all));

    if ((array == NULL) || (object == NULL) || (none == NULL) ||
        (all == NULL)) {
        return;
    }
    none->numbers = &empty;
    *array = schema_any_array(s);
    *object = schema_any_object(s);
    all->has_null = all->has_false = all->has_true = true;
    all->numbers = schema_decimals(s);
    schema_set_strings(all, schema_any_string(s));
    schema_set_list(s, all, SCHEMA_ARRAYS, array);
    schema_set_list(s, all, SCHEMA_OBJECTS, object);
    all->lists[0].is_all = all->lists[1].is_all = true;
    s->none = none;
    s->all = all;
}

/* ---- what a set has ---- */

/* True where a set may have values of a type. */
static bool has_type(const schema_set_t *x, schema_type_t type)
{
    if (x->refused[type] != NULL) {
        return true;
    }
    switch (type) {
    case SCHEMA_NUMBERS:
        return !schema_dfa_is_empty(x->numbers);
    case SCHEMA_STRINGS:
        return x->widest.n > 0;
    case SCHEMA_ARRAYS:
    case SCHEMA_OBJECTS:
    case SCHEMA_N_TYPES:
        break;
    }
    return x->lists[SCHEMA_LIST_OF(type)].n > 0;
}

bool schema_set_is_empty(schema_t *s, const schema_set_t *x)
{
    if (x->has_null || x->has_false || x->has_true ||
        has_type(x, SCHEMA_NUMBERS) || has_type(x, SCHEMA_STRINGS)) {
        return false;
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        const schema_list_t *const list = &x->lists[kind];

        if (x->refused[SCHEMA_ARRAYS + kind] != NULL) {
            return false;
        }
        for (uint32_t i = 0; i < list->n; i++) {
            if (!kinds[kind].is_empty(s, list->items[i])) {
                return false;
            }
        }
    }
    return bt_grammar_ok(s->c);
}

/* ---- and ---- */

static bool share_strings(const schema_set_t *x)
{
    return (x->strings.items == x->widest.items) &&
           (x->strings.n == x->widest.n);
}

static schema_list_t list_and(schema_t *s, uint32_t kind,
                              const schema_list_t *a, const schema_list_t *b)
{
    schema_list_t out = {.is_part = a->is_part || b->is_part};

    if (a->is_all || b->is_all) {
        return a->is_all ? *b : *a;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t k = 0; (k < b->n) && bt_grammar_spend(s->c, 2); k++) {
            schema_list_add(s, &out,
                            kinds[kind].and (s, a->items[i], b->items[k]));
        }
    }
    return out;
}

/* Refuses types that one side refuses, unless the other has none of them. */
static void and_refused(const schema_set_t *a, const schema_set_t *b,
                        schema_set_t *x)
{
    for (uint32_t t = 0; t < SCHEMA_N_TYPES; t++) {
        if (has_type(a, t) && has_type(b, t)) {
            x->refused[t] =
                (a->refused[t] != NULL) ? a->refused[t] : b->refused[t];
        }
    }
}

const schema_set_t *schema_set_and(schema_t *s, const schema_set_t *a,
                                   const schema_set_t *b)
{
    schema_set_t *x = bt_grammar_ok(s->c) ? schema_set_new(s) : NULL;

    if ((x == NULL) || (a == NULL) || (b == NULL)) {
        return NULL;
    }
    if ((a == s->all) || (b == s->all)) {
        return (a == s->all) ? b : a;
    }
    x->has_null = a->has_null && b->has_null;
    x->has_false = a->has_false && b->has_false;
    x->has_true = a->has_true && b->has_true;
    and_refused(a, b, x);
    if (has_type(a, SCHEMA_NUMBERS) && has_type(b, SCHEMA_NUMBERS)) {
        x->numbers = bt_dfa_combine(s->c, BT_DFA_AND, a->numbers, b->numbers);
        x->has_integers = a->has_integers || b->has_integers;
    }
    x->strings = x->widest = schema_strings_and(s, a->strings, b->strings);
    if (!share_strings(a) || !share_strings(b)) {
        x->widest = schema_strings_and(s, a->widest, b->widest);
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        if (x->refused[SCHEMA_ARRAYS + kind] == NULL) {
            x->lists[kind] =
                list_and(s, kind, &a->lists[kind], &b->lists[kind]);
        }
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- or ---- */

/* True where alternatives say which members or elements they evaluate. */
static bool has_evaluated(uint32_t kind, const schema_list_t *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const schema_object_t *const object = list->items[i];

        if (kind == SCHEMA_LIST_OF(SCHEMA_ARRAYS)) {
            if (((const schema_array_t *)list->items[i])->n_evaluated > 0) {
                return true;
            }
            continue;
        }
        for (uint32_t k = 0; k < object->n_members; k++) {
            if (object->members[k].is_evaluated) {
                return true;
            }
        }
        for (uint32_t k = 0; k < object->n_classes; k++) {
            if (object->classes[k].is_evaluated) {
                return true;
            }
        }
    }
    return false;
}

static schema_list_t list_or(schema_t *s, uint32_t kind, const schema_list_t *a,
                             const schema_list_t *b)
{
    schema_list_t out = *a;

    if ((a->is_all && !has_evaluated(kind, b)) ||
        (b->is_all && !has_evaluated(kind, a))) {
        return a->is_all ? *a : *b;
    }
    out.is_all = false;
    out.is_part = a->is_part || b->is_part;
    for (uint32_t i = 0; (i < b->n) && bt_grammar_ok(s->c); i++) {
        schema_list_add(s, &out, b->items[i]);
    }
    return out;
}

/* True where a set has all arrays, or all objects, for sure. */
static bool has_all(const schema_set_t *x, uint32_t kind)
{
    return x->lists[kind].is_all && (x->refused[SCHEMA_ARRAYS + kind] == NULL);
}

static void or_numbers(schema_t *s, const schema_set_t *a,
                       const schema_set_t *b, schema_set_t *x)
{
    const schema_set_t *const more = a->has_integers ? b : a;

    x->numbers = bt_dfa_combine(s->c, BT_DFA_OR, a->numbers, b->numbers);
    x->has_integers = (a->has_integers || b->has_integers) &&
                      (more->has_integers || (x->numbers == NULL) ||
                       !schema_dfa_equal(x->numbers, more->numbers));
}

const schema_set_t *schema_set_or(schema_t *s, const schema_set_t *a,
                                  const schema_set_t *b)
{
    schema_set_t *x = bt_grammar_ok(s->c) ? schema_set_new(s) : NULL;

    if ((x == NULL) || (a == NULL) || (b == NULL)) {
        return NULL;
    }
    if ((a == s->none) || (b == s->none)) {
        return (a == s->none) ? b : a;
    }
    x->has_null = a->has_null || b->has_null;
    x->has_false = a->has_false || b->has_false;
    x->has_true = a->has_true || b->has_true;
    for (uint32_t t = 0; t < SCHEMA_N_TYPES; t++) {
        x->refused[t] = (a->refused[t] != NULL) ? a->refused[t] : b->refused[t];
    }
    or_numbers(s, a, b, x);
    x->strings = x->widest = schema_strings_or(s, a->strings, b->strings);
    if (!share_strings(a) || !share_strings(b)) {
        x->widest = schema_strings_or(s, a->widest, b->widest);
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        x->lists[kind] = list_or(s, kind, &a->lists[kind], &b->lists[kind]);
        if (has_all(a, kind) || has_all(b, kind)) {
            x->refused[SCHEMA_ARRAYS + kind] = NULL;
        }
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- minus ---- */

/* True where two alternatives have no value in common. */
static bool are_disjoint(schema_t *s, uint32_t kind, const void *a,
                         const void *b)
{
    const void *const both = kinds[kind].and (s, a, b);

    return (both == NULL) || kinds[kind].is_empty(s, both);
}

/* Takes the values of one alternative from a list.
 * @return why that cannot be held; NULL: done */
static const schema_refusal_t *minus_one(schema_t *s, uint32_t kind,
                                         schema_list_t *list, const void *other,
                                         const bt_json_node_t *at)
{
    const schema_refusal_t *why = NULL;
    schema_list_t rest = {0}; /* what is not in the other */
    schema_list_t out = {.is_part = list->is_part};

    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        if (!list->is_all && are_disjoint(s, kind, list->items[i], other)) {
            schema_list_add(s, &out, list->items[i]);
            continue;
        }
        if (rest.n == 0) {
            why = kinds[kind].not(s, other, at, &rest);
        }
        if (why != NULL) {
            return why;
        }
        for (uint32_t k = 0; (k < rest.n) && bt_grammar_spend(s->c, 2); k++) {
            schema_list_add(s, &out,
                            kinds[kind].and (s, list->items[i], rest.items[k]));
        }
    }
    *list = out;
    return NULL;
}

static const schema_refusal_t *list_minus(schema_t *s, uint32_t kind,
                                          schema_list_t *list,
                                          const schema_list_t *other,
                                          const bt_json_node_t *at)
{
    if (other->is_all || (list->n == 0)) {
        *list = (schema_list_t){0};
        return NULL;
    }
    if (other->is_part && (other->n > 0)) {
        return schema_refusal(s, at, "this cannot be negated", 0, 0);
    }
    for (uint32_t i = 0; (i < other->n) && bt_grammar_ok(s->c); i++) {
        const schema_refusal_t *const why =
            minus_one(s, kind, list, other->items[i], at);

        if (why != NULL) {
            return why;
        }
    }
    return NULL;
}

const schema_set_t *schema_set_minus(schema_t *s, const schema_set_t *a,
                                     const schema_set_t *b,
                                     const bt_json_node_t *at)
{
    schema_set_t *x = bt_grammar_ok(s->c) ? schema_set_new(s) : NULL;

    if ((x == NULL) || (a == NULL) || (b == NULL)) {
        return NULL;
    }
    *x = *a;
    x->has_null = a->has_null && !b->has_null;
    x->has_false = a->has_false && !b->has_false;
    x->has_true = a->has_true && !b->has_true;
    x->numbers = bt_dfa_combine(s->c, BT_DFA_MINUS, a->numbers, b->numbers);
    x->has_integers = a->has_integers || b->has_integers;
    if (b->widest.n > 0) {
        x->strings =
            schema_strings_and(s, a->strings, schema_strings_not(s, b->widest));
        x->widest = x->strings;
        if (!share_strings(a) || !share_strings(b)) {
            x->widest = schema_strings_and(s, a->widest,
                                           schema_strings_not(s, b->strings));
        }
    }
    for (uint32_t t = 0; t < SCHEMA_N_TYPES; t++) {
        if (has_type(a, t) && (b->refused[t] != NULL)) {
            x->refused[t] = b->refused[t];
        }
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        const uint32_t type = SCHEMA_ARRAYS + kind;

        if ((x->refused[type] == NULL) && (b->lists[kind].n > 0)) {
            x->refused[type] =
                list_minus(s, kind, &x->lists[kind], &b->lists[kind], at);
        }
        if (x->refused[type] != NULL) { /* a part of a list must not stay */
            x->lists[kind] = (schema_list_t){0};
        }
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- oneOf ---- */

static const bt_dfa_t *
one_of_numbers(schema_t *s, const schema_set_t *const *sets, uint32_t n)
{
    const bt_dfa_t *once = s->none->numbers;
    const bt_dfa_t *twice = s->none->numbers;

    for (uint32_t i = 0; (i < n) && bt_grammar_ok(s->c); i++) {
        const bt_dfa_t *const both =
            bt_dfa_combine(s->c, BT_DFA_AND, once, sets[i]->numbers);

        twice = bt_dfa_combine(s->c, BT_DFA_OR, twice, both);
        once = bt_dfa_combine(s->c, BT_DFA_OR, once, sets[i]->numbers);
    }
    return bt_dfa_combine(s->c, BT_DFA_MINUS, once, twice);
}

/* Strings that are surely in one set, and perhaps in no other. */
static void one_of_strings(schema_t *s, const schema_set_t *const *sets,
                           uint32_t n, schema_set_t *x)
{
    schema_strings_t once = {0};
    schema_strings_t twice = {0};
    schema_strings_t once_widest = {0};
    schema_strings_t twice_widest = {0};

    for (uint32_t i = 0; (i < n) && bt_grammar_ok(s->c); i++) {
        twice = schema_strings_or(
            s, twice, schema_strings_and(s, once, sets[i]->strings));
        twice_widest = schema_strings_or(
            s, twice_widest,
            schema_strings_and(s, once_widest, sets[i]->widest));
        once = schema_strings_or(s, once, sets[i]->strings);
        once_widest = schema_strings_or(s, once_widest, sets[i]->widest);
    }
    if (twice_widest.n > 0) {
        once = schema_strings_and(s, once, schema_strings_not(s, twice_widest));
    }
    if (twice.n > 0) {
        once_widest =
            schema_strings_and(s, once_widest, schema_strings_not(s, twice));
    }
    x->strings = once;
    x->widest = once_widest;
}

static bool lists_are_disjoint(schema_t *s, uint32_t kind,
                               const schema_list_t *a, const schema_list_t *b)
{
    if ((uint64_t)a->n * b->n > MAX_PAIRS) {
        return false;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t k = 0; k < b->n; k++) {
            if (!bt_grammar_spend(s->c, 2)) {
                return true;
            }
            if (!are_disjoint(s, kind, a->items[i], b->items[k])) {
                return false;
            }
        }
    }
    return true;
}

/* Writes the arrays, or objects, that are in exactly one of the sets. */
static void one_of_lists(schema_t *s, const schema_set_t *const *sets,
                         uint32_t n, uint32_t kind, const bt_json_node_t *at,
                         schema_set_t *x)
{
    const uint32_t type = SCHEMA_ARRAYS + kind;
    schema_list_t out = {0};

    for (uint32_t i = 0; (i < n) && bt_grammar_ok(s->c); i++) {
        schema_list_t own = sets[i]->lists[kind];

        if (!has_type(sets[i], type)) {
            continue;
        }
        for (uint32_t k = 0; (k < n) && bt_grammar_ok(s->c); k++) {
            const schema_refusal_t *why = NULL;

            if ((k == i) || !has_type(sets[k], type)) {
                continue;
            }
            if ((sets[i]->refused[type] != NULL) ||
                (sets[k]->refused[type] != NULL) || own.is_part ||
                sets[k]->lists[kind].is_part) {
                why = schema_refusal(s, at, "", 0, 0);
            } else if (!lists_are_disjoint(s, kind, &own,
                                           &sets[k]->lists[kind])) {
                why = list_minus(s, kind, &own, &sets[k]->lists[kind], at);
            }
            if (why != NULL) {
                x->refused[type] = schema_refusal(
                    s, at, "branches %u and %u cannot be told apart",
                    (i < k) ? i : k, (i < k) ? k : i);
                return;
            }
        }
        if (sets[i]->refused[type] != NULL) {
            x->refused[type] = sets[i]->refused[type];
            return;
        }
        out = list_or(s, kind, &out, &own);
    }
    x->lists[kind] = out;
}

const schema_set_t *schema_one_of(schema_t *s, const schema_set_t *const *sets,
                                  uint32_t n, const bt_json_node_t *at)
{
    schema_set_t *x = bt_grammar_ok(s->c) ? schema_set_new(s) : NULL;
    uint32_t n_null = 0;
    uint32_t n_false = 0;
    uint32_t n_true = 0;

    if (x == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        n_null += sets[i]->has_null ? 1 : 0;
        n_false += sets[i]->has_false ? 1 : 0;
        n_true += sets[i]->has_true ? 1 : 0;
        for (uint32_t t = SCHEMA_NUMBERS; t <= SCHEMA_STRINGS; t++) {
            if (sets[i]->refused[t] != NULL) {
                x->refused[t] = sets[i]->refused[t];
            }
        }
    }
    x->has_null = n_null == 1;
    x->has_false = n_false == 1;
    x->has_true = n_true == 1;
    x->numbers = one_of_numbers(s, sets, n);
    for (uint32_t i = 0; i < n; i++) {
        x->has_integers = x->has_integers || sets[i]->has_integers;
    }
    one_of_strings(s, sets, n, x);
    one_of_lists(s, sets, n, 0, at, x);
    one_of_lists(s, sets, n, 1, at, x);
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- one value ---- */

static void set_array_value(schema_t *s, const bt_json_node_t *value,
                            schema_set_t *x)
{
    schema_array_t *array = bt_grammar_alloc(s->c, 1, sizeof(*array));
    const bt_json_node_t *node;

    if (array == NULL) {
        return;
    }
    *array = schema_any_array(s);
    array->prefix =
        bt_grammar_alloc(s->c, (size_t)value->n + 1, sizeof(*array->prefix));
    array->rest = s->nothing;
    array->n_prefix = array->min = array->max = value->n;
    node = (value->n > 0) ? bt_json_first(value) : NULL;
    for (uint32_t i = 0; (i < value->n) && bt_grammar_spend(s->c, 1); i++) {
        array->prefix[i] = schema_term_of_value(s, node);
        node = bt_json_next(s->doc, node);
    }
    schema_set_list(s, x, SCHEMA_ARRAYS, array);
}

static void set_object_value(schema_t *s, const bt_json_node_t *value,
                             schema_set_t *x)
{
    schema_object_t *object = bt_grammar_alloc(s->c, 1, sizeof(*object));
    schema_member_t *members =
        bt_grammar_alloc(s->c, (size_t)value->n + 1, sizeof(*members));
    schema_names_t *rest = bt_grammar_alloc(s->c, 1, sizeof(*rest));
    const bt_json_node_t *key = (value->n > 0) ? bt_json_first(value) : NULL;
    uint32_t n = 0;

    if ((object == NULL) || (members == NULL) || (rest == NULL)) {
        return;
    }
    *object = schema_any_object(s);
    rest->term = s->nothing;
    for (uint32_t i = 0; (i < value->n) && bt_grammar_spend(s->c, 1); i++) {
        if (bt_json_counts(key)) {
            members[n++] =
                (schema_member_t){.name = key->text,
                                  .len = key->len,
                                  .is_required = true,
                                  .term = schema_term_of_value(s, key + 1)};
        }
        key = bt_json_next(s->doc, key + 1);
    }
    object->members = members;
    object->n_members = n;
    object->classes = rest;
    schema_set_list(s, x, SCHEMA_OBJECTS, object);
}

const schema_set_t *schema_set_of_value(schema_t *s,
                                        const bt_json_node_t *value)
{
    schema_set_t *x = schema_set_new(s);
    const char *text;
    uint32_t len = 0;
    size_t n;

    if (x == NULL) {
        return NULL;
    }
    switch ((bt_json_kind_t)value->kind) {
    case BT_JSON_NULL:
        x->has_null = true;
        break;
    case BT_JSON_FALSE:
        x->has_false = true;
        break;
    case BT_JSON_TRUE:
        x->has_true = true;
        break;
    case BT_JSON_NUMBER:
        text = schema_number_text(s, value, &len);
        n = len;
        x->numbers =
            (text != NULL) ? bt_dfa_of_texts(s->c, &text, &n, 1) : NULL;
        break;
    case BT_JSON_STRING:
        n = value->len;
        schema_set_strings(
            x, schema_strings_of(s, bt_dfa_of_texts(s->c, &value->text, &n, 1),
                                 0, SCHEMA_NO_LIMIT));
        break;
    case BT_JSON_ARRAY:
        set_array_value(s, value, x);
        break;
    case BT_JSON_OBJECT:
        set_object_value(s, value, x);
        break;
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}
