/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_pipe.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

#define READ_BYTES  (64u << 10) /* many small messages come with one read */
#define GREETING_MS 2000        /* a peer that says nothing is a stranger */

struct rpc_pipe {
    const rpc_pipe_ops_t *ops;
    void *ctx;
    size_t max_bytes;
    bool ipc;
    nng_stream_listener *listener; /* or */
    nng_stream_dialer *dialer;
    nng_aio *connect_aio;
    nng_aio *recv_aio;
    nng_aio *send_aio;

    pthread_mutex_t mutex;
    nng_stream *stream; /* NULL: not connected */
    nng_stream *next;   /* came while stream's peer had said nothing yet */
    bool open;
    bool accepting;   /* connect_aio is with nng */
    bool sending;     /* send_aio is */
    bool send_failed; /* the end will be read */
    bool rejected;    /* stream is a stranger's and is not read any more */
    bool ended;       /* nothing comes any more */
    bool closing;

    /* Owned by the reader: an nng thread, or from a false of on_message to
     * the resume the owner. */
    bool greeted;
    uint8_t in[READ_BYTES];
    size_t in_at; /* bytes before it are used */
    size_t in_n;
    nng_msg *msg; /* incomplete message; its rest is not in `in` */
    size_t msg_n;

    /* Owned by the thread that set `sending`. */
    uint8_t head[RPC_SP_MAX_HEAD_BYTES]; /* or the greeting */
    size_t head_n;
    nng_msg *out; /* NULL: nothing but the head */
    size_t out_at;
};

static bt_status_t refuse(const char *what, const char *url, int rv)
{
    BT_LOG_ERROR("%s %s: %s", what, url, nng_strerror(rv));
    return (rv == NNG_ENOMEM) ? BT_ERR_NO_MEMORY : BT_ERR_IO;
}

/* ---- sending ---- */

static size_t body_bytes(const rpc_pipe_t *pipe)
{
    return (pipe->out == NULL) ? 0 : nng_msg_len(pipe->out);
}

static void send_rest(rpc_pipe_t *pipe)
{
    const size_t body_n = body_bytes(pipe);
    nng_iov iov[2];
    unsigned n = 0;

    if (pipe->out_at < pipe->head_n) {
        iov[n].iov_buf = pipe->head + pipe->out_at;
        iov[n++].iov_len = pipe->head_n - pipe->out_at;
    }
    if (body_n > 0) {
        const size_t at =
            (pipe->out_at > pipe->head_n) ? pipe->out_at - pipe->head_n : 0;

        iov[n].iov_buf = (uint8_t *)nng_msg_body(pipe->out) + at;
        iov[n++].iov_len = body_n - at;
    }
    (void)nng_aio_set_iov(pipe->send_aio, n, iov); /* fails for more than 8 */
    nng_stream_send(pipe->stream, pipe->send_aio);
}

/* Under the mutex. @return the stream when nothing uses it any more */
static nng_stream *stranger_to_free(rpc_pipe_t *pipe)
{
    nng_stream *stream = pipe->stream;

    if (!pipe->rejected || pipe->sending) {
        return NULL;
    }
    pipe->stream = NULL;
    return stream;
}

static void take_next(rpc_pipe_t *pipe, nng_stream *stranger);

static void on_sent(void *arg)
{
    rpc_pipe_t *pipe = arg;
    const int rv = nng_aio_result(pipe->send_aio);
    nng_stream *stranger;

    if (rv == 0) {
        pipe->out_at += nng_aio_count(pipe->send_aio);
        if (pipe->out_at < pipe->head_n + body_bytes(pipe)) {
            send_rest(pipe);
            return;
        }
    }
    nng_msg_free(pipe->out); /* NULL is allowed */
    pipe->out = NULL;
    pthread_mutex_lock(&pipe->mutex);
    pipe->sending = false;
    pipe->send_failed = rv != 0;
    stranger = stranger_to_free(pipe);
    pthread_mutex_unlock(&pipe->mutex);
    if (stranger != NULL) {
        take_next(pipe, stranger);
    } else if (pipe->ops->on_sent != NULL) {
        pipe->ops->on_sent(pipe->ctx);
    }
}

/* Under the mutex. */
static bool can_send(const rpc_pipe_t *pipe)
{
    return pipe->open && !pipe->ended && !pipe->sending && !pipe->send_failed;
}

bool bt_rpc_pipe_can_send(rpc_pipe_t *pipe)
{
    bool can;

    pthread_mutex_lock(&pipe->mutex);
    can = can_send(pipe);
    pthread_mutex_unlock(&pipe->mutex);
    return can;
}

bool bt_rpc_pipe_send(rpc_pipe_t *pipe, nng_msg *msg)
{
    bool can;

    pthread_mutex_lock(&pipe->mutex);
    can = can_send(pipe);
    pipe->sending = pipe->sending || can;
    pthread_mutex_unlock(&pipe->mutex);
    if (!can) {
        return false;
    }
    pipe->head_n = bt_rpc_sp_put_head(pipe->ipc, nng_msg_len(msg), pipe->head);
    pipe->out = msg;
    pipe->out_at = 0;
    nng_aio_set_timeout(pipe->send_aio, NNG_DURATION_INFINITE);
    send_rest(pipe);
    return true;
}

/* ---- reading ---- */

static void tell_change(const rpc_pipe_t *pipe)
{
    if (pipe->ops->on_change != NULL) {
        pipe->ops->on_change(pipe->ctx);
    }
}

static void end(rpc_pipe_t *pipe)
{
    pthread_mutex_lock(&pipe->mutex);
    pipe->ended = true;
    pthread_mutex_unlock(&pipe->mutex);
    tell_change(pipe);
}

static void read_more(rpc_pipe_t *pipe)
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
    TOOK_MESSAGE,
    TOOK_PART, /* the rest is still to be read */
    TOOK_NONSENSE,
} took_t;

static took_t take_message(rpc_pipe_t *pipe, nng_msg **msg_p)
{
    const size_t head_n = bt_rpc_sp_head_bytes(pipe->ipc);
    uint64_t bytes;
    size_t n;

    if (pipe->msg == NULL) {
        if (pipe->in_n - pipe->in_at < head_n) {
            return TOOK_PART;
        }
        if (!bt_rpc_sp_get_head(pipe->ipc, pipe->in + pipe->in_at, &bytes) ||
            (bytes > pipe->max_bytes) ||
            (nng_msg_alloc(&pipe->msg, (size_t)bytes) != 0)) {
            return TOOK_NONSENSE;
        }
        pipe->in_at += head_n;
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
    return TOOK_MESSAGE;
}

void bt_rpc_pipe_resume(rpc_pipe_t *pipe)
{
    for (;;) {
        nng_msg *msg;

        switch (take_message(pipe, &msg)) {
        case TOOK_MESSAGE:
            if (!pipe->ops->on_message(pipe->ctx, msg)) {
                return; /* it may be another thread's turn already */
            }
            break;
        case TOOK_PART:
            read_more(pipe);
            return;
        case TOOK_NONSENSE:
            end(pipe);
            return;
        }
    }
}

/* ---- greetings ---- */

/* Others may connect until one has sent a greeting; the newest is read, so
 * that no silent peer occupies the port. */
static void accept_next(rpc_pipe_t *pipe)
{
    bool go;

    pthread_mutex_lock(&pipe->mutex);
    go = (pipe->listener != NULL) && !pipe->accepting && !pipe->open &&
         !pipe->closing && (pipe->next == NULL);
    pipe->accepting = pipe->accepting || go;
    pthread_mutex_unlock(&pipe->mutex);
    if (go) {
        nng_stream_listener_accept(pipe->listener, pipe->connect_aio);
    }
}

/* Under the mutex; start() follows. */
static void connect_to(rpc_pipe_t *pipe, nng_stream *stream)
{
    pipe->stream = stream;
    pipe->sending = true;
    pipe->send_failed = false;
    pipe->rejected = false;
}

/* Aios of a stream that is closed already stay with nng 1.5 until their
 * timeout. The closing thread waits for the mutex. */
static void start(rpc_pipe_t *pipe)
{
    pipe->in_at = 0;
    pipe->in_n = 0;
    bt_rpc_sp_greeting(pipe->ops->ours, pipe->head);
    pipe->head_n = RPC_SP_GREETING_BYTES;
    pipe->out_at = 0;
    nng_aio_set_timeout(pipe->recv_aio, GREETING_MS);
    nng_aio_set_timeout(pipe->send_aio, GREETING_MS);
    pthread_mutex_lock(&pipe->mutex);
    read_more(pipe);
    send_rest(pipe);
    pthread_mutex_unlock(&pipe->mutex);
    accept_next(pipe);
}

/* Freeing one takes time, and since its slot is empty another connection may
 * have taken it by now: then that one proceeds. */
static void take_next(rpc_pipe_t *pipe, nng_stream *stranger)
{
    bool is_taken, has_next;

    nng_stream_free(stranger);
    pthread_mutex_lock(&pipe->mutex);
    is_taken = pipe->stream != NULL;
    has_next = (pipe->next != NULL) && !is_taken && !pipe->closing;
    if (has_next) {
        connect_to(pipe, pipe->next);
        pipe->next = NULL;
    }
    pthread_mutex_unlock(&pipe->mutex);
    if (has_next) {
        start(pipe);
    } else if (!is_taken) {
        accept_next(pipe);
    }
}

/* The received bytes are no greeting of ours, or none were received. */
static void reject(rpc_pipe_t *pipe)
{
    nng_stream *stranger;

    if (pipe->listener == NULL) {
        end(pipe);
        return;
    }
    pthread_mutex_lock(&pipe->mutex);
    nng_stream_close(pipe->stream); /* ends our greeting, too */
    pipe->rejected = true;
    stranger = stranger_to_free(pipe);
    pthread_mutex_unlock(&pipe->mutex);
    if (stranger != NULL) {
        take_next(pipe, stranger);
    }
}

/* @return true when the peer has greeted */
static bool take_greeting(rpc_pipe_t *pipe)
{
    bool whole = pipe->in_n >= RPC_SP_GREETING_BYTES;
    bool too_late;

    if (!bt_rpc_sp_greets(pipe->ops->theirs, pipe->in, pipe->in_n)) {
        reject(pipe);
        return false;
    }
    pthread_mutex_lock(&pipe->mutex);
    too_late = pipe->next != NULL;
    if (!too_late && !whole) {
        read_more(pipe); /* here, as in start() */
    }
    whole = whole && !too_late;
    pipe->open = whole;
    pthread_mutex_unlock(&pipe->mutex);
    if (too_late) {
        reject(pipe);
    }
    if (!whole) {
        return false; /* it may be another thread's turn already */
    }
    pipe->greeted = true;
    pipe->in_at = RPC_SP_GREETING_BYTES;
    nng_aio_set_timeout(pipe->recv_aio, NNG_DURATION_INFINITE);
    if (pipe->listener != NULL) {
        nng_stream_listener_close(pipe->listener);
    }
    tell_change(pipe);
    return true;
}

static void on_received(void *arg)
{
    rpc_pipe_t *pipe = arg;
    size_t n = nng_aio_count(pipe->recv_aio);

    if (nng_aio_result(pipe->recv_aio) != 0) {
        if (pipe->greeted) {
            end(pipe);
        } else {
            reject(pipe);
        }
        return;
    }
    if (pipe->msg != NULL) {
        const size_t rest = nng_msg_len(pipe->msg) - pipe->msg_n;
        const size_t part = (n < rest) ? n : rest;

        pipe->msg_n += part;
        n -= part;
    }
    pipe->in_n += n;
    if (pipe->greeted || take_greeting(pipe)) {
        bt_rpc_pipe_resume(pipe);
    }
}

static void on_connected(void *arg)
{
    rpc_pipe_t *pipe = arg;
    nng_stream *stream = NULL;
    nng_stream *late = NULL;
    bool is_first;

    if (nng_aio_result(pipe->connect_aio) == 0) {
        stream = nng_aio_get_output(pipe->connect_aio, 0);
    }
    pthread_mutex_lock(&pipe->mutex);
    pipe->accepting = false;
    is_first = pipe->stream == NULL;
    if (stream != NULL) {
        if (pipe->open || pipe->closing) {
            late = stream;
        } else if (is_first) {
            connect_to(pipe, stream);
        } else {
            pipe->next = stream;
            nng_stream_close(pipe->stream); /* on_received() goes on */
        }
    }
    pthread_mutex_unlock(&pipe->mutex);
    nng_stream_free(late); /* NULL is allowed */
    if (is_first && (stream == NULL)) {
        end(pipe);
    } else if (is_first && (late == NULL)) {
        start(pipe);
    }
}

/* ---- life cycle ---- */

bt_status_t bt_rpc_pipe_create(const rpc_pipe_ops_t *ops, void *ctx,
                               size_t max_bytes, rpc_pipe_t **pipe_p)
{
    rpc_pipe_t *pipe = bt_calloc(1, sizeof(*pipe));

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
static void stop(rpc_pipe_t *pipe)
{
    pthread_mutex_lock(&pipe->mutex);
    pipe->closing = true;
    pthread_mutex_unlock(&pipe->mutex);
    if (pipe->listener != NULL) {
        nng_stream_listener_close(pipe->listener);
    }
    if (pipe->dialer != NULL) {
        nng_stream_dialer_close(pipe->dialer);
    }
    nng_aio_stop(pipe->connect_aio); /* so that no stream comes any more */
    pthread_mutex_lock(&pipe->mutex);
    if (pipe->stream != NULL) {
        nng_stream_close(pipe->stream);
    }
    pthread_mutex_unlock(&pipe->mutex);
    nng_aio_stop(pipe->recv_aio);
    nng_aio_stop(pipe->send_aio);
}

void bt_rpc_pipe_free(rpc_pipe_t *pipe)
{
    if (pipe == NULL) {
        return;
    }
    stop(pipe);
    nng_stream_free(pipe->stream); /* NULL is allowed, as below */
    nng_stream_free(pipe->next);
    nng_stream_listener_free(pipe->listener);
    nng_stream_dialer_free(pipe->dialer);
    nng_aio_free(pipe->send_aio);
    nng_aio_free(pipe->recv_aio);
    nng_aio_free(pipe->connect_aio);
    nng_msg_free(pipe->out);
    nng_msg_free(pipe->msg);
    pthread_mutex_destroy(&pipe->mutex);
    bt_free(pipe);
}

rpc_pipe_state_t bt_rpc_pipe_state(rpc_pipe_t *pipe)
{
    rpc_pipe_state_t state = RPC_PIPE_CONNECTING;

    pthread_mutex_lock(&pipe->mutex);
    if (pipe->ended) {
        state = RPC_PIPE_ENDED;
    } else if (pipe->open) {
        state = RPC_PIPE_OPEN;
    }
    pthread_mutex_unlock(&pipe->mutex);
    return state;
}

pid_t bt_rpc_pipe_peer(rpc_pipe_t *pipe)
{
    uint64_t pid = 0;

    pthread_mutex_lock(&pipe->mutex);
    if (pipe->ipc && pipe->open && (pipe->stream != NULL) &&
        (nng_stream_get_uint64(pipe->stream, NNG_OPT_IPC_PEER_PID, &pid) !=
         0)) {
        pid = 0;
    }
    pthread_mutex_unlock(&pipe->mutex);
    return ((pid > 0) && (pid <= INT32_MAX)) ? (pid_t)pid : 0;
}

bool bt_rpc_pipe_addresses(rpc_pipe_t *pipe, nng_sockaddr *local_p,
                           nng_sockaddr *remote_p)
{
    bool are_known;

    pthread_mutex_lock(&pipe->mutex);
    are_known =
        !pipe->ipc && pipe->open && (pipe->stream != NULL) &&
        (nng_stream_get_addr(pipe->stream, NNG_OPT_LOCADDR, local_p) == 0) &&
        (nng_stream_get_addr(pipe->stream, NNG_OPT_REMADDR, remote_p) == 0);
    pthread_mutex_unlock(&pipe->mutex);
    return are_known;
}

bt_status_t bt_rpc_pipe_listen(rpc_pipe_t *pipe, const char *url, int *port_p)
{
    int rv = nng_stream_listener_alloc(&pipe->listener, url);

    pipe->ipc = bt_rpc_sp_is_ipc(url);
    if ((rv == 0) && pipe->ipc) {
        rv = nng_stream_listener_set_int(
            pipe->listener, NNG_OPT_IPC_PERMISSIONS, S_IRUSR | S_IWUSR);
    }
    if (rv == 0) {
        rv = nng_stream_listener_listen(pipe->listener);
    }
    if ((rv == 0) && !pipe->ipc) {
        rv = nng_stream_listener_get_int(pipe->listener, NNG_OPT_TCP_BOUND_PORT,
                                         port_p);
    }
    if (rv != 0) {
        return refuse("cannot listen at", url, rv);
    }
    accept_next(pipe);
    return BT_OK;
}

bt_status_t bt_rpc_pipe_dial(rpc_pipe_t *pipe, const char *url)
{
    const int rv = nng_stream_dialer_alloc(&pipe->dialer, url);

    if (rv != 0) {
        return refuse("cannot reach", url, rv);
    }
    pipe->ipc = bt_rpc_sp_is_ipc(url);
    nng_stream_dialer_dial(pipe->dialer, pipe->connect_aio);
    return BT_OK;
}
