/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch reads and writes: the lines of its input, its journal, and the
 * files of its results. Jobs of the pool's files thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

/* ---- lines of the input ---- */

static void close_input(bt_batch_t *b)
{
    bt_store_reader_close(b->reader);
    b->reader = NULL;
    bt_strbuf_fini(&b->partial);
    b->chunk_bytes = 0;
}

static bt_status_t open_input(bt_batch_t *b)
{
    const bt_config_t *config = b->all->front->config;

    if (b->reader != NULL) {
        return BT_OK;
    }
    bt_strbuf_init(&b->partial, (size_t)config->max_body_bytes);
    b->chunk_bytes = 0;
    b->next_index = b->next_number = 0;
    b->is_read = false;
    return bt_store_reader_open(b->all->front->store, b->input, &b->reader);
}

/* Reads a line, with its end; valid until the next call.
 * @retval BT_ERR_NOT_FOUND  there are no more */
static bt_status_t read_line(bt_batch_t *b, const char **text_p,
                             size_t *bytes_p)
{
    bt_strbuf_reset(&b->partial);
    for (;;) {
        const char *end = memchr(b->chunk, '\n', b->chunk_bytes);
        const size_t n =
            (end != NULL) ? (size_t)(end - b->chunk) + 1 : b->chunk_bytes;
        const char *at = b->chunk;
        const void *data;
        bt_status_t status;

        b->chunk += n;
        b->chunk_bytes -= n;
        if ((end != NULL) && (b->partial.len == 0)) {
            *text_p = at;
            *bytes_p = n;
            return BT_OK;
        }
        bt_strbuf_append(&b->partial, at, n);
        if ((status = bt_strbuf_status(&b->partial)) != BT_OK) {
            return status;
        }
        if (end == NULL) {
            status = bt_store_reader_next(b->reader, &data, &b->chunk_bytes);
            if (status != BT_OK) {
                return status;
            }
            b->chunk = data;
        }
        if ((end != NULL) || (b->chunk_bytes == 0)) {
            *text_p = b->partial.data;
            *bytes_p = b->partial.len;
            return (b->partial.len > 0) ? BT_OK : BT_ERR_NOT_FOUND;
        }
    }
}

/* Reads the next line that is not empty. */
static bt_status_t next_line(bt_batch_t *b, const char **text_p,
                             size_t *bytes_p)
{
    bt_status_t status;
    size_t n = 0;

    if (b->chunk_bytes == 0) {
        b->chunk = "";
    }
    do {
        status = read_line(b, text_p, bytes_p);
        b->next_number++;
        for (n = 0; (status == BT_OK) && (n < *bytes_p) &&
                    (strchr(" \t\r\n", (*text_p)[n]) != NULL) &&
                    ((*text_p)[n] != '\0');
             n++) {
        }
    } while ((status == BT_OK) && (n == *bytes_p));
    return status;
}

/* ---- jobs ---- */

static void job_done(bt_pool_job_t *job)
{
    bt_batch_t *b = BT_CONTAINER_OF(job, bt_batch_t, job);

    b->has_job = false;
    if (!job->ran) {
        b->job_status = BT_ERR_CANCELED;
    }
    b->next(b);
}

static void post(bt_batch_t *b, void (*run)(bt_pool_job_t *),
                 void (*next)(bt_batch_t *))
{
    BT_ASSERT(!b->has_job);
    b->has_job = true;
    b->job_status = BT_OK;
    b->next = next;
    b->job.run = run;
    b->job.done = job_done;
    bt_pool_post(b->all->front->pool, &b->job, BT_POOL_FILES);
}

static bt_batch_t *batch_of(bt_pool_job_t *job)
{
    return BT_CONTAINER_OF(job, bt_batch_t, job);
}

static bt_status_t open_journal(bt_batch_t *b)
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
static bt_status_t append_state(bt_batch_t *b)
{
    bt_status_t status = open_journal(b);

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

    b->job_status = append_state(b);
}

void bt_batch_save(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    post(b, run_save, next);
}

void bt_batch_close_files(bt_batch_t *b)
{
    close_input(b);
    bt_store_journal_close(b->journal);
    b->journal = NULL;
}

/* ---- validation ---- */

/* custom_id of a line. */
typedef struct named {
    bt_hash128_t id;
    uint32_t number;
} named_t;

typedef struct check {
    named_t *named; /* owned */
    uint32_t n, cap;
    bt_strbuf_t errors;
    bt_json_t json;
    uint32_t n_errors;
} check_t;

static void add_error(check_t *c, const bt_batch_fault_t *fault,
                      uint32_t number)
{
    if (c->n_errors == BT_BATCH_MAX_ERRORS) {
        return;
    }
    c->n_errors++;
    bt_json_object(&c->json, NULL);
    bt_json_str(&c->json, "code", fault->code);
    bt_json_str(&c->json, "message", fault->why);
    bt_json_str(&c->json, "param", fault->param);
    if (number > 0) {
        bt_json_u64(&c->json, "line", number);
    } else {
        bt_json_null(&c->json, "line");
    }
    bt_json_end_object(&c->json);
}

static int by_id(const void *a, const void *b)
{
    const named_t *x = a, *y = b;

    if (x->id.hi != y->id.hi) {
        return (x->id.hi < y->id.hi) ? -1 : 1;
    }
    if (x->id.lo != y->id.lo) {
        return (x->id.lo < y->id.lo) ? -1 : 1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

/* Two lines of one custom_id could not be told apart in the output. */
static void find_twins(check_t *c)
{
    static const bt_batch_fault_t twin = {
        "duplicate_custom_id", "custom_id",
        "the custom_id of this line is that of an earlier one"};

    if (c->n > 0) {
        qsort(c->named, c->n, sizeof(*c->named), by_id);
    }
    for (uint32_t i = 1; i < c->n; i++) {
        if (bt_hash128_equal(c->named[i].id, c->named[i - 1].id)) {
            add_error(c, &twin, c->named[i].number);
        }
    }
}

static bt_status_t check_line(bt_batch_t *b, check_t *c, const char *text,
                              size_t bytes)
{
    char custom_id[BT_BATCH_ID_CHARS + 1];
    bt_batch_fault_t fault;
    bt_status_t status;

    if (c->n == BT_BATCH_MAX_LINES) {
        static const bt_batch_fault_t many = {"too_many_requests", NULL,
                                              "a batch has 50000 lines at "
                                              "most"};
        add_error(c, &many, b->next_number);
        return BT_ERR_TOO_LARGE;
    }
    status =
        bt_batch_line_parse(text, bytes, b->endpoint, custom_id, NULL, &fault);
    if (status == BT_ERR_INVALID_PARAM) {
        add_error(c, &fault, b->next_number);
        return BT_OK;
    }
    if ((status != BT_OK) ||
        !bt_array_grow(&c->named, &c->cap, c->n + 1, sizeof(*c->named))) {
        return BT_ERR_NO_MEMORY;
    }
    c->named[c->n++] =
        (named_t){bt_hash128(custom_id, strlen(custom_id), 0), b->next_number};
    b->id_bytes += strlen(custom_id);
    return BT_OK;
}

static bt_status_t check_lines(bt_batch_t *b, check_t *c)
{
    static const bt_batch_fault_t none = {"empty_file", NULL,
                                          "the input file has no lines"};
    static const bt_batch_fault_t wide = {
        "invalid_json_line", NULL, "the line is longer than --max-body-bytes"};
    bt_status_t status = open_input(b);
    const char *text;
    size_t bytes;

    while ((status == BT_OK) &&
           ((status = next_line(b, &text, &bytes)) == BT_OK)) {
        status = check_line(b, c, text, bytes);
    }
    if ((status == BT_ERR_TOO_LARGE) && (c->n_errors == 0)) {
        add_error(c, &wide, b->next_number);
    }
    if ((status == BT_ERR_NOT_FOUND) && (c->n == 0) && (c->n_errors == 0)) {
        add_error(c, &none, 0);
    }
    find_twins(c);
    return ((status == BT_ERR_NOT_FOUND) || (status == BT_ERR_TOO_LARGE))
               ? BT_OK
               : status;
}

static void run_validate(bt_pool_job_t *job)
{
    bt_batch_t *b = batch_of(job);
    check_t c = {0};

    b->id_bytes = 0;
    bt_strbuf_init(&c.errors, 1u << 20);
    bt_json_init(&c.json, &c.errors);
    bt_json_array(&c.json, NULL);
    b->job_status = check_lines(b, &c);
    bt_json_end_array(&c.json);
    close_input(b);
    if ((b->job_status == BT_OK) && (c.n_errors > 0)) {
        b->job_status = bt_strbuf_status(&c.errors);
        if (b->job_status == BT_OK) {
            b->errors = c.errors.data;
            c.errors.data = NULL;
            c.errors.cap = 0;
        }
    }
    b->n_lines = c.n;
    bt_strbuf_fini(&c.errors);
    bt_free(c.named);
}

void bt_batch_validate(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    post(b, run_validate, next);
}

/* ---- work ---- */

/* Makes a line that is to run. @param [out] line_p  NULL: it has a result */
static bt_status_t make_line(bt_batch_t *b, const char *text, size_t bytes,
                             bt_batch_line_t **line_p)
{
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
    bt_strbuf_init(&line->body, (size_t)b->all->front->config->max_body_bytes);
    status = bt_batch_line_parse(text, bytes, b->endpoint, custom_id,
                                 &line->body, &fault);
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
    bt_status_t status = open_input(b);
    uint32_t n = 0;
    size_t total = 0;

    while ((status == BT_OK) && (n < b->n_wanted) &&
           (total < BT_BATCH_AHEAD_BYTES)) {
        bt_batch_line_t *line = NULL;
        const char *text;
        size_t bytes;

        status = next_line(b, &text, &bytes);
        if (status == BT_ERR_NOT_FOUND) {
            b->is_read = true;
            return (b->next_index == b->n_lines) ? BT_OK : BT_ERR_CORRUPT;
        }
        if (status == BT_OK) {
            status = make_line(b, text, bytes, &line);
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
    bt_status_t status = append_state(b);

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
    post(b, run_work, next);
}

/* ---- the end ---- */

/* Reads a record of a result. @return false: it is another one */
static bool read_result(const void *data, size_t bytes, uint32_t *index_p,
                        bool *ok_p)
{
    const uint8_t *at = data;

    if ((bytes <= BT_BATCH_RESULT_HEAD) || (at[0] != 'R') || (at[5] > 1)) {
        return false;
    }
    *index_p = (uint32_t)at[1] | (uint32_t)at[2] << 8 | (uint32_t)at[3] << 16 |
               (uint32_t)at[4] << 24;
    *ok_p = at[5] == 1;
    return *index_p < BT_BATCH_MAX_LINES;
}

static bool mark(uint8_t *bits, uint32_t index)
{
    const uint8_t bit = (uint8_t)(1u << (index % 8));
    const bool is_new = (bits[index / 8] & bit) == 0;

    bits[index / 8] |= bit;
    return is_new;
}

/* Writes the results of the journal, which is at its end then.
 * @retval BT_ERR_CORRUPT  they are not those that were counted */
static bt_status_t write_results(bt_batch_t *b, uint8_t *written)
{
    bt_batch_found_t *found = &b->found;
    bt_status_t status = BT_OK, written_status = BT_OK;
    const void *data;
    size_t bytes = 1;

    *found = (bt_batch_found_t){0};
    bt_store_journal_rewind(b->journal);
    while ((status == BT_OK) && (bytes > 0)) {
        bt_store_put_t *put;
        uint32_t index;
        bool ok;

        status = bt_store_journal_next(b->journal, &data, &bytes);
        if ((status != BT_OK) || !read_result(data, bytes, &index, &ok) ||
            (index >= b->n_lines) || !mark(written, index)) {
            continue;
        }
        put = ok ? b->output : b->error_file;
        *(ok ? &found->n_ok : &found->n_failed) += 1;
        *(ok ? &found->ok_bytes : &found->failed_bytes) += bytes;
        if (written_status == BT_OK) {
            written_status =
                (put == NULL)
                    ? BT_ERR_TOO_LARGE
                    : bt_store_put_write(
                          put, (const char *)data + BT_BATCH_RESULT_HEAD,
                          bytes - BT_BATCH_RESULT_HEAD);
        }
    }
    b->is_miscounted =
        (status == BT_OK) &&
        ((found->n_ok != b->n_ok) || (found->n_failed != b->n_failed) ||
         (written_status == BT_ERR_TOO_LARGE));
    return (status != BT_OK)  ? status
           : b->is_miscounted ? BT_ERR_CORRUPT
                              : written_status;
}

/* Says of lines without a result that their time is over. */
static bt_status_t write_expired(bt_batch_t *b, const uint8_t *written)
{
    char custom_id[BT_BATCH_ID_CHARS + 1];
    bt_batch_fault_t fault;
    const char *text;
    bt_strbuf_t out;
    size_t bytes;
    bt_status_t status;

    close_input(b);
    status = open_input(b);
    bt_strbuf_init(&out, 65536);
    while ((status == BT_OK) &&
           ((status = next_line(b, &text, &bytes)) == BT_OK)) {
        const uint32_t index = b->next_index++;

        if ((index >= b->n_lines) ||
            ((written[index / 8] & (1u << (index % 8))) != 0)) {
            continue;
        }
        status = bt_batch_line_parse(text, bytes, b->endpoint, custom_id, NULL,
                                     &fault);
        if (status == BT_OK) {
            bt_strbuf_reset(&out);
            bt_batch_write_unanswered(
                custom_id, "batch_expired",
                "This request could not be executed before the completion "
                "window expired.",
                &out);
            status = bt_strbuf_status(&out);
        }
        if (status == BT_OK) {
            status = bt_store_put_write(b->error_file, out.data, out.len);
        }
    }
    bt_strbuf_fini(&out);
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

static bt_status_t finalize(bt_batch_t *b, uint8_t *written)
{
    bt_store_journal_t *journal;
    bt_status_t status;

    if ((status = open_journal(b)) != BT_OK ||
        (status = describe(b->output, b, "output")) != BT_OK ||
        (status = describe(b->error_file, b, "errors")) != BT_OK ||
        (status = write_results(b, written)) != BT_OK) {
        return status;
    }
    if ((b->ending == BT_BATCH_EXPIRED) && (b->error_file != NULL) &&
        (b->input != NULL) && ((status = write_expired(b, written)) != BT_OK)) {
        return status;
    }
    if ((status = remove_stale(b)) != BT_OK ||
        (status = append_state(b)) != BT_OK) {
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

static void run_finalize(bt_pool_job_t *job)
{
    bt_batch_t *b = batch_of(job);
    uint8_t *written = bt_calloc(BT_BATCH_MAX_LINES / 8 + 1, 1);

    b->are_stale_gone = b->is_miscounted = false;
    b->job_status = (written != NULL) ? finalize(b, written) : BT_ERR_NO_MEMORY;
    bt_free(written);
    close_input(b);
}

void bt_batch_finalize(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    post(b, run_finalize, next);
}

/* ---- the start ---- */

static bt_status_t load_params(bt_batch_t *b)
{
    bt_store_reader_t *reader = NULL;
    const void *data;
    bt_strbuf_t text;
    size_t bytes = 1;
    bt_status_t status =
        bt_store_reader_open(b->all->front->store, b->object, &reader);

    bt_strbuf_init(&text, 1u << 20);
    while ((status == BT_OK) && (bytes > 0)) {
        status = bt_store_reader_next(reader, &data, &bytes);
        if (status == BT_OK) {
            bt_strbuf_append(&text, data, bytes);
            status = bt_strbuf_status(&text);
        }
    }
    if (status == BT_OK) {
        status =
            bt_batch_read_params((text.len > 0) ? text.data : "", text.len, b);
    }
    bt_strbuf_fini(&text);
    bt_store_reader_close(reader);
    return status;
}

static bt_status_t load_record(bt_batch_t *b, const char *data, size_t bytes)
{
    uint32_t index;
    bool ok;

    if ((bytes > 1) && (data[0] == 'S')) {
        return bt_batch_read_state(data + 1, bytes - 1, b);
    }
    if (read_result(data, bytes, &index, &ok) && mark(b->done, index)) {
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
    if ((status != BT_OK) || bt_batch_has_ended(b)) {
        bt_batch_close_files(b);
    }
    return status;
}
