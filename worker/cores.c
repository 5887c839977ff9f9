/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cores.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/alloc.h"
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
        BT_LOG_INFO("threads: the cgroup has the time of %" PRIu64
                    " whole CPUs (%s)",
                    limit.most, limit.by);
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

#define BOARD_BYTES (BT_MAX_CORES * sizeof(uint64_t))

struct bt_core_demand {
    void *map;
    _Atomic uint64_t *words; /* shared: BT_MAX_CORES times, in ns */
    uint32_t own[BT_MAX_CORES], lent[BT_MAX_CORES];
    uint32_t n_own, n_lent;
    uint64_t wanted; /* what this process wrote last */
};

static bt_status_t map(const char *dir, void **map_p)
{
    char path[PATH_MAX];
    BT_CLEANUP(close) int fd = -1;
    void *words;

    if (snprintf(path, sizeof(path), "%s/cores", dir) >= (int)sizeof(path)) {
        return BT_ERR_IO;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    /* If the file system is full, fail now, not at the first access. */
    if ((fd < 0) || (posix_fallocate(fd, 0, BOARD_BYTES) != 0)) {
        return BT_ERR_IO;
    }
    words = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) {
        return BT_ERR_IO;
    }
    *map_p = words;
    return BT_OK;
}

bt_status_t bt_core_demand_open(const char *dir, const uint32_t *own,
                                uint32_t n_own, const uint32_t *lent,
                                uint32_t n_lent, bt_core_demand_t **board_p)
{
    bt_core_demand_t *board = bt_calloc(1, sizeof(*board));
    bt_status_t status;

    if (board == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = map(dir, &board->map);
    if (status != BT_OK) {
        bt_free(board);
        return status;
    }
    board->words = board->map;
    memcpy(board->own, own, n_own * sizeof(*own));
    memcpy(board->lent, lent, n_lent * sizeof(*lent));
    board->n_own = n_own;
    board->n_lent = n_lent;
    *board_p = board;
    return BT_OK;
}

void bt_core_demand_close(bt_core_demand_t *board)
{
    if (board != NULL) {
        bt_core_demand_want(board, 0);
        munmap(board->map, BOARD_BYTES);
        bt_free(board);
    }
}

/* Several workers may want a core: the later time stands, and only the writer
 * of a word takes it back. */
static void write_word(_Atomic uint64_t *word, uint64_t before, uint64_t after)
{
    uint64_t there = atomic_load_explicit(word, memory_order_relaxed);

    while (((there == before) || (there < after)) &&
           !atomic_compare_exchange_weak_explicit(word, &there, after,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void bt_core_demand_want(void *ctx, uint64_t until_ns)
{
    bt_core_demand_t *board = ctx;

    if ((until_ns == 0) && (board->wanted == 0)) {
        return;
    }
    for (uint32_t i = 0; i < board->n_lent; i++) {
        write_word(&board->words[board->lent[i]], board->wanted, until_ns);
    }
    board->wanted = until_ns;
}

uint64_t bt_core_demand_wanted(void *ctx)
{
    const bt_core_demand_t *board = ctx;
    uint64_t until_ns = 0;

    for (uint32_t i = 0; i < board->n_own; i++) {
        const uint64_t word = atomic_load_explicit(&board->words[board->own[i]],
                                                   memory_order_relaxed);

        until_ns = (word > until_ns) ? word : until_ns;
    }
    return until_ns;
}

bool bt_compute_watchdog_check(bt_compute_watchdog_t *stuck, bool busy,
                               uint64_t marks, uint64_t now_ms,
                               uint32_t limit_ms)
{
    const uint64_t most_ms = (uint64_t)limit_ms / BT_STUCK_LOOKS;
    const uint64_t since_ms = now_ms - stuck->looked_ms;
    const bool same = busy && stuck->busy && (marks == stuck->marks);

    stuck->still_ms =
        same ? stuck->still_ms + ((since_ms < most_ms) ? since_ms : most_ms)
             : 0;
    stuck->busy = busy;
    stuck->marks = marks;
    stuck->looked_ms = now_ms;
    return busy && (stuck->still_ms >= limit_ms);
}
