/* SPDX-License-Identifier: Apache-2.0 */
/* Draft model of a worker: which weights it has, the memory they take, and the
 * drafter with them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/kv/kv_groups.h"
#include "inference/draft/head_drafter.h"
#include "inference/draft/model_drafter.h"
#include "inference/hf/hf.h"
#include "inference/quantize/quantize.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define WHY_BYTES 2048
/* A copy that is not smaller than this part drafts no faster than the model. */
#define MOST_PERCENT 65u
#define MOST_BLOCKS  1000000u

/* The first that is small enough: of 16-bit weights, of 8-bit weights. */
static const char *const default_types[] = {"q5_1", "q4_0"};

static const char *draft_option(const bt_worker_t *w)
{
    return (w->config->draft_model[0] != '\0')      ? "--draft-model"
           : (strcmp(w->config->draft, "mtp") == 0) ? "--draft mtp"
                                                    : "--draft self";
}

static bool has_draft_model(const bt_worker_t *w)
{
    return (w->config->draft_model[0] != '\0') ||
           (strncmp(w->config->draft, "self", 4) == 0) ||
           (strcmp(w->config->draft, "mtp") == 0);
}

/* What is computed before the model drafts must be there again when a draft was
 * wrong: K and V are, by their position; a state is not. */
static bt_status_t check_kinds(const bt_worker_t *w, const bt_start_t *s)
{
    if (s->team.size > s->team.tp) {
        BT_LOG_ERROR("%s: a model in %u pipeline stages has no draft model; "
                     "use --draft ngram",
                     draft_option(w), s->team.size / s->team.tp);
        return BT_ERR_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < w->groups.n; i++) {
        if (w->groups.group[i].kind == BT_KV_STATE) {
            BT_LOG_ERROR("%s: the recurrent state of model %s cannot be "
                         "returned to what it was before wrong drafts; use "
                         "--draft ngram",
                         draft_option(w), w->config->model);
            return BT_ERR_UNSUPPORTED;
        }
    }
    return BT_OK;
}

static size_t tensor_bytes(const bt_gguf_t *gguf)
{
    size_t bytes = 0;

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        bytes += bt_gguf_tensor_at(gguf, i)->bytes;
    }
    return bytes;
}

/* Opens the model's own file with weights of a type.
 * @return BT_ERR_INVALID_PARAM  they are not smaller */
static bt_status_t open_as(bt_start_t *s, const char *type, char *why,
                           size_t why_bytes)
{
    const size_t bytes = tensor_bytes(s->gguf);
    bt_quantize_size_t size;
    bt_status_t status =
        bt_requantize_open(s->gguf, bt_quantize_mix_find(type), s->n_threads,
                           &size, why, why_bytes, &s->draft.gguf);

    if (status != BT_OK) {
        return status;
    }
    s->draft.type = type;
    s->draft.scratch_bytes = size.scratch_bytes;
    if (size.bytes > bytes / 100 * MOST_PERCENT) {
        snprintf(why, why_bytes,
                 "its weights take %zu MiB, of type %s they would take %zu "
                 "MiB, which drafts no faster; use a smaller type, or --draft "
                 "ngram",
                 bytes >> 20, type, size.bytes >> 20);
        bt_start_draft_close(s);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

static bt_status_t open_self(const bt_worker_t *w, bt_start_t *s)
{
    const char *const colon = strchr(w->config->draft, ':');
    const char *const type = (colon != NULL) ? colon + 1 : "";
    const bt_quantize_mix_t *const mix = bt_quantize_mix_find(type);
    char why[WHY_BYTES] = "";
    bt_status_t status = BT_ERR_INVALID_PARAM;

    if ((colon != NULL) && ((mix == NULL) || !bt_quantize_mix_weighs(mix))) {
        BT_LOG_ERROR("--draft self:%s: there is no such type of smaller "
                     "weights; docs/CONVERT.md lists them, q8_0 and below",
                     type);
        return BT_ERR_INVALID_PARAM;
    }
    if (colon != NULL) {
        status = open_as(s, type, why, sizeof(why));
    }
    for (size_t i = 0; (colon == NULL) && (i < BT_ARRAY_LEN(default_types)) &&
                       (status == BT_ERR_INVALID_PARAM);
         i++) {
        status = open_as(s, default_types[i], why, sizeof(why));
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("--draft %s: model %s: %s", w->config->draft,
                     w->config->model, why);
    }
    return status;
}

static uint32_t max_seqs(const bt_worker_t *w)
{
    const uint32_t max_drafts = bt_worker_max_drafts(w);

    return (w->max_seqs < max_drafts) ? w->max_seqs : max_drafts;
}

/* Lays out the KV cache of a draft model that cannot use that of the model. */
static bt_status_t lay_out_cache(const bt_worker_t *w, bt_start_t *s, char *why,
                                 size_t why_bytes)
{
    const bt_kv_type_info_t *const type = bt_kv_type_info(s->kv_type);
    const bool is_head = s->draft.head != BT_HEAD_NONE;
    bt_hparams_t *const hp = &s->draft.hp;
    bt_status_t status =
        is_head ? bt_head_hparams_read(s->draft.gguf, s->draft.head, &s->hp,
                                       why, why_bytes, hp)
                : bt_hparams_read(s->draft.gguf, why, why_bytes, hp);

    if (status != BT_OK) {
        return status;
    }
    if (is_head) { /* it counts positions from where it begins */
        hp->context_tokens = w->context_tokens;
    }
    s->draft.cache = (bt_draft_cache_config_t){
        .shape = {.n_layers = hp->n_layers,
                  .n_kv_heads = hp->n_kv_heads,
                  .tokens_per_block = w->tokens_per_block,
                  .head_dim = hp->head_dim,
                  .elem_bytes = type->elem_bytes,
                  .scale_bytes = type->scale_bytes},
        .type = s->kv_type,
        .n_slots = max_seqs(w),
        .context_tokens = (hp->context_tokens < w->context_tokens)
                              ? hp->context_tokens
                              : w->context_tokens,
    };
    s->draft.has_cache = true;
    status = bt_kv_block_bytes(&s->draft.cache.shape, &s->draft.block_bytes);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "cannot lay out its KV blocks: %s",
                 bt_status_str(status));
    }
    return status;
}

/* A head reads hidden states, which one rank has, in one part. */
static bt_status_t open_head(const bt_worker_t *w, bt_start_t *s,
                             bt_head_kind_t kind, char *why, size_t why_bytes)
{
    s->draft.head = kind;
    if (s->team.size > 1) {
        snprintf(why, why_bytes,
                 "a model over %u ranks has no draft head; use --draft ngram",
                 s->team.size);
        return BT_ERR_UNSUPPORTED;
    }
    if (w->config->reduction_parts > 1) {
        snprintf(why, why_bytes,
                 "with --reduction-parts %u there is no draft head; use "
                 "--draft ngram, or one part for all workers",
                 w->config->reduction_parts);
        return BT_ERR_UNSUPPORTED;
    }
    return lay_out_cache(w, s, why, why_bytes);
}

/* Opens the layer of multi-token prediction in the model's own file. */
static bt_status_t open_mtp(const bt_worker_t *w, bt_start_t *s)
{
    char why[WHY_BYTES] = "";
    bt_status_t status;

    s->draft.gguf = s->gguf;
    status = open_head(w, s, BT_HEAD_NEXTN, why, sizeof(why));
    if (status != BT_OK) {
        BT_LOG_ERROR("--draft mtp: model %s: %s", w->config->model, why);
        bt_start_draft_close(s);
    }
    return status;
}

static bool is_eagle3(const bt_gguf_t *gguf)
{
    bt_gguf_str_t arch;

    return (bt_gguf_get_str(gguf, "general.architecture", &arch) == BT_OK) &&
           bt_gguf_str_is(arch, "eagle3");
}

/* Files of heads may list the tokens of their target. */
static bt_status_t open_eagle3(const bt_worker_t *w, bt_start_t *s, char *why,
                               size_t why_bytes)
{
    const bt_status_t status =
        bt_gguf_has(s->draft.gguf, "tokenizer.ggml.tokens")
            ? bt_draft_check_tokens(s->gguf, s->draft.gguf, s->hp.n_vocab, why,
                                    why_bytes)
            : BT_OK;

    return (status == BT_OK) ? open_head(w, s, BT_HEAD_EAGLE3, why, why_bytes)
                             : status;
}

static bt_status_t open_file(const bt_worker_t *w, bt_start_t *s)
{
    const char *const path = w->config->draft_model;
    char why[WHY_BYTES] = "";
    bool shares_kv = true;
    bt_status_t status =
        bt_modelfile_open(path, why, sizeof(why), &s->draft.gguf);

    if ((status == BT_OK) && is_eagle3(s->draft.gguf)) {
        status = open_eagle3(w, s, why, sizeof(why));
    } else if (status == BT_OK) {
        status =
            bt_model_drafter_check(s->gguf, s->draft.gguf, w->context_tokens,
                                   &shares_kv, why, sizeof(why));
    }
    if ((status == BT_OK) && !shares_kv && (s->team.size > 1)) {
        snprintf(
            why, sizeof(why),
            "its shape differs from the model's, or its context is shorter: it "
            "needs a KV cache of its own, which a model over %u ranks does not "
            "support",
            s->team.size);
        status = BT_ERR_UNSUPPORTED;
    }
    if ((status == BT_OK) && !shares_kv) {
        status = lay_out_cache(w, s, why, sizeof(why));
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("--draft-model %s: %s", path, why);
        bt_start_draft_close(s);
    }
    return (status == BT_ERR_MISMATCH) ? BT_ERR_UNSUPPORTED : status;
}

bt_status_t bt_start_draft_open(const bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status;

    if (!has_draft_model(w)) {
        return BT_OK;
    }
    status = check_kinds(w, s);
    if (status != BT_OK) {
        return status;
    }
    return (w->config->draft_model[0] != '\0')      ? open_file(w, s)
           : (strcmp(w->config->draft, "mtp") == 0) ? open_mtp(w, s)
                                                    : open_self(w, s);
}

void bt_start_draft_close(bt_start_t *s)
{
    if (s->draft.gguf != s->gguf) {
        bt_gguf_close(s->draft.gguf);
    }
    s->draft.gguf = NULL;
}

uint32_t bt_start_draft_rows(const bt_worker_t *w, const bt_start_t *s)
{
    return (s->draft.gguf == NULL) ? 0
           : (s->draft.head != BT_HEAD_NONE)
               ? bt_head_drafter_max_rows(max_seqs(w))
               : bt_model_drafter_max_rows(max_seqs(w), s->draft.has_cache);
}

/* True when the draft model has experts too. */
static bool has_experts(const bt_start_t *s)
{
    char why[WHY_BYTES];
    bt_hparams_t hp;

    return (s->draft.gguf != NULL) && (s->draft.head == BT_HEAD_NONE) &&
           (bt_hparams_read(s->draft.gguf, why, sizeof(why), &hp) == BT_OK) &&
           (hp.experts.n > 0);
}

static bt_model_config_t config_of(const bt_worker_t *w, const bt_start_t *s,
                                   const bt_model_config_t *target)
{
    bt_model_config_t config = *target;

    config.head = (bt_head_target_t){s->draft.head, &s->hp};
    config.max_seqs = config.max_logit_rows = max_seqs(w);
    config.max_rows = bt_start_draft_rows(w, s);
    if (s->draft.has_cache) {
        config.context_tokens = s->draft.cache.context_tokens;
        config.n_other_groups = 0;
    }
    config.on_weight = NULL;
    config.sum_parts = config.expert_parts = 0;
    if ((config.ep > 1) && !has_experts(s)) {
        config.ep = 1;
    }
    config.target = w->model;
    return config;
}

/* Adds tables and tokens of the slots. The blocks are of the memory for KV. */
static bt_status_t add_cache(const bt_start_t *s, bt_model_memory_t *own)
{
    bt_draft_cache_config_t cache = s->draft.cache;
    bt_status_t status;
    size_t bytes;

    if (!s->draft.has_cache) {
        return BT_OK;
    }
    cache.n_blocks = 1;
    status = bt_draft_cache_bytes(&cache, &bytes);
    if (status == BT_OK) {
        own->private_bytes += bytes - s->draft.block_bytes;
    }
    return status;
}

/* Returns the memory of hidden states that a head reads, of an iteration and
 * kept. */
static size_t hidden_bytes(const bt_worker_t *w, const bt_start_t *s,
                           const bt_model_config_t *target)
{
    return (s->draft.head == BT_HEAD_NONE)
               ? 0
               : bt_head_drafter_bytes(&s->draft.hp, max_seqs(w)) +
                     (size_t)target->max_logit_rows *
                         bt_head_width(&s->draft.hp.head) * sizeof(float);
}

bt_status_t bt_start_draft_memory(const bt_worker_t *w, const bt_start_t *s,
                                  const bt_model_config_t *target,
                                  bt_model_memory_t *memory)
{
    const bt_model_config_t config = config_of(w, s, target);
    bt_model_memory_t own;
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (s->draft.gguf == NULL) {
        return BT_OK;
    }
    if (memory->own_memory && (s->draft.head != BT_HEAD_NONE)) {
        BT_LOG_ERROR(
            "%s: a draft head reads hidden states of the CPU's memory, "
            "and the back end %s has memory of its own; use --draft "
            "self",
            draft_option(w), w->config->backend);
        return BT_ERR_UNSUPPORTED;
    }
    if (memory->own_memory && s->draft.has_cache) {
        BT_LOG_ERROR("%s: on the back end %s a draft model has the model's "
                     "shape and context, and this one has others; use --draft "
                     "self",
                     draft_option(w), w->config->backend);
        return BT_ERR_UNSUPPORTED;
    }
    status = bt_model_memory(s->draft.gguf, w->config->backend, &config, why,
                             sizeof(why), &own);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), why);
        return status;
    }
    status = add_cache(s, &own);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: cannot lay out its KV cache: %s", draft_option(w),
                     bt_status_str(status));
        return status;
    }
    own.private_bytes += hidden_bytes(w, s, target);
    own.load_bytes += s->draft.scratch_bytes;
    memory->weight_bytes += own.weight_bytes;
    memory->private_bytes += own.private_bytes;
    memory->pinned_bytes += own.pinned_bytes;
    /* The workspace of operations is one for both models. */
    memory->device_bytes += own.device_bytes - own.scratch_bytes;
    /* Each model has a communicator of its own among the ranks. */
    memory->later_bytes += (s->team.size > 1) ? own.later_bytes : 0;
    memory->load_bytes = (own.load_bytes > memory->load_bytes)
                             ? own.load_bytes
                             : memory->load_bytes;
    return BT_OK;
}

void bt_start_draft_divide(bt_worker_t *w, bt_start_t *s, uint64_t pool_bytes)
{
    const uint64_t span_bytes = (uint64_t)w->groups.n * w->block_bytes;
    bt_draft_cache_config_t *const cache = &s->draft.cache;
    uint64_t left = pool_bytes;

    if (s->draft.has_cache) {
        const uint64_t n_spans =
            pool_bytes / (span_bytes + s->draft.block_bytes);
        const uint64_t most =
            (uint64_t)cache->n_slots *
            bt_kv_blocks_for(cache->context_tokens, w->tokens_per_block);

        cache->n_blocks = (uint32_t)((n_spans < most) ? n_spans : most);
        cache->n_blocks =
            (cache->n_blocks < MOST_BLOCKS) ? cache->n_blocks : MOST_BLOCKS;
        left -= cache->n_blocks * (uint64_t)s->draft.block_bytes;
    }
    left /= w->block_bytes;
    w->n_blocks = (uint32_t)((left < MOST_BLOCKS) ? left : MOST_BLOCKS);
    if (s->draft.has_cache && (cache->n_blocks == 0)) {
        w->n_blocks = 0;
    }
}

static bt_status_t check_cache(const bt_worker_t *w, const bt_start_t *s,
                               char *why, size_t why_bytes)
{
    const bt_kv_shape_t *const shape = &s->draft.cache.shape;
    const bt_kv_view_t kv = {.block_bytes = s->draft.block_bytes,
                             .type = s->draft.cache.type,
                             .n_layers = shape->n_layers,
                             .n_kv_heads = shape->n_kv_heads,
                             .head_dim = shape->head_dim,
                             .tokens_per_block = shape->tokens_per_block};

    return s->draft.has_cache
               ? bt_kernels_check_kv(w->backend->caps, &kv, why, why_bytes)
               : BT_OK;
}

static void log_draft_model(const bt_worker_t *w, const bt_start_t *s)
{
    const bt_draft_cache_config_t *const cache = &s->draft.cache;

    if (s->draft.head == BT_HEAD_NEXTN) {
        BT_LOG_INFO("draft head: layer %u of the model%s", s->hp.n_layers,
                    (s->hp.n_nextn > 1) ? ", the first of several" : "");
    } else {
        BT_LOG_INFO("draft %s: %s%s, %zu MiB",
                    (s->draft.head == BT_HEAD_NONE) ? "model" : "head",
                    (s->draft.type != NULL) ? "the model itself as "
                                            : w->config->draft_model,
                    (s->draft.type != NULL) ? s->draft.type : "",
                    tensor_bytes(s->draft.gguf) >> 20);
    }
    if (s->draft.has_cache) {
        BT_LOG_INFO("draft model: a KV cache of its own, %u blocks of %u "
                    "tokens (%zu MiB)",
                    cache->n_blocks, w->tokens_per_block,
                    ((size_t)cache->n_blocks * s->draft.block_bytes) >> 20);
    }
    if (s->draft.has_cache && (cache->context_tokens < w->context_tokens)) {
        BT_LOG_INFO("draft model: its context is %u tokens, those behind have "
                    "no drafts by it",
                    cache->context_tokens);
    }
}

bt_status_t bt_start_draft_load(bt_worker_t *w, const bt_start_t *s,
                                const bt_model_config_t *target)
{
    const bt_model_config_t config = config_of(w, s, target);
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (s->draft.gguf == NULL) {
        return BT_OK;
    }
    status = check_cache(w, s, why, sizeof(why));
    if (status == BT_OK) {
        status = bt_model_load(s->draft.gguf, w->backend, &config, why,
                               sizeof(why), &w->draft_model);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), why);
        return status;
    }
    log_draft_model(w, s);
    return BT_OK;
}

static bt_status_t open_head_drafter(bt_worker_t *w, const bt_start_t *s,
                                     bt_batch_drafter_t *hook_p)
{
    const bt_head_drafter_config_t config = {
        .model = w->draft_model,
        .n_vocab = s->hp.n_vocab,
        .max_seqs = max_seqs(w),
        .read_share = (float)s->draft.block_bytes / (float)w->block_bytes,
        .cache = &s->draft.cache};
    const bt_status_t status =
        bt_head_drafter_create(&config, &w->head_drafter);

    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), bt_status_str(status));
        return status;
    }
    *hook_p = bt_head_drafter_hook(w->head_drafter);
    return BT_OK;
}

bt_status_t bt_start_drafter_open(bt_worker_t *w, const bt_start_t *s,
                                  bt_batch_drafter_t *hook_p)
{
    const bt_model_drafter_config_t config = {
        .model = w->draft_model,
        .kv = bt_start_kv_view(w, s),
        .groups = &w->own_groups,
        .max_seqs = max_seqs(w),
        .cache = s->draft.has_cache ? &s->draft.cache : NULL};
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (w->draft_model == NULL) {
        return BT_OK;
    }
    if (s->draft.has_cache) {
        w->draft_kv_bytes =
            s->draft.cache.n_blocks * (uint64_t)s->draft.block_bytes;
    }
    if (s->draft.head != BT_HEAD_NONE) {
        return open_head_drafter(w, s, hook_p);
    }
    status = s->draft.has_cache
                 ? BT_OK
                 : bt_model_check_groups(w->draft_model, &w->own_groups, why,
                                         sizeof(why));
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), why);
        return status;
    }
    status = bt_model_drafter_create(&config, &w->drafter);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), bt_status_str(status));
        return status;
    }
    *hook_p = bt_model_drafter_hook(w->drafter);
    return BT_OK;
}
