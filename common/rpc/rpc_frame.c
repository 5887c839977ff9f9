/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_frame.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/rpc/rpc.h"

#define MAGIC       "BTN1"
#define MAGIC_BYTES 4

#define KIND_AT        4
#define INCARNATION_AT 8
#define SEQUENCE_AT    16

static void put_le(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_le(const uint8_t *in, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i > 0; i--) {
        value = (value << 8) | in[i - 1];
    }
    return value;
}

void bt_rpc_frame_put_header(uint8_t out[RPC_HEADER_BYTES], rpc_kind_t kind,
                             uint64_t incarnation, uint64_t sequence)
{
    memset(out, 0, RPC_HEADER_BYTES);
    memcpy(out, MAGIC, MAGIC_BYTES);
    out[KIND_AT] = (uint8_t)kind;
    put_le(out + INCARNATION_AT, incarnation, sizeof(incarnation));
    put_le(out + SEQUENCE_AT, sequence, sizeof(sequence));
}

void bt_rpc_frame_put_length(uint8_t out[RPC_LENGTH_BYTES], uint32_t bytes)
{
    put_le(out, bytes, RPC_LENGTH_BYTES);
}

bool bt_rpc_frame_next(const rpc_frame_t *frame, size_t *at_io,
                       const void **data_p, size_t *bytes_p)
{
    size_t at = *at_io;

    if (at == frame->bytes) {
        return false;
    }
    *bytes_p = (size_t)get_le(frame->body + at, RPC_LENGTH_BYTES);
    *data_p = frame->body + at + RPC_LENGTH_BYTES;
    *at_io = at + RPC_LENGTH_BYTES + *bytes_p;
    return true;
}

size_t bt_rpc_frame_first(const void *queue)
{
    return RPC_LENGTH_BYTES + (size_t)get_le(queue, RPC_LENGTH_BYTES);
}

size_t bt_rpc_frame_whole(const void *queue, size_t bytes, size_t limit)
{
    const uint8_t *data = queue;
    size_t at = 0;

    while (bytes - at >= RPC_LENGTH_BYTES) {
        const size_t n = (size_t)get_le(data + at, RPC_LENGTH_BYTES);

        if ((n > bytes - at - RPC_LENGTH_BYTES) ||
            (at + RPC_LENGTH_BYTES + n > limit)) {
            break;
        }
        at += RPC_LENGTH_BYTES + n;
    }
    return at;
}

static bool body_fits(const rpc_frame_t *frame)
{
    switch (frame->kind) {
    case RPC_HELLO:
        return (frame->sequence == 0) && (frame->bytes >= RPC_NONCE_BYTES) &&
               (frame->bytes <= RPC_NONCE_BYTES + BT_RPC_MAX_PAYLOAD);
    case RPC_PROOF:
        return (frame->sequence == 0) && (frame->bytes == BT_PROOF_BYTES);
    case RPC_DATA:
        return (frame->sequence > 0) &&
               (bt_rpc_frame_whole(frame->body, frame->bytes, frame->bytes) ==
                frame->bytes);
    case RPC_BYE:
        return (frame->sequence > 0) && (frame->bytes < RPC_MAX_REASON);
    case RPC_ANNOUNCE:
        return (frame->sequence == 0) && (frame->bytes > BT_PROOF_BYTES) &&
               (frame->bytes < BT_PROOF_BYTES + RPC_MAX_URL);
    }
    return false;
}

bt_status_t bt_rpc_frame_parse(const void *data, size_t bytes,
                               rpc_frame_t *frame_p)
{
    static const uint8_t zeros[INCARNATION_AT - KIND_AT - 1];
    const uint8_t *p = data;
    rpc_frame_t frame;

    if ((bytes < RPC_HEADER_BYTES) || (bytes > BT_RPC_MAX_FRAME) ||
        (memcmp(p, MAGIC, MAGIC_BYTES) != 0) || (p[KIND_AT] < RPC_HELLO) ||
        (p[KIND_AT] > RPC_ANNOUNCE) ||
        (memcmp(p + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    frame.kind = (rpc_kind_t)p[KIND_AT];
    frame.incarnation = get_le(p + INCARNATION_AT, sizeof(uint64_t));
    frame.sequence = get_le(p + SEQUENCE_AT, sizeof(uint64_t));
    frame.body = p + RPC_HEADER_BYTES;
    frame.bytes = bytes - RPC_HEADER_BYTES;
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

void bt_rpc_proof(const uint8_t key[BT_KEY_BYTES], bool dialer,
                  const rpc_side_t *prover, const rpc_side_t *verifier,
                  uint8_t proof[BT_PROOF_BYTES])
{
    static const char domain[16] = "baton link 1";
    uint8_t data[sizeof(domain) + 1 + 2 * RPC_NONCE_BYTES +
                 2 * sizeof(uint64_t) + 2 * BT_PROOF_BYTES];
    uint8_t *p = put_bytes(data, domain, sizeof(domain));

    *p++ = dialer ? 'R' : 'W';
    p = put_bytes(p, prover->nonce, RPC_NONCE_BYTES);
    p = put_bytes(p, verifier->nonce, RPC_NONCE_BYTES);
    put_le(p, prover->incarnation, sizeof(uint64_t));
    put_le(p + sizeof(uint64_t), verifier->incarnation, sizeof(uint64_t));
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
    put_le(data + sizeof(domain), incarnation, sizeof(uint64_t));
    memcpy(data + sizeof(domain) + sizeof(uint64_t), url, url_bytes);
    bt_key_proof(key, BT_KEY_BYTES, data,
                 sizeof(domain) + sizeof(uint64_t) + url_bytes, mac);
}

size_t bt_rpc_announce_put(const uint8_t key[BT_KEY_BYTES],
                           uint64_t incarnation, const char *url,
                           uint8_t out[RPC_MAX_ANNOUNCE])
{
    const size_t n = strnlen(url, RPC_MAX_URL - 1);

    bt_rpc_frame_put_header(out, RPC_ANNOUNCE, incarnation, 0);
    announce_mac(key, incarnation, url, n, out + RPC_HEADER_BYTES);
    memcpy(out + RPC_HEADER_BYTES + BT_PROOF_BYTES, url, n);
    return RPC_HEADER_BYTES + BT_PROOF_BYTES + n;
}

bt_status_t bt_rpc_announce_check(const uint8_t key[BT_KEY_BYTES],
                                  const void *data, size_t bytes,
                                  uint64_t *incarnation_p,
                                  char url[RPC_MAX_URL])
{
    uint8_t mac[BT_PROOF_BYTES];
    const uint8_t *text;
    rpc_frame_t frame;
    size_t n;

    if ((bt_rpc_frame_parse(data, bytes, &frame) != BT_OK) ||
        (frame.kind != RPC_ANNOUNCE)) {
        return BT_ERR_BAD_MESSAGE;
    }
    text = frame.body + BT_PROOF_BYTES;
    n = frame.bytes - BT_PROOF_BYTES;
    for (size_t i = 0; i < n; i++) {
        if ((text[i] <= ' ') || (text[i] >= 0x7f)) {
            return BT_ERR_BAD_MESSAGE;
        }
    }
    announce_mac(key, frame.incarnation, text, n, mac);
    if (!bt_key_equal(mac, frame.body, sizeof(mac))) {
        *incarnation_p = frame.incarnation;
        return BT_ERR_UNAUTHORIZED;
    }
    if ((n <= 6) || ((memcmp(text, "tcp://", 6) != 0) &&
                     (memcmp(text, "ipc://", 6) != 0))) {
        return BT_ERR_BAD_MESSAGE;
    }
    memcpy(url, text, n);
    url[n] = '\0';
    *incarnation_p = frame.incarnation;
    return BT_OK;
}
