/* SPDX-License-Identifier: Apache-2.0 */
/* baton-orchestrator: run by baton-launch under mpirun, since baton-launch
 * links no MPI. Starts the processes of its plan by MPI_Comm_spawn and waits
 * for them (common/cluster/orchestrate.h).
 *
 *     baton-orchestrator DRAIN_MS [: N PROGRAM ARG...]...
 *
 * On SIGTERM and SIGINT it notifies all processes, and waits for DRAIN_MS. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/cluster/orchestrate.h"

static volatile sig_atomic_t is_told;

typedef struct times {
    uint64_t drain_ms;
    uint64_t told_ms; /* 0: not yet */
} times_t;

static void on_signal(int number)
{
    (void)number;
    is_told = 1;
}

static bool is_due(void *ctx)
{
    times_t *times = ctx;

    if (is_told && (times->told_ms == 0)) {
        times->told_ms = bt_now_ms();
    }
    return times->told_ms != 0;
}

static bool is_over(void *ctx)
{
    const times_t *times = ctx;

    return is_due(ctx) && (bt_now_ms() - times->told_ms > times->drain_ms);
}

static bool is_mark(const char *word)
{
    return strcmp(word, ":") == 0;
}

/* Parses the jobs of the command line; each ":" becomes the end of a job's
 * arguments. @return 0: malformed */
static uint32_t read_jobs(int n, char **words, bt_cluster_job_t *jobs)
{
    uint32_t n_jobs = 0;

    for (int i = 0; i < n; i++) {
        bt_cluster_job_t *job = &jobs[n_jobs];

        if (!is_mark(words[i])) {
            continue;
        }
        words[i] = NULL;
        if (i + 2 >= n) {
            return 0;
        }
        job->n = (uint32_t)strtoul(words[i + 1], NULL, 10);
        job->program = words[i + 2];
        job->args = &words[i + 3];
        if (job->n == 0) {
            return 0;
        }
        n_jobs++;
    }
    return n_jobs;
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_signal};
    times_t times = {0};
    const bt_cluster_end_t end = {
        .is_due = is_due, .is_over = is_over, .ctx = &times};
    char why[256];
    bt_cluster_job_t *jobs;
    uint32_t n_jobs = 0;
    bt_status_t status;

    bt_log_init("orchestrator", BT_LOG_LEVEL_INFO);
    jobs = bt_calloc((size_t)argc, sizeof(*jobs));
    if (jobs == NULL) {
        return bt_exit_of_start(BT_ERR_NO_MEMORY);
    }
    if (argc > 2) {
        times.drain_ms = strtoull(argv[1], NULL, 10);
        n_jobs = read_jobs(argc - 2, argv + 2, jobs);
    }
    if (n_jobs == 0) {
        fprintf(stderr, "baton-orchestrator is run by baton-launch\n");
        bt_free(jobs);
        return BT_EXIT_USAGE;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    status = bt_cluster_may_orchestrate(why, sizeof(why));
    if (status != BT_OK) {
        BT_LOG_ERROR("%s", why);
        bt_free(jobs);
        return bt_exit_of_start(status);
    }
    BT_LOG_INFO("%u instances are started by MPI_Comm_spawn", n_jobs);
    status = bt_cluster_orchestrate(jobs, n_jobs, &end);
    bt_free(jobs);
    return (status == BT_OK) ? 0 : 1;
}
