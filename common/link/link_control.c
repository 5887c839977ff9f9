/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/link.h"

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
#include "common/link/link_priv.h"

#define MIN_KEY_BYTES 16
#define FIRST_VERSION 4 /* of these frames */

static const char *config_fault(const bt_control_config_t *config)
{
    if ((config->key == NULL) || (config->key_bytes < MIN_KEY_BYTES)) {
        return "the cluster key needs at least 16 bytes";
    }
    if (config->hello_bytes > BT_LINK_MAX_PAYLOAD) {
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
        return "the send queue has a size of 0";
    }
    return NULL;
}

static void init_lists(bt_control_t *control)
{
    bt_list_init(&control->links);
    bt_list_init(&control->joins);
    bt_list_init(&control->listeners);
    bt_list_init(&control->dirty);
    bt_list_init(&control->ready);
    bt_list_init(&control->retired);
}

static bt_status_t copy_config(bt_control_t *control,
                               const bt_control_config_t *config)
{
    bt_link_keys_make(config->key, config->key_bytes, &control->keyring.now);
    control->range = config->range;
    snprintf(control->name, sizeof(control->name), "%s", config->name);
    control->heartbeat_ms = config->heartbeat_ms;
    control->suspect_ms = config->suspect_ms;
    control->dead_ms = config->dead_ms;
    control->tells_starved = config->tells_starved;
    control->max_queue_bytes = config->max_queue_bytes;
    control->share_memory = config->share_memory;
    control->on_refused = config->on_refused;
    control->refused_ctx = config->refused_ctx;
    control->hello_bytes = config->hello_bytes;
    control->hello = bt_memdup(config->hello, config->hello_bytes);
    if (control->hello == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static void close_fds(const bt_control_t *control)
{
    if (control->fd >= 0) {
        close(control->fd);
    }
    if (control->event_fd >= 0) {
        close(control->event_fd);
    }
}

static void free_control(bt_control_t *control)
{
    bt_free(control->ring_bytes);
    bt_free(control->hello);
    bt_key_wipe(&control->keyring, sizeof(control->keyring));
    bt_free(control);
}

bt_status_t bt_control_open(const bt_control_config_t *config,
                            bt_control_t **link_p)
{
    const char *fault = config_fault(config);
    struct epoll_event told = {.events = EPOLLIN}; /* by no link's bell */
    bt_status_t status;
    bt_control_t *control;

    if (fault != NULL) {
        BT_LOG_ERROR("control links: %s", fault);
        return BT_ERR_INVALID_PARAM;
    }
    control = bt_calloc(1, sizeof(*control));
    if (control == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    init_lists(control);
    control->now_ms = bt_now_ms(); /* a router may be dialled before a tick */
    status = copy_config(control, config);
    if (status != BT_OK) {
        goto err_control;
    }
    while (control->incarnation == 0) {
        bt_key_random(&control->incarnation, sizeof(control->incarnation));
    }
    control->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    control->fd = epoll_create1(EPOLL_CLOEXEC);
    if ((control->event_fd < 0) || (control->fd < 0) ||
        (epoll_ctl(control->fd, EPOLL_CTL_ADD, control->event_fd, &told) !=
         0)) {
        BT_LOG_ERROR("control links: no event descriptor: %m");
        status = BT_ERR_IO;
        goto err_event_fd;
    }
    control->ring_bytes = bt_calloc(1, LINK_RING_READ);
    if (control->ring_bytes == NULL) {
        status = BT_ERR_NO_MEMORY;
        goto err_event_fd;
    }
    if (pthread_mutex_init(&control->mutex, NULL) != 0) {
        status = BT_ERR_NO_MEMORY;
        goto err_event_fd;
    }
    status = bt_link_reaper_start(control);
    if (status != BT_OK) {
        goto err_mutex;
    }
    *link_p = control;
    return BT_OK;

err_mutex:
    pthread_mutex_destroy(&control->mutex);
err_event_fd:
    close_fds(control);
err_control:
    free_control(control);
    return status;
}

/* Forget the frame that is being handed out and the last event's data. */
static void drop_current(bt_control_t *control)
{
    nng_msg_free(control->current_msg); /* NULL is allowed */
    control->current_msg = NULL;
    control->current = NULL;
    bt_free(control->event_data);
    control->event_data = NULL;
}

/* Sends BYE on every link and gives it LINK_CLOSE_MS to arrive: a peer that
 * receives it closes its side. */
static void say_good_bye(bt_control_t *control)
{
    const uint64_t end_ms = bt_now_ms() + LINK_CLOSE_MS;
    uint64_t now_ms;

    BT_LIST_FOR_EACH_ENTRY(bt_link_t, link, &control->links, in_all) {
        bt_link_close(link, "the peer shut down");
    }
    while ((now_ms = bt_now_ms()) < end_ms) {
        struct pollfd wait = {.fd = control->fd, .events = POLLIN};
        bt_link_t *link;
        bool left = false;

        (void)bt_link_look(control);
        while ((link = bt_link_pop_ready(control)) != NULL) {
            bool is_tagged, ended = false;
            nng_msg *msg;

            bt_link_pump(link);
            while ((msg = bt_link_inbox_take(link, &is_tagged, &ended)) !=
                   NULL) {
                nng_msg_free(msg);
            }
            if (ended) {
                bt_link_over(link, "the connection ended");
            }
        }
        BT_LIST_FOR_EACH_ENTRY(bt_link_t, open, &control->links, in_all) {
            left |=
                (open->state == LINK_CLOSING) || (open->state == LINK_BYE_SENT);
        }
        if (!left) {
            return;
        }
        (void)poll(&wait, 1, (int)(end_ms - now_ms));
    }
}

void bt_control_close(bt_control_t *control)
{
    if (control == NULL) {
        return;
    }
    drop_current(control);
    BT_LIST_FOR_EACH_ENTRY(link_listener_t, listener, &control->listeners,
                           in_all) {
        bt_link_listener_free(listener);
    }
    say_good_bye(control);
    BT_LIST_FOR_EACH_ENTRY(bt_link_t, link, &control->links, in_all) {
        bt_link_retire(link);
    }
    if (!bt_link_reaper_stop(control)) {
        return; /* callbacks may still run: their data must stay */
    }
    BT_LIST_FOR_EACH_ENTRY(link_join_t, join, &control->joins, in_all) {
        bt_link_join_free(join);
    }
    close_fds(control);
    pthread_mutex_destroy(&control->mutex);
    free_control(control);
}

/* @return false: not a URL (logged) */
static bool check_url(const char *url)
{
    if (bt_control_is_url((const uint8_t *)url, strlen(url)) &&
        (bt_control_is_ipc(url) || (strchr(url + 6, ':') != NULL))) {
        return true;
    }
    BT_LOG_ERROR("%s: expected ipc://PATH or tcp://HOST:PORT, without control "
                 "characters",
                 url);
    return false;
}

/* Returns the comma that ends the URL at text, or its end. */
static char *url_end(char *text)
{
    char *end = strchrnul(text, ',');

    while (bt_control_is_ipc(text) && (*end == ',') && (end[1] != '\0') &&
           !bt_control_is_ipc(end + 1) &&
           (strncmp(end + 1, "tcp://", 6) != 0)) {
        end = strchrnul(end + 1, ',');
    }
    return end;
}

char *bt_control_url_take(char **rest_p)
{
    char *const url = *rest_p + strspn(*rest_p, ",");
    char *const end = url_end(url);

    *rest_p = end + ((*end == ',') ? 1 : 0);
    *end = '\0';
    return (url[0] == '\0') ? NULL : url;
}

bt_status_t bt_control_listen(bt_control_t *control, const char *url,
                              char *bound, size_t bound_bytes)
{
    link_listener_t *listener;
    bt_status_t status;

    if (!check_url(url)) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_link_listener_create(control, url, &listener);
    if (status != BT_OK) {
        return status;
    }
    if (strlen(listener->url) >= bound_bytes) {
        BT_LOG_ERROR("cannot listen for workers at %s: its name is too long",
                     url);
        bt_link_listener_free(listener);
        return BT_ERR_TOO_LARGE;
    }
    memcpy(bound, listener->url, strlen(listener->url) + 1);
    bt_list_push_back(&control->listeners, &listener->in_all);
    return BT_OK;
}

bool bt_control_rekey(bt_control_t *control, const uint8_t *key,
                      size_t key_bytes, uint64_t now_ms)
{
    return bt_link_keyring_turn(&control->keyring, key, key_bytes, now_ms);
}

static link_join_t *find_join(bt_control_t *control, const char *url)
{
    BT_LIST_FOR_EACH_ENTRY(link_join_t, join, &control->joins, in_all) {
        if (strcmp(join->url, url) == 0) {
            return join;
        }
    }
    return NULL;
}

bt_status_t bt_control_join(bt_control_t *control, const char *url)
{
    link_join_t *join;
    bt_status_t status;

    if (!check_url(url)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (find_join(control, url) != NULL) {
        return BT_ERR_EXISTS;
    }
    status = bt_link_join_create(control, url, &join);
    if (status != BT_OK) {
        return status;
    }
    bt_list_push_back(&control->joins, &join->in_all);
    return BT_OK;
}

bool bt_control_leave(bt_control_t *control, const char *url)
{
    link_join_t *join = find_join(control, url);

    if (join == NULL) {
        return true;
    }
    if (join->link != NULL) {
        if (join->link->proven) {
            return false; /* up, or about to be */
        }
        /* Nothing was reported to the owner yet. */
        bt_link_over(join->link, "the router is not to be joined any more");
    }
    bt_link_join_free(join);
    return true;
}

int bt_control_fd(const bt_control_t *control)
{
    return control->fd;
}

/* ---- the owner's loop ---- */

/* The next message of the frame in hand. */
static bool next_message(bt_control_t *control, bt_link_event_t *event_p)
{
    const void *data = NULL;
    bt_status_t status;
    size_t bytes;

    if ((control->current != NULL) && (control->current->state == LINK_UP)) {
        status = bt_link_stream_next(
            &control->current->in, control->current_frame.body,
            control->current_frame.bytes, &control->current_at, &data, &bytes);
        if (status != BT_OK) {
            data = NULL;
            bt_link_over(control->current, (status == BT_ERR_NO_MEMORY)
                                               ? "out of memory"
                                               : "malformed frame");
        }
    }
    if (data == NULL) {
        drop_current(control);
        return false;
    }
    event_p->type = BT_LINK_MESSAGE;
    event_p->link = control->current;
    event_p->data = data;
    event_p->bytes = bytes;
    return true;
}

/* There may be more. A bell that rings keeps our descriptor readable, in
 * case the owner does something else first. */
static void go_on_with(bt_link_t *link)
{
    if (link->shm.bell_rings) {
        bt_link_queue_ready(link);
    } else {
        bt_link_mark_ready(link);
    }
}

bool bt_control_next(bt_control_t *control, uint64_t now_ms,
                     bt_link_event_t *event_p)
{
    control->now_ms = now_ms;
    for (;;) {
        bt_link_t *link;

        if (next_message(control, event_p)) {
            return true;
        }
        bt_link_listeners_take(control);
        link = bt_link_pop_ready(control);
        if (link == NULL) {
            if (!control->looked && bt_link_look(control)) {
                control->looked = true;
                continue;
            }
            control->looked = false; /* later events show at the descriptor */
            return false;
        }
        switch (bt_link_step(link, event_p)) {
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

void bt_control_tick(bt_control_t *control, uint64_t now_ms)
{
    const uint64_t pause =
        (control->tick_ms == 0) ? 0 : now_ms - control->tick_ms;

    control->now_ms = now_ms;
    bt_link_keyring_expire(&control->keyring, now_ms);
    control->tick_ms = now_ms;
    BT_LIST_FOR_EACH_ENTRY(bt_link_t, link, &control->links, in_all) {
        /* While this process slept it did not read: that is not the peer's
         * silence, nor its delay. */
        if (pause > 2ull * control->heartbeat_ms) {
            bt_link_silence_slept(link, pause - control->heartbeat_ms);
            if (link->deadline_ms != 0) {
                link->deadline_ms += pause - control->heartbeat_ms;
            }
        }
        bt_link_tick(link);
    }
    BT_LIST_FOR_EACH_ENTRY(link_join_t, join, &control->joins, in_all) {
        bt_link_join_tick(join);
    }
    BT_LIST_FOR_EACH_ENTRY(link_listener_t, listener, &control->listeners,
                           in_all) {
        bt_link_listener_tick(listener);
    }
}

void bt_control_flush(bt_control_t *control)
{
    BT_LIST_FOR_EACH_ENTRY(bt_link_t, link, &control->dirty, in_dirty) {
        bt_link_pump(link);
    }
}

void bt_link_set_user(bt_link_t *link, void *user)
{
    link->user = user;
}

void *bt_link_user(const bt_link_t *link)
{
    return link->user;
}
