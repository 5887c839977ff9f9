/* SPDX-License-Identifier: Apache-2.0 */
/** @file pause.h
 *
 * Jobs that hold blocks as they grow, and those that are paused for others:
 * what common/sched/sched_preempt.h decides, carried out.
 *
 *     RUNNING ─ a token is told ─▶ n_known grows ─▶ blocks ahead, or ops->pause
 *                                                                      │
 *     in w->admit.leases, in its place ◀── bt_pause_park() ◀── it left ┘
 *        └─ its turn ─▶ bt_pause_resume() ─▶ RUNNING
 *
 * A paused job holds no block and no seat. What it has computed is remembered
 * in the prefix index, as of one that ended: what nobody needed meanwhile is
 * found again, the rest is computed again, as the context phase of its prompt
 * and the tokens drawn so far, with the same bytes (I1). Kept and not computed
 * again is what was drawn and told: tokens with their log-probs, and rows of
 * logits (bt_seq_rows_t.done). Draws depend on seed and position, penalties,
 * bans and the least number of tokens on the tokens alone: nothing else is to
 * be kept.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_PAUSE_H
#define BT_WORKER_PAUSE_H

#include "worker/worker.h"

/** --scheduler-policy max_utilization */
bool bt_pause_is_wanted(const bt_config_t *config);

/** What of blocks and policies does not go together.
 *  @retval BT_ERR_UNSUPPORTED  --scheduler-policy max_utilization with a model
 *                              that keeps a state; why was logged */
BT_MUST_CHECK bt_status_t bt_pause_open(bt_worker_t *w);

/** It runs, or is on its way out: in the engine. */
void bt_pause_in(bt_worker_t *w, bt_job_t *job, bool leaves);
void bt_pause_out(bt_worker_t *w, bt_job_t *job);
/** A token of it was drawn. */
void bt_pause_on_token(bt_job_t *job, uint32_t index);

/** It has left the engine to make room: give its blocks back and make the claim
 *  with which it waits to begin again. */
void bt_pause_park(bt_worker_t *w, bt_job_t *job);
/** Its turn has come, it has blocks: lay it out for the engine. */
void bt_pause_resume(bt_worker_t *w, bt_job_t *job);

/** Give blocks to those that lack some, pause others for it.
 *  @return false: somebody still lacks some, so nobody begins */
bool bt_pause_serve(bt_worker_t *w);

#endif
