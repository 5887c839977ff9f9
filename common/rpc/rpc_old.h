/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_old.h
 *
 * Private to common/rpc: the frames of protocol 2, supported for one purpose:
 * to refuse such a peer by name (rpc_refuse.c). Pure functions.
 *
 *     frame     "BTN1" kind[1] 0[3] incarnation[8] sequence[8] body
 *     HELLO     nonce[32] payload
 *     PROOF     proof[32]
 *     DATA      messages, which are not read
 *     BYE       reason text
 *     ANNOUNCE  mac[32] url                  to where the router listens
 *
 * Numbers are little endian. The sequence counts DATA and BYE from 1; the
 * others have 0.
 */
#ifndef BT_COMMON_RPC_RPC_OLD_H
#define BT_COMMON_RPC_RPC_OLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"
#include "common/rpc/rpc_frame.h"

#define RPC_OLD_HEADER_BYTES 24u
#define RPC_OLD_NONCE_BYTES  32u
#define RPC_OLD_MAX_ANNOUNCE \
    (RPC_OLD_HEADER_BYTES + BT_PROOF_BYTES + RPC_MAX_URL)

typedef enum rpc_old_kind {
    RPC_OLD_HELLO = 1,
    RPC_OLD_PROOF = 2,
    RPC_OLD_DATA = 3,
    RPC_OLD_BYE = 4,
    RPC_OLD_ANNOUNCE = 5,
} rpc_old_kind_t;

typedef struct rpc_old_frame {
    rpc_old_kind_t kind;
    uint64_t incarnation;
    uint64_t sequence;
    const uint8_t *body; /**< inside the bytes given */
    size_t bytes;
} rpc_old_frame_t;

void bt_rpc_old_put_header(uint8_t out[RPC_OLD_HEADER_BYTES],
                           rpc_old_kind_t kind, uint64_t incarnation,
                           uint64_t sequence);

/** True when the first bytes are of protocol 2. */
bool bt_rpc_old_is(const void *data, size_t bytes);

/**
 * Parses a frame.
 * @retval BT_ERR_BAD_MESSAGE  Not a frame of protocol 2, or a body that its
 *                             kind cannot have.
 */
BT_MUST_CHECK bt_status_t bt_rpc_old_parse(const void *data, size_t bytes,
                                           rpc_old_frame_t *frame_p);

/** Contents of one side's HELLO. */
typedef struct rpc_old_side {
    uint64_t incarnation;
    uint8_t nonce[RPC_OLD_NONCE_BYTES];
    uint8_t payload_hash[BT_PROOF_BYTES];
} rpc_old_side_t;

/** Computes the proof that @a prover knows the key. @a dialer distinguishes
 *  the router's end from the worker's, so that neither's proof can be
 *  replayed to it. */
void bt_rpc_old_proof(const uint8_t key[BT_KEY_BYTES], bool dialer,
                      const rpc_old_side_t *prover,
                      const rpc_old_side_t *verifier,
                      uint8_t proof[BT_PROOF_BYTES]);

/** Writes a whole announcement frame. @return its bytes in @a out */
size_t bt_rpc_old_announce_put(const uint8_t key[BT_KEY_BYTES],
                               uint64_t incarnation, const char *url,
                               uint8_t out[RPC_OLD_MAX_ANNOUNCE]);

/**
 * Checks an announcement.
 * @retval BT_ERR_BAD_MESSAGE   not an announcement, not an ipc or tcp url
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *incarnation_p is set
 */
BT_MUST_CHECK bt_status_t bt_rpc_old_announce_check(
    const uint8_t key[BT_KEY_BYTES], const void *data, size_t bytes,
    uint64_t *incarnation_p, char url[RPC_MAX_URL]);

#endif
