/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/crypt/key.h"
#include "kvtransfer/kvt_stage.h"

static uint64_t hash_of(uint64_t id)
{
    return bt_hash64(&id, sizeof(id), 0);
}

static bool is_region(bt_list_t *link, const void *id)
{
    return BT_CONTAINER_OF(link, bt_kvt_region_t, by_id)->lease.id ==
           *(const uint64_t *)id;
}

static bt_kvt_region_t *region_find(const bt_kvt_t *kvt, uint64_t id)
{
    bt_list_t *link =
        bt_hmap_find(&kvt->regions_by_id, hash_of(id), is_region, &id);

    return (link == NULL) ? NULL
                          : BT_CONTAINER_OF(link, bt_kvt_region_t, by_id);
}

bt_kvt_region_t *bt_kvt_region_find(const bt_kvt_t *kvt,
                                    const bt_kvt_lease_t *lease)
{
    bt_kvt_region_t *w = region_find(kvt, lease->id);

    return ((w != NULL) && (w->lease.generation == lease->generation) &&
            (w->lease.grant == lease->grant))
               ? w
               : NULL;
}

uint64_t bt_kvt_regions_floor(const bt_kvt_t *kvt)
{
    if (bt_list_empty(&kvt->regions)) {
        return kvt->next_grant;
    }
    return BT_CONTAINER_OF(kvt->regions.next, bt_kvt_region_t, all)
        ->lease.grant;
}

static void entry_init(bt_kvt_event_entry_t *entry, bt_kvt_event_type_t type,
                       bt_kvt_region_t *w)
{
    bt_list_init(&entry->link);
    entry->type = type;
    entry->owner = w;
}

void bt_kvt_region_bind(bt_kvt_region_t *w, bt_kvt_link_t *link)
{
    w->link = link;
    bt_list_push_back(&link->regions, &w->of_link);
}

/** Takes an ended region for reuse, all zero except for its memory. */
static bt_kvt_region_t *region_spare(bt_kvt_t *kvt)
{
    bt_kvt_region_t *w =
        BT_CONTAINER_OF(kvt->spare_regions.next, bt_kvt_region_t, all);
    bt_kvt_region_t kept;

    bt_list_remove(&w->all);
    kvt->n_spare_regions--;
    kept = *w;
    memset(w, 0, sizeof(*w));
    w->map = kept.map;
    w->given = kept.given;
    w->landed = kept.landed;
    w->proven = kept.proven;
    bt_kvt_ranges_clear(&w->given);
    bt_kvt_ranges_clear(&w->landed);
    bt_kvt_ranges_clear(&w->proven);
    w->arrivals = kept.arrivals;
    w->arrivals_cap = kept.arrivals_cap;
    w->records = kept.records;
    w->records_cap = kept.records_cap;
    return w;
}

static bt_kvt_region_t *region_get(bt_kvt_t *kvt)
{
    bt_kvt_region_t *w = bt_list_empty(&kvt->spare_regions)
                             ? bt_calloc(1, sizeof(*w))
                             : region_spare(kvt);

    if (w == NULL) {
        return NULL;
    }
    w->kvt = kvt;
    bt_list_init(&w->all);
    bt_list_init(&w->by_id);
    bt_list_init(&w->todo);
    bt_list_init(&w->of_link);
    bt_kvt_writer_init(&w->writer);
    entry_init(&w->result, BT_KVT_REGION_DONE, w);
    entry_init(&w->stuck, BT_KVT_QUARANTINE_STUCK, w);
    entry_init(&w->gone, BT_KVT_REGION_CLOSED, w);
    return w;
}

void bt_kvt_region_settle(bt_kvt_region_t *w)
{
    if ((w->n_receiving == 0) &&
        bt_kvt_region_takes(w, BT_KVT_REGION_ON_DRAINED)) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_DRAINED, BT_OK);
    }
}

/** True when a region counts as quarantined. Staged: also while the own device
 *  still copies into it. */
static bool is_quarantined(const bt_kvt_region_t *w,
                           bt_kvt_region_state_t state)
{
    return bt_kvt_region_is_closing(state) &&
           (bt_kvt_region_is_written(state) ||
            ((w->kvt->stage != NULL) && (state != BT_KVT_REGION_IS_CLOSED)));
}

static void result_tell(bt_kvt_region_t *w, bt_status_t status)
{
    w->status = status;
    bt_list_remove(&w->todo);
    w->result.type =
        (status == BT_OK) ? BT_KVT_REGION_DONE : BT_KVT_REGION_FAILED;
    bt_kvt_event_push(w->kvt, &w->result);
    if (w->link != NULL) {
        bt_kvt_link_send_lease(w->link, BT_KVT_MSG_RESULT, &w->lease, status);
    }
}

/** Notifies the sender of the close, unless it knows the result and stopped. */
static void closing_begin(bt_kvt_region_t *w, bt_kvt_region_state_t from)
{
    bt_list_remove(&w->todo);
    bt_list_remove(&w->result.link); /* the caller does not wait for it */
    if ((w->link != NULL) && (from != BT_KVT_REGION_IS_DONE) &&
        (from != BT_KVT_REGION_IS_FAILED)) {
        bt_kvt_link_send_lease(w->link, BT_KVT_MSG_REVOKE, &w->lease, BT_OK);
    }
    w->close_ms = BT_KVT_UNTIMED;
    bt_list_push_back(&w->kvt->closing_regions, &w->todo);
}

static void closed_tell(bt_kvt_region_t *w)
{
    bt_kvt_t *kvt = w->kvt;

    kvt->counters.regions_open--;
    bt_list_remove(&w->all);
    bt_list_push_back(&kvt->closed, &w->all);
    bt_list_remove(&w->by_id);
    bt_list_remove(&w->todo);
    bt_list_remove(&w->of_link);
    bt_list_remove(&w->stuck.link);
    w->link = NULL;
    bt_kvt_event_push(kvt, &w->gone);
}

static void stuck_tell(bt_kvt_region_t *w)
{
    BT_LOG_INFO("kv transfer: region %" PRIu64 " quarantined for %" PRIu64
                " ms, pid %d is "
                "silent",
                w->lease.id, (w->kvt->now_ms - w->close_ms), w->link->pid);
    bt_kvt_event_push(w->kvt, &w->stuck);
}

/** Starts the actions of the state that a region has entered. */
static void entered(bt_kvt_region_t *w, bt_kvt_region_state_t from,
                    bt_status_t why)
{
    bt_kvt_t *kvt = w->kvt;

    switch (w->state) {
    case BT_KVT_REGION_IS_DONE:
        kvt->counters.bytes_received += w->map.bytes;
        result_tell(w, BT_OK);
        break;
    case BT_KVT_REGION_IS_FAILED:
    case BT_KVT_REGION_IS_FAILED_DIRECT:
        if (from != BT_KVT_REGION_IS_FAILED_DIRECT) {
            result_tell(w, why);
        }
        break;
    case BT_KVT_REGION_IS_QUARANTINED:
        closing_begin(w, from);
        break;
    case BT_KVT_REGION_IS_STUCK:
        stuck_tell(w);
        break;
    case BT_KVT_REGION_IS_DRAINING:
        if (!bt_kvt_region_is_closing(from)) {
            closing_begin(w, from);
        }
        bt_kvt_region_settle(w);
        break;
    case BT_KVT_REGION_IS_OVERDUE:
        if (from == BT_KVT_REGION_IS_DRAINING) {
            BT_LOG_WARN("kv transfer: region %" PRIu64
                        " waits for copies of its own device for %" PRIu64
                        " ms",
                        w->lease.id, (kvt->now_ms - w->close_ms));
        }
        bt_kvt_region_settle(w);
        break;
    case BT_KVT_REGION_IS_CLOSED:
        closed_tell(w);
        break;
    case BT_KVT_REGION_IS_OPEN:
    case BT_KVT_REGION_IS_DIRECT:
    case BT_KVT_REGION_IS_LISTED:
    case BT_KVT_REGION_N_STATES:
        break;
    }
}

bool bt_kvt_region_move(bt_kvt_region_t *w, bt_kvt_region_input_t input,
                        bt_status_t why)
{
    const bt_kvt_region_state_t from = w->state;
    const bt_status_t status = bt_kvt_region_next(from, input, &w->state);

    if (status == BT_ERR_STALE) {
        return false;
    }
    /* A wrong step could free bytes that are still being written. */
    BT_ASSERT_ALWAYS(status == BT_OK);
    if (w->state != from) {
        bt_kvt_aside_note(&w->kvt->aside, &w->writer, 0);
        w->kvt->counters.regions_quarantined +=
            (uint64_t)is_quarantined(w, w->state) - is_quarantined(w, from);
        entered(w, from, why);
    }
    return true;
}

void bt_kvt_region_fail(bt_kvt_region_t *w, bt_status_t status)
{
    if (bt_kvt_region_takes(w, BT_KVT_REGION_ON_FAIL)) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_FAIL, status);
    }
}

void bt_kvt_region_close(bt_kvt_region_t *w)
{
    if ((w != NULL) && bt_kvt_region_takes(w, BT_KVT_REGION_ON_CLOSE)) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_CLOSE, BT_OK);
    }
}

bt_status_t bt_kvt_region_open(bt_kvt_t *kvt, uint64_t id, uint32_t generation,
                               uint64_t sender_instance,
                               const bt_kvt_extent_t *extents,
                               uint32_t n_extents, void *user, void *desc,
                               size_t cap, size_t *desc_bytes_p,
                               bt_kvt_region_t **region_p)
{
    bt_kvt_link_t *link = NULL;
    bt_kvt_desc_t *d = &kvt->desc;
    bt_status_t status;
    bt_kvt_region_t *w;

    if (region_find(kvt, id) != NULL) {
        return BT_ERR_EXISTS;
    }
    w = region_get(kvt);
    if (w == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status =
        bt_kvt_map_init(extents, n_extents, kvt->config.pool_bytes, &w->map);
    if (status != BT_OK) {
        goto err_region;
    }
    w->lease = (bt_kvt_lease_t){
        .id = id, .generation = generation, .grant = kvt->next_grant};
    w->sender_instance = sender_instance;
    w->user = user;
    if (sender_instance != 0) {
        link = bt_kvt_link_find(kvt, sender_instance);
    }

    if (!bt_array_grow(&d->extents, &d->cap, w->map.n_runs,
                       sizeof(*d->extents))) {
        status = BT_ERR_NO_MEMORY;
        goto err_region;
    }
    d->receiver = kvt->config.instance;
    d->lease = w->lease;
    bt_key_random(w->secret, sizeof(w->secret));
    memcpy(d->secret, w->secret, sizeof(d->secret));
    d->session = ((link != NULL) && (link->remote != BT_KVT_REMOTE_UNKNOWN))
                     ? link->nonce
                     : 0;
    d->n_extents = w->map.n_runs;
    for (uint32_t i = 0; i < w->map.n_runs; i++) {
        d->extents[i].offset = w->map.runs[i].offset;
        d->extents[i].bytes = w->map.runs[i].bytes;
    }
    status = bt_kvt_desc_encode(d, desc, cap, desc_bytes_p);
    if (status != BT_OK) {
        goto err_region;
    }

    kvt->next_grant++;
    if (link != NULL) {
        bt_kvt_region_bind(w, link);
    }
    bt_list_push_back(&kvt->regions, &w->all);
    bt_hmap_insert(&kvt->regions_by_id, hash_of(id), &w->by_id);
    kvt->counters.regions_open++;
    if ((d->session != 0) && (link->remote == BT_KVT_REMOTE_WRITES)) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_BEGIN,
                                 BT_OK); /* it need not ask */
    }
    *region_p = w;
    return BT_OK;

err_region:
    bt_kvt_region_free(w);
    return status;
}

void bt_kvt_region_free(bt_kvt_region_t *w)
{
    bt_kvt_t *kvt = w->kvt;

    bt_kvt_aside_note(&kvt->aside, &w->writer, 0);
    bt_list_remove(&w->all);
    bt_list_remove(&w->by_id);
    bt_list_remove(&w->todo);
    bt_list_remove(&w->of_link);
    bt_list_remove(&w->result.link);
    bt_list_remove(&w->stuck.link);
    bt_list_remove(&w->gone.link);
    if (!kvt->closing && (kvt->n_spare_regions + 1 <= BT_KVT_MAX_SPARE)) {
        kvt->n_spare_regions++;
        bt_list_push_back(&kvt->spare_regions, &w->all);
        return;
    }
    bt_kvt_map_fini(&w->map);
    bt_kvt_ranges_fini(&w->given);
    bt_kvt_ranges_fini(&w->landed);
    bt_kvt_ranges_fini(&w->proven);
    bt_free(w->arrivals);
    bt_free(w->records);
    bt_free(w);
}

void bt_kvt_region_link_lost(bt_kvt_region_t *w, bool gone)
{
    if (gone) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_STOP, BT_ERR_PEER_LOST);
    } else {
        bt_kvt_region_fail(w, BT_ERR_PEER_LOST);
    }
}

void bt_kvt_regions_bind(bt_kvt_link_t *link)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, w, &link->kvt->regions, all) {
        if ((w->link == NULL) && (w->sender_instance == link->instance)) {
            bt_kvt_region_bind(w, link);
        }
    }
}

/** True when a closed region is overdue. Buffers of the own network end by
 *  themselves; copies of the own device may not, nor a silent sender. */
static bool is_late(const bt_kvt_region_t *w)
{
    const bt_kvt_t *kvt = w->kvt;

    return bt_kvt_region_takes(w, BT_KVT_REGION_ON_LATE) &&
           is_quarantined(w, w->state) &&
           (kvt->now_ms - w->close_ms >= kvt->config.quarantine_ms);
}

void bt_kvt_regions_tick(bt_kvt_t *kvt)
{
    const uint64_t now = kvt->now_ms;

    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, w, &kvt->closing_regions, todo) {
        if (w->close_ms == BT_KVT_UNTIMED) {
            w->close_ms = now;
            w->revoke_ms = now;
        }
        if (bt_kvt_region_is_written(w->state) &&
            (now - w->revoke_ms >= kvt->config.keepalive_ms)) {
            w->revoke_ms = now;
            bt_kvt_link_send_lease(w->link, BT_KVT_MSG_REVOKE, &w->lease,
                                   BT_OK);
        }
        if (is_late(w)) {
            (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_LATE, BT_OK);
        }
    }
}

/* The receiving side verifies the records of the manifest. */

/** Finds the pieces of a record in the pool. @return how many; 0: the record is
 *  not within this region */
static uint32_t pieces_of(const bt_kvt_region_t *w, const bt_kvt_record_t *r,
                          bt_hash_piece_t *pieces)
{
    bt_kvt_run_t runs[BT_KVT_MAX_RECORD_RUNS];
    const uint32_t n = bt_kvt_map_runs(&w->map, r->offset, r->bytes, runs,
                                       w->direct ? BT_ARRAY_LEN(runs) : 1);

    for (uint32_t i = 0; i < n; i++) {
        pieces[i] = (bt_hash_piece_t){.src = w->kvt->pool + runs[i].offset,
                                      .n = runs[i].bytes};
    }
    return n;
}

static bt_status_t record_hash(bt_kvt_region_t *w, const bt_kvt_record_t *r,
                               const bt_hash_piece_t *pieces, uint32_t n,
                               uint64_t *hash_p)
{
    bt_kvt_t *kvt = w->kvt;

    if (kvt->stage != NULL) {
        return bt_kvt_stage_hash_of(w, r, hash_p) ? BT_OK : BT_ERR_BAD_MESSAGE;
    }
    return bt_kvt_memory_hash(
        kvt, pieces, n, bt_kvt_record_seed(&w->lease, r->offset, r->bytes),
        hash_p);
}

bool bt_kvt_region_prove(bt_kvt_region_t *w, const bt_kvt_record_t *r,
                         uint64_t hash)
{
    bt_kvt_t *kvt = w->kvt;
    bt_status_t status;

    if (hash != r->hash) {
        kvt->counters.checksum_failures++;
        BT_LOG_INFO("kv transfer: region %" PRIu64
                    " generation %u corrupt at %" PRIu64,
                    w->lease.id, w->lease.generation, r->offset);
        bt_kvt_region_fail(w, BT_ERR_CORRUPT);
        return false;
    }
    status = bt_kvt_ranges_add(&w->proven, r->offset, r->bytes);
    if (status != BT_OK) {
        bt_kvt_region_fail(w, (status == BT_ERR_EXISTS) ? BT_ERR_BAD_MESSAGE
                                                        : status);
        return false;
    }
    w->n_verified++;
    return true;
}

void bt_kvt_region_decide(bt_kvt_region_t *w)
{
    if ((w->state != BT_KVT_REGION_IS_LISTED) ||
        (w->n_verified < w->n_records)) {
        return;
    }
    if (w->proven.bytes == w->map.bytes) {
        (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_PROVEN, BT_OK);
    } else {
        bt_kvt_region_fail(w, BT_ERR_BAD_MESSAGE); /* a hole */
    }
}

/** Verifies the next record. @return false when the region is finished
 *  (failed), or waits for data. */
static bool record_verify(bt_kvt_region_t *w)
{
    const bt_kvt_record_t *r = &w->records[w->n_verified];
    bt_hash_piece_t pieces[BT_KVT_MAX_RECORD_RUNS];
    const uint32_t n = pieces_of(w, r, pieces);
    uint64_t hash = 0;
    bt_status_t status;

    if (n == 0) {
        bt_kvt_region_fail(w, BT_ERR_BAD_MESSAGE);
        return false;
    }
    if (!w->direct && !bt_kvt_ranges_have(&w->landed, r->offset, r->bytes)) {
        return false;
    }
    status = record_hash(w, r, pieces, n, &hash);
    if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
        return false;
    }
    return bt_kvt_region_prove(w, r, hash);
}

/** Verifies records of a region. @return false when the budget is used up. */
static bool region_verify(bt_kvt_region_t *w, size_t *budget_p)
{
    const uint64_t start_us = bt_now_us();

    if (bt_kvt_share_checks(w)) {
        return bt_kvt_share_verify(w);
    }
    while (w->n_verified < w->n_records) {
        const uint64_t bytes = w->records[w->n_verified].bytes;

        if (*budget_p == 0) {
            w->verify_us += bt_now_us() - start_us;
            return false;
        }
        if (!record_verify(w)) {
            break;
        }
        *budget_p -= (bytes < *budget_p) ? (size_t)bytes : *budget_p;
    }
    bt_list_remove(&w->todo);
    w->verify_us += bt_now_us() - start_us;
    bt_kvt_region_decide(w);
    return true;
}

void bt_kvt_regions_verify(bt_kvt_t *kvt, size_t *budget_p)
{
    while (!bt_list_empty(&kvt->verify)) {
        if (!region_verify(
                BT_CONTAINER_OF(kvt->verify.next, bt_kvt_region_t, todo),
                budget_p)) {
            return;
        }
    }
}
