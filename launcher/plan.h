/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h
 *
 * Plan of a launch: the models and processes of one serving cluster on this
 * machine, with their arguments and cores. Grows by models that are added
 * later and never shrinks, so that a process keeps its name, log, cores and
 * number. Pure, but for bt_plan_find_devices().
 *
 *     processes   router, or router-0 router-1 ...    all models, all workers
 *                 prefill-0 ... decode-0 ...          of an only model
 *                 standby-0 ...                       its --standby processes
 *                 a.prefill-0 ... b.decode-0 ...      of several models, and of
 *                                                     models that are added
 * later
 */
#ifndef BT_LAUNCHER_PLAN_H
#define BT_LAUNCHER_PLAN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/admin/admin.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/base/topology.h"
#include "common/config/config.h"
#include "launcher/cores.h"
#include "launcher/run_dir.h"

#define BT_PLAN_NAME_BYTES    64 /**< limit of a worker's name at the router */
#define BT_PLAN_NO_MODEL      UINT32_MAX
#define BT_PLAN_ASSIGNMENT_FD 5 /**< descriptor of a standby: name and role */

typedef struct bt_plan_process {
    char name[BT_PLAN_NAME_BYTES];
    unsigned program;      /**< a BT_PROG_ bit */
    bt_admin_role_t role;  /**< planned role of a worker */
    bool is_standby;       /**< not a worker yet; without a role */
    uint32_t model;        /**< index, or BT_PLAN_NO_MODEL for a router */
    uint32_t router;       /**< number of a router */
    uint32_t threads;      /**< threads of a worker */
    uint64_t pool_bytes;   /**< pool of a worker; 0: it decides itself */
    uint32_t first_device; /**< first GPU of a worker, if there are any */
    char *cores;           /**< owned; "0-3,8", or NULL = not pinned */
    bt_strbuf_t args; /**< owned; zero-terminated strings, one after another,
                           without argv[0] */
} bt_plan_process_t;

typedef struct bt_plan_model {
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    char *path;               /**< owned */
    uint32_t prefill, decode; /**< initial workers */
    bool has_prefix;          /**< worker names begin with the model's name */
    bool is_unloaded; /**< by a command; routers that start do not serve it */
} bt_plan_model_t;

typedef struct bt_plan {
    const bt_config_store_t *store; /**< borrowed */
    const bt_config_t *config;      /**< borrowed */
    bt_run_dir_t run_dir;
    bt_cores_t cores;        /**< cores without a worker */
    bt_cores_t cores_before; /**< cores, before workers were last added */
    uint32_t n_cpus;         /**< CPUs that may compute at once */
    bool has_quota;      /**< CPU quota below the cores: no worker is pinned */
    uint32_t n_physical; /**< number of physical cores */
    const bt_devices_t *devices;   /**< borrowed; n 0: no worker gets any */
    uint32_t n_dealt;              /**< devices given to workers */
    bt_plan_process_t **processes; /**< owned, one by one: stable addresses */
    uint32_t n_processes;
    bt_plan_model_t models[BT_CONFIG_MAX_MODELS];
    uint32_t n_models;
    uint32_t threads_prefill, threads_decode; /**< per worker */
    bool has_control_socket; /**< the launcher takes admin commands, also from
                                routers */
} bt_plan_t;

/** Finds the GPUs for bt_plan_create(): by the options, CUDA_VISIBLE_DEVICES or
 *  this machine; none for the CPU back end. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_plan_find_devices(const bt_config_t *config,
                                               bt_devices_t *devices_p);

/**
 * Creates the plan: the routers and the workers of all models in @a config.
 *
 * @param [in] store, config  Borrowed until bt_plan_destroy().
 * @param [in] allowed  Cores that this process may use. With enough of them for
 *                      all threads each worker is pinned to cores of its own,
 *                      of one NUMA node where one has enough; otherwise no
 *                      worker is pinned.
 * @param [in] n_cpus   How many of them may compute at once (bt_limits_cpus()),
 *                      which is the number that threads are allotted from.
 *                      Fewer than allowed: a CPU time quota, which does not say
 *                      on which cores others compute, so no worker is pinned.
 * @param [in] devices  Borrowed as well.
 * @param [in] has_control_socket  See bt_plan_t.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_TOO_LARGE  The options of one process are too long.
 */
BT_MUST_CHECK bt_status_t bt_plan_create(
    const bt_config_store_t *store, const bt_config_t *config,
    const bt_run_dir_t *run_dir, const cpu_set_t *allowed, uint32_t n_cpus,
    const bt_topology_t *topology, const bt_devices_t *devices,
    bool has_control_socket, bt_plan_t **plan_p);
void bt_plan_destroy(bt_plan_t *plan);

/**
 * Adds a model and its workers, after the existing processes. The workers get
 * free cores if there are enough, otherwise they are not pinned.
 *
 * @param [in] name  Valid (bt_config_is_model_name()) and of no other model.
 * @retval BT_ERR_TOO_LARGE  There are BT_CONFIG_MAX_MODELS already.
 * @retval BT_ERR_NO_MEMORY  The plan is unchanged.
 */
BT_MUST_CHECK bt_status_t bt_plan_add_model(bt_plan_t *plan, const char *name,
                                            const char *path, uint32_t prefill,
                                            uint32_t decode);

/**
 * Adds workers to a model, after the existing processes, with cores as in
 * bt_plan_add_model().
 *
 * @param [in] model  Index of the model.
 * @retval BT_ERR_NO_MEMORY  The plan is unchanged.
 */
BT_MUST_CHECK bt_status_t bt_plan_add_workers(bt_plan_t *plan, uint32_t model,
                                              uint32_t prefill,
                                              uint32_t decode);

/** Removes the workers of the last bt_plan_add_workers(), none of which was
 *  started, and gives back their cores and devices. */
void bt_plan_drop_workers(bt_plan_t *plan, uint32_t model, uint32_t prefill,
                          uint32_t decode);

/** Removes the last model, none of whose workers was started, and gives back
 *  their cores and devices. */
void bt_plan_drop_model(bt_plan_t *plan);

/** Rewrites the arguments before a process starts: a worker gets its current
 *  role, a router the models that are loaded (all of them if none is).
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  Nothing is changed. */
BT_MUST_CHECK bt_status_t bt_plan_renew_args(const bt_plan_t *plan,
                                             bt_plan_process_t *process);

/** Lists the arguments of a process.
 *  @param [out] argv  Pointers into the plan, one per argument, without a NULL
 *                     at the end. NULL: only counted.
 *  @return the number of arguments */
size_t bt_plan_put_args(const bt_plan_process_t *process, char **argv);

/** @return the model's index, or BT_PLAN_NO_MODEL. */
uint32_t bt_plan_find_model(const bt_plan_t *plan, const char *name);

/** Returns the number of a model's workers planned for this role only. */
uint32_t bt_plan_count(const bt_plan_t *plan, uint32_t model,
                       bt_admin_role_t role);

/** True when @a standby may replace @a worker: they have one model, and equal
 *  numbers of ranks and stages. */
bool bt_plan_may_replace(const bt_plan_t *plan,
                         const bt_plan_process_t *standby,
                         const bt_plan_process_t *worker);

/** Returns the number of processes of a worker; 1 for a router. */
uint32_t bt_plan_ranks(const bt_plan_t *plan, const bt_plan_process_t *process);

/** Computes the threads per worker where the options say 0: an even share of
 *  the cores for the workers of @a n_models models, at least 1. */
void bt_plan_threads(const bt_config_t *config, uint32_t n_models,
                     uint32_t n_cores, uint32_t *prefill_p, uint32_t *decode_p);

#endif
