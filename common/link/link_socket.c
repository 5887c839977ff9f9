/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/link/link_priv.h"

/* ---- on nng's threads ---- */

/* Under the mutex. */
static void queue_ready(bt_link_t *link)
{
    if (!link->gone && bt_list_empty(&link->in_ready)) {
        bt_list_push_back(&link->control->ready, &link->in_ready);
    }
}

/* Under the mutex. @return bt_link_signal() is due once it is free: the owner
 * wakes at once, on this thread's core perhaps, and takes the mutex */
static bool mark_ready(bt_link_t *link)
{
    bt_control_t *control = link->control;

    queue_ready(link);
    if (link->gone || control->signalled) {
        return false;
    }
    control->signalled = true;
    return true;
}

void bt_link_signal(bt_control_t *control)
{
    const uint64_t one = 1;

    (void)!write(control->event_fd, &one, sizeof(one));
}

/* @param is_due  what mark_ready() has returned */
static void unlock(bt_control_t *control, bool is_due)
{
    pthread_mutex_unlock(&control->mutex);
    if (is_due) {
        bt_link_signal(control);
    }
}

/* Checking a long frame takes a millisecond for each MB, during which the
 * owner would not serve others. */
static bool is_tagged(bt_link_t *link, nng_msg *msg)
{
    bool has_key;

    if (nng_msg_len(msg) < LINK_TAG_THERE) {
        return false;
    }
    pthread_mutex_lock(&link->control->mutex);
    has_key = link->has_open_key;
    pthread_mutex_unlock(&link->control->mutex);
    return has_key && bt_link_frame_is_tagged(link->open_key, nng_msg_body(msg),
                                              nng_msg_len(msg));
}

static bool on_frame(void *ctx, nng_msg *msg)
{
    bt_link_t *link = ctx;
    bt_control_t *control = link->control;
    const bool tagged = is_tagged(link, msg);
    uint32_t at;
    bool go_on;
    bool is_due;

    pthread_mutex_lock(&control->mutex);
    /* there is space: reading continues only then */
    at = (link->inbox_first + link->inbox_n) % LINK_INBOX_FRAMES;
    link->inbox[at] = msg;
    link->inbox_is_tagged[at] = tagged;
    link->inbox_n++;
    link->inbox_bytes += nng_msg_len(msg);
    /* A handshake has one frame at a time. Who has not ended it gets no more
     * memory, a recorded JOIN included. */
    go_on = !link->gone && link->has_open_key &&
            (link->inbox_n < LINK_INBOX_FRAMES) &&
            (link->inbox_bytes < LINK_INBOX_BYTES);
    link->recv_paused = !go_on;
    is_due = mark_ready(link);
    unlock(control, is_due);
    return go_on;
}

static void on_sent(void *ctx)
{
    bt_link_t *link = ctx;
    bt_control_t *control = link->control;
    bool is_due = false;

    pthread_mutex_lock(&control->mutex);
    if (link->send_wake) {
        link->send_wake = false;
        is_due = mark_ready(link);
    }
    unlock(control, is_due);
}

static void on_change(void *ctx)
{
    bt_link_mark_ready(ctx);
}

static const link_pipe_ops_t link_pipe_ops = {
    .on_frame = on_frame,
    .on_change = on_change,
    .on_sent = on_sent,
};

/* ---- the owner's side of the inbox ---- */

void bt_link_mark_ready(bt_link_t *link)
{
    bt_control_t *control = link->control;
    bool is_due;

    pthread_mutex_lock(&control->mutex);
    is_due = mark_ready(link);
    unlock(control, is_due);
}

void bt_link_queue_ready(bt_link_t *link)
{
    pthread_mutex_lock(&link->control->mutex);
    queue_ready(link);
    pthread_mutex_unlock(&link->control->mutex);
}

bt_link_t *bt_link_pop_ready(bt_control_t *control)
{
    bt_link_t *link = NULL;
    uint64_t count;

    pthread_mutex_lock(&control->mutex);
    if (!bt_list_empty(&control->ready)) {
        link = BT_CONTAINER_OF(control->ready.next, bt_link_t, in_ready);
        bt_list_remove(&link->in_ready);
    } else if (control->signalled && ((control->n_accepted == 0) ||
                                      (control->n_retired >= LINK_RETIRED))) {
        /* Not yet written: the signal is in flight. */
        control->signalled =
            read(control->event_fd, &count, sizeof(count)) != sizeof(count);
    }
    pthread_mutex_unlock(&control->mutex);
    return link;
}

void bt_link_inbox_share_key(bt_link_t *link)
{
    pthread_mutex_lock(&link->control->mutex);
    link->has_open_key = true;
    pthread_mutex_unlock(&link->control->mutex);
}

nng_msg *bt_link_inbox_take(bt_link_t *link, bool *is_tagged_p, bool *ended_p)
{
    bt_control_t *control = link->control;
    nng_msg *msg = NULL;
    bool resume = false;

    pthread_mutex_lock(&control->mutex);
    if (link->inbox_n > 0) {
        msg = link->inbox[link->inbox_first];
        *is_tagged_p = link->inbox_is_tagged[link->inbox_first];
        link->inbox_first = (link->inbox_first + 1) % LINK_INBOX_FRAMES;
        link->inbox_n--;
        link->inbox_bytes -= nng_msg_len(msg);
    }
    if (link->recv_paused && (link->inbox_n <= LINK_INBOX_FRAMES / 2) &&
        (link->inbox_bytes <= LINK_INBOX_BYTES / 2)) {
        link->recv_paused = false;
        resume = true;
    }
    *ended_p = (link->inbox_n == 0) &&
               (bt_link_pipe_state(link->pipe) == LINK_PIPE_ENDED);
    pthread_mutex_unlock(&control->mutex);
    if (resume) {
        bt_link_pipe_resume(link->pipe);
    }
    return msg;
}

bool bt_link_can_send(bt_link_t *link)
{
    bool can;

    /* The flag is set first: on_sent() may be in flight. */
    pthread_mutex_lock(&link->control->mutex);
    link->send_wake = true;
    can = bt_link_pipe_can_send(link->pipe);
    link->send_wake = !can;
    pthread_mutex_unlock(&link->control->mutex);
    return can;
}

bool bt_link_send(bt_link_t *link, nng_msg *msg)
{
    return bt_link_pipe_send(link->pipe, msg);
}

/* ---- links ---- */

/* A link with an unconnected pipe; not in control->links. */
static bt_status_t link_create(bt_control_t *control, bt_link_t **link_p)
{
    bt_link_t *link = bt_calloc(1, sizeof(*link));
    bt_status_t status;

    if (link == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    link->control = control;
    bt_list_init(&link->in_all);
    bt_list_init(&link->in_ready);
    bt_list_init(&link->in_dirty);
    /* with what is in nng already: bt_link_post() has the actual limit */
    bt_strbuf_init(&link->out, 2 * (size_t)control->max_queue_bytes);
    bt_link_stream_init(&link->in);
    bt_shm_init(&link->shm.segment);
    link->shm.socket = -1;
    link->shm.bell = -1;
    link->next_out = 1;
    link->next_in = 1;
    link->writable_bytes = LINK_NOT_WANTED;
    status =
        bt_link_pipe_create(&link_pipe_ops, link, LINK_MAX_INTRO, &link->pipe);
    if (status != BT_OK) {
        bt_free(link);
        return status;
    }
    *link_p = link;
    return BT_OK;
}

/* Waits for nng's callbacks: on the reaper's thread, or before any. */
static void free_link(bt_link_t *link)
{
    if (link == NULL) {
        return;
    }
    bt_link_pipe_free(link->pipe); /* first: its callbacks use the rest */
    for (uint32_t i = 0; i < link->inbox_n; i++) {
        nng_msg_free(link->inbox[(link->inbox_first + i) % LINK_INBOX_FRAMES]);
    }
    for (uint32_t i = 0; i < link->n_own; i++) {
        nng_msg_free(link->own[i]);
    }
    bt_strbuf_fini(&link->out);
    bt_link_stream_fini(&link->in);
    bt_key_wipe(&link->session, sizeof(link->session));
    bt_free(link->hello);
    bt_free(link);
}

bt_status_t bt_link_dial(link_join_t *join)
{
    bt_control_t *control = join->control;
    bt_link_t *link;
    bt_status_t status = link_create(control, &link);

    if (status != BT_OK) {
        return status;
    }
    snprintf(link->url, sizeof(link->url), "%s", join->url);
    status = bt_link_pipe_dial(link->pipe, join->url);
    if (status != BT_OK) {
        free_link(link);
        return status;
    }
    link->deadline_ms = bt_link_join_deadline(control);
    link->join = join;
    join->link = link;
    join->is_explained = false;
    bt_list_push_back(&control->links, &link->in_all);
    return BT_OK;
}

/* The peer's address, as a url; of a local socket our own. */
static void print_peer(bt_link_t *link, const char *url)
{
    nng_sockaddr ours, peer;
    char host[INET6_ADDRSTRLEN] = "";

    if (!bt_link_pipe_addresses(link->pipe, &ours, &peer)) {
        snprintf(link->url, sizeof(link->url), "%s", url);
    } else if (peer.s_family == NNG_AF_INET6) {
        (void)inet_ntop(AF_INET6, peer.s_in6.sa_addr, host, sizeof(host));
        snprintf(link->url, sizeof(link->url), "tcp://[%s]:%u", host,
                 ntohs(peer.s_in6.sa_port));
    } else {
        (void)inet_ntop(AF_INET, &peer.s_in.sa_addr, host, sizeof(host));
        snprintf(link->url, sizeof(link->url), "tcp://%s:%u", host,
                 ntohs(peer.s_in.sa_port));
    }
}

void bt_link_adopt(bt_control_t *control, nng_stream *stream, const char *url)
{
    bt_link_t *link;

    if (link_create(control, &link) != BT_OK) {
        nng_stream_free(stream); /* the worker dials again */
        return;
    }
    bt_list_push_back(&control->links, &link->in_all);
    bt_link_move(link, LINK_GREETING);
    bt_link_pipe_adopt(link->pipe, stream, bt_control_is_ipc(url));
    print_peer(link, url); /* first: a stream that has ended has no address */
    bt_link_pipe_resume(link->pipe);
}

/* ---- the reaper ---- */

static void *run_reaper(void *arg)
{
    bt_control_t *control = arg;

    pthread_mutex_lock(&control->mutex);
    for (;;) {
        bt_link_t *link;

        if (bt_list_empty(&control->retired)) {
            if (control->stopping) {
                break;
            }
            pthread_cond_wait(&control->reap, &control->mutex);
            continue;
        }
        link = BT_CONTAINER_OF(control->retired.next, bt_link_t, in_all);
        bt_list_remove(&link->in_all);
        pthread_mutex_unlock(&control->mutex);
        free_link(link);
        pthread_mutex_lock(&control->mutex);
        control->n_retired--;
    }
    control->reaped = true;
    pthread_cond_broadcast(&control->reap);
    pthread_mutex_unlock(&control->mutex);
    return NULL;
}

bt_status_t bt_link_reaper_start(bt_control_t *control)
{
    bt_thread_cond_init(&control->reap);
    if (pthread_create(&control->reaper, NULL, run_reaper, control) != 0) {
        BT_LOG_ERROR("control links: no thread");
        pthread_cond_destroy(&control->reap);
        return BT_ERR_IO;
    }
    return BT_OK;
}

void bt_link_retire(bt_link_t *link)
{
    bt_control_t *control = link->control;

    bt_link_shm_close(link);
    bt_list_remove(&link->in_dirty);
    bt_list_remove(&link->in_all);
    pthread_mutex_lock(&control->mutex);
    link->gone = true;
    bt_list_remove(&link->in_ready);
    bt_list_push_back(&control->retired, &link->in_all);
    control->n_retired++;
    pthread_cond_signal(&control->reap);
    pthread_mutex_unlock(&control->mutex);
}

bool bt_link_reaper_stop(bt_control_t *control)
{
    struct timespec end;
    bool reaped;

    bt_thread_deadline(LINK_REAP_MS, &end);
    pthread_mutex_lock(&control->mutex);
    control->stopping = true;
    pthread_cond_broadcast(&control->reap);
    while (
        !control->reaped &&
        (pthread_cond_timedwait(&control->reap, &control->mutex, &end) == 0)) {
    }
    reaped = control->reaped;
    pthread_mutex_unlock(&control->mutex);
    if (!reaped) {
        BT_LOG_WARN("a control link does not close; its memory and descriptor "
                    "are left behind");
        (void)pthread_detach(control->reaper);
        return false;
    }
    (void)pthread_join(control->reaper, NULL);
    pthread_cond_destroy(&control->reap);
    return true;
}
