/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/build_info.h"

#include <stdbool.h>
#include <unistd.h>

#include "common/base/status.h"
#include "launcher/build.h"
#include "launcher/programs.h"

void bt_build_info_print(bt_strbuf_t *out)
{
    char plugin[BT_PROGRAM_PATH_BYTES];
    const bool has_cuda =
        (bt_program_path_named(NULL, "baton_cuda.so", "kernels/cuda", plugin,
                               sizeof(plugin)) == BT_OK) &&
        (access(plugin, R_OK) == 0);

    bt_strbuf_printf(out, "  build      %s, %s, %s %s\n", BT_BUILD_TYPE,
                     BT_BUILD_COMPILER, BT_BUILD_SYSTEM, BT_BUILD_CPU);
    bt_strbuf_printf(out, "  kernels    %s; back ends: cpu%s\n", BT_BUILD_TIERS,
                     has_cuda ? ", cuda" : "");
    bt_strbuf_printf(out, "  libraries  %s\n", BT_BUILD_LIBRARIES);
}
