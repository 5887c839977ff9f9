/* SPDX-License-Identifier: Apache-2.0 */
/** @file memory_preflight.h
 *
 * Memory that all workers of a launch take of this machine together. Each
 * worker checks for itself when it starts, so a shortage of two workers that
 * fit alone shows when the second one starts, or here. Pure.
 */
#ifndef BT_LAUNCHER_MEMORY_PREFLIGHT_H
#define BT_LAUNCHER_MEMORY_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "launcher/diagnostics.h"

/** Memory needs of a group of identical workers, as they report them
 *  (worker/check.h). */
typedef struct bt_preflight_need {
    uint32_t model;   /**< index; workers of one model share packed weights */
    unsigned program; /**< a BT_PROG_ bit */
    uint32_t n, n_standby; /**< instances; a standby has no pool */
    uint32_t ranks;        /**< ranks per instance; bytes are per rank */
    uint64_t weight_bytes, own_bytes, pool_bytes;
    bool weights_shared; /**< in a file that all workers on the host map */
} bt_preflight_need_t;

typedef struct bt_preflight_headroom {
    uint64_t available_bytes; /**< available memory */
    uint64_t limit_bytes;     /**< cgroup memory limit, if there is one */
    const char
        *limit_by;      /**< source of limit_bytes; NULL or "": there is none */
    uint64_t shm_bytes; /**< free space in /dev/shm */
    bool pools_given;   /**< --kv-memory sets the pool sizes */
    bool uses_shm;      /**< not --kv-transport network */
    bool needs_shm;     /**< --kv-transport shm */
} bt_preflight_headroom_t;

/** Inputs for the number of threads. */
typedef struct bt_preflight_cpus {
    uint32_t n_cpus;   /**< CPUs that may compute at once */
    uint32_t n_online; /**< CPUs of this machine, usable or not */
    bool lends;        /**< workers may compute on each other's cores */
} bt_preflight_cpus_t;

/** Returns the most processes and threads of a launch: of the launcher, its
 *  routers, and the workers and standbys of @a n_models models. */
uint64_t bt_preflight_threads(const bt_config_t *config, uint32_t n_models,
                              const bt_preflight_cpus_t *cpus);

/** Adds a finding for each resource that is missing.
 *  @return what the pools would take of /dev/shm, where they are in it */
uint64_t bt_preflight_check(const bt_preflight_need_t *needs, uint32_t n,
                            const bt_preflight_headroom_t *room,
                            bt_diagnostics_t *findings);

/** Returns the bytes of the KV pool of each instance of needs[i]: the size
 *  asked for, or without one an even share, a quarter at most, of half of what
 *  all leave. 0 if the pool is not in host memory. */
uint64_t bt_preflight_pool(const bt_preflight_need_t *needs, uint32_t n,
                           const bt_preflight_headroom_t *room, uint32_t i);

#endif
