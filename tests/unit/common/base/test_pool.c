/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/pool.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/containers.h"
#include "tests/support/testsupport.h"

#define PATIENCE_MS 60000
#define N_MANY      5000u

typedef struct work {
    bt_pool_job_t job;
    sem_t *gate; /* waited for by run(); NULL: none */
    sem_t *began;
    pthread_t thread; /* of run() */
    unsigned n_run, n_done;
    unsigned posts_left; /* done() posts it again */
    bt_pool_t *pool;
    void *memory; /* that run() got */
} work_t;

static work_t *work_of(bt_pool_job_t *job)
{
    return BT_CONTAINER_OF(job, work_t, job);
}

static void run(bt_pool_job_t *job)
{
    work_t *work = work_of(job);

    work->thread = pthread_self();
    if (work->began != NULL) {
        sem_post(work->began);
    }
    if (work->gate != NULL) {
        sem_wait(work->gate);
    }
    work->n_run++;
}

static void done(bt_pool_job_t *job)
{
    work_t *work = work_of(job);

    work->n_done++;
    if (work->posts_left > 0) {
        work->posts_left--;
        bt_pool_post(work->pool, job, BT_POOL_SHORT);
    }
}

static void work_init(work_t *work, bt_pool_t *pool)
{
    memset(work, 0, sizeof(*work));
    work->job.run = run;
    work->job.done = done;
    work->pool = pool;
}

static bt_pool_t *pool_of(uint32_t n_threads)
{
    bt_pool_t *pool = NULL;

    assert_int_equal(bt_pool_create(n_threads, &pool), BT_OK);
    return pool;
}

/* As an event loop does. */
static void next(bt_pool_t *pool)
{
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

    while (!bt_pool_next(pool)) {
        struct pollfd fd = {.fd = bt_pool_fd(pool), .events = POLLIN};

        assert_true(bt_now_ms() < end_ms);
        assert_int_not_equal(poll(&fd, 1, PATIENCE_MS), 0);
    }
}

static void job_runs_in_a_pool_thread_and_completes_in_the_owner(void **state)
{
    bt_pool_t *pool = pool_of(2);
    struct pollfd fd = {.fd = bt_pool_fd(pool), .events = POLLIN};
    work_t work;

    (void)state;
    work_init(&work, pool);
    work.posts_left = 2;
    assert_false(bt_pool_next(pool));
    assert_int_equal(poll(&fd, 1, 0), 0);
    bt_pool_post(pool, &work.job, BT_POOL_LONG);
    assert_int_equal(bt_pool_n_jobs(pool), 1);
    for (unsigned i = 1; i <= 3; i++) {
        next(pool);
        assert_int_equal(work.n_done, i);
    }
    assert_int_equal(work.n_run, 3);
    assert_true(work.job.ran);
    assert_false(pthread_equal(work.thread, pthread_self()));
    assert_int_equal(bt_pool_n_jobs(pool), 0);
    assert_false(bt_pool_next(pool));
    assert_int_equal(poll(&fd, 1, 0), 0);
    bt_pool_destroy(pool);
    bt_pool_destroy(NULL);
}

/* Of each queue as many as would take all threads, were there one queue. */
static void short_and_long_jobs_do_not_wait_for_each_other(void **state)
{
    for (int held = BT_POOL_SHORT; held <= BT_POOL_LONG; held++) {
        bt_pool_t *pool = pool_of(3);
        work_t busy[8], other;
        sem_t gates[8], began;

        (void)state;
        sem_init(&began, 0, 0);
        for (unsigned i = 0; i < 8; i++) {
            sem_init(&gates[i], 0, 0);
            work_init(&busy[i], pool);
            busy[i].gate = &gates[i];
            busy[i].began = &began;
            bt_pool_post(pool, &busy[i].job, (bt_pool_queue_t)held);
        }
        sem_wait(&began);
        sem_wait(&began);
        if (held == BT_POOL_LONG) {
            /* The short queue's thread is free. */
            work_init(&other, pool);
            bt_pool_post(pool, &other.job, BT_POOL_SHORT);
            next(pool);
            assert_int_equal(other.n_done, 1);
        } else {
            /* All are taken; the first that ends and takes from both queues
             * takes this one, before the five that were there before. */
            sem_wait(&began);
            work_init(&other, pool);
            bt_pool_post(pool, &other.job, BT_POOL_LONG);
            for (unsigned i = 0; i < 3; i++) {
                sem_post(&gates[i]);
                next(pool);
            }
            if (other.n_done == 0) { /* the three ended before it */
                next(pool);
            }
            assert_int_equal(other.n_done, 1);
        }
        for (unsigned i = 0; i < 8; i++) {
            sem_post(&gates[i]);
        }
        bt_pool_destroy(pool);
        for (unsigned i = 0; i < 8; i++) {
            assert_int_equal(busy[i].n_done, 1);
            sem_destroy(&gates[i]);
        }
        sem_destroy(&began);
    }
}

/* Behind a crowd in both others. */
static void first_class_runs_before_the_others(void **state)
{
    bt_pool_t *pool = pool_of(2);
    work_t busy[2], crowd[8], first;
    sem_t gate, began;

    (void)state;
    sem_init(&gate, 0, 0);
    sem_init(&began, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        work_init(&busy[i], pool);
        busy[i].gate = &gate;
        busy[i].began = &began;
        /* Both threads take short ones, but one of them alone the long one. */
        bt_pool_post(pool, &busy[i].job,
                     (i == 0) ? BT_POOL_LONG : BT_POOL_SHORT);
        sem_wait(&began);
    }
    for (unsigned i = 0; i < 8; i++) {
        work_init(&crowd[i], pool);
        bt_pool_post(pool, &crowd[i].job,
                     (i % 2 == 0) ? BT_POOL_SHORT : BT_POOL_LONG);
    }
    work_init(&first, pool);
    bt_pool_post(pool, &first.job, BT_POOL_FIRST);
    sem_post(&gate); /* for one of the two threads, whichever */
    next(pool);
    assert_int_equal(busy[0].n_done + busy[1].n_done, 1);
    next(pool);
    assert_int_equal(first.n_done, 1);
    sem_post(&gate);
    bt_pool_destroy(pool);
    sem_destroy(&gate);
    sem_destroy(&began);
}

/* Long before anybody else's disk has answered, or what takes longest ends. */
static void own_queues_hold_up_nobody(bt_pool_queue_t queue)
{
    bt_pool_t *pool = pool_of(2);
    work_t slow[3], others[3];
    sem_t gate, began;

    sem_init(&gate, 0, 0);
    sem_init(&began, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        work_init(&slow[i], pool);
        slow[i].gate = &gate;
        slow[i].began = &began;
        bt_pool_post(pool, &slow[i].job, queue);
    }
    sem_wait(&began);
    for (unsigned i = 0; i < 3; i++) {
        work_init(&others[i], pool);
        bt_pool_post(pool, &others[i].job, (bt_pool_queue_t)i);
    }
    for (unsigned i = 0; i < 3; i++) {
        next(pool);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(others[i].n_done, 1);
        assert_int_equal(slow[i].n_done, 0);
        sem_post(&gate);
    }
    while (bt_pool_n_jobs(pool) > 0) {
        next(pool);
    }
    bt_pool_destroy(pool);
    sem_destroy(&gate);
    sem_destroy(&began);
}

static void file_jobs_delay_no_other_class(void **state)
{
    (void)state;
    own_queues_hold_up_nobody(BT_POOL_FILES);
}

static void background_jobs_delay_no_other_class(void **state)
{
    (void)state;
    own_queues_hold_up_nobody(BT_POOL_BACKGROUND);
}

static void read_weight(bt_pool_job_t *job)
{
    work_of(job)->n_run = (unsigned)getpriority(PRIO_PROCESS, (id_t)gettid());
}

/* setpriority(2): 19 is the highest nice value. */
static void only_background_jobs_run_15_nice_levels_lower(void **state)
{
    bt_pool_t *pool = pool_of(2);
    const int usual = getpriority(PRIO_PROCESS, (id_t)gettid());
    const int lower = (usual + 15 > 19) ? 19 : usual + 15;
    work_t work;

    (void)state;
    for (int queue = 0; queue < BT_POOL_N_QUEUES; queue++) {
        work_init(&work, pool);
        work.job.run = read_weight;
        bt_pool_post(pool, &work.job, (bt_pool_queue_t)queue);
        next(pool);
        assert_int_equal(work.n_run,
                         (queue == BT_POOL_BACKGROUND) ? lower : usual);
    }
    bt_pool_destroy(pool);
}

/* An order whose one job may run once, and that holds the lock from then on. */
typedef struct held_order {
    bt_pool_job_t *job; /* NULL: it was taken */
    sem_t *gate, *held;
    bool was_taken;
} held_order_t;

static void held_push(void *ctx, bt_pool_job_t *job)
{
    ((held_order_t *)ctx)->job = job;
}

static bt_pool_job_t *held_pop(void *ctx, uint64_t most_us)
{
    held_order_t *order = ctx;
    bt_pool_job_t *job = order->job;

    (void)most_us;
    if ((job == NULL) && order->was_taken) {
        order->was_taken = false;
        sem_post(order->held);
        sem_wait(order->gate);
    }
    order->job = NULL;
    order->was_taken = order->was_taken || (job != NULL);
    return job;
}

static void held_remove(void *ctx, bt_pool_job_t *job)
{
    (void)ctx;
    (void)job;
}

static void held_ended(void *ctx, bt_pool_job_t *job, uint64_t took_us)
{
    (void)ctx;
    (void)job;
    (void)took_us;
}

/* A thread that holds the lock may have no core for as long as others compute:
 * the owner gets what finished without it. Before, it waited here for ever. */
static void
finished_job_is_delivered_while_a_thread_holds_the_lock(void **state)
{
    static const bt_pool_order_t order = {.push = held_push,
                                          .pop = held_pop,
                                          .remove = held_remove,
                                          .ended = held_ended};
    bt_pool_t *pool = pool_of(2);
    sem_t gate, held;
    held_order_t ctx = {.gate = &gate, .held = &held};
    work_t work;

    (void)state;
    sem_init(&gate, 0, 0);
    sem_init(&held, 0, 0);
    bt_pool_set_order(pool, BT_POOL_BACKGROUND, &order, &ctx);
    work_init(&work, pool);
    work.job.position = &ctx;
    bt_pool_post(pool, &work.job, BT_POOL_BACKGROUND);
    sem_wait(&held); /* it has run, and its thread asks for the next one */
    next(pool);
    assert_int_equal(work.n_done, 1);
    sem_post(&gate);
    bt_pool_destroy(pool);
    sem_destroy(&gate);
    sem_destroy(&held);
}

static void jobs_not_run_are_reported_when_the_pool_stops(void **state)
{
    bt_pool_t *pool = pool_of(2);
    work_t running, waiting[3], late;
    sem_t gate, began;

    (void)state;
    sem_init(&gate, 0, 0);
    sem_init(&began, 0, 0);
    work_init(&running, pool);
    running.gate = &gate;
    running.began = &began;
    bt_pool_post(pool, &running.job, BT_POOL_LONG);
    sem_wait(&began);
    for (unsigned i = 0; i < 3; i++) {
        work_init(&waiting[i], pool);
        bt_pool_post(pool, &waiting[i].job, BT_POOL_LONG); /* behind it */
    }
    sem_post(&gate);
    bt_pool_stop(pool);
    bt_pool_stop(pool);
    assert_true(running.job.ran);
    assert_int_equal(running.n_done, 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(waiting[i].n_done, 1);
        assert_int_equal(waiting[i].n_run, waiting[i].job.ran ? 1 : 0);
    }
    work_init(&late, pool);
    bt_pool_post(pool, &late.job, BT_POOL_SHORT);
    assert_int_equal(late.n_done, 1);
    assert_int_equal(late.n_run, 0);
    assert_false(late.job.ran);
    assert_int_equal(bt_pool_n_jobs(pool), 0);
    bt_pool_destroy(pool);
    sem_destroy(&gate);
    sem_destroy(&began);
}

static void run_until_canceled(bt_pool_job_t *job)
{
    work_t *work = work_of(job);
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;
    bool gives_up = false;

    sem_post(work->began);
    while (!gives_up && (bt_now_ms() < end_ms)) {
        gives_up = bt_task_poll();
    }
    work->n_run += gives_up ? 1 : 0;
    work->memory = bt_calloc(1, 1);
}

static void canceled_job_is_removed_or_stops_early(void **state)
{
    bt_pool_t *pool = pool_of(2);
    work_t running, waiting[3];
    sem_t began;

    (void)state;
    sem_init(&began, 0, 0);
    work_init(&running, pool);
    running.job.run = run_until_canceled;
    running.began = &began;
    bt_pool_post(pool, &running.job, BT_POOL_LONG);
    sem_wait(&began);
    for (unsigned i = 0; i < 3; i++) {
        work_init(&waiting[i], pool);
        bt_pool_post(pool, &waiting[i].job, BT_POOL_LONG);
    }
    bt_pool_cancel(pool, &waiting[1].job);
    bt_pool_cancel(pool, &waiting[1].job); /* nothing more happens */
    next(pool);
    assert_int_equal(waiting[1].n_done, 1);
    assert_int_equal(waiting[1].n_run, 0);
    assert_false(waiting[1].job.ran);
    assert_int_equal(running.n_done, 0);

    bt_pool_cancel(pool, &running.job);
    for (unsigned i = 0; i < 3; i++) {
        next(pool);
    }
    assert_int_equal(running.n_run, 1);
    assert_true(running.job.ran);
    assert_null(running.memory); /* allocations of a canceled task fail */
    assert_int_equal(waiting[0].n_run, 1);
    assert_int_equal(waiting[2].n_run, 1);
    assert_int_equal(bt_pool_n_jobs(pool), 0);
    assert_int_equal(bt_pool_canceled(pool).queued, 1);
    assert_int_equal(bt_pool_canceled(pool).running, 1);
    assert_false(bt_task_poll()); /* the owner's thread works for none */
    bt_pool_destroy(pool);
    sem_destroy(&began);
}

static void many_jobs_are_each_done_once(void **state)
{
    static work_t works[N_MANY];
    bt_pool_t *pool = pool_of(4);

    (void)state;
    for (unsigned i = 0; i < N_MANY; i++) {
        work_init(&works[i], pool);
        bt_pool_post(pool, &works[i].job,
                     (i % 3 == 0) ? BT_POOL_LONG : BT_POOL_SHORT);
    }
    while (bt_pool_n_jobs(pool) > 0) {
        next(pool);
    }
    for (unsigned i = 0; i < N_MANY; i++) {
        assert_int_equal(works[i].n_run, 1);
        assert_int_equal(works[i].n_done, 1);
    }
    bt_pool_destroy(pool);
}

static void pool_creation_failure_returns_an_error(void **state)
{
    bt_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_pool_create(1, &pool), BT_ERR_INVALID_PARAM);
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_pool_create(2, &pool), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
    }
    assert_null(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(job_runs_in_a_pool_thread_and_completes_in_the_owner),
        BT_TEST(short_and_long_jobs_do_not_wait_for_each_other),
        BT_TEST(file_jobs_delay_no_other_class),
        BT_TEST(background_jobs_delay_no_other_class),
        BT_TEST(only_background_jobs_run_15_nice_levels_lower),
        BT_TEST(first_class_runs_before_the_others),
        BT_TEST(finished_job_is_delivered_while_a_thread_holds_the_lock),
        BT_TEST(jobs_not_run_are_reported_when_the_pool_stops),
        BT_TEST(canceled_job_is_removed_or_stops_early),
        BT_TEST(many_jobs_are_each_done_once),
        BT_TEST(pool_creation_failure_returns_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
