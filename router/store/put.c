/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one object, and reads one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/store/store_priv.h"

struct bt_store_put {
    bt_list_t link; /* ended, and its part is still to be removed */
    bt_store_t *store;
    bt_store_space_t *space;
    char space_name[BT_STORE_SPACE_BYTES];
    bt_stored_t *object; /* owned until the end */
    bt_list_t evicted;   /* objects that made room: their files are removed
                            before this one's is made */
    bool has_begun;      /* they are */
    uint64_t begun_s; /* when the put began: its object's life is from there */
    uint64_t reserved_bytes;
    uint64_t n_chunks; /* written, with the description */
    bool is_committed;
    bool is_broken;   /* a write failed, and the part is removed */
    int fd;           /* of the part; -1: not made yet, or renamed */
    bt_strbuf_t data; /* in memory: the bytes */
    bt_store_chunk_t chunk;
};

static void part_name(const bt_store_put_t *put, char name[BT_STORE_NAME_BYTES])
{
    snprintf(name, BT_STORE_NAME_BYTES, "%s" BT_STORE_PART, put->object->id);
}

const char *bt_store_refusal(bt_status_t status)
{
    switch (status) {
    case BT_ERR_TOO_LARGE:
        return "your files and batches leave no room for this one "
               "(--store-tenant-limit): delete some of them";
    case BT_ERR_OVERFLOW:
        return "your files and batches are as many as one tenant may have, a "
               "sixteenth of as many as the store (65536 in all) has left: "
               "delete some of them";
    case BT_ERR_BUSY:
        return "the server has no room for this now (--store-limit, or 65536 "
               "files and batches), try again later";
    default:
        return NULL;
    }
}

_Static_assert((BT_STORE_SPACE_FRACTION == 16) &&
                   (BT_STORE_MAX_OBJECTS == 65536),
               "bt_store_refusal() says so");

/* @retval BT_ERR_TOO_LARGE, BT_ERR_OVERFLOW, BT_ERR_BUSY */
static bt_status_t check_headroom(const bt_store_t *store,
                                  const bt_store_space_t *space, uint64_t bytes)
{
    const uint32_t n = store->n_objects + store->n_puts + store->n_leaving;
    const uint64_t used_bytes = store->used_bytes + store->leaving_bytes;
    const uint32_t n_free =
        (n < store->limit_objects) ? store->limit_objects - n : 0;

    if (bytes > bt_store_headroom(store->space_bytes, space->used_bytes)) {
        return BT_ERR_TOO_LARGE;
    }
    if ((bytes > bt_store_headroom(store->limit_bytes, used_bytes)) ||
        (n_free == 0)) {
        return BT_ERR_BUSY;
    }
    return (store->has_spaces &&
            ((space->n_objects + space->n_puts) * BT_STORE_SPACE_FRACTION >=
             n_free))
               ? BT_ERR_OVERFLOW
               : BT_OK;
}

bt_status_t bt_store_put_begin(bt_store_t *store, bt_store_kind_t kind,
                               const char *space_name, uint64_t bytes,
                               uint64_t now_us, bt_store_put_t **put_p)
{
    const uint64_t most = UINT64_MAX / 4;
    bt_store_space_t *space;
    bt_store_put_t *put;
    bt_status_t status;
    uint64_t cost;

    if (bytes > most) {
        return BT_ERR_TOO_LARGE;
    }
    cost = bytes + BT_STORE_OBJECT_BYTES;
    space = bt_store_space_get(store, space_name);
    if (space == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if ((status = check_headroom(store, space, cost)) != BT_OK) {
        bt_store_space_leave(store, space);
        return status;
    }
    put = bt_calloc(1, sizeof(*put));
    if (put != NULL) {
        put->object = bt_calloc(1, sizeof(*put->object));
    }
    if ((put == NULL) || (put->object == NULL)) {
        bt_free(put);
        bt_store_space_leave(store, space);
        return BT_ERR_NO_MEMORY;
    }
    store->last_us = (now_us > store->last_us) ? now_us : store->last_us + 1;
    *put->object = (bt_stored_t){
        .refs = 1,
        .kind = kind,
        .created_us = store->last_us,
        .expires_s = now_us / 1000000 + store->ttl_s,
    };
    bt_list_init(&put->object->link);
    bt_list_init(&put->object->by_id);
    bt_store_id_make(kind, put->object->id);
    bt_list_init(&put->link);
    bt_list_init(&put->evicted);
    bt_store_move_all(&store->evicted, &put->evicted);
    put->begun_s = now_us / 1000000;
    put->store = store;
    put->space = space;
    snprintf(put->space_name, sizeof(put->space_name), "%s", space_name);
    put->reserved_bytes = cost;
    put->fd = -1;
    bt_strbuf_init(&put->data, (size_t)bytes + 1);
    bt_store_charge(store, space, cost, 0);
    store->n_puts++;
    space->n_puts++;
    *put_p = put;
    return BT_OK;
}

const char *bt_store_put_id(const bt_store_put_t *put)
{
    return put->object->id;
}

void bt_store_put_set_id(bt_store_put_t *put, const char *id)
{
    BT_ASSERT(put->n_chunks == 0);
    snprintf(put->object->id, sizeof(put->object->id), "%s", id);
}

bt_status_t bt_store_put_describe(bt_store_put_t *put, const void *label,
                                  size_t label_bytes, uint64_t life_s)
{
    bt_stored_t *object = put->object;
    char *copy;

    BT_ASSERT(put->n_chunks == 0);
    if (label_bytes > BT_STORE_LABEL_BYTES) {
        return BT_ERR_TOO_LARGE;
    }
    copy = bt_memdup(label, label_bytes);
    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_free(object->label);
    object->label = copy;
    object->label_bytes = (uint32_t)label_bytes;
    if ((life_s > 0) && (life_s < put->store->ttl_s)) {
        object->expires_s = put->begun_s + life_s;
    }
    return BT_OK;
}

static bt_status_t write_chunk(bt_store_put_t *put)
{
    const bt_status_t status =
        bt_store_chunk_write(&put->store->folder, put->object->id,
                             put->n_chunks, &put->chunk, put->fd);

    put->n_chunks++;
    put->chunk.bytes = 0;
    return status;
}

/* Creates the part, and writes header and description. */
static bt_status_t begin_file(bt_store_put_t *put)
{
    uint8_t header[BT_STORE_HEADER_BYTES];
    char name[BT_STORE_NAME_BYTES];
    bt_status_t status;

    if (!put->has_begun) {
        bt_store_unlink_all(put->store, &put->evicted);
        put->has_begun = true;
    }
    part_name(put, name);
    put->fd =
        openat(put->store->folder.dir_fd, name,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (put->fd < 0) {
        return BT_ERR_IO;
    }
    bt_store_header_make(&put->store->folder, header);
    status = bt_write_all(put->fd, header, sizeof(header));
    if (status != BT_OK) {
        return status;
    }
    bt_store_about_encode(put->object, put->space_name, &put->chunk);
    put->object->head_bytes =
        BT_STORE_HEADER_BYTES + BT_STORE_FRAME_BYTES + put->chunk.bytes;
    return write_chunk(put);
}

static void remove_part(bt_store_put_t *put)
{
    char name[BT_STORE_NAME_BYTES];

    if (put->fd >= 0) {
        close(put->fd);
        put->fd = -1;
        part_name(put, name);
        (void)unlinkat(put->store->folder.dir_fd, name, 0);
    }
}

/* Appends bytes to the file, which is begun if needed. */
static bt_status_t write_bytes(bt_store_put_t *put, const char *at,
                               size_t bytes)
{
    bt_store_chunk_t *chunk = &put->chunk;
    bt_status_t status;

    if ((put->fd < 0) && ((status = begin_file(put)) != BT_OK)) {
        return status;
    }
    put->object->bytes += bytes;
    while (bytes > 0) {
        size_t n = BT_STORE_CHUNK_BYTES - chunk->bytes;

        if (n == 0) {
            chunk->is_last = false;
            if ((status = write_chunk(put)) != BT_OK) {
                return status;
            }
            continue;
        }
        n = (n < bytes) ? n : bytes;
        memcpy(chunk->data + chunk->bytes, at, n);
        chunk->bytes += n;
        at += n;
        bytes -= n;
    }
    return BT_OK;
}

bt_status_t bt_store_put_write(bt_store_put_t *put, const void *data,
                               size_t bytes)
{
    bt_status_t status;

    if (put->is_broken) {
        return BT_ERR_IO;
    }
    if (bytes >
        put->reserved_bytes - BT_STORE_OBJECT_BYTES - put->object->bytes) {
        return BT_ERR_TOO_LARGE;
    }
    if (bt_store_is_in_memory(put->store)) {
        put->object->bytes += bytes;
        bt_strbuf_append(&put->data, data, bytes);
        return bt_strbuf_status(&put->data);
    }
    status = write_bytes(put, data, bytes);
    if (status != BT_OK) { /* removed by this thread, which may block */
        const int reason = errno;

        remove_part(put);
        put->is_broken = true;
        errno = reason;
    }
    return status;
}

static bt_status_t commit(bt_store_put_t *put)
{
    const int dir_fd = put->store->folder.dir_fd;
    char name[BT_STORE_NAME_BYTES];
    bt_status_t status;

    put->chunk.is_last = true;
    status = write_chunk(put);
    if (status != BT_OK) {
        return status;
    }
    part_name(put, name);
    if ((fsync(put->fd) != 0) ||
        (renameat(dir_fd, name, dir_fd, put->object->id) != 0)) {
        return BT_ERR_IO;
    }
    close(put->fd);
    put->fd = -1;
    put->is_committed = true;
    return (fsync(dir_fd) == 0) ? BT_OK : BT_ERR_IO;
}

bt_status_t bt_store_put_commit(bt_store_put_t *put)
{
    bt_status_t status = bt_store_put_write(put, "", 0); /* begins the file */

    BT_ASSERT(!put->is_committed);
    if ((status == BT_OK) && bt_store_is_in_memory(put->store)) {
        put->object->data =
            bt_memdup((put->data.len > 0) ? put->data.data : "", put->data.len);
        put->is_committed = put->object->data != NULL;
        return put->is_committed ? BT_OK : BT_ERR_NO_MEMORY;
    }
    if (status == BT_OK) {
        status = commit(put);
    }
    if (status != BT_OK) {
        const int reason = errno;

        remove_part(put);
        if (put->is_committed) {
            (void)unlinkat(put->store->folder.dir_fd, put->object->id, 0);
            put->is_committed = false;
        }
        errno = reason;
    }
    return status;
}

static void put_free(bt_store_put_t *put)
{
    bt_strbuf_fini(&put->data);
    bt_free(put);
}

bt_stored_t *bt_store_put_end(bt_store_put_t *put)
{
    bt_store_t *store = put->store;
    bt_store_space_t *space = put->space;
    bt_stored_t *object = put->object;

    if (put->has_begun || bt_store_is_in_memory(store)) {
        bt_store_free_all(&put->evicted);
    } else {
        bt_store_move_all(&put->evicted, &store->evicted);
    }
    store->n_puts--;
    space->n_puts--;
    if (put->is_committed) {
        bt_store_add(store, space, object);
        bt_store_charge(store, space, 0, put->reserved_bytes);
        put_free(put);
        return object;
    }
    bt_store_charge(store, space, 0, put->reserved_bytes);
    bt_store_space_leave(store, space);
    if (put->fd >= 0) {
        bt_list_push_back(&store->ended, &put->link);
    } else {
        bt_stored_unref(object);
        put_free(put);
    }
    return NULL;
}

void bt_store_remove_parts(const bt_list_t *puts)
{
    BT_LIST_FOR_EACH_ENTRY(bt_store_put_t, put, puts, link) {
        remove_part(put);
    }
}

void bt_store_free_puts(bt_list_t *puts)
{
    bt_store_remove_parts(puts);
    while (!bt_list_empty(puts)) {
        bt_store_put_t *put = BT_CONTAINER_OF(puts->next, bt_store_put_t, link);

        bt_list_remove(&put->link);
        bt_stored_unref(put->object);
        put_free(put);
    }
}

/* ---- reading ---- */

struct bt_store_reader {
    const bt_store_folder_t *folder;
    char id[BT_STORE_ID_BYTES];
    int fd;
    uint64_t head_bytes, bytes; /* of the file before the object, and its own */
    uint64_t index, offset;     /* of the next chunk */
    uint64_t left;              /* bytes of the object not read yet */
    const char *data;           /* in memory: the rest of it; fd is -1 */
    bool is_over;
    bt_store_chunk_t chunk;
};

bt_status_t bt_store_reader_open(const bt_store_t *store,
                                 const bt_stored_t *object,
                                 bt_store_reader_t **reader_p)
{
    bt_store_reader_t *reader = bt_calloc(1, sizeof(*reader));
    char space[BT_STORE_SPACE_BYTES];
    bt_stored_t found = {0};
    bt_status_t status;
    int dir_fd;

    if (reader == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    reader->folder = &store->folder;
    if (object->data != NULL) {
        reader->fd = -1;
        reader->data = object->data;
        reader->bytes = reader->left = object->bytes;
        *reader_p = reader;
        return BT_OK;
    }
    memcpy(reader->id, object->id, sizeof(reader->id));
    dir_fd = bt_store_open_holder(reader->folder, object->holder);
    if (dir_fd < 0) {
        status = (errno == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
        bt_free(reader);
        return status;
    }
    status = bt_store_file_open(reader->folder, dir_fd, reader->id, &reader->fd,
                                &found, space, &reader->chunk);
    close(dir_fd);
    if (status != BT_OK) {
        bt_free(reader);
        return status;
    }
    bt_free(found.label);
    if ((found.created_us != object->created_us) ||
        (found.bytes != object->bytes)) {
        close(reader->fd);
        bt_free(reader);
        return BT_ERR_CORRUPT;
    }
    reader->head_bytes = found.head_bytes;
    reader->bytes = found.bytes;
    bt_store_reader_seek(reader, 0);
    *reader_p = reader;
    return BT_OK;
}

bt_status_t bt_store_reader_next(bt_store_reader_t *reader, const void **data_p,
                                 size_t *bytes_p)
{
    bt_store_chunk_t *chunk = &reader->chunk;
    bt_status_t status;

    if (reader->data != NULL) {
        *data_p = reader->data;
        *bytes_p = (size_t)((reader->left < BT_STORE_CHUNK_BYTES)
                                ? reader->left
                                : BT_STORE_CHUNK_BYTES);
        reader->data += *bytes_p;
        reader->left -= *bytes_p;
        return BT_OK;
    }
    *data_p = chunk->data;
    *bytes_p = 0;
    if (reader->is_over) {
        return BT_OK;
    }
    status = bt_store_chunk_read(reader->folder, reader->id, reader->index,
                                 reader->fd, reader->offset, chunk);
    if (status != BT_OK) {
        return status;
    }
    if ((chunk->bytes > reader->left) ||
        (chunk->is_last != (chunk->bytes == reader->left)) ||
        (!chunk->is_last && (chunk->bytes != BT_STORE_CHUNK_BYTES))) {
        return BT_ERR_CORRUPT;
    }
    reader->left -= chunk->bytes;
    reader->offset += BT_STORE_FRAME_BYTES + chunk->bytes;
    reader->index++;
    reader->is_over = chunk->is_last;
    *bytes_p = chunk->bytes;
    return BT_OK;
}

void bt_store_reader_close(bt_store_reader_t *reader)
{
    if (reader != NULL) {
        if (reader->fd >= 0) {
            close(reader->fd);
        }
        bt_free(reader);
    }
}

void bt_store_reader_seek(bt_store_reader_t *reader, uint64_t at)
{
    const uint64_t n = at / BT_STORE_CHUNK_BYTES;

    BT_ASSERT((at <= reader->bytes) &&
              ((at % BT_STORE_CHUNK_BYTES == 0) || (at == reader->bytes)));
    if (reader->data != NULL) {
        reader->data += reader->left;
        reader->data -= reader->bytes - at;
    }
    reader->index = n + 1;
    reader->offset =
        reader->head_bytes + n * (BT_STORE_FRAME_BYTES + BT_STORE_CHUNK_BYTES);
    reader->left = reader->bytes - at;
    /* An empty object has one chunk, which is read to see that it is whole. */
    reader->is_over = (reader->left == 0) && (at > 0);
}

bt_status_t bt_store_read(const bt_store_t *store, const bt_stored_t *object,
                          uint64_t at, uint64_t most, bt_strbuf_t *out)
{
    bt_store_reader_t *reader = NULL;
    const void *data;
    size_t bytes = 1;
    bt_status_t status = bt_store_reader_open(store, object, &reader);

    if (status == BT_OK) {
        const uint64_t left = object->bytes - at;

        bt_store_reader_seek(reader, at);
        bt_strbuf_reserve(out, (size_t)((left < most) ? left : most));
    }
    while ((status == BT_OK) && (bytes > 0) && (out->len < most)) {
        status = bt_store_reader_next(reader, &data, &bytes);
        if (status == BT_OK) {
            bt_strbuf_append(out, data, bytes);
            status = bt_strbuf_status(out);
        }
    }
    bt_store_reader_close(reader);
    return status;
}
