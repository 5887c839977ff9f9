/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids in and out, as vLLM's /inference/v1/generate has them: what is read
 * beside the fields of other dialects; and log-probs of a prompt.
 * Source: vLLM, GenerateRequest and SamplingParams. */
#include "common/base/status.h"
#include "router/api/api_priv.h"

const bt_api_names_t bt_api_tokens_names = {
    .prompt = "token_ids",
    .max_tokens = "max_tokens",
    .bad_words = "bad_words",
    .biases = "logit_bias",
};

bt_status_t bt_api_read_token_ids(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value)
{
    return bt_api_take_ids(parse, field->name, value);
}

bt_status_t bt_api_read_sampling_params(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    return bt_api_read_fields(parse, BT_API_S, BT_API_SAMPLING_PARAMS ".",
                              value);
}

/* Even 0 asks for log-probs: those of the prompt's own tokens. */
bt_status_t bt_api_read_prompt_logprobs(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status = bt_api_integer(parse, field->name, value, 0,
                                              BT_MAX_TOP_LOGPROBS, &number);

    if (status == BT_OK) {
        parse->request->has_prompt_logprobs = true;
        parse->request->n_prompt_top = (uint32_t)number;
    }
    return status;
}

bt_status_t bt_api_check_prompt_logprobs(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    bt_wants_t *wants = &request->wants;
    const uint32_t n_top = wants->n_top;

    if (!request->has_prompt_logprobs) {
        return BT_OK;
    }
    if (request->stream) {
        return bt_api_refuse(parse, "prompt_logprobs",
                             "prompt_logprobs cannot be streamed: no event of "
                             "a stream has them");
    }
    request->hides_logprobs = (wants->what & BT_WANT_LOGPROBS) == 0;
    wants->what |= BT_WANT_PROMPT_LOGPROBS;
    wants->n_top =
        (n_top > request->n_prompt_top) ? n_top : request->n_prompt_top;
    request->n_hidden_top = wants->n_top - n_top;
    return BT_OK;
}
