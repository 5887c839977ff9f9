/* SPDX-License-Identifier: Apache-2.0 */
/** @file same_bits.h  A prompt's logits are the same bits whatever its chunks,
 *  the company and when it came in (I1); for the tests of this folder. */
#ifndef BT_TESTS_UNIT_MODEL_SAME_BITS_H
#define BT_TESTS_UNIT_MODEL_SAME_BITS_H

#include "common/base/status.h"
#include "tests/unit/inference/model/rig.h"

static inline void check_chunks(rig_t *rig, logits_of_prompt_t *p)
{
    static const uint32_t chunks[] = {16, 1, 7, 33, 18};
    uint32_t blocks[N_BLOCKS / 8];
    uint32_t at = 0;

    fill_blocks(blocks, 16);
    for (size_t k = 0; k < BT_ARRAY_LEN(chunks); k++) {
        forward_range(rig, p->tokens, at, chunks[k], blocks,
                      p->other + (size_t)at * rig->n_vocab);
        at += chunks[k];
    }
    assert_int_equal(at, N_TOKENS);
    assert_memory_equal(p->other, p->whole, p->bytes);
}

static inline void
expect_last_row(const rig_t *rig, const logits_of_prompt_t *p, const float *got)
{
    assert_memory_equal(got, p->whole + (size_t)(N_TOKENS - 1) * rig->n_vocab,
                        rig->n_vocab * sizeof(float));
}

/* Another sequence before it in the batch; logits of its last row alone. */
static inline void check_company(rig_t *rig, const logits_of_prompt_t *p)
{
    uint32_t blocks[2][N_BLOCKS / 8];
    const bt_ragged_seq_t seqs[] = {
        {.row = 0, .n_rows = 20, .pos = 0, .blocks = blocks[0]},
        {.row = 20, .n_rows = N_TOKENS, .pos = 0, .blocks = blocks[1]}};
    const uint32_t rows[] = {19, 20 + N_TOKENS - 1};
    uint32_t tokens[20 + N_TOKENS];
    bt_forward_t fwd = {.seqs = seqs,
                        .n_seqs = 2,
                        .tokens = tokens,
                        .n_rows = 20 + N_TOKENS,
                        .logit_rows = rows,
                        .n_logit_rows = 2,
                        .kv = rig->kv};
    float *logits = NULL;

    fill_blocks(blocks[0], 24);
    fill_blocks(blocks[1], 32);
    memcpy(tokens, p->tokens + 3, 20 * sizeof(*tokens));
    memcpy(tokens + 20, p->tokens, N_TOKENS * sizeof(*tokens));
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    expect_last_row(rig, p, logits + rig->n_vocab);
}

/* A sequence that comes in between two layers (bt_forward_t.take_late). */
typedef struct late {
    bt_ragged_seq_t seqs[2];
    uint32_t tokens[2];
    uint32_t logit_rows[2];
    uint32_t at; /* layers that are done then */
} late_t;

static inline uint32_t come_late(void *ctx, uint32_t n_layers)
{
    return (n_layers == ((late_t *)ctx)->at) ? 1 : 0;
}

/* Its last row comes in late; the others are in the cache by check_chunks(). */
static inline void check_late(rig_t *rig, const logits_of_prompt_t *p)
{
    uint32_t blocks[2][N_BLOCKS / 8];
    late_t late = {.at = bt_model_hparams(rig->model)->n_layers - 1};
    bt_forward_t fwd = {.seqs = late.seqs,
                        .n_seqs = 1,
                        .tokens = late.tokens,
                        .n_rows = 1,
                        .logit_rows = late.logit_rows,
                        .n_logit_rows = 1,
                        .kv = rig->kv,
                        .take_late = come_late,
                        .take_late_ctx = &late};
    float *logits = NULL;

    fill_blocks(blocks[0], 40);
    fill_blocks(blocks[1], 16);
    late.seqs[0] = (bt_ragged_seq_t){.n_rows = 1, .blocks = blocks[0]};
    late.seqs[1] = (bt_ragged_seq_t){
        .row = 1, .n_rows = 1, .pos = N_TOKENS - 1, .blocks = blocks[1]};
    late.tokens[0] = p->tokens[5];
    late.tokens[1] = p->tokens[N_TOKENS - 1];
    late.logit_rows[1] = 1;
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    expect_last_row(rig, p, logits + rig->n_vocab);
}

/* Another prompt through all layers, between two of a longer call. */
typedef struct inside {
    rig_t *rig;
    const logits_of_prompt_t *p;
    bool done;
} inside_t;

static inline void pass_inside(void *ctx, uint32_t n_layers)
{
    inside_t *inside = ctx;
    const logits_of_prompt_t *p = inside->p;
    uint32_t blocks[N_BLOCKS / 8];
    const uint32_t row = N_TOKENS - 1;
    const bt_ragged_seq_t seq = {.n_rows = N_TOKENS, .blocks = blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = p->tokens,
                              .n_rows = N_TOKENS,
                              .first_row = 20,
                              .logit_rows = &row,
                              .n_logit_rows = 1,
                              .kv = inside->rig->kv};
    float *logits = NULL;

    (void)n_layers;
    if (inside->done) {
        return;
    }
    inside->done = true;
    fill_blocks(blocks, 48);
    assert_int_equal(bt_model_forward(inside->rig->model, &fwd, &logits),
                     BT_OK);
    expect_last_row(inside->rig, p, logits);
}

static inline void check_inside(rig_t *rig, const logits_of_prompt_t *p)
{
    uint32_t blocks[N_BLOCKS / 8];
    inside_t inside = {.rig = rig, .p = p};
    const uint32_t row = 19;
    const bt_ragged_seq_t seq = {.n_rows = 20, .blocks = blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = p->tokens,
                              .n_rows = 20,
                              .logit_rows = &row,
                              .n_logit_rows = 1,
                              .kv = rig->kv,
                              .between_layers = pass_inside,
                              .between_layers_ctx = &inside};
    float *logits = NULL;

    fill_blocks(blocks, 24);
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    assert_true(inside.done);
    assert_memory_equal(logits, p->whole + (size_t)row * rig->n_vocab,
                        rig->n_vocab * sizeof(float));
}

/* Ids of row r: all of a row that wants them, else r, r + 3, r + 6 …, or none
 * (0). */
static inline uint32_t n_ids_of(uint32_t r)
{
    static const uint32_t n[] = {0, 1, 7, 0, 90};

    return n[r % BT_ARRAY_LEN(n)];
}

/* Logits of some ids of each row are those among all, with other rows of which
 * all are wanted (@a mixed) or none. */
static inline void check_ids(rig_t *rig, const logits_of_prompt_t *p,
                             bool mixed)
{
    const bt_ragged_seq_t seq = {
        .n_rows = N_TOKENS, .blocks = (uint32_t[N_BLOCKS / 8]){0, 1, 2, 3, 4}};
    const size_t n_vocab = rig->n_vocab;
    uint32_t rows[N_TOKENS];
    uint32_t needs[N_TOKENS];
    uint32_t first[N_TOKENS + 1] = {0};
    static uint32_t ids[N_TOKENS * BT_MODEL_MAX_IDS];
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = p->tokens,
                              .n_rows = N_TOKENS,
                              .logit_rows = rows,
                              .n_logit_rows = N_TOKENS,
                              .needs = needs,
                              .first_ids = first,
                              .ids = ids,
                              .kv = rig->kv};
    float *logits = NULL;

    assert_true(bt_model_computes_ids(rig->model));
    for (uint32_t r = 0; r < N_TOKENS; r++) {
        const bool all = mixed && (r % 3 == 1);

        rows[r] = r;
        needs[r] = all ? 0 : BT_NEEDS_IDS;
        first[r + 1] = first[r];
        for (uint32_t k = 0; !all && (k < n_ids_of(r)); k++) {
            ids[first[r + 1]++] = r % 18 + 3 * k;
        }
    }
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    for (uint32_t r = 0; r < N_TOKENS; r++) {
        const float *want = p->whole + n_vocab * r;
        const float *got = logits + n_vocab * r;

        if (needs[r] == 0) {
            assert_memory_equal(got, want, n_vocab * sizeof(*got));
        }
        for (uint32_t id = 0, k = first[r];
             (first[r] < first[r + 1]) && (id < n_vocab); id++) {
            if ((k < first[r + 1]) && (ids[k] == id)) {
                assert_memory_equal(got + id, want + id, sizeof(*got));
                k++;
            } else {
                assert_true(got[id] == -INFINITY);
            }
        }
    }
}

/* What every model does, however many stages its layers are in. */
static inline void check_same_bits_in_turn(rig_t *rig, logits_of_prompt_t *p)
{
    check_chunks(rig, p);
    check_company(rig, p);
}

static inline void check_same_bits(rig_t *rig, logits_of_prompt_t *p)
{
    check_same_bits_in_turn(rig, p);
    check_late(rig, p);
    check_inside(rig, p);
}

#endif
