/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client of the exporter against receivers that speak TLS. A receiver
 * is a thread of the test; all names resolve to the loopback address. */
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

#include "common/base/status.h"
#include "router/net/tls.h"
#include "router/otlp/client.h"

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

/* Replaces the C library's function. */
__attribute__((visibility("default"))) int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **found)
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

__attribute__((visibility("default"))) void freeaddrinfo(struct addrinfo *found)
{
    (void)found;
}

/* ---- the client ---- */

typedef struct sender {
    bt_otlp_client_t *client;
    _Atomic uint64_t end_ms;
    char *body;
    size_t body_bytes;
    char error[BT_OTLP_ERROR_BYTES];
} sender_t;

static void sender_open(sender_t *s, const char *host, uint16_t port,
                        size_t body_bytes)
{
    char url[64];

    *s = (sender_t){.body_bytes = body_bytes};
    snprintf(url, sizeof(url), "https://%s:%u", host, port);
    assert_int_equal(bt_otlp_client_create(url, &s->client, s->error), BT_OK);
    s->body = malloc(body_bytes);
    assert_non_null(s->body);
    memset(s->body, 'x', body_bytes);
    assert_int_equal(bt_otlp_client_set_headers(s->client, NULL, 0), BT_OK);
}

/* @return the status of the response, or 0: s->error says why */
static int post(sender_t *s, uint32_t try_ms)
{
    const bt_otlp_request_t request = {.body = s->body,
                                       .body_bytes = s->body_bytes,
                                       .try_ms = try_ms,
                                       .end_ms = &s->end_ms};
    bt_otlp_response_t response = {0};

    return (bt_otlp_client_post(s->client, &request, &response, s->error) ==
            BT_OK)
               ? response.http_status
               : 0;
}

static void sender_close(sender_t *s)
{
    bt_otlp_client_destroy(s->client);
    free(s->body);
}

/* ---- tests ---- */

static void v1_traces_is_appended_to_a_base_url(void **state)
{
    static const struct {
        const char *url, *host, *path;
    } cases[] = {
        {"http://localhost:4318", "localhost:4318", "/v1/traces"},
        {"http://localhost:4318/", "localhost:4318", "/v1/traces"},
        {"http://c.example/v1/traces", "c.example", "/v1/traces"},
        {"HTTP://c.example/a/b/", "c.example", "/a/b/v1/traces"},
        {"http://c:1/a/v1/traces/", "c:1", "/a/v1/traces"},
        {"http://[::1]:4318/x", "[::1]:4318", "/x/v1/traces"},
        {"https://c.example", "c.example", "/v1/traces"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char error[BT_OTLP_ERROR_BYTES];
        bt_otlp_client_t *client = NULL;

        assert_int_equal(bt_otlp_client_create(cases[i].url, &client, error),
                         BT_OK);
        assert_string_equal(bt_otlp_client_host(client), cases[i].host);
        assert_string_equal(bt_otlp_client_path(client), cases[i].path);
        bt_otlp_client_destroy(client);
    }
}

static void url_without_host_or_with_bad_port_is_invalid(void **state)
{
    static const char *const urls[] = {
        "",
        "localhost:4318",
        "ftp://c.example",
        "grpc://localhost:4317",
        "http://",
        "http://:4318",
        "http://a b",
        "http://c.example:65536",
        "http://c.example:12x",
        "http://[::1",
        "http://[::1]x",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(urls); i++) {
        char error[BT_OTLP_ERROR_BYTES] = "";
        bt_otlp_client_t *client = NULL;

        if (bt_otlp_client_create(urls[i], &client, error) !=
            BT_ERR_INVALID_PARAM) {
            fail_msg("%s", urls[i]);
        }
        assert_null(client);
        assert_true(error[0] != '\0');
    }
}

/* The body is larger than the sockets' buffers, so sending has to wait, and a
 * TLS session ticket arrives meanwhile. */
static void requests_share_one_connection(void **state)
{
    const size_t large = (size_t)7 << 20;
    receiver_t r;
    sender_t s;

    (void)state;
    receiver_start(&r, DEED_LATE, HOST, 9, &authority);
    sender_open(&s, HOST, r.port, large);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(&s, DEADLINE_MS), 200);
    }
    sender_close(&s);
    receiver_stop(&r);
    assert_int_equal(atomic_load(&r.n_connections), 1);
    assert_true(r.sum == 3 * large * 'x');
}

static void untrusted_receiver_gets_no_byte_of_the_request(void **state)
{
    identity_t stranger = identity_make("stranger", NULL, false, 9);
    const struct {
        const char *name, *host;
        int days;
        const identity_t *issuer;
        const char *error;
    } cases[] = {
        {HOST, HOST, 9, &stranger, "unable to get local issuer certificate"},
        {HOST, HOST, 9, NULL, "self-signed certificate"},
        {HOST, HOST, 0, &authority, "certificate has expired"},
        {"other.example", HOST, 9, &authority, "does not match target host"},
        {HOST, "example", 9, &authority, "does not match target host"},
        {HOST, "127.0.0.1", 9, &authority, "does not match target host"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        receiver_t r;
        sender_t s;

        receiver_start(&r, DEED_ANSWER, cases[i].name, cases[i].days,
                       cases[i].issuer);
        sender_open(&s, cases[i].host, r.port, 8);
        assert_int_equal(post(&s, DEADLINE_MS), 0);
        if (strstr(s.error, cases[i].error) == NULL) {
            fail_msg("%zu: %s", i, s.error);
        }
        sender_close(&s);
        receiver_stop(&r);
        assert_int_equal(atomic_load(&r.n_connections), 1);
        assert_int_equal(atomic_load(&r.n_bytes), 0);
    }
    identity_free(&stranger);
}

static void receiver_without_tls_handshake_costs_one_try(void **state)
{
    static const struct {
        deed_t deed;
        uint32_t try_ms;
        const char *error;
    } cases[] = {
        {DEED_HANG, 20, "time"}, /* "timed out" or "timeout" */
        {DEED_PLAIN, DEADLINE_MS, "wrong version number"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        receiver_t r;
        sender_t s;

        receiver_start(&r, cases[i].deed, HOST, 9, &authority);
        sender_open(&s, HOST, r.port, 8);
        assert_int_equal(post(&s, cases[i].try_ms), 0);
        if (strstr(s.error, cases[i].error) == NULL) {
            fail_msg("%zu: %s", i, s.error);
        }
        sender_close(&s);
        receiver_stop(&r);
    }
}

/* The receiver reads nothing, so sending would never end. */
static void response_before_the_end_of_the_request_counts(void **state)
{
    receiver_t r;
    sender_t s;

    (void)state;
    receiver_start(&r, DEED_EARLY, HOST, 9, &authority);
    sender_open(&s, HOST, r.port, (size_t)64 << 20);
    assert_int_equal(post(&s, DEADLINE_MS), 413);
    sender_close(&s);
    receiver_stop(&r);
}

static void closed_connection_is_reopened(void **state)
{
    receiver_t r;
    sender_t s;

    (void)state;
    receiver_start(&r, DEED_END, HOST, 9, &authority);
    sender_open(&s, HOST, r.port, 8);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(&s, DEADLINE_MS), 200);
    }
    sender_close(&s);
    receiver_stop(&r);
    assert_int_equal(atomic_load(&r.n_connections), 3);
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
        BT_TEST(v1_traces_is_appended_to_a_base_url),
        BT_TEST(url_without_host_or_with_bad_port_is_invalid),
        BT_TEST(requests_share_one_connection),
        BT_TEST(untrusted_receiver_gets_no_byte_of_the_request),
        BT_TEST(receiver_without_tls_handshake_costs_one_try),
        BT_TEST(response_before_the_end_of_the_request_counts),
        BT_TEST(closed_connection_is_reopened),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as the router does */
    return cmocka_run_group_tests(tests, make_authority, remove_authority);
}
