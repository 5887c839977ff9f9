/* SPDX-License-Identifier: Apache-2.0 */
/** @file build_info.h  How the programs were built: `baton version`. */
#ifndef BT_LAUNCHER_BUILD_INFO_H
#define BT_LAUNCHER_BUILD_INFO_H

#include "common/base/strbuf.h"

/** Append lines: kind of build and compiler, tiers of the kernels (from the
 *  plainest) and back ends that are there, outside libraries with the versions
 *  that they were compiled against. */
void bt_build_info_print(bt_strbuf_t *out);

#endif
