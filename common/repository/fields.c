/* SPDX-License-Identifier: Apache-2.0 */
/* Table of the fields of a config.pbtxt and their effects. */
#include <string.h>

#include "common/base/status.h"
#include "common/repository/repository.h"

#define LLM  "tensorrt_llm"
#define BLS  "tensorrt_llm_bls"
#define PRE  "preprocessing"
#define POST "postprocessing"

/* clang-format off */
#define ROW(model, path, fate, option, values, note) \
    {model, path, BT_REPO_##fate, option, values, note}
/* clang-format on */
#define DESCRIBED(path) ROW("", path, DESCRIBED, "", "", "as it is")
#define EFFECT(model, path, option, values, note) \
    ROW(model, path, EFFECT, option, values, note)
#define NOTED(model, path, note)        ROW(model, path, NOTED, "", "", note)
#define REFUSED(model, path, note)      ROW(model, path, REFUSED, "", "", note)
#define ONLY(model, path, values, note) ROW(model, path, ONLY, "", values, note)

const char *const bt_repo_names[BT_REPO_N_MODELS] = {
    "preprocessing", "tensorrt_llm", "postprocessing", "ensemble",
    "tensorrt_llm_bls"};

/* clang-format off */
const bt_repo_field_t bt_repo_fields[] = {
    /* ---- every model ---- */
    DESCRIBED("name"),
    ONLY("ensemble", "platform", "ensemble", "its steps are Baton's own"),
    ONLY(LLM, "platform", "tensorrt_llm, tensorrtllm",
         "Baton computes the model, whichever is named"),
    ONLY("", "platform", "", "only an ensemble has one; see backend"),
    ONLY(LLM, "backend", "tensorrtllm, python",
         "Baton computes the model, whichever is named"),
    ONLY("", "backend", "python, tensorrtllm",
         "Baton computes the model, whichever is named"),
    EFFECT("", "max_batch_size", "", "", "the largest batch of one request"),
    EFFECT("", "model_transaction_policy.decoupled", "", "",
           "false: a request that asks for a stream is refused"),
    DESCRIBED("input.name"),
    DESCRIBED("input.data_type"),
    DESCRIBED("input.dims"),
    DESCRIBED("input.reshape.shape"),
    DESCRIBED("input.optional"),
    DESCRIBED("input.allow_ragged_batch"),
    DESCRIBED("output.name"),
    DESCRIBED("output.data_type"),
    DESCRIBED("output.dims"),
    DESCRIBED("output.reshape.shape"),
    DESCRIBED("version_policy"),
    NOTED("", "runtime", "Baton computes the model"),
    NOTED("", "default_model_filename",
          "Baton computes the model; a model.py is not run"),
    NOTED("", "cc_model_filenames",
          "Baton computes the model; a model.py is not run"),
    NOTED("", "optimization", "--backend says what computes"),
    NOTED("", "model_warmup",
          "a worker is ready once its weights are; no request is run before"),
    NOTED("", "response_cache",
          "answers are not kept; KV of prompts is: --prefix-cache"),
    NOTED("", "metric_tags", "metrics have the labels of docs/METRICS.md"),
    NOTED("", "model_metrics", "metrics have the labels of docs/METRICS.md"),
    REFUSED("", "sequence_batching",
            "each request stands alone; leave it out, dynamic_batching is "
            "read"),
    REFUSED("", "batch_input", "custom back ends are not run; leave it out"),
    REFUSED("", "batch_output", "custom back ends are not run; leave it out"),
    REFUSED("", "model_operations",
            "libraries of custom operators are not loaded; leave it out"),
    REFUSED("", "model_repository_agents",
            "agents are not run; leave it out, and check the files yourself"),
    ONLY("", "input.format", "FORMAT_NONE", "there are no images"),
    ONLY("", "input.is_shape_tensor", "false", "there are no shape tensors"),
    ONLY("", "input.is_non_linear_format_io", "false",
         "tensors are stored row by row"),
    ONLY("", "output.is_shape_tensor", "false", "there are no shape tensors"),
    ONLY("", "output.is_non_linear_format_io", "false",
         "tensors are stored row by row"),
    REFUSED("", "output.label_filename",
            "there is no classification; leave it out"),
    ONLY("", "dynamic_batching.preserve_ordering", "false",
         "responses are sent as they are ready, and clients pair them by id; "
         "leave it out"),
    REFUSED("", "dynamic_batching.priority_queue_policy",
            "one policy is for all priorities: default_queue_policy"),
    ONLY("", "dynamic_batching.default_queue_policy.timeout_action", "REJECT",
         "a request whose time is over is refused; leave it out"),
    ONLY("", "dynamic_batching.default_queue_policy.allow_timeout_override",
         "true, false", "a request's own timeout counts: --request-timeout-ms "
         "bounds it"),
    ONLY("",
         "dynamic_batching.default_queue_policy.default_timeout_microseconds",
         "0", "the queue has no limit of its own: --request-timeout-ms limits "
         "the whole request, --ttft-target-ms the time to its first token"),
    NOTED(LLM, "dynamic_batching.preferred_batch_size",
          "batches are made anew for each iteration"),
    NOTED("", "dynamic_batching.preferred_batch_size",
          "its work is done for each request by itself"),
    EFFECT(LLM, "dynamic_batching.max_queue_delay_microseconds",
           "max-queue-delay-us", "", "requests that come within it are placed "
           "together"),
    NOTED("", "dynamic_batching.max_queue_delay_microseconds",
          "its work is done for each request by itself"),
    EFFECT(LLM, "dynamic_batching.default_queue_policy.max_queue_size",
           "max-concurrent-requests", "", "requests in flight before new ones are refused; 0: "
           "Baton's own limit"),
    NOTED("", "dynamic_batching.default_queue_policy.max_queue_size",
          "the queue is tensorrt_llm's"),
    EFFECT(LLM, "dynamic_batching.priority_levels", "client-priority", "",
           "requests' priorities count, 1 is the first; 0: they do not"),
    NOTED("", "dynamic_batching.priority_levels",
          "the queue is tensorrt_llm's"),
    EFFECT(LLM, "dynamic_batching.default_priority_level", "", "",
           "the priority of requests that name none"),
    NOTED("", "dynamic_batching.default_priority_level",
          "the queue is tensorrt_llm's"),
    EFFECT(LLM, "instance_group.count", "decode", "",
           "more than 1: decode workers"),
    EFFECT(PRE, "instance_group.count", "tokenizer-threads", "",
           "threads that turn text into tokens, at least 2"),
    NOTED(POST, "instance_group.count", "text is made as tokens come"),
    NOTED("", "instance_group.count", "requests of all are handled together"),
    NOTED("", "instance_group.name", "groups are the model's own"),
    NOTED("", "instance_group.rate_limiter",
          "requests of all are handled together"),
    NOTED("", "instance_group.profile", "--backend says what computes"),
    NOTED("", "instance_group.host_policy", "--backend says what computes"),
    NOTED("", "instance_group.secondary_devices",
          "--backend says what computes"),
    ONLY("", "instance_group.passive", "false",
         "each instance takes requests; leave it out"),
    NOTED("", "instance_group.kind", "--backend says what computes"),
    NOTED("", "instance_group.gpus", "--backend says what computes"),
    DESCRIBED("ensemble_scheduling.step.model_name"),
    DESCRIBED("ensemble_scheduling.step.model_version"),
    DESCRIBED("ensemble_scheduling.step.input_map.key"),
    DESCRIBED("ensemble_scheduling.step.input_map.value"),
    DESCRIBED("ensemble_scheduling.step.output_map.key"),
    DESCRIBED("ensemble_scheduling.step.output_map.value"),

    /* ---- parameters of tensorrt_llm ---- */
    EFFECT(LLM, "parameters.gpt_model_type", "batching-strategy",
           "inflight_fused_batching, inflight_batching, V1",
           "V1: static batches at decode workers, and /metrics has the v1 family "
           "in place of in-flight's"),
    EFFECT(LLM, "parameters.gpt_model_path", "model", "",
           "a GGUF file, a folder of Hugging Face or a model's name, where "
           "--model gives none; an engine is refused"),
    EFFECT(LLM, "parameters.max_tokens_in_paged_kv_cache", "kv-tokens", "",
           "tokens of KV that a worker holds at most"),
    EFFECT(LLM, "parameters.kv_cache_free_gpu_mem_fraction",
           "kv-free-percent", "", "share of what memory the model leaves"),
    EFFECT(LLM, "parameters.enable_kv_cache_reuse", "prefix-cache",
           "true, false", "whether KV of prompts is found again"),
    EFFECT(LLM, "parameters.exclude_input_in_output",
           "exclude-input-in-output", "true, false",
           "what a request gets that does not say it"),
    EFFECT(LLM, "parameters.max_num_sequences", "max-batch-size", "",
           "sequences that a worker runs at the same time"),
    EFFECT(LLM, "parameters.batch_scheduler_policy", "scheduler-policy",
           "guaranteed_no_evict, max_utilization",
           "what a sequence that generates holds blocks for"),
    EFFECT(LLM, "parameters.schedule_policy", "scheduler-policy",
           "guaranteed_no_evict, max_utilization",
           "batch_scheduler_policy by another name"),
    EFFECT(LLM, "parameters.decoupled", "", "true, false",
           "model_transaction_policy.decoupled by another name"),
    ONLY(LLM, "parameters.decoding_mode",
         "top_k, top_p, top_k_top_p, beam_search, auto",
         "each request says whether it draws or searches with beams; drafts "
         "are Baton's own (--max-draft-tokens)"),
    EFFECT(LLM, "parameters.max_beam_width", "max-beam-width", "",
           "most beams of a request; 1: no beam search"),
    ONLY(LLM, "parameters.enable_chunked_context", "true, false",
         "prompts are always computed in chunks: --chunk-tokens"),
    ONLY(LLM, "parameters.num_nodes", "1",
         "workers on other hosts join by themselves"),
    ONLY(LLM, "parameters.encoder_model_path", "", "there are no encoders"),
    ONLY(LLM, "parameters.cross_kv_cache_fraction", "",
         "there are no encoders"),
    ONLY(LLM, "parameters.max_attention_window_size", "",
         "the model file says it"),
    ONLY(LLM, "parameters.max_kv_cache_length", "", "the model file says it"),
    ONLY(LLM, "parameters.sink_token_length", "0", "the model file says it"),
    ONLY(LLM, "parameters.kv_cache_host_memory_bytes", "0",
         "KV is not moved out of a worker's pool"),
    ONLY(LLM, "parameters.normalize_log_probs", "true",
         "log-probs are normalized"),
    EFFECT(LLM, "parameters.lora_prefetch_dir", "lora-prefetch-dir", "",
           "adapters that are there from the start; with "
           "lora_cache_host_memory_bytes"),
    EFFECT(LLM, "parameters.lora_cache_host_memory_bytes",
           "lora-cache-host-memory", "",
           "memory of a router for adapters that clients send; 0: none are "
           "taken"),
    EFFECT(LLM, "parameters.lora_cache_max_adapter_size", "max-lora-rank", "",
           "largest rank of an adapter"),
    ONLY(LLM, "parameters.medusa_choices", "",
         "there are no Medusa heads"),
    ONLY(LLM, "parameters.eagle_choices", "",
         "there are no EAGLE trees"),
    ONLY(LLM, "parameters.lookahead_window_size", "",
         "there is no lookahead decoding"),
    ONLY(LLM, "parameters.lookahead_ngram_size", "",
         "there is no lookahead decoding"),
    ONLY(LLM, "parameters.lookahead_verification_set_size", "",
         "there is no lookahead decoding"),
    ONLY(LLM, "parameters.speculative_decoding_fast_logits", "false, 0",
         "drafts are verified where they are made"),
    NOTED(LLM, "parameters.guided_decoding_backend",
          "structured output is there for whoever asks, by Baton itself"),
    NOTED(LLM, "parameters.xgrammar_tokenizer_info_path",
          "structured output reads the vocabulary of the model's file"),
    NOTED(LLM, "parameters.gather_context_logits",
          "logits are there for whoever asks: --max-logits-bytes"),
    NOTED(LLM, "parameters.gather_generation_logits",
          "logits are there for whoever asks: --max-logits-bytes"),
    NOTED(LLM, "parameters.gather_all_token_logits",
          "logits are there for whoever asks: --max-logits-bytes"),
    NOTED(LLM, "parameters.tokenizer_dir",
          "the model file has its tokenizer"),
    NOTED(LLM, "parameters.kv_cache_onboard_blocks",
          "KV is not moved out of a worker's pool"),
    NOTED(LLM, "parameters.cancellation_check_period_ms",
          "a client that leaves is seen at once"),
    NOTED(LLM, "parameters.stats_check_period_ms",
          "statistics are always up to date"),
    NOTED(LLM, "parameters.iter_stats_max_iterations",
          "statistics are counted, not kept"),
    NOTED(LLM, "parameters.request_stats_max_iterations",
          "statistics are counted, not kept"),
    NOTED(LLM, "parameters.gpu_device_ids", "--backend says what computes"),
    NOTED(LLM, "parameters.participant_ids", "workers join by themselves"),
    NOTED(LLM, "parameters.gpu_weights_percent",
          "--backend says what computes"),
    NOTED(LLM, "parameters.lora_cache_optimal_adapter_size",
          "LoRA adapters take what they need, not pages"),
    NOTED(LLM, "parameters.lora_cache_gpu_memory_fraction",
          "--lora-memory is for LoRA adapters at workers"),
    NOTED(LLM, "parameters.enable_context_fmha_fp32_acc",
          "sums are kept in float32"),
    NOTED(LLM, "parameters.multi_block_mode", "--backend says what computes"),
    NOTED(LLM, "parameters.cuda_graph_mode", "--backend says what computes"),
    NOTED(LLM, "parameters.cuda_graph_cache_size",
          "--backend says what computes"),
    NOTED(LLM, "parameters.enable_trt_overlap",
          "--backend says what computes"),
    NOTED(LLM, "parameters.executor_worker_path", "workers are Baton's own"),
    NOTED(LLM, "parameters.worker_path", "workers are Baton's own"),
    NOTED(LLM, "parameters.FORCE_CPU_ONLY_INPUT_TENSORS",
          "inputs are read where they arrive"),

    /* ---- of the others ---- */
    NOTED(PRE, "parameters.tokenizer_dir", "the model file has its tokenizer"),
    NOTED(PRE, "parameters.tokenizer_type",
          "the model file has its tokenizer"),
    ONLY(PRE, "parameters.add_special_tokens", "true, 1",
         "they are added as the model file says"),
    NOTED(PRE, "parameters.gpt_model_path", "it is tensorrt_llm's"),
    ONLY(PRE, "parameters.multimodal_model_path", "", "there are no images"),
    ONLY(PRE, "parameters.visual_model_path", "", "there are no images"),
    NOTED(PRE, "parameters.max_num_images", "there are no images"),
    NOTED(POST, "parameters.tokenizer_dir", "the model file has its tokenizer"),
    NOTED(POST, "parameters.tokenizer_type",
          "the model file has its tokenizer"),
    ONLY(POST, "parameters.skip_special_tokens", "true, 1",
         "special tokens have no text"),
    EFFECT(BLS, "parameters.accumulate_tokens", "accumulate-tokens",
           "true, false", "whether each response of a stream has all text so "
           "far"),
    ONLY(BLS, "parameters.tensorrt_llm_model_name", "tensorrt_llm",
         "it is the model behind all five"),
    ONLY(BLS, "parameters.tensorrt_llm_draft_model_name", "",
         "a draft model is given by its file, with --draft-model"),
    ONLY(BLS, "parameters.multimodal_encoders_name", "",
         "there are no images"),
};
/* clang-format on */

bool bt_repo_is_name(const char *name)
{
    uint32_t i = 0;

    while ((i < BT_REPO_N_MODELS) && (strcmp(name, bt_repo_names[i]) != 0)) {
        i++;
    }
    return i < BT_REPO_N_MODELS;
}

const uint32_t bt_repo_n_fields = BT_ARRAY_LEN(bt_repo_fields);

const bt_repo_field_t *bt_repo_field_find(const char *model, const char *path)
{
    for (uint32_t i = 0; i < bt_repo_n_fields; i++) {
        const bt_repo_field_t *field = &bt_repo_fields[i];

        if ((strcmp(field->path, path) == 0) &&
            ((field->model[0] == '\0') || (strcmp(field->model, model) == 0))) {
            return field;
        }
    }
    return NULL;
}
