/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/models.h"

#include "common/base/containers.h"

/* clang-format off */
#define TENSOR(name, type, what, optional, hidden, ...)                         \
    {name, BT_DTYPE_##type, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
     {__VA_ARGS__}, what, optional, hidden}
#define IN(name, type, field, ...) \
    TENSOR(name, type, BT_FIELD_##field, false, false, __VA_ARGS__)
#define OPT(name, type, field, ...) \
    TENSOR(name, type, BT_FIELD_##field, true, false, __VA_ARGS__)
/* Alternative name, sent by clients of other versions of these models. */
#define ALSO(name, type, field, ...) \
    TENSOR(name, type, BT_FIELD_##field, true, true, __VA_ARGS__)
#define OUT(name, type, result, ...) \
    TENSOR(name, type, BT_RESULT_##result, false, false, __VA_ARGS__)
#define OUT_ALSO(name, type, result, ...) \
    TENSOR(name, type, BT_RESULT_##result, false, true, __VA_ARGS__)

/* Numbers about a request (perf_metrics.h), and what is never returned. */
#define PERF_OUTPUTS                                                \
    OUT_ALSO("sequence_index", INT32, NOT_GIVEN, 1),                \
    OUT_ALSO("kv_cache_alloc_new_blocks", INT32, PERF, 1)     ,     \
    OUT_ALSO("kv_cache_reused_blocks", INT32, PERF, 1)     ,        \
    OUT_ALSO("kv_cache_alloc_total_blocks", INT32, PERF, 1)     ,   \
    OUT_ALSO("arrival_time_ns", INT64, PERF, 1)     ,               \
    OUT_ALSO("first_scheduled_time_ns", INT64, PERF, 1)     ,       \
    OUT_ALSO("first_token_time_ns", INT64, PERF, 1)     ,           \
    OUT_ALSO("last_token_time_ns", INT64, PERF, 1)     ,            \
    OUT_ALSO("acceptance_rate", FP32, PERF, 1)     ,                \
    OUT_ALSO("total_accepted_draft_tokens", INT32, PERF, 1)     ,   \
    OUT_ALSO("total_draft_tokens", INT32, PERF, 1)     ,            \
    OUT_ALSO("num_input_tokens", INT32, PERF, 1)     ,              \
    OUT_ALSO("num_output_tokens", INT32, PERF, 1)     

/* ---- inputs of several models ---- */

/* Sampling inputs with equal names in all models. */
#define SAMPLING_INPUTS                                             \
    OPT("end_id", INT32, END_ID, 1),                                \
    OPT("pad_id", INT32, PAD_ID, 1),                                \
    OPT("temperature", FP32, TEMPERATURE, 1),                       \
    OPT("repetition_penalty", FP32, REPETITION_PENALTY, 1),         \
    OPT("min_length", INT32, MIN_LENGTH, 1),                        \
    OPT("presence_penalty", FP32, PRESENCE_PENALTY, 1),             \
    OPT("frequency_penalty", FP32, FREQUENCY_PENALTY, 1),           \
    OPT("random_seed", UINT64, SEED, 1),                            \
    OPT("return_log_probs", BOOL, LOG_PROBS, 1),                    \
    OPT("return_context_logits", BOOL, CONTEXT_LOGITS, 1),          \
    OPT("return_generation_logits", BOOL, GENERATION_LOGITS, 1),    \
    OPT("beam_width", INT32, BEAM_WIDTH, 1),                        \
    OPT("exclude_input_in_output", BOOL, EXCLUDE_INPUT, 1),         \
    OPT("prompt_embedding_table", FP16, TABLE, -1, -1),             \
    OPT("prompt_vocab_size", INT32, TABLE_SIZE, 1),                 \
    OPT("lora_task_id", UINT64, LORA_TASK, 1),                      \
    OPT("lora_weights", FP16, LORA_WEIGHTS, -1, -1),                \
    OPT("lora_config", INT32, LORA_CONFIG, -1, 3),                  \
    OPT("early_stopping", BOOL, EARLY_STOPPING, 1),                 \
    ALSO("beam_search_diversity_rate", FP32, NOT_YET, 1),           \
    ALSO("num_return_sequences", INT32, N_SEQUENCES, 1),            \
    ALSO("seed", UINT64, SEED, 1),                                  \
    ALSO("min_tokens", INT32, MIN_LENGTH, 1),                       \
    ALSO("no_repeat_ngram_size", INT32, NO_REPEAT_NGRAM, 1),        \
    ALSO("prompt_ignore_length", INT32, PROMPT_IGNORE, 1),          \
    ALSO("return_kv_cache_reuse_stats", BOOL, KV_REUSE, 1),          \
    ALSO("return_perf_metrics", BOOL, PERF, 1),                  \
    ALSO("return_num_input_tokens", BOOL, N_INPUT, 1),              \
    ALSO("return_num_output_tokens", BOOL, N_OUTPUT, 1),             \
    ALSO("guided_decoding_guide_type", BYTES, GUIDE_TYPE, 1),          \
    ALSO("guided_decoding_guide", BYTES, GUIDE, 1)

#define TEXT_INPUTS                                                 \
    IN("text_input", BYTES, TEXT, 1),                               \
    OPT("decoder_text_input", BYTES, NOT_YET, 1),                   \
    OPT("image_input", FP16, NOT_YET, -1, -1, -1),                  \
    IN("max_tokens", INT32, MAX_TOKENS, 1),                         \
    OPT("bad_words", BYTES, BAD_WORDS, -1),                         \
    OPT("stop_words", BYTES, STOP_WORDS, -1),                       \
    OPT("top_k", INT32, TOP_K, 1),                                  \
    OPT("top_p", FP32, TOP_P, 1),                                   \
    OPT("length_penalty", FP32, LENGTH_PENALTY, 1),                 \
    OPT("len_penalty", FP32, LENGTH_PENALTY, 1),                    \
    OPT("stream", BOOL, STREAM, 1),                                 \
    OPT("embedding_bias_words", BYTES, BIAS_WORDS, -1),             \
    OPT("embedding_bias_weights", FP32, BIAS_WEIGHTS, -1),          \
    OPT("num_draft_tokens", INT32, MAX_DRAFTS, 1),                  \
    OPT("use_draft_logits", BOOL, NEUTRAL, 1),                      \
    SAMPLING_INPUTS,                                                \
    ALSO("stop", BOOL, STOP, 1),                                    \
    ALSO("streaming", BOOL, STREAM, 1),                             \
    ALSO("runtime_top_k", INT32, TOP_K, 1),                         \
    ALSO("runtime_top_p", FP32, TOP_P, 1),                          \
    ALSO("runtime_top_p_min", FP32, TOP_P_MIN, 1),                  \
    ALSO("runtime_top_p_decay", FP32, TOP_P_DECAY, 1),              \
    ALSO("runtime_top_p_reset_ids", INT32, TOP_P_RESET_ID, 1),      \
    ALSO("exclude_input_from_output", BOOL, EXCLUDE_INPUT, 1),      \
    ALSO("image_bytes_input", UINT8, NOT_YET, -1, -1, -1),          \
    ALSO("image_url_input", BYTES, NOT_YET, 1),                     \
    ALSO("video_bytes_input", UINT8, NOT_YET, -1, -1, -1),          \
    ALSO("prompt_table_extra_id", UINT64, NOT_YET, 1)

#define LOG_PROB_OUTPUTS                                            \
    OUT("cum_log_probs", FP32, CUM_LOG_PROBS, -1),                  \
    OUT("output_log_probs", FP32, LOG_PROBS, -1, -1),               \
    OUT("context_logits", FP32, CONTEXT_LOGITS, -1, -1),            \
    OUT("generation_logits", FP32, GENERATION_LOGITS, -1, -1, -1),  \
    OUT("batch_index", INT32, BATCH_INDEX, 1),                      \
    OUT_ALSO("generation_logtis", FP32, GENERATION_LOGITS, -1, -1, -1)

/* ---- preprocessing ---- */

static const bt_model_tensor_t preprocessing_inputs[] = {
    IN("QUERY", BYTES, TEXT, 1),
    OPT("DECODER_QUERY", BYTES, DECODER_TEXT, 1),
    IN("REQUEST_OUTPUT_LEN", INT32, MAX_TOKENS, 1),
    OPT("BAD_WORDS_DICT", BYTES, BAD_WORDS, -1),
    OPT("STOP_WORDS_DICT", BYTES, STOP_WORDS, -1),
    OPT("EMBEDDING_BIAS_WORDS", BYTES, BIAS_WORDS, -1),
    OPT("EMBEDDING_BIAS_WEIGHTS", FP32, BIAS_WEIGHTS, -1),
    OPT("END_ID", INT32, END_ID, 1),
    OPT("PAD_ID", INT32, PAD_ID, 1),
    ALSO("IMAGE_BYTES", UINT8, NOT_YET, -1, -1, -1),
    ALSO("IMAGE_URL", BYTES, NOT_YET, 1),
    ALSO("IMAGES", BYTES, NOT_YET, -1),
    ALSO("VIDEO_BYTES", UINT8, NOT_YET, -1, -1, -1),
    ALSO("PROMPT_TABLE_EXTRA_ID", UINT64, NOT_YET, 1),
};

static const bt_model_tensor_t preprocessing_outputs[] = {
    OUT("INPUT_ID", INT32, IDS, -1),
    OUT("REQUEST_INPUT_LEN", INT32, N_IDS, 1),
    OUT("DECODER_INPUT_ID", INT32, DECODER_IDS, -1),
    OUT("REQUEST_DECODER_INPUT_LEN", INT32, N_DECODER_IDS, 1),
    OUT("BAD_WORDS_IDS", INT32, BAD_WORD_IDS, 2, -1),
    OUT("STOP_WORDS_IDS", INT32, STOP_WORD_IDS, 2, -1),
    OUT("EMBEDDING_BIAS", FP32, BIAS, -1),
    OUT("REQUEST_OUTPUT_LEN", INT32, MAX_TOKENS, -1),
    OUT("OUT_END_ID", INT32, END_ID, 1),
    OUT("OUT_PAD_ID", INT32, PAD_ID, 1),
    OUT_ALSO("OUT_PROMPT_TABLE_EXTRA_IDS", UINT64, NOT_GIVEN, -1),
    OUT_ALSO("PIXEL_VALUES", FP16, NOT_GIVEN, -1, -1, -1),
    OUT_ALSO("ASPECT_RATIO_IDS", INT64, NOT_GIVEN, -1),
    OUT_ALSO("ASPECT_RATIO_MASK", INT64, NOT_GIVEN, -1, -1),
    OUT_ALSO("CROSS_ATTENTION_MASK", INT64, NOT_GIVEN, -1, -1, -1),
    OUT_ALSO("IMAGE_SIZES", INT64, NOT_GIVEN, -1, 2),
    OUT_ALSO("IS_VIDEO_INPUT", BOOL, NOT_GIVEN, 1),
    OUT_ALSO("ATTENTION_MASK", INT64, NOT_GIVEN, -1),
    OUT_ALSO("IMAGE_GRID_THW", INT64, NOT_GIVEN, 3),
    OUT_ALSO("VISION_INPUT_ID", INT32, NOT_GIVEN, -1),
};

/* ---- tensorrt_llm ---- */

static const bt_model_tensor_t tensorrt_llm_inputs[] = {
    IN("input_ids", INT32, IDS, -1),
    /* Some clients of these models send only input_ids. */
    OPT("input_lengths", INT32, N_IDS, 1),
    OPT("request_output_len", INT32, MAX_TOKENS, 1),
    OPT("draft_input_ids", INT32, DRAFT_IDS, -1),
    OPT("draft_logits", FP32, NOT_YET, -1, -1),
    OPT("draft_acceptance_threshold", FP32, DRAFT_THRESHOLD, 1),
    OPT("decoder_input_ids", INT32, NEUTRAL, -1),
    OPT("decoder_input_lengths", INT32, NEUTRAL, 1),
    OPT("stop_words_list", INT32, STOP_WORD_IDS, 2, -1),
    OPT("bad_words_list", INT32, BAD_WORD_IDS, 2, -1),
    OPT("embedding_bias", FP32, BIAS, -1),
    OPT("runtime_top_k", INT32, TOP_K, 1),
    OPT("runtime_top_p", FP32, TOP_P, 1),
    OPT("runtime_top_p_min", FP32, TOP_P_MIN, 1),
    OPT("runtime_top_p_decay", FP32, TOP_P_DECAY, 1),
    OPT("runtime_top_p_reset_ids", INT32, TOP_P_RESET_ID, 1),
    OPT("len_penalty", FP32, LENGTH_PENALTY, 1),
    SAMPLING_INPUTS,
    OPT("stop", BOOL, STOP, 1),
    OPT("streaming", BOOL, STREAM, 1),
    ALSO("encoder_input_features", FP16, NOT_YET, -1, -1),
    ALSO("encoder_output_lengths", INT32, NOT_YET, 1),
    ALSO("prompt_table_extra_ids", UINT64, TABLE_EXTRA_IDS, -1),
    ALSO("cross_attention_mask", BOOL, NOT_YET, -1, -1),
    ALSO("skip_cross_attn_blocks", BOOL, NOT_YET, 1),
    ALSO("mrope_rotary_cos_sin", FP32, NOT_YET, -1),
    ALSO("mrope_position_deltas", INT64, NOT_YET, 1),
    ALSO("context_phase_params", UINT8, NOT_YET, -1),
    ALSO("retention_token_range_starts", INT32, NOT_YET, -1),
    ALSO("retention_token_range_ends", INT32, NOT_YET, -1),
    ALSO("retention_token_range_priorities", INT32, NOT_YET, -1),
    ALSO("retention_token_range_durations_ms", INT32, NOT_YET, -1),
    ALSO("retention_decode_priority", INT32, NOT_YET, 1),
    ALSO("retention_decode_duration_ms", INT32, NOT_YET, 1),
    ALSO("lookahead_window_size", INT32, NOT_YET, 1),
    ALSO("lookahead_ngram_size", INT32, NOT_YET, 1),
    ALSO("lookahead_verification_set_size", INT32, NOT_YET, 1),
};

static const bt_model_tensor_t tensorrt_llm_outputs[] = {
    OUT("output_ids", INT32, IDS, -1, -1),
    OUT("sequence_length", INT32, N_IDS, -1),
    LOG_PROB_OUTPUTS,
    PERF_OUTPUTS,
    OUT_ALSO("context_phase_params", UINT8, NOT_GIVEN, -1),
};

/* ---- postprocessing ---- */

static const bt_model_tensor_t postprocessing_inputs[] = {
    IN("TOKENS_BATCH", INT32, TOKENS, -1, -1),
    OPT("SEQUENCE_LENGTH", INT32, N_IDS, -1),
    /* Passed through by an ensemble, and otherwise unused. */
    ALSO("CUM_LOG_PROBS", FP32, NEUTRAL, -1),
    ALSO("OUTPUT_LOG_PROBS", FP32, NEUTRAL, -1, -1),
};

static const bt_model_tensor_t postprocessing_outputs[] = {
    OUT("OUTPUT", BYTES, TEXT, -1),
};

/* ---- ensemble, tensorrt_llm_bls ---- */

static const bt_model_tensor_t text_inputs[] = {
    TEXT_INPUTS,
};

static const bt_model_tensor_t text_outputs[] = {
    OUT("text_output", BYTES, TEXT, -1),
    LOG_PROB_OUTPUTS,
    PERF_OUTPUTS,
};

#define SPEC(name, role, decoupled, in, out)                              \
    {name, role, decoupled, in, sizeof(in) / sizeof((in)[0]), out,        \
     sizeof(out) / sizeof((out)[0])}

const bt_model_spec_t bt_model_specs[BT_N_MODEL_SPECS] = {
    SPEC("preprocessing", BT_ROLE_PREPROCESS, false, preprocessing_inputs,
         preprocessing_outputs),
    SPEC("tensorrt_llm", BT_ROLE_IDS, true, tensorrt_llm_inputs,
         tensorrt_llm_outputs),
    SPEC("postprocessing", BT_ROLE_POSTPROCESS, false, postprocessing_inputs,
         postprocessing_outputs),
    SPEC("ensemble", BT_ROLE_TEXT, true, text_inputs, text_outputs),
    SPEC("tensorrt_llm_bls", BT_ROLE_TEXT, true, text_inputs, text_outputs),
};

static const bt_model_spec_t own_name =
    SPEC(NULL, BT_ROLE_TEXT, true, text_inputs, text_outputs);
/* clang-format on */

const bt_model_spec_t *bt_model_spec(const char *name)
{
    const bt_model_spec_t *spec =
        BT_FIND_NAMED(bt_model_specs, BT_N_MODEL_SPECS, name, name);

    return (spec != NULL) ? spec : &own_name;
}

const bt_model_tensor_t *bt_model_input(const bt_model_spec_t *spec,
                                        const char *name)
{
    return BT_FIND_NAMED(spec->inputs, spec->n_inputs, name, name);
}

const bt_model_tensor_t *bt_model_output(const bt_model_spec_t *spec,
                                         const char *name)
{
    return BT_FIND_NAMED(spec->outputs, spec->n_outputs, name, name);
}
