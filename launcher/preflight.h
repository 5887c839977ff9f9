/* SPDX-License-Identifier: Apache-2.0 */
/** @file preflight.h
 *
 * Checks before anything starts: memory and threads that all workers of a
 * launch take of this machine together, model files, and the list of findings.
 *
 * Memory: each worker checks for itself when it starts, so a shortage of two
 * workers that fit alone shows when the second one starts, or here. Pure.
 *
 * Model files: checked before any worker starts, so that a problem is reported
 * once and not by every worker.
 *
 * Findings of ./baton check: one sentence each, and how to fix it. As lines
 * for a person, or as JSON for a program; tools/cli/examine/findings.py, of
 * ./baton doctor, has equal formats.
 */
#ifndef BT_LAUNCHER_PREFLIGHT_H
#define BT_LAUNCHER_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/config/config.h"

typedef enum bt_diagnostic_level {
    BT_FINDING_NOTE,    /**< good to know */
    BT_FINDING_WARNING, /**< serves, but not as well as it could */
    BT_FINDING_PROBLEM, /**< does not start, or does not serve */
} bt_diagnostic_level_t;

typedef struct bt_diagnostic {
    bt_diagnostic_level_t level;
    char *about; /**< "configuration", "memory", the name of a process */
    char *text;
    char *fix; /**< how to fix it; "": the text says it */
} bt_diagnostic_t;

/** List of findings. All zero: empty. */
typedef struct bt_diagnostics {
    bt_diagnostic_t *list; /**< owned, with its texts */
    uint32_t n;
    bt_status_t status; /**< BT_ERR_NO_MEMORY: some are missing */
} bt_diagnostics_t;

/** Adds a finding, unless its text is there already. Sets status on errors. */
void bt_diagnostics_add(bt_diagnostics_t *findings, bt_diagnostic_level_t level,
                        const char *about, const char *text, const char *fix);
void bt_diagnostics_fini(bt_diagnostics_t *findings);

/** @return the number of findings of that level. */
uint32_t bt_diagnostics_count(const bt_diagnostics_t *findings,
                              bt_diagnostic_level_t level);

/** Appends "problem memory: TEXT" and, below it, " fix: MEND" for each
 *  finding; then the counts. */
void bt_diagnostics_print(const bt_diagnostics_t *findings, bt_strbuf_t *out);

/** Writes "findings":[{"level":"problem","about":…,"text":…,"fix":…|null},…]
 */
void bt_diagnostics_json(const bt_diagnostics_t *findings, bt_json_t *json);

/** Memory needs of a group of identical workers, as they report them
 *  (worker/preflight.h). */
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
                            const bt_preflight_headroom_t *headroom,
                            bt_diagnostics_t *findings);

/** Returns the bytes of the KV pool of each instance of needs[i]: the size
 *  asked for, or without one an even share, a quarter at most, of half of what
 *  all leave. 0 if the pool is not in host memory. */
uint64_t bt_preflight_pool(const bt_preflight_need_t *needs, uint32_t n,
                           const bt_preflight_headroom_t *headroom, uint32_t i);

#define BT_MODEL_FILE_ORIGIN_BYTES 1024

/** Checks that the file, or the folder, can be opened.
 *  @param [out] why  On failure: the reason, for a person.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_model_file_check(const char *path, char *why,
                                              size_t why_bytes);

/** Describes where the path of a model comes from, for the end of a message: ""
 *  if not from the model repository.
 *  @param [out] out  BT_MODEL_FILE_ORIGIN_BYTES are enough for most paths; cut
 */
void bt_model_file_origin(const bt_config_t *config, const char *path,
                          char *out, size_t out_bytes);

#endif
