/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_router_h2.h"

#include <string.h>

#define HEAD_BYTES   9u
#define PREFIX_BYTES 5u
#define MOST_WINDOW  0x7fffffffu
#define FIRST_WINDOW 65535u
#define TABLE_START  62u /* of HPACK, after the fields that are fixed */
/* ModelStreamInferResponse: a field of bytes, number 2. */
#define TAG_RESPONSE 0x12

enum {
    F_DATA = 0,
    F_HEADERS = 1,
    F_RST_STREAM = 3,
    F_SETTINGS = 4,
    F_PING = 6,
    F_GOAWAY = 7,
    F_WINDOW_UPDATE = 8,
    ACK = 1,
    END_STREAM = 1,
    END_HEADERS = 4,
};

static const char *const fields[][2] = {
    {":method", "POST"},
    {":scheme", "http"},
    {":path", "/inference.GRPCInferenceService/ModelStreamInfer"},
    {":authority", "localhost"},
    {"te", "trailers"},
    {"content-type", "application/grpc"},
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static void put_u32(bt_strbuf_t *out, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16),
                              (uint8_t)(value >> 8), (uint8_t)value};

    bt_strbuf_append(out, bytes, sizeof(bytes));
}

static uint32_t get_u32(const uint8_t *at)
{
    return ((uint32_t)at[0] << 24) | ((uint32_t)at[1] << 16) |
           ((uint32_t)at[2] << 8) | at[3];
}

static void put_head(bt_strbuf_t *out, size_t bytes, int type, int flags,
                     uint32_t stream)
{
    const uint8_t head[5] = {(uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8),
                             (uint8_t)bytes, (uint8_t)type, (uint8_t)flags};

    bt_strbuf_append(out, head, sizeof(head));
    put_u32(out, stream);
}

static void put_window(bt_strbuf_t *out, uint32_t bytes)
{
    put_head(out, 4, F_WINDOW_UPDATE, 0, 0);
    put_u32(out, bytes);
}

/* Sends the field as text that joins the table, later by its index there. */
static void put_fields(bt_strbuf_t *out, uint32_t stream)
{
    uint8_t block[512];
    size_t n = 0;

    for (size_t i = 0; i < N_FIELDS; i++) {
        if (stream > 1) { /* the latest entry has the lowest index */
            block[n++] = (uint8_t)(0x80 | (TABLE_START + N_FIELDS - 1 - i));
            continue;
        }
        block[n++] = 0x40;
        for (size_t k = 0; k < 2; k++) {
            const size_t bytes = strlen(fields[i][k]);

            block[n++] = (uint8_t)bytes; /* below 127 */
            memcpy(block + n, fields[i][k], bytes);
            n += bytes;
        }
    }
    put_head(out, n, F_HEADERS, END_HEADERS, stream);
    bt_strbuf_append(out, block, n);
}

void bt_h2_client_ask(bt_h2_client_t *h, const bt_strbuf_t *body,
                      bt_strbuf_t *out)
{
    static const uint8_t settings[6] = {0, 4, 0x7f, 0xff, 0xff, 0xff};
    const uint8_t plain = 0;

    if (h->stream == 0) {
        bt_strbuf_puts(out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        put_head(out, sizeof(settings), F_SETTINGS, 0, 0);
        bt_strbuf_append(out, settings, sizeof(settings));
        put_window(out, MOST_WINDOW - FIRST_WINDOW);
    } else if (h->unacked > 0) {
        put_window(out, h->unacked);
    }
    h->stream += (h->stream == 0) ? 1 : 2;
    h->unacked = h->n_messages = h->n_start = h->left = 0;
    h->over = false;
    put_fields(out, h->stream);
    put_head(out, PREFIX_BYTES + body->len, F_DATA, END_STREAM, h->stream);
    bt_strbuf_append(out, &plain, 1);
    put_u32(out, (uint32_t)body->len);
    bt_strbuf_append(out, body->data, body->len);
}

/* Message boundaries are independent of frame boundaries. */
static const char *take_data(bt_h2_client_t *h, const uint8_t *at, size_t n)
{
    h->unacked += (uint32_t)n;
    while (n > 0) {
        size_t step = (h->left < n) ? h->left : n;

        if (h->n_start < sizeof(h->start)) {
            step = 1;
            h->start[h->n_start++] = *at;
            if (h->n_start == sizeof(h->start)) {
                h->left = get_u32(h->start + 1) - 1;
                h->n_messages++;
                if ((h->start[0] != 0) || (*at != TAG_RESPONSE)) {
                    return "a message that is no response";
                }
            }
        } else {
            h->left -= (uint32_t)step;
        }
        if ((h->n_start == sizeof(h->start)) && (h->left == 0)) {
            h->n_start = 0;
        }
        at += step;
        n -= step;
    }
    return NULL;
}

static const char *take_frame(bt_h2_client_t *h, const uint8_t *frame, size_t n,
                              bt_strbuf_t *out)
{
    const int flags = frame[4];
    const bool ours = get_u32(frame + 5) == h->stream;
    const uint8_t *const payload = frame + HEAD_BYTES;

    switch (frame[3]) {
    case F_DATA:
        return ours ? take_data(h, payload, n) : "bytes of another stream";
    case F_HEADERS:
        h->over = h->over || (ours && ((flags & END_STREAM) != 0));
        return NULL;
    case F_SETTINGS:
    case F_PING:
        if ((flags & ACK) == 0) {
            const size_t back = (frame[3] == F_PING) ? n : 0;

            put_head(out, back, frame[3], ACK, 0);
            bt_strbuf_append(out, payload, back);
        }
        return NULL;
    case F_RST_STREAM:
        return "a reset";
    case F_GOAWAY:
        return "a GOAWAY";
    default:
        return NULL;
    }
}

const char *bt_h2_client_take(bt_h2_client_t *h, bt_strbuf_t *got,
                              bt_strbuf_t *out)
{
    const uint8_t *const data = (const uint8_t *)got->data;
    const char *wrong = NULL;
    size_t at = 0;

    while ((wrong == NULL) && (got->len - at >= HEAD_BYTES)) {
        const size_t n = get_u32(data + at) >> 8;

        if (got->len - at < HEAD_BYTES + n) {
            break;
        }
        wrong = take_frame(h, data + at, n, out);
        at += HEAD_BYTES + n;
    }
    bt_strbuf_consume(got, at);
    return wrong;
}
