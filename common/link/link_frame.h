/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_frame.h
 *
 * Private to common/link: the frames of a link whose key is derived, and the
 * messages in them. Pure functions; docs/WIRE.md has the protocol.
 *
 *     stream    { length[4] frame }*
 *     frame     "BTN4" kind[1] 0[3] sequence[8] body tag[16]
 *     ACCEPT    version[4] payload        of the worker, its first
 *     READY     version[4] payload        of the router, its first
 *     DATA      a piece of { length[4] message }*     none = heartbeat
 *     BYE       reason text
 *     OFFER     name of a socket; of the router          link_shm.c
 *     GIVEN     secret[16]; of the worker
 *     RING      empty: the stream continues in shared memory
 *
 * Numbers are little endian. The sequence counts the frames of a direction from
 * 1. The tag is under the key of link and direction, over everything before it.
 * The concatenated bodies of DATA are the stream of messages: a long message
 * spans frames, so that nothing else waits for the whole of it.
 */
#ifndef BT_COMMON_LINK_LINK_FRAME_H
#define BT_COMMON_LINK_LINK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/crypt/key.h"
#include "common/link/link.h"

#define LINK_MAGIC         "BTN4"
#define LINK_MAGIC_BYTES   4u
#define LINK_HEADER_BYTES  16u
#define LINK_VERSION_BYTES 4u
#define LINK_LENGTH_BYTES  4u /**< before a frame, and before a message */
#define LINK_DATA_BYTES    (512u << 10) /**< most of the stream in one frame */
#define LINK_MAX_URL       256u         /**< with its zero byte */
#define LINK_MAX_REASON    256u         /**< with its zero byte */
#define LINK_MAX_NAME      64u          /**< with its zero byte */
/** Size of the longest frames, which carry a hello; longer ones are
 *  rejected. */
#define LINK_MAX_FRAME (BT_LINK_MAX_PAYLOAD + 64u)

typedef enum link_kind {
    LINK_FRAME_JOIN = 1, /* link_handshake_frames.h */
    LINK_FRAME_OPEN = 2, /* link_handshake_frames.h */
    LINK_FRAME_ACCEPT = 3,
    LINK_FRAME_READY = 4,
    LINK_FRAME_DATA = 5,
    LINK_FRAME_BYE = 6,
    LINK_FRAME_OFFER = 7,
    LINK_FRAME_GIVEN = 8,
    LINK_FRAME_RING = 9,
} link_kind_t;

typedef struct link_frame {
    uint8_t kind; /**< link_kind_t, or a kind of a later version */
    uint64_t sequence;
    const uint8_t *body; /**< inside the bytes given */
    size_t bytes;
} link_frame_t;

void bt_link_put_le(uint8_t *out, uint64_t value, size_t bytes);
uint64_t bt_link_get_le(const uint8_t *in, size_t bytes);

/** Returns the size of a frame with a body of this size. */
static inline size_t bt_link_frame_bytes(size_t body_bytes)
{
    return LINK_HEADER_BYTES + body_bytes + BT_TAG_BYTES;
}

/**
 * Writes header and tag around a body that is already in the frame.
 * @param bytes  bt_link_frame_bytes()
 */
void bt_link_frame_seal(const uint8_t key[BT_KEY_BYTES], uint8_t kind,
                        uint64_t sequence, uint8_t *frame, size_t bytes);

/** True when the tag at the end of these bytes is valid under this key.
 *  False for fewer bytes than a frame has. */
bool bt_link_frame_is_tagged(const uint8_t key[BT_KEY_BYTES], const void *data,
                             size_t bytes);
/**
 * Checks and parses a frame.
 * @param [in] key  NULL: bt_link_frame_is_tagged() was true for these bytes
 * @retval BT_ERR_BAD_MESSAGE   not a frame, or a body that its kind cannot have
 * @retval BT_ERR_UNAUTHORIZED  its tag is not valid under this key
 */
BT_MUST_CHECK bt_status_t bt_link_frame_open(const uint8_t key[BT_KEY_BYTES],
                                             const void *data, size_t bytes,
                                             link_frame_t *frame_p);

/** Reassembly state of the stream: an incomplete message. */
typedef struct link_stream {
    bt_strbuf_t part; /**< with its length */
    bool given;       /**< complete, and cleared at the next call */
} link_stream_t;

void bt_link_stream_init(link_stream_t *stream);
void bt_link_stream_fini(link_stream_t *stream);

/**
 * Returns the next message, beginning at @a at_io of a piece, which is 0 at
 * first.
 * @param [out] data_p   the message, until the next call; NULL: the piece is
 *                       used up
 * @retval BT_ERR_BAD_MESSAGE  longer than BT_LINK_MAX_MESSAGE
 * @retval BT_ERR_NO_MEMORY    after either error the stream is unusable
 */
BT_MUST_CHECK bt_status_t bt_link_stream_next(link_stream_t *stream,
                                              const uint8_t *piece,
                                              size_t bytes, size_t *at_io,
                                              const void **data_p,
                                              size_t *bytes_p);

#endif
