/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h
 *
 * What there is to run: the models and processes of one serving cluster on this
 * machine, with their arguments and cores. Grows by models that are added later
 * and never shrinks, so that a process keeps its name, log, cores and number.
 * Pure, but for bt_plan_find_devices().
 *
 *     processes   router, or router-0 router-1 ...    all models, all workers
 *                 prefill-0 ... decode-0 ...          of an only model
 *                 standby-0 ...                       likewise, --standby
 *                 a.prefill-0 ... b.decode-0 ...      of several, and of those
 *                                                     that are added later
 */
#ifndef BT_LAUNCHER_PLAN_H
#define BT_LAUNCHER_PLAN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/devices.h"
#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/base/topology.h"
#include "common/config/config.h"
#include "common/orders/orders.h"
#include "launcher/cores.h"
#include "launcher/run_dir.h"

#define BT_PLAN_NAME_BYTES 64 /**< as the name that a worker tells a router */
#define BT_PLAN_NO_MODEL   UINT32_MAX
#define BT_PLAN_PLACE_FD   5 /**< of a standby: whose place it takes */

typedef struct bt_plan_process {
    char name[BT_PLAN_NAME_BYTES];
    unsigned program;      /**< a BT_PROG_ bit */
    bt_orders_role_t role; /**< that a worker is meant to be */
    bool is_standby;       /**< no worker yet; role is NO_ROLE */
    uint32_t model;        /**< index, or BT_PLAN_NO_MODEL of a router */
    uint32_t router;       /**< which, of a router */
    uint32_t threads;      /**< of a worker */
    uint64_t pool_bytes;   /**< of a worker; 0: it finds out by itself */
    uint32_t first_device; /**< of a worker, where there are any */
    char *cores;           /**< owned; "0-3,8", or NULL = not pinned */
    bt_strbuf_t args; /**< owned; zero-terminated strings, one after another,
                           without argv[0] */
} bt_plan_process_t;

typedef struct bt_plan_model {
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    char *path;               /**< owned */
    uint32_t prefill, decode; /**< workers that it began with */
    bool has_prefix;          /**< its workers' names begin with its own */
    bool is_unloaded; /**< by an order; routers that start do not serve it */
} bt_plan_model_t;

typedef struct bt_plan {
    const bt_config_store_t *store; /**< borrowed */
    const bt_config_t *config;      /**< borrowed */
    bt_run_dir_t run_dir;
    bt_cores_t cores;              /**< that no worker has */
    uint32_t n_cpus;               /**< that may compute at once */
    bool has_quota;                /**< fewer than cores: nobody is pinned */
    uint32_t n_physical;           /**< of all cores */
    const bt_devices_t *devices;   /**< borrowed; n 0: nobody gets any */
    uint32_t n_dealt;              /**< of them, to workers */
    bt_plan_process_t **processes; /**< owned, each by itself: they stay where
                                        they are */
    uint32_t n_processes;
    bt_plan_model_t models[BT_CONFIG_MAX_MODELS];
    uint32_t n_models;
    uint32_t threads_prefill, threads_decode; /**< of each worker */
    bool has_desk; /**< the launcher takes orders, and routers ask it */
} bt_plan_t;

/** The GPUs for bt_plan_create(): of the options, CUDA_VISIBLE_DEVICES or this
 *  machine; none for the CPU. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_plan_find_devices(const bt_config_t *config,
                                               bt_devices_t *devices_p);

/**
 * The routers and the workers of all models that @a config names.
 *
 * @param [in] store, config  Borrowed until bt_plan_destroy().
 * @param [in] allowed  Cores that this process may use. With enough of them for
 *                      all threads each worker is pinned to cores of its own,
 *                      of one memory node where one has enough; otherwise
 *                      nobody is pinned.
 * @param [in] n_cpus   How many of them may compute at once (bt_limits_cpus()),
 *                      which is what threads are shared out of. Fewer than
 *                      allowed: a quota of time, which leaves open on which of
 *                      them others compute, so nobody is pinned.
 * @param [in] devices  Borrowed as well.
 * @param [in] has_desk  See bt_plan_t.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_TOO_LARGE  The options of one process are too long.
 */
BT_MUST_CHECK bt_status_t
bt_plan_create(const bt_config_store_t *store, const bt_config_t *config,
               const bt_run_dir_t *run_dir, const cpu_set_t *allowed,
               uint32_t n_cpus, const bt_topology_t *topology,
               const bt_devices_t *devices, bool has_desk, bt_plan_t **plan_p);
void bt_plan_destroy(bt_plan_t *plan);

/**
 * Add a model and its workers, behind the processes that there are. They get
 * cores that are still free when these are enough, otherwise they are not
 * pinned.
 *
 * @param [in] name  Valid (bt_config_is_model_name()) and of no other model.
 * @retval BT_ERR_TOO_LARGE  BT_CONFIG_MAX_MODELS there are already.
 * @retval BT_ERR_NO_MEMORY  The plan is as before.
 */
BT_MUST_CHECK bt_status_t bt_plan_add_model(bt_plan_t *plan, const char *name,
                                            const char *path, uint32_t prefill,
                                            uint32_t decode);

/**
 * Add so many workers to those of a model, behind the processes that there are,
 * with cores as bt_plan_add_model().
 *
 * @param [in] model  Its index.
 * @retval BT_ERR_NO_MEMORY  The plan is as before.
 */
BT_MUST_CHECK bt_status_t bt_plan_add_workers(bt_plan_t *plan, uint32_t model,
                                              uint32_t prefill,
                                              uint32_t decode);

/** Take back what the last bt_plan_add_workers() added, of which nothing was
 *  started. Its cores stay taken. */
void bt_plan_drop_workers(bt_plan_t *plan, uint32_t model, uint32_t prefill,
                          uint32_t decode);

/** Take the last model back, of which nothing was started. Its cores stay
 *  taken. */
void bt_plan_drop_model(bt_plan_t *plan);

/** Write the arguments again, before a process starts: a worker has its role, a
 *  router serves the models that are loaded (all of them where none is).
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  All is as before. */
BT_MUST_CHECK bt_status_t bt_plan_renew_args(const bt_plan_t *plan,
                                             bt_plan_process_t *process);

/** @param [out] argv  Pointers into the plan, one for each argument, without a
 *                     NULL behind them. NULL: only counted.
 *  @return how many they are */
size_t bt_plan_put_args(const bt_plan_process_t *process, char **argv);

/** @return the model's index, or BT_PLAN_NO_MODEL. */
uint32_t bt_plan_find_model(const bt_plan_t *plan, const char *name);

/** Its workers that are meant to be of this role, and of no other. */
uint32_t bt_plan_count(const bt_plan_t *plan, uint32_t model,
                       bt_orders_role_t role);

/** May @a standby take the place of @a worker? Of the same model, and of as
 *  many ranks and stages. */
bool bt_plan_may_replace(const bt_plan_t *plan,
                         const bt_plan_process_t *standby,
                         const bt_plan_process_t *worker);

/** Processes that a worker is; 1 of a router. */
uint32_t bt_plan_ranks(const bt_plan_t *plan, const bt_plan_process_t *process);

/** Threads per worker where the options say 0: an even share of the cores
 *  between the workers of @a n_models models, at least 1. */
void bt_plan_threads(const bt_config_t *config, uint32_t n_models,
                     uint32_t n_cores, uint32_t *prefill_p, uint32_t *decode_p);

#endif
