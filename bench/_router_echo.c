/* SPDX-License-Identifier: Apache-2.0 */
/* Server that does nothing, for bench/router.py: measures the machine's own
 * part in the time of a request over loopback, for any server.
 *
 *     router-echo REQUEST_BYTES
 *
 * Prints its port. Each connection sends requests of REQUEST_BYTES bytes, head
 * and body, one at a time; each is answered with a constant response, which
 * looks like a complete answer of one token. Ends at the end of its standard
 * input. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/_half.h"
#include "common/base/thread.h"

#define MAX_CONNECTIONS 4096
#define MAX_EVENTS      256
#define READ_BYTES      65536

static const char body[] =
    "{\"id\":\"cmpl-0123456789abcdef01234567\",\"object\":\"text_completion\","
    "\"created\":1700000000,\"model\":\"tiny\",\"choices\":[{\"index\":0,"
    "\"text\":\"a\",\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":"
    "{\"prompt_tokens\":256,\"completion_tokens\":1,\"total_tokens\":257}}";
static char answer[1024];
static int answer_bytes;
static long got[MAX_CONNECTIONS]; /* of the current request, by descriptor */

static int open_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if ((fd < 0) || (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0) ||
        (listen(fd, MAX_CONNECTIONS) != 0) ||
        (getsockname(fd, (struct sockaddr *)&at, &bytes) != 0)) {
        bt_half_die(BT_OK, "listen: %m");
    }
    printf("{\"port\": %u}\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static void watch(int epoll_fd, int fd)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.fd = fd}};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &wanted) != 0) {
        bt_half_die(BT_OK, "epoll: %m");
    }
}

static void take(int epoll_fd, int listener)
{
    static const int on = 1;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if ((fd < 0) || (fd >= MAX_CONNECTIONS) ||
        (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)) {
        bt_half_die(BT_OK, "accept: %m");
    }
    got[fd] = 0;
    watch(epoll_fd, fd);
}

static void serve(int fd, long request_bytes)
{
    static char bytes[READ_BYTES];
    const ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n <= 0) {
        close(fd);
        return;
    }
    got[fd] += n;
    if (got[fd] < request_bytes) {
        return;
    }
    got[fd] = 0;
    if (send(fd, answer, (size_t)answer_bytes, MSG_NOSIGNAL) != answer_bytes) {
        /* its reader has one request at a time */
        bt_half_die(BT_OK, "send: %m");
    }
}

int main(int argc, char **argv)
{
    struct epoll_event events[MAX_EVENTS];
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    long request_bytes;
    int listener;

    request_bytes = bt_half_number((argc == 2) ? argv[1] : NULL, 1, INT32_MAX);
    bt_thread_works_briefly(); /* as the router */
    answer_bytes = snprintf(answer, sizeof(answer),
                            "HTTP/1.1 200 OK\r\nContent-Type: "
                            "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                            sizeof(body) - 1, body);
    listener = open_port();
    watch(epoll_fd, listener);
    watch(epoll_fd, STDIN_FILENO);
    for (;;) {
        const int n = epoll_wait(epoll_fd, events, MAX_EVENTS, -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == STDIN_FILENO) {
                return 0;
            }
            if (events[i].data.fd == listener) {
                take(epoll_fd, listener);
            } else {
                serve(events[i].data.fd, request_bytes);
            }
        }
    }
}
