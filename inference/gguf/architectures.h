/* SPDX-License-Identifier: Apache-2.0 */
/** @file architectures.h
 *
 * Supported model architectures: listed here, so that a program that reads a
 * model's file without computing the model (the router) can check them, too.
 * Their descriptions are in inference/model/arch.
 *
 * Threads: pure functions.
 */
#ifndef BT_INFERENCE_GGUF_ARCHITECTURES_H
#define BT_INFERENCE_GGUF_ARCHITECTURES_H

#include "inference/gguf/gguf.h"

/** List of all families, by general.architecture. */
/* clang-format off */
#define BT_FAMILIES(X) \
    X(llama) \
    X(qwen2) \
    X(qwen3) \
    X(gemma) \
    X(gemma2) \
    X(gemma3) \
    X(phi3) \
    X(granite) \
    X(olmo2) \
    X(internlm2) \
    X(smollm3) \
    X(gpt2) \
    X(gptneox) \
    X(falcon) \
    X(starcoder2) \
    X(cohere2) \
    X(bloom) \
    X(mpt) \
    X(olmo) \
    X(baichuan) \
    X(mistral3) \
    X(qwen3moe) \
    X(olmoe) \
    X(qwen2moe) \
    X(glm4moe) \
    X(granitemoe) \
    X(gpt-oss)
/* clang-format on */

/**
 * Checks that the file names a supported architecture. Call it before any other
 * check of a model: other problems in a file of another architecture are
 * irrelevant.
 *
 * @param [out] name_p  general.architecture; inside the file.
 * @param [out] why     Name of the unsupported one, and the supported ones.
 * @retval BT_ERR_UNSUPPORTED  Another architecture.
 * @retval BT_ERR_BAD_FILE     The file names none.
 */
BT_MUST_CHECK bt_status_t bt_gguf_architecture(const bt_gguf_t *gguf, char *why,
                                               size_t why_bytes,
                                               bt_gguf_str_t *name_p);

#endif
