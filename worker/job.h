/* SPDX-License-Identifier: Apache-2.0 */
/** @file job.h  Birth, blocks and abort of jobs: between the files of worker
 *  only. Roles use worker.h. */
#ifndef BT_WORKER_JOB_H
#define BT_WORKER_JOB_H

#include "worker/worker.h"

/** w->roles or the kinds of jobs here are others now: leave context phases
 *  their share of the blocks. */
void bt_jobs_reserve(bt_worker_t *w);

/** An empty job table. */
void bt_jobs_init(bt_worker_t *w);

/** Free what is left, telling nobody. Only after the engine has stopped: its
 *  sequences are ours again then. */
void bt_jobs_end_all(bt_worker_t *w);

/** Check a REQUEST and make its job, in the job table but nowhere else.
 *  @param [out] why_p  On failure: static text for the router. */
BT_MUST_CHECK bt_status_t bt_job_create(bt_worker_t *w, bt_worker_link_t *from,
                                        const bt_msg_request_t *msg,
                                        bt_job_t **job_p, const char **why_p);

/** Find the known beginning of the job's tokens and hold its blocks: those of
 *  n_reused spans, with what these tokens left. They are shared and must not be
 *  written to. At least one token is left to compute. */
void bt_job_hold_known(bt_worker_t *w, bt_job_t *job);
/** Let them go again. */
void bt_job_drop_known(bt_worker_t *w, bt_job_t *job);
/** Take the rest of the blocks that it begins with, all or none; has_blocks
 *  afterwards. @retval BT_ERR_NO_BLOCKS  those of n_reused spans are still held
 */
BT_MUST_CHECK bt_status_t bt_job_take_blocks(bt_worker_t *w, bt_job_t *job);
/** The follower's, from its leader's: a context phase has the same ones, the
 *  others a fork. has_blocks afterwards. @retval BT_ERR_NO_BLOCKS */
BT_MUST_CHECK bt_status_t bt_job_share_blocks(bt_worker_t *w, bt_job_t *job);
/** What it begins with makes its claim; before it is in a queue. */
void bt_job_claim_blocks(const bt_worker_t *w, bt_job_t *job);
/** Take what it lacks of its reach, and tell its sequence of the room.
 *  @retval BT_ERR_NO_BLOCKS  nothing was done */
BT_MUST_CHECK bt_status_t bt_job_reach(bt_worker_t *w, bt_job_t *job,
                                       const bt_kv_reach_t *reach);
/** So many spans more. @retval BT_ERR_NO_BLOCKS  nothing was done */
BT_MUST_CHECK bt_status_t bt_job_grow(bt_worker_t *w, bt_job_t *job,
                                      uint32_t n_spans);
/** Blocks that could be taken now: free, or only remembered, and not set aside
 *  for those who share windowed ones. */
uint32_t bt_job_free_blocks(const bt_worker_t *w);

/** Let begin whoever may, in the order of w->admit. */
void bt_worker_admit(bt_worker_t *w);

#endif
