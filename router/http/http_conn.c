/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/http/http_priv.h"

static void set_state(bt_conn_t *conn, bt_conn_state_t state)
{
    conn->state = state;
    conn->epoch++;
    bt_http_file(conn);
}

static void timer_start(bt_conn_t *conn, uint32_t ms)
{
    const struct timeval tv = {.tv_sec = (time_t)(ms / 1000u),
                               .tv_usec = (suseconds_t)(ms % 1000u) * 1000};

    /* Fails only for want of memory; then the next state sets it again. */
    (void)evtimer_add(&conn->ev_timer, &tv);
}

/* Set the deadline of a state that was entered since the last call. Within one
 * state a deadline never moves, whatever bytes come. */
static void timer_sync(bt_conn_t *conn)
{
    const bt_http_config_t *config = &conn->http->config;

    if ((conn->timer_epoch == conn->epoch) || (conn->state == BT_CONN_DEAD)) {
        return;
    }
    conn->timer_epoch = conn->epoch;
    switch (conn->state) {
    case BT_CONN_IDLE:
    case BT_CONN_DRAIN:
        timer_start(conn, config->idle_timeout_ms);
        break;
    case BT_CONN_HEAD:
        timer_start(conn, config->header_timeout_ms);
        break;
    case BT_CONN_BODY:
        timer_start(conn, config->body_timeout_ms);
        break;
    case BT_CONN_LINGER:
        timer_start(conn, BT_HTTP_LINGER_MS);
        break;
    default:
        evtimer_del(&conn->ev_timer);
        break;
    }
}

/* ---- output ---- */

static void want_write(bt_conn_t *conn, bool want)
{
    if (want == conn->want_write) {
        return;
    }
    conn->want_write = want;
    if (want) {
        if (event_add(&conn->ev_write, NULL) != 0) {
            conn->want_write = false;
        }
    } else {
        event_del(&conn->ev_write);
    }
}

void bt_conn_flush_later(bt_conn_t *conn)
{
    bt_http_t *http = conn->http;

    if (conn->want_write) {
        bt_http_charge_out(conn);
        return; /* the socket is full: what comes meanwhile goes with it */
    }
    if (http->handlers.on_gather == NULL) {
        want_write(conn, true);
        return;
    }
    if (bt_list_empty(&http->gathering)) {
        http->handlers.on_gather(http->handlers.ctx);
    }
    if (bt_list_empty(&conn->gather_link)) {
        bt_list_push_back(&http->gathering, &conn->gather_link);
    }
}

/* The loop sends the rest. */
static bt_status_t keep_rest(bt_conn_t *conn)
{
    bt_strbuf_t *out = &conn->out;

    /* Move it down when that is cheap for what it frees. */
    if (conn->out_sent > out->len / 2) {
        bt_strbuf_consume(out, conn->out_sent);
        conn->out_sent = 0;
    }
    bt_http_charge_out(conn);
    want_write(conn, true);
    return conn->want_write ? BT_INPROGRESS : BT_ERR_PEER_LOST;
}

bt_status_t bt_conn_flush(bt_conn_t *conn, size_t most)
{
    bt_strbuf_t *out = &conn->out;

    if (bt_strbuf_status(out) != BT_OK) {
        return BT_ERR_PEER_LOST; /* bytes are missing: nothing to save */
    }
    while (conn->out_sent < out->len) {
        const size_t left = out->len - conn->out_sent;
        ssize_t n;

        if (most == 0) {
            return keep_rest(conn);
        }
        n = send(conn->fd, out->data + conn->out_sent,
                 (left < most) ? left : most, MSG_NOSIGNAL);
        if (n > 0) {
            conn->out_sent += (size_t)n;
            most -= (size_t)n;
        } else if ((errno == EAGAIN) || (errno == EWOULDBLOCK)) {
            return keep_rest(conn);
        } else if (errno != EINTR) {
            return BT_ERR_PEER_LOST;
        }
    }
    want_write(conn, false);
    conn->out_sent = 0;
    if (out->cap > BT_HTTP_KEEP_BYTES) {
        bt_strbuf_fini(out);
    } else {
        bt_strbuf_reset(out);
    }
    bt_http_charge_out(conn);
    return BT_OK;
}

/* Look at what is there already in the loop's next turn: event_active() would
 * do it in this one, as often as there is something. */
static void again(bt_conn_t *conn)
{
    const struct timeval now = {0};

    (void)evtimer_add(&conn->ev_again, &now);
}

/* The answer is with the kernel. */
static void answer_sent(bt_conn_t *conn)
{
    if (conn->close_after || conn->http->stopped) {
        set_state(conn, BT_CONN_LINGER);
        bt_strbuf_fini(&conn->in);
        bt_http_charge_in(conn);
        if (shutdown(conn->fd, SHUT_WR) != 0) {
            bt_conn_close(conn);
            return;
        }
    } else {
        set_state(conn, BT_CONN_IDLE);
        if (!conn->feeding && (conn->in.len > 0)) {
            /* Not from here: the caller may be in the middle of its own
             * work, and this would hand it the next request. */
            again(conn);
        }
    }
    timer_sync(conn);
}

void bt_conn_end_answer(bt_conn_t *conn)
{
    bt_exchange_free(conn->ex);
    conn->ex = NULL;
    bt_list_remove(&conn->gather_link);
    switch (bt_conn_flush(conn, BT_HTTP_SEND_BYTES)) {
    case BT_OK:
        answer_sent(conn);
        break;
    case BT_INPROGRESS:
        set_state(conn, BT_CONN_DRAIN);
        timer_sync(conn);
        break;
    default:
        bt_conn_close(conn);
        break;
    }
}

static void refuse(bt_conn_t *conn, int status, const char *why)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;
    const char *path = (conn->ex == NULL) ? NULL : conn->ex->head.path;
    const bool head_only =
        (conn->ex != NULL) && (conn->ex->method == BT_HTTP_HEAD);
    bt_strbuf_t body;
    bt_strbuf_t extra;

    bt_strbuf_init(&body, 64u * 1024u);
    bt_strbuf_init(&extra, 256);
    if (handlers->format_error != NULL) {
        handlers->format_error(handlers->ctx, path, status, why, &body);
    }
    if ((body.len == 0) || (bt_strbuf_status(&body) != BT_OK)) {
        bt_strbuf_reset(&body);
        bt_strbuf_printf(&body, "{\"error\":\"%s\"}", why);
    }
    if (status == 405) {
        bt_strbuf_puts(&extra, "Allow: GET, HEAD, POST\r\n");
    } else if (status == 503) {
        bt_strbuf_puts(&extra, "Retry-After: 1\r\n");
    }
    conn->close_after = true;
    bt_exchange_write_head(conn, status, "application/json", body.len, false,
                           &extra, 1);
    if (!head_only) {
        bt_strbuf_append(&conn->out, body.data, body.len);
    }
    bt_strbuf_fini(&extra);
    bt_strbuf_fini(&body);
    bt_conn_end_answer(conn);
}

void bt_conn_go_on(bt_conn_t *conn)
{
    switch (bt_conn_flush(conn, BT_HTTP_SEND_BYTES)) {
    case BT_OK:
        if (conn->state == BT_CONN_DRAIN) {
            answer_sent(conn);
        }
        break;
    case BT_INPROGRESS:
        break;
    default:
        bt_conn_close(conn);
        break;
    }
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    bt_conn_t *conn = arg;

    (void)fd;
    (void)what;
    bt_conn_go_on(conn);
    bt_http_turn(conn->http);
}

/* ---- input ---- */

static void dispatch(bt_conn_t *conn)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;

    set_state(conn, BT_CONN_EXCHANGE);
    conn->handed = true;
    conn->ex->delivered = true;
    handlers->on_request(handlers->ctx, conn->ex);
}

static void refuse_body(bt_conn_t *conn)
{
    char why[80];

    snprintf(why, sizeof(why), "the body is over the limit of %llu bytes",
             (unsigned long long)conn->http->config.max_body_bytes);
    refuse(conn, 413, why);
}

static void refuse_for_room(bt_conn_t *conn)
{
    conn->http->use.n_bodies_refused++;
    refuse(conn, 503, "the server has no room for this body now");
}

/* The body is about to be read. */
static void begin_body(bt_conn_t *conn)
{
    const bt_exchange_t *ex = conn->ex;

    if (ex->head.length > conn->http->config.max_body_bytes) {
        refuse_body(conn);
        return;
    }
    if (!bt_http_has_room(conn->http, 0, ex->head.length)) {
        refuse_for_room(conn);
        return;
    }
    set_state(conn, BT_CONN_BODY);
    if (ex->head.expect_continue) {
        bt_strbuf_puts(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
        if (bt_conn_flush(conn, SIZE_MAX) == BT_ERR_PEER_LOST) {
            bt_conn_close(conn);
        }
    }
}

static void head_done(bt_conn_t *conn, size_t head_bytes)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;
    bt_http1_fault_t fault;
    bt_http1_head_t head;
    char *text = bt_memdup(conn->in.data, head_bytes);
    const char *why = NULL;
    bt_exchange_t *ex;

    bt_strbuf_fini(&conn->in);
    bt_http_charge_in(conn);
    conn->seen = 0;
    if (text == NULL) {
        refuse(conn, 503, "the server is short of memory");
        return;
    }
    if (bt_http1_parse_head(text, head_bytes, &head, &fault) != BT_OK) {
        bt_free(text);
        refuse(conn, fault.http_status, fault.why);
        return;
    }
    ex = bt_exchange_create(conn, text, head_bytes, &head);
    if (ex == NULL) {
        bt_free(text);
        refuse(conn, 503, "the server is short of memory");
        return;
    }
    conn->ex = ex;
    conn->close_after = !ex->head.keep_alive;
    if (ex->method == BT_HTTP_OTHER) {
        refuse(conn, 405, "the method is not GET, HEAD or POST");
        return;
    }
    if (handlers->check_head != NULL) {
        why = handlers->check_head(handlers->ctx, &ex->head);
    }
    if (why != NULL) {
        refuse(conn, 403, why);
    } else if (!ex->head.chunked && (ex->head.length == 0)) {
        dispatch(conn);
    } else {
        begin_body(conn);
    }
}

/* @return bytes used */
static size_t feed_head(bt_conn_t *conn, const char *data, size_t n)
{
    size_t skip = 0;
    size_t take;
    size_t end;

    if (conn->in.len == 0) {
        /* RFC 9112, 2.2: ignore empty lines before a request. */
        while ((skip < n) && ((data[skip] == '\r') || (data[skip] == '\n'))) {
            skip++;
        }
        if (skip == n) {
            return n;
        }
        if (conn->state == BT_CONN_IDLE) {
            set_state(conn, BT_CONN_HEAD);
        }
    }
    take = n - skip;
    if (take > BT_HTTP1_MAX_HEAD_BYTES - conn->in.len) {
        take = BT_HTTP1_MAX_HEAD_BYTES - conn->in.len;
    }
    bt_strbuf_append(&conn->in, data + skip, take);
    bt_http_charge_in(conn);
    if ((bt_strbuf_status(&conn->in) != BT_OK) ||
        !bt_http_make_room(conn->http, conn)) {
        refuse(conn, 503, "the server is short of memory");
        return n;
    }
    end = bt_http1_head_end(conn->in.data, conn->in.len, &conn->seen);
    if (end == 0) {
        if (conn->in.len == BT_HTTP1_MAX_HEAD_BYTES) {
            refuse(conn, 431, "the head is over 64 KiB");
        }
        return skip + take;
    }
    take -= conn->in.len - end;
    head_done(conn, end);
    return skip + take;
}

static void append_body(bt_exchange_t *ex, const char *data, size_t n)
{
    const uint64_t length = ex->head.length; /* 0: not known */

    /* Memory follows what has come, not what was announced, which costs a
     * client nothing; the last doubling stops at the announced length. */
    if ((ex->body.len + n >= ex->body.cap) && (length / 2 < ex->body.cap)) {
        bt_strbuf_reserve(&ex->body, (size_t)length);
    }
    bt_strbuf_append(&ex->body, data, n);
    bt_http_charge_exchange(ex);
}

/* @return bytes used */
static size_t feed_body(bt_conn_t *conn, const char *data, size_t n)
{
    bt_exchange_t *ex = conn->ex;
    bt_status_t status = BT_OK;
    const char *piece = data;
    size_t piece_bytes;
    size_t used;
    bool done;

    if (ex->head.chunked) {
        status = bt_http1_chunked_feed(&ex->chunked, data, n, &used, &piece,
                                       &piece_bytes, &done);
        if (status != BT_OK) {
            refuse(conn, 400, "the chunked body is malformed");
            return n;
        }
        /* Refuse at the size line: before reading the chunk. */
        if ((ex->chunked.left > conn->http->config.max_body_bytes) ||
            (ex->body.len + piece_bytes + ex->chunked.left >
             conn->http->config.max_body_bytes)) {
            refuse_body(conn);
            return n;
        }
    } else {
        piece_bytes = (ex->body_left < n) ? (size_t)ex->body_left : n;
        used = piece_bytes;
        ex->body_left -= piece_bytes;
        done = (ex->body_left == 0);
    }
    append_body(ex, piece, piece_bytes);
    if (bt_strbuf_status(&ex->body) != BT_OK) {
        refuse(conn, 503, "the server is short of memory");
        return n;
    }
    if (!bt_http_has_room(conn->http, ex->body.len, 0)) {
        refuse_for_room(conn);
        return n;
    }
    if (done) {
        dispatch(conn);
    }
    return used;
}

/* What comes behind the request that was handed over. */
static void keep_pipelined(bt_conn_t *conn, const char *data, size_t n)
{
    bt_strbuf_append(&conn->in, data, n);
    /* Reading must go on while the handler thinks, because a FIN is seen only
     * behind the bytes before it. So what is over the limit is dropped, and
     * with it all that follows this answer. */
    if ((conn->in.len > BT_HTTP_PIPELINE_BYTES) ||
        (bt_strbuf_status(&conn->in) != BT_OK) ||
        !bt_http_has_room(conn->http, 0, n)) {
        bt_strbuf_fini(&conn->in);
        conn->close_after = true;
    }
    bt_http_charge_in(conn);
}

static void feed(bt_conn_t *conn, const char *data, size_t n)
{
    conn->feeding = true;
    conn->handed = false;
    while (n > 0) {
        size_t used;

        if (conn->handed) {
            break; /* one in a turn of the loop */
        }
        if ((conn->state == BT_CONN_IDLE) || (conn->state == BT_CONN_HEAD)) {
            used = feed_head(conn, data, n);
        } else if (conn->state == BT_CONN_BODY) {
            used = feed_body(conn, data, n);
        } else {
            break;
        }
        data += used;
        n -= used;
    }
    conn->feeding = false;

    if ((n > 0) && !conn->close_after &&
        ((conn->state == BT_CONN_EXCHANGE) || (conn->state == BT_CONN_DRAIN) ||
         (conn->state == BT_CONN_IDLE))) {
        keep_pipelined(conn, data, n);
        if (conn->state == BT_CONN_IDLE) {
            again(conn);
        }
    }
    timer_sync(conn);
}

static void feed_pipelined(bt_conn_t *conn)
{
    bt_strbuf_t before = conn->in;

    bt_strbuf_init(&conn->in, before.limit);
    feed(conn, before.data, before.len);
    bt_strbuf_fini(&before);
    bt_http_charge_in(conn);
}

/* No more bytes will come. */
static void on_end_of_input(bt_conn_t *conn)
{
    if (conn->state == BT_CONN_DRAIN) {
        /* It may have closed its side only; the answer is on its way. */
        conn->close_after = true;
        event_del(&conn->ev_read);
        return;
    }
    bt_conn_close(conn);
}

static void read_some(bt_conn_t *conn)
{
    char *scratch = conn->http->scratch;
    ssize_t n;

    if ((conn->state == BT_CONN_IDLE) && (conn->in.len > 0)) {
        feed_pipelined(conn);
        return; /* what the socket has, it has in the next turn too */
    }
    n = recv(conn->fd, scratch, BT_HTTP_SCRATCH_BYTES, 0);
    if (n == 0) {
        on_end_of_input(conn);
    } else if (n < 0) {
        if ((errno != EAGAIN) && (errno != EWOULDBLOCK) && (errno != EINTR)) {
            bt_conn_close(conn);
        }
    } else if (conn->state != BT_CONN_LINGER) {
        feed(conn, scratch, (size_t)n);
    }
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    bt_conn_t *conn = arg;

    (void)fd;
    (void)what;
    read_some(conn);
    bt_http_turn(conn->http);
}

static void deadline_passed(bt_conn_t *conn)
{
    switch (conn->state) {
    case BT_CONN_HEAD:
        if (conn->in.len > 0) {
            refuse(conn, 408, "the head took too long");
            return;
        }
        break;
    case BT_CONN_BODY:
        refuse(conn, 408, "the body took too long");
        return;
    default:
        break;
    }
    bt_conn_close(conn);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    bt_conn_t *conn = arg;

    (void)fd;
    (void)what;
    deadline_passed(conn);
    bt_http_turn(conn->http);
}

/* ---- birth and death ---- */

bt_status_t bt_conn_create(bt_http_t *http, int fd, bt_http_client_t *client)
{
    bt_conn_t *conn = bt_calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    conn->http = http;
    conn->fd = fd;
    conn->client = client;
    bt_list_init(&conn->link);
    bt_list_init(&conn->client_link);
    bt_list_init(&conn->behind_link);
    bt_list_init(&conn->gather_link);
    bt_strbuf_init(&conn->in, BT_HTTP_SCRATCH_BYTES + BT_HTTP1_MAX_HEAD_BYTES +
                                  BT_HTTP_PIPELINE_BYTES);
    bt_strbuf_init(&conn->out, SIZE_MAX / 2);
    event_assign(&conn->ev_read, http->base, fd, EV_READ | EV_PERSIST, on_read,
                 conn);
    event_assign(&conn->ev_write, http->base, fd, EV_WRITE | EV_PERSIST,
                 on_write, conn);
    evtimer_assign(&conn->ev_timer, http->base, on_timer, conn);
    evtimer_assign(&conn->ev_again, http->base, on_read, conn);
    bt_http_put_last(http, &conn->ev_read);
    bt_http_put_last(http, &conn->ev_write);
    bt_http_put_last(http, &conn->ev_timer);
    bt_http_put_last(http, &conn->ev_again);
    if (event_add(&conn->ev_read, NULL) != 0) {
        bt_free(conn);
        return BT_ERR_NO_MEMORY;
    }
    set_state(conn, BT_CONN_HEAD);
    timer_sync(conn);
    http->n_conns++;
    return BT_OK;
}

void bt_conn_close(bt_conn_t *conn)
{
    bt_http_t *http = conn->http;
    bt_exchange_t *ex = conn->ex;

    if (conn->state == BT_CONN_DEAD) {
        return;
    }
    conn->state = BT_CONN_DEAD;
    conn->ex = NULL;
    event_del(&conn->ev_read);
    event_del(&conn->ev_write);
    evtimer_del(&conn->ev_timer);
    evtimer_del(&conn->ev_again);
    close(conn->fd);
    conn->fd = -1;
    bt_list_remove(&conn->link);
    bt_list_remove(&conn->client_link);
    bt_list_remove(&conn->gather_link);
    bt_list_push_back(&http->dead, &conn->link);
    http->n_conns--;
    bt_http_client_leave(conn->client);
    conn->client = NULL;
    bt_strbuf_fini(&conn->in);
    bt_http_charge_in(conn);
    bt_strbuf_fini(&conn->out);
    conn->out_sent = 0;
    bt_http_charge_out(conn);
    event_active(&http->ev_reap, EV_TIMEOUT, 0);

    if (ex != NULL) {
        ex->conn = NULL;
        if (ex->delivered) {
            http->handlers.on_gone(http->handlers.ctx, ex);
        }
        bt_exchange_free(ex);
    }
}

void bt_conn_free(bt_conn_t *conn)
{
    BT_ASSERT(conn->state == BT_CONN_DEAD);
    bt_list_remove(&conn->link);
    bt_free(conn);
}
