/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how soon a thread gets its core back that was lent while it slept.
 *
 *     handback CORE OTHER MS
 *
 * A thread on CORE, the owner, sleeps; a thread on OTHER computes continuously
 * and wakes the owner at random times, every 2 ms on average, to work for 200
 * us. In alternating turns of MS each, CORE is idle meanwhile or lent to the
 * computation on OTHER. One line of JSON, percentiles in microseconds: from
 * before the wake to the owner's first instruction, for both kinds of turns,
 * including delays by other users of the core; of these, how long the lent
 * thread still ran; and how much was computed on CORE. */
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "kernels/cpu/pool.h"

#define MAX_WAKES 1000000u
#define MEAN_NS   UINT64_C(2000000)
#define OWNER_NS  UINT64_C(200000)
#define PIECE_NS  UINT64_C(50000)
#define N_PIECES  64u
#define TURN_NS   UINT64_C(250000000)

typedef struct delays {
    uint64_t *ns;
    uint32_t n;
} delays_t;

typedef struct hand {
    uint32_t core;
    pthread_t owner;
    _Atomic uint32_t word; /* futex: number of the wake */
    _Atomic uint64_t woken_ns;
    _Atomic uint64_t lent_ns; /* when the lent thread last ran */
    _Atomic bool stop;
    _Atomic bool awake;
    delays_t *delays; /* of the current turn */
    delays_t *in_way; /* NULL: nothing is lent */
    uint64_t next_ns;
    uint64_t random;
} hand_t;

/* @param seen  NULL, or keeps the time */
static void spin_ns(uint64_t ns, _Atomic uint64_t *seen)
{
    uint64_t now = bt_now_ns();
    const uint64_t end = now + ns;

    while (now < end) {
        now = bt_now_ns();
        if (seen != NULL) {
            atomic_store_explicit(seen, now, memory_order_relaxed);
        }
    }
}

static void note(delays_t *d, uint64_t from, uint64_t to)
{
    if (d->n < MAX_WAKES) {
        d->ns[d->n++] = (to > from) ? to - from : 0;
    }
}

static void *own(void *arg)
{
    hand_t *h = arg;
    uint32_t seen = 0;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(h->core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    bt_thread_works_long(true); /* as a worker's compute thread */
    while (!atomic_load(&h->stop)) {
        uint64_t now;

        while ((atomic_load(&h->word) == seen) && !atomic_load(&h->stop)) {
            (void)syscall(SYS_futex, &h->word, FUTEX_WAIT_PRIVATE, seen, NULL,
                          NULL, 0);
        }
        now = bt_now_ns();
        if (atomic_load(&h->word) != seen) {
            seen = atomic_load(&h->word);
            note(h->delays, atomic_load(&h->woken_ns), now);
            if (h->in_way != NULL) {
                note(h->in_way, atomic_load(&h->woken_ns),
                     atomic_load(&h->lent_ns));
            }
            spin_ns(OWNER_NS, NULL);
            atomic_store(&h->awake, false);
        }
    }
    return NULL;
}

static void wake(hand_t *h)
{
    atomic_fetch_add(&h->word, 1);
    (void)syscall(SYS_futex, &h->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* A piece; on the own thread a wake in the middle of it now and then. */
static void compute(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    hand_t *h = ctx;
    _Atomic uint64_t *const seen = (thread == 0) ? NULL : &h->lent_ns;

    for (uint32_t i = begin; i < end; i++) {
        spin_ns(PIECE_NS / 2, seen);
        if ((thread == 0) && !atomic_load(&h->awake) &&
            (bt_now_ns() >= h->next_ns)) {
            const uint64_t now = bt_now_ns();

            h->next_ns =
                now + bt_half_random(&h->random, (uint32_t)(2 * MEAN_NS));
            atomic_store(&h->awake, true);
            atomic_store(&h->woken_ns, now);
            wake(h);
        }
        spin_ns(PIECE_NS / 2, seen);
    }
}

static double percentile_us(const delays_t *d, double percent)
{
    const uint32_t at = (uint32_t)(percent / 100 * (d->n - 1));

    return (d->n == 0) ? 0 : (double)d->ns[at] / 1e3;
}

static void print(const char *name, delays_t *d, const char *behind)
{
    bt_half_sort(d->ns, d->n);
    printf("\"%s\": {\"wakes\": %u, \"p50_us\": %.1f, \"p90_us\": %.1f, "
           "\"p99_us\": %.1f, \"max_us\": %.1f}%s",
           name, d->n, percentile_us(d, 50), percentile_us(d, 90),
           percentile_us(d, 99), percentile_us(d, 100), behind);
}

static void run_turns(hand_t *h, bt_cpu_pool_t *pool, uint64_t ns,
                      delays_t *idle, delays_t *lent, delays_t *in_way)
{
    const uint64_t end = bt_now_ns() + ns;

    for (uint32_t turn = 0; bt_now_ns() < end; turn++) {
        const uint64_t turn_end = bt_now_ns() + TURN_NS;

        while (atomic_load(&h->awake)) {
        }
        usleep(1000); /* the lent thread falls asleep, or wakes */
        h->delays = (turn % 2 == 0) ? idle : lent;
        h->in_way = (turn % 2 == 0) ? NULL : in_way;
        h->next_ns = bt_now_ns() + MEAN_NS;
        while (bt_now_ns() < turn_end) {
            if (turn % 2 == 0) {
                bt_cpu_pool_run(pool, N_PIECES, 1, compute, h);
            } else {
                bt_cpu_pool_run_lent(pool, N_PIECES, 1, compute, h);
            }
        }
    }
    while (atomic_load(&h->awake)) {
    }
}

int main(int argc, char **argv)
{
    hand_t h = {.random = 1};
    delays_t idle = {0};
    delays_t lent = {0};
    delays_t in_way = {0};
    bt_lent_stats_t stats;
    bt_cpu_pool_t *pool = NULL;
    uint32_t other;
    uint32_t ms;

    if (argc != 4) {
        bt_half_die(BT_OK, "it is run by bench/lending.py");
    }
    h.core = bt_half_number(argv[1], 0, 1023);
    other = bt_half_number(argv[2], 0, 1023);
    ms = bt_half_number(argv[3], 1, 600000);
    idle.ns = bt_half_zeros(MAX_WAKES, sizeof(*idle.ns));
    lent.ns = bt_half_zeros(MAX_WAKES, sizeof(*lent.ns));
    in_way.ns = bt_half_zeros(MAX_WAKES, sizeof(*in_way.ns));
    if ((bt_cpu_pool_create(1, &other, &pool) != BT_OK) ||
        (bt_cpu_pool_lend(pool, &h.core, 1, 0) != BT_OK) ||
        (pthread_create(&h.owner, NULL, own, &h) != 0)) {
        bt_half_die(BT_ERR_NO_MEMORY, "start");
    }
    run_turns(&h, pool, (uint64_t)ms * 1000000, &idle, &lent, &in_way);
    atomic_store(&h.stop, true);
    wake(&h);
    pthread_join(h.owner, NULL);
    bt_cpu_pool_lent_stats(pool, &stats);
    printf("{");
    print("idle", &idle, ", ");
    print("lent", &lent, ", ");
    print("in_way", &in_way, ", ");
    printf("\"pieces\": %" PRIu64 ", \"again\": %" PRIu64 "}\n", stats.pieces,
           stats.again);
    bt_cpu_pool_destroy(pool);
    bt_free(idle.ns);
    bt_free(lent.ns);
    bt_free(in_way.ns);
    return 0;
}
