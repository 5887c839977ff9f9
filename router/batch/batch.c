/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a batch. */
#include "router/batch/batch.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

/* ---- parts ---- */

uint64_t bt_batch_now_s(void)
{
    return bt_unix_us() / 1000000;
}

void bt_batch_line_free(bt_batch_line_t *line)
{
    if (line != NULL) {
        bt_batch_give(&line->held);
        bt_list_remove(&line->link);
        bt_strbuf_fini(&line->body);
        bt_free(line->custom_id);
        bt_free(line);
    }
}

void bt_batch_result_free(bt_batch_result_t *result)
{
    bt_batch_give(&result->held);
    bt_list_remove(&result->link);
    bt_strbuf_fini(&result->record);
    bt_free(result);
}

bool bt_batch_is_done(const bt_batch_t *b, uint32_t index)
{
    return (b->done[index / 8] & (1u << (index % 8))) != 0;
}

bool bt_batch_mark(uint8_t *bits, uint32_t index)
{
    const uint8_t bit = (uint8_t)(1u << (index % 8));
    const bool is_new = (bits[index / 8] & bit) == 0;

    bits[index / 8] |= bit;
    return is_new;
}

void bt_batch_count_lines(const bt_batch_t *b, bt_process_cell_t result,
                          uint32_t n)
{
    bt_router_metrics_add(b->all->front->metrics, result, n);
}

static void move_all(bt_list_t *from, bt_list_t *to)
{
    while (!bt_list_empty(from)) {
        bt_list_t *link = from->next;

        bt_list_remove(link);
        bt_list_push_back(to, link);
    }
}

static void free_results(bt_list_t *list)
{
    while (!bt_list_empty(list)) {
        bt_batch_result_free(
            BT_CONTAINER_OF(list->next, bt_batch_result_t, link));
    }
}

static void free_lines(bt_list_t *list)
{
    while (!bt_list_empty(list)) {
        bt_batch_line_free(BT_CONTAINER_OF(list->next, bt_batch_line_t, link));
    }
}

/* ---- life ---- */

#define TO(status) (1u << BT_BATCH_##status)

static const uint32_t edges[BT_BATCH_N_STATUSES] = {
    [BT_BATCH_VALIDATING] = TO(IN_PROGRESS) | TO(CANCELLING) | TO(FAILED),
    [BT_BATCH_IN_PROGRESS] = TO(FINALIZING) | TO(CANCELLING),
    [BT_BATCH_FINALIZING] = TO(COMPLETED) | TO(EXPIRED) | TO(FAILED),
    [BT_BATCH_CANCELLING] = TO(CANCELLED),
    [BT_BATCH_COMPLETED] = 0,
    [BT_BATCH_EXPIRED] = 0,
    [BT_BATCH_FAILED] = 0,
    [BT_BATCH_CANCELLED] = 0,
};

void bt_batch_move(bt_batch_t *b, bt_batch_status_t status)
{
    BT_ASSERT((edges[b->status] & (1u << status)) != 0);
    b->status = status;
    if (b->at_s[status] == 0) { /* else the journal has it already */
        b->at_s[status] = bt_batch_now_s();
    }
    if (bt_batch_has_ended(b) && (b->owner != NULL)) {
        bt_batch_leave_owner(b);
        bt_list_push_back(&b->all->ended, &b->link);
    }
}

bool bt_batch_has_ended(const bt_batch_t *b)
{
    return edges[b->status] == 0;
}

void bt_batch_drop_work(bt_batch_t *b)
{
    bt_batch_drop_lines(b);
    bt_batch_end_check(b);
    free_results(&b->results);
    free_results(&b->saving);
    free_lines(&b->fresh);
    bt_batch_close_files(b);
    bt_stored_unref(b->input);
    b->input = NULL;
    bt_tenant_unref(b->tenant);
    b->tenant = NULL;
    bt_free(b->done);
    b->done = NULL;
    bt_batch_forget_stale(b);
    bt_batch_give(&b->held);
}

/* Call that waits until a cancel is kept. */
typedef struct cancel {
    bt_list_t link;
    bt_batch_answer_fn_t kept;
    void *ctx;
} cancel_t;

/* @param [in] error  NULL: the journal has the cancel */
static void answer_cancels(bt_batch_t *b, const bt_api_error_t *error)
{
    while (!bt_list_empty(&b->cancels)) {
        cancel_t *c = BT_CONTAINER_OF(b->cancels.next, cancel_t, link);

        bt_list_remove(&c->link);
        c->kept(c->ctx, (error == NULL) ? b : NULL, error);
        bt_free(c);
    }
}

void bt_batch_free(bt_batch_t *b)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, NULL,
                     "the batch is gone, or the server is stopping");
    answer_cancels(b, &error);
    bt_batch_leave_owner(b);
    bt_batch_drop_files(b);
    bt_batch_drop_work(b);
    if (b->object != NULL) {
        b->object->user = NULL;
        bt_stored_unref(b->object);
    }
    bt_strbuf_fini(&b->state_text);
    bt_strbuf_fini(&b->final_text);
    bt_free(b->metadata);
    bt_free(b->errors);
    bt_free(b);
}

/* ---- steps; each ends with a job, or waits for news ---- */

/* Begins no line for a second: what is missing may be there then. */
static void wait(bt_batch_t *b, uint64_t now_us)
{
    b->wait_until_us = now_us + BT_BATCH_RETRY_US;
}

void bt_batch_saved(bt_batch_t *b)
{
    if (b->job_status != BT_OK) {
        bt_batch_close_files(b);
        if (b->job_status != BT_ERR_CANCELED) { /* else the server stops */
            BT_LOG_WARN("batch %s cannot be kept: %s", b->object->id,
                        bt_status_str(b->job_status));
        }
        b->wait_until_us = bt_now_us() + BT_BATCH_RETRY_US;
    }
    bt_batches_wake(b->all);
}

bool bt_batch_keep_state(bt_batch_t *b, bt_batch_status_t status,
                         bt_strbuf_t *out)
{
    bt_batch_write_state(b, status, out);
    b->job_status = bt_strbuf_status(out);
    if (b->job_status != BT_OK) {
        bt_strbuf_reset(out);
        bt_batch_saved(b);
        return false;
    }
    return true;
}

bool bt_batch_set_error(bt_batch_t *b, const char *code, const char *why)
{
    bt_strbuf_t out;
    bt_json_t json;

    if (b->errors != NULL) {
        return true;
    }
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_array(&json, NULL);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "code", code);
    bt_json_str(&json, "message", why);
    bt_json_null(&json, "param");
    bt_json_null(&json, "line");
    bt_json_end_object(&json);
    bt_json_end_array(&json);
    b->errors = (bt_strbuf_status(&out) == BT_OK) ? bt_strdup(out.data) : NULL;
    bt_strbuf_fini(&out);
    return b->errors != NULL;
}

static void failed(bt_batch_t *b)
{
    if ((b->job_status == BT_OK) && (b->status == BT_BATCH_VALIDATING)) {
        bt_batch_move(b, BT_BATCH_FAILED);
        bt_batch_drop_work(b);
    }
    bt_batch_saved(b);
}

/* Fails a batch that has not begun, without files: it is failed once the
 * journal has it. */
static void fail_at_once(bt_batch_t *b)
{
    b->at_s[BT_BATCH_FAILED] = bt_batch_now_s();
    if (bt_batch_keep_state(b, BT_BATCH_FAILED, &b->state_text)) {
        bt_batch_save(b, failed);
    }
}

static void end_in(bt_batch_t *b, bt_batch_status_t ending)
{
    bt_batch_drop_lines(b);
    b->ending = ending;
    b->wait_until_us = 0; /* what waits was a line */
    if (ending == BT_BATCH_CANCELLED) {
        bt_batch_move(b, BT_BATCH_CANCELLING);
    } else {
        bt_batch_move(b, BT_BATCH_FINALIZING);
    }
    bt_batches_wake(b->all);
}

void bt_batch_fail(bt_batch_t *b, const char *code, const char *why)
{
    if (!bt_batch_set_error(b, code, why)) {
        wait(b, bt_now_us()); /* what is wrong is found again */
    } else if (b->status == BT_BATCH_VALIDATING) {
        fail_at_once(b);
    } else {
        end_in(b, BT_BATCH_FAILED);
    }
}

/* Fails or tries again, by what went wrong with the input. */
static void handle_failure(bt_batch_t *b)
{
    if ((b->job_status == BT_ERR_NOT_FOUND) ||
        (b->job_status == BT_ERR_CORRUPT)) {
        bt_batch_fail(b, "invalid_input_file",
                      "the input file is gone or damaged");
        return;
    }
    bt_batch_saved(b);
}

static void validated(bt_batch_t *b)
{
    bt_batch_check_is_over(b);
    if ((b->status != BT_BATCH_VALIDATING) || (b->job_status != BT_OK)) {
        bt_batch_end_check(b);
        bt_batch_input_close(b);
    }
    if (b->status != BT_BATCH_VALIDATING) {
        bt_batches_wake(b->all); /* cancelled meanwhile */
        return;
    }
    if (b->job_status != BT_OK) {
        handle_failure(b);
        return;
    }
    bt_batch_take_check(b);
    if (b->errors != NULL) {
        fail_at_once(b);
        return;
    }
    b->at_s[BT_BATCH_IN_PROGRESS] = bt_batch_now_s();
    if (bt_batch_keep_state(b, BT_BATCH_IN_PROGRESS, &b->state_text)) {
        bt_batch_move(b, BT_BATCH_IN_PROGRESS);
        bt_batch_save(b, bt_batch_saved);
    } else {
        b->at_s[BT_BATCH_IN_PROGRESS] = 0; /* the lines are checked again */
    }
}

static void worked(bt_batch_t *b)
{
    if (b->job_status != BT_OK) {
        /* What is not known to be kept is written again: a line counts once. */
        move_all(&b->saving, &b->results);
        free_lines(&b->fresh);
        bt_batch_close_files(b); /* lines are read from the first one again */
        bt_batch_drop_lines(b);
        b->is_read = false;
        if (b->status == BT_BATCH_IN_PROGRESS) {
            handle_failure(b);
        } else {
            bt_batch_saved(b);
        }
        return;
    }
    while (!bt_list_empty(&b->saving)) {
        bt_batch_result_t *result =
            BT_CONTAINER_OF(b->saving.next, bt_batch_result_t, link);

        if (!bt_batch_is_done(b, result->index)) {
            *(result->ok ? &b->n_ok : &b->n_failed) += 1;
            bt_batch_count_lines(b,
                                 result->ok ? BT_PC_BATCH_LINES_COMPLETED
                                            : BT_PC_BATCH_LINES_FAILED,
                                 1);
        }
        b->done[result->index / 8] |= (uint8_t)(1u << (result->index % 8));
        *(result->ok ? &b->ok_bytes : &b->failed_bytes) += result->record.len;
        b->results_bytes -= result->record.len;
        bt_batch_result_free(result);
    }
    if (b->status != BT_BATCH_IN_PROGRESS) {
        free_lines(&b->fresh); /* cancelled meanwhile */
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_line_t, line, &b->fresh, link) {
        bt_batch_hold(b->all, &line->held, sizeof(*line) + line->body.cap);
        b->n_ready++;
        b->ready_bytes += line->body.len;
    }
    move_all(&b->fresh, &b->ready);
    bt_batches_wake(b->all);
}

/* ---- looking at a batch ---- */

static const char *named_header(const void *ctx, const char *name)
{
    const bt_batch_t *b = ctx;

    return (strcmp(name, b->all->front->tenants.header) == 0) ? b->space : NULL;
}

/* Finds the tenant that a batch belongs to.
 * @retval BT_ERR_NOT_FOUND                it is gone
 * @retval BT_ERR_BUSY, BT_ERR_NO_MEMORY   there may be headroom for it later */
static bt_status_t find_tenant(bt_batch_t *b)
{
    bt_status_t status = BT_ERR_NOT_FOUND;
    bt_tenants_t *tenants = &b->all->front->tenants;
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;

    if (bt_tenants_are_keyed(tenants)) {
        for (uint32_t i = 0; i < tenants->file.n_tenants; i++) {
            if (strcmp(tenants->of_file[i]->name, b->space) == 0) {
                tenant = tenants->of_file[i];
            }
        }
    } else if (b->space[0] == '\0') {
        tenant = tenants->plain;
    } else if (tenants->header[0] != '\0') {
        status = bt_tenants_find(tenants, named_header, b, &tenant, &why);
    }
    if ((tenant == NULL) &&
        ((status == BT_ERR_BUSY) || (status == BT_ERR_NO_MEMORY))) {
        return status;
    }
    if (tenant != NULL) {
        (void)bt_tenant_ref(tenant);
    }
    bt_tenant_unref(b->tenant);
    b->tenant = tenant;
    return (tenant != NULL) ? BT_OK : BT_ERR_NOT_FOUND;
}

static bool find_input(bt_batch_t *b)
{
    if (b->input == NULL) {
        b->input = bt_store_find(b->all->front->store, BT_STORE_FILE, b->space,
                                 b->input_id);
        if (b->input != NULL) {
            (void)bt_stored_ref(b->input);
        }
    }
    return b->input != NULL;
}

static bool has_expired(const bt_batch_t *b)
{
    return bt_batch_now_s() >=
           b->object->created_us / 1000000 + BT_BATCH_LIFE_S;
}

/* Reserves the disk for results that are about to be written, and for the
 * files that are made of them.
 * @retval BT_ERR_TOO_LARGE  the tenant has no headroom for them
 * @retval BT_ERR_BUSY       the store has none now */
static bt_status_t charge_results(bt_batch_t *b)
{
    return bt_store_charge_journal(
        b->all->front->store, b->object,
        2 * (b->ok_bytes + b->failed_bytes + b->results_bytes));
}

/* Keeps results, and reads lines ahead. */
static void work(bt_batch_t *b, uint32_t n_wanted, uint64_t now_us)
{
    const bool has_results = !bt_list_empty(&b->results);
    const bt_status_t status = has_results ? charge_results(b) : BT_OK;

    if (status == BT_ERR_TOO_LARGE) {
        bt_batch_fail(b, "storage_limit",
                      "the results do not fit (--store-tenant-limit)");
    } else if (status != BT_OK) {
        wait(b, now_us);
    } else {
        b->n_wanted = n_wanted;
        move_all(&b->results, &b->saving);
        bt_batch_work(b, worked);
    }
}

static void progress(bt_batch_t *b, uint64_t now_us)
{
    const size_t most = bt_batches_headroom(b->all);
    const bool may_read =
        !b->is_read && (b->n_ready < BT_BATCH_AHEAD) && (b->ready_bytes < most);
    bt_status_t status;

    if (has_expired(b)) {
        end_in(b, BT_BATCH_EXPIRED);
    } else if ((status = find_tenant(b)) == BT_ERR_NOT_FOUND) {
        bt_batch_fail(b, "tenant_gone", "the tenant of this batch is no more");
    } else if (status != BT_OK) {
        wait(b, now_us);
    } else if (!find_input(b)) {
        bt_batch_fail(b, "invalid_input_file", "the input file is gone");
    } else if (!bt_list_empty(&b->results) || may_read) {
        b->most_bytes = most;
        work(b, may_read ? BT_BATCH_AHEAD : 0, now_us);
    } else if (b->n_ok + b->n_failed == b->n_lines) {
        end_in(b, BT_BATCH_COMPLETED);
    }
}

static void cancel_kept(bt_batch_t *b)
{
    bt_api_error_t error = {0};

    b->is_cancel_kept = b->job_status == BT_OK;
    if (!b->is_cancel_kept) {
        bt_api_error_set(&error, 503, NULL,
                         "the cancel cannot be kept, and is tried again: %s",
                         bt_status_str(b->job_status));
    }
    answer_cancels(b, b->is_cancel_kept ? NULL : &error);
    bt_batch_saved(b);
}

/* A cancel is kept first, then results that came before the end. */
static void finish(bt_batch_t *b, uint64_t now_us)
{
    if ((b->status == BT_BATCH_CANCELLING) && !b->is_cancel_kept) {
        if (bt_batch_keep_state(b, b->status, &b->state_text)) {
            bt_batch_save(b, cancel_kept);
        }
        return;
    }
    if (!bt_list_empty(&b->results)) {
        const bt_status_t status = charge_results(b);

        if (status == BT_OK) {
            b->n_wanted = 0;
            move_all(&b->results, &b->saving);
            bt_batch_work(b, worked);
            return;
        }
        if (status != BT_ERR_TOO_LARGE) {
            wait(b, now_us);
            return;
        }
        free_results(&b->results); /* the tenant has no headroom for them */
        b->results_bytes = 0;
    }
    (void)find_input(b);
    bt_batch_begin_files(b, now_us);
}

static void do_what_is_due(bt_batch_t *b, uint64_t now_us)
{
    if ((b->status != BT_BATCH_IN_PROGRESS) && (now_us < b->wait_until_us)) {
        return;
    }
    switch (b->status) {
    case BT_BATCH_VALIDATING:
        if (b->errors != NULL) {
            fail_at_once(b); /* again */
        } else if (find_input(b)) {
            if (bt_batch_may_check(b)) {
                bt_batch_validate(b, validated);
            }
        } else {
            bt_batch_fail(b, "invalid_input_file", "the input file is gone");
        }
        break;
    case BT_BATCH_IN_PROGRESS:
        progress(b, now_us);
        break;
    default:
        finish(b, now_us);
        break;
    }
}

void bt_batch_look(bt_batch_t *b, uint64_t now_us)
{
    if (b->has_job || bt_batch_has_ended(b)) {
        return;
    }
    do_what_is_due(b, now_us);
    if (!b->has_job && (b->n_running == 0) &&
        (now_us >= b->job_us + BT_BATCH_IDLE_US)) {
        bt_batch_pause_files(b);
    }
}

bt_status_t bt_batch_cancel(bt_batch_t *b, bt_batch_answer_fn_t kept, void *ctx,
                            bt_api_error_t *error_p)
{
    cancel_t *c;

    if (bt_batch_has_ended(b) || (b->status == BT_BATCH_FINALIZING)) {
        return bt_api_error_invalid(error_p, NULL,
                                    "the batch is %s and cannot be cancelled",
                                    bt_batch_status_name(b->status));
    }
    if ((b->status == BT_BATCH_CANCELLING) && b->is_cancel_kept) {
        kept(ctx, b, NULL);
        return BT_OK;
    }
    c = bt_calloc(1, sizeof(*c));
    if (c == NULL) {
        return bt_api_error_no_memory(error_p);
    }
    c->kept = kept;
    c->ctx = ctx;
    bt_list_push_back(&b->cancels, &c->link);
    if (b->status != BT_BATCH_CANCELLING) {
        end_in(b, BT_BATCH_CANCELLED);
    }
    return BT_OK;
}
