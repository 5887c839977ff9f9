/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter against receivers that do what they should not. A receiver is a
 * thread of the test with a script: what it does with each connection. */
#include "tests/support/testsupport.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/zip/zip.h"
#include "router/otlp/otlp.h"

#define DEADLINE_MS 60000u
#define OK          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define BEFORE      "{\"spans\":["
#define BEHIND      "]}"

typedef enum deed {
    DEED_END, /* of the script: it goes on with the deed before */
    DEED_ANSWER,
    DEED_CLOSE,        /* when it has the head of the request */
    DEED_CLOSE_INSIDE, /* when it has said half of the answer */
    DEED_HANG,         /* reads nothing */
    DEED_TRICKLE,      /* a byte of the answer each 20 ms, without end */
} deed_t;

typedef struct act {
    deed_t deed;
    const char *answer;
} act_t;

typedef struct receiver {
    const act_t *acts;
    int listener;
    uint16_t port;
    pthread_t thread;
    _Atomic bool ending;
    _Atomic unsigned n_connections, n_requests;
    pthread_mutex_t lock;
    bt_strbuf_t heads, bodies; /* of all requests that were whole */
} receiver_t;

/* ---- the receiver ---- */

/* @return false: the peer or the test is gone */
static bool await(receiver_t *r, int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    while (poll(&ready, 1, 10) == 0) {
        if (atomic_load(&r->ending)) {
            return false;
        }
    }
    return true;
}

/* Until the head and all of the body are there. @return bytes, or 0 */
static size_t read_request(receiver_t *r, int fd, char *data, size_t cap,
                           bool head_alone, size_t *n_head_p)
{
    size_t n = 0;

    for (;;) {
        const char *end = memmem(data, n, "\r\n\r\n", 4);
        const char *length = memmem(data, n, "Content-Length: ", 16);
        ssize_t got;

        if ((end != NULL) && (length != NULL)) {
            *n_head_p = (size_t)(end - data) + 4;
            if (head_alone ||
                (n >= *n_head_p + strtoul(length + 16, NULL, 10))) {
                return n;
            }
        }
        if (!await(r, fd)) {
            return 0;
        }
        got = read(fd, data + n, cap - n);
        if (got <= 0) {
            return 0;
        }
        n += (size_t)got;
    }
}

static void keep(receiver_t *r, const char *data, size_t n_head, size_t n)
{
    pthread_mutex_lock(&r->lock);
    bt_strbuf_append(&r->heads, data, n_head);
    assert_int_equal(
        bt_unzip(BT_ZIP_GZIP, data + n_head, n - n_head, &r->bodies), BT_OK);
    bt_strbuf_puts(&r->bodies, "\n");
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_add(&r->n_requests, 1);
}

static void say(int fd, const char *text, size_t n)
{
    (void)!send(fd, text, n, MSG_NOSIGNAL);
}

static void trickle(receiver_t *r, int fd)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nX: ";

    for (size_t i = 0; !atomic_load(&r->ending); i++) {
        say(fd, (i < strlen(head)) ? head + i : "x", 1);
        (void)poll(NULL, 0, 20);
    }
}

/* One connection. */
static void serve(receiver_t *r, int fd, unsigned *n_act)
{
    static char data[1 << 20];
    size_t n, n_head = 0;

    for (;;) {
        const act_t *act = &r->acts[*n_act];

        if (act->deed == DEED_HANG) {
            while (!atomic_load(&r->ending)) {
                (void)poll(NULL, 0, 10);
            }
            return;
        }
        n = read_request(r, fd, data, sizeof(data), act->deed == DEED_CLOSE,
                         &n_head);
        if (n == 0) {
            return;
        }
        if (act[1].deed != DEED_END) {
            (*n_act)++;
        }
        switch (act->deed) {
        case DEED_CLOSE:
            return;
        case DEED_TRICKLE:
            trickle(r, fd);
            return;
        case DEED_CLOSE_INSIDE:
            keep(r, data, n_head, n);
            say(fd, act->answer, strlen(act->answer));
            return;
        default:
            keep(r, data, n_head, n);
            say(fd, act->answer, strlen(act->answer));
        }
    }
}

static void *receive(void *arg)
{
    receiver_t *r = arg;
    unsigned n_act = 0;

    while (await(r, r->listener)) {
        const int fd = accept(r->listener, NULL, NULL);

        if (fd >= 0) {
            atomic_fetch_add(&r->n_connections, 1);
            serve(r, fd, &n_act);
            close(fd);
        }
    }
    return NULL;
}

/* It is bound, so nobody else gets the port, and refuses connections yet. */
static void receiver_bind(receiver_t *r, const act_t *acts)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(to);

    *r = (receiver_t){.acts = acts};
    pthread_mutex_init(&r->lock, NULL);
    bt_strbuf_init(&r->heads, 1 << 20);
    bt_strbuf_init(&r->bodies, 16 << 20);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&to, &bytes),
                     0);
    r->port = ntohs(to.sin_port);
}

static void receiver_listen(receiver_t *r)
{
    assert_int_equal(listen(r->listener, 16), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, receive, r), 0);
}

static void receiver_start(receiver_t *r, const act_t *acts)
{
    receiver_bind(r, acts);
    receiver_listen(r);
}

static void receiver_stop(receiver_t *r)
{
    atomic_store(&r->ending, true);
    pthread_join(r->thread, NULL);
    close(r->listener);
    bt_strbuf_fini(&r->heads);
    bt_strbuf_fini(&r->bodies);
    pthread_mutex_destroy(&r->lock);
}

/* ---- names ---- */

static _Atomic bool names_hang;
static _Atomic unsigned n_hanging;

/* Replaces the C library's function: it finds no name, at once or when it is
 * released. Addresses are not resolved. */
__attribute__((visibility("default"))) int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **found)
{
    (void)node;
    (void)service;
    (void)hints;
    (void)found;
    atomic_fetch_add(&n_hanging, 1);
    while (atomic_load(&names_hang)) {
        (void)poll(NULL, 0, 1);
    }
    atomic_fetch_sub(&n_hanging, 1);
    return EAI_NONAME;
}

/* ---- the exporter ---- */

static bt_otlp_t *open_at(const char *url, const bt_otlp_options_t *more)
{
    bt_otlp_options_t options;
    bt_otlp_t *otlp = NULL;

    bt_otlp_options_init(&options);
    options.batch_ms = 1;
    options.backoff = (bt_otlp_backoff_t){.first_ms = 2, .max_ms = 4};
    if (more != NULL) {
        options.queue_bytes =
            (more->queue_bytes > 0) ? more->queue_bytes : options.queue_bytes;
        options.batch_ms =
            (more->batch_ms > 0) ? more->batch_ms : options.batch_ms;
        options.batch_bytes =
            (more->batch_bytes > 0) ? more->batch_bytes : options.batch_bytes;
        options.try_ms = (more->try_ms > 0) ? more->try_ms : options.try_ms;
        options.give_up_ms =
            (more->give_up_ms > 0) ? more->give_up_ms : options.give_up_ms;
    }
    options.url = url;
    options.headers = "";
    options.before = BEFORE;
    options.behind = BEHIND;
    assert_int_equal(bt_otlp_open(&options, &otlp), BT_OK);
    return otlp;
}

static bt_otlp_t *open_otlp(uint16_t port, const bt_otlp_options_t *more)
{
    char url[64];

    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    return open_at(url, more);
}

static bt_otlp_counts_t counts_of(bt_otlp_t *otlp)
{
    bt_otlp_counts_t counts;

    bt_otlp_counts(otlp, &counts);
    return counts;
}

#define AWAIT(expr)                                                   \
    for (const uint64_t end_ms_ = bt_now_ms() + DEADLINE_MS; !(expr); \
         (void)poll(NULL, 0, 1)) {                                    \
        assert_true(bt_now_ms() < end_ms_);                           \
    }

static void add(bt_otlp_t *otlp, const char *span)
{
    bt_otlp_add(otlp, span, strlen(span), 1);
}

static void spans_arrive_in_order_in_batches_on_one_connection(void **state)
{
    static const act_t acts[] = {{DEED_ANSWER, OK}, {DEED_END, NULL}};
    const bt_otlp_options_t more = {.batch_ms = 60000, .batch_bytes = 256};
    bt_otlp_counts_t counts;
    bt_otlp_t *otlp;
    receiver_t r;
    char want[16], *at;

    (void)state;
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, &more);
    for (unsigned i = 0; i < 100; i++) {
        char span[16];

        snprintf(span, sizeof(span), "{\"s\":%u}", i);
        add(otlp, span);
    }
    /* The last ones are no whole batch: the end sends them. */
    bt_otlp_close(otlp, DEADLINE_MS, &counts);
    assert_int_equal(counts.n_sent, 100);
    assert_int_equal(counts.n_dropped + counts.n_rejected, 0);
    assert_int_equal(counts.n_failed_tries, 0);
    assert_int_equal(atomic_load(&r.n_connections), 1);
    assert_true(atomic_load(&r.n_requests) >= 100 / (256 / 7 + 1));
    at = r.bodies.data;
    for (unsigned i = 0; i < 100; i++) {
        snprintf(want, sizeof(want), "{\"s\":%u}", i);
        at = strstr(at, want);
        assert_non_null(at);
    }
    assert_memory_equal(r.bodies.data, BEFORE "{\"s\":0},{\"s\":1},", 20);
    assert_string_equal(r.bodies.data + r.bodies.len - 11, "{\"s\":99}]}\n");
    assert_memory_equal(r.heads.data, "POST /v1/traces HTTP/1.1\r\n", 26);
    assert_non_null(strstr(r.heads.data, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(r.heads.data, "Content-Encoding: gzip\r\n"));
    receiver_stop(&r);
}

static void failed_batch_is_retried_until_accepted(void **state)
{
    static const act_t acts[] = {
        {DEED_ANSWER, "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n"
                      "Content-Length: 0\r\n\r\n"},
        {DEED_ANSWER, "HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"},
        {DEED_CLOSE, NULL}, /* of a kept connection: again at once */
        {DEED_CLOSE, NULL}, /* of a new one */
        {DEED_ANSWER, "SSH-2.0-none\r\n"},
        {DEED_CLOSE_INSIDE, "HTTP/1.1 502 x\r\nConnection: close\r\n\r\n"},
        {DEED_ANSWER, OK},
        {DEED_END, NULL},
    };
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    bt_test_expect_log_lines(1); /* once, however often it fails */
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, NULL);
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_sent == 1);
    assert_int_equal(counts_of(otlp).n_failed_tries, 5);
    add(otlp, "2");
    AWAIT(counts_of(otlp).n_sent == 2);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    assert_non_null(strstr(r.bodies.data, BEFORE "2" BEHIND));
    receiver_stop(&r);
}

static void answer_cut_after_its_status_counts(void **state)
{
    static const act_t acts[] = {
        {DEED_CLOSE_INSIDE, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"},
        {DEED_ANSWER, OK},
        {DEED_END, NULL},
    };
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, NULL);
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_sent == 1);
    assert_int_equal(counts_of(otlp).n_failed_tries, 0);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    assert_int_equal(atomic_load(&r.n_requests), 1);
    receiver_stop(&r);
}

static void connection_closed_by_the_receiver_is_no_failure(void **state)
{
    /* It says that it keeps the connection, and does not. */
    static const act_t acts[] = {
        {DEED_CLOSE_INSIDE, OK}, {DEED_ANSWER, OK}, {DEED_END, NULL}};
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, NULL);
    for (unsigned i = 1; i <= 3; i++) {
        add(otlp, "1");
        AWAIT(counts_of(otlp).n_sent == i);
    }
    assert_int_equal(counts_of(otlp).n_failed_tries, 0);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    receiver_stop(&r);
}

static void rejected_spans_are_counted_and_logged_once(void **state)
{
    static const act_t acts[] = {
        {DEED_ANSWER, "HTTP/1.1 200 OK\r\nContent-Length: 62\r\n\r\n"
                      "{\"partialSuccess\":{\"rejectedSpans\":\"2\","
                      "\"errorMessage\":\"no\"}}  "},
        {DEED_END, NULL},
    };
    bt_otlp_counts_t counts;
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    assert_int_equal(strlen(strstr(acts[0].answer, "\r\n\r\n") + 4), 62);
    bt_test_expect_log_lines(1);
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, NULL);
    for (unsigned i = 1; i <= 3; i++) {
        bt_otlp_add(otlp, "1,2,3", 5, 3);
        AWAIT(counts_of(otlp).n_rejected == 2 * i);
    }
    bt_otlp_close(otlp, DEADLINE_MS, &counts);
    assert_int_equal(counts.n_sent, 3);
    receiver_stop(&r);
}

static void final_rejection_is_not_retried(void **state)
{
    static const act_t acts[] = {
        {DEED_ANSWER, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"},
        {DEED_ANSWER, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"},
        {DEED_ANSWER, OK},
        {DEED_END, NULL},
    };
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    bt_test_expect_log_lines(1);
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, NULL);
    for (unsigned i = 1; i <= 2; i++) {
        add(otlp, "1");
        AWAIT(counts_of(otlp).n_rejected == i);
    }
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_sent == 1);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    receiver_stop(&r);
}

/* @param deed  of a receiver that takes a request and gives no answer */
static void check_silent(deed_t deed)
{
    const act_t acts[] = {{deed, NULL}, {DEED_END, NULL}};
    /* No try ends by itself while this lasts. */
    const bt_otlp_options_t more = {
        .queue_bytes = 4096, .batch_bytes = 512, .try_ms = 60 * DEADLINE_MS};
    static char span[256];
    bt_otlp_counts_t counts;
    bt_otlp_t *otlp;
    receiver_t r;
    uint64_t began_ms;

    memset(span, 'x', sizeof(span) - 1);
    bt_test_expect_log_lines(3); /* it fails, so many are lost, at the end */
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, &more);
    add(otlp, span);
    AWAIT(atomic_load(&r.n_connections) == 1);
    /* Each of these returns, whatever the receiver does. */
    for (unsigned i = 0; i < 1000; i++) {
        add(otlp, span);
        assert_true(counts_of(otlp).queued_bytes <= 4096);
    }
    counts = counts_of(otlp);
    assert_true(counts.n_dropped >= 1000 - 2 * 4096 / 256);
    assert_int_equal(counts.n_sent, 0);
    began_ms = bt_now_ms();
    bt_otlp_close(otlp, 50, &counts);
    assert_true(bt_now_ms() - began_ms < DEADLINE_MS);
    assert_int_equal(counts.n_dropped, 1001);
    receiver_stop(&r);
}

static void hanging_receiver_costs_a_bounded_queue(void **state)
{
    (void)state;
    check_silent(DEED_HANG);
}

static void trickling_receiver_costs_a_bounded_queue(void **state)
{
    (void)state;
    check_silent(DEED_TRICKLE);
}

static void try_times_out_and_batch_is_given_up(void **state)
{
    static const act_t acts[] = {{DEED_HANG, NULL}, {DEED_END, NULL}};
    const bt_otlp_options_t more = {.try_ms = 5, .give_up_ms = 60};
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    bt_test_expect_log_lines(2); /* no answer in time; a span is lost */
    receiver_start(&r, acts);
    otlp = open_otlp(r.port, &more);
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_dropped == 1);
    assert_true(counts_of(otlp).n_failed_tries > 0);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    receiver_stop(&r);
}

static void spans_wait_for_an_absent_receiver(void **state)
{
    static const act_t acts[] = {{DEED_ANSWER, OK}, {DEED_END, NULL}};
    bt_otlp_t *otlp;
    receiver_t r;

    (void)state;
    bt_test_expect_log_lines(1);
    receiver_bind(&r, acts);
    otlp = open_otlp(r.port, NULL);
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_failed_tries > 2);
    receiver_listen(&r);
    AWAIT(counts_of(otlp).n_sent == 1);
    bt_otlp_close(otlp, DEADLINE_MS, NULL);
    receiver_stop(&r);
}

static void close_returns_during_name_resolution(void **state)
{
    const bt_otlp_options_t more = {.queue_bytes = 4096};
    bt_otlp_counts_t counts;
    bt_otlp_t *otlp;

    (void)state;
    bt_test_expect_log_lines(2); /* no response; lost at the end */
    atomic_store(&names_hang, true);
    otlp = open_at("http://collector.example", &more);
    add(otlp, "1");
    AWAIT(atomic_load(&n_hanging) == 1);
    add(otlp, "2");
    bt_otlp_close(otlp, 1, &counts); /* the test's time limit, if it waits */
    assert_int_equal(counts.n_dropped, 2);
    assert_int_equal(atomic_load(&n_hanging), 1);
    atomic_store(&names_hang, false);
    AWAIT(atomic_load(&n_hanging) == 0);
}

static void try_times_out_during_name_resolution(void **state)
{
    const bt_otlp_options_t more = {.try_ms = 5};
    bt_otlp_counts_t counts;
    bt_otlp_t *otlp;

    (void)state;
    bt_test_expect_log_lines(2); /* no response in time; lost at the end */
    atomic_store(&names_hang, true);
    otlp = open_at("http://collector.example", &more);
    add(otlp, "1");
    AWAIT(counts_of(otlp).n_failed_tries > 1);
    bt_otlp_close(otlp, 1, &counts);
    assert_int_equal(counts.n_dropped, 1);
    atomic_store(&names_hang, false);
    AWAIT(atomic_load(&n_hanging) == 0);
}

static void invalid_url_fails_at_start(void **state)
{
    bt_otlp_options_t options;
    bt_otlp_t *otlp = NULL;

    (void)state;
    bt_test_expect_log_lines(2);
    bt_otlp_options_init(&options);
    options.headers = "";
    options.before = BEFORE;
    options.behind = BEHIND;
    options.url = "ftp://c.example";
    assert_int_equal(bt_otlp_open(&options, &otlp), BT_ERR_INVALID_PARAM);
    options.url = "http://c.example";
    options.headers = "/nowhere/at/all";
    assert_int_equal(bt_otlp_open(&options, &otlp), BT_ERR_NOT_FOUND);
    assert_null(otlp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(spans_arrive_in_order_in_batches_on_one_connection),
        BT_TEST(failed_batch_is_retried_until_accepted),
        BT_TEST(answer_cut_after_its_status_counts),
        BT_TEST(connection_closed_by_the_receiver_is_no_failure),
        BT_TEST(rejected_spans_are_counted_and_logged_once),
        BT_TEST(final_rejection_is_not_retried),
        BT_TEST(hanging_receiver_costs_a_bounded_queue),
        BT_TEST(trickling_receiver_costs_a_bounded_queue),
        BT_TEST(try_times_out_and_batch_is_given_up),
        BT_TEST(spans_wait_for_an_absent_receiver),
        BT_TEST(invalid_url_fails_at_start),
        BT_TEST(close_returns_during_name_resolution),
        BT_TEST(try_times_out_during_name_resolution),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
