/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

/* What OpenAI asks of a schema with strict: true, in its words: every object
 * closed, and every property required.
 * Source: OpenAI's guide "Structured model outputs", "Supported schemas". */

/* Where a schema is in the whole one, as OpenAI shows it. */
typedef struct context {
    const struct context *outer; /* NULL: the whole schema */
    const bt_json_node_t *key;   /* NULL: an index */
    uint32_t index;
} context_t;

typedef struct walk {
    bt_api_parse_t *parse;
    const char *field, *what, *name;
    bt_status_t status;
} walk_t;

static void put_context(const context_t *at, uint32_t *n_p, bt_strbuf_t *out)
{
    if (at->outer == NULL) {
        return;
    }
    put_context(at->outer, n_p, out);
    bt_strbuf_puts(out, (*n_p > 0) ? ", " : "");
    if (at->key != NULL) {
        bt_strbuf_puts(out, "'");
        bt_strbuf_append(out, at->key->text, at->key->len);
        bt_strbuf_puts(out, "'");
    } else {
        bt_strbuf_printf(out, "'%u'", at->index);
    }
    (*n_p)++;
}

static void refuse(walk_t *w, const context_t *at, const char *what,
                   const bt_json_node_t *missing)
{
    bt_strbuf_t context;
    uint32_t n = 0;

    bt_strbuf_init(&context, 256);
    put_context(at, &n, &context);
    bt_strbuf_puts(&context, (n == 1) ? "," : "");
    w->status = bt_api_refuse(
        w->parse, w->field,
        "Invalid schema for %s '%s': In context=(%s), %s%s%.*s%s", w->what,
        w->name,
        (bt_strbuf_status(&context) == BT_OK) && (context.len > 0)
            ? context.data
            : "",
        what, (missing != NULL) ? " Missing '" : "",
        (missing != NULL) ? (int)((missing->len < 64) ? missing->len : 64) : 0,
        (missing != NULL) ? missing->text : "", (missing != NULL) ? "'." : "");
    bt_strbuf_fini(&context);
}

/* ---- names that an object requires ---- */

/* Sorted, so that many properties take little time. */
typedef struct names {
    const bt_json_node_t **names; /* owned */
    uint32_t n;
} names_t;

static int compare_names(const void *a_p, const void *b_p)
{
    const bt_json_node_t *a = *(const bt_json_node_t *const *)a_p;
    const bt_json_node_t *b = *(const bt_json_node_t *const *)b_p;
    const int order =
        memcmp(a->text, b->text, (a->len < b->len) ? a->len : b->len);

    return (order != 0) ? order : (a->len > b->len) - (a->len < b->len);
}

/* Lists the strings of an array. @return false: no memory */
static bool names_of(const bt_json_doc_t *doc, const bt_json_node_t *list,
                     names_t *names)
{
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *item = (n > 0) ? bt_json_first(list) : NULL;

    *names =
        (names_t){.names = bt_calloc((size_t)n + 1, sizeof(*names->names))};
    if (names->names == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (bt_json_is_kind(item, BT_JSON_STRING)) {
            names->names[names->n++] = item;
        }
        item = bt_json_next(doc, item);
    }
    qsort(names->names, names->n, sizeof(*names->names), compare_names);
    return true;
}

static bool lists(const names_t *names, const bt_json_node_t *name)
{
    return bsearch(&name, names->names, names->n, sizeof(*names->names),
                   compare_names) != NULL;
}

/* Refuses an object with a property that is not required. */
static void check_required(walk_t *w, const context_t *at,
                           const bt_json_node_t *schema)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *properties = bt_json_get(doc, schema, "properties");
    const uint32_t n = bt_json_size(properties, BT_JSON_OBJECT);
    const bt_json_node_t *key = (n > 0) ? bt_json_first(properties) : NULL;
    names_t names;

    if (!names_of(doc, bt_json_get(doc, schema, "required"), &names)) {
        w->status = bt_api_error_no_memory(w->parse->error);
        return;
    }
    for (uint32_t i = 0; (i < n) && (w->status == BT_OK); i++) {
        if (!lists(&names, key)) {
            refuse(w, at,
                   "'required' is required to be supplied and to be an array "
                   "including every key in properties.",
                   key);
        }
        key = bt_json_next(doc, key + 1);
    }
    bt_free(names.names);
}

static void check_object(walk_t *w, const context_t *at,
                         const bt_json_node_t *schema)
{
    const bt_json_node_t *more =
        bt_json_get(w->parse->doc, schema, "additionalProperties");

    if (bt_json_is_kind(more, BT_JSON_FALSE)) {
        check_required(w, at, schema);
    } else {
        refuse(w, at,
               "'additionalProperties' is required to be supplied and to be "
               "false.",
               NULL);
    }
}

/* ---- the walk ---- */

static bool is_object(const bt_json_doc_t *doc, const bt_json_node_t *schema)
{
    const bt_json_node_t *type = bt_json_get(doc, schema, "type");
    const bt_json_node_t *item = NULL;

    if (bt_json_is(type, "object") ||
        (bt_json_get(doc, schema, "properties") != NULL)) {
        return true;
    }
    for (uint32_t i = 0; i < bt_json_size(type, BT_JSON_ARRAY); i++) {
        item = (i == 0) ? bt_json_first(type) : bt_json_next(doc, item);
        if (bt_json_is(item, "object")) {
            return true;
        }
    }
    return false;
}

static void check(walk_t *w, const context_t *at, const bt_json_node_t *schema);

/* Checks each member of an object of schemas, or each item of a list. */
static void check_each(walk_t *w, const context_t *at,
                       const bt_json_node_t *schemas)
{
    const bool is_list = bt_json_is_kind(schemas, BT_JSON_ARRAY);
    const bt_json_node_t *item;

    if (!is_list && !bt_json_is_kind(schemas, BT_JSON_OBJECT)) {
        return;
    }
    item = bt_json_first(schemas);
    for (uint32_t i = 0; (i < schemas->n) && (w->status == BT_OK); i++) {
        const context_t inner = {
            .outer = at, .key = is_list ? NULL : item, .index = i};
        const bt_json_node_t *schema = is_list ? item : item + 1;

        check(w, &inner, schema);
        item = bt_json_next(w->parse->doc, schema);
    }
}

/* Its depth is that of the JSON text, at most BT_JSON_DOC_DEPTH. */
static void check(walk_t *w, const context_t *at, const bt_json_node_t *schema)
{
    static const char *const many[] = {"properties", "anyOf", "$defs",
                                       "definitions"};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *key;

    if (!bt_json_is_kind(schema, BT_JSON_OBJECT)) {
        return;
    }
    if (is_object(doc, schema)) {
        check_object(w, at, schema);
    }
    key = (schema->n > 0) ? bt_json_first(schema) : NULL;
    for (uint32_t i = 0; (i < schema->n) && (w->status == BT_OK); i++) {
        const context_t inner = {.outer = at, .key = key};

        for (size_t k = 0; k < BT_ARRAY_LEN(many); k++) {
            if (bt_json_is(key, many[k])) {
                check_each(w, &inner, key + 1);
            }
        }
        if (bt_json_is(key, "items")) {
            check(w, &inner, key + 1);
        }
        key = bt_json_next(doc, key + 1);
    }
}

bt_status_t bt_api_check_strict_schema(bt_api_parse_t *parse, const char *field,
                                       const char *what, const char *name,
                                       const bt_json_node_t *schema)
{
    const context_t whole = {.outer = NULL};
    walk_t w = {.parse = parse,
                .field = field,
                .what = what,
                .name = name,
                .status = BT_OK};
    const bt_json_node_t *type = bt_json_get(parse->doc, schema, "type");

    if (!bt_json_is(type, "object")) {
        return bt_api_refuse(
            parse, field,
            "Invalid schema for %s '%s': schema must be a JSON Schema of "
            "'type: \"object\"', got 'type: %s'.",
            what, name, (type != NULL) ? BT_API_SHOW(type) : "\"None\"");
    }
    check(&w, &whole, schema);
    return w.status;
}
