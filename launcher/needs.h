/* SPDX-License-Identifier: Apache-2.0 */
/** @file needs.h
 *
 * What all workers of a launch would take of this machine's memory, together.
 * Each looks for itself when it starts, so what two that fit by themselves lack
 * together shows when the second one starts, or here. Pure.
 */
#ifndef BT_LAUNCHER_NEEDS_H
#define BT_LAUNCHER_NEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "launcher/findings.h"

/** Workers that are alike; what they say of themselves (worker/check.h). */
typedef struct bt_need {
    uint32_t model;        /**< index: those of one share its packed weights */
    unsigned program;      /**< a BT_PROG_ bit */
    uint32_t n, n_standby; /**< instances; a standby has no pool */
    uint32_t ranks;        /**< of each; the bytes are of one */
    uint64_t weight_bytes, own_bytes, pool_bytes;
    bool weights_shared; /**< in a file that all on the host map */
} bt_need_t;

typedef struct bt_needs_room {
    uint64_t available_bytes; /**< that can be taken */
    uint64_t limit_bytes;     /**< where a cgroup bounds that: of how many... */
    const char *limit_by;     /**< ...and what says so; NULL or "": none does */
    uint64_t shm_bytes;       /**< left in /dev/shm */
    bool pools_given;         /**< --kv-memory says their size */
    bool uses_shm;            /**< not --transport network */
    bool needs_shm;           /**< --transport shm */
} bt_needs_room_t;

/** What decides how many threads there are. */
typedef struct bt_needs_cpus {
    uint32_t n_cpus;   /**< that may compute at once */
    uint32_t n_online; /**< of this machine, whoever may use them */
    bool lends;        /**< workers may compute on each other's cores */
} bt_needs_cpus_t;

/** Processes and threads of a launch at most: of the launcher, its routers, and
 *  the workers and standbys of @a n_models models. */
uint64_t bt_needs_threads(const bt_config_t *config, uint32_t n_models,
                          const bt_needs_cpus_t *cpus);

/** Add a finding for what is not there.
 *  @return what the pools would take of /dev/shm, where they are in it */
uint64_t bt_needs_check(const bt_need_t *needs, uint32_t n,
                        const bt_needs_room_t *room, bt_findings_t *findings);

/** The bytes of the KV pool of each instance of needs[i]: what it asked for, or
 *  where nobody gave its size an even share, a quarter at most, of half of what
 *  all leave. 0 where it has none in the host's memory. */
uint64_t bt_needs_pool(const bt_need_t *needs, uint32_t n,
                       const bt_needs_room_t *room, uint32_t i);

#endif
