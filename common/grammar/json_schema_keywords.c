/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Keywords of schemas, and the set of a schema. */

#define MAX_ENUM 10000u

/* ---- all keywords ---- */

typedef enum role {
    ANNOTATION, /* says nothing of values, or is read with another keyword */
    TYPE,
    ENUM,
    CONST,
    STRINGS, /* all keywords of one type are read together */
    NUMBERS,
    ARRAYS,
    OBJECTS,
    REF,
    ALL_OF,
    ANY_OF,
    ONE_OF,
    NOT,
    IF,
    DEPENDENCIES,
    UNEVALUATED_ITEMS,
    UNEVALUATED_PROPERTIES,
} role_t;

typedef struct keyword {
    const char *name;
    uint8_t role;
    uint8_t holds; /* schema_holds_t */
    uint8_t since; /* schema_draft_t */
} keyword_t;

static const keyword_t keywords[] = {
    {"type", TYPE, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"properties", OBJECTS, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_4},
    {"required", OBJECTS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"description", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"title", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"additionalProperties", OBJECTS, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_4},
    {"patternProperties", OBJECTS, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_4},
    {"propertyNames", OBJECTS, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_6},
    {"minProperties", OBJECTS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"maxProperties", OBJECTS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"enum", ENUM, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"const", CONST, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_6},
    {"pattern", STRINGS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"format", STRINGS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"minLength", STRINGS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"maxLength", STRINGS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"minimum", NUMBERS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"maximum", NUMBERS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"exclusiveMinimum", NUMBERS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"exclusiveMaximum", NUMBERS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"multipleOf", NUMBERS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"items", ARRAYS, SCHEMA_HOLDS_ONE_OR_LIST, SCHEMA_DRAFT_4},
    {"prefixItems", ARRAYS, SCHEMA_HOLDS_LIST, SCHEMA_DRAFT_2020},
    {"additionalItems", ANNOTATION, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_4},
    {"minItems", ARRAYS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"maxItems", ARRAYS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"uniqueItems", ARRAYS, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"contains", ARRAYS, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_6},
    {"minContains", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_2019},
    {"maxContains", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_2019},
    {"$ref", REF, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$dynamicRef", REF, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_2020},
    {"$recursiveRef", REF, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_2019},
    {"allOf", ALL_OF, SCHEMA_HOLDS_LIST, SCHEMA_DRAFT_4},
    {"anyOf", ANY_OF, SCHEMA_HOLDS_LIST, SCHEMA_DRAFT_4},
    {"oneOf", ONE_OF, SCHEMA_HOLDS_LIST, SCHEMA_DRAFT_4},
    {"not", NOT, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_4},
    {"if", IF, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_7},
    {"then", ANNOTATION, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_7},
    {"else", ANNOTATION, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_7},
    {"dependencies", DEPENDENCIES, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_4},
    {"dependentRequired", DEPENDENCIES, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_2019},
    {"dependentSchemas", DEPENDENCIES, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_2019},
    {"unevaluatedItems", UNEVALUATED_ITEMS, SCHEMA_HOLDS_ONE,
     SCHEMA_DRAFT_2019},
    {"unevaluatedProperties", UNEVALUATED_PROPERTIES, SCHEMA_HOLDS_ONE,
     SCHEMA_DRAFT_2019},
    {"$defs", ANNOTATION, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_4},
    {"definitions", ANNOTATION, SCHEMA_HOLDS_MAP, SCHEMA_DRAFT_4},
    {"$schema", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$id", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"id", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$anchor", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$dynamicAnchor", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$recursiveAnchor", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$vocabulary", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"$comment", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"default", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"examples", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"example", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"deprecated", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"readOnly", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"writeOnly", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"contentMediaType", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"contentEncoding", ANNOTATION, SCHEMA_HOLDS_NONE, SCHEMA_DRAFT_4},
    {"contentSchema", ANNOTATION, SCHEMA_HOLDS_ONE, SCHEMA_DRAFT_4},
};

/* Returns a keyword of any draft; NULL: it is not known. */
static const keyword_t *find_keyword(const bt_json_node_t *key)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(keywords); i++) {
        if (bt_json_is(key, keywords[i].name)) {
            return &keywords[i];
        }
    }
    return NULL;
}

schema_holds_t schema_keyword_holds(const bt_json_node_t *key)
{
    const keyword_t *const keyword = find_keyword(key);

    return (keyword != NULL) ? keyword->holds : SCHEMA_HOLDS_NONE;
}

bool schema_is_schema(const bt_json_node_t *node)
{
    return bt_json_is_kind(node, BT_JSON_OBJECT) || bt_json_is_bool(node);
}

bool schema_check_schema(schema_t *s, const bt_json_node_t *node)
{
    if (!schema_is_schema(node)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, node, "must be a schema");
        return false;
    }
    return bt_grammar_ok(s->c);
}

bool schema_read_count(schema_t *s, const bt_json_node_t *value, uint32_t *n_p)
{
    bt_json_whole_t whole;

    if (!bt_json_as_whole(value, &whole) ||
        (whole.negative && (whole.magnitude > 0))) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value,
                    "must be a whole number of at least 0");
        return false;
    }
    *n_p = (whole.fits && (whole.magnitude < SCHEMA_NO_LIMIT))
               ? (uint32_t)whole.magnitude
               : SCHEMA_NO_LIMIT - 1;
    return true;
}

/* Says of a key what it is in a draft: a keyword newer than the draft is
 * unknown to it. */
static const keyword_t *keyword_in(const bt_json_node_t *key,
                                   schema_draft_t draft)
{
    const keyword_t *const keyword = find_keyword(key);

    return ((keyword != NULL) && (keyword->since <= draft)) ? keyword : NULL;
}

bool schema_is_any(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *key;

    if (!bt_json_is_kind(schema, BT_JSON_OBJECT)) {
        return bt_json_is_kind(schema, BT_JSON_TRUE);
    }
    key = (schema->n > 0) ? bt_json_first(schema) : NULL;
    for (uint32_t i = 0; (i < schema->n) && bt_grammar_spend(s->c, 1); i++) {
        const keyword_t *const keyword =
            keyword_in(key, schema_draft_of(s, schema));

        if ((keyword == NULL) ? !s->options.lenient
                              : (keyword->role != ANNOTATION)) {
            return false;
        }
        key = bt_json_next(s->doc, key + 1);
    }
    return bt_grammar_ok(s->c);
}

const bt_json_node_t *schema_lone_ref(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *const ref = bt_json_get(s->doc, schema, "$ref");
    const schema_draft_t draft = schema_draft_of(s, schema);
    const bt_json_node_t *key;

    if ((ref == NULL) || (draft <= SCHEMA_DRAFT_7)) {
        return ref;
    }
    key = bt_json_first(schema);
    for (uint32_t i = 0; i < schema->n; i++) {
        const keyword_t *const keyword = keyword_in(key, draft);

        if ((key + 1 != ref) &&
            ((keyword == NULL) ? !s->options.lenient
                               : (keyword->role != ANNOTATION))) {
            return NULL;
        }
        key = bt_json_next(s->doc, key + 1);
    }
    return ref;
}

/* Refuses keywords that are not known, unless they are annotations then. */
static void check_known(schema_t *s, const bt_json_node_t *schema,
                        schema_draft_t draft)
{
    const bt_json_node_t *key = (schema->n > 0) ? bt_json_first(schema) : NULL;

    if (s->options.lenient) {
        return;
    }
    for (uint32_t i = 0; (i < schema->n) && bt_grammar_spend(s->c, 1); i++) {
        if (keyword_in(key, draft) == NULL) {
            schema_fail(s, BT_ERR_UNSUPPORTED, key + 1,
                        "this keyword is not known");
        }
        key = bt_json_next(s->doc, key + 1);
    }
}

/* ---- type ---- */

static bool add_type(schema_t *s, const bt_json_node_t *name, schema_set_t *x)
{
    if (bt_json_is(name, "null")) {
        x->has_null = true;
    } else if (bt_json_is(name, "boolean")) {
        x->has_false = x->has_true = true;
    } else if (bt_json_is(name, "integer")) {
        if (schema_dfa_is_empty(x->numbers)) {
            x->numbers = schema_integers(s);
            x->has_integers = true;
        }
    } else if (bt_json_is(name, "number")) {
        x->numbers = s->all->numbers;
        x->has_integers = false;
    } else if (bt_json_is(name, "string")) {
        x->strings = x->widest = s->all->strings;
    } else if (bt_json_is(name, "array")) {
        x->lists[0] = s->all->lists[0];
    } else if (bt_json_is(name, "object")) {
        x->lists[1] = s->all->lists[1];
    } else {
        schema_fail(s, BT_ERR_INVALID_PARAM, name, "is no type of JSON");
        return false;
    }
    return bt_grammar_ok(s->c);
}

static const schema_set_t *on_type(schema_t *s, const bt_json_node_t *value)
{
    const bool is_list = bt_json_is_kind(value, BT_JSON_ARRAY);
    const uint32_t n = is_list ? value->n : 1;
    const bt_json_node_t *name =
        (is_list && (n > 0)) ? bt_json_first(value) : value;
    schema_set_t *x = schema_set_new(s);

    for (uint32_t i = 0; (x != NULL) && (i < n); i++) {
        if (!add_type(s, name, x)) {
            return NULL;
        }
        name = bt_json_next(s->doc, name);
    }
    return x;
}

/* ---- enum, const ---- */

/* Adds all numbers, or all strings, of a list at once. */
static void add_scalars(schema_t *s, const bt_json_node_t *list,
                        bt_json_kind_t kind, schema_set_t *x)
{
    const char **texts =
        bt_grammar_alloc(s->c, (size_t)list->n + 1, sizeof(*texts));
    size_t *lens = bt_grammar_alloc(s->c, (size_t)list->n + 1, sizeof(*lens));
    const bt_json_node_t *value = (list->n > 0) ? bt_json_first(list) : NULL;
    const bt_dfa_t *dfa;
    uint32_t n = 0;

    for (uint32_t i = 0; (i < list->n) && bt_grammar_spend(s->c, 1); i++) {
        if (value->kind == (uint8_t)kind) {
            uint32_t len = value->len;

            texts[n] = (kind == BT_JSON_NUMBER)
                           ? schema_number_text(s, value, &len)
                           : value->text;
            lens[n++] = len;
        }
        value = bt_json_next(s->doc, value);
    }
    if ((n == 0) || !bt_grammar_ok(s->c)) {
        return;
    }
    dfa = bt_dfa_of_texts(s->c, texts, lens, n);
    if (kind == BT_JSON_NUMBER) {
        x->numbers = dfa;
    } else {
        schema_set_strings(x, schema_strings_of(s, dfa, 0, SCHEMA_NO_LIMIT));
    }
}

static const schema_set_t *on_enum(schema_t *s, const bt_json_node_t *list)
{
    const bt_json_node_t *value;
    schema_set_t *scalars = schema_set_new(s);
    const schema_set_t *x = scalars;

    if (!bt_json_is_kind(list, BT_JSON_ARRAY)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, list, "must be a list of values");
        return NULL;
    }
    if (list->n > MAX_ENUM) {
        schema_fail(s, BT_ERR_TOO_LARGE, list, "has more than %u values",
                    MAX_ENUM);
        return NULL;
    }
    if (scalars == NULL) {
        return NULL;
    }
    add_scalars(s, list, BT_JSON_NUMBER, scalars);
    add_scalars(s, list, BT_JSON_STRING, scalars);
    value = (list->n > 0) ? bt_json_first(list) : NULL;
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        if ((value->kind != BT_JSON_NUMBER) &&
            (value->kind != BT_JSON_STRING)) {
            x = schema_set_or(s, x, schema_set_of_value(s, value));
        }
        value = bt_json_next(s->doc, value);
    }
    return x;
}

/* ---- strings, numbers ---- */

static const schema_set_t *on_format(schema_t *s, const bt_json_node_t *value)
{
    schema_set_t *x = schema_set_new_all(s);

    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value, "must be a string");
        return NULL;
    }
    if ((x != NULL) && !schema_format(s, value, &x->strings, &x->widest) &&
        !s->options.lenient) {
        schema_fail(s, BT_ERR_UNSUPPORTED, value, "this format is not known");
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

static const schema_set_t *on_strings(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *const pattern =
        bt_json_get(s->doc, schema, "pattern");
    const bt_json_node_t *const format = bt_json_get(s->doc, schema, "format");
    const bt_json_node_t *const min = bt_json_get(s->doc, schema, "minLength");
    const bt_json_node_t *const max = bt_json_get(s->doc, schema, "maxLength");
    schema_set_t *x = schema_set_new_all(s);
    const bt_dfa_t *dfa = NULL;
    uint32_t from = 0;
    uint32_t to = SCHEMA_NO_LIMIT;

    if (min != NULL) {
        (void)schema_read_count(s, min, &from);
    }
    if (max != NULL) {
        (void)schema_read_count(s, max, &to);
    }
    if (pattern != NULL) {
        if (!bt_json_is_kind(pattern, BT_JSON_STRING)) {
            schema_fail(s, BT_ERR_INVALID_PARAM, pattern, "must be a string");
            return NULL;
        }
        dfa = schema_pattern(s, pattern);
    }
    if (!bt_grammar_ok(s->c) || (x == NULL)) {
        return NULL;
    }
    schema_set_strings(x, schema_strings_of(s, dfa, from, to));
    return (format == NULL) ? x : schema_set_and(s, x, on_format(s, format));
}

/* Narrows numbers by a bound. Draft 4 has `exclusiveMinimum` as a boolean
 * beside `minimum`. */
static const bt_dfa_t *on_bound(schema_t *s, const bt_json_node_t *schema,
                                bool above, const bt_dfa_t *numbers)
{
    const bt_json_node_t *const bound =
        bt_json_get(s->doc, schema, above ? "minimum" : "maximum");
    const bt_json_node_t *const exclusive = bt_json_get(
        s->doc, schema, above ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool is_flag = bt_json_is_bool(exclusive);

    if (bound != NULL) {
        numbers = bt_dfa_combine(
            s->c, BT_DFA_AND, numbers,
            schema_bound(s, bound, above,
                         bt_json_is_kind(exclusive, BT_JSON_TRUE)));
    }
    if ((exclusive != NULL) && !is_flag) {
        numbers = bt_dfa_combine(s->c, BT_DFA_AND, numbers,
                                 schema_bound(s, exclusive, above, true));
    }
    return numbers;
}

static const schema_set_t *on_numbers(schema_t *s, const bt_json_node_t *schema)
{
    const bt_json_node_t *const multiple =
        bt_json_get(s->doc, schema, "multipleOf");
    schema_set_t *x = schema_set_new_all(s);
    const schema_refusal_t *why = NULL;

    if (x == NULL) {
        return NULL;
    }
    x->numbers = on_bound(s, schema, true, x->numbers);
    x->numbers = on_bound(s, schema, false, x->numbers);
    if (multiple != NULL) {
        x->numbers = bt_dfa_combine(s->c, BT_DFA_AND, x->numbers,
                                    schema_multiples(s, multiple, &why));
    }
    schema_set_refuse(x, SCHEMA_NUMBERS, why);
    return bt_grammar_ok(s->c) ? x : NULL;
}

/* ---- combinations ---- */

static bool check_list(schema_t *s, const bt_json_node_t *list)
{
    if (bt_json_size(list, BT_JSON_ARRAY) == 0) {
        schema_fail(s, BT_ERR_INVALID_PARAM, list,
                    "must be a list of at least one schema");
        return false;
    }
    return true;
}

/* @param [in] is_late  Which of its schemas: those that need what is said
 *         beside them, or all others. */
static const schema_set_t *on_all_of(schema_t *s, const schema_set_t *x,
                                     const bt_json_node_t *list, bool is_late)
{
    const bt_json_node_t *node;

    if (!check_list(s, list)) {
        return NULL;
    }
    node = bt_json_first(list);
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        if (schema_needs_context(s, node) == is_late) {
            x = schema_set_within(s, x, node);
        }
        node = bt_json_next(s->doc, node);
    }
    return x;
}

static const schema_set_t *on_any_of(schema_t *s, const schema_set_t *x,
                                     const bt_json_node_t *list)
{
    const schema_set_t *any = s->none;
    const bt_json_node_t *node;

    if (!check_list(s, list)) {
        return NULL;
    }
    node = bt_json_first(list);
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        any = schema_set_or(s, any, schema_set_within(s, x, node));
        node = bt_json_next(s->doc, node);
    }
    return any;
}

/* What is said beside oneOf may tell its branches apart, so it narrows them
 * first. */
static const schema_set_t *on_one_of(schema_t *s, const schema_set_t *x,
                                     const bt_json_node_t *list)
{
    const schema_set_t **sets;
    const bt_json_node_t *node;

    if (!check_list(s, list)) {
        return NULL;
    }
    sets = bt_grammar_alloc(s->c, list->n, sizeof(*sets));
    node = bt_json_first(list);
    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        sets[i] = schema_set_within(s, x, node);
        node = bt_json_next(s->doc, node);
    }
    return bt_grammar_ok(s->c) ? schema_one_of(s, sets, list->n, list) : NULL;
}

static const schema_set_t *on_if(schema_t *s, const schema_set_t *x,
                                 const bt_json_node_t *schema)
{
    const bt_json_node_t *const test = bt_json_get(s->doc, schema, "if");
    const bt_json_node_t *const then = bt_json_get(s->doc, schema, "then");
    const bt_json_node_t *const other = bt_json_get(s->doc, schema, "else");
    const schema_set_t *passed;
    const schema_set_t *failed;

    if (!schema_check_schema(s, test)) {
        return NULL;
    }
    failed = schema_set_minus(s, x, schema_term_set(s, schema_term_of(s, test)),
                              test);
    passed = schema_set_within(s, x, test);
    if (then != NULL) {
        passed = schema_set_within(s, passed, then);
    }
    if (other != NULL) {
        failed = schema_set_within(s, failed, other);
    }
    return schema_set_or(s, passed, failed);
}

/* ---- schemas ---- */

static bool is_late_ref(schema_t *s, const bt_json_node_t *value)
{
    const bt_json_node_t *const target = schema_resolve(s, "$ref", value);

    return (target != NULL) && schema_needs_context(s, target);
}

/* Keywords apply in turns: types first, as they make all others cheap;
 * then the others, in the order of the text, which is that of the members;
 * then those that look at what was said beside them. */
static uint32_t turn_of(schema_t *s, role_t role, const bt_json_node_t *value)
{
    switch (role) {
    case TYPE:
    case ENUM:
    case CONST:
    case STRINGS:
    case NUMBERS:
    case ARRAYS:
        return 0;
    case ANY_OF:
    case ONE_OF:
    case NOT:
    case IF:
    case DEPENDENCIES:
        return 2;
    case REF:
        return is_late_ref(s, value) ? 2 : 1;
    case UNEVALUATED_ITEMS:
    case UNEVALUATED_PROPERTIES:
        return 3;
    default:
        return 1;
    }
}

/* allOf has two turns. */
static bool is_turn(schema_t *s, role_t role, const bt_json_node_t *value,
                    uint32_t turn)
{
    return (turn_of(s, role, value) == turn) ||
           ((role == ALL_OF) && (turn == 2));
}

static const schema_set_t *apply(schema_t *s, role_t role,
                                 const bt_json_node_t *schema,
                                 const bt_json_node_t *key, uint32_t turn,
                                 const schema_set_t *x)
{
    const bt_json_node_t *const value = key + 1;
    const bt_json_node_t *target;
    char name[16] = {0};

    switch (role) {
    case TYPE:
        return schema_set_and(s, x, on_type(s, value));
    case ENUM:
        return schema_set_and(s, x, on_enum(s, value));
    case CONST:
        return schema_set_and(s, x, schema_set_of_value(s, value));
    case STRINGS:
        return schema_set_and(s, x, on_strings(s, schema));
    case NUMBERS:
        return schema_set_and(s, x, on_numbers(s, schema));
    case ARRAYS:
        return schema_set_and(s, x, schema_on_arrays(s, schema));
    case OBJECTS:
        return schema_set_and(s, x, schema_on_objects(s, schema));
    case REF:
        memcpy(name, key->text, (key->len < 15) ? key->len : 15);
        target = schema_resolve(s, name, value);
        return (target != NULL) ? schema_set_within(s, x, target) : NULL;
    case ALL_OF:
        return on_all_of(s, x, value, turn == 2);
    case ANY_OF:
        return on_any_of(s, x, value);
    case ONE_OF:
        return on_one_of(s, x, value);
    case NOT:
        if (!schema_check_schema(s, value)) {
            return NULL;
        }
        return schema_set_minus(
            s, x, schema_term_set(s, schema_term_of(s, value)), value);
    case IF:
        return on_if(s, x, schema);
    case DEPENDENCIES:
        return schema_on_dependencies(s, x, value);
    case UNEVALUATED_ITEMS:
        return schema_on_unevaluated_items(s, x, value);
    case UNEVALUATED_PROPERTIES:
        return schema_on_unevaluated_properties(s, x, value);
    case ANNOTATION:
        break;
    }
    return x;
}

/* True for the keyword at which those of its type are read: `properties` for
 * objects, if it is there, since it has the order of members. */
static bool reads_type(const schema_t *s, const bt_json_node_t *schema,
                       role_t role, const bt_json_node_t *key, bool was_read)
{
    if ((role == OBJECTS) &&
        (bt_json_get(s->doc, schema, "properties") != NULL)) {
        return bt_json_is(key, "properties");
    }
    return !was_read;
}

static const schema_set_t *set_of_object(schema_t *s, const schema_set_t *x,
                                         const bt_json_node_t *schema)
{
    const schema_draft_t draft = schema_draft_of(s, schema);
    const bool is_ref = (draft <= SCHEMA_DRAFT_7) &&
                        (bt_json_get(s->doc, schema, "$ref") != NULL);
    bool was_read[UNEVALUATED_PROPERTIES + 1] = {false};

    check_known(s, schema, draft);
    for (uint32_t turn = 0; turn < 4; turn++) {
        const bt_json_node_t *key =
            (schema->n > 0) ? bt_json_first(schema) : NULL;

        for (uint32_t i = 0; (i < schema->n) && bt_grammar_spend(s->c, 1);
             i++, key = bt_json_next(s->doc, key + 1)) {
            const keyword_t *const keyword = keyword_in(key, draft);
            const bool is_of_type = (keyword != NULL) &&
                                    (keyword->role >= STRINGS) &&
                                    (keyword->role <= OBJECTS);

            if ((keyword == NULL) || !bt_json_counts(key) ||
                !is_turn(s, keyword->role, key + 1, turn) ||
                (is_ref && !bt_json_is(key, "$ref")) ||
                (is_of_type && !reads_type(s, schema, keyword->role, key,
                                           was_read[keyword->role]))) {
                continue;
            }
            was_read[keyword->role] = true;
            x = apply(s, keyword->role, schema, key, turn, x);
        }
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

const schema_set_t *schema_set_of(schema_t *s, const schema_set_t *x,
                                  const bt_json_node_t *schema)
{
    if (bt_json_is_kind(schema, BT_JSON_TRUE)) {
        return x;
    }
    if (bt_json_is_kind(schema, BT_JSON_FALSE)) {
        return s->none;
    }
    return schema_check_schema(s, schema) ? set_of_object(s, x, schema) : NULL;
}
