/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_stage.h
 *
 * Staging between a transport, which knows host memory, and a pool that only
 * its device reaches (BT_KVT_MEMORY_STAGED): slots of pinned host memory, one
 * half for each direction.
 *
 *     sending    device ──copy──▶ slot: hash ──▶ network, or a mapped pool
 *     receiving  network ──▶ slot: hash ──copy──▶ device
 *
 * A slot holds one record (which is one piece), and while it is sent the
 * copies of others run. A slot is free again
 *
 *     sending    when the transport has taken the bytes, or the transfer ended
 *                and the device's copy into the slot has
 *     receiving  when the device's copy out of the slot has ended
 *
 * No deadlock: a receiving slot waits only for the own device, so receiving
 * always makes progress, even if the sending half stalls; and a sending slot
 * waits for a receiver to take bytes, which thus always happens. When no slot
 * is free, a transfer waits in its link's queue and data from the network
 * stays there: the transport is not asked for more (see bt_kvt_stage_full());
 * data that the transport already had is kept in `held`.
 *
 * A link may hold no more slots than are free. So a single peer gets half of
 * them, and stalled peers leave slots for others.
 *
 * Threads: the one of the bt_kvt_t.
 */
#ifndef BT_KVTRANSFER_KVT_STAGE_H
#define BT_KVTRANSFER_KVT_STAGE_H

#include "kvtransfer/kvt_core.h"

/** @return true when there is a copier that can serve that many slots */
bool bt_kvt_stage_ok(const bt_kvt_device_t *device);
/** Opens the stage with the configuration's copier; sets kvt->stage.
 *  @retval BT_ERR_NO_MEMORY  or the error of the copier's host_alloc() */
BT_MUST_CHECK bt_status_t bt_kvt_stage_open(bt_kvt_t *kvt);
/** Closes the stage, after the transport closed; waits for the device. Without
 *  a stage: nothing. */
void bt_kvt_stage_close(bt_kvt_t *kvt);

/** Polls for copies that ended; places held pieces. @return true: some ended */
bool bt_kvt_stage_progress(bt_kvt_t *kvt);
/** @return true while copies are in flight: only polling detects their end */
bool bt_kvt_stage_busy(const bt_kvt_t *kvt);
/** @return true when the transport should deliver no more, until a copy ends;
 *          the first true answer is counted */
bool bt_kvt_stage_full(bt_kvt_t *kvt);

/* ---- sending ---- */

/** Begins copies of the next records of @a xfer, as slots allow.
 *  @retval BT_ERR_DEVICE  or an error of the copier; the transfer is over */
BT_MUST_CHECK bt_status_t bt_kvt_stage_fetch(bt_kvt_xfer_t *xfer);
/** @return the slot with record xfer->n_moved, or NULL: not ready yet */
bt_kvt_slot_t *bt_kvt_stage_next(bt_kvt_xfer_t *xfer);
const uint8_t *bt_kvt_slot_bytes(const bt_kvt_slot_t *slot);
/** Adds a reference for each piece that is sent from a slot. NULL is allowed.
 */
void bt_kvt_slot_ref(bt_kvt_slot_t *slot);
/** Drops a reference; the last one frees the slot. NULL is allowed. */
void bt_kvt_slot_unref(bt_kvt_slot_t *slot);
/** Records that record xfer->n_moved was sent, or handed to the transport. */
void bt_kvt_stage_moved(bt_kvt_xfer_t *xfer);
/** Drops the slots of @a xfer, which sends nothing more: they are free once the
 *  device is done. */
void bt_kvt_stage_drop(bt_kvt_xfer_t *xfer);

/* ---- receiving; after bt_kvt_window_take() ---- */

/** Copies the borrowed bytes of a piece. bt_kvt_window_landed() follows. */
void bt_kvt_stage_put(bt_kvt_window_t *window, uint8_t *dst, const void *src,
                      uint64_t offset, uint64_t bytes);
/** Returns a slot for the transport to write a piece into, or NULL: wait. Then
 *  call bt_kvt_stage_filled() or bt_kvt_slot_unref(). */
bt_kvt_slot_t *bt_kvt_stage_slot(bt_kvt_t *kvt);
uint8_t *bt_kvt_slot_target(bt_kvt_slot_t *slot);
/** Copies a filled slot to the device. bt_kvt_window_landed() follows. */
void bt_kvt_stage_filled(bt_kvt_slot_t *slot, bt_kvt_window_t *window,
                         uint8_t *dst, uint64_t offset, uint64_t bytes,
                         bool ok);
/** Returns the hash of the piece that arrived as @a record, computed in its
 *  slot.
 *  @return false: no piece matches the record */
bool bt_kvt_stage_hash_of(bt_kvt_window_t *window,
                          const bt_kvt_record_t *record, uint64_t *hash_p);

#endif
