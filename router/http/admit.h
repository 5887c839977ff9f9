/* SPDX-License-Identifier: Apache-2.0 */
/** @file admit.h
 *
 * Access control of routes. Where keys are in force, every route of the table
 * needs one unless its entry says otherwise; without a key a body is not even
 * read.
 *
 *     head ─▶ POST without a key ─▶ 401          (before the body)
 *     route ─▶ ANYBODY ─────────────────────────▶ handled
 *           ─▶ BY_KEY ── no valid key ─▶ 401
 *           ─▶ ADMIN ── key of a tenant without `admin` ─▶ 403
 *           ─▶ CONTROL ─ reads as BY_KEY, changes as ADMIN
 *           ─▶ INSIDE ─ as ADMIN, but on loopback as ANYBODY
 *
 * Where there are no keys, all clients may use every route, but changes through
 * ADMIN and CONTROL are restricted to processes of the router's user and of
 * root on its host (403; --admin-without-keys).
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_HTTP_ADMIT_H
#define BT_ROUTER_HTTP_ADMIT_H

#include <stdbool.h>

#include "common/base/text.h"
#include "router/http/http1.h"

/** Required access of a route; by default any key. */
typedef enum bt_access_kind {
    BT_ACCESS_BY_KEY,
    BT_ACCESS_ANYBODY,
    BT_ACCESS_ADMIN,
    BT_ACCESS_CONTROL, /**< changes affect other clients, too */
    BT_ACCESS_INSIDE,  /**< metrics of all tenants, for scrapers */
} bt_access_kind_t;

typedef struct bt_http_request bt_http_request_t;

/** Handler `admit` of bt_http_handlers_t; @a door is a bt_door_t. */
const char *bt_door_admit(void *door, const bt_http1_head_t *head,
                          bt_strbuf_t *out);
/** Finds the request's tenant and checks its access. @param [in] changes  the
 *  request is not read-only
 *  @return false: it was refused, and the request is over */
bool bt_http_request_admit(bt_http_request_t *r, bt_access_kind_t kind,
                           bool changes);

#endif
