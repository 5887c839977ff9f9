/* SPDX-License-Identifier: Apache-2.0 */
/* Listener of a router for announcements. It looks like a sub0 socket of nng
 * to the pub0 sockets of workers, but is our own: in nng 1.5.2 a listener
 * stops accepting permanently when a peer hangs up in the middle of the
 * greeting (NNG_ECLOSED of the negotiation is mistaken for the listener's
 * own end), so that one port scan would keep a router from receiving every
 * later worker.
 *
 *     accept ─▶ GREETING ─8 bytes each way─▶ messages ─▶ rpc->announces
 *                  └─ not in time, not of this protocol, too long ─▶ closed
 *
 * It has its own thread, so that strangers cost the owner nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/rpc/rpc_inner.h"

#define BACKLOG         128
#define MAX_CALLERS     8192
#define CALLERS_AT_ONCE 64    /* accepted before present ones are read */
#define SILENCE_MS      10000 /* from accept to the first announcement */
#define PAUSE_MS        100   /* when no descriptor is left */
#define LOOK_MS         1000  /* for the socket's name */

typedef struct rpc_caller {
    int fd;
    bool greeted;
    uint64_t deadline_ms; /* 0: it has announced itself once */
    size_t n;             /* bytes of buf */
    uint8_t buf[RPC_SP_MAX_HEAD_BYTES + RPC_MAX_INTRO];
} caller_t;

/* ---- receiving ---- */

static void announce(bt_rpc_t *rpc, const void *data, size_t bytes)
{
    bool is_due = false;
    nng_msg *msg;

    if (nng_msg_alloc(&msg, 0) != 0) {
        return; /* dropped: workers repeat announcements */
    }
    if (nng_msg_append(msg, data, bytes) != 0) {
        nng_msg_free(msg);
        return;
    }
    pthread_mutex_lock(&rpc->mutex);
    if (!rpc->closing && (rpc->n_announces < RPC_ANNOUNCES)) {
        rpc->announces[(rpc->first_announce + rpc->n_announces++) %
                       RPC_ANNOUNCES] = msg;
        msg = NULL;
        is_due = !rpc->signalled;
        rpc->signalled = true;
    }
    pthread_mutex_unlock(&rpc->mutex);
    if (is_due) {
        bt_rpc_signal(rpc);
    }
    nng_msg_free(msg); /* too many at once: dropped */
}

static void drop_bytes(caller_t *caller, size_t n)
{
    caller->n -= n;
    memmove(caller->buf, caller->buf + n, caller->n);
}

/* Takes complete messages. @return false for data that no worker sends */
static bool take(rpc_listener_t *listener, caller_t *caller)
{
    const size_t head = bt_rpc_sp_head_bytes(listener->ipc);
    uint64_t bytes;

    if (!caller->greeted) {
        if (!bt_rpc_sp_greets(RPC_SP_PUB0, caller->buf, caller->n)) {
            return false;
        }
        if (caller->n < RPC_SP_GREETING_BYTES) {
            return true;
        }
        caller->greeted = true;
        drop_bytes(caller, RPC_SP_GREETING_BYTES);
    }
    while (caller->n >= head) {
        if (!bt_rpc_sp_get_head(listener->ipc, caller->buf, &bytes) ||
            (bytes > RPC_MAX_INTRO)) {
            return false;
        }
        if (caller->n < head + bytes) {
            return true;
        }
        announce(listener->rpc, caller->buf + head, (size_t)bytes);
        caller->deadline_ms = 0;
        drop_bytes(caller, head + (size_t)bytes);
    }
    return true;
}

/* @return false when the caller is to be closed. */
static bool hear(rpc_listener_t *listener, caller_t *caller)
{
    const size_t room = sizeof(caller->buf) - caller->n;
    const ssize_t n = recv(caller->fd, caller->buf + caller->n, room, 0);

    if (n < 0) {
        return (errno == EAGAIN) || (errno == EINTR);
    }
    caller->n += (size_t)n;
    return (n > 0) && take(listener, caller);
}

/* ---- connections ---- */

static void hang_up(rpc_listener_t *listener, uint32_t i)
{
    caller_t *caller = listener->callers[i];

    close(caller->fd);
    bt_free(caller);
    listener->callers[i] = listener->callers[--listener->n_callers];
}

/* @return false when no connection waits, or no more can be accepted now. */
static bool let_in(rpc_listener_t *listener, uint64_t now_ms, bool *short_p)
{
    const int fd =
        accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    uint8_t greeting[RPC_SP_GREETING_BYTES];
    caller_t *caller;

    if (fd < 0) {
        *short_p = (errno == EMFILE) || (errno == ENFILE) ||
                   (errno == ENOBUFS) || (errno == ENOMEM);
        return (errno == ECONNABORTED) || (errno == EINTR);
    }
    caller = (listener->n_callers < MAX_CALLERS) ? bt_calloc(1, sizeof(*caller))
                                                 : NULL;
    /* A fresh socket takes eight bytes or is broken. */
    bt_rpc_sp_greeting(RPC_SP_SUB0, greeting);
    if ((caller == NULL) || (send(fd, greeting, sizeof(greeting),
                                  MSG_NOSIGNAL) != sizeof(greeting))) {
        bt_free(caller);
        close(fd);
        return true;
    }
    caller->fd = fd;
    caller->deadline_ms = now_ms + SILENCE_MS;
    listener->callers[listener->n_callers++] = caller;
    return true;
}

/* Closes connections that sent no announcement in time. @return next time to
 * check, 0 = never */
static uint64_t drop_silent(rpc_listener_t *listener, uint64_t now_ms)
{
    uint64_t next_ms = 0;

    for (uint32_t i = listener->n_callers; i > 0; i--) {
        const uint64_t at_ms = listener->callers[i - 1]->deadline_ms;

        if ((at_ms != 0) && (at_ms <= now_ms)) {
            hang_up(listener, i - 1);
        } else if ((at_ms != 0) && ((next_ms == 0) || (at_ms < next_ms))) {
            next_ms = at_ms;
        }
    }
    return next_ms;
}

/* A socket file without a listener was left by a process that was killed. */
static bool is_left_over(const struct sockaddr_un *name)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool left = false;

    if (fd >= 0) {
        left =
            (connect(fd, (const struct sockaddr *)name, sizeof(*name)) != 0) &&
            (errno == ECONNREFUSED);
        close(fd);
    }
    return left;
}

static int open_ipc(const char *path, struct sockaddr_un *name)
{
    int fd;

    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(name->sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name->sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    /* Before the name exists: no other user may ever connect. */
    if ((fchmod(fd, S_IRUSR | S_IWUSR) == 0) &&
        ((bind(fd, (struct sockaddr *)name, sizeof(*name)) == 0) ||
         ((errno == EADDRINUSE) && is_left_over(name) &&
          (unlink(name->sun_path) == 0) &&
          (bind(fd, (struct sockaddr *)name, sizeof(*name)) == 0)))) {
        return fd;
    }
    name->sun_path[0] = '\0'; /* not ours */
    close(fd);
    return -1;
}

/* If the socket's name was removed, perhaps with its directory, no worker
 * could connect any more: it is created again as soon as possible. */
static void look_after_name(rpc_listener_t *listener, uint64_t now_ms)
{
    struct sockaddr_un name;
    int fd;

    if (!listener->ipc || (now_ms < listener->look_ms)) {
        return;
    }
    listener->look_ms = now_ms + LOOK_MS;
    if ((access(listener->name.sun_path, F_OK) == 0) || (errno != ENOENT)) {
        return;
    }
    fd = open_ipc(listener->name.sun_path, &name);
    if ((fd >= 0) && (listen(fd, BACKLOG) == 0)) {
        BT_LOG_WARN("%s was removed and is recreated", listener->name.sun_path);
        close(listener->fd);
        listener->fd = fd;
        listener->is_gone = false;
        return;
    }
    if (!listener->is_gone) {
        BT_LOG_WARN("%s was removed and cannot be recreated: %m",
                    listener->name.sun_path);
        listener->is_gone = true;
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Waits once and handles the events. @return false when the thread must end */
static bool listen_once(rpc_listener_t *listener, bool *short_p)
{
    const uint64_t next_ms = drop_silent(listener, bt_now_ms());
    const uint32_t n = listener->n_callers;
    struct pollfd *fds = listener->fds;
    uint64_t now_ms = bt_now_ms();
    int timeout_ms = -1;

    look_after_name(listener, now_ms);
    fds[0] = (struct pollfd){.fd = listener->stop_fd, .events = POLLIN};
    fds[1] =
        (struct pollfd){.fd = *short_p ? -1 : listener->fd, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++) {
        fds[2 + i] =
            (struct pollfd){.fd = listener->callers[i]->fd, .events = POLLIN};
    }
    if (next_ms != 0) {
        timeout_ms = (next_ms > now_ms) ? (int)(next_ms - now_ms) : 0;
    }
    if (listener->ipc && ((timeout_ms < 0) || (timeout_ms > LOOK_MS))) {
        timeout_ms = LOOK_MS;
    }
    if (*short_p) {
        timeout_ms = PAUSE_MS;
        *short_p = false;
    }
    if ((poll(fds, 2 + n, timeout_ms) < 0) && (errno != EINTR)) {
        BT_LOG_ERROR("cannot listen for workers any more: %m");
        return false;
    }
    for (uint32_t i = n; i > 0; i--) { /* hang_up() only moves callers
                                          already read */
        if ((fds[1 + i].revents != 0) &&
            !hear(listener, listener->callers[i - 1])) {
            hang_up(listener, i - 1);
        }
    }
    if (fds[1].revents != 0) {
        now_ms = bt_now_ms();
        for (int i = 0;
             (i < CALLERS_AT_ONCE) && let_in(listener, now_ms, short_p); i++) {
        }
    }
    return fds[0].revents == 0;
}

static void *ear(void *arg)
{
    rpc_listener_t *listener = arg;
    bool is_short = false;

    while (listen_once(listener, &is_short)) {
    }
    return NULL;
}

/* ---- the socket ---- */

/* HOST:PORT, [HOST]:PORT; an empty host or `*` is all addresses. */
static int open_tcp(const char *place, uint16_t *port_p)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE};
    const char *colon = strrchr(place, ':');
    size_t n = (size_t)(colon - place);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    struct addrinfo *found = NULL;
    char host[RPC_MAX_URL];
    const int one = 1;
    int fd = -1;

    if ((n >= 2) && (place[0] == '[') && (place[n - 1] == ']')) {
        place++;
        n -= 2;
    }
    snprintf(host, sizeof(host), "%.*s", (int)n, place);
    if (getaddrinfo(((n == 0) || (strcmp(host, "*") == 0)) ? NULL : host,
                    colon + 1, &hints, &found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if ((fd >= 0) &&
        ((setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0) ||
         (bind(fd, found->ai_addr, found->ai_addrlen) != 0) ||
         (getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0))) {
        const int why = errno;

        close(fd);
        fd = -1;
        errno = why;
    }
    freeaddrinfo(found);
    if (fd >= 0) {
        *port_p = ntohs((bound.ss_family == AF_INET6)
                            ? ((struct sockaddr_in6 *)&bound)->sin6_port
                            : ((struct sockaddr_in *)&bound)->sin_port);
    }
    return fd;
}

static bt_status_t open_sockets(rpc_listener_t *listener, const char *url,
                                char *bound, size_t bound_bytes)
{
    const char *colon = strrchr(url, ':');
    char text[RPC_MAX_URL];
    uint16_t port = 0;
    int n;

    listener->ipc = bt_rpc_sp_is_ipc(url);
    listener->fd = listener->ipc ? open_ipc(url + 6, &listener->name)
                                 : open_tcp(url + 6, &port);
    if ((listener->fd < 0) || (listen(listener->fd, BACKLOG) != 0)) {
        const int why = errno;

        BT_LOG_ERROR("cannot listen for workers at %s: %m", url);
        return bt_status_of_bind(why);
    }
    listener->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (listener->stop_fd < 0) {
        BT_LOG_ERROR("cannot listen for workers at %s: %m", url);
        return BT_ERR_IO;
    }
    n = listener->ipc ? snprintf(text, sizeof(text), "%s", url)
                      : snprintf(text, sizeof(text), "%.*s:%u",
                                 (int)(colon - url), url, port);
    if ((n <= 0) || ((size_t)n >= sizeof(text)) || ((size_t)n >= bound_bytes)) {
        BT_LOG_ERROR("cannot listen for workers at %s: its name is too long",
                     url);
        return BT_ERR_TOO_LARGE;
    }
    memcpy(bound, text, (size_t)n + 1); /* it may be where url is */
    return BT_OK;
}

static void free_parts(rpc_listener_t *listener)
{
    while (listener->n_callers > 0) {
        hang_up(listener, 0);
    }
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    if (listener->stop_fd >= 0) {
        close(listener->stop_fd);
    }
    if (listener->name.sun_path[0] != '\0') {
        (void)unlink(listener->name.sun_path);
    }
    bt_free(listener->fds);
    bt_free(listener->callers);
    bt_free(listener);
}

bt_status_t bt_rpc_listener_create(bt_rpc_t *rpc, const char *url, char *bound,
                                   size_t bound_bytes,
                                   rpc_listener_t **listener_p)
{
    rpc_listener_t *listener = bt_calloc(1, sizeof(*listener));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (listener == NULL) {
        return status;
    }
    bt_list_init(&listener->in_all);
    listener->rpc = rpc;
    listener->fd = -1;
    listener->stop_fd = -1;
    listener->callers = bt_calloc(MAX_CALLERS, sizeof(*listener->callers));
    listener->fds = bt_calloc(2 + MAX_CALLERS, sizeof(*listener->fds));
    if ((listener->callers == NULL) || (listener->fds == NULL)) {
        goto err_listener;
    }
    status = open_sockets(listener, url, bound, bound_bytes);
    if (status == BT_OK) {
        status = (bt_thread_start(&listener->thread, ear, listener) == 0)
                     ? BT_OK
                     : BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        goto err_listener;
    }
    *listener_p = listener;
    return BT_OK;

err_listener:
    free_parts(listener);
    return status;
}

void bt_rpc_listener_free(rpc_listener_t *listener)
{
    const uint64_t one = 1;

    if (listener == NULL) {
        return;
    }
    (void)!write(listener->stop_fd, &one, sizeof(one));
    pthread_join(listener->thread, NULL);
    bt_list_remove(&listener->in_all);
    free_parts(listener);
}
