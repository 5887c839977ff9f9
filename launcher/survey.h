/* SPDX-License-Identifier: Apache-2.0 */
/** @file survey.h
 *
 * What a launch would take of this machine, and whether it is there: `./baton
 * check` tells it, and `./baton serve` asks before it starts anything.
 *
 *     limits (limits.h)            how much there is, and whose limit says so
 *     each program, `--check`      what it would take, and what is wrong with
 * it needs.h                      the sums
 *
 * Programs that are alike are asked once. Nothing is taken of the machine.
 */
#ifndef BT_LAUNCHER_SURVEY_H
#define BT_LAUNCHER_SURVEY_H

#include "common/base/json.h"
#include "common/base/limits.h"
#include "launcher/findings.h"
#include "launcher/needs.h"
#include "launcher/plan.h"

#define BT_SURVEY_NEEDS (2 * BT_CONFIG_MAX_MODELS)

typedef struct bt_survey_limits {
    bt_limit_t cpus;
    bt_limit_t memory;
    bt_limit_t threads;
} bt_survey_limits_t;

/** All zero, but for what is borrowed: nobody was asked. */
typedef struct bt_survey {
    bt_findings_t *findings; /**< borrowed; what the programs said */
    bool cannot_open[BT_CONFIG_MAX_MODELS]; /**< said; nobody is asked of it */
    bool workers_abort;                     /**< said; none is asked */
    bt_need_t needs[BT_SURVEY_NEEDS];
    uint32_t n_needs;
    bool is_partial; /**< some did not say what they take */
} bt_survey_t;

/** @param [in] root  As in cgroup.h. */
void bt_survey_limits_read(const char *root, bt_survey_limits_t *limits_p);

/** @return processes and threads of a launch of @a n_models models with the
 *          workers of @a config, at most */
uint64_t bt_survey_threads(const bt_config_t *config, uint32_t n_models,
                           const bt_survey_limits_t *limits);

/** Add a problem where fewer are left than bt_survey_threads() says, a note
 *  where a cgroup or a near limit of the user bounds them. */
void bt_survey_check_threads(const bt_config_t *config, uint32_t n_models,
                             const bt_survey_limits_t *limits,
                             bt_findings_t *findings);

/** Add a note, or a warning, for the CPUs and the memory that a cgroup has. */
void bt_survey_note_limits(const bt_plan_t *plan,
                           const bt_survey_limits_t *limits,
                           bt_findings_t *findings);

/** "cpus":{"most":…,"left":…,"by":…},"memory":{…},"threads":{…},
 *  "threads_needed":… with null where there is no limit; `by` as in bt_limit_t.
 */
void bt_survey_limits_json(const bt_config_t *config,
                           const bt_survey_limits_t *limits, bt_json_t *json);

/** Ask the programs of a plan, the workers' and with @a routers the router's,
 *  and take what they say.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO (logged)  Not all were asked. */
BT_MUST_CHECK bt_status_t bt_survey_ask(bt_survey_t *survey,
                                        const bt_plan_t *plan, bool routers);

/** Add findings for what the workers take together and is not there; nothing
 *  where some did not say what they take.
 *  @param [out] shm_bytes_p  What the pools take of /dev/shm.
 *  @return whether all said it */
bool bt_survey_check_memory(const bt_survey_t *survey,
                            const bt_config_t *config,
                            const bt_survey_limits_t *limits,
                            bt_findings_t *findings, uint64_t *shm_bytes_p);

/** Give each worker of the plan the size of its KV pool, unless the options do.
 *  Without this each takes a quarter of what it finds when it starts, and
 *  several that start at once find the same.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  Some keep their arguments. */
BT_MUST_CHECK bt_status_t bt_survey_deal_pools(const bt_survey_t *survey,
                                               const bt_survey_limits_t *limits,
                                               const bt_plan_t *plan);

#endif
