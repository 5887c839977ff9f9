/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf_files.h  The other files of a folder, for targets that alter one of
 *  them: a llama of one layer, 4 wide, with a vocabulary of 4. */
#ifndef BT_TESTS_FUZZ_HF_FILES_H
#define BT_TESTS_FUZZ_HF_FILES_H

#include <stdio.h>
#include <string.h>

#include "inference/hf/hf.h"

#define HF_CONFIG                                                          \
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":4," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,"                   \
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,"                 \
    "\"vocab_size\":4,\"tie_word_embeddings\":true}"
#define HF_TOKENIZER                                                     \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"   \
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3},\"merges\":[[" \
    "\"a\",\"b\"]]}}"

/** model.safetensors: each matrix of 4 × 4, each vector of 4, in F32.
 *  @return bytes */
static inline size_t hf_weights(uint8_t *out, size_t cap)
{
    static const struct {
        const char *name;
        size_t n;
    } tensors[] = {
        {"model.embed_tokens.weight", 16},
        {"model.norm.weight", 4},
        {"model.layers.0.input_layernorm.weight", 4},
        {"model.layers.0.post_attention_layernorm.weight", 4},
        {"model.layers.0.self_attn.q_proj.weight", 16},
        {"model.layers.0.self_attn.k_proj.weight", 16},
        {"model.layers.0.self_attn.v_proj.weight", 16},
        {"model.layers.0.self_attn.o_proj.weight", 16},
        {"model.layers.0.mlp.gate_proj.weight", 16},
        {"model.layers.0.mlp.up_proj.weight", 16},
        {"model.layers.0.mlp.down_proj.weight", 16},
    };
    char *const header = (char *)out + 8;
    size_t at = 0;
    size_t data = 0;
    uint64_t n;

    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        at += (size_t)snprintf(header + at, cap - 8 - at,
                               "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],"
                               "\"data_offsets\":[%zu,%zu]}",
                               (i == 0) ? "{" : ",", tensors[i].name,
                               (tensors[i].n == 4) ? "4" : "4,4", data,
                               data + 4 * tensors[i].n);
        data += 4 * tensors[i].n;
    }
    header[at++] = '}';
    n = at;
    memcpy(out, &n, sizeof(n));
    memset(header + at, 0, data);
    return 8 + at + data;
}

#endif
