/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/core_dump.h"

#include <sys/resource.h>

#include "common/base/log.h"

/* Too little for any file. And where /proc/sys/kernel/core_pattern names a
 * program instead, which gets its dump whatever the limit is, 1 alone is the
 * limit that stops it: the system's own way to keep that program's crash from
 * calling it again. */
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
