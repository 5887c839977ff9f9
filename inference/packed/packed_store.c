/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/packed/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#define STUCK_MS     30000u
#define POLL_NS      5000000L
#define MAX_ROUNDS   100
#define USED_AFTER_S 86400 /* resolution of the time of the last use */
#define NAME_BYTES   64

/* Throughput of a slow disk: 200 MB/s. */
#define SETTLED_BYTES_PER_MS 200000u

#define WHY_BYTES 256

/* A more recent stamp could be that of a later write, too: the clock has
 * ticks. */
#define YOUNG_NS INT64_C(100000000)

struct bt_packed_store {
    void *map;
    bt_packed_file_t file;
    char *dir, *name; /* owned; NULL: the file stays */
    int mark;         /* with name */
    bool built;
};

/* State of one call of open. */
typedef struct opening {
    const bt_packed_config_t *config;
    bt_packed_key_t key;
    bt_packed_origin_t origin; /* the model file as it is now */
    bool has_content;          /* origin.content was computed */
    char name[NAME_BYTES];
    char path[PATH_MAX];
    char new_path[PATH_MAX];
    char why[WHY_BYTES];
} opening_t;

static bt_status_t fail(opening_t *o, bt_status_t status, const char *text)
{
    snprintf(o->why, sizeof(o->why), "%s", text);
    return status;
}

static bt_status_t fail_errno(opening_t *o, int error)
{
    errno = error;
    snprintf(o->why, sizeof(o->why), "%m");
    return BT_ERR_IO;
}

static bt_hash128_t content(opening_t *o)
{
    if (!o->has_content) {
        o->origin.content = bt_gguf_content(o->config->gguf);
        o->has_content = true;
    }
    return o->origin.content;
}

/* Reads inode and times of the model file; zeros when they cannot be relied
 * on. */
static void stamp(const bt_gguf_t *gguf, bt_packed_origin_t *origin)
{
    struct timespec now;
    bt_gguf_stamp_t s;

    origin->inode = 0;
    origin->mtime_ns = 0;
    origin->ctime_ns = 0;
    if ((bt_gguf_stamp(gguf, &s) != BT_OK) ||
        (s.bytes != bt_gguf_bytes(gguf)) ||
        (clock_gettime(CLOCK_REALTIME, &now) != 0) ||
        ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec - s.ctime_ns <
         YOUNG_NS)) {
        return;
    }
    origin->inode = s.inode;
    origin->mtime_ns = s.mtime_ns;
    origin->ctime_ns = s.ctime_ns;
}

static bool same_stamp(const bt_packed_origin_t *a, const bt_packed_origin_t *b)
{
    return (a->inode == b->inode) && (a->mtime_ns == b->mtime_ns) &&
           (a->ctime_ns == b->ctime_ns);
}

static bool same_model(opening_t *o, const bt_packed_origin_t *built)
{
    bt_hash128_t now;

    if ((o->origin.inode != 0) && same_stamp(&o->origin, built)) {
        return true;
    }
    now = content(o);
    return bt_hash128_equal(now, built->content);
}

/* Checks that no other user can write the file. */
static bool trusted(const struct stat *st)
{
    return S_ISREG(st->st_mode) &&
           ((st->st_uid == geteuid()) || (st->st_uid == 0)) &&
           ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0);
}

static bt_status_t check(opening_t *o, bt_packed_store_t *store, size_t bytes)
{
    bt_status_t status = bt_packed_check(store->map, bytes, o->why,
                                         sizeof(o->why), &store->file);

    if (status != BT_OK) {
        return status;
    }
    if (!bt_packed_key_equal(&store->file.head->key, &o->key)) {
        return fail(o, BT_ERR_MISMATCH,
                    "it is of another model or another layout");
    }
    if (!same_model(o, &store->file.head->origin)) {
        return fail(o, BT_ERR_MISMATCH, "the model file was changed");
    }
    status = bt_packed_verify(&store->file, o->config->n_threads);
    if (status != BT_OK) {
        return fail(o, status, "its data do not match their checksums");
    }
    if (!o->config->complete(o->config->ctx, &store->file)) {
        return fail(o, BT_ERR_MISMATCH, "a matrix is missing from it");
    }
    return BT_OK;
}

/* Records the time of the last use in the file's mtime. */
static void note_use(int fd, const struct stat *st)
{
    if (st->st_mtim.tv_sec < time(NULL) - USED_AFTER_S) {
        (void)futimens(fd, NULL); /* unchanged on a read-only file system */
    }
}

static uint64_t stuck_ms(const opening_t *o)
{
    return (o->config->stuck_ms == 0) ? STUCK_MS : o->config->stuck_ms;
}

/* Waits for large pages as long as another process may take to read all of the
 * file, and no longer. Without them the content is equal. */
static void settle(const opening_t *o, bt_packed_store_t *store, int fd)
{
    const uint64_t wait_ms =
        stuck_ms(o) + store->file.bytes / SETTLED_BYTES_PER_MS;

    if (!bt_packed_pages_settle(store->map, fd, store->file.bytes, wait_ms)) {
        BT_LOG_WARN("packed weights %s: another process, stopped perhaps, has "
                    "held their lock for %" PRIu64
                    " ms; used without large pages",
                    o->path, wait_ms);
    }
}

/*
 * Maps the file if it exists and fits.
 * @retval BT_ERR_NOT_FOUND, BT_ERR_NO_MEMORY, BT_ERR_IO
 * @retval BT_ERR_BAD_FILE, BT_ERR_CORRUPT, BT_ERR_MISMATCH  to be replaced
 */
static bt_status_t try_map(opening_t *o, bt_packed_store_t **store_p)
{
    BT_CLEANUP(close)
    int fd = open(o->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bt_packed_store_t *store = NULL;
    bt_status_t status;
    struct stat st;

    if (fd < 0) {
        return (errno == ENOENT) ? fail(o, BT_ERR_NOT_FOUND, "it is not there")
               : (errno == ELOOP)
                   ? fail(o, BT_ERR_BAD_FILE, "it is a symbolic link")
                   : fail_errno(o, errno);
    }
    if ((fstat(fd, &st) != 0) || !trusted(&st)) {
        return fail(o, BT_ERR_BAD_FILE, "it is not this user's own file");
    }
    if (st.st_size < (off_t)BT_PACKED_DATA_AT) {
        return fail(o, BT_ERR_BAD_FILE, "it is too short");
    }
    store = bt_calloc(1, sizeof(*store));
    if (store == NULL) {
        return fail(o, BT_ERR_NO_MEMORY, "out of memory");
    }
    store->map = bt_packed_pages_map(fd, (size_t)st.st_size);
    if (store->map == NULL) {
        bt_free(store);
        return fail_errno(o, errno);
    }
    store->file.bytes = (size_t)st.st_size;
    settle(o, store, fd);
    status = check(o, store, (size_t)st.st_size);
    if (status != BT_OK) {
        bt_packed_store_close(store);
        return status;
    }
    note_use(fd, &st);
    *store_p = store;
    return BT_OK;
}

/* Waits for the lock as long as its holder makes progress. */
static bt_status_t wait_for_lock(opening_t *o, int fd)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t since = bt_now_ms();
    off_t size = -1;
    struct stat st;

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EWOULDBLOCK) {
            return fail_errno(o, errno);
        }
        if (size < 0) {
            BT_LOG_INFO("packed weights %s: another process builds them; "
                        "waiting for it",
                        o->path);
        }
        if ((fstat(fd, &st) == 0) && (st.st_size != size)) {
            size = st.st_size;
            since = bt_now_ms();
        }
        if (bt_now_ms() - since >= stuck_ms(o)) {
            return fail(o, BT_ERR_TIMED_OUT,
                        "another process builds them and does not get on");
        }
        nanosleep(&pause, NULL);
    }
    return BT_OK;
}

/*
 * Takes the lock of NAME.packed.new.
 * @retval BT_INPROGRESS  The previous holder has renamed the file: look again.
 */
static bt_status_t lock_new(opening_t *o, int *fd_p)
{
    BT_CLEANUP(close)
    int fd = open(o->new_path,
                  O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    bt_status_t status;
    struct stat mine;
    struct stat named;

    if ((fd < 0) || (fstat(fd, &mine) != 0)) {
        return fail_errno(o, errno);
    }
    if (!trusted(&mine)) {
        return fail_errno(o, EPERM);
    }
    status = wait_for_lock(o, fd);
    if (status != BT_OK) {
        return status;
    }
    if ((stat(o->new_path, &named) != 0) || (named.st_ino != mine.st_ino) ||
        (named.st_dev != mine.st_dev)) {
        return BT_INPROGRESS;
    }
    *fd_p = fd;
    fd = -1;
    return BT_OK;
}

static bt_status_t write_pieces(opening_t *o, bt_packed_writer_t *writer)
{
    const bt_packed_config_t *const config = o->config;
    bt_gguf_stamp_t before = {0};
    bt_gguf_stamp_t after = {0};
    const bool is_file = (bt_gguf_stamp(config->gguf, &before) == BT_OK);
    bt_status_t status;

    status = bt_packed_writer_reserve(writer, config->expect_bytes);
    if (status != BT_OK) {
        return status;
    }
    /* Before packing: a change of the model file after this line shows at the
     * next start, even one that its times do not reveal. */
    o->has_content = false;
    (void)content(o);
    stamp(config->gguf, &o->origin);
    status = config->build(config->ctx, writer);
    if (status != BT_OK) {
        return status;
    }
    if (is_file &&
        ((bt_gguf_stamp(config->gguf, &after) != BT_OK) ||
         (after.bytes != before.bytes) || (after.mtime_ns != before.mtime_ns) ||
         (after.ctime_ns != before.ctime_ns))) {
        return fail(o, BT_ERR_IO, "the model file was changed meanwhile");
    }
    return bt_packed_writer_finish(writer, &o->key, &o->origin);
}

/* Writes the locked, stale or empty file and gives it its name. */
static bt_status_t build(opening_t *o, int fd)
{
    bt_packed_writer_t writer;
    bt_status_t status = bt_packed_writer_init(&writer, fd);

    o->why[0] = '\0';
    if (status != BT_OK) {
        unlink(o->new_path);
        return fail(o, status, "out of memory");
    }
    writer.on_step = o->config->on_step;
    writer.ctx = o->config->ctx;
    bt_packed_writer_step(&writer);
    if (ftruncate(fd, 0) != 0) {
        status = fail_errno(o, errno);
    } else {
        status = write_pieces(o, &writer);
    }
    bt_packed_writer_step(&writer);
    if (status == BT_OK) {
        if ((fchmod(fd, 0400) != 0) || (fsync(fd) != 0)) {
            status = fail_errno(o, errno);
        }
        bt_packed_writer_step(&writer);
    }
    if ((status == BT_OK) && (rename(o->new_path, o->path) != 0)) {
        status = fail_errno(o, errno);
    }
    if (status != BT_OK) {
        unlink(o->new_path);
        if (writer.error != 0) {
            (void)fail_errno(o, writer.error);
        } else if (o->why[0] == '\0') {
            (void)fail(o, status, bt_status_str(status));
        }
    }
    bt_packed_writer_step(&writer);
    bt_packed_writer_fini(&writer);
    return status;
}

/* With the lock held, checks whether another process was faster; otherwise
 * builds. */
static bt_status_t build_locked(opening_t *o, int fd, bool *built_p,
                                bt_packed_store_t **store_p)
{
    bt_status_t status = try_map(o, store_p);

    if (status == BT_OK) {
        unlink(o->new_path);
        return BT_OK;
    }
    if ((status == BT_ERR_NO_MEMORY) || (status == BT_ERR_IO)) {
        unlink(o->new_path);
        return status;
    }
    if (status != BT_ERR_NOT_FOUND) {
        BT_LOG_WARN("packed weights %s: %s; building them again", o->path,
                    o->why);
    }
    status = build(o, fd);
    if (status != BT_OK) {
        return status;
    }
    *built_p = true;
    bt_packed_dir_clear(o->config->dir, o->name, (int64_t)time(NULL));
    /* Maps it with all checks of other processes, and the lock of the file. */
    (void)flock(fd, LOCK_UN);
    return try_map(o, store_p);
}

static bt_status_t find_or_build(opening_t *o, bool *built_p,
                                 bt_packed_store_t **store_p)
{
    bt_status_t status = BT_INPROGRESS;

    for (int round = 0; (round < MAX_ROUNDS) && (status == BT_INPROGRESS);
         round++) {
        int fd = -1;
        int error;

        status = try_map(o, store_p);
        if ((status == BT_OK) || (status == BT_ERR_NO_MEMORY)) {
            return status;
        }
        error = bt_packed_dir_make(o->config->dir);
        if (error != 0) {
            return fail_errno(o, error);
        }
        status = lock_new(o, &fd);
        if (status == BT_OK) {
            status = build_locked(o, fd, built_p, store_p);
            close(fd);
        }
    }
    return (status == BT_INPROGRESS)
               ? fail(o, BT_ERR_TIMED_OUT, "others come and go without result")
               : status;
}

static bt_status_t begin(opening_t *o, const bt_packed_config_t *config)
{
    bt_hash128_t hash;
    int n;

    memset(o, 0, sizeof(*o));
    o->config = config;
    strncpy(o->key.profile, config->profile, sizeof(o->key.profile) - 1);
    o->key.pack_version = config->pack_version;
    o->key.model_bytes = bt_gguf_bytes(config->gguf);
    o->key.model_id = bt_gguf_identity(config->gguf);
    stamp(config->gguf, &o->origin);
    hash = bt_hash128(&o->key, sizeof(o->key), 0);
    snprintf(o->name, sizeof(o->name), "%016" PRIx64 "%016" PRIx64 ".packed",
             hash.hi, hash.lo);
    n = snprintf(o->path, sizeof(o->path), "%s/%s", config->dir, o->name);
    if ((n < 0) || ((size_t)n >= sizeof(o->path))) {
        return fail_errno(o, ENAMETOOLONG);
    }
    n = snprintf(o->new_path, sizeof(o->new_path), "%s.new", o->path);
    if ((n < 0) || ((size_t)n >= sizeof(o->new_path))) {
        return fail_errno(o, ENAMETOOLONG);
    }
    return BT_OK;
}

/* Has the file removed with the store. */
static void be_temporary(const opening_t *o, bt_packed_store_t *store, int mark)
{
    store->dir = bt_strdup(o->config->dir);
    store->name = bt_strdup(o->name);
    store->mark = mark;
    if ((store->dir == NULL) || (store->name == NULL)) {
        BT_LOG_WARN("packed weights %s stay when they are not needed: out of "
                    "memory",
                    o->path);
        bt_free(store->name);
        store->name = NULL;
        bt_packed_unmark(o->config->dir, o->name, mark);
    }
}

static void remove_temporary(const bt_packed_store_t *store)
{
    char path[PATH_MAX];

    if (store->name != NULL) {
        snprintf(path, sizeof(path), "%s/%s", store->dir, store->name);
        (void)unlink(path); /* another process may have done so */
        bt_packed_unmark(store->dir, store->name, store->mark);
    }
}

bt_status_t bt_packed_store_open(const bt_packed_config_t *config,
                                 bt_packed_store_t **store_p)
{
    const uint64_t start_ms = bt_now_ms();
    bt_packed_store_t *store = NULL;
    opening_t *const o = bt_calloc(1, sizeof(*o));
    bool built = false;
    int mark = -1;
    bt_status_t status;

    if (o == NULL) {
        BT_LOG_WARN("packed weights cannot be kept in %s: out of memory; this "
                    "process has its own copy",
                    config->dir);
        return BT_ERR_NO_MEMORY;
    }
    status = begin(o, config);
    if ((status == BT_OK) && config->is_temporary &&
        (bt_packed_dir_make(config->dir) == 0)) {
        mark = bt_packed_mark(config->dir, o->name);
    }
    if (status == BT_OK) {
        bt_packed_dir_sweep(config->dir);
        status = find_or_build(o, &built, &store);
    }
    if ((status == BT_OK) && config->is_temporary) {
        be_temporary(o, store, mark);
    } else if (status == BT_OK) {
        bt_packed_keep(config->dir, o->name);
    } else {
        bt_packed_unmark(config->dir, o->name, mark);
    }
    if (status == BT_OK) {
        store->built = built;
        BT_LOG_INFO("packed weights %s, %zu MiB: %s in %u ms", o->path,
                    store->file.bytes >> 20,
                    built ? "built" : "found and verified",
                    (unsigned)(bt_now_ms() - start_ms));
        *store_p = store;
    } else {
        BT_LOG_WARN("packed weights cannot be kept in %s: %s; this process has "
                    "its own copy",
                    config->dir, o->why);
    }
    bt_free(o);
    return status;
}

void bt_packed_store_close(bt_packed_store_t *store)
{
    if (store != NULL) {
        remove_temporary(store);
        munmap(store->map, store->file.bytes);
        bt_free(store->dir);
        bt_free(store->name);
        bt_free(store);
    }
}

const bt_packed_file_t *bt_packed_store_file(const bt_packed_store_t *store)
{
    return &store->file;
}

bool bt_packed_store_built(const bt_packed_store_t *store)
{
    return store->built;
}
