/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

/* ---- on nng's threads ---- */

/* Under the mutex. */
static void queue_ready(bt_rpc_link_t *link)
{
    if (!link->gone && bt_list_empty(&link->in_ready)) {
        bt_list_push_back(&link->rpc->ready, &link->in_ready);
    }
}

/* Under the mutex. @return bt_rpc_signal() is due once it is free: the owner
 * wakes at once, on this thread's core perhaps, and takes the mutex */
static bool mark_ready(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;

    queue_ready(link);
    if (link->gone || rpc->signalled) {
        return false;
    }
    rpc->signalled = true;
    return true;
}

void bt_rpc_signal(bt_rpc_t *rpc)
{
    const uint64_t one = 1;

    (void)!write(rpc->event_fd, &one, sizeof(one));
}

/* Checking a long frame takes a millisecond for each MB, during which the
 * owner would not serve others. */
static bool is_tagged(bt_rpc_link_t *link, nng_msg *msg)
{
    bool has_key;

    if (nng_msg_len(msg) < RPC_TAG_THERE) {
        return false;
    }
    pthread_mutex_lock(&link->rpc->mutex);
    has_key = link->has_open_key;
    pthread_mutex_unlock(&link->rpc->mutex);
    return has_key && bt_rpc_frame_is_tagged(link->open_key, nng_msg_body(msg),
                                             nng_msg_len(msg));
}

static bool on_message(void *ctx, nng_msg *msg)
{
    bt_rpc_link_t *link = ctx;
    bt_rpc_t *rpc = link->rpc;
    const bool tagged = is_tagged(link, msg);
    uint32_t at;
    bool go_on;
    bool is_due;

    pthread_mutex_lock(&rpc->mutex);
    /* there is space: reading continues only then */
    at = (link->inbox_first + link->inbox_n) % RPC_INBOX_FRAMES;
    link->inbox[at] = msg;
    link->inbox_is_tagged[at] = tagged;
    link->inbox_n++;
    link->inbox_bytes += nng_msg_len(msg);
    go_on = !link->gone && (link->inbox_n < RPC_INBOX_FRAMES) &&
            (link->inbox_bytes < RPC_INBOX_BYTES);
    link->recv_paused = !go_on;
    is_due = mark_ready(link);
    pthread_mutex_unlock(&rpc->mutex);
    if (is_due) {
        bt_rpc_signal(rpc);
    }
    return go_on;
}

static void on_sent(void *ctx)
{
    bt_rpc_link_t *link = ctx;
    bt_rpc_t *rpc = link->rpc;
    bool is_due = false;

    pthread_mutex_lock(&rpc->mutex);
    if (link->send_wake) {
        link->send_wake = false;
        is_due = mark_ready(link);
    }
    pthread_mutex_unlock(&rpc->mutex);
    if (is_due) {
        bt_rpc_signal(rpc);
    }
}

static void on_change(void *ctx)
{
    bt_rpc_mark_ready(ctx);
}

static const rpc_pipe_ops_t link_pipe_ops = {
    .ours = RPC_SP_PAIR0,
    .theirs = RPC_SP_PAIR0,
    .on_message = on_message,
    .on_change = on_change,
    .on_sent = on_sent,
};

/* ---- the owner's side of the inbox ---- */

void bt_rpc_mark_ready(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;
    bool is_due;

    pthread_mutex_lock(&rpc->mutex);
    is_due = mark_ready(link);
    pthread_mutex_unlock(&rpc->mutex);
    if (is_due) {
        bt_rpc_signal(rpc);
    }
}

void bt_rpc_queue_ready(bt_rpc_link_t *link)
{
    pthread_mutex_lock(&link->rpc->mutex);
    queue_ready(link);
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
        /* Not yet written: the signal is in flight. */
        rpc->signalled =
            read(rpc->event_fd, &count, sizeof(count)) != sizeof(count);
    }
    pthread_mutex_unlock(&rpc->mutex);
    return link;
}

void bt_rpc_inbox_share_key(bt_rpc_link_t *link)
{
    pthread_mutex_lock(&link->rpc->mutex);
    link->has_open_key = true;
    pthread_mutex_unlock(&link->rpc->mutex);
}

nng_msg *bt_rpc_inbox_take(bt_rpc_link_t *link, bool *is_tagged_p,
                           bool *ended_p)
{
    bt_rpc_t *rpc = link->rpc;
    nng_msg *msg = NULL;
    bool resume = false;

    pthread_mutex_lock(&rpc->mutex);
    if (link->inbox_n > 0) {
        msg = link->inbox[link->inbox_first];
        *is_tagged_p = link->inbox_is_tagged[link->inbox_first];
        link->inbox_first = (link->inbox_first + 1) % RPC_INBOX_FRAMES;
        link->inbox_n--;
        link->inbox_bytes -= nng_msg_len(msg);
    }
    if (link->recv_paused && (link->inbox_n <= RPC_INBOX_FRAMES / 2) &&
        (link->inbox_bytes <= RPC_INBOX_BYTES / 2)) {
        link->recv_paused = false;
        resume = true;
    }
    *ended_p = (link->inbox_n == 0) &&
               (bt_rpc_pipe_state(link->pipe) == RPC_PIPE_ENDED);
    pthread_mutex_unlock(&rpc->mutex);
    if (resume) {
        bt_rpc_pipe_resume(link->pipe);
    }
    return msg;
}

bool bt_rpc_can_send(bt_rpc_link_t *link)
{
    bool can;

    /* The flag is set first: on_sent() may be in flight. */
    pthread_mutex_lock(&link->rpc->mutex);
    link->send_wake = true;
    can = bt_rpc_pipe_can_send(link->pipe);
    link->send_wake = !can;
    pthread_mutex_unlock(&link->rpc->mutex);
    return can;
}

bool bt_rpc_send(bt_rpc_link_t *link, nng_msg *msg)
{
    return bt_rpc_pipe_send(link->pipe, msg);
}

/* ---- links ---- */

bt_status_t bt_rpc_link_create(bt_rpc_t *rpc, bt_rpc_link_t **link_p)
{
    bt_rpc_link_t *link = bt_calloc(1, sizeof(*link));
    bt_status_t status;

    if (link == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    link->rpc = rpc;
    bt_list_init(&link->in_all);
    bt_list_init(&link->in_ready);
    bt_list_init(&link->in_dirty);
    /* with what is in nng already: bt_rpc_post() has the actual limit */
    bt_strbuf_init(&link->out, 2 * (size_t)rpc->max_queue_bytes);
    bt_rpc_stream_init(&link->in);
    bt_shm_init(&link->lanes.shm);
    link->lanes.socket = -1;
    link->lanes.bell = -1;
    link->next_out = 1;
    link->next_in = 1;
    status =
        bt_rpc_pipe_create(&link_pipe_ops, link, RPC_MAX_FRAME, &link->pipe);
    if (status != BT_OK) {
        bt_free(link);
        return status;
    }
    *link_p = link;
    return BT_OK;
}

void bt_rpc_link_free(bt_rpc_link_t *link)
{
    if (link == NULL) {
        return;
    }
    bt_rpc_pipe_free(link->pipe); /* first: its callbacks use the rest */
    for (uint32_t i = 0; i < link->inbox_n; i++) {
        nng_msg_free(link->inbox[(link->inbox_first + i) % RPC_INBOX_FRAMES]);
    }
    for (uint32_t i = 0; i < link->n_control; i++) {
        nng_msg_free(link->control[i]);
    }
    bt_strbuf_fini(&link->out);
    bt_rpc_stream_fini(&link->in);
    bt_key_wipe(&link->session, sizeof(link->session));
    bt_free(link->hello);
    bt_free(link);
}

/* Folder for this process' sockets, inaccessible to others. Removes those
 * left by dead processes. */
static bt_status_t make_ipc_dir(bt_rpc_t *rpc)
{
    bt_status_t status;

    if (rpc->ipc_dir.path[0] != '\0') {
        if (bt_own_dir_is_whole(&rpc->ipc_dir)) {
            return BT_OK;
        }
        bt_own_dir_remove(&rpc->ipc_dir); /* the rest of it */
        rpc->ipc_dir.path[0] = '\0';
    }
    bt_own_dir_remove_dead(rpc->listen_dir);
    status = bt_own_dir_create(rpc->listen_dir, &rpc->ipc_dir);
    if (status == BT_ERR_TOO_LARGE) {
        BT_LOG_ERROR("%s is too long a path for a folder of sockets",
                     rpc->listen_dir);
    } else if (status != BT_OK) {
        BT_LOG_ERROR("cannot make a folder for sockets in %s: %m",
                     rpc->listen_dir);
    }
    return status;
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
    n = snprintf(url, RPC_MAX_URL, "ipc://%s/%016llx", rpc->ipc_dir.path,
                 (unsigned long long)name);
    if ((n < 0) || !bt_rpc_is_url((const uint8_t *)url, (size_t)n)) {
        BT_LOG_ERROR("no sockets can be made in %s: its name is too long or "
                     "has control characters",
                     rpc->listen_dir);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_rpc_link_listen(bt_rpc_link_t *link, bool ipc)
{
    bt_status_t status = listen_url(link->rpc, ipc, link->url);
    int port = 0;

    if (status == BT_OK) {
        status = bt_rpc_pipe_listen(link->pipe, link->url, &port);
    }
    if ((status == BT_OK) && !ipc) { /* actual address of "tcp://host:0" */
        char *colon = strrchr(link->url, ':');

        snprintf(colon, (size_t)(link->url + RPC_MAX_URL - colon), ":%d", port);
    }
    return status;
}

bt_status_t bt_rpc_link_dial(bt_rpc_link_t *link, const char *url)
{
    snprintf(link->url, sizeof(link->url), "%s", url);
    return bt_rpc_pipe_dial(link->pipe, url);
}

/* ---- announcements ---- */

/* Routers say nothing here. */
static bool on_join_message(void *ctx, nng_msg *msg)
{
    (void)ctx;
    nng_msg_free(msg);
    return true;
}

static const rpc_pipe_ops_t join_pipe_ops = {
    .ours = RPC_SP_PUB0,
    .theirs = RPC_SP_SUB0,
    .on_message = on_join_message,
};

bt_status_t bt_rpc_join_dial(rpc_join_t *join)
{
    bt_status_t status;

    bt_rpc_pipe_free(join->pipe);
    join->pipe = NULL;
    status =
        bt_rpc_pipe_create(&join_pipe_ops, join, RPC_MAX_INTRO, &join->pipe);
    if (status != BT_OK) {
        return status;
    }
    status = bt_rpc_pipe_dial(join->pipe, join->url);
    if (status != BT_OK) {
        bt_rpc_pipe_free(join->pipe);
        join->pipe = NULL;
    }
    return status;
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
    join->over_ipc = bt_rpc_sp_is_ipc(url);
    snprintf(join->url, sizeof(join->url), "%s", url);
    status = bt_rpc_join_dial(join);
    if (status != BT_OK) {
        bt_free(join);
        return status;
    }
    *join_p = join;
    return BT_OK;
}

void bt_rpc_join_free(rpc_join_t *join)
{
    if (join == NULL) {
        return;
    }
    bt_rpc_pipe_free(join->pipe);
    bt_list_remove(&join->in_all);
    bt_free(join);
}

rpc_announced_t bt_rpc_join_announce(rpc_join_t *join, bool old)
{
    const bt_rpc_link_t *link = join->link;
    uint8_t old_frame[RPC_OLD_MAX_ANNOUNCE];
    nng_msg *msg;
    size_t n;

    if ((join->pipe == NULL) ||
        (bt_rpc_pipe_state(join->pipe) == RPC_PIPE_ENDED)) {
        return RPC_NOBODY_THERE;
    }
    n = old ? bt_rpc_old_announce_put(join->rpc->ring.now.old,
                                      join->rpc->incarnation, link->url,
                                      old_frame)
            : link->announce_bytes;
    if (nng_msg_alloc(&msg, n) != 0) {
        return RPC_NOT_REACHED;
    }
    memcpy(nng_msg_body(msg), old ? old_frame : link->announce, n);
    if (!bt_rpc_pipe_send(join->pipe, msg)) { /* not open yet, perhaps */
        nng_msg_free(msg);
        return RPC_NOT_REACHED;
    }
    return RPC_ANNOUNCED;
}
