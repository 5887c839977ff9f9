/* SPDX-License-Identifier: Apache-2.0 */
/* Sending of a link: messages wait in link->out, frames of the handshake
 * before them, a BYE behind them. */
#include <string.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/link/link_priv.h"

nng_msg *bt_link_seal(bt_link_t *link, link_kind_t kind, const void *head,
                      size_t head_bytes, const void *body, size_t bytes)
{
    const size_t whole = bt_link_frame_bytes(head_bytes + bytes);
    nng_msg *msg;
    uint8_t *p;

    if (nng_msg_alloc(&msg, whole) != 0) {
        return NULL;
    }
    p = nng_msg_body(msg);
    if (head_bytes > 0) {
        memcpy(p + LINK_HEADER_BYTES, head, head_bytes);
    }
    if (bytes > 0) {
        memcpy(p + LINK_HEADER_BYTES + head_bytes, body, bytes);
    }
    bt_link_frame_seal(link->seal_key, (uint8_t)kind, link->next_out++, p,
                       whole);
    return msg;
}

size_t bt_link_queued(const bt_link_t *link)
{
    return link->out.len - link->out_at;
}

void bt_link_want_writable(bt_link_t *link, size_t bytes)
{
    if (link->state != LINK_UP) {
        return;
    }
    link->writable_bytes = bytes;
    if (bt_link_queued(link) <= bytes) {
        bt_link_mark_ready(link);
    }
}

/* Moving the rest only when it is no larger than the sent part costs each
 * byte at most one move. */
void bt_link_drop_queued(bt_link_t *link, size_t bytes)
{
    link->out_at += bytes;
    if (bt_link_queued(link) <= link->out_at) {
        bt_strbuf_consume(&link->out, link->out_at);
        link->out_at = 0;
    }
    if ((link->writable_bytes != LINK_NOT_WANTED) &&
        (bt_link_queued(link) <= link->writable_bytes)) {
        bt_link_mark_ready(link);
    }
}

/* The next frame that is due, or NULL; *whole_p = bytes of link->out in it. */
static nng_msg *next_frame(bt_link_t *link, size_t *whole_p, bool *due_p)
{
    *whole_p = 0;
    *due_p = true;
    if (link->n_own > 0) {
        nng_msg *msg = link->own[0];

        link->n_own--;
        memmove(&link->own[0], &link->own[1], link->n_own * sizeof(msg));
        return msg;
    }
    if ((link->state != LINK_UP) && (link->state != LINK_CLOSING)) {
        *due_p = false;
        return NULL;
    }
    if (!bt_link_shm_writes(link) && (bt_link_queued(link) > 0)) {
        *whole_p = (bt_link_queued(link) < LINK_DATA_BYTES)
                       ? bt_link_queued(link)
                       : LINK_DATA_BYTES;
        return bt_link_seal(link, LINK_FRAME_DATA, NULL, 0,
                            link->out.data + link->out_at, *whole_p);
    }
    if ((link->state == LINK_CLOSING) && (bt_link_queued(link) == 0)) {
        bt_link_move(link, LINK_BYE_SENT);
        return bt_link_seal(link, LINK_FRAME_BYE, NULL, 0, link->reason,
                            strlen(link->reason));
    }
    if (link->heartbeat_due && (link->state == LINK_UP)) {
        return bt_link_seal(link, LINK_FRAME_DATA, NULL, 0, NULL, 0);
    }
    *due_p = false;
    return NULL;
}

void bt_link_pump(bt_link_t *link)
{
    bt_list_remove(&link->in_dirty);
    if (bt_link_shm_writes(link)) {
        bt_link_shm_write(link);
        if ((link->n_own == 0) && (link->state == LINK_UP) &&
            !link->heartbeat_due) {
            return; /* nothing for nng */
        }
    }
    while (bt_link_can_send(link)) {
        size_t whole;
        bool due;
        nng_msg *msg = next_frame(link, &whole, &due);

        if (!due) {
            return;
        }
        if (msg == NULL) {
            BT_LOG_ERROR("out of memory for a frame to %s", link->url);
            bt_link_over(link, "out of memory");
            return;
        }
        if (!bt_link_send(link, msg)) {
            nng_msg_free(msg); /* cannot be: only we start to send */
            return;
        }
        bt_link_drop_queued(link, whole);
        link->heartbeat_due = false;
        link->sent_ms = link->control->now_ms;
    }
}

bt_status_t bt_link_post(bt_link_t *link, const void *data, size_t bytes)
{
    bt_control_t *control = link->control;
    uint8_t length[LINK_LENGTH_BYTES];

    if (link->state != LINK_UP) {
        return BT_ERR_BUSY;
    }
    if (bytes > BT_LINK_MAX_MESSAGE) {
        return BT_ERR_TOO_LARGE;
    }
    bt_link_put_le(length, bytes, sizeof(length));
    if (LINK_LENGTH_BYTES + bytes >
        control->max_queue_bytes - bt_link_queued(link)) {
        BT_LOG_WARN("peer at %s does not take its messages: %zu bytes wait",
                    link->url, bt_link_queued(link));
        bt_link_over(link, "the peer does not take its messages");
        return BT_ERR_BUSY;
    }
    bt_strbuf_append(&link->out, length, sizeof(length));
    bt_strbuf_append(&link->out, data, bytes);
    if (bt_strbuf_status(&link->out) != BT_OK) {
        BT_LOG_ERROR("out of memory for a message to %s", link->url);
        bt_link_over(link, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    if (bt_list_empty(&link->in_dirty)) {
        bt_list_push_back(&control->dirty, &link->in_dirty);
    }
    return BT_OK;
}

void bt_link_send_own(bt_link_t *link, nng_msg *msg)
{
    if (msg == NULL) {
        BT_LOG_ERROR("out of memory for a frame to %s", link->url);
        bt_link_over(link, "out of memory");
        return;
    }
    BT_ASSERT_ALWAYS(link->n_own < BT_ARRAY_LEN(link->own));
    link->own[link->n_own++] = msg;
    bt_link_pump(link);
}
