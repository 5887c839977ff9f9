/* SPDX-License-Identifier: Apache-2.0 */
#include "common/admin/connection.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

#define OUT_BYTES   (4 * BT_ADMIN_COMMAND_BYTES)
#define CHUNK_BYTES 16384

/* ---- lines over a socket ---- */

void bt_admin_stream_init(bt_admin_stream_t *stream, int fd, size_t out_bytes,
                          size_t in_bytes)
{
    stream->fd = fd;
    stream->is_at_end = false;
    bt_strbuf_init(&stream->out, out_bytes);
    bt_strbuf_init(&stream->in, in_bytes);
}

void bt_admin_stream_fini(bt_admin_stream_t *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->fd = -1;
    bt_strbuf_fini(&stream->out);
    bt_strbuf_fini(&stream->in);
}

bool bt_admin_stream_send(bt_admin_stream_t *stream)
{
    while (stream->out.len > 0) {
        const ssize_t n = send(stream->fd, stream->out.data, stream->out.len,
                               MSG_NOSIGNAL | MSG_DONTWAIT);

        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        if ((n < 0) && (errno == EAGAIN)) {
            return true;
        }
        if (n < 0) {
            return false;
        }
        bt_strbuf_consume(&stream->out, (size_t)n);
    }
    return true;
}

void bt_admin_stream_receive(bt_admin_stream_t *stream)
{
    char bytes[CHUNK_BYTES];

    while (!stream->is_at_end && (stream->in.len < stream->in.limit) &&
           (bt_strbuf_status(&stream->in) == BT_OK)) {
        const size_t left = stream->in.limit - stream->in.len;
        const ssize_t n =
            recv(stream->fd, bytes,
                 (left < sizeof(bytes)) ? left : sizeof(bytes), MSG_DONTWAIT);

        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        if ((n < 0) && (errno == EAGAIN)) {
            return;
        }
        if (n <= 0) {
            stream->is_at_end = true;
            return;
        }
        bt_strbuf_append(&stream->in, bytes, (size_t)n);
    }
}

const char *bt_admin_stream_line(const bt_admin_stream_t *stream, size_t *n_p)
{
    const char *const end = (stream->in.len == 0)
                                ? NULL
                                : memchr(stream->in.data, '\n', stream->in.len);

    if (end == NULL) {
        return NULL;
    }
    *n_p = (size_t)(end - stream->in.data);
    return stream->in.data;
}

void bt_admin_stream_drop(bt_admin_stream_t *stream, size_t n)
{
    bt_strbuf_consume(&stream->in, n + 1);
}

bool bt_admin_stream_is_clogged(const bt_admin_stream_t *stream)
{
    size_t n;

    return ((stream->in.len == stream->in.limit) ||
            (bt_strbuf_status(&stream->in) != BT_OK)) &&
           (bt_admin_stream_line(stream, &n) == NULL);
}

/* ---- client ---- */

struct bt_admin_client {
    bt_status_t status; /* BT_OK until it is over */
    size_t n_taken;     /* bytes of the line of the last reply */
    bool has_taken;
    bt_admin_stream_t stream;
};

/* Is the other end ours or root's? */
static bool is_trusted(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    return (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) &&
           ((peer.uid == geteuid()) || (peer.uid == 0));
}

static bt_status_t connect_status(void)
{
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
        return BT_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return BT_ERR_UNAUTHORIZED;
    case EAGAIN:
        return BT_ERR_BUSY;
    default:
        return BT_ERR_IO;
    }
}

bt_status_t bt_admin_client_connect(const char *path,
                                    bt_admin_client_t **client_p)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bt_admin_client_t *client;
    bt_status_t status = BT_ERR_TOO_LARGE;
    int saved;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return status;
    }
    memcpy(address.sun_path, path, strlen(path));
    client = bt_calloc(1, sizeof(*client));
    if (client == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_admin_stream_init(
        &client->stream,
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
        OUT_BYTES, BT_ADMIN_REPLY_BYTES);
    if ((client->stream.fd < 0) ||
        (connect(client->stream.fd, (const struct sockaddr *)&address,
                 sizeof(address)) != 0)) {
        status = connect_status();
        goto err_client;
    }
    if (!is_trusted(client->stream.fd)) {
        status = BT_ERR_UNAUTHORIZED;
        goto err_client;
    }
    *client_p = client;
    return BT_OK;

err_client:
    saved = errno;
    bt_admin_client_close(client);
    errno = saved;
    return status;
}

void bt_admin_client_close(bt_admin_client_t *client)
{
    if (client == NULL) {
        return;
    }
    bt_admin_stream_fini(&client->stream);
    bt_free(client);
}

int bt_admin_client_fd(const bt_admin_client_t *client)
{
    return client->stream.fd;
}

bool bt_admin_client_wants_write(const bt_admin_client_t *client)
{
    return (client->stream.out.len > 0) && (client->status == BT_OK);
}

static void send_queued(bt_admin_client_t *client)
{
    if (!bt_admin_stream_send(&client->stream)) {
        /* Bytes sent before the close are still to be read. */
        bt_strbuf_reset(&client->stream.out);
    }
}

/* Removes the line of the last reply, which was kept for
 * bt_admin_client_text(). */
static void drop_taken(bt_admin_client_t *client)
{
    if (client->has_taken) {
        bt_admin_stream_drop(&client->stream, client->n_taken);
        client->has_taken = false;
    }
}

void bt_admin_client_step(bt_admin_client_t *client)
{
    send_queued(client);
    if (client->status == BT_OK) {
        drop_taken(client);
        bt_admin_stream_receive(&client->stream);
        if (client->stream.is_at_end) {
            client->status = BT_ERR_PEER_LOST;
        }
    }
}

bt_status_t bt_admin_client_send(bt_admin_client_t *client,
                                 const bt_admin_command_t *command)
{
    bt_strbuf_t line;
    bt_status_t status;

    if (client->status != BT_OK) {
        return client->status;
    }
    /* Apart first, so that no half of a line is ever queued. */
    bt_strbuf_init(&line, BT_ADMIN_COMMAND_BYTES);
    bt_admin_command_write(command, &line);
    status = bt_strbuf_status(&line);
    if ((status == BT_OK) && (client->stream.out.len + line.len > OUT_BYTES)) {
        status = BT_ERR_TOO_LARGE;
    }
    if (status == BT_OK) {
        bt_strbuf_append(&client->stream.out, line.data, line.len);
        status = bt_strbuf_status(&client->stream.out);
        send_queued(client);
    }
    bt_strbuf_fini(&line);
    return status;
}

bool bt_admin_client_next(bt_admin_client_t *client, bt_admin_reply_t *reply_p)
{
    const char *line;
    size_t n;

    drop_taken(client);
    line = bt_admin_stream_line(&client->stream, &n);
    if (line != NULL) {
        const bt_status_t status = bt_admin_reply_read(line, n, reply_p);

        client->has_taken = (status == BT_OK);
        client->n_taken = n;
        if (status != BT_OK) {
            client->status = status;
        }
    } else if (bt_admin_stream_is_clogged(&client->stream)) {
        client->status = (client->stream.in.len == BT_ADMIN_REPLY_BYTES)
                             ? BT_ERR_BAD_MESSAGE
                             : BT_ERR_NO_MEMORY;
    }
    return client->has_taken;
}

bt_status_t bt_admin_client_status(const bt_admin_client_t *client)
{
    return client->status;
}

const char *bt_admin_client_text(const bt_admin_client_t *client, size_t *n_p)
{
    *n_p = client->n_taken;
    return client->stream.in.data;
}

bt_status_t bt_admin_client_wait(bt_admin_client_t *client,
                                 uint64_t deadline_ms,
                                 bt_admin_reply_t *reply_p)
{
    for (;;) {
        struct pollfd fd = {.fd = client->stream.fd, .events = POLLIN};
        uint64_t now_ms;
        uint64_t left_ms;

        bt_admin_client_step(client);
        if (bt_admin_client_next(client, reply_p)) {
            return BT_OK;
        }
        if (client->status != BT_OK) {
            return client->status;
        }
        now_ms = bt_now_ms();
        if (now_ms >= deadline_ms) {
            return BT_ERR_TIMED_OUT;
        }
        left_ms = deadline_ms - now_ms;
        if (bt_admin_client_wants_write(client)) {
            fd.events |= POLLOUT;
        }
        /* An interruption only looks again. */
        poll(&fd, 1, (left_ms > INT_MAX) ? INT_MAX : (int)left_ms);
    }
}
