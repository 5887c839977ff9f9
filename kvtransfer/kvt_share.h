/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_share.h
 *
 * Pools of devices of one host, written by another process' device: no byte of
 * them comes to a processor or to host memory. What the protocol sees is a
 * sender that writes directly, as through shared memory (kvt_core.h): leave is
 * asked for and given, revoked and confirmed in the same way. What differs is
 * that a device writes, beside this thread:
 *
 *     sending    pool ──device: copy and hash──▶ the other's pool
 *     receiving  PART ──▶ device: hash of what lies there = that of the PART?
 *
 * Copies and checks take slots of kvt_stage.h, for their tickets and turns; the
 * slots' memory is not used.
 *
 *  1. A receiver's export has a handle of its pool and a probe, which stands
 *     behind the pool. A sender that opens the one and whose device reads the
 *     other through it goes this way. Else it says why not, and stages.
 *  2. Nothing that says "I write no more" (CANCEL, CONFIRM, the last PART, BYE,
 *     a new HELLO) leaves before the copies have ended that it is about. The
 *     first two wait (bt_kvt_xfer.owes_*), the last PART lists what was copied;
 *     before a link is given up this thread waits for its copies.
 *  3. A record is right when the hash that the receiver's device makes of the
 *     record's bytes in the pool is the one that the sender's made of what it
 *     read (kernels/device_hash.h, seed as ever bt_kvt_record_seed()).
 *
 * Threads: the one of the bt_kvt_t.
 */
#ifndef BT_KVTRANSFER_KVT_SHARE_H
#define BT_KVTRANSFER_KVT_SHARE_H

#include "kvtransfer/kvt_slot.h"

/** Offer the pool, where the configuration and the device allow it; else a line
 *  in the log may say why not. After bt_kvt_stage_open(). */
void bt_kvt_share_offer(bt_kvt_t *kvt);
/** What the export says of it. */
void bt_kvt_share_describe(const bt_kvt_t *kvt, bt_kvt_export_info_t *info_p);
/** @return true when others may write into the pool by their devices */
bool bt_kvt_share_is_offered(const bt_kvt_t *kvt);

/** Open the pool of @a info and prove it: link->map, link->by_device. A line in
 *  the log says why not, where both ends have devices. */
void bt_kvt_share_map(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);
/** Wait for what is copied there, and close it. Of a link that is not so:
 *  nothing. */
void bt_kvt_share_unmap(bt_kvt_link_t *link);

/** Is a copy of @a xfer into the receiver's pool under way? */
bool bt_kvt_share_writes(const bt_kvt_xfer_t *xfer);
/** Begin the copy of the next records of @a xfer, as many as lie one behind the
 *  other. @retval of the copier; nothing was begun */
BT_MUST_CHECK bt_status_t bt_kvt_share_send(bt_kvt_slot_t *slot,
                                            bt_kvt_xfer_t *xfer);
/** That copy has ended well. */
void bt_kvt_share_sent(bt_kvt_slot_t *slot);

/** Are the records of @a window checked by the device? */
bool bt_kvt_share_checks(const bt_kvt_window_t *window);
/** Begin checks of what the manifest lists. @return false: some must wait for
 *  slots */
bool bt_kvt_share_verify(bt_kvt_window_t *window);
/** A check has ended. */
void bt_kvt_share_checked(bt_kvt_slot_t *slot, bt_status_t status);

#endif
