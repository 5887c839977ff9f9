/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_intro.h
 *
 * Private to common/rpc: the two frames before a link has its own key. Pure
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
#ifndef BT_COMMON_RPC_RPC_INTRO_H
#define BT_COMMON_RPC_RPC_INTRO_H

#include "common/base/status.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/rpc_keys.h"
#include "common/wire/wire.h"

#define RPC_NONCE_BYTES  32u
#define RPC_INTRO_HEADER 12u
#define RPC_INTRO_FIXED  60u
#define RPC_MAX_INTRO    1024u /**< bytes; has space for later fields */

/** Introduction of one side. */
typedef struct rpc_intro {
    bt_wire_range_t range;
    uint64_t incarnation;           /**< random for the life of a process */
    uint8_t nonce[RPC_NONCE_BYTES]; /**< random for each frame */
    char name[RPC_MAX_NAME];        /**< for logs */
} rpc_intro_t;

/** Writes a whole JOIN frame. @return its bytes in @a out */
size_t bt_rpc_join_put(const rpc_keys_t *keys, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO]);
/** Writes a whole OPEN frame. @return its bytes in @a out */
size_t bt_rpc_open_put(const rpc_keys_t *keys, const void *join,
                       size_t join_bytes, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO]);

/**
 * Checks a JOIN frame.
 * @retval BT_ERR_BAD_MESSAGE   no such frame
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_rpc_join_check(const rpc_keys_t *keys,
                                            const void *data, size_t bytes,
                                            rpc_intro_t *intro_p);
/**
 * Checks an OPEN frame.
 * @retval BT_ERR_BAD_MESSAGE   no such frame
 * @retval BT_ERR_UNAUTHORIZED  made with another key; *intro_p is set, and
 *                              nothing in it is proven
 */
BT_MUST_CHECK bt_status_t bt_rpc_open_check(const rpc_keys_t *keys,
                                            const void *join, size_t join_bytes,
                                            const void *data, size_t bytes,
                                            rpc_intro_t *intro_p);

/** Returns the RPC_KEY_ID_BYTES in @a data of the key that either frame
 *  claims, proven or not; NULL: too short for either. */
const uint8_t *bt_rpc_intro_key_id(const void *data, size_t bytes);

/** True for the URL of a local socket, ipc://PATH. */
bool bt_rpc_is_ipc(const char *url);
/** True when this text is an address that a worker may dial: a path without
 *  control characters, or a host of printable ASCII without spaces. */
bool bt_rpc_is_url(const uint8_t *text, size_t n);

#endif
