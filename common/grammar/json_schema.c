/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/json_schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/json_pointer.h"
#include "common/grammar/json_schema_priv.h"

/* Terms as rules, and values as expressions. */

/* ---- failures ---- */

void schema_fail(schema_t *s, bt_status_t status, const bt_json_node_t *node,
                 const char *format, ...)
{
    char pointer[BT_GRAMMAR_WHY_BYTES / 2];
    char what[BT_GRAMMAR_WHY_BYTES / 2];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    bt_json_pointer(s->doc, s->root, node, pointer, sizeof(pointer));
    bt_grammar_fail(s->c, status, "%s: %s",
                    (pointer[0] == '\0') ? "the schema" : pointer, what);
}

void schema_locate(schema_t *s, const bt_json_node_t *node)
{
    char pointer[BT_GRAMMAR_WHY_BYTES / 2];
    char what[BT_GRAMMAR_WHY_BYTES];

    if ((s->c->status == BT_ERR_UNSUPPORTED) ||
        (s->c->status == BT_ERR_INVALID_PARAM)) {
        bt_json_pointer(s->doc, s->root, node, pointer, sizeof(pointer));
        memcpy(what, s->c->why, sizeof(what));
        (void)snprintf(s->c->why, sizeof(s->c->why), "%s: %.200s", pointer,
                       what);
    }
}

schema_refusal_t *schema_refusal(schema_t *s, const bt_json_node_t *at,
                                 const char *format, uint32_t a, uint32_t b)
{
    schema_refusal_t *why = bt_grammar_alloc(s->c, 1, sizeof(*why));

    if (why != NULL) {
        *why = (schema_refusal_t){.at = at, .format = format, .a = a, .b = b};
    }
    return why;
}

void schema_refuse(schema_t *s, const schema_refusal_t *why)
{
    char what[BT_GRAMMAR_WHY_BYTES / 2];

    /* Formats are literals of this module, with up to two %u. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    (void)snprintf(what, sizeof(what), why->format, why->a, why->b);
#pragma GCC diagnostic pop
    schema_fail(s, BT_ERR_UNSUPPORTED, why->at, "%s", what);
}

/* ---- values ---- */

const bt_expr_t *schema_value(schema_t *s, schema_term_t *term)
{
    if ((term == NULL) || !bt_grammar_ok(s->c)) {
        return NULL;
    }
    if (term->is_nothing) {
        return bt_expr_nothing(s->b);
    }
    if (term->rule == 0) {
        term->rule = bt_builder_rule(s->b, NULL) + 1;
        term->undefined = s->undefined;
        s->undefined = term;
    }
    return bt_expr_rule(s->b, term->rule - 1);
}

/* Expressions of alternatives. */
typedef struct parts {
    const bt_expr_t **items;
    uint32_t n, cap;
} parts_t;

static void add(schema_t *s, parts_t *parts, const bt_expr_t *x)
{
    if ((x != NULL) && bt_grammar_grow(s->c, &parts->items, &parts->cap,
                                       parts->n + 1, sizeof(*parts->items))) {
        parts->items[parts->n++] = x;
    }
}

static const bt_expr_t *set_expr(schema_t *s, const schema_set_t *x)
{
    parts_t parts = {0};

    for (uint32_t t = 0; t < SCHEMA_N_TYPES; t++) {
        if (x->refused[t] != NULL) {
            schema_refuse(s, x->refused[t]);
        }
    }
    if (x->has_null) {
        add(s, &parts, bt_expr_literal(s->b, "null", 4));
    }
    if (x->has_false) {
        add(s, &parts, bt_expr_literal(s->b, "false", 5));
    }
    if (x->has_true) {
        add(s, &parts, bt_expr_literal(s->b, "true", 4));
    }
    if (!schema_dfa_is_empty(x->numbers)) {
        add(s, &parts, schema_numbers_expr(s, x->numbers, x->has_integers));
    }
    if (x->strings.n > 0) {
        add(s, &parts, schema_strings_expr(s, x->strings));
    }
    for (uint32_t i = 0; (i < x->lists[0].n) && bt_grammar_ok(s->c); i++) {
        if (!schema_array_is_empty(s, x->lists[0].items[i])) {
            add(s, &parts, schema_array_expr(s, x->lists[0].items[i]));
        }
    }
    for (uint32_t i = 0; (i < x->lists[1].n) && bt_grammar_ok(s->c); i++) {
        if (!schema_object_is_empty(s, x->lists[1].items[i])) {
            add(s, &parts, schema_object_expr(s, x->lists[1].items[i]));
        }
    }
    return bt_expr_alt(s->b, parts.items, parts.n);
}

static void define(schema_t *s, schema_term_t *term)
{
    const schema_set_t *const x = schema_term_set(s, term);

    if (s->loop != NULL) {
        schema_fail(s, BT_ERR_UNSUPPORTED, s->loop,
                    "the schema applies itself to one value without end");
    }
    if ((x != NULL) && bt_grammar_ok(s->c)) {
        bt_builder_define(s->b, term->rule - 1, set_expr(s, x));
    }
}

/* White space between tokens: nothing, a blank, or one or two newlines and up
 * to 20 blanks. */
static const bt_expr_t *make_space(schema_t *s)
{
    const bt_expr_t *parts[3];
    const bt_expr_t *lines[2];
    uint32_t rule;

    if (s->options.compact) {
        return bt_expr_empty(s->b);
    }
    lines[0] = bt_expr_repeat(s->b, bt_expr_literal(s->b, "\n", 1), 1, 2);
    lines[1] = bt_expr_repeat(s->b, bt_expr_literal(s->b, " ", 1), 0, 20);
    parts[0] = bt_expr_empty(s->b);
    parts[1] = bt_expr_literal(s->b, " ", 1);
    parts[2] = bt_expr_seq(s->b, lines, 2);
    rule = bt_builder_rule(s->b, "space");
    bt_builder_define(s->b, rule, bt_expr_alt(s->b, parts, 3));
    return bt_expr_rule(s->b, rule);
}

/* Defines the rules of all terms that are used. */
static void define_all(schema_t *s)
{
    while ((s->undefined != NULL) && bt_grammar_ok(s->c)) {
        schema_term_t *const term = s->undefined;

        s->undefined = term->undefined;
        define(s, term);
    }
}

static bool init(schema_t *s)
{
    if ((s->b == NULL) || !bt_grammar_ok(s->c)) {
        return false;
    }
    schema_terms_init(s);
    if (bt_grammar_ok(s->c)) {
        schema_sets_init(s);
        s->space = make_space(s);
    }
    return bt_grammar_ok(s->c);
}

struct bt_json_schemas {
    schema_t s;
};

bt_json_schemas_t *
bt_json_schemas_create(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                       const bt_json_doc_t *doc,
                       const bt_json_schema_options_t *options)
{
    bt_json_schemas_t *const schemas = bt_grammar_alloc(c, 1, sizeof(*schemas));

    if (schemas == NULL) {
        return NULL;
    }
    schemas->s = (schema_t){.b = b, .c = c, .doc = doc, .options = *options};
    return init(&schemas->s) ? schemas : NULL;
}

const bt_expr_t *bt_json_schemas_expr(bt_json_schemas_t *schemas,
                                      const bt_json_node_t *schema)
{
    schema_t *const s = &schemas->s;
    const bt_expr_t *x;
    schema_term_t *root;

    s->root = schema;
    schema_find_resources(s);
    if (!bt_grammar_ok(s->c) || !schema_check_schema(s, schema)) {
        return NULL;
    }
    root = schema_term_of(s, schema);
    x = schema_value(s, root);
    define_all(s);
    if (bt_grammar_ok(s->c) && schema_is_empty(s, root)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, schema, "no value satisfies it");
    }
    return bt_grammar_ok(s->c) ? x : NULL;
}

const bt_expr_t *bt_json_schema_expr(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c,
                                     const bt_json_doc_t *doc,
                                     const bt_json_node_t *schema,
                                     const bt_json_schema_options_t *options)
{
    bt_json_schemas_t *const schemas =
        bt_json_schemas_create(b, c, doc, options);

    return (schemas != NULL) ? bt_json_schemas_expr(schemas, schema) : NULL;
}

const bt_expr_t *bt_json_object_expr(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c, bool compact)
{
    static const bt_json_node_t any = {.kind = BT_JSON_TRUE};
    schema_t s = {.b = b, .c = c, .root = &any, .options.compact = compact};
    const bt_expr_t *x;

    if (!init(&s)) {
        return NULL;
    }
    x = schema_object_expr(&s, s.all->lists[1].items[0]);
    define_all(&s);
    return bt_grammar_ok(c) ? x : NULL;
}
