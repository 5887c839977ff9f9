/* SPDX-License-Identifier: Apache-2.0 */
/** @file reuseport.h
 *
 * One port for all routers of a launch (--reuse-http-port): the kernel
 * distributes connections over all listeners of the port, including those of
 * another launch.
 */
#ifndef BT_LAUNCHER_REUSEPORT_H
#define BT_LAUNCHER_REUSEPORT_H

#include "common/base/status.h"
#include "common/config/config.h"

/** Checks that no process listens at the port of --http yet, if it is to be
 *  shared. Call before our own routers start. @retval any of
 *  bt_status_of_bind() logged */
BT_MUST_CHECK bt_status_t bt_reuseport_check(const bt_config_t *config);

#endif
