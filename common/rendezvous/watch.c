/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rendezvous/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

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
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BT_WATCH_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (watch->n_users > 1) {
            (void)pthread_cond_timedwait(&watch->ends, &watch->mutex, &until);
        }
    }
    unref(watch);
    return NULL;
}

static void init_locks(bt_rendezvous_watch_t *watch)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->ends, &attr);
    pthread_condattr_destroy(&attr);
}

bt_status_t bt_rendezvous_watch_open(const char *dir,
                                     bt_rendezvous_watch_t **watch_p)
{
    bt_rendezvous_watch_t *watch = bt_calloc(1, sizeof(*watch));

    if (watch == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(watch->dir, sizeof(watch->dir), "%s", dir);
    init_locks(watch);
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
