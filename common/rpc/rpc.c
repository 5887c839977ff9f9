/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

#define MIN_KEY_BYTES 16
#define FIRST_VERSION 4 /* of these frames */

static const char *config_fault(const bt_rpc_config_t *config)
{
    if ((config->key == NULL) || (config->key_bytes < MIN_KEY_BYTES)) {
        return "the cluster key needs at least 16 bytes";
    }
    if (config->hello_bytes > BT_RPC_MAX_PAYLOAD) {
        return "the hello payload is too large";
    }
    if ((config->name == NULL) || (config->range.oldest < FIRST_VERSION) ||
        (config->range.newest < config->range.oldest)) {
        return "a name and a range of versions are needed";
    }
    if ((config->heartbeat_ms == 0) ||
        (config->suspect_ms <= config->heartbeat_ms) ||
        (config->dead_ms <= config->suspect_ms)) {
        return "heartbeat, suspect and dead times must grow in this order";
    }
    if (config->max_queue_bytes == 0) {
        return "the send queue needs room";
    }
    return NULL;
}

static void init_lists(bt_rpc_t *rpc)
{
    bt_list_init(&rpc->links);
    bt_list_init(&rpc->joins);
    bt_list_init(&rpc->listeners);
    bt_list_init(&rpc->dirty);
    bt_list_init(&rpc->ready);
    bt_list_init(&rpc->retired);
}

static bt_status_t copy_config(bt_rpc_t *rpc, const bt_rpc_config_t *config)
{
    bt_rpc_keys_make(config->key, config->key_bytes, &rpc->ring.now);
    rpc->range = config->range;
    snprintf(rpc->name, sizeof(rpc->name), "%s", config->name);
    rpc->heartbeat_ms = config->heartbeat_ms;
    rpc->suspect_ms = config->suspect_ms;
    rpc->dead_ms = config->dead_ms;
    rpc->tells_starved = config->tells_starved;
    rpc->max_queue_bytes = config->max_queue_bytes;
    rpc->share_memory = config->share_memory;
    rpc->on_refused = config->on_refused;
    rpc->refused_ctx = config->refused_ctx;
    rpc->hello_bytes = config->hello_bytes;
    rpc->hello = bt_memdup(config->hello, config->hello_bytes);
    if (rpc->hello == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static void close_fds(const bt_rpc_t *rpc)
{
    if (rpc->fd >= 0) {
        close(rpc->fd);
    }
    if (rpc->event_fd >= 0) {
        close(rpc->event_fd);
    }
}

static void free_rpc(bt_rpc_t *rpc)
{
    bt_free(rpc->lane_bytes);
    bt_free(rpc->hello);
    bt_key_wipe(&rpc->ring, sizeof(rpc->ring));
    bt_free(rpc);
}

bt_status_t bt_rpc_open(const bt_rpc_config_t *config, bt_rpc_t **rpc_p)
{
    const char *fault = config_fault(config);
    struct epoll_event told = {.events = EPOLLIN}; /* by no link's bell */
    bt_status_t status;
    bt_rpc_t *rpc;

    if (fault != NULL) {
        BT_LOG_ERROR("control links: %s", fault);
        return BT_ERR_INVALID_PARAM;
    }
    rpc = bt_calloc(1, sizeof(*rpc));
    if (rpc == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    init_lists(rpc);
    rpc->now_ms = bt_now_ms(); /* a router may be dialled before a tick */
    status = copy_config(rpc, config);
    if (status != BT_OK) {
        goto err_rpc;
    }
    while (rpc->incarnation == 0) {
        bt_key_random(&rpc->incarnation, sizeof(rpc->incarnation));
    }
    rpc->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rpc->fd = epoll_create1(EPOLL_CLOEXEC);
    if ((rpc->event_fd < 0) || (rpc->fd < 0) ||
        (epoll_ctl(rpc->fd, EPOLL_CTL_ADD, rpc->event_fd, &told) != 0)) {
        BT_LOG_ERROR("control links: no event descriptor: %m");
        status = BT_ERR_IO;
        goto err_event_fd;
    }
    rpc->lane_bytes = bt_calloc(1, RPC_LANE_READ);
    if (rpc->lane_bytes == NULL) {
        status = BT_ERR_NO_MEMORY;
        goto err_event_fd;
    }
    if (pthread_mutex_init(&rpc->mutex, NULL) != 0) {
        status = BT_ERR_NO_MEMORY;
        goto err_event_fd;
    }
    status = bt_rpc_reaper_start(rpc);
    if (status != BT_OK) {
        goto err_mutex;
    }
    *rpc_p = rpc;
    return BT_OK;

err_mutex:
    pthread_mutex_destroy(&rpc->mutex);
err_event_fd:
    close_fds(rpc);
err_rpc:
    free_rpc(rpc);
    return status;
}

/* Forget the frame that is being handed out and the last event's data. */
static void drop_current(bt_rpc_t *rpc)
{
    nng_msg_free(rpc->current_msg); /* NULL is allowed */
    rpc->current_msg = NULL;
    rpc->current = NULL;
    bt_free(rpc->event_data);
    rpc->event_data = NULL;
}

/* Sends BYE on every link and gives it RPC_CLOSE_MS to arrive: a peer that
 * receives it closes its side. */
static void say_good_bye(bt_rpc_t *rpc)
{
    const uint64_t end_ms = bt_now_ms() + RPC_CLOSE_MS;
    bt_list_t *pos;
    bt_list_t *tmp;
    uint64_t now_ms;

    BT_LIST_FOR_EACH(pos, tmp, &rpc->links)
    {
        bt_rpc_link_t *link = BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all);

        bt_rpc_link_close(link, "the peer shut down");
    }
    while ((now_ms = bt_now_ms()) < end_ms) {
        struct pollfd wait = {.fd = rpc->fd, .events = POLLIN};
        bt_rpc_link_t *link;
        bool left = false;

        (void)bt_rpc_look(rpc);
        while ((link = bt_rpc_pop_ready(rpc)) != NULL) {
            bool is_tagged, ended = false;
            nng_msg *msg;

            bt_rpc_link_pump(link);
            while ((msg = bt_rpc_inbox_take(link, &is_tagged, &ended)) !=
                   NULL) {
                nng_msg_free(msg);
            }
            if (ended) {
                bt_rpc_link_over(link, "the connection ended");
            }
        }
        BT_LIST_FOR_EACH(pos, tmp, &rpc->links)
        {
            const link_state_t state =
                BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all)->state;

            left |= (state == LINK_CLOSING) || (state == LINK_BYE_SENT);
        }
        if (!left) {
            return;
        }
        (void)poll(&wait, 1, (int)(end_ms - now_ms));
    }
}

void bt_rpc_close(bt_rpc_t *rpc)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    if (rpc == NULL) {
        return;
    }
    drop_current(rpc);
    BT_LIST_FOR_EACH(pos, tmp, &rpc->listeners)
    {
        bt_rpc_listener_free(BT_CONTAINER_OF(pos, rpc_listener_t, in_all));
    }
    say_good_bye(rpc);
    BT_LIST_FOR_EACH(pos, tmp, &rpc->links)
    {
        bt_rpc_link_retire(BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all));
    }
    if (!bt_rpc_reaper_stop(rpc)) {
        return; /* callbacks may still run: their data must stay */
    }
    BT_LIST_FOR_EACH(pos, tmp, &rpc->joins)
    {
        bt_rpc_join_free(BT_CONTAINER_OF(pos, rpc_join_t, in_all));
    }
    close_fds(rpc);
    pthread_mutex_destroy(&rpc->mutex);
    free_rpc(rpc);
}

static bool is_url(const char *url)
{
    return bt_rpc_is_url((const uint8_t *)url, strlen(url)) &&
           (bt_rpc_is_ipc(url) || (strchr(url + 6, ':') != NULL));
}

/* Returns the comma that ends the URL at text, or its end. */
static char *url_end(char *text)
{
    char *end = strchrnul(text, ',');

    while (bt_rpc_is_ipc(text) && (*end == ',') && (end[1] != '\0') &&
           !bt_rpc_is_ipc(end + 1) && (strncmp(end + 1, "tcp://", 6) != 0)) {
        end = strchrnul(end + 1, ',');
    }
    return end;
}

char *bt_rpc_url_take(char **rest_p)
{
    char *const url = *rest_p + strspn(*rest_p, ",");
    char *const end = url_end(url);

    *rest_p = end + ((*end == ',') ? 1 : 0);
    *end = '\0';
    return (url[0] == '\0') ? NULL : url;
}

bt_status_t bt_rpc_listen(bt_rpc_t *rpc, const char *url, char *bound,
                          size_t bound_bytes)
{
    rpc_listener_t *listener;
    bt_status_t status;

    if (!is_url(url)) {
        BT_LOG_ERROR("%s: expected ipc://PATH or tcp://HOST:PORT", url);
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_rpc_listener_create(rpc, url, &listener);
    if (status != BT_OK) {
        return status;
    }
    if (strlen(listener->url) >= bound_bytes) {
        BT_LOG_ERROR("cannot listen for workers at %s: its name is too long",
                     url);
        bt_rpc_listener_free(listener);
        return BT_ERR_TOO_LARGE;
    }
    memcpy(bound, listener->url, strlen(listener->url) + 1);
    bt_list_push_back(&rpc->listeners, &listener->in_all);
    return BT_OK;
}

bool bt_rpc_rekey(bt_rpc_t *rpc, const uint8_t *key, size_t key_bytes,
                  uint64_t now_ms)
{
    return bt_rpc_ring_turn(&rpc->ring, key, key_bytes, now_ms);
}

static rpc_join_t *find_join(bt_rpc_t *rpc, const char *url)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &rpc->joins)
    {
        rpc_join_t *join = BT_CONTAINER_OF(pos, rpc_join_t, in_all);

        if (strcmp(join->url, url) == 0) {
            return join;
        }
    }
    return NULL;
}

bt_status_t bt_rpc_join(bt_rpc_t *rpc, const char *url)
{
    rpc_join_t *join;
    bt_status_t status;

    if (!is_url(url)) {
        BT_LOG_ERROR("%s: expected ipc://PATH or tcp://HOST:PORT", url);
        return BT_ERR_INVALID_PARAM;
    }
    if (find_join(rpc, url) != NULL) {
        return BT_ERR_EXISTS;
    }
    status = bt_rpc_join_create(rpc, url, &join);
    if (status != BT_OK) {
        return status;
    }
    bt_list_push_back(&rpc->joins, &join->in_all);
    return BT_OK;
}

bool bt_rpc_leave(bt_rpc_t *rpc, const char *url)
{
    rpc_join_t *join = find_join(rpc, url);

    if (join == NULL) {
        return true;
    }
    if (join->link != NULL) {
        if (join->link->proven) {
            return false; /* up, or about to be */
        }
        /* Nothing was reported to the owner yet. */
        bt_rpc_link_over(join->link, "the router is not to be joined any more");
    }
    bt_rpc_join_free(join);
    return true;
}

int bt_rpc_fd(const bt_rpc_t *rpc)
{
    return rpc->fd;
}

/* ---- the owner's loop ---- */

/* The next message of the frame in hand. */
static bool next_message(bt_rpc_t *rpc, bt_rpc_event_t *event_p)
{
    const void *data = NULL;
    bt_status_t status;
    size_t bytes;

    if ((rpc->current != NULL) && (rpc->current->state == LINK_UP)) {
        status = bt_rpc_stream_next(&rpc->current->in, rpc->current_frame.body,
                                    rpc->current_frame.bytes, &rpc->current_at,
                                    &data, &bytes);
        if (status != BT_OK) {
            data = NULL;
            bt_rpc_link_over(rpc->current, (status == BT_ERR_NO_MEMORY)
                                               ? "out of memory"
                                               : "malformed frame");
        }
    }
    if (data == NULL) {
        drop_current(rpc);
        return false;
    }
    event_p->type = BT_RPC_MESSAGE;
    event_p->link = rpc->current;
    event_p->data = data;
    event_p->bytes = bytes;
    return true;
}

/* There may be more. A bell that rings keeps our descriptor readable, in
 * case the owner does something else first. */
static void go_on_with(bt_rpc_link_t *link)
{
    if (link->lanes.rings) {
        bt_rpc_queue_ready(link);
    } else {
        bt_rpc_mark_ready(link);
    }
}

bool bt_rpc_next(bt_rpc_t *rpc, uint64_t now_ms, bt_rpc_event_t *event_p)
{
    rpc->now_ms = now_ms;
    for (;;) {
        bt_rpc_link_t *link;

        if (next_message(rpc, event_p)) {
            return true;
        }
        bt_rpc_listeners_take(rpc);
        link = bt_rpc_pop_ready(rpc);
        if (link == NULL) {
            if (!rpc->looked && bt_rpc_look(rpc)) {
                rpc->looked = true;
                continue;
            }
            rpc->looked = false; /* later events show at the descriptor */
            return false;
        }
        switch (bt_rpc_link_step(link, event_p)) {
        case STEP_EVENT:
            go_on_with(link);
            return true;
        case STEP_AGAIN:
            go_on_with(link);
            break;
        case STEP_IDLE:
        case STEP_FREED:
            break;
        }
    }
}

void bt_rpc_tick(bt_rpc_t *rpc, uint64_t now_ms)
{
    const uint64_t pause = (rpc->tick_ms == 0) ? 0 : now_ms - rpc->tick_ms;
    bt_list_t *pos;
    bt_list_t *tmp;

    rpc->now_ms = now_ms;
    bt_rpc_ring_expire(&rpc->ring, now_ms);
    rpc->tick_ms = now_ms;
    BT_LIST_FOR_EACH(pos, tmp, &rpc->links)
    {
        bt_rpc_link_t *link = BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all);

        /* While this process slept it did not read: that is not the peer's
         * silence, nor its delay. */
        if (pause > 2ull * rpc->heartbeat_ms) {
            bt_rpc_silence_slept(link, pause - rpc->heartbeat_ms);
            if (link->deadline_ms != 0) {
                link->deadline_ms += pause - rpc->heartbeat_ms;
            }
        }
        bt_rpc_link_tick(link);
    }
    BT_LIST_FOR_EACH(pos, tmp, &rpc->joins)
    {
        bt_rpc_join_tick(BT_CONTAINER_OF(pos, rpc_join_t, in_all));
    }
    BT_LIST_FOR_EACH(pos, tmp, &rpc->listeners)
    {
        bt_rpc_listener_tick(BT_CONTAINER_OF(pos, rpc_listener_t, in_all));
    }
}

void bt_rpc_flush(bt_rpc_t *rpc)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &rpc->dirty)
    {
        bt_rpc_link_pump(BT_CONTAINER_OF(pos, bt_rpc_link_t, in_dirty));
    }
}

void bt_rpc_link_set_user(bt_rpc_link_t *link, void *user)
{
    link->user = user;
}

void *bt_rpc_link_user(const bt_rpc_link_t *link)
{
    return link->user;
}

uint64_t bt_rpc_link_incarnation(const bt_rpc_link_t *link)
{
    return link->incarnation;
}
