/* SPDX-License-Identifier: Apache-2.0 */

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "router/api/api_priv.h"

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

/* Zero characters count as text. */
static bt_status_t text_prompt(bt_api_parse_t *parse, const char *name,
                               const bt_json_node_t *value,
                               bt_api_prompt_t *prompt)
{
    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_refuse_kind(parse, name, "a string", value);
    }
    if ((value->len == 0) && (parse->request->dialect != BT_API_TOKENIZE)) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    prompt->text = bt_memdup(value->text, value->len);
    prompt->text_bytes = value->len;
    return (prompt->text == NULL) ? bt_api_error_no_memory(parse->error)
                                  : BT_OK;
}

/* Digits only, which covers nearly all ids. */
static bool plain_id(const bt_json_node_t *value, uint32_t *id_p)
{
    uint32_t id = 0;

    if ((value->kind != BT_JSON_NUMBER) || (value->len > 9)) {
        return false;
    }
    for (uint32_t i = 0; i < value->len; i++) {
        const uint32_t digit = (uint32_t)(unsigned char)value->text[i] - '0';

        if (digit > 9) {
            return false;
        }
        id = 10 * id + digit;
    }
    *id_p = id;
    return true;
}

static bt_status_t ids_prompt(bt_api_parse_t *parse, const char *name,
                              const bt_json_node_t *value,
                              bt_api_prompt_t *prompt)
{
    const bt_json_node_t *id = bt_json_first(value);
    const uint32_t n = value->n;
    unsigned steps = 0;

    if ((n == 0) && (parse->request->dialect != BT_API_DETOKENIZE)) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    prompt->ids = bt_calloc((size_t)n + 1, sizeof(*prompt->ids));
    if (prompt->ids == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    prompt->n_ids = n;
    for (uint32_t i = 0; i < n; i++) {
        if (bt_task_poll_every(&steps)) {
            return bt_api_error_no_memory(
                parse->error); /* canceled: the error is not sent */
        }
        if (!plain_id(id, &prompt->ids[i])) {
            int64_t number = 0;
            const bt_status_t status =
                bt_api_integer(parse, name, id, 0, INT32_MAX, &number);
            prompt->ids[i] = (uint32_t)number;
            if (status != BT_OK) {
                return bt_api_refuse(parse, name,
                                     "%s: token ids must be integers from 0 to "
                                     "%d, got %s",
                                     name, INT32_MAX, BT_API_SHOW(id));
            }
        }
        id = bt_json_next(parse->doc, id);
    }
    return BT_OK;
}

/* An element of a list of prompts. */
static bt_status_t one_prompt(bt_api_parse_t *parse, const char *name,
                              const bt_json_node_t *value,
                              bt_api_prompt_t *prompt)
{
    if (bt_json_is_kind(value, BT_JSON_ARRAY)) {
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
        return bt_api_error_no_memory(parse->error);
    }
    request->n_prompts = n;
    return BT_OK;
}

bt_status_t bt_api_read_prompt(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    const bt_json_node_t *at = value;
    bool list = false;
    uint32_t n = 1;
    bt_status_t status;

    if ((parse->request->dialect == BT_API_DETOKENIZE) &&
        !bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list of token ids",
                                  value);
    }
    if (!bt_json_is_kind(value, BT_JSON_STRING) &&
        !bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(
            parse, field->name,
            "a string, a list of strings, token ids or a list of token-id lists",
            value);
    }
    if (bt_json_size(value, BT_JSON_ARRAY) > 0) {
        const bt_json_node_t *first = bt_json_first(value);

        list =
            (first->kind == BT_JSON_STRING) || (first->kind == BT_JSON_ARRAY);
        at = list ? first : value;
        n = list ? value->n : 1;
    }
    if (n > BT_API_MAX_PROMPTS) {
        return bt_api_refuse(parse, field->name,
                             "%s has %u prompts, at most %d are allowed",
                             field->name, n, BT_API_MAX_PROMPTS);
    }
    status = make_prompts(parse, n);
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status =
            one_prompt(parse, field->name, at, &parse->request->prompts[i]);
        at = bt_json_next(parse->doc, at);
    }
    return status;
}

bt_status_t bt_api_take_ids(bt_api_parse_t *parse, const char *name,
                            const bt_json_node_t *value)
{
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, name, "a list of token ids", value);
    }
    status = make_prompts(parse, 1);
    return (status == BT_OK)
               ? ids_prompt(parse, name, value, &parse->request->prompts[0])
               : status;
}

bt_status_t bt_api_read_text_input(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    bt_status_t status;

    if (bt_json_is_kind(
            value,
            BT_JSON_ARRAY)) { /* one of one was unwrapped by the caller */
        return bt_api_refuse(parse, field->name,
                             "%s must be one prompt, got %u", field->name,
                             value->n);
    }
    status = make_prompts(parse, 1);
    if (status == BT_OK) {
        status =
            text_prompt(parse, field->name, value, &parse->request->prompts[0]);
    }
    return status;
}
