/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_old.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/rpc/rpc_intro.h"

#define MAGIC       "BTN1"
#define MAGIC_BYTES 4

#define KIND_AT        4
#define INCARNATION_AT 8
#define SEQUENCE_AT    16

void bt_rpc_old_put_header(uint8_t out[RPC_OLD_HEADER_BYTES],
                           rpc_old_kind_t kind, uint64_t incarnation,
                           uint64_t sequence)
{
    memset(out, 0, RPC_OLD_HEADER_BYTES);
    memcpy(out, MAGIC, MAGIC_BYTES);
    out[KIND_AT] = (uint8_t)kind;
    bt_rpc_put_le(out + INCARNATION_AT, incarnation, sizeof(incarnation));
    bt_rpc_put_le(out + SEQUENCE_AT, sequence, sizeof(sequence));
}

static bool body_fits(const rpc_old_frame_t *frame)
{
    switch (frame->kind) {
    case RPC_OLD_HELLO:
        return (frame->sequence == 0) &&
               (frame->bytes >= RPC_OLD_NONCE_BYTES) &&
               (frame->bytes <= RPC_OLD_NONCE_BYTES + BT_RPC_MAX_PAYLOAD);
    case RPC_OLD_PROOF:
        return (frame->sequence == 0) && (frame->bytes == BT_PROOF_BYTES);
    case RPC_OLD_DATA:
        return frame->sequence > 0;
    case RPC_OLD_BYE:
        return (frame->sequence > 0) && (frame->bytes < RPC_MAX_REASON);
    case RPC_OLD_ANNOUNCE:
        return (frame->sequence == 0) && (frame->bytes > BT_PROOF_BYTES) &&
               (frame->bytes < BT_PROOF_BYTES + RPC_MAX_URL);
    }
    return false;
}

bool bt_rpc_old_is(const void *data, size_t bytes)
{
    return (bytes >= MAGIC_BYTES) && (memcmp(data, MAGIC, MAGIC_BYTES) == 0);
}

bt_status_t bt_rpc_old_parse(const void *data, size_t bytes,
                             rpc_old_frame_t *frame_p)
{
    static const uint8_t zeros[INCARNATION_AT - KIND_AT - 1];
    const uint8_t *p = data;
    rpc_old_frame_t frame;

    if ((bytes < RPC_OLD_HEADER_BYTES) || (bytes > RPC_MAX_FRAME) ||
        (memcmp(p, MAGIC, MAGIC_BYTES) != 0) || (p[KIND_AT] < RPC_OLD_HELLO) ||
        (p[KIND_AT] > RPC_OLD_ANNOUNCE) ||
        (memcmp(p + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    frame.kind = (rpc_old_kind_t)p[KIND_AT];
    frame.incarnation = bt_rpc_get_le(p + INCARNATION_AT, sizeof(uint64_t));
    frame.sequence = bt_rpc_get_le(p + SEQUENCE_AT, sizeof(uint64_t));
    frame.body = p + RPC_OLD_HEADER_BYTES;
    frame.bytes = bytes - RPC_OLD_HEADER_BYTES;
    if (!body_fits(&frame)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *frame_p = frame;
    return BT_OK;
}

static uint8_t *put_bytes(uint8_t *out, const void *data, size_t bytes)
{
    memcpy(out, data, bytes);
    return out + bytes;
}

void bt_rpc_old_proof(const uint8_t key[BT_KEY_BYTES], bool dialer,
                      const rpc_old_side_t *prover,
                      const rpc_old_side_t *verifier,
                      uint8_t proof[BT_PROOF_BYTES])
{
    static const char domain[16] = "baton link 1";
    uint8_t data[sizeof(domain) + 1 + 2 * RPC_OLD_NONCE_BYTES +
                 2 * sizeof(uint64_t) + 2 * BT_PROOF_BYTES];
    uint8_t *p = put_bytes(data, domain, sizeof(domain));

    *p++ = dialer ? 'R' : 'W';
    p = put_bytes(p, prover->nonce, RPC_OLD_NONCE_BYTES);
    p = put_bytes(p, verifier->nonce, RPC_OLD_NONCE_BYTES);
    bt_rpc_put_le(p, prover->incarnation, sizeof(uint64_t));
    bt_rpc_put_le(p + sizeof(uint64_t), verifier->incarnation,
                  sizeof(uint64_t));
    p += 2 * sizeof(uint64_t);
    p = put_bytes(p, prover->payload_hash, BT_PROOF_BYTES);
    p = put_bytes(p, verifier->payload_hash, BT_PROOF_BYTES);
    BT_ASSERT(p == data + sizeof(data));
    bt_key_proof(key, BT_KEY_BYTES, data, sizeof(data), proof);
}

static void announce_mac(const uint8_t key[BT_KEY_BYTES], uint64_t incarnation,
                         const void *url, size_t url_bytes,
                         uint8_t mac[BT_PROOF_BYTES])
{
    static const char domain[16] = "baton announce 1";
    uint8_t data[sizeof(domain) + sizeof(uint64_t) + RPC_MAX_URL];

    memcpy(data, domain, sizeof(domain));
    bt_rpc_put_le(data + sizeof(domain), incarnation, sizeof(uint64_t));
    memcpy(data + sizeof(domain) + sizeof(uint64_t), url, url_bytes);
    bt_key_proof(key, BT_KEY_BYTES, data,
                 sizeof(domain) + sizeof(uint64_t) + url_bytes, mac);
}

size_t bt_rpc_old_announce_put(const uint8_t key[BT_KEY_BYTES],
                               uint64_t incarnation, const char *url,
                               uint8_t out[RPC_OLD_MAX_ANNOUNCE])
{
    const size_t n = strnlen(url, RPC_MAX_URL - 1);

    bt_rpc_old_put_header(out, RPC_OLD_ANNOUNCE, incarnation, 0);
    announce_mac(key, incarnation, url, n, out + RPC_OLD_HEADER_BYTES);
    memcpy(out + RPC_OLD_HEADER_BYTES + BT_PROOF_BYTES, url, n);
    return RPC_OLD_HEADER_BYTES + BT_PROOF_BYTES + n;
}

bt_status_t bt_rpc_old_announce_check(const uint8_t key[BT_KEY_BYTES],
                                      const void *data, size_t bytes,
                                      uint64_t *incarnation_p,
                                      char url[RPC_MAX_URL])
{
    uint8_t mac[BT_PROOF_BYTES];
    const uint8_t *text;
    rpc_old_frame_t frame;
    size_t n;

    if ((bt_rpc_old_parse(data, bytes, &frame) != BT_OK) ||
        (frame.kind != RPC_OLD_ANNOUNCE) ||
        !bt_rpc_is_url(frame.body + BT_PROOF_BYTES,
                       frame.bytes - BT_PROOF_BYTES)) {
        return BT_ERR_BAD_MESSAGE;
    }
    text = frame.body + BT_PROOF_BYTES;
    n = frame.bytes - BT_PROOF_BYTES;
    announce_mac(key, frame.incarnation, text, n, mac);
    if (!bt_key_equal(mac, frame.body, sizeof(mac))) {
        *incarnation_p = frame.incarnation;
        return BT_ERR_UNAUTHORIZED;
    }
    memcpy(url, text, n);
    url[n] = '\0';
    *incarnation_p = frame.incarnation;
    return BT_OK;
}
