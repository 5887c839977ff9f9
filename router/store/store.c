/* SPDX-License-Identifier: Apache-2.0 */
#include "router/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/store/store_priv.h"

#define WHAT "store"
/* Longest time between two looks at what other stores have left, in seconds. */
#define MOST_SWEEP_S 3600u
/* How often an own folder is made that others have removed. */
#define OPEN_TRIES 8

/* ---- spaces ---- */

static bt_store_space_t *find_space(const bt_store_t *store, const char *name)
{
    BT_LIST_FOR_EACH_ENTRY(bt_store_space_t, space, &store->spaces, link) {
        if (strcmp(space->name, name) == 0) {
            return space;
        }
    }
    return NULL;
}

bt_store_space_t *bt_store_space_get(bt_store_t *store, const char *name)
{
    bt_store_space_t *space = find_space(store, name);

    BT_ASSERT(strlen(name) < BT_STORE_SPACE_BYTES);
    if (space == NULL) {
        space = bt_calloc(1, sizeof(*space));
        if (space != NULL) {
            bt_list_init(&space->objects);
            memcpy(space->name, name, strlen(name) + 1);
            bt_list_push_back(&store->spaces, &space->link);
        }
    }
    return space;
}

void bt_store_space_leave(bt_store_t *store, bt_store_space_t *space)
{
    (void)store;
    if ((space->n_objects == 0) && (space->n_puts == 0)) {
        bt_list_remove(&space->link);
        bt_free(space);
    }
}

void bt_store_charge(bt_store_t *store, bt_store_space_t *space,
                     uint64_t more_bytes, uint64_t less_bytes)
{
    store->used_bytes = store->used_bytes + more_bytes - less_bytes;
    space->used_bytes = space->used_bytes + more_bytes - less_bytes;
}

/* ---- the index ---- */

static uint64_t hash_of(const char *id)
{
    return bt_hash64(id, strlen(id), 0);
}

static bool has_id(bt_list_t *link, const void *id)
{
    return strcmp(BT_CONTAINER_OF(link, bt_stored_t, by_id)->id, id) == 0;
}

void bt_store_add(bt_store_t *store, bt_store_space_t *space,
                  bt_stored_t *object)
{
    object->space = space;
    bt_list_push_back(&space->objects, &object->link);
    bt_hmap_insert(&store->by_id, hash_of(object->id), &object->by_id);
    bt_store_charge(
        store, space,
        object->bytes + object->journal_bytes + BT_STORE_OBJECT_BYTES, 0);
    space->n_objects++;
    store->n_objects++;
    store->n_of_kind[object->kind]++;
    if (object->expires_s < store->look_s) {
        store->look_s = object->expires_s;
    }
}

bt_stored_t *bt_store_find(const bt_store_t *store, bt_store_kind_t kind,
                           const char *space, const char *id)
{
    bt_list_t *link = bt_hmap_find(&store->by_id, hash_of(id), has_id, id);
    bt_stored_t *object =
        (link != NULL) ? BT_CONTAINER_OF(link, bt_stored_t, by_id) : NULL;

    return ((object != NULL) && (object->kind == kind) && !object->is_hidden &&
            (strcmp(object->space->name, space) == 0))
               ? object
               : NULL;
}

bt_list_t *bt_store_list(const bt_store_t *store, const char *space)
{
    bt_store_space_t *found = find_space(store, space);

    return (found != NULL) ? &found->objects : NULL;
}

void bt_store_each(const bt_store_t *store, bt_store_kind_t kind,
                   void (*fn)(void *ctx, const char *space,
                              bt_stored_t *object),
                   void *ctx)
{
    BT_LIST_FOR_EACH_ENTRY(bt_store_space_t, space, &store->spaces, link) {
        BT_LIST_FOR_EACH_ENTRY(bt_stored_t, object, &space->objects, link) {
            if (object->kind == kind) {
                fn(ctx, space->name, object);
            }
        }
    }
}

bt_status_t bt_store_charge_journal(bt_store_t *store, bt_stored_t *object,
                                    uint64_t bytes)
{
    bt_store_space_t *space = object->space;
    const uint64_t more =
        (bytes > object->journal_bytes) ? bytes - object->journal_bytes : 0;

    if (space == NULL) {
        return BT_OK;
    }
    if (more > bt_store_headroom(store->space_bytes, space->used_bytes)) {
        return BT_ERR_TOO_LARGE;
    }
    if (more > bt_store_headroom(store->limit_bytes, store->used_bytes)) {
        return BT_ERR_BUSY;
    }
    bt_store_charge(store, space, bytes, object->journal_bytes);
    object->journal_bytes = bytes;
    return BT_OK;
}

void bt_store_release_journal(bt_store_t *store, bt_stored_t *object)
{
    if (object->space != NULL) {
        bt_store_charge(store, object->space, 0, object->journal_bytes);
        object->journal_bytes = 0;
    }
}

bt_stored_t *bt_stored_ref(bt_stored_t *object)
{
    object->refs++;
    return object;
}

void bt_stored_unref(bt_stored_t *object)
{
    if ((object != NULL) && (--object->refs == 0)) {
        bt_free(object->label);
        bt_free(object->data);
        bt_free(object->holder);
        bt_free(object);
    }
}

/* Takes an object out of the index; its reference is the caller's then. */
static void take_out(bt_store_t *store, bt_stored_t *object)
{
    bt_store_space_t *space = object->space;

    bt_list_remove(&object->link);
    bt_list_remove(&object->by_id);
    object->space = NULL;
    bt_store_charge(store, space, 0,
                    object->bytes + object->journal_bytes +
                        BT_STORE_OBJECT_BYTES);
    space->n_objects--;
    store->n_objects--;
    store->n_of_kind[object->kind]--;
    bt_store_space_leave(store, space);
    if (store->on_remove[object->kind].fn != NULL) {
        store->on_remove[object->kind].fn(store->on_remove[object->kind].ctx,
                                          object);
    }
}

void bt_store_on_remove(bt_store_t *store, bt_store_kind_t kind,
                        void (*fn)(void *ctx, bt_stored_t *object), void *ctx)
{
    store->on_remove[kind].fn = fn;
    store->on_remove[kind].ctx = ctx;
}

void bt_store_hide(bt_stored_t *object, bool is_hidden)
{
    object->is_hidden = is_hidden;
}

void bt_store_remove(bt_store_t *store, bt_stored_t *object)
{
    take_out(store, object);
    bt_stored_unref(object);
}

bt_store_use_t bt_store_use(const bt_store_t *store)
{
    bt_store_use_t use = {.bytes = store->used_bytes,
                          .limit_bytes = store->limit_bytes,
                          .n_evicted = store->n_evicted};

    memcpy(use.n_objects, store->n_of_kind, sizeof(use.n_objects));
    return use;
}

static bt_stored_t *oldest_of(const bt_store_space_t *space)
{
    return ((space != NULL) && !bt_list_empty(&space->objects))
               ? BT_CONTAINER_OF(space->objects.next, bt_stored_t, link)
               : NULL;
}

bt_stored_t *bt_store_oldest(const bt_store_t *store, const char *space)
{
    return oldest_of(find_space(store, space));
}

bt_stored_t *bt_store_oldest_of_largest(const bt_store_t *store, uint64_t bytes)
{
    const bt_store_space_t *largest = NULL;

    BT_LIST_FOR_EACH_ENTRY(bt_store_space_t, space, &store->spaces, link) {
        if ((largest == NULL) || (space->used_bytes > largest->used_bytes)) {
            largest = space;
        }
    }
    return ((largest != NULL) && (largest->used_bytes >= bytes))
               ? oldest_of(largest)
               : NULL;
}

uint64_t bt_store_used(const bt_store_t *store, const char *space)
{
    const bt_store_space_t *found = find_space(store, space);

    return (found != NULL) ? found->used_bytes : 0;
}

void bt_store_evict(bt_store_t *store, bt_stored_t *object)
{
    take_out(store, object);
    store->n_evicted++;
    bt_list_push_back(&store->evicted, &object->link);
}

bool bt_store_is_in_memory(const bt_store_t *store)
{
    return store->folder.dir_fd < 0;
}

bool bt_store_takes(const bt_store_t *store, uint64_t bytes)
{
    const uint64_t most = (store->space_bytes < store->limit_bytes)
                              ? store->space_bytes
                              : store->limit_bytes;

    return (most >= BT_STORE_OBJECT_BYTES) &&
           (bytes <= most - BT_STORE_OBJECT_BYTES);
}

/* Removes an object's file and its journal's. @return false: errno has the
 * reason */
static bool unlink_files(const bt_store_t *store, int dir_fd,
                         const bt_stored_t *object)
{
    char name[BT_STORE_NAME_BYTES];

    if (bt_store_is_in_memory(store)) {
        return true;
    }
    bt_store_journal_name(object->id, "", name);
    return ((unlinkat(dir_fd, object->id, 0) == 0) || (errno == ENOENT)) &&
           ((unlinkat(dir_fd, name, 0) == 0) || (errno == ENOENT));
}

bt_status_t bt_store_unlink(const bt_store_t *store, const bt_stored_t *object)
{
    bool ok;
    int fd;

    if (bt_store_is_in_memory(store)) {
        return BT_OK;
    }
    fd = bt_store_open_holder(&store->folder, object->holder);
    if (fd < 0) {
        return BT_ERR_IO;
    }
    ok = unlink_files(store, fd, object) && (fsync(fd) == 0);
    close(fd);
    return ok ? BT_OK : BT_ERR_IO;
}

/* ---- expiry ---- */

void bt_store_free_all(bt_list_t *objects)
{
    while (!bt_list_empty(objects)) {
        bt_stored_t *object = BT_CONTAINER_OF(objects->next, bt_stored_t, link);

        bt_list_remove(&object->link);
        bt_stored_unref(object);
    }
}

void bt_store_move_all(bt_list_t *from, bt_list_t *to)
{
    while (!bt_list_empty(from)) {
        bt_list_t *link = from->next;

        bt_list_remove(link);
        bt_list_push_back(to, link);
    }
}

void bt_store_unlink_all(const bt_store_t *store, const bt_list_t *objects)
{
    BT_LIST_FOR_EACH_ENTRY(bt_stored_t, object, objects, link) {
        if (!unlink_files(store, store->folder.dir_fd, object)) {
            BT_LOG_WARN(WHAT ": %s is over and cannot be removed: %m",
                        object->id);
        }
    }
}

/* Has the pool remove the file of an object, which counts until then. */
static void let_leave(bt_store_t *store, bt_stored_t *object)
{
    bt_list_push_back(&store->leaving, &object->link);
    store->n_leaving++;
    store->leaving_bytes +=
        object->bytes + object->journal_bytes + BT_STORE_OBJECT_BYTES;
}

static void free_leaving(bt_store_t *store)
{
    bt_store_free_all(&store->leaving);
    store->n_leaving = 0;
    store->leaving_bytes = 0;
}

static void remove_expired(bt_pool_job_t *job)
{
    bt_store_t *store = BT_CONTAINER_OF(job, bt_store_t, job);

    bt_store_unlink_all(store, &store->leaving);
    bt_store_remove_parts(&store->parts);
    store->is_swept =
        (store->sweep != NULL) && !bt_store_sweep_go_on(store->sweep);
}

static void post_removal(bt_store_t *store);

static void removed_expired(bt_pool_job_t *job)
{
    bt_store_t *store = BT_CONTAINER_OF(job, bt_store_t, job);

    free_leaving(store);
    bt_store_free_puts(&store->parts);
    store->is_removing = false;
    if (store->is_swept) {
        bt_store_sweep_end(store->sweep);
        store->sweep = NULL;
    }
    if ((store->sweep != NULL) && job->ran) { /* others have had their turn */
        post_removal(store);
    }
}

/* Has the pool remove what leaves, and go on with a sweep. */
static void post_removal(bt_store_t *store)
{
    while (!bt_list_empty(&store->evicted)) {
        bt_stored_t *object =
            BT_CONTAINER_OF(store->evicted.next, bt_stored_t, link);

        bt_list_remove(&object->link);
        let_leave(store, object);
    }
    bt_store_move_all(&store->ended, &store->parts);
    if (bt_store_is_in_memory(store)) {
        free_leaving(store);
    } else if (!bt_list_empty(&store->leaving) ||
               !bt_list_empty(&store->parts) || (store->sweep != NULL)) {
        store->is_removing = true;
        store->is_swept = false;
        store->job.run = remove_expired;
        store->job.done = removed_expired;
        bt_pool_post(store->pool, &store->job, BT_POOL_FILES);
    }
}

/* Takes out what has expired. */
static void find_expired(bt_store_t *store, uint64_t now_s)
{
    store->look_s = UINT64_MAX;
    BT_LIST_FOR_EACH_ENTRY(bt_store_space_t, space, &store->spaces, link) {
        bt_list_t *pos, *next;
        const bt_list_t *objects = &space->objects;

        space->n_puts++; /* it stays while its objects leave */
        BT_LIST_FOR_EACH(pos, next, objects)
        {
            bt_stored_t *object = BT_CONTAINER_OF(pos, bt_stored_t, link);

            if (object->expires_s <= now_s) {
                take_out(store, object);
                let_leave(store, object);
            } else if (object->expires_s < store->look_s) {
                store->look_s = object->expires_s;
            }
        }
        space->n_puts--;
        bt_store_space_leave(store, space);
    }
}

/* Seconds between two sweeps, and until the first one: as long as an object
 * lives at most, so that what expires soon goes soon. */
static uint32_t sweep_period_s(const bt_store_t *store)
{
    return (store->ttl_s < MOST_SWEEP_S) ? store->ttl_s : MOST_SWEEP_S;
}

void bt_store_tick(bt_store_t *store, bt_pool_t *pool, uint64_t now_us)
{
    const uint64_t now_s = now_us / 1000000;

    if (store->is_removing) {
        return;
    }
    if (now_s >= store->look_s) {
        find_expired(store, now_s);
    }
    if (bt_store_is_shared(store) && (store->sweep == NULL) &&
        (now_s >= store->sweep_s)) {
        store->sweep = bt_store_sweep_begin(store, now_s);
        store->sweep_s = now_s + sweep_period_s(store);
    }
    store->pool = pool;
    post_removal(store);
}

/* ---- opening ---- */

/* Opens the folder, which is this user's alone. */
static bt_status_t open_folder(const char *path, bool may_create, int *fd_p)
{
    struct stat info;
    int fd;

    if (may_create && (mkdir(path, 0700) != 0) && (errno != EEXIST)) {
        BT_LOG_ERROR(WHAT " %s: cannot be created: %m", path);
        return BT_ERR_IO;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        const bt_status_t status = (errno == ENOTDIR)  ? BT_ERR_BAD_FILE
                                   : (errno == ENOENT) ? BT_ERR_NOT_FOUND
                                                       : BT_ERR_IO;

        if (may_create || (errno != ENOENT)) {
            BT_LOG_ERROR(WHAT " %s: %m", path);
        }
        return status;
    }
    if (fstat(fd, &info) != 0) {
        BT_LOG_ERROR(WHAT " %s: %m", path);
        close(fd);
        return BT_ERR_IO;
    }
    if ((info.st_uid != geteuid()) ||
        ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)) {
        BT_LOG_ERROR(WHAT " %s: the folder must belong to this user and be "
                          "closed to others (chmod 700)",
                     path);
        close(fd);
        return BT_ERR_UNAUTHORIZED;
    }
    *fd_p = fd;
    return BT_OK;
}

/* Opens the shared folder, if there is one.
 * @param [out] path  of the store's own folder */
static bt_status_t open_shared(const bt_store_config_t *config,
                               bt_store_folder_t *folder, char path[PATH_MAX])
{
    const char *const name = config->own_name;
    const bool is_shared = name != NULL;

    if ((size_t)snprintf(path, PATH_MAX, "%s%s%s", config->path,
                         is_shared ? "/" : "",
                         is_shared ? name : "") >= PATH_MAX) {
        BT_LOG_ERROR(WHAT " %s: the path is too long", config->path);
        return BT_ERR_TOO_LARGE;
    }
    if (!is_shared) {
        return BT_OK;
    }
    if ((name[0] == '\0') || (name[0] == '.') || (strchr(name, '/') != NULL) ||
        (strlen(name) >= sizeof(folder->own_name))) {
        BT_LOG_ERROR(WHAT " %s: '%s' is no name of a folder", config->path,
                     name);
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(folder->own_name, name, strlen(name) + 1);
    return open_folder(config->path, true, &folder->shared_fd);
}

/* Closes the store's own folder, and so gives its lock back. */
static void close_own(bt_store_folder_t *folder)
{
    if (folder->lock_fd >= 0) {
        close(folder->lock_fd);
    }
    if (folder->dir_fd >= 0) {
        close(folder->dir_fd);
    }
    folder->lock_fd = folder->dir_fd = -1;
}

/* Opens the store's own folder and takes its lock. Others remove one that is
 * empty and not locked: then it is made again. */
static bt_status_t open_own(bt_store_folder_t *folder, const char *path)
{
    bt_status_t status = BT_ERR_NOT_FOUND;

    for (int i = 0; (i < OPEN_TRIES) && (status == BT_ERR_NOT_FOUND); i++) {
        close_own(folder);
        status = open_folder(path, true, &folder->dir_fd);
        if (status == BT_OK) {
            status = bt_store_lock(folder, path);
        }
    }
    if (status == BT_ERR_NOT_FOUND) {
        BT_LOG_ERROR(WHAT " %s: the folder is removed again and again", path);
    }
    return status;
}

static bt_status_t read_key(const bt_store_config_t *config,
                            bt_store_folder_t *folder)
{
    char why[BT_KEY_WHY_BYTES];
    bt_status_t status;

    if (config->key_path[0] == '\0') {
        return BT_OK;
    }
    status =
        bt_key_read(config->key_path, config->munge_socket, folder->key, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("--store-key %s: %s", config->key_path, why);
        return status;
    }
    folder->has_key = true;
    return BT_OK;
}

/* What a scan of the folder found. */
typedef struct scan {
    bt_stored_t **objects; /* owned */
    char (*spaces)[BT_STORE_SPACE_BYTES];
    uint32_t n, cap, cap_spaces, n_others;
    bt_store_chunk_t *chunk; /* scratch */
} scan_t;

static bt_status_t scan_object(bt_store_t *store, const char *id, scan_t *scan)
{
    bt_stored_t *object = bt_calloc(1, sizeof(*object));
    bt_status_t status = BT_ERR_NO_MEMORY;
    int fd = -1;

    if ((object == NULL) ||
        !bt_array_grow(&scan->objects, &scan->cap, scan->n + 1,
                       sizeof(*scan->objects)) ||
        !bt_array_grow(&scan->spaces, &scan->cap_spaces, scan->n + 1,
                       sizeof(*scan->spaces))) {
        goto err_free;
    }
    status = bt_store_file_open(&store->folder, store->folder.dir_fd, id, &fd,
                                object, scan->spaces[scan->n], scan->chunk);
    if (status != BT_OK) {
        goto err_free;
    }
    close(fd);
    object->refs = 1;
    memcpy(object->id, id, strlen(id) + 1);
    bt_list_init(&object->link);
    bt_list_init(&object->by_id);
    scan->objects[scan->n++] = object;
    return BT_OK;

err_free:
    bt_free(object);
    return status;
}

bool bt_store_names_id(const char *name, const char *ending,
                       char id[BT_STORE_ID_BYTES])
{
    const size_t n = strlen(name);
    bt_store_kind_t kind;

    if (!bt_ends_with(name, ending) ||
        (n - strlen(ending) >= BT_STORE_ID_BYTES)) {
        return false;
    }
    memcpy(id, name, n - strlen(ending));
    id[n - strlen(ending)] = '\0';
    return bt_store_id_kind(id, &kind);
}

/* A journal whose object is gone was about to be removed, too. */
static bt_status_t scan_journal(const bt_store_t *store, const char *name,
                                const char *id)
{
    const int dir_fd = store->folder.dir_fd;

    if ((faccessat(dir_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) != 0) &&
        (errno == ENOENT)) {
        BT_LOG_INFO(WHAT ": the journal of %s is removed with it", id);
        (void)unlinkat(dir_fd, name, 0);
    }
    return BT_OK;
}

static bt_status_t scan_entry(bt_store_t *store, const char *name, scan_t *scan)
{
    char id[BT_STORE_ID_BYTES] = "";
    bt_store_kind_t kind;
    bt_status_t status;

    if (bt_store_names_id(name, BT_STORE_JOURNAL, id)) {
        return scan_journal(store, name, id);
    }
    if (bt_store_names_id(name, BT_STORE_PART, id) ||
        bt_store_names_id(name, BT_STORE_JOURNAL BT_STORE_PART, id)) {
        BT_LOG_INFO(WHAT ": %s was not complete and is removed", id);
        (void)unlinkat(store->folder.dir_fd, name, 0);
        return BT_OK;
    }
    if (!bt_store_id_kind(name, &kind)) {
        scan->n_others += (strcmp(name, ".") != 0) &&
                          (strcmp(name, "..") != 0) &&
                          (strcmp(name, BT_STORE_LOCK) != 0) &&
                          (strcmp(name, BT_STORE_RESPONSES) != 0);
        return BT_OK;
    }
    status = scan_object(store, name, scan);
    if ((status == BT_OK) || (status == BT_ERR_NO_MEMORY)) {
        return status;
    }
    BT_LOG_WARN(WHAT ": %s is left alone: %s", name,
                (status == BT_ERR_CORRUPT)
                    ? "it is damaged, or of another key (--store-key)"
                    : bt_status_str(status));
    return BT_OK;
}

static int by_age(const void *a, const void *b, void *objects)
{
    bt_stored_t *const *all = objects;
    const uint64_t x = all[*(const uint32_t *)a]->created_us;
    const uint64_t y = all[*(const uint32_t *)b]->created_us;

    return (x > y) - (x < y);
}

/* Puts what was found into the index, the oldest first. More than there may be
 * are there after a kill before the files of evicted ones were removed, or
 * where files were copied into the folder. */
static bt_status_t add_scanned(bt_store_t *store, scan_t *scan)
{
    BT_CLEANUP(free) uint32_t *order = bt_calloc(scan->n + 1, sizeof(*order));
    const uint32_t n_over =
        (scan->n > store->limit_objects) ? scan->n - store->limit_objects : 0;

    if (order == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < scan->n; i++) {
        order[i] = i;
    }
    qsort_r(order, scan->n, sizeof(*order), by_age, scan->objects);
    if (n_over > 0) {
        BT_LOG_WARN(WHAT
                    ": there are %u objects more than the limit of %u; the "
                    "oldest are removed",
                    n_over, store->limit_objects);
    }
    for (uint32_t i = 0; i < n_over; i++) {
        bt_list_push_back(&store->evicted, &scan->objects[order[i]]->link);
        scan->objects[order[i]] = NULL;
        store->n_evicted++;
    }
    for (uint32_t i = n_over; i < scan->n; i++) {
        bt_stored_t *object = scan->objects[order[i]];
        bt_store_space_t *space =
            bt_store_space_get(store, scan->spaces[order[i]]);

        if (space == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        scan->objects[order[i]] = NULL;
        store->last_us = object->created_us;
        bt_store_add(store, space, object);
    }
    return BT_OK;
}

static bt_status_t scan_folder(bt_store_t *store, scan_t *scan)
{
    bt_status_t status = BT_OK;
    const int fd = dup(store->folder.dir_fd);
    BT_CLEANUP(closedir) DIR *dir = (fd >= 0) ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return BT_ERR_IO;
    }
    scan->chunk = bt_calloc(1, sizeof(*scan->chunk));
    if (scan->chunk == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    rewinddir(dir);
    while ((status == BT_OK) && ((entry = readdir(dir)) != NULL)) {
        status = scan_entry(store, entry->d_name, scan);
    }
    return (status == BT_OK) ? add_scanned(store, scan) : status;
}

static bt_status_t read_folder(bt_store_t *store, const char *path)
{
    scan_t scan = {0};
    const bt_status_t status = scan_folder(store, &scan);

    for (uint32_t i = 0; i < scan.n; i++) {
        bt_stored_unref(scan.objects[i]);
    }
    bt_free(scan.objects);
    bt_free(scan.spaces);
    bt_free(scan.chunk);
    if (status != BT_OK) {
        BT_LOG_ERROR(WHAT " %s cannot be read: %s", path,
                     bt_status_str(status));
    } else {
        BT_LOG_INFO(WHAT " %s: %u objects, %" PRIu64 " of %" PRIu64
                         " MiB%s; %u other files are left alone",
                    path, store->n_objects, store->used_bytes >> 20,
                    store->limit_bytes >> 20,
                    store->folder.has_key ? ", sealed" : "", scan.n_others);
    }
    return status;
}

bt_status_t bt_store_open(const bt_store_config_t *config, uint64_t now_us,
                          bt_store_t **store_p)
{
    bt_store_t *store = bt_calloc(1, sizeof(*store));
    char path[PATH_MAX];
    bt_status_t status;

    if (store == NULL) {
        BT_LOG_ERROR(WHAT ": out of memory");
        return BT_ERR_NO_MEMORY;
    }
    store->folder.dir_fd = store->folder.lock_fd = -1;
    store->folder.shared_fd = -1;
    store->limit_bytes = config->limit_bytes;
    store->space_bytes = config->space_bytes;
    store->ttl_s = config->ttl_s;
    store->limit_objects = (config->limit_objects > 0) ? config->limit_objects
                                                       : BT_STORE_MAX_OBJECTS;
    store->has_spaces = config->has_spaces;
    BT_ASSERT(store->limit_objects <= BT_STORE_MAX_OBJECTS);
    store->last_us = now_us;
    store->look_s = UINT64_MAX;
    store->sweep_s = now_us / 1000000 + sweep_period_s(store);
    bt_list_init(&store->spaces);
    bt_list_init(&store->leaving);
    bt_list_init(&store->evicted);
    bt_list_init(&store->ended);
    bt_list_init(&store->parts);
    store->buckets = bt_calloc(BT_STORE_MAX_OBJECTS, sizeof(*store->buckets));
    if (store->buckets == NULL) {
        BT_LOG_ERROR(WHAT ": out of memory");
        status = BT_ERR_NO_MEMORY;
        goto err_close;
    }
    bt_hmap_init(&store->by_id, store->buckets, BT_STORE_MAX_OBJECTS);
    if (config->path[0] == '\0') {
        *store_p = store;
        return BT_OK;
    }
    if ((status = read_key(config, &store->folder)) != BT_OK ||
        (status = open_shared(config, &store->folder, path)) != BT_OK ||
        (status = open_own(&store->folder, path)) != BT_OK ||
        (status = read_folder(store, path)) != BT_OK) {
        goto err_close;
    }
    *store_p = store;
    return BT_OK;

err_close:
    bt_store_close(store);
    return status;
}

bt_status_t bt_store_check(const bt_store_config_t *config)
{
    bt_store_folder_t folder = {.dir_fd = -1};
    bt_status_t status = read_key(config, &folder);

    bt_key_wipe(folder.key, sizeof(folder.key));
    if (status == BT_OK) {
        status = open_folder(config->path, false, &folder.dir_fd);
        status = (status == BT_ERR_NOT_FOUND) ? BT_OK : status;
    }
    if (folder.dir_fd >= 0) {
        close(folder.dir_fd);
    }
    return status;
}

void bt_store_close(bt_store_t *store)
{
    if (store == NULL) {
        return;
    }
    BT_ASSERT(store->n_puts == 0);
    BT_LIST_FOR_EACH_ENTRY(bt_stored_t, object, &store->evicted, link) {
        (void)unlink_files(store, store->folder.dir_fd,
                           object); /* else it expires */
    }
    bt_store_free_all(&store->evicted);
    bt_store_free_all(&store->leaving);
    bt_store_free_puts(&store->ended);
    bt_store_free_puts(&store->parts);
    bt_store_sweep_end(store->sweep);
    BT_LIST_FOR_EACH_ENTRY(bt_store_space_t, space, &store->spaces, link) {
        BT_LIST_FOR_EACH_ENTRY(bt_stored_t, object, &space->objects, link) {
            bt_list_remove(&object->link);
            bt_stored_unref(object);
        }
        bt_free(space);
    }
    close_own(&store->folder);
    if (store->folder.shared_fd >= 0) {
        close(store->folder.shared_fd);
    }
    bt_key_wipe(store->folder.key, sizeof(store->folder.key));
    bt_free(store->buckets);
    bt_free(store);
}
