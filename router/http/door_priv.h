/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_priv.h  Shared by door.c, door_reply.c and routes.c
 *  only. */
#ifndef BT_ROUTER_HTTP_DOOR_PRIV_H
#define BT_ROUTER_HTTP_DOOR_PRIV_H

#include "router/frontend/call.h"
#include "router/http/door.h"

/* ---- door_reply.c ---- */

/** Answer in one piece. */
void bt_door_respond(bt_door_t *door, bt_exchange_t *ex, int status,
                     const char *type, const void *body, size_t bytes);
/** Answer with an error in a dialect's form. */
void bt_door_respond_error(bt_door_t *door, bt_exchange_t *ex,
                           bt_api_dialect_t dialect,
                           const bt_api_error_t *error);
/** Begin a call from the exchange's body, which it answers. */
void bt_door_call(bt_door_t *door, bt_exchange_t *ex, bt_api_dialect_t dialect,
                  const char *model, bool stream);
/** Handlers of bt_http_handlers_t; @a door is a bt_door_t. */
void bt_door_gone(void *door, bt_exchange_t *ex);
void bt_door_format_error(void *door, const char *path, int status,
                          const char *message, bt_strbuf_t *out);

/* ---- routes.c ---- */

/** Handlers of the main and of the metrics port; @a door is a bt_door_t. */
void bt_door_request(void *door, bt_exchange_t *ex);
void bt_door_metrics_request(void *door, bt_exchange_t *ex);
/** The dialect that an error on this path is told in; NULL = unknown. */
bt_api_dialect_t bt_door_dialect_of(const char *path);

#endif
