/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_handshake_frames.h
 *
 * Private to common/link: the two frames before a link has its own key. Pure
 * functions; every byte is untrusted until the mac is verified.
 *
 *     frame     "BTN4" kind[1] 0[3] fixed[4] fixed part, name, mac[32]
 *     fixed     oldest[4] newest[4] key_id[8] incarnation[8] nonce[32]
 *               name_bytes[4]
 *
 * JOIN is the worker's first frame, OPEN the router's answer, whose mac also
 * covers the JOIN that it answers. The fixed part has `fixed` bytes: later
 * versions may append fields, which are skipped, and are covered by the mac.
 */
#ifndef BT_COMMON_LINK_LINK_HANDSHAKE_FRAMES_H
#define BT_COMMON_LINK_LINK_HANDSHAKE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"
#include "common/link/link_frame.h"
#include "common/wire/wire.h"

/*
 * Keys derived from the cluster key (docs/WIRE.md, "Keys").
 *
 *     cluster key ─┬─ id       identifies the key; no secret
 *                  ├─ join     for the worker's first frame
 *                  ├─ open     for the router's proof
 *                  └─ session ─── both frames that open a link ─┬─ to_worker
 *                                                               └─ to_router
 */

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

#define LINK_NONCE_BYTES            32u
#define LINK_HANDSHAKE_HEADER_BYTES 12u
#define LINK_INTRO_FIXED            60u
#define LINK_MAX_INTRO              1024u /**< bytes; has space for later fields */

/** Introduction of one side. */
typedef struct link_intro {
    bt_wire_range_t range;
    uint64_t incarnation;            /**< random for the life of a process */
    uint8_t nonce[LINK_NONCE_BYTES]; /**< random for each frame */
    char name[LINK_MAX_NAME];        /**< for logs */
} link_intro_t;

/** Writes a whole JOIN frame. @return its bytes in @a out */
size_t bt_link_join_put(const link_keys_t *keys, const link_intro_t *intro,
                        uint8_t out[LINK_MAX_INTRO]);
/** Writes a whole OPEN frame. @return its bytes in @a out */
size_t bt_link_open_put(const link_keys_t *keys, const void *join,
                        size_t join_bytes, const link_intro_t *intro,
                        uint8_t out[LINK_MAX_INTRO]);

/**
 * Checks a JOIN frame.
 * @retval BT_ERR_BAD_MESSAGE   no such frame
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_link_join_check(const link_keys_t *keys,
                                             const void *data, size_t bytes,
                                             link_intro_t *intro_p);
/**
 * Checks an OPEN frame.
 * @retval BT_ERR_BAD_MESSAGE   no such frame
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_link_open_check(const link_keys_t *keys,
                                             const void *join,
                                             size_t join_bytes,
                                             const void *data, size_t bytes,
                                             link_intro_t *intro_p);

/** Returns the LINK_KEY_ID_BYTES in @a data of the key that either frame
 *  claims, proven or not; NULL: too short for either. */
const uint8_t *bt_link_intro_key_id(const void *data, size_t bytes);

/** True for the URL of a local socket, ipc://PATH. */
bool bt_control_is_ipc(const char *url);
/** True when this text is an address that a worker may dial: a path without
 *  control characters, or a host of printable ASCII without spaces. */
bool bt_control_is_url(const uint8_t *text, size_t n);

#endif
