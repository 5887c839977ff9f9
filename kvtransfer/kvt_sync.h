/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_sync.h
 *
 * For a pool that the transport reaches itself (BT_KVT_MEMORY_DEVICE): copies
 * that are done when they return, by the copier and one buffer of pinned
 * memory, where the configuration brings none of its own. They are few: for
 * checksums, and for what came to the host.
 */
#ifndef BT_KVTRANSFER_KVT_SYNC_H
#define BT_KVTRANSFER_KVT_SYNC_H

#include "kvtransfer/kvt_core.h"

/** config.device.read and .write, unless they are there.
 *  @retval BT_ERR_NO_MEMORY  or what the copier's host_alloc() answered */
BT_MUST_CHECK bt_status_t bt_kvt_sync_open(bt_kvt_t *kvt);
/** After the transport closed. Without it: nothing. */
void bt_kvt_sync_close(bt_kvt_t *kvt);

#endif
