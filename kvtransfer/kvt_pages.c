/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/thread.h"

/* From Linux 5.14 and 6.1, which may be newer than the headers. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Large pages per call. Each call waits until every core has run some kernel
 * work: 6 ms if all are busy, while a page takes 0.1 ms. */
#define STEP 32

void *bt_kvt_pages_reserve(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t wanted = (bytes + page - 1) / page * page;
    const size_t all = wanted + BT_KVT_PAGE_BYTES;
    uint8_t *area =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (area == MAP_FAILED) {
        return NULL;
    }
    before = -(uintptr_t)area % BT_KVT_PAGE_BYTES;
    if (before > 0) {
        munmap(area, before);
    }
    if (before < BT_KVT_PAGE_BYTES) {
        munmap(area + before + wanted, BT_KVT_PAGE_BYTES - before);
    }
    return area + before;
}

/* Small pages checked, and allocated, per call. */
#define TAKEN_AT_ONCE 512

/* Writes a zero into each missing page through the kernel, which returns EFAULT
 * where a store would end in SIGBUS. In an order of its own; @a n is at most
 * TAKEN_AT_ONCE. */
static bt_status_t take_missing(uint8_t *first, const unsigned char *there,
                                size_t n, size_t page, int zero)
{
    struct iovec missing[TAKEN_AT_ONCE];
    int n_missing = 0;
    ssize_t taken;

    for (size_t i = 0; i < n; i++) {
        if ((there[i] & 1u) == 0) {
            missing[n_missing++] =
                (struct iovec){.iov_base = first + i * page, .iov_len = 1};
        }
    }
    if (n_missing == 0) {
        return BT_OK;
    }
    do {
        taken = readv(zero, missing, n_missing);
    } while ((taken < 0) && (errno == EINTR));
    return (taken == n_missing) ? BT_OK : BT_ERR_NO_MEMORY;
}

bt_status_t bt_kvt_pages_take(void *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t all = (bytes + page - 1) / page;
    bt_status_t status = BT_OK;
    BT_CLEANUP(close)
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    if (zero < 0) {
        return BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; (i < all) && (status == BT_OK); i += TAKEN_AT_ONCE) {
        const size_t n = (all - i < TAKEN_AT_ONCE) ? all - i : TAKEN_AT_ONCE;
        uint8_t *const first = (uint8_t *)base + i * page;
        unsigned char there[TAKEN_AT_ONCE];

        status = (mincore(first, n * page, there) == 0)
                     ? take_missing(first, there, n, page, zero)
                     : BT_ERR_NO_MEMORY;
    }
    return status;
}

bt_kvt_pages_t bt_kvt_pages_of(void *base, size_t bytes)
{
    if ((uintptr_t)base % BT_KVT_PAGE_BYTES != 0) {
        return (bt_kvt_pages_t){0};
    }
    return (bt_kvt_pages_t){.base = base, .n = bytes / BT_KVT_PAGE_BYTES};
}

/* Asks the kernel: a load from a full file system ends in SIGBUS. */
static bool has_something(uint8_t *page)
{
    return madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_POPULATE_READ) ==
           0;
}

static void next_ask(bt_kvt_pages_t *pages, size_t n)
{
    uint8_t *const first = pages->base + pages->n_asked * BT_KVT_PAGE_BYTES;
    bool here = true;

    /* A large page without any small page would be refused. */
    for (size_t i = 0; here && (i < n); i++) {
        here = has_something(first + i * BT_KVT_PAGE_BYTES);
    }
    pages->n_asked += n;
    if (!here || ((madvise(first, n * BT_KVT_PAGE_BYTES, MADV_COLLAPSE) != 0) &&
                  (errno == EINVAL))) {
        *pages = (bt_kvt_pages_t){0}; /* not supported, or not enough memory */
    }
}

void bt_kvt_pages_ready(bt_kvt_pages_t *pages, uint64_t bytes)
{
    size_t wanted =
        (size_t)((bytes + BT_KVT_PAGE_BYTES - 1) / BT_KVT_PAGE_BYTES);

    if (wanted > pages->n_asked) {
        wanted += STEP;
        wanted = (wanted < pages->n) ? wanted : pages->n;
    }
    if (wanted > pages->n_asked) {
        next_ask(pages, wanted - pages->n_asked);
    }
}

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

/* Works in small steps, so that stop() does not wait long. */
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

void bt_kvt_aside_init(bt_kvt_aside_t *aside)
{
    *aside = (bt_kvt_aside_t){.away = false};
    bt_list_init(&aside->writers);
}

void bt_kvt_writer_init(bt_kvt_writer_t *writer)
{
    bt_list_init(&writer->link);
    writer->cpu = 0;
}

uint32_t bt_kvt_aside_here(void)
{
    const int cpu = sched_getcpu();

    return (cpu < 0) ? 0 : (uint32_t)cpu + 1;
}

bool bt_kvt_aside_choose(const bt_kvt_aside_t *aside, const cpu_set_t *allowed,
                         cpu_set_t *set_p)
{
    cpu_set_t set = *allowed;

    BT_LIST_FOR_EACH_ENTRY(bt_kvt_writer_t, writer, &aside->writers, link) {
        CPU_CLR(writer->cpu - 1, &set);
    }
    if ((CPU_COUNT(&set) == 0) || CPU_EQUAL(&set, allowed)) {
        return false;
    }
    *set_p = set;
    return true;
}

static void come_back(bt_kvt_aside_t *aside)
{
    if (aside->away) {
        /* Fails if these were taken from the process meanwhile: then the kernel
         * has chosen others. */
        (void)sched_setaffinity(0, sizeof(aside->before), &aside->before);
        aside->away = false;
    }
}

static void step_aside(bt_kvt_aside_t *aside)
{
    cpu_set_t set;

    if (!aside->away &&
        (sched_getaffinity(0, sizeof(aside->before), &aside->before) != 0)) {
        return;
    }
    if (!bt_kvt_aside_choose(aside, &aside->before, &set)) {
        come_back(aside);
        return;
    }
    if ((!aside->away || !CPU_EQUAL(&set, &aside->now)) &&
        (sched_setaffinity(0, sizeof(set), &set) == 0)) {
        aside->now = set;
        aside->away = true;
    }
}

/* A thread that is away stays away until the writers are done; another moves
 * only where it would matter. */
static bool is_in_the_way(const bt_kvt_aside_t *aside)
{
    const uint32_t here = bt_kvt_aside_here();

    BT_LIST_FOR_EACH_ENTRY(bt_kvt_writer_t, writer, &aside->writers, link) {
        if (writer->cpu == here) {
            return true;
        }
    }
    return false;
}

void bt_kvt_aside_note(bt_kvt_aside_t *aside, bt_kvt_writer_t *writer,
                       uint32_t cpu)
{
    if (cpu > CPU_SETSIZE) {
        cpu = 0;
    }
    if ((cpu == 0) && (writer->cpu == 0)) {
        return; /* as for all that copy only briefly */
    }
    writer->cpu = cpu;
    if (cpu == 0) {
        bt_list_remove(&writer->link);
    } else if (bt_list_empty(&writer->link)) {
        bt_list_push_back(&aside->writers, &writer->link);
    }
    if (bt_list_empty(&aside->writers)) {
        come_back(aside);
    } else if (aside->away || is_in_the_way(aside)) {
        step_aside(aside);
    }
}
