/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch reads and writes: its journal, and the lines that run next. Jobs
 * of the pool's files thread. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

/* ---- jobs ---- */

/* In the order of the tenants; a batch is one of its tenant's clients. */
static void post(bt_batch_t *b)
{
    const bt_work_client_t client = {.connection = (uintptr_t)b};

    bt_work_init(&b->work, b->tenant, &client);
    bt_work_post(&b->work, b->all->front->pool, BT_POOL_FILES,
                 BT_BATCH_SLICE_BYTES);
}

static void job_done(bt_pool_job_t *job)
{
    bt_batch_t *b = BT_CONTAINER_OF(job, bt_batch_t, work.job);

    if (job->ran && b->goes_on &&
        ((b->check == NULL) || (b->status == BT_BATCH_VALIDATING))) {
        post(b); /* its turn */
        return;
    }
    b->has_job = false;
    if (!job->ran || b->goes_on) {
        b->job_status = BT_ERR_CANCELED;
    }
    b->goes_on = false;
    b->job_us = bt_now_us();
    b->next(b);
}

void bt_batch_post(bt_batch_t *b, void (*run)(bt_pool_job_t *),
                   void (*next)(bt_batch_t *))
{
    BT_ASSERT(!b->has_job);
    b->has_job = true;
    b->job_status = BT_OK;
    b->next = next;
    b->work.job.run = run;
    b->work.job.done = job_done;
    post(b);
}

static bt_batch_t *batch_of(bt_pool_job_t *job)
{
    return BT_CONTAINER_OF(job, bt_batch_t, work.job);
}

bt_status_t bt_batch_open_journal(bt_batch_t *b)
{
    const void *data;
    size_t bytes = 1;
    bt_status_t status;

    if (b->journal != NULL) {
        return BT_OK;
    }
    status =
        bt_store_journal_open(b->all->front->store, b->object, &b->journal);
    while ((status == BT_OK) && (bytes > 0)) {
        status = bt_store_journal_next(b->journal, &data, &bytes);
    }
    if (status != BT_OK) { /* it is not at its end */
        bt_store_journal_close(b->journal);
        b->journal = NULL;
    }
    return status;
}

/* The text stays until it is on the disk. */
bt_status_t bt_batch_append_state(bt_batch_t *b)
{
    bt_status_t status = bt_batch_open_journal(b);

    if ((status == BT_OK) && (b->state_text.len > 0)) {
        status = bt_store_journal_append(b->journal, b->state_text.data,
                                         b->state_text.len);
        if (status == BT_OK) {
            status = bt_store_journal_sync(b->journal);
        }
        if (status == BT_OK) {
            bt_strbuf_reset(&b->state_text);
        }
    }
    return status;
}

static void run_save(bt_pool_job_t *job)
{
    bt_batch_t *b = batch_of(job);

    b->job_status = bt_batch_append_state(b);
}

void bt_batch_save(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    bt_batch_post(b, run_save, next);
}

void bt_batch_close_files(bt_batch_t *b)
{
    bt_batch_input_close(b);
    bt_store_journal_close(b->journal);
    b->journal = NULL;
}

void bt_batch_pause_files(bt_batch_t *b)
{
    bt_batch_input_pause(b);
    bt_store_journal_close(b->journal);
    b->journal = NULL;
}

/* ---- work ---- */

/* Makes a line that is to run. @param [out] line_p  NULL: it has a result */
static bt_status_t make_line(bt_batch_t *b, const bt_batch_text_t *text,
                             bt_batch_line_t **line_p)
{
    const size_t most = (size_t)b->all->front->config->max_body_bytes;
    char custom_id[BT_BATCH_ID_CHARS + 1];
    bt_batch_line_t *line;
    bt_batch_fault_t fault;
    bt_status_t status;

    *line_p = NULL;
    if (b->next_index >= b->n_lines) {
        return BT_ERR_CORRUPT;
    }
    if (bt_batch_is_done(b, b->next_index)) {
        b->next_index++;
        return BT_OK;
    }
    line = bt_calloc(1, sizeof(*line));
    if (line == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&line->link);
    bt_strbuf_init(&line->body, most);
    status = bt_batch_line_parse(text, b->endpoint, most, custom_id,
                                 &line->body, &fault);
    if (status == BT_ERR_TOO_LARGE) {
        line->refusal = fault.refusal;
        status = BT_OK;
    }
    if (status == BT_OK) {
        line->custom_id = bt_strdup(custom_id);
    }
    if ((status != BT_OK) || (line->custom_id == NULL)) {
        bt_batch_line_free(line);
        return (status == BT_ERR_INVALID_PARAM) ? BT_ERR_CORRUPT
                                                : BT_ERR_NO_MEMORY;
    }
    line->index = b->next_index++;
    *line_p = line;
    return BT_OK;
}

static bt_status_t read_lines(bt_batch_t *b)
{
    bt_status_t status = bt_batch_input_open(b);
    uint32_t n = 0;
    size_t total = 0;

    while ((status == BT_OK) && (n < b->n_wanted) && (total < b->most_bytes)) {
        bt_batch_line_t *line = NULL;
        bt_batch_text_t text;

        status = bt_batch_input_next(b, &text);
        if (status == BT_ERR_NOT_FOUND) {
            bt_batch_input_close(b);
            b->is_read = true;
            return (b->next_index == b->n_lines) ? BT_OK : BT_ERR_CORRUPT;
        }
        if (status == BT_OK) {
            status = make_line(b, &text, &line);
        }
        if (line != NULL) {
            bt_list_push_back(&b->fresh, &line->link);
            total += line->body.len;
            n++;
        }
    }
    return status;
}

static void run_work(bt_pool_job_t *job)
{
    bt_batch_t *b = batch_of(job);
    bt_status_t status = BT_OK;

    if ((b->state_text.len > 0) || !bt_list_empty(&b->saving)) {
        status = bt_batch_append_state(b);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_result_t, result, &b->saving, link) {
        if (status == BT_OK) {
            status = bt_store_journal_append(b->journal, result->record.data,
                                             result->record.len);
        }
    }
    if ((status == BT_OK) && !bt_list_empty(&b->saving)) {
        status = bt_store_journal_sync(b->journal);
    }
    if ((status == BT_OK) && (b->n_wanted > 0) && !b->is_read) {
        status = read_lines(b);
    }
    b->job_status = status;
}

void bt_batch_work(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    bt_batch_post(b, run_work, next);
}

/* ---- the start ---- */

static bt_status_t load_params(bt_batch_t *b)
{
    bt_strbuf_t text;
    bt_status_t status;

    bt_strbuf_init(&text, 1u << 20);
    status =
        bt_store_read(b->all->front->store, b->object, 0, UINT64_MAX, &text);
    if (status == BT_OK) {
        status =
            bt_batch_read_params((text.len > 0) ? text.data : "", text.len, b);
    }
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t load_record(bt_batch_t *b, const char *data, size_t bytes)
{
    uint32_t index;
    bool ok;

    if ((bytes > 1) && (data[0] == 'S')) {
        return bt_batch_read_state(data + 1, bytes - 1, b);
    }
    if (bt_batch_read_result(data, bytes, &index, &ok) &&
        bt_batch_mark(b->done, index)) {
        *(ok ? &b->ok_bytes : &b->failed_bytes) += bytes;
    }
    return BT_OK;
}

bt_status_t bt_batch_load(bt_batch_t *b)
{
    uint32_t n_ok = 0, n_failed = 0;
    bt_status_t status = load_params(b);
    const void *data;
    size_t bytes = 1;

    if (status == BT_OK) {
        status =
            bt_store_journal_open(b->all->front->store, b->object, &b->journal);
    }
    while ((status == BT_OK) && (bytes > 0)) {
        const uint64_t before_ok = b->ok_bytes, before = b->failed_bytes;

        status = bt_store_journal_next(b->journal, &data, &bytes);
        if (status == BT_OK) {
            status = load_record(b, data, bytes);
        }
        n_ok += b->ok_bytes > before_ok;
        n_failed += b->failed_bytes > before;
    }
    if ((status == BT_OK) && !bt_batch_has_ended(b)) {
        b->n_ok = n_ok;
        b->n_failed = n_failed;
    }
    bt_batch_close_files(
        b); /* many may wait: each opens it with its next job */
    return status;
}
