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
#include "common/rpc/rpc_inner.h"

/* Both frames are made with the key that the first one names. */
static const rpc_keys_t *keys_of(const bt_rpc_link_t *link)
{
    return bt_rpc_ring_find(
        &link->rpc->ring,
        bt_rpc_intro_key_id(link->join_frame, link->join_bytes));
}

/* Both frames are known: the key of this link and no other. */
static void make_session(bt_rpc_link_t *link, const void *open,
                         size_t open_bytes)
{
    const bool worker = link->join != NULL;

    bt_rpc_session_make(keys_of(link), link->join_frame, link->join_bytes, open,
                        open_bytes, &link->session);
    link->seal_key = worker ? link->session.to_router : link->session.to_worker;
    link->open_key = worker ? link->session.to_worker : link->session.to_router;
}

static rpc_intro_t introduce(const bt_rpc_t *rpc)
{
    rpc_intro_t intro = {.range = rpc->range, .incarnation = rpc->incarnation};

    bt_key_random(intro.nonce, sizeof(intro.nonce));
    memcpy(intro.name, rpc->name, sizeof(intro.name));
    return intro;
}

static void send_intro(bt_rpc_link_t *link, const uint8_t *frame, size_t bytes)
{
    nng_msg *msg = NULL;

    if (nng_msg_alloc(&msg, bytes) == 0) {
        memcpy(nng_msg_body(msg), frame, bytes);
    }
    bt_rpc_link_control(link, msg);
}

void bt_rpc_handshake_start(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;
    const rpc_intro_t intro = introduce(rpc);

    bt_rpc_link_move(link, LINK_GREETING);
    link->join_bytes =
        bt_rpc_join_put(&rpc->ring.now, &intro, link->join_frame);
    send_intro(link, link->join_frame, link->join_bytes);
}

/* At the router. Whoever made the frame knows the key; who recorded it cannot
 * make the next one. */
static void on_join(bt_rpc_link_t *link, const void *data, size_t bytes)
{
    bt_rpc_t *rpc = link->rpc;
    const rpc_keys_t *keys =
        bt_rpc_ring_find(&rpc->ring, bt_rpc_intro_key_id(data, bytes));
    uint8_t frame[RPC_MAX_INTRO];
    rpc_intro_t intro;
    bt_status_t status = bt_rpc_join_check(keys, data, bytes, &intro);
    size_t n;

    if (status == BT_ERR_BAD_MESSAGE) {
        bt_rpc_complain(link, "something that is not a worker of ours talks to "
                              "the control port");
        bt_rpc_link_over(link, "malformed handshake");
        return;
    }
    link->incarnation = intro.incarnation;
    memcpy(link->name, intro.name, sizeof(link->name));
    if (status != BT_OK) {
        bt_rpc_complain(link, "refused, it has another cluster key: both sides "
                              "need the same key file");
        bt_rpc_link_over(link, "cluster key not proven");
        return;
    }
    link->version = bt_wire_common(rpc->range, intro.range);
    memcpy(link->join_frame, data, bytes);
    link->join_bytes = bytes;
    intro = introduce(rpc);
    n = bt_rpc_open_put(keys, data, bytes, &intro, frame);
    make_session(link, frame, n);
    bt_rpc_pipe_allow(link->pipe, RPC_MAX_FRAME); /* ACCEPT has a hello */
    bt_rpc_link_move(link, LINK_PROVING);
    send_intro(link, frame, n);
}

static void send_hello(bt_rpc_link_t *link, rpc_kind_t kind)
{
    uint8_t version[RPC_VERSION_BYTES];

    bt_rpc_put_le(version, link->version, sizeof(version));
    bt_rpc_link_control(
        link, bt_rpc_link_seal(link, kind, version, sizeof(version),
                               link->rpc->hello, link->rpc->hello_bytes));
}

/* The peer's identity is proven, and it is refused by name on both sides. */
static void refuse_version(bt_rpc_link_t *link, bt_wire_range_t theirs)
{
    char theirs_text[BT_WIRE_RANGE_BYTES];
    char ours_text[BT_WIRE_RANGE_BYTES];
    char why[RPC_MAX_REASON];

    bt_wire_range_print(theirs, theirs_text);
    bt_wire_range_print(link->rpc->range, ours_text);
    snprintf(why, sizeof(why), "%s speaks protocol %s, %s speaks %s",
             link->name, theirs_text, link->rpc->name, ours_text);
    bt_rpc_complain(link, why);
    bt_rpc_link_refuse(link, why);
}

/* At the worker. */
static void on_open(bt_rpc_link_t *link, const void *data, size_t bytes)
{
    bt_rpc_t *rpc = link->rpc;
    rpc_intro_t intro;

    switch (bt_rpc_open_check(keys_of(link), link->join_frame, link->join_bytes,
                              data, bytes, &intro)) {
    case BT_OK:
        break;
    case BT_ERR_UNAUTHORIZED:
        bt_rpc_complain(link,
                        "refused, it does not prove the cluster key; both "
                        "sides need the same key file");
        bt_rpc_link_over(link, "cluster key not proven");
        return;
    default:
        bt_rpc_complain(link, "refused, it does not speak this protocol");
        bt_rpc_link_over(link, "malformed handshake");
        return;
    }
    link->proven = true;
    link->incarnation = intro.incarnation;
    memcpy(link->name, intro.name, sizeof(link->name));
    make_session(link, data, bytes);
    link->version = bt_wire_common(rpc->range, intro.range);
    if (link->version == 0) {
        refuse_version(link, intro.range);
        return;
    }
    bt_rpc_pipe_allow(link->pipe, RPC_MAX_FRAME); /* READY has a hello */
    bt_rpc_link_move(link, LINK_PROVING);
    send_hello(link, RPC_ACCEPT);
}

/* At the router: the first frame is to be ACCEPT, or a reason; at the worker,
 * READY. */
static void on_tagged(bt_rpc_link_t *link, const void *data, size_t bytes)
{
    const rpc_kind_t wanted = (link->join != NULL) ? RPC_READY : RPC_ACCEPT;
    rpc_frame_t frame;

    if ((bt_rpc_frame_open(link->open_key, data, bytes, &frame) != BT_OK) ||
        (frame.sequence != link->next_in)) {
        bt_rpc_complain(link, "refused, it does not prove the cluster key; "
                              "both sides need the same key file");
        bt_rpc_link_over(link, "cluster key not proven");
        return;
    }
    link->proven = true;
    link->next_in++;
    if (frame.kind == RPC_BYE) {
        char reason[RPC_MAX_REASON];

        snprintf(reason, sizeof(reason), "%.*s", (int)frame.bytes,
                 (const char *)frame.body);
        bt_rpc_complain(link, reason);
        bt_rpc_link_over(link, reason);
        return;
    }
    if ((frame.kind != wanted) || (link->version == 0) ||
        (bt_rpc_get_le(frame.body, RPC_VERSION_BYTES) != link->version)) {
        bt_rpc_complain(link, "refused, its handshake is out of order");
        bt_rpc_link_over(link, "handshake out of order");
        return;
    }
    if (!bt_rpc_link_keep(link, frame.body + RPC_VERSION_BYTES,
                          frame.bytes - RPC_VERSION_BYTES)) {
        return;
    }
    if (wanted == RPC_ACCEPT) {
        send_hello(link, RPC_READY);
        if (link->state != LINK_PROVING) {
            return; /* no memory for it */
        }
    }
    bt_rpc_link_up(link);
}

void bt_rpc_handshake_frame(bt_rpc_link_t *link, const void *data, size_t bytes)
{
    if (link->state == LINK_PROVING) {
        on_tagged(link, data, bytes);
    } else if (link->join != NULL) {
        on_open(link, data, bytes);
    } else {
        on_join(link, data, bytes);
    }
}
