/* SPDX-License-Identifier: Apache-2.0 */
/* The server, and its connections: bytes between sockets and HTTP/2, and
 * timeouts. */
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/grpc/grpc_priv.h"

/* Messages delivered in one turn of the loop: the synchronous part of a method
 * takes some 100 us at most. */
#define DELIVERED_PER_TURN 4
/* Time between announcing that no more streams are accepted and refusing them:
 * streams on the way have arrived by then. */
#define LEAVING_MS 200
#define LINGER_MS  1000
/* Approximate memory of a stream besides what is counted. */
#define STREAM_BYTES ((size_t)3 * 1024)

static void set_state(bt_gconn_t *conn, bt_gconn_state_t state)
{
    conn->state = state;
    conn->since_ms = bt_now_ms();
}

/* ---- stream classes and memory ---- */

static void update_class(bt_gconn_t *conn)
{
    bt_stream_class_t class = BT_STREAM_QUIET;

    BT_LIST_FOR_EACH_ENTRY(const bt_gcall_t, call, &conn->calls, link) {
        if (call->is_running || call->ended) {
            class = BT_STREAM_BUSY;
            break;
        }
        class = BT_STREAM_READING;
    }
    if (class != conn->class) {
        conn->class = class;
        bt_stream_set_class(conn->stream, class);
    }
}

static void charge(bt_gconn_t *conn)
{
    const bt_h2_state_t h2 = bt_h2_state(conn->h2);

    bt_net_charge(conn->grpc->net, &conn->charged,
                  h2.bytes + h2.n_streams * STREAM_BYTES);
    bt_stream_hold(conn->stream, h2.out_bytes);
}

/* ---- time ---- */

void bt_gconn_expect(bt_gconn_t *conn, uint64_t at_ms)
{
    const uint64_t now_ms = bt_now_ms();

    if ((conn->timer_ms != 0) && (conn->timer_ms <= at_ms)) {
        return;
    }
    conn->timer_ms = at_ms;
    bt_stream_set_timer(conn->stream,
                        (at_ms > now_ms) ? (uint32_t)(at_ms - now_ms) : 1);
}

static void take_earlier(uint64_t *next_ms, uint64_t at_ms)
{
    if ((at_ms != 0) && ((*next_ms == 0) || (at_ms < *next_ms))) {
        *next_ms = at_ms;
    }
}

static uint64_t own_deadline(const bt_gconn_t *conn)
{
    const bt_grpc_config_t *config = &conn->grpc->config;
    uint64_t next_ms = 0;

    switch (conn->state) {
    case BT_GCONN_OPENING:
        take_earlier(&next_ms, conn->since_ms + config->header_timeout_ms);
        break;
    case BT_GCONN_OPEN:
        if (bt_list_empty(&conn->calls)) {
            take_earlier(&next_ms, conn->since_ms + config->idle_timeout_ms);
        }
        break;
    case BT_GCONN_LEAVING:
        take_earlier(&next_ms, conn->refused ? 0 : conn->since_ms + LEAVING_MS);
        break;
    case BT_GCONN_LINGER:
        take_earlier(&next_ms, conn->since_ms + LINGER_MS);
        break;
    default:
        return 0;
    }
    if (conn->in_head) {
        take_earlier(&next_ms, conn->head_ms + config->header_timeout_ms);
    }
    if (bt_stream_unsent(conn->stream) > 0) {
        take_earlier(&next_ms, conn->sent_ms + config->idle_timeout_ms);
    }
    return next_ms;
}

static void timer_sync(bt_gconn_t *conn)
{
    const uint64_t at_ms = own_deadline(conn);

    if (at_ms != 0) {
        bt_gconn_expect(conn, at_ms);
    }
}

/* ---- output ---- */

void bt_gconn_dirty(bt_gconn_t *conn)
{
    if ((conn->state != BT_GCONN_CLOSED) && !conn->in_turn) {
        bt_stream_flush_later(conn->stream);
    }
}

/* All output has been passed to the kernel. */
static void all_sent(bt_gconn_t *conn)
{
    if (bt_stream_shutdown(conn->stream) != BT_OK) {
        bt_stream_close(conn->stream);
        return;
    }
    set_state(conn, BT_GCONN_LINGER);
}

/* @return false: the connection is closed */
static bool pull(bt_gconn_t *conn, bool *more_p)
{
    bt_strbuf_t *out = bt_stream_out(conn->stream);
    const void *data = NULL;
    size_t n = 0;

    do {
        if (bt_h2_pull(conn->h2, &data, &n) != BT_OK) {
            bt_stream_close(conn->stream);
            return false;
        }
        bt_strbuf_append(out, data, n);
        *more_p = bt_stream_unsent(conn->stream) >= BT_NET_SEND_BYTES;
    } while ((n > 0) && !*more_p);
    return true;
}

/* Sends pending output. May close the connection. */
static void pump(bt_gconn_t *conn)
{
    bool more = false;
    size_t before;
    bt_status_t status;

    if (conn->state == BT_GCONN_LINGER) {
        return;
    }
    if (bt_stream_unsent(conn->stream) == 0) {
        conn->sent_ms = bt_now_ms(); /* nothing was pending until now */
    }
    if (!pull(conn, &more)) {
        return;
    }
    before = bt_stream_unsent(conn->stream);
    status = bt_stream_flush(conn->stream, BT_NET_SEND_BYTES);
    if ((status == BT_OK) || (bt_stream_unsent(conn->stream) < before)) {
        conn->sent_ms = bt_now_ms();
    }
    if ((status != BT_OK) && (status != BT_INPROGRESS)) {
        bt_stream_close(conn->stream);
        return;
    }
    if ((status == BT_OK) && more) {
        bt_stream_flush_later(conn->stream);
    } else if ((status == BT_OK) && (conn->broken || bt_h2_is_over(conn->h2))) {
        all_sent(conn);
    }
    charge(conn);
}

/* Ends each callback of this connection. */
static void end_turn(bt_gconn_t *conn)
{
    conn->in_turn = false;
    if (conn->state == BT_GCONN_CLOSED) {
        return;
    }
    pump(conn);
    if (conn->state == BT_GCONN_CLOSED) {
        return;
    }
    update_class(conn);
    timer_sync(conn);
}

static void on_writable(void *user)
{
    bt_gconn_t *conn = user;

    conn->in_turn = true;
    end_turn(conn);
}

/* ---- input ---- */

static void deliver_some(bt_gconn_t *conn)
{
    for (int i = 0; (i < DELIVERED_PER_TURN) && !bt_list_empty(&conn->ready);
         i++) {
        bt_gcall_deliver(
            BT_CONTAINER_OF(conn->ready.next, bt_gcall_t, ready_link));
    }
    if (!bt_list_empty(&conn->ready)) {
        bt_stream_again(conn->stream);
    }
}

static void update_in_head(bt_gconn_t *conn, uint64_t now_ms)
{
    const bool in_head = bt_h2_state(conn->h2).in_head;

    if (in_head && !conn->in_head) {
        conn->head_ms = now_ms;
    }
    conn->in_head = in_head;
}

static void feed(bt_gconn_t *conn, const char *data, size_t n)
{
    const uint64_t now_ms = bt_now_ms();

    if (bt_h2_feed(conn->h2, data, n, now_ms) != BT_OK) {
        conn->broken = true;
    }
    update_in_head(conn, now_ms);
    if ((conn->state == BT_GCONN_OPENING) && bt_h2_state(conn->h2).is_open) {
        set_state(conn, BT_GCONN_OPEN);
        if (bt_net_stopped(conn->grpc->net)) {
            bt_h2_announce_end(conn->h2);
            set_state(conn, BT_GCONN_LEAVING);
        }
    }
    charge(conn);
    if (!conn->broken && !bt_net_reclaim(conn->grpc->net, conn->stream)) {
        bt_h2_terminate(conn->h2, BT_H2_ENHANCE_YOUR_CALM);
    }
    deliver_some(conn);
}

static void read_some(bt_gconn_t *conn)
{
    const char *data = NULL;
    size_t n = 0;
    bt_status_t status;

    if (!bt_list_empty(&conn->ready)) {
        deliver_some(conn);
        return;
    }
    status = bt_stream_read(conn->stream, &data, &n);
    if (status == BT_INPROGRESS) {
        return;
    }
    if ((status != BT_OK) || (n == 0)) {
        bt_stream_close(conn->stream);
    } else if (!conn->broken && (conn->state != BT_GCONN_LINGER)) {
        feed(conn, data, n);
    }
}

static void on_readable(void *user)
{
    bt_gconn_t *conn = user;

    conn->in_turn = true;
    read_some(conn);
    end_turn(conn);
}

/* ---- deadlines ---- */

/* @return false: the connection was closed */
static bool check_own_deadlines(bt_gconn_t *conn, uint64_t now_ms)
{
    const bt_grpc_config_t *config = &conn->grpc->config;

    if (((conn->state == BT_GCONN_OPENING) &&
         (now_ms >= conn->since_ms + config->header_timeout_ms)) ||
        ((conn->state == BT_GCONN_LINGER) &&
         (now_ms >= conn->since_ms + LINGER_MS)) ||
        ((bt_stream_unsent(conn->stream) > 0) &&
         (now_ms >= conn->sent_ms + config->idle_timeout_ms))) {
        bt_stream_close(conn->stream);
        return false;
    }
    if (conn->in_head &&
        (now_ms >= conn->head_ms + config->header_timeout_ms)) {
        conn->in_head = false;
        conn->broken = true;
        bt_h2_terminate(conn->h2, BT_H2_ENHANCE_YOUR_CALM);
    }
    if ((conn->state == BT_GCONN_OPEN) && bt_list_empty(&conn->calls) &&
        (now_ms >= conn->since_ms + config->idle_timeout_ms)) {
        bt_h2_announce_end(conn->h2);
        set_state(conn, BT_GCONN_LEAVING);
    } else if ((conn->state == BT_GCONN_LEAVING) && !conn->refused &&
               (now_ms >= conn->since_ms + LEAVING_MS)) {
        conn->refused = true;
        bt_h2_refuse_more(conn->h2);
    }
    return true;
}

static void on_timer(void *user)
{
    bt_gconn_t *conn = user;
    const uint64_t now_ms = bt_now_ms();
    uint64_t next_ms = 0;

    conn->in_turn = true;
    conn->timer_ms = 0;
    if (check_own_deadlines(conn, now_ms)) {
        BT_LIST_FOR_EACH_ENTRY(bt_gcall_t, call, &conn->calls, link) {
            take_earlier(&next_ms, bt_gcall_check_deadlines(call, now_ms));
        }
        if (next_ms != 0) {
            bt_gconn_expect(conn, next_ms);
        }
    }
    end_turn(conn);
}

static void on_stop(void *user)
{
    bt_gconn_t *conn = user;

    if (conn->state == BT_GCONN_OPENING) {
        bt_stream_close(conn->stream);
    } else if (conn->state == BT_GCONN_OPEN) {
        bt_h2_announce_end(conn->h2);
        set_state(conn, BT_GCONN_LEAVING);
        timer_sync(conn);
        bt_gconn_dirty(conn);
    }
}

/* ---- creation and destruction ---- */

static void on_closed(void *user)
{
    bt_gconn_t *conn = user;

    set_state(conn, BT_GCONN_CLOSED);
    while (!bt_list_empty(&conn->calls)) {
        bt_gcall_abort(BT_CONTAINER_OF(conn->calls.next, bt_gcall_t, link));
    }
    bt_net_charge(conn->grpc->net, &conn->charged, 0);
}

static void on_free(void *user)
{
    bt_gconn_t *conn = user;

    bt_h2_destroy(conn->h2);
    bt_free(conn);
}

static const bt_stream_handlers_t stream_handlers = {
    .on_readable = on_readable,
    .on_writable = on_writable,
    .on_timer = on_timer,
    .on_stop = on_stop,
    .on_closed = on_closed,
    .on_free = on_free,
};

static bt_status_t accept_stream(void *ctx, bt_stream_t *stream)
{
    bt_grpc_t *grpc = ctx;
    bt_gconn_t *conn = bt_calloc(1, sizeof(*conn));
    bt_h2_handlers_t handlers = {.on_request = bt_gcall_on_request,
                                 .on_data = bt_gcall_on_data,
                                 .on_end = bt_gcall_on_end,
                                 .on_closed = bt_gcall_on_closed};

    if (conn == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    handlers.ctx = conn;
    if (bt_h2_create(&handlers, BT_GRPC_MAX_STREAMS, &conn->h2) != BT_OK) {
        bt_free(conn);
        return BT_ERR_NO_MEMORY;
    }
    conn->grpc = grpc;
    conn->stream = stream;
    conn->class = BT_STREAM_QUIET; /* the state after accepting */
    bt_list_init(&conn->calls);
    bt_list_init(&conn->ready);
    bt_stream_attach(stream, &stream_handlers, conn);
    set_state(conn, BT_GCONN_OPENING);
    charge(conn);
    timer_sync(conn);
    bt_gconn_dirty(conn); /* the server's settings */
    return BT_OK;
}

/* ---- the server ---- */

bt_status_t bt_grpc_create(struct event_base *base,
                           const bt_grpc_config_t *config,
                           const bt_grpc_handlers_t *handlers,
                           bt_grpc_t **grpc_p)
{
    bt_grpc_t *grpc = bt_calloc(1, sizeof(*grpc));
    const bt_net_handlers_t net = {.on_stream = accept_stream,
                                   .ctx = grpc,
                                   .on_turn = handlers->on_turn,
                                   .on_gather = handlers->on_gather,
                                   .turn_ctx = handlers->ctx};
    bt_status_t status;

    if (grpc == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    grpc->config = *config;
    grpc->handlers = *handlers;
    status = bt_net_create(base, &config->net, &net, &grpc->net);
    if (status != BT_OK) {
        bt_free(grpc);
        return status;
    }
    *grpc_p = grpc;
    return BT_OK;
}

bt_net_t *bt_grpc_net(const bt_grpc_t *grpc)
{
    return grpc->net;
}

void bt_grpc_destroy(bt_grpc_t *grpc)
{
    if (grpc != NULL) {
        bt_net_destroy(grpc->net);
        bt_free(grpc);
    }
}
