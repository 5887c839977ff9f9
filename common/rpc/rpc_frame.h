/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_frame.h
 *
 * Private to common/rpc: the bytes on a link. Pure functions; every byte that
 * comes from a peer passes through here.
 *
 *     frame     "BTN1" kind[1] 0[3] incarnation[8] sequence[8] body
 *     HELLO     nonce[32] payload
 *     PROOF     proof[32]
 *     DATA      { length[4] message }*       none = heartbeat
 *     BYE       reason text
 *     ANNOUNCE  mac[32] url                  to where the router listens
 *
 * Numbers are little endian. The sequence counts DATA and BYE from 1; the
 * others have 0.
 */
#ifndef BT_COMMON_RPC_RPC_FRAME_H
#define BT_COMMON_RPC_RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"

#define RPC_HEADER_BYTES 24u
#define RPC_LENGTH_BYTES 4u
#define RPC_NONCE_BYTES  32u
#define RPC_MAX_URL      256u /**< with its zero byte */
#define RPC_MAX_REASON   256u /**< with its zero byte */
#define RPC_MAX_ANNOUNCE (RPC_HEADER_BYTES + BT_PROOF_BYTES + RPC_MAX_URL)

typedef enum rpc_kind {
    RPC_HELLO = 1,
    RPC_PROOF = 2,
    RPC_DATA = 3,
    RPC_BYE = 4,
    RPC_ANNOUNCE = 5,
} rpc_kind_t;

typedef struct rpc_frame {
    rpc_kind_t kind;
    uint64_t incarnation;
    uint64_t sequence;
    const uint8_t *body; /**< inside the bytes given */
    size_t bytes;
} rpc_frame_t;

void bt_rpc_frame_put_header(uint8_t out[RPC_HEADER_BYTES], rpc_kind_t kind,
                             uint64_t incarnation, uint64_t sequence);

/** @retval BT_ERR_BAD_MESSAGE  Not a frame of this version, or a body that its
 *          kind cannot have (DATA: lengths that do not add up). */
BT_MUST_CHECK bt_status_t bt_rpc_frame_parse(const void *data, size_t bytes,
                                             rpc_frame_t *frame_p);

void bt_rpc_frame_put_length(uint8_t out[RPC_LENGTH_BYTES], uint32_t bytes);

/** Walk the messages of a parsed DATA frame from @a at_io = 0.
 *  @return false after the last one */
bool bt_rpc_frame_next(const rpc_frame_t *frame, size_t *at_io,
                       const void **data_p, size_t *bytes_p);

/** Bytes of the first message of a queue, with its length. */
size_t bt_rpc_frame_first(const void *queue);

/** Bytes of the longest run of whole messages that is at most @a limit. */
size_t bt_rpc_frame_whole(const void *queue, size_t bytes, size_t limit);

/** What one side of a link said in its HELLO. */
typedef struct rpc_side {
    uint64_t incarnation;
    uint8_t nonce[RPC_NONCE_BYTES];
    uint8_t payload_hash[BT_PROOF_BYTES];
} rpc_side_t;

/** The proof that @a prover knows the key. @a dialer tells the router's end
 *  from the worker's, so that neither's proof can be sent back to it. */
void bt_rpc_proof(const uint8_t key[BT_KEY_BYTES], bool dialer,
                  const rpc_side_t *prover, const rpc_side_t *verifier,
                  uint8_t proof[BT_PROOF_BYTES]);

/** @return bytes of a whole announcement frame in @a out. */
size_t bt_rpc_announce_put(const uint8_t key[BT_KEY_BYTES],
                           uint64_t incarnation, const char *url,
                           uint8_t out[RPC_MAX_ANNOUNCE]);

/** @retval BT_ERR_BAD_MESSAGE   not an announcement, not an ipc or tcp url
 *  @retval BT_ERR_UNAUTHORIZED  made with another key; *incarnation_p is set */
BT_MUST_CHECK bt_status_t bt_rpc_announce_check(const uint8_t key[BT_KEY_BYTES],
                                                const void *data, size_t bytes,
                                                uint64_t *incarnation_p,
                                                char url[RPC_MAX_URL]);

#endif
