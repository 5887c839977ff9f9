/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/model_drafter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

/* Logits this far below the best one add less than 1e-4 of its weight, even of
 * 50,000 of them. */
#define LIGHT_NATS 20.0f
#define GROUP      16u /* logits that are skipped together */

struct bt_model_drafter {
    bt_model_drafter_config_t config;
    bt_sampler_t *sampler;
    uint32_t n_vocab;
    bt_ragged_seq_t *seqs; /* [max_seqs], as all below */
    uint32_t *tokens;
    uint32_t *logit_rows;
};

bt_status_t bt_model_drafter_create(const bt_model_drafter_config_t *config,
                                    bt_model_drafter_t **drafter_p)
{
    const uint32_t n = config->max_seqs;
    bt_model_drafter_t *drafter = bt_calloc(1, sizeof(*drafter));
    bt_status_t status;

    if (drafter == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    drafter->config = *config;
    drafter->n_vocab = bt_model_hparams(config->model)->n_vocab;
    drafter->seqs = bt_calloc(n, sizeof(*drafter->seqs));
    drafter->tokens = bt_calloc(n, sizeof(*drafter->tokens));
    drafter->logit_rows = bt_calloc(n, sizeof(*drafter->logit_rows));
    status = bt_sampler_create(drafter->n_vocab, &drafter->sampler);
    if ((status != BT_OK) || (drafter->seqs == NULL) ||
        (drafter->tokens == NULL) || (drafter->logit_rows == NULL)) {
        bt_model_drafter_destroy(drafter);
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        drafter->logit_rows[i] = i;
    }
    *drafter_p = drafter;
    return BT_OK;
}

void bt_model_drafter_destroy(bt_model_drafter_t *drafter)
{
    if (drafter != NULL) {
        bt_sampler_destroy(drafter->sampler);
        bt_free(drafter->seqs);
        bt_free(drafter->tokens);
        bt_free(drafter->logit_rows);
        bt_free(drafter);
    }
}

/* Returns the probability of an id at this temperature; of greedy draws at 1.
 * An estimate: it decides how many drafts are made, not which. */
static float probability_of(const float *logits, uint32_t n, uint32_t id,
                            float temperature)
{
    const float best = logits[bt_sampler_best(logits, n)];
    const float scale = (temperature > 0) ? 1 / temperature : 1;
    const float light = best - LIGHT_NATS / scale;
    float sum = 0;
    uint32_t i = 0;

    for (; n - i >= GROUP; i += GROUP) {
        uint32_t n_heavy = 0;

        for (uint32_t k = 0; k < GROUP; k++) {
            n_heavy += (logits[i + k] > light) ? 1 : 0;
        }
        for (uint32_t k = 0; (n_heavy > 0) && (k < GROUP); k++) {
            sum += (logits[i + k] > light)
                       ? expf((logits[i + k] - best) * scale)
                       : 0;
        }
    }
    for (; i < n; i++) {
        sum += (logits[i] > light) ? expf((logits[i] - best) * scale) : 0;
    }
    return expf((logits[id] - best) * scale) / sum;
}

static bt_status_t draft(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_model_drafter_t *drafter = ctx;
    float *logits = NULL;
    bt_status_t status;

    for (uint32_t i = 0; i < n; i++) {
        const bt_seq_t *seq = next[i].seq;
        const uint32_t at = seq->sched.n_tokens - 1 + next[i].n_drafts;

        drafter->seqs[i] = (bt_ragged_seq_t){
            .row = i, .n_rows = 1, .pos = at, .blocks = seq->blocks};
        drafter->tokens[i] = seq->tokens[at];
    }
    status = bt_model_forward(drafter->config.model,
                              &(bt_forward_t){.seqs = drafter->seqs,
                                              .n_seqs = n,
                                              .tokens = drafter->tokens,
                                              .n_rows = n,
                                              .logit_rows = drafter->logit_rows,
                                              .n_logit_rows = n,
                                              .kv = drafter->config.kv,
                                              .groups = drafter->config.groups},
                              &logits);
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        const bt_seq_t *seq = next[i].seq;
        float *row = logits + (size_t)i * drafter->n_vocab;

        next[i].id = bt_seq_draw(seq, drafter->sampler,
                                 seq->sched.n_tokens + next[i].n_drafts, row,
                                 drafter->n_vocab);
        next[i].probability = probability_of(row, drafter->n_vocab, next[i].id,
                                             seq->sampling.temperature);
    }
    return status;
}

bt_batch_drafter_t bt_model_drafter_hook(bt_model_drafter_t *drafter)
{
    return (bt_batch_drafter_t){
        .draft = draft, .ctx = drafter, .max_seqs = drafter->config.max_seqs};
}

static bt_status_t differ(char *why, size_t why_bytes, const char *what,
                          double draft, double target)
{
    snprintf(why, why_bytes, "its %s is %.9g, that of the model %.9g", what,
             draft, target);
    return BT_ERR_MISMATCH;
}

/* K and V of one are read by the other, so every number that they depend on has
 * to be equal. */
static bt_status_t check_shape(const bt_hparams_t *target,
                               const bt_hparams_t *draft, char *why,
                               size_t why_bytes)
{
    const struct {
        const char *what;
        double target, draft;
    } all[] = {
#define FIELD(field, what) {what, (double)target->field, (double)draft->field}
        FIELD(n_layers, "number of layers"),
        FIELD(dim, "width"),
        FIELD(n_heads, "number of heads"),
        FIELD(n_kv_heads, "number of KV heads"),
        FIELD(head_dim, "size of a head"),
        FIELD(n_vocab, "vocabulary"),
        FIELD(rope.dims, "number of rotated dimensions"),
        FIELD(rope.base, "RoPE base"),
        FIELD(rope.scale, "RoPE scale"),
        FIELD(window_rope.base, "RoPE base of windowed layers"),
        FIELD(attn_window, "attention window"),
        FIELD(attn_scale, "attention scale"),
        FIELD(alibi, "ALiBi slope"),
#undef FIELD
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].target != all[i].draft) {
            return differ(why, why_bytes, all[i].what, all[i].draft,
                          all[i].target);
        }
    }
    return BT_OK;
}

static bool is_same_pair(const bt_gguf_pair_t *a, const bt_gguf_pair_t *b)
{
    return (a->type == b->type) && (a->n == b->n) && (a->bytes == b->bytes) &&
           (memcmp(a->value, b->value, a->bytes) == 0);
}

static bool find_tokens(const bt_gguf_t *gguf, bt_gguf_pair_t *pair_p)
{
    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        *pair_p = bt_gguf_pair_at(gguf, i);
        if (bt_gguf_str_is(pair_p->key, "tokenizer.ggml.tokens")) {
            return true;
        }
    }
    return false;
}

bt_status_t bt_model_drafter_check(const bt_gguf_t *target,
                                   const bt_gguf_t *draft, char *why,
                                   size_t why_bytes)
{
    bt_gguf_str_t arch[2] = {0};
    bt_hparams_t hp[2];
    bt_gguf_pair_t tokens[2];
    bool has[2];
    bt_status_t status = bt_hparams_read(target, why, why_bytes, &hp[0]);

    if (status == BT_OK) {
        status = bt_hparams_read(draft, why, why_bytes, &hp[1]);
    }
    if (status == BT_OK) {
        status = bt_gguf_get_str(target, "general.architecture", &arch[0]);
    }
    if (status == BT_OK) {
        status = bt_gguf_get_str(draft, "general.architecture", &arch[1]);
    }
    if (status != BT_OK) {
        return status;
    }
    if ((arch[0].len != arch[1].len) ||
        (memcmp(arch[0].data, arch[1].data, arch[0].len) != 0)) {
        snprintf(
            why, why_bytes, "its architecture is %.*s, that of the model %.*s",
            (int)arch[1].len, arch[1].data, (int)arch[0].len, arch[0].data);
        return BT_ERR_MISMATCH;
    }
    status = check_shape(&hp[0], &hp[1], why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    has[0] = find_tokens(target, &tokens[0]);
    has[1] = find_tokens(draft, &tokens[1]);
    if ((has[0] != has[1]) ||
        (has[0] && !is_same_pair(&tokens[0], &tokens[1]))) {
        snprintf(why, why_bytes, "its tokens are not those of the model");
        return BT_ERR_MISMATCH;
    }
    return BT_OK;
}
