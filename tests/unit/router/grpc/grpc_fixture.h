/* SPDX-License-Identifier: Apache-2.0 */
/** @file grpc_fixture.h
 *
 * A server of three methods on a loop, and a raw client on the same thread:
 *
 *     /t.S/Echo    unary: sends its message back
 *     /t.S/Stream  each message back; ends when the client has said all
 *     /t.S/Hold    unary: waits, until the test ends it
 */
#ifndef BT_TESTS_UNIT_GRPC_GRPC_FIXTURE_H
#define BT_TESTS_UNIT_GRPC_GRPC_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/grpc/grpc.h"
#include "tests/unit/router/grpc/frames.h"

#define PATIENCE_MS 60000 /* only guards a hang */
#define LONG_MS     60000u

typedef struct fixture {
    struct event_base *base;
    struct event *tick;
    bt_grpc_t *grpc;
    uint16_t port;
    bt_gcall_t *held; /* of Hold, the last */
    int n_gone, n_ended, n_unnamed;
    bt_grpc_code_t code; /* of the last one that ended */
    int fd;
    bt_strbuf_t in, out;
    bool eof;
} fixture_t;

static inline void echo(bt_gcall_t *call, bt_gmessage_t *message)
{
    const bt_strbuf_t *body = &message->body;

    if (bt_gcall_send(call, (body->len > 0) ? body->data : "", body->len)) {
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
    bt_gmessage_fini(bt_gcall_grpc(call), message);
}

static inline void stream(bt_gcall_t *call, bt_gmessage_t *message)
{
    const bt_strbuf_t *body = &message->body;

    (void)bt_gcall_send(call, (body->len > 0) ? body->data : "", body->len);
    bt_gmessage_fini(bt_gcall_grpc(call), message);
}

static inline void half_close(bt_gcall_t *call)
{
    bt_gcall_end(call, BT_GRPC_OK, NULL);
}

static inline void hold(bt_gcall_t *call, bt_gmessage_t *message)
{
    fixture_t *f = bt_gcall_ctx(call);

    f->held = call;
    bt_gmessage_fini(bt_gcall_grpc(call), message);
}

static inline void gone(bt_gcall_t *call)
{
    fixture_t *f = bt_gcall_ctx(call);

    f->n_gone++;
    if (f->held == call) {
        f->held = NULL;
    }
}

static const bt_gmethod_t test_methods[] = {
    {"/t.S/Echo", false, 0, echo, NULL, NULL, 0, NULL, NULL},
    {"/t.S/Stream", true, 0, stream, half_close, gone, 0, NULL, NULL},
    {"/t.S/Hold", false, 100, hold, NULL, gone, 0, NULL, NULL},
};

static inline void on_ended(void *ctx, bt_gcall_t *call, bt_grpc_code_t code)
{
    fixture_t *f = ctx;

    (void)call;
    f->n_ended++;
    f->code = code;
}

static inline void on_refused(void *ctx, const char *given, bt_grpc_code_t code,
                              char id[BT_GCALL_MEMO_BYTES])
{
    (void)given;
    (void)id;
    on_ended(ctx, NULL, code);
}

static inline const char *on_admit(void *ctx, const bt_gmethod_t *method,
                                   const bt_stream_t *client,
                                   bt_grpc_field_fn field, const void *head,
                                   bt_grpc_code_t *code_p)
{
    (void)ctx;
    (void)method;
    (void)client;
    (void)field;
    (void)head;
    (void)code_p;
    return NULL;
}

static inline void on_begin(void *ctx, bt_gcall_t *call)
{
    (void)ctx;
    (void)call;
}

static inline void on_turn(void *ctx)
{
    (void)ctx;
}

/* Everybody but those who call it "evil.example", or come from there. */
static inline const char *on_check(void *ctx, const char *authority,
                                   const char *origin)
{
    fixture_t *f = ctx;

    f->n_unnamed += (authority == NULL) ? 1 : 0;
    return (((authority != NULL) && (strcmp(authority, "evil.example") == 0)) ||
            ((origin != NULL) && (strcmp(origin, "https://evil.example") == 0)))
               ? "no name of this server"
               : NULL;
}

static const bt_grpc_config_t usual = {
    .net = {.max_connections = 8, .memory_bytes = 64u << 20},
    .max_message_bytes = 1u << 20,
    .header_timeout_ms = LONG_MS,
    .body_timeout_ms = LONG_MS,
    .idle_timeout_ms = LONG_MS,
    .client_buffer_bytes = 64u * 1024,
};

static inline void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static inline void client_connect(fixture_t *f)
{
    const struct sockaddr_in addr = {.sin_family = AF_INET,
                                     .sin_port = htons(f->port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(f->fd >= 0);
    assert_int_equal(
        connect(f->fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    f->eof = false;
    bt_strbuf_reset(&f->out);
}

static inline void fixture_start(fixture_t *f, const bt_grpc_config_t *config)
{
    const bt_grpc_handlers_t handlers = {.methods = test_methods,
                                         .n_methods =
                                             BT_ARRAY_LEN(test_methods),
                                         .ctx = f,
                                         .on_check = on_check,
                                         .on_admit = on_admit,
                                         .on_begin = on_begin,
                                         .on_refused = on_refused,
                                         .id_field = "x-request-id",
                                         .on_end = on_ended,
                                         .on_turn = on_turn};
    const struct timeval period = {.tv_usec = 1000};
    char why[BT_NET_WHY_BYTES];

    *f = (fixture_t){.fd = -1};
    bt_strbuf_init(&f->in, 64u << 20);
    bt_strbuf_init(&f->out, 64u << 20);
    f->base = bt_net_loop_create();
    assert_non_null(f->base);
    f->tick = event_new(f->base, -1, EV_PERSIST, on_tick, NULL);
    assert_int_equal(event_add(f->tick, &period), 0);
    assert_int_equal(bt_grpc_create(f->base, config, &handlers, &f->grpc),
                     BT_OK);
    assert_int_equal(
        bt_net_listen(bt_grpc_net(f->grpc), "127.0.0.1", 0, &f->port, why),
        BT_OK);
    client_connect(f);
}

static inline void fixture_stop(fixture_t *f)
{
    bt_net_use_t use;

    close(f->fd);
    bt_net_stop_listening(bt_grpc_net(f->grpc));
    bt_grpc_destroy(f->grpc);
    (void)use;
    event_free(f->tick);
    event_base_free(f->base);
    bt_strbuf_fini(&f->in);
    bt_strbuf_fini(&f->out);
}

/* One turn: what the client says goes out, what it was told comes in. */
static inline void turn(fixture_t *f)
{
    char buf[65536];
    ssize_t n;

    if (f->in.len > 0) {
        n = send(f->fd, f->in.data, f->in.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            bt_strbuf_consume(&f->in, (size_t)n);
        }
    }
    event_base_loop(f->base, EVLOOP_ONCE);
    n = recv(f->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n > 0) {
        bt_strbuf_append(&f->out, buf, (size_t)n);
    } else if ((n == 0) || ((errno != EAGAIN) && (errno != EWOULDBLOCK))) {
        f->eof = true;
    }
}

#define WAIT_FOR(f, condition)                                         \
    do {                                                               \
        const uint64_t end_ms_ = bt_now_ms() + PATIENCE_MS;            \
                                                                       \
        while (!(condition)) {                                         \
            if (bt_now_ms() > end_ms_) {                               \
                fail_msg("%s:%d: %s", __FILE__, __LINE__, #condition); \
            }                                                          \
            turn(f);                                                   \
        }                                                              \
    } while (0)

/* Is a text in the bytes that came? Fields of heads are Huffman's, or of the
 * table, so this is for bodies. */
static inline bool came(const fixture_t *f, const void *text, size_t bytes)
{
    return (f->out.len >= bytes) &&
           (memmem(f->out.data, f->out.len, text, bytes) != NULL);
}

#endif
