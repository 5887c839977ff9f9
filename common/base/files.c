/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"

#define LOCK     "lock"
#define LOCK_NEW "lock.new"
#define PREFIX   "baton-"

#define MARK_BYTES   96
#define PREFIX_BYTES (sizeof(PREFIX) - 1)
#define NAME_BYTES   (PREFIX_BYTES + 6)
#define N_TRIES      100

#define MODE_NEW 01700 /* made, not locked yet */
#define MODE_OWN 0700

/* Content of the lock: identifies this very directory. A copy, or a folder
 * with such a name that another program made, has another one or none.
 * @return false: no directory */
static bool mark_of(int dir, char mark[MARK_BYTES])
{
    struct stat info;

    if ((fstat(dir, &info) != 0) || !S_ISDIR(info.st_mode)) {
        return false;
    }
    snprintf(mark, MARK_BYTES, "run directory of baton-launch: %ju %ju\n",
             (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    return true;
}

/* The name `lock` appears with the lock taken: no process finds it free
 * while this one lives. @return the descriptor; -1, with errno: ENOENT,
 * another process that starts took the directory for a dead one's; others:
 * locks are unavailable */
static int take_lock(int dir)
{
    int fd = openat(dir, LOCK_NEW, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat info;
    char mark[MARK_BYTES];

    if (fd < 0) {
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        errno = (errno == EWOULDBLOCK) ? ENOENT : errno;
        goto err;
    }
    if ((fstat(fd, &info) == 0) && (info.st_nlink == 0)) {
        errno = ENOENT;
        goto err;
    }
    if (!mark_of(dir, mark) ||
        (write(fd, mark, strlen(mark)) != (ssize_t)strlen(mark)) ||
        (renameat(dir, LOCK_NEW, dir, LOCK) != 0)) {
        goto err;
    }
    return fd;

err : {
    const int why = errno;

    close(fd);
    errno = why;
    return -1;
}
}

/* Six unpredictable letters or digits. */
static bool name_make(char name[NAME_BYTES + 1])
{
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char drawn[NAME_BYTES - PREFIX_BYTES];

    if (getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn)) {
        return false;
    }
    memcpy(name, PREFIX, PREFIX_BYTES);
    for (size_t i = 0; i < sizeof(drawn); i++) {
        name[PREFIX_BYTES + i] = signs[drawn[i] % (sizeof(signs) - 1)];
    }
    name[NAME_BYTES] = '\0';
    return true;
}

/* Makes and locks it; the lock and the directory stay open.
 * @retval BT_INPROGRESS  that name is taken, or was taken away: once more */
static bt_status_t make(bt_own_dir_t *made)
{
    if (mkdir(made->path, MODE_NEW) != 0) {
        return (errno == EEXIST) ? BT_INPROGRESS : BT_ERR_IO;
    }
    made->dir_fd =
        open(made->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made->dir_fd < 0) {
        return (errno == ENOENT) ? BT_INPROGRESS : BT_ERR_IO;
    }
    made->lock_fd = take_lock(made->dir_fd);
    if ((made->lock_fd < 0) && (errno == ENOENT)) {
        close(made->dir_fd);
        (void)rmdir(made->path);
        return BT_INPROGRESS;
    }
    /* Without a lock only this process removes it. */
    (void)fchmod(made->dir_fd, MODE_OWN);
    (void)flock(made->dir_fd, LOCK_SH | LOCK_NB);
    return BT_OK;
}

static bt_status_t create_once(const char *parent, bt_own_dir_t *made)
{
    char name[NAME_BYTES + 1];
    int n;

    if (!name_make(name)) {
        return BT_ERR_IO;
    }
    n = snprintf(made->path, sizeof(made->path), "%s/%s", parent, name);
    if ((n < 0) || ((size_t)n >= sizeof(made->path))) {
        return BT_ERR_TOO_LARGE;
    }
    return make(made);
}

bt_status_t bt_own_dir_create(const char *parent, bt_own_dir_t *dir)
{
    bt_own_dir_t made = {.lock_fd = -1, .dir_fd = -1};
    bt_status_t status = BT_INPROGRESS;

    for (int i = 0; (i < N_TRIES) && (status == BT_INPROGRESS); i++) {
        status = create_once(parent, &made);
    }
    if (status == BT_OK) {
        *dir = made;
    }
    return (status == BT_INPROGRESS) ? BT_ERR_IO : status;
}

/* @return whether @a path names the file that is open as @a fd */
static bool is_at(int fd, int parent, const char *path)
{
    struct stat open_one;
    struct stat named;

    return (fstat(fd, &open_one) == 0) &&
           (fstatat(parent, path, &named, AT_SYMLINK_NOFOLLOW) == 0) &&
           (open_one.st_dev == named.st_dev) &&
           (open_one.st_ino == named.st_ino);
}

bool bt_own_dir_is_whole(const bt_own_dir_t *dir)
{
    return is_at(dir->dir_fd, AT_FDCWD, dir->path) &&
           ((dir->lock_fd < 0) || is_at(dir->lock_fd, dir->dir_fd, LOCK));
}

static void close_both(bt_own_dir_t *dir)
{
    if (dir->lock_fd >= 0) {
        close(dir->lock_fd);
    }
    if (dir->dir_fd >= 0) {
        close(dir->dir_fd);
    }
    dir->lock_fd = dir->dir_fd = -1;
}

bt_status_t bt_own_dir_restore(bt_own_dir_t *dir)
{
    bt_own_dir_t made = {.lock_fd = -1, .dir_fd = -1};
    int lock;

    if (is_at(dir->dir_fd, AT_FDCWD, dir->path)) {
        lock = take_lock(dir->dir_fd);
        if (lock < 0) {
            return BT_ERR_IO;
        }
        if (dir->lock_fd >= 0) {
            close(dir->lock_fd);
        }
        dir->lock_fd = lock;
        return BT_OK;
    }
    memcpy(made.path, dir->path, sizeof(made.path));
    if (make(&made) != BT_OK) {
        return BT_ERR_IO;
    }
    close_both(dir);
    *dir = made;
    return BT_OK;
}

/* Is it a directory of ours with such a name? No link: another user could have
 * put it there. */
static bool is_named(int parent, const char *name)
{
    struct stat info;

    return (strlen(name) == NAME_BYTES) &&
           (strncmp(name, PREFIX, PREFIX_BYTES) == 0) &&
           (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0) &&
           S_ISDIR(info.st_mode) && (info.st_uid == geteuid());
}

void bt_own_dir_each(const char *parent, bt_own_dir_fn fn, void *arg)
{
    BT_CLEANUP(closedir) DIR *const dir = opendir(parent);
    const struct dirent *entry;
    char path[BT_OWN_DIR_BYTES];

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (is_named(dirfd(dir), entry->d_name) &&
            ((size_t)snprintf(path, sizeof(path), "%s/%s", parent,
                              entry->d_name) < sizeof(path))) {
            fn(arg, path);
        }
    }
}

/* ---- removing: by name and kind, never whatever is there ---- */

/* Sockets, and the files that we make: some in the outer directory alone. */
static bool is_ours(bool is_top, const char *name, const struct stat *info)
{
    static const struct {
        const char *name;
        bool is_top;
    } files[] = {{LOCK_NEW, false}, {"key", true}, {"cores", true}};

    for (size_t i = 0; S_ISREG(info->st_mode) && (i < BT_ARRAY_LEN(files));
         i++) {
        if ((is_top || !files[i].is_top) &&
            (strcmp(name, files[i].name) == 0)) {
            return true;
        }
    }
    return S_ISSOCK(info->st_mode);
}

/* @return foreign entries, which stay; one has its name in kept */
static unsigned remove_entries(int dir, bool is_top, char kept[NAME_MAX]);

/* Removes a directory that a process made for its sockets, common/link. */
static bool remove_socket_dir(int parent, const char *name)
{
    BT_CLEANUP(close)
    const int dir =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char kept[NAME_MAX];

    if ((dir < 0) || (remove_entries(dir, false, kept) > 0)) {
        return false;
    }
    (void)unlinkat(dir, LOCK, 0);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static bool remove_entry(int dir, const char *name, bool is_top)
{
    struct stat info;

    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    if (is_top && is_named(dir, name)) {
        return remove_socket_dir(dir, name);
    }
    return is_ours(is_top, name, &info) && (unlinkat(dir, name, 0) == 0);
}

/* The lock is removed last, so that an interrupted removal can be resumed. */
static bool is_skipped(const char *name)
{
    return (strcmp(name, ".") == 0) || (strcmp(name, "..") == 0) ||
           (strcmp(name, LOCK) == 0);
}

static unsigned remove_entries(int dir, bool is_top, char kept[NAME_MAX])
{
    const int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BT_CLEANUP(closedir)
    DIR *const list = (again >= 0) ? fdopendir(again) : NULL;
    const struct dirent *entry;
    unsigned n_kept = 0;

    if (list == NULL) {
        if (again >= 0) {
            close(again);
        }
        return 0; /* where something is in it, it cannot be removed */
    }
    while ((entry = readdir(list)) != NULL) {
        if (!is_skipped(entry->d_name) &&
            !remove_entry(dir, entry->d_name, is_top)) {
            snprintf(kept, NAME_MAX, "%.*s", NAME_MAX - 1, entry->d_name);
            n_kept++;
        }
    }
    return n_kept;
}

/* Unlocks the directory, which can still be identified by its mode. */
static void unlock(int dir)
{
    (void)fchmod(dir, MODE_NEW);
    (void)unlinkat(dir, LOCK, 0);
}

/* @return true: all of it is removed */
static bool remove_at(int dir, const char *path)
{
    char kept[NAME_MAX] = "";
    const unsigned n_kept = remove_entries(dir, true, kept);

    if (n_kept > 0) {
        (void)unlinkat(dir, LOCK, 0);
        BT_LOG_WARN("%s stays: %u of its entries are not Baton's, such as %s",
                    path, n_kept, kept);
        return false;
    }
    unlock(dir);
    if (rmdir(path) != 0) {
        BT_LOG_WARN("cannot remove %s: %m", path);
        return false;
    }
    return true;
}

void bt_own_dir_remove(bt_own_dir_t *dir)
{
    if (is_at(dir->dir_fd, AT_FDCWD, dir->path)) {
        (void)remove_at(dir->dir_fd, dir->path);
    }
    close_both(dir);
}

/* True when the directory matches its lock, whose process is dead. Any
 * process that gets the lock may remove it. */
static bool is_dead(int dir, int lock)
{
    char mark[MARK_BYTES];
    char found[MARK_BYTES] = "";
    struct stat info;

    return mark_of(dir, mark) &&
           (read(lock, found, sizeof(found) - 1) == (ssize_t)strlen(mark)) &&
           (strcmp(found, mark) == 0) &&
           (flock(lock, LOCK_EX | LOCK_NB) == 0) && (fstat(lock, &info) == 0) &&
           (info.st_nlink > 0);
}

/* True when a process was killed while it made the directory: no more is in it
 * than a lock that is not named so yet. */
static bool is_half_made(int dir)
{
    struct stat info;
    BT_CLEANUP(close) int lock = -1;

    if ((fstat(dir, &info) != 0) || ((info.st_mode & 07777) != MODE_NEW)) {
        return false;
    }
    lock = openat(dir, LOCK_NEW, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) {
        return errno == ENOENT;
    }
    return (flock(lock, LOCK_EX | LOCK_NB) == 0) &&
           (unlinkat(dir, LOCK_NEW, 0) == 0);
}

/* A bt_own_dir_fn. */
static void remove_if_dead(void *arg, const char *path)
{
    BT_CLEANUP(close)
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    BT_CLEANUP(close)
    const int lock =
        (dir >= 0) ? openat(dir, LOCK, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool gone = false;

    (void)arg;
    if (lock >= 0) {
        gone = is_dead(dir, lock) && remove_at(dir, path);
    } else if ((dir >= 0) && (errno == ENOENT) && is_half_made(dir)) {
        gone = rmdir(path) == 0; /* only where it is empty */
    }
    if (gone) {
        BT_LOG_INFO("removed %s, left by a dead process", path);
    }
}

void bt_own_dir_remove_dead(const char *parent)
{
    bt_own_dir_each(parent, remove_if_dead, NULL);
}

bool bt_read_text(const char *path, char *text, size_t bytes)
{
    BT_CLEANUP(close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = (fd >= 0) ? read(fd, text, bytes - 1) : -1;

    text[(n > 0) ? n : 0] = '\0';
    return n > 0;
}

bt_status_t bt_read_file(int fd, void *data, size_t max_bytes, size_t *n_p)
{
    size_t n = 0;

    while (n <= max_bytes) {
        const ssize_t got = read(fd, (char *)data + n, max_bytes + 1 - n);

        if ((got < 0) && (errno != EINTR)) {
            return BT_ERR_IO;
        }
        if (got == 0) {
            break;
        }
        n += (got > 0) ? (size_t)got : 0;
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_pread_all(int fd, uint64_t offset, void *data, size_t bytes)
{
    char *at = data;

    while (bytes > 0) {
        const ssize_t n = pread(fd, at, bytes, (off_t)offset);

        if ((n < 0) && (errno != EINTR)) {
            return BT_ERR_IO;
        }
        if (n == 0) {
            return BT_ERR_CORRUPT;
        }
        at += (n > 0) ? n : 0;
        offset += (n > 0) ? (size_t)n : 0;
        bytes -= (n > 0) ? (size_t)n : 0;
    }
    return BT_OK;
}

bt_status_t bt_write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        const ssize_t n = write(fd, at, bytes);

        if ((n < 0) && (errno != EINTR)) {
            return BT_ERR_IO;
        }
        at += (n > 0) ? n : 0;
        bytes -= (n > 0) ? (size_t)n : 0;
    }
    return BT_OK;
}
