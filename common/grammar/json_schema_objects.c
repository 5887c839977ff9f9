/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Constraints of objects, and their operations. */

#define MAX_CLASSES 64u /* of names */

schema_object_t schema_any_object(schema_t *s)
{
    schema_names_t *all = bt_grammar_alloc(s->c, 1, sizeof(*all));

    if (all != NULL) {
        all->term = s->any;
    }
    return (schema_object_t){
        .classes = all, .n_classes = 1, .max = SCHEMA_NO_LIMIT};
}

schema_object_t *schema_new_object(schema_t *s)
{
    schema_object_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));

    if (x != NULL) {
        *x = schema_any_object(s);
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

const schema_member_t *schema_member(const schema_object_t *x, const char *name,
                                     uint32_t len)
{
    for (uint32_t i = 0; i < x->n_members; i++) {
        if ((x->members[i].len == len) &&
            ((len == 0) || (memcmp(x->members[i].name, name, len) == 0))) {
            return &x->members[i];
        }
    }
    return NULL;
}

const schema_names_t *schema_class(const schema_object_t *x, const char *name,
                                   uint32_t len)
{
    for (uint32_t i = 0; i < x->n_classes; i++) {
        if ((x->classes[i].names == NULL) ||
            schema_dfa_accepts(x->classes[i].names, name, len)) {
            return &x->classes[i];
        }
    }
    return NULL;
}

static const bt_dfa_t *member_names(schema_t *s, const schema_object_t *x)
{
    const char **texts =
        bt_grammar_alloc(s->c, (size_t)x->n_members + 1, sizeof(*texts));
    size_t *lens =
        bt_grammar_alloc(s->c, (size_t)x->n_members + 1, sizeof(*lens));

    if ((texts == NULL) || (lens == NULL)) {
        return NULL;
    }
    for (uint32_t i = 0; i < x->n_members; i++) {
        texts[i] = x->members[i].name;
        lens[i] = x->members[i].len;
    }
    return bt_dfa_of_texts(s->c, texts, lens, x->n_members);
}

const bt_dfa_t *schema_other_names(schema_t *s, const schema_object_t *x,
                                   const bt_dfa_t *names)
{
    if ((names == NULL) && (x->n_members == 0)) {
        return NULL;
    }
    names = (names != NULL) ? names : schema_any_text(s);
    if (x->n_members == 0) {
        return names;
    }
    return bt_dfa_combine(s->c, BT_DFA_MINUS, names, member_names(s, x));
}

/* ---- and ---- */

/* What one side says of a name. */
static schema_names_t said_of(const schema_t *s, const schema_object_t *x,
                              const char *name, uint32_t len)
{
    const schema_member_t *const member = schema_member(x, name, len);
    const schema_names_t *one;

    if (member != NULL) {
        return (schema_names_t){.term = member->term,
                                .is_evaluated = member->is_evaluated};
    }
    one = schema_class(x, name, len);
    return (one != NULL) ? *one : (schema_names_t){.term = s->any};
}

/* Adds the members of one side to those of both.
 * @return false: one that must be there has no value */
static bool and_members(schema_t *s, const schema_object_t *of,
                        const schema_object_t *other, bool is_second,
                        schema_member_t *members, uint32_t *n_p)
{
    for (uint32_t i = 0; (i < of->n_members) && bt_grammar_ok(s->c); i++) {
        const schema_member_t *const p = &of->members[i];
        const schema_member_t *const q = schema_member(other, p->name, p->len);
        const schema_names_t said = said_of(s, other, p->name, p->len);
        schema_member_t x = *p;

        if (is_second && (q != NULL)) {
            continue;
        }
        x.term = schema_term_and(s, p->term, said.term);
        x.is_evaluated = p->is_evaluated || said.is_evaluated;
        x.is_required = p->is_required || ((q != NULL) && q->is_required);
        members[(*n_p)++] = x;
        if (x.is_required && (x.term != NULL) &&
            (x.term->is_nothing ||
             ((x.term != p->term) && (x.term != said.term))) &&
            schema_is_empty(s, x.term)) {
            return false;
        }
    }
    return true;
}

/* Adds a class of names; those of one term are one class. */
void schema_add_class(schema_t *s, schema_object_t *x, schema_names_t one)
{
    schema_names_t *classes;

    if ((one.names != NULL) && schema_dfa_is_empty(one.names)) {
        return;
    }
    classes =
        bt_grammar_alloc(s->c, (size_t)x->n_classes + 1, sizeof(*classes));
    if (classes == NULL) {
        return;
    }
    if (x->n_classes > 0) {
        memcpy(classes, x->classes, x->n_classes * sizeof(*classes));
    }
    x->classes = classes;
    for (uint32_t i = 0; i < x->n_classes; i++) {
        if ((classes[i].term == one.term) &&
            (classes[i].is_evaluated == one.is_evaluated)) {
            classes[i].names =
                bt_dfa_combine(s->c, BT_DFA_OR, classes[i].names, one.names);
            return;
        }
    }
    if (x->n_classes == MAX_CLASSES) {
        bt_grammar_fail(s->c, BT_ERR_TOO_LARGE,
                        "patterns of member names overlap in more than %u ways",
                        MAX_CLASSES);
        return;
    }
    classes[x->n_classes++] = one;
}

static void and_classes(schema_t *s, const schema_object_t *a,
                        const schema_object_t *b, schema_object_t *x)
{
    x->n_classes = 0;
    for (uint32_t i = 0; i < a->n_classes; i++) {
        for (uint32_t k = 0; (k < b->n_classes) && bt_grammar_ok(s->c); k++) {
            const schema_names_t *const p = &a->classes[i];
            const schema_names_t *const q = &b->classes[k];
            schema_names_t one = {
                .names = (p->names != NULL) ? p->names : q->names,
                .is_evaluated = p->is_evaluated || q->is_evaluated};

            if ((p->names != NULL) && (q->names != NULL)) {
                one.names =
                    bt_dfa_combine(s->c, BT_DFA_AND, p->names, q->names);
            }
            if ((one.names != NULL) && schema_dfa_is_empty(one.names)) {
                continue;
            }
            one.term = schema_term_and(s, p->term, q->term);
            if (bt_grammar_ok(s->c)) {
                schema_add_class(s, x, one);
            }
        }
    }
}

static void and_some(schema_t *s, const schema_object_t *a,
                     const schema_object_t *b, schema_object_t *x)
{
    schema_names_t *all =
        bt_grammar_alloc(s->c, (size_t)a->n_some + b->n_some + 1, sizeof(*all));

    if (all == NULL) {
        return;
    }
    for (uint32_t i = 0; i < a->n_some; i++) {
        all[x->n_some++] = a->some[i];
    }
    for (uint32_t i = 0; i < b->n_some; i++) {
        bool is_new = true;

        for (uint32_t k = 0; is_new && (k < a->n_some); k++) {
            is_new = (all[k].term != b->some[i].term) ||
                     ((all[k].names != b->some[i].names) &&
                      ((all[k].names == NULL) || (b->some[i].names == NULL) ||
                       !schema_dfa_equal(all[k].names, b->some[i].names)));
        }
        if (is_new) {
            all[x->n_some++] = b->some[i];
        }
    }
    x->some = all;
}

static uint32_t n_required(const schema_object_t *x)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < x->n_members; i++) {
        n += x->members[i].is_required ? 1 : 0;
    }
    return n;
}

const void *schema_object_and(schema_t *s, const void *one, const void *other)
{
    const schema_object_t *const a = one;
    const schema_object_t *const b = other;
    schema_object_t *const x = schema_new_object(s);
    schema_member_t *members = bt_grammar_alloc(
        s->c, (size_t)a->n_members + b->n_members + 1, sizeof(*members));

    if ((x == NULL) || (members == NULL) ||
        !bt_grammar_spend(s->c,
                          1 + a->n_members + b->n_members +
                              (uint64_t)a->n_members * b->n_members / 16)) {
        return NULL;
    }
    if (a == b) {
        return a;
    }
    x->members = members;
    x->min = (a->min > b->min) ? a->min : b->min;
    x->min_at = (a->min > b->min) ? a->min_at : b->min_at;
    x->max = (a->max < b->max) ? a->max : b->max;
    if ((x->min > x->max) ||
        !and_members(s, a, b, false, members, &x->n_members) ||
        !and_members(s, b, a, true, members, &x->n_members) ||
        (n_required(x) > x->max)) {
        return NULL;
    }
    and_classes(s, a, b, x);
    and_some(s, a, b, x);
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- not ---- */

/* Adds objects in which a member is there, with a value that satisfies a term,
 * or, where the term is `nothing`, is not there. */
static void add_member(schema_t *s, const schema_member_t *of, bool is_required,
                       schema_term_t *term, schema_list_t *out)
{
    schema_object_t *x = schema_new_object(s);
    schema_member_t *member = bt_grammar_alloc(s->c, 1, sizeof(*member));

    if ((x == NULL) || (member == NULL)) {
        return;
    }
    *member = (schema_member_t){.name = of->name,
                                .len = of->len,
                                .is_required = is_required,
                                .term = term};
    x->members = member;
    x->n_members = 1;
    schema_list_add(s, out, x);
}

static void add_some(schema_t *s, const bt_dfa_t *names, schema_term_t *term,
                     const bt_json_node_t *at, schema_list_t *out)
{
    schema_object_t *x = schema_new_object(s);
    schema_names_t *some = bt_grammar_alloc(s->c, 1, sizeof(*some));

    if ((x == NULL) || (some == NULL)) {
        return;
    }
    *some = (schema_names_t){.names = names, .term = term, .at = at};
    x->some = some;
    x->n_some = 1;
    schema_list_add(s, out, x);
}

static void not_members(schema_t *s, const schema_object_t *a,
                        schema_list_t *out)
{
    for (uint32_t i = 0; (i < a->n_members) && bt_grammar_ok(s->c); i++) {
        const schema_member_t *const member = &a->members[i];

        if (member->is_required) {
            add_member(s, member, false, s->nothing, out);
        }
        if (member->term->is_nothing) {
            add_member(s, member, true, s->any, out);
        }
        for (uint32_t k = 0; k < member->term->n; k++) {
            add_member(s, member, true,
                       schema_term_not(s, &member->term->literals[k]), out);
        }
    }
}

static void not_classes(schema_t *s, const schema_object_t *a,
                        const bt_json_node_t *at, schema_list_t *out)
{
    for (uint32_t i = 0; (i < a->n_classes) && bt_grammar_ok(s->c); i++) {
        const schema_names_t *const one = &a->classes[i];
        const bt_dfa_t *names;

        if (one->term == s->any) {
            continue;
        }
        names = schema_other_names(s, a, one->names);
        if (!bt_grammar_ok(s->c) ||
            ((names != NULL) && schema_dfa_is_empty(names))) {
            continue;
        }
        if (one->term->is_nothing) {
            add_some(s, names, s->any, at, out);
        }
        for (uint32_t k = 0; k < one->term->n; k++) {
            add_some(s, names, schema_term_not(s, &one->term->literals[k]), at,
                     out);
        }
    }
}

/* Adds objects without any member of those that there must be one of.
 * @return false: the values of such members are told by several schemas */
static bool not_some(schema_t *s, const schema_names_t *some,
                     schema_list_t *out)
{
    schema_object_t *x = schema_new_object(s);
    schema_names_t one = {.names = some->names};
    schema_names_t rest = {.term = s->any};

    if ((x == NULL) || (some->term->n > 1)) {
        return x == NULL;
    }
    one.term = schema_term_not_one(s, some->term);
    x->n_classes = 0;
    if (some->names != NULL) {
        rest.names =
            bt_dfa_combine(s->c, BT_DFA_MINUS, schema_any_text(s), some->names);
    }
    if (!bt_grammar_ok(s->c)) {
        return true;
    }
    schema_add_class(s, x, one);
    if (some->names != NULL) {
        schema_add_class(s, x, rest);
    }
    schema_list_add(s, out, x);
    return true;
}

static void add_bounds(schema_t *s, uint32_t min, uint32_t max,
                       const bt_json_node_t *at, schema_list_t *out)
{
    schema_object_t *x = schema_new_object(s);

    if (x != NULL) {
        x->min = min;
        x->max = max;
        x->min_at = at;
        schema_list_add(s, out, x);
    }
}

const schema_refusal_t *schema_object_not(schema_t *s, const void *one,
                                          const bt_json_node_t *at,
                                          schema_list_t *out)
{
    const schema_object_t *const a = one;

    not_members(s, a, out);
    not_classes(s, a, at, out);
    if (a->min > 0) {
        add_bounds(s, 0, a->min - 1, at, out);
    }
    if (a->max != SCHEMA_NO_LIMIT) {
        add_bounds(s, a->max + 1, SCHEMA_NO_LIMIT, at, out);
    }
    for (uint32_t i = 0; i < a->n_some; i++) {
        if (!not_some(s, &a->some[i], out)) {
            return schema_refusal(s, at, "this cannot be negated", 0, 0);
        }
    }
    return NULL;
}

/* ---- some ---- */

/* Adds what an object with one more of `some` may be: a member of `members` is
 * the one that is asked for, or another one. */
static void expand(schema_t *s, const schema_object_t *a, uint32_t next,
                   schema_list_t *out);

static void expand_member(schema_t *s, const schema_object_t *a, uint32_t next,
                          uint32_t member, schema_list_t *out)
{
    const schema_names_t *const some = &a->some[next];
    schema_object_t *x = bt_grammar_alloc(s->c, 1, sizeof(*x));
    schema_member_t *members =
        bt_grammar_alloc(s->c, a->n_members, sizeof(*members));
    schema_names_t *rest = bt_grammar_alloc(s->c, a->n_some, sizeof(*rest));

    if ((x == NULL) || (members == NULL) || (rest == NULL)) {
        return;
    }
    *x = *a;
    memcpy(members, a->members, a->n_members * sizeof(*members));
    members[member].is_required = true;
    members[member].term = schema_term_and(s, members[member].term, some->term);
    x->members = members;
    x->n_some = 0;
    for (uint32_t i = 0; i < a->n_some; i++) {
        if (i != next) {
            rest[x->n_some++] = a->some[i];
        }
    }
    x->some = rest;
    if ((members[member].term != NULL) &&
        !schema_is_empty(s, members[member].term)) {
        expand(s, x, next, out);
    }
}

static void expand(schema_t *s, const schema_object_t *a, uint32_t next,
                   schema_list_t *out)
{
    schema_object_t *x;
    schema_names_t *some;

    if ((next == a->n_some) || !bt_grammar_spend(s->c, 1 + a->n_members)) {
        schema_list_add(s, out, a);
        return;
    }
    for (uint32_t i = 0; (i < a->n_members) && bt_grammar_ok(s->c); i++) {
        if ((a->some[next].names == NULL) ||
            schema_dfa_accepts(a->some[next].names, a->members[i].name,
                               a->members[i].len)) {
            expand_member(s, a, next, i, out);
        }
    }
    x = bt_grammar_alloc(s->c, 1, sizeof(*x));
    some = bt_grammar_alloc(s->c, a->n_some, sizeof(*some));
    if ((x == NULL) || (some == NULL)) {
        return;
    }
    *x = *a;
    memcpy(some, a->some, a->n_some * sizeof(*some));
    some[next].names = schema_other_names(s, a, some[next].names);
    x->some = some;
    if ((some[next].names == NULL) || !schema_dfa_is_empty(some[next].names)) {
        expand(s, x, next + 1, out);
    }
}

void schema_object_expand(schema_t *s, const schema_object_t *a,
                          schema_list_t *out)
{
    if (a->n_some > SCHEMA_MAX_SOME) {
        schema_fail(s, BT_ERR_UNSUPPORTED, a->some[0].at,
                    "more than %u members that must differ from others are "
                    "not supported",
                    SCHEMA_MAX_SOME);
        return;
    }
    expand(s, a, 0, out);
}

/* True where no member that is not in `members` can be one of those. */
static bool no_other_can(schema_t *s, const schema_object_t *a,
                         const schema_names_t *some)
{
    for (uint32_t i = 0; (i < a->n_classes) && bt_grammar_ok(s->c); i++) {
        const schema_names_t *const one = &a->classes[i];

        if ((one->names != NULL) && (some->names != NULL)) {
            const bt_dfa_t *both =
                bt_dfa_combine(s->c, BT_DFA_AND, one->names, some->names);

            if ((both == NULL) || schema_dfa_is_empty(both)) {
                continue;
            }
        }
        if (!schema_is_empty(s, schema_term_and(s, one->term, some->term))) {
            return false;
        }
    }
    return true;
}

static bool lacks_some(schema_t *s, const schema_object_t *a,
                       const schema_names_t *some)
{
    schema_names_t others = *some;

    for (uint32_t i = 0; (i < a->n_members) && bt_grammar_ok(s->c); i++) {
        const schema_member_t *const member = &a->members[i];

        if (((some->names == NULL) ||
             schema_dfa_accepts(some->names, member->name, member->len)) &&
            !schema_is_empty(s, schema_term_and(s, member->term, some->term))) {
            return false;
        }
    }
    others.names = schema_other_names(s, a, some->names);
    return no_other_can(s, a, &others);
}

bool schema_object_is_empty(schema_t *s, const void *one)
{
    const schema_object_t *const a = one;
    bool is_open = false;
    uint32_t n = 0;

    if ((a->min > a->max) || (n_required(a) > a->max)) {
        return true;
    }
    for (uint32_t i = 0; i < a->n_members; i++) {
        if (a->members[i].is_required &&
            schema_is_empty(s, a->members[i].term)) {
            return true;
        }
        n += a->members[i].term->is_nothing ? 0 : 1;
    }
    for (uint32_t i = 0; i < a->n_classes; i++) {
        is_open = is_open || !a->classes[i].term->is_nothing;
    }
    if (!is_open && (n < a->min)) {
        return true;
    }
    for (uint32_t i = 0; i < a->n_some; i++) {
        if (lacks_some(s, a, &a->some[i])) {
            return bt_grammar_ok(s->c);
        }
    }
    return false;
}
