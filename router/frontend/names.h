/* SPDX-License-Identifier: Apache-2.0 */
/** @file names.h
 *
 * Model names under which Triton's clients know the first model, and the
 * metrics counted for each. A call by the name of an ensemble counts for the
 * ensemble and for its parts, as in Triton; the served model generates, and
 * shares its metrics between `tensorrt_llm` and its own name.
 *
 *     called by            counts for
 *     ensemble             ensemble, preprocessing, postprocessing ─┐
 *     tensorrt_llm_bls     tensorrt_llm_bls, preprocessing,         ├─▶ the
 *                          postprocessing                           │   model
 *     tensorrt_llm         ─────────────────────────────────────────┤
 *     its own name         ─────────────────────────────────────────┘
 *     preprocessing,
 *     postprocessing       only preprocessing or postprocessing
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_NAMES_H
#define BT_ROUTER_FRONTEND_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "router/observe/metrics.h"

typedef struct bt_frontend bt_frontend_t;
typedef struct bt_served bt_served_t;

typedef enum bt_name {
    BT_NAME_OWN, /**< served model's name, or tensorrt_llm */
    BT_NAME_PREPROCESSING,
    BT_NAME_POSTPROCESSING,
    BT_NAME_ENSEMBLE,
    BT_NAME_BLS,
    BT_N_NAMES,
} bt_name_t;

/** Metrics of each name; NULL for BT_NAME_OWN. Owned by the metrics page. */
typedef struct bt_names {
    bt_model_metrics_t *metrics[BT_N_NAMES];
} bt_names_t;

/** Creates the metrics of each name. A model repository's folders determine
 *  which names have metrics; without a repository all have.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_names_init(bt_names_t *names,
                                        const bt_config_t *config,
                                        bt_router_metrics_t *metrics);
/** Returns the kind of a model name from a client. A served model of that name
 *  takes precedence. */
bt_name_t bt_name_of(const bt_frontend_t *front, const char *name);

/** Counts a sequence of a call by this name that ended, successful or not; the
 *  served model has counted it. Does nothing for BT_NAME_OWN. */
void bt_names_end(const bt_names_t *names, bt_name_t name, bool ok,
                  uint32_t n_prompt, uint32_t n_output);
/** Counts a request by this name that ended, as bt_router_metrics_request().
 *  Does nothing for BT_NAME_OWN. */
void bt_names_request(const bt_names_t *names, bt_name_t name, bool ok);
/** Counts a refused call by this name, as bt_router_metrics_refused(). */
void bt_names_refused(const bt_names_t *names, bt_name_t name, int http_status);
/** Adds the timing record of one sequence. */
void bt_names_ledger(const bt_names_t *names, bt_name_t name,
                     const bt_ledger_t *ledger);
/** Adds time spent on a sequence's text. */
void bt_names_output(const bt_names_t *names, bt_name_t name, uint64_t us);
/** Counts a response of a stream, as bt_router_metrics_response(). */
void bt_names_response(const bt_names_t *names, bt_name_t name, uint32_t index,
                       uint64_t us);
/** Counts a direct call of PREPROCESSING or POSTPROCESSING, which took us. */
void bt_names_part(const bt_names_t *names, bt_name_t name, uint64_t us);

#endif
