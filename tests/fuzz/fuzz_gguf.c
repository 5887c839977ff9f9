/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/gguf/gguf.h"
#include "inference/model/model.h"

#define MAX_PARTS 4u

/* Keys of the seeds, and those that the loader asks for. */
static const char *const keys[] = {
    "general.architecture",
    "general.alignment",
    "split.count",
    "llama.block_count",
    "llama.rope.freq_base",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "strs",
    "ints",
    "floats",
    "bool",
    "tokenizer.ggml.scores",
    "",
};

static volatile uint64_t sink;

static void touch(const void *data, size_t n)
{
    if (n > 0) {
        sink += ((const uint8_t *)data)[0];
        sink += ((const uint8_t *)data)[n - 1];
    }
}

static void ask_all(const bt_gguf_t *gguf, const char *key)
{
    bt_gguf_str_t str;
    uint64_t u64;
    uint64_t n = 0;
    int64_t i64;
    uint32_t u32;
    float f32;
    double f64;
    bool truth;

    if (bt_gguf_get_str(gguf, key, &str) == BT_OK) {
        touch(str.data, str.len);
    }
    sink += (bt_gguf_get_u64(gguf, key, &u64) == BT_OK) ? u64 : 0;
    sink += (bt_gguf_get_u32(gguf, key, &u32) == BT_OK) ? u32 : 0;
    sink += (bt_gguf_get_f32(gguf, key, &f32) == BT_OK) && (f32 > 0.0f);
    sink += (bt_gguf_get_bool(gguf, key, &truth) == BT_OK) && truth;
    if (bt_gguf_array_len(gguf, key, &n) != BT_OK) {
        return;
    }
    /* One past the end included: it must be refused. */
    for (uint64_t i = 0; (i <= n) && (i < 1000); i++) {
        if (bt_gguf_array_str(gguf, key, i, &str) == BT_OK) {
            BT_ASSERT_ALWAYS(i < n);
            touch(str.data, str.len);
        }
        sink += bt_gguf_array_i64(gguf, key, i, &i64) == BT_OK;
        sink += bt_gguf_array_f64(gguf, key, i, &f64) == BT_OK;
        sink += bt_gguf_array_bool(gguf, key, i, &truth) == BT_OK;
    }
}

/* The parts of a model: each begins with the magic number. @return how many */
static uint32_t find_parts(const uint8_t *data, size_t size,
                           bt_gguf_span_t parts[MAX_PARTS])
{
    static const char magic[] = "GGUF\3\0\0"; /* of version 3 */
    uint32_t n = 1;

    parts[0] = (bt_gguf_span_t){.data = data, .bytes = size};
    for (size_t i = 1; (i < size) && (n < MAX_PARTS); i++) {
        if ((size - i >= sizeof(magic)) &&
            (memcmp(data + i, magic, sizeof(magic)) == 0)) {
            parts[n - 1].bytes -= size - i;
            parts[n] = (bt_gguf_span_t){.data = data + i, .bytes = size - i};
            n++;
        }
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[200];
    bt_gguf_t *gguf = NULL;
    bt_hparams_t hp;
    bt_gguf_span_t parts[MAX_PARTS];
    const uint32_t n = find_parts(data, size, parts);

    memset(why, 'x', sizeof(why));
    if (bt_gguf_open_memory_parts(parts, n, why, sizeof(why), &gguf) != BT_OK) {
        BT_ASSERT_ALWAYS((gguf == NULL) && (strnlen(why, sizeof(why)) > 0) &&
                         (strnlen(why, sizeof(why)) < sizeof(why)));
        return 0;
    }
    BT_ASSERT_ALWAYS(why[0] == '\0');
    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        ask_all(gguf, keys[i]);
    }
    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);

        BT_ASSERT_ALWAYS(t->bytes > 0);
        touch(t->data, t->bytes);
        touch(t->name.data, t->name.len);
    }
    sink += bt_gguf_tensor(gguf, "token_embd.weight") != NULL;
    sink += bt_gguf_identity(gguf).lo;
    if (bt_hparams_read(gguf, why, sizeof(why), &hp) == BT_OK) {
        BT_ASSERT_ALWAYS((hp.n_heads >= hp.n_kv_heads) && (hp.head_dim > 0) &&
                         (hp.n_vocab > 0));
    }
    bt_gguf_close(gguf);
    return 0;
}
