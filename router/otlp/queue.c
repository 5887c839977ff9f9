/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/queue.h"

#include <string.h>

#include "common/base/alloc.h"

typedef struct head {
    uint32_t bytes, n_spans;
} head_t;

bt_status_t bt_otlp_queue_init(bt_otlp_queue_t *queue, size_t bytes)
{
    char *memory = bt_calloc(bytes, 1);

    if (memory == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *queue = (bt_otlp_queue_t){.bytes = memory, .cap = bytes};
    return BT_OK;
}

void bt_otlp_queue_fini(bt_otlp_queue_t *queue)
{
    bt_free(queue->bytes);
    *queue = (bt_otlp_queue_t){0};
}

static void put(bt_otlp_queue_t *queue, size_t at, const void *data, size_t n)
{
    const size_t start = at % queue->cap;
    const size_t first = (n < queue->cap - start) ? n : queue->cap - start;

    memcpy(queue->bytes + start, data, first);
    memcpy(queue->bytes, (const char *)data + first, n - first);
}

static head_t head_at(const bt_otlp_queue_t *queue, size_t at)
{
    head_t head;

    for (size_t i = 0; i < sizeof(head); i++) {
        ((char *)&head)[i] = queue->bytes[(at + i) % queue->cap];
    }
    return head;
}

bool bt_otlp_queue_add(bt_otlp_queue_t *queue, const char *spans, size_t bytes,
                       uint32_t n_spans)
{
    const head_t head = {(uint32_t)bytes, n_spans};
    const size_t at = queue->from + queue->used;

    if ((bytes > UINT32_MAX) || (queue->cap - queue->used < sizeof(head)) ||
        (queue->cap - queue->used - sizeof(head) < bytes)) {
        return false;
    }
    put(queue, at, &head, sizeof(head));
    put(queue, at + sizeof(head), spans, bytes);
    queue->used += sizeof(head) + bytes;
    queue->n_spans += n_spans;
    return true;
}

void bt_otlp_queue_peek(const bt_otlp_queue_t *queue, size_t most_bytes,
                        bt_otlp_piece_t *piece)
{
    *piece = (bt_otlp_piece_t){0};
    while (piece->bytes < queue->used) {
        const head_t head = head_at(queue, queue->from + piece->bytes);
        const size_t text = head.bytes + ((piece->bytes > 0) ? 1u : 0u);

        if ((piece->bytes > 0) && (piece->text_bytes + text > most_bytes)) {
            break;
        }
        piece->bytes += sizeof(head) + head.bytes;
        piece->text_bytes += text;
        piece->n_spans += head.n_spans;
    }
}

void bt_otlp_queue_copy(const bt_otlp_queue_t *queue, size_t from,
                        const bt_otlp_piece_t *piece, bt_strbuf_t *out)
{
    size_t at = from;

    while (at < from + piece->bytes) {
        const head_t head = head_at(queue, at);
        const size_t start = (at + sizeof(head)) % queue->cap;
        const size_t rest = queue->cap - start;
        const size_t first = (head.bytes < rest) ? head.bytes : rest;

        if (at > from) {
            bt_strbuf_puts(out, ",");
        }
        bt_strbuf_append(out, queue->bytes + start, first);
        bt_strbuf_append(out, queue->bytes, head.bytes - first);
        at += sizeof(head) + head.bytes;
    }
}

void bt_otlp_queue_drop(bt_otlp_queue_t *queue, const bt_otlp_piece_t *piece)
{
    queue->from = (queue->from + piece->bytes) % queue->cap;
    queue->used -= piece->bytes;
    queue->n_spans -= piece->n_spans;
}
