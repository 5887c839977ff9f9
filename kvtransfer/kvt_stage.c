/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"

/* A piece that arrived when no slot was free, followed by its bytes. */
typedef struct held {
    bt_kvt_region_t *region;
    uint8_t *dst;
    uint64_t offset, bytes;
} held_t;

/** Returns the number of slots per direction. */
static uint32_t n_slots_of(const bt_kvt_device_t *device)
{
    return (device->n_slots == 0) ? BT_KVT_STAGE_SLOTS : device->n_slots;
}

bool bt_kvt_stage_ok(const bt_kvt_device_t *device)
{
    const bt_copier_t *c = device->copier;
    const uint32_t n = n_slots_of(device);

    return (c != NULL) && (n <= BT_KVT_STAGE_MAX_SLOTS) &&
           (c->n_tickets / BT_KVT_N_WAYS >= n) && (c->host_alloc != NULL) &&
           (c->host_free != NULL) && (c->to_host != NULL) &&
           (c->to_device != NULL) && (c->query != NULL) &&
           (c->wait_all != NULL);
}

bt_status_t bt_kvt_stage_open(bt_kvt_t *kvt)
{
    const bt_copier_t *copier = kvt->config.device.copier;
    const uint32_t n = n_slots_of(&kvt->config.device);
    bt_kvt_stage_t *stage = bt_calloc(1, sizeof(*stage));
    void *memory = NULL;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (stage == NULL) {
        return status;
    }
    stage->slots = bt_calloc((size_t)BT_KVT_N_WAYS * n, sizeof(*stage->slots));
    if (stage->slots == NULL) {
        goto err_stage;
    }
    status = copier->host_alloc(
        copier->user, (size_t)BT_KVT_N_WAYS * n * BT_KVT_STAGE_SLOT_BYTES,
        &memory);
    if (status != BT_OK) {
        BT_LOG_ERROR(
            "kv transfer: cannot allocate %u MiB of pinned memory for staging: %s",
            (unsigned)(((uint64_t)BT_KVT_N_WAYS * n *
                        BT_KVT_STAGE_SLOT_BYTES) >>
                       20),
            bt_status_str(status));
        goto err_slots;
    }
    stage->kvt = kvt;
    stage->copier = copier;
    stage->memory = memory;
    stage->n_slots = n;
    bt_list_init(&stage->copying);
    for (bt_kvt_way_t way = BT_KVT_WAY_SEND; way < BT_KVT_N_WAYS; way++) {
        bt_list_init(&stage->free[way]);
        stage->n_free[way] = n;
    }
    for (uint32_t i = 0; i < BT_KVT_N_WAYS * n; i++) {
        bt_kvt_slot_t *slot = &stage->slots[i];

        slot->stage = stage;
        slot->ticket = i;
        slot->way = (i < n) ? BT_KVT_WAY_SEND : BT_KVT_WAY_RECEIVE;
        slot->bytes = stage->memory + (size_t)i * BT_KVT_STAGE_SLOT_BYTES;
        bt_list_init(&slot->of_xfer);
        bt_list_push_back(&stage->free[slot->way], &slot->link);
    }
    kvt->stage = stage;
    return BT_OK;

err_slots:
    bt_free(stage->slots);
err_stage:
    bt_free(stage);
    return status;
}

void bt_kvt_stage_close(bt_kvt_t *kvt)
{
    bt_kvt_stage_t *stage = kvt->stage;

    if (stage == NULL) {
        return;
    }
    stage->copier->wait_all(stage->copier->user);
    stage->copier->host_free(stage->copier->user, stage->memory);
    bt_free(stage->held);
    bt_free(stage->slots);
    bt_free(stage);
    kvt->stage = NULL;
}

bool bt_kvt_stage_busy(const bt_kvt_t *kvt)
{
    return (kvt->stage != NULL) && !bt_list_empty(&kvt->stage->copying);
}

bool bt_kvt_stage_full(bt_kvt_t *kvt)
{
    bt_kvt_stage_t *stage = kvt->stage;
    bool full;

    if (stage == NULL) {
        return false;
    }
    /* Slots that wait for the network (a rendezvous) do not count: they need it
     * to make progress. */
    full =
        (stage->n_incoming > 0) &&
        ((stage->n_free[BT_KVT_WAY_RECEIVE] == 0) || (stage->held_bytes > 0));
    if (full && !stage->was_full) {
        kvt->counters.stage_waits++;
    }
    stage->was_full = full;
    return full;
}

/* ---- slots ---- */

static bt_kvt_slot_t *slot_take(bt_kvt_stage_t *stage, bt_kvt_way_t way)
{
    bt_kvt_slot_t *slot;

    if (stage->n_free[way] == 0) {
        return NULL;
    }
    slot = BT_CONTAINER_OF(stage->free[way].next, bt_kvt_slot_t, link);
    bt_list_remove(&slot->link);
    stage->n_free[way]--;
    stage->kvt->counters.stage_slots++;
    slot->n_refs = 1;
    slot->copied = false;
    slot->checks = false;
    return slot;
}

static void waiting_wake(bt_kvt_t *kvt)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        if (!bt_list_empty(&link->waiting)) {
            bt_kvt_xfer_wake(
                BT_CONTAINER_OF(link->waiting.next, bt_kvt_xfer_t, waiting));
        }
    }
}

static void slot_free(bt_kvt_slot_t *slot)
{
    bt_kvt_stage_t *stage = slot->stage;

    bt_list_remove(&slot->link);
    bt_list_remove(&slot->of_xfer);
    bt_list_push_back(&stage->free[slot->way], &slot->link);
    stage->n_free[slot->way]++;
    stage->kvt->counters.stage_slots--;
    slot->region = NULL;
    if (slot->xfer != NULL) {
        slot->xfer->link->n_slots--;
        slot->xfer = NULL;
        waiting_wake(stage->kvt);
    }
}

void bt_kvt_slot_ref(bt_kvt_slot_t *slot)
{
    if (slot != NULL) {
        slot->n_refs++;
    }
}

void bt_kvt_slot_unref(bt_kvt_slot_t *slot)
{
    if ((slot != NULL) && (--slot->n_refs == 0)) {
        slot_free(slot);
    }
}

/* ---- sending ---- */

/** True when a transfer may take a slot: the transfers of a link take slots in
 *  turn, one each. */
static bool may_take(const bt_kvt_stage_t *stage, const bt_kvt_xfer_t *x)
{
    const bt_kvt_link_t *link = x->link;

    return (link->n_slots < stage->n_free[BT_KVT_WAY_SEND]) &&
           (bt_list_empty(&link->waiting) ||
            (link->waiting.next == &x->waiting));
}

/** Removes a transfer from the queue, and wakes the next one, which may proceed
 *  now. */
static void waiting_leave(bt_kvt_xfer_t *x)
{
    bt_list_t *queue = &x->link->waiting;
    const bool first = queue->next == &x->waiting;

    bt_list_remove(&x->waiting);
    if (first && !bt_list_empty(queue)) {
        bt_kvt_xfer_wake(BT_CONTAINER_OF(queue->next, bt_kvt_xfer_t, waiting));
    }
}

static bt_status_t fetch_begin(bt_kvt_stage_t *stage, bt_kvt_xfer_t *x)
{
    const uint32_t i = x->n_fetched;
    bt_kvt_slot_t *slot = slot_take(stage, BT_KVT_WAY_SEND);
    bt_status_t status;

    slot->xfer = x;
    x->link->n_slots++;
    if (x->link->by_device) {
        status = bt_kvt_share_send(slot, x);
    } else {
        slot->n_records = 1;
        slot->n_bytes = x->records[i].bytes;
        status = stage->copier->to_host(stage->copier->user, slot->bytes,
                                        x->moves[i].src, (size_t)slot->n_bytes,
                                        slot->ticket);
    }
    if (status != BT_OK) {
        bt_kvt_slot_unref(slot);
        return status;
    }
    bt_list_push_back(&stage->copying, &slot->link);
    bt_list_push_back(&x->slots, &slot->of_xfer);
    x->n_fetching++;
    x->n_fetched += slot->n_records;
    return BT_OK;
}

bt_status_t bt_kvt_stage_fetch(bt_kvt_xfer_t *x)
{
    bt_kvt_stage_t *stage = x->kvt->stage;

    while (x->n_fetched < x->n_records) {
        bt_status_t status;

        if (!may_take(stage, x)) {
            if (bt_list_empty(&x->waiting)) {
                bt_list_push_back(&x->link->waiting, &x->waiting);
                x->kvt->counters.stage_waits++;
            }
            return BT_OK;
        }
        status = fetch_begin(stage, x);
        if (status != BT_OK) {
            return status;
        }
        waiting_leave(x);
    }
    return BT_OK;
}

bt_kvt_slot_t *bt_kvt_stage_next(bt_kvt_xfer_t *x)
{
    bt_kvt_slot_t *slot;

    if (bt_list_empty(&x->slots)) {
        return NULL;
    }
    slot = BT_CONTAINER_OF(x->slots.next, bt_kvt_slot_t, of_xfer);
    return slot->copied ? slot : NULL;
}

void bt_kvt_stage_moved(bt_kvt_xfer_t *x)
{
    bt_kvt_slot_t *slot =
        BT_CONTAINER_OF(x->slots.next, bt_kvt_slot_t, of_xfer);

    bt_list_remove(&slot->of_xfer);
    bt_kvt_slot_unref(slot);
}

void bt_kvt_stage_drop(bt_kvt_xfer_t *x)
{
    waiting_leave(x);
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_slot_t, slot, &x->slots, of_xfer) {
        bt_list_remove(&slot->of_xfer);
        if (slot->copied) {
            bt_kvt_slot_unref(slot);
        } /* else bt_kvt_slot_fetched() */
    }
}

void bt_kvt_slot_fetched(bt_kvt_slot_t *slot, bt_status_t status)
{
    bt_kvt_xfer_t *x = slot->xfer;

    x->n_fetching--;
    slot->copied = true;
    if (status != BT_OK) {
        /* nothing is there */
    } else if (x->link->by_device) {
        bt_kvt_share_sent(slot);
    } else {
        x->kvt->counters.bytes_staged += slot->n_bytes;
    }
    if (!bt_kvt_xfer_is_live(x)) {
        bt_kvt_slot_unref(slot); /* no transfer waits for it any more */
    }
    bt_kvt_xfer_fetched(x, status);
}

/* ---- receiving ---- */

/* Records arrive in about the order of their pieces, so the search begins where
 * the last one ended. Pieces do not overlap: an offset occurs once. */
bool bt_kvt_stage_hash_of(bt_kvt_region_t *w, const bt_kvt_record_t *record,
                          uint64_t *hash_p)
{
    for (uint32_t i = 0; i < w->n_arrivals; i++) {
        const uint32_t at = (w->next_arrival + i) % w->n_arrivals;
        const bt_kvt_record_t *arrival = &w->arrivals[at];

        if (arrival->offset == record->offset) {
            w->next_arrival = at + 1;
            *hash_p = arrival->hash;
            return arrival->bytes == record->bytes;
        }
    }
    return false;
}

static bt_status_t arrival_add(bt_kvt_region_t *w, uint64_t offset,
                               uint64_t bytes, uint64_t hash)
{
    if (!bt_array_grow(&w->arrivals, &w->arrivals_cap, w->n_arrivals + 1,
                       sizeof(*w->arrivals))) {
        return BT_ERR_NO_MEMORY;
    }
    w->arrivals[w->n_arrivals++] =
        (bt_kvt_record_t){.offset = offset, .bytes = bytes, .hash = hash};
    return BT_OK;
}

bt_kvt_slot_t *bt_kvt_stage_slot(bt_kvt_t *kvt)
{
    return slot_take(kvt->stage, BT_KVT_WAY_RECEIVE);
}

void bt_kvt_stage_filled(bt_kvt_slot_t *slot, bt_kvt_region_t *w, uint8_t *dst,
                         uint64_t offset, uint64_t bytes, bool ok)
{
    bt_kvt_stage_t *stage = slot->stage;
    bt_kvt_t *kvt = stage->kvt;
    const size_t n = (size_t)bytes;
    uint64_t hash = 0;
    bt_status_t status;

    if (!ok || !bt_kvt_region_is_live(w)) {
        bt_kvt_slot_unref(slot);
        bt_kvt_region_landed(w, offset, bytes, false);
        return;
    }
    status = stage->copier->to_device(stage->copier->user, dst, slot->bytes, n,
                                      slot->ticket);
    if (status != BT_OK) {
        bt_kvt_slot_unref(slot);
        bt_kvt_region_landed(w, offset, bytes, false);
        bt_kvt_region_fail(w, status);
        return;
    }
    slot->region = w;
    slot->offset = offset;
    slot->n_bytes = bytes;
    bt_list_push_back(&stage->copying, &slot->link);
    stage->n_incoming++;
    /* The device copies meanwhile. */
    status = bt_kvt_memory_hash(
        kvt, &(bt_hash_piece_t){.src = slot->bytes, .n = n}, 1,
        bt_kvt_record_seed(&w->lease, offset, bytes), &hash);
    if (status == BT_OK) {
        status = arrival_add(w, offset, bytes, hash);
    }
    if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
    }
}

static void landing_end(bt_kvt_slot_t *slot, bt_status_t status)
{
    bt_kvt_region_t *w = slot->region;
    const uint64_t offset = slot->offset;
    const uint64_t bytes = slot->n_bytes;

    slot->stage->n_incoming--;
    bt_kvt_slot_unref(slot);
    if (status == BT_OK) {
        w->kvt->counters.bytes_staged += bytes;
    }
    bt_kvt_region_landed(w, offset, bytes, status == BT_OK);
    if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
    }
}

/** Keeps a piece until a slot is free. The buffer is bounded by what the
 *  transport still has in hand when it is not asked for more; it is not freed
 *  in between. */
static bt_status_t hold(bt_kvt_stage_t *stage, const held_t *held,
                        const void *src)
{
    size_t need;

    if (stage->held_at > 0) {
        stage->held_bytes -= stage->held_at;
        memmove(stage->held, stage->held + stage->held_at, stage->held_bytes);
        stage->held_at = 0;
    }
    need = stage->held_bytes + sizeof(*held) + held->bytes;
    if (need > stage->held_cap) {
        const size_t cap = (need < (1u << 20)) ? (1u << 20) : need * 2;
        uint8_t *grown = bt_realloc_array(stage->held, cap, 1);

        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        stage->held = grown;
        stage->held_cap = cap;
    }
    memcpy(stage->held + stage->held_bytes, held, sizeof(*held));
    memcpy(stage->held + stage->held_bytes + sizeof(*held), src, held->bytes);
    stage->held_bytes = need;
    if (need > stage->kvt->counters.stage_most_held) {
        stage->kvt->counters.stage_most_held = need;
    }
    return BT_OK;
}

void bt_kvt_stage_put(bt_kvt_region_t *w, uint8_t *dst, const void *src,
                      uint64_t offset, uint64_t bytes)
{
    bt_kvt_stage_t *stage = w->kvt->stage;
    const held_t held = {
        .region = w, .dst = dst, .offset = offset, .bytes = bytes};
    bt_kvt_slot_t *slot = NULL;
    bt_status_t status = BT_OK;

    if (!bt_kvt_region_is_live(w)) {
        bt_kvt_region_landed(w, offset, bytes, false);
        return;
    }
    if (stage->held_bytes == 0) { /* held pieces first */
        slot = slot_take(stage, BT_KVT_WAY_RECEIVE);
    }
    if (slot != NULL) {
        memcpy(slot->bytes, src, bytes);
        bt_kvt_stage_filled(slot, w, dst, offset, bytes, true);
        return;
    }
    status = hold(stage, &held, src);
    if (status != BT_OK) {
        bt_kvt_region_landed(w, offset, bytes, false);
        bt_kvt_region_fail(w, status);
    }
}

static void held_unload(bt_kvt_stage_t *stage)
{
    while (stage->held_at < stage->held_bytes) {
        const uint8_t *at = stage->held + stage->held_at;
        bt_kvt_slot_t *slot;
        held_t held;

        memcpy(&held, at, sizeof(held));
        if (!bt_kvt_region_is_live(held.region)) {
            bt_kvt_region_landed(held.region, held.offset, held.bytes, false);
        } else {
            slot = slot_take(stage, BT_KVT_WAY_RECEIVE);
            if (slot == NULL) {
                return;
            }
            memcpy(slot->bytes, at + sizeof(held), held.bytes);
            bt_kvt_stage_filled(slot, held.region, held.dst, held.offset,
                                held.bytes, true);
        }
        stage->held_at += sizeof(held) + held.bytes;
    }
    stage->held_at = 0;
    stage->held_bytes = 0;
}

/* ---- progress ---- */

bool bt_kvt_stage_progress(bt_kvt_t *kvt)
{
    bt_kvt_stage_t *stage = kvt->stage;
    bool some = false;

    if (stage == NULL) {
        return false;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_slot_t, slot, &stage->copying, link) {
        const bt_status_t status =
            stage->copier->query(stage->copier->user, slot->ticket);

        if (status == BT_INPROGRESS) {
            continue;
        }
        some = true;
        bt_list_remove(&slot->link);
        if (slot->way == BT_KVT_WAY_SEND) {
            bt_kvt_slot_fetched(slot, status);
        } else if (slot->checks) {
            bt_kvt_share_checked(slot, status);
        } else {
            landing_end(slot, status);
        }
    }
    held_unload(stage);
    return some;
}

#define TICKET 0u /* nothing else uses the copier */

static size_t part_of(size_t bytes)
{
    return (bytes < BT_KVT_MAX_RECORD_BYTES) ? bytes : BT_KVT_MAX_RECORD_BYTES;
}

static bt_status_t sync_read(void *user, void *host, const void *device,
                             size_t bytes)
{
    const bt_kvt_t *kvt = user;
    const bt_copier_t *copier = kvt->config.device.copier;
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);
         at += part_of(bytes - at)) {
        const size_t n = part_of(bytes - at);

        status = copier->to_host(copier->user, kvt->pinned,
                                 (const uint8_t *)device + at, n, TICKET);
        status = (status == BT_OK) ? bt_copier_wait(copier, TICKET) : status;
        if ((status == BT_OK) && (host != kvt->pinned)) {
            memcpy((uint8_t *)host + at, kvt->pinned, n);
        }
    }
    return status;
}

static bt_status_t sync_write(void *user, void *device, const void *host,
                              size_t bytes)
{
    const bt_kvt_t *kvt = user;
    const bt_copier_t *copier = kvt->config.device.copier;
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);
         at += part_of(bytes - at)) {
        const size_t n = part_of(bytes - at);

        memcpy(kvt->pinned, (const uint8_t *)host + at, n);
        status = copier->to_device(copier->user, (uint8_t *)device + at,
                                   kvt->pinned, n, TICKET);
        status = (status == BT_OK) ? bt_copier_wait(copier, TICKET) : status;
    }
    return status;
}

bt_status_t bt_kvt_sync_open(bt_kvt_t *kvt)
{
    bt_kvt_device_t *device = &kvt->config.device;
    bt_status_t status;

    if (device->read != NULL) {
        kvt->bounce = bt_calloc(1, BT_KVT_MAX_RECORD_BYTES);
        return (kvt->bounce == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
    }
    status = device->copier->host_alloc(device->copier->user,
                                        BT_KVT_MAX_RECORD_BYTES, &kvt->pinned);
    if (status == BT_OK) {
        kvt->bounce = kvt->pinned; /* buffer for a record to be hashed */
        device->read = sync_read;
        device->write = sync_write;
        device->user = kvt;
    }
    return status;
}

void bt_kvt_sync_close(bt_kvt_t *kvt)
{
    const bt_copier_t *copier = kvt->config.device.copier;

    if (kvt->pinned != NULL) {
        copier->host_free(copier->user, kvt->pinned);
    } else {
        bt_free(kvt->bounce);
    }
    kvt->pinned = kvt->bounce = NULL;
}
