/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch.h
 *
 * Batches, as OpenAI has them: the lines of a file are requests, which run when
 * there is room beside those of clients, and whose answers are the lines of
 * another file.
 *
 *     VALIDATING ─▶ IN_PROGRESS ─▶ FINALIZING ─▶ COMPLETED, EXPIRED, FAILED
 *       │  │            │
 *       │  │            ▼
 *       │  └───────▶ CANCELLING ─▶ CANCELLED
 *       └─▶ FAILED
 *
 * A line runs as a request without a connection, at the lowest priority level;
 * refusals that a later try may not get (429, 503, 504) are tried again until
 * the batch expires, unless workers had the line in three tries and none of
 * them was answered. An answer counts once it is in the batch's journal
 * (router/store/store.h): after a kill the lines without one run again, and
 * output and error file, which are made of the journal, have each line once.
 *
 * Threads: the event loop's, except for jobs of the pool's files thread.
 * Source:  OpenAI's API reference, Batch.
 */
#ifndef BT_ROUTER_BATCH_BATCH_H
#define BT_ROUTER_BATCH_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/config/config.h"
#include "router/frontend/frontend.h"
#include "router/store/store.h"
#include "router/tenants/tenants.h"

/** Limits of a batch: lines of a file (OpenAI's), and batches of one tenant
 *  that are under way. */
#define BT_BATCH_MAX_LINES 50000u
#define BT_BATCH_MAX_OPEN  64u
#define BT_BATCH_LIFE_S    86400u /**< completion_window: 24h */

typedef struct bt_batches bt_batches_t;
typedef struct bt_batch bt_batch_t;

#define BT_BATCH_FIELD_BYTES 64

/** Fields of a body that asks for a batch. */
typedef struct bt_batch_fields {
    char input_id[BT_BATCH_FIELD_BYTES];
    char endpoint[BT_BATCH_FIELD_BYTES];
    bool has_time;
    bt_strbuf_t metadata; /**< an object of texts, as JSON; empty: none */
    uint64_t life_s;      /**< life of the output; 0: not given */
} bt_batch_fields_t;

/** Reads a body; bt_batch_fields_fini() is due in any case.
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY  error_p is filled */
BT_MUST_CHECK bt_status_t bt_batch_fields_read(const char *text, size_t bytes,
                                               bt_batch_fields_t *fields,
                                               bt_api_error_t *error_p);
void bt_batch_fields_fini(bt_batch_fields_t *fields);

/** Parameters of a new batch; all borrowed. */
typedef struct bt_batch_params {
    bt_tenant_t *tenant; /**< NULL: the one without a name */
    const char *input_id;
    const char *endpoint;   /**< a path */
    const char *metadata;   /**< an object, as JSON; NULL: none */
    uint64_t output_life_s; /**< 0: the store's */
} bt_batch_params_t;

/** Continues what an earlier process has begun. For a frontend with a store.
 *  Failures are logged. */
BT_MUST_CHECK bt_status_t bt_batches_create(bt_frontend_t *front,
                                            bt_batches_t **batches_p);
/** Frees all batches, whose files stay; the pool must have been stopped. NULL
 *  is allowed. */
void bt_batches_destroy(bt_batches_t *batches);
/** Looks at deadlines; call it every 50 ms or so. */
void bt_batches_tick(bt_batches_t *batches, uint64_t now_us);

/** True for the path of an endpoint that batches have. */
bool bt_batch_is_endpoint(const char *path);
/** Is called with a batch, or with NULL and an error. */
typedef void (*bt_batch_answer_fn_t)(void *ctx, const bt_batch_t *batch,
                                     const bt_api_error_t *error);

/** Begins a batch.
 *  @param [in]  made  called later
 *  @retval BT_OK   made() will be called
 *  @retval others  error_p is filled */
BT_MUST_CHECK bt_status_t bt_batch_begin(bt_batches_t *batches,
                                         const bt_batch_params_t *params,
                                         bt_batch_answer_fn_t made, void *ctx,
                                         bt_api_error_t *error_p);
/** Returns the batch of an object of BT_STORE_BATCH; NULL: it could not be
 *  read. */
bt_batch_t *bt_batch_of(const bt_stored_t *object);
/** Cancels a batch: lines that run are given up, and answers that there are
 *  become files.
 *  @param [in]  kept  called once no process can continue the batch: its
 * journal has the cancel; with an error if that failed
 *  @retval BT_OK   kept() was called, or will be
 *  @retval BT_ERR_INVALID_PARAM  it has ended; error_p is filled
 *  @retval BT_ERR_NO_MEMORY      error_p is filled */
BT_MUST_CHECK bt_status_t bt_batch_cancel(bt_batch_t *batch,
                                          bt_batch_answer_fn_t kept, void *ctx,
                                          bt_api_error_t *error_p);
/** Writes the cells of baton_batches. */
void bt_batches_count(const bt_batches_t *batches, double cells[BT_PC_N]);
/** Writes the object of the API. */
void bt_batch_write(const bt_batch_t *batch, bt_json_t *json);

#endif
