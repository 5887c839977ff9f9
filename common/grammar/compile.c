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
#include "common/grammar/regex_syntax.h"

#define MAX_CHOICES 10000u

/* Returns an expression of what a source describes; NULL: the compiler has
 * failed. */
typedef const bt_expr_t *(*source_fn_t)(bt_grammar_builder_t *b,
                                        bt_grammar_compiler_t *c,
                                        const bt_grammar_source_t *source);

/* ---- choice ---- */

static const bt_expr_t *expr_of_choices(bt_grammar_builder_t *b,
                                        bt_grammar_compiler_t *c,
                                        const bt_json_doc_t *doc)
{
    const bt_json_node_t *const list = bt_json_doc_root(doc);
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *node;
    const char **texts;
    size_t *lens;

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
        node = bt_json_next(doc, node);
    }
    return bt_expr_dfa(b, bt_dfa_of_texts(c, texts, lens, n));
}

static const bt_expr_t *choice(bt_grammar_builder_t *b,
                               bt_grammar_compiler_t *c,
                               const bt_grammar_source_t *source)
{
    const bt_expr_t *x;
    bt_json_fault_t fault;
    bt_json_doc_t *doc;
    const bt_status_t status = bt_json_doc_parse_client(
        source->text, source->bytes, UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        bt_grammar_fail(
            c, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "choices are not JSON: %s at byte %zu", fault.what, fault.at);
        return NULL;
    }
    x = expr_of_choices(b, c, doc);
    bt_json_doc_free(doc);
    return x;
}

static const bt_expr_t *json_object(bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c,
                                    const bt_grammar_source_t *source)
{
    return bt_json_object_expr(b, c, source->compact);
}

/* Expressions copy what they keep of the document. */
static const bt_expr_t *json_schema(bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c,
                                    const bt_grammar_source_t *source)
{
    const bt_json_schema_options_t options = {.compact = source->compact,
                                              .lenient = source->lenient};
    const bt_expr_t *x;
    bt_json_fault_t fault;
    bt_json_doc_t *doc;
    const bt_status_t status = bt_json_doc_parse_client(
        source->text, source->bytes, UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        bt_grammar_fail(
            c, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "the schema is not JSON: %s at byte %zu", fault.what, fault.at);
        return NULL;
    }
    x = bt_json_schema_expr(b, c, doc, bt_json_doc_root(doc), &options);
    bt_json_doc_free(doc);
    return x;
}

static const bt_expr_t *ebnf(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                             const bt_grammar_source_t *source)
{
    return bt_ebnf_expr(b, c, source->text, source->bytes);
}

static const bt_expr_t *regex(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const bt_grammar_source_t *source)
{
    return bt_regex_expr(b, c, source->text, source->bytes);
}

/* ---- all kinds ---- */

static const source_fn_t kinds[] = {
    [BT_GRAMMAR_JSON_OBJECT] = json_object,
    [BT_GRAMMAR_JSON_SCHEMA] = json_schema,
    [BT_GRAMMAR_REGEX] = regex,
    [BT_GRAMMAR_CHOICE] = choice,
    [BT_GRAMMAR_EBNF] = ebnf,
};

bool bt_grammar_compiles(bt_grammar_kind_t kind)
{
    return ((size_t)kind < BT_ARRAY_LEN(kinds)) && (kinds[kind] != NULL);
}

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
    }
    bt_grammar_bounds_destroy(bounds);
    bt_grammar_free(grammar);
}

static void compile(bt_grammar_compiler_t *c, const bt_grammar_source_t *source,
                    const uint8_t **program_p, size_t *bytes_p)
{
    bt_grammar_builder_t *b = bt_builder_create(c);
    const uint32_t root = bt_builder_rule(b, "root");

    if (source->bytes > BT_GRAMMAR_TEXT_BYTES) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE, "it has more than %u bytes",
                        BT_GRAMMAR_TEXT_BYTES);
        return;
    }
    bt_builder_define(b, root, kinds[source->kind](b, c, source));
    if (bt_grammar_ok(c) &&
        (bt_builder_finish(b, root, program_p, bytes_p) == BT_OK)) {
        check(c, *program_p, *bytes_p);
    }
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
    if (bt_grammar_compiles(source->kind)) {
        compile(&c, source, &program, &bytes);
    } else {
        bt_grammar_fail(&c, BT_ERR_UNSUPPORTED,
                        "grammars of this kind are not supported");
    }
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
