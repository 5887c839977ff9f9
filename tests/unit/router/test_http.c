/* SPDX-License-Identifier: Apache-2.0 */
/* The server and its clients share one thread: each step turns the event loop
 * and looks at the sockets, until a condition holds or a deadline passed. */
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
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/strbuf.h"
#include "router/http/http.h"
#include "tests/support/testsupport.h"

#define NL          "\r\n"
#define MAX_OPEN    600
#define PATIENCE_MS 10000
#define SHORT_MS    100
#define LONG_MS     60000

typedef struct fixture {
    struct event_base *base;
    struct event *tick;
    bt_http_t *http;
    uint16_t port;
    bt_exchange_t *open[MAX_OPEN]; /* requests of /hold that wait */
    uint32_t n_open;
    uint32_t n_requests;
    uint32_t n_gone;
    char last[256]; /* "METHOD path bytes" of the last request */
    bool write_in_gone;
    bool fill_at_once; /* /hold streams until it is dropped */
} fixture_t;

typedef struct client {
    int fd;
    bt_strbuf_t got;
    bool eof; /* or reset */
} client_t;

/* ---- handlers ---- */

static void on_request(void *ctx, bt_exchange_t *ex)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OTHER"};
    fixture_t *f = ctx;
    size_t n_body;
    const void *body = bt_exchange_body(ex, &n_body);
    const char *path = bt_exchange_path(ex);

    f->n_requests++;
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
        f->open[f->n_open++] = ex;
    }
}

static void on_gone(void *ctx, bt_exchange_t *ex)
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
            f->open[i] = f->open[--f->n_open];
            return;
        }
    }
    assert_true(f->fill_at_once);
}

static void format_error(void *ctx, const char *path, int status,
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
                                        .max_connections = 1000};

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static void start(fixture_t *f, const bt_http_config_t *config)
{
    const struct timeval tick = {.tv_usec = 1000};
    const bt_http_handlers_t handlers = {
        .on_request = on_request, .on_gone = on_gone, .ctx = f};

    memset(f, 0, sizeof(*f));
    f->base = event_base_new();
    assert_non_null(f->base);
    f->tick = event_new(f->base, -1, EV_PERSIST, on_tick, NULL);
    assert_int_equal(event_add(f->tick, &tick), 0);
    assert_int_equal(bt_http_create(f->base, config, &handlers, &f->http),
                     BT_OK);
    assert_int_equal(bt_http_listen(f->http, "127.0.0.1", 0, &f->port), BT_OK);
    assert_true(f->port > 0);
}

static void stop(fixture_t *f)
{
    bt_http_destroy(f->http);
    event_free(f->tick);
    event_base_free(f->base);
}

static void read_some(client_t *c)
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

static bool has(client_t *c, const char *text)
{
    read_some(c);
    return (c->got.data != NULL) && (strstr(c->got.data, text) != NULL);
}

static bool at_eof(client_t *c)
{
    read_some(c);
    return c->eof;
}

static void client_open(fixture_t *f, client_t *c)
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

static void client_close(client_t *c)
{
    close(c->fd);
    bt_strbuf_fini(&c->got);
}

/* Close with RST instead of FIN. */
static void client_reset(client_t *c)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};

    assert_int_equal(
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    client_close(c);
}

/* Send all, turning the loop so that the server can take it. */
static void client_send(fixture_t *f, client_t *c, const void *data,
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

static void client_puts(fixture_t *f, client_t *c, const char *text)
{
    client_send(f, c, text, strlen(text));
}

#define GET(path) "GET " path " HTTP/1.1" NL "Host: h" NL NL
#define HOLD      GET("/hold")
#define POST_5    "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: 5" NL NL
#define POST_CHUNKS \
    "POST /echo HTTP/1.1" NL "Host: h" NL "Transfer-Encoding: chunked" NL NL

/* The answer with its Date taken out; checks that there was one. */
static const char *undated(client_t *c)
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

static size_t n_files(void)
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

/* ---- whole answers ---- */

static void a_get_is_answered(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/ec%68o?x=y"));
    WAIT_FOR(&f, has(&c, NL NL));
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Type: text/plain" NL
                        "Content-Length: 0" NL NL);
    assert_string_equal(f.last, "GET /echo 0");
    assert_int_equal(bt_http_n_connections(f.http), 1);
    client_close(&c);
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    assert_int_equal(f.n_gone, 0);
    stop(&f);
}

static void one_connection_carries_many_requests(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    for (uint32_t i = 0; i < 5; i++) {
        client_puts(&f, &c, NL POST_5);
        client_puts(&f, &c, "hello");
        WAIT_FOR(&f, has(&c, NL NL "hello"));
        assert_int_equal(f.n_requests, i + 1);
        assert_int_equal(bt_http_n_connections(f.http), 1);
        bt_strbuf_reset(&c.got);
    }
    client_puts(&f, &c,
                "GET /echo HTTP/1.1" NL "Host: h" NL "Connection: close" NL NL
                "dropped");
    WAIT_FOR(&f, at_eof(&c));
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Type: text/plain" NL
                        "Content-Length: 0" NL "Connection: close" NL NL);
    client_close(&c);
    stop(&f);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, POST_5 "first" HOLD POST_5 "third" HOLD POST_5 "fifth");
    WAIT_FOR(&f, f.n_open == 1);
    WAIT_FOR(&f, has(&c, "first"));
    assert_int_equal(f.n_requests, 2);
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "second", 6);
    assert_int_equal(f.n_requests, 2); /* not from inside our call */
    WAIT_FOR(&f, f.n_open == 1);
    WAIT_FOR(&f, has(&c, "third"));
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "fourth", 6);
    WAIT_FOR(&f, has(&c, "fifth"));
    assert_true(strstr(c.got.data, "first") < strstr(c.got.data, "second"));
    assert_true(strstr(c.got.data, "second") < strstr(c.got.data, "third"));
    assert_true(strstr(c.got.data, "third") < strstr(c.got.data, "fourth"));
    assert_true(strstr(c.got.data, "fourth") < strstr(c.got.data, "fifth"));
    client_close(&c);
    stop(&f);
}

static void head_gets_the_length_without_the_body(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, "HEAD /hold HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_respond(f.open[0], 200, "text/plain", "0123456789", 10);
    client_puts(&f, &c, "HEAD /hold HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, f.n_open == 2);
    bt_exchange_stream_begin(f.open[1], "text/plain");
    assert_true(bt_exchange_stream_write(f.open[1], "abc", 3));
    bt_exchange_stream_end(f.open[1], "def", 3);
    f.n_open = 0;
    client_puts(&f, &c, POST_5 "hello");
    WAIT_FOR(&f, has(&c, "hello"));
    undated(&c);
    undated(&c);
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Type: text/plain" NL
                        "Content-Length: 10" NL NL "HTTP/1.1 200 OK" NL
                        "Content-Type: text/plain" NL
                        "Transfer-Encoding: chunked" NL NL "HTTP/1.1 200 OK" NL
                        "Content-Type: text/plain" NL "Content-Length: 5" NL NL
                        "hello");
    client_close(&c);
    stop(&f);
}

static void headers_go_both_ways_without_injection(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c,
                "GET /header HTTP/1.1" NL "Host: h" NL "X-Ask: what?" NL NL);
    WAIT_FOR(&f, has(&c, NL NL "no"));
    assert_string_equal(undated(&c), "HTTP/1.1 404 Not Found" NL
                                     "Content-Type: text/plain" NL
                                     "Content-Length: 2" NL "X-Reply: what?" NL
                                     "X-Evil: a  X-Injected: b" NL NL "no");
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, "204 No Content"));
    client_close(&c);
    stop(&f);
}

static void a_large_body_comes_back_unharmed(void **state)
{
    const size_t bytes = 5u << 20;
    char head[128];
    char *body = bt_calloc(bytes, 1);
    fixture_t f;
    client_t c;

    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < bytes; i++) {
        body[i] = (char)('a' + (i * 2654435761u >> 16) % 26);
    }
    start(&f, &normal);
    client_open(&f, &c);
    snprintf(head, sizeof(head),
             "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: %zu" NL NL,
             bytes);
    client_puts(&f, &c, head);
    client_send(&f, &c, body, bytes);
    WAIT_FOR(&f, (read_some(&c), c.got.len > bytes));
    assert_memory_equal(c.got.data + c.got.len - bytes, body, bytes);
    client_puts(&f, &c, GET("/empty")); /* the connection is still good */
    WAIT_FOR(&f, has(&c, "204 No Content"));
    client_close(&c);
    bt_free(body);
    stop(&f);
}

static void a_client_that_expects_continue_is_told_so(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL "Expect: 100-continue" NL
                "Content-Length: 5" NL NL);
    WAIT_FOR(&f, has(&c, NL NL));
    assert_string_equal(c.got.data, "HTTP/1.1 100 Continue" NL NL);
    client_puts(&f, &c, "hello");
    WAIT_FOR(&f, has(&c, "hello"));
    client_close(&c);

    client_open(&f, &c); /* too large: told before it sends */
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL "Expect: 100-continue" NL
                "Content-Length: 99999999" NL NL);
    WAIT_FOR(&f, at_eof(&c));
    assert_memory_equal(c.got.data, "HTTP/1.1 413 ", 13);
    client_close(&c);
    stop(&f);
}

static void http_1_0_is_understood(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, "GET /echo HTTP/1.0" NL "Connection: keep-alive" NL NL);
    WAIT_FOR(&f, has(&c, NL NL));
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Type: text/plain" NL
                        "Content-Length: 0" NL "Connection: keep-alive" NL NL);
    bt_strbuf_reset(&c.got);
    client_puts(&f, &c, "GET /hold HTTP/1.0" NL NL);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/plain");
    assert_true(bt_exchange_stream_write(f.open[0], "one", 3));
    bt_exchange_stream_end(f.open[0], "two", 3);
    f.n_open = 0;
    WAIT_FOR(&f, at_eof(&c));
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Type: text/plain" NL
                        "Connection: close" NL NL "onetwo");
    client_close(&c);
    stop(&f);
}

/* ---- chunked bodies and answers ---- */

static void a_chunked_body_is_joined_byte_by_byte(void **state)
{
    static const char text[] =
        POST_CHUNKS "5" NL "hello" NL "6;a" NL " world" NL "0" NL "T: x" NL NL;
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        client_send(&f, &c, text + i, 1);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    WAIT_FOR(&f, has(&c, NL NL "hello world"));
    client_puts(&f, &c, POST_CHUNKS "0" NL NL GET("/empty"));
    WAIT_FOR(&f, has(&c, "204 No Content"));
    assert_int_equal(f.n_requests, 3);
    client_close(&c);
    stop(&f);
}

static void each_event_is_one_write(void **state)
{
    fixture_t f;
    client_t c;
    char data[256];
    ssize_t n;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/event-stream; charset=utf-8");
    WAIT_FOR(&f, has(&c, NL NL)); /* the head does not wait for an event */
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL
                        "Content-Type: text/event-stream; charset=utf-8" NL
                        "Transfer-Encoding: chunked" NL NL);
    for (int i = 0; i < 3; i++) {
        assert_true(bt_exchange_stream_write(f.open[0], "data: {}\n\n", 10));
        n = recv(c.fd, data, sizeof(data), 0);
        assert_int_equal(n, 15);
        assert_memory_equal(data, "a" NL "data: {}\n\n" NL, 15);
    }
    assert_true(bt_exchange_stream_write(f.open[0], "", 0));
    bt_exchange_stream_end(f.open[0], "data: [DONE]\n\n", 14);
    n = recv(c.fd, data, sizeof(data), 0);
    assert_int_equal(n, 24);
    assert_memory_equal(data, "e" NL "data: [DONE]\n\n" NL "0" NL NL, 24);
    f.n_open = 0;
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, "204 No Content"));
    assert_int_equal(f.n_gone, 0);
    client_close(&c);
    stop(&f);
}

/* ---- refusals ---- */

/* Send, expect this status, a JSON error, and the end of the connection. */
static void expect_refusal(fixture_t *f, const char *text, const char *status)
{
    const uint32_t before = f->n_requests;
    client_t c;

    client_open(f, &c);
    client_puts(f, &c, text);
    WAIT_FOR(f, at_eof(&c));
    assert_non_null(c.got.data);
    assert_memory_equal(c.got.data, "HTTP/1.1 ", 9);
    assert_memory_equal(c.got.data + 9, status, strlen(status));
    assert_non_null(strstr(c.got.data, NL "Content-Type: application/json" NL));
    assert_non_null(strstr(c.got.data, NL "Connection: close" NL));
    assert_non_null(strstr(c.got.data, NL NL "{\"error\":\""));
    assert_int_equal(f->n_requests, before);
    client_close(&c);
}

static void bad_requests_get_json_errors(void **state)
{
    fixture_t f;

    (void)state;
    start(&f, &normal);
    expect_refusal(&f, "GET / HTTP/1.1" NL NL, "400 Bad Request");
    expect_refusal(&f, "rubbish\nrubbish\n\n", "400 Bad Request");
    expect_refusal(&f, "\x16\x03\x01\x02 TLS" NL NL, "400 Bad Request");
    expect_refusal(&f, "PRI * HTTP/2.0" NL NL, "505 ");
    expect_refusal(&f, "DELETE /echo HTTP/1.1" NL "Host: h" NL NL,
                   "405 Method Not Allowed");
    expect_refusal(&f, "BREW /pot HTTP/1.1" NL "Host: h" NL NL,
                   "405 Method Not Allowed");
    expect_refusal(&f, POST_CHUNKS "zz" NL, "400 Bad Request");
    expect_refusal(&f, POST_CHUNKS "1" NL "ab", "400 Bad Request");
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    stop(&f);
}

static void errors_take_the_form_that_the_handler_gives(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone,
                                         .format_error = format_error};
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    bt_http_destroy(f.http);
    assert_int_equal(bt_http_create(f.base, &normal, &handlers, &f.http),
                     BT_OK);
    assert_int_equal(bt_http_listen(f.http, "127.0.0.1", 0, &f.port), BT_OK);
    client_open(&f, &c);
    client_puts(&f, &c, "PUT /v1/x HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, at_eof(&c));
    assert_non_null(strstr(c.got.data, NL NL
                           "</v1/x 405 the method is not GET, HEAD or POST>"));
    assert_non_null(strstr(c.got.data, NL "Allow: GET, HEAD, POST" NL));
    client_close(&c);
    client_open(&f, &c);
    client_puts(&f, &c, "x" NL NL);
    WAIT_FOR(&f, has(&c, NL NL "<- 400 the request line is malformed>"));
    client_close(&c);
    stop(&f);
}

static void a_body_over_the_limit_is_refused_before_it_is_read(void **state)
{
    bt_http_config_t config = normal;
    char *body = bt_calloc(3u << 20, 1);
    fixture_t f;
    client_t c;

    (void)state;
    assert_non_null(body);
    config.max_body_bytes = 100;
    start(&f, &config);
    expect_refusal(
        &f, "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: 101" NL NL,
        "413 ");
    expect_refusal(&f, POST_CHUNKS "65" NL, "413 ");
    expect_refusal(&f, POST_CHUNKS "5" NL "hello" NL "60" NL, "413 ");
    expect_refusal(&f, POST_CHUNKS "ffffffffffffffff" NL, "413 ");

    /* A client that sends on regardless still hears why. */
    client_open(&f, &c);
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL
                "Content-Length: 3145728" NL NL);
    client_send(&f, &c, body, 3u << 20);
    WAIT_FOR(&f, has(&c, "413 Content Too Large"));
    WAIT_FOR(&f, at_eof(&c));
    client_close(&c);

    client_open(&f, &c); /* exactly the limit is allowed, both ways */
    client_puts(&f, &c,
                "POST /echo HTTP/1.1" NL "Host: h" NL
                "Content-Length: 100" NL NL);
    client_send(&f, &c, body, 100);
    client_puts(&f, &c, POST_CHUNKS "64" NL);
    client_send(&f, &c, body, 100);
    client_puts(&f, &c, NL "0" NL NL);
    WAIT_FOR(&f, f.n_requests == 2);
    client_close(&c);
    bt_free(body);
    stop(&f);
}

static void a_head_without_end_is_cut_off(void **state)
{
    static char line[1024];
    fixture_t f;
    client_t c;

    (void)state;
    memset(line, 'a', sizeof(line));
    line[1] = ':';
    memcpy(line + sizeof(line) - 2, NL, 2);
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, "GET / HTTP/1.1" NL);
    for (int i = 0; i < 80; i++) {
        client_send(&f, &c, line, sizeof(line));
    }
    WAIT_FOR(&f, has(&c, "431 "));
    WAIT_FOR(&f, at_eof(&c));
    client_close(&c);
    stop(&f);
}

/* ---- deadlines ---- */

static bt_http_config_t short_config(void)
{
    bt_http_config_t config = normal;

    config.header_timeout_ms = SHORT_MS;
    config.body_timeout_ms = SHORT_MS;
    config.idle_timeout_ms = SHORT_MS;
    return config;
}

/* Send one byte per millisecond until the server ends it. */
static uint64_t drip(fixture_t *f, client_t *c, char byte)
{
    const uint64_t start_ms = bt_now_ms();
    uint64_t now_ms = start_ms;

    while (!at_eof(c)) {
        assert_true(now_ms - start_ms < PATIENCE_MS);
        (void)!send(c->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        WAIT_FOR(f, bt_now_ms() > now_ms);
        now_ms = bt_now_ms();
    }
    return now_ms - start_ms;
}

static void a_dripping_head_ends_at_its_deadline(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c;

    (void)state;
    config.header_timeout_ms = SHORT_MS;
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, "GET / HTTP/1.1" NL "X: ");
    assert_true(drip(&f, &c, 'x') >= SHORT_MS - 10);
    assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
    client_close(&c);

    client_open(&f, &c); /* the deadline of a later request is its own */
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, NL NL));
    bt_strbuf_reset(&c.got);
    client_puts(&f, &c, "G");
    WAIT_FOR(&f, at_eof(&c));
    assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
    client_close(&c);
    stop(&f);
}

static void a_dripping_body_ends_at_its_deadline(void **state)
{
    static const char *const heads[] = {
        "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: 999999" NL NL,
        POST_CHUNKS "1;",
        POST_CHUNKS "fffff" NL,
        POST_CHUNKS "0" NL,
    };
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c;

    (void)state;
    config.body_timeout_ms = SHORT_MS;
    start(&f, &config);
    for (size_t i = 0; i < BT_ARRAY_LEN(heads); i++) {
        client_open(&f, &c);
        client_puts(&f, &c, heads[i]);
        assert_true(drip(&f, &c, 'x') >= SHORT_MS - 10);
        assert_memory_equal(c.got.data, "HTTP/1.1 408 Request Timeout", 28);
        client_close(&c);
    }
    assert_int_equal(f.n_requests, 0);
    stop(&f);
}

static void silent_connections_are_closed_without_a_word(void **state)
{
    const bt_http_config_t config = short_config();
    fixture_t f;
    client_t fresh;
    client_t idle;

    (void)state;
    start(&f, &config);
    client_open(&f, &fresh);
    client_open(&f, &idle);
    client_puts(&f, &idle, GET("/empty"));
    WAIT_FOR(&f, has(&idle, NL NL));
    bt_strbuf_reset(&idle.got);
    /* Empty lines are no request and move no deadline. */
    drip(&f, &idle, '\n');
    WAIT_FOR(&f, at_eof(&fresh));
    assert_int_equal(fresh.got.len, 0);
    assert_int_equal(idle.got.len, 0);
    assert_int_equal(bt_http_n_connections(f.http), 0);
    client_close(&fresh);
    client_close(&idle);
    stop(&f);
}

static void no_deadline_runs_while_the_handler_thinks(void **state)
{
    const bt_http_config_t config = short_config();
    fixture_t f;
    client_t c;
    uint64_t start_ms;

    (void)state;
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    start_ms = bt_now_ms();
    WAIT_FOR(&f, bt_now_ms() > start_ms + 3 * SHORT_MS);
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "late", 4);
    WAIT_FOR(&f, has(&c, "late"));
    assert_int_equal(f.n_gone, 0);
    client_close(&c);
    stop(&f);
}

static void a_reader_that_stalls_after_the_answer_is_closed(void **state)
{
    const size_t bytes = 32u << 20; /* more than the kernel's buffers take */
    const bt_http_config_t config = short_config();
    char *body = bt_calloc(bytes, 1);
    fixture_t f;
    client_t c;

    (void)state;
    assert_non_null(body);
    start(&f, &config);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", body, bytes);
    assert_int_equal(bt_http_n_connections(f.http), 1);
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    assert_int_equal(f.n_gone, 0); /* the answer had ended */
    client_close(&c);
    bt_free(body);
    stop(&f);
}

/* ---- clients that leave ---- */

static void a_client_that_leaves_is_noticed_once(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    f.write_in_gone = true;
    for (uint32_t i = 0; i < 8; i++) {
        client_open(&f, &c);
        client_puts(&f, &c, HOLD);
        WAIT_FOR(&f, f.n_open == 1);
        if ((i & 1) != 0) {
            f.write_in_gone = false; /* it has begun */
            bt_exchange_stream_begin(f.open[0], "text/plain");
            assert_true(bt_exchange_stream_write(f.open[0], "x", 1));
        }
        if ((i & 2) != 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        if ((i & 4) != 0) { /* noticed by writing instead of by the loop */
            const uint64_t until_ms = bt_now_ms() + PATIENCE_MS;

            if ((i & 1) == 0) {
                f.write_in_gone = false;
                bt_exchange_stream_begin(f.open[0], "text/plain");
            }
            while (bt_exchange_stream_write(f.open[0], "x", 1)) {
                assert_true(bt_now_ms() < until_ms);
            }
            assert_int_equal(f.n_gone, i + 1);
        }
        WAIT_FOR(&f, f.n_gone == i + 1);
        assert_int_equal(f.n_open, 0);
        assert_int_equal(bt_http_n_connections(f.http), 0);
        f.write_in_gone = true;
    }
    event_base_loop(f.base, EVLOOP_NONBLOCK);
    assert_int_equal(f.n_gone, 8);
    stop(&f);
    assert_int_equal(f.n_gone, 8);
}

static void a_client_that_leaves_behind_many_requests_is_noticed(void **state)
{
    static char junk[1024 * 1024];
    fixture_t f;
    client_t c;

    (void)state;
    memset(junk, 'j', sizeof(junk));
    start(&f, &normal);
    for (uint32_t i = 0; i < 2; i++) {
        client_open(&f, &c);
        client_puts(&f, &c, HOLD);
        WAIT_FOR(&f, f.n_open == 1);
        client_send(&f, &c, junk, sizeof(junk));
        assert_int_equal(f.n_gone, i);
        if (i == 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        WAIT_FOR(&f, f.n_gone == i + 1);
    }

    client_open(&f, &c); /* who stays gets the answer under way */
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    client_send(&f, &c, junk, sizeof(junk));
    for (int i = 0; i < 100; i++) { /* it is all there to be read */
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "last", 4);
    WAIT_FOR(&f, at_eof(&c));
    assert_null(strstr(c.got.data + 1, "HTTP/1.1"));
    assert_non_null(strstr(c.got.data, NL "Connection: close" NL));
    assert_non_null(strstr(c.got.data, "last"));
    client_close(&c);
    stop(&f);
}

static void a_stalled_reader_is_dropped_at_the_cap(void **state)
{
    static char chunk[64 * 1024];
    fixture_t f;
    client_t c;
    uint32_t n = 0;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/plain");
    while (bt_exchange_stream_write(f.open[0], chunk, sizeof(chunk))) {
        assert_true(++n < 2000);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    assert_true(n > 4); /* the cap itself fits */
    assert_int_equal(f.n_gone, 1);
    assert_int_equal(f.n_open, 0);
    assert_int_equal(bt_http_n_connections(f.http), 0);
    client_close(&c);

    client_open(&f, &c); /* dropped while on_request() is on the stack */
    f.fill_at_once = true;
    client_puts(&f, &c, HOLD GET("/echo"));
    WAIT_FOR(&f, f.n_gone == 2);
    assert_int_equal(f.n_requests, 2);
    client_close(&c);
    stop(&f);
}

static void clients_may_vanish_at_any_byte(void **state)
{
    static const char text[] =
        POST_5 "hello" HOLD POST_CHUNKS "5" NL "hello" NL "0" NL NL HOLD;
    fixture_t f;
    client_t c;
    size_t files;

    (void)state;
    start(&f, &normal);
    files = n_files();
    for (size_t i = 0; i < 2 * sizeof(text); i++) {
        client_open(&f, &c);
        client_send(&f, &c, text, i / 2);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
        if ((i & 1) != 0) {
            client_reset(&c);
        } else {
            client_close(&c);
        }
        if (i % 7 == 0) {
            WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
        }
    }
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    assert_int_equal(f.n_open, 0);
    assert_true(f.n_gone > 0);
    assert_int_equal(n_files(), files);
    stop(&f);
}

/* ---- many, too many, the end ---- */

static void five_hundred_connections_are_served_at_once(void **state)
{
    enum { N = 500 };
    static client_t clients[N];
    fixture_t f;
    size_t files;

    (void)state;
    start(&f, &normal);
    files = n_files();
    for (uint32_t i = 0; i < N; i++) {
        client_open(&f, &clients[i]);
        client_puts(&f, &clients[i], HOLD);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    WAIT_FOR(&f, f.n_open == N);
    assert_int_equal(bt_http_n_connections(f.http), N);
    for (uint32_t i = 0; i < N; i++) {
        char text[32];

        snprintf(text, sizeof(text), "answer %u.", i);
        bt_exchange_stream_begin(f.open[i], "text/plain");
        assert_true(bt_exchange_stream_write(f.open[i], text, strlen(text)));
    }
    for (uint32_t i = 0; i < N; i++) {
        bt_exchange_stream_end(f.open[i], "end", 3);
    }
    f.n_open = 0;
    for (uint32_t i = 0; i < N; i++) {
        char text[32];

        /* Accepted in the order of connecting, so answered in it. */
        snprintf(text, sizeof(text), "answer %u.", i);
        WAIT_FOR(&f, has(&clients[i], "end" NL "0" NL NL));
        assert_non_null(strstr(clients[i].got.data, text));
        client_close(&clients[i]);
    }
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    assert_int_equal(f.n_gone, 0);
    assert_int_equal(n_files(), files);
    stop(&f);
}

static void over_the_limit_the_longest_idle_gives_way(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t a;
    client_t b;
    client_t c;
    client_t d;

    (void)state;
    config.max_connections = 2;
    start(&f, &config);
    client_open(&f, &a);
    client_puts(&f, &a, GET("/empty"));
    WAIT_FOR(&f, has(&a, NL NL));
    client_open(&f, &b);
    client_puts(&f, &b, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    client_open(&f, &c);
    client_puts(&f, &c, HOLD);
    WAIT_FOR(&f, f.n_open == 2); /* at a's cost */
    WAIT_FOR(&f, at_eof(&a));

    client_open(&f, &d); /* nobody is idle */
    WAIT_FOR(&f, at_eof(&d));
    assert_string_equal(
        d.got.data, "HTTP/1.1 503 Service Unavailable" NL
                    "Content-Type: application/json" NL "Content-Length: 45" NL
                    "Retry-After: 1" NL "Connection: close" NL NL
                    "{\"error\":\"the server has no connection left\"}");
    assert_int_equal(f.n_gone, 0);
    client_close(&a);
    client_close(&b);
    client_close(&c);
    client_close(&d);
    stop(&f);
}

static void stopping_lets_open_exchanges_end(void **state)
{
    fixture_t f;
    client_t held;
    client_t idle;

    (void)state;
    start(&f, &normal);
    client_open(&f, &held);
    client_puts(&f, &held, HOLD);
    client_open(&f, &idle);
    client_puts(&f, &idle, GET("/empty"));
    WAIT_FOR(&f, has(&idle, NL NL) && (f.n_open == 1));
    bt_http_stop_listening(f.http);
    WAIT_FOR(&f, at_eof(&idle));
    f.n_open = 0;
    bt_exchange_respond(f.open[0], 200, "text/plain", "done", 4);
    WAIT_FOR(&f, at_eof(&held));
    assert_non_null(strstr(held.got.data, NL "Connection: close" NL));
    assert_non_null(strstr(held.got.data, "done"));
    client_close(&held);
    client_close(&idle);
    WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    stop(&f);
}

static void destroying_tells_the_open_exchanges(void **state)
{
    fixture_t f;
    client_t c[3];
    const size_t files = n_files();

    (void)state;
    start(&f, &normal);
    for (int i = 0; i < 3; i++) {
        client_open(&f, &c[i]);
        client_puts(&f, &c[i], (i == 2) ? POST_5 : HOLD);
    }
    WAIT_FOR(&f, (f.n_open == 2) && (bt_http_n_connections(f.http) == 3));
    bt_exchange_stream_begin(f.open[1], "text/plain");
    stop(&f);
    assert_int_equal(f.n_gone, 2);
    assert_int_equal(f.n_open, 0);
    for (int i = 0; i < 3; i++) {
        client_close(&c[i]);
    }
    assert_int_equal(n_files(), files);
}

static void an_address_in_use_is_reported(void **state)
{
    fixture_t f;
    uint16_t port = 0;

    (void)state;
    start(&f, &normal);
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_http_listen(f.http, "127.0.0.1", f.port, &port),
                     BT_ERR_IO);
    assert_int_equal(bt_http_listen(f.http, "203.0.113.7", 0, &port),
                     BT_ERR_IO); /* RFC 5737: nobody's address */
    assert_int_equal(port, 0);
    assert_int_equal(bt_http_listen(f.http, "127.0.0.2", 0, &port), BT_OK);
    assert_true(port > 0);
    stop(&f);
}

static void create_checks_its_configuration(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone};
    const bt_http_handlers_t none = {.on_request = on_request};
    bt_http_config_t config = normal;
    bt_http_t *http = NULL;

    (void)state;
    assert_int_equal(bt_http_create(NULL, &config, &none, &http),
                     BT_ERR_INVALID_PARAM);
    config.idle_timeout_ms = 0;
    assert_int_equal(bt_http_create(NULL, &config, &handlers, &http),
                     BT_ERR_INVALID_PARAM);
    assert_null(http);
    bt_http_destroy(NULL);
}

static void create_survives_every_failed_allocation(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone};
    struct event_base *base = event_base_new();
    bt_http_t *http = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_http_create(base, &normal, &handlers, &http);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(http);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 3); /* the server, its scratch, then success */
    bt_http_destroy(http);
    event_base_free(base);
}

/* Whatever allocation fails, one client loses at most its own request. */
static void serving_survives_every_failed_allocation(void **state)
{
    fixture_t f;
    client_t c;
    const size_t files = n_files();

    (void)state;
    start(&f, &normal);
    for (int nth = 1; nth < 24; nth++) {
        client_open(&f, &c);
        bt_alloc_fail_at(nth);
        client_puts(&f, &c, HOLD POST_CHUNKS "5" NL "hello" NL "0" NL NL);
        WAIT_FOR(&f, (f.n_open == 1) || at_eof(&c));
        if (f.n_open == 1) {
            bt_exchange_t *ex = f.open[0];

            bt_exchange_stream_begin(ex, "text/plain");
            if (bt_exchange_stream_write(ex, "hello", 5)) {
                f.n_open = 0;
                bt_exchange_stream_end(ex, "end", 3);
                WAIT_FOR(&f, has(&c, NL NL "hello") || at_eof(&c));
            }
        }
        bt_alloc_fail_at(0);
        assert_int_equal(f.n_open, 0);
        client_close(&c);
        WAIT_FOR(&f, bt_http_n_connections(f.http) == 0);
    }
    client_open(&f, &c);
    client_puts(&f, &c, POST_5 "hello");
    WAIT_FOR(&f, has(&c, NL NL "hello"));
    client_close(&c);
    stop(&f);
    assert_int_equal(n_files(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_get_is_answered),
        BT_TEST(one_connection_carries_many_requests),
        BT_TEST(pipelined_requests_are_answered_in_order),
        BT_TEST(head_gets_the_length_without_the_body),
        BT_TEST(headers_go_both_ways_without_injection),
        BT_TEST(a_large_body_comes_back_unharmed),
        BT_TEST(a_client_that_expects_continue_is_told_so),
        BT_TEST(http_1_0_is_understood),
        BT_TEST(a_chunked_body_is_joined_byte_by_byte),
        BT_TEST(each_event_is_one_write),
        BT_TEST(bad_requests_get_json_errors),
        BT_TEST(errors_take_the_form_that_the_handler_gives),
        BT_TEST(a_body_over_the_limit_is_refused_before_it_is_read),
        BT_TEST(a_head_without_end_is_cut_off),
        BT_TEST(a_dripping_head_ends_at_its_deadline),
        BT_TEST(a_dripping_body_ends_at_its_deadline),
        BT_TEST(silent_connections_are_closed_without_a_word),
        BT_TEST(no_deadline_runs_while_the_handler_thinks),
        BT_TEST(a_reader_that_stalls_after_the_answer_is_closed),
        BT_TEST(a_client_that_leaves_is_noticed_once),
        BT_TEST(a_client_that_leaves_behind_many_requests_is_noticed),
        BT_TEST(a_stalled_reader_is_dropped_at_the_cap),
        BT_TEST(clients_may_vanish_at_any_byte),
        BT_TEST(five_hundred_connections_are_served_at_once),
        BT_TEST(over_the_limit_the_longest_idle_gives_way),
        BT_TEST(stopping_lets_open_exchanges_end),
        BT_TEST(destroying_tells_the_open_exchanges),
        BT_TEST(an_address_in_use_is_reported),
        BT_TEST(create_checks_its_configuration),
        BT_TEST(create_survives_every_failed_allocation),
        BT_TEST(serving_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
