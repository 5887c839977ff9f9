/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf_files.h  The other files of a folder, for targets that alter one of
 *  them: a llama of one layer, 4 wide, with a vocabulary of 4. */
#ifndef BT_TESTS_FUZZ_HF_FILES_H
#define BT_TESTS_FUZZ_HF_FILES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/** One tensor of zeros. */
typedef struct hf_tensor {
    const char *name;
    const char *shape; /**< as JSON has it: "4,2" */
    bool is_u8;        /**< U8, not F32 */
} hf_tensor_t;

static inline size_t hf_elems(const char *shape)
{
    size_t n = 1;

    for (const char *at = shape; at != NULL; at = strchr(at, ',')) {
        at += (*at == ',') ? 1 : 0;
        n *= (size_t)strtoul(at, NULL, 10);
    }
    return n;
}

/** Writes a safetensors file of these tensors, as many as fit in @a cap.
 *  @return bytes */
static inline size_t hf_file(const hf_tensor_t *tensors, size_t n_tensors,
                             uint8_t *out, size_t cap)
{
    char *const header = (char *)out + 8;
    size_t at = 0;
    size_t data = 0;
    uint64_t n;

    for (size_t i = 0; i < n_tensors; i++) {
        const bool is_u8 = tensors[i].is_u8;
        const size_t bytes = (is_u8 ? 1 : 4) * hf_elems(tensors[i].shape);

        at += (size_t)snprintf(header + at, cap - 8 - at,
                               "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                               "\"data_offsets\":[%zu,%zu]}",
                               (i == 0) ? "{" : ",", tensors[i].name,
                               is_u8 ? "U8" : "F32", tensors[i].shape, data,
                               data + bytes);
        data += bytes;
    }
    header[at++] = '}';
    n = at;
    memcpy(out, &n, sizeof(n));
    memset(header + at, 0, data);
    return 8 + at + data;
}

#define HF_ATTENTION                                                    \
    {"model.embed_tokens.weight", "4,4", false},                        \
        {"model.norm.weight", "4", false},                              \
        {"model.layers.0.input_layernorm.weight", "4", false},          \
        {"model.layers.0.post_attention_layernorm.weight", "4", false}, \
        {"model.layers.0.self_attn.q_proj.weight", "4,4", false},       \
        {"model.layers.0.self_attn.k_proj.weight", "4,4", false},       \
        {"model.layers.0.self_attn.v_proj.weight", "4,4", false},       \
    {                                                                   \
        "model.layers.0.self_attn.o_proj.weight", "4,4", false          \
    }

/** model.safetensors: each matrix of 4 × 4, each vector of 4.
 *  @return bytes */
static inline size_t hf_weights(uint8_t *out, size_t cap)
{
    static const hf_tensor_t tensors[] = {
        HF_ATTENTION,
        {"model.layers.0.mlp.gate_proj.weight", "4,4", false},
        {"model.layers.0.mlp.up_proj.weight", "4,4", false},
        {"model.layers.0.mlp.down_proj.weight", "4,4", false},
    };

    return hf_file(tensors, sizeof(tensors) / sizeof(tensors[0]), out, cap);
}

/** Writes a model.safetensors whose feed-forward is two experts, 2 wide, each
 * in tensors of its own; matrices of the attention are those of hf_weights().
 *  @return bytes */
static inline size_t hf_expert_weights(uint8_t *out, size_t cap)
{
    static const hf_tensor_t tensors[] = {
        HF_ATTENTION,
        {"model.layers.0.mlp.gate.weight", "2,4", false},
        {"model.layers.0.mlp.experts.0.gate_proj.weight", "2,4", false},
        {"model.layers.0.mlp.experts.0.up_proj.weight", "2,4", false},
        {"model.layers.0.mlp.experts.0.down_proj.weight", "4,2", false},
        {"model.layers.0.mlp.experts.1.gate_proj.weight", "2,4", false},
        {"model.layers.0.mlp.experts.1.up_proj.weight", "2,4", false},
        {"model.layers.0.mlp.experts.1.down_proj.weight", "4,2", false},
    };

    return hf_file(tensors, sizeof(tensors) / sizeof(tensors[0]), out, cap);
}

/** Writes a model.safetensors with the experts of hf_expert_weights(), all in
 *  one tensor, gate and up fused. @return bytes */
static inline size_t hf_fused_weights(uint8_t *out, size_t cap)
{
    static const hf_tensor_t tensors[] = {
        HF_ATTENTION,
        {"model.layers.0.mlp.gate.weight", "2,4", false},
        {"model.layers.0.mlp.experts.gate_up_proj", "2,4,4", false},
        {"model.layers.0.mlp.experts.down_proj", "2,4,2", false},
    };

    return hf_file(tensors, sizeof(tensors) / sizeof(tensors[0]), out, cap);
}

#endif
