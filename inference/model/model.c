/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/model.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/model_priv.h"

#define WHY_BYTES 256

static bt_status_t check_config(const bt_loader_t *ld)
{
    const bt_model_config_t *const c = ld->config;

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
    return BT_OK;
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
    const bt_arch_t *const arch = arch_of(loader->gguf);
    float *none = NULL;
    void *state = NULL;
    bt_status_t status;

    loader->dry = true;
    status = arch->load(loader, &state);
    arch->free_state(loader->be, state);
    /* The logits, on the back end and on the host. */
    for (int copy = 0; (status == BT_OK) && (copy < 2); copy++) {
        status = bt_loader_buffer(loader, loader->config->max_logit_rows,
                                  loader->hp->n_vocab, &none);
    }
    return status;
}

bt_status_t bt_model_memory(const bt_gguf_t *gguf,
                            const bt_model_config_t *config,
                            bt_model_memory_t *memory_p)
{
    const bt_backend_config_t be_config = {
        .n_threads = 1, .max_rows = 1, .max_dim = 1};
    char why[WHY_BYTES];
    bt_hparams_t hp;
    bt_loader_t loader = {.gguf = gguf,
                          .hp = &hp,
                          .config = config,
                          .why = why,
                          .why_bytes = sizeof(why)};
    bt_status_t status = bt_hparams_read(gguf, why, sizeof(why), &hp);

    if (status != BT_OK) {
        return status;
    }
    /* Only for its sizes of packed weights. */
    status = bt_backend_open("cpu", &be_config, &loader.be);
    if (status != BT_OK) {
        return status;
    }
    status = check_config(&loader);
    if (status == BT_OK) {
        status = bt_loader_rehearse(&loader);
    }
    bt_backend_close(loader.be);
    if (status != BT_OK) {
        return status;
    }
    *memory_p = (bt_model_memory_t){
        .weight_bytes = loader.weight_bytes,
        .private_bytes = loader.bytes,
        .load_bytes = loader.max_piece,
    };
    if ((config->weight_dir != NULL) && (config->weight_dir[0] != '\0')) {
        /* Packed here, then in the file; and the buffer of what is written. */
        memory_p->load_bytes += loader.max_weight + BT_PACKED_CHUNK_BYTES;
    }
    return BT_OK;
}

bt_status_t bt_model_memory_bytes(const bt_gguf_t *gguf,
                                  const bt_model_config_t *config,
                                  size_t *bytes_p)
{
    bt_model_memory_t memory;
    const bt_status_t status = bt_model_memory(gguf, config, &memory);

    if (status == BT_OK) {
        *bytes_p =
            memory.weight_bytes + memory.private_bytes + memory.load_bytes;
    }
    return status;
}

bt_status_t bt_model_load(const bt_gguf_t *gguf, bt_backend_t *be,
                          const bt_model_config_t *config, char *why,
                          size_t why_bytes, bt_model_t **model_p)
{
    bt_loader_t loader = {.gguf = gguf,
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
    model->arch = arch_of(gguf);
    model->be = be;
    model->hp = hp;
    model->config = *config;

    bt_loader_share(&loader, &model->store);
    status = model->arch->load(&loader, &model->state);
    if (status == BT_OK) {
        status = bt_loader_check_all_used(&loader);
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(&loader, config->max_logit_rows, hp.n_vocab,
                                  &model->logits);
    }
    if (status != BT_OK) {
        goto err_model;
    }
    model->host_logits =
        bt_calloc_aligned((size_t)config->max_logit_rows * hp.n_vocab,
                          sizeof(*model->host_logits));
    if (model->host_logits == NULL) {
        status = bt_loader_fail(&loader, BT_ERR_NO_MEMORY,
                                "out of memory for the logits of %u rows",
                                config->max_logit_rows);
        goto err_model;
    }
    bt_free(loader.used);
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
    if (model->arch != NULL) {
        model->arch->free_state(model->be, model->state);
        bt_model_buffer_free(model->be, model->logits);
    }
    bt_packed_store_close(model->store); /* the weights were freed */
    bt_free(model->host_logits);
    bt_free(model);
}

const bt_hparams_t *bt_model_hparams(const bt_model_t *model)
{
    return &model->hp;
}

bt_weight_source_t bt_model_weight_source(const bt_model_t *model)
{
    return (model->store == NULL)                ? BT_WEIGHTS_PRIVATE
           : bt_packed_store_built(model->store) ? BT_WEIGHTS_BUILT
                                                 : BT_WEIGHTS_FOUND;
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

static bool fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_hparams_t *const hp = &model->hp;
    const bt_kv_view_t *const kv = &fwd->kv;

    if ((fwd->n_rows == 0) || (fwd->n_rows > model->config.max_rows) ||
        (fwd->n_logit_rows > model->config.max_logit_rows) ||
        (kv->base == NULL) || (kv->n_layers != hp->n_layers) ||
        (kv->n_kv_heads != hp->n_kv_heads) || (kv->head_dim != hp->head_dim) ||
        (kv->tokens_per_block == 0) || (kv->tokens_per_block % 2 != 0) ||
        ((model->be->caps->kv_types & (1u << kv->type)) == 0)) {
        return false;
    }
    for (uint32_t i = 0; i < fwd->n_rows; i++) {
        if (fwd->tokens[i] >= hp->n_vocab) {
            return false;
        }
    }
    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if (fwd->logit_rows[i] >= fwd->n_rows) {
            return false;
        }
    }
    return seqs_fit(model, fwd);
}

void bt_model_layers_stored(const bt_model_t *model, const bt_forward_t *fwd,
                            uint32_t n_layers)
{
    if ((fwd->on_layers != NULL) && !model->be->caps->runs_ahead) {
        fwd->on_layers(fwd->on_layers_ctx, n_layers);
    }
}

bt_status_t bt_model_forward(bt_model_t *model, const bt_forward_t *fwd,
                             float **logits_p)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    bt_status_t status;

    if (!fits(model, fwd)) {
        return BT_ERR_INVALID_PARAM;
    }
    model->arch->forward(model, fwd);
    if (fwd->n_logit_rows > 0) {
        status = ops->copy_out(model->be, model->host_logits, model->logits,
                               (size_t)fwd->n_logit_rows * model->hp.n_vocab *
                                   sizeof(*model->host_logits));
        if (status != BT_OK) {
            return status;
        }
    }
    status = ops->sync(model->be);
    if (status != BT_OK) {
        return status;
    }
    *logits_p = (fwd->n_logit_rows > 0) ? model->host_logits : NULL;
    return BT_OK;
}

void bt_model_copy_block(bt_model_t *model, const bt_kv_view_t *kv,
                         uint32_t from, uint32_t to)
{
    uint8_t *const dst = (uint8_t *)kv->base + to * kv->block_bytes;

    /* A block is a whole number of floats: K and V, and slots of an even
     * number, each of a whole number of elements or scales. */
    model->be->ops->gather_rows(model->be, kv->base, &from, 1,
                                (uint32_t)(kv->block_bytes / sizeof(float)),
                                (float *)(void *)dst);
}

void bt_model_clear_block(bt_model_t *model, const bt_kv_view_t *kv,
                          uint32_t id)
{
    model->be->ops->clear(model->be, (uint8_t *)kv->base + id * kv->block_bytes,
                          kv->block_bytes);
}
