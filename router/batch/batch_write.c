/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a batch's results, a slice at a time.
 *
 *     results of the journal ─▶ lines that have expired ─▶ commit
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

struct bt_batch_write {
    enum { RESULTS, EXPIRED, COMMIT } step;
    bt_status_t status; /* of writing results; they are counted all the same */
    uint8_t written[BT_BATCH_MAX_LINES / 8 + 1]; /* a bit for each line */
};

static void write_result(bt_batch_t *b, const char *data, size_t bytes)
{
    bt_batch_found_t *found = &b->found;
    bt_batch_write_t *w = b->write;
    bt_store_put_t *put;
    uint32_t index;
    bool ok;

    if (!bt_batch_read_result(data, bytes, &index, &ok) ||
        (index >= b->n_lines) || !bt_batch_mark(w->written, index)) {
        return;
    }
    put = ok ? b->output : b->error_file;
    *(ok ? &found->n_ok : &found->n_failed) += 1;
    *(ok ? &found->ok_bytes : &found->failed_bytes) += bytes;
    if (w->status == BT_OK) {
        w->status = (put == NULL)
                        ? BT_ERR_TOO_LARGE
                        : bt_store_put_write(put, data + BT_BATCH_RESULT_HEAD,
                                             bytes - BT_BATCH_RESULT_HEAD);
    }
}

/* Writes the results of the journal, which is at its end then.
 * @retval BT_INPROGRESS   there are more
 * @retval BT_ERR_CORRUPT  they are not those that were counted */
static bt_status_t write_results(bt_batch_t *b)
{
    const bt_batch_found_t *found = &b->found;
    bt_status_t status = BT_OK;
    const void *data;
    size_t bytes = 1;

    while ((status == BT_OK) && (bytes > 0)) {
        if (b->slice_bytes >= BT_BATCH_SLICE_BYTES) {
            return BT_INPROGRESS;
        }
        status = bt_store_journal_next(b->journal, &data, &bytes);
        b->slice_bytes += bytes;
        if ((status == BT_OK) && (bytes > 0)) {
            write_result(b, data, bytes);
        }
    }
    b->is_miscounted =
        (status == BT_OK) &&
        ((found->n_ok != b->n_ok) || (found->n_failed != b->n_failed) ||
         (b->write->status == BT_ERR_TOO_LARGE));
    return (status != BT_OK)  ? status
           : b->is_miscounted ? BT_ERR_CORRUPT
                              : b->write->status;
}

/* Says of a line without a result that its time is over. */
static bt_status_t write_line(bt_batch_t *b, const bt_batch_text_t *line,
                              bt_strbuf_t *out)
{
    const size_t most = (size_t)b->all->front->config->max_body_bytes;
    char custom_id[BT_BATCH_ID_CHARS + 1];
    bt_batch_fault_t fault;
    bt_status_t status =
        bt_batch_line_parse(line, b->endpoint, most, custom_id, NULL, &fault);

    if ((status != BT_OK) && (status != BT_ERR_TOO_LARGE)) {
        return status;
    }
    bt_strbuf_reset(out);
    bt_batch_write_unanswered(
        custom_id, "batch_expired",
        "This request could not be executed before the completion window "
        "expired.",
        out);
    status = bt_strbuf_status(out);
    return (status == BT_OK)
               ? bt_store_put_write(b->error_file, out->data, out->len)
               : status;
}

/* @retval BT_INPROGRESS  there are more */
static bt_status_t write_expired(bt_batch_t *b)
{
    const uint8_t *written = b->write->written;
    bt_status_t status = bt_batch_input_open(b);
    bt_batch_text_t line;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 65536);
    while ((status == BT_OK) && (b->slice_bytes < BT_BATCH_SLICE_BYTES) &&
           ((status = bt_batch_input_next(b, &line)) == BT_OK)) {
        const uint32_t index = b->next_index++;

        if ((index < b->n_lines) &&
            ((written[index / 8] & (1u << (index % 8))) == 0)) {
            status = write_line(b, &line, &out);
        }
    }
    bt_strbuf_fini(&out);
    if (status == BT_OK) {
        return BT_INPROGRESS;
    }
    if ((status == BT_ERR_NO_MEMORY) || (status == BT_ERR_IO)) {
        return status; /* a later try may get further */
    }
    if (status != BT_ERR_NOT_FOUND) {
        BT_LOG_WARN("batch %s: not all lines of its input can be read, to say "
                    "that they have expired: %s",
                    b->object->id, bt_status_str(status));
    }
    return BT_OK;
}

static bt_status_t describe(bt_store_put_t *put, const bt_batch_t *b,
                            const char *what)
{
    char label[160];
    const int n = snprintf(label, sizeof(label), "batch_output%c%s_%s.jsonl",
                           '\0', b->object->id, what);

    return (put == NULL)
               ? BT_OK
               : bt_store_put_describe(put, label, (size_t)n, b->output_life_s);
}

/* Removes what an earlier try has committed, now that there is as much. */
static bt_status_t remove_stale(bt_batch_t *b)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(b->stale)); i++) {
        if (b->stale[i] != NULL) {
            status = bt_store_unlink(b->all->front->store, b->stale[i]);
        }
    }
    b->are_stale_gone = status == BT_OK;
    return status;
}

static bt_status_t commit(bt_batch_t *b)
{
    bt_store_journal_t *journal;
    bt_status_t status;

    if ((status = remove_stale(b)) != BT_OK ||
        (status = bt_batch_append_state(b)) != BT_OK) {
        return status;
    }
    if (((b->output != NULL) &&
         ((status = bt_store_put_commit(b->output)) != BT_OK)) ||
        ((b->error_file != NULL) &&
         ((status = bt_store_put_commit(b->error_file)) != BT_OK))) {
        return status;
    }
    journal = b->journal;
    b->journal = NULL;
    return bt_store_journal_replace(journal, b->final_text.data,
                                    b->final_text.len);
}

static bt_status_t begin(bt_batch_t *b)
{
    bt_status_t status;

    b->are_stale_gone = b->is_miscounted = false;
    b->found = (bt_batch_found_t){0};
    b->write = bt_calloc(1, sizeof(*b->write));
    if (b->write == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_batch_input_close(b); /* it is read from the first line again */
    if ((status = bt_batch_open_journal(b)) != BT_OK ||
        (status = describe(b->output, b, "output")) != BT_OK ||
        (status = describe(b->error_file, b, "errors")) != BT_OK) {
        return status;
    }
    bt_store_journal_rewind(b->journal);
    return BT_OK;
}

/* @retval BT_INPROGRESS  there is more to do */
static bt_status_t go_on(bt_batch_t *b)
{
    bt_batch_write_t *w = b->write;
    bt_status_t status = BT_OK;

    if (w->step == RESULTS) {
        status = write_results(b);
        w->step = (status == BT_OK) ? EXPIRED : RESULTS;
    }
    if ((status == BT_OK) && (w->step == EXPIRED)) {
        if ((b->ending == BT_BATCH_EXPIRED) && (b->error_file != NULL) &&
            (b->input != NULL)) {
            status = write_expired(b);
        }
        w->step = (status == BT_OK) ? COMMIT : EXPIRED;
    }
    return (status == BT_OK) ? commit(b) : status;
}

static void run_write(bt_pool_job_t *job)
{
    bt_batch_t *b = BT_CONTAINER_OF(job, bt_batch_t, work.job);
    bt_status_t status = (b->write == NULL) ? begin(b) : BT_OK;

    b->slice_bytes = 0;
    if (status == BT_OK) {
        status = go_on(b);
    }
    b->job_status = status;
    b->goes_on = status == BT_INPROGRESS;
    if (!b->goes_on) {
        bt_batch_input_close(b);
    }
}

void bt_batch_finalize(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    BT_ASSERT(b->write == NULL);
    bt_batch_post(b, run_write, next);
}

void bt_batch_end_write(bt_batch_t *b)
{
    bt_free(b->write);
    b->write = NULL;
}
