/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/api_prompt.h"

#define MAX_TEXT_BYTES ((size_t)1 << 31)

static void free_prompts(bt_api_request_t *request)
{
    for (size_t i = 0; i < request->n_prompts; i++) {
        bt_free(request->prompts[i].text);
        bt_free(request->prompts[i].ids);
    }
    bt_free(request->prompts);
    request->prompts = NULL;
    request->n_prompts = 0;
}

void bt_api_prompts_fini(bt_api_request_t *request)
{
    free_prompts(request);
    bt_api_messages_fini(request);
}

/* ---- prompts ---- */

static bt_status_t text_prompt(bt_api_parse_t *parse, const char *name,
                               const json_t *value, bt_api_prompt_t *prompt)
{
    if (json_is_string(value) && (json_string_length(value) == 0)) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    return bt_api_string(parse, name, value, MAX_TEXT_BYTES, &prompt->text);
}

static bt_status_t ids_prompt(bt_api_parse_t *parse, const char *name,
                              const json_t *value, bt_api_prompt_t *prompt)
{
    const size_t n = json_array_size(value);

    if (n == 0) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    prompt->ids = bt_calloc(n, sizeof(*prompt->ids));
    if (prompt->ids == NULL) {
        return bt_api_no_memory(parse);
    }
    prompt->n_ids = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        const double real = json_number_value(id);

        /* 3.0 is an integer, as everywhere else */
        if (!json_is_number(id) || (real != floor(real))) {
            return bt_api_refuse(parse, name,
                                 "%s: token ids must be integers, got %s", name,
                                 bt_api_type_of(id));
        }
        if ((real < 0) || (real > INT32_MAX)) {
            return bt_api_refuse(parse, name,
                                 "%s: %.15g is not a token id of this model",
                                 name, real);
        }
        prompt->ids[i] = (uint32_t)real;
    }
    return BT_OK;
}

/* An element of a list of prompts. */
static bt_status_t one_prompt(bt_api_parse_t *parse, const char *name,
                              const json_t *value, bt_api_prompt_t *prompt)
{
    if (json_is_array(value)) {
        return ids_prompt(parse, name, value, prompt);
    }
    return text_prompt(parse, name, value, prompt);
}

static bt_status_t make_prompts(bt_api_parse_t *parse, size_t n)
{
    bt_api_request_t *request = parse->request;

    free_prompts(request);
    request->prompts = bt_calloc(n, sizeof(*request->prompts));
    if (request->prompts == NULL) {
        return bt_api_no_memory(parse);
    }
    request->n_prompts = n;
    return BT_OK;
}

static bool is_mark(const json_t *value)
{
    return json_is_string(value) &&
           (strcmp(json_string_value(value), BT_API_LIFT_MARK) == 0);
}

static bt_status_t take_lifted(bt_api_parse_t *parse)
{
    const bt_status_t status = make_prompts(parse, 1);

    if (status == BT_OK) {
        parse->request->prompts[0].ids = parse->lift->ids;
        parse->request->prompts[0].n_ids = parse->lift->n_ids;
        parse->lift->ids = NULL;
    }
    return status;
}

bt_status_t bt_api_read_prompt(bt_api_parse_t *parse,
                               const bt_api_field_t *field, const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    const bool list = json_is_string(first) || json_is_array(first);
    const size_t n = list ? json_array_size(value) : 1;
    bt_status_t status;

    if ((parse->lift != NULL) && is_mark(value)) {
        return take_lifted(parse);
    }
    if (!json_is_string(value) && !json_is_array(value)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be a string, a list of strings, token "
                             "ids or a list of token-id lists, got %s",
                             field->name, bt_api_type_of(value));
    }
    if (n > BT_API_MAX_PROMPTS) {
        return bt_api_refuse(parse, field->name,
                             "%s has %zu prompts, at most %d are allowed",
                             field->name, n, BT_API_MAX_PROMPTS);
    }
    status = make_prompts(parse, n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = one_prompt(parse, field->name,
                            list ? json_array_get(value, i) : value,
                            &parse->request->prompts[i]);
    }
    return status;
}

bt_status_t bt_api_read_text_input(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value)
{
    bt_status_t status;

    if (json_is_array(value)) { /* one of one was unwrapped by the caller */
        return bt_api_refuse(parse, field->name,
                             "%s must be one prompt, got %zu", field->name,
                             json_array_size(value));
    }
    status = make_prompts(parse, 1);
    if (status == BT_OK) {
        status =
            text_prompt(parse, field->name, value, &parse->request->prompts[0]);
    }
    return status;
}
