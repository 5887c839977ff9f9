/* SPDX-License-Identifier: Apache-2.0 */
/* Combines the results of a call over all ranks' words at rank 0. */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/model/ranks_priv.h"

/* Size of a rank's result for a row, equal for all ranks. */
typedef struct parcel {
    size_t bytes;
    uint32_t n; /* candidates at most, preceded by their number; 1: only the
                   best word, without the number; 0: all logits */
} parcel_t;

#define CANDIDATES_BYTES(n) (sizeof(uint32_t) + (n) * sizeof(bt_candidate_t))

static parcel_t parcel_of(const bt_model_t *model, const bt_forward_t *fwd,
                          uint32_t i)
{
    const uint32_t size = model->shard.size;
    const size_t most = (model->hp.n_vocab + size - 1) / size; /* words */
    const uint32_t n = bt_rank_needs(fwd, i);

    if (n == 1) {
        return (parcel_t){.bytes = sizeof(bt_candidate_t), .n = 1};
    }
    if ((n > 1) && (CANDIDATES_BYTES(n) < most * sizeof(float))) {
        return (parcel_t){.bytes = CANDIDATES_BYTES(n), .n = n};
    }
    return (parcel_t){.bytes = most * sizeof(float)};
}

/* Makes all tokens but the ranks' candidates impossible to draw. */
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
        if ((r == 0) || (theirs.logit > best.logit)) { /* ties: the first */
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

_Static_assert(BT_SAMPLER_MAX_NEEDS == BT_TOP_MAX,
               "what a draw may need can be found");

uint32_t bt_ranks_first(const bt_model_t *model, const bt_forward_t *fwd)
{
    uint32_t most = 0;
    uint32_t k = 1;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        const uint32_t n = parcel_of(model, fwd, i).n;

        if (n == 0) {
            return 0;
        }
        most = (n > most) ? n : most;
    }
    while (k < most) {
        k *= 2;
    }
    return (most == 0) ? 0 : k;
}

/* Packs this rank's result for row i from the first candidates that the back
 * end found. */
static void put_first(const bt_model_t *model, const bt_forward_t *fwd,
                      uint32_t i, parcel_t parcel, uint8_t *to)
{
    const uint32_t k = model->n_own_first;
    const uint32_t *const ids = model->host_own_first + (size_t)i * k;
    const float *const logits =
        (const float *)(const void *)(model->host_own_first +
                                      (size_t)fwd->n_logit_rows * k) +
        (size_t)i * k;
    const uint32_t first = model->shard.words.first;
    uint32_t n = 0;

    for (; (n < parcel.n) && (ids[n] != UINT32_MAX); n++) {
        const bt_candidate_t c = {.logit = logits[n], .id = ids[n] + first};

        memcpy(to + ((parcel.n == 1) ? 0 : CANDIDATES_BYTES(n)), &c, sizeof(c));
    }
    if (parcel.n > 1) {
        memcpy(to, &n, sizeof(n));
    } else if (n == 0) { /* bt_sampler_best() of a row without any */
        const bt_candidate_t none = {.logit = -INFINITY, .id = first};

        memcpy(to, &none, sizeof(none));
    }
}

/* Packs this rank's result for row i from all of its logits. */
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

/* Returns the bytes of each rank's results of all rows. */
static size_t results_bytes(const bt_model_t *model, const bt_forward_t *fwd)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        bytes += parcel_of(model, fwd, i).bytes;
    }
    return bytes;
}

/* From the last stage to the first at least one word is always sent: then all
 * stages before have stored their K and V. Buffers hold one row's best at
 * least. */
static size_t message_bytes(size_t bytes)
{
    return (bytes == 0) ? sizeof(uint32_t) : bytes;
}

/* Packs this rank's results of the rows. */
static void put_results(bt_ranks_t *ranks, const bt_model_t *model,
                        const bt_forward_t *fwd)
{
    const float *const logits = (model->host_own_logits != NULL)
                                    ? model->host_own_logits
                                    : model->own_logits;
    size_t bytes = 0;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        const parcel_t parcel = parcel_of(model, fwd, i);

        if (model->n_own_first > 0) {
            put_first(model, fwd, i, parcel, ranks->send + bytes);
        } else {
            put_row(ranks, model, logits + (size_t)i * model->own.n_vocab,
                    parcel, ranks->send + bytes);
        }
        bytes += parcel.bytes;
    }
}

/* Gathers the results of a stage's ranks at rank 0. */
static void share_results(bt_ranks_t *ranks, bt_model_t *model,
                          const bt_forward_t *fwd, const uint8_t *own,
                          size_t bytes)
{
    const bt_collectives_t *const stage = ranks->tables.host_stage;
    size_t at = 0;

    if (bytes == 0) { /* all have stored their K and V when this returns */
        float nothing = 0.0f;

        bt_ranks_sum_over(ranks, stage, &nothing, 1);
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
        bt_ranks_send_on(ranks, ranks->tables.host, ranks->send,
                         message_bytes(bytes));
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
                                         bt_ranks_before(ranks, host));
    }
}

void bt_ranks_tell_results(bt_ranks_t *ranks)
{
    bt_ranks_tell(ranks, &(bt_rank_order_t){.kind = BT_RANK_RESULTS});
}

void bt_ranks_collect(bt_ranks_t *ranks, bt_model_t *model,
                      const bt_forward_t *fwd)
{
    const bt_collectives_t *const host = ranks->tables.host;
    const uint32_t k = ranks->first_started;

    BT_ASSERT_ALWAYS(ranks->n_started > 0);
    ranks->first_started = (k + 1) % ranks->max_started;
    ranks->n_started--;
    if (ranks->status == BT_OK) {
        ranks->status = host->recv_end(host->ctx);
    }
    share_results(ranks, model, fwd, arrival_at(ranks, k),
                  ranks->arrival_bytes[k]);
}
