/* SPDX-License-Identifier: Apache-2.0 */
/** @file device.h  A bench (bench.h) on the back end that traps: its pool lies
 *  in that one's memory as well. */
#ifndef BT_TESTS_UNIT_ENGINE_DEVICE_H
#define BT_TESTS_UNIT_ENGINE_DEVICE_H

#include "tests/support/trap_backend.h"
#include "tests/unit/inference/engine/bench.h"

/* All but the engine. @return its configuration */
static inline bt_engine_config_t open_device(bench_t *b, uint32_t token_budget)
{
    const uint32_t rows =
        bt_engine_max_rows(MAX_SEQS, token_budget, T, BT_ENGINE_CPU_DRAFTS);
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = rows};
    const bt_model_config_t model_config = {
        .max_rows = rows,
        .max_logit_rows =
            bt_engine_max_logit_rows(MAX_SEQS, BT_ENGINE_CPU_DRAFTS),
        .context_tokens = 512};
    bt_engine_config_t config = {.max_seqs = MAX_SEQS,
                                 .max_drafts = BT_ENGINE_CPU_DRAFTS,
                                 .fixed_drafts = BT_ENGINE_SEQ_DRAFTS,
                                 .token_budget = token_budget};
    const bt_hparams_t *hp;
    bt_kv_shape_t shape;
    bt_gguf_t *gguf = NULL;
    char why[256];

    memset(b, 0, sizeof(*b));
    assert_int_equal(bt_gguf_open(model_path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_trap_backend_open(&be_config, &b->be), BT_OK);
    assert_int_equal(
        bt_model_load(gguf, b->be, &model_config, why, sizeof(why), &b->model),
        BT_OK);
    bt_gguf_close(gguf);
    hp = bt_model_hparams(b->model);
    shape =
        (bt_kv_shape_t){hp->n_layers, hp->n_kv_heads, T, hp->head_dim, 2, 0};
    assert_int_equal(bt_kv_block_bytes(&shape, &b->kv.block_bytes), BT_OK);
    assert_int_equal(
        b->be->ops->buffer_alloc(b->be, N_BLOCKS * b->kv.block_bytes, &b->pool),
        BT_OK);
    config.model = b->model;
    config.kv = view_of(b, BT_KV_F16);
    b->kv = config.kv;
    return config;
}

static inline void close_device(bench_t *b)
{
    bt_engine_destroy(b->engine);
    b->be->ops->buffer_free(b->be, b->pool);
    bt_model_destroy(b->model);
    bt_backend_close(b->be);
}

#endif
