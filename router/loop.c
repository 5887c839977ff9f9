/* SPDX-License-Identifier: Apache-2.0 */
#include "router/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/crypt/key.h"
#include "common/rendezvous/rendezvous.h"
#include "router/frontend/frontend.h"
#include "router/grpc/gdoor.h"
#include "router/http/door.h"
#include "router/launcher_client.h"
#include "router/net/net.h"
#include "router/request/request.h"
#include "router/worker_links.h"

#define TICK_MS 50
/* A client that polled readiness within this time will poll again. */
#define WATCHED_MS 30000
#define WORKED_US  500 /* us of pool results before others */
#define LINGER_MS  300 /* after the last answer, for unsent bytes */

struct bt_loop {
    bt_frontend_t front;
    bt_worker_links_t links;
    bt_tls_t *tls; /* for client ports; NULL: plain */
    bt_door_t door;
    bt_gdoor_t gdoor;
    bt_launcher_client_t launcher;
    struct event_base *base;
    struct event *tick, *worked, *stop, *sighup;
    struct event *held;         /* NULL: no request is held */
    int signal_fd;              /* SIGTERM and SIGINT */
    bt_rendezvous_t rendezvous; /* of --join-dir */
    bt_stop_requests_t stop_requests;
    int ready_fd; /* -1: none, or signaled */
    bt_heartbeat_t beat;
    bool second_signal;        /* a second signal came */
    uint64_t ticked_us;        /* 0: not yet */
    uint64_t lame_duck_end_ms; /* 0: no lame duck */
    uint64_t drain_end_ms, idle_since_ms;
};

/* ---- readiness, for whoever started us ---- */

static void report_addresses(bt_loop_t *loop)
{
    char text[3 * BT_NET_ADDRESS_BYTES + 64];

    snprintf(text, sizeof(text), "http %s%s\nmetrics %s\ngrpc %s\n",
             (loop->tls != NULL) ? "https://" : "", loop->door.http_at,
             loop->door.metrics_at, loop->gdoor.at);
    bt_ready_fd_say(&loop->ready_fd, text);
}

static void report_ready_once(bt_loop_t *loop)
{
    if ((loop->ready_fd >= 0) && bt_frontend_ready(&loop->front)) {
        bt_ready_fd_say(&loop->ready_fd, "ready\n");
        bt_ready_fd_close(&loop->ready_fd);
    }
}

/* ---- time and signals ---- */

static void begin_drain(bt_loop_t *loop)
{
    const uint32_t drain_ms = loop->front.config->drain_ms;

    BT_LOG_INFO("stopping: %u requests in flight, at most %u ms",
                bt_frontend_n_in_flight(&loop->front), drain_ms);
    loop->front.draining = true;
    loop->drain_end_ms = bt_now_ms() + drain_ms;
    bt_door_stop_listening(&loop->door);
    bt_net_stop_listening(bt_grpc_net(loop->gdoor.grpc));
}

static void drain_step(bt_loop_t *loop, uint64_t now_ms)
{
    const uint32_t n = bt_frontend_n_in_flight(&loop->front);

    if ((now_ms >= loop->drain_end_ms) && (n > 0)) {
        BT_LOG_WARN("%u requests did not end in time and are canceled", n);
        bt_frontend_end_all(&loop->front, "the server is stopping",
                            bt_now_us());
    }
    if (bt_frontend_n_in_flight(&loop->front) > 0) {
        return;
    }
    if (loop->idle_since_ms == 0) {
        loop->idle_since_ms = now_ms;
    }
    /* Bytes of the last answers may still be buffered, and workers' last
     * messages in transit. */
    if (((bt_net_n_connections(bt_http_net(loop->door.http)) == 0) &&
         (bt_net_n_connections(bt_grpc_net(loop->gdoor.grpc)) == 0) &&
         (bt_frontend_n_legs(&loop->front) == 0)) ||
        (now_ms - loop->idle_since_ms >= LINGER_MS)) {
        event_base_loopbreak(loop->base);
    }
}

/* Workers that got the signal, too, leave: then nothing could serve requests
 * during the lame-duck time. */
static bool serves_any(const bt_frontend_t *front)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (bt_served_ready(served)) {
            return true;
        }
    }
    return false;
}

static void tick(bt_loop_t *loop)
{
    const uint64_t now_ms = bt_now_ms();
    const uint64_t due_us = loop->ticked_us + TICK_MS * 1000u;
    const uint64_t now_us = bt_now_us();

    bt_heartbeat_tick(&loop->beat, now_ms);
    if (loop->ticked_us != 0) {
        bt_router_metrics_tick(loop->front.metrics,
                               (now_us > due_us) ? now_us - due_us : 0);
    }
    loop->ticked_us = now_us;
    bt_log_tick();
    bt_frontend_tick(&loop->front, now_us);
    bt_worker_links_tick(&loop->links, now_ms);
    bt_launcher_client_tick(&loop->launcher, now_ms);
    bt_door_tick(&loop->door, now_us);
    bt_gdoor_tick(&loop->gdoor);
    report_ready_once(loop);
    if (loop->front.draining) {
        drain_step(loop, now_ms);
    } else if ((loop->lame_duck_end_ms != 0) &&
               ((now_ms >= loop->lame_duck_end_ms) ||
                !serves_any(&loop->front))) {
        begin_drain(loop);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    bt_loop_t *loop = ctx;

    (void)fd;
    (void)what;
    tick(loop);
    bt_frontend_turn(&loop->front);
}

/* Handles finished jobs of the pool. */
static void on_worked(evutil_socket_t fd, short what, void *ctx)
{
    bt_loop_t *loop = ctx;
    const uint64_t end_us = bt_now_us() + WORKED_US;
    bool more;

    (void)fd;
    (void)what;
    do {
        more = bt_pool_next(loop->front.pool);
    } while (more && (bt_now_us() < end_us));
    if (more) {
        event_active(loop->worked, EV_READ, 0);
    }
    bt_frontend_turn(&loop->front);
}

/* Reports not ready while still serving, if a client polls readiness. */
static void begin_leaving(bt_loop_t *loop)
{
    const uint32_t lame_duck_ms = loop->front.config->lame_duck_ms;
    const uint64_t now_ms = bt_now_ms();
    const bool is_watched = (loop->front.ready_asked_ms != 0) &&
                            (now_ms - loop->front.ready_asked_ms < WATCHED_MS);

    loop->front.leaving = true;
    bt_rendezvous_withdraw(&loop->rendezvous);
    if (!is_watched || (lame_duck_ms == 0)) {
        begin_drain(loop);
        return;
    }
    BT_LOG_INFO("stopping: no longer ready, still accepting requests for %u ms",
                lame_duck_ms);
    loop->lame_duck_end_ms = now_ms + lame_duck_ms;
}

static void on_signal(evutil_socket_t fd, short what, void *ctx)
{
    bt_loop_t *loop = ctx;
    bool from_parent = false;
    int number;

    (void)what;
    while ((number = bt_stop_next(fd, &from_parent)) != 0) {
        switch (
            bt_stop_request(&loop->stop_requests, bt_now_ms(), from_parent)) {
        case BT_STOP_BEGIN:
            begin_leaving(loop);
            break;
        case BT_STOP_SAME:
            break;
        case BT_STOP_NOW:
            BT_LOG_INFO("second signal (%d): ending at once", number);
            loop->second_signal = true;
            event_base_loopbreak(loop->base);
            break;
        }
    }
    bt_frontend_turn(&loop->front);
}

static void rekey(bt_loop_t *loop)
{
    const char *path = loop->front.config->cluster_key_file;
    uint8_t key[BT_KEY_BYTES];
    char why[BT_KEY_WHY_BYTES];

    if ((path[0] == '\0') || (loop->links.control == NULL)) {
        return;
    }
    if (bt_key_read(path, loop->front.config->munge_socket, key, why) !=
        BT_OK) {
        BT_LOG_ERROR("SIGHUP: cluster key %s: %s; the previous one is kept",
                     path, why);
        return;
    }
    if (bt_worker_links_rekey(&loop->links, key, sizeof(key))) {
        BT_LOG_INFO(
            "SIGHUP: new links use the new cluster key; the previous one is accepted for 10 minutes");
    } else {
        BT_LOG_INFO("SIGHUP: the cluster key is the same");
    }
    bt_key_wipe(key, sizeof(key));
}

static void renew_tls(bt_loop_t *loop)
{
    char why[BT_TLS_WHY_BYTES];

    if (loop->tls == NULL) {
        return;
    }
    if (bt_tls_reload(loop->tls, why) != BT_OK) {
        BT_LOG_ERROR("SIGHUP: TLS %s; the previous files stay in use", why);
        return;
    }
    BT_LOG_INFO("SIGHUP: TLS for new connections: %s",
                bt_tls_summary(loop->tls));
}

static void on_hangup(evutil_socket_t signal_number, short what, void *ctx)
{
    bt_loop_t *loop = ctx;

    (void)signal_number;
    (void)what;
    BT_LOG_INFO("SIGHUP: reopening trace and access log");
    bt_frontend_reopen(&loop->front);
    bt_tenants_reload(&loop->front.tenants, bt_now_us());
    rekey(loop);
    renew_tls(loop);
}

/* ---- requests that wait for others ---- */

static void on_held(evutil_socket_t fd, short what, void *ctx)
{
    bt_loop_t *loop = ctx;

    (void)fd;
    (void)what;
    bt_request_begin_held(&loop->front);
    bt_frontend_turn(&loop->front);
}

static void hold_end(void *ctx, uint32_t us)
{
    bt_loop_t *loop = ctx;
    const struct timeval after = {.tv_sec = us / 1000000,
                                  .tv_usec = us % 1000000};

    if (event_add(loop->held, &after) != 0) {
        event_active(loop->held, EV_TIMEOUT, 0);
    }
}

static bt_status_t make_hold(bt_loop_t *loop)
{
    if (loop->front.config->max_queue_delay_us == 0) {
        return BT_OK;
    }
    loop->held = event_new(loop->base, -1, 0, on_held, loop);
    if (loop->held == NULL) {
        BT_LOG_ERROR("cannot create the event loop");
        return BT_ERR_NO_MEMORY;
    }
    loop->front.hold_ctx = loop;
    loop->front.hold_end = hold_end;
    return BT_OK;
}

/* ---- birth and end ---- */

static bt_status_t make_events(bt_loop_t *loop)
{
    const struct timeval period = {.tv_usec = TICK_MS * 1000};

    loop->tick = event_new(loop->base, -1, EV_PERSIST, on_tick, loop);
    loop->signal_fd = bt_stop_open();
    loop->stop = event_new(loop->base, loop->signal_fd, EV_READ | EV_PERSIST,
                           on_signal, loop);
    loop->sighup = evsignal_new(loop->base, SIGHUP, on_hangup, loop);
    loop->worked = event_new(loop->base, bt_pool_fd(loop->front.pool),
                             EV_READ | EV_PERSIST, on_worked, loop);
    if ((loop->tick == NULL) || (loop->worked == NULL) ||
        (loop->signal_fd < 0) || (loop->stop == NULL) ||
        (loop->sighup == NULL) ||
        (event_priority_set(loop->tick, BT_LINKS_PRIORITY) != 0) ||
        (event_add(loop->worked, NULL) != 0) ||
        (event_add(loop->stop, NULL) != 0) ||
        (event_add(loop->sighup, NULL) != 0) ||
        (event_add(loop->tick, &period) != 0)) {
        BT_LOG_ERROR("cannot create the event loop");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static bt_status_t open_tls(const bt_config_t *config, bt_tls_t **tls_p)
{
    const bt_tls_files_t files = {.cert = config->tls_cert,
                                  .key = config->tls_key,
                                  .client_ca = config->tls_client_ca};
    char why[BT_TLS_WHY_BYTES];
    bt_status_t status;

    if (config->tls_cert[0] == '\0') {
        return BT_OK;
    }
    status = bt_tls_create(&files, tls_p, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("TLS %s", why);
        /* Like an invalid file: a restart would not help. */
        return (status == BT_ERR_MISMATCH) ? BT_ERR_BAD_FILE : status;
    }
    BT_LOG_INFO("TLS: %s", bt_tls_summary(*tls_p));
    if (bt_tls_has_expired(*tls_p)) {
        BT_LOG_WARN("TLS certificate %s has expired", config->tls_cert);
    }
    return BT_OK;
}

/* Opens gRPC with the connections that the descriptors allow; memory as for
 * HTTP. */
static bt_status_t open_grpc(bt_loop_t *loop)
{
    const bt_door_limits_t *limits = &loop->door.limits;
    const bt_net_config_t net = {
        .max_connections = limits->grpc_connections,
        .max_per_client = limits->per_client,
        .memory_bytes = limits->memory_bytes,
        .budget = &loop->front.requests,
        .tls = loop->tls,
        .protocol = "h2",
    };

    const bt_status_t status = bt_gdoor_open(
        &loop->gdoor, loop->base, &loop->front, &net, &loop->door.hosts);

    if (status == BT_OK) {
        loop->door.other = bt_grpc_net(loop->gdoor.grpc);
    }
    return status;
}

bt_status_t bt_loop_create(const bt_config_t *config, bt_loop_t **loop_p)
{
    bt_loop_t *loop = bt_calloc(1, sizeof(*loop));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (loop == NULL) {
        BT_LOG_ERROR("out of memory");
        return status;
    }
    loop->ready_fd = bt_ready_fd_open();
    bt_heartbeat_open(&loop->beat);
    loop->signal_fd = -1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the write reports it (ulimit -f) */
    loop->base = bt_net_loop_create();
    if (loop->base == NULL) {
        BT_LOG_ERROR("cannot create the event loop");
        goto err_loop;
    }
    if ((status = bt_worker_links_open(&loop->links, loop->base,
                                       &loop->front)) != BT_OK ||
        (status =
             bt_frontend_open(&loop->front, config, &bt_request_frontend_ops,
                              bt_worker_links_send, &loop->links)) != BT_OK ||
        (status = make_events(loop)) != BT_OK ||
        (status = make_hold(loop)) != BT_OK ||
        (status = open_tls(config, &loop->tls)) != BT_OK ||
        (status = bt_door_open(&loop->door, loop->base, &loop->front,
                               loop->tls)) != BT_OK ||
        (status = open_grpc(loop)) != BT_OK) {
        goto err_loop;
    }
    bt_launcher_client_init(&loop->launcher, loop->base, &loop->front);
    *loop_p = loop;
    return BT_OK;

err_loop:
    bt_loop_destroy(loop);
    return status;
}

/* Publishes the URL for workers. */
static bt_status_t publish(bt_loop_t *loop, const char *url)
{
    const char *dir = loop->front.config->join_dir;
    bt_status_t status;

    if (dir[0] == '\0') {
        return BT_OK;
    }
    if (!bt_rendezvous_is_url(url)) {
        BT_LOG_ERROR("--join-dir: workers elsewhere cannot use the address %s; "
                     "--listen has to name one of this host's",
                     url);
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_rendezvous_publish(dir, url, &loop->rendezvous);
    if (status != BT_OK) {
        BT_LOG_ERROR("--join-dir %s: cannot create a file there: %m", dir);
        return status;
    }
    BT_LOG_INFO("workers find this router in %s", dir);
    return BT_OK;
}

bt_status_t bt_loop_open_links(bt_loop_t *loop, const char *url,
                               const uint8_t *key, size_t key_bytes,
                               char *bound, size_t bound_bytes)
{
    bt_status_t status;

    bt_space_key(key, key_bytes, loop->front.space_key);
    status = bt_worker_links_listen(&loop->links, loop->base, url, key,
                                    key_bytes, bound, bound_bytes);
    return (status == BT_OK) ? publish(loop, bound) : status;
}

int bt_loop_run(bt_loop_t *loop)
{
    bt_strbuf_t names;

    bt_strbuf_init(&names, 4096);
    bt_registry_names(&loop->front.models, &names);
    BT_LOG_INFO("serving %s at %s://%s, metrics at http://%s/metrics, gRPC "
                "at %s",
                (names.len > 0) ? names.data : "",
                (loop->tls != NULL) ? "https" : "http", loop->door.http_at,
                loop->door.metrics_at, loop->gdoor.at);
    bt_strbuf_fini(&names);
    report_addresses(loop);
    do { /* one turn: until no event is left */
        if (event_base_loop(loop->base, EVLOOP_ONCE) < 0) {
            BT_LOG_ERROR("the event loop failed");
            return 1;
        }
        bt_turn_finish(&loop->front.turn);
        bt_router_metrics_turn(loop->front.metrics);
    } while (!event_base_got_break(loop->base));
    return loop->second_signal ? 1 : 0;
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
    /* Pool jobs are returned to their clients, then the clients are closed:
     * running generations are canceled at the workers. */
    if (loop->front.pool != NULL) {
        bt_pool_stop(loop->front.pool);
    }
    loop->door.other = NULL;
    bt_gdoor_close(&loop->gdoor);
    bt_door_close(&loop->door);
    bt_tls_destroy(loop->tls);
    event_end(loop->tick);
    event_end(loop->worked);
    event_end(loop->stop);
    if (loop->signal_fd >= 0) {
        close(loop->signal_fd);
    }
    event_end(loop->sighup);
    event_end(loop->held);
    bt_rendezvous_withdraw(&loop->rendezvous);
    bt_launcher_client_fini(&loop->launcher);
    bt_worker_links_close(&loop->links);
    bt_frontend_close(&loop->front);
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    bt_ready_fd_close(&loop->ready_fd);
    bt_heartbeat_close(&loop->beat);
    bt_free(loop);
}
