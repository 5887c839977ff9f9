/* SPDX-License-Identifier: Apache-2.0 */
/** @file http_fixture.h
 *
 * A server and raw clients on one thread: each step turns the event loop and
 * looks at the sockets, until a condition holds or a deadline passed.
 */
#ifndef BT_TESTS_UNIT_ROUTER_HTTP_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_HTTP_FIXTURE_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/http/http.h"
#include "tests/support/testsupport.h"

#define NL          "\r\n"
#define MAX_OPEN    600
#define PATIENCE_MS 60000 /* only guards a hang */
#define SHORT_MS    100
#define LONG_MS     60000

typedef struct fixture {
    struct event_base *base;
    struct event *tick;
    bt_http_t *http;
    uint16_t port;
    bt_exchange_t *open[MAX_OPEN]; /* requests of /hold that wait */
    bt_strbuf_t bodies[MAX_OPEN];  /* theirs */
    size_t lent[MAX_OPEN];         /* to be given back */
    uint32_t n_open;
    uint32_t n_requests;
    uint32_t n_gone;
    uint32_t n_gathered;
    char last[256]; /* "METHOD path bytes" of the last request */
    bool write_in_gone;
    bool fill_at_once; /* /hold streams until it is dropped */
    uint32_t wake_at;  /* with this request a byte goes into wake_fd */
    int wake_fd;
} fixture_t;

typedef struct client {
    int fd;
    bt_strbuf_t got;
    bool eof; /* or reset */
} client_t;

/* ---- handlers ---- */

static inline void on_request(void *ctx, bt_exchange_t *ex)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OTHER"};
    fixture_t *f = ctx;
    const char *path = bt_exchange_path(ex);
    bt_strbuf_t taken;
    const size_t lent = bt_exchange_take_body(ex, &taken);
    const void *body;
    size_t n_body;

    body = (taken.data != NULL) ? taken.data : "";
    n_body = taken.len;
    f->n_requests++;
    if (f->n_requests == f->wake_at) {
        assert_int_equal(write(f->wake_fd, "x", 1), 1);
    }
    snprintf(f->last, sizeof(f->last), "%s %s %zu",
             methods[bt_exchange_method(ex)], path, n_body);
    bt_exchange_set_user(ex, f);
    if (strcmp(path, "/echo") == 0) {
        bt_exchange_respond(ex, 200, "text/plain", body, n_body);
    } else if (strcmp(path, "/empty") == 0) {
        bt_exchange_respond(ex, 204, NULL, NULL, 0);
    } else if (strcmp(path, "/header") == 0) {
        bt_exchange_add_header(ex, "X-Reply", bt_exchange_header(ex, "x-ask"));
        bt_exchange_add_header(ex, "X-Evil", "a\r\nX-Injected: b");
        bt_exchange_respond(ex, 404, "text/plain", "no", 2);
    } else if (f->fill_at_once) {
        static char chunk[65536];

        bt_exchange_stream_begin(ex, "text/plain");
        while (bt_exchange_stream_write(ex, chunk, sizeof(chunk))) {
        }
    } else {
        assert_true(f->n_open < MAX_OPEN);
        f->bodies[f->n_open] = taken;
        f->lent[f->n_open] = lent;
        f->open[f->n_open++] = ex;
        return;
    }
    bt_strbuf_fini(&taken);
    bt_http_give_back(f->http, lent);
}

static inline void drop_body(fixture_t *f, uint32_t i)
{
    bt_strbuf_fini(&f->bodies[i]);
    bt_http_give_back(f->http, f->lent[i]);
    f->lent[i] = 0;
}

/* @return the exchange, which is open[i] no more. */
static inline bt_exchange_t *take_open(fixture_t *f, uint32_t i)
{
    bt_exchange_t *ex = f->open[i];

    drop_body(f, i);
    f->n_open--;
    f->open[i] = f->open[f->n_open];
    f->bodies[i] = f->bodies[f->n_open];
    f->lent[i] = f->lent[f->n_open];
    f->lent[f->n_open] = 0;
    bt_strbuf_init(&f->bodies[f->n_open], 0);
    return ex;
}

static inline void on_gone(void *ctx, bt_exchange_t *ex)
{
    fixture_t *f = ctx;

    assert_ptr_equal(bt_exchange_user(ex), f);
    f->n_gone++;
    if (f->write_in_gone) { /* must do nothing */
        bt_exchange_stream_begin(ex, "text/plain");
        assert_false(bt_exchange_stream_write(ex, "x", 1));
        bt_exchange_stream_end(ex, "x", 1);
        bt_exchange_respond(ex, 500, "text/plain", "x", 1);
    }
    for (uint32_t i = 0; i < f->n_open; i++) {
        if (f->open[i] == ex) {
            (void)take_open(f, i);
            return;
        }
    }
    assert_true(f->fill_at_once);
}

static inline void format_error(void *ctx, const char *path, int status,
                                const char *message, bt_strbuf_t *out)
{
    (void)ctx;
    bt_strbuf_printf(out, "<%s %d %s>", (path == NULL) ? "-" : path, status,
                     message);
}

/* ---- fixture ---- */

static const bt_http_config_t normal = {.max_body_bytes = 8u << 20,
                                        .header_timeout_ms = LONG_MS,
                                        .body_timeout_ms = LONG_MS,
                                        .idle_timeout_ms = LONG_MS,
                                        .client_buffer_bytes = 256 * 1024,
                                        .max_connections = 1000,
                                        .max_per_client = 1000,
                                        .memory_bytes = 64u << 20};

static inline void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static inline void on_gather(void *ctx)
{
    ((fixture_t *)ctx)->n_gathered++;
}

static inline void start_with(fixture_t *f, const bt_http_config_t *config,
                              bool gathers)
{
    const struct timeval tick = {.tv_usec = 1000};
    char why[BT_NET_WHY_BYTES];
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone,
                                         .ctx = f,
                                         .on_gather =
                                             gathers ? on_gather : NULL};

    memset(f, 0, sizeof(*f));
    f->base = bt_net_loop_create();
    assert_non_null(f->base);
    f->tick = event_new(f->base, -1, EV_PERSIST, on_tick, NULL);
    assert_int_equal(event_add(f->tick, &tick), 0);
    assert_int_equal(bt_http_create(f->base, config, &handlers, &f->http),
                     BT_OK);
    assert_int_equal(
        bt_net_listen(bt_http_net(f->http), "127.0.0.1", 0, &f->port, why),
        BT_OK);
    assert_true(f->port > 0);
}

static inline void start(fixture_t *f, const bt_http_config_t *config)
{
    start_with(f, config, false);
}

static inline void stop(fixture_t *f)
{
    for (uint32_t i = 0; i < MAX_OPEN; i++) {
        drop_body(f, i);
    }
    bt_http_destroy(f->http);
    event_free(f->tick);
    event_base_free(f->base);
}

static inline void read_some(client_t *c)
{
    char data[16384];

    while (!c->eof) {
        const ssize_t n = recv(c->fd, data, sizeof(data), MSG_DONTWAIT);

        if (n > 0) {
            bt_strbuf_append(&c->got, data, (size_t)n);
        } else if ((n == 0) || ((errno != EAGAIN) && (errno != EINTR))) {
            c->eof = true;
        } else {
            return;
        }
    }
}

/* Turn the loop until EXPR holds. */
#define WAIT_FOR(f, expr)                                                 \
    do {                                                                  \
        const uint64_t until_ms = bt_now_ms() + PATIENCE_MS;              \
        while (!(expr)) {                                                 \
            if (bt_now_ms() > until_ms) {                                 \
                fail_msg("waited in vain for " #expr);                    \
            }                                                             \
            assert_int_equal(event_base_loop((f)->base, EVLOOP_ONCE), 0); \
        }                                                                 \
    } while (0)

static inline bool has(client_t *c, const char *text)
{
    read_some(c);
    return (c->got.data != NULL) && (strstr(c->got.data, text) != NULL);
}

static inline bool at_eof(client_t *c)
{
    read_some(c);
    return c->eof;
}

static inline void client_open(fixture_t *f, client_t *c)
{
    static const char room[4096];
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(f->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    bt_strbuf_init(&c->got, 64u << 20);
    /* Room now, so that a test's failing allocation is the server's. */
    bt_strbuf_append(&c->got, room, sizeof(room));
    bt_strbuf_reset(&c->got);
    c->eof = false;
}

static inline void client_close(client_t *c)
{
    close(c->fd);
    bt_strbuf_fini(&c->got);
}

/* Close with RST instead of FIN. */
static inline void client_reset(client_t *c)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};

    assert_int_equal(
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    client_close(c);
}

/* Send all, turning the loop so that the server can take it. */
static inline void client_send(fixture_t *f, client_t *c, const void *data,
                               size_t bytes)
{
    const char *at = data;
    const uint64_t until_ms = bt_now_ms() + PATIENCE_MS;

    while (bytes > 0) {
        const ssize_t n = send(c->fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true((n > 0) || (errno == EAGAIN));
        assert_true(bt_now_ms() < until_ms);
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else {
            event_base_loop(f->base, EVLOOP_NONBLOCK);
        }
    }
}

static inline void client_puts(fixture_t *f, client_t *c, const char *text)
{
    client_send(f, c, text, strlen(text));
}

#define GET(path) "GET " path " HTTP/1.1" NL "Host: h" NL NL
#define HOLD      GET("/hold")
#define POST_5    "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: 5" NL NL
#define POST_CHUNKS \
    "POST /echo HTTP/1.1" NL "Host: h" NL "Transfer-Encoding: chunked" NL NL

/* The answer with its Date taken out; checks that there was one. */
static inline const char *undated(client_t *c)
{
    char *date = (c->got.data == NULL) ? NULL : strstr(c->got.data, "Date: ");
    char *rest;

    assert_non_null(date);
    rest = strstr(date, NL);
    assert_non_null(rest);
    assert_int_equal(rest - date,
                     strlen("Date: Sun, 06 Nov 1994 08:49:37 GMT"));
    rest += 2;
    memmove(date, rest, strlen(rest) + 1);
    c->got.len = strlen(c->got.data);
    return c->got.data;
}

static inline size_t n_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

#endif
