/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/assert.h"
#include "inference/gguf/gguf.h"

#define KEY_TOKENS  "tokenizer.ggml.tokens"
#define KEY_TYPES   "tokenizer.ggml.token_type"
#define TYPE_UNUSED 5

/* Returns the end of the ids that the file refers to. */
static uint64_t named_end(const bt_gguf_t *gguf, uint64_t n_listed)
{
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    };
    uint64_t end = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        uint32_t id;

        if ((bt_gguf_get_u32(gguf, keys[i], &id) == BT_OK) && (id < n_listed) &&
            (id >= end)) {
            end = (uint64_t)id + 1;
        }
    }
    return end;
}

static bool is_unused(const bt_gguf_t *gguf, uint64_t id)
{
    int64_t type = 0;

    return (bt_gguf_array_i64(gguf, KEY_TYPES, id, &type) == BT_OK) &&
           (type == TYPE_UNUSED);
}

bt_status_t bt_gguf_n_vocab(const bt_gguf_t *gguf, uint64_t *n_p)
{
    uint64_t n_listed = 0;
    const bt_status_t status = bt_gguf_array_len(gguf, KEY_TOKENS, &n_listed);
    uint64_t named;
    uint64_t n;

    if (status != BT_OK) {
        return status;
    }
    named = named_end(gguf, n_listed);
    n = n_listed;
    while ((n > named) && is_unused(gguf, n - 1)) {
        n--;
    }
    *n_p = (n > 0) ? n : n_listed;
    return BT_OK;
}
