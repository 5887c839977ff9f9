/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: what strangers can take is bounded. */
#include "tests/unit/router/http/http_fixture.h"

#define BODY_OF(n) \
    "POST /hold HTTP/1.1" NL "Host: h" NL "Content-Length: " n NL NL
#define NO_ROOM                                                      \
    NL NL "{\"error\":\"the server has no memory for this body now " \
          "(http-memory, router-memory), try again later\"}"
#define MIB (1024 * 1024)

/* From 127.0.0.N. */
static void client_from(fixture_t *f, client_t *c, uint32_t n)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl((127u << 24) + n)};

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    assert_int_equal(bind(c->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    addr.sin_port = htons(f->port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    bt_strbuf_init(&c->got, 64u << 20);
    c->eof = false;
}

static bt_net_use_t use_of(const fixture_t *f)
{
    bt_net_use_t use;

    bt_net_use(bt_http_net(f->http), &use);
    return use;
}

static void end_first(fixture_t *f)
{
    bt_exchange_t *ex = take_open(f, 0);

    bt_exchange_respond(ex, 200, "text/plain", "done", 4);
}

static void close_clients(client_t *clients, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        client_close(&clients[i]);
    }
}

/* ---- connections ---- */

static void full_table_closes_longest_quiet_connection(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c[6];

    (void)state;
    config.max_connections = 3;
    start(&f, &config);
    client_open(&f, &c[0]); /* says nothing */
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 1);
    client_open(&f, &c[1]); /* a head that is not complete */
    client_puts(&f, &c[1], "GET / HTTP/1.1" NL "X: ");
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 2);
    client_open(&f, &c[2]); /* a body that is not complete */
    client_puts(&f, &c[2], BODY_OF("100") "x");
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 3);

    for (uint32_t i = 0; i < 3; i++) {
        client_open(&f, &c[3 + i]);
        client_puts(&f, &c[3 + i], HOLD);
        WAIT_FOR(&f, f.n_open == i + 1);
        WAIT_FOR(&f, at_eof(&c[i]));
        assert_int_equal(c[i].got.len, 0);
        for (uint32_t k = i + 1; k < 4 + i; k++) {
            assert_false(at_eof(&c[k])); /* the others stay */
        }
    }
    assert_int_equal(use_of(&f).n_quiet_closed, 3);
    assert_int_equal(use_of(&f).n_turned_away, 0);
    while (f.n_open > 0) {
        end_first(&f);
    }
    close_clients(c, 6);
    stop(&f);
}

static void address_over_share_gets_429(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c[5];

    (void)state;
    config.max_per_client = 2;
    start(&f, &config);
    client_from(&f, &c[0], 2); /* quiet */
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 1);
    client_from(&f, &c[1], 3); /* quiet for less long, another's */
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 2);
    client_from(&f, &c[2], 2);
    client_puts(&f, &c[2], HOLD);
    WAIT_FOR(&f, f.n_open == 1);
    client_from(&f, &c[3], 2); /* at the cost of its own quiet one */
    client_puts(&f, &c[3], HOLD);
    WAIT_FOR(&f, f.n_open == 2);
    WAIT_FOR(&f, at_eof(&c[0]));
    assert_int_equal(c[0].got.len, 0);
    client_from(&f, &c[4], 2); /* it has no quiet one left */
    WAIT_FOR(&f, at_eof(&c[4]));
    assert_memory_equal(c[4].got.data, "HTTP/1.1 429 Too Many Requests" NL, 32);
    assert_non_null(strstr(c[4].got.data, NL "Retry-After: 1" NL));
    assert_non_null(strstr(c[4].got.data,
                           "Content-Length: 59" NL "Retry-After: 1" NL
                           "Connection: close" NL NL
                           "{\"error\":\"too many connections "
                           "from this client's address\"}"));
    assert_int_equal(use_of(&f).n_turned_away, 1);
    assert_false(at_eof(&c[1]));
    client_close(&c[4]);

    end_first(&f); /* and has again when one is idle */
    client_from(&f, &c[4], 2);
    client_puts(&f, &c[4], HOLD);
    WAIT_FOR(&f, f.n_open == 2);
    while (f.n_open > 0) {
        end_first(&f);
    }
    close_clients(c, 5);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    stop(&f);
}

/* ---- memory of requests ---- */

/* 4 MiB for all; bodies over 64 KiB may use 3 of them. */
static bt_http_config_t four_mib(void)
{
    bt_http_config_t config = normal;

    config.max_body_bytes = 2 * MIB;
    config.memory_bytes = 4 * MIB;
    return config;
}

static void body_over_memory_limit_gets_503_before_reading(void **state)
{
    static char body[2 * MIB];
    const bt_http_config_t config = four_mib();
    fixture_t f;
    client_t a;
    client_t b;

    (void)state;
    start(&f, &config);
    client_open(&f, &a);
    client_puts(&f, &a, BODY_OF("2097152"));
    client_send(&f, &a, body, sizeof(body));
    WAIT_FOR(&f, f.n_open == 1);
    /* A complete body takes its length. */
    assert_true(use_of(&f).request_bytes >= sizeof(body));
    assert_true(use_of(&f).request_bytes < sizeof(body) + 4096);

    client_open(&f, &b); /* 2 MiB beside 2 MiB are more than 3 */
    client_puts(&f, &b,
                "POST /hold HTTP/1.1" NL "Host: h" NL
                "Content-Length: 2097152" NL "Expect: 100-continue" NL NL);
    WAIT_FOR(&f, has(&b, NO_ROOM));
    assert_memory_equal(b.got.data, "HTTP/1.1 503 Service Unavailable" NL, 34);
    assert_non_null(strstr(b.got.data, NL "Retry-After: 1" NL));
    assert_int_equal(use_of(&f).n_bodies_refused, 1);
    client_close(&b);

    client_open(&f, &b); /* an ordinary request finds room */
    client_puts(&f, &b, POST_5 "hello");
    WAIT_FOR(&f, has(&b, NL NL "hello"));
    client_close(&b);

    drop_body(&f, 0); /* it was parsed: room for the next */
    assert_true(use_of(&f).request_bytes < 4096);
    client_open(&f, &b);
    client_puts(&f, &b, BODY_OF("2097152"));
    client_send(&f, &b, body, sizeof(body));
    WAIT_FOR(&f, f.n_open == 2);
    while (f.n_open > 0) {
        end_first(&f);
    }
    WAIT_FOR(&f, has(&b, "done"));
    assert_int_equal(use_of(&f).request_bytes, 0);
    client_close(&a);
    client_close(&b);
    stop(&f);
}

static void growing_bodies_stay_within_memory_limit(void **state)
{
    static char piece[65536];
    const bt_http_config_t config = four_mib();
    fixture_t f;
    client_t c[4];
    uint32_t n_refused = 0;

    (void)state;
    start(&f, &config);
    for (uint32_t i = 0; i < 4; i++) { /* two of them do not say how long */
        client_open(&f, &c[i]);
        client_puts(&f, &c[i],
                    (i < 2) ? POST_CHUNKS "180000" NL : BODY_OF("2097152"));
    }
    for (uint32_t n = 0; n < 23; n++) { /* 1.4 MiB each: 5.75 in all */
        for (uint32_t i = 0; i < 4; i++) {
            (void)!send(c[i].fd, piece, sizeof(piece),
                        MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        for (uint32_t i = 0; i < 8; i++) {
            event_base_loop(f.base, EVLOOP_NONBLOCK);
            assert_true(use_of(&f).request_bytes <= 4 * MIB);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        n_refused += has(&c[i], "HTTP/1.1 503 ");
    }
    assert_in_range(n_refused, 1, 3); /* those that are left fit */
    assert_int_equal(use_of(&f).n_bodies_refused, n_refused);
    close_clients(c, 4);
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == 0);
    assert_int_equal(use_of(&f).request_bytes, 0);
    stop(&f);
}

static void incomplete_heads_are_closed_for_new_connections(void **state)
{
    enum { N = 100 };
    static char filler[60000];
    static client_t c[N];
    const bt_http_config_t config = four_mib();
    fixture_t f;
    client_t one;

    (void)state;
    memset(filler, 'x', sizeof(filler));
    start(&f, &config);
    for (uint32_t i = 0; i < N; i++) { /* 6 MB of heads without an end */
        client_open(&f, &c[i]);
        client_puts(&f, &c[i], "GET / HTTP/1.1" NL "X: ");
        client_send(&f, &c[i], filler, sizeof(filler));
        WAIT_FOR(&f, use_of(&f).n_quiet_closed +
                             bt_net_n_connections(bt_http_net(f.http)) ==
                         i + 1);
        assert_true(use_of(&f).request_bytes <= 4 * MIB);
    }
    client_open(&f, &one);
    client_puts(&f, &one, POST_5 "hello");
    WAIT_FOR(&f, has(&one, NL NL "hello"));
    assert_true(use_of(&f).n_quiet_closed > 0);
    client_close(&one);
    close_clients(c, N);
    stop(&f);
}

/* ---- memory of answers ---- */

static void slow_readers_share_buffer_budget(void **state)
{
    enum { N = 8 };
    static char chunk[64 * 1024];
    bt_http_config_t config = four_mib();
    fixture_t f;
    client_t c[N];
    client_t good;
    uint64_t most = 0;

    (void)state;
    config.client_buffer_bytes = 1024 * MIB; /* their sum is what counts */
    start(&f, &config);
    for (uint32_t i = 0; i < N; i++) {
        client_open(&f, &c[i]);
        client_puts(&f, &c[i], HOLD);
        WAIT_FOR(&f, f.n_open == i + 1);
    }
    for (uint32_t i = 0; i < N; i++) {
        bt_exchange_stream_begin(f.open[i], "text/plain");
    }
    client_open(&f, &good);
    client_puts(&f, &good, HOLD);
    WAIT_FOR(&f, f.n_open == N + 1);
    bt_exchange_stream_begin(f.open[N], "text/plain");

    for (uint32_t n = 0; (n < 4000) && (f.n_gone < 3); n++) {
        bt_exchange_t *const ex = f.open[n % f.n_open];

        assert_true(bt_exchange_stream_write(ex, chunk, sizeof(chunk)));
        event_base_loop(f.base, EVLOOP_NONBLOCK);
        read_some(&good);
        bt_strbuf_reset(&good.got);
        most =
            (use_of(&f).answer_bytes > most) ? use_of(&f).answer_bytes : most;
    }
    assert_int_equal(f.n_gone, 3);
    assert_int_equal(use_of(&f).n_readers_cut, 3);
    assert_true(most <= 4 * MIB);
    assert_false(good.eof);
    close_clients(c, N);
    client_close(&good);
    stop(&f);
    assert_int_equal(f.n_open, 0);
}

/* ---- turns of the loop ---- */

static void one_turn_hands_over_one_request(void **state)
{
    enum { N = 300 };
    static const char get[] = GET("/empty");
    bt_strbuf_t text;
    fixture_t f;
    client_t c;
    uint32_t before;

    (void)state;
    bt_strbuf_init(&text, 65536);
    for (uint32_t i = 0; i < N; i++) {
        bt_strbuf_puts(&text, get);
    }
    start(&f, &normal);
    client_open(&f, &c);
    client_puts(&f, &c, text.data);
    bt_strbuf_fini(&text);
    while (f.n_requests < N) {
        before = f.n_requests;
        assert_int_equal(event_base_loop(f.base, EVLOOP_ONCE), 0);
        /* The socket may have the next ones beside those that were kept. */
        assert_true(f.n_requests - before <= 2);
    }
    client_puts(&f, &c, POST_5 "hello"); /* what follows is in order */
    WAIT_FOR(&f, has(&c, NL NL "hello"));
    assert_int_equal(f.n_requests, N + 1);
    client_close(&c);
    stop(&f);
}

typedef struct other {
    fixture_t *f;
    uint32_t at; /* so many requests came before it */
} other_t;

static void on_other(evutil_socket_t fd, short what, void *arg)
{
    other_t *other = arg;

    (void)what;
    assert_int_equal(read(fd, &(char){0}, 1), 1);
    other->at = other->f->n_requests;
}

/* A worker's message comes while many clients have sent something. */
static void worker_messages_come_before_clients(void **state)
{
    enum { N = 100, WAKE = 20 };
    static client_t c[N];
    fixture_t f;
    other_t other = {.f = &f};
    struct event *event;
    int fds[2];

    (void)state;
    start(&f, &normal);
    assert_int_equal(pipe(fds), 0);
    event = event_new(f.base, fds[0], EV_READ | EV_PERSIST, on_other, &other);
    assert_int_equal(event_add(event, NULL), 0);
    f.wake_at = WAKE;
    f.wake_fd = fds[1];
    for (uint32_t i = 0; i < N; i++) {
        client_open(&f, &c[i]);
    }
    WAIT_FOR(&f, bt_net_n_connections(bt_http_net(f.http)) == N);
    for (uint32_t i = 0; i < N; i++) { /* all are there to be read at once */
        assert_int_equal(send(c[i].fd, GET("/empty"), strlen(GET("/empty")), 0),
                         strlen(GET("/empty")));
    }
    WAIT_FOR(&f, f.n_requests == N);
    /* Two looks: the first one tells of other sockets. */
    assert_in_range(other.at, WAKE, WAKE + 64);
    event_free(event);
    close(fds[0]);
    close(fds[1]);
    close_clients(c, N);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(full_table_closes_longest_quiet_connection),
        BT_TEST(address_over_share_gets_429),
        BT_TEST(body_over_memory_limit_gets_503_before_reading),
        BT_TEST(growing_bodies_stay_within_memory_limit),
        BT_TEST(incomplete_heads_are_closed_for_new_connections),
        BT_TEST(slow_readers_share_buffer_budget),
        BT_TEST(one_turn_hands_over_one_request),
        BT_TEST(worker_messages_come_before_clients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
