/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/packed/packed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

#define TABLE_LIMIT ((size_t)1 << 30)

bt_status_t bt_packed_writer_init(bt_packed_writer_t *writer, int fd)
{
    memset(writer, 0, sizeof(*writer));
    writer->fd = fd;
    writer->chunk = bt_calloc_aligned(BT_PACKED_CHUNK_BYTES, 1);
    if (writer->chunk == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    writer->fill = BT_PACKED_DATA_AT; /* the head comes last */
    bt_strbuf_init(&writer->entries, TABLE_LIMIT);
    bt_strbuf_init(&writer->sums, TABLE_LIMIT);
    bt_strbuf_init(&writer->names, TABLE_LIMIT);
    return BT_OK;
}

void bt_packed_writer_fini(bt_packed_writer_t *writer)
{
    bt_free(writer->chunk);
    bt_strbuf_fini(&writer->entries);
    bt_strbuf_fini(&writer->sums);
    bt_strbuf_fini(&writer->names);
}

/* Beyond the file size limit write() would end the process by a signal. */
static bool above_limit(uint64_t end)
{
    struct rlimit limit;

    return (getrlimit(RLIMIT_FSIZE, &limit) == 0) &&
           (limit.rlim_cur != RLIM_INFINITY) && (end > limit.rlim_cur);
}

bt_status_t bt_packed_writer_reserve(bt_packed_writer_t *writer, uint64_t bytes)
{
    if (above_limit(bytes)) {
        writer->error = EFBIG;
        return BT_ERR_IO;
    }
    /* Not every file system supports this; a lack of space then shows when
     * writing. */
    if ((bytes > 0) &&
        (fallocate(writer->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0) &&
        ((errno == ENOSPC) || (errno == EDQUOT) || (errno == EFBIG))) {
        writer->error = errno;
        return BT_ERR_IO;
    }
    return BT_OK;
}

static bt_status_t write_at(bt_packed_writer_t *writer, const void *data,
                            size_t n, uint64_t at)
{
    const uint8_t *from = data;

    if (above_limit(at + n)) {
        writer->error = EFBIG;
        return BT_ERR_IO;
    }
    while (n > 0) {
        const ssize_t done = pwrite(writer->fd, from, n, (off_t)at);

        if ((done < 0) && (errno == EINTR)) {
            continue;
        }
        if (done <= 0) {
            writer->error = (done < 0) ? errno : ENOSPC;
            return BT_ERR_IO;
        }
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return BT_OK;
}

static bt_status_t flush(bt_packed_writer_t *writer)
{
    const size_t skip = (writer->chunk_at == 0) ? BT_PACKED_DATA_AT : 0;
    const bt_hash128_t sum =
        bt_hash128(writer->chunk + skip, writer->fill - skip, 0);
    bt_status_t status =
        write_at(writer, writer->chunk, writer->fill, writer->chunk_at);

    if (status != BT_OK) {
        return status;
    }
    bt_packed_writer_step(writer);
    bt_strbuf_append(&writer->sums, &sum, sizeof(sum));
    writer->chunk_at += writer->fill;
    writer->fill = 0;
    return bt_strbuf_status(&writer->sums);
}

/* Appends bytes, or zeros for NULL. */
static bt_status_t put(bt_packed_writer_t *writer, const uint8_t *data,
                       size_t n)
{
    while (n > 0) {
        const size_t n_free = BT_PACKED_CHUNK_BYTES - writer->fill;
        const size_t part = (n < n_free) ? n : n_free;

        if (data != NULL) {
            memcpy(writer->chunk + writer->fill, data, part);
            data += part;
        } else {
            memset(writer->chunk + writer->fill, 0, part);
        }
        writer->fill += part;
        n -= part;
        if (writer->fill == BT_PACKED_CHUNK_BYTES) {
            const bt_status_t status = flush(writer);

            if (status != BT_OK) {
                return status;
            }
        }
    }
    return BT_OK;
}

static bt_status_t align(bt_packed_writer_t *writer)
{
    const size_t over = writer->fill % BT_PACKED_ALIGN;

    return (over == 0) ? BT_OK : put(writer, NULL, BT_PACKED_ALIGN - over);
}

bt_status_t bt_packed_writer_add(bt_packed_writer_t *writer, const char *name,
                                 uint32_t type, uint32_t n_out, uint32_t n_in,
                                 const void *data, size_t bytes)
{
    const size_t name_len = strlen(name);
    bt_packed_entry_t entry = {.bytes = bytes,
                               .type = type,
                               .n_out = n_out,
                               .n_in = n_in,
                               .name_len = (uint32_t)name_len};
    bt_status_t status;

    if ((bytes == 0) || (name_len == 0) || (name_len > BT_PACKED_MAX_NAME)) {
        return BT_ERR_INVALID_PARAM;
    }
    status = align(writer);
    if (status != BT_OK) {
        return status;
    }
    entry.at = writer->chunk_at + writer->fill;
    entry.name_at = (uint32_t)writer->names.len;
    bt_strbuf_append(&writer->entries, &entry, sizeof(entry));
    bt_strbuf_append(&writer->names, name, name_len);
    if ((bt_strbuf_status(&writer->entries) != BT_OK) ||
        (bt_strbuf_status(&writer->names) != BT_OK)) {
        return BT_ERR_NO_MEMORY;
    }
    writer->n_pieces++;
    return put(writer, data, bytes);
}

bt_status_t bt_packed_writer_finish(bt_packed_writer_t *writer,
                                    const bt_packed_key_t *key,
                                    const bt_packed_origin_t *origin)
{
    bt_packed_head_t head = {.magic = BT_PACKED_MAGIC,
                             .format = BT_PACKED_FORMAT,
                             .n_pieces = writer->n_pieces,
                             .key = *key,
                             .origin = *origin};
    bt_strbuf_t *const table = &writer->entries;
    bt_status_t status = align(writer);

    if ((status == BT_OK) && (writer->fill > 0)) {
        status = flush(writer);
    }
    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_append(table, writer->sums.data, writer->sums.len);
    if (writer->names.len > 0) {
        bt_strbuf_append(table, writer->names.data, writer->names.len);
    }
    status = bt_strbuf_status(table);
    if (status != BT_OK) {
        return status;
    }
    head.table_at = writer->chunk_at;
    head.table_bytes = table->len;
    head.table_sum = bt_hash128(table->data, table->len, 0);
    status = write_at(writer, table->data, table->len, head.table_at);
    if (status != BT_OK) {
        return status;
    }
    bt_packed_writer_step(writer);
    memset(writer->chunk, 0, BT_PACKED_DATA_AT);
    memcpy(writer->chunk, &head, sizeof(head));
    head.head_sum = bt_packed_head_sum(writer->chunk);
    memcpy(writer->chunk, &head, sizeof(head));
    return write_at(writer, writer->chunk, BT_PACKED_DATA_AT, 0);
}

bt_status_t bt_packed_dir(const char *option, char *dir, size_t dir_bytes)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *below = "/baton/weights";
    int n;

    if (strcmp(option, "off") == 0) {
        base = "";
        below = "";
    } else if (strcmp(option, "auto") != 0) {
        base = option;
        below = "";
    } else if ((base == NULL) || (base[0] != '/')) {
        base = getenv("HOME");
        below = "/.cache/baton/weights";
        if ((base == NULL) || (base[0] != '/')) {
            return BT_ERR_NOT_FOUND;
        }
    }
    n = snprintf(dir, dir_bytes, "%s%s", base, below);
    return ((n >= 0) && ((size_t)n < dir_bytes)) ? BT_OK : BT_ERR_TOO_LARGE;
}

int bt_packed_dir_make(const char *dir)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof(path), "%s", dir);

    if ((n <= 0) || ((size_t)n >= sizeof(path))) {
        return (n <= 0) ? ENOENT : ENAMETOOLONG;
    }
    for (char *c = path + 1;; c++) {
        const char was = *c;

        if ((was != '/') && (was != '\0')) {
            continue;
        }
        *c = '\0';
        /* An existing folder may be in one that is not writable. */
        if ((access(path, F_OK) != 0) && (mkdir(path, 0700) != 0) &&
            (errno != EEXIST)) {
            return errno;
        }
        if (was == '\0') {
            return 0;
        }
        *c = was;
    }
}

static int is_ours(const char *name)
{
    static const char *const ends[] = {".packed", ".packed.new"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const size_t n_end = strlen(ends[i]);

        if ((n > n_end) && (strcmp(name + n - n_end, ends[i]) == 0)) {
            return 1;
        }
    }
    return 0;
}

void bt_packed_dir_clear(const char *dir, const char *keep, int64_t now_s)
{
    DIR *const stream = opendir(dir);
    const struct dirent *entry;
    struct stat st;

    if (stream == NULL) {
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (!is_ours(entry->d_name) || (strcmp(entry->d_name, keep) == 0) ||
            (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) !=
             0) ||
            !S_ISREG(st.st_mode) ||
            (st.st_mtim.tv_sec > now_s - BT_PACKED_UNUSED_S)) {
            continue;
        }
        if (unlinkat(dirfd(stream), entry->d_name, 0) == 0) {
            BT_LOG_INFO("packed weights %s/%s removed: not used for 30 days",
                        dir, entry->d_name);
        }
    }
    closedir(stream);
}

/* ---- temporary files ---- */

#define MARK_END ".temporary"

static bool mark_path(const char *dir, const char *name, char path[PATH_MAX])
{
    const int n = snprintf(path, PATH_MAX, "%s/.%s" MARK_END, dir, name);

    return (n >= 0) && (n < PATH_MAX);
}

int bt_packed_mark(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    if (!mark_path(dir, name, path)) {
        return -1;
    }
    for (int round = 0; round < 100; round++) {
        const int fd =
            open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0) {
            return -1;
        }
        /* Another process may be removing it just now. */
        if ((flock(fd, LOCK_SH | LOCK_NB) == 0) && (fstat(fd, &st) == 0) &&
            (st.st_nlink > 0)) {
            return fd;
        }
        close(fd);
    }
    return -1;
}

void bt_packed_unmark(const char *dir, const char *name, int fd)
{
    char path[PATH_MAX];

    if (fd < 0) {
        return;
    }
    if (mark_path(dir, name, path) && (flock(fd, LOCK_EX | LOCK_NB) == 0)) {
        (void)unlink(path); /* this was its last user */
    }
    close(fd);
}

void bt_packed_keep(const char *dir, const char *name)
{
    char path[PATH_MAX];

    if (mark_path(dir, name, path)) {
        (void)unlink(path);
    }
}

/* Returns the length of the name that a mark is of; 0: it is no mark. */
static size_t marked_length(const char *mark)
{
    const size_t n = strlen(mark);
    const size_t n_end = strlen(MARK_END);

    return ((mark[0] == '.') && (n > n_end + 1) &&
            (strcmp(mark + n - n_end, MARK_END) == 0))
               ? n - n_end - 1
               : 0;
}

static void sweep(int dir_fd, const char *dir, const char *mark)
{
    BT_CLEANUP(close)
    const int fd =
        openat(dir_fd, mark, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    const int n = (int)marked_length(mark);
    char name[NAME_MAX + 1];

    if ((fd < 0) || (flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        return;
    }
    snprintf(name, sizeof(name), "%.*s.new", n, mark + 1);
    if (is_ours(name)) { /* what was not whole yet */
        (void)unlinkat(dir_fd, name, 0);
    }
    snprintf(name, sizeof(name), "%.*s", n, mark + 1);
    if (is_ours(name) && (unlinkat(dir_fd, name, 0) == 0)) {
        BT_LOG_INFO("packed weights %s/%s removed: a killed process left them",
                    dir, name);
    }
    (void)unlinkat(dir_fd, mark, 0);
}

void bt_packed_dir_sweep(const char *dir)
{
    DIR *const stream = opendir(dir);
    const struct dirent *entry;

    if (stream == NULL) {
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (marked_length(entry->d_name) > 0) {
            sweep(dirfd(stream), dir, entry->d_name);
        }
    }
    closedir(stream);
}
