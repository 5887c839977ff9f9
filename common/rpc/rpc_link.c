/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

bool bt_rpc_say_once(bt_rpc_t *rpc, uint64_t peer)
{
    for (uint32_t i = 0; (i < rpc->n_said) && (i < RPC_SAID); i++) {
        if (rpc->said[i] == peer) {
            return false;
        }
    }
    /* A peer with ever new names must not fill the log. */
    if ((rpc->n_said > 0) && (rpc->now_ms - rpc->said_ms < 1000)) {
        return false;
    }
    rpc->said[rpc->n_said++ % RPC_SAID] = peer;
    rpc->said_ms = rpc->now_ms;
    return true;
}

void bt_rpc_tell_refused(const bt_rpc_t *rpc, const bt_rpc_refused_t *refused)
{
    if (rpc->on_refused != NULL) {
        rpc->on_refused(rpc->refused_ctx, refused);
    }
}

void bt_rpc_complain(bt_rpc_link_t *link, const char *what)
{
    const bt_rpc_refused_t refused = {.name = link->name,
                                      .url = link->url,
                                      .why = what,
                                      .proven = link->proven};
    rpc_join_t *join = link->join;

    if (join == NULL) {
        bt_rpc_tell_refused(link->rpc, &refused);
    }
    if (join != NULL) {
        snprintf(join->why, sizeof(join->why), "%s", what);
        if (!join->complained) {
            join->complained = true;
            BT_LOG_WARN("router at %s: %s", join->url, what);
        }
    } else if (bt_rpc_say_once(link->rpc, link->incarnation)) {
        BT_LOG_WARN("worker %s at %s: %s",
                    (link->name[0] != '\0') ? link->name : "unnamed", link->url,
                    what);
    }
}

/* The worker's next try: at once after a link that worked, later and later
 * where links do not last. */
static void leave_join(bt_rpc_link_t *link)
{
    rpc_join_t *join = link->join;
    const uint64_t now = link->rpc->now_ms;

    if (join == NULL) {
        return;
    }
    link->join = NULL;
    join->link = NULL;
    if (link->up_told && (now - link->up_ms >= RPC_PROVEN_MS)) {
        join->pause_ms = RPC_ANNOUNCE_MS;
        join->next_open_ms = now;
    } else if (!link->proven) {
        join->next_open_ms = now; /* the router may still dial */
        join->pause_ms = RPC_ANNOUNCE_MS;
    } else {
        join->next_open_ms = now + join->pause_ms;
        join->pause_ms = (2 * join->pause_ms > RPC_BACKOFF_MAX_MS)
                             ? RPC_BACKOFF_MAX_MS
                             : 2 * join->pause_ms;
    }
    join->next_announce_ms = 0;
    if (link->proven) {
        join->first_announce_ms = 0;
        snprintf(join->why, sizeof(join->why), "%s", link->reason);
    }
}

/* The router's dial reached no worker. Refusals were reported. */
static void tell_unreachable(const bt_rpc_link_t *link)
{
    const bt_rpc_refused_t refused = {
        .name = link->name,
        .url = link->url,
        .why = "this router cannot reach it at the address that it gave; is "
               "its --listen-host one that this host sees?",
        .unreachable = true};

    if (link->state == LINK_WAITING) {
        bt_rpc_tell_refused(link->rpc, &refused);
    }
}

/* Text that goes into logs on the other side. */
static void set_reason(bt_rpc_link_t *link, const char *text, size_t n)
{
    if (n >= sizeof(link->reason)) {
        n = sizeof(link->reason) - 1;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];

        link->reason[i] = ((c < ' ') || (c == 0x7f)) ? ' ' : text[i];
    }
    link->reason[n] = '\0';
}

void bt_rpc_link_over(bt_rpc_link_t *link, const char *reason)
{
    if (link->state == LINK_OVER) {
        return;
    }
    if (link->state != LINK_CLOSING) {
        set_reason(link, reason, strlen(reason));
        if ((link->join == NULL) && !link->proven) {
            tell_unreachable(link);
            bt_rpc_dial_failed(link);
        }
        leave_join(link);
    }
    link->state = LINK_OVER;
    bt_rpc_mark_ready(link);
}

void bt_rpc_link_close(bt_rpc_link_t *link, const char *reason)
{
    if (link->state == LINK_UP) { /* else its DOWN is being reported already */
        bt_rpc_link_refuse(link, reason);
    }
}

void bt_rpc_link_refuse(bt_rpc_link_t *link, const char *reason)
{
    set_reason(link, reason, strlen(reason));
    leave_join(link);
    link->state = LINK_CLOSING;
    link->bye_wanted = true;
    link->deadline_ms = link->rpc->now_ms + RPC_CLOSE_MS;
    bt_rpc_link_pump(link);
    bt_rpc_mark_ready(link);
}

/* ---- from the handshake to a link ---- */

/* A process that links up again, while its old link still seems alive: the
 * old one is dead, only not detected yet. Its DOWN is reported first. */
static void replace_older(bt_rpc_link_t *link)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &link->rpc->links)
    {
        bt_rpc_link_t *other = BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all);

        if ((other != link) && (other->state == LINK_UP) &&
            (other->incarnation == link->incarnation)) {
            bt_rpc_link_over(other, "replaced by a newer link of the peer");
            pthread_mutex_lock(&link->rpc->mutex);
            bt_list_remove(&link->in_ready); /* behind the other one */
            pthread_mutex_unlock(&link->rpc->mutex);
        }
    }
}

bool bt_rpc_link_keep(bt_rpc_link_t *link, const void *hello, size_t bytes)
{
    link->hello = bt_memdup(hello, bytes);
    if (link->hello == NULL) {
        BT_LOG_ERROR("out of memory for the hello of %s", link->url);
        bt_rpc_link_over(link, "out of memory");
        return false;
    }
    link->hello_bytes = bytes;
    return true;
}

void bt_rpc_link_up(bt_rpc_link_t *link)
{
    link->proven = true;
    if (!link->old) {
        replace_older(link);
        bt_rpc_inbox_share_key(link);
    }
    link->state = LINK_UP;
    link->up_pending = true;
    link->deadline_ms = 0;
    link->up_ms = link->heard_ms = link->sent_ms = link->rpc->now_ms;
    bt_rpc_silence_init(link);
    if (link->join != NULL) {
        link->join->complained = false;
    } else if (!link->old) {
        bt_rpc_lanes_offer(link);
    }
}

/* ---- an established link ---- */

/* The next frame of this link and direction, or the end of the link. */
static bool open_next(bt_rpc_link_t *link, nng_msg *msg, bool is_tagged,
                      rpc_frame_t *frame_p)
{
    const bt_status_t status =
        bt_rpc_frame_open(is_tagged ? NULL : link->open_key, nng_msg_body(msg),
                          nng_msg_len(msg), frame_p);

    if (status != BT_OK) {
        bt_rpc_link_over(link, (status == BT_ERR_UNAUTHORIZED)
                                   ? "frame without a right tag"
                                   : "malformed frame");
        return false;
    }
    if (frame_p->sequence != link->next_in) {
        bt_rpc_link_over(link, "frame lost or repeated");
        return false;
    }
    link->next_in++;
    return true;
}

static void on_bye(bt_rpc_link_t *link, const rpc_frame_t *frame)
{
    char reason[RPC_MAX_REASON];

    memcpy(reason, frame->body, frame->bytes);
    reason[frame->bytes] = '\0';
    if (bt_rpc_lanes_last(link)) { /* earlier messages are delivered before */
        link->lanes.bye_heard = true;
        memcpy(link->lanes.bye, reason, frame->bytes + 1);
        return;
    }
    bt_rpc_link_over(link, reason);
}

/* @return true when msg is now rpc->current_msg. */
static bool on_frame(bt_rpc_link_t *link, nng_msg *msg, bool is_tagged)
{
    bt_rpc_t *rpc = link->rpc;
    rpc_frame_t frame;

    if (!open_next(link, msg, is_tagged, &frame)) {
        nng_msg_free(msg);
        return false;
    }
    bt_rpc_silence_over(link);
    switch (frame.kind) {
    case RPC_OFFER:
    case RPC_GIVEN:
    case RPC_LANE:
        bt_rpc_lanes_frame(link, &frame);
        break;
    case RPC_DATA:
        if (link->lanes.reads && (frame.bytes > 0)) {
            bt_rpc_link_over(link, "malformed frame");
            break;
        }
        rpc->current = link;
        rpc->current_msg = msg;
        rpc->current_frame = frame;
        rpc->current_at = 0;
        return true;
    case RPC_BYE:
        on_bye(link, &frame);
        break;
    case RPC_ACCEPT:
    case RPC_READY:
        bt_rpc_link_over(link, "malformed frame");
        break;
    default:
        break; /* of a later version, which says that it may be missed */
    }
    nng_msg_free(msg);
    return false;
}

static link_step_t emit(bt_rpc_link_t *link, bt_rpc_event_type_t type,
                        const void *data, size_t bytes, bt_rpc_event_t *event_p)
{
    event_p->type = type;
    event_p->link = link;
    event_p->data = data;
    event_p->bytes = bytes;
    return STEP_EVENT;
}

static link_step_t emit_up(bt_rpc_link_t *link, bt_rpc_event_t *event_p)
{
    link->up_pending = false;
    link->up_told = true;
    link->rpc->event_data = link->hello; /* freed at the next call */
    link->hello = NULL;
    return emit(link, BT_RPC_LINK_UP, link->rpc->event_data, link->hello_bytes,
                event_p);
}

/* Change of the peer's silence. */
static link_step_t emit_news(bt_rpc_link_t *link, bt_rpc_event_t *event_p)
{
    static const bt_rpc_event_type_t types[] = {
        [RPC_TOLD_NOTHING] = BT_RPC_LINK_HEALTHY,
        [RPC_TOLD_SUSPECT] = BT_RPC_LINK_SUSPECT,
        [RPC_TOLD_STARVED] = BT_RPC_LINK_STARVED,
    };

    if (link->told == link->is) {
        return STEP_AGAIN;
    }
    link->told = link->is;
    return emit(link, types[link->is], NULL, 0, event_p);
}

/* Something of the inbox. */
static link_step_t step_inbox(bt_rpc_link_t *link, bt_rpc_event_t *event_p)
{
    bool is_tagged = false;
    bool ended;
    nng_msg *msg = bt_rpc_inbox_take(link, &is_tagged, &ended);

    if (msg == NULL) {
        if (ended && !bt_rpc_lanes_last(link)) {
            bt_rpc_link_over(link, "connection lost");
        }
        return ended ? STEP_AGAIN : STEP_IDLE;
    }
    if (link->state == LINK_CLOSING) {
        nng_msg_free(msg);
    } else if (link->old) {
        bt_rpc_refuse_frame(link, nng_msg_body(msg), nng_msg_len(msg));
        nng_msg_free(msg);
    } else if (link->state != LINK_UP) {
        bt_rpc_handshake_frame(link, nng_msg_body(msg), nng_msg_len(msg));
        nng_msg_free(msg);
    } else if (on_frame(link, msg, is_tagged)) {
        return emit_news(link, event_p);
    }
    return STEP_AGAIN;
}

/* Received data, from the memory first: a BYE comes after it. */
static link_step_t step_in(bt_rpc_link_t *link, bt_rpc_event_t *event_p)
{
    if ((link->state == LINK_UP) && bt_rpc_lanes_read(link)) {
        bt_rpc_silence_over(link);
        return emit_news(link, event_p);
    }
    if (link->state == LINK_OVER) {
        return STEP_AGAIN;
    }
    if ((link->state == LINK_UP) && link->lanes.bye_heard) {
        bt_rpc_link_over(link, link->lanes.bye);
        return STEP_AGAIN;
    }
    return step_inbox(link, event_p);
}

link_step_t bt_rpc_link_step(bt_rpc_link_t *link, bt_rpc_event_t *event_p)
{
    if ((link->state >= LINK_CLOSING) && link->up_told && !link->down_told) {
        link->down_told = true;
        return emit(link, BT_RPC_LINK_DOWN, link->reason, strlen(link->reason),
                    event_p);
    }
    if (link->state == LINK_OVER) {
        if (!link->up_told) {
            BT_LOG_DEBUG("link at %s given up: %s", link->url, link->reason);
        }
        bt_rpc_link_retire(link);
        return STEP_FREED;
    }
    if (link->state == LINK_WAITING) {
        switch (bt_rpc_pipe_state(link->pipe)) {
        case RPC_PIPE_CONNECTING:
            return STEP_IDLE;
        case RPC_PIPE_OPEN:
            if (link->old) {
                bt_rpc_refuse_start(link);
            } else {
                bt_rpc_handshake_start(link);
            }
            break;
        case RPC_PIPE_ENDED:
            bt_rpc_link_over(link, "connection lost");
            return STEP_AGAIN;
        }
    }
    bt_rpc_link_pump(link);
    if (link->state == LINK_OVER) {
        return STEP_AGAIN;
    }
    if (link->up_pending) {
        return emit_up(link, event_p);
    }
    if (link->old && (link->state == LINK_UP)) {
        bt_rpc_link_close(link, "it speaks the frames of protocol 2");
        return STEP_AGAIN; /* the owner has not refused it by itself */
    }
    if ((link->state == LINK_UP) && (link->told != link->is)) {
        return emit_news(link, event_p);
    }
    if (link->room_wanted && (link->state == LINK_UP) &&
        (bt_rpc_queued(link) <= link->room_bytes)) {
        link->room_wanted = false;
        return emit(link, BT_RPC_LINK_ROOM, NULL, 0, event_p);
    }
    return step_in(link, event_p);
}

void bt_rpc_link_tick(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;
    const uint64_t now = rpc->now_ms;
    bool unread;

    if (link->state == LINK_OVER) {
        return;
    }
    if ((link->deadline_ms != 0) && (now >= link->deadline_ms)) {
        if ((link->state > LINK_WAITING) && (link->state < LINK_UP)) {
            bt_rpc_complain(link, "refused, it did not finish the handshake");
        }
        bt_rpc_link_over(link, "timed out");
        return;
    }
    if (link->state != LINK_UP) {
        return;
    }
    bt_rpc_lanes_tick(link);
    if (!link->old && (now - link->sent_ms >= rpc->heartbeat_ms) &&
        bt_rpc_can_send(link)) {
        link->heartbeat_due = true;
        bt_rpc_link_pump(link);
    }
    pthread_mutex_lock(&rpc->mutex);
    unread = link->inbox_n > 0; /* it spoke, we only have not listened */
    pthread_mutex_unlock(&rpc->mutex);
    if (!unread && !bt_rpc_lanes_any(link) && (now >= link->heard_ms)) {
        bt_rpc_silence_tick(link);
    }
}
