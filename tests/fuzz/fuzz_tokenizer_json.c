/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json, or tokenizer.model where the first byte is no brace. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/assert.h"
#include "inference/tokenizer/tokenizer.h"
#include "tests/fuzz/hf_files.h"

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
        bt_tokenizer_destroy(tok);
    }
    bt_gguf_close(gguf);
    return 0;
}
