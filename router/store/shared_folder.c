/* SPDX-License-Identifier: Apache-2.0 */
/* A shared folder: objects of other stores are found, and those that are left
 * of stores that do not run are removed once they have expired.
 *
 * The files are the truth, for no store knows the index of another: an object
 * is there if a folder has a whole file of its id.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/store/store_priv.h"

/* How often, and when again, a lock is tried that a sweep has. */
#define LOCK_TRIES   250
#define LOCK_WAIT_MS 20
/* No put takes so long. */
#define PART_AGE_S (24 * 3600)

/* What a look-up wants, and what it found. */
typedef struct look_up {
    bt_store_t *store;
    bt_store_kind_t kind;
    const char *space, *id;
    uint64_t now_s;
    bt_stored_t *object; /* owned; NULL: not found yet */
    bt_store_chunk_t *chunk;
    char found_space[BT_STORE_SPACE_BYTES];
} look_up_t;

/* Opens a folder in the shared one that is this user's alone.
 * @return -1: there is none */
static int open_inner(int shared_fd, const char *name)
{
    const int fd = openat(shared_fd, name,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;

    if (fd < 0) {
        return -1;
    }
    if ((fstat(fd, &info) != 0) || (info.st_uid != geteuid()) ||
        ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)) {
        close(fd);
        errno = EACCES;
        return -1;
    }
    return fd;
}

int bt_store_open_holder(const bt_store_folder_t *folder, const char *holder)
{
    return (holder == NULL) ? fcntl(folder->dir_fd, F_DUPFD_CLOEXEC, 0)
                            : open_inner(folder->shared_fd, holder);
}

bool bt_store_is_shared(const bt_store_t *store)
{
    return store->folder.shared_fd >= 0;
}

/* Calls a function for each folder, until it returns something else than
 * BT_ERR_NOT_FOUND, which is returned. */
static bt_status_t
each_folder(bt_store_t *store,
            bt_status_t (*fn)(void *ctx, int fd, const char *name), void *ctx)
{
    const int dir_fd = openat(store->folder.shared_fd, ".",
                              O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BT_CLEANUP(closedir) DIR *dir = (dir_fd >= 0) ? fdopendir(dir_fd) : NULL;
    bt_status_t status = BT_ERR_NOT_FOUND;
    const struct dirent *entry;

    if (dir == NULL) {
        if (dir_fd >= 0) {
            close(dir_fd);
        }
        return BT_ERR_IO;
    }
    while ((status == BT_ERR_NOT_FOUND) && ((entry = readdir(dir)) != NULL)) {
        const int fd = (entry->d_name[0] != '.')
                           ? open_inner(store->folder.shared_fd, entry->d_name)
                           : -1;

        if (fd >= 0) {
            status = fn(ctx, fd, entry->d_name);
            close(fd);
        }
    }
    return status;
}

/* ---- the lock of a folder ---- */

/* Takes the lock of a folder, unless another store has it. Others that sweep
 * what is in it have a shared one for a moment. @return false: errno has the
 * reason */
static bool take_lock(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if ((errno != EWOULDBLOCK) || (flock(fd, LOCK_SH | LOCK_NB) != 0)) {
            return false;
        }
        (void)flock(fd, LOCK_UN);
        (void)poll(NULL, 0, LOCK_WAIT_MS);
    }
    errno = EWOULDBLOCK;
    return false;
}

bt_status_t bt_store_lock(bt_store_folder_t *folder, const char *path)
{
    struct stat info;

    folder->lock_fd = openat(folder->dir_fd, BT_STORE_LOCK,
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if ((folder->lock_fd < 0) && (errno == ENOENT)) {
        return BT_ERR_NOT_FOUND;
    }
    if (folder->lock_fd < 0) {
        BT_LOG_ERROR("store %s: cannot be written: %m", path);
        return BT_ERR_IO;
    }
    if (!take_lock(folder->lock_fd)) {
        BT_LOG_ERROR("store %s: %s", path,
                     (errno == EWOULDBLOCK) ? "another router has it"
                                            : "cannot be locked");
        return (errno == EWOULDBLOCK) ? BT_ERR_BUSY : BT_ERR_IO;
    }
    if (fstat(folder->lock_fd, &info) != 0) {
        BT_LOG_ERROR("store %s: %m", path);
        return BT_ERR_IO;
    }
    return (info.st_nlink > 0) ? BT_OK : BT_ERR_NOT_FOUND;
}

/* ---- look-ups ---- */

/* Once: a client that asks often fills no log. */
static void note_unreadable(look_up_t *l, const char *name)
{
    if (!atomic_exchange(&l->store->was_noted, true)) {
        BT_LOG_WARN("store: %s of %s is not found: it is damaged, or of "
                    "another key; further ones are not logged",
                    l->id, name);
    }
}

static bool is_wanted(const look_up_t *l, const bt_stored_t *object)
{
    return (object->kind == l->kind) && (object->expires_s > l->now_s) &&
           (strcmp(l->found_space, l->space) == 0);
}

static bt_status_t look_into(void *ctx, int fd, const char *name)
{
    look_up_t *l = ctx;
    bt_stored_t *object = l->object;
    bt_status_t status;
    int file_fd = -1;

    status = bt_store_file_open(&l->store->folder, fd, l->id, &file_fd, object,
                                l->found_space, l->chunk);
    if (status == BT_OK) {
        close(file_fd);
        if (is_wanted(l, object)) {
            object->holder = bt_memdup(name, strlen(name) + 1);
            return (object->holder != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
        }
        bt_free(object->label);
        object->label = NULL;
        return BT_ERR_NOT_FOUND;
    }
    if (status == BT_ERR_CORRUPT) {
        note_unreadable(l, name);
        return BT_ERR_NOT_FOUND;
    }
    return status;
}

bt_status_t bt_store_look_up(bt_store_t *store, bt_store_kind_t kind,
                             const char *space, const char *id, uint64_t now_us,
                             bt_stored_t **object_p)
{
    look_up_t l = {.store = store,
                   .kind = kind,
                   .space = space,
                   .id = id,
                   .now_s = now_us / 1000000};
    bt_store_kind_t given;
    bt_status_t status;

    if (!bt_store_id_kind(id, &given) || (given != kind)) {
        return BT_ERR_NOT_FOUND; /* no name of a file */
    }
    l.object = bt_calloc(1, sizeof(*l.object));
    l.chunk = bt_calloc(1, sizeof(*l.chunk));
    if ((l.object == NULL) || (l.chunk == NULL)) {
        bt_free(l.object);
        bt_free(l.chunk);
        return BT_ERR_NO_MEMORY;
    }
    l.object->refs = 1;
    memcpy(l.object->id, id, strlen(id) + 1);
    bt_list_init(&l.object->link);
    bt_list_init(&l.object->by_id);
    status = each_folder(store, look_into, &l);
    bt_free(l.chunk);
    if (status != BT_OK) {
        bt_stored_unref(l.object);
        return status;
    }
    *object_p = l.object;
    return BT_OK;
}

/* ---- what stores have left ---- */

/* A walk through the folders of other stores, in slices: the thread is that of
 * all files, and a store that starts waits for the lock of its folder. */
struct bt_store_sweep {
    bt_store_t *store;
    uint64_t now_s;
    DIR *folders; /* owned: the shared folder; NULL: not begun */
    DIR *folder;  /* owned: one in it; NULL: none is open */
    char name[BT_STORE_FOLDER_BYTES]; /* of that one */
    uint32_t n_removed;
    bt_store_chunk_t chunk; /* scratch */
};

/* True for an object that has expired; not for one that cannot be read. */
static bool has_expired(bt_store_sweep_t *s, int dir_fd, const char *id)
{
    char space[BT_STORE_SPACE_BYTES];
    bt_stored_t object = {0};
    int fd = -1;

    if (bt_store_file_open(&s->store->folder, dir_fd, id, &fd, &object, space,
                           &s->chunk) != BT_OK) {
        return false;
    }
    close(fd);
    bt_free(object.label);
    return object.expires_s <= s->now_s;
}

static bool is_old_part(const bt_store_sweep_t *s, int dir_fd, const char *name)
{
    struct stat info;

    return (fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) &&
           S_ISREG(info.st_mode) &&
           ((uint64_t)info.st_mtime + PART_AGE_S <= s->now_s);
}

static void sweep_entry(bt_store_sweep_t *s, int dir_fd, const char *name)
{
    char id[BT_STORE_ID_BYTES];
    bt_store_kind_t kind;
    const bool is_over =
        bt_store_names_id(name, BT_STORE_PART, id)
            ? is_old_part(s, dir_fd, name)
            : bt_store_id_kind(name, &kind) && has_expired(s, dir_fd, name);

    /* Another one may have been quicker. */
    if (is_over && (unlinkat(dir_fd, name, 0) == 0)) {
        s->n_removed++;
    }
}

/* Locks a folder whose store does not run. Shared, so that a store that starts
 * can tell it from the lock of another one, and waits.
 * @return -1: its store runs, or it has no lock */
static int lock_left(int dir_fd)
{
    const int fd = openat(dir_fd, BT_STORE_LOCK,
                          O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if ((fd >= 0) && (flock(fd, LOCK_SH | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Opens the next folder of another store. @return false: there are no more */
static bool open_next(bt_store_sweep_t *s)
{
    const int shared_fd = s->store->folder.shared_fd;
    const struct dirent *entry;

    while ((entry = readdir(s->folders)) != NULL) {
        const bool is_other =
            (entry->d_name[0] != '.') &&
            (strcmp(entry->d_name, s->store->folder.own_name) != 0);
        const int fd = is_other ? open_inner(shared_fd, entry->d_name) : -1;

        snprintf(s->name, sizeof(s->name), "%.255s", entry->d_name);
        s->folder = (fd >= 0) ? fdopendir(fd) : NULL;
        if (s->folder != NULL) {
            return true;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return false;
}

static void close_folder(bt_store_sweep_t *s)
{
    if (s->folder != NULL) {
        closedir(s->folder);
        s->folder = NULL;
    }
}

/* Removes the folder, whose lock is taken, if nothing else is in it: its store
 * may never run again. One that starts makes another (bt_store_open()). */
static void remove_if_empty(bt_store_sweep_t *s)
{
    const struct dirent *entry;

    rewinddir(s->folder);
    while ((entry = readdir(s->folder)) != NULL) {
        if ((strcmp(entry->d_name, ".") != 0) &&
            (strcmp(entry->d_name, "..") != 0) &&
            (strcmp(entry->d_name, BT_STORE_LOCK) != 0)) {
            return;
        }
    }
    if ((unlinkat(dirfd(s->folder), BT_STORE_LOCK, 0) == 0) &&
        (unlinkat(s->store->folder.shared_fd, s->name, AT_REMOVEDIR) == 0)) {
        BT_LOG_INFO("store: the folder of %s, which does not run, was empty "
                    "and is removed",
                    s->name);
    }
}

/* Looks at up to n files of the open folder. @return how many */
static uint32_t sweep_some(bt_store_sweep_t *s, uint32_t n)
{
    const int dir_fd = dirfd(s->folder);
    const int lock_fd = lock_left(dir_fd);
    const struct dirent *entry = NULL;
    uint32_t done = 0;

    while ((lock_fd >= 0) && (done < n) &&
           ((entry = readdir(s->folder)) != NULL)) {
        sweep_entry(s, dir_fd, entry->d_name);
        done++;
    }
    if (lock_fd >= 0) {
        if (entry == NULL) {
            remove_if_empty(s);
        }
        close(lock_fd);
    }
    if (entry == NULL) {
        close_folder(s);
    }
    return done;
}

static bool open_folders(bt_store_sweep_t *s)
{
    const int fd = openat(s->store->folder.shared_fd, ".",
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    s->folders = (fd >= 0) ? fdopendir(fd) : NULL;
    if (s->folders == NULL) {
        BT_LOG_WARN("store: the shared folder cannot be read: %m");
        if (fd >= 0) {
            close(fd);
        }
    }
    return s->folders != NULL;
}

bt_store_sweep_t *bt_store_sweep_begin(bt_store_t *store, uint64_t now_s)
{
    bt_store_sweep_t *s = bt_calloc(1, sizeof(*s));

    if (s != NULL) {
        s->store = store;
        s->now_s = now_s;
    }
    return s;
}

bool bt_store_sweep_go_on(bt_store_sweep_t *s)
{
    uint32_t n = 0;

    if ((s->folders == NULL) && !open_folders(s)) {
        return false;
    }
    while (n < BT_STORE_SWEEP_FILES) {
        if ((s->folder == NULL) && !open_next(s)) {
            return false;
        }
        n += 1 + sweep_some(s, BT_STORE_SWEEP_FILES - n);
    }
    return true;
}

void bt_store_sweep_end(bt_store_sweep_t *s)
{
    if (s == NULL) {
        return;
    }
    if (s->n_removed > 0) {
        BT_LOG_INFO("store: %u expired objects of routers that do not run "
                    "were removed",
                    s->n_removed);
    }
    close_folder(s);
    if (s->folders != NULL) {
        closedir(s->folders);
    }
    bt_free(s);
}
