/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/reader/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/kv/kv_groups.h"
#include "inference/gguf/architectures.h"

#define TOKENS_PER_BLOCK 16u
#define MAX_TEXT         ((size_t)64 << 20)
#define MAX_TOKENS       ((size_t)16 << 20)

static bt_status_t make_cache(bt_reader_t *r, uint32_t window)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(BT_KV_BF16);
    const uint32_t n_blocks = bt_kv_blocks_for(window, TOKENS_PER_BLOCK);
    const bt_kv_shape_t shape = {.n_layers = r->hp.n_layers,
                                 .n_kv_heads = r->hp.n_kv_heads,
                                 .tokens_per_block = TOKENS_PER_BLOCK,
                                 .head_dim = r->hp.head_dim,
                                 .elem_bytes = info->elem_bytes,
                                 .scale_bytes = info->scale_bytes};
    bt_status_t status;

    r->kv = (bt_kv_view_t){.type = BT_KV_BF16,
                           .n_layers = r->hp.n_layers,
                           .n_kv_heads = r->hp.n_kv_heads,
                           .head_dim = r->hp.head_dim,
                           .tokens_per_block = TOKENS_PER_BLOCK};
    r->blocks = bt_calloc(n_blocks, sizeof(*r->blocks));
    r->rows = bt_calloc(BT_READER_ROWS, sizeof(*r->rows));
    if ((r->blocks == NULL) || (r->rows == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        r->blocks[i] = i;
    }
    for (uint32_t i = 0; i < BT_READER_ROWS; i++) {
        r->rows[i] = i;
    }
    status = bt_kv_block_bytes(&shape, &r->kv.block_bytes);
    return (status == BT_OK)
               ? r->be->ops->buffer_alloc(r->be, r->kv.block_bytes * n_blocks,
                                          &r->kv.base)
               : status;
}

bt_status_t bt_reader_open(bt_reader_t *r, const bt_gguf_t *gguf,
                           const bt_reader_config_t *config, char *why,
                           size_t why_bytes)
{
    const bt_model_config_t model_config = {.max_rows = BT_READER_ROWS,
                                            .max_seqs = 1,
                                            .max_logit_rows = BT_READER_ROWS,
                                            .context_tokens = config->window,
                                            .n_threads = config->n_threads,
                                            .on_weight = config->on_weight,
                                            .on_weight_ctx = config->ctx};
    bt_backend_config_t be_config = {.n_threads = config->n_threads,
                                     .max_rows = BT_READER_ROWS};
    bt_status_t status = bt_hparams_read(gguf, why, why_bytes, &r->hp);

    if (status != BT_OK) {
        return status;
    }
    if (config->window > r->hp.context_tokens) {
        snprintf(why, why_bytes, "its context is %u tokens, less than %u",
                 r->hp.context_tokens, config->window);
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_backend_open("cpu", &be_config, &r->be);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "back end cpu: %s", bt_status_str(status));
        return status;
    }
    status =
        bt_model_load(gguf, r->be, &model_config, why, why_bytes, &r->model);
    if (status == BT_OK) {
        status = make_cache(r, config->window);
        if (status != BT_OK) {
            snprintf(why, why_bytes, "KV cache: %s", bt_status_str(status));
        }
    }
    return status;
}

void bt_reader_close(bt_reader_t *r)
{
    if (r->kv.base != NULL) {
        r->be->ops->buffer_free(r->be, r->kv.base);
    }
    bt_model_destroy(r->model);
    if (r->be != NULL) {
        bt_backend_close(r->be);
    }
    bt_free(r->blocks);
    bt_free(r->rows);
    *r = (bt_reader_t){0};
}

bt_status_t bt_reader_logits(bt_reader_t *r, const uint32_t *tokens, uint32_t n,
                             uint32_t pos, float **logits_p)
{
    const bt_ragged_seq_t seq = {.n_rows = n, .pos = pos, .blocks = r->blocks};
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = tokens,
                              .n_rows = n,
                              .logit_rows = r->rows,
                              .n_logit_rows = n,
                              .kv = r->kv};

    return bt_model_forward(r->model, &fwd, logits_p);
}

static bt_status_t read_text(const char *path, char *text, size_t *n_p,
                             char *why, size_t why_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bt_status_t status =
        (fd < 0) ? BT_ERR_IO : bt_read_file(fd, text, MAX_TEXT, n_p);

    if ((status == BT_OK) && (*n_p > MAX_TEXT)) {
        status = BT_ERR_TOO_LARGE;
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%.200s: %s", path,
                 (status == BT_ERR_IO) ? strerror(errno)
                                       : bt_status_str(status));
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

bt_status_t bt_reader_tokens(const bt_gguf_t *gguf, const char *path,
                             bt_token_vec_t *tokens, char *why,
                             size_t why_bytes)
{
    char *const text = bt_calloc(1, MAX_TEXT + 1);
    bt_tokenizer_t *tok = NULL;
    bt_gguf_str_t arch;
    size_t n = 0;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (text == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return status;
    }
    status = read_text(path, text, &n, why, why_bytes);
    if (status != BT_OK) {
        goto out;
    }
    status = bt_gguf_architecture(gguf, why, why_bytes, &arch);
    if (status == BT_OK) {
        status = bt_tokenizer_load(gguf, why, why_bytes, &tok);
    }
    if (status != BT_OK) {
        goto out;
    }
    status = bt_tokenize(tok, text, n, 0, MAX_TOKENS, tokens);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%.200s: %s", path,
                 (status == BT_ERR_INVALID_PARAM) ? "is not UTF-8"
                                                  : bt_status_str(status));
    } else if (tokens->n < 2) {
        status = BT_ERR_INVALID_PARAM;
        snprintf(why, why_bytes, "%.200s has fewer than two tokens", path);
    }
out:
    bt_tokenizer_destroy(tok);
    bt_free(text);
    return status;
}
