/* SPDX-License-Identifier: Apache-2.0 */
/** @file manifest_payload.h
 *
 * Note that a prefill worker adds to the manifest of a transfer for the decode
 * worker. Fixed little-endian layout:
 *
 *     version u32 | attempt u32 | id u64 | token u32 | n_tokens u32 |
 *     grant_wait_us u64
 *     for each follower (fanout.h) that shares the KV:
 *         id u64 | attempt u32 | token u32
 */
#ifndef BT_WORKER_MANIFEST_PAYLOAD_H
#define BT_WORKER_MANIFEST_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sched/sched_place.h"
#include "common/wire/wire.h"

#define BT_NOTE_BYTES          32 /**< without followers */
#define BT_NOTE_FOLLOWER_BYTES 16
#define BT_NOTE_MAX_FOLLOWERS  (BT_SCHED_MAX_FANOUT - 1)
#define BT_NOTE_MAX_BYTES \
    (BT_NOTE_BYTES + BT_NOTE_FOLLOWER_BYTES * BT_NOTE_MAX_FOLLOWERS)

/** Replaces token #1 when the leader's request is over and the KV is for its
 *  followers only. */
#define BT_NOTE_NO_TOKEN UINT32_MAX

typedef struct bt_manifest_payload_follower {
    bt_req_key_t key;
    uint32_t token;
} bt_manifest_payload_follower_t;

typedef struct bt_manifest_payload {
    bt_req_key_t key;
    uint32_t token;         /**< token #1, sampled by the prefill worker */
    uint32_t n_tokens;      /**< tokens whose K and V the decode worker now has,
                               cached ones included */
    uint64_t grant_wait_us; /**< from complete KV until its last piece was
                               posted, us */
    uint32_t n_followers;
    bt_manifest_payload_follower_t followers[BT_NOTE_MAX_FOLLOWERS];
} bt_manifest_payload_t;

/** Encodes a note. @return bytes written, at most BT_NOTE_MAX_BYTES */
size_t bt_manifest_payload_encode(const bt_manifest_payload_t *note,
                                  uint8_t out[BT_NOTE_MAX_BYTES]);
/** Decodes a note. @retval BT_ERR_BAD_MESSAGE  wrong size or version */
BT_MUST_CHECK bt_status_t bt_manifest_payload_decode(
    const void *data, size_t bytes, bt_manifest_payload_t *note_p);

#endif
