/* SPDX-License-Identifier: Apache-2.0 */
/* Control port of a router: accepts byte streams, each of which begins a link.
 *
 *     nng's thread                       owner
 *     accepted ──▶ listener->stream ──▶ a link in LINK_GREETING; accepts again
 *
 * A stream listener of nng, unlike a listener of its sockets, negotiates
 * nothing, so no peer can end it (docs/adr/0023). One stream waits at a time:
 * others wait in the kernel's backlog, so the owner sets the pace. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/link/link_priv.h"

#define LOOK_MS 1000 /* between two looks for the socket's name */

/* ---- accepting ---- */

/* On nng's thread. */
static void on_accepted(void *arg)
{
    link_listener_t *listener = arg;
    bt_control_t *control = listener->control;
    bool is_due = false;

    pthread_mutex_lock(&control->mutex);
    listener->is_accepting = false;
    if (nng_aio_result(listener->aio) == 0) {
        listener->stream = nng_aio_get_output(listener->aio, 0);
        control->n_accepted++;
        is_due = !control->signalled;
        control->signalled = true;
    } /* else, without a descriptor left perhaps: at the next tick */
    pthread_mutex_unlock(&control->mutex);
    if (is_due) {
        bt_link_signal(control);
    }
}

static void accept_next(link_listener_t *listener)
{
    bool go;

    if (listener->listener == NULL) {
        return;
    }
    pthread_mutex_lock(&listener->control->mutex);
    go = !listener->is_accepting && (listener->stream == NULL);
    listener->is_accepting = listener->is_accepting || go;
    pthread_mutex_unlock(&listener->control->mutex);
    if (go) {
        nng_stream_listener_accept(listener->listener, listener->aio);
    }
}

static nng_stream *take_stream(link_listener_t *listener)
{
    bt_control_t *control = listener->control;
    nng_stream *stream = NULL;

    pthread_mutex_lock(&control->mutex);
    if (control->n_retired < LINK_RETIRED) {
        stream = listener->stream;
        listener->stream = NULL;
        control->n_accepted -= stream != NULL;
    }
    pthread_mutex_unlock(&control->mutex);
    return stream;
}

/* The oldest goes first, so that silent peers do not occupy the port. */
static void limit_unproven(bt_control_t *control)
{
    bt_link_t *oldest = NULL;
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(bt_link_t, link, &control->links, in_all) {
        if (!link->proven && (link->state != LINK_OVER)) {
            oldest = (oldest == NULL) ? link : oldest;
            n++;
        }
    }
    if (n > LINK_UNPROVEN) {
        bt_link_over(oldest, "too many peers have proven nothing");
    }
}

void bt_link_listeners_take(bt_control_t *control)
{
    BT_LIST_FOR_EACH_ENTRY(link_listener_t, listener, &control->listeners,
                           in_all) {
        nng_stream *stream = take_stream(listener);

        if (stream != NULL) {
            bt_link_adopt(control, stream, listener->url);
            limit_unproven(control);
            accept_next(listener);
        }
    }
}

/* ---- the socket ---- */

static int errno_of(int rv)
{
    switch (rv) {
    case NNG_EADDRINUSE:
        return EADDRINUSE;
    case NNG_EADDRINVAL:
        return EADDRNOTAVAIL;
    case NNG_EPERM:
        return EACCES;
    case NNG_ENOENT:
        return ENOENT;
    case NNG_ENOMEM:
        return ENOMEM;
    case NNG_ENOFILES:
        return EMFILE;
    default:
        return ((rv & NNG_ESYSERR) != 0) ? rv & ~NNG_ESYSERR : EIO;
    }
}

/* @return 0, or the number of the error */
static int open_socket(link_listener_t *listener, const char *url)
{
    nng_stream_listener *l = NULL;
    int rv = nng_stream_listener_alloc(&l, url);

    if ((rv == 0) && listener->is_ipc) {
        rv = nng_stream_listener_set_int(l, NNG_OPT_IPC_PERMISSIONS,
                                         S_IRUSR | S_IWUSR);
    }
    if (rv == 0) {
        rv = nng_stream_listener_listen(l);
    }
    if (rv != 0) {
        nng_stream_listener_free(l); /* NULL is allowed */
        return errno_of(rv);
    }
    listener->listener = l;
    return 0;
}

static void close_socket(link_listener_t *listener)
{
    if (listener->listener != NULL) {
        nng_stream_listener_close(listener->listener);
        nng_aio_wait(listener->aio);
        nng_stream_listener_free(listener->listener);
        listener->listener = NULL;
    }
}

/* If the socket's name was removed, perhaps with its directory, no worker
 * could connect any more: it is created again as soon as possible. */
static void look_after_name(link_listener_t *listener)
{
    const uint64_t now_ms = listener->control->now_ms;
    const char *path = listener->url + strlen("ipc://");
    int error;

    if (!listener->is_ipc || (now_ms < listener->look_ms)) {
        return;
    }
    listener->look_ms = now_ms + LOOK_MS;
    if ((listener->listener != NULL) &&
        ((access(path, F_OK) == 0) || (errno != ENOENT))) {
        return;
    }
    close_socket(listener);
    error = open_socket(listener, listener->url);
    if (error == 0) {
        BT_LOG_WARN("%s was removed and is recreated", path);
        listener->is_gone = false;
    } else if (!listener->is_gone) {
        BT_LOG_WARN("%s was removed and cannot be recreated: %s", path,
                    strerror(error));
        listener->is_gone = true;
    }
}

void bt_link_listener_tick(link_listener_t *listener)
{
    look_after_name(listener);
    accept_next(listener);
}

/* @param [out] text the url with the real port */
static bool print_url(const link_listener_t *listener, const char *url,
                      char text[LINK_MAX_URL])
{
    const char *colon = strrchr(url, ':');
    int port = 0;
    int n;

    if (listener->is_ipc) {
        n = snprintf(text, LINK_MAX_URL, "%s", url);
    } else {
        (void)nng_stream_listener_get_int(listener->listener,
                                          NNG_OPT_TCP_BOUND_PORT, &port);
        n = snprintf(text, LINK_MAX_URL, "%.*s:%d", (int)(colon - url), url,
                     port);
    }
    return (n > 0) && (n < (int)LINK_MAX_URL);
}

bt_status_t bt_link_listener_create(bt_control_t *control, const char *url,
                                    link_listener_t **listener_p)
{
    link_listener_t *listener = bt_calloc(1, sizeof(*listener));
    int error;

    if (listener == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&listener->in_all);
    listener->control = control;
    listener->is_ipc = bt_control_is_ipc(url);
    if (nng_aio_alloc(&listener->aio, on_accepted, listener) != 0) {
        bt_free(listener);
        return BT_ERR_NO_MEMORY;
    }
    nng_aio_set_timeout(listener->aio, NNG_DURATION_INFINITE);
    error = open_socket(listener, url);
    if (error != 0) {
        BT_LOG_ERROR("cannot listen for workers at %s: %s", url,
                     strerror(error));
        bt_link_listener_free(listener);
        return (error == ENOMEM) ? BT_ERR_NO_MEMORY : bt_status_of_bind(error);
    }
    if (!print_url(listener, url, listener->url)) {
        BT_LOG_ERROR("cannot listen for workers at %s: its name is too long",
                     url);
        bt_link_listener_free(listener);
        return BT_ERR_TOO_LARGE;
    }
    accept_next(listener);
    *listener_p = listener;
    return BT_OK;
}

void bt_link_listener_free(link_listener_t *listener)
{
    if (listener == NULL) {
        return;
    }
    close_socket(listener);
    nng_aio_free(listener->aio); /* no callback runs any more */
    if (listener->stream != NULL) {
        nng_stream_free(listener->stream);
        pthread_mutex_lock(&listener->control->mutex);
        listener->control->n_accepted--;
        pthread_mutex_unlock(&listener->control->mutex);
    }
    bt_list_remove(&listener->in_all);
    bt_free(listener);
}
