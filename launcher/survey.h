/* SPDX-License-Identifier: Apache-2.0 */
/** @file survey.h
 *
 * Resources that a launch would take of this machine, and whether they are
 * there: `./baton check` prints them, and `./baton serve` checks them before
 * it starts anything.
 *
 *     limits (limits.h)            how much there is, and the source of a limit
 *     each program, `--check`      its needs, and its problems
 *     preflight.h                  the sums
 *
 * One of several identical programs is asked. No resource is taken.
 */
#ifndef BT_LAUNCHER_SURVEY_H
#define BT_LAUNCHER_SURVEY_H

#include "common/base/json.h"
#include "common/base/limits.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"

#define BT_SURVEY_NEEDS (2 * BT_CONFIG_MAX_MODELS)

typedef struct bt_survey_limits {
    bt_limit_t cpus;
    bt_limit_t memory;
    bt_limit_t threads;
} bt_survey_limits_t;

/** Results of the programs' checks. All zero, but for borrowed fields: none was
 *  asked. */
typedef struct bt_survey {
    bt_diagnostics_t *findings; /**< borrowed; also of the programs */
    bool cannot_open[BT_CONFIG_MAX_MODELS]; /**< reported; its workers are not
                                               asked */
    bool workers_abort;                     /**< reported; no worker is asked */
    bt_preflight_need_t needs[BT_SURVEY_NEEDS];
    uint32_t n_needs;
    bool is_partial; /**< some programs did not report their needs */
} bt_survey_t;

/** Reads the limits. @param [in] root  See limits.h. */
void bt_survey_limits_read(const char *root, bt_survey_limits_t *limits_p);

/** Adds a problem if fewer threads are left than a launch of @a n_models models
 *  with the workers of @a config has at most, a note if a cgroup or a near
 * limit of the user bounds them. */
void bt_survey_check_threads(const bt_config_t *config, uint32_t n_models,
                             const bt_survey_limits_t *limits,
                             bt_diagnostics_t *findings);

/** Adds a note, or a warning, about a cgroup's limits of CPUs and memory. */
void bt_survey_note_limits(const bt_plan_t *plan,
                           const bt_survey_limits_t *limits,
                           bt_diagnostics_t *findings);

/** Writes "cpus":{"most":…,"left":…,"by":…},"memory":{…},"threads":{…},
 *  "threads_needed":… with null where there is no limit; `by` as in bt_limit_t.
 */
void bt_survey_limits_json(const bt_config_t *config,
                           const bt_survey_limits_t *limits, bt_json_t *json);

/** Asks the programs of a plan, the workers and with @a routers the router, and
 *  collects their answers.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO (logged)  Not all were asked. */
BT_MUST_CHECK bt_status_t bt_survey_ask(bt_survey_t *survey,
                                        const bt_plan_t *plan, bool routers);

/** Adds findings for memory that the workers need together and that is missing;
 *  nothing if some did not report their needs.
 *  @param [out] shm_bytes_p  What the pools take of /dev/shm.
 *  @return whether all reported them */
bool bt_survey_check_memory(const bt_survey_t *survey,
                            const bt_config_t *config,
                            const bt_survey_limits_t *limits,
                            bt_diagnostics_t *findings, uint64_t *shm_bytes_p);

/** Sets the size of the KV pool of each worker of the plan, unless the options
 *  do. Otherwise each would take a quarter of what is free when it starts, and
 *  several that start at once would count the same memory.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  Some keep their arguments. */
BT_MUST_CHECK bt_status_t bt_survey_deal_pools(const bt_survey_t *survey,
                                               const bt_survey_limits_t *limits,
                                               const bt_plan_t *plan);

#endif
