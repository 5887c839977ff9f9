/* SPDX-License-Identifier: Apache-2.0 */
/** @file reader.h
 *
 * Evaluates a text with a model on its own, without a worker: window by window,
 * each from an empty cache, on the CPU.
 *
 * Threads: one drives it.
 */
#ifndef BT_INFERENCE_READER_READER_H
#define BT_INFERENCE_READER_READER_H

#include "inference/gguf/gguf.h"
#include "inference/model/model.h"
#include "inference/tokenizer/tokenizer.h"

#define BT_READER_ROWS       64u /**< rows of a forward call */
#define BT_READER_MAX_WINDOW 131072u

typedef struct bt_reader {
    bt_hparams_t hp;
    bt_backend_t *be; /**< owned, as all members below */
    bt_model_t *model;
    bt_kv_view_t kv;
    uint32_t *blocks; /**< identity block table: 0, 1, 2 … */
    uint32_t *rows;
} bt_reader_t;

typedef struct bt_reader_config {
    uint32_t window; /**< most tokens read from an empty cache */
    uint32_t n_threads;
    /** Weight callback of bt_model_config_t. */
    void (*on_weight)(void *ctx, const char *name, const bt_weight_t *weight);
    void *ctx;
} bt_reader_config_t;

/**
 * Opens a model.
 *
 * @param [in]  gguf  Borrowed until the end of the call.
 * @param [out] r     Zeroed before; closed by the caller, also on failure.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_ERR_INVALID_PARAM  The window is longer than the context.
 * @retval any of bt_hparams_read(), bt_model_load(), bt_backend_open()
 */
BT_MUST_CHECK bt_status_t bt_reader_open(bt_reader_t *r, const bt_gguf_t *gguf,
                                         const bt_reader_config_t *config,
                                         char *why, size_t why_bytes);
void bt_reader_close(bt_reader_t *r);

/** Computes logits of @a n tokens (at most BT_READER_ROWS) at position @a pos
 *  of the window; earlier positions must have been read.
 *  @param [out] logits_p  (n, n_vocab), the model's until the next call */
BT_MUST_CHECK bt_status_t bt_reader_logits(bt_reader_t *r,
                                           const uint32_t *tokens, uint32_t n,
                                           uint32_t pos, float **logits_p);

/**
 * Tokenizes a text file with a model's tokenizer.
 *
 * @param [out] tokens  Zeroed before; ids are to be freed with bt_free(), also
 *         on failure.
 * @param [out] why     On failure the reason, for the user.
 * @retval BT_ERR_INVALID_PARAM  not UTF-8, or fewer than two tokens
 * @retval BT_ERR_TOO_LARGE      more than 64 MiB, or 16 Mi tokens
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY, any of bt_tokenizer_load()
 */
BT_MUST_CHECK bt_status_t bt_reader_tokens(const bt_gguf_t *gguf,
                                           const char *path,
                                           bt_token_vec_t *tokens, char *why,
                                           size_t why_bytes);

#endif
