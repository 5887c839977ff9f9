/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"

static bt_status_t add_range(const cpu_set_t *allowed, long first, long last,
                             uint32_t *cores, uint32_t *n)
{
    if ((first < 0) || (last < first) || (last >= BT_MAX_CORES)) {
        return BT_ERR_INVALID_PARAM;
    }
    for (long core = first; core <= last; core++) {
        if (!CPU_ISSET((size_t)core, allowed)) {
            BT_LOG_ERROR("core %ld is not allowed to this process", core);
            return BT_ERR_INVALID_PARAM;
        }
        if (*n == BT_MAX_CORES) {
            return BT_ERR_INVALID_PARAM;
        }
        cores[(*n)++] = (uint32_t)core;
    }
    return BT_OK;
}

bt_status_t bt_cores_parse(const char *text, uint32_t cores[BT_MAX_CORES],
                           uint32_t *n_p)
{
    const char *at = text;
    uint32_t n = 0;
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return BT_ERR_IO;
    }
    while (*at != '\0') {
        char *end = NULL;
        const long first = strtol(at, &end, 10);
        long last = first;

        if (end == at) {
            goto err_text;
        }
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at) {
                goto err_text;
            }
        }
        if (add_range(&allowed, first, last, cores, &n) != BT_OK) {
            goto err_text;
        }
        if ((*end != ',') && (*end != '\0')) {
            goto err_text;
        }
        at = (*end == ',') ? end + 1 : end;
    }
    *n_p = n;
    return BT_OK;

err_text:
    BT_LOG_ERROR("cores \"%s\" is not a list of allowed cores like 0-3,8",
                 text);
    return BT_ERR_INVALID_PARAM;
}

/* cgroup v2 quota: "MAX PERIOD" in microseconds, or "max PERIOD". */
static uint32_t quota_cores(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    unsigned long long quota = 0;
    unsigned long long period = 0;
    uint32_t n = UINT32_MAX;

    if (file == NULL) {
        return n;
    }
    if ((fscanf(file, "%llu %llu", &quota, &period) == 2) && (period > 0)) {
        n = (uint32_t)((quota + period - 1) / period);
    }
    fclose(file);
    return (n == 0) ? 1 : n;
}

uint32_t bt_cores_threads(uint32_t asked, uint32_t n_cores)
{
    const uint32_t quota = quota_cores();
    cpu_set_t allowed;
    uint32_t n = 1;

    if (asked != 0) {
        return asked;
    }
    if (n_cores != 0) {
        return n_cores;
    }
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
        n = (uint32_t)CPU_COUNT(&allowed);
    }
    return (n < quota) ? n : quota;
}

uint32_t bt_cores_lent(uint32_t n_threads, uint32_t n_lent)
{
    const uint32_t quota = quota_cores();
    const uint32_t left = (quota > n_threads) ? quota - n_threads : 0;

    return (n_lent < left) ? n_lent : left;
}
