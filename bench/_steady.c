/* SPDX-License-Identifier: Apache-2.0 */
/* How steadily does this machine compute when it is idle?
 *
 *     steady MS SECONDS
 *
 * A thread on each core that the process may use repeats a fixed piece of work
 * of about MS milliseconds. One line of JSON for each core: the durations of
 * the pieces. Time above their median was taken by others: the kernel, a
 * neighbour, a hypervisor. No program on these cores can be steadier. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"

#define MAX_PIECES 1000000u
#define WARM_UP_NS UINT64_C(200000000)
#define TURNS      1000u

typedef struct core {
    int cpu;
    double ms, seconds; /* requested piece, ms */
    pthread_t thread;
    uint64_t *pieces; /* ns, sorted in the end */
    size_t n_pieces;
    uint64_t sink;
} core_t;

static uint64_t work(core_t *core, uint64_t n)
{
    const uint64_t start = bt_now_ns();

    for (uint64_t i = 0; i < n * TURNS; i++) {
        core->sink = core->sink * UINT64_C(6364136223846793005) + i;
        __asm__ volatile("" : "+r"(core->sink));
    }
    return bt_now_ns() - start;
}

static void *run(void *arg)
{
    core_t *const core = arg;
    const uint64_t start = bt_now_ns();
    uint64_t best = UINT64_MAX, n = 1, end;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core->cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
    bt_thread_works_long(true);
    /* Iterations of a piece, from the fastest of the warm-up. */
    while (bt_now_ns() - start < WARM_UP_NS) {
        const uint64_t ns = work(core, 100);

        best = (ns < best) ? ns : best;
    }
    n = (uint64_t)(core->ms * 1e6 * 100.0 / (double)best) + 1;
    end = bt_now_ns() + (uint64_t)(core->seconds * 1e9);
    while ((core->n_pieces < MAX_PIECES) && (bt_now_ns() < end)) {
        core->pieces[core->n_pieces++] = work(core, n);
    }
    bt_half_sort(core->pieces, core->n_pieces);
    return NULL;
}

static double percentile(const core_t *core, size_t percent)
{
    return (double)core->pieces[(core->n_pieces - 1) * percent / 100] / 1e6;
}

int main(int argc, char **argv)
{
    static core_t cores[CPU_SETSIZE];
    size_t n = 0;
    cpu_set_t set;

    if ((argc != 3) || (strtod(argv[1], NULL) <= 0) ||
        (strtod(argv[2], NULL) <= 0) ||
        (sched_getaffinity(0, sizeof(set), &set) != 0)) {
        fprintf(stderr, "steady MS SECONDS\n");
        return 2;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &set)) {
            core_t *const core = &cores[n++];

            *core = (core_t){.cpu = cpu,
                             .ms = strtod(argv[1], NULL),
                             .seconds = strtod(argv[2], NULL)};
            core->pieces = bt_half_zeros(MAX_PIECES, sizeof(*core->pieces));
            if (pthread_create(&core->thread, NULL, run, core) != 0) {
                bt_half_die(BT_OK, "no thread");
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(cores[i].thread, NULL);
        printf("{\"core\": %d, \"pieces\": %zu, \"p50\": %.3f, \"p90\": %.3f, "
               "\"p99\": %.3f}\n",
               cores[i].cpu, cores[i].n_pieces, percentile(&cores[i], 50),
               percentile(&cores[i], 90), percentile(&cores[i], 99));
        bt_free(cores[i].pieces);
    }
    return 0;
}
