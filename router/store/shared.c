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
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/store/store_priv.h"

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

typedef struct sweep {
    bt_store_t *store;
    uint64_t now_s;
    bt_store_chunk_t *chunk; /* scratch */
    uint32_t n_removed;
} sweep_t;

/* True for an object that has expired; not for one that cannot be read. */
static bool has_expired(const sweep_t *s, int dir_fd, const char *id)
{
    char space[BT_STORE_SPACE_BYTES];
    bt_stored_t object = {0};
    int fd = -1;

    if (bt_store_file_open(&s->store->folder, dir_fd, id, &fd, &object, space,
                           s->chunk) != BT_OK) {
        return false;
    }
    close(fd);
    bt_free(object.label);
    return object.expires_s <= s->now_s;
}

static bool is_old_part(const sweep_t *s, int dir_fd, const char *name)
{
    struct stat info;

    return (fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) &&
           S_ISREG(info.st_mode) &&
           ((uint64_t)info.st_mtime + PART_AGE_S <= s->now_s);
}

static void sweep_entry(sweep_t *s, int dir_fd, const char *name)
{
    char id[BT_STORE_ID_BYTES];
    bt_store_kind_t kind;
    const bool is_over =
        bt_store_names_id(name, BT_STORE_PART, id)
            ? is_old_part(s, dir_fd, name)
            : bt_store_id_kind(name, &kind) && has_expired(s, dir_fd, name);

    /* Its own store may have been quicker. */
    if (is_over && (unlinkat(dir_fd, name, 0) == 0)) {
        s->n_removed++;
    }
}

static bt_status_t sweep_folder(void *ctx, int fd, const char *name)
{
    sweep_t *s = ctx;
    const int dir_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BT_CLEANUP(closedir) DIR *dir = (dir_fd >= 0) ? fdopendir(dir_fd) : NULL;
    const struct dirent *entry;

    if (dir == NULL) {
        if (dir_fd >= 0) {
            close(dir_fd);
        }
        return BT_ERR_NOT_FOUND; /* the others remain */
    }
    if (strcmp(name, s->store->folder.own_name) != 0) {
        while ((entry = readdir(dir)) != NULL) {
            sweep_entry(s, fd, entry->d_name);
        }
    }
    return BT_ERR_NOT_FOUND;
}

void bt_store_sweep(bt_store_t *store, uint64_t now_s)
{
    sweep_t s = {.store = store, .now_s = now_s};

    s.chunk = bt_calloc(1, sizeof(*s.chunk));
    if (s.chunk == NULL) {
        return; /* next time */
    }
    if (each_folder(store, sweep_folder, &s) == BT_ERR_IO) {
        BT_LOG_WARN("store: the shared folder cannot be read: %m");
    }
    if (s.n_removed > 0) {
        BT_LOG_INFO("store: %u expired objects of other stores were removed",
                    s.n_removed);
    }
    bt_free(s.chunk);
}
