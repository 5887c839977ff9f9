/* SPDX-License-Identifier: Apache-2.0 */
/** @file preempt.h
 *
 * Growth of jobs' blocks and preemption of jobs for others: carries out the
 * decisions of common/sched/sched_preempt.h.
 *
 *     RUNNING ─ token sampled ─▶ n_known grows ─▶ blocks ahead, or ops->pause
 *                                                                       │
 *     in w->admit.leases, in order ◀── bt_preempt_park() ◀── left engine ─┘
 *        └─ its turn ─▶ bt_preempt_resume() ─▶ RUNNING
 *
 * A preempted job holds no block and no seat. Its KV stays in the prefix cache
 * like that of a finished job: blocks not reused meanwhile are found again,
 * the rest is recomputed as a prefill of the prompt and the tokens sampled so
 * far, with identical bytes (I1). What was sampled and sent is kept and not
 * recomputed: tokens with their log-probs, and rows of logits
 * (bt_seq_rows_t.done). Sampling depends on seed and position; penalties, bans
 * and the minimum number of tokens depend on the tokens alone: no other state
 * needs to be kept.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_PREEMPT_H
#define BT_WORKER_PREEMPT_H

#include "worker/worker.h"

/** True for --scheduler-policy max_utilization. */
bool bt_preempt_is_wanted(const bt_config_t *config);

/** Initialises preemption; checks that the model's blocks support the policy.
 *  @retval BT_ERR_UNSUPPORTED  --scheduler-policy max_utilization with a model
 *                              that keeps a state; the reason was logged */
BT_MUST_CHECK bt_status_t bt_preempt_open(bt_worker_t *w);

/** Adds a job in the engine to the running ones.
 *  @param leaves  the job is on its way out */
void bt_preempt_in(bt_worker_t *w, bt_job_t *job, bool leaves);
void bt_preempt_out(bt_worker_t *w, bt_job_t *job);
/** Records that a token of the job was sampled. */
void bt_preempt_on_token(bt_job_t *job, uint32_t index);

/** Returns the blocks of a preempted job that has left the engine, and makes
 *  the claim with which it waits to resume. */
void bt_preempt_park(bt_worker_t *w, bt_job_t *job);
/** Prepares a preempted job for the engine: its turn has come and it has
 *  blocks. */
void bt_preempt_resume(bt_worker_t *w, bt_job_t *job);

/** Gives blocks to running jobs that lack some, and preempts others for that.
 *  @return false: a job still lacks blocks, so no job may begin */
bool bt_preempt_serve(bt_worker_t *w);

#endif
