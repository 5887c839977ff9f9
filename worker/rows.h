/* SPDX-License-Identifier: Apache-2.0 */
/** @file rows.h
 *
 * What a request wants to know beside its tokens (bt_wants_t): log-probs and
 * logits of positions, which the engine writes and this sends.
 *
 *     engine ── rows ──▶ job's arrays ─┬─ log-probs of drawn tokens ─▶ TOKENS
 *                                      ├─ of the prompt's ───────────▶ ROWS
 *                                      └─ logits, as the link has room ▶ ROWS
 *
 * A position's row says what comes behind it: that of the prompt's last one is
 * what token #1 is drawn from. Log-probs are few bytes and go at once. Logits
 * are many: a piece goes when little else waits for the link, so nobody's
 * tokens wait for more than a few pieces. A job that is over while logits are
 * left is *parked*: all that it held is back but for them, and ENDED follows
 * the last piece, or a CANCEL.
 *
 * A job that wants nothing has none of this (bt_job_t.rows is NULL).
 *
 * Threads: the control thread; the arrays are the engine's until an item of a
 * report says that a position is computed.
 */
#ifndef BT_WORKER_ROWS_H
#define BT_WORKER_ROWS_H

#include "worker/worker.h"

typedef struct bt_job_rows {
    bt_list_t link; /**< in bt_worker_t.rows while logits may be left */
    bt_job_t *job;
    bt_wants_t wants;
    bt_seq_rows_t rows; /**< what the engine fills */
    uint32_t n_ready;   /**< positions before this one are filled */
    uint32_t n_told;    /**< tokens of the prompt whose log-probs are sent; the
                             first has none */
    /* The next piece of logits. */
    uint32_t position;
    bool as_output; /**< as a row of the answer, not of the prompt */
    uint32_t offset;
    bool dropped; /**< nobody wants them any more */
    bool parked;
} bt_job_rows_t;

/**
 * Make job->rows for what its REQUEST wants of what is computed here; none
 * where that is nothing.
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_ERR_TOO_LARGE    logits of more bytes than --max-logits-bytes
 * @retval BT_ERR_UNSUPPORTED  more alternatives than there are
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_rows_create(bt_worker_t *w, bt_job_t *job,
                                         const bt_wants_t *wants,
                                         const char **why_p);
void bt_rows_free(bt_job_t *job);

/** Of a job with rows: the item says what is computed; send what may go. Before
 *  the role hears of the item. */
void bt_rows_on_item(bt_worker_t *w, bt_job_t *job,
                     const bt_report_item_t *item);
/** The log-prob of a token that was drawn. @return false: it is not wanted */
bool bt_rows_score(const bt_job_t *job, uint32_t index, bt_score_t *score_p);
/** Pieces of logits, in turn for each job, as long as links have room. */
void bt_rows_send(bt_worker_t *w);
/** It is computed again: rows that are there already are not. */
void bt_rows_keep(bt_job_t *job);
/** Nobody wants more of it. */
void bt_rows_drop(bt_job_t *job);
/** The job is over. @return true: it stays for the logits that are left, and
 *  ends with bt_worker_job_end() when they are sent or dropped */
bool bt_rows_park(bt_job_t *job);
static inline bool bt_rows_is_parked(const bt_job_t *job)
{
    return (job->rows != NULL) && job->rows->parked;
}

#endif
