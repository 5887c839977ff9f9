/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a batch: the files of its results.
 *
 *     space is reserved ─▶ job: written, and counted ─▶ committed ─▶ ended
 *       ▲                        │
 *       └──── a second later ◀───┘ the disk failed, or results are missing
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "router/batch/batch_priv.h"

/* Bytes of a line of the error file, and its id. */
#define LEAST_UNANSWERED 256

void bt_batch_forget_stale(bt_batch_t *b)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(b->stale); i++) {
        bt_stored_unref(b->stale[i]);
        b->stale[i] = NULL;
    }
}

void bt_batch_drop_files(bt_batch_t *b)
{
    if (b->output != NULL) {
        (void)bt_store_put_end(b->output);
    }
    if (b->error_file != NULL) {
        (void)bt_store_put_end(b->error_file);
    }
    b->output = b->error_file = NULL;
}

/* Takes a file out of the index that an earlier try has left. While there is
 * one that is still to be removed, no other was committed. */
static void take_stale(bt_batch_t *b, size_t i, char id[BT_STORE_ID_BYTES])
{
    bt_store_t *store = b->all->front->store;
    bt_stored_t *object =
        ((b->stale[i] == NULL) && (id[0] != '\0'))
            ? bt_store_find(store, BT_STORE_FILE, b->space, id)
            : NULL;

    id[0] = '\0';
    if (object != NULL) {
        b->stale[i] = bt_stored_ref(object);
        bt_store_remove(store, object);
    }
}

/* Goes by what the journal has. A batch that has lost results fails. */
static void count_again(bt_batch_t *b)
{
    const bool is_less =
        (b->found.n_ok < b->n_ok) || (b->found.n_failed < b->n_failed);

    if (is_less) {
        if (!bt_batch_set_error(
                b, "results_lost",
                "results were lost: the server's disk has damaged them")) {
            return; /* they are counted again */
        }
        b->ending =
            (b->status == BT_BATCH_FINALIZING) ? BT_BATCH_FAILED : b->ending;
    }
    b->n_ok = b->found.n_ok;
    b->n_failed = b->found.n_failed;
    b->ok_bytes = b->found.ok_bytes;
    b->failed_bytes = b->found.failed_bytes;
}

static void finalized(bt_batch_t *b)
{
    bt_store_t *store = b->all->front->store;
    const uint32_t n_unanswered = b->n_lines - b->n_ok - b->n_failed;

    bt_batch_end_write(b);
    if (b->are_stale_gone) {
        bt_batch_forget_stale(b);
        b->are_stale_gone = false;
    }
    bt_batch_drop_files(b);
    if (b->job_status != BT_OK) {
        if (b->is_miscounted) {
            count_again(b);
            b->is_miscounted = false;
        }
        bt_batch_saved(b); /* again */
        return;
    }
    bt_batch_move(b, b->ending);
    if (b->ending == BT_BATCH_EXPIRED) {
        b->n_failed += n_unanswered;
        bt_batch_count_lines(b, BT_PC_BATCH_LINES_EXPIRED, n_unanswered);
    }
    bt_batch_drop_work(b);
    bt_store_release_journal(store, b->object);
}

static bt_status_t reserve(bt_batch_t *b, uint64_t bytes,
                           bt_store_put_t **put_p, char id[BT_STORE_ID_BYTES])
{
    bt_status_t status;

    if (bytes == 0) {
        return BT_OK;
    }
    status = bt_store_put_begin(b->all->front->store, BT_STORE_FILE, b->space,
                                bytes, bt_unix_us(), put_p);
    if (status == BT_OK) {
        snprintf(id, BT_STORE_ID_BYTES, "%s", bt_store_put_id(*put_p));
    }
    return status;
}

/* Writes the state with these files, and the one with which the batch ends. */
static bool write_states(bt_batch_t *b, uint32_t n_unanswered)
{
    bool is_written = bt_batch_keep_state(b, b->status, &b->state_text);

    n_unanswered = (b->ending == BT_BATCH_EXPIRED) ? n_unanswered : 0;
    b->n_failed += n_unanswered;
    b->at_s[b->ending] = bt_batch_now_s();
    is_written =
        is_written && bt_batch_keep_state(b, b->ending, &b->final_text);
    b->n_failed -= n_unanswered;
    return is_written;
}

/* The journal's space was reserved twice: once for these files. */
void bt_batch_begin_files(bt_batch_t *b, uint64_t now_us)
{
    const uint32_t n_unanswered = b->n_lines - b->n_ok - b->n_failed;
    uint64_t failed_bytes = b->failed_bytes;
    bt_status_t status;

    take_stale(b, 0, b->output_id);
    take_stale(b, 1, b->error_id);
    if (b->ending == BT_BATCH_EXPIRED) {
        /* An escape of JSON has six characters at most. */
        failed_bytes +=
            (uint64_t)n_unanswered * LEAST_UNANSWERED + 6 * b->id_bytes;
    }
    status = bt_store_charge_journal(b->all->front->store, b->object,
                                     b->ok_bytes + b->failed_bytes);
    if (status == BT_OK) {
        status = reserve(b, b->ok_bytes, &b->output, b->output_id);
    }
    if (status == BT_OK) {
        status = reserve(b, failed_bytes, &b->error_file, b->error_id);
        if ((status == BT_ERR_TOO_LARGE) && (b->failed_bytes == 0)) {
            status = BT_OK; /* no lines for what did not run */
        }
    }
    if (status != BT_OK) {
        bt_batch_drop_files(b);
        b->output_id[0] = b->error_id[0] = '\0';
        b->wait_until_us = now_us + BT_BATCH_RETRY_US;
        if (!b->is_refused) {
            BT_LOG_WARN("batch %s: the files of its results cannot be begun, "
                        "which is tried again: %s",
                        b->object->id, bt_status_str(status));
        }
        b->is_refused = true;
    } else if (write_states(b, n_unanswered)) {
        bt_batch_finalize(b, finalized);
    } else {
        bt_batch_drop_files(b);
    }
}
