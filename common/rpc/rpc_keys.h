/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_keys.h
 *
 * Private to common/rpc: what is made of the cluster key (docs/WIRE.md,
 * "Keys"). Pure functions.
 *
 *     cluster key ─┬─ id        says which key is meant; no secret
 *                  ├─ announce  of announcements
 *                  ├─ open      of the router's proof
 *                  ├─ old       of links of protocol 2, to refuse them
 *                  └─ session ─── both frames that open a link ─┬─ to_worker
 *                                                               └─ to_router
 */
#ifndef BT_COMMON_RPC_RPC_KEYS_H
#define BT_COMMON_RPC_RPC_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"

#define RPC_KEY_ID_BYTES 8u
#define RPC_KEY_GRACE_MS 600000u /**< for the one before */

/** Secret but for its id; to be wiped. */
typedef struct rpc_keys {
    uint8_t id[RPC_KEY_ID_BYTES];
    uint8_t announce[BT_KEY_BYTES];
    uint8_t open[BT_KEY_BYTES];
    uint8_t session[BT_KEY_BYTES];
    uint8_t old[BT_KEY_BYTES];
} rpc_keys_t;

/** The key in use, and for a while the one before: processes learn of a new one
 *  one after the other. Secret; to be wiped. */
typedef struct rpc_ring {
    rpc_keys_t now, before;
    uint64_t before_until_ms; /**< 0 = there is none */
} rpc_ring_t;

/** Of one link. Secret; to be wiped. */
typedef struct rpc_session {
    uint8_t to_worker[BT_KEY_BYTES];
    uint8_t to_router[BT_KEY_BYTES];
} rpc_session_t;

/** @param key_bytes  at least 16 */
void bt_rpc_keys_make(const uint8_t *key, size_t key_bytes, rpc_keys_t *keys);

/** A new key from now on. @return false: it is the one in use; nothing changed
 */
bool bt_rpc_ring_turn(rpc_ring_t *ring, const uint8_t *key, size_t key_bytes,
                      uint64_t now_ms);
/** The one before goes, when its time is over. */
void bt_rpc_ring_expire(rpc_ring_t *ring, uint64_t now_ms);
/** @return the keys that @a id means; those in use where it means none, or is
 *  NULL */
const rpc_keys_t *bt_rpc_ring_find(const rpc_ring_t *ring,
                                   const uint8_t id[RPC_KEY_ID_BYTES]);

/** Of the link that these two frames opened: both whole, as they were sent. */
void bt_rpc_session_make(const rpc_keys_t *keys, const void *announce,
                         size_t announce_bytes, const void *open,
                         size_t open_bytes, rpc_session_t *session);

#endif
