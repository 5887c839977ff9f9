/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/prepare.h"

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
                        bt_api_error_t *error)
{
    for (size_t i = 0; i < prepared->n_prompts; i++) {
        bt_prompt_t *const prompt = prepared->prompts[i].prompt;

        prompt->grammar = bt_memdup(made->program, made->bytes);
        if (prompt->grammar == NULL) {
            return bt_api_error_no_memory(error);
        }
        prompt->grammar_bytes = (uint32_t)made->bytes;
    }
    return BT_OK;
}

bt_status_t bt_prepare_grammar(bt_grammar_cache_t *cache,
                               const bt_api_request_t *request,
                               bt_prepared_t *prepared,
                               bt_grammar_made_t *made_p, bt_api_error_t *error)
{
    const bt_api_grammar_t *const g = &request->grammar;
    const bt_grammar_source_t source = bt_prepare_grammar_source(request);
    bt_status_t status;

    if (g->field == NULL) {
        return BT_OK;
    }
    if (prepared->opens_reasoning) {
        return bt_api_error_invalid(
            error, g->field,
            "%s is not supported yet where the prompt opens the thinking part: "
            "turn that off (chat_template_kwargs)",
            g->field);
    }
    status = bt_grammar_cache_make(cache, prepared->space, &source, made_p);
    if (status == BT_OK) {
        status = give(prepared, made_p, error);
    } else if (status == BT_ERR_NO_MEMORY) {
        status = bt_api_error_no_memory(error);
    } else {
        status = refuse(g, made_p->why, error);
    }
    bt_free(made_p->program);
    made_p->program = NULL;
    return status;
}
