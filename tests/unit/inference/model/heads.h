/* SPDX-License-Identifier: Apache-2.0 */
/** @file heads.h  Small draft heads with their targets, for the tests of this
 *  folder and of drafters; tests/golden/make_head_golden.py has the same. */
#ifndef BT_TESTS_UNIT_MODEL_HEADS_H
#define BT_TESTS_UNIT_MODEL_HEADS_H

#include "common/base/status.h"
#include "tests/unit/inference/model/rig.h"

/* One case of the script. */
typedef struct head_case {
    const char *name;
    bt_tiny_model_t target;
    bt_tiny_model_t head; /* n_layers 0: it is in the target's file */
    bt_head_kind_t kind;
} head_case_t;

static inline head_case_t eagle3_case(bool own)
{
    head_case_t c = {.name = own ? "eagle3_own" : "eagle3",
                     .target = bt_tiny_model_default(),
                     .head = bt_tiny_model_default(),
                     .kind = BT_HEAD_EAGLE3};

    c.target.n_layers = 4;
    c.target.seed = own ? 1071 : 71;
    c.head.architecture = "eagle3";
    c.head.n_layers = 1;
    c.head.seed = own ? 1073 : 72;
    c.head.tied = !own;
    c.head.draft_vocab = own ? 288 : 96;
    c.head.n_kv_heads = own ? 1 : 2;
    c.head.ffn_dim = own ? 128 : 96;
    c.head.keys[c.head.n_keys++] =
        own ? (bt_tiny_key_t){"extract_layers", 'l', "0,2,4"}
            : (bt_tiny_key_t){"target_layers", 'l', "1,2,3"};
    c.head.keys[c.head.n_keys++] =
        (bt_tiny_key_t){"target_hidden_size", 'u', "64"};
    if (own) {
        c.head.keys[c.head.n_keys++] =
            (bt_tiny_key_t){"norm_before_residual", 'b', "true"};
        c.head.keys[c.head.n_keys++] =
            (bt_tiny_key_t){"norm_before_fc", 'b', "true"};
        c.head.keys[c.head.n_keys++] =
            (bt_tiny_key_t){"norm_output", 'b', "true"};
    }
    return c;
}

static inline head_case_t nextn_case(bool own)
{
    head_case_t c = {.name = own ? "nextn_own" : "nextn",
                     .target = bt_tiny_model_default(),
                     .kind = BT_HEAD_NEXTN};

    c.target.n_layers = 3;
    c.target.seed = own ? 375 : 374;
    c.target.nextn = true;
    c.target.nextn_own = own;
    c.target.architecture = own ? "qwen3" : "llama";
    return c;
}

/* A target with its head. */
typedef struct pair {
    rig_t target;
    bt_model_t *head;
    bt_kv_view_t kv; /* the head's */
    bt_taps_t taps;  /* that it reads of the target */
    uint32_t width;  /* of what they leave */
    uint32_t n_vocab;
} pair_t;

static inline bt_gguf_t *open_head(const head_case_t *c)
{
    return open_tiny((c->kind == BT_HEAD_EAGLE3) ? &c->head : &c->target);
}

static inline bt_status_t load_head(const head_case_t *c, const rig_t *target,
                                    const bt_gguf_t *gguf, bt_model_t **model_p)
{
    bt_model_config_t config = default_config;

    config.head = (bt_head_target_t){c->kind, bt_model_hparams(target->model)};
    config.target = target->model;
    return bt_model_load(gguf, target->be, &config, why, sizeof(why), model_p);
}

static inline pair_t make_pair(const head_case_t *c)
{
    pair_t p = {.target = make_rig(&c->target, 2)};
    bt_gguf_t *const gguf = open_head(c);
    const bt_hparams_t *hp;

    assert_int_equal(load_head(c, &p.target, gguf, &p.head), BT_OK);
    bt_gguf_close(gguf);
    hp = bt_model_hparams(p.head);
    p.n_vocab = hp->n_vocab;
    p.kv = p.target.kv;
    p.kv.n_layers = 1;
    p.kv.n_kv_heads = hp->n_kv_heads;
    p.kv.head_dim = hp->head_dim;
    p.kv.block_bytes =
        (size_t)2 * hp->n_kv_heads * T * hp->head_dim * sizeof(uint16_t);
    p.kv.base = bt_calloc_aligned(N_BLOCKS, p.kv.block_bytes);
    p.taps.n = hp->head.n_taps;
    memcpy(p.taps.layers, hp->head.taps, sizeof(p.taps.layers));
    p.taps.normed = c->kind == BT_HEAD_NEXTN;
    p.width = (p.taps.n + (p.taps.normed ? 1 : 0)) * hp->head.target_dim;
    p.taps.hidden = bt_calloc((size_t)MAX_ROWS * p.width, sizeof(float));
    assert_non_null(p.kv.base);
    assert_non_null(p.taps.hidden);
    return p;
}

static inline void free_pair(pair_t *p)
{
    bt_model_destroy(p->head);
    bt_free(p->kv.base);
    bt_free(p->taps.hidden);
    free_rig(&p->target);
}

/* Rows [from, from + n) of one sequence of the head, with logits of the last
 * n_logits of them, whose outputs go to next. */
static inline float *run_head(const pair_t *p, const uint32_t *tokens,
                              uint32_t from, uint32_t n, uint32_t n_logits,
                              const float *hidden, float *next)
{
    const bt_hparams_t *const hp = bt_model_hparams(p->head);
    const bool is_normed = hp->head.norm_output;
    const bt_taps_t own = {.n = is_normed ? 0 : 1,
                           .layers = {1},
                           .normed = is_normed,
                           .hidden = next};
    uint32_t blocks[N_BLOCKS / 8];
    uint32_t rows[MAX_ROWS];
    const bt_ragged_seq_t seq = {
        .row = 0, .n_rows = n, .pos = from, .blocks = blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = tokens,
                              .n_rows = n,
                              .logit_rows = rows,
                              .n_logit_rows = n_logits,
                              .taps = &own,
                              .hidden = hidden,
                              .kv = p->kv};
    float *logits = NULL;

    for (uint32_t i = 0; i < N_BLOCKS / 8; i++) {
        blocks[i] = (i * 5u + 3u) % (N_BLOCKS / 8);
    }
    for (uint32_t i = 0; i < n_logits; i++) {
        rows[i] = n - n_logits + i;
    }
    assert_int_equal(bt_model_forward(p->head, &fwd, &logits), BT_OK);
    return logits;
}

/* The target's rows [from, from + n) with logits and hidden states of all. */
static inline void run_target(pair_t *p, const uint32_t *tokens, uint32_t from,
                              uint32_t n)
{
    uint32_t blocks[N_BLOCKS / 8];
    uint32_t rows[MAX_ROWS];
    const bt_ragged_seq_t seq = {
        .row = 0, .n_rows = n, .pos = from, .blocks = blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = tokens + from,
                              .n_rows = n,
                              .logit_rows = rows,
                              .n_logit_rows = n,
                              .taps = &p->taps,
                              .kv = p->target.kv};
    float *logits = NULL;

    fill_blocks(blocks, 0);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = i;
    }
    assert_int_equal(bt_model_forward(p->target.model, &fwd, &logits), BT_OK);
}

#endif
