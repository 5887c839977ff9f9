/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/http/http_priv.h"

static size_t write_refusal(void *ctx, bt_net_refusal_t refusal, char out[])
{
    static const struct {
        const char *status, *why;
        bool later;
    } words[] = {
        [BT_NET_FULL] = {"503 Service Unavailable",
                         "the server has no connection left", true},
        [BT_NET_OVER_SHARE] = {"429 Too Many Requests",
                               "too many connections from this client's "
                               "address",
                               true},
        [BT_NET_NEEDS_TLS] = {"400 Bad Request",
                              "this port speaks TLS: use https://", false},
    };
    const char *const why = words[refusal].why;
    int n;

    (void)ctx;
    n = snprintf(out, BT_NET_REFUSAL_BYTES,
                 "HTTP/1.1 %s\r\n"
                 "Content-Type: application/json\r\n"
                 "Content-Length: %zu\r\n"
                 "%s"
                 "Connection: close\r\n"
                 "\r\n"
                 "{\"error\":\"%s\"}",
                 words[refusal].status,
                 strlen("{\"error\":\"\"}") + strlen(why),
                 words[refusal].later ? "Retry-After: 1\r\n" : "", why);
    return (size_t)n;
}

bt_status_t bt_http_create(struct event_base *base,
                           const bt_http_config_t *config,
                           const bt_http_handlers_t *handlers,
                           bt_http_t **http_p)
{
    const bt_net_config_t net_config = {
        .max_connections = config->max_connections,
        .max_per_client = config->max_per_client,
        .shares_ports = config->shares_ports,
        .memory_bytes = config->memory_bytes,
        .budget = config->budget,
        .tls = config->tls,
        .protocol = "http/1.1",
    };
    bt_net_handlers_t net_handlers = {
        .on_stream = bt_http_on_stream,
        .write_refusal = write_refusal,
        .on_turn = handlers->on_turn,
        .on_gather = handlers->on_gather,
        .turn_ctx = handlers->ctx,
    };
    bt_http_t *http;

    if ((config->max_body_bytes == 0) || (config->header_timeout_ms == 0) ||
        (config->max_body_bytes > SIZE_MAX / 4) ||
        (config->memory_bytes / 2 < config->max_body_bytes) ||
        (config->body_timeout_ms == 0) || (config->idle_timeout_ms == 0) ||
        (config->client_buffer_bytes == 0) || (config->max_connections == 0) ||
        (handlers->on_request == NULL) || (handlers->on_gone == NULL)) {
        return BT_ERR_INVALID_PARAM;
    }
    http = bt_calloc(1, sizeof(*http));
    if (http == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    http->config = *config;
    http->handlers = *handlers;
    net_handlers.ctx = http;
    if (bt_net_create(base, &net_config, &net_handlers, &http->net) != BT_OK) {
        bt_free(http);
        return BT_ERR_NO_MEMORY;
    }
    *http_p = http;
    return BT_OK;
}

void bt_http_destroy(bt_http_t *http)
{
    if (http == NULL) {
        return;
    }
    bt_net_destroy(http->net);
    bt_free(http);
}

bt_net_t *bt_http_net(bt_http_t *http)
{
    return http->net;
}
