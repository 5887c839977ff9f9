/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/door_limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/limits.h"
#include "common/base/process.h"

#define MIB              (UINT64_C(1) << 20)
#define MOST_RESERVED    1024u /* descriptors of links, logs and the like */
#define LEAST_CLIENTS    16u   /* minimum of connections for a useful server */
#define MEMORY_SHARE     16u
#define LEAST_MEMORY     (64 * MIB)
#define MOST_MEMORY      (1024 * MIB)
#define BODIES_IN_MEMORY 4u
/* Requests, answers being written, and unread answers of two protocols. */
#define ROUTER_PARTS  4u
#define ROUTER_MEMORY (256 * MIB) /* memory of the router besides these */

void bt_door_means_read(bt_door_means_t *means)
{
    *means = (bt_door_means_t){
        .in_use = bt_count_open_fds(),
        .memory_bytes = bt_limits_memory_left(),
    };
    means->descriptors = bt_raise_open_fds();
}

/* Connections of clients, both ports. */
static uint32_t n_connections(const bt_door_means_t *means)
{
    const uint64_t quarter = means->descriptors / 4;
    const uint64_t taken =
        means->in_use + ((quarter < MOST_RESERVED) ? quarter : MOST_RESERVED);
    const uint64_t left =
        (means->descriptors > taken) ? means->descriptors - taken : 0;

    return (left < UINT32_MAX) ? (uint32_t)left : UINT32_MAX;
}

static bt_status_t set_connections(const bt_config_t *config,
                                   const bt_door_means_t *means,
                                   bt_door_limits_t *limits, char *why)
{
    const uint32_t n = n_connections(means);
    uint32_t metrics = n / 8;
    uint32_t grpc = n / 8;
    uint32_t clients;

    if (metrics > BT_DOOR_METRICS_CONNECTIONS) {
        metrics = BT_DOOR_METRICS_CONNECTIONS;
    }
    if (grpc > BT_DOOR_GRPC_CONNECTIONS) {
        grpc = BT_DOOR_GRPC_CONNECTIONS;
    }
    clients = n - metrics - grpc;
    if (clients < LEAST_CLIENTS) {
        snprintf(why, BT_DOOR_WHY_BYTES,
                 "%" PRIu64
                 " file descriptors are too few, %u are in use already: "
                 "raise the limit (ulimit -n)",
                 means->descriptors, means->in_use);
        return BT_ERR_INVALID_PARAM;
    }
    if (config->max_connections > clients) {
        snprintf(why, BT_DOOR_WHY_BYTES,
                 "--max-connections %u: %" PRIu64
                 " file descriptors are enough for "
                 "%u; raise the limit (ulimit -n)",
                 config->max_connections, means->descriptors, clients);
        return BT_ERR_INVALID_PARAM;
    }
    if (config->max_connections > 0) {
        clients = config->max_connections;
    } else if (clients > BT_DOOR_MAX_CONNECTIONS) {
        clients = BT_DOOR_MAX_CONNECTIONS;
    }
    limits->connections = clients;
    limits->metrics_connections = metrics;
    limits->grpc_connections = grpc;
    limits->per_client = config->max_connections_per_address;
    return BT_OK;
}

static bt_status_t set_memory(const bt_config_t *config,
                              const bt_door_means_t *means,
                              bt_door_limits_t *limits, char *why)
{
    const uint64_t least = BODIES_IN_MEMORY * config->max_body_bytes;
    uint64_t bytes = config->http_memory_bytes;

    if (bytes == 0) {
        bytes = (means->memory_bytes == UINT64_MAX)
                    ? LEAST_MEMORY
                    : means->memory_bytes / MEMORY_SHARE;
        bytes = (bytes > MOST_MEMORY) ? MOST_MEMORY : bytes;
        bytes = (bytes < LEAST_MEMORY) ? LEAST_MEMORY : bytes;
        bytes = (bytes < least) ? least : bytes;
    }
    if ((bytes < least) || (bytes < config->client_buffer_bytes)) {
        snprintf(
            why, BT_DOOR_WHY_BYTES,
            "--http-memory must be at least %u times --max-body-bytes, and "
            "--client-buffer-bytes: %" PRIu64 " bytes",
            BODIES_IN_MEMORY,
            ((least < config->client_buffer_bytes) ? config->client_buffer_bytes
                                                   : least));
        return BT_ERR_INVALID_PARAM;
    }
    limits->memory_bytes = bytes;
    limits->router_bytes = config->router_memory_bytes;
    if (limits->router_bytes == 0) {
        limits->router_bytes = ROUTER_PARTS * bytes + ROUTER_MEMORY;
        if ((means->memory_bytes != UINT64_MAX) &&
            (means->memory_bytes / 2 > limits->router_bytes)) {
            limits->router_bytes = means->memory_bytes / 2;
        }
    }
    return BT_OK;
}

bt_status_t bt_door_limits_derive(const bt_config_t *config,
                                  const bt_door_means_t *means,
                                  bt_door_limits_t *limits_p,
                                  char why[BT_DOOR_WHY_BYTES])
{
    bt_door_limits_t limits = {0};
    bt_status_t status = set_connections(config, means, &limits, why);

    if (status == BT_OK) {
        status = set_memory(config, means, &limits, why);
    }
    if (status == BT_OK) {
        *limits_p = limits;
    }
    return status;
}

void bt_door_limits_print(const bt_config_t *config,
                          const bt_door_means_t *means,
                          const bt_door_limits_t *limits, bt_strbuf_t *out)
{
    char share[64] = "no limit for one address";

    if (limits->per_client > 0) {
        snprintf(share, sizeof(share), "%u from one address",
                 limits->per_client);
    }
    bt_strbuf_printf(
        out,
        "clients may have %u connections (%s), %u to the gRPC port and %u to "
        "the metrics port, out of %" PRIu64
        " file descriptors; %.0f MiB for requests "
        "(a body: %.1f MiB; a client: half), as much for answers that are "
        "written, and at each of HTTP and gRPC for unread ones (one: %.1f "
        "MiB); over %.0f MiB of the whole router requests are refused",
        limits->connections, share, limits->grpc_connections,
        limits->metrics_connections, means->descriptors,
        (double)limits->memory_bytes / MIB,
        (double)config->max_body_bytes / MIB,
        (double)config->client_buffer_bytes / MIB,
        (double)limits->router_bytes / MIB);
}
