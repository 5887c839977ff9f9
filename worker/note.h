/* SPDX-License-Identifier: Apache-2.0 */
/** @file note.h
 *
 * What a prefill worker tells a decode worker in the manifest of a transfer,
 * beside the bytes. Fixed little-endian layout:
 *
 *     version u32 | attempt u32 | id u64 | token u32 | n_tokens u32 |
 *     grant_wait_us u64
 */
#ifndef BT_WORKER_NOTE_H
#define BT_WORKER_NOTE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"

#define BT_NOTE_BYTES 32

typedef struct bt_note {
    bt_req_key_t key;
    uint32_t token;         /**< token #1, drawn by the prefill worker */
    uint32_t n_tokens;      /**< whose K and V D has now, known ones too */
    uint64_t grant_wait_us; /**< from whole KV to its last piece posted */
} bt_note_t;

void bt_note_encode(const bt_note_t *note, uint8_t out[BT_NOTE_BYTES]);
/** @retval BT_ERR_BAD_MESSAGE  wrong size or version */
BT_MUST_CHECK bt_status_t bt_note_decode(const void *data, size_t bytes,
                                         bt_note_t *note_p);

#endif
