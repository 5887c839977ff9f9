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

#include "common/base/log.h"
#include "common/base/openfds.h"
#include "common/base/process.h"
#include "router/observe/metrics_priv.h"

#define STAT_BYTES 1024

/* Of proc(5), stat: what stands before ')' is the name, which may hold
 * anything. After it comes field 3.
 * @return false without /proc */
static bool read_stat(uint64_t *start_ticks, uint64_t *virtual_bytes)
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
                   " %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64,
                   start_ticks, virtual_bytes) == 2);
}

double bt_metrics_process_start(void)
{
    struct timespec now, up;
    uint64_t start_ticks, virtual_bytes;

    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    if (!read_stat(&start_ticks, &virtual_bytes)) {
        return NAN;
    }
    return (double)(now.tv_sec - up.tv_sec) +
           (double)(now.tv_nsec - up.tv_nsec) / 1e9 +
           (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
}

static double known(uint64_t value)
{
    return (value > 0) ? (double)value : (double)NAN;
}

void bt_metrics_process_read(bt_metrics_process_t *process)
{
    const bt_process_use_t use = bt_process_use();
    uint64_t start_ticks, virtual_bytes = 0;
    struct rlimit limit;

    process->unix_s = (double)time(NULL);
    process->cpu_s = (double)use.cpu_ms / 1e3;
    process->resident_bytes = known(use.resident_bytes);
    process->virtual_bytes =
        known(read_stat(&start_ticks, &virtual_bytes) ? virtual_bytes : 0);
    process->open_fds = known(bt_count_open_fds());
    process->n_log_dropped = (double)bt_log_dropped();
    process->max_fds = NAN;
    if ((getrlimit(RLIMIT_NOFILE, &limit) == 0) &&
        (limit.rlim_cur != RLIM_INFINITY)) {
        process->max_fds = (double)limit.rlim_cur;
    }
}
