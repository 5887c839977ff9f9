/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/api_priv.h"

/* Fields of logits processors (inference/model/processors.h). Values are kept
 * as received until the whole request is read. */

void bt_api_processors_init(bt_api_request_t *request)
{
    request->sampling.processors = (bt_processor_options_t){
        .top_p_min = BT_TOP_P_MIN,
        .top_p_reset_id = BT_NO_TOKEN, /* TensorRT-LLM's -1 */
        .typical_p = 1.0f,
        .xtc_threshold = 0.1f, /* these are llama.cpp's */
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last_n = UINT32_MAX,
    };
    request->thinking_budget = -1;
}

void bt_api_processors_fini(bt_api_request_t *request)
{
    for (uint32_t i = 0; i < request->n_dry_breakers; i++) {
        bt_free(request->dry_breakers[i]);
    }
    bt_free(request->allowed_ids);
}

bt_status_t bt_api_read_allowed_ids(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    bt_api_request_t *const request = parse->request;
    const bt_status_t status =
        bt_api_ids(parse, field->name, value, &request->allowed_ids,
                   &request->n_allowed_ids);

    if ((status == BT_OK) && (request->n_allowed_ids == 0)) {
        return bt_api_refuse(parse, field->name, "%s is empty", field->name);
    }
    return status;
}

bt_status_t bt_api_read_u32_or_none(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, (int64_t)field->min,
                       (int64_t)field->max, &number);

    if (status == BT_OK) {
        uint32_t *const at =
            (uint32_t *)(void *)((char *)parse->request + field->offset);

        *at = (number < 0) ? UINT32_MAX : (uint32_t)number;
    }
    return status;
}

bt_status_t bt_api_read_dry_breakers(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value)
{
    parse->request->has_dry_breakers = true;
    return bt_api_words(parse, field->name, value, parse->request->dry_breakers,
                        &parse->request->n_dry_breakers,
                        BT_API_MAX_DRY_BREAKERS);
}

bt_status_t bt_api_read_thinking_budget(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    return bt_api_integer(parse, field->name, value, -1, INT32_MAX,
                          &parse->request->thinking_budget);
}

/* ---- repetition_detection ---- */

bt_status_t bt_api_read_repetition(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    static const char *const known[] = {"max_pattern_size", "min_pattern_size",
                                        "min_count", NULL};
    bt_repetition_t *const found = &parse->request->repetition;
    uint32_t *const values[] = {&found->max_pattern, &found->min_pattern,
                                &found->min_count};
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, field->name, value, known);
    for (unsigned i = 0; (i < BT_ARRAY_LEN(values)) && (status == BT_OK); i++) {
        const bt_json_node_t *member = bt_json_get(parse->doc, value, known[i]);
        int64_t number = 0;

        if (!bt_api_is_none(member)) {
            status = bt_api_integer(
                parse, field->name, member, 0,
                (i < 2) ? BT_MAX_REPEATED_PATTERN : INT32_MAX, &number);
        }
        *values[i] = (uint32_t)number;
    }
    if ((status != BT_OK) || (found->max_pattern == 0)) {
        return status;
    }
    if ((found->min_pattern > found->max_pattern) || (found->min_count < 2)) {
        return bt_api_refuse(parse, field->name,
                             "%s: min_pattern_size must be at most "
                             "max_pattern_size, and min_count at least 2",
                             field->name);
    }
    return BT_OK;
}

/* Its state is how surprising earlier draws were, which is lost with a worker
 * and differs where drafts are verified. 0: off. */
bt_status_t bt_api_read_mirostat(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, 0, INT32_MAX, &number);

    if ((status == BT_OK) && (number != 0)) {
        return bt_api_refuse(parse, field->name,
                             "%s is not supported: an answer would depend on "
                             "more than its request, seed and tokens; use "
                             "min_p, top_n_sigma or typical_p",
                             field->name);
    }
    return status;
}

/* ---- values without an effect ---- */

void bt_api_processors_turn_off(bt_api_request_t *request)
{
    bt_processor_options_t *const o = &request->sampling.processors;

    if (!(o->top_p_decay < 1.0f) || !(o->top_p_decay > 0.0f)) {
        o->top_p_decay = o->top_p_min = 0.0f;
        o->top_p_reset_id = 0;
    } else if (!(o->top_p_min > 0.0f)) {
        o->top_p_min = BT_TOP_P_MIN; /* Triton's clients send 0 for off */
    }
    if (!(o->top_n_sigma > 0.0f)) {
        o->top_n_sigma = 0.0f;
    }
    if (!(o->typical_p < 1.0f)) {
        o->typical_p = 0.0f;
    }
    if (!(o->xtc_probability > 0.0f) || !(o->xtc_threshold <= 0.5f)) {
        o->xtc_probability = o->xtc_threshold = 0.0f;
    }
    if (!(o->dry_multiplier > 0.0f) || !(o->dry_base >= 1.0f) ||
        (o->dry_last_n == 0)) {
        o->dry_multiplier = o->dry_base = 0.0f;
        o->dry_allowed_length = o->dry_last_n = 0;
    }
}
