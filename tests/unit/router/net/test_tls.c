/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server over TLS, with raw clients. */
#include "tests/unit/router/net/tls_fixture.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static bt_tls_t *tls; /* of the whole file */

static void a_plain_client_gets(fixture_t *f, const char *text,
                                const char *answer)
{
    client_t c;

    client_open(f, &c);
    client_puts(f, &c, text);
    WAIT_FOR(f, at_eof(&c));
    if (answer == NULL) {
        assert_int_equal(c.got.len, 0);
    } else {
        assert_non_null(c.got.data);
        assert_non_null(strstr(c.got.data, answer));
    }
    client_close(&c);
    WAIT_FOR(f, bt_net_n_connections(bt_http_net(f->http)) == 0);
}

static void answers_are_equal_with_and_without_tls(void **state)
{
    static const char asks[] =
        POST_5 "hello" GET("/header") POST_CHUNKS "3" NL "abc" NL "0" NL NL;
    fixture_t f;
    fixture_t plain;
    tls_client_t t;
    client_t c;

    (void)state;
    start(&plain, &normal);
    client_open(&plain, &c);
    client_puts(&plain, &c, asks);
    WAIT_FOR(&plain, has(&c, NL NL "abc"));

    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    tls_puts(&f, &t, asks);
    WAIT_FOR(&f, tls_has(&t, NL NL "abc"));
    assert_int_equal(f.n_requests, 3);
    for (int i = 0; i < 3; i++) { /* the dates may differ */
        (void)undated(&c);
        (void)undated(&t.c);
    }
    assert_string_equal(t.c.got.data, c.got.data);
    expect_echo(&f, &t);

    tls_close(&t);
    stop(&f);
    client_close(&c);
    stop(&plain);
}

static void large_bodies_pass_both_ways_to_a_slow_reader(void **state)
{
    const size_t n = 6 * MIB + 12345;
    char *body = malloc(n);
    fixture_t f;
    tls_client_t t;
    char head[128];

    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < n; i++) {
        body[i] = (char)('a' + (i * 31 + i / 251) % 26);
    }
    tls_start(&f, tls, &normal);
    for (int slow = 0; slow < 2; slow++) {
        const char *got;

        tls_open(&f, &t);
        snprintf(head, sizeof(head),
                 "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: %zu" NL
                 "Connection: close" NL NL,
                 n);
        tls_puts(&f, &t, head);
        tls_send(&f, &t, body, n);
        if (slow == 1) { /* the loop has nothing more to do by itself */
            for (int i = 0; i < 300; i++) {
                event_base_loop(f.base, EVLOOP_NONBLOCK);
            }
            assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 1);
        }
        WAIT_FOR(&f, tls_eof(&t));
        assert_true(t.ended); /* it was no cut */
        got = strstr(t.c.got.data, NL NL);
        assert_non_null(got);
        assert_int_equal(t.c.got.len - (size_t)(got + 4 - t.c.got.data), n);
        assert_memory_equal(got + 4, body, n);
        tls_close(&t);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    }
    stop(&f);
    free(body);
}

/* 64 KiB are read in a turn. What is left here came with the last record of
 * them and waits decrypted, or nearly, while the socket has nothing. */
static void decrypted_rest_of_a_read_is_delivered(void **state)
{
    enum { LEFT = 50 };
    static char text[64 * 1024 + LEFT];
    fixture_t f;
    tls_client_t t;
    int n_head;

    (void)state;
    memset(text, 'x', sizeof(text));
    n_head = snprintf(text, sizeof(text),
                      "POST /echo HTTP/1.1" NL "Host: h" NL
                      "Content-Length: %zu" NL NL,
                      sizeof(text) - 59);
    assert_int_equal(n_head, 55);
    text[n_head] = 'x';
    memcpy(text + sizeof(text) - 4, "GET ", 4); /* begins another */
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    for (size_t i = 0; i < 64; i++) { /* until the socket takes so much */
        tls_send(&f, &t, text, sizeof(text) - 4);
        WAIT_FOR(&f, f.n_requests == i + 1);
    }
    tls_step(&t);
    tls_next(&t);
    tls_send(&f, &t, text, sizeof(text)); /* at once: the loop stands still */
    WAIT_FOR(&f, f.n_requests == 65);
    WAIT_FOR(&f, tls_has(&t, "xxx"));
    tls_puts(&f, &t, "/empty HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, f.n_requests == 66);
    tls_close(&t);
    stop(&f);
}

/* Each byte is a record of its own; all are there before the server looks. */
static void tiny_records_take_many_turns(void **state)
{
    enum { N = 1000 };
    char head[128];
    fixture_t f;
    tls_client_t t;
    uint32_t turns = 0;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    expect_echo(&f, &t);
    snprintf(head, sizeof(head),
             "POST /echo HTTP/1.1" NL "Host: h" NL "Content-Length: %d" NL NL,
             N);
    tls_puts(&f, &t, head);
    for (int i = 0; i < N; i++) {
        tls_puts(&f, &t, "x");
    }
    for (turns = 0; f.n_requests == 1; turns++) {
        assert_true(turns < 100 * N);
        event_base_loop(f.base, EVLOOP_ONCE);
    }
    assert_true(turns >= N / 64);
    tls_close(&t);
    stop(&f);
}

static void pieces_of_a_stream_arrive_one_by_one(void **state)
{
    fixture_t f;
    tls_client_t t;
    bt_exchange_t *ex;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    tls_puts(&f, &t, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    ex = f.open[0];
    f.n_open = 0;
    bt_exchange_stream_begin(ex, "text/event-stream");
    assert_true(bt_exchange_stream_write(ex, "one\n", 4));
    WAIT_FOR(&f, tls_has(&t, "4" NL "one\n" NL));
    assert_true(bt_exchange_stream_write(ex, "two\n", 4));
    WAIT_FOR(&f, tls_has(&t, "4" NL "two\n" NL));
    bt_exchange_stream_end(ex, "end", 3);
    WAIT_FOR(&f, tls_has(&t, "3" NL "end" NL "0" NL NL));
    expect_echo(&f, &t);
    tls_close(&t);
    stop(&f);
}

static void client_leaving_is_noticed_while_its_request_waits(void **state)
{
    fixture_t f;
    tls_client_t t;

    (void)state;
    tls_start(&f, tls, &normal);
    for (uint32_t how = 0; how < 3; how++) {
        tls_open(&f, &t);
        tls_puts(&f, &t, HOLD);
        WAIT_FOR(&f, f.n_open == 1);
        assert_int_equal(f.n_gone, how);
        if (how == 0) {
            tls_close(&t); /* FIN alone */
        } else if (how == 1) {
            tls_forget(&t);
            client_reset(&t.c);
        } else {
            ssl_owner = CLIENT; /* close_notify alone: the socket stays */
            assert_int_equal(SSL_shutdown(t.ssl), 0);
            ssl_owner = SERVER;
        }
        WAIT_FOR(&f, f.n_gone == how + 1);
        if (how == 2) {
            tls_close(&t);
        }
    }
    stop(&f);
}

static void stalled_reader_is_closed_at_the_limit(void **state)
{
    static char chunk[64 * 1024];
    fixture_t f;
    tls_client_t t;
    uint32_t n = 0;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    tls_puts(&f, &t, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    bt_exchange_stream_begin(f.open[0], "text/plain");
    while (bt_exchange_stream_write(f.open[0], chunk, sizeof(chunk))) {
        assert_true(++n < 2000);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    assert_true(n > 4);
    assert_int_equal(f.n_gone, 1);
    assert_int_equal(bt_net_n_connections(bt_http_net(f.http)), 0);
    WAIT_FOR(&f, tls_eof(&t));
    assert_false(t.ended); /* what is cut does not look whole */
    tls_close(&t);
    stop(&f);
}

static void quiet_connection_ends_with_close_notify(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    tls_client_t t;

    (void)state;
    config.idle_timeout_ms = SHORT_MS;
    tls_start(&f, tls, &config);
    tls_open(&f, &t);
    expect_echo(&f, &t);
    WAIT_FOR(&f, tls_eof(&t));
    assert_true(t.ended);
    tls_close(&t);
    stop(&f);
}

static void plain_http_is_answered_and_garbage_closed(void **state)
{
    fixture_t f;

    (void)state;
    tls_start(&f, tls, &normal);
    a_plain_client_gets(&f, GET("/echo"), "HTTP/1.1 400 Bad Request" NL);
    a_plain_client_gets(&f, GET("/echo"), "this port speaks TLS: use https://");
    a_plain_client_gets(&f, POST_5 "hello", "HTTP/1.1 400 ");
    /* An alert, of RFC 8446, 6: */
    a_plain_client_gets(&f, "\x16\x03\x01\xff\xff garbage, no hello",
                        "\x15\x03");
    a_plain_client_gets(&f, "\r\n\r\n\r\n\r\n", NULL);
    a_plain_client_gets(&f, "PRI * HTTP/2.0" NL NL "SM" NL NL, NULL);
    assert_int_equal(f.n_requests, 0);
    stop(&f);
}

static void tls_to_a_plain_port_is_refused_at_once(void **state)
{
    fixture_t f;
    tls_client_t t;

    (void)state;
    start(&f, &normal);
    tls_connect(&f, &t, client_ctx());
    tls_step(&t); /* its hello has no line end; it is no head either */
    shutdown(t.c.fd, SHUT_WR);
    WAIT_FOR(&f, tls_eof(&t));
    assert_false(t.shaken);
    tls_close(&t);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    stop(&f);
}

/* What a client sends in a handshake and a request, taken from one that speaks
 * into memory. */
static size_t hello_of(char *out, size_t most)
{
    SSL_CTX *ctx = client_ctx();
    int n;

    ssl_owner = CLIENT;
    SSL *ssl = SSL_new(ctx);
    BIO *to = BIO_new(BIO_s_mem());

    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), to);
    SSL_set_connect_state(ssl);
    (void)SSL_do_handshake(ssl);
    n = BIO_read(to, out, (int)most);
    assert_true(n > 0);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ssl_owner = SERVER;
    return (size_t)n;
}

static void hello_may_end_at_any_byte(void **state)
{
    char hello[2048];
    const size_t n = hello_of(hello, sizeof(hello));
    fixture_t f;
    tls_client_t t;
    size_t files;

    (void)state;
    tls_start(&f, tls, &normal);
    files = n_files();
    for (size_t at = 0; at < n; at += (at < 16) ? 1 : 13) {
        client_t c;

        client_open(&f, &c);
        client_send(&f, &c, hello, at);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 1);
        if (at % 2 == 0) {
            client_close(&c);
        } else {
            client_reset(&c);
        }
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    }
    assert_int_equal(n_files(), files);
    tls_open(&f, &t);
    expect_echo(&f, &t);
    tls_close(&t);
    stop(&f);
}

/* Each byte of a large hello comes in a record of its own, all at once. */
static void hello_of_many_records_takes_many_steps(void **state)
{
    static char hello[32 * 1024], records[6 * sizeof(hello)];
    static unsigned char names[9 * 700];
    size_t n = 0;
    size_t n_hello;
    bt_tls_session_t *session;
    uint32_t steps;
    int pair[2];
    SSL_CTX *ctx = client_ctx();
    SSL *ssl;
    BIO *to;

    (void)state;
    for (size_t i = 0; i < sizeof(names); i += 9) {
        memcpy(names + i, "\x08http/1.1", 9);
    }
    ssl_owner = CLIENT;
    ssl = SSL_new(ctx);
    to = BIO_new(BIO_s_mem());
    assert_int_equal(SSL_set_alpn_protos(ssl, names, sizeof(names)), 0);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), to);
    SSL_set_connect_state(ssl);
    (void)SSL_do_handshake(ssl);
    n_hello = (size_t)BIO_read(to, hello, sizeof(hello));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ssl_owner = SERVER;
    assert_in_range(n_hello, sizeof(names), sizeof(hello) - 1);
    for (size_t i = 5; i < n_hello; i++) { /* behind the head of its record */
        memcpy(records + n, "\x16\x03\x01\x00\x01", 5);
        records[n + 5] = hello[i];
        n += 6;
    }

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair),
                     0);
    assert_int_equal(send(pair[1], records, n, 0), n);
    session = bt_tls_begin(tls, pair[0], "http/1.1");
    assert_non_null(session);
    for (steps = 0; recv(pair[1], hello, sizeof(hello), 0) < 0; steps++) {
        assert_true(steps < 100);
        assert_int_equal(bt_tls_handshake(session), BT_TLS_WANTS_READ);
    }
    assert_int_equal(hello[0], 0x16); /* a hello as well */
    assert_in_range(steps, n / (16 * 1024), n / (16 * 1024) + 1);
    bt_tls_end(session);
    close(pair[0]);
    close(pair[1]);
}

static void handshake_bytes_may_arrive_slowly(void **state)
{
    char bytes[8192];
    fixture_t f;
    client_t c;
    SSL_CTX *ctx = client_ctx();
    SSL *ssl;
    BIO *from;
    BIO *to;
    int rc = 0;

    (void)state;
    ssl_owner = CLIENT;
    from = BIO_new(BIO_s_mem());
    to = BIO_new(BIO_s_mem());
    ssl = SSL_new(ctx);
    SSL_set_bio(ssl, from, to);
    SSL_set_connect_state(ssl);
    ssl_owner = SERVER;
    tls_start(&f, tls, &normal);
    client_open(&f, &c);
    for (int i = 0; (i < 1000) && (rc != 1); i++) {
        int n;

        ssl_owner = CLIENT;
        rc = SSL_do_handshake(ssl);
        n = BIO_read(to, bytes, sizeof(bytes));
        ssl_owner = SERVER;
        for (int at = 0; at < n; at++) {
            client_send(&f, &c, bytes + at, 1);
            event_base_loop(f.base, EVLOOP_NONBLOCK);
        }
        event_base_loop(f.base, EVLOOP_ONCE);
        read_some(&c);
        ssl_owner = CLIENT;
        if (c.got.len > 0) {
            BIO_write(from, c.got.data, (int)c.got.len);
            bt_strbuf_reset(&c.got);
        }
        ssl_owner = SERVER;
    }
    assert_int_equal(rc, 1);
    ssl_owner = CLIENT;
    assert_true(SSL_write(ssl, HOLD, (int)strlen(HOLD)) > 0);
    rc = BIO_read(to, bytes, sizeof(bytes));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ssl_owner = SERVER;
    for (int at = 0; at < rc; at++) {
        client_send(&f, &c, bytes + at, 1);
        event_base_loop(f.base, EVLOOP_NONBLOCK);
    }
    WAIT_FOR(&f, f.n_open == 1);
    client_close(&c);
    WAIT_FOR(&f, f.n_gone == 1);
    stop(&f);
}

static void handshake_has_the_header_timeout(void **state)
{
    char hello[2048];
    const size_t n = hello_of(hello, sizeof(hello));
    bt_http_config_t config = normal;
    const size_t sent[] = {0, 1, n / 2, n};
    fixture_t f;

    (void)state;
    config.header_timeout_ms = SHORT_MS;
    tls_start(&f, tls, &config);
    for (size_t i = 0; i < BT_ARRAY_LEN(sent); i++) {
        client_t c;

        client_open(&f, &c);
        client_send(&f, &c, hello, sent[i]);
        WAIT_FOR(&f, at_eof(&c));
        client_close(&c);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    }
    assert_int_equal(f.n_requests, 0);
    stop(&f);
}

static void full_table_closes_handshakes_first(void **state)
{
    bt_http_config_t config = normal;
    bt_net_use_t use;
    fixture_t f;
    tls_client_t held;
    tls_client_t last;
    client_t silent;

    (void)state;
    config.max_connections = 2;
    tls_start(&f, tls, &config);
    client_open(&f, &silent);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 1);
    tls_open(&f, &held);
    tls_puts(&f, &held, HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    tls_open(&f, &last); /* at the cost of who never began */
    WAIT_FOR(&f, at_eof(&silent));
    tls_puts(&f, &last, HOLD);
    WAIT_FOR(&f, f.n_open == 2);
    client_close(&silent);

    client_open(&f, &silent); /* none is quiet: not a word without TLS */
    WAIT_FOR(&f, at_eof(&silent));
    assert_int_equal(silent.got.len, 0);
    bt_net_use(bt_http_net(f.http), &use);
    assert_int_equal(use.n_quiet_closed, 1);
    assert_int_equal(use.n_turned_away, 1);
    client_close(&silent);
    tls_close(&held);
    tls_close(&last);
    WAIT_FOR(&f, f.n_gone == 2);
    stop(&f);
}

/* While many shake hands, others have their turns. */
static void many_handshakes_take_many_turns(void **state)
{
    enum { N = 60 };
    static tls_client_t many[N];
    identity_t rsa = identity_make("rsa", NULL, true, 2);
    bt_tls_t *slow;
    uint32_t n_done = 0;
    fixture_t f;
    uint32_t turns = 0;

    (void)state;
    write_pair(&rsa);
    slow = tls_make(&tls_files);
    tls_start(&f, slow, &normal);
    for (int i = 0; i < N; i++) {
        tls_connect(&f, &many[i], client_ctx());
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == N);
    for (int i = 0; i < N; i++) {
        tls_step(&many[i]); /* the hellos are all there to be read */
    }
    while (n_done < N) {
        event_base_loop(f.base, EVLOOP_ONCE);
        assert_true(++turns < 100000);
        n_done = 0;
        for (int i = 0; i < N; i++) {
            struct pollfd answer = {.fd = many[i].c.fd, .events = POLLIN};

            n_done += (poll(&answer, 1, 0) == 1);
        }
    }
    /* 60 signatures of RSA-2048 are no millisecond anywhere. */
    assert_true(turns > 3);
    for (int i = 0; i < N; i++) {
        WAIT_FOR(&f, tls_shaken(&many[i]));
        tls_close(&many[i]);
    }
    stop(&f);
    bt_tls_destroy(slow);
    identity_free(&rsa);
}

static void session_memory_is_within_the_charge(void **state)
{
    enum { N = 20 };
    static tls_client_t idle[N];
    char hello[2048];
    const size_t n_hello = hello_of(hello, sizeof(hello));
    bt_net_use_t use;
    client_t half[N];
    fixture_t f;
    size_t before;
    size_t each;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &idle[0]); /* what OpenSSL makes once is made */
    expect_echo(&f, &idle[0]);
    tls_close(&idle[0]);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    bt_net_use(bt_http_net(f.http), &use);
    assert_int_equal(use.request_bytes, 0);

    before = ssl_bytes[SERVER];
    for (int i = 0; i < N; i++) {
        tls_open(&f, &idle[i]);
        expect_echo(&f, &idle[i]);
    }
    each = (ssl_bytes[SERVER] - before) / N;
    print_message("an idle session: %zu bytes\n", each);
    assert_in_range(each, 1, BT_TLS_IDLE_BYTES);
    bt_net_use(bt_http_net(f.http), &use);
    assert_in_range(use.request_bytes, N * BT_TLS_IDLE_BYTES,
                    N * (BT_TLS_IDLE_BYTES + 4 * KIB));
    for (int i = 0; i < N; i++) {
        tls_close(&idle[i]);
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);

    before = ssl_bytes[SERVER];
    for (int i = 0; i < N; i++) {
        client_open(&f, &half[i]);
        client_send(&f, &half[i], hello, n_hello);
        WAIT_FOR(&f, (read_some(&half[i]), half[i].got.len > 0));
    }
    each = (ssl_bytes[SERVER] - before) / N;
    print_message("one in its handshake: %zu bytes\n", each);
    assert_in_range(each, 1, BT_TLS_HANDSHAKE_BYTES);
    bt_net_use(bt_http_net(f.http), &use);
    assert_int_equal(use.request_bytes, N * BT_TLS_HANDSHAKE_BYTES);
    for (int i = 0; i < N; i++) {
        client_close(&half[i]);
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    bt_net_use(bt_http_net(f.http), &use);
    assert_int_equal(use.request_bytes, 0);
    stop(&f);
}

/* Whatever allocation fails, one client loses at most its own connection. */
static void serving_survives_every_failed_allocation(void **state)
{
    const size_t files = n_files();
    bool whole = false;
    fixture_t f;
    tls_client_t t;
    long nth = 0;

    (void)state;
    tls_start(&f, tls, &normal);
    while (!whole) {
        nth++;
        assert_true(nth < 5000);
        tls_connect(&f, &t, client_ctx());
        ssl_fail_in = nth;
        WAIT_FOR(&f, tls_shaken(&t) || t.c.eof);
        if (!t.c.eof) {
            ssl_owner = CLIENT;
            (void)SSL_write(t.ssl, POST_5 "hello", (int)strlen(POST_5) + 5);
            ssl_owner = SERVER;
            WAIT_FOR(&f, tls_has(&t, NL NL "hello") || t.c.eof);
        }
        whole = (ssl_fail_in > 0); /* none failed */
        ssl_fail_in = 0;
        if (whole) {
            assert_true(tls_has(&t, NL NL "hello"));
        }
        tls_close(&t);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
        /* All of them, where there are not so many. */
        nth += (nth > 200) ? 6 : 0;
    }
    stop(&f);
    assert_int_equal(n_files(), files);
}

static void server_survives_its_own_failed_allocations(void **state)
{
    fixture_t f;
    tls_client_t t;

    (void)state;
    tls_start(&f, tls, &normal);
    for (int nth = 1; nth < 8; nth++) {
        tls_connect(&f, &t, client_ctx());
        bt_alloc_fail_at(nth);
        WAIT_FOR(&f, tls_shaken(&t) || t.c.eof);
        bt_alloc_fail_at(0);
        tls_close(&t);
        WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    }
    tls_open(&f, &t);
    expect_echo(&f, &t);
    tls_close(&t);
    stop(&f);
}

static int make_identity(void **state)
{
    (void)state;
    tls = tls_make_with_dir();
    return 0;
}

static int drop_identity(void **state)
{
    (void)state;
    bt_tls_destroy(tls);
    remove_tls_dir();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(answers_are_equal_with_and_without_tls),
        BT_TEST(large_bodies_pass_both_ways_to_a_slow_reader),
        BT_TEST(decrypted_rest_of_a_read_is_delivered),
        BT_TEST(tiny_records_take_many_turns),
        BT_TEST(pieces_of_a_stream_arrive_one_by_one),
        BT_TEST(client_leaving_is_noticed_while_its_request_waits),
        BT_TEST(stalled_reader_is_closed_at_the_limit),
        BT_TEST(quiet_connection_ends_with_close_notify),
        BT_TEST(plain_http_is_answered_and_garbage_closed),
        BT_TEST(tls_to_a_plain_port_is_refused_at_once),
        BT_TEST(hello_may_end_at_any_byte),
        BT_TEST(hello_of_many_records_takes_many_steps),
        BT_TEST(handshake_bytes_may_arrive_slowly),
        BT_TEST(handshake_has_the_header_timeout),
        BT_TEST(full_table_closes_handshakes_first),
        BT_TEST(many_handshakes_take_many_turns),
        BT_TEST(session_memory_is_within_the_charge),
        BT_TEST(serving_survives_every_failed_allocation),
        BT_TEST(server_survives_its_own_failed_allocations),
    };

    tls_begin_tests();
    return cmocka_run_group_tests(tests, make_identity, drop_identity);
}
