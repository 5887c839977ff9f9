/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/http/http_priv.h"

static const bt_stream_class_t classes[] = {
    [BT_CONN_IDLE] = BT_STREAM_QUIET,   [BT_CONN_HEAD] = BT_STREAM_QUIET,
    [BT_CONN_BODY] = BT_STREAM_READING, [BT_CONN_EXCHANGE] = BT_STREAM_BUSY,
    [BT_CONN_DRAIN] = BT_STREAM_BUSY,   [BT_CONN_LINGER] = BT_STREAM_BUSY,
};

static void set_state(bt_conn_t *conn, bt_conn_state_t state)
{
    conn->state = state;
    conn->epoch++;
    bt_stream_set_class(conn->stream, classes[state]);
}

/* Sets the deadline of a state that was entered since the last call. Within one
 * state a deadline never moves, whatever bytes arrive. */
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
        bt_stream_set_timer(conn->stream, config->idle_timeout_ms);
        break;
    case BT_CONN_HEAD:
        bt_stream_set_timer(conn->stream, config->header_timeout_ms);
        break;
    case BT_CONN_BODY:
        bt_stream_set_timer(conn->stream, config->body_timeout_ms);
        break;
    case BT_CONN_LINGER:
        bt_stream_set_timer(conn->stream, BT_HTTP_LINGER_MS);
        break;
    default:
        bt_stream_stop_timer(conn->stream);
        break;
    }
}

/* ---- output ---- */

static void charge_in(bt_conn_t *conn)
{
    bt_net_charge(conn->http->net, &conn->in_charged, conn->in.cap);
}

/* Handles an answer that was passed to the kernel completely. */
static void answer_sent(bt_conn_t *conn)
{
    if (conn->close_after || bt_net_stopped(conn->http->net)) {
        set_state(conn, BT_CONN_LINGER);
        bt_strbuf_fini(&conn->in);
        charge_in(conn);
        if (bt_stream_shutdown(conn->stream) != BT_OK) {
            bt_conn_close(conn);
            return;
        }
    } else {
        set_state(conn, BT_CONN_IDLE);
        if (!conn->feeding && (conn->in.len > 0)) {
            /* Deferred: the caller may be in the middle of its own work, and
             * would get the next request now. */
            bt_stream_again(conn->stream);
        }
    }
    timer_sync(conn);
}

void bt_conn_end_answer(bt_conn_t *conn)
{
    bt_exchange_free(conn->ex);
    conn->ex = NULL;
    bt_stream_forget_flush(conn->stream);
    switch (bt_stream_flush(conn->stream, BT_NET_SEND_BYTES)) {
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
    bt_strbuf_init(&extra, BT_HTTP_EXTRA_BYTES);
    if (handlers->format_error != NULL) {
        handlers->format_error(handlers->ctx, path, status, why, &body);
    }
    if ((body.len == 0) || (bt_strbuf_status(&body) != BT_OK)) {
        bt_strbuf_reset(&body);
        bt_strbuf_printf(&body, "{\"error\":\"%s\"}", why);
    }
    if (status == 405) {
        bt_strbuf_puts(&extra, "Allow: GET, HEAD, POST, DELETE\r\n");
    } else if (status == 503) {
        bt_strbuf_puts(&extra, "Retry-After: 1\r\n");
    }
    if ((conn->ex != NULL) && (conn->ex->headers.len > 0)) {
        bt_strbuf_append(&extra, conn->ex->headers.data, conn->ex->headers.len);
    }
    conn->close_after = true;
    bt_exchange_write_head(conn, status, "application/json", body.len, false,
                           &extra, 1);
    if (!head_only) {
        bt_strbuf_append(bt_stream_out(conn->stream), body.data, body.len);
    }
    bt_strbuf_fini(&extra);
    bt_strbuf_fini(&body);
    bt_conn_end_answer(conn);
}

static void piece_sent(bt_conn_t *conn)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;

    conn->ex->is_sending = false;
    bt_stream_stop_timer(conn->stream);
    handlers->on_sent(handlers->ctx, conn->ex);
}

static void on_writable(void *user)
{
    bt_conn_t *conn = user;

    switch (bt_stream_flush(conn->stream, BT_NET_SEND_BYTES)) {
    case BT_OK:
        if (conn->state == BT_CONN_DRAIN) {
            answer_sent(conn);
        } else if ((conn->state == BT_CONN_EXCHANGE) && (conn->ex != NULL) &&
                   conn->ex->is_sending) {
            piece_sent(conn);
        }
        break;
    case BT_INPROGRESS:
        break;
    default:
        bt_conn_close(conn);
        break;
    }
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

    snprintf(why, sizeof(why),
             "the body is over the limit of %" PRIu64 " bytes",
             conn->http->config.max_body_bytes);
    refuse(conn, 413, why);
}

static void refuse_for_memory(bt_conn_t *conn)
{
    bt_net_count_refused(conn->http->net);
    refuse(conn, 503,
           "the server has no memory for this body now (http-memory, "
           "router-memory), try again later");
}

/* Prepares for reading the body. */
static void begin_body(bt_conn_t *conn)
{
    const bt_exchange_t *ex = conn->ex;

    if (ex->head.length > conn->http->config.max_body_bytes) {
        refuse_body(conn);
        return;
    }
    if (!bt_net_has_headroom(conn->http->net, 0, ex->head.length)) {
        refuse_for_memory(conn);
        return;
    }
    set_state(conn, BT_CONN_BODY);
    if (ex->head.expect_continue) {
        bt_strbuf_puts(bt_stream_out(conn->stream),
                       "HTTP/1.1 100 Continue\r\n\r\n");
        if (bt_stream_flush(conn->stream, SIZE_MAX) == BT_ERR_PEER_LOST) {
            bt_conn_close(conn);
        }
    }
}

/* Checks a request's head; adds the common headers to its answers. @return
 * NULL, or why the request is refused. */
static const char *check_head(bt_conn_t *conn)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;
    const char *why = NULL;

    if (handlers->check_head != NULL) {
        why = handlers->check_head(handlers->ctx, &conn->ex->head);
    }
    if ((why == NULL) && (handlers->add_headers != NULL)) {
        handlers->add_headers(handlers->ctx, &conn->ex->head,
                              &conn->ex->headers);
    }
    return why;
}

/* @return NULL, or why authorization is required. */
static const char *admit(bt_conn_t *conn)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;

    return (handlers->admit == NULL)
               ? NULL
               : handlers->admit(handlers->ctx, &conn->ex->head,
                                 &conn->ex->headers);
}

/* Answers a method without a route: a preflight, or an error. */
static void answer_other(bt_conn_t *conn)
{
    const bt_http_handlers_t *handlers = &conn->http->handlers;
    bt_exchange_t *ex = conn->ex;
    const bool may_be_preflight = (handlers->preflight != NULL) &&
                                  (strcmp(ex->head.method, "OPTIONS") == 0);
    const char *why = may_be_preflight ? check_head(conn) : NULL;

    if (why != NULL) {
        refuse(conn, 403, why);
        return;
    }
    if (!may_be_preflight ||
        !handlers->preflight(handlers->ctx, &ex->head, &ex->headers) ||
        (bt_strbuf_status(&ex->headers) != BT_OK)) {
        refuse(conn, 405, "the method is not GET, HEAD, POST or DELETE");
        return;
    }
    /* The body is not needed and not read. */
    conn->close_after |= ex->head.chunked || (ex->head.length > 0) ||
                         bt_net_stopped(conn->http->net);
    conn->handed = true; /* one in a turn of the loop, as with requests */
    bt_exchange_write_head(conn, 204, NULL, UINT64_MAX, false, &ex->headers,
                           ex->head.minor);
    bt_conn_end_answer(conn);
}

static void head_done(bt_conn_t *conn, size_t head_bytes)
{
    bt_http1_fault_t fault;
    bt_http1_head_t head;
    char *text = bt_memdup(conn->in.data, head_bytes);
    const char *why;
    bt_exchange_t *ex;

    bt_strbuf_fini(&conn->in);
    charge_in(conn);
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
        answer_other(conn);
        return;
    }
    why = check_head(conn);
    if (why != NULL) {
        refuse(conn, 403, why);
        return;
    }
    why = admit(conn);
    if (why != NULL) {
        refuse(conn, 401, why);
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
    charge_in(conn);
    if ((bt_strbuf_status(&conn->in) != BT_OK) ||
        !bt_net_reclaim(conn->http->net, conn->stream)) {
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

    /* Memory grows with received bytes, not with the announced length, which
     * costs a client nothing; the last doubling stops at the announced length.
     */
    if ((ex->body.len + n >= ex->body.cap) && (length / 2 < ex->body.cap)) {
        bt_strbuf_reserve(&ex->body, (size_t)length);
    }
    bt_strbuf_append(&ex->body, data, n);
    bt_exchange_charge(ex);
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
    if (!bt_net_has_headroom(conn->http->net, ex->body.len, 0)) {
        refuse_for_memory(conn);
        return n;
    }
    if (done) {
        dispatch(conn);
    }
    return used;
}

/* Stores bytes that follow the request that was handed over. */
static void keep_pipelined(bt_conn_t *conn, const char *data, size_t n)
{
    bt_strbuf_append(&conn->in, data, n);
    /* Reading must go on while the handler works, because a FIN is only seen
     * after the bytes before it. So bytes over the limit are dropped, and all
     * requests after this answer with them. */
    if ((conn->in.len > BT_HTTP_PIPELINE_BYTES) ||
        (bt_strbuf_status(&conn->in) != BT_OK) ||
        !bt_net_has_headroom(conn->http->net, 0, n)) {
        bt_strbuf_fini(&conn->in);
        conn->close_after = true;
    }
    charge_in(conn);
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
            bt_stream_again(conn->stream);
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
    charge_in(conn);
}

/* Handles the end of input. */
static void on_end_of_input(bt_conn_t *conn)
{
    if (conn->state == BT_CONN_DRAIN) {
        /* The client may have closed its side only; the answer is still sent.
         */
        conn->close_after = true;
        bt_stream_stop_reading(conn->stream);
        return;
    }
    bt_conn_close(conn);
}

static void on_readable(void *user)
{
    bt_conn_t *conn = user;
    const char *data;
    size_t n;

    if ((conn->state == BT_CONN_IDLE) && (conn->in.len > 0)) {
        feed_pipelined(conn);
        return; /* the next turn gets what the socket has */
    }
    switch (bt_stream_read(conn->stream, &data, &n)) {
    case BT_OK:
        if (n == 0) {
            on_end_of_input(conn);
        } else if (conn->state != BT_CONN_LINGER) {
            feed(conn, data, n);
        }
        break;
    case BT_INPROGRESS:
        break;
    default:
        bt_conn_close(conn);
        break;
    }
}

static void on_timer(void *user)
{
    bt_conn_t *conn = user;

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

/* ---- birth and death ---- */

static void on_stop(void *user)
{
    bt_conn_t *conn = user;

    if (conn->state == BT_CONN_IDLE) {
        bt_conn_close(conn);
    }
}

static void on_closed(void *user)
{
    bt_conn_t *conn = user;
    bt_http_t *http = conn->http;
    bt_exchange_t *ex = conn->ex;

    conn->state = BT_CONN_DEAD;
    conn->ex = NULL;
    bt_strbuf_fini(&conn->in);
    charge_in(conn);
    if (ex != NULL) {
        ex->conn = NULL;
        if (ex->delivered) {
            http->handlers.on_gone(http->handlers.ctx, ex);
        }
        bt_exchange_free(ex);
    }
}

bt_status_t bt_http_on_stream(void *http, bt_stream_t *stream)
{
    static const bt_stream_handlers_t handlers = {
        .on_readable = on_readable,
        .on_writable = on_writable,
        .on_timer = on_timer,
        .on_stop = on_stop,
        .on_closed = on_closed,
        .on_free = bt_free,
    };
    bt_conn_t *conn = bt_calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    conn->http = http;
    conn->stream = stream;
    bt_strbuf_init(&conn->in, BT_HTTP_IN_BYTES);
    bt_stream_attach(stream, &handlers, conn);
    set_state(conn, BT_CONN_HEAD);
    timer_sync(conn);
    return BT_OK;
}

void bt_conn_close(bt_conn_t *conn)
{
    bt_stream_close(conn->stream);
}
