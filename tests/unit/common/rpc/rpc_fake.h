/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_fake.h  For the rpc tests: peers made by hand on plain sockets.
 *
 * What nng itself says on a TCP connection (source: nanomsg RFC
 * "sp-tcp-mapping-01"): 8 bytes 0 'S' 'P' 0 protocol[2] 0 0 from each side,
 * then messages, each after its length in 8 bytes, big endian. Protocols: pair
 * 0x10, pub 0x20, sub 0x21. */
#ifndef BT_TESTS_UNIT_RPC_RPC_FAKE_H
#define BT_TESTS_UNIT_RPC_RPC_FAKE_H

#include "tests/unit/common/rpc/rpc_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/assert.h"
#include "common/rpc/rpc_intro.h"

#define PAIR 0x10
#define PUB  0x20
#define SUB  0x21

static char url[256];
static rpc_keys_t link_keys; /* what rpc makes of key_a */

static inline int tcp_connect(uint16_t port)
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

static inline int tcp_listen(uint16_t *port_p)
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

static inline uint16_t port_of(const char *where)
{
    return (uint16_t)strtoul(strrchr(where, ':') + 1, NULL, 10);
}

/* A peer that has hung up already is no fault: what follows shows it. */
static inline void write_all(int fd, const void *data, size_t n)
{
    const ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

    if (sent < 0) {
        assert_true((errno == EPIPE) || (errno == ECONNRESET));
    } else {
        assert_int_equal(sent, n);
    }
}

/* For the peer's nng threads, which need nobody to drive them. */
static inline void read_all(int fd, void *data, size_t n)
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

static inline void sp_say_hello(int fd, uint8_t protocol)
{
    const uint8_t hello[8] = {0, 'S', 'P', 0, 0, protocol, 0, 0};

    write_all(fd, hello, sizeof(hello));
}

static inline void sp_greet(int fd, uint8_t protocol)
{
    uint8_t theirs[8];

    sp_say_hello(fd, protocol);
    read_all(fd, theirs, sizeof(theirs));
    assert_memory_equal(theirs, "\0SP", 4);
}

static inline int sp_connect(uint16_t port, uint8_t protocol)
{
    const int fd = tcp_connect(port);

    sp_greet(fd, protocol);
    return fd;
}

static inline void sp_send_claiming(int fd, uint64_t claimed, const void *data,
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

static inline void sp_send(int fd, const void *data, size_t n)
{
    sp_send_claiming(fd, n, data, n);
}

static inline bool readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* One frame from the driven end. @return its bytes in `data` */
static inline size_t sp_recv(int fd, side_t *side, uint8_t *data, size_t cap)
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

/* ---- a router made by hand: a place to announce to ---- */

typedef struct fake {
    int listener;
    int sub;                         /* connection with announcements */
    int pair;                        /* connection to the worker's socket */
    uint8_t announce[RPC_MAX_INTRO]; /* the newest, as it was sent */
    size_t announce_bytes;
    rpc_intro_t worker; /* what it says */
    rpc_intro_t own;
    uint8_t open[RPC_MAX_INTRO]; /* what was sent last */
    size_t open_bytes;
    uint8_t accept[512]; /* what came last */
    size_t accept_bytes;
    rpc_session_t session;
} fake_t;

static inline void fake_open(fake_t *fake, side_t *worker)
{
    uint16_t port;

    memset(fake, 0, sizeof(*fake));
    fake->own = (rpc_intro_t){
        .range = {3, 3}, .incarnation = 4711, .name = "fake router"};
    fake->listener = tcp_listen(&port);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", port);
    side_open(worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker->rpc, url), BT_OK);
    UNTIL(worker, NULL, readable(fake->listener));
    fake->sub = accept(fake->listener, NULL, NULL);
    assert_true(fake->sub >= 0);
    sp_greet(fake->sub, SUB);
}

static inline void fake_close(fake_t *fake, side_t *worker)
{
    bt_rpc_close(worker->rpc);
    close(fake->sub);
    close(fake->listener);
}

/* The newest announcement: waits for one of another socket than the last. */
static inline void fake_learn(fake_t *fake, side_t *worker)
{
    const uint64_t known = fake->worker.count;
    uint8_t data[RPC_MAX_INTRO];
    size_t n;

    do {
        n = sp_recv(fake->sub, worker, data, sizeof(data));
        if (memcmp(data, "BTN1", 4) == 0) {
            continue; /* after a while it thinks that we may be old */
        }
        memcpy(fake->announce, data, n);
        fake->announce_bytes = n;
        assert_int_equal(
            bt_rpc_announce_check(&link_keys, data, n, &fake->worker), BT_OK);
    } while ((fake->worker.count == known) || readable(fake->sub));
}

static inline void fake_dial(fake_t *fake, side_t *worker)
{
    fake_learn(fake, worker);
    fake->pair = sp_connect(port_of(fake->worker.url), PAIR);
}

/* OPEN, made with some keys; the session is what the true ones make of it. */
static inline void fake_send_open(fake_t *fake, const rpc_keys_t *keys)
{
    bt_key_random(fake->own.nonce, sizeof(fake->own.nonce));
    fake->open_bytes = bt_rpc_open_put(
        keys, fake->announce, fake->announce_bytes, &fake->own, fake->open);
    bt_rpc_session_make(&link_keys, fake->announce, fake->announce_bytes,
                        fake->open, fake->open_bytes, &fake->session);
    sp_send(fake->pair, fake->open, fake->open_bytes);
}

static inline void send_sealed(int fd, const uint8_t *key, uint8_t kind,
                               uint64_t sequence, const void *body, size_t n)
{
    uint8_t frame[512];

    assert_true(bt_rpc_frame_bytes(n) <= sizeof(frame));
    if (n > 0) {
        memcpy(frame + RPC_HEADER_BYTES, body, n);
    }
    bt_rpc_frame_seal(key, kind, sequence, frame, bt_rpc_frame_bytes(n));
    sp_send(fd, frame, bt_rpc_frame_bytes(n));
}

static inline void fake_send(fake_t *fake, uint8_t kind, uint64_t sequence,
                             const void *body, size_t n)
{
    send_sealed(fake->pair, fake->session.to_worker, kind, sequence, body, n);
}

/* All of it, as a true router would. The worker's process may be asleep for
 * a while before our last frame (SIGSTOP, a machine that is suspended). */
static inline void fake_link_asleep(fake_t *fake, side_t *worker,
                                    uint64_t asleep_ms)
{
    const unsigned was = worker->n_up;
    rpc_frame_t frame;

    fake_dial(fake, worker);
    fake_send_open(fake, &link_keys);
    fake->accept_bytes =
        sp_recv(fake->pair, worker, fake->accept, sizeof(fake->accept));
    assert_int_equal(bt_rpc_frame_open(fake->session.to_router, fake->accept,
                                       fake->accept_bytes, &frame),
                     BT_OK);
    assert_int_equal(frame.kind, RPC_ACCEPT);
    assert_int_equal(frame.sequence, 1);
    assert_int_equal(frame.bytes, 5);
    assert_memory_equal(frame.body, "\3\0\0\0w", 5);
    if (asleep_ms > 0) {
        side_turn_at(worker, bt_now_ms() + asleep_ms);
    }
    fake_send(fake, RPC_READY, 1, "\3\0\0\0r", 5);
    UNTIL(worker, NULL, worker->n_up == was + 1);
}

static inline void fake_link(fake_t *fake, side_t *worker)
{
    fake_link_asleep(fake, worker, 0);
}

/* Nothing more until the worker knows. */
static inline void fake_unlink(fake_t *fake, side_t *worker)
{
    const unsigned was = worker->n_down;

    close(fake->pair);
    UNTIL(worker, NULL, worker->n_down == was + 1);
}

/* Is this connection closed, and was nothing said on it? */
static inline bool is_closed(int fd)
{
    uint8_t byte;

    return readable(fd) && (recv(fd, &byte, 1, 0) <= 0);
}

/* ---- announcements made by hand ---- */

static inline int announce_bytes(uint16_t port, const void *data, size_t n)
{
    const int fd = sp_connect(port, PUB);

    sp_send(fd, data, n);
    return fd;
}

/* Of a program of tests. */
static inline int run_fakes(int (*run)(void))
{
    int failed;

    if (test_dir_make() != 0) {
        return 1;
    }
    bt_rpc_keys_make(key_a, sizeof(key_a), &link_keys);
    failed = run();
    test_dir_remove();
    return failed;
}

#endif
