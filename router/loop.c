/* SPDX-License-Identifier: Apache-2.0 */
#include "router/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ready_fd.h"

#define TICK_MS          50
#define LINGER_MS        300  /* after the last answer, for its bytes */
#define RERUN_WAIT_MS    2000 /* for another pair, when a worker was lost */
#define MAX_CONNECTIONS  16384
#define LINK_QUEUE_BYTES (64u << 20)
#define EVENTS_PER_WAKE  4096 /* control events before clients are looked at */

struct bt_loop {
    bt_router_t router;
    struct event_base *base;
    struct event *tick, *readable, *more, *sigterm, *sigint;
    bt_rpc_t *rpc;
    bt_wire_decoder_t *decoder;
    bt_strbuf_t frame; /* scratch: one encoded message */
    char http_at[96], metrics_at[96];
    int ready_fd; /* -1: none, or said */
    bool again;   /* a second signal came */
    uint64_t drain_end_ms, idle_since_ms;
};

/* Lines of the trace carry the time of day, everything else the monotonic. */
static int64_t unix_minus_monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec -
           (int64_t)bt_now_ns();
}

static uint64_t now_us(void)
{
    return bt_now_us();
}

/* ---- readiness, for whoever started us ---- */

static void say_addresses(bt_loop_t *loop)
{
    char text[256];

    snprintf(text, sizeof(text), "http %s\nmetrics %s\n", loop->http_at,
             loop->metrics_at);
    bt_ready_fd_say(&loop->ready_fd, text);
}

static void say_ready_once(bt_loop_t *loop)
{
    if ((loop->ready_fd < 0) ||
        !bt_table_ready(bt_core_table(loop->router.core))) {
        return;
    }
    bt_ready_fd_say(&loop->ready_fd, "ready\n");
    bt_ready_fd_close(&loop->ready_fd);
}

/* ---- workers ---- */

static void send_to_worker(void *ctx, bt_instance_t *worker,
                           const bt_msg_t *msg)
{
    bt_loop_t *loop = ctx;
    bt_rpc_link_t *link = worker->link_user;
    bt_status_t status;

    bt_strbuf_reset(&loop->frame);
    bt_wire_encode(msg, &loop->frame);
    status = bt_strbuf_status(&loop->frame);
    if (status == BT_OK) {
        status = bt_rpc_post(link, loop->frame.data, loop->frame.len);
    }
    /* BUSY: the link is being dropped already. A message that cannot be sent
     * must not be missing silently, so the link goes. */
    if ((status != BT_OK) && (status != BT_ERR_BUSY)) {
        BT_LOG_ERROR("worker %s: a message of type %d cannot be sent: %s",
                     worker->hello.name, (int)msg->type, bt_status_str(status));
        bt_rpc_link_close(link, "the router cannot send a message");
    }
}

static void refuse_link(bt_rpc_link_t *link, const char *why)
{
    BT_LOG_WARN("worker refused: %s", why);
    bt_rpc_link_close(link, why);
}

static void link_up(bt_loop_t *loop, const bt_rpc_event_t *event)
{
    bt_core_t *core = loop->router.core;
    char why[BT_TABLE_WHY_BYTES] = "";
    bt_instance_t *worker = NULL;
    bt_msg_t msg;

    if ((bt_wire_decode(loop->decoder, event->data, event->bytes, &msg) !=
         BT_OK) ||
        (msg.type != BT_MSG_HELLO)) {
        refuse_link(event->link, "its hello is malformed");
        return;
    }
    /* A worker that lost its link comes back on a new one before we may have
     * noticed. */
    worker = bt_table_find(bt_core_table(core), msg.u.hello.instance);
    if (worker != NULL) {
        bt_rpc_link_t *old = worker->link_user;

        bt_core_worker_down(core, worker, "it linked itself anew", now_us());
        bt_rpc_link_set_user(old, NULL);
        bt_rpc_link_close(old, "replaced by a new link");
    }
    if (bt_core_worker_up(core, &msg.u.hello, event->link, now_us(), why,
                          &worker) != BT_OK) {
        refuse_link(event->link, why);
        return;
    }
    bt_rpc_link_set_user(event->link, worker);
}

static void link_message(bt_loop_t *loop, bt_instance_t *worker,
                         const bt_rpc_event_t *event)
{
    bt_msg_t msg;
    bt_status_t status =
        bt_wire_decode(loop->decoder, event->data, event->bytes, &msg);

    if (status == BT_OK) {
        if (msg.type == BT_MSG_STATS) {
            bt_router_metrics_stats(loop->router.model_metrics, &worker->stats,
                                    &msg.u.stats);
        }
        status = bt_core_message(loop->router.core, worker, &msg, now_us());
    }
    if (status == BT_ERR_UNSUPPORTED) { /* a newer worker's */
        const bt_wire_skip_t skipped = bt_wire_skipped(loop->decoder);

        if (skipped.say) {
            BT_LOG_WARN("worker %s sends messages of type %u, which this "
                        "router does not know: skipped, %llu so far",
                        worker->hello.name, skipped.type,
                        (unsigned long long)skipped.n);
        }
        return;
    }
    if (status != BT_OK) {
        BT_LOG_WARN("worker %s sent a message that is refused: %s",
                    worker->hello.name, bt_status_str(status));
        bt_rpc_link_close(event->link, bt_status_str(status));
    }
}

static void link_event(bt_loop_t *loop, const bt_rpc_event_t *event)
{
    bt_instance_t *worker = bt_rpc_link_user(event->link);

    if (event->type == BT_RPC_LINK_UP) {
        link_up(loop, event);
        return;
    }
    if (worker == NULL) {
        return; /* refused or replaced */
    }
    switch (event->type) {
    case BT_RPC_LINK_SUSPECT:
    case BT_RPC_LINK_HEALTHY:
        bt_core_worker_suspect(loop->router.core, worker,
                               event->type == BT_RPC_LINK_SUSPECT, now_us());
        break;
    case BT_RPC_LINK_DOWN: {
        char reason[256];

        snprintf(reason, sizeof(reason), "%.*s",
                 (event->bytes < 255) ? (int)event->bytes : 255,
                 (event->data != NULL) ? (const char *)event->data : "");
        bt_rpc_link_set_user(event->link, NULL);
        bt_core_worker_down(loop->router.core, worker,
                            (reason[0] != '\0') ? reason : "link lost",
                            now_us());
        break;
    }
    case BT_RPC_MESSAGE:
        link_message(loop, worker, event);
        break;
    case BT_RPC_LINK_UP:
        break;
    }
}

static void pump_links(bt_loop_t *loop)
{
    bt_rpc_event_t event;
    uint32_t n = 0;

    while ((n < EVENTS_PER_WAKE) &&
           bt_rpc_next(loop->rpc, bt_now_ms(), &event)) {
        link_event(loop, &event);
        n++;
    }
    bt_rpc_flush(loop->rpc);
    if (n == EVENTS_PER_WAKE) {
        event_active(loop->more, EV_TIMEOUT, 0);
    }
    say_ready_once(loop);
}

static void on_links(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    pump_links(ctx);
}

/* ---- clients ---- */

static void flush_links(bt_loop_t *loop)
{
    if (loop->rpc != NULL) {
        bt_rpc_flush(loop->rpc);
    }
}

static void on_main_request(void *ctx, bt_exchange_t *ex)
{
    bt_loop_t *loop = ctx;

    bt_routes_main(&loop->router, ex);
    flush_links(loop);
}

static void on_metrics_request(void *ctx, bt_exchange_t *ex)
{
    bt_loop_t *loop = ctx;

    bt_routes_metrics(&loop->router, ex);
}

static void on_client_gone(void *ctx, bt_exchange_t *ex)
{
    bt_loop_t *loop = ctx;

    bt_client_gone(&loop->router, ex);
    flush_links(loop);
}

static void format_error(void *ctx, const char *path, int status,
                         const char *message, bt_strbuf_t *out)
{
    bt_loop_t *loop = ctx;

    bt_routes_format_error(&loop->router, path, status, message, out);
}

/* ---- what the core asks for ---- */

static void core_text(void *ctx, void *user, const char *text, size_t bytes,
                      uint32_t n_output)
{
    bt_loop_t *loop = ctx;

    bt_client_on_text(&loop->router, user, text, bytes, n_output);
}

static void core_end(void *ctx, void *user, const bt_gen_end_t *end)
{
    bt_loop_t *loop = ctx;

    bt_client_on_end(&loop->router, user, end);
}

static void core_ledger(void *ctx, const bt_ledger_t *ledger)
{
    bt_loop_t *loop = ctx;

    bt_router_metrics_ledger(loop->router.model_metrics, ledger);
}

static void core_record(void *ctx, const bt_gen_record_t *record)
{
    bt_loop_t *loop = ctx;

    if (loop->router.trace != NULL) {
        bt_trace_add(loop->router.trace, record, unix_minus_monotonic_ns());
    }
}

static void core_transfer(void *ctx, const bt_msg_joined_t *joined, bool first)
{
    bt_loop_t *loop = ctx;

    bt_router_metrics_transfer(loop->router.model_metrics, joined, first);
}

static void core_time(void *ctx, bt_gen_time_kind_t which, uint64_t us)
{
    bt_loop_t *loop = ctx;

    bt_router_metrics_time(loop->router.model_metrics, which, us);
}

static bt_status_t make_core(bt_loop_t *loop)
{
    const bt_router_t *router = &loop->router;
    const bt_core_config_t config = {
        .model = router->served->identity,
        .tok = router->served->tok,
        .n_vocab = bt_tokenizer_n_vocab(router->served->tok),
        .max_queue = router->config->max_queue,
        .worker_wait_ms = router->config->worker_wait_ms,
        .rerun_wait_ms = RERUN_WAIT_MS,
        .request_timeout_ms = router->config->request_timeout_ms,
    };
    const bt_core_ops_t ops = {
        .send = send_to_worker,
        .on_text = core_text,
        .on_end = core_end,
        .on_ledger = core_ledger,
        .on_record = core_record,
        .on_transfer = core_transfer,
        .on_time = core_time,
        .detok_init = bt_detok_init,
        .detok_push = bt_detok_push,
        .detok_finish = bt_detok_finish,
        .ctx = loop,
    };

    return bt_core_create(&config, &ops, &loop->router.core);
}

/* ---- time and signals ---- */

static void begin_drain(bt_loop_t *loop)
{
    const uint32_t drain_ms = loop->router.config->drain_ms;

    BT_LOG_INFO("stopping: %u requests in flight, at most %u ms",
                bt_core_n_in_flight(loop->router.core), drain_ms);
    loop->router.draining = true;
    loop->drain_end_ms = bt_now_ms() + drain_ms;
    bt_http_stop_listening(loop->router.http);
}

static void drain_step(bt_loop_t *loop, uint64_t now_ms)
{
    bt_core_t *core = loop->router.core;

    if ((now_ms >= loop->drain_end_ms) && (bt_core_n_in_flight(core) > 0)) {
        BT_LOG_WARN("%u requests did not end in time and are given up",
                    bt_core_n_in_flight(core));
        bt_core_end_all(core, "the server is stopping", now_us());
    }
    if (bt_core_n_in_flight(core) > 0) {
        return;
    }
    if (loop->idle_since_ms == 0) {
        loop->idle_since_ms = now_ms;
    }
    /* The last answers may still be in our buffers, and the workers' last
     * words on the way. */
    if (((bt_http_n_connections(loop->router.http) == 0) &&
         (bt_core_n_legs(core) == 0)) ||
        (now_ms - loop->idle_since_ms >= LINGER_MS)) {
        event_base_loopbreak(loop->base);
    }
}

static void flush_trace(bt_loop_t *loop, uint64_t now_ms)
{
    if (loop->router.trace != NULL) {
        bt_router_metrics_trace_lost(
            loop->router.metrics, bt_trace_flush(loop->router.trace, now_ms));
    }
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    bt_loop_t *loop = ctx;
    const uint64_t now_ms = bt_now_ms();

    (void)fd;
    (void)what;
    bt_rpc_tick(loop->rpc, now_ms);
    bt_core_tick(loop->router.core, now_us());
    pump_links(loop);
    flush_trace(loop, now_ms);
    if (loop->router.draining) {
        drain_step(loop, now_ms);
    }
}

static void on_signal(evutil_socket_t signal_number, short what, void *ctx)
{
    bt_loop_t *loop = ctx;

    (void)what;
    if (loop->router.draining) {
        BT_LOG_INFO("second signal (%d): ending at once", (int)signal_number);
        loop->again = true;
        event_base_loopbreak(loop->base);
        return;
    }
    begin_drain(loop);
}

/* ---- birth and end ---- */

static bt_status_t listen_at(bt_http_t *http, const char *option,
                             const char *address, char *at, size_t at_bytes)
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
    snprintf(at, at_bytes,
             (strchr(host, ':') != NULL) ? "[%.80s]:%u" : "%.80s:%u", host,
             port);
    return BT_OK;
}

static bt_status_t make_servers(bt_loop_t *loop)
{
    const bt_config_t *config = loop->router.config;
    const bt_http_config_t limits = {
        .max_body_bytes = config->max_body_bytes,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .client_buffer_bytes = config->client_buffer_bytes,
        .max_connections = MAX_CONNECTIONS,
    };
    const bt_http_handlers_t main_port = {
        .on_request = on_main_request,
        .on_gone = on_client_gone,
        .ctx = loop,
        .format_error = format_error,
    };
    const bt_http_handlers_t metrics_port = {
        .on_request = on_metrics_request,
        .on_gone = on_client_gone,
        .ctx = loop,
        .format_error = format_error,
    };
    bt_status_t status;

    status =
        bt_http_create(loop->base, &limits, &main_port, &loop->router.http);
    if (status == BT_OK) {
        status = bt_http_create(loop->base, &limits, &metrics_port,
                                &loop->router.metrics_http);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot make the HTTP server: %s", bt_status_str(status));
        return status;
    }
    status = listen_at(loop->router.http, "http", config->http, loop->http_at,
                       sizeof(loop->http_at));
    if (status == BT_OK) {
        status =
            listen_at(loop->router.metrics_http, "metrics", config->metrics,
                      loop->metrics_at, sizeof(loop->metrics_at));
    }
    return status;
}

static bt_status_t make_events(bt_loop_t *loop)
{
    const struct timeval period = {.tv_usec = TICK_MS * 1000};

    loop->tick = event_new(loop->base, -1, EV_PERSIST, on_tick, loop);
    loop->more = event_new(loop->base, -1, 0, on_links, loop);
    loop->sigterm = evsignal_new(loop->base, SIGTERM, on_signal, loop);
    loop->sigint = evsignal_new(loop->base, SIGINT, on_signal, loop);
    if ((loop->tick == NULL) || (loop->more == NULL) ||
        (loop->sigterm == NULL) || (loop->sigint == NULL) ||
        (event_add(loop->sigterm, NULL) != 0) ||
        (event_add(loop->sigint, NULL) != 0) ||
        (event_add(loop->tick, &period) != 0)) {
        BT_LOG_ERROR("cannot make the event loop");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static bt_status_t make_parts(bt_loop_t *loop)
{
    const bt_config_t *config = loop->router.config;
    bt_status_t status = bt_wire_decoder_create(&loop->decoder);

    if ((status == BT_OK) && (config->trace[0] != '\0')) {
        status = bt_trace_open(config->trace, loop->router.served->name,
                               config->name, &loop->router.trace);
    }
    if (status == BT_OK) {
        status = bt_router_metrics_create(&loop->router.metrics);
    }
    if (status == BT_OK) {
        status = bt_router_metrics_model(loop->router.metrics,
                                         loop->router.served->name,
                                         &loop->router.model_metrics);
    }
    if (status == BT_OK) {
        status = make_core(loop);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot start: %s", bt_status_str(status));
        return status;
    }
    if (getrandom(&loop->router.id_start, sizeof(loop->router.id_start), 0) <
        0) {
        BT_LOG_ERROR("no random numbers: %m");
        return BT_ERR_IO;
    }
    status = make_events(loop);
    return (status == BT_OK) ? make_servers(loop) : status;
}

bt_status_t bt_loop_create(const bt_config_t *config, const bt_served_t *served,
                           bt_loop_t **loop_p)
{
    bt_loop_t *loop = bt_calloc(1, sizeof(*loop));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (loop == NULL) {
        BT_LOG_ERROR("out of memory");
        return status;
    }
    loop->router.config = config;
    loop->router.served = served;
    loop->ready_fd = bt_ready_fd_open();
    bt_strbuf_init(&loop->router.out, BT_ANSWER_LIMIT);
    bt_strbuf_init(&loop->frame, BT_WIRE_MAX_BYTES);
    signal(SIGPIPE, SIG_IGN);
    loop->base = event_base_new();
    if (loop->base == NULL) {
        BT_LOG_ERROR("cannot make the event loop");
        goto err_loop;
    }
    status = make_parts(loop);
    if (status != BT_OK) {
        goto err_loop;
    }
    *loop_p = loop;
    return BT_OK;

err_loop:
    bt_loop_destroy(loop);
    return status;
}

bt_status_t bt_loop_open_links(bt_loop_t *loop, const char *url,
                               const uint8_t *key, size_t key_bytes,
                               char *bound, size_t bound_bytes)
{
    const bt_config_t *config = loop->router.config;
    bt_msg_t hello = {.type = BT_MSG_HELLO};
    bt_rpc_config_t links = {
        .key = key,
        .key_bytes = key_bytes,
        .listen_dir = config->run_dir,
        .heartbeat_ms = config->heartbeat_ms,
        .suspect_ms = config->suspect_ms,
        .dead_ms = config->dead_ms,
        .max_queue_bytes = LINK_QUEUE_BYTES,
    };
    bt_status_t status;

    hello.u.hello.protocol = BT_WIRE_PROTOCOL;
    hello.u.hello.protocol_min = BT_WIRE_PROTOCOL_MIN;
    snprintf(hello.u.hello.version_text, sizeof(hello.u.hello.version_text),
             "%.63s", bt_config_version());
    hello.u.hello.role = BT_ROLE_ROUTER;
    hello.u.hello.instance = loop->router.id_start;
    hello.u.hello.model = loop->router.served->identity;
    snprintf(hello.u.hello.name, sizeof(hello.u.hello.name), "%.63s",
             (config->name[0] != '\0') ? config->name : "router");
    bt_strbuf_reset(&loop->frame);
    bt_wire_encode(&hello, &loop->frame);
    status = bt_strbuf_status(&loop->frame);
    if (status == BT_OK) {
        links.hello = loop->frame.data;
        links.hello_bytes = loop->frame.len;
        status = bt_rpc_open(&links, &loop->rpc);
    }
    if (status == BT_OK) {
        status = bt_rpc_listen(loop->rpc, url, bound, bound_bytes);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot listen for workers at %s: %s", url,
                     bt_status_str(status));
        return status;
    }
    loop->readable = event_new(loop->base, bt_rpc_fd(loop->rpc),
                               EV_READ | EV_PERSIST, on_links, loop);
    if ((loop->readable == NULL) || (event_add(loop->readable, NULL) != 0)) {
        BT_LOG_ERROR("cannot watch the control links");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

int bt_loop_run(bt_loop_t *loop)
{
    BT_LOG_INFO("serving %s at http://%s, metrics at http://%s/metrics",
                loop->router.served->name, loop->http_at, loop->metrics_at);
    say_addresses(loop);
    if (event_base_dispatch(loop->base) < 0) {
        BT_LOG_ERROR("the event loop failed");
        return 1;
    }
    return loop->again ? 1 : 0;
}

static void event_end(struct event *event)
{
    if (event != NULL) {
        event_free(event);
    }
}

void bt_loop_destroy(bt_loop_t *loop)
{
    if (loop == NULL) {
        return;
    }
    /* Clients first: what still runs is canceled at the workers. */
    bt_http_destroy(loop->router.http);
    bt_http_destroy(loop->router.metrics_http);
    event_end(loop->tick);
    event_end(loop->readable);
    event_end(loop->more);
    event_end(loop->sigterm);
    event_end(loop->sigint);
    if (loop->router.core != NULL) {
        bt_core_record_rest(loop->router.core);
    }
    bt_core_destroy(loop->router.core);
    bt_trace_close(loop->router.trace);
    bt_rpc_close(loop->rpc);
    bt_router_metrics_destroy(loop->router.metrics);
    bt_wire_decoder_destroy(loop->decoder);
    bt_strbuf_fini(&loop->router.out);
    bt_strbuf_fini(&loop->frame);
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    bt_ready_fd_close(&loop->ready_fd);
    bt_free(loop);
}
