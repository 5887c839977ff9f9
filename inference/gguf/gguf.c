/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "inference/gguf/gguf_priv.h"

#define REASON_BYTES 512

/* Opens one file, without the other parts of a split model. */
static bt_status_t open_bytes(const void *data, size_t bytes, char *why,
                              size_t why_bytes, bt_gguf_t **gguf_p)
{
    bt_status_t status;
    bt_gguf_t *gguf = bt_calloc(1, sizeof(*gguf));

    if (gguf == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    gguf->base = data;
    gguf->bytes = bytes;
    gguf->fd = -1;
    status = bt_gguf_parse(gguf, why, why_bytes);
    if (status != BT_OK) {
        bt_gguf_close(gguf);
        return status;
    }
    *gguf_p = gguf;
    return BT_OK;
}

static bt_status_t open_file(const char *path, char *why, size_t why_bytes,
                             bt_gguf_t **gguf_p)
{
    /* O_NONBLOCK: a FIFO in place of the file must not hang us. */
    BT_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bt_status_t status;
    struct stat st;
    void *map;

    if (fd < 0) {
        const int err = errno;

        snprintf(why, why_bytes, "%s: %m", path);
        return (err == ENOENT) || (err == ENOTDIR) ? BT_ERR_NOT_FOUND
                                                   : BT_ERR_IO;
    }
    if (fstat(fd, &st) != 0) {
        snprintf(why, why_bytes, "%s: %m", path);
        return BT_ERR_IO;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, why_bytes, "%s is not a regular file", path);
        return BT_ERR_IO;
    }
    if (st.st_size == 0) {
        snprintf(why, why_bytes, "%s is empty", path);
        return BT_ERR_BAD_FILE;
    }

    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        snprintf(why, why_bytes, "%s cannot be mapped: %m", path);
        return BT_ERR_IO;
    }
    status = open_bytes(map, (size_t)st.st_size, why, why_bytes, gguf_p);
    if (status != BT_OK) {
        munmap(map, (size_t)st.st_size);
        return status;
    }
    (*gguf_p)->map = map;
    (*gguf_p)->fd = fd;
    fd = -1;
    return BT_OK;
}

static bool is_file(int fd, const struct stat *what)
{
    struct stat st;

    return (fd >= 0) && (fstat(fd, &st) == 0) && (st.st_dev == what->st_dev) &&
           (st.st_ino == what->st_ino);
}

bool bt_gguf_reads_from(const bt_gguf_t *gguf, const char *path)
{
    struct stat what;
    bool is_one;

    if (gguf->made_of != NULL) {
        return bt_gguf_reads_from(gguf->made_of, path);
    }
    if (stat(path, &what) != 0) {
        return false;
    }
    is_one = is_file(gguf->fd, &what);
    for (uint32_t i = 0; i < gguf->n_more; i++) {
        is_one = is_one || is_file(gguf->more[i]->fd, &what);
    }
    for (uint32_t i = 0; i < gguf->n_files; i++) {
        is_one = is_one || is_file(gguf->files[i].fd, &what);
    }
    return is_one;
}

static void close_all(bt_gguf_t **parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_gguf_close(parts[i]);
    }
}

/* @return parts, NULL: no memory */
static bt_gguf_t **new_parts(uint32_t n, char *why, size_t why_bytes)
{
    bt_gguf_t **parts = bt_calloc(n, sizeof(*parts));

    if (parts == NULL) {
        snprintf(why, why_bytes, "out of memory for %u parts", n);
    }
    return parts;
}

/* Joins the parts to one model; on failure they are closed. */
static bt_status_t join(bt_gguf_t **parts, uint32_t n, char *why,
                        size_t why_bytes, bt_gguf_t **gguf_p)
{
    const bt_status_t status = bt_gguf_split_join(parts, n, why, why_bytes);

    if (status != BT_OK) {
        close_all(parts, n);
        return status;
    }
    if (why_bytes > 0) {
        why[0] = '\0';
    }
    *gguf_p = parts[0];
    return BT_OK;
}

bt_status_t bt_gguf_open_memory_parts(const bt_gguf_span_t *bytes, uint32_t n,
                                      char *why, size_t why_bytes,
                                      bt_gguf_t **gguf_p)
{
    BT_CLEANUP(free) bt_gguf_t **parts = NULL;

    if ((n == 0) || (n > BT_GGUF_MAX_PARTS)) {
        snprintf(why, why_bytes, "%u parts; a model has 1 to %u", n,
                 BT_GGUF_MAX_PARTS);
        return BT_ERR_BAD_FILE;
    }
    parts = new_parts(n, why, why_bytes);
    if (parts == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        const bt_status_t status = open_bytes(bytes[i].data, bytes[i].bytes,
                                              why, why_bytes, &parts[i]);

        if (status != BT_OK) {
            close_all(parts, n);
            return status;
        }
    }
    return join(parts, n, why, why_bytes, gguf_p);
}

bt_status_t bt_gguf_open_memory(const void *data, size_t bytes, char *why,
                                size_t why_bytes, bt_gguf_t **gguf_p)
{
    const bt_gguf_span_t whole = {.data = data, .bytes = bytes};

    return bt_gguf_open_memory_parts(&whole, 1, why, why_bytes, gguf_p);
}

/* Opens the other files of a model into parts (n), beside the given one. */
static bt_status_t open_others(const char *path, const bt_gguf_split_t *split,
                               bt_gguf_t **parts, char *why, size_t why_bytes)
{
    size_t stem = 0;
    bt_status_t status = bt_gguf_split_stem(path, split, why, why_bytes, &stem);

    for (uint32_t i = 0; (i < split->count) && (status == BT_OK); i++) {
        char other[PATH_MAX];
        char reason[REASON_BYTES] = "";

        if (i == split->no) {
            continue;
        }
        status = bt_gguf_split_path(path, stem, i, split->count, other,
                                    sizeof(other));
        if (status != BT_OK) {
            snprintf(why, why_bytes, "the path is too long");
            return status;
        }
        status = open_file(other, reason, sizeof(reason), &parts[i]);
        if (status != BT_OK) {
            snprintf(why, why_bytes, "part %u of %u: %s", i + 1, split->count,
                     reason);
        }
    }
    return status;
}

bt_status_t bt_gguf_open(const char *path, char *why, size_t why_bytes,
                         bt_gguf_t **gguf_p)
{
    BT_CLEANUP(free) bt_gguf_t **parts = NULL;
    bt_gguf_split_t split = {.count = 1};
    bt_gguf_t *gguf = NULL;
    bt_status_t status = open_file(path, why, why_bytes, &gguf);

    if (status != BT_OK) {
        return status;
    }
    status = bt_gguf_split_read(gguf, why, why_bytes, &split);
    if (status != BT_OK) {
        bt_gguf_close(gguf);
        return status;
    }
    parts = new_parts(split.count, why, why_bytes);
    if (parts == NULL) {
        bt_gguf_close(gguf);
        return BT_ERR_NO_MEMORY;
    }
    parts[split.no] = gguf;
    if (split.count > 1) {
        status = open_others(path, &split, parts, why, why_bytes);
        if (status != BT_OK) {
            close_all(parts, split.count);
            return status;
        }
    }
    return join(parts, split.count, why, why_bytes, gguf_p);
}

void bt_gguf_close(bt_gguf_t *gguf)
{
    if (gguf == NULL) {
        return;
    }
    for (uint32_t i = 0; i < gguf->n_more; i++) {
        bt_gguf_close(gguf->more[i]);
    }
    bt_free(gguf->more);
    for (uint64_t i = 0; (gguf->kvs != NULL) && (i < gguf->n_kvs); i++) {
        bt_free(gguf->kvs[i].str_offsets);
    }
    bt_free(gguf->kvs);
    bt_free(gguf->by_name);
    bt_free(gguf->tensors);
    if (gguf->map != NULL) {
        munmap(gguf->map, gguf->bytes);
    }
    if (gguf->fd >= 0) {
        close(gguf->fd);
    }
    if (gguf->free_owner != NULL) {
        gguf->free_owner(gguf->owner);
    }
    bt_free(gguf);
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t later(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static bt_status_t files_stamp(const bt_gguf_t *gguf, bt_gguf_stamp_t *stamp_p)
{
    bt_gguf_stamp_t stamp = {.bytes = gguf->data_start}; /* the metadata */
    bt_hash128_t inodes = {0};

    for (uint32_t i = 0; i < gguf->n_files; i++) {
        struct stat st;
        uint64_t inode;

        if (gguf->files[i].fd < 0) {
            return BT_ERR_NOT_FOUND;
        }
        if (fstat(gguf->files[i].fd, &st) != 0) {
            return BT_ERR_IO;
        }
        inode = st.st_ino;
        bt_gguf_chain(&inodes, &inode, sizeof(inode));
        stamp.bytes += (uint64_t)st.st_size;
        stamp.mtime_ns = later(stamp.mtime_ns, ns_of(st.st_mtim));
        stamp.ctime_ns = later(stamp.ctime_ns, ns_of(st.st_ctim));
    }
    stamp.inode = inodes.lo;
    *stamp_p = stamp;
    return BT_OK;
}

/* Reads the stamp of one file. */
static bt_status_t stamp_file(const bt_gguf_t *gguf, bt_gguf_stamp_t *stamp_p)
{
    struct stat st;

    if (gguf->files != NULL) {
        return files_stamp(gguf, stamp_p);
    }
    if (gguf->fd < 0) {
        return BT_ERR_NOT_FOUND;
    }
    if (fstat(gguf->fd, &st) != 0) {
        return BT_ERR_IO;
    }
    *stamp_p = (bt_gguf_stamp_t){
        .inode = st.st_ino,
        .bytes = (uint64_t)st.st_size,
        .mtime_ns = ns_of(st.st_mtim),
        .ctime_ns = ns_of(st.st_ctim),
    };
    return BT_OK;
}

bt_status_t bt_gguf_stamp(const bt_gguf_t *gguf, bt_gguf_stamp_t *stamp_p)
{
    bt_gguf_stamp_t all = {0};
    bt_status_t status;

    if (gguf->made_of != NULL) {
        return bt_gguf_stamp(gguf->made_of, stamp_p);
    }
    if (gguf->files != NULL) {
        return files_stamp(gguf, stamp_p);
    }
    status = stamp_file(gguf, &all);
    for (uint32_t i = 0; (i < gguf->n_more) && (status == BT_OK); i++) {
        bt_gguf_stamp_t one = {0};
        bt_gguf_stamp_t both[2] = {all, {0}};

        status = stamp_file(gguf->more[i], &one);
        both[1] = one;
        all.inode = bt_hash64(both, sizeof(both), 0);
        all.bytes += one.bytes;
        all.mtime_ns =
            (one.mtime_ns > all.mtime_ns) ? one.mtime_ns : all.mtime_ns;
        all.ctime_ns =
            (one.ctime_ns > all.ctime_ns) ? one.ctime_ns : all.ctime_ns;
    }
    if (status != BT_OK) {
        return status;
    }
    *stamp_p = all;
    return BT_OK;
}
