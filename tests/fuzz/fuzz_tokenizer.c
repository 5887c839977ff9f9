/* SPDX-License-Identifier: Apache-2.0 */
/* Input: length of the text, u16 | the text | a GGUF file with a vocabulary.
 * So both what clients send and what files hold is altered. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/tokenizer.h"
#include "inference/tokenizer/unicode.h"

#define MAX_TOKENS 100000

static void cut_into_words(const uint8_t *text, size_t bytes)
{
    static const bt_pretok_t all[] = {BT_PRETOK_GPT2, BT_PRETOK_SMOLLM,
                                      BT_PRETOK_LLAMA_BPE, BT_PRETOK_QWEN2};

    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        size_t at = 0;

        while (at < bytes) {
            const size_t n = bt_pretok_next(all[i], text + at, bytes - at);

            BT_ASSERT_ALWAYS((n > 0) && (n <= bytes - at));
            BT_ASSERT_ALWAYS(bt_utf8_valid(text + at, n));
            at += n;
        }
    }
}

/* Whole characters after every push. */
static void back_to_text(const bt_tokenizer_t *tok, const bt_token_vec_t *ids)
{
    bt_strbuf_t out;
    bt_detok_t detok;

    bt_strbuf_init(&out, 1u << 24);
    bt_detok_init(&detok, tok);
    bt_detok_init(&detok, tok);
    for (size_t i = 0; i < ids->n; i++) {
        const size_t before = out.len;

        BT_ASSERT_ALWAYS(ids->ids[i] < bt_tokenizer_n_vocab(tok));
        bt_detok_push(&detok, ids->ids[i], &out);
        BT_ASSERT_ALWAYS((out.len == before) ||
                         bt_utf8_valid((const uint8_t *)out.data + before,
                                       out.len - before));
    }
    bt_detok_finish(&detok, &out);
    BT_ASSERT_ALWAYS(bt_utf8_valid((const uint8_t *)out.data, out.len));
    bt_strbuf_fini(&out);
}

static void use(const bt_tokenizer_t *tok, const char *text, size_t bytes)
{
    const bool valid = bt_utf8_valid((const uint8_t *)text, bytes);
    bt_token_vec_t ids = {0};
    bt_detok_t detok;
    bt_strbuf_t out;

    for (unsigned flags = 0; flags <= 3; flags++) {
        const bt_status_t status =
            bt_tokenize(tok, text, bytes, flags, MAX_TOKENS, &ids);

        BT_ASSERT_ALWAYS((status == BT_ERR_INVALID_PARAM) == !valid);
        BT_ASSERT_ALWAYS((status == BT_OK) || (ids.n == 0));
        back_to_text(tok, &ids);
        if ((status == BT_OK) && (ids.n > 0)) {
            const size_t n = ids.n; /* a limit one lower must be told */

            ids.n = 0;
            BT_ASSERT_ALWAYS(bt_tokenize(tok, text, bytes, flags, n - 1,
                                         &ids) == BT_ERR_TOO_LARGE);
        }
        ids.n = 0;
    }
    bt_free(ids.ids);
    bt_strbuf_init(&out, 1u << 24);
    bt_detok_init(&detok, tok);
    for (uint32_t id = 0; id < bt_tokenizer_n_vocab(tok); id++) {
        bt_detok_push(&detok, id, &out);
    }
    bt_detok_finish(&detok, &out);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    bt_strbuf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[200];
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;
    size_t bytes;
    char *text;

    if (size < 2) {
        return 0;
    }
    bytes = (size_t)data[0] | (size_t)data[1] << 8;
    bytes = (bytes < size - 2) ? bytes : size - 2;
    text = bt_memdup(data + 2, bytes);
    if (text == NULL) {
        return 0;
    }
    if (bt_utf8_valid((const uint8_t *)text, bytes)) {
        cut_into_words((const uint8_t *)text, bytes);
    }
    if (bt_gguf_open_memory(data + 2 + bytes, size - 2 - bytes, why,
                            sizeof(why), &gguf) == BT_OK) {
        if (bt_tokenizer_load(gguf, why, sizeof(why), &tok) == BT_OK) {
            use(tok, text, bytes);
        } else {
            BT_ASSERT_ALWAYS((tok == NULL) && (why[0] != '\0'));
        }
    }
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    bt_free(text);
    return 0;
}
