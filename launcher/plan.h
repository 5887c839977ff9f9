/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h
 *
 * What to start: the processes of one serving cluster on this machine, with
 * their arguments and cores. Pure.
 *
 *     process 0: router; then prefill-0 ..., then decode-0 ...
 */
#ifndef BT_LAUNCHER_PLAN_H
#define BT_LAUNCHER_PLAN_H

#include <sched.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/base/topology.h"
#include "common/config/config.h"
#include "launcher/run_dir.h"

#define BT_PLAN_NAME_BYTES 32

typedef struct bt_plan_process {
    char name[BT_PLAN_NAME_BYTES]; /**< router, prefill-0, decode-1 ... */
    unsigned program;              /**< a BT_PROG_ bit */
    bt_strbuf_t args; /**< owned; zero-terminated strings, one after another,
                           without argv[0] */
} bt_plan_process_t;

typedef struct bt_plan {
    bt_plan_process_t *processes; /**< owned */
    uint32_t n_processes;
} bt_plan_t;

/**
 * @param [in] allowed  Cores that this process may use. With enough of them for
 *                      all threads each worker is pinned to cores of its own,
 *                      of one memory node where one has enough; otherwise
 *                      nobody is pinned.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_TOO_LARGE  The options of one process are too long.
 */
BT_MUST_CHECK bt_status_t bt_plan_create(const bt_config_store_t *store,
                                         const bt_config_t *config,
                                         const bt_run_dir_t *run_dir,
                                         const cpu_set_t *allowed,
                                         const bt_topology_t *topology,
                                         bt_plan_t **plan_p);
void bt_plan_destroy(bt_plan_t *plan);

/** Threads per worker where the options say 0: an even share, at least 1. */
void bt_plan_threads(const bt_config_t *config, uint32_t n_cores,
                     uint32_t *prefill_p, uint32_t *decode_p);

#endif
