/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to receivers that speak TLS: who is trusted, and what becomes of the
 * others. A receiver is a thread of the test; all names are of this machine. */
#include "tests/unit/router/identity.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/otlp/exchange.h"

#define DEADLINE_MS 60000u
#define HOST        "collector.example"
#define OK          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define TOO_LARGE                                \
    "HTTP/1.1 413 Content Too Large\r\nContent-" \
    "Length: 2\r\n\r\n{}"
#define MAX_REQUEST_BYTES ((size_t)8 << 20)

typedef enum deed {
    DEED_ANSWER, /* each request, on one connection */
    DEED_LATE,   /* the same, but read nothing before no more comes */
    DEED_END,    /* as the first, and end it when it has answered */
    DEED_EARLY,  /* answer, and read nothing */
    DEED_HANG,   /* shake no hands */
    DEED_PLAIN,  /* HTTP without TLS */
} deed_t;

static char folder[64], ca_path[128], cert_path[128], key_path[128];
static identity_t authority;

typedef struct receiver {
    deed_t deed;
    int listener;
    uint16_t port;
    bt_tls_t *tls;
    pthread_t thread;
    _Atomic bool ending;
    _Atomic unsigned n_connections;
    _Atomic size_t n_bytes; /* of requests, as they were read */
    uint64_t sum;           /* of the bytes of bodies */
} receiver_t;

/* ---- the receiver ---- */

/* @return false: the test is over */
static bool await(receiver_t *r, int fd, short events)
{
    struct pollfd ready = {.fd = fd, .events = events};

    while (poll(&ready, 1, 10) == 0) {
        if (atomic_load(&r->ending)) {
            return false;
        }
    }
    return true;
}

/* @return it is DONE; else wait, or the peer is gone */
static bool waited(receiver_t *r, int fd, bt_tls_step_t step, bool *gone_p)
{
    if (step == BT_TLS_DONE) {
        return true;
    }
    *gone_p = ((step != BT_TLS_WANTS_READ) && (step != BT_TLS_WANTS_WRITE)) ||
              !await(r, fd, (step == BT_TLS_WANTS_READ) ? POLLIN : POLLOUT);
    return *gone_p;
}

static bool shake(receiver_t *r, int fd, bt_tls_session_t *session)
{
    bool gone = false;

    while (!waited(r, fd, bt_tls_handshake(session), &gone)) {
    }
    return !gone;
}

/* @return false: there is none */
static bool read_request(receiver_t *r, int fd, bt_tls_session_t *session)
{
    char *data = malloc(MAX_REQUEST_BYTES);
    size_t n = 0, n_body = 0, n_head = 0;
    bool gone = false;

    assert_non_null(data);
    while (!gone && ((n_head == 0) || (n < n_head + n_body))) {
        size_t got = 0;
        const bt_tls_step_t step =
            bt_tls_read(session, data + n, MAX_REQUEST_BYTES - n, &got);
        const char *end, *length;

        if (!waited(r, fd, step, &gone)) {
            continue;
        }
        gone = gone || (got == 0);
        n += got;
        atomic_fetch_add(&r->n_bytes, got);
        end = memmem(data, n, "\r\n\r\n", 4);
        length = memmem(data, n, "Content-Length: ", 16);
        if ((end != NULL) && (length != NULL)) {
            n_head = (size_t)(end - data) + 4;
            n_body = strtoul(length + 16, NULL, 10);
        }
    }
    for (size_t i = n_head; !gone && (i < n); i++) {
        r->sum += (uint8_t)data[i];
    }
    free(data);
    return !gone;
}

static bool say(receiver_t *r, int fd, bt_tls_session_t *session,
                const char *text)
{
    bool gone = false;
    size_t n;

    while (
        !waited(r, fd, bt_tls_write(session, text, strlen(text), &n), &gone)) {
    }
    return !gone;
}

/* Until the peer has written all that there is room for, as it seems; who is
 * slower than that only has an easier test. */
static void await_full(receiver_t *r, int fd)
{
    int before = -1, now = 0;

    while (((now == 0) || (now != before)) && !atomic_load(&r->ending)) {
        before = now;
        (void)poll(NULL, 0, 30);
        assert_int_equal(ioctl(fd, FIONREAD, &now), 0);
    }
}

static void serve_tls(receiver_t *r, int fd, bt_tls_session_t *session)
{
    if (!shake(r, fd, session)) {
        return;
    }
    if (r->deed == DEED_EARLY) {
        (void)say(r, fd, session, TOO_LARGE);
        while (!atomic_load(&r->ending)) {
            (void)poll(NULL, 0, 10);
        }
        return;
    }
    if (r->deed == DEED_LATE) {
        await_full(r, fd);
    }
    while (read_request(r, fd, session) && say(r, fd, session, OK) &&
           (r->deed != DEED_END)) {
    }
}

static void serve(receiver_t *r, int fd)
{
    static const char plain[] = OK;
    bt_tls_session_t *session;

    if (r->deed == DEED_PLAIN) {
        (void)!send(fd, plain, sizeof(plain) - 1, MSG_NOSIGNAL);
        (void)await(r, fd, POLLRDHUP);
    } else if (r->deed == DEED_HANG) {
        while (!atomic_load(&r->ending)) {
            (void)poll(NULL, 0, 10);
        }
    } else {
        session = bt_tls_begin(r->tls, fd, "http/1.1");
        assert_non_null(session);
        serve_tls(r, fd, session);
        (void)bt_tls_shutdown(session);
        bt_tls_end(session);
    }
}

static void *receive(void *arg)
{
    receiver_t *r = arg;

    while (await(r, r->listener, POLLIN)) {
        const int fd =
            accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            atomic_fetch_add(&r->n_connections, 1);
            serve(r, fd);
            close(fd);
        }
    }
    return NULL;
}

/* With a certificate of NAME, over DAYS, of ISSUER. */
static void receiver_start(receiver_t *r, deed_t deed, const char *name,
                           int days, const identity_t *issuer)
{
    const bt_tls_files_t files = {.cert = cert_path, .key = key_path};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    identity_t id = identity_make(name, issuer, false, days);
    socklen_t bytes = sizeof(to);
    char why[BT_TLS_WHY_BYTES];

    write_cert(cert_path, &id);
    write_key(key_path, &id, NULL);
    identity_free(&id);
    *r = (receiver_t){.deed = deed};
    assert_int_equal(bt_tls_create(&files, &r->tls, why), BT_OK);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(listen(r->listener, 16), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&to, &bytes),
                     0);
    r->port = ntohs(to.sin_port);
    assert_int_equal(pthread_create(&r->thread, NULL, receive, r), 0);
}

static void receiver_stop(receiver_t *r)
{
    atomic_store(&r->ending, true);
    pthread_join(r->thread, NULL);
    close(r->listener);
    bt_tls_destroy(r->tls);
}

/* ---- names ---- */

static struct sockaddr_in address;
static struct addrinfo info = {.ai_family = AF_INET,
                               .ai_socktype = SOCK_STREAM,
                               .ai_addr = (struct sockaddr *)&address,
                               .ai_addrlen = sizeof(address)};

/* In place of the C library's. */
int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **found)
{
    (void)node;
    (void)hints;
    address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)strtoul(service, NULL, 10))};
    *found = &info;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    (void)found;
}

/* ---- who asks ---- */

typedef struct asker {
    bt_otlp_link_t link;
    bt_otlp_url_t url;
    _Atomic uint64_t end_ms;
    char *body;
    size_t body_bytes;
    char head[128];
} asker_t;

static void asker_open(asker_t *a, const char *host, uint16_t port,
                       size_t body_bytes)
{
    *a = (asker_t){.link = {.fd = -1}, .body_bytes = body_bytes};
    a->link.tls = bt_tls_create_client();
    assert_non_null(a->link.tls);
    snprintf(a->url.host, sizeof(a->url.host), "%s", host);
    snprintf(a->url.port, sizeof(a->url.port), "%u", port);
    a->body = malloc(body_bytes);
    assert_non_null(a->body);
    memset(a->body, 'x', body_bytes);
    snprintf(a->head, sizeof(a->head),
             "POST /v1/traces HTTP/1.1\r\nContent-Length: %zu\r\n\r\n",
             body_bytes);
}

/* @return the status of the answer, or 0: link.trouble says why */
static int ask(asker_t *a, uint64_t try_ms)
{
    const bt_otlp_until_t until = {.try_end_ms = bt_now_ms() + try_ms,
                                   .end_ms = &a->end_ms,
                                   .wake_fd = -1};
    const bt_otlp_request_t request = {.head = a->head,
                                       .head_bytes = strlen(a->head),
                                       .body = a->body,
                                       .body_bytes = a->body_bytes};
    bt_otlp_answer_t answer = {0};

    return (bt_otlp_exchange(&a->link, &a->url, &request, &until, &answer) ==
            BT_OK)
               ? answer.http_status
               : 0;
}

static void asker_close(asker_t *a)
{
    bt_otlp_link_close(&a->link);
    bt_tls_destroy(a->link.tls);
    free(a->body);
}

/* ---- tests ---- */

/* More than sockets hold, so that writing waits, and is told apart from an
 * answer what TLS itself has to say meanwhile: a ticket. */
static void requests_follow_each_other_on_one_connection(void **state)
{
    const size_t large = (size_t)7 << 20;
    receiver_t r;
    asker_t a;

    (void)state;
    receiver_start(&r, DEED_LATE, HOST, 9, &authority);
    asker_open(&a, HOST, r.port, large);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&a, DEADLINE_MS), 200);
        assert_true(a.link.fd >= 0);
    }
    asker_close(&a);
    receiver_stop(&r);
    assert_int_equal(atomic_load(&r.n_connections), 1);
    assert_true(r.sum == 3 * large * 'x');
}

/* Before anything of the request is sent. */
static void who_is_not_trusted_is_told_nothing(void **state)
{
    identity_t stranger = identity_make("stranger", NULL, false, 9);
    const struct {
        const char *name, *host;
        int days;
        const identity_t *issuer;
        const char *why;
    } cases[] = {
        {HOST, HOST, 9, &stranger, "unable to get local issuer certificate"},
        {HOST, HOST, 9, NULL, "self-signed certificate"},
        {HOST, HOST, 0, &authority, "certificate has expired"},
        {"other.example", HOST, 9, &authority, "hostname mismatch"},
        {HOST, "example", 9, &authority, "hostname mismatch"},
        {HOST, "127.0.0.1", 9, &authority, "IP address mismatch"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char trouble[BT_OTLP_TROUBLE_BYTES];
        receiver_t r;
        asker_t a;

        receiver_start(&r, DEED_ANSWER, cases[i].name, cases[i].days,
                       cases[i].issuer);
        asker_open(&a, cases[i].host, r.port, 8);
        assert_int_equal(ask(&a, DEADLINE_MS), 0);
        snprintf(trouble, sizeof(trouble), "TLS: %s", cases[i].why);
        assert_string_equal(a.link.trouble, trouble);
        assert_true(a.link.fd < 0);
        asker_close(&a);
        receiver_stop(&r);
        assert_int_equal(atomic_load(&r.n_connections), 1);
        assert_int_equal(atomic_load(&r.n_bytes), 0);
    }
    identity_free(&stranger);
}

static void who_shakes_no_hands_costs_the_time_of_a_try(void **state)
{
    static const struct {
        deed_t deed;
        uint64_t try_ms;
        const char *trouble;
    } cases[] = {
        {DEED_HANG, 20, "TLS: no handshake in time"},
        {DEED_PLAIN, DEADLINE_MS, "TLS: what answers speaks no TLS"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        receiver_t r;
        asker_t a;

        receiver_start(&r, cases[i].deed, HOST, 9, &authority);
        asker_open(&a, HOST, r.port, 8);
        assert_int_equal(ask(&a, cases[i].try_ms), 0);
        assert_string_equal(a.link.trouble, cases[i].trouble);
        asker_close(&a);
        receiver_stop(&r);
    }
}

/* It reads nothing, so the request would never be over. */
static void an_answer_that_comes_early_is_taken(void **state)
{
    receiver_t r;
    asker_t a;

    (void)state;
    receiver_start(&r, DEED_EARLY, HOST, 9, &authority);
    asker_open(&a, HOST, r.port, (size_t)64 << 20);
    assert_int_equal(ask(&a, DEADLINE_MS), 413);
    assert_true(a.link.fd < 0);
    asker_close(&a);
    receiver_stop(&r);
}

static void a_connection_that_was_ended_is_made_anew(void **state)
{
    receiver_t r;
    asker_t a;

    (void)state;
    receiver_start(&r, DEED_END, HOST, 9, &authority);
    asker_open(&a, HOST, r.port, 8);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&a, DEADLINE_MS), 200);
    }
    asker_close(&a);
    receiver_stop(&r);
    assert_int_equal(atomic_load(&r.n_connections), 3);
}

/* The receiver asks for none meanwhile. */
static void a_session_without_memory_is_a_try_that_failed(void **state)
{
    receiver_t r;
    asker_t a;

    (void)state;
    receiver_start(&r, DEED_PLAIN, HOST, 9, &authority);
    asker_open(&a, HOST, r.port, 8);
    for (int n = 1; n <= 2; n++) { /* room for answers, then a session */
        bt_alloc_fail_at(n);
        assert_int_equal(ask(&a, DEADLINE_MS), 0);
        bt_alloc_fail_at(0);
        assert_string_equal(a.link.trouble, "out of memory");
        assert_true(a.link.fd < 0);
    }
    asker_close(&a);
    receiver_stop(&r);
}

static int make_authority(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/baton-otlp-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(ca_path, sizeof(ca_path), "%s/ca", folder);
    snprintf(cert_path, sizeof(cert_path), "%s/cert", folder);
    snprintf(key_path, sizeof(key_path), "%s/key", folder);
    authority = identity_make("authority", NULL, false, 9);
    write_cert(ca_path, &authority);
    /* Those of this system are not asked. */
    return ((setenv("SSL_CERT_FILE", ca_path, 1) == 0) &&
            (setenv("SSL_CERT_DIR", folder, 1) == 0))
               ? 0
               : -1;
}

static int remove_authority(void **state)
{
    (void)state;
    identity_free(&authority);
    (void)unlink(ca_path);
    (void)unlink(cert_path);
    (void)unlink(key_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(requests_follow_each_other_on_one_connection),
        BT_TEST(who_is_not_trusted_is_told_nothing),
        BT_TEST(who_shakes_no_hands_costs_the_time_of_a_try),
        BT_TEST(an_answer_that_comes_early_is_taken),
        BT_TEST(a_connection_that_was_ended_is_made_anew),
        BT_TEST(a_session_without_memory_is_a_try_that_failed),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as the router does */
    return cmocka_run_group_tests(tests, make_authority, remove_authority);
}
