/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "router/frontend/router.h"

#define JSON          "application/json"
#define METRICS_TYPE  "text/plain; version=0.0.4; charset=utf-8"
#define SEGMENT_BYTES 256
#define MAX_SEGMENTS  8

/* ---- errors ---- */

static bt_api_dialect_t dialect_of(const char *path)
{
    if ((path != NULL) && (strncmp(path, "/v1/", 4) == 0)) {
        return (strstr(path, "/chat/") != NULL) ? BT_API_CHAT
                                                : BT_API_COMPLETIONS;
    }
    return BT_API_GENERATE;
}

void bt_respond_error(bt_router_t *router, bt_exchange_t *ex,
                      bt_api_dialect_t dialect, const bt_api_error_t *error)
{
    if ((error->http_status == 429) || (error->http_status == 503)) {
        bt_exchange_add_header(ex, "Retry-After", "1");
    }
    bt_strbuf_reset(&router->out);
    bt_api_write_error(dialect, error, &router->out);
    bt_exchange_respond(ex, error->http_status, JSON,
                        (router->out.len > 0) ? router->out.data : "",
                        router->out.len);
}

void bt_routes_format_error(void *router, const char *path, int status,
                            const char *message, bt_strbuf_t *out)
{
    bt_api_error_t error = {0};

    (void)router;
    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     NULL, "%s", message);
    bt_api_write_error(dialect_of(path), &error, out);
}

static void refuse(bt_router_t *router, bt_exchange_t *ex, int status,
                   const char *what)
{
    const char *path = bt_exchange_path(ex);
    bt_api_error_t error = {0};

    bt_api_error_set(&error, status, "invalid_request_error", NULL,
                     "%s: %.200s", what, path);
    bt_respond_error(router, ex, dialect_of(path), &error);
}

static void refuse_method(bt_router_t *router, bt_exchange_t *ex,
                          const char *allowed)
{
    bt_exchange_add_header(ex, "Allow", allowed);
    refuse(router, ex, 405, "this method is not allowed here");
}

static void respond_json(bt_router_t *router, bt_exchange_t *ex)
{
    if (bt_strbuf_status(&router->out) != BT_OK) {
        refuse(router, ex, 503, "out of memory for this answer");
        return;
    }
    bt_exchange_respond(ex, 200, JSON, router->out.data, router->out.len);
}

static bool is_read(const bt_exchange_t *ex)
{
    const bt_http_method_t method = bt_exchange_method(ex);

    return (method == BT_HTTP_GET) || (method == BT_HTTP_HEAD);
}

/* ---- health and metrics ---- */

static bool is_ready(const bt_router_t *router)
{
    return !router->draining && bt_table_ready(bt_core_table(router->core));
}

static void health(bt_router_t *router, bt_exchange_t *ex, bool ok)
{
    if (!is_read(ex)) {
        refuse_method(router, ex, "GET, HEAD");
        return;
    }
    if (!ok) {
        bt_exchange_add_header(ex, "Retry-After", "1");
    }
    bt_exchange_respond(ex, ok ? 200 : 503, JSON, "", 0);
}

static void metrics(bt_router_t *router, bt_exchange_t *ex)
{
    bt_metrics_view_t view = {.model = router->model_metrics};
    bt_metrics_process_t process = {
        .n_connections = bt_http_n_connections(router->http) +
                         bt_http_n_connections(router->metrics_http),
    };
    bool ok;

    if (!is_read(ex)) {
        refuse_method(router, ex, "GET, HEAD");
        return;
    }
    bt_strbuf_reset(&router->out);
    ok = bt_core_view(router->core, &view) == BT_OK;
    if (ok) {
        bt_metrics_process_read(&process);
        bt_router_metrics_render(router->metrics, &view, 1, &process,
                                 &router->out);
        ok = bt_strbuf_status(&router->out) == BT_OK;
        bt_core_view_fini(&view);
    }
    if (!ok) {
        refuse(router, ex, 503, "out of memory for this answer");
        return;
    }
    bt_exchange_respond(ex, 200, METRICS_TYPE, router->out.data,
                        router->out.len);
}

void bt_routes_metrics(void *router_ctx, bt_exchange_t *ex)
{
    bt_router_t *router = router_ctx;
    const char *path = bt_exchange_path(ex);

    if (strcmp(path, "/metrics") == 0) {
        metrics(router, ex);
    } else {
        refuse(router, ex, 404, "there is only /metrics on this port");
    }
}

/* ---- Triton's metadata ---- */

typedef struct tensor {
    const char *name, *type;
} tensor_t;

static void write_tensors(bt_strbuf_t *out, const char *key,
                          const tensor_t *tensors, size_t n)
{
    bt_strbuf_printf(out, "\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        bt_strbuf_printf(
            out, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[1]}",
            (i > 0) ? "," : "", tensors[i].name, tensors[i].type);
    }
    bt_strbuf_puts(out, "]");
}

/* Names are printable and hold no quote: see bt_served_t.name. */
static void model_metadata(bt_router_t *router, bt_exchange_t *ex,
                           const char *model)
{
    static const tensor_t inputs[] = {
        {"text_input", "BYTES"},
        {"max_tokens", "INT32"},
        {"bad_words", "BYTES"},
        {"stop_words", "BYTES"},
        {"temperature", "FP32"},
        {"top_k", "INT32"},
        {"top_p", "FP32"},
        {"random_seed", "UINT64"},
        {"repetition_penalty", "FP32"},
        {"presence_penalty", "FP32"},
        {"frequency_penalty", "FP32"},
        {"min_length", "INT32"},
        {"stream", "BOOL"},
        {"exclude_input_in_output", "BOOL"},
    };
    static const tensor_t outputs[] = {{"text_output", "BYTES"}};
    bt_strbuf_t *out = &router->out;

    bt_strbuf_reset(out);
    bt_strbuf_printf(out,
                     "{\"name\":\"%s\",\"versions\":[\"1\"],"
                     "\"platform\":\"baton\",",
                     model);
    write_tensors(out, "inputs", inputs, BT_ARRAY_LEN(inputs));
    bt_strbuf_puts(out, ",");
    write_tensors(out, "outputs", outputs, BT_ARRAY_LEN(outputs));
    bt_strbuf_puts(out, "}");
    respond_json(router, ex);
}

static void server_metadata(bt_router_t *router, bt_exchange_t *ex)
{
    bt_strbuf_reset(&router->out);
    bt_strbuf_printf(
        &router->out,
        "{\"name\":\"baton\",\"version\":\"%s\",\"extensions\":[\"generate\"]}",
        bt_config_version());
    respond_json(router, ex);
}

/* ---- paths ---- */

typedef struct path {
    char text[1024];
    const char *segments[MAX_SEGMENTS];
    size_t n;
} path_t;

/* @return false for a path that no route can have. */
static bool split_path(const char *path, path_t *p)
{
    char *at = p->text;

    if ((size_t)snprintf(p->text, sizeof(p->text), "%s", path) >=
        sizeof(p->text)) {
        return false;
    }
    p->n = 0;
    while (*at == '/') {
        *at++ = '\0';
        if (*at == '\0') {
            break; /* a slash at the end */
        }
        if (p->n == MAX_SEGMENTS) {
            return false;
        }
        p->segments[p->n++] = at;
        while ((*at != '\0') && (*at != '/')) {
            at++;
        }
    }
    return true;
}

static bool is_segment(const path_t *p, size_t i, const char *text)
{
    return (i < p->n) && (strcmp(p->segments[i], text) == 0);
}

static bool known_model(bt_router_t *router, bt_exchange_t *ex,
                        const char *model)
{
    bt_api_error_t error = {0};

    if (bt_served_is_named(router->served, model)) {
        return true;
    }
    bt_api_error_set(&error, 404, "invalid_request_error", "model",
                     "model '%.200s' is not served here; this is '%s'", model,
                     router->served->name);
    bt_respond_error(router, ex, dialect_of(bt_exchange_path(ex)), &error);
    return false;
}

/* /v2/models/M[/versions/V]/… */
static void route_model(bt_router_t *router, bt_exchange_t *ex, const path_t *p)
{
    const char *model = p->segments[2];
    size_t at = 3;

    if (!known_model(router, ex, model)) {
        return;
    }
    if (is_segment(p, at, "versions")) {
        if (!is_segment(p, at + 1, "1")) {
            refuse(router, ex, 404, "this model has version 1 only");
            return;
        }
        at += 2;
    }
    if ((p->n == at + 1) && (is_segment(p, at, "generate") ||
                             is_segment(p, at, "generate_stream"))) {
        if (bt_exchange_method(ex) != BT_HTTP_POST) {
            refuse_method(router, ex, "POST");
        } else {
            bt_client_call(router, ex, BT_API_GENERATE, model,
                           is_segment(p, at, "generate_stream"));
        }
    } else if ((p->n == at + 1) && is_segment(p, at, "ready")) {
        health(router, ex, is_ready(router));
    } else if (p->n != at) {
        const bool later =
            is_segment(p, at, "infer") || is_segment(p, at, "config") ||
            is_segment(p, at, "stats") || is_segment(p, at, "trace");

        refuse(router, ex, later ? 501 : 404,
               later ? "this route is not served yet" : "no such route");
    } else if (is_read(ex)) {
        model_metadata(router, ex, model);
    } else {
        refuse_method(router, ex, "GET, HEAD");
    }
}

static void route_v2(bt_router_t *router, bt_exchange_t *ex, const path_t *p)
{
    static const char *const later[] = {
        "models",
        "logging",
        "trace",
        "repository",
        "systemsharedmemory",
        "cudasharedmemory",
    };

    if (p->n == 1) {
        if (is_read(ex)) {
            server_metadata(router, ex);
        } else {
            refuse_method(router, ex, "GET, HEAD");
        }
        return;
    }
    if ((p->n == 3) && is_segment(p, 1, "health") &&
        (is_segment(p, 2, "live") || is_segment(p, 2, "ready"))) {
        health(router, ex, is_segment(p, 2, "live") || is_ready(router));
        return;
    }
    if ((p->n >= 3) && is_segment(p, 1, "models") &&
        !is_segment(p, 2, "stats")) {
        route_model(router, ex, p);
        return;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(later); i++) {
        if (is_segment(p, 1, later[i])) {
            refuse(router, ex, 501, "this route is not served yet");
            return;
        }
    }
    refuse(router, ex, 404, "no such route");
}

static void route_models(bt_router_t *router, bt_exchange_t *ex,
                         const path_t *p)
{
    const bt_served_t *served = router->served;

    if (!is_read(ex)) {
        refuse_method(router, ex, "GET, HEAD");
        return;
    }
    if ((p->n == 3) && !known_model(router, ex, p->segments[2])) {
        return;
    }
    bt_strbuf_reset(&router->out);
    bt_api_write_models((p->n == 3) ? p->segments[2] : served->name,
                        served->created, bt_router_context_tokens(router),
                        p->n == 2, &router->out);
    respond_json(router, ex);
}

static void route_v1(bt_router_t *router, bt_exchange_t *ex, const path_t *p)
{
    bt_api_dialect_t dialect = BT_API_COMPLETIONS;

    if (is_segment(p, 1, "models") && (p->n <= 3)) {
        route_models(router, ex, p);
        return;
    }
    if ((p->n == 3) && is_segment(p, 1, "chat") &&
        is_segment(p, 2, "completions")) {
        dialect = BT_API_CHAT;
    } else if ((p->n != 2) || !is_segment(p, 1, "completions")) {
        refuse(router, ex, 404, "no such route");
        return;
    }
    if (bt_exchange_method(ex) != BT_HTTP_POST) {
        refuse_method(router, ex, "POST");
        return;
    }
    bt_client_call(router, ex, dialect, NULL, false);
}

void bt_routes_main(void *router_ctx, bt_exchange_t *ex)
{
    bt_router_t *router = router_ctx;
    path_t p;

    if (!split_path(bt_exchange_path(ex), &p)) {
        refuse(router, ex, 404, "no such route");
    } else if (is_segment(&p, 0, "v2")) {
        route_v2(router, ex, &p);
    } else if (is_segment(&p, 0, "v1")) {
        route_v1(router, ex, &p);
    } else if ((p.n == 1) && is_segment(&p, 0, "health")) {
        health(router, ex, is_ready(router));
    } else if ((p.n == 1) && is_segment(&p, 0, "metrics")) {
        metrics(router, ex);
    } else {
        refuse(router, ex, 404, "no such route");
    }
}
