/* SPDX-License-Identifier: Apache-2.0 */
/** @file shared_port.h
 *
 * One port for all routers of a launch (--share-http): the kernel deals out
 * connections among those who listen there, and would to another launch too.
 */
#ifndef BT_LAUNCHER_SHARED_PORT_H
#define BT_LAUNCHER_SHARED_PORT_H

#include "common/base/status.h"
#include "common/config/config.h"

/** Is the port of --http nobody's yet, where it is to be shared? Before any of
 *  our own routers is there. @retval any of bt_status_of_bind()  logged */
BT_MUST_CHECK bt_status_t bt_shared_port_check(const bt_config_t *config);

#endif
