/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_limits.h
 *
 * How much clients may take together, from the options and from what the
 * process has.
 *
 *     descriptors ─ in use ─ reserved for workers and logs ─▶ connections
 *     memory that is available / 16 ─▶ memory for requests (answers as much)
 *
 * Threads: pure, but for bt_door_means_read().
 */
#ifndef BT_ROUTER_HTTP_DOOR_LIMITS_H
#define BT_ROUTER_HTTP_DOOR_LIMITS_H

#include "common/base/strbuf.h"
#include "common/config/config.h"

#define BT_DOOR_MAX_CONNECTIONS     16384u
#define BT_DOOR_METRICS_CONNECTIONS 64u
#define BT_DOOR_GRPC_CONNECTIONS    1024u /**< each for many calls at once */
#define BT_DOOR_WHY_BYTES           256

/** What the process has. */
typedef struct bt_door_means {
    uint64_t descriptors;  /**< most that it may have */
    uint32_t in_use;       /**< of those */
    uint64_t memory_bytes; /**< that is available; UINT64_MAX: not known */
} bt_door_means_t;

typedef struct bt_door_limits {
    uint32_t connections, metrics_connections, grpc_connections;
    uint32_t per_client;   /**< 0 = no limit */
    uint64_t memory_bytes; /**< of HTTP and gRPC together */
    uint64_t router_bytes; /**< of the whole process */
} bt_door_limits_t;

/** Raises the soft limit of descriptors to the hard one: every part of the
 *  process waits with epoll or poll, none with select(). */
void bt_door_means_read(bt_door_means_t *means);

/** @param [out] why  what does not fit, with the option's name
 *  @retval BT_ERR_INVALID_PARAM  why was written */
BT_MUST_CHECK bt_status_t bt_door_limits_derive(const bt_config_t *config,
                                                const bt_door_means_t *means,
                                                bt_door_limits_t *limits_p,
                                                char why[BT_DOOR_WHY_BYTES]);
/** Append all of it in one line, for the log. */
void bt_door_limits_print(const bt_config_t *config,
                          const bt_door_means_t *means,
                          const bt_door_limits_t *limits, bt_strbuf_t *out);

#endif
