/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/manifest_payload.h"

#include <endian.h>
#include <string.h>

#define NOTE_VERSION 1u

static void put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

size_t bt_manifest_payload_encode(const bt_manifest_payload_t *note,
                                  uint8_t out[BT_NOTE_MAX_BYTES])
{
    uint8_t *at = out + BT_NOTE_BYTES;

    put32(out, NOTE_VERSION);
    put32(out + 4, note->key.attempt);
    put64(out + 8, note->key.id);
    put32(out + 16, note->token);
    put32(out + 20, note->n_tokens);
    put64(out + 24, note->grant_wait_us);
    for (uint32_t i = 0; i < note->n_followers; i++) {
        const bt_manifest_payload_follower_t *follower = &note->followers[i];

        put64(at, follower->key.id);
        put32(at + 8, follower->key.attempt);
        put32(at + 12, follower->token);
        at += BT_NOTE_FOLLOWER_BYTES;
    }
    return (size_t)(at - out);
}

bt_status_t bt_manifest_payload_decode(const void *data, size_t bytes,
                                       bt_manifest_payload_t *note_p)
{
    const uint8_t *in = data;
    const uint8_t *at = in + BT_NOTE_BYTES;

    if ((bytes < BT_NOTE_BYTES) || (bytes > BT_NOTE_MAX_BYTES) ||
        ((bytes - BT_NOTE_BYTES) % BT_NOTE_FOLLOWER_BYTES != 0) ||
        (get32(in) != NOTE_VERSION)) {
        return BT_ERR_BAD_MESSAGE;
    }
    note_p->key.attempt = get32(in + 4);
    note_p->key.id = get64(in + 8);
    note_p->token = get32(in + 16);
    note_p->n_tokens = get32(in + 20);
    note_p->grant_wait_us = get64(in + 24);
    note_p->n_followers =
        (uint32_t)((bytes - BT_NOTE_BYTES) / BT_NOTE_FOLLOWER_BYTES);
    for (uint32_t i = 0; i < note_p->n_followers; i++) {
        bt_manifest_payload_follower_t *follower = &note_p->followers[i];

        follower->key.id = get64(at);
        follower->key.attempt = get32(at + 8);
        follower->token = get32(at + 12);
        at += BT_NOTE_FOLLOWER_BYTES;
    }
    return BT_OK;
}
