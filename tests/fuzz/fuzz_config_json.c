/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/model/model.h"
#include "tests/fuzz/hf_files.h"

static volatile uint64_t sink;

static void read_tensors(const bt_gguf_t *gguf)
{
    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);
        uint8_t *const bytes = bt_calloc(t->bytes, 1);

        if ((bytes != NULL) && (bt_gguf_tensor_copy(t, bytes) == BT_OK)) {
            sink += bytes[0] + bytes[t->bytes - 1];
        }
        bt_free(bytes);
    }
}

static void open_with(const uint8_t *data, size_t size, const uint8_t *weights,
                      size_t n_weights)
{
    const bt_folder_entry_t entries[] = {
        {"config.json", data, size},
        {"tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER)},
        {"generation_config.json", data, size},
        {"model.safetensors", weights, n_weights},
    };
    bt_gguf_t *gguf = NULL;
    bt_hparams_t hp;
    char why[400];

    memset(why, 'x', sizeof(why));
    if (bt_hf_open_memory(entries, BT_ARRAY_LEN(entries), why, sizeof(why),
                          &gguf) != BT_OK) {
        BT_ASSERT_ALWAYS((gguf == NULL) && (strnlen(why, sizeof(why)) > 0) &&
                         (strnlen(why, sizeof(why)) < sizeof(why)));
        return;
    }
    read_tensors(gguf);
    sink += bt_gguf_identity(gguf).lo + bt_gguf_content(gguf).lo;
    if (bt_hparams_read(gguf, why, sizeof(why), &hp) == BT_OK) {
        BT_ASSERT_ALWAYS((hp.head_dim > 0) && (hp.n_vocab > 0));
    }
    bt_gguf_close(gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t (*const writers[])(uint8_t *, size_t) = {
        hf_weights, hf_expert_weights, hf_fused_weights};
    static uint8_t weights[BT_ARRAY_LEN(writers)][8192];
    static size_t n_weights[BT_ARRAY_LEN(writers)];

    for (size_t i = 0; i < BT_ARRAY_LEN(writers); i++) {
        if (n_weights[i] == 0) {
            n_weights[i] = writers[i](weights[i], sizeof(weights[i]));
        }
        open_with(data, size, weights[i], n_weights[i]);
    }
    return 0;
}
