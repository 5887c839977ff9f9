/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/link_frame.h"

#include <string.h>

#include "common/link/shm_segment.h"

#define KIND_AT     4
#define SEQUENCE_AT 8

void bt_link_put_le(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

uint64_t bt_link_get_le(const uint8_t *in, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i > 0; i--) {
        value = (value << 8) | in[i - 1];
    }
    return value;
}

void bt_link_frame_seal(const uint8_t key[BT_KEY_BYTES], uint8_t kind,
                        uint64_t sequence, uint8_t *frame, size_t bytes)
{
    const bt_key_part_t said = {frame, bytes - BT_TAG_BYTES};

    memset(frame, 0, SEQUENCE_AT);
    memcpy(frame, LINK_MAGIC, LINK_MAGIC_BYTES);
    frame[KIND_AT] = kind;
    bt_link_put_le(frame + SEQUENCE_AT, sequence, sizeof(sequence));
    bt_key_tag(key, &said, 1, frame + said.bytes);
}

/* Kinds of later versions have any body. */
static bool body_fits(const link_frame_t *frame)
{
    switch (frame->kind) {
    case LINK_FRAME_JOIN:
    case LINK_FRAME_OPEN:
        return false; /* they have no tag */
    case LINK_FRAME_ACCEPT:
    case LINK_FRAME_READY:
        return (frame->bytes >= LINK_VERSION_BYTES) &&
               (frame->bytes <= LINK_VERSION_BYTES + BT_LINK_MAX_PAYLOAD);
    case LINK_FRAME_DATA:
        return frame->bytes <= LINK_DATA_BYTES;
    case LINK_FRAME_BYE:
        return frame->bytes < LINK_MAX_REASON;
    case LINK_FRAME_OFFER:
        return (frame->bytes > 0) && (frame->bytes <= BT_SHM_NAME_BYTES);
    case LINK_FRAME_GIVEN:
        return frame->bytes == BT_SHM_SECRET_BYTES;
    case LINK_FRAME_RING:
        return frame->bytes == 0;
    default:
        return frame->kind != 0;
    }
}

bool bt_link_frame_is_tagged(const uint8_t key[BT_KEY_BYTES], const void *data,
                             size_t bytes)
{
    const uint8_t *p = data;
    uint8_t tag[BT_TAG_BYTES];
    bt_key_part_t said;

    if (bytes < bt_link_frame_bytes(0)) {
        return false;
    }
    said = (bt_key_part_t){p, bytes - BT_TAG_BYTES};
    bt_key_tag(key, &said, 1, tag);
    return bt_key_equal(tag, p + said.bytes, sizeof(tag)) != 0;
}

bt_status_t bt_link_frame_open(const uint8_t key[BT_KEY_BYTES],
                               const void *data, size_t bytes,
                               link_frame_t *frame_p)
{
    static const uint8_t zeros[SEQUENCE_AT - KIND_AT - 1];
    const uint8_t *p = data;
    link_frame_t frame;

    if ((bytes < bt_link_frame_bytes(0)) || (bytes > LINK_MAX_FRAME) ||
        (memcmp(p, LINK_MAGIC, LINK_MAGIC_BYTES) != 0) ||
        (memcmp(p + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    if ((key != NULL) && !bt_link_frame_is_tagged(key, data, bytes)) {
        return BT_ERR_UNAUTHORIZED;
    }
    frame.kind = p[KIND_AT];
    frame.sequence = bt_link_get_le(p + SEQUENCE_AT, sizeof(uint64_t));
    frame.body = p + LINK_HEADER_BYTES;
    frame.bytes = bytes - bt_link_frame_bytes(0);
    if (!body_fits(&frame)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *frame_p = frame;
    return BT_OK;
}

/* ---- the stream of messages ---- */

void bt_link_stream_init(link_stream_t *stream)
{
    bt_strbuf_init(&stream->part, LINK_LENGTH_BYTES + BT_LINK_MAX_MESSAGE);
    stream->given = false;
}

void bt_link_stream_fini(link_stream_t *stream)
{
    bt_strbuf_fini(&stream->part);
}

/* Add to the part until it has n bytes. @return true when it has */
static bool fill(link_stream_t *stream, const uint8_t *piece, size_t bytes,
                 size_t *at_io, size_t n)
{
    const size_t missing = (stream->part.len < n) ? n - stream->part.len : 0;
    const size_t there = bytes - *at_io;
    const size_t now = (missing < there) ? missing : there;

    bt_strbuf_append(&stream->part, piece + *at_io, now);
    *at_io += now;
    return now == missing;
}

bt_status_t bt_link_stream_next(link_stream_t *stream, const uint8_t *piece,
                                size_t bytes, size_t *at_io,
                                const void **data_p, size_t *bytes_p)
{
    const bool split = !stream->given && (stream->part.len > 0);
    size_t at = *at_io;
    size_t n;

    if (stream->given) { /* long messages are rare: frees their memory */
        bt_link_stream_fini(stream);
        bt_link_stream_init(stream);
    }
    *data_p = NULL;
    if (!split && (bytes - at >= LINK_LENGTH_BYTES)) {
        n = (size_t)bt_link_get_le(piece + at, LINK_LENGTH_BYTES);
        if (n > BT_LINK_MAX_MESSAGE) {
            return BT_ERR_BAD_MESSAGE;
        }
        at += LINK_LENGTH_BYTES;
        if (n <= bytes - at) { /* most are whole: nothing is copied */
            *data_p = piece + at;
            *bytes_p = n;
            *at_io = at + n;
            return BT_OK;
        }
    }
    if (fill(stream, piece, bytes, at_io, LINK_LENGTH_BYTES) &&
        (bt_strbuf_status(&stream->part) == BT_OK)) {
        n = (size_t)bt_link_get_le((const uint8_t *)stream->part.data,
                                   LINK_LENGTH_BYTES);
        if (n > BT_LINK_MAX_MESSAGE) {
            return BT_ERR_BAD_MESSAGE;
        }
        if (fill(stream, piece, bytes, at_io, LINK_LENGTH_BYTES + n)) {
            *data_p = stream->part.data + LINK_LENGTH_BYTES;
            *bytes_p = n;
            stream->given = true;
        }
    }
    return bt_strbuf_status(&stream->part);
}
