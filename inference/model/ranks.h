/* SPDX-License-Identifier: Apache-2.0 */
/** @file ranks.h
 *
 * Collectives used among the ranks of a model:
 *
 *     orders, results of a call      over host memory       the worker's own
 *     rows between layers, sums      over back-end memory   the back end's own
 *
 * Where the back end works in host memory both are one. Otherwise rank 0 of
 * each group creates the id of a second communicator, broadcasts it over the
 * first, and all ranks open it (bt_kernels_ops_t.collectives_open). Its calls
 * are queued among the back end's operations; the host does not wait for them
 * here.
 *
 * Threads: as the model's.
 */
#ifndef BT_INFERENCE_MODEL_RANKS_H
#define BT_INFERENCE_MODEL_RANKS_H

#include "common/coll/coll.h"
#include "inference/model/ahead.h"
#include "inference/model/model_priv.h"
#include "kernels/kernels.h"

typedef struct bt_rank_tables {
    const bt_collectives_t *host;       /**< all ranks */
    const bt_collectives_t *host_stage; /**< ranks of this rank's stage;
                                             NULL: alone */
    /** Collectives of those two groups over buffers of the back end. */
    const bt_collectives_t *buffers;
    const bt_collectives_t *buffers_stage;
    bt_backend_t *be;
    bt_collectives_t *made; /**< opened on the back end; NULL: not opened
                                 here */
    bt_collectives_t *made_stage;
} bt_rank_tables_t;

/** True when ranks can share a model on this back end. */
bool bt_rank_tables_can(const bt_backend_t *be);

/*
 * Messages between the ranks of one model. Rank 0 leads: it has the engine, and
 * sends each request to its model to the other ranks first, which are in
 * bt_model_follow() and execute it as well.
 *
 *     rank 0   forward ─ STEP ─▶│ layers … Σ … Σ … logits │ results
 *     rank 1   follow  ◀─ STEP ─│ layers … Σ … Σ … logits │ follow
 *
 * Σ is a sum over the ranks of a stage (bt_collectives_t). Where there are
 * several stages, rows go from each rank to the corresponding one of the next
 * stage, in microbatches (ahead.h), and results from the last stage to the
 * first:
 *
 *     stage 0   STEP │ m0 │ m1 │ m2 │                     │ results
 *     stage 1          ▼ STEP ▼ m0 ▼ m1 ▼ m2 │ logits ──▶│ follow
 *
 * Orders take the path of the rows, ahead of the rows that they belong to, so a
 * stage may receive further calls while the next one still computes an earlier
 * one: rank 0 starts as many calls as there are stages before it collects the
 * results of the first. It posts the receive of the results when it starts the
 * call, so that the first and the last stage never block each other, whatever
 * they send.
 *
 * With one stage there is more: between two layers rank 0 may let rows join, or
 * make another call. Where a call allows that, each layer ends with one more
 * message, which mostly says that nothing happened.
 *
 * After a sum that fails the ranks are out of step: that call and all later
 * ones return its status, and the instance has to end.
 *
 * Orders and results use host memory, sums and rows the back end's memory.
 * A back end that has memory of its own queues sums and rows
 * with its operations: the host does not wait for it before the end of the
 * call, and no rows join between two layers.
 *
 * Threads: as the model's.
 */

/** Returns the host memory in bytes that a rank allocates for its messages. */
size_t bt_ranks_bytes(const bt_collectives_t *coll,
                      const bt_model_config_t *config, const bt_hparams_t *hp);
/** Creates the ranks' state. Collective.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval those of its collectives */
BT_MUST_CHECK bt_status_t bt_ranks_create(bt_backend_t *be,
                                          const bt_model_config_t *config,
                                          const bt_hparams_t *hp,
                                          bt_ranks_t **ranks_p);
void bt_ranks_destroy(bt_ranks_t *ranks); /**< NULL is allowed. */

/** Returns BT_OK, or the status of the first failure. */
bt_status_t bt_ranks_status(const bt_ranks_t *ranks);
/** Records that this rank cannot continue; then neither can the instance. */
void bt_ranks_fail(bt_ranks_t *ranks, bt_status_t status);

/* On x in the back end's memory; queued there, as operations are. */

/** Sums x, n values, over all ranks of the stage in place. */
void bt_ranks_sum(bt_ranks_t *ranks, float *x, size_t n);

/** Returns an iterator over the microbatches of this stage; one at a time. */
bt_micro_t bt_ranks_micro(bt_ranks_t *ranks, const bt_batch_t *batch);
/** Sends x, n values, to the next stage's rank; x may be written to
 *  afterwards. */
void bt_ranks_pass_rows(bt_ranks_t *ranks, const float *x, size_t n);
/** Receives x from the corresponding rank of the previous stage. */
void bt_ranks_take_rows(bt_ranks_t *ranks, float *x, size_t n);

/** Returns the batch with tokens as this rank's rows of the embedding; row 0
 *  for tokens of other ranks. Valid until the next call. */
bt_batch_t bt_ranks_own_words(bt_ranks_t *ranks, const bt_shard_t *shard,
                              const bt_batch_t *batch);
/** Zeroes rows of the batch whose token belongs to another rank. */
void bt_ranks_clear_others(const bt_shard_t *shard, const bt_batch_t *batch,
                           bt_backend_t *be, float *x, uint32_t dim);

/** Sends a step to the other ranks; called by rank 0 before it computes the
 *  step itself. bt_ranks_tell_copy() and bt_ranks_tell_clear() do so for block
 *  operations. */
void bt_ranks_tell_step(bt_ranks_t *ranks, const bt_forward_t *fwd);
void bt_ranks_tell_copy(bt_ranks_t *ranks, uint32_t from, uint32_t to);
void bt_ranks_tell_clear(bt_ranks_t *ranks, uint32_t id);
/** Sends that the next step is one of the model's draft model. */
void bt_ranks_tell_draft(bt_ranks_t *ranks);
/** Sends that sequences n_seqs .. + n - 1 joined, behind the others. */
void bt_ranks_tell_late(bt_ranks_t *ranks, const bt_forward_t *fwd, uint32_t n);
/** Sends that no other call is made between these two layers. */
void bt_ranks_tell_go_on(bt_ranks_t *ranks);
/** True when this call has messages between layers. */
bool bt_ranks_talks_between(const bt_ranks_t *ranks, const bt_forward_t *fwd);

/** Returns how many first candidates of each row among this rank's words the
 *  call needs, a power of two; 0: it needs rows of logits, or there are
 *  none. */
uint32_t bt_ranks_first(const bt_model_t *model, const bt_forward_t *fwd);
/** Gathers, after a call, what each row needs of this rank's words
 *  (bt_forward_t.needs: logits, the first candidates, the best one). With one
 *  stage, rank 0 has the result then, as (n_logit_rows, n_vocab), and K and V
 *  are stored at all ranks before any later operation; with several stages the
 *  last one sends it to the first. */
void bt_ranks_gather(bt_ranks_t *ranks, bt_model_t *model,
                     const bt_forward_t *fwd);

/* For the first of several stages. */

/** Returns the most calls in flight; 0: there is one stage, or this rank is in
 *  a later one. */
uint32_t bt_ranks_max_started(const bt_ranks_t *ranks);
uint32_t bt_ranks_n_started(const bt_ranks_t *ranks);
/** Posts the receive of a call's results, behind its rows. */
void bt_ranks_expect(bt_ranks_t *ranks, const bt_model_t *model,
                     const bt_forward_t *fwd);
/** Makes the other ranks of this stage collect the results of the oldest call;
 *  called by rank 0 before it waits for that call. */
void bt_ranks_tell_results(bt_ranks_t *ranks);
/** Collects the results of the oldest call; rank 0 then has them as after
 *  bt_ranks_gather().
 *  @param [in] fwd  That call; read by rank 0 alone. */
void bt_ranks_collect(bt_ranks_t *ranks, bt_model_t *model,
                      const bt_forward_t *fwd);

#endif
