/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h
 *
 * The router's event loop: HTTP, control links, time and signals on one
 * thread. Besides router/http the only includer of event2 headers.
 *
 *     SIGTERM, SIGINT ─▶ stop listening, answer 503 to new requests, go on
 *     until the last request ended or drain_ms passed, end with 0; the second
 *     signal ends at once.
 */
#ifndef BT_ROUTER_LOOP_H
#define BT_ROUTER_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rpc/rpc.h"
#include "router/frontend/router.h"

typedef struct bt_loop bt_loop_t;

/** Binds the client's sockets and makes the core. @a config, @a served: lent.
 *  @retval others  logged */
BT_MUST_CHECK bt_status_t bt_loop_create(const bt_config_t *config,
                                         const bt_served_t *served,
                                         bt_loop_t **loop_p);

/** Listen for workers. @param [out] bound  the real URL.
 *  @retval others  logged */
BT_MUST_CHECK bt_status_t bt_loop_open_links(bt_loop_t *loop, const char *url,
                                             const uint8_t *key,
                                             size_t key_bytes, char *bound,
                                             size_t bound_bytes);

/** Serve until told to stop. @return the process' exit code. */
int bt_loop_run(bt_loop_t *loop);
void bt_loop_destroy(bt_loop_t *loop); /**< NULL is allowed */

#endif
