/* SPDX-License-Identifier: Apache-2.0 */
/** @file logprob_output.h
 *
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
#ifndef BT_WORKER_LOGPROB_OUTPUT_H
#define BT_WORKER_LOGPROB_OUTPUT_H

#include "worker/worker.h"

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
