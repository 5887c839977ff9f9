/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampling.h
 *
 * How a model draws where a request of the OpenAI API does not say it.
 *
 *     the operator says something (--override-generation-config)
 *         each option that the request leaves out is the operator's, and what
 *         that leaves out is the file's
 *     the file recommends something (general.sampling.*)
 *         each option that the request leaves out is the file's; what the file
 *         leaves out is off, and its temperature 1
 *     neither does
 *         a request that says none of temperature, top_p, top_k and min_p draws
 *         as BT_SAMPLING_… below say; one that says any of them gets what
 *         OpenAI's API has for the others: temperature 1, the rest off
 *
 * The second are for small models, which at temperature 1 and with every token
 * of a vocabulary allowed soon say things that nobody taught them.
 *
 * A request of Triton's API draws the most probable token, unless it asks for a
 * distribution.
 *
 * Threads: pure functions, but for the log.
 */
#ifndef BT_ROUTER_FRONTEND_SAMPLING_H
#define BT_ROUTER_FRONTEND_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/wire/request.h"
#include "inference/gguf/gguf.h"

#define BT_SAMPLING_TEMPERATURE 0.7f
#define BT_SAMPLING_TOP_P       0.95f
#define BT_SAMPLING_MIN_P       0.1f

/* What a request says, as bits. */
#define BT_SAYS_TEMPERATURE        1u
#define BT_SAYS_TOP_P              2u
#define BT_SAYS_TOP_K              4u
#define BT_SAYS_MIN_P              8u
#define BT_SAYS_REPETITION_PENALTY 16u
#define BT_SAYS_A_DISTRIBUTION     15u /**< any of the first four */

typedef enum bt_sampling_source {
    BT_SAMPLING_OF_SERVER,
    BT_SAMPLING_OF_FILE,
    BT_SAMPLING_OF_OPTION, /**< with the file's for what it leaves out */
} bt_sampling_source_t;

typedef struct bt_sampling_defaults {
    bt_sampling_source_t source;
    float temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k; /**< 0 = off */
} bt_sampling_defaults_t;

/** A value of the file that is out of range is passed over, with a warning. */
void bt_sampling_defaults_read(const bt_gguf_t *gguf, const char *model_name,
                               bt_sampling_defaults_t *defaults_p);
/** Put the operator's in the place of the file's or the server's; nothing is
 *  changed where @a option says nothing. */
void bt_sampling_defaults_override(bt_sampling_defaults_t *defaults,
                                   const bt_config_sampling_t *option);
/** For requests of OpenAI's API; Triton's have no defaults of a model.
 *  @param [in]     said      BT_SAYS_*
 *  @param [in,out] sampling  as OpenAI's API has it */
void bt_sampling_defaults_apply(const bt_sampling_defaults_t *defaults,
                                uint32_t said, bt_sampling_t *sampling);

/**
 * For requests of Triton's API, the rule of TensorRT-LLM's sampling layers:
 *
 *     top_k     top_p     drawn
 *     0         0         the most probable token, whatever the temperature
 *     1         any       the same
 *     above 1   0         from top_k tokens
 *     0         above 0   from the tokens of top_p; from all of them at 1
 *     above 1   above 0   from both
 *
 * An option that is left out is 0, and a temperature that is left out is 1; a
 * temperature of 0 draws the most probable token. min_p, which TensorRT-LLM's
 * backend does not take, counts as a top_p of 1.
 *
 * Source:  TensorRT-LLM, cpp/tensorrt_llm/layers: topKSamplingLayer.cu,
 *          topPSamplingLayer.cu, defaultDecodingParams.h.
 *
 * @param [in]     said      BT_SAYS_*; BT_SAYS_TOP_P not for a top_p of 0
 * @param [in,out] sampling  with a temperature of 0 where none was said
 */
void bt_sampling_apply_triton(uint32_t said, bt_sampling_t *sampling);

#endif
