/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/control_socket.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"

/* Most unread bytes of one client: the status of 8000 processes and more. */
#define OUT_BYTES (4u << 20)

typedef enum phase {
    PHASE_NONE, /* a free slot */
    PHASE_IDLE,
    PHASE_BUSY,
    PHASE_LEAVING,
} phase_t;
#define N_PHASES 4

typedef struct client {
    phase_t phase;
    uint64_t id;
    bool is_watching;
    bt_admin_stream_t stream;
} client_t;

struct bt_control_socket {
    struct sockaddr_un address;
    int listener;
    bt_control_socket_command_fn on_command;
    void *arg;
    uint64_t last_id;
    client_t clients[BT_CONTROL_SOCKET_CLIENTS];
};

static const bool edges[N_PHASES][N_PHASES] = {
    [PHASE_NONE] = {[PHASE_IDLE] = true},
    [PHASE_IDLE] =
        {[PHASE_NONE] = true, [PHASE_BUSY] = true, [PHASE_LEAVING] = true},
    [PHASE_BUSY] = {[PHASE_NONE] = true, [PHASE_IDLE] = true},
    [PHASE_LEAVING] = {[PHASE_NONE] = true},
};

static void move(client_t *client, phase_t next)
{
    BT_ASSERT(edges[client->phase][next]);
    client->phase = next;
    if (next == PHASE_NONE) {
        bt_admin_stream_fini(&client->stream);
        client->is_watching = false;
    }
}

/* @return the socket, or -1 */
static int listen_at(const struct sockaddr_un *address)
{
    const int fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t mask;
    bool failed;

    mask = umask(0177); /* the socket's file is private from the start */
    failed =
        (fd < 0) ||
        (bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) ||
        (listen(fd, BT_CONTROL_SOCKET_CLIENTS) != 0);
    umask(mask);
    if (failed) {
        const int why = errno;

        if (fd >= 0) {
            close(fd);
        }
        errno = why;
        return -1;
    }
    return fd;
}

bt_status_t bt_control_socket_create(const char *run_dir,
                                     bt_control_socket_command_fn on_command,
                                     void *arg, bt_control_socket_t **control_p)
{
    bt_control_socket_t *const control = bt_calloc(1, sizeof(*control));

    if (control == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    control->on_command = on_command;
    control->arg = arg;
    control->address.sun_family = AF_UNIX;
    /* A run directory's path is short enough by its type. */
    snprintf(control->address.sun_path, sizeof(control->address.sun_path),
             "%s/%s", run_dir, BT_ADMIN_SOCKET);
    control->listener = listen_at(&control->address);
    if (control->listener < 0) {
        BT_LOG_ERROR("cannot listen at %s: %m", control->address.sun_path);
        bt_control_socket_destroy(control);
        return BT_ERR_IO;
    }
    *control_p = control;
    return BT_OK;
}

void bt_control_socket_restore(bt_control_socket_t *control)
{
    int fd;

    if ((access(control->address.sun_path, F_OK) == 0) || (errno != ENOENT)) {
        return;
    }
    fd = listen_at(&control->address);
    if (fd >= 0) {
        BT_LOG_WARN("%s was removed and is recreated",
                    control->address.sun_path);
        close(control->listener);
        control->listener = fd;
    }
}

void bt_control_socket_destroy(bt_control_socket_t *control)
{
    if (control == NULL) {
        return;
    }
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        if (control->clients[i].phase != PHASE_NONE) {
            move(&control->clients[i], PHASE_NONE);
        }
    }
    if (control->listener >= 0) {
        close(control->listener);
    }
    bt_free(control);
}

nfds_t bt_control_socket_poll_fds(const bt_control_socket_t *control,
                                  struct pollfd *fds)
{
    nfds_t n = 0;

    fds[n++] = (struct pollfd){.fd = control->listener, .events = POLLIN};
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        const client_t *const client = &control->clients[i];
        short events = 0;

        if (client->phase == PHASE_NONE) {
            continue;
        }
        /* A busy client's hang-up is reported by poll() unasked. */
        if ((client->phase == PHASE_IDLE) && !client->stream.is_at_end &&
            (client->stream.out.len == 0)) {
            events = POLLIN;
        }
        if (client->stream.out.len > 0) {
            events |= POLLOUT;
        }
        fds[n++] = (struct pollfd){.fd = client->stream.fd, .events = events};
    }
    return n;
}

static client_t *find(bt_control_socket_t *control, uint64_t id)
{
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        if ((control->clients[i].phase != PHASE_NONE) &&
            (control->clients[i].id == id)) {
            return &control->clients[i];
        }
    }
    return NULL;
}

/* Appends a line; a client with too much unread is dropped. */
static void write_line(client_t *client, const bt_strbuf_t *line)
{
    bt_strbuf_append(&client->stream.out, line->data, line->len);
    if (bt_strbuf_status(&client->stream.out) != BT_OK) {
        BT_LOG_WARN(
            "a client of the launcher socket does not read and is disconnected: %s",
            bt_status_str(bt_strbuf_status(&client->stream.out)));
        move(client, PHASE_NONE);
    }
}

static void write_error(client_t *client, const char *error)
{
    bt_admin_reply_t reply = {.result = BT_ADMIN_ERROR};
    bt_strbuf_t line;

    snprintf(reply.error, sizeof(reply.error), "%s", error);
    bt_strbuf_init(&line, BT_ADMIN_REPLY_BYTES);
    bt_admin_reply_write(&reply, &line);
    if (bt_strbuf_status(&line) == BT_OK) {
        write_line(client, &line);
    } else {
        move(client, PHASE_NONE); /* out of memory */
    }
    bt_strbuf_fini(&line);
}

void bt_control_socket_answer(bt_control_socket_t *control, uint64_t id,
                              const bt_admin_reply_t *reply)
{
    client_t *const client = find(control, id);
    bt_strbuf_t line;

    if (client == NULL) {
        return;
    }
    BT_ASSERT(client->phase == PHASE_BUSY);
    move(client, PHASE_IDLE);
    bt_strbuf_init(&line, BT_ADMIN_REPLY_BYTES);
    bt_admin_reply_write(reply, &line);
    if (bt_strbuf_status(&line) == BT_OK) {
        write_line(client, &line);
    } else {
        write_error(client, bt_status_str(bt_strbuf_status(&line)));
    }
    bt_strbuf_fini(&line);
}

void bt_control_socket_watch(bt_control_socket_t *control, uint64_t id)
{
    client_t *const client = find(control, id);

    if (client != NULL) {
        client->is_watching = true;
    }
}

void bt_control_socket_publish(bt_control_socket_t *control,
                               const bt_admin_reply_t *change)
{
    bt_strbuf_t line;

    bt_strbuf_init(&line, BT_ADMIN_REPLY_BYTES);
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        client_t *const client = &control->clients[i];

        if (!client->is_watching) {
            continue;
        }
        if (line.len == 0) {
            bt_admin_reply_write(change, &line);
        }
        if (bt_strbuf_status(&line) == BT_OK) {
            write_line(client, &line);
        } else {
            move(client, PHASE_NONE); /* it would miss a change */
        }
    }
    bt_strbuf_fini(&line);
}

/* The reason to refuse a connection, or NULL. */
static const char *refusal(int fd, const client_t *slot)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        BT_LOG_WARN(
            "cannot read the credentials of a client of the launcher socket: %m");
        return "cannot tell who you are";
    }
    if ((peer.uid != geteuid()) && (peer.uid != 0)) {
        BT_LOG_WARN("user %u, process %d is refused at the launcher socket",
                    peer.uid, peer.pid);
        return "this launcher takes commands of its own user and root only";
    }
    return (slot == NULL) ? "too many connections" : NULL;
}

/* A free slot, or NULL. */
static client_t *free_slot(bt_control_socket_t *control)
{
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        if (control->clients[i].phase == PHASE_NONE) {
            return &control->clients[i];
        }
    }
    return NULL;
}

static void accept_clients(bt_control_socket_t *control)
{
    int fd;

    while ((fd = accept4(control->listener, NULL, NULL,
                         SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        client_t *const client = free_slot(control);
        const char *const why = refusal(fd, client);

        if (why != NULL) {
            char line[128];
            const int n = snprintf(line, sizeof(line),
                                   "{\"ok\":false,\"error\":\"%s\"}\n", why);

            /* A fresh socket has enough buffer, and there is no waiting for
             * more. */
            if (send(fd, line, (size_t)n, MSG_NOSIGNAL) < 0) {
                BT_LOG_DEBUG("a refused client has left: %m");
            }
            close(fd);
            continue;
        }
        client->id = ++control->last_id;
        bt_admin_stream_init(&client->stream, fd, OUT_BYTES,
                             BT_ADMIN_COMMAND_BYTES);
        move(client, PHASE_IDLE);
    }
}

/* @return false: the client is gone. */
static bool send_queued(client_t *client)
{
    if (!bt_admin_stream_send(&client->stream)) {
        move(client, PHASE_NONE);
        return false;
    }
    return true;
}

/* @return whether a line was there and handled. */
static bool take_line(bt_control_socket_t *control, client_t *client)
{
    bt_admin_command_t command;
    bt_status_t status;
    const char *line;
    char why[512];
    size_t n;

    if (bt_admin_stream_is_clogged(&client->stream)) {
        bt_strbuf_fini(&client->stream.in);
        client->stream.is_at_end = true; /* where would the next line begin? */
        write_error(client, "the line is too long");
        return false;
    }
    line = bt_admin_stream_line(&client->stream, &n);
    if (line == NULL) {
        return false;
    }
    status = bt_admin_command_read(line, n, &command, why, sizeof(why));
    bt_admin_stream_drop(&client->stream, n);
    if (status != BT_OK) {
        write_error(client, why);
        return true;
    }
    move(client, PHASE_BUSY);
    control->on_command(control->arg, client->id, &command);
    return true;
}

/* True when the other end has closed both directions. */
static bool is_gone(const client_t *client)
{
    struct pollfd fd = {.fd = client->stream.fd};

    return (poll(&fd, 1, 0) > 0) && ((fd.revents & (POLLHUP | POLLERR)) != 0);
}

/* Reads and sends without blocking. A line is read once the one before it is
 * answered and sent, so that answers cannot pile up. */
static void serve(bt_control_socket_t *control, client_t *client)
{
    size_t n;

    do {
        if (!send_queued(client)) {
            return;
        }
        bt_admin_stream_receive(&client->stream);
    } while ((client->phase == PHASE_IDLE) && (client->stream.out.len == 0) &&
             take_line(control, client) && (client->phase != PHASE_NONE));

    if ((client->phase == PHASE_BUSY) && client->stream.is_at_end &&
        is_gone(client)) {
        move(client, PHASE_NONE); /* its command is carried out all the same */
    }
    if ((client->phase == PHASE_IDLE) && client->stream.is_at_end &&
        (bt_admin_stream_line(&client->stream, &n) == NULL)) {
        client->is_watching = false;
        move(client, PHASE_LEAVING);
    }
    if ((client->phase == PHASE_LEAVING) && send_queued(client) &&
        (client->stream.out.len == 0)) {
        move(client, PHASE_NONE);
    }
}

void bt_control_socket_run(bt_control_socket_t *control)
{
    accept_clients(control);
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        if (control->clients[i].phase != PHASE_NONE) {
            serve(control, &control->clients[i]);
        }
    }
}
