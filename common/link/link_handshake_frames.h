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

#include "common/base/status.h"
#include "common/link/link_frame.h"
#include "common/link/link_keys.h"
#include "common/wire/wire.h"

#define LINK_NONCE_BYTES        32u
#define HANDSHAKE_FRAMES_HEADER 12u
#define LINK_INTRO_FIXED        60u
#define LINK_MAX_INTRO          1024u /**< bytes; has space for later fields */

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
