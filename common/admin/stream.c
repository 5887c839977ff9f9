/* SPDX-License-Identifier: Apache-2.0 */
#include "common/admin/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void bt_admin_stream_init(bt_admin_stream_t *stream, int fd, size_t out_bytes)
{
    stream->fd = fd;
    stream->is_at_end = false;
    stream->n_in = 0;
    bt_strbuf_init(&stream->out, out_bytes);
}

void bt_admin_stream_fini(bt_admin_stream_t *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->fd = -1;
    bt_strbuf_fini(&stream->out);
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
    while (!stream->is_at_end && (stream->n_in < sizeof(stream->in))) {
        const ssize_t n = recv(stream->fd, stream->in + stream->n_in,
                               sizeof(stream->in) - stream->n_in, MSG_DONTWAIT);

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
        stream->n_in += (size_t)n;
    }
}

const char *bt_admin_stream_line(const bt_admin_stream_t *stream, size_t *n_p)
{
    const char *const end = memchr(stream->in, '\n', stream->n_in);

    if (end == NULL) {
        return NULL;
    }
    *n_p = (size_t)(end - stream->in);
    return stream->in;
}

void bt_admin_stream_drop(bt_admin_stream_t *stream, size_t n)
{
    stream->n_in -= n + 1;
    memmove(stream->in, stream->in + n + 1, stream->n_in);
}

bool bt_admin_stream_is_clogged(const bt_admin_stream_t *stream)
{
    size_t n;

    return (stream->n_in == sizeof(stream->in)) &&
           (bt_admin_stream_line(stream, &n) == NULL);
}
