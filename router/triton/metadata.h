/* SPDX-License-Identifier: Apache-2.0 */
/** @file metadata.h
 *
 * Answers what Triton's clients ask about the server besides inference. HTTP
 * and gRPC handlers call these functions and encode the results.
 *
 *     server     name, version, extensions
 *     model      bt_repo_model_t: from config.pbtxt, else from Baton's state
 *     counts     bt_statistics_t: the cells of /metrics
 *     index      names, versions, states
 *     settings   of the log and the trace: read, and changed where that has an
 *                effect here
 *
 * Threads: everything on the event loop's thread.
 * Source:  KServe's protocol v2 and Triton's extensions of it: model
 *          configuration, statistics, model repository, logging, trace.
 */
#ifndef BT_ROUTER_TRITON_METADATA_H
#define BT_ROUTER_TRITON_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/repository/repository.h"
#include "router/frontend/frontend.h"
#include "router/triton/models.h"

#define BT_DESCRIBE_SERVER_NAME "baton"

#define BT_DESCRIBE_MAX_EXTENSIONS 16
/** Lists the protocol extensions that the server supports besides inference.
 *  @return number of entries in the list; the names are static */
size_t bt_describe_extensions(const bt_frontend_t *front,
                              const char *list[BT_DESCRIBE_MAX_EXTENSIONS]);

/* ---- models ---- */

/** Model name that clients may use. */
typedef struct bt_described {
    const char *name;    /**< name as listed; owned by the registry or static */
    bt_served_t *served; /**< served model that the name stands for */
} bt_described_t;

/** Lists all model names: the served models' own names, then Triton's names
 *  that no served model has.
 *  @param [out] list  at most @a cap entries
 *  @return number of entries in the list */
size_t bt_describe_names(const bt_frontend_t *front, bt_described_t *list,
                         size_t cap);

/** Description of a model. */
typedef struct bt_model_view {
    bt_repo_model_t model; /**< borrows from `own` and the frontend */
    bt_repo_model_t own;   /**< free with bt_repo_model_fini() */
} bt_model_view_t;

/**
 * Describes the model of the given name.
 *
 * @param [in]  name    borrowed while the view is in use
 * @param [out] view_p  see bt_model_view_t
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_describe_model(const bt_frontend_t *front,
                                            const char *name,
                                            bt_model_view_t *view_p);
/** Returns the largest batch of one request for the model of this name; 0: no
 *  batching. */
uint32_t bt_describe_max_batch(const bt_frontend_t *front, const char *name);
/** True when a request to the model of this name may get several responses. */
bool bt_describe_is_decoupled(const bt_frontend_t *front, const char *name);

void bt_describe_statistics(const bt_frontend_t *front,
                            const bt_served_t *served, const char *name,
                            bt_statistics_t *statistics);

/** Returns "READY" or "UNAVAILABLE"; *why_p is the reason for "UNAVAILABLE",
 *  else "". Both strings are static. */
const char *bt_describe_state(const bt_frontend_t *front,
                              const bt_served_t *served, const char **why_p);

/* ---- settings ---- */

#define BT_SETTINGS_MAX 16

/** One setting, in a form independent of the protocol (HTTP or gRPC). */
typedef struct bt_setting {
    char name[64];
    enum bt_setting_kind {
        BT_SETTING_NULL, /**< in a request: reset to the start value */
        BT_SETTING_BOOL,
        BT_SETTING_NUMBER,
        BT_SETTING_TEXT,
        BT_SETTING_LIST, /**< list of strings; `text` holds the elements,
                            separated by commas */
    } kind;
    uint64_t number; /**< value of a NUMBER; 0 or 1 for a BOOL */
    char text[256];
} bt_setting_t;

typedef struct bt_settings {
    bt_setting_t list[BT_SETTINGS_MAX];
    size_t n;
} bt_settings_t;

/** Appends a setting of the given name.
 *  @return the new setting, or NULL: too many settings, or the name is too
 *          long */
bt_setting_t *bt_settings_add(bt_settings_t *settings, const char *name);

/** Parses a body of JSON: an object of settings, {"log_info": false,
 *  "trace_level": ["OFF"], "trace_rate": null}.
 *  @param [in] text   empty: no settings
 *  @param [in] under  the settings are the object at this key of the outermost
 *                     object, none if the key is absent; NULL: the outermost
 *                     object itself
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled
 *  @retval BT_ERR_NO_MEMORY      error_p is filled */
BT_MUST_CHECK bt_status_t bt_settings_read(const char *text, size_t bytes,
                                           const char *under,
                                           bt_settings_t *settings_p,
                                           bt_api_error_t *error_p);

void bt_describe_log(bt_settings_t *settings);
/** Applies the log settings that a client requests, all or none.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the setting */
BT_MUST_CHECK bt_status_t bt_describe_set_log(const bt_frontend_t *front,
                                              const bt_settings_t *asked,
                                              bt_api_error_t *error_p);

void bt_describe_trace(const bt_frontend_t *front, bt_settings_t *settings);
/** Applies the trace settings that a client requests, all or none.
 *  @param [in] model  NULL: settings of the whole server. A model has the
 *                     server's settings; they cannot be changed for one model.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the setting */
BT_MUST_CHECK bt_status_t bt_describe_set_trace(bt_frontend_t *front,
                                                const char *model,
                                                const bt_settings_t *asked,
                                                bt_api_error_t *error_p);

#endif
