/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/note.h"

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

void bt_note_encode(const bt_note_t *note, uint8_t out[BT_NOTE_BYTES])
{
    put32(out, NOTE_VERSION);
    put32(out + 4, note->key.attempt);
    put64(out + 8, note->key.id);
    put32(out + 16, note->token);
    put32(out + 20, note->n_tokens);
    put64(out + 24, note->grant_wait_us);
}

bt_status_t bt_note_decode(const void *data, size_t bytes, bt_note_t *note_p)
{
    const uint8_t *in = data;

    if ((bytes != BT_NOTE_BYTES) || (get32(in) != NOTE_VERSION)) {
        return BT_ERR_BAD_MESSAGE;
    }
    note_p->key.attempt = get32(in + 4);
    note_p->key.id = get64(in + 8);
    note_p->token = get32(in + 16);
    note_p->n_tokens = get32(in + 20);
    note_p->grant_wait_us = get64(in + 24);
    return BT_OK;
}
