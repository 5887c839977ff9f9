/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a batch's input. For jobs of the pool's files thread. */
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

static void close_reader(bt_batch_t *b)
{
    bt_store_reader_close(b->reader);
    b->reader = NULL;
    bt_strbuf_fini(&b->partial);
    b->chunk_bytes = 0;
}

void bt_batch_input_close(bt_batch_t *b)
{
    close_reader(b);
    b->paused_at = 0;
}

void bt_batch_input_pause(bt_batch_t *b)
{
    if (b->reader != NULL) {
        close_reader(b);
        b->paused_at = b->input_at;
    }
}

/* Goes to where the input was paused. */
static bt_status_t go_on(bt_batch_t *b)
{
    const uint64_t skipped = b->paused_at % BT_STORE_CHUNK_BYTES;
    const void *data;
    bt_status_t status = BT_OK;

    bt_store_reader_seek(b->reader, b->paused_at - skipped);
    if (skipped > 0) {
        status = bt_store_reader_next(b->reader, &data, &b->chunk_bytes);
    }
    if ((status == BT_OK) && (skipped > 0)) {
        BT_ASSERT(skipped <= b->chunk_bytes); /* of the same object */
        b->chunk = (const char *)data + skipped;
        b->chunk_bytes -= (size_t)skipped;
    }
    b->input_at = b->paused_at;
    if (status != BT_OK) {
        bt_batch_input_close(b);
    }
    return status;
}

bt_status_t bt_batch_input_open(bt_batch_t *b)
{
    const bt_config_t *config = b->all->front->config;
    bt_status_t status;

    if (b->reader != NULL) {
        return BT_OK;
    }
    bt_strbuf_init(&b->partial,
                   (size_t)config->max_body_bytes + BT_BATCH_AROUND_BODY);
    b->chunk_bytes = 0;
    status = bt_store_reader_open(b->all->front->store, b->input, &b->reader);
    if ((status == BT_OK) && (b->paused_at > 0)) {
        return go_on(b);
    }
    b->next_index = b->next_number = 0;
    b->input_at = 0;
    b->is_read = false;
    return status;
}

/* Reads a line, with its end; valid until the next call.
 * @retval BT_ERR_NOT_FOUND  there are no more */
static bt_status_t read_line(bt_batch_t *b, bt_batch_text_t *line)
{
    const size_t most = b->partial.limit;

    bt_strbuf_reset(&b->partial);
    line->is_cut = false;
    for (;;) {
        const char *end = memchr(b->chunk, '\n', b->chunk_bytes);
        const size_t n =
            (end != NULL) ? (size_t)(end - b->chunk) + 1 : b->chunk_bytes;
        const size_t headroom = most - b->partial.len;
        const char *at = b->chunk;
        const void *data;
        bt_status_t status;

        b->chunk += n;
        b->chunk_bytes -= n;
        b->slice_bytes += n;
        b->input_at += n;
        if ((end != NULL) && (b->partial.len == 0) && (n <= most)) {
            line->text = at;
            line->bytes = n;
            return BT_OK;
        }
        line->is_cut = line->is_cut || (n > headroom);
        bt_strbuf_append(&b->partial, at, (n < headroom) ? n : headroom);
        if ((status = bt_strbuf_status(&b->partial)) != BT_OK) {
            return status;
        }
        if (end == NULL) {
            status = bt_store_reader_next(b->reader, &data, &b->chunk_bytes);
            if (status != BT_OK) {
                return status;
            }
            b->chunk = data;
        }
        if ((end != NULL) || (b->chunk_bytes == 0)) {
            line->text = b->partial.data;
            line->bytes = b->partial.len;
            return (b->partial.len > 0) ? BT_OK : BT_ERR_NOT_FOUND;
        }
    }
}

static bool is_blank(const bt_batch_text_t *line)
{
    for (size_t i = 0; i < line->bytes; i++) {
        if ((line->text[i] == '\0') ||
            (strchr(" \t\r\n", line->text[i]) == NULL)) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_batch_input_next(bt_batch_t *b, bt_batch_text_t *line)
{
    bt_status_t status;

    if (b->chunk_bytes == 0) {
        b->chunk = "";
    }
    do {
        status = read_line(b, line);
        b->next_number++;
    } while ((status == BT_OK) && is_blank(line));
    return status;
}
