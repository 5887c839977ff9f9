/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_sync.h
 *
 * Synchronous copies for a pool that the transport reaches itself
 * (BT_KVT_MEMORY_DEVICE), by the copier and one buffer of pinned memory,
 * unless the configuration has its own functions. They are few: for checksums,
 * and for data that arrived in host memory.
 */
#ifndef BT_KVTRANSFER_KVT_SYNC_H
#define BT_KVTRANSFER_KVT_SYNC_H

#include "kvtransfer/kvt_core.h"

/** Sets config.device.read and .write, unless they are set.
 *  @retval BT_ERR_NO_MEMORY  or the error of the copier's host_alloc() */
BT_MUST_CHECK bt_status_t bt_kvt_sync_open(bt_kvt_t *kvt);
/** Frees the buffer, after the transport closed. Does nothing without one. */
void bt_kvt_sync_close(bt_kvt_t *kvt);

#endif
