/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "router/net/net_priv.h"

#define ACCEPTS_PER_TURN 16
#define ACCEPT_AGAIN_MS  100
/* us of handshakes per turn of the loop: one with an RSA key takes about this
 * long. */
#define HANDSHAKE_US 1000
/* Bounds the delay of workers' messages. Each poll costs in proportion to the
 * sockets that are readable. */
#define CALLBACKS_PER_LOOK 32
#define LOOK_AFTER_US      2000
/* events get the middle one by default */
#define N_PRIORITIES         3
#define KEEPALIVE_IDLE_S     15
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES     3

void bt_net_turn(bt_net_t *net)
{
    if (net->handlers.on_turn != NULL) {
        net->handlers.on_turn(net->handlers.turn_ctx);
    }
}

static void reap(bt_net_t *net)
{
    while (!bt_list_empty(&net->dead)) {
        bt_stream_free(BT_CONTAINER_OF(net->dead.next, bt_stream_t, link));
    }
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    bt_net_t *net = arg;

    (void)fd;
    (void)what;
    reap(net);
    bt_net_turn(net);
}

/* Reads some of what the peer sent: closing with unread bytes causes a reset,
 * which may destroy the last answer. */
void bt_net_drain(int fd)
{
    char unread[1024];

    (void)!recv(fd, unread, sizeof(unread), 0);
}

void bt_net_refuse(bt_net_t *net, int fd, bt_net_refusal_t refusal)
{
    char answer[BT_NET_REFUSAL_BYTES];
    size_t n = 0;

    if (net->handlers.write_refusal != NULL) {
        n = net->handlers.write_refusal(net->handlers.ctx, refusal, answer);
    }
    /* Best effort: a fresh socket's buffer takes this much at once. */
    (void)!send(fd, answer, n, MSG_NOSIGNAL);
    bt_net_drain(fd);
    net->use.n_turned_away++;
}

/* A client that speaks TLS would not understand a plain answer. */
static void turn_away(bt_net_t *net, int fd, bt_net_refusal_t refusal)
{
    if (net->config.tls == NULL) {
        bt_net_refuse(net, fd, refusal);
    } else {
        bt_net_drain(fd);
        net->use.n_turned_away++;
    }
    close(fd);
}

static void set_listening(bt_net_t *net, bool on)
{
    for (uint32_t i = 0; i < net->n_listeners; i++) {
        if (on) {
            (void)event_add(&net->listeners[i].ev, NULL);
        } else {
            event_del(&net->listeners[i].ev);
        }
    }
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    bt_net_t *net = arg;

    (void)fd;
    (void)what;
    if (!net->stopped) {
        set_listening(net, true);
    }
}

/* Without a free file descriptor accept() fails immediately and repeatedly. */
static void out_of_files(bt_net_t *net)
{
    const struct timeval pause = {.tv_usec = ACCEPT_AGAIN_MS * 1000};

    if (!net->out_of_files) {
        net->out_of_files = true;
        BT_LOG_WARN("net: cannot accept a connection: %m");
    }
    if (!bt_net_close_first(net, &net->quiet)) {
        set_listening(net, false);
        (void)evtimer_add(&net->ev_accept_again, &pause);
    }
}

static void accept_some(bt_net_t *net, int listen_fd)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t bytes = sizeof(from);
        bt_net_client_t *client = NULL;
        const int fd = accept4(listen_fd, (struct sockaddr *)&from, &bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        bt_net_refusal_t refusal;

        if (fd < 0) {
            if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) ||
                (errno == ENOBUFS)) {
                out_of_files(net);
            }
            return;
        }
        net->out_of_files = false;
        refusal = bt_net_admit(net, &from, &client);
        if ((refusal == BT_NET_NOT_REFUSED) &&
            (bt_stream_create(net, fd, client) != BT_OK)) {
            bt_net_client_leave(client);
            refusal = BT_NET_FULL;
        }
        if (refusal != BT_NET_NOT_REFUSED) {
            turn_away(net, fd, refusal);
        }
    }
}

struct event_base *bt_net_loop_create(void)
{
    struct event_config *config = event_config_new();
    const struct timeval after = {.tv_usec = LOOK_AFTER_US};
    struct event_base *base = NULL;

    if (config == NULL) {
        return NULL;
    }
    if (event_config_set_max_dispatch_interval(
            config, &after, CALLBACKS_PER_LOOK, N_PRIORITIES - 1) == 0) {
        base = event_base_new_with_config(config);
    }
    event_config_free(config);
    if ((base != NULL) && (event_base_priority_init(base, N_PRIORITIES) != 0)) {
        event_base_free(base);
        return NULL;
    }
    return base;
}

void bt_net_put_last(bt_net_t *net, struct event *ev)
{
    /* Fails only for an event that is active already. */
    (void)event_priority_set(ev, event_base_get_npriorities(net->base) - 1);
}

/* Bounds a turn of the loop, also with many simultaneous handshakes. */
static void on_handshake(evutil_socket_t fd, short what, void *arg)
{
    const uint64_t end_us = bt_now_us() + HANDSHAKE_US;
    bt_net_t *net = arg;

    (void)fd;
    (void)what;
    while (!bt_list_empty(&net->in_handshake)) {
        bt_stream_t *stream = BT_CONTAINER_OF(net->in_handshake.next,
                                              bt_stream_t, handshake_link);

        if (bt_now_us() >= end_us) {
            bt_net_handshake_soon(net);
            break;
        }
        bt_list_remove(&stream->handshake_link);
        bt_stream_handshake(stream);
    }
    bt_net_turn(net);
}

void bt_net_handshake_soon(bt_net_t *net)
{
    const struct timeval now = {0};

    (void)evtimer_add(&net->ev_handshake, &now);
}

static void on_accept(evutil_socket_t listen_fd, short what, void *arg)
{
    bt_net_t *net = ((const bt_listener_t *)arg)->net;

    (void)what;
    accept_some(net, listen_fd);
    bt_net_turn(net);
}

bt_status_t bt_net_create(struct event_base *base,
                          const bt_net_config_t *config,
                          const bt_net_handlers_t *handlers, bt_net_t **net_p)
{
    bt_net_t *net = bt_calloc(1, sizeof(*net));

    if (net == NULL) {
        goto err;
    }
    net->scratch = bt_calloc(1, BT_NET_SCRATCH_BYTES);
    if (net->scratch == NULL) {
        goto err_net;
    }
    net->base = base;
    net->config = *config;
    net->handlers = *handlers;
    if (bt_net_limits_init(net) != BT_OK) {
        goto err_scratch;
    }
    evtimer_assign(&net->ev_reap, base, on_reap, net);
    /* Otherwise each closed connection would make the loop poll again. */
    bt_net_put_last(net, &net->ev_reap);
    evtimer_assign(&net->ev_handshake, base, on_handshake, net);
    bt_net_put_last(net, &net->ev_handshake);
    evtimer_assign(&net->ev_accept_again, base, on_accept_again, net);
    *net_p = net;
    return BT_OK;

err_scratch:
    bt_free(net->scratch);
err_net:
    bt_free(net);
err:
    return BT_ERR_NO_MEMORY;
}

static void set_options(int fd)
{
    static const int on = 1;
    static const int idle_s = KEEPALIVE_IDLE_S;
    static const int interval_s = KEEPALIVE_INTERVAL_S;
    static const int probes = KEEPALIVE_PROBES;

    /* Linux passes all these options to accepted sockets. Keep-alive detects
     * clients whose machine vanished while their request waits. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
                     sizeof(interval_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* @return a listening socket, or -1 with errno. */
static int open_socket(const struct addrinfo *ai, bool shared)
{
    static const int on = 1;
    const int fd =
        socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int err;

    if (fd < 0) {
        return -1;
    }
    set_options(fd);
    if ((!shared ||
         (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0)) &&
        (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0) &&
        (listen(fd, SOMAXCONN) == 0)) {
        return fd;
    }
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);

    memset(&addr, 0, sizeof(addr));
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0) {
        return 0;
    }
    if (addr.ss_family == AF_INET6) {
        return ntohs(((const struct sockaddr_in6 *)&addr)->sin6_port);
    }
    return ntohs(((const struct sockaddr_in *)&addr)->sin_port);
}

bt_status_t bt_net_listen(bt_net_t *net, const char *host, uint16_t port,
                          uint16_t *port_p, char why[BT_NET_WHY_BYTES])
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    bt_listener_t *listener;
    char service[8];
    int fd = -1;
    int rc;
    int err;

    if ((net->n_listeners == BT_NET_MAX_LISTENERS) || net->stopped) {
        snprintf(why, BT_NET_WHY_BYTES, "it listens no more");
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(service, sizeof(service), "%u", port);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0) {
        snprintf(why, BT_NET_WHY_BYTES, "%s", gai_strerror(rc));
        return (rc == EAI_NONAME) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    for (const struct addrinfo *ai = found; (ai != NULL) && (fd < 0);
         ai = ai->ai_next) {
        fd = open_socket(ai, net->config.shares_ports);
    }
    err = errno;
    freeaddrinfo(found);
    if (fd < 0) {
        snprintf(why, BT_NET_WHY_BYTES, "%s", strerrordesc_np(err));
        return bt_status_of_bind(err);
    }

    listener = &net->listeners[net->n_listeners];
    listener->net = net;
    listener->fd = fd;
    event_assign(&listener->ev, net->base, fd, EV_READ | EV_PERSIST, on_accept,
                 listener);
    bt_net_put_last(net, &listener->ev);
    if (event_add(&listener->ev, NULL) != 0) {
        close(fd);
        snprintf(why, BT_NET_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    net->n_listeners++;
    *port_p = port_of(fd);
    return BT_OK;
}

bt_status_t bt_net_listen_at(bt_net_t *net, const char *option,
                             const char *address, char at[BT_NET_ADDRESS_BYTES])
{
    uint16_t port = 0;
    char why[BT_NET_WHY_BYTES];
    char host[256];
    bt_status_t status;

    status = bt_config_split_address(address, host, sizeof(host), &port);
    if (status != BT_OK) {
        BT_LOG_ERROR("--%s %s is not ADDR:PORT", option, address);
        return status;
    }
    status = bt_net_listen(net, host, port, &port, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot serve at %s: %s; choose another address with "
                     "--%s",
                     address, why, option);
        return status;
    }
    snprintf(at, BT_NET_ADDRESS_BYTES,
             (strchr(host, ':') != NULL) ? "[%.80s]:%u" : "%.80s:%u", host,
             port);
    return BT_OK;
}

static bool stop_one(bt_list_t *list, bt_list_t *seen)
{
    bt_stream_t *stream;

    if (bt_list_empty(list)) {
        return false;
    }
    stream = BT_CONTAINER_OF(list->next, bt_stream_t, link);
    bt_list_remove(&stream->link);
    bt_list_push_back(seen, &stream->link);
    if ((stream->handlers->on_stop != NULL) && !stream->stop_reported) {
        stream->stop_reported = true;
        stream->handlers->on_stop(stream->user);
    }
    return true;
}

/* Each handler may close any stream, or change its class. */
static void report_stop(bt_net_t *net)
{
    bt_list_t *const lists[] = {&net->quiet, &net->reading, &net->busy};

    for (size_t i = 0; i < BT_ARRAY_LEN(lists); i++) {
        bt_list_t seen;

        bt_list_init(&seen);
        while (stop_one(lists[i], &seen)) {
        }
        while (!bt_list_empty(&seen)) {
            bt_list_t *link = seen.next;

            bt_list_remove(link);
            bt_list_push_back(lists[i], link);
        }
    }
}

void bt_net_stop_listening(bt_net_t *net)
{
    net->stopped = true;
    evtimer_del(&net->ev_accept_again);
    set_listening(net, false);
    for (uint32_t i = 0; i < net->n_listeners; i++) {
        close(net->listeners[i].fd);
    }
    net->n_listeners = 0;
    report_stop(net);
}

bool bt_net_stopped(const bt_net_t *net)
{
    return net->stopped;
}

static void close_all(bt_list_t *list)
{
    while (!bt_list_empty(list)) { /* handlers may close others */
        bt_stream_close(BT_CONTAINER_OF(list->next, bt_stream_t, link));
    }
}

void bt_net_destroy(bt_net_t *net)
{
    if (net == NULL) {
        return;
    }
    bt_net_stop_listening(net);
    close_all(&net->quiet);
    close_all(&net->reading);
    close_all(&net->busy);
    event_del(&net->ev_reap);
    evtimer_del(&net->ev_handshake);
    reap(net);
    bt_net_limits_fini(net);
    bt_free(net->scratch);
    bt_free(net);
}

void bt_net_flush(bt_net_t *net)
{
    while (!bt_list_empty(&net->gathering)) {
        bt_stream_t *stream =
            BT_CONTAINER_OF(net->gathering.next, bt_stream_t, gather_link);

        bt_list_remove(&stream->gather_link);
        stream->handlers->on_writable(stream->user);
    }
}

uint32_t bt_net_n_connections(const bt_net_t *net)
{
    return net->n_conns;
}

void bt_net_use(const bt_net_t *net, bt_net_use_t *use)
{
    *use = net->use;
}
