/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Keywords of objects. */

/* Names of few bytes that are compared in the time of a step. */
#define COMPARED_PER_STEP 4

/* ---- patternProperties, additionalProperties ---- */

/* Splits the classes of names by a pattern: those in it have one more schema.
 * A class that a pattern has matched is marked as evaluated. */
static void split(schema_t *s, schema_object_t *x, const bt_dfa_t *names,
                  schema_term_t *term)
{
    schema_object_t out = *x;

    out.n_classes = 0;
    for (uint32_t i = 0; (i < x->n_classes) && bt_grammar_ok(s->c); i++) {
        const schema_names_t *const one = &x->classes[i];
        const bt_dfa_t *const all =
            (one->names != NULL) ? one->names : schema_any_text(s);
        schema_names_t in = {.names =
                                 bt_dfa_combine(s->c, BT_DFA_AND, all, names),
                             .is_evaluated = true};
        schema_names_t rest = *one;

        rest.names = bt_dfa_combine(s->c, BT_DFA_MINUS, all, names);
        if (!bt_grammar_ok(s->c)) {
            return;
        }
        if (!schema_dfa_is_empty(in.names)) {
            in.term = schema_term_and(s, one->term, term);
            schema_add_class(s, &out, in);
        }
        schema_add_class(s, &out, rest);
    }
    *x = out;
}

static void read_patterns(schema_t *s, const bt_json_node_t *patterns,
                          schema_object_t *x)
{
    const bt_json_node_t *key =
        (patterns->n > 0) ? bt_json_first(patterns) : NULL;

    for (uint32_t i = 0; (i < patterns->n) && bt_grammar_ok(s->c); i++) {
        if (bt_json_counts(key) && schema_check_schema(s, key + 1)) {
            const bt_dfa_t *names = schema_pattern(s, key);
            schema_term_t *const term = schema_term_of(s, key + 1);

            if ((names != NULL) && (term != NULL)) {
                split(s, x, names, term);
            }
        }
        key = bt_json_next(s->doc, key + 1);
    }
}

/* Gives the names that no pattern has matched a schema. */
static void read_additional(schema_t *s, const bt_json_node_t *value,
                            schema_object_t *x)
{
    schema_object_t out = *x;
    schema_term_t *term =
        schema_check_schema(s, value) ? schema_term_of(s, value) : NULL;

    if (term == NULL) {
        return;
    }
    out.n_classes = 0;
    for (uint32_t i = 0; (i < x->n_classes) && bt_grammar_ok(s->c); i++) {
        schema_names_t one = x->classes[i];

        if (!one.is_evaluated) {
            one.term = term;
            one.is_evaluated = true;
        }
        schema_add_class(s, &out, one);
    }
    *x = out;
}

/* ---- properties, required ---- */

/* Returns the member of a name, added if there is none. */
static schema_member_t *member_of(schema_t *s, schema_object_t *x,
                                  const bt_json_node_t *name)
{
    schema_member_t *members = x->members;
    const schema_names_t *one;

    if (!bt_grammar_spend(s->c, 1 + x->n_members / COMPARED_PER_STEP)) {
        return NULL;
    }
    for (uint32_t i = 0; i < x->n_members; i++) {
        if ((members[i].len == name->len) &&
            ((name->len == 0) ||
             (memcmp(members[i].name, name->text, name->len) == 0))) {
            return &members[i];
        }
    }
    one = schema_class(x, name->text, name->len);
    members[x->n_members] =
        (schema_member_t){.name = name->text,
                          .len = name->len,
                          .term = (one != NULL) ? one->term : s->any,
                          .is_evaluated = (one != NULL) && one->is_evaluated};
    return &members[x->n_members++];
}

/* Reads `properties`, while additionalProperties is not in the classes yet. */
static void read_properties(schema_t *s, const bt_json_node_t *properties,
                            schema_object_t *x)
{
    const bt_json_node_t *key =
        (properties->n > 0) ? bt_json_first(properties) : NULL;

    for (uint32_t i = 0; (i < properties->n) && bt_grammar_ok(s->c); i++) {
        if (bt_json_counts(key) && schema_check_schema(s, key + 1)) {
            schema_member_t *const member = member_of(s, x, key);

            if (member != NULL) {
                member->term = schema_term_and(s, member->term,
                                               schema_term_of(s, key + 1));
                member->is_evaluated = true;
            }
        }
        key = bt_json_next(s->doc, key + 1);
    }
}

static void read_required(schema_t *s, const bt_json_node_t *list,
                          schema_object_t *x)
{
    const bt_json_node_t *name = (list->n > 0) ? bt_json_first(list) : NULL;

    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        schema_member_t *member;

        if (!bt_json_is_kind(name, BT_JSON_STRING)) {
            schema_fail(s, BT_ERR_INVALID_PARAM, name, "must be a name");
            return;
        }
        member = member_of(s, x, name);
        if (member != NULL) {
            member->is_required = true;
        }
        name = bt_json_next(s->doc, name);
    }
}

/* ---- propertyNames ---- */

/* Leaves members of these names only. */
static void keep_names(schema_t *s, const bt_dfa_t *names, schema_object_t *x)
{
    schema_member_t *const members = x->members;
    schema_object_t out = *x;

    for (uint32_t i = 0; i < x->n_members; i++) {
        if (!schema_dfa_accepts(names, members[i].name, members[i].len)) {
            members[i].term = s->nothing;
        }
    }
    out.n_classes = 0;
    for (uint32_t i = 0; (i < x->n_classes) && bt_grammar_ok(s->c); i++) {
        schema_names_t in = x->classes[i];
        schema_names_t rest = x->classes[i];
        const bt_dfa_t *const all =
            (in.names != NULL) ? in.names : schema_any_text(s);

        in.names = bt_dfa_combine(s->c, BT_DFA_AND, all, names);
        rest.names = bt_dfa_combine(s->c, BT_DFA_MINUS, all, names);
        rest.term = s->nothing;
        if (bt_grammar_ok(s->c)) {
            schema_add_class(s, &out, in);
            schema_add_class(s, &out, rest);
        }
    }
    *x = out;
}

static void read_names(schema_t *s, const bt_json_node_t *value,
                       schema_object_t *x, schema_set_t *set)
{
    const schema_set_t *const all =
        schema_check_schema(s, value)
            ? schema_term_set(s, schema_term_of(s, value))
            : NULL;
    const schema_refusal_t *why = NULL;
    const bt_dfa_t *names;

    if ((all == NULL) || schema_strings_are_any(all->strings)) {
        return;
    }
    why = all->refused[SCHEMA_STRINGS];
    names =
        (why == NULL) ? schema_strings_dfa(s, all->strings, value, &why) : NULL;
    if (names != NULL) {
        keep_names(s, names, x);
    }
    if (all->strings.items != all->widest.items) {
        set->lists[SCHEMA_LIST_OF(SCHEMA_OBJECTS)].is_part = true;
    }
    schema_set_refuse(set, SCHEMA_OBJECTS, why);
}

/* ---- all of them ---- */

/* Returns the value of a keyword; NULL: there is none, or it has failed. */
static const bt_json_node_t *keyword(schema_t *s, const bt_json_node_t *schema,
                                     const char *key, bt_json_kind_t kind)
{
    const bt_json_node_t *const value = bt_json_get(s->doc, schema, key);

    if ((value != NULL) && !bt_json_is_kind(value, kind)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value, "must be %s",
                    (kind == BT_JSON_OBJECT) ? "an object of schemas"
                                             : "a list of names");
        return NULL;
    }
    return value;
}

static void read_bounds(schema_t *s, const bt_json_node_t *schema,
                        schema_object_t *x)
{
    const bt_json_node_t *const max =
        bt_json_get(s->doc, schema, "maxProperties");

    x->min_at = bt_json_get(s->doc, schema, "minProperties");
    if (x->min_at != NULL) {
        (void)schema_read_count(s, x->min_at, &x->min);
    }
    if (max != NULL) {
        (void)schema_read_count(s, max, &x->max);
    }
}

const schema_set_t *schema_on_objects(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *const properties =
        keyword(s, schema, "properties", BT_JSON_OBJECT);
    const bt_json_node_t *const patterns =
        keyword(s, schema, "patternProperties", BT_JSON_OBJECT);
    const bt_json_node_t *const required =
        keyword(s, schema, "required", BT_JSON_ARRAY);
    const bt_json_node_t *const additional =
        bt_json_get(s->doc, schema, "additionalProperties");
    const bt_json_node_t *const names =
        (schema_draft_of(s, schema) >= SCHEMA_DRAFT_6)
            ? bt_json_get(s->doc, schema, "propertyNames")
            : NULL;
    schema_object_t *x = schema_new_object(s);
    schema_set_t *set = schema_set_new_all(s);

    if ((x == NULL) || (set == NULL)) {
        return NULL;
    }
    x->members =
        bt_grammar_alloc(s->c,
                         (size_t)bt_json_size(properties, BT_JSON_OBJECT) +
                             bt_json_size(required, BT_JSON_ARRAY) + 1,
                         sizeof(*x->members));
    schema_set_list(s, set, SCHEMA_OBJECTS, x);
    if (patterns != NULL) {
        read_patterns(s, patterns, x);
    }
    if (properties != NULL) {
        read_properties(s, properties, x);
    }
    if (additional != NULL) {
        read_additional(s, additional, x);
    }
    if (required != NULL) {
        read_required(s, required, x);
    }
    read_bounds(s, schema, x);
    if (names != NULL) {
        read_names(s, names, x, set);
    }
    return bt_grammar_ok(s->c) ? set : NULL;
}

/* ---- dependencies ---- */

/* Returns the set of objects, alone. */
static schema_set_t *only_objects(schema_t *s, const schema_object_t *x)
{
    schema_set_t *set = schema_set_new(s);

    if (set != NULL) {
        schema_set_list(s, set, SCHEMA_OBJECTS, x);
    }
    return set;
}

/* Returns objects that have a member, or have not. */
static const schema_object_t *with_member(schema_t *s,
                                          const bt_json_node_t *name,
                                          const bt_json_node_t *more,
                                          bool is_there)
{
    schema_object_t *x = schema_new_object(s);
    const uint32_t n = bt_json_size(more, BT_JSON_ARRAY);
    schema_member_t *member;

    if (x == NULL) {
        return NULL;
    }
    x->members = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*x->members));
    member = (x->members != NULL) ? member_of(s, x, name) : NULL;
    if (member == NULL) {
        return NULL;
    }
    member->is_required = is_there;
    member->term = is_there ? s->any : s->nothing;
    if (n > 0) {
        read_required(s, more, x);
    }
    return x;
}

/* Returns objects without a member, and those that have it with what it asks
 * for: names, or a schema. */
static const schema_set_t *dependency(schema_t *s, const schema_set_t *x,
                                      const bt_json_node_t *name)
{
    const bt_json_node_t *const value = name + 1;
    const bool is_list = bt_json_is_kind(value, BT_JSON_ARRAY);
    const schema_set_t *with =
        only_objects(s, with_member(s, name, is_list ? value : NULL, true));
    schema_set_t *without = schema_set_new_all(s);

    if ((without == NULL) || (with == NULL)) {
        return NULL;
    }
    with = schema_set_and(s, x, with);
    if (!is_list) {
        with = schema_set_within(s, with, value);
    }
    schema_set_list(s, without, SCHEMA_OBJECTS,
                    with_member(s, name, NULL, false));
    without->lists[SCHEMA_LIST_OF(SCHEMA_OBJECTS)].is_all = false;
    return schema_set_or(s, schema_set_and(s, x, without), with);
}

const schema_set_t *schema_on_dependencies(schema_t *s, const schema_set_t *x,
                                           const bt_json_node_t *value)
{
    const bt_json_node_t *key = (value->n > 0) ? bt_json_first(value) : NULL;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value, "must be an object");
        return NULL;
    }
    for (uint32_t i = 0; (i < value->n) && bt_grammar_ok(s->c); i++) {
        if (bt_json_counts(key)) {
            x = dependency(s, x, key);
        }
        key = bt_json_next(s->doc, key + 1);
    }
    return x;
}

/* ---- unevaluatedProperties ---- */

static const schema_object_t *evaluate(schema_t *s, const schema_object_t *a,
                                       schema_term_t *term)
{
    schema_object_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));
    schema_member_t *members =
        bt_grammar_alloc(s->c, (size_t)a->n_members + 1, sizeof(*members));

    if ((x == NULL) || (members == NULL)) {
        return NULL;
    }
    *x = *a;
    for (uint32_t i = 0; (i < a->n_members) && bt_grammar_ok(s->c); i++) {
        members[i] = a->members[i];
        if (!members[i].is_evaluated) {
            members[i].term = schema_term_and(s, members[i].term, term);
            members[i].is_evaluated = true;
        }
    }
    x->members = members;
    x->n_classes = 0;
    for (uint32_t i = 0; (i < a->n_classes) && bt_grammar_ok(s->c); i++) {
        schema_names_t one = a->classes[i];

        if (!one.is_evaluated) {
            one.term = schema_term_and(s, one.term, term);
            one.is_evaluated = true;
        }
        if (bt_grammar_ok(s->c)) {
            schema_add_class(s, x, one);
        }
    }
    return x;
}

/* Of several alternatives more than one may evaluate members of a value; taken
 * one by one they allow less. */
const schema_set_t *
schema_on_unevaluated_properties(schema_t *s, const schema_set_t *x,
                                 const bt_json_node_t *value)
{
    const uint32_t kind = SCHEMA_LIST_OF(SCHEMA_OBJECTS);
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
        schema_list_add(s, &out->lists[kind],
                        evaluate(s, x->lists[kind].items[i], term));
    }
    return out;
}
