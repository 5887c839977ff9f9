/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of an object: a header, and records of one or more chunks, of
 * which the last of a record is marked. Chunks are bound to "J", the id and
 * their number, so that no chunk of the object's own file is one of these. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/store/store_priv.h"

#define RECORD_BYTES ((size_t)1 << 30) /* longest record */

struct bt_store_journal {
    const bt_store_folder_t *folder;
    char id[BT_STORE_ID_BYTES];    /* of the object */
    char bound[BT_STORE_ID_BYTES]; /* of chunks */
    int fd;
    uint64_t index, offset; /* of the next chunk */
    bool is_at_end, is_broken;
    bt_strbuf_t record;
    bt_store_chunk_t chunk;
};

void bt_store_journal_name(const char *id, const char *ending,
                           char name[BT_STORE_NAME_BYTES])
{
    snprintf(name, BT_STORE_NAME_BYTES, "%.47s" BT_STORE_JOURNAL "%.6s", id,
             ending);
}

void bt_store_journal_rewind(bt_store_journal_t *j)
{
    j->index = 0;
    j->offset = BT_STORE_HEADER_BYTES;
    j->is_at_end = false;
}

void bt_store_journal_close(bt_store_journal_t *j)
{
    if (j != NULL) {
        if (j->fd >= 0) {
            close(j->fd);
        }
        bt_strbuf_fini(&j->record);
        bt_free(j);
    }
}

/* Checks the header, or writes it where a kill has torn it. */
static bt_status_t begin(bt_store_journal_t *j)
{
    uint8_t header[BT_STORE_HEADER_BYTES], ours[BT_STORE_HEADER_BYTES];
    const ssize_t n = pread(j->fd, header, sizeof(header), 0);

    if (n < 0) {
        return BT_ERR_IO;
    }
    bt_store_header_make(j->folder, ours);
    if (n == (ssize_t)sizeof(header)) {
        return (memcmp(header, ours, sizeof(ours)) == 0) ? BT_OK
                                                         : BT_ERR_CORRUPT;
    }
    if ((ftruncate(j->fd, 0) != 0) || (lseek(j->fd, 0, SEEK_SET) != 0)) {
        return BT_ERR_IO;
    }
    return bt_write_all(j->fd, ours, sizeof(ours));
}

static bt_store_journal_t *make(const bt_store_folder_t *folder, const char *id)
{
    bt_store_journal_t *j = bt_calloc(1, sizeof(*j));

    if (j != NULL) {
        j->folder = folder;
        memcpy(j->id, id, sizeof(j->id));
        snprintf(j->bound, sizeof(j->bound), "J%.46s", id);
        j->fd = -1;
        bt_strbuf_init(&j->record, RECORD_BYTES);
        bt_store_journal_rewind(j);
    }
    return j;
}

bt_status_t bt_store_journal_open(const bt_store_t *store,
                                  const bt_stored_t *object,
                                  bt_store_journal_t **journal_p)
{
    bt_store_journal_t *j = make(&store->folder, object->id);
    char name[BT_STORE_NAME_BYTES];
    bt_status_t status;

    if (j == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_store_journal_name(object->id, "", name);
    j->fd =
        openat(j->folder->dir_fd, name,
               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    status = (j->fd < 0) ? BT_ERR_IO : begin(j);
    if ((status == BT_OK) && (fsync(j->folder->dir_fd) != 0)) {
        status = BT_ERR_IO;
    }
    if (status != BT_OK) {
        bt_store_journal_close(j);
        return status;
    }
    *journal_p = j;
    return BT_OK;
}

/* Ends the journal after the last whole record. What a kill has torn cannot be
 * told from what the disk has damaged. */
static bt_status_t cut_off(bt_store_journal_t *j, uint64_t index,
                           uint64_t offset)
{
    struct stat info;

    if ((fstat(j->fd, &info) == 0) && ((uint64_t)info.st_size > offset)) {
        BT_LOG_WARN("journal of %s: the last %" PRIu64
                    " bytes are no whole record, and are cut off",
                    j->id, (uint64_t)info.st_size - offset);
    }
    j->index = index;
    j->offset = offset;
    j->is_at_end = true;
    return ((ftruncate(j->fd, (off_t)offset) == 0) &&
            (lseek(j->fd, (off_t)offset, SEEK_SET) == (off_t)offset))
               ? BT_OK
               : BT_ERR_IO;
}

bt_status_t bt_store_journal_next(bt_store_journal_t *j, const void **data_p,
                                  size_t *bytes_p)
{
    const uint64_t index = j->index, offset = j->offset;
    bt_store_chunk_t *chunk = &j->chunk;
    bt_status_t status;

    *data_p = "";
    *bytes_p = 0;
    if (j->is_at_end) {
        return BT_OK;
    }
    bt_strbuf_reset(&j->record);
    do {
        status = bt_store_chunk_read(j->folder, j->bound, j->index, j->fd,
                                     j->offset, chunk);
        if (status == BT_ERR_CORRUPT) {
            return cut_off(j, index, offset);
        }
        if (status != BT_OK) {
            return status;
        }
        bt_strbuf_append(&j->record, chunk->data, chunk->bytes);
        if ((status = bt_strbuf_status(&j->record)) != BT_OK) {
            return status;
        }
        j->index++;
        j->offset += BT_STORE_FRAME_BYTES + chunk->bytes;
    } while (!chunk->is_last);
    if (j->record.len == 0) {
        return cut_off(j, index, offset); /* no record is empty */
    }
    *data_p = j->record.data;
    *bytes_p = j->record.len;
    return BT_OK;
}

bt_status_t bt_store_journal_append(bt_store_journal_t *j, const void *data,
                                    size_t bytes)
{
    bt_store_chunk_t *chunk = &j->chunk;
    const char *at = data;

    BT_ASSERT(j->is_at_end && (bytes > 0));
    while ((bytes > 0) && !j->is_broken) {
        const size_t n =
            (bytes < BT_STORE_CHUNK_BYTES) ? bytes : BT_STORE_CHUNK_BYTES;

        memcpy(chunk->data, at, n);
        chunk->bytes = n;
        chunk->is_last = n == bytes;
        j->is_broken = bt_store_chunk_write(j->folder, j->bound, j->index,
                                            chunk, j->fd) != BT_OK;
        j->index++;
        j->offset += BT_STORE_FRAME_BYTES + n;
        at += n;
        bytes -= n;
    }
    return j->is_broken ? BT_ERR_IO : BT_OK;
}

bt_status_t bt_store_journal_sync(bt_store_journal_t *j)
{
    j->is_broken = j->is_broken || (fdatasync(j->fd) != 0);
    return j->is_broken ? BT_ERR_IO : BT_OK;
}

/* Writes the one record into a new file, and gives it the journal's name. */
static bt_status_t write_instead(const bt_store_journal_t *j,
                                 bt_store_journal_t *other, const void *data,
                                 size_t bytes)
{
    const int dir_fd = j->folder->dir_fd;
    char name[BT_STORE_NAME_BYTES], part[BT_STORE_NAME_BYTES];
    bt_status_t status;

    bt_store_journal_name(j->id, "", name);
    bt_store_journal_name(j->id, BT_STORE_PART, part);
    other->fd =
        openat(dir_fd, part,
               O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (other->fd < 0) {
        return BT_ERR_IO;
    }
    other->is_at_end = true;
    if ((status = begin(other)) == BT_OK &&
        (status = bt_store_journal_append(other, data, bytes)) == BT_OK) {
        status = bt_store_journal_sync(other);
    }
    if ((status == BT_OK) && (renameat(dir_fd, part, dir_fd, name) != 0)) {
        status = BT_ERR_IO;
    }
    if (status != BT_OK) {
        const int reason = errno;

        (void)unlinkat(dir_fd, part, 0);
        errno = reason;
        return status;
    }
    if (fsync(dir_fd) != 0) { /* either of the two is there after a crash */
        BT_LOG_WARN("journal of %s: its folder cannot be synced: %m", j->id);
    }
    return BT_OK;
}

bt_status_t bt_store_journal_replace(bt_store_journal_t *j, const void *data,
                                     size_t bytes)
{
    bt_store_journal_t *other = make(j->folder, j->id);
    const bt_status_t status = (other == NULL)
                                   ? BT_ERR_NO_MEMORY
                                   : write_instead(j, other, data, bytes);

    bt_store_journal_close(other);
    bt_store_journal_close(j);
    return status;
}
