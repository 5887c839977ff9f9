/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of clients from the route to the last byte, with a written exchange in
 * place of a socket and scripted workers. The tiny model's vocabulary has a
 * token for each byte, so texts are spelled letter by letter. */
#include "tests/support/testsupport.h"

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
    const char *path, *body;
    void *user;
    int status;
    unsigned n_ends, n_writes;
    bool streams, breaks; /* breaks: the next write finds the client gone */
    char type[64];
    char headers[256];
    char out[32768];
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
    (void)ex;
    (void)name;
    return NULL;
}

const void *bt_exchange_body(const bt_exchange_t *ex, size_t *bytes_p)
{
    *bytes_p = strlen(ex->body);
    return ex->body;
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

static void add_out(bt_exchange_t *ex, const void *data, size_t bytes)
{
    assert_int_equal(ex->n_ends, 0);
    assert_true(strlen(ex->out) + bytes < sizeof(ex->out));
    strncat(ex->out, data, bytes);
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

void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes)
{
    assert_true(ex->streams);
    add_out(ex, data, bytes);
    ex->n_ends++;
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
    uint32_t n_tokens, max_new, n_bad_words;
    uint64_t seed;
    bt_sampling_t sampling;
    bt_bad_word_t bad_words[4];
    uint32_t tokens[64];
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

static void w_send(void *ctx, bt_instance_t *worker, const bt_msg_t *msg)
{
    world_t *w = ctx;
    sent_t *s = &w->sent[w->n_sent++];

    assert_true(w->n_sent < MAX_SENT);
    s->to = worker;
    s->type = msg->type;
    if (msg->type == BT_MSG_REQUEST) {
        const bt_msg_request_t *r = &msg->u.request;

        s->key = r->key;
        s->n_tokens = r->n_tokens;
        s->max_new = r->max_new;
        s->sampling = r->sampling;
        s->seed = r->sampling.seed;
        s->n_bad_words = r->sampling.n_bad_words;
        for (uint32_t i = 0; (i < r->n_tokens) && (i < 64); i++) {
            s->tokens[i] = r->tokens[i];
        }
        for (uint32_t i = 0; (i < s->n_bad_words) && (i < 4); i++) {
            s->bad_words[i] = r->sampling.bad_words[i];
        }
    }
}

static void w_join(world_t *w, const char *name, bt_role_t role,
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
    };
    char why[BT_TABLE_WHY_BYTES];

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, NULL, bt_now_us(), why, worker_p),
        BT_OK);
}

static void start(world_t *w, bool with_workers)
{
    memset(w, 0, sizeof(*w));
    w->config.models[0] =
        (bt_config_model_t){.name = "tiny", .path = model_path};
    w->config.n_models = 1;
    w->config.model_name = "";
    w->config.chat_template = "chatml";
    w->config.trace = "";
    w->config.name = "";
    w->config.max_queue = 8;
    w->config.worker_wait_ms = 1000;
    w->config.request_timeout_ms = 60000;
    assert_int_equal(bt_frontend_open(&w->front, &w->config, w_send, w), BT_OK);
    w->door.front = &w->front;
    bt_strbuf_init(&w->door.out, BT_ANSWER_LIMIT);
    w->served = bt_registry_find(&w->front.models, NULL);
    w->core = w->served->core;
    if (with_workers) {
        w_join(w, "prefill-0", BT_ROLE_PREFILL, &w->p);
        w_join(w, "decode-0", BT_ROLE_DECODE, &w->d);
        w->n_sent = 0;
    }
}

static void stop(world_t *w)
{
    bt_strbuf_fini(&w->door.out);
    bt_frontend_close(&w->front);
}

/* The n-th REQUEST to the decode worker. */
static const sent_t *request(const world_t *w, uint32_t n)
{
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if ((w->sent[i].to == w->d) && (w->sent[i].type == BT_MSG_REQUEST) &&
            (n-- == 0)) {
            return &w->sent[i];
        }
    }
    fail_msg("no such request");
    return NULL;
}

static unsigned count(const world_t *w, bt_msg_type_t type)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        n += (w->sent[i].type == type) ? 1 : 0;
    }
    return n;
}

/* GPT-2's byte alphabet begins with '!'. */
static uint32_t id_of(char c)
{
    return 3 + (uint32_t)(c - '!');
}

static void tokens(world_t *w, bt_instance_t *from, uint32_t n, uint32_t index,
                   const char *text, bt_finish_t finish)
{
    bt_token_t list[64];
    bt_msg_t msg = {.type = BT_MSG_TOKENS};

    msg.u.tokens.n = (uint32_t)strlen(text);
    msg.u.tokens.tokens = list;
    for (uint32_t i = 0; i < msg.u.tokens.n; i++) {
        list[i].key = request(w, n)->key;
        list[i].index = index + i;
        list[i].id = id_of(text[i]);
        list[i].finish =
            (uint32_t)((i + 1 == msg.u.tokens.n) ? finish : BT_FINISH_NONE);
    }
    assert_int_equal(bt_core_message(w->core, from, &msg, bt_now_us()), BT_OK);
}

static void ended(world_t *w, uint32_t n)
{
    const bt_msg_t msg = {.type = BT_MSG_ENDED,
                          .u.ended = {.key = request(w, n)->key}};

    assert_int_equal(bt_core_message(w->core, w->p, &msg, bt_now_us()), BT_OK);
    assert_int_equal(bt_core_message(w->core, w->d, &msg, bt_now_us()), BT_OK);
}

/* The whole answer to the n-th request, from both workers. */
static void answer(world_t *w, uint32_t n, const char *text, bt_finish_t finish)
{
    char first[2] = {text[0], '\0'};

    tokens(w, w->p, n, 0, first, BT_FINISH_NONE);
    tokens(w, w->d, n, 1, text + 1, finish);
    ended(w, n);
}

static void send_to(world_t *w, bt_exchange_t *ex, bt_http_method_t method,
                    const char *path, const char *body)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = method;
    ex->path = path;
    ex->body = body;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static void post(world_t *w, bt_exchange_t *ex, const char *path,
                 const char *body)
{
    send_to(w, ex, BT_HTTP_POST, path, body);
}

static void has(const bt_exchange_t *ex, const char *part)
{
    if (strstr(ex->out, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, ex->out);
    }
}

static double metric(world_t *w, const char *series)
{
    bt_metrics_view_t view = {.model = w->served->metrics};
    const bt_metrics_process_t process = {.n_connections = 1};
    bt_strbuf_t out;
    double value = -1;
    const char *at;

    bt_strbuf_init(&out, 1u << 20);
    assert_int_equal(bt_core_view(w->core, &view), BT_OK);
    bt_router_metrics_render(w->front.metrics, &view, 1, &process, &out);
    bt_core_view_fini(&view);
    at = strstr(out.data, series);
    if (at != NULL) {
        value = strtod(at + strlen(series), NULL);
    }
    bt_strbuf_fini(&out);
    return value;
}

/* ---- tests ---- */

#define GENERATE    "/v2/models/ensemble/generate"
#define STREAM      "/v2/models/ensemble/generate_stream"
#define COMPLETIONS "/v1/completions"
#define CHAT        "/v1/chat/completions"

static void a_generate_call_is_answered_whole(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, GENERATE, "{\"text_input\":\"Hi\",\"stream\":true}");
    assert_int_equal(request(w, 0)->n_tokens, 2);
    assert_int_equal(request(w, 0)->tokens[0], id_of('H'));
    assert_int_equal(request(w, 0)->tokens[1], id_of('i'));
    assert_int_equal(request(w, 0)->max_new, BT_DEFAULT_MAX_TOKENS);
    assert_int_equal(request(w, 0)->sampling.n_end_ids > 0, 1);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    assert_int_equal(ex.n_ends, 1);
    assert_string_equal(ex.type, "application/json");
    has(&ex, "\"model_name\":\"ensemble\"");
    has(&ex, "\"text_output\":\"yes\"");
    assert_int_equal(bt_core_n_legs(w->core), 0);
    assert_true(metric(w, "nv_inference_request_success{model=\"tensorrt_llm\""
                          ",version=\"1\"} ") == 1);
    assert_true(metric(w, "response_metric_type=\"total_output_tokens\","
                          "version=\"1\",le=\"10\"} ") == 1);

    /* With the prompt in front, where the client asks for it. */
    post(w, &ex, "/v2/models/tensorrt_llm_bls/versions/1/generate",
         "{\"text_input\":\"Hi\",\"exclude_input_in_output\":false,"
         "\"max_tokens\":3}");
    assert_int_equal(request(w, 1)->max_new, 3);
    answer(w, 1, "yes", BT_FINISH_LENGTH);
    has(&ex, "\"model_name\":\"tensorrt_llm_bls\"");
    has(&ex, "\"text_output\":\"Hiyes\"");
    stop(w);
}

static void a_generate_stream_has_one_event_per_piece_and_no_done(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, STREAM,
         "{\"text_input\":\"Hi\",\"max_tokens\":9,\"stop_words\":\"END\"}");
    assert_int_equal(ex.status, 0); /* nothing before the first text */
    answer(w, 0, "abENcEND", BT_FINISH_NONE);
    assert_string_equal(ex.type, "text/event-stream; charset=utf-8");
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "\"text_output\":\"a\"");
    has(&ex, "\"text_output\":\"ENc\"");
    assert_null(strstr(ex.out, "END"));
    assert_null(strstr(ex.out, "[DONE]"));
    assert_int_equal(ex.n_writes, 3); /* a, b, ENc: nothing for the stop */
    stop(w);
}

static void an_openai_stream_ends_with_usage_and_done_in_one_write(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":\"Hi\",\"max_tokens\":3,\"stream\":true,"
         "\"stream_options\":{\"include_usage\":true}}");
    answer(w, 0, "abc", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_writes, 3);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "\"finish_reason\":\"length\"");
    has(&ex, "\"completion_tokens\":3");
    has(&ex, "\"choices\":[]");
    has(&ex, "data: [DONE]\n\n");

    post(w, &ex, CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
         "\"stream\":true}");
    /* Without max_tokens: what fits, here less than 1024. */
    assert_int_equal(request(w, 1)->max_new, CONTEXT - request(w, 1)->n_tokens);
    answer(w, 1, "okX", BT_FINISH_STOP);
    has(&ex, "\"role\":\"assistant\"");
    has(&ex, "\"finish_reason\":\"stop\"");
    assert_null(strstr(ex.out, "X"));
    stop(w);
}

static void
prompts_times_n_are_separate_choices_with_seeds_of_their_own(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{\"prompt\":[\"A\",\"BB\"],\"n\":2,\"max_tokens\":2,\"seed\":100}");
    assert_int_equal(count(w, BT_MSG_REQUEST), 8); /* 4 at each worker */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(request(w, i)->seed, 100 + i);
        assert_int_equal(request(w, i)->n_tokens, (i < 2) ? 1 : 2);
    }
    answer(w, 3, "33", BT_FINISH_LENGTH);
    answer(w, 0, "00", BT_FINISH_LENGTH);
    answer(w, 2, "22", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 0);
    answer(w, 1, "11", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"index\":0,\"text\":\"00\"");
    has(&ex, "{\"index\":1,\"text\":\"11\"");
    has(&ex, "{\"index\":2,\"text\":\"22\"");
    has(&ex, "{\"index\":3,\"text\":\"33\"");
    has(&ex, "\"prompt_tokens\":3,\"completion_tokens\":8");
    stop(w);
}

static void bad_words_are_banned_with_and_without_a_space(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    const sent_t *s;

    (void)state;
    start(w, true);
    post(w, &ex, GENERATE,
         "{\"text_input\":\"Hi\",\"bad_words\":[\"Q\",\" Z\",\"Q\"]}");
    s = request(w, 0);
    assert_int_equal(s->n_bad_words, 3); /* "Q", " Q", " Z" */
    assert_int_equal(s->bad_words[0].n, 1);
    assert_int_equal(s->bad_words[0].ids[0], id_of('Q'));
    assert_int_equal(s->bad_words[1].ids[s->bad_words[1].n - 1], id_of('Q'));
    assert_int_not_equal(s->bad_words[1].ids[0], id_of('Q'));
    assert_int_equal(s->bad_words[2].ids[s->bad_words[2].n - 1], id_of('Z'));
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    stop(w);
}

static void refused(world_t *w, const char *path, const char *body, int status,
                    const char *part)
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

static void what_cannot_be_served_is_refused_with_its_numbers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    refused(w, "/v2/models/nope/generate", "{\"text_input\":\"x\"}", 404,
            "model 'nope' is not served here; this is 'tiny'");
    refused(w, COMPLETIONS, "{\"prompt\":\"x\",\"model\":\"gpt-5\"}", 404,
            "'gpt-5'");
    refused(w, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":510}", 400,
            "the prompt's 3 tokens and max_tokens 510 are together 513 tokens, "
            "more than the context of 512 tokens");
    w->d->hello.n_blocks = 4; /* of 16 tokens */
    refused(w, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":62}", 400,
            "are together 65 tokens, more than the context of 64 tokens (the "
            "model has 512; the workers' kv-memory");
    send_to(w, &ex, BT_HTTP_GET, "/v1/models", "");
    has(&ex, "\"max_model_len\":64}");
    w->d->hello.n_blocks = 100;
    refused(w, COMPLETIONS, "{\"prompt\":[1,2,999999]}", 400,
            "token id 999999");
    refused(w, COMPLETIONS, "{\"prompt\":\"x\",\"n\":64,\"max_tokens\":1}", 429,
            "limit is 8");
    refused(w, GENERATE, "{\"text_input\":\"\"}", 400, "empty");
    refused(w, GENERATE, "nonsense", 400, "JSON");
    refused(w, "/v2/models/ensemble/infer", "{}", 501, "not served yet");
    refused(w, "/v2/models/ensemble/versions/2/generate", "{}", 404,
            "version 1 only");
    refused(w, "/v2/repository/index", "", 501, "not served yet");
    refused(w, "/v1/embeddings", "{}", 404, "no such route");
    refused(w, "/tokenize", "{}", 404, "no such route");
    refused(w, "/a/b/c/d/e/f/g/h/i/j", "{}", 404, "no such route");
    send_to(w, &ex, BT_HTTP_GET, GENERATE, "");
    assert_int_equal(ex.status, 405);
    assert_string_equal(ex.headers, "Allow: POST\n");

    w->served->chat = NULL;
    refused(w, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            400, "--chat-template");
    w->front.draining = true;
    refused(w, COMPLETIONS, "{\"prompt\":\"x\"}", 503, "stopping");
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"x\"}");
    assert_string_equal(ex.headers, "Retry-After: 1\n");
    stop(w);
}

static void a_client_that_leaves_cancels_all_its_choices(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"x\",\"n\":2,\"stream\":true}");
    tokens(w, w->p, 0, 0, "a", BT_FINISH_NONE);
    assert_int_equal(ex.n_writes, 1);
    bt_door_gone(&w->door, &ex);
    assert_int_equal(count(w, BT_MSG_CANCEL), 4);
    tokens(w, w->p, 1, 0, "a", BT_FINISH_NONE); /* under way */
    assert_int_equal(ex.n_writes, 1);
    ended(w, 0);
    ended(w, 1);
    assert_int_equal(bt_core_n_legs(w->core), 0);

    /* The write itself finds that nobody reads any more. */
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"x\",\"n\":2,\"stream\":true}");
    ex.breaks = true;
    tokens(w, w->p, 2, 0, "a", BT_FINISH_NONE);
    assert_int_equal(count(w, BT_MSG_CANCEL), 8);
    ended(w, 2);
    ended(w, 3);
    assert_int_equal(bt_core_n_legs(w->core), 0);
    assert_true(metric(w, "nv_inference_request_failure{model=\"tensorrt_llm\""
                          ",version=\"1\"} ") == 4);
    stop(w);
}

static void an_error_after_the_first_event_is_an_event(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, STREAM, "{\"text_input\":\"Hi\"}");
    tokens(w, w->p, 0, 0, "a", BT_FINISH_NONE);
    bt_core_end_all(w->core, "the server is stopping", bt_now_us());
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"text_output\":\"a\"");
    has(&ex, "the server is stopping");
    ended(w, 0);

    /* Before it, it is the status; the other choices are given up. */
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"x\",\"n\":3,\"max_tokens\":1}");
    tokens(w, w->p, 1, 0, "a", BT_FINISH_LENGTH);
    bt_core_end_all(w->core, "the server is stopping", bt_now_us());
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 503);
    assert_string_equal(ex.headers, "Retry-After: 1\n");
    has(&ex, "the server is stopping");
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    for (uint32_t i = 1; i < 4; i++) {
        ended(w, i);
    }
    assert_int_equal(bt_core_n_legs(w->core), 0);
    stop(w);
}

static void get(world_t *w, bt_exchange_t *ex, const char *path)
{
    send_to(w, ex, BT_HTTP_GET, path, "");
}

static void health_tells_whether_a_pair_is_up(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, false);
    get(w, &ex, "/v2/health/live");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 503);
    get(w, &ex, "/health");
    assert_int_equal(ex.status, 503);
    get(w, &ex, "/v2/models/ensemble/ready");
    assert_int_equal(ex.status, 503);
    w_join(w, "prefill-0", BT_ROLE_PREFILL, &w->p);
    w_join(w, "decode-0", BT_ROLE_DECODE, &w->d);
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v2/models/ensemble/ready");
    assert_int_equal(ex.status, 200);
    w->d->state = BT_INSTANCE_SUSPECT;
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 503);
    w->d->state = BT_INSTANCE_UP;
    w->front.draining = true;
    get(w, &ex, "/health");
    assert_int_equal(ex.status, 503);
    get(w, &ex, "/v2/health/live");
    assert_int_equal(ex.status, 200);

    get(w, &ex, "/v1/models");
    has(&ex, "\"id\":\"tiny\"");
    get(w, &ex, "/v1/models/tiny");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v1/models/other");
    assert_int_equal(ex.status, 404);
    get(w, &ex, "/v2");
    has(&ex, "\"name\":\"baton\"");
    get(w, &ex, "/v2/models/ensemble");
    has(&ex, "{\"name\":\"text_input\",\"datatype\":\"BYTES\"");
    get(w, &ex, "/metrics");
    assert_int_equal(ex.status, 200);
    stop(w);
}

static void join_model(world_t *w, bt_served_t *served, const char *name,
                       bt_role_t role, bt_instance_t **worker_p)
{
    bt_served_t *const first = w->served;

    w->served = served;
    w->core = served->core;
    w_join(w, name, role, worker_p);
    w->served = first;
    w->core = first->core;
}

/* Two models, each with its own workers; the second file differs from the first
 * by its seed. */
static void calls_go_to_the_workers_of_their_model(void **state)
{
    const bt_served_options_t options = {
        .name = "other", .path = other_path, .chat_template = "chatml"};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_served_t *other;
    bt_exchange_t ex, calls[4];

    (void)state;
    start(w, true);
    assert_int_equal(bt_registry_add(&w->front.models, &options, &other),
                     BT_OK);
    assert_ptr_equal(bt_registry_of_file(&w->front.models, other->identity),
                     other);
    get(w, &ex, "/v2/models/other/ready");
    assert_int_equal(ex.status, 503);
    get(w, &ex, "/v2/health/ready"); /* all models that are loaded */
    assert_int_equal(ex.status, 503);
    join_model(w, other, "other.prefill-0", BT_ROLE_PREFILL, &p);
    join_model(w, other, "other.decode-0", BT_ROLE_DECODE, &d);
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v1/models");
    has(&ex, "\"id\":\"tiny\"");
    has(&ex, "\"id\":\"other\"");
    w->n_sent = 0;

    post(w, &calls[0], COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}");
    assert_int_equal(w->n_sent, 2);
    assert_ptr_equal(w->sent[0].to, p);
    assert_ptr_equal(w->sent[1].to, d);
    post(w, &calls[1], COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"tiny\"}");
    post(w, &calls[2], GENERATE, "{\"text_input\":\"Hi\"}"); /* the default */
    post(w, &calls[3], COMPLETIONS, "{\"prompt\":\"Hi\"}");
    assert_int_equal(w->n_sent, 8);
    assert_ptr_equal(w->sent[3].to, w->d);
    assert_ptr_equal(w->sent[5].to, w->d);
    assert_ptr_equal(w->sent[7].to, w->d);
    bt_frontend_end_all(&w->front, "the test is over", bt_now_us());
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(calls[i].n_ends, 1);
    }
    stop(w);
}

static void a_model_that_is_unloaded_is_refused_and_others_are_not(void **state)
{
    const bt_served_options_t options = {
        .name = "other", .path = other_path, .chat_template = "chatml"};
    world_t *w = &world;
    bt_served_t *other;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    assert_int_equal(bt_registry_add(&w->front.models, &options, &other),
                     BT_OK);
    other->unloaded = true;
    refused(w, COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}", 503,
            "model 'other' is unloaded");
    get(w, &ex, "/v2/health/ready");
    assert_int_equal(ex.status, 200);
    get(w, &ex, "/v1/models");
    assert_null(strstr(ex.out, "other"));
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    stop(w);
}

static void a_name_and_a_file_are_served_once(void **state)
{
    const bt_served_options_t same_name = {
        .name = "tiny", .path = other_path, .chat_template = ""};
    const bt_served_options_t same_file = {
        .name = "again", .path = model_path, .chat_template = ""};
    const bt_served_options_t no_file = {
        .name = "none", .path = "/nowhere/at/all.gguf", .chat_template = ""};
    world_t *w = &world;
    bt_served_t *served = NULL;

    (void)state;
    start(w, false);
    bt_test_expect_log_lines(3);
    assert_int_equal(bt_registry_add(&w->front.models, &same_name, &served),
                     BT_ERR_EXISTS);
    assert_int_equal(bt_registry_add(&w->front.models, &same_file, &served),
                     BT_ERR_EXISTS);
    assert_int_not_equal(bt_registry_add(&w->front.models, &no_file, &served),
                         BT_OK);
    assert_null(served);
    assert_ptr_equal(bt_registry_find(&w->front.models, "tensorrt_llm_bls"),
                     w->served);
    assert_null(bt_registry_find(&w->front.models, "again"));
    stop(w);
}

/* The n-th allocation of a whole call fails, for each n: it is answered with
 * an error or served, never both, and nothing is left behind. */
static void short_memory_answers_an_error_and_leaks_nothing(void **state)
{
    world_t *w = &world;
    unsigned n_errors = 0;

    (void)state;
    start(w, true);
    for (int nth = 1; nth < 60; nth++) {
        bt_exchange_t ex;

        w->n_sent = 0;
        bt_alloc_fail_at(nth);
        post(w, &ex, GENERATE,
             "{\"text_input\":\"Hi\",\"max_tokens\":3,\"stop_words\":\"q\","
             "\"bad_words\":\"z\",\"exclude_input_in_output\":false}");
        if (ex.n_ends == 0) {
            tokens(w, w->p, 0, 0, "a", BT_FINISH_NONE);
            tokens(w, w->d, 0, 1, "bc", BT_FINISH_LENGTH);
        }
        bt_alloc_fail_at(0);
        assert_int_equal(ex.n_ends, 1);
        n_errors += (ex.status != 200) ? 1 : 0;
        if (ex.status != 200) {
            assert_true(ex.status >= 400);
        }
        if (count(w, BT_MSG_REQUEST) > 0) {
            ended(w, 0);
        }
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
        assert_int_equal(bt_core_n_legs(w->core), 0);
    }
    assert_true(n_errors > 10);
    assert_true(n_errors < 59);
    stop(w);
}

static int make_file(char path[256], uint64_t seed)
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

static int make_models(void **state)
{
    (void)state;
    return (make_file(model_path, 1) == 0) ? make_file(other_path, 2) : -1;
}

static int remove_models(void **state)
{
    (void)state;
    return unlink(model_path) | unlink(other_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_generate_call_is_answered_whole),
        BT_TEST(a_generate_stream_has_one_event_per_piece_and_no_done),
        BT_TEST(an_openai_stream_ends_with_usage_and_done_in_one_write),
        BT_TEST(prompts_times_n_are_separate_choices_with_seeds_of_their_own),
        BT_TEST(bad_words_are_banned_with_and_without_a_space),
        BT_TEST(what_cannot_be_served_is_refused_with_its_numbers),
        BT_TEST(a_client_that_leaves_cancels_all_its_choices),
        BT_TEST(an_error_after_the_first_event_is_an_event),
        BT_TEST(health_tells_whether_a_pair_is_up),
        BT_TEST(calls_go_to_the_workers_of_their_model),
        BT_TEST(a_model_that_is_unloaded_is_refused_and_others_are_not),
        BT_TEST(a_name_and_a_file_are_served_once),
        BT_TEST(short_memory_answers_an_error_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
