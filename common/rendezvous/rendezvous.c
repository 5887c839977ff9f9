/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rendezvous/rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/thread.h"

#define SUFFIX ".router"

bool bt_rendezvous_is_url(const char *url)
{
    const bool is_path = strncmp(url, "ipc:///", 7) == 0;
    const size_t n = strlen(url);
    const char *port;

    if ((n == 0) || (n >= BT_RENDEZVOUS_URL_BYTES)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)url[i];

        if ((c < ' ') || (c == 0x7f) ||
            (!is_path && ((c == ' ') || (c > '~')))) {
            return false;
        }
    }
    if (is_path) {
        return true;
    }
    port = strrchr(url, ':');
    return (strncmp(url, "tcp://", 6) == 0) && (port > url + 6) &&
           (port[1] != '\0') && (strcmp(port, ":0") != 0) &&
           (strncmp(url + 6, "0.0.0.0:", 8) != 0) && (url[6] != '*') &&
           (strncmp(url + 6, "[::]:", 5) != 0);
}

/* @return false: the write failed, and errno says why */
static bool write_file(const char *path, const char *url)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    char line[BT_RENDEZVOUS_URL_BYTES + 1];
    const int n = snprintf(line, sizeof(line), "%s\n", url);
    bool ok;

    if (fd < 0) {
        return false;
    }
    ok = (write(fd, line, (size_t)n) == (ssize_t)n) && (fsync(fd) == 0);
    return (close(fd) == 0) && ok;
}

bt_status_t bt_rendezvous_publish(const char *dir, const char *url,
                                  bt_rendezvous_t *entry_p)
{
    const uint64_t hash = bt_hash64(url, strlen(url), 0);
    char fresh[BT_RENDEZVOUS_PATH_BYTES];
    char path[BT_RENDEZVOUS_PATH_BYTES];
    char host[64] = "";
    int error;

    if (!bt_rendezvous_is_url(url)) {
        return BT_ERR_INVALID_PARAM;
    }
    /* Another host's process may have our number. */
    (void)gethostname(host, sizeof(host) - 1);
    if (((size_t)snprintf(fresh, sizeof(fresh), "%s/.%016" PRIx64 ".%s.%ld",
                          dir, hash, host, (long)getpid()) >= sizeof(fresh)) ||
        ((size_t)snprintf(path, sizeof(path), "%s/%016" PRIx64 SUFFIX, dir,
                          hash) >= sizeof(path))) {
        return BT_ERR_INVALID_PARAM;
    }
    if (!write_file(fresh, url) || (rename(fresh, path) != 0)) {
        error = errno;
        (void)unlink(fresh);
        errno = error;
        return BT_ERR_IO;
    }
    memcpy(entry_p->path, path, sizeof(path));
    snprintf(entry_p->url, sizeof(entry_p->url), "%s", url);
    return BT_OK;
}

void bt_rendezvous_withdraw(bt_rendezvous_t *entry)
{
    if (entry->path[0] != '\0') {
        (void)unlink(entry->path);
        entry->path[0] = '\0';
    }
}

/* @return false: it says no URL */
static bool read_file(int dir_fd, const char *name,
                      char url[BT_RENDEZVOUS_URL_BYTES])
{
    /* A pipe must not block us. */
    const int fd =
        openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0) {
        return false;
    }
    n = read(fd, url, BT_RENDEZVOUS_URL_BYTES);
    (void)close(fd);
    if ((n < 2) || (url[n - 1] != '\n')) {
        return false;
    }
    url[n - 1] = '\0';
    return (strlen(url) == (size_t)n - 1) && bt_rendezvous_is_url(url);
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_ours(const char *name)
{
    return (name[0] != '.') && bt_ends_with(name, SUFFIX);
}

bt_status_t bt_rendezvous_scan(const char *dir, bt_rendezvous_list_t *list_p)
{
    BT_CLEANUP(closedir) DIR *const folder = opendir(dir);
    char url[BT_RENDEZVOUS_URL_BYTES];
    const struct dirent *entry;

    if (folder == NULL) {
        return BT_ERR_IO;
    }
    memset(list_p, 0, sizeof(*list_p));
    while ((entry = readdir(folder)) != NULL) {
        if (!is_ours(entry->d_name)) {
            continue;
        }
        if (!read_file(dirfd(folder), entry->d_name, url) ||
            (list_p->n == BT_RENDEZVOUS_MAX)) {
            list_p->n_passed++;
            continue;
        }
        /* Nothing behind its end: lists are compared whole. */
        memcpy(list_p->urls[list_p->n++], url, strlen(url));
    }
    qsort(list_p->urls, list_p->n, sizeof(list_p->urls[0]), compare);
    return BT_OK;
}

#define END_S 1 /* for a look that is under way, at the end */

struct bt_rendezvous_watch {
    char dir[BT_RENDEZVOUS_PATH_BYTES];
    bt_rendezvous_list_t scanned; /* the thread's */
    bool unreadable;              /* the thread's */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ends;
    /* under the mutex */
    bt_rendezvous_list_t list;
    bool fresh;
    uint32_t n_users; /* owner and thread: the last one frees */
};

/* Called with the mutex, which is over with it. */
static void unref(bt_rendezvous_watch_t *watch)
{
    const bool last = --watch->n_users == 0;

    pthread_mutex_unlock(&watch->mutex);
    if (last) {
        pthread_cond_destroy(&watch->ends);
        pthread_mutex_destroy(&watch->mutex);
        bt_free(watch);
    }
}

static bool scan(bt_rendezvous_watch_t *watch)
{
    if (bt_rendezvous_scan(watch->dir, &watch->scanned) == BT_OK) {
        watch->unreadable = false;
        return true;
    }
    if (!watch->unreadable) {
        watch->unreadable = true;
        BT_LOG_WARN("join directory %s: %m; the known routers are kept",
                    watch->dir);
    }
    return false;
}

static void *run(void *ctx)
{
    bt_rendezvous_watch_t *watch = ctx;
    struct timespec until;

    pthread_mutex_lock(&watch->mutex);
    while (watch->n_users > 1) {
        bool known;

        pthread_mutex_unlock(&watch->mutex);
        known = scan(watch);
        pthread_mutex_lock(&watch->mutex);
        if (known &&
            (memcmp(&watch->scanned, &watch->list, sizeof(watch->list)) != 0)) {
            watch->list = watch->scanned;
            watch->fresh = true;
        }
        bt_thread_deadline(BT_WATCH_MS, &until);
        if (watch->n_users > 1) {
            (void)pthread_cond_timedwait(&watch->ends, &watch->mutex, &until);
        }
    }
    unref(watch);
    return NULL;
}

bt_status_t bt_rendezvous_watch_open(const char *dir,
                                     bt_rendezvous_watch_t **watch_p)
{
    bt_rendezvous_watch_t *watch = bt_calloc(1, sizeof(*watch));

    if (watch == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(watch->dir, sizeof(watch->dir), "%s", dir);
    pthread_mutex_init(&watch->mutex, NULL);
    bt_thread_cond_init(&watch->ends);
    watch->n_users = 2;
    if (pthread_create(&watch->thread, NULL, run, watch) != 0) {
        pthread_mutex_lock(&watch->mutex);
        watch->n_users = 1;
        unref(watch);
        return BT_ERR_NO_MEMORY;
    }
    *watch_p = watch;
    return BT_OK;
}

bool bt_rendezvous_watch_take(bt_rendezvous_watch_t *watch,
                              bt_rendezvous_list_t *list_p)
{
    bool fresh;

    pthread_mutex_lock(&watch->mutex);
    fresh = watch->fresh;
    if (fresh) {
        *list_p = watch->list;
        watch->fresh = false;
    }
    pthread_mutex_unlock(&watch->mutex);
    return fresh;
}

void bt_rendezvous_watch_close(bt_rendezvous_watch_t *watch)
{
    struct timespec until;
    pthread_t thread;

    if (watch == NULL) {
        return;
    }
    thread = watch->thread;
    pthread_mutex_lock(&watch->mutex);
    pthread_cond_signal(&watch->ends);
    unref(watch);
    /* It ends at once, unless the file system hangs. */
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (pthread_timedjoin_np(thread, NULL, &until) != 0) {
        (void)pthread_detach(thread);
    }
}
