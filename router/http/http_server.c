/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "router/http/http_priv.h"

#define ACCEPTS_PER_TURN 16
#define ACCEPT_AGAIN_MS  100
/* What a message of a worker waits for at most. Each look costs as much as
 * there are sockets with something to read. */
#define CALLBACKS_PER_LOOK 32
#define LOOK_AFTER_US      2000
/* libevent gives events the one in the middle. */
#define N_PRIORITIES         3
#define KEEPALIVE_IDLE_S     15
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES     3

void bt_http_turn(bt_http_t *http)
{
    if (http->handlers.on_turn != NULL) {
        http->handlers.on_turn(http->handlers.ctx);
    }
}

static void reap(bt_http_t *http)
{
    while (!bt_list_empty(&http->dead)) {
        bt_conn_free(BT_CONTAINER_OF(http->dead.next, bt_conn_t, link));
    }
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    bt_http_t *http = arg;

    (void)fd;
    (void)what;
    reap(http);
    bt_http_turn(http);
}

static void turn_away(bt_http_t *http, int fd, int status)
{
    const bool share = (status == 429);
    const char *const why =
        share ? "too many connections from this client's address"
              : "the server has no connection left";
    char answer[320];
    char unread[1024];
    const int n =
        snprintf(answer, sizeof(answer),
                 "HTTP/1.1 %s\r\n"
                 "Content-Type: application/json\r\n"
                 "Content-Length: %zu\r\n"
                 "Retry-After: 1\r\n"
                 "Connection: close\r\n"
                 "\r\n"
                 "{\"error\":\"%s\"}",
                 share ? "429 Too Many Requests" : "503 Service Unavailable",
                 strlen("{\"error\":\"\"}") + strlen(why), why);

    /* Best effort: a fresh socket's buffer takes this much at once. Reading
     * what is there makes it less likely that closing resets. */
    (void)!send(fd, answer, (size_t)n, MSG_NOSIGNAL);
    (void)!recv(fd, unread, sizeof(unread), 0);
    close(fd);
    http->use.n_turned_away++;
}

static void set_listening(bt_http_t *http, bool on)
{
    for (uint32_t i = 0; i < http->n_listeners; i++) {
        if (on) {
            (void)event_add(&http->listeners[i].ev, NULL);
        } else {
            event_del(&http->listeners[i].ev);
        }
    }
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    bt_http_t *http = arg;

    (void)fd;
    (void)what;
    if (!http->stopped) {
        set_listening(http, true);
    }
}

/* Without a file descriptor accept() fails at once, again and again. */
static void out_of_files(bt_http_t *http)
{
    const struct timeval pause = {.tv_usec = ACCEPT_AGAIN_MS * 1000};

    if (!http->out_of_files) {
        http->out_of_files = true;
        BT_LOG_WARN("http: cannot accept a connection: %m");
    }
    if (!bt_http_close_quiet(http)) {
        set_listening(http, false);
        (void)evtimer_add(&http->ev_accept_again, &pause);
    }
}

static void accept_some(bt_http_t *http, int listen_fd)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t bytes = sizeof(from);
        bt_http_client_t *client = NULL;
        const int fd = accept4(listen_fd, (struct sockaddr *)&from, &bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        int status;

        if (fd < 0) {
            if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) ||
                (errno == ENOBUFS)) {
                out_of_files(http);
            }
            return;
        }
        http->out_of_files = false;
        status = bt_http_admit(http, &from, &client);
        if ((status == 0) && (bt_conn_create(http, fd, client) != BT_OK)) {
            bt_http_client_leave(client);
            status = 503;
        }
        if (status != 0) {
            turn_away(http, fd, status);
        }
    }
}

struct event_base *bt_http_loop_create(void)
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

void bt_http_put_last(bt_http_t *http, struct event *ev)
{
    /* Fails only for an event that is active already. */
    (void)event_priority_set(ev, event_base_get_npriorities(http->base) - 1);
}

static void on_accept(evutil_socket_t listen_fd, short what, void *arg)
{
    bt_http_t *http = ((const bt_listener_t *)arg)->http;

    (void)what;
    accept_some(http, listen_fd);
    bt_http_turn(http);
}

bt_status_t bt_http_create(struct event_base *base,
                           const bt_http_config_t *config,
                           const bt_http_handlers_t *handlers,
                           bt_http_t **http_p)
{
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
        goto err;
    }
    http->scratch = bt_calloc(1, BT_HTTP_SCRATCH_BYTES);
    if (http->scratch == NULL) {
        goto err_http;
    }
    http->base = base;
    http->config = *config;
    http->handlers = *handlers;
    if (bt_http_room_init(http) != BT_OK) {
        goto err_scratch;
    }
    evtimer_assign(&http->ev_reap, base, on_reap, http);
    /* Else each connection that closes would make the loop look again. */
    bt_http_put_last(http, &http->ev_reap);
    evtimer_assign(&http->ev_accept_again, base, on_accept_again, http);
    *http_p = http;
    return BT_OK;

err_scratch:
    bt_free(http->scratch);
err_http:
    bt_free(http);
err:
    return BT_ERR_NO_MEMORY;
}

static void set_options(int fd)
{
    static const int on = 1;
    static const int idle_s = KEEPALIVE_IDLE_S;
    static const int interval_s = KEEPALIVE_INTERVAL_S;
    static const int probes = KEEPALIVE_PROBES;

    /* Linux hands all of these on to accepted sockets. Keep-alive finds the
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

bt_status_t bt_http_listen(bt_http_t *http, const char *host, uint16_t port,
                           uint16_t *port_p, char why[BT_HTTP_WHY_BYTES])
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

    if ((http->n_listeners == BT_HTTP_MAX_LISTENERS) || http->stopped) {
        snprintf(why, BT_HTTP_WHY_BYTES, "it listens no more");
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(service, sizeof(service), "%u", port);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0) {
        snprintf(why, BT_HTTP_WHY_BYTES, "%s", gai_strerror(rc));
        return (rc == EAI_NONAME) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    for (const struct addrinfo *ai = found; (ai != NULL) && (fd < 0);
         ai = ai->ai_next) {
        fd = open_socket(ai, http->config.shares_ports);
    }
    err = errno;
    freeaddrinfo(found);
    if (fd < 0) {
        snprintf(why, BT_HTTP_WHY_BYTES, "%s", strerrordesc_np(err));
        return bt_status_of_bind(err);
    }

    listener = &http->listeners[http->n_listeners];
    listener->http = http;
    listener->fd = fd;
    event_assign(&listener->ev, http->base, fd, EV_READ | EV_PERSIST, on_accept,
                 listener);
    bt_http_put_last(http, &listener->ev);
    if (event_add(&listener->ev, NULL) != 0) {
        close(fd);
        snprintf(why, BT_HTTP_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    http->n_listeners++;
    *port_p = port_of(fd);
    return BT_OK;
}

/* Of a list, those in this state; DEAD: all. */
static void close_all(bt_list_t *list, bt_conn_state_t state)
{
    bt_list_t *pos;
    bt_list_t *next;

    BT_LIST_FOR_EACH(pos, next, list)
    {
        bt_conn_t *conn = BT_CONTAINER_OF(pos, bt_conn_t, link);

        if ((state == BT_CONN_DEAD) || (conn->state == state)) {
            bt_conn_close(conn);
        }
    }
}

void bt_http_stop_listening(bt_http_t *http)
{
    http->stopped = true;
    evtimer_del(&http->ev_accept_again);
    set_listening(http, false);
    for (uint32_t i = 0; i < http->n_listeners; i++) {
        close(http->listeners[i].fd);
    }
    http->n_listeners = 0;
    close_all(&http->quiet, BT_CONN_IDLE);
}

void bt_http_destroy(bt_http_t *http)
{
    if (http == NULL) {
        return;
    }
    bt_http_stop_listening(http);
    close_all(&http->quiet, BT_CONN_DEAD);
    close_all(&http->reading, BT_CONN_DEAD);
    while (!bt_list_empty(&http->busy)) { /* handlers may end others */
        bt_conn_close(BT_CONTAINER_OF(http->busy.next, bt_conn_t, link));
    }
    event_del(&http->ev_reap);
    reap(http);
    bt_http_room_fini(http);
    bt_free(http->scratch);
    bt_free(http);
}

void bt_http_flush(bt_http_t *http)
{
    while (!bt_list_empty(&http->gathering)) {
        bt_conn_t *conn =
            BT_CONTAINER_OF(http->gathering.next, bt_conn_t, gather_link);

        bt_list_remove(&conn->gather_link);
        bt_conn_go_on(conn);
    }
}

uint32_t bt_http_n_connections(const bt_http_t *http)
{
    return http->n_conns;
}

void bt_http_use(const bt_http_t *http, bt_http_use_t *use)
{
    *use = http->use;
}
