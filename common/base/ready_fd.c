/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/ready_fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

int bt_ready_fd_open(void)
{
    const char *text = getenv("BATON_READY_FD");
    char *end = NULL;
    long fd;

    if ((text == NULL) || (text[0] == '\0')) {
        return -1;
    }
    fd = strtol(text, &end, 10);
    if ((*end != '\0') || (fd < 3) || (fd > 65535)) {
        BT_LOG_WARN("BATON_READY_FD is not a descriptor number");
        return -1;
    }
    /* A launcher that is stopped and does not read must not block a program. */
    (void)fcntl((int)fd, F_SETFL, O_NONBLOCK);
    return (int)fd;
}

void bt_ready_fd_say(int *fd, const char *text)
{
    const size_t n = strlen(text);

    if ((*fd >= 0) && (write(*fd, text, n) != (ssize_t)n)) {
        BT_LOG_WARN("cannot write to BATON_READY_FD: %m");
        bt_ready_fd_close(fd);
    }
}

void bt_ready_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}
