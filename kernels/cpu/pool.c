/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#define MAX_THREADS 1024u
#define SPIN_NS     20000u
/* With a core for each thread: what lies between two jobs of a pass is shorter,
 * and to wake a thread of a virtual machine costs up to 50 us. */
#define SPIN_ALONE_NS 300000u

/* Most of what a thread asks for ahead: a part of a core's own cache, which
 * what is computed meanwhile needs too. Then the lines at the end of a job (a
 * core takes some 20 misses at a time), and those between two looks. */
#define AHEAD_BYTES 262144u
#define FIRST_LINES 16u
#define MORE_LINES  4u
#define LINE_BYTES  64u

/* What a thread may still ask for. */
typedef struct cursor {
    const uint8_t *at;
    const uint8_t *end;
} cursor_t;

typedef struct helper {
    bt_cpu_pool_t *pool;
    pthread_t id;
    uint32_t index;              /* 1 .. n_threads-1 */
    _Alignas(64) cursor_t ahead; /* written while others are read */
} helper_t;

/* Items of a job that are meant for one thread, neighbours all of them: reading
 * weights in one stream is quicker than in turns. Who is done helps the others.
 */
typedef struct share {
    /* tag of the job << 32 | its next item; another tag: untouched so far */
    _Alignas(64) _Atomic uint64_t next;
} share_t;

/* The job fields are written only while `open` is 0 and `active` is 0. A
 * helper first counts itself in `active`, then looks at `open`; the caller
 * first closes, then waits for `active` to be 0. Both use sequentially
 * consistent operations, so at least one sees the other. */
struct bt_cpu_pool {
    _Alignas(64) _Atomic uint32_t epoch; /* futex: a new job, or the end */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Alignas(64) _Atomic uint32_t open;
    _Atomic uint32_t active;        /* futex: helpers inside the job */
    _Atomic uint32_t caller_sleeps; /* on active */
    _Alignas(64) uint32_t tag;      /* number of the job */
    bt_cpu_job_t job;
    bool keeps_ahead;            /* the job does not say what follows */
    _Alignas(64) cursor_t ahead; /* the caller's, written while helpers work */
    _Alignas(64) uint32_t n_threads;
    bool has_own_cores; /* helpers are pinned to them */
    uint32_t spin_ns;
    uint32_t n_started; /* helpers that have a thread */
    helper_t *helpers;
    share_t *shares; /* one for each thread */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    /* Errors (EAGAIN, EINTR) mean "look again", which every caller does. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void ask(cursor_t *ahead, uint32_t n_lines)
{
    for (uint32_t i = 0; (i < n_lines) && (ahead->at < ahead->end); i++) {
        __builtin_prefetch(ahead->at, 0, 2);
        ahead->at += LINE_BYTES;
    }
}

/* Spin until *word is no longer @a value. @return false: time is up. */
static bool spin_while(_Atomic uint32_t *word, uint32_t value, uint32_t spin_ns,
                       cursor_t *ahead)
{
    uint64_t end = 0;

    for (uint32_t i = 0; atomic_load(word) == value; i++) {
        ask(ahead, MORE_LINES);
        relax();
        if (i % 32 == 31) {
            uint64_t now = bt_now_ns();

            if (end == 0) {
                end = now + spin_ns;
            } else if (now >= end) {
                return false;
            }
        }
    }
    return true;
}

/* First item of a thread's share of n. */
static uint32_t share_of(const bt_cpu_pool_t *pool, uint64_t n, uint32_t thread)
{
    return (uint32_t)(n * thread / pool->n_threads);
}

/* The next items of a thread's share. @return false: none are left */
static bool take(bt_cpu_pool_t *pool, uint32_t whose, uint32_t *begin_p,
                 uint32_t *end_p)
{
    _Atomic uint64_t *next = &pool->shares[whose].next;
    const uint32_t first = share_of(pool, pool->job.n_items, whose);
    const uint32_t end = share_of(pool, pool->job.n_items, whose + 1);
    const uint64_t tag = (uint64_t)pool->tag << 32;
    uint64_t now = atomic_load_explicit(next, memory_order_relaxed);
    uint32_t at;
    uint32_t behind;

    do {
        at = (now >> 32 == pool->tag) ? (uint32_t)now : first;
        if (at >= end) {
            return false;
        }
        behind = (end - at < pool->job.grain) ? end : at + pool->job.grain;
    } while (!atomic_compare_exchange_weak_explicit(
        next, &now, tag | behind, memory_order_relaxed, memory_order_relaxed));
    *begin_p = at;
    *end_p = behind;
    return true;
}

static void look_ahead(const bt_cpu_pool_t *pool, uint32_t thread,
                       cursor_t *ahead)
{
    const bt_cpu_ahead_t *const next = &pool->job.ahead;
    const size_t first = share_of(pool, next->n_items, thread);
    const size_t end = share_of(pool, next->n_items, thread + 1);
    size_t bytes = (end - first) * next->item_bytes;

    if (pool->keeps_ahead) {
        return;
    }
    if (next->data == NULL) {
        *ahead = (cursor_t){0};
        return;
    }
    bytes = (bytes > AHEAD_BYTES) ? AHEAD_BYTES : bytes;
    ahead->at = next->data + first * next->item_bytes;
    ahead->end = ahead->at + bytes;
    ask(ahead, FIRST_LINES);
}

static void work(bt_cpu_pool_t *pool, uint32_t thread, cursor_t *ahead)
{
    const bt_cpu_job_t *const job = &pool->job;
    bool prepared = (job->prepare == NULL);
    uint32_t begin;
    uint32_t end;

    for (uint32_t i = 0; i < pool->n_threads; i++) {
        const uint32_t whose = (thread + i) % pool->n_threads;

        while (take(pool, whose, &begin, &end)) {
            if (!prepared) {
                job->prepare(job->ctx, thread);
                prepared = true;
            }
            job->fn(job->ctx, thread, begin, end);
        }
    }
    look_ahead(pool, thread, ahead);
}

static void join_job(bt_cpu_pool_t *pool, helper_t *helper)
{
    atomic_fetch_add(&pool->active, 1);
    if (atomic_load(&pool->open) != 0) {
        work(pool, helper->index, &helper->ahead);
    }
    if ((atomic_fetch_sub(&pool->active, 1) == 1) &&
        (atomic_load(&pool->caller_sleeps) != 0)) {
        futex_wake_all(&pool->active);
    }
}

static void *helper_main(void *arg)
{
    helper_t *helper = arg;
    bt_cpu_pool_t *pool = helper->pool;
    uint32_t seen = 0;

    bt_thread_works_long(pool->has_own_cores);
    for (;;) {
        if (!spin_while(&pool->epoch, seen, pool->spin_ns, &helper->ahead)) {
            atomic_fetch_add(&pool->sleepers, 1);
            while (atomic_load(&pool->epoch) == seen) {
                futex_wait(&pool->epoch, seen);
            }
            atomic_fetch_sub(&pool->sleepers, 1);
        }
        seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        join_job(pool, helper);
    }
}

static void next_epoch(bt_cpu_pool_t *pool)
{
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers) != 0) {
        futex_wake_all(&pool->epoch);
    }
}

static void wait_for_helpers(bt_cpu_pool_t *pool)
{
    uint32_t active;

    while ((active = atomic_load(&pool->active)) != 0) {
        if (!spin_while(&pool->active, active, pool->spin_ns, &pool->ahead)) {
            atomic_store(&pool->caller_sleeps, 1);
            active = atomic_load(&pool->active);
            if (active != 0) {
                futex_wait(&pool->active, active);
            }
            atomic_store(&pool->caller_sleeps, 0);
        }
    }
}

/* A share that no job touched for 2^32 jobs would look as if this one had. */
static void next_tag(bt_cpu_pool_t *pool)
{
    pool->tag++;
    if (pool->tag == 0) {
        for (uint32_t i = 0; i < pool->n_threads; i++) {
            atomic_store(&pool->shares[i].next, 0);
        }
        pool->tag = 1;
    }
}

static void run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job,
                    bool keeps_ahead)
{
    if (job->n_items == 0) {
        return;
    }
    if ((pool->n_threads == 1) || (job->n_items <= job->grain) ||
        (job->n_items > UINT32_MAX / 2)) {
        if (job->prepare != NULL) {
            job->prepare(job->ctx, 0);
        }
        job->fn(job->ctx, 0, 0, job->n_items);
        return;
    }
    pool->job = *job;
    pool->keeps_ahead = keeps_ahead;
    next_tag(pool);
    atomic_store(&pool->open, 1);
    next_epoch(pool);
    work(pool, 0, &pool->ahead);
    atomic_store(&pool->open, 0);
    wait_for_helpers(pool);
}

void bt_cpu_pool_run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job)
{
    run_job(pool, job, false);
}

void bt_cpu_pool_run(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                     bt_cpu_job_fn fn, void *ctx)
{
    const bt_cpu_job_t job = {
        .fn = fn, .ctx = ctx, .n_items = n_items, .grain = grain};

    run_job(pool, &job, true);
}

/* Has each thread a core that this process may use? */
static bool has_cores_for(uint32_t n_threads)
{
    cpu_set_t set;

    return (sched_getaffinity(0, sizeof(set), &set) == 0) &&
           ((uint32_t)CPU_COUNT(&set) >= n_threads);
}

static void pin(pthread_t thread, uint32_t core)
{
    cpu_set_t set;
    int err;

    CPU_ZERO(&set);
    if (core >= CPU_SETSIZE) {
        BT_LOG_WARN("cannot pin a thread to core %u: out of range", core);
        return;
    }
    CPU_SET(core, &set);
    err = pthread_setaffinity_np(thread, sizeof(set), &set);
    if (err != 0) {
        errno = err;
        BT_LOG_WARN("cannot pin a thread to core %u: %m", core);
    }
}

/* Helpers take no signals: those belong to the program's own threads. */
static int start_helper(helper_t *helper)
{
    sigset_t all;
    sigset_t old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&helper->id, NULL, helper_main, helper);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

bt_status_t bt_cpu_pool_create(uint32_t n_threads, const uint32_t *cores,
                               bt_cpu_pool_t **pool_p)
{
    bt_cpu_pool_t *pool;

    if ((n_threads == 0) || (n_threads > MAX_THREADS)) {
        return BT_ERR_INVALID_PARAM;
    }
    pool = bt_calloc_aligned(1, sizeof(*pool));
    if (pool == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    pool->n_threads = n_threads;
    pool->has_own_cores = cores != NULL;
    pool->tag = UINT32_MAX - 100; /* it wraps early, in every test */
    pool->spin_ns = has_cores_for(n_threads) ? SPIN_ALONE_NS : SPIN_NS;
    pool->helpers = bt_calloc_aligned(n_threads, sizeof(*pool->helpers));
    pool->shares = bt_calloc_aligned(n_threads, sizeof(*pool->shares));
    if ((pool->helpers == NULL) || (pool->shares == NULL)) {
        goto err_pool;
    }
    for (uint32_t i = 1; i < n_threads; i++) {
        helper_t *helper = &pool->helpers[i];
        int err;

        helper->pool = pool;
        helper->index = i;
        err = start_helper(helper);
        if (err != 0) {
            errno = err;
            BT_LOG_ERROR("cannot start compute thread %u of %u: %m", i,
                         n_threads);
            goto err_pool;
        }
        pool->n_started++;
    }
    if (cores != NULL) {
        pin(pthread_self(), cores[0]);
        for (uint32_t i = 1; i < n_threads; i++) {
            pin(pool->helpers[i].id, cores[i]);
        }
    }
    *pool_p = pool;
    return BT_OK;

err_pool:
    bt_cpu_pool_destroy(pool);
    return BT_ERR_NO_MEMORY;
}

void bt_cpu_pool_destroy(bt_cpu_pool_t *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    next_epoch(pool);
    for (uint32_t i = 1; i <= pool->n_started; i++) {
        pthread_join(pool->helpers[i].id, NULL);
    }
    bt_free(pool->shares);
    bt_free(pool->helpers);
    bt_free(pool);
}

uint32_t bt_cpu_pool_threads(const bt_cpu_pool_t *pool)
{
    return pool->n_threads;
}
