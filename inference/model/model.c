/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/model.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/model/model_priv.h"
#include "inference/model/rank_tables.h"
#include "inference/model/ranks.h"

#define WHAT_BYTES 256u /* of what is wrong with a back end */

static bt_status_t check_config(const bt_loader_t *ld)
{
    const bt_model_config_t *const c = ld->config;
    bt_status_t status = BT_OK;

    if ((c->max_rows == 0) || (c->max_logit_rows == 0)) {
        return bt_loader_fail(ld, BT_ERR_INVALID_PARAM,
                              "a batch needs at least one row");
    }
    if ((c->context_tokens == 0) ||
        (c->context_tokens > ld->hp->context_tokens)) {
        return bt_loader_fail(ld, BT_ERR_INVALID_PARAM,
                              "a context of %u tokens is asked for; this "
                              "model has 1 to %u",
                              c->context_tokens, ld->hp->context_tokens);
    }
    if (ld->hp->head_dim > ld->be->caps->max_head_dim) {
        return bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                              "the %s back end supports heads of at most %u "
                              "dimensions; the model's have %u",
                              ld->be->caps->name, ld->be->caps->max_head_dim,
                              ld->hp->head_dim);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < ld->hp->n_layers); i++) {
        const bt_attention_t attention = bt_hparams_attention(ld->hp, i);

        status = bt_kernels_check_attention(ld->be->caps, &attention, ld->why,
                                            ld->why_bytes);
    }
    return status;
}

/* Columns of the feed-forward's second matrices that end together: a block of
 * each of their types. */
static uint32_t ffn_unit(const bt_loader_t *ld)
{
    uint32_t unit = 1;
    char name[64];

    for (uint32_t i = 0; i < ld->hp->n_layers; i++) {
        const bt_gguf_tensor_t *t;
        uint32_t elems = 1;
        uint32_t bytes;

        snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", i);
        t = bt_gguf_tensor(ld->gguf, name);
        if ((t != NULL) && (bt_ktype_block(t->type, &elems, &bytes) == BT_OK) &&
            (elems > unit)) { /* they are powers of two */
            unit = elems;
        }
    }
    return unit;
}

/* What of the model this rank has; all of it where it is alone. */
static bt_status_t take_share(bt_loader_t *ld)
{
    const bt_collectives_t *const coll = ld->config->host_coll;
    const bt_shard_place_t place = {
        .rank = (coll == NULL) ? 0 : coll->rank,
        .size = (coll == NULL) ? 1 : coll->size,
        .n_stages = (ld->config->n_stages == 0) ? 1 : ld->config->n_stages,
    };
    const bool is_whole = (coll == NULL) && (ld->config->sum_parts <= 1);
    bt_status_t status;

    if ((coll != NULL) && !bt_rank_tables_can(ld->be)) {
        return bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                              "ranks of one instance: the %s back end has "
                              "memory of its own, which no sum here reaches",
                              ld->be->caps->name);
    }
    status =
        bt_shard_of(ld->hp, ld->config->sum_parts, is_whole ? 1 : ffn_unit(ld),
                    &place, ld->why, ld->why_bytes, &ld->shard);
    if (status == BT_OK) {
        ld->own = bt_shard_hparams(ld->hp, &ld->shard);
    }
    return status;
}

static const bt_arch_t *arch_of(const bt_gguf_t *gguf)
{
    bt_gguf_str_t name;

    return (bt_gguf_get_str(gguf, "general.architecture", &name) == BT_OK)
               ? bt_arch_find(name)
               : NULL;
}

bt_status_t bt_loader_rehearse(bt_loader_t *loader)
{
    const bt_arch_t *const arch = loader->arch;
    void *state = NULL;
    bt_status_t status;

    loader->dry = true;
    status = arch->load(loader, &state);
    arch->free_state(loader->be, state);
    if (status == BT_OK) {
        status = bt_loader_results(loader, NULL);
    }
    return status;
}

/* Of one that keeps its buffers where the host cannot read them: they, the
 * weights and the tables of batches are there; a weight is packed here first.
 */
static bt_status_t split_memory(const bt_loader_t *loader,
                                bt_model_memory_t *memory)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;

    memory->own_memory = true;
    memory->device_bytes = memory->weight_bytes + memory->private_bytes;
    memory->weight_bytes = 0;
    memory->private_bytes = 0;
    if (ops->workload_memory != NULL) {
        const bt_workload_t workload = bt_loader_workload(loader);
        bt_workload_memory_t beside;

        ops->workload_memory(&workload, loader->config->numerics, &beside);
        memory->device_bytes += beside.scratch;
        memory->scratch_bytes = beside.scratch;
        memory->later_bytes = beside.later;
        memory->pinned_bytes = beside.pinned;
        memory->private_bytes = beside.pinned;
    }
    return ops->memory_left(loader->be, &memory->device_left_bytes);
}

bt_status_t bt_model_memory_on(const bt_gguf_t *gguf, bt_backend_t *be,
                               const bt_model_config_t *config, char *why,
                               size_t why_bytes, bt_model_memory_t *memory_p)
{
    bt_hparams_t hp;
    bt_loader_t loader = {.gguf = gguf,
                          .arch = arch_of(gguf),
                          .be = be,
                          .hp = &hp,
                          .config = config,
                          .why = why,
                          .why_bytes = why_bytes};
    bt_model_memory_t memory = {.device_left_bytes = UINT64_MAX};
    const bool is_shared =
        (config->weight_dir != NULL) && (config->weight_dir[0] != '\0');
    bt_status_t status = bt_hparams_read(gguf, why, why_bytes, &hp);

    if (status == BT_OK) {
        status = check_config(&loader);
    }
    if (status == BT_OK) {
        status = take_share(&loader);
    }
    if (status == BT_OK) {
        status = bt_loader_rehearse(&loader);
    }
    if (status != BT_OK) {
        return status;
    }
    memory.weight_bytes = loader.weight_bytes;
    memory.private_bytes = loader.bytes;
    memory.load_bytes = loader.max_piece;
    if (bt_backend_owns_memory(be)) {
        status = split_memory(&loader, &memory);
        if (status != BT_OK) {
            return bt_loader_fail(&loader, status,
                                  "the %s back end cannot tell its memory: %s",
                                  be->caps->name, bt_status_str(status));
        }
    }
    /* Packed here, then in the file, or in the other memory; and the buffer of
     * what is written. */
    if (is_shared || memory.own_memory) {
        memory.load_bytes += loader.max_weight;
    }
    if (is_shared && (be->caps->pack_version != 0)) {
        memory.load_bytes += BT_PACKED_CHUNK_BYTES;
    }
    memory.private_bytes += loader.host_bytes;
    *memory_p = memory;
    return BT_OK;
}

bt_status_t bt_model_memory(const bt_gguf_t *gguf, const char *backend,
                            const bt_model_config_t *config, char *why,
                            size_t why_bytes, bt_model_memory_t *memory_p)
{
    char what[WHAT_BYTES];
    const bt_backend_config_t be_config = {.n_threads = 1,
                                           .max_rows = 1,
                                           .max_dim = 1,
                                           .why = what,
                                           .why_bytes = sizeof(what)};
    bt_backend_t *be = NULL;
    bt_status_t status = bt_backend_open(backend, &be_config, &be);

    if (status != BT_OK) {
        snprintf(why, why_bytes, "the back end %s cannot be opened: %s",
                 backend, (what[0] != '\0') ? what : bt_status_str(status));
        return status;
    }
    status = bt_model_memory_on(gguf, be, config, why, why_bytes, memory_p);
    bt_backend_close(be);
    return status;
}

static bt_status_t make_ranks(bt_loader_t *ld, bt_model_t *model)
{
    const bt_status_t status =
        bt_ranks_create(ld->be, ld->config, ld->hp, &model->ranks);

    if (status == BT_OK) {
        return BT_OK;
    }
    return (status == BT_ERR_NO_MEMORY)
               ? bt_loader_fail(ld, status,
                                "no memory for what ranks say to each other")
               : bt_loader_fail(ld, status,
                                "ranks of one instance: no sums over the "
                                "memory of the %s back end: %s (each rank "
                                "needs a device of its own)",
                                ld->be->caps->name, bt_status_str(status));
}

/* Before the first batch, so that no operation takes memory. */
static bt_status_t reserve_scratch(const bt_loader_t *loader)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    const bt_workload_t workload = bt_loader_workload(loader);
    bt_workload_memory_t memory;
    bt_status_t status;

    if (ops->workload_reserve == NULL) {
        return BT_OK;
    }
    status = ops->workload_reserve(loader->be, &workload);
    if (status == BT_OK) {
        return BT_OK;
    }
    ops->workload_memory(&workload, loader->config->numerics, &memory);
    return bt_loader_fail(loader, status,
                          "scratch of %zu MiB in the memory of the %s back "
                          "end: %s",
                          memory.scratch >> 20, loader->be->caps->name,
                          bt_status_str(status));
}

/* What of a file of packed weights is in the back end's memory is not wanted in
 * the host's any more. */
static void leave_file(bt_model_t *model)
{
    model->weight_source = (model->store == NULL) ? BT_WEIGHTS_PRIVATE
                           : bt_packed_store_built(model->store)
                               ? BT_WEIGHTS_BUILT
                               : BT_WEIGHTS_FOUND;
    if (bt_backend_owns_memory(model->be)) {
        bt_packed_store_close(model->store);
        model->store = NULL;
    }
}

bt_status_t bt_model_load(const bt_gguf_t *gguf, bt_backend_t *be,
                          const bt_model_config_t *config, char *why,
                          size_t why_bytes, bt_model_t **model_p)
{
    bt_loader_t loader = {.gguf = gguf,
                          .arch = arch_of(gguf),
                          .be = be,
                          .config = config,
                          .why = why,
                          .why_bytes = why_bytes};
    bt_status_t status;
    bt_hparams_t hp;
    bt_model_t *model = NULL;

    status = bt_hparams_read(gguf, why, why_bytes, &hp);
    if (status != BT_OK) {
        return status;
    }
    loader.hp = &hp;
    status = check_config(&loader);
    if (status == BT_OK) {
        status = take_share(&loader);
    }
    if (status != BT_OK) {
        return status;
    }
    model = bt_calloc(1, sizeof(*model));
    loader.used =
        bt_calloc((size_t)bt_gguf_n_tensors(gguf), sizeof(*loader.used));
    if ((model == NULL) || (loader.used == NULL)) {
        status = bt_loader_fail(&loader, BT_ERR_NO_MEMORY, "out of memory");
        goto err_model;
    }
    model->arch = loader.arch;
    model->be = be;
    model->hp = hp;
    model->own = loader.own;
    model->shard = loader.shard;
    model->config = *config;
    if (config->host_coll != NULL) {
        status = make_ranks(&loader, model);
        if (status != BT_OK) {
            goto err_model;
        }
    }

    bt_loader_share(&loader, &model->store);
    status = model->arch->load(&loader, &model->state);
    if (status == BT_OK) {
        status = bt_loader_check_all_used(&loader);
    }
    if (status == BT_OK) {
        status = bt_loader_results(&loader, model);
    }
    if (status == BT_OK) {
        status = reserve_scratch(&loader);
    }
    if (status == BT_OK) {
        status = bt_ahead_open(model);
    }
    if (status != BT_OK) {
        goto err_model;
    }
    bt_free(loader.used);
    leave_file(model);
    if (why_bytes > 0) {
        why[0] = '\0';
    }
    *model_p = model;
    return BT_OK;

err_model:
    bt_free(loader.used);
    bt_model_destroy(model);
    return status;
}

void bt_model_destroy(bt_model_t *model)
{
    if (model == NULL) {
        return;
    }
    bt_ahead_close(model);
    if (model->arch != NULL) {
        model->arch->free_state(model->be, model->state);
        if (model->own_logits != model->logits) {
            bt_model_buffer_free(model->be, model->own_logits);
        }
        bt_model_buffer_free(model->be, model->logits);
        bt_model_buffer_free(model->be, model->best_ids);
        bt_model_buffer_free(model->be, model->own_first);
        bt_model_buffer_free(model->be, model->drawn);
    }
    bt_packed_store_close(model->store); /* the weights were freed */
    bt_ranks_destroy(model->ranks);
    bt_free(model->host_logits);
    bt_free(model->host_own_logits);
    bt_free(model->host_own_first);
    bt_free(model->host_drawn);
    bt_free(model);
}

const bt_hparams_t *bt_model_hparams(const bt_model_t *model)
{
    return &model->hp;
}

bt_weight_source_t bt_model_weight_source(const bt_model_t *model)
{
    return model->weight_source;
}

uint64_t bt_model_lent_ns(const bt_model_t *model)
{
    bt_lent_stats_t lent = {0};

    if (model->be->ops->lent_stats != NULL) {
        model->be->ops->lent_stats(model->be, &lent);
    }
    return lent.saved_ns;
}

/* Sequences: rows contiguous from 0, positions inside the table. */
static bool seqs_fit(const bt_model_t *model, const bt_forward_t *fwd)
{
    uint32_t row = 0;

    for (uint32_t i = 0; i < fwd->n_seqs; i++) {
        const bt_ragged_seq_t *const seq = &fwd->seqs[i];

        if ((seq->row != row) || (seq->n_rows == 0) ||
            (seq->n_rows > fwd->n_rows - row) ||
            (seq->pos > model->config.context_tokens) ||
            (seq->n_rows > model->config.context_tokens - seq->pos)) {
            return false;
        }
        row += seq->n_rows;
    }
    return row == fwd->n_rows;
}

bt_kv_view_t bt_model_group_view(const bt_kv_view_t *kv,
                                 const bt_kv_groups_t *groups, uint32_t group)
{
    const bt_kv_shape_t *const shape = &groups->group[group].shape;
    bt_kv_view_t view = *kv;

    view.n_layers = shape->n_layers;
    view.n_kv_heads = shape->n_kv_heads;
    view.head_dim = shape->head_dim;
    view.tokens_per_block = shape->tokens_per_block;
    view.n_other_groups = groups->n - 1;
    view.group = group;
    return view;
}

/* Does the layer's group keep what the layer sees? */
static bt_status_t check_layer(const bt_hparams_t *hp, uint32_t layer,
                               const bt_kv_group_t *group, char *why,
                               size_t why_bytes)
{
    const uint32_t sees = bt_hparams_attention(hp, layer).window;
    const uint32_t kept = group->window_tokens;

    if ((kept != 0) && ((sees == 0) || (sees > kept))) {
        if (sees == 0) {
            snprintf(why, why_bytes,
                     "layer %u sees all tokens, and its KV group keeps %u",
                     layer, kept);
        } else {
            snprintf(why, why_bytes,
                     "layer %u sees %u tokens, and its KV group keeps %u",
                     layer, sees, kept);
        }
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

static bt_status_t check_group(const bt_hparams_t *hp,
                               const bt_kv_groups_t *groups, uint32_t g,
                               char *why, size_t why_bytes)
{
    const bt_kv_group_t *const group = &groups->group[g];

    if (group->kind != BT_KV_PAGED) {
        snprintf(why, why_bytes,
                 "KV group %u keeps a state of fixed size, which no "
                 "architecture here computes",
                 g);
        return BT_ERR_UNSUPPORTED;
    }
    if ((group->shape.n_kv_heads != hp->n_kv_heads) ||
        (group->shape.head_dim != hp->head_dim)) {
        snprintf(why, why_bytes,
                 "KV group %u has %u heads of %u dimensions, the model %u "
                 "of %u",
                 g, group->shape.n_kv_heads, group->shape.head_dim,
                 hp->n_kv_heads, hp->head_dim);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_model_check_groups(const bt_model_t *model,
                                  const bt_kv_groups_t *groups, char *why,
                                  size_t why_bytes)
{
    const bt_hparams_t *const hp = &model->own;
    bt_status_t status = BT_OK;

    if (groups->n_layers != hp->n_layers) {
        snprintf(why, why_bytes, "the model has %u layers and its KV %u",
                 hp->n_layers, groups->n_layers);
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t g = 0; (status == BT_OK) && (g < groups->n); g++) {
        status = check_group(&model->own, groups, g, why, why_bytes);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < hp->n_layers); i++) {
        status =
            check_layer(hp, i, &groups->group[bt_kv_place(groups, i).group],
                        why, why_bytes);
    }
    return status;
}

/* Is this the cache of so many of the model's layers? */
static bool view_fits(const bt_model_t *model, const bt_kv_view_t *kv,
                      uint32_t n_layers)
{
    const uint32_t t = model->config.tokens_per_block;
    char why[1];

    return (kv->n_layers == n_layers) &&
           (kv->n_kv_heads == model->own.n_kv_heads) &&
           (kv->head_dim == model->hp.head_dim) &&
           ((t == 0) || (kv->tokens_per_block == t)) &&
           (bt_kernels_check_kv(model->be->caps, kv, why, sizeof(why)) ==
            BT_OK);
}

static bool cache_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_kv_groups_t *const groups = fwd->groups;
    char why[1];

    if (groups == NULL) {
        return view_fits(model, &fwd->kv, model->own.n_layers);
    }
    if ((groups->n - 1 > model->config.n_other_groups) ||
        (groups->page_bytes > fwd->kv.block_bytes) ||
        (bt_model_check_groups(model, groups, why, sizeof(why)) != BT_OK)) {
        return false;
    }
    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_view_t view = bt_model_group_view(&fwd->kv, groups, g);

        if ((view.n_layers > 0) && /* else none of this stage's is in it */
            !view_fits(model, &view, groups->group[g].shape.n_layers)) {
            return false;
        }
    }
    return true;
}

bt_kv_view_t bt_model_layer_view(const bt_forward_t *fwd, uint32_t layer,
                                 uint32_t *index_p)
{
    bt_kv_place_t place;

    if (fwd->groups == NULL) {
        *index_p = layer;
        return fwd->kv;
    }
    place = bt_kv_place(fwd->groups, layer);
    *index_p = place.index;
    return bt_model_group_view(&fwd->kv, fwd->groups, place.group);
}

static bool fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_model_config_t *const c = &model->config;
    const bt_hparams_t *const hp = &model->hp;

    if ((fwd->n_rows == 0) || (fwd->first_row > c->max_rows) ||
        (fwd->n_rows > c->max_rows - fwd->first_row) ||
        (fwd->n_logit_rows > c->max_logit_rows) || (fwd->kv.base == NULL) ||
        ((c->max_seqs != 0) && (fwd->n_seqs > c->max_seqs)) ||
        !cache_fits(model, fwd)) {
        return false;
    }
    for (uint32_t i = 0; i < fwd->n_rows; i++) {
        if (fwd->tokens[i] >= hp->n_vocab) {
            return false;
        }
    }
    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if ((fwd->logit_rows[i] >= fwd->n_rows) ||
            ((model->shard.n_stages > 1) && (i > 0) &&
             (fwd->logit_rows[i] < fwd->logit_rows[i - 1]))) {
            return false;
        }
    }
    return bt_ahead_fits(model, fwd) && seqs_fit(model, fwd) &&
           bt_drawn_fits(model, fwd);
}

void bt_model_layers_stored(const bt_model_t *model, const bt_forward_t *fwd,
                            uint32_t n_layers)
{
    /* Another rank may be as far behind as the last sum: the layer before. */
    const uint32_t n = (model->ranks == NULL) ? n_layers : n_layers - 1;

    if ((fwd->on_layers != NULL) && !model->be->caps->runs_ahead && (n > 0)) {
        fwd->on_layers(fwd->on_layers_ctx, n);
    }
}

/* Is this the rank that tells others what to do? */
static bool leads(const bt_model_t *model)
{
    return (model->ranks != NULL) && (model->config.host_coll->rank == 0);
}

bool bt_model_take_late(const bt_model_t *model, bt_forward_t *fwd,
                        uint32_t n_layers, bt_batch_t *batch,
                        bt_model_late_t *late_p)
{
    uint32_t n;

    if ((fwd->take_late == NULL) || (model->be->ops->batch_begin != NULL)) {
        return false;
    }
    n = fwd->take_late(fwd->take_late_ctx, n_layers);
    if (n == 0) {
        return false;
    }
    if (leads(model)) {
        bt_ranks_tell_late(model->ranks, fwd, n);
    }
    late_p->row = fwd->n_rows;
    late_p->batch = *batch;
    late_p->batch.tokens = fwd->tokens + fwd->n_rows;
    late_p->batch.seqs = late_p->seqs;
    late_p->batch.n_rows = late_p->batch.n_seqs = n;
    late_p->batch.n_logit_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        late_p->seqs[i] = fwd->seqs[fwd->n_seqs + i];
        late_p->seqs[i].row = i;
    }
    fwd->n_rows += n;
    fwd->n_seqs += n;
    fwd->n_logit_rows += n;
    BT_ASSERT(fits(model, fwd));
    batch->n_rows = fwd->n_rows;
    batch->n_seqs = fwd->n_seqs;
    batch->n_logit_rows = fwd->n_logit_rows;
    return true;
}

void bt_model_between_layers(const bt_model_t *model, const bt_forward_t *fwd,
                             uint32_t n_layers)
{
    if ((fwd->between_layers != NULL) && (fwd->first_row == 0) &&
        (model->be->ops->batch_begin == NULL)) {
        fwd->between_layers(fwd->between_layers_ctx, n_layers);
    }
    if (leads(model) && bt_ranks_talks_between(model->ranks, fwd)) {
        bt_ranks_tell_go_on(model->ranks);
    }
}

bt_status_t bt_model_begin(bt_model_t *model, const bt_batch_t *batch)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    bt_batch_t own = *batch;
    bt_status_t status;

    if (ops->batch_begin == NULL) {
        return BT_OK;
    }
    if (bt_shard_is_first(&model->shard) && (model->shard.size > 1)) {
        own = bt_ranks_own_words(model->ranks, &model->shard, batch);
    }
    status = ops->batch_begin(model->be, &own);
    if ((status == BT_OK) && (batch->from_ids != NULL)) {
        ops->take_tokens(model->be, batch, model->ahead.ids);
    }
    if ((status != BT_OK) && (model->ranks != NULL)) {
        bt_ranks_fail(model->ranks, status); /* the others go on without us */
    }
    return status;
}

bt_status_t bt_model_run_layers(bt_model_t *model, const bt_forward_t *fwd,
                                bt_forward_t *whole)
{
    bt_batch_t batch = bt_model_batch(fwd);
    bt_status_t status = BT_OK;

    *whole = *fwd;
    if (!fits(model, fwd)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (leads(model)) {
        bt_ranks_tell_step(model->ranks, fwd);
    }
    if (model->shard.n_stages == 1) { /* else each micro-batch is one */
        status = bt_model_begin(model, &batch);
        if (status != BT_OK) {
            return status;
        }
    }
    model->arch->forward(model, &batch, whole);
    return BT_OK;
}

/* Results are here. */
static float *done(const bt_model_t *model, const bt_forward_t *fwd,
                   uint32_t n_logit_rows)
{
    if ((model->ranks != NULL) && (fwd->on_layers != NULL)) {
        fwd->on_layers(fwd->on_layers_ctx, model->hp.n_layers);
    }
    return (n_logit_rows == 0)            ? NULL
           : (model->host_logits != NULL) ? model->host_logits
                                          : model->logits;
}

bt_status_t bt_model_forward(bt_model_t *model, const bt_forward_t *fwd,
                             float **logits_p)
{
    bt_forward_t whole;
    bt_status_t status;

    if (bt_model_takes_results(model)) {
        if (bt_ranks_n_started(model->ranks) > 0) {
            return BT_ERR_INVALID_PARAM;
        }
        status = bt_model_start(model, fwd);
        return (status == BT_OK) ? bt_model_finish(model, fwd, logits_p)
                                 : status;
    }
    if (model->ahead.n > 0) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_model_run_layers(model, fwd, &whole);
    if (status == BT_OK) {
        status = bt_model_results(model, &whole);
    }
    if (status == BT_OK) {
        *logits_p = done(model, fwd, whole.n_logit_rows);
    }
    return status;
}

/* ---- calls that follow each other ---- */

bool bt_model_takes_results(const bt_model_t *model)
{
    return (model->ranks != NULL) && (bt_ranks_max_started(model->ranks) > 0);
}

uint32_t bt_model_max_started(const bt_model_t *model)
{
    /* A back end that takes its tables at the beginning has one set of them. */
    return bt_model_chains(model) ? BT_AHEAD_MAX
           : (bt_model_takes_results(model) &&
              (model->be->ops->batch_begin == NULL))
               ? bt_ranks_max_started(model->ranks)
               : 1;
}

uint32_t bt_model_least_rows(const bt_model_t *model)
{
    return bt_micro_least(model->config.micro_rows);
}

bt_status_t bt_model_start(bt_model_t *model, const bt_forward_t *fwd)
{
    bt_forward_t whole;
    bt_status_t status;

    if (bt_model_chains(model)) {
        return bt_ahead_start(model, fwd);
    }
    if (!bt_model_takes_results(model) ||
        (bt_ranks_n_started(model->ranks) == bt_model_max_started(model))) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_model_run_layers(model, fwd, &whole);
    if (status == BT_OK) {
        bt_ranks_expect(model->ranks, model, fwd);
        status = bt_ranks_status(model->ranks);
    }
    return status;
}

bt_status_t bt_model_finish(bt_model_t *model, const bt_forward_t *fwd,
                            float **logits_p)
{
    bt_status_t status;

    if ((model->ahead.n == 0) && (!bt_model_takes_results(model) ||
                                  (bt_ranks_n_started(model->ranks) == 0))) {
        return BT_ERR_INVALID_PARAM;
    }
    status = (model->ahead.n > 0) ? bt_ahead_finish(model, fwd)
                                  : bt_model_collect(model, fwd);
    if (status == BT_OK) {
        *logits_p = done(model, fwd, fwd->n_logit_rows);
    }
    return status;
}

void bt_model_copy_block(bt_model_t *model, const bt_kv_view_t *kv,
                         uint32_t from, uint32_t to)
{
    uint8_t *const dst = (uint8_t *)kv->base + to * kv->block_bytes;
    const void *const src = (uint8_t *)kv->base + from * kv->block_bytes;
    const uint32_t n = (uint32_t)(kv->block_bytes / sizeof(float));

    if (leads(model)) {
        bt_ranks_tell_copy(model->ranks, from, to);
    }
    /* A block is a whole number of floats: K and V, and slots of an even
     * number, each of a whole number of elements or scales. */
    model->be->ops->copy_columns(model->be, src, 1, n, (float *)(void *)dst, n,
                                 0);
}

void bt_model_clear_block(bt_model_t *model, const bt_kv_view_t *kv,
                          uint32_t id)
{
    if (leads(model)) {
        bt_ranks_tell_clear(model->ranks, id);
    }
    model->be->ops->clear(model->be, (uint8_t *)kv->base + id * kv->block_bytes,
                          kv->block_bytes);
}
