/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "worker/start.h"

#define LINE_BYTES 256

bt_status_t bt_standby_read_assignment(const char *line, char *name,
                                       uint32_t *roles_p)
{
    const char *const space = strchr(line, ' ');
    const size_t len = (space == NULL) ? 0 : (size_t)(space - line);

    if ((len == 0) || (len >= BT_WIRE_MAX_NAME) ||
        !bt_role_named(space + 1, roles_p)) {
        return BT_ERR_BAD_MESSAGE;
    }
    memcpy(name, line, len);
    name[len] = '\0';
    return BT_OK;
}

/* @retval BT_INPROGRESS  there is no whole line yet */
static bt_status_t read_line(int fd, char line[LINE_BYTES], size_t *n)
{
    const ssize_t got = read(fd, line + *n, LINE_BYTES - 1 - *n);
    char *end;

    if (got <= 0) {
        return (got == 0) ? BT_ERR_CANCELED : BT_ERR_IO;
    }
    *n += (size_t)got;
    line[*n] = '\0';
    end = strchr(line, '\n');
    if (end == NULL) {
        return (*n == LINE_BYTES - 1) ? BT_ERR_BAD_MESSAGE : BT_INPROGRESS;
    }
    *end = '\0';
    return BT_OK;
}

static bt_status_t wait_for_line(bt_worker_t *w, int signal_fd,
                                 char line[LINE_BYTES])
{
    struct pollfd fds[] = {
        {.fd = (int)w->config->assignment_fd, .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN}};
    bt_status_t status = BT_INPROGRESS;
    bool from_parent = false;
    size_t n = 0;

    while (status == BT_INPROGRESS) {
        bt_heartbeat_tick(&w->beat, bt_now_ms());
        if (poll(fds, BT_ARRAY_LEN(fds), BT_HEARTBEAT_EVERY_MS) < 0) {
            status = (errno == EINTR) ? BT_INPROGRESS : BT_ERR_IO;
        } else if ((fds[1].revents != 0) &&
                   (bt_stop_next(signal_fd, &from_parent) != 0)) {
            status = BT_ERR_CANCELED;
        } else if (fds[0].revents != 0) {
            status = read_line(fds[0].fd, line, &n);
        }
    }
    return status;
}

/* Shares the name and role with all ranks; "": there is none. */
static bt_status_t share_assignment(const bt_collectives_t *coll,
                                    char name[BT_WIRE_MAX_NAME])
{
    const bt_status_t status =
        coll->broadcast(coll->ctx, name, BT_WIRE_MAX_NAME, 0);

    if (status != BT_OK) {
        BT_LOG_ERROR("the ranks cannot connect: %s", bt_status_str(status));
    }
    return status;
}

bt_status_t bt_worker_stand_by_rank(bt_worker_t *w,
                                    const bt_collectives_t *coll)
{
    char name[BT_WIRE_MAX_NAME] = "";
    const bt_status_t status = share_assignment(coll, name);

    if (status != BT_OK) {
        return status;
    }
    if (name[0] == '\0') {
        return BT_ERR_CANCELED;
    }
    name[sizeof(name) - 1] = '\0';
    bt_start_name_rank(w, name, coll->rank);
    return BT_OK;
}

bt_status_t bt_worker_stand_by(bt_worker_t *w, const bt_collectives_t *coll,
                               int signal_fd)
{
    char line[LINE_BYTES] = "";
    bt_status_t status;

    BT_LOG_INFO("on standby, with the weights of %s", w->config->model);
    bt_ready_fd_say(&w->ready_fd, "ready\n");
    status = wait_for_line(w, signal_fd, line);
    if (status == BT_OK) {
        status = bt_standby_read_assignment(line, w->name, &w->roles);
    }
    if ((status != BT_OK) && (status != BT_ERR_CANCELED)) {
        BT_LOG_ERROR("assignment-fd %u: \"%s\": %s", w->config->assignment_fd,
                     line, bt_status_str(status));
    }
    close((int)w->config->assignment_fd);
    if (coll != NULL) {
        char name[BT_WIRE_MAX_NAME] = "";
        bt_status_t shared;

        if (status == BT_OK) {
            memcpy(name, w->name, sizeof(name));
        }
        shared = share_assignment(coll, name);
        status = (status == BT_OK) ? shared : status;
    }
    return status;
}
