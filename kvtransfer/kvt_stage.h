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

/* ---- receiving; after bt_kvt_region_take() ---- */

/** Copies the borrowed bytes of a piece. bt_kvt_region_landed() follows. */
void bt_kvt_stage_put(bt_kvt_region_t *region, uint8_t *dst, const void *src,
                      uint64_t offset, uint64_t bytes);
/** Returns a slot for the transport to write a piece into, or NULL: wait. Then
 *  call bt_kvt_stage_filled() or bt_kvt_slot_unref(). */
bt_kvt_slot_t *bt_kvt_stage_slot(bt_kvt_t *kvt);
/** Copies a filled slot to the device. bt_kvt_region_landed() follows. */
void bt_kvt_stage_filled(bt_kvt_slot_t *slot, bt_kvt_region_t *region,
                         uint8_t *dst, uint64_t offset, uint64_t bytes,
                         bool ok);
/** Returns the hash of the piece that arrived as @a record, computed in its
 *  slot.
 *  @return false: no piece matches the record */
bool bt_kvt_stage_hash_of(bt_kvt_region_t *region,
                          const bt_kvt_record_t *record, uint64_t *hash_p);

/* Internals of the slots: kvt_stage.c fills
 *  and empties them, kvt_share.c uses slots whose memory stays unused. */

typedef enum bt_kvt_way {
    BT_KVT_WAY_SEND,
    BT_KVT_WAY_RECEIVE,
    BT_KVT_N_WAYS
} bt_kvt_way_t;

struct bt_kvt_slot {
    bt_list_t link;    /* free, or copying; in neither: held by us or the
                        * network */
    bt_list_t of_xfer; /* sending: bt_kvt_xfer.slots, until sent */
    bt_kvt_stage_t *stage;
    uint8_t *bytes;
    uint32_t ticket;
    bt_kvt_way_t way;
    uint32_t n_refs;
    bool copied; /* sending: the copy has ended */
    bool checks; /* receiving: the device hashes what a sender wrote */
    bt_kvt_xfer_t *xfer;
    bt_kvt_region_t *region;
    uint64_t offset, n_bytes;
    uint32_t n_records; /* sending: records of the transfer in this slot */
    uint32_t record;    /* checks: index in the region's records */
    uint64_t hash;      /* shared, copied: hash of the source bytes */
};

struct bt_kvt_stage {
    bt_kvt_t *kvt;
    const bt_copier_t *copier;
    uint8_t *memory;      /* owned: copier memory of all slots */
    bt_kvt_slot_t *slots; /* owned */
    uint32_t n_slots;     /* per direction */
    bt_list_t free[BT_KVT_N_WAYS];
    uint32_t n_free[BT_KVT_N_WAYS];
    bt_list_t copying;   /* slots, both directions */
    uint32_t n_incoming; /* slots copying to the device, or checking */
    uint8_t *held;       /* owned: held_t, bytes, held_t and so on */
    size_t held_at, held_bytes, held_cap;
    bool was_full; /* the wait for a slot was counted */
    /** True when the pool is offered to other processes of this host, by
     *  `handle`. */
    bool offered;
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    uint8_t probe[16];
};

/** Handles the end of the copy of a sending slot. */
void bt_kvt_slot_fetched(bt_kvt_slot_t *slot, bt_status_t status);

/*
 * Device pools of one host, written by another process' device: no byte of
 * them goes through a CPU or host memory. The protocol treats this like a
 * sender that writes directly through shared memory (kvt_core.h): permission
 * is requested, granted, revoked and confirmed in the same way. The difference
 * is that a device writes, concurrently with this thread:
 *
 *     sending    pool ═device: copy and hash══▶ the receiver's pool
 *     receiving  PART ──▶ device: does the hash of the pool bytes match?
 *
 * Copies and checks take slots, for the tickets and fairness;
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

/** True when the device checks the records of @a region. */
bool bt_kvt_share_checks(const bt_kvt_region_t *region);
/** Begins checks of the records in the manifest. @return false: some must wait
 *  for slots */
bool bt_kvt_share_verify(bt_kvt_region_t *region);
/** Handles the end of a check by the device. */
void bt_kvt_share_checked(bt_kvt_slot_t *slot, bt_status_t status);

/*
 * Synchronous copies for a pool that the transport reaches itself
 * (BT_KVT_MEMORY_DEVICE), by the copier and one buffer of pinned memory,
 * unless the configuration has its own functions. They are few: for checksums,
 * and for data that arrived in host memory.
 */

/** Sets config.device.read and .write, unless they are set.
 *  @retval BT_ERR_NO_MEMORY  or the error of the copier's host_alloc() */
BT_MUST_CHECK bt_status_t bt_kvt_sync_open(bt_kvt_t *kvt);
/** Frees the buffer, after the transport closed. Does nothing without one. */
void bt_kvt_sync_close(bt_kvt_t *kvt);

#endif
