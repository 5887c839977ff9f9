/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nng/nng.h>

#include <nng/protocol/pair0/pair.h>
#include <nng/protocol/pubsub0/pub.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

#define RECONNECT_MIN_MS 50
#define RECONNECT_MAX_MS 500
#define RECONNECT_IPC_MS 100 /* the same for a socket of this host */

/* ---- what nng's threads do ---- */

/* Under the mutex. */
static void mark_ready(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;
    const uint64_t one = 1;

    if (link->gone) {
        return;
    }
    if (bt_list_empty(&link->in_ready)) {
        bt_list_push_back(&rpc->ready, &link->in_ready);
    }
    if (!rpc->signalled) {
        rpc->signalled = true;
        (void)!write(rpc->event_fd, &one, sizeof(one));
    }
}

static void on_recv(void *arg)
{
    bt_rpc_link_t *link = arg;
    bt_rpc_t *rpc = link->rpc;
    nng_msg *msg;
    uint32_t at;
    bool go_on;

    if (nng_aio_result(link->recv_aio) != 0) {
        return; /* the socket is being closed */
    }
    msg = nng_aio_get_msg(link->recv_aio);
    pthread_mutex_lock(&rpc->mutex);
    /* there is room: recv was started again only because there was */
    at = (link->inbox_first + link->inbox_n) % RPC_INBOX_FRAMES;
    link->inbox[at] = msg;
    link->inbox_n++;
    link->inbox_bytes += nng_msg_len(msg);
    go_on = !link->gone && (link->inbox_n < RPC_INBOX_FRAMES) &&
            (link->inbox_bytes < RPC_INBOX_BYTES);
    link->recv_paused = !go_on;
    mark_ready(link);
    pthread_mutex_unlock(&rpc->mutex);
    if (go_on) {
        nng_recv_aio(link->sock, link->recv_aio);
    }
}

static void on_sent(void *arg)
{
    bt_rpc_link_t *link = arg;
    bt_rpc_t *rpc = link->rpc;

    if (nng_aio_result(link->send_aio) != 0) {
        nng_msg_free(nng_aio_get_msg(link->send_aio)); /* still ours */
    }
    pthread_mutex_lock(&rpc->mutex);
    link->sending = false;
    if (link->send_wake) {
        link->send_wake = false;
        mark_ready(link);
    }
    pthread_mutex_unlock(&rpc->mutex);
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    bt_rpc_link_t *link = arg;
    bt_rpc_t *rpc = link->rpc;
    const int id = nng_pipe_id(pipe);
    bool refuse = false;

    pthread_mutex_lock(&rpc->mutex);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        refuse = link->pipe_seen;
        if (!refuse) {
            link->pipe_seen = true;
            link->pipe_id = id;
        }
    } else if (id == link->pipe_id) {
        if (event == NNG_PIPE_EV_ADD_POST) {
            link->pipe_added = true;
        } else {
            link->pipe_removed = true;
        }
        mark_ready(link);
    }
    pthread_mutex_unlock(&rpc->mutex);
    if (refuse) {
        (void)nng_pipe_close(pipe); /* one socket serves one pipe */
    }
}

/* ---- the owner's side of the inbox ---- */

void bt_rpc_mark_ready(bt_rpc_link_t *link)
{
    pthread_mutex_lock(&link->rpc->mutex);
    mark_ready(link);
    pthread_mutex_unlock(&link->rpc->mutex);
}

bt_rpc_link_t *bt_rpc_pop_ready(bt_rpc_t *rpc)
{
    bt_rpc_link_t *link = NULL;
    uint64_t count;

    pthread_mutex_lock(&rpc->mutex);
    if (!bt_list_empty(&rpc->ready)) {
        link = BT_CONTAINER_OF(rpc->ready.next, bt_rpc_link_t, in_ready);
        bt_list_remove(&link->in_ready);
    } else if ((rpc->n_announces == 0) && rpc->signalled) {
        (void)!read(rpc->event_fd, &count, sizeof(count));
        rpc->signalled = false;
    }
    pthread_mutex_unlock(&rpc->mutex);
    return link;
}

nng_msg *bt_rpc_inbox_take(bt_rpc_link_t *link, bool *removed_p)
{
    bt_rpc_t *rpc = link->rpc;
    nng_msg *msg = NULL;
    bool resume = false;

    pthread_mutex_lock(&rpc->mutex);
    if (link->inbox_n > 0) {
        msg = link->inbox[link->inbox_first];
        link->inbox_first = (link->inbox_first + 1) % RPC_INBOX_FRAMES;
        link->inbox_n--;
        link->inbox_bytes -= nng_msg_len(msg);
    }
    if (link->recv_paused && (link->inbox_n <= RPC_INBOX_FRAMES / 2) &&
        (link->inbox_bytes <= RPC_INBOX_BYTES / 2)) {
        link->recv_paused = false;
        resume = true;
    }
    *removed_p = link->pipe_removed && (link->inbox_n == 0);
    pthread_mutex_unlock(&rpc->mutex);
    if (resume) {
        nng_recv_aio(link->sock, link->recv_aio);
    }
    return msg;
}

bool bt_rpc_can_send(bt_rpc_link_t *link)
{
    bool can;

    /* nng 1.5 keeps for ever what it is given for a pipe that is closing (one
     * frame of a lost peer; the time until pipe_removed is out of our hands).
     */
    pthread_mutex_lock(&link->rpc->mutex);
    can = !link->sending && !link->pipe_removed;
    link->send_wake = link->sending;
    pthread_mutex_unlock(&link->rpc->mutex);
    return can;
}

bool bt_rpc_send(bt_rpc_link_t *link, nng_msg *msg)
{
    if (!bt_rpc_can_send(link)) {
        return false;
    }
    pthread_mutex_lock(&link->rpc->mutex);
    link->sending = true;
    pthread_mutex_unlock(&link->rpc->mutex);
    nng_aio_set_msg(link->send_aio, msg);
    nng_send_aio(link->sock, link->send_aio);
    return true;
}

/* ---- sockets ---- */

static bt_status_t refuse(const char *what, const char *url, int rv)
{
    BT_LOG_ERROR("%s %s: %s", what, url, nng_strerror(rv));
    return (rv == NNG_ENOMEM) ? BT_ERR_NO_MEMORY : BT_ERR_IO;
}

bt_status_t bt_rpc_link_create(bt_rpc_t *rpc, bt_rpc_link_t **link_p)
{
    bt_rpc_link_t *link = bt_calloc(1, sizeof(*link));
    int rv;

    if (link == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    link->rpc = rpc;
    bt_list_init(&link->in_all);
    bt_list_init(&link->in_ready);
    bt_list_init(&link->in_dirty);
    bt_strbuf_init(&link->out, rpc->max_queue_bytes);
    link->next_out = 1;
    link->next_in = 1;

    rv = nng_pair0_open(&link->sock);
    if (rv != 0) {
        goto err_link;
    }
    if (((rv = nng_socket_set_size(link->sock, NNG_OPT_RECVMAXSZ,
                                   BT_RPC_MAX_FRAME)) != 0) ||
        ((rv = nng_pipe_notify(link->sock, NNG_PIPE_EV_ADD_PRE, on_pipe,
                               link)) != 0) ||
        ((rv = nng_pipe_notify(link->sock, NNG_PIPE_EV_ADD_POST, on_pipe,
                               link)) != 0) ||
        ((rv = nng_pipe_notify(link->sock, NNG_PIPE_EV_REM_POST, on_pipe,
                               link)) != 0) ||
        ((rv = nng_aio_alloc(&link->send_aio, on_sent, link)) != 0)) {
        goto err_sock;
    }
    rv = nng_aio_alloc(&link->recv_aio, on_recv, link);
    if (rv != 0) {
        goto err_send_aio;
    }
    nng_recv_aio(link->sock, link->recv_aio);
    *link_p = link;
    return BT_OK;

err_send_aio:
    nng_aio_free(link->send_aio);
err_sock:
    nng_close(link->sock);
err_link:
    bt_free(link);
    return refuse("cannot make a control link", "socket", rv);
}

void bt_rpc_link_free(bt_rpc_link_t *link)
{
    if (link == NULL) {
        return;
    }
    /* After the close no pipe callback runs, after the stops no aio does. */
    (void)nng_close(link->sock);
    nng_aio_stop(link->recv_aio);
    nng_aio_stop(link->send_aio);
    nng_aio_free(link->recv_aio);
    nng_aio_free(link->send_aio);
    for (uint32_t i = 0; i < link->inbox_n; i++) {
        nng_msg_free(link->inbox[(link->inbox_first + i) % RPC_INBOX_FRAMES]);
    }
    for (uint32_t i = 0; i < link->n_control; i++) {
        nng_msg_free(link->control[i]);
    }
    bt_strbuf_fini(&link->out);
    bt_free(link->hello);
    bt_free(link);
}

/* The port that "tcp://host:0" became. */
static int bound_port(nng_listener listener, uint16_t *port_p)
{
    nng_sockaddr addr;
    const int rv = nng_listener_get_addr(listener, NNG_OPT_LOCADDR, &addr);

    if (rv != 0) {
        return rv;
    }
    *port_p = ntohs((addr.s_family == NNG_AF_INET6) ? addr.s_in6.sa_port
                                                    : addr.s_in.sa_port);
    return 0;
}

/* The folder for this process' sockets; nobody else may look inside. */
static bt_status_t make_ipc_dir(bt_rpc_t *rpc)
{
    bt_strbuf_t path;

    if (rpc->ipc_dir != NULL) {
        return BT_OK;
    }
    bt_strbuf_init(&path, RPC_MAX_URL);
    bt_strbuf_printf(&path, "%s/baton-XXXXXX", rpc->listen_dir);
    if (bt_strbuf_status(&path) != BT_OK) {
        bt_strbuf_fini(&path);
        return BT_ERR_NO_MEMORY;
    }
    if (mkdtemp(path.data) == NULL) { /* mode 0700 */
        BT_LOG_ERROR("cannot make a folder for sockets in %s: %m",
                     rpc->listen_dir);
        bt_strbuf_fini(&path);
        return BT_ERR_IO;
    }
    rpc->ipc_dir = path.data; /* the buffer's memory changes hands */
    return BT_OK;
}

static bt_status_t listen_url(bt_rpc_t *rpc, bool ipc, char url[RPC_MAX_URL])
{
    const char *brackets = "";
    uint64_t name;
    bt_status_t status;
    int n;

    if (!ipc) {
        brackets = (strchr(rpc->listen_host, ':') == NULL) ? "" : "[]";
        n = snprintf(url, RPC_MAX_URL, "tcp://%.1s%s%s:0", brackets,
                     rpc->listen_host, (*brackets == '\0') ? "" : "]");
        return ((n > 0) && (n < (int)RPC_MAX_URL)) ? BT_OK
                                                   : BT_ERR_INVALID_PARAM;
    }
    status = make_ipc_dir(rpc);
    if (status != BT_OK) {
        return status;
    }
    bt_key_random(&name, sizeof(name));
    n = snprintf(url, RPC_MAX_URL, "ipc://%s/%016llx", rpc->ipc_dir,
                 (unsigned long long)name);
    return ((n > 0) && (n < (int)RPC_MAX_URL)) ? BT_OK : BT_ERR_INVALID_PARAM;
}

bt_status_t bt_rpc_link_listen(bt_rpc_link_t *link, bool ipc)
{
    nng_listener listener;
    uint16_t port = 0;
    bt_status_t status = listen_url(link->rpc, ipc, link->url);
    int rv;

    if (status != BT_OK) {
        return status;
    }
    rv = nng_listener_create(&listener, link->sock, link->url);
    if ((rv == 0) && ipc) {
        rv = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS,
                                  S_IRUSR | S_IWUSR);
    }
    if (rv == 0) {
        rv = nng_listener_start(listener, 0);
    }
    if ((rv == 0) && !ipc) {
        rv = bound_port(listener, &port);
        if (rv == 0) {
            char *colon = strrchr(link->url, ':');

            snprintf(colon, (size_t)(link->url + RPC_MAX_URL - colon), ":%u",
                     port);
        }
    }
    return (rv == 0) ? BT_OK : refuse("cannot listen at", link->url, rv);
}

bt_status_t bt_rpc_link_dial(bt_rpc_link_t *link, const char *url)
{
    nng_dialer dialer;
    int rv;

    snprintf(link->url, sizeof(link->url), "%s", url);
    rv = nng_dialer_create(&dialer, link->sock, url);
    if (rv == 0) {
        rv = nng_dialer_start(dialer, NNG_FLAG_NONBLOCK);
    }
    return (rv == 0) ? BT_OK : refuse("cannot reach worker at", url, rv);
}

static void on_join_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    rpc_join_t *join = arg;
    const int id = nng_pipe_id(pipe);

    /* REM_POST may come before ADD_POST, which then says nothing. */
    pthread_mutex_lock(&join->rpc->mutex);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        join->pipe_id = id;
        join->is_reached = false;
    } else if (join->pipe_id == id) {
        join->is_reached = event == NNG_PIPE_EV_ADD_POST;
        join->pipe_id = join->is_reached ? id : 0;
    }
    pthread_mutex_unlock(&join->rpc->mutex);
}

/* pub0, not push0: in nng 1.5 a push0 pipe that ends while it starts is used
 * after its end. */
static bt_status_t open_join_socket(rpc_join_t *join)
{
    nng_dialer dialer;
    int rv;

    join->pipe_id = 0;
    join->is_reached = false;
    rv = nng_pub0_open(&join->sock);
    if (rv != 0) {
        return refuse("cannot join the router at", join->url, rv);
    }
    if (((rv = nng_pipe_notify(join->sock, NNG_PIPE_EV_ADD_PRE, on_join_pipe,
                               join)) != 0) ||
        ((rv = nng_pipe_notify(join->sock, NNG_PIPE_EV_ADD_POST, on_join_pipe,
                               join)) != 0) ||
        ((rv = nng_pipe_notify(join->sock, NNG_PIPE_EV_REM_POST, on_join_pipe,
                               join)) != 0) ||
        ((rv = nng_dialer_create(&dialer, join->sock, join->url)) != 0) ||
        ((rv = nng_dialer_set_ms(dialer, NNG_OPT_RECONNMINT,
                                 RECONNECT_MIN_MS)) != 0) ||
        ((rv = nng_dialer_set_ms(dialer, NNG_OPT_RECONNMAXT,
                                 join->over_ipc ? RECONNECT_IPC_MS
                                                : RECONNECT_MAX_MS)) != 0) ||
        ((rv = nng_dialer_start(dialer, NNG_FLAG_NONBLOCK)) != 0)) {
        nng_close(join->sock);
        return refuse("cannot join the router at", join->url, rv);
    }
    return BT_OK;
}

bt_status_t bt_rpc_join_create(bt_rpc_t *rpc, const char *url,
                               rpc_join_t **join_p)
{
    rpc_join_t *join = bt_calloc(1, sizeof(*join));
    bt_status_t status;

    if (join == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&join->in_all);
    join->rpc = rpc;
    join->pause_ms = RPC_ANNOUNCE_MS;
    join->over_ipc = strncmp(url, "ipc://", 6) == 0;
    snprintf(join->url, sizeof(join->url), "%s", url);
    status = open_join_socket(join);
    if (status != BT_OK) {
        bt_free(join);
        return status;
    }
    join->is_open = true;
    *join_p = join;
    return BT_OK;
}

void bt_rpc_join_redial(rpc_join_t *join)
{
    if (join->is_open) {
        (void)nng_close(join->sock);
    }
    join->is_open = open_join_socket(join) == BT_OK;
}

void bt_rpc_join_free(rpc_join_t *join)
{
    if (join == NULL) {
        return;
    }
    if (join->is_open) {
        (void)nng_close(join->sock);
    }
    bt_list_remove(&join->in_all);
    bt_free(join);
}

bool bt_rpc_join_announce(rpc_join_t *join)
{
    uint8_t frame[RPC_MAX_ANNOUNCE];
    size_t n;
    bool reached;

    pthread_mutex_lock(&join->rpc->mutex);
    reached = join->is_reached;
    pthread_mutex_unlock(&join->rpc->mutex);
    if (!reached) {
        return false;
    }
    n = bt_rpc_announce_put(join->rpc->key, join->rpc->incarnation,
                            join->link->url, frame);
    return nng_send(join->sock, frame, n, NNG_FLAG_NONBLOCK) == 0;
}
