/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/http/http_priv.h"

static const char *const days[] = {"Sun", "Mon", "Tue", "Wed",
                                   "Thu", "Fri", "Sat"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* "Sun, 06 Nov 1994 08:49:37 GMT", of now. */
static const char *date_of(bt_http_t *http)
{
    const time_t now = time(NULL);
    struct tm tm;
    bt_strbuf_t text;

    if ((http->date_s == (int64_t)now) || (gmtime_r(&now, &tm) == NULL)) {
        return http->date;
    }
    /* Not strftime: names must not follow the locale (RFC 9110, 5.6.7). */
    bt_strbuf_init_fixed(&text, http->date, sizeof(http->date));
    bt_strbuf_printf(&text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                     days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
                     tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    http->date_s = (int64_t)now;
    return http->date;
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

void bt_exchange_write_head(bt_conn_t *conn, int status,
                            const char *content_type, uint64_t length,
                            bool chunked, const bt_strbuf_t *extra, int minor)
{
    bt_strbuf_t *out = bt_stream_out(conn->stream);

    /* The version is the server's own, whatever the client's (RFC 9110, 6.2);
     * keep-alive must be said to a client of 1.0. */
    bt_strbuf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status,
                     reason_of(status), date_of(conn->http));
    /* An empty body has no type. */
    if ((content_type != NULL) && (length > 0)) {
        bt_strbuf_printf(out, "Content-Type: %s\r\n", content_type);
    }
    if (length != UINT64_MAX) {
        bt_strbuf_printf(out, "Content-Length: %" PRIu64 "\r\n", length);
    }
    if (chunked) {
        bt_strbuf_puts(out, "Transfer-Encoding: chunked\r\n");
    }
    if (conn->close_after) {
        bt_strbuf_puts(out, "Connection: close\r\n");
    } else if (minor == 0) {
        bt_strbuf_puts(out, "Connection: keep-alive\r\n");
    }
    if (extra->len > 0) {
        bt_strbuf_append(out, extra->data, extra->len);
    }
    bt_strbuf_append(out, "\r\n", 2);
}

/* ---- the exchange ---- */

static bt_http_method_t method_of(const char *name)
{
    if (strcmp(name, "GET") == 0) {
        return BT_HTTP_GET;
    }
    if (strcmp(name, "POST") == 0) {
        return BT_HTTP_POST;
    }
    if (strcmp(name, "DELETE") == 0) {
        return BT_HTTP_DELETE;
    }
    return (strcmp(name, "HEAD") == 0) ? BT_HTTP_HEAD : BT_HTTP_OTHER;
}

bt_exchange_t *bt_exchange_create(bt_conn_t *conn, char *head_text,
                                  size_t head_bytes,
                                  const bt_http1_head_t *head)
{
    bt_exchange_t *ex = bt_calloc(1, sizeof(*ex));

    if (ex == NULL) {
        return NULL;
    }
    ex->http = conn->http;
    ex->conn = conn;
    ex->head_text = head_text;
    ex->head_bytes = head_bytes;
    ex->head = *head;
    ex->method = method_of(head->method);
    ex->body_left = head->length;
    bt_strbuf_init(&ex->body, (size_t)conn->http->config.max_body_bytes);
    bt_strbuf_init(&ex->headers, BT_HTTP_EXTRA_BYTES);
    bt_exchange_charge(ex);
    return ex;
}

void bt_exchange_charge(bt_exchange_t *ex)
{
    bt_net_charge(ex->http->net, &ex->charged, ex->head_bytes + ex->body.cap);
}

void bt_exchange_free(bt_exchange_t *ex)
{
    if (ex == NULL) {
        return;
    }
    bt_strbuf_fini(&ex->headers);
    bt_strbuf_fini(&ex->body);
    ex->head_bytes = 0;
    bt_exchange_charge(ex);
    bt_free(ex->head_text);
    bt_free(ex);
}

bt_http_method_t bt_exchange_method(const bt_exchange_t *ex)
{
    return ex->method;
}

const char *bt_exchange_path(const bt_exchange_t *ex)
{
    return ex->head.path;
}

const char *bt_exchange_query(const bt_exchange_t *ex)
{
    return ex->head.query;
}

bool bt_exchange_is_of_own_user(const bt_exchange_t *ex)
{
    return (ex->conn != NULL) && bt_stream_is_of_own_user(ex->conn->stream);
}

void bt_exchange_client(const bt_exchange_t *ex, char out[BT_HTTP_CLIENT_BYTES])
{
    out[0] = '\0';
    if (ex->conn != NULL) {
        bt_stream_peer(ex->conn->stream, out);
    }
}

void bt_exchange_ids(const bt_exchange_t *ex, uint64_t *address_p,
                     uint64_t *connection_p)
{
    *address_p = *connection_p = 0;
    if (ex->conn != NULL) {
        bt_stream_ids(ex->conn->stream, address_p, connection_p);
    }
}

const char *bt_exchange_header(const bt_exchange_t *ex, const char *name)
{
    return bt_http1_find(&ex->head, name);
}

size_t bt_exchange_take_body(bt_exchange_t *ex, bt_strbuf_t *body_p)
{
    *body_p = ex->body;
    bt_strbuf_init(&ex->body, body_p->limit);
    ex->charged -= body_p->cap; /* no longer charged to this exchange */
    return body_p->cap;
}

bool bt_http_hold(bt_http_t *http, size_t bytes)
{
    size_t held = 0;

    if (!bt_net_has_headroom(http->net, 0, bytes)) {
        return false;
    }
    bt_net_charge(http->net, &held, bytes);
    return true;
}

void bt_http_give_back(bt_http_t *http, size_t bytes)
{
    bt_net_give_back(http->net, bytes);
}

void bt_exchange_set_user(bt_exchange_t *ex, void *user)
{
    ex->user = user;
}

void *bt_exchange_user(const bt_exchange_t *ex)
{
    return ex->user;
}

/* ---- answers ---- */

void bt_exchange_add_header(bt_exchange_t *ex, const char *name,
                            const char *value)
{
    const size_t before = ex->headers.len;

    bt_strbuf_printf(&ex->headers, "%s: %s", name, value);
    /* A line break in a value would start a header of the attacker's own. */
    for (size_t i = before; i < ex->headers.len; i++) {
        if ((ex->headers.data[i] == '\r') || (ex->headers.data[i] == '\n')) {
            ex->headers.data[i] = ' ';
        }
    }
    bt_strbuf_append(&ex->headers, "\r\n", 2);
}

/* The head of a whole answer.
 * @return whether its body follows */
static bool begin_answer(bt_exchange_t *ex, int status,
                         const char *content_type, size_t bytes)
{
    bt_conn_t *conn = ex->conn;
    const bool no_body = (status == 204) || (status == 304);

    conn->close_after |= bt_net_stopped(conn->http->net);
    bt_exchange_write_head(conn, status, no_body ? NULL : content_type,
                           no_body ? UINT64_MAX : bytes, false, &ex->headers,
                           ex->head.minor);
    return !no_body && (ex->method != BT_HTTP_HEAD);
}

/* True when the exchange can still be answered. */
static bool may_answer(bt_exchange_t *ex)
{
    if (ex->conn == NULL) {
        return false; /* inside on_gone() */
    }
    BT_ASSERT(ex->delivered && !ex->streaming);
    if (bt_strbuf_status(&ex->headers) != BT_OK) {
        /* A header is missing: close rather than send half an answer. */
        bt_conn_close(ex->conn);
        return false;
    }
    return true;
}

void bt_exchange_respond(bt_exchange_t *ex, int status,
                         const char *content_type, const void *body,
                         size_t bytes)
{
    if (!may_answer(ex)) {
        return;
    }
    if (begin_answer(ex, status, content_type, bytes)) {
        bt_strbuf_append(bt_stream_out(ex->conn->stream), body, bytes);
    }
    bt_conn_end_answer(ex->conn);
}

void bt_exchange_respond_take(bt_exchange_t *ex, int status,
                              const char *content_type, bt_strbuf_t *body)
{
    if (may_answer(ex)) {
        if (begin_answer(ex, status, content_type, body->len)) {
            bt_stream_take(ex->conn->stream, body);
        }
        bt_conn_end_answer(ex->conn);
    }
    bt_strbuf_fini(body);
}

bool bt_exchange_pieces_begin(bt_exchange_t *ex, const char *content_type,
                              uint64_t bytes)
{
    if (!may_answer(ex)) {
        return false;
    }
    ex->streaming = true;
    (void)begin_answer(ex, 200, content_type, bytes);
    return true;
}

bt_status_t bt_exchange_send_piece(bt_exchange_t *ex, bt_strbuf_t *piece)
{
    bt_conn_t *conn = ex->conn;
    bt_status_t status;

    if (conn == NULL) {
        bt_strbuf_fini(piece);
        return BT_ERR_PEER_LOST;
    }
    BT_ASSERT(ex->streaming && !ex->is_sending);
    bt_stream_take(conn->stream, piece);
    status = bt_stream_flush(conn->stream, BT_NET_SEND_BYTES);
    if (status == BT_INPROGRESS) {
        ex->is_sending = true;
        bt_stream_set_timer(conn->stream, conn->http->config.idle_timeout_ms);
    } else if (status != BT_OK) {
        bt_conn_close(conn);
    }
    return status;
}

void bt_exchange_pieces_end(bt_exchange_t *ex, bt_strbuf_t *last)
{
    bt_conn_t *conn = ex->conn;

    if (conn != NULL) {
        BT_ASSERT(ex->streaming && !ex->is_sending);
        if (ex->method != BT_HTTP_HEAD) {
            bt_stream_take(conn->stream, last);
        }
        bt_conn_end_answer(conn);
    }
    bt_strbuf_fini(last);
}

void bt_exchange_stream_begin(bt_exchange_t *ex, const char *content_type)
{
    bt_conn_t *conn = ex->conn;

    if (conn == NULL) {
        return;
    }
    BT_ASSERT(ex->delivered && !ex->streaming);
    ex->streaming = true;
    ex->chunked_answer = (ex->head.minor >= 1);
    if (!ex->chunked_answer) {
        conn->close_after = true; /* the end of the stream is its end */
    }
    conn->close_after |= bt_net_stopped(conn->http->net);
    bt_exchange_write_head(conn, 200, content_type, UINT64_MAX,
                           ex->chunked_answer, &ex->headers, ex->head.minor);
    bt_stream_flush_later(conn->stream);
}

/* Called once per token and client: printf would cost more than the rest. */
static void append_chunk_size(bt_strbuf_t *out, size_t bytes)
{
    static const char hex[] = "0123456789abcdef";
    char line[2 * sizeof(bytes) + 2];
    size_t at = sizeof(line);

    line[--at] = '\n';
    line[--at] = '\r';
    do {
        line[--at] = hex[bytes & 15];
        bytes >>= 4;
    } while (bytes > 0);
    bt_strbuf_append(out, line + at, sizeof(line) - at);
}

static void append_chunk(bt_exchange_t *ex, const void *data, size_t bytes)
{
    bt_strbuf_t *out = bt_stream_out(ex->conn->stream);

    if ((bytes == 0) || (ex->method == BT_HTTP_HEAD)) {
        return;
    }
    if (!ex->chunked_answer) {
        bt_strbuf_append(out, data, bytes);
        return;
    }
    append_chunk_size(out, bytes);
    bt_strbuf_append(out, data, bytes);
    bt_strbuf_append(out, "\r\n", 2);
}

/* @param most allowed unsent bytes */
static bool write_piece(bt_exchange_t *ex, const void *data, size_t bytes,
                        size_t most)
{
    bt_conn_t *conn = ex->conn;

    if (conn == NULL) {
        return false;
    }
    BT_ASSERT(ex->streaming);
    append_chunk(ex, data, bytes);
    if ((conn->http->handlers.on_gather != NULL) &&
        (bt_stream_unsent(conn->stream) <= most)) {
        bt_stream_flush_later(conn->stream);
        return true;
    }
    /* Pieces are short; what is left of them counts against the client. */
    if ((bt_stream_flush(conn->stream, SIZE_MAX) == BT_ERR_PEER_LOST) ||
        (bt_stream_unsent(conn->stream) > most)) {
        bt_conn_close(conn);
        return false;
    }
    return true;
}

bool bt_exchange_stream_write(bt_exchange_t *ex, const void *data, size_t bytes)
{
    return write_piece(ex, data, bytes, ex->http->config.client_buffer_bytes);
}

bool bt_exchange_stream_append(bt_exchange_t *ex, const void *data,
                               size_t bytes)
{
    return write_piece(ex, data, bytes, SIZE_MAX);
}

size_t bt_exchange_unsent(const bt_exchange_t *ex)
{
    return (ex->conn != NULL) ? bt_stream_unsent(ex->conn->stream) : 0;
}

void bt_exchange_cut_off(bt_exchange_t *ex)
{
    if (ex->conn != NULL) {
        bt_conn_close(ex->conn);
    }
}

void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes)
{
    bt_conn_t *conn = ex->conn;

    if (conn == NULL) {
        return;
    }
    BT_ASSERT(ex->streaming);
    append_chunk(ex, data, bytes);
    if (ex->chunked_answer && (ex->method != BT_HTTP_HEAD)) {
        bt_strbuf_append(bt_stream_out(conn->stream), "0\r\n\r\n", 5);
    }
    bt_conn_end_answer(conn);
}
