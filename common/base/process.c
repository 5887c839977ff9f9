/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/process.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

static uint64_t to_ms(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_usec / 1000u;
}

/* proc(5): /proc/pid/statm is "size resident shared …" in pages. */
static void read_statm(uint64_t *resident_p, uint64_t *shared_p)
{
    char text[128];
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n;
    char *end = text;

    *resident_p = *shared_p = 0;
    if (fd < 0) {
        return;
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) {
        return;
    }
    text[n] = '\0';
    (void)strtoull(text, &end, 10);
    *resident_p = strtoull(end, &end, 10);
    *shared_p = strtoull(end, NULL, 10);
}

static uint64_t page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);

    return (bytes > 0) ? (uint64_t)bytes : 0;
}

uint64_t bt_process_private_bytes(void)
{
    uint64_t resident;
    uint64_t shared;

    read_statm(&resident, &shared);
    return (resident > shared) ? (resident - shared) * page_bytes() : 0;
}

bt_process_use_t bt_process_use(void)
{
    bt_process_use_t use = {0};
    uint64_t resident;
    uint64_t shared;
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        use.cpu_ms = to_ms(usage.ru_utime) + to_ms(usage.ru_stime);
    }
    read_statm(&resident, &shared);
    use.resident_bytes = resident * page_bytes();
    return use;
}

/* Has a folder that many levels above the file been configured to be built in?
 */
static bool is_built_above(const char *file, uint32_t levels)
{
    char path[PATH_MAX];
    const char *const slash = strrchr(file, '/');
    int n;

    if (slash == NULL) {
        return false;
    }
    n = snprintf(path, sizeof(path), "%.*s%sbuild.ninja",
                 (int)(slash - file + 1), file, &"../../../"[9 - 3 * levels]);
    return ((size_t)n < sizeof(path)) && (access(path, F_OK) == 0);
}

const char *bt_process_command(void)
{
    char own[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

    own[(n < 0) ? 0 : n] = '\0';
    for (uint32_t levels = 1; levels <= 3; levels++) { /* tests/unit/test_… */
        if (is_built_above(own, levels)) {
            return "./baton";
        }
    }
    return "baton";
}

bool bt_process_host_name_fits(char *why, size_t why_bytes)
{
    struct utsname host;
    size_t n;

    if (uname(&host) != 0) {
        return true;
    }
    n = strlen(host.nodename);
    if (n <= BT_PROCESS_HOST_NAME_MOST) {
        return true;
    }
    snprintf(why, why_bytes,
             "the name of this host has %zu characters (%s), and UCX aborts "
             "every worker where it has more than %u: hostname NAME, or "
             "hostnamectl set-hostname NAME, with a shorter one",
             n, host.nodename, BT_PROCESS_HOST_NAME_MOST);
    return false;
}

bool bt_process_is_of_mpi(void)
{
    /* mpirun sets the first, srun --mpi=pmix only the second */
    return (getenv("OMPI_COMM_WORLD_SIZE") != NULL) ||
           (getenv("PMIX_RANK") != NULL);
}
