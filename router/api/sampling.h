/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampling.h
 *
 * Default sampling parameters of a model, for OpenAI requests that omit them.
 *
 *     the operator sets defaults (--override-generation-config)
 *         each option that the request omits is the operator's, and each option
 *         that the operator omits is the file's
 *     the file recommends defaults (general.sampling.*)
 *         each option that the request omits is the file's; an option that the
 *         file omits is off, and its temperature 1
 *     neither does
 *         a request that sets none of temperature, top_p, top_k and min_p is
 *         sampled with BT_SAMPLING_… below; one that sets any of them gets
 *         OpenAI's defaults for the others: temperature 1, the rest off
 *
 * BT_SAMPLING_… are for small models, which at temperature 1 and with the full
 * vocabulary soon produce nonsense.
 *
 * A request of Triton's API is greedy, unless it asks for a distribution.
 *
 * Threads: pure functions, but for the log.
 */
#ifndef BT_ROUTER_API_SAMPLING_H
#define BT_ROUTER_API_SAMPLING_H

#include <stdint.h>

#include "common/config/config.h"
#include "common/wire/request.h"
#include "inference/gguf/gguf.h"

#define BT_SAMPLING_TEMPERATURE 0.7f
#define BT_SAMPLING_TOP_P       0.95f
#define BT_SAMPLING_MIN_P       0.1f

/* Sampling options that a request sets, as bits. */
#define BT_GIVEN_TEMPERATURE        1u
#define BT_GIVEN_TOP_P              2u
#define BT_GIVEN_TOP_K              4u
#define BT_GIVEN_MIN_P              8u
#define BT_GIVEN_REPETITION_PENALTY 16u
#define BT_GIVEN_FILTER             32u /**< top_n_sigma, typical_p, XTC */
#define BT_GIVEN_A_DISTRIBUTION     47u /**< any of them but the penalty */

typedef enum bt_sampling_source {
    BT_SAMPLING_OF_SERVER,
    BT_SAMPLING_OF_FILE,
    BT_SAMPLING_OF_OPTION, /**< option, completed by the file's values */
} bt_sampling_source_t;

typedef struct bt_sampling_defaults {
    bt_sampling_source_t source;
    float temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k; /**< 0 = off */
} bt_sampling_defaults_t;

/** Returns a temperature as it is used: 0, the most probable token, for one so
 *  small that a division by it would overflow. */
float bt_sampling_temperature(float given);
/** Reads a file's sampling defaults; a value out of range is skipped with a
 *  warning. */
void bt_sampling_defaults_read(const bt_gguf_t *gguf, const char *model_name,
                               bt_sampling_defaults_t *defaults_p);
/** Replaces the file's or the server's defaults by the operator's; changes
 *  nothing where @a option is not set. */
void bt_sampling_defaults_override(bt_sampling_defaults_t *defaults,
                                   const bt_config_sampling_t *option);
/** Applies the defaults to a request of OpenAI's API; Triton's requests have no
 *  model defaults.
 *  @param [in]     given      BT_GIVEN_*
 *  @param [in,out] sampling  as OpenAI's API defines it */
void bt_sampling_defaults_apply(const bt_sampling_defaults_t *defaults,
                                uint32_t given, bt_sampling_t *sampling);

/**
 * Applies the rule of TensorRT-LLM's sampling layers to a request of Triton's
 * API:
 *
 *     top_k     top_p     sampled
 *     0         0         the most probable token, whatever the temperature
 *     1         any       the most probable token, whatever the temperature
 *     above 1   0         from top_k tokens
 *     0         above 0   from the tokens of top_p; from all tokens at 1
 *     above 1   above 0   from both
 *
 * An omitted option is 0, and an omitted temperature is 1; a temperature of 0
 * selects the most probable token. min_p, top_n_sigma, typical_p and XTC, which
 * TensorRT-LLM's backend does not support, count as a top_p of 1.
 *
 * Source:  TensorRT-LLM, cpp/tensorrt_llm/layers: topKSamplingLayer.cu,
 *          topPSamplingLayer.cu, defaultDecodingParams.h.
 *
 * @param [in]     given      BT_GIVEN_*; BT_GIVEN_TOP_P not for a top_p of 0
 * @param [in,out] sampling  with a temperature of 0 where none was set
 */
void bt_sampling_apply_triton(uint32_t given, bt_sampling_t *sampling);

#endif
