/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_control.h
 *
 * A client's request to load or unload a model, or about a process of the
 * launcher, from HTTP or gRPC: forwarded to the launcher, and answered when
 * this router has also seen the result:
 *
 *     begin ─▶ the launcher's ok ─▶ the model is as asked ─▶ done(NULL)
 *                │ error              │ timeout
 *                └─▶ 400              └─▶ 503
 *
 * A client that disconnects does not cancel its request: the launcher completes
 * what it has begun.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_TRITON_MODEL_CONTROL_H
#define BT_ROUTER_TRITON_MODEL_CONTROL_H

#include <stdbool.h>

#include "common/admin/admin.h"
#include "router/frontend/frontend.h"
#include "router/net/net.h"

#define BT_MODEL_CONTROL_MAX 16 /**< in progress, of all clients */

typedef struct bt_model_control bt_model_control_t;

/** Completion callback of a model control, which is freed afterwards.
 *  @param [in] error  NULL: it succeeded */
typedef void bt_model_control_done_t(void *ctx, const bt_api_error_t *error);

/** Checks that a model control may have this parameter.
 *  @retval BT_ERR_INVALID_PARAM  *error_p says why not. */
BT_MUST_CHECK bt_status_t
bt_model_control_check_parameter(const char *name, bt_api_error_t *error_p);
/**
 * Forwards a request to load or unload a model to the launcher.
 *
 * @param [in]  name     the client's name for the model; a name of Triton's
 *                       stands for the first model
 * @param [in]  done     called later, never within this function
 * @param [out] control_p  valid until done or bt_model_control_leave()
 * @retval BT_OK
 * @retval others  Nothing was begun; *error_p says why.
 */
BT_MUST_CHECK bt_status_t bt_model_control_begin(
    bt_frontend_t *front, struct event_base *base, const char *name, bool load,
    bt_model_control_done_t *done, void *ctx, bt_model_control_t **control_p,
    bt_api_error_t *error_p);
/** Forwards a command about a process to the launcher without changes; done is
 *  called when the launcher reports the result. Parameters and errors are
 *  those of bt_model_control_begin(). */
BT_MUST_CHECK bt_status_t bt_model_control_process(
    bt_frontend_t *front, struct event_base *base,
    const bt_admin_command_t *command, bt_model_control_done_t *done, void *ctx,
    bt_model_control_t **control_p, bt_api_error_t *error_p);
/** Detaches the client from a model control: done is not called. */
void bt_model_control_leave(bt_model_control_t *control);

#endif
