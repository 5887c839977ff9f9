/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/beat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"

void bt_beat_open(bt_beat_t *beat)
{
    const char *text = getenv("BATON_BEAT_FD");
    char *end = NULL;
    long fd;

    *beat = (bt_beat_t){0};
    if ((text == NULL) || (text[0] == '\0')) {
        return;
    }
    fd = strtol(text, &end, 10);
    /* What this program starts itself does not speak for it. */
    if ((*end != '\0') || (fd < 3) || (fd > 65535) ||
        (fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)) {
        BT_LOG_WARN("BATON_BEAT_FD is not a descriptor number");
        return;
    }
    beat->fd = (int)fd;
}

void bt_beat(bt_beat_t *beat, uint64_t now_ms)
{
    static const uint64_t one = 1;

    if ((beat->fd == 0) || (now_ms < beat->next_ms)) {
        return;
    }
    beat->next_ms = now_ms + BT_BEAT_EVERY_MS;
    if (write(beat->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        BT_LOG_WARN("cannot write to BATON_BEAT_FD: %m");
        bt_beat_close(beat);
    }
}

void bt_beat_close(bt_beat_t *beat)
{
    if (beat->fd > 0) {
        close(beat->fd);
    }
    beat->fd = 0;
}
