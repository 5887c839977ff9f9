/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/link_pipe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/link/link_handshake_frames.h"

#define READ_BYTES (64u << 10) /* many small frames come with one read */

struct link_pipe {
    const link_pipe_ops_t *ops;
    void *ctx;
    _Atomic size_t max_bytes;
    bool is_ipc;
    nng_stream_dialer *dialer; /* NULL: accepted */
    nng_aio *connect_aio;
    nng_aio *recv_aio;
    nng_aio *send_aio;

    pthread_mutex_t mutex;
    nng_stream *stream; /* NULL: not connected */
    link_pipe_state_t state;
    bool sending;     /* send_aio is with nng */
    bool send_failed; /* the end will be read */

    /* Owned by the reader: an nng thread, or from a false of on_frame to the
     * resume the owner. */
    uint8_t in[READ_BYTES];
    size_t in_at; /* bytes before it are used */
    size_t in_n;
    nng_msg *msg; /* incomplete frame; its rest is not in `in` */
    size_t msg_n;

    /* Owned by the thread that set `sending`. */
    uint8_t head[LINK_LENGTH_BYTES];
    nng_msg *out;
    size_t out_at;
};

/* ---- sending ---- */

static void send_rest(link_pipe_t *pipe)
{
    size_t at = 0;
    nng_iov iov[2];
    unsigned n = 0;

    if (pipe->out_at < sizeof(pipe->head)) {
        iov[n].iov_buf = pipe->head + pipe->out_at;
        iov[n++].iov_len = sizeof(pipe->head) - pipe->out_at;
    } else {
        at = pipe->out_at - sizeof(pipe->head);
    }
    if (nng_msg_len(pipe->out) > at) {
        iov[n].iov_buf = (uint8_t *)nng_msg_body(pipe->out) + at;
        iov[n++].iov_len = nng_msg_len(pipe->out) - at;
    }
    (void)nng_aio_set_iov(pipe->send_aio, n, iov); /* fails for more than 8 */
    nng_stream_send(pipe->stream, pipe->send_aio);
}

static void on_sent(void *arg)
{
    link_pipe_t *pipe = arg;
    const int rv = nng_aio_result(pipe->send_aio);

    if (rv == 0) {
        pipe->out_at += nng_aio_count(pipe->send_aio);
        if (pipe->out_at < sizeof(pipe->head) + nng_msg_len(pipe->out)) {
            send_rest(pipe);
            return;
        }
    }
    nng_msg_free(pipe->out);
    pipe->out = NULL;
    pthread_mutex_lock(&pipe->mutex);
    pipe->sending = false;
    pipe->send_failed = rv != 0;
    pthread_mutex_unlock(&pipe->mutex);
    pipe->ops->on_sent(pipe->ctx);
}

/* Under the mutex. */
static bool can_send(const link_pipe_t *pipe)
{
    return (pipe->state == LINK_PIPE_OPEN) && !pipe->sending &&
           !pipe->send_failed;
}

bool bt_link_pipe_can_send(link_pipe_t *pipe)
{
    bool can;

    pthread_mutex_lock(&pipe->mutex);
    can = can_send(pipe);
    pthread_mutex_unlock(&pipe->mutex);
    return can;
}

bool bt_link_pipe_send(link_pipe_t *pipe, nng_msg *msg)
{
    bool can;

    pthread_mutex_lock(&pipe->mutex);
    can = can_send(pipe);
    pipe->sending = pipe->sending || can;
    pthread_mutex_unlock(&pipe->mutex);
    if (!can) {
        return false;
    }
    bt_link_put_le(pipe->head, nng_msg_len(msg), sizeof(pipe->head));
    pipe->out = msg;
    pipe->out_at = 0;
    send_rest(pipe);
    return true;
}

/* ---- reading ---- */

static void move_to(link_pipe_t *pipe, link_pipe_state_t state)
{
    pthread_mutex_lock(&pipe->mutex);
    pipe->state = state;
    pthread_mutex_unlock(&pipe->mutex);
    pipe->ops->on_change(pipe->ctx);
}

static void read_more(link_pipe_t *pipe)
{
    nng_iov iov[2];
    unsigned n = 0;

    if (pipe->in_at > 0) {
        memmove(pipe->in, pipe->in + pipe->in_at, pipe->in_n - pipe->in_at);
        pipe->in_n -= pipe->in_at;
        pipe->in_at = 0;
    }
    if (pipe->msg != NULL) {
        iov[n].iov_buf = (uint8_t *)nng_msg_body(pipe->msg) + pipe->msg_n;
        iov[n++].iov_len = nng_msg_len(pipe->msg) - pipe->msg_n;
    }
    iov[n].iov_buf = pipe->in + pipe->in_n;
    iov[n++].iov_len = READ_BYTES - pipe->in_n;
    (void)nng_aio_set_iov(pipe->recv_aio, n, iov); /* fails for more than 8 */
    nng_stream_recv(pipe->stream, pipe->recv_aio);
}

typedef enum took {
    TOOK_FRAME,
    TOOK_PART, /* the rest is still to be read */
    TOOK_NONSENSE,
} took_t;

static took_t take_frame(link_pipe_t *pipe, nng_msg **msg_p)
{
    uint64_t bytes;
    size_t n;

    if (pipe->msg == NULL) {
        if (pipe->in_n - pipe->in_at < LINK_LENGTH_BYTES) {
            return TOOK_PART;
        }
        bytes = bt_link_get_le(pipe->in + pipe->in_at, LINK_LENGTH_BYTES);
        if ((bytes == 0) || (bytes > pipe->max_bytes) ||
            (nng_msg_alloc(&pipe->msg, (size_t)bytes) != 0)) {
            return TOOK_NONSENSE;
        }
        pipe->in_at += LINK_LENGTH_BYTES;
        pipe->msg_n = 0;
    }
    n = nng_msg_len(pipe->msg) - pipe->msg_n;
    if (n > pipe->in_n - pipe->in_at) {
        n = pipe->in_n - pipe->in_at;
    }
    memcpy((uint8_t *)nng_msg_body(pipe->msg) + pipe->msg_n,
           pipe->in + pipe->in_at, n);
    pipe->in_at += n;
    pipe->msg_n += n;
    if (pipe->msg_n < nng_msg_len(pipe->msg)) {
        return TOOK_PART;
    }
    *msg_p = pipe->msg;
    pipe->msg = NULL;
    return TOOK_FRAME;
}

void bt_link_pipe_resume(link_pipe_t *pipe)
{
    for (;;) {
        nng_msg *msg;

        switch (take_frame(pipe, &msg)) {
        case TOOK_FRAME:
            if (!pipe->ops->on_frame(pipe->ctx, msg)) {
                return; /* it may be another thread's turn already */
            }
            break;
        case TOOK_PART:
            read_more(pipe);
            return;
        case TOOK_NONSENSE:
            move_to(pipe, LINK_PIPE_ENDED);
            return;
        }
    }
}

static void on_received(void *arg)
{
    link_pipe_t *pipe = arg;
    size_t n = nng_aio_count(pipe->recv_aio);

    if (nng_aio_result(pipe->recv_aio) != 0) {
        move_to(pipe, LINK_PIPE_ENDED);
        return;
    }
    if (pipe->msg != NULL) {
        const size_t rest = nng_msg_len(pipe->msg) - pipe->msg_n;
        const size_t part = (n < rest) ? n : rest;

        pipe->msg_n += part;
        n -= part;
    }
    pipe->in_n += n;
    bt_link_pipe_resume(pipe);
}

/* ---- connecting ---- */

static void on_connected(void *arg)
{
    link_pipe_t *pipe = arg;

    if (nng_aio_result(pipe->connect_aio) != 0) {
        move_to(pipe, LINK_PIPE_ENDED);
        return;
    }
    pthread_mutex_lock(&pipe->mutex);
    pipe->stream = nng_aio_get_output(pipe->connect_aio, 0);
    pthread_mutex_unlock(&pipe->mutex);
    move_to(pipe, LINK_PIPE_OPEN);
    read_more(pipe);
}

bt_status_t bt_link_pipe_dial(link_pipe_t *pipe, const char *url)
{
    const int rv = nng_stream_dialer_alloc(&pipe->dialer, url);

    if (rv != 0) {
        BT_LOG_ERROR("cannot dial %s: %s", url, nng_strerror(rv));
        return (rv == NNG_ENOMEM) ? BT_ERR_NO_MEMORY : BT_ERR_IO;
    }
    pipe->is_ipc = bt_control_is_ipc(url);
    nng_stream_dialer_dial(pipe->dialer, pipe->connect_aio);
    return BT_OK;
}

void bt_link_pipe_adopt(link_pipe_t *pipe, nng_stream *stream, bool is_ipc)
{
    pipe->is_ipc = is_ipc;
    pipe->stream = stream;
    pipe->state = LINK_PIPE_OPEN;
}

/* ---- life cycle ---- */

bt_status_t bt_link_pipe_create(const link_pipe_ops_t *ops, void *ctx,
                                size_t max_bytes, link_pipe_t **pipe_p)
{
    link_pipe_t *pipe = bt_calloc(1, sizeof(*pipe));

    if (pipe == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    pipe->ops = ops;
    pipe->ctx = ctx;
    pipe->max_bytes = max_bytes;
    if (nng_aio_alloc(&pipe->connect_aio, on_connected, pipe) != 0) {
        goto err_pipe;
    }
    if (nng_aio_alloc(&pipe->recv_aio, on_received, pipe) != 0) {
        goto err_connect;
    }
    if (nng_aio_alloc(&pipe->send_aio, on_sent, pipe) != 0) {
        goto err_recv;
    }
    nng_aio_set_timeout(pipe->recv_aio, NNG_DURATION_INFINITE);
    nng_aio_set_timeout(pipe->send_aio, NNG_DURATION_INFINITE);
    if (pthread_mutex_init(&pipe->mutex, NULL) != 0) {
        goto err_send;
    }
    *pipe_p = pipe;
    return BT_OK;

err_send:
    nng_aio_free(pipe->send_aio);
err_recv:
    nng_aio_free(pipe->recv_aio);
err_connect:
    nng_aio_free(pipe->connect_aio);
err_pipe:
    bt_free(pipe);
    return BT_ERR_NO_MEMORY;
}

/* After this no callback runs, and none will. */
static void stop(link_pipe_t *pipe)
{
    if (pipe->dialer != NULL) {
        nng_stream_dialer_close(pipe->dialer);
    }
    nng_aio_stop(pipe->connect_aio); /* so that no stream comes any more */
    if (pipe->stream != NULL) {
        nng_stream_close(pipe->stream);
    }
    nng_aio_stop(pipe->recv_aio);
    nng_aio_stop(pipe->send_aio);
}

void bt_link_pipe_free(link_pipe_t *pipe)
{
    if (pipe == NULL) {
        return;
    }
    stop(pipe);
    nng_stream_free(pipe->stream); /* NULL is allowed, as below */
    nng_stream_dialer_free(pipe->dialer);
    nng_aio_free(pipe->send_aio);
    nng_aio_free(pipe->recv_aio);
    nng_aio_free(pipe->connect_aio);
    nng_msg_free(pipe->out);
    nng_msg_free(pipe->msg);
    pthread_mutex_destroy(&pipe->mutex);
    bt_free(pipe);
}

link_pipe_state_t bt_link_pipe_state(link_pipe_t *pipe)
{
    link_pipe_state_t state;

    pthread_mutex_lock(&pipe->mutex);
    state = pipe->state;
    pthread_mutex_unlock(&pipe->mutex);
    return state;
}

void bt_link_pipe_allow(link_pipe_t *pipe, size_t max_bytes)
{
    pipe->max_bytes = max_bytes;
}

bool bt_link_pipe_is_ipc(const link_pipe_t *pipe)
{
    return pipe->is_ipc;
}

pid_t bt_link_pipe_peer(link_pipe_t *pipe)
{
    uint64_t pid = 0;

    pthread_mutex_lock(&pipe->mutex);
    if (pipe->is_ipc && (pipe->state == LINK_PIPE_OPEN) &&
        (nng_stream_get_uint64(pipe->stream, NNG_OPT_IPC_PEER_PID, &pid) !=
         0)) {
        pid = 0;
    }
    pthread_mutex_unlock(&pipe->mutex);
    return ((pid > 0) && (pid <= INT32_MAX)) ? (pid_t)pid : 0;
}

bool bt_link_pipe_addresses(link_pipe_t *pipe, nng_sockaddr *local_p,
                            nng_sockaddr *remote_p)
{
    bool are_known;

    pthread_mutex_lock(&pipe->mutex);
    are_known =
        !pipe->is_ipc && (pipe->state == LINK_PIPE_OPEN) &&
        (nng_stream_get_addr(pipe->stream, NNG_OPT_LOCADDR, local_p) == 0) &&
        (nng_stream_get_addr(pipe->stream, NNG_OPT_REMADDR, remote_p) == 0);
    pthread_mutex_unlock(&pipe->mutex);
    return are_known;
}
