/* SPDX-License-Identifier: Apache-2.0 */
/* Model of a worker: its file, the memory it takes, its weights in the back
 * end, and the compute thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/kv/kv_groups.h"
#include "inference/hf/hf.h"
#include "inference/model/shard.h"
#include "inference/packed/packed.h"
#include "worker/preflight.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define WHY_BYTES 2048 /* with the path of a cgroup */

bt_status_t bt_start_file_open(bt_worker_t *w, bt_start_t *s)
{
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (w->config->model[0] == '\0') {
        BT_LOG_ERROR("no model given: use --model PATH");
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_modelfile_open(w->config->model, why, sizeof(why), &s->gguf);
    if (status == BT_OK) {
        status = bt_hparams_read(s->gguf, why, sizeof(why), &s->hp);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", w->config->model, why);
        return status;
    }
    w->context_tokens = s->hp.context_tokens;
    if (w->config->max_seq_len != 0) {
        if (w->config->max_seq_len > s->hp.context_tokens) {
            BT_LOG_ERROR("max-seq-len %u exceeds the model's %u",
                         w->config->max_seq_len, s->hp.context_tokens);
            return BT_ERR_INVALID_PARAM;
        }
        w->context_tokens = w->config->max_seq_len;
    }
    w->long_context = bt_hparams_long_context(&s->hp, w->context_tokens);
    return BT_OK;
}

bt_status_t bt_start_grammars_begin(bt_worker_t *w, const bt_start_t *s)
{
    bt_status_t status;

    if ((s->team.rank > 0) || !bt_gguf_has(s->gguf, "tokenizer.ggml.tokens")) {
        return BT_OK;
    }
    status = bt_grammars_create(s->gguf, s->hp.n_vocab,
                                w->config->grammar_cache_bytes, &w->grammars);
    if (status != BT_OK) {
        BT_LOG_ERROR("structured output cannot be prepared: %s",
                     bt_status_str(status));
    }
    return status;
}

bt_status_t bt_start_grammars_end(bt_worker_t *w)
{
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (w->grammars == NULL) {
        return BT_OK;
    }
    status = bt_grammars_wait(w->grammars, why, sizeof(why));
    if (status == BT_OK) {
        return BT_OK;
    }
    bt_grammars_destroy(w->grammars);
    w->grammars = NULL;
    if (status == BT_ERR_NO_MEMORY) {
        BT_LOG_ERROR("out of memory for the vocabulary");
        return status;
    }
    BT_LOG_WARN("no structured output: %s", why);
    return BT_OK;
}

/* "prompt" means --prefill-order, so that both workers of a request give it the
 * same place. */
static bool find_decode_order(bt_worker_t *w)
{
    w->decode_order = w->order;
    return (strcmp(w->config->decode_order, "prompt") == 0) ||
           bt_sched_order_find(w->config->decode_order, &w->decode_order);
}

/* Finds this rank's part of the model's KV. */
static bt_status_t find_part(const bt_worker_t *w, const bt_start_t *s,
                             bt_kv_part_t *part_p)
{
    if (w->split.pp > s->hp.n_layers) {
        BT_LOG_ERROR("pipeline parallelism over %u stages: the model "
                     "has %u layers, and each stage needs one",
                     w->split.pp, s->hp.n_layers);
        return BT_ERR_INVALID_PARAM;
    }
    if (w->split.tp > s->hp.n_kv_heads) {
        BT_LOG_ERROR("tensor parallelism over %u ranks: the model has "
                     "%u KV heads, and each rank needs one",
                     w->split.tp, s->hp.n_kv_heads);
        return BT_ERR_INVALID_PARAM;
    }
    return bt_kv_part_of(&s->shape, &w->split, s->team.rank, part_p);
}

/* Plans the layer groups from the attention of the layers. */
static bt_status_t plan_groups(bt_worker_t *w, const bt_start_t *s,
                               const bt_kv_part_t *part)
{
    uint32_t *windows = bt_calloc(s->hp.n_layers, sizeof(*windows));
    bt_status_t status;

    if (windows == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < s->hp.n_layers; i++) {
        windows[i] = bt_hparams_attention(&s->hp, i).window;
    }
    status =
        bt_kv_groups_plan(&s->shape, windows, w->context_tokens, &w->groups);
    if (status == BT_OK) {
        status =
            bt_kv_groups_share(&w->groups, part->first_layer, part->n_layers,
                               part->n_heads, &w->own_groups);
    }
    bt_free(windows);
    if (status != BT_OK) {
        return status;
    }
    bt_window_eviction_open(w);
    if (w->n_whole < w->groups.n) {
        BT_LOG_INFO(
            "KV blocks of %u of %u layer groups have attention windows of up to %u tokens; chunks of %u tokens at most",
            w->groups.n - w->n_whole, w->groups.n, w->window_tokens,
            bt_worker_most_chunk(w));
    }
    return BT_OK;
}

bt_status_t bt_start_options_check(bt_worker_t *w, bt_start_t *s)
{
    const bt_config_t *config = w->config;
    const bt_kv_type_info_t *info;
    bt_kv_part_t part;
    bt_status_t status;

    if (bt_kv_type_parse(config->kv_dtype, &s->kv_type) != BT_OK) {
        BT_LOG_ERROR("kv-dtype %s is unknown", config->kv_dtype);
        return BT_ERR_INVALID_PARAM;
    }
    if (bt_worker_most_chunk(w) < config->tokens_per_block) {
        BT_LOG_ERROR("chunk-tokens %u is below tokens-per-block %u",
                     config->chunk_tokens, config->tokens_per_block);
        return BT_ERR_INVALID_PARAM;
    }
    if (!bt_sched_order_find(config->prefill_order, &w->order)) {
        BT_LOG_ERROR("prefill-order %s is unknown", config->prefill_order);
        return BT_ERR_INVALID_PARAM;
    }
    if (!find_decode_order(w)) {
        BT_LOG_ERROR("decode-order %s is unknown", config->decode_order);
        return BT_ERR_INVALID_PARAM;
    }
    w->tokens_per_block = config->tokens_per_block;
    w->max_seqs = config->max_batch_size;
    info = bt_kv_type_info(s->kv_type);
    s->shape = (bt_kv_shape_t){
        .n_layers = s->hp.n_layers,
        .n_kv_heads = s->hp.n_kv_heads,
        .tokens_per_block = config->tokens_per_block,
        .head_dim = s->hp.head_dim,
        .elem_bytes = info->elem_bytes,
        .scale_bytes = info->scale_bytes,
    };
    w->split =
        (bt_kv_split_t){.tp = s->team.tp, .pp = s->team.size / s->team.tp};
    w->n_layers = s->shape.n_layers;
    status = find_part(w, s, &part);
    if (status != BT_OK) {
        return status; /* logged there */
    }
    status = plan_groups(w, s, &part);
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: cannot lay out KV blocks of %u tokens: %s",
                     config->model, config->tokens_per_block,
                     bt_status_str(status));
        return status;
    }
    w->block_bytes = w->own_groups.page_bytes;
    w->layer_bytes = bt_kv_groups_layer_bytes(&w->own_groups);
    return BT_OK;
}

/* Workers share a file with others on the same NUMA node: its pages are on the
 * node of the first that touched them. */
static bt_status_t choose_weight_dir(bt_start_t *s)
{
    char own[sizeof("/node4294967295")];
    const size_t len = strlen(s->weight_dir);

    if ((s->memory_node == 0) || (len == 0)) {
        return BT_OK;
    }
    snprintf(own, sizeof(own), "/node%u", s->memory_node);
    if (strlen(own) >= sizeof(s->weight_dir) - len) {
        return BT_ERR_TOO_LARGE;
    }
    memcpy(s->weight_dir + len, own, strlen(own) + 1);
    return BT_OK;
}

/* Finds the directory for packed weights. None is not an error. */
static bt_status_t find_weight_dir(const bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = bt_packed_dir(w->config->weight_cache, s->weight_dir,
                                       sizeof(s->weight_dir));

    if (status == BT_ERR_NOT_FOUND) {
        BT_LOG_WARN("packed weights are not kept: neither XDG_CACHE_HOME nor "
                    "HOME is set; use --weight-cache DIR");
        s->weight_dir[0] = '\0';
        return BT_OK;
    }
    if (status == BT_OK) {
        status = choose_weight_dir(s);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("weight-cache: the path is too long");
    }
    return status;
}

static bt_numerics_t numerics_of(const bt_worker_t *w)
{
    return (strcmp(w->config->numerics, "tensor") == 0) ? BT_NUMERICS_TENSOR
                                                        : BT_NUMERICS_EXACT;
}

/* Counts the memory of host and device, without the pool. */
static void count_memory(bt_worker_t *w, const bt_model_memory_t *memory)
{
    w->model_bytes = bt_model_memory_host(memory);
    if (memory->own_memory) {
        const size_t slots =
            (size_t)2 * BT_KVT_STAGE_SLOTS * BT_KVT_STAGE_SLOT_BYTES;

        w->model_bytes += slots;
        w->pinned_bytes = memory->pinned_bytes + slots;
        w->device_bytes = memory->device_bytes + memory->later_bytes;
    }
}

static bt_model_config_t model_config(const bt_worker_t *w, const bt_start_t *s)
{
    const bt_model_config_t config = {
        .max_rows =
            bt_engine_max_rows(w->max_seqs, bt_worker_most_chunk(w),
                               w->tokens_per_block, bt_worker_max_drafts(w)),
        .max_seqs = w->max_seqs,
        .max_logit_rows =
            bt_engine_max_logit_rows(w->max_seqs, bt_worker_max_drafts(w)),
        .context_tokens = w->context_tokens,
        .tokens_per_block = w->tokens_per_block,
        .n_other_groups = w->groups.n - 1,
        .weight_dir = s->weight_dir,
        .drops_packed = (w->weights.now.update != 0) &&
                        !bt_hash128_equal(w->weights.model, w->weights.base),
        .numerics = numerics_of(w),
        .n_threads = s->n_threads,
        .host_coll = bt_instance_ranks_collectives(&s->team),
        .n_stages = s->team.size / s->team.tp,
        .host_stage = bt_instance_ranks_stage(&s->team),
        .sum_parts = w->config->reduction_parts,
        .ep = w->config->ep,
        .expert_parts = w->config->moe_reduction_parts,
        .max_lora_rank = bt_adapters_max_rank(w->config),
    };

    return config;
}

/* Options that determine what each rank of an instance computes. MPI may start
 * the ranks with different ones. */
static const char *const shared_options[] = {"ep", "reduction-parts",
                                             "moe-reduction-parts"};

typedef struct rank_numbers {
    uint64_t model_bytes; /* of the host's memory */
    uint64_t pool_bytes;
    uint64_t available_bytes;
    uint32_t n_blocks;
    uint32_t options[BT_ARRAY_LEN(shared_options)];
} rank_numbers_t;

/* Checks that all ranks have the options of rank 0. */
static bt_status_t check_options(const rank_numbers_t *all, uint32_t n_ranks)
{
    for (uint32_t r = 1; r < n_ranks; r++) {
        for (size_t i = 0; i < BT_ARRAY_LEN(shared_options); i++) {
            if (all[r].options[i] != all[0].options[i]) {
                BT_LOG_ERROR("--%s is %u at rank 0 and %u at rank %u: ranks of "
                             "an instance are started with the same",
                             shared_options[i], all[0].options[i],
                             all[r].options[i], r);
                return BT_ERR_INVALID_PARAM;
            }
        }
    }
    return BT_OK;
}

/* Checks that the host's memory holds what all ranks take, where they are on
 * one host. Each was checked alone. */
static bt_status_t check_host(const rank_numbers_t *all, const bt_start_t *s)
{
    bt_memory_budget_t budget = {.available_bytes = UINT64_MAX,
                                 .limit_bytes = s->memory_limit.most,
                                 .limit_by = s->memory_limit.by};
    uint64_t pool = 0;
    char why[WHY_BYTES];
    bt_status_t status;

    if (s->team.shm == NULL) {
        return BT_OK;
    }
    for (uint32_t r = 0; r < s->team.size; r++) {
        budget.model_bytes += all[r].model_bytes;
        pool += all[r].pool_bytes;
        if (all[r].available_bytes < budget.available_bytes) {
            budget.available_bytes = all[r].available_bytes;
        }
    }
    status = bt_memory_check(&budget, pool, why, sizeof(why));
    if (status != BT_OK) {
        BT_LOG_ERROR("%u ranks on this host: %s", s->team.size, why);
    }
    return status;
}

/* Agrees on the smallest number of blocks of any rank, since block ids are
 * equal at all; on options; and on the instance of the ranks. */
static bt_status_t agree(bt_worker_t *w, const bt_start_t *s)
{
    const bt_collectives_t *const coll =
        bt_instance_ranks_collectives(&s->team);
    const rank_numbers_t own = {
        .model_bytes = w->model_bytes,
        .pool_bytes = s->memory.own_memory ? 0 : s->pool_bytes,
        .available_bytes = s->memory_limit.left + s->held_bytes,
        .n_blocks = w->n_blocks,
        .options = {w->config->ep, w->config->reduction_parts,
                    w->config->moe_reduction_parts}};
    rank_numbers_t all[BT_TEAM_MAX];
    uint64_t instance = w->instance;
    bt_status_t status;

    if (coll == NULL) {
        return BT_OK;
    }
    status = coll->all_gather(coll->ctx, &own, all, sizeof(own));
    if (status == BT_OK) {
        status = coll->broadcast(coll->ctx, &instance, sizeof(instance), 0);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("the ranks cannot connect: %s", bt_status_str(status));
        return status;
    }
    status = check_options(all, s->team.size);
    if (status == BT_OK) {
        status = check_host(all, s);
    }
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t r = 0; r < s->team.size; r++) {
        w->n_blocks =
            (all[r].n_blocks < w->n_blocks) ? all[r].n_blocks : w->n_blocks;
    }
    w->instance = bt_rank_transfer_instance(instance, s->team.rank);
    return BT_OK;
}

bt_status_t bt_start_memory_look(bt_worker_t *w, bt_start_t *s)
{
    bt_model_config_t config;
    bt_model_memory_t memory;
    bt_memory_budget_t budget;
    bt_limit_t *const limit = &s->memory_limit;
    char why[WHY_BYTES] = "";
    uint64_t adapters;
    uint64_t pool;
    bt_status_t status = find_weight_dir(w, s);

    if (status != BT_OK) {
        return status;
    }
    config = model_config(w, s);
    status = bt_model_memory(s->gguf, w->config->backend, &config, why,
                             sizeof(why), &memory);
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", w->config->model, why);
        return status;
    }
    status = bt_start_draft_memory(w, s, &config, &memory);
    if (status != BT_OK) {
        return status;
    }
    adapters = bt_adapters_estimate(w->config, s->gguf);
    memory.device_bytes += memory.own_memory ? (size_t)adapters : 0;
    s->memory = memory;
    count_memory(w, &memory);
    w->model_bytes += adapters; /* while they are read, at least */
    bt_limits_memory("", limit);
    budget = (bt_memory_budget_t){
        .available_bytes = limit->left + s->held_bytes,
        .limit_bytes = limit->most,
        .limit_by = limit->by,
        .model_bytes = w->model_bytes,
        .own_memory = memory.own_memory,
        .device_available_bytes =
            memory.device_left_bytes + s->held_device_bytes,
        .device_model_bytes = memory.device_bytes,
        .device_later_bytes = memory.later_bytes,
        .percent = w->config->kv_free_percent,
    };
    pool = (w->config->kv_memory_bytes != 0) ? w->config->kv_memory_bytes
                                             : bt_memory_pool(&budget);
    pool /= s->team.size; /* each rank has its heads' and layers' part */
    bt_start_draft_divide(w, s, pool);
    if ((w->config->kv_tokens > 0) &&
        (w->n_blocks / w->groups.n >
         w->config->kv_tokens / w->tokens_per_block)) {
        const uint32_t n = w->config->kv_tokens / w->tokens_per_block;

        w->n_blocks = n * w->groups.n;
        s->draft.cache.n_blocks =
            (s->draft.cache.n_blocks < n) ? s->draft.cache.n_blocks : n;
        pool = (uint64_t)w->n_blocks * w->block_bytes +
               (uint64_t)s->draft.cache.n_blocks * s->draft.block_bytes;
    }
    if (w->n_blocks < 2 * w->groups.n) {
        BT_LOG_ERROR(
            "kv-memory of %" PRIu64 " bytes (or kv-tokens) holds %u KV "
            "blocks of %zu bytes%s; at least %u are needed",
            pool, w->n_blocks, w->block_bytes,
            s->draft.has_cache ? " beside those of the draft model" : "",
            2 * w->groups.n);
        return BT_ERR_INVALID_PARAM;
    }
    s->pool_bytes = pool;
    status = bt_memory_check(&budget, pool, why, sizeof(why));
    if (status != BT_OK) {
        BT_LOG_ERROR("%s", why);
    }
    return status;
}

bt_status_t bt_start_memory_plan(bt_worker_t *w, bt_start_t *s)
{
    const bt_model_memory_t *const memory = &s->memory;
    const bt_status_t status = bt_start_memory_look(w, s);

    if (status != BT_OK) {
        return status;
    }
    if (s->memory_limit.by[0] != '\0') {
        BT_LOG_INFO("memory: the cgroup has %" PRIu64 " MiB and leaves %" PRIu64
                    " (%s)",
                    (s->memory_limit.most >> 20), (s->memory_limit.left >> 20),
                    s->memory_limit.by);
    }
    if (memory->own_memory) {
        BT_LOG_INFO(
            "device memory: %" PRIu64 " MiB are free; the model takes %zu MiB, "
            "of them %zu MiB of scratch, the KV pool %" PRIu64 " MiB, %zu MiB "
            "stay for libraries and graphs",
            (memory->device_left_bytes >> 20), memory->device_bytes >> 20,
            memory->scratch_bytes >> 20, (s->pool_bytes >> 20),
            memory->later_bytes >> 20);
    }
    return agree(w, s);
}

bt_kv_view_t bt_start_kv_view(const bt_worker_t *w, const bt_start_t *s)
{
    return (bt_kv_view_t){
        .base = w->kv_base,
        .block_bytes = w->block_bytes,
        .type = s->kv_type,
        .n_layers = w->own_groups.n_layers,
        .n_kv_heads = w->own_groups.group[0].shape.n_kv_heads,
        .head_dim = s->hp.head_dim,
        .tokens_per_block = w->tokens_per_block,
    };
}

/* Checks that the back end can read blocks of this shape, where they lie as far
 * as that is known. */
static bt_status_t check_kv(const bt_worker_t *w, const bt_start_t *s)
{
    const bt_kv_view_t kv = bt_start_kv_view(w, s);
    char why[WHY_BYTES] = "";
    const bt_status_t status =
        bt_kernels_check_kv(w->backend->caps, &kv, why, sizeof(why));

    if (status != BT_OK) {
        BT_LOG_ERROR("%s", why);
    }
    return status;
}

bt_status_t bt_start_model_load(bt_worker_t *w, const bt_start_t *s)
{
    const bt_model_config_t config = model_config(w, s);
    char why[WHY_BYTES] = "";
    const bt_backend_config_t be_config = {
        .n_threads = s->n_threads,
        .cores = (s->n_cores > 0) ? s->cores : NULL,
        .lent_cores = s->lent_cores,
        .n_lent = s->n_lent,
        .max_rows = (config.max_rows > bt_start_draft_rows(w, s))
                        ? config.max_rows
                        : bt_start_draft_rows(w, s),
        .numerics = numerics_of(w),
        .why = why,
        .why_bytes = sizeof(why),
    };
    bt_status_t status;

    status = bt_backend_open(w->config->backend, &be_config, &w->backend);
    if (status != BT_OK) {
        BT_LOG_ERROR("back end %s: %s", w->config->backend,
                     (why[0] != '\0') ? why : bt_status_str(status));
        return status;
    }
    status = check_kv(w, s);
    if (status != BT_OK) {
        return status;
    }
    w->kv_layout = bt_kv_groups_identity(&w->groups, s->kv_type,
                                         w->backend->caps->kv_layout);
    status = bt_model_load(s->gguf, w->backend, &config, why, sizeof(why),
                           &w->model);
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", w->config->model, why);
        return status;
    }
    status = bt_adapters_open(w, s);
    return (status == BT_OK) ? bt_start_draft_load(w, s, &config) : status;
}

static bt_sched_overlap_mode_t overlap_mode_of(const char *mode)
{
    return (strcmp(mode, "on") == 0)    ? BT_SCHED_OVERLAP_ON
           : (strcmp(mode, "off") == 0) ? BT_SCHED_OVERLAP_OFF
                                        : BT_SCHED_OVERLAP_AUTO;
}

static bt_status_t open_corpus(bt_worker_t *w)
{
    const uint64_t bytes = w->config->draft_corpus_bytes;
    const uint64_t least = 4096; /* of bt_ngram_corpus_create() */

    return ((bytes == 0) || (bt_worker_max_drafts(w) == 0))
               ? BT_OK
               : bt_ngram_corpus_create((bytes < least) ? least : bytes,
                                        &w->corpus);
}

bt_status_t bt_start_engine_open(bt_worker_t *w, const bt_start_t *s)
{
    bt_engine_config_t config = {
        .model = w->model,
        .kv = bt_start_kv_view(w, s),
        .groups = &w->own_groups,
        .max_seqs = w->max_seqs,
        .token_budget = bt_worker_most_chunk(w),
        .max_drafts = bt_worker_max_drafts(w),
        .fixed_drafts = w->config->draft_tokens,
        .tunes_chunks = w->config->chunk_tokens == 0,
        .itl_us = w->config->itl_budget_ms * 1000,
        .order = w->order,
        .want_cores = (w->board != NULL) ? bt_core_demand_want : NULL,
        .cores_wanted = (w->board != NULL) ? bt_core_demand_wanted : NULL,
        .cores_ctx = w->board,
        .own_cores = s->n_cores > 0,
        /* A static batch starts as one; no sequence joins later. */
        .late_join = (strcmp(w->config->midstep_join, "on") == 0) &&
                     !bt_worker_has_static_batches(w->config),
        .overlap = overlap_mode_of(w->config->overlap_scheduling),
        .min_latency = {.pass_us = w->config->simulate_step_us,
                        .row_us = w->config->simulate_token_us},
    };
    char why[WHY_BYTES] = "";
    bt_status_t status = check_kv(w, s);

    if (status == BT_OK) {
        status =
            bt_model_check_groups(w->model, &w->own_groups, why, sizeof(why));
        if (status != BT_OK) {
            BT_LOG_ERROR("model %s: %s", w->config->model, why);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_start_drafter_open(w, s, &config.batch_drafter);
    if (status != BT_OK) {
        return status;
    }
    status = open_corpus(w);
    if (status == BT_OK) {
        status = bt_engine_create(&config, &w->engine);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot start the compute thread: %s",
                     bt_status_str(status));
    }
    return status;
}
