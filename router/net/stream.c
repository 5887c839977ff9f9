/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/tcp_peer.h"
#include "router/net/net_priv.h"

/* Four records fill the buffer. A peer may send each byte in a record of its
 * own, at the cost of a full record's cipher. */
#define RECORDS_PER_TURN 64

/* Unlimited here: the limits of net.h apply. */
#define OUT_LIMIT (SIZE_MAX / 2)
/* From this size on a buffer is taken over, and not copied any more. */
#define TAKE_BYTES ((size_t)256 << 10)

/* ---- input ---- */

static void want_write(bt_stream_t *stream, bool want)
{
    if (want == stream->want_write) {
        return;
    }
    stream->want_write = want;
    if (want) {
        if (event_add(&stream->ev_write, NULL) != 0) {
            stream->want_write = false;
        }
    } else {
        event_del(&stream->ev_write);
    }
}

/* TLS has to send something by itself, such as a KeyUpdate, and the socket is
 * full. Reads make no progress until that is sent, so the loop need not wake
 * for input. @return false: no memory */
static bool wait_to_reply(bt_stream_t *stream)
{
    stream->replying = true;
    event_del(&stream->ev_read);
    want_write(stream, true);
    return stream->want_write;
}

/* The socket accepts more: the next read sends the pending data first. @return
 * false: no memory */
static bool resume_reading(bt_stream_t *stream)
{
    stream->replying = false;
    want_write(stream, stream->ending || (bt_stream_unsent(stream) > 0));
    if (event_add(&stream->ev_read, NULL) != 0) {
        return false;
    }
    bt_stream_again(stream);
    return true;
}

/* Reads several records: the socket does not signal decrypted bytes. */
static bt_status_t read_tls(bt_stream_t *stream, size_t *n_p)
{
    char *scratch = stream->net->scratch;
    uint32_t n_records = 0;
    bt_tls_step_t step;
    size_t n = 0;

    do {
        size_t got = 0;

        step = bt_tls_read(stream->tls, scratch + n, BT_NET_SCRATCH_BYTES - n,
                           &got);
        if ((step == BT_TLS_DONE) && (got == 0)) {
            break;
        }
        n += got;
        n_records++;
    } while ((step == BT_TLS_DONE) && (n < BT_NET_SCRATCH_BYTES) &&
             (n_records < RECORDS_PER_TURN));
    if ((step == BT_TLS_WANTS_WRITE) && !wait_to_reply(stream)) {
        return BT_ERR_PEER_LOST;
    }
    if (n > 0) {
        stream->unread =
            (step != BT_TLS_WANTS_READ) && (step != BT_TLS_WANTS_WRITE);
    } else if (step != BT_TLS_DONE) {
        return (step == BT_TLS_FAILED) ? BT_ERR_PEER_LOST : BT_INPROGRESS;
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_stream_read(bt_stream_t *stream, const char **data_p,
                           size_t *n_p)
{
    char *scratch = stream->net->scratch;
    ssize_t n;

    if (stream->tls != NULL) {
        stream->unread = false;
        *data_p = scratch;
        return read_tls(stream, n_p);
    }
    n = recv(stream->fd, scratch, BT_NET_SCRATCH_BYTES, 0);
    if (n >= 0) {
        *data_p = scratch;
        *n_p = (size_t)n;
        return BT_OK;
    }
    if ((errno == EAGAIN) || (errno == EWOULDBLOCK) || (errno == EINTR)) {
        return BT_INPROGRESS;
    }
    return BT_ERR_PEER_LOST;
}

void bt_stream_again(bt_stream_t *stream)
{
    const struct timeval now = {0};

    /* event_active() would run it in this turn, repeatedly. */
    (void)evtimer_add(&stream->ev_again, &now);
}

void bt_stream_stop_reading(bt_stream_t *stream)
{
    event_del(&stream->ev_read);
    evtimer_del(&stream->ev_again);
    stream->unread = false;
    stream->replying = false;
}

/* Queues the stream for its next handshake step only. */
static void handshake_later(bt_stream_t *stream)
{
    bt_net_t *net = stream->net;

    event_del(&stream->ev_read);
    event_del(&stream->ev_write);
    stream->want_write = false;
    if (bt_list_empty(&net->in_handshake)) {
        bt_net_handshake_soon(net);
    }
    bt_list_push_back(&net->in_handshake, &stream->handshake_link);
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    bt_stream_t *stream = arg;

    (void)fd;
    (void)what;
    if (stream->in_handshake) {
        handshake_later(stream);
        return;
    }
    stream->handlers->on_readable(stream->user);
    if (stream->unread && (stream->fd >= 0)) {
        bt_stream_again(stream);
    }
    bt_net_turn(stream->net);
}

/* ---- output ---- */

bt_strbuf_t *bt_stream_out(bt_stream_t *stream)
{
    if (stream->next.len > 0) { /* what is appended comes after it */
        bt_strbuf_append(&stream->out, stream->next.data, stream->next.len);
        bt_strbuf_fini(&stream->next);
    }
    return &stream->out;
}

void bt_stream_take(bt_stream_t *stream, bt_strbuf_t *body)
{
    bt_strbuf_t *const out = bt_stream_out(stream);

    if (body->len < TAKE_BYTES) {
        bt_strbuf_append(out, body->data, body->len);
        bt_strbuf_fini(body);
        return;
    }
    stream->next = *body;
    stream->next.limit = OUT_LIMIT;
    bt_strbuf_init(body, body->limit);
}

size_t bt_stream_unsent(const bt_stream_t *stream)
{
    return stream->out.len - stream->out_sent + stream->next.len;
}

/* True when there is more to send, which is in `out` then. */
static bool has_more(bt_stream_t *stream)
{
    if ((stream->out_sent == stream->out.len) && (stream->next.len > 0)) {
        bt_strbuf_fini(&stream->out);
        stream->out = stream->next;
        bt_strbuf_init(&stream->next, OUT_LIMIT);
        stream->out_sent = 0;
    }
    return stream->out_sent < stream->out.len;
}

void bt_stream_hold(bt_stream_t *stream, size_t bytes)
{
    if ((bytes != stream->held) && (stream->fd >= 0)) {
        stream->held = bytes;
        bt_net_charge_out(stream);
    }
}

void bt_stream_flush_later(bt_stream_t *stream)
{
    bt_net_t *net = stream->net;

    if (stream->want_write) {
        bt_net_charge_out(stream);
        return; /* the socket is full: new data follows */
    }
    if (net->handlers.on_gather == NULL) {
        want_write(stream, true);
        return;
    }
    if (bt_list_empty(&net->gathering)) {
        net->handlers.on_gather(net->handlers.turn_ctx);
    }
    if (bt_list_empty(&stream->gather_link)) {
        bt_list_push_back(&net->gathering, &stream->gather_link);
    }
}

void bt_stream_forget_flush(bt_stream_t *stream)
{
    bt_list_remove(&stream->gather_link);
}

/* The loop sends the rest. */
static bt_status_t keep_rest(bt_stream_t *stream)
{
    bt_strbuf_t *out = &stream->out;

    /* Moves the rest down when that is cheap for the space it frees. */
    if ((stream->out_sent > out->len / 2) &&
        (out->len - stream->out_sent < TAKE_BYTES)) {
        bt_strbuf_consume(out, stream->out_sent);
        stream->out_sent = 0;
    }
    bt_net_charge_out(stream);
    want_write(stream, true);
    return stream->want_write ? BT_INPROGRESS : BT_ERR_PEER_LOST;
}

/* @retval BT_INPROGRESS  The socket is full. */
static bt_status_t send_some(bt_stream_t *stream, size_t bytes, size_t *n_p)
{
    const char *data = stream->out.data + stream->out_sent;
    ssize_t n;

    if (stream->tls != NULL) {
        switch (bt_tls_write(stream->tls, data, bytes, n_p)) {
        case BT_TLS_DONE:
            return BT_OK;
        case BT_TLS_WANTS_WRITE:
            return BT_INPROGRESS;
        default:
            return BT_ERR_PEER_LOST;
        }
    }
    do {
        n = send(stream->fd, data, bytes, MSG_NOSIGNAL);
    } while ((n < 0) && (errno == EINTR));
    if (n > 0) {
        *n_p = (size_t)n;
        return BT_OK;
    }
    return ((errno == EAGAIN) || (errno == EWOULDBLOCK)) ? BT_INPROGRESS
                                                         : BT_ERR_PEER_LOST;
}

bt_status_t bt_stream_flush(bt_stream_t *stream, size_t most)
{
    bt_strbuf_t *out = &stream->out;

    if (bt_strbuf_status(out) != BT_OK) {
        return BT_ERR_PEER_LOST; /* bytes are missing: nothing to recover */
    }
    if (stream->in_handshake) {
        bt_net_charge_out(stream);
        return BT_INPROGRESS;
    }
    while (has_more(stream)) {
        const size_t left = out->len - stream->out_sent;
        bt_status_t status = BT_INPROGRESS;
        size_t n = 0;

        if (most > 0) {
            status = send_some(stream, (left < most) ? left : most, &n);
        }
        if (status == BT_INPROGRESS) {
            return keep_rest(stream);
        }
        if (status != BT_OK) {
            return status;
        }
        stream->out_sent += n;
        most -= n;
    }
    want_write(stream, stream->replying);
    stream->out_sent = 0;
    if (out->cap > BT_NET_KEEP_BYTES) {
        bt_strbuf_fini(out);
    } else {
        bt_strbuf_reset(out);
    }
    bt_net_charge_out(stream);
    return BT_OK;
}

bt_status_t bt_stream_shutdown(bt_stream_t *stream)
{
    if (stream->tls != NULL) {
        const bt_tls_step_t step = bt_tls_shutdown(stream->tls);

        stream->ending = (step == BT_TLS_WANTS_WRITE);
        want_write(stream, stream->ending || stream->replying);
        if (stream->ending && stream->want_write) {
            return BT_OK; /* later */
        }
        if (step != BT_TLS_DONE) {
            return BT_ERR_PEER_LOST;
        }
    }
    return (shutdown(stream->fd, SHUT_WR) == 0) ? BT_OK : BT_ERR_PEER_LOST;
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    bt_stream_t *stream = arg;

    (void)fd;
    (void)what;
    if (stream->in_handshake) {
        handshake_later(stream);
        return;
    }
    if (stream->replying && !resume_reading(stream)) {
        bt_stream_close(stream);
    } else if (!stream->ending) {
        stream->handlers->on_writable(stream->user);
    } else if (bt_stream_shutdown(stream) != BT_OK) {
        bt_stream_close(stream);
    }
    bt_net_turn(stream->net);
}

/* ---- TLS ---- */

static bt_status_t begin_tls(bt_stream_t *stream)
{
    bt_net_t *net = stream->net;

    if (net->config.tls == NULL) {
        return BT_OK;
    }
    bt_net_charge(net, &stream->tls_charged, BT_TLS_HANDSHAKE_BYTES);
    if (!bt_net_reclaim(net, stream)) {
        return BT_ERR_NO_MEMORY;
    }
    stream->tls =
        bt_tls_begin(net->config.tls, stream->fd, net->config.protocol);
    stream->in_handshake = true;
    return (stream->tls != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

static void end_tls(bt_stream_t *stream)
{
    /* A stream that is closed in the middle of an answer must not look like the
     * answer's proper end. */
    if ((stream->tls != NULL) && (stream->class == BT_STREAM_QUIET) &&
        !stream->in_handshake && (bt_stream_unsent(stream) == 0)) {
        (void)bt_tls_shutdown(stream->tls);
    }
    bt_tls_end(stream->tls);
    stream->tls = NULL;
    bt_net_charge(stream->net, &stream->tls_charged, 0);
}

static void handshake_done(bt_stream_t *stream)
{
    stream->in_handshake = false;
    bt_net_charge(stream->net, &stream->tls_charged, BT_TLS_IDLE_BYTES);
    if (event_add(&stream->ev_read, NULL) != 0) {
        bt_stream_close(stream);
        return;
    }
    if (bt_stream_unsent(stream) > 0) {
        stream->handlers->on_writable(stream->user);
    }
    if (stream->fd >= 0) {
        bt_stream_again(stream); /* what came with the last of it */
    }
}

/* Any client can cause it: no log line for operators. */
static void log_failed_handshake(const bt_stream_t *stream)
{
    char peer[BT_NET_PEER_BYTES];

    bt_stream_peer(stream, peer);
    BT_LOG_DEBUG("TLS handshake with %s: %s", peer,
                 bt_tls_trouble(stream->tls));
}

void bt_stream_handshake(bt_stream_t *stream)
{
    bool continues = false;

    switch (bt_tls_handshake(stream->tls)) {
    case BT_TLS_DONE:
        handshake_done(stream);
        return;
    case BT_TLS_WANTS_READ:
        continues = (event_add(&stream->ev_read, NULL) == 0);
        break;
    case BT_TLS_WANTS_WRITE:
        want_write(stream, true);
        continues = stream->want_write;
        break;
    case BT_TLS_IS_HTTP:
        bt_net_refuse(stream->net, stream->fd, BT_NET_NEEDS_TLS);
        break;
    case BT_TLS_FAILED:
        log_failed_handshake(stream);
        bt_net_drain(stream->fd); /* the alert says why */
        break;
    }
    if (!continues) {
        bt_stream_close(stream);
    }
}

/* ---- time ---- */

void bt_stream_set_timer(bt_stream_t *stream, uint32_t ms)
{
    const struct timeval tv = {.tv_sec = (time_t)(ms / 1000u),
                               .tv_usec = (suseconds_t)(ms % 1000u) * 1000};

    /* Fails only if memory is short; then the next call sets it again. */
    (void)evtimer_add(&stream->ev_timer, &tv);
}

void bt_stream_stop_timer(bt_stream_t *stream)
{
    evtimer_del(&stream->ev_timer);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    bt_stream_t *stream = arg;

    (void)fd;
    (void)what;
    stream->handlers->on_timer(stream->user);
    bt_net_turn(stream->net);
}

/* ---- birth and death ---- */

void bt_stream_attach(bt_stream_t *stream, const bt_stream_handlers_t *handlers,
                      void *user)
{
    stream->handlers = handlers;
    stream->user = user;
}

static void make_events(bt_stream_t *stream)
{
    struct event_base *base = stream->net->base;

    event_assign(&stream->ev_read, base, stream->fd, EV_READ | EV_PERSIST,
                 on_read, stream);
    event_assign(&stream->ev_write, base, stream->fd, EV_WRITE | EV_PERSIST,
                 on_write, stream);
    evtimer_assign(&stream->ev_timer, base, on_timer, stream);
    evtimer_assign(&stream->ev_again, base, on_read, stream);
    bt_net_put_last(stream->net, &stream->ev_read);
    bt_net_put_last(stream->net, &stream->ev_write);
    bt_net_put_last(stream->net, &stream->ev_timer);
    bt_net_put_last(stream->net, &stream->ev_again);
}

static void end_events(bt_stream_t *stream)
{
    event_del(&stream->ev_read);
    event_del(&stream->ev_write);
    evtimer_del(&stream->ev_timer);
    evtimer_del(&stream->ev_again);
}

bt_status_t bt_stream_create(bt_net_t *net, int fd, bt_net_client_t *client)
{
    bt_stream_t *stream = bt_calloc(1, sizeof(*stream));

    if (stream == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    stream->net = net;
    stream->fd = fd;
    stream->client = client;
    bt_list_init(&stream->link);
    bt_list_init(&stream->client_link);
    bt_list_init(&stream->behind_link);
    bt_list_init(&stream->gather_link);
    bt_list_init(&stream->handshake_link);
    bt_strbuf_init(&stream->out, OUT_LIMIT);
    bt_strbuf_init(&stream->next, OUT_LIMIT);
    make_events(stream);
    bt_stream_set_class(stream, BT_STREAM_QUIET);
    if ((begin_tls(stream) != BT_OK) ||
        (event_add(&stream->ev_read, NULL) != 0) ||
        (net->handlers.on_stream(net->handlers.ctx, stream) != BT_OK)) {
        end_events(stream);
        end_tls(stream);
        bt_list_remove(&stream->link);
        bt_list_remove(&stream->client_link);
        bt_free(stream);
        return BT_ERR_NO_MEMORY;
    }
    BT_ASSERT(stream->handlers != NULL);
    net->n_conns++;
    return BT_OK;
}

void bt_stream_close(bt_stream_t *stream)
{
    bt_net_t *net = stream->net;

    if (stream->fd < 0) {
        return;
    }
    end_events(stream);
    end_tls(stream);
    close(stream->fd);
    stream->fd = -1;
    bt_list_remove(&stream->link);
    bt_list_remove(&stream->client_link);
    bt_list_remove(&stream->gather_link);
    bt_list_remove(&stream->handshake_link);
    bt_list_push_back(&net->dead, &stream->link);
    net->n_conns--;
    bt_net_client_leave(stream->client);
    stream->client = NULL;
    bt_strbuf_fini(&stream->out);
    bt_strbuf_fini(&stream->next);
    stream->out_sent = 0;
    stream->held = 0;
    bt_net_charge_out(stream);
    event_active(&net->ev_reap, EV_TIMEOUT, 0);
    stream->handlers->on_closed(stream->user);
}

void bt_stream_free(bt_stream_t *stream)
{
    BT_ASSERT(stream->fd < 0);
    bt_list_remove(&stream->link);
    stream->handlers->on_free(stream->user);
    bt_free(stream);
}

void bt_stream_ids(const bt_stream_t *stream, uint64_t *address_p,
                   uint64_t *stream_p)
{
    *address_p =
        (stream->client != NULL)
            ? bt_hash64(stream->client->key, sizeof(stream->client->key), 0)
            : 0;
    *stream_p = (uintptr_t)stream;
}

bool bt_stream_is_of_own_user(const bt_stream_t *stream)
{
    return bt_tcp_peer_is_own_or_root(stream->fd);
}

void bt_stream_peer(const bt_stream_t *stream, char out[BT_NET_PEER_BYTES])
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);

    out[0] = '\0';
    if ((getpeername(stream->fd, (struct sockaddr *)&address, &bytes) != 0) ||
        (getnameinfo((struct sockaddr *)&address, bytes, out, BT_NET_PEER_BYTES,
                     NULL, 0, NI_NUMERICHOST) != 0)) {
        out[0] = '\0';
    }
}
