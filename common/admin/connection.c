/* SPDX-License-Identifier: Apache-2.0 */
#include "common/admin/connection.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/admin/stream.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

#define OUT_BYTES (4 * BT_ADMIN_LINE_BYTES)

struct bt_admin_client {
    bt_status_t status; /* BT_OK until it is over */
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
        OUT_BYTES);
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

bt_status_t bt_admin_client_step(bt_admin_client_t *client)
{
    send_queued(client);
    if (client->status == BT_OK) {
        bt_admin_stream_receive(&client->stream);
        if (client->stream.is_at_end) {
            client->status = BT_ERR_PEER_LOST;
        }
    }
    return client->status;
}

bt_status_t bt_admin_client_send(bt_admin_client_t *client,
                                 const bt_admin_command_t *request)
{
    bt_strbuf_t line;
    bt_status_t status;

    if (client->status != BT_OK) {
        return client->status;
    }
    /* Apart first, so that no half of a line is ever queued. */
    bt_strbuf_init(&line, BT_ADMIN_LINE_BYTES);
    bt_admin_command_write(request, &line);
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

bool bt_admin_client_next(bt_admin_client_t *client, bt_admin_event_t *event_p)
{
    const char *line;
    size_t n;

    while ((line = bt_admin_stream_line(&client->stream, &n)) != NULL) {
        const bt_status_t status = bt_admin_event_read(line, n, event_p);

        if ((status != BT_OK) && (status != BT_ERR_UNSUPPORTED)) {
            client->status = BT_ERR_BAD_MESSAGE;
            return false;
        }
        bt_admin_stream_drop(&client->stream, n);
        if (status == BT_OK) {
            return true;
        }
    }
    if (bt_admin_stream_is_clogged(&client->stream)) {
        client->status = BT_ERR_BAD_MESSAGE;
    }
    return false;
}

bt_status_t bt_admin_client_wait(bt_admin_client_t *client,
                                 uint64_t deadline_ms,
                                 bt_admin_event_t *event_p)
{
    for (;;) {
        const bt_status_t status = bt_admin_client_step(client);
        struct pollfd fd = {.fd = client->stream.fd, .events = POLLIN};
        uint64_t now_ms;
        uint64_t left_ms;

        if (bt_admin_client_next(client, event_p)) {
            return BT_OK;
        }
        if ((status != BT_OK) || (client->status != BT_OK)) {
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
