/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Conjunctions of schemas. */

#define MAX_HOPS       64u /* of references that only refer */
#define MAX_CHECK_NEST 60u /* sets made to see whether one is empty */
/* Sets that are made for what is said beside them, and so not kept. */
#define MAX_CONTEXT_DEPTH   3u
#define MAX_EXCLUSION_DEPTH 5u
#define HASH_MULTIPLIER     0x9E3779B97F4A7C15u

/* ---- terms ---- */

static bool same_literal(const schema_literal_t *a, const schema_literal_t *b)
{
    return (a->node == b->node) && (a->is_value == b->is_value) &&
           (a->is_negated == b->is_negated);
}

static uint64_t hash_of(const schema_literal_t *literals, uint32_t n)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++) {
        hash ^= (uint64_t)(uintptr_t)literals[i].node +
                (literals[i].is_negated ? 1 : 0);
        hash *= HASH_MULTIPLIER;
        hash ^= hash >> 29;
    }
    return hash;
}

static schema_term_t *intern(schema_t *s, const schema_literal_t *literals,
                             uint32_t n)
{
    const size_t at = hash_of(literals, n) % BT_ARRAY_LEN(s->terms);
    schema_term_t *term;

    for (term = s->terms[at]; term != NULL; term = term->next) {
        bool is_same = term->n == n;

        if (!bt_grammar_spend(s->c, 1)) {
            return NULL;
        }
        for (uint32_t i = 0; is_same && (i < n); i++) {
            is_same = same_literal(&term->literals[i], &literals[i]);
        }
        if (is_same) {
            return term;
        }
    }
    if (s->n_terms == SCHEMA_MAX_TERMS) {
        bt_grammar_fail(s->c, BT_ERR_TOO_LARGE,
                        "the schema has more than %u combinations of schemas",
                        SCHEMA_MAX_TERMS);
        return NULL;
    }
    term = bt_grammar_alloc(s->c, 1, sizeof(*term));
    if (term == NULL) {
        return NULL;
    }
    term->literals = literals;
    term->n = n;
    term->next = s->terms[at];
    s->terms[at] = term;
    s->n_terms++;
    return term;
}

void schema_terms_init(schema_t *s)
{
    s->any = intern(s, NULL, 0);
    s->nothing = bt_grammar_alloc(s->c, 1, sizeof(*s->nothing));
    if (s->nothing != NULL) {
        s->nothing->is_nothing = true;
        s->nothing->emptiness = SCHEMA_EMPTY;
    }
}

static schema_term_t *term_of_literal(schema_t *s, schema_literal_t literal)
{
    schema_literal_t *copy = bt_grammar_alloc(s->c, 1, sizeof(*copy));

    if (copy == NULL) {
        return NULL;
    }
    *copy = literal;
    return intern(s, copy, 1);
}

/* True for a text that means the same in each document: it has no reference, no
 * identifier and no escape that could spell one. */
static bool is_free(const bt_json_node_t *schema)
{
    return (memmem(schema->text, schema->len, "\"$", 2) == NULL) &&
           (memchr(schema->text, '\\', schema->len) == NULL);
}

/* Returns the first schema of the same text, within one resource or of any, so
 * that schemas which are written out again and again are one. */
static const bt_json_node_t *first_of_text(schema_t *s,
                                           const bt_json_node_t *schema)
{
    const uint32_t resource = schema_resource_of(s, schema);
    uint64_t hash = schema->len;
    schema_text_t **list;
    schema_text_t *text;

    if (!bt_grammar_spend(s->c, 1 + schema->len / 32)) {
        return schema;
    }
    for (uint32_t i = 0; i < schema->len; i++) {
        hash = (hash ^ (uint8_t)schema->text[i]) * HASH_MULTIPLIER;
    }
    list = &s->texts[(hash >> 32) % BT_ARRAY_LEN(s->texts)];
    for (text = *list; text != NULL; text = text->next) {
        if ((text->hash == hash) && (text->node->len == schema->len) &&
            ((text->resource == resource) ||
             ((s->resources[text->resource].draft ==
               s->resources[resource].draft) &&
              is_free(schema))) &&
            (memcmp(text->node->text, schema->text, schema->len) == 0)) {
            return text->node;
        }
    }
    text = bt_grammar_alloc(s->c, 1, sizeof(*text));
    if (text != NULL) {
        *text = (schema_text_t){
            .hash = hash, .node = schema, .resource = resource, .next = *list};
        *list = text;
    }
    return schema;
}

schema_term_t *schema_term_of(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *ref = NULL;

    for (uint32_t hops = 0; hops < MAX_HOPS; hops++) {
        ref = schema_lone_ref(s, schema);
        if (ref == NULL) {
            break;
        }
        schema = schema_resolve(s, "$ref", ref);
        if (schema == NULL) {
            return NULL;
        }
    }
    if (schema_is_any(s, schema)) {
        return s->any;
    }
    if (bt_json_is_kind(schema, BT_JSON_FALSE)) {
        return s->nothing;
    }
    if (bt_json_is_kind(schema, BT_JSON_OBJECT)) {
        schema = first_of_text(s, schema);
    }
    return term_of_literal(s, (schema_literal_t){.node = schema});
}

schema_term_t *schema_term_of_value(schema_t *s, const bt_json_node_t *value)
{
    return term_of_literal(s,
                           (schema_literal_t){.node = value, .is_value = true});
}

schema_term_t *schema_term_not(schema_t *s, const schema_literal_t *literal)
{
    schema_literal_t negated = *literal;

    negated.is_negated = !literal->is_negated;
    return term_of_literal(s, negated);
}

schema_term_t *schema_term_not_one(schema_t *s, const schema_term_t *term)
{
    if (term->is_nothing || (term->n == 0)) {
        return term->is_nothing ? s->any : s->nothing;
    }
    BT_ASSERT(term->n == 1);
    return schema_term_not(s, &term->literals[0]);
}

static bool is_before(const schema_literal_t *a, const schema_literal_t *b)
{
    if (a->node != b->node) {
        return a->node < b->node;
    }
    if (a->is_value != b->is_value) {
        return !a->is_value;
    }
    return !a->is_negated && b->is_negated;
}

/* Merges two ascending lists of literals.
 * @return their number; UINT32_MAX: a schema and its negation are among them */
static uint32_t merge(const schema_term_t *a, const schema_term_t *b,
                      schema_literal_t *all)
{
    uint32_t i = 0;
    uint32_t k = 0;
    uint32_t n = 0;

    while ((i < a->n) || (k < b->n)) {
        const schema_literal_t *const p = (i < a->n) ? &a->literals[i] : NULL;
        const schema_literal_t *const q = (k < b->n) ? &b->literals[k] : NULL;
        const bool is_both = (p != NULL) && (q != NULL) && same_literal(p, q);
        const bool is_p = (q == NULL) || ((p != NULL) && is_before(p, q));

        all[n++] = (is_both || is_p) ? *p : *q;
        i += (is_both || is_p) ? 1 : 0;
        k += (is_both || !is_p) ? 1 : 0;
        if ((n > 1) && (all[n - 1].node == all[n - 2].node) &&
            (all[n - 1].is_value == all[n - 2].is_value)) {
            return UINT32_MAX;
        }
    }
    return n;
}

schema_term_t *schema_term_and(schema_t *s, schema_term_t *a, schema_term_t *b)
{
    schema_literal_t *all;
    uint32_t n;

    if ((a == NULL) || (b == NULL) || (a == b) || (b == s->any) ||
        a->is_nothing) {
        return (b == NULL) ? NULL : a;
    }
    if ((a == s->any) || b->is_nothing) {
        return b;
    }
    all = bt_grammar_alloc(s->c, (size_t)a->n + b->n, sizeof(*all));
    if ((all == NULL) || !bt_grammar_spend(s->c, (uint64_t)a->n + b->n)) {
        return NULL;
    }
    n = merge(a, b, all);
    return (n == UINT32_MAX) ? s->nothing : intern(s, all, n);
}

/* ---- their sets ---- */

/* Returns the term of a literal, as it is without a negation. */
static schema_term_t *plain_term(schema_t *s, const schema_literal_t *literal)
{
    schema_literal_t plain = *literal;

    plain.is_negated = false;
    return term_of_literal(s, plain);
}

/* Narrows a set to the values of one literal. */
static const schema_set_t *and_literal(schema_t *s, const schema_set_t *x,
                                       const schema_literal_t *literal)
{
    if (literal->is_negated) {
        return schema_set_minus(
            s, x, schema_term_set(s, plain_term(s, literal)), literal->node);
    }
    if (literal->is_value) {
        return schema_set_and(s, x, schema_set_of_value(s, literal->node));
    }
    return schema_set_within(s, x, literal->node);
}

static bool is_late(schema_t *s, const schema_literal_t *literal)
{
    return literal->is_negated ||
           (!literal->is_value && schema_needs_context(s, literal->node));
}

/* Schemas that are easier to tell with what others say come last. */
static const schema_set_t *make_set(schema_t *s, const schema_term_t *term)
{
    const schema_set_t *x = s->all;

    if (term->is_nothing) {
        return s->none;
    }
    if ((term->n == 1) && !term->literals[0].is_negated &&
        !term->literals[0].is_value) {
        return schema_set_of(s, s->all, term->literals[0].node);
    }
    for (uint32_t late = 0; late < 2; late++) {
        for (uint32_t i = 0; (i < term->n) && bt_grammar_ok(s->c); i++) {
            if (is_late(s, &term->literals[i]) == (late == 1)) {
                x = and_literal(s, x, &term->literals[i]);
            }
        }
    }
    return x;
}

/* True for a schema in which alternatives exclude each other: what is said
 * beside it may tell them apart. */
static bool has_exclusions(schema_t *s, const bt_json_node_t *schema,
                           uint32_t depth)
{
    static const char *const exclusive[] = {"oneOf", "not", "if"};
    static const char *const lists[] = {"allOf", "anyOf"};
    const bt_json_node_t *ref;

    if (!bt_json_is_kind(schema, BT_JSON_OBJECT) || (depth == 0) ||
        !bt_grammar_spend(s->c, 1 + schema->n)) {
        return false;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(exclusive); i++) {
        if (bt_json_get(s->doc, schema, exclusive[i]) != NULL) {
            return true;
        }
    }
    ref = bt_json_get(s->doc, schema, "$ref");
    if (bt_json_is_kind(ref, BT_JSON_STRING) &&
        has_exclusions(s, schema_resolve(s, "$ref", ref), depth - 1)) {
        return true;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(lists); i++) {
        const bt_json_node_t *const list =
            bt_json_get(s->doc, schema, lists[i]);
        const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
        const bt_json_node_t *node = (n > 0) ? bt_json_first(list) : NULL;

        for (uint32_t k = 0; k < n; k++) {
            if (has_exclusions(s, node, depth - 1)) {
                return true;
            }
            node = bt_json_next(s->doc, node);
        }
    }
    return false;
}

/* A schema with unevaluated* must not see what others evaluate. */
bool schema_needs_context(schema_t *s, const bt_json_node_t *schema)
{
    return (bt_json_get(s->doc, schema, "unevaluatedProperties") == NULL) &&
           (bt_json_get(s->doc, schema, "unevaluatedItems") == NULL) &&
           has_exclusions(s, schema, MAX_EXCLUSION_DEPTH);
}

const schema_set_t *schema_set_within(schema_t *s, const schema_set_t *x,
                                      const bt_json_node_t *schema)
{
    schema_term_t *const term =
        schema_check_schema(s, schema) ? schema_term_of(s, schema) : NULL;
    const schema_set_t *out;

    if ((term == NULL) || (x == NULL)) {
        return NULL;
    }
    if ((x == s->all) || (term->n == 0) || term->is_open ||
        (s->context_depth == MAX_CONTEXT_DEPTH) ||
        !schema_needs_context(s, term->literals[0].node)) {
        return schema_set_and(s, x, schema_term_set(s, term));
    }
    term->is_open = true;
    s->context_depth++;
    s->nest++;
    out = schema_set_of(s, x, term->literals[0].node);
    s->nest--;
    s->context_depth--;
    term->is_open = false;
    return out;
}

/* A schema that is met while its own set is made says nothing there, which is
 * noted: sets that follow from it are not kept. */
const schema_set_t *schema_term_set(schema_t *s, schema_term_t *term)
{
    const bt_json_node_t *const loop = s->loop;
    const schema_set_t *x;

    if ((term == NULL) || !bt_grammar_spend(s->c, 1)) {
        return NULL;
    }
    if (term->set != NULL) {
        return term->set;
    }
    if (term->is_open) {
        s->loop = term->literals[0].node;
        return s->all;
    }
    if (s->nest == SCHEMA_MAX_NEST) {
        schema_fail(s, BT_ERR_TOO_LARGE, term->literals[0].node,
                    "schemas apply to one value at more than %u levels",
                    SCHEMA_MAX_NEST);
        return NULL;
    }
    s->loop = NULL;
    s->nest++;
    term->is_open = true;
    x = make_set(s, term);
    term->is_open = false;
    s->nest--;
    if (s->loop == NULL) {
        term->set = x;
        s->loop = loop;
    }
    return x;
}

bool schema_is_empty(schema_t *s, schema_term_t *term)
{
    const bt_json_node_t *const loop = s->loop;
    const schema_set_t *x;
    bool is_empty;

    if ((term == NULL) || !bt_grammar_ok(s->c) || (term == s->any) ||
        (term->emptiness == SCHEMA_CHECKING) ||
        (term->emptiness == SCHEMA_MAY_MATCH)) {
        return false;
    }
    if (term->emptiness == SCHEMA_EMPTY) {
        return true;
    }
    if (term->is_open || (s->nest > MAX_CHECK_NEST)) {
        return false;
    }
    s->loop = NULL;
    term->emptiness = SCHEMA_CHECKING;
    x = schema_term_set(s, term);
    s->nest++;
    is_empty = (x != NULL) && schema_set_is_empty(s, x);
    s->nest--;
    if (s->loop != NULL) {
        term->emptiness = SCHEMA_NOT_CHECKED;
        is_empty = false;
    } else {
        term->emptiness = is_empty ? SCHEMA_EMPTY : SCHEMA_MAY_MATCH;
    }
    s->loop = loop;
    return is_empty;
}
