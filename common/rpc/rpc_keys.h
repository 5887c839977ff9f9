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

#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"

#define RPC_KEY_ID_BYTES 8u

/** Secret but for its id; to be wiped. */
typedef struct rpc_keys {
    uint8_t id[RPC_KEY_ID_BYTES];
    uint8_t announce[BT_KEY_BYTES];
    uint8_t open[BT_KEY_BYTES];
    uint8_t session[BT_KEY_BYTES];
    uint8_t old[BT_KEY_BYTES];
} rpc_keys_t;

/** Of one link. Secret; to be wiped. */
typedef struct rpc_session {
    uint8_t to_worker[BT_KEY_BYTES];
    uint8_t to_router[BT_KEY_BYTES];
} rpc_session_t;

/** @param key_bytes  at least 16 */
void bt_rpc_keys_make(const uint8_t *key, size_t key_bytes, rpc_keys_t *keys);

/** Of the link that these two frames opened: both whole, as they were sent. */
void bt_rpc_session_make(const rpc_keys_t *keys, const void *announce,
                         size_t announce_bytes, const void *open,
                         size_t open_bytes, rpc_session_t *session);

#endif
