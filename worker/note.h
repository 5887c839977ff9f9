/* SPDX-License-Identifier: Apache-2.0 */
/** @file note.h
 *
 * What a prefill worker tells a decode worker in the manifest of a transfer,
 * beside the bytes. Fixed little-endian layout:
 *
 *     version u32 | attempt u32 | id u64 | token u32 | n_tokens u32 |
 *     grant_wait_us u64
 *     of each follower (group.h) for which the KV is, too:
 *         id u64 | attempt u32 | token u32
 */
#ifndef BT_WORKER_NOTE_H
#define BT_WORKER_NOTE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sched/sched_place.h"
#include "common/wire/wire.h"

#define BT_NOTE_BYTES          32 /**< without followers */
#define BT_NOTE_FOLLOWER_BYTES 16
#define BT_NOTE_MAX_FOLLOWERS  (BT_SCHED_MAX_GROUP - 1)
#define BT_NOTE_MAX_BYTES \
    (BT_NOTE_BYTES + BT_NOTE_FOLLOWER_BYTES * BT_NOTE_MAX_FOLLOWERS)

/** In place of a token #1: the answer of the leader is over, the KV is for its
 *  followers. */
#define BT_NOTE_NO_TOKEN UINT32_MAX

typedef struct bt_note_follower {
    bt_req_key_t key;
    uint32_t token;
} bt_note_follower_t;

typedef struct bt_note {
    bt_req_key_t key;
    uint32_t token;         /**< token #1, drawn by the prefill worker */
    uint32_t n_tokens;      /**< whose K and V D has now, known ones too */
    uint64_t grant_wait_us; /**< from whole KV to its last piece posted */
    uint32_t n_followers;
    bt_note_follower_t followers[BT_NOTE_MAX_FOLLOWERS];
} bt_note_t;

/** @return the bytes of it, at most BT_NOTE_MAX_BYTES */
size_t bt_note_encode(const bt_note_t *note, uint8_t out[BT_NOTE_MAX_BYTES]);
/** @retval BT_ERR_BAD_MESSAGE  wrong size or version */
BT_MUST_CHECK bt_status_t bt_note_decode(const void *data, size_t bytes,
                                         bt_note_t *note_p);

#endif
