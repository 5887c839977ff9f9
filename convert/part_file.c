/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"

#define COMPARE_BYTES 65536u

bt_status_t bt_part_file_write(bt_part_file_t *file, const void *data, size_t n)
{
    const char *at = data;

    while (n > 0) {
        const ssize_t done = pwrite(file->fd, at, n, (off_t)file->bytes);

        if ((done < 0) && (errno == EINTR)) {
            continue;
        }
        if (done <= 0) {
            return BT_ERR_IO;
        }
        at += done;
        n -= (size_t)done;
        file->bytes += (uint64_t)done;
    }
    return BT_OK;
}

bt_status_t bt_part_file_cut(bt_part_file_t *file, uint64_t bytes)
{
    if (ftruncate(file->fd, (off_t)bytes) != 0) {
        return BT_ERR_IO;
    }
    file->bytes = bytes;
    return BT_OK;
}

/* True when the file begins with these bytes. An unreadable file does not. */
static bool begins_with(int fd, const char *head, size_t n)
{
    char *const piece = bt_calloc(1, COMPARE_BYTES);
    size_t at = 0;

    while ((piece != NULL) && (at < n)) {
        const size_t most = (n - at < COMPARE_BYTES) ? n - at : COMPARE_BYTES;
        const ssize_t got = pread(fd, piece, most, (off_t)at);

        if ((got <= 0) || (memcmp(piece, head + at, (size_t)got) != 0)) {
            break;
        }
        at += (size_t)got;
    }
    bt_free(piece);
    return at == n;
}

static bt_status_t begin(bt_part_file_t *file, const void *head,
                         size_t head_bytes)
{
    struct stat st;
    bt_status_t status;

    if (fstat(file->fd, &st) != 0) {
        return BT_ERR_IO;
    }
    if ((st.st_size >= (off_t)head_bytes) &&
        begins_with(file->fd, head, head_bytes)) {
        file->bytes = (uint64_t)st.st_size;
        return BT_OK;
    }
    status = bt_part_file_cut(file, 0);
    return (status == BT_OK) ? bt_part_file_write(file, head, head_bytes)
                             : status;
}

static bool has_name(const bt_part_file_t *file)
{
    struct stat own;
    struct stat named;

    return (fstat(file->fd, &own) == 0) && (lstat(file->part, &named) == 0) &&
           (own.st_dev == named.st_dev) && (own.st_ino == named.st_ino);
}

bt_status_t bt_part_file_open(const char *name, const void *head,
                              size_t head_bytes, char *why, size_t why_bytes,
                              bt_part_file_t *file)
{
    const size_t n = strlen(name) + sizeof(".part");
    bt_part_file_t made = {.fd = -1};
    bt_status_t status = BT_ERR_NO_MEMORY;

    made.name = bt_strdup(name);
    made.part = bt_calloc(1, n);
    if ((made.name == NULL) || (made.part == NULL)) {
        snprintf(why, why_bytes, "out of memory");
        goto err_close;
    }
    snprintf(made.part, n, "%s.part", name);
    status = BT_ERR_IO;
    made.fd =
        open(made.part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             0666);
    if (made.fd < 0) {
        snprintf(why, why_bytes, "%s: %m", made.part);
        goto err_close;
    }
    /* The process that held the lock may have renamed the file meanwhile: then
     * it is complete. */
    if ((flock(made.fd, LOCK_EX | LOCK_NB) != 0) || !has_name(&made)) {
        status = BT_ERR_BUSY;
        snprintf(why, why_bytes, "%s is being written by another process",
                 made.part);
        goto err_close;
    }
    status = begin(&made, head, head_bytes);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s: %m", made.part);
        goto err_close;
    }
    *file = made;
    return BT_OK;

err_close:
    bt_part_file_close(&made);
    return status;
}

/* The name itself is on disk only when its folder is synced. */
static bt_status_t sync_folder(const char *name)
{
    char *const copy = bt_strdup(name);
    int fd;
    bt_status_t status = BT_ERR_IO;

    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bt_free(copy);
    if (fd >= 0) {
        status = (fsync(fd) == 0) ? BT_OK : BT_ERR_IO;
        close(fd);
    }
    return status;
}

bt_status_t bt_part_file_finish(bt_part_file_t *file)
{
    if ((fsync(file->fd) != 0) || (rename(file->part, file->name) != 0)) {
        return BT_ERR_IO;
    }
    return sync_folder(file->name);
}

void bt_part_file_close(bt_part_file_t *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    bt_free(file->name);
    bt_free(file->part);
    *file = (bt_part_file_t){.fd = -1};
}
