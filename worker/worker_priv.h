/* SPDX-License-Identifier: Apache-2.0 */
/** @file worker_priv.h
 *
 * Private to the worker's files: the control loop, jobs, preemption, and
 * log-probs; roles use worker.h.
 */
#ifndef BT_WORKER_WORKER_PRIV_H
#define BT_WORKER_WORKER_PRIV_H

#include "common/kv/kv_block_pool.h"
#include "worker/worker.h"

/* The control loop. */

/** Runs one turn: handles all input, starts what can be started, sends.
 *  @param [out] busy_p  Do not sleep before the next turn.
 *  @param [out] code_p  The exit code, when the loop is over.
 *  @return false when the loop is over */
bool bt_worker_turn(bt_worker_t *w, int signal_fd, bool *busy_p, int *code_p);

/** Runs until a stop signal came and all jobs are done (or drain_ms passed), or
 *  the device failed.
 *  @param signal_fd  a signalfd for SIGTERM and SIGINT.
 *  @return the exit code */
int bt_worker_loop(bt_worker_t *w, int signal_fd);

/** Passes events of KV transfers to the role's handlers.
 *  @param ctx  the worker */
void bt_worker_on_transfer(void *ctx, const bt_transfer_event_t *event);

/** Sets the roles of the worker: at start-up and by order of a router. Reports
 *  them to all routers (by STATS) and to the parent process.
 *  @param [in] roles  at least one bit of BT_ROLES_BOTH, and no other */
void bt_worker_set_roles(bt_worker_t *w, uint32_t roles);

/* Creation, blocks and abort of jobs. */

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

/*
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

/*
 * Jobs of a model with sliding-window attention: how many blocks they hold,
 * and how the blocks follow the window (common/kv/kv_block_pool.h).
 *
 *     CHUNK of n, TOKEN at n ─▶ blocks before first_span(n) are offered to the
 *                               prefix cache, and evicted
 *                            ─▶ as many blocks are taken ahead
 *
 * Only prompt blocks are offered: a later prompt finds a prefix as long as the
 * cache has the window before it, so at any point where two prompts part. Of
 * an output the last window is cached when the job ends; of other models, the
 * whole output.
 *
 * A prefill has two chunks ahead: one chunk is computed while the control
 * thread handles the report of the previous one. A generating sequence has a
 * few tokens ahead.
 *
 * No peer writes to the blocks of a job in the engine: a sender gave up its
 * right with the manifest (kvt_life.h). So blocks may be evicted at any time.
 *
 * A worker sends the tail of each window (kv_route.h), and evicts what lies
 * before it: the two never overlap.
 *
 * Threads: the control thread. The compute thread reads the table up to the
 * limit last set for the sequence, and never the evicted part of a window
 * (engine.h).
 */

/** Sets the window parameters of @a w. Call when w->groups, tokens_per_block
 *  and the configuration are known. */
void bt_window_eviction_open(bt_worker_t *w);

/** Returns the reach of a job that holds @a n_spans spans in whole groups. */
bt_kv_reach_t bt_window_eviction_reach(const bt_worker_t *w,
                                       const bt_job_t *job, uint32_t n_spans);

/** Returns the most blocks that a job of @a n_most spans can hold at a time. */
uint64_t bt_window_eviction_most_blocks(const bt_worker_t *w,
                                        bt_sched_want_t want, uint32_t n_most);

/** Fills the block counts of a HELLO: the most that a sequence of any length
 *  can hold. */
void bt_window_eviction_tell(const bt_worker_t *w, bt_msg_hello_t *hello);

/** Moves the windows of a job after a report of the engine about its sequence.
 */
void bt_window_eviction_on_item(bt_worker_t *w, bt_job_t *job,
                                const bt_report_item_t *item);

/*
 * Log-probs and logits that a request wants beside its tokens (bt_wants_t):
 * the engine writes them, this module sends them.
 *
 *     engine ── rows ──▶ job's arrays ─┬─ log-probs of output tokens ─▶ TOKENS
 *                                      ├─ log-probs of the prompt ────▶ ROWS
 *                                      └─ logits, if link has space ──▶ ROWS
 *
 * A position's row describes the token after it: token #1 is sampled from the
 * row of the prompt's last position. Log-probs are few bytes and are sent at
 * once. Logits are many: a piece is sent when little else is queued on the
 * link, so that tokens never wait for more than a few pieces. A job that ends
 * while logits are left is *parked*: all its resources are returned except the
 * logits, and ENDED follows the last piece, or a CANCEL.
 *
 * A job that wants no rows has none of this (bt_job_t.rows is NULL).
 *
 * Threads: the control thread; the arrays belong to the engine until an item
 * of a report says that a position is computed.
 */

typedef struct bt_job_rows {
    bt_list_t link; /**< in bt_worker_t.rows while logits may be left */
    bt_job_t *job;
    bt_wants_t wants;
    bt_seq_rows_t rows; /**< arrays that the engine fills */
    uint32_t n_ready;   /**< positions before this one are filled */
    uint32_t n_told;    /**< prompt tokens whose log-probs are sent; the first
                           token has none */
    /* The next piece of logits. */
    uint32_t position;
    bool as_output; /**< send position as a row of the output, not of the prompt
                     */
    uint32_t offset;
    bool dropped; /**< the client no longer wants logits */
    bool parked;
} bt_job_rows_t;

/**
 * Creates job->rows for what the REQUEST wants of the positions computed here;
 * none if that is nothing.
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_ERR_TOO_LARGE    logits of more bytes than --max-logits-bytes
 * @retval BT_ERR_UNSUPPORTED  more alternatives than there are
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_logprob_output_create(bt_worker_t *w,
                                                   bt_job_t *job,
                                                   const bt_wants_t *wants,
                                                   const char **why_p);
void bt_logprob_output_free(bt_job_t *job);

/** Handles an item of a job with rows: sends what the item says is computed.
 *  Call before the role handles the item. */
void bt_logprob_output_on_item(bt_worker_t *w, bt_job_t *job,
                               const bt_report_item_t *item);
/** Returns the log-prob of an output token. @return false: not wanted */
bool bt_logprob_output_score(const bt_job_t *job, uint32_t index,
                             bt_score_t *score_p);
/** Sends pieces of logits, round-robin over the jobs, while links have space.
 */
void bt_logprob_output_send(bt_worker_t *w);
/** Keeps the rows computed so far when the job is to be recomputed: they are
 *  not computed again. */
void bt_logprob_output_keep(bt_job_t *job);
/** Stops sending rows of the job. */
void bt_logprob_output_drop(bt_job_t *job);
/** Parks a job that is over. @return true: it stays for the logits that are
 *  left, and ends with bt_worker_job_end() when they are sent or dropped */
bool bt_logprob_output_park(bt_job_t *job);
static inline bool bt_logprob_output_is_parked(const bt_job_t *job)
{
    return (job->rows != NULL) && job->rows->parked;
}

#endif
