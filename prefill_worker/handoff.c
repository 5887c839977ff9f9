/* SPDX-License-Identifier: Apache-2.0 */
/* KV transfer to decode workers: peers, transfers, manifests. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/kv/kv_groups.h"
#include "prefill_worker/prefill.h"
#include "worker/manifest_payload.h"

/* The peer with this instance id, or NULL. */
static bt_prefill_peer_t *peer_find(const bt_prefill_t *state,
                                    uint64_t instance)
{
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_peer_t, peer, &state->peers, link) {
        if (peer->instance == instance) {
            return peer;
        }
    }
    return NULL;
}

/* ---- what routers hear of links ---- */

static void tell_link(bt_worker_t *w, bt_worker_link_t *to,
                      const bt_prefill_peer_t *peer)
{
    bt_msg_t msg = {.type = BT_MSG_KV_LINK,
                    .u.kv_link = {.instance = peer->instance,
                                  .state = (uint32_t)peer->state}};

    if ((peer->routers & to->bit) != 0) {
        memcpy(msg.u.kv_link.at, peer->at, sizeof(peer->at));
        memcpy(msg.u.kv_link.why, peer->why, sizeof(peer->why));
        bt_worker_send(w, to, &msg);
    }
}

/* Sets the problem reported to the launcher: the first unreachable peer. */
static void note_trouble(bt_worker_t *w)
{
    w->kv_trouble[0] = '\0';
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_peer_t, peer, &w->prefill->peers, link) {
        if (peer->state == BT_KV_LINK_FAILED) {
            snprintf(w->kv_trouble, sizeof(w->kv_trouble),
                     "%s cannot reach %s%s%s: %s", w->name, peer->name,
                     (peer->at[0] != '\0') ? " at " : "", peer->at, peer->why);
            return;
        }
    }
}

/* Sets the state of a peer's link. @param why reason of a FAILED one; else NULL
 */
static void set_link(bt_worker_t *w, bt_prefill_peer_t *peer,
                     bt_kv_link_state_t state, const char *at, const char *why)
{
    bt_prefill_peer_t now = {.state = state};

    if (state == BT_KV_LINK_FAILED) {
        snprintf(now.at, sizeof(now.at), "%s", (at != NULL) ? at : "");
        snprintf(now.why, sizeof(now.why), "%s", why);
    }
    if ((state == peer->state) && (strcmp(now.at, peer->at) == 0) &&
        (strcmp(now.why, peer->why) == 0)) {
        return; /* failed again, as before */
    }
    if (state == BT_KV_LINK_FAILED) {
        const char *where = (now.at[0] != '\0') ? " at " : "";

        if (peer->state == BT_KV_LINK_PROVEN) {
            BT_LOG_WARN("the KV path to %s is lost%s%s: %s", peer->name, where,
                        now.at, now.why);
        } else {
            BT_LOG_WARN("%s cannot reach %s%s%s: %s", w->name, peer->name,
                        where, now.at, now.why);
        }
    }
    peer->state = state;
    memcpy(peer->at, now.at, sizeof(peer->at));
    memcpy(peer->why, now.why, sizeof(peer->why));
    note_trouble(w);
    for (uint32_t i = 0; i < w->n_links; i++) {
        tell_link(w, w->links[i], peer);
    }
}

/* ---- peers ---- */

static void connect_peer(bt_worker_t *w, bt_prefill_peer_t *peer)
{
    bt_prefill_t *state = w->prefill;
    bt_status_t status;

    if (!peer->is_fit) {
        return;
    }
    bt_list_remove(&peer->link); /* other peers are next */
    bt_list_push_back(&state->peers, &peer->link);
    status = bt_transfer_connect(w->transfers, peer->split, peer->ranks,
                                 peer->n_ranks, peer, &peer->transfer_peer);
    peer->retry_ms = bt_now_ms() + w->config->dead_ms;
    if (status != BT_OK) {
        peer->transfer_peer = NULL;
        set_link(w, peer, BT_KV_LINK_FAILED, NULL, bt_status_str(status));
        return;
    }
    peer->is_tried = true;
    state->n_tries++;
    peer->again_ms = (peer->again_ms == 0)
                         ? bt_now_ms() + w->config->heartbeat_ms
                         : UINT64_MAX;
}

static void end_try(bt_prefill_t *state, bt_prefill_peer_t *peer)
{
    state->n_tries -= peer->is_tried ? 1 : 0;
    peer->is_tried = false;
}

static void disconnect_peer(bt_prefill_t *state, bt_prefill_peer_t *peer)
{
    end_try(state, peer);
    bt_transfer_disconnect(peer->transfer_peer);
    peer->transfer_peer = NULL;
}

/* True when the reported block size matches ranks of such a split. */
static bool have_size(const bt_kv_route_t *route, const bt_msg_peer_t *msg)
{
    for (uint32_t i = 0; i < route->n_pairs; i++) {
        const uint64_t bytes = msg->ranks[route->pairs[i].rank].block_bytes;

        if ((bytes != 0) && (bytes != route->pairs[i].dst_page_bytes)) {
            return false;
        }
    }
    return true;
}

/* Checks whether KV can be sent to this decode worker. @return NULL, or why not
 */
static const char *why_unfit(bt_worker_t *w, const bt_msg_peer_t *msg)
{
    const bt_kv_split_t theirs = {.tp = msg->tp, .pp = msg->pp};
    const bool says_layout = (msg->layout.lo | msg->layout.hi) != 0;
    const bt_kv_route_t *route = NULL;
    const char *why = NULL;
    bt_status_t status = BT_OK;

    if (says_layout && !bt_hash128_equal(msg->layout, w->kv_layout)) {
        why = "its model's KV has other layers, heads or blocks than ours";
    } else if (msg->n_ranks == 0) {
        why = "it did not say where its KV pool is";
    } else {
        status = bt_rank_transfer_route(w->rank_transfers, BT_KV_SRC, theirs,
                                        &route);
    }
    if ((why == NULL) && (status != BT_OK)) {
        why = bt_status_str(status);
    }
    if ((why == NULL) && !have_size(route, msg)) {
        why = "its blocks have another size than its ranks would have";
    }
    return why;
}

/* Random order: prefill workers that start together begin with different peers.
 */
static uint64_t order_of(const bt_worker_t *w, const bt_msg_peer_t *msg)
{
    const uint64_t both[] = {w->instance, msg->instance};

    return bt_hash64(both, sizeof(both), 0);
}

static bt_prefill_peer_t *peer_new(const bt_worker_t *w,
                                   const bt_msg_peer_t *msg)
{
    bt_prefill_peer_t *peer = bt_calloc(1, sizeof(*peer));
    bt_list_t *next = w->prefill->peers.next;

    if (peer == NULL) {
        return NULL;
    }
    peer->instance = msg->instance;
    peer->order = order_of(w, msg);
    memcpy(peer->name, msg->name, sizeof(peer->name));
    while (
        (next != &w->prefill->peers) &&
        (BT_CONTAINER_OF(next, bt_prefill_peer_t, link)->order < peer->order)) {
        next = next->next;
    }
    bt_list_push_back(next, &peer->link); /* before that one */
    return peer;
}

/* Keeps the exports of its ranks, if KV can be sent there. */
static bt_status_t take_ranks(bt_worker_t *w, bt_prefill_peer_t *peer,
                              const bt_msg_peer_t *msg)
{
    const char *why = why_unfit(w, msg);
    bt_status_t status = BT_OK;

    if (why != NULL) {
        set_link(w, peer, BT_KV_LINK_FAILED, NULL, why);
    } else {
        status = bt_wire_ranks_copy(msg->ranks, msg->n_ranks, &peer->ranks);
        if (status == BT_OK) {
            peer->n_ranks = msg->n_ranks;
            peer->split = (bt_kv_split_t){.tp = msg->tp, .pp = msg->pp};
            peer->is_fit = true;
        }
    }
    return status;
}

void bt_prefill_peer_forget(bt_worker_t *w, bt_prefill_peer_t *peer)
{
    disconnect_peer(w->prefill, peer);
    bt_list_remove(&peer->link);
    bt_free(peer->ranks);
    bt_free(peer);
    note_trouble(w);
}

void bt_prefill_on_peer(bt_worker_t *w, bt_worker_link_t *from,
                        const bt_msg_peer_t *msg)
{
    bt_prefill_t *state = w->prefill;
    bt_prefill_peer_t *peer = peer_find(state, msg->instance);

    if (msg->instance == w->instance) {
        return; /* requests with both phases here are local */
    }
    if (peer == NULL) {
        peer = peer_new(w, msg);
    }
    if ((peer == NULL) ||
        (!peer->is_fit && (take_ranks(w, peer, msg) != BT_OK))) {
        BT_LOG_ERROR("out of memory for another decode worker");
        return;
    }
    peer->routers |= from->bit; /* every router reports every worker */
    if (peer->state != BT_KV_LINK_UNPROVEN) {
        tell_link(w, from, peer);
    }
    if (peer->transfer_peer == NULL) {
        peer->retry_ms = 0; /* it may be back */
    }
}

/* Jobs for this peer (of one router, or all with NULL) have no transfer any
 * more. */
static void fail_jobs_of(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance)
{
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, job, &w->jobs, link) {
        if ((job->ops == &bt_prefill_ops) && (job->peer == instance) &&
            ((from == NULL) || (job->from == from))) {
            bt_worker_job_fail(w, job, BT_ERR_PEER_LOST, "transfer",
                               "the decode worker is gone");
        }
    }
}

/* A router that cannot see a worker decides for its own requests only. */
void bt_prefill_on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                             uint64_t instance)
{
    bt_prefill_peer_t *peer = peer_find(w->prefill, instance);

    fail_jobs_of(w, from, instance);
    if (peer == NULL) {
        return;
    }
    peer->routers &= ~from->bit;
    if (peer->routers == 0) {
        bt_prefill_peer_forget(w, peer);
    }
}

/* Decode workers that the router reported may still be there: connections are
 * kept until they are lost. */
void bt_prefill_on_router_gone(bt_worker_t *w, const bt_worker_link_t *from)
{
    bt_prefill_t *state = w->prefill;

    BT_LIST_FOR_EACH_ENTRY(bt_prefill_peer_t, peer, &state->peers, link) {
        peer->routers &= ~from->bit;
        if ((peer->routers == 0) && (peer->transfer_peer == NULL)) {
            bt_prefill_peer_forget(w, peer);
        }
    }
}

/* The first connection may arrive before the decode worker has admitted this
 * one (docs/WIRE.md): its SYN was dropped, and the kernel would repeat it only
 * after a second. So the second attempt comes soon. */
static void try_anew(bt_prefill_t *state, bt_prefill_peer_t *peer,
                     uint64_t now_ms)
{
    if (peer->is_tried && (now_ms >= peer->again_ms) &&
        (state->n_xfers == 0)) { /* older routers' transfers may wait for it */
        disconnect_peer(state, peer);
        peer->retry_ms = 0;
    }
}

void bt_prefill_reconnect(bt_worker_t *w)
{
    const uint64_t now_ms = bt_now_ms();
    bt_prefill_t *state = w->prefill;

    BT_LIST_FOR_EACH_ENTRY(bt_prefill_peer_t, peer, &state->peers, link) {
        try_anew(state, peer, now_ms);
        if (state->n_tries >= BT_PREFILL_MAX_TRIES) {
            continue;
        }
        if ((peer->transfer_peer == NULL) && (now_ms >= peer->retry_ms)) {
            connect_peer(w, peer);
        }
    }
}

static bt_status_t begin(bt_worker_t *w, bt_prefill_job_t *pj)
{
    bt_prefill_t *state = w->prefill;
    bt_prefill_peer_t *peer = peer_find(state, pj->job.peer);
    bt_transfer_job_t job;
    bt_status_t status;

    if (peer == NULL) {
        return BT_ERR_PEER_LOST;
    }
    if (!peer->is_fit) {
        return BT_ERR_MISMATCH;
    }
    if (peer->transfer_peer == NULL) { /* it gave a grant: it is back */
        connect_peer(w, peer);
    }
    if (peer->transfer_peer == NULL) {
        return BT_ERR_PEER_LOST;
    }
    job = (bt_transfer_job_t){.instance = peer->instance,
                              .theirs = peer->split,
                              .n_tokens = pj->job.n_tokens,
                              .n_cached = pj->spans_cached};
    status = bt_transfer_out_begin(peer->transfer_peer, &job, pj->grant,
                                   pj->n_regions, pj, &pj->xfer);
    if (status == BT_OK) {
        state->n_xfers++;
    }
    return status;
}

/* Token #1 of each member whose generation continues. */
static void fill_tokens(bt_prefill_job_t *pj, bt_manifest_payload_t *note)
{
    const bool is_over = pj->job.abandoned || (pj->finish != BT_FINISH_NONE);

    note->token = is_over ? BT_NOTE_NO_TOKEN : pj->token;
    note->n_followers = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_job_t, follower, &pj->job.followers,
                           job.in_fanout) {
        note->followers[note->n_followers++] = (bt_manifest_payload_follower_t){
            .id = follower->job.key.id,
            .attempt = follower->job.key.attempt,
            .token = follower->token};
    }
}

static bt_status_t finish(bt_prefill_job_t *pj)
{
    const uint64_t now_us = bt_now_us();
    bt_manifest_payload_t note;
    bt_status_t status;

    note.version = BT_NOTE_VERSION;
    note.attempt = pj->job.key.attempt;
    note.id = pj->job.key.id;
    note.n_tokens = pj->job.n_tokens;
    note.grant_wait_us = now_us - pj->complete_us;
    fill_tokens(pj, &note);
    status = bt_transfer_out_finish(pj->xfer, &note,
                                    bt_manifest_payload_bytes(&note));
    pj->granted_us = now_us;
    return status;
}

void bt_prefill_push(bt_worker_t *w, bt_prefill_job_t *pj)
{
    bt_status_t status = BT_OK;

    if (pj->xfer == NULL) {
        status = begin(w, pj);
    }
    if (status == BT_OK) {
        status = bt_prefill_post(w, pj);
    }
    if ((status == BT_OK) && (pj->phase == BT_PREFILL_SENDING)) {
        status = finish(pj);
    }
    if (status != BT_OK) {
        bt_worker_fanout_fail(w, &pj->job, status, "transfer",
                              "the KV blocks could not be sent");
    }
}

/* Ends a job whose KV was sent, with its followers. */
static void end_sent(bt_worker_t *w, bt_prefill_job_t *pj)
{
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_job_t, follower, &pj->job.followers,
                           job.in_fanout) {
        bt_prefill_move(w, follower, BT_PREFILL_SENT);
    }
    bt_prefill_move(w, pj, BT_PREFILL_SENT);
}

static void on_xfer_done(bt_worker_t *w, const bt_transfer_event_t *event)
{
    bt_prefill_t *state = w->prefill;
    bt_prefill_job_t *pj = event->user;

    pj->xfer = NULL;
    state->n_xfers--;
    if (event->status == BT_OK) {
        const uint64_t now_us = bt_now_us();

        pj->job.tail_us = now_us - pj->granted_us;
        bt_sched_cost_learn_transfer(&w->cost, pj->tail_bytes,
                                     (now_us - pj->sending_us) * 1000, now_us);
    }
    if (pj->phase == BT_PREFILL_ENDING) {
        if (!pj->job.in_engine) {
            bt_prefill_move(w, pj, BT_PREFILL_FREE);
        }
    } else if (event->status == BT_OK) { /* to a manifest only */
        end_sent(w, pj);
    } else {
        bt_worker_fanout_fail(w, &pj->job, event->status, "transfer",
                              bt_status_str(event->status));
    }
}

static void on_peer_up(bt_worker_t *w, const bt_transfer_event_t *event)
{
    bt_prefill_peer_t *peer = event->user;

    end_try(w->prefill, peer);
    BT_LOG_INFO("KV goes to %s by %s", peer->name,
                bt_transfer_path(peer->transfer_peer));
    set_link(w, peer, BT_KV_LINK_PROVEN, NULL, NULL);
}

static void on_peer_lost(bt_worker_t *w, const bt_transfer_event_t *event)
{
    bt_prefill_t *state = w->prefill;
    const uint64_t retry_ms = bt_now_ms() + w->config->heartbeat_ms;
    bt_prefill_peer_t *peer = event->user;

    /* Routers are notified before the requests fail: they run again elsewhere.
     */
    set_link(w, peer, BT_KV_LINK_FAILED, event->at, event->why);
    fail_jobs_of(w, NULL, peer->instance);
    if (peer->routers == 0) {
        bt_prefill_peer_forget(w, peer);
        return;
    }
    disconnect_peer(state, peer);
    /* Not at once: routers will report a worker that died. */
    if (peer->retry_ms < retry_ms) {
        peer->retry_ms = retry_ms;
    }
}

void bt_prefill_on_transfer(bt_worker_t *w, const bt_transfer_event_t *event)
{
    switch (event->type) {
    case BT_TRANSFER_OUT_DONE:
        on_xfer_done(w, event);
        break;
    case BT_TRANSFER_PEER_LOST:
        on_peer_lost(w, event);
        break;
    case BT_TRANSFER_PEER_UP:
        on_peer_up(w, event);
        break;
    case BT_TRANSFER_OPENED:
    case BT_TRANSFER_IN_DONE:
    case BT_TRANSFER_IN_FAILED:
    case BT_TRANSFER_IN_CLOSED:
    case BT_TRANSFER_STUCK:
        break; /* events of regions, which prefill does not have */
    }
}
