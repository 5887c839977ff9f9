/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker_priv.h"

#include "common/base/alloc.h"
#include "common/base/status.h"

#define PIECE_BYTES 65536u /* of logits, or of log-probs of the prompt */
/* With this much queued, a link gets no further piece: tokens wait for no more
 * than this. */
#define QUEUE_BYTES (4 * PIECE_BYTES)

_Static_assert(PIECE_BYTES <= BT_WIRE_MAX_ROWS, "a piece is a message");

/* ---- birth ---- */

/* Which of the wants this kind of job computes. */
static uint32_t own_wants(uint32_t kind, uint32_t what)
{
    const uint32_t all = BT_WANT_ANY_LOGPROBS | BT_WANT_ANY_LOGITS;

    return what &
           ((kind == BT_REQUEST_GENERATE) ? all & ~BT_WANT_ANY_OF_PROMPT : all);
}

/* Range of positions whose rows are wanted. */
static void lay(const bt_job_t *job, uint32_t what, bt_seq_rows_t *rows)
{
    const bool of_output = (what & ~BT_WANT_ANY_OF_PROMPT) != 0;
    uint32_t end = job->n_tokens;

    if (job->kind == BT_REQUEST_GENERATE) { /* #1 was sampled elsewhere */
        rows->from = job->n_tokens;
    } else {
        rows->from =
            ((what & BT_WANT_ANY_OF_PROMPT) != 0) ? 0 : job->n_tokens - 1;
    }
    if (of_output && (job->kind != BT_REQUEST_PREFILL)) {
        end += job->max_new - 1;
    }
    rows->n = end - rows->from;
}

static bool alloc_arrays(bt_job_rows_t *r, uint32_t n_vocab)
{
    bt_seq_rows_t *rows = &r->rows;
    const size_t n = rows->n;
    const size_t n_top = n * rows->n_top;

    if ((r->wants.what & BT_WANT_ANY_LOGITS) != 0) {
        rows->logits = bt_calloc(n * n_vocab, sizeof(*rows->logits));
        if (rows->logits == NULL) {
            return false;
        }
    }
    if ((r->wants.what & BT_WANT_ANY_LOGPROBS) == 0) {
        return true;
    }
    rows->logprobs = bt_calloc(n, sizeof(*rows->logprobs));
    if (n_top > 0) {
        rows->top_ids = bt_calloc(n_top, sizeof(*rows->top_ids));
        rows->top_logprobs = bt_calloc(n_top, sizeof(*rows->top_logprobs));
    }
    return (rows->logprobs != NULL) &&
           ((n_top == 0) ||
            ((rows->top_ids != NULL) && (rows->top_logprobs != NULL)));
}

void bt_logprob_output_free(bt_job_t *job)
{
    bt_job_rows_t *r = job->rows;

    if (r == NULL) {
        return;
    }
    bt_list_remove(&r->link);
    bt_free(r->rows.logits);
    bt_free(r->rows.logprobs);
    bt_free(r->rows.top_ids);
    bt_free(r->rows.top_logprobs);
    bt_free(r);
    job->rows = NULL;
    job->seq.rows = NULL;
}

static bt_status_t check(const bt_worker_t *w, const bt_wants_t *wants,
                         const bt_seq_rows_t *rows, const char **why_p)
{
    const uint32_t n_vocab = bt_model_hparams(w->model)->n_vocab;

    if ((wants->n_top > BT_MAX_TOP_LOGPROBS) || (wants->n_top > n_vocab)) {
        *why_p = "more alternatives are wanted than this worker tells";
        return BT_ERR_UNSUPPORTED;
    }
    if (((wants->what & BT_WANT_ANY_LOGITS) != 0) &&
        (rows->n > w->config->max_logits_bytes / sizeof(float) / n_vocab)) {
        *why_p = "the logits have more bytes than --max-logits-bytes";
        return BT_ERR_TOO_LARGE;
    }
    return BT_OK;
}

bt_status_t bt_logprob_output_create(bt_worker_t *w, bt_job_t *job,
                                     const bt_wants_t *wants,
                                     const char **why_p)
{
    const uint32_t what = own_wants(job->kind, wants->what);
    bt_seq_rows_t rows = {.n_top = wants->n_top};
    bt_status_t status;

    if (what == 0) {
        return BT_OK;
    }
    lay(job, what, &rows);
    if (rows.n == 0) {
        return BT_OK;
    }
    status = check(w, wants, &rows, why_p);
    if (status != BT_OK) {
        return status;
    }
    *why_p = "out of memory";
    if ((w->row_output.piece == NULL) &&
        ((what & BT_WANT_PROMPT_LOGPROBS) != 0)) {
        w->row_output.piece = bt_calloc(PIECE_BYTES, 1);
        if (w->row_output.piece == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    job->rows = bt_calloc(1, sizeof(*job->rows));
    if (job->rows == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&job->rows->link);
    job->rows->job = job;
    job->rows->wants = (bt_wants_t){.what = what, .n_top = wants->n_top};
    job->rows->rows = rows;
    job->rows->n_told = 1;
    job->rows->position = rows.from;
    if (!alloc_arrays(job->rows, bt_model_hparams(w->model)->n_vocab)) {
        bt_logprob_output_free(job);
        return BT_ERR_NO_MEMORY;
    }
    job->seq.rows = &job->rows->rows;
    return BT_OK;
}

/* ---- log-probs ---- */

static void get_score(const bt_seq_rows_t *rows, uint32_t position,
                      bt_score_t *score)
{
    const size_t i = position - rows->from;

    score->logprob = rows->logprobs[i];
    score->n_top = rows->n_top;
    for (uint32_t k = 0; k < rows->n_top; k++) {
        score->top_ids[k] = rows->top_ids[i * rows->n_top + k];
        score->top_logprobs[k] = rows->top_logprobs[i * rows->n_top + k];
    }
}

bool bt_logprob_output_score(const bt_job_t *job, uint32_t index,
                             bt_score_t *score_p)
{
    const bt_job_rows_t *r = job->rows;

    if ((r == NULL) || ((r->wants.what & BT_WANT_LOGPROBS) == 0)) {
        return false;
    }
    get_score(&r->rows, job->seq.n_prompt - 1 + index, score_p);
    return true;
}

/* Sends log-probs of the prompt's tokens whose previous positions are computed.
 */
static void tell_prompt(bt_worker_t *w, bt_job_t *job)
{
    const uint32_t most = PIECE_BYTES / BT_SCORE_BYTES(BT_MAX_TOP_LOGPROBS);
    bt_job_rows_t *r = job->rows;
    uint32_t end = r->n_ready + 1;

    if (end > job->seq.n_prompt) {
        end = job->seq.n_prompt;
    }
    while (r->n_told < end) {
        const uint32_t left = end - r->n_told;
        const uint32_t n = (left < most) ? left : most;
        const uint32_t each = BT_SCORE_BYTES(r->wants.n_top);
        bt_msg_t msg = {.type = BT_MSG_ROWS};

        for (uint32_t i = 0; i < n; i++) {
            bt_score_t score;

            get_score(&r->rows, r->n_told + i - 1, &score);
            bt_score_put(&score, w->row_output.piece + (size_t)i * each);
        }
        msg.u.rows.key = job->key;
        msg.u.rows.kind = BT_ROWS_PROMPT_LOGPROBS;
        msg.u.rows.from = r->n_told;
        msg.u.rows.n_top = r->wants.n_top;
        msg.u.rows.data = w->row_output.piece;
        msg.u.rows.data_bytes = n * each;
        bt_worker_send(w, job->from, &msg);
        r->n_told += n;
    }
}

void bt_logprob_output_on_item(bt_worker_t *w, bt_job_t *job,
                               const bt_report_item_t *item)
{
    bt_job_rows_t *r = job->rows;
    uint32_t n_ready = r->n_ready;

    if (item->kind == BT_REPORT_TOKEN) {
        n_ready = job->seq.n_prompt + item->index;
    } else if (item->kind == BT_REPORT_CHUNK) {
        /* The row of the last token is there when #1 is sampled. */
        n_ready = (item->n_computed < job->n_tokens) ? item->n_computed
                                                     : job->n_tokens - 1;
    }
    if (n_ready > r->n_ready) {
        r->n_ready = n_ready;
    }
    if (job->ending || job->abandoned || r->dropped) {
        return;
    }
    if ((r->wants.what & BT_WANT_PROMPT_LOGPROBS) != 0) {
        tell_prompt(w, job);
    }
    if (((r->wants.what & BT_WANT_ANY_LOGITS) != 0) &&
        bt_list_empty(&r->link)) {
        bt_list_push_back(&w->row_output.rows, &r->link);
    }
}

/* ---- logits ---- */

/* True when the row of r->position belongs to an output token sampled here. */
static bool is_of_output(const bt_job_t *job, const bt_job_rows_t *r)
{
    return ((r->wants.what & BT_WANT_LOGITS) != 0) &&
           (r->position + 1 >= job->n_tokens);
}

static bool is_of_prompt(const bt_job_t *job, const bt_job_rows_t *r)
{
    return ((r->wants.what & BT_WANT_PROMPT_LOGITS) != 0) &&
           (r->position < job->seq.n_prompt);
}

/* Moves to the next piece that is ready. @return false: there is none now */
static bool find_piece(const bt_job_t *job, bt_job_rows_t *r)
{
    while (!r->dropped && (r->position < r->n_ready)) {
        if (!r->as_output) {
            if (is_of_prompt(job, r)) {
                return true;
            }
            r->as_output = true;
        }
        if (is_of_output(job, r)) {
            return true;
        }
        r->as_output = false;
        r->position++;
    }
    return false;
}

static void send_piece(bt_worker_t *w, bt_job_t *job, bt_job_rows_t *r)
{
    const uint32_t n_vocab = bt_model_hparams(w->model)->n_vocab;
    const uint32_t most = PIECE_BYTES / sizeof(float);
    const uint32_t left = n_vocab - r->offset;
    const uint32_t n = (left < most) ? left : most;
    const float *row =
        r->rows.logits + (size_t)(r->position - r->rows.from) * n_vocab;
    bt_msg_t msg = {.type = BT_MSG_ROWS};

    msg.u.rows.key = job->key;
    msg.u.rows.kind = r->as_output ? BT_ROWS_LOGITS : BT_ROWS_PROMPT_LOGITS;
    msg.u.rows.from =
        r->as_output ? r->position + 1 - job->seq.n_prompt : r->position;
    msg.u.rows.offset = r->offset;
    msg.u.rows.data = (const uint8_t *)(row + r->offset);
    msg.u.rows.data_bytes = n * (uint32_t)sizeof(float);
    bt_worker_send(w, job->from, &msg);
    r->offset += n;
    if (r->offset < n_vocab) {
        return;
    }
    r->offset = 0;
    if (r->as_output) {
        r->position++;
    }
    r->as_output = !r->as_output;
}

/* @return false: the job has nothing left to send now */
static bool turn_of(bt_worker_t *w, bt_job_t *job)
{
    bt_job_rows_t *r = job->rows;

    if ((job->from == NULL) || !find_piece(job, r)) {
        bt_list_remove(&r->link);
        if (r->parked) {
            bt_worker_job_end(w, job);
        }
        return false;
    }
    if (bt_link_queued(job->from->control) > QUEUE_BYTES) {
        bt_link_want_writable(job->from->control, QUEUE_BYTES);
        return false;
    }
    send_piece(w, job, r);
    return true;
}

void bt_logprob_output_send(bt_worker_t *w)
{
    bool more = true;

    while (more) {
        more = false;
        BT_LIST_FOR_EACH_ENTRY(bt_job_rows_t, r, &w->row_output.rows, link) {
            more = turn_of(w, r->job) || more;
        }
    }
}

/* ---- the end ---- */

void bt_logprob_output_keep(bt_job_t *job)
{
    if (job->rows != NULL) {
        job->rows->rows.done = job->rows->n_ready;
    }
}

void bt_logprob_output_drop(bt_job_t *job)
{
    if (job->rows != NULL) {
        job->rows->dropped = true;
    }
}

bool bt_logprob_output_park(bt_job_t *job)
{
    bt_job_rows_t *r = job->rows;

    if ((r == NULL) || (job->from == NULL) || job->abandoned ||
        bt_list_empty(&r->link) || !find_piece(job, r)) {
        return false;
    }
    r->parked = true;
    return true;
}
