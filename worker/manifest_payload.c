/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/manifest_payload.h"

#include <string.h>

_Static_assert(
    (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) &&
        (offsetof(bt_manifest_payload_t, followers) == BT_NOTE_BYTES) &&
        (sizeof(bt_manifest_payload_follower_t) == BT_NOTE_FOLLOWER_BYTES),
    "a note is sent as it is in memory");

bt_status_t bt_manifest_payload_decode(const void *data, size_t bytes,
                                       bt_manifest_payload_t *note_p)
{
    uint32_t version;

    if ((bytes < BT_NOTE_BYTES) || (bytes > BT_NOTE_MAX_BYTES) ||
        ((bytes - BT_NOTE_BYTES) % BT_NOTE_FOLLOWER_BYTES != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    memcpy(&version, data, sizeof(version));
    if (version != BT_NOTE_VERSION) {
        return BT_ERR_BAD_MESSAGE;
    }
    memcpy(note_p, data, bytes);
    note_p->n_followers =
        (uint32_t)((bytes - BT_NOTE_BYTES) / BT_NOTE_FOLLOWER_BYTES);
    return BT_OK;
}
