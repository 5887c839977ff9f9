/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side checks what the manifest lists. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_stage.h"

/* Of longer records the processor sees by itself what is next. */
#define MAX_AHEAD_BYTES 65536u

/** What is verified next, if it is no longer than @a bytes, which are large
 *  enough to bring it near meanwhile; else NULL. Its place is known then. */
static const uint8_t *next_bytes(bt_kvt_window_t *w, uint64_t bytes)
{
    const bt_kvt_record_t *next = &w->records[w->n_verified + 1];

    if ((bytes > MAX_AHEAD_BYTES) || (w->n_verified + 1 >= w->n_records) ||
        (next->bytes > bytes) ||
        (bt_kvt_map_find(&w->map, next->offset, next->bytes, &w->place) !=
         next->bytes)) {
        return NULL;
    }
    w->n_placed = w->n_verified + 2;
    return w->kvt->pool + w->place;
}

static bt_status_t record_hash(bt_kvt_window_t *w, const bt_kvt_record_t *r,
                               uint8_t *bytes, uint64_t *hash_p)
{
    bt_kvt_t *kvt = w->kvt;

    if (kvt->stage != NULL) {
        return bt_kvt_stage_hash_of(w, r, hash_p) ? BT_OK : BT_ERR_BAD_MESSAGE;
    }
    return bt_kvt_memory_hash(
        kvt, bytes, r->bytes,
        bt_kvt_record_seed(&w->lease, r->offset, r->bytes),
        next_bytes(w, r->bytes), hash_p);
}

/** Where the record to verify lies in the pool. */
static bool record_place(bt_kvt_window_t *w, const bt_kvt_record_t *r)
{
    if (w->n_placed > w->n_verified) {
        return true; /* as the next one of the last */
    }
    w->n_placed = w->n_verified + 1;
    return bt_kvt_map_find(&w->map, r->offset, r->bytes, &w->place) == r->bytes;
}

/** @return false when the window is through (failed, or waits for data). */
static bool record_verify(bt_kvt_window_t *w)
{
    const bt_kvt_record_t *r = &w->records[w->n_verified];
    bt_kvt_t *kvt = w->kvt;
    uint64_t hash = 0;
    bt_status_t status;

    if (!record_place(w, r)) {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE);
        return false;
    }
    if (!w->direct && !bt_kvt_ranges_have(&w->landed, r->offset, r->bytes)) {
        return false;
    }
    status = record_hash(w, r, kvt->pool + w->place, &hash);
    if (status != BT_OK) {
        bt_kvt_window_fail(w, status);
        return false;
    }
    if (hash != r->hash) {
        kvt->counters.checksum_failures++;
        BT_LOG_INFO("kv transfer: window %llu generation %u corrupt at %llu",
                    (unsigned long long)w->lease.id, w->lease.generation,
                    (unsigned long long)r->offset);
        bt_kvt_window_fail(w, BT_ERR_CORRUPT);
        return false;
    }
    status = bt_kvt_ranges_add(&w->proven, r->offset, r->bytes);
    if (status != BT_OK) {
        bt_kvt_window_fail(w, (status == BT_ERR_EXISTS) ? BT_ERR_BAD_MESSAGE
                                                        : status);
        return false;
    }
    w->n_verified++;
    return true;
}

/** @return false when the budget is used up. */
static bool window_verify(bt_kvt_window_t *w, size_t *budget_p)
{
    const uint64_t start_us = bt_now_us();

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
    if ((w->state != BT_KVT_WINDOW_IS_LISTED) ||
        (w->n_verified < w->n_records)) {
        return true;
    }
    if (w->proven.bytes == w->map.bytes) {
        bt_kvt_window_done(w);
    } else {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE); /* a hole */
    }
    return true;
}

void bt_kvt_windows_verify(bt_kvt_t *kvt, size_t *budget_p)
{
    while (!bt_list_empty(&kvt->verify)) {
        if (!window_verify(
                BT_CONTAINER_OF(kvt->verify.next, bt_kvt_window_t, todo),
                budget_p)) {
            return;
        }
    }
}
