/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/door.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "router/http/cors.h"
#include "router/http/door_limits.h"
#include "router/http/door_priv.h"

#define LINE_BYTES 1024
/* Bodies for the metrics port are small; pages are sent through it. */
#define METRICS_BODY_BYTES   (UINT64_C(64) * 1024)
#define METRICS_MEMORY_BYTES (UINT64_C(64) << 20)

static bt_status_t find_limits(const bt_config_t *config,
                               bt_door_limits_t *limits)
{
    char why[BT_DOOR_WHY_BYTES];
    bt_door_means_t means;
    bt_strbuf_t line;
    bt_status_t status;

    bt_door_means_read(&means);
    status = bt_door_limits_derive(config, &means, limits, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("%s", why);
        return status;
    }
    bt_strbuf_init(&line, LINE_BYTES);
    bt_door_limits_print(config, &means, limits, &line);
    BT_LOG_INFO("%s", (line.len > 0) ? line.data : "");
    bt_strbuf_fini(&line);
    return BT_OK;
}

static const char *cors_origins(const void *door)
{
    return ((const bt_door_t *)door)->front->config->cors_origins;
}

/* Listed where all pages are. */
#define ANY_PAGE "null"

/* @param [in] origins pages that may use this port, besides the server's own */
static const char *check_names(const bt_hosts_t *hosts, const char *origins,
                               const bt_http1_head_t *head)
{
    const char *const host = bt_http1_find(head, "Host");
    const char *why = bt_hosts_check(hosts, host);

    if ((why == NULL) && (bt_http1_find(head, "Origin") == NULL) &&
        !bt_cors_allows(origins, ANY_PAGE)) {
        return bt_hosts_check_fetch(hosts,
                                    bt_http1_find(head, "Sec-Fetch-Site"),
                                    bt_http1_find(head, "Sec-Fetch-Dest"));
    }
    for (uint32_t i = 0; (why == NULL) && (i < head->n_headers); i++) {
        const char *const origin = head->headers[i].value;

        if ((strcasecmp(head->headers[i].name, "Origin") == 0) &&
            !bt_cors_allows(origins, origin)) {
            why = bt_hosts_check_origin(hosts, origin, host);
        }
    }
    return why;
}

static const char *check_head(void *door, const bt_http1_head_t *head)
{
    return check_names(&((const bt_door_t *)door)->hosts, cors_origins(door),
                       head);
}

/* Web pages may not use the metrics port. */
static const char *check_metrics_head(void *door, const bt_http1_head_t *head)
{
    return check_names(&((const bt_door_t *)door)->hosts, "", head);
}

static void add_cors_headers(void *door, const bt_http1_head_t *head,
                             bt_strbuf_t *out)
{
    bt_cors_add_headers(cors_origins(door), head, out);
}

static bool preflight(void *door, const bt_http1_head_t *head, bt_strbuf_t *out)
{
    return bt_cors_preflight(cors_origins(door), head, out);
}

bt_status_t bt_door_check_names(const bt_config_t *config)
{
    char origin[BT_CORS_ORIGIN_BYTES];
    char name[BT_HOSTS_NAME_BYTES];
    bt_status_t status = BT_OK;

    if (!bt_cors_are_valid(config->cors_origins, origin)) {
        BT_LOG_ERROR(
            "--cors-origins: \"%s\" is not an origin, such as https://example.org or http://localhost:3000 without a path, nor *",
            origin);
        status = BT_ERR_INVALID_PARAM;
    }
    if (!bt_hosts_are_valid(config->allowed_hosts, name)) {
        BT_LOG_ERROR("--allowed-hosts: \"%s\" is neither a name, nor an "
                     "address, nor *.NAME, nor *",
                     name);
        status = BT_ERR_INVALID_PARAM;
    }
    return status;
}

/* Sets the names that clients may use, whatever the listening address: a
 * request with another name, on a private network, may come from a web page as
 * well. */
static bt_status_t find_names(bt_door_t *door)
{
    const bt_config_t *config = door->front->config;
    const char *const bound[] = {config->http, config->metrics, config->grpc};
    const bt_status_t status = bt_door_check_names(config);
    char name[BT_HOSTS_NAME_BYTES];
    uint16_t port;

    if (status != BT_OK) {
        return status;
    }
    bt_hosts_init(&door->hosts, config->allowed_hosts);
    for (size_t i = 0; i < BT_ARRAY_LEN(bound); i++) {
        /* Invalid addresses are reported by bt_net_listen_at(). */
        if (bt_config_split_address(bound[i], name, sizeof(name), &port) ==
            BT_OK) {
            bt_hosts_add_own(&door->hosts, name);
        }
    }
    return BT_OK;
}

/* Returns a variable of Vertex AI, if it started this process; else NULL. */
static const char *vertex_variable(const char *name)
{
    const char *mode = getenv("AIP_MODE");

    return ((mode != NULL) && (strcmp(mode, "PREDICTION") == 0)) ? getenv(name)
                                                                 : NULL;
}

/* Finds a path from the option, else from Vertex AI's variable. @return false:
 * it is invalid */
static bool find_path(const char *option, const char *variable,
                      char path[BT_DOOR_PATH_BYTES])
{
    const char *given = vertex_variable(variable);
    const char *text =
        ((option[0] != '\0') || (given == NULL)) ? option : given;

    snprintf(path, BT_DOOR_PATH_BYTES, "%s", text);
    return (text[0] == '\0') ||
           ((text[0] == '/') && (strlen(text) < BT_DOOR_PATH_BYTES));
}

static bt_status_t find_vertex(bt_door_t *door)
{
    const bt_config_t *config = door->front->config;

    if (!find_path(config->vertex_health_route, "AIP_HEALTH_ROUTE",
                   door->vertex_health) ||
        !find_path(config->vertex_predict_route, "AIP_PREDICT_ROUTE",
                   door->vertex_predict)) {
        BT_LOG_ERROR("--vertex-health-route, --vertex-predict-route (or "
                     "AIP_HEALTH_ROUTE, AIP_PREDICT_ROUTE): a path begins with "
                     "/ and is shorter than %d bytes",
                     BT_DOOR_PATH_BYTES);
        return BT_ERR_INVALID_PARAM;
    }
    if ((door->vertex_predict[0] != '\0') &&
        (getenv("AIP_STORAGE_URI") != NULL)) {
        BT_LOG_INFO("AIP_STORAGE_URI: cloud stores are not read; --model names "
                    "the model");
    }
    return BT_OK;
}

/* Listens where Vertex AI connects, usually from outside of this machine: all
 * of HTTP is served there, too, unless that port is open already. */
static bt_status_t listen_for_vertex(bt_door_t *door)
{
    const char *text = vertex_variable("AIP_HTTP_PORT");
    const char *own = strrchr(door->http_at, ':');
    char address[32], at[BT_NET_ADDRESS_BYTES];
    bt_status_t status;

    if ((text == NULL) || (text[0] == '\0') ||
        ((own != NULL) && (strcmp(own + 1, text) == 0))) {
        return BT_OK;
    }
    if (!door->front->config->insecure &&
        !bt_tenants_are_keyed(&door->front->tenants)) {
        BT_LOG_ERROR(
            "Vertex AI's port %.16s (AIP_HTTP_PORT) is beyond loopback, where clients need no key: add --api-keys FILE, or --insecure to let every client that reaches it use it",
            text);
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(address, sizeof(address), "0.0.0.0:%.16s", text);
    status = bt_net_listen_at(bt_http_net(door->http), "http (AIP_HTTP_PORT)",
                              address, at);
    if (status == BT_OK) {
        BT_LOG_INFO("Vertex AI: HTTP is served at %s, too (AIP_HTTP_PORT)", at);
    }
    return status;
}

static void flush(bt_turn_work_t *work)
{
    bt_net_flush(bt_http_net(BT_CONTAINER_OF(work, bt_door_t, flush)->http));
}

static void on_gather(void *ctx)
{
    bt_door_t *door = ctx;

    bt_turn_put_off(&door->front->turn, &door->flush, bt_now_us());
}

static bt_status_t make_servers(bt_door_t *door, struct event_base *base,
                                const bt_door_limits_t *limits, bt_tls_t *tls)
{
    const bt_config_t *config = door->front->config;
    const bt_http_config_t main_config = {
        .max_body_bytes = config->max_body_bytes,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .client_buffer_bytes = config->client_buffer_bytes,
        .max_connections = limits->connections,
        .max_per_client = limits->per_client,
        .memory_bytes = limits->memory_bytes,
        .budget = &door->front->requests,
        .shares_ports = config->reuse_http_port,
        .tls = tls,
    };
    bt_http_config_t metrics_config = main_config;
    const bt_http_handlers_t main_port = {
        .on_request = bt_door_request,
        .on_gone = bt_door_gone,
        .on_sent = bt_door_sent,
        .ctx = door,
        .on_turn = bt_door_turn,
        .on_gather = on_gather,
        .check_head = check_head,
        .admit = bt_door_admit,
        .add_headers = add_cors_headers,
        .preflight = preflight,
        .format_error = bt_door_format_error,
    };
    const bt_http_handlers_t metrics_port = {
        .on_request = bt_door_metrics_request,
        .on_gone = bt_door_gone,
        .ctx = door,
        .on_turn = bt_door_turn,
        .check_head = check_metrics_head,
        .format_error = bt_door_format_error,
    };
    bt_status_t status;

    metrics_config.max_body_bytes = METRICS_BODY_BYTES;
    metrics_config.budget = NULL;
    metrics_config.memory_bytes = METRICS_MEMORY_BYTES;
    metrics_config.max_connections = limits->metrics_connections;
    metrics_config.max_per_client = 0;
    metrics_config.shares_ports = false;
    metrics_config.tls = NULL; /* scrapers have no certificate */
    status = bt_http_create(base, &main_config, &main_port, &door->http);
    if (status == BT_OK) {
        status = bt_http_create(base, &metrics_config, &metrics_port,
                                &door->metrics_http);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the HTTP server: %s",
                     bt_status_str(status));
    }
    return status;
}

bt_status_t bt_door_open(bt_door_t *door, struct event_base *base,
                         bt_frontend_t *front, bt_tls_t *tls)
{
    bt_status_t status;

    *door = (bt_door_t){
        .front = front, .base = base, .inline_bytes = BT_ANSWER_INLINE_BYTES};
    bt_strbuf_init(&door->out, BT_ANSWER_LIMIT);
    bt_turn_work_init(&door->flush, flush);
    bt_scrape_init(&door->scrape, door);
    bt_cluster_page_init(&door->cluster, door);
    bt_watchers_init(&door->watchers, door);
    bt_list_init(&door->streams);
    if ((status = find_names(door)) != BT_OK ||
        (status = find_vertex(door)) != BT_OK ||
        (status = find_limits(front->config, &door->limits)) != BT_OK) {
        return status;
    }
    bt_frontend_limit_memory(front, door->limits.memory_bytes,
                             door->limits.router_bytes);
    if ((status = make_servers(door, base, &door->limits, tls)) != BT_OK ||
        (status = bt_net_listen_at(bt_http_net(door->http), "http",
                                   front->config->http, door->http_at)) !=
            BT_OK ||
        (status = listen_for_vertex(door)) != BT_OK) {
        return status;
    }
    if ((front->store != NULL) &&
        ((status = bt_batches_create(front, &door->batches)) != BT_OK)) {
        return status;
    }
    return bt_net_listen_at(bt_http_net(door->metrics_http), "metrics",
                            front->config->metrics, door->metrics_at);
}

void bt_door_tick(bt_door_t *door, uint64_t now_us)
{
    bt_watchers_tick(&door->watchers, now_us);
    bt_door_keep_alive(door, now_us);
    if (door->batches != NULL) {
        bt_batches_tick(door->batches, now_us);
    }
}

void bt_door_stop_listening(bt_door_t *door)
{
    bt_net_stop_listening(bt_http_net(door->http));
}

uint32_t bt_door_n_connections(const bt_door_t *door)
{
    return bt_net_n_connections(bt_http_net(door->http)) +
           bt_net_n_connections(bt_http_net(door->metrics_http));
}

static void add_use(double *cells, const bt_net_use_t *use)
{
    cells[BT_PC_REQUEST_BYTES] += (double)use->request_bytes;
    cells[BT_PC_ANSWER_BYTES] += (double)use->answer_bytes;
    cells[BT_PC_QUIET_CLOSED] += (double)use->n_quiet_closed;
    cells[BT_PC_TURNED_AWAY] += (double)use->n_turned_away;
    cells[BT_PC_BODIES_REFUSED] += (double)use->n_bodies_refused;
    cells[BT_PC_READERS_CUT] += (double)use->n_readers_cut;
}

_Static_assert(BT_PC_STORE_KINDS_END - BT_PC_STORE_FILES == BT_STORE_N_KINDS,
               "baton_store_objects has a series for each kind of objects");

/* Without a store its families are left out. */
static void add_store_use(const bt_door_t *door, double *cells)
{
    bt_store_use_t use;

    if (door->batches == NULL) {
        for (int i = BT_PC_STORE_BYTES; i < BT_PC_BATCH_LINES_END; i++) {
            cells[i] = NAN;
        }
        return;
    }
    use = bt_store_use(door->front->store);
    cells[BT_PC_STORE_BYTES] = (double)use.bytes;
    cells[BT_PC_STORE_LIMIT] = (double)use.limit_bytes;
    for (int i = 0; i < BT_STORE_N_KINDS; i++) {
        cells[BT_PC_STORE_FILES + i] = use.n_objects[i];
    }
    bt_batches_count(door->batches, cells);
}

/* Responses have a store of their own, in memory without --store. */
static void add_response_use(const bt_store_t *responses, double *cells)
{
    bt_store_use_t use;

    if (responses == NULL) {
        cells[BT_PC_STORE_RESPONSES] = NAN;
        cells[BT_PC_RESPONSE_STORE_BYTES] = NAN;
        cells[BT_PC_RESPONSE_STORE_LIMIT] = NAN;
        cells[BT_PC_RESPONSE_STORE_EVICTED] = NAN;
        return;
    }
    use = bt_store_use(responses);
    cells[BT_PC_STORE_RESPONSES] = use.n_objects[BT_STORE_RESPONSE];
    cells[BT_PC_RESPONSE_STORE_BYTES] = (double)use.bytes;
    cells[BT_PC_RESPONSE_STORE_LIMIT] = (double)use.limit_bytes;
    cells[BT_PC_RESPONSE_STORE_EVICTED] = (double)use.n_evicted;
}

void bt_door_read_use(const bt_door_t *door, double cells[BT_PC_N])
{
    const bt_frontend_t *front = door->front;
    bt_net_use_t use;

    for (int i = 0; i < BT_BUDGET_N_REFUSALS; i++) {
        cells[BT_PC_MEMORY_REFUSED + i] =
            (double)(front->requests.n_refused[i] +
                     front->answers.n_refused[i]);
    }
    cells[BT_PC_WORK_BYTES] = (double)front->requests.used;
    cells[BT_PC_WRITING_BYTES] = (double)front->answers.used;
    cells[BT_PC_JOBS] = bt_pool_n_jobs(front->pool);
    cells[BT_PC_JOBS_INSIDE] = (double)bt_pool_n_inside(front->pool);
    cells[BT_PC_CANCELED_QUEUED] = (double)bt_pool_canceled(front->pool).queued;
    cells[BT_PC_CANCELED_RUNNING] =
        (double)bt_pool_canceled(front->pool).running;
    cells[BT_PC_CONNECTIONS] = bt_door_n_connections(door);
    add_store_use(door, cells);
    add_response_use(front->responses, cells);
    bt_net_use(bt_http_net(door->http), &use);
    add_use(cells, &use);
    bt_net_use(bt_http_net(door->metrics_http), &use);
    add_use(cells, &use);
    if (door->other != NULL) {
        cells[BT_PC_CONNECTIONS] += bt_net_n_connections(door->other);
        bt_net_use(door->other, &use);
        add_use(cells, &use);
    }
    /* One budget for all ports, but for the metrics port's small part. */
    cells[BT_PC_WORK_BYTES] -=
        (cells[BT_PC_WORK_BYTES] > cells[BT_PC_REQUEST_BYTES])
            ? cells[BT_PC_REQUEST_BYTES]
            : cells[BT_PC_WORK_BYTES];
}

void bt_door_close(bt_door_t *door)
{
    bt_batches_destroy(door->batches);
    bt_http_destroy(door->http);
    if (door->flush.run != NULL) {
        bt_turn_forget(&door->flush);
    }
    bt_http_destroy(door->metrics_http);
    bt_pooled_page_fini(&door->scrape.page);
    bt_pooled_page_fini(&door->cluster.page);
    bt_watchers_fini(&door->watchers);
    bt_strbuf_fini(&door->out);
    *door = (bt_door_t){0};
}
