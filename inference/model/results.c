/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of a forward call: logits in host memory, or only the best ids, or
 * draws.
 *
 * A row of logits of a large vocabulary is half a megabyte, its token is four
 * bytes. A back end with memory of its own that can draw does so: ids of all
 * draws, and the sums of log probabilities, come in one copy. A row's logits
 * are copied where all of them are needed on the host: where they are
 * requested, or where a processor changes them that the back end cannot express
 * (drawing.h).
 */
#include "common/base/alloc.h"
#include "inference/model/drawing.h"
#include "inference/model/model_priv.h"
#include "inference/model/ranks.h"
#include "inference/model/sampler.h"
#include "kernels/batch.h"

/* Counts host memory beside the back end's, and allocates it unless dry. */
static void host_memory(bt_loader_t *loader, size_t n, size_t size,
                        void **ptr_p)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(loader->host_bytes, bytes,
                               &loader->host_bytes)) {
        bt_loader_fail(loader, BT_ERR_INVALID_PARAM,
                       "%u rows of logits are too many",
                       loader->config->max_logit_rows);
    }
    if (loader->dry || (loader->status != BT_OK)) {
        return;
    }
    *ptr_p = bt_calloc_aligned(n, size);
    if (*ptr_p == NULL) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY,
                       "out of memory for the logits of %u rows",
                       loader->config->max_logit_rows);
    }
}

/* Reserves the tables of the largest batch of this configuration. */
static void reserve_batch(bt_loader_t *loader)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    const bt_model_config_t *const c = loader->config;
    const bool draws = bt_drawn_by(loader->be, c->host_coll != NULL);
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
        .max_draws = draws ? c->max_logit_rows : 0,
        .max_edits = draws ? BT_DRAWING_EDITS : 0,
        .max_scorings = draws ? c->max_logit_rows : 0,
    };
    bt_status_t status;

    if (ops->batch_reserve == NULL) {
        return;
    }
    loader->bytes += bt_batch_max_words(&limits) * sizeof(uint32_t);
    loader->host_bytes += bt_batch_max_words(&limits) * sizeof(uint32_t);
    if (loader->dry || (loader->status != BT_OK)) {
        return;
    }
    status = ops->batch_reserve(loader->be, &limits);
    if (status != BT_OK) {
        bt_loader_fail(loader, status,
                       "no memory for the tables of batches of %u rows",
                       c->max_rows);
    }
}

/* Result buffers of a call, on the back end and on the host. */
typedef struct buffers {
    float *logits;
    float *own_logits;
    float *some_logits;
    float *ids;   /* an id is as wide as a float */
    float *drawn; /* 32-bit words, too */
    void *host_logits;
    float *own_first; /* ids and logits, likewise */
    void *host_own_logits;
    void *host_own_first;
    void *host_drawn;
} buffers_t;

/* True for a rank that finds the first candidates of its words on the back end,
 * for its host to send. */
static bool finds_first(const bt_loader_t *loader)
{
    return (loader->config->host_coll != NULL) &&
           bt_shard_is_last(&loader->shard) &&
           bt_backend_owns_memory(loader->be) && (loader->be->ops->top != NULL);
}

/* Allocates buffers of the back end. They hold the results where they are host
 * memory or the model is not sharded; gathered results of ranks are only in
 * host memory. */
static void take_own(bt_loader_t *loader, buffers_t *b)
{
    const size_t rows = loader->config->max_logit_rows;
    const bt_shard_t *const shard = &loader->shard;
    const bool is_shared = loader->config->host_coll != NULL;
    const bool on_device = bt_backend_owns_memory(loader->be);

    if (bt_shard_is_first(shard) && !(on_device && is_shared)) {
        bt_loader_buffer(loader, rows, loader->hp->n_vocab, &b->logits);
    }
    if (bt_shard_is_last(shard) && is_shared) {
        bt_loader_buffer(loader, rows, loader->own.n_vocab, &b->own_logits);
    }
    if (!on_device && !is_shared && (loader->be->ops->matmul_ids != NULL) &&
        (loader->hp->head.kind == BT_HEAD_NONE)) {
        bt_loader_buffer(loader, rows, BT_MODEL_MAX_IDS, &b->some_logits);
    }
    if (on_device && !is_shared) {
        bt_loader_buffer(loader, rows, 1, &b->ids);
    }
    if (bt_drawn_by(loader->be, is_shared)) {
        bt_loader_buffer(loader, 1, bt_drawn_words(rows), &b->drawn);
    }
    if (finds_first(loader)) {
        bt_loader_buffer(loader, rows, (size_t)2 * BT_TOP_MAX, &b->own_first);
    }
}

/* Allocates host buffers beside a back end with memory of its own. */
static void take_host(bt_loader_t *loader, buffers_t *b)
{
    const size_t rows = loader->config->max_logit_rows;
    const bt_shard_t *const shard = &loader->shard;
    const bool is_shared = loader->config->host_coll != NULL;

    if (!bt_backend_owns_memory(loader->be)) {
        return;
    }
    if (bt_shard_is_first(shard)) {
        host_memory(loader, rows * loader->hp->n_vocab, sizeof(float),
                    &b->host_logits);
    }
    if (bt_shard_is_last(shard) && is_shared) {
        host_memory(loader, rows * loader->own.n_vocab, sizeof(float),
                    &b->host_own_logits);
    }
    if (bt_drawn_by(loader->be, is_shared)) {
        host_memory(loader, bt_drawn_words(rows), sizeof(uint32_t),
                    &b->host_drawn);
    }
    if (finds_first(loader)) {
        host_memory(loader, rows * 2 * BT_TOP_MAX, sizeof(uint32_t),
                    &b->host_own_first);
    }
}

void bt_loader_results(bt_loader_t *loader, bt_model_t *model)
{
    buffers_t b = {0};

    take_own(loader, &b);
    take_host(loader, &b);
    loader->host_bytes += bt_ahead_bytes(loader->be, loader->config);
    if (loader->config->host_coll != NULL) {
        loader->host_bytes += bt_ranks_bytes(loader->config->host_coll,
                                             loader->config, loader->hp);
    }
    if (model != NULL) {
        model->logits = b.logits;
        model->own_logits = (b.own_logits != NULL) ? b.own_logits : b.logits;
        model->some_logits = b.some_logits;
        model->best_ids = (uint32_t *)(void *)b.ids;
        model->drawn = (uint32_t *)(void *)b.drawn;
        model->host_logits = b.host_logits;
        model->host_own_logits = b.host_own_logits;
        model->own_first = (uint32_t *)(void *)b.own_first;
        model->host_own_first = b.host_own_first;
        model->host_drawn = b.host_drawn;
    }
    reserve_batch(loader);
}

/* ---- after a forward pass ---- */

/* How the result of a row comes to the host. */
typedef enum way {
    WAY_LOGITS,
    WAY_BEST,
    WAY_NONE,
} way_t;

static way_t way_of(const bt_forward_t *fwd, uint32_t i)
{
    const uint32_t n = (fwd->needs == NULL) ? 0 : fwd->needs[i];

    return (n == 1)                  ? WAY_BEST
           : (n == BT_NEEDS_NOTHING) ? WAY_NONE
                                     : WAY_LOGITS;
}

/* Finds rows i .. end - 1 with one kind of result. @return end */
static uint32_t run_end(const bt_forward_t *fwd, uint32_t i)
{
    const way_t way = way_of(fwd, i);
    uint32_t end = i + 1;

    while ((end < fwd->n_logit_rows) && (way_of(fwd, end) == way)) {
        end++;
    }
    return end;
}

bt_status_t bt_model_fetch_logits(bt_model_t *model, uint32_t i, uint32_t n)
{
    const size_t n_vocab = model->hp.n_vocab;

    if (model->host_logits == NULL) {
        return BT_OK;
    }
    return model->be->ops->copy_out(model->be, model->host_logits + i * n_vocab,
                                    model->logits + i * n_vocab,
                                    n * n_vocab * sizeof(float));
}

/* Computes the best ids on the back end, for n rows from i on. */
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

/* Used where the back end has no argmax(): its logits were fetched. */
static void find_best_here(const bt_model_t *model, const bt_forward_t *fwd)
{
    const uint32_t n_vocab = model->hp.n_vocab;
    const float *logits =
        (model->host_logits != NULL) ? model->host_logits : model->logits;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if (way_of(fwd, i) == WAY_BEST) {
            fwd->best_ids[i] =
                bt_sampler_best(logits + (size_t)i * n_vocab, n_vocab);
        }
    }
}

/* Fetches this rank's results of the rows of a call: only the first candidates,
 * where no row needs more. */
static bt_status_t fetch_own(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const uint32_t n_rows = fwd->n_logit_rows;
    const uint32_t n_vocab = model->own.n_vocab;
    const uint32_t k =
        (model->own_first == NULL) ? 0 : bt_ranks_first(model, fwd);
    const size_t n = (size_t)n_rows * k;

    model->n_own_first = k;
    if (k == 0) {
        return ops->copy_out(model->be, model->host_own_logits,
                             model->own_logits,
                             (size_t)n_rows * n_vocab * sizeof(float));
    }
    ops->top(model->be, model->own_logits, n_rows, n_vocab, k, model->own_first,
             (float *)(void *)(model->own_first + n));
    return ops->copy_out(model->be, model->host_own_first, model->own_first,
                         2 * n * sizeof(*model->own_first));
}

/* For ranks: completes queued work, so that K and V are stored and this rank's
 * results are in host memory. */
static void come_to_host(bt_model_t *model, const bt_forward_t *fwd)
{
    bt_status_t status = bt_ranks_status(model->ranks);

    if ((status != BT_OK) || !bt_backend_owns_memory(model->be)) {
        return;
    }
    status = ((model->host_own_logits == NULL) || (fwd->n_logit_rows == 0))
                 ? model->be->ops->sync(model->be)
                 : fetch_own(model, fwd);
    if (status != BT_OK) {
        bt_ranks_fail(model->ranks, status);
    }
}

/* Fetches rows i .. i + n - 1, of one kind of result. */
static bt_status_t fetch(bt_model_t *model, const bt_forward_t *fwd, uint32_t i,
                         uint32_t n)
{
    const way_t way = way_of(fwd, i);

    if (way == WAY_NONE) {
        return BT_OK;
    }
    return ((way == WAY_BEST) && (model->be->ops->argmax != NULL))
               ? find_best(model, fwd, i, n)
               : bt_model_fetch_logits(model, i, n);
}

bt_status_t bt_model_results(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    bt_status_t status;
    uint32_t end;

    if (model->ranks != NULL) {
        come_to_host(model, fwd);
        bt_ranks_gather(model->ranks, model, fwd);
        return bt_ranks_status(model->ranks);
    }
    status = bt_drawn_results(model, fwd);
    for (uint32_t i = 0; (status == BT_OK) && (i < fwd->n_logit_rows);
         i = end) {
        end = run_end(fwd, i);
        status = fetch(model, fwd, i, end - i);
    }
    if (status == BT_OK) {
        status = ops->sync(model->be);
    }
    if ((status == BT_OK) && (ops->argmax == NULL)) {
        find_best_here(model, fwd);
    }
    return status;
}

bt_status_t bt_model_collect(bt_model_t *model, const bt_forward_t *fwd)
{
    if (model->config.host_coll->rank == 0) {
        /* On an asynchronous back end the gather of the ranks waits for the
         * call. */
        bt_ranks_tell_results(model->ranks);
    }
    come_to_host(model, fwd);
    bt_ranks_collect(model->ranks, model, fwd);
    return bt_ranks_status(model->ranks);
}
