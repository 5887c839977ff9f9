/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Identifiers of schemas, and references to them. Source: JSON Schema 2020-12
 * core, 8 and 9; RFC 3986, 5.2; RFC 6901. */

#define MAX_RESOURCES 1024u
#define MAX_ANCHORS   4096u

/* ---- URI ---- */

typedef struct span {
    const char *text;
    uint32_t n;
} span_t;

/* Parts of an URI without its fragment, each with its delimiters: "http:",
 * "//host", "/a/b", "?q". */
typedef struct uri {
    span_t scheme, authority, path, query;
} uri_t;

static uint32_t find_any(span_t s, uint32_t at, const char *ends)
{
    while ((at < s.n) &&
           ((s.text[at] == '\0') || (strchr(ends, s.text[at]) == NULL))) {
        at++;
    }
    return at;
}

static uri_t parse_uri(span_t s)
{
    uri_t uri = {0};
    uint32_t at = find_any(s, 0, ":/?");
    uint32_t end;

    if ((at > 0) && (at < s.n) && (s.text[at] == ':')) {
        at++;
        uri.scheme = (span_t){s.text, at};
    } else {
        at = 0;
    }
    if ((s.n - at >= 2) && (memcmp(s.text + at, "//", 2) == 0)) {
        end = find_any(s, at + 2, "/?");
        uri.authority = (span_t){s.text + at, end - at};
        at = end;
    }
    end = find_any(s, at, "?");
    uri.path = (span_t){s.text + at, end - at};
    uri.query = (span_t){s.text + end, s.n - end};
    return uri;
}

static void put(char *out, uint32_t *n_p, span_t s)
{
    if (s.n > 0) {
        memcpy(out + *n_p, s.text, s.n);
        *n_p += s.n;
    }
}

/* Appends a path without its `.` and `..`. */
static void put_path(char *out, uint32_t *n_p, span_t path)
{
    const uint32_t start = *n_p;
    uint32_t at = 0;

    while (at < path.n) {
        const uint32_t end =
            find_any(path, at + ((path.text[at] == '/') ? 1 : 0), "/");
        const span_t part = {path.text + at, end - at};
        const uint32_t slash = (part.text[0] == '/') ? 1 : 0;
        const span_t name = {part.text + slash, part.n - slash};
        const bool is_last = end == path.n;
        const bool is_dot = (name.n == 1) && (name.text[0] == '.');
        const bool is_up = (name.n == 2) && (memcmp(name.text, "..", 2) == 0);

        at = end;
        if (is_up) {
            while ((*n_p > start) && (out[--*n_p] != '/')) {
            }
        }
        if ((is_dot || is_up) && is_last && (slash > 0)) {
            out[(*n_p)++] = '/';
        } else if (!is_dot && !is_up) {
            put(out, n_p, part);
        }
    }
}

/* Resolves a reference without fragment against a base. */
static span_t resolve_uri(schema_t *s, span_t base, span_t ref)
{
    const uri_t b = parse_uri(base);
    const uri_t r = parse_uri(ref);
    char *out = bt_grammar_alloc(s->c, (size_t)base.n + ref.n + 2, 1);
    char *merged = bt_grammar_alloc(s->c, (size_t)base.n + ref.n + 2, 1);
    uint32_t n = 0;
    uint32_t n_merged = 0;

    if ((out == NULL) || (merged == NULL) ||
        !bt_grammar_spend(s->c, 1 + (base.n + ref.n) / 16)) {
        return (span_t){0};
    }
    put(out, &n, (r.scheme.n > 0) ? r.scheme : b.scheme);
    if ((r.scheme.n > 0) || (r.authority.n > 0)) {
        put(out, &n, r.authority);
        put_path(out, &n, r.path);
        put(out, &n, r.query);
        return (span_t){out, n};
    }
    put(out, &n, b.authority);
    if (r.path.n == 0) {
        put(out, &n, b.path);
        put(out, &n, (r.query.n > 0) ? r.query : b.query);
        return (span_t){out, n};
    }
    if (r.path.text[0] == '/') {
        put_path(out, &n, r.path);
    } else {
        uint32_t slash = b.path.n;

        while ((slash > 0) && (b.path.text[slash - 1] != '/')) {
            slash--;
        }
        put(merged, &n_merged, (span_t){b.path.text, slash});
        if ((slash == 0) && (b.authority.n > 0)) {
            merged[n_merged++] = '/';
        }
        put(merged, &n_merged, r.path);
        put_path(out, &n, (span_t){merged, n_merged});
    }
    put(out, &n, r.query);
    return (span_t){out, n};
}

static bool same(span_t a, span_t b)
{
    return (a.n == b.n) && ((a.n == 0) || (memcmp(a.text, b.text, a.n) == 0));
}

static span_t span_of(const bt_json_node_t *node)
{
    return (span_t){node->text, node->len};
}

/* Splits at the first '#'. @return the fragment, without it */
static span_t cut_fragment(span_t *uri)
{
    const uint32_t at = find_any(*uri, 0, "#");
    span_t fragment = {NULL, 0};

    if (at < uri->n) {
        fragment = (span_t){uri->text + at + 1, uri->n - at - 1};
    }
    uri->n = at;
    return fragment;
}

/* ---- resources ---- */

uint32_t schema_resource_of(const schema_t *s, const bt_json_node_t *node)
{
    uint32_t low = 0;
    uint32_t high = s->n_resources;

    while (high - low > 1) { /* they are in the order of the text */
        const uint32_t middle = low + (high - low) / 2;

        if (s->resources[middle].node <= node) {
            low = middle;
        } else {
            high = middle;
        }
    }
    while ((low > 0) &&
           (bt_json_next(s->doc, s->resources[low].node) <= node)) {
        low--;
    }
    return low;
}

schema_draft_t schema_draft_of(const schema_t *s, const bt_json_node_t *node)
{
    return s->resources[schema_resource_of(s, node)].draft;
}

/* Reads $schema. @return false: it names no draft that is known */
static bool read_draft(const bt_json_node_t *value, schema_draft_t *draft_p)
{
    static const struct {
        const char *part;
        schema_draft_t draft;
    } drafts[] = {{"draft-04/schema", SCHEMA_DRAFT_4},
                  {"draft-06/schema", SCHEMA_DRAFT_6},
                  {"draft-07/schema", SCHEMA_DRAFT_7},
                  {"draft/2019-09/schema", SCHEMA_DRAFT_2019},
                  {"draft/2020-12/schema", SCHEMA_DRAFT_2020}};

    for (size_t i = 0;
         bt_json_is_kind(value, BT_JSON_STRING) && (i < BT_ARRAY_LEN(drafts));
         i++) {
        if (memmem(value->text, value->len, drafts[i].part,
                   strlen(drafts[i].part)) != NULL) {
            *draft_p = drafts[i].draft;
            return true;
        }
    }
    return false;
}

static void add_resource(schema_t *s, const bt_json_node_t *node, span_t uri,
                         schema_draft_t draft)
{
    if (s->n_resources == MAX_RESOURCES) {
        schema_fail(s, BT_ERR_TOO_LARGE, node,
                    "more than %u schemas have an $id", MAX_RESOURCES);
        return;
    }
    if (bt_grammar_grow(s->c, &s->resources, &s->cap_resources,
                        s->n_resources + 1, sizeof(*s->resources))) {
        s->resources[s->n_resources++] =
            (schema_resource_t){.node = node,
                                .uri = uri.text,
                                .len = uri.n,
                                .root = s->root_resource,
                                .draft = draft};
    }
}

static void add_anchor(schema_t *s, uint32_t resource, span_t name,
                       bool is_dynamic, const bt_json_node_t *node)
{
    if (s->n_anchors == MAX_ANCHORS) {
        schema_fail(s, BT_ERR_TOO_LARGE, node,
                    "more than %u schemas have an anchor", MAX_ANCHORS);
        return;
    }
    if (bt_grammar_grow(s->c, &s->anchors, &s->cap_anchors, s->n_anchors + 1,
                        sizeof(*s->anchors))) {
        s->anchors[s->n_anchors++] = (schema_anchor_t){.resource = resource,
                                                       .name = name.text,
                                                       .len = name.n,
                                                       .is_dynamic = is_dynamic,
                                                       .node = node};
    }
}

/* Reads the identifiers of one schema.
 * @param [in] outer  its resource, unless it is one itself
 * @return its resource */
static uint32_t read_ids(schema_t *s, const bt_json_node_t *schema,
                         uint32_t outer)
{
    const bool is_root = schema == s->root;
    schema_draft_t draft = s->resources[outer].draft;
    const bt_json_node_t *id;
    const bt_json_node_t *anchor;
    span_t uri = {s->resources[outer].uri, s->resources[outer].len};
    span_t fragment = {NULL, 0};
    uint32_t own = outer;

    (void)read_draft(bt_json_get(s->doc, schema, "$schema"), &draft);
    id = bt_json_get(s->doc, schema, (draft == SCHEMA_DRAFT_4) ? "id" : "$id");
    if ((id != NULL) && !is_root &&
        (bt_json_get(s->doc, schema, "$ref") != NULL)) {
        schema_draft_t named;

        if (draft <= SCHEMA_DRAFT_7) {
            id = NULL; /* keywords beside $ref say nothing */
        } else if (!read_draft(bt_json_get(s->doc, s->root, "$schema"),
                               &named)) {
            schema_fail(s, BT_ERR_UNSUPPORTED, id,
                        "beside $ref this needs a $schema that is known: "
                        "drafts differ");
            return own;
        }
    }
    if (bt_json_is_kind(id, BT_JSON_STRING)) {
        span_t ref = span_of(id);

        fragment = cut_fragment(&ref);
        if (ref.n > 0) {
            uri = resolve_uri(s, uri, ref);
        }
        if (is_root) {
            s->resources[outer].uri = uri.text;
            s->resources[outer].len = uri.n;
        } else if (ref.n > 0) {
            add_resource(s, schema, uri, draft);
            own = s->n_resources - 1;
        }
        if (fragment.n > 0) { /* draft 7 and before */
            add_anchor(s, own, fragment, false, schema);
        }
    }
    if (draft >= SCHEMA_DRAFT_2019) {
        anchor = bt_json_get(s->doc, schema, "$anchor");
        if (bt_json_is_kind(anchor, BT_JSON_STRING)) {
            add_anchor(s, own, span_of(anchor), false, schema);
        }
        anchor = bt_json_get(s->doc, schema, "$dynamicAnchor");
        if (bt_json_is_kind(anchor, BT_JSON_STRING)) {
            add_anchor(s, own, span_of(anchor), true, schema);
        }
        s->n_recursive +=
            bt_json_is_kind(bt_json_get(s->doc, schema, "$recursiveAnchor"),
                            BT_JSON_TRUE)
                ? 1
                : 0;
    }
    return own;
}

static void visit(schema_t *s, const bt_json_node_t *schema, uint32_t outer);

/* Visits all values of a list or object. */
static void visit_all(schema_t *s, const bt_json_node_t *list, uint32_t own)
{
    const bool is_map = bt_json_is_kind(list, BT_JSON_OBJECT);
    const bt_json_node_t *child = (list->n > 0) ? bt_json_first(list) : NULL;

    for (uint32_t i = 0; (i < list->n) && bt_grammar_ok(s->c); i++) {
        const bt_json_node_t *const value = is_map ? child + 1 : child;

        visit(s, value, own);
        child = bt_json_next(s->doc, value);
    }
}

/* Visits a schema and those in it: as deep as JSON may be nested. */
static void visit(schema_t *s, const bt_json_node_t *schema, uint32_t outer)
{
    const bt_json_node_t *key;
    uint32_t own;

    if (!bt_json_is_kind(schema, BT_JSON_OBJECT) ||
        !bt_grammar_spend(s->c, 1 + schema->n)) {
        return;
    }
    own = read_ids(s, schema, outer);
    key = (schema->n > 0) ? bt_json_first(schema) : NULL;
    for (uint32_t i = 0; (i < schema->n) && bt_grammar_ok(s->c); i++) {
        const bt_json_node_t *const value = key + 1;
        const bool is_list = bt_json_is_kind(value, BT_JSON_ARRAY);

        switch (schema_keyword_holds(key)) {
        case SCHEMA_HOLDS_ONE:
            visit(s, value, own);
            break;
        case SCHEMA_HOLDS_ONE_OR_LIST:
        case SCHEMA_HOLDS_LIST:
            if (is_list) {
                visit_all(s, value, own);
            } else {
                visit(s, value, own);
            }
            break;
        case SCHEMA_HOLDS_MAP:
            if (bt_json_is_kind(value, BT_JSON_OBJECT)) {
                visit_all(s, value, own);
            }
            break;
        case SCHEMA_HOLDS_NONE:
            break;
        }
        key = bt_json_next(s->doc, value);
    }
}

void schema_find_resources(schema_t *s)
{
    const bt_json_node_t *const uri = bt_json_get(s->doc, s->root, "$schema");
    schema_draft_t draft = SCHEMA_DRAFT_2020;

    if (!read_draft(uri, &draft) && bt_json_is_kind(uri, BT_JSON_STRING) &&
        (memmem(uri->text, uri->len, "draft-03/schema", 15) != NULL)) {
        schema_fail(s, BT_ERR_UNSUPPORTED, uri, "draft 3 is not supported");
        return;
    }
    s->root_resource = s->n_resources;
    add_resource(s, s->root, (span_t){0}, draft);
    if (bt_grammar_ok(s->c)) {
        visit(s, s->root, s->root_resource);
    }
}

/* ---- references ---- */

static int hex_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *const at = strchr(digits, c | 0x20);

    return ((c == '\0') || (at == NULL) || (c < '0')) ? -1 : (int)(at - digits);
}

/* Decodes %XX. */
static span_t decode(schema_t *s, span_t text)
{
    char *out = bt_grammar_alloc(s->c, (size_t)text.n + 1, 1);
    uint32_t n = 0;

    for (uint32_t i = 0; (out != NULL) && (i < text.n); i++) {
        const int hi = (i + 2 < text.n) ? hex_of(text.text[i + 1]) : -1;
        const int lo = (i + 2 < text.n) ? hex_of(text.text[i + 2]) : -1;

        if ((text.text[i] == '%') && (hi >= 0) && (lo >= 0)) {
            out[n++] = (char)(hi << 4 | lo);
            i += 2;
        } else {
            out[n++] = text.text[i];
        }
    }
    return (span_t){out, n};
}

/* Returns a child of a node by a part of a JSON pointer; NULL: none. */
static const bt_json_node_t *child_of(const schema_t *s,
                                      const bt_json_node_t *node, span_t part)
{
    const bt_json_node_t *child = (node->n > 0) ? bt_json_first(node) : NULL;
    const bt_json_node_t *found = NULL;
    uint32_t index = 0;

    if (bt_json_is_kind(node, BT_JSON_OBJECT)) {
        for (uint32_t i = 0; i < node->n; i++) {
            if (same(span_of(child), part)) {
                found = child + 1; /* the last one counts */
            }
            child = bt_json_next(s->doc, child + 1);
        }
        return found;
    }
    if (!bt_json_is_kind(node, BT_JSON_ARRAY) || (part.n == 0) ||
        (part.n > 6)) {
        return NULL;
    }
    for (uint32_t i = 0; i < part.n; i++) {
        if ((part.text[i] < '0') || (part.text[i] > '9')) {
            return NULL;
        }
        index = index * 10 + (uint32_t)(part.text[i] - '0');
    }
    if (index >= node->n) {
        return NULL;
    }
    for (uint32_t i = 0; i < index; i++) {
        child = bt_json_next(s->doc, child);
    }
    return child;
}

/* Follows a JSON pointer, which begins with '/'. @return NULL: to nothing */
static const bt_json_node_t *follow(schema_t *s, const bt_json_node_t *node,
                                    span_t pointer)
{
    char *part = bt_grammar_alloc(s->c, (size_t)pointer.n + 1, 1);
    uint32_t at = 0;

    while ((part != NULL) && (node != NULL) && (at < pointer.n)) {
        uint32_t n = 0;

        if (!bt_grammar_spend(s->c, 1 + node->n / 4)) {
            return NULL;
        }
        for (at++; (at < pointer.n) && (pointer.text[at] != '/'); at++) {
            char byte = pointer.text[at];

            if ((byte == '~') && (at + 1 < pointer.n)) {
                at++;
                byte = (pointer.text[at] == '0') ? '~' : '/';
            }
            part[n++] = byte;
        }
        node = child_of(s, node, (span_t){part, n});
    }
    return node;
}

static const bt_json_node_t *find_anchor(const schema_t *s, uint32_t resource,
                                         span_t name, bool *is_dynamic_p)
{
    for (uint32_t i = 0; i < s->n_anchors; i++) {
        const schema_anchor_t *const anchor = &s->anchors[i];

        if ((anchor->resource == resource) &&
            same((span_t){anchor->name, anchor->len}, name)) {
            *is_dynamic_p = anchor->is_dynamic;
            return anchor->node;
        }
    }
    return NULL;
}

/* Finds the resource of an URI within one document. @return n_resources: none
 */
static uint32_t find_resource(const schema_t *s, uint32_t root, span_t uri)
{
    uint32_t i = root;

    while ((i < s->n_resources) &&
           ((s->resources[i].root != root) ||
            !same((span_t){s->resources[i].uri, s->resources[i].len}, uri))) {
        i++;
    }
    return i;
}

/* True where a dynamic reference may lead elsewhere than to its target. */
static bool is_ambiguous(const schema_t *s, span_t name)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_anchors; i++) {
        n += (s->anchors[i].is_dynamic &&
              same((span_t){s->anchors[i].name, s->anchors[i].len}, name))
                 ? 1
                 : 0;
    }
    return n > 1;
}

const bt_json_node_t *schema_resolve(schema_t *s, const char *key,
                                     const bt_json_node_t *value)
{
    const bool is_dynamic = strcmp(key, "$dynamicRef") == 0;
    const bool is_recursive = strcmp(key, "$recursiveRef") == 0;
    uint32_t resource = schema_resource_of(s, value);
    const bt_json_node_t *target;
    bool has_dynamic = false;
    span_t uri;
    span_t fragment;

    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value, "must be a reference");
        return NULL;
    }
    uri = span_of(value);
    fragment = cut_fragment(&uri);
    if (uri.n > 0) {
        resource =
            find_resource(s, s->resources[resource].root,
                          resolve_uri(s,
                                      (span_t){s->resources[resource].uri,
                                               s->resources[resource].len},
                                      uri));
    }
    if (resource == s->n_resources) {
        schema_fail(s, BT_ERR_UNSUPPORTED, value,
                    "references to other documents are not supported");
        return NULL;
    }
    fragment = decode(s, fragment);
    if (fragment.n == 0) {
        target = s->resources[resource].node;
    } else if (fragment.text[0] == '/') {
        target = follow(s, s->resources[resource].node, fragment);
    } else {
        target = find_anchor(s, resource, fragment, &has_dynamic);
    }
    if (target == NULL) {
        schema_fail(s, BT_ERR_INVALID_PARAM, value, "there is no such schema");
        return NULL;
    }
    if ((is_dynamic && has_dynamic && is_ambiguous(s, fragment)) ||
        (is_recursive && (s->n_recursive > 0) && (s->n_resources > 1))) {
        schema_fail(s, BT_ERR_UNSUPPORTED, value,
                    "references that depend on where they come from are not "
                    "supported");
        return NULL;
    }
    return schema_check_schema(s, target) ? target : NULL;
}
