/* SPDX-License-Identifier: Apache-2.0 */
/** @file request_fixture.h
 *
 * Calls of clients from the route to the last byte, with a written exchange in
 * place of a socket and scripted workers. The tiny model's vocabulary has a
 * token for each byte, so texts are spelled letter by letter. Defines what
 * http.h declares of exchanges: for one test program each.
 */
#ifndef BT_TESTS_UNIT_ROUTER_REQUEST_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_REQUEST_FIXTURE_H

#include "tests/support/testsupport.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/frontend/prepare.h"
#include "router/http/door_priv.h"
#include "tests/support/tiny_model.h"

#define CONTEXT  512
#define MAX_SENT 64

/* ---- the written exchange ---- */

struct bt_exchange {
    bt_http_method_t method;
    const char *path, *body, *request_id;
    size_t body_bytes;                 /* 0: the body is text */
    const char *coding, *accepted;     /* Content-Encoding, Accept-Encoding */
    const char *accept, *host, *known; /* known: If-None-Match */
    const char *api_key;               /* x-api-key */
    const char *agent;                 /* User-Agent */
    const char *content_type;          /* Content-Type */
    const char *json_bytes;            /* Inference-Header-Content-Length */
    void *user;
    int status;
    unsigned n_ends, n_writes;
    uint64_t length;      /* of an answer in pieces */
    bool is_slow;         /* pieces are not sent at once */
    bool is_sending;      /* one of them */
    bool streams, breaks; /* breaks: the next write finds the client gone */
    const char *query, *last_event_id;
    size_t unsent; /* that it has not taken */
    char type[64];
    char headers[1024];
    char out[65536];
    size_t out_bytes;
    bool is_long; /* bytes beyond `out` are counted, not kept */
    bt_door_t *door;
};

bt_http_method_t bt_exchange_method(const bt_exchange_t *ex)
{
    return ex->method;
}

const char *bt_exchange_path(const bt_exchange_t *ex)
{
    return ex->path;
}

const char *bt_exchange_header(const bt_exchange_t *ex, const char *name)
{
    if (strcmp(name, "Content-Encoding") == 0) {
        return ex->coding;
    }
    if (strcmp(name, "Accept-Encoding") == 0) {
        return ex->accepted;
    }
    if (strcmp(name, "Last-Event-ID") == 0) {
        return ex->last_event_id;
    }
    if (strcmp(name, "Accept") == 0) {
        return ex->accept;
    }
    if (strcmp(name, "x-api-key") == 0) {
        return ex->api_key;
    }
    if (strcmp(name, "User-Agent") == 0) {
        return ex->agent;
    }
    if (strcmp(name, "Content-Type") == 0) {
        return ex->content_type;
    }
    if (strcmp(name, "Host") == 0) {
        return ex->host;
    }
    if (strcmp(name, "If-None-Match") == 0) {
        return ex->known;
    }
    if (strcmp(name, "Inference-Header-Content-Length") == 0) {
        return ex->json_bytes;
    }
    return (strcmp(name, "X-Request-Id") == 0) ? ex->request_id : NULL;
}

const char *bt_exchange_query(const bt_exchange_t *ex)
{
    return (ex->query != NULL) ? ex->query : "";
}

size_t bt_exchange_unsent(const bt_exchange_t *ex)
{
    return ex->unsent;
}

void bt_exchange_cut_off(bt_exchange_t *ex)
{
    ex->n_ends++;
    bt_door_gone(ex->door, ex);
}

void bt_exchange_ids(const bt_exchange_t *ex, uint64_t *address_p,
                     uint64_t *connection_p)
{
    (void)ex;
    *address_p = *connection_p = 1;
}

bool bt_exchange_is_of_own_user(const bt_exchange_t *ex)
{
    (void)ex;
    return true;
}

void bt_exchange_client(const bt_exchange_t *ex, char out[BT_HTTP_CLIENT_BYTES])
{
    (void)ex;
    snprintf(out, BT_HTTP_CLIENT_BYTES, "192.0.2.7");
}

static size_t lent_bytes; /* of bodies that were taken */

size_t bt_exchange_take_body(bt_exchange_t *ex, bt_strbuf_t *body_p)
{
    bt_strbuf_init(body_p, 64u << 20);
    body_p->len = (ex->body_bytes > 0) ? ex->body_bytes : strlen(ex->body);
    body_p->cap = body_p->len + 1;
    body_p->data = malloc(body_p->cap); /* not what a test makes fail */
    assert_non_null(body_p->data);
    memcpy(body_p->data, ex->body, body_p->len);
    body_p->data[body_p->len] = '\0';
    lent_bytes += body_p->cap;
    return body_p->cap;
}

void bt_exchange_set_user(bt_exchange_t *ex, void *user)
{
    ex->user = user;
}

void *bt_exchange_user(const bt_exchange_t *ex)
{
    return ex->user;
}

void bt_exchange_add_header(bt_exchange_t *ex, const char *name,
                            const char *value)
{
    const size_t n = strlen(ex->headers);

    snprintf(ex->headers + n, sizeof(ex->headers) - n, "%s: %s\n", name, value);
}

static size_t most_lent = SIZE_MAX; /* there is room for so many */

bool bt_http_hold(bt_http_t *http, size_t bytes)
{
    (void)http;
    if (bytes > most_lent) {
        return false;
    }
    lent_bytes += bytes;
    return true;
}

void bt_http_give_back(bt_http_t *http, size_t bytes)
{
    (void)http;
    assert_true(bytes <= lent_bytes);
    lent_bytes -= bytes;
}

static inline void add_out(bt_exchange_t *ex, const void *data, size_t bytes)
{
    assert_int_equal(ex->n_ends, 0);
    if (ex->is_long) {
        ex->out_bytes += bytes;
        return;
    }
    assert_true(ex->out_bytes + bytes < sizeof(ex->out));
    if (bytes > 0) {
        memcpy(ex->out + ex->out_bytes, data, bytes);
    }
    ex->out_bytes += bytes;
    ex->out[ex->out_bytes] = '\0';
}

void bt_exchange_respond(bt_exchange_t *ex, int status,
                         const char *content_type, const void *body,
                         size_t bytes)
{
    assert_false(ex->streams);
    ex->status = status;
    snprintf(ex->type, sizeof(ex->type), "%s", content_type);
    add_out(ex, body, bytes);
    ex->n_ends++;
}

void bt_exchange_respond_take(bt_exchange_t *ex, int status,
                              const char *content_type, bt_strbuf_t *body)
{
    bt_exchange_respond(ex, status, content_type, body->data, body->len);
    bt_strbuf_fini(body);
}

bool bt_exchange_pieces_begin(bt_exchange_t *ex, const char *content_type,
                              uint64_t bytes)
{
    bt_exchange_stream_begin(ex, content_type);
    ex->length = bytes;
    return true;
}

bt_status_t bt_exchange_send_piece(bt_exchange_t *ex, bt_strbuf_t *piece)
{
    assert_true(ex->streams);
    assert_false(ex->is_sending);
    add_out(ex, piece->data, piece->len);
    bt_strbuf_fini(piece);
    ex->n_writes++;
    if (ex->breaks) {
        ex->n_ends++;
        bt_door_gone(ex->door, ex);
        return BT_ERR_PEER_LOST;
    }
    ex->is_sending = ex->is_slow;
    return ex->is_slow ? BT_INPROGRESS : BT_OK;
}

void bt_exchange_pieces_end(bt_exchange_t *ex, bt_strbuf_t *last)
{
    assert_true(ex->streams);
    if (ex->method != BT_HTTP_HEAD) {
        add_out(ex, last->data, last->len);
    }
    bt_strbuf_fini(last);
    ex->n_ends++;
}

void bt_exchange_stream_begin(bt_exchange_t *ex, const char *content_type)
{
    assert_false(ex->streams);
    ex->streams = true;
    ex->status = 200;
    snprintf(ex->type, sizeof(ex->type), "%s", content_type);
}

bool bt_exchange_stream_write(bt_exchange_t *ex, const void *data, size_t bytes)
{
    assert_true(ex->streams);
    add_out(ex, data, bytes);
    ex->n_writes++;
    if (ex->breaks) {
        ex->n_ends++;
        bt_door_gone(ex->door, ex);
        return false;
    }
    return true;
}

bool bt_exchange_stream_append(bt_exchange_t *ex, const void *data,
                               size_t bytes)
{
    return bt_exchange_stream_write(ex, data, bytes);
}

void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes)
{
    assert_true(ex->streams);
    add_out(ex, data, bytes);
    ex->n_ends++;
}

void bt_door_read_use(const bt_door_t *door, double cells[BT_PC_N])
{
    (void)door;
    cells[BT_PC_CONNECTIONS] = 3;
}

uint32_t bt_door_n_connections(const bt_door_t *door)
{
    (void)door;
    return 3;
}

/* ---- the workers ---- */

typedef struct sent {
    const bt_instance_t *to;
    bt_msg_type_t type;
    bt_req_key_t key;
    uint32_t n_tokens, max_new, n_bad_words, priority;
    uint64_t seed;
    bt_sampling_t sampling;
    bt_bad_word_t bad_words[4];
    bt_hash128_t space, adapter;
    bt_wants_t wants;
    uint32_t n_logit_biases;
    bt_logit_bias_t logit_biases[4];
    uint32_t tokens[64];
    uint32_t grammar_bytes;
    uint8_t grammar[8]; /* the first ones */
} sent_t;

typedef struct world {
    bt_config_t config;
    bt_frontend_t front;
    bt_door_t door;
    bt_served_t *served;
    bt_core_t *core;
    bt_instance_t *p, *d;
    sent_t sent[MAX_SENT];
    uint32_t n_sent;
} world_t;

static world_t world;
static char model_path[256], other_path[256];
static const char *access_path = "";
static const char *shared_memory = "off";
static const char *reasoning = "auto";
static const char *tool_format = "auto";
static const char *api_keys = "";
static const char *lora_option = "";
static const char *tenant_header = "";
static const char *store_path = "";
static uint64_t store_limit = 1u << 20;
static const char *response_dir = "";
static uint64_t response_limit = 0; /* no response is stored */
static const char *template_option = "chatml";
/* On a slow machine any text would go to the pool now and then. */
static uint64_t inline_us = UINT32_MAX;

static inline void w_send(void *ctx, bt_instance_t *worker, const bt_msg_t *msg)
{
    world_t *w = ctx;
    sent_t *s = &w->sent[w->n_sent++];

    assert_true(w->n_sent < MAX_SENT);
    s->to = worker;
    s->type = msg->type;
    if (msg->type == BT_MSG_ADAPTER) {
        s->adapter = msg->u.adapter.adapter;
    }
    if (msg->type == BT_MSG_REQUEST) {
        const bt_msg_request_t *r = &msg->u.request;

        s->key = r->key;
        s->n_tokens = r->n_tokens;
        s->max_new = r->max_new;
        s->priority = r->priority;
        s->space = r->space;
        s->adapter = r->adapter;
        s->wants = r->wants;
        s->sampling = r->sampling;
        s->seed = r->sampling.seed;
        s->grammar_bytes = r->grammar_bytes;
        memcpy(s->grammar, (r->grammar != NULL) ? r->grammar : s->grammar,
               (r->grammar_bytes < 8) ? r->grammar_bytes : 8);
        s->n_bad_words = r->sampling.n_bad_words;
        for (uint32_t i = 0; (i < r->n_tokens) && (i < 64); i++) {
            s->tokens[i] = r->tokens[i];
        }
        s->n_logit_biases = r->sampling.n_logit_biases;
        for (uint32_t i = 0; (i < s->n_logit_biases) && (i < 4); i++) {
            s->logit_biases[i] = r->sampling.logit_biases[i];
        }
        for (uint32_t i = 0; (i < s->n_bad_words) && (i < 4); i++) {
            s->bad_words[i] = r->sampling.bad_words[i];
        }
    }
}

static inline void w_join(world_t *w, const char *name, bt_role_t role,
                          bt_instance_t **worker_p)
{
    bt_msg_hello_t hello = {
        .protocol = BT_WIRE_PROTOCOL,
        .role = (uint32_t)role,
        .instance = (uint64_t)role,
        .model = w->served->identity,
        .tokens_per_block = 16,
        .context_tokens = CONTEXT,
        .max_batch = 4,
        .n_blocks = 100,
        .flags = BT_HELLO_GRAMMARS | BT_HELLO_ADAPTERS,
    };
    char why[BT_TABLE_WHY_BYTES];

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, NULL, bt_now_us(), why, worker_p),
        BT_OK);
}

static inline void start(world_t *w, bool with_workers)
{
    memset(w, 0, sizeof(*w));
    w->config.models[0] =
        (bt_config_model_t){.name = "tiny", .path = model_path};
    w->config.n_models = 1;
    w->config.served_model_name = "";
    w->config.chat_template = template_option;
    w->config.trace_file = "";
    w->config.otlp_traces_endpoint = "";
    w->config.access_log = access_path;
    w->config.allow_weight_updates = "";
    w->config.lora = lora_option;
    w->config.admin_without_keys = "own-user";
    w->config.log_format = "text";
    w->config.log_level = "info";
    w->config.name = "";
    w->config.launcher = "";
    w->config.model_repository = "";
    w->config.batching_strategy = "inflight_fused_batching";
    w->config.shared_memory = shared_memory;
    w->config.unknown_fields = "warn";
    w->config.out_of_vocabulary_ids = "refuse";
    w->config.override_generation_config = "";
    w->config.reasoning_parser = reasoning;
    w->config.tool_call_parser = tool_format;
    w->config.cors_origins = "";
    w->config.api_keys = api_keys;
    w->config.tenant_header = tenant_header;
    w->config.store = store_path;
    w->config.store_key = "";
    w->config.munge_socket = "";
    w->config.store_limit_bytes = store_limit;
    w->config.store_ttl_s = 2592000;
    w->config.response_store_dir = response_dir;
    w->config.response_store_limit_bytes = response_limit;
    w->config.response_store_ttl_s = 86400;
    w->config.vertex_health_route = "";
    w->config.vertex_predict_route = "";
    w->config.max_concurrent_requests = 8;
    w->config.prefill_order = "fcfs";
    w->config.model_targets = "";
    w->config.scheduler_policy = "guaranteed_no_evict";
    w->config.max_logits_bytes = 65536;
    w->config.client_buffer_bytes = 65536;
    w->config.worker_wait_ms = 1000;
    w->config.request_timeout_ms = 60000;
    w->config.max_body_bytes = 1u << 20;
    w->config.max_event_streams = 2;
    assert_int_equal(bt_frontend_open(&w->front, &w->config,
                                      &bt_request_frontend_ops, w_send, w),
                     BT_OK);
    w->front.inline_us = inline_us;
    w->door.front = &w->front;
    bt_strbuf_init(&w->door.out, BT_ANSWER_LIMIT);
    bt_scrape_init(&w->door.scrape, &w->door);
    bt_cluster_page_init(&w->door.cluster, &w->door);
    bt_watchers_init(&w->door.watchers, &w->door);
    bt_list_init(&w->door.streams);
    w->door.inline_bytes = BT_ANSWER_INLINE_BYTES;
    w->served = bt_registry_find(&w->front.models, NULL);
    w->core = w->served->core;
    if (with_workers) {
        w_join(w, "prefill-0", BT_ROLE_PREFILL, &w->p);
        w_join(w, "decode-0", BT_ROLE_DECODE, &w->d);
        w->n_sent = 0;
    }
}

static inline void stop(world_t *w)
{
    bt_pool_stop(w->front.pool);
    bt_pooled_page_fini(&w->door.scrape.page);
    bt_pooled_page_fini(&w->door.cluster.page);
    bt_watchers_fini(&w->door.watchers);
    bt_strbuf_fini(&w->door.out);
    bt_frontend_close(&w->front);
    assert_int_equal(lent_bytes, 0);
}

/* The n-th REQUEST to the decode worker; without one of that number, to the
 * prefill worker: of one token no other hears. */
static const sent_t *request(const world_t *w, uint32_t n)
{
    const bt_instance_t *both[] = {w->d, w->p};

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t left = n;

        for (uint32_t i = 0; i < w->n_sent; i++) {
            if ((w->sent[i].to == both[k]) &&
                (w->sent[i].type == BT_MSG_REQUEST) && (left-- == 0)) {
                return &w->sent[i];
            }
        }
    }
    fail_msg("no such request");
    return NULL;
}

static inline unsigned count(const world_t *w, bt_msg_type_t type)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        n += (w->sent[i].type == type) ? 1 : 0;
    }
    return n;
}

/* GPT-2's byte alphabet begins with '!'. */
static inline uint32_t id_of(char c)
{
    return 3 + (uint32_t)(c - '!');
}

/* A request's prompt, "@" before special tokens. */
static inline void text_of(const world_t *w, const sent_t *s, char out[256])
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_tokens; i++) {
        bool is_special = false;
        size_t bytes = 0;
        const uint8_t *text =
            bt_token_bytes(w->served->tok, s->tokens[i], &bytes, &is_special);

        n += (size_t)snprintf(out + n, 256 - n, "%s%.*s", is_special ? "@" : "",
                              (int)bytes, (const char *)text);
    }
}

/* Log-prob of token @a index of an answer: -1/8, -2/8 …, and twice as much
 * of '!' and so on. */
static inline bt_score_t score_of(uint32_t index, uint32_t n_top)
{
    bt_score_t score = {.logprob = -(double)(index + 1) / 8, .n_top = n_top};

    for (uint32_t k = 0; k < n_top; k++) {
        score.top_ids[k] = 3 + k;
        score.top_logprobs[k] = -(double)(index + 1) / 16 - k;
    }
    return score;
}

static inline void tokens(world_t *w, bt_instance_t *from, uint32_t n,
                          uint32_t index, const char *text, bt_finish_t finish)
{
    const bt_wants_t wants = request(w, n)->wants;
    bt_token_score_t scores[128];
    bt_token_t list[128];
    bt_msg_t msg = {.type = BT_MSG_TOKENS};

    msg.u.tokens.n = (uint32_t)strlen(text);
    msg.u.tokens.tokens = list;
    for (uint32_t i = 0; i < msg.u.tokens.n; i++) {
        list[i].key = request(w, n)->key;
        list[i].index = index + i;
        list[i].id = id_of(text[i]);
        list[i].finish =
            (uint32_t)((i + 1 == msg.u.tokens.n) ? finish : BT_FINISH_NONE);
        scores[i].token = i;
        scores[i].score = score_of(index + i, wants.n_top);
    }
    if ((wants.what & BT_WANT_LOGPROBS) != 0) {
        msg.u.tokens.n_scores = msg.u.tokens.n;
        msg.u.tokens.scores = scores;
    }
    assert_int_equal(bt_core_message(w->core, from, &msg, bt_now_us()), BT_OK);
}

static inline void ended(world_t *w, uint32_t n)
{
    const bt_msg_t msg = {.type = BT_MSG_ENDED,
                          .u.ended = {.key = request(w, n)->key}};

    assert_int_equal(bt_core_message(w->core, w->p, &msg, bt_now_us()), BT_OK);
    assert_int_equal(bt_core_message(w->core, w->d, &msg, bt_now_us()), BT_OK);
}

/* The whole answer to the n-th request, from both workers. */
static inline void answer(world_t *w, uint32_t n, const char *text,
                          bt_finish_t finish)
{
    char first[2] = {text[0], '\0'};

    tokens(w, w->p, n, 0, first, BT_FINISH_NONE);
    tokens(w, w->d, n, 1, text + 1, finish);
    ended(w, n);
}

static inline void send_to(world_t *w, bt_exchange_t *ex,
                           bt_http_method_t method, const char *path,
                           const char *body)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = method;
    ex->path = path;
    ex->body = body;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static inline void post(world_t *w, bt_exchange_t *ex, const char *path,
                        const char *body)
{
    send_to(w, ex, BT_HTTP_POST, path, body);
}

static inline void has(const bt_exchange_t *ex, const char *part)
{
    if (strstr(ex->out, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, ex->out);
    }
}

static inline double metric(world_t *w, const char *series)
{
    bt_metrics_view_t view = {.model = w->served->metrics};
    const bt_metrics_process_t process = {.cells = {[BT_PC_CONNECTIONS] = 1}};
    bt_strbuf_t out;
    bt_metrics_snapshot_t *snapshot;
    double value = -1;
    const char *at;

    bt_strbuf_init(&out, 1u << 20);
    assert_int_equal(bt_core_view(w->core, &view), BT_OK);
    assert_int_equal(
        bt_metrics_snapshot_create(w->front.metrics, &view, 1, &snapshot),
        BT_OK);
    bt_core_view_fini(&view);
    bt_metrics_snapshot_render(snapshot, &process, &out);
    bt_metrics_snapshot_destroy(snapshot);
    at = strstr(out.data, series);
    if (at != NULL) {
        value = strtod(at + strlen(series), NULL);
    }
    bt_strbuf_fini(&out);
    return value;
}

/* Runs what the pool still has to do. */
static inline void drain_pool(world_t *w)
{
    while (bt_pool_n_jobs(w->front.pool) > 0) {
        struct pollfd p = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

        /* One wake-up may stand for several that are done. */
        if (!bt_pool_next(w->front.pool)) {
            assert_int_equal(poll(&p, 1, 60000), 1);
        }
    }
}

#define GENERATE    "/v2/models/ensemble/generate"
#define STREAM      "/v2/models/ensemble/generate_stream"
#define COMPLETIONS "/v1/completions"
#define CHAT        "/v1/chat/completions"

static inline void refused(world_t *w, const char *path, const char *body,
                           int status, const char *part)
{
    bt_exchange_t ex;
    const uint32_t before = w->n_sent;

    post(w, &ex, path, body);
    if (ex.status != status) {
        fail_msg("%s %s: %d %s", path, body, ex.status, ex.out);
    }
    assert_int_equal(ex.n_ends, 1);
    assert_string_equal(ex.type, "application/json");
    has(&ex, "\"error\":");
    has(&ex, part);
    assert_int_equal(w->n_sent, before);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
}

static inline void get(world_t *w, bt_exchange_t *ex, const char *path)
{
    send_to(w, ex, BT_HTTP_GET, path, "");
}

static inline int make_file(char path[256], uint64_t seed)
{
    bt_tiny_model_t shape = bt_tiny_model_default();
    int fd;

    shape.seed = seed;
    snprintf(path, 256, "/tmp/baton-test-call-XXXXXX");
    fd = mkstemp(path);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&shape, path) == BT_OK) ? 0 : -1;
}

static inline int make_models(void **state)
{
    (void)state;
    return (make_file(model_path, 1) == 0) ? make_file(other_path, 2) : -1;
}

static inline int remove_models(void **state)
{
    (void)state;
    return unlink(model_path) | unlink(other_path);
}

#endif
