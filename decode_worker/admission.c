/* SPDX-License-Identifier: Apache-2.0 */
/* Seats, blocks, leases: from the waiting queue to a proven sequence. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/kv/kv_layout.h"
#include "decode_worker/decode.h"
#include "worker/note.h"

/* What the prefill worker fills: all that is not here already. */
static uint32_t lay_extents(const bt_worker_t *w, const bt_decode_t *state,
                            const bt_decode_job_t *dj)
{
    const bt_kv_handover_t handover = {.groups = &w->groups,
                                       .lane = &state->route->lanes[0],
                                       .n_tokens = dj->job.n_tokens,
                                       .n_cached = dj->job.n_reused};
    uint32_t n = 0;

    for (uint32_t g = 0; g < w->groups.n; g++) {
        bt_kv_walk_t walk = bt_kv_handover_walk(
            &handover, g, BT_KV_DST, dj->job.block_ids, 0, dj->job.n_spans);
        bt_kv_piece_t piece;

        for (; bt_kv_walk_next(&walk, &piece); n++) {
            state->extents[n] =
                (bt_kvt_extent_t){.offset = piece.pool, .bytes = piece.bytes};
        }
    }
    return n;
}

/* Open the lease's window and tell the prefill worker, by way of the router. */
static void give_grant(bt_worker_t *w, bt_decode_job_t *dj)
{
    bt_decode_t *state = w->decode;
    const uint32_t n_extents = lay_extents(w, state, dj);
    bt_wire_window_t window = {.to = 0, .from = 0, .blob = state->desc};
    bt_msg_t msg = {.type = BT_MSG_GRANT};
    size_t desc_bytes = 0;
    bt_status_t status;

    status = bt_kvt_window_open(w->kvt, ++state->lease_id,
                                dj->job.key.attempt + 1, dj->job.peer,
                                state->extents, n_extents, dj, state->desc,
                                BT_WIRE_MAX_BLOB, &desc_bytes, &dj->window);
    if (status != BT_OK) {
        bt_worker_job_fail(w, &dj->job, status, "grant",
                           "the lease could not be opened");
        return;
    }
    bt_decode_move(w, dj, BT_DECODE_OPEN);
    msg.u.grant.key = dj->job.key;
    msg.u.grant.instance = w->instance;
    msg.u.grant.n_cached = dj->job.n_reused * w->tokens_per_block;
    window.blob_bytes = (uint32_t)desc_bytes;
    msg.u.grant.windows = &window;
    msg.u.grant.n_windows = 1;
    bt_worker_send(w, dj->job.from, &msg);
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

void bt_decode_begin(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_job_t *dj = (bt_decode_job_t *)job;

    dj->granted_us = bt_now_us();
    if (job->kind == BT_REQUEST_LOCAL) {
        job->seq.sched.n_computed = job->n_reused * w->tokens_per_block;
        run(w, dj);
    } else {
        give_grant(w, dj);
    }
}

static void send_joined(bt_worker_t *w, const bt_decode_job_t *dj,
                        const bt_kvt_event_t *event, const bt_note_t *note)
{
    bt_msg_t msg = {.type = BT_MSG_JOINED};

    msg.u.joined.key = dj->job.key;
    msg.u.joined.grant_wait_us = note->grant_wait_us;
    msg.u.joined.transfer_us = event->elapsed_us;
    msg.u.joined.transfer_bytes = event->bytes;
    msg.u.joined.n_descriptors = event->n_descriptors;
    msg.u.joined.queue_us = dj->granted_us - dj->job.claim.turn.since_us;
    msg.u.joined.handover_us = bt_now_us() - event->arrived_us;
    bt_worker_send(w, dj->job.from, &msg);
}

/* The manifests prove that every byte is there (I2): the sequence may join the
 * running batch at the next iteration, from token #2 on. */
static void on_window_done(bt_worker_t *w, bt_decode_job_t *dj,
                           const bt_kvt_event_t *event)
{
    bt_seq_t *seq = &dj->job.seq;
    bt_note_t note;
    bt_status_t status;

    bt_decode_move(w, dj, BT_DECODE_PROVEN);
    status = bt_note_decode(event->note, event->note_bytes, &note);
    if ((status != BT_OK) || (note.key.id != dj->job.key.id) ||
        (note.key.attempt != dj->job.key.attempt) ||
        (note.n_tokens != dj->job.n_tokens) || (dj->job.max_new < 2) ||
        (note.token >= bt_model_hparams(w->model)->n_vocab)) {
        bt_worker_job_fail(w, &dj->job, BT_ERR_BAD_MESSAGE, "transfer",
                           "the manifest is not of this request");
        return;
    }
    seq->tokens[dj->job.n_tokens] = note.token;
    seq->sched.n_tokens = dj->job.n_tokens + 1;
    seq->sched.n_computed = dj->job.n_tokens;
    seq->first_index++; /* token #1 was the prefill worker's */
    seq->max_new--;
    bt_worker_job_remember(w, &dj->job, dj->job.n_tokens);
    send_joined(w, dj, event, &note);
    run(w, dj);
}

void bt_decode_on_kvt(bt_worker_t *w, const bt_kvt_event_t *event)
{
    bt_decode_t *state = w->decode;
    bt_decode_job_t *dj = event->user;
    bt_decode_phase_t next;

    switch (event->type) {
    case BT_KVT_WINDOW_DONE:
        /* What comes after the lease was revoked proves nothing. */
        if (bt_decode_phase_after(dj->phase, BT_DECODE_PROVEN, &next)) {
            on_window_done(w, dj, event);
        }
        break;
    case BT_KVT_WINDOW_FAILED:
        bt_worker_job_fail(w, &dj->job, event->status, "transfer",
                           bt_status_str(event->status));
        break;
    case BT_KVT_WINDOW_CLOSED:
        dj->window = NULL;
        state->n_leases--;
        if (bt_decode_phase_after(dj->phase, BT_DECODE_FREE, &next)) {
            bt_decode_move(w, dj, BT_DECODE_FREE);
        }
        break;
    case BT_KVT_QUARANTINE_STUCK:
        bt_decode_fence(event->pid);
        break;
    case BT_KVT_XFER_DONE:
    case BT_KVT_PEER_LOST:
        break; /* of transfers, which are not ours */
    }
}
