/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/needs.h"

#include <stdio.h>

#define TEXT_BYTES 512
#define POOL_PART  4 /* worker/memory.c: a quarter of what is left */
/* What UCX takes of /dev/shm beside the pool of a rank: 4.1 MiB for messages,
 * which nobody sends (1.13.1, mm_recv_desc). */
#define UCX_SHM_BYTES (UINT64_C(5) << 20)

typedef struct sums {
    uint64_t weights, own, pools, shm;
    uint64_t n_pools;
} sums_t;

static uint64_t mib(uint64_t bytes)
{
    return (bytes >> 20) + (((bytes & ((1u << 20) - 1)) != 0) ? 1 : 0);
}

/* Did one before this one count the same file? A file is that of a rank, among
 * as many. */
static bool is_counted(const bt_need_t *needs, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (needs[k].weights_shared && (needs[k].model == needs[i].model) &&
            (needs[k].ranks == needs[i].ranks)) {
            return true;
        }
    }
    return false;
}

static sums_t sum_up(const bt_need_t *needs, uint32_t n,
                     const bt_needs_room_t *room)
{
    uint64_t left = room->available_bytes;
    sums_t sums = {0};

    for (uint32_t i = 0; i < n; i++) {
        const bt_need_t *const need = &needs[i];
        const uint64_t all =
            (uint64_t)(need->n + need->n_standby) * need->ranks;

        sums.own += all * need->own_bytes;
        if (!need->weights_shared) {
            sums.weights += all * need->weight_bytes;
        } else if (!is_counted(needs, i)) {
            sums.weights += need->ranks * need->weight_bytes;
        }
        sums.n_pools += need->n;
    }
    left -= (sums.own + sums.weights < left) ? sums.own + sums.weights : left;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < needs[i].n; k++) {
            uint64_t pool = needs[i].ranks * needs[i].pool_bytes;

            if (!room->pools_given && (pool > left / POOL_PART)) {
                pool = left / POOL_PART;
            }
            sums.pools += pool;
            sums.shm += (pool > 0) ? pool + needs[i].ranks * UCX_SHM_BYTES : 0;
            left -= (pool < left) ? pool : left;
        }
    }
    return sums;
}

static void check_memory(const sums_t *sums, const bt_needs_room_t *room,
                         bt_findings_t *findings)
{
    const uint64_t rest = sums->weights + sums->own;
    char text[TEXT_BYTES];
    char mend[TEXT_BYTES] = "";
    uint64_t most;

    if (rest + sums->pools <= room->available_bytes) {
        return;
    }
    snprintf(
        text, sizeof(text),
        "the workers take %llu MiB together (weights %llu, their own %llu, "
        "KV pools %llu), and %llu MiB are available: %llu MiB are missing",
        (unsigned long long)mib(rest + sums->pools),
        (unsigned long long)mib(sums->weights),
        (unsigned long long)mib(sums->own),
        (unsigned long long)mib(sums->pools),
        (unsigned long long)(room->available_bytes >> 20),
        (unsigned long long)mib(rest + sums->pools - room->available_bytes));
    most = (rest < room->available_bytes) && (sums->n_pools > 0)
               ? (room->available_bytes - rest) / sums->n_pools >> 20
               : 0;
    if (most > 0) {
        snprintf(mend, sizeof(mend), "--kv-memory %llum",
                 (unsigned long long)most);
    } else {
        snprintf(mend, sizeof(mend),
                 "fewer workers (--prefill, --decode), a smaller model, or "
                 "more memory");
    }
    bt_findings_add(findings, BT_FINDING_PROBLEM, "memory", text, mend);
}

static void check_shm(const sums_t *sums, const bt_needs_room_t *room,
                      bt_findings_t *findings)
{
    char text[TEXT_BYTES];
    char mend[TEXT_BYTES];

    if (!room->uses_shm || (sums->shm <= room->shm_bytes)) {
        return;
    }
    snprintf(text, sizeof(text),
             "the KV pools take %llu MiB of /dev/shm, which has %llu MiB left: "
             "%s",
             (unsigned long long)mib(sums->shm),
             (unsigned long long)(room->shm_bytes >> 20),
             room->needs_shm ? "with --transport shm a worker that finds no "
                               "room does not start"
                             : "a worker that finds no room sends KV over the "
                               "loopback network");
    snprintf(mend, sizeof(mend),
             "mount -o remount,size=%llum /dev/shm (a container: "
             "--shm-size %llum)",
             (unsigned long long)mib(sums->shm) + 64,
             (unsigned long long)mib(sums->shm) + 64);
    bt_findings_add(findings,
                    room->needs_shm ? BT_FINDING_PROBLEM : BT_FINDING_WARNING,
                    "/dev/shm", text, mend);
}

uint64_t bt_needs_check(const bt_need_t *needs, uint32_t n,
                        const bt_needs_room_t *room, bt_findings_t *findings)
{
    const sums_t sums = sum_up(needs, n, room);

    check_memory(&sums, room, findings);
    check_shm(&sums, room, findings);
    return sums.shm;
}
