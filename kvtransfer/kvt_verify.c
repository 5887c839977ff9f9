/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side verifies the records of the manifest. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_share.h"

/** Finds the pieces of a record in the pool. @return how many; 0: the record is
 *  not within this window */
static uint32_t pieces_of(const bt_kvt_window_t *w, const bt_kvt_record_t *r,
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

static bt_status_t record_hash(bt_kvt_window_t *w, const bt_kvt_record_t *r,
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

bool bt_kvt_window_prove(bt_kvt_window_t *w, const bt_kvt_record_t *r,
                         uint64_t hash)
{
    bt_kvt_t *kvt = w->kvt;
    bt_status_t status;

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

void bt_kvt_window_decide(bt_kvt_window_t *w)
{
    if ((w->state != BT_KVT_WINDOW_IS_LISTED) ||
        (w->n_verified < w->n_records)) {
        return;
    }
    if (w->proven.bytes == w->map.bytes) {
        bt_kvt_window_done(w);
    } else {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE); /* a hole */
    }
}

/** Verifies the next record. @return false when the window is finished
 *  (failed), or waits for data. */
static bool record_verify(bt_kvt_window_t *w)
{
    const bt_kvt_record_t *r = &w->records[w->n_verified];
    bt_hash_piece_t pieces[BT_KVT_MAX_RECORD_RUNS];
    const uint32_t n = pieces_of(w, r, pieces);
    uint64_t hash = 0;
    bt_status_t status;

    if (n == 0) {
        bt_kvt_window_fail(w, BT_ERR_BAD_MESSAGE);
        return false;
    }
    if (!w->direct && !bt_kvt_ranges_have(&w->landed, r->offset, r->bytes)) {
        return false;
    }
    status = record_hash(w, r, pieces, n, &hash);
    if (status != BT_OK) {
        bt_kvt_window_fail(w, status);
        return false;
    }
    return bt_kvt_window_prove(w, r, hash);
}

/** Verifies records of a window. @return false when the budget is used up. */
static bool window_verify(bt_kvt_window_t *w, size_t *budget_p)
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
    bt_kvt_window_decide(w);
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
