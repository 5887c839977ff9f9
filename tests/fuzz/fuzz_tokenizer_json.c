/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json, or tokenizer.model where the first byte is no brace. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/tokenizer/tokenizer.h"
#include "tests/fuzz/hf_files.h"

/* A text of all that tokenizers tell apart, and back. */
static void use(const bt_tokenizer_t *tok)
{
    static const char text[] =
        " a\u2581b ab\tAB <m>\n\u00e9e\u0301 \U0001F600 12!<0x41>  B\u3000";
    bt_token_vec_t ids = {0};
    bt_strbuf_t out;
    bt_detok_t detok;

    bt_strbuf_init(&out, 1u << 24);
    bt_detok_init(&detok, tok);
    if (bt_tokenize(tok, text, sizeof(text) - 1,
                    BT_TOK_PARSE_SPECIAL | BT_TOK_ADD_BOS, 1u << 16,
                    &ids) == BT_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            BT_ASSERT_ALWAYS(ids.ids[i] < bt_tokenizer_n_vocab(tok));
            bt_detok_push(&detok, ids.ids[i], &out);
        }
        bt_detok_finish(&detok, &out);
        BT_ASSERT_ALWAYS((bt_strbuf_status(&out) != BT_OK) ||
                         bt_utf8_valid((const uint8_t *)out.data, out.len));
    }
    bt_strbuf_fini(&out);
    bt_free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t weights[8192];
    static size_t n_weights;
    const bool json = (size > 0) && (data[0] == '{');
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;
    char why[400];

    if (n_weights == 0) {
        n_weights = hf_weights(weights, sizeof(weights));
    }
    {
        const bt_folder_entry_t entries[] = {
            {"config.json", HF_CONFIG, strlen(HF_CONFIG)},
            {json ? "tokenizer.json" : "tokenizer.model", data, size},
            {"tokenizer_config.json", json ? (const void *)data : "{}",
             json ? size : 2},
            {"model.safetensors", weights, n_weights},
        };

        memset(why, 'x', sizeof(why));
        if (bt_hf_open_memory(entries, BT_ARRAY_LEN(entries), why, sizeof(why),
                              &gguf) != BT_OK) {
            BT_ASSERT_ALWAYS((gguf == NULL) &&
                             (strnlen(why, sizeof(why)) > 0) &&
                             (strnlen(why, sizeof(why)) < sizeof(why)));
            return 0;
        }
    }
    if (bt_tokenizer_load(gguf, why, sizeof(why), &tok) == BT_OK) {
        BT_ASSERT_ALWAYS(bt_tokenizer_n_vocab(tok) > 0);
        use(tok);
        bt_tokenizer_destroy(tok);
    }
    bt_gguf_close(gguf);
    return 0;
}
