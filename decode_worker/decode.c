/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_worker/decode.h"

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/kv/kv_layout.h"
#include "common/sched/sched_queue.h"

static bt_decode_job_t *job_of(bt_job_t *job)
{
    return (bt_decode_job_t *)job;
}

/* Every position that will ever be computed here. The last drawn token is
 * never fed back, so it needs no room. */
static uint32_t blocks_needed(const bt_worker_t *w, const bt_job_t *job)
{
    return bt_kv_blocks_for((uint64_t)job->n_tokens + job->max_new - 1,
                            w->tokens_per_block);
}

static bool accepts(const bt_worker_t *w, uint32_t kind)
{
    return (kind == BT_REQUEST_GENERATE) ||
           ((kind == BT_REQUEST_LOCAL) && w->config->local_prefill);
}

static void close_role(bt_worker_t *w)
{
    bt_decode_t *state = w->role;

    if (state == NULL) {
        return;
    }
    bt_free(state->extents);
    bt_free(state->desc);
    bt_free(state);
    w->role = NULL;
}

static bt_status_t open_role(bt_worker_t *w)
{
    bt_decode_t *state = bt_calloc(1, sizeof(*state));

    if (state == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&state->queue);
    w->role = state;
    state->extents = bt_calloc(w->n_blocks, sizeof(*state->extents));
    state->desc = bt_calloc(BT_WIRE_MAX_BLOB, 1);
    if ((state->extents == NULL) || (state->desc == NULL)) {
        close_role(w);
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static void on_request(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_t *state = w->role;

    bt_sched_queue_insert(&state->queue, &job->turn);
}

static void on_abort(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_t *state = w->role;
    bt_decode_job_t *dj = job_of(job);

    if (job->in_engine) {
        bt_engine_cancel(&job->seq);
    } else {
        bt_decode_leave_seat(state, dj); /* a quarantine needs none */
    }
    if ((dj->window != NULL) && !dj->closing) {
        /* Revoked before it was proven: its blocks are not free until nobody
         * can write any more. */
        dj->quarantined = true;
        state->quarantined_blocks += job->n_blocks;
        bt_decode_close_window(dj);
    }
    bt_decode_try_end(w, dj);
}

static void on_grant(bt_worker_t *w, bt_worker_link_t *from,
                     const bt_msg_grant_t *grant)
{
    (void)w;
    (void)from;
    BT_LOG_WARN("request %llu: a grant came to a decode worker",
                (unsigned long long)grant->key.id);
}

static void on_peer(bt_worker_t *w, const bt_worker_link_t *from,
                    const bt_msg_peer_t *peer)
{
    (void)w;
    (void)from;
    (void)peer; /* senders introduce themselves on the data plane */
}

static void on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    /* A lost sender: what it had not finished is not going to come. */
    BT_LIST_FOR_EACH(pos, tmp, &w->jobs)
    {
        bt_decode_job_t *dj = job_of(BT_CONTAINER_OF(pos, bt_job_t, link));

        if ((dj->job.from == from) && (dj->job.peer == instance) &&
            !dj->job.in_engine && (dj->job.kind == BT_REQUEST_GENERATE) &&
            !dj->closing) {
            bt_worker_job_fail(w, &dj->job, BT_ERR_PEER_LOST, "transfer",
                               "the prefill worker is gone");
        }
    }
}

/* What a later turn of the same talk begins with: prompt and answer. The last
 * token that was drawn has no K and V yet. */
static void remember(bt_worker_t *w, const bt_decode_job_t *dj,
                     bt_finish_t finish)
{
    if ((finish != BT_FINISH_NONE) && (finish != BT_FINISH_ERROR) &&
        (dj->job.seq.n_drawn > 0)) {
        bt_worker_job_remember(w, &dj->job, dj->job.seq.sched.n_tokens - 1);
    }
}

static void on_report_item(bt_worker_t *w, const bt_report_item_t *item)
{
    bt_decode_job_t *dj = job_of(bt_worker_job_of_seq(item->seq));

    switch (item->kind) {
    case BT_REPORT_CHUNK:
        break;
    case BT_REPORT_TOKEN:
        if (!dj->job.ending) {
            bt_worker_send_token(w, &dj->job, item->index, item->token,
                                 item->finish);
        }
        break;
    case BT_REPORT_LEFT:
        if (!dj->job.ending && (item->finish == BT_FINISH_ERROR)) {
            bt_worker_job_fail(w, &dj->job, BT_ERR_DEVICE, "decode",
                               "the device failed");
            break;
        }
        dj->job.ending = true;
        remember(w, dj, item->finish);
        bt_decode_try_end(w, dj);
        break;
    }
}

static void fill_stats(const bt_worker_t *w, bt_msg_stats_t *stats)
{
    const bt_decode_t *state = w->role;

    stats->waiting_requests = w->n_jobs - w->n_in_engine;
    stats->leases = state->n_leases;
    stats->quarantined_blocks = state->quarantined_blocks;
}

const bt_worker_ops_t bt_decode_ops = {
    .role = BT_ROLE_DECODE,
    .program = BT_PROG_DECODE,
    .program_name = "decode",
    .job_bytes = sizeof(bt_decode_job_t),
    .hello_flags = BT_HELLO_LOCAL_PREFILL,
    .blocks_needed = blocks_needed,
    .accepts = accepts,
    .open = open_role,
    .close = close_role,
    .on_request = on_request,
    .on_abort = on_abort,
    .on_grant = on_grant,
    .on_peer = on_peer,
    .on_peer_gone = on_peer_gone,
    .on_report_item = on_report_item,
    .on_kvt = bt_decode_on_kvt,
    .advance = bt_decode_admit,
    .fill_stats = fill_stats,
};
