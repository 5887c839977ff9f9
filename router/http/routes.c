/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of the HTTP port: one line of a table for each. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/frontend/served_adapters.h"
#include "router/http/routes_priv.h"

#define MAX_SEGMENTS     8
#define BT_DEFAULT_MODEL "ensemble"

/* A path, cut at its slashes. */
typedef struct path {
    char text[1024];
    const char *segments[MAX_SEGMENTS];
    size_t n;
    const char *model, *version, *name; /* segments in braces, or NULL */
} path_t;

typedef enum methods {
    READ,
    POST,
    READ_OR_POST,
    READ_OR_DELETE,
    DELETE,
    N_METHODS
} methods_t;

typedef struct route {
    const char *pattern; /* segments in braces match anything */
    methods_t methods;
    bt_route_t *handle;
    bt_access_kind_t access;
} route_t;

/* ---- errors ---- */

bt_api_dialect_t bt_door_dialect_of(const char *path)
{
    static const struct {
        const char *path;
        bt_api_dialect_t dialect;
    } own[] = {{"/tokenize", BT_API_TOKENIZE},
               {"/detokenize", BT_API_DETOKENIZE},
               {"/v1/responses", BT_API_RESPONSES},
               {"/v1/messages", BT_API_ANTHROPIC},
               {"/v1/messages/count_tokens", BT_API_ANTHROPIC_COUNT},
               {"/v1/responses/input_tokens", BT_API_RESPONSES},
               {"/inference/v1/generate", BT_API_GENERATE_TOKENS},
               {"/api/generate", BT_API_OLLAMA_GENERATE},
               /* OpenAI's, of clients whose base URL lacks /v1. */
               {"/chat/completions", BT_API_COMPLETIONS},
               {"/completions", BT_API_COMPLETIONS},
               {"/responses", BT_API_COMPLETIONS},
               {"/embeddings", BT_API_COMPLETIONS},
               {"/models", BT_API_COMPLETIONS}};

    if (path == NULL) {
        return BT_API_GENERATE;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(own); i++) {
        if (strcmp(path, own[i].path) == 0) {
            return own[i].dialect;
        }
    }
    if (strncmp(path, "/api/", 5) == 0) {
        return BT_API_OLLAMA_CHAT;
    }
    if (strncmp(path, "/v1/", 4) == 0) {
        return (strstr(path, "/chat/") != NULL) ? BT_API_CHAT
                                                : BT_API_COMPLETIONS;
    }
    return BT_API_GENERATE;
}

void bt_http_request_refuse(bt_http_request_t *r, int status, const char *what)
{
    const char *path = bt_exchange_path(r->ex);
    bt_http_request_error(r, status, NULL, "%s: %.200s", what, path);
}

static void refuse_model(bt_http_request_t *r)
{
    bt_api_error_t error = {0};

    bt_registry_refuse(&r->door->front->models, r->base.model, &error);
    bt_http_request_fail(r, &error);
}

void bt_http_request_begin_json(bt_http_request_t *r, bt_json_t *json)
{
    bt_strbuf_reset(&r->door->out);
    bt_json_init(json, &r->door->out);
}

void bt_http_request_respond_json(bt_http_request_t *r)
{
    const bt_strbuf_t *out = &r->door->out;

    if (bt_strbuf_status(out) != BT_OK) {
        bt_http_request_refuse(r, 503, "out of memory for this answer");
        return;
    }
    bt_http_request_respond(r, 200, BT_JSON_TYPE, out->data, out->len);
}

/* ---- health and metrics ---- */

static void respond_health(bt_http_request_t *r, bool ok)
{
    if (!ok) {
        bt_exchange_add_header(r->ex, "Retry-After", "1");
    }
    bt_http_request_respond(r, ok ? 200 : 503, BT_JSON_TYPE, "", 0);
}

static void server_live(bt_http_request_t *r)
{
    respond_health(r, true);
}

/* Load balancers poll this; shutdown waits for them. */
static void server_ready(bt_http_request_t *r)
{
    r->door->front->ready_asked_ms = bt_now_ms();
    respond_health(r, bt_frontend_ready(r->door->front));
}

static void model_ready(bt_http_request_t *r)
{
    r->door->front->ready_asked_ms = bt_now_ms();
    respond_health(r, !r->door->front->leaving && bt_served_ready(r->served));
}

static void metrics(bt_http_request_t *r)
{
    bt_pooled_page_ask(&r->door->scrape.page, r);
}

/* vLLM's and Ollama's. */
static void version(bt_http_request_t *r)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "version", bt_config_version());
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

/* ---- OpenAI's models ---- */

static bt_api_model_t api_model(const bt_served_t *served, const char *name)
{
    return (bt_api_model_t){
        .name = name,
        .created = served->created,
        .context_tokens = bt_served_context_tokens(served),
        .chat_template =
            (served->chat != NULL) ? bt_chat_template_name(served->chat) : NULL,
        .sampling = served->sampling,
    };
}

/* An adapter is a model whose parent is the one that it adapts. */
static bt_api_model_t api_entry(const bt_served_entry_t *entry)
{
    bt_api_model_t model =
        api_model(entry->served, bt_served_entry_name(entry));

    if (entry->adapter != NULL) {
        model.created = entry->adapter->created;
        model.root = entry->adapter->path;
        model.parent = entry->served->name;
    }
    return model;
}

static void list_models(bt_http_request_t *r)
{
    bt_served_entry_t *list = NULL;
    bt_api_model_t *models = NULL;
    size_t n_entries = 0, n = 0;
    bt_status_t status = bt_served_list(&r->door->front->models, r->base.tenant,
                                        &list, &n_entries);

    if (status == BT_OK) {
        models = bt_calloc(n_entries + 1, sizeof(*models));
    }
    if (models == NULL) {
        bt_free(list);
        bt_http_request_refuse(r, 503, "out of memory for this answer");
        return;
    }
    for (size_t i = 0; i < n_entries; i++) {
        if (!list[i].served->unloaded) {
            models[n++] = api_entry(&list[i]);
        }
    }
    bt_strbuf_reset(&r->door->out);
    bt_api_write_models(models, n, &r->door->out);
    bt_free(models);
    bt_free(list);
    bt_http_request_respond_json(r);
}

static void one_model(bt_http_request_t *r)
{
    bt_served_entry_t entry = {.served = r->served};
    bt_api_model_t model;

    (void)bt_served_find(&r->door->front->models, r->base.model, r->base.tenant,
                         false, &entry);
    model = (entry.adapter != NULL) ? api_entry(&entry)
                                    : api_model(r->served, r->base.model);
    bt_strbuf_reset(&r->door->out);
    bt_api_write_model(&model, &r->door->out);
    bt_http_request_respond_json(r);
}

/* vLLM's; of the default model, as the path names none. */
static void tokenizer_info(bt_http_request_t *r)
{
    const bt_served_t *served =
        bt_registry_find(&r->door->front->models, BT_DEFAULT_MODEL);

    if (served == NULL) {
        bt_http_request_refuse(r, 404, "no model is served");
        return;
    }
    bt_strbuf_reset(&r->door->out);
    bt_served_write_tokenizer(served, &r->door->out);
    bt_http_request_respond_json(r);
}

/* ---- calls ---- */

static void generate(bt_http_request_t *r)
{
    bt_http_request_generate(r, false);
}

static void generate_stream(bt_http_request_t *r)
{
    if (!bt_describe_is_decoupled(r->door->front, r->base.model)) {
        bt_http_request_refuse(r, 400,
                               "Streaming is only supported if model is "
                               "deployed using decoupled mode");
        return;
    }
    bt_http_request_generate(r, true);
}

/* OpenAI's: a response that is not generated. */
static void count_input(bt_http_request_t *r)
{
    r->base.counts_only = true;
    bt_http_request_generate(r, false);
}

/* SageMaker's and Vertex AI's: a request to infer for the default model. */
static void invocations(bt_http_request_t *r)
{
    r->base.model = BT_DEFAULT_MODEL;
    bt_http_request_infer(r);
}

/* ---- the table ---- */

#define BY_KEY        BT_ACCESS_BY_KEY
#define ANYBODY       BT_ACCESS_ANYBODY
#define CONTROL       BT_ACCESS_CONTROL
#define ADMIN         BT_ACCESS_ADMIN
#define INSIDE        BT_ACCESS_INSIDE
#define MODEL         "/v2/models/{model}"
#define MODEL_VERSION MODEL "/versions/{version}"
#define SHARED_MEMORY(at, status, add, remove)               \
    {at "/status", READ, status, BY_KEY},                    \
        {at "/unregister", POST, remove, BY_KEY},            \
        {at "/region/{name}/status", READ, status, BY_KEY},  \
        {at "/region/{name}/register", POST, add, BY_KEY},   \
    {                                                        \
        at "/region/{name}/unregister", POST, remove, BY_KEY \
    }

static const route_t main_routes[] = {
    {"/", READ, bt_route_welcome, ANYBODY}, /* what it shows requires a key */
    {"/page/{name}", READ, bt_route_page, ANYBODY},
    {"/v2", READ, bt_route_server, BY_KEY},
    {"/v2/health/live", READ, server_live, ANYBODY},
    {"/v2/health/ready", READ, server_ready, ANYBODY},
    {"/v2/models/stats", READ, bt_route_all_stats, BY_KEY},
    {MODEL, READ, bt_route_model, BY_KEY},
    {MODEL "/ready", READ, model_ready, BY_KEY},
    {MODEL "/generate", POST, generate, BY_KEY},
    {MODEL "/generate_stream", POST, generate_stream, BY_KEY},
    {MODEL "/infer", POST, bt_http_request_infer, BY_KEY},
    {MODEL "/config", READ, bt_route_config, BY_KEY},
    {MODEL "/stats", READ, bt_route_stats, BY_KEY},
    {MODEL "/trace/setting", READ_OR_POST, bt_route_trace, CONTROL},
    {MODEL_VERSION, READ, bt_route_model, BY_KEY},
    {MODEL_VERSION "/ready", READ, model_ready, BY_KEY},
    {MODEL_VERSION "/generate", POST, generate, BY_KEY},
    {MODEL_VERSION "/generate_stream", POST, generate_stream, BY_KEY},
    {MODEL_VERSION "/infer", POST, bt_http_request_infer, BY_KEY},
    {MODEL_VERSION "/config", READ, bt_route_config, BY_KEY},
    {MODEL_VERSION "/stats", READ, bt_route_stats, BY_KEY},
    {MODEL_VERSION "/trace/setting", READ_OR_POST, bt_route_trace, CONTROL},
    {"/v2/logging", READ_OR_POST, bt_route_log, CONTROL},
    {"/v2/trace/setting", READ_OR_POST, bt_route_trace, CONTROL},
    {"/v2/repository/index", POST, bt_route_index, BY_KEY},
    {"/v2/repository/models/{name}/load", POST, bt_route_load, CONTROL},
    {"/v2/repository/models/{name}/unload", POST, bt_route_unload, CONTROL},
    {"/v2/cluster", READ, bt_route_watch, ADMIN},
    {"/v2/cluster/events", READ, bt_route_watch_events, ADMIN},
    {"/v2/cluster/workers/{name}", POST, bt_route_worker, ADMIN},
    {"/pause", POST, bt_route_pause, ADMIN},
    {"/resume", POST, bt_route_resume, ADMIN},
    {"/is_paused", READ, bt_route_is_paused, ADMIN},
    {"/sleep", POST, bt_route_sleep, ADMIN},
    {"/wake_up", POST, bt_route_wake_up, ADMIN},
    {"/is_sleeping", READ, bt_route_is_sleeping, ADMIN},
    {"/reset_prefix_cache", POST, bt_route_reset_prefix_cache, ADMIN},
    {"/update_weights_from_disk", POST, bt_route_update_weights, ADMIN},
    {"/v1/load_lora_adapter", POST, bt_route_load_adapter, ADMIN},
    {"/v1/unload_lora_adapter", POST, bt_route_unload_adapter, ADMIN},
    {"/get_weight_version", READ, bt_route_weight_version, BY_KEY},
    {"/v2/cluster/requests", READ, bt_route_watch_requests, ADMIN},
    {"/v2/cluster/requests/{name}", READ, bt_route_watch_request, ADMIN},
    SHARED_MEMORY("/v2/systemsharedmemory", bt_route_memory_status,
                  bt_route_memory_register, bt_route_memory_unregister),
    SHARED_MEMORY("/v2/cudasharedmemory", bt_route_cuda_status,
                  bt_route_cuda_register, bt_route_cuda_unregister),
    {"/ping", READ, server_ready, ANYBODY},
    {"/invocations", POST, invocations, BY_KEY},
    {"/v1/completions", POST, generate, BY_KEY},
    {"/v1/chat/completions", POST, generate, BY_KEY},
    {"/v1/responses", POST, generate, BY_KEY},
    {"/v1/responses/input_tokens", POST, count_input, BY_KEY},
    {"/v1/responses/{name}", READ_OR_DELETE, bt_route_response, BY_KEY},
    {"/v1/responses/{name}/input_items", READ, bt_route_response_items, BY_KEY},
    {"/v1/responses/{name}/cancel", POST, bt_route_response_cancel, BY_KEY},
    {"/v1/files", READ_OR_POST, bt_route_files, BY_KEY},
    {"/v1/files/{name}", READ_OR_DELETE, bt_route_file, BY_KEY},
    {"/v1/files/{name}/content", READ, bt_route_file_content, BY_KEY},
    {"/v1/messages", POST, generate, BY_KEY},
    {"/v1/messages/count_tokens", POST, generate, BY_KEY},
    {"/v1/batches", READ_OR_POST, bt_route_batches, BY_KEY},
    {"/v1/batches/{name}", READ, bt_route_batch, BY_KEY},
    {"/v1/batches/{name}/cancel", POST, bt_route_batch_cancel, BY_KEY},
    {"/api/chat", POST, generate, BY_KEY},
    {"/api/generate", POST, generate, BY_KEY},
    {"/api/tags", READ, bt_route_ollama_tags, BY_KEY},
    {"/api/ps", READ, bt_route_ollama_ps, BY_KEY},
    {"/api/show", POST, bt_route_ollama_show, BY_KEY},
    {"/api/version", READ, version, BY_KEY},
    {"/api/pull", POST, bt_route_ollama_refuse, BY_KEY},
    {"/api/push", POST, bt_route_ollama_refuse, BY_KEY},
    {"/api/create", POST, bt_route_ollama_refuse, BY_KEY},
    {"/api/copy", POST, bt_route_ollama_refuse, BY_KEY},
    {"/api/delete", DELETE, bt_route_ollama_refuse, BY_KEY},
    {"/api/blobs/{name}", READ_OR_POST, bt_route_ollama_refuse, BY_KEY},
    {"/api/embed", POST, bt_route_ollama_embed, BY_KEY},
    {"/api/embeddings", POST, bt_route_ollama_embed, BY_KEY},
    {"/v1/models", READ, list_models, BY_KEY},
    {"/v1/models/{model}", READ, one_model, BY_KEY},
    {"/inference/v1/generate", POST, generate, BY_KEY},
    {"/openapi.json", READ, bt_route_openapi, BY_KEY},
    {"/tokenize", POST, generate, BY_KEY},
    {"/detokenize", POST, generate, BY_KEY},
    {"/tokenizer_info", READ, tokenizer_info, BY_KEY},
    {"/health", READ, server_ready, ANYBODY},
    {"/version", READ, version, BY_KEY},
    /* Clients behind a proxy on this machine are on loopback, too. */
    {"/metrics", READ, metrics, ADMIN},
};

static const route_t metrics_routes[] = {
    {"/metrics", READ, metrics, INSIDE},
};

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

/* Matches a path with a pattern, and stores its {model}, {version} and
 * {name}. */
static bool matches(path_t *p, const char *pattern)
{
    const char *at = pattern;

    p->model = NULL;
    p->version = NULL;
    p->name = NULL;
    if ((p->n == 0) || (strcmp(pattern, "/") == 0)) {
        /* "/" alone; "*" has no segments either, "//" has an empty one. */
        return (p->n == 0) && (p->text[0] == '\0') && (pattern[1] == '\0');
    }
    for (size_t i = 0; i < p->n; i++) {
        const char *segment = p->segments[i];
        const char *end;
        size_t n;

        if (*at != '/') {
            return false; /* the path goes on */
        }
        at++;
        end = strchr(at, '/');
        n = (end != NULL) ? (size_t)(end - at) : strlen(at);
        if (at[0] != '{') {
            if ((strncmp(at, segment, n) != 0) || (segment[n] != '\0')) {
                return false;
            }
        } else if (strncmp(at, "{model}", n) == 0) {
            p->model = segment;
        } else if (strncmp(at, "{version}", n) == 0) {
            p->version = segment;
        } else if (strncmp(at, "{name}", n) == 0) {
            p->name = segment;
        }
        at += n;
    }
    return *at == '\0';
}

/* Methods of a route: those of http.h as bits, and as Allow lists them. */
#define BIT(method) (1u << BT_HTTP_##method)
#define READS       (BIT(GET) | BIT(HEAD))

static const struct {
    uint32_t bits;
    const char *allow;
} allowed[N_METHODS] = {
    [READ] = {READS, "GET, HEAD"},
    [POST] = {BIT(POST), "POST"},
    [READ_OR_POST] = {READS | BIT(POST), "GET, HEAD, POST"},
    [READ_OR_DELETE] = {READS | BIT(DELETE), "GET, HEAD, DELETE"},
    [DELETE] = {BIT(DELETE), "DELETE"},
};

static void follow(bt_http_request_t *r, const route_t *route)
{
    const uint32_t method = 1u << bt_exchange_method(r->ex);
    const bool changes = (method & READS) == 0;
    bt_served_entry_t entry;

    if (!bt_http_request_admit(r, route->access, changes)) {
        return;
    }
    if (r->base.model != NULL) {
        if (!bt_served_find(&r->door->front->models, r->base.model,
                            r->base.tenant, false, &entry)) {
            refuse_model(r);
            return;
        }
        r->served = entry.served;
    }
    if ((r->base.version != NULL) &&
        (strcmp(r->base.version, r->served->version) != 0)) {
        bt_http_request_refuse(
            r, 404, "this model has version " BT_SERVED_VERSION " only");
        return;
    }
    if ((allowed[route->methods].bits & method) == 0) {
        bt_exchange_add_header(r->ex, "Allow", allowed[route->methods].allow);
        bt_http_request_refuse(r, 405, "this method is not allowed here");
        return;
    }
    route->handle(r);
}

/* @param text the path; the exchange's, or the one it is forwarded to */
static void find_route(bt_door_t *door, bt_exchange_t *ex, const char *text,
                       const route_t *routes, size_t n, const char *otherwise)
{
    const route_t *route = NULL;
    bt_http_request_t *r;
    path_t path;

    if (split_path(text, &path)) {
        for (size_t i = 0; (i < n) && (route == NULL); i++) {
            if (matches(&path, routes[i].pattern)) {
                route = &routes[i];
            }
        }
    }
    r = bt_http_request_begin(door, ex,
                              (route != NULL) ? route->pattern : "none",
                              bt_door_dialect_of(text));
    if (r == NULL) {
        return;
    }
    if (route == NULL) {
        bt_http_request_refuse(r, 404, otherwise);
    } else if (!bt_arena_strdup(&r->base.arena, path.model, &r->base.model) ||
               !bt_arena_strdup(&r->base.arena, path.version,
                                &r->base.version) ||
               !bt_arena_strdup(&r->base.arena, path.name, &r->name)) {
        bt_http_request_fail_for_memory(r);
    } else {
        follow(r, route);
    }
}

/* Vertex AI uses two paths of its own; a header may forward a prediction to any
 * of the server's paths. */
static const char *send_on(const bt_door_t *door, bt_exchange_t *ex,
                           char to[BT_DOOR_PATH_BYTES])
{
    const char *path = bt_exchange_path(ex);
    const char *redirect;

    if ((door->vertex_health[0] != '\0') &&
        (strcmp(path, door->vertex_health) == 0)) {
        return "/ping";
    }
    if ((door->vertex_predict[0] == '\0') ||
        (strcmp(path, door->vertex_predict) != 0)) {
        return path;
    }
    redirect = bt_exchange_header(ex, "X-Vertex-Ai-Triton-Redirect");
    if (redirect == NULL) {
        return "/invocations";
    }
    if ((size_t)snprintf(to, BT_DOOR_PATH_BYTES, "%s%s",
                         (redirect[0] == '/') ? "" : "/",
                         redirect) >= BT_DOOR_PATH_BYTES) {
        return "";
    }
    return to;
}

void bt_door_request(void *ctx, bt_exchange_t *ex)
{
    bt_door_t *door = ctx;
    char to[BT_DOOR_PATH_BYTES];

    find_route(door, ex, send_on(door, ex, to), main_routes,
               BT_ARRAY_LEN(main_routes), "no such route");
}

void bt_door_metrics_request(void *ctx, bt_exchange_t *ex)
{
    find_route(ctx, ex, bt_exchange_path(ex), metrics_routes,
               BT_ARRAY_LEN(metrics_routes),
               "there is only /metrics on this port");
}
