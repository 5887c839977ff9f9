/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/sighup_source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* -1 with errno: ENXIO, EIO: there is no terminal any more */
static int open_terminal(void)
{
    return open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

bool bt_terminal_is_ours(void)
{
    struct sigaction action;
    int fd;

    if ((sigaction(SIGHUP, NULL, &action) != 0) ||
        (action.sa_handler == SIG_IGN) || ((fd = open_terminal()) < 0)) {
        return false;
    }
    close(fd);
    return true;
}

bool bt_terminal_is_gone(void)
{
    const int fd = open_terminal();

    if (fd >= 0) {
        close(fd);
        return false;
    }
    return (errno == ENXIO) || (errno == EIO);
}
