/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"

#define KEY_BYTES    32
#define MARK_BYTES   96
#define N_PARENTS    3
#define PREFIX_BYTES 6 /* "baton-" */

static const char leaf[] = "/baton-XXXXXX";

/* Where run directories are made, the best place first. Some are NULL. */
static void list_parents(const char *parents[N_PARENTS])
{
    parents[0] = getenv("XDG_RUNTIME_DIR");
    parents[1] = getenv("TMPDIR");
    parents[2] = "/tmp";
}

static bool make_under(const char *parent, bt_run_dir_t *dir)
{
    if ((parent == NULL) || (parent[0] != '/') ||
        (strlen(parent) + sizeof(leaf) > sizeof(dir->path))) {
        return false;
    }
    snprintf(dir->path, sizeof(dir->path), "%s%s", parent, leaf);
    return mkdtemp(dir->path) != NULL; /* mode 0700 whatever the umask */
}

static bt_status_t write_key(const char *path)
{
    BT_CLEANUP(close)
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    static const char digits[] = "0123456789abcdef";
    unsigned char key[KEY_BYTES];
    char text[2 * KEY_BYTES + 1];
    bt_status_t status = BT_ERR_IO;

    if ((fd < 0) || (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))) {
        return BT_ERR_IO;
    }
    for (size_t i = 0; i < sizeof(key); i++) {
        text[2 * i] = digits[key[i] >> 4];
        text[2 * i + 1] = digits[key[i] & 15u];
    }
    text[2 * sizeof(key)] = '\n';
    if (write(fd, text, sizeof(text)) == (ssize_t)sizeof(text)) {
        status = BT_OK;
    }
    explicit_bzero(key, sizeof(key));
    explicit_bzero(text, sizeof(text));
    return status;
}

/* What stands in the lock: this very directory. That of a copy, or of a folder
 * with such a name that somebody else made, says another one or nothing.
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

static bool write_mark(const char *path, int lock)
{
    BT_CLEANUP(close)
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char mark[MARK_BYTES];

    return (dir >= 0) && mark_of(dir, mark) &&
           (write(lock, mark, strlen(mark)) == (ssize_t)strlen(mark));
}

/* The name `lock` appears with the lock taken: nobody finds it free while we
 * live. @return the descriptor, or -1 where that is not to be had: then nobody
 * removes the directory but we. */
static int take_lock(const char *dir)
{
    char fresh[BT_RUN_DIR_BYTES + 16];
    char path[BT_RUN_DIR_BYTES + 16];
    int fd;

    snprintf(fresh, sizeof(fresh), "%s/lock.new", dir);
    snprintf(path, sizeof(path), "%s/lock", dir);
    fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    if ((flock(fd, LOCK_EX | LOCK_NB) != 0) || !write_mark(dir, fd) ||
        (rename(fresh, path) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

bt_status_t bt_run_dir_create(bt_run_dir_t *dir)
{
    const char *parents[N_PARENTS];
    bt_run_dir_t made;

    list_parents(parents);
    if (!make_under(parents[0], &made) && !make_under(parents[1], &made) &&
        !make_under(parents[2], &made)) {
        BT_LOG_ERROR("cannot make a directory for sockets in /tmp: %m");
        return BT_ERR_IO;
    }
    made.lock_fd = take_lock(made.path);
    snprintf(made.key_file, sizeof(made.key_file), "%s/key", made.path);
    if (write_key(made.key_file) != BT_OK) {
        BT_LOG_ERROR("cannot write the cluster key %s: %m", made.key_file);
        bt_run_dir_remove(&made);
        return BT_ERR_IO;
    }
    *dir = made;
    return BT_OK;
}

/* Is it a directory of ours with such a name? No link: another user could have
 * put it there. */
static bool is_run_dir(int parent, const char *name)
{
    struct stat info;

    return (strlen(name) == sizeof(leaf) - 2) &&
           (strncmp(name, leaf + 1, PREFIX_BYTES) == 0) &&
           (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0) &&
           S_ISDIR(info.st_mode) && (info.st_uid == geteuid());
}

static void each_under(const char *parent, bt_run_dir_fn fn, void *arg)
{
    DIR *const dir = opendir(parent);
    const struct dirent *entry;
    char path[BT_RUN_DIR_BYTES];

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (is_run_dir(dirfd(dir), entry->d_name) &&
            ((size_t)snprintf(path, sizeof(path), "%s/%s", parent,
                              entry->d_name) < sizeof(path))) {
            fn(arg, path);
        }
    }
    closedir(dir);
}

void bt_run_dir_each(bt_run_dir_fn fn, void *arg)
{
    const char *parents[N_PARENTS];

    list_parents(parents);
    for (size_t i = 0; i < N_PARENTS; i++) {
        bool again = false;

        for (size_t k = 0; (k < i) && (parents[i] != NULL); k++) {
            again = again || ((parents[k] != NULL) &&
                              (strcmp(parents[k], parents[i]) == 0));
        }
        if ((parents[i] != NULL) && (parents[i][0] == '/') && !again) {
            each_under(parents[i], fn, arg);
        }
    }
}

/* ---- removing: by name and kind, never whatever is there ---- */

/* Sockets, and in the run directory itself the files that we make. */
static bool is_ours(bool is_top, const char *name, const struct stat *info)
{
    static const char *const files[] = {"key", "lock.new", "cores"};

    for (size_t i = 0;
         is_top && S_ISREG(info->st_mode) && (i < BT_ARRAY_LEN(files)); i++) {
        if (strcmp(name, files[i]) == 0) {
            return true;
        }
    }
    return S_ISSOCK(info->st_mode);
}

/* @return entries that are none of ours and stay; one has its name in kept */
static unsigned remove_entries(int dir, bool is_top, char kept[NAME_MAX]);

/* One of the directories that processes make for their sockets, common/rpc. */
static bool remove_socket_dir(int parent, const char *name)
{
    BT_CLEANUP(close)
    const int dir =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char kept[NAME_MAX];

    return (dir >= 0) && (remove_entries(dir, false, kept) == 0) &&
           (unlinkat(parent, name, AT_REMOVEDIR) == 0);
}

static bool remove_entry(int dir, const char *name, bool is_top)
{
    struct stat info;

    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    if (is_top && is_run_dir(dir, name)) {
        return remove_socket_dir(dir, name);
    }
    return is_ours(is_top, name, &info) && (unlinkat(dir, name, 0) == 0);
}

/* The lock goes last, for whoever comes where this is interrupted. */
static bool is_skipped(const char *name, bool is_top)
{
    return (strcmp(name, ".") == 0) || (strcmp(name, "..") == 0) ||
           (is_top && (strcmp(name, "lock") == 0));
}

static unsigned remove_entries(int dir, bool is_top, char kept[NAME_MAX])
{
    const int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
        if (!is_skipped(entry->d_name, is_top) &&
            !remove_entry(dir, entry->d_name, is_top)) {
            snprintf(kept, NAME_MAX, "%.*s", NAME_MAX - 1, entry->d_name);
            n_kept++;
        }
    }
    closedir(list);
    return n_kept;
}

/* @return whether all of it is gone */
static bool remove_at(int dir, const char *path)
{
    char kept[NAME_MAX] = "";
    const unsigned n_kept = remove_entries(dir, true, kept);

    (void)unlinkat(dir, "lock", 0);
    if (n_kept > 0) {
        BT_LOG_WARN("%s stays: %u of what is in it is none of a launcher's, "
                    "such as %s",
                    path, n_kept, kept);
        return false;
    }
    if (rmdir(path) != 0) {
        BT_LOG_WARN("cannot remove %s: %m", path);
        return false;
    }
    return true;
}

void bt_run_dir_remove(bt_run_dir_t *dir)
{
    BT_CLEANUP(close)
    const int fd =
        open(dir->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        BT_LOG_WARN("cannot read %s: %m", dir->path);
    } else {
        (void)remove_at(fd, dir->path);
    }
    if (dir->lock_fd >= 0) {
        close(dir->lock_fd);
        dir->lock_fd = -1;
    }
}

/* Is it the directory that its lock says, of a launcher that is dead? Whoever
 * has the lock may remove it, one launcher that starts as well as another. */
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

/* A bt_run_dir_fn. */
static void remove_if_dead(void *arg, const char *path)
{
    BT_CLEANUP(close)
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    BT_CLEANUP(close)
    const int lock =
        (dir >= 0) ? openat(dir, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;

    (void)arg;
    if ((lock >= 0) && is_dead(dir, lock) && remove_at(dir, path)) {
        BT_LOG_INFO("removed %s, left behind by a launcher that is dead", path);
    }
}

void bt_run_dir_remove_dead(void)
{
    bt_run_dir_each(remove_if_dead, NULL);
}
