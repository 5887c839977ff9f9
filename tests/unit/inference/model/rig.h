/* SPDX-License-Identifier: Apache-2.0 */
/** @file rig.h  A tiny model with a back end and a cache, and its prompt; for
 *  the tests of this folder. */
#ifndef BT_TESTS_UNIT_MODEL_RIG_H
#define BT_TESTS_UNIT_MODEL_RIG_H

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/model/model.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"

#define T        16 /* tokens per block */
#define N_TOKENS 75 /* of the test prompt: not a multiple of anything */
#define MAX_ROWS 128
#define N_BLOCKS 64

static char why[256];

/* A model file, opened; removed again at once, the map stays. */
static inline bt_gguf_t *open_tiny(const bt_tiny_model_t *tiny)
{
    char path[] = "/tmp/baton-test-model-XXXXXX";
    bt_gguf_t *gguf = NULL;
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    unlink(path);
    return gguf;
}

static inline bt_backend_t *open_backend(uint32_t n_threads)
{
    const bt_backend_config_t config = {.n_threads = n_threads,
                                        .max_rows = MAX_ROWS};
    bt_backend_t *be = NULL;

    assert_int_equal(bt_backend_open("cpu", &config, &be), BT_OK);
    return be;
}

static const bt_model_config_t default_config = {
    .max_rows = MAX_ROWS, .max_logit_rows = MAX_ROWS, .context_tokens = 256};

/* A loaded tiny model with a cache of its own. */
typedef struct rig {
    bt_backend_t *be;
    bt_model_t *model;
    bt_kv_view_t kv;
    uint32_t n_vocab;
} rig_t;

static inline rig_t make_rig_of(const bt_tiny_model_t *tiny, uint32_t n_threads,
                                bt_kv_type_t type)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);
    rig_t rig = {.be = open_backend(n_threads)};
    const bt_hparams_t *hp;

    assert_int_equal(bt_model_load(gguf, rig.be, &default_config, why,
                                   sizeof(why), &rig.model),
                     BT_OK);
    assert_string_equal(why, "");
    bt_gguf_close(gguf);
    hp = bt_model_hparams(rig.model);
    rig.n_vocab = hp->n_vocab;
    rig.kv.type = type;
    rig.kv.n_layers = hp->n_layers;
    rig.kv.n_kv_heads = hp->n_kv_heads;
    rig.kv.head_dim = hp->head_dim;
    rig.kv.tokens_per_block = T;
    rig.kv.block_bytes =
        (size_t)hp->n_layers * 2 * hp->n_kv_heads * T *
        ((size_t)hp->head_dim * info->elem_bytes + info->scale_bytes);
    rig.kv.base = bt_calloc_aligned(N_BLOCKS, rig.kv.block_bytes);
    assert_non_null(rig.kv.base);
    return rig;
}

static inline rig_t make_rig(const bt_tiny_model_t *tiny, uint32_t n_threads)
{
    return make_rig_of(tiny, n_threads, BT_KV_F16);
}

static inline void free_rig(rig_t *rig)
{
    bt_model_destroy(rig->model);
    bt_backend_close(rig->be);
    bt_free(rig->kv.base);
}

/* Some text of which every token matters. */
static inline void fill_tokens(uint32_t *tokens, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (i * 7919u + i * i * 31u + 5u) % n_vocab;
    }
}

/* One sequence's rows [from, from + n) with the logits of all of them. */
static inline void forward_range(rig_t *rig, const uint32_t *tokens,
                                 uint32_t from, uint32_t n,
                                 const uint32_t *blocks, float *out)
{
    const bt_ragged_seq_t seq = {
        .row = 0, .n_rows = n, .pos = from, .blocks = blocks};
    uint32_t rows[MAX_ROWS];
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = tokens + from,
                        .n_rows = n,
                        .logit_rows = rows,
                        .n_logit_rows = n,
                        .kv = rig->kv};
    float *logits = NULL;

    for (uint32_t i = 0; i < n; i++) {
        rows[i] = i;
    }
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    memcpy(out, logits, (size_t)n * rig->n_vocab * sizeof(*out));
}

typedef struct logits_of_prompt {
    uint32_t tokens[N_TOKENS];
    float *whole; /* (N_TOKENS, n_vocab), from one call */
    float *other; /* room for the same, computed in another way */
    size_t bytes;
} logits_of_prompt_t;

/* Blocks of a sequence, deliberately out of order. */
static inline void fill_blocks(uint32_t *blocks, uint32_t first)
{
    for (uint32_t i = 0; i < N_BLOCKS / 8; i++) {
        blocks[i] = first + (i * 5u + 3u) % (N_BLOCKS / 8);
    }
}

static inline logits_of_prompt_t run_whole(rig_t *rig)
{
    logits_of_prompt_t p = {.bytes = (size_t)N_TOKENS * rig->n_vocab *
                                     sizeof(float)};
    uint32_t blocks[N_BLOCKS / 8];

    p.whole = bt_calloc(p.bytes, 1);
    p.other = bt_calloc(p.bytes, 1);
    assert_non_null(p.whole);
    assert_non_null(p.other);
    fill_tokens(p.tokens, N_TOKENS, rig->n_vocab);
    fill_blocks(blocks, 0);
    forward_range(rig, p.tokens, 0, N_TOKENS, blocks, p.whole);
    /* Something was computed, and it depends on the row. */
    assert_true(isfinite(p.whole[0]));
    assert_memory_not_equal(p.whole, p.whole + rig->n_vocab,
                            rig->n_vocab * sizeof(float));
    return p;
}

static inline void free_logits(logits_of_prompt_t *p)
{
    bt_free(p->whole);
    bt_free(p->other);
}

/* The shapes and types over which invariant I1 is checked. */
static inline bt_tiny_model_t variant(int i)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    switch (i) {
    case 0: /* all F32 */
        break;
    case 1: /* like the default model: Q4_1, tied Q8_0 embedding */
        tiny.type = 3;
        tiny.embd_type = 8;
        tiny.tied = true;
        break;
    case 2: /* parts of different types; 3 KV heads, 9 query heads */
        tiny.dim = 288;
        tiny.n_heads = 9;
        tiny.n_kv_heads = 3;
        tiny.ffn_dim = 96;
        tiny.type = 8;
        tiny.mixed_type = 2;
        tiny.embd_type = 1;
        tiny.rope_factors = true;
        break;
    default: /* K-quants as Q4_K_M files mix them */
        tiny.dim = 256;
        tiny.ffn_dim = 512;
        tiny.type = 12;
        tiny.mixed_type = 14;
        tiny.embd_type = 14;
        break;
    }
    return tiny;
}

#define N_VARIANTS 4

static inline size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

#endif
