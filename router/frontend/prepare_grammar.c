/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/distance.h"
#include "router/frontend/prepare.h"
#include "router/frontend/prepare_priv.h"

bt_grammar_source_t bt_prepare_grammar_source(const bt_api_request_t *request)
{
    const bt_api_grammar_t *const g = &request->grammar;

    return (bt_grammar_source_t){.kind = g->kind,
                                 .compact = g->compact,
                                 .lenient = g->lenient,
                                 .text = g->text,
                                 .bytes = g->bytes};
}

static bt_status_t refuse(const bt_api_grammar_t *g, const char *why,
                          bt_api_error_t *error)
{
    if (g->schema_name != NULL) { /* OpenAI's words */
        return bt_api_error_invalid(error, g->field,
                                    "Invalid schema for %s '%s': %s", g->field,
                                    g->schema_name, why);
    }
    return bt_api_error_invalid(error, g->field, "%s: %s", g->field, why);
}

/* Gives each prompt a copy of the program. */
static bt_status_t give(bt_prepared_t *prepared, const bt_grammar_made_t *made,
                        bool completes, bt_api_error_t *error)
{
    for (size_t i = 0; i < prepared->n_prompts; i++) {
        bt_prompt_t *const prompt = prepared->prompts[i].prompt;

        prompt->grammar = bt_memdup(made->program, made->bytes);
        if (prompt->grammar == NULL) {
            return bt_api_error_no_memory(error);
        }
        prompt->grammar_bytes = (uint32_t)made->bytes;
        prompt->completes = completes;
    }
    return BT_OK;
}

/* Checks that the shortest answer has as many tokens as it may need: one for
 * each byte. */
static bt_status_t check_length(const bt_prepared_t *prepared,
                                const bt_grammar_made_t *made,
                                bt_api_error_t *error)
{
    uint32_t shortest = 0;
    const bt_status_t status =
        bt_grammar_shortest(made->program, made->bytes, &shortest);

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error);
    }
    if (status != BT_OK) {
        return bt_api_error_invalid(
            error, "complete_in_max_tokens",
            "complete_in_max_tokens is not supported with a grammar that is so "
            "large");
    }
    for (size_t i = 0; i < prepared->n_prompts; i++) {
        if (prepared->prompts[i].max_new < shortest) {
            return bt_api_error_invalid(
                error, "complete_in_max_tokens",
                "complete_in_max_tokens: the shortest answer may take %u "
                "tokens, and it may have %u",
                shortest, prepared->prompts[i].max_new);
        }
    }
    return BT_OK;
}

/* What is compiled for a request. */
typedef struct making {
    bt_grammar_cache_t *cache;
    bt_prepare_format_t format;
    const bt_api_request_t *request;
    bt_tenant_t *tenant;
    bt_hash128_t space;
    uint64_t cpu_us; /* of all compilations */
    bt_grammar_made_t *made;
    bt_api_error_t *error;
} making_t;

static void forget(making_t *m)
{
    bt_free(m->made->program);
    m->made->program = NULL;
}

/* True where a description cannot be held. */
static bool is_refused(bt_status_t status)
{
    return (status != BT_OK) && (status != BT_ERR_NO_MEMORY) &&
           (status != BT_ERR_BUSY);
}

static bt_status_t make_source(making_t *m, const bt_grammar_source_t *source)
{
    const bt_status_t status =
        bt_grammar_cache_make(m->cache, m->tenant, m->space, source, m->made);

    m->cpu_us += m->made->cpu_us;
    return status;
}

/* Compiles the description alone; its errors are in its own words. */
static bt_status_t make_description(making_t *m)
{
    const bt_grammar_source_t source = bt_prepare_grammar_source(m->request);
    const bt_status_t status = make_source(m, &source);

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(m->error);
    }
    return is_refused(status)
               ? refuse(&m->request->grammar, m->made->why, m->error)
               : status;
}

/* Compiles the whole answer. @return status of the compilation */
static bt_status_t make_answer(making_t *m)
{
    const bt_api_grammar_t *const g = &m->request->grammar;
    bt_grammar_source_t source = {.kind = BT_GRAMMAR_STRUCTURAL_TAG,
                                  .compact = g->compact,
                                  .lenient = g->lenient};
    bt_strbuf_t text;
    bt_status_t status;

    bt_strbuf_init(&text, BT_GRAMMAR_TAG_BYTES);
    status = bt_prepare_format(&m->format, &text);
    if (status == BT_OK) {
        source.text = text.data;
        source.bytes = text.len;
        status = make_source(m, &source);
    }
    bt_strbuf_fini(&text);
    return status;
}

/* Finds the tool whose schema, or grammar, cannot be held in the JSON pointer
 * with which the sentence begins: …/tags/N/content/json_schema, or, of a tool
 * that is named, …/json_schema.
 * @param [out] why_p  the sentence, from the pointer within the schema on
 * @param [out] what_p  what it is called
 * @return its name, as long as *n_p; NULL: the sentence is of no schema */
static const char *find_fault(const bt_api_tools_t *tools, const char *sentence,
                              const char **why_p, const char **what_p, int *n_p)
{
    static const struct {
        const char *member, *what;
    } parts[] = {{"/json_schema", "schema for function"},
                 {"/elements/1/lark", "grammar for tool"},
                 {"/elements/1/pattern", "grammar for tool"}};
    static const char tags[] = "/tags/";
    const char *at = NULL;
    const char *const tag = strstr(sentence, tags);
    const char *name = tools->names;
    unsigned long left = 0;

    for (size_t i = 0; (i < BT_ARRAY_LEN(parts)) && (at == NULL); i++) {
        at = strstr(sentence, parts[i].member);
        if (at != NULL) {
            *why_p = at + strlen(parts[i].member);
            *what_p = parts[i].what;
        }
    }
    if ((sentence[0] != '/') || (at == NULL)) {
        return NULL;
    }
    if (tools->forced != NULL) {
        name = tools->forced;
    } else if ((tag != NULL) && (tag < at)) {
        left = strtoul(tag + strlen(tags), NULL, 10);
    } else {
        return NULL;
    }
    for (; left > 0; left--) {
        name += strlen(name) + 1;
        if (name >= tools->names + tools->names_bytes) {
            return NULL;
        }
    }
    *n_p = (int)strlen(name);
    return name;
}

static bt_status_t refuse_answer(making_t *m)
{
    const bt_api_grammar_t *const g = &m->request->grammar;
    const char *why = m->made->why;
    const char *part = why, *what = "";
    const char *name;
    int n;

    if (!bt_prepare_follows_tools(m->format.served, m->request)) {
        return refuse(g, why, m->error);
    }
    name = find_fault(&m->request->tools, why, &part, &what, &n);
    if (name != NULL) {
        return bt_api_error_invalid(m->error, "tools", "Invalid %s '%.*s': %s",
                                    what, n, name,
                                    (part[0] == ':') ? part + 2 : part);
    }
    return bt_api_error_invalid(
        m->error, "tools", "tools: their schemas together cannot be held: %s",
        (why[0] != '\0') ? why : "they are longer than 1 MiB");
}

/* Compiles what the request asks for. Schemas of tools that are not strict are
 * left out where they cannot be held. */
static bt_status_t make(making_t *m)
{
    const bool follows_tools =
        bt_prepare_follows_tools(m->format.served, m->request);
    bt_status_t status = BT_OK;

    if (m->request->grammar.field != NULL) {
        status = make_description(m);
        if ((status != BT_OK) ||
            (!follows_tools && !m->format.opens_reasoning &&
             !m->format.may_reason)) {
            return status;
        }
        forget(m);
    }
    status = make_answer(m);
    if (is_refused(status) && follows_tools) {
        m->format.no_schemas = true;
        status = make_answer(m);
    }
    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(m->error);
    }
    return is_refused(status) ? refuse_answer(m) : status;
}

bt_status_t bt_prepare_grammar(bt_grammar_cache_t *cache,
                               const bt_served_t *served,
                               const bt_api_request_t *request,
                               bt_prepared_t *prepared,
                               bt_grammar_made_t *made_p, bt_api_error_t *error)
{
    making_t m = {.cache = cache,
                  .format = {.served = served,
                             .request = request,
                             .opens_reasoning = prepared->opens_reasoning,
                             .may_reason = prepared->may_reason},
                  .request = request,
                  .tenant = prepared->tenant,
                  .space = prepared->space,
                  .made = made_p,
                  .error = error};
    bt_status_t status;

    if (!bt_prepare_has_grammar(served, request)) {
        return request->grammar.completes
                   ? bt_api_error_invalid(
                         error, "complete_in_max_tokens",
                         "complete_in_max_tokens needs a description of the "
                         "answer, or tools that are required or strict")
                   : BT_OK;
    }
    if ((request->grammar.field != NULL) && (request->tools.json != NULL) &&
        !bt_prepare_follows_tools(served, request)) {
        return bt_api_error_invalid(
            error, request->grammar.field,
            "%s and tools together are not supported with this model's tool "
            "calls: the answer could call no tool; use tool_choice \"none\"",
            request->grammar.field);
    }
    status = make(&m);
    if ((status == BT_OK) && request->grammar.completes) {
        status = check_length(prepared, made_p, error);
    }
    if (status == BT_OK) {
        status = give(prepared, made_p, request->grammar.completes, error);
    }
    forget(&m);
    made_p->cpu_us = m.cpu_us;
    return status;
}
