/* SPDX-License-Identifier: Apache-2.0 */
/** @file job.h  Creation, blocks and abort of jobs. Private to the worker's
 *  files; roles use worker.h. */
#ifndef BT_WORKER_JOB_H
#define BT_WORKER_JOB_H

#include "worker/worker.h"

/** Updates the share of blocks reserved for prefill, after w->roles or the
 *  kinds of jobs here have changed. */
void bt_jobs_reserve(bt_worker_t *w);

/** Initialises an empty job table. */
void bt_jobs_init(bt_worker_t *w);

/** Frees the remaining jobs without notifying any router. Call only after the
 *  engine has stopped and no longer uses their sequences. */
void bt_jobs_end_all(bt_worker_t *w);

/** Checks a REQUEST and creates its job, in the job table but in no queue.
 *  @param [out] why_p  On failure: static text for the router. */
BT_MUST_CHECK bt_status_t bt_job_create(bt_worker_t *w, bt_worker_link_t *from,
                                        const bt_msg_request_t *msg,
                                        bt_job_t **job_p, const char **why_p);

/** Looks up the job's tokens in the prefix cache and holds the blocks of the
 *  n_reused leading spans found, with the state these tokens left. The blocks
 *  are shared and must not be written to. At least one token is left to
 *  compute. */
void bt_job_hold_known(bt_worker_t *w, bt_job_t *job);
/** Releases the blocks held by bt_job_hold_known(). */
void bt_job_drop_known(bt_worker_t *w, bt_job_t *job);
/** Takes the remaining blocks that the job begins with, all or none, and sets
 *  has_blocks.
 *  @retval BT_ERR_NO_BLOCKS  those of n_reused spans are still held */
BT_MUST_CHECK bt_status_t bt_job_take_blocks(bt_worker_t *w, bt_job_t *job);
/** Gives a follower blocks from its leader: a prefill shares the leader's
 *  blocks, other kinds get a fork. Sets has_blocks.
 *  @retval BT_ERR_NO_BLOCKS */
BT_MUST_CHECK bt_status_t bt_job_share_blocks(bt_worker_t *w, bt_job_t *job);
/** Sets the job's claim to the blocks that it begins with. Call before the job
 *  is queued. */
void bt_job_claim_blocks(const bt_worker_t *w, bt_job_t *job);
/** Takes the blocks missing for @a reach and updates the token limit of the
 *  job's sequence.
 *  @retval BT_ERR_NO_BLOCKS  nothing was done */
BT_MUST_CHECK bt_status_t bt_job_reach(bt_worker_t *w, bt_job_t *job,
                                       const bt_kv_reach_t *reach);
/** Takes blocks for @a n_spans more spans.
 *  @retval BT_ERR_NO_BLOCKS  nothing was done */
BT_MUST_CHECK bt_status_t bt_job_grow(bt_worker_t *w, bt_job_t *job,
                                      uint32_t n_spans);
/** Returns the number of blocks available now: free or only cached, and not
 *  reserved for sequences that share windowed ones. */
uint32_t bt_job_free_blocks(const bt_worker_t *w);

/** Begins all jobs that may begin, in the order of w->admit. */
void bt_worker_admit(bt_worker_t *w);

#endif
