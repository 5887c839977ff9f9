/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log.h"
#include "decode_worker/decode.h"

void bt_decode_fence(int32_t pid)
{
    int fd;

    if ((pid <= 1) || (pid == getpid())) {
        BT_LOG_ERROR(
            "lease in quarantine: its sender is silent and its process is unknown");
        return;
    }
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        /* Gone already: proof of its death will follow. */
        if (errno != ESRCH) {
            BT_LOG_ERROR("process %d holds a revoked lease past the quarantine "
                         "limit and cannot be ended: %m",
                         pid);
        }
        return;
    }
    BT_LOG_ERROR("process %d holds a revoked lease past the quarantine limit: "
                 "ending it",
                 pid);
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) != 0) {
        BT_LOG_ERROR("cannot end process %d: %m", pid);
    }
    close(fd);
}
