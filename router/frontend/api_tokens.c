/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of tokenize and detokenize, as vLLM's server has them. */
#include "router/frontend/api_priv.h"

static void put_id(bt_json_t *json, const void *choice_p, const void *none,
                   size_t i)
{
    const bt_api_choice_t *choice = choice_p;

    (void)none;
    bt_json_u64(json, NULL, choice->token_ids[i]);
}

static void put_text(bt_json_t *json, const void *choice_p, const void *tok,
                     size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes =
        bt_token_bytes(tok, choice->token_ids[i], &n, &is_special);

    bt_json_strn(json, NULL, (const char *)bytes, n);
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
        bt_json_array_of(json, "tokens", 0, choice->n_token_ids, put_id, choice,
                         NULL);
        if (answer->token_texts) {
            bt_json_array_of(json, "token_strs", 0, choice->n_token_ids,
                             put_text, choice, answer->tok);
        } else {
            bt_json_null(json, "token_strs");
        }
    }
    bt_json_end_object(json);
}
