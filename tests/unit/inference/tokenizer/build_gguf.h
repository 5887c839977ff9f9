/* SPDX-License-Identifier: Apache-2.0 */
/** @file build_gguf.h  Writes the metadata of a small GGUF file in memory. */
#ifndef BT_TESTS_UNIT_TOKENIZER_BUILD_GGUF_H
#define BT_TESTS_UNIT_TOKENIZER_BUILD_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tests/support/testsupport.h"

/* Value types of the GGUF specification. */
enum {
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STR = 8,
    GGUF_ARRAY = 9,
};

typedef struct build {
    uint8_t bytes[1 << 16];
    size_t n;
    uint64_t n_kv;
} build_t;

static inline void build_put(build_t *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof(b->bytes));
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

static inline void build_u32(build_t *b, uint32_t value)
{
    build_put(b, &value, sizeof(value));
}

static inline void build_u64(build_t *b, uint64_t value)
{
    build_put(b, &value, sizeof(value));
}

static inline void build_str(build_t *b, const char *text)
{
    build_u64(b, strlen(text));
    build_put(b, text, strlen(text));
}

static inline void build_start(build_t *b)
{
    b->n = 0;
    b->n_kv = 0;
    build_put(b, "GGUF", 4);
    build_u32(b, 3);
    build_u64(b, 0); /* tensors */
    build_u64(b, 0); /* keys; build_end() writes them */
}

static inline void build_key(build_t *b, const char *key, uint32_t type)
{
    b->n_kv++;
    build_str(b, key);
    build_u32(b, type);
}

static inline void build_kv_str(build_t *b, const char *key, const char *text)
{
    build_key(b, key, GGUF_STR);
    build_str(b, text);
}

static inline void build_kv_u32(build_t *b, const char *key, uint32_t value)
{
    build_key(b, key, GGUF_U32);
    build_u32(b, value);
}

static inline void build_kv_bool(build_t *b, const char *key, bool value)
{
    const uint8_t byte = value;

    build_key(b, key, GGUF_BOOL);
    build_put(b, &byte, 1);
}

static inline void build_kv_strs(build_t *b, const char *key,
                                 const char *const *texts, size_t n)
{
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, GGUF_STR);
    build_u64(b, n);
    for (size_t i = 0; i < n; i++) {
        build_str(b, texts[i]);
    }
}

static inline void build_kv_i32s(build_t *b, const char *key,
                                 const int32_t *values, size_t n)
{
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, GGUF_I32);
    build_u64(b, n);
    build_put(b, values, n * sizeof(*values));
}

static inline void build_kv_f32s(build_t *b, const char *key,
                                 const float *values, size_t n)
{
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, GGUF_F32);
    build_u64(b, n);
    build_put(b, values, n * sizeof(*values));
}

static inline void build_end(build_t *b)
{
    static const uint8_t zeros[32];

    memcpy(b->bytes + 16, &b->n_kv, sizeof(b->n_kv));
    build_put(b, zeros, (32 - b->n % 32) % 32);
}

/** A whole file: byte-level BPE with these tokens and merges, cut as GPT-2. */
static inline void build_bpe_of(build_t *b, const char *const *tokens,
                                size_t n_tokens, const char *const *merges,
                                size_t n_merges)
{
    build_start(b);
    build_kv_str(b, "tokenizer.ggml.model", "gpt2");
    build_kv_str(b, "tokenizer.ggml.pre", "gpt-2");
    build_kv_strs(b, "tokenizer.ggml.tokens", tokens, n_tokens);
    build_kv_strs(b, "tokenizer.ggml.merges", merges, n_merges);
    build_end(b);
}

#endif
