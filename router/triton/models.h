/* SPDX-License-Identifier: Apache-2.0 */
/** @file models.h
 *
 * The five models of a Triton server with TensorRT-LLM, as data: their inputs
 * and outputs by name, type and dims.
 *
 *     preprocessing ─ ids ─▶ tensorrt_llm ─ ids ─▶ postprocessing
 *     └────────── ensemble, tensorrt_llm_bls ─────────────┘
 *
 * Here all five stand for one served model, the default one; a served model's
 * own name takes the tensors of `ensemble`. Metadata, configuration and the
 * meaning of a request are derived from this table alone.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_MODELS_H
#define BT_ROUTER_TRITON_MODELS_H

#include "router/triton/tensor.h"

/** Operation that a model performs on a request. */
typedef enum bt_model_role {
    BT_ROLE_TEXT,        /**< text in, text out: generates */
    BT_ROLE_IDS,         /**< token ids in and out: generates */
    BT_ROLE_PREPROCESS,  /**< text to ids */
    BT_ROLE_POSTPROCESS, /**< ids to text */
} bt_model_role_t;

/** Meaning of an input, independent of its name in a model. */
typedef enum bt_model_field {
    BT_FIELD_TEXT,
    BT_FIELD_DECODER_TEXT, /**< preprocessing, for encoder-decoder models */
    BT_FIELD_IDS,
    BT_FIELD_N_IDS, /**< number of valid ids in a row */
    BT_FIELD_MAX_TOKENS,
    BT_FIELD_BAD_WORDS,
    BT_FIELD_STOP_WORDS,
    BT_FIELD_BAD_WORD_IDS,
    BT_FIELD_STOP_WORD_IDS,
    BT_FIELD_BIAS_WORDS,
    BT_FIELD_BIAS_WEIGHTS,
    BT_FIELD_BIAS, /**< one bias for each token of the vocabulary */
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
    BT_FIELD_STOP, /**< stop the request of this id */
    BT_FIELD_EXCLUDE_INPUT,
    BT_FIELD_LOG_PROBS,
    BT_FIELD_CONTEXT_LOGITS,
    BT_FIELD_GENERATION_LOGITS,
    BT_FIELD_BEAM_WIDTH,
    BT_FIELD_N_SEQUENCES, /**< answers of a beam search that are returned */
    BT_FIELD_LENGTH_PENALTY,
    BT_FIELD_EARLY_STOPPING,
    BT_FIELD_GUIDE_TYPE, /**< structured output: kind of the guide */
    BT_FIELD_GUIDE,
    BT_FIELD_TABLE,           /**< prompt_embedding_table */
    BT_FIELD_TABLE_SIZE,      /**< prompt_vocab_size */
    BT_FIELD_TABLE_EXTRA_IDS, /**< numbers of ids, for KV reuse alone */
    BT_FIELD_LORA_TASK,
    BT_FIELD_LORA_WEIGHTS,
    BT_FIELD_LORA_CONFIG,
    BT_FIELD_NEUTRAL,    /**< any value; ignored without an encoder */
    BT_FIELD_DRAFT_IDS,  /**< expected ids of the answer; below 0: padding */
    BT_FIELD_MAX_DRAFTS, /**< most drafts of an iteration */
    /** Threshold for accepting drafts: only 1, and 0 for off. */
    BT_FIELD_DRAFT_THRESHOLD,
    BT_FIELD_TOP_P_DECAY,
    BT_FIELD_TOP_P_MIN,
    BT_FIELD_TOP_P_RESET_ID, /**< below 0: none */
    BT_FIELD_NO_REPEAT_NGRAM,
    BT_FIELD_PROMPT_IGNORE, /**< prompt tokens that penalties ignore */
    BT_FIELD_PERF,          /**< return_perf_metrics */
    BT_FIELD_KV_REUSE,      /**< return_kv_cache_reuse_stats */
    BT_FIELD_N_INPUT,       /**< return_num_input_tokens */
    BT_FIELD_N_OUTPUT,      /**< return_num_output_tokens */
    BT_FIELD_NOT_YET, /**< only a value without effect is accepted: 0, false,
                         "", no elements */
    BT_FIELD_TOKENS,  /**< token ids, postprocessing only */
    BT_N_FIELDS,
} bt_model_field_t;

/** Content of an output. */
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
    BT_RESULT_DECODER_IDS, /**< preprocessing only: the padding id where no
                              decoder text was given */
    BT_RESULT_N_DECODER_IDS,
    BT_RESULT_PERF,      /**< the number of this name (perf_metrics.h) */
    BT_RESULT_NOT_GIVEN, /**< listed in TensorRT-LLM's files; never returned */
    BT_N_RESULTS,
} bt_model_result_t;

#define BT_MODEL_MAX_DIMS 3

/** Input or output of a model. */
typedef struct bt_model_tensor {
    const char *name;
    bt_dtype_t dtype;
    uint32_t n_dims;
    int64_t dims[BT_MODEL_MAX_DIMS]; /**< without the batch; -1 = any */
    int what;      /**< bt_model_field_t or bt_model_result_t */
    bool optional; /**< true: the input may be left out */
    /** Alternative name of an earlier entry, for clients that use it:
     *  accepted, but not listed. */
    bool hidden;
} bt_model_tensor_t;

typedef struct bt_model_spec {
    const char *name; /**< NULL: signature of the served models' own names */
    bt_model_role_t role;
    bool decoupled; /**< may answer with one or several responses */
    const bt_model_tensor_t *inputs;
    size_t n_inputs;
    const bt_model_tensor_t *outputs;
    size_t n_outputs;
} bt_model_spec_t;

#define BT_N_MODEL_SPECS 5
/** Specifications of the five models, in pipeline order: preprocessing,
 *  tensorrt_llm, postprocessing, ensemble, tensorrt_llm_bls. */
extern const bt_model_spec_t bt_model_specs[BT_N_MODEL_SPECS];

/** Returns the inputs and outputs of the model of this name: one of the five,
 *  or for any other name those of `ensemble`. Never NULL. */
const bt_model_spec_t *bt_model_spec(const char *name);

/** Returns the input of this name, or NULL when there is none. */
const bt_model_tensor_t *bt_model_input(const bt_model_spec_t *spec,
                                        const char *name);
const bt_model_tensor_t *bt_model_output(const bt_model_spec_t *spec,
                                         const char *name);

#endif
