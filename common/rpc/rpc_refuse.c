/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses a peer of protocol 2 in its own frames: hello and proof in its
 * format, then a BYE with the reason. The owner here gets UP with its hello,
 * which has its name and versions, and refuses it as any other whose
 * versions do not match. No message is exchanged. */
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

static nng_msg *make_frame(const bt_rpc_link_t *link, rpc_old_kind_t kind,
                           uint64_t sequence, const void *head,
                           size_t head_bytes, const void *body, size_t bytes)
{
    nng_msg *msg;
    uint8_t *p;

    if (nng_msg_alloc(&msg, RPC_OLD_HEADER_BYTES + head_bytes + bytes) != 0) {
        return NULL;
    }
    p = nng_msg_body(msg);
    bt_rpc_old_put_header(p, kind, link->rpc->incarnation, sequence);
    p += RPC_OLD_HEADER_BYTES;
    memcpy(p, head, head_bytes);
    if (bytes > 0) {
        memcpy(p + head_bytes, body, bytes);
    }
    return msg;
}

/* True when this side's hello is from the dialling end. */
static bool is_dialer(const bt_rpc_link_t *link)
{
    return link->join == NULL;
}

void bt_rpc_refuse_start(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;

    link->old = true;
    link->state = LINK_OLD_HELLO;
    link->deadline_ms = rpc->now_ms + rpc->dead_ms;
    link->old_ours.incarnation = rpc->incarnation;
    bt_key_random(link->old_ours.nonce, sizeof(link->old_ours.nonce));
    bt_key_proof(rpc->ring.now.old, BT_KEY_BYTES, rpc->old_hello,
                 rpc->old_hello_bytes, link->old_ours.payload_hash);
    bt_rpc_link_control(link,
                        make_frame(link, RPC_OLD_HELLO, 0, link->old_ours.nonce,
                                   RPC_OLD_NONCE_BYTES, rpc->old_hello,
                                   rpc->old_hello_bytes));
}

static void on_hello(bt_rpc_link_t *link, const rpc_old_frame_t *frame)
{
    const uint8_t *key = link->rpc->ring.now.old;
    uint8_t proof[BT_PROOF_BYTES];

    if (!bt_rpc_link_keep(link, frame->body + RPC_OLD_NONCE_BYTES,
                          frame->bytes - RPC_OLD_NONCE_BYTES)) {
        return;
    }
    link->incarnation = frame->incarnation;
    link->old_theirs.incarnation = frame->incarnation;
    memcpy(link->old_theirs.nonce, frame->body, RPC_OLD_NONCE_BYTES);
    bt_key_proof(key, BT_KEY_BYTES, link->hello, link->hello_bytes,
                 link->old_theirs.payload_hash);
    bt_rpc_old_proof(key, is_dialer(link), &link->old_ours, &link->old_theirs,
                     proof);
    link->state = LINK_OLD_PROOF;
    bt_rpc_link_control(link, make_frame(link, RPC_OLD_PROOF, 0, proof,
                                         sizeof(proof), NULL, 0));
}

static void on_proof(bt_rpc_link_t *link, const rpc_old_frame_t *frame)
{
    uint8_t proof[BT_PROOF_BYTES];

    bt_rpc_old_proof(link->rpc->ring.now.old, !is_dialer(link),
                     &link->old_theirs, &link->old_ours, proof);
    if (!bt_key_equal(proof, frame->body, sizeof(proof)) ||
        (frame->incarnation != link->old_theirs.incarnation)) {
        bt_rpc_complain(link,
                        "refused, it does not prove the cluster key; both "
                        "sides need the same key file");
        bt_rpc_link_over(link, "cluster key not proven");
        return;
    }
    bt_rpc_link_up(link);
}

static void on_bye(bt_rpc_link_t *link, const rpc_old_frame_t *frame)
{
    char reason[RPC_MAX_REASON];

    memcpy(reason, frame->body, frame->bytes);
    reason[frame->bytes] = '\0';
    bt_rpc_link_over(link, reason);
}

void bt_rpc_refuse_frame(bt_rpc_link_t *link, const void *data, size_t bytes)
{
    rpc_old_frame_t frame;

    if (bt_rpc_old_parse(data, bytes, &frame) != BT_OK) {
        bt_rpc_link_over(link, "malformed frame");
    } else if ((link->state == LINK_OLD_HELLO) &&
               (frame.kind == RPC_OLD_HELLO)) {
        on_hello(link, &frame);
    } else if ((link->state == LINK_OLD_PROOF) &&
               (frame.kind == RPC_OLD_PROOF)) {
        on_proof(link, &frame);
    } else if (link->state != LINK_UP) {
        bt_rpc_complain(link, "refused, its handshake is out of order");
        bt_rpc_link_over(link, "handshake out of order");
    } else if (frame.kind == RPC_OLD_BYE) {
        on_bye(link, &frame);
    } /* its messages are skipped */
}

nng_msg *bt_rpc_refuse_bye(const bt_rpc_link_t *link)
{
    return make_frame(link, RPC_OLD_BYE, 1, link->reason, strlen(link->reason),
                      NULL, 0);
}
