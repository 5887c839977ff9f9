/* SPDX-License-Identifier: Apache-2.0 */
/** @file names.h
 *
 * The names under which clients of Triton know the first model, and what is
 * counted for each. A call by the name of a chain counts for the chain and for
 * its parts, as Triton counts it; what generates is the served model, whose
 * cells `tensorrt_llm` and its own name share.
 *
 *     called by            counts for
 *     ensemble             ensemble, preprocessing, postprocessing ─┐
 *     tensorrt_llm_bls     the same, itself in place of ensemble    ├─▶ the
 *     tensorrt_llm         ─────────────────────────────────────────┤   model
 *     its own name         ─────────────────────────────────────────┘
 *     preprocessing,
 *     postprocessing       themselves alone
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
    BT_NAME_OWN, /**< of the served model; tensorrt_llm too */
    BT_NAME_PREPROCESSING,
    BT_NAME_POSTPROCESSING,
    BT_NAME_ENSEMBLE,
    BT_NAME_BLS,
    BT_N_NAMES,
} bt_name_t;

/** The cells of each; of BT_NAME_OWN NULL. Owned by the metrics. */
typedef struct bt_names {
    bt_model_metrics_t *metrics[BT_N_NAMES];
} bt_names_t;

/** A model repository's folders say which of them have series of metrics;
 * without one all have.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_names_init(bt_names_t *names,
                                        const bt_config_t *config,
                                        bt_router_metrics_t *metrics);
/** Which one a client's word is. A served model that is called so goes first.
 */
bt_name_t bt_name_of(const bt_frontend_t *front, const char *name);

/** One sequence of a call by this name ended, well or not; the served model has
 *  counted it. Nothing for BT_NAME_OWN. */
void bt_names_end(const bt_names_t *names, bt_name_t name, bool ok,
                  uint32_t n_prompt, uint32_t n_output);
/** A request by this name ended, as bt_router_metrics_request(); the same. */
void bt_names_request(const bt_names_t *names, bt_name_t name, bool ok);
/** A call by this name was turned away, as bt_router_metrics_refused(). */
void bt_names_refused(const bt_names_t *names, bt_name_t name, int http_status);
/** Where the time of one sequence went. */
void bt_names_ledger(const bt_names_t *names, bt_name_t name,
                     const bt_ledger_t *ledger);
/** Time spent on its text. */
void bt_names_output(const bt_names_t *names, bt_name_t name, uint64_t us);
/** A response of a stream, as bt_router_metrics_response(). */
void bt_names_response(const bt_names_t *names, bt_name_t name, uint32_t index,
                       uint64_t us);
/** PREPROCESSING or POSTPROCESSING was called by itself.
 *  @param n  rows of its batch */
void bt_names_part(const bt_names_t *names, bt_name_t name, bool ok, uint32_t n,
                   uint64_t queue_us, uint64_t infer_us);

#endif
