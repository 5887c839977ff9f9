/* SPDX-License-Identifier: Apache-2.0 */
#include "accuracy/subject.h"

#include <stdio.h>

#include "common/base/alloc.h"
#include "common/kv/kv_layout.h"
#include "inference/modelfile/modelfile.h"

#define TOKENS_PER_BLOCK 16u

static bt_status_t make_cache(bt_subject_t *s, uint32_t window)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(BT_KV_BF16);
    const uint32_t n_blocks = bt_kv_blocks_for(window, TOKENS_PER_BLOCK);
    const bt_kv_shape_t shape = {.n_layers = s->hp.n_layers,
                                 .n_kv_heads = s->hp.n_kv_heads,
                                 .tokens_per_block = TOKENS_PER_BLOCK,
                                 .head_dim = s->hp.head_dim,
                                 .elem_bytes = info->elem_bytes,
                                 .scale_bytes = info->scale_bytes};
    bt_status_t status;

    s->kv = (bt_kv_view_t){.type = BT_KV_BF16,
                           .n_layers = s->hp.n_layers,
                           .n_kv_heads = s->hp.n_kv_heads,
                           .head_dim = s->hp.head_dim,
                           .tokens_per_block = TOKENS_PER_BLOCK};
    s->blocks = bt_calloc(n_blocks, sizeof(*s->blocks));
    s->rows = bt_calloc(BT_SUBJECT_ROWS, sizeof(*s->rows));
    if ((s->blocks == NULL) || (s->rows == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        s->blocks[i] = i;
    }
    for (uint32_t i = 0; i < BT_SUBJECT_ROWS; i++) {
        s->rows[i] = i;
    }
    status = bt_kv_block_bytes(&shape, &s->kv.block_bytes);
    return (status == BT_OK)
               ? s->be->ops->buffer_alloc(s->be, s->kv.block_bytes * n_blocks,
                                          &s->kv.base)
               : status;
}

bt_status_t bt_subject_open(bt_subject_t *s, const char *path, uint32_t window,
                            uint32_t n_threads, char *why, size_t why_bytes)
{
    const bt_model_config_t config = {.max_rows = BT_SUBJECT_ROWS,
                                      .max_seqs = 1,
                                      .max_logit_rows = BT_SUBJECT_ROWS,
                                      .context_tokens = window,
                                      .n_threads = n_threads};
    bt_backend_config_t be_config = {.n_threads = n_threads,
                                     .max_rows = BT_SUBJECT_ROWS};
    bt_status_t status = bt_modelfile_open(path, why, why_bytes, &s->gguf);

    if (status == BT_OK) {
        status = bt_hparams_read(s->gguf, why, why_bytes, &s->hp);
    }
    if (status != BT_OK) {
        return status;
    }
    if (window > s->hp.context_tokens) {
        snprintf(why, why_bytes, "its context is %u tokens, less than %u",
                 s->hp.context_tokens, window);
        return BT_ERR_INVALID_PARAM;
    }
    be_config.max_dim = bt_hparams_max_dim(&s->hp);
    status = bt_backend_open("cpu", &be_config, &s->be);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "back end cpu: %s", bt_status_str(status));
        return status;
    }
    status = bt_model_load(s->gguf, s->be, &config, why, why_bytes, &s->model);
    if (status == BT_OK) {
        status = make_cache(s, window);
        if (status != BT_OK) {
            snprintf(why, why_bytes, "KV cache: %s", bt_status_str(status));
        }
    }
    return status;
}

void bt_subject_close(bt_subject_t *s)
{
    if (s->kv.base != NULL) {
        s->be->ops->buffer_free(s->be, s->kv.base);
    }
    bt_model_destroy(s->model);
    if (s->be != NULL) {
        bt_backend_close(s->be);
    }
    bt_gguf_close(s->gguf);
    bt_free(s->blocks);
    bt_free(s->rows);
    *s = (bt_subject_t){0};
}

bt_status_t bt_subject_logits(bt_subject_t *s, const uint32_t *tokens,
                              uint32_t n, uint32_t pos, float **logits_p)
{
    const bt_ragged_seq_t seq = {.n_rows = n, .pos = pos, .blocks = s->blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = tokens,
                              .n_rows = n,
                              .logit_rows = s->rows,
                              .n_logit_rows = n,
                              .kv = s->kv};

    return bt_model_forward(s->model, &fwd, logits_p);
}
