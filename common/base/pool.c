/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/pool.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/thread.h"

/* The lanes of each kind of thread, in their order. */
static const bt_pool_lane_t short_lanes[] = {BT_POOL_FIRST, BT_POOL_SHORT,
                                             BT_POOL_N_LANES};
static const bt_pool_lane_t all_lanes[] = {BT_POOL_FIRST, BT_POOL_LONG,
                                           BT_POOL_SHORT, BT_POOL_N_LANES};
static const bt_pool_lane_t file_lanes[] = {BT_POOL_FILES, BT_POOL_N_LANES};

typedef struct worker {
    bt_pool_t *pool;
    pthread_t thread;
    const bt_pool_lane_t *lanes;
    pthread_cond_t *wake;
} worker_t;

struct bt_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, wake_files;
    /* Under the lock. */
    bt_list_t lanes[BT_POOL_N_LANES];
    bt_list_t finished;
    bool ending;
    /* The owner's. */
    bt_list_t taken; /* finished, done() not called yet */
    int fd;
    uint32_t n_jobs;
    bt_pool_canceled_t canceled;
    bool stopped;
    uint32_t n_workers;
    worker_t *workers;
};

/* ---- the threads ---- */

static bt_pool_job_t *take_from(bt_list_t *lane)
{
    bt_pool_job_t *job;

    if (bt_list_empty(lane)) {
        return NULL;
    }
    job = BT_CONTAINER_OF(lane->next, bt_pool_job_t, link);
    bt_list_remove(&job->link);
    return job;
}

/* With the lock. NULL: the pool ends. */
static bt_pool_job_t *next_job(const worker_t *worker)
{
    bt_pool_t *pool = worker->pool;

    while (!pool->ending) {
        for (const bt_pool_lane_t *lane = worker->lanes;
             *lane != BT_POOL_N_LANES; lane++) {
            bt_pool_job_t *job = take_from(&pool->lanes[*lane]);

            if (job != NULL) {
                job->queued = false;
                return job;
            }
        }
        pthread_cond_wait(worker->wake, &pool->lock);
    }
    return NULL;
}

/* With the lock. */
static void push_finished(bt_pool_t *pool, bt_pool_job_t *job)
{
    static const uint64_t one = 1;

    if (bt_list_empty(&pool->finished)) {
        /* Cannot fail or wait: the count is far from its end. */
        (void)!write(pool->fd, &one, sizeof(one));
    }
    bt_list_push_back(&pool->finished, &job->link);
}

static void *work(void *arg)
{
    const worker_t *worker = arg;
    bt_pool_t *pool = worker->pool;
    bt_pool_job_t *job;

    bt_thread_works_long(false); /* the owner gets a core before us */
    pthread_mutex_lock(&pool->lock);
    while ((job = next_job(worker)) != NULL) {
        bt_task_t *before;

        pthread_mutex_unlock(&pool->lock);
        before = bt_task_enter(&job->task);
        job->run(job);
        bt_task_leave(before);
        job->ran = true;
        pthread_mutex_lock(&pool->lock);
        push_finished(pool, job);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- the owner ---- */

void bt_pool_post(bt_pool_t *pool, bt_pool_job_t *job, bt_pool_lane_t lane)
{
    job->ran = false;
    bt_task_init(&job->task);
    if (pool->stopped) {
        job->done(job);
        return;
    }
    pool->n_jobs++;
    pthread_mutex_lock(&pool->lock);
    job->queued = true;
    bt_list_push_back(&pool->lanes[lane], &job->link);
    pthread_mutex_unlock(&pool->lock);
    if (lane == BT_POOL_FILES) {
        pthread_cond_signal(&pool->wake_files);
    } else if (lane != BT_POOL_LONG) {
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
        job->queued = false;
        bt_list_remove(&job->link);
        push_finished(pool, job);
    }
    pthread_mutex_unlock(&pool->lock);
    if (was_queued) {
        pool->canceled.queued++;
    } else {
        pool->canceled.running++;
    }
}

bt_pool_canceled_t bt_pool_canceled(const bt_pool_t *pool)
{
    return pool->canceled;
}

int bt_pool_fd(const bt_pool_t *pool)
{
    return pool->fd;
}

uint32_t bt_pool_n_jobs(const bt_pool_t *pool)
{
    return pool->n_jobs;
}

static void move_all(bt_list_t *from, bt_list_t *to)
{
    while (!bt_list_empty(from)) {
        bt_list_t *link = from->next;

        bt_list_remove(link);
        bt_list_push_back(to, link);
    }
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
        /* The count first: what finishes after it makes the descriptor
         * readable again. */
        (void)!read(pool->fd, &count, sizeof(count));
        pthread_mutex_lock(&pool->lock);
        move_all(&pool->finished, &pool->taken);
        pthread_mutex_unlock(&pool->lock);
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
    move_all(&pool->finished, &pool->taken);
    for (int lane = 0; lane < BT_POOL_N_LANES; lane++) {
        move_all(&pool->lanes[lane], &pool->taken);
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
    worker->wake = (i == n) ? &pool->wake_files : &pool->wake;
    worker->lanes = all_lanes;
    if (i == 0) {
        worker->lanes = short_lanes;
    } else if (i == n) {
        worker->lanes = file_lanes;
    }
}

/* And one for files. */
static bt_status_t start_threads(bt_pool_t *pool, uint32_t n)
{
    for (uint32_t i = 0; i <= n; i++) {
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
    pthread_cond_init(&pool->wake_files, NULL);
    bt_list_init(&pool->finished);
    bt_list_init(&pool->taken);
    for (int lane = 0; lane < BT_POOL_N_LANES; lane++) {
        bt_list_init(&pool->lanes[lane]);
    }
    pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pool->workers = bt_calloc((size_t)n_threads + 1, sizeof(*pool->workers));
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
