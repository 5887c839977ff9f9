/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the pool on borrowed cores; the contract is in pool.h.
 *
 * The kernel may preempt such a thread at any instruction, for as long as its
 * core's owner works. At the end of a job the caller waits a moment for the
 * lent threads inside; a thread that does not leave is *torn out*: its bit is
 * set in lent_torn, a signal is sent, then membarrier(2) interrupts every core
 * on which a thread of this process runs. A pending signal is handled before
 * the next instruction in user mode, at the return from that interrupt, or when
 * the preempted thread is scheduled again; its handler jumps out of the job. So
 * when membarrier returns, all that the thread wrote is visible, and it
 * executes nothing more of the job, ever: it may write directly to the results,
 * read data that the next job changes, and needs no copy of anything.
 *
 * Protocol for lent thread h, every operation on the bits sequentially
 * consistent:
 *
 *     thread   torn &= ~h; in |= h; is it open? ... work ...; in &= ~h
 *     caller   open = 0; in == 0, or: torn |= in; signals; membarrier;
 *              in &= ~torn; redo the pieces that the shares show unfinished
 *
 * Either the caller sees the bit, or the thread sees that the job is closed.
 * `torn` applies to the current stay in a job: a signal that arrives during a
 * later stay finds the bit cleared and does nothing. Everything is idempotent,
 * so the thread may be preempted between any two instructions.
 *
 * ThreadSanitizer delivers signals late and does not model membarrier: with it
 * the caller waits without limit. */
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "kernels/cpu/pool_priv.h"

/* Ignored by default, and not sent to threads by anything else. */
#define TEAR_SIGNAL SIGURG
/* Longer than the time between two jobs of a pass, or two steps. */
#define LENT_SPIN_NS 300000u
/* Waking a thread costs the caller a few microseconds. */
#define CALL_EVERY_NS 200000u
/* Jobs since one was helped by a lent thread. After that many, lent threads get
 * no shares: other threads would read these backwards. */
#define HELPED_LATELY 16u
/* Longer than from a thread's last write until its leaving is visible. */
#define LEAVE_NS 10000u

/* The handler has no other way to find its thread. */
static _Thread_local lent_t *self;

static uint64_t bit_of(const lent_t *lent)
{
    return 1ull << lent->index;
}

static void on_tear(int signal)
{
    lent_t *const lent = self;

    (void)signal;
    if ((lent != NULL) && (lent->inside != 0) &&
        ((atomic_load(&lent->pool->lent_torn) & bit_of(lent)) != 0)) {
        siglongjmp(lent->outside, 1);
    }
}

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Items of a piece; 0: none may be taken. */
static uint32_t piece_items(const bt_cpu_pool_t *pool)
{
    const bt_cpu_job_t *const job = &pool->job;
    uint32_t n = job->grain;

    if ((job->keep != NULL) && (n > pool->keep_bytes / job->keep_bytes)) {
        n = (uint32_t)(pool->keep_bytes / job->keep_bytes);
    }
    return n;
}

/* True when the lent thread's side of the share is its end. See pool_priv.h. */
static bool is_from_end(const bt_cpu_pool_t *pool, uint32_t whose)
{
    return whose < pool->n_threads;
}

static void do_piece(lent_t *lent, uint32_t whose, uint32_t begin, uint32_t end)
{
    bt_cpu_pool_t *const pool = lent->pool;
    const bt_cpu_job_t *const job = &pool->job;
    share_t *const share = &pool->shares[whose];
    const uint32_t done = is_from_end(pool, whose) ? begin : end;

    if (job->keep != NULL) {
        job->keep(job->ctx, begin, end, lent->keep, false);
        atomic_store_explicit(&share->kept,
                              bt_cpu_share_word(pool->tag, begin, end),
                              memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
    }
    job->fn(job->ctx, pool->n_threads + lent->index, begin, end);
    atomic_store_explicit(&share->done, bt_cpu_share_word(pool->tag, 0, done),
                          memory_order_release);
}

/* @return pieces done */
static uint32_t do_share(lent_t *lent, uint32_t whose, bool *prepared)
{
    bt_cpu_pool_t *const pool = lent->pool;
    const uint32_t n = piece_items(pool);
    uint32_t n_pieces = 0;
    uint32_t begin;
    uint32_t end;

    while ((n > 0) && bt_cpu_take(pool, whose, n, is_from_end(pool, whose),
                                  &begin, &end)) {
        if (!*prepared) {
            pool->job.prepare(pool->job.ctx, pool->n_threads + lent->index);
            *prepared = true;
        }
        do_piece(lent, whose, begin, end);
        n_pieces++;
    }
    return n_pieces;
}

/* Only its thread writes it. */
static void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(
        counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
        memory_order_relaxed);
}

static void do_job(lent_t *lent)
{
    bt_cpu_pool_t *const pool = lent->pool;
    const uint32_t own = pool->n_threads + lent->index;
    const uint64_t start = bt_now_ns();
    bool prepared = (pool->job.prepare == NULL);
    uint32_t n_pieces = 0;

    if (own < pool->n_shares) {
        n_pieces += do_share(lent, own, &prepared);
    }
    if (lent->index < pool->n_threads) {
        n_pieces += do_share(lent, lent->index, &prepared);
    }
    if (n_pieces > 0) {
        atomic_store_explicit(&pool->lent_helped, pool->tag,
                              memory_order_relaxed);
        count(&lent->n_pieces, n_pieces);
        count(&lent->busy_ns, bt_now_ns() - start);
    }
    if (own < pool->n_shares) {
        bt_cpu_look_ahead(pool, own, &lent->ahead);
    }
}

/* Only data in the pool survives the jump. */
static __attribute__((noinline)) void join_job(lent_t *lent)
{
    bt_cpu_pool_t *const pool = lent->pool;

    if (sigsetjmp(lent->outside, 0) == 0) {
        atomic_fetch_and(&pool->lent_torn, ~bit_of(lent));
        lent->inside = 1;
        atomic_signal_fence(memory_order_seq_cst);
        atomic_fetch_or(&pool->lent_in, bit_of(lent));
        if (atomic_load(&pool->open) == BT_CPU_OPEN_TO_ALL) {
            do_job(lent);
        }
    }
    atomic_fetch_and(&lent->pool->lent_in, ~bit_of(lent));
    atomic_signal_fence(memory_order_seq_cst);
    lent->inside = 0;
}

/* Waits for a call. Each woken thread wakes two others. */
static void sleep_until_called(bt_cpu_pool_t *pool)
{
    const uint32_t call = atomic_load(&pool->lent_call);

    atomic_fetch_add(&pool->lent_sleepers, 1);
    while ((atomic_load(&pool->lent_call) == call) &&
           !atomic_load(&pool->lent_stop)) {
        bt_cpu_futex_wait(&pool->lent_call, call);
    }
    if (atomic_fetch_sub(&pool->lent_sleepers, 1) > 1) {
        bt_cpu_futex_wake(&pool->lent_call, 2);
    }
}

static void *lent_main(void *arg)
{
    lent_t *const lent = arg;
    bt_cpu_pool_t *const pool = lent->pool;
    uint32_t seen;
    sigset_t tear;

    self = lent;
    sigemptyset(&tear);
    sigaddset(&tear, TEAR_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &tear, NULL);
    bt_thread_works_when_idle();
    seen = atomic_load(&pool->epoch) - 1; /* a job may be open */
    while (!atomic_load(&pool->lent_stop)) {
        if (!bt_cpu_spin_while(&pool->epoch, seen, LENT_SPIN_NS,
                               &lent->ahead)) {
            sleep_until_called(pool);
        }
        seen = atomic_load(&pool->epoch);
        join_job(lent);
    }
    return NULL;
}

uint64_t bt_cpu_lent_begin(bt_cpu_pool_t *pool)
{
    const uint64_t now = bt_now_ns();

    if (pool->tag - atomic_load(&pool->lent_helped) <= HELPED_LATELY) {
        pool->n_shares += pool->n_lent;
    }
    if ((atomic_load(&pool->lent_sleepers) > 0) &&
        (now - pool->called_ns >= CALL_EVERY_NS)) {
        pool->called_ns = now;
        atomic_fetch_add(&pool->lent_call, 1);
        bt_cpu_futex_wake(&pool->lent_call, 1);
    }
    return now;
}

/* @return lent threads still inside at the timeout */
static uint64_t wait_for_lent(bt_cpu_pool_t *pool, uint64_t start_ns,
                              uint32_t n_chunks)
{
    uint64_t in = atomic_load(&pool->lent_in);
    uint64_t now;
    uint64_t end;

    if (in == 0) {
        return 0;
    }
    now = bt_now_ns();
    end = now + LEAVE_NS;
    if (n_chunks > 0) { /* the time the caller itself takes for two */
        end += 2 * (now - start_ns) / n_chunks;
    }
    while (((in = atomic_load(&pool->lent_in)) != 0) && (bt_now_ns() < end)) {
        bt_cpu_relax();
    }
    return in;
}

/* After its return nothing of the job is executed any more. The bits do not
 * tell whether one of these threads left by itself: a torn thread clears its
 * own. */
static void tear_out(bt_cpu_pool_t *pool, uint64_t in)
{
#ifdef __SANITIZE_THREAD__
    while ((atomic_load(&pool->lent_in) & in) != 0) {
        sched_yield();
    }
#else
    atomic_fetch_or(&pool->lent_torn, in);
    for (uint32_t h = 0; h < pool->n_lent; h++) {
        if ((in >> h & 1u) != 0) {
            pthread_kill(pool->lents[h].id, TEAR_SIGNAL);
        }
    }
    (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    atomic_fetch_and(&pool->lent_in, ~in);
#endif
}

/* Redoes the piece that the share's lent thread took and did not finish. */
static void finish_share(bt_cpu_pool_t *pool, uint32_t whose,
                         const lent_t *lent)
{
    const bt_cpu_job_t *const job = &pool->job;
    share_t *const share = &pool->shares[whose];
    const bool is_tagged = (atomic_load(&share->done) >> 48 == pool->tag);
    const uint32_t done =
        (uint32_t)atomic_load(&share->done) & BT_CPU_MAX_ITEMS;
    uint32_t begin;
    uint32_t end;

    if (whose >= pool->n_shares) {
        return;
    }
    bt_cpu_share_read(pool, whose, atomic_load(&share->left), &begin, &end);
    if (is_from_end(pool, whose)) {
        begin = end;
        end = is_tagged ? done : bt_cpu_share_of(pool, job->n_items, whose + 1);
    } else {
        end = begin;
        begin = is_tagged ? done : bt_cpu_share_of(pool, job->n_items, whose);
    }
    if (begin == end) {
        return;
    }
    if ((job->keep != NULL) && (atomic_load(&share->kept) ==
                                bt_cpu_share_word(pool->tag, begin, end))) {
        job->keep(job->ctx, begin, end, lent->keep, true);
    }
    job->fn(job->ctx, 0, begin, end);
    count(&pool->n_again, 1);
}

void bt_cpu_lent_end(bt_cpu_pool_t *pool, uint64_t start_ns, uint32_t n_chunks)
{
    const uint64_t in = wait_for_lent(pool, start_ns, n_chunks);

    if (in == 0) {
        return;
    }
    tear_out(pool, in);
    if ((n_chunks == 0) && (pool->job.prepare != NULL)) {
        pool->job.prepare(pool->job.ctx, 0);
    }
    for (uint32_t h = 0; h < pool->n_lent; h++) {
        if ((in >> h & 1u) != 0) {
            finish_share(pool, pool->n_threads + h, &pool->lents[h]);
            if (h < pool->n_threads) {
                finish_share(pool, h, &pool->lents[h]);
            }
        }
    }
}

void bt_cpu_lent_fini(bt_cpu_pool_t *pool)
{
    cpu_set_t all;

    if (pool->lents == NULL) {
        return;
    }
    memset(&all, 0xff, sizeof(all)); /* as far as this process may */
    atomic_store(&pool->lent_stop, true);
    atomic_fetch_add(&pool->lent_call, 1);
    bt_cpu_futex_wake(&pool->lent_call, BT_CPU_MAX_LENT);
    for (uint32_t i = 0; i < pool->n_lent; i++) {
        /* On a busy core it would end only when the owner lets it run. */
        (void)pthread_setaffinity_np(pool->lents[i].id, sizeof(all), &all);
        pthread_join(pool->lents[i].id, NULL);
    }
    for (uint32_t i = 0; i < pool->n_lent_slots; i++) {
        bt_free(pool->lents[i].keep);
    }
    bt_free(pool->lents);
    pool->lents = NULL;
    pool->n_lent = 0;
}

/* The signal's handler, for all pools of the process. */
static bt_status_t prepare_process(void)
{
    struct sigaction action = {.sa_handler = on_tear,
                               .sa_flags = SA_RESTART | SA_NODEFER};

    if ((membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) ||
        (sigaction(TEAR_SIGNAL, &action, NULL) != 0)) {
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

static bt_status_t alloc_lent(bt_cpu_pool_t *pool, uint32_t n)
{
    const size_t n_slots = (size_t)pool->n_threads + n;
    share_t *const shares = bt_calloc_aligned(n_slots, sizeof(*shares));
    lent_t *const lents = bt_calloc_aligned(n, sizeof(*lents));

    if ((shares == NULL) || (lents == NULL)) {
        goto err_arrays;
    }
    for (uint32_t i = 0; i < n; i++) {
        lents[i].keep = bt_calloc_aligned(pool->keep_bytes, 1);
        if (lents[i].keep == NULL) {
            goto err_keep;
        }
    }
    bt_free(pool->shares);
    pool->shares = shares;
    pool->lents = lents;
    pool->n_lent_slots = n;
    return BT_OK;

err_keep:
    for (uint32_t i = 0; i < n; i++) {
        bt_free(lents[i].keep);
    }
err_arrays:
    bt_free(lents);
    bt_free(shares);
    return BT_ERR_NO_MEMORY;
}

bt_status_t bt_cpu_pool_lend(bt_cpu_pool_t *pool, const uint32_t *cores,
                             uint32_t n, size_t keep_bytes)
{
    bt_status_t status = prepare_process();

    if (status != BT_OK) {
        return status;
    }
    if ((n == 0) || (n > BT_CPU_MAX_LENT) || (pool->lents != NULL)) {
        return BT_ERR_INVALID_PARAM;
    }
    pool->keep_bytes = (keep_bytes == 0) ? 1 : keep_bytes;
    status = alloc_lent(pool, n);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        lent_t *const lent = &pool->lents[i];
        int err;

        lent->pool = pool;
        lent->index = i;
        err = bt_thread_start(&lent->id, lent_main, lent);
        if (err != 0) {
            errno = err;
            BT_LOG_ERROR("cannot start a thread for borrowed core %u of %u: %m",
                         i, n);
            bt_cpu_lent_fini(pool);
            return BT_ERR_NO_MEMORY;
        }
        if (cores != NULL) {
            bt_cpu_pin(lent->id, cores[i]);
        }
        pool->n_lent++;
    }
    return BT_OK;
}

void bt_cpu_pool_lent_stats(const bt_cpu_pool_t *pool, bt_lent_stats_t *stats_p)
{
    bt_lent_stats_t s = {0};

    for (uint32_t i = 0; i < pool->n_lent; i++) {
        s.pieces += atomic_load_explicit(&pool->lents[i].n_pieces,
                                         memory_order_relaxed);
        s.busy_ns +=
            atomic_load_explicit(&pool->lents[i].busy_ns, memory_order_relaxed);
    }
    s.saved_ns = s.busy_ns / pool->n_threads;
    s.again = atomic_load_explicit(&pool->n_again, memory_order_relaxed);
    *stats_p = s;
}
