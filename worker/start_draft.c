/* SPDX-License-Identifier: Apache-2.0 */
/* Draft model of a worker: which weights it has, the memory they take, and the
 * drafter with them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/kv/kv_groups.h"
#include "inference/draft/model_drafter.h"
#include "inference/hf/hf.h"
#include "inference/quantize/quantize.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define WHY_BYTES 2048
/* A copy that is not smaller than this part drafts no faster than the model. */
#define MOST_PERCENT 65u

/* The first that is small enough: of 16-bit weights, of 8-bit weights. */
static const char *const default_types[] = {"q5_1", "q4_0"};

static const char *draft_option(const bt_worker_t *w)
{
    return (w->config->draft_model[0] != '\0') ? "--draft-model"
                                               : "--draft self";
}

static bool has_draft_model(const bt_worker_t *w)
{
    return (w->config->draft_model[0] != '\0') ||
           (strncmp(w->config->draft, "self", 4) == 0);
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

static bt_status_t open_file(const bt_worker_t *w, bt_start_t *s)
{
    const char *const path = w->config->draft_model;
    char why[WHY_BYTES] = "";
    bt_status_t status =
        bt_modelfile_open(path, why, sizeof(why), &s->draft.gguf);

    if (status == BT_OK) {
        status =
            bt_model_drafter_check(s->gguf, s->draft.gguf, why, sizeof(why));
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("--draft-model %s: %s", path, why);
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
    return (w->config->draft_model[0] != '\0') ? open_file(w, s)
                                               : open_self(w, s);
}

void bt_start_draft_close(bt_start_t *s)
{
    bt_gguf_close(s->draft.gguf);
    s->draft.gguf = NULL;
}

static uint32_t max_seqs(const bt_worker_t *w)
{
    const uint32_t max_drafts = bt_worker_max_drafts(w);

    return (w->max_seqs < max_drafts) ? w->max_seqs : max_drafts;
}

static bt_model_config_t config_of(const bt_worker_t *w,
                                   const bt_model_config_t *target)
{
    bt_model_config_t config = *target;

    config.max_rows = config.max_seqs = config.max_logit_rows = max_seqs(w);
    config.on_weight = NULL;
    config.sum_parts = 0;
    config.target = w->model;
    return config;
}

bt_status_t bt_start_draft_memory(const bt_worker_t *w, const bt_start_t *s,
                                  const bt_model_config_t *target,
                                  bt_model_memory_t *memory)
{
    const bt_model_config_t config = config_of(w, target);
    bt_model_memory_t own;
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (s->draft.gguf == NULL) {
        return BT_OK;
    }
    if (memory->own_memory) {
        BT_LOG_ERROR("%s: the back end %s has memory of its own, and there is "
                     "no draft model in it; use --draft ngram",
                     draft_option(w), w->config->backend);
        return BT_ERR_UNSUPPORTED;
    }
    status = bt_model_memory(s->draft.gguf, w->config->backend, &config, why,
                             sizeof(why), &own);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), why);
        return status;
    }
    own.load_bytes += s->draft.scratch_bytes;
    memory->weight_bytes += own.weight_bytes;
    memory->private_bytes += own.private_bytes;
    memory->load_bytes = (own.load_bytes > memory->load_bytes)
                             ? own.load_bytes
                             : memory->load_bytes;
    return BT_OK;
}

bt_status_t bt_start_draft_load(bt_worker_t *w, const bt_start_t *s,
                                const bt_model_config_t *target)
{
    const bt_model_config_t config = config_of(w, target);
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (s->draft.gguf == NULL) {
        return BT_OK;
    }
    status = bt_model_load(s->draft.gguf, w->backend, &config, why, sizeof(why),
                           &w->draft_model);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s: %s", draft_option(w), why);
        return status;
    }
    BT_LOG_INFO("draft model: %s%s, %zu MiB",
                (s->draft.type != NULL) ? "the model itself as "
                                        : w->config->draft_model,
                (s->draft.type != NULL) ? s->draft.type : "",
                tensor_bytes(s->draft.gguf) >> 20);
    return BT_OK;
}

bt_status_t bt_start_drafter_open(bt_worker_t *w, const bt_start_t *s,
                                  bt_batch_drafter_t *hook_p)
{
    const bt_model_drafter_config_t config = {.model = w->draft_model,
                                              .kv = bt_start_kv_view(w, s),
                                              .groups = &w->own_groups,
                                              .max_seqs = max_seqs(w)};
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (w->draft_model == NULL) {
        return BT_OK;
    }
    status =
        bt_model_check_groups(w->draft_model, &w->own_groups, why, sizeof(why));
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
