/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/core_dump.h"

#include <sys/resource.h>

#include "common/base/log.h"

/* Too small for any file. And if /proc/sys/kernel/core_pattern names a
 * program instead, which gets a dump whatever the limit is, exactly 1 is the
 * limit that prevents it: the kernel uses it to keep that program's own
 * crash from recursing. */
#define NO_CORE 1u

void bt_core_dump_forbid(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CORE, &limit) != 0) {
        return;
    }
    limit.rlim_cur = (limit.rlim_max < NO_CORE) ? limit.rlim_max : NO_CORE;
    if (setrlimit(RLIMIT_CORE, &limit) != 0) {
        BT_LOG_WARN("core dumps cannot be turned off: %m");
    }
}
