/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: answers, bodies and errors. */
#include <poll.h>

#include "tests/unit/router/http/http_fixture.h"

/* ---- whole answers ---- */

static void get_is_answered(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/ec%68o?x=y"));
    WAIT_FOR(&f, has(&c, NL NL));
    assert_string_equal(undated(&c),
                        "HTTP/1.1 200 OK" NL "Content-Length: 0" NL NL);
    assert_string_equal(f.last, "GET /echo 0");
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 1);
    client_close(&c);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    assert_int_equal(f.n_gone, 0);
    stop(&f);
}

static void keep_alive_connection_serves_many_requests(void **state)
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
        assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 1);
        bt_strbuf_reset(&c.got);
    }
    client_puts(&f, &c,
                "GET /echo HTTP/1.1" NL "Host: h" NL "Connection: close" NL NL
                "dropped");
    WAIT_FOR(&f, at_eof(&c));
    assert_string_equal(undated(&c), "HTTP/1.1 200 OK" NL "Content-Length: 0" NL
                                     "Connection: close" NL NL);
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

static void head_gets_length_without_body(void **state)
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

static void headers_are_passed_without_injection(void **state)
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

static void large_body_is_received_unchanged(void **state)
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

static void expect_100_continue_is_answered(void **state)
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

static void http_1_0_is_supported(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, "GET /echo HTTP/1.0" NL "Connection: keep-alive" NL NL);
    WAIT_FOR(&f, has(&c, NL NL));
    assert_string_equal(undated(&c), "HTTP/1.1 200 OK" NL "Content-Length: 0" NL
                                     "Connection: keep-alive" NL NL);
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

static void chunked_body_is_joined_at_any_split(void **state)
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

static void each_stream_event_is_one_write(void **state)
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

static void bad_requests_get_json_error(void **state)
{
    fixture_t f;

    (void)state;
    start(&f, &normal);
    expect_refusal(&f, "GET / HTTP/1.1" NL NL, "400 Bad Request");
    expect_refusal(&f, "rubbish\nrubbish\n\n", "400 Bad Request");
    expect_refusal(&f, "\x16\x03\x01\x02 TLS" NL NL, "400 Bad Request");
    expect_refusal(&f, "PRI * HTTP/2.0" NL NL, "505 ");
    expect_refusal(&f, "PUT /echo HTTP/1.1" NL "Host: h" NL NL,
                   "405 Method Not Allowed");
    expect_refusal(&f, "BREW /pot HTTP/1.1" NL "Host: h" NL NL,
                   "405 Method Not Allowed");
    expect_refusal(&f, POST_CHUNKS "zz" NL, "400 Bad Request");
    expect_refusal(&f, POST_CHUNKS "1" NL "ab", "400 Bad Request");
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    stop(&f);
}

static void server_errors_use_handler_format(void **state)
{
    const bt_http_handlers_t handlers = {.on_request = on_request,
                                         .on_gone = on_gone,
                                         .format_error = format_error};
    char why[BT_NET_WHY_BYTES];
    fixture_t f;
    client_t c;

    (void)state;
    start(&f, &normal);
    bt_http_destroy(f.http);
    assert_int_equal(bt_http_create(f.base, &normal, &handlers, &f.http),
                     BT_OK);
    assert_int_equal(
        bt_net_listen(bt_http_net(f.http), "127.0.0.1", 0, &f.port, why),
        BT_OK);
    client_open(&f, &c);
    client_puts(&f, &c, "PUT /v1/x HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, at_eof(&c));
    assert_non_null(
        strstr(c.got.data, NL NL
               "</v1/x 405 the method is not GET, HEAD, POST or DELETE>"));
    assert_non_null(strstr(c.got.data, NL "Allow: GET, HEAD, POST, DELETE" NL));
    client_close(&c);
    client_open(&f, &c);
    client_puts(&f, &c, "x" NL NL);
    WAIT_FOR(&f, has(&c, NL NL "<- 400 the request line is malformed>"));
    client_close(&c);
    stop(&f);
}

static void body_over_limit_gets_413_before_reading(void **state)
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
    WAIT_FOR(&f, has(&c, "the body is over the limit of 100 bytes"));
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

static void endless_head_gets_431(void **state)
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

/* Whatever the kernel would take of it at once. */
static void large_answer_is_sent_over_several_turns(void **state)
{
    const size_t bytes = (size_t)4 << 20;
    char *body = bt_calloc(1, bytes);
    bt_exchange_t *ex;
    size_t got, all;
    fixture_t f;
    client_t c;

    (void)state;
    assert_non_null(body);
    memset(body, 'x', bytes);
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, "GET /hold HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, f.n_open == 1);
    ex = take_open(&f, 0);
    bt_exchange_respond(ex, 200, "text/plain", body, bytes);
    do { /* the loop stands still meanwhile */
        struct pollfd fd = {.fd = c.fd, .events = POLLIN};

        got = c.got.len;
        (void)poll(&fd, 1, (got == 0) ? PATIENCE_MS : SHORT_MS);
        read_some(&c);
    } while (c.got.len > got);
    assert_in_range(c.got.len, 1, 256 * 1024);
    all = (size_t)(strstr(c.got.data, NL NL) - c.got.data) + 4 + bytes;
    WAIT_FOR(&f, (read_some(&c), c.got.len >= all));
    assert_int_equal(c.got.len, all);
    assert_memory_equal(c.got.data + all - bytes, body, bytes);
    client_puts(&f, &c, "GET /empty HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, f.n_requests == 2);
    client_close(&c);
    stop(&f);
    bt_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(get_is_answered),
        BT_TEST(keep_alive_connection_serves_many_requests),
        BT_TEST(pipelined_requests_are_answered_in_order),
        BT_TEST(head_gets_length_without_body),
        BT_TEST(headers_are_passed_without_injection),
        BT_TEST(large_body_is_received_unchanged),
        BT_TEST(large_answer_is_sent_over_several_turns),
        BT_TEST(expect_100_continue_is_answered),
        BT_TEST(http_1_0_is_supported),
        BT_TEST(chunked_body_is_joined_at_any_split),
        BT_TEST(each_stream_event_is_one_write),
        BT_TEST(bad_requests_get_json_error),
        BT_TEST(server_errors_use_handler_format),
        BT_TEST(body_over_limit_gets_413_before_reading),
        BT_TEST(endless_head_gets_431),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
