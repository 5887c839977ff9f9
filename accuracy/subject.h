/* SPDX-License-Identifier: Apache-2.0 */
/** @file subject.h
 *
 * A model whose logits are asked for, window by window of a text, each from an
 * empty cache. One thread drives it.
 */
#ifndef BT_ACCURACY_SUBJECT_H
#define BT_ACCURACY_SUBJECT_H

#include "inference/gguf/gguf.h"
#include "inference/model/model.h"

typedef struct bt_subject {
    bt_gguf_t *gguf; /**< owned, as all here */
    bt_hparams_t hp;
    bt_backend_t *be;
    bt_model_t *model;
    bt_kv_view_t kv;
    uint32_t *blocks; /**< 0, 1, 2 … */
    uint32_t *rows;
} bt_subject_t;

#define BT_SUBJECT_ROWS 64u /**< of a forward call */

/**
 * @param [in]  window  tokens that will be asked for at once, at most
 * @param [out] s       zeroed before; closed by the caller whatever comes out
 * @param [out] why     On failure the reason, for the user.
 * @retval any of bt_modelfile_open(), bt_model_load(), bt_backend_open()
 */
BT_MUST_CHECK bt_status_t bt_subject_open(bt_subject_t *s, const char *path,
                                          uint32_t window, uint32_t n_threads,
                                          char *why, size_t why_bytes);
void bt_subject_close(bt_subject_t *s);

/** Logits of @a n tokens (at most BT_SUBJECT_ROWS) at position @a pos of the
 *  window; those before were asked for. @param [out] logits_p  (n, n_vocab),
 *  the model's until the next call */
BT_MUST_CHECK bt_status_t bt_subject_logits(bt_subject_t *s,
                                            const uint32_t *tokens, uint32_t n,
                                            uint32_t pos, float **logits_p);

#endif
