/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_host.h
 *
 * This host: identity of a process, proof of its end, interface of a route.
 */
#ifndef BT_KVTRANSFER_KVT_HOST_H
#define BT_KVTRANSFER_KVT_HOST_H

#include <net/if.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "kvtransfer/kvt_wire.h"

/* Identity of this process, whether another process can
 *  share memory with it, and proof that a process ended. By /proc and pidfd. */

/** Reads the identity of this process.
 *  @retval BT_ERR_UNSUPPORTED  /proc lacks it; share nothing then */
BT_MUST_CHECK bt_status_t bt_kvt_host_read(bt_kvt_host_t *host_p);

/** True when boot, IPC and PID namespace, and user are equal. Necessary for
 *  shared memory, not sufficient. */
bool bt_kvt_host_same(const bt_kvt_host_t *a, const bt_kvt_host_t *b);

/**
 * Opens a pidfd of a process.
 *
 * @param [out] fd_p  Owned; readable once that very process has ended.
 * @retval BT_ERR_PEER_LOST    the process has ended (its id may be reused)
 * @retval BT_ERR_UNSUPPORTED  no pidfd on this system
 */
BT_MUST_CHECK bt_status_t bt_kvt_host_watch(const bt_kvt_host_t *host,
                                            int *fd_p);

/* Network interface through which this host reaches another
 *  one. */

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
