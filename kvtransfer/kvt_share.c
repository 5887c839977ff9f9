/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_stage.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/device_hash.h"
#include "kvtransfer/kvt_host.h"

/** Returns the ticket of the probe, at either end: after the tickets of the
 *  slots. */
static uint32_t probe_ticket(const bt_kvt_stage_t *stage)
{
    return BT_KVT_N_WAYS * stage->n_slots;
}

static bool can_share(const bt_kvt_t *kvt)
{
    const bt_kvt_stage_t *stage = kvt->stage;

    return (stage != NULL) && (kvt->config.path != BT_KVT_PATH_NETWORK) &&
           (stage->copier->share_name != NULL) &&
           (stage->copier->n_tickets > probe_ticket(stage));
}

/** Waits for a copy of the probe: when the pool is opened, and once per new
 *  peer during the import. Queued behind the copies to other peers in flight, a
 *  few records. */
static bt_status_t probe_wait(const bt_kvt_stage_t *stage)
{
    return bt_copier_wait(stage->copier, probe_ticket(stage));
}

/* ---- own pool ---- */

static bt_status_t probe_write(bt_kvt_t *kvt)
{
    bt_kvt_stage_t *stage = kvt->stage;
    bt_status_t status;

    bt_key_random(stage->probe, sizeof(stage->probe));
    memcpy(stage->memory, stage->probe, sizeof(stage->probe));
    status = stage->copier->to_device(
        stage->copier->user, kvt->pool + kvt->config.pool_bytes, stage->memory,
        sizeof(stage->probe), probe_ticket(stage));
    return (status == BT_OK) ? probe_wait(stage) : status;
}

void bt_kvt_share_offer(bt_kvt_t *kvt)
{
    bt_kvt_stage_t *stage = kvt->stage;
    const bt_copier_t *copier;
    bt_status_t status;

    if (!can_share(kvt) ||
        (kvt->config.device.spare_bytes < sizeof(stage->probe))) {
        return;
    }
    copier = stage->copier;
    status = copier->share(copier->user, kvt->pool, stage->handle);
    if (status != BT_OK) {
        BT_LOG_INFO(
            "kv transfer: the pool cannot be shared by %s, incoming KV is staged: %s",
            copier->share_name, copier->why_not(copier->user));
        return;
    }
    status = probe_write(kvt);
    if (status != BT_OK) {
        BT_LOG_WARN(
            "kv transfer: the pool cannot be shared by %s, incoming KV is staged: its probe cannot be written: %s",
            copier->share_name, bt_status_str(status));
        return;
    }
    stage->offered = true;
}

void bt_kvt_share_describe(const bt_kvt_t *kvt, bt_kvt_export_info_t *info_p)
{
    if (bt_kvt_share_is_offered(kvt)) {
        info_p->shared = BT_KVT_SHARED_BY_HANDLE;
        memcpy(info_p->handle, kvt->stage->handle, sizeof(info_p->handle));
        memcpy(info_p->probe, kvt->stage->probe, sizeof(info_p->probe));
        info_p->probe_offset = kvt->config.pool_bytes;
    }
}

bool bt_kvt_share_is_offered(const bt_kvt_t *kvt)
{
    return (kvt->stage != NULL) && kvt->stage->offered;
}

/* ---- pools of peers ---- */

/** Checks that our device reads the probe that the owner has written. */
static bool is_proven(const bt_kvt_stage_t *stage, const uint8_t *pool,
                      const bt_kvt_export_info_t *info)
{
    const bt_copier_t *copier = stage->copier;
    const uint32_t ticket = probe_ticket(stage);
    const size_t n = sizeof(info->probe);

    return (copier->hash(copier->user, pool + info->probe_offset, n,
                         info->instance, ticket) == BT_OK) &&
           (probe_wait(stage) == BT_OK) &&
           (copier->hashed(copier->user, ticket) ==
            bt_device_hash(info->probe, n, info->instance));
}

/** Maps the pool of a peer. @return why not; NULL: link->map is set */
static const char *map(bt_kvt_link_t *link, const bt_kvt_export_info_t *info)
{
    bt_kvt_t *kvt = link->kvt;
    const bt_copier_t *copier = kvt->stage->copier;
    void *pool = NULL;

    if (!bt_kvt_host_same(&kvt->host, &info->host)) {
        return "it is on another host, or in another container";
    }
    if (info->shared != BT_KVT_SHARED_BY_HANDLE) {
        return "it does not share its pool";
    }
    if (!can_share(kvt)) {
        return "the own device opens no other's memory";
    }
    /* A correct probe there also shows that this much is mapped. */
    if (info->probe_offset != link->pool_bytes) {
        return "its probe is not right behind its pool";
    }
    if (copier->open_shared(copier->user, info->handle, &pool) != BT_OK) {
        return copier->why_not(copier->user);
    }
    if (!is_proven(kvt->stage, pool, info)) {
        copier->close_shared(copier->user, pool);
        return "the probe in its pool was not found";
    }
    link->map = pool;
    return NULL;
}

void bt_kvt_share_map(bt_kvt_link_t *link, const bt_kvt_export_info_t *info)
{
    const bt_kvt_t *kvt = link->kvt;
    const char *why;

    if ((kvt->stage == NULL) || (info->record_kib == 0)) {
        return; /* one end is in host memory */
    }
    why = map(link, info);
    link->by_device = why == NULL;
    if (why != NULL) {
        BT_LOG_INFO("kv transfer: KV to instance %016" PRIx64
                    " is staged through host memory: %s",
                    info->instance, why);
    }
}

static void drain(bt_kvt_link_t *link)
{
    bt_kvt_stage_t *stage = link->kvt->stage;

    BT_LIST_FOR_EACH_ENTRY(bt_kvt_slot_t, slot, &stage->copying, link) {
        if ((slot->xfer != NULL) && (slot->xfer->link == link)) {
            const bt_status_t status =
                bt_copier_wait(stage->copier, slot->ticket);

            bt_list_remove(&slot->link);
            bt_kvt_slot_fetched(slot, status);
        }
    }
}

void bt_kvt_share_unmap(bt_kvt_link_t *link)
{
    if (link->by_device && (link->map != NULL)) {
        const bt_copier_t *copier = link->kvt->stage->copier;

        drain(link);
        copier->close_shared(copier->user, link->map);
        link->map = NULL;
        link->by_device = false;
    }
}

/* ---- sending ---- */

bool bt_kvt_share_writes(const bt_kvt_xfer_t *x)
{
    return x->link->by_device && (x->n_fetching > 0);
}

bt_status_t bt_kvt_share_send(bt_kvt_slot_t *slot, bt_kvt_xfer_t *x)
{
    const bt_copier_t *copier = x->kvt->stage->copier;
    const uint32_t first = x->n_fetched;
    const bt_kvt_record_t *r = &x->records[first];
    const bt_kvt_move_t *m = &x->moves[first];
    uint64_t bytes = r->bytes;
    uint32_t n = 1;

    while ((first + n < x->n_records) && (r[n].offset == r->offset + bytes) &&
           (m[n].src == m->src + bytes) &&
           (m[n].pool_offset == m->pool_offset + bytes) &&
           (bytes + r[n].bytes <= BT_COPIER_MAX_BYTES)) {
        bytes += r[n++].bytes;
    }
    slot->offset = r->offset;
    slot->n_bytes = bytes;
    slot->n_records = n;
    return copier->between(
        copier->user, x->link->map + m->pool_offset, m->src, (size_t)bytes,
        bt_kvt_record_seed(&x->lease, r->offset, bytes), slot->ticket);
}

void bt_kvt_share_sent(bt_kvt_slot_t *slot)
{
    bt_kvt_stage_t *stage = slot->stage;

    slot->hash = stage->copier->hashed(stage->copier->user, slot->ticket);
    stage->kvt->counters.bytes_shared += slot->n_bytes;
}

/* ---- receiving ---- */

bool bt_kvt_share_checks(const bt_kvt_region_t *w)
{
    return w->direct && (w->kvt->stage != NULL);
}

/** Begins the device's check of record w->n_begun. @return false: no slot is
 *  free */
static bool check_begin(bt_kvt_region_t *w)
{
    bt_kvt_stage_t *stage = w->kvt->stage;
    const bt_kvt_record_t *r = &w->records[w->n_begun];
    bt_kvt_slot_t *slot;
    uint64_t pool_offset = 0;
    bt_status_t status;

    if ((r->bytes > BT_COPIER_MAX_BYTES) ||
        (bt_kvt_map_find(&w->map, r->offset, r->bytes, &pool_offset) !=
         r->bytes)) {
        bt_kvt_region_fail(w, BT_ERR_BAD_MESSAGE);
        return true;
    }
    slot = bt_kvt_stage_slot(w->kvt);
    if (slot == NULL) {
        return false;
    }
    status = stage->copier->hash(
        stage->copier->user, w->kvt->pool + pool_offset, (size_t)r->bytes,
        bt_kvt_record_seed(&w->lease, r->offset, r->bytes), slot->ticket);
    if (status != BT_OK) {
        bt_kvt_slot_unref(slot);
        bt_kvt_region_fail(w, status);
        return true;
    }
    slot->checks = true;
    slot->region = w;
    slot->record = w->n_begun++;
    if (w->n_receiving++ == 0) {
        w->checked_us = bt_now_us();
    }
    bt_list_push_back(&stage->copying, &slot->link);
    stage->n_incoming++;
    return true;
}

bool bt_kvt_share_verify(bt_kvt_region_t *w)
{
    while (bt_kvt_region_is_live(w) && (w->n_begun < w->n_records)) {
        if (!check_begin(w)) {
            return false;
        }
    }
    bt_list_remove(&w->todo);
    bt_kvt_region_decide(w);
    return true;
}

void bt_kvt_share_checked(bt_kvt_slot_t *slot, bt_status_t status)
{
    bt_kvt_stage_t *stage = slot->stage;
    bt_kvt_region_t *w = slot->region;
    const uint32_t record = slot->record;
    const uint64_t hash =
        (status == BT_OK)
            ? stage->copier->hashed(stage->copier->user, slot->ticket)
            : 0;

    stage->n_incoming--;
    bt_kvt_slot_unref(slot);
    if (--w->n_receiving == 0) {
        w->verify_us += bt_now_us() - w->checked_us;
    }
    if (bt_kvt_region_is_closing(w->state)) {
        bt_kvt_region_settle(w);
    } else if (!bt_kvt_region_is_live(w)) {
        return;
    } else if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
    } else if (bt_kvt_region_prove(w, &w->records[record], hash)) {
        bt_kvt_region_decide(w);
    }
}
