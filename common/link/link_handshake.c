/* SPDX-License-Identifier: Apache-2.0 */
/* Handshake: how a link gets its key (docs/WIRE.md, "Links").
 *
 *     W                                      R
 *     JOIN: nonce, its range, mac ──────────▶ mac right, else the end
 *              ◀────────── OPEN: nonce, its range, the router's proof
 *     ACCEPT: version, hello, tag ──────────▶ tag right: the worker's proof
 *              ◀────────────────────── READY: version, hello, tag
 *
 * The link's key is derived from both frames that open it, so that none of
 * their fields can be another's: nonces, incarnations, names, versions. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/link/link_priv.h"

/* Both frames are made with the key that the first one names. */
static const link_keys_t *keys_of(const bt_link_t *link)
{
    return bt_link_keyring_find(
        &link->control->keyring,
        bt_link_intro_key_id(link->join_frame, link->join_bytes));
}

/* Both frames are known: the key of this link and no other. */
static void make_session(bt_link_t *link, const void *open, size_t open_bytes)
{
    const bool worker = link->join != NULL;

    bt_link_session_make(keys_of(link), link->join_frame, link->join_bytes,
                         open, open_bytes, &link->session);
    link->seal_key = worker ? link->session.to_router : link->session.to_worker;
    link->open_key = worker ? link->session.to_worker : link->session.to_router;
}

static link_intro_t introduce(const bt_control_t *control)
{
    link_intro_t intro = {.range = control->range,
                          .incarnation = control->incarnation};

    bt_key_random(intro.nonce, sizeof(intro.nonce));
    memcpy(intro.name, control->name, sizeof(intro.name));
    return intro;
}

static void send_intro(bt_link_t *link, const uint8_t *frame, size_t bytes)
{
    nng_msg *msg = NULL;

    if (nng_msg_alloc(&msg, bytes) == 0) {
        memcpy(nng_msg_body(msg), frame, bytes);
    }
    bt_link_send_own(link, msg);
}

void bt_link_handshake_start(bt_link_t *link)
{
    bt_control_t *control = link->control;
    const link_intro_t intro = introduce(control);

    bt_link_move(link, LINK_GREETING);
    link->join_bytes =
        bt_link_join_put(&control->keyring.now, &intro, link->join_frame);
    send_intro(link, link->join_frame, link->join_bytes);
}

/* At the router. Whoever made the frame knows the key; who recorded it cannot
 * make the next one. */
static void on_join(bt_link_t *link, const void *data, size_t bytes)
{
    bt_control_t *control = link->control;
    const link_keys_t *keys = bt_link_keyring_find(
        &control->keyring, bt_link_intro_key_id(data, bytes));
    uint8_t frame[LINK_MAX_INTRO];
    link_intro_t intro;
    bt_status_t status = bt_link_join_check(keys, data, bytes, &intro);
    size_t n;

    if (status == BT_ERR_BAD_MESSAGE) {
        bt_link_complain(link,
                         "something that is not a worker of ours talks to "
                         "the control port");
        bt_link_over(link, "malformed handshake");
        return;
    }
    link->incarnation = intro.incarnation;
    memcpy(link->name, intro.name, sizeof(link->name));
    if (status != BT_OK) {
        bt_link_complain(link,
                         "refused, it has another cluster key: both sides "
                         "need the same key file");
        bt_link_over(link, "cluster key not proven");
        return;
    }
    link->version = bt_wire_common(control->range, intro.range);
    memcpy(link->join_frame, data, bytes);
    link->join_bytes = bytes;
    intro = introduce(control);
    n = bt_link_open_put(keys, data, bytes, &intro, frame);
    make_session(link, frame, n);
    bt_link_pipe_allow(link->pipe, LINK_MAX_FRAME); /* ACCEPT has a hello */
    bt_link_move(link, LINK_PROVING);
    send_intro(link, frame, n);
}

static void send_hello(bt_link_t *link, link_kind_t kind)
{
    uint8_t version[LINK_VERSION_BYTES];

    bt_link_put_le(version, link->version, sizeof(version));
    bt_link_send_own(link, bt_link_seal(link, kind, version, sizeof(version),
                                        link->control->hello,
                                        link->control->hello_bytes));
}

/* The peer's identity is proven, and it is refused by name on both sides. */
static void refuse_version(bt_link_t *link, bt_wire_range_t theirs)
{
    char theirs_text[BT_WIRE_RANGE_BYTES];
    char ours_text[BT_WIRE_RANGE_BYTES];
    char why[LINK_MAX_REASON];

    bt_wire_range_print(theirs, theirs_text);
    bt_wire_range_print(link->control->range, ours_text);
    snprintf(why, sizeof(why), "%s speaks protocol %s, %s speaks %s",
             link->name, theirs_text, link->control->name, ours_text);
    bt_link_complain(link, why);
    bt_link_refuse(link, why);
}

/* At the worker. */
static void on_open(bt_link_t *link, const void *data, size_t bytes)
{
    bt_control_t *control = link->control;
    link_intro_t intro;

    switch (bt_link_open_check(keys_of(link), link->join_frame,
                               link->join_bytes, data, bytes, &intro)) {
    case BT_OK:
        break;
    case BT_ERR_UNAUTHORIZED:
        bt_link_complain(link,
                         "refused, it does not prove the cluster key; both "
                         "sides need the same key file");
        bt_link_over(link, "cluster key not proven");
        return;
    default:
        bt_link_complain(link, "refused, it does not speak this protocol");
        bt_link_over(link, "malformed handshake");
        return;
    }
    link->proven = true;
    link->incarnation = intro.incarnation;
    memcpy(link->name, intro.name, sizeof(link->name));
    make_session(link, data, bytes);
    link->version = bt_wire_common(control->range, intro.range);
    if (link->version == 0) {
        refuse_version(link, intro.range);
        return;
    }
    bt_link_pipe_allow(link->pipe, LINK_MAX_FRAME); /* READY has a hello */
    bt_link_move(link, LINK_PROVING);
    send_hello(link, LINK_FRAME_ACCEPT);
}

/* At the router: the first frame is to be ACCEPT, or a reason; at the worker,
 * READY. */
static void on_tagged(bt_link_t *link, const void *data, size_t bytes)
{
    const link_kind_t wanted =
        (link->join != NULL) ? LINK_FRAME_READY : LINK_FRAME_ACCEPT;
    link_frame_t frame;

    if ((bt_link_frame_open(link->open_key, data, bytes, &frame) != BT_OK) ||
        (frame.sequence != link->next_in)) {
        bt_link_complain(link, "refused, it does not prove the cluster key; "
                               "both sides need the same key file");
        bt_link_over(link, "cluster key not proven");
        return;
    }
    link->proven = true;
    link->next_in++;
    if (frame.kind == LINK_FRAME_BYE) {
        char reason[LINK_MAX_REASON];

        bt_link_reason_print(reason, frame.body, frame.bytes);
        bt_link_complain(link, reason);
        bt_link_over(link, reason);
        return;
    }
    if ((frame.kind != wanted) || (link->version == 0) ||
        (bt_link_get_le(frame.body, LINK_VERSION_BYTES) != link->version)) {
        bt_link_complain(link, "refused, its handshake is out of order");
        bt_link_over(link, "handshake out of order");
        return;
    }
    if (!bt_link_keep(link, frame.body + LINK_VERSION_BYTES,
                      frame.bytes - LINK_VERSION_BYTES)) {
        return;
    }
    if (wanted == LINK_FRAME_ACCEPT) {
        send_hello(link, LINK_FRAME_READY);
        if (link->state != LINK_PROVING) {
            return; /* no memory for it */
        }
    }
    bt_link_up(link);
}

void bt_link_handshake_frame(bt_link_t *link, const void *data, size_t bytes)
{
    if (link->state == LINK_PROVING) {
        on_tagged(link, data, bytes);
    } else if (link->join != NULL) {
        on_open(link, data, bytes);
    } else {
        on_join(link, data, bytes);
    }
}
