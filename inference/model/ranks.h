/* SPDX-License-Identifier: Apache-2.0 */
/** @file ranks.h
 *
 * What the ranks of one model say to each other. Rank 0 leads: it has the
 * engine, and what it asks of its model it first tells the others, who are in
 * bt_model_follow() and do the same.
 *
 *     rank 0   forward ─ STEP ─▶│ layers … Σ … Σ … logits │ results
 *     rank 1   follow  ◀─ STEP ─│ layers … Σ … Σ … logits │ follow
 *
 * Σ is a sum over the ranks of a stage (bt_collectives_t). Where there are
 * several stages, rows go from each rank to the same one of the next stage, in
 * micro-batches (micro.h), and results from the last stage to the first:
 *
 *     stage 0   STEP │ m0 │ m1 │ m2 │                     │ results
 *     stage 1          ▼ STEP ▼ m0 ▼ m1 ▼ m2 │ logits ──▶│ follow
 *
 * Orders go the way of the rows, ahead of those that they are for, so a stage
 * may be told of further calls while the one behind it is at an earlier one:
 * rank 0 starts as many as there are stages before it wants the results of the
 * first. Those it began to receive when it started the call, so that the first
 * and the last stage never wait for each other, whatever they send.
 *
 * In one stage there is more: between two layers rank 0 may
 * let rows come in, or make another call; where a call allows that, each layer
 * ends with one more message, of which most say that nothing happened.
 *
 * A sum that fails leaves the ranks apart: that call and all later ones return
 * what it said, and the instance has to end.
 *
 * Orders and results are the host's memory, sums and rows the back end's
 * (rank_tables.h). One that has memory of its own queues them with its
 * operations: nobody waits for it before the end of the call, and nobody comes
 * in between two layers.
 *
 * Threads: as the model's.
 */
#ifndef BT_INFERENCE_MODEL_RANKS_H
#define BT_INFERENCE_MODEL_RANKS_H

#include "common/coll/coll.h"
#include "inference/model/micro.h"
#include "inference/model/model_priv.h"

/** Host memory that a rank takes for it. */
size_t bt_ranks_bytes(const bt_collectives_t *coll,
                      const bt_model_config_t *config, const bt_hparams_t *hp);
/** Collective. @retval BT_ERR_NO_MEMORY
 *  @retval  any of bt_rank_tables_open() */
BT_MUST_CHECK bt_status_t bt_ranks_create(bt_backend_t *be,
                                          const bt_model_config_t *config,
                                          const bt_hparams_t *hp,
                                          bt_ranks_t **ranks_p);
void bt_ranks_destroy(bt_ranks_t *ranks); /**< NULL is allowed. */

/** BT_OK, or what failed first. */
bt_status_t bt_ranks_status(const bt_ranks_t *ranks);
/** This rank cannot go on: neither can the instance. */
void bt_ranks_fail(bt_ranks_t *ranks, bt_status_t status);

/* Of x in the back end's memory; queued there, as operations are. */

/** x, n values, = the sum of x of all ranks of the stage. */
void bt_ranks_sum(bt_ranks_t *ranks, float *x, size_t n);

/** A batch as this stage takes it; one such at a time. */
bt_micro_t bt_ranks_micro(bt_ranks_t *ranks, const bt_batch_t *batch);
/** x, n values, to the next stage's rank; it may be written to afterwards. */
void bt_ranks_pass_rows(bt_ranks_t *ranks, const float *x, size_t n);
/** x = what the rank of the stage before passes. */
void bt_ranks_take_rows(bt_ranks_t *ranks, float *x, size_t n);

/** The batch with tokens as this rank's rows of the embedding; of the others
 *  row 0. Good until the next call. */
bt_batch_t bt_ranks_own_words(bt_ranks_t *ranks, const bt_shard_t *shard,
                              const bt_batch_t *batch);
/** Rows of the batch whose token is another rank's become zeros. */
void bt_ranks_clear_others(const bt_shard_t *shard, const bt_batch_t *batch,
                           bt_backend_t *be, float *x, uint32_t dim);

/** Rank 0, before what the others are to do as well. */
void bt_ranks_tell_step(bt_ranks_t *ranks, const bt_forward_t *fwd);
void bt_ranks_tell_copy(bt_ranks_t *ranks, uint32_t from, uint32_t to);
void bt_ranks_tell_clear(bt_ranks_t *ranks, uint32_t id);
/** Sequences n_seqs .. + n - 1 came in; they are behind the others. */
void bt_ranks_tell_late(bt_ranks_t *ranks, const bt_forward_t *fwd, uint32_t n);
/** No other call is made between these two layers. */
void bt_ranks_tell_go_on(bt_ranks_t *ranks);
/** Does this call have such messages? */
bool bt_ranks_talks_between(const bt_ranks_t *ranks, const bt_forward_t *fwd);

/** How many of the first words of each row are all that a call wants of this
 *  rank's, a power of two; 0: it wants rows of logits, or there are none. */
uint32_t bt_ranks_first(const bt_model_t *model, const bt_forward_t *fwd);
/** After a call: of this rank's words what each row needs (bt_forward_t.needs:
 *  logits, the first candidates, the best one). In one stage that is at rank 0
 *  then, as (n_logit_rows, n_vocab), and what comes after it finds K and V
 *  stored at all ranks; of several the last one sends it to the first. */
void bt_ranks_gather(bt_ranks_t *ranks, bt_model_t *model,
                     const bt_forward_t *fwd);

/* Of the first of several stages. */

/** Calls that may be under way at a time; 0: there is one stage, or this rank
 *  is in a later one. */
uint32_t bt_ranks_max_started(const bt_ranks_t *ranks);
uint32_t bt_ranks_n_started(const bt_ranks_t *ranks);
/** Behind the rows of a call: its results will come. */
void bt_ranks_expect(bt_ranks_t *ranks, const bt_model_t *model,
                     const bt_forward_t *fwd);
/** Rank 0, before anything that waits for the oldest call: its stage collects
 *  the results now. */
void bt_ranks_tell_results(bt_ranks_t *ranks);
/** Those of the oldest call have come, to rank 0 as bt_ranks_gather() says.
 *  @param [in] fwd  That call; looked at by rank 0 alone. */
void bt_ranks_collect(bt_ranks_t *ranks, bt_model_t *model,
                      const bt_forward_t *fwd);

#endif
