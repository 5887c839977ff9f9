/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cores.h"

#include <sched.h>
#include <stdlib.h>

#include "common/base/limits.h"
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

uint32_t bt_cores_threads(uint32_t asked, uint32_t n_cores)
{
    bt_limit_t limit;

    if (asked != 0) {
        return asked;
    }
    bt_limits_cpus("", &limit);
    if ((n_cores != 0) && ((limit.by[0] == '\0') || (n_cores <= limit.most))) {
        return n_cores;
    }
    if (limit.by[0] != '\0') {
        BT_LOG_INFO("threads: the cgroup has the time of %llu whole CPUs (%s)",
                    (unsigned long long)limit.most, limit.by);
    }
    return (uint32_t)limit.most;
}

uint32_t bt_cores_lent(uint32_t n_threads, uint32_t n_lent)
{
    bt_limit_t quota;
    uint64_t left;

    if (n_lent == 0) {
        return 0;
    }
    bt_cgroup_cpus("", &quota);
    left = (quota.most > n_threads) ? quota.most - n_threads : 0;
    return (n_lent < left) ? n_lent : (uint32_t)left;
}
