/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Constraints of arrays. */

#define MAX_CHECKED 64u /* elements of which emptiness is looked at */

static uint32_t max_of(uint32_t a, uint32_t b)
{
    return (a > b) ? a : b;
}

static uint32_t min_of(uint32_t a, uint32_t b)
{
    return (a < b) ? a : b;
}

schema_array_t schema_any_array(schema_t *s)
{
    return (schema_array_t){.rest = s->any, .max = SCHEMA_NO_LIMIT};
}

static schema_array_t *new_array(schema_t *s)
{
    schema_array_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));

    if (x != NULL) {
        *x = schema_any_array(s);
    }
    return x;
}

schema_term_t *schema_element(const schema_array_t *a, uint32_t index)
{
    return (index < a->n_prefix) ? a->prefix[index] : a->rest;
}

/* ---- and ---- */

static void and_contains(schema_t *s, const schema_array_t *a,
                         const schema_array_t *b, schema_array_t *x)
{
    schema_contains_t *all = bt_grammar_alloc(
        s->c, (size_t)a->n_contains + b->n_contains + 1, sizeof(*all));

    if (all == NULL) {
        return;
    }
    for (uint32_t i = 0; i < a->n_contains; i++) {
        all[x->n_contains++] = a->contains[i];
    }
    for (uint32_t i = 0; i < b->n_contains; i++) {
        bool is_new = true;

        for (uint32_t k = 0; is_new && (k < a->n_contains); k++) {
            is_new = (all[k].term != b->contains[i].term) ||
                     (all[k].min != b->contains[i].min) ||
                     (all[k].max != b->contains[i].max) ||
                     (all[k].from != b->contains[i].from);
        }
        if (is_new) {
            all[x->n_contains++] = b->contains[i];
        }
    }
    x->contains = all;
}

/* True where an element that must be there cannot, told from those terms that
 * are new in x. */
static bool lacks_element(schema_t *s, const schema_array_t *x,
                          const schema_array_t *a, const schema_array_t *b)
{
    for (uint32_t i = 0;
         (i < x->min) && (i <= x->n_prefix) && (i < MAX_CHECKED); i++) {
        schema_term_t *const term = schema_element(x, i);

        if ((term != schema_element(a, i)) && (term != schema_element(b, i)) &&
            schema_is_empty(s, term)) {
            return true;
        }
    }
    return false;
}

const void *schema_array_and(schema_t *s, const void *one, const void *other)
{
    const schema_array_t *const a = one;
    const schema_array_t *const b = other;
    schema_array_t *const x = new_array(s);
    const uint32_t n = max_of(a->n_prefix, b->n_prefix);

    if ((a == b) || (x == NULL) || !bt_grammar_spend(s->c, 1 + (uint64_t)n)) {
        return (x == NULL) ? NULL : a;
    }
    x->min = max_of(a->min, b->min);
    x->max = min_of(a->max, b->max);
    x->prefix = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*x->prefix));
    if ((x->min > x->max) || (x->prefix == NULL)) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        x->prefix[i] =
            schema_term_and(s, schema_element(a, i), schema_element(b, i));
    }
    x->n_prefix = n;
    x->rest = schema_term_and(s, a->rest, b->rest);
    x->unique = (a->unique != NULL) ? a->unique : b->unique;
    x->n_evaluated = max_of(a->n_evaluated, b->n_evaluated);
    and_contains(s, a, b, x);
    if (!bt_grammar_ok(s->c) || lacks_element(s, x, a, b)) {
        return NULL;
    }
    return x;
}

/* ---- not ---- */

static void add_bounds(schema_t *s, uint32_t min, uint32_t max,
                       schema_list_t *out)
{
    schema_array_t *x = new_array(s);

    if (x != NULL) {
        x->min = min;
        x->max = max;
        schema_list_add(s, out, x);
    }
}

static void add_contains(schema_t *s, schema_contains_t contains,
                         schema_list_t *out)
{
    schema_array_t *x = new_array(s);
    schema_contains_t *copy = bt_grammar_alloc(s->c, 1, sizeof(*copy));

    if ((x != NULL) && (copy != NULL)) {
        *copy = contains;
        x->contains = copy;
        x->n_contains = 1;
        schema_list_add(s, out, x);
    }
}

/* Adds arrays whose element of this index does not satisfy a term. */
static void add_wrong_element(schema_t *s, uint32_t index,
                              const schema_term_t *term, schema_list_t *out)
{
    if (term->is_nothing) {
        add_bounds(s, index + 1, SCHEMA_NO_LIMIT, out);
    }
    for (uint32_t i = 0; (i < term->n) && bt_grammar_ok(s->c); i++) {
        schema_array_t *x = new_array(s);

        if (x == NULL) {
            return;
        }
        x->prefix =
            bt_grammar_alloc(s->c, (size_t)index + 1, sizeof(*x->prefix));
        if (x->prefix == NULL) {
            return;
        }
        for (uint32_t k = 0; k < index; k++) {
            x->prefix[k] = s->any;
        }
        x->prefix[index] = schema_term_not(s, &term->literals[i]);
        x->n_prefix = x->min = index + 1;
        schema_list_add(s, out, x);
    }
}

const schema_refusal_t *schema_array_not(schema_t *s, const void *one,
                                         const bt_json_node_t *at,
                                         schema_list_t *out)
{
    const schema_array_t *const a = one;

    if (a->unique != NULL) {
        return schema_refusal(s, at, "uniqueItems cannot be negated", 0, 0);
    }
    if (a->min > 0) {
        add_bounds(s, 0, a->min - 1, out);
    }
    if (a->max != SCHEMA_NO_LIMIT) {
        add_bounds(s, a->max + 1, SCHEMA_NO_LIMIT, out);
    }
    for (uint32_t i = 0; (i < a->n_prefix) && bt_grammar_ok(s->c); i++) {
        add_wrong_element(s, i, a->prefix[i], out);
    }
    if (a->rest->is_nothing && (a->max > a->n_prefix)) {
        add_bounds(s, a->n_prefix + 1, SCHEMA_NO_LIMIT, out);
    }
    for (uint32_t i = 0; (i < a->rest->n) && bt_grammar_ok(s->c); i++) {
        add_contains(s,
                     (schema_contains_t){
                         .term = schema_term_not(s, &a->rest->literals[i]),
                         .min = 1,
                         .max = SCHEMA_NO_LIMIT,
                         .from = a->n_prefix,
                         .at = at},
                     out);
    }
    for (uint32_t i = 0; (i < a->n_contains) && bt_grammar_ok(s->c); i++) {
        schema_contains_t c = a->contains[i];

        c.at = at;
        if (a->contains[i].min > 0) {
            c.min = 0;
            c.max = a->contains[i].min - 1;
            add_contains(s, c, out);
        }
        if (a->contains[i].max != SCHEMA_NO_LIMIT) {
            c.min = a->contains[i].max + 1;
            c.max = SCHEMA_NO_LIMIT;
            add_contains(s, c, out);
        }
    }
    return NULL;
}

/* ---- emptiness ---- */

/* True where no element can satisfy a term. */
static bool none_satisfies(schema_t *s, const schema_array_t *a, uint32_t max,
                           const schema_contains_t *c)
{
    const uint32_t n = min_of(a->n_prefix, max);

    if (n > MAX_CHECKED) {
        return false;
    }
    for (uint32_t i = c->from; i < n; i++) {
        if (!schema_is_empty(s, schema_term_and(s, a->prefix[i], c->term))) {
            return false;
        }
    }
    return (max <= n) ||
           schema_is_empty(s, schema_term_and(s, a->rest, c->term));
}

bool schema_array_is_empty(schema_t *s, const void *one)
{
    const schema_array_t *const a = one;
    uint32_t max = a->max;

    for (uint32_t i = 0; (i < a->n_prefix) && (i < MAX_CHECKED) && (i < max);
         i++) {
        if (schema_is_empty(s, a->prefix[i])) {
            max = i;
        }
    }
    if ((max > a->n_prefix) && schema_is_empty(s, a->rest)) {
        max = a->n_prefix;
    }
    if (a->min > max) {
        return true;
    }
    for (uint32_t i = 0; i < a->n_contains; i++) {
        const schema_contains_t *const c = &a->contains[i];

        if ((c->min > c->max) ||
            ((max != SCHEMA_NO_LIMIT) && ((uint64_t)c->from + c->min > max) &&
             (c->min > 0)) ||
            ((c->min > 0) && none_satisfies(s, a, max, c))) {
            return true;
        }
    }
    return false;
}

/* ---- keywords ---- */

static void read_count(schema_t *s, const bt_json_node_t *schema,
                       const char *key, uint32_t *n_p)
{
    const bt_json_node_t *const value = bt_json_get(s->doc, schema, key);

    if (value != NULL) {
        (void)schema_read_count(s, value, n_p);
    }
}

/* Reads a list of schemas for the first elements. */
static void read_prefix(schema_t *s, const bt_json_node_t *list,
                        schema_array_t *x)
{
    const bt_json_node_t *node = (list->n > 0) ? bt_json_first(list) : NULL;

    x->prefix = bt_grammar_alloc(s->c, (size_t)list->n + 1, sizeof(*x->prefix));
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        if (!schema_check_schema(s, node)) {
            return;
        }
        x->prefix[i] = schema_term_of(s, node);
        node = bt_json_next(s->doc, node);
    }
    x->n_prefix = x->n_evaluated = list->n;
}

static void read_items(schema_t *s, const bt_json_node_t *schema,
                       schema_array_t *x)
{
    const bool is_2020 = schema_draft_of(s, schema) >= SCHEMA_DRAFT_2020;
    const bt_json_node_t *const prefix =
        is_2020 ? bt_json_get(s->doc, schema, "prefixItems") : NULL;
    const bt_json_node_t *rest = bt_json_get(s->doc, schema, "items");

    if (prefix != NULL) {
        if (!bt_json_is_kind(prefix, BT_JSON_ARRAY)) {
            schema_fail(s, BT_ERR_INVALID_PARAM, prefix,
                        "must be a list of schemas");
            return;
        }
        read_prefix(s, prefix, x);
    } else if (bt_json_is_kind(rest, BT_JSON_ARRAY)) { /* before 2020-12 */
        read_prefix(s, rest, x);
        rest = bt_json_get(s->doc, schema, "additionalItems");
    }
    if ((rest != NULL) && schema_check_schema(s, rest)) {
        x->rest = schema_term_of(s, rest);
        x->n_evaluated = SCHEMA_NO_LIMIT;
    }
}

static void read_contains(schema_t *s, const bt_json_node_t *schema,
                          schema_array_t *x)
{
    const bool has_bounds = schema_draft_of(s, schema) >= SCHEMA_DRAFT_2019;
    const bt_json_node_t *const value = bt_json_get(s->doc, schema, "contains");
    schema_contains_t *c = bt_grammar_alloc(s->c, 1, sizeof(*c));

    if ((value == NULL) || (c == NULL) || !schema_check_schema(s, value) ||
        (schema_draft_of(s, schema) < SCHEMA_DRAFT_6)) {
        return;
    }
    c->at = value;
    c->min = 1;
    c->max = SCHEMA_NO_LIMIT;
    if (has_bounds) {
        read_count(s, schema, "minContains", &c->min);
        read_count(s, schema, "maxContains", &c->max);
    }
    c->term = schema_term_of(s, value);
    x->contains = c;
    x->n_contains = 1;
}

const schema_set_t *schema_on_arrays(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *const unique =
        bt_json_get(s->doc, schema, "uniqueItems");
    schema_array_t *x = new_array(s);
    schema_set_t *set = schema_set_new_all(s);

    if ((x == NULL) || (set == NULL)) {
        return NULL;
    }
    if ((unique != NULL) && !bt_json_is_bool(unique)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, unique, "must be true or false");
        return NULL;
    }
    x->unique = bt_json_is_kind(unique, BT_JSON_TRUE) ? unique : NULL;
    read_items(s, schema, x);
    read_count(s, schema, "minItems", &x->min);
    read_count(s, schema, "maxItems", &x->max);
    read_contains(s, schema, x);
    if (!bt_grammar_ok(s->c)) {
        return NULL;
    }
    schema_set_list(s, set, SCHEMA_ARRAYS, x);
    if (x->min > x->max) {
        set->lists[SCHEMA_LIST_OF(SCHEMA_ARRAYS)].n = 0;
    }
    return set;
}

/* Applies a schema to the elements that others have not evaluated. */
static const schema_array_t *evaluate(schema_t *s, const schema_array_t *a,
                                      schema_term_t *term)
{
    schema_array_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));
    uint32_t n = a->n_prefix;

    if (a->n_evaluated == SCHEMA_NO_LIMIT) {
        return a;
    }
    n = max_of(n, a->n_evaluated);
    if (x == NULL) {
        return NULL;
    }
    *x = *a;
    x->prefix = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*x->prefix));
    for (uint32_t i = 0; (i < n) && bt_grammar_ok(s->c); i++) {
        x->prefix[i] = (i < a->n_evaluated)
                           ? schema_element(a, i)
                           : schema_term_and(s, schema_element(a, i), term);
    }
    x->n_prefix = n;
    x->rest = schema_term_and(s, a->rest, term);
    x->n_evaluated = SCHEMA_NO_LIMIT;
    return x;
}

const schema_set_t *schema_on_unevaluated_items(schema_t *s,
                                                const schema_set_t *x,
                                                const bt_json_node_t *value)
{
    const uint32_t kind = SCHEMA_LIST_OF(SCHEMA_ARRAYS);
    schema_term_t *term =
        schema_check_schema(s, value) ? schema_term_of(s, value) : NULL;
    schema_set_t *out = bt_grammar_alloc(s->c, 1, sizeof(*out));

    if ((x == NULL) || (out == NULL) || (term == NULL)) {
        return NULL;
    }
    *out = *x;
    out->lists[kind] = (schema_list_t){.is_part = x->lists[kind].is_part ||
                                                  (x->lists[kind].n > 1)};
    for (uint32_t i = 0; (i < x->lists[kind].n) && bt_grammar_ok(s->c); i++) {
        const schema_array_t *const a = x->lists[kind].items[i];

        if ((a->n_contains > 0) && (term != s->any) &&
            (a->n_evaluated != SCHEMA_NO_LIMIT) &&
            (schema_draft_of(s, value) >= SCHEMA_DRAFT_2020)) {
            schema_set_refuse(
                out, SCHEMA_ARRAYS,
                schema_refusal(s, value,
                               "beside contains this is not supported", 0, 0));
        }
        schema_list_add(s, &out->lists[kind], evaluate(s, a, term));
    }
    return out;
}
