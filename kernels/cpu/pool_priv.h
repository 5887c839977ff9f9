/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool_priv.h
 *
 * Internals of the thread pool, shared by pool.c (own threads, jobs) and lent.c
 * (threads on borrowed cores). pool.h has the contract of both.
 *
 * **Shares.** A job's items are split into adjacent shares, one for each thread
 * (lent threads only if they have helped lately). The remainder of a share is
 * one word, begin and end. The owner of a share takes from its begin. Other
 * threads, when their own shares are empty, take from its end: own threads from
 * all shares; but from an own thread's share only *one* lent thread takes from
 * the end, the same in all jobs, and other own threads take from the begin too:
 *
 *     share of an own thread            share of a lent thread
 *     ├── own, others ──→    ←─ lent ─┤ ├── lent ──→           ←── own ─┤
 *     .         begin .. end    done  . .  done    begin .. end         .
 *
 * So only one lent thread takes on the lent side of a share, and its finished
 * items are those beyond `done`: a piece that it took and did not finish lies
 * between `done` and the remainder, wherever it was preempted.
 *
 * **Threads inside a job.** Bit h of `lent_in` says that lent thread h is
 * inside a job, bit h of `lent_torn` that it must not continue. See lent.c.
 */
#ifndef BT_KERNELS_CPU_POOL_PRIV_H
#define BT_KERNELS_CPU_POOL_PRIV_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/thread.h"
#include "kernels/cpu/pool.h"

#define BT_CPU_MAX_TAG   0xffffu
#define BT_CPU_MAX_ITEMS 0xffffffu

/* Bits of bt_cpu_pool.open. */
#define BT_CPU_OPEN        1u /**< own threads may join it */
#define BT_CPU_OPEN_TO_ALL 2u /**< threads on borrowed cores may join too */

/** Data that a thread may still prefetch. */
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

/** Thread on a borrowed core. */
typedef struct lent {
    bt_cpu_pool_t *pool;
    pthread_t id;
    uint32_t index; /* 0 .. n_lent-1; its thread number is n_threads + index */
    uint8_t *keep;  /* saved data of in-place changes; pool->keep_bytes */
    /* Used by the thread itself only: */
    _Alignas(64) cursor_t ahead;
    volatile sig_atomic_t inside; /* `outside` is a valid jump target */
    sigjmp_buf outside;
    /* Written by the thread itself, read by any thread. */
    _Atomic uint64_t n_pieces;
    _Atomic uint64_t busy_ns;
} lent_t;

/** Adjacent items of a job that are meant for one thread: reading weights as
 *  one stream is faster than interleaved. */
typedef struct share {
    /* tag of the job | begin | end of the remainder; another tag: untouched */
    _Alignas(64) _Atomic uint64_t left;
    /* The lent thread's: tag | 0 | its items up to here are done; tag | begin |
     * end of the piece whose data it has saved. */
    _Atomic uint64_t done;
    _Atomic uint64_t kept;
} share_t;

/* The job fields are written only while `open` is 0, `active` is 0 and no lent
 * thread is inside. A helper first counts itself in `active`, then reads
 * `open`; the caller first closes, then waits for `active` to be 0. Both use
 * sequentially consistent operations, so at least one sees the other. */
struct bt_cpu_pool {
    _Alignas(64) _Atomic uint32_t epoch; /* futex: a new job, or the end */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Alignas(64) _Atomic uint32_t open;
    _Atomic uint32_t active;        /* futex: helpers inside the job */
    _Atomic uint32_t caller_sleeps; /* on active */
    _Alignas(64) uint32_t tag;      /* number of the job, 1 .. BT_CPU_MAX_TAG */
    uint32_t n_shares;
    bt_cpu_job_t job;
    _Alignas(64) cursor_t ahead; /* the caller's, written while helpers work */
    _Alignas(64) _Atomic uint64_t lent_in; /* bits, see above */
    _Atomic uint64_t lent_torn;
    _Atomic uint32_t lent_helped; /* tag of the last job with lent help */
    _Alignas(64) _Atomic uint32_t lent_call; /* futex: there is work */
    _Atomic uint32_t lent_sleepers;
    _Atomic bool lent_stop;
    uint64_t called_ns;
    _Atomic uint64_t n_again; /* pieces done a second time */
    _Alignas(64) uint32_t n_threads;
    bool has_own_cores; /* helpers are pinned to them */
    uint32_t spin_ns;
    uint32_t n_started; /* helpers that have a thread */
    helper_t *helpers;
    share_t *shares; /* one for each thread, lent ones too */
    uint32_t n_lent; /* lent threads that were started */
    uint32_t n_lent_slots;
    size_t keep_bytes;
    lent_t *lents;
};

/* pool.c */

void bt_cpu_futex_wait(_Atomic uint32_t *word, uint32_t value);
void bt_cpu_futex_wake(_Atomic uint32_t *word, int n);
/** Spins until *word differs from @a value. @return false: timed out */
bool bt_cpu_spin_while(_Atomic uint32_t *word, uint32_t value, uint32_t spin_ns,
                       cursor_t *ahead);
/** Returns the first item of share @a share of n items. */
uint32_t bt_cpu_share_of(const bt_cpu_pool_t *pool, uint64_t n, uint32_t share);
/** Takes the first (@a last: the last) n items of the remainder of a share, or
 *  fewer if fewer are left. @return false: none are left */
bool bt_cpu_take(bt_cpu_pool_t *pool, uint32_t whose, uint32_t n, bool last,
                 uint32_t *begin_p, uint32_t *end_p);
/** Prefetches the start of the thread's share of the next job's data. */
void bt_cpu_look_ahead(const bt_cpu_pool_t *pool, uint32_t share,
                       cursor_t *ahead);
void bt_cpu_pin(pthread_t thread, uint32_t core);

static inline uint64_t bt_cpu_share_word(uint32_t tag, uint32_t begin,
                                         uint32_t end)
{
    return (uint64_t)tag << 48 | (uint64_t)begin << 24 | end;
}

/** Decodes the remainder of a share from its word. */
static inline void bt_cpu_share_read(const bt_cpu_pool_t *pool, uint32_t share,
                                     uint64_t word, uint32_t *begin_p,
                                     uint32_t *end_p)
{
    if (word >> 48 == pool->tag) {
        *begin_p = (uint32_t)(word >> 24) & BT_CPU_MAX_ITEMS;
        *end_p = (uint32_t)word & BT_CPU_MAX_ITEMS;
    } else {
        *begin_p = bt_cpu_share_of(pool, pool->job.n_items, share);
        *end_p = bt_cpu_share_of(pool, pool->job.n_items, share + 1);
    }
}

/* lent.c */

/** Prepares a job that may use borrowed cores, before it is opened: decides
 *  whether lent threads get shares, and occasionally wakes sleeping ones.
 *  @return the time, ns */
uint64_t bt_cpu_lent_begin(bt_cpu_pool_t *pool);
/** Ends a job on borrowed cores, when it is closed and own threads are done:
 *  waits a moment for lent threads inside, tears out the rest, and redoes
 *  the pieces that were not finished.
 *  @param start_ns, n_chunks  start of the job, and chunks that the caller
 *      did */
void bt_cpu_lent_end(bt_cpu_pool_t *pool, uint64_t start_ns, uint32_t n_chunks);
/** Ends the lent threads; pool->stop is set. */
void bt_cpu_lent_fini(bt_cpu_pool_t *pool);

#endif
