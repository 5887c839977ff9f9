/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/heartbeat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"

void bt_heartbeat_open(bt_heartbeat_t *heartbeat)
{
    const char *text = getenv("BATON_BEAT_FD");
    char *end = NULL;
    long fd;

    *heartbeat = (bt_heartbeat_t){0};
    if ((text == NULL) || (text[0] == '\0')) {
        return;
    }
    fd = strtol(text, &end, 10);
    /* Child processes of this program must not beat for it. */
    if ((*end != '\0') || (fd < 3) || (fd > 65535) ||
        (fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)) {
        BT_LOG_WARN("BATON_BEAT_FD is not a descriptor number");
        return;
    }
    heartbeat->fd = (int)fd;
}

void bt_heartbeat_tick(bt_heartbeat_t *heartbeat, uint64_t now_ms)
{
    static const uint64_t one = 1;

    if ((heartbeat->fd == 0) || (now_ms < heartbeat->next_ms)) {
        return;
    }
    heartbeat->next_ms = now_ms + BT_HEARTBEAT_EVERY_MS;
    if (write(heartbeat->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        BT_LOG_WARN("cannot write to BATON_BEAT_FD: %m");
        bt_heartbeat_close(heartbeat);
    }
}

void bt_heartbeat_close(bt_heartbeat_t *heartbeat)
{
    if (heartbeat->fd > 0) {
        close(heartbeat->fd);
    }
    heartbeat->fd = 0;
}
