/* SPDX-License-Identifier: Apache-2.0 */
/* The router's process, by the names that every Prometheus client gives. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/openfds.h"
#include "router/observe/metrics_priv.h"

#define STAT_BYTES 1024

/* Of proc(5), stat: what stands before ')' is the name, which may hold
 * anything. After it comes field 3.
 * @return false without /proc */
static bool read_stat(uint64_t *start_ticks, uint64_t *virtual_bytes,
                      int64_t *pages)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char text[STAT_BYTES];
    const char *after;
    size_t n;

    if (file == NULL) {
        return false;
    }
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    after = strrchr(text, ')');
    return (after != NULL) &&
           (sscanf(after + 1,
                   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                   " %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64 " %" SCNd64,
                   start_ticks, virtual_bytes, pages) == 3);
}

double bt_metrics_process_start(void)
{
    struct timespec now, up;
    uint64_t start_ticks, virtual_bytes;
    int64_t pages;

    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    if (!read_stat(&start_ticks, &virtual_bytes, &pages)) {
        return NAN;
    }
    return (double)(now.tv_sec - up.tv_sec) +
           (double)(now.tv_nsec - up.tv_nsec) / 1e9 +
           (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

void bt_metrics_process_read(bt_metrics_process_t *process)
{
    const uint32_t n_fds = bt_count_open_fds();
    uint64_t start_ticks, virtual_bytes;
    struct rusage usage;
    struct rlimit limit;
    int64_t pages;

    process->unix_s = (double)time(NULL);
    process->resident_bytes = NAN;
    process->virtual_bytes = NAN;
    if (read_stat(&start_ticks, &virtual_bytes, &pages)) {
        process->virtual_bytes = (double)virtual_bytes;
        process->resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
    }
    process->cpu_s = (getrusage(RUSAGE_SELF, &usage) == 0)
                         ? seconds(usage.ru_utime) + seconds(usage.ru_stime)
                         : (double)NAN;
    process->open_fds = (n_fds > 0) ? n_fds : (double)NAN;
    process->max_fds = ((getrlimit(RLIMIT_NOFILE, &limit) == 0) &&
                        (limit.rlim_cur != RLIM_INFINITY))
                           ? (double)limit.rlim_cur
                           : (double)NAN;
}
