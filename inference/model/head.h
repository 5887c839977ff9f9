/* SPDX-License-Identifier: Apache-2.0 */
/** @file head.h
 *
 * Draft heads: one decoder layer that predicts token p + 2 of a sequence from
 * token p + 1 and from hidden states that a target model has of position p.
 * Only what such a layer reads, and where its words come from, differs from a
 * decoder:
 *
 *     EAGLE-3
 *         g = Wfc [h_a | h_b | h_c]      h: of three of the target's layers
 *         x = g                          norm_before_residual: x = norm(g)
 *         q, k, v read [norm(embedding) | norm(g)]
 *
 *     MTP
 *         x = Weh [norm(embedding) | norm(h)]
 *         h: the target's last hidden state, behind its norm
 *
 * The rest of the layer is an ordinary one. The output norm and the output are
 * the head's own or the target's; the vocabulary of EAGLE-3 may be a part of
 * the target's.
 *
 * The position of such a row is p. A head that drafts on takes its own output
 * in place of g or h: of EAGLE-3 the residual stream behind its layer, of MTP,
 * and of EAGLE-3 where the file says norm_output, the same behind the norm.
 *
 * Source:  Y. Li et al., "EAGLE-3", arXiv 2503.01840; tensors and keys, and
 *          that d2t has the target's ids: llama.cpp, conversion/llama.py and
 *          src/models/eagle3.cpp; norm_output: vLLM's speculators.
 *          DeepSeek-AI, "DeepSeek-V3 Technical Report", section 2.2; that h is
 *          normed, here and of the head's own output: llama.cpp,
 *          src/models/qwen35.cpp (h_nextn).
 */
#ifndef BT_INFERENCE_MODEL_HEAD_H
#define BT_INFERENCE_MODEL_HEAD_H

#include "inference/model/arch/decoder.h"

/** State of a draft head beside that of its decoder. In back-end memory but
 *  target_ids. */
struct bt_head {
    bt_norm_weights_t embedding_norm;
    bt_norm_weights_t hidden_norm;
    bt_weight_t *fc; /**< EAGLE-3: (dim, n_taps * target_dim) */
    float *fc_norm;  /**< EAGLE-3: norm before fc; NULL: none */
    float *fc_in;    /**< fc_norm's output (max_rows, n_taps * target_dim) */
    bt_weight_t *eh_proj; /**< MTP: (dim, 2 dim) */
    float *both;          /**< (max_rows, 2 dim): [embedding | hidden] */
    uint32_t *target_ids; /**< host, (n_vocab): bt_model_target_ids(); NULL:
                               none */
    /* Of the decoder's weights, those that belong to the target. */
    bool borrows_embedding;
    bool borrows_output;
    bool borrows_output_norm;
};

/** Fills the members of *hp that only files of architecture eagle3 determine;
 *  n_words is the number of words of its own embedding, 0 if it has none. */
void bt_head_eagle3_read(bt_keys_t *keys, bt_hparams_t *hp);

/** Loads what a head has beside its layer, behind that. */
void bt_head_load(bt_loader_t *ld, bt_decoder_t *d);
/** Frees d->head, and forgets weights that are the target's. */
void bt_head_free(bt_backend_t *be, bt_decoder_t *d);

/** Computes the residual stream before the layer, and head->both. */
void bt_head_input(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, float *x);

/** True when queries, keys and values are computed from head->both. */
static inline bool bt_head_is_wide(const bt_decoder_t *d)
{
    return (d->head != NULL) && (d->head->fc != NULL);
}

#endif
