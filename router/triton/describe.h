/* SPDX-License-Identifier: Apache-2.0 */
/** @file describe.h
 *
 * What Triton's clients ask about the server beside answers, as no door has it:
 * a door calls these and puts what comes into its own bytes.
 *
 *     server     name, version, extensions
 *     model      bt_repo_model_t: as its config.pbtxt says, else as Baton is
 *     counts     bt_statistics_t: the cells of /metrics
 *     index      names, versions, states
 *     settings   of the log and the trace: read, and changed where that has a
 *                meaning here
 *
 * Threads: everything on the event loop's thread.
 * Source:  KServe's protocol v2 and Triton's extensions of it: model
 *          configuration, statistics, model repository, logging, trace.
 */
#ifndef BT_ROUTER_TRITON_DESCRIBE_H
#define BT_ROUTER_TRITON_DESCRIBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/repository/repository.h"
#include "router/frontend/frontend.h"
#include "router/triton/models.h"

#define BT_DESCRIBE_SERVER_NAME "baton"

#define BT_DESCRIBE_MAX_EXTENSIONS 16
/** What the server can do beside inferring.
 *  @return how many there are in the list; the names are static */
size_t bt_describe_extensions(const bt_frontend_t *front,
                              const char *list[BT_DESCRIBE_MAX_EXTENSIONS]);

/* ---- models ---- */

/** A name that clients may use. */
typedef struct bt_described {
    const char *name;    /**< as it is listed; of the registry or static */
    bt_served_t *served; /**< that answers to it */
} bt_described_t;

/** All of them: the served models' own names, then Triton's that none has.
 *  @param [out] list  at most @a cap
 *  @return how many there are in the list */
size_t bt_describe_names(const bt_frontend_t *front, bt_described_t *list,
                         size_t cap);

/**
 * What the model of this name is said to be.
 *
 * @param [in]  name     a client's word for @a served; borrowed while the model
 *                       is in use
 * @param [out] model_p  for bt_repo_model_fini(); its strings are the
 * frontend's or static, but for the name
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_describe_model(const bt_frontend_t *front,
                                            const char *name,
                                            bt_repo_model_t *model_p);
/** The largest batch of one request for the model of this name; 0: none. */
uint32_t bt_describe_max_batch(const bt_frontend_t *front, const char *name);
/** May its requests be answered with several responses? */
bool bt_describe_is_decoupled(const bt_frontend_t *front, const char *name);

void bt_describe_statistics(const bt_frontend_t *front,
                            const bt_served_t *served, const char *name,
                            bt_statistics_t *statistics);

/** "READY" or "UNAVAILABLE", and of the latter why; static. */
const char *bt_describe_state(const bt_frontend_t *front,
                              const bt_served_t *served, const char **why_p);

/* ---- settings ---- */

#define BT_SETTINGS_MAX 16

/** One setting, whatever its type is in a door's bytes. */
typedef struct bt_setting {
    char name[64];
    enum bt_setting_kind {
        BT_SETTING_NULL, /**< of a request: as it was at the start */
        BT_SETTING_BOOL,
        BT_SETTING_NUMBER,
        BT_SETTING_TEXT,
        BT_SETTING_LIST, /**< of texts; `text` is its elements, with commas */
    } kind;
    uint64_t number; /**< also of BOOL */
    char text[256];
} bt_setting_t;

typedef struct bt_settings {
    bt_setting_t list[BT_SETTINGS_MAX];
    size_t n;
} bt_settings_t;

/** @return the place for one more of this name, or NULL: too many, or too long
 *  a name */
bt_setting_t *bt_settings_add(bt_settings_t *settings, const char *name);

void bt_describe_log(bt_settings_t *settings);
/** Take what a client asks for, all or nothing.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the setting */
BT_MUST_CHECK bt_status_t bt_describe_set_log(const bt_frontend_t *front,
                                              const bt_settings_t *asked,
                                              bt_api_error_t *error_p);

void bt_describe_trace(const bt_frontend_t *front, bt_settings_t *settings);
/** The same. @param [in] model  NULL: of the whole server; those of a model are
 *  the server's, and are not changed by themselves */
BT_MUST_CHECK bt_status_t bt_describe_set_trace(bt_frontend_t *front,
                                                const char *model,
                                                const bt_settings_t *asked,
                                                bt_api_error_t *error_p);

#endif
