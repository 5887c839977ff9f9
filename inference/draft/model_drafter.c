/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/model_drafter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/sched/sched_catch_up.h"

/* Logits this far below the best one add less than 1e-4 of its weight, even of
 * 50,000 of them. */
#define LIGHT_NATS 20.0f
#define GROUP      16u /* logits that are skipped together */

struct bt_model_drafter {
    bt_model_drafter_config_t config;
    bt_sampler_t *sampler;
    uint32_t n_vocab;
    bt_draft_cache_t *cache; /* NULL: the target's */
    uint32_t context_tokens; /* with a cache: most positions */
    bt_ragged_seq_t *seqs;   /* [max_seqs] */
    bt_next_draft_t **asked; /* [max_seqs] of each of seqs */
    bt_draft_slot_t **slots; /* [max_seqs] of each of seqs, with a cache */
    uint32_t *logit_rows;    /* [max_seqs] */
    uint32_t *tokens;        /* [bt_model_drafter_max_rows()] */
};

uint32_t bt_model_drafter_max_rows(uint32_t max_seqs, bool has_cache)
{
    const uint32_t n = max_seqs * (has_cache ? BT_ENGINE_ROUND_ROWS : 1);

    return (has_cache && (n < BT_SCHED_CATCH_UP_ROWS)) ? BT_SCHED_CATCH_UP_ROWS
                                                       : n;
}

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
    drafter->asked = bt_calloc(n, sizeof(bt_next_draft_t *));
    drafter->slots = bt_calloc(n, sizeof(bt_draft_slot_t *));
    drafter->logit_rows = bt_calloc(n, sizeof(*drafter->logit_rows));
    drafter->tokens =
        bt_calloc(bt_model_drafter_max_rows(n, config->cache != NULL),
                  sizeof(*drafter->tokens));
    status = bt_sampler_create(drafter->n_vocab, &drafter->sampler);
    if ((status == BT_OK) && (config->cache != NULL)) {
        drafter->context_tokens = config->cache->context_tokens;
        status = bt_draft_cache_create(config->cache, &drafter->cache);
    }
    if ((status == BT_OK) &&
        ((drafter->seqs == NULL) || (drafter->asked == NULL) ||
         (drafter->slots == NULL) || (drafter->logit_rows == NULL) ||
         (drafter->tokens == NULL))) {
        status = BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        bt_model_drafter_destroy(drafter);
        return status;
    }
    drafter->config.cache = NULL;
    *drafter_p = drafter;
    return BT_OK;
}

void bt_model_drafter_destroy(bt_model_drafter_t *drafter)
{
    if (drafter != NULL) {
        bt_draft_cache_destroy(drafter->cache);
        bt_sampler_destroy(drafter->sampler);
        bt_free(drafter->seqs);
        bt_free(drafter->asked);
        bt_free(drafter->slots);
        bt_free(drafter->logit_rows);
        bt_free(drafter->tokens);
        bt_free(drafter);
    }
}

float bt_draft_probability(const float *logits, uint32_t n, uint32_t id,
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

/* Rows of a call so far. */
typedef struct call {
    uint32_t n_seqs;
    uint32_t n_rows;
} call_t;

static void add_rows(bt_model_drafter_t *drafter, call_t *call,
                     const bt_seq_t *seq, const uint32_t *blocks, uint32_t from,
                     uint32_t end)
{
    const uint32_t n = end - from;

    drafter->seqs[call->n_seqs] = (bt_ragged_seq_t){
        .row = call->n_rows, .n_rows = n, .pos = from, .blocks = blocks};
    memcpy(&drafter->tokens[call->n_rows], &seq->tokens[from],
           n * sizeof(*seq->tokens));
    call->n_rows += n;
    drafter->logit_rows[call->n_seqs++] = call->n_rows - 1;
}

static bt_status_t forward(bt_model_drafter_t *drafter, const call_t *call,
                           bool wants_logits, float **logits_p)
{
    const bool has_cache = drafter->cache != NULL;
    const bt_forward_t fwd = {
        .seqs = drafter->seqs,
        .n_seqs = call->n_seqs,
        .tokens = drafter->tokens,
        .n_rows = call->n_rows,
        .logit_rows = drafter->logit_rows,
        .n_logit_rows = wants_logits ? call->n_seqs : 0,
        .kv = has_cache ? bt_draft_cache_view(drafter->cache)
                        : drafter->config.kv,
        .groups = has_cache ? NULL : drafter->config.groups};

    return bt_model_forward(drafter->config.model, &fwd, logits_p);
}

/* Returns NULL where there is no slot, or no room for the tokens before end. */
static bt_draft_slot_t *take_slot(const bt_model_drafter_t *drafter,
                                  const bt_seq_t *seq, uint32_t end)
{
    return bt_draft_cache_can_hold(drafter->cache, seq, end)
               ? bt_draft_cache_take(drafter->cache, seq, seq->space,
                                     seq->tokens, end, 0)
               : NULL;
}

/* Adds the rows of the next draft of a sequence, if it can be made. */
static void ask(bt_model_drafter_t *drafter, call_t *call,
                bt_next_draft_t *next)
{
    const bt_seq_t *seq = next->seq;
    const uint32_t end = seq->sched.n_tokens + next->n_drafts;
    bt_draft_slot_t *slot;

    next->id = UINT32_MAX;
    drafter->asked[call->n_seqs] = next;
    if (drafter->cache == NULL) {
        add_rows(drafter, call, seq, seq->blocks, end - 1, end);
        return;
    }
    slot = take_slot(drafter, seq, end);
    if ((slot == NULL) || (end - slot->end > BT_ENGINE_ROUND_ROWS) ||
        !bt_draft_cache_reserve(drafter->cache, slot, end)) {
        next->n_rows = 0;
        return;
    }
    drafter->slots[call->n_seqs] = slot;
    add_rows(drafter, call, seq, slot->blocks, slot->end, end);
}

static bt_status_t draft(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_model_drafter_t *drafter = ctx;
    float *logits = NULL;
    call_t call = {0};
    bt_status_t status;

    for (uint32_t i = 0; i < n; i++) {
        ask(drafter, &call, &next[i]);
    }
    if (call.n_seqs == 0) {
        return BT_OK;
    }
    status = forward(drafter, &call, true, &logits);
    for (uint32_t i = 0; (status == BT_OK) && (i < call.n_seqs); i++) {
        bt_next_draft_t *to = drafter->asked[i];
        bt_seq_t *seq = to->seq;
        const uint32_t end = seq->sched.n_tokens + to->n_drafts;
        float *row = logits + (size_t)i * drafter->n_vocab;

        if (drafter->cache != NULL) {
            bt_draft_cache_store(drafter->cache, drafter->slots[i], seq->tokens,
                                 end, true);
        }
        to->id = bt_seq_draw(seq, drafter->sampler, end, row, drafter->n_vocab);
        if (to->id >= drafter->n_vocab) {
            continue; /* the grammar cannot be followed */
        }
        to->probability = bt_draft_probability(row, drafter->n_vocab, to->id,
                                               seq->sampling.temperature);
    }
    return status;
}

/* A sequence without a slot lacks all tokens. */
static void count_rows(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_model_drafter_t *drafter = ctx;

    bt_draft_cache_begin_turn(drafter->cache);
    for (uint32_t i = 0; i < n; i++) {
        const bt_seq_t *seq = next[i].seq;
        const uint32_t n_tokens = seq->sched.n_tokens;
        const bt_draft_slot_t *slot = bt_draft_cache_find(
            drafter->cache, seq, seq->space, seq->tokens, n_tokens);

        next[i].n_rows = (n_tokens > drafter->context_tokens) ? 0
                         : (slot == NULL)                     ? n_tokens
                                          : n_tokens - slot->end;
    }
}

/* A sequence that finds no blocks for all of its tokens computes none. */
static bt_status_t catch_up(void *ctx, bt_seq_t *seq, uint32_t max_rows,
                            uint32_t *n_rows_p)
{
    bt_model_drafter_t *drafter = ctx;
    const uint32_t n_tokens = seq->sched.n_tokens;
    bt_draft_slot_t *slot = take_slot(drafter, seq, n_tokens);
    float *logits;
    call_t call = {0};
    uint32_t end;
    bt_status_t status;

    if ((slot == NULL) ||
        !bt_draft_cache_reserve(drafter->cache, slot, n_tokens)) {
        *n_rows_p = 0;
        return BT_OK;
    }
    max_rows =
        (max_rows < BT_SCHED_CATCH_UP_ROWS) ? max_rows : BT_SCHED_CATCH_UP_ROWS;
    end = (n_tokens - 1 - slot->end > max_rows) ? slot->end + max_rows
                                                : n_tokens - 1;
    if (end == slot->end) { /* a slot with the same tokens was found */
        *n_rows_p = 0;
        return BT_OK;
    }
    add_rows(drafter, &call, seq, slot->blocks, slot->end, end);
    status = forward(drafter, &call, false, &logits);
    if (status == BT_OK) {
        *n_rows_p = end - slot->end;
        bt_draft_cache_store(drafter->cache, slot, seq->tokens, end, true);
    }
    return status;
}

/* Time for reading K and V is as their bytes. */
static float read_share_of(const bt_model_drafter_t *drafter)
{
    const size_t own = bt_draft_cache_view(drafter->cache).block_bytes;

    return (float)own / (float)drafter->config.kv.block_bytes;
}

bt_batch_drafter_t bt_model_drafter_hook(bt_model_drafter_t *drafter)
{
    bt_batch_drafter_t hook = {.draft = draft,
                               .ctx = drafter,
                               .max_seqs = drafter->config.max_seqs,
                               .read_share = 1};

    if (drafter->cache != NULL) {
        hook.count_rows = count_rows;
        hook.catch_up = catch_up;
        hook.context_tokens = drafter->context_tokens;
        hook.read_share = read_share_of(drafter);
    }
    return hook;
}

/* K and V of one are read by the other where every number is equal that they
 * depend on. */
static bool is_same_shape(const bt_hparams_t *target, const bt_hparams_t *draft)
{
    const struct {
        double target, draft;
    } all[] = {
#define FIELD(field) {(double)target->field, (double)draft->field}
        FIELD(n_layers),          FIELD(dim),        FIELD(n_heads),
        FIELD(n_kv_heads),        FIELD(head_dim),   FIELD(rope.dims),
        FIELD(rope.base),         FIELD(rope.scale), FIELD(window_rope.base),
        FIELD(attn_window),       FIELD(attn_scale), FIELD(alibi),
        FIELD(learned_positions),
#undef FIELD
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].target != all[i].draft) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_draft_check_tokens(const bt_gguf_t *target,
                                  const bt_gguf_t *draft, uint32_t n, char *why,
                                  size_t why_bytes)
{
    static const char *const key = "tokenizer.ggml.tokens";
    bt_gguf_str_t text[2] = {0};

    for (uint32_t i = 0; i < n; i++) {
        if ((bt_gguf_array_str(target, key, i, &text[0]) != BT_OK) ||
            (bt_gguf_array_str(draft, key, i, &text[1]) != BT_OK) ||
            (text[0].len != text[1].len) ||
            (memcmp(text[0].data, text[1].data, text[0].len) != 0)) {
            snprintf(why, why_bytes, "its token %u is not that of the model",
                     i);
            return BT_ERR_MISMATCH;
        }
    }
    return BT_OK;
}

/* Rows of a file's matrices beyond its tokens do not count; tokens do, one by
 * one. */
static bt_status_t check_tokens(const bt_gguf_t *target, const bt_gguf_t *draft,
                                const bt_hparams_t hp[2], char *why,
                                size_t why_bytes)
{
    static const char *const key = "tokenizer.ggml.tokens";

    if (hp[0].n_vocab != hp[1].n_vocab) {
        snprintf(why, why_bytes,
                 "its vocabulary has %u tokens, that of the model %u",
                 hp[1].n_vocab, hp[0].n_vocab);
        return BT_ERR_MISMATCH;
    }
    if (!bt_gguf_has(target, key) && !bt_gguf_has(draft, key)) {
        return BT_OK;
    }
    return bt_draft_check_tokens(target, draft, hp[0].n_vocab, why, why_bytes);
}

bt_status_t bt_model_drafter_check(const bt_gguf_t *target,
                                   const bt_gguf_t *draft,
                                   uint32_t context_tokens, bool *shares_kv_p,
                                   char *why, size_t why_bytes)
{
    bt_gguf_str_t arch[2] = {0};
    bt_hparams_t hp[2];
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
    if (status == BT_OK) {
        status = check_tokens(target, draft, hp, why, why_bytes);
    }
    if (status == BT_OK) {
        *shares_kv_p = (arch[0].len == arch[1].len) &&
                       (memcmp(arch[0].data, arch[1].data, arch[0].len) == 0) &&
                       is_same_shape(&hp[0], &hp[1]) &&
                       (hp[1].context_tokens >= context_tokens);
    }
    return status;
}
