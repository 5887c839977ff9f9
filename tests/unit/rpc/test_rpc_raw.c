/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile and broken peers, made by hand on plain sockets. What nng itself says
 * on a TCP connection (source: nanomsg RFC "sp-tcp-mapping-01"): 8 bytes
 * 0 'S' 'P' 0 protocol[2] 0 0 from each side, then messages, each after its
 * length in 8 bytes, big endian. Protocols: pair 0x10, pub 0x20, sub 0x21. */
#include "tests/unit/rpc/rpc_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/assert.h"
#include "common/rpc/rpc_frame.h"

#define PAIR 0x10
#define PUB  0x20
#define SUB  0x21

static char url[256];
static uint8_t link_key[BT_KEY_BYTES]; /* what rpc makes of key_a */

static int tcp_connect(uint16_t port)
{
    const struct sockaddr_in addr = {.sin_family = AF_INET,
                                     .sin_port = htons(port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)),
                     0);
    return fd;
}

static int tcp_listen(uint16_t *port_p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, n), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &n), 0);
    *port_p = ntohs(addr.sin_port);
    return fd;
}

static uint16_t port_of(const char *where)
{
    return (uint16_t)strtoul(strrchr(where, ':') + 1, NULL, 10);
}

/* A peer that has hung up already is no fault: what follows shows it. */
static void write_all(int fd, const void *data, size_t n)
{
    const ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

    if (sent < 0) {
        assert_true((errno == EPIPE) || (errno == ECONNRESET));
    } else {
        assert_int_equal(sent, n);
    }
}

/* For the peer's nng threads, which need nobody to drive them. */
static void read_all(int fd, void *data, size_t n)
{
    size_t got = 0;

    while (got < n) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t part;

        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        part = recv(fd, (char *)data + got, n - got, 0);
        assert_true(part > 0);
        got += (size_t)part;
    }
}

static void sp_greet(int fd, uint8_t protocol)
{
    const uint8_t hello[8] = {0, 'S', 'P', 0, 0, protocol, 0, 0};
    uint8_t theirs[8];

    write_all(fd, hello, sizeof(hello));
    read_all(fd, theirs, sizeof(theirs));
    assert_memory_equal(theirs, "\0SP", 4);
}

static int sp_connect(uint16_t port, uint8_t protocol)
{
    const int fd = tcp_connect(port);

    sp_greet(fd, protocol);
    return fd;
}

static void sp_send_claiming(int fd, uint64_t claimed, const void *data,
                             size_t n)
{
    uint8_t length[8];

    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(claimed >> (56 - 8 * i));
    }
    write_all(fd, length, sizeof(length));
    if (n > 0) {
        write_all(fd, data, n);
    }
}

static void sp_send(int fd, const void *data, size_t n)
{
    sp_send_claiming(fd, n, data, n);
}

static void send_frame(int fd, rpc_kind_t kind, uint64_t incarnation,
                       uint64_t sequence, const void *body, size_t n)
{
    uint8_t frame[512];

    assert_true(RPC_HEADER_BYTES + n <= sizeof(frame));
    bt_rpc_frame_put_header(frame, kind, incarnation, sequence);
    if (n > 0) {
        memcpy(frame + RPC_HEADER_BYTES, body, n);
    }
    sp_send(fd, frame, RPC_HEADER_BYTES + n);
}

static bool readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* One frame from the driven end. @return its bytes in `data` */
static size_t sp_recv(int fd, side_t *side, uint8_t *data, size_t cap)
{
    uint8_t length[8];
    size_t n = 0;

    UNTIL(side, NULL, readable(fd));
    read_all(fd, length, sizeof(length));
    for (int i = 0; i < 8; i++) {
        n = (n << 8) | length[i];
    }
    assert_true(n <= cap);
    read_all(fd, data, n);
    return n;
}

/* A router made by hand: a place to announce to. */
typedef struct fake {
    int listener;
    int sub;      /* connection with announcements */
    int pair;     /* connection to the worker's link socket */
    uint64_t inc; /* our incarnation */
    rpc_side_t worker;
    rpc_side_t own;
} fake_t;

static void fake_open(fake_t *fake, side_t *worker)
{
    uint16_t port;

    memset(fake, 0, sizeof(*fake));
    fake->inc = 4711;
    fake->listener = tcp_listen(&port);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", port);
    side_open(worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker->rpc, url), BT_OK);
    UNTIL(worker, NULL, readable(fake->listener));
    fake->sub = accept(fake->listener, NULL, NULL);
    assert_true(fake->sub >= 0);
    sp_greet(fake->sub, SUB);
}

static void fake_close(fake_t *fake, side_t *worker)
{
    bt_rpc_close(worker->rpc);
    close(fake->sub);
    close(fake->listener);
}

/* Where the worker's link socket is, from its newest announcement. */
static uint16_t fake_learn(fake_t *fake, side_t *worker)
{
    uint8_t frame[RPC_MAX_ANNOUNCE];
    char where[RPC_MAX_URL];
    uint64_t incarnation;
    size_t n;

    do {
        n = sp_recv(fake->sub, worker, frame, sizeof(frame));
    } while (readable(fake->sub));
    assert_int_equal(
        bt_rpc_announce_check(link_key, frame, n, &incarnation, where), BT_OK);
    return port_of(where);
}

/* Connect and take the worker's hello. */
static void fake_dial(fake_t *fake, side_t *worker)
{
    uint8_t data[512];
    rpc_frame_t frame;
    size_t n;

    fake->pair = sp_connect(fake_learn(fake, worker), PAIR);
    n = sp_recv(fake->pair, worker, data, sizeof(data));
    assert_int_equal(bt_rpc_frame_parse(data, n, &frame), BT_OK);
    assert_int_equal(frame.kind, RPC_HELLO);
    assert_int_equal(frame.bytes, RPC_NONCE_BYTES + 1);
    fake->worker.incarnation = frame.incarnation;
    memcpy(fake->worker.nonce, frame.body, RPC_NONCE_BYTES);
    bt_key_proof(link_key, sizeof(link_key), "w", 1, fake->worker.payload_hash);

    fake->own.incarnation = fake->inc;
    memset(fake->own.nonce, 7, RPC_NONCE_BYTES);
    bt_key_proof(link_key, sizeof(link_key), "", 0, fake->own.payload_hash);
}

static void fake_hello(fake_t *fake)
{
    send_frame(fake->pair, RPC_HELLO, fake->inc, 0, fake->own.nonce,
               RPC_NONCE_BYTES);
}

/* All of it, as a true router would. The worker's process may be asleep for
 * a while before our last frame (SIGSTOP, a machine that is suspended). */
static void fake_link_asleep(fake_t *fake, side_t *worker, uint64_t asleep_ms)
{
    const unsigned was = worker->n_up;
    uint8_t proof[BT_PROOF_BYTES];
    uint8_t data[512];
    size_t n;

    fake_dial(fake, worker);
    fake_hello(fake);
    n = sp_recv(fake->pair, worker, data, sizeof(data));
    assert_int_equal(n, RPC_HEADER_BYTES + BT_PROOF_BYTES);
    bt_rpc_proof(link_key, false, &fake->worker, &fake->own, proof);
    assert_memory_equal(data + RPC_HEADER_BYTES, proof, sizeof(proof));
    bt_rpc_proof(link_key, true, &fake->own, &fake->worker, proof);
    if (asleep_ms > 0) {
        side_turn_at(worker, bt_now_ms() + asleep_ms);
    }
    send_frame(fake->pair, RPC_PROOF, fake->inc, 0, proof, sizeof(proof));
    UNTIL(worker, NULL, worker->n_up == was + 1);
}

static void fake_link(fake_t *fake, side_t *worker)
{
    fake_link_asleep(fake, worker, 0);
}

/* Nothing more until the worker knows. */
static void fake_unlink(fake_t *fake, side_t *worker)
{
    const unsigned was = worker->n_down;

    close(fake->pair);
    UNTIL(worker, NULL, worker->n_down == was + 1);
}

static void whoever_cannot_prove_the_key_gets_no_link(void **state)
{
    uint8_t proof[BT_PROOF_BYTES];
    uint8_t other[BT_KEY_BYTES] = {1};
    side_t worker;
    fake_t fake;

    (void)state;
    bt_test_expect_log_lines(1); /* once, whatever else it tries */
    fake_open(&fake, &worker);

    fake_dial(&fake, &worker); /* another key */
    fake_hello(&fake);
    bt_rpc_proof(other, true, &fake.own, &fake.worker, proof);
    send_frame(fake.pair, RPC_PROOF, fake.inc, 0, proof, sizeof(proof));
    run_for(&worker, NULL, 100);
    close(fake.pair);

    fake_dial(&fake, &worker); /* the worker's own proof, sent back to it */
    fake.own = fake.worker;
    fake.inc = fake.worker.incarnation;
    fake_hello(&fake);
    bt_rpc_proof(link_key, false, &fake.worker, &fake.worker, proof);
    send_frame(fake.pair, RPC_PROOF, fake.inc, 0, proof, sizeof(proof));
    run_for(&worker, NULL, 100);
    close(fake.pair);

    fake.inc = 4711;
    fake_dial(&fake, &worker); /* messages without a proof */
    fake_hello(&fake);
    send_frame(fake.pair, RPC_DATA, fake.inc, 1, "\1\0\0\0x", 5);
    run_for(&worker, NULL, 100);
    close(fake.pair);

    fake_dial(&fake, &worker); /* not our protocol */
    sp_send(fake.pair, "GET / HTTP/1.1\r\n\r\n", 18);
    run_for(&worker, NULL, 100);
    close(fake.pair);

    fake_dial(&fake, &worker); /* nothing at all */
    run_for(&worker, NULL, DEAD_MS + 200);
    close(fake.pair);

    assert_int_equal(worker.n_up + worker.n_down + worker.n_messages, 0);
    fake_link(&fake, &worker); /* the true one is let in after all that */
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

static void a_broken_sequence_ends_the_link(void **state)
{
    static const struct {
        uint64_t inc;
        uint64_t first, second;
        rpc_kind_t kind;
        const char *body;
        size_t n;
        const char *reason;
        uint32_t n_messages;
    } cases[] = {
        {4711, 1, 2, RPC_DATA, "\4\0\0\0\1\0\0\0", 8, NULL, 2},
        {4711, 1, 3, RPC_DATA, "\4\0\0\0\1\0\0\0", 8, "lost or repeated", 1},
        {4711, 1, 1, RPC_DATA, "\4\0\0\0\1\0\0\0", 8, "lost or repeated", 1},
        {4712, 1, 2, RPC_DATA, "\4\0\0\0\1\0\0\0", 8, "another process", 1},
        {4711, 1, 2, RPC_DATA, "\5\0\0\0\1\0\0\0", 8, "malformed", 1},
        {4711, 1, 2, RPC_DATA, "\0\0\0", 3, "malformed", 1},
        {4711, 1, 2, RPC_DATA, "\xff\xff\xff\xff", 4, "malformed", 1},
        {4711, 1, 0, RPC_PROOF, "12345678901234567890123456789012", 32,
         "malformed", 1},
        {4711, 1, 2, RPC_BYE, "so long", 7, "so long", 1},
    };
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const unsigned was = worker.n_down;

        worker.n_messages = 0;
        fake_link(&fake, &worker);
        send_frame(fake.pair, RPC_DATA, 4711, cases[i].first,
                   "\4\0\0\0\0\0\0\0", 8);
        send_frame(fake.pair, cases[i].kind, cases[i].inc, cases[i].second,
                   cases[i].body, cases[i].n);
        if (cases[i].reason != NULL) {
            UNTIL(&worker, NULL, worker.n_down == was + 1);
            assert_non_null(strstr(worker.reason, cases[i].reason));
            close(fake.pair);
        } else {
            UNTIL(&worker, NULL, worker.n_messages == 2);
            assert_int_equal(worker.n_down, was);
            fake_unlink(&fake, &worker);
        }
        assert_int_equal(worker.n_messages, cases[i].n_messages);
        assert_true(worker.in_order);
    }
    fake_close(&fake, &worker);
}

static void an_oversized_frame_ends_the_link(void **state)
{
    static const uint64_t claims[] = {BT_RPC_MAX_FRAME + 1, 1ull << 40,
                                      UINT64_MAX};
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(claims); i++) {
        fake_link(&fake, &worker);
        sp_send_claiming(fake.pair, claims[i], "BTN1", 4);
        UNTIL(&worker, NULL, worker.n_down == i + 1);
        close(fake.pair);
    }
    fake_close(&fake, &worker);
}

/* The worker's link socket: one that speaks no SP, another protocol of SP, or
 * only half of the greeting. */
static void
garbage_at_the_workers_socket_does_not_keep_it_from_linking(void **state)
{
    static const char junk[4096] = "\x16\x03\x01 junk";
    side_t worker;
    fake_t fake;
    int held[3];
    uint16_t port;

    (void)state;
    fake_open(&fake, &worker);
    port = fake_learn(&fake, &worker);
    held[0] = tcp_connect(port);
    write_all(held[0], junk, sizeof(junk));
    held[1] = tcp_connect(port);
    write_all(held[1], "\0SP", 3);
    held[2] = sp_connect(port, PUB);
    sp_send(held[2], junk, sizeof(junk));
    run_for(&worker, NULL, 200);
    fake_link(&fake, &worker);
    assert_int_equal(worker.n_messages, 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(held); i++) {
        close(held[i]);
    }
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

static void announce(uint16_t port, const uint8_t *key, const char *where)
{
    uint8_t frame[RPC_MAX_ANNOUNCE];
    const size_t n = bt_rpc_announce_put(key, 99, where, frame);
    const int fd = sp_connect(port, PUB);

    sp_send(fd, frame, n);
    usleep(1000); /* the close may overtake the message: then it says less */
    close(fd);
}

static void garbage_at_the_routers_socket_harms_nobody(void **state)
{
    static const char junk[4096] = "\x16\x03\x01 junk";
    side_t router;
    side_t worker;
    uint16_t port;
    int held[4];

    (void)state;
    bt_test_expect_log_lines(1);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)), BT_OK);
    port = port_of(url);
    held[0] = tcp_connect(port);
    write_all(held[0], junk, sizeof(junk));
    held[1] = sp_connect(port, PAIR); /* not a push socket */
    held[2] = sp_connect(port, PUB);
    sp_send(held[2], junk, 300); /* fits, and is nonsense: one line */
    held[3] = sp_connect(port, PUB);
    sp_send_claiming(held[3], 1ull << 40, junk, sizeof(junk));
    run_for(&router, NULL, 200);
    announce(port, link_key, "http://127.0.0.1:1/x"); /* no more lines */
    announce(port, link_key, "tcp://");
    run_for(&router, NULL, 100);

    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 1));
    assert_int_equal(router.n_down, 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(held); i++) {
        close(held[i]);
    }
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
}

/* The time in which a process does not run is not its peer's delay. */
static void a_handshake_outlasts_our_own_sleep(void **state)
{
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    fake_link_asleep(&fake, &worker, 100 * DEAD_MS);
    assert_int_equal(worker.n_down, 0);
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

/* An announcement that leads nowhere is given up silently. */
static void an_announced_address_that_nobody_has_is_given_up(void **state)
{
    side_t router;
    uint16_t dead;
    char where[64];
    const int fd = tcp_listen(&dead);

    (void)state;
    close(fd);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)), BT_OK);
    snprintf(where, sizeof(where), "tcp://127.0.0.1:%u", dead);
    for (int i = 0; i < 3; i++) {
        announce(port_of(url), link_key, where);
        run_for(&router, NULL, DEAD_MS / 2);
    }
    run_for(&router, NULL, DEAD_MS + 100);
    assert_int_equal(router.n_up + router.n_down, 0);
    bt_rpc_close(router.rpc);
}

#define HANG_UPS 25

/* A router that dies takes connections which it never answers. */
static void a_router_that_hangs_up_at_the_greeting_is_found_again(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const uint8_t greeting[8] = {0, 'S', 'P', 0, 0, SUB, 0, 0};
    side_t worker;
    side_t router;
    int listener;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/hang-up.ipc",
             getenv("RPC_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(
        bind(listener, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 4), 0);
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    for (int i = 0; i < 2 * HANG_UPS; i++) {
        uint8_t theirs[8];
        int fd;

        UNTIL(&worker, NULL, readable(listener));
        fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (i >= HANG_UPS) {
            read_all(fd, theirs, sizeof(theirs));
            write_all(fd, greeting, sizeof(greeting));
        }
        close(fd);
    }
    close(listener);
    assert_int_equal(unlink(addr.sun_path), 0);

    side_open(&router, key_a, "r");
    assert_int_equal(bt_rpc_listen(router.rpc, url, url, sizeof(url)), BT_OK);
    UNTIL(&worker, &router, (worker.n_up == 1) && (router.n_up == 1));
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
}

static int connect_to(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)),
                     0);
    return fd;
}

/* A listener of nng 1.5 takes a peer that hangs up in the greeting for its own
 * end and accepts nobody any more: one port scan, and no worker joined. */
static void strangers_do_not_make_a_router_deaf(void **state)
{
    static const struct {
        const char *text;
        size_t n;
    } openings[] = {
        {"", 0},
        {"\0SP", 3},
        {"\0SP\0\0\x20\0\0", 8},
        {"\0SP\0\0\x10\0\0", 8}, /* another protocol */
        {"GET / HTTP/1.1\r\n\r\n", 18},
        /* a message that is too long, one that is cut, a wrong mark */
        {"\0SP\0\0\x20\0\0\1\0\0\0\1\0\0\0\0", 17},
        {"\0SP\0\0\x20\0\0\1\0\0\0\0\0\0\0\7abc", 20},
        {"\0SP\0\0\x20\0\0\2\0\0\0\0\0\0\0\1a", 18},
    };
    side_t worker;
    side_t router;
    int silent;

    (void)state;
    snprintf(url, sizeof(url), "ipc://%s/deaf.ipc", getenv("RPC_TEST_DIR"));
    side_open(&router, key_a, "r");
    assert_int_equal(bt_rpc_listen(router.rpc, url, url, sizeof(url)), BT_OK);
    silent = connect_to(url + 6);
    for (size_t i = 0; i < HANG_UPS * sizeof(openings) / sizeof(openings[0]);
         i++) {
        const size_t k = i % (sizeof(openings) / sizeof(openings[0]));
        const int fd = connect_to(url + 6);

        write_all(fd, openings[k].text, openings[k].n);
        close(fd);
    }
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    UNTIL(&worker, &router, (worker.n_up == 1) && (router.n_up == 1));
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
    close(silent);
}

/* What a killed router left is taken over; what another one uses is not. */
static void a_socket_that_is_left_over_is_taken_over(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    side_t first;
    side_t second;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/left.ipc",
             getenv("RPC_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    side_open(&first, key_a, "r");
    assert_int_equal(bt_rpc_listen(first.rpc, url, url, sizeof(url)), BT_OK);
    side_open(&second, key_a, "s");
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_rpc_listen(second.rpc, url, url, sizeof(url)),
                     BT_ERR_IO);
    bt_rpc_close(second.rpc);
    close(connect_to(addr.sun_path)); /* still there */
    bt_rpc_close(first.rpc);
    assert_int_equal(access(addr.sun_path, F_OK), -1);
}

/* Worked by hand: magic, kind 3, incarnation 0x0102030405060708, sequence 2, a
 * message "hi" and an empty one. */
static void a_data_frame_is_these_bytes(void **state)
{
    static const uint8_t expected[] = {
        'B', 'T', 'N', '1', 3, 0, 0, 0, 8, 7, 6, 5,   4,   3, 2, 1, 2,
        0,   0,   0,   0,   0, 0, 0, 2, 0, 0, 0, 'h', 'i', 0, 0, 0, 0};
    uint8_t frame[sizeof(expected)];
    rpc_frame_t parsed;
    const void *data;
    size_t at = 0;
    size_t n;

    (void)state;
    bt_rpc_frame_put_header(frame, RPC_DATA, 0x0102030405060708u, 2);
    bt_rpc_frame_put_length(frame + 24, 2);
    memcpy(frame + 28, "hi", 2);
    bt_rpc_frame_put_length(frame + 30, 0);
    assert_memory_equal(frame, expected, sizeof(expected));

    assert_int_equal(bt_rpc_frame_parse(expected, sizeof(expected), &parsed),
                     BT_OK);
    assert_true(bt_rpc_frame_next(&parsed, &at, &data, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(data, "hi", 2);
    assert_true(bt_rpc_frame_next(&parsed, &at, &data, &n));
    assert_int_equal(n, 0);
    assert_false(bt_rpc_frame_next(&parsed, &at, &data, &n));
    for (size_t cut = 0; cut < sizeof(expected); cut++) {
        /* 24: a heartbeat; 30: only the first message */
        assert_int_equal(bt_rpc_frame_parse(expected, cut, &parsed),
                         ((cut == 24) || (cut == 30)) ? BT_OK
                                                      : BT_ERR_BAD_MESSAGE);
    }
    assert_int_equal(bt_rpc_frame_whole(expected + 24, 10, 10), 10);
    assert_int_equal(bt_rpc_frame_whole(expected + 24, 10, 9), 6);
    assert_int_equal(bt_rpc_frame_whole(expected + 24, 10, 5), 0);
}

/* Written by Python's hashlib: tests/fuzz/make_wire_corpus.py. */
static void an_announcement_of_another_maker_is_taken(void **state)
{
    const uint8_t key[BT_KEY_BYTES] = {1, 2, 3};
    uint8_t data[RPC_MAX_ANNOUNCE + 1];
    char where[RPC_MAX_URL];
    uint64_t incarnation;
    FILE *file = fopen(bt_test_path("fuzz/corpus/frame/announce"), "rb");
    size_t n;

    (void)state;
    assert_non_null(file);
    n = fread(data, 1, sizeof(data), file);
    fclose(file);
    assert_int_equal(bt_rpc_announce_check(key, data, n, &incarnation, where),
                     BT_OK);
    assert_int_equal(incarnation, 5);
    assert_string_equal(where, "tcp://127.0.0.1:4711");
    for (size_t i = 0; i < n; i++) { /* every byte is covered */
        data[i] ^= 0x40;
        assert_int_not_equal(
            bt_rpc_announce_check(key, data, n, &incarnation, where), BT_OK);
        data[i] ^= 0x40;
    }
}

int main(void)
{
    static const char domain[] = "baton rpc key 1";
    const struct CMUnitTest tests[] = {
        BT_TEST(a_data_frame_is_these_bytes),
        BT_TEST(an_announcement_of_another_maker_is_taken),
        BT_TEST(whoever_cannot_prove_the_key_gets_no_link),
        BT_TEST(a_broken_sequence_ends_the_link),
        BT_TEST(an_oversized_frame_ends_the_link),
        BT_TEST(garbage_at_the_workers_socket_does_not_keep_it_from_linking),
        BT_TEST(garbage_at_the_routers_socket_harms_nobody),
        BT_TEST(a_handshake_outlasts_our_own_sleep),
        BT_TEST(an_announced_address_that_nobody_has_is_given_up),
        BT_TEST(a_router_that_hangs_up_at_the_greeting_is_found_again),
        BT_TEST(strangers_do_not_make_a_router_deaf),
        BT_TEST(a_socket_that_is_left_over_is_taken_over),
    };
    int failed;

    if (test_dir_make() != 0) {
        return 1;
    }
    bt_key_proof(key_a, sizeof(key_a), domain, sizeof(domain), link_key);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove();
    return failed;
}
