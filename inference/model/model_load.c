/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "inference/model/arch/family.h"
#include "inference/model/model.h"
#include "inference/model/ranks.h"

/* Life cycle of a model on a back end: memory estimate, load, destruction. */

#define WHAT_BYTES 256u /* size of a back end's error message */
#define PANEL      32u  /* an expert's outputs are a multiple: kernels.h */

static void check_config(bt_loader_t *ld)
{
    const bt_model_config_t *const c = ld->config;

    if ((c->max_rows == 0) || (c->max_logit_rows == 0)) {
        bt_loader_fail(ld, BT_ERR_INVALID_PARAM,
                       "a batch needs at least one row");
    }
    if ((c->context_tokens == 0) ||
        (c->context_tokens > ld->hp->context_tokens)) {
        bt_loader_fail(ld, BT_ERR_INVALID_PARAM,
                       "a context of %u tokens is asked for; this model has 1 "
                       "to %u",
                       c->context_tokens, ld->hp->context_tokens);
    }
    if (ld->hp->head_dim > ld->be->caps->max_head_dim) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "the %s back end supports heads of at most %u "
                       "dimensions; the model's have %u",
                       ld->be->caps->name, ld->be->caps->max_head_dim,
                       ld->hp->head_dim);
    }
    for (uint32_t i = 0; i < ld->hp->n_layers; i++) {
        const bt_attention_t attention = bt_hparams_attention(ld->hp, i);

        bt_loader_check_attention(ld, &attention);
    }
}

/* Computes the unit of columns of a second matrix of all layers: a block of
 * each of their types, and at least @a unit, a power of two. */
static uint32_t unit_of(const bt_loader_t *ld, const char *matrix,
                        uint32_t unit)
{
    char name[64];

    for (uint32_t i = 0; i < ld->hp->n_layers; i++) {
        const bt_gguf_tensor_t *t;
        uint32_t elems = 1;
        uint32_t bytes;

        snprintf(name, sizeof(name), "blk.%u.%s.weight", i, matrix);
        t = bt_gguf_tensor(ld->gguf, name);
        if ((t != NULL) && (bt_ktype_block(t->type, &elems, &bytes) == BT_OK) &&
            (elems > unit)) { /* they are powers of two */
            unit = elems;
        }
    }
    return unit;
}

/* Computes this rank's shard of the model; all of it where it is alone. */
static void take_share(bt_loader_t *ld)
{
    const bt_collectives_t *const coll = ld->config->host_coll;
    const bt_shard_position_t position = {
        .rank = (coll == NULL) ? 0 : coll->rank,
        .size = (coll == NULL) ? 1 : coll->size,
        .n_stages = (ld->config->n_stages == 0) ? 1 : ld->config->n_stages,
        .ep = ld->config->ep,
    };
    const bool is_whole = (coll == NULL) && (ld->config->sum_parts <= 1) &&
                          (ld->config->expert_parts <= 1);
    const bt_shard_sums_t sums = {
        .parts = ld->config->sum_parts,
        .expert_parts = ld->config->expert_parts,
        .ffn_unit = is_whole ? 1 : unit_of(ld, "ffn_down", 1),
        .expert_unit = is_whole ? 1 : unit_of(ld, "ffn_down_exps", PANEL),
        .shared_unit = is_whole ? 1 : unit_of(ld, "ffn_down_shexp", 1)};

    if ((coll != NULL) && !bt_rank_tables_can(ld->be)) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "ranks of one instance: the %s back end has "
                       "memory of its own, which no sum here reaches",
                       ld->be->caps->name);
    }
    if (ld->status == BT_OK) {
        ld->status = bt_shard_of(ld->hp, &sums, &position, ld->why,
                                 ld->why_bytes, &ld->shard);
    }
    if (ld->status == BT_OK) {
        ld->own = bt_shard_hparams(ld->hp, &ld->shard);
    }
    if (ld->hp->head.kind == BT_HEAD_NEXTN) {
        ld->shard.layers.first = ld->config->head.hparams->n_layers;
    }
}

static const bt_family_t *family_of(const bt_gguf_t *gguf, bt_head_kind_t head)
{
    bt_gguf_str_t name;

    return (head == BT_HEAD_EAGLE3) ? &bt_family_eagle3
           : (bt_gguf_get_str(gguf, "general.architecture", &name) == BT_OK)
               ? bt_family_find(name)
               : NULL;
}

/* Reads the hyperparameters of a model, or of a draft head, whose context is
 * its target's. */
static bt_status_t read_hparams(const bt_gguf_t *gguf,
                                const bt_model_config_t *config, char *why,
                                size_t why_bytes, bt_hparams_t *hp)
{
    const bt_head_target_t *const head = &config->head;
    bt_status_t status;

    if (head->kind == BT_HEAD_NONE) {
        return bt_hparams_read(gguf, why, why_bytes, hp);
    }
    status = bt_head_hparams_read(gguf, head->kind, head->hparams, why,
                                  why_bytes, hp);
    if ((status == BT_OK) && (hp->context_tokens < config->context_tokens)) {
        hp->context_tokens = config->context_tokens;
    }
    return status;
}

/* Goes through the whole load and counts memory; with packed or writer set also
 * looks up or writes every matrix. Takes no memory that lasts. */
static bt_status_t rehearse(bt_loader_t *loader)
{
    void *state = NULL;

    loader->dry = true;
    bt_decoder_load(loader, &state);
    bt_decoder_free(loader->be, state);
    bt_loader_results(loader, NULL);
    return loader->status;
}

/* Counts device memory of a back end whose buffers the host cannot read: they,
 * the weights and the tables of batches are there; a weight is packed on the
 * host first. */
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
                          .family = family_of(gguf, config->head.kind),
                          .be = be,
                          .hp = &hp,
                          .config = config,
                          .why = why,
                          .why_bytes = why_bytes};
    bt_model_memory_t memory = {.device_left_bytes = UINT64_MAX};
    const bool is_shared =
        (config->weight_dir != NULL) && (config->weight_dir[0] != '\0');
    bt_status_t status = read_hparams(gguf, config, why, why_bytes, &hp);

    if (status != BT_OK) {
        return status;
    }
    check_config(&loader);
    take_share(&loader);
    if (loader.status == BT_OK) {
        (void)rehearse(&loader);
    }
    if (loader.status != BT_OK) {
        return loader.status;
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
    /* While loading, a weight is packed here, then in the file or the device
     * memory; plus the write buffer. */
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
    const bt_backend_config_t be_config = {
        .n_threads = 1, .max_rows = 1, .why = what, .why_bytes = sizeof(what)};
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

static void make_ranks(bt_loader_t *ld, bt_model_t *model)
{
    const bt_status_t status =
        bt_ranks_create(ld->be, ld->config, ld->hp, &model->ranks);

    if (status == BT_ERR_NO_MEMORY) {
        bt_loader_fail(ld, status,
                       "no memory for what ranks say to each other");
    } else if (status != BT_OK) {
        bt_loader_fail(ld, status,
                       "ranks of one instance: no sums over the memory of the "
                       "%s back end: %s (each rank needs a device of its own)",
                       ld->be->caps->name, bt_status_str(status));
    }
}

/* Called before the first batch, so that no operation allocates memory. */
static void reserve_scratch(bt_loader_t *loader)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    const bt_workload_t workload = bt_loader_workload(loader);
    bt_workload_memory_t memory;
    bt_status_t status;

    if ((ops->workload_reserve == NULL) || (loader->status != BT_OK)) {
        return;
    }
    status = ops->workload_reserve(loader->be, &workload);
    if (status != BT_OK) {
        ops->workload_memory(&workload, loader->config->numerics, &memory);
        bt_loader_fail(loader, status,
                       "scratch of %zu MiB in the memory of the %s back end: "
                       "%s",
                       memory.scratch >> 20, loader->be->caps->name,
                       bt_status_str(status));
    }
}

/* Drops pages of the packed file from host memory once the back end has them in
 * its own memory. */
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

/* Loads weights from the folder of packed weights. */

#define WHY_BYTES     256
#define PROFILE_BYTES 128

/* Repeats the load without a result; it has its own buffer for reasons. */
static bt_loader_t rehearsal_of(const bt_loader_t *loader, char *why)
{
    const bt_loader_t rehearsal = {.gguf = loader->gguf,
                                   .family = loader->family,
                                   .be = loader->be,
                                   .hp = loader->hp,
                                   .shard = loader->shard,
                                   .own = loader->own,
                                   .config = loader->config,
                                   .why = why,
                                   .why_bytes = WHY_BYTES};

    why[0] = '\0';
    return rehearsal;
}

static bt_status_t write_all(void *ctx, bt_packed_writer_t *writer)
{
    char why[WHY_BYTES];
    bt_loader_t rehearsal = rehearsal_of(ctx, why);

    rehearsal.writer = writer;
    return rehearse(&rehearsal);
}

static bool has_all(void *ctx, const bt_packed_file_t *file)
{
    char why[WHY_BYTES];
    bt_loader_t rehearsal = rehearsal_of(ctx, why);

    rehearsal.packed = file;
    return rehearse(&rehearsal) == BT_OK;
}

/* True where a rank has some experts or some of their columns. */
static bool shares_experts(const bt_shard_t *shard)
{
    return (shard->experts.ep > 0) &&
           ((shard->size > 1) || (shard->experts.n_parts > 1));
}

/* Packed content does not depend on the numerics profile: its name is kept for
 * compatibility. A head in the file of its target has a file of its own. Each
 * shard has a file of its own; that of a stage, or of some experts, is
 * abbreviated to fit the key (BT_PACKED_PROFILE_BYTES). */
static void name_file(const bt_shard_t *shard, bool has_codes, bool is_nextn,
                      char *name, size_t name_bytes)
{
    const char *const what = has_codes ? "q8-e4m3" : BT_PROFILE_EXACT;

    if (is_nextn) {
        snprintf(name, name_bytes, "%s nextn", what);
        return;
    }
    if (shares_experts(shard)) {
        snprintf(name, name_bytes, "%s %u/%u x%u e%ux%u %u/%u", what,
                 shard->rank, shard->size, shard->n_parts, shard->experts.ep,
                 shard->experts.n_parts, shard->stage, shard->n_stages);
    } else if (shard->n_stages > 1) {
        snprintf(name, name_bytes, "%s %u/%u x%u, stage %u/%u", what,
                 shard->rank, shard->size, shard->n_parts, shard->stage,
                 shard->n_stages);
    } else {
        snprintf(name, name_bytes,
                 (shard->size * shard->n_parts > 1)
                     ? "%s rank %u of %u, %u parts each"
                     : "%s",
                 what, shard->rank, shard->size, shard->n_parts);
    }
}

/* Sets loader->packed and *store_p, where the configuration asks for a shared
 * packed file and that works; otherwise changes nothing and logs what the user
 * should know. */
static void share_packed(bt_loader_t *loader, bt_packed_store_t **store_p)
{
    const bt_model_config_t *const c = loader->config;
    const bt_kernels_caps_t *const caps = loader->be->caps;
    char profile[PROFILE_BYTES];
    char why[WHY_BYTES];
    bt_loader_t count = rehearsal_of(loader, why);
    bt_packed_config_t config = {.dir = c->weight_dir,
                                 .gguf = loader->gguf,
                                 .profile = profile,
                                 .pack_version = caps->pack_version,
                                 .n_threads = c->n_threads,
                                 .is_temporary = c->drops_packed,
                                 .ctx = loader,
                                 .build = write_all,
                                 .complete = has_all};
    bt_packed_store_t *store = NULL;

    if ((c->weight_dir == NULL) || (c->weight_dir[0] == '\0')) {
        return;
    }
    if (caps->pack_version == 0) {
        BT_LOG_INFO("packed weights are not kept: the %s back end has them in "
                    "its own memory",
                    caps->name);
        return;
    }
    /* Errors in the model file itself are reported by the load. */
    if (rehearse(&count) != BT_OK) {
        return;
    }
    name_file(&loader->shard, count.has_codes,
              loader->hp->head.kind == BT_HEAD_NEXTN, profile, sizeof(profile));
    config.expect_bytes = count.weight_bytes;
    if (bt_packed_store_open(&config, &store) == BT_OK) {
        loader->packed = bt_packed_store_file(store);
        *store_p = store;
    }
}

bt_status_t bt_model_load(const bt_gguf_t *gguf, bt_backend_t *be,
                          const bt_model_config_t *config, char *why,
                          size_t why_bytes, bt_model_t **model_p)
{
    bt_loader_t loader = {.gguf = gguf,
                          .family = family_of(gguf, config->head.kind),
                          .be = be,
                          .config = config,
                          .why = why,
                          .why_bytes = why_bytes};
    bt_status_t status;
    bt_hparams_t hp;
    bt_model_t *model = NULL;

    status = read_hparams(gguf, config, why, why_bytes, &hp);
    if (status != BT_OK) {
        return status;
    }
    loader.hp = &hp;
    check_config(&loader);
    take_share(&loader);
    if (loader.status != BT_OK) {
        return loader.status;
    }
    model = bt_calloc(1, sizeof(*model));
    loader.used =
        bt_calloc((size_t)bt_gguf_n_tensors(gguf), sizeof(*loader.used));
    if ((model == NULL) || (loader.used == NULL)) {
        bt_loader_fail(&loader, BT_ERR_NO_MEMORY, "out of memory");
        goto err_model;
    }
    model->family = loader.family;
    model->be = be;
    model->hp = hp;
    model->own = loader.own;
    model->shard = loader.shard;
    model->config = *config;
    if (config->host_coll != NULL) {
        make_ranks(&loader, model);
        if (loader.status != BT_OK) {
            goto err_model;
        }
    }

    share_packed(&loader, &model->store);
    bt_decoder_load(&loader, &model->state);
    bt_loader_check_all_used(&loader);
    bt_loader_results(&loader, model);
    reserve_scratch(&loader);
    if (loader.status == BT_OK) {
        loader.status = bt_ahead_open(model);
    }
    if (loader.status != BT_OK) {
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
    return loader.status;
}

void bt_model_destroy(bt_model_t *model)
{
    if (model == NULL) {
        return;
    }
    bt_ahead_close(model);
    if (model->be != NULL) {
        bt_decoder_free(model->be, model->state);
        if (model->own_logits != model->logits) {
            bt_model_buffer_free(model->be, model->own_logits);
        }
        bt_model_buffer_free(model->be, model->some_logits);
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
