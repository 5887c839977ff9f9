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

static bt_status_t fail(bt_otlp_link_t *link, const char *what, const char *why)
{
    snprintf(link->trouble, sizeof(link->trouble), "%s%s%s", what,
             (why[0] != '\0') ? ": " : "", why);
    return BT_ERR_IO;
}

static void hang_up(bt_otlp_link_t *link)
{
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

/* @return 0: it is over */
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

/* @return what of @a events is so, or 0: time is over */
static short wait_for(int fd, short events, const bt_otlp_until_t *until)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = events},
                               {.fd = until->wake_fd, .events = POLLIN}};
        /* Once everything has an end, nothing more will be said there. */
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
    }
    freeaddrinfo(found);
    return status;
}

/* ---- one try ---- */

/* Stops where the receiver answers, or ends, before it has all.
 * @return false: it did, or time is over */
static bool send_all(bt_otlp_link_t *link, const char *data, size_t n,
                     int flags, const bt_otlp_until_t *until)
{
    while (n > 0) {
        const ssize_t done = send(link->fd, data, n, flags | MSG_NOSIGNAL);

        if (done > 0) {
            data += done;
            n -= (size_t)done;
            continue;
        }
        if ((done < 0) && (errno != EAGAIN) && (errno != EINTR)) {
            return false;
        }
        if ((wait_for(link->fd, POLLOUT | POLLIN, until) & POLLOUT) == 0) {
            return false;
        }
    }
    return true;
}

/* @param [out] n_p  bytes that came */
static bt_status_t receive(bt_otlp_link_t *link, const bt_otlp_until_t *until,
                           bt_otlp_answer_t *answer, size_t *n_p)
{
    size_t n = 0;

    *n_p = 0;
    for (;;) {
        const bool full = n == BT_OTLP_ANSWER_BYTES;
        bt_otlp_reading_t reading;
        ssize_t got = 0;
        bool late = false;

        if (!full) {
            late = wait_for(link->fd, POLLIN, until) == 0;
            got = late ? 0
                       : recv(link->fd, link->data + n,
                              BT_OTLP_ANSWER_BYTES - n, 0);
            if ((got < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
                continue;
            }
        }
        n += (got > 0) ? (size_t)got : 0;
        *n_p = n;
        reading = bt_otlp_answer_read(link->data, n, got <= 0, answer);
        if (reading == BT_OTLP_GARBAGE) {
            return fail(link, GARBAGE, "");
        }
        if (reading == BT_OTLP_WHOLE) {
            return BT_OK;
        }
        if (got > 0) {
            continue;
        }
        /* No more comes, or none that is wanted. */
        answer->keeps = false;
        if (answer->http_status != 0) {
            return BT_OK; /* it has said what it did with the spans */
        }
        return fail(link,
                    late ? "no answer in time"
                         : "the connection ended without an answer",
                    (got < 0) ? strerror(errno) : "");
    }
}

static bt_status_t ask(bt_otlp_link_t *link, const bt_otlp_request_t *request,
                       const bt_otlp_until_t *until, bt_otlp_answer_t *answer,
                       size_t *n_p)
{
    const bool all =
        send_all(link, request->head, request->head_bytes, MSG_MORE, until) &&
        send_all(link, request->body, request->body_bytes, 0, until);
    bt_status_t status = receive(link, until, answer, n_p);

    if ((status == BT_OK) && !all) {
        answer->keeps = false;
    }
    if ((status != BT_OK) || !answer->keeps) {
        hang_up(link);
    }
    return status;
}

/* A receiver that keeps a connection ends it some day, and that is no fault. */
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
    size_t n = 0;

    if (link->data == NULL) {
        link->data = bt_calloc(BT_OTLP_ANSWER_BYTES, 1);
        if (link->data == NULL) {
            return fail(link, "out of memory", "");
        }
    }
    if ((link->fd >= 0) && is_quiet(link)) {
        status = ask(link, request, until, answer, &n);
        if ((status == BT_OK) || (n > 0) || (left_ms(until) == 0)) {
            return status;
        }
    }
    hang_up(link);
    status = dial(link, url, until);
    return (status == BT_OK) ? ask(link, request, until, answer, &n) : status;
}
