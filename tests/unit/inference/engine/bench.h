/* SPDX-License-Identifier: Apache-2.0 */
/** @file bench.h  An engine over a tiny model with a KV pool, for the tests of
 *  this folder: sequences whose blocks lie anywhere, and reports taken until
 *  they have left. */
#ifndef BT_TESTS_UNIT_ENGINE_BENCH_H
#define BT_TESTS_UNIT_ENGINE_BENCH_H

#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/kv/kv_groups.h"
#include "inference/engine/engine.h"
#include "tests/support/tiny_model.h"

#define T           16u
#define MAX_SEQS    8u
#define MAX_NEW     20u
#define N_BLOCKS    256u
#define DEADLINE_NS (30ull * 1000000000u)

typedef struct bench {
    bt_backend_t *be;
    bt_model_t *model;
    bt_engine_t *engine;
    void *pool;
    bt_kv_view_t kv;
    uint32_t next_block;
} bench_t;

/* Called before the engine is created. NULL: it is as it is. */
static void (*configure_bench)(bench_t *b, bt_engine_config_t *config);

static char model_path[] = "/tmp/baton-test-engine-XXXXXX";

static inline int make_model(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);

    (void)state;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, model_path) == BT_OK) ? 0 : -1;
}

static inline int remove_model(void **state)
{
    (void)state;
    return unlink(model_path);
}

/* Of its pool, all layers in one group. */
static inline bt_kv_view_t view_of(const bench_t *b, bt_kv_type_t type)
{
    const bt_hparams_t *hp = bt_model_hparams(b->model);

    return (bt_kv_view_t){
        .base = b->pool,
        .block_bytes = b->kv.block_bytes,
        .type = type,
        .n_layers = hp->n_layers,
        .n_kv_heads = hp->n_kv_heads,
        .head_dim = hp->head_dim,
        .tokens_per_block = T,
    };
}

/* @param [in] groups  of the model's layers; NULL: one */
static inline void open_bench_with_latency(bench_t *b, bt_kv_type_t type,
                                           uint32_t token_budget,
                                           const bt_kv_groups_t *groups,
                                           bt_engine_min_latency_t min_latency)
{
    const uint32_t rows =
        bt_engine_max_rows(MAX_SEQS, token_budget, T, BT_ENGINE_CPU_DRAFTS);
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = rows};
    const bt_model_config_t model_config = {
        .max_rows = rows,
        .max_logit_rows =
            bt_engine_max_logit_rows(MAX_SEQS, BT_ENGINE_CPU_DRAFTS),
        .context_tokens = 512,
        .n_other_groups = (groups == NULL) ? 0 : groups->n - 1};
    bt_engine_config_t config = {.groups = groups,
                                 .max_seqs = MAX_SEQS,
                                 .max_drafts = BT_ENGINE_CPU_DRAFTS,
                                 .fixed_drafts = BT_ENGINE_SEQ_DRAFTS,
                                 .token_budget = token_budget,
                                 .late_join = true,
                                 .min_latency = min_latency};
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);
    const bt_hparams_t *hp;
    bt_kv_shape_t shape;
    bt_gguf_t *gguf = NULL;
    char why[256];

    memset(b, 0, sizeof(*b));
    assert_int_equal(bt_gguf_open(model_path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_backend_open("cpu", &be_config, &b->be), BT_OK);
    assert_int_equal(
        bt_model_load(gguf, b->be, &model_config, why, sizeof(why), &b->model),
        BT_OK);
    bt_gguf_close(gguf);
    hp = bt_model_hparams(b->model);
    shape = (bt_kv_shape_t){hp->n_layers, hp->n_kv_heads,   T,
                            hp->head_dim, info->elem_bytes, info->scale_bytes};
    assert_int_equal(bt_kv_block_bytes(&shape, &b->kv.block_bytes), BT_OK);
    if (groups != NULL) {
        b->kv.block_bytes = groups->page_bytes;
    }
    b->pool = bt_calloc_aligned(N_BLOCKS, b->kv.block_bytes);
    assert_non_null(b->pool);
    config.model = b->model;
    config.kv = view_of(b, type);
    b->kv = config.kv;
    if (configure_bench != NULL) {
        configure_bench(b, &config);
    }
    assert_int_equal(bt_engine_create(&config, &b->engine), BT_OK);
}

static inline void open_bench_of(bench_t *b, bt_kv_type_t type,
                                 uint32_t token_budget,
                                 const bt_kv_groups_t *groups)
{
    open_bench_with_latency(b, type, token_budget, groups,
                            (bt_engine_min_latency_t){0, 0});
}

static inline void open_bench(bench_t *b, bt_kv_type_t type,
                              uint32_t token_budget)
{
    open_bench_of(b, type, token_budget, NULL);
}

static inline void close_bench(bench_t *b)
{
    bt_engine_destroy(b->engine);
    bt_model_destroy(b->model);
    bt_backend_close(b->be);
    bt_free(b->pool);
}

/* Prompt i: 5 + 23 i tokens from a small pattern. */
static inline bt_seq_t *make_seq(bench_t *b, uint32_t i, float temperature)
{
    const uint32_t n = 5 + 23 * i;
    const uint32_t n_blocks = bt_kv_blocks_for(n + MAX_NEW, T);
    bt_seq_t *seq = bt_calloc(1, sizeof(*seq));
    uint32_t *blocks = bt_calloc(n_blocks, sizeof(*blocks));

    assert_non_null(seq);
    assert_non_null(blocks);
    seq->tokens = bt_calloc(n + MAX_NEW, sizeof(*seq->tokens));
    assert_non_null(seq->tokens);
    for (uint32_t t = 0; t < n; t++) {
        seq->tokens[t] = 3 + (t * 7 + i * 31) % 250;
    }
    for (uint32_t k = 0; k < n_blocks; k++) {
        blocks[k] = (b->next_block + 7 * k) % N_BLOCKS; /* scattered */
    }
    b->next_block += 1; /* disjoint: 7 k + i, i < 7 */
    seq->blocks = blocks;
    seq->sched.n_tokens = n;
    seq->n_prompt = n;
    seq->max_new = MAX_NEW;
    seq->sampling = bt_sampling_default();
    seq->sampling.temperature = temperature;
    seq->sampling.seed = 77 + i;
    return seq;
}

static inline void free_seq(bt_seq_t *seq)
{
    uint32_t *blocks = (uint32_t *)(uintptr_t)seq->blocks;

    bt_free(blocks);
    bt_free(seq->tokens);
    bt_free(seq);
}

/* Take reports until n sequences have left.
 * @return how many of them had been canceled */
static inline uint32_t run_until_left(bench_t *b, uint32_t n)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    uint32_t n_canceled = 0;

    while (n > 0) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        assert_int_equal(report->status, BT_OK);
        for (uint32_t i = 0; i < report->n_items; i++) {
            if (report->items[i].kind == BT_REPORT_LEFT) {
                n--;
                n_canceled +=
                    (report->items[i].finish == BT_FINISH_CANCELED) ? 1 : 0;
            }
        }
        bt_engine_recycle(b->engine, report);
    }
    return n_canceled;
}

#endif
