/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool_priv.h
 *
 * Inside of the thread group, between pool.c (own threads, jobs) and lent.c
 * (threads on lent cores). pool.h has the contract of both.
 *
' * **Shares.** A job's items are cut into neighbouring shares, one for each
 * thread (lent ones only if they have been of help lately). What is left of one
 * is one word, begin and end. Whose it is takes from its begin. From its end
 * take others, when theirs are empty: own threads of all shares, but of an own
 * thread's only *one* lent thread, the same in all jobs, and no own one; they
 * take from its begin too:
 *
 *     share of an own thread            share of a lent thread
 *     ├── own, others ──→    ←─ lent ─┤ ├── lent ──→           ←── own ─┤
 *     .         begin .. end    done  . .  done    begin .. end         .
 *
 * So on the side of a lent thread only that one takes, and what it has finished
 * is what lies beyond `done`: a piece that it took and did not finish lies
 * between `done` and what is left, wherever it was stopped.
 *
 * **Who is inside.** Bit h of `lent_in` says that lent thread h is within a
 * job, of `lent_torn` that it must not go on with it. See lent.c.
 */
#ifndef BT_KERNELS_CPU_POOL_PRIV_H
#define BT_KERNELS_CPU_POOL_PRIV_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/cpu_relax.h"
#include "kernels/cpu/pool.h"

#define BT_CPU_MAX_TAG   0xffffu
#define BT_CPU_MAX_ITEMS 0xffffffu

/* What bt_cpu_pool.open says of the job. */
#define BT_CPU_OPEN        1u /**< own threads may join it */
#define BT_CPU_OPEN_TO_ALL 2u /**< those on lent cores too */

/** What a thread may still ask for. */
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

/** A thread on a lent core. */
typedef struct lent {
    bt_cpu_pool_t *pool;
    pthread_t id;
    uint32_t index; /* 0 .. n_lent-1; its thread number is n_threads + index */
    uint8_t *keep;  /* what it may change in place; pool->keep_bytes */
    /* Of itself only: */
    _Alignas(64) cursor_t ahead;
    volatile sig_atomic_t inside; /* `outside` may be jumped to */
    sigjmp_buf outside;
    /* Written by itself, read by whoever asks. */
    _Atomic uint64_t n_pieces;
    _Atomic uint64_t busy_ns;
} lent_t;

/** Items of a job that are meant for one thread, neighbours all of them:
 *  reading weights in one stream is quicker than in turns. */
typedef struct share {
    /* tag of the job | begin | end of what is left; another tag: untouched */
    _Alignas(64) _Atomic uint64_t left;
    /* The lent thread's: tag | 0 | its items up to here are done; tag | begin |
     * end of the piece of which it has kept what it will change. */
    _Atomic uint64_t done;
    _Atomic uint64_t kept;
} share_t;

/* The job fields are written only while `open` is 0, `active` is 0 and no lent
 * thread is inside. A helper first counts itself in `active`, then looks at
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
    _Atomic uint32_t lent_helped; /* tag of the last job that one did some of */
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
    uint32_t n_lent; /* that have a thread */
    uint32_t n_lent_places;
    size_t keep_bytes;
    lent_t *lents;
};

/* pool.c */

void bt_cpu_futex_wait(_Atomic uint32_t *word, uint32_t value);
void bt_cpu_futex_wake(_Atomic uint32_t *word, int n);
/** Spin until *word is no longer @a value. @return false: time is up. */
bool bt_cpu_spin_while(_Atomic uint32_t *word, uint32_t value, uint32_t spin_ns,
                       cursor_t *ahead);
/** First item of a share of n. */
uint32_t bt_cpu_share_of(const bt_cpu_pool_t *pool, uint64_t n, uint32_t share);
/** Take the first (@a last: the last) n items of what is left of a share, or as
 *  many as there are. @return false: none are left */
bool bt_cpu_take(bt_cpu_pool_t *pool, uint32_t whose, uint32_t n, bool last,
                 uint32_t *begin_p, uint32_t *end_p);
/** Ask for the first of what the thread will read of the next job. */
void bt_cpu_look_ahead(const bt_cpu_pool_t *pool, uint32_t share,
                       cursor_t *ahead);
void bt_cpu_pin(pthread_t thread, uint32_t core);

static inline uint64_t bt_cpu_share_word(uint32_t tag, uint32_t begin,
                                         uint32_t end)
{
    return (uint64_t)tag << 48 | (uint64_t)begin << 24 | end;
}

/** What the word says is left of the share. */
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

/** A job that may be computed on lent cores will be opened: settle whether they
 *  get shares, and wake who sleeps there, now and then. @return the time, ns */
uint64_t bt_cpu_lent_begin(bt_cpu_pool_t *pool);
/** The job is closed and own threads are through: wait a moment for those
 *  inside, tear out who does not come, do again what they did not finish.
 *  @param start_ns, n_chunks  when it began, and chunks that the caller did */
void bt_cpu_lent_end(bt_cpu_pool_t *pool, uint64_t start_ns, uint32_t n_chunks);
/** End the threads; pool->stop is set. */
void bt_cpu_lent_fini(bt_cpu_pool_t *pool);

#endif
