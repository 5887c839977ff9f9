/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_stage.h
 *
 * Between a transport, which knows host memory, and a pool that only its
 * device reaches (BT_KVT_MEMORY_STAGED): slots of pinned host memory, one half
 * for each way.
 *
 *     sending    device ──copy──▶ slot: hash ──▶ network, or a pool mapped here
 *     receiving  network ──▶ slot: hash ──copy──▶ device
 *
 * A slot holds one record (which is one piece), and while it is on its way the
 * copies of others run. It is free again
 *
 *     sending    when the transport has taken the bytes, or the transfer ended
 *                and the device's copy into it has
 *     receiving  when the device's copy out of it has ended, however
 *
 * Nobody waits in a circle: a receiving slot waits for the own device alone,
 * so receiving always goes on, whatever stands still in the other half; and a
 * sending slot waits for a receiver to take bytes, which thus always happens.
 * When there is no slot, a transfer waits in its link's queue and data from
 * the network stays where it is: the transport is not asked for more (see
 * bt_kvt_stage_full()); what it had already in hand is kept in `held`.
 *
 * A link may hold no more slots than are free. So one peer alone gets half of
 * them, and peers that stand still do not take the last one soon.
 *
 * Threads: the one of the bt_kvt_t.
 */
#ifndef BT_KVTRANSFER_KVT_STAGE_H
#define BT_KVTRANSFER_KVT_STAGE_H

#include "kvtransfer/kvt_core.h"

/** @return true when there is a copier that is fit for that many slots */
bool bt_kvt_stage_ok(const bt_kvt_device_t *device);
/** Take the configuration's copier; kvt->stage.
 *  @retval BT_ERR_NO_MEMORY  or what the copier's host_alloc() answered */
BT_MUST_CHECK bt_status_t bt_kvt_stage_open(bt_kvt_t *kvt);
/** After the transport closed; waits for the device. Without a stage: nothing.
 */
void bt_kvt_stage_close(bt_kvt_t *kvt);

/** See which copies ended; place what is held. @return true: some did */
bool bt_kvt_stage_progress(bt_kvt_t *kvt);
/** @return true while copies are under way: nothing but asking tells of them */
bool bt_kvt_stage_busy(const bt_kvt_t *kvt);
/** @return true when the transport should bring no more, until a copy ends; the
 *  first such answer is counted */
bool bt_kvt_stage_full(bt_kvt_t *kvt);

/* ---- sending ---- */

/** Begin copies of records of @a xfer that come next, as slots allow.
 *  @retval BT_ERR_DEVICE  or what the copier answered; the transfer is over */
BT_MUST_CHECK bt_status_t bt_kvt_stage_fetch(bt_kvt_xfer_t *xfer);
/** @return the slot with record xfer->n_moved, or NULL: not there yet */
bt_kvt_slot_t *bt_kvt_stage_next(bt_kvt_xfer_t *xfer);
const uint8_t *bt_kvt_slot_bytes(const bt_kvt_slot_t *slot);
/** For each piece that is sent from a slot. NULL is allowed. */
void bt_kvt_slot_ref(bt_kvt_slot_t *slot);
/** The last one frees the slot. NULL is allowed. */
void bt_kvt_slot_unref(bt_kvt_slot_t *slot);
/** Record xfer->n_moved is away, or in the transport's hands. */
void bt_kvt_stage_moved(bt_kvt_xfer_t *xfer);
/** @a xfer sends nothing more: what it has is free, once the device is done. */
void bt_kvt_stage_drop(bt_kvt_xfer_t *xfer);

/* ---- receiving; after bt_kvt_window_take() ---- */

/** Borrowed bytes of a piece. bt_kvt_window_landed() follows. */
void bt_kvt_stage_put(bt_kvt_window_t *window, uint8_t *dst, const void *src,
                      uint64_t offset, uint64_t bytes);
/** A slot for the transport to write a piece into, or NULL: wait. Then
 *  bt_kvt_stage_filled(), or bt_kvt_slot_unref(). */
bt_kvt_slot_t *bt_kvt_stage_slot(bt_kvt_t *kvt);
uint8_t *bt_kvt_slot_target(bt_kvt_slot_t *slot);
/** bt_kvt_window_landed() follows. */
void bt_kvt_stage_filled(bt_kvt_slot_t *slot, bt_kvt_window_t *window,
                         uint8_t *dst, uint64_t offset, uint64_t bytes,
                         bool ok);
/** The hash of what came as @a record, in its slot.
 *  @return false: no piece was just that */
bool bt_kvt_stage_hash_of(bt_kvt_window_t *window,
                          const bt_kvt_record_t *record, uint64_t *hash_p);

#endif
