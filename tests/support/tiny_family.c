/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_family.h"

#include <stddef.h>
#include <string.h>

static const bt_tiny_family_t families[] = {
    {.name = "llama"},
    {.name = "qwen2", .qkv_bias = true},
    {.name = "qwen3", .qk_norm = 1},
    {.name = "qwen3moe", .qk_norm = 1},
    {.name = "olmoe", .qk_norm = 2},
    {.name = "qwen2moe", .qkv_bias = true, .shared_gate = true},
    {.name = "glm4moe",
     .qk_norm = 1,
     .qkv_bias = true,
     .ffn_norm_behind_attention = true,
     .choice_bias = true},
    {.name = "gpt-oss",
     .qkv_bias = true,
     .other_bias = true,
     .ffn_norm_behind_attention = true,
     .expert_biases = true},
    {.name = "gemma2", .norms_after = true},
    {.name = "gemma3", .norms_after = true, .qk_norm = 1},
    {.name = "phi3", .fused = true},
    {.name = "olmo2",
     .no_norms_before = true,
     .norms_after = true,
     .qk_norm = 2},
    {.name = "gpt2",
     .layer_norm = true,
     .fused = true,
     .plain_ffn = true,
     .positions = true,
     .qkv_bias = true,
     .other_bias = true},
    {.name = "gptneox",
     .layer_norm = true,
     .fused = true,
     .plain_ffn = true,
     .qkv_bias = true,
     .other_bias = true},
    {.name = "falcon",
     .layer_norm = true,
     .one_norm = true,
     .fused = true,
     .plain_ffn = true},
    {.name = "starcoder2",
     .layer_norm = true,
     .plain_ffn = true,
     .qkv_bias = true,
     .other_bias = true},
    {.name = "cohere2",
     .layer_norm = true,
     .no_norm_bias = true,
     .one_norm = true},
    {.name = "falcon_rw",
     .layer_norm = true,
     .fused = true,
     .plain_ffn = true,
     .qkv_bias = true,
     .other_bias = true},
    {.name = "bloom",
     .layer_norm = true,
     .embedding_norm = true,
     .fused = true,
     .plain_ffn = true,
     .qkv_bias = true,
     .other_bias = true},
    {.name = "mpt",
     .layer_norm = true,
     .no_norm_bias = true,
     .fused = true,
     .plain_ffn = true},
    {.name = "mpt_learned",
     .layer_norm = true,
     .no_norm_bias = true,
     .fused = true,
     .plain_ffn = true,
     .positions = true},
    {.name = "olmo", .layer_norm = true, .bare_norms = true},
};

const bt_tiny_family_t *bt_tiny_family(const char *name)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strcmp(families[i].name, name) == 0) {
            return &families[i];
        }
    }
    return &families[0];
}
