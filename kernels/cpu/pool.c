/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "kernels/cpu/pool_priv.h"

#define MAX_THREADS 1024u
#define SPIN_NS     20000u
/* With a core for each thread: longer than the time between two jobs of a pass;
 * waking a thread of a virtual machine costs up to 50 us. */
#define SPIN_ALONE_NS 300000u

/* Limits of a thread's prefetch: bytes in all, a part of the core's own cache,
 * which the current computation needs too; lines at the end of a job (a core
 * handles some 20 misses at a time); lines between two polls. */
#define AHEAD_BYTES 262144u
#define FIRST_LINES 16u
#define MORE_LINES  4u
#define LINE_BYTES  64u

void bt_cpu_futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    /* Errors (EAGAIN, EINTR) mean "check again", which every caller does. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void bt_cpu_futex_wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void ask(cursor_t *ahead, uint32_t n_lines)
{
    for (uint32_t i = 0; (i < n_lines) && (ahead->at < ahead->end); i++) {
        __builtin_prefetch(ahead->at, 0, 2);
        ahead->at += LINE_BYTES;
    }
}

bool bt_cpu_spin_while(_Atomic uint32_t *word, uint32_t value, uint32_t spin_ns,
                       cursor_t *ahead)
{
    uint64_t end = 0;

    for (uint32_t i = 0; atomic_load(word) == value; i++) {
        ask(ahead, MORE_LINES);
        bt_cpu_relax();
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

uint32_t bt_cpu_share_of(const bt_cpu_pool_t *pool, uint64_t n, uint32_t share)
{
    return (uint32_t)(n * share / pool->n_shares);
}

bool bt_cpu_take(bt_cpu_pool_t *pool, uint32_t whose, uint32_t n, bool last,
                 uint32_t *begin_p, uint32_t *end_p)
{
    _Atomic uint64_t *left = &pool->shares[whose].left;
    uint64_t now = atomic_load_explicit(left, memory_order_relaxed);
    uint64_t then;
    uint32_t begin;
    uint32_t end;

    do {
        bt_cpu_share_read(pool, whose, now, &begin, &end);
        if (begin >= end) {
            return false;
        }
        n = (end - begin < n) ? end - begin : n;
        *begin_p = last ? end - n : begin;
        *end_p = last ? end : begin + n;
        then = last ? bt_cpu_share_word(pool->tag, begin, end - n)
                    : bt_cpu_share_word(pool->tag, begin + n, end);
    } while (!atomic_compare_exchange_weak_explicit(
        left, &now, then, memory_order_relaxed, memory_order_relaxed));
    return true;
}

void bt_cpu_look_ahead(const bt_cpu_pool_t *pool, uint32_t share,
                       cursor_t *ahead)
{
    const bt_cpu_ahead_t *const next = &pool->job.ahead;
    const size_t first = bt_cpu_share_of(pool, next->n_items, share);
    const size_t end = bt_cpu_share_of(pool, next->n_items, share + 1);
    size_t bytes = (end - first) * next->item_bytes;

    if (pool->job.keeps_ahead) {
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

/* @return chunks done */
static uint32_t work(bt_cpu_pool_t *pool, uint32_t thread, cursor_t *ahead)
{
    const bt_cpu_job_t *const job = &pool->job;
    bool prepared = (job->prepare == NULL);
    uint32_t n_chunks = 0;
    uint32_t begin;
    uint32_t end;

    for (uint32_t i = 0; i < pool->n_shares; i++) {
        const uint32_t whose = (thread + i) % pool->n_shares;

        while (bt_cpu_take(pool, whose, job->grain, whose >= pool->n_threads,
                           &begin, &end)) {
            if (!prepared) {
                job->prepare(job->ctx, thread);
                prepared = true;
            }
            job->fn(job->ctx, thread, begin, end);
            n_chunks++;
        }
    }
    bt_cpu_look_ahead(pool, thread, ahead);
    return n_chunks;
}

static void join_job(bt_cpu_pool_t *pool, helper_t *helper)
{
    atomic_fetch_add(&pool->active, 1);
    if (atomic_load(&pool->open) != 0) {
        (void)work(pool, helper->index, &helper->ahead);
    }
    if ((atomic_fetch_sub(&pool->active, 1) == 1) &&
        (atomic_load(&pool->caller_sleeps) != 0)) {
        bt_cpu_futex_wake(&pool->active, INT_MAX);
    }
}

static void *helper_main(void *arg)
{
    helper_t *helper = arg;
    bt_cpu_pool_t *pool = helper->pool;
    uint32_t seen = 0;

    bt_thread_works_long(pool->has_own_cores);
    for (;;) {
        if (!bt_cpu_spin_while(&pool->epoch, seen, pool->spin_ns,
                               &helper->ahead)) {
            atomic_fetch_add(&pool->sleepers, 1);
            while (atomic_load(&pool->epoch) == seen) {
                bt_cpu_futex_wait(&pool->epoch, seen);
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
        bt_cpu_futex_wake(&pool->epoch, INT_MAX);
    }
}

static void wait_for_helpers(bt_cpu_pool_t *pool)
{
    uint32_t active;

    while ((active = atomic_load(&pool->active)) != 0) {
        if (!bt_cpu_spin_while(&pool->active, active, pool->spin_ns,
                               &pool->ahead)) {
            atomic_store(&pool->caller_sleeps, 1);
            active = atomic_load(&pool->active);
            if (active != 0) {
                bt_cpu_futex_wait(&pool->active, active);
            }
            atomic_store(&pool->caller_sleeps, 0);
        }
    }
}

/* A share that no job touched for a whole cycle of tags would look as if this
 * job had touched it. */
static void next_tag(bt_cpu_pool_t *pool)
{
    pool->tag++;
    if (pool->tag > BT_CPU_MAX_TAG) {
        for (uint32_t i = 0; i < pool->n_threads + pool->n_lent; i++) {
            atomic_store(&pool->shares[i].left, 0);
            atomic_store(&pool->shares[i].done, 0);
            atomic_store(&pool->shares[i].kept, 0);
        }
        pool->tag = 1;
    }
}

static void run_alone(const bt_cpu_job_t *job)
{
    if (job->prepare != NULL) {
        job->prepare(job->ctx, 0);
    }
    job->fn(job->ctx, 0, 0, job->n_items);
}

void bt_cpu_pool_run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job)
{
    const bool lend = job->lend && (pool->n_lent > 0);
    uint64_t start = 0;
    uint32_t n_chunks;

    if (job->n_items == 0) {
        return;
    }
    if (((pool->n_threads == 1) && !lend) || (job->n_items <= job->grain) ||
        (job->n_items > BT_CPU_MAX_ITEMS)) {
        run_alone(job);
        return;
    }
    pool->job = *job;
    next_tag(pool);
    pool->n_shares = pool->n_threads;
    if (lend) {
        start = bt_cpu_lent_begin(pool);
    }
    atomic_store(&pool->open, lend ? BT_CPU_OPEN_TO_ALL : BT_CPU_OPEN);
    next_epoch(pool);
    n_chunks = work(pool, 0, &pool->ahead);
    atomic_store(&pool->open, 0);
    wait_for_helpers(pool);
    if (lend) {
        bt_cpu_lent_end(pool, start, n_chunks);
    }
}

void bt_cpu_pool_run(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                     bt_cpu_job_fn fn, void *ctx)
{
    const bt_cpu_job_t job = {.fn = fn,
                              .ctx = ctx,
                              .n_items = n_items,
                              .grain = grain,
                              .keeps_ahead = true};

    bt_cpu_pool_run_job(pool, &job);
}

void bt_cpu_pool_run_lent(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                          bt_cpu_job_fn fn, void *ctx)
{
    const bt_cpu_job_t job = {.fn = fn,
                              .ctx = ctx,
                              .n_items = n_items,
                              .grain = grain,
                              .keeps_ahead = true,
                              .lend = true};

    bt_cpu_pool_run_job(pool, &job);
}

/* True when each thread has a core that this process may use, and its time. */
static bool has_cores_for(uint32_t n_threads)
{
    return bt_limits_n_cpus() >= n_threads;
}

void bt_cpu_pin(pthread_t thread, uint32_t core)
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
    pool->tag = BT_CPU_MAX_TAG - 100; /* it wraps early, in every test */
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
        err = bt_thread_start(&helper->id, helper_main, helper);
        if (err != 0) {
            errno = err;
            BT_LOG_ERROR("cannot start compute thread %u of %u: %m", i,
                         n_threads);
            goto err_pool;
        }
        pool->n_started++;
    }
    if (cores != NULL) {
        bt_cpu_pin(pthread_self(), cores[0]);
        for (uint32_t i = 1; i < n_threads; i++) {
            bt_cpu_pin(pool->helpers[i].id, cores[i]);
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
    bt_cpu_lent_fini(pool);
    for (uint32_t i = 1; i <= pool->n_started; i++) {
        pthread_join(pool->helpers[i].id, NULL);
    }
    bt_free(pool->shares);
    bt_free(pool->helpers);
    bt_free(pool);
}

uint32_t bt_cpu_pool_slots(const bt_cpu_pool_t *pool)
{
    return pool->n_threads + pool->n_lent;
}
