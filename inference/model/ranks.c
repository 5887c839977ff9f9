/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/ranks.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/model/ranks_priv.h"

/* Message of rank 0 about the second communicator. */
typedef struct comm_id {
    uint8_t id[BT_COLLECTIVES_ID_BYTES];
    uint8_t ok;
} comm_id_t;

bool bt_rank_tables_can(const bt_backend_t *be)
{
    return !bt_backend_owns_memory(be) || (be->ops->collectives_open != NULL);
}

static bt_status_t open_among(bt_backend_t *be, const bt_collectives_t *host,
                              bt_collectives_t **made_p)
{
    comm_id_t id = {.ok = 0};
    bt_status_t made = BT_OK;
    bt_status_t status;

    if (host->rank == 0) {
        made = be->ops->collectives_id(be, id.id);
        id.ok = made == BT_OK; /* the others wait for it in any case */
    }
    status = host->broadcast(host->ctx, &id, sizeof(id), 0);
    if (status != BT_OK) {
        return status;
    }
    if (id.ok == 0) {
        return (made != BT_OK) ? made : BT_ERR_PEER_LOST;
    }
    return be->ops->collectives_open(be, host->rank, host->size, id.id, made_p);
}

static void tables_close(bt_rank_tables_t *tables)
{
    if (tables->made_stage != NULL) {
        tables->be->ops->collectives_close(tables->made_stage);
    }
    if (tables->made != NULL) {
        tables->be->ops->collectives_close(tables->made);
    }
    *tables = (bt_rank_tables_t){0};
}

static bt_status_t tables_open(bt_backend_t *be, const bt_collectives_t *host,
                               const bt_collectives_t *host_stage,
                               bt_rank_tables_t *tables_p)
{
    bt_rank_tables_t tables = {.host = host,
                               .host_stage = host_stage,
                               .buffers = host,
                               .buffers_stage = host_stage,
                               .be = be};
    bt_status_t status = BT_OK;

    if (bt_backend_owns_memory(be)) {
        status = open_among(be, host, &tables.made);
        tables.buffers = tables.made;
        tables.buffers_stage = (host_stage == host) ? tables.made : NULL;
        if ((status == BT_OK) && (host_stage != NULL) && (host_stage != host)) {
            status = open_among(be, host_stage, &tables.made_stage);
            tables.buffers_stage = tables.made_stage;
        }
    }
    if (status != BT_OK) {
        tables_close(&tables);
        return status;
    }
    *tables_p = tables;
    return BT_OK;
}

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

void bt_ranks_sum_over(bt_ranks_t *ranks, const bt_collectives_t *coll,
                       float *x, size_t n)
{
    if ((ranks->status == BT_OK) && (coll != NULL)) {
        ranks->status = coll->all_reduce_sum(coll->ctx, x, n);
    }
}

void bt_ranks_sum(bt_ranks_t *ranks, float *x, size_t n)
{
    bt_ranks_sum_over(ranks, ranks->tables.buffers_stage, x, n);
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

/* The last stage sends to the first. */
void bt_ranks_send_on(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      const void *data, size_t bytes)
{
    if (ranks->status == BT_OK) {
        ranks->status =
            coll->send(coll->ctx, data, bytes,
                       (coll->rank + ranks->stage_size) % coll->size);
    }
}

/* Returns the rank that sends to this one; for the first stage a rank of the
 * last one. */
uint32_t bt_ranks_before(const bt_ranks_t *ranks, const bt_collectives_t *coll)
{
    return (coll->rank + coll->size - ranks->stage_size) % coll->size;
}

void bt_ranks_receive(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      void *data, size_t bytes)
{
    if (ranks->status == BT_OK) {
        ranks->status =
            coll->recv(coll->ctx, data, bytes, bt_ranks_before(ranks, coll));
    }
}

void bt_ranks_pass_rows(bt_ranks_t *ranks, const float *x, size_t n)
{
    bt_ranks_send_on(ranks, ranks->tables.buffers, x, n * sizeof(*x));
}

void bt_ranks_take_rows(bt_ranks_t *ranks, float *x, size_t n)
{
    bt_ranks_receive(ranks, ranks->tables.buffers, x, n * sizeof(*x));
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
    uint32_t n = 0; /* number of consecutive such rows up to row i */

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

void bt_ranks_share(bt_ranks_t *ranks, const bt_collectives_t *coll, void *data,
                    size_t bytes)
{
    if ((ranks->status == BT_OK) && (coll != NULL) && (bytes > 0)) {
        ranks->status = coll->broadcast(coll->ctx, data, bytes, 0);
    }
}

/* Sends to the next stage, ahead of the rows that the order belongs to. */
void bt_ranks_pass_order(bt_ranks_t *ranks, bt_rank_order_t *order)
{
    const bt_collectives_t *const host = ranks->tables.host;

    bt_ranks_send_on(ranks, host, order, sizeof(*order));
    bt_ranks_send_on(ranks, host, ranks->words,
                     order->n_words * sizeof(*ranks->words));
}

/* With one stage, sends to all at once. With several, an order goes from stage
 * to stage, as rows do, so that no rank waits for a busy stage. */
void bt_ranks_tell(bt_ranks_t *ranks, const bt_rank_order_t *order)
{
    const bt_collectives_t *const stage = ranks->tables.host_stage;
    bt_rank_order_t copy = *order;

    bt_ranks_share(ranks, stage, &copy, sizeof(copy));
    bt_ranks_share(ranks, stage, ranks->words,
                   order->n_words * sizeof(*ranks->words));
    if ((ranks->n_stages > 1) && (order->kind != BT_RANK_RESULTS)) {
        bt_ranks_pass_order(ranks, &copy);
    }
}

static uint32_t n_blocks_of(const bt_forward_t *fwd, const bt_ragged_seq_t *seq)
{
    const uint32_t t = (fwd->groups == NULL) ? fwd->kv.tokens_per_block
                                             : fwd->groups->tokens_per_block;
    const uint32_t n = (fwd->groups == NULL) ? 1 : fwd->groups->n;

    return (seq->pos + seq->n_rows + t - 1) / t * n;
}

/* Appends to the words of the order. */
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

static void put_logit_rows(bt_ranks_t *ranks, size_t *n,
                           const bt_forward_t *fwd, uint32_t first,
                           uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const uint32_t row[] = {fwd->logit_rows[i], bt_rank_needs(fwd, i)};

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
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_STEP,
                                            .n_words = (uint32_t)n});
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
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_LATE,
                                            .n_words = (uint32_t)n_words,
                                            .a = n});
}

void bt_ranks_tell_go_on(bt_ranks_t *ranks)
{
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_GO_ON});
}

void bt_ranks_tell_copy(bt_ranks_t *ranks, uint32_t from, uint32_t to)
{
    bt_ranks_tell(ranks,
                  &(bt_rank_order_t){.kind = BT_RANK_COPY, .a = from, .b = to});
}

void bt_ranks_tell_clear(bt_ranks_t *ranks, uint32_t id)
{
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_CLEAR, .a = id});
}

void bt_ranks_tell_draft(bt_ranks_t *ranks)
{
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_DRAFT});
}

void bt_model_end_ranks(bt_model_t *model)
{
    if ((model->ranks != NULL) && (model->config.host_coll->rank == 0)) {
        bt_ranks_tell(model->ranks, &(bt_rank_order_t){.kind = BT_RANK_END});
    }
}

/* ---- life cycle ---- */

/* Computes the most bytes of a call's results. */
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
    ranks->max_words = BT_RANK_STEP_WORDS + (size_t)c->max_rows +
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

/* Allocates the buffers of every rank. */
static bt_status_t alloc_common(bt_ranks_t *ranks)
{
    ranks->words = bt_calloc(ranks->max_words, sizeof(*ranks->words));
    ranks->tokens = bt_calloc(ranks->max_rows, sizeof(*ranks->tokens));
    ranks->send = bt_calloc(ranks->result_bytes, 1);
    ranks->recv = bt_calloc(ranks->result_bytes, ranks->stage_size);
    ranks->candidates =
        bt_calloc(BT_SAMPLER_MAX_NEEDS, sizeof(*ranks->candidates));
    ranks->calls = bt_calloc(2, sizeof(*ranks->calls));
    return ((ranks->words == NULL) || (ranks->tokens == NULL) ||
            (ranks->send == NULL) || (ranks->recv == NULL) ||
            (ranks->candidates == NULL) || (ranks->calls == NULL))
               ? BT_ERR_NO_MEMORY
               : BT_OK;
}

/* Allocates the buffers of a rank of several stages, and of the first stage. */
static bt_status_t alloc_stages(bt_ranks_t *ranks)
{
    if (ranks->n_stages > 1) {
        ranks->micro_seqs =
            bt_calloc(ranks->max_seqs, sizeof(*ranks->micro_seqs));
        ranks->micro_logit_rows =
            bt_calloc(ranks->max_logit_rows, sizeof(*ranks->micro_logit_rows));
        if ((ranks->micro_seqs == NULL) || (ranks->micro_logit_rows == NULL)) {
            return BT_ERR_NO_MEMORY;
        }
    }
    if (ranks->max_started > 0) {
        ranks->arrivals = bt_calloc(ranks->result_bytes, ranks->max_started);
        ranks->arrival_bytes =
            bt_calloc(ranks->max_started, sizeof(*ranks->arrival_bytes));
        if ((ranks->arrivals == NULL) || (ranks->arrival_bytes == NULL)) {
            return BT_ERR_NO_MEMORY;
        }
    }
    return BT_OK;
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
    status = alloc_common(ranks);
    if (status == BT_OK) {
        status = alloc_stages(ranks);
    }
    for (uint32_t i = 0; (status == BT_OK) && (coll->rank != 0) && (i < 2);
         i++) {
        status = bt_rank_call_init(&ranks->calls[i], ranks);
    }
    if (status == BT_OK) {
        status =
            tables_open(be, coll, (ranks->n_stages == 1) ? coll : c->host_stage,
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
    tables_close(&ranks->tables);
    for (uint32_t i = 0; (ranks->calls != NULL) && (i < 2); i++) {
        bt_rank_call_fini(&ranks->calls[i]);
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
