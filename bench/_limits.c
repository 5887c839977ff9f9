/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_limits.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

#define MAX_THREADS 1024u
#define MIN_PASSES  3u
#define MAX_PASSES  4096u
#define PASS_NS     10000000u /* of a loop in registers */
#define HUGE_BYTES  ((size_t)2 << 20)
#define STEP_BYTES  512u /* parts of the stream are multiples of it */
#define MIN_PART    65536u

static const char *const limit_names[BT_LIMIT_COUNT] = {"read", "int8", "bf16",
                                                        "f32"};

struct bt_limits {
    uint32_t n_threads;
    size_t part_bytes; /* of one thread */
    void *map;
    size_t map_bytes;
    char *data; /* inside map, aligned; NULL: not taken yet */
};

typedef struct meter meter_t;

typedef struct worker {
    meter_t *meter;
    pthread_t id;
    uint32_t index;
    bt_loop_work_t work;
    char *touch; /* thread's part of the stream, to be written once first, or
                  * NULL */
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t sink;
} worker_t;

/* One measurement. */
struct meter {
    bt_loop_t loop;
    pthread_mutex_t gate; /* held until all threads are there */
    pthread_barrier_t barrier;
    cpu_set_t cores; /* cores that the process may use */
    worker_t *workers;
    uint32_t n_threads;
    bool done; /* written at the gate, then by worker 0 between barriers */
    uint64_t limit_ns;
    uint32_t n_passes;
    double rates[MAX_PASSES];
};

bt_status_t bt_limits_create(uint32_t n_threads, size_t read_bytes,
                             bt_limits_t **limits_p)
{
    bt_limits_t *limits;

    if ((n_threads == 0) || (n_threads > MAX_THREADS) ||
        (read_bytes / n_threads < MIN_PART)) {
        return BT_ERR_INVALID_PARAM;
    }
    limits = bt_calloc(1, sizeof(*limits));
    if (limits == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    limits->n_threads = n_threads;
    limits->part_bytes = read_bytes / n_threads / STEP_BYTES * STEP_BYTES;
    *limits_p = limits;
    return BT_OK;
}

void bt_limits_destroy(bt_limits_t *limits)
{
    if (limits == NULL) {
        return;
    }
    if (limits->map != NULL) {
        munmap(limits->map, limits->map_bytes);
    }
    bt_free(limits);
}

static bt_status_t take_buffer(bt_limits_t *limits)
{
    const size_t bytes = limits->part_bytes * limits->n_threads;
    size_t skip;
    void *map;

    limits->map_bytes = bytes + HUGE_BYTES;
    map = mmap(NULL, limits->map_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return BT_ERR_NO_MEMORY;
    }
    limits->map = map;
    skip = HUGE_BYTES - (uintptr_t)map % HUGE_BYTES;
    limits->data = (char *)map + skip;
    /* Small pages are used if the kernel provides no huge pages. */
    (void)madvise(limits->data, bytes, MADV_HUGEPAGE);
    return BT_OK;
}

/* Pins worker i to the i-th usable core, cyclically. */
static void pin_worker(const worker_t *w)
{
    const uint32_t n = (uint32_t)CPU_COUNT(&w->meter->cores);
    uint32_t skip = w->index % n;

    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &w->meter->cores) && (skip-- == 0)) {
            cpu_set_t one;

            CPU_ZERO(&one);
            CPU_SET(core, &one);
            /* Unpinned threads will do where pinning is refused. */
            (void)sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

/* From the start of the first thread to the end of the last. */
static void note_pass(meter_t *m)
{
    uint64_t start = m->workers[0].start_ns;
    uint64_t end = m->workers[0].end_ns;
    double n = 0;

    for (uint32_t i = 0; i < m->n_threads; i++) {
        const worker_t *w = &m->workers[i];

        start = (w->start_ns < start) ? w->start_ns : start;
        end = (w->end_ns > end) ? w->end_ns : end;
        n += (double)w->work.n;
    }
    m->rates[m->n_passes++] =
        n * m->loop.per_n / ((double)(end - start + 1) * 1e-9);
    m->done = (m->n_passes == MAX_PASSES) ||
              ((m->n_passes >= MIN_PASSES) && (end >= m->limit_ns));
}

/* Written by its own thread, so that the memory is on that thread's node. All
 * pages differ, so that a hypervisor cannot merge them. */
static void fill_part(char *part, size_t bytes, uint64_t seed)
{
    uint64_t word = seed + 1;

    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        memcpy(part + i, &word, sizeof(word));
    }
}

static void *worker_main(void *arg)
{
    worker_t *const w = arg;
    meter_t *const m = w->meter;

    pthread_mutex_lock(&m->gate);
    pthread_mutex_unlock(&m->gate);
    pin_worker(w);
    if (w->touch != NULL) {
        fill_part(w->touch, w->work.n, w->index);
    }
    while (!m->done) {
        pthread_barrier_wait(&m->barrier);
        w->start_ns = bt_now_ns();
        w->sink += m->loop.run(&w->work);
        w->end_ns = bt_now_ns();
        pthread_barrier_wait(&m->barrier);
        if (w->index == 0) {
            note_pass(m);
        }
        pthread_barrier_wait(&m->barrier);
    }
    return NULL;
}

/* Loop iterations in registers that take about PASS_NS. */
static size_t calibrate(const bt_loop_t *loop)
{
    bt_loop_work_t work = {.n = 1000};
    uint64_t sink = 0;

    for (;;) {
        const uint64_t start = bt_now_ns();
        uint64_t ns;

        sink += loop->run(&work);
        ns = bt_now_ns() - start;
        if ((ns >= PASS_NS / 4) || (work.n > SIZE_MAX / 64)) {
            __asm__ volatile("" : : "r"(sink));
            return (size_t)((double)work.n * PASS_NS / (double)(ns + 1));
        }
        work.n *= 2;
    }
}

static int compare_rates(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* All threads or none: they meet at a barrier. */
static bt_status_t run_workers(meter_t *m)
{
    uint32_t n_started = 0;

    if (pthread_barrier_init(&m->barrier, NULL, m->n_threads) != 0) {
        return BT_ERR_IO;
    }
    pthread_mutex_lock(&m->gate);
    while ((n_started < m->n_threads) &&
           (pthread_create(&m->workers[n_started].id, NULL, worker_main,
                           &m->workers[n_started]) == 0)) {
        n_started++;
    }
    m->done = (n_started < m->n_threads);
    pthread_mutex_unlock(&m->gate);
    for (uint32_t i = 0; i < n_started; i++) {
        pthread_join(m->workers[i].id, NULL);
    }
    pthread_barrier_destroy(&m->barrier);
    return (n_started < m->n_threads) ? BT_ERR_IO : BT_OK;
}

static bt_status_t set_up(bt_limits_t *limits, bt_limit_t what, uint32_t ms,
                          meter_t *m)
{
    bool touch = false;
    size_t n;

    m->loop = bt_loop_for(what);
    if (m->loop.run == NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    if (sched_getaffinity(0, sizeof(m->cores), &m->cores) != 0) {
        return BT_ERR_IO;
    }
    if ((what == BT_LIMIT_READ) && (limits->data == NULL)) {
        const bt_status_t status = take_buffer(limits);

        if (status != BT_OK) {
            return status;
        }
        touch = true;
    }
    m->n_threads = limits->n_threads;
    m->workers = bt_calloc(m->n_threads, sizeof(*m->workers));
    if (m->workers == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    n = (what == BT_LIMIT_READ) ? limits->part_bytes : calibrate(&m->loop);
    for (uint32_t i = 0; i < m->n_threads; i++) {
        worker_t *const w = &m->workers[i];

        *w = (worker_t){.meter = m, .index = i, .work = {.n = n}};
        if (what == BT_LIMIT_READ) {
            w->work.data = limits->data + i * limits->part_bytes;
            w->touch = touch ? limits->data + i * limits->part_bytes : NULL;
        }
    }
    m->limit_ns = bt_now_ns() + (uint64_t)ms * 1000000u;
    return BT_OK;
}

bt_status_t bt_limits_measure(bt_limits_t *limits, bt_limit_t what, uint32_t ms,
                              bt_limit_rate_t *rate_p)
{
    bt_status_t status;
    meter_t *const m = bt_calloc(1, sizeof(*m));

    if (m == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&m->gate, NULL);
    status = set_up(limits, what, ms, m);
    if (status == BT_OK) {
        status = run_workers(m);
    }
    if (status == BT_OK) {
        qsort(m->rates, m->n_passes, sizeof(*m->rates), compare_rates);
        rate_p->isa = m->loop.isa;
        rate_p->best = m->rates[m->n_passes - 1];
        rate_p->median = m->rates[m->n_passes / 2];
    }
    pthread_mutex_destroy(&m->gate);
    bt_free(m->workers);
    bt_free(m);
    return status;
}

void bt_limits_command(bt_limits_t *limits, const char *const *words)
{
    const char *const name = words[1];
    bt_limit_rate_t rate;
    bt_status_t status;
    int what = 0;

    if (name == NULL) {
        bt_half_die(BT_OK, "a limit without a name");
    }
    while ((what < BT_LIMIT_COUNT) && (strcmp(name, limit_names[what]) != 0)) {
        what++;
    }
    if (what == BT_LIMIT_COUNT) {
        bt_half_die(BT_OK, "no limit is called %s", name);
    }
    status = bt_limits_measure(limits, (bt_limit_t)what,
                               bt_half_number(words[2], 1, 60000), &rate);
    if (status == BT_ERR_UNSUPPORTED) {
        printf("{\"limit\": \"%s\", \"isa\": null, \"best\": 0, \"median\": "
               "0}\n",
               name);
        return;
    }
    if (status != BT_OK) {
        bt_half_die(status, "limit %s", name);
    }
    printf("{\"limit\": \"%s\", \"isa\": \"%s\", \"best\": %.6g, \"median\": "
           "%.6g}\n",
           name, rate.isa, rate.best, rate.median);
}
