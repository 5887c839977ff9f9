/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a model's tokenizer, for clients that tokenize through this server:
 * vLLM's route, with the parts of its answer that evaluation harnesses read. */
#include "common/base/json.h"
#include "common/base/status.h"
#include "router/frontend/registry.h"

static void put_token(const bt_served_t *served, const char *name,
                      const char *key, bt_json_t *json)
{
    uint32_t id = BT_TOKEN_NONE;
    bool is_special = false;
    const uint8_t *bytes = NULL;
    size_t n = 0;

    if (bt_gguf_get_u32(served->gguf, key, &id) == BT_OK) {
        bytes = bt_token_bytes(served->tok, id, &n, &is_special);
    }
    if (bytes == NULL) {
        bt_json_null(json, name);
        return;
    }
    bt_json_strn(json, name, (const char *)bytes, n);
}

void bt_served_write_tokenizer(const bt_served_t *served, bt_strbuf_t *out)
{
    static const struct {
        const char *name;
        const char *key;
    } tokens[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"},
    };
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "model", served->name);
    for (size_t i = 0; i < BT_ARRAY_LEN(tokens); i++) {
        put_token(served, tokens[i].name, tokens[i].key, &json);
    }
    bt_json_u64(&json, "model_max_length", bt_served_context_tokens(served));
    bt_json_end_object(&json);
}
