/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_slot.h  Internals of the slots of kvt_stage.h: kvt_stage.c fills
 *  and empties them, kvt_share.c uses slots whose memory stays unused. */
#ifndef BT_KVTRANSFER_KVT_SLOT_H
#define BT_KVTRANSFER_KVT_SLOT_H

#include "kvtransfer/kvt_stage.h"

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
    bt_kvt_window_t *window;
    uint64_t offset, n_bytes;
    uint32_t n_records; /* sending: records of the transfer in this slot */
    uint32_t record;    /* checks: index in the window's records */
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

#endif
