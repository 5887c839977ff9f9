/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_warmer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/thread.h"

struct bt_kvt_warmer {
    pthread_t thread;
    int fd; /* eventfd: something changed for the thread */
    bt_kvt_warm_t warm;
    bt_kvt_pages_t pages;    /* used by the thread only */
    _Atomic uint64_t wanted; /* large pages from the front */
    _Atomic uint64_t done;
    atomic_bool over; /* all is done, or nothing more is possible */
    atomic_bool stop;
};

static void wake(const bt_kvt_warmer_t *warmer)
{
    /* Cannot fail: the count never comes near its limit. */
    (void)!eventfd_write(warmer->fd, 1);
}

/* In small steps, so that stop() does not wait long. */
static void warm_wanted(bt_kvt_warmer_t *warmer)
{
    while (!atomic_load(&warmer->stop) && !atomic_load(&warmer->over) &&
           (warmer->pages.n_asked < atomic_load(&warmer->wanted))) {
        warmer->warm(&warmer->pages,
                     (warmer->pages.n_asked + 1) * BT_KVT_PAGE_BYTES);
        atomic_store(&warmer->done, warmer->pages.n_asked);
        if (warmer->pages.n_asked == warmer->pages.n) {
            atomic_store(&warmer->over, true);
        }
    }
}

static void *warmer_main(void *arg)
{
    bt_kvt_warmer_t *warmer = arg;
    eventfd_t n;

    while (!atomic_load(&warmer->stop)) {
        (void)!eventfd_read(warmer->fd, &n);
        warm_wanted(warmer);
    }
    return NULL;
}

bt_status_t bt_kvt_warmer_start(const bt_kvt_pages_t *pages, bt_kvt_warm_t warm,
                                bt_kvt_warmer_t **warmer_p)
{
    bt_kvt_warmer_t *warmer = bt_calloc(1, sizeof(*warmer));

    if (warmer == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    warmer->pages = *pages;
    warmer->warm = warm;
    atomic_init(&warmer->over, pages->n_asked == pages->n);
    warmer->fd = eventfd(0, EFD_CLOEXEC);
    if (warmer->fd < 0) {
        goto err_warmer;
    }
    if (bt_thread_start(&warmer->thread, warmer_main, warmer) != 0) {
        goto err_fd;
    }
    *warmer_p = warmer;
    return BT_OK;

err_fd:
    close(warmer->fd);
err_warmer:
    bt_free(warmer);
    return BT_ERR_NO_MEMORY;
}

void bt_kvt_warmer_stop(bt_kvt_warmer_t *warmer)
{
    if (warmer == NULL) {
        return;
    }
    atomic_store(&warmer->stop, true);
    wake(warmer);
    pthread_join(warmer->thread, NULL);
    close(warmer->fd);
    bt_free(warmer);
}

void bt_kvt_warmer_use(bt_kvt_warmer_t *warmer, uint64_t bytes)
{
    const uint64_t n = (bytes + BT_KVT_PAGE_BYTES - 1) / BT_KVT_PAGE_BYTES;

    if (n > atomic_load_explicit(&warmer->wanted, memory_order_relaxed)) {
        atomic_store(&warmer->wanted, n);
        wake(warmer);
    }
}

bool bt_kvt_warmer_more(bt_kvt_warmer_t *warmer)
{
    const uint64_t done = atomic_load(&warmer->done);

    if (atomic_load(&warmer->over)) {
        return false;
    }
    if (done >= atomic_load(&warmer->wanted)) {
        atomic_store(&warmer->wanted, done + 1);
        wake(warmer);
    }
    return true;
}
