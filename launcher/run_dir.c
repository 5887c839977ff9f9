/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define KEY_BYTES     32
#define MAX_OPEN_DIRS 8
#define N_PARENTS     3
#define PREFIX_BYTES  6 /* "baton-" */

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
    if ((flock(fd, LOCK_EX | LOCK_NB) != 0) || (rename(fresh, path) != 0)) {
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

/* nftw() visits a directory after what is in it and follows no link. */
static int remove_entry(const char *path, const struct stat *info, int type,
                        struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    if (remove(path) != 0) {
        BT_LOG_WARN("cannot remove %s: %m", path);
    }
    return 0;
}

void bt_run_dir_remove(bt_run_dir_t *dir)
{
    if (nftw(dir->path, remove_entry, MAX_OPEN_DIRS, FTW_DEPTH | FTW_PHYS) !=
        0) {
        BT_LOG_WARN("cannot read %s: %m", dir->path);
    }
    if (dir->lock_fd >= 0) {
        close(dir->lock_fd);
        dir->lock_fd = -1;
    }
}

/* A bt_run_dir_fn. Whoever has the lock may remove it, one launcher that starts
 * as well as another. */
static void remove_if_dead(void *arg, const char *path)
{
    char lock[BT_RUN_DIR_BYTES + 16];
    bt_run_dir_t dir;
    struct stat info;

    (void)arg;
    snprintf(lock, sizeof(lock), "%s/lock", path);
    dir.lock_fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (dir.lock_fd < 0) {
        return;
    }
    if ((flock(dir.lock_fd, LOCK_EX | LOCK_NB) != 0) ||
        (fstat(dir.lock_fd, &info) != 0) || (info.st_nlink == 0)) {
        close(dir.lock_fd);
        return;
    }
    snprintf(dir.path, sizeof(dir.path), "%s", path);
    bt_run_dir_remove(&dir);
    BT_LOG_INFO("removed %s, left behind by a launcher that is dead", path);
}

void bt_run_dir_remove_dead(void)
{
    bt_run_dir_each(remove_if_dead, NULL);
}
