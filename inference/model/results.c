/* SPDX-License-Identifier: Apache-2.0 */
/* What a forward call is for: logits in the host's memory, or the ids of the
 * best of them alone. */
#include "common/base/alloc.h"
#include "inference/model/model_priv.h"
#include "inference/model/ranks.h"
#include "inference/model/sampler.h"
#include "kernels/batch.h"

/* Host memory beside the back end's; counted, and when not dry taken. */
static bt_status_t host_memory(bt_loader_t *loader, size_t n, size_t size,
                               void **ptr_p)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(loader->host_bytes, bytes,
                               &loader->host_bytes)) {
        return bt_loader_fail(loader, BT_ERR_INVALID_PARAM,
                              "%u rows of logits are too many",
                              loader->config->max_logit_rows);
    }
    if (loader->dry) {
        return BT_OK;
    }
    *ptr_p = bt_calloc_aligned(n, size);
    if (*ptr_p == NULL) {
        return bt_loader_fail(loader, BT_ERR_NO_MEMORY,
                              "out of memory for the logits of %u rows",
                              loader->config->max_logit_rows);
    }
    return BT_OK;
}

/* The most that a call of this configuration brings. */
static bt_status_t reserve_batch(bt_loader_t *loader)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    const bt_model_config_t *const c = loader->config;
    const uint32_t n_seqs = (c->max_seqs != 0) ? c->max_seqs : c->max_rows;
    const uint32_t t = (c->tokens_per_block != 0)
                           ? c->tokens_per_block
                           : loader->be->caps->kv_block_tokens;
    const bt_batch_limits_t limits = {
        .max_rows = c->max_rows,
        .max_seqs = n_seqs,
        .max_logit_rows = c->max_logit_rows,
        .max_blocks = (size_t)n_seqs *
                      (((size_t)c->context_tokens + t - 1) / t) *
                      (1 + (size_t)c->n_other_groups),
        .max_other_groups = c->n_other_groups,
    };
    bt_status_t status;

    if (ops->batch_reserve == NULL) {
        return BT_OK;
    }
    loader->bytes += bt_batch_max_words(&limits) * sizeof(uint32_t);
    loader->host_bytes += bt_batch_max_words(&limits) * sizeof(uint32_t);
    if (loader->dry) {
        return BT_OK;
    }
    status = ops->batch_reserve(loader->be, &limits);
    if (status != BT_OK) {
        return bt_loader_fail(loader, status,
                              "no memory for the tables of batches of %u rows",
                              c->max_rows);
    }
    return BT_OK;
}

/* Where the back end's memory is the host's, or the model is not shared, what a
 * row becomes is in it; what ranks gather is in the host's alone. */
static bt_status_t take_own(bt_loader_t *loader, float **logits_p,
                            float **own_logits_p, float **ids_p)
{
    const size_t rows = loader->config->max_logit_rows;
    const bt_shard_t *const shard = &loader->shard;
    const bool is_shared = loader->config->host_coll != NULL;
    const bool on_device = bt_backend_owns_memory(loader->be);
    bt_status_t status = BT_OK;

    if (bt_shard_is_first(shard) && !(on_device && is_shared)) {
        status = bt_loader_buffer(loader, rows, loader->hp->n_vocab, logits_p);
    }
    if ((status == BT_OK) && bt_shard_is_last(shard) && is_shared) {
        status =
            bt_loader_buffer(loader, rows, loader->own.n_vocab, own_logits_p);
    }
    if ((status == BT_OK) && on_device && !is_shared) {
        status = bt_loader_buffer(loader, rows, 1, ids_p);
    }
    return status;
}

/* The host's, beside a back end with memory of its own. */
static bt_status_t take_host(bt_loader_t *loader, void **logits_p,
                             void **own_logits_p)
{
    const size_t rows = loader->config->max_logit_rows;
    const bt_shard_t *const shard = &loader->shard;
    bt_status_t status = BT_OK;

    if (!bt_backend_owns_memory(loader->be)) {
        return BT_OK;
    }
    if (bt_shard_is_first(shard)) {
        status = host_memory(loader, rows * loader->hp->n_vocab, sizeof(float),
                             logits_p);
    }
    if ((status == BT_OK) && bt_shard_is_last(shard) &&
        (loader->config->host_coll != NULL)) {
        status = host_memory(loader, rows * loader->own.n_vocab, sizeof(float),
                             own_logits_p);
    }
    return status;
}

bt_status_t bt_loader_results(bt_loader_t *loader, bt_model_t *model)
{
    float *logits = NULL;
    float *own_logits = NULL;
    float *ids = NULL; /* as wide as an id */
    void *host_logits = NULL;
    void *host_own_logits = NULL;
    bt_status_t status = take_own(loader, &logits, &own_logits, &ids);

    if (status == BT_OK) {
        status = take_host(loader, &host_logits, &host_own_logits);
    }
    if (loader->config->host_coll != NULL) {
        loader->host_bytes += bt_ranks_bytes(loader->config->host_coll,
                                             loader->config, loader->hp);
    }
    if (model != NULL) {
        model->logits = logits;
        model->own_logits = (own_logits != NULL) ? own_logits : logits;
        model->best_ids = (uint32_t *)(void *)ids;
        model->host_logits = host_logits;
        model->host_own_logits = host_own_logits;
    }
    return (status == BT_OK) ? reserve_batch(loader) : status;
}

/* ---- after a forward pass ---- */

/* Does row i want its best id alone? */
static bool best_only(const bt_forward_t *fwd, uint32_t i)
{
    return (fwd->needs != NULL) && (fwd->needs[i] == 1);
}

/* Rows i .. end - 1 that want the same. @return end */
static uint32_t run_end(const bt_forward_t *fwd, uint32_t i)
{
    uint32_t end = i + 1;

    while ((end < fwd->n_logit_rows) &&
           (best_only(fwd, end) == best_only(fwd, i))) {
        end++;
    }
    return end;
}

static bt_status_t fetch_logits(bt_model_t *model, uint32_t i, uint32_t n)
{
    const size_t n_vocab = model->hp.n_vocab;

    if (model->host_logits == NULL) {
        return BT_OK;
    }
    return model->be->ops->copy_out(model->be, model->host_logits + i * n_vocab,
                                    model->logits + i * n_vocab,
                                    n * n_vocab * sizeof(float));
}

/* By the back end, for n rows from i on. */
static bt_status_t find_best(bt_model_t *model, const bt_forward_t *fwd,
                             uint32_t i, uint32_t n)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const uint32_t n_vocab = model->hp.n_vocab;
    const float *const logits = model->logits + (size_t)i * n_vocab;

    if (model->best_ids == NULL) {
        ops->argmax(model->be, logits, n, n_vocab, fwd->best_ids + i);
        return BT_OK;
    }
    ops->argmax(model->be, logits, n, n_vocab, model->best_ids + i);
    return ops->copy_out(model->be, fwd->best_ids + i, model->best_ids + i,
                         n * sizeof(*model->best_ids));
}

/* Where the back end has no argmax(): its logits were fetched. */
static void find_best_here(const bt_model_t *model, const bt_forward_t *fwd)
{
    const uint32_t n_vocab = model->hp.n_vocab;
    const float *logits =
        (model->host_logits != NULL) ? model->host_logits : model->logits;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if (best_only(fwd, i)) {
            fwd->best_ids[i] =
                bt_sampler_best(logits + (size_t)i * n_vocab, n_vocab);
        }
    }
}

/* Of ranks: what is queued is done, K and V are stored, and what this one's
 * words are to the rows is in the host's memory. */
static void come_to_host(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const size_t n = (size_t)fwd->n_logit_rows * model->own.n_vocab;
    bt_status_t status = bt_ranks_status(model->ranks);

    if ((status != BT_OK) || !bt_backend_owns_memory(model->be)) {
        return;
    }
    status = ((model->host_own_logits == NULL) || (n == 0))
                 ? ops->sync(model->be)
                 : ops->copy_out(model->be, model->host_own_logits,
                                 model->own_logits, n * sizeof(float));
    if (status != BT_OK) {
        bt_ranks_fail(model->ranks, status);
    }
}

bt_status_t bt_model_results(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    bt_status_t status = BT_OK;
    uint32_t end;

    if (model->ranks != NULL) {
        come_to_host(model, fwd);
        bt_ranks_gather(model->ranks, model, fwd);
        return bt_ranks_status(model->ranks);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < fwd->n_logit_rows);
         i = end) {
        end = run_end(fwd, i);
        status = (best_only(fwd, i) && (ops->argmax != NULL))
                     ? find_best(model, fwd, i, end - i)
                     : fetch_logits(model, i, end - i);
    }
    if (status == BT_OK) {
        status = ops->sync(model->be);
    }
    if ((status == BT_OK) && (ops->argmax == NULL)) {
        find_best_here(model, fwd);
    }
    return status;
}
