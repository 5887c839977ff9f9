/* SPDX-License-Identifier: Apache-2.0 */
/** @file families_words.h
 *
 * Strings shared by the tables of families: names of settings and activations,
 * and how a table ends.
 */
#ifndef BT_INFERENCE_HF_FAMILIES_WORDS_H
#define BT_INFERENCE_HF_FAMILIES_WORDS_H

#include "inference/hf/families.h"

/* clang-format off: one line for a setting or a name */

#define END_KEYS                           \
    {                                      \
        NULL, NULL, BT_HF_U32, false, NULL \
    }
#define END_NAMES               \
    {                           \
        NULL, NULL, BT_HF_AS_IS \
    }

#define CONTEXT \
    "max_position_embeddings|n_ctx|n_positions|max_sequence_length|max_seq_len|model_max_length"
#define WIDTH  "hidden_size|n_embd|n_embed|d_model"
#define LAYERS "num_hidden_layers|n_layer|n_layers"
#define HEADS  "num_attention_heads|n_head|n_heads"
#define FFN    "intermediate_size|n_inner"

#define SILU "silu|swish"
#define TANH "gelu_pytorch_tanh|gelu_new|gelu_fast"

/* clang-format on */

#endif
