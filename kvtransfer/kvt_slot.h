/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_slot.h  Slots of kvt_stage.h from inside: kvt_stage.c fills and
 *  empties them, kvt_share.c takes those whose bytes go past them. */
#ifndef BT_KVTRANSFER_KVT_SLOT_H
#define BT_KVTRANSFER_KVT_SLOT_H

#include "kvtransfer/kvt_stage.h"

typedef enum bt_kvt_way {
    BT_KVT_WAY_SEND,
    BT_KVT_WAY_RECEIVE,
    BT_KVT_N_WAYS
} bt_kvt_way_t;

struct bt_kvt_slot {
    bt_list_t link;    /* free, or copying; in neither: ours or the network's */
    bt_list_t of_xfer; /* sending: bt_kvt_xfer.slots, until it is away */
    bt_kvt_stage_t *stage;
    uint8_t *bytes;
    uint32_t ticket;
    bt_kvt_way_t way;
    uint32_t n_refs;
    bool copied; /* sending: the bytes are here, or (shared) there */
    bool checks; /* receiving: the device hashes what a sender wrote */
    bt_kvt_xfer_t *xfer;
    bt_kvt_window_t *window;
    uint64_t offset, n_bytes;
    uint32_t n_records; /* sending: of the transfer's that this is */
    uint32_t record;    /* checks: of the window's */
    uint64_t hash;      /* shared, copied: of what was read */
};

struct bt_kvt_stage {
    bt_kvt_t *kvt;
    const bt_copier_t *copier;
    uint8_t *memory;      /* owned: the copier's, of all slots */
    bt_kvt_slot_t *slots; /* owned */
    uint32_t n_slots;     /* each way */
    bt_list_t free[BT_KVT_N_WAYS];
    uint32_t n_free[BT_KVT_N_WAYS];
    bt_list_t copying;   /* slots, both ways */
    uint32_t n_incoming; /* of them: to the device, or checks */
    uint8_t *held;       /* owned: held_t, bytes, held_t ... */
    size_t held_at, held_bytes, held_cap;
    bool was_full; /* counted */
    /** The pool is offered to other processes of this host, by this. */
    bool offered;
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    uint8_t probe[16];
};

/** The copy of a sending slot has ended. */
void bt_kvt_slot_fetched(bt_kvt_slot_t *slot, bt_status_t status);

#endif
