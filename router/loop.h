/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h
 *
 * The router's process on one thread: it puts the frontend, the doors and the
 * control links on one event loop, and adds time and signals.
 *
 *     SIGTERM, SIGINT ─▶ not ready. Where somebody asks for that, requests are
 *     taken for lame_duck_ms yet, for balancers to notice; then: stop
 * listening, answer 503 to new requests, go on until the last request ended or
 * drain_ms passed, end with 0. A second wish (stop_signals.h) ends at once.
 * SIGHUP ─▶ trace and access log are opened anew, the cluster key and the files
 * of TLS are read again.
 */
#ifndef BT_ROUTER_LOOP_H
#define BT_ROUTER_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"

typedef struct bt_loop bt_loop_t;

/** Opens the models and binds the clients' sockets. @a config is lent.
 *  @retval others  logged */
BT_MUST_CHECK bt_status_t bt_loop_create(const bt_config_t *config,
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
