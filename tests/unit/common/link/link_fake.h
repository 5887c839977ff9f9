/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_fake.h  For the control tests: peers made by hand on plain
 * sockets. */
#ifndef BT_TESTS_UNIT_COMMON_LINK_LINK_FAKE_H
#define BT_TESTS_UNIT_COMMON_LINK_LINK_FAKE_H

#include "tests/unit/common/link/link_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/status.h"
#include "common/link/link_handshake_frames.h"

static char url[256];
static link_keys_t link_keys; /* what control makes of key_a */

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

static inline void frame_send_claiming(int fd, uint32_t claimed,
                                       const void *data, size_t n)
{
    uint8_t length[LINK_LENGTH_BYTES];

    bt_link_put_le(length, claimed, sizeof(length));
    write_all(fd, length, sizeof(length));
    if (n > 0) {
        write_all(fd, data, n);
    }
}

static inline void frame_send(int fd, const void *data, size_t n)
{
    frame_send_claiming(fd, (uint32_t)n, data, n);
}

static inline bool readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* One frame from the driven end. @return its bytes in `data` */
static inline size_t frame_recv(int fd, side_t *side, uint8_t *data, size_t cap)
{
    uint8_t length[LINK_LENGTH_BYTES];
    size_t n;

    UNTIL(side, NULL, readable(fd));
    read_all(fd, length, sizeof(length));
    n = (size_t)bt_link_get_le(length, sizeof(length));
    assert_true(n <= cap);
    read_all(fd, data, n);
    return n;
}

/* ---- a router made by hand ---- */

typedef struct fake {
    int listener;
    int link;                     /* the worker's connection */
    uint8_t join[LINK_MAX_INTRO]; /* its first frame, as it was sent */
    size_t join_bytes;
    link_intro_t worker; /* what it says */
    link_intro_t own;
    uint8_t open[LINK_MAX_INTRO]; /* what was sent last */
    size_t open_bytes;
    uint8_t accept[512]; /* what came last */
    size_t accept_bytes;
    link_session_t session;
} fake_t;

/* @param [in] range  versions that the worker speaks */
static inline void fake_open_for(fake_t *fake, side_t *worker,
                                 bt_wire_range_t range)
{
    bt_control_config_t config = side_config(key_a, "w");
    uint16_t port;

    memset(fake, 0, sizeof(*fake));
    fake->own = (link_intro_t){
        .range = {4, 4}, .incarnation = 4711, .name = "fake router"};
    fake->listener = tcp_listen(&port);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", port);
    memset(worker, 0, sizeof(*worker));
    worker->in_order = true;
    config.range = range;
    assert_int_equal(bt_control_open(&config, &worker->control), BT_OK);
    assert_int_equal(bt_control_join(worker->control, url), BT_OK);
}

static inline void fake_open(fake_t *fake, side_t *worker)
{
    fake_open_for(fake, worker, (bt_wire_range_t){4, 4});
}

static inline void fake_close(fake_t *fake, side_t *worker)
{
    bt_control_close(worker->control);
    close(fake->listener);
}

/* The worker's next connection, and its JOIN. */
static inline void fake_accept(fake_t *fake, side_t *worker)
{
    UNTIL(worker, NULL, readable(fake->listener));
    fake->link = accept(fake->listener, NULL, NULL);
    assert_true(fake->link >= 0);
    fake->join_bytes =
        frame_recv(fake->link, worker, fake->join, sizeof(fake->join));
    assert_int_equal(bt_link_join_check(&link_keys, fake->join,
                                        fake->join_bytes, &fake->worker),
                     BT_OK);
}

/* OPEN, made with some keys; the session is what the true ones make of it. */
static inline void fake_send_open(fake_t *fake, const link_keys_t *keys)
{
    bt_key_random(fake->own.nonce, sizeof(fake->own.nonce));
    fake->open_bytes = bt_link_open_put(keys, fake->join, fake->join_bytes,
                                        &fake->own, fake->open);
    bt_link_session_make(&link_keys, fake->join, fake->join_bytes, fake->open,
                         fake->open_bytes, &fake->session);
    frame_send(fake->link, fake->open, fake->open_bytes);
}

/* The answer to it. */
static inline void fake_recv_accept(fake_t *fake, side_t *worker,
                                    link_frame_t *frame_p)
{
    fake->accept_bytes =
        frame_recv(fake->link, worker, fake->accept, sizeof(fake->accept));
    assert_int_equal(bt_link_frame_open(fake->session.to_router, fake->accept,
                                        fake->accept_bytes, frame_p),
                     BT_OK);
}

static inline void send_sealed(int fd, const uint8_t *key, uint8_t kind,
                               uint64_t sequence, const void *body, size_t n)
{
    uint8_t frame[512];

    assert_true(bt_link_frame_bytes(n) <= sizeof(frame));
    if (n > 0) {
        memcpy(frame + LINK_HEADER_BYTES, body, n);
    }
    bt_link_frame_seal(key, kind, sequence, frame, bt_link_frame_bytes(n));
    frame_send(fd, frame, bt_link_frame_bytes(n));
}

static inline void fake_send(fake_t *fake, uint8_t kind, uint64_t sequence,
                             const void *body, size_t n)
{
    send_sealed(fake->link, fake->session.to_worker, kind, sequence, body, n);
}

/* All of it, as a true router would. The worker's process may be asleep for
 * a while before our last frame (SIGSTOP, a machine that is suspended). */
static inline void fake_link_asleep(fake_t *fake, side_t *worker,
                                    uint64_t asleep_ms)
{
    const unsigned was = worker->n_up;
    link_frame_t frame;

    fake_accept(fake, worker);
    fake_send_open(fake, &link_keys);
    fake_recv_accept(fake, worker, &frame);
    assert_int_equal(frame.kind, LINK_FRAME_ACCEPT);
    assert_int_equal(frame.sequence, 1);
    assert_int_equal(frame.bytes, 5);
    assert_memory_equal(frame.body, "\4\0\0\0w", 5);
    if (asleep_ms > 0) {
        side_turn_at(worker, bt_now_ms() + asleep_ms);
    }
    fake_send(fake, LINK_FRAME_READY, 1, "\4\0\0\0r", 5);
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

    close(fake->link);
    UNTIL(worker, NULL, worker->n_down == was + 1);
}

/* Is this connection closed, and was nothing said on it? */
static inline bool is_closed(int fd)
{
    uint8_t byte;

    return readable(fd) && (recv(fd, &byte, 1, 0) <= 0);
}

/* Of a program of tests. */
static inline int run_fakes(int (*run)(void))
{
    int failed;

    if (test_dir_make() != 0) {
        return 1;
    }
    bt_link_keys_make(key_a, sizeof(key_a), &link_keys);
    failed = run();
    test_dir_remove();
    return failed;
}

#endif
