/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/program_threads.h"

#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"

/* Numbers as counted of running processes; tests/integration/test_limits.py
 * counts them again.
 *
 * Of nng (1.5.2) four threads resolve names, and three poll, reap and keep
 * time. The others depend on the CPUs that are online: twice as many run
 * tasks, 16 at most, and as many again expire, 8 at most. */
#define NNG_THREADS 7
#define NNG_TASKS   16
#define NNG_EXPIRE  8
/* A router itself; its main, access and trace logs, an OTLP exporter; links;
 * the background and file threads of the parsing pool. */
#define ROUTER_THREADS 9
/* A worker itself, its log, links, the directory of routers, what touches
 * the pool's pages, UCX, a team of ranks. */
#define WORKER_THREADS 7

static uint64_t nng_threads(uint32_t n_online)
{
    const uint32_t tasks = 2 * n_online;

    return NNG_THREADS + ((tasks < NNG_TASKS) ? tasks : NNG_TASKS) +
           ((n_online < NNG_EXPIRE) ? n_online : NNG_EXPIRE);
}

/* Tokenizing is the pool's main work: some 10 MB/s a thread. */
uint32_t bt_parse_threads(const bt_config_t *config, uint32_t n_cpus)
{
    uint32_t n = config->tokenizer_threads;

    if (n == 0) {
        n = n_cpus / 4;
        n = (n > 8) ? 8 : n;
    }
    return (n < 2) ? 2 : n;
}

uint64_t bt_router_threads(uint32_t n_online, uint64_t n_parse)
{
    return nng_threads(n_online) + ROUTER_THREADS + n_parse;
}

uint64_t bt_worker_threads(uint32_t n_online, uint64_t n_compute)
{
    return nng_threads(n_online) + WORKER_THREADS + n_compute;
}

uint32_t bt_online_cpus(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return (n < 1) ? 1 : (uint32_t)n;
}

bt_status_t bt_program_threads_check(uint64_t n)
{
    bt_limit_t limit;

    bt_limits_threads("", &limit);
    if (n <= limit.left) {
        return BT_OK;
    }
    BT_LOG_ERROR("up to %llu threads are needed, and %llu of %llu are left "
                 "(%s)",
                 (unsigned long long)n, (unsigned long long)limit.left,
                 (unsigned long long)limit.most, limit.by);
    return BT_ERR_NO_MEMORY;
}
