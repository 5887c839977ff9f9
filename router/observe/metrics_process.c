/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the router's process, with the names of Prometheus' client
 * libraries. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
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

/* Of proc(5), stat: user nice system idle iowait irq softirq steal, all since
 * the start; guest times are in user's and nice's already.
 * @return false without /proc */
static bool read_cpu(bt_metrics_cpu_t *cpu)
{
    FILE *file = fopen("/proc/stat", "re");
    uint64_t t[8] = {0};
    int n;

    if (file == NULL) {
        return false;
    }
    n = fscanf(file,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
    fclose(file);
    *cpu = (bt_metrics_cpu_t){0};
    for (int i = 0; i < 8; i++) {
        cpu->all += t[i];
        cpu->busy += ((i == 3) || (i == 4)) ? 0 : t[i];
    }
    return n >= 4;
}

/* @return NaN without such a line; else bytes */
static double read_meminfo(const char *format)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = 0;
    bool found = false;

    if (file == NULL) {
        return NAN;
    }
    while (!found && (fgets(line, sizeof(line), file) != NULL)) {
        const size_t n = strlen(format);

        found = (strncmp(line, format, n) == 0) &&
                (sscanf(line + n, " %" SCNu64 " kB", &kib) == 1);
    }
    fclose(file);
    return found ? (double)kib * 1024 : (double)NAN;
}

/* Share of busy time since the last reading; at first, since the machine
 * started. */
static void read_machine(bt_metrics_process_t *process)
{
    double *cells = process->cells;
    bt_metrics_cpu_t now;

    cells[BT_PC_CPU_USE] = NAN;
    cells[BT_PC_CPU_TOTAL_BYTES] = NAN;
    cells[BT_PC_CPU_USED_BYTES] = NAN;
    if (process->cpu == NULL) {
        return;
    }
    if (read_cpu(&now)) {
        const uint64_t all = now.all - process->cpu->all;
        const uint64_t busy = now.busy - process->cpu->busy;

        cells[BT_PC_CPU_USE] = (all > 0) ? (double)busy / (double)all : 0;
        *process->cpu = now;
    }
    cells[BT_PC_CPU_TOTAL_BYTES] = read_meminfo("MemTotal:");
    cells[BT_PC_CPU_USED_BYTES] =
        cells[BT_PC_CPU_TOTAL_BYTES] - read_meminfo("MemAvailable:");
}

void bt_metrics_process_read(bt_metrics_process_t *process)
{
    const bt_process_use_t use = bt_process_use();
    uint64_t start_ticks, virtual_bytes = 0;
    struct rlimit limit;

    process->unix_s = (double)time(NULL);
    process->cells[BT_PC_CPU_S] = (double)use.cpu_ms / 1e3;
    process->cells[BT_PC_RESIDENT] = known(use.resident_bytes);
    process->cells[BT_PC_VIRTUAL] =
        known(read_stat(&start_ticks, &virtual_bytes) ? virtual_bytes : 0);
    process->cells[BT_PC_OPEN_FDS] = known(bt_count_open_fds());
    process->cells[BT_PC_LOG_DROPPED] = (double)bt_log_dropped();
    read_machine(process);
    process->cells[BT_PC_MAX_FDS] = NAN;
    if ((getrlimit(RLIMIT_NOFILE, &limit) == 0) &&
        (limit.rlim_cur != RLIM_INFINITY)) {
        process->cells[BT_PC_MAX_FDS] = (double)limit.rlim_cur;
    }
}
