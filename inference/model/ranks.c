/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/ranks.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/model/rank_tables.h"
#include "inference/model/sampler.h"
#include "inference/model/select.h"

typedef enum kind {
    ORDER_STEP = 1,
    ORDER_LATE,
    ORDER_GO_ON,
    ORDER_RESULTS, /* of the oldest step; to the first of several stages */
    ORDER_COPY,
    ORDER_CLEAR,
    ORDER_END,
} kind_t;

#define STEP_WORDS 5 /* that a step begins with */

typedef struct order {
    uint32_t kind;
    uint32_t n_words; /* that follow in another message */
    uint32_t a, b;
} order_t;

/* What a follower's call is made of. */
typedef struct call {
    bt_forward_t fwd;
    bt_ragged_seq_t *seqs;
    uint32_t *tokens;
    uint32_t *logit_rows;
    uint32_t *needs;
    uint32_t *best_ids;
    uint32_t *blocks;
    size_t n_blocks;
} call_t;

struct bt_ranks {
    bt_rank_tables_t tables;
    uint32_t rank; /* of the instance */
    bool may_talk; /* between two layers */
    uint32_t stage_size, n_stages;
    uint32_t stage;
    bt_status_t status;
    uint32_t *words; /* of an order */
    size_t max_words;
    /* Of one call, as the model was loaded for. */
    uint32_t max_rows, max_seqs, max_logit_rows;
    size_t max_blocks;
    uint32_t micro_rows;
    bt_ragged_seq_t *micro_seqs; /* of a micro-batch; NULL: one stage */
    uint32_t *micro_logit_rows;
    size_t result_bytes; /* of one rank */
    uint32_t *tokens;    /* rows of the embedding */
    uint8_t *send;       /* results of a call */
    uint8_t *recv;
    /* Of the first of several stages, what comes of the calls that were
     * started: a ring of max_started, each of result_bytes. */
    uint8_t *arrivals;
    size_t *arrival_bytes;
    uint32_t first_started, n_started, max_started;
    bt_candidate_t *candidates; /* BT_SAMPLER_MAX_NEEDS */
    order_t next;               /* kind 0: not known yet */
    /* Of who follows; the second one is made inside the first. */
    call_t *calls;
    uint32_t depth;
};

/* ---- sums ---- */

bt_status_t bt_ranks_status(const bt_ranks_t *ranks)
{
    return ranks->status;
}

void bt_ranks_fail(bt_ranks_t *ranks, bt_status_t status)
{
    if (ranks->status == BT_OK) {
        ranks->status = status;
    }
}

static void sum_over(bt_ranks_t *ranks, const bt_collectives_t *coll, float *x,
                     size_t n)
{
    if ((ranks->status == BT_OK) && (coll != NULL)) {
        ranks->status = coll->all_reduce_sum(coll->ctx, x, n);
    }
}

void bt_ranks_sum(bt_ranks_t *ranks, float *x, size_t n)
{
    sum_over(ranks, ranks->tables.buffers_stage, x, n);
}

/* ---- from stage to stage ---- */

bt_micro_t bt_ranks_micro(bt_ranks_t *ranks, const bt_batch_t *batch)
{
    return (bt_micro_t){
        .whole = batch,
        .n = bt_micro_count(batch->n_rows, ranks->n_stages, ranks->micro_rows),
        .seqs = ranks->micro_seqs,
        .logit_rows = ranks->micro_logit_rows};
}

/* The last stage's next one is the first. */
static void send_on(bt_ranks_t *ranks, const bt_collectives_t *coll,
                    const void *data, size_t bytes)
{
    if (ranks->status == BT_OK) {
        ranks->status =
            coll->send(coll->ctx, data, bytes,
                       (coll->rank + ranks->stage_size) % coll->size);
    }
}

/* Who sends to this one; to the first stage the last one. */
static uint32_t before(const bt_ranks_t *ranks, const bt_collectives_t *coll)
{
    return (coll->rank + coll->size - ranks->stage_size) % coll->size;
}

static void receive(bt_ranks_t *ranks, const bt_collectives_t *coll, void *data,
                    size_t bytes)
{
    if (ranks->status == BT_OK) {
        ranks->status = coll->recv(coll->ctx, data, bytes, before(ranks, coll));
    }
}

void bt_ranks_pass_rows(bt_ranks_t *ranks, const float *x, size_t n)
{
    send_on(ranks, ranks->tables.buffers, x, n * sizeof(*x));
}

void bt_ranks_take_rows(bt_ranks_t *ranks, float *x, size_t n)
{
    receive(ranks, ranks->tables.buffers, x, n * sizeof(*x));
}

/* ---- words ---- */

bt_batch_t bt_ranks_own_words(bt_ranks_t *ranks, const bt_shard_t *shard,
                              const bt_batch_t *batch)
{
    const bt_share_t words = shard->words;
    bt_batch_t own = *batch;

    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const uint32_t word = batch->tokens[i] - words.first; /* or huge */

        ranks->tokens[i] = (word < words.n) ? word : 0;
    }
    own.tokens = ranks->tokens;
    return own;
}

void bt_ranks_clear_others(const bt_shard_t *shard, const bt_batch_t *batch,
                           bt_backend_t *be, float *x, uint32_t dim)
{
    uint32_t n = 0; /* such rows, one behind the other, up to row i */

    for (uint32_t i = 0; i <= batch->n_rows; i++) {
        if ((i < batch->n_rows) &&
            (batch->tokens[i] - shard->words.first >= shard->words.n)) {
            n++;
        } else if (n > 0) {
            be->ops->clear(be, x + (size_t)(i - n) * dim,
                           (size_t)n * dim * sizeof(*x));
            n = 0;
        }
    }
}

/* ---- orders ---- */

static void tell_over(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      void *data, size_t bytes)
{
    if ((ranks->status == BT_OK) && (coll != NULL) && (bytes > 0)) {
        ranks->status = coll->broadcast(coll->ctx, data, bytes, 0);
    }
}

/* To the next stage, ahead of the rows that it is for. */
static void pass_order(bt_ranks_t *ranks, order_t *order)
{
    const bt_collectives_t *const host = ranks->tables.host;

    send_on(ranks, host, order, sizeof(*order));
    send_on(ranks, host, ranks->words, order->n_words * sizeof(*ranks->words));
}

/* In one stage to all at once. With several an order goes from stage to stage,
 * as rows do, so that nobody waits for a stage that is still at work. */
static void tell(bt_ranks_t *ranks, const order_t *order)
{
    const bt_collectives_t *const stage = ranks->tables.host_stage;
    order_t copy = *order;

    tell_over(ranks, stage, &copy, sizeof(copy));
    tell_over(ranks, stage, ranks->words,
              order->n_words * sizeof(*ranks->words));
    if ((ranks->n_stages > 1) && (order->kind != ORDER_RESULTS)) {
        pass_order(ranks, &copy);
    }
}

static uint32_t n_blocks_of(const bt_forward_t *fwd, const bt_ragged_seq_t *seq)
{
    const uint32_t t = (fwd->groups == NULL) ? fwd->kv.tokens_per_block
                                             : fwd->groups->tokens_per_block;
    const uint32_t n = (fwd->groups == NULL) ? 1 : fwd->groups->n;

    return (seq->pos + seq->n_rows + t - 1) / t * n;
}

/* Behind the words that are there. */
static void put(bt_ranks_t *ranks, size_t *n, const void *words, size_t count)
{
    BT_ASSERT_ALWAYS(count <= ranks->max_words - *n);
    memcpy(ranks->words + *n, words, count * sizeof(*ranks->words));
    *n += count;
}

static void put_seq(bt_ranks_t *ranks, size_t *n, const bt_forward_t *fwd,
                    const bt_ragged_seq_t *seq)
{
    const uint32_t n_blocks = n_blocks_of(fwd, seq);
    const uint32_t head[] = {seq->row, seq->n_rows, seq->pos, n_blocks};

    put(ranks, n, head, BT_ARRAY_LEN(head));
    put(ranks, n, seq->blocks, n_blocks);
}

static uint32_t needs(const bt_forward_t *fwd, uint32_t i)
{
    return (fwd->needs == NULL) ? 0 : fwd->needs[i];
}

static void put_logit_rows(bt_ranks_t *ranks, size_t *n,
                           const bt_forward_t *fwd, uint32_t first,
                           uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const uint32_t row[] = {fwd->logit_rows[i], needs(fwd, i)};

        put(ranks, n, row, BT_ARRAY_LEN(row));
    }
}

bool bt_ranks_talks_between(const bt_ranks_t *ranks, const bt_forward_t *fwd)
{
    return ranks->may_talk && (fwd->first_row == 0) &&
           ((fwd->take_late != NULL) || (fwd->between_layers != NULL));
}

void bt_ranks_tell_step(bt_ranks_t *ranks, const bt_forward_t *fwd)
{
    const uint32_t head[] = {fwd->n_rows, fwd->n_seqs, fwd->n_logit_rows,
                             fwd->first_row,
                             bt_ranks_talks_between(ranks, fwd)};
    size_t n = 0;

    put(ranks, &n, head, BT_ARRAY_LEN(head));
    put(ranks, &n, fwd->tokens, fwd->n_rows);
    for (uint32_t i = 0; i < fwd->n_seqs; i++) {
        put_seq(ranks, &n, fwd, &fwd->seqs[i]);
    }
    put_logit_rows(ranks, &n, fwd, 0, fwd->n_logit_rows);
    tell(ranks, &(order_t){.kind = ORDER_STEP, .n_words = (uint32_t)n});
}

void bt_ranks_tell_late(bt_ranks_t *ranks, const bt_forward_t *fwd, uint32_t n)
{
    size_t n_words = 0;

    put(ranks, &n_words, fwd->tokens + fwd->n_rows, n);
    for (uint32_t i = 0; i < n; i++) {
        put_seq(ranks, &n_words, fwd, &fwd->seqs[fwd->n_seqs + i]);
    }
    put_logit_rows(ranks, &n_words, fwd, fwd->n_logit_rows,
                   fwd->n_logit_rows + n);
    tell(ranks,
         &(order_t){.kind = ORDER_LATE, .n_words = (uint32_t)n_words, .a = n});
}

void bt_ranks_tell_go_on(bt_ranks_t *ranks)
{
    tell(ranks, &(order_t){.kind = ORDER_GO_ON});
}

void bt_ranks_tell_copy(bt_ranks_t *ranks, uint32_t from, uint32_t to)
{
    tell(ranks, &(order_t){.kind = ORDER_COPY, .a = from, .b = to});
}

void bt_ranks_tell_clear(bt_ranks_t *ranks, uint32_t id)
{
    tell(ranks, &(order_t){.kind = ORDER_CLEAR, .a = id});
}

/* ---- results ---- */

/* What a rank sends of a row, the same of all. */
typedef struct parcel {
    size_t bytes;
    uint32_t n; /* candidates at most, behind their number; 1: without it, the
                   best word; 0: all logits */
} parcel_t;

#define CANDIDATES_BYTES(n) (sizeof(uint32_t) + (n) * sizeof(bt_candidate_t))

static parcel_t parcel_of(const bt_model_t *model, const bt_forward_t *fwd,
                          uint32_t i)
{
    const uint32_t size = model->shard.size;
    const size_t most = (model->hp.n_vocab + size - 1) / size; /* of a rank */
    const uint32_t n = needs(fwd, i);

    if (n == 1) {
        return (parcel_t){.bytes = sizeof(bt_candidate_t), .n = 1};
    }
    if ((n > 1) && (CANDIDATES_BYTES(n) < most * sizeof(float))) {
        return (parcel_t){.bytes = CANDIDATES_BYTES(n), .n = n};
    }
    return (parcel_t){.bytes = most * sizeof(float)};
}

/* All but the candidates of all ranks cannot be drawn. */
static void take_candidates(const bt_ranks_t *ranks, const bt_model_t *model,
                            float *row, parcel_t parcel, const uint8_t *from,
                            size_t bytes_each)
{
    const uint32_t n_vocab = model->hp.n_vocab;

    for (uint32_t id = 0; id < n_vocab; id++) {
        row[id] = -INFINITY;
    }
    for (uint32_t r = 0; r < ranks->stage_size; r++, from += bytes_each) {
        uint32_t n;

        memcpy(&n, from, sizeof(n));
        for (uint32_t k = 0; (k < n) && (k < parcel.n); k++) {
            bt_candidate_t c;

            memcpy(&c, from + CANDIDATES_BYTES(k), sizeof(c));
            if (c.id < n_vocab) {
                row[c.id] = c.logit;
            }
        }
    }
}

static void take_all(const bt_model_t *model, float *row, const uint8_t *from,
                     size_t bytes_each)
{
    for (uint32_t r = 0; r < model->shard.size; r++, from += bytes_each) {
        const bt_share_t words =
            bt_share_of(model->hp.n_vocab, 1, r, model->shard.size);

        memcpy(row + words.first, from, words.n * sizeof(*row));
    }
}

static uint32_t best_of(const bt_model_t *model, const uint8_t *from,
                        size_t bytes_each)
{
    bt_candidate_t best = {0};

    for (uint32_t r = 0; r < model->shard.size; r++, from += bytes_each) {
        bt_candidate_t theirs;

        memcpy(&theirs, from, sizeof(theirs));
        if ((r == 0) || (theirs.logit > best.logit)) { /* else the first */
            best = theirs;
        }
    }
    return best.id;
}

static void take_row(const bt_ranks_t *ranks, bt_model_t *model,
                     const bt_forward_t *fwd, uint32_t i, parcel_t parcel,
                     const uint8_t *from, size_t bytes_each)
{
    float *const logits =
        (model->host_logits != NULL) ? model->host_logits : model->logits;
    float *const row = logits + (size_t)i * model->hp.n_vocab;

    if (parcel.n == 1) {
        fwd->best_ids[i] = best_of(model, from, bytes_each);
    } else if (parcel.n > 1) {
        take_candidates(ranks, model, row, parcel, from, bytes_each);
    } else {
        take_all(model, row, from, bytes_each);
    }
}

/* What this rank's words are to a row. */
static void put_row(bt_ranks_t *ranks, const bt_model_t *model,
                    const float *row, parcel_t parcel, uint8_t *to)
{
    const uint32_t own = model->own.n_vocab;
    const uint32_t first = model->shard.words.first;
    uint32_t n;

    if (parcel.n == 1) {
        const uint32_t id = bt_sampler_best(row, own);
        const bt_candidate_t best = {.logit = row[id], .id = id + first};

        memcpy(to, &best, sizeof(best));
        return;
    }
    if (parcel.n == 0) {
        memcpy(to, row, own * sizeof(*row));
        return;
    }
    n = bt_select_first(row, own, parcel.n, ranks->candidates);
    for (uint32_t k = 0; k < n; k++) {
        ranks->candidates[k].id += first;
    }
    memcpy(to, &n, sizeof(n));
    memcpy(to + sizeof(n), ranks->candidates, n * sizeof(*ranks->candidates));
}

/* What every rank says of the rows. */
static size_t results_bytes(const bt_model_t *model, const bt_forward_t *fwd)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        bytes += parcel_of(model, fwd, i).bytes;
    }
    return bytes;
}

/* From the last stage to the first something always comes: then all before it
 * have stored their K and V. The room is that of one row's best at least. */
static size_t message_bytes(size_t bytes)
{
    return (bytes == 0) ? sizeof(uint32_t) : bytes;
}

/* What this rank has to say of the rows. */
static void put_results(bt_ranks_t *ranks, const bt_model_t *model,
                        const bt_forward_t *fwd)
{
    const float *const logits = (model->host_own_logits != NULL)
                                    ? model->host_own_logits
                                    : model->own_logits;
    size_t bytes = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        const parcel_t parcel = parcel_of(model, fwd, i);

        put_row(ranks, model, logits + (size_t)i * model->own.n_vocab, parcel,
                ranks->send + bytes);
        bytes += parcel.bytes;
    }
}

/* What the ranks of a stage have of the rows, put together at rank 0. */
static void share_results(bt_ranks_t *ranks, bt_model_t *model,
                          const bt_forward_t *fwd, const uint8_t *own,
                          size_t bytes)
{
    const bt_collectives_t *const stage = ranks->tables.host_stage;
    size_t at = 0;

    if (bytes == 0) { /* all have stored their K and V when this is over */
        float nothing = 0.0f;

        sum_over(ranks, stage, &nothing, 1);
        return;
    }
    if (stage == NULL) {
        memcpy(ranks->recv, own, bytes);
    } else if (ranks->status == BT_OK) {
        ranks->status = stage->all_gather(stage->ctx, own, ranks->recv, bytes);
    }
    for (uint32_t i = 0; (ranks->status == BT_OK) && (ranks->rank == 0) &&
                         (i < fwd->n_logit_rows);
         i++) {
        const parcel_t parcel = parcel_of(model, fwd, i);

        take_row(ranks, model, fwd, i, parcel, ranks->recv + at, bytes);
        at += parcel.bytes;
    }
}

void bt_ranks_gather(bt_ranks_t *ranks, bt_model_t *model,
                     const bt_forward_t *fwd)
{
    const size_t bytes = results_bytes(model, fwd);

    if (bt_shard_is_last(&model->shard)) {
        put_results(ranks, model, fwd);
    }
    if (ranks->n_stages == 1) {
        share_results(ranks, model, fwd, ranks->send, bytes);
    } else if (bt_shard_is_last(&model->shard)) {
        send_on(ranks, ranks->tables.host, ranks->send, message_bytes(bytes));
    }
}

/* ---- results of several stages ---- */

static uint8_t *arrival_at(const bt_ranks_t *ranks, uint32_t k)
{
    return ranks->arrivals + k * ranks->result_bytes;
}

uint32_t bt_ranks_max_started(const bt_ranks_t *ranks)
{
    return ranks->max_started;
}

uint32_t bt_ranks_n_started(const bt_ranks_t *ranks)
{
    return ranks->n_started;
}

void bt_ranks_expect(bt_ranks_t *ranks, const bt_model_t *model,
                     const bt_forward_t *fwd)
{
    const bt_collectives_t *const host = ranks->tables.host;
    const uint32_t k =
        (ranks->first_started + ranks->n_started) % ranks->max_started;

    BT_ASSERT_ALWAYS(ranks->n_started < ranks->max_started);
    ranks->n_started++;
    ranks->arrival_bytes[k] = results_bytes(model, fwd);
    if (ranks->status == BT_OK) {
        ranks->status = host->recv_begin(host->ctx, arrival_at(ranks, k),
                                         message_bytes(ranks->arrival_bytes[k]),
                                         before(ranks, host));
    }
}

void bt_ranks_collect(bt_ranks_t *ranks, bt_model_t *model,
                      const bt_forward_t *fwd)
{
    const bt_collectives_t *const host = ranks->tables.host;
    const uint32_t k = ranks->first_started;

    BT_ASSERT_ALWAYS(ranks->n_started > 0);
    if (ranks->rank == 0) {
        tell(ranks, &(order_t){.kind = ORDER_RESULTS});
    }
    ranks->first_started = (k + 1) % ranks->max_started;
    ranks->n_started--;
    if (ranks->status == BT_OK) {
        ranks->status = host->recv_end(host->ctx);
    }
    share_results(ranks, model, fwd, arrival_at(ranks, k),
                  ranks->arrival_bytes[k]);
}

/* ---- following ---- */

/* From rank 0 of this stage, or from the stage before. */
static void hear_part(bt_ranks_t *ranks, void *data, size_t bytes)
{
    if (ranks->stage == 0) {
        tell_over(ranks, ranks->tables.host_stage, data, bytes);
    } else {
        receive(ranks, ranks->tables.host, data, bytes);
    }
}

static bool hear(bt_ranks_t *ranks, order_t *order_p)
{
    if (ranks->next.kind != 0) {
        *order_p = ranks->next;
        ranks->next.kind = 0;
        return true;
    }
    hear_part(ranks, order_p, sizeof(*order_p));
    if ((ranks->status == BT_OK) && (order_p->n_words > ranks->max_words)) {
        ranks->status = BT_ERR_BAD_MESSAGE; /* another configuration */
    }
    if (ranks->status == BT_OK) {
        hear_part(ranks, ranks->words,
                  order_p->n_words * sizeof(*ranks->words));
    }
    if ((ranks->stage + 1 < ranks->n_stages) &&
        (order_p->kind != ORDER_RESULTS)) {
        pass_order(ranks, order_p);
    }
    return ranks->status == BT_OK;
}

/* The words of an order. Rank 0 has the same configuration; what does not fit
 * into ours all the same comes from one that has not. */
typedef struct cursor {
    const uint32_t *at;
    size_t left;
} cursor_t;

/* @return NULL: they are not there */
static const uint32_t *take(cursor_t *c, size_t n)
{
    const uint32_t *words = c->at;

    if (n > c->left) {
        return NULL;
    }
    c->at += n;
    c->left -= n;
    return words;
}

static bool take_tokens(const bt_ranks_t *ranks, call_t *call, cursor_t *c,
                        uint32_t first, uint32_t n)
{
    const uint32_t *tokens = take(c, n);

    if ((tokens == NULL) || (first > ranks->max_rows) ||
        (n > ranks->max_rows - first)) {
        return false;
    }
    memcpy(call->tokens + first, tokens, n * sizeof(*tokens));
    return true;
}

static bool take_seqs(const bt_ranks_t *ranks, call_t *call, cursor_t *c,
                      uint32_t first, uint32_t n)
{
    if ((first > ranks->max_seqs) || (n > ranks->max_seqs - first)) {
        return false;
    }
    for (uint32_t i = first; i < first + n; i++) {
        const uint32_t *head = take(c, 4);
        const uint32_t *blocks = (head == NULL) ? NULL : take(c, head[3]);

        if ((blocks == NULL) ||
            (head[3] > ranks->max_blocks - call->n_blocks)) {
            return false;
        }
        call->seqs[i] =
            (bt_ragged_seq_t){.row = head[0],
                              .n_rows = head[1],
                              .pos = head[2],
                              .blocks = call->blocks + call->n_blocks};
        memcpy(call->blocks + call->n_blocks, blocks,
               head[3] * sizeof(*blocks));
        call->n_blocks += head[3];
    }
    return true;
}

static bool take_logit_rows(const bt_ranks_t *ranks, call_t *call, cursor_t *c,
                            uint32_t first, uint32_t n)
{
    const uint32_t *words = take(c, 2 * (size_t)n);

    if ((words == NULL) || (first > ranks->max_logit_rows) ||
        (n > ranks->max_logit_rows - first)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        call->logit_rows[first + i] = words[2 * i];
        call->needs[first + i] = words[2 * i + 1];
        if (call->needs[first + i] > BT_SAMPLER_MAX_NEEDS) {
            return false;
        }
    }
    return true;
}

static void fail_order(bt_ranks_t *ranks)
{
    bt_ranks_fail(ranks, BT_ERR_BAD_MESSAGE);
}

static void follow_step(bt_model_t *model, const bt_kv_view_t *kv,
                        const bt_kv_groups_t *groups, uint32_t n_words);

/* What is asked for of blocks is done. @return false: it was something else */
static bool follow_block(bt_model_t *model, const bt_kv_view_t *kv,
                         const order_t *order)
{
    if (order->kind == ORDER_COPY) {
        bt_model_copy_block(model, kv, order->a, order->b);
    } else if (order->kind == ORDER_CLEAR) {
        bt_model_clear_block(model, kv, order->a);
    } else {
        return false;
    }
    return true;
}

/* The next order within a call that is not of blocks. */
static bool hear_within(bt_model_t *model, const call_t *call, order_t *order_p)
{
    bool is_heard;

    do {
        is_heard = hear(model->ranks, order_p);
    } while (is_heard && follow_block(model, &call->fwd.kv, order_p));
    return is_heard;
}

static uint32_t follow_late(void *ctx, uint32_t n_layers)
{
    bt_model_t *model = ctx;
    bt_ranks_t *ranks = model->ranks;
    call_t *call = &ranks->calls[0];
    order_t order;
    cursor_t c;

    (void)n_layers;
    if (!hear_within(model, call, &order)) {
        return 0;
    }
    if (order.kind != ORDER_LATE) {
        ranks->next = order;
        return 0;
    }
    c = (cursor_t){.at = ranks->words, .left = order.n_words};
    if (!take_tokens(ranks, call, &c, call->fwd.n_rows, order.a) ||
        !take_seqs(ranks, call, &c, call->fwd.n_seqs, order.a) ||
        !take_logit_rows(ranks, call, &c, call->fwd.n_logit_rows, order.a)) {
        fail_order(ranks);
        return 0;
    }
    call->fwd.n_rows += order.a;
    call->fwd.n_seqs += order.a;
    call->fwd.n_logit_rows += order.a;
    return order.a;
}

static void follow_between(void *ctx, uint32_t n_layers)
{
    bt_model_t *model = ctx;
    bt_ranks_t *ranks = model->ranks;
    const call_t *call = &ranks->calls[0];
    order_t order;

    (void)n_layers;
    while (hear_within(model, call, &order) && (order.kind == ORDER_STEP)) {
        ranks->depth = 1;
        follow_step(model, &call->fwd.kv, call->fwd.groups, order.n_words);
        ranks->depth = 0;
    }
    if ((ranks->status == BT_OK) && (order.kind != ORDER_GO_ON)) {
        ranks->status = BT_ERR_BAD_MESSAGE;
    }
}

static void follow_step(bt_model_t *model, const bt_kv_view_t *kv,
                        const bt_kv_groups_t *groups, uint32_t n_words)
{
    bt_ranks_t *ranks = model->ranks;
    call_t *call = &ranks->calls[ranks->depth];
    cursor_t c = {.at = ranks->words, .left = n_words};
    const uint32_t *head = take(&c, STEP_WORDS);
    const bool talks = (head != NULL) && (head[4] != 0);
    float *logits;
    bt_status_t status;

    if (head == NULL) {
        fail_order(ranks);
        return;
    }
    call->n_blocks = 0;
    call->fwd = (bt_forward_t){
        .seqs = call->seqs,
        .n_seqs = head[1],
        .tokens = call->tokens,
        .n_rows = head[0],
        .first_row = head[3],
        .logit_rows = call->logit_rows,
        .n_logit_rows = head[2],
        .needs = call->needs,
        .best_ids = call->best_ids,
        .kv = *kv,
        .groups = groups,
        .take_late = talks ? follow_late : NULL,
        .take_late_ctx = model,
        .between_layers = talks ? follow_between : NULL,
        .between_layers_ctx = model,
    };
    if (!take_tokens(ranks, call, &c, 0, head[0]) ||
        !take_seqs(ranks, call, &c, 0, head[1]) ||
        !take_logit_rows(ranks, call, &c, 0, head[2])) {
        fail_order(ranks);
        return;
    }
    status = bt_model_takes_results(model)
                 ? bt_model_start(model, &call->fwd)
                 : bt_model_forward(model, &call->fwd, &logits);
    if (status != BT_OK) {
        bt_ranks_fail(ranks, status);
    }
}

/* Of a step of which the last stage has told. */
static void follow_results(bt_model_t *model)
{
    float *logits;
    const bt_status_t status =
        bt_model_finish(model, &model->ranks->calls[0].fwd, &logits);

    if (status != BT_OK) {
        bt_ranks_fail(model->ranks, status);
    }
}

bt_status_t bt_model_follow(bt_model_t *model, const bt_kv_view_t *kv,
                            const bt_kv_groups_t *groups)
{
    bt_ranks_t *ranks = model->ranks;
    order_t order = {0};

    while (hear(ranks, &order) && (order.kind != ORDER_END)) {
        if (order.kind == ORDER_STEP) {
            follow_step(model, kv, groups, order.n_words);
        } else if (order.kind == ORDER_RESULTS) {
            follow_results(model);
        } else if (!follow_block(model, kv, &order)) {
            ranks->status = BT_ERR_BAD_MESSAGE;
        }
    }
    return ranks->status;
}

void bt_model_end_ranks(bt_model_t *model)
{
    if ((model->ranks != NULL) && (model->config.host_coll->rank == 0)) {
        tell(model->ranks, &(order_t){.kind = ORDER_END});
    }
}

/* ---- life ---- */

static bt_status_t call_init(call_t *call, const bt_ranks_t *ranks)
{
    const size_t n_logit_rows = ranks->max_logit_rows;

    call->seqs = bt_calloc(ranks->max_seqs, sizeof(*call->seqs));
    call->tokens = bt_calloc(ranks->max_rows, sizeof(*call->tokens));
    call->logit_rows = bt_calloc(n_logit_rows, sizeof(*call->logit_rows));
    call->needs = bt_calloc(n_logit_rows, sizeof(*call->needs));
    call->best_ids = bt_calloc(n_logit_rows, sizeof(*call->best_ids));
    call->blocks = bt_calloc(ranks->max_blocks, sizeof(*call->blocks));
    return ((call->seqs != NULL) && (call->tokens != NULL) &&
            (call->logit_rows != NULL) && (call->needs != NULL) &&
            (call->best_ids != NULL) && (call->blocks != NULL))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

static void call_fini(call_t *call)
{
    bt_free(call->seqs);
    bt_free(call->tokens);
    bt_free(call->logit_rows);
    bt_free(call->needs);
    bt_free(call->best_ids);
    bt_free(call->blocks);
}

/* What the most that a call brings comes to. */
static void settle(bt_ranks_t *ranks, const bt_collectives_t *coll,
                   const bt_model_config_t *c, const bt_hparams_t *hp)
{
    const size_t t = (c->tokens_per_block != 0) ? c->tokens_per_block : 1;
    const size_t spans = ((size_t)c->context_tokens + t - 1) / t;
    const uint32_t n_stages = (c->n_stages == 0) ? 1 : c->n_stages;
    const size_t size = coll->size / n_stages;
    const size_t words = (hp->n_vocab + size - 1) / size;
    const size_t row_bytes = words * sizeof(float);

    ranks->rank = coll->rank;
    ranks->n_stages = n_stages;
    ranks->stage_size = (uint32_t)size;
    ranks->stage = coll->rank / ranks->stage_size;
    if ((n_stages > 1) && (ranks->stage == 0)) {
        ranks->max_started =
            (n_stages < BT_COLL_MAX_BEGUN) ? n_stages : BT_COLL_MAX_BEGUN;
    }
    ranks->micro_rows = c->micro_rows;
    ranks->max_rows = c->max_rows;
    ranks->max_seqs = (c->max_seqs != 0) ? c->max_seqs : c->max_rows;
    ranks->max_logit_rows = c->max_logit_rows;
    ranks->max_blocks =
        ranks->max_seqs * spans * (1 + (size_t)c->n_other_groups);
    ranks->max_words = STEP_WORDS + (size_t)c->max_rows +
                       4 * (size_t)ranks->max_seqs + ranks->max_blocks +
                       2 * (size_t)c->max_logit_rows;
    ranks->result_bytes =
        c->max_logit_rows * ((row_bytes > sizeof(bt_candidate_t))
                                 ? row_bytes
                                 : sizeof(bt_candidate_t));
}

static size_t micro_bytes(const bt_ranks_t *ranks)
{
    return (ranks->n_stages == 1)
               ? 0
               : ranks->max_seqs * sizeof(*ranks->micro_seqs) +
                     ranks->max_logit_rows * sizeof(*ranks->micro_logit_rows);
}

size_t bt_ranks_bytes(const bt_collectives_t *coll,
                      const bt_model_config_t *config, const bt_hparams_t *hp)
{
    bt_ranks_t ranks = {0};

    settle(&ranks, coll, config, hp);
    return (ranks.max_words + ranks.max_rows) * sizeof(uint32_t) +
           ranks.result_bytes *
               (1 + (size_t)ranks.stage_size + ranks.max_started) +
           BT_SAMPLER_MAX_NEEDS * sizeof(*ranks.candidates) +
           micro_bytes(&ranks) +
           ((coll->rank == 0)
                ? 0
                : 2 * (ranks.max_blocks + 2 * (size_t)ranks.max_rows) *
                      sizeof(uint32_t));
}

bt_status_t bt_ranks_create(bt_backend_t *be, const bt_model_config_t *c,
                            const bt_hparams_t *hp, bt_ranks_t **ranks_p)
{
    const bt_collectives_t *const coll = c->host_coll;
    bt_ranks_t *ranks = bt_calloc(1, sizeof(*ranks));
    bt_status_t status;

    if (ranks == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    settle(ranks, coll, c, hp);
    ranks->may_talk = (ranks->n_stages == 1) && (be->ops->batch_begin == NULL);
    ranks->words = bt_calloc(ranks->max_words, sizeof(*ranks->words));
    ranks->tokens = bt_calloc(c->max_rows, sizeof(*ranks->tokens));
    ranks->send = bt_calloc(ranks->result_bytes, 1);
    ranks->recv = bt_calloc(ranks->result_bytes, ranks->stage_size);
    ranks->candidates =
        bt_calloc(BT_SAMPLER_MAX_NEEDS, sizeof(*ranks->candidates));
    ranks->calls = bt_calloc(2, sizeof(*ranks->calls));
    status = ((ranks->words == NULL) || (ranks->tokens == NULL) ||
              (ranks->send == NULL) || (ranks->recv == NULL) ||
              (ranks->candidates == NULL) || (ranks->calls == NULL))
                 ? BT_ERR_NO_MEMORY
                 : BT_OK;
    if ((status == BT_OK) && (ranks->n_stages > 1)) {
        ranks->micro_seqs =
            bt_calloc(ranks->max_seqs, sizeof(*ranks->micro_seqs));
        ranks->micro_logit_rows =
            bt_calloc(ranks->max_logit_rows, sizeof(*ranks->micro_logit_rows));
        status =
            ((ranks->micro_seqs == NULL) || (ranks->micro_logit_rows == NULL))
                ? BT_ERR_NO_MEMORY
                : BT_OK;
    }
    if ((status == BT_OK) && (ranks->max_started > 0)) {
        ranks->arrivals = bt_calloc(ranks->result_bytes, ranks->max_started);
        ranks->arrival_bytes =
            bt_calloc(ranks->max_started, sizeof(*ranks->arrival_bytes));
        status = ((ranks->arrivals == NULL) || (ranks->arrival_bytes == NULL))
                     ? BT_ERR_NO_MEMORY
                     : BT_OK;
    }
    for (uint32_t i = 0; (status == BT_OK) && (coll->rank != 0) && (i < 2);
         i++) {
        status = call_init(&ranks->calls[i], ranks);
    }
    if (status == BT_OK) {
        status = bt_rank_tables_open(
            be, coll, (ranks->n_stages == 1) ? coll : c->host_stage,
            &ranks->tables);
    }
    if (status != BT_OK) {
        bt_ranks_destroy(ranks);
        return status;
    }
    *ranks_p = ranks;
    return BT_OK;
}

void bt_ranks_destroy(bt_ranks_t *ranks)
{
    if (ranks == NULL) {
        return;
    }
    bt_rank_tables_close(&ranks->tables);
    for (uint32_t i = 0; (ranks->calls != NULL) && (i < 2); i++) {
        call_fini(&ranks->calls[i]);
    }
    bt_free(ranks->calls);
    bt_free(ranks->micro_seqs);
    bt_free(ranks->micro_logit_rows);
    bt_free(ranks->words);
    bt_free(ranks->tokens);
    bt_free(ranks->send);
    bt_free(ranks->recv);
    bt_free(ranks->arrivals);
    bt_free(ranks->arrival_bytes);
    bt_free(ranks->candidates);
    bt_free(ranks);
}
