/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

#define NAME_BYTES 96
#define MAX_WIDTH  (1u << 20)

/* ---- hyperparameters ---- */

static bool flag_of(const bt_keys_t *keys, const char *name)
{
    char key[BT_KEY_BYTES];
    bool flag = false;

    return (bt_gguf_get_bool(keys->gguf, bt_key_name(keys, name, key), &flag) ==
            BT_OK) &&
           flag;
}

/* Reads the layers, as llama.cpp's converter names them, or did at first; none
 * where the file names none. */
static void read_taps(bt_keys_t *keys, bt_head_hparams_t *head)
{
    static const char *const names[] = {"target_layers", "extract_layers"};
    char key[BT_KEY_BYTES];
    uint64_t n = 0;
    int64_t layer = 0;
    size_t k = 0;

    while ((k < 2) &&
           !bt_gguf_has(keys->gguf, bt_key_name(keys, names[k], key))) {
        k++;
    }
    if (k == 2) {
        return;
    }
    if ((bt_gguf_array_len(keys->gguf, key, &n) != BT_OK) ||
        (n != BT_MODEL_MAX_TAPS)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "key %s does not name the three layers of the target",
                       key);
        return;
    }
    for (uint32_t i = 0; i < BT_MODEL_MAX_TAPS; i++) {
        if ((bt_gguf_array_i64(keys->gguf, key, i, &layer) != BT_OK) ||
            (layer < 0) || (layer > BT_MAX_LAYERS)) {
            bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                           "key %s has an entry that is no layer", key);
            return;
        }
        head->taps[i] = (uint32_t)layer;
    }
    head->n_taps = BT_MODEL_MAX_TAPS;
}

/* Finds the number of ids that the output has, and of those that tokens may
 * have, in a file that may have neither matrix. */
static void read_words(bt_keys_t *keys, bt_hparams_t *hp)
{
    const bt_gguf_tensor_t *const output =
        bt_gguf_tensor(keys->gguf, "output.weight");
    const bt_gguf_tensor_t *const embedding =
        bt_gguf_tensor(keys->gguf, "token_embd.weight");
    const bt_gguf_tensor_t *const ids = bt_gguf_tensor(keys->gguf, "d2t");
    const uint64_t n_out = (output != NULL) ? output->dims[1] : 0;
    const uint64_t n_in = (embedding != NULL) ? embedding->dims[1] : 0;

    if ((n_out > INT32_MAX) || (n_in > INT32_MAX)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "its vocabulary is absurd");
    } else if ((ids != NULL) && (ids->dims[0] != n_out)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "tensor d2t has %" PRIu64
                       " ids, and output.weight %" PRIu64 " rows",
                       ids->dims[0], n_out);
    }
    hp->n_vocab = (uint32_t)n_out;
    hp->n_words = (uint32_t)n_in;
}

void bt_head_eagle3_read(bt_keys_t *keys, bt_hparams_t *hp)
{
    bt_head_hparams_t *const head = &hp->head;

    head->kind = BT_HEAD_EAGLE3;
    if (hp->n_layers != 1) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "an EAGLE-3 head of %u layers is not supported: it has "
                       "one",
                       hp->n_layers);
    }
    bt_keys_number(keys, "target_hidden_size", 1, MAX_WIDTH, &head->target_dim);
    head->norm_before_residual = flag_of(keys, "norm_before_residual");
    head->norm_before_fc = flag_of(keys, "norm_before_fc");
    head->norm_output = flag_of(keys, "norm_output");
    read_taps(keys, head);
    read_words(keys, hp);
}

static bt_status_t differs(char *why, size_t why_bytes, const char *what,
                           uint32_t head, uint32_t target)
{
    snprintf(why, why_bytes, "its %s is %u, that of the model %u", what, head,
             target);
    return BT_ERR_MISMATCH;
}

/* Checks the words against those of the target, which lends what is missing. */
static bt_status_t take_words(bt_hparams_t *hp, const bt_hparams_t *target,
                              bool has_ids, char *why, size_t why_bytes)
{
    const bool borrows = (hp->n_words == 0) || (hp->n_vocab == 0);

    if (borrows && (hp->dim != target->dim)) {
        return differs(why, why_bytes,
                       "width, whose embedding or output is the model's,",
                       hp->dim, target->dim);
    }
    hp->n_words = (hp->n_words == 0) ? target->n_words : hp->n_words;
    hp->n_vocab = (hp->n_vocab == 0) ? target->n_vocab : hp->n_vocab;
    /* Matrices may have rows behind the ids of the vocabulary. */
    if (hp->n_words < target->n_words) {
        return differs(why, why_bytes, "vocabulary", hp->n_words,
                       target->n_words);
    }
    if (!has_ids && (hp->n_vocab < target->n_vocab)) {
        return differs(why, why_bytes, "vocabulary, without tensor d2t,",
                       hp->n_vocab, target->n_vocab);
    }
    hp->n_words = target->n_words;
    hp->n_vocab = has_ids ? hp->n_vocab : target->n_vocab;
    return BT_OK;
}

/* Where a file names no layers, they are those of EAGLE-3's authors, as vLLM
 * takes them: an early, a middle and a late one. */
static bt_status_t take_usual_taps(bt_head_hparams_t *head, uint32_t n_layers,
                                   char *why, size_t why_bytes)
{
    if (head->n_taps > 0) {
        return BT_OK;
    }
    if (n_layers < 3) {
        snprintf(why, why_bytes,
                 "it names no layers of its target, and the model has only %u",
                 n_layers);
        return BT_ERR_MISMATCH;
    }
    head->n_taps = BT_MODEL_MAX_TAPS;
    head->taps[0] = 2;
    head->taps[1] = n_layers / 2;
    head->taps[2] = n_layers - 3;
    return BT_OK;
}

static bt_status_t read_eagle3(const bt_gguf_t *gguf,
                               const bt_hparams_t *target, char *why,
                               size_t why_bytes, bt_hparams_t *hp)
{
    bt_status_t status =
        bt_decoder_hparams(&bt_family_eagle3, gguf, why, why_bytes, hp);

    if (status != BT_OK) {
        return status;
    }
    if (hp->head.target_dim != target->dim) {
        return differs(why, why_bytes, "target's width", hp->head.target_dim,
                       target->dim);
    }
    status = take_usual_taps(&hp->head, target->n_layers, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < hp->head.n_taps; i++) {
        if (hp->head.taps[i] > target->n_layers) {
            snprintf(why, why_bytes,
                     "it reads layer %u of its target, and the model has %u "
                     "layers",
                     hp->head.taps[i], target->n_layers);
            return BT_ERR_MISMATCH;
        }
    }
    return take_words(hp, target, bt_gguf_tensor(gguf, "d2t") != NULL, why,
                      why_bytes);
}

/* The layer has the target's shape. Its positions are counted from where the
 * head begins, so only differences between them may count; it has no window. */
static bt_status_t read_nextn(const bt_hparams_t *target, char *why,
                              size_t why_bytes, bt_hparams_t *hp)
{
    if (target->n_nextn == 0) {
        snprintf(why, why_bytes,
                 "the file has no layers of multi-token prediction (key "
                 "nextn_predict_layers)");
        return BT_ERR_UNSUPPORTED;
    }
    if (target->learned_positions || (target->temperature > 0.0f)) {
        snprintf(why, why_bytes,
                 "multi-token prediction of a model with absolute positions is "
                 "not supported");
        return BT_ERR_UNSUPPORTED;
    }
    if (target->experts.n > 0) {
        snprintf(why, why_bytes,
                 "multi-token prediction of a model with experts is not "
                 "supported");
        return BT_ERR_UNSUPPORTED;
    }
    *hp = *target;
    hp->n_layers = 1;
    hp->n_nextn = 0;
    hp->attn_window = 0;
    hp->windowed = (bt_layer_set_t){0};
    hp->turned = (bt_layer_set_t){0};
    if (hp->alibi == 0.0f) {
        bt_layer_add(&hp->turned, 0);
    }
    hp->head = (bt_head_hparams_t){
        .kind = BT_HEAD_NEXTN, .target_dim = target->dim, .norm_output = true};
    return BT_OK;
}

bt_status_t bt_head_hparams_read(const bt_gguf_t *gguf, bt_head_kind_t kind,
                                 const bt_hparams_t *target, char *why,
                                 size_t why_bytes, bt_hparams_t *hp_p)
{
    bt_hparams_t hp;
    const bt_status_t status =
        (kind == BT_HEAD_EAGLE3)
            ? read_eagle3(gguf, target, why, why_bytes, &hp)
            : read_nextn(target, why, why_bytes, &hp);

    if (status == BT_OK) {
        *hp_p = hp;
    }
    return status;
}

/* ---- loading ---- */

static const bt_decoder_t *target_of(const bt_loader_t *ld)
{
    const bt_model_t *const target = ld->config->target;

    return (target != NULL) ? target->state : NULL;
}

/* Loads the embedding, or borrows the target's. */
static void load_embedding(bt_loader_t *ld, bt_decoder_t *d, const char *name)
{
    const bt_hparams_t *const hp = ld->hp;
    const bt_decoder_t *const target = target_of(ld);

    if (bt_loader_has(ld, name)) {
        bt_loader_first_rows(ld, name, hp->n_words, hp->dim,
                             (bt_share_t){0, hp->n_words}, &d->embedding);
        return;
    }
    d->head->borrows_embedding = true;
    d->embedding = (target != NULL) ? target->embedding : NULL;
}

static void load_output(bt_loader_t *ld, bt_decoder_t *d, const char *name)
{
    const bt_hparams_t *const hp = ld->hp;
    const bt_decoder_t *const target = target_of(ld);

    if (bt_loader_has(ld, name)) {
        bt_loader_first_rows(ld, name, hp->n_vocab, hp->dim,
                             (bt_share_t){0, hp->n_vocab}, &d->output);
        return;
    }
    d->head->borrows_output = true;
    if (target != NULL) {
        d->output =
            (target->output != NULL) ? target->output : target->embedding;
        d->output_bias = target->output_bias;
    }
}

static void load_eagle3(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t n_in = hp->head.n_taps * hp->head.target_dim;
    bt_head_t *const head = d->head;

    /* Of this layer's two norms the first is the embedding's. */
    head->embedding_norm = d->layers[0].attn_norm;
    d->layers[0].attn_norm = (bt_norm_weights_t){0};
    bt_loader_vector(ld, "blk.0.attn_norm_2.weight", hp->dim,
                     &head->hidden_norm.weight);
    bt_loader_first_rows(ld, "fc.weight", hp->dim, n_in,
                         (bt_share_t){0, hp->dim}, &head->fc);
    if (hp->head.norm_before_fc) {
        bt_loader_vector(ld, "enc.output_norm.weight", n_in, &head->fc_norm);
        bt_loader_buffer(ld, ld->config->max_rows, n_in, &head->fc_in);
    }
    load_embedding(ld, d, "token_embd.weight");
    load_output(ld, d, "output.weight");
    bt_loader_vector(ld, "output_norm.weight", hp->dim, &d->output_norm.weight);
    if (bt_loader_has(ld, "d2t")) {
        bt_loader_ids(ld, "d2t", hp->n_vocab, hp->n_words, &head->target_ids);
    }
}

static const char *nextn_name(const bt_loader_t *ld, const char *name,
                              char *text)
{
    snprintf(text, NAME_BYTES, "blk.%u.nextn.%s.weight", ld->shard.layers.first,
             name);
    return text;
}

static void load_nextn(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const bt_decoder_t *const target = target_of(ld);
    bt_head_t *const head = d->head;
    char name[NAME_BYTES];

    bt_loader_vector(ld, nextn_name(ld, "enorm", name), hp->dim,
                     &head->embedding_norm.weight);
    bt_loader_vector(ld, nextn_name(ld, "hnorm", name), hp->dim,
                     &head->hidden_norm.weight);
    bt_loader_first_rows(ld, nextn_name(ld, "eh_proj", name), hp->dim,
                         2 * hp->dim, (bt_share_t){0, hp->dim}, &head->eh_proj);
    load_embedding(ld, d, nextn_name(ld, "embed_tokens", name));
    load_output(ld, d, nextn_name(ld, "shared_head_head", name));
    if (bt_loader_has(ld, nextn_name(ld, "shared_head_norm", name))) {
        bt_loader_vector(ld, name, hp->dim, &d->output_norm.weight);
        return;
    }
    head->borrows_output_norm = true;
    if (target != NULL) {
        d->output_norm = target->output_norm;
    }
}

void bt_head_load(bt_loader_t *ld, bt_decoder_t *d)
{
    if (ld->hp->head.kind == BT_HEAD_EAGLE3) {
        load_eagle3(ld, d);
    } else {
        load_nextn(ld, d);
    }
    bt_loader_buffer(ld, ld->config->max_rows, 2 * (size_t)ld->hp->dim,
                     &d->head->both);
}

void bt_head_free(bt_backend_t *be, bt_decoder_t *d)
{
    bt_head_t *const head = d->head;

    if (head == NULL) {
        return;
    }
    if (head->borrows_embedding) {
        d->embedding = NULL;
    }
    if (head->borrows_output) {
        d->output = NULL;
        d->output_bias = NULL;
    }
    if (head->borrows_output_norm) {
        d->output_norm = (bt_norm_weights_t){0};
    }
    bt_model_weight_free(be, head->fc);
    bt_model_weight_free(be, head->eh_proj);
    bt_model_buffer_free(be, head->embedding_norm.weight);
    bt_model_buffer_free(be, head->embedding_norm.bias);
    bt_model_buffer_free(be, head->hidden_norm.weight);
    bt_model_buffer_free(be, head->fc_norm);
    bt_model_buffer_free(be, head->fc_in);
    bt_model_buffer_free(be, head->both);
    bt_free(head->target_ids);
    bt_free(head);
    d->head = NULL;
}

/* ---- forward pass ---- */

/* Computes columns of head->both from rows, by d->a, which holds the normed
 * rows afterwards. */
static void put_normed(bt_model_t *model, const bt_norm_weights_t *weights,
                       const float *rows, uint32_t n_rows, uint32_t at)
{
    const bt_decoder_t *const d = model->state;
    const bt_norm_t norm = bt_decoder_norm(model, weights);
    const uint32_t dim = model->own.dim;

    bt_step_norm(model->be, rows, &norm, n_rows, d->a);
    model->be->ops->copy_columns(model->be, d->a, n_rows, dim, d->head->both,
                                 2 * dim, at);
}

void bt_head_input(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, float *x)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_decoder_t *const d = model->state;
    const bt_hparams_t *const hp = &model->own;
    const bt_head_t *const head = d->head;
    const uint32_t dim = hp->dim;
    const uint32_t n = batch->n_rows;

    ops->embed(model->be, d->embedding, batch, x);
    if (hp->embedding_scale != 1.0f) {
        ops->scale(model->be, x, hp->embedding_scale, (size_t)n * dim);
    }
    put_normed(model, &head->embedding_norm, x, n, 0);
    put_normed(model, &head->hidden_norm, fwd->hidden, n, dim);
    if (head->eh_proj != NULL) {
        ops->matmul(model->be, head->eh_proj, head->both, n, x);
    } else {
        ops->copy_columns(model->be,
                          hp->head.norm_before_residual ? d->a : fwd->hidden, n,
                          dim, x, dim, 0);
    }
}

void bt_model_fuse_hidden(bt_model_t *model, const float *hidden,
                          uint32_t n_rows, float *out)
{
    const bt_decoder_t *const d = model->state;
    const bt_hparams_t *const hp = &model->own;
    const bt_head_t *const head = d->head;
    const uint32_t n_in = hp->head.n_taps * hp->head.target_dim;
    const bt_norm_t norm = {
        .weight = head->fc_norm, .eps = hp->norm_eps, .dim = n_in};

    if (head->fc == NULL) {
        model->be->ops->copy_columns(model->be, hidden, n_rows, hp->dim, out,
                                     hp->dim, 0);
        return;
    }
    bt_step_norm_matmul(model->be, head->fc, hidden, &norm, n_rows, head->fc_in,
                        out);
}

const uint32_t *bt_model_target_ids(const bt_model_t *model)
{
    const bt_decoder_t *const d = model->state;

    return d->head->target_ids;
}
