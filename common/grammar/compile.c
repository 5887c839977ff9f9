/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compile.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/grammar/bounds.h"
#include "common/grammar/builder.h"
#include "common/grammar/ebnf.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/lark.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/structural_tag.h"

#define MAX_CHOICES 10000u

/* Documents that live as long as the builder. */
typedef struct docs {
    bt_json_doc_t *doc; /* of a source that is JSON */
    bt_lark_docs_t lark;
} docs_t;

/* Returns an expression of what a source describes; NULL: the compiler has
 * failed. */
typedef const bt_expr_t *(*source_fn_t)(bt_grammar_builder_t *b,
                                        bt_grammar_compiler_t *c,
                                        const bt_grammar_source_t *source,
                                        docs_t *docs);

/* ---- choice ---- */

static const bt_expr_t *choice(bt_grammar_builder_t *b,
                               bt_grammar_compiler_t *c,
                               const bt_grammar_source_t *source, docs_t *docs)
{
    const bt_json_node_t *const list = bt_json_doc_root(docs->doc);
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *node;
    const char **texts;
    size_t *lens;

    (void)source;
    if (n == 0) {
        bt_grammar_fail(c, BT_ERR_INVALID_PARAM,
                        "choices must be a list of at least one string");
        return NULL;
    }
    if (n > MAX_CHOICES) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE, "there are more than %u choices",
                        MAX_CHOICES);
        return NULL;
    }
    texts = bt_grammar_alloc(c, n, sizeof(*texts));
    lens = bt_grammar_alloc(c, n, sizeof(*lens));
    if ((texts == NULL) || (lens == NULL)) {
        return NULL;
    }
    node = bt_json_first(list);
    for (uint32_t i = 0; i < n; i++) {
        if (!bt_json_is_kind(node, BT_JSON_STRING)) {
            bt_grammar_fail(c, BT_ERR_INVALID_PARAM, "choice %u is no string",
                            i);
            return NULL;
        }
        texts[i] = node->text;
        lens[i] = node->len;
        node = bt_json_next(docs->doc, node);
    }
    return bt_expr_dfa(b, bt_dfa_of_texts(c, texts, lens, n));
}

/* ---- the other kinds ---- */

static bt_json_schema_options_t options_of(const bt_grammar_source_t *source)
{
    return (bt_json_schema_options_t){.compact = source->compact,
                                      .lenient = source->lenient};
}

static const bt_expr_t *json_object(bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c,
                                    const bt_grammar_source_t *source,
                                    docs_t *docs)
{
    (void)docs;
    return bt_json_object_expr(b, c, source->compact);
}

static const bt_expr_t *json_schema(bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c,
                                    const bt_grammar_source_t *source,
                                    docs_t *docs)
{
    const bt_json_schema_options_t options = options_of(source);

    return bt_json_schema_expr(b, c, docs->doc, bt_json_doc_root(docs->doc),
                               &options);
}

static const bt_expr_t *structural_tag(bt_grammar_builder_t *b,
                                       bt_grammar_compiler_t *c,
                                       const bt_grammar_source_t *source,
                                       docs_t *docs)
{
    const bt_json_schema_options_t options = options_of(source);

    return bt_structural_tag_expr(b, c, docs->doc, &options);
}

static const bt_expr_t *ebnf(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                             const bt_grammar_source_t *source, docs_t *docs)
{
    (void)docs;
    return bt_ebnf_expr(b, c, source->text, source->bytes);
}

static const bt_expr_t *lark(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                             const bt_grammar_source_t *source, docs_t *docs)
{
    const bt_json_schema_options_t options = options_of(source);

    return bt_lark_expr(b, c, source->text, source->bytes, &options,
                        &docs->lark);
}

static const bt_expr_t *regex(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const bt_grammar_source_t *source, docs_t *docs)
{
    (void)docs;
    return bt_regex_expr(b, c, source->text, source->bytes);
}

/* ---- all kinds ---- */

static const struct {
    source_fn_t make;
    const char *json; /* what a text that is JSON is called; NULL: it is not */
} kinds[] = {
    [BT_GRAMMAR_JSON_OBJECT] = {json_object, NULL},
    [BT_GRAMMAR_JSON_SCHEMA] = {json_schema, "the schema is"},
    [BT_GRAMMAR_REGEX] = {regex, NULL},
    [BT_GRAMMAR_CHOICE] = {choice, "choices are"},
    [BT_GRAMMAR_EBNF] = {ebnf, NULL},
    [BT_GRAMMAR_LARK] = {lark, NULL},
    [BT_GRAMMAR_STRUCTURAL_TAG] = {structural_tag, "the structural tag is"},
};

/* Checks that a worker will take the program. */
static void check(bt_grammar_compiler_t *c, const uint8_t *program,
                  size_t bytes)
{
    const char *why = "its counts have gaps";
    bt_grammar_bounds_t *bounds = NULL;
    bt_grammar_t *grammar = NULL;
    bt_status_t status = bt_grammar_load(program, bytes, &why, &grammar);

    if (status == BT_OK) {
        status = bt_grammar_bounds_create(grammar, &bounds);
    }
    if (status != BT_OK) {
        bt_grammar_fail(c, status, "the grammar cannot be followed: %s", why);
    } else if (!bt_grammar_can_end(bounds, grammar->rules[0].start, 0,
                                   BT_GRAMMAR_MAX_DEPTH - 1)) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE,
                        "each text of the grammar has more than %u rules in "
                        "one another",
                        BT_GRAMMAR_MAX_DEPTH);
    }
    bt_grammar_bounds_destroy(bounds);
    bt_grammar_free(grammar);
}

/* Half of a surrogate pair stands for no text at all, so U+FFFD in its place
 * would be another language. */
static bt_json_doc_t *parse(bt_grammar_compiler_t *c,
                            const bt_grammar_source_t *source)
{
    bt_json_fault_t fault;
    bt_json_doc_t *doc = NULL;
    const bt_status_t status = bt_json_doc_parse_client(
        source->text, source->bytes, UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        bt_grammar_fail(
            c, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "%s not JSON: %s at byte %zu", kinds[source->kind].json, fault.what,
            fault.at);
    } else if (bt_json_doc_half(doc) != SIZE_MAX) {
        bt_grammar_fail(c, BT_ERR_INVALID_PARAM,
                        "%s not Unicode text: half of a surrogate pair at byte "
                        "%zu",
                        kinds[source->kind].json, bt_json_doc_half(doc));
    }
    return doc;
}

static void compile(bt_grammar_compiler_t *c, const bt_grammar_source_t *source,
                    const uint8_t **program_p, size_t *bytes_p)
{
    bt_grammar_builder_t *b = bt_builder_create(c);
    const uint32_t root = bt_builder_rule(b, "root");
    docs_t docs = {0};

    const uint32_t most = (source->kind == BT_GRAMMAR_STRUCTURAL_TAG)
                              ? BT_GRAMMAR_TAG_BYTES
                              : BT_GRAMMAR_TEXT_BYTES;

    if (source->bytes > most) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE, "it has more than %u bytes", most);
        return;
    }
    if (kinds[source->kind].json != NULL) {
        docs.doc = parse(c, source);
    }
    if (bt_grammar_ok(c)) {
        bt_builder_define(b, root,
                          kinds[source->kind].make(b, c, source, &docs));
    }
    if (bt_grammar_ok(c) &&
        (bt_builder_finish(b, root, program_p, bytes_p) == BT_OK)) {
        check(c, *program_p, *bytes_p);
    }
    bt_lark_docs_free(&docs.lark);
    bt_json_doc_free(docs.doc);
}

bt_status_t bt_grammar_compile(const bt_grammar_source_t *source,
                               uint8_t **program_p, size_t *bytes_p, char *why,
                               size_t why_bytes)
{
    bt_grammar_compiler_t c;
    const uint8_t *program = NULL;
    size_t bytes = 0;
    uint8_t *copy = NULL;

    bt_grammar_compiler_init(&c);
    compile(&c, source, &program, &bytes);
    if (bt_grammar_ok(&c)) {
        copy = bt_memdup(program, bytes);
        if (copy == NULL) {
            bt_grammar_fail(&c, BT_ERR_NO_MEMORY, "out of memory");
        }
    }
    if (bt_grammar_ok(&c)) {
        *program_p = copy;
        *bytes_p = bytes;
    } else {
        (void)snprintf(why, why_bytes, "%s", c.why);
    }
    bt_grammar_compiler_fini(&c);
    return c.status;
}
