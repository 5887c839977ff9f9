/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_keys.h
 *
 * Private to common/link: keys derived from the cluster key (docs/WIRE.md,
 * "Keys"). Pure functions.
 *
 *     cluster key ─┬─ id       identifies the key; no secret
 *                  ├─ join     for the worker's first frame
 *                  ├─ open     for the router's proof
 *                  └─ session ─── both frames that open a link ─┬─ to_worker
 *                                                               └─ to_router
 */
#ifndef BT_COMMON_LINK_LINK_KEYS_H
#define BT_COMMON_LINK_LINK_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"

#define LINK_KEY_ID_BYTES 8u
#define LINK_KEY_GRACE_MS                              \
    600000u /**< how long the previous key stays valid \
             */

/** Keys derived from one cluster key. Secret but for the id; to be wiped. */
typedef struct link_keys {
    uint8_t id[LINK_KEY_ID_BYTES];
    uint8_t join[BT_KEY_BYTES];
    uint8_t open[BT_KEY_BYTES];
    uint8_t session[BT_KEY_BYTES];
} link_keys_t;

/** Current key, and for some time the previous one: processes learn of a new
 *  one one after the other. Secret; to be wiped. */
typedef struct link_keyring {
    link_keys_t now, before;
    uint64_t before_until_ms; /**< 0 = no previous key */
} link_keyring_t;

/** Keys of one link. Secret; to be wiped. */
typedef struct link_session {
    uint8_t to_worker[BT_KEY_BYTES];
    uint8_t to_router[BT_KEY_BYTES];
} link_session_t;

/**
 * Derives all keys.
 * @param key_bytes  at least 16
 */
void bt_link_keys_make(const uint8_t *key, size_t key_bytes, link_keys_t *keys);

/** Replaces the current key. @return false: the key is the current one;
 *  nothing changed */
bool bt_link_keyring_turn(link_keyring_t *keyring, const uint8_t *key,
                          size_t key_bytes, uint64_t now_ms);
/** Wipes the previous key when its time is over. */
void bt_link_keyring_expire(link_keyring_t *keyring, uint64_t now_ms);
/** Returns the keys with this id; the current ones if no key has it, or if
 *  @a id is NULL. */
const link_keys_t *bt_link_keyring_find(const link_keyring_t *keyring,
                                        const uint8_t id[LINK_KEY_ID_BYTES]);

/** Derives the keys of a link from the two frames that opened it: both
 *  whole, as they were sent. */
void bt_link_session_make(const link_keys_t *keys, const void *join,
                          size_t join_bytes, const void *open,
                          size_t open_bytes, link_session_t *session);

#endif
