/* SPDX-License-Identifier: Apache-2.0 */
/** @file models.h
 *
 * The five models of a Triton server with TensorRT-LLM, as data: their inputs
 * and outputs by name, type and dims.
 *
 *     preprocessing ─ ids ─▶ tensorrt_llm ─ ids ─▶ postprocessing
 *     └────────── ensemble, tensorrt_llm_bls ─────────────┘
 *
 * Here one served model stands behind all five, the default one; a served
 * model's own name takes the tensors of `ensemble`. Metadata, configuration and
 * the meaning of a request are made from this table alone.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_MODELS_H
#define BT_ROUTER_TRITON_MODELS_H

#include "router/triton/tensor.h"

/** What a model does with a request. */
typedef enum bt_model_role {
    BT_ROLE_TEXT,        /**< text in, text out: generates */
    BT_ROLE_IDS,         /**< token ids in and out: generates */
    BT_ROLE_PREPROCESS,  /**< text to ids */
    BT_ROLE_POSTPROCESS, /**< ids to text */
} bt_model_role_t;

/** What an input means, whatever its model calls it. */
typedef enum bt_model_field {
    BT_FIELD_TEXT,
    BT_FIELD_DECODER_TEXT, /**< of preprocessing, for a model with an encoder */
    BT_FIELD_IDS,
    BT_FIELD_N_IDS, /**< how many of a row of ids count */
    BT_FIELD_MAX_TOKENS,
    BT_FIELD_BAD_WORDS,
    BT_FIELD_STOP_WORDS,
    BT_FIELD_BAD_WORD_IDS,
    BT_FIELD_STOP_WORD_IDS,
    BT_FIELD_BIAS_WORDS,
    BT_FIELD_BIAS_WEIGHTS,
    BT_FIELD_BIAS, /**< one for each token of the vocabulary */
    BT_FIELD_END_ID,
    BT_FIELD_PAD_ID,
    BT_FIELD_TOP_K,
    BT_FIELD_TOP_P,
    BT_FIELD_TEMPERATURE,
    BT_FIELD_REPETITION_PENALTY,
    BT_FIELD_PRESENCE_PENALTY,
    BT_FIELD_FREQUENCY_PENALTY,
    BT_FIELD_MIN_LENGTH,
    BT_FIELD_SEED,
    BT_FIELD_STREAM,
    BT_FIELD_STOP, /**< end the request of this id */
    BT_FIELD_EXCLUDE_INPUT,
    BT_FIELD_LOG_PROBS,
    BT_FIELD_CONTEXT_LOGITS,
    BT_FIELD_GENERATION_LOGITS,
    BT_FIELD_ONE,     /**< only 1 is there: beam_width */
    BT_FIELD_NEUTRAL, /**< any value: of no meaning without beams, and
                         without an encoder */
    BT_FIELD_NOT_YET, /**< what changes nothing: 0, false, "", no elements */
    BT_FIELD_TOKENS,  /**< of postprocessing */
    BT_N_FIELDS,
} bt_model_field_t;

/** What an output holds. */
typedef enum bt_model_result {
    BT_RESULT_TEXT,
    BT_RESULT_IDS,
    BT_RESULT_N_IDS,
    BT_RESULT_CUM_LOG_PROBS,
    BT_RESULT_LOG_PROBS,
    BT_RESULT_CONTEXT_LOGITS,
    BT_RESULT_GENERATION_LOGITS,
    BT_RESULT_BATCH_INDEX,
    BT_RESULT_BAD_WORD_IDS,
    BT_RESULT_STOP_WORD_IDS,
    BT_RESULT_BIAS,
    BT_RESULT_MAX_TOKENS,
    BT_RESULT_END_ID,
    BT_RESULT_PAD_ID,
    BT_RESULT_DECODER_IDS, /**< of preprocessing: the padding id where no text
                              was given for them */
    BT_RESULT_N_DECODER_IDS,
    BT_RESULT_NOT_GIVEN, /**< listed by TensorRT-LLM's files, and left out */
    BT_N_RESULTS,
} bt_model_result_t;

#define BT_MODEL_MAX_DIMS 3

/** One input or output. */
typedef struct bt_model_tensor {
    const char *name;
    bt_dtype_t dtype;
    uint32_t n_dims;
    int64_t dims[BT_MODEL_MAX_DIMS]; /**< without the batch's; -1 = any */
    int what;      /**< bt_model_field_t or bt_model_result_t */
    bool optional; /**< of an input: it may be left out */
    /** Another spelling of an entry before it, kept for clients that know it:
     *  taken, but not listed. */
    bool hidden;
} bt_model_tensor_t;

typedef struct bt_model_spec {
    const char *name; /**< NULL in the signature of served models' own names */
    bt_model_role_t role;
    bool decoupled; /**< may answer with several responses, or one */
    const bt_model_tensor_t *inputs;
    size_t n_inputs;
    const bt_model_tensor_t *outputs;
    size_t n_outputs;
} bt_model_spec_t;

#define BT_N_MODEL_SPECS 5
/** The five, in the order of a chain: preprocessing, tensorrt_llm,
 *  postprocessing, ensemble, tensorrt_llm_bls. */
extern const bt_model_spec_t bt_model_specs[BT_N_MODEL_SPECS];

/** What a model of this name takes and gives: one of the five, or for any other
 *  name that of `ensemble`. Never NULL. */
const bt_model_spec_t *bt_model_spec(const char *name);
/** True for one of the five names. */
bool bt_model_is_alias(const char *name);

/** NULL when there is none. */
const bt_model_tensor_t *bt_model_input(const bt_model_spec_t *spec,
                                        const char *name);
const bt_model_tensor_t *bt_model_output(const bt_model_spec_t *spec,
                                         const char *name);

#endif
