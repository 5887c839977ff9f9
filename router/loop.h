/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h
 *
 * The router's process on one thread: puts the frontend, the client ports and
 * the control links on one event loop, and adds timers and signals.
 *
 *     SIGTERM, SIGINT ─▶ not ready. If a client polls readiness, requests are
 *         accepted for lame_duck_ms more, for load balancers to notice; then:
 *         stop listening, answer 503 to new requests, continue until the last
 *         request ended or drain_ms passed, exit with 0. A second signal
 *         (process.h) ends at once.
 *     SIGHUP ─▶ trace and access log are reopened, the cluster key and the TLS
 *         files are read again.
 */
#ifndef BT_ROUTER_LOOP_H
#define BT_ROUTER_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"

typedef struct bt_loop bt_loop_t;

/** Opens the models and binds the clients' sockets. @a config is borrowed.
 *  @retval others  logged */
BT_MUST_CHECK bt_status_t bt_loop_create(const bt_config_t *config,
                                         bt_loop_t **loop_p);

/** Listens for workers. @param [out] bound  the real URL.
 *  @retval others  logged */
BT_MUST_CHECK bt_status_t bt_loop_open_links(bt_loop_t *loop, const char *url,
                                             const uint8_t *key,
                                             size_t key_bytes, char *bound,
                                             size_t bound_bytes);

/** Serves until asked to stop. @return the process's exit code. */
int bt_loop_run(bt_loop_t *loop);
void bt_loop_destroy(bt_loop_t *loop); /**< NULL is allowed */

#endif
