/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_share.h
 *
 * Device pools of one host, written by another process' device: no byte of
 * them goes through a CPU or host memory. The protocol treats this like a
 * sender that writes directly through shared memory (kvt_core.h): permission
 * is requested, granted, revoked and confirmed in the same way. The difference
 * is that a device writes, concurrently with this thread:
 *
 *     sending    pool ═device: copy and hash══▶ the receiver's pool
 *     receiving  PART ──▶ device: does the hash of the pool bytes match?
 *
 * Copies and checks take slots of kvt_stage.h, for the tickets and fairness;
 * the slots' memory is not used.
 *
 *  1. A receiver's export has a handle of its pool and a probe, which stands
 *     behind the pool. A sender that can open the handle and whose device reads
 *     the probe through it uses this path. Else it logs why not, and stages.
 *  2. No message that ends writing (CANCEL, CONFIRM, the last PART, BYE, a new
 *     HELLO) is sent before the copies that it covers have ended. The first two
 *     wait (bt_kvt_xfer.owes_*), the last PART lists what was copied; before a
 *     link is given up this thread waits for its copies.
 *  3. A record is right when the receiver's device computes the same hash from
 *     the record's bytes in the pool as the sender's device did from the source
 *     (kernels/device_hash.h, seed bt_kvt_record_seed()).
 *
 * Threads: the one of the bt_kvt_t.
 */
#ifndef BT_KVTRANSFER_KVT_SHARE_H
#define BT_KVTRANSFER_KVT_SHARE_H

#include "kvtransfer/kvt_slot.h"

/** Offers the pool to other devices, where the configuration and the device
 *  allow it; otherwise the log may say why not. After bt_kvt_stage_open(). */
void bt_kvt_share_offer(bt_kvt_t *kvt);
/** Fills the export's fields about sharing. */
void bt_kvt_share_describe(const bt_kvt_t *kvt, bt_kvt_export_info_t *info_p);
/** @return true when other devices may write into the pool */
bool bt_kvt_share_is_offered(const bt_kvt_t *kvt);

/** Opens the pool of @a info and proves it: link->map, link->by_device. On
 *  failure the log says why, where both ends have devices. */
void bt_kvt_share_map(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);
/** Waits for copies into the peer's pool in flight, and closes it. Does nothing
 *  for other links. */
void bt_kvt_share_unmap(bt_kvt_link_t *link);

/** True while a copy of @a xfer into the receiver's pool is in flight. */
bool bt_kvt_share_writes(const bt_kvt_xfer_t *xfer);
/** Begins the copy of the next records of @a xfer, as many as are contiguous.
 *  @retval any error of the copier; nothing was begun */
BT_MUST_CHECK bt_status_t bt_kvt_share_send(bt_kvt_slot_t *slot,
                                            bt_kvt_xfer_t *xfer);
/** Handles the successful end of a slot's copy into the receiver's pool. */
void bt_kvt_share_sent(bt_kvt_slot_t *slot);

/** True when the device checks the records of @a window. */
bool bt_kvt_share_checks(const bt_kvt_window_t *window);
/** Begins checks of the records in the manifest. @return false: some must wait
 *  for slots */
bool bt_kvt_share_verify(bt_kvt_window_t *window);
/** Handles the end of a check by the device. */
void bt_kvt_share_checked(bt_kvt_slot_t *slot, bt_status_t status);

#endif
