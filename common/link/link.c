/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/link/link_priv.h"

/* True the first time for this peer, and not too often for all. */
static bool say_once(bt_control_t *control, uint64_t peer)
{
    for (uint32_t i = 0; (i < control->n_said) && (i < LINK_SAID); i++) {
        if (control->said[i] == peer) {
            return false;
        }
    }
    /* A peer with ever new names must not fill the log. */
    if ((control->n_said > 0) && (control->now_ms - control->said_ms < 1000)) {
        return false;
    }
    control->said[control->n_said++ % LINK_SAID] = peer;
    control->said_ms = control->now_ms;
    return true;
}

void bt_link_complain(bt_link_t *link, const char *what)
{
    const bt_control_refused_t refused = {.name = link->name,
                                          .url = link->url,
                                          .why = what,
                                          .proven = link->proven};
    bt_control_t *control = link->control;
    link_join_t *join = link->join;

    if (join != NULL) {
        snprintf(join->why, sizeof(join->why), "%s", what);
        join->is_explained = true;
        if (!join->complained) {
            join->complained = true;
            BT_LOG_WARN("router at %s: %s", join->url, what);
        }
        return;
    }
    if (control->on_refused != NULL) {
        control->on_refused(control->refused_ctx, &refused);
    }
    if (say_once(control, link->incarnation)) {
        BT_LOG_WARN(
            "%s%s at %s: %s", (link->incarnation == 0) ? "peer" : "worker ",
            (link->incarnation == 0) ? "" : link->name, link->url, what);
    }
}

/* ---- states ---- */

#define EDGE(to) (1u << (to))

void bt_link_move(bt_link_t *link, link_state_t next)
{
    static const uint32_t edges[] = {
        [LINK_CONNECTING] = EDGE(LINK_GREETING) | EDGE(LINK_OVER),
        [LINK_GREETING] =
            EDGE(LINK_PROVING) | EDGE(LINK_CLOSING) | EDGE(LINK_OVER),
        [LINK_PROVING] = EDGE(LINK_UP) | EDGE(LINK_OVER),
        [LINK_UP] = EDGE(LINK_CLOSING) | EDGE(LINK_OVER),
        [LINK_CLOSING] = EDGE(LINK_BYE_SENT) | EDGE(LINK_OVER),
        [LINK_BYE_SENT] = EDGE(LINK_OVER),
        [LINK_OVER] = 0,
    };
    const bt_control_t *control = link->control;

    /* An accepted link begins where a dialled one connects. */
    BT_ASSERT((edges[link->state] & EDGE(next)) != 0);
    link->state = next;
    switch (next) {
    case LINK_GREETING:
    case LINK_PROVING:
        link->deadline_ms =
            control->now_ms + control->dead_ms * ((link->join != NULL) ? 2 : 1);
        break;
    case LINK_UP:
        link->deadline_ms = 0;
        link->up_ms = link->heard_ms = link->sent_ms = control->now_ms;
        break;
    case LINK_CLOSING:
        link->deadline_ms = control->now_ms + LINK_CLOSE_MS;
        break;
    case LINK_CONNECTING:
    case LINK_BYE_SENT:
    case LINK_OVER:
        break;
    }
}

/* Plans the next dial of the router that this link was to. */
static void leave_join(bt_link_t *link)
{
    if (link->join != NULL) {
        bt_link_join_ended(link->join, link);
        link->join = NULL;
    }
}

void bt_link_reason_print(char reason[LINK_MAX_REASON], const void *text,
                          size_t n)
{
    const unsigned char *const from = text;

    if (n >= LINK_MAX_REASON) {
        n = LINK_MAX_REASON - 1;
    }
    for (size_t i = 0; i < n; i++) {
        reason[i] =
            ((from[i] < ' ') || (from[i] == 0x7f)) ? ' ' : (char)from[i];
    }
    reason[n] = '\0';
}

void bt_link_over(bt_link_t *link, const char *reason)
{
    if (link->state == LINK_OVER) {
        return;
    }
    if (link->state < LINK_CLOSING) {
        bt_link_reason_print(link->reason, reason, strlen(reason));
        leave_join(link);
    }
    bt_link_move(link, LINK_OVER);
    bt_link_mark_ready(link);
}

void bt_link_close(bt_link_t *link, const char *reason)
{
    if (link->state == LINK_UP) { /* else its DOWN is being reported already */
        bt_link_refuse(link, reason);
    }
}

void bt_link_refuse(bt_link_t *link, const char *reason)
{
    bt_link_reason_print(link->reason, reason, strlen(reason));
    leave_join(link);
    bt_link_move(link, LINK_CLOSING);
    bt_link_pump(link);
    bt_link_mark_ready(link);
}

/* ---- from the handshake to a link ---- */

/* A process that links up again, while its old link still seems alive: the
 * old one is dead, only not detected yet. Its DOWN is reported first. */
static void replace_older(bt_link_t *link)
{
    BT_LIST_FOR_EACH_ENTRY(bt_link_t, other, &link->control->links, in_all) {
        if ((other != link) && (other->state == LINK_UP) &&
            (other->incarnation == link->incarnation)) {
            bt_link_over(other, "replaced by a newer link of the peer");
            pthread_mutex_lock(&link->control->mutex);
            bt_list_remove(&link->in_ready); /* behind the other one */
            pthread_mutex_unlock(&link->control->mutex);
        }
    }
}

bool bt_link_keep(bt_link_t *link, const void *hello, size_t bytes)
{
    link->hello = bt_memdup(hello, bytes);
    if (link->hello == NULL) {
        BT_LOG_ERROR("out of memory for the hello of %s", link->url);
        bt_link_over(link, "out of memory");
        return false;
    }
    link->hello_bytes = bytes;
    return true;
}

void bt_link_up(bt_link_t *link)
{
    link->proven = true;
    replace_older(link);
    bt_link_inbox_share_key(link);
    bt_link_move(link, LINK_UP);
    bt_link_silence_init(link);
    if (link->join != NULL) {
        link->join->complained = false;
        link->join->unanswered_ms = 0;
    } else {
        bt_link_shm_offer(link);
    }
}

/* ---- an established link ---- */

/* The next frame of this link and direction, or the end of the link. */
static bool open_next(bt_link_t *link, nng_msg *msg, bool is_tagged,
                      link_frame_t *frame_p)
{
    const bt_status_t status =
        bt_link_frame_open(is_tagged ? NULL : link->open_key, nng_msg_body(msg),
                           nng_msg_len(msg), frame_p);

    if (status != BT_OK) {
        bt_link_over(link, (status == BT_ERR_UNAUTHORIZED)
                               ? "frame without a right tag"
                               : "malformed frame");
        return false;
    }
    if (frame_p->sequence != link->next_in) {
        bt_link_over(link, "frame lost or repeated");
        return false;
    }
    link->next_in++;
    return true;
}

static void on_bye(bt_link_t *link, const link_frame_t *frame)
{
    char reason[LINK_MAX_REASON];

    memcpy(reason, frame->body, frame->bytes);
    reason[frame->bytes] = '\0';
    if (bt_link_shm_last(link)) { /* earlier messages are delivered before */
        link->shm.bye_heard = true;
        memcpy(link->shm.bye, reason, frame->bytes + 1);
        return;
    }
    bt_link_over(link, reason);
}

/* @return true when msg is now control->current_msg. */
static bool on_frame(bt_link_t *link, nng_msg *msg, bool is_tagged)
{
    bt_control_t *control = link->control;
    link_frame_t frame;

    if (!open_next(link, msg, is_tagged, &frame)) {
        nng_msg_free(msg);
        return false;
    }
    bt_link_silence_over(link);
    switch (frame.kind) {
    case LINK_FRAME_OFFER:
    case LINK_FRAME_GIVEN:
    case LINK_FRAME_RING:
        bt_link_shm_frame(link, &frame);
        break;
    case LINK_FRAME_DATA:
        if (bt_link_shm_reads(link) && (frame.bytes > 0)) {
            bt_link_over(link, "malformed frame");
            break;
        }
        control->current = link;
        control->current_msg = msg;
        control->current_frame = frame;
        control->current_at = 0;
        return true;
    case LINK_FRAME_BYE:
        on_bye(link, &frame);
        break;
    case LINK_FRAME_ACCEPT:
    case LINK_FRAME_READY:
        bt_link_over(link, "malformed frame");
        break;
    default:
        break; /* of a later version, which says that it may be missed */
    }
    nng_msg_free(msg);
    return false;
}

static link_step_t emit(bt_link_t *link, bt_link_event_type_t type,
                        const void *data, size_t bytes,
                        bt_link_event_t *event_p)
{
    event_p->type = type;
    event_p->link = link;
    event_p->data = data;
    event_p->bytes = bytes;
    return STEP_EVENT;
}

static link_step_t emit_up(bt_link_t *link, bt_link_event_t *event_p)
{
    link->reported = REPORTED_UP;
    link->control->event_data = link->hello; /* freed at the next call */
    link->hello = NULL;
    return emit(link, BT_LINK_UP, link->control->event_data, link->hello_bytes,
                event_p);
}

/* Change of the peer's silence. */
static link_step_t emit_news(bt_link_t *link, bt_link_event_t *event_p)
{
    static const bt_link_event_type_t types[] = {
        [LINK_TOLD_NOTHING] = BT_LINK_HEALTHY,
        [LINK_TOLD_SUSPECT] = BT_LINK_SUSPECT,
        [LINK_TOLD_STARVED] = BT_LINK_STARVED,
    };

    if (link->told == link->is) {
        return STEP_AGAIN;
    }
    link->told = link->is;
    return emit(link, types[link->is], NULL, 0, event_p);
}

/* Something of the inbox. */
static link_step_t step_inbox(bt_link_t *link, bt_link_event_t *event_p)
{
    bool is_tagged = false;
    bool ended;
    nng_msg *msg = bt_link_inbox_take(link, &is_tagged, &ended);

    if (msg == NULL) {
        if (ended && !bt_link_shm_last(link)) {
            bt_link_over(link, "connection lost");
        }
        return ended ? STEP_AGAIN : STEP_IDLE;
    }
    if (link->state > LINK_UP) {
        nng_msg_free(msg);
    } else if (link->state != LINK_UP) {
        bt_link_handshake_frame(link, nng_msg_body(msg), nng_msg_len(msg));
        nng_msg_free(msg);
    } else if (on_frame(link, msg, is_tagged)) {
        return emit_news(link, event_p);
    }
    return STEP_AGAIN;
}

/* Received data, from the memory first: a BYE comes after it. */
static link_step_t step_in(bt_link_t *link, bt_link_event_t *event_p)
{
    if ((link->state == LINK_UP) && bt_link_shm_read(link)) {
        bt_link_silence_over(link);
        return emit_news(link, event_p);
    }
    if (link->state == LINK_OVER) {
        return STEP_AGAIN;
    }
    if ((link->state == LINK_UP) && link->shm.bye_heard) {
        bt_link_over(link, link->shm.bye);
        return STEP_AGAIN;
    }
    return step_inbox(link, event_p);
}

/* The dialled connection. @return false: there is none yet */
static bool step_connecting(bt_link_t *link)
{
    switch (bt_link_pipe_state(link->pipe)) {
    case LINK_PIPE_CONNECTING:
        return false;
    case LINK_PIPE_OPEN:
        bt_link_handshake_start(link);
        break;
    case LINK_PIPE_ENDED:
        bt_link_over(link, "no router answers there");
        break;
    }
    return true;
}

link_step_t bt_link_step(bt_link_t *link, bt_link_event_t *event_p)
{
    if ((link->state >= LINK_CLOSING) && (link->reported == REPORTED_UP)) {
        link->reported = REPORTED_DOWN;
        return emit(link, BT_LINK_DOWN, link->reason, strlen(link->reason),
                    event_p);
    }
    if (link->state == LINK_OVER) {
        if (link->reported == REPORTED_NOTHING) {
            BT_LOG_DEBUG("link at %s given up: %s", link->url, link->reason);
        }
        bt_link_retire(link);
        return STEP_FREED;
    }
    if ((link->state == LINK_CONNECTING) && !step_connecting(link)) {
        return STEP_IDLE;
    }
    if (link->state == LINK_OVER) {
        return STEP_AGAIN;
    }
    bt_link_pump(link);
    if (link->state == LINK_OVER) {
        return STEP_AGAIN;
    }
    if (link->state == LINK_UP) {
        if (link->reported == REPORTED_NOTHING) {
            return emit_up(link, event_p);
        }
        if (link->told != link->is) {
            return emit_news(link, event_p);
        }
        if ((link->writable_bytes != LINK_NOT_WANTED) &&
            (bt_link_queued(link) <= link->writable_bytes)) {
            link->writable_bytes = LINK_NOT_WANTED;
            return emit(link, BT_LINK_WRITABLE, NULL, 0, event_p);
        }
    }
    return step_in(link, event_p);
}

/* True when the link has not moved on in time, and is over. */
static bool tick_deadline(bt_link_t *link)
{
    if ((link->deadline_ms == 0) ||
        (link->control->now_ms < link->deadline_ms)) {
        return false;
    }
    if (link->state == LINK_PROVING) {
        bt_link_complain(link, "refused, it did not finish the handshake");
    }
    bt_link_over(link, "timed out");
    return true;
}

void bt_link_tick(bt_link_t *link)
{
    bt_control_t *control = link->control;
    const uint64_t now = control->now_ms;
    bool unread;

    if ((link->state == LINK_OVER) || tick_deadline(link) ||
        (link->state != LINK_UP)) {
        return;
    }
    bt_link_shm_tick(link);
    if ((now - link->sent_ms >= control->heartbeat_ms) &&
        bt_link_can_send(link)) {
        link->heartbeat_due = true;
        bt_link_pump(link);
    }
    pthread_mutex_lock(&control->mutex);
    unread = link->inbox_n > 0; /* it spoke, we only have not listened */
    pthread_mutex_unlock(&control->mutex);
    if (!unread && !bt_link_shm_any(link) && (now >= link->heard_ms)) {
        bt_link_silence_tick(link);
    }
}
