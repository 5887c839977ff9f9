/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

bt_stop_t bt_stop_request(bt_stop_requests_t *wishes, uint64_t now_ms,
                          bool from_parent)
{
    const bool passed_on = from_parent && !wishes->came_from_parent;

    wishes->came_from_parent |= from_parent;
    if (!wishes->came) {
        wishes->came = true;
        wishes->first_ms = now_ms;
        return BT_STOP_BEGIN;
    }
    return (passed_on || (now_ms - wishes->first_ms < BT_STOP_SAME_MS))
               ? BT_STOP_SAME
               : BT_STOP_NOW;
}

void bt_stop_signals(sigset_t *set_p)
{
    sigemptyset(set_p);
    sigaddset(set_p, SIGTERM);
    sigaddset(set_p, SIGINT);
}

void bt_stop_block(void)
{
    sigset_t set;

    bt_stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int bt_stop_open(void)
{
    sigset_t set;

    bt_stop_signals(&set);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int bt_stop_next(int fd, bool *from_parent_p)
{
    struct signalfd_siginfo info;

    if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return 0;
    }
    *from_parent_p = info.ssi_pid == (uint32_t)getppid();
    return (int)info.ssi_signo;
}
