/* SPDX-License-Identifier: Apache-2.0 */
/** @file manifest_payload.h
 *
 * Note that a prefill worker adds to the manifest of a transfer for the decode
 * worker: the structure up to its last follower, little endian.
 */
#ifndef BT_WORKER_MANIFEST_PAYLOAD_H
#define BT_WORKER_MANIFEST_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sched/sched_place.h"

#define BT_NOTE_VERSION        1u
#define BT_NOTE_BYTES          32 /**< without followers */
#define BT_NOTE_FOLLOWER_BYTES 16
#define BT_NOTE_MAX_FOLLOWERS  (BT_SCHED_MAX_FANOUT - 1)
#define BT_NOTE_MAX_BYTES \
    (BT_NOTE_BYTES + BT_NOTE_FOLLOWER_BYTES * BT_NOTE_MAX_FOLLOWERS)

/** Replaces token #1 when the leader's request is over and the KV is for its
 *  followers only. */
#define BT_NOTE_NO_TOKEN UINT32_MAX

/** A follower (fanout.h) that shares the KV. */
typedef struct bt_manifest_payload_follower {
    uint64_t id;
    uint32_t attempt;
    uint32_t token;
} bt_manifest_payload_follower_t;

typedef struct bt_manifest_payload {
    uint32_t version; /**< BT_NOTE_VERSION */
    uint32_t attempt;
    uint64_t id;
    uint32_t token;         /**< token #1, sampled by the prefill worker */
    uint32_t n_tokens;      /**< tokens whose K and V the decode worker now has,
                               cached ones included */
    uint64_t grant_wait_us; /**< from complete KV until its last piece was
                               posted, us */
    bt_manifest_payload_follower_t followers[BT_NOTE_MAX_FOLLOWERS];
    uint32_t n_followers; /**< not sent: the length of the note has it */
} bt_manifest_payload_t;

/** Returns how many bytes of a note are sent. */
static inline size_t
bt_manifest_payload_bytes(const bt_manifest_payload_t *note)
{
    return BT_NOTE_BYTES + note->n_followers * (size_t)BT_NOTE_FOLLOWER_BYTES;
}

/** Decodes a note. @retval BT_ERR_BAD_MESSAGE  wrong size or version */
BT_MUST_CHECK bt_status_t bt_manifest_payload_decode(
    const void *data, size_t bytes, bt_manifest_payload_t *note_p);

#endif
