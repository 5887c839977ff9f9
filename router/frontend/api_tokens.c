/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of tokenize and detokenize, as vLLM's server has them. */
#include "router/frontend/api_priv.h"

static void put_ids(const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_array(json, "tokens");
    for (uint32_t i = 0; i < choice->n_token_ids; i++) {
        bt_json_u64(json, NULL, choice->token_ids[i]);
    }
    bt_json_end_array(json);
}

static void put_texts(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, bt_json_t *json)
{
    if (!answer->token_texts) {
        bt_json_null(json, "token_strs");
        return;
    }
    bt_json_array(json, "token_strs");
    for (uint32_t i = 0; i < choice->n_token_ids; i++) {
        bool is_special = false;
        size_t n = 0;
        const uint8_t *bytes =
            bt_token_bytes(answer->tok, choice->token_ids[i], &n, &is_special);

        bt_json_strn(json, NULL, (const char *)bytes, n);
    }
    bt_json_end_array(json);
}

void bt_api_put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    if (answer->dialect == BT_API_DETOKENIZE) {
        bt_json_strn(json, "prompt", choice->text, choice->text_bytes);
    } else {
        bt_json_u64(json, "count", choice->n_token_ids);
        bt_json_u64(json, "max_model_len", answer->context_tokens);
        put_ids(choice, json);
        put_texts(answer, choice, json);
    }
    bt_json_end_object(json);
}
