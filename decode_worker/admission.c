/* SPDX-License-Identifier: Apache-2.0 */
/* Seats, blocks, leases: from the waiting queue to a verified sequence. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/kv/kv_groups.h"
#include "decode_worker/decode.h"
#include "worker/fanout.h"
#include "worker/manifest_payload.h"
#include "worker/worker_priv.h"

/* Each follower of a leader; the loop may remove it. */
#define FOR_EACH_FOLLOWER(follower, dj)                                     \
    BT_LIST_FOR_EACH_ENTRY(bt_decode_job_t, follower, &(dj)->job.followers, \
                           job.in_fanout)

static void send_grant(bt_worker_t *w, const bt_decode_job_t *dj,
                       const bt_wire_region_t *regions, uint32_t n_regions)
{
    bt_msg_t msg = {.type = BT_MSG_GRANT};

    msg.u.grant.key = dj->job.key;
    msg.u.grant.instance = w->instance;
    msg.u.grant.n_cached = dj->job.n_reused * w->tokens_per_block;
    msg.u.grant.regions = regions;
    msg.u.grant.n_regions = n_regions;
    bt_worker_send(w, dj->job.from, &msg);
}

/* Opens the lease's regions and sends the grant to the prefill worker, through
 * the router. */
static void give_grant(bt_worker_t *w, bt_decode_job_t *dj)
{
    bt_decode_t *state = w->decode;
    const bt_transfer_job_t job = {.instance = dj->job.peer,
                                   .theirs =
                                       bt_peer_sharding_split(w, dj->job.peer),
                                   .n_tokens = dj->job.n_tokens,
                                   .n_cached = dj->job.n_reused};
    const bt_wire_region_t *regions = NULL;
    uint32_t n_regions = 0;
    bt_status_t status;

    status = bt_transfer_in_open(w->transfers, ++state->lease_id,
                                 dj->job.key.attempt + 1, &job,
                                 dj->job.block_ids, dj->job.grower.n_held, dj,
                                 &regions, &n_regions, &dj->region);
    if ((status != BT_OK) && (status != BT_INPROGRESS)) {
        bt_worker_fanout_fail(w, &dj->job, status, "grant",
                              "the lease could not be opened");
        return;
    }
    bt_decode_move(w, dj, BT_DECODE_OPEN);
    FOR_EACH_FOLLOWER(follower, dj) {
        bt_decode_move(w, follower, BT_DECODE_OPEN);
    }
    if (status == BT_OK) {
        send_grant(w, dj, regions, n_regions);
    }
}

/* The regions of all ranks are open, unless revoked meanwhile. */
static void on_opened(bt_worker_t *w, bt_decode_job_t *dj,
                      const bt_transfer_event_t *event)
{
    if (dj->phase != BT_DECODE_LEASED) {
        return;
    }
    if (event->status != BT_OK) {
        bt_worker_fanout_fail(w, &dj->job, event->status, "grant",
                              "the lease could not be opened");
        return;
    }
    send_grant(w, dj, event->regions, event->n_regions);
}

static void run(bt_worker_t *w, bt_decode_job_t *dj)
{
    const bt_status_t status = bt_worker_job_submit(w, &dj->job);

    if (status != BT_OK) { /* cannot happen: seats are counted */
        bt_worker_job_fail(w, &dj->job, status, "decode",
                           "no seat in the batch");
        return;
    }
    bt_decode_move(w, dj, BT_DECODE_RUN);
}

/* Members are independent from here on. */
static void run_local(bt_worker_t *w, bt_decode_job_t *dj)
{
    const uint32_t n_known = dj->job.n_reused * w->tokens_per_block;
    bt_status_t status;

    dj->job.seq.sched.n_computed = n_known;
    FOR_EACH_FOLLOWER(follower, dj) {
        follower->job.seq.sched.n_computed = n_known;
    }
    status = bt_worker_fanout_submit(w, &dj->job);
    if (status != BT_OK) { /* cannot happen: seats are counted */
        bt_worker_fanout_fail(w, &dj->job, status, "decode",
                              "no seat in the batch");
        return;
    }
    FOR_EACH_FOLLOWER(follower, dj) {
        bt_fanout_leave(w, &follower->job);
        bt_decode_move(w, follower, BT_DECODE_RUN);
    }
    if (dj->job.abandoned) {
        bt_worker_job_abort(w, &dj->job);
    } else {
        bt_decode_move(w, dj, BT_DECODE_RUN);
    }
}

void bt_decode_begin(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_job_t *dj = (bt_decode_job_t *)job;

    if (dj->phase == BT_DECODE_PAUSED) {
        bt_preempt_resume(w, job);
        run(w, dj);
        return;
    }
    dj->granted_us = bt_now_us();
    FOR_EACH_FOLLOWER(follower, dj) {
        follower->granted_us = dj->granted_us;
    }
    if (job->kind == BT_REQUEST_LOCAL) {
        run_local(w, dj);
    } else {
        give_grant(w, dj);
    }
}

/* Bytes and pieces are reported once, for the leader. */
static void send_joined(bt_worker_t *w, const bt_decode_job_t *dj,
                        const bt_decode_job_t *leader)
{
    const bool is_leader = dj == leader;
    bt_msg_t msg = {.type = BT_MSG_JOINED};

    msg.u.joined.key = dj->job.key;
    msg.u.joined.grant_wait_us = leader->note.grant_wait_us;
    msg.u.joined.transfer_us = leader->transfer_us;
    msg.u.joined.transfer_bytes = is_leader ? leader->transfer_bytes : 0;
    msg.u.joined.n_descriptors = is_leader ? leader->n_descriptors : 0;
    msg.u.joined.queue_us = dj->granted_us - dj->job.claim.turn.since_us;
    /* includes the wait for its batch */
    msg.u.joined.handover_us = bt_now_us() - leader->arrived_us;
    bt_worker_send(w, dj->job.from, &msg);
}

/* From token #2 on: the prefill worker sampled #1. */
static void join(bt_worker_t *w, bt_decode_job_t *dj,
                 const bt_decode_job_t *leader, uint32_t token)
{
    bt_seq_t *seq = &dj->job.seq;

    if (token >= bt_model_hparams(w->model)->n_vocab) {
        bt_worker_job_fail(w, &dj->job, BT_ERR_BAD_MESSAGE, "transfer",
                           "the manifest's token is not in the vocabulary");
        return;
    }
    seq->tokens[dj->job.n_tokens] = token;
    seq->sched.n_tokens = dj->job.n_tokens + 1;
    seq->sched.n_computed = dj->job.n_tokens;
    dj->job.grower.n_known = dj->job.n_tokens + 1;
    /* About when #1 was sampled: the time in between counts, too. */
    seq->paced_us = (leader->arrived_us > leader->note.grant_wait_us)
                        ? leader->arrived_us - leader->note.grant_wait_us
                        : leader->arrived_us;
    seq->first_index++;
    seq->max_new--;
    seq->copy[0] = dj->job.copy;
    send_joined(w, dj, leader);
    run(w, dj);
}

/* A search with beams begins here, from the prompt's last token: its K and V
 * came and are computed once more, with equal bytes. */
static void join_beams(bt_worker_t *w, bt_decode_job_t *dj)
{
    dj->job.seq.sched.n_computed = dj->job.n_tokens - 1;
    send_joined(w, dj, dj);
    run(w, dj);
}

static const bt_manifest_payload_follower_t *
note_of(const bt_manifest_payload_t *note, bt_req_key_t key)
{
    for (uint32_t i = 0; i < note->n_followers; i++) {
        if ((note->followers[i].id == key.id) &&
            (note->followers[i].attempt == key.attempt)) {
            return &note->followers[i];
        }
    }
    return NULL;
}

/* Acts as for a canceled transfer: the answer may have ended with token #1. */
static void taken_back(bt_worker_t *w, bt_decode_job_t *dj)
{
    bt_worker_job_fail(w, &dj->job, BT_ERR_CANCELED, "transfer",
                       "the sender needs it no more");
}

/* Called before the leader ends: followers are forks of its blocks. */
static void join_followers(bt_worker_t *w, const bt_decode_job_t *dj)
{
    FOR_EACH_FOLLOWER(follower, dj) {
        const bt_manifest_payload_follower_t *its =
            note_of(&dj->note, follower->job.key);

        bt_fanout_leave(w, &follower->job);
        if (its == NULL) {
            taken_back(w, follower);
        } else {
            join(w, follower, dj, its->token);
        }
    }
}

/* A leader in JOINING and its followers may join the running batch at the next
 * iteration. */
static void start(bt_worker_t *w, bt_decode_job_t *dj)
{
    join_followers(w, dj);
    if (dj->job.abandoned) {
        bt_worker_job_abort(w, &dj->job);
    } else if (dj->note.token == BT_NOTE_NO_TOKEN) {
        taken_back(w, dj);
    } else if (dj->job.seq.beams != NULL) {
        join_beams(w, dj);
    } else {
        join(w, dj, dj, dj->note.token);
    }
}

/* Tokens whose whole blocks others may share. Where a search with beams begins
 * the last one is written again. */
static uint32_t n_to_remember(const bt_job_t *job)
{
    return job->n_tokens - ((job->seq.beams != NULL) ? 1 : 0);
}

/* The manifests prove that all bytes have arrived (I2). */
static void on_region_done(bt_worker_t *w, bt_decode_job_t *dj,
                           const bt_transfer_event_t *event)
{
    bt_status_t status;

    bt_decode_move(w, dj, BT_DECODE_PROVEN);
    status =
        bt_manifest_payload_decode(event->note, event->note_bytes, &dj->note);
    if ((status != BT_OK) || (dj->note.id != dj->job.key.id) ||
        (dj->note.attempt != dj->job.key.attempt) ||
        (dj->note.n_tokens != dj->job.n_tokens) ||
        ((dj->job.max_new < 2) && (dj->job.seq.beams == NULL))) {
        bt_worker_fanout_fail(w, &dj->job, BT_ERR_BAD_MESSAGE, "transfer",
                              "the manifest is not of this request");
        return;
    }
    dj->transfer_us = event->elapsed_us;
    dj->transfer_bytes = event->bytes;
    dj->n_descriptors = event->n_descriptors;
    dj->arrived_us = event->arrived_us;
    bt_worker_job_remember(w, &dj->job, n_to_remember(&dj->job));
    if (bt_sched_batch_starts(&w->admit.batch)) {
        start(w, dj);
    }
}

void bt_decode_advance(bt_worker_t *w)
{
    bt_list_t *ready = &w->decode->ready;

    bt_sched_batch_round(&w->admit.batch);
    while (!bt_list_empty(ready) && bt_sched_batch_starts(&w->admit.batch)) {
        start(w, (bt_decode_job_t *)BT_CONTAINER_OF(ready->next, bt_job_t,
                                                    claim.turn.link));
    }
}

void bt_decode_on_transfer(bt_worker_t *w, const bt_transfer_event_t *event)
{
    bt_decode_t *state = w->decode;
    bt_decode_job_t *dj = event->user;
    bt_decode_phase_t next;

    switch (event->type) {
    case BT_TRANSFER_OPENED:
        on_opened(w, dj, event);
        break;
    case BT_TRANSFER_IN_DONE:
        /* A result after the lease was revoked proves nothing. */
        if (bt_decode_phase_after(dj->phase, BT_DECODE_PROVEN, &next)) {
            on_region_done(w, dj, event);
        }
        break;
    case BT_TRANSFER_IN_FAILED:
        bt_worker_fanout_fail(w, &dj->job, event->status, "transfer",
                              bt_status_str(event->status));
        break;
    case BT_TRANSFER_IN_CLOSED:
        dj->region = NULL;
        state->n_leases--;
        if (bt_decode_phase_after(dj->phase, BT_DECODE_FREE, &next)) {
            bt_decode_move(w, dj, BT_DECODE_FREE);
        }
        break;
    case BT_TRANSFER_STUCK:
        bt_decode_fence(event->pid);
        break;
    case BT_TRANSFER_OUT_DONE:
    case BT_TRANSFER_PEER_LOST:
    case BT_TRANSFER_PEER_UP:
        break; /* events of transfers, which decode does not have */
    }
}
