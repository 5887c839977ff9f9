/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_host.h  Who this process is, whether another can share memory
 *  with it, and the proof that it ended. Linux /proc and pidfd. */
#ifndef BT_KVTRANSFER_KVT_HOST_H
#define BT_KVTRANSFER_KVT_HOST_H

#include "kvtransfer/kvt_wire.h"

/** @retval BT_ERR_UNSUPPORTED  /proc does not tell; share nothing then */
BT_MUST_CHECK bt_status_t bt_kvt_host_read(bt_kvt_host_t *host_p);

/** Same boot, IPC and PID namespace, and user. Necessary, not sufficient. */
bool bt_kvt_host_same(const bt_kvt_host_t *a, const bt_kvt_host_t *b);

/**
 * @param [out] fd_p  Owned; readable once that very process has ended.
 * @retval BT_ERR_PEER_LOST    it has ended (its id may be another's now)
 * @retval BT_ERR_UNSUPPORTED  no pidfd on this system
 */
BT_MUST_CHECK bt_status_t bt_kvt_host_watch(const bt_kvt_host_t *host,
                                            int *fd_p);

#endif
