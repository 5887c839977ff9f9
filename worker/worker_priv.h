/* SPDX-License-Identifier: Apache-2.0 */
/** @file worker_priv.h
 *
 * Private to worker/; role handlers (prefill_worker, decode_worker) use
 * worker.h. In six parts:
 *
 *     control loop     loop.c
 *     jobs             create a job, take and return its blocks
 *     admission        begin the jobs whose turn has come
 *     preemption       let jobs grow, and preempt others for that
 *     window eviction  release blocks that an attention window has passed
 *     log-probs        send log-probs and logits beside the tokens
 *
 * Threads: the control thread calls everything here.
 */
#ifndef BT_WORKER_WORKER_PRIV_H
#define BT_WORKER_WORKER_PRIV_H

#include "common/kv/kv_block_pool.h"
#include "worker/worker.h"

/* Control loop. */

/** Runs one turn of the control loop: handles all input, begins the jobs that
 *  may begin, sends all output. Does not block.
 *  @param [out] busy_p  true: there is more to do, so the caller must not
 *                       sleep.
 *  @param [out] code_p  exit code of the process, for the end of the loop.
 *  @return false when the loop is over */
bool bt_worker_turn(bt_worker_t *w, int signal_fd, bool *busy_p, int *code_p);

/** Runs the control loop until a drain is over (all jobs done, or drain_ms
 *  passed), or until the device fails or hangs. Then stops the engine. If the
 *  compute thread does not end, the process exits here with that code.
 *  @param [in] signal_fd  a signalfd for SIGTERM and SIGINT
 *  @return the exit code of the process */
int bt_worker_loop(bt_worker_t *w, int signal_fd);

/** Passes an event of a KV transfer to the role whose events include its type;
 *  callback of the transfer coordinator (bt_transfer_config_t.on_event).
 *  @param [in] ctx  the bt_worker_t */
void bt_worker_on_transfer(void *ctx, const bt_transfer_event_t *event);

/** Refuses a request: FAILED and ENDED. */
void bt_worker_refuse(bt_worker_t *w, bt_worker_link_t *from, bt_req_key_t key,
                      bt_status_t status, const char *why);
/** Checks the HELLO of a router that is linked now.
 *  @return false: it was refused, and its link closed; logged */
bool bt_worker_check_router(bt_worker_t *w, const bt_link_event_t *event);
/** Warns while no router is linked: the worker serves nothing then. */
void bt_worker_check_routers(bt_worker_t *w, uint64_t now_ms);

/** Sets the roles of the worker, at start-up or by order of a router. Reports
 *  them to the parent process at once and to all routers with the next STATS,
 *  which is due immediately.
 *  @param [in] roles  bits of bt_role_t within BT_ROLES_BOTH, at least one */
void bt_worker_set_roles(bt_worker_t *w, uint32_t roles);

/* Jobs: create, take blocks, return blocks. */

/** Updates the number of blocks that are reserved for prefill. Call after
 *  w->roles or the kinds of the present jobs have changed. */
void bt_jobs_reserve(bt_worker_t *w);

/** Initialises an empty job table. */
void bt_jobs_init(bt_worker_t *w);

/** Frees all jobs without notifying any router. Call only after the engine has
 *  stopped, because it uses the jobs' sequences. */
void bt_jobs_end_all(bt_worker_t *w);

/** Checks a REQUEST and creates its job. The job is in the job table, but in no
 *  queue.
 *  @param [out] job_p  Owned by the worker; ends with bt_worker_job_end().
 *                      Written only on success.
 *  @param [out] why_p  On failure: static text for the router.
 *  @retval BT_OK
 *  @retval BT_ERR_INVALID_PARAM  a request that this worker can never run
 *  @retval BT_ERR_EXISTS         this attempt of the request is here already
 *  @retval BT_ERR_NO_BLOCKS      more blocks than this worker has
 *  @retval BT_ERR_NO_MEMORY
 *  @retval  any of bt_logprob_output_create() */
BT_MUST_CHECK bt_status_t bt_job_create(bt_worker_t *w, bt_worker_link_t *from,
                                        const bt_msg_request_t *msg,
                                        bt_job_t **job_p, const char **why_p);

/** Looks up the job's tokens in the prefix cache, and holds the blocks of the
 *  leading spans found; sets job->n_reused to their number. The blocks, and
 *  with a STATE group the state after these tokens, are shared with others and
 *  must not be written to. At least one token is left to compute. */
void bt_job_hold_known(bt_worker_t *w, bt_job_t *job);
/** Releases the blocks that bt_job_hold_known() holds for the job. */
void bt_job_drop_known(bt_worker_t *w, bt_job_t *job);
/** Takes the other blocks that the job needs to begin, all or none, and sets
 *  has_blocks. Call after bt_job_hold_known().
 *  @retval BT_OK
 *  @retval BT_ERR_NO_BLOCKS  Nothing was taken; the blocks of
 *                            bt_job_hold_known() are still held. */
BT_MUST_CHECK bt_status_t bt_job_take_blocks(bt_worker_t *w, bt_job_t *job);
/** Gives a follower its blocks and sets has_blocks. A prefill job shares all
 *  blocks of its leader; other kinds get a fork (kv_block_pool.h).
 *  @retval BT_OK
 *  @retval BT_ERR_NO_BLOCKS  Nothing was taken. */
BT_MUST_CHECK bt_status_t bt_job_share_blocks(bt_worker_t *w, bt_job_t *job);
/** Computes how many blocks the job needs to begin, and sets its claim to that
 *  number. Call before the job is queued. */
void bt_job_claim_blocks(const bt_worker_t *w, bt_job_t *job);
/** Takes the blocks that the job lacks of @a reach, and tells the engine up to
 *  which position the sequence may be computed.
 *  @retval BT_OK
 *  @retval BT_ERR_NO_BLOCKS  Nothing was taken. */
BT_MUST_CHECK bt_status_t bt_job_reach(bt_worker_t *w, bt_job_t *job,
                                       const bt_kv_reach_t *reach);
/** Takes the blocks for @a n_spans more spans.
 *  @retval BT_OK
 *  @retval BT_ERR_NO_BLOCKS  Nothing was taken. */
BT_MUST_CHECK bt_status_t bt_job_grow(bt_worker_t *w, bt_job_t *job,
                                      uint32_t n_spans);
/** Returns the number of blocks available now: free or idle, and not set aside
 *  for holders of shared windowed blocks (kv_block_pool.h). */
uint32_t bt_job_free_blocks(const bt_worker_t *w);

/** Begins all jobs that may begin, in the order of w->admit. Running jobs get
 *  the blocks that they lack first. */
void bt_worker_admit(bt_worker_t *w);

/*
 * Preemption: gives running jobs more blocks as they grow. If none are left,
 * another running job is preempted: it gives its blocks back and is computed
 * again later, with equal tokens. common/sched/sched_preempt.h decides which
 * one; this part carries the decisions out. Active with
 * --scheduler-policy max_utilization.
 *
 *     RUNNING ─ token sampled ─▶ n_known grows ─▶ blocks ahead, or ops->pause
 *                                                                       │
 *     in w->admit.leases, in order ◀── bt_preempt_park() ◀── left engine ─┘
 *        └─ its turn ─▶ bt_preempt_resume() ─▶ RUNNING
 *
 * A preempted job holds no block and no seat. Its KV stays in the prefix cache
 * like that of a finished job. When the job resumes, blocks that were not
 * evicted meanwhile are found again. The rest is recomputed as a prefill of the
 * prompt and the tokens sampled so far, with identical bytes (invariant I1).
 *
 * Results that exist are kept and not computed again: tokens with their
 * log-probs, and rows of logits (bt_seq_rows_t.done). Sampling depends only on
 * seed and position; penalties, bans and the minimum number of tokens depend
 * only on the tokens. So no other state needs to be kept.
 */

/** Initialises preemption according to --scheduler-policy.
 *  @retval BT_OK
 *  @retval BT_ERR_INVALID_PARAM  an unknown policy (logged)
 *  @retval BT_ERR_UNSUPPORTED    max_utilization with a model that has a STATE
 *                                group (logged) */
BT_MUST_CHECK bt_status_t bt_preempt_open(bt_worker_t *w);

/** Adds a job in the engine to the running jobs, which may grow or be
 *  preempted. Does nothing without max_utilization.
 *  @param [in] leaves  true: the job is leaving the engine, so it will return
 *                      its blocks soon and is not preempted */
void bt_preempt_in(bt_worker_t *w, bt_job_t *job, bool leaves);
/** Removes a job from the running jobs. Does nothing if it is not there. */
void bt_preempt_out(bt_worker_t *w, bt_job_t *job);
/** Records that the token with this index of the answer was sampled. */
void bt_preempt_on_token(bt_job_t *job, uint32_t index);

/** Returns the blocks of a preempted job that has left the engine, and sets the
 *  claim with which it waits to resume. The caller queues the job. */
void bt_preempt_park(bt_worker_t *w, bt_job_t *job);
/** Prepares the sequence of a preempted job for the engine again. Its turn has
 *  come, and it has blocks. */
void bt_preempt_resume(bt_worker_t *w, bt_job_t *job);

/*
 * Window eviction: for models with windowed layer groups (kv_groups.h), lets
 * the blocks of a job follow the attention window
 * (common/kv/kv_block_pool.h):
 *
 *     CHUNK of n, TOKEN at n ─▶ blocks before first_span(n) are offered to the
 *                               prefix cache, and released
 *                            ─▶ as many blocks are taken ahead
 *
 * Offered blocks: those of the prompt only. They make every prefix of the
 * prompt findable for which the cache has the window before its end, so
 * wherever a later prompt differs. Of the output only the last window is
 * cached, when the job ends; with models without windows, the whole output.
 *
 * Blocks ahead: a prefill has blocks for two chunks, because one is computed
 * while the control thread handles the report of the one before. A generating
 * sequence has blocks for a few tokens.
 *
 * Releasing a block is safe at any time: no peer writes to the blocks of a job
 * in the engine, because a sender gives up its right to write with the manifest
 * (kvt_life.h). And a worker sends only the tail of each window (kv_route.h),
 * and releases only what lies before it.
 *
 * Threads: the control thread. The compute thread reads the block table up to
 *          the limit last set for the sequence, but not the entries that a
 *          window has passed (engine.h).
 */

/** Sets w->n_whole and w->window_tokens from the layer groups. Call when
 *  w->groups is set. */
void bt_window_eviction_open(bt_worker_t *w);

/** Returns the reach of a job that holds @a n_spans spans in the groups without
 *  a window. */
bt_kv_reach_t bt_window_eviction_reach(const bt_worker_t *w,
                                       const bt_job_t *job, uint32_t n_spans);

/** Returns the most blocks that a job of at most @a n_most spans can hold at a
 *  time, over all groups. */
uint64_t bt_window_eviction_most_blocks(const bt_worker_t *w,
                                        bt_sched_want_t want, uint32_t n_most);

/** Fills the block counts of a HELLO, from which a router computes the most
 *  blocks that a sequence of any length can hold here. */
void bt_window_eviction_tell(const bt_worker_t *w, bt_msg_hello_t *hello);

/** Moves the windows of a job after an item of the engine about its sequence.
 *  Does nothing for models without windows. A job for which no block is left is
 *  failed. */
void bt_window_eviction_on_item(bt_worker_t *w, bt_job_t *job,
                                const bt_report_item_t *item);

/*
 * Log-probs and logits that a request wants beside its tokens (bt_wants_t). The
 * engine writes them into arrays of the job, and this part sends them:
 *
 *     engine ── rows ──▶ job's arrays ─┬─ log-probs of output tokens ─▶ TOKENS
 *                                      ├─ log-probs of the prompt ────▶ ROWS
 *                                      └─ logits, if link has space ──▶ ROWS
 *
 * The row of a position describes the token after it: token #1 is sampled from
 * the row of the prompt's last position.
 *
 * Log-probs have few bytes and are sent at once. Logits have many: a piece is
 * sent only when little else is queued on the link, so that tokens never wait
 * for more than a few pieces. A job that ends while logits are left is
 * *parked*: all its resources are returned except the logits, and ENDED follows
 * the last piece, or a CANCEL.
 *
 * For a job that wants no rows bt_job_t.rows is NULL.
 *
 * Threads: the control thread. The arrays belong to the engine until an item of
 *          a report says that the position is computed.
 */

/** Log-probs and logits of one job. */
typedef struct bt_job_rows {
    bt_list_t link;     /**< in bt_worker_t.rows while logits may be left */
    bt_job_t *job;      /**< owner of this object */
    bt_wants_t wants;   /**< wants that are computed in this job */
    bt_seq_rows_t rows; /**< arrays that the engine fills; owned */
    uint32_t n_ready;   /**< positions before this one are filled */
    uint32_t n_told;    /**< prompt tokens whose log-probs are sent, counting
                             the first token, which has none */
    /* Next piece of logits to send. */
    uint32_t position; /**< position of the row */
    bool as_output;    /**< send the row as one of the output, not of the prompt
                        */
    uint32_t offset;   /**< first logit of the piece in the row */
    bool dropped;      /**< the client does not want logits any more */
    bool parked;       /**< the job is over and stays for its logits */
} bt_job_rows_t;

/**
 * Creates job->rows for the rows that the request wants and this job computes.
 * If there are none, job->rows stays NULL.
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_OK
 * @retval BT_ERR_TOO_LARGE    the logits exceed --max-logits-bytes
 * @retval BT_ERR_UNSUPPORTED  more top alternatives than BT_MAX_TOP_LOGPROBS or
 *                             than the vocabulary has
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_logprob_output_create(bt_worker_t *w,
                                                   bt_job_t *job,
                                                   const bt_wants_t *wants,
                                                   const char **why_p);
/** Frees job->rows, if any. */
void bt_logprob_output_free(bt_job_t *job);

/** Sends the log-probs of the prompt that an item says are computed, and queues
 *  the logits. The job has rows. Call before the role handles the item. */
void bt_logprob_output_on_item(bt_worker_t *w, bt_job_t *job,
                               const bt_report_item_t *item);
/** Returns the log-probs of an output token.
 *  @param [in]  index    index of the token in the answer
 *  @param [out] score_p  written only on true
 *  @return false: the request does not want them */
bool bt_logprob_output_score(const bt_job_t *job, uint32_t index,
                             bt_score_t *score_p);
/** Sends pieces of logits, round-robin over the jobs, while the links have
 *  space. Ends parked jobs that have nothing left to send. */
void bt_logprob_output_send(bt_worker_t *w);
/** Keeps the filled rows of a job that will be recomputed: the engine does not
 *  fill them again. */
void bt_logprob_output_keep(bt_job_t *job);
/** Stops sending rows of the job, because the client does not want them. */
void bt_logprob_output_drop(bt_job_t *job);
/** Parks a job that is over, if logits are left to send.
 *  @return true: the job stays, and bt_logprob_output_send() ends it with
 *          bt_worker_job_end() when the logits are sent or dropped; false: end
 *          it now */
bool bt_logprob_output_park(bt_job_t *job);
/** True when the job is over and stays only for its logits. */
static inline bool bt_logprob_output_is_parked(const bt_job_t *job)
{
    return (job->rows != NULL) && job->rows->parked;
}

#endif
