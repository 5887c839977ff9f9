/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_stage.h"

static uint64_t hash_of(uint64_t id)
{
    return bt_hash64(&id, sizeof(id), 0);
}

static bool is_window(bt_list_t *link, const void *id)
{
    return BT_CONTAINER_OF(link, bt_kvt_window_t, by_id)->lease.id ==
           *(const uint64_t *)id;
}

static bt_kvt_window_t *window_find(const bt_kvt_t *kvt, uint64_t id)
{
    bt_list_t *link =
        bt_hmap_find(&kvt->windows_by_id, hash_of(id), is_window, &id);

    return (link == NULL) ? NULL
                          : BT_CONTAINER_OF(link, bt_kvt_window_t, by_id);
}

static bt_kvt_window_t *lease_find(bt_kvt_t *kvt, const bt_kvt_lease_t *lease)
{
    bt_kvt_window_t *w = window_find(kvt, lease->id);

    return ((w != NULL) && (w->lease.generation == lease->generation) &&
            (w->lease.grant == lease->grant))
               ? w
               : NULL;
}

uint64_t bt_kvt_windows_floor(const bt_kvt_t *kvt)
{
    if (bt_list_empty(&kvt->windows)) {
        return kvt->next_grant;
    }
    return BT_CONTAINER_OF(kvt->windows.next, bt_kvt_window_t, all)
        ->lease.grant;
}

static void entry_init(bt_kvt_event_entry_t *entry, bt_kvt_event_type_t type,
                       bt_kvt_window_t *w)
{
    bt_list_init(&entry->link);
    entry->type = type;
    entry->owner = w;
}

static void bind(bt_kvt_window_t *w, bt_kvt_link_t *link)
{
    w->link = link;
    bt_list_push_back(&link->windows, &w->of_link);
}

/** An old one, all zero but for its memory. */
static bt_kvt_window_t *window_spare(bt_kvt_t *kvt)
{
    bt_kvt_window_t *w =
        BT_CONTAINER_OF(kvt->spare_windows.next, bt_kvt_window_t, all);
    bt_kvt_window_t kept;

    bt_list_remove(&w->all);
    kvt->n_spare_windows--;
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

static bt_kvt_window_t *window_get(bt_kvt_t *kvt)
{
    bt_kvt_window_t *w = bt_list_empty(&kvt->spare_windows)
                             ? bt_calloc(1, sizeof(*w))
                             : window_spare(kvt);

    if (w == NULL) {
        return NULL;
    }
    w->kvt = kvt;
    bt_list_init(&w->all);
    bt_list_init(&w->by_id);
    bt_list_init(&w->todo);
    bt_list_init(&w->of_link);
    entry_init(&w->result, BT_KVT_WINDOW_DONE, w);
    entry_init(&w->stuck, BT_KVT_QUARANTINE_STUCK, w);
    entry_init(&w->gone, BT_KVT_WINDOW_CLOSED, w);
    return w;
}

bt_status_t bt_kvt_window_open(bt_kvt_t *kvt, uint64_t id, uint32_t generation,
                               uint64_t sender_instance,
                               const bt_kvt_extent_t *extents,
                               uint32_t n_extents, void *user, void *desc,
                               size_t cap, size_t *desc_bytes_p,
                               bt_kvt_window_t **window_p)
{
    bt_kvt_link_t *link = NULL;
    bt_kvt_desc_t *d = &kvt->desc;
    bt_status_t status;
    bt_kvt_window_t *w;

    if (window_find(kvt, id) != NULL) {
        return BT_ERR_EXISTS;
    }
    w = window_get(kvt);
    if (w == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status =
        bt_kvt_map_init(extents, n_extents, kvt->config.pool_bytes, &w->map);
    if (status != BT_OK) {
        goto err_window;
    }
    w->lease = (bt_kvt_lease_t){
        .id = id, .generation = generation, .grant = kvt->next_grant};
    w->sender_instance = sender_instance;
    w->user = user;
    if (sender_instance != 0) {
        link = bt_kvt_link_find(kvt, sender_instance);
    }

    status = bt_kvt_desc_reserve(d, w->map.n_runs);
    if (status != BT_OK) {
        goto err_window;
    }
    d->receiver = kvt->config.instance;
    d->lease = w->lease;
    d->session = ((link != NULL) && link->hello_taken) ? link->nonce : 0;
    d->n_extents = w->map.n_runs;
    for (uint32_t i = 0; i < w->map.n_runs; i++) {
        d->extents[i].offset = w->map.runs[i].offset;
        d->extents[i].bytes = w->map.runs[i].bytes;
    }
    status = bt_kvt_desc_encode(d, desc, cap, desc_bytes_p);
    if (status != BT_OK) {
        goto err_window;
    }

    kvt->next_grant++;
    if (link != NULL) {
        bind(w, link);
        w->writer = link->hello_taken && link->remote_direct;
    }
    bt_list_push_back(&kvt->windows, &w->all);
    bt_hmap_insert(&kvt->windows_by_id, hash_of(id), &w->by_id);
    kvt->counters.windows_open++;
    *window_p = w;
    return BT_OK;

err_window:
    bt_kvt_window_free(w);
    return status;
}

void bt_kvt_window_free(bt_kvt_window_t *w)
{
    bt_kvt_t *kvt = w->kvt;

    bt_list_remove(&w->all);
    bt_list_remove(&w->by_id);
    bt_list_remove(&w->todo);
    bt_list_remove(&w->of_link);
    bt_list_remove(&w->result.link);
    bt_list_remove(&w->stuck.link);
    bt_list_remove(&w->gone.link);
    if (!kvt->closing && (kvt->n_spare_windows + 1 <= BT_KVT_MAX_SPARE)) {
        kvt->n_spare_windows++;
        bt_list_push_back(&kvt->spare_windows, &w->all);
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

/** Closed, once nobody can write to its bytes any more. */
static void window_settle(bt_kvt_window_t *w)
{
    bt_kvt_t *kvt = w->kvt;

    if (!w->closing || w->closed || w->writer || (w->n_receiving > 0)) {
        return;
    }
    w->closed = true;
    if (w->quarantined) {
        kvt->counters.windows_quarantined--;
    }
    kvt->counters.windows_open--;
    bt_list_remove(&w->all);
    bt_list_push_back(&kvt->closed, &w->all);
    bt_list_remove(&w->by_id);
    bt_list_remove(&w->todo);
    bt_list_remove(&w->of_link);
    bt_list_remove(&w->stuck.link);
    w->link = NULL;
    bt_kvt_event_push(kvt, &w->gone);
}

void bt_kvt_window_fail(bt_kvt_window_t *w, bt_status_t status)
{
    if (!bt_kvt_window_is_live(w)) {
        return;
    }
    w->state = BT_KVT_WINDOW_IS_FAILED;
    w->status = status;
    bt_list_remove(&w->todo);
    w->result.type = BT_KVT_WINDOW_FAILED;
    bt_kvt_event_push(w->kvt, &w->result);
    if (w->link != NULL) {
        bt_kvt_link_send_lease(w->link, BT_KVT_MSG_RESULT, &w->lease, status);
    }
}

void bt_kvt_window_done(bt_kvt_window_t *w)
{
    w->state = BT_KVT_WINDOW_IS_DONE;
    w->status = BT_OK;
    w->kvt->counters.bytes_received += w->map.bytes;
    bt_kvt_event_push(w->kvt, &w->result);
    if (w->link != NULL) {
        bt_kvt_link_send_lease(w->link, BT_KVT_MSG_RESULT, &w->lease, BT_OK);
    }
}

void bt_kvt_window_close(bt_kvt_window_t *w)
{
    bt_kvt_t *kvt;

    if ((w == NULL) || w->closing) {
        return;
    }
    kvt = w->kvt;
    w->closing = true;
    bt_list_remove(&w->todo);
    bt_list_remove(&w->result.link); /* the caller does not wait for it */
    if ((w->link != NULL) && !w->stopped &&
        ((w->state == BT_KVT_WINDOW_OPEN) || w->writer)) {
        bt_kvt_link_send_lease(w->link, BT_KVT_MSG_REVOKE, &w->lease, BT_OK);
    }
    /* Staged: what the own device still copies into it. */
    if (w->writer || ((kvt->stage != NULL) && (w->n_receiving > 0))) {
        w->quarantined = true;
        kvt->counters.windows_quarantined++;
    }
    bt_list_push_back(&kvt->closing_windows, &w->todo);
    window_settle(w);
}

uint8_t *bt_kvt_window_take(bt_kvt_t *kvt, const void *header,
                            size_t header_bytes, uint64_t data_bytes,
                            bt_kvt_piece_t *piece_p, bt_kvt_window_t **window_p)
{
    uint64_t pool_offset = 0;
    bt_kvt_piece_t piece;
    bt_kvt_window_t *w;
    bt_status_t status;

    if ((bt_kvt_piece_decode(header, header_bytes, &piece) != BT_OK) ||
        (piece.bytes != data_bytes)) {
        goto discard;
    }
    w = lease_find(kvt, &piece.lease);
    if ((w == NULL) || !bt_kvt_window_is_live(w) ||
        ((w->sender_instance != 0) && (w->sender_instance != piece.from)) ||
        ((w->link != NULL) && (w->link->instance != piece.from))) {
        goto discard;
    }
    if ((piece.bytes == 0) ||
        (bt_kvt_map_find(&w->map, piece.offset, piece.bytes, &pool_offset) !=
         piece.bytes)) {
        goto discard;
    }
    if ((kvt->stage != NULL) && (piece.bytes > BT_KVT_STAGE_SLOT_BYTES)) {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE); /* our export says so */
        goto discard;
    }
    status = bt_kvt_ranges_add(&w->given, piece.offset, piece.bytes);
    if (status == BT_ERR_NO_MEMORY) {
        bt_kvt_window_fail(w, status);
    }
    if (status != BT_OK) {
        goto discard;
    }

    if (w->link != NULL) {
        w->link->last_heard_ms = kvt->now_ms;
    }
    w->n_receiving++;
    *piece_p = piece;
    *window_p = w;
    return kvt->pool + pool_offset;

discard:
    kvt->counters.stale_discarded++;
    return NULL;
}

static void verify_later(bt_kvt_window_t *w)
{
    if (bt_list_empty(&w->todo) && bt_kvt_window_is_live(w)) {
        bt_list_push_back(&w->kvt->verify, &w->todo);
    }
}

void bt_kvt_window_landed(bt_kvt_window_t *w, uint64_t offset, uint64_t bytes,
                          bool ok)
{
    w->n_receiving--;
    if (w->closing) {
        window_settle(w);
        return;
    }
    if (w->link != NULL) {
        w->link->last_heard_ms = w->kvt->now_ms;
    }
    w->arrived_us = bt_now_us();
    if (!ok) {
        /* The link is failing; what is missing keeps the window open. */
        return;
    }
    if (bt_kvt_ranges_add(&w->landed, offset, bytes) != BT_OK) {
        bt_kvt_window_fail(w, BT_ERR_NO_MEMORY);
        return;
    }
    if (w->n_verified < w->n_records) {
        verify_later(w);
    }
}

void bt_kvt_window_put(bt_kvt_window_t *w, uint8_t *dst, const void *src,
                       uint64_t offset, uint64_t bytes)
{
    const bt_kvt_t *kvt = w->kvt;
    bt_status_t status = BT_OK;

    if (kvt->stage != NULL) {
        bt_kvt_stage_put(w, dst, src, offset, bytes);
        return;
    }
    if (kvt->bounce == NULL) {
        memcpy(dst, src, bytes);
    } else {
        status =
            kvt->config.device.write(kvt->config.device.user, dst, src, bytes);
    }
    bt_kvt_window_landed(w, offset, bytes, status == BT_OK);
    if (status != BT_OK) {
        bt_kvt_window_fail(w, status);
    }
}

static void on_begin(bt_kvt_link_t *link, bt_kvt_window_t *w,
                     const bt_kvt_msg_t *msg)
{
    bt_status_t status = BT_ERR_STALE;

    if ((w != NULL) && bt_kvt_window_is_live(w) && link->remote_direct) {
        w->writer = true;
        status = BT_OK;
    }
    bt_kvt_link_send_lease(link, BT_KVT_MSG_BEGIN_ACK, &msg->lease, status);
}

static bt_status_t records_append(bt_kvt_window_t *w, const bt_kvt_msg_t *msg)
{
    const uint32_t n = w->n_records + msg->n_records;

    if (n > w->records_cap) {
        const uint32_t cap = (n > w->records_cap * 2) ? n : w->records_cap * 2;
        bt_kvt_record_t *grown =
            bt_realloc_array(w->records, cap, sizeof(*grown));

        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        w->records = grown;
        w->records_cap = cap;
    }
    for (uint32_t i = 0; i < msg->n_records; i++) {
        const bt_kvt_record_t record = bt_kvt_record_get(msg, i);

        /* Together at most the window, each at least a byte: this bounds
         * what a sender can make us keep. */
        if ((record.bytes == 0) ||
            (record.bytes > w->map.bytes - w->record_bytes)) {
            return BT_ERR_BAD_MESSAGE;
        }
        w->record_bytes += record.bytes;
        w->records[w->n_records++] = record;
    }
    return BT_OK;
}

static void on_part(bt_kvt_window_t *w, const bt_kvt_msg_t *msg)
{
    bt_status_t status;

    if (w->last || (msg->first_record < w->n_records) ||
        ((msg->n_records == 0) && !msg->last)) {
        w->kvt->counters.stale_discarded++; /* came twice */
        return;
    }
    if ((msg->first_record > w->n_records) || (msg->direct && !w->writer) ||
        ((w->n_records > 0) && (w->direct != msg->direct))) {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE);
        return;
    }
    w->direct = msg->direct;
    w->kvt->counters.descriptors += msg->n_records;
    status = records_append(w, msg);
    if (status != BT_OK) {
        bt_kvt_window_fail(w, status);
        return;
    }
    if (msg->last) {
        w->last = true;
        w->writer = false;
        w->sender_us = msg->elapsed_us;
        if (msg->direct || (w->arrived_us == 0)) {
            w->arrived_us = bt_now_us();
        }
        w->note_bytes = msg->note.bytes;
        if (msg->note.bytes > 0) {
            memcpy(w->note, msg->note.data, msg->note.bytes);
        }
    }
    verify_later(w);
}

void bt_kvt_window_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg)
{
    bt_kvt_window_t *w = lease_find(link->kvt, &msg->lease);

    if ((w != NULL) && (w->link == NULL) &&
        ((w->sender_instance == 0) || (w->sender_instance == link->instance))) {
        bind(w, link);
    }
    if ((w != NULL) && (w->link != link)) {
        w = NULL; /* not this sender's */
    }

    switch (msg->type) {
    case BT_KVT_MSG_BEGIN:
        on_begin(link, w, msg);
        break;
    case BT_KVT_MSG_PART:
        if ((w != NULL) && bt_kvt_window_is_live(w)) {
            on_part(w, msg);
        } else if ((w == NULL) || w->closing) {
            link->kvt->counters.stale_discarded++;
            bt_kvt_link_send_lease(link, BT_KVT_MSG_RESULT, &msg->lease,
                                   BT_ERR_STALE);
        }
        break;
    case BT_KVT_MSG_CANCEL:
    case BT_KVT_MSG_CONFIRM:
        if (w != NULL) {
            w->stopped = true;
            w->writer = false;
            window_settle(w);
        }
        if ((w != NULL) && (msg->type == BT_KVT_MSG_CANCEL)) {
            bt_kvt_window_fail(w, BT_ERR_CANCELED);
        }
        break;
    default:
        break;
    }
}

void bt_kvt_window_link_lost(bt_kvt_window_t *w, bool gone)
{
    if (gone) {
        w->writer = false;
    }
    bt_kvt_window_fail(w, BT_ERR_PEER_LOST);
    window_settle(w);
}

void bt_kvt_windows_bind(bt_kvt_link_t *link)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &link->kvt->windows)
    {
        bt_kvt_window_t *w = BT_CONTAINER_OF(pos, bt_kvt_window_t, all);

        if ((w->link == NULL) && (w->sender_instance == link->instance)) {
            bind(w, link);
        }
    }
}

/** A copy of the own device that does not end holds the window's bytes. */
static void device_watch(bt_kvt_window_t *w)
{
    const bt_kvt_t *kvt = w->kvt;

    if (w->quarantined && !w->stuck_told &&
        (kvt->now_ms - w->close_ms >= kvt->config.quarantine_ms)) {
        w->stuck_told = true;
        BT_LOG_WARN("kv transfer: window %llu waits for copies of the own "
                    "device for %llu ms",
                    (unsigned long long)w->lease.id,
                    (unsigned long long)(kvt->now_ms - w->close_ms));
    }
}

void bt_kvt_windows_tick(bt_kvt_t *kvt)
{
    const uint64_t now = kvt->now_ms;
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &kvt->closing_windows)
    {
        bt_kvt_window_t *w = BT_CONTAINER_OF(pos, bt_kvt_window_t, todo);

        if (!w->close_timed) {
            w->close_timed = true;
            w->close_ms = now;
            w->revoke_ms = now;
        }
        if (!w->writer) {
            device_watch(w);
            continue;
        }
        if (now - w->revoke_ms >= kvt->config.keepalive_ms) {
            w->revoke_ms = now;
            bt_kvt_link_send_lease(w->link, BT_KVT_MSG_REVOKE, &w->lease,
                                   BT_OK);
        }
        if (!w->stuck_told &&
            (now - w->close_ms >= kvt->config.quarantine_ms)) {
            w->stuck_told = true;
            BT_LOG_INFO("kv transfer: window %llu quarantined for %llu ms, "
                        "pid %d is silent",
                        (unsigned long long)w->lease.id,
                        (unsigned long long)(now - w->close_ms), w->link->pid);
            bt_kvt_event_push(kvt, &w->stuck);
        }
    }
}
