/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/exchange.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

#define GARBAGE                                                   \
    "what answers speaks no HTTP/1.1 (OTLP over HTTP has mostly " \
    "port 4318, over gRPC 4317)"
#define LATE "no answer in time"

static bt_status_t fail(bt_otlp_link_t *link, const char *what, const char *why)
{
    snprintf(link->trouble, sizeof(link->trouble), "%s%s%s", what,
             (why[0] != '\0') ? ": " : "", why);
    return BT_ERR_IO;
}

static void hang_up(bt_otlp_link_t *link)
{
    if (link->session != NULL) {
        (void)bt_tls_shutdown(link->session);
        bt_tls_end(link->session);
        link->session = NULL;
    }
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
}

void bt_otlp_link_close(bt_otlp_link_t *link)
{
    hang_up(link);
    bt_free(link->data);
    link->data = NULL;
}

/* ---- time ---- */

/* @return 0: the deadline has passed */
static int left_ms(const bt_otlp_until_t *until)
{
    const uint64_t now_ms = bt_now_ms();
    const uint64_t all_ms = atomic_load(until->end_ms);
    uint64_t end_ms = until->try_end_ms;

    if ((all_ms != 0) && (all_ms < end_ms)) {
        end_ms = all_ms;
    }
    if (end_ms <= now_ms) {
        return 0;
    }
    return (end_ms - now_ms < INT_MAX) ? (int)(end_ms - now_ms) : INT_MAX;
}

static short events_of(bt_tls_step_t step)
{
    return (step == BT_TLS_WANTS_WRITE) ? POLLOUT : POLLIN;
}

/* @return those of @a events that occurred, or 0: deadline passed */
static short wait_for(int fd, short events, const bt_otlp_until_t *until)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = events},
                               {.fd = until->wake_fd, .events = POLLIN}};
        /* Once *end_ms is set, wake_fd is not used any more. */
        const nfds_t n = (atomic_load(until->end_ms) == 0) ? 2 : 1;
        const int ms = left_ms(until);
        uint64_t count;

        if (ms == 0) {
            return 0;
        }
        if (poll(fds, n, ms) < 0) {
            continue; /* EINTR */
        }
        if (fds[0].revents != 0) {
            return fds[0].revents;
        }
        if ((n == 2) && (fds[1].revents != 0)) {
            (void)!read(until->wake_fd, &count, sizeof(count));
        }
    }
}

/* ---- the connection ---- */

static bt_status_t connect_to(bt_otlp_link_t *link, const struct addrinfo *to,
                              const bt_otlp_until_t *until)
{
    static const int on = 1;
    socklen_t bytes = sizeof(int);
    int fault = 0;

    link->fd = socket(to->ai_family,
                      to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        return fail(link, "no socket", strerror(errno));
    }
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if ((connect(link->fd, to->ai_addr, to->ai_addrlen) != 0) &&
        (errno != EINPROGRESS)) {
        fault = errno;
    } else if (wait_for(link->fd, POLLOUT, until) == 0) {
        fault = ETIMEDOUT;
    } else if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &fault, &bytes) !=
               0) {
        fault = errno;
    }
    if (fault != 0) {
        hang_up(link);
        return fail(link, "cannot connect", strerror(fault));
    }
    return BT_OK;
}

static bt_status_t shake_hands(bt_otlp_link_t *link, const char *host,
                               const bt_otlp_until_t *until)
{
    bt_tls_step_t step;

    link->session = bt_tls_begin_client(link->tls, link->fd, host);
    if (link->session == NULL) {
        hang_up(link);
        return fail(link, "out of memory", "");
    }
    while ((step = bt_tls_handshake(link->session)) != BT_TLS_DONE) {
        const char *why = "no handshake in time";

        if ((step == BT_TLS_WANTS_READ) || (step == BT_TLS_WANTS_WRITE)) {
            if (wait_for(link->fd, events_of(step), until) != 0) {
                continue;
            }
        } else {
            why = bt_tls_trouble(link->session); /* static */
        }
        hang_up(link);
        return fail(link, "TLS", why);
    }
    return BT_OK;
}

static bt_status_t dial(bt_otlp_link_t *link, const bt_otlp_url_t *url,
                        const bt_otlp_until_t *until)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    bt_status_t status = BT_ERR_IO;
    const int rc = getaddrinfo(url->host, url->port, &hints, &found);

    if (rc != 0) {
        return fail(link, "no address of that name", gai_strerror(rc));
    }
    for (const struct addrinfo *to = found; (to != NULL) && (status != BT_OK);
         to = to->ai_next) {
        status = connect_to(link, to, until);
        if ((status == BT_OK) && (link->tls != NULL)) {
            status = shake_hands(link, url->host, until);
        }
    }
    freeaddrinfo(found);
    return status;
}

/* ---- bytes, with TLS and without ---- */

static bt_tls_step_t put(bt_otlp_link_t *link, const char *data, size_t n,
                         int flags, size_t *done_p)
{
    ssize_t done;

    if (link->session != NULL) {
        return bt_tls_write(link->session, data, n, done_p);
    }
    done = send(link->fd, data, n, flags | MSG_NOSIGNAL);
    if (done < 0) {
        return ((errno == EAGAIN) || (errno == EINTR)) ? BT_TLS_WANTS_WRITE
                                                       : BT_TLS_FAILED;
    }
    *done_p = (size_t)done;
    return BT_TLS_DONE;
}

/* Receives more of the answer into the free space. @param [out] got_p  0 with
 * BT_TLS_DONE: the receiver closed the connection */
static bt_tls_step_t take(bt_otlp_link_t *link, size_t *got_p)
{
    char *const to = link->data + link->n;
    const size_t most = BT_OTLP_ANSWER_BYTES - link->n;
    bt_tls_step_t step = BT_TLS_DONE;
    ssize_t got;

    *got_p = 0;
    if (link->session != NULL) {
        step = bt_tls_read(link->session, to, most, got_p);
    } else {
        got = recv(link->fd, to, most, 0);
        if (got >= 0) {
            *got_p = (size_t)got;
        } else {
            step = ((errno == EAGAIN) || (errno == EINTR)) ? BT_TLS_WANTS_READ
                                                           : BT_TLS_FAILED;
        }
    }
    link->n += (step == BT_TLS_DONE) ? *got_p : 0;
    return step;
}

/* ---- one try ---- */

/* Waits until more can be sent. @return false: the receiver answered or closed
 * before it had all, or the deadline has passed */
static bool await_room(bt_otlp_link_t *link, bt_tls_step_t step,
                       const bt_otlp_until_t *until)
{
    const short events =
        wait_for(link->fd, (short)(events_of(step) | POLLIN), until);
    size_t got;

    if ((link->session == NULL) || ((events & POLLIN) == 0)) {
        return (events & POLLOUT) != 0;
    }
    /* Received bytes may belong to TLS, such as a session ticket. */
    step = take(link, &got);
    return (step == BT_TLS_WANTS_READ) || (step == BT_TLS_WANTS_WRITE);
}

static bool send_all(bt_otlp_link_t *link, const char *data, size_t n,
                     int flags, const bt_otlp_until_t *until)
{
    while (n > 0) {
        size_t done = 0;
        const bt_tls_step_t step = put(link, data, n, flags, &done);

        if (step == BT_TLS_DONE) {
            data += done;
            n -= done;
        } else if (((step != BT_TLS_WANTS_READ) &&
                    (step != BT_TLS_WANTS_WRITE)) ||
                   !await_room(link, step, until)) {
            return false;
        }
    }
    return true;
}

/* Waits for more of the answer. @return false: no more comes, or none that is
 * wanted; *why_p is the reason of an error */
static bool await_more(bt_otlp_link_t *link, const bt_otlp_until_t *until,
                       const char **why_p)
{
    while (link->n < BT_OTLP_ANSWER_BYTES) {
        size_t got;
        const bt_tls_step_t step = take(link, &got);

        if (step == BT_TLS_DONE) {
            return got > 0;
        }
        if ((step != BT_TLS_WANTS_READ) && (step != BT_TLS_WANTS_WRITE)) {
            *why_p = (link->session != NULL) ? bt_tls_trouble(link->session)
                                             : strerror(errno);
            return false;
        }
        if (wait_for(link->fd, events_of(step), until) == 0) {
            *why_p = LATE;
            return false;
        }
    }
    return false;
}

static bt_status_t receive(bt_otlp_link_t *link, const bt_otlp_until_t *until,
                           bt_otlp_answer_t *answer)
{
    const char *why = "";
    bool ended = false;

    for (;;) {
        switch (bt_otlp_answer_read(link->data, link->n, ended, answer)) {
        case BT_OTLP_GARBAGE:
            return fail(link, GARBAGE, "");
        case BT_OTLP_WHOLE:
            return BT_OK;
        default:
            break;
        }
        if (ended) {
            break;
        }
        ended = !await_more(link, until, &why);
    }
    answer->keeps = false;
    if (answer->http_status != 0) {
        return BT_OK; /* the receiver has reported the result */
    }
    return (strcmp(why, LATE) == 0)
               ? fail(link, LATE, "")
               : fail(link, "the connection ended without an answer", why);
}

static bt_status_t ask(bt_otlp_link_t *link, const bt_otlp_request_t *request,
                       const bt_otlp_until_t *until, bt_otlp_answer_t *answer)
{
    bt_status_t status;
    bool all;

    link->n = 0;
    all = send_all(link, request->head, request->head_bytes, MSG_MORE, until) &&
          send_all(link, request->body, request->body_bytes, 0, until);
    status = receive(link, until, answer);
    if ((status == BT_OK) && !all) {
        answer->keeps = false;
    }
    if ((status != BT_OK) || !answer->keeps) {
        hang_up(link);
    }
    return status;
}

/* A receiver may close an idle connection at any time; that is no error. */
static bool is_quiet(const bt_otlp_link_t *link)
{
    struct pollfd fd = {.fd = link->fd, .events = POLLIN};

    return poll(&fd, 1, 0) == 0;
}

bt_status_t bt_otlp_exchange(bt_otlp_link_t *link, const bt_otlp_url_t *url,
                             const bt_otlp_request_t *request,
                             const bt_otlp_until_t *until,
                             bt_otlp_answer_t *answer)
{
    bt_status_t status;

    if (link->data == NULL) {
        link->data = bt_calloc(BT_OTLP_ANSWER_BYTES, 1);
        if (link->data == NULL) {
            return fail(link, "out of memory", "");
        }
    }
    if ((link->fd >= 0) && is_quiet(link)) {
        status = ask(link, request, until, answer);
        if ((status == BT_OK) || (link->n > 0) || (left_ms(until) == 0)) {
            return status;
        }
    }
    hang_up(link);
    status = dial(link, url, until);
    return (status == BT_OK) ? ask(link, request, until, answer) : status;
}
