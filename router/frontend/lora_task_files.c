/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/lora_task_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/log.h"

#define MAGIC      UINT64_C(0x31304b5341544c42) /* "BLTASK01" */
#define PATH_BYTES 4096
#define TAIL       ".lora"
#define RANDOM     "XXXXXX"
#define PART       TAIL "." /* begins what mkstemp() appends */
/* Age at which a file that is not whole is one of a router that was killed. */
#define STALE_S 600

typedef struct head {
    uint64_t magic;
    uint64_t hash_lo, hash_hi, digest_lo, digest_hi;
    uint64_t bytes;
} head_t;

bt_status_t bt_lora_files_open(const char *dir)
{
    struct stat st;

    if ((mkdir(dir, 0700) != 0) && (errno != EEXIST)) {
        BT_LOG_ERROR("--lora-task-dir: %s cannot be created: %m", dir);
        return BT_ERR_IO;
    }
    if ((stat(dir, &st) != 0) || !S_ISDIR(st.st_mode)) {
        BT_LOG_ERROR("--lora-task-dir: %s is no folder", dir);
        return BT_ERR_IO;
    }
    if ((st.st_uid != geteuid()) || ((st.st_mode & 0077) != 0)) {
        BT_LOG_ERROR("--lora-task-dir: %s is another user's, or open to others "
                     "(chmod 700)",
                     dir);
        return BT_ERR_UNAUTHORIZED;
    }
    return BT_OK;
}

static void path_of(const char *dir, bt_hash128_t key, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%.3900s/%016" PRIx64 "%016" PRIx64 TAIL, dir,
             key.hi, key.lo);
}

/* @return BT_ERR_NOT_FOUND: it is not whole, or no such file */
static bt_status_t read_head(int fd, bt_lora_file_t *file)
{
    struct stat st;
    head_t head;

    if ((fstat(fd, &st) != 0) || !S_ISREG(st.st_mode) ||
        (bt_pread_all(fd, 0, &head, sizeof(head)) != BT_OK) ||
        (head.magic != MAGIC) || (head.bytes == 0) ||
        (head.bytes != (uint64_t)st.st_size - sizeof(head))) {
        return BT_ERR_NOT_FOUND;
    }
    *file = (bt_lora_file_t){.hash = {head.hash_lo, head.hash_hi},
                             .digest = {head.digest_lo, head.digest_hi},
                             .bytes = (size_t)head.bytes};
    return BT_OK;
}

bt_status_t bt_lora_file_read(const char *dir, bt_hash128_t key,
                              const bt_hash128_t *known, bt_lora_file_t *file_p)
{
    char path[PATH_BYTES];
    bt_lora_file_t file = {.bytes = 0};
    bt_status_t status;
    int fd;

    path_of(dir, key, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return (errno == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    status = read_head(fd, &file);
    if ((status == BT_OK) &&
        ((known == NULL) || !bt_hash128_equal(*known, file.hash))) {
        file.content = bt_calloc(1, file.bytes);
        if (file.content == NULL) {
            status = BT_ERR_NO_MEMORY;
        } else if (bt_pread_all(fd, sizeof(head_t), file.content, file.bytes) !=
                   BT_OK) {
            bt_free(file.content);
            status = BT_ERR_IO;
        }
    }
    if (status == BT_OK) {
        (void)futimens(fd, NULL); /* now */
        *file_p = file;
    } else if (status == BT_ERR_NOT_FOUND) {
        (void)unlink(path); /* damaged: it would keep its place */
    }
    close(fd);
    return status;
}

/* Removes the file that was used longest ago. @return false: there is none */
static bool remove_oldest(int folder, const char *name)
{
    return (name[0] != '\0') && (unlinkat(folder, name, 0) == 0);
}

/* Removes what a killed router was writing. */
static void remove_stale(int folder, const char *name, const struct stat *st)
{
    const char *const part = strstr(name, PART);

    if ((part != NULL) && (strlen(part) == strlen(PART) + strlen(RANDOM)) &&
        (st->st_mtim.tv_sec + STALE_S < time(NULL))) {
        (void)unlinkat(folder, name, 0);
    }
}

static bool ends_in_tail(const char *name)
{
    const size_t n = strlen(name);

    return (n > strlen(TAIL)) && (strcmp(name + n - strlen(TAIL), TAIL) == 0);
}

/* Sums up the files, and finds the one that was used longest ago. */
static uint64_t look_around(int folder, char oldest[NAME_MAX + 1])
{
    const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = (copy >= 0) ? fdopendir(copy) : NULL;
    struct timespec least = {0};
    const struct dirent *entry;
    uint64_t bytes = 0;

    oldest[0] = '\0';
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        struct stat st;

        if (fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (!ends_in_tail(entry->d_name)) {
            remove_stale(folder, entry->d_name, &st);
            continue;
        }
        bytes += (uint64_t)st.st_size;
        if ((oldest[0] == '\0') || (st.st_mtim.tv_sec < least.tv_sec) ||
            ((st.st_mtim.tv_sec == least.tv_sec) &&
             (st.st_mtim.tv_nsec < least.tv_nsec))) {
            least = st.st_mtim;
            snprintf(oldest, NAME_MAX + 1, "%s", entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    } else if (copy >= 0) {
        close(copy);
    }
    return bytes;
}

static bt_status_t write_file(int fd, const bt_lora_file_t *file)
{
    const head_t head = {.magic = MAGIC,
                         .hash_lo = file->hash.lo,
                         .hash_hi = file->hash.hi,
                         .digest_lo = file->digest.lo,
                         .digest_hi = file->digest.hi,
                         .bytes = file->bytes};

    bt_status_t status = bt_write_all(fd, &head, sizeof(head));

    if (status == BT_OK) {
        status = bt_write_all(fd, file->content, file->bytes);
    }
    return ((status == BT_OK) && (fsync(fd) != 0)) ? BT_ERR_IO : status;
}

bt_status_t bt_lora_file_write(const char *dir, bt_hash128_t key,
                               const bt_lora_file_t *file, uint64_t limit)
{
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[PATH_BYTES];
    char part[PATH_BYTES];
    char oldest[NAME_MAX + 1];
    bt_status_t status = BT_ERR_IO;
    int fd;

    if ((folder < 0) || (file->bytes > limit)) {
        if (folder >= 0) {
            close(folder);
        }
        return BT_ERR_IO;
    }
    while ((look_around(folder, oldest) + file->bytes > limit) &&
           remove_oldest(folder, oldest)) {
        /* The next one. */
    }
    close(folder);
    path_of(dir, key, path);
    snprintf(part, sizeof(part), "%.4000s." RANDOM, path);
    fd = mkstemp(part); /* mode 0600 */
    if (fd < 0) {
        return BT_ERR_IO;
    }
    status = write_file(fd, file);
    if (close(fd) != 0) {
        status = BT_ERR_IO;
    }
    if ((status == BT_OK) && (link(part, path) != 0)) {
        status = (errno == EEXIST) ? BT_ERR_EXISTS : BT_ERR_IO;
    }
    (void)unlink(part);
    return status;
}
