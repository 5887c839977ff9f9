/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_route.h  Network interface through which this host reaches another
 *  one. */
#ifndef BT_KVTRANSFER_KVT_ROUTE_H
#define BT_KVTRANSFER_KVT_ROUTE_H

#include <net/if.h>
#include <sys/socket.h>

#include "common/base/status.h"

/**
 * Looks up the interface in the current routing table. Nothing is sent.
 *
 * @param [in]  addr  With a port, of @a bytes.
 * @param [out] name  Name of the interface.
 * @retval BT_ERR_NOT_FOUND  there is no route, or the kernel does not report it
 */
BT_MUST_CHECK bt_status_t bt_kvt_route_to(const struct sockaddr *addr,
                                          socklen_t bytes,
                                          char name[IF_NAMESIZE]);

#endif
