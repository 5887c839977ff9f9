/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/cleanup.h"
#include "inference/gguf/gguf_priv.h"

bt_status_t bt_gguf_open_memory(const void *data, size_t bytes, char *why,
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
    if (why_bytes > 0) {
        why[0] = '\0';
    }
    *gguf_p = gguf;
    return BT_OK;
}

bt_status_t bt_gguf_open(const char *path, char *why, size_t why_bytes,
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
    status =
        bt_gguf_open_memory(map, (size_t)st.st_size, why, why_bytes, gguf_p);
    if (status != BT_OK) {
        munmap(map, (size_t)st.st_size);
        return status;
    }
    (*gguf_p)->map = map;
    (*gguf_p)->fd = fd;
    fd = -1;
    return BT_OK;
}

void bt_gguf_close(bt_gguf_t *gguf)
{
    if (gguf == NULL) {
        return;
    }
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

bt_status_t bt_gguf_files_stamp(const bt_gguf_t *gguf, bt_gguf_stamp_t *stamp_p)
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

bt_status_t bt_gguf_stamp(const bt_gguf_t *gguf, bt_gguf_stamp_t *stamp_p)
{
    struct stat st;

    if (gguf->files != NULL) {
        return bt_gguf_files_stamp(gguf, stamp_p);
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

bt_hash128_t bt_gguf_content(const bt_gguf_t *gguf)
{
    return (gguf->files != NULL) ? bt_gguf_files_content(gguf)
                                 : bt_hash128(gguf->base, gguf->bytes, 0);
}
