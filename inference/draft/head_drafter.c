/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/head_drafter.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/sched/sched_catch_up.h"
#include "inference/draft/model_drafter.h"

/* Hidden states of a sequence that are kept: as many as an iteration leaves
 * whose drafts were all right, and those of a round. */
#define MAX_KEPT (BT_ENGINE_SEQ_DRAFTS + 1 + BT_ENGINE_ROUND_ROWS)

/* Hidden states of one sequence that the head has not computed. */
typedef struct pending {
    const bt_seq_t *owner; /* NULL: free */
    bt_hash128_t space;    /* cache namespace */
    uint64_t turn;         /* when it was used last */
    uint32_t first;        /* position of the first one */
    uint32_t n;
    bool has_drafts;       /* in this turn or the last one */
    uint32_t *tokens;      /* [MAX_KEPT] behind each of them */
    float *hidden;         /* (MAX_KEPT, width), in their order */
    float *own;            /* [dim] the head's output at its last position */
    bt_draft_slot_t *slot; /* of this turn; NULL: none */
} pending_t;

struct bt_head_drafter {
    bt_head_drafter_config_t config;
    bt_hparams_t hp;
    uint32_t width; /* of the target's hidden states of a token */
    bt_sampler_t *sampler;
    bt_draft_cache_t *cache;
    uint64_t turn;
    pending_t *pending; /* [max_seqs] */
    /* One call, all arrays [bt_head_drafter_max_rows()] or [max_seqs]. */
    bt_ragged_seq_t *seqs;
    bt_next_draft_t **asked; /* of each of seqs */
    pending_t **pending_of;
    uint32_t *logit_rows;
    uint32_t *tokens;
    float *raw;    /* (rows, width) */
    float *hidden; /* (rows, dim) */
    float *own;    /* (max_seqs, dim) */
    float *logits; /* [n_vocab] of one draft, in the target's ids */
    uint32_t n_seqs;
    uint32_t n_rows;
};

uint32_t bt_head_drafter_max_rows(uint32_t max_seqs)
{
    const uint32_t n = max_seqs * BT_ENGINE_ROUND_ROWS;

    return (n < MAX_KEPT) ? MAX_KEPT : n;
}

/* Floats of a sequence, and of a call. */
static size_t pending_floats(const bt_hparams_t *hp)
{
    return (size_t)MAX_KEPT * bt_head_width(&hp->head) + hp->dim;
}

static size_t call_floats(const bt_hparams_t *hp, uint32_t max_seqs)
{
    return (size_t)bt_head_drafter_max_rows(max_seqs) *
               (bt_head_width(&hp->head) + hp->dim) +
           (size_t)max_seqs * hp->dim + hp->n_words;
}

size_t bt_head_drafter_bytes(const bt_hparams_t *hp, uint32_t max_seqs)
{
    return (max_seqs * pending_floats(hp) + call_floats(hp, max_seqs)) *
           sizeof(float);
}

static bool alloc_pending(bt_head_drafter_t *d)
{
    const uint32_t n = d->config.max_seqs;

    d->pending = bt_calloc(n, sizeof(*d->pending));
    for (uint32_t i = 0; (d->pending != NULL) && (i < n); i++) {
        pending_t *const pending = &d->pending[i];

        pending->tokens = bt_calloc(MAX_KEPT, sizeof(*pending->tokens));
        pending->hidden = bt_calloc(pending_floats(&d->hp), sizeof(float));
        if ((pending->tokens == NULL) || (pending->hidden == NULL)) {
            return false;
        }
        pending->own = pending->hidden + (size_t)MAX_KEPT * d->width;
    }
    return d->pending != NULL;
}

static bool alloc_call(bt_head_drafter_t *d)
{
    const uint32_t n = d->config.max_seqs;
    const uint32_t rows = bt_head_drafter_max_rows(n);

    d->seqs = bt_calloc(n, sizeof(*d->seqs));
    d->asked = bt_calloc(n, sizeof(bt_next_draft_t *));
    d->pending_of = bt_calloc(n, sizeof(pending_t *));
    d->logit_rows = bt_calloc(n, sizeof(*d->logit_rows));
    d->tokens = bt_calloc(rows, sizeof(*d->tokens));
    d->raw = bt_calloc((size_t)rows * d->width, sizeof(float));
    d->hidden = bt_calloc((size_t)rows * d->hp.dim, sizeof(float));
    d->own = bt_calloc((size_t)n * d->hp.dim, sizeof(float));
    d->logits = bt_calloc(d->config.n_vocab, sizeof(float));
    return (d->seqs != NULL) && (d->asked != NULL) && (d->pending_of != NULL) &&
           (d->logit_rows != NULL) && (d->tokens != NULL) && (d->raw != NULL) &&
           (d->hidden != NULL) && (d->own != NULL) && (d->logits != NULL);
}

bt_status_t bt_head_drafter_create(const bt_head_drafter_config_t *config,
                                   bt_head_drafter_t **drafter_p)
{
    bt_head_drafter_t *const d = bt_calloc(1, sizeof(*d));
    bt_status_t status;

    if (d == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    d->config = *config;
    d->config.cache = NULL;
    d->hp = *bt_model_hparams(config->model);
    d->width = bt_head_width(&d->hp.head);
    status = bt_sampler_create(config->n_vocab, &d->sampler);
    if (status == BT_OK) {
        status = bt_draft_cache_create(config->cache, &d->cache);
    }
    if ((status == BT_OK) && (!alloc_pending(d) || !alloc_call(d))) {
        status = BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        bt_head_drafter_destroy(d);
        return status;
    }
    *drafter_p = d;
    return BT_OK;
}

void bt_head_drafter_destroy(bt_head_drafter_t *d)
{
    if (d == NULL) {
        return;
    }
    for (uint32_t i = 0; (d->pending != NULL) && (i < d->config.max_seqs);
         i++) {
        bt_free(d->pending[i].tokens);
        bt_free(d->pending[i].hidden);
    }
    bt_free(d->pending);
    bt_draft_cache_destroy(d->cache);
    bt_sampler_destroy(d->sampler);
    bt_free(d->seqs);
    bt_free(d->asked);
    bt_free(d->pending_of);
    bt_free(d->logit_rows);
    bt_free(d->tokens);
    bt_free(d->raw);
    bt_free(d->hidden);
    bt_free(d->own);
    bt_free(d->logits);
    bt_free(d);
}

/* ---- hidden states that are kept ---- */

static pending_t *find_pending(const bt_head_drafter_t *d, const bt_seq_t *seq)
{
    for (uint32_t i = 0; i < d->config.max_seqs; i++) {
        if (d->pending[i].owner == seq) {
            return &d->pending[i];
        }
    }
    return NULL;
}

/* Finds an entry that is free, or that no sequence of this turn or the last
 * has used. */
static pending_t *take_pending(bt_head_drafter_t *d, const bt_seq_t *seq)
{
    pending_t *oldest = find_pending(d, NULL);

    for (uint32_t i = 0; (i < d->config.max_seqs) &&
                         ((oldest == NULL) || (oldest->owner != NULL));
         i++) {
        if ((oldest == NULL) || (d->pending[i].turn < oldest->turn)) {
            oldest = &d->pending[i];
        }
    }
    if ((oldest->owner != NULL) && (oldest->turn + 1 >= d->turn)) {
        return NULL;
    }
    oldest->owner = seq;
    oldest->n = 0;
    oldest->has_drafts = false;
    oldest->slot = NULL;
    return oldest;
}

/* Drops the first n. */
static void drop(const bt_head_drafter_t *d, pending_t *pending, uint32_t n)
{
    const uint32_t left = pending->n - n;

    memmove(pending->tokens, pending->tokens + n,
            left * sizeof(*pending->tokens));
    memmove(pending->hidden, pending->hidden + (size_t)n * d->width,
            (size_t)left * d->width * sizeof(float));
    pending->first += n;
    pending->n = left;
}

/* Called with what the target left of positions pos … pos + n - 1; the token
 * behind each is known. */
static void computed(void *ctx, bt_seq_t *seq, uint32_t pos, uint32_t n,
                     const float *hidden)
{
    bt_head_drafter_t *const d = ctx;
    pending_t *pending = find_pending(d, seq);

    if (pending == NULL) {
        pending = take_pending(d, seq);
    }
    if (pending == NULL) {
        return;
    }
    if ((pending->first + pending->n !=
         pos) || /* another sequence, or run again */
        !bt_hash128_equal(pending->space, seq->space)) {
        pending->space = seq->space;
        pending->first = pos;
        pending->n = 0;
    }
    if (pending->n + n > MAX_KEPT) {
        drop(d, pending, pending->n + n - MAX_KEPT);
    }
    memcpy(pending->tokens + pending->n, seq->tokens + pos + 1,
           n * sizeof(*pending->tokens));
    memcpy(pending->hidden + (size_t)pending->n * d->width, hidden,
           (size_t)n * d->width * sizeof(float));
    pending->n += n;
    pending->turn = d->turn;
}

/* True when what is kept is of the last known token's predecessor and of those
 * before it, and of no other namespace. */
static bool is_current(const pending_t *pending, const bt_seq_t *seq)
{
    return (pending->n > 0) && bt_hash128_equal(pending->space, seq->space) &&
           (pending->first + pending->n + 1 == seq->sched.n_tokens) &&
           (memcmp(pending->tokens, seq->tokens + pending->first + 1,
                   pending->n * sizeof(*pending->tokens)) == 0);
}

/* ---- calls of the head ---- */

static void begin_call(bt_head_drafter_t *d)
{
    d->n_seqs = d->n_rows = 0;
}

static void add_rows(bt_head_drafter_t *d, pending_t *pending,
                     const bt_draft_slot_t *slot, const uint32_t *tokens,
                     uint32_t from, uint32_t n)
{
    d->seqs[d->n_seqs] = (bt_ragged_seq_t){.row = d->n_rows,
                                           .n_rows = n,
                                           .pos = from - slot->begin,
                                           .blocks = slot->blocks};
    memcpy(d->tokens + d->n_rows, tokens, n * sizeof(*tokens));
    d->n_rows += n;
    d->pending_of[d->n_seqs] = pending;
    d->logit_rows[d->n_seqs++] = d->n_rows - 1;
}

/* Adds rows of the target's hidden states that are kept, from a position on. */
static void add_kept(bt_head_drafter_t *d, pending_t *pending,
                     const bt_draft_slot_t *slot, uint32_t from, uint32_t n)
{
    const uint32_t i = from - pending->first;

    BT_ASSERT_ALWAYS((from >= pending->first) && (i + n <= pending->n));
    memcpy(d->raw + (size_t)d->n_rows * d->width,
           pending->hidden + (size_t)i * d->width,
           (size_t)n * d->width * sizeof(float));
    add_rows(d, pending, slot, pending->tokens + i, from, n);
}

/* Adds the row of a draft behind another. */
static void add_own(bt_head_drafter_t *d, pending_t *pending, uint32_t token,
                    uint32_t position)
{
    memcpy(d->hidden + (size_t)d->n_rows * d->hp.dim, pending->own,
           d->hp.dim * sizeof(float));
    add_rows(d, pending, pending->slot, &token, position, 1);
}

static bt_status_t forward(bt_head_drafter_t *d, bool wants_logits,
                           float **logits_p)
{
    const bool is_normed = d->hp.head.norm_output;
    const bt_taps_t taps = {.n = is_normed ? 0 : 1,
                            .layers = {d->hp.n_layers},
                            .normed = is_normed,
                            .hidden = d->own};
    const bt_forward_t fwd = {.seqs = d->seqs,
                              .n_seqs = d->n_seqs,
                              .tokens = d->tokens,
                              .n_rows = d->n_rows,
                              .logit_rows = d->logit_rows,
                              .n_logit_rows = wants_logits ? d->n_seqs : 0,
                              .taps = &taps,
                              .hidden = d->hidden,
                              .kv = bt_draft_cache_view(d->cache)};

    return bt_model_forward(d->config.model, &fwd, logits_p);
}

/* ---- the engine's hooks ---- */

/* Returns the slot of a sequence such that the hidden states that are kept
 * follow its K and V. */
static bt_draft_slot_t *take_slot(bt_head_drafter_t *d, pending_t *pending)
{
    const bt_seq_t *const seq = pending->owner;
    const uint32_t *const tokens = seq->tokens + 1;
    const uint32_t n_tokens = seq->sched.n_tokens - 1;
    bt_draft_slot_t *slot = bt_draft_cache_take(
        d->cache, seq, seq->space, tokens, n_tokens, pending->first);

    /* Where there is a gap it begins anew. An emptied slot is not the best one
     * while others have tokens in common, so each pass empties one. */
    while ((slot != NULL) && (slot->end < pending->first)) {
        bt_draft_cache_truncate(d->cache, slot, slot->begin);
        slot = bt_draft_cache_take(d->cache, seq, seq->space, tokens, n_tokens,
                                   pending->first);
    }
    return slot;
}

/* Computes K and V of hidden states that are kept, before @a end. */
static bt_status_t compute_kept(bt_head_drafter_t *d, pending_t *pending,
                                uint32_t end)
{
    bt_draft_slot_t *const slot = pending->slot;
    const uint32_t n = end - slot->end;
    float *logits;
    bt_status_t status;

    begin_call(d);
    add_kept(d, pending, slot, slot->end, n);
    bt_model_fuse_hidden(d->config.model, d->raw, n, d->hidden);
    status = forward(d, false, &logits);
    if (status == BT_OK) {
        bt_draft_cache_store(d->cache, slot, pending->owner->tokens + 1, end,
                             true);
        drop(d, pending, end - pending->first);
    }
    return status;
}

/* Finds what is pending of a sequence, and its slot.
 * @return rows of its next draft; 0: it can have none */
static uint32_t look_at(bt_head_drafter_t *d, const bt_seq_t *seq)
{
    pending_t *const pending = find_pending(d, seq);

    if (pending == NULL) {
        return 0;
    }
    pending->turn = d->turn;
    pending->slot = NULL;
    if (!is_current(pending, seq)) {
        return 0;
    }
    if (!bt_draft_cache_can_hold(d->cache, seq,
                                 seq->sched.n_tokens - 1 - pending->first)) {
        return 0;
    }
    pending->slot = take_slot(d, pending);
    if ((pending->slot == NULL) ||
        !bt_draft_cache_reserve(d->cache, pending->slot,
                                seq->sched.n_tokens - 1)) {
        pending->slot = NULL;
        return 0;
    }
    return seq->sched.n_tokens - 1 - pending->slot->end;
}

/* Slots of all sequences are found before any is taken. */
static void keep_slots(bt_head_drafter_t *d, const bt_next_draft_t *next,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const bt_seq_t *const seq = next[i].seq;

        if (seq->sched.n_tokens > 1) {
            (void)bt_draft_cache_find(d->cache, seq, seq->space,
                                      seq->tokens + 1, seq->sched.n_tokens - 1);
        }
    }
}

/* Of a sequence whose drafts were all right more rows are left than a round
 * has. */
static void count_rows(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_head_drafter_t *const d = ctx;

    d->turn++;
    bt_draft_cache_begin_turn(d->cache);
    keep_slots(d, next, n);
    for (uint32_t i = 0; i < n; i++) {
        pending_t *pending;

        next[i].n_rows = look_at(d, next[i].seq);
        if (next[i].n_rows <= BT_ENGINE_ROUND_ROWS) {
            continue;
        }
        pending = find_pending(d, next[i].seq);
        if (pending->has_drafts &&
            (compute_kept(d, pending, next[i].seq->sched.n_tokens - 2) ==
             BT_OK)) {
            next[i].n_rows = 1;
        }
        pending->has_drafts = false;
    }
}

static bt_status_t catch_up(void *ctx, bt_seq_t *seq, uint32_t max_rows,
                            uint32_t *n_rows_p)
{
    bt_head_drafter_t *const d = ctx;
    pending_t *const pending = find_pending(d, seq);
    const uint32_t last = seq->sched.n_tokens - 2;
    uint32_t n;
    bt_status_t status;

    *n_rows_p = 0;
    if ((pending == NULL) || (pending->slot == NULL) ||
        (pending->slot->end >= last)) {
        return BT_OK;
    }
    n = last - pending->slot->end;
    n = (n < max_rows) ? n : max_rows;
    status = compute_kept(d, pending, pending->slot->end + n);
    *n_rows_p = n;
    return status;
}

/* Adds the rows of the next draft of a sequence, if it can be made. */
static void ask(bt_head_drafter_t *d, bt_next_draft_t *next)
{
    const bt_seq_t *const seq = next->seq;
    pending_t *const pending = find_pending(d, seq);
    const uint32_t end = seq->sched.n_tokens - 1 + next->n_drafts;

    next->id = UINT32_MAX;
    if ((pending == NULL) || (pending->slot == NULL) ||
        !bt_draft_cache_reserve(d->cache, pending->slot, end)) {
        next->n_rows = 0;
        return;
    }
    d->asked[d->n_seqs] = next;
    if (next->n_drafts == 0) {
        add_kept(d, pending, pending->slot, pending->slot->end,
                 end - pending->slot->end);
    } else {
        add_own(d, pending, seq->tokens[end], end - 1);
    }
}

/* Draws a draft from logits of the head, in the ids of the target. */
static void draw(bt_head_drafter_t *d, bt_next_draft_t *next,
                 const float *logits)
{
    const uint32_t *const ids = bt_model_target_ids(d->config.model);
    bt_seq_t *const seq = next->seq;
    const uint32_t n_vocab = d->config.n_vocab;
    uint32_t id;

    for (uint32_t i = 0; (ids != NULL) && (i < n_vocab); i++) {
        d->logits[i] = -INFINITY;
    }
    for (uint32_t i = 0; i < d->hp.n_vocab; i++) {
        d->logits[(ids != NULL) ? ids[i] : i] = logits[i];
    }
    id = bt_seq_draw(seq, d->sampler, seq->sched.n_tokens + next->n_drafts,
                     d->logits, n_vocab);
    /* Else all are banned that it has, or the grammar cannot be followed. */
    if ((id < n_vocab) && (d->logits[id] > -INFINITY)) {
        next->id = id;
        next->probability = bt_draft_probability(d->logits, n_vocab, id,
                                                 seq->sampling.temperature);
    }
}

/* What the next draft and the next turn go on from. */
static void advance(bt_head_drafter_t *d, uint32_t i)
{
    const bt_next_draft_t *const next = d->asked[i];
    const uint32_t end = next->seq->sched.n_tokens - 1 + next->n_drafts;
    pending_t *const pending = d->pending_of[i];

    bt_draft_cache_store(d->cache, pending->slot, next->seq->tokens + 1, end,
                         next->n_drafts == 0);
    memcpy(pending->own, d->own + (size_t)i * d->hp.dim,
           d->hp.dim * sizeof(float));
    if (next->n_drafts == 0) {
        drop(d, pending, pending->n);
        pending->has_drafts = true;
    }
}

static bt_status_t draft(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_head_drafter_t *const d = ctx;
    const uint32_t n_drafts = next[0].n_drafts; /* of all */
    float *logits = NULL;
    bt_status_t status;

    begin_call(d);
    for (uint32_t i = 0; i < n; i++) {
        ask(d, &next[i]);
    }
    if (d->n_seqs == 0) {
        return BT_OK;
    }
    if (n_drafts == 0) {
        bt_model_fuse_hidden(d->config.model, d->raw, d->n_rows, d->hidden);
    }
    status = forward(d, true, &logits);
    for (uint32_t i = 0; (status == BT_OK) && (i < d->n_seqs); i++) {
        advance(d, i);
        draw(d, d->asked[i], logits + (size_t)i * d->hp.n_vocab);
    }
    return status;
}

bt_batch_drafter_t bt_head_drafter_hook(bt_head_drafter_t *d)
{
    const bt_head_hparams_t *const head = &d->hp.head;
    bt_batch_drafter_t hook = {
        .draft = draft,
        .count_rows = count_rows,
        .catch_up = catch_up,
        .ctx = d,
        .max_seqs = d->config.max_seqs,
        .read_share = d->config.read_share,
        .computed = computed,
        .taps = {.n = head->n_taps, .normed = head->kind == BT_HEAD_NEXTN}};

    memcpy(hook.taps.layers, head->taps, sizeof(hook.taps.layers));
    return hook;
}
