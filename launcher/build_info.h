/* SPDX-License-Identifier: Apache-2.0 */
/** @file build_info.h  Build information of the programs: `baton version`. */
#ifndef BT_LAUNCHER_BUILD_INFO_H
#define BT_LAUNCHER_BUILD_INFO_H

#include "common/base/strbuf.h"

/** Appends lines: kind of build and compiler, kernel tiers (from the plainest)
 *  and back ends of the build, external libraries with the versions that they
 *  were compiled against. */
void bt_build_info_print(bt_strbuf_t *out);

#endif
