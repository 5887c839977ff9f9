/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_limits.h
 *
 * Derives the resource limits for all clients together, from the options and
 * the process's own limits.
 *
 *     descriptors ─ in use ─ reserved for workers and logs ─▶ connections
 *     available memory / 16 ─▶ memory for requests (answers as much)
 *
 * Threads: pure, but for bt_door_means_read().
 */
#ifndef BT_ROUTER_HTTP_DOOR_LIMITS_H
#define BT_ROUTER_HTTP_DOOR_LIMITS_H

#include "common/base/text.h"
#include "common/config/config.h"

#define BT_DOOR_MAX_CONNECTIONS     16384u
#define BT_DOOR_METRICS_CONNECTIONS 64u
#define BT_DOOR_GRPC_CONNECTIONS    1024u /**< each with many concurrent calls */
#define BT_DOOR_WHY_BYTES           256

/** Resources of the process. */
typedef struct bt_door_means {
    uint64_t descriptors;  /**< limit on file descriptors */
    uint32_t in_use;       /**< file descriptors in use */
    uint64_t memory_bytes; /**< available memory; UINT64_MAX: not known */
} bt_door_means_t;

typedef struct bt_door_limits {
    uint32_t connections, metrics_connections, grpc_connections;
    uint32_t per_client;   /**< connections of one client; 0 = no limit */
    uint64_t memory_bytes; /**< total of HTTP and gRPC */
    uint64_t router_bytes; /**< total of the process */
} bt_door_limits_t;

/** Reads the resources. Raises the soft limit of descriptors to the hard one:
 *  every part of the process waits with epoll or poll, none with select(). */
void bt_door_means_read(bt_door_means_t *means);

/** Derives the limits.
 *  @param [out] why  what does not fit, with the option's name
 *  @retval BT_ERR_INVALID_PARAM  why was written */
BT_MUST_CHECK bt_status_t bt_door_limits_derive(const bt_config_t *config,
                                                const bt_door_means_t *means,
                                                bt_door_limits_t *limits_p,
                                                char why[BT_DOOR_WHY_BYTES]);
/** Appends resources and limits in one line, for the log. */
void bt_door_limits_print(const bt_config_t *config,
                          const bt_door_means_t *means,
                          const bt_door_limits_t *limits, bt_strbuf_t *out);

#endif
