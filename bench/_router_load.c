/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the router, for bench/router.py: one thread, keep-alive.
 *
 *     router-load HOST PORT [tls|triton|grpc]
 *
 * With tls the clients use TLS, and accept any certificate. With triton
 * requests are generate_stream of Triton's HTTP API, with grpc
 * ModelStreamInfer.
 * One command a line on standard input, one line of JSON for each:
 *
 *     closed CONNECTIONS SECONDS TOKENS FILE   each with one request at a time
 *     paced CONNECTIONS SECONDS TOKENS FILE RATE
 *                          requests begin at fixed times, RATE a second, on a
 *                          free connection; latency is measured from the time
 *                          when a request was due
 *     idle CONNECTIONS     opened, and closed at the next command
 *
 * FILE holds the body, for grpc a ModelInferRequest. TOKENS is the required
 * number of tokens of the response: 1 for a complete response, more for a
 * stream. Anything but status 200 and a complete response ends the program, as
 * failed requests give no valid measurement. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/_half.h"
#include "bench/_router_h2.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/thread.h"

#define MAX_CONNECTIONS 20000u
#define MAX_SAMPLES     (4u << 20)
#define MAX_EVENTS      256
#define READ_BYTES      65536
#define ANSWER_BYTES    (1u << 20)
#define PATIENCE_US     UINT64_C(30000000)

typedef struct conn {
    int fd;
    SSL *ssl; /* NULL: plain */
    bool busy;
    size_t sent;
    uint64_t due_us;
    bt_strbuf_t got;
    bt_h2_client_t h2; /* for gRPC, sent as is: */
    bt_strbuf_t out;
} conn_t;

typedef enum dialect {
    OPENAI,
    TRITON,
    GRPC,
} dialect_t;

typedef struct load {
    struct sockaddr_in at;
    int epoll_fd;
    SSL_CTX *tls;  /* NULL: plain */
    conn_t *conns; /* owned */
    uint32_t n_conns;
    dialect_t dialect;
    bt_strbuf_t request; /* for gRPC its message */
    uint32_t n_tokens;
    uint64_t end_us; /* no request begins after this time */
    double gap_us;   /* between requests; 0: closed */
    double next_us;
    uint32_t n_busy;
    uint64_t n_done;
    float *samples; /* owned; microseconds */
} load_t;

static void shake_hands(load_t *l, conn_t *c)
{
    c->ssl = SSL_new(l->tls);
    if ((c->ssl == NULL) || (SSL_set_fd(c->ssl, c->fd) != 1) ||
        (SSL_connect(c->ssl) != 1) ||
        (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0)) {
        bt_half_die(BT_OK, "TLS: the handshake failed");
    }
}

static void connect_one(load_t *l, conn_t *c)
{
    static const int on = 1;
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.ptr = c}};

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if ((c->fd < 0) ||
        (connect(c->fd, (struct sockaddr *)&l->at, sizeof(l->at)) != 0) ||
        (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) ||
        (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, c->fd, &wanted) != 0)) {
        bt_half_die(BT_OK, "connect: %m");
    }
    if (l->tls != NULL) {
        shake_hands(l, c);
    }
    bt_strbuf_init(&c->got, ANSWER_BYTES);
    bt_strbuf_init(&c->out, ANSWER_BYTES);
}

static void open_conns(load_t *l, uint32_t n)
{
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->n_conns = n;
    l->conns = bt_half_zeros(n, sizeof(*l->conns));
    if (l->epoll_fd < 0) {
        bt_half_die(BT_OK, "connections: %m");
    }
    for (uint32_t i = 0; i < n; i++) {
        connect_one(l, &l->conns[i]);
    }
}

static void close_conns(load_t *l)
{
    for (uint32_t i = 0; i < l->n_conns; i++) {
        SSL_free(l->conns[i].ssl);
        close(l->conns[i].fd);
        bt_strbuf_fini(&l->conns[i].got);
        bt_strbuf_fini(&l->conns[i].out);
    }
    bt_free(l->conns);
    l->conns = NULL;
    l->n_conns = 0;
    if (l->epoll_fd >= 0) {
        close(l->epoll_fd);
    }
    l->epoll_fd = -1;
}

static void watch(const load_t *l, conn_t *c, uint32_t events)
{
    struct epoll_event wanted = {.events = events, .data = {.ptr = c}};

    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, c->fd, &wanted) != 0) {
        bt_half_die(BT_OK, "epoll: %m");
    }
}

/* Sends or receives: -1 with errno EAGAIN if not possible now. */
static ssize_t tls_result(const conn_t *c, int rc, size_t n)
{
    const int error = SSL_get_error(c->ssl, rc);

    if (rc == 1) {
        return (ssize_t)n;
    }
    if ((error == SSL_ERROR_WANT_READ) || (error == SSL_ERROR_WANT_WRITE)) {
        errno = EAGAIN;
        return -1;
    }
    errno = EIO;
    return (error == SSL_ERROR_ZERO_RETURN) ? 0 : -1;
}

static ssize_t send_bytes(const conn_t *c, const char *data, size_t bytes)
{
    size_t n = 0;
    int rc;

    if (c->ssl == NULL) {
        return send(c->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    ERR_clear_error();
    rc = SSL_write_ex(c->ssl, data, bytes, &n);
    return tls_result(c, rc, n);
}

static ssize_t receive_bytes(const conn_t *c, char *data, size_t bytes)
{
    size_t n = 0;
    int rc;

    if (c->ssl == NULL) {
        return recv(c->fd, data, bytes, MSG_DONTWAIT);
    }
    ERR_clear_error();
    rc = SSL_read_ex(c->ssl, data, bytes, &n);
    return tls_result(c, rc, n);
}

static void send_more(const load_t *l, conn_t *c)
{
    const bt_strbuf_t *from = (l->dialect == GRPC) ? &c->out : &l->request;

    while (c->sent < from->len) {
        const ssize_t n =
            send_bytes(c, from->data + c->sent, from->len - c->sent);

        if (n > 0) {
            c->sent += (size_t)n;
        } else if (errno == EAGAIN) {
            watch(l, c, EPOLLIN | EPOLLOUT);
            return;
        } else if (errno != EINTR) {
            bt_half_die(BT_OK, "send: %m");
        }
    }
}

static void begin(load_t *l, conn_t *c, uint64_t due_us)
{
    c->busy = true;
    c->due_us = due_us;
    if (l->dialect == GRPC) { /* the last frame may be partial */
        bt_strbuf_consume(&c->out, c->sent);
        bt_h2_client_ask(&c->h2, &l->request, &c->out);
    } else {
        bt_strbuf_reset(&c->got);
    }
    c->sent = 0;
    l->n_busy++;
    send_more(l, c);
}

/* ---- responses ---- */

/* Processes the gRPC response so far. @return whether it is complete */
static bool take_frames(const load_t *l, conn_t *c)
{
    const char *wrong = bt_h2_client_take(&c->h2, &c->got, &c->out);

    if (wrong != NULL) {
        bt_half_die(BT_OK, "an answer is not what was asked for: %s", wrong);
    }
    send_more(l, c);
    return c->h2.over;
}

/* True when the response is complete. */
static bool is_whole(const load_t *l, conn_t *c)
{
    const char *head_end =
        (l->dialect == GRPC) ? NULL : strstr(c->got.data, "\r\n\r\n");
    const char *length;

    if (l->dialect == GRPC) {
        return c->busy && take_frames(l, c);
    }
    if (head_end == NULL) {
        return false;
    }
    length = strstr(c->got.data, "Content-Length: ");
    if ((length != NULL) && (length < head_end)) { /* also for an error */
        return c->got.len - (size_t)(head_end + 4 - c->got.data) >=
               strtoul(length + 16, NULL, 10);
    }
    return memcmp(c->got.data + c->got.len - 5, "0\r\n\r\n", 5) == 0;
}

static uint32_t count(const char *text, const char *word)
{
    uint32_t n = 0;

    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        n++;
    }
    return n;
}

static void check(const load_t *l, const conn_t *c)
{
    const char *text = c->got.data;
    bool ok = strncmp(text, "HTTP/1.1 200 ", 13) == 0;

    if (l->dialect == TRITON) {
        ok = ok && (count(text, "data: {") >= l->n_tokens) &&
             (strstr(text, "\"error\":") == NULL);
    } else if (l->n_tokens >
               1) { /* 'a' is complete text: an event for each token */
        ok = ok &&
             (count(text, "\ndata: {") + count(text, "\r\ndata: {") >=
              l->n_tokens) &&
             (strstr(text, "\"finish_reason\":\"length\"") != NULL) &&
             (strstr(text, "data: [DONE]") != NULL);
    } else {
        ok = ok && (strstr(text, "\"finish_reason\":\"length\"") != NULL) &&
             (strstr(text, "\"completion_tokens\":1,") != NULL);
    }
    if (!ok) {
        bt_half_die(BT_OK, "an answer is not what was asked for: %s", text);
    }
}

static void finish(load_t *l, conn_t *c, uint64_t now_us)
{
    if (l->dialect == GRPC) {
        if (c->h2.n_messages < l->n_tokens) {
            bt_half_die(
                BT_OK, "an answer is not what was asked for: too few messages");
        }
    } else {
        check(l, c);
    }
    if (l->n_done < MAX_SAMPLES) {
        l->samples[l->n_done] = (float)(now_us - c->due_us);
    }
    l->n_done++;
    l->n_busy--;
    c->busy = false;
    if ((l->gap_us == 0) && (now_us < l->end_us)) {
        begin(l, c, bt_now_us());
    }
}

/* @return whether more decrypted data may be buffered */
static bool read_some(load_t *l, conn_t *c)
{
    char bytes[READ_BYTES];
    const ssize_t n = receive_bytes(c, bytes, sizeof(bytes));

    if (n <= 0) {
        if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
            return false;
        }
        bt_half_die(BT_OK, "recv: %s",
                    (n == 0) ? "closed" : strerrordesc_np(errno));
    }
    bt_strbuf_append(&c->got, bytes, (size_t)n);
    if (bt_strbuf_status(&c->got) != BT_OK) {
        bt_half_die(BT_OK, "answer: too long");
    }
    if (is_whole(l, c)) {
        finish(l, c, bt_now_us());
    }
    return (c->ssl != NULL);
}

/* ---- a run ---- */

/* Begins requests that are due, on free connections. @return the time until the
 * next one is due */
static struct timespec begin_due(load_t *l, uint32_t *at)
{
    const uint64_t now_us = bt_now_us();
    double wait_us;

    if (l->gap_us == 0) {
        return (struct timespec){.tv_sec = 1};
    }
    while ((l->next_us <= (double)now_us) && (now_us < l->end_us) &&
           (l->n_busy < l->n_conns)) {
        while (l->conns[*at % l->n_conns].busy) {
            (*at)++;
        }
        begin(l, &l->conns[*at % l->n_conns], (uint64_t)l->next_us);
        l->next_us += l->gap_us;
    }
    wait_us = l->next_us - (double)bt_now_us();
    if ((l->n_busy == l->n_conns) || (now_us >= l->end_us)) {
        wait_us = 1000; /* for a response */
    }
    return (struct timespec){.tv_nsec =
                                 (wait_us > 0) ? (long)(1000 * wait_us) : 0};
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void run(load_t *l, double seconds)
{
    struct epoll_event events[MAX_EVENTS];
    const uint64_t start_us = bt_now_us();
    uint64_t heard_us = start_us, now_us;
    uint32_t at = 0;
    size_t n;

    l->end_us = start_us + (uint64_t)(seconds * 1e6);
    l->next_us = (double)start_us;
    l->n_done = l->n_busy = 0;
    for (uint32_t i = 0; (l->gap_us == 0) && (i < l->n_conns); i++) {
        begin(l, &l->conns[i], bt_now_us());
    }
    while (((now_us = bt_now_us()) < l->end_us) || (l->n_busy > 0)) {
        const struct timespec wait = begin_due(l, &at);
        const int found =
            epoll_pwait2(l->epoll_fd, events, MAX_EVENTS, &wait, NULL);

        for (int i = 0; i < found; i++) {
            conn_t *c = events[i].data.ptr;

            if ((events[i].events & EPOLLOUT) != 0) {
                watch(l, c, EPOLLIN);
                send_more(l, c);
            }
            if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0) {
                while (read_some(l, c)) {
                }
            }
        }
        heard_us = (found > 0) ? now_us : heard_us;
        if ((l->n_busy > 0) && (now_us - heard_us > PATIENCE_US)) {
            bt_half_die(BT_OK, "answers: none for 30 s");
        }
    }
    if (l->n_done == 0) {
        bt_half_die(BT_OK, "answers: none");
    }
    n = (l->n_done < MAX_SAMPLES) ? (size_t)l->n_done : MAX_SAMPLES;
    qsort(l->samples, n, sizeof(*l->samples), by_size);
    printf("{\"requests\": %" PRIu64 ", \"seconds\": %.6f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f}\n",
           l->n_done, (double)(now_us - start_us) / 1e6,
           (double)l->samples[n / 2], (double)l->samples[n * 99 / 100]);
}

static void read_request(load_t *l, const char *path)
{
    FILE *file = fopen(path, "rb");
    bt_strbuf_t body;
    char bytes[READ_BYTES];
    size_t n;

    if (file == NULL) {
        bt_half_die(BT_OK, "%s: %m", path);
    }
    bt_strbuf_init(&body, 16u << 20);
    while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0) {
        bt_strbuf_append(&body, bytes, n);
    }
    fclose(file);
    bt_strbuf_fini(&l->request);
    if (l->dialect != GRPC) {
        bt_strbuf_printf(&l->request,
                         "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n",
                         (l->dialect == TRITON)
                             ? "/v2/models/ensemble/generate_stream"
                             : "/v1/completions",
                         body.len);
    } else if (body.len + 5 > BT_H2_FRAME_BYTES) {
        bt_half_die(BT_OK, "%s: is longer than a frame", path);
    }
    bt_strbuf_append(&l->request, body.data, body.len);
    bt_strbuf_fini(&body);
    if (bt_strbuf_status(&l->request) != BT_OK) {
        bt_half_die(BT_OK, "%s: too long", path);
    }
}

static void obey(load_t *l, const char *const *words, uint32_t n)
{
    const bool paced = strcmp(words[0], "paced") == 0;

    close_conns(l);
    if ((n == 2) && (strcmp(words[0], "idle") == 0)) {
        open_conns(l, bt_half_number(words[1], 1, MAX_CONNECTIONS));
        printf("{\"connections\": %u}\n", l->n_conns);
        return;
    }
    if ((n != (paced ? 6 : 5)) ||
        (!paced && (strcmp(words[0], "closed") != 0))) {
        bt_half_die(BT_OK, "%s: is no command", words[0]);
    }
    open_conns(l, bt_half_number(words[1], 1, MAX_CONNECTIONS));
    l->n_tokens = bt_half_number(words[3], 1, 1u << 20);
    read_request(l, words[4]);
    l->gap_us = paced ? 1e6 / (double)bt_half_number(words[5], 1, 1u << 20) : 0;
    run(l, strtod(words[2], NULL));
}

int main(int argc, char **argv)
{
    load_t l = {.at = {.sin_family = AF_INET}, .epoll_fd = -1};
    const char *words[BT_HALF_MAX_WORDS];
    uint32_t n;

    const char *how = (argc == 4) ? argv[3] : "";

    l.dialect = (strcmp(how, "triton") == 0) ? TRITON
                : (strcmp(how, "grpc") == 0) ? GRPC
                                             : OPENAI;
    if ((argc < 3) || (argc > 4) ||
        ((argc == 4) && (l.dialect == OPENAI) && (strcmp(how, "tls") != 0)) ||
        (inet_pton(AF_INET, argv[1], &l.at.sin_addr) != 1)) {
        bt_half_die(BT_OK, "usage: HOST PORT [tls|triton|grpc]");
    }
    if (strcmp(how, "tls") == 0) {
        signal(SIGPIPE, SIG_IGN);
        l.tls = SSL_CTX_new(TLS_client_method());
        if (l.tls == NULL) {
            bt_half_die(BT_OK, "TLS: no memory");
        }
        SSL_CTX_set_mode(l.tls, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                    SSL_MODE_RELEASE_BUFFERS);
    }
    bt_thread_works_briefly(); /* as on a machine of its own */
    l.at.sin_port = htons((uint16_t)bt_half_number(argv[2], 1, 65535));
    (void)bt_raise_open_fds();
    bt_strbuf_init(&l.request, 16u << 20);
    l.samples = bt_half_zeros(MAX_SAMPLES, sizeof(*l.samples));
    while ((n = bt_half_command(words)) > 0) {
        obey(&l, words, n);
    }
    close_conns(&l);
    SSL_CTX_free(l.tls);
    bt_strbuf_fini(&l.request);
    bt_free(l.samples);
    return 0;
}
