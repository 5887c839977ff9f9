/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the group on lent cores: what they do is done once in effect,
 * wherever one of them is stopped. */
#include "tests/support/testsupport.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/cpu/pool.h"

#define N_OWN   2u
#define N_LENT  2u
#define N_ITEMS 997u
#define PATIENT 60000u /* ms; guards against hanging only */

/* Where a lent thread is stopped, in the first piece that one takes. */
typedef enum stop_at {
    STOP_NOWHERE,
    STOP_IN_PREPARE,
    STOP_IN_KEEP,   /* in the middle of keeping */
    STOP_BEFORE,    /* the first item is written */
    STOP_IN_MIDDLE, /* the first one is */
    STOP_BEHIND,    /* all of the piece are */
} stop_at_t;

typedef struct work {
    stop_at_t stop_at;
    _Atomic bool stops; /* taken by the one that stops */
    _Atomic bool stopped;
    sem_t go_on;
    uint32_t add; /* what a job adds to each item, or its value */
    uint32_t x[N_ITEMS];
    uint32_t prepared[N_OWN + N_LENT];
    _Atomic uint32_t n_added[N_OWN + N_LENT];
} work_t;

static bt_cpu_pool_t *open_pool(uint32_t n_own, uint32_t n_lent)
{
    bt_cpu_pool_t *pool = NULL;
    bt_status_t status;

    assert_int_equal(bt_cpu_pool_create(n_own, NULL, &pool), BT_OK);
    status = bt_cpu_pool_lend(pool, NULL, n_lent, 4096);
    if (status == BT_ERR_UNSUPPORTED) {
        bt_cpu_pool_destroy(pool);
        skip();
    }
    assert_int_equal(status, BT_OK);
    assert_int_equal(bt_cpu_pool_slots(pool), n_own + n_lent);
    return pool;
}

/* As the kernel stops a thread: it executes nothing, and when it runs again a
 * signal that came meanwhile is taken first. */
static void stop_here(work_t *w, stop_at_t at, uint32_t thread)
{
    sigset_t all;
    sigset_t old;

    if ((w->stop_at != at) || (thread < N_OWN) ||
        atomic_exchange(&w->stops, true)) {
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    atomic_store(&w->stopped, true);
    while (sem_wait(&w->go_on) != 0) {
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    /* Not reached where the job has ended meanwhile: what follows writes. */
}

static void prepare(void *ctx, uint32_t thread)
{
    work_t *w = ctx;

    stop_here(w, STOP_IN_PREPARE, thread);
    w->prepared[thread] = w->add;
}

/* Own threads wait for the one that is to be stopped. */
static void wait_for_stop(work_t *w)
{
    const uint64_t end = bt_now_ms() + PATIENT;

    while ((w->stop_at != STOP_NOWHERE) && !atomic_load(&w->stopped) &&
           (bt_now_ms() < end)) {
        usleep(200); /* the core is to be idle */
    }
}

static void set_items(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    work_t *w = ctx;

    if (thread < N_OWN) {
        wait_for_stop(w);
    }
    stop_here(w, STOP_BEFORE, thread);
    for (uint32_t i = begin; i < end; i++) {
        w->x[i] = w->prepared[thread] + i;
        stop_here(w, STOP_IN_MIDDLE, thread);
    }
    stop_here(w, STOP_BEHIND, thread);
}

static void add_items(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    work_t *w = ctx;

    if (thread < N_OWN) {
        wait_for_stop(w);
    }
    stop_here(w, STOP_BEFORE, thread);
    atomic_fetch_add(&w->n_added[thread], 1);
    for (uint32_t i = begin; i < end; i++) {
        w->x[i] += w->add;
        stop_here(w, STOP_IN_MIDDLE, thread);
    }
    stop_here(w, STOP_BEHIND, thread);
}

static void keep_items(void *ctx, uint32_t begin, uint32_t end, void *copy,
                       bool back)
{
    work_t *w = ctx;
    const size_t bytes = (end - begin) * sizeof(uint32_t);

    if (!back) {
        memset(copy, 0xee, bytes);
        stop_here(w, STOP_IN_KEEP, N_OWN);
    }
    memcpy(back ? (void *)(w->x + begin) : copy,
           back ? copy : (void *)(w->x + begin), bytes);
}

static void run_set(bt_cpu_pool_t *pool, work_t *w, uint32_t grain)
{
    const bt_cpu_job_t job = {.prepare = prepare,
                              .fn = set_items,
                              .ctx = w,
                              .n_items = N_ITEMS,
                              .grain = grain,
                              .lend = true};

    bt_cpu_pool_run_job(pool, &job);
}

static void run_add(bt_cpu_pool_t *pool, work_t *w, uint32_t grain)
{
    const bt_cpu_job_t job = {.fn = add_items,
                              .ctx = w,
                              .n_items = N_ITEMS,
                              .grain = grain,
                              .lend = true,
                              .keep = keep_items,
                              .keep_bytes = sizeof(uint32_t)};

    bt_cpu_pool_run_job(pool, &job);
}

static void expect_items(const work_t *w, uint32_t base)
{
    uint32_t i = 0;

    /* An assertion for each would take longer than the jobs. */
    while ((i < N_ITEMS) && (w->x[i] == base + i)) {
        i++;
    }
    assert_int_equal(i, N_ITEMS);
}

/* Jobs one after another, some behind which the threads fall asleep. */
static void run_many(bt_cpu_pool_t *pool, uint32_t n_rounds)
{
    static const uint32_t grains[] = {1, 7, 50, 400, 2000};
    static work_t w;
    uint32_t base = 0;

    memset(&w, 0, sizeof(w));
    for (uint32_t round = 0; round < n_rounds; round++) {
        w.add = round * 3 + 1;
        if (round % 3 == 0) {
            run_set(pool, &w, grains[round % BT_ARRAY_LEN(grains)]);
            base = w.add;
        } else {
            run_add(pool, &w, grains[round % BT_ARRAY_LEN(grains)]);
            base += w.add;
        }
        expect_items(&w, base);
        if (round % 500 == 0) {
            usleep(1000); /* both ways to begin: asleep and not */
        }
    }
}

static void borrowed_cores_run_every_item_once_in_effect(void **state)
{
    bt_cpu_pool_t *pool = open_pool(N_OWN, N_LENT);

    (void)state;
    run_many(pool, 70000); /* job numbers wrap */
    bt_cpu_pool_destroy(pool);
}

static void work_of_one_thread_is_shared_with_borrowed_cores(void **state)
{
    static work_t w;
    bt_cpu_pool_t *pool = open_pool(1, N_LENT + 1);
    const uint64_t end = bt_now_ms() + PATIENT;
    bt_lent_stats_t stats = {0};

    (void)state;
    memset(&w, 0, sizeof(w));
    while ((stats.pieces == 0) && (bt_now_ms() < end)) {
        w.add++;
        bt_cpu_pool_run_lent(pool, N_ITEMS, 1, set_items, &w);
        bt_cpu_pool_lent_stats(pool, &stats);
    }
    assert_true(stats.pieces > 0);
    bt_cpu_pool_destroy(pool);
}

/* A core on which somebody else computes now and then. */
typedef struct burner {
    pthread_t thread;
    uint32_t core;
    _Atomic bool stop;
} burner_t;

static void *burn(void *arg)
{
    burner_t *b = arg;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(b->core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    while (!atomic_load(&b->stop)) {
        const uint64_t end = bt_now_ns() + 200000;

        while (bt_now_ns() < end) {
        }
        usleep(150);
    }
    return NULL;
}

static uint32_t some_core(void)
{
    cpu_set_t set;
    uint32_t core = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (uint32_t i = 0; i < CPU_SETSIZE; i++) {
        core = CPU_ISSET(i, &set) ? i : core;
    }
    return core;
}

static void core_reclaimed_repeatedly_loses_no_work(void **state)
{
    burner_t burner = {.core = some_core()};
    const uint32_t cores[N_LENT] = {burner.core, burner.core};
    bt_cpu_pool_t *pool = NULL;
    bt_status_t status;

    (void)state;
    assert_int_equal(bt_cpu_pool_create(N_OWN, NULL, &pool), BT_OK);
    status = bt_cpu_pool_lend(pool, cores, N_LENT, 4096);
    if (status == BT_ERR_UNSUPPORTED) {
        bt_cpu_pool_destroy(pool);
        skip();
    }
    assert_int_equal(status, BT_OK);
    assert_int_equal(pthread_create(&burner.thread, NULL, burn, &burner), 0);
    run_many(pool, 20000);
    atomic_store(&burner.stop, true);
    pthread_join(burner.thread, NULL);
    bt_cpu_pool_destroy(pool);
}

/* ThreadSanitizer keeps signals until a thread calls something, so there the
 * caller waits for who is stopped (lent.c). */
#ifndef __SANITIZE_THREAD__

static uint64_t n_again(const bt_cpu_pool_t *pool)
{
    bt_lent_stats_t stats;

    bt_cpu_pool_lent_stats(pool, &stats);
    return stats.again;
}

/* The thread goes on in the middle of other jobs and takes part again. */
static void let_go_on(bt_cpu_pool_t *pool, work_t *w)
{
    const uint64_t end = bt_now_ms() + PATIENT;
    uint32_t base = 5000;

    w->stop_at = STOP_NOWHERE;
    w->add = base;
    run_set(pool, w, 5);
    expect_items(w, base);
    atomic_store(&w->n_added[N_OWN], 0);
    sem_post(&w->go_on);
    do {
        w->add = 2;
        run_add(pool, w, 5);
        base += 2;
        expect_items(w, base);
        usleep(100); /* the core is to be idle */
    } while ((atomic_load(&w->n_added[N_OWN]) == 0) && (bt_now_ms() < end));
    assert_true(atomic_load(&w->n_added[N_OWN]) > 0);
}

static void stop_one(stop_at_t at, bool in_place)
{
    static work_t w;
    bt_cpu_pool_t *pool = open_pool(N_OWN, 1);

    memset(&w, 0, sizeof(w));
    assert_int_equal(sem_init(&w.go_on, 0, 0), 0);
    w.add = 100;
    run_set(pool, &w, 10);
    w.stop_at = at;
    w.add = 7;
    if (in_place) {
        run_add(pool, &w, 10);
    } else {
        run_set(pool, &w, 10);
    }
    assert_true(atomic_load(&w.stopped));
    expect_items(&w, in_place ? 107 : 7);
    assert_true(n_again(pool) >= 1);
    let_go_on(pool, &w);
    bt_cpu_pool_destroy(pool);
    sem_destroy(&w.go_on);
}

static void piece_of_a_stopped_thread_is_computed_again(void **state)
{
    (void)state;
    stop_one(STOP_IN_PREPARE, false);
    stop_one(STOP_BEFORE, false);
    stop_one(STOP_IN_MIDDLE, false);
    stop_one(STOP_BEHIND, false);
}

static void in_place_changes_of_a_stopped_thread_are_restored(void **state)
{
    (void)state;
    stop_one(STOP_IN_KEEP, true);
    stop_one(STOP_BEFORE, true);
    stop_one(STOP_IN_MIDDLE, true);
    stop_one(STOP_BEHIND, true);
}

#endif

static void unrestorable_pieces_are_not_shared(void **state)
{
    static work_t w;
    bt_cpu_pool_t *pool = open_pool(1, N_LENT);
    const bt_cpu_job_t job = {.fn = add_items,
                              .ctx = &w,
                              .n_items = 4,
                              .grain = 1,
                              .lend = true,
                              .keep = keep_items,
                              .keep_bytes = 4097};
    bt_lent_stats_t stats;

    (void)state;
    w.add = 1;
    for (uint32_t round = 0; round < 1000; round++) {
        bt_cpu_pool_run_job(pool, &job);
    }
    assert_int_equal(w.x[3], 1000);
    bt_cpu_pool_lent_stats(pool, &stats);
    assert_int_equal(stats.pieces, 0);
    bt_cpu_pool_destroy(pool);
}

static void core_lending_without_memory_uses_own_cores(void **state)
{
    static work_t w;
    bt_cpu_pool_t *pool = NULL;
    bt_status_t status = BT_ERR_NO_MEMORY;
    uint32_t nth = 0;

    (void)state;
    memset(&w, 0, sizeof(w));
    assert_int_equal(bt_cpu_pool_create(N_OWN, NULL, &pool), BT_OK);
    while (status == BT_ERR_NO_MEMORY) {
        bt_alloc_fail_at((int)++nth);
        status = bt_cpu_pool_lend(pool, NULL, N_LENT, 4096);
        bt_alloc_fail_at(0);
        w.add = nth;
        run_set(pool, &w, 10);
        expect_items(&w, nth);
    }
    if (status == BT_OK) { /* shares, threads, and what each keeps */
        assert_int_equal(nth, 3 + N_LENT);
        assert_int_equal(bt_cpu_pool_lend(pool, NULL, 1, 0),
                         BT_ERR_INVALID_PARAM);
    }
    bt_cpu_pool_destroy(pool);
}

static void invalid_number_of_lent_cores_is_refused(void **state)
{
    bt_cpu_pool_t *pool = open_pool(1, 1);
    bt_cpu_pool_t *other = NULL;

    (void)state;
    assert_int_equal(bt_cpu_pool_create(1, NULL, &other), BT_OK);
    assert_int_equal(bt_cpu_pool_lend(other, NULL, 0, 0), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_cpu_pool_lend(other, NULL, BT_CPU_MAX_LENT + 1, 0),
                     BT_ERR_INVALID_PARAM);
    bt_cpu_pool_destroy(other);
    bt_cpu_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(borrowed_cores_run_every_item_once_in_effect),
        BT_TEST(work_of_one_thread_is_shared_with_borrowed_cores),
        BT_TEST(core_reclaimed_repeatedly_loses_no_work),
#ifndef __SANITIZE_THREAD__
        BT_TEST(piece_of_a_stopped_thread_is_computed_again),
        BT_TEST(in_place_changes_of_a_stopped_thread_are_restored),
#endif
        BT_TEST(unrestorable_pieces_are_not_shared),
        BT_TEST(core_lending_without_memory_uses_own_cores),
        BT_TEST(invalid_number_of_lent_cores_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
