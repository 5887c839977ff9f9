/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"

/* Queues of each kind of thread, in order. */
static const bt_pool_queue_t short_queues[] = {BT_POOL_FIRST, BT_POOL_SHORT,
                                               BT_POOL_N_QUEUES};
static const bt_pool_queue_t all_queues[] = {BT_POOL_FIRST, BT_POOL_LONG,
                                             BT_POOL_SHORT, BT_POOL_N_QUEUES};
static const bt_pool_queue_t background_queues[] = {BT_POOL_BACKGROUND,
                                                    BT_POOL_N_QUEUES};
static const bt_pool_queue_t file_queues[] = {BT_POOL_FILES, BT_POOL_N_QUEUES};

/* Limits of jobs that run inside others. */
#define MAX_INSIDE 4u
/* A poll that found nothing to run inside is not repeated sooner. */
#define LOOK_US 500u
/* Jobs run inside may take this much more than half of the time. */
#define AHEAD_US 2000u

/* A job that a thread runs, perhaps inside another one. */
typedef struct frame {
    struct frame *outer;
    bt_pool_job_t *job;
    uint64_t start_us, inside_us; /* of which for others */
    uint64_t look_us;             /* not to look for others before */
} frame_t;

typedef struct worker {
    bt_pool_t *pool;
    pthread_t thread;
    const bt_pool_queue_t *queues;
    pthread_cond_t *wake;
    frame_t *frame; /* NULL: it runs nothing */
    uint32_t depth;
} worker_t;

typedef struct queue {
    bt_list_t jobs; /* jobs without a position in the order */
    const bt_pool_order_t *order;
    void *ctx;
    /* Written under the lock. */
    _Atomic uint32_t n_waiting;
} queue_t;

struct bt_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, wake_background, wake_files;
    /* Under the lock. */
    queue_t queues[BT_POOL_N_QUEUES];
    bool ending;
    /* Last finished job, whose link leads to the one before it. Lock-free: a
     * thread that has just taken a lock may be descheduled for long, and the
     * owner would wait with it. */
    _Atomic(bt_list_t *) finished;
    /* Written under the lock. */
    _Atomic uint64_t n_inside;
    /* The owner's. */
    bt_list_t taken; /* finished, done() not called yet */
    int fd;
    uint32_t n_jobs;
    bt_pool_canceled_t canceled;
    bool stopped;
    uint32_t n_workers;
    worker_t *workers;
};

/* ---- the queues, with the lock ---- */

static bt_pool_job_t *take_from(bt_list_t *list)
{
    bt_pool_job_t *job;

    if (bt_list_empty(list)) {
        return NULL;
    }
    job = BT_CONTAINER_OF(list->next, bt_pool_job_t, link);
    bt_list_remove(&job->link);
    return job;
}

static const bt_pool_order_t *order_of(const bt_pool_t *pool,
                                       const bt_pool_job_t *job)
{
    return (job->position != NULL) ? pool->queues[job->queue].order : NULL;
}

static void left_queue(bt_pool_t *pool, bt_pool_job_t *job)
{
    job->queued = false;
    pool->queues[job->queue].n_waiting--;
}

static void queue_push(bt_pool_t *pool, bt_pool_job_t *job)
{
    const bt_pool_order_t *order = order_of(pool, job);

    job->queued = true;
    pool->queues[job->queue].n_waiting++;
    if (order != NULL) {
        bt_list_init(&job->link);
        order->push(pool->queues[job->queue].ctx, job);
    } else {
        bt_list_push_back(&pool->queues[job->queue].jobs, &job->link);
    }
}

static bt_pool_job_t *queue_pop(bt_pool_t *pool, bt_pool_queue_t which,
                                uint64_t most_us)
{
    const queue_t *queue = &pool->queues[which];
    bt_pool_job_t *job = NULL;

    if (most_us == UINT64_MAX) {
        job = take_from(&pool->queues[which].jobs);
    }
    if ((job == NULL) && (queue->order != NULL)) {
        job = queue->order->pop(queue->ctx, most_us);
    }
    if (job != NULL) {
        left_queue(pool, job);
    }
    return job;
}

static void queue_remove(bt_pool_t *pool, bt_pool_job_t *job)
{
    const bt_pool_order_t *order = order_of(pool, job);

    if (order != NULL) {
        order->remove(pool->queues[job->queue].ctx, job);
    } else {
        bt_list_remove(&job->link);
    }
    left_queue(pool, job);
}

/* ---- the threads ---- */

/* With the lock. NULL: the pool ends. */
static bt_pool_job_t *next_job(const worker_t *worker)
{
    bt_pool_t *pool = worker->pool;

    while (!pool->ending) {
        for (const bt_pool_queue_t *queue = worker->queues;
             *queue != BT_POOL_N_QUEUES; queue++) {
            bt_pool_job_t *job = queue_pop(pool, *queue, UINT64_MAX);

            if (job != NULL) {
                return job;
            }
        }
        pthread_cond_wait(worker->wake, &pool->lock);
    }
    return NULL;
}

/* Without the lock: the owner wakes at once, on this thread's core perhaps. The
 * job is the owner's from here. */
static void push_finished(bt_pool_t *pool, bt_pool_job_t *job)
{
    static const uint64_t one = 1;
    bt_list_t *before = atomic_load(&pool->finished);

    do {
        job->link.next = before;
    } while (
        !atomic_compare_exchange_weak(&pool->finished, &before, &job->link));
    if (before == NULL) {
        /* Cannot fail or block: the count is far from its maximum. */
        (void)!write(pool->fd, &one, sizeof(one));
    }
}

/* Newly finished jobs go behind those taken before, in order. */
static void take_finished(bt_pool_t *pool)
{
    bt_list_t *link = atomic_exchange(&pool->finished, NULL);
    bt_list_t *first = NULL;
    bt_list_t *next;

    for (; link != NULL; link = next) {
        next = link->next;
        link->next = first;
        first = link;
    }
    for (; first != NULL; first = next) {
        next = first->next;
        bt_list_push_back(&pool->taken, first);
    }
}

static bool may_run_inside(const bt_pool_job_t *job)
{
    return (job->queue == BT_POOL_LONG) || (job->queue == BT_POOL_BACKGROUND);
}

static void run_inside(void *ctx);

/* With the lock, which is free while the job runs. */
static void run_job(worker_t *worker, bt_pool_job_t *job)
{
    bt_pool_t *pool = worker->pool;
    const bt_pool_order_t *order = order_of(pool, job);
    frame_t frame = {.outer = worker->frame, .job = job};
    bt_task_t *before;
    uint64_t all_us;

    pthread_mutex_unlock(&pool->lock);
    if (may_run_inside(job) && (order != NULL)) {
        job->task.yield = run_inside;
        job->task.ctx = worker;
    }
    job->task.account = job->account;
    worker->frame = &frame;
    worker->depth++;
    frame.start_us = bt_now_us();
    before = bt_task_enter(&job->task);
    job->run(job);
    bt_task_leave(before);
    all_us = bt_now_us() - frame.start_us;
    worker->depth--;
    worker->frame = frame.outer;
    if (frame.outer != NULL) {
        frame.outer->inside_us += all_us;
    }
    job->ran = true;
    if (order != NULL) {
        pthread_mutex_lock(&pool->lock);
        order->ended(pool->queues[job->queue].ctx, job,
                     all_us - frame.inside_us);
        pthread_mutex_unlock(&pool->lock);
    }
    push_finished(pool, job);
    pthread_mutex_lock(&pool->lock);
}

/* At a poll of a long job: runs shorter queued ones of its queue, while its
 * own share of the time is at least theirs. */
static void run_inside(void *ctx)
{
    worker_t *worker = ctx;
    bt_pool_t *pool = worker->pool;
    frame_t *frame = worker->frame;
    const bt_pool_queue_t queue = frame->job->queue;
    bt_pool_job_t *job;
    uint64_t now_us;

    if ((atomic_load_explicit(&pool->queues[queue].n_waiting,
                              memory_order_relaxed) == 0) ||
        (worker->depth > MAX_INSIDE)) {
        return;
    }
    now_us = bt_now_us();
    if ((now_us < frame->look_us) ||
        (2 * frame->inside_us > now_us - frame->start_us + AHEAD_US)) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    job = pool->ending ? NULL : queue_pop(pool, queue, frame->job->cost_us / 2);
    if (job != NULL) {
        const uint64_t start_ns = bt_thread_cpu_ns();

        pool->n_inside++;
        run_job(worker, job);
        frame->job->task.away_ns += bt_thread_cpu_ns() - start_ns;
    }
    pthread_mutex_unlock(&pool->lock);
    frame->look_us = (job != NULL) ? 0 : now_us + LOOK_US;
}

static void *work(void *arg)
{
    worker_t *worker = arg;
    bt_pool_t *pool = worker->pool;
    bt_pool_job_t *job;

    bt_thread_works_long(false); /* the owner gets a core before us */
    if (worker->queues == background_queues) {
        bt_thread_works_in_background();
    }
    pthread_mutex_lock(&pool->lock);
    while ((job = next_job(worker)) != NULL) {
        run_job(worker, job);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- the owner ---- */

void bt_pool_set_order(bt_pool_t *pool, bt_pool_queue_t queue,
                       const bt_pool_order_t *order, void *ctx)
{
    pthread_mutex_lock(&pool->lock);
    pool->queues[queue].order = order;
    pool->queues[queue].ctx = ctx;
    pthread_mutex_unlock(&pool->lock);
}

void bt_pool_post(bt_pool_t *pool, bt_pool_job_t *job, bt_pool_queue_t queue)
{
    job->ran = false;
    bt_task_init(&job->task);
    if (pool->stopped) {
        job->done(job);
        return;
    }
    pool->n_jobs++;
    job->queue = queue;
    pthread_mutex_lock(&pool->lock);
    queue_push(pool, job);
    pthread_mutex_unlock(&pool->lock);
    if (queue == BT_POOL_FILES) {
        pthread_cond_signal(&pool->wake_files);
    } else if (queue == BT_POOL_BACKGROUND) {
        pthread_cond_signal(&pool->wake_background);
    } else if (queue != BT_POOL_LONG) {
        pthread_cond_signal(&pool->wake);
    } else {
        /* A signal might wake the one thread that does not take it. */
        pthread_cond_broadcast(&pool->wake);
    }
}

void bt_pool_cancel(bt_pool_t *pool, bt_pool_job_t *job)
{
    bool was_queued;

    if (bt_task_is_canceled(&job->task)) {
        return;
    }
    bt_task_cancel(&job->task);
    pthread_mutex_lock(&pool->lock);
    was_queued = job->queued;
    if (was_queued) {
        queue_remove(pool, job);
    }
    pthread_mutex_unlock(&pool->lock);
    if (was_queued) {
        push_finished(pool, job);
        pool->canceled.queued++;
    } else {
        pool->canceled.running++;
    }
}

bt_pool_canceled_t bt_pool_canceled(const bt_pool_t *pool)
{
    return pool->canceled;
}

uint64_t bt_pool_n_inside(const bt_pool_t *pool)
{
    return pool->n_inside;
}

int bt_pool_fd(const bt_pool_t *pool)
{
    return pool->fd;
}

uint32_t bt_pool_n_jobs(const bt_pool_t *pool)
{
    return pool->n_jobs;
}

static void end_job(bt_pool_t *pool, bt_pool_job_t *job)
{
    pool->n_jobs--;
    job->done(job);
}

bool bt_pool_next(bt_pool_t *pool)
{
    bt_pool_job_t *job = take_from(&pool->taken);
    uint64_t count;

    if (job == NULL) {
        /* The count first: jobs that finish afterwards make the descriptor
         * readable again. */
        (void)!read(pool->fd, &count, sizeof(count));
        take_finished(pool);
        job = take_from(&pool->taken);
    }
    if (job == NULL) {
        return false;
    }
    end_job(pool, job);
    return true;
}

/* ---- birth and end ---- */

static void join_all(bt_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_cond_broadcast(&pool->wake_background);
    pthread_cond_broadcast(&pool->wake_files);
    for (uint32_t i = 0; i < pool->n_workers; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pool->n_workers = 0;
}

void bt_pool_stop(bt_pool_t *pool)
{
    bt_pool_job_t *job;

    if (pool->stopped) {
        return;
    }
    join_all(pool);
    pool->stopped = true;
    take_finished(pool);
    for (int queue = 0; queue < BT_POOL_N_QUEUES; queue++) {
        while ((job = queue_pop(pool, (bt_pool_queue_t)queue, UINT64_MAX)) !=
               NULL) {
            if (order_of(pool, job) != NULL) {
                order_of(pool, job)->ended(pool->queues[queue].ctx, job, 0);
            }
            bt_list_push_back(&pool->taken, &job->link);
        }
    }
    while ((job = take_from(&pool->taken)) != NULL) {
        end_job(pool, job);
    }
}

static void pool_free(bt_pool_t *pool)
{
    if (pool->fd >= 0) {
        close(pool->fd);
    }
    pthread_cond_destroy(&pool->wake_files);
    pthread_cond_destroy(&pool->wake_background);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    bt_free(pool->workers);
    bt_free(pool);
}

void bt_pool_destroy(bt_pool_t *pool)
{
    if (pool != NULL) {
        bt_pool_stop(pool);
        pool_free(pool);
    }
}

static void assign(bt_pool_t *pool, worker_t *worker, uint32_t i, uint32_t n)
{
    worker->pool = pool;
    worker->wake = &pool->wake;
    worker->queues = (i == 0) ? short_queues : all_queues;
    if (i == n) {
        worker->wake = &pool->wake_background;
        worker->queues = background_queues;
    } else if (i > n) {
        worker->wake = &pool->wake_files;
        worker->queues = file_queues;
    }
}

/* And one each for the background and for files. */
static bt_status_t start_threads(bt_pool_t *pool, uint32_t n)
{
    for (uint32_t i = 0; i < n + 2; i++) {
        worker_t *worker = &pool->workers[i];

        assign(pool, worker, i, n);
        if (bt_thread_start(&worker->thread, work, worker) != 0) {
            return BT_ERR_IO;
        }
        pool->n_workers++;
    }
    return BT_OK;
}

bt_status_t bt_pool_create(uint32_t n_threads, bt_pool_t **pool_p)
{
    bt_pool_t *pool;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (n_threads < 2) {
        return BT_ERR_INVALID_PARAM;
    }
    pool = bt_calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return status;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->wake_background, NULL);
    pthread_cond_init(&pool->wake_files, NULL);
    bt_list_init(&pool->taken);
    for (int queue = 0; queue < BT_POOL_N_QUEUES; queue++) {
        bt_list_init(&pool->queues[queue].jobs);
    }
    pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pool->workers = bt_calloc((size_t)n_threads + 2, sizeof(*pool->workers));
    if (pool->workers != NULL) {
        status = (pool->fd >= 0) ? start_threads(pool, n_threads) : BT_ERR_IO;
    }
    if (status != BT_OK) {
        join_all(pool);
        pool_free(pool);
        return status;
    }
    *pool_p = pool;
    return BT_OK;
}
