/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/door.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "router/http/door_priv.h"

#define MAX_CONNECTIONS 16384

static bt_status_t listen_at(bt_http_t *http, const char *option,
                             const char *address, char at[])
{
    uint16_t port = 0;
    char host[256];
    bt_status_t status;

    status = bt_config_split_address(address, host, sizeof(host), &port);
    if (status != BT_OK) {
        BT_LOG_ERROR("--%s %s is not ADDR:PORT", option, address);
        return status;
    }
    status = bt_http_listen(http, host, port, &port);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot serve at %s, see above; choose another address "
                     "with --%s",
                     address, option);
        return status;
    }
    snprintf(at, BT_DOOR_ADDRESS_BYTES,
             (strchr(host, ':') != NULL) ? "[%.80s]:%u" : "%.80s:%u", host,
             port);
    return BT_OK;
}

static bt_status_t make_servers(bt_door_t *door, struct event_base *base)
{
    const bt_config_t *config = door->front->config;
    const bt_http_config_t limits = {
        .max_body_bytes = config->max_body_bytes,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .client_buffer_bytes = config->client_buffer_bytes,
        .max_connections = MAX_CONNECTIONS,
    };
    const bt_http_handlers_t main_port = {
        .on_request = bt_door_request,
        .on_gone = bt_door_gone,
        .ctx = door,
        .format_error = bt_door_format_error,
    };
    const bt_http_handlers_t metrics_port = {
        .on_request = bt_door_metrics_request,
        .on_gone = bt_door_gone,
        .ctx = door,
        .format_error = bt_door_format_error,
    };
    bt_status_t status = bt_http_create(base, &limits, &main_port, &door->http);

    if (status == BT_OK) {
        status =
            bt_http_create(base, &limits, &metrics_port, &door->metrics_http);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot make the HTTP server: %s", bt_status_str(status));
    }
    return status;
}

bt_status_t bt_door_open(bt_door_t *door, struct event_base *base,
                         bt_frontend_t *front)
{
    bt_status_t status;

    *door = (bt_door_t){.front = front};
    bt_strbuf_init(&door->out, BT_ANSWER_LIMIT);
    status = make_servers(door, base);
    if (status == BT_OK) {
        status =
            listen_at(door->http, "http", front->config->http, door->http_at);
    }
    if (status == BT_OK) {
        status = listen_at(door->metrics_http, "metrics",
                           front->config->metrics, door->metrics_at);
    }
    return status;
}

void bt_door_stop_listening(bt_door_t *door)
{
    bt_http_stop_listening(door->http);
}

uint32_t bt_door_n_connections(const bt_door_t *door)
{
    return bt_http_n_connections(door->http) +
           bt_http_n_connections(door->metrics_http);
}

void bt_door_close(bt_door_t *door)
{
    bt_http_destroy(door->http);
    bt_http_destroy(door->metrics_http);
    bt_strbuf_fini(&door->out);
    *door = (bt_door_t){0};
}
