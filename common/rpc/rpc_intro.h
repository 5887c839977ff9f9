/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_intro.h
 *
 * Private to common/rpc: the two frames before a link has its own key. Pure
 * functions; every byte is untrusted until the mac is verified.
 *
 *     frame     "BTN3" kind[1] 0[3] fixed[4] fixed part, rest, mac[32]
 *     ANNOUNCE  oldest[4] newest[4] key_id[8] incarnation[8] count[8]
 *               nonce[32] name_bytes[4]; name, url
 *     OPEN      oldest[4] newest[4] key_id[8] incarnation[8] nonce[32]
 *               name_bytes[4]; name
 *
 * The fixed part has `fixed` bytes: later versions may append fields, which are
 * skipped, and are covered by the mac. The mac of OPEN also covers the ANNOUNCE
 * that it answers.
 */
#ifndef BT_COMMON_RPC_RPC_INTRO_H
#define BT_COMMON_RPC_RPC_INTRO_H

#include "common/base/status.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/rpc_keys.h"
#include "common/wire/wire.h"

#define RPC_NONCE_BYTES    32u
#define RPC_INTRO_HEADER   12u
#define RPC_ANNOUNCE_FIXED 68u
#define RPC_OPEN_FIXED     60u
#define RPC_MAX_INTRO      1024u /**< bytes; has space for later fields */

/** Introduction of one side. */
typedef struct rpc_intro {
    bt_wire_range_t range;
    uint64_t incarnation; /**< random for the life of a process */
    uint64_t count;       /**< ANNOUNCE: number of the process' socket, from
                               1 */
    uint8_t nonce[RPC_NONCE_BYTES];
    char name[RPC_MAX_NAME]; /**< for logs */
    char url[RPC_MAX_URL];   /**< ANNOUNCE: where it listens */
} rpc_intro_t;

/** Write a whole frame. @return its bytes in @a out */
size_t bt_rpc_announce_put(const rpc_keys_t *keys, const rpc_intro_t *intro,
                           uint8_t out[RPC_MAX_INTRO]);
size_t bt_rpc_open_put(const rpc_keys_t *keys, const void *announce,
                       size_t announce_bytes, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO]);

/**
 * Checks an announcement.
 * @retval BT_ERR_BAD_MESSAGE   no such frame, or not an ipc or tcp url
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_rpc_announce_check(const rpc_keys_t *keys,
                                                const void *data, size_t bytes,
                                                rpc_intro_t *intro_p);
/**
 * Checks an OPEN frame.
 * @retval BT_ERR_BAD_MESSAGE   no such frame
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_rpc_open_check(const rpc_keys_t *keys,
                                            const void *announce,
                                            size_t announce_bytes,
                                            const void *data, size_t bytes,
                                            rpc_intro_t *intro_p);

/** Returns the RPC_KEY_ID_BYTES in @a data of the key that either frame
 *  claims, proven or not; NULL: too short for either. */
const uint8_t *bt_rpc_intro_key_id(const void *data, size_t bytes);

/** True when this text is an address that a router may dial: a path without
 *  control characters, or a host of printable ASCII without spaces. */
bool bt_rpc_is_url(const uint8_t *text, size_t n);

#endif
